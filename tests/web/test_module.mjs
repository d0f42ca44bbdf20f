// The module under Node beside the native library: node tests/web/test_module.mjs BUILD VARIANT [--speed MODEL.attn]
//
// BUILD holds attn.js, the module, web-native, and models in web-models/. VARIANT is plain, simd or
// relaxed; relaxed SIMD needs node --experimental-wasm-relaxed-simd before version 21.
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runInNewContext } from "node:vm";

const [build, variant, option, path] = process.argv.slice(2);
const { Model } = await import(pathToFileURL(resolve(build, "attn.js")));
let passed = 0, failed = 0;

function check(what, got, want) {
  if (JSON.stringify(got) === JSON.stringify(want)) return passed++;
  failed++;
  console.log(`FAILED: ${variant}: ${what}: ${JSON.stringify(got)?.slice(0, 200)}; expected ${JSON.stringify(want)?.slice(0, 200)}`);
}

function digest(numbers) {
  let hash = 2166136261;
  for (const byte of new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)) hash = Math.imul(hash ^ byte, 16777619);
  return hash >>> 0;
}

async function greedy(session, prompt, n) {
  const ids = [], digests = [];
  session.truncate(0);
  session.feed(prompt);
  for await (const token of session.generate({ maxTokens: n })) {
    ids.push(token.id);
    digests.push(digest(token.logits));
  }
  return { ids, digests };
}

function fails(what, words, run) {
  try {
    run();
    check(what, "no error", words);
  } catch (error) {
    check(`${what}: ${error.message}`, error.message.includes(words), true);
  }
}

async function compare(dtype) {
  const path = `${build}/web-models/${dtype}.attn`, want = JSON.parse(execFileSync(`${build}/tests/web-native`, [path]));
  const model = await Model.open(path, { variant }), session = model.session(), n = want.plain.ids.length;
  check(`${dtype}: greedy`, await greedy(session, want.prompt, n), want.plain);
  const edit = session.edit({ name: "blocks.2.attn.hook_z", firstHead: 3, nHeads: 1 });
  check(`${dtype}: a head set to zero`, await greedy(session, want.prompt, n), want.ablated);
  session.unhook(edit);
  session.edit({ name: "blocks.2.attn.hook_z", firstHead: 3, nHeads: 1, kind: "scale", value: 0 });
  check(`${dtype}: a head times 0`, await greedy(session, want.prompt, n), want.ablated);
  session.unhook();
  session.hook("blocks.2.attn.hook_z", ({ shape, data }) => {
    for (let t = 0; t < shape[0]; t++) data.fill(0, (t * shape[1] + 3) * shape[2], (t * shape[1] + 4) * shape[2]);
  });
  check(`${dtype}: a hook in JavaScript`, await greedy(session, want.prompt, n), want.ablated);
  session.unhook();
  session.truncate(0);
  const record = session.record(["blocks.1.attn.hook_pattern"]);
  session.feed("The cat sat on the mat and");
  check(`${dtype}: a record`, digest(record.get("blocks.1.attn.hook_pattern").data), want.pattern);
  record.free();
  check(`${dtype}: encode`, Array.from(model.encode("Zoë said: 🙂 hello")), want.encoded);
  check(`${dtype}: decode`, model.decode(want.encoded), "Zoë said: 🙂 hello");
  session.free();
  model.close();
}

async function others() {
  const path = `${build}/web-models/f16.attn`, bytes = await readFile(path);
  const model = await Model.open(new Blob([bytes]), { variant }), session = model.session();
  const { dModel, nLayer } = model.config;
  // The logit lens at the end of the stream gives the likeliest token of the logits, and the shares
  // of a logit's parts sum to it.
  const record = session.record([`blocks.${nLayer - 1}.hook_resid_post`, "ln_final.hook_scale"]);
  session.feed("Once upon a time");
  const logits = session.logits, best = logits.indexOf(Math.max(...logits)), stream = record.get(`blocks.${nLayer - 1}.hook_resid_post`, 0, session.length - 1).data;
  check("lens", model.lens(stream, 1).tokens[0], best);
  const [part, bias] = model.attribute(stream, record.get("ln_final.hook_scale", 0, session.length - 1).data[0], best);
  check("attribute", Math.abs(part + bias - logits[best]) < 1e-3, true);
  check("tensor", model.tensor("unembed.W_U").shape, [dModel, model.config.nVocab]);
  record.free();
  // A mean is that of the numbers given, and an addition adds.
  session.unhook();
  const seen = [];
  const value = { shape: [2, dModel], data: Float32Array.from({ length: 2 * dModel }, (_, i) => (i < dModel ? 1 : 3)) };
  session.edit({ name: "blocks.1.hook_resid_pre", kind: "mean", value });
  session.edit({ name: "blocks.1.hook_resid_pre", kind: "add", first: 1, count: 1, value: 2 });
  session.hook("blocks.1.hook_resid_pre", ({ data }) => void seen.push(data[0], data[dModel]));
  session.truncate(0);
  session.feed([1, 2]);
  check("mean, add", seen, [2, 4]);
  session.unhook();
  session.hook("hook_embed", () => { throw new Error("from a hook"); });
  fails("a hook that throws", "from a hook", () => session.feed([1]));
  session.unhook();
  fails("a name that is not there", "hook_pattern", () => session.edit({ name: "blocks.0.attn.hook_patern" }));
  fails("a token that is not there", "2048", () => session.feed([2048]));
  fails("too many tokens", "256", () => session.feed(new Int32Array(257)));
  session.free();
  model.close();
  for (const [what, damaged] of [["cut", bytes.slice(0, 5000)], ["changed", bytes.map((b, i) => (i === 100000 ? b ^ 1 : b))], ["empty", bytes.slice(0, 0)]]) {
    try {
      await Model.open(new Uint8Array(damaged), { variant });
      check(`a ${what} file`, "opened", "refused");
    } catch (error) {
      check(`a ${what} file: ${error.message}`, error instanceof Error && !(error instanceof WebAssembly.RuntimeError) && error.message.length > 10, true);
    }
  }
}

/** The text of a story, its ids; fn may do something after each token. */
async function written(session, options, fn) {
  const ids = [];
  let text = "";
  for await (const token of session.generate(options)) {
    text += token.text;
    ids.push(token.id);
    fn?.(token);
  }
  return { text, ids };
}

/** A seed has 64 bits, as a BigInt or digits from 2^53 on; what is no seed is refused. */
async function seeds(model) {
  const session = model.session(), options = { temperature: 0.9, maxTokens: 12 };
  const story = async (more) => {
    session.truncate(0);
    session.feed("Once upon a time");
    return (await written(session, { ...options, ...more })).text;
  };
  const native = (seed) => execFileSync(`${build}/gpt2`, [`${build}/web-models/f16.attn`, "Once upon a time", "-n", "12", "--temperature", "0.9", "--seed", seed, "--no-prompt", "-q"], { encoding: "utf8" }).replace(/\n$/, "");
  for (const seed of [0, 7, 2 ** 32 + 1, 2 ** 53 - 1, 9007199254740993n, 18446744073709551615n, "9007199254740993"]) check(`seed ${seed}`, await story({ seed }), native(String(seed)));
  const greedy = await story({ temperature: 0 });
  check("a top-p of 0 keeps the likeliest", await story({ topP: 0, seed: 5 }), greedy);
  check("a top-p of 1 keeps all", await story({ topP: 1, seed: 5 }), await story({ seed: 5 }));
  for (const [key, values] of Object.entries({ seed: [-1, NaN, Infinity, 1.5, 2 ** 53, 2n ** 64n, -1n, "1e3", "", null, true], topK: [-1, 2 ** 31, 1.5, NaN, 3n, "3"], repeatLast: [-1, 2 ** 33, 0.5], maxTokens: [-1, NaN, 1.5, "9"], temperature: [-1, NaN, "1", null], topP: [-0.5, 1.5, NaN], minP: [2, "0"], repeatPenalty: [-1, null] }))
    for (const value of values)
      await story({ [key]: value }).then((text) => check(`${key} ${String(value)}`, text, "refused"), ({ message }) => check(`${key} ${String(value)}: ${message}`, message.includes(key.replace(/[A-Z]/, (c) => `_${c.toLowerCase()}`)) || message.includes(key), true));
  session.free();
}

/** Whatever is handed over holds the numbers that it says; nothing is read beyond them. */
function inputs(model) {
  const session = model.session(), { dModel, nVocab } = model.config, name = "blocks.0.hook_resid_pre", ones = (n) => new Float32Array(n).fill(1);
  const seen = (value) => {
    session.truncate(0);
    const id = session.edit({ name, kind: "set", value }), record = session.record([name]);
    session.feed([5]);
    const { data } = record.get(name);
    record.free();
    session.unhook(id);
    return digest(data);
  };
  const want = seen({ shape: [dModel], data: ones(dModel) });
  for (const data of [Array(dModel).fill(1), new Float64Array(dModel).fill(1), new Int8Array(dModel).fill(1)]) check(`${data.constructor.name} as a value`, seen({ shape: [dModel], data }), want);
  for (const [shape, n] of [[[dModel], 10], [[4, dModel], dModel], [[dModel], dModel + 1], [[2, 0], 0], [[-1, -dModel], dModel], [[1.5], 1], [[], 1], [[1, 1, 1, dModel], dModel], [undefined, 3]]) fails(`${n} numbers, shape ${JSON.stringify(shape)}`, "value", () => session.edit({ name, kind: "set", value: { shape, data: ones(n) } }));
  for (const data of [undefined, null, 5, "12", new DataView(new ArrayBuffer(4)), new BigInt64Array(1), [1n], ["1"]]) fails(`${String(data)} as numbers`, "value.data", () => session.edit({ name, kind: "set", value: { shape: [1], data } }));
  for (const key of ["first", "count", "firstHead", "nHeads"]) for (const value of [-1, 0.5, 2 ** 32, NaN, "1", null]) fails(`${key} ${value}`, key, () => session.edit({ name, [key]: value }));
  fails("a value of null", "value", () => session.edit({ name, kind: "scale", value: null }));
  for (const key of ["position", "nPositions", "head", "factor"]) fails(`an edit's ${key}`, `no ${key}`, () => session.edit({ name, [key]: 1 }));
  fails("100 numbers as a stream", `[n, ${dModel}]`, () => model.lens(ones(100)));
  fails("100 numbers as parts", `[n, ${dModel}]`, () => model.attribute(ones(100), 1, 5));
  fails("no stream", `[n, ${dModel}]`, () => model.lens([]));
  for (const id of [-1, nVocab, 1.5, NaN, 2 ** 32 + 5, "5", undefined]) {
    fails(`feed [${id}]`, "id", () => session.feed([id]));
    fails(`score [${id}]`, "id", () => session.score([id]));
    fails(`decode [${id}]`, "id", () => model.decode([id]));
    fails(`attribute to ${id}`, "id", () => model.attribute(ones(dModel), 1, id));
  }
  fails("score without tokens", "at least one", () => session.score([]));
  for (const value of [-1, 1.5, NaN, 2 ** 32]) {
    fails(`truncate(${value})`, "length", () => session.truncate(value));
    fails(`session of ${value}`, "nCtx", () => model.session({ nCtx: value }));
    fails(`score, ${value} a position`, "k is", () => session.score([1], value));
    fails(`lens, ${value} a position`, "k is", () => model.lens(ones(dModel), value));
  }
  session.truncate(0);
  const record = session.record([name]);
  session.feed([5, 6]);
  for (const [dim, index] of [[0, 2], [0, -1], [2, 0], [0, 0.5]]) fails(`dimension ${dim}, index ${index}`, dim === 2 ? "dim" : "index", () => record.get(name, dim, index));
  record.free();
  for (const [what, run] of Object.entries({ edit: (n) => session.edit({ name: n }), hook: (n) => session.hook(n, () => {}), record: (n) => session.record([n]), tensor: (n) => model.tensor(n) })) {
    fails(`${what}: a name with NUL`, "NUL", () => run("hook_embed\0x"));
    fails(`${what}: no name`, "string", () => run(undefined));
  }
  fails("a hook that is no function", "function", () => session.hook(name, 5));
  for (const text of [5, null, undefined]) fails(`encode(${text})`, "string", () => model.encode(text));
  session.free();
  session.free();
  fails("a session that is freed", "freed", () => session.feed([1]));
}

/** The bytes of a text stay, U+FEFF and NUL too, and a character that is cut is U+FFFD, as in decode. */
async function texts(model) {
  for (const text of ["\ufeffOnce", "\ufeff", "\ufeff\ufeffOnce", "a\ufeffOnce", "a\0b"]) check(`encode, decode ${JSON.stringify(text)}`, model.decode(model.encode(text)), text);
  const { eos, nLayer, dModel } = model.config, { shape: [, width], data: unembedding } = model.tensor("unembed.W_U");
  /** A final stream that makes a token the likeliest: towards its unembedding, away from what wins. */
  const streamOf = (id) => {
    const stream = Float32Array.from({ length: dModel }, (_, i) => unembedding[i * width + id]);
    for (let best, tries = 0; (best = model.lens(stream, 1).tokens[0]) !== id && tries < 1000; tries++) stream.forEach((_, i) => (stream[i] += unembedding[i * width + id] - unembedding[i * width + best]));
    return stream;
  };
  const session = model.session({ nCtx: 12 }), part = streamOf(model.encode("🙂")[0]), end = streamOf(eos), marks = Array.from(model.encode("\ufeffa"), streamOf);
  let plan;
  session.hook(`blocks.${nLayer - 1}.hook_resid_post`, ({ data, first }) => data.forEach((_, i) => (data[i] = plan(first + Math.floor(i / dModel))[i % dModel])));
  /** Two tokens, after which `next` says what stream each position ends with. */
  const begin = (next) => {
    plan = next;
    session.truncate(0);
    session.feed([1, 2]);
  };
  for (const [why, maxTokens, next, n] of [["maxTokens", 3, () => part, 3], ["a full session", 100, () => part, 10], ["the end of the text", 100, (i) => (i < 3 ? part : end), 2]]) {
    begin(next);
    const { text, ids } = await written(session, { maxTokens });
    check(`a text cut by ${why}`, [text, ids.length, text.endsWith("\ufffd")], [model.decode(ids), n, true]);
  }
  begin(() => part);
  for await (const token of session.generate({ maxTokens: 9 })) {
    check("a loop that stops is told that the character is cut", [token.isCut, token.text], [true, ""]);
    break;
  }
  begin((i) => marks[i - 1] ?? part);
  const { text } = await written(session, { maxTokens: 4 });
  check("U+FEFF as the first that is written", text, "\ufeffa");
  session.free();
}

/** Sources of other realms and URLs of all kinds; what is no source gets a sentence. */
async function sources() {
  const path = `${build}/web-models/q4.attn`, bytes = await readFile(path), n = bytes.length;
  const server = createServer((_, answer) => answer.end(bytes)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const http = `http://127.0.0.1:${server.address().port}/m.attn`, file = pathToFileURL(path);
  const filled = (made) => (new Uint8Array(made.buffer ?? made).set(bytes), made);
  const all = {
    "a path": path, "a URL of a file": file, "a URL": new URL(http), "file:// in a string": file.href, "http:// in a string": http, "FILE:// in a string": file.href.replace("file", "FILE"),
    "an ArrayBuffer": filled(new ArrayBuffer(n)), "a SharedArrayBuffer": filled(new SharedArrayBuffer(n)), "a DataView": new DataView(filled(new ArrayBuffer(n))), "a Blob": new Blob([bytes]),
    "an ArrayBuffer of another realm": filled(runInNewContext(`new ArrayBuffer(${n})`)), "a Uint8Array of another realm": filled(runInNewContext(`new Uint8Array(${n})`)),
  };
  for (const [what, source] of Object.entries(all)) await Model.open(source, { variant }).then((model) => (check(what, model.config.nVocab, 2048), model.close()), (error) => check(what, error.message, "opened"));
  for (const source of [undefined, null, 5, {}, [], () => 0]) await Model.open(source, { variant }).then(() => check(String(source), "opened", "refused"), ({ message }) => check(`${String(source)}: ${message}`, message.includes("Model.open takes"), true));
  server.close();
}

/** Events come in while a page writes, and what they do holds. Functions that are unhooked are let go. */
async function events(model) {
  const session = model.session();
  session.feed("Once upon a time");
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1), begin = performance.now();
  while (performance.now() < begin + 100) await written(session, { maxTokens: 240 }).then(() => session.truncate(4));
  clearInterval(timer);
  check(`timers fired while it wrote: ${ticks}`, ticks > 3, true);
  session.truncate(0);
  session.feed("Once upon a time");
  const freed = setTimeout(() => session.free(), 1), slow = Math.floor(1e6);
  await written(session, { maxTokens: slow }, () => { for (const end = performance.now() + 3; performance.now() < end;); }).then(() => check("a session freed while it writes", "went on", "refused"), ({ message }) => check(message, message.includes("freed"), true));
  clearTimeout(freed);
  const other = model.session();
  for (let i = 0; i < 100; i++) other.unhook(other.hook("blocks.0.hook_resid_pre", () => {}));
  for (let i = 0; i < 100; i++) other.hook("blocks.0.hook_resid_pre", () => {});
  check("functions that are hooked", model.machine.hooks.size, 100);
  other.unhook();
  check("functions that are unhooked", model.machine.hooks.size, 0);
  other.hook("hook_embed", () => {});
  other.free();
  check("functions of a session that is freed", model.machine.hooks.size, 0);
}

async function strangers() {
  const model = await Model.open(`${build}/web-models/f16.attn`, { variant });
  await seeds(model);
  inputs(model);
  await texts(model);
  await events(model);
  await sources();
}

/** A full stop that ends a text is its last token, as transformers has it; a special token is left out. */
async function ends() {
  const model = await Model.open(`${build}/web-models/ends.attn`, { variant }), session = model.session();
  session.feed("Once upon a time");
  let text = "", last;
  for await (const token of session.generate({ maxTokens: 40 })) text += (last = token).text;
  check("an ordinary end token", text, ", there was a little girl named Lily.");
  check("the session has it too", session.tokens.at(-1), last.id);
  // A stream that points at the unembedding of the special token has the model draw that one.
  const { eos, nLayer } = model.config, { shape: [, width], data: unembedding } = model.tensor("unembed.W_U");
  session.hook(`blocks.${nLayer - 1}.hook_resid_post`, ({ data }) => data.forEach((_, i) => (data[i] = unembedding[(i % model.config.dModel) * width + eos])));
  session.truncate(0);
  session.feed("Once upon a time");
  check("the special token is the likeliest", session.logits.indexOf(Math.max(...session.logits)), eos);
  for await (const token of session.generate({ maxTokens: 40 })) check("a special end token", token.text, "nothing");
  session.free();
  model.close();
}

const settingsAsWords = (settings) => Object.entries(settings).flatMap(([name, value]) => [value].flat().flatMap((one) => (one === false ? [`--no-${name}`] : [`--${name.replaceAll("_", "-")}`, ...(one === true ? [] : [String(one)])])));
/** What the program says: its standard output, and the sentences of standard error. */
function native(program, words, input) {
  const { stdout, stderr } = spawnSync(`${build}/${program}`, [`${build}/tiny-stories.attn`, ...words], { input, encoding: "utf8", maxBuffer: 1 << 28 });
  return { out: stdout, said: stderr.split("\n").filter((line) => line).map((line) => line.replace(`${program}: `, "")) };
}
async function refuses(what, words, run) {
  await run().then(() => check(what, "no error", words), ({ message }) => check(`${what}: ${message}`, message.includes(words), true));
}

/** A value of each kind crosses as the program prints it, and every command that there is answers or says why not. */
async function questions() {
  const model = await Model.open(`${build}/tiny-stories.attn`, { variant }), prompt = "Tom was a boy. He", corrupted = "Tom was a girl. He";
  const pair = JSON.stringify({ clean: prompt, corrupted, token: " was", against: " had" }), pairs = Buffer.from(`${pair}\n${pair}\n`);
  const cases = [["loss", { prompt }], ["patch", { prompt, corrupted, by: "position-heads", token: " was", against: " had" }], ["patterns", { prompt, layer: 1 }], ["decompose", { prompt, bos: true, kind: "mlps" }], ["circuits", {}]];
  for (const [command, settings] of variant === "plain" ? cases.slice(0, 2) : cases) {
    const { notes, ...tables } = JSON.parse(native("lens", [command, ...settingsAsWords(settings), "--isa", "portable", "--json"]).out), answer = await model.query(command, settings);
    check(`${command}: notes`, answer.notes, notes);
    check(`${command}: tables`, Object.keys(answer.tables), Object.keys(tables));
    const nine = (value) => (typeof value === "number" ? (isNaN(value) ? null : Number(value.toPrecision(9))) : value);
    for (const [table, rows] of Object.entries(tables))
      for (const name of Object.keys(rows[0])) check(`${command}: ${table}.${name}`, Array.from(answer.tables[table][name], nine), rows.map((row) => row[name]));
    for (const form of ["svg", "text"]) check(`${command} as ${form}`, answer.form(form).length > 200, true);
    answer.free();
  }
  const recorded = await model.query("record", { prompt: model.encode(prompt), names: ["blocks.1.hook_resid_pre", "*.attn.hook_pattern"] }), session = model.session(), record = session.record(["blocks.1.hook_resid_pre"]);
  session.feed(prompt);
  const { axes, shape, data } = recorded.tensors["blocks.1.hook_resid_pre"];
  check("a tensor, of ids", [axes, shape, digest(data)], [["position", "width"], [model.encode(prompt).length, model.config.dModel], digest(record.get("blocks.1.hook_resid_pre").data)]);
  check("several names", Object.keys(recorded.tensors).length, 1 + model.config.nLayer);
  const scored = await model.query("score", { requests: ['{"task": "tokens", "text": "a cat"}', "{}"] });
  check("lists, texts, missing ones", [Array.isArray(scored.tables.scores.ids?.[0]), Object.values(scored.tables.scores).some((column) => column[1] === null)], [true, true]);
  check("a file", (await model.query("patch", { pairs: "p.jsonl", by: "heads", ci: true }, { files: { "p.jsonl": pairs } })).tables.facts.n_pairs[0], 2);
  const { files } = await model.query("process", { output: "folded.attn" }), folded = await Model.open(files["folded.attn"], { variant });
  check("a file that is written", folded.config, model.config);
  let told = 0;
  await model.query("patch", { prompt, corrupted }, { onProgress: (done) => void (told = Math.max(told, done)) });
  check("progress", told > 0 && told <= 1, true);
  await refuses("a stop", "stopped", () => model.query("patch", { prompt, corrupted }, { onProgress: () => true }));
  await refuses("a callback that throws", "of a callback", () => model.query("patch", { prompt, corrupted }, { onProgress: () => { throw new Error("of a callback"); } }));
  check("it goes on after that", (await model.query("loss", { prompt })).isWhole, true);
  for (const [words, command, settings] of [["there is no command x", "x"], ["promt means nothing to loss", "loss", { promt: "a" }], ["bos: \"2\" is neither true nor false", "loss", { prompt, bos: 2 }], ["by: there is no \"head\"", "patch", { prompt, corrupted, by: "head" }], ["layer", "patterns", { prompt, layer: 99 }], ["zero byte", "loss", { prompt: "a\0b" }], ["takes one value, not 2", "loss", { prompt: ["a", "b"] }], ["prompt is Object", "loss", { prompt: {} }], ["2048", "loss", { prompt: Int32Array.of(2048) }], ["x.txt: No such file", "loss", { file: "x.txt" }], ["process writes a model", "process"], ["there is no form", null]])
    await refuses(`${command} ${JSON.stringify(settings)}`, words, async () => (command ? model.query(command, settings) : scored.form("tex")));
  const commands = await model.commands();
  check("commands", commands.every(({ name, about }) => name && about) && commands.length > 20, true);
  for (const { name } of variant === "plain" ? [] : commands) { // which would take minutes
    const settings = await model.settings(name);
    check(`settings of ${name}`, settings.length > 0 && settings.every(({ help, kind }) => help && kind), true);
    await model.query(name).then((answer) => check(`${name} answers`, Object.keys(answer.tables).length > 0, true), ({ message }) => check(`${name}: ${message}`, message.length > 10 && !message.includes("--"), true));
  }
  const { isMany, isFile, usual, takes } = Object.fromEntries((await model.settings("patch")).map((setting) => [setting.name, setting])).by;
  check("a choice", [isMany, isFile, usual, takes.split(" ").includes("heads")], [false, false, null, true]);
  session.free();
  model.close();
}

/** Surprisal is that of the program, to the byte, with its notes and its sentences. */
async function surprisal() {
  const model = await Model.open(`${build}/tiny-stories.attn`, { variant }), fixtures = "tests/fixtures/surprisal/", file = "standard input";
  const run = (text, settings, onProgress, command = "surprisal") => model.query(command, { file, ...settings }, { files: { [file]: Buffer.from(text) }, onProgress });
  const lines = await readFile(`${fixtures}texts.txt`), long = await readFile(`${fixtures}long.txt`);
  for (const [text, settings] of [[lines, { by: "token", rank: true, top: 3 }], [long, { continue: true, stride: 40 }], ['\ufeffn;Satz;"a b"\r\n1;"A ""cat"" sat; it,";x\r\n', { column: "Satz", region_names: "a b" }]]) {
    let last = 0;
    const want = native("surprisal", settingsAsWords(settings), text), answer = await run(text, settings, (done) => void (check("progress grows", done >= last && done < 1, true), (last = done))).catch((error) => error);
    check(`surprisal ${JSON.stringify(settings)}: notes`, answer.notes ?? [answer.message], want.said);
    if (answer.notes) check(`surprisal ${JSON.stringify(settings)}: equal to the program's`, answer.form("csv") === want.out, true);
  }
  check("the bytes of every machine", (await run(lines, { rank: true, top: 2 })).form("csv"), await readFile(`${fixtures}bytes.csv`, "utf8"));
  check("texts at once", (await model.query("surprisal", { texts: ["Once upon", "a\ncat"] })).tables.rows.word, ["Once", "upon", "a", "cat"]);
  const part = await run("Once upon a time\n".repeat(400), {}, (done) => done > 0.1), n = part.tables.rows.word.length;
  check("a run that is left has what was measured", [part.isWhole, n > 100 && n < 1200, part.tables.rows.surprisal.length], [false, true, n]);
  const both = await Promise.all(["The cat sat.\n".repeat(90), "A dog ran.\n".repeat(90)].map(async (text) => (await run(text)).form("csv") === native("surprisal", [], text).out));
  check("two runs at the same time", both, [true, true]);
  const suite = await readFile(`${fixtures}reflexives.json`);
  check("a suite", (await run(suite, { by: "region" }, null, "suite")).form("csv"), native("surprisal", ["--suite", "--by", "region"], suite).out);
  const columns = async (text) => (await run(text, {}, null, "columns")).tables.columns;
  check("the columns of a table", await columns('sep=;\n"a ""b""";Satz\n1;"x\ny, z"\n2;z\n'), { name: ['a "b"', "Satz"], first: ["1", "x\ny, z"] });
  check("the names of one that cannot be read", await columns('a\tb\n1\t"2\n'), { name: ["a", "b"], first: [null, null] });
  for (const [text, settings] of [["", {}], ["a\xff", {}], ["a,b\n1,2\n", { column: "c" }], ["a", { by: "region" }], ["a", { stride: 999 }]])
    await refuses(`surprisal refuses ${JSON.stringify(text)}`, native("surprisal", settingsAsWords(settings), Buffer.from(text, "latin1")).said.at(-1).replace(/ of build.*/, "").replaceAll(/--(?=[a-z])/g, "").replaceAll("region-names", "region_names"), () => run(Buffer.from(text, "latin1"), settings));
  model.close();
}

/** The converter under the page's own WASI makes the file that the native one makes. */
async function convert() {
  const { runProgram } = await import(pathToFileURL(resolve("examples/web/wasi.js")));
  const module = await WebAssembly.compile(await readFile(`${build}/attn-convert.wasm`)), folder = "examples/tiny-stories";
  const files = new Map();
  for (const name of ["config.json", "merges.txt", "vocab.json", "model.safetensors"]) files.set(`checkpoint/${name}`, new Uint8Array(await readFile(`${folder}/${name}`)));
  const run = (more) => runProgram(module, ["attn-convert", "/checkpoint", "/model.attn", "--quiet", ...more], files);
  for (const dtype of ["f16", "q8"]) {
    const { code, said, files: made } = await run(["--dtype", dtype]);
    check(`attn-convert, ${dtype}: ${said}`, code, 0);
    check(`attn-convert, ${dtype}: the file`, Buffer.compare(Buffer.from(made.get("model.attn") ?? []), await readFile(`${build}/web-models/${dtype}.attn`)), 0);
    check(`attn-convert, ${dtype}: nothing else is left`, made.size, 1);
  }
  files.delete("checkpoint/config.json");
  const { code, said } = await run([]);
  check(`attn-convert without config.json: ${said}`, code !== 0 && said.includes("config.json"), true);
}

/** Tokens a second of processor time, the best of 1.5 seconds of tries, as web-native --speed has it. */
async function speed(path) {
  const model = await Model.open(path, { variant }), session = model.session();
  const prompt = Int32Array.from({ length: 128 }, (_, i) => (i * 37) % 2000);
  const timed = (run) => {
    let best = Infinity, taken = 0;
    while (taken < 1500) {
      session.truncate(0);
      const from = process.cpuUsage().user, n = run(), milliseconds = (process.cpuUsage().user - from) / 1000; // of the processor, whatever else runs here
      taken += milliseconds;
      best = Math.min(best, milliseconds / n);
    }
    return Math.round(1000 / best);
  };
  const reading = timed(() => (session.feed(prompt), 128));
  const writing = timed(() => { for (let i = 0; i < 64; i++) session.feed([prompt[i]]); return 64; });
  console.log(`${model.isa}: ${reading} tokens/s of a prompt of 128, ${writing} a token at a time`);
}

if (option === "--speed") await speed(path);
else {
  for (const dtype of ["f32", "f16", "q8", "q4"]) await compare(dtype);
  await others();
  await ends();
  await strangers();
  await questions();
  await surprisal();
  await convert();
  console.log(`${passed} passed, ${failed} failed, 0 skipped (${variant})`);
}
process.exitCode = failed ? 1 : 0;

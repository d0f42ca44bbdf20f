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

/** Surprisal is that of the program, to the byte, with its notes and its sentences. */
async function surprisal() {
  const model = await Model.open(`${build}/tiny-stories.attn`, { variant }), fixtures = "tests/fixtures/surprisal/";
  const run = (text, options) => {
    let csv = "", notes = [], last = 0;
    for (const piece of model.surprisal(text, { name: "standard input", ...options })) {
      csv += piece.csv;
      notes.push(...piece.notes);
      check("progress grows", piece.done >= last && piece.done <= 1, true);
      last = piece.done;
    }
    check("and ends at 1", last, 1);
    return { csv, notes };
  };
  const native = (text, words) => {
    const { stdout, stderr } = spawnSync(`${build}/surprisal`, [`${build}/tiny-stories.attn`, ...words], { input: text, encoding: "utf8" });
    return { csv: stdout, notes: stderr.split("\n").filter((line) => line).map((line) => line.replace(/^surprisal: /, "")) };
  };
  const lines = await readFile(`${fixtures}texts.txt`), long = await readFile(`${fixtures}long.txt`), table = '\ufeffn;Satz;"a b"\r\n1;"A ""cat"" sat; it,";x\r\n2;"The old_man\nthe boats.";"y;z"\r\n\r\n3;;\r\n';
  const cases = [
    [lines, {}, []],
    [lines, { by: "token", rank: true, top: 3 }, ["--by", "token", "--rank", "--top", "3"]],
    [lines, { unit: "nats", bos: false, punctuation: "apart" }, ["--unit", "nats", "--no-bos", "--punctuation", "apart"]],
    [long, {}, []],
    [long, { continues: true, stride: 40 }, ["--continue", "--stride", "40"]],
    [table, { column: "Satz", regions: "_", by: "region" }, ["--column", "Satz", "--regions", "_", "--by", "region"]],
    [table, { column: "Satz", regionNames: "a b" }, ["--column", "Satz", "--region-names", "a b"]],
    ['"item",""\n1,the cat sat\n2,"So, he said"\n', { column: "" }, ["--column", ""]],
    ["the old man | the\u202fboats\n", { regions: "|", by: "region" }, ["--regions", "|", "--by", "region"]],
    ["Lily was  happy.\n".repeat(300), {}, []],
  ];
  for (const [text, options, words] of cases) {
    const want = native(text, words);
    let got;
    try {
      got = run(text, options);
    } catch (error) {
      got = { csv: "", notes: [error.message] };
    }
    check(`surprisal ${words.join(" ")}: notes`, got.notes, want.notes);
    check(`surprisal ${words.join(" ")}: equal to the program's`, got.csv === want.csv, true);
    check(`surprisal ${words.join(" ")}: rows or a sentence`, want.csv.length + want.notes.length > 0, true);
  }
  for (const [file, options, words] of [["reflexives.json", { by: "region" }, ["--by", "region"]], ["pairs.jsonl", { corrected: true }, ["--corrected"]]]) {
    const text = await readFile(fixtures + file), want = native(text, ["--suite", ...words]).csv;
    check(`suite ${file}: equal to the program's`, run(text, { suite: true, ...options }).csv === want && want.length > 100, true);
  }
  fails("a suite of a column", "suite goes with none of column, regions, regionNames, continues, ", () => run("{}", { suite: true, column: "a" }));
  fails("pairs of no suite", "pair, group and corrected are for suite", () => run("a", { pair: "a,b" }));
  const columnsOf = (text) => model.columnsOf(new TextEncoder().encode(text));
  check("the columns of a table", columnsOf('sep=;\n"a ""b""";Satz\n1;"x\ny, z"\n2;z\n'), '"a ""b""","Satz"\n"1","x\ny, z"\n');
  check("the names of one that cannot be read", columnsOf('a\tb\n1\t"2\n'), '"a","b"\n');
  check("the columns of nothing", columnsOf(""), "");
  const spelled = [["--by region", 'by: "region"'], ["--regions MARK", "regions"], ["--region-names COLUMN", "regionNames"], ["--column", "column"], ["--stride", "stride"]];
  const onPage = (sentence) => spelled.reduce((text, [program, page]) => text.replaceAll(program, page), sentence);
  check("the bytes of every machine", run(lines, { rank: true, top: 2 }).csv, await readFile(`${fixtures}bytes.csv`, "utf8"));
  for (const [text, options, words] of [["", {}, []], ["a\xff", {}, []], ["x\0y", {}, []], ["a,b\n1,2\n", { column: "c" }, ["--column", "c"]], ['a,b\n1,"2\n', { column: "b" }, ["--column", "b"]], ["a", { by: "region" }, ["--by", "region"]], ["a", { stride: 999 }, ["--stride", "999"]]]) {
    const bytes = Buffer.from(text, "latin1"); // a 0xff that is not UTF-8
    const said = onPage(native(bytes, words).notes.at(-1).replace(/ of build.*/, ""));
    fails(`surprisal refuses ${JSON.stringify(text)}`, said, () => run(bytes, options));
  }
  fails("surprisal of a number", "not 7", () => run(7));
  fails("an order of 0", "renyi is 0; expected a number from 0.01 to 100", () => run("a", { renyi: 0 }));
  fails("a stride of 0", "stride is 0; expected a whole number from 1 on", () => run("a", { stride: 0 }));
  fails("a lens without layers", "tuned is for layers", () => run("a", { tuned: lines }));
  fails("a lens that is none", "tuned.safetensors has 3 bytes, too few", () => run("a", { layers: "all", tuned: Buffer.from("abc") }));
  fails("a lens by its name", "expected the bytes of a file", () => run("a", { layers: "all", tuned: "abc" }));
  check("null is not given", run("a", { renyi: null, stride: null }).csv, run("a").csv);
  fails("an unknown unit", "bits or nats", () => run("a", { unit: "hartleys" }));
  // A run may be left, and two may go on at the same time.
  for (const { csv } of model.surprisal("Once upon a time\n".repeat(400))) if (csv.split("\n").length > 20) break;
  const both = ["The cat sat.\n".repeat(90), "A dog ran.\n".repeat(90)].map((text) => ({ text, pieces: model.surprisal(text), csv: "" }));
  for (let left = 2; left; ) for (const one of both) {
    const { value, done } = one.pieces.next();
    one.csv += value?.csv ?? "";
    if (done && !one.isDone) one.isDone = true, left--;
  }
  for (const { text, csv } of both) check("two runs at the same time", csv === native(text, []).csv, true);
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
  await surprisal();
  await convert();
  console.log(`${passed} passed, ${failed} failed, 0 skipped (${variant})`);
}
process.exitCode = failed ? 1 : 0;

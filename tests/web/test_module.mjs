// The module under Node beside the native library: node tests/web/test_module.mjs BUILD VARIANT [--speed MODEL.attn]
//
// BUILD holds attn.js, the module, web-native, and models in web-models/. VARIANT is plain, simd or
// relaxed; relaxed SIMD needs node --experimental-wasm-relaxed-simd before version 21.
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

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
  const edit = session.edit({ name: "blocks.2.attn.hook_z", head: 3, nHeads: 1 });
  check(`${dtype}: a head set to zero`, await greedy(session, want.prompt, n), want.ablated);
  session.unhook(edit);
  session.edit({ name: "blocks.2.attn.hook_z", head: 3, nHeads: 1, kind: "scale", factor: 0 });
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
  session.edit({ name: "blocks.1.hook_resid_pre", kind: "add", position: 1, nPositions: 1, factor: 2, value: { shape: [1, dModel], data: value.data.slice(0, dModel) } });
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
  await convert();
  console.log(`${passed} passed, ${failed} failed, 0 skipped (${variant})`);
}
process.exitCode = failed ? 1 : 0;

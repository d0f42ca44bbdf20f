// The worker: the model and everything that takes time, so that the page never waits. Messages in:
// {task: "open" | "show" | "generate" | "explain" | "lens" | "flow" | "commands" | "query", run, ...}, of which the page sends the next
// one when it has the answer to the last, and "stop", which ends a run of "generate" or "query". Messages out
// carry the `run` that they answer.

import { Model, newDecoder, softmax } from "./attn.js";
import { runProgram } from "./wasi.js";

const MOST_WEIGHTS = 2 ** 26; // of attention are kept, 256 MB
const MOST_COLUMNS = 64; // the lens shows so many
const ALTERNATIVES = 6;
const FRAME = 12; // milliseconds

let model, session, record, shown = "", baseline, stopped = 0, outputs = null;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** A token by itself: where its bytes are a part of a letter, as numbers. */
function nameOfToken(id) {
  const bytes = model.tokenBytes(id);
  try {
    return decoder.decode(bytes);
  } catch {
    return Array.from(bytes, (b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : `<${b.toString(16).padStart(2, "0")}>`)).join("");
  }
}
/** The texts of tokens in a row: a letter of several tokens stands at the last of them. */
function textsOf(ids) {
  const stream = newDecoder();
  return Array.from(ids, (id, i) => stream.decode(model.tokenBytes(id), { stream: i < ids.length - 1 }));
}

/** A session whose activations are kept. @param {Array} changes */
function watchedSession(changes, state) {
  const made = model.session({ nCtx: capacity() });
  try {
    changes.forEach((change, i) => {
      try {
        applyChange(made, change, state);
      } catch (error) {
        throw Object.assign(error, { change: i }); // the page takes it away
      }
    });
  } catch (error) {
    made.free();
    throw error;
  }
  const last = model.config.nLayer - 1;
  const kept = made.record(["*.hook_pattern", "*.hook_z", "*.hook_resid_pre", `blocks.${last}.hook_resid_post`, "*.hook_mlp_out", "hook_embed", "hook_pos_embed", "ln_final.hook_scale"], capacity());
  return { made, kept };
}
const capacity = () => Math.min(model.config.nCtx, Math.floor(Math.sqrt(MOST_WEIGHTS / (model.config.nLayer * model.config.nHead))));

/** An activation of a text in the model as it is. */
function activation(name, ids) {
  const other = model.session({ nCtx: capacity() }), kept = other.record([name], capacity());
  try {
    other.feed(ids.slice(0, capacity()));
    return kept.get(name);
  } finally {
    kept.free();
    other.free();
  }
}

const headOf = ({ shape, data }, head) => {
  const [n, , width] = shape, one = new Float32Array(n * width);
  for (let t = 0; t < n; t++) one.set(data.subarray((t * shape[1] + head) * width, (t * shape[1] + head + 1) * width), t * width);
  return { shape: [n, width], data: one };
};
const rowOf = ({ shape, data }, row) => ({ shape: [1, shape.at(-1)], data: data.slice(row * shape.at(-1), (row + 1) * shape.at(-1)) });

/** @param {Session} to */
function applyChange(to, { kind, layer, head, position, factor }, { text, second, plus, minus }) {
  const { nLayer, nHead } = model.config;
  if (layer >= nLayer || head >= nHead) throw new Error(`there is no layer ${layer}${head === undefined ? "" : ` head ${head}`} in this model: it has ${nLayer} layers of ${nHead} heads, counted from 0`);
  const name = `blocks.${layer}.${head === undefined ? "hook_resid_pre" : "attn.hook_z"}`;
  const ids = (words) => {
    const list = model.encode(words);
    if (!list.length) throw new Error("a text that this change needs is empty");
    return list;
  };
  const edit = { name };
  if (head !== undefined) edit.firstHead = head, edit.nHeads = 1;
  if (position !== undefined) edit.first = position, edit.count = 1;
  if (kind === "scale" || kind === "stream") Object.assign(edit, { kind: "scale", value: factor });
  if (kind === "mean") Object.assign(edit, { kind: "mean", value: headOf(activation(name, ids(text)), head) });
  if (kind === "patch" || kind === "patch-stream") {
    let value = activation(name, ids(second));
    if (head !== undefined) value = headOf(value, head);
    if (position !== undefined && position >= value.shape[0]) throw new Error(`the second text has ${value.shape[0]} tokens, so there is none at position ${position}`);
    Object.assign(edit, { kind: "set", value: position === undefined ? value : rowOf(value, position), count: position === undefined ? value.shape[0] : 1 });
  }
  if (kind === "steer") {
    const [towards, away] = [plus, minus].map((words) => ids(words).slice(0, capacity()));
    Object.assign(edit, { kind: "add", value: { shape: [model.config.dModel], data: model.steering(name, towards, away).map((x) => Math.fround(factor) * x) } });
  }
  to.edit(edit);
}

/** The attention of one position: [layer][head] joined, each over the keys up to it. */
function attentionAt(position) {
  const { nLayer, nHead } = model.config, row = new Float32Array(nLayer * nHead * (position + 1));
  for (let layer = 0; layer < nLayer; layer++) {
    const { shape, data } = record.get(`blocks.${layer}.attn.hook_pattern`, 1, position);
    for (let head = 0; head < nHead; head++) row.set(data.subarray(head * shape[1], head * shape[1] + position + 1), (layer * nHead + head) * (position + 1));
  }
  return row;
}
const streamNames = () => [...Array.from({ length: model.config.nLayer }, (_, i) => `blocks.${i}.hook_resid_pre`), `blocks.${model.config.nLayer - 1}.hook_resid_post`];

/** What each stream at a position says next: the likeliest token and its probability. */
function lensAt(position) {
  const names = streamNames(), width = model.config.dModel, streams = new Float32Array(names.length * width);
  names.forEach((name, i) => streams.set(record.get(name, 0, position).data, i * width));
  const { tokens, probabilities } = model.lens(streams, 1);
  return Array.from(tokens, (id, i) => ({ id, text: nameOfToken(id), probability: probabilities[i] }));
}
/** Whether a token comes with its column of the lens; those of large models are asked for, so many at a time. */
const lensIsCheap = () => model.config.nVocab * model.config.dModel < 4e6;
const lensColumns = () => Math.max(4, Math.min(MOST_COLUMNS, Math.floor(1.5e9 / (model.config.nVocab * model.config.dModel * (model.config.nLayer + 1)))));

function best(probabilities, k = ALTERNATIVES) {
  const chosen = [];
  for (let i = 0; i < probabilities.length; i++) {
    if (chosen.length === k && probabilities[i] <= chosen[k - 1].probability) continue;
    chosen.push({ id: i, probability: probabilities[i] });
    chosen.sort((a, b) => b.probability - a.probability || a.id - b.id);
    chosen.length = Math.min(chosen.length, k);
  }
  return chosen.map((c) => ({ ...c, text: nameOfToken(c.id) }));
}

/** All about the text as it stands, from `first` on. */
function describeFrom(first, scores) {
  const tokens = [];
  const ids = session.tokens, texts = textsOf(ids), start = ids.length - scores.tokens.length / ALTERNATIVES;
  for (let i = first; i < ids.length; i++) {
    const j = i - start, token = { id: ids[i], text: texts[i], probability: null, attention: attentionAt(i) };
    if (j > 0) {
      token.probability = Math.exp(-scores.losses[j - 1]);
      token.alternatives = alternativesOf(scores, j - 1);
    }
    if (lensIsCheap()) token.lens = lensAt(i);
    tokens.push(token);
  }
  return tokens;
}
const alternativesOf = ({ tokens, probabilities }, j) => Array.from({ length: ALTERNATIVES }, (_, k) => ({ id: tokens[j * ALTERNATIVES + k], text: nameOfToken(tokens[j * ALTERNATIVES + k]), probability: probabilities[j * ALTERNATIVES + k] }));

function end() {
  record?.free();
  session?.free();
  session = record = undefined;
}

/** Runs a text, or ids, with changes; answers with all tokens. */
function show({ state, ids }) {
  const list = Array.from(ids ?? model.encode(state.text)), key = JSON.stringify([state.changes, state.changes.length ? [state.text, state.second, state.plus, state.minus] : 0]);
  if (!list.length) {
    end();
    return { tokens: [], logits: null };
  }
  if (list.length > capacity()) throw new Error(`this text has ${list.length} tokens; the page keeps attention for ${capacity()}: make it shorter`);
  if (key !== shown || !session) {
    end();
    shown = "";
    const { made, kept } = watchedSession(state.changes, state);
    session = made;
    record = kept;
    shown = key;
  }
  session.truncate(0);
  const scores = session.score(list, ALTERNATIVES), logits = session.logits;
  return { tokens: describeFrom(0, scores), logits, plain: plainLogits(list, state) };
}

/** The logits of the model without changes, or null if there are none. */
function plainLogits(ids, state) {
  if (!state.changes.length) return null;
  baseline ??= model.session({ nCtx: capacity() });
  baseline.truncate(0);
  baseline.feed(ids);
  return baseline.logits;
}

/** Tokens go to the page a frame's worth at a time: it draws no oftener. */
async function generate({ state, run: mine }) {
  const ids = session.tokens;
  let n = ids.length, last = performance.now(), made = [];
  const begin = last;
  const send = () => {
    if (made.length) postMessage({ run: mine, made, logits: session.logits }, made.map((token) => token.attention.buffer));
    made = [];
  };
  for await (const token of session.generate({ temperature: state.temperature, topK: state.topK, topP: state.topP, seed: state.seed, maxTokens: state.length })) {
    const answer = { id: token.id, text: token.text, probability: token.probability, alternatives: best(softmax(token.logits)), attention: attentionAt(n) };
    if (lensIsCheap()) answer.lens = lensAt(n);
    made.push(answer);
    n++;
    if (performance.now() - last > FRAME) {
      send();
      last = performance.now();
    }
    if (stopped === mine) break;
  }
  send();
  const seconds = (performance.now() - begin) / 1000;
  return { plain: plainLogits(session.tokens, state), speed: (n - ids.length) / seconds, isStopped: stopped === mine, isFull: n === session.capacity };
}

/** What each part of the final stream at a position adds to the logit of a token. */
function explain({ position, token }) {
  const { nLayer, nHead, dHead, dModel } = model.config, parts = [], labels = [];
  outputs ??= Array.from({ length: nLayer }, (_, layer) => model.tensor(`blocks.${layer}.attn.W_O`).data);
  const add = (label, data) => labels.push(label) && parts.push(data);
  add("embedding", record.get("hook_embed", 0, position).data);
  add("position", record.get("hook_pos_embed", 0, position).data);
  for (let layer = 0; layer < nLayer; layer++) {
    const z = record.get(`blocks.${layer}.attn.hook_z`, 0, position).data, w = outputs[layer];
    for (let head = 0; head < nHead; head++) {
      const part = new Float32Array(dModel);
      for (let i = 0; i < dHead; i++) for (let c = 0, x = z[head * dHead + i], from = (head * dHead + i) * dModel; c < dModel; c++) part[c] += x * w[from + c];
      add([layer, head], part);
    }
    add([layer, "mlp"], record.get(`blocks.${layer}.hook_mlp_out`, 0, position).data);
    add([layer, "bias"], model.tensor(`blocks.${layer}.attn.b_O`).data);
  }
  if (JSON.parse(shown)[0].some((change) => change.head === undefined)) { // the stream itself was changed: the rest of it
    const rest = record.get(`blocks.${nLayer - 1}.hook_resid_post`, 0, position).data.slice();
    for (const part of parts) part.forEach((x, i) => (rest[i] -= x));
    add("changes", rest);
  }
  const all = new Float32Array(parts.length * dModel);
  parts.forEach((part, i) => all.set(part, i * dModel));
  return { position, token, text: nameOfToken(token), labels, shares: Array.from(model.attribute(all, record.get("ln_final.hook_scale", 0, position).data[0], token)) };
}

/** The way of one token through all layers, and through one layer and head in steps, by a run of its own: what all would
 * need could not be kept. The last LayerNorm is `last`, those of the layer are `ln1` and `ln2`. */
function flow({ state, position, layer, head }) {
  const { nLayer, nHead, dHead, dModel } = model.config, block = `blocks.${layer}.`, layers = Array.from({ length: nLayer }, (_, i) => `blocks.${i}.`);
  const norms = { ln1: `${block}ln1`, ln2: `${block}ln2`, last: "ln_final" };
  const names = ["hook_embed", "hook_pos_embed", "*.hook_resid_pre", "*.hook_attn_out", "*.hook_mlp_out", "*.hook_resid_post",
    ...["q", "k", "v", "attn_scores", "pattern", "z", "result"].map((name) => `${block}attn.hook_${name}`), `${block}hook_resid_mid`, `${block}mlp.hook_pre`, `${block}mlp.hook_post`,
    ...Object.values(norms).flatMap((of) => [`${of}.hook_scale`, `${of}.hook_normalized.pre`, `${of}.hook_normalized.post`])];
  const ids = session.tokens.slice(0, position + 1), made = model.session({ nCtx: capacity() }); // a second text may be longer
  try {
    for (const change of state.changes) applyChange(made, change, state);
    const kept = made.record(names, ids.length);
    made.feed(ids);
    const row = (name) => kept.get(name, 0, position).data, each = (name) => layers.map((of) => row(of + name));
    const ofHead = (name) => headOf(kept.get(`${block}attn.hook_${name}`), head).data, last = (data) => data.slice(-dHead);
    const ofKeys = (name) => kept.get(`${block}attn.hook_${name}`, 0, head).data.slice(position * (position + 1)); // [query, key] of one head: the last row
    const weights = (name, from = 0, count = undefined) => model.tensor(name).data.slice(from, count && from + count), inHead = dModel * dHead;
    const norm = (of, w) => ({ scale: row(`${of}.hook_scale`)[0], normalized: row(`${of}.hook_normalized.pre`), weight: weights(`${w}.w`), bias: weights(`${w}.b`), out: row(`${of}.hook_normalized.post`) });
    const positions = row("hook_pos_embed"), token = row("hook_embed"), logits = made.logits;
    const answer = {
      position, layer, head, nHead, changedStreams: state.changes.filter((c) => c.head === undefined).map((c) => c.layer), isHeadChanged: state.changes.some((c) => c.layer === layer && c.head === head), token, positions, embedding: token.map((x, i) => x + positions[i]),
      pre: each("hook_resid_pre"), attention: each("hook_attn_out"), mlp: each("hook_mlp_out"), post: each("hook_resid_post"),
      ...Object.fromEntries(Object.entries(norms).map(([key, of]) => [key, norm(of, of)])),
      query: last(ofHead("q")), bQ: weights(`${block}attn.b_Q`, head * dHead, dHead), keys: ofHead("k"), scores: ofKeys("attn_scores"), pattern: ofKeys("pattern"), values: ofHead("v"),
      value: last(ofHead("z")), result: headOf(kept.get(`${block}attn.hook_result`), head).data.slice(-dModel), bO: weights(`${block}attn.b_O`), middle: row(`${block}hook_resid_mid`),
      hidden: row(`${block}mlp.hook_pre`), bIn: weights(`${block}mlp.b_in`), neurons: row(`${block}mlp.hook_post`), bOut: weights(`${block}mlp.b_out`),
      WQ: weights(`${block}attn.W_Q`, head * inHead, inHead), WO: weights(`${block}attn.W_O`, head * inHead, inHead),
      likeliest: best(softmax(logits)).map((next) => ({ ...next, logit: logits[next.id] })),
    };
    kept.free();
    return answer;
  } finally {
    made.free();
  }
}

/** Some columns of a large model's lens. */
function lens({ first }) {
  return Array.from({ length: Math.min(lensColumns(), session.length - first) }, (_, i) => lensAt(first + i));
}

/** What can be asked. */
async function commands() {
  return Promise.all((await model.commands()).map(async (command) => ({ ...command, settings: await model.settings(command.name) })));
}
/** Asks a question, and gives the answer with those of the forms that it has. */
async function query({ command, settings, files, forms = [], run: mine }) {
  const onProgress = (done) => (postMessage({ run: mine, progress: done }), stopped === mine), made = {};
  const answer = await model.query(command, settings, { files, onProgress }), { tables, notes, files: written, isWhole } = answer;
  for (const form of forms)
    try {
      made[form] = answer.form(form);
    } catch {
      // it has no such form
    }
  answer.free();
  return { tables, notes, written, isWhole, ...made };
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}
async function inflate(text) {
  return new Response(new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** The files of a checkpoint, or one GGUF file, as a .attn file, by attn-convert. */
async function convert(files) {
  const module = await WebAssembly.compile(await inflate(modules.convert));
  const { code, said, files: made } = await runProgram(module, ["attn-convert", files.length === 1 && files[0].name.endsWith(".gguf") ? `/checkpoint/${files[0].name}` : "/checkpoint", "/model.attn", "--quiet"], new Map(files.map((f) => [`checkpoint/${f.name}`, f])));
  if (code) throw new Error(said.trim().split("\n").pop().replace(/^attn-convert: /, "").replaceAll("/checkpoint/", "") || `attn-convert ended with status ${code}`);
  return made.get("model.attn");
}

let modules;
async function open(message) {
  modules ??= message.modules;
  const source = message.files ? await convert(message.files) : message.source;
  const opened = await Model.open(typeof source === "string" ? new Uint8Array(await inflate(source)) : source, {
    wasm: (variant) => inflate(modules[variant]),
    onProgress: (done) => postMessage({ run: message.run, progress: done }),
  });
  if (!opened.config.hasTokenizer) throw new Error("this model has no tokenizer, so the page cannot read a text for it: convert it with its tokenizer's files beside it");
  end();
  model = opened; // a former model goes with its whole memory
  outputs = baseline = null;
  shown = "";
  return { config: model.config, isa: model.isa, capacity: capacity(), words: Array.from({ length: model.config.nVocab }, (_, id) => nameOfToken(id)) };
}

const TASKS = { open, show, generate, explain, lens, flow, commands, query };

onmessage = async ({ data }) => {
  if (data.task === "stop") {
    stopped = data.run;
    return;
  }
  try {
    postMessage({ run: data.run, answer: await TASKS[data.task](data) });
  } catch (error) {
    postMessage({ run: data.run, error: error.message, change: error.change });
  }
};

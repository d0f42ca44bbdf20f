// attn.h in JavaScript, for browsers and Node: models, sessions, hooks, edits, records and questions.
//
//     import { Model } from "./attn.js";
//     const model = await Model.open("tiny-stories.attn");
//     const session = model.session();
//     session.feed("Once upon a time");
//     for await (const token of session.generate({ maxTokens: 50 })) console.log(token.text);
//
// attn.wasm and its two variants lie beside this file. The numbers are those of the native library,
// bit for bit. Whatever fails throws an Error with the library's own sentence. Sessions, records and
// models hold memory of the module until free() or close() is called.

/** @typedef {{nVocab: number, nCtx: number, dModel: number, nHead: number, nLayer: number,
 *   dMlp: number, dHead: number, bos: number, eos: number, hasTokenizer: boolean}} Config
 *   bos and eos are -1 if the model has none. */
/** @typedef {{temperature?: number, topK?: number, topP?: number, minP?: number,
 *   repeatPenalty?: number, repeatLast?: number, seed?: number | bigint | string}} Sampling
 *   As attn_sampler_desc; a temperature of 0, which is the default, is greedy. A topP of 0 keeps the
 *   likeliest token, 1, which is the default, keeps all. A seed is from 0 to
 *   2^64 - 1: as a BigInt or a string of digits from 2^53 on, which numbers cannot hold exactly. */
/** @typedef {{id: number, text: string, bytes: Uint8Array, isCut: boolean, probability: number, logits: Float32Array}} Token
 *   `text` has whole characters only: it may be empty, and the next token then brings the rest. isCut
 *   says that a character is not complete yet: a loop that stops there adds "\ufffd", as generate()
 *   does to the last token that it yields. The probability is the model's own, at temperature 1;
 *   `logits` are those the token was drawn from. */
/** @typedef {{name: string, layer: number, first: number, shape: number[], data: Float32Array}} Activation
 *   `first` is the position of the first row; layer is -1 outside the blocks. `data` is dense, and
 *   what a hook writes there is what the model goes on with. */
/** @typedef {{name: string, kind?: "zero"|"set"|"mean"|"add"|"scale", first?: number,
 *   count?: number, firstHead?: number, nHeads?: number,
 *   value?: number | {shape: number[], data: ArrayLike<number>}}} Edit
 *   As attn_edit. A count or nHeads of 0 means all from the first. */
/** @typedef {string | number | bigint | boolean} Value of a setting; a choice is its name */
/** @typedef {{name: string, usual: string?, option: string, argument: string?, takes: string?, help: string, kind: string, word: number,
 *   isMany: boolean, isFile: boolean, isNegated: boolean}} Setting
 *   usual: the default; argument: null for a flag; takes: the names of choices, or the least and the most of numbers; word: which word of a
 *   command line it may be, 0 for none; isMany: an array may be given; isNegated: false is what the option sets */

import { Given, Written, systemOf } from "./wasi.js";

const STOPPED = 14; // ATTN_STOPPED
const FACE = 3; // LENS_FACE_PAGE
const FLAGS = 2, TEXTS = 3; // of lens_kind
const SETTINGS = ["ask", "flag", "count", "number", "seed", "text", "output", "texts", "choice", "choices", "column"]; // kinds of them
const KINDS = ["zero", "set", "mean", "add", "scale"];

/** The variants of the module, best first, and the module of questions, which goes with each of them. */
const FILES = {
  relaxed: "attn-relaxed.wasm", // relaxed SIMD, where its multiply-add is fused
  simd: "attn-simd.wasm", // SIMD, with multiply-adds put together from others
  plain: "attn.wasm", // every WebAssembly there is
  query: "attn-query.wasm",
};

const utf8 = new TextEncoder();
/** A decoder that keeps U+FEFF at the beginning of a text, which is a part of it here. */
export const newDecoder = () => new TextDecoder("utf-8", { ignoreBOM: true });
const isNode = typeof process === "object" && !!process.versions?.node;

/** What an object is, whichever realm (an iframe, a test's sandbox) made it: "URL", "ArrayBuffer", ... */
const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** @param {string | URL} file @returns {Promise<Uint8Array>} */
async function readBytes(file) {
  const isUrl = typeof file !== "string" || /^(file|https?|data|blob):/i.test(file);
  const url = isUrl ? new URL(String(file)) : isNode ? null : new URL(file, location.href);
  if (isNode && (!url || url.protocol === "file:")) {
    const { readFile } = await import("node:fs/promises");
    return readFile(url ?? file);
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: the server says ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** The bytes that a buffer or a view holds; null for anything else. @returns {Uint8Array | null} */
function bytesOf(source) {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  return ["ArrayBuffer", "SharedArrayBuffer"].includes(kindOf(source)) ? new Uint8Array(source) : null;
}

// Numbers from outside ==============================================================================

/** A value in a message; JSON has no NaN and no Infinity. */
const told = (value) => (typeof value === "number" ? String(value) : typeof value === "bigint" ? `${value}n` : typeof value === "object" || typeof value === "function" ? kindOf(value) : JSON.stringify(value) ?? String(value));

/** A whole number from `least` to `most`, or an Error that names it. */
function whole(name, value, least = 0, most = 2 ** 31 - 1) {
  if (!Number.isInteger(value) || value < least || value > most) throw new Error(`${name} is ${told(value)}; expected a whole number from ${least} to ${most}`);
  return value;
}
function float(name, value) {
  if (typeof value !== "number") throw new Error(`${name} is ${told(value)}; expected a number`);
  return value;
}
/** The index of a name among some. */
function choiceOf(name, value, names) {
  const i = names.indexOf(value);
  if (i < 0) throw new Error(`${name} is ${told(value)}; expected ${names.join(" or ")}`);
  return i;
}
/** Numbers as floats: a Float32Array as it is, others converted. */
function floatsOf(name, values) {
  if (kindOf(values) === "Float32Array") return values;
  if (!Array.isArray(values) && (!ArrayBuffer.isView(values) || /^Big|^DataView$/.test(kindOf(values)))) throw new Error(`${name}: expected a Float32Array, an Array or another typed array of numbers, not ${told(values)}`);
  return Float32Array.from(values, (x, i) => float(`${name}[${i}]`, x));
}
/** @returns {bigint} a seed, 64 bits */
function seedOf(seed) {
  const isWhole = Number.isSafeInteger(seed) || typeof seed === "bigint" || (typeof seed === "string" && /^\d{1,20}$/.test(seed));
  const bits = isWhole ? BigInt(seed) : -1n;
  if (bits < 0n || bits >= 2n ** 64n) throw new Error(`seed is ${told(seed)}; expected a whole number from 0 to 2^64 - 1, from 2^53 on as a BigInt or a string of digits`);
  return bits;
}

/** Lets events in. A timer would wait 4 ms in browsers; a port left open would keep Node from ending. */
const breathe = () => new Promise((go) => {
  if (typeof setImmediate === "function") return void setImmediate(go);
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => (port1.close(), go());
  port2.postMessage(0);
});
const MOST_WITHOUT_EVENTS = 8; // milliseconds

/** The module in memory: its functions, and views of its memory. */
class Machine {
  /** @param {WebAssembly.Module} module */
  static async start(module) {
    const machine = new Machine();
    machine.files = new Map(); // that questions can read
    machine.imports = { attn: { hook: (...values) => machine.runHook(...values), progress: (done) => machine.tell(done) }, wasi_snapshot_preview1: systemOf(machine.files, () => machine.call.memory) };
    machine.call = (await WebAssembly.instantiate(module, machine.imports)).exports;
    machine.call._initialize?.();
    machine.ctx = machine.call.glue_ctx();
    machine.struct = machine.alloc(128);
    machine.hooks = new Map();
    machine.nextHook = 1;
    return machine;
  }
  /** Loads the module of questions, if it is not there yet. It has the places behind others in the table of functions; what its
   * linker puts into those others goes. */
  async loadQuestions() {
    if (this.asking) return;
    const module = await WebAssembly.compile(await this.load("query")), table = this.call.__indirect_function_table;
    const before = Array.from({ length: table.length }, (_, i) => table.get(i));
    table.grow(4096);
    this.asking = new WebAssembly.Instance(module, { ...this.imports, env: this.call }).exports;
    before.forEach((fn, i) => table.set(i, fn));
    this.asking._initialize();
  }
  /** The words of a struct that a function of the questions fills in, or null. */
  read(name, ...values) {
    return this.asking[name](...values) ? this.ints(this.struct, 32).slice() : null;
  }
  /** What a function gives the caller by the address behind ctx. */
  made(make, ...values) {
    this.bytes.fill(0, this.struct, this.struct + 128);
    const status = make(this.ctx, this.struct, ...values);
    if (status) throw this.fail(status);
    return this.ints(this.struct, 1)[0];
  }
  tell(done) {
    try {
      return this.onProgress?.(done) ? 1 : 0;
    } catch (error) {
      this.thrown = error;
      return 1;
    }
  }
  /** @returns {Uint8Array} */ get bytes() { return new Uint8Array(this.call.memory.buffer); }
  floats(at, n) { return new Float32Array(this.call.memory.buffer, at, n); }
  ints(at, n) { return new Int32Array(this.call.memory.buffer, at, n); }
  text(at) {
    const bytes = this.bytes;
    return newDecoder().decode(bytes.slice(at, bytes.indexOf(0, at)));
  }
  /** @param {number} [status] */ fail(status) {
    return new Error(status === STOPPED ? "a hook asked to stop" : this.text(this.ctx + 28));
  }
  /** Address of n bytes; free them. @param {number} n */
  alloc(n) {
    const at = n < 2 ** 31 ? this.call.aligned_alloc(64, 64 * Math.ceil(Math.max(n, 1) / 64)) >>> 0 : 0; // the module has at most 2 GB
    if (!at) throw new Error(`there is no memory for ${n} more bytes`);
    return at;
  }
  free(at) { this.call.free(at); }
  /** Puts bytes or numbers into memory for the length of a call. */
  with(values, use) {
    const bytes = typeof values === "string" ? utf8.encode(values + "\0") : new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    const at = this.alloc(bytes.length);
    try {
      this.bytes.set(bytes, at);
      return use(at, bytes.length);
    } finally {
      this.free(at);
    }
  }
  /** Puts a name into memory for the length of a call: C ends it at the first NUL. */
  withName(name, use) {
    if (typeof name !== "string" || name.includes("\0")) throw new Error(`a name is ${told(name)}; expected a string without NUL`);
    return this.with(name, use);
  }
  /** Member i of structs of three words. */
  thirds(words, i) {
    return words.filter((_, k) => k % 3 === i);
  }
  /** attn_predictions [n]. */
  predictions(at, n) {
    return { tokens: this.thirds(this.ints(at, 3 * n), 0), probabilities: this.thirds(this.floats(at, 3 * n), 2) };
  }
  /** An attn_tensor of floats: where its numbers are, its sizes, its strides. */
  view(at) {
    const words = this.ints(at, 11), n = words[2];
    return { at: words[0] >>> 0, shape: [...words.slice(3, 3 + n)], stride: [...words.slice(7, 7 + n)] };
  }
  /** The numbers of a view, dense, or those with `index` in dimension `dim` alone. */
  gather({ at, shape, stride }, dim = -1, index = 0) {
    whole("dim", dim, -1, shape.length - 1);
    if (dim >= 0) whole("index", index, 0, shape[dim] - 1);
    const sizes = shape.slice(), starts = dim >= 0 ? index * stride[dim] : 0;
    if (dim >= 0) sizes[dim] = 1;
    const width = sizes.at(-1), step = stride.at(-1), n = sizes.reduce((a, b) => a * b, 1);
    const data = new Float32Array(n), memory = new Float32Array(this.call.memory.buffer);
    const index_of = new Array(sizes.length).fill(0);
    for (let to = 0; to < n; to += width) {
      let from = at / 4 + starts;
      for (let d = 0; d < sizes.length - 1; d++) from += index_of[d] * stride[d];
      if (step === 1) data.set(memory.subarray(from, from + width), to);
      else for (let i = 0; i < width; i++) data[to + i] = memory[from + i * step];
      for (let d = sizes.length - 2; d >= 0 && ++index_of[d] === sizes[d]; d--) index_of[d] = 0;
    }
    if (dim >= 0) sizes.splice(dim, 1);
    return { shape: sizes, data };
  }
  scatter({ at, shape, stride }, data) {
    const memory = new Float32Array(this.call.memory.buffer), index_of = new Array(shape.length).fill(0);
    const width = shape.at(-1), step = stride.at(-1);
    for (let from = 0; from < data.length; from += width) {
      let to = at / 4;
      for (let d = 0; d < shape.length - 1; d++) to += index_of[d] * stride[d];
      for (let i = 0; i < width; i++) memory[to + i * step] = data[from + i];
      for (let d = shape.length - 2; d >= 0 && ++index_of[d] === shape[d]; d--) index_of[d] = 0;
    }
  }
  runHook(number, name, layer, first, at) {
    const view = this.view(at), { shape, data } = this.gather(view), before = data.slice();
    try {
      const stop = this.hooks.get(number)({ name: this.text(name), layer, first, shape, data });
      if (data.some((x, i) => !Object.is(x, before[i]))) this.scatter(view, data);
      return stop ? 1 : 0;
    } catch (error) {
      this.thrown = error;
      return 1;
    }
  }
}

/** @param {{wasm?: BufferSource | ((variant: string) => Promise<BufferSource>), variant?: string}} options */
async function startMachine({ wasm, variant } = {}) {
  const load = typeof wasm === "function" ? wasm : async (name) => (name !== "query" && wasm) || readBytes(new URL(FILES[name], import.meta.url));
  let failure = new Error(`there is no variant ${variant} of the module`);
  for (const name of ["relaxed", "simd", "plain"].filter((v) => !variant || v === variant)) {
    try {
      const machine = await Machine.start(await WebAssembly.compile(await load(name)));
      machine.load = load;
      if (machine.call.glue_is_exact()) return machine;
      failure = new Error("this processor or engine does not fuse relaxed multiply-adds");
    } catch (error) { // an engine refuses to compile instructions that it does not know
      failure = error;
    }
  }
  throw failure;
}

/** A model: weights, configuration, tokenizer. */
export class Model {
  /** Opens a .attn file: its bytes, a File or Blob (read in pieces, never held twice), a URL, or in
   * Node a path. @param {ArrayBuffer | SharedArrayBuffer | ArrayBufferView | Blob | URL | string} source
   * @param {{wasm?: BufferSource | ((variant: string) => Promise<BufferSource>),
   *   variant?: "relaxed"|"simd"|"plain", onProgress?: (done: number) => void}} [options]
   *   wasm: the module's bytes, or what loads those of a variant; default: the files beside this one */
  static async open(source, options = {}) {
    const model = new Model();
    const machine = (model.machine = await startMachine(options));
    const bytes = bytesOf(typeof source === "string" || kindOf(source) === "URL" ? await readBytes(source) : source);
    if (!bytes && typeof source?.stream !== "function") throw new Error(`Model.open takes the bytes of a .attn file, a File or Blob, a URL, or in Node a path, not ${told(source)}`);
    const size = bytes?.length ?? source.size;
    model.data = machine.alloc(size);
    if (bytes) machine.bytes.set(bytes, model.data);
    else {
      const reader = source.stream().getReader();
      for (let at = 0, piece; !(piece = await reader.read()).done; at += piece.value.length) {
        machine.bytes.set(piece.value, model.data + at);
        options.onProgress?.((at + piece.value.length) / size);
      }
    }
    model.at = machine.made(machine.call.attn_model_open_memory, model.data, size, 0);
    model.tokenizer = machine.call.attn_model_tokenizer(model.at);
    const [nVocab, nCtx, dModel, nHead, nLayer, dMlp, dHead, , , bos, eos] = machine.ints(machine.call.attn_model_config(model.at), 11);
    /** @type {Config} */
    model.config = { nVocab, nCtx, dModel, nHead, nLayer, dMlp, dHead, bos, eos, hasTokenizer: !!model.tokenizer };
    return model;
  }
  /** The kernels in use, as attn_isa names them. */
  get isa() { return this.machine.text(this.machine.call.attn_isa(this.machine.ctx)); }
  /** @param {string} text @returns {Int32Array} ids; special tokens count as their letters */
  encode(text) {
    const { machine } = this;
    if (typeof text !== "string") throw new Error(`a text is ${told(text)}; expected a string`);
    return machine.with(text, (at, size) => machine.with(new Int32Array(size), (ids) => {
      machine.ints(machine.struct, 1)[0] = size;
      if (machine.call.attn_encode(machine.ctx, ids, machine.struct, this.tokenizer, at, size - 1)) throw machine.fail();
      return machine.ints(ids, machine.ints(machine.struct, 1)[0]).slice();
    }));
  }
  /** An id, or an Error. @private */
  idOf(id) { return whole("a token's id", id, 0, this.config.nVocab - 1); }
  /** @private */ idsOf(ids) { return Int32Array.from(ids, (id) => this.idOf(id)); }
  /** @param {number} id @returns {Uint8Array} the bytes of a token, often not whole UTF-8 */
  tokenBytes(id) {
    const { machine } = this, at = machine.call.attn_token_bytes(machine.struct, this.tokenizer, this.idOf(id));
    return machine.bytes.slice(at, at + (at && machine.ints(machine.struct, 1)[0]));
  }
  /** @param {Iterable<number>} ids @returns {string} */
  decode(ids) {
    const decoder = newDecoder();
    let text = "";
    for (const id of ids) text += decoder.decode(this.tokenBytes(id), { stream: true });
    return text + decoder.decode();
  }
  /** A weight under TransformerLens's name, such as "blocks.0.attn.W_O".
   * @param {string} name @returns {{shape: number[], data: Float32Array}} */
  tensor(name) {
    const { machine } = this;
    machine.withName(name, (text) => machine.made(machine.call.attn_model_tensor, this.at, text));
    const tensor = machine.gather(machine.view(machine.struct));
    machine.call.attn_tensor_free(machine.ctx, machine.struct);
    return tensor;
  }
  /** @param {{nCtx?: number, halfCache?: boolean}} [options] nCtx: tokens it can hold (0: the model's)
   * @returns {Session} */
  session({ nCtx = 0, halfCache = false } = {}) {
    const { machine } = this, desc = new Int32Array(12);
    desc.set([whole("nCtx", nCtx), 0, halfCache ? 1 : 0]);
    return new Session(this, machine.with(desc, (at) => machine.made(machine.call.attn_session_new, this.at, at)));
  }
  /** @private */
  streamsOf(values) {
    const floats = floatsOf("streams", values), { dModel } = this.config;
    if (!floats.length || floats.length % dModel) throw new Error(`streams [n, ${dModel}] are expected, and these are ${floats.length} numbers`);
    return floats;
  }
  /** The logit lens: the k likeliest tokens of streams [n, dModel].
   * @param {ArrayLike<number>} streams @param {number} k
   * @returns {{tokens: Int32Array, probabilities: Float32Array}} each [n, k] */
  lens(streams, k = 1) {
    const { machine } = this, floats = this.streamsOf(streams), n = floats.length / this.config.dModel;
    whole("k", k, 1, this.config.nVocab);
    return machine.with(floats, (from) => machine.with(new Int32Array(3 * n * k), (to) => {
      if (machine.call.glue_lens(this.at, from, n, k, to)) throw machine.fail();
      return machine.predictions(to, n * k);
    }));
  }
  /** What parts [n, dModel] of a final stream add to the logit of a token, given the scale of the
   * final LayerNorm (ln_final.hook_scale). @param {ArrayLike<number>} parts @param {number} scale
   * @param {number} token @returns {Float32Array} [n + 1]: the last is the LayerNorm's bias */
  attribute(parts, scale, token) {
    const { machine } = this, floats = this.streamsOf(parts), n = floats.length / this.config.dModel;
    return machine.with(floats, (from) => machine.with(new Float32Array(n + 1), (to) => {
      if (machine.call.glue_attribute(this.at, from, n, float("scale", scale), this.idOf(token), to)) throw machine.fail();
      return machine.floats(to, n + 1).slice();
    }));
  }
  /** A direction to steer by, [dModel]: the mean of a stream over one text's tokens, minus its mean
   * over another's. @param {string} name such as "blocks.2.hook_resid_pre"
   * @param {Iterable<number>} towards ids @param {Iterable<number>} away @returns {Float32Array} */
  steering(name, towards, away) {
    const { machine } = this, { dModel } = this.config, [plus, minus] = [towards, away].map((ids) => this.idsOf(ids));
    return machine.withName(name, (text) => machine.with(Int32Array.of(...plus, ...minus), (ids) => machine.with(new Float32Array(dModel), (to) => {
      if (machine.call.glue_steering(this.at, text, ids, plus.length, minus.length, to)) throw machine.fail();
      return machine.floats(to, dModel).slice();
    })));
  }
  /** What can be asked. @returns {Promise<{name: string, about: string}[]>} */
  async commands() {
    const { machine } = this, list = [];
    await machine.loadQuestions();
    for (let at; (at = machine.asking.lens_query_command(list.length, machine.struct)); ) list.push({ name: machine.text(at), about: machine.text(machine.ints(machine.struct, 1)[0]) });
    return list;
  }
  /** The settings of a command, as the program's table has them. @param {string} command @returns {Promise<Setting[]>} */
  async settings(command) {
    const { machine } = this, list = [], text = (at) => (at ? machine.text(at) : null);
    await machine.loadQuestions();
    return machine.withName(command, (name) => {
      for (let words; (words = machine.read("lens_query_setting", machine.struct, name, list.length)); ) {
        const [option, argument, takes, help, kind, word, isMany, isFile, isNegated] = words.slice(20);
        list.push({ name: text(machine.struct), usual: text(machine.struct + 40) || null, option: text(option), argument: text(argument), takes: text(takes), help: text(help), kind: SETTINGS[kind], word, isMany: !!isMany, isFile: !!isFile, isNegated: !!isNegated });
      }
      return list;
    });
  }
  /** Asks a question: a command of lens, surprisal or score with its settings by name, as the program spells them or with _ for -.
   * It lets events in between its steps; most commands have one that takes all the time, so it belongs into a worker.
   * @param {string} command @param {Record<string, Value | Value[] | Int32Array | null>} settings
   *   an Int32Array: the ids of a text; an array: a setting that may be given several times; null: not given
   * @param {{files?: Record<string, Blob | ArrayBuffer | ArrayBufferView>, onProgress?: (done: number) => boolean | void}} [options]
   *   files: what settings that name a file find; onProgress: gets the share that is done, and by returning true it ends the
   *   question, with an answer that has what is known so far, or within a step with an Error
   * @returns {Promise<Answer>} */
  async query(command, settings = {}, { files = {}, onProgress } = {}) {
    const { machine } = this;
    await machine.loadQuestions();
    const answer = new Answer(machine, machine.withName(command, (name) => machine.made(machine.asking.lens_query_new, this.at, name, FACE, 0)));
    try {
      for (const [name, value] of Object.entries(settings)) answer.set(name, value);
      for (let paused = performance.now(), done = 0; !answer.isWhole && !(done && onProgress?.(done)); ) {
        for (const [name, file] of Object.entries(files)) machine.files.set(name, new Given(bytesOf(file) ?? file));
        done = answer.step(onProgress);
        if (performance.now() - paused < MOST_WITHOUT_EVENTS) continue;
        await breathe();
        paused = performance.now();
      }
      answer.read();
    } catch (error) {
      answer.free();
      throw error;
    }
    return answer;
  }
  /** Frees the model. Free its sessions and records first. */
  close() {
    this.machine.call.attn_model_close(this.at);
    this.machine.free(this.data);
  }
}

/** One sequence: its tokens, keys and values. Model.session makes it. */
export class Session {
  /** @private */
  constructor(model, at) {
    this.model = model;
    this.machine = model.machine;
    this.place = at;
    this.values = new Map(); // of edits: the numbers, which the module reads as long as an edit lives
    this.hooks = new Map(); // hooks' ids, and the numbers under which the machine has their functions
  }
  /** @private */ get at() {
    if (!this.place) throw new Error("this session has been freed");
    return this.place;
  }
  /** Runs the model over more tokens, or over a text. @param {string | Iterable<number>} what */
  feed(what) {
    const { machine } = this;
    const ids = typeof what === "string" ? this.model.encode(what) : this.model.idsOf(what);
    const status = machine.with(ids, (at) => machine.call.attn_feed(machine.ctx, this.at, at, ids.length));
    const thrown = machine.thrown;
    machine.thrown = undefined;
    if (thrown) throw thrown;
    if (status) throw machine.fail(status);
  }
  /** Feeds a text and tells, at each position, the k likeliest next tokens with their
   * probabilities, [n, k] each, and the losses of the tokens but the first in nats, [n - 1].
   * @param {Iterable<number>} ids @param {number} [k]
   * @returns {{tokens: Int32Array, probabilities: Float32Array, losses: Float32Array}} */
  score(ids, k = 5) {
    const { machine } = this, list = this.model.idsOf(ids), n = list.length;
    whole("k", k, 1, this.model.config.nVocab);
    if (!n) throw new Error("score needs at least one token");
    return machine.with(list, (from) => machine.with(new Int32Array(3 * n * (k + 1)), (best) => {
      const stats = best + 12 * n * k;
      machine.ints(machine.struct, 2).set([best, k]);
      const status = machine.call.attn_score(machine.ctx, stats, machine.struct, this.at, from, n);
      if (status) throw machine.fail(status);
      return { ...machine.predictions(best, n * k), losses: machine.thirds(machine.floats(stats, 3 * n - 3), 0) };
    }));
  }
  /** The logits of the last token, a copy; null before the first. @returns {Float32Array | null} */
  get logits() {
    const at = this.machine.call.attn_session_logits(this.at);
    return at ? this.machine.floats(at, this.model.config.nVocab).slice() : null;
  }
  /** @returns {Int32Array} */
  get tokens() { return this.machine.ints(this.machine.call.attn_session_tokens(this.at), this.length).slice(); }
  get length() { return this.machine.call.attn_session_length(this.at); }
  get capacity() { return this.machine.call.attn_session_capacity(this.at); }
  /** Forgets all tokens from position `length` on. @param {number} length */
  truncate(length) {
    if (this.machine.call.attn_session_truncate(this.machine.ctx, this.at, whole("length", length))) throw this.machine.fail();
  }
  /** Writes on: yields tokens until the end of text, maxTokens, or a full session. A loop may stop
   * at any token, and events (timers, clicks, frames) come in every few milliseconds; what they do to
   * the session holds from the next token on. An end token is left out if it is special; another one,
   * as a full stop may be, is the last that is yielded.
   * @param {Sampling & {maxTokens?: number}} [options] @returns {AsyncGenerator<Token>} */
  async *generate(options = {}) {
    const { machine, model } = this, { maxTokens = 100 } = options;
    if (maxTokens !== Infinity) whole("maxTokens", maxTokens);
    const sampler = newSampler(model, options), decoder = newDecoder();
    const { call } = machine, config = call.attn_model_config(model.at), isEnd = (id) => call.attn_config_is_eos(config, id), isLeftOut = (id) => isEnd(id) && call.attn_tokenizer_is_special(model.tokenizer, id);
    const sample = () => machine.made(call.attn_sample, sampler, call.attn_session_logits(this.at), call.attn_session_tokens(this.at), this.length);
    let held = [], early = null; // bytes since the last whole character; the next id, if it was drawn before its turn
    try {
      for (let n = 0, paused = performance.now(); n < maxTokens && this.length < this.capacity; n++) {
        if (performance.now() - paused > MOST_WITHOUT_EVENTS) {
          await breathe();
          paused = performance.now();
        }
        const logits = this.logits;
        if (!logits) throw new Error("the session holds no tokens yet: feed a text first");
        const id = early?.length === this.length ? early.id : sample();
        if (isLeftOut(id)) return;
        this.feed([id]);
        const bytes = model.tokenBytes(id), isLast = !!isEnd(id) || n + 1 >= maxTokens || this.length >= this.capacity;
        held = [...held, ...bytes];
        const isCut = isInside(held);
        if (!isCut) held = [];
        // Whether this is the last token decides how its text ends, so the next one is drawn now.
        early = isCut && !isLast ? { id: sample(), length: this.length } : null;
        const isOver = isLast || (early !== null && isLeftOut(early.id));
        const text = decoder.decode(bytes, { stream: true }) + (isOver ? decoder.decode() : "");
        yield { id, bytes, text, isCut: isCut && !isOver, probability: probabilityOf(logits, id), logits };
        if (isOver) return;
      }
    } finally {
      call.attn_sampler_free(sampler);
    }
  }
  /** Calls fn for every activation whose name matches; `*` matches anything. fn may write to the
   * numbers, and stops the feed by returning true. @param {string} pattern
   * @param {(activation: Activation) => boolean | void} fn @returns {number} an id for unhook */
  hook(pattern, fn) {
    const { machine } = this, number = machine.nextHook++;
    if (typeof fn !== "function") throw new Error(`a hook is ${told(fn)}; expected a function`);
    const id = machine.withName(pattern, (at) => machine.made(machine.call.glue_hook, this.at, at, number));
    machine.hooks.set(number, fn);
    this.hooks.set(id, number);
    return id;
  }
  /** Changes an activation from now on. @param {Edit} edit @returns {number} an id for unhook */
  edit({ name, kind = "zero", first = 0, count = 0, firstHead = 0, nHeads = 0, value, ...others }) {
    const { machine } = this, kindNumber = KINDS.indexOf(kind);
    if (kindNumber < 0) throw new Error(`there is no edit "${kind}"; there are ${KINDS.join(", ")}`);
    for (const key in others) throw new Error(`an edit has no ${key}; it has name, kind, first, count, firstHead, nHeads and value`);
    if (typeof value === "number") value = { shape: [1], data: [value] };
    if (kind !== "zero" && !value) throw new Error(`value is ${told(value)}; expected a number or {shape, data}`);
    const sizes = { first, count, firstHead, nHeads };
    for (const [key, size] of Object.entries(sizes)) whole(key, size);
    const shape = value ? shapeOf(value.shape) : [], data = value ? floatsOf("value.data", value.data) : null;
    const n = shape.reduce((a, b) => a * b, 1);
    if (value && data.length !== n) throw new Error(`value has ${data.length} numbers; its shape [${shape.join(", ")}] says ${n}`);
    const at = value ? machine.alloc(data.byteLength) : 0;
    if (value) machine.floats(at, n).set(data);
    const desc = new Int32Array(28);
    let id = 0;
    try {
      id = machine.withName(name, (text) => {
        desc.set([text, kindNumber, ...Object.values(sizes)]);
        return machine.with(desc, (to) => {
          if (at) machine.with(Int32Array.of(shape.length, ...shape, 0, 0, 0), (list) => machine.call.attn_borrow(to + 24, at, 0, list));
          return machine.made(machine.call.attn_hook_edit, this.at, to);
        });
      });
    } finally {
      if (!id && at) machine.free(at);
    }
    if (at) this.values.set(id, at);
    return id;
  }
  /** Removes a hook or an edit, or all of them and all records. @param {number} [id] */
  unhook(id = 0) {
    const { machine } = this, mine = (map) => [...map].filter(([key]) => !id || id === key);
    if (!whole("id", id, 0, 2 ** 32 - 1)) machine.call.attn_unhook_all(this.at);
    else if (machine.call.attn_unhook(machine.ctx, this.at, id)) throw machine.fail();
    for (const [key, at] of mine(this.values)) this.values.delete(key), machine.free(at);
    for (const [key, number] of mine(this.hooks)) this.hooks.delete(key), machine.hooks.delete(number);
  }
  /** Keeps activations of the tokens that are fed from now on, at up to nPositions positions.
   * @param {string[]} [names] names and patterns; none: every activation but those on request
   * @param {number} [nPositions] 0: the model's nCtx @returns {Record} */
  record(names = [], nPositions = 0) {
    const { machine } = this;
    for (const name of names) machine.withName(name, () => 0);
    const texts = names.map((name) => utf8.encode(`${name}\0`)), desc = new Int32Array(14);
    return machine.with(names.join("\0"), (text) => {
      const list = Int32Array.from(texts, ({ length }) => (text += length) - length);
      return machine.with(list, (at) => {
        desc.set([names.length && at, names.length, 0, whole("nPositions", nPositions)]);
        return new Record(this, machine.with(desc, (to) => machine.made(machine.call.attn_record_new, this.at, to)));
      });
    });
  }
  free() {
    if (!this.place) return;
    this.unhook();
    this.machine.call.attn_session_free(this.at);
    this.place = 0;
  }
}

/** Activations that a session keeps. Session.record makes it. */
export class Record {
  /** @private */
  constructor(session, at) {
    this.machine = session.machine;
    this.at = at;
  }
  /** @returns {string[]} */
  get names() {
    return Array.from({ length: this.machine.call.attn_record_n_activations(this.at) }, (_, i) => this.machine.text(this.machine.call.attn_record_name(this.at, i)));
  }
  /** An activation so far, dense, or the part of it with `index` in dimension `dim`.
   * @param {string} name @param {number} [dim] @param {number} [index]
   * @returns {{shape: number[], data: Float32Array}} */
  get(name, dim = -1, index = 0) {
    const { machine } = this;
    machine.withName(name, (text) => machine.made(machine.call.attn_record_get, this.at, text));
    return machine.gather(machine.view(machine.struct), dim, index);
  }
  free() { this.machine.call.attn_record_free(this.at); }
}

/** The answer to a question. Model.query makes it.
 * tables: their columns by name, of equal lengths. Numbers are a Float64Array in which NaN is missing, texts an array in
 *   which null is; so are the parsed values of lists, and true and false.
 * tensors: large tables, dense, with the names of their axes
 * notes: sentences about the answer
 * files: what was written, by path
 * isWhole: nothing ended it */
export class Answer {
  /** @private */
  constructor(machine, at) {
    Object.assign(this, { machine, at, tables: {}, tensors: {}, notes: [], files: {}, isWhole: false });
  }
  /** @private */
  call(name, ...values) {
    const { machine } = this, status = machine.asking[name](machine.ctx, this.at, ...values), { thrown } = machine;
    machine.thrown = undefined;
    if (thrown) throw thrown;
    if (status) throw machine.fail();
  }
  /** @private */
  set(name, value) {
    if (value == null) return;
    const { machine } = this, isIds = kindOf(value) === "Int32Array", values = Array.isArray(value) ? value : [value];
    for (const one of isIds ? [] : values) if (!["string", "number", "bigint", "boolean"].includes(typeof one)) throw new Error(`${name} is ${told(one)}; expected a string, a number, true or false, or an array of these`);
    const texts = values.map((one) => utf8.encode(String(one)));
    let end = 0;
    machine.withName(name, (to) => {
      if (isIds) return machine.with(value, (at) => this.call("lens_query_ids", to, at, value.length));
      if (!Array.isArray(value)) return machine.with(texts[0], (at, size) => this.call("lens_query_set", to, at, size));
      const ends = BigUint64Array.from(texts, ({ length }) => BigInt((end += length))), bytes = new Uint8Array(end);
      texts.forEach((text, i) => bytes.set(text, Number(ends[i]) - text.length));
      machine.with(bytes, (at) => machine.with(ends, (list) => this.call("lens_query_texts", to, at, list, texts.length)));
    });
  }
  /** @private */
  step(onProgress) {
    const { machine } = this;
    machine.onProgress = onProgress;
    this.call("glue_step", machine.struct);
    for (const [path, file] of machine.files) if (file instanceof Written) this.files[path] = file.content();
    machine.files.clear();
    const [done] = new Float64Array(machine.call.memory.buffer, machine.struct, 1);
    this.isWhole = done >= 1;
    return done;
  }
  /** @private */
  read() {
    const { machine } = this;
    for (let t = 0, words; (words = machine.read("lens_query_table", machine.struct, this.at, t)); t++) {
      const [name, , n] = words, isDense = words[11], columns = Array.from({ length: n }, (_, i) => i);
      if (isDense) this.tensors[machine.text(name)] = this.tensor(t, columns);
      else this.tables[machine.text(name)] = Object.fromEntries(columns.map((i) => this.column(t, i)));
    }
    for (let i = 0, at; (at = machine.asking.lens_query_note(this.at, i)); i++) this.notes.push(machine.text(at));
  }
  /** @private The last of these columns, and the names of those before it. */
  tensor(t, columns) {
    const { machine } = this, axes = columns.slice(0, -1).map((i) => machine.text(machine.read("lens_query_about", machine.struct, this.at, t, i)[0]));
    machine.read("lens_query_tensor", machine.struct, this.at, t, axes.length);
    return { axes, ...machine.gather(machine.view(machine.struct)) };
  }
  /** @private */
  column(t, i) {
    const { machine } = this, words = machine.read("lens_query_column", machine.ctx, machine.struct, this.at, t, i);
    if (!words) throw machine.fail();
    const [name, kind, , , n, numbers, bytes, ends, missing] = words, { buffer } = machine.call.memory, key = machine.text(name);
    if (kind < FLAGS) return [key, new Float64Array(buffer, numbers, n).slice()];
    if (kind === FLAGS) return [key, Array.from(new Float64Array(buffer, numbers, n), (x) => (isNaN(x) ? null : x !== 0))];
    const stops = new BigUint64Array(buffer, ends, n), isMissing = new Uint8Array(buffer, missing, n);
    const texts = Array.from(stops, (end, k) => (isMissing[k] ? null : newDecoder().decode(machine.bytes.slice(bytes + Number(k ? stops[k - 1] : 0), bytes + Number(end)))));
    return [key, kind === TEXTS ? texts : texts.map((text) => text && JSON.parse(text))];
  }
  /** The answer as "text", "json", "csv", "svg" or "html", in the bytes of the program. @param {string} form @returns {string} */
  form(form) {
    const { machine } = this;
    machine.withName(form, (name) => this.call("lens_query_form", name, machine.struct, machine.struct + 4));
    const [at, size] = machine.ints(machine.struct, 2);
    return newDecoder().decode(machine.bytes.slice(at, at + size));
  }
  free() {
    this.machine.asking.lens_query_free(this.at);
    this.at = 0;
  }
}

function newSampler(model, { temperature = 0, topK = 0, topP = 1, minP = 0, repeatPenalty = 0, repeatLast = 0, seed = 0 }) {
  const { machine } = model, desc = new DataView(new ArrayBuffer(64));
  const floats = { 0: float("temperature", temperature), 8: topP === 0 ? 1e-30 : float("topP", topP), 12: float("minP", minP), 16: float("repeatPenalty", repeatPenalty) };
  for (const [at, value] of Object.entries(floats)) desc.setFloat32(at, value, true);
  desc.setUint32(4, whole("topK", topK), true);
  desc.setUint32(20, whole("repeatLast", repeatLast), true);
  desc.setBigUint64(24, seedOf(seed), true);
  return machine.with(desc, (at) => machine.made(machine.call.attn_sampler_new, model.config.nVocab, at));
}

/** Whether bytes end in the middle of a character. @param {number[]} bytes */
function isInside(bytes) {
  const given = Uint8Array.from(bytes);
  return newDecoder().decode(given, { stream: true }).length < newDecoder().decode(given).length;
}

/** @param {number[]} shape of an edit's value: one to three sizes */
function shapeOf(shape) {
  if (!Array.isArray(shape) || shape.length < 1 || shape.length > 3) throw new Error(`value.shape is ${JSON.stringify(shape)}; expected one to three sizes`);
  return shape.map((size) => whole("a size of value.shape", size, 1));
}

/** @param {Float32Array} logits @returns {Float32Array} their softmax */
export function softmax(logits) {
  let most = -Infinity, sum = 0;
  for (const x of logits) most = Math.max(most, x);
  const p = logits.map((x) => Math.exp(x - most));
  for (const x of p) sum += x;
  return p.map((x) => x / sum);
}

function probabilityOf(logits, id) {
  let most = -Infinity, sum = 0;
  for (const x of logits) most = Math.max(most, x);
  for (const x of logits) sum += Math.exp(x - most);
  return Math.exp(logits[id] - most) / sum;
}

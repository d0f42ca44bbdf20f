// attn.h in JavaScript, for browsers and Node: models, sessions, hooks, edits and records.
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
/** @typedef {{name?: string, column?: string?, regions?: string?, regionNames?: string?, by?: "word"|"token"|"region",
 *   unit?: "bits"|"nats", punctuation?: "word"|"apart", continues?: boolean, bos?: boolean, rank?: boolean, top?: number,
 *   stride?: number?, spillover?: number, layers?: string | number[] | null, tuned?: (ArrayBuffer | ArrayBufferView)?, entropyReduction?: boolean, renyi?: number?,
 *   suite?: boolean, pair?: string?, group?: string?, corrected?: boolean}} SurprisalOptions
 *   As the options of the program surprisal; name: the text's, in messages; tuned: the bytes of the file. */

const STOPPED = 14; // ATTN_STOPPED
const KINDS = ["zero", "set", "mean", "add", "scale"];

/** The variants of the module, best first: what they need, and the file. */
const VARIANTS = [
  { name: "relaxed", file: "attn-relaxed.wasm" }, // relaxed SIMD, where its multiply-add is fused
  { name: "simd", file: "attn-simd.wasm" }, // SIMD, with multiply-adds put together from others
  { name: "plain", file: "attn.wasm" }, // every WebAssembly there is
];

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

/** The calls of WASI that read the files of machine.given, in a folder that has the descriptor 3. */
function filesOf(machine) {
  const BAD = 8, NONE = 44, open = new Map(), view = () => new DataView(machine.call.memory.buffer);
  const named = (at, n) => machine.given.get(newDecoder().decode(machine.bytes.slice(at, at + n)));
  const stat = (at, file) => {
    machine.bytes.fill(0, at, at + 64);
    view().setUint8(at + 16, 4); // a file
    view().setBigUint64(at + 32, BigInt(file.length), true);
    return 0;
  };
  return {
    fd_prestat_get: (fd, at) => (fd === 3 ? (view().setBigUint64(at, 1n << 32n, true), 0) : BAD),
    fd_prestat_dir_name: (fd, at) => (machine.bytes.set([47], at), 0),
    fd_fdstat_get: (fd, at) => {
      if (fd !== 3 && !open.has(fd)) return BAD;
      machine.bytes.fill(255, at, at + 24); // every right
      view().setUint32(at, fd === 3 ? 3 : 4, true); // a folder, a file
      return 0;
    },
    path_filestat_get: (fd, flags, path, n, at) => (named(path, n) ? stat(at, named(path, n)) : NONE),
    path_open: (fd, look, path, n, how, rights, inherited, flags, to) => {
      if (!named(path, n)) return NONE;
      const number = Math.max(3, ...open.keys()) + 1;
      open.set(number, { bytes: named(path, n), at: 0 });
      view().setUint32(to, number, true);
      return 0;
    },
    fd_filestat_get: (fd, at) => (open.has(fd) ? stat(at, open.get(fd).bytes) : BAD),
    fd_seek: (fd, offset, whence, at) => {
      const file = open.get(fd);
      if (!file) return BAD;
      file.at = Number(offset) + [0, file.at, file.bytes.length][whence];
      view().setBigUint64(at, BigInt(file.at), true);
      return 0;
    },
    fd_read: (fd, list, n, done) => {
      const file = open.get(fd), begin = file?.at;
      if (!file) return BAD;
      for (let i = 0; i < n; i++) {
        const part = file.bytes.subarray(file.at, file.at + view().getUint32(list + 8 * i + 4, true));
        machine.bytes.set(part, view().getUint32(list + 8 * i, true));
        file.at += part.length;
      }
      view().setUint32(done, file.at - begin, true);
      return 0;
    },
    fd_close: (fd) => (open.delete(fd) ? 0 : BAD),
  };
}

/** The module in memory: its functions, and views of its memory. */
class Machine {
  /** @param {WebAssembly.Module} module */
  static async start(module) {
    const machine = new Machine();
    machine.given = new Map(); // bytes by path, which the C library can read
    // It may ask for other files and a terminal, which are not there: "no such call" (52). What it prints is kept.
    const system = new Proxy({ fd_write: (...values) => machine.print(...values), ...filesOf(machine) }, { get: (all, name) => all[name] ?? (() => 52) });
    const instance = await WebAssembly.instantiate(module, {
      attn: { hook: (...values) => machine.runHook(...values) },
      wasi_snapshot_preview1: system,
    });
    machine.call = instance.exports;
    machine.call._initialize?.();
    machine.hooks = new Map();
    machine.nextHook = 1;
    machine.printed = [[], [], []]; // pieces of bytes; [1] standard output, [2] standard error
    return machine;
  }
  /** @returns {Uint8Array} */ get bytes() { return new Uint8Array(this.call.memory.buffer); }
  floats(at, n) { return new Float32Array(this.call.memory.buffer, at, n); }
  ints(at, n) { return new Int32Array(this.call.memory.buffer, at, n); }
  text(at) {
    const bytes = this.bytes;
    return newDecoder().decode(bytes.slice(at, bytes.indexOf(0, at)));
  }
  /** @param {number} [status] */ fail(status) {
    return new Error(status === STOPPED ? "a hook asked to stop" : this.text(this.call.glue_message()));
  }
  /** Address of n bytes; free them. @param {number} n */
  alloc(n) {
    const at = n < 2 ** 31 ? this.call.glue_alloc(Math.max(n, 1)) >>> 0 : 0; // the module has at most 2 GB
    if (!at) throw new Error(`there is no memory for ${n} more bytes`);
    return at;
  }
  free(at) { this.call.glue_free(at); }
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
  /** A tensor that glue_view describes: where it is, its sizes, its strides. */
  view(at) {
    const words = this.ints(at, 10), n = words[1];
    return { at: words[0] >>> 0, shape: [...words.slice(2, 2 + n)], stride: [...words.slice(6, 6 + n)] };
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
  /** fd_write of WASI. */
  print(fd, list, n, done) {
    const view = new DataView(this.call.memory.buffer), bytes = this.bytes;
    let total = 0;
    for (let i = 0; i < n; i++) {
      const at = view.getUint32(list + 8 * i, true), size = view.getUint32(list + 8 * i + 4, true);
      this.printed[fd].push(bytes.slice(at, at + size));
      total += size;
    }
    view.setUint32(done, total, true);
    return 0;
  }
  /** What was printed since this was last asked. @param {1 | 2} fd */
  takePrinted(fd) {
    const decoder = newDecoder(), text = this.printed[fd].map((piece) => decoder.decode(piece, { stream: true })).join("") + decoder.decode();
    this.printed[fd] = [];
    return text;
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
  const load = typeof wasm === "function" ? wasm : async (name) => wasm ?? readBytes(new URL(VARIANTS.find((v) => v.name === name).file, import.meta.url));
  let failure = new Error(`there is no variant ${variant} of the module`);
  for (const { name } of VARIANTS.filter((v) => !variant || v.name === variant)) {
    try {
      const machine = await Machine.start(await WebAssembly.compile(await load(name)));
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
    model.at = machine.call.glue_open(model.data, size);
    if (!model.at) throw machine.fail();
    const c = machine.ints(machine.call.glue_config(model.at), 10);
    /** @type {Config} */
    model.config = { nVocab: c[0], nCtx: c[1], dModel: c[2], nHead: c[3], nLayer: c[4], dMlp: c[5], dHead: c[6], bos: c[7], eos: c[8], hasTokenizer: !!c[9] };
    return model;
  }
  /** The kernels in use, as attn_isa names them. */
  get isa() { return this.machine.text(this.machine.call.glue_isa()); }
  /** @param {string} text @returns {Int32Array} ids; special tokens count as their letters */
  encode(text) {
    const { machine } = this;
    if (typeof text !== "string") throw new Error(`a text is ${told(text)}; expected a string`);
    return machine.with(text, (at, size) => {
      const ids = machine.call.glue_encode(this.at, at, size - 1);
      if (!ids) throw machine.fail();
      const copy = machine.ints(ids + 4, machine.ints(ids, 1)[0]).slice();
      machine.free(ids);
      return copy;
    });
  }
  /** An id, or an Error. @private */
  idOf(id) { return whole("a token's id", id, 0, this.config.nVocab - 1); }
  /** @private */ idsOf(ids) { return Int32Array.from(ids, (id) => this.idOf(id)); }
  /** @param {number} id @returns {Uint8Array} the bytes of a token, often not whole UTF-8 */
  tokenBytes(id) {
    this.idOf(id);
    const at = this.machine.call.glue_token(this.at, id);
    return this.machine.bytes.slice(at, at + this.machine.call.glue_token_size());
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
    const at = machine.withName(name, (text) => machine.call.glue_weight(this.at, text));
    if (!at) throw machine.fail();
    const tensor = machine.gather(machine.view(at));
    machine.call.glue_weight_free();
    return tensor;
  }
  /** @param {{nCtx?: number, halfCache?: boolean}} [options] nCtx: tokens it can hold (0: the model's)
   * @returns {Session} */
  session({ nCtx = 0, halfCache = false } = {}) {
    const at = this.machine.call.glue_session(this.at, whole("nCtx", nCtx), halfCache ? 1 : 0);
    if (!at) throw this.machine.fail();
    return new Session(this, at);
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
    return machine.with(floats, (from) => machine.with(new Int32Array(2 * n * k), (to) => {
      if (machine.call.glue_lens(this.at, from, n, k, to, to + 4 * n * k)) throw machine.fail();
      return { tokens: machine.ints(to, n * k).slice(), probabilities: machine.floats(to + 4 * n * k, n * k).slice() };
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
  /** The names of a table's columns, and the fields of its first record: two records of CSV with commas. A table that
   * cannot be read has none, or names alone; surprisal says why. @param {Uint8Array} table @returns {string} */
  columnsOf(table) {
    this.machine.with(table, (at, size) => this.machine.call.glue_columns(at, size));
    return this.machine.takePrinted(1);
  }
  /** How surprising each word is: the rows of CSV that the program surprisal prints, byte for byte. They come as the
   * model reads, some whole rows at a time, the header first. The model must stay open as long as the loop runs.
   *     let csv = "";
   *     for (const piece of model.surprisal("The cat sat.\nThe dog ran.")) csv += piece.csv;
   * @param {string | ArrayBuffer | ArrayBufferView} text a text on each line, or with `column` a table (CSV, TSV)
   * @param {SurprisalOptions} [options] @returns {Generator<{csv: string, notes: string[], done: number}>}
   *   notes: what the program says of the input; done: the share of the text that was read */
  *surprisal(text, { name = "the text", column, regions, regionNames, layers, by = "word", unit = "bits", punctuation = "word", continues = false, bos = true, rank = false, top = 0, stride, spillover = 0, tuned, entropyReduction = false, renyi, suite = false, pair, group, corrected = false } = {}) {
    const { machine } = this, bytes = typeof text === "string" ? utf8.encode(text) : bytesOf(text), words = { name, column, regions, regionNames, layers: Array.isArray(layers) ? layers.join() : layers, vectors: null, tuned: tuned && "tuned.safetensors", pair, group };
    if (!bytes) throw new Error(`surprisal takes a string or the bytes of a file, not ${told(text)}`);
    if (tuned && !bytesOf(tuned)) throw new Error(`tuned is ${told(tuned)}; expected the bytes of a file`);
    for (const [key, word] of Object.entries(words)) if (word != null && (typeof word !== "string" || word.includes("\0"))) throw new Error(`${key} is ${told(word)}; expected a string without NUL`);
    const numbers = Float64Array.of(choiceOf("by", by, ["word", "token", "region"]), choiceOf("unit", unit, ["bits", "nats"]), choiceOf("punctuation", punctuation, ["word", "apart"]), continues, !bos, rank, entropyReduction, stride != null, renyi != null, 0, suite, corrected, whole("top", top, 0, 1000), whole("stride", stride ?? 0, 0, 1e9), whole("spillover", spillover, 0, 100), renyi ?? 0);
    const strings = utf8.encode(Object.values(words).map((word) => (word == null ? "\0" : `=${word}\0`)).join("")), kept = machine.alloc(strings.length);
    machine.bytes.set(strings, kept);
    const said = () => machine.takePrinted(2).split("\n").filter((line) => line);
    const failed = () => new Error(said().pop());
    let run = 0, done = 0;
    try {
      if (tuned) machine.given.set("tuned.safetensors", bytesOf(tuned));
      run = machine.with(bytes, (at, size) => machine.with(numbers, (list) => machine.call.glue_surprisal(this.at, at, size, kept, list)));
      machine.given.clear();
      if (!run) throw failed();
      yield { csv: machine.takePrinted(1), notes: said(), done };
      while (done < 1) {
        done = machine.call.glue_surprisal_step(run);
        if (done < 0) throw failed();
        yield { csv: machine.takePrinted(1), notes: said(), done };
      }
    } finally {
      if (run) machine.call.glue_surprisal_free(run);
      machine.free(kept);
    }
  }
  /** Frees the model. Free its sessions and records first. */
  close() {
    this.machine.call.glue_close(this.at);
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
    const status = machine.with(ids, (at) => machine.call.glue_feed(this.at, at, ids.length));
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
    return machine.with(list, (from) => machine.with(new Int32Array(2 * n * k + n), (to) => {
      const status = machine.call.glue_score(this.at, from, n, k, to, to + 4 * n * k);
      if (status) throw machine.fail(status);
      return {
        tokens: machine.ints(to, n * k).slice(),
        probabilities: machine.floats(to + 4 * n * k, n * k).slice(),
        losses: machine.floats(to + 8 * n * k, n - 1).slice(),
      };
    }));
  }
  /** The logits of the last token, a copy; null before the first. @returns {Float32Array | null} */
  get logits() {
    const at = this.machine.call.glue_logits(this.at);
    return at ? this.machine.floats(at, this.model.config.nVocab).slice() : null;
  }
  /** @returns {Int32Array} */
  get tokens() { return this.machine.ints(this.machine.call.glue_tokens(this.at), this.length).slice(); }
  get length() { return this.machine.call.glue_length(this.at); }
  get capacity() { return this.machine.call.glue_capacity(this.at); }
  /** Forgets all tokens from position `length` on. @param {number} length */
  truncate(length) {
    if (this.machine.call.glue_truncate(this.at, whole("length", length))) throw this.machine.fail();
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
    const sample = () => {
      const id = machine.call.glue_sample(sampler, this.at);
      if (id < 0) throw machine.fail();
      return id;
    };
    let held = [], early = null; // bytes since the last whole character; the next id, if it was drawn before its turn
    try {
      for (let n = 0, paused = performance.now(); n < maxTokens && this.length < this.capacity; n++) {
        if (performance.now() - paused > MOST_WITHOUT_EVENTS) {
          await breathe();
          paused = performance.now();
        }
        const logits = this.logits;
        if (!logits) throw new Error("the session holds no tokens yet: feed a text first");
        const id = early?.length === this.length ? early.id : sample(), ends = machine.call.glue_ends(model.at, id);
        if (ends === 2) return;
        this.feed([id]);
        const bytes = model.tokenBytes(id), isLast = !!ends || n + 1 >= maxTokens || this.length >= this.capacity;
        held = [...held, ...bytes];
        const isCut = isInside(held);
        if (!isCut) held = [];
        // Whether this is the last token decides how its text ends, so the next one is drawn now.
        early = isCut && !isLast ? { id: sample(), length: this.length } : null;
        const isEnd = isLast || (early !== null && machine.call.glue_ends(model.at, early.id) === 2);
        const text = decoder.decode(bytes, { stream: true }) + (isEnd ? decoder.decode() : "");
        yield { id, bytes, text, isCut: isCut && !isEnd, probability: probabilityOf(logits, id), logits };
        if (isEnd) return;
      }
    } finally {
      machine.call.glue_sampler_free(sampler);
    }
  }
  /** Calls fn for every activation whose name matches; `*` matches anything. fn may write to the
   * numbers, and stops the feed by returning true. @param {string} pattern
   * @param {(activation: Activation) => boolean | void} fn @returns {number} an id for unhook */
  hook(pattern, fn) {
    const { machine } = this, number = machine.nextHook++;
    if (typeof fn !== "function") throw new Error(`a hook is ${told(fn)}; expected a function`);
    const id = machine.withName(pattern, (at) => machine.call.glue_hook(this.at, at, number));
    if (!id) throw machine.fail();
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
    const numbers = Float64Array.of(kindNumber, ...Object.values(sizes), at, shape.length, shape[0] ?? 0, shape[1] ?? 0, shape[2] ?? 0);
    let id = 0;
    try {
      id = machine.withName(name, (text) => machine.with(numbers, (words) => machine.call.glue_edit(this.at, text, words)));
      if (!id) throw machine.fail();
    } finally {
      if (!id && at) machine.free(at);
    }
    if (at) this.values.set(id, at);
    return id;
  }
  /** Removes a hook or an edit, or all of them and all records. @param {number} [id] */
  unhook(id = 0) {
    const { machine } = this, mine = (map) => [...map].filter(([key]) => !id || id === key);
    if (machine.call.glue_unhook(this.at, whole("id", id, 0, 2 ** 32 - 1))) throw machine.fail();
    for (const [key, at] of mine(this.values)) this.values.delete(key), machine.free(at);
    for (const [key, number] of mine(this.hooks)) this.hooks.delete(key), machine.hooks.delete(number);
  }
  /** Keeps activations of the tokens that are fed from now on, at up to nPositions positions.
   * @param {string[]} [names] names and patterns; none: every activation but those on request
   * @param {number} [nPositions] 0: the model's nCtx @returns {Record} */
  record(names = [], nPositions = 0) {
    const { machine } = this;
    for (const name of names) machine.withName(name, () => 0);
    const at = machine.with(names.join("\0"), (text) => machine.call.glue_record(this.at, text, names.length, whole("nPositions", nPositions)));
    if (!at) throw machine.fail();
    return new Record(this, at);
  }
  free() {
    if (!this.place) return;
    this.unhook();
    this.machine.call.glue_session_free(this.at);
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
    return Array.from({ length: this.machine.call.glue_record_count(this.at) }, (_, i) => this.machine.text(this.machine.call.glue_record_name(this.at, i)));
  }
  /** An activation so far, dense, or the part of it with `index` in dimension `dim`.
   * @param {string} name @param {number} [dim] @param {number} [index]
   * @returns {{shape: number[], data: Float32Array}} */
  get(name, dim = -1, index = 0) {
    const { machine } = this;
    const at = machine.withName(name, (text) => machine.call.glue_record_get(this.at, text));
    if (!at) throw machine.fail();
    return machine.gather(machine.view(at), dim, index);
  }
  free() { this.machine.call.glue_record_free(this.at); }
}

function newSampler(model, { temperature = 0, topK = 0, topP = 1, minP = 0, repeatPenalty = 0, repeatLast = 0, seed = 0 }) {
  const { machine } = model, bits = seedOf(seed), [low, high] = [bits & 0xffffffffn, bits >> 32n].map(Number);
  const numbers = Float64Array.of(float("temperature", temperature), whole("topK", topK), topP === 0 ? 1e-30 : float("topP", topP), float("minP", minP), float("repeatPenalty", repeatPenalty), whole("repeatLast", repeatLast), low, high);
  const sampler = machine.with(numbers, (at) => machine.call.glue_sampler(model.at, at));
  if (!sampler) throw machine.fail();
  return sampler;
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

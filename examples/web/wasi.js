// As much of a system (WASI preview 1) as the C code here asks for: files that lie in memory or are Files of the browser.
// Of a File only what is read comes into memory, at once, which browsers allow in a worker.

const E = { BADF: 8, EXIST: 20, INVAL: 28, NOENT: 44, NOSYS: 52, NOTDIR: 54 };

/** A file that grows as it is written. */
export class Written {
  constructor() {
    this.bytes = new Uint8Array(1 << 20);
    this.size = 0;
  }
  read(at, to) {
    const part = this.bytes.subarray(at, Math.min(this.size, at + to.length));
    to.set(part);
    return part.length;
  }
  write(at, from) {
    const end = at + from.length;
    if (end > this.bytes.length) {
      const more = new Uint8Array(Math.max(end, 2 * this.bytes.length));
      more.set(this.bytes.subarray(0, this.size));
      this.bytes = more;
    }
    this.bytes.set(from, at);
    this.size = Math.max(this.size, end);
    return from.length;
  }
  content() { return this.bytes.subarray(0, this.size); }
}

/** A File or Blob, which is read a block at a time, or bytes. */
export class Given {
  constructor(source) {
    const isHere = source instanceof Uint8Array;
    this.blob = source;
    this.block = isHere ? source : null;
    this.size = isHere ? source.length : source.size;
    this.from = 0;
    this.to = isHere ? this.size : 0;
  }
  read(at, to) {
    const n = Math.max(0, Math.min(to.length, this.size - at));
    if (n && (at < this.from || at + n > this.to)) {
      this.from = at;
      this.to = Math.min(this.size, at + Math.max(n, 1 << 20));
      this.block = new Uint8Array(new FileReaderSync().readAsArrayBuffer(this.blob.slice(this.from, this.to)));
    }
    if (n) to.set(this.block.subarray(at - this.from, at - this.from + n));
    return n;
  }
  write() { return -1; }
}

class Exit extends Error {
  constructor(code) {
    super(`status ${code}`);
    this.code = code;
  }
}

/** The calls of the system. @param {Map<string, Given | Written>} files by path, without a leading slash
 * @param {() => WebAssembly.Memory} memory @param {string[]} words the command line
 * @param {(text: string) => void} say gets standard error */
export function systemOf(files, memory, words = [], say = () => {}) {
  const open = new Map([[0, null], [1, null], [2, null], [3, { folder: "" }]]);
  const view = () => new DataView(memory().buffer), bytes = (at, n) => new Uint8Array(memory().buffer, at, n);
  const textAt = (at, n) => new TextDecoder().decode(bytes(at, n).slice());
  const clean = (path) => path.split("/").filter((p) => p && p !== ".").join("/");
  const isFolder = (path) => path === "" || [...files.keys()].some((name) => name.startsWith(path + "/"));
  const strings = (list) => ({
    sizes: (count, size) => {
      view().setUint32(count, list.length, true);
      view().setUint32(size, list.reduce((n, s) => n + new TextEncoder().encode(s).length + 1, 0), true);
      return 0;
    },
    get: (pointers, at) => {
      for (const word of list) {
        const coded = new TextEncoder().encode(word + "\0");
        view().setUint32(pointers, at, true);
        bytes(at, coded.length).set(coded);
        pointers += 4;
        at += coded.length;
      }
      return 0;
    },
  });
  const stat = (at, file, path) => {
    bytes(at, 64).fill(0);
    view().setBigUint64(at + 8, BigInt([...files.keys()].indexOf(path) + 2), true);
    view().setUint8(at + 16, file ? 4 : 3);
    view().setBigUint64(at + 24, 1n, true);
    view().setBigUint64(at + 32, BigInt(file?.size ?? 0), true);
    return 0;
  };
  /** Reads or writes the pieces of a list, at a place or where the descriptor stands. */
  const move = (how) => (fd, list, n, at, done) => {
    const opened = open.get(fd);
    let place = at === undefined ? opened.at : Number(at), total = 0;
    for (let i = 0; i < n; i++) {
      const piece = bytes(view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true));
      const moved = opened.file[how](place, piece);
      if (moved < 0) return E.BADF;
      place += moved;
      total += moved;
      if (moved < piece.length) break;
    }
    if (at === undefined) opened.at = place;
    view().setUint32(done, total, true);
    return 0;
  };
  const command = strings(words), environment = strings([]);
  const system = {
    args_sizes_get: command.sizes, args_get: command.get,
    environ_sizes_get: environment.sizes, environ_get: environment.get,
    clock_time_get: (id, precision, at) => (view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true), 0),
    random_get: (at, n) => (crypto.getRandomValues(bytes(at, n)), 0),
    proc_exit: (code) => { throw new Exit(code); },
    fd_prestat_get: (fd, at) => (fd === 3 ? (view().setUint32(at, 0, true), view().setUint32(at + 4, 1, true), 0) : E.BADF),
    fd_prestat_dir_name: (fd, at) => (bytes(at, 1).set([47]), 0),
    fd_fdstat_get: (fd, at) => {
      if (!open.has(fd)) return E.BADF;
      bytes(at, 24).fill(0);
      view().setUint8(at, fd < 3 ? 2 : open.get(fd).file ? 4 : 3);
      view().setBigUint64(at + 8, 0xffffffffn, true);
      view().setBigUint64(at + 16, 0xffffffffn, true);
      return 0;
    },
    fd_fdstat_set_flags: () => 0, fd_sync: () => 0, fd_datasync: () => 0, fd_advise: () => 0,
    fd_filestat_get: (fd, at) => (open.get(fd) ? stat(at, open.get(fd).file, open.get(fd).path) : E.BADF),
    path_filestat_get: (fd, flags, path, n, at) => {
      const name = clean(textAt(path, n)), file = files.get(name);
      return file || isFolder(name) ? stat(at, file, name) : E.NOENT;
    },
    path_open: (fd, look, path, n, how, rights, inherited, flags, to) => {
      const name = clean(textAt(path, n));
      if (how & 2 && files.has(name)) return E.NOTDIR;
      if (how & 4 && files.has(name)) return E.EXIST;
      if (!files.has(name) && !isFolder(name)) {
        if (!(how & 1)) return E.NOENT;
        files.set(name, new Written());
      } else if (how & 8) files.set(name, new Written());
      const number = Math.max(...open.keys()) + 1;
      open.set(number, { file: files.get(name), path: name, at: 0 });
      view().setUint32(to, number, true);
      return 0;
    },
    fd_readdir: (fd, at, size, cookie, used) => {
      const start = open.get(fd).path ? `${open.get(fd).path}/` : "", names = [...new Set([...files.keys()].filter((name) => name.startsWith(start)).map((name) => name.slice(start.length).split("/")[0]))];
      let n = 0;
      for (let i = Number(cookie); i < names.length && n < size; i++) {
        const name = new TextEncoder().encode(names[i]), entry = new Uint8Array(24 + name.length), head = new DataView(entry.buffer);
        head.setBigUint64(0, BigInt(i + 1), true);
        head.setUint32(16, name.length, true);
        entry.set(name, 24);
        bytes(at + n, Math.min(size - n, entry.length)).set(entry.subarray(0, size - n));
        n += Math.min(size - n, entry.length);
      }
      view().setUint32(used, n, true);
      return 0;
    },
    path_rename: (fd, from, n, other, to, m) => {
      const name = clean(textAt(from, n));
      if (!files.has(name)) return E.NOENT;
      files.set(clean(textAt(to, m)), files.get(name));
      files.delete(name);
      return 0;
    },
    path_unlink_file: (fd, path, n) => (files.delete(clean(textAt(path, n))) ? 0 : E.NOENT),
    path_readlink: () => E.INVAL, // nothing is a link
    fd_close: (fd) => (open.delete(fd) ? 0 : E.BADF),
    fd_seek: (fd, offset, whence, at) => {
      const opened = open.get(fd);
      if (!opened?.file) return E.BADF;
      const place = Number(offset) + (whence === 0 ? 0 : whence === 1 ? opened.at : opened.file.size);
      if (place < 0) return E.INVAL;
      opened.at = place;
      view().setBigUint64(at, BigInt(place), true);
      return 0;
    },
    fd_read: (fd, list, n, done) => (open.get(fd)?.file ? move("read")(fd, list, n, undefined, done) : (view().setUint32(done, 0, true), fd === 0 ? 0 : E.BADF)),
    fd_pread: (fd, list, n, at, done) => (open.get(fd)?.file ? move("read")(fd, list, n, at, done) : E.BADF),
    fd_pwrite: (fd, list, n, at, done) => (open.get(fd)?.file ? move("write")(fd, list, n, at, done) : E.BADF),
    fd_write: (fd, list, n, done) => {
      if (fd > 2) return open.get(fd)?.file ? move("write")(fd, list, n, undefined, done) : E.BADF;
      let total = 0;
      for (let i = 0; i < n; i++) {
        const size = view().getUint32(list + 8 * i + 4, true);
        if (fd === 2) say(textAt(view().getUint32(list + 8 * i, true), size));
        total += size;
      }
      view().setUint32(done, total, true);
      return 0;
    },
  };
  return new Proxy(system, { get: (all, name) => all[name] ?? (() => E.NOSYS) });
}

/** Runs a program. @param {WebAssembly.Module} module @param {string[]} words its command line
 * @param {Map<string, Blob | Uint8Array>} given files by path
 * @returns {Promise<{code: number, said: string, files: Map<string, Uint8Array>}>} said: standard error */
export async function runProgram(module, words, given) {
  const files = new Map([...given].map(([path, source]) => [path, new Given(source)]));
  let instance, code = 0, said = "";
  const system = systemOf(files, () => instance.exports.memory, words, (text) => (said += text));
  instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: system });
  try {
    instance.exports._start();
  } catch (error) {
    if (!(error instanceof Exit)) throw error;
    code = error.code;
  }
  return { code, said, files: new Map([...files].filter(([, f]) => f instanceof Written).map(([path, f]) => [path, f.content()])) };
}

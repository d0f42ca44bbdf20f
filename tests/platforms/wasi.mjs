// Runs a WebAssembly program under Node: node tests/platforms/wasi.mjs PROGRAM.wasm ARGUMENTS...
import { readFile } from 'node:fs/promises';
import { WASI } from 'node:wasi';

const [file, ...rest] = process.argv.slice(2);
const wasi = new WASI({ version: 'preview1', args: [file, ...rest], preopens: { '.': '.' } });
const program = await WebAssembly.compile(await readFile(file));
// Each call goes through a function of JavaScript. Node's direct calls from WebAssembly corrupt its memory at times:
// https://github.com/nodejs/node/issues/53087
const calls = Object.entries(wasi.wasiImport).map(([name, call]) => [name, (...values) => call(...values)]);
const imports = { wasi_snapshot_preview1: Object.fromEntries(calls) };
process.exitCode = wasi.start(await WebAssembly.instantiate(program, imports));

// Runs a WebAssembly program under Node: node tests/platforms/wasi.mjs PROGRAM.wasm ARGUMENTS...
import { readFile } from 'node:fs/promises';
import { WASI } from 'node:wasi';

const [file, ...rest] = process.argv.slice(2);
const wasi = new WASI({ version: 'preview1', args: [file, ...rest], preopens: { '.': '.' } });
const program = await WebAssembly.compile(await readFile(file));
process.exitCode = wasi.start(await WebAssembly.instantiate(program, wasi.getImportObject()));

// See faces.py: node faces.mjs BUILD DIRECTORY, which has files and calls.mjs.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [build, directory] = process.argv.slice(2);
const { Model } = await import(pathToFileURL(`${build}/attn.js`));
const { calls } = await import(pathToFileURL(`${directory}/calls.mjs`));
const model = await Model.open(`${build}/tiny-stories.attn`, { variant: "simd" });
const read = async (name) => readFile(`${directory}/${name}`), lens = await read("lens.safetensors");
for (const [name, { suite, ...settings }, output = name] of calls) {
  let csv = null, notes;
  try {
    const answer = await model.query(suite ? "suite" : "surprisal", { file: name, ...settings }, { files: { [name]: await read(name), "lens.safetensors": lens } });
    csv = answer.form("csv");
    notes = answer.notes;
    answer.free();
  } catch (error) {
    notes = [error.message];
  }
  if (csv !== null) await writeFile(`${directory}/${output}.js`, csv);
  if (notes.length) await writeFile(`${directory}/${output}.js.said`, notes.map((note) => `${note}\n`).join(""));
}

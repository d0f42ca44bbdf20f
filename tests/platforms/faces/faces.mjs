// See faces.py: node faces.mjs BUILD DIRECTORY, which has files and calls.mjs.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [build, directory] = process.argv.slice(2);
const { Model } = await import(pathToFileURL(`${build}/attn.js`));
const { calls } = await import(pathToFileURL(`${directory}/calls.mjs`));
const model = await Model.open(`${build}/tiny-stories.attn`, { variant: "simd" });
for (const [name, options, output = name] of calls) {
  let csv = "", notes = [];
  try {
    for (const piece of model.surprisal(await readFile(`${directory}/${name}`), { name, ...options })) {
      csv += piece.csv;
      notes.push(...piece.notes);
    }
  } catch (error) {
    csv = null;
    notes = [error.message];
  }
  if (csv !== null) await writeFile(`${directory}/${output}.js`, csv);
  if (notes.length) await writeFile(`${directory}/${output}.js.said`, notes.map((note) => `${note}\n`).join(""));
}

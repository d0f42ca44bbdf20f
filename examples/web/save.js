// Pictures and their numbers as files: SVG, CSV and .safetensors. Nothing here knows of the page.

import { strength, visible } from "./draw.js";

const escapes = { "<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;" };
const escapeText = (text) => text.replace(/[<>&"]/g, (c) => escapes[c]).replace(/[\0-\x08\x0b-\x1f]/g, "\ufffd");

const svgStart = (width, height, title) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="12" fill="#1c2326">\n<title>${escapeText(title)}</title>\n<rect width="${width}" height="${height}" fill="#ffffff"/>\n`;
const svgText = (x, y, text, rest = "") => `<text x="${x}" y="${y}"${rest}>${escapeText(text)}</text>\n`;

/** A head's pattern: queries down, keys across. @param {{title: string, tokens: string[], rows: Float32Array[], colour: string}} picture */
export function patternSvg({ title, tokens, rows, colour }) {
  const cell = 16, left = 110, top = 130, n = rows.length, size = n * cell;
  let svg = svgStart(left + size + 20, top + size + 20, title) + svgText(10, 22, title, ' font-size="15" font-weight="600"');
  for (let q = 0; q < n; q++) {
    svg += svgText(left - 6, top + q * cell + 12, visible(tokens[q]), ' text-anchor="end"');
    svg += svgText(0, 0, visible(tokens[q]), ` transform="translate(${left + q * cell + 12} ${top - 6}) rotate(-60)"`);
    for (let k = 0; k <= q; k++)
      if (rows[q][k] >= 0.001) svg += `<rect x="${left + k * cell}" y="${top + q * cell}" width="${cell - 1}" height="${cell - 1}" fill="${colour}" fill-opacity="${strength(rows[q][k]).toFixed(3)}"/>\n`;
  }
  return svg + "</svg>\n";
}

/** A grid of words or numbers on tinted ground. @param {{title: string, rows: string[], columns: string[],
 *   cells: {text: string, tint: number, negative?: boolean}[][], colour: string, other: string}} picture */
export function gridSvg({ title, rows, columns, cells, colour, other }) {
  const wide = 76, high = 24, left = 120, top = 64;
  let svg = svgStart(left + columns.length * wide + 20, top + rows.length * high + 20, title) + svgText(10, 22, title, ' font-size="15" font-weight="600"');
  columns.forEach((text, c) => (svg += svgText(left + c * wide + wide / 2, top - 8, text, ' text-anchor="middle"')));
  rows.forEach((text, r) => {
    svg += svgText(left - 8, top + r * high + 16, text, ' text-anchor="end"');
    cells[r].forEach((cell, c) => {
      svg += `<rect x="${left + c * wide}" y="${top + r * high}" width="${wide - 2}" height="${high - 2}" rx="3" fill="${cell.negative ? other : colour}" fill-opacity="${(0.06 + 0.5 * cell.tint).toFixed(3)}"/>\n`;
      svg += svgText(left + c * wide + wide / 2 - 1, top + r * high + 15, cell.text.slice(0, 10), ' text-anchor="middle"');
    });
  });
  return svg + "</svg>\n";
}

/** Bars with a label before and a number behind, and a line where one was. @param {{title: string,
 *   bars: {text: string, value: number, was?: number}[], colour: string}} picture */
export function barsSvg({ title, bars, colour }) {
  let svg = svgStart(520, 44 + bars.length * 26, title) + svgText(10, 22, title, ' font-size="15" font-weight="600"');
  bars.forEach(({ text, value, was }, i) => {
    svg += svgText(110, 56 + i * 26, text, ' text-anchor="end"') + `<rect x="118" y="${43 + i * 26}" width="${(320 * value).toFixed(1)}" height="18" rx="3" fill="${colour}"/>\n`;
    if (was !== undefined) svg += `<rect x="${(117 + 320 * was).toFixed(1)}" y="${41 + i * 26}" width="2" height="22"/>\n`;
    svg += svgText(124 + 320 * Math.max(value, was ?? 0), 56 + i * 26, `${(100 * value).toFixed(1)} %`);
  });
  return svg + "</svg>\n";
}

/** A text that a spreadsheet would take for a formula gets an apostrophe before it.
 * @param {(string | number)[][]} table */
export function csv(table) {
  const plain = (x) => (/^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r]/.test(x) ? `'${x}` : x), quoted = (x) => (/[",\n\r]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x);
  const word = (x) => (typeof x === "number" ? String(x) : quoted(plain(x)));
  return table.map((row) => row.map(word).join(",") + "\n").join("");
}

/** Tensors of floats as the bytes of a .safetensors file, which begins with the size of a JSON object that
 * describes them; `texts` goes into its metadata.
 * @param {Record<string, {shape: number[], data: Float32Array}>} tensors @param {Record<string, string>} texts */
export function safetensors(tensors, texts) {
  const header = { __metadata__: texts };
  let size = 0;
  for (const [name, { shape, data }] of Object.entries(tensors)) header[name] = { dtype: "F32", shape, data_offsets: [size, (size += 4 * data.length)] };
  const json = new TextEncoder().encode(JSON.stringify(header)), begin = 8 + 8 * Math.ceil(json.length / 8);
  const file = new Uint8Array(begin + size).fill(32, 8, begin), view = new DataView(file.buffer);
  view.setBigUint64(0, BigInt(begin - 8), true);
  file.set(json, 8);
  let at = begin;
  for (const { data } of Object.values(tensors)) for (const x of data) view.setFloat32(at, x, true), (at += 4);
  return file;
}

// Pictures: on canvases while a text grows, as SVG and as CSV to be saved. Nothing here knows of the
// page. A weight of 0 to 1 is drawn as its square root, so that small ones can be seen.

export const strength = (weight) => Math.sqrt(Math.max(0, Math.min(1, weight)));

const escapes = { "<": "&lt;", ">": "&gt;", "&": "&amp;", '"': "&quot;" };
export const escapeText = (text) => text.replace(/[<>&"]/g, (c) => escapes[c]).replace(/[\0-\x08\x0b-\x1f]/g, "\ufffd");

/** A token as people can see it: spaces and line ends have a sign. */
export const visible = (text) => text.replace(/\n/g, "⏎").replace(/^ /, "·") || "∅";

/** @param {string} colour "#rrggbb" @returns {number[]} */
export const rgbOf = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

/** Paints rows [first, n) of a pattern, a pixel a weight. rowOf(q) has q + 1 weights.
 * @param {HTMLCanvasElement} canvas @param {(q: number) => Float32Array} rowOf
 * @param {number} first @param {number} n @param {number[]} rgb */
export function paintRows(canvas, rowOf, first, n, rgb) {
  const side = Math.min(256, Math.max(16, 2 ** Math.ceil(Math.log2(n || 1))));
  if (canvas.width !== side) canvas.width = canvas.height = side, (first = 0);
  if (n <= first) return;
  const context = canvas.getContext("2d"), image = context.createImageData(side, n - first);
  for (let q = first; q < n; q++) {
    const row = rowOf(q);
    for (let k = 0, at = (q - first) * side * 4; k <= q; k++, at += 4) {
      image.data[at] = rgb[0];
      image.data[at + 1] = rgb[1];
      image.data[at + 2] = rgb[2];
      image.data[at + 3] = 10 + 245 * strength(row[k]);
    }
  }
  context.putImageData(image, 0, first);
}

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

/** Bars with a label before and a number behind. @param {{title: string, bars: {text: string, value: number}[], colour: string}} picture */
export function barsSvg({ title, bars, colour }) {
  let svg = svgStart(520, 44 + bars.length * 26, title) + svgText(10, 22, title, ' font-size="15" font-weight="600"');
  bars.forEach(({ text, value }, i) => {
    svg += svgText(110, 56 + i * 26, text, ' text-anchor="end"') + `<rect x="118" y="${43 + i * 26}" width="${(320 * value).toFixed(1)}" height="18" rx="3" fill="${colour}"/>\n`;
    svg += svgText(124 + 320 * value, 56 + i * 26, `${(100 * value).toFixed(1)} %`);
  });
  return svg + "</svg>\n";
}

/** @param {(string | number)[][]} table */
export function csv(table) {
  const word = (x) => (typeof x === "number" ? String(x) : /[",\n\r]/.test(x) || /^[=+\-@\t]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x);
  return table.map((row) => row.map(word).join(",") + "\n").join("");
}

// The way of one token through the model, with the numbers of this text: embedding, one head's query
// and keys, their products, softmax, value, MLP, logits. Each station is a button that opens its numbers.

import { colours, make, percent, visible } from "./draw.js";

/** Numbers as a strip of cells, tinted by their size: the accent colour for positive ones. */
function strip(numbers) {
  const canvas = make("canvas", { width: numbers.length, height: 1, "aria-hidden": "true" }), pen = canvas.getContext("2d"), { rgb } = colours();
  const most = numbers.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9), image = pen.createImageData(numbers.length, 1);
  numbers.forEach((x, i) => image.data.set([...(x < 0 ? [150, 104, 40] : rgb), 20 + 235 * Math.min(1, Math.abs(x) / most)], 4 * i));
  pen.putImageData(image, 0, 0);
  return canvas;
}
const short = (x) => x.toFixed(3).replace("-", "−");

/** @typedef {{name: string, numbers: Float32Array, short: string, says: string, of?: string[]}} Station
 *   `of`: what each number belongs to, if that has a name */

/** @param {object} flow what the worker says of one token @param {string[]} texts of the tokens
 * @param {{text: string, value: number}[]} bars the likeliest next tokens @returns {Station[]} */
function stationsOf({ position, layer, head, embedding, query, scores, pattern, value, mlp, neurons }, texts, bars) {
  const token = `“${texts[position]}”`, place = `layer ${layer}, head ${head}`, most = pattern.indexOf(pattern.reduce((a, b) => Math.max(a, b), -Infinity));
  return [
    { name: "Embedding", numbers: embedding, short: token, says: `Token ${position}, ${token}, becomes ${embedding.length} numbers: the row of its id in a table, plus the row of its position in another.` },
    { name: "Query", numbers: query, short: place, says: `In ${place}, the stream of ${token} times a matrix is its query: ${query.length} numbers that say what it looks for. Each token before it has a key of as many.` },
    { name: "Query · keys", numbers: scores, of: texts, short: `${scores.length} scores`, says: `The query times the key of each token up to ${token}, divided by √${query.length}: how well they fit.` },
    { name: "Softmax", numbers: pattern, of: texts, short: `${texts[most]} ${percent(pattern[most])}`, says: `Softmax makes weights of the scores: all positive, together 1. The largest is that of “${texts[most]}”.` },
    { name: "Values", numbers: value, short: "their average", says: `Each token also has a value of ${value.length} numbers. The average of the values by these weights is what ${place} brings; another matrix adds it to the stream.` },
    { name: "MLP", numbers: mlp, short: `${neurons.filter((x) => x > 0.1).length} of ${neurons.length} active`, says: `The MLP of layer ${layer} has ${neurons.length} neurons, each of which answers to a direction of the stream. What they add to the stream are these ${mlp.length} numbers. Then comes the next layer.` },
    { name: "Logits", numbers: Float32Array.from(bars, (b) => b.value), of: bars.map((b) => visible(b.text)), short: bars.length ? `${visible(bars[0].text)} ${percent(bars[0].value)}` : "", says: `The last stream times the table of tokens gives a logit for each; softmax makes chances of them. These are the likeliest tokens after ${token}.` },
  ];
}

let opened = -1, showOpened = () => {}; // the station whose numbers are open
/** Opens a station's numbers, with the station in sight of its list; -1: closes them. */
export function openStation(i) {
  opened = i;
  showOpened(true);
}
/** Draws the stations into a list, and the numbers of one below it. */
export function drawFlow(list, panel, flow, texts, bars) {
  const stations = flow ? stationsOf(flow, texts, bars) : [], focus = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  const show = (isFound = false) => {
    const station = stations[opened];
    panel.hidden = !station;
    if (station && isFound) list.scrollLeft = list.children[opened].offsetLeft - list.offsetLeft - 24;
    [...list.querySelectorAll("button")].forEach((button, i) => button.setAttribute("aria-expanded", i === opened));
    if (!station) return;
    const numbers = [...station.numbers].map((x, i) => make("span", {}, ...(station.of ? [make("b", { textContent: `${station.of[i]} ` })] : []), short(x)));
    panel.replaceChildren(make("p", { textContent: station.says }), make("div", { className: "numbers", tabIndex: 0, role: "region", "aria-label": `${station.name}: numbers` }, ...numbers));
  };
  list.replaceChildren(...stations.map((station, i) => {
    const button = make("button", { type: "button", "aria-expanded": "false" }, make("span", { className: "name", textContent: station.name }), strip(station.numbers), make("span", { className: "small", textContent: station.short }));
    button.onclick = () => {
      opened = opened === i ? -1 : i;
      show();
    };
    return make("li", {}, button);
  }));
  showOpened = show;
  show();
  if (focus >= 0) list.querySelectorAll("button")[focus]?.focus({ preventScroll: true });
}

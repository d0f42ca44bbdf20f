// The way of one token through the model, with the numbers of this text: the stream from layer to layer, and one layer
// in steps, as one of its heads sees it. Each station is a button that opens its numbers, and what they are the sum of.

import { colours, hideTip, make, percent, placeTip, quote, visible } from "./draw.js";

/** The tints of numbers, one a pixel: the accent colour for positive ones. */
function tints(numbers, width) {
  const canvas = make("canvas", { width, height: numbers.length / width }), pen = canvas.getContext("2d"), { rgb } = colours();
  const most = numbers.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9), image = pen.createImageData(width, canvas.height);
  numbers.forEach((x, i) => image.data.set([...(x < 0 ? [150, 104, 40] : rgb), 20 + 235 * Math.min(1, Math.abs(x) / most)], 4 * i));
  pen.putImageData(image, 0, 0);
  return canvas;
}
/** Numbers as a strip of cells. */
function strip(numbers, width = numbers.length) {
  const canvas = tints(numbers, width);
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}
const short = (x) => x.toFixed(3).replace("-", "−");
/** Each number of one list with that of the others. */
const sumOf = (first, ...others) => first.map((x, i) => others.reduce((sum, other) => sum + other[i], x));
const less = (first, ...others) => first.map((x, i) => others.reduce((rest, other) => rest - other[i], x));

/** @typedef {{name: string, numbers: Float32Array, sign?: string}} Term
 *   `sign`: "+" is added to the terms before, "=" is their sum, "→" is made of it otherwise
 * @typedef {{name: string, data: Float32Array, of: string, by: Float32Array, to: string, makes: Float32Array}} Matrix
 *   a row for each number of `by`, a column for each that it `makes`
 * @typedef {{key: string, name: string, terms: Term[], short: string, says: string, of?: string[], layer?: number, matrix?: Matrix}} Station
 *   the last term is what the station gives; `of`: what each number belongs to, if that has a name */

const term = (sign, name, numbers) => ({ sign, name, numbers });
/** A term that is there under a condition. */
const termIf = (condition, name, numbers) => (condition ? [term("+", name, numbers)] : []);

/** @returns {Station} */
function layerNorm(key, { scale, normalized, weight, bias, out }, stream, whose) {
  const mean = stream.reduce((a, b) => a + b, 0) / stream.length;
  return {
    key, name: "LayerNorm", short: `scale ${scale.toFixed(2)}`,
    says: `LayerNorm takes their mean, ${short(mean)}, from the numbers of the stream and divides them by their scale, ${short(scale)}; ${whose} multiplies each by a weight and adds a bias.`,
    terms: [term("", "normalized stream × weight", normalized.map((x, i) => x * weight[i])), term("+", "bias", bias), term("=", "LayerNorm’s output", out)],
  };
}

/** The stream: the embedding, what each layer adds, the last LayerNorm, the logits.
 * @param {object} flow what the worker says of one token @param {string[]} texts of the tokens
 * @param {({text: string, probability: number} | undefined)[]} guesses what the lens reads of the streams @returns {Station[]} */
function pathOf({ position, changedStreams, token, positions, embedding, pre, attention, mlp, post, last, likeliest }, texts, guesses) {
  const name = `“${texts[position]}”`, width = embedding.length, guess = (i) => (guesses[i] ? `${quote(guesses[i].text)} ${percent(guesses[i].probability)}` : "");
  return [
    {
      key: "embedding", name: "Embedding", short: name, says: `Token ${position}, ${name}, becomes a stream of ${width} numbers: the row of its id in a table, W_E, plus the row of its position in another, W_pos.`,
      terms: [term("", "token’s row", token), term("+", "position’s row", positions), term("=", "stream", embedding)],
    },
    ...post.map((after, layer) => {
      const before = layer ? post[layer - 1] : embedding;
      return {
        key: `layer ${layer}`, layer, name: `Layer ${layer}`, short: guess(layer + 1), says: `Layer ${layer} adds twice to the stream of ${name}: first what its heads bring from the tokens before, then what its MLP makes of that.${guess(layer + 1) ? ` If the model ended here it would say ${guess(layer + 1)}.` : ""}`,
        terms: [term("", "stream before", before), ...termIf(changedStreams.includes(layer), "your change", less(pre[layer], before)), term("+", "attention", attention[layer]), term("+", "MLP", mlp[layer]), term("=", "stream after", after)],
      };
    }),
    layerNorm("last", last, post.at(-1), "the last LayerNorm of the model"),
    {
      key: "logits", name: "Logits", short: likeliest.length ? `${quote(likeliest[0].text)} ${percent(likeliest[0].probability)}` : "", of: likeliest.map(({ text }) => visible(text)),
      says: `The last LayerNorm’s output times the column of each token in a table, W_U, is its logit; softmax makes chances of all logits. These are the likeliest tokens after ${name}.`,
      terms: [term("", "logit", Float32Array.from(likeliest, (b) => b.logit)), term("→", "chance", Float32Array.from(likeliest, (b) => b.probability))],
    },
  ];
}

const MOST_TOKENS = 3;
/** What the values of the tokens bring: the sum of the values of those with the largest weights, and of the others. */
function valueTerms({ pattern, values, value, isHeadChanged }, texts) {
  const width = value.length, weighed = (t) => value.map((_, i) => pattern[t] * values[t * width + i]);
  const ranked = [...pattern.keys()].sort((a, b) => pattern[b] - pattern[a]), rest = ranked.slice(MOST_TOKENS).map(weighed), most = ranked.slice(0, MOST_TOKENS).map(weighed);
  const others = rest.length ? sumOf(...rest) : value.map(() => 0);
  return [
    ...most.map((numbers, i) => term(i ? "+" : "", `${pattern[ranked[i]].toFixed(3)} × value of “${texts[ranked[i]]}”`, numbers)),
    ...termIf(rest.length > 0, "the other tokens", others), ...termIf(isHeadChanged, "your change", less(value, ...most, others)), term("=", "average", value),
  ];
}
/** Query · key of each token up to this one. */
const products = ({ query, keys, scores }) => scores.map((_, t) => query.reduce((sum, x, i) => sum + x * keys[t * query.length + i], 0));

/** One layer in steps, as one of its heads sees it. @returns {Station[]} */
function stepsOf(flow, texts) {
  const { position, layer, head, nHead, pre, attention, mlp, post, ln1, ln2, query, bQ, scores, pattern, value, result, bO, middle, hidden, bIn, neurons, bOut, WQ, WO } = flow;
  const token = `“${texts[position]}”`, most = pattern.indexOf(pattern.reduce((a, b) => Math.max(a, b), -Infinity)), others = less(attention[layer], result, bO), d = query.length;
  return [
    layerNorm("ln1", ln1, pre[layer], "then it"),
    {
      key: "query", name: "Query", short: `${d} numbers`, says: `LayerNorm’s output times the matrix W_Q of the head, plus a bias b_Q, is its query: ${d} numbers that say what it looks for. Each token up to ${token} has a key of as many, and a value, by matrices and biases of their own.`,
      terms: [term("", "LayerNorm’s output · W_Q", less(query, bQ)), term("+", "b_Q", bQ), term("=", "query", query)],
      matrix: { name: "W_Q", data: WQ, of: "LayerNorm’s output", by: ln1.out, to: "the query", makes: query, plus: "with b_Q" },
    },
    {
      key: "scores", name: "Scores", of: texts, short: `${scores.length} tokens`, says: `The query times the key of each token up to ${token}, divided by √${d}: how well they fit.`,
      terms: [term("", "query · key", products(flow)), term("→", `over √${d}`, scores)],
    },
    {
      key: "softmax", name: "Softmax", of: texts, short: `“${texts[most]}” ${percent(pattern[most])}`, says: `Softmax makes weights of the scores: all positive, together 1. The largest is that of “${texts[most]}”.`,
      terms: [term("", "score", scores), term("→", "weight", pattern)],
    },
    { key: "values", name: "Values", short: `${d} numbers`, says: `Each token has a value of ${d} numbers. The head takes their average by these weights, and calls it z.`, terms: valueTerms(flow, texts) },
    {
      key: "heads", name: "+ Heads", short: `${middle.length} numbers`, says: `The matrix W_O makes ${middle.length} numbers of the head’s average. They are added to the stream, with those of the other heads and a bias b_O.`,
      terms: [term("", "stream before", pre[layer]), term("+", `head ${head}: z · W_O`, result), ...termIf(nHead > 1, "the other heads", others), term("+", "b_O", bO), term("=", "stream between", middle)],
      matrix: { name: "W_O", data: WO, of: "z", by: value, to: "what the head adds", makes: result, plus: "" },
    },
    layerNorm("ln2", ln2, middle, "then it"),
    {
      key: "neurons", name: "Neurons", short: `${neurons.filter((x) => x > 0.1).length} active`, says: `The MLP has ${neurons.length} neurons, each of which answers to a direction: LayerNorm’s output times W_in, plus b_in. Its activation function, GELU in GPT-2, lets through what is positive.`,
      terms: [term("", "LayerNorm’s output · W_in", less(hidden, bIn)), term("+", "b_in", bIn), term("=", "before the function", hidden), term("→", "after it", neurons)],
    },
    {
      key: "mlp", name: "+ MLP", short: `${middle.length} numbers`, says: `The neurons times W_out, plus b_out, are added to the stream. Then comes ${layer + 1 < post.length ? `layer ${layer + 1}` : "the last LayerNorm"}.`,
      terms: [term("", "stream between", middle), term("+", "neurons · W_out", less(mlp[layer], bOut)), term("+", "b_out", bOut), term("=", "stream after", post[layer])],
    },
  ];
}

/** A matrix with what it multiplies beside it and what it makes below. The pointer tells of each weight. */
function drawMatrix({ name, data, of, by, to, makes, plus }) {
  const n = makes.length, canvas = tints(data, n), sizes = `${by.length} × ${n}`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${name}, ${sizes} numbers`);
  canvas.className = "matrix";
  canvas.onpointermove = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect(), at = (x, size, count) => Math.max(0, Math.min(count - 1, Math.floor((x / size) * count)));
    const i = at(clientY - box.top, box.height, by.length), j = at(clientX - box.left, box.width, n), w = data[i * n + j];
    placeTip(clientX + 12, clientY - 10, clientY + 18, `${of}, number ${i}: ${short(by[i])}\ntimes the weight ${short(w)}: ${short(by[i] * w)}\nThe sum of ${by.length} of these${plus && ` ${plus}`} is number ${j} of ${to}: ${short(makes[j])}`);
  };
  canvas.onpointerleave = hideTip;
  const figure = make("figure", {}, strip(by, 1), canvas, make("span"), strip(makes), make("figcaption", { className: "small", textContent: `${name}, ${sizes} numbers: ${of} at the left, ${to} below${plus && `, ${plus}`}.` }));
  figure.style.setProperty("--wide", `${6 * n}px`);
  return figure;
}

const FIRST = 24; // numbers; the others come with a click
let opened = "", isAll = false, showOpened = () => {}; // the key of the station whose numbers are open; all of them
/** Opens a station's numbers, with the station in sight of its list; "": closes them. */
export function openStation(key) {
  opened = key;
  showOpened(true);
}
/** The numbers of a station, each below those that it is made of. */
function drawNumbers({ name, terms, says, of, matrix }) {
  const n = terms.at(-1).numbers.length, shown = isAll ? n : Math.min(n, FIRST), line = ({ sign, numbers }, i) => (sign === "+" && numbers[i] < 0 ? `− ${short(-numbers[i])}` : `${sign} ${short(numbers[i])}`.trim());
  const columns = Array.from({ length: shown }, (_, i) => make("span", { role: "listitem" }, make("b", { textContent: of ? of[i] : i }), ...terms.map((t) => make("span", { textContent: line(t, i) }))));
  const all = make("button", { type: "button", className: "plain", textContent: isAll ? `The first ${FIRST} alone` : `All ${n} numbers` });
  return [
    make("p", { textContent: says }), ...(matrix ? [drawMatrix(matrix)] : []),
    make("p", { className: "sum", textContent: `From top to bottom, rounded: ${terms.map((t) => `${t.sign} ${t.name}`.trim()).join(" ")}` }),
    make("div", { className: "numbers", role: "list", "aria-label": `${name}: numbers` }, ...columns), ...(n > FIRST ? [all] : []),
  ];
}
/** Draws the stations into two lists, and the numbers of one below them.
 * @param {{path: HTMLElement, steps: HTMLElement, title: HTMLElement, panel: HTMLElement}} place
 * @param {object | null} flow what the worker says of one token @param {string[]} texts of the tokens @param {object[]} guesses
 * @param {(layer: number) => void} pickLayer */
export function drawFlow({ path, steps, title, panel }, flow, texts, guesses, pickLayer) {
  const lists = flow ? [pathOf(flow, texts, guesses), stepsOf(flow, texts)] : [[], []], all = lists.flat(), buttons = new Map(), focus = document.activeElement.dataset.station;
  const show = (isFound = false) => {
    const station = all.find(({ key }) => key === opened), button = buttons.get(opened);
    panel.hidden = !station;
    buttons.forEach((b, key) => b.setAttribute("aria-expanded", key === opened));
    if (!station) return panel.replaceChildren();
    const list = button.closest("ol");
    if (isFound) list.scrollLeft = button.parentElement.offsetLeft - list.offsetLeft - 24;
    panel.replaceChildren(...drawNumbers(station));
    const more = panel.querySelector("button");
    if (more) more.onclick = () => {
      isAll = !isAll;
      show();
      panel.querySelector("button").focus();
    };
  };
  const toButton = ({ key, name, terms, short: says, layer }) => {
    const button = make("button", { type: "button", "aria-expanded": "false" }, make("span", { className: "name", textContent: name }), strip(terms.at(-1).numbers), make("span", { className: "small", textContent: says }));
    button.dataset.station = key;
    if (layer !== undefined) button.setAttribute("aria-current", layer === flow.layer);
    button.onclick = () => {
      opened = opened === key ? "" : key;
      show();
      if (layer !== undefined && layer !== flow.layer) pickLayer(layer);
    };
    buttons.set(key, button);
    return make("li", {}, button);
  };
  [path, steps].forEach((list, i) => list.replaceChildren(...lists[i].map(toButton)));
  title.textContent = flow ? `Layer ${flow.layer} in steps, with head ${flow.head}` : "";
  showOpened = show;
  show();
  buttons.get(focus)?.focus({ preventScroll: true });
}

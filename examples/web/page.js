// The page: its state, what it shows, what the reader does. Everything that takes time is the
// worker's; what it sends is drawn at the next frame.

import { describe, fromHash, isSamePlace, toC, toHash, toLens } from "./changes.js";
import { Heads, Large, arrows, forgetColours, make, makeCell, makeTable, nameOfHead, percent, sayAttention, shorten, showTips, visible } from "./draw.js";
import { barsSvg, csv, gridSvg, patternSvg, safetensors } from "./save.js";
import { steps } from "./tour.js";

const $ = (id) => document.getElementById(id);
let state = fromHash(location.hash), config = null, isBusy = false;
let tokens = [], logits = null, plain = null; // of the text as it stands; plain: without the changes
let chosen = null, head = [0, 0], cell = null; // the token, head and cell of the lens that were picked
let past = [], future = []; // lists of changes, for undo and redo
let parts = null;
let heads = null, large = null; // the small pictures, with their buttons, layer by layer; one of them, large
let words = []; // the model's tokens
let typing = 0; // the timer that waits for the end of typing
let madeFrom = Infinity; // the first token that the model wrote
let modelFile = "build/tiny-stories.attn"; // in what is copied
let next = null; // what is written when the writing under way has been interrupted: {} for the rest of it, or {ids, length}

// ---- the worker ----

const worker = new Worker(URL.createObjectURL(new Blob([$("data-worker").textContent], { type: "text/javascript" })));
const waiting = new Map();
let counter = 0;

function ask(task, data = {}) {
  const run = ++counter;
  return new Promise((resolve, reject) => {
    waiting.set(run, { resolve, reject, onTokens: data.onTokens, onProgress: data.onProgress, isKept: task === "open" || task === "generate" });
    delete data.onTokens, delete data.onProgress;
    worker.postMessage({ task, run, ...data });
  });
}
function stopAll() {
  worker.postMessage({ task: "stop", run: counter });
  for (const [run, { reject, isKept }] of waiting) if (!isKept) waiting.delete(run), reject(new Stopped());
}
class Stopped extends Error {}

worker.onmessage = ({ data }) => {
  const asked = waiting.get(data.run);
  if (!asked) return;
  if (data.made) return asked.onTokens(data);
  if (data.progress !== undefined) return asked.onProgress?.(data.progress);
  waiting.delete(data.run);
  if (data.isStopped) asked.reject(new Stopped());
  else data.error ? asked.reject(Object.assign(new Error(data.error), { change: data.change })) : asked.resolve(data.answer);
};
worker.onerror = (event) => complain(new Error(event.message));

function complain(error) {
  if (!(error instanceof Stopped)) $("problem").textContent = error.message;
}

/** Opens a model: base64 of a .attn file, such a File, or the Files of a checkpoint. */
async function open(source, name) {
  $("status").textContent = `Loading ${name} …`;
  stopAll();
  const modules = Object.fromEntries(["plain", "simd", "relaxed", "convert"].map((v) => [v, $(`data-${v}`).textContent]));
  const answer = await ask("open", { ...(Array.isArray(source) ? { files: source } : { source }), modules, onProgress: (done) => ($("status").textContent = `Loading ${name}: ${percent(done)}`) });
  config = answer.config;
  words = answer.words;
  $("length").max = answer.capacity;
  tokens = [];
  logits = plain = parts = chosen = cell = null;
  const changes = state.changes.filter((c) => c.layer < config.nLayer && (c.head ?? 0) < config.nHead), isFewer = changes.length < state.changes.length;
  if (isFewer) {
    state.changes = changes;
    past = [], future = [];
    keepInAddress();
  }
  head = [Math.min(head[0], config.nLayer - 1), Math.min(head[1], config.nHead - 1)];
  $("status").textContent = `${config.nLayer} layers of ${config.nHead} heads.`;
  modelFile = typeof source === "string" ? modelFile : source.name ?? "MODEL.attn";
  $("model-name").textContent = typeof source === "string" ? "A small GPT-2" : name;
  $("about-model").textContent = `Open now: ${name}, ${config.nLayer} layers of ${config.nHead} heads, width ${config.dModel}, ${config.nVocab} tokens. Kernels: ${answer.isa}.`;
  makeHeads();
  $("steer-layer").replaceChildren(...Array.from({ length: config.nLayer }, (_, i) => make("option", { value: i, textContent: i, selected: i === config.nLayer >> 1 })));
  await refresh();
  if (isFewer) complain(new Error("Changes of layers or heads that this model does not have were taken away."));
}

/** Runs the text, or these ids, with the changes. Whether that went well. @param {boolean} goesOn it will grow at once */
async function refresh(ids, goesOn = false) {
  if (!config) return false;
  stopAll();
  if (!ids) madeFrom = Infinity;
  $("problem").textContent = $("speed").textContent = "";
  try {
    const answer = await ask("show", { state: { ...state }, ids });
    ({ logits, plain = null } = answer);
    tokens = answer.tokens;
    chosen = chosen !== null && chosen < tokens.length ? chosen : null;
    draw();
    if (!goesOn) await afterwards();
    return true;
  } catch (error) {
    if (error.change !== undefined) return takeAway(error, ids, goesOn);
    if (!(error instanceof Stopped)) {
      tokens = [];
      logits = plain = parts = null;
      draw();
    }
    complain(error);
    return false;
  }
}
/** A change that cannot be applied leaves the list. */
async function takeAway(error, ids, goesOn) {
  const bad = state.changes[error.change];
  state.changes = state.changes.filter((c) => c !== bad);
  keepInAddress();
  const isDone = await refresh(ids, goesOn);
  complain(new Error(`“${describe(bad)}” was taken away: ${error.message}`));
  return isDone;
}

/** What is made once the text stands: the shares of the parts, and then the lens of a large model. */
async function afterwards() {
  if (!tokens.length) return draw();
  const at = chosen === null || chosen === 0 ? tokens.length - 1 : chosen - 1;
  const token = chosen === null || chosen === 0 ? largest(logits, 1)[0] : tokens[chosen].id;
  parts = await ask("explain", { position: at, token });
  draw();
  if (!tokens.at(-1).lens) fillLens().catch(complain);
}
/** The lens of a large model comes a few columns at a time. */
async function fillLens() {
  const list = tokens;
  for (let i = Math.max(0, list.length - MOST_COLUMNS); i < list.length && list === tokens; draw(true)) {
    const columns = await ask("lens", { first: i });
    for (const column of columns) list[i++].lens = column;
  }
}

/** Writes after the prompt, or after these ids. @param {number[]} [ids] @param {number} [length] tokens */
async function generate(ids, length = state.length) {
  if (!config) return;
  if (isBusy) return interrupt({ ids, length });
  $("problem").textContent = "";
  $("speed").textContent = "";
  setBusy(true);
  const asked = JSON.stringify([state.text, state.changes]);
  let from = null;
  try {
    if (!(await refresh(ids, true))) return;
    from = tokens.length;
    madeFrom = Math.min(madeFrom, ids ? from - 1 : from);
    if (!from) throw new Error("Write a prompt first: the model goes on with it.");
    chosen = null;
    const answer = await ask("generate", { state: { ...state, length }, onTokens: (message) => {
      tokens.push(...message.made);
      logits = message.logits;
      plain = null;
      draw(true);
    } });
    plain = answer.plain;
    $("speed").textContent = tokens.length > from ? `${tokens.length - from} tokens, ${Math.round(answer.speed)} a second` : "";
    large.reveal(tokens.length - 1, tokens.length - 1);
    if (answer.full) $("problem").textContent = `The text has ${tokens.length} tokens, which is all there is room for.`;
    if (!next) await afterwards();
  } catch (error) {
    complain(error);
  } finally {
    setBusy(false);
    draw();
    const here = from === null ? ids : tokens.map((t) => t.id), left = from === null ? length : length - (tokens.length - from), then = next;
    next = null;
    if (JSON.parse(asked)[0] !== state.text) refresh();
    else if (then?.length) generate(then.ids, then.length);
    else if (then && left > 0) generate(here, left);
    else if (asked !== JSON.stringify([state.text, state.changes])) refresh(here);
  }
}
function interrupt(then = {}) {
  next = then;
  stopAll();
}
function setBusy(busy) {
  const [from, to] = busy ? [$("generate"), $("stop")] : [$("stop"), $("generate")], hasFocus = document.activeElement === from;
  isBusy = busy;
  document.body.classList.toggle("writing", busy);
  to.disabled = false;
  if (hasFocus) to.focus({ preventScroll: true });
  from.disabled = true;
}

// ---- drawing ----

// A frame draws what it has time for, the part of the page first that is most overdue. While the model writes it draws
// one part alone, of those that are visible or changed by the reader and whose pause is over; so each is a few frames behind.
const PARTS = [
  { place: "text", draw: drawText, every: 45 },
  { place: "next", draw: drawNext, every: 80 },
  { place: "heads", draw: drawHeads, every: 80 },
  { place: "large", draw: drawLarge, every: 100 },
  { place: "part-lens", draw: drawLens, every: 80 },
  { place: "parts", draw: drawParts, every: 150, isStill: true }, // tokens that are added change nothing in it
  { place: "changes", draw: drawChanges, every: 150, isStill: true },
].map((part) => ({ ...part, drawn: 0, isBehind: false, isWhole: false, isSeen: true }));
const sight = new IntersectionObserver((list) => {
  for (const { target, isIntersecting } of list) PARTS.find(({ place }) => place === target.id).isSeen = isIntersecting;
  if (PARTS.some(({ isSeen, isBehind }) => isSeen && isBehind)) awaitFrame();
});
for (const { place } of PARTS) if (place !== "text") sight.observe($(place)); // the text is read aloud, seen or not
let isDue = false;
let lastFrame = 0, patience = 1; // the parts rest so many times as long: more where frames come late
/** Draws everything anew, or only what added tokens or moved sliders change. */
function draw(isGrowing = false) {
  for (const part of PARTS) {
    part.isBehind ||= !(isGrowing && part.isStill);
    part.isWhole ||= !isGrowing;
  }
  awaitFrame();
}
function awaitFrame() {
  if (!isDue) requestAnimationFrame(drawFrame);
  isDue = true;
}
function drawFrame() {
  const now = performance.now(), overdue = ({ drawn, every }) => now - drawn - patience * every;
  isDue = false;
  if (isBusy) patience = Math.min(4, Math.max(1, patience * (now - lastFrame > 25 ? 1.3 : 0.99)));
  lastFrame = now;
  const behind = PARTS.filter(({ isSeen, isBehind, isWhole }) => isBehind && (isSeen || isWhole || !isBusy)).sort((a, b) => overdue(b) - overdue(a));
  for (const part of behind) {
    if (isBusy ? overdue(part) < 0 || part !== behind[0] : performance.now() > now + 8) break;
    part.drawn = now;
    part.isBehind = part.draw(part.isWhole) === true; // it has more to draw
    part.isWhole = false;
  }
  if (behind.some(({ isBehind }) => isBehind)) awaitFrame();
}

function drawText(isWhole) {
  const box = $("text");
  while (box.children.length > tokens.length) box.lastChild.remove();
  for (let i = isWhole ? 0 : box.children.length; i < tokens.length; i++) {
    const { text, probability, alternatives } = tokens[i];
    let element = box.children[i];
    if (!element) {
      element = make("span", { role: "button" }); // a button would not break with its line
      element.dataset.i = i;
      box.append(element);
    }
    setText(element, text);
    const surprise = probability === null ? "0" : (0.4 * Math.min(1, -Math.log(probability) / 7)).toFixed(3);
    if (element.style.getPropertyValue("--surprise") !== surprise) element.style.setProperty("--surprise", surprise);
    setAttributes(element, {
      class: i >= madeFrom ? "token made" : "token",
      tabindex: i === (chosen ?? 0) ? 0 : -1,
      "aria-pressed": chosen === i,
      "data-tip": probability === null ? "the first token" : `${percent(probability)}; instead: ${alternatives.map((a) => `${visible(a.text)} ${percent(a.probability)}`).join(", ")}`,
    });
  }
  drawChoice();
  if (isBusy) box.scrollTop = 1e6;
}

function drawChoice() {
  const token = chosen === null ? null : tokens[chosen];
  $("choice").hidden = !token?.alternatives;
  if (!token?.alternatives) return;
  $("choice-title").textContent = `Token ${chosen}: “${visible(token.text)}”, ${percent(token.probability)}`;
  $("alternatives").replaceChildren(...token.alternatives.flatMap((a) => {
    const button = make("button", { type: "button", className: "word", textContent: visible(a.text) });
    button.onclick = () => {
      const before = tokens.slice(0, chosen), text = [...before, a].map((t) => t.text).join("");
      if (!/<[0-9a-f]{2}>|\ufffd/.test(a.text)) $("prompt").value = state.text = text;
      keepInAddress();
      generate([...before.map((t) => t.id), a.id]);
    };
    return [button, bar(a.probability), make("span", { className: "value", textContent: percent(a.probability) })];
  }));
}

const SVG = "http://www.w3.org/2000/svg";
const setAttributes = (element, values) => Object.entries(values).forEach(([key, value]) => element.getAttribute(key) !== String(value) && element.setAttribute(key, value));
/** A bar for a share, in `svg` if that is one; a line marks where it was. */
function bar(share, was, svg = document.createElementNS(SVG, "svg")) {
  setAttributes(svg, { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  const rect = (i, values) => setAttributes(svg.children[i] ?? svg.appendChild(document.createElementNS(SVG, "rect")), { ...values, y: 0, height: 10, "vector-effect": "non-scaling-stroke" });
  rect(0, { class: "fill", x: 0, width: Math.max(0.3, 100 * share).toFixed(2) });
  if (was !== undefined) rect(1, { class: "was", x: Math.min(99.7, 100 * was).toFixed(2), width: 0.01 });
  else svg.children[1]?.remove();
  return svg;
}
/** Changes a text if it is another: whatever is written makes the browser lay out the page anew. */
const setText = (element, text) => element.textContent !== text && (element.textContent = text);

const MOST_BARS = 8;
/** The ids of the k largest, the largest first, and of equal ones the first. */
function largest(x, k) {
  const ids = [];
  for (let id = 0; id < x.length; id++) {
    if (ids.length === k && x[id] <= x[ids[k - 1]]) continue;
    let place = ids.length;
    while (place > 0 && x[ids[place - 1]] < x[id]) place--;
    ids.splice(place, 0, id);
    ids.length = Math.min(ids.length, k);
  }
  return ids;
}
/** The next token under the sliders, temperature, then top-k, then top-p: the likeliest ids, and the chance of any. */
function chances(x, { temperature, topK, topP }) {
  const total = (list) => list.reduce((a, b) => a + b, 0), t = temperature || 1, isCut = temperature && topK, most = x[largest(x, 1)[0]];
  const p = new Float64Array(x).map((value) => Math.exp((value - most) / t)), ids = largest(p, isCut ? topK : MOST_BARS);
  let kept = isCut ? Float64Array.from(ids, (id) => p[id]) : p, sum = total(kept);
  if (temperature && topP < 1) {
    if (!isCut) kept = kept.slice().sort().reverse();
    let n = 0;
    for (let reached = 0; n < kept.length && reached < topP * sum; n++) reached += kept[n];
    kept = kept.subarray(0, Math.max(1, n));
    sum = total(kept);
  }
  const least = kept === p ? 0 : kept.at(-1);
  return { ids: ids.slice(0, Math.min(kept.length, MOST_BARS)), chanceOf: (id) => (p[id] >= least ? p[id] / sum : 0) };
}
let shownNext = [];
function drawNext() {
  if (!logits) return void $("next").replaceChildren();
  const now = chances(logits, state), before = plain && chances(plain, state);
  shownNext = now.ids.map((id) => ({ id, text: words[id], value: now.chanceOf(id), was: before?.chanceOf(id) }));
  const box = $("next");
  while (box.children.length > 3 * shownNext.length) box.lastChild.remove();
  shownNext.forEach((b, i) => {
    if (!box.children[3 * i]) box.append(make("span", { className: "word" }), bar(0), make("span", { className: "value" }));
    const [word, svg, value] = [0, 1, 2].map((j) => box.children[3 * i + j]);
    setText(word, visible(b.text));
    bar(b.value, b.was, svg);
    setText(value, percent(b.value));
  });
  setText($("next-note"), (state.temperature ? "Drawn from these." : "Temperature 0: the first of these is taken.") + (before ? " A line marks where a bar ended without the changes." : ""));
}

function changeColours() {
  forgetColours();
  heads?.clear();
  draw();
}

/** The weight that a query of a head gives to a key. */
const weightOf = (layer, h) => (q, k) => tokens[q].attention[(layer * config.nHead + h) * (q + 1) + k];
const rowsOfHead = (layer, h) => tokens.map(({ attention }, q) => attention.subarray((layer * config.nHead + h) * (q + 1), (layer * config.nHead + h + 1) * (q + 1)));

/** Layer and head of a small picture. */
const placeOf = (i) => [Math.floor(i / config.nHead), i % config.nHead];
function makeHeads() {
  const places = Array.from({ length: config.nLayer * config.nHead }, (_, i) => placeOf(i));
  heads = new Heads($("heads"), places, config.nHead, places.map((place) => weightOf(...place)));
}

let paintedTokens = null; // the list that the small pictures show
/** Paints what the small pictures lack, for a few milliseconds; returns true if there is more.
 * While the text grows they have room for more rows, and so keep their size for a while. */
function drawHeads(isWhole) {
  if (!config) return false;
  if (isWhole) markHeads();
  if (paintedTokens !== tokens) heads.clear(tokens.length > 0);
  paintedTokens = tokens;
  const n = tokens.length;
  return !heads.paint(n, isBusy ? 16 * Math.ceil(n / 16) : n, isBusy ? 2 : 6);
}

function markHeads() {
  heads.buttons.forEach((button, i) => {
    const [layer, h] = placeOf(i), change = state.changes.find((c) => c.layer === layer && c.head === h);
    button.classList.toggle("changed", !!change);
    button.dataset.mark = !change ? "" : change.kind === "zero" ? "off" : change.kind === "mean" ? "mean" : change.kind === "patch" ? "2nd" : `×${change.factor}`;
    button.setAttribute("aria-pressed", !!change && change.kind !== "scale");
    button.setAttribute("aria-description", change ? describe(change) : "as it is");
    button.setAttribute("aria-current", layer === head[0] && h === head[1]);
    heads.pale[i] = change?.kind === "zero";
  });
}

function drawLarge() {
  const change = state.changes.find((c) => c.layer === head[0] && c.head === head[1]);
  setText($("large-title"), nameOfHead(...head));
  $("scale").value = change?.kind === "scale" ? change.factor : change?.kind === "zero" ? 0 : 1;
  setText(document.querySelector('output[for="scale"]'), `× ${(+$("scale").value).toFixed(1)}`);
  if (!config) return;
  large.weight = weightOf(...head);
  large.canvas.setAttribute("aria-label", `attention pattern of ${nameOfHead(...head)}`);
  large.setLabels(tokens.map((t) => visible(t.text)));
  if (large.over?.q >= tokens.length) large.over = null;
  if (!large.over) large.query = tokens.length - 1;
  if (isBusy) large.reveal(tokens.length - 1, tokens.length - 1);
  else large.draw();
  say(large.query);
}
function say(q) {
  $("large-note").textContent = tokens[q] ? sayAttention(q, large.labels, (k) => large.weight(q, k)) : "";
}

const streamName = (i) => (i < config.nLayer ? `before layer ${i}` : "at the end");
const MOST_COLUMNS = 64;
let lensTokens = null, lensLeft = 0; // the list whose columns the table has, and how far that is to be scrolled
function drawLens() {
  const table = $("lens"), scroller = table.parentElement, indices = tokens.map((t, i) => (t.lens ? i : -1)).filter((i) => i >= 0).slice(-MOST_COLUMNS);
  if (!config || !tokens.length) return void table.replaceChildren();
  if (!indices.length) return; // a large model's comes later
  if (lensTokens !== tokens || !table.tHead || +table.dataset.first > indices[0] || +table.dataset.next < indices[0] || table.rows.length !== config.nLayer + 2) {
    lensLeft = scroller.scrollLeft;
    makeTable(table, { corner: "stream\\token", columns: [], rows: Array.from({ length: config.nLayer + 1 }, (_, i) => streamName(i)) });
    table.dataset.first = table.dataset.next = indices[0];
    lensTokens = tokens;
  }
  const missing = indices.filter((i) => i >= +table.dataset.next), some = missing.slice(0, isBusy ? 6 : 24);
  for (const i of some) {
    table.tHead.rows[0].append(make("th", { scope: "col", textContent: visible(tokens[i].text) }));
    tokens[i].lens.forEach((guess, layer) => {
      const button = make("button", { type: "button", textContent: shorten(visible(guess.text), 4.2), tabIndex: -1, "aria-label": `${guess.text}, ${percent(guess.probability)}, ${streamName(layer)}, token ${i}` });
      button.dataset.layer = layer;
      button.dataset.position = i;
      table.tBodies[0].rows[layer].append(makeCell(button, guess.probability, `${streamName(layer)}, token ${i}: ${visible(guess.text)} ${percent(guess.probability)}`));
    });
    table.dataset.next = i + 1;
  }
  for (const row of table.rows) while (row.cells.length > MOST_COLUMNS + 1) row.deleteCell(1);
  if (isBusy) lensLeft = 1e6;
  if (some.length) scroller.scrollLeft = lensLeft;
  if (isBusy || some.length < missing.length) return some.length < missing.length;
  for (const button of table.querySelectorAll("td button")) {
    const { layer, position } = button.dataset;
    button.classList.toggle("changed", state.changes.some((c) => c.head === undefined && c.layer === +layer && (c.position === undefined || c.position === +position)));
  }
  const first = table.querySelector("td button");
  if (first && !table.querySelector('td button[tabindex="0"]')) first.tabIndex = 0;
}

function partsTable() {
  const rows = [], { nLayer, nHead } = config, share = new Map(parts.labels.map((label, i) => [String(label), parts.shares[i]]));
  for (let layer = 0; layer < nLayer; layer++)
    rows.push({ name: String(layer), values: [...Array.from({ length: nHead }, (_, h) => share.get(`${layer},${h}`)), share.get(`${layer},mlp`), share.get(`${layer},bias`)] });
  const rest = [["embedding", share.get("embedding")], ["position", share.get("position")], ...(share.has("changes") ? [["changes", share.get("changes")]] : []), ["last bias", parts.shares.at(-1)]];
  return { columns: [...Array.from({ length: nHead }, (_, h) => String(h)), "MLP", "bias"], rows, rest, most: Math.max(...parts.shares.map(Math.abs), 1e-9), sum: parts.shares.reduce((a, b) => a + b, 0) };
}
function numberCell(x, most) {
  const cell = makeCell((Math.abs(x) < 0.005 ? 0 : x).toFixed(2).replace("-", "−"), x / most);
  cell.classList.add("number");
  return cell;
}
function drawParts() {
  const table = $("parts");
  if (!parts || !tokens.length) {
    $("parts-note").textContent = "";
    return void table.replaceChildren();
  }
  const { columns, rows, rest, most, sum } = partsTable();
  makeTable(table, { corner: "layer\\head", columns, rows: [...rows, ...rest.map(([name]) => ({ name }))].map((r) => r.name) });
  [...rows.map((r) => r.values), ...rest.map(([, x]) => [x])].forEach((values, i) => table.tBodies[0].rows[i].append(...values.map((x) => numberCell(x, most))));
  $("parts-note").textContent = `To the logit of “${visible(parts.text)}” after token ${parts.position}: ${sum.toFixed(2)} in all. The tint is the size; the accent colour adds, the other takes away.`;
}

function drawChanges() {
  const hadFocus = document.activeElement.closest("#part-changes");
  $("changes-none").hidden = state.changes.length > 0;
  $("changes").replaceChildren(...state.changes.map((c, i) => {
    const button = make("button", { type: "button", className: "plain", textContent: "remove", "aria-label": `Remove change ${i + 1}` });
    button.onclick = () => setChanges(state.changes.filter((other) => other !== c));
    return make("li", {}, describe(c, tokens.map((t) => t.text)), button);
  }));
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("clear").disabled = !state.changes.length;
  if (hadFocus && (document.activeElement === document.body || document.activeElement.disabled)) [$("undo"), $("redo")].find((b) => !b.disabled)?.focus();
  if (cell) drawCell();
}

function drawCell() {
  const [layer, position] = cell, change = state.changes.find((c) => c.kind === "stream" && c.layer === layer && c.position === position);
  $("cell").hidden = layer >= config.nLayer || position >= tokens.length;
  if ($("cell").hidden) return;
  $("cell-title").textContent = `The stream before layer ${layer} at token ${position}, “${visible(tokens[position].text)}”`;
  $("cell-factor").value = change?.factor ?? 1;
  document.querySelector('output[for="cell-factor"]').textContent = `× ${(+$("cell-factor").value).toFixed(1)}`;
}

// ---- changes ----

function keepInAddress() {
  history.replaceState(null, "", toHash(state));
}
function setChanges(list, isUndo = false) {
  if (!isUndo) past.push(state.changes), (future = []);
  state.changes = list;
  keepInAddress();
  draw();
  return isBusy ? interrupt() : refresh(tokens.length ? tokens.map((t) => t.id) : undefined);
}
/** Puts a change in the place of one at the same place, or takes that away. */
function change(next) {
  const others = state.changes.filter((c) => !isSamePlace(c, next));
  const isThere = state.changes.some((c) => JSON.stringify(c) === JSON.stringify(next));
  const isNothing = next.factor === (next.kind === "steer" ? 0 : 1); // a factor of the other kinds is undefined
  return setChanges(isThere || isNothing ? others : [...others, next]);
}
const mode = () => document.querySelector('input[name="mode"]:checked').value;

function pickHead(layer, h) {
  head = [layer, h];
  drawLarge();
  heads?.buttons.forEach((button, i) => {
    const isIt = String(placeOf(i)) === String(head);
    button.setAttribute("aria-current", isIt);
    button.tabIndex = isIt ? 0 : -1;
  });
}
function scaleHead(layer, h, factor) {
  factor = Math.round(10 * Math.min(2, Math.max(0, factor))) / 10;
  return change({ kind: "scale", layer, head: h, factor });
}

function listenToHeads() {
  const box = $("heads");
  const headAt = (element) => {
    const button = element?.closest(".head"), i = heads?.buttons.indexOf(button);
    return i >= 0 ? { button, i, place: placeOf(i) } : undefined;
  };
  let drag = null;
  let resting = 0; // a timer: the pointer picks the head where it rests, not each that it crosses
  box.addEventListener("focusin", ({ target }) => headAt(target) && !drag && pickHead(...headAt(target).place));
  box.addEventListener("pointerover", ({ target }) => {
    clearTimeout(resting);
    if (headAt(target)) resting = setTimeout(() => drag || pickHead(...headAt(target).place), 200);
  });
  box.addEventListener("pointerleave", () => clearTimeout(resting));
  box.addEventListener("pointerdown", (event) => {
    const at = headAt(event.target);
    if (at) drag = { ...at, x: event.clientX, factor: null, id: event.pointerId };
  });
  box.addEventListener("pointermove", (event) => {
    if (!drag || event.pointerId !== drag.id || (drag.factor === null && Math.abs(event.clientX - drag.x) < 8)) return;
    if (drag.factor === null) drag.button.setPointerCapture(drag.id);
    drag.factor = Math.min(2, Math.max(0, 1 + (event.clientX - drag.x) / 80));
    drag.button.classList.add("changed");
    drag.button.dataset.mark = `×${drag.factor.toFixed(1)}`;
  });
  const release = () => {
    if (drag?.factor !== null && drag) {
      scaleHead(...drag.place, drag.factor);
      setTimeout(() => (drag = null)); // the click that follows is no click
    } else drag = null;
  };
  box.addEventListener("pointerup", release);
  box.addEventListener("pointercancel", () => (drag = null));
  box.addEventListener("click", ({ target }) => {
    if (!headAt(target) || drag?.factor != null) return;
    const [layer, h] = headAt(target).place, old = state.changes.find((c) => c.layer === layer && c.head === h);
    if (old) setChanges(state.changes.filter((c) => c !== old));
    else change({ kind: mode(), layer, head: h });
  });
  box.addEventListener("keydown", (event) => {
    const at = headAt(event.target);
    if (!at) return;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: config.nHead, ArrowUp: -config.nHead }[event.key];
    if (step && heads.buttons[at.i + step]) heads.buttons[at.i + step].focus();
    else if (event.key === "+" || event.key === "-") {
      const [layer, h] = at.place, old = state.changes.find((c) => c.layer === layer && c.head === h);
      scaleHead(layer, h, (old?.kind === "zero" ? 0 : old?.factor ?? 1) + (event.key === "+" ? 0.1 : -0.1));
    } else return;
    event.preventDefault();
  });
}

function listenToLarge() {
  large = new Large($("large"), { onLook: say });
  $("scale").addEventListener("change", () => scaleHead(...head, +$("scale").value));
  $("scale").addEventListener("input", () => (document.querySelector('output[for="scale"]').textContent = `× ${(+$("scale").value).toFixed(1)}`));
}

function listenToText() {
  const choose = (i) => {
    chosen = chosen === i ? null : i;
    draw();
    if (!isBusy) afterwards().catch(complain);
  };
  $("text").addEventListener("click", (event) => event.target.dataset.i && choose(+event.target.dataset.i));
  $("text").addEventListener("keydown", (event) => {
    if (!event.target.dataset.i || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    choose(+event.target.dataset.i);
  });
  arrows($("text"), ".token", () => 1);
  $("choose").addEventListener("change", () => {
    if (!$("choose").value) return;
    $("prompt").value = $("choose").value;
    $("prompt").dispatchEvent(new Event("input"));
  });
  $("prompt").addEventListener("input", () => {
    state.text = $("prompt").value;
    if ($("choose").value !== state.text) $("choose").value = "";
    keepInAddress();
    clearTimeout(typing);
    typing = setTimeout(() => {
      typing = 0;
      chosen = cell = null;
      if (isBusy) stopAll();
      else refresh();
    }, 120);
  });
  $("generate").onclick = () => generate();
  $("stop").onclick = () => interrupt(null);
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) generate();
  });
}
function listenToLens() {
  arrows($("lens"), "td button", () => $("lens").rows[0].cells.length - 1);
  $("lens").addEventListener("click", (event) => {
    if (event.target.dataset.position === undefined) return;
    cell = [+event.target.dataset.layer, +event.target.dataset.position];
    drawCell();
  });
  const here = () => ({ layer: cell[0], position: cell[1] });
  $("cell-factor").addEventListener("change", () => change({ kind: "stream", ...here(), factor: +$("cell-factor").value }));
  $("cell-zero").onclick = () => change({ kind: "stream", ...here(), factor: 0 });
  $("cell-patch").onclick = () => change({ kind: "patch-stream", ...here() });
  $("cell-clear").onclick = () => setChanges(state.changes.filter((c) => c.head !== undefined || c.layer !== cell[0] || c.position !== cell[1]));
}

function listenToChanges() {
  const step = (from, to) => {
    if (!from.length) return; // the button may still be enabled while the model writes
    to.push(state.changes);
    setChanges(from.pop(), true);
  };
  $("undo").onclick = () => step(past, future);
  $("redo").onclick = () => step(future, past);
  $("clear").onclick = () => setChanges([]);
  $("steer").onclick = () => change({ kind: "steer", layer: +$("steer-layer").value, factor: +$("steer-factor").value });
  for (const key of ["second", "plus", "minus"]) {
    $(key).value = state[key];
    $(key).addEventListener("change", () => {
      state[key] = $(key).value;
      setChanges(state.changes, true);
    });
  }
  const copy = async (what, text) => {
    $("code").hidden = false;
    $("code").value = text;
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `${what} is in the clipboard.`;
    } catch {
      $("code").select();
      $("copied").textContent = `The browser keeps its clipboard closed: ${what.toLowerCase()} is selected below.`;
    }
  };
  $("copy-link").onclick = () => copy("The link", location.href.replace(/#.*/, "") + toHash(state));
  $("copy-c").onclick = () => copy("The program", toC(state, modelFile));
  $("copy-lens").onclick = () => copy("The command", toLens(state, modelFile));
}

function listenToSliders() {
  for (const key of ["temperature", "topK", "topP", "length", "seed"]) {
    const input = $(key), output = document.querySelector(`output[for="${key}"]`);
    const say = () => output && (output.textContent = key === "topK" && !state.topK ? "all" : key === "temperature" ? (state.temperature ? state.temperature.toFixed(2) : "greedy") : key === "topP" ? state.topP.toFixed(2) : state[key]);
    input.value = state[key];
    say();
    input.addEventListener("input", () => {
      if (!input.checkValidity() || input.value === "") return;
      state[key] = +input.value;
      say();
      keepInAddress();
      draw(true);
    });
    input.addEventListener("change", () => isBusy && key !== "length" && interrupt());
  }
  const steer = () => (document.querySelector('output[for="steer-factor"]').textContent = `× ${$("steer-factor").value}`);
  $("steer-factor").addEventListener("input", steer);
  steer();
}

// ---- saving ----

const labels = () => tokens.map((t) => t.text);
const lensSvg = (title, some) => {
  const rows = Array.from({ length: config.nLayer + 1 }, (_, layer) => layer);
  return gridSvg({ title, rows: rows.map(streamName), columns: some.map((t) => visible(t.text)), cells: rows.map((layer) => some.map((t) => ({ text: visible(t.lens[layer].text), tint: t.lens[layer].probability }))), colour: "#0b6a72", other: "#786e5f" });
};
const PICTURES = {
  next: () => barsSvg({ title: "Next token", bars: shownNext.map((b) => ({ ...b, text: visible(b.text) })), colour: "#0b6a72" }),
  attention: () => patternSvg({ title: nameOfHead(...head), tokens: labels(), rows: rowsOfHead(...head), colour: "#0b6a72" }),
  lens: () => lensSvg("Logit lens", tokens.filter((t) => t.lens)),
  parts: () => {
    const { columns, rows, rest, most } = partsTable(), all = [...rows, ...rest.map(([name, value]) => ({ name, values: [value] }))];
    return gridSvg({ title: `What each part adds to “${visible(parts.text)}”`, rows: all.map((r) => r.name), columns, cells: all.map((r) => r.values.map((x) => ({ text: x.toFixed(2), tint: Math.abs(x) / most, negative: x < 0 }))), colour: "#0b6a72", other: "#786e5f" });
  },
};
const TABLES = {
  next: () => [["token", "id", "probability", "probability without the changes"], ...shownNext.map((b) => [b.text, b.id, b.value, b.was ?? ""])],
  attention: () => [["query", "key", "query token", "key token", "weight"], ...rowsOfHead(...head).flatMap((row, q) => Array.from(row, (w, k) => [q, k, tokens[q].text, tokens[k].text, w]))],
  lens: () => [["stream", "position", "token", "likeliest next", "probability"], ...tokens.flatMap((t, i) => (t.lens ?? []).map((g, layer) => [streamName(layer), i, t.text, g.text, g.probability]))],
  parts: () => [["part", "logit"], ...parts.labels.map((l, i) => [Array.isArray(l) ? `layer ${l[0]} ${l[1] === "mlp" || l[1] === "bias" ? l[1] : `head ${l[1]}`}` : l, parts.shares[i]]), ["last bias", parts.shares.at(-1)]],
};
/** The numbers of a picture, shaped as the library has them, with what they are in the file's metadata. */
const TENSORS = {
  next: () => ({ logits: { shape: [logits.length], data: logits }, ...(plain && { logits_without_changes: { shape: [plain.length], data: plain } }) }),
  attention: () => {
    const n = tokens.length, { nLayer, nHead } = config, all = {};
    for (let layer = 0; layer < nLayer; layer++) {
      const data = new Float32Array(nHead * n * n);
      for (let h = 0; h < nHead; h++) rowsOfHead(layer, h).forEach((row, q) => data.set(row, (h * n + q) * n));
      all[`blocks.${layer}.attn.hook_pattern`] = { shape: [1, nHead, n, n], data };
    }
    return all;
  },
  lens: () => {
    const some = tokens.filter((t) => t.lens), shape = [config.nLayer + 1, some.length];
    const of = (key) => Float32Array.from({ length: shape[0] * shape[1] }, (_, i) => some[i % shape[1]].lens[Math.floor(i / shape[1])][key]);
    return { token: { shape, data: of("id") }, probability: { shape, data: of("probability") } };
  },
  parts: () => ({ share: { shape: [parts.shares.length], data: Float32Array.from(parts.shares) } }),
};
const TEXTS = {
  next: () => ({}),
  attention: () => ({}),
  lens: () => ({ rows: JSON.stringify(Array.from({ length: config.nLayer + 1 }, (_, i) => streamName(i))), positions: JSON.stringify(tokens.flatMap((t, i) => (t.lens ? [i] : []))) }),
  parts: () => ({ parts: JSON.stringify(TABLES.parts().slice(1).map(([name]) => name)), position: String(parts.position), token: String(parts.token) }),
};
const tensorsOf = (picture) => safetensors(TENSORS[picture](), { picture, ids: JSON.stringify(tokens.map((t) => t.id)), changes: JSON.stringify(state.changes), ...TEXTS[picture]() });
function save(name, type, content) {
  const link = make("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
/** On paper nothing scrolls: the whole picture takes the place of its part that is in view, the lens a dozen tokens at a time. */
function fillPaper() {
  const some = tokens.filter((t) => t.lens), dozens = Array.from({ length: Math.ceil(some.length / 12) }, (_, i) => some.slice(12 * i, 12 * i + 12));
  const pictures = { attention: tokens.length ? [PICTURES.attention()] : [], lens: dozens.map((dozen) => lensSvg("", dozen)) };
  for (const place of document.querySelectorAll("[data-paper]"))
    place.replaceChildren(...pictures[place.dataset.paper].map((svg) => document.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true)));
}
function listenToSaving() {
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("on-paper"); // the colours of the light scheme
    forgetColours();
    heads?.clear();
    while (heads && !heads.paint(tokens.length)); // now: the browser draws no more frames before it prints
    fillPaper();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("on-paper");
    changeColours();
  });
  document.addEventListener("click", ({ target }) => {
    const { svg, csv: table, numbers } = target.dataset ?? {};
    if (!tokens.length) return;
    if (svg) save(`${svg}.svg`, "image/svg+xml", PICTURES[svg]());
    if (table) save(`${table}.csv`, "text/csv", csv(TABLES[table]()));
    if (numbers) save(`${numbers}.safetensors`, "application/octet-stream", tensorsOf(numbers));
  });
}

// ---- other models ----

/** What was dropped: files, and the files of directories. @param {DataTransfer} transfer */
async function filesOf(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry), files = [...transfer.files];
  const folders = entries.filter((entry) => entry.isDirectory);
  if (!folders.length) return files;
  const list = (folder) => new Promise((resolve, reject) => folder.createReader().readEntries(resolve, reject));
  const inside = (await Promise.all(folders.map(list))).flat().filter((entry) => entry.isFile);
  return [...files.filter((f) => f.type || f.size > 4096), ...(await Promise.all(inside.map((entry) => new Promise((resolve, reject) => entry.file(resolve, reject)))))];
}

function listenToFiles() {
  const take = async (files) => {
    const file = files.find((f) => f.name.endsWith(".attn")), isCheckpoint = !file && files.some((f) => f.name === "config.json");
    const name = file?.name ?? (isCheckpoint ? "the checkpoint" : files[0]?.name ?? "This");
    $("about").close();
    try {
      if (!file && !isCheckpoint) throw new Error("this is no model. Drop a .attn file, or all files of a Hugging Face directory together: config.json, model.safetensors, vocab.json, merges.txt.");
      await open(file ?? files, name);
    } catch (error) {
      complain(new Error(`${name}: ${error.message}`));
      $("status").textContent = config ? "The former model is still open." : "No model is open.";
    }
  };
  $("file").addEventListener("change", () => $("file").files.length && take([...$("file").files]));
  const isFiles = (event) => event.dataTransfer.types.includes("Files"); // not a text that is dragged to the prompt
  document.addEventListener("dragover", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    $("drop").hidden = false;
  });
  document.addEventListener("dragleave", (event) => !event.relatedTarget && ($("drop").hidden = true));
  document.addEventListener("drop", (event) => {
    if (!isFiles(event)) return;
    event.preventDefault();
    $("drop").hidden = true;
    filesOf(event.dataTransfer).then(take, complain);
  });
}

// ---- the tour ----

let step = -1;
function showStep(next) {
  document.querySelector(".pointed")?.classList.remove("pointed");
  step = next;
  $("tour").hidden = step < 0;
  if (step < 0) return $("tour-start").focus();
  const { title, at, text, button } = steps[step];
  $("tour-count").textContent = `Step ${step + 1} of ${steps.length}`;
  $("tour-title").textContent = title;
  $("tour-text").textContent = text;
  $("tour-act").hidden = !button;
  $("tour-act").textContent = button ?? "";
  $("tour-back").disabled = step === 0;
  $("tour-next").disabled = step === steps.length - 1;
  $(`part-${at}`).classList.add("pointed");
  $("tour-title").focus({ preventScroll: true });
  $("tour").scrollIntoView({ block: "nearest" });
}
async function act({ text, generate: writes, head: picked, off }) {
  while (isBusy) {
    interrupt(null);
    await new Promise((go) => setTimeout(go, 20));
  }
  if (text) $("prompt").value = state.text = text;
  if (picked) pickHead(Math.min(picked[0], config.nLayer - 1), Math.min(picked[1], config.nHead - 1));
  if (off && off[0] < config.nLayer && off[1] < config.nHead) {
    past.push(state.changes);
    future = [];
    state.changes = [{ kind: "zero", layer: off[0], head: off[1] }];
    pickHead(...off);
  }
  keepInAddress();
  if (writes) await generate();
  else await refresh();
}
function listenToTour() {
  $("tour-start").onclick = () => showStep(0);
  $("tour-back").onclick = () => showStep(step - 1);
  $("tour-next").onclick = () => showStep(step + 1);
  $("tour-end").onclick = () => showStep(-1);
  $("tour-act").onclick = () => act(steps[step].act).catch(complain);
  $("about-open").onclick = () => $("about").showModal();
}

// ---- the start ----

function start() {
  $("prompt").value = state.text;
  listenToText();
  listenToHeads();
  listenToLarge();
  listenToLens();
  listenToChanges();
  listenToSliders();
  listenToSaving();
  listenToFiles();
  listenToTour();
  showTips();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changeColours);
  addEventListener("hashchange", () => location.reload());
  drawChanges();
}
start();
addEventListener("DOMContentLoaded", () => {
  open($("data-model").textContent, "the included model").catch((error) => {
    complain(error);
    $("status").textContent = "No model is open.";
  });
});

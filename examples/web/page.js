// The page: its state, what it shows, what the reader does. Everything that takes time is the
// worker's; what it sends is drawn at the next frame.

import { Helper, askAbout } from "./ask.js";
import { describe, fromHash, isSamePlace, seedFrom, toC, toHash, toLens } from "./changes.js";
import { Heads, Large, arrows, forgetColours, make, makeCell, makeTable, nameOfHead, percent, quote, sayAttention, shorten, showTips, visible } from "./draw.js";
import { drawFlow, openStation } from "./flow.js";
import { isListing, listQuestions, listenToQuestions } from "./questions.js";
import { barsSvg, csv, gridSvg, patternSvg, safetensors } from "./save.js";
import { forgetMeasured, isNaming, learnWords, listenToSurprisal, nameColumns, sayStrange, takeSentences } from "./surprisal.js";
import { steps } from "./tour.js";

const $ = (id) => document.getElementById(id);
// What the reader wants: the prompt, the changes, the settings; and of the text, the ids that stand there (null: those of
// the prompt), how many tokens are to be written after them, and the first one that is the model's.
let state = fromHash(location.hash), wanted = { ids: null, left: 0, made: Infinity };
// What is shown. All of it was computed together, with the changes in `shown`; plain: the logits without them.
let tokens = [], logits = null, plain = null, parts = null, flow = null, shown = { changes: [] };
let config = null, words = []; // of the model; its tokens
let chosen = null, head = [0, 0], cell = null; // the token, head and cell of the lens that were picked
let past = [], future = []; // lists of changes, for undo and redo
let heads = null, large = null; // the small pictures, with their buttons, layer by layer; one of them, large
let modelFile = "build/tiny-stories.attn"; // in what is copied

// ---- the worker ----

const worker = new Helper(), ask = (...values) => worker.ask(...values);

function complain(error) {
  $("problem").textContent = error.message;
}

// ---- wishes ----
//
// Whatever the reader does changes `state` and `wanted`, and calls want(). One loop, fulfil(), looks for what is missing,
// asks the worker for that, and looks again. What comes back after a newer wish is thrown away, so the newest wish wins,
// and what is shown was computed as it stands.

let wish = 0, answered = -1; // the number of the newest wish, and of that whose text was asked for last
let typing = 0; // the timer that waits for the end of typing
let toOpen = null; // the model that is to be opened: {source, name}
let writtenWith = []; // the changes with which the end of the text was written
let refused = null; // {text, sentence}: the prompt cannot be run; the text whose pictures stay, and what is said
let explained = "", followed = "", lensless = null; // what the parts were asked for; the tokens whose lens cannot be had
let isFulfilling = false, isBusy = false; // the loop runs; the model is to write

/** The text is to stand, with the changes, after a pause. @param {{ids?: number[] | null, left?: number, made?: number}} text */
function want(text = {}, pause = 0) {
  Object.assign(wanted, text);
  if (text.ids === null) refused = null;
  wish++;
  $("problem").textContent = $("speed").textContent = "";
  clearTimeout(typing);
  typing = 0;
  if (pause) typing = setTimeout(() => {
    typing = 0;
    fulfil();
  }, pause);
  interrupt();
}
/** Has the model write after the prompt, or after these ids, of which those from `made` on are its own. */
function generate(ids = null, made = Infinity) {
  want({ ids, left: state.length, made });
}
/** Lets the run that writes end; the rest of what is wanted comes with the next one. */
function interrupt() {
  if (worker.asked.task === "generate") worker.stop();
  showBusy();
  fulfil();
}
async function fulfil() {
  if (isFulfilling) return;
  isFulfilling = true;
  for (let task; (task = missing()); showBusy())
    try {
      await task();
    } catch (error) {
      complain(error);
    }
  isFulfilling = false;
}
/** What is to be done next. */
function missing() {
  if (toOpen) return openModel;
  if (!config || typing) return null;
  if (answered !== wish) return showText;
  if (wanted.left > 0) return write;
  if (tokens.length && explained !== explanation()) return explain;
  if (firstWithoutLens() >= 0) return fillLens;
  if (tokens.length && followed !== way() && isFlowCheap()) return follow;
  if (isNaming()) return () => nameColumns(ask);
  if (isListing()) return () => listQuestions(ask);
  return null;
}

/** Opens a model: base64 of a .attn file, such a File, or the Files of a checkpoint. */
function open(source, name) {
  toOpen = { source, name };
  wanted.left = 0;
  interrupt();
}
async function openModel() {
  const { source, name } = toOpen, modules = Object.fromEntries(["plain", "simd", "relaxed", "query", "convert"].map((v) => [v, $(`data-${v}`).textContent]));
  const opening = { ...(Array.isArray(source) ? { files: source } : { source }), modules };
  toOpen = null;
  $("status").textContent = `Loading ${name} …`;
  let answer;
  try {
    answer = await ask("open", opening, { onProgress: (done) => ($("status").textContent = `Loading ${name}: ${percent(done)}`) });
  } catch (error) {
    $("status").textContent = config ? "The former model is still open." : "No model is open.";
    throw new Error(`${name}: ${error.message}`);
  }
  config = answer.config;
  words = answer.words;
  learnWords(words, typeof source === "string");
  $("length").max = answer.capacity;
  tokens = [];
  logits = plain = parts = flow = chosen = cell = refused = null;
  drawWay(); // none, until there is that of the new model
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
  Object.assign(wanted, { ids: null, made: Infinity });
  wish++;
  $("problem").textContent = "";
  forgetMeasured();
  askAbout(opening);
  if (isFewer) complain(new Error("Changes of layers or heads that this model does not have were taken away."));
}

/** The state with the text that is run. */
const asRun = () => ({ ...state, text: refused?.text ?? state.text });
/** Runs the text with the changes. */
async function showText() {
  const mine = (answered = wish), asking = asRun();
  try {
    const answer = await ask("show", { state: asking, ids: wanted.ids });
    if (mine !== wish) return;
    ({ tokens, logits, plain = null } = answer);
    flow = null;
    if (refused) $("problem").textContent = refused.sentence;
    shown = asking;
    wanted.ids = tokens.map((t) => t.id);
    if (chosen >= tokens.length) chosen = null;
  } catch (error) {
    if (mine !== wish) return;
    if (error.change === undefined) {
      wanted.left = 0;
      if (wanted.ids === null && tokens.length) { // the prompt's fault: the text before it is run again, with the changes as they are
        wanted.ids = tokens.map((t) => t.id);
        refused = { text: shown.text, sentence: `${error.message}. The text and the pictures are still those of “${shorten(visible(shown.text.slice(0, 60)), 16)}”.` };
        return void wish++;
      }
      tokens = [];
      logits = plain = parts = chosen = refused = null;
      shown = asking;
      throw error;
    }
    // a change that cannot be applied leaves the list, and the others are tried again
    const bad = asking.changes[error.change];
    state.changes = state.changes.filter((c) => c !== bad);
    wish++;
    keepInAddress();
    throw new Error(`“${describe(bad)}” was taken away: ${error.message}`);
  } finally {
    draw();
  }
}

/** Writes the tokens that are wanted after the text. */
async function write() {
  const mine = wish, from = tokens.length;
  if (!from) {
    wanted.left = 0;
    throw new Error("Write a prompt first: the model goes on with it.");
  }
  wanted.made = Math.min(wanted.made, from);
  writtenWith = shown.changes;
  chosen = null;
  try {
    const onTokens = ({ made, logits: last }) => {
      if (mine !== wish) return;
      tokens.push(...made);
      wanted.ids.push(...made.map((t) => t.id));
      wanted.left = Math.max(0, wanted.left - made.length);
      logits = last;
      plain = null;
      draw(true);
    };
    const answer = await ask("generate", { state: { ...state, length: wanted.left } }, { onTokens });
    if (mine !== wish) return;
    plain = answer.plain;
    if (!answer.isStopped || answer.isFull) wanted.left = 0;
    $("speed").textContent = tokens.length > from ? `${tokens.length - from} tokens, ${Math.round(answer.speed)} a second` : "";
    large.reveal(tokens.length - 1, tokens.length - 1);
    if (answer.isFull) $("problem").textContent = `The text has ${tokens.length} tokens, which is all there is room for.`;
  } catch (error) {
    if (mine === wish) wanted.left = 0, wish++; // the worker may have tokens that the page has not
    throw error;
  } finally {
    showBusy();
    draw();
  }
}

/** The shares of the parts, for the token that is chosen, or the next one. */
const explanation = () => `${answered} ${tokens.length} ${chosen}`;
async function explain() {
  explained = explanation();
  const mine = wish, position = chosen ? chosen - 1 : tokens.length - 1, token = chosen ? tokens[chosen].id : largest(logits, 1)[0];
  const answer = await ask("explain", { position, token });
  if (mine !== wish) return;
  parts = { ...answer, ids: tokens.map((t) => t.id), changes: shown.changes };
  draw();
}

/** The lens of a large model comes when the text stands, a few columns at a time. */
function firstWithoutLens() {
  const from = Math.max(0, tokens.length - MOST_COLUMNS);
  return tokens === lensless ? -1 : tokens.findIndex((token, i) => i >= from && !token.lens);
}
async function fillLens() {
  const list = tokens, first = firstWithoutLens();
  lensless = list; // unless columns come
  const columns = await ask("lens", { first });
  if (columns.length) lensless = null;
  columns.forEach((column, i) => (list[first + i].lens = column));
  draw(true);
}

/** The way of the token that is chosen, or the last one, through the head that is shown large. */
const way = () => `${explanation()} ${head}`;
const MOST_WORK = 4e9; // multiply-adds of a run for it, which nothing interrupts: some tenths of a second
const isFlowCheap = () => 12 * config.nLayer * config.dModel ** 2 * tokens.length < MOST_WORK;
async function follow() {
  followed = way();
  const mine = wish;
  flow = null;
  const answer = await ask("flow", { state: shown, position: chosen ?? tokens.length - 1, layer: head[0], head: head[1] });
  if (mine !== wish) return;
  flow = answer;
  draw();
}

function showBusy() {
  const busy = wanted.left > 0, [from, to] = busy ? [$("generate"), $("stop")] : [$("stop"), $("generate")], hasFocus = document.activeElement === from;
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
  { place: "part-flow", draw: drawWay, every: 150, isStill: true },
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
    const { id, text, probability, alternatives } = tokens[i];
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
      class: i >= wanted.made ? "token made" : "token",
      tabindex: i === (chosen ?? 0) ? 0 : -1,
      "aria-pressed": chosen === i,
      "data-id": id,
      "data-tip": `id ${id}, ${probability === null ? "the first token" : `${percent(probability)}; instead: ${alternatives.map((a) => `${quote(a.text)} ${percent(a.probability)}`).join(", ")}`}`,
    });
  }
  const isOld = wanted.made < tokens.length && JSON.stringify(writtenWith) !== JSON.stringify(shown.changes);
  setText($("old"), isOld ? "This text was written before your last change. Generate writes it anew." : "");
  if (isWhole) setText($("strange"), sayStrange(tokens.map((t) => t.text).join("")));
  drawChoice();
  if (isBusy) box.scrollTop = 1e6;
}

function drawChoice() {
  const token = chosen === null ? null : tokens[chosen];
  $("choice").hidden = !token?.alternatives;
  if (!token?.alternatives) return;
  $("choice-title").textContent = `Token ${chosen}: ${quote(token.text)}, id ${token.id}, ${percent(token.probability)}`;
  $("alternatives").replaceChildren(...token.alternatives.flatMap((a) => {
    const button = make("button", { type: "button", className: "word", textContent: visible(a.text) });
    button.onclick = () => {
      const before = tokens.slice(0, chosen), text = [...before, a].map((t) => t.text).join("");
      if (!/<[0-9a-f]{2}>|\ufffd/.test(a.text)) $("prompt").value = state.text = text;
      keepInAddress();
      generate([...before.map((t) => t.id), a.id], Math.min(wanted.made, chosen));
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
  clearHeads();
  draw();
}

/** The weight that a query of a head gives to a key in a list of tokens, which may be no longer that of the page. */
const weightOf = (list, layer, h) => (q, k) => list[q].attention[(layer * config.nHead + h) * (q + 1) + k];
const rowsOfHead = (layer, h) => tokens.map(({ attention }, q) => attention.subarray((layer * config.nHead + h) * (q + 1), (layer * config.nHead + h + 1) * (q + 1)));

/** Layer and head of a small picture. */
const placeOf = (i) => [Math.floor(i / config.nHead), i % config.nHead];
function makeHeads() {
  const places = Array.from({ length: config.nLayer * config.nHead }, (_, i) => placeOf(i));
  heads = new Heads($("heads"), places, config.nHead, places.map(() => () => 0));
  markHeads();
}

let paintedTokens = null; // the list that the small pictures show
/** Lets the small pictures begin anew, with the tokens as they are. */
function clearHeads(stay = false) {
  paintedTokens = tokens;
  heads?.small.forEach((small, i) => (small.weight = weightOf(tokens, ...placeOf(i))));
  heads?.clear(stay);
}
/** Paints what the small pictures lack, for a few milliseconds; returns true if there is more.
 * While the text grows they have room for more rows, and so keep their size for a while. */
function drawHeads(isWhole) {
  if (!config) return false;
  if (isWhole) markHeads();
  if (paintedTokens !== tokens) clearHeads(tokens.length > 0);
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
  large.weight = weightOf(tokens, ...head);
  large.canvas.setAttribute("aria-label", `attention pattern of ${nameOfHead(...head)}`);
  large.setLabels(tokens.map((t) => visible(t.text)));
  if (large.over?.q >= tokens.length) large.over = null;
  if (!large.over) large.query = tokens.length - 1;
  if (isBusy) large.reveal(tokens.length - 1, tokens.length - 1);
  else large.draw();
  say(large.query);
}
function say(q) {
  $("large-note").textContent = q >= 0 && q < large.n ? sayAttention(q, large.labels.map((label) => `“${label}”`), (k) => large.weight(q, k)) : "";
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
      const button = make("button", { type: "button", textContent: shorten(visible(guess.text), 4.2), tabIndex: -1, "aria-label": `${quote(guess.text)}, ${percent(guess.probability)}, ${streamName(layer)}, token ${i}` });
      button.dataset.layer = layer;
      button.dataset.position = i;
      table.tBodies[0].rows[layer].append(makeCell(button, guess.probability, `${streamName(layer)}, token ${i}: ${quote(guess.text)} ${percent(guess.probability)}`));
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
  $("parts-note").textContent = `To the logit of ${quote(parts.text)} after token ${parts.position}, through the last LayerNorm with its scale held: ${sum.toFixed(2)} in all. The tint is the size; the accent colour adds, the other takes away.`;
}

function drawWay() {
  const place = { path: $("path"), steps: $("flow"), title: $("flow-layer"), panel: $("flow-numbers") };
  $("flow-none").hidden = !tokens.length || isFlowCheap();
  if (flow) drawFlow(place, flow, tokens.map((t) => visible(t.text)), tokens[flow.position].lens ?? [], (layer) => pickHead(layer, head[1]));
  else if (!tokens.length || !isFlowCheap()) drawFlow(place, null);
}

function drawChanges() {
  const hadFocus = document.activeElement.closest("#part-changes");
  $("changes-none").hidden = state.changes.length > 0;
  $("changes").replaceChildren(...state.changes.map((c, i) => {
    const button = make("button", { type: "button", className: "plain", textContent: "remove", "aria-label": `Remove change ${i + 1}` });
    button.onclick = () => setChanges(state.changes.filter((other) => other !== c));
    return make("li", { className: shown.changes.includes(c) ? "" : "awaited" }, describe(c, tokens.map((t) => t.text)), button);
  }));
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("clear").disabled = !state.changes.length;
  if (hadFocus && (document.activeElement === document.body || document.activeElement.disabled)) [$("undo"), $("redo")].find((b) => !b.disabled)?.focus();
  drawCell();
}

function drawCell() {
  const [layer, position] = cell ?? [], change = state.changes.find((c) => c.kind === "stream" && c.layer === layer && c.position === position);
  $("cell").hidden = !cell || layer >= config.nLayer || position >= tokens.length;
  if ($("cell").hidden) return;
  $("cell-title").textContent = `The stream before layer ${layer} at token ${position}, ${quote(tokens[position].text)}`;
  $("cell-factor").value = change?.factor ?? 1;
  document.querySelector('output[for="cell-factor"]').textContent = `× ${(+$("cell-factor").value).toFixed(1)}`;
}

// ---- changes ----

let keeping = 0; // browsers refuse hundreds of addresses in a few seconds
function keepInAddress() {
  keeping ||= setTimeout(keepNow, 100);
}
function keepNow() {
  clearTimeout(keeping);
  keeping = 0;
  history.replaceState(null, "", toHash(state));
}
function setChanges(list, isUndo = false) {
  if (!isUndo) past.push(state.changes), (future = []);
  state.changes = list;
  keepInAddress();
  draw();
  want();
}
/** Puts a change in the place of one at the same place, or takes that away. */
function change(next) {
  const others = state.changes.filter((c) => !isSamePlace(c, next));
  const isThere = state.changes.some((c) => JSON.stringify(c) === JSON.stringify(next));
  const isNothing = next.factor === (next.kind === "steer" ? 0 : 1); // a factor of the other kinds is undefined
  setChanges(isThere || isNothing ? others : [...others, next]);
}
const mode = () => document.querySelector('input[name="mode"]:checked').value;

function pickHead(layer, h) {
  head = [layer, h];
  drawLarge();
  fulfil();
  heads?.buttons.forEach((button, i) => {
    const isIt = String(placeOf(i)) === String(head);
    button.setAttribute("aria-current", isIt);
    button.tabIndex = isIt ? 0 : -1;
  });
}
function scaleHead(layer, h, factor) {
  factor = Math.round(10 * Math.min(2, Math.max(0, factor))) / 10;
  change({ kind: "scale", layer, head: h, factor });
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
    resting = setTimeout(() => {
      const at = headAt(target); // none, where another model's heads came meanwhile
      if (at && !drag) pickHead(...at.place);
    }, 200);
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
  box.addEventListener("pointercancel", () => {
    drag = null;
    markHeads(); // without what the drag would have made
  });
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
    if (i >= tokens.length) return; // a text that is about to go
    chosen = chosen === i ? null : i;
    draw();
    fulfil();
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
    chosen = cell = null;
    drawChoice();
    drawCell();
    want({ ids: null, left: 0, made: Infinity }, 120);
  });
  $("generate").onclick = () => generate();
  $("stop").onclick = () => {
    wanted.left = 0;
    interrupt();
  };
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
  const changeCell = (values) => cell && change({ layer: cell[0], position: cell[1], ...values });
  $("cell-factor").addEventListener("change", () => changeCell({ kind: "stream", factor: +$("cell-factor").value }));
  $("cell-zero").onclick = () => changeCell({ kind: "stream", factor: 0 });
  $("cell-patch").onclick = () => changeCell({ kind: "patch-stream" });
  $("cell-clear").onclick = () => cell && setChanges(state.changes.filter((c) => c.head !== undefined || c.layer !== cell[0] || c.position !== cell[1]));
}

const HOSTING = " It opens on this machine alone. For a class, put this file on any web site, and copy the link there.";
function listenToChanges() {
  const step = (from, to) => {
    if (!from.length) return; // the button may still be enabled while the model writes
    to.push(state.changes);
    setChanges(from.pop(), true);
  };
  $("undo").onclick = () => step(past, future);
  $("redo").onclick = () => step(future, past);
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase(), isText = document.activeElement.matches("textarea:not([readonly]), input[type=text]"); // which has an undo of its own
    if (!(event.ctrlKey || event.metaKey) || event.altKey || isText || $("about").open || !["y", "z"].includes(key)) return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) step(future, past);
    else step(past, future);
  });
  $("clear").onclick = () => setChanges([]);
  $("steer").onclick = () => change({ kind: "steer", layer: +$("steer-layer").value, factor: +$("steer-factor").value });
  for (const key of ["second", "plus", "minus"]) {
    $(key).value = state[key];
    $(key).addEventListener("change", () => {
      state[key] = $(key).value;
      setChanges(state.changes, true);
    });
  }
  const copy = async (what, text, more = "") => {
    $("code").hidden = false;
    $("code").value = text;
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `${what} is in the clipboard.${more}`;
    } catch {
      $("code").select();
      $("copied").textContent = `The browser keeps its clipboard closed: ${what.toLowerCase()} is selected below.${more}`;
    }
  };
  $("copy-link").onclick = () => copy("The link", location.href.replace(/#.*/, "") + toHash(asRun()), location.protocol === "file:" ? HOSTING : "");
  $("copy-c").onclick = () => copy("The program", toC(asRun(), modelFile));
  $("copy-lens").onclick = () => {
    const command = toLens(asRun(), modelFile);
    if (command) copy("The command", command);
    else $("copied").textContent = "A text has a NUL, which no command can be given.";
  };
}

function listenToSliders() {
  for (const key of ["temperature", "topK", "topP", "length", "seed"]) {
    const input = $(key), output = document.querySelector(`output[for="${key}"]`);
    const say = () => output && (output.textContent = key === "topK" && !state.topK ? "all" : key === "temperature" ? (state.temperature ? state.temperature.toFixed(2) : "greedy") : key === "topP" ? state.topP.toFixed(2) : state[key]);
    input.value = state[key];
    say();
    input.addEventListener("input", () => {
      const value = key === "seed" ? seedFrom(input.value) : +input.value;
      if (key === "seed") input.setCustomValidity(value === null ? `The seed is ${input.title}.` : "");
      if (!input.checkValidity()) return;
      state[key] = value;
      say();
      keepInAddress();
      draw(true);
    });
    input.addEventListener("change", () => {
      if (!input.checkValidity()) complain(new Error(input.validationMessage));
      if (key !== "length") interrupt();
    });
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
    return gridSvg({ title: `What each part adds to ${quote(parts.text)}`, rows: all.map((r) => r.name), columns, cells: all.map((r) => r.values.map((x) => ({ text: x.toFixed(2), tint: Math.abs(x) / most, negative: x < 0 }))), colour: "#0b6a72", other: "#786e5f" });
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
function tensorsOf(picture) {
  const { ids, changes } = picture === "parts" ? parts : { ids: tokens.map((t) => t.id), changes: shown.changes };
  return safetensors(TENSORS[picture](), { picture, ids: JSON.stringify(ids), changes: JSON.stringify(changes), ...TEXTS[picture]() });
}
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
    clearHeads();
    while (heads && !heads.paint(tokens.length)); // now: the browser draws no more frames before it prints
    fillPaper();
  });
  $("lesson-print").onclick = () => {
    document.documentElement.classList.add("sheet"); // which is printed alone
    print();
  };
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("on-paper", "sheet");
    changeColours();
  });
  document.addEventListener("click", ({ target }) => {
    const { svg, csv: table, numbers } = target.dataset ?? {};
    if (!tokens.length || ((svg ?? table ?? numbers) === "parts" && !parts)) return;
    drawNext(); // a frame may be due
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
  const take = (files) => {
    const file = files.find((f) => f.name.endsWith(".attn")), isCheckpoint = !file && files.some((f) => f.name === "config.json");
    const gguf = file || isCheckpoint ? null : files.find((f) => f.name.endsWith(".gguf"));
    const texts = files.length === 1 && /\.(csv|tsv|txt|xlsx?|jsonl?)$/i.test(files[0].name);
    const name = (file ?? gguf)?.name ?? (isCheckpoint ? "the checkpoint" : files[0]?.name ?? "This");
    $("about").close();
    $("problem").textContent = "";
    if (file || isCheckpoint || gguf) open(file ?? (gguf ? [gguf] : files), name);
    else if (texts) takeSentences(files[0]).then(() => goTo("surprisal"));
    else complain(new Error(`${name}: this is no model. Drop a .attn or a .gguf file, or all files of a Hugging Face directory together: config.json, model.safetensors, vocab.json, merges.txt. A .csv or .txt file has sentences for Surprisal.`));
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
  openStation("");
  const { title, at, text, button } = steps[step];
  $("tour-count").textContent = `Step ${step + 1} of ${steps.length}`;
  $("tour-title").textContent = title;
  $("tour-text").textContent = text;
  $("tour-act").hidden = !button;
  $("tour-act").textContent = button ?? "";
  $("tour-back").disabled = step === 0;
  $("tour-next").disabled = step === steps.length - 1;
  $(`part-${at}`).classList.add("pointed");
  $("tour-text").scrollTop = 0;
  $("tour-title").focus({ preventScroll: true });
  scrollBelowTour($(`part-${at}`));
}
/** The tour stays at the top of the window, and what it speaks of begins below it. */
function scrollBelowTour(element) {
  scrollBy({ top: element.getBoundingClientRect().top - $("tour").offsetHeight - 12 });
}
/** Goes to a part: no link does it, for the part of the address after "#" is the page's state. */
function goTo(part) {
  scrollBelowTour($(`part-${part}`));
  $(`${part}-title`).focus({ preventScroll: true });
}
function act({ text, ids, generate: writes, head: picked, off, station }) {
  const here = ([layer, h]) => config && layer < config.nLayer && h < config.nHead;
  if (text) $("prompt").value = state.text = text;
  if (ids) $("ids").checked = true;
  if (picked && config) {
    pickHead(Math.min(picked[0], config.nLayer - 1), Math.min(picked[1], config.nHead - 1));
    large.reveal(0, 0);
  }
  if (off && here(off)) {
    past.push(state.changes);
    future = [];
    state.changes = [{ kind: "zero", layer: off[0], head: off[1] }];
    pickHead(...off);
  }
  if (station !== undefined) openStation(station);
  keepInAddress();
  if (text || writes) want({ ids: null, left: writes ? state.length : 0, made: Infinity });
  if (steps[step].see) scrollBelowTour($(steps[step].see));
}
function listenToTour() {
  $("tour-start").onclick = () => showStep(0);
  $("tour-back").onclick = () => showStep(step - 1);
  $("tour-next").onclick = () => showStep(step + 1);
  $("tour-end").onclick = () => showStep(-1);
  $("tour-act").onclick = () => act(steps[step].act);
  for (const button of document.querySelectorAll("[data-to]")) button.onclick = () => goTo(button.dataset.to);
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
  listenToSurprisal({ fulfil, save });
  listenToQuestions({ fulfil, save, textFor: (name) => ({ prompt: state.text, corrupted: state.second })[name] ?? "" });
  showTips();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changeColours);
  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault(); // it would change the address
    $("prompt").focus();
  };
  addEventListener("hashchange", () => location.reload());
  addEventListener("pagehide", keepNow);
  drawChanges();
}
start();
addEventListener("DOMContentLoaded", () => open($("data-model").textContent, "the included model"));

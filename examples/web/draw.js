// Pictures of a model at work, for the page and for the pages that lens writes: tables of tinted cells,
// the heads as small pictures, one head large, and tips that tell more. draw.css is their look. A
// weight of 0 to 1 is drawn as its square root, so that small ones can be seen.

/** Makes an element; keys with a hyphen and `role` are attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) key.includes("-") || key === "role" ? element.setAttribute(key, value) : (element[key] = value);
  element.append(...children);
  return element;
}

export const strength = (weight) => Math.sqrt(Math.max(0, Math.min(1, weight || 0)));
export const percent = (p) => (!(p >= 0) ? "not a number" : p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.001 ? `${(100 * p).toFixed(1)} %` : "< 0.1 %");
const RIGHT_TO_LEFT = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2068\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
/** A text that leaves the order of what stands around it alone, as <bdi> does, also in SVG, on a canvas and in a tip. */
const isolate = (text) => (RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text);
/** A token as people can see it: spaces and line ends have a sign. */
export const visible = (text) => isolate(text.replace(/\n/g, "⏎").replace(/^ /, "·") || "∅");
/** The same in a sentence: “·was” is another token than “was”, and “,” is no comma of the sentence. */
export const quote = (text) => `“${visible(text)}”`;
let ruler = null;
/** A text cut to so many rem of the small type. To cut it by style would give each cell a region of its own to clip,
 * and the browser visits them all at every frame. */
export function shorten(text, rem) {
  if (!ruler) {
    const { fontFamily, fontSize } = getComputedStyle(document.documentElement);
    ruler = { pen: make("canvas").getContext("2d"), rem: parseFloat(fontSize) };
    ruler.pen.font = `${0.875 * ruler.rem}px ${fontFamily}`;
  }
  const fits = (letters) => ruler.pen.measureText(letters).width <= rem * ruler.rem, letters = [...text];
  if (fits(text)) return text;
  while (letters.length > 1 && !fits(`${letters.join("")}…`)) letters.pop();
  return `${letters.join("")}…`;
}
/** Pixels of a canvas for one of the page's. */
const ratioOfPixels = () => Math.min(2, devicePixelRatio || 1);
export const nameOfHead = (layer, head) => `Layer ${layer} head ${head}`;
/** @param {string} colour "#rrggbb" @returns {number[]} */
export const rgbOf = (colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));

let scheme = null; // asking for a style makes the browser lay out the page, so the answers are kept
/** The colours of the page's scheme. */
export function colours() {
  if (scheme) return scheme;
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(`--${name}`).trim();
  return (scheme = { rgb: rgbOf(of("accent")), accent: of("accent"), ink: of("ink"), quiet: of("quiet"), line: of("line"), panel: of("panel") });
}
export const forgetColours = () => (scheme = null);

// Tips ==============================================================================================

let tip = null, tipOf = null; // the element with the focus, if the tip is about that
export function placeTip(x, above, below, text) {
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(Math.min(x, innerWidth - tip.offsetWidth - 8), 4)}px`;
  tip.style.top = `${Math.max(fits ? below : above - tip.offsetHeight, 4)}px`;
}
function tipUnder(element) {
  const box = element.getBoundingClientRect(), isSeen = box.bottom > 0 && box.top < innerHeight;
  tipOf = element;
  placeTip(box.left, box.top - 6, box.bottom + 6, (isSeen && element.dataset.tip) || "");
}
export function hideTip() {
  tipOf = null;
  tip.hidden = true;
}
/** From here on, whatever has data-tip shows it under the pointer and with the focus. */
export function showTips() {
  tip = document.querySelector("main").appendChild(make("div", { id: "tip", role: "tooltip", hidden: true }));
  addEventListener("pointermove", (event) => {
    if (event.target.closest("canvas")) return;
    const from = event.target.closest("[data-tip]");
    if (!from && tip.hidden) return;
    tipOf = null;
    placeTip(event.clientX + 12, event.clientY - 10, event.clientY + 18, from ? from.dataset.tip : "");
  });
  addEventListener("focusin", (event) => event.target.dataset.tip && tipUnder(event.target));
  addEventListener("focusout", hideTip);
  addEventListener("scroll", () => (tipOf ? tipUnder(tipOf) : hideTip()), true);
  addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
}

/** Arrow keys, Home and End among the parts of a box, of which one is in the order of Tab.
 * @param {HTMLElement} box @param {string} selector of the parts @param {() => number} perRow */
export function arrows(box, selector, perRow) {
  const first = box.querySelector(selector);
  if (first && !box.querySelector(`${selector}[tabindex="0"]`)) first.tabIndex = 0;
  const go = (part) => {
    const old = box.querySelector(`${selector}[tabindex="0"]`);
    if (old) old.tabIndex = -1;
    part.tabIndex = 0;
    if (part.dataset.tip) part.setAttribute("aria-describedby", "tip");
    part.focus();
  };
  box.addEventListener("click", (event) => event.target.closest(selector) && go(event.target.closest(selector)));
  box.addEventListener("keydown", (event) => {
    const all = [...box.querySelectorAll(selector)], i = all.indexOf(event.target), row = perRow(), start = i - (i % row);
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, ArrowDown: i + row, ArrowUp: i - row, Home: row > 1 ? start : 0, End: row > 1 ? start + row - 1 : all.length - 1 }[event.key];
    if (i < 0 || !all[to]) return;
    go(all[to]);
    if (all[to].dataset.tip) tipUnder(all[to]);
    event.preventDefault();
  });
}

// Tables ============================================================================================

/** Makes `table` one with labels and without cells.
 * @param {HTMLTableElement} table @param {{corner: string, columns: string[], rows: string[]}} labels */
export function makeTable(table, { corner, columns, rows }) {
  const label = (scope) => (textContent) => make("th", { scope, textContent });
  table.replaceChildren(make("thead", {}, make("tr", {}, make("th", { textContent: corner }), ...columns.map(label("col")))),
    make("tbody", {}, ...rows.map((text) => make("tr", {}, label("row")(text)))));
}
/** Whether a tint has more than the full colour. */
export const isBeyond = (tint) => Math.abs(tint) > 1.005;
/** A cell on a ground of -1 (all of the other colour) to 1 (all of the accent); beyond that it has a
 * frame. @param {string | Node} content @param {number} tint @param {string} [text] of the tip */
export function makeCell(content, tint, text) {
  const cell = make("td", { className: (tint < 0 ? "negative" : "") + (isBeyond(tint) ? " beyond" : "") }, content);
  cell.style.setProperty("--amount", Math.min(1, Math.abs(tint) || 0).toFixed(3));
  if (text) cell.dataset.tip = text;
  return cell;
}

// Heads =============================================================================================

const SMALL = 256;
/** The pattern of a head, on a canvas that is not in the page: a pixel is a weight, or in a long text the largest of several. */
export class Small {
  /** @param {(query: number, key: number) => number} weight */
  constructor(weight) {
    Object.assign(this, { canvas: make("canvas", { width: 1, height: 1 }), weight, painted: 0, step: 1, line: null });
  }
  /** Marks all rows as not painted. */
  clear() {
    this.painted = 0;
    this.step = 1;
  }
  /** Makes room for n rows: a larger canvas, or pixels of more weights, which halves what is there. */
  #makeRoom(n) {
    const { canvas } = this, side = n <= SMALL / 4 ? SMALL / 4 : SMALL, step = 2 ** Math.max(0, Math.ceil(Math.log2(n / SMALL)));
    if (canvas.width === side && this.step === step) return;
    const old = canvas.width > 1 && this.painted ? make("canvas", { width: canvas.width, height: canvas.height }) : null, scale = this.step / step;
    old?.getContext("2d").drawImage(canvas, 0, 0);
    canvas.width = canvas.height = side;
    this.pen = canvas.getContext("2d");
    if (old) this.pen.drawImage(old, 0, 0, old.width * scale, old.height * scale);
    this.step = step;
    this.line = null;
  }
  /** Paints the rows up to n that are not there yet. @param {number} n */
  paint(n) {
    if (n <= this.painted) return;
    if (!this.painted) this.canvas.width = 1;
    this.#makeRoom(n);
    const { canvas, step, weight } = this, { rgb } = colours(), side = canvas.width, top = Math.floor(this.painted / step);
    const image = this.pen.createImageData(side, Math.floor((n - 1) / step) - top + 1);
    if (this.line) image.data.set(this.line); // a row of pixels that is not complete
    for (let q = this.painted; q < n; q++)
      for (let k = 0, row = (Math.floor(q / step) - top) * side; k <= q; k++) {
        const at = 4 * (row + Math.floor(k / step));
        image.data[at] = rgb[0];
        image.data[at + 1] = rgb[1];
        image.data[at + 2] = rgb[2];
        image.data[at + 3] = Math.max(image.data[at + 3], 10 + 245 * strength(weight(q, k)));
      }
    this.pen.putImageData(image, 0, top);
    this.line = n % step ? image.data.slice(-4 * side) : null;
    this.painted = n;
  }
}

/** Heads at a glance: buttons, a row of them for each layer, with labels before them, and their patterns. All patterns
 * are on one canvas over the buttons, as each canvas would cost the browser time at every frame. */
export class Heads {
  /** @param {HTMLElement} box @param {[number, number][]} heads layers and heads, row by row @param {number} columns
   * @param {((query: number, key: number) => number)[]} weights of each head */
  constructor(box, heads, columns, weights) {
    const label = (text) => make("span", { textContent: text, "aria-hidden": "true" });
    this.small = weights.map((weight) => new Small(weight));
    this.pale = []; // whether a head is switched off
    this.shown = []; // what the canvas shows of each head
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.room = 0;
    this.buttons = heads.map(([layer, head], i) => {
      const name = nameOfHead(layer, head), button = make("button", { type: "button", className: "head", tabIndex: i ? -1 : 0, "aria-label": name, "aria-pressed": "false" });
      button.dataset.tip = name;
      return button;
    });
    box.style.setProperty("--heads", columns);
    box.style.setProperty("--layers", Math.ceil(heads.length / columns));
    box.replaceChildren(label("layer\\\u200bhead"), ...heads.slice(0, columns).map(([, head]) => label(head)), ...this.buttons.flatMap((button, i) => (i % columns ? [button] : [label(heads[i][0]), button])), this.canvas);
    new ResizeObserver(() => this.measure()).observe(this.canvas);
    this.measure();
  }
  /** Reads where the buttons are, gives the canvas its size in pixels, and draws anew. */
  measure() {
    const { canvas } = this, ratio = ratioOfPixels(), { offsetLeft, offsetTop } = canvas;
    this.ratio = ratio;
    this.places = this.buttons.map((b) => [b.offsetLeft + b.clientLeft - offsetLeft + 2, b.offsetTop + b.clientTop - offsetTop + 2, b.clientWidth - 4].map((x) => Math.round(x * ratio)));
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    this.pen = canvas.getContext("2d");
    this.shown = [];
    this.show();
  }
  /** Marks all rows as not painted. The old pictures may stay until they are. @param {boolean} stay */
  clear(stay = false) {
    for (const small of this.small) small.clear();
    this.shown = [];
    if (!stay) this.measure();
  }
  /** Paints the rows up to n, those heads first that lack most, and shows them with room for so many rows. Returns
   * whether all are painted. @param {number} n @param {number} [room] @param {number} [time] milliseconds that it may take */
  paint(n, room = n, time = Infinity) {
    const end = performance.now() + time, behind = this.small.filter(({ painted }) => painted < n).sort((a, b) => a.painted - b.painted);
    for (const small of behind) if (performance.now() < end) small.paint(Math.min(n, small.painted + 64));
    this.room = room;
    if (this.ratio === ratioOfPixels()) this.show();
    else this.measure();
    return this.small.every(({ painted }) => painted >= n);
  }
  /** Brings the canvas up to date. */
  show() {
    const { pen, pale, room, shown } = this;
    this.small.forEach(({ canvas, painted, step }, i) => {
      const now = `${painted} ${room} ${pale[i]}`, [x, y, side] = this.places[i];
      if (!painted || now === shown[i]) return;
      shown[i] = now;
      pen.clearRect(x, y, side, side);
      pen.globalAlpha = pale[i] ? 0.25 : 1;
      pen.imageSmoothingEnabled = room > side * step;
      pen.drawImage(canvas, 0, 0, room / step, room / step, x, y, side, side);
    });
  }
}

// One head, large ===================================================================================

/** One head with its tokens beside it. It scrolls, and draws what is in sight alone, so that a text of
 * any length has room. `weight`, `labels` and `n` may change at any time; draw() shows it. */
export class Large {
  /** @param {HTMLElement} box an empty one, of a size that its content does not change, or with a max-height
   * @param {{onLook: (query: number, key?: number) => void}} events */
  constructor(box, { onLook }) {
    this.labels = []; // as they are shown
    this.weight = () => 0;
    this.query = 0; // whose row has a frame
    this.over = null; // {q, k}: the weight that is pointed at
    this.longest = 6;
    this.x = this.y = 0; // how far it is scrolled: to ask the box would lay out the page anew
    this.box = box;
    this.onLook = onLook;
    this.space = make("div");
    this.canvas = make("canvas", { role: "img" });
    box.replaceChildren(this.space, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#leave());
    box.addEventListener("keydown", (event) => this.#press(event));
    box.addEventListener("scroll", () => this.#scrolled());
    new ResizeObserver(() => this.measure()).observe(box);
    this.measure();
  }
  get n() { return this.labels.length; }
  measure() {
    const most = parseFloat(getComputedStyle(this.box).maxHeight); // of a box that is as high as its picture, up to that
    this.most = most;
    this.width = this.box.clientWidth;
    this.height = most && !this.isFull ? most : this.box.clientHeight;
    this.all = 0;
    this.draw();
  }
  setLabels(labels) {
    for (let i = labels.length < this.n ? 0 : this.n; i < labels.length; i++) this.longest = Math.max(this.longest, [...labels[i]].length);
    this.labels = labels;
  }
  #layOut() {
    this.margin = Math.min(this.width < 480 ? 80 : 120, this.longest * 8 + 14);
    const room = Math.min(this.width, this.height) - this.margin - 4;
    this.cell = Math.max(16, Math.min(44, Math.floor(room / this.n)));
    const all = this.margin + this.n * this.cell + 2;
    if (all === this.all) return;
    this.all = all;
    this.space.style.width = this.space.style.height = `${all}px`;
    if (!this.most) return;
    this.isFull = all > this.most - 40; // a cell loses up to a pixel, and so the picture some while it grows
    this.box.style.height = this.isFull ? `${this.most}px` : `${all}px`;
  }
  draw() {
    const { canvas, n, query, over } = this;
    if (!n || !this.width) return (canvas.width = canvas.height = 0);
    this.#layOut();
    const { margin, cell, all } = this, w = Math.min(all, this.width), h = Math.min(all, this.height), ratio = ratioOfPixels();
    const x0 = margin - this.x, y0 = margin - this.y, { ink, quiet } = colours();
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
      canvas.style.width = `${w}px`;
      canvas.style.height = `${h}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    const part = { q0: Math.max(0, Math.floor((margin - y0) / cell)), q1: Math.min(n, (h - y0) / cell), k0: Math.max(0, Math.floor((margin - x0) / cell)), k1: Math.min(n, (w - x0) / cell) };
    this.#drawWeights(pen, x0, y0, part);
    pen.lineWidth = 1;
    pen.strokeStyle = quiet;
    if (query < n) pen.strokeRect(x0, y0 + query * cell, (query + 1) * cell - 1, cell - 1);
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    if (over) pen.strokeRect(x0 + over.k * cell, y0 + over.q * cell, cell - 1, cell - 1);
    this.#drawLabels(pen, { w, h, x0, y0, ...part });
  }
  #drawWeights(pen, x0, y0, { q0, q1, k0, k1 }) {
    const { cell } = this, { rgb, line } = colours();
    pen.fillStyle = line;
    pen.globalAlpha = 0.2;
    for (let q = q0; q < q1; q++)
      for (let k = Math.max(q + 1, k0); k < k1; k++) pen.fillRect(x0 + k * cell, y0 + q * cell, cell - 1, cell - 1);
    pen.fillStyle = `rgb(${rgb})`;
    for (let q = q0; q < q1; q++)
      for (let k = k0; k < Math.min(q + 1, k1); k++) {
        pen.globalAlpha = 0.03 + 0.97 * strength(this.weight(q, k));
        pen.fillRect(x0 + k * cell, y0 + q * cell, cell - 1, cell - 1);
      }
    pen.globalAlpha = 1;
  }
  #drawLabels(pen, { w, h, x0, y0, q0, q1, k0, k1 }) {
    const { margin, cell, labels, query, over } = this, { ink, quiet, panel } = colours();
    const most = Math.floor((margin - 10) / 8);
    const cut = (text) => (text.length > most ? [...text].slice(0, most - 1).join("") + "…" : text);
    pen.font = "13px ui-monospace, Menlo, Consolas, monospace";
    pen.textBaseline = "middle";
    pen.fillStyle = panel;
    pen.fillRect(0, 0, w, margin - 1);
    pen.fillRect(0, 0, margin - 1, h);
    pen.textAlign = "right";
    for (let q = q0; q < q1; q++) {
      if (y0 + (q + 0.5) * cell < margin) continue;
      pen.fillStyle = q === query ? ink : quiet;
      pen.fillText(cut(labels[q]), margin - 6, y0 + (q + 0.5) * cell);
    }
    pen.textAlign = "left";
    pen.rotate(-Math.PI / 2);
    for (let k = k0; k < k1; k++) {
      if (x0 + (k + 0.5) * cell < margin) continue;
      pen.fillStyle = over?.k === k ? ink : quiet;
      pen.fillText(cut(labels[k]), 6 - margin, x0 + (k + 0.5) * cell);
    }
    pen.rotate(Math.PI / 2);
    pen.fillStyle = panel;
    pen.fillRect(0, 0, margin - 1, margin - 1);
    pen.fillStyle = quiet;
    pen.fillText("key →", margin - 46, 12);
    pen.fillText("query ↓", 6, margin - 12);
  }
  /** Draws with a weight in sight, scrolled to where it is not. */
  reveal(q, k) {
    if (!this.n || !this.width) return this.draw();
    this.#layOut();
    const shift = (place, size, now) => Math.max(Math.min(now, place), place + this.margin + this.cell - size);
    this.box.scrollTo({ left: shift(k * this.cell, this.width, this.x), top: shift(q * this.cell, this.height, this.y), behavior: "instant" });
    this.x = this.box.scrollLeft;
    this.y = this.box.scrollTop;
    this.draw();
  }
  #scrolled() {
    const { scrollLeft, scrollTop } = this.box, isElsewhere = this.x !== scrollLeft || this.y !== scrollTop;
    this.x = scrollLeft;
    this.y = scrollTop;
    if (isElsewhere) this.draw();
  }
  look(query, key) {
    this.query = query;
    this.onLook(query, key);
    this.draw();
  }
  tell() {
    const { over: { q, k }, labels } = this;
    return `query ${q}  ${labels[q]}\nkey ${k}  ${labels[k]}\nweight ${this.weight(q, k).toFixed(3)}`;
  }
  #point(event) {
    const { canvas, margin, cell, n } = this, place = canvas.getBoundingClientRect();
    const x = event.clientX - place.left, y = event.clientY - place.top;
    const k = Math.floor((x - margin + this.x) / cell), q = Math.floor((y - margin + this.y) / cell);
    this.over = x >= margin && y >= margin && k <= q && q < n ? { q, k } : null;
    placeTip(event.clientX + 12, event.clientY - 10, event.clientY + 18, this.over ? this.tell() : "");
    if (this.over) this.look(q, k);
    else this.draw();
  }
  #leave() {
    this.over = null;
    hideTip();
    this.draw();
  }
  #press(event) {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!way || !this.n || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { over, query, n } = this, q = Math.max(0, Math.min(n - 1, (over ? over.q : query) + way[0]));
    this.over = { q, k: Math.max(0, Math.min(q, (over ? over.k : q) + way[1])) };
    event.preventDefault();
    event.stopPropagation();
    this.reveal(q, this.over.k);
    this.look(q, this.over.k);
    const place = this.box.getBoundingClientRect(), x = place.left + this.margin - this.x, y = place.top + this.margin - this.y + q * this.cell;
    placeTip(x + this.over.k * this.cell, y - 4, y + this.cell + 4, this.tell());
  }
}

/** Where a query looks, in words: the weights of at least 0.0005, at most four.
 * @param {number} query @param {string[]} labels @param {(key: number) => number} weight */
export function sayAttention(query, labels, weight) {
  const most = Array.from({ length: query + 1 }, (_, k) => k).sort((a, b) => weight(b) - weight(a)).filter((k, i) => i === 0 || weight(k) >= 0.0005).slice(0, 4);
  return `${query} ${labels[query]} attends to ` + most.map((k) => `${k} ${labels[k]} ${isNaN(weight(k)) ? "not a number" : `${(100 * weight(k)).toFixed(1)} %`}`).join(", ");
}

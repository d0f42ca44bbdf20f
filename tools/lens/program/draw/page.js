// A page of lens, from the JSON in it: tables of cells, a text on tinted ground, or patterns of heads.

import { Heads, Large, arrows, forgetColours, hideTip, isBeyond, make, makeCell, makeTable, nameOfHead, sayAttention, showTips, strength } from "../../examples/web/draw.js";

const data = JSON.parse(document.getElementById("data").textContent), main = document.querySelector("main");

/** What the tints mean: `scale` is a class of page.css. */
function legend(low, scale, high, beyond = 0) {
  const line = make("p", { className: "legend small" }, low, make("span", { className: `scale ${scale}` }), high);
  if (beyond) line.append(make("span", { className: "scale beyond" }), `beyond the scale (${beyond} cell${beyond === 1 ? "" : "s"})`);
  return line;
}
const hint = (place) => make("p", { className: "small" }, `Point at a ${place}, or go to it with Tab and the arrow keys: it tells more.`);

function showTable({ title, corner, low, high, rows, columns, cells }, place = main) {
  const table = make("table", { "aria-label": title });
  makeTable(table, { corner, rows, columns });
  cells.forEach(([tint, text, more], i) => table.tBodies[0].rows[Math.floor(i / columns.length)].append(makeCell(text, tint, more)));
  for (const cell of table.querySelectorAll("td")) cell.tabIndex = -1;
  arrows(table.tBodies[0], "td", () => columns.length);
  place.append(make("h2", { textContent: title }), legend(low ?? "0", low === null ? "from0" : "both", high, cells.filter(([tint]) => isBeyond(tint)).length),
    make("div", { className: "scroll" }, table));
}

function makeWords(words, label) {
  const box = make("div", { className: "words", role: "listbox", "aria-label": label });
  for (const [tint, text, breaks, more] of words) {
    const word = make("span", { className: tint < 0 ? "negative" : "", role: "option", textContent: text, tabIndex: -1 });
    word.style.setProperty("--amount", Math.min(1, Math.abs(tint) || 0).toFixed(3));
    if (more) word.dataset.tip = more;
    box.append(word, ...(breaks ? [make("br")] : []));
  }
  arrows(box, "span", () => 1);
  return box;
}

/** Two digits of base 64 for each weight of the lower triangle; "--" is no number. */
const weightsOf = (digits) => (q, k) => {
  const at = q * (q + 1) + 2 * k, digit = (i) => digits.charCodeAt(i) - 48;
  return digit(at) < 0 ? NaN : (digit(at) * 64 + digit(at + 1)) / 4095;
};

class Patterns {
  constructor({ words, tokens, heads, columns }) {
    this.heads = heads;
    this.columns = columns;
    this.weights = [...document.querySelectorAll("script.head")].map((script) => weightsOf(script.textContent));
    this.grid = make("div", { id: "heads", className: "heads", role: "group", "aria-label": "heads" });
    this.name = make("h2", { id: "head", "aria-live": "polite" });
    this.words = makeWords(words, "the text: choose the token that attends");
    this.said = make("p", { id: "said", className: "small", "aria-live": "polite" });
    const box = make("div", { id: "large", className: "large", tabIndex: 0, role: "region", "aria-label": "the chosen head, large" });
    this.both = make("div", { id: "both" }, this.grid, make("div", { id: "one" }, this.name, this.words, this.said, box));
    main.append(legend("0", "roots", data.high), this.both);
    this.pictures = new Heads(this.grid, heads, columns, this.weights);
    this.buttons = this.pictures.buttons;
    this.large = new Large(box, { onLook: (query) => this.say(query) });
    this.large.query = tokens.length - 1;
    this.large.setLabels(tokens);
    this.listen();
    this.choose(Math.max(0, heads.findIndex((head) => `#${head.join(".")}` === location.hash)));
    this.arrange();
    this.paint();
  }
  paint() {
    this.pictures.clear();
    while (!this.pictures.paint(this.large.n));
  }
  arrange() {
    const isBeside = getComputedStyle(this.both).flexDirection === "row";
    const room = this.both.clientWidth * (isBeside ? 0.45 : 1) - this.grid.firstChild.offsetWidth - 24;
    this.grid.style.setProperty("--size", `${Math.max(22, Math.min(88, Math.floor(room / this.columns) - 6))}px`);
    this.large.measure();
  }
  /** The text on the tints of one query's attention, and its largest weights in words. */
  say(query) {
    const weight = (key) => this.weights[this.chosen](query, key);
    [...this.words.querySelectorAll("span")].forEach((word, k) => {
      word.classList.toggle("later", k > query);
      word.style.setProperty("--amount", k > query ? 0 : strength(weight(k)).toFixed(3));
      word.setAttribute("aria-selected", k === query);
    });
    this.said.textContent = sayAttention(query, this.large.labels, weight);
  }
  choose(i) {
    this.chosen = i;
    this.large.weight = this.weights[i];
    this.name.textContent = nameOfHead(...this.heads[i]);
    this.large.canvas.setAttribute("aria-label", `attention pattern of ${nameOfHead(...this.heads[i])}`);
    this.buttons.forEach((button, j) => {
      button.setAttribute("aria-pressed", j === i);
      button.tabIndex = j === i ? 0 : -1;
    });
    this.large.look(this.large.query);
  }
  follow(i) {
    this.choose(i);
    history.replaceState(null, "", `#${this.heads[i].join(".")}`);
    this.buttons[i].scrollIntoView({ block: "nearest", inline: "nearest" });
    this.both.scrollIntoView({ block: "nearest" });
  }
  stepHead(row, column) {
    const x = (this.chosen % this.columns) + column, next = this.chosen + row * this.columns + column;
    if (x < 0 || x >= this.columns || !this.buttons[next]) return;
    this.follow(next);
    if (this.grid.contains(document.activeElement)) this.buttons[next].focus();
  }
  listen() {
    const { large } = this;
    this.buttons.forEach((button, i) => (button.onclick = () => this.follow(i)));
    this.words.querySelectorAll("span").forEach((word, q) => {
      word.addEventListener("pointerenter", () => large.look(q));
      word.addEventListener("focus", () => {
        large.reveal(q, Math.min(q, large.over?.k ?? 0));
        large.look(q);
      });
    });
    addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!way || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest?.(".words")) return;
      event.preventDefault();
      this.stepHead(...way);
    });
    addEventListener("resize", () => this.arrange());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      forgetColours();
      hideTip();
      this.paint();
      large.draw();
    });
  }
}

/** The nodes of a graph: the one that is chosen has its edges lit, and listed below, beside its own tokens and what was claimed and measured.
 *  Features chosen with Shift are a group, in the words that --group reads. */
function showParts(svg) {
  const parts = [...svg.querySelectorAll(".part")], edges = [...svg.querySelectorAll("[data-weight]")];
  const told = new Map(parts.map((part) => [part.dataset.node, part.querySelector("title").textContent.split("\n")])), named = (node) => told.get(node)[0];
  const name = make("h2", { "aria-live": "polite" }), said = make("div", { id: "edges", role: "region", "aria-label": "the chosen node" });
  const list = (title, ends, other) => {
    const found = ends.sort((a, b) => Math.abs(b.dataset.weight) - Math.abs(a.dataset.weight)).slice(0, 20), most = Math.abs(found[0]?.dataset.weight);
    if (most) showTable({ title, corner: "node", low: (-most).toPrecision(3), high: most.toPrecision(3), rows: found.map((edge) => named(edge.dataset[other])),
      columns: ["weight"], cells: found.map(({ dataset: { weight } }) => [weight / most, (+weight).toFixed(3)]) }, said);
  };
  const bar = (name, value, most) => make("p", { className: "effect" }, `${name} ${(+value).toFixed(3)} `,
    make("span", { className: `scale ${value < 0 ? "negative" : ""}`, style: `width: ${((12 * Math.abs(value)) / most).toFixed(2)}em` }));
  const choose = (part) => {
    const { node, claimed, measured } = part.dataset, most = Math.max(Math.abs(claimed), Math.abs(measured)) || 1;
    svg.classList.add("chosen");
    for (const other of parts) other.setAttribute("aria-pressed", other === part);
    for (const edge of edges) edge.classList.toggle("lit", edge.dataset.from === node || edge.dataset.to === node);
    name.textContent = named(node);
    said.replaceChildren(...told.get(node).slice(1).map((line) => make("p", { textContent: line })));
    if (claimed) said.append(bar("switched off, claimed", claimed, most), bar("measured", measured, most));
    list("strongest edges into it", edges.filter((edge) => edge.dataset.to === node), "from");
    list("strongest edges out of it", edges.filter((edge) => edge.dataset.from === node), "to");
  };
  const features = parts.filter((part) => part.querySelector("circle") && /^\d+\.\d+\.\d+ /.test(named(part.dataset.node)));
  const group = make("pre", { id: "group", tabIndex: 0, ariaLabel: "the group", hidden: true }), isIn = (part) => part.classList.contains("grouped");
  const take = (part, withShift) => {
    if (!withShift) return choose(part);
    if (!features.includes(part)) return;
    part.classList.toggle("grouped");
    group.textContent = JSON.stringify({ chosen: features.filter(isIn).map((one) => `feature ${named(one.dataset.node).split(" ")[0]}`) });
    group.hidden = !features.some(isIn);
  };
  svg.setAttribute("role", "group");
  for (const part of parts) {
    part.setAttribute("role", "button");
    part.setAttribute("aria-label", named(part.dataset.node));
    part.dataset.tip = told.get(part.dataset.node).join("\n");
    part.querySelector("title").remove();
    part.tabIndex = -1;
    part.addEventListener("click", (event) => take(part, event.shiftKey));
    part.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      take(part, event.shiftKey);
    });
  }
  arrows(svg, ".part", () => 1);
  const more = features.length ? " With Shift, features make a group: --check --group FILE.json switches those of the line below off together." : "";
  main.append(make("p", { className: "small" }, `Choose a node, or go to one with Tab and the arrow keys and press Enter: its tokens and edges are listed here.${more}`),
    group, name, said);
}

showTips();
document.querySelectorAll("figure svg").forEach((svg) => svg.querySelector(".part") && showParts(svg));
if (data.tables) main.append(hint("cell")), data.tables.forEach((table) => showTable(table));
else if (data.heads) new Patterns(data);
else main.append(hint("token"), legend("0", "other", data.high), makeWords(data.words, "the text, token by token"));

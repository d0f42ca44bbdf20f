// The part Surprisal: how surprising each word of some sentences or of a table's column is. The model measures a
// few texts at a time, between what the rest of the page wants of it. The rows are those of the program surprisal.

import { arrows, make, percent } from "./draw.js";

/** The records of a CSV text with commas, by RFC 4180. @param {string} text */
export function recordsOf(text) {
  const records = [];
  for (let at = 0, record = []; at < text.length; ) {
    let field = "";
    if (text[at] === '"')
      for (at++; at < text.length && (text[at] !== '"' || text[++at] === '"'); at++) field += text[at];
    while (at < text.length && text[at] !== "," && text[at] !== "\n") field += text[at++];
    record.push(field);
    if (text[at++] === "," && at < text.length) continue;
    records.push(record);
    record = [];
  }
  return records;
}

const MOST_SHOWN = 2000; // words: more would make the page slow
const OF = { text: 0, index: 1, word: 2, tokens: 3, surprisal: 4, uncorrected: 5, entropy: 6 }; // columns; options add others behind
const ADDED = { entropy_reduction: "which it lowers by", renyi: "Rényi’s entropy before it" };
const KINDS = { word: "words", token: "tokens", region: "regions" };
const FULL = { bits: 20, nats: 14 }; // a surprisal that has the full tint

let sentences = null; // what stands in place of the typed sentences: {name, bytes, isTable}
let naming = null; // such a table, as long as the page does not know its columns
let goOn = () => {}; // has the page do what is wanted
let measuring = null; // the run that is wanted: {text, options, isBegun, isLeft, begin}
let measured = null; // what came of the latest one: {text, options, pieces of CSV, n, sum, isWhole, ...}
const $s = (id) => document.getElementById(id);
const setOrEmpty = (id, text) => $s(id).textContent !== text && ($s(id).textContent = text);

export const isMeasuring = () => measuring !== null;

/** Takes the next step. @param {(task: string, data: object) => Promise<object>} ask the worker */
export async function measure(ask) {
  const mine = measuring, { text, options } = mine;
  if (mine.isLeft) {
    measuring = null;
    await ask("measure", {});
    return;
  }
  let answer;
  try {
    answer = await ask("measure", mine.isBegun ? { isMore: true } : { text, options });
  } catch (error) {
    if (mine === measuring) {
      forgetMeasured();
      setOrEmpty("measure-problem", error.message);
    }
    return;
  }
  if (mine !== measuring || mine.isLeft) return;
  if (!mine.isBegun) {
    measured = { text, options, pieces: [], notes: [], n: 0, sum: 0, isWhole: false };
    for (const id of ["measured", "measured-suite"]) $s(id).replaceChildren();
    for (const id of ["measured-word", "measured-note"]) setOrEmpty(id, "");
    mine.begin = performance.now();
  }
  mine.isBegun = true;
  take(answer);
  if (answer.done >= 1) {
    measured.isWhole = true;
    measuring = null;
  }
  showMeasuring(answer.done);
}

/** Takes in some rows, and shows them if there is room. */
function take({ csv, notes }) {
  const { pieces, options } = measured, rows = recordsOf(csv), list = $s("measured");
  if (options.suite) $s("measured-suite").append(...rows.slice(0, MOST_SHOWN).map((row, i) => make("tr", {}, ...row.map((textContent) => (measured.names || i ? make("td", { className: "number", textContent }) : make("th", { scope: "col", textContent }))))));
  measured.names ??= rows.shift();
  pieces.push(csv);
  measured.notes.push(...notes);
  if (options.suite) measured.n += rows.length;
  else for (const row of rows) {
    const value = Number(row[OF.surprisal]), isToken = options.by === "token";
    measured.n++;
    if (isFinite(value)) measured.sum += value;
    if (measured.n > MOST_SHOWN) continue;
    let item = list.lastChild;
    if (item?.dataset.text !== row[OF.text]) {
      item = list.appendChild(make("li", { value: row[OF.text] }));
      item.dataset.text = row[OF.text];
    }
    const word = make("span", { role: "button", tabIndex: list.querySelector(".said") ? -1 : 0, className: "said", "aria-pressed": "false", textContent: isToken ? row[measured.names.indexOf("token")] : row[OF.word] });
    word.dataset.tip = sayWord(row, options, measured.names);
    word.classList.toggle("beyond", value > FULL[options.unit]);
    word.style.setProperty("--amount", Math.min(1, Math.max(0, value / FULL[options.unit]) || 0).toFixed(3));
    item.append(word, ...(isToken ? [] : [" "]));
  }
}
function sayWord(row, { by, unit, rank, top }, names) {
  const of = (name) => row[names.indexOf(name)], number = (name) => (of(name) === "NA" ? "not known" : `${of(name)} ${unit}`), n = row[OF.tokens];
  const more = names.slice(OF.entropy + 1).filter((name) => /^surprisal\./.test(name) || name in ADDED).map((name) => `\n${ADDED[name] ?? `by layer ${name.slice(10)}`} ${number(name)}`).join("");
  const likely = Array.from({ length: Math.min(top, 5) }, (_, i) => `“${of(`top${i + 1}`)}” ${of(`top${i + 1}_probability`)}`);
  const what = by === "region" ? `Region ${row[OF.index]}, “${row[OF.word]}”` : by === "token" ? `Token “${of("token")}” of word ${row[OF.index]}, “${row[OF.word]}”` : `Word ${row[OF.index]}, “${row[OF.word]}”, ${n === "1" ? "1 token" : `${n} tokens`}`;
  return `${what}\nsurprisal ${number("surprisal")}\nuncorrected ${number("uncorrected")}\nentropy before it ${number("entropy")}${more}${rank ? `\nrank ${of("rank")}` : ""}${top ? `\nexpected ${likely.join(", ")}` : ""}`;
}

/** Brings buttons, progress and the sentences below them up to date. */
function showMeasuring(done = 0) {
  const isOn = isMeasuring() && !measuring.isLeft, hadFocus = document.activeElement === $s("measure-stop");
  $s("measure-stop").disabled = !isOn;
  if (hadFocus && !isOn) $s("measure").focus({ preventScroll: true });
  $s("measure-progress").hidden = !isOn;
  $s("measure-progress").value = done;
  const seconds = isOn && done > 0 ? ((performance.now() - measuring.begin) / 1000) * (1 / done - 1) : 0;
  setOrEmpty("measure-left", !isOn ? "" : `${percent(done)}${seconds > 1 ? `, ${Math.ceil(seconds)} s left` : ""}`);
  $s("measure-csv").disabled = !measured?.n;
  if (isOn || !measured) return;
  const { n, sum, notes, options, isWhole } = measured, kind = KINDS[options.by];
  const says = [options.suite ? `${n.toLocaleString("en")} rows.` : `${n.toLocaleString("en")} ${kind}, ${n ? (sum / n).toFixed(2) : 0} ${options.unit} each on average.`];
  if (!isWhole) says.unshift("Cancelled: the rest was not measured.");
  if (n > MOST_SHOWN) says.push(`The first ${MOST_SHOWN.toLocaleString("en")} are shown; the CSV has all.`);
  setOrEmpty("measured-note", [...says, ...notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`)].join(" "));
  setOrEmpty("measured-most", `${FULL[options.unit]} ${options.unit}`);
}

/** What the reader chose. */
function wishOfReader() {
  const whole = (id, none = null) => ($s(id).value.trim() === "" ? none : Number($s(id).value));
  const options = {
    name: sentences?.name ?? "the text", column: sentences?.isTable ? $s("column").value : null, regions: $s("measure-regions").value || null, layers: $s("measure-layers").value.trim() || null, tuned,
    regionNames: sentences?.isTable && $s("region-names").selectedIndex > 0 ? $s("region-names").value : null, rank: $s("measure-rank").checked, top: whole("measure-top", 0), entropyReduction: $s("measure-reduction").checked, renyi: whole("measure-renyi"), spillover: whole("measure-spillover", 0), stride: whole("measure-stride"), by: $s("measure-by").value, unit: $s("measure-unit").value,
    punctuation: $s("measure-apart").checked ? "apart" : "word", continues: $s("measure-continues").checked, bos: $s("measure-bos").checked,
  };
  if (sentences && $s("measure-suite").checked) {
    const { name, by, unit, punctuation, bos } = options;
    const suite = { suite: true, pair: $s("measure-pair").value || null, group: $s("measure-group").value || null, corrected: $s("measure-corrected").checked };
    return { text: sentences.bytes, options: { name, by, unit, punctuation, bos, ...suite }, isBegun: false, isLeft: false, begin: 0 };
  }
  return { text: sentences?.bytes ?? $s("sentences").value, options, isBegun: false, isLeft: false, begin: 0 };
}

let tuned = null; // the bytes of a lens for the layers
let taking = null; // the newest file, which is being read
/** Measures a file in place of the typed sentences. @param {File | null} file null: the typed ones again */
export async function takeSentences(file) {
  taking = file;
  const bytes = file && new Uint8Array(await file.arrayBuffer()), isTable = !!file && /\.(csv|tsv)$/i.test(file.name);
  if (file !== taking) return;
  sentences = file && { name: file.name, bytes, isTable };
  $s("measure-suite").checked = /\.jsonl?$/i.test(file?.name ?? "");
  $s("sentences-typed").hidden = !!file;
  $s("sentences-given").hidden = !file;
  $s("column-of").hidden = $s("region-names-of").hidden = !isTable;
  setOrEmpty("sentences-name", file ? `${file.name}${isTable ? "" : ", a text on each line"}.` : "");
  setOrEmpty("measure-problem", "");
  naming = isTable ? sentences : null;
  showColumns([], 0);
  if (isTable) goOn();
}

export const isNaming = () => naming !== null;

/** Asks for the columns of a table. The one with the sentences is found by its name, or by the length of its first text. */
export async function nameColumns(ask) {
  const mine = naming;
  let csv = "";
  try {
    csv = await ask("columns", { bytes: mine.bytes });
  } finally {
    if (mine === naming) naming = null;
    if (mine === sentences) {
      const [names = [], first = []] = recordsOf(csv), size = (i) => first[i]?.length ?? 0;
      const named = names.findIndex((name) => /sentence|text|stimul/i.test(name));
      showColumns(names, named >= 0 ? named : names.reduce((best, _, i) => (size(i) > size(best) ? i : best), 0));
    }
  }
}
function showColumns(names, likely) {
  $s("column").replaceChildren(...names.map((name, i) => make("option", { value: name, textContent: name, selected: i === likely })));
  $s("region-names").replaceChildren(make("option", { textContent: "none" }), ...names.map((name) => make("option", { value: name, textContent: name })));
  $s("measure").disabled = isNaming();
}

/** A model went, or a text was refused, and with it the run. */
export function forgetMeasured() {
  measuring = measured = null;
  for (const id of ["measured", "measured-suite"]) $s(id).replaceChildren();
  for (const id of ["measured-word", "measured-note", "measure-problem"]) setOrEmpty(id, "");
  showMeasuring();
}

/** @param {{fulfil: () => void, save: (name: string, type: string, content: BlobPart) => void}} page */
export function listenToSurprisal({ fulfil, save }) {
  goOn = fulfil;
  $s("measure").onclick = () => {
    measuring = wishOfReader();
    setOrEmpty("measure-problem", "");
    showMeasuring();
    fulfil();
  };
  $s("measure-stop").onclick = () => {
    if (!measuring) return;
    measuring.isLeft = true;
    showMeasuring();
    fulfil();
  };
  $s("measure-csv").onclick = () => save("words.csv", "text/csv", measured.pieces.join(""));
  const choose = (target) => {
    if (!target.classList.contains("said")) return;
    const isChosen = target.getAttribute("aria-pressed") === "true";
    $s("measured").querySelector('[aria-pressed="true"]')?.setAttribute("aria-pressed", "false");
    target.setAttribute("aria-pressed", String(!isChosen));
    setOrEmpty("measured-word", isChosen ? "" : target.dataset.tip.replaceAll("\n", "; "));
  };
  $s("measured").addEventListener("click", ({ target }) => choose(target));
  $s("measured").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(event.target);
  });
  arrows($s("measured"), ".said", () => 1);
  $s("sentences-file").addEventListener("change", () => {
    const [file] = $s("sentences-file").files;
    $s("sentences-file").value = ""; // so that the same file can be opened again
    if (file) takeSentences(file);
  });
  $s("measure-tuned").onchange = async ({ target }) => (tuned = target.files.length ? await target.files[0].arrayBuffer() : null);
  $s("sentences-close").onclick = () => takeSentences(null);
}

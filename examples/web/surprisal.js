// The part Surprisal: how surprising each word of some sentences or of a table's column is. The rows are those of the
// program surprisal.

import { leave, put } from "./ask.js";
import { arrows, make, percent } from "./draw.js";

const MOST_SHOWN = 2000; // words: more would make the page slow
const ADDED = { entropy_reduction: "which it lowers by", renyi: "Rényi’s entropy before it" };
const KINDS = { word: "words", token: "tokens", region: "regions" };
const FULL = { bits: 20, nats: 14 }; // a surprisal that has the full tint

let sentences = null; // what stands in place of the typed sentences: {name, bytes, isTable}
let naming = null; // such a table, as long as the page does not know its columns
let goOn = () => {}; // has the page do what is wanted
let measuring = null; // the run that goes on: {question, text, begin}
let measured = null; // what came of the latest one: {question, text, rows, notes, csv, n, sum, isWhole}
const $s = (id) => document.getElementById(id);
const setOrEmpty = (id, text) => $s(id).textContent !== text && ($s(id).textContent = text);

let vocabulary = new Set(), isIncluded = true; // of the model
export function learnWords(words, isOurs) {
  vocabulary = new Set(words);
  isIncluded = isOurs;
}
/** What to say of a text most of whose words are no tokens of the model, as in another language; "" of others. */
export function sayStrange(text) {
  const list = text.match(/ ?\p{L}+/gu) ?? [], strange = list.filter((word) => !vocabulary.has(word)).length;
  if (3 * strange <= 2 * list.length || (list.length < 3 && !/[^\P{L}\p{Script=Latin}]/u.test(text))) return "";
  return `${strange} of ${list.length} words are not in the model’s vocabulary${isIncluded ? ": it has read English stories for children alone" : ""}. If this is another language, the numbers tell how hard its words are to spell for this model, not how surprising they are to a reader.`;
}

export const isMeasuring = () => measuring !== null;

async function measure() {
  if (measuring) leave(measuring.question);
  const mine = (measuring = wishOfReader());
  setOrEmpty("measure-problem", "");
  showMeasuring();
  try {
    const answer = await put(mine.question, (done) => mine === measuring && showMeasuring(done));
    if (mine === measuring) show({ ...mine, ...answer, rows: answer.tables.rows });
  } catch (error) {
    if (mine !== measuring) return;
    if (mine.question.isLeft) show({ ...mine, rows: {}, notes: [], csv: "", isWhole: false });
    else {
      forgetMeasured();
      setOrEmpty("measure-problem", error.message);
    }
  }
}

/** Shows the rows, if there is room. */
function show(came) {
  const { question, rows } = came, { by, unit } = question.settings, isSuite = question.command === "suite", names = Object.keys(rows), list = $s("measured");
  const isNew = (name, i) => rows[name][i] !== rows[name][i - 1], said = isSuite ? [] : (rows.word ?? []).map((word, i) => (isNew("text", i) ? `\n${word}` : isNew("index", i) ? ` ${word}` : ""));
  measured = { ...came, n: names.length && rows[names[0]].length, sum: 0, strange: sayStrange(said.join("")) };
  measuring = null;
  for (const id of ["measured", "measured-suite"]) $s(id).replaceChildren();
  setOrEmpty("measured-word", "");
  const told = (name, i) => (rows[name][i] === null || Number.isNaN(rows[name][i]) ? "NA" : String(rows[name][i]));
  if (isSuite) {
    $s("measured-suite").append(make("tr", {}, ...names.map((textContent) => make("th", { scope: "col", textContent }))));
    for (let i = 0; i < Math.min(measured.n, MOST_SHOWN); i++) $s("measured-suite").append(make("tr", {}, ...names.map((name) => make("td", { className: "number", textContent: told(name, i) }))));
  } else for (let i = 0; i < measured.n; i++) {
    const value = rows.surprisal[i], isToken = by === "token";
    if (isFinite(value)) measured.sum += value;
    if (i >= MOST_SHOWN) continue;
    let item = list.lastChild;
    if (item?.value !== rows.text[i]) item = list.appendChild(make("li", { value: rows.text[i] }));
    const word = make("span", { role: "button", tabIndex: i ? -1 : 0, className: "said", "aria-pressed": "false", textContent: told(isToken ? "token" : "word", i) });
    word.dataset.tip = sayWord((name) => told(name, i), question.settings, names);
    word.classList.toggle("beyond", value > FULL[unit]);
    word.style.setProperty("--amount", Math.min(1, Math.max(0, value / FULL[unit]) || 0).toFixed(3));
    item.append(word, ...(isToken ? [] : [" "]));
  }
  showMeasuring();
}
function sayWord(of, { by, unit, rank, top }, names) {
  const number = (name) => (of(name) === "NA" ? "not known" : `${of(name)} ${unit}`), n = by === "token" ? "1" : of("tokens");
  const more = names.filter((name) => /^surprisal\./.test(name) || name in ADDED).map((name) => `\n${ADDED[name] ?? `by layer ${name.slice(10)}`} ${number(name)}`).join("");
  const likely = Array.from({ length: Math.min(top ?? 0, 5) }, (_, i) => `“${of(`top${i + 1}`)}” ${of(`top${i + 1}_probability`)}`);
  const what = by === "region" ? `Region ${of("index")}, “${of("word")}”` : by === "token" ? `Token “${of("token")}” of word ${of("index")}, “${of("word")}”` : `Word ${of("index")}, “${of("word")}”, ${n === "1" ? "1 token" : `${n} tokens`}`;
  return `${what}\nsurprisal ${number("surprisal")}\nuncorrected ${number("uncorrected")}\nentropy before it ${number("entropy")}${more}${rank ? `\nrank ${of("rank")}` : ""}${likely.length ? `\nexpected ${likely.join(", ")}` : ""}`;
}

/** Brings buttons, progress and the sentences below them up to date. */
function showMeasuring(done = 0) {
  const isOn = isMeasuring() && !measuring.question.isLeft, hadFocus = document.activeElement === $s("measure-stop");
  $s("measure").disabled = isNaming();
  $s("measure-stop").disabled = !isOn;
  if (hadFocus && !isOn) $s("measure").focus({ preventScroll: true });
  $s("measure-progress").hidden = !isOn;
  $s("measure-progress").value = done;
  const seconds = isOn && done > 0 ? ((performance.now() - measuring.begin) / 1000) * (1 / done - 1) : 0;
  setOrEmpty("measure-left", !isOn ? "" : `${percent(done)}${seconds > 1 ? `, ${Math.ceil(seconds)} s left` : ""}`);
  $s("measure-csv").disabled = !measured?.n;
  if (isOn || !measured) return;
  const { n, sum, notes, question, strange, isWhole } = measured, { by, unit } = question.settings;
  const says = [question.command === "suite" ? `${n.toLocaleString("en")} rows.` : `${n.toLocaleString("en")} ${KINDS[by]}, ${n ? (sum / n).toFixed(2) : 0} ${unit} each on average.`];
  if (!isWhole) says.unshift("Cancelled: the rest was not measured.");
  says.push(...(strange ? [strange] : []));
  if (n > MOST_SHOWN) says.push(`The first ${MOST_SHOWN.toLocaleString("en")} are shown; the CSV has all.`);
  setOrEmpty("measured-note", [...says, ...notes.map((note) => `${note[0].toUpperCase()}${note.slice(1).replace(/\.?$/, ".")}`)].join(" "));
  setOrEmpty("measured-most", `${FULL[unit]} ${unit}`);
}

/** What the reader chose. */
function wishOfReader() {
  const given = (id) => $s(id).value.trim() || null, file = sentences?.name ?? "the text", text = sentences?.bytes ?? new TextEncoder().encode($s("sentences").value);
  const isSuite = !!sentences && $s("measure-suite").checked, isTable = !!sentences?.isTable;
  const settings = { file, by: $s("measure-by").value, unit: $s("measure-unit").value, punctuation: $s("measure-apart").checked ? "apart" : "word", bos: $s("measure-bos").checked };
  if (isSuite) Object.assign(settings, { pair: given("measure-pair"), group: given("measure-group"), corrected: $s("measure-corrected").checked });
  else Object.assign(settings, {
    column: isTable ? $s("column").value : null, region_names: isTable && $s("region-names").selectedIndex > 0 ? $s("region-names").value : null,
    regions: $s("measure-regions").value || null, layers: given("measure-layers"), tuned: tuned?.name, rank: $s("measure-rank").checked, top: given("measure-top"),
    entropy_reduction: $s("measure-reduction").checked, renyi: given("measure-renyi"), spillover: given("measure-spillover"), stride: given("measure-stride"), continues: $s("measure-continues").checked,
  });
  return { question: { command: isSuite ? "suite" : "surprisal", settings, files: { [file]: text, ...(tuned && { [tuned.name]: tuned }) }, forms: ["csv"] }, text, begin: performance.now() };
}

let tuned = null; // the File of a lens for the layers
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
  const mine = naming, { name, bytes } = mine;
  let columns = { name: [], first: [] };
  try {
    columns = (await ask("query", { command: "columns", settings: { file: name }, files: { [name]: bytes } })).tables.columns;
  } catch {
    // it cannot be read, which measuring it tells
  } finally {
    if (mine === naming) naming = null;
    if (mine === sentences) {
      const { name: names, first } = columns, size = (i) => first[i]?.length ?? 0, named = names.findIndex((one) => /sentence|text|stimul/i.test(one));
      showColumns(names, named >= 0 ? named : names.reduce((best, _, i) => (size(i) > size(best) ? i : best), 0));
    }
  }
}
function showColumns(names, likely) {
  $s("column").replaceChildren(...names.map((name, i) => make("option", { value: name, textContent: name, selected: i === likely })));
  $s("region-names").replaceChildren(make("option", { textContent: "none" }), ...names.map((name) => make("option", { value: name, textContent: name })));
  showMeasuring();
}

/** A model went, or a text was refused, and with it the run. */
export function forgetMeasured() {
  if (measuring) leave(measuring.question);
  measuring = measured = null;
  for (const id of ["measured", "measured-suite"]) $s(id).replaceChildren();
  for (const id of ["measured-word", "measured-note", "measure-problem"]) setOrEmpty(id, "");
  showMeasuring();
}

/** @param {{fulfil: () => void, save: (name: string, type: string, content: BlobPart) => void}} page */
export function listenToSurprisal({ fulfil, save }) {
  goOn = fulfil;
  $s("measure").onclick = measure;
  $s("measure-stop").onclick = () => {
    if (measuring) leave(measuring.question);
    showMeasuring();
  };
  $s("measure-csv").onclick = () => save("words.csv", "text/csv", measured.csv);
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
  $s("measure-tuned").onchange = ({ target }) => (tuned = target.files[0] ?? null);
  $s("sentences-close").onclick = () => takeSentences(null);
}

// The part Questions: any command of the programs lens, surprisal and score. What there is, with which settings, comes from
// the module; nothing here knows a command.

import { leave, put } from "./ask.js";
import { make } from "./draw.js";

let commands = null, isWanted = false; // what can be asked, and whether the reader wants to know
let putting = null, answer = null; // the question that waits for its answer; the latest one
const $q = (id) => document.getElementById(id);

export const isListing = () => isWanted && !commands;

/** Lists what can be asked. @param {(task: string, data: object) => Promise<object>} ask the worker */
export async function listQuestions(ask) {
  isWanted = false;
  commands = await ask("commands", {});
  $q("question").replaceChildren(...commands.map(({ name }) => make("option", { textContent: name })));
  $q("question").value = commands.find(({ name }) => name === "patch")?.name ?? commands[0].name;
  $q("question").onchange();
}

const inputs = new Map(); // by the names of the command's settings
/** What the reader gives a setting by. */
function makeInput({ kind, takes, usual, isFile, isMany, isNegated }) {
  if (kind === "flag") return make("input", { type: "checkbox", checked: isNegated });
  if (kind === "choice") return make("select", {}, ...["", ...takes.split(" ")].map((name) => make("option", { textContent: name })));
  if (isFile && kind !== "output") return make("input", { type: "file", multiple: true });
  return isMany ? make("textarea", { rows: 2, placeholder: "one a line" }) : make("input", { type: "text", placeholder: usual ?? "" });
}
const isTyped = (input) => input.matches("textarea, [type=text]");
function showSettings(textFor) {
  const { about, settings } = commands.find(({ name }) => name === $q("question").value);
  const typed = new Map([...inputs].filter(([, input]) => isTyped(input)).map(([{ name }, { value }]) => [name, value]));
  $q("question-about").textContent = about;
  inputs.clear();
  const rows = settings.map((setting) => {
    const input = makeInput(setting), id = `setting-${setting.name}`;
    inputs.set(setting, input);
    Object.assign(input, { id, spellcheck: false });
    if (isTyped(input)) input.value = typed.get(setting.name) ?? textFor(setting.name);
    return make("p", { className: "row" }, make("label", { htmlFor: id, textContent: setting.name }), input, make("span", { className: "small", textContent: setting.help }));
  });
  $q("question-words").replaceChildren(...rows.filter((_, i) => settings[i].word));
  $q("question-settings").replaceChildren(...rows.filter((_, i) => !settings[i].word));
}
/** The settings that differ from what they are without the reader, and the files that they name: of several the folder. */
function questionOfReader() {
  const settings = {}, files = {};
  for (const [{ name, kind, isMany, isNegated }, input] of inputs)
    if (kind === "flag") settings[name] = input.checked === isNegated ? null : input.checked;
    else if (input.type === "file") {
      const isFolder = input.files.length > 1;
      for (const file of input.files) files[isFolder ? `${name}/${file.name}` : file.name] = file;
      settings[name] = isFolder ? name : input.files[0]?.name ?? null;
    } else settings[name] = input.value === "" ? null : isMany ? input.value.split("\n").filter((line) => line) : input.value;
  return { command: $q("question").value, settings, files, forms: ["svg", "text", "csv"] };
}

function showPutting(done = 0) {
  const isOn = putting !== null, hadFocus = document.activeElement === $q(isOn ? "put" : "put-stop");
  $q("put").disabled = isOn;
  $q("put-stop").disabled = !isOn;
  if (hadFocus) $q(isOn ? "put-stop" : "put").focus({ preventScroll: true });
  $q("put-progress").hidden = !isOn;
  $q("put-progress").value = done;
  $q("answer-svg").disabled = !answer?.svg;
  $q("answer-csv").disabled = !answer?.csv;
}
function showAnswer() {
  $q("answer-notes").replaceChildren(...(answer?.notes ?? []).map((textContent) => make("p", { textContent })));
  const picture = answer?.svg && make("img", { alt: `${putting.command}; the same as text is below`, src: URL.createObjectURL(new Blob([answer.svg], { type: "image/svg+xml" })) });
  $q("answer").replaceChildren(...(picture ? [picture] : []), ...(answer?.text ? [make("pre", { textContent: answer.text })] : []));
}

/** @param {{fulfil: () => void, save: (name: string, type: string, content: BlobPart) => void, textFor: (setting: string) => string}} page */
export function listenToQuestions({ fulfil, save, textFor }) {
  $q("questions").ontoggle = () => {
    isWanted = $q("questions").open;
    fulfil();
  };
  $q("question").onchange = () => showSettings(textFor);
  $q("put").onclick = async () => {
    const mine = (putting = questionOfReader());
    answer = null;
    $q("put-problem").textContent = "";
    showPutting();
    try {
      answer = await put(mine, showPutting);
      for (const [name, bytes] of Object.entries(answer.written)) save(name, "application/octet-stream", bytes);
    } catch (error) {
      $q("put-problem").textContent = error.message;
    }
    showAnswer();
    putting = null;
    showPutting();
  };
  $q("put-stop").onclick = () => putting && leave(putting);
  for (const [form, type] of [["svg", "image/svg+xml"], ["csv", "text/csv"]]) $q(`answer-${form}`).onclick = () => save(`answer.${form}`, type, answer[form]);
}

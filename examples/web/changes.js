// The changes that a reader makes to a model: as objects, as words, in the address, as a C program and
// as commands of lens. One change is {kind, layer, head?, position?, factor?}, of these kinds:
//
//     zero, mean, scale   the output z of a head becomes 0, its mean over the text, or z times factor
//     patch               z of a head comes from the second text, at one position or at all
//     patch-stream        the residual stream before a layer comes from the second text, likewise
//     stream              the residual stream before a layer, at one position, times factor
//     steer               the residual stream before a layer gains factor times the difference between
//                         its means over two texts

import { nameOfHead, quote } from "./draw.js";

/** @typedef {{kind: string, layer: number, head?: number, position?: number, factor?: number}} Change */
/** @typedef {{text: string, second: string, plus: string, minus: string, changes: Change[],
 *   temperature: number, topK: number, topP: number, seed: bigint, length: number}} State */

const LETTERS = { zero: "z", mean: "m", scale: "s", patch: "p", "patch-stream": "r", stream: "e", steer: "g" };

/** @returns {State} */
export function newState() {
  return { text: "Once upon a time", second: "The dog ran to the park", plus: "so happy", minus: "so sad", changes: [], temperature: 0, topK: 0, topP: 1, seed: 1n, length: 60 };
}

/** @param {Change} a @param {Change} b whether one takes the place of the other */
export function isSamePlace(a, b) {
  const isHead = (c) => c.head !== undefined;
  return a.layer === b.layer && a.head === b.head && (isHead(a) || (a.kind === b.kind && a.position === b.position));
}

/** @param {Change} c @param {string[]} tokens */
export function describe(c, tokens = []) {
  const head = nameOfHead(c.layer, c.head), stream = `Stream before layer ${c.layer}`;
  const at = c.position === undefined ? "" : ` at token ${c.position}${tokens[c.position] ? ` ${quote(tokens[c.position])}` : ""}`;
  switch (c.kind) {
    case "zero": return `${head}: off`;
    case "mean": return `${head}: its mean`;
    case "scale": return `${head}: × ${c.factor}`;
    case "patch": return `${head}: from the second text${at}`;
    case "patch-stream": return `${stream}${at}: from the second text`;
    case "stream": return `${stream}${at}: × ${c.factor}`;
    default: return `${stream}: steered × ${c.factor}`;
  }
}

/** @param {Change} c */
function encodeChange(c) {
  return LETTERS[c.kind] + c.layer + (c.head === undefined ? "" : `.${c.head}`) + (c.position === undefined ? "" : `@${c.position}`) + (c.factor === undefined ? "" : `*${c.factor}`);
}

/** @param {string} word @returns {Change | null} */
function decodeChange(word) {
  const found = /^([zmspreg])(\d{1,3})(?:\.(\d{1,3}))?(?:@(\d{1,4}))?(?:\*(-?\d{1,4}(?:\.\d{1,4})?))?$/.exec(word);
  if (!found) return null;
  const [, letter, layer, head, position, factor] = found;
  const kind = Object.keys(LETTERS).find((k) => LETTERS[k] === letter);
  const needsHead = ["zero", "mean", "scale", "patch"].includes(kind), needsFactor = ["scale", "stream", "steer"].includes(kind);
  if (needsHead !== (head !== undefined) || needsFactor !== (factor !== undefined) || (kind === "stream" && position === undefined) || (kind === "steer" && !+factor)) return null;
  const change = { kind, layer: +layer };
  if (head !== undefined) change.head = +head;
  if (position !== undefined) change.position = +position;
  if (factor !== undefined) change.factor = +factor;
  return change;
}

/** A seed as it is typed: 64 bits. @param {string} digits @returns {bigint | null} null: it is none */
export function seedFrom(digits) {
  const seed = /^\d{1,20}$/.test(digits) ? BigInt(digits) : 2n ** 64n;
  return seed < 2n ** 64n ? seed : null;
}

/** The part of an address after "#". @param {State} state */
export function toHash(state) {
  const fresh = newState(), words = new URLSearchParams();
  for (const key of ["text", "second", "plus", "minus", "temperature", "topK", "topP", "seed", "length"])
    if (key === "text" || String(state[key]) !== String(fresh[key])) words.set(key, String(state[key]));
  if (state.changes.length) words.set("changes", state.changes.map(encodeChange).join(","));
  return "#" + words;
}

/** What an address says; whatever it does not say, or says wrongly, is as in a new state.
 * @param {string} hash @returns {State} */
export function fromHash(hash) {
  const state = newState(), words = new URLSearchParams(hash.replace(/^#/, ""));
  const limits = { temperature: [0, 2], topK: [0, 100], topP: [0.05, 1], length: [1, 1024] };
  for (const key of ["text", "second", "plus", "minus"]) if (words.has(key)) state[key] = words.get(key).slice(0, 20000);
  for (const key in limits) {
    const value = words.get(key) ? Number(words.get(key)) : NaN;
    if (value >= limits[key][0] && value <= limits[key][1]) state[key] = ["topK", "length"].includes(key) ? Math.floor(value) : value;
  }
  state.seed = seedFrom(words.get("seed") ?? "") ?? state.seed;
  state.changes = (words.get("changes") ?? "").split(",").slice(0, 200).map(decodeChange).filter((c) => c);
  return state;
}

// C ================================================================================================

const cString = (text) => '"' + [...new TextEncoder().encode(text)].map((b) => (b === 34 || b === 92 ? "\\" + String.fromCharCode(b) : b >= 32 && b < 127 && b !== 63 ? String.fromCharCode(b) : "\\" + b.toString(8).padStart(3, "0"))).join("") + '"';
const cFloat = (x) => (Number.isInteger(x) ? `${x}.0f` : `${x}f`);
const NAME_OF = (c) => `blocks.${c.layer}.${c.head === undefined ? "hook_resid_pre" : "attn.hook_z"}`;

const C_VALUE = `
/* An activation of a text; the context frees it. */
static attn_tensor activation(attn_ctx *ctx, const attn_model *model, const char *name, const char *text)
{
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_record_desc desc = {0};
    attn_tensor view = {0}, copy = {0};
    desc.names = &name, desc.n_names = 1;
    if (attn_session_new(ctx, &session, model, NULL) == ATTN_OK &&
        attn_record_new(ctx, &record, session, &desc) == ATTN_OK &&
        attn_feed_text(ctx, session, text) == ATTN_OK && attn_record_get(ctx, &view, record, name) == ATTN_OK)
        attn_copy(ctx, &copy, view);
    attn_record_free(record);
    attn_session_free(session);
    return copy;
}

/* One head of it: [positions, width]. */
static attn_tensor of_head(attn_ctx *ctx, attn_tensor z, size_t head)
{
    attn_tensor copy = {0};
    attn_copy(ctx, &copy, attn_select(z, 1, head));
    return copy;
}

/* Its mean over the positions: [1, width]. */
static attn_tensor mean(attn_ctx *ctx, attn_tensor stream)
{
    attn_tensor sum = {0};
    attn_mean(ctx, &sum, attn_transpose(stream, 0, 1));
    return attn_transpose(sum, 0, 1);
}
`;

const isScaling = ({ kind }) => kind === "scale" || kind === "stream";
/** The lines of C for one change. @param {Change} c @param {State} state */
function changeInC(c, state) {
  const name = `"${NAME_OF(c)}"`;
  const lines = [`edit.name = ${name};`];
  if (c.head !== undefined) lines.push(`edit.first_head = ${c.head}, edit.n_heads = 1;`);
  if (c.kind === "stream") lines.push(`edit.first = ${c.position}, edit.count = 1;`);
  if (isScaling(c)) lines.push("edit.kind = ATTN_EDIT_SCALE;", "edit.value = attn_borrow(&factor, ATTN_F32, attn_shape1(1));");
  const from = (text) => `activation(&ctx, model, ${name}, ${cString(text)})`;
  if (c.kind === "mean") lines.push("edit.kind = ATTN_EDIT_MEAN;", `edit.value = of_head(&ctx, ${from(state.text)}, ${c.head});`);
  if (c.kind === "patch" || c.kind === "patch-stream") {
    lines.push("edit.kind = ATTN_EDIT_SET;", `edit.value = ${c.head === undefined ? from(state.second) : `of_head(&ctx, ${from(state.second)}, ${c.head})`};`);
    if (c.position === undefined) lines.push("edit.count = edit.value.shape[0];");
    else lines.push(`edit.first = ${c.position}, edit.count = 1;`, `edit.value = attn_slice(edit.value, 0, ${c.position}, 1);`);
  }
  if (c.kind === "steer")
    lines.push("edit.kind = ATTN_EDIT_ADD;", `attn_sub(&ctx, &edit.value, mean(&ctx, ${from(state.plus)}),`, `         mean(&ctx, ${from(state.minus)}));`, `attn_scale(&ctx, &edit.value, edit.value, ${cFloat(c.factor)});`);
  return `    {
${isScaling(c) ? `        static const float factor = ${cFloat(c.factor)};\n` : ""}        attn_edit edit = {0};
${lines.map((line) => "        " + line).join("\n")}
        attn_hook_edit(&ctx, NULL, session, &edit);
    }`;
}

/** A program that does what the page shows. @param {State} state @param {string} model its file */
export function toC(state, model) {
  const kinds = state.changes.map((c) => c.kind), sampling = [`how.sampling.temperature = ${cFloat(state.temperature)};`];
  if (state.temperature > 0) {
    if (state.topK) sampling.push(`how.sampling.top_k = ${state.topK};`);
    if (state.topP < 1) sampling.push(`how.sampling.top_p = ${cFloat(state.topP)};`);
    sampling.push(`how.sampling.seed = ${state.seed}u;`);
  }
  return `/* cc page.c -I. -O2 -lm -o page && ./page ${model.replaceAll("*/", "").replace(UNSEEN, "")} */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>

static int print(const char *text, size_t size, void *file)
{
    fwrite(text, 1, size, (FILE *)file);
    return fflush((FILE *)file);
}
${kinds.some((k) => ["mean", "patch", "patch-stream", "steer"].includes(k)) ? C_VALUE : ""}
int main(int argc, char **argv)
{
    const char *prompt = ${cString(state.text)};
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_generate_desc how = {0};
    how.max_tokens = ${state.length};
    ${sampling.join("\n    ")}
    how.text_fn = print;
    how.text_user = stdout;
    if (argc != 2)
        return fprintf(stderr, "usage: page MODEL.attn\\n"), 2;
    if (attn_model_open(&ctx, &model, argv[1], NULL) || attn_session_new(&ctx, &session, model, NULL))
        return fprintf(stderr, "%s\\n", ctx.message), 1;
${state.changes.map((c) => changeInC(c, state) + "\n").join("")}    printf("%s", prompt);
    if (ctx.status == ATTN_OK)
        attn_generate(&ctx, NULL, session, prompt, &how);
    printf("\\n");
    if (ctx.status != ATTN_OK)
        fprintf(stderr, "%s\\n", ctx.message);
    attn_session_free(session);
    attn_ctx_free(&ctx);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}
`;
}

// lens =============================================================================================

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu; // a terminal would act on these, or hide them
const octal = (text) => Array.from(new TextEncoder().encode(text), (b) => `\\${b.toString(8).padStart(3, "0")}`).join("");

/** A change as an edit of lens. @param {Change} c */
function editOf(c) {
  const kind = { zero: "zero", mean: "mean", scale: "scale", stream: "scale", steer: "add" }[c.kind] ?? "set";
  return `${kind} ${NAME_OF(c)}${c.factor === undefined ? "" : ` by ${c.factor}`}${c.head === undefined ? "" : ` head ${c.head}`}${c.position === undefined ? "" : ` at ${c.position}`}`;
}

/** Commands of lens that show what the page shows, as one line of sh that ends without a line end, so that to paste it
 * runs nothing. Characters that a terminal would act on come by printf; the stop behind a text keeps its last line ends,
 * which sh takes away. Null if a text has a NUL. @param {State} state @param {string} model its file */
export function toLens(state, model) {
  const kinds = state.changes.map((c) => c.kind), before = [];
  const word = (text) => {
    if (text.search(UNSEEN) < 0) return quoted(text);
    const name = "abcde"[before.length];
    before.push(`${name}=$(printf '${text.replace(/[\\'%]/g, octal).replace(UNSEEN, octal)}.'); `);
    return `"\${${name}%.}"`;
  };
  const texts = [["second", kinds.some((k) => k.startsWith("patch")) && state.second], ["towards", kinds.includes("steer") && state.plus], ["away", kinds.includes("steer") && state.minus]].filter(([, text]) => text !== false);
  if ([state.text, model, ...texts.map(([, text]) => text)].some((text) => text.includes("\0"))) return null;
  const edits = state.changes.length ? ` --edit '${state.changes.map(editOf).join("; ")}'` : "";
  const file = /^[\w./-]+$/.test(model) ? model : word(model), prompt = word(state.text), more = texts.map(([name, text]) => ` --${name}=${word(text)}`).join("");
  const line = (command, output = "") => `build/lens ${file} ${command}${edits}${more}${output} --prompt=${prompt}`;
  return before.join("") + [line("tokens"), line("patterns", " -o patterns.html"), line("logit-lens", " -o lens.html"), line("attribute")].join(" && ");
}

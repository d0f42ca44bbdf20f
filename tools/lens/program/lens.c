/* sh tools/lens/program/embed.sh >lens_page.h && cc tools/lens/program/lens.c -I. -O2 -fopenmp -lm -o lens
 *                                                          (without -fopenmp: one thread)
 *
 * What a model makes of a text, from the inside: losses, the logit lens, attention patterns,
 * activation and path patching, attribution, decomposition, kinds of heads, circuits, sparse
 * autoencoders, steering, and activations and their gradients for NumPy and PyTorch. Here is the
 * command line. Each command is a header beside this file: a few calls of attn.h's glass box, and
 * tables made of what they give. All of them use
 *
 *     run.h          the options, the texts, and tokens as they are shown
 *     findings.h     the result of a command as a table (print_table.h), as JSON (print_json.h) or as
 *                    a picture (lens_html.h, lens_svg.h)
 *     edits.h        changes that --edit makes in the model while it reads
 *     question.h     a logit, or the difference of two, which patch, path and attribute ask about */

#include "tools/common/system.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "lens"
#define INPUT   "text"
#include "ablate.h"
#include "attribution.h"
#include "composition.h"
#include "decomposition.h"
#include "edge.h"
#include "features.h"
#include "gradient.h"
#include "head_kinds.h"
#include "logit_lens.h"
#include "losses.h"
#include "path.h"
#include "patterns.h"
#include "process.h"
#include "record.h"
#include "score.h"
#include "steer.h"

/* ---- the command line ---- */

static const command commands[] = {
    {"tokens", TOKENS, run_losses, "ids, losses and likeliest next tokens (if none is named)"},
    {"loss", LOSS, run_losses, "what each token cost, and the mean"},
    {"logit-lens", LENS, run_logit_lens, "what each layer would say next"},
    {"patterns", PATTERNS, run_patterns, "where each head looks"},
    {"patch", PATCH, run_patch, "which activations of TEXT repair TEXT2"},
    {"path", PATH, run_path, "which heads and MLPs of TEXT repair TEXT2 through one reader"},
    {"edges", EDGES, run_edges, "which connections tell TEXT from TEXT2 (EAP)"},
    {"attribute", ATTRIBUTE, run_attribute, "which heads and layers make a logit"},
    {"decompose", DECOMPOSE, run_decompose, "the stream at any layer, as a sum of its parts"},
    {"ablate", ABLATE, run_ablate, "what the loss or a logit becomes without each head"},
    {"heads", HEADS, run_heads, "previous-token, duplicate and induction heads (TEXT: or random)"},
    {"circuits", CIRCUITS, run_circuits, "what the weights of heads do (no text)"},
    {"qk", QK, run_qk, "which parts of the stream make a head attend from --at to --key"},
    {"sae", SAE, run_sae, "active features of a sparse autoencoder; what changing some does"},
    {"steer", STEER, run_steer, "what adding a direction to the stream does"},
    {"gradients", GRADIENTS, run_gradients, "how a logit or a loss changes with each activation"},
    {"process", PROCESS, run_process,
     "a model with LayerNorm folded away, as TransformerLens has it"},
    {"record", RECORD, run_record, "activations into a .safetensors or .npz file"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const struct option table[] = {
#define AT(member) offsetof(options, member)
    {'m', "model", "FILE", TEXT, AT(model), ALL, NULL, "the model, if it is not the first word"},
    {'p', "prompt", "TEXT", TEXT, AT(text), OF_TEXTS, NULL, "the text, if it is not the next word"},
    {'f', "file", "FILE", TEXT, AT(file), OF_TEXTS, NULL,
     "read the text from FILE (-: standard input)"},
    {0, "exact", NULL, FLAG, AT(exact), OF_TEXTS, NULL, EXACT_HELP},
    {'o', "output", "FILE", TEXT, AT(output), ALL, NULL,
     "a picture: FILE.html or FILE.svg\nrecord, gradients and decompose: FILE.safetensors or "
     "FILE.npz\n"
     "process: FILE.attn"},
    {'q', "quiet", NULL, FLAG, AT(quiet), ALL, NULL, "do not say what -o wrote"},
    {0, "json", NULL, FLAG, AT(json), ALL, NULL, "print JSON in place of tables"},
    {0, "ids", "IDS", TEXT, AT(ids), OF_TEXTS, NULL, "the text as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), OF_TEXTS, NULL, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), OF_TEXTS, NULL, "<|endoftext|> in the text is a token"},
    {0, "top", "K", COUNT, AT(top),
     TOKENS | LOSS | LENS | PATTERNS | CIRCUITS | SAE | DECOMPOSE | STEER | QK, "0 50",
     "how many likely tokens, keys, singular values, pairs of heads or parts, features, or "
     "neurons, to show "
     "(default 5)"},
    {0, "layer", "L", COUNT, AT(layer), PATTERNS | DECOMPOSE | STEER | QK | CIRCUITS, "0 1000000",
     "patterns: of this layer alone; qk and circuits: the head's\n"
     "decompose: of the stream that enters it (default: the last LayerNorm)\n"
     "steer: before which the difference is added (default: the middle one), or behind which alone "
     "the control vector is"},
    {0, "head", "H", COUNT, AT(head), PATTERNS | QK | CIRCUITS, "0 1000000",
     "patterns: of this head alone; qk: whose score\ncircuits: whose singular vectors, by tokens"},
    {0, "kind", "NAME", CHOICE, AT(kind), DECOMPOSE, PARTS_NAMES,
     "decompose: into streams, streams-mid, sublayers, attns, mlps, heads (default), neurons"},
    {0, "mlp-input", NULL, FLAG, AT(mlp_input), DECOMPOSE, NULL,
     "... of the stream that enters the MLP of --layer"},
    {0, "no-embeds", NULL, FLAG, AT(no_embeds), DECOMPOSE, NULL, "... without the embeddings"},
    {0, "apply-ln", NULL, FLAG, AT(apply_ln), DECOMPOSE, NULL,
     "... divided by the scale of the LayerNorm that reads the stream"},
    {0, "heads", "LIST", TEXT, AT(heads), HEADS, NULL,
     "heads: of these alone, \"5.1 5.5\"; the others get -1"},
    {0, "pattern", "FILE", TEXT, AT(pattern), HEADS, NULL,
     "... how well they fit this one, a number for each query and key"},
    {0, "measure", "NAME", CHOICE, AT(measure), HEADS, MEASURE_NAMES,
     "... by mul (default), the share of the attention, or abs, the absolute difference"},
    {0, "exclude-bos", NULL, FLAG, AT(exclude_bos), HEADS, NULL, "... without the first key"},
    {0, "exclude-current-token", NULL, FLAG, AT(exclude_current_token), HEADS, NULL,
     "... without the key at the query's own position"},
    {0, "lines", "PATH", TEXT, AT(lines), RECORD, NULL,
     "record: of many texts, JSON lines with \"text\" or \"ids\", or a folder in which every file "
     "is a text; -o is a directory then, for shards and their index"},
    {0, "rows", "COUNT", COUNT, AT(rows), RECORD, "1 1000000000",
     "... rows of a shard (default: 64 MiB of them); a whole context at least"},
    {0, "resume", NULL, FLAG, AT(resume), RECORD, NULL, "record: go on after the last shard of -o"},
    {0, "no-fold-ln", NULL, FLAG, AT(no_fold_ln), PROCESS, NULL,
     "process: leave the gain and bias of LayerNorm where they are"},
    {0, "no-center-writing-weights", NULL, FLAG, AT(no_center_writing_weights), PROCESS, NULL,
     "... and what is written"},
    {0, "no-center-unembed", NULL, FLAG, AT(no_center_unembed), PROCESS, NULL,
     "... and the mean of the logits"},
    {0, "no-fold-value-biases", NULL, FLAG, AT(no_fold_value_biases), PROCESS, NULL, "... and b_V"},
    {0, "refactor", NULL, FLAG, AT(refactor), PROCESS, NULL,
     "process: W_Q, W_K, W_V and W_O in singular vectors (refactor_factored_attn_matrices)"},
    {0, "saved-scale", NULL, FLAG, AT(saved_scale), LENS, NULL,
     "logit-lens: the last LayerNorm's scale is that of the real run, not each stream's own"},
    {0, "edit", "EDIT", TEXTS, AT(edit), EDITED, NULL,
     "tokens, loss, logit-lens, patterns, attribute, patch, path, edges and gradients: in a "
     "changed "
     "model. EDIT is zero, mean or set NAME, or scale or add NAME by F, then head H and at P (a "
     "position) if only those: "
     "--edit \"zero blocks.2.attn.hook_z head 3\". Several: again, or with ; between them"},
    {0, "second", "TEXT", TEXT, AT(second), EDITED, NULL,
     "edits that set: what NAME is in this text"},
    {0, "towards", "TEXT", TEXT, AT(towards), EDITED | STEER, NULL,
     "edits that add: F times the last row of NAME in this text; steer: the stream's mean over it "
     "(ids, if --ids is used)"},
    {0, "away", "TEXT", TEXT, AT(away), EDITED | STEER, NULL, "... less that in this one"},
    {0, "tuned", "FILE", TEXT, AT(tuned), LENS, NULL,
     "logit-lens: through a tuned lens, a .safetensors file of params.pt's tensors. Python makes "
     "it: "
     "save_file(load('params.pt'), FILE), with torch's load and safetensors.torch's save_file"},
    {0, "at", "POSITION", COUNT, AT(position), OF_ONE_LOGIT | QK, "0 1000000000",
     "attribute, ablate and gradients: what is said after this token; qk: the query (default: the "
     "last; they count from 0)\ndecompose: at this position alone"},
    {0, "key", "POSITION", COUNT, AT(key), QK, "0 1000000000",
     "qk: the key (default: the one with the highest score)"},
    {0, "token", "TOKEN", TEXT, AT(token), OF_TWO_TEXTS | OF_ONE_LOGIT, NULL,
     "whose logit: text, or an id if --ids is used (default: the likeliest; ablate: the loss; "
     "decompose: none)"},
    {0, "against", "TOKEN", TEXT, AT(against), OF_TWO_TEXTS | OF_ONE_LOGIT, NULL,
     "... minus this one's (patch, path and edges without --token: the likeliest token after TEXT2 "
     "or, if "
     "it is "
     "the "
     "same after both texts, the two likely tokens whose logits change most)"},
    {0, "metric", "NAME", CHOICE, AT(metric), GRADIENTS, METRIC_NAMES,
     "gradients: of logit (default), log-prob, or loss, the mean over the text"},
    {0, "corrupted-ids", "IDS", TEXT, AT(corrupted_ids), OF_TWO_TEXTS, NULL,
     "patch, path and edges: TEXT2 as token ids"},
    {0, "pairs", "FILE", TEXT, AT(pairs), OF_TWO_TEXTS, NULL,
     "patch, path and edges: means over many pairs, in place of TEXT and TEXT2. Each line is "
     "{\"clean\": TEXT, \"corrupted\": TEXT2, \"token\": TOKEN, \"against\": TOKEN}; texts may be "
     "lists of ids"},
    {0, "estimate", NULL, FLAG, AT(estimate), PATCH, NULL,
     "patch: estimates by one backward pass for all cells (attribution patching)"},
    {0, "by", "KIND", CHOICE, AT(by), PATCH,
     "positions heads position-heads sources source-heads weights",
     "patch: positions, heads (at all positions), position-heads (one head at one position), of "
     "patterns and scores sources or source-heads (one key of all queries) or weights (one of a "
     "query and a key); default: what fits NAME"},
    {0, "edges", "COUNT", COUNT, AT(edges), EDGES, "1 10000000",
     "edges: how many of the best make the circuit (default 20)"},
    {0, "steps", "COUNT", COUNT, AT(steps), EDGES, "1 1000",
     "edges: embeddings between both texts (default 1: EAP; more: EAP-IG)"},
    {0, "from", "SENDER", TEXT, AT(from), PATH, NULL,
     "path: from this alone: head H of layer L as L.H, an MLP as L.mlp, or embed (default: all "
     "heads and MLPs before the reader)"},
    {0, "to", "NAME,...", TEXT, AT(to), PATH, NULL,
     "path: the readers, all at once: blocks.L.hook_resid_pre, blocks.L.hook_mlp_in, or of head H "
     "blocks.L.hook_q_input.H, hook_k_input.H or hook_v_input.H (default: the final stream)"},
    {0, "mlps", "NAME", CHOICE, AT(mlps), PATH, "frozen through",
     "path: MLPs between sender and reader stay as in TEXT2 (frozen, the default), or carry on "
     "what "
     "the sender wrote (through)"},
    {0, "change", "CHANGE", TEXTS, AT(change), SAE, NULL,
     "sae: a feature is set (12=8), ablated (12=0), multiplied (12*0.5) or steered (12+4) at every "
     "position; may be given several times"},
    {0, "no-error", NULL, FLAG, AT(no_error), SAE, NULL,
     "sae: run on what the autoencoder makes of the activation, without the error term"},
    {0, "vector", "FILE", TEXT, AT(vector), STEER, NULL,
     "steer: along a control vector, llama.cpp's FILE.gguf, or FILE.safetensors with direction.N "
     "[width] or one tensor [layers, width]"},
    {0, "strength", "FACTOR", NUMBER, AT(strength), STEER, "-1000000 1000000",
     "steer: times this (default 1; negative: the other way)"},
    {'n', "tokens", "COUNT", COUNT, AT(tokens), SAE | STEER, "0 1000000",
     "steer, and sae with a change: tokens to go on with, the likeliest each time (default 20)"},
    {'t', "threads", "COUNT", COUNT, AT(threads), ALL, THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ALL, ISA_NAMES,
     "portable, base, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot, neon-i8mm"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), ALL, NULL,
     "open without verifying the file"},
    PROGRAM_OPTIONS(ALL),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const char *const examples[] = {
    "patterns \"Once upon a time\" -o heads.html",
    "sae examples/sae --bos \"Once upon a time\"",
    "sae examples/sae --bos \"Once upon a time\" --change 12=8",
    "steer \"I am\" --towards \" happy\" --away \" sad\" --strength 4",
    "steer \"I am\" --vector happy.gguf --strength 2",
    "qk \"Tom saw Lily. Tom\" --layer 1 --head 2",
    "logit-lens \"Once upon a time\" --tuned params.safetensors"};
enum { N_EXAMPLES = sizeof examples / sizeof examples[0] };

static void print_help(void)
{
    int i;
    print_about("lens MODEL.attn [COMMAND] TEXT [options]\n"
                "lens MODEL.attn [COMMAND] TEXT --edit EDIT [--edit EDIT ...]\n"
                "lens MODEL.attn patch TEXT TEXT2 [NAME...] [options]\n"
                "lens MODEL.attn patch --pairs FILE [NAME...] [options]\n"
                "lens MODEL.attn path TEXT TEXT2 [--from SENDER] [--to NAME] [options]\n"
                "lens MODEL.attn edges TEXT TEXT2 [--edges COUNT] [--steps COUNT] [options]\n"
                "lens MODEL.attn sae DIRECTORY TEXT [--change CHANGE] [options]\n"
                "lens MODEL.attn steer TEXT --towards TEXT --away TEXT [options]\n"
                "lens MODEL.attn steer TEXT --vector FILE [--strength FACTOR] [options]\n"
                "lens MODEL.attn qk TEXT --layer L --head H [options]\n"
                "lens MODEL.attn circuits [options]\n"
                "lens MODEL.attn process -o FILE.attn [options]\n"
                "lens MODEL.attn record TEXT [NAME...] -o FILE [options]\n"
                "lens MODEL.attn gradients TEXT [NAME...] -o FILE [options]\n"
                "lens MODEL.attn record --lines PATH NAME... -o DIRECTORY [options]",
                "What a model makes of a text, from the inside. The command may also stand before "
                "MODEL.attn or follow TEXT. "
                "TEXT may be - for standard input, and what comes through a pipe is the text if "
                "there is no other. NAME is an activation or a pattern, such as "
                "blocks.0.attn.hook_pattern or *.hook_resid_post (record), hook_mlp_out or "
                "attn.hook_z (patch). After -- nothing is a command. Tables are coloured on a "
                "terminal, unless NO_COLOR is set.");
    printf("\nCommands:\n");
    for (i = 0; i < N_COMMANDS; i++)
        print_row(commands[i].name, 11, commands[i].help);
    printf("\nExamples:\n");
    for (i = 0; i < N_EXAMPLES; i++) {
        printf("  lens model.attn");
        print_wrapped(examples[i], 17, 6, help_columns());
    }
    print_options(table, N_OPTIONS);
}

/* ---- reading the command line ---- */

static const command *find_command(const lens *l, size_t word)
{
    size_t i;
    for (i = 0; word < l->given.n_free && i < N_COMMANDS; i++)
        if (strcmp(l->given.words[word], commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

/* The command that a word may have meant. */
static const char *nearest_command(const char *word)
{
    const char *best = NULL;
    size_t least = SIZE_MAX, distance;
    int i;
    for (i = 0; i < N_COMMANDS; i++)
        if ((distance = name_distance(word, commands[i].name)) < least) {
            least = distance;
            best = commands[i].name;
        }
    return best;
}

static int too_many_words(const lens *l, const char *not_a_command)
{
    const char *meant = not_a_command ? nearest_command(not_a_command) : NULL;
    if (meant)
        return fail(USAGE, "there is no command %s; do you mean %s?", not_a_command, meant);
    if (not_a_command && !strchr(not_a_command, ' ') && strchr(l->names[0], ' '))
        return fail(USAGE, "there is no command %s; --help lists the commands", not_a_command);
    return fail(USAGE, "too many arguments at \"%s\": quote the text; --help lists the commands",
                l->names[0]);
}

/* Says how a word was taken that is a text, and almost a command. */
static void note_near_command(const char *word)
{
    const char *const near_by = word ? nearest_command(word) : NULL;
    if (near_by && name_distance(word, near_by) <= 1)
        fprintf(stderr, "note: \"%s\" is taken as a text; there is a command %s\n", word, near_by);
}

/* Sorts the words: MODEL [COMMAND] TEXT ..., MODEL TEXT COMMAND ... or COMMAND MODEL TEXT ... */
static int sort_words(lens *l)
{
    const command *const first = l->o.model ? NULL : find_command(l, 0);
    const char *const word = l->given.words[0];
    size_t next = 0;
    if (first && l->given.n_free > 1 && !find_command(l, 1)) {
        l->given.words[0] = l->given.words[1];
        l->given.words[1] = word;
    }
    l->model_path = option_or_word(l->o.model, &l->given, &next);
    if (!l->model_path)
        return fail(USAGE, "no model given: lens MODEL.attn \"a text\" (--help tells more)");
    l->command = find_command(l, next);
    if (l->command) {
        next++;
    } else if ((l->command = find_command(l, next + 1)) != NULL) {
        l->given.words[next + 1] = l->given.words[next];
        next++;
    } else {
        l->command = &commands[0];
    }
    if (l->command->bit == SAE && next < l->given.n_words)
        l->directory = l->given.words[next++];
    l->clean_word =
        l->o.ids || l->o.file || l->o.lines || l->o.pairs || l->command->bit & OF_WEIGHTS
            ? l->o.text
            : option_or_word(l->o.text, &l->given, &next);
    if (next < l->given.n_words && l->command->bit & OF_TWO_TEXTS && !l->o.corrupted_ids &&
        !l->o.pairs)
        l->corrupted_word = l->given.words[next++];
    l->names = l->given.words + next;
    l->n_names = l->given.n_words - next;
    if (l->command == &commands[0] && l->n_names == 0)
        note_near_command(l->clean_word);
    if (l->n_names && l->command->bit & OF_WEIGHTS)
        return fail(USAGE, "%s reads no text: leave out \"%s\"", l->command->name, l->names[0]);
    if (l->n_names && !(l->command->bit & (PATCH | OF_TENSORS)))
        return too_many_words(l, l->command == &commands[0] ? l->clean_word : NULL);
    return FINE;
}

/* Refuses options that the command does not know. */
static int check_options(const lens *l)
{
    int i;
    for (i = 0; i < N_OPTIONS; i++)
        if (l->given.given >> i & 1 && !(table[i].commands & l->command->bit))
            return fail(USAGE, "--%s means nothing to %s", table[i].name, l->command->name);
    return FINE;
}

/* Is -o a file of tensors? */
static int writes_tensors(const lens *l)
{
    return (l->command->bit & OF_TENSORS) ||
           (l->command->bit == DECOMPOSE && is_file_of_tensors(l->o.output));
}

static int check_usage(const lens *l)
{
    const options *o = &l->o;
    if (!!l->clean_word + !!o->file + !!o->ids + !!o->lines > 1)
        return fail(USAGE, "give one text: as an argument, with --file or with --ids; or --lines");
    if ((o->resume || o->rows) && !o->lines)
        return fail(USAGE, "--%s is for the texts of --lines", o->resume ? "resume" : "rows");
    if (o->lines && l->n_names == 0)
        return fail(USAGE, "--lines needs the names of activations, such as '*.hook_resid_post'");
    if (o->pairs && (l->clean_word || o->file || o->ids || o->corrupted_ids))
        return fail(USAGE, "--pairs has the texts: give no other");
    if (l->command->bit & OF_TEXTS && !l->clean_word && !o->file && !o->ids && !o->bos &&
        !o->lines && !o->pairs && l->command->bit != HEADS && system_is_terminal(stdin))
        return fail(USAGE, NO_TEXT);
    if (l->command->bit & OF_TWO_TEXTS && !l->corrupted_word && !o->corrupted_ids && !o->pairs)
        return fail(USAGE, "%s needs two texts: a second argument, or --corrupted-ids",
                    l->command->name);
    if (l->command->bit == SAE && !l->directory)
        return fail(USAGE, "sae needs a directory with cfg.json and sae_weights.safetensors");
    if (o->estimate && o->by >= 0)
        return fail(USAGE, "--estimate takes no --by");
    if (l->command->bit == QK && (o->layer == not_given || o->head == not_given))
        return fail(USAGE, "qk needs a head: --layer L --head H");
    if (l->command->bit == STEER && !o->vector == !(o->towards && o->away))
        return fail(USAGE,
                    "steer needs a direction: --towards TEXT and --away TEXT, or --vector FILE");
    if (o->tuned && o->saved_scale)
        return fail(USAGE, "--tuned has scales of its own: leave out --saved-scale");
    if (l->command->bit == CIRCUITS && (o->layer == not_given) != (o->head == not_given))
        return fail(USAGE, "circuits of one head need both --layer and --head");
    if (o->against && !o->token)
        return fail(USAGE, "--against needs --token, to be subtracted from");
    if (o->mlp_input && o->layer == not_given)
        return fail(USAGE, "--mlp-input needs --layer");
    if (o->metric != METRIC_LOGIT && o->against)
        return fail(USAGE, "--against is for a logit: leave out --metric");
    if (o->metric == METRIC_LOSS && (o->token || o->position != not_given))
        return fail(USAGE, "--metric loss is a mean over the text: leave out --token and --at");
    if (o->output && o->json && !writes_tensors(l))
        return fail(USAGE, "-o draws a picture and --json prints: give one of them");
    if (l->command->bit & OF_TENSORS && !o->output && o->lines)
        return fail(USAGE, "record --lines writes shards into a directory: -o DIRECTORY");
    if (l->command->bit & OF_TENSORS && !o->output)
        return fail(USAGE, "%s writes a file: -o FILE.safetensors or -o FILE.npz",
                    l->command->name);
    if (o->output && l->command->bit & OF_TENSORS && !o->lines && !is_file_of_tensors(o->output))
        return fail(USAGE, "%s: the name must end in .safetensors or .npz", o->output);
    if (l->command->bit == PROCESS && (!o->output || !ends_in(o->output, ".attn")))
        return fail(USAGE, "process writes a model: -o FILE.attn");
    if (o->output && !writes_tensors(l) && l->command->bit != PROCESS &&
        !ends_in(o->output, ".html") && !ends_in(o->output, ".svg"))
        return fail(USAGE, "%s: the name must end in .html or .svg", o->output);
    return FINE;
}

/* ---- all of it ---- */

static int run_all(lens *l)
{
    int code;
    if ((code = check_usage(l)) != FINE)
        return code;
    l->ctx.n_threads = (int)l->o.threads;
    code = open_model(&l->ctx, &l->model, l->model_path, l->o.isa, l->o.skip_checksums);
    if (code != FINE)
        return code;
    l->config = attn_model_config(l->model);
    l->tokenizer = attn_model_tokenizer(l->model);
    if (l->o.pairs)
        code = read_pairs(l);
    else if (l->command->bit == HEADS && !is_text_given(l))
        code = make_repeated(l);
    else if (!l->o.lines && l->command->bit & OF_TEXTS)
        code = make_text(l, &l->text, l->clean_word, l->o.file, "ids", l->o.ids);
    if (code != FINE)
        return code;
    if (l->command->bit & OF_TWO_TEXTS && !l->o.pairs &&
        (code = make_text(l, &l->corrupted, l->corrupted_word, NULL, "corrupted-ids",
                          l->o.corrupted_ids)) != FINE)
        return code;
    if ((code = make_edits(l)) != FINE)
        return code;
    if (l->o.output) /* the unfinished file is removed whatever comes */
        system_catch(on_interrupt);
    signal(SIGINT, on_interrupt);
    return l->command->run(l);
}

int main(int argc, char **argv)
{
    static lens l;
    const size_t most = sizeof l.given.words / sizeof l.given.words[0] - 1;
    const program self = {table, N_OPTIONS, most, "name fewer activations", print_help};
    int code;
    system_begin(&argc, &argv);
    l.o.top = 5;
    l.o.kind = LENS_PARTS_HEADS;
    l.o.edges = 20;
    l.o.steps = 1;
    l.o.by = -1;
    l.o.tokens = 20;
    l.o.strength = 1;
    l.o.layer = l.o.head = l.o.position = l.o.key = not_given;
    l.colour = shows_colour(stdout);
    l.columns = line_columns(stdout);
    l.command_line = (const char *const *)argv + 1;
    system_binary(stdout);
    if (!read_command_line(&self, argc, argv, &l.o, &l.given, &code))
        return code;
    if ((code = sort_words(&l)) != FINE || (code = check_options(&l)) != FINE)
        return code;
    code = finish_output(run_all(&l));
    attn_session_free(l.session);
    attn_ctx_free(&l.ctx);
    attn_model_close(l.model);
    arena_free(&l.memory);
    if (interrupted && interrupted != SIGINT)
        system_end_by(interrupted);
    return code;
}

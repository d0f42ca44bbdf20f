/* sh tools/lens/program/draw/embed.sh >lens_embedded.h && cc tools/lens/program/lens.c -I. -O2 -fopenmp -lm -o lens
 *                                                          (without -fopenmp: one thread)
 *
 * What a model makes of a text, from the inside: losses, the logit lens, attention patterns,
 * activation and path patching, attribution, decomposition, kinds of heads, circuits, sparse
 * autoencoders, attribution graphs, steering, and activations and their gradients for NumPy and PyTorch. This file reads
 * the command line. Each command is a header in this folder whose name begins with cmd_: it calls attn.h
 * and the headers in the folder above, and shows the results. All of them use
 *
 *     help.h         the options and the pages of help
 *     run.h          the values of the options, the texts, the labels of tokens
 *     findings.h     the result of a command as a table (print_table.h), as JSON (print_json.h) or as
 *                    a picture (draw/)
 *     edits.h        changes that --edit makes in the model while it reads
 *     question.h     a logit, or the difference of two, which patch, path and attribute ask about */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "lens"
#define INPUT   "text"
#include "cmd_ablate.h"
#include "cmd_attribute.h"
#include "cmd_circuits.h"
#include "cmd_decompose.h"
#include "cmd_edges.h"
#include "cmd_gradients.h"
#include "cmd_graph.h"
#include "cmd_heads.h"
#include "cmd_logit_lens.h"
#include "cmd_loss.h"
#include "cmd_pairs.h"
#include "cmd_path.h"
#include "cmd_patterns.h"
#include "cmd_process.h"
#include "cmd_qk.h"
#include "cmd_record.h"
#include "cmd_sae.h"
#include "cmd_steer.h"
#include "help.h"

static const command commands[] = {COMMANDS(COMMAND_ROW)};

/* ---- reading the command line ---- */

static const command *find_command(const lens *l, size_t word)
{
    size_t i;
    for (i = 0; word < l->given.n_free && i < N_COMMANDS; i++)
        if (strcmp(l->given.words[word], commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

/* The command whose name is nearest to a word; NULL if none is near. */
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

/* Says that a word was taken as a text, if it is almost the name of a command. */
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
    if (!l->model_path || (first && l->given.n_free == 1 && !system_exists(word)))
        return fail(USAGE, "no model given: %s MODEL.attn %s%s\"a text\" (--help tells more)",
                    called, first ? first->name : "", first ? " " : "");
    l->command = find_command(l, next);
    if (l->command) {
        next++;
    } else if ((l->command = find_command(l, next + 1)) != NULL) {
        l->given.words[next + 1] = l->given.words[next];
        next++;
    } else {
        l->command = &commands[0];
    }
    if (l->command->bit & (SAE | PAIRS) && next < l->given.n_words)
        l->operand = l->given.words[next++];
    l->clean_word =
        l->o.ids || l->o.file || l->o.lines || l->o.pairs || l->command->bit & OF_WEIGHTS
            ? l->o.text
            : option_or_word(l->o.text, &l->given, &next);
    if (!l->o.model && !l->o.text)
        swap_model(&l->model_path, &l->clean_word);
    if (next < l->given.n_words && l->command->bit & OF_TWO_TEXTS && !l->o.corrupted_ids &&
        !l->o.pairs)
        l->corrupted_word = l->given.words[next++];
    if ((!l->o.text && check_text_word(l->clean_word) != FINE) ||
        check_text_word(l->corrupted_word) != FINE)
        return USAGE;
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

/* Refuses options that the command does not know. Those of the page on --edit belong to all commands that
 * know --edit. */
static int check_options(const lens *l)
{
    const int bits = l->command->bit | (l->command->bit & EDITED ? EDITS : 0);
    int i, row, known;
    for (i = 0; i < N_OPTIONS; i++) {
        for (row = known = 0; row < N_OPTIONS; row++)
            known |= strcmp(table[row].name, table[i].name) == 0 && table[row].commands & bits;
        if (l->given.given[i] && !known)
            return fail(USAGE, "--%s means nothing to %s", table[i].name, l->command->name);
    }
    return FINE;
}

/* Is -o a file of tensors? */
static int writes_tensors(const lens *l)
{
    return (l->command->bit & OF_TENSORS) ||
           (l->command->bit == DECOMPOSE && is_file_of_tensors(l->o.output));
}

/* edges knows EAP, EAP-IG and GIM, the other commands plain gradients and GIM. */
static int check_method(const lens *l)
{
    const options *o = &l->o;
    const int is_of_edges = o->method == METHOD_EAP || o->method == METHOD_EAP_IG;
    if (l->command->bit == EDGES ? o->method == METHOD_PLAIN : is_of_edges)
        return fail(USAGE, "--method: %s knows %s, gim and gim's rules, and no \"%s\"",
                    l->command->name, is_of_edges ? "plain" : "eap, eap-ig",
                    is_of_edges ? o->method == METHOD_EAP ? "eap" : "eap-ig" : "plain");
    if (o->method >= 0 && (o->exact || o->curve) && l->command->bit == EDGES)
        return fail(USAGE, "--method is for estimates: leave out --%s",
                    o->exact ? "exact" : "curve");
    if (o->method >= 0 && l->command->bit == PATCH && !o->estimate)
        return fail(USAGE, "--method is for --estimate");
    if (o->method == METHOD_EAP && o->steps > 1)
        return fail(USAGE, "EAP has one step: leave out --steps, or choose --method eap-ig");
    return FINE;
}

static int check_edges(const options *o)
{
    const char *const joint = o->interactions ? "interactions" : o->shapley ? "shapley" : NULL;
    if (joint &&
        (o->exact || o->curve || o->steps || o->method >= 0 || (o->shapley && o->interactions)))
        return fail(USAGE, "--%s runs sets of nodes: leave out --%s", joint,
                    o->exact         ? "exact"
                    : o->curve       ? "curve"
                    : o->steps       ? "steps"
                    : o->method >= 0 ? "method"
                                     : "shapley");
    if (o->ablation >= 0 && !joint)
        return fail(USAGE, "--ablation is for --interactions and --shapley");
    if (o->exact && o->steps > 1)
        return fail(USAGE, "--steps is for estimates: leave out --exact");
    if (o->curve && o->exact)
        return fail(USAGE, "--curve compares estimates with true effects: leave out --exact");
    if (o->circuit && !o->curve)
        return fail(USAGE, "--circuit is for --curve");
    if (o->output && ends_in(o->output, ".json") && (o->curve || o->of_nodes || joint))
        return fail(USAGE, "-o FILE.json has the scores of edges: leave out --%s",
                    joint      ? joint
                    : o->curve ? "curve"
                               : "of");
    if (o->of_nodes && !o->exact)
        return fail(USAGE, "--of nodes needs --exact");
    if (o->state && !o->exact)
        return fail(USAGE, "--state is for --exact");
    if (o->prune >= 0 && (!o->exact || o->of_nodes))
        return fail(USAGE, "--prune is for --exact of edges");
    if ((o->each || o->ci) && (o->prune >= 0 || o->state))
        return fail(USAGE, "--%s needs the numbers of every pair: leave out --%s",
                    o->each ? "each" : "ci", o->state ? "state" : "prune");
    if ((o->each || o->ci) && o->output && ends_in(o->output, ".json"))
        return fail(USAGE, "-o FILE.json has means: leave out --%s", o->each ? "each" : "ci");
    if (o->resume && !o->state)
        return fail(USAGE, "--resume needs the file of the run that was stopped: --state FILE");
    return FINE;
}

static int check_graph_options(const options *o)
{
    if (!o->transcoders)
        return fail(USAGE, "graph needs transcoders: --transcoders DIR, with a directory for each");
    return o->group && !o->check
               ? fail(USAGE, "--group says what --check switches off together: give --check too")
               : FINE;
}

static int check_usage(const lens *l)
{
    const options *o = &l->o;
    if (!!l->clean_word + !!o->file + !!o->ids + !!o->lines > 1)
        return fail(USAGE, "give one text: as an argument, with --file or with --ids; or --lines");
    if (check_method(l) != FINE || (l->command->bit == EDGES && check_edges(o) != FINE) ||
        (l->command->bit == GRAPH && check_graph_options(o) != FINE))
        return USAGE;
    if (l->command->bit == RECORD && (o->resume || o->rows || o->shuffle != not_given) && !o->lines)
        return fail(USAGE, "--%s is for the texts of --lines",
                    o->resume ? "resume"
                    : o->rows ? "rows"
                              : "shuffle");
    if (l->command->bit == RECORD && o->resume && o->shuffle != not_given)
        return fail(USAGE, "--shuffle needs all rows at once: leave out --resume");
    if (o->lines && l->n_names == 0)
        return fail(USAGE, "--lines needs the names of activations, such as '*.hook_resid_post'");
    if ((o->each || o->ci) && !o->pairs)
        return fail(USAGE, "--%s is for means over many pairs: give --pairs FILE",
                    o->each ? "each" : "ci");
    if (o->pairs && l->command->bit == ABLATE && o->position != not_given)
        return fail(USAGE, "--pairs asks for logits after the last token: leave out --at");
    if (o->pairs && (l->clean_word || o->file || o->ids || o->corrupted_ids))
        return fail(USAGE, "--pairs has the texts: give no other");
    if (l->command->bit & OF_TEXTS && !l->clean_word && !o->file && !o->ids && !o->bos &&
        !o->lines && !o->pairs && l->command->bit != HEADS && system_is_terminal(stdin))
        return fail(USAGE, NO_TEXT);
    if (l->command->bit & OF_TWO_TEXTS && !l->corrupted_word && !o->corrupted_ids && !o->pairs)
        return fail(USAGE, "%s needs two texts: a second argument, or --corrupted-ids",
                    l->command->name);
    if (l->command->bit == SAE && !l->operand)
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
    if (l->command->bit & (EDGES | GRAPH) && o->output && ends_in(o->output, ".json"))
        return FINE;
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
    l->ctx.stop_flag = &interrupted;
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
    if (l->o.output) /* a signal must not leave an unfinished file */
        system_catch(on_interrupt);
    signal(SIGINT, on_interrupt);
    return l->command->run(l);
}

/* A failure over a file that an option named ends with what the option takes. */
static int run_and_tell(lens *l)
{
    char message[FAILURE_SIZE] = "";
    const char *path, *argument;
    int code, i;
    failure = message;
    code = run_all(l);
    failure = NULL;
    for (i = 0; code == FAILED && i < N_OPTIONS; i++) {
        argument = l->given.given[i] && !table[i].letter ? table[i].argument : NULL;
        if (!argument || (strcmp(argument, "FILE") != 0 && strcmp(argument, "PATH") != 0))
            continue;
        memcpy(&path, (const char *)&l->o + table[i].at, sizeof path);
        if (strstr(message, base_name(path)))
            return fail(FAILED, "%s (--%s %s: %s)", message, table[i].name, argument,
                        table[i].help);
    }
    return *message ? fail(code, "%s", message) : code;
}

int main(int argc, char **argv)
{
    static lens l;
    const size_t most = sizeof l.given.words / sizeof l.given.words[0] - 1;
    const program self = {table,
                          N_OPTIONS,
                          most,
                          "name fewer activations",
                          pages,
                          N_PAGES,
                          "Commands (COMMAND --help)"};
    int code;
    system_begin(&argc, &argv);
    l.o.top = 5;
    l.o.kind = LENS_PARTS_HEADS;
    l.o.edges = 20;
    l.o.by = l.o.method = l.o.ablation = -1;
    l.o.tokens = 20;
    l.o.count = 100;
    l.o.nodes = 20;
    l.o.node_threshold = 0.8f;
    l.o.edge_threshold = 0.98f;
    l.o.strength = 1;
    l.o.prune = -1;
    l.o.layer = l.o.head = l.o.position = l.o.key = l.o.shuffle = l.o.form = not_given;
    l.colour = shows_colour(stdout);
    l.columns = line_columns(stdout);
    l.command_line = (const char *const *)argv + 1;
    system_binary(stdout);
    if (!read_command_line(&self, argc, argv, &l.o, &l.given, &code))
        return code;
    if ((code = sort_words(&l)) != FINE || (code = check_options(&l)) != FINE)
        return code;
    code = finish_output(run_and_tell(&l));
    attn_session_free(l.session);
    attn_ctx_free(&l.ctx);
    attn_model_close(l.model);
    arena_free(&l.memory);
    if (interrupted && interrupted != SIGINT)
        system_end_by(interrupted);
    return code;
}

/* The commands of lens as one: what all of them are given, refuse and read, and where their answers go. The program
 * (lens.c) and callers in the process (query.h) run them here. */
#ifndef LENS_COMMANDS_H
#define LENS_COMMANDS_H

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
#include "columns.h"
#include "help.h"

#include "show.h"

static const lens_command commands[] = {COMMANDS(COMMAND_ROW)};

/* A command_at (tools/common/program.h). */
static const char *lens_command_at(size_t i, int *bits, const char **words, const char **about)
{
    if (i >= N_COMMANDS)
        return NULL;
    *bits = commands[i].bit | (commands[i].bit & EDITED ? EDITS : 0);
    *words = commands[i].words;
    *about = "";
    for (size_t page = 1; page < N_PAGES; page++)
        if (strcmp(lens_pages[page].name, commands[i].name) == 0)
            *about = lens_pages[page].summary;
    return commands[i].name;
}

static void set_defaults(void *options)
{
    lens_options *const o = (lens_options *)options;
    o->top = 5;
    o->kind = LENS_PARTS_HEADS;
    o->edges = 20;
    o->by = o->method = o->ablation = -1;
    o->tokens = 20;
    o->count = 100;
    o->nodes = 20;
    o->node_threshold = 0.8f;
    o->edge_threshold = 0.98f;
    o->strength = 1;
    o->prune = -1;
    o->layer = o->head = o->position = o->key = o->shuffle = o->form = not_given;
}

/* ---- what they refuse ---- */

/* The form that the ending of a name asks for; NULL: none does. */
static const char *form_of_file(const char *path)
{
    static const char *const forms[] = {"html", "svg", "csv", "json", "npz"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strlen(path) > strlen(forms[i]) && path[strlen(path) - strlen(forms[i]) - 1] == '.' &&
            lens_ends_in(path, forms[i]))
            return forms[i];
    return NULL;
}

static int check_name_of_output(const char *path)
{
    return form_of_file(path)
               ? FINE
               : fail(USAGE, "%s: the name must end in .html, .svg, .csv, .json or .npz", path);
}

/* Is -o a file of tensors? */
static int writes_tensors(const lens *l)
{
    return (l->command->bit & OF_TENSORS) ||
           (l->command->bit == DECOMPOSE && is_file_of_tensors(l->o.output));
}

/* A rule about options that are given together, for some commands. If one of `options` is given, FORBIDS refuses each of
 * `others`, and NEEDS expects one of them. The message is the option and `reason`. check_together has the rules about values,
 * and about words that stand without an option. */
static const struct option_rule {
    int commands;
    const char *options;
    enum { NEEDS, FORBIDS } relation;
    const char *others, *reason;
} rules[] = {
    {EDGES, "interactions shapley", FORBIDS, "exact curve steps method", "runs sets of nodes"},
    {EDGES, "interactions", FORBIDS, "shapley", "runs sets of nodes"},
    {EDGES, "method", FORBIDS, "exact curve", "is for estimates"},
    {EDGES, "steps", FORBIDS, "exact", "is for estimates"},
    {EDGES, "ablation", NEEDS, "interactions shapley", "is for --interactions and --shapley"},
    {EDGES, "curve", FORBIDS, "exact", "compares estimates with true effects"},
    {EDGES, "edges", FORBIDS, "curve shapley prune", "limits the list of edges"},
    {EDGES, "circuit", NEEDS, "curve", "is for --curve"},
    {EDGES, "state", NEEDS, "exact", "is for --exact"},
    {EDGES, "prune", NEEDS, "exact", "is for --exact of edges"},
    {EDGES, "each ci", FORBIDS, "state prune", "needs the numbers of every pair"},
    {EDGES, "resume", NEEDS, "state", "needs the file of the run that was stopped: --state FILE"},
    {PATCH, "method", NEEDS, "estimate", "is for --estimate"},
    {PATCH, "estimate", FORBIDS, "by", "is of whole activations"},
    {PATTERNS, "top", NEEDS, "layer", "is for one head: give --layer and --head"},
    {PATTERNS, "top", NEEDS, "head", "is for one head: give --layer and --head"},
    {DECOMPOSE, "mlp-input", NEEDS, "layer", "needs --layer"},
    {DECOMPOSE, "token", FORBIDS, "apply-ln", "divides every part by the scale"},
    {SAE, "tokens", NEEDS, "change no-error",
     "is for --change or --no-error, with which the text goes on"},
    {GRAPH, "group", NEEDS, "check", "says what --check switches off together: give --check too"},
    {RECORD, "resume rows shuffle", NEEDS, "lines", "is for the texts of --lines"},
    {RECORD, "shuffle", FORBIDS, "resume", "needs all rows at once"},
    {LENS, "tuned", FORBIDS, "saved-scale", "has scales of its own"},
    {OF_PAIRS, "each ci", NEEDS, "pairs", "is for means over many pairs: give --pairs FILE"},
    {ABLATE, "pairs", FORBIDS, "at", "asks for logits after the last token"},
    {ALL, "against", NEEDS, "token", "needs --token, to be subtracted from"},
};

/* The first option of a list of names that was given; NULL: none was. */
static const char *given_of(const lens *l, const char *names)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const char *const name = lens_settings[i].name;
        if (l->given[i] && name && find_name(names, name, strlen(name)) >= 0)
            return name;
    }
    return NULL;
}

static int check_rules(const lens *l)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct option_rule *const rule = &rules[i];
        const char *const option =
            rule->commands & l->command->bit ? given_of(l, rule->options) : NULL;
        const char *const other = option ? given_of(l, rule->others) : NULL;
        if (other && rule->relation == FORBIDS)
            return fail(USAGE, "--%s %s: leave out --%s", option, rule->reason, other);
        if (option && !other && rule->relation == NEEDS)
            return fail(USAGE, "--%s %s", option, rule->reason);
    }
    return FINE;
}

/* edges knows EAP, EAP-IG and GIM, the other commands plain gradients and GIM. */
static int check_method(const lens *l)
{
    const lens_options *o = &l->o;
    const int is_of_edges = o->method == METHOD_EAP || o->method == METHOD_EAP_IG;
    if (l->command->bit == EDGES ? o->method == METHOD_PLAIN : is_of_edges)
        return fail(USAGE, "--method: %s knows %s, gim and gim's rules, and no \"%s\"",
                    l->command->name, is_of_edges ? "plain" : "eap, eap-ig",
                    is_of_edges ? o->method == METHOD_EAP ? "eap" : "eap-ig" : "plain");
    if (o->method == METHOD_EAP && o->steps > 1)
        return fail(USAGE, "EAP has one step: leave out --steps, or choose --method eap-ig");
    return FINE;
}

static int check_edges(const lens *l)
{
    const lens_options *o = &l->o;
    const char *const no_edges = o->interactions ? "interactions"
                                 : o->shapley    ? "shapley"
                                 : o->curve      ? "curve"
                                 : o->of_nodes   ? "of"
                                                 : NULL;
    if (o->output && lens_ends_in(o->output, ".json") && no_edges)
        return fail(USAGE, "-o FILE.json has the scores of edges: leave out --%s", no_edges);
    if (o->of_nodes && !o->exact)
        return fail(USAGE, "--of nodes needs --exact");
    if (o->of_nodes && given_of(l, "edges"))
        return fail(USAGE, "--edges limits the list of edges: leave out --of");
    if (o->prune >= 0 && o->of_nodes)
        return fail(USAGE, "--prune is for --exact of edges");
    if ((o->each || o->ci) && o->output && lens_ends_in(o->output, ".json"))
        return fail(USAGE, "-o FILE.json has means: leave out --%s", o->each ? "each" : "ci");
    return FINE;
}

static int check_together(const lens *l)
{
    const lens_options *o = &l->o;
    if (!!o->text + !!o->file + !!o->ids + !!o->lines > 1)
        return fail(USAGE, "give one text: as an argument, with --file or with --ids; or --lines");
    if (check_rules(l) != FINE || check_method(l) != FINE ||
        (l->command->bit == EDGES && check_edges(l) != FINE))
        return USAGE;
    if (l->command->bit == GRAPH && !o->transcoders)
        return fail(USAGE, "graph needs transcoders: --transcoders DIR, with a directory for each");
    if (o->lines && o->names.n == 0)
        return fail(USAGE, "--lines needs the names of activations, such as '*.hook_resid_post'");
    if (o->pairs && (o->text || o->file || o->ids || o->corrupted || o->corrupted_ids))
        return fail(USAGE, "--pairs has the texts: give no other");
    if (l->command->bit & OF_TEXTS && !o->text && !o->file && !o->ids && !o->bos && !o->lines &&
        !o->pairs && l->command->bit != HEADS && (l->is_query || system_is_terminal(stdin)))
        return fail(USAGE,
                    l->is_query ? "%s needs a text, or --bos to begin with nothing" : NO_TEXT,
                    l->command->name);
    if (l->command->bit & OF_TWO_TEXTS && !o->corrupted && !o->corrupted_ids && !o->pairs)
        return fail(USAGE, "%s needs two texts: a second argument, or --corrupted-ids",
                    l->command->name);
    if (l->command->bit == SAE && !o->directory)
        return fail(USAGE, "sae needs a directory with cfg.json and sae_weights.safetensors");
    if (l->command->bit == QK && (o->layer == not_given || o->head == not_given))
        return fail(USAGE, "qk needs a head: --layer L --head H");
    if (l->command->bit == STEER && !o->vector == !(o->towards && o->away))
        return fail(USAGE,
                    "steer needs a direction: --towards TEXT and --away TEXT, or --vector FILE");
    if (l->command->bit == CIRCUITS && (o->layer == not_given) != (o->head == not_given))
        return fail(USAGE, "circuits of one head need both --layer and --head");
    if (l->command->bit == DECOMPOSE && o->kind != LENS_PARTS_NEURONS && given_of(l, "top"))
        return fail(USAGE, "--top is for --kind neurons: the other parts are all shown");
    if (l->command->bit == HEADS && o->special && !o->text && !o->file)
        return fail(USAGE, "--special is for a text");
    if (o->metric != METRIC_LOGIT && o->against)
        return fail(USAGE, "--against is for a logit: leave out --metric");
    if (o->metric == METRIC_LOSS && (o->token || o->position != not_given))
        return fail(USAGE, "--metric loss is a mean over the text: leave out --token and --at");
    if (o->output && o->json && !writes_tensors(l))
        return fail(USAGE, "-o draws a picture and --json prints: give one of them");
    if (l->command->bit & OF_TENSORS && !o->output && o->lines)
        return fail(USAGE, "record --lines writes shards into a directory: -o DIRECTORY");
    if (l->command->bit & OF_TENSORS && !o->output && !l->is_query)
        return fail(USAGE, "%s writes a file: -o FILE.safetensors or -o FILE.npz",
                    l->command->name);
    if (o->output && l->command->bit & OF_TENSORS && !o->lines && !is_file_of_tensors(o->output))
        return fail(USAGE, "%s: the name must end in .safetensors or .npz", o->output);
    if (l->command->bit == PROCESS && (!o->output || !lens_ends_in(o->output, ".attn")))
        return fail(USAGE, "process writes a model: -o FILE.attn");
    return o->output && !writes_tensors(l) && l->command->bit != PROCESS
               ? check_name_of_output(o->output)
               : FINE;
}

/* ---- what they read ---- */

static int read_question(lens *l)
{
    int code = FINE;
    l->config = attn_model_config(l->model);
    l->tokenizer = attn_model_tokenizer(l->model);
    l->answer.ctx = &l->ctx;
    l->answer.memory = &l->memory;
    l->answer.tokenizer = l->tokenizer;
    if (l->o.pairs)
        code = read_pairs(l);
    else if (l->command->bit == HEADS && !is_text_given(l))
        code = make_repeated(l);
    else if (!l->o.lines && l->command->bit & OF_TEXTS)
        code = make_text(l, &l->text, l->o.text, l->o.file, "ids", l->o.ids);
    if (code == FINE && l->command->bit & OF_TWO_TEXTS && !l->o.pairs)
        code =
            make_text(l, &l->corrupted, l->o.corrupted, NULL, "corrupted-ids", l->o.corrupted_ids);
    return code == FINE ? make_edits(l) : code;
}

/* ---- where their answers go ---- */

/* --each FILE: the numbers of every pair as JSON lines, which other forms then leave out. */
static int write_each(lens *l)
{
    answer *const a = &l->answer;
    lens_new_file *file = NULL;
    json_out line = {NULL, 0, 0, 0, 0};
    size_t n = 0;
    if (lens_new_file_begin(&l->ctx, &file, l->o.each))
        return failed(&l->ctx);
    for (size_t i = 0; i < a->n_tables; i++)
        if (lens_ends_in(a->tables[i]->name, "_each"))
            answer_json_lines((answer_sink){&line, (FILE *)lens_new_file_stream(file)},
                              a->tables[i]);
        else
            a->tables[n++] = a->tables[i];
    a->n_tables = n;
    out_free(&line);
    if (lens_new_file_end(&l->ctx, file, was_stopped(l) ? ATTN_STOPPED : ATTN_OK))
        return failed(&l->ctx);
    tell(l, "wrote %s: the numbers of every pair", l->o.each);
    return FINE;
}

/* -o FILE: the answer in the form that the name ends in. */
static int write_output(lens *l)
{
    const char *const form = form_of_file(l->o.output);
    lens_new_file *file;
    canvas to = {0};
    int code = FINE;
    if (l->shown.save && strcmp(form, "json") == 0)
        return l->shown.save(l, l->shown.of);
    if (lens_new_file_begin(&l->ctx, &file, l->o.output))
        return failed(&l->ctx);
    to.file = (FILE *)lens_new_file_stream(file);
    code = strcmp(form, "npz") == 0 ? answer_npz(&l->answer, to.file) ? failed(&l->ctx) : FINE
                                    : write_form(l, form, &to);
    out_free(&to.memory);
    if (lens_new_file_end(&l->ctx, file,
                          code == FINE && !was_stopped(l) ? ATTN_OK : ATTN_STOPPED) &&
        code == FINE)
        return failed(&l->ctx);
    if (code == FINE)
        tell_written(l, strcmp(form, "svg") == 0
                            ? "a picture; opened in a browser, it tells more of what you point at"
                        : strcmp(form, "html") == 0
                            ? "a page for a browser, which needs no other file"
                            : "the answer");
    return code;
}

/* Runs the command, in the model that is open. A caller's tables stay; a program's go to a file or to standard
 * output. */
static int answer_question(lens *l)
{
    canvas to = {system_out, {NULL, 0, 0, 0, 0}};
    int code = read_question(l);
    void *const finding = allocate(l, l->command->finding_size, 1);
    l->shown.of = finding;
    if (code == FINE)
        code = finding ? l->command->run(l, finding) : failed(&l->ctx);
    if (code == FINE && l->units)
        unit_answer(l->units, &l->answer, (l->command->bit & OF_WEIGHTS) != 0);
    if (code == FINE && l->o.each && !l->is_query)
        code = write_each(l);
    if (code == FINE && l->o.output && !writes_tensors(l) && l->command->bit != PROCESS)
        return write_output(l);
    if (code == FINE && !l->is_query) {
        code = write_form(l, l->o.json ? "json" : "text", &to);
        out_free(&to.memory);
    }
    return code;
}

/* Frees all but the model. Tensors that are left go with the context. */
static void end_question(void *run)
{
    lens *const l = (lens *)run;
    if (l->shown.end)
        l->shown.end(l, l->shown.of);
    attn_record_free(l->record);
    attn_session_free(l->session);
    attn_ctx_free(&l->ctx);
    arena_free(&l->memory);
}

#endif

/* A run of lens: its options, its texts, the model, and functions that all commands use. */
#ifndef LENS_RUN_H
#define LENS_RUN_H

#include "tools/common/prompt.h"
#include "tools/waist/units.h"
#include "draw/lens_html.h"
#include "tools/lens/metric.h"

typedef struct lens_options {
    const char *model, *text, *corrupted, *directory, *task, *output, *ids, *file, *lines,
        *corrupted_ids, *receipt;
    const char *token, *against, *only;
    const char *from, *to, *second, *towards, *away, *heads, *pattern, *vector, *tuned;
    const char *pairs, *each, *circuit, *state, *transcoders, *shapley, *group;
    text_list names, edit, change;
    size_t top, layer, head, position, rows, shuffle, threads, edges, steps, key, tokens;
    size_t nodes, keep, count, seed, form;
    float strength, prune; /* prune: below 0 if it is not given */
    float node_threshold, edge_threshold;
    int pruned, check;
    int isa, bos, special, exact, /* exact: of edges, their effects; else, the text as it is */
        saved_scale, json, resume, skip_checksums, metric, estimate, quiet, no_error, of_nodes,
        curve, ci, interactions, ablation; /* ablation: a lens_ablation; -1: not given */
    int by, mlps; /* of patch, a lens_patch_kind; of path, a lens_path_mlps */
    int method;   /* one of METHOD_NAMES; -1: not given */
    int measure, exclude_bos, exclude_current_token;
    int kind, mlp_input, no_embeds, apply_ln; /* kind: a lens_parts_kind */
    int no_fold_ln, no_center_writing_weights, no_center_unembed, no_fold_value_biases, refactor;
} lens_options;

static const size_t not_given = SIZE_MAX;

typedef struct lens lens;

/* The commands: their bits, which say what options they take, their names, their words, their functions and what these
 * find. The first runs if none is named. */
#define COMMANDS(X)                                                                                \
    X(TOKENS, "tokens", "prompt", run_losses, losses)                                              \
    X(LOSS, "loss", "prompt", run_losses, losses)                                                  \
    X(LENS, "logit-lens", "prompt", run_logit_lens, unembedded)                                    \
    X(PATTERNS, "patterns", "prompt", run_patterns, patterns)                                      \
    X(PATCH, "patch", "prompt corrupted names", run_patch, patching)                               \
    X(PATH, "path", "prompt corrupted", run_path, path_finding)                                    \
    X(EDGES, "edges", "prompt corrupted", run_edges, any_edges)                                    \
    X(ATTRIBUTE, "attribute", "prompt", run_attribute, terms)                                      \
    X(DECOMPOSE, "decompose", "prompt", run_decompose, sized_parts)                                \
    X(ABLATE, "ablate", "prompt", run_ablate, ablation)                                            \
    X(HEADS, "heads", "prompt", run_heads, kinds_of_heads)                                         \
    X(CIRCUITS, "circuits", "", run_circuits, any_circuits)                                        \
    X(QK, "qk", "prompt", run_qk, score_finding)                                                   \
    X(SAE, "sae", "directory prompt", run_sae, feature_finding)                                    \
    X(GRAPH, "graph", "prompt", run_graph, graph_finding)                                          \
    X(STEER, "steer", "prompt", run_steer, steered)                                                \
    X(GRADIENTS, "gradients", "prompt names", run_gradients, lens_gradients_desc)                  \
    X(PAIRS, "pairs", "task", run_pairs, pair_maker)                                               \
    X(PROCESS, "process", "", run_process, char)                                                   \
    X(RECORD, "record", "prompt names", run_record, attn_record_desc)

#define COMMAND_NUMBER(bit, name, words, run, finding) bit##_NUMBER,
#define COMMAND_BIT(bit, name, words, run, finding)    bit = 1 << bit##_NUMBER,
#define COMMAND_ROW(bit, name, words, run, finding)    {name, bit, words, run, sizeof(finding)},

enum { COMMANDS(COMMAND_NUMBER) N_COMMANDS };
enum { COMMANDS(COMMAND_BIT) };
enum {
    EDITS = 1 << N_COMMANDS,  /* the page of help on --edit, which is no command */
    COMMON = 2 << N_COMMANDS, /* the first page of help */
    ALL = COMMON | (EDITS - 1),
    OF_WEIGHTS = CIRCUITS | PAIRS | PROCESS, /* they read no text */
    OF_TEXTS = ALL & ~OF_WEIGHTS,
    OF_TWO_TEXTS = PATCH | PATH | EDGES,
    OF_PAIRS = OF_TWO_TEXTS | ABLATE,
    OF_ONE_LOGIT = ATTRIBUTE | ABLATE | GRADIENTS | DECOMPOSE,
    OF_TENSORS = RECORD | GRADIENTS, /* -o is a file of tensors */
    OF_PICTURES = ALL & ~(OF_TENSORS | DECOMPOSE | PAIRS | PROCESS),
    EDITED = TOKENS | LOSS | LENS | PATTERNS | ATTRIBUTE | PATCH | PATH | EDGES | GRADIENTS
};

typedef struct lens_command {
    const char *name;
    int bit;
    const char *words; /* the settings that words behind the command's name give, in their order */
    int (*run)(lens *l, void *finding); /* finding: zeros, which live as long as the answer */
    size_t finding_size;
} lens_command;

typedef struct lens_text {
    attn_token *ids;
    size_t n;
    const char **shown;  /* each token as it is displayed */
    const char *made_up; /* how lens made the text, if the user gave none; else NULL */
} lens_text;

/* A column that is measured for each of many pairs of texts (each_pair.h). */
typedef struct measured_column {
    answer_table *table;
    const char *column, *name; /* name: of what every pair has */
    double *numbers;
    size_t n;                    /* these are its rows; the table may have more */
    float *each;                 /* with --each or --ci: [n_pairs, 2 + n] */
    struct lens_spread *spreads; /* with --ci: [n] */
    /* The rows were chosen by their numbers. These, of [n_pairs, 2 + width], were not: */
    const float *all;
    const size_t *others; /* [n_others] */
    size_t n_others, width;
} measured_column;

/* How an answer is shown to people. `dress` makes the grids for l->form, views of the answer's columns; only who prints or
 * draws calls it. */
enum { FORM_TEXT, FORM_SVG, FORM_HTML };
typedef void (*dress_fn)(lens *l, const void *of); /* may change the page, too */
typedef struct showing {
    lens_page page;
    lens_grid *grids; /* [n_grids] */
    size_t n_grids, room;
    lens_grid none; /* the grid for which there is no memory */
    measured_column measures[8];
    size_t n_measures;
    dress_fn dress;                                   /* NULL: there is nothing to do */
    int (*print)(lens *l, const void *of);            /* NULL: the note and the grids */
    int (*draw)(lens *l, canvas *to, const void *of); /* in l->form; NULL: the page and the grids */
    int (*save)(lens *l, const void *of); /* writes a file of -o that no other form has; or NULL */
    void (*end)(lens *l, const void *of); /* frees what is not in l->ctx and l->memory; or NULL */
    const void *of;
} showing;

struct lens {
    /* the question */
    lens_options o;
    const lens_command *command;
    unsigned char given[MOST_OPTIONS];
    const char *const *command_line; /* that asks it: the words behind the program's name */
    int is_query;                    /* of a caller: there is no terminal, and no standard input */
    attn_progress_fn progress_fn;    /* of a caller, or NULL */
    void *progress_user;
    /* what it reads */
    attn_ctx ctx;
    arena memory;
    const char *model_path;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_session *session;
    lens_text text, corrupted, second, towards, away;
    attn_edit *edits; /* [n_edits]: of --edit (edits.h) */
    size_t n_edits;
    lens_pair *
        pairs; /* [n_pairs]: of --pairs (pair_file.h), else NULL; text and corrupted are the first */
    size_t n_pairs;
    int unnamed; /* 1: a line of --pairs has no token, 2: none to compare it with */
    struct lens_baseline *baselines; /* [n_pairs]: what every pair answers to both texts; or NULL */
    attn_record *record;             /* of record and gradients */
    /* the answer */
    answer answer;
    answer_units *units; /* for a receipt, or NULL */
    showing shown;
    lens_fact facts[5];
    /* who shows it */
    int form;
    canvas *out;
    int colour;  /* the terminal shows colours */
    int columns; /* of the terminal; 0: no limit */
    progress bar;
    size_t part, n_parts; /* which part of the work so_far is told of; n_parts 0: all of it */
};

/* Is a whole answer asked for? A terminal shows some of its numbers. */
static int wants_all(const lens *l)
{
    return l->o.output || l->o.json || l->is_query || l->units;
}

/* Are large tensors a part of the answer? */
static int keeps_tensors(const lens *l)
{
    return l->is_query || l->units;
}

static int was_stopped(const lens *l)
{
    return l->ctx.stop_flag && *l->ctx.stop_flag;
}

static void *allocate(lens *l, size_t count, size_t size)
{
    return arena_alloc(&l->ctx, &l->memory, count ? count : 1, size);
}

/* The text of a file, [*size] and a zero; NULL after a message in l->ctx. */
static char *file_text(lens *l, const char *path, size_t limit, size_t *size)
{
    char *text;
    return read_file(&l->ctx, &l->memory, path, limit, &text, size) == ATTN_OK ? text : NULL;
}

/* Formats a string that lives until the program ends. Without memory it is "", and l->ctx.status is set. */
static const char *keep(lens *l, const char *format, ...) TOOLS_PRINTF(2, 3);
static const char *keep(lens *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *const text = arena_words_of(&l->ctx, &l->memory, format, args);
    va_end(args);
    return text ? text : "";
}

static int is_file_of_tensors(const char *path)
{
    return path && (lens_ends_in(path, ".safetensors") || lens_ends_in(path, ".npz"));
}

#define NO_TEXT                                                                                    \
    "no text given: an argument, --file, --ids, - to type it, or --bos to begin with nothing"

/* Prints into l->out. */
static void say(lens *l, const char *format, ...) TOOLS_PRINTF(2, 3);
static void say(lens *l, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size < (int)sizeof text) {
        ink(l->out, text);
        return;
    }
    char *const longer = (char *)allocate(l, (size_t)size + 1, 1);
    va_start(args, format);
    if (longer)
        vsnprintf(longer, (size_t)size + 1, format, args);
    va_end(args);
    ink(l->out, longer ? longer : "");
}

/* Says something on standard error to who runs the program, unless --quiet. */
static void tell(const lens *l, const char *format, ...) TOOLS_PRINTF(2, 3);
static void tell(const lens *l, const char *format, ...)
{
    va_list args;
    if (l->o.quiet || l->is_query || !system_errors)
        return;
    va_start(args, format);
    vfprintf(system_errors, format, args);
    va_end(args);
    fputc('\n', system_errors);
}

/* Says what -o wrote. */
static void tell_written(const lens *l, const char *what)
{
    tell(l, "wrote %s: %s", l->o.output, what);
}

/* ---- progress: a caller is told, or a terminal shows it ---- */

static void begin_progress(lens *l, const char *what)
{
    memset(&l->bar, 0, sizeof l->bar);
    if (!l->is_query)
        progress_begin(&l->bar, what);
}

/* An attn_progress_fn. */
static int so_far(double done, void *of)
{
    lens *const l = (lens *)of;
    if (l->progress_fn)
        return l->progress_fn(l->n_parts ? ((double)l->part + done) / (double)l->n_parts : done,
                              l->progress_user);
    progress_at(&l->bar, done);
    return 0;
}

static void end_progress(lens *l)
{
    progress_end(&l->bar);
    l->bar.columns = 0;
}

/* ---- tokens as they are shown ---- */

/* A text in visible characters. */
static const char *visible(lens *l, const char *bytes, size_t size, const char *space)
{
    char *out = (char *)arena_alloc(&l->ctx, &l->memory, size + 1, 8);
    if (!out)
        return "";
    show_text(out, bytes, size, space);
    return out;
}

/* The label of a token of this model. */
static const char *shown_token(lens *l, attn_token id)
{
    return token_label(&l->ctx, &l->memory, l->tokenizer, id);
}

/* The same within a sentence: in quotes. */
static const char *quoted_token(lens *l, attn_token id)
{
    return keep(l, l->tokenizer ? "\"%s\"" : "%s", shown_token(l, id));
}

/* A label cut to at most `most` columns. */
static const char *brief(lens *l, const char *token, size_t most)
{
    const size_t size = strlen(token);
    return text_width(token, size) <= most
               ? token
               : keep(l, "%.*s…", (int)fitting_bytes(token, size, most - 1), token);
}

/* ---- the text ---- */

/* Says that the name of a special token, which a habit puts before a text, is letters here. */
static int note_special(lens *l, const char *word, size_t n)
{
    static const char note[] = "The name of a special token is letters here; the option special "
                               "makes it the token.";
    size_t n_special = strlen(word) + 1;
    attn_token *const ids = (attn_token *)allocate(l, n_special, sizeof *ids);
    if (!ids || attn_encode_special(&l->ctx, ids, &n_special, l->tokenizer, word, strlen(word)))
        return failed(&l->ctx);
    if (n_special != n && l->answer.n_notes == 0) {
        answer_note(&l->answer, note);
        tell(l, "note: %s", note);
    }
    return FINE;
}

/* Reads a text: its tokens and their labels. */
static int make_text(lens *l, lens_text *to, const char *word, const char *path, const char *option,
                     const char *ids)
{
    const int as_it_is = l->o.exact && l->command->bit != EDGES;
    const text_source from = {word,     path,     ids,
                              option,   l->o.bos, l->o.special,
                              as_it_is, NO_TEXT,  l->is_query && word ? strlen(word) : 0};
    int code = read_tokens(&l->ctx, &l->memory, l->model, l->model_path, &from, &to->ids, &to->n);
    if (code == FINE && word && strcmp(word, "-") != 0 && !ids && !l->o.special)
        code = note_special(l, word, to->n - (l->o.bos != 0));
    if (code != FINE)
        return code;
    to->shown = (const char **)allocate(l, to->n, sizeof *to->shown);
    for (size_t i = 0; to->shown && i < to->n; i++)
        to->shown[i] = shown_token(l, to->ids[i]);
    return outcome(&l->ctx);
}

/* A token named by --token or --against. */
static int name_token(lens *l, const char *option, const char *name, attn_token *id)
{
    size_t n = 0;
    attn_token ids[2], *list;
    if (l->o.ids || !l->tokenizer) {
        if (!(list = (int32_t *)allocate(l, strlen(name), sizeof *list)))
            return failed(&l->ctx);
        if (read_ids(l->model, option, name, list, &n) != FINE)
            return FAILED;
        if (n != 1)
            return fail(FAILED, "--%s: \"%s\" is not one token id", option, name);
        *id = list[0];
        return FINE;
    }
    n = 2;
    if (attn_encode_special(&l->ctx, ids, &n, l->tokenizer, name, strlen(name)) || n != 1) {
        l->ctx.status = ATTN_OK;
        return fail(FAILED,
                    "--%s: \"%s\" is %zu tokens, where one is needed (most words begin "
                    "with a space)",
                    option, name, n);
    }
    *id = ids[0];
    return FINE;
}

/* Makes a session for the text. */
static int make_session(lens *l, size_t n_batch)
{
    attn_session_desc desc = {0};
    desc.n_ctx = l->text.n;
    desc.n_batch = n_batch;
    return attn_session_new(&l->ctx, &l->session, l->model, &desc) ? failed(&l->ctx) : FINE;
}

#endif

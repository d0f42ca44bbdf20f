/* A run of lens: its options, its texts, the model, and functions that all commands use. */
#ifndef LENS_RUN_H
#define LENS_RUN_H

#include "tools/common/prompt.h"
#include "draw/lens_html.h"
#include "tools/lens/metric.h"
#include <math.h>

typedef struct options {
    const char *model, *text, *output, *ids, *file, *lines, *corrupted_ids, *token, *against;
    const char *from, *to, *second, *towards, *away, *heads, *pattern, *vector, *tuned;
    const char *pairs, *each, *circuit, *state, *transcoders, *shapley, *group;
    text_list edit, change;
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
} options;

static const size_t not_given = SIZE_MAX;

typedef struct lens lens;

/* The commands: their bits, which say what options they take, their names and their functions. The first
 * runs if none is named. */
#define COMMANDS(X)                                                                                \
    X(TOKENS, "tokens", run_losses)                                                                \
    X(LOSS, "loss", run_losses)                                                                    \
    X(LENS, "logit-lens", run_logit_lens)                                                          \
    X(PATTERNS, "patterns", run_patterns)                                                          \
    X(PATCH, "patch", run_patch)                                                                   \
    X(PATH, "path", run_path)                                                                      \
    X(EDGES, "edges", run_edges)                                                                   \
    X(ATTRIBUTE, "attribute", run_attribute)                                                       \
    X(DECOMPOSE, "decompose", run_decompose)                                                       \
    X(ABLATE, "ablate", run_ablate)                                                                \
    X(HEADS, "heads", run_heads)                                                                   \
    X(CIRCUITS, "circuits", run_circuits)                                                          \
    X(QK, "qk", run_qk)                                                                            \
    X(SAE, "sae", run_sae)                                                                         \
    X(GRAPH, "graph", run_graph)                                                                   \
    X(STEER, "steer", run_steer)                                                                   \
    X(GRADIENTS, "gradients", run_gradients)                                                       \
    X(PAIRS, "pairs", run_pairs)                                                                   \
    X(PROCESS, "process", run_process)                                                             \
    X(RECORD, "record", run_record)

#define COMMAND_NUMBER(bit, name, run) bit##_NUMBER,
#define COMMAND_BIT(bit, name, run)    bit = 1 << bit##_NUMBER,
#define COMMAND_ROW(bit, name, run)    {name, bit, run},

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

typedef struct command {
    const char *name;
    int bit;
    int (*run)(lens *l);
} command;

typedef struct lens_text {
    attn_token *ids;
    size_t n;
    const char **shown;  /* each token as it is displayed */
    const char *made_up; /* how lens made the text, if the user gave none; else NULL */
} lens_text;

struct lens {
    options o;
    const command *command;
    arguments given;
    const char *model_path, *clean_word, *corrupted_word;
    const char *operand; /* of sae, its directory; of pairs, the task */
    const char *const *names;
    size_t n_names;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_session *session;
    lens_text text, corrupted, second, towards, away;
    attn_edit *edits; /* of --edit (edits.h) */
    lens_pair *
        pairs; /* [n_pairs]: of --pairs (pair_file.h), else NULL; text and corrupted are the first */
    size_t n_pairs;
    const char *ci_of,
        *flips; /* of --ci: what the intervals are of, and how many signs were tried */
    size_t n_edits;
    const char *const *command_line; /* argv without the program's name */
    lens_fact facts[5];
    int colour;  /* the terminal shows colours */
    int columns; /* of the terminal; 0: no limit */
};

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
    char *line;
    int length;
    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    line = (char *)arena_alloc(&l->ctx, &l->memory, (size_t)length + 1, 1);
    if (!line)
        return "";
    va_start(args, format);
    vsnprintf(line, (size_t)length + 1, format, args);
    va_end(args);
    return line;
}

static int ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

static int is_file_of_tensors(const char *path)
{
    return path && (ends_in(path, ".safetensors") || ends_in(path, ".npz"));
}

#define NO_TEXT                                                                                    \
    "no text given: an argument, --file, --ids, - to type it, or --bos to begin with nothing"

/* Says on standard error what -o wrote, unless --quiet. */
static void tell_written(const lens *l, const char *what)
{
    if (!l->o.quiet)
        fprintf(stderr, "wrote %s: %s\n", l->o.output, what);
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
    size_t at = 0, length, used = 0;
    uint32_t code = 0;
    if (text_width(token, size) <= most)
        return token;
    for (; at < size; at += length) {
        length = utf8_length((const unsigned char *)token + at, size - at, &code);
        if ((used += (size_t)width_of(code)) > most - 1)
            break;
    }
    return keep(l, "%.*s…", (int)at, token);
}

/* ---- the text ---- */

/* Reads a text: its tokens and their labels. */
static int make_text(lens *l, lens_text *to, const char *word, const char *path, const char *option,
                     const char *ids)
{
    const int as_it_is = l->o.exact && l->command->bit != EDGES;
    const text_source from = {word,         path,     ids,     option, l->o.bos,
                              l->o.special, as_it_is, NO_TEXT, 0};
    const int code =
        read_tokens(&l->ctx, &l->memory, l->model, l->model_path, &from, &to->ids, &to->n);
    size_t i;
    if (code != FINE)
        return code;
    to->shown = (const char **)allocate(l, to->n, sizeof *to->shown);
    for (i = 0; to->shown && i < to->n; i++)
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

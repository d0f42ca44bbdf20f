/* cc tools/reproduce/reproduce.c -I. -O2 -fopenmp -lm -o reproduce      (without -fopenmp: one thread)
 *
 * Published figures of GPT-2 small, worked out again and set beside what was printed. The figures and
 * their sources are in published.txt; study.h and patching.h work them out by the public API. */

#include "tools/common/system.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "reproduce"
#define INPUT   "text"
#include "tools/common/json_out.h"
#include "tools/common/prompt.h"
#include "table.h"
#include "study.h"
#include "patching.h"
#include "attributing.h"

typedef struct options {
    const char *model, *figures, *json;
    size_t threads;
    int quick, isa, skip_checksums;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {0, "quick", NULL, FLAG, AT(quick), NULL, "leave out the sweeps by head and position"},
    {0, "json", "FILE", TEXT, AT(json), NULL, "write all figures, worked out and published"},
    {0, "figures", "FILE", TEXT, AT(figures), NULL,
     "published figures (default: tools/reproduce/published.txt)"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES,
     "portable, base, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot, neon-i8mm, amx"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_help(void)
{
    print_about(
        "reproduce MODEL.attn [options]",
        "Works out figures that papers, courses and notebooks printed about GPT-2 small, and "
        "prints a line for each block of them: how many agree within the tolerance, the "
        "largest difference, ok or differs; then its source. Any model with GPT-2's "
        "vocabulary will do, but only the real weights can agree: make gpt2.\n\n"
        "Example: reproduce build/gpt2.attn --json figures.json\n\n"
        "Exit code 0: all that could be worked out agree; 1: some differ.");
    print_options(table, N_OPTIONS);
}

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    table_of_blocks blocks;
    study study;
    progress progress;
    size_t n_blocks, n_ok, n_figures, n_within; /* of those that were worked out */
} run;

/* >> Procedures ================================================================================ */

static const float *work_out(run *r, const char *name, size_t *n);

typedef enum procedure_kind {
    ACCUMULATED,
    SUBLAYERS,
    HEADS,
    ABLATED_HEADS,
    POSITIONS,
    ALL_HEADS,
    ONE_PROMPT,
    BY_POSITION,
    PATTERN,
    REPEATED,
    ATTRIBUTED_STREAM, /* number 1: of sublayers */
    ATTRIBUTED_SUM,
    BLOCKS, /* a list of others */
    ATTRIBUTED
} procedure_kind;

/* Names of published.txt; `what` is an activation, a number of positions, or a list of other names. */
static const struct procedure {
    const char *name;
    procedure_kind kind;
    const char *what;
    size_t number, other;
} procedures[] = {
    {"accumulated", ACCUMULATED, NULL, 0, 0},
    {"sublayers", SUBLAYERS, NULL, 0, 0},
    {"heads", HEADS, NULL, 0, 0},
    {"ablated-heads", ABLATED_HEADS, NULL, 0, 0},
    {"patch-resid_pre", POSITIONS, "hook_resid_pre", 0, 0},
    {"patch-attn_out", POSITIONS, "hook_attn_out", 0, 0},
    {"patch-mlp_out", POSITIONS, "hook_mlp_out", 0, 0},
    {"patch-z", ALL_HEADS, "attn.hook_z", 0, 0},
    {"patch-q", ALL_HEADS, "attn.hook_q", 0, 0},
    {"patch-k", ALL_HEADS, "attn.hook_k", 0, 0},
    {"patch-v", ALL_HEADS, "attn.hook_v", 0, 0},
    {"patch-pattern", ALL_HEADS, "attn.hook_pattern", 0, 0},
    {"patch-z-by-position", BY_POSITION, "attn.hook_z", 0, 0},
    {"patch-q-by-position", BY_POSITION, "attn.hook_q", 0, 0},
    {"patch-k-by-position", BY_POSITION, "attn.hook_k", 0, 0},
    {"patch-v-by-position", BY_POSITION, "attn.hook_v", 0, 0},
    {"patch-pattern-by-position", BY_POSITION, "attn.hook_pattern", 0, 0},
    {"patch-resid_pre-of-one", ONE_PROMPT, NULL, 0, 0},
    {"pattern-5.5", PATTERN, NULL, 5, 5},
    {"pattern-10.7", PATTERN, NULL, 10, 7},
    {"pattern-11.10", PATTERN, NULL, 11, 10},
    {"previous-token", REPEATED, NULL, 1, 0},
    {"duplicate-token", REPEATED, NULL, 100, 0},
    {"induction", REPEATED, NULL, 99, 0},
    {"attr-resid", ATTRIBUTED_STREAM, NULL, 0, 0},
    {"attr-layers", ATTRIBUTED_STREAM, NULL, 1, 0},
    {"attr-resid_pre", ATTRIBUTED, NULL, 0, 0},
    {"attr-attn_out", ATTRIBUTED, NULL, 0, 0},
    {"attr-mlp_out", ATTRIBUTED, NULL, 0, 0},
    {"attr-result", ATTRIBUTED, NULL, 0, 0},
    {"attr-q", ATTRIBUTED, NULL, 0, 0},
    {"attr-k", ATTRIBUTED, NULL, 0, 0},
    {"attr-v", ATTRIBUTED, NULL, 0, 0},
    {"attr-z", ATTRIBUTED, NULL, 0, 0},
    {"attr-pattern", ATTRIBUTED, NULL, 0, 0},
    {"attr-result-sum", ATTRIBUTED_SUM, "attr-result", 0, 0},
    {"attr-q-sum", ATTRIBUTED_SUM, "attr-q", 0, 0},
    {"attr-k-sum", ATTRIBUTED_SUM, "attr-k", 0, 0},
    {"attr-v-sum", ATTRIBUTED_SUM, "attr-v", 0, 0},
    {"attr-z-sum", ATTRIBUTED_SUM, "attr-z", 0, 0},
    {"attr-pattern-sum", ATTRIBUTED_SUM, "attr-pattern", 0, 0},
    {"attr-blocks", BLOCKS, "attr-resid_pre,attr-attn_out,attr-mlp_out", 0, 0},
    {"attr-heads", BLOCKS, "attr-z-sum,attr-q-sum,attr-k-sum,attr-v-sum,attr-pattern-sum", 0, 0},
    {"attr-heads-by-position", BLOCKS, "attr-z,attr-q,attr-k,attr-v,attr-pattern", 0, 0},
    {"patch-blocks", BLOCKS, "patch-resid_pre,patch-attn_out,patch-mlp_out", 0, 0},
    {"patch-heads", BLOCKS, "patch-z,patch-q,patch-k,patch-v,patch-pattern", 0, 0},
    {"patch-heads-by-position", BLOCKS,
     "patch-z-by-position,patch-q-by-position,patch-k-by-position,patch-v-by-position,"
     "patch-pattern-by-position",
     0, 0},
};
enum { N_PROCEDURES = sizeof procedures / sizeof procedures[0] };

static size_t size_of(const study *s, const struct procedure *p)
{
    const size_t heads = s->n_layer * s->n_head;
    switch (p->kind) {
    case ACCUMULATED:
        return 2 * s->n_layer + 1;
    case SUBLAYERS:
        return 2 * s->n_layer + 2;
    case POSITIONS:
        return s->n_layer * N_TOKENS;
    case ONE_PROMPT:
        return s->n_layer * N_ONE;
    case PATTERN:
        return (size_t)N_PROMPTS * N_TOKENS * N_TOKENS;
    case BY_POSITION:
        return heads * N_TOKENS;
    case ATTRIBUTED_STREAM:
        return (2 * s->n_layer + 1 + p->number) * N_TOKENS;
    default:
        return heads;
    }
}

/* From what attribute_all kept: the stream's rows in their order, the layers' rows, sums. */
static attn_status arrange_attributions(run *r, const struct procedure *p, float *out)
{
    study *s = &r->study;
    const kept *first, *second, *last;
    if (!find_kept(s, "attr-z") && attribute_all(s))
        return s->ctx->status;
    if (p->kind == ATTRIBUTED_SUM) {
        first = find_kept(s, p->what);
        sum_positions(out, first->values, first->n / N_TOKENS);
        return ATTN_OK;
    }
    first = find_kept(s, p->number ? "attr-attn_out" : "attr-resid_pre");
    second = find_kept(s, p->number ? "attr-mlp_out" : "attr-resid_mid");
    last = find_kept(s, "attr-resid_post");
    interleave(s, out, p->number ? 2 : 0, first->values, second->values);
    if (p->number) /* hook_embed is all that enters the first block but for the positions' share */
        memcpy(out, find_kept(s, "attr-resid_pre")->values, N_TOKENS * sizeof *out);
    else
        memcpy(out + 2 * s->n_layer * N_TOKENS, last->values + (s->n_layer - 1) * N_TOKENS,
               N_TOKENS * sizeof *out);
    return ATTN_OK;
}

/* One procedure that is not a list of others. */
static attn_status perform(run *r, const struct procedure *p, float *out, size_t n)
{
    study *s = &r->study;
    const float *heads;
    float mean = 0;
    size_t size;
    switch (p->kind) {
    case ACCUMULATED:
        return attribute(s, out, n, ATTN_RESID_ACCUMULATED_MID);
    case SUBLAYERS:
        return attribute(s, out, n, ATTN_RESID_SUBLAYERS);
    case HEADS:
        return attribute(s, out, n, ATTN_RESID_HEADS);
    case ABLATED_HEADS:
        heads = work_out(r, "heads", &size);
        return heads ? ablate_top(s, out, &mean, heads) : s->ctx->status;
    case POSITIONS:
        return patch_everywhere(s, out, p->what, 0);
    case ALL_HEADS:
        return patch_everywhere(s, out, p->what, 1);
    case ONE_PROMPT:
        return patch_one(s, out);
    case PATTERN:
        return patterns_of(s, out, p->number, p->other);
    case REPEATED:
        return repeated_tokens(s, out, p->number);
    case ATTRIBUTED_STREAM:
    case ATTRIBUTED_SUM:
        return arrange_attributions(r, p, out);
    case BY_POSITION:
        return patch_by_position(s, out, p->what, &r->progress);
    default: /* BLOCKS is a list, and ATTRIBUTED kept by attribute_all */
        return tool_fail(s->ctx, ATTN_E_NAME, "%s has no numbers of its own", p->name);
    }
}

/* Several procedures by name, with commas between them, one after the other. */
static const float *join(run *r, const char *names, size_t *n)
{
    float *all = NULL, *larger;
    const float *part;
    char name[64];
    size_t size, length;
    for (*n = 0; *names; names += length + (names[length] != 0)) {
        length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (!(part = work_out(r, name, &size)) || !(larger = room_for(&r->study, *n + size)))
            return NULL;
        if (*n > 0)
            memcpy(larger, all, *n * sizeof *all);
        memcpy(larger + *n, part, size * sizeof *part);
        all = larger;
        *n += size;
    }
    return all;
}

/* The numbers of a procedure, kept for the next time. NULL after a message in the context. */
static const float *work_out(run *r, const char *name, size_t *n)
{
    study *s = &r->study;
    const struct procedure *p = procedures;
    float *values;
    const kept *k = find_kept(s, name);
    if (k) {
        *n = k->n;
        return k->values;
    }
    if (strchr(name, ','))
        return join(r, name, n);
    while (p < procedures + N_PROCEDURES && strcmp(p->name, name) != 0)
        p++;
    if (p == procedures + N_PROCEDURES) {
        tool_fail(s->ctx, ATTN_E_NAME, "there is no procedure %s", name);
        return NULL;
    }
    if (p->kind == ATTRIBUTED && !attribute_all(s))
        return work_out(r, name, n);
    if (p->kind >= BLOCKS)
        return p->kind == BLOCKS ? join(r, p->what, n) : NULL;
    *n = size_of(s, p);
    values = room_for(s, *n);
    return !values || perform(r, p, values, *n) || keep(s, name, values, *n) ? NULL : values;
}

/* >> Single figures ============================================================================ */

/* The mean loss of the input's tokens. */
static attn_status mean_loss(run *r, const block *b, float *out)
{
    attn_token_stats stats[64];
    attn_session *session = NULL;
    if (!attn_session_new(&r->ctx, &session, r->model, NULL) &&
        !attn_score(&r->ctx, stats, NULL, session, b->ids, b->n_ids))
        *out = (float)attn_mean_nll(stats, b->n_ids - 1);
    attn_session_free(session);
    return r->ctx.status;
}

static attn_status greedy_ids(run *r, const block *b, float *out)
{
    attn_generate_desc how = ATTN_ZERO;
    attn_generation made = ATTN_ZERO;
    attn_session *session = NULL;
    int32_t ids[64] = {0};
    size_t i;
    made.ids = ids;
    how.prompt_ids = b->ids;
    how.n_prompt_ids = b->n_ids;
    how.max_tokens = b->n < 64 ? b->n : 64;
    how.ignore_eos = 1;
    if (!attn_session_new(&r->ctx, &session, r->model, NULL))
        attn_generate(&r->ctx, &made, session, NULL, &how);
    for (i = 0; i < made.n_ids; i++)
        out[i] = (float)ids[i];
    attn_session_free(session);
    return r->ctx.status;
}

/* The first numbers that leave the final LayerNorm at the last position. */
static attn_status hidden_state(run *r, const block *b, float *out)
{
    static const char *const name = "ln_final.hook_normalized.post";
    attn_record_desc what = ATTN_ZERO;
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_tensor x;
    size_t i;
    what.names = &name;
    what.n_names = 1;
    what.n_positions = b->n_ids;
    if (!attn_session_new(&r->ctx, &session, r->model, NULL) &&
        !attn_record_new(&r->ctx, &record, session, &what, NULL, 0) &&
        !attn_feed(&r->ctx, session, b->ids, b->n_ids) &&
        !attn_record_get(&r->ctx, &x, record, name))
        for (i = 0; i < b->n; i++)
            out[i] = attn_get2(x, b->n_ids - 1, i);
    attn_record_free(record);
    attn_session_free(session);
    return r->ctx.status;
}

/* The logit difference of each prompt. */
static attn_status prompt_differences(run *r, float *out)
{
    attn_session *session = NULL;
    size_t i;
    attn_session_new(&r->ctx, &session, r->study.model, NULL);
    for (i = 0; i < N_PROMPTS && !r->ctx.status; i++)
        if (!attn_truncate(&r->ctx, session, 0) &&
            !attn_feed(&r->ctx, session, prompts[i], N_TOKENS))
            out[i] = attn_logits(session)[answers[i][0]] - attn_logits(session)[answers[i][1]];
    attn_session_free(session);
    return r->ctx.status;
}

static attn_status ablated_difference(run *r, float *out)
{
    size_t n;
    const float *heads = work_out(r, "heads", &n);
    float *each = heads ? room_for(&r->study, n) : NULL, *mean = out;
    return each ? ablate_top(&r->study, each, mean, heads) : r->ctx.status;
}

/* >> Blocks ==================================================================================== */

/* The numbers of a block; NULL after a message in the context. */
static const float *figures_of(run *r, const block *b)
{
    float *out = room_for(&r->study, b->n);
    const float *values;
    size_t n = 0;
    if (!out)
        return NULL;
    if (strcmp(b->procedure, "loss") == 0)
        return mean_loss(r, b, out) ? NULL : out;
    if (strcmp(b->procedure, "greedy") == 0)
        return greedy_ids(r, b, out) ? NULL : out;
    if (strcmp(b->procedure, "hidden") == 0)
        return hidden_state(r, b, out) ? NULL : out;
    if (strcmp(b->procedure, "prompts") == 0)
        return prompt_differences(r, out) ? NULL : out;
    if (strcmp(b->procedure, "ablated") == 0)
        return ablated_difference(r, out) ? NULL : out;
    values = work_out(r, b->procedure, &n);
    if (values && n != b->n) {
        tool_fail(&r->ctx, ATTN_E_SHAPE, "%zu numbers here, %zu published", n, b->n);
        return NULL;
    }
    return values;
}

/* Why a block cannot be worked out with this model; NULL: it can. */
static const char *reason_against(const run *r, const block *b)
{
    const int by_position = strstr(b->procedure, "by-position") != NULL;
    const attn_config *c = attn_model_config(r->model);
    size_t i;
    if (strncmp(b->procedure, "none: ", 6) == 0)
        return b->procedure + 6;
    if (by_position && r->o.quick)
        return "left out by --quick";
    if (b->n_ids == 0 && (c->n_layer != N_LAYER || c->n_head != N_HEAD))
        return "it needs a model of 12 layers with 12 heads";
    if (b->n_ids == 0 && c->n_vocab < 50257)
        return "it needs GPT-2's vocabulary";
    for (i = 0; i < b->n_ids; i++)
        if ((uint32_t)b->ids[i] >= c->n_vocab)
            return "it needs GPT-2's vocabulary";
    return NULL;
}

static void out_nested(json_out *o, const block *b, int dim, const float *values,
                       const double *published, size_t *at)
{
    size_t i;
    out_open(o, '[');
    for (i = 0; i < b->shape[dim]; i++)
        if (dim + 1 < b->ndim)
            out_nested(o, b, dim + 1, values, published, at);
        else if (values)
            out_f32(o, values[(*at)++]);
        else
            out_digits(o, published[(*at)++], 9);
    out_close(o, ']');
}

static void out_block(json_out *o, const block *b, const float *values, const char *reason)
{
    size_t at = 0;
    out_open(o, '{');
    out_key(o, "notebook");
    out_word(o, b->source);
    out_key(o, "cell");
    out_count(o, b->cell);
    out_key(o, "title");
    out_word(o, b->title);
    out_key(o, "procedure");
    out_word(o, b->procedure);
    out_key(o, "tolerance");
    out_digits(o, b->tolerance, 6);
    if (values) {
        out_key(o, "values");
        out_nested(o, b, 0, values, NULL, &at);
    } else {
        out_key(o, "reason");
        out_word(o, reason);
    }
    if (b->published) {
        at = 0;
        out_key(o, "published");
        out_nested(o, b, 0, NULL, b->published, &at);
    }
    out_close(o, '}');
}

/* One line, and what it was made of. */
static void report(run *r, const block *b, const float *values, const char *reason)
{
    double largest = 0, difference;
    size_t i, within = 0;
    for (i = 0; values && i < b->n; i++) {
        difference = fabs((double)values[i] - b->published[i]);
        within += difference <= b->tolerance;
        largest = difference > largest || !(difference >= 0) ? difference : largest;
    }
    if (values)
        printf("%-8s %5zu of %5zu within %.0e, at most %-8.2g %s\n",
               within == b->n ? "ok" : "differs", within, b->n, b->tolerance, largest, b->title);
    else
        printf("%-8s %5s    %5zu not worked out: %s: %s\n", "-", "", b->n, reason, b->title);
    printf("         %s, cell %zu%s%s\n", b->source, b->cell, values ? ": " : "",
           values ? b->procedure : "");
    fflush(stdout);
    if (values) {
        r->n_blocks++;
        r->n_ok += within == b->n;
        r->n_figures += b->n;
        r->n_within += within;
    }
}

static int reproduce_all(run *r, json_out *o)
{
    const double begin = system_seconds();
    size_t i;
    out_open(o, '{');
    out_key(o, "blocks");
    out_open(o, '[');
    for (i = 0; i < r->blocks.n; i++) {
        const block *b = &r->blocks.at[i];
        const char *reason = reason_against(r, b);
        const float *values = NULL;
        progress_begin(&r->progress, "patching");
        if (!reason && !(values = figures_of(r, b))) {
            progress_end(&r->progress);
            return failed(&r->ctx);
        }
        progress_end(&r->progress);
        report(r, b, values, reason);
        out_block(o, b, values, reason);
    }
    out_close(o, ']');
    out_close(o, '}');
    printf("%zu of %zu figures are within their tolerance; %zu of %zu blocks are ok, %zu were not "
           "worked "
           "out; %.0f s\n",
           r->n_within, r->n_figures, r->n_ok, r->n_blocks, r->blocks.n - r->n_blocks,
           system_seconds() - begin);
    return r->n_ok == r->n_blocks ? FINE : FAILED;
}

static int write_json(run *r, json_out *o)
{
    attn_new_file *file = NULL;
    attn_status status = attn_new_file_begin(&r->ctx, &file, r->o.json);
    if (!status && !out_line(o, (FILE *)attn_new_file_stream(file)))
        status = tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for the figures");
    return attn_new_file_end(&r->ctx, file, status) ? failed(&r->ctx) : FINE;
}

static int run_all(run *r)
{
    json_out o = {NULL, 0, 0, 0, 0};
    int code, written = FINE;
    r->ctx.n_threads = (int)r->o.threads;
    code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE)
        return code;
    r->study.ctx = &r->ctx;
    r->study.memory = &r->memory;
    r->study.raw = r->model;
    if (read_table(&r->ctx, &r->memory, &r->blocks,
                   r->o.figures ? r->o.figures : "tools/reproduce/published.txt") ||
        begin_study(&r->study))
        return failed(&r->ctx);
    code = reproduce_all(r, &o);
    if (r->o.json && (code == FINE || r->ctx.status == ATTN_OK))
        written = write_json(r, &o);
    out_free(&o);
    return written != FINE ? written : code;
}

int main(int argc, char **argv)
{
    static run r;
    static arguments given;
    const program self = {table, N_OPTIONS, 1, "give one model", print_help};
    size_t next = 0;
    int code;
    system_begin(&argc, &argv);
    if (!read_command_line(&self, argc, argv, &r.o, &given, &code))
        return code;
    r.o.model = option_or_word(r.o.model, &given, &next);
    if (!r.o.model)
        return fail(USAGE, "no model given: reproduce MODEL.attn (--help tells more)");
    signal(SIGINT, on_interrupt);
    code = run_all(&r);
    attn_model_close(r.study.model);
    attn_model_close(r.model);
    arena_free(&r.memory);
    return finish_output(code);
}

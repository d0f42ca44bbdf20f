/* Surprisal of texts in memory, as columns: for the Python package (tools/lens/library.c) and the R package.
 *
 *     lens_surprisal_new(&ctx, &run, model, &options, names)       options, and the columns of a table
 *     lens_surprisal_source(run, 0)                                which column has the texts; 1: the regions
 *     lens_surprisal_read(&ctx, run, &texts, &lists)               looks at all texts
 *     lens_surprisal_suite(&ctx, run, path)                        or at those of a suite (options.is_suite)
 *     lens_surprisal_notes(run)                                    sentences, each with a line feed behind it
 *     while (done < 1) lens_surprisal_pass(&ctx, run, &done)       the model reads on
 *     for (i = 0; lens_surprisal_column(&column, run, i); i++)     what came of it
 *     vectors = lens_surprisal_vectors(run, &width)                those of the option `vectors`
 *     lens_surprisal_free(run)
 *
 * A caller adds the columns that are CARRIED, row by row: `text` says of which record. */
#ifndef SURPRISAL_COLUMNS_H
#define SURPRISAL_COLUMNS_H

#include "check.h"

#ifndef LENS_FN
#define LENS_FN TOOLS_FN
#endif

enum { CALLER_PASS = 64 }; /* tokens from one look for an interrupt to the next */

/* Strings, one behind another: number i ends before byte ends[i]. */
typedef struct lens_strings {
    const char *bytes;
    const uint64_t *ends;
    size_t n;
} lens_strings;

/* Copies strings into spans. */
static attn_status take_strings(surprisal_run *r, span **spans, const lens_strings *strings)
{
    const size_t n = strings->n;
    char *const copy =
        arena_text(&r->ctx, &r->memory, strings->bytes, n ? (size_t)strings->ends[n - 1] : 0);
    size_t i, at = 0;
    *spans = (span *)arena_alloc(&r->ctx, &r->memory, n + 1, sizeof(span));
    for (i = 0; copy && *spans && i < n; i++) {
        (*spans)[i].text = copy + at;
        (*spans)[i].size = (size_t)strings->ends[i] - at;
        at = (size_t)strings->ends[i];
    }
    return r->ctx.status;
}

static attn_status check_strings(surprisal_run *r, const span *strings, size_t n)
{
    attn_status status = n ? check_kind(r, strings[0].text, strings[0].size) : ATTN_OK;
    size_t i;
    for (i = 0; status == ATTN_OK && i < n; i++)
        status = check_utf8(r, strings[i].text, strings[i].size, i + 1);
    return status;
}

/* Gives the caller the failure of a run. */
static attn_status give_failure(attn_ctx *ctx, const surprisal_run *r, attn_status status)
{
    return status ? attn_fail(ctx, status, "%s", r->ctx.message) : ATTN_OK;
}

LENS_FN void lens_surprisal_free(surprisal_run *r)
{
    if (r)
        free_run(r);
    free(r);
}

static attn_status take_options(surprisal_run *r, const surprisal_options *o,
                                const lens_strings *names)
{
    const char **const kept[] = {&r->o.regions, &r->o.column, &r->o.region_names, &r->o.pair,
                                 &r->o.group}; /* beyond this call */
    size_t i;
    r->o = *o;
    for (i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (*kept[i])
            *kept[i] = arena_text(&r->ctx, &r->memory, *kept[i], strlen(*kept[i]));
    if (r->ctx.status || check_options(r))
        return r->ctx.status;
    r->input.has_names = names->ends != NULL;
    r->input.n_columns = names->n;
    if (o->column && !r->input.has_names)
        return refuse(r, ATTN_E_ARGUMENT, "--column: there is no table, but only texts");
    if (take_strings(r, &r->input.names, names) || !r->input.has_names)
        return r->ctx.status;
    return names->n && check_kind(r, r->input.names[0].text, r->input.names[0].size)
               ? r->ctx.status
               : find_columns(r);
}

/* A vector_fn. */
static int keep_vector(surprisal_run *r, uint64_t row)
{
    (void)row;
    out_bytes(&r->vectors, (const char *)r->pooled, r->width * sizeof(float));
    r->row.failed |= r->vectors.failed;
    return 0;
}

/* `names`: those of a table's columns; without `ends` there is no table. The model must outlive the run. */
LENS_FN attn_status lens_surprisal_new(attn_ctx *ctx, surprisal_run **out, attn_model *model,
                                       const surprisal_options *o, const lens_strings *names)
{
    surprisal_run *const r = (surprisal_run *)calloc(1, sizeof *r);
    attn_status status;
    if (!r)
        return attn_fail(ctx, ATTN_E_MEMORY, "no memory for a text");
    r->ctx.n_threads = ctx->n_threads;
    r->ctx.isa = ctx->isa;
    r->model = model;
    r->model_name = "the model";
    r->batch = CALLER_PASS;
    r->n_pass = CALLER_PASS;
    r->form = AS_COLUMNS;
    r->vector_fn = keep_vector;
    status = give_failure(ctx, r, take_options(r, o, names));
    *out = status ? NULL : r;
    if (status)
        lens_surprisal_free(r);
    return status;
}

LENS_FN size_t lens_surprisal_source(const surprisal_run *r, int which)
{
    return which ? r->input.regions : r->input.column;
}

/* Looks at the texts, and at the names of their regions: of none if `lists` has none. */
LENS_FN attn_status lens_surprisal_read(attn_ctx *ctx, surprisal_run *r, const lens_strings *texts,
                                        const lens_strings *lists)
{
    r->ctx.stop_flag = ctx->stop_flag;
    r->input.n_records = texts->n;
    if (take_strings(r, &r->input.texts, texts) == ATTN_OK &&
        take_strings(r, &r->input.lists, lists) == ATTN_OK &&
        check_strings(r, r->input.texts, texts->n) == ATTN_OK &&
        check_strings(r, r->input.lists, lists->n) == ATTN_OK)
        begin_run(r);
    return give_failure(ctx, r, r->ctx.status);
}

LENS_FN attn_status lens_surprisal_suite(attn_ctx *ctx, surprisal_run *r, const char *path)
{
    char *text;
    size_t size;
    r->ctx.stop_flag = ctx->stop_flag;
    r->name = arena_text(&r->ctx, &r->memory, path, strlen(path));
    if (r->name &&
        read_bytes(&r->ctx, &r->memory, path, (size_t)1 << 30, &text, &size) == ATTN_OK &&
        read_input(r, text, size) == ATTN_OK)
        begin_run(r);
    return give_failure(ctx, r, r->ctx.status);
}

/* *done: the share of the texts that is read, 1 at the end. */
LENS_FN attn_status lens_surprisal_pass(attn_ctx *ctx, surprisal_run *r, double *done)
{
    r->ctx.stop_flag = ctx->stop_flag;
    return give_failure(ctx, r, run_pass(r, done));
}

LENS_FN const char *lens_surprisal_notes(surprisal_run *r)
{
    out_bytes(&r->notes, "", 1);
    return r->notes.failed ? "" : r->notes.text;
}

/* A column of the output. Text i is bytes [ends[i - 1], ends[i]); where there is none, number i is NaN. */
typedef struct lens_column {
    const char *name;
    int kind;      /* A_COUNT, A_NUMBER, A_TEXT or CARRIED */
    size_t source; /* CARRIED: the number of the input's column */
    size_t n;
    const double *numbers;
    const uint64_t *ends;
    const char *bytes;
} lens_column;

/* Number i of the columns; 0: there are fewer. */
LENS_FN int lens_surprisal_column(lens_column *column, const surprisal_run *r, size_t i)
{
    const out_column *const c = r->columns + i;
    if (i >= r->n_columns)
        return 0;
    column->name = c->name;
    column->kind = c->kind;
    column->source = c->source;
    column->n = c->n;
    column->numbers = c->numbers;
    column->ends = c->ends;
    column->bytes = c->texts.text;
    return 1;
}

/* [rows, *width], until the run is freed. */
LENS_FN const float *lens_surprisal_vectors(const surprisal_run *r, size_t *width)
{
    *width = r->width;
    return (const float *)(const void *)r->vectors.text;
}

#endif

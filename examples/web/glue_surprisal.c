/* tools/surprisal in the module: the same code, on a text in memory, a step at a time. attn.js is the
 * other half, and collects what is written: rows on standard output, sentences on standard error. */
#ifdef __wasm__
#include "no_signals.h"
#endif
#include "tools/surprisal/check.h"

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name)))
#else /* for tools that read the code with another compiler */
#define EXPORT(name)
#endif

/* The strings follow each other, each ended by a zero. One that is given begins with '='. */
static const char *next_string(const char **strings)
{
    const char *const text = *strings;
    *strings += strlen(text) + 1;
    return *text ? text + 1 : NULL;
}

/* A row_fn. */
static int print_row(surprisal_run *r, uint64_t number)
{
    (void)number;
    return fwrite(r->row.text, 1, r->row.size, stdout) != r->row.size;
}

static attn_status begin(surprisal_run *r, const char *text, size_t size)
{
    char *copy;
#ifndef __wasm_simd128__
    r->ctx.isa = ATTN_ISA_PORTABLE; /* as glue_isa() */
#endif
    if (check_options(r) || !(copy = arena_text(&r->ctx, &r->memory, text, size)) ||
        read_input(r, copy, size) || begin_run(r))
        return r->ctx.status;
    fwrite(r->notes.text, 1, r->notes.size, stderr);
    return ATTN_OK;
}

static void print_fields(const span *fields, size_t n)
{
    size_t i, k;
    for (i = 0; i < n; i++) {
        fputs(i ? ",\"" : "\"", stdout);
        for (k = 0; k < fields[i].size; k++)
            fputs(fields[i].text[k] == '"' ? "\"\"" : (char[]){fields[i].text[k], 0}, stdout);
        putchar('"');
    }
    putchar('\n');
}

/* Prints the names of a table's columns and the fields of its first record, as CSV with commas. It prints nothing, or the
 * names alone, of a table that cannot be read: glue_surprisal says why. */
EXPORT(glue_columns) void glue_columns(const char *text, size_t size);
void glue_columns(const char *text, size_t size)
{
    surprisal_run *const r = (surprisal_run *)calloc(1, sizeof *r);
    table_reader in = {NULL, NULL, 1, ','};
    char *const copy = r ? arena_text(&r->ctx, &r->memory, text, size) : NULL;
    if (!copy) {
        free(r);
        return;
    }
    r->name = "the table";
    r->o.face = OF_PAGE;
    if (to_lines(r, copy, &size) == ATTN_OK && size > 0) {
        in.at = copy;
        in.end = copy + size;
        read_header(r,
                    &in); /* it refuses that no column is chosen yet, when it has read the names */
        print_fields(r->input.names, r->input.n_columns);
        r->ctx.status = ATTN_OK;
        if (r->input.n_columns && in.at < in.end && read_record(r, &in) == ATTN_OK)
            print_fields(r->input.cells, r->input.n_columns);
    }
    fflush(stdout);
    free_run(r);
    free(r);
}

EXPORT(glue_surprisal_free) void glue_surprisal_free(surprisal_run *r);
void glue_surprisal_free(surprisal_run *r)
{
    free_run(r);
    free(r);
}

/* Begins a run over a text of `size` bytes. strings: the text's name for messages, then the words of take_lists().
 * numbers: its numbers. The model and the strings must outlive the run. NULL on failure. */
EXPORT(glue_surprisal)
surprisal_run *glue_surprisal(attn_model *model, const char *text, size_t size, const char *strings,
                              const double *numbers);
surprisal_run *glue_surprisal(attn_model *model, const char *text, size_t size, const char *strings,
                              const double *numbers)
{
    const char *words[N_WORDS];
    size_t i;
    surprisal_run *const r = (surprisal_run *)calloc(1, sizeof *r);
    if (!r) {
        fputs("there is no memory for a text", stderr);
        return NULL;
    }
    r->model = model;
    r->model_name = "the model";
    r->row_fn = print_row;
    r->batch = 64;
    r->n_pass = ROWS;
    r->name = next_string(&strings);
    for (i = 0; i < N_WORDS; i++)
        words[i] = next_string(&strings);
    take_lists(&r->o, words, numbers);
    r->o.face = OF_PAGE;
    if (begin(r, text, size) == ATTN_OK && fflush(stdout) == 0)
        return r;
    fputs(r->ctx.message, stderr);
    glue_surprisal_free(r);
    return NULL;
}

/* Runs the model once, over as many texts as fit into a pass. Returns the share that is done, 1 at the end;
 * negative on failure. */
EXPORT(glue_surprisal_step) double glue_surprisal_step(surprisal_run *r);
double glue_surprisal_step(surprisal_run *r)
{
    double done = 0;
    if (run_pass(r, &done) == ATTN_OK && fflush(stdout) == 0)
        return done;
    fputs(r->ctx.message, stderr);
    return -1;
}

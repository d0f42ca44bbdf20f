/* tools/surprisal in the module: the same code, on a text in memory, a step at a time. attn.js is the
 * other half, and collects what is written: rows on standard output, sentences on standard error. */
#define PROGRAM "surprisal"
#define INPUT   "texts"
#ifdef __wasm__
#include "no_signals.h"
#endif
#include "tools/surprisal/check.h"

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name)))
#else /* for tools that read the code with another compiler */
#define EXPORT(name)
#endif

/* The strings follow each other, each ended by a zero; an empty one was not given. */
static const char *next_string(const char **strings)
{
    const char *const text = *strings;
    *strings += strlen(text) + 1;
    return *text ? text : NULL;
}

static int begin(run *r, const char *text, size_t size)
{
    char *copy;
    int code = check_usage(r);
#ifndef __wasm_simd128__
    r->ctx.isa = ATTN_ISA_PORTABLE; /* as glue_isa() */
#endif
    if (code != FINE || (code = check_options(r)) != FINE)
        return code;
    if (!(copy = (char *)arena_alloc(&r->ctx, &r->memory, size + 1, 1)))
        return failed(&r->ctx);
    memcpy(copy, text, size);
    if (to_plain_text(&r->ctx, r->name, 0, copy, &size))
        return failed(&r->ctx);
    if ((code = read_records(r, copy, size)) == FINE && (code = check_input(r)) == FINE &&
        (code = make_room(r)) == FINE)
        code = write_header(r);
    return code;
}

EXPORT(glue_surprisal_free) void glue_surprisal_free(run *r);
void glue_surprisal_free(run *r)
{
    free_run(r);
    free(r);
}

/* Begins with a text of `size` bytes. The strings: the text's name for messages, the options --column,
 * --regions and --region-names. The numbers: by, unit, punctuation, continue, no-bos, rank, top, stride.
 * The model and the strings must outlive what is returned. NULL on failure. */
EXPORT(glue_surprisal)
run *glue_surprisal(attn_model *model, const char *text, size_t size, const char *strings,
                    const double *numbers);
run *glue_surprisal(attn_model *model, const char *text, size_t size, const char *strings,
                    const double *numbers)
{
    run *const r = (run *)calloc(1, sizeof *r);
    if (!r) {
        fail(FAILED, "there is no memory for a text");
        return NULL;
    }
    r->model = model;
    r->output = stdout;
    r->name = next_string(&strings);
    r->o.model = "the model";
    r->o.column = next_string(&strings);
    r->o.regions = next_string(&strings);
    r->o.region_names = next_string(&strings);
    r->o.by = (int)numbers[0];
    r->o.unit = (int)numbers[1];
    r->o.punctuation = (int)numbers[2];
    r->o.continues = (int)numbers[3];
    r->o.no_bos = (int)numbers[4];
    r->o.rank = (int)numbers[5];
    r->o.top = (size_t)numbers[6];
    r->o.stride = (size_t)numbers[7];
    r->o.batch = 64;
    if (begin(r, text, size) == FINE && fflush(stdout) == 0)
        return r;
    glue_surprisal_free(r);
    return NULL;
}

/* Runs the model once, over as many texts as fit into a pass. Returns the share that is done, 1 at the end;
 * negative on failure. */
EXPORT(glue_surprisal_step) double glue_surprisal_step(run *r);
double glue_surprisal_step(run *r)
{
    const uint64_t before = r->n_read;
    int code = FINE;
    while (code == FINE && has_step(r) && r->n_read == before)
        code = read_step(r);
    if (code == FINE && !has_step(r) && (code = flush_windows(r)) == FINE)
        r->n_read = r->n_all;
    if (code != FINE)
        return -1;
    return r->n_all ? (double)r->n_read / (double)r->n_all : 1;
}

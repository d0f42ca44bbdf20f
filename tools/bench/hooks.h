/* Section hooks: the cost of recording, and what a sweep of patches saves. */
#ifndef BENCH_HOOKS_H
#define BENCH_HOOKS_H

#include "measure.h"
#include "tools/lens/patch.h"

/* A text that is fed with and without a record, or two texts whose patches run as a sweep and one by
 * one. */
typedef struct hooks_arg {
    attn_session *plain, *watched;
    attn_record *record;
    float *memory; /* of the record */
    size_t n_floats;
    int32_t text[256], corrupted[256];
    size_t n_tokens;
    const char *swept; /* what follows "blocks.i." */
    int by_head;
} hooks_arg;

static double run_text(bench *b, hooks_arg *a, attn_session *session)
{
    const double start = seconds();
    if (attn_session_truncate(&b->ctx, session, 0) || /* cover: neither can fail here */
        attn_feed(&b->ctx, session, a->text, a->n_tokens))
        return -1;
    return seconds() - start;
}

static void copy_half(attn__worker *me, void *arg)
{
    const hooks_arg *a = (const hooks_arg *)arg;
    const size_t half = a->n_floats / 2;
    size_t first, last;
    attn__share(me, half, &first, &last);
    memcpy(a->memory + half + first, a->memory + first, (last - first) * sizeof(float));
}

/* The time of a run with a record, minus the time to copy as many bytes, in units of a run without a
 * record. */
static double run_record(bench *b, void *arg)
{
    hooks_arg *a = (hooks_arg *)arg;
    const double plain = run_text(b, a, a->plain), recorded = run_text(b, a, a->watched);
    double beyond = seconds();
    if (plain < 0 || recorded < 0) /* cover: they cannot fail */
        return -1;
    attn__parallel(NULL, b->ctx.n_threads, copy_half, a);
    attn__parallel(NULL, b->ctx.n_threads, copy_half, a);
    beyond += recorded - seconds();
    return beyond > 0 ? beyond / plain
                      : 0; /* negative on a busy machine, if the copies took longer */
}

static int measure_record(bench *b, hooks_arg *a, const char *name)
{
    task t = new_task(b, HOOKS, 1, "runs", run_record, a);
    attn_record_desc desc = {.names = &name, .n_names = name != NULL, .n_positions = a->n_tokens};
    size_t bytes;
    if (attn_record_size(&b->ctx, &bytes, b->model, &desc))
        return 0;
    t.by_time = 1;
    snprintf(t.name, sizeof t.name, "%u tokens, recording %s", (unsigned)a->n_tokens,
             name ? "one" : "all");
    a->n_floats = bytes / sizeof(float);
    a->memory = (float *)malloc(bytes);
    if (!a->memory)
        return tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a record"), 0;
    attn_session_truncate(&b->ctx, a->watched, 0);
    desc.memory = a->memory;
    desc.memory_size = bytes;
    int good = attn_record_new(&b->ctx, &a->record, a->watched, &desc) == ATTN_OK && measure(b, &t);
    attn_unhook_all(a->watched);
    attn_record_free(a->record);
    free(a->memory);
    return good;
}

/* The time of a forward pass with a patch in the middle layer, times the number of patches in a sweep,
 * in units of a sweep. */
static double run_sweep(bench *b, void *arg)
{
    hooks_arg *a = (hooks_arg *)arg;
    const attn_config *c = attn_model_config(b->model);
    const size_t n_patches = c->n_layer * (a->by_head ? c->n_head : a->n_tokens);
    const lens_pair pair = {.clean = a->text,
                            .corrupted = a->corrupted,
                            .n_tokens = a->n_tokens,
                            .metric = {.kind = LENS_METRIC_LOGIT, .token = 1}};
    const lens_patch_desc desc = {.pairs = &pair,
                                  .n_pairs = 1,
                                  .name = a->swept,
                                  .kind = a->by_head ? LENS_PATCH_HEADS : LENS_PATCH_POSITIONS};
    attn_tensor out = ATTN_ZERO;
    double naive = run_text(b, a, a->watched);
    double start = seconds();
    if (lens_patch(&b->ctx, &out, NULL, b->model, &desc) != ATTN_OK)
        return -1;
    naive = naive * (double)n_patches / (seconds() - start);
    attn_tensor_free(&b->ctx, &out);
    return naive;
}

static int measure_sweep(bench *b, hooks_arg *a, const char *swept, int by_head)
{
    task t = new_task(b, HOOKS, 1, "times", run_sweep, a);
    char name[64];
    const attn_edit edit = {
        .name = name, .kind = ATTN_EDIT_ZERO, .first = a->n_tokens / 2, .count = 1};
    t.by_time = 1;
    a->swept = swept;
    a->by_head = by_head;
    snprintf(t.name, sizeof t.name, "%u, sweep of %s", (unsigned)a->n_tokens, swept);
    snprintf(name, sizeof name, "blocks.%zu.%s", attn_model_config(b->model)->n_layer / 2, swept);
    int good = attn_hook_edit(&b->ctx, NULL, a->watched, &edit) == ATTN_OK && measure(b, &t);
    attn_unhook_all(a->watched);
    return good;
}

/* The two texts of a sweep differ in one token, a third of the way in, as if a name was replaced. */
static int section_hooks(bench *b)
{
    const attn_config *c = attn_model_config(b->model);
    hooks_arg a = {.n_tokens = c->n_ctx < 256 ? c->n_ctx : 256};
    const attn_session_desc desc = {.n_ctx = a.n_tokens};
    heading(b, "hooks");
    for (size_t i = 0; i < 256; i++)
        a.text[i] = a.corrupted[i] = (int32_t)(i * 37 % c->n_vocab);
    b->ctx.n_threads = b->threads[b->n_counts - 1];
    int good = attn_session_new(&b->ctx, &a.plain, b->model, &desc) == ATTN_OK &&
               attn_session_new(&b->ctx, &a.watched, b->model, &desc) == ATTN_OK &&
               measure_record(b, &a, "blocks.0.hook_resid_post") && measure_record(b, &a, NULL);
    for (a.n_tokens = b->quick ? 6 : 15; /* the time of a sweep grows with the square of that */
         good && a.n_tokens <= (b->quick ? 6 : 60) && a.n_tokens <= c->n_ctx; a.n_tokens *= 4) {
        a.corrupted[a.n_tokens / 3] = (a.text[a.n_tokens / 3] + 1) % (int32_t)c->n_vocab;
        good = measure_sweep(b, &a, "hook_resid_pre", 0) && measure_sweep(b, &a, "attn.hook_z", 1);
        a.corrupted[a.n_tokens / 3] = a.text[a.n_tokens / 3];
    }
    attn_session_free(a.plain);
    attn_session_free(a.watched);
    return good;
}

#endif

/* Opening and saving, for calls of the system that fail (suite faults, faults.c): opens a model
 * from a path and once more from standard input, which may be a pipe; saves the second, a tensor
 * and a record; opens what it saved and sees that it computes the same.
 *
 *     saving MODEL.attn BASE <MODEL.attn     (BASE.attn, BASE.safetensors, BASE-record.safetensors)
 *
 * Ends with 0, with 1 after a message, and with 2 if something was saved that is not what it was.
 * The Makefile builds it twice: with files that are mapped, and with files that are read. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/lens/save.h"
#include "tools/write/writer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 3 };
static const int32_t tokens[TOKENS] = {3, 1, 4};

typedef struct work {
    attn_model *model, *piped, *saved;
    attn_session *session, *again;
    attn_record *record;
    void *memory; /* the record's */
    char path[1024];
} work;

static const char *with_end(work *w, const char *base, const char *end)
{
    snprintf(w->path, sizeof w->path, "%s%s", base, end);
    return w->path;
}

static attn_status record_a_pass(attn_ctx *ctx, work *w)
{
    static const char *const names[] = {"blocks.0.attn.hook_z"};
    const attn_session_desc small = {.n_ctx = TOKENS};
    size_t size;
    attn_record_desc desc = {.names = names, .n_names = 1, .n_positions = TOKENS};
    if (attn_session_new(ctx, &w->session, w->piped, &small) ||
        attn_record_size(ctx, &size, w->piped, &desc))
        return ctx->status;
    if ((w->memory = malloc(size)) == NULL) {
        snprintf(ctx->message, sizeof ctx->message, "no memory for a record");
        return ctx->status = ATTN_E_MEMORY;
    }
    desc.memory = w->memory;
    desc.memory_size = size;
    if (attn_record_new(ctx, &w->record, w->session, &desc) ||
        attn_feed(ctx, w->session, tokens, TOKENS))
        return ctx->status;
    return ATTN_OK;
}

static attn_status save_all(attn_ctx *ctx, work *w, const char *base)
{
    static const char *const name = "z";
    attn_tensor z;
    if (lens_model_save(ctx, with_end(w, base, ".attn"), w->piped) ||
        attn_record_get(ctx, &z, w->record, "blocks.0.attn.hook_z") ||
        lens_save(ctx, with_end(w, base, ".safetensors"), &name, &z, 1))
        return ctx->status;
    return lens_save_record(ctx, with_end(w, base, "-record.safetensors"), w->record);
}

/* The model that was given and the one that was saved must do the same; *other says so. */
static attn_status compare(attn_ctx *ctx, work *w, const char *base, int *other)
{
    const attn_session_desc small = {.n_ctx = TOKENS};
    const size_t n_vocab = attn_model_config(w->model)->n_vocab;
    const attn_model *models[2];
    if (attn_model_open(ctx, &w->saved, with_end(w, base, ".attn"), NULL))
        return ctx->status;
    models[0] = w->model;
    models[1] = w->saved;
    for (int i = 0; i < 2; i++) {
        attn_session_free(w->again);
        if (attn_session_new(ctx, &w->again, models[i], &small) ||
            attn_feed(ctx, w->again, tokens, TOKENS))
            return ctx->status;
        *other |= memcmp(attn_session_logits(w->again), attn_session_logits(w->session),
                         n_vocab * sizeof(float)) != 0;
    }
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    work w;
    int other = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: saving MODEL.attn BASE <MODEL.attn\n");
        return 2;
    }
    memset(&w, 0, sizeof w);
    attn_ctx ctx = {.n_threads = 1};
    attn_status status = attn_model_open(&ctx, &w.model, argv[1], NULL);
    if (!status)
        status = attn_model_open(&ctx, &w.piped, "/dev/stdin", NULL);
    if (!status)
        status = record_a_pass(&ctx, &w);
    if (!status)
        status = save_all(&ctx, &w, argv[2]);
    if (!status)
        status = compare(&ctx, &w, argv[2], &other);
    if (status || other)
        fprintf(stderr, "saving: %s\n", status ? ctx.message : "what was saved is another model");
    attn_record_free(w.record);
    free(w.memory);
    attn_session_free(w.session);
    attn_session_free(w.again);
    attn_model_close(w.model);
    attn_model_close(w.piped);
    attn_model_close(w.saved);
    attn_ctx_free(&ctx);
    return other ? 2 : status ? 1 : 0;
}

/* What the native library says, for tests/web to compare with the module's: web-native MODEL.attn
 *
 * Prints JSON: for a prompt, the greedy ids, and a digest of the logits at each step; the same with a
 * head set to zero by attn_hook_edit; the ids of a text; the digest of a recorded pattern.
 * web-native --speed MODEL.attn measures what test_module.mjs --speed does, with AVX2 and one thread. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STEPS = 40, PROMPT = 128, WRITTEN = 64 };

/* FNV-1a, 32 bits, of the numbers' bytes from the lowest on. */
static uint32_t digest(const float *x, size_t n)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        for (int byte = 0; byte < 4; byte++, bits >>= 8)
            hash = (hash ^ (bits & 255)) * 16777619u;
    }
    return hash;
}

static attn_status greedy(attn_ctx *ctx, attn_session *session, const char *prompt)
{
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    int32_t ids[STEPS];
    uint32_t digests[STEPS];
    if (attn_session_truncate(ctx, session, 0) || attn_feed_text(ctx, session, prompt))
        return ctx->status;
    for (int i = 0; i < STEPS; i++) {
        const float *logits = attn_session_logits(session);
        digests[i] = digest(logits, n_vocab);
        ids[i] = 0;
        for (size_t v = 1; v < n_vocab; v++)
            if (logits[v] > logits[ids[i]])
                ids[i] = (int32_t)v;
        if (attn_feed(ctx, session, &ids[i], 1))
            return ctx->status;
    }
    printf("{\"ids\": [");
    for (int i = 0; i < STEPS; i++)
        printf("%s%d", i ? ", " : "", (int)ids[i]);
    printf("], \"digests\": [");
    for (int i = 0; i < STEPS; i++)
        printf("%s%lu", i ? ", " : "", (unsigned long)digests[i]);
    printf("]}");
    return ATTN_OK;
}

static attn_status print_all(attn_ctx *ctx, const attn_model *model, attn_session *session)
{
    const char *const prompt = "Once upon a time";
    const char *const name = "blocks.1.attn.hook_pattern";
    const attn_record_desc desc = {&name, 1, 0, 0, NULL, 0, {0}};
    attn_record *record = NULL;
    attn_tensor pattern = ATTN_ZERO, dense = ATTN_ZERO;
    const char *const said = "Zo\303\253 said: \360\237\231\202 hello";
    attn_token ids[32];
    size_t n_ids = 32;
    attn_edit edit = ATTN_ZERO;
    printf("{\"prompt\": \"%s\", \"plain\": ", prompt);
    if (greedy(ctx, session, prompt))
        return ctx->status;
    edit.name = "blocks.2.attn.hook_z";
    edit.first_head = 3;
    edit.n_heads = 1;
    printf(", \"ablated\": ");
    if (attn_hook_edit(ctx, NULL, session, &edit) || greedy(ctx, session, prompt))
        return ctx->status;
    attn_unhook_all(session);
    if (attn_session_truncate(ctx, session, 0) || attn_record_new(ctx, &record, session, &desc) ||
        attn_feed_text(ctx, session, "The cat sat on the mat and") ||
        attn_record_get(ctx, &pattern, record, name) || attn_copy(ctx, &dense, pattern) ||
        attn_encode(ctx, ids, &n_ids, attn_model_tokenizer(model), said, strlen(said)))
        return ctx->status;
    printf(", \"pattern\": %lu, \"encoded\": [",
           (unsigned long)digest((const float *)dense.data, attn_count(dense)));
    for (size_t i = 0; i < n_ids; i++)
        printf("%s%d", i ? ", " : "", (int)ids[i]);
    printf("]}\n");
    attn_record_free(record);
    return ATTN_OK;
}

/* Tokens a second of processor time, the best of 1.5 seconds of tries: feeds `n` tokens, `step` at a time. */
static double speed(attn_ctx *ctx, attn_session *session, size_t n, size_t step)
{
    int32_t ids[PROMPT];
    double best = 0, taken = 0;
    for (int i = 0; i < PROMPT; i++)
        ids[i] = i * 37 % 2000;
    while (taken < 1.5) {
        const clock_t from = clock();
        if (attn_session_truncate(ctx, session, 0))
            return 0;
        for (size_t i = 0; i < n; i += step)
            if (attn_feed(ctx, session, ids + i, step))
                return 0;
        double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
        taken += seconds;
        if ((double)n > best * seconds)
            best = (double)n / seconds;
    }
    return best;
}

int main(int argc, char **argv)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = NULL;
    attn_session *session = NULL;
    const int is_speed = argc == 3 && strcmp(argv[1], "--speed") == 0;
    if (argc != 2 && !is_speed)
        return fprintf(stderr, "usage: web-native [--speed] MODEL.attn\n"), 2;
    ctx.n_threads = is_speed;
    ctx.isa = is_speed ? ATTN_ISA_AVX2 : ATTN_ISA_AUTO;
    if (attn_model_open(&ctx, &model, argv[argc - 1], NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        (!is_speed && print_all(&ctx, model, session)))
        fprintf(stderr, "%s\n", ctx.message);
    if (is_speed && session)
        printf("%s: %.0f tokens/s of a prompt of %d, %.0f a token at a time\n", attn_isa(&ctx),
               speed(&ctx, session, PROMPT, PROMPT), PROMPT, speed(&ctx, session, WRITTEN, 1));
    attn_session_free(session);
    attn_ctx_free(&ctx);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

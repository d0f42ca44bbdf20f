/* cc examples/patch.c -I. -O2 -lm -o patch
 *
 * Activation patching: at which layers and positions do two sentences differ? The corrupted one is
 * run again and again, each time with the clean one's residual stream at one layer and position.
 * The numbers are differences of the two logits that the sentences change most. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 256 };

/* Feeds a sentence to a session of its own. */
static attn_status feed_text(attn_ctx *ctx, attn_session **session, const attn_model *model,
                             const char *text, int32_t *ids, size_t *n)
{
    if (attn_encode(ctx, ids, MOST, n, attn_model_tokenizer(model), text, strlen(text), 0) ||
        attn_session_new(ctx, session, model, NULL))
        return ctx->status;
    return attn_feed(ctx, *session, ids, *n);
}

int main(int argc, char **argv)
{
    int32_t ids[2][MOST], i;
    float gap[2] = {0, 0}, most = 0, least = 0;
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *sessions[2] = {NULL, NULL};
    attn_patch_desc desc = {0};
    attn_tensor out = {0};
    size_t n[2] = {0, 0}, layer, t;
    if (argc != 4)
        return fprintf(stderr, "usage: patch MODEL.attn \"Clean text\" \"Corrupted text\"\n"), 2;
    if (!attn_model_open(&ctx, &model, argv[1], NULL) &&
        !feed_text(&ctx, &sessions[0], model, argv[2], ids[0], &n[0]) &&
        !feed_text(&ctx, &sessions[1], model, argv[3], ids[1], &n[1]) && n[0] == n[1]) {
        for (i = 0; i < (int32_t)attn_model_config(model)->n_vocab; i++) {
            const float change = attn_logits(sessions[0])[i] - attn_logits(sessions[1])[i];
            desc.right = change > most ? i : desc.right;
            desc.wrong = change < least ? i : desc.wrong;
            most = change > most ? change : most;
            least = change < least ? change : least;
        }
        desc.clean = ids[0], desc.corrupted = ids[1], desc.n_tokens = n[0];
        desc.clean_value = &gap[0], desc.corrupted_value = &gap[1];
        if (attn_patch_positions(&ctx, &out, model, &desc, "hook_resid_pre") == ATTN_OK)
            printf("clean %.2f, corrupted %.2f\n", (double)gap[0], (double)gap[1]);
    }
    if (n[0] != n[1] || ctx.status)
        fprintf(stderr, "%s\n", ctx.status ? ctx.message : "the texts must have as many tokens");
    for (layer = 0; layer < out.shape[0]; layer++)
        for (t = 0; t < n[0]; t++)
            printf("%7.2f%s", (double)attn_get2(out, layer, t), t + 1 < n[0] ? "" : "\n");
    attn_session_free(sessions[0]);
    attn_session_free(sessions[1]);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    return out.ndim == 0;
}

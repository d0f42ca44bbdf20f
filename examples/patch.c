/* cc examples/patch.c -I. -O2 -lm -o patch
 *
 * Activation patching: at which layers and positions do two sentences differ? The corrupted one is
 * run again and again, each time with the clean one's residual stream at one layer and position.
 * The numbers are differences of the two logits that the sentences change most. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/lens/patch.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    float most = 0, least = 0;
    lens_baseline gap;
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *sessions[2] = {NULL, NULL};
    lens_pair pair = {0};
    lens_patch_desc desc = {0};
    attn_tensor out = {0};
    size_t n = 0;
    if (argc != 4)
        return fprintf(stderr, "usage: patch MODEL.attn \"Clean text\" \"Corrupted text\"\n"), 2;
    if (!attn_model_open(&ctx, &model, argv[1], NULL) &&
        !attn_session_new(&ctx, &sessions[0], model, NULL) &&
        !attn_session_new(&ctx, &sessions[1], model, NULL) &&
        !attn_feed_text(&ctx, sessions[0], argv[2]) &&
        !attn_feed_text(&ctx, sessions[1], argv[3])) {
        n = attn_session_length(sessions[0]);
        for (int32_t i = 0; i < (int32_t)attn_model_config(model)->n_vocab; i++) {
            const float change =
                attn_session_logits(sessions[0])[i] - attn_session_logits(sessions[1])[i];
            pair.metric.token = change > most ? i : pair.metric.token;
            pair.metric.against = change < least ? i : pair.metric.against;
            most = change > most ? change : most;
            least = change < least ? change : least;
        }
        pair.metric.kind = LENS_METRIC_LOGIT_DIFF;
        pair.clean = attn_session_tokens(sessions[0]);
        pair.corrupted = attn_session_tokens(sessions[1]);
        pair.n_tokens = n;
        desc.pairs = &pair;
        desc.n_pairs = 1;
        desc.name = "hook_resid_pre";
        if (attn_session_length(sessions[1]) != n)
            fprintf(stderr, "the texts must have as many tokens\n");
        else if (lens_patch(&ctx, &out, &gap, model, &desc) == ATTN_OK)
            printf("clean %.2f, corrupted %.2f\n", (double)gap.clean, (double)gap.corrupted);
    }
    if (ctx.status)
        fprintf(stderr, "%s\n", ctx.message);
    for (size_t layer = 0; layer < out.shape[0]; layer++)
        for (size_t t = 0; t < n; t++)
            printf("%7.2f%s", (double)attn_get2(out, layer, t), t + 1 < n ? "" : "\n");
    attn_session_free(sessions[0]);
    attn_session_free(sessions[1]);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    if (fflush(stdout) || ferror(stdout))
        return perror("cannot write the output"), 1;
    return out.ndim == 0;
}

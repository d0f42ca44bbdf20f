/* cc examples/ablate.c -I. -O2 -lm -o ablate
 *
 * One attention head set to zero: the five likeliest next tokens of a sentence, as the model sees
 * them and without the head. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 5 };

static attn_status print_likeliest(attn_ctx *ctx, attn_session *session, const char *title,
                                   const char *sentence)
{
    const attn_model *model = attn_session_model(session);
    const attn_shape row = attn_shape2(1, attn_model_config(model)->n_vocab);
    attn_prediction best[K];
    const attn_top top = {best, K};
    size_t size;
    if (attn_session_truncate(ctx, session, 0) || attn_feed_text(ctx, session, sentence) ||
        attn_logit_stats(ctx, NULL, &top, attn_borrow(attn_session_logits(session), ATTN_F32, row),
                         NULL))
        return ctx->status;
    printf("%s:", title);
    for (size_t k = 0; k < K; k++) {
        const char *text = attn_token_bytes(&size, attn_model_tokenizer(model), best[k].token);
        printf("  %.2f \"%.*s\"", (double)best[k].logit, (int)size, text);
    }
    printf("\n");
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    char name[64];
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_edit edit;
    if (argc != 5)
        return fprintf(stderr, "usage: ablate MODEL.attn LAYER HEAD \"A sentence\"\n"), 2;
    snprintf(name, sizeof name, "blocks.%s.attn.hook_z", argv[2]);
    memset(&edit, 0, sizeof edit);
    edit.name = name;
    edit.kind = ATTN_EDIT_ZERO;
    edit.first_head = (size_t)strtoul(argv[3], NULL, 10);
    edit.n_heads = 1;
    if (attn_model_open(&ctx, &model, argv[1], NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        print_likeliest(&ctx, session, "as it is", argv[4]) ||
        attn_hook_edit(&ctx, NULL, session, &edit) ||
        print_likeliest(&ctx, session, "ablated", argv[4]))
        fprintf(stderr, "%s\n", ctx.message);
    attn_session_free(session);
    attn_model_close(model);
    if (fflush(stdout) || ferror(stdout))
        return perror("cannot write the output"), 1;
    return ctx.status != ATTN_OK;
}

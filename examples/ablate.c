/* cc examples/ablate.c -I. -O2 -lm -o ablate
 *
 * One attention head set to zero: the five likeliest next tokens of a sentence, as the model sees
 * them and without the head. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, K = 5 };

static attn_status print_likeliest(attn_ctx *ctx, attn_session *session, const char *title,
                                   const int32_t *ids, size_t n)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(attn_session_model(session));
    attn_prediction top[MOST * K];
    size_t k, size;
    if (attn_truncate(ctx, session, 0) || attn_score(ctx, NULL, top, K, session, ids, n))
        return ctx->status;
    printf("%s:", title);
    for (k = 0; k < K; k++) {
        const attn_prediction *p = &top[(n - 1) * K + k];
        const char *text = attn_token_bytes(&size, tokenizer, p->token);
        printf("  %.2f \"%.*s\"", (double)p->logit, (int)size, text);
    }
    printf("\n");
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    int32_t ids[MOST];
    char name[64];
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_edit edit;
    size_t n = 0;
    if (argc != 5)
        return fprintf(stderr, "usage: ablate MODEL.attn LAYER HEAD \"A sentence\"\n"), 2;
    snprintf(name, sizeof name, "blocks.%s.attn.hook_z", argv[2]);
    memset(&edit, 0, sizeof edit);
    edit.name = name;
    edit.kind = ATTN_EDIT_ZERO;
    edit.head = (size_t)strtoul(argv[3], NULL, 10);
    edit.n_heads = 1;
    if (attn_model_open(&ctx, &model, argv[1], NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        attn_encode(&ctx, ids, MOST, &n, attn_model_tokenizer(model), argv[4], strlen(argv[4]),
                    0) ||
        print_likeliest(&ctx, session, "as it is", ids, n) ||
        attn_hook_edit(&ctx, NULL, session, &edit) ||
        print_likeliest(&ctx, session, "ablated", ids, n))
        fprintf(stderr, "%s\n", ctx.message);
    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

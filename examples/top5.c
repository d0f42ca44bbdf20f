/* cc examples/top5.c -I. -O2 -lm -o top5
 *
 * The five likeliest next tokens at each position of a sentence, and how likely the token was that
 * came. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

enum { MOST = 256, K = 5 };

static void print_token(const attn_model *model, attn_token id)
{
    size_t size;
    const char *text = attn_token_bytes(&size, attn_model_tokenizer(model), id);
    printf("\"%.*s\"", (int)size, text);
}

int main(int argc, char **argv)
{
    static attn_token ids[MOST];
    static attn_token_stats stats[MOST];
    static attn_prediction top[MOST * K];
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    size_t n = MOST;
    if (argc != 3)
        return fprintf(stderr, "usage: top5 MODEL.attn \"A sentence.\"\n"), 2;
    if (attn_model_open(&ctx, &model, argv[1], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &session, model, NULL) == ATTN_OK &&
        attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), argv[2], strlen(argv[2])) ==
            ATTN_OK &&
        attn_score(&ctx, stats, &(attn_top){top, K}, session, ids, n) == ATTN_OK)
        for (size_t t = 0; t < n; t++) {
            print_token(model, ids[t]);
            if (t > 0)
                printf(" (%.1f %%)", 100 * (double)stats[t - 1].probability);
            printf(", then");
            for (size_t k = 0; k < K; k++) {
                printf(" %.1f %% ", 100 * (double)top[t * K + k].probability);
                print_token(model, top[t * K + k].token);
            }
            printf("\n");
        }
    else
        fprintf(stderr, "%s\n", ctx.message);
    attn_session_free(session);
    attn_model_close(model);
    if (fflush(stdout) || ferror(stdout))
        return perror("cannot write the output"), 1;
    return ctx.status != ATTN_OK;
}

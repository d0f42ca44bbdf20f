/* cc examples/eight.c -I. -O2 -lm -o eight
 *
 * Eight prompts at once: one pass over the weights makes the next token of all of them. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char *const prompts[8] = {"Once upon a time", "The little dog", "One day, Tom",
                                           "Lily had a ball",  "The sun was",    "A big red bird",
                                           "Mom said",         "In the garden"};
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_continuation texts[8];
    attn_generate_desc how = {0};
    if (argc != 2 || argv[1][0] == '-')
        return fprintf(stderr, "usage: eight MODEL.attn\n"), 2;
    memset(texts, 0, sizeof texts);
    for (int i = 0; i < 8; i++)
        texts[i].prompt = prompts[i];
    how.max_tokens = 30;
    how.sampling.temperature = 0.7f;
    how.sampling.top_k = 40;
    if (attn_model_open(&ctx, &model, argv[1], NULL) == ATTN_OK &&
        attn_generate_many(&ctx, texts, 8, model, &how) == ATTN_OK)
        for (int i = 0; i < 8; i++)
            printf("%d. %s%s\n", i + 1, texts[i].prompt, texts[i].text);
    else
        fprintf(stderr, "%s\n", ctx.message);
    attn_continuations_free(texts, 8);
    attn_model_close(model);
    if (fflush(stdout) || ferror(stdout))
        return perror("cannot write the output"), 1;
    return ctx.status != ATTN_OK;
}

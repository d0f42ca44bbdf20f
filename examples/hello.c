#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "build/tiny-stories.attn";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_continuation story = {0};
    story.prompt = "Once upon a time";

    if (attn_model_open(&ctx, &model, path, NULL) == ATTN_OK &&
        attn_generate_many(&ctx, &story, 1, model, NULL) == ATTN_OK)
        printf("%s%s\n", story.prompt, story.text);
    else
        fprintf(stderr, "%s\n", ctx.message);
    attn_continuations_free(&story, 1);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

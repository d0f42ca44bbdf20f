#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>

static int print(const char *text, size_t size, void *file)
{
    fwrite(text, 1, size, (FILE *)file);
    return fflush((FILE *)file);            // 0 goes on, anything else stops
}

int main(void)
{
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;

    if (attn_model_open(&ctx, &model, "build/tiny-stories.attn", NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        attn_generate(&ctx, session, "Once upon a time", NULL, print, stdout))
        fprintf(stderr, "%s\n", ctx.message);

    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

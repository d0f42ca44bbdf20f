#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>

static int print(const char *text, size_t size, void *file)
{
    fwrite(text, 1, size, (FILE *)file);
    return fflush((FILE *)file);            // 0 goes on, anything else stops
}

int main(int argc, char **argv)
{
    const char *prompt = "Once upon a time";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_generate_desc how = {0};
    how.max_tokens = 200;
    how.sampling.temperature = 0.7f;
    how.sampling.top_k = 40;
    how.sampling.seed = 1;                  // another seed, another story
    how.text_fn = print;
    how.text_user = stdout;                 // print's `file`

    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: hello MODEL.attn\n");
        return 2;
    }
    if (attn_model_open(&ctx, &model, argv[1], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &session, model, NULL) == ATTN_OK) {
        printf("%s", prompt);
        attn_generate(&ctx, NULL, session, prompt, &how);
        printf("\n");
    }
    if (ctx.status != ATTN_OK || ferror(stdout))
        fprintf(stderr, "%s\n", ctx.status ? ctx.message : "cannot write the text");

    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK || ferror(stdout);
}

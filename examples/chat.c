/* cc examples/chat.c -I. -O2 -lm -o chat
 *
 * Turns: each line of standard input is fed to one session, and the model continues the whole. One
 * sampler lives over all turns, so that they do not repeat their draws. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

static int print(const char *text, size_t size, void *file)
{
    fwrite(text, 1, size, (FILE *)file);
    return fflush((FILE *)file);
}

/* The next line that is not empty; 0 at the end of input. */
static int next_line(char *line, int size)
{
    for (*line = 0; !*line; line[strcspn(line, "\n")] = 0) {
        printf("> ");
        fflush(stdout);
        if (!fgets(line, size, stdin))
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    static const char *const stop = "\n";
    char line[4096] = " "; /* a space between the model's words and the user's */
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_sampler_desc sampling = {.temperature = 0.7f, .top_k = 40, .seed = 1};
    attn_generate_desc how = {.max_tokens = 40, .stop = &stop, .n_stop = 1, .text_fn = print};
    attn_generation made = {0};
    if (argc != 2)
        return fprintf(stderr, "usage: chat MODEL.attn\n"), 2;
    how.text_user = stdout;
    if (attn_model_open(&ctx, &model, argv[1], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &session, model, NULL) == ATTN_OK)
        attn_sampler_new(&ctx, &how.reuse_sampler, attn_model_config(model)->n_vocab, &sampling);
    while (!ctx.status && made.reason != ATTN_STOP_CONTEXT &&
           next_line(line + 1, sizeof line - 1)) {
        const int skip = attn_session_length(session) == 0;
        attn_generate(&ctx, &made, session, line + skip, &how);
        printf("\n");
    }
    printf(made.reason == ATTN_STOP_CONTEXT ? "(The session is full.)\n" : "\n");
    if (ctx.status != ATTN_OK)
        fprintf(stderr, "%s\n", ctx.message);
    attn_sampler_free(how.reuse_sampler);
    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

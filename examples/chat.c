/* cc examples/chat.c -I. -O2 -lm -o chat
 *
 * Turns: each line of standard input is fed to one session, and the model continues the whole. One
 * sampler lives over all turns, so that they do not repeat their draws. chat.h does a turn in one call,
 * and forgets the oldest tokens when the context is nearly full. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "chat.h"
#include <stdio.h>

static int print(const char *text, size_t size, void *file)
{
    fwrite(text, 1, size, (FILE *)file);
    return fflush((FILE *)file);
}

/* The next line that is not empty; 0 at the end of input. */
static int next_line(char *line, int size)
{
    for (*line = 0; !*line; line[strcspn(line, "\r\n")] = 0) {
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
    static char line[4096] = " "; /* a space between the model's words and the user's */
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_sampler_desc sampling = {.temperature = 0.7f, .top_k = 40, .seed = 1};
    chat talk = {
        .how = {.max_tokens = 40, .stop_strings = &stop, .n_stop_strings = 1, .text_fn = print}};
    if (argc != 2 || argv[1][0] == '-')
        return fprintf(stderr, "usage: chat MODEL.attn\n"), 2;
    talk.how.text_user = stdout;
    if (attn_model_open(&ctx, &model, argv[1], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &talk.session, model, NULL) == ATTN_OK)
        attn_sampler_new(&ctx, &talk.how.reuse_sampler, attn_model_config(model)->n_vocab,
                         &sampling);
    while (!ctx.status && !ferror(stdout) && next_line(line + 1, sizeof line - 1)) {
        chat_turn(&ctx, NULL, &talk, line + (attn_session_length(talk.session) == 0));
        printf("\n");
    }
    printf("\n");
    if (ctx.status != ATTN_OK || ferror(stdout))
        fprintf(stderr, "%s\n", ctx.status ? ctx.message : "cannot write the text");
    attn_sampler_free(talk.how.reuse_sampler);
    attn_session_free(talk.session);
    attn_model_close(model);
    return ctx.status != ATTN_OK || ferror(stdout);
}

/* cc examples/chat.c -I. -O2 -lm -o chat
 *
 * Turns: each line of standard input is fed to one session, and the model continues the whole. One
 * sampler lives over all turns, so that they do not repeat their draws. When the context is nearly
 * full, the oldest tokens are forgotten. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

enum { ANSWER = 40 }; /* tokens at most */

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

/* Makes room for n more tokens: the last ones that the session may keep are fed again. */
static void make_room(attn_ctx *ctx, attn_session *session, size_t n)
{
    const size_t length = attn_session_length(session), all = attn_session_capacity(session);
    const size_t keep = n < all ? (all - n) / 2 : 0;
    if (length + n <= all)
        return;
    attn_session_truncate(ctx, session, 0);
    if (keep > 0)
        attn_feed(ctx, session, attn_session_tokens(session) + length - keep, keep);
}

int main(int argc, char **argv)
{
    static const char *const stop = "\n";
    static char line[4096] = " "; /* a space between the model's words and the user's */
    static int32_t prompt[sizeof line];
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_sampler_desc sampling = {.temperature = 0.7f, .top_k = 40, .seed = 1};
    attn_generate_desc how = {.max_tokens = ANSWER, .stop = &stop, .n_stop = 1, .text_fn = print};
    if (argc != 2 || argv[1][0] == '-')
        return fprintf(stderr, "usage: chat MODEL.attn\n"), 2;
    how.text_user = stdout;
    how.prompt_tokens = prompt;
    if (attn_model_open(&ctx, &model, argv[1], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &session, model, NULL) == ATTN_OK)
        attn_sampler_new(&ctx, &how.reuse_sampler, attn_model_config(model)->n_vocab, &sampling);
    while (!ctx.status && next_line(line + 1, sizeof line - 1)) {
        const char *text = line + (attn_session_length(session) == 0);
        const size_t most = attn_session_capacity(session) / 2;
        size_t n = sizeof prompt / sizeof *prompt;
        attn_encode(&ctx, prompt, &n, attn_model_tokenizer(model), text, strlen(text));
        how.prompt_tokens = n > most ? prompt + n - most : prompt; /* of a long one, its end */
        how.n_prompt_tokens = n > most ? most : n;
        make_room(&ctx, session, how.n_prompt_tokens + ANSWER);
        if (!ctx.status)
            attn_generate(&ctx, NULL, session, NULL, &how);
        printf("\n");
    }
    printf("\n");
    if (ctx.status != ATTN_OK)
        fprintf(stderr, "%s\n", ctx.message);
    attn_sampler_free(how.reuse_sampler);
    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

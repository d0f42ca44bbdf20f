/* What threads must not change, on a system where `make test` does not run: Windows, macOS.
 *
 *     workers MODEL.attn
 *
 * Logits on 1 to 8 threads, 100 sessions one after another, sessions that stay alive side by side, and loops. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <string.h>

enum { TOKENS = 12, MOST = 8, LOOP = 1000 };

static attn_ctx ctx;
static attn_model *model;
static attn_token tokens[TOKENS];
static size_t size; /* bytes of a row of logits */

/* Feeds the tokens; if there is a `want`, compares the logits of the last. */
static int feed(attn_session *session, const void *want)
{
    return attn_session_truncate(&ctx, session, 0) || attn_feed(&ctx, session, tokens, TOKENS) ||
           (want && memcmp(attn_session_logits(session), want, size) != 0);
}

static int one_after_another(const void *want)
{
    int wrong = 0;
    for (int i = 0; i < 100 && !wrong; i++) {
        attn_session *session;
        ctx.n_threads = 1 + i % MOST;
        wrong = attn_session_new(&ctx, &session, model, NULL) || feed(session, want);
        attn_session_free(session);
    }
    return wrong;
}

static int side_by_side(const void *want)
{
    attn_session *sessions[MOST] = {NULL};
    int wrong = 0;
    for (int i = 0; i < MOST; i++) {
        ctx.n_threads = 1 + i;
        wrong |= attn_session_new(&ctx, &sessions[i], model, NULL) != ATTN_OK;
    }
    for (int i = 0; i < 5 * MOST && !wrong; i++)
        wrong = feed(sessions[i * 3 % MOST], want);
    for (int i = 0; i < MOST; i++)
        attn_session_free(sessions[i]);
    return wrong;
}

static void count(size_t i, void *user)
{
    ((int *)user)[i]++;
}

static int loops(void)
{
    static int calls[LOOP];
    for (int n = 1; n <= 21; n++) {
        ctx.n_threads = n;
        if (attn_parallel_for(&ctx, LOOP, count, calls))
            return 1;
        for (int i = 0; i < LOOP; i++)
            if (calls[i] != n)
                return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    attn_session *session;
    if (argc != 2 || attn_model_open(&ctx, &model, argv[1], NULL)) {
        fprintf(stderr, "%s\n", argc == 2 ? ctx.message : "usage: workers MODEL.attn");
        return 2;
    }
    size = attn_model_config(model)->n_vocab * sizeof(float);
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (attn_token)((unsigned)i * 7919 % 2000);
    ctx.n_threads = 1;
    void *want = attn_alloc(&ctx, 1, size, "logits");
    if (!want || attn_session_new(&ctx, &session, model, NULL) || feed(session, NULL))
        return 2;
    memcpy(want, attn_session_logits(session), size);
    attn_session_free(session);
    int wrong = one_after_another(want) + 2 * side_by_side(want) + 4 * loops();
    attn_free(want);
    attn_model_close(model);
    ctx.n_threads = 0;
    printf("%d threads, %s: %s\n", attn_max_threads(&ctx), attn_isa(&ctx),
           wrong ? "WRONG" : "the same bits, each task once");
    return wrong;
}

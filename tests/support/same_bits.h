/* The logits of a text have the same bits however it is cut, in any batch, with any number of threads,
 * on every instruction set and under hooks. Each function checks one of these for one model. */
#ifndef SAME_BITS_H
#define SAME_BITS_H

#include "hooks.h"
#include "tools/common/sha256.h"

/* The SHA-256 of what a call makes is `want` on any instruction set with fused multiply-adds, and for any number of
 * threads. */
static inline void same_digest(making *make, const void *from, const char *want)
{
    static const attn_isa_kind kinds[] = {ATTN_ISA_PORTABLE, ATTN_ISA_AVX2, ATTN_ISA_AVX512,
                                          ATTN_ISA_NEON, ATTN_ISA_AUTO};
    for (size_t i = 0; i < 9; i++) {
        attn_ctx ctx = alone();
        attn_tensor got = no_tensor;
        char hex[SHA256_HEX];
        unsigned char digest[SHA256_SIZE];
        ctx.isa = i < 5 ? kinds[i] : ATTN_ISA_AUTO;
        ctx.n_threads = (int)i + 1;
        if (!attn_isa(&ctx) || strstr(attn_isa(&ctx), "no fused"))
            continue;
        OK(&ctx, make(&ctx, &got, from));
        sha256_floats(digest, (const float *)got.data, attn_count(got));
        sha256_hex(hex, digest, SHA256_SIZE);
        CHECKF(strcmp(hex, want) == 0, "%s, %d threads: %s", attn_isa(&ctx), (int)i + 1, hex);
        attn_tensor_free(&ctx, &got);
        attn_ctx_free(&ctx);
    }
}

static inline void cuts_and_batch_sizes(const attn_model *model, size_t n)
{
    static const size_t n_batch[] = {1, 7, 32, 256};
    attn_ctx ctx = alone();
    const attn_token *const tokens = random_tokens(model, n, n);
    const float *const want = logits_of(&ctx, model, 0, tokens, n, n);
    same_logits(logits_of(&ctx, model, 0, tokens, n, 1), want, n, model, "token by token");
    same_logits(logits_of(&ctx, model, 0, tokens, n, 16), want, n, model, "16 a call");
    for (size_t i = 0; i < 3; i++)
        same_logits(logits_of(&ctx, model, 0, tokens, n, RANDOM_CUTS), want, n, model,
                    "random cuts");
    for (size_t i = 0; i < 4; i++)
        same_logits(logits_of(&ctx, model, n_batch[i], tokens, n, n), want, n, model,
                    i == 0   ? "n_batch 1"
                    : i == 1 ? "n_batch 7"
                    : i == 2 ? "n_batch 32"
                             : "n_batch 256");
    same_logits(logits_of(&ctx, model, 7, tokens, n, RANDOM_CUTS), want, n, model,
                "cuts, n_batch 7");
    pool_clear();
}

static inline void threads_on(const attn_model *model, size_t n)
{
    static const int threads[] = {2, 3, 4};
    attn_ctx ctx = alone();
    const attn_token *const tokens = random_tokens(model, n, n + 1);
    ctx.n_threads = 1;
    const float *want = logits_of(&ctx, model, 0, tokens, n, n);
    for (size_t i = 0; i < 3; i++) {
        ctx.n_threads = threads[i];
        same_logits(logits_of(&ctx, model, 0, tokens, n, n), want, n, model, "threads");
    }
    ctx.n_threads = 2;
    same_logits(logits_of(&ctx, model, 5, tokens, n, RANDOM_CUTS), want, n, model,
                "2 threads, cuts");
    pool_clear();
}

static inline void isa_on(const attn_model *model, size_t n, double unfused)
{
    const attn_token *const tokens = random_tokens(model, n, n + 2);
    const attn_shape shape = attn_shape2(n, vocab_of(model));
    attn_ctx ctx = alone();
    float *got;
    size_t rows;
    int n_exact = 0;
    ctx.isa = ATTN_ISA_PORTABLE;
    float *want = logits_of(&ctx, model, 0, tokens, n, n);
    for (int kind = ATTN_ISA_AUTO; kind <= ATTN_ISA_NEON_I8MM; kind++) {
        ctx.isa = (attn_isa_kind)kind;
        const char *name = attn_isa(&ctx);
        if (!name) {
            attn_session *session;
            FAILS(UNSUPPORTED, "", attn_session_new(&ctx, &session, model, NULL));
            CHECK(session == NULL);
            continue;
        }
        rows = kind == ATTN_ISA_PORTABLE ? (n + 7) / 8 : n; /* once is slow enough */
        got = logits_of(&ctx, model, 0, tokens, rows, rows);
        if (strstr(name, "no fused"))
            close_to(attn_borrow(got, ATTN_F32, shape), attn_borrow(want, ATTN_F32, shape), unfused,
                     name);
        else
            n_exact += same_logits(got, want, rows, model, name);
    }
    CHECK(n_exact > 0);
    pool_clear();
}

/* Eight sequences; each has a past, then joins two batches. In the first they ask for the logits
 * of their last row, of all rows, or of a choice. */
static inline void check_batch(const attn_model *model, size_t n_batch, int n_threads,
                               int full_capacity)
{
    enum { ITEMS = 8 };
    static const size_t past[] = {0, 3, 17, 0, 28, 1, 16, 8}, first[] = {1, 5, 7, 23, 2, 16, 2, 20},
                        second[] = {1, 2, 3, 4, 2, 1, 5, 1};
    attn_ctx ctx = alone();
    attn_feed_item items[ITEMS];
    attn_session *sessions[ITEMS];
    attn_token *tokens[ITEMS];
    float *want[ITEMS];
    size_t rows[ITEMS][32], i, j;
    ctx.n_threads = n_threads;
    for (i = 0; i < ITEMS; i++) {
        const size_t total = past[i] + first[i] + second[i];
        tokens[i] = random_tokens(model, total, i + n_batch);
        want[i] = logits_of(&ctx, model, 0, tokens[i], total, total);
        sessions[i] = session_on(&ctx, model, full_capacity ? 0 : total, n_batch);
        if (!sessions[i])
            return;
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens[i], past[i]));
        items[i] = item_of(sessions[i], tokens[i] + past[i], first[i], NULL);
        if (i % 3 > 0)
            items[i].logits = (float *)pool_new(first[i] * vocab_of(model) * sizeof(float));
        if (i % 3 == 2) {
            for (j = 0; j < first[i]; j++)
                if (random_below(2))
                    rows[i][items[i].n_rows++] = j;
            items[i].rows = rows[i];
        }
    }
    share_workspace(&ctx, sessions, ITEMS, n_batch);
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    for (i = 0; i < ITEMS; i++) {
        const size_t end = past[i] + first[i];
        CHECK(attn_session_length(sessions[i]) == end);
        CHECK(memcmp(attn_session_tokens(sessions[i]), tokens[i], end * sizeof **tokens) == 0);
        if (i % 3 == 0)
            same_logits(attn_session_logits(sessions[i]), row_of(want[i], end - 1, model), 1, model,
                        "the last row in a batch");
        if (i % 3 == 1)
            same_logits(items[i].logits, row_of(want[i], past[i], model), first[i], model,
                        "all rows in a batch");
        for (j = 0; i % 3 == 2 && j < items[i].n_rows; j++)
            same_logits(row_of(items[i].logits, j, model),
                        row_of(want[i], past[i] + rows[i][j], model), 1, model,
                        "a chosen row in a batch");
        items[i] = item_of(sessions[i], tokens[i] + end, second[i], NULL);
    }
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    for (i = 0; i < ITEMS; i++)
        same_logits(attn_session_logits(sessions[i]),
                    row_of(want[i], past[i] + first[i] + second[i] - 1, model), 1, model,
                    "the second batch");
    for (i = 0; i < ITEMS; i++)
        attn_session_free(sessions[i]);
    pool_clear();
}

static inline void watched(const attn_model *model, size_t n, size_t step, size_t n_batch,
                           int n_threads)
{
    attn_ctx ctx = alone();
    const attn_token *const tokens = random_tokens(model, n, n + 5);
    const float *const want = logits_of(&ctx, model, 0, tokens, n, n);
    attn_session *session;
    size_t n_calls = 0;
    ctx.n_threads = n_threads;
    if ((session = session_on(&ctx, model, 0, n_batch)) == NULL)
        return;
    OK(&ctx, attn_hook(&ctx, NULL, session, "*", do_nothing, NULL));
    same_logits(feed_all(&ctx, session, tokens, n, step), want, n, model, "hooks that read");
    attn_unhook_all(session);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*", rewrite, &n_calls));
    same_logits(feed_all(&ctx, session, tokens, n, step), want, n, model, "hooks that rewrite");
    CHECK(n_calls >= 5 + 19 * attn_model_config(model)->n_layer);
    attn_session_free(session);
    pool_clear();
}

#endif

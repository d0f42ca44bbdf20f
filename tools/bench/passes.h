/* Sections prompt, generation, speculation, batch and mixed: the speed of feeding tokens. */
#ifndef BENCH_PASSES_H
#define BENCH_PASSES_H

#include "measure.h"

static void add_matmul(cost *needs, const attn__panels *w, double rows)
{
    *(attn__is_quantized(w->dtype) ? &needs->bytes8 : &needs->f32) +=
        2 * (double)w->n_in * (double)w->n_out * rows;
}

/* The cost of `rows` tokens that attend to `length` positions in the mean. `logits` of them get
 * logits; the others need only keys and values of the last layer. */
static cost model_cost(const bench *b, double rows, double length, double logits)
{
    const attn_config *c = attn_model_config(b->model);
    cost needs = {.read = (double)b->weight_bytes, .span = (size_t)b->weight_bytes};
    for (size_t i = 0; i < c->n_layer; i++) {
        const attn__layer *l = &b->model->layers[i];
        const double on = i + 1 < c->n_layer ? rows : logits;
        add_matmul(&needs, &l->w_qkv, (2 * rows + on) / 3);
        add_matmul(&needs, &l->w_o, on);
        add_matmul(&needs, &l->w_in, on);
        add_matmul(&needs, &l->w_out, on);
        needs.f32 += on * 4 * length * (double)c->d_model;
    }
    add_matmul(&needs, &b->model->w_u, logits);
    return needs;
}

/* Sessions that hold `start` tokens each and are fed `count` more. */
typedef struct feed_arg {
    attn_feed_item items[16];
    size_t n_items;
    attn_token tokens[16][N_CTX];
    size_t start, count;
    int one_by_one; /* choose each from the logits; else all are fed at once */
    attn_sampler *greedy;
} feed_arg;

static void close_sessions(feed_arg *a)
{
    for (size_t i = 0; a && i < a->n_items; i++)
        attn_session_free(a->items[i].session);
    if (a)
        attn_sampler_free(a->greedy);
    free(a);
}

/* NULL after a message. */
static feed_arg *open_sessions(bench *b, size_t n_items, size_t n_ctx, attn_dtype cache)
{
    feed_arg *const a = (feed_arg *)calloc(1, sizeof *a);
    const size_t n_vocab = attn_model_config(b->model)->n_vocab;
    attn_workspace *workspace = NULL;
    attn_session_desc desc = {.n_ctx = n_ctx, .cache_dtype = cache};
    attn_rng rng;
    b->ctx.n_threads = b->threads[b->n_counts - 1];
    attn_rng_seed(&rng, 2);
    if (!a)
        tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for sessions");
    else if (attn_sampler_new(&b->ctx, &a->greedy, n_vocab, NULL) == ATTN_OK &&
             attn_workspace_new(&b->ctx, &workspace, b->model, NULL) == ATTN_OK)
        for (desc.workspace = workspace; a->n_items < n_items; a->n_items++) {
            for (size_t j = 0; j < n_ctx; j++)
                a->tokens[a->n_items][j] = (int32_t)(attn_rng_u32(&rng) % n_vocab);
            if (attn_session_new(&b->ctx, &a->items[a->n_items].session, b->model, &desc))
                break;
        }
    attn_workspace_free(workspace); /* the sessions hold references to it */
    if (a && a->n_items == n_items)
        return a;
    close_sessions(a);
    return NULL;
}

static void fill_sessions(bench *b, feed_arg *a, size_t start)
{
    b->ctx.n_threads = b->threads[b->n_counts - 1];
    for (size_t i = 0; i < a->n_items; i++) {
        attn_session_truncate(&b->ctx, a->items[i].session, 0);
        attn_feed(&b->ctx, a->items[i].session, a->tokens[i], start);
    }
    a->start = start;
}

static double run_feed(bench *b, void *arg)
{
    feed_arg *a = (feed_arg *)arg;
    int32_t next[16];
    for (size_t i = 0; i < a->n_items; i++) {
        attn_session_truncate(&b->ctx, a->items[i].session, a->start);
        next[i] = a->tokens[i][a->start];
        a->items[i].tokens = a->one_by_one ? &next[i] : a->tokens[i];
        a->items[i].n_tokens = a->one_by_one ? 1 : a->count;
    }
    double start = seconds();
    for (size_t n = 0; n < (a->one_by_one ? a->count : 1); n++) {
        attn_feed_batch(&b->ctx, a->items, a->n_items);
        for (size_t i = 0; i < a->n_items && a->one_by_one; i++)
            attn_sample(&b->ctx, &next[i], a->greedy, attn_session_logits(a->items[i].session),
                        NULL, 0);
    }
    return b->ctx.status ? -1 : seconds() - start;
}

static int section_prompts(bench *b)
{
    static const size_t lengths[] = {64, 512, 1024};
    const size_t n_ctx = attn_model_config(b->model)->n_ctx;
    feed_arg *const a = open_sessions(b, 1, n_ctx < N_CTX ? n_ctx : N_CTX, ATTN_F32);
    task t = new_task(b, PROMPTS, 0, "tok/s", run_feed, a);
    int good = a != NULL;
    heading(b, "prompt (logits of its last token)");
    for (size_t i = 0; i < (b->quick ? 1 : 3) && good; i++)
        if (lengths[i] <= n_ctx) {
            a->count = lengths[i];
            t.amount = (double)lengths[i];
            t.needs = model_cost(b, t.amount, (t.amount + 1) / 2, 1);
            snprintf(t.name, sizeof t.name, "%u tokens", (unsigned)lengths[i]);
            good = measure(b, &t);
        }
    close_sessions(a);
    return good;
}

/* A step of generation reads the weights once, and the cache of each sequence. */
static cost generation_cost(const bench *b, size_t sequences, size_t start, size_t count,
                            attn_dtype cache)
{
    const double rows = (double)sequences, length = (double)start + ((double)count + 1) / 2;
    const double kept = cache == ATTN_F16 ? b->position_bytes / 2 : b->position_bytes;
    cost needs = model_cost(b, rows, length, rows);
    needs.read = (needs.read + rows * length * kept) * (double)count;
    needs.f32 *= (double)count;
    needs.bytes8 *= (double)count;
    return needs;
}

static int section_generation(bench *b)
{
    static const struct {
        size_t start;
        attn_dtype cache;
    } cases[] = {{32, ATTN_F32}, {512, ATTN_F32}, {960, ATTN_F32}, {960, ATTN_F16}};
    const size_t n_ctx = attn_model_config(b->model)->n_ctx;
    size_t i;
    int good = 1;
    heading(b, "generation (greedy)");
    for (i = 0; i < (b->quick ? 1 : 4) && good && cases[i].start + 16 <= n_ctx; i++) {
        feed_arg *const a = open_sessions(b, 1, cases[i].start + 16, cases[i].cache);
        task t = new_task(b, GENERATION, 16, "tok/s", run_feed, a);
        if (!a)
            return 0;
        a->count = 16;
        a->one_by_one = 1;
        t.needs = generation_cost(b, 1, cases[i].start, 16, cases[i].cache);
        snprintf(t.name, sizeof t.name, "after %u tokens%s", (unsigned)cases[i].start,
                 cases[i].cache == ATTN_F16 ? ", f16 cache" : "");
        fill_sessions(b, a, cases[i].start);
        good = measure(b, &t);
        close_sessions(a);
    }
    return good;
}

/* A call of attn_generate on a session whose tokens may repeat themselves. */
typedef struct speculation_arg {
    attn_session *session;
    attn_generate_desc desc;
} speculation_arg;

static double run_speculation(bench *b, void *arg)
{
    const speculation_arg *a = (const speculation_arg *)arg;
    attn_session_truncate(&b->ctx, a->session, 2 * PROMPT - 1);
    double start = seconds();
    return attn_generate(&b->ctx, NULL, a->session, NULL, &a->desc) ? -1 : seconds() - start;
}

/* Two prompts. The first repeats a text of 8 tokens, and the model soon repeats it, too, so most drafts
 * are right. The second has random tokens out of 16, so that pairs of tokens recur with different
 * successors, and most drafts are wrong. The roof is that of generation without drafts; with right
 * drafts, generation can be faster. */
static int section_speculation(bench *b)
{
    static const char *const names[] = {"repeating, without", "repeating, drafting",
                                        "random, without", "random, drafting wrong"};
    const size_t n_vocab = attn_model_config(b->model)->n_vocab;
    const size_t n_written = b->quick ? PROMPT : (size_t)4 * PROMPT;
    const size_t n_positions = (size_t)2 * PROMPT + n_written;
    speculation_arg s;
    task t = new_task(b, SPECULATION, 0, "tok/s", run_speculation, &s);
    heading(b, "speculation (attn_generate)");
    if (too_short(b, n_positions))
        return 1;
    feed_arg *a = open_sessions(b, 1, n_positions, ATTN_F32);
    int good = a != NULL;
    for (size_t i = 0; i < 4 && good; i++) {
        for (size_t j = 0; j < (size_t)2 * PROMPT; j++)
            a->tokens[0][j] = (int32_t)((i < 2 ? j % 8 : j) * 37 % n_vocab);
        s = (speculation_arg){a->items[0].session,
                              {.prompt_tokens = &a->tokens[0][2 * PROMPT - 1],
                               .n_prompt_tokens = 1,
                               .max_tokens = n_written,
                               .ignore_eos = 1,
                               .no_draft = i % 2 == 0,
                               .sampling = {.temperature = i < 2 ? 0 : 100.0f, .top_k = 16}}};
        t.amount = (double)n_written;
        t.needs = generation_cost(b, 1, (size_t)2 * PROMPT, n_written, ATTN_F32);
        snprintf(t.name, sizeof t.name, "%s", names[i]);
        fill_sessions(b, a, (size_t)2 * PROMPT);
        good = measure(b, &t);
    }
    close_sessions(a);
    return good;
}

static int section_batch(bench *b)
{
    static const size_t all[] = {1, 2, 4, 8, 16}, few[] = {1, 8};
    const size_t n = b->quick ? 2 : 5, count = 8;
    task t = new_task(b, BATCH, 0, "tok/s", run_feed, NULL);
    int good = 1;
    heading(b, "batch (tokens of all sequences)");
    if (too_short(b, PROMPT + count))
        return 1;
    for (size_t i = 0; i < n && good; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): few[i] for the first two */
        const size_t sequences = b->quick ? few[i] : all[i];
        feed_arg *const a = open_sessions(b, sequences, PROMPT + count, ATTN_F32);
        if (!a)
            return 0;
        fill_sessions(b, a, PROMPT);
        a->count = count;
        a->one_by_one = 1;
        t.arg = a;
        t.amount = (double)(sequences * count);
        t.needs = generation_cost(b, sequences, PROMPT, count, ATTN_F32);
        snprintf(t.name, sizeof t.name, "%u sequence%s after %d", (unsigned)sequences,
                 sequences == 1 ? "" : "s", PROMPT);
        good = measure(b, &t);
        close_sessions(a);
    }
    return good;
}

/* Texts of the given lengths, fed in one call. */
typedef struct mixed_arg {
    feed_arg *texts;
    const size_t *lengths;
} mixed_arg;

static double run_mixed(bench *b, void *arg)
{
    const mixed_arg *const a = (const mixed_arg *)arg;
    for (size_t i = 0; i < a->texts->n_items; i++) {
        attn_session_truncate(&b->ctx, a->texts->items[i].session, 0);
        a->texts->items[i].tokens = a->texts->tokens[i];
        a->texts->items[i].n_tokens = a->lengths[i];
    }
    double start = seconds();
    attn_feed_batch(&b->ctx, a->texts->items, a->texts->n_items);
    return b->ctx.status ? -1 : seconds() - start;
}

/* Compares texts of one length with texts of mixed lengths and as many tokens. A pass takes 256 tokens
 * of any texts, so nothing is padded. */
static int section_mixed(bench *b)
{
    enum { N = 16, EACH = 64 };
    static const struct {
        const char *name;
        size_t lengths[N];
    } cases[] = {
        {"16 texts of 64", {64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64}},
        {"16 texts of 5 to 240", {12, 240, 7, 33, 96, 5, 61, 18, 150, 9, 44, 128, 25, 6, 110, 80}}};
    mixed_arg a;
    task t = new_task(b, MIXED, (double)N * EACH, "tok/s", run_mixed, &a);
    size_t i, k;
    int good = 1;
    heading(b, "many texts (their last logits)");
    if (too_short(b, 240))
        return 1;
    a.texts = open_sessions(b, N, 240, ATTN_F32);
    for (i = 0; i < 2 && a.texts && good; i++) {
        double positions = 0; /* to which tokens attend, summed over the tokens */
        for (k = 0; k < N; k++)
            positions += (double)(cases[i].lengths[k] * (cases[i].lengths[k] + 1)) / 2;
        a.lengths = cases[i].lengths;
        t.needs = model_cost(b, t.amount, positions / t.amount, N);
        snprintf(t.name, sizeof t.name, "%s", cases[i].name);
        good = measure(b, &t);
    }
    good = good && a.texts;
    close_sessions(a.texts);
    return good;
}

#endif

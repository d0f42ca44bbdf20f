/* Notebook 007: keys and values that are kept, and ways to choose the next token.
 *
 *     make && cc examples/from_scratch/007_cache.c -I. -O2 -lm -o 007 && ./007
 *
 * In a causal model no later token changes an earlier position. All that a new position reads of earlier
 * ones is their keys and values, so these are kept in each layer, and only the new rows are computed. The
 * model ends with the logits. This program samples a token from them by hand, and then searches for a likely
 * text with a small beam. The modules are those of clean_gpt2.h. In NumPy:
 * examples/python/notebooks/cache.ipynb.
 *
 * Exercise: leave out the line of attend that adds the mask. Which of the first three comparisons fail, and
 * why not all? The answer is at the end.
 *
 * In the notebook   in attn.h                                      in the engine
 *   step            attn_feed (>>api-models)                       attn__store_kv (>>steps)
 *   past            attn_session_get_cache (>>api-hooks)           attn__store_kv (>>steps)
 *   filtered        attn_sampler_desc (>>api-models)               attn__filter (>>sampling)
 *   write           attn_sample (>>api-models)                     attn__draw (>>sampling)
 *   beams           attn_session_copy (>>api-models)               -
 */
#include "clean_gpt2.h"

enum { MOST = 64, WIDTH = 3, AHEAD = 8, TOP_K = 5, DRAWS = 20000 };

/* Keys and values of each layer, [1, H, n, d]. step makes new tensors and leaves the old ones alone, so a
 * copy of this struct is a copy of the cache. */
typedef struct cache {
    attn_tensor keys[MAX_LAYERS], values[MAX_LAYERS];
    size_t n;
} cache;

static attn_tensor append(attn_ctx *ctx, attn_tensor kept, attn_tensor more)
{
    attn_tensor both[2], out = none;
    both[0] = kept;
    both[1] = more;
    if (kept.ndim == 0)
        attn_copy(ctx, &out, more);
    else
        torch_cat(ctx, &out, both, 2, 2);
    return out;
}

/* clean_gpt2.h's attention, of queries at new positions and keys at all. */
static attn_tensor attend(attn_ctx *ctx, attn_tensor x, const attn_block_weights *w, cache *past,
                          size_t layer)
{
    const attn_tensor q = project(ctx, x, w->w_q, w->b_q, w->n_head);
    const attn_tensor k =
        append(ctx, past->keys[layer], project(ctx, x, w->w_k, w->b_k, w->n_head));
    const attn_tensor v =
        append(ctx, past->values[layer], project(ctx, x, w->w_v, w->b_v, w->n_head));
    attn_tensor mask = none, scores = none, z = none, joined = none, out = none;
    past->keys[layer] = k;
    past->values[layer] = v;
    attn_matmul(ctx, &scores, q, attn_transpose(k, -2, -1));
    attn_scale(ctx, &scores, scores, 1 / sqrtf((float)q.shape[3]));
    torch_causal_mask(ctx, &mask, x.shape[1], past->n + x.shape[1]); /* [new, all] */
    attn_add(ctx, &scores, scores, mask);
    attn_softmax(ctx, &scores, scores);
    attn_matmul(ctx, &z, scores, v);
    attn_copy(ctx, &joined, attn_transpose(z, 1, 2));
    joined = attn_reshape(joined, attn_shape3(1, x.shape[1], x.shape[2]));
    attn_linear(ctx, &out, joined, w->w_o, w->b_o);
    return out;
}

/* The logits [n, V] of n more tokens, whose keys and values join the cache. */
static attn_tensor step(attn_ctx *ctx, const gpt *m, cache *past, attn_token *ids, size_t n)
{
    attn_tensor x = none;
    attn_add(ctx, &x, embed(ctx, attn_borrow(ids, ATTN_I32, attn_shape2(1, n)), m),
             attn_slice(m->w_pos, 0, past->n, n));
    for (size_t i = 0; i < m->c.n_layer; i++) {
        const attn_block_weights *w = &m->block[i];
        attn_tensor mid = none, post = none;
        attn_add(ctx, &mid, x,
                 attend(ctx, layer_norm(ctx, x, w->ln1_w, w->ln1_b, m->c.ln_eps), w, past, i));
        attn_add(ctx, &post, mid,
                 mlp(ctx, layer_norm(ctx, mid, w->ln2_w, w->ln2_b, m->c.ln_eps), w));
        x = post;
    }
    past->n += n;
    attn_tensor logits = unembed(ctx, layer_norm(ctx, x, m->ln_w, m->ln_b, m->c.ln_eps), m);
    return attn_select(logits, 0, 0);
}

static const char *same(attn_tensor a, attn_tensor b)
{
    return check(difference(a, b) < 5e-3) ? "the same" : "DIFFERENT";
}

/* All at once, one by one, in two halves; then the engine's cache. */
static void ways(attn_ctx *ctx, const gpt *m, attn_session *session, attn_token *ids, size_t n)
{
    const attn_tensor at_once =
        attn_select(transformer(ctx, attn_borrow(ids, ATTN_I32, attn_shape2(1, n)), m), 0, 0);
    attn_tensor rows[MOST], halves[2], keys = none, joined = none, both = none;
    cache past = {0}, half = {0};
    const size_t last = m->c.n_layer - 1;
    for (size_t i = 0; i < n; i++)
        rows[i] = step(ctx, m, &past, ids + i, 1);
    torch_cat(ctx, &joined, rows, n, 0);
    halves[0] = step(ctx, m, &half, ids, n / 2);
    halves[1] = step(ctx, m, &half, ids + n / 2, n - n / 2);
    torch_cat(ctx, &both, halves, 2, 0);
    attn_session_get_cache(ctx, &keys, session, ATTN_CACHE_KEYS, last, 0);
    printf("logits of all %d positions, one token at a time: %s\n", (int)n, same(joined, at_once));
    printf("logits in two halves, the second with a mask: %s\n", same(both, at_once));
    printf("keys of the last layer, as the engine keeps them: %s\n",
           same(attn_transpose(attn_select(past.keys[last], 0, 0), 0, 1), keys));
    printf("Without a cache that takes %d positions, with it %d, and %d bytes for each token.\n",
           (int)(n * (n + 1) / 2), (int)n, (int)(2 * m->c.n_layer * m->c.d_model * sizeof(float)));
}

/* Token ids by their logits, the largest first. */
static void sort(const float *logits, size_t n, attn_token *ids, size_t n_best)
{
    for (size_t i = 0; i < n_best; i++) {
        ids[i] = -1;
        for (size_t j = 0; j < n; j++) {
            const int before = i > 0 && (logits[j] > logits[ids[i - 1]] ||
                                         (logits[j] == logits[ids[i - 1]] && (int)j <= ids[i - 1]));
            if (!before && (ids[i] < 0 || logits[j] > logits[ids[i]]))
                ids[i] = (attn_token)j;
        }
    }
}

/* The text of ids, of which a few fit. */
static const char *text_of(const attn_model *model, const attn_token *ids, size_t n)
{
    static char text[256];
    attn_ctx ctx = {0};
    size_t size = sizeof text - 1;
    text[attn_decode(&ctx, text, &size, attn_model_tokenizer(model), ids, n) ? 0 : size] = 0;
    return text;
}

/* The k likeliest share the whole; a draw walks along them until their sum has passed a random number. Beside
 * it the engine's sampler. */
static void draw(attn_ctx *ctx, const attn_model *model, const float *logits)
{
    const attn_sampler_desc desc = {.temperature = 0.7f, .top_k = TOP_K, .seed = 1};
    attn_sampler *sampler = NULL;
    attn_tensor uniform = none;
    attn_token best[TOP_K], token = 0;
    int ours[TOP_K] = {0}, theirs[TOP_K] = {0}, others = 0, k;
    double p[TOP_K], total = 0;
    torch_rng rng;
    sort(logits, attn_model_config(model)->n_vocab, best, TOP_K);
    for (k = 0; k < TOP_K; k++)
        total += p[k] = exp((double)(logits[best[k]] - logits[best[0]]) / 0.7);
    torch_manual_seed(&rng, 123);
    torch_rand(ctx, &uniform, attn_shape1(DRAWS), &rng);
    attn_sampler_new(ctx, &sampler, attn_model_config(model)->n_vocab, &desc);
    for (int i = 0; i < DRAWS && ctx->status == ATTN_OK; i++) {
        double left = (double)attn_get1(uniform, (size_t)i) * total;
        for (k = 0; k < TOP_K - 1 && left >= p[k]; k++)
            left -= p[k];
        ours[k]++;
        attn_sample(ctx, &token, sampler, logits, NULL, 0);
        for (k = 0; k < TOP_K && best[k] != token; k++)
            ;
        (k < TOP_K) ? theirs[k]++ : others++;
    }
    printf("\nThe next token, temperature 0.7, the %d likeliest, in %% of %d draws:\n", TOP_K,
           DRAWS);
    for (k = 0; k < TOP_K; k++) {
        const double want = p[k] / total;
        printf("%5.1f by softmax, %5.1f by hand, %5.1f by the engine:%s\n", 100 * want,
               100.0 * ours[k] / DRAWS, 100.0 * theirs[k] / DRAWS, text_of(model, &best[k], 1));
        check(fabs((double)ours[k] / DRAWS - want) < 0.02 &&
              fabs((double)theirs[k] / DRAWS - want) < 0.02);
    }
    check(others == 0);
    attn_sampler_free(sampler);
}

typedef struct beam {
    double log_p;
    attn_token ids[AHEAD];
    cache past;
    attn_tensor logits; /* [V] */
} beam;

static int likelier(const void *a, const void *b)
{
    const double x = ((const beam *)a)->log_p, y = ((const beam *)b)->log_p;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The best `width` of all beams' continuations by one token, likeliest first; their number. */
static size_t widen(attn_ctx *ctx, const gpt *m, beam *beams, size_t n, size_t width, size_t length)
{
    beam next[WIDTH * WIDTH];
    attn_token best[WIDTH];
    size_t i, n_next = 0;
    for (i = 0; i < n; i++) {
        attn_tensor log_p = none;
        if (attn_log_softmax(ctx, &log_p, beams[i].logits))
            return 0;
        sort((const float *)log_p.data, m->c.n_vocab, best, width);
        for (size_t k = 0; k < width; k++) {
            beam *b = &next[n_next++];
            *b = beams[i];
            b->log_p += (double)attn_get1(log_p, (size_t)best[k]);
            b->ids[length] = best[k];
        }
    }
    if (n_next > 0)
        qsort(next, n_next, sizeof *next, likelier);
    for (i = 0; i < width && i < n_next; i++) {
        beams[i] = next[i];
        beams[i].logits = attn_select(step(ctx, m, &beams[i].past, &beams[i].ids[length], 1), 0, 0);
    }
    return i;
}

/* Continues a prompt and measures the best text with the engine. */
static void search(attn_ctx *ctx, const gpt *m, attn_session *session, attn_token *prompt, size_t n,
                   size_t width)
{
    const attn_model *model = attn_session_model(session);
    beam beams[WIDTH];
    attn_token all[MOST];
    attn_token_stats stats[MOST];
    size_t kept = 1;
    double sum = 0;
    memset(beams, 0, sizeof beams);
    beams[0].logits = attn_select(step(ctx, m, &beams[0].past, prompt, n), 0, n - 1);
    for (size_t length = 0; length < AHEAD && ctx->status == ATTN_OK; length++)
        kept = widen(ctx, m, beams, kept, width, length);
    if (ctx->status != ATTN_OK)
        return;
    for (size_t i = 0; i < kept; i++)
        printf("width %d, log probability %6.2f: ...%s\n", (int)width, beams[i].log_p,
               text_of(model, beams[i].ids, AHEAD));
    memcpy(all, prompt, n * sizeof *all);
    memcpy(all + n, beams[0].ids, sizeof beams[0].ids);
    attn_session_truncate(ctx, session, 0);
    if (attn_score(ctx, stats, NULL, session, all, n + AHEAD) == ATTN_OK)
        for (size_t i = n - 1; i < n + AHEAD - 1; i++)
            sum -= (double)stats[i].nll;
    check(fabs(sum - beams[0].log_p) < 1e-3);
}

int main(int argc, char **argv)
{
    static const char text[] = "Lily had a red ball. Tom took the ball",
                      sad[] = "She was sad because";
    const char *path = argc > 1 ? argv[1] : BUILD "/tiny-stories.attn";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_token ids[MOST];
    size_t n = MOST;

    if (attn_model_open(&ctx, &model, path, NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), text, strlen(text)) ||
        attn_feed(&ctx, session, ids, n))
        return finish(&ctx);
    gpt m = load(&ctx, model);
    printf("\"%s\"\n", text);
    ways(&ctx, &m, session, ids, n);
    draw(&ctx, model, attn_session_logits(session));

    n = MOST;
    attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), sad, strlen(sad));
    printf("\n\"%s ...\", and %d tokens. Greedy, then a beam:\n", sad, AHEAD);
    search(&ctx, &m, session, ids, n, 1);
    search(&ctx, &m, session, ids, n, WIDTH);
    attn_session_free(session);
    attn_model_close(model);
    return finish(&ctx);
}

/* Answer to the exercise: that in two halves alone. One token at a time needs no mask, because all that is in
 * the cache is past; in the second half a position would see those that follow it. The beams begin with a
 * whole prompt, so their texts are others, too, and the checks by attn_score fail. */

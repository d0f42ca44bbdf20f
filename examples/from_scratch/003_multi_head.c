/* Notebook 003: scaled dot-product attention step by step, the causal mask, dropout, many heads,
 * and at the end one layer of the size that GPT-2 has.
 *
 *     cc examples/from_scratch/003_multi_head.c -I. -O2 -lm -o 003 && ./003
 *
 * It begins where 000 begins, with scores of words and nothing to learn (words.h). Before attention, a
 * recurrent network read a sentence word by word and had to keep all of it in one hidden state; here a
 * word reaches every other in one step. In NumPy: examples/python/notebooks/multi_head.ipynb.
 *
 * Exercise: in main, give multi_head 1 head in place of 2. Which rows of the result keep every digit,
 * and what will the check by the library say? The answer is at the end of this file.
 *
 * In the notebook                 in attn.h                               in the engine
 *   query 2 step by step          attn_matmul, attn_softmax (>>ops)       attn__head_scores (>>matmul)
 *   SelfAttention_v1, _v2         attn_attention (>>ops)                  attn__attend (>>steps)
 *   weight transfer, v1 to v2     attn_copy, attn_transpose (>>tensors)   attn_model_tensor (>>format)
 *   torch.tril; masked_fill       torch_tril, torch_causal_mask (torch.h) attn__visible (>>matmul)
 *   nn.Dropout(0.5)               torch_dropout (torch.h)                 nowhere
 *   a batch by torch.stack        attn_add (>>ops), which repeats         attn_feed_batch (>>session)
 *   MultiHeadAttentionWrapper     attn_slice (>>tensors)                  attn__head_of (>>steps)
 *   MultiHeadAttention            attn_multihead (>>ops)                  attn__attend (>>steps)
 */
#include "torch.h"
#include "words.h"

/* The parameters of self-attention, [d_in, d_out]. */
typedef struct weights {
    attn_tensor query, key, value;
    attn_tensor out, out_bias; /* of multi-head attention only */
} weights;

static weights linear_weights(attn_ctx *ctx, size_t d_in, size_t d_out, torch_rng *rng)
{
    weights w = {0};
    torch_linear(ctx, &w.query, NULL, d_in, d_out, rng);
    torch_linear(ctx, &w.key, NULL, d_in, d_out, rng);
    torch_linear(ctx, &w.value, NULL, d_in, d_out, rng);
    return w;
}

/* x · weight, as an nn.Linear without bias computes it */
static attn_tensor linear(attn_ctx *ctx, attn_tensor x, attn_tensor weight)
{
    attn_tensor y = none;
    attn_matmul(ctx, &y, x, weight);
    return y;
}

static attn_tensor self_attention(attn_ctx *ctx, attn_tensor x, const weights *w, attn_tensor mask)
{
    return attend(ctx, linear(ctx, x, w->query), linear(ctx, x, w->key), linear(ctx, x, w->value),
                  mask);
}

/* Query 2, all the way by hand. */
static void one_query(attn_ctx *ctx, attn_tensor inputs, const weights *w)
{
    attn_tensor scores = none, context = none;
    float score_22 = 0;

    attn_tensor query = linear(ctx, attn_slice(inputs, 0, 1, 1), w->query);
    show("The query of \"journey\":", attn_select(query, 0, 0));
    attn_tensor keys = linear(ctx, inputs, w->key);
    attn_tensor values = linear(ctx, inputs, w->value);
    show_shape("\nkeys", keys);
    show_shape("values", values);

    for (size_t i = 0; i < 2; i++)
        score_22 += attn_get2(query, 0, i) * attn_get2(keys, 1, i);
    printf("\nIts score with its own key: %.4f\n", score_22);

    attn_matmul(ctx, &scores, query, attn_transpose(keys, 0, 1));
    show("Its scores with all keys:", attn_select(scores, 0, 0));
    attn_scale(ctx, &scores, scores, 1 / sqrtf((float)keys.shape[1]));
    attn_softmax(ctx, &scores, scores);
    show("Divided by sqrt(2) and through softmax:", attn_select(scores, 0, 0));
    attn_matmul(ctx, &context, scores, values);
    show("The context vector of \"journey\":", attn_select(context, 0, 0));
}

/* Two ways to hide the future give the same weights. Zeros after the softmax break the rows' sums, which
 * have to be mended; -inf before it does not. */
static attn_tensor masks(attn_ctx *ctx, attn_tensor inputs, const weights *w)
{
    attn_tensor scores = none, full = none, ones = none, masked = none, sums = none, causal = none;
    const attn_tensor q = linear(ctx, inputs, w->query), k = linear(ctx, inputs, w->key);

    attn_matmul(ctx, &scores, q, attn_transpose(k, 0, 1));
    attn_scale(ctx, &full, scores, 1 / sqrtf(2));
    attn_softmax(ctx, &full, full);
    show("The weights when everybody sees everybody:", full);

    torch_full(ctx, &ones, attn_shape2(6, 6), 1);
    torch_tril(ctx, &ones, ones);
    show("The past and the present as a triangle of ones:", ones);
    attn_mul(ctx, &masked, full, ones);
    show("Weights times triangle:", masked);
    attn_sum(ctx, &sums, masked);
    attn_div(ctx, &masked, masked, sums);
    show("Divided by what is left of the row sums:", masked);

    torch_causal_mask(ctx, &causal, 6, 6);
    attn_add(ctx, &causal, causal, scores);
    show("Better: scores of -inf, which softmax turns into zeros.", causal);
    attn_scale(ctx, &causal, causal, 1 / sqrtf(2));
    attn_softmax(ctx, &causal, causal);
    show("Their softmax, with no second division:", causal);
    show_picture("As a picture: each word looks at itself and at those before it.", causal,
                 spelling);
    return causal;
}

/* A head computes one attention pattern. A layer has several heads, so it computes several patterns. One
 * matrix product serves all heads: d_out is split into n_head parts, [b, T, d_out] is viewed as
 * [b, T, n_head, d_head], and transposed to [b, n_head, T, d_head]. No number moves. */
static attn_tensor heads(attn_tensor x, size_t n_head)
{
    const attn_shape split = attn_shape4(x.shape[0], x.shape[1], n_head, x.shape[2] / n_head);
    return attn_transpose(attn_reshape(x, split), 1, 2);
}

static attn_tensor multi_head(attn_ctx *ctx, attn_tensor x, const weights *w, size_t n_head,
                              attn_tensor mask)
{
    const attn_tensor q = heads(linear(ctx, x, w->query), n_head);
    const attn_tensor k = heads(linear(ctx, x, w->key), n_head);
    const attn_tensor v = heads(linear(ctx, x, w->value), n_head);
    attn_tensor z = none, out = none;
    attn_copy(ctx, &z, attn_transpose(attend(ctx, q, k, v, mask), 1, 2)); /* .contiguous() */
    z = attn_reshape(z, attn_shape3(x.shape[0], x.shape[1], w->out.shape[0]));
    attn_linear(ctx, &out, z, w->out, w->out_bias);
    return out;
}

static attn_tensor twice(attn_ctx *ctx, attn_tensor x) /* torch.stack((x, x)) */
{
    attn_tensor both = none;
    attn_zeros(ctx, &both, ATTN_F32, attn_shape3(2, x.shape[0], x.shape[1]));
    attn_add(ctx, &both, both, x);
    return both;
}

/* The library's own functions for the same two heads. */
static void by_the_library(attn_ctx *ctx, attn_tensor theirs, attn_tensor x, const weights *w)
{
    const attn_attention_desc causal = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_block_weights block = {0};
    attn_tensor out = none, pattern = none;
    const size_t last = x.shape[1] - 1;
    block.n_head = 2;
    block.w_q = w->query;
    block.w_k = w->key;
    block.w_v = w->value;
    block.w_o = w->out;
    block.b_o = w->out_bias;
    attn_multihead(ctx, &out, x, x, &block, &causal);
    attn_multihead_pattern(ctx, &pattern, x, x, &block, &causal); /* [b, n_head, T, T] */
    printf("\nattn_multihead's output differs by at most %g. By attn_multihead_pattern the last\n"
           "word looks at itself with a weight of %.2f in one head and %.2f in the other.\n",
           checked_difference(theirs, out), (double)attn_get4(pattern, 0, 0, last, last),
           (double)attn_get4(pattern, 0, 1, last, last));
}

/* Version 1 draws its matrices from torch.rand; version 2 takes nn.Linear. */
static weights rand_weights(attn_ctx *ctx, torch_rng *rng)
{
    weights w = {0};
    torch_rand(ctx, &w.query, attn_shape2(3, 2), rng);
    torch_rand(ctx, &w.key, attn_shape2(3, 2), rng);
    torch_rand(ctx, &w.value, attn_shape2(3, 2), rng);
    return w;
}

/* Given the weights of version 1, version 2 computes what version 1 does. */
static void transfer(attn_ctx *ctx, attn_tensor inputs, torch_rng *rng)
{
    printf("\nThe versions differ in their weights only. Seed 123, 2 and then 1:\n");
    torch_manual_seed(rng, 123);
    weights v2 = linear_weights(ctx, 3, 2, rng);
    show("Version 2, seed 123:", self_attention(ctx, inputs, &v2, none));
    weights v1 = rand_weights(ctx, rng);
    show("Version 1, drawn after it:", self_attention(ctx, inputs, &v1, none));
    attn_copy(ctx, &v2.query, v1.query);
    attn_copy(ctx, &v2.key, v1.key);
    attn_copy(ctx, &v2.value, v1.value);
    show("Version 2 with the weights of version 1:", self_attention(ctx, inputs, &v2, none));
}

/* Dropout sets a random half of the weights to 0 while a model is trained, so that it relies on none of
 * them alone; the others double, so that sums stay the same on average. A model that runs drops none. */
static void drop_half(attn_ctx *ctx, attn_tensor causal, torch_rng *rng)
{
    attn_tensor ones = none, dropped = none;
    torch_full(ctx, &ones, attn_shape2(6, 6), 1);
    torch_manual_seed(rng, 123);
    torch_dropout(ctx, &dropped, ones, 0.5f, rng);
    show("Dropout of half of 36 ones, seed 123; the others double:", dropped);
    torch_manual_seed(rng, 123);
    torch_dropout(ctx, &dropped, causal, 0.5f, rng);
    show("The same dropout of the causal weights:", dropped);
}

static void two_heads(attn_ctx *ctx, attn_tensor batch, attn_tensor mask, torch_rng *rng)
{
    attn_tensor both = none, each[2];
    printf("\nTwo heads are two such layers, their results side by side.\n");
    for (size_t i = 0; i < 2; i++) {
        const weights w = linear_weights(ctx, 3, 2, rng);
        each[i] = self_attention(ctx, batch, &w, mask);
    }
    torch_cat(ctx, &both, each, 2, -1);
    show("Two heads:", both);
    show_shape("their shape", both);
}

static void split_queries(attn_ctx *ctx, attn_tensor batch, torch_rng *rng)
{
    attn_tensor weight = none;
    printf("\nOr one layer whose result is split, by a view. Seed 123:\n");
    torch_manual_seed(rng, 123);
    torch_linear(ctx, &weight, NULL, 3, 2, rng);
    attn_tensor queries = linear(ctx, batch, weight);
    show_shape("queries", queries);
    show("The queries:", queries);
    queries = attn_reshape(queries, attn_shape4(2, 6, 2, 1));
    show_shape("viewed", queries);
    show_shape("viewed[0]", attn_select(queries, 0, 0));
}

static void gpt2_sized(attn_ctx *ctx, torch_rng *rng)
{
    attn_tensor doc = none, mask = none;
    printf("\nOne layer of GPT-2's size: 1024 positions, 768 numbers, 12 heads.\n");
    torch_randn(ctx, &doc, attn_shape2(1024, 768), rng);
    show_shape("doc", doc);
    show("doc, normal random numbers:", doc);
    attn_tensor batch = twice(ctx, doc);
    show_shape("batch", batch);
    show("The batch of two:", batch);
    torch_causal_mask(ctx, &mask, 1024, 1024);
    weights w = linear_weights(ctx, 768, 768, rng);
    torch_linear(ctx, &w.out, &w.out_bias, 768, 768, rng);
    attn_tensor out = multi_head(ctx, batch, &w, 12, mask);
    show_shape("the result", out);
    show("The context vectors of the first document:", attn_select(out, 0, 0));
}

int main(void)
{
    attn_ctx ctx = {0};
    torch_rng rng;
    const attn_tensor inputs = attn_borrow(words, ATTN_F32, attn_shape2(6, 3));
    attn_tensor mask = none;

    printf("A sentence of six words, three numbers each.\n");
    one_word(&ctx);
    all_words(&ctx, inputs);

    printf("\nNow with queries, keys and values. Matrices [3, 2] of torch.rand, seed 123.\n");
    torch_manual_seed(&rng, 123);
    weights w = rand_weights(&ctx, &rng);
    one_query(&ctx, inputs, &w);
    show("Version 1, for all words:", self_attention(&ctx, inputs, &w, none));
    torch_manual_seed(&rng, 789);
    w = linear_weights(&ctx, 3, 2, &rng);
    show("Version 2, with nn.Linear, seed 789:", self_attention(&ctx, inputs, &w, none));
    transfer(&ctx, inputs, &rng);

    printf("\nNow nobody may look ahead. The weights are those of seed 789.\n");
    drop_half(&ctx, masks(&ctx, inputs, &w), &rng);

    printf("\nA batch: the sentence twice. Weights go on from where the dropout left off.\n");
    attn_tensor batch = twice(&ctx, inputs);
    show_shape("batch", batch);
    show("The batch:", batch);
    torch_causal_mask(&ctx, &mask, 6, 6);
    w = linear_weights(&ctx, 3, 2, &rng);
    attn_tensor out = self_attention(&ctx, batch, &w, mask);
    show_shape("Context vectors shape", out);
    show("Causal attention:", out);

    two_heads(&ctx, batch, mask, &rng);
    split_queries(&ctx, batch, &rng);

    printf("\nBatch size: %d\nNum tokens: %d\nInput token embedding dimensions: %d\n",
           (int)batch.shape[0], (int)batch.shape[1], (int)batch.shape[2]);
    torch_manual_seed(&rng, 123);
    w = linear_weights(&ctx, 3, 2, &rng);
    torch_linear(&ctx, &w.out, &w.out_bias, 2, 2, &rng);
    out = multi_head(&ctx, batch, &w, 2, mask);
    show_shape("Context matrix shape", out);
    show("Multi-head attention with an output layer, seed 123:", out);
    by_the_library(&ctx, out, batch, &w);

    gpt2_sized(&ctx, &rng);
    return finish(&ctx);
}

/* The exercise: the first row of each sentence. Its word has nothing to look at but itself, so the weight
 * is 1 with any number of heads; from the second word on, weights differ. The library still computes two heads, so
 * the check fails, and the exit code is 1. */

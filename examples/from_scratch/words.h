/* What notebooks 000 and 003 have in common. Both begin with attention in which nothing is learned:
 * one_word in plain C, then all_words with matrices. Later both need the whole formula: attend.
 *
 * Two words are alike if their embeddings point the same way, which the dot product measures. Softmax
 * makes weights of the dot products, positive and with the sum 1, and the words mixed by these weights
 * are the context vector: an embedding that knows of the other words in the sentence. */
#ifndef WORDS_H
#define WORDS_H

#include "notebook.h"

static const char *const spelling[6] = {"Your", "journey", "starts", "with", "one", "step"};

/* "Your journey starts with one step": one row is one word's embedding. */
static float words[6][3] = {
    {0.43f, 0.15f, 0.89f}, /* Your    */
    {0.55f, 0.87f, 0.66f}, /* journey */
    {0.57f, 0.85f, 0.64f}, /* starts  */
    {0.22f, 0.58f, 0.33f}, /* with    */
    {0.77f, 0.25f, 0.10f}, /* one     */
    {0.05f, 0.80f, 0.55f}, /* step    */
};

/* fmaf(a, b, c) is a * b + c rounded once, which is also how PyTorch multiplies and adds. */
static float dot(const float *a, const float *b)
{
    return fmaf(a[2], b[2], fmaf(a[1], b[1], a[0] * b[0]));
}

static float sum_of_six(const float *x)
{
    return x[0] + x[1] + x[2] + x[3] + x[4] + x[5];
}

/* How much should "journey" attend to each word? Loops would do for all of it. Sums of more than a
 * few numbers are attn_sum's: it adds in pairs, which rounds less than one after the other. */
static void one_word(attn_ctx *ctx)
{
    const float *query = words[1];
    float score[6], weight[6], context[3] = {0};
    const attn_tensor scores = attn_borrow(score, ATTN_F32, attn_shape1(6));
    const attn_tensor weights = attn_borrow(weight, ATTN_F32, attn_shape1(6));
    attn_tensor stable = none, total = none;
    int i;

    for (i = 0; i < 6; i++)
        score[i] = dot(words[i], query);
    show("The scores of \"journey\": its dot product with every word. Larger is more alike.",
         scores);

    float sum = sum_of_six(score);
    for (i = 0; i < 6; i++)
        weight[i] = score[i] / sum;
    show("Weights should sum to 1. The simplest way is to divide by the sum:", weights);
    show_number("Their sum, in which one can see the rounding:", sum_of_six(weight));

    for (i = 0, sum = 0; i < 6; i++)
        sum += expf(score[i]);
    for (i = 0; i < 6; i++)
        weight[i] = expf(score[i]) / sum;
    show("Softmax is positive whatever the scores are: exp(score) over the sum of all exp(score).",
         weights);
    attn_sum(ctx, &total, weights);
    show_number("Their sum:", attn_get1(total, 0));

    attn_softmax(ctx, &stable, scores);
    show("exp overflows for scores above 88. attn_softmax takes the largest score off first:",
         stable);
    attn_sum(ctx, &total, stable);
    show_number("Their sum, without that danger:", attn_get1(total, 0));

    for (i = 0; i < 6; i++)
        for (int j = 0; j < 3; j++)
            context[j] += attn_get1(stable, (size_t)i) * words[i][j];
    show("The context vector: all words, mixed by these weights.",
         attn_borrow(context, ATTN_F32, attn_shape1(3)));
}

/* All words at once. */
static void all_words(attn_ctx *ctx, attn_tensor inputs)
{
    float score[6][6];
    attn_tensor scores = none, weights = none, sums = none, context = none;

    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            score[i][j] = dot(words[i], words[j]);
    show("Every word's score with every word, by two loops:",
         attn_borrow(score, ATTN_F32, attn_shape2(6, 6)));

    attn_matmul(ctx, &scores, inputs, attn_transpose(inputs, 0, 1));
    show("The same by one matrix product, inputs @ inputs.T:", scores);

    attn_softmax(ctx, &weights, scores);
    show("Softmax of each row:", weights);
    attn_sum(ctx, &sums, weights);
    show("The rows sum to", attn_reshape(sums, attn_shape1(6)));
    show_picture("As a picture: a row is a word that looks, a column one that is looked at.",
                 weights, spelling);

    attn_matmul(ctx, &context, weights, inputs);
    show("The context vectors of all words, weights @ inputs:", context);
}

/* softmax(q · kᵀ / sqrt(d) + mask) · v. Without the division by sqrt(d), long vectors would give large
 * scores, of which softmax sees the largest alone; its gradient is then nearly 0, and a model that is
 * trained would learn slowly. Give `none` for no mask. Works for any leading dimensions:
 * [T, d], [batch, T, d] or [batch, head, T, d]. */
static attn_tensor attend(attn_ctx *ctx, attn_tensor q, attn_tensor k, attn_tensor v,
                          attn_tensor mask)
{
    attn_tensor scores = none, out = none;
    if (k.ndim == 0) /* something failed before; finish will say what */
        return none;
    attn_matmul(ctx, &scores, q, attn_transpose(k, -2, -1));
    attn_scale(ctx, &scores, scores, 1 / sqrtf((float)k.shape[k.ndim - 1]));
    if (mask.ndim > 0)
        attn_add(ctx, &scores, scores, mask);
    attn_softmax(ctx, &scores, scores);
    attn_matmul(ctx, &out, scores, v);
    attn_tensor_free(ctx, &scores);
    return out;
}

#endif

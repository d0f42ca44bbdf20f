/* Notebook 003: attention for one word, with loops; then for all words, with matrices; then with
 * queries, keys and values.
 *
 *     cc examples/from_scratch/003_scores.c -I. -O2 -lm -o 003 && ./003
 */
#include "notebook.h"

/* One row is one word's embedding. */
static float words[6][3] = {
    {0.43f, 0.15f, 0.89f}, /* Your    */
    {0.55f, 0.87f, 0.66f}, /* journey */
    {0.57f, 0.85f, 0.64f}, /* starts  */
    {0.22f, 0.58f, 0.33f}, /* with    */
    {0.77f, 0.25f, 0.10f}, /* one     */
    {0.05f, 0.80f, 0.55f}, /* step    */
};

static float dot(const float *a, const float *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void print_sum(attn_tensor x)
{
    float sum = 0;
    size_t i;
    for (i = 0; i < attn_count(x); i++)
        sum += attn_get(x, i, 0, 0, 0);
    printf("Sum: %.4f\n", sum);
}

/* softmax(q · kᵀ / sqrt(d)) · v, where q, k and v are x times a weight [d_in, d_out]. */
static void self_attention(attn_ctx *ctx, attn_tensor *context, attn_tensor x, attn_tensor w_query,
                           attn_tensor w_key, attn_tensor w_value)
{
    attn_tensor q = none, k = none, v = none, weights = none;
    attn_matmul(ctx, &q, x, w_query);
    attn_matmul(ctx, &k, x, w_key);
    attn_matmul(ctx, &v, x, w_value);
    attn_matmul(ctx, &weights, q, attn_transpose(k, 0, 1));
    attn_scale(ctx, &weights, weights, 1 / sqrtf((float)k.shape[1]));
    attn_softmax(ctx, &weights, weights);
    attn_matmul(ctx, context, weights, v);
}

/* How much should "journey" attend to each word? Plain C: nothing here needs a library. */
static void one_word(attn_ctx *ctx)
{
    const float *query = words[1];
    float score[6], weight[6], context[3] = {0}, sum = 0;
    const attn_tensor scores = attn_borrow(score, ATTN_F32, attn_shape1(6));
    const attn_tensor weights = attn_borrow(weight, ATTN_F32, attn_shape1(6));
    attn_tensor stable = none;
    int i, j;

    for (i = 0; i < 6; i++)
        score[i] = dot(words[i], query);
    show("The scores of \"journey\": its dot product with every word. Larger is more alike.",
         scores);

    for (i = 0; i < 6; i++)
        sum += score[i];
    for (i = 0; i < 6; i++)
        weight[i] = score[i] / sum;
    show("Weights should sum to 1. The simplest way is to divide by the sum:", weights);
    print_sum(weights);

    for (i = 0, sum = 0; i < 6; i++)
        sum += expf(score[i]);
    for (i = 0; i < 6; i++)
        weight[i] = expf(score[i]) / sum;
    show("Softmax is positive whatever the scores are: exp(score) over the sum of all exp(score).",
         weights);
    print_sum(weights);

    attn_softmax(ctx, &stable, scores);
    show("exp overflows for scores above 88. attn_softmax takes the largest score off first:",
         stable);
    print_sum(stable);

    for (i = 0; i < 6; i++)
        for (j = 0; j < 3; j++)
            context[j] += attn_get(stable, (size_t)i, 0, 0, 0) * words[i][j];
    show("The context vector: all words, mixed by these weights.",
         attn_borrow(context, ATTN_F32, attn_shape1(3)));
}

/* All words at once. */
static void all_words(attn_ctx *ctx, attn_tensor inputs)
{
    float score[6][6];
    attn_tensor scores = none, weights = none, sums = none, context = none;
    int i, j;

    for (i = 0; i < 6; i++)
        for (j = 0; j < 6; j++)
            score[i][j] = dot(words[i], words[j]);
    show("Every word's score with every word, by two loops:",
         attn_borrow(score, ATTN_F32, attn_shape2(6, 6)));

    attn_matmul(ctx, &scores, inputs, attn_transpose(inputs, 0, 1));
    show("The same by one matrix product, inputs @ inputs.T:", scores);

    attn_softmax(ctx, &weights, scores);
    show("Softmax of each row:", weights);
    attn_sum(ctx, &sums, weights);
    show("The rows sum to", attn_reshape(sums, attn_shape1(6)));

    attn_matmul(ctx, &context, weights, inputs);
    show("The context vectors of all words, weights @ inputs:", context);
}

int main(void)
{
    attn_ctx ctx = {0};
    attn_rng rng;
    const attn_tensor inputs = attn_borrow(words, ATTN_F32, attn_shape2(6, 3));
    attn_tensor w_query = none, w_key = none, w_value = none, layer = none, context = none;
    attn_tensor v_query = none, v_key = none, v_value = none, context_2 = none;
    attn_tensor q = none, k = none, v = none, fused = none;
    int i;

    printf("A sentence of six words, three numbers each.\n");
    one_word(&ctx);
    all_words(&ctx, inputs);

    /* The notebook showed the 8th layer that was drawn after seed 789: its author had run the cell
     * several times. */
    attn_rng_seed(&rng, 789);
    for (i = 0; i < 8; i++)
        attn_linear_init(&ctx, &layer, NULL, 3, 2, &rng);
    printf("\nnn.Linear(3, 2) maps 3 numbers to 2, but stores its weight the other way round:\n");
    show_shape("weight", layer);
    show("The weight of nn.Linear(3, 2):", layer);

    printf("\nNow each word gets a query, a key and a value, each by a matrix of its own.\n");
    attn_rng_seed(&rng, 123);
    attn_rand(&ctx, &w_query, attn_shape2(3, 2), &rng);
    attn_rand(&ctx, &w_key, attn_shape2(3, 2), &rng);
    attn_rand(&ctx, &w_value, attn_shape2(3, 2), &rng);
    self_attention(&ctx, &context, inputs, w_query, w_key, w_value);
    show("Version 1, matrices [3, 2] of torch.rand, seed 123:", context);

    attn_rng_seed(&rng, 789);
    attn_linear_init(&ctx, &v_query, NULL, 3, 2, &rng);
    attn_linear_init(&ctx, &v_key, NULL, 3, 2, &rng);
    attn_linear_init(&ctx, &v_value, NULL, 3, 2, &rng);
    self_attention(&ctx, &context_2, inputs, attn_transpose(v_query, 0, 1),
                   attn_transpose(v_key, 0, 1), attn_transpose(v_value, 0, 1));
    show("Version 2, nn.Linear without bias, seed 789, so the stored weights are transposed:",
         context_2);

    /* And the one call that does what self_attention does after its projections. */
    attn_matmul(&ctx, &q, inputs, w_query);
    attn_matmul(&ctx, &k, inputs, w_key);
    attn_matmul(&ctx, &v, inputs, w_value);
    attn_attention(&ctx, &fused, q, k, v, NULL);
    printf("\nattn_attention's version 1 differs by at most %g.\n", difference(fused, context));
    return finish(&ctx);
}

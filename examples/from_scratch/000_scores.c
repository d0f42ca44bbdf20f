/* Notebook 000: attention for one word, with loops; then for all words, with matrices; then with
 * queries, keys and values.
 *
 *     cc examples/from_scratch/000_scores.c -I. -O2 -lm -o 000 && ./000
 *
 * The first two are in words.h, because notebook 003 begins with them as well: read that first.
 *
 * A word should be able to ask for something else than itself. So each gets three vectors, by matrices
 * that a model learns: a query (what am I looking for?), a key (what do I contain?) and a value (what
 * do I pass on?). Both sides come from one sequence, hence "self"; in a translation, queries would come
 * from one sequence, and keys and values from the other. In NumPy:
 * examples/python/notebooks/scores.ipynb.
 *
 * Exercise: which words look at themselves most, in the picture of all_words? Now put
 * attn_scale(ctx, &scores, scores, 100) before the softmax of all_words, in words.h. How many cells of
 * a row will keep 1% or more, and will any word look at another one most? The answer is at the end.
 *
 * In the notebook                    in attn.h                              in the engine
 *   torch.dot, inputs @ inputs.T     attn_matmul (>>ops)                    attn__head_scores (>>matmul)
 *   softmax_naive, torch.softmax     attn_exp, attn_softmax (>>ops)         attn__attend_block (>>steps)
 *   context vectors                  attn_matmul (>>ops)                    attn__head_weigh (>>matmul)
 *   TinySelfAttentionQKV, ...Linear  attn_attention (>>ops)                 attn__attend (>>steps)
 *   nn.Linear                        torch_linear (torch.h), attn_linear (>>ops)  attn__project (>>steps)
 */
#include "torch.h"
#include "words.h"

/* The weights are [d_in, d_out]; attend is softmax(q · kᵀ / sqrt(d)) · v. */
static attn_tensor self_attention(attn_ctx *ctx, attn_tensor x, attn_tensor w_query,
                                  attn_tensor w_key, attn_tensor w_value)
{
    attn_tensor q = none, k = none, v = none;
    attn_matmul(ctx, &q, x, w_query);
    attn_matmul(ctx, &k, x, w_key);
    attn_matmul(ctx, &v, x, w_value);
    return attend(ctx, q, k, v, none);
}

int main(void)
{
    attn_ctx ctx = {0};
    torch_rng rng;
    const attn_tensor inputs = attn_borrow(words, ATTN_F32, attn_shape2(6, 3));
    attn_tensor w_query = none, w_key = none, w_value = none, layer = none;
    attn_tensor v_query = none, v_key = none, v_value = none;
    attn_tensor q = none, k = none, v = none, fused = none;

    printf("A sentence of six words, three numbers each.\n");
    one_word(&ctx);
    all_words(&ctx, inputs);

    /* The notebook showed the 8th layer that was drawn after seed 789: its author had run the cell
     * several times. */
    torch_manual_seed(&rng, 789);
    for (int i = 0; i < 8; i++)
        torch_linear(&ctx, &layer, NULL, 3, 2, &rng);
    printf("\nLinear(in_features=%d, out_features=%d, bias=False) stores its weight the other way "
           "round:\n",
           (int)layer.shape[0], (int)layer.shape[1]);
    show_shape("weight", attn_transpose(layer, 0, 1));
    show("The weight of nn.Linear(3, 2):", attn_transpose(layer, 0, 1));

    printf("\nNow each word gets a query, a key and a value, each by a matrix of its own.\n");
    torch_manual_seed(&rng, 123);
    torch_rand(&ctx, &w_query, attn_shape2(3, 2), &rng);
    torch_rand(&ctx, &w_key, attn_shape2(3, 2), &rng);
    torch_rand(&ctx, &w_value, attn_shape2(3, 2), &rng);
    attn_tensor context = self_attention(&ctx, inputs, w_query, w_key, w_value);
    show("Version 1, matrices [3, 2] of torch.rand, seed 123:", context);

    torch_manual_seed(&rng, 789);
    torch_linear(&ctx, &v_query, NULL, 3, 2, &rng);
    torch_linear(&ctx, &v_key, NULL, 3, 2, &rng);
    torch_linear(&ctx, &v_value, NULL, 3, 2, &rng);
    show("Version 2, nn.Linear without bias, seed 789, so the stored weights are transposed:",
         self_attention(&ctx, inputs, v_query, v_key, v_value));

    /* And the one call that does what attend does. */
    attn_matmul(&ctx, &q, inputs, w_query);
    attn_matmul(&ctx, &k, inputs, w_key);
    attn_matmul(&ctx, &v, inputs, w_value);
    attn_attention(&ctx, &fused, q, k, v, NULL);
    printf("\nattn_attention's version 1 differs by at most %g.\n",
           checked_difference(fused, context));
    return finish(&ctx);
}

/* The exercise: "Your" and "journey" alone. The others look at "journey" or "starts" most, whose
 * embeddings are the longest: a dot product grows with both lengths. With scores 100 times as large each
 * row keeps two cells, because softmax sees differences, and those are 100 times as large, too. Every
 * word still looks at the same word most: a factor does not change which score is the largest. */

/* Notebook 002: self-attention with a single head, before anybody hides the future.
 *
 *     cc examples/from_scratch/002_self_attention.c -I. -O2 -lm -o 002 && ./002
 *
 * Every position asks a question (its query), every position offers an answer to some question
 * (its key), and what is moved is a third thing (its value):
 *
 *     pattern = softmax(q · kᵀ)        out = pattern · v
 *
 * A toy for looking inside. Everybody sees everybody, for nothing is generated here. One head needs no
 * matrix behind it; several would, to bring their results back to the width of the model. In NumPy:
 * examples/python/notebooks/self_attention.ipynb.
 *
 * Exercise: in forward, multiply by 0 in place of 1 / sqrtf((float)a->n_dim). What will the second
 * pattern be, and what do its three outputs have in common? What will the last check say? The answer is
 * at the end of this file.
 *
 * In the notebook            in attn.h                                        in the engine
 *   SelfAttention.forward    attn_attention (>>ops); scale = 1 leaves it out  attn__attend (>>steps)
 *   the pattern              attn_attention_pattern (>>ops)                   attn__attend_block (>>steps)
 */
#include "notebook.h"
#include "torch.h"

/* Three nn.Linear(n_dim, n_dim), each with a bias. */
typedef struct self_attention {
    attn_tensor q_weight, q_bias, k_weight, k_bias, v_weight, v_bias;
    size_t n_dim;
    int scale;
} self_attention;

static self_attention make(attn_ctx *ctx, size_t n_dim, int scale, torch_rng *rng)
{
    self_attention a = {0};
    torch_linear(ctx, &a.q_weight, &a.q_bias, n_dim, n_dim, rng);
    torch_linear(ctx, &a.k_weight, &a.k_bias, n_dim, n_dim, rng);
    torch_linear(ctx, &a.v_weight, &a.v_bias, n_dim, n_dim, rng);
    a.n_dim = n_dim;
    a.scale = scale;
    return a;
}

/* x [batch, seq_len, n_dim] -> out of the same shape, pattern [batch, seq_len, seq_len] */
static void forward(attn_ctx *ctx, attn_tensor *out, attn_tensor *pattern, attn_tensor x,
                    const self_attention *a)
{
    attn_tensor q = none, k = none, v = none;
    attn_linear(ctx, &q, x, a->q_weight, a->q_bias);
    attn_linear(ctx, &k, x, a->k_weight, a->k_bias);
    attn_matmul(ctx, pattern, q, attn_transpose(k, -2, -1));

    /* Long vectors have large dot products, and of large numbers softmax sees only the largest. */
    if (a->scale)
        attn_scale(ctx, pattern, *pattern, 1 / sqrtf((float)a->n_dim));

    attn_softmax(ctx, pattern, *pattern);
    attn_linear(ctx, &v, x, a->v_weight, a->v_bias);
    attn_matmul(ctx, out, *pattern, v);
}

int main(void)
{
    attn_ctx ctx = {0};
    torch_rng rng;
    attn_tensor test = none, weight = none, bias = none, out = none, sums = none;

    /* The notebook set no seed; with this one you see what it showed, with other numbers. */
    torch_manual_seed(&rng, 0);

    printf("A batch of one sequence: three positions of three numbers each.\n");
    torch_rand(&ctx, &test, attn_shape3(1, 3, 3), &rng);
    show_shape("test", test);

    printf("\nnn.Linear(3, 3) holds a weight and a bias. It maps the last dimension.\n");
    torch_linear(&ctx, &weight, &bias, 3, 3, &rng);
    show("Its weight, which PyTorch keeps transposed:", attn_transpose(weight, 0, 1));
    show("Its bias:", bias);
    attn_linear(&ctx, &out, test, weight, bias);
    show_shape("out", out);

    printf("\ntranspose(-1, 0) swaps the last dimension with the batch, not with the sequence.\n");
    show_shape("test.transpose(-1, 0)", attn_transpose(test, -1, 0));
    printf("What attention wants is transpose(-2, -1):\n");
    show_shape("test.transpose(-2, -1)", attn_transpose(test, -2, -1));

    for (int scale = 0; scale <= 1; scale++) {
        const self_attention a = make(&ctx, 3, scale, &rng);
        attn_tensor mixed = none, pattern = none, ours = none, our_pattern = none;
        attn_attention_desc desc = {0};
        attn_tensor q = none, k = none, v = none;

        printf("\nSelf-attention, %s:\n", scale ? "scaled by 1/sqrt(3)" : "not scaled");
        forward(&ctx, &mixed, &pattern, test, &a);
        show_shape("output", mixed);
        show_shape("pattern", pattern);
        show(scale
                 ? "The scaled pattern: row i says how much of each position goes into position i."
                 : "The pattern: row i says how much of each position goes into position i.",
             pattern);
        attn_sum(&ctx, &sums, pattern);
        show(scale ? "Its rows sum to" : "The rows sum to", attn_reshape(sums, attn_shape1(3)));
        show_picture("As a picture:", attn_select(pattern, 0, 0), NULL);

        /* The library's own function for the same three lines. */
        attn_linear(&ctx, &q, test, a.q_weight, a.q_bias);
        attn_linear(&ctx, &k, test, a.k_weight, a.k_bias);
        attn_linear(&ctx, &v, test, a.v_weight, a.v_bias);
        desc.scale = scale ? 0 : 1; /* 0 is the default, 1/sqrt(d) */
        attn_attention(&ctx, &ours, q, k, v, &desc);
        attn_attention_pattern(&ctx, &our_pattern, q, k, &desc);
        printf("\nattn_attention's output differs by at most %g,\n"
               "attn_attention_pattern's pattern by at most %g.\n",
               checked_difference(mixed, ours), checked_difference(pattern, our_pattern));
    }
    return finish(&ctx);
}

/* The exercise: softmax of three equal scores is 1/3 each, so every output is the mean of the three
 * values. Nothing is left of who asked. The library scales as before, so its output differs: the checks
 * fail, and the exit code is 1. */

/* Notebook 001: attention is a weighted average of the past. Four ways to take one.
 *
 *     cc examples/from_scratch/001_averaging.c -I. -O2 -lm -o 001 && ./001
 *
 * All of them use one thread, as loops do; threads that wait for each other would be slow where other
 * programs run.
 *
 * A language model may not look ahead, and the simplest thing to do with the past is to average it.
 * An average treats all positions alike; attention gives each a weight that depends on the data. Attention
 * is then a way of passing messages along the arrows of a graph. Here each position hears from those
 * before it, and sequences of a batch hear nothing of each other. Weights know no distance: what a
 * model shall know of positions has to be added to the vectors. In NumPy:
 * examples/python/notebooks/averaging.ipynb.
 *
 * Exercise: in by_softmax, write torch_full(ctx, &weights, attn_shape2(TIME, TIME), 0) in place of the
 * causal mask. What will the 256 results of a sequence have in common? The answer is at the end.
 *
 * In the notebook            in attn.h                                     in the engine
 *   V1, loops                attn_mean (>>ops)                             attn__head_weigh (>>matmul)
 *   V2: tril, sum, matmul    torch_tril (torch.h), attn_sum, attn_div (>>ops)  attn__head_weigh (>>matmul)
 *   V3: masked_fill, softmax torch_causal_mask (torch.h), attn_softmax (>>ops)  attn__visible (>>matmul)
 *   V4, self_attn            attn_attention (>>ops), ATTN_MASK_CAUSAL      attn__attend (>>steps)
 *   why normalizing matters  attn_variance, attn_scale (>>ops)             attn__head_scores (>>matmul)
 */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#endif
#include "notebook.h"
#include "torch.h"
#include <time.h>

enum { BATCH = 32, TIME = 256, CHANNELS = 384, HEAD_SIZE = 16 };
static int n_runs = 5; /* of each method: ./001 100 */

static double now(void) /* in milliseconds */
{
    struct timespec t;
#ifdef _WIN32
    timespec_get(&t, TIME_UTC);
#else
    clock_gettime(CLOCK_MONOTONIC, &t);
#endif
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* 1. For every position, sum up what came before and divide. */
static void by_loops(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    const float *from = (const float *)x.data;
    if (out->ndim == 0 && attn_zeros(ctx, out, ATTN_F32, attn_shape3(BATCH, TIME, CHANNELS)))
        return;
    for (size_t b = 0; b < BATCH; b++)
        for (size_t t = 0; t < TIME; t++) {
            float *mean = (float *)out->data + (b * TIME + t) * CHANNELS;
            memset(mean, 0, CHANNELS * sizeof *mean);
            for (size_t s = 0; s <= t; s++)
                for (size_t c = 0; c < CHANNELS; c++)
                    mean[c] += from[(b * TIME + s) * CHANNELS + c];
            for (size_t c = 0; c < CHANNELS; c++)
                mean[c] /= (float)(t + 1);
        }
}

/* 2. The same as a matrix product: row t of the matrix holds t + 1 times 1/(t + 1), then zeros. */
static void by_matmul(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    attn_tensor weights = none, sums = none;
    torch_full(ctx, &weights, attn_shape2(TIME, TIME), 1);
    torch_tril(ctx, &weights, weights);
    attn_sum(ctx, &sums, weights);
    attn_div(ctx, &weights, weights, sums);
    attn_matmul(ctx, out, weights, x);
    attn_tensor_free(ctx, &weights);
    attn_tensor_free(ctx, &sums);
}

/* 3. The same matrix as a softmax: scores of 0 for the past, -inf for the future. Now the zeros may
 * be replaced by something that depends on the data. */
static void by_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    attn_tensor weights = none;
    torch_causal_mask(ctx, &weights, TIME, TIME);
    attn_softmax(ctx, &weights, weights);
    attn_matmul(ctx, out, weights, x);
    attn_tensor_free(ctx, &weights);
}

/* 4. Self-attention. With zeros, all of the past counts the same; but some of it matters more to a
 * token than the rest. So each token makes a query and a key, and their dot product is the score. What
 * is averaged are values: what a token passes on, which need not be all that it is. */
typedef struct head {
    attn_tensor key, query, value; /* nn.Linear(CHANNELS, HEAD_SIZE, bias=False) */
} head;

static void draw(attn_ctx *ctx, head *h, size_t channels, torch_rng *rng)
{
    torch_linear(ctx, &h->key, NULL, channels, HEAD_SIZE, rng);
    torch_linear(ctx, &h->query, NULL, channels, HEAD_SIZE, rng);
    torch_linear(ctx, &h->value, NULL, channels, HEAD_SIZE, rng);
}

static head the_head;
static void by_attention(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    attn_tensor k = none, q = none, v = none, weights = none, mask = none;
    attn_matmul(ctx, &k, x, the_head.key);
    attn_matmul(ctx, &q, x, the_head.query);
    attn_matmul(ctx, &v, x, the_head.value);
    attn_matmul(ctx, &weights, q, attn_transpose(k, -2, -1));
    torch_causal_mask(ctx, &mask, TIME, TIME);
    attn_add(ctx, &weights, weights, mask);
    attn_softmax(ctx, &weights, weights);
    attn_matmul(ctx, out, weights, v);
    attn_tensor_free(ctx, &k);
    attn_tensor_free(ctx, &q);
    attn_tensor_free(ctx, &v);
    attn_tensor_free(ctx, &weights);
    attn_tensor_free(ctx, &mask);
}

/* The shortest of several runs is the one that other programs disturbed least. How far the others are
 * from it says how much of a difference between two methods is noise. */
typedef struct duration {
    double shortest, longest; /* ms a run */
} duration;

typedef void (*method)(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
static attn_tensor timed(attn_ctx *ctx, const char *what, method run, attn_tensor x, duration *took)
{
    attn_tensor out = none;
    run(ctx, &out, x); /* once to warm up: it makes `out` */
    for (int i = 0; i < n_runs; i++) {
        const double start = now();
        run(ctx, &out, x);
        double time = now() - start;
        took->shortest = i == 0 || time < took->shortest ? time : took->shortest;
        took->longest = i == 0 || time > took->longest ? time : took->longest;
    }
    show(what, out);
    printf("took %.0f to %.0f ms in %d runs\n", took->shortest, took->longest, n_runs);
    return out;
}

/* An order of two methods is one only if each run of the one was shorter than each of the other. */
static void compare(const duration took[4])
{
    static const char *const name[4] = {"loops", "matrix", "softmax", "attention"};
    printf("\nSide by side, ms a run:");
    for (int i = 0; i < 4; i++)
        printf("%s %s %.0f to %.0f", i ? "," : "", name[i], took[i].shortest, took[i].longest);
    printf(".\n");
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (took[i].longest * 2 < took[j].shortest)
                printf("The %s took less than half as long as the %s.\n", name[i], name[j]);
    printf("Smaller differences change from run to run: they are no order.\n");
}

/* The first rows and columns of the matrix of 2, which is that of 3 as well */
static void show_triangle(attn_ctx *ctx)
{
    attn_tensor weights = none;
    torch_causal_mask(ctx, &weights, 12, 12);
    attn_softmax(ctx, &weights, weights);
    show_picture(
        "The beginning of that matrix: a row spreads evenly over the past, thinner and thinner.",
        weights, NULL);
    attn_tensor_free(ctx, &weights);
}

/* The sum of a dense tensor. A number that is not shown and is wrong would change it. */
static double total(attn_tensor x)
{
    double sum = 0;
    for (size_t i = 0; i < attn_count(x); i++)
        sum += ((const float *)x.data)[i];
    return sum;
}

/* Eight numbers of a [32, 256, 384] tensor */
static void show_eight(const char *what, attn_tensor x, size_t batch, size_t time, size_t first)
{
    show(what, attn_slice(attn_select(attn_select(x, 0, batch), 0, time), 0, first, 8));
}

static void show_variance(attn_ctx *ctx, const char *what, attn_tensor x)
{
    attn_tensor variance = none;
    attn_variance(ctx, &variance, attn_reshape(x, attn_shape1(attn_count(x))), 1);
    printf("%-28s %.4f\n", what, attn_get1(variance, 0));
}

/* Dot products of n numbers of variance 1 have variance n. Softmax then sees one of them only. */
static void why_scale(attn_ctx *ctx, int batch, int time, torch_rng *rng, int print)
{
    const attn_shape shape = attn_shape3((size_t)batch, (size_t)time, HEAD_SIZE);
    attn_tensor k = none, q = none, scores = none, k2 = none, q2 = none, scaled = none;
    torch_randn(ctx, &k, shape, rng);
    torch_randn(ctx, &q, shape, rng);
    attn_matmul(ctx, &scores, q, attn_transpose(k, -2, -1));
    torch_randn(ctx, &k2, shape, rng);
    torch_randn(ctx, &q2, shape, rng);
    attn_matmul(ctx, &scaled, q2, attn_transpose(k2, -2, -1));
    attn_scale(ctx, &scaled, scaled, 1 / sqrtf(HEAD_SIZE));
    if (print) {
        show_variance(ctx, "of k:", k);
        show_variance(ctx, "of k2:", k2);
        show_variance(ctx, "of q:", q);
        show_variance(ctx, "of q2:", q2);
    }
    show_variance(ctx, print ? "of their dot products:" : "of more dot products:", scores);
    show_variance(ctx, print ? "of the scaled ones:" : "of more scaled ones:", scaled);
    attn_softmax(ctx, &scores, scores);
    attn_softmax(ctx, &scaled, scaled);
    if (print) {
        show("Softmax of the unscaled scores is almost one-hot:",
             attn_select(attn_select(scores, 0, 0), 0, 0));
        show("Softmax of the scaled scores is spread:",
             attn_select(attn_select(scaled, 0, 0), 0, 0));
    }
}

int main(int argc, char **argv)
{
    attn_ctx ctx = {0};
    torch_rng rng;
    attn_tensor x = none, toy = none;
    head toy_head = {none, none, none};
    duration took[4] = {{0}};

    if (argc > 1 && strtol(argv[1], NULL, 10) > 0)
        n_runs = (int)strtol(argv[1], NULL, 10);
    ctx.n_threads = 1;
    printf("A batch of 32 sequences, 256 positions of 384 numbers each, seed 74.\n");
    torch_manual_seed(&rng, 74);
    torch_randn(&ctx, &x, attn_shape3(BATCH, TIME, CHANNELS), &rng);
    show_shape("x", x);
    show_eight("It begins with", x, 0, 0, 0);
    show_eight("and ends with", x, BATCH - 1, TIME - 1, CHANNELS - 8);
    printf("x.sum() of all its numbers, to compare with PyTorch: %.2f\n", total(x));

    attn_tensor loops = timed(&ctx, "1. The average of the past, by loops:", by_loops, x, &took[0]);
    attn_tensor product = timed(&ctx, "2. By a triangular matrix:", by_matmul, x, &took[1]);
    show_triangle(&ctx);
    attn_tensor softmax = timed(&ctx, "3. By a softmax of masked zeros:", by_softmax, x, &took[2]);
    printf("\nThe matrix differs from the loops by at most %.1g, the softmax by at most %.1g.\n",
           checked_difference(loops, product), checked_difference(loops, softmax));
    show_eight("At the last position, after 256 numbers, little is left. The first eight averages:",
               loops, 0, TIME - 1, 0);
    show_eight("and the last eight:", loops, 0, TIME - 1, CHANNELS - 8);
    printf("The sum() of all averages, to compare with PyTorch: %.2f\n", total(loops));

    /* The notebook drew new weights in every run, and printed what run 151 gave. */
    for (int run = 0; run < 151; run++)
        draw(&ctx, &the_head, CHANNELS, &rng);
    timed(&ctx, "4. By self-attention, one head of size 16, not scaled:", by_attention, x,
          &took[3]);
    compare(took);

    /* An earlier session of the notebook, with a batch of [4, 8, 2] and one head on it, left the
     * generator where its last cell found it. */
    printf("\nWhy scores are scaled. The variance\n");
    torch_manual_seed(&rng, 74);
    torch_randn(&ctx, &toy, attn_shape3(4, 8, 2), &rng);
    draw(&ctx, &toy_head, 2, &rng);
    why_scale(&ctx, 4, 8, &rng, 1);
    printf("\nIn so small a batch these are near 16 and near 1. In one of 32 x 256, nearer:\n");
    torch_manual_seed(&rng, 0);
    why_scale(&ctx, BATCH, TIME, &rng, 0);
    return finish(&ctx);
}

/* The exercise: all 256 are the same, the average of the whole sequence, the future included. So the
 * program says that the softmax differs from the loops by 4; the last position alone is right. The check
 * of that difference fails, and the exit code is 1. */

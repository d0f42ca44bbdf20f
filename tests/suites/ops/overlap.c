/* Outputs that overlap inputs: in every operation, whatever views of the same memory they are, the
 * result is the one that a new tensor gets. */
#include "tests/support/models.h"

static attn_model *odd; /* C = 48, V = 301 */

static int set_up(void)
{
    odd = golden("odd");
    return odd != NULL;
}

static void tear_down(void)
{
    attn_model_close(odd);
}

SUITE_WITH(set_up, tear_down);

enum { N = 20, WIDE = 48, INPUTS = 4, ROOM = 30000, MIDDLE = 12000 };

/* An operation on the tensors x. A shape that begins with 0 ends their list. */
typedef struct operation {
    const char *name;
    attn_status (*run)(attn_ctx *ctx, attn_tensor *out, attn_tensor *x);
    size_t shapes[INPUTS][3]; /* trailing zeros are no dimensions */
    int ids;                  /* the last input holds ids below N */
} operation;

#define OPERATION(name, call)                                                                      \
    static attn_status run_##name(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)                 \
    {                                                                                              \
        return call;                                                                               \
    }
OPERATION(copy, attn_copy(ctx, out, x[0]))
OPERATION(add, attn_add(ctx, out, x[0], x[1]))
OPERATION(sub, attn_sub(ctx, out, x[0], x[1]))
OPERATION(mul, attn_mul(ctx, out, x[0], x[1]))
OPERATION(div, attn_div(ctx, out, x[0], x[1]))
OPERATION(scale, attn_scale(ctx, out, x[0], 3))
OPERATION(exp, attn_exp(ctx, out, x[0]))
OPERATION(sum, attn_sum(ctx, out, x[0]))
OPERATION(mean, attn_mean(ctx, out, x[0]))
OPERATION(variance, attn_variance(ctx, out, x[0], 1))
OPERATION(softmax, attn_softmax(ctx, out, x[0]))
OPERATION(log_softmax, attn_log_softmax(ctx, out, x[0]))
OPERATION(activate, attn_apply_mlp_act(ctx, out, x[0], ATTN_ACT_RELU))
OPERATION(layernorm, attn_layernorm(ctx, out, x[0], x[1], x[2], 1e-5f))
OPERATION(matmul, attn_matmul(ctx, out, x[0], x[1]))
OPERATION(linear, attn_linear(ctx, out, x[0], x[1], x[2]))
static attn_status run_panels(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    attn_tensor panels = x[1];
    panels.dtype = ATTN_PANELS;
    return attn_linear(ctx, out, x[0], panels, x[2]);
}
OPERATION(unembed, attn_unembed(ctx, out, x[0], x[1]))
OPERATION(cross_entropy, attn_cross_entropy(ctx, out, x[0], x[1]))
OPERATION(embedding, attn_embedding(ctx, out, x[0], x[1]))
OPERATION(attention, attn_attention(ctx, out, x[0], x[1], x[2], NULL))
OPERATION(pattern, attn_attention_pattern(ctx, out, x[0], x[1], NULL))
OPERATION(logits, attn_model_logits(ctx, out, odd, x[0], no_tensor))
OPERATION(chosen_logits, attn_model_logits(ctx, out, odd, x[0], x[1]))

static attn_status run_directions(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    const attn_tensor ids = is_dense(x[0]) ? x[0] : laid_out(x[0], ATTN_I32, LAYOUT_DENSE);
    return attn_logit_directions(ctx, out, odd, (const int32_t *)ids.data, NULL, 3);
}

static attn_status run_masked(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_GIVEN, .mask = x[3]};
    return attn_attention(ctx, out, x[0], x[1], x[2], &desc);
}

/* Weights of which the first is w. */
static attn_block_weights weights_of(attn_tensor w)
{
    attn_block_weights all = {.n_head = 2};
    all.w_q = all.w_k = all.w_v = all.w_o = all.w_in = all.w_out = w;
    return all;
}

static attn_status run_multihead(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    attn_block_weights w = weights_of(x[2]);
    return attn_multihead(ctx, out, x[0], x[1], &w, NULL);
}

static attn_status run_multihead_pattern(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    attn_block_weights w = weights_of(x[2]);
    return attn_multihead_pattern(ctx, out, x[0], x[1], &w, NULL);
}

static attn_status run_mlp(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    attn_block_weights w = weights_of(x[1]);
    return attn_mlp(ctx, out, x[0], &w, ATTN_ACT_RELU);
}

static attn_status run_block(attn_ctx *ctx, attn_tensor *out, attn_tensor *x)
{
    attn_block_weights w = weights_of(x[1]);
    return attn_block(ctx, out, x[0], &w, 1e-5f, ATTN_ACT_RELU);
}

static const operation operations[] = {
    {"attn_copy", run_copy, {{N, N}}, 0},
    {"attn_add", run_add, {{N, N}, {N, N}}, 0},
    {"attn_add of a row", run_add, {{N, N}, {N}}, 0},
    {"attn_add of a column", run_add, {{N, 1}, {2, N, N}}, 0},
    {"attn_sub", run_sub, {{1, N}, {N, 1}}, 0},
    {"attn_mul", run_mul, {{2, N, N}, {N, N}}, 0},
    {"attn_div", run_div, {{N, N}, {N, N}}, 0},
    {"attn_scale", run_scale, {{N, N}}, 0},
    {"attn_exp", run_exp, {{N, N}}, 0},
    {"attn_sum", run_sum, {{N, N}}, 0},
    {"attn_mean", run_mean, {{2, N, N}}, 0},
    {"attn_variance", run_variance, {{N, N}}, 0},
    {"attn_softmax", run_softmax, {{N, N}}, 0},
    {"attn_log_softmax", run_log_softmax, {{N, N}}, 0},
    {"attn_apply_mlp_act", run_activate, {{N, N}}, 0},
    {"attn_layernorm", run_layernorm, {{N, N}, {N}, {N}}, 0},
    {"attn_matmul", run_matmul, {{N, N}, {N, N}}, 0},
    {"attn_matmul, many", run_matmul, {{2, N, N}, {2, N, N}}, 0},
    {"attn_matmul, one of them repeated", run_matmul, {{2, N, N}, {N, N}}, 0},
    {"attn_linear", run_linear, {{N, N}, {N, N}, {N}}, 0},
    {"attn_linear, panels", run_panels, {{N, N}, {2, N, 16}, {32}}, 0},
    {"attn_linear, a row", run_linear, {{N}, {N, N}, {N}}, 0},
    {"attn_unembed", run_unembed, {{N, N}, {N, N}}, 0},
    {"attn_cross_entropy", run_cross_entropy, {{N, N}, {N}}, 1},
    {"attn_embedding", run_embedding, {{N, N}, {N}}, 1},
    {"attn_attention", run_attention, {{N, N}, {N, N}, {N, N}}, 0},
    {"attn_attention, many", run_attention, {{2, N, N}, {N, N}, {2, N, N}}, 0},
    {"attn_attention, masked", run_masked, {{N, N}, {N, N}, {N, N}, {N, N}}, 0},
    {"attn_attention_pattern", run_pattern, {{N, N}, {N, N}}, 0},
    {"attn_multihead", run_multihead, {{N, N}, {N, N}, {N, N}}, 0},
    {"attn_multihead_pattern", run_multihead_pattern, {{N, N}, {N, N}, {N, N}}, 0},
    {"attn_mlp", run_mlp, {{N, N}, {N, N}}, 0},
    {"attn_block", run_block, {{N, N}, {N, N}}, 0},
    {"attn_model_logits", run_logits, {{N, WIDE}}, 0},
    {"attn_model_logits of tokens", run_chosen_logits, {{N, WIDE}, {N}}, 1},
    {"attn_logit_directions", run_directions, {{3}}, 1}};

/* Where an input lies: in memory of its own, or as some view of the memory around the output. */
enum place { APART, SAME, NEXT, BEFORE, NEXT_ROW, ROW_BEFORE, EVERY_2, TURNED, BACKWARD, HALFS };
enum { PLACES = HALFS + 1 };

static attn_tensor input_at(float *middle, const size_t *shape, int wanted, int is_ids)
{
    const int place =
        shape[2] == 16 && wanted >= EVERY_2 ? SAME : wanted; /* panels are dense f32 */
    const attn_dtype dtype = is_ids ? ATTN_I32 : place == HALFS ? ATTN_F16 : ATTN_F32;
    const ptrdiff_t steps[PLACES] = {0, 0, 1, -1, N, -N, 0, 0, 0, 0};
    size_t all[4] = {shape[0], shape[1], shape[2], 0};
    int ndim = 0;
    while (all[ndim])
        ndim++;
    attn_tensor x = new_tensor(dtype, ndim, all,
                               place == TURNED     ? LAYOUT_SWAPPED
                               : place == EVERY_2  ? LAYOUT_EVERY_2
                               : place == BACKWARD ? LAYOUT_BACKWARD
                                                   : LAYOUT_DENSE);
    if (place != APART)
        x.data = middle + steps[place];
    for (int i = 0; i < ndim && place == BACKWARD; i++)
        x.data = (float *)x.data - (ptrdiff_t)(x.shape[i] - 1) * x.stride[i];
    return x;
}

/* Runs an operation into `middle` with its inputs at these places, and into a new tensor with inputs
 * apart. The numbers around the output must stay. */
static void check_places(attn_ctx *ctx, const operation *op, const int *places, int out_layout)
{
    static float memory[ROOM], before[ROOM];
    attn_tensor x[INPUTS], apart[INPUTS], want = {0};
    size_t n = 0;
    for (size_t i = 0; i < ROOM; i++)
        memory[i] = 2 + random_float();
    for (; n < INPUTS && op->shapes[n][0]; n++) {
        const int is_ids = op->ids && (n + 1 == INPUTS || !op->shapes[n + 1][0]);
        x[n] = input_at(memory + MIDDLE, op->shapes[n], places[n], is_ids);
        for (size_t i = 0; i < count_of(x[n]) && (is_ids || places[n] == APART); i++)
            set_value(x[n], i, is_ids ? (float)(i * 7 % N) : random_float());
    }
    for (size_t i = 0; i < n; i++)
        apart[i] = laid_out(x[i], x[i].dtype, LAYOUT_DENSE);
    if (!OK(ctx, op->run(ctx, &want, apart)))
        return;
    attn_tensor out = new_tensor(want.dtype, want.ndim, want.shape, out_layout);
    out.data = memory + MIDDLE;
    memcpy(before, memory, sizeof memory);
    if (!OK(ctx, op->run(ctx, &out, x)))
        return;
    if (!same_bits(out, want, op->name))
        test_fail(__FILE__, __LINE__, "places %d %d %d, out %d", places[0], places[1], places[2],
                  out_layout);
    for (size_t i = 0; i < count_of(out); i++)
        memcpy((char *)before + ((char *)element(out, i) - (char *)memory), element(out, i),
               size_of(out.dtype));
    CHECKF(memcmp(before, memory, sizeof memory) == 0, "%s writes beside its output", op->name);
    attn_tensor_free(ctx, &want);
    pool_clear();
}

TEST(outputs_that_overlap_inputs)
{
    SCOPED_CTX ctx = alone();
    for (size_t o = 0; o < sizeof operations / sizeof operations[0]; o++)
        for (int layout = LAYOUT_DENSE; layout <= LAYOUT_SWAPPED; layout++)
            for (int place = 0; place < PLACES; place++) {
                int places[INPUTS] = {place, place, place, place};
                check_places(&ctx, &operations[o], places, layout);
                for (int i = 0; i < INPUTS && operations[o].shapes[i][0]; i++) {
                    memset(places, 0, sizeof places);
                    places[i] = place;
                    check_places(&ctx, &operations[o], places, layout);
                    places[(i + 1) % INPUTS] = SAME;
                    check_places(&ctx, &operations[o], places, layout);
                }
            }
}

/* Other types have no accelerated way: a copy converts in place, to halfs or whole numbers. */
TEST(copies_that_overlap)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_I32};
    SCOPED_CTX ctx = alone();
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int shift = -3; shift <= 3 && (to != 2 || from == 2); shift++) {
                union {
                    float floats[3 * N * N];
                    int32_t ids[3 * N * N];
                } memory;
                char *const middle = (char *)&memory + sizeof memory / 3;
                attn_tensor x, out, want = {0};
                for (size_t i = 0; i < 3 * N * N; i++)
                    memory.ids[i] = (int32_t)i * 7 - 2000;
                x = attn_borrow(middle + 4 * shift, types[from], attn_shape2(N, N));
                for (size_t i = 0; i < count_of(x) && from < 2; i++)
                    set_value(x, i, random_float());
                out = attn_borrow(middle, types[to], attn_shape2(N, N));
                want = new_tensor(types[to], 2, x.shape, LAYOUT_DENSE);
                OK(&ctx, attn_copy(&ctx, &want, x));
                OK(&ctx, attn_copy(&ctx, &out, shift % 2 ? x : attn_transpose(x, 0, 1)));
                same_bits(shift % 2 ? out : attn_transpose(out, 0, 1), want, "a copy");
            }
}

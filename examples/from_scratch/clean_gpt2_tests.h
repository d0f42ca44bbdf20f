/* The notebook's tests of its modules: does each run, what shape comes out of it, and are the
 * numbers those of a reference? */
#ifndef CLEAN_GPT2_TESTS_H
#define CLEAN_GPT2_TESTS_H

#include "clean_gpt2.h"
#include "reference.h"

static attn_tensor random_ids(attn_ctx *ctx, size_t batch, size_t time, torch_rng *rng)
{
    attn_tensor ids = none;
    if (attn_zeros(ctx, &ids, ATTN_I32, attn_shape2(batch, time)) == ATTN_OK)
        for (size_t i = 0; i < batch * time; i++)
            ((attn_token *)ids.data)[i] = (int32_t)(100 + attn_rng_u32(&rng->words) % 900);
    return ids;
}

/* ---- rand_float_test, rand_int_test: what shape comes out? ---- */

static void shape_test(const char *module, attn_tensor in, attn_tensor out)
{
    printf("\n%s\n", module);
    show_shape("Input shape", in);
    show_shape("Output shape", out);
}

static void shape_tests(attn_ctx *ctx, const gpt *m, torch_rng *rng)
{
    const attn_config *c = &m->c;
    const attn_tensor ids = random_ids(ctx, 2, 4, rng);
    attn_tensor x = none;
    torch_randn(ctx, &x, attn_shape3(2, 4, c->d_model), rng);
    shape_test("LayerNorm", x, layer_norm(ctx, x, m->ln_w, m->ln_b, c->ln_eps));
    shape_test("Embed", ids, embed(ctx, ids, m));
    shape_test("PosEmbed", ids, pos_embed(ctx, ids, m));
    shape_test("Attention", x, attention(ctx, x, &m->block[0], c->n_head));
    shape_test("MLP", x, mlp(ctx, x, &m->block[0]));
    shape_test("TransformerBlock", x, block(ctx, x, &m->block[0], c));
    shape_test("Unembed", x, unembed(ctx, x, m));
    shape_test("DemoTransformer", ids, transformer(ctx, ids, m));
}

/* ---- test_causal_mask: hidden is what is above the diagonal, and nothing else ---- */

static void test_causal_mask(attn_ctx *ctx, torch_rng *rng)
{
    attn_tensor scores = none, pattern = none;
    size_t wrong = 0;
    torch_randn(ctx, &scores, attn_shape4(1, 1, 35, 35), rng);
    attn_tensor masked = apply_causal_mask(ctx, scores);
    for (size_t i = 0; i < 35; i++)
        for (size_t j = 0; j < 35; j++) {
            const float want = j > i ? -INFINITY : attn_get4(scores, 0, 0, i, j);
            wrong += attn_get4(masked, 0, 0, i, j) != want;
        }
    if (!check(wrong == 0))
        printf("\n%d scores are masked wrongly.\n", (int)wrong);
    else
        printf("\nAll tests in `test_causal_mask` passed!\n");
    attn_softmax(ctx, &pattern, attn_slice(attn_slice(masked, 2, 0, 12), 3, 0, 12));
    show_picture("Softmax of random scores that are masked: nobody looks ahead.",
                 attn_select(attn_select(pattern, 0, 0), 0, 0), NULL);
}

/* ---- load_gpt2_test: the same weights and inputs as a reference; the same outputs? ---- */

enum { LAYER_NORM, OF_ZEROS, EMBED, POS_EMBED, ATTENTION, MLP, BLOCK, UNEMBED, WHOLE, N_TESTS };

typedef struct answers {
    attn_tensor in[N_TESTS], out[N_TESTS];
} answers;

/* The share of values that are close to the reference's. */
static void load_test(const char *module, attn_tensor in, attn_tensor out, attn_tensor want)
{
    const size_t n = attn_count(out);
    const attn_tensor a = attn_reshape(out, attn_shape1(n)), b = attn_reshape(want, attn_shape1(n));
    size_t close = 0;
    for (size_t i = 0; i < n; i++) {
        const float x = attn_get1(a, i), y = attn_get1(b, i);
        close += fabsf(x - y) <= 1e-4f + 1e-3f * fabsf(y);
    }
    shape_test(module, in, out);
    show_shape("Reference output shape", want);
    check(n > 0 && close == n);
    printf("%.2f%% of the values are correct\n", n ? 100.0 * (double)close / (double)n : 0.0);
}

static void load_tests(attn_ctx *ctx, const gpt *m, const answers *a)
{
    const attn_config *c = &m->c;
    const attn_tensor *in = a->in, *want = a->out;
    load_test("LayerNorm", in[LAYER_NORM],
              layer_norm(ctx, in[LAYER_NORM], m->ln_w, m->ln_b, c->ln_eps), want[LAYER_NORM]);
    load_test("LayerNorm of zeros", in[OF_ZEROS],
              layer_norm(ctx, in[OF_ZEROS], m->ln_w, m->ln_b, c->ln_eps), want[OF_ZEROS]);
    load_test("Embed", in[EMBED], embed(ctx, in[EMBED], m), want[EMBED]);
    load_test("PosEmbed", in[POS_EMBED], pos_embed(ctx, in[POS_EMBED], m), want[POS_EMBED]);
    load_test("Attention", in[ATTENTION], attention(ctx, in[ATTENTION], &m->block[0], c->n_head),
              want[ATTENTION]);
    load_test("MLP", in[MLP], mlp(ctx, in[MLP], &m->block[0]), want[MLP]);
    load_test("TransformerBlock", in[BLOCK], block(ctx, in[BLOCK], &m->block[0], c), want[BLOCK]);
    load_test("Unembed", in[UNEMBED], unembed(ctx, in[UNEMBED], m), want[UNEMBED]);
    load_test("DemoTransformer", in[WHOLE], transformer(ctx, in[WHOLE], m), want[WHOLE]);
}

/* What the library's own functions make of random input. They are other code than the modules, and
 * where the two would be the same, at the embeddings, rows are copied one by one. */
static answers by_the_library(attn_ctx *ctx, const gpt *m, torch_rng *rng)
{
    const attn_config *c = &m->c;
    const attn_tensor ids = random_ids(ctx, 1, 35, rng);
    const attn_attention_desc causal = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_tensor x = none, stream = none, last = none, row;
    answers a = {{{0}}, {{0}}};
    torch_randn(ctx, &x, attn_shape3(1, 35, c->d_model), rng);
    for (size_t i = 0; i < N_TESTS; i++)
        a.in[i] = i == EMBED || i == POS_EMBED || i == WHOLE ? ids : x;
    a.in[OF_ZEROS] = none;
    attn_scale(ctx, &a.in[OF_ZEROS], x, 0);

    attn_layernorm(ctx, &a.out[LAYER_NORM], x, m->ln_w, m->ln_b, c->ln_eps);
    attn_layernorm(ctx, &a.out[OF_ZEROS], a.in[OF_ZEROS], m->ln_w, m->ln_b, c->ln_eps);
    attn_zeros(ctx, &a.out[EMBED], ATTN_F32, attn_shape3(1, 35, c->d_model));
    for (size_t i = 0; i < 35; i++) {
        row = attn_select(attn_select(a.out[EMBED], 0, 0), 0, i);
        attn_copy(ctx, &row, attn_select(m->w_e, 0, (size_t)attn_get2(ids, 0, i)));
    }
    a.out[POS_EMBED] = attn_reshape(attn_slice(m->w_pos, 0, 0, 35), attn_shape3(1, 35, c->d_model));
    attn_multihead(ctx, &a.out[ATTENTION], x, x, m->block, &causal);
    attn_mlp(ctx, &a.out[MLP], x, m->block, ATTN_ACT_GELU_TANH);
    attn_block(ctx, &a.out[BLOCK], x, m->block, c->ln_eps, ATTN_ACT_GELU_TANH);
    attn_unembed(ctx, &a.out[UNEMBED], x, m->w_e);

    attn_add(ctx, &stream, a.out[EMBED], a.out[POS_EMBED]);
    for (size_t i = 0; i < c->n_layer; i++) {
        attn_tensor next = none;
        attn_block(ctx, &next, stream, &m->block[i], c->ln_eps, ATTN_ACT_GELU_TANH);
        stream = next;
    }
    attn_layernorm(ctx, &last, stream, m->ln_w, m->ln_b, c->ln_eps);
    attn_unembed(ctx, &a.out[WHOLE], last, m->w_e);
    return a;
}

/* What NumPy computed in double precision of a small model (tests/golden/make_golden.py). Its
 * activations have no batch dimension. */
static answers by_numpy(attn_ctx *ctx, const gpt *m, const char *path)
{
    static const char *const in_name[N_TESTS] = {"blocks.1.hook_resid_post",
                                                 "blocks.1.hook_resid_post",
                                                 "tokens",
                                                 "tokens",
                                                 "blocks.0.ln1.hook_normalized.post",
                                                 "blocks.0.ln2.hook_normalized.post",
                                                 "blocks.0.hook_resid_pre",
                                                 "ln_final.hook_normalized.post",
                                                 "tokens"};
    static const char *const out_name[N_TESTS] = {"ln_final.hook_normalized.post",
                                                  "ln_final.hook_normalized.post",
                                                  "hook_embed",
                                                  "hook_pos_embed",
                                                  "blocks.0.hook_attn_out",
                                                  "blocks.0.hook_mlp_out",
                                                  "blocks.0.hook_resid_post",
                                                  "logits",
                                                  "logits"};
    answers a = {{{0}}, {{0}}};
    for (int i = 0; i < N_TESTS; i++) {
        a.in[i] = reference(ctx, path, in_name[i]);
        a.out[i] = reference(ctx, path, out_name[i]);
        a.in[i] = a.in[i].ndim == 1
                      ? attn_reshape(a.in[i], attn_shape2(1, a.in[i].shape[0]))
                      : attn_reshape(a.in[i], attn_shape3(1, a.in[i].shape[0], a.in[i].shape[1]));
        a.out[i] = attn_reshape(a.out[i], attn_shape3(1, a.out[i].shape[0], a.out[i].shape[1]));
    }
    /* of zeros LayerNorm makes its bias */
    attn_scale(ctx, &a.in[OF_ZEROS], a.in[OF_ZEROS], 0);
    attn_scale(ctx, &a.out[OF_ZEROS], a.out[OF_ZEROS], 0);
    attn_add(ctx, &a.out[OF_ZEROS], a.out[OF_ZEROS], m->ln_b);
    return a;
}

#endif

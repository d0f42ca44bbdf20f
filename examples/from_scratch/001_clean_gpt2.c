/* Notebook 001: a clean GPT-2. Every module, written with tensor operations, checked against
 * reference activations; then the same weights in the library's engine.
 *
 *     make && cc examples/from_scratch/001_clean_gpt2.c -I. -O2 -lm -o 001 && ./001
 *
 * With real GPT-2 (make gpt2): ./001 build/gpt2.attn
 * The modules themselves are in clean_gpt2.h: read that first.
 */
#include "clean_gpt2.h"
#include "gpt2_shapes.h"
#include "reference.h"

/* ---- the notebook's two kinds of test ---- */

/* rand_float_test, rand_int_test: does it run, and what shape comes out? */
static void shape_test(const char *module, attn_tensor in, attn_tensor out)
{
    printf("\n%s\n", module);
    show_shape("Input shape", in);
    show_shape("Output shape", out);
}

/* load_gpt2_test: the share of values that are close to the reference's. */
static void load_test(const char *module, attn_tensor out, attn_tensor want)
{
    const size_t n = attn_count(out);
    size_t i, close = 0;
    attn_tensor a = attn_reshape(out, attn_shape1(n)), b = attn_reshape(want, attn_shape1(n));
    for (i = 0; i < n; i++) {
        const float x = attn_get(a, i, 0, 0, 0), y = attn_get(b, i, 0, 0, 0);
        close += fabsf(x - y) <= 1e-4f + 1e-3f * fabsf(y);
    }
    printf("%-10s %.2f%% of the values are correct\n", module,
           n ? 100.0 * (double)close / (double)n : 0.0);
}

static void shape_tests(attn_ctx *ctx, const attn_config *c)
{
    attn_rng rng;
    gpt m;
    attn_tensor x = none, ids = none;
    size_t i;
    attn_rng_seed(&rng, 0);
    m = untrained(ctx, c, &rng);
    attn_randn(ctx, &x, attn_shape3(2, 4, c->d_model), &rng);
    attn_zeros(ctx, &ids, ATTN_I32, attn_shape2(2, 4));
    for (i = 0; i < 8; i++)
        ((int32_t *)ids.data)[i] = (int32_t)(100 + attn_rng_u32(&rng) % 900);
    shape_test("LayerNorm", x, layer_norm(ctx, x, m.ln_w, m.ln_b, c->ln_eps));
    shape_test("Embed", ids, embed(ctx, ids, &m));
    shape_test("PosEmbed", ids, pos_embed(ctx, ids, &m));
    shape_test("Attention", x, attention(ctx, x, &m.block[0], c->n_head));
    shape_test("MLP", x, mlp(ctx, x, &m.block[0]));
    shape_test("TransformerBlock", x, block(ctx, x, &m.block[0], c));
    shape_test("Unembed", x, unembed(ctx, x, &m));
    shape_test("DemoTransformer", ids, transformer(ctx, ids, &m));
}

/* Reference activations of a small model with random weights, computed in double precision by
 * tests/golden/make_golden.py. */
static void load_tests(attn_ctx *ctx, const char *model_path, const char *path)
{
    attn_model *model = NULL;
    attn_tensor x, ids = reference(ctx, path, "tokens"), zeros = none, out = none;
    gpt m;
    if (ids.ndim == 0 || attn_model_open(ctx, &model, model_path, NULL) != ATTN_OK) {
        printf("(no %s or no %s here)\n", model_path, path);
        ctx->status = ATTN_OK;
        return;
    }
    m = load(ctx, model);
#define REFERENCE(name) reference(ctx, path, name)
#define BATCH(x)        attn_reshape(x, attn_shape3(1, (x).shape[0], (x).shape[1]))
    ids = attn_reshape(ids, attn_shape2(1, attn_count(ids)));
    x = BATCH(REFERENCE("blocks.1.hook_resid_post"));
    load_test("LayerNorm", layer_norm(ctx, x, m.ln_w, m.ln_b, m.c.ln_eps),
              REFERENCE("ln_final.hook_normalized.post"));
    attn_scale(ctx, &zeros, x, 0);
    attn_layernorm(ctx, &out, zeros, m.ln_w, m.ln_b, m.c.ln_eps);
    load_test("of zeros", layer_norm(ctx, zeros, m.ln_w, m.ln_b, m.c.ln_eps), out);
    load_test("Embed", embed(ctx, ids, &m), REFERENCE("hook_embed"));
    load_test("PosEmbed", pos_embed(ctx, ids, &m), REFERENCE("hook_pos_embed"));
    x = BATCH(REFERENCE("blocks.0.ln1.hook_normalized.post"));
    load_test("Attention", attention(ctx, x, &m.block[0], m.c.n_head),
              REFERENCE("blocks.0.hook_attn_out"));
    x = BATCH(REFERENCE("blocks.0.ln2.hook_normalized.post"));
    load_test("MLP", mlp(ctx, x, &m.block[0]), REFERENCE("blocks.0.hook_mlp_out"));
    x = BATCH(REFERENCE("blocks.0.hook_resid_pre"));
    load_test("Block", block(ctx, x, &m.block[0], &m.c), REFERENCE("blocks.0.hook_resid_post"));
    x = BATCH(REFERENCE("ln_final.hook_normalized.post"));
    load_test("Unembed", unembed(ctx, x, &m), REFERENCE("logits"));
    load_test("Whole", transformer(ctx, ids, &m), REFERENCE("logits"));
    attn_model_close(model);
}

/* ---- the text ---- */

static void print_tokens(const attn_tokenizer *t, const int32_t *ids, size_t n)
{
    size_t i, size;
    printf("[");
    for (i = 0; i < n; i++) {
        const char *bytes = attn_token_bytes(t, ids[i], &size);
        printf("%s'%.*s'", i ? ", " : "", (int)size, bytes);
    }
    printf("]\n");
}

/* How surprised is the model by each next token? Our modules and the engine should agree. */
static void loss(attn_ctx *ctx, const attn_model *model, const gpt *m, int32_t *ids, size_t n)
{
    const attn_tensor all = attn_borrow(ids, ATTN_I32, attn_shape2(1, n));
    attn_tensor logits, nll = none;
    attn_session *session = NULL;
    double sum = 0, probability = 0, engine = 0;
    float unused[256];
    size_t i;
    logits = attn_select(transformer(ctx, all, m), 0, 0);
    attn_cross_entropy(ctx, &nll, attn_slice(logits, 0, 0, n - 1),
                       attn_borrow(ids + 1, ATTN_I32, attn_shape1(n - 1)));
    for (i = 0; i + 1 < n; i++) {
        sum += attn_get(nll, i, 0, 0, 0);
        probability += exp(-attn_get(nll, i, 0, 0, 0));
    }
    if (attn_session_new(ctx, &session, model, NULL) == ATTN_OK && n <= 256)
        attn_score(ctx, session, ids, n, unused, &engine);
    attn_session_free(session);
    printf("Avg cross entropy loss: %.4f\n", sum / (double)(n - 1));
    printf("Avg cross entropy loss by attn_score: %.4f\n", engine);
    printf("Avg cross entropy loss for uniform distribution: %f\n", log(m->c.n_vocab));
    printf("Avg cross entropy loss for uniform distribution over GPT-2's 50257: %f\n", log(50257));
    printf("Avg probability assigned to correct token: %f\n", probability / (double)(n - 1));
}

static int print(const char *text, size_t size, void *user)
{
    (void)user;
    fwrite(text, 1, size, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    static const char text[] = "I am an amazing autoregressive, decoder-only, GPT-2 style "
                               "transformer. One day I will exceed human level intelligence and "
                               "take over the world!";
    static const char prompt[] = "The Total Perspective Vortex derives its picture of the whole "
                                 "Universe on the principle of";
    /* what the notebook's model is; the loaded one may be smaller */
    static const attn_config gpt2 = {50257, 1024, 768, 12, 12, 3072, 64, 1e-5f, 1, -1, -1};
    const char *path = argc > 1 ? argv[1] : "build/tiny-stories.attn";
    const attn_config *c = &gpt2;
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_generate_desc greedy = {0};
    int32_t ids[256] = {0};
    size_t n_ids = 0, first;
    gpt m;

    if (attn_model_open(&ctx, &model, path, NULL) != ATTN_OK)
        return finish(&ctx);
    first = attn_model_config(model)->bos >= 0;
    ids[0] = attn_model_config(model)->bos; /* a text begins with <|endoftext|> */
    if (attn_encode(&ctx, attn_model_tokenizer(model), text, strlen(text), 0, ids + first, 255,
                    &n_ids) != ATTN_OK) {
        attn_model_close(model);
        return finish(&ctx);
    }
    n_ids += first;

    printf("All activation shapes of GPT-2 for the notebook's 35 tokens:\n\n");
    print_shapes(activations, N_ACTIVATIONS, c, 35);
    printf("\n%s gives %d of these %d in the shapes of its own configuration.\n", path,
           count_as_listed(&ctx, model, ids, n_ids), N_ACTIVATIONS);
    printf("\nAll parameter shapes of GPT-2 (blocks 1 to 11 are like block 0):\n\n");
    print_shapes(parameters, N_PARAMETERS, c, 35);

    printf("\nThe configuration:\n\n");
    printf("d_head=%u d_mlp=%u d_model=%u d_vocab=%u layer_norm_eps=%g\n", c->d_head, c->d_mlp,
           c->d_model, c->n_vocab, (double)c->ln_eps);
    printf("n_ctx=%u n_heads=%u n_layers=%u attn_scale=%.1f\n", c->n_ctx, c->n_head, c->n_layer,
           sqrt(c->d_head));
    printf("n_params=%u (matrices of the blocks)\n",
           c->n_layer * (4 * c->d_model * c->d_model + 2 * c->d_model * c->d_mlp));

    printf("\nEach module with random weights and random input:\n");
    shape_tests(&ctx, c);
    printf("\nEach module with the weights and inputs of a reference:\n\n");
    load_tests(&ctx, argc > 2 ? argv[2] : "build/from_scratch/plain.attn",
               argc > 3 ? argv[3] : "tests/golden/plain/reference.safetensors");

    printf("\nTest set of tokens, %d of them:\n", (int)n_ids);
    print_tokens(attn_model_tokenizer(model), ids, n_ids);
    m = load(&ctx, model);
    loss(&ctx, model, &m, ids, n_ids);

    printf("\nGreedy continuation of 100 tokens, with the engine's key/value cache:\n\n%s", prompt);
    greedy.prepend_bos = (int)first;
    greedy.ignore_eos = 1;
    if (attn_session_new(&ctx, &session, model, NULL) == ATTN_OK)
        attn_generate(&ctx, session, prompt, &greedy, print, NULL);
    printf("\n");
    attn_session_free(session);
    attn_model_close(model);
    return finish(&ctx);
}

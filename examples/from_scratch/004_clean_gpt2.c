/* Notebook 004: a clean GPT-2. Every module, written with tensor operations, checked against
 * reference activations; then the same weights in the library's engine.
 *
 *     make notebooks && cc examples/from_scratch/004_clean_gpt2.c -I. -O2 -lm -o 004 && ./004
 *
 * With real GPT-2 (make gpt2): ./004 build/gpt2.attn
 * The modules themselves are in clean_gpt2.h: read that first. In NumPy, where you write some yourself:
 * examples/python/notebooks/clean_gpt2.ipynb.
 *
 * It lists the shapes of all activations and parameters, runs every module on random input, and compares
 * each with NumPy's results in double precision. Then it asks how well the model knows a text: the loss
 * is the mean of -log p(next token), log(V) for a model that knows nothing. At the end it writes on,
 * always taking the likeliest token.
 *
 * Exercise: in mlp of clean_gpt2.h, write ATTN_ACT_RELU. Which modules will no longer be 100% correct?
 * The answer is at the end of this file.
 *
 * In the notebook            in attn.h                                              in the engine
 *   run_with_cache           attn_hook (>>watch)                                    attn__visit (>>watch)
 *   Config, parameters       attn_model_config, attn_model_tensor (>>format)        attn__bind (>>format)
 *   LayerNorm                attn_layernorm (>>ops)                                 attn__normalize (>>steps)
 *   Embed, PosEmbed          attn_embedding (>>ops), attn_slice (>>tensors)         attn__embed (>>steps)
 *   Attention                attn_multihead (>>ops)                                 attn__attend (>>steps)
 *   MLP, gelu_new            attn_mlp, attn_apply_mlp_act (>>ops)                        attn__apply_act_fn (>>steps)
 *   TransformerBlock         attn_block (>>ops)                                     attn__add_to_resid (>>steps)
 *   Unembed                  attn_unembed (>>ops)                                   attn__make_logits (>>steps)
 *   DemoTransformer          attn_feed (>>session)                                  attn__forward (>>gpt2)
 *   to_str_tokens            attn_encode, attn_token_bytes (>>tokenizer)
 *   cross-entropy            attn_cross_entropy (>>ops)                             attn_score (>>score)
 *   the greedy loop          attn_generate (>>generate)                             attn__store_kv (>>steps)
 */
#include "clean_gpt2.h"
#include "clean_gpt2_tests.h"
#include "gpt2_shapes.h"

/* The standard deviation of weights before training, Config.init_range in the notebook */
static const float init_range = 0.02f;

static attn_tensor normal(attn_ctx *ctx, torch_rng *rng, size_t n, size_t m)
{
    attn_tensor w = none;
    torch_randn(ctx, &w, attn_shape2(n, m), rng);
    attn_scale(ctx, &w, w, init_range);
    return w;
}

/* As before training, for looking at shapes: one set of weights serves all layers, and the large
 * embeddings are uniform numbers, which are drawn sooner than normal ones. The unembedding is the
 * embedding's transpose, as it is in GPT-2. */
static gpt untrained(attn_ctx *ctx, const attn_config *c, torch_rng *rng)
{
    const size_t n = c->d_model;
    gpt m = {0};
    attn_block_weights *b = &m.block[0];
    m.c = *c;
    b->n_head = c->n_head;
    torch_rand(ctx, &m.w_e, attn_shape2(c->n_vocab, n), rng);
    attn_scale(ctx, &m.w_e, m.w_e, init_range);
    torch_rand(ctx, &m.w_pos, attn_shape2(c->n_ctx, n), rng);
    attn_scale(ctx, &m.w_pos, m.w_pos, init_range);
    m.w_u = attn_transpose(m.w_e, 0, 1);
    torch_full(ctx, &m.ln_w, attn_shape1(n), 1);
    attn_zeros(ctx, &m.ln_b, ATTN_F32, attn_shape1(n));
    attn_zeros(ctx, &b->b_in, ATTN_F32, attn_shape1(c->d_mlp));
    b->ln1_w = b->ln2_w = m.ln_w;
    b->ln1_b = b->ln2_b = b->b_q = b->b_k = b->b_v = b->b_o = b->b_out = m.ln_b;
    b->w_q = normal(ctx, rng, n, n);
    b->w_k = normal(ctx, rng, n, n);
    b->w_v = normal(ctx, rng, n, n);
    b->w_o = normal(ctx, rng, n, n);
    b->w_in = normal(ctx, rng, n, c->d_mlp);
    b->w_out = normal(ctx, rng, c->d_mlp, n);
    for (size_t i = 1; i < c->n_layer; i++)
        m.block[i] = m.block[0];
    return m;
}

/* The notebook's Config, and those numbers of TransformerLens's own that mean something here */
static void print_config(const attn_config *c)
{
    printf("Config(d_head=%zu,\n       d_mlp=%zu,\n       d_model=%zu,\n       d_vocab=%zu,\n",
           c->d_head, c->d_mlp, c->d_model, c->n_vocab);
    printf("       init_range=%g,\n       layer_norm_eps=%g,\n       n_ctx=%zu,\n",
           (double)init_range, (double)c->ln_eps, c->n_ctx);
    printf("       n_heads=%zu,\n       n_layers=%zu)\n\n", c->n_head, c->n_layer);
    printf("attn_scale = sqrt(d_head) = %.1f\n", sqrt((double)c->d_head));
    show_number("initializer_range = 0.8 / sqrt(d_model) =", 0.8 / sqrt((double)c->d_model));
    printf("n_params = %zu, in the matrices of the blocks\n",
           c->n_layer * (4 * c->d_model * c->d_model + 2 * c->d_model * c->d_mlp));
}

static void print_all_shapes(const attn_config *c)
{
    printf("All activation shapes of GPT-2 for the notebook's 35 tokens:\n\n");
    print_shapes(activations, N_ACTIVATIONS, 0, c, 35);
    printf("\nAll parameter shapes of GPT-2:\n\n");
    print_shapes(parameters, N_EMBEDDINGS, 0, c, 0);
    print_shapes(parameters + N_EMBEDDINGS, N_IN_BLOCK, 0, c, 0);
    print_shapes(parameters + N_EMBEDDINGS, N_IN_BLOCK, 1, c, 0);
    printf("... and so on to block %zu ...\n", c->n_layer - 1);
    print_shapes(parameters + N_EMBEDDINGS + N_IN_BLOCK, N_PARAMETERS - N_EMBEDDINGS - N_IN_BLOCK,
                 0, c, 0);
}

/* model_path: the small model of which the file at `path` holds NumPy's activations */
static int tests_of_modules(const attn_config *c, const char *model_path, const char *path)
{
    attn_ctx ctx = {0}; /* of its own, to give back much memory at the end */
    attn_model *model = NULL;
    torch_rng rng;
    torch_manual_seed(&rng, 0);
    gpt m = untrained(&ctx, c, &rng);
    printf("\nEach module with random weights and random input:\n");
    shape_tests(&ctx, &m, &rng);
    test_causal_mask(&ctx, &rng);
    printf("\nEach module against the library's functions, in GPT-2's size:\n");
    answers a = by_the_library(&ctx, &m, &rng);
    load_tests(&ctx, &m, &a);
    printf("\nEach module against NumPy, with a small model's weights:\n");
    if (attn_model_open(&ctx, &model, model_path, NULL) == ATTN_OK) {
        m = load(&ctx, model);
        a = by_numpy(&ctx, &m, path);
        load_tests(&ctx, &m, &a);
    }
    attn_model_close(model);
    return finish(&ctx);
}

/* ---- the text ---- */

static void print_tokens(const attn_tokenizer *t, const attn_token *ids, size_t n)
{
    size_t size;
    printf("[");
    for (size_t i = 0; i < n; i++) {
        const char *bytes = attn_token_bytes(&size, t, ids[i]);
        printf("%s'%.*s'", i ? ", " : "", (int)size, bytes);
    }
    printf("]\n");
}

/* How surprised is the model by each next token? Our modules and the engine should agree. */
static void loss(attn_ctx *ctx, const attn_model *model, const gpt *m, attn_token *ids, size_t n)
{
    const attn_tensor all = attn_borrow(ids, ATTN_I32, attn_shape2(1, n));
    attn_tensor nll = none, log_probs = none, probs = none;
    attn_session *session = NULL;
    double sum = 0, log_sum = 0, probability = 0, engine = 0;
    attn_token_stats stats[256];
    attn_tensor logits = attn_select(transformer(ctx, all, m), 0, 0);
    logits = attn_slice(logits, 0, 0, n - 1);
    attn_cross_entropy(ctx, &nll, logits, attn_borrow(ids + 1, ATTN_I32, attn_shape1(n - 1)));
    attn_log_softmax(ctx, &log_probs, logits); /* the same from its parts: get_log_probs */
    attn_exp(ctx, &probs, log_probs);
    for (size_t i = 0; i + 1 < n; i++) {
        sum += attn_get1(nll, i);
        log_sum += attn_get2(log_probs, i, (size_t)ids[i + 1]);
        probability += attn_get2(probs, i, (size_t)ids[i + 1]);
    }
    if (attn_session_new(ctx, &session, model, NULL) == ATTN_OK && n <= 256)
        attn_score(ctx, stats, NULL, session, ids, n);
    if (session)
        engine = attn_mean_nll(stats, n - 1);
    attn_session_free(session);
    printf("Avg cross entropy loss: %.4f\n", sum / (double)(n - 1));
    printf("Avg cross entropy loss by log probabilities: %.4f\n", -log_sum / (double)(n - 1));
    printf("Avg cross entropy loss by attn_score: %.4f\n", engine);
    check(fabs(engine - sum / (double)(n - 1)) < 1e-3);
    printf("Avg cross entropy loss for uniform distribution: %f\n", log((double)m->c.n_vocab));
    printf("Avg cross entropy loss for uniform distribution over GPT-2's 50257: %f\n", log(50257));
    printf("Avg probability assigned to correct token: %f\n", probability / (double)(n - 1));
    if (m->c.n_vocab != 50257)
        printf(
            "\nThe notebook printed 35 tokens and a loss of 4.5647, which are those of GPT-2 (make "
            "gpt2).\n"
            "This model has %zu tokens in place of GPT-2's 50257, so words of this text come in\n"
            "pieces. It was trained on stories for children, so the text surprises it: by %.0f "
            "nats as a\n"
            "whole, and GPT-2 by 34 * 4.5647 = 155.\n",
            m->c.n_vocab, sum);
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
    static const attn_config gpt2 = {.n_vocab = 50257,
                                     .n_ctx = 1024,
                                     .d_model = 768,
                                     .n_head = 12,
                                     .n_layer = 12,
                                     .d_mlp = 3072,
                                     .d_head = 64,
                                     .ln_eps = 1e-5f,
                                     .tied = 1,
                                     .bos = -1,
                                     .eos = -1};
    const char *path = argc > 1 ? argv[1] : BUILD "/tiny-stories.attn";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_generate_desc greedy = {0};
    attn_token ids[256] = {0};
    size_t n_ids = 255;
    int shaped[2];

    if (attn_model_open(&ctx, &model, path, NULL) != ATTN_OK)
        return finish(&ctx);
    size_t first = attn_model_config(model)->bos >= 0;
    ids[0] = attn_model_config(model)->bos; /* a text begins with <|endoftext|> */
    if (attn_encode(&ctx, ids + first, &n_ids, attn_model_tokenizer(model), text, strlen(text)) !=
        ATTN_OK) {
        attn_model_close(model);
        return finish(&ctx);
    }
    n_ids += first;

    print_all_shapes(&gpt2);
    shaped[0] = count_activations(&ctx, model, ids, n_ids);
    shaped[1] = count_parameters(&ctx, model);
    check(shaped[0] == N_ACTIVATIONS && shaped[1] == (int)model_n_tensors(model));
    printf("\n%s gives %d of these %d activations in the shapes of its own\n"
           "configuration, and so are %d of its %d parameters.\n",
           path, shaped[0], N_ACTIVATIONS, shaped[1], (int)model_n_tensors(model));
    printf("\nThe configuration:\n\n");
    print_config(&gpt2);
    int failed = tests_of_modules(&gpt2, argc > 2 ? argv[2] : BUILD "/from_scratch/plain.attn",
                                  argc > 3 ? argv[3] : "tests/golden/plain/reference.safetensors");

    printf("\nTest set of tokens, %d of them:\n", (int)n_ids);
    print_tokens(attn_model_tokenizer(model), ids, n_ids);
    gpt m = load(&ctx, model);
    loss(&ctx, model, &m, ids, n_ids);

    greedy.prepend_bos = (int)first;
    greedy.ignore_eos = 1;
    greedy.text_fn = print;
    printf("\nGreedy continuation of 100 tokens, with the engine's key/value cache:\n\n%s", prompt);
    if (attn_session_new(&ctx, &session, model, NULL) == ATTN_OK)
        attn_generate(&ctx, NULL, session, prompt, &greedy);
    printf("\n");
    attn_session_free(session);
    attn_model_close(model);
    return finish(&ctx) || failed;
}

/* Answer to the exercise: the comparisons of MLP, TransformerBlock and DemoTransformer fail, because a
 * block and the whole model contain an MLP. Those of the other modules do not change. The loss differs
 * from attn_score's, too, and the exit code is 1. */

/* Models made of models: weights under TransformerLens's names, rewritten as TransformerLens rewrites
 * them, and saved. The expected numbers are numpy's in float64 (make_lens_fixtures.py). */
#include "tests/lens_fixtures.h"

SUITE_WITH(open_plain_and_odd, close_plain_and_odd);

/* ---- weights under TransformerLens's names ---- */

static void check_heads(attn_ctx *ctx, const attn_model *model, const char *block)
{
    static const char letters[] = "QKV";
    const attn_config *c = attn_model_config(model);
    attn_tensor whole = {0}, biases = {0};
    char name[64];
    size_t part, h, k, j, wrong = 0;
    snprintf(name, sizeof name, "%s.attn.W_QKV", block);
    OK(ctx, attn_model_tensor(ctx, &whole, model, name));
    snprintf(name, sizeof name, "%s.attn.b_QKV", block);
    OK(ctx, attn_model_tensor(ctx, &biases, model, name));
    for (part = 0; part < 3; part++) {
        attn_tensor w = {0}, b = {0};
        snprintf(name, sizeof name, "%s.attn.W_%c", block, letters[part]);
        OK(ctx, attn_model_tensor(ctx, &w, model, name));
        snprintf(name, sizeof name, "%s.attn.b_%c", block, letters[part]);
        OK(ctx, attn_model_tensor(ctx, &b, model, name));
        CHECK(w.ndim == 3 && w.shape[0] == c->n_head && w.shape[1] == c->d_model &&
              w.shape[2] == c->d_head && attn_is_dense(w));
        CHECK(b.ndim == 2 && b.shape[0] == c->n_head && b.shape[1] == c->d_head);
        for (h = 0; h < c->n_head; h++)
            for (j = 0; j < c->d_head; j++) {
                const size_t column = part * c->d_model + h * c->d_head + j;
                wrong += attn_get2(b, h, j) != attn_get1(biases, column);
                for (k = 0; k < c->d_model; k++)
                    wrong += attn_get3(w, h, k, j) != attn_get2(whole, k, column);
            }
    }
    CHECKF(wrong == 0, "%s: %zu numbers are not where W_QKV has them", block, wrong);
}

TEST(weights)
{
    int i;
    for (i = 0; i < 2; i++) {
        const attn_model *m = model_of(i);
        const attn_config *c = attn_model_config(m);
        attn_ctx ctx = alone();
        attn_tensor w_o = {0}, w_e = {0}, w_u = {0}, b_u = {0}, w = {0}, given;
        size_t v, k, wrong = 0;
        check_heads(&ctx, m, "blocks.0");
        check_heads(&ctx, m, "blocks.1");
        OK(&ctx, attn_model_tensor(&ctx, &w_o, m, "blocks.1.attn.W_O"));
        CHECK(w_o.ndim == 3 && w_o.shape[0] == c->n_head && w_o.shape[1] == c->d_head &&
              w_o.shape[2] == c->d_model);
        OK(&ctx, attn_model_tensor(&ctx, &w_e, m, "embed.W_E"));
        OK(&ctx, attn_model_tensor(&ctx, &w_u, m, "unembed.W_U"));
        OK(&ctx, attn_model_tensor(&ctx, &b_u, m, "unembed.b_U"));
        CHECK(w_u.ndim == 2 && w_u.shape[0] == c->d_model && w_u.shape[1] == c->n_vocab);
        CHECK(b_u.ndim == 1 && b_u.shape[0] == c->n_vocab);
        for (v = 0; v < c->n_vocab; v++) {
            wrong += attn_get1(b_u, v) != 0;
            for (k = 0; k < c->d_model; k++)
                wrong += (attn_get2(w_u, k, v) == attn_get2(w_e, v, k)) != c->tied;
        }
        CHECKF(wrong == 0, "%s: the unembedding has %zu wrong numbers", lens_models[i], wrong);
        given = random_tensor(2, (int)c->d_head, (int)c->n_head);
        given = attn_transpose(given, 0, 1); /* into a view */
        OK(&ctx, attn_model_tensor(&ctx, &given, m, "blocks.1.attn.b_V"));
        OK(&ctx, attn_model_tensor(&ctx, &w, m, "blocks.1.attn.b_V"));
        same_bits(laid_out(given, ATTN_F32, LAYOUT_DENSE), w, "b_V into a view");
        FAILS(&ctx, ATTN_E_SHAPE, "[", attn_model_tensor(&ctx, &given, m, "blocks.1.attn.W_V"));
        memset(&w, 0, sizeof w);
        FAILS(&ctx, ATTN_E_NAME, "W_X", attn_model_tensor(&ctx, &w, m, "blocks.0.attn.W_X"));
        FAILS(&ctx, ATTN_E_NAME, "did you mean blocks.1.attn.W_V?",
              attn_model_tensor(&ctx, &w, m, "blocks.1.atn.W_V"));
        FAILS(&ctx, ATTN_E_NAME, "did you mean unembed.b_U?",
              attn_model_tensor(&ctx, &w, m, "unembeding.b_U"));
        FAILS(&ctx, ATTN_E_NAME, "no tensor \"zz\"", attn_model_tensor(&ctx, &w, m, "zz"));
        FAILS(&ctx, ATTN_E_NAME, "blocks.9", attn_model_tensor(&ctx, &w, m, "blocks.9.attn.W_Q"));
        FAILS(&ctx, ATTN_E_NAME, "mlp.W_Q", attn_model_tensor(&ctx, &w, m, "blocks.0.mlp.W_Q"));
        FAILS(&ctx, ATTN_E_NAME, "W_", attn_model_tensor(&ctx, &w, m, "W_"));
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* ---- models made of models ---- */

static attn_tensor tensor_of(attn_ctx *ctx, const attn_model *model, const char *name)
{
    attn_tensor t = {0};
    OK(ctx, attn_model_tensor(ctx, &t, model, name));
    return t;
}

/* Of the last block where the name is one in a block. */
static void check_weight(attn_ctx *ctx, const attn_model *m, int i, const char *group,
                         const char *ours, const char *theirs)
{
    char name[64];
    attn_tensor got, want;
    snprintf(name, sizeof name, "%s.%s", group, theirs);
    want = expected(i, name);
    snprintf(name, sizeof name, ours, (int)attn_model_config(m)->n_layer - 1);
    got = tensor_of(ctx, m, name);
    if (got.shape[0] > want.shape[0])
        got = attn_slice(got, 0, 0, want.shape[0]);
    close_to(got, want, 1e-6, name);
}

static void check_same_model(attn_ctx *ctx, const attn_model *rewritten, const attn_model *m,
                             const int32_t *tokens, size_t n, int shifted)
{
    attn_tensor logits, before;
    const attn_tensor want = log_probabilities(ctx, m, tokens, n, &before);
    const attn_tensor got = log_probabilities(ctx, rewritten, tokens, n, &logits);
    size_t t, v;
    close_to(got, want, 2e-6, "log-probabilities");
    for (t = 0; t < n; t++) {
        double mean = 0, before_mean = 0;
        for (v = 0; v < logits.shape[1]; v++) {
            mean += value_of(logits, t * logits.shape[1] + v) / (double)logits.shape[1];
            before_mean += value_of(before, t * logits.shape[1] + v) / (double)logits.shape[1];
        }
        CHECKF(shifted ? fabs(mean) < 1e-5 && fabs(before_mean) > 1e-3
                       : fabs(mean - before_mean) < 1e-5,
               "the logits' mean goes from %.9g to %.9g", before_mean, mean);
    }
}

/* After folding, b_U is all of a logit that does not come from the stream; and the logit lens of the
 * last stream is the model's logits, which it has b_U in. */
static void check_unembedding_bias(attn_ctx *ctx, const attn_model *made, const int32_t *tokens,
                                   size_t n)
{
    static const int32_t some[2] = {3, 90}, others[2] = {5, 3};
    const attn_tensor b_u = tensor_of(ctx, made, "unembed.b_U");
    stream_parts parts = {0};
    attn_tensor share = {0}, less = {0}, lens = {0};
    size_t i;
    OK(ctx, lens_bias_logit_attrs(ctx, &share, made, some, NULL, 2));
    OK(ctx, lens_bias_logit_attrs(ctx, &less, made, some, others, 2));
    for (i = 0; i < 2; i++) {
        const float b = attn_get1(b_u, (size_t)some[i]), other = attn_get1(b_u, (size_t)others[i]);
        CHECK(b != 0 && attn_get1(share, i) == b && attn_get1(less, i) == b - other);
    }
    OK(ctx, take_apart(ctx, &parts, made, LENS_PARTS_STREAMS, tokens, n, 0, 0));
    parts.stack = attn_select(parts.stack, 0, parts.stack.shape[0] - 1);
    OK(ctx, attn_logit_lens(ctx, &lens, made, parts.stack, no_tensor, no_tensor));
    same_logits((const float *)lens.data, logits_of(ctx, made, 0, tokens, n, n), n, made, "lens");
}

TEST(rewriting)
{
    int i;
    unsigned what;
    for (i = 0; i < 2; i++)
        for (what = 1; what <= ATTN_PROCESS_DEFAULT; what++) {
            attn_ctx ctx = alone();
            const attn_tensor tokens = expected(i, "tokens");
            const attn_model *const m = model_of(i);
            attn_model *made = NULL;
            if (!OK(&ctx, attn_process_weights(&ctx, &made, m, what)))
                continue;
            CHECK(!attn_model_config(made)->tied &&
                  attn_model_config(made)->n_ctx == attn_model_config(m)->n_ctx);
            CHECK(!attn_model_config(made)->has_b_U == !(what & ATTN_PROCESS_FOLD_LN));
            check_same_model(&ctx, made, m, ids_of(tokens), tokens.shape[0],
                             (what & ATTN_PROCESS_CENTER_UNEMBED) != 0);
            if (what == ATTN_PROCESS_FOLD_LN) {
                check_weight(&ctx, made, i, "folded", "blocks.%d.attn.W_K", "W_K");
                check_weight(&ctx, made, i, "folded", "blocks.%d.attn.b_K", "b_K");
                check_weight(&ctx, made, i, "folded", "blocks.%d.mlp.W_in", "W_in");
                check_weight(&ctx, made, i, "folded", "blocks.%d.mlp.b_in", "b_in");
                check_weight(&ctx, made, i, "folded", "unembed.W_U", "W_U");
                check_weight(&ctx, made, i, "folded", "unembed.b_U", "b_U");
            } else if (what == ATTN_PROCESS_CENTER_WRITING_WEIGHTS) {
                check_weight(&ctx, made, i, "centred", "embed.W_E", "W_E");
                check_weight(&ctx, made, i, "centred", "pos_embed.W_pos", "W_pos");
                check_weight(&ctx, made, i, "centred", "blocks.%d.attn.W_O", "W_O");
                check_weight(&ctx, made, i, "centred", "blocks.%d.attn.b_O", "b_O");
                check_weight(&ctx, made, i, "centred", "blocks.%d.mlp.W_out", "W_out");
                check_weight(&ctx, made, i, "centred", "blocks.%d.mlp.b_out", "b_out");
            } else if (what == ATTN_PROCESS_CENTER_UNEMBED) {
                check_weight(&ctx, made, i, "centred", "unembed.W_U", "W_U");
            } else if (what == ATTN_PROCESS_FOLD_VALUE_BIASES) {
                check_weight(&ctx, made, i, "values", "blocks.%d.attn.b_O", "b_O");
            }
            if (what & ATTN_PROCESS_FOLD_VALUE_BIASES) {
                const attn_tensor b_v = tensor_of(&ctx, made, "blocks.1.attn.b_V");
                size_t k;
                for (k = 0; k < count_of(b_v); k++)
                    CHECK(value_of(b_v, k) == 0);
            }
            if (what & ATTN_PROCESS_FOLD_LN) {
                const char *const gains[] = {"blocks.1.ln1.w", "blocks.0.ln2.w", "ln_final.w"};
                const char *const biases[] = {"blocks.1.ln1.b", "blocks.0.ln2.b", "ln_final.b"};
                size_t j, k;
                for (k = 0; k < 3; k++)
                    for (j = 0; j < attn_model_config(m)->d_model; j++)
                        CHECK(attn_get1(tensor_of(&ctx, made, gains[k]), j) == 1 &&
                              attn_get1(tensor_of(&ctx, made, biases[k]), j) == 0);
                check_unembedding_bias(&ctx, made, ids_of(tokens), tokens.shape[0]);
            }
            attn_model_close(made);
            attn_ctx_free(&ctx);
            pool_clear();
        }
}

/* Twice gives what once gave, nearly; f16 becomes f32; the old model may be gone. */
TEST(rewriting_again)
{
    attn_ctx ctx = alone();
    const attn_tensor tokens = expected(1, "tokens");
    attn_model *first = NULL, *second = NULL;
    attn_model *narrow = converted("tests/golden/odd", "lens-odd16.attn", "--dtype f16");
    attn_tensor logits, want, got;
    attn_tensor_info info;
    if (!narrow)
        return;
    want = log_probabilities(&ctx, narrow, ids_of(tokens), tokens.shape[0], &logits);
    OK(&ctx, attn_process_weights(&ctx, &first, narrow, ATTN_PROCESS_DEFAULT));
    attn_model_close(narrow);
    OK(&ctx, attn_process_weights(&ctx, &second, first, ATTN_PROCESS_DEFAULT));
    attn_model_close(first);
    OK(&ctx, attn_model_tensor_info(&ctx, &info, second, 0));
    CHECK(info.dtype == ATTN_F32);
    got = log_probabilities(&ctx, second, ids_of(tokens), tokens.shape[0], &logits);
    close_to(got, want, 2e-6, "log-probabilities");
    attn_model_close(second);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* Gains of the last LayerNorm that are 0, or so small that their inverse is infinite. */
TEST(gains_without_inverse)
{
    attn_ctx ctx = alone();
    const attn_tensor tokens = expected(0, "tokens");
    const attn_model_desc unchecked = {.skip_checksums = 1};
    attn_model *edited = NULL, *made = NULL;
    attn_tensor_info info;
    size_t size, i;
    unsigned char *file = test_read(test_tmp("plain.attn"), &size), *start;
    if (!CHECK(file != NULL))
        return;
    start = (unsigned char *)pool_new(size + 64);
    start += (64 - (uintptr_t)start % 64) % 64;
    memcpy(start, file, size);
    free(file);
    for (i = 0; i < attn_model_n_tensors(plain); i++) {
        OK(&ctx, attn_model_tensor_info(&ctx, &info, plain, i));
        if (strcmp(info.name, "ln_final.w") == 0) {
            float *gain = (float *)(void *)(start + info.offset);
            gain[3] = 0;
            gain[40] = -0.0f;
            gain[7] = 1e-42f;
        }
    }
    OK(&ctx, attn_model_open_memory(&ctx, &edited, start, size, &unchecked));
    OK(&ctx, attn_process_weights(&ctx, &made, edited, ATTN_PROCESS_FOLD_LN));
    if (edited && made) {
        const attn_tensor gains = tensor_of(&ctx, made, "ln_final.w");
        for (i = 0; i < 64; i++)
            CHECK(attn_get1(gains, i) == 1);
        check_same_model(&ctx, made, edited, ids_of(tokens), tokens.shape[0], 0);
    }
    attn_model_close(made);
    attn_model_close(edited);
    attn_ctx_free(&ctx);
    pool_clear();
}

TEST(saving)
{
    attn_ctx ctx = alone();
    const char *const path = test_tmp("saved.attn");
    attn_model *model = NULL, *made = NULL, *again = NULL;
    int32_t ids[16];
    size_t n = 0, i;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    OK(&ctx, attn_model_save(&ctx, path, model));
    CHECK(test_same_file(path, TEST_BUILD "/tiny-stories.attn"));
    OK(&ctx, attn_process_weights(&ctx, &made, model, ATTN_PROCESS_DEFAULT));
    attn_model_close(model);

    OK(&ctx, attn_model_open(&ctx, &model, path, NULL)); /* over the file that is open */
    OK(&ctx, attn_model_save(&ctx, path, model));
    CHECK(test_same_file(path, TEST_BUILD "/tiny-stories.attn"));
    OK(&ctx, attn_model_save(&ctx, path, made));
    OK(&ctx, attn_model_open(&ctx, &again, path, NULL)); /* every checksum is verified */
    if (model && again && made) {
        n = 16;
        OK(&ctx, attn_encode(&ctx, ids, &n, attn_model_tokenizer(again), "Once upon a time", 16));
        CHECK(n == 4 && attn_model_config(again)->bos == attn_model_config(model)->bos);
        check_same_model(&ctx, again, model, ids, n, 1);
        CHECK(attn_model_n_tensors(again) == attn_model_n_tensors(made));
        for (i = 0; i < attn_model_n_tensors(again); i++) {
            attn_tensor_info a, b;
            OK(&ctx, attn_model_tensor_info(&ctx, &a, again, i));
            OK(&ctx, attn_model_tensor_info(&ctx, &b, made, i));
            CHECK(strcmp(a.name, b.name) == 0 && a.checksum == b.checksum);
        }
        FAILS(&ctx, ATTN_E_IO, "nowhere/", attn_model_save(&ctx, "build/nowhere/x.attn", made));
        FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_model_save(&ctx, "", made));
        FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_model_save(&ctx, path, NULL));
    }
    attn_model_close(model);
    attn_model_close(made);
    attn_model_close(again);
    made = plain;
    FAILS(&ctx, ATTN_E_ARGUMENT, "flags are 0", attn_process_weights(&ctx, &made, plain, 0));
    CHECK(made == NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "flags are 16", attn_process_weights(&ctx, &made, plain, 16));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_process_weights(&ctx, &made, NULL, 1));
    attn_ctx_free(&ctx);
    pool_clear();
}

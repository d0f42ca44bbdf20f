/* Models whose weights are rewritten as TransformerLens rewrites them. The expected numbers are numpy's in
 * float64 (make_lens_fixtures.py). */
#include "tests/support/lens_fixtures.h"
#include "tools/lens/process_weights.h"

SUITE_WITH_MODELS("plain odd");

/* Of the last block where the name is one in a block. */
static void check_weight(attn_ctx *ctx, const attn_model *m, int i, const char *group,
                         const char *ours, const char *theirs)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", group, theirs);
    attn_tensor want = expected(i, name);
    snprintf(name, sizeof name, ours, (int)attn_model_config(m)->n_layer - 1);
    attn_tensor got = tensor_of(ctx, m, name);
    if (got.shape[0] > want.shape[0])
        got = attn_slice(got, 0, 0, want.shape[0]);
    close_to(got, want, 1e-6, name);
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
    OK(ctx, lens_bias_logit_attrs(ctx, &share, made, some, NULL, 2));
    OK(ctx, lens_bias_logit_attrs(ctx, &less, made, some, others, 2));
    for (size_t i = 0; i < 2; i++) {
        const float b = attn_get1(b_u, (size_t)some[i]), other = attn_get1(b_u, (size_t)others[i]);
        CHECK(b != 0 && attn_get1(share, i) == b && attn_get1(less, i) == b - other);
    }
    OK(ctx, take_apart(ctx, &parts, made, LENS_PARTS_STREAMS, tokens, n, 0, 0));
    parts.stack = attn_select(parts.stack, 0, parts.stack.shape[0] - 1);
    OK(ctx, lens_logit_lens(ctx, &lens, made, parts.stack, no_tensor, no_tensor));
    same_logits((const float *)lens.data, logits_of(ctx, made, 0, tokens, n, n), n, made, "lens");
}

TEST(rewriting)
{
    for (int i = 0; i < 2; i++)
        for (unsigned what = 1; what <= LENS_PROCESS_DEFAULT; what++) {
            SCOPED_CTX ctx = alone();
            const attn_tensor tokens = expected(i, "tokens");
            const attn_model *const m = model_of(i);
            SCOPED_MODEL made = NULL;
            if (!OK(&ctx, lens_process_weights(&ctx, &made, m, what)))
                continue;
            CHECK(!attn_model_config(made)->tied &&
                  attn_model_config(made)->n_ctx == attn_model_config(m)->n_ctx);
            CHECK(!attn_model_config(made)->has_b_U == !(what & LENS_PROCESS_FOLD_LN));
            check_same_model(&ctx, made, m, ids_of(tokens), tokens.shape[0],
                             (what & LENS_PROCESS_CENTER_UNEMBED) != 0);
            if (what == LENS_PROCESS_FOLD_LN) {
                check_weight(&ctx, made, i, "folded", "blocks.%d.attn.W_K", "W_K");
                check_weight(&ctx, made, i, "folded", "blocks.%d.attn.b_K", "b_K");
                check_weight(&ctx, made, i, "folded", "blocks.%d.mlp.W_in", "W_in");
                check_weight(&ctx, made, i, "folded", "blocks.%d.mlp.b_in", "b_in");
                check_weight(&ctx, made, i, "folded", "unembed.W_U", "W_U");
                check_weight(&ctx, made, i, "folded", "unembed.b_U", "b_U");
            } else if (what == LENS_PROCESS_CENTER_WRITING_WEIGHTS) {
                check_weight(&ctx, made, i, "centred", "embed.W_E", "W_E");
                check_weight(&ctx, made, i, "centred", "pos_embed.W_pos", "W_pos");
                check_weight(&ctx, made, i, "centred", "blocks.%d.attn.W_O", "W_O");
                check_weight(&ctx, made, i, "centred", "blocks.%d.attn.b_O", "b_O");
                check_weight(&ctx, made, i, "centred", "blocks.%d.mlp.W_out", "W_out");
                check_weight(&ctx, made, i, "centred", "blocks.%d.mlp.b_out", "b_out");
            } else if (what == LENS_PROCESS_CENTER_UNEMBED) {
                check_weight(&ctx, made, i, "centred", "unembed.W_U", "W_U");
            } else if (what == LENS_PROCESS_FOLD_VALUE_BIASES) {
                check_weight(&ctx, made, i, "values", "blocks.%d.attn.b_O", "b_O");
            }
            if (what & LENS_PROCESS_FOLD_VALUE_BIASES) {
                const attn_tensor b_v = tensor_of(&ctx, made, "blocks.1.attn.b_V");
                for (size_t k = 0; k < count_of(b_v); k++)
                    CHECK(value_of(b_v, k) == 0);
            }
            if (what & LENS_PROCESS_FOLD_LN) {
                const char *const gains[] = {"blocks.1.ln1.w", "blocks.0.ln2.w", "ln_final.w"};
                const char *const biases[] = {"blocks.1.ln1.b", "blocks.0.ln2.b", "ln_final.b"};
                for (size_t k = 0; k < 3; k++)
                    for (size_t j = 0; j < attn_model_config(m)->d_model; j++)
                        CHECK(attn_get1(tensor_of(&ctx, made, gains[k]), j) == 1 &&
                              attn_get1(tensor_of(&ctx, made, biases[k]), j) == 0);
                check_unembedding_bias(&ctx, made, ids_of(tokens), tokens.shape[0]);
            }
            pool_clear();
        }
}

/* Twice gives what once gave, nearly; f16 becomes f32; the old model may be gone. */
TEST(rewriting_again)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor tokens = expected(1, "tokens");
    attn_model *first = NULL, *second = NULL;
    attn_model *halfs = converted("tests/golden/odd", "lens-odd16.attn", "--dtype f16");
    attn_tensor logits;
    if (!halfs)
        return;
    attn_tensor want = log_probabilities(&ctx, halfs, ids_of(tokens), tokens.shape[0], &logits);
    OK(&ctx, lens_process_weights(&ctx, &first, halfs, LENS_PROCESS_DEFAULT));
    attn_model_close(halfs);
    OK(&ctx, lens_process_weights(&ctx, &second, first, LENS_PROCESS_DEFAULT));
    attn_model_close(first);
    model_tensor info = model_tensor_at(second, 0);
    CHECK(info.dtype == ATTN_F32);
    attn_tensor got = log_probabilities(&ctx, second, ids_of(tokens), tokens.shape[0], &logits);
    close_to(got, want, 2e-6, "log-probabilities");
    attn_model_close(second);
}

/* Gains of the last LayerNorm that are 0, or so small that their inverse is infinite. */
TEST(gains_without_inverse)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor tokens = expected(0, "tokens");
    const attn_model_desc unchecked = {.skip_checksums = 1};
    attn_model *edited = NULL, *made = NULL;
    model_tensor info;
    size_t size;
    unsigned char *file = test_read(test_tmp("plain.attn"), &size);
    if (!CHECK(file != NULL))
        return;
    unsigned char *start = (unsigned char *)pool_new(size + 64);
    start += (64 - (uintptr_t)start % 64) % 64;
    memcpy(start, file, size);
    free(file);
    for (size_t i = 0; i < model_n_tensors(plain); i++) {
        info = model_tensor_at(plain, i);
        if (strcmp(info.name, "ln_final.w") == 0) {
            float *gain = (float *)(void *)(start + info.offset);
            gain[3] = 0;
            gain[40] = -0.0f;
            gain[7] = 1e-42f;
        }
    }
    OK(&ctx, attn_model_open_memory(&ctx, &edited, start, size, &unchecked));
    OK(&ctx, lens_process_weights(&ctx, &made, edited, LENS_PROCESS_FOLD_LN));
    if (edited && made) {
        const attn_tensor gains = tensor_of(&ctx, made, "ln_final.w");
        for (size_t i = 0; i < 64; i++)
            CHECK(attn_get1(gains, i) == 1);
        check_same_model(&ctx, made, edited, ids_of(tokens), tokens.shape[0], 0);
    }
    attn_model_close(made);
    attn_model_close(edited);
}

TEST(refused)
{
    SCOPED_CTX ctx = alone();
    attn_model *made = plain;
    FAILS(ARGUMENT, "flags are 0", lens_process_weights(&ctx, &made, plain, 0));
    CHECK(made == NULL);
    FAILS(ARGUMENT, "flags are 16", lens_process_weights(&ctx, &made, plain, 16));
}

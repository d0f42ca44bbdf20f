/* tools/lens/sae.h, sae_files.h and lens sae on transcoders: sae-lens's files, features, predictions, and the
 * logits while features are changed (fixtures/transcoder, from make_transcoder_fixtures.py). */
#define FIXTURE_FILE "tests/fixtures/transcoder/outputs.bin"
#include "tools/lens/sae_files.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

#define TRANSCODERS "tests/fixtures/transcoder/"
#define MODEL_TL    TMP "transcoded.attn "
#define IDS         "--ids '3 17 28 0 5 5 17 9 1' "

static const char *const kinds[] = {"plain", "skip", "jumprelu", "jumprelu-skip"};
static const lens_sae_change changes[] = {
    {3, LENS_SAE_CLAMP, 2}, {5, LENS_SAE_SCALE, 0.5f}, {7, LENS_SAE_STEER, 1.5f}};

static int make_model(void)
{
    return works(TEST_BUILD
                 "/attn-convert -q --no-tokenizer tests/fixtures/transformerlens/full " TMP
                 "transcoded.attn");
}

static void near_to(attn_tensor got, attn_tensor want, const char *what)
{
    double largest = 0, most = 0;
    const float *g = (const float *)got.data, *w = (const float *)want.data;
    if (!CHECKF(attn_count(got) == attn_count(want), "%s: another size", what))
        return;
    for (size_t i = 0; i < attn_count(want); i++) {
        const double difference = fabs((double)g[i] - (double)w[i]);
        largest = fmax(largest, fabs((double)w[i]));
        most = difference > most || difference != difference ? difference : most;
    }
    CHECKF(most <= 3e-6 * largest, "%s: %g of %g", what, most, largest);
}

/* The logits after the ids, in pieces of `step`, while features are changed. */
static float *changed_logits(attn_ctx *ctx, attn_model *model, lens_sae_watch *watch, size_t step)
{
    const attn_tensor ids = fixture_tensor("ids");
    const size_t n = attn_count(ids), n_vocab = attn_model_config(model)->n_vocab;
    float *logits = (float *)pool_new(n * n_vocab * sizeof *logits);
    attn_session *session = NULL;
    OK(ctx, attn_session_new(ctx, &session, model, NULL));
    OK(ctx, lens_sae_attach(ctx, session, watch));
    for (size_t t = 0; t < n; t += step) {
        attn_feed_item item = {.session = session,
                               .tokens = (const int32_t *)ids.data + t,
                               .n_tokens = n - t < step ? n - t : step,
                               .logits = logits + t * n_vocab};
        CHECKF(attn_feed_batch(ctx, &item, 1) == ATTN_OK, "%s %s", ctx->message,
               watch->ctx.message);
    }
    attn_session_free(session);
    lens_sae_end(watch);
    return logits;
}

TEST(transcoders_as_sae_lens)
{
    attn_ctx ctx = alone();
    SCOPED_MODEL model = NULL;
    if (!make_model() || !OK(&ctx, attn_model_open(&ctx, &model, TMP "transcoded.attn", NULL)))
        return;
    for (size_t i = 0; i < 4; i++) {
        const attn_tensor x = fixture_tensor("%s.x", kinds[i]);
        const attn_tensor kept = fixture_tensor("%s.kept", kinds[i]);
        attn_tensor features = ATTN_ZERO, predicted = ATTN_ZERO;
        lens_sae sae = ATTN_ZERO;
        if (!OK(&ctx, lens_sae_open(&ctx, &sae, test_text(TRANSCODERS "%s", kinds[i]))))
            continue;
        CHECK(sae.n_out == 16 && strcmp(sae.hook_out, "blocks.1.hook_mlp_out") == 0 &&
              strcmp(sae.hook,
                     i % 3 ? "blocks.1.hook_resid_mid" : "blocks.1.ln2.hook_normalized.pre") == 0);
        OK(&ctx, lens_sae_encode(&ctx, &features, &sae, x));
        near_to(features, fixture_tensor("%s.features", kinds[i]), kinds[i]);
        OK(&ctx, lens_sae_decode(&ctx, &predicted, &sae, features, x));
        near_to(predicted, fixture_tensor("%s.predicted", kinds[i]), kinds[i]);
        attn_tensor_free(&ctx, &features);
        attn_tensor_free(&ctx, &predicted);
        lens_sae_watch watch = {.sae = &sae, .changes = changes, .n_changes = 3};
        for (size_t k = 0; k < 4; k++) { /* with and without the error, at once and in pieces */
            watch.keep_error = k % 2;
            near_to(attn_borrow(changed_logits(&ctx, model, &watch, k < 2 ? 9 : 4), ATTN_F32,
                                attn_shape1(attn_count(kept))),
                    fixture_tensor("%s.%s", kinds[i], k % 2 ? "kept" : "replaced"), kinds[i]);
        }
        lens_sae_free(&ctx, &sae);
        attn_ctx_free(&watch.ctx);
    }
}

/* Transcoders without a skip do not need x to decode; the others do. Hooks that cannot work are refused. */
TEST(transcoders_refused)
{
    attn_ctx ctx = alone();
    attn_tensor none = ATTN_ZERO, out_tensor = ATTN_ZERO;
    SCOPED_MODEL model = NULL;
    attn_session *session = NULL;
    lens_sae sae = ATTN_ZERO;
    const int32_t id = 1;
    if (!make_model() || !OK(&ctx, attn_model_open(&ctx, &model, TMP "transcoded.attn", NULL)) ||
        !OK(&ctx, lens_sae_open(&ctx, &sae, TRANSCODERS "skip")))
        return;
    CHECK(lens_sae_decode(&ctx, &out_tensor, &sae, fixture_tensor("skip.features"), none) !=
          ATTN_OK);
    CHECK(lens_sae_attach(&ctx, NULL, NULL) == ATTN_E_ARGUMENT);
    OK(&ctx, attn_session_new(&ctx, &session, model, NULL));
    lens_sae other = sae;
    lens_sae_watch watch = {.sae = &other};
    memcpy(other.hook_out, other.hook, sizeof other.hook);
    CHECK(lens_sae_attach(&ctx, session, &watch) == ATTN_E_ARGUMENT &&
          strstr(ctx.message, "are both blocks.1.hook_resid_mid"));
    memcpy(other.hook_out, "blocks.0.hook_mlp_out", sizeof "blocks.0.hook_mlp_out");
    OK(&ctx, lens_sae_attach(&ctx, session, &watch)); /* the output comes before the input */
    CHECK(
        attn_feed(&ctx, session, &id, 1) != ATTN_OK &&
        strstr(watch.ctx.message, "blocks.0.hook_mlp_out: the transcoder has not seen its input"));
    attn_session_free(session);
    lens_sae_end(&watch);
    attn_ctx_free(&watch.ctx);
    lens_sae_free(&ctx, &sae);
}

TEST(transcoders_at_the_command)
{
    if (!make_model())
        return;
    for (size_t i = 0; i < 4; i++) {
        const attn_tensor y = fixture_tensor("%s.y", kinds[i]);
        const attn_tensor predicted = fixture_tensor("%s.predicted", kinds[i]);
        const json_value *all =
            parse(test_text(LENS MODEL_TL "sae " TRANSCODERS "%s " IDS "--json", kinds[i]));
        CHECK(json_is(fact(all, "hook_out"), "blocks.1.hook_mlp_out"));
        CHECKF(fabs(number(fact(all, "explained")) - lens_sae_explained(y, predicted)) < 1e-5, "%s",
               kinds[i]);
    }
    CHECK(works(LENS MODEL_TL "sae " TRANSCODERS "skip " IDS "--change 3=2 --no-error") &&
          strstr(out, "24 features of blocks.1.hook_resid_mid, which predict "
                      "blocks.1.hook_mlp_out.") &&
          strstr(out, "what the transcoder predicts takes the place of the output."));
}

/* Directories that are damaged in one place. */
TEST(transcoders_that_are_damaged)
{
    static const char *const edits[][2] = {
        {"s/\"d_out\": 16/\"d_out\": 17/", "W_dec is [24, 16]"},
        {"s/\"d_out\": 16/\"d_out\": 0/", "d_out must be a whole number"},
        {"s/, \"d_out\": 16//", "d_out must be a whole number"},
        {"s/\"hook_name_out\"/\"hook_name_in\"/", "cfg.json: no hook_name_out, such as"},
        {"s/blocks.1.hook_mlp_out/blocks.1.nothing/", "blocks.1.nothing"},
        {"s/blocks.1.hook_mlp_out/blocks.*.hook_mlp_out/", "is not one activation"},
        {"s/blocks.1.hook_mlp_out/blocks.1.hook_resid_mid/", "hook_name_out is not another one"},
        {"s/blocks.1.hook_mlp_out/blocks.1.mlp.hook_post/", "has another width"},
        {"s/skip_transcoder/gated_transcoder/", "\"gated_transcoder\", which is not known here"},
        {"s/\"apply_b_dec_to_input\": false/\"apply_b_dec_to_input\": true/",
         "apply_b_dec_to_input"},
        {"s/\"none\", \"resh/\"expected_average_only_in\", \"resh/", "scaled activations"}};
    if (!make_model())
        return;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        CHECK(run("rm -rf " TMP "damaged && cp -r " TRANSCODERS "skip " TMP
                  "damaged && chmod -R u+w " TMP "damaged && sed -i.old '%s' " TMP
                  "damaged/cfg.json",
                  edits[i][0]) == 0);
        CHECKF(run(LENS MODEL_TL "sae " TMP "damaged " IDS) == 1 && strstr(err, edits[i][1]),
               "%s: %s", edits[i][0], err);
    }
    CHECK(run("rm -rf " TMP "damaged && cp -r " TRANSCODERS "plain " TMP
              "damaged && chmod -R u+w " TMP
              "damaged && sed -i.old 's/\"transcoder\"/\"skip_transcoder\"/' " TMP
              "damaged/cfg.json") == 0);
    CHECKF(run(LENS MODEL_TL "sae " TMP "damaged " IDS) == 1 && strstr(err, "W_skip"), "%s", err);
    CHECK(run("head -c 2000 " TRANSCODERS "skip/sae_weights.safetensors >" TMP
              "damaged/sae_weights.safetensors") == 0);
    CHECKF(run(LENS MODEL_TL "sae " TMP "damaged " IDS) == 1 && strstr(err, "cut short"), "%s",
           err);
}

/* lens sae, steer, qk and logit-lens --tuned, tried as a person uses them. Numbers are held against
 * PyTorch's (makers/make_steering_fixtures.py) and the headers' own functions'. */
#define FIXTURE_FILE "tests/fixtures/steering/steering.bin"
#include "tools/lens/control.h"
#include "tools/lens/save.h"
#include "tools/lens/qk.h"
#include "tools/lens/sae_files.h"
#include "tools/lens/steering.h"
#include "tools/lens/tuned.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

static const int32_t ids[] = {506, 511, 258};
enum { N_IDS = 3 };
#define IDS "--ids '506 511 258' "

/* ---- autoencoders ---- */

#define SAE_CFG(more)                                                                              \
    "{\"architecture\": \"standard\", \"d_in\": 192, \"d_sae\": 30, \"metadata\": "                \
    "{\"hook_name\": \"blocks.2.hook_resid_pre\", \"hook_head_index\": null}" more "}"

/* A row for each active feature of each token, the largest first. */
static void check_features(const json_value *all, attn_tensor features)
{
    const size_t n_rows = member(all, "features")->size;
    size_t row = 0;
    for (size_t t = 0; t < features.shape[0]; t++) {
        double last = INFINITY;
        size_t n = 0;
        for (size_t i = 0; i < features.shape[1]; i++)
            n += attn_get2(features, t, i) > 0;
        for (; n > 0 && CHECK(row < n_rows); n--, row++) {
            const double feature = number(cell(all, "features", row, "feature"));
            const json_value *const value = cell(all, "features", row, "activation");
            EQUAL(number(cell(all, "features", row, "position")), t);
            EQUAL(number(cell(all, "features", row, "token_id")), ids[t]);
            is_float(value, attn_get2(features, t, (size_t)feature), "a feature");
            CHECK(number(value) <= last);
            last = number(value);
        }
    }
    CHECK(row == n_rows && row > 0);
    CHECK(fabs(number(fact(all, "active")) - (double)row / N_IDS) < 1e-6);
}

TEST(sparse_autoencoders)
{
    static const char command[] = LENS MODEL "sae " TMP "sae --ids '506 511 258' --json";
    attn_ctx ctx = {0};
    attn_tensor x = {0}, features = {0};
    lens_sae s = ATTN_ZERO;
    size_t size;
    write_autoencoder("sae", SAE_CFG(""));
    CHECK(works(LENS MODEL "record --ids '506 511 258' blocks.2.hook_resid_pre -o " TMP
                           "sae.safetensors"));
    unsigned char *file = test_read(TMP "sae.safetensors", &size);
    if (CHECK(file))
        x = safetensor(file, "blocks.2.hook_resid_pre");
    OK(&ctx, lens_sae_open(&ctx, &s, TMP "sae"));
    OK(&ctx, lens_sae_encode(&ctx, &features, &s, x));
    const json_value *all = parse(command);
    if (CHECK(all && all->size == 3)) { /* notes, facts, features */
        CHECK(json_is(fact(all, "hook"), "blocks.2.hook_resid_pre") &&
              fact(all, "hook_out")->kind == JSON_NULL && isfinite(number(fact(all, "explained"))));
        EQUAL(number(fact(all, "n_features")), 30);
        EQUAL(number(fact(all, "n_tokens")), 3);
        check_features(all, features);
    }
    free(file);
    lens_sae_free(&ctx, &s);
    FAILS(IO, "no-such", lens_sae_open(&ctx, &s, TMP "no-such"));
    FAILS(IO, "cfg.json is a file; give its directory",
          lens_sae_open(&ctx, &s, TMP "sae/cfg.json"));
    OK(&ctx, lens_sae_open(&ctx, &s, TMP "sae")); /* an earlier failure does not count */
    lens_sae_free(&ctx, &s);
    attn_ctx_free(&ctx);
    CHECK(works(LENS MODEL "sae " TMP "sae 'Once upon' --top 2") && strstr(out, "30 features of "));
    CHECK(works(LENS MODEL "sae " TMP "sae 'Once upon' -o " TMP "sae.html"));
    refuses(2, "sae needs a directory", LENS MODEL "sae --ids 506");
    refuses(1, "no-such", LENS MODEL "sae " TMP "no-such --ids 506");
    write_autoencoder("sae", SAE_CFG(", \"normalize_activations\": \"odd\""));
    refuses(1, "normalize_activations is \"odd\"", command);
    write_autoencoder("sae", "{\"d_in\": 192, \"d_sae\": 31, \"hook_name\": \"hook_embed\"}");
    refuses(1, "expected floats of [192, 31]", command);
    write_autoencoder("sae", "{\"d_in\": 192, \"d_sae\": 1e9, \"hook_name\": \"hook_embed\"}");
    refuses(1, "d_sae must be a whole number", command);
    write_autoencoder("sae", "{\"d_in\": 192, \"d_sae\": 30}");
    refuses(1, "no hook_name", command);
    write_autoencoder("sae", "{\"d_in\": 192, \"d_sae\": 30, \"hook_name\": \"nothing\"}");
    refuses(1, "nothing", command);
    write_autoencoder("sae", "[]");
    refuses(1, "not a JSON object", command);
}

/* Writes an autoencoder whose weights are for activations times `factor`: scaled weights of one that
 * is folded. */
static void write_scaled(const char *cfg, float factor)
{
    static const char *const tensors[] = {"W_dec",  "W_enc",     "b_dec", "b_enc",
                                          "b_gate", "threshold", "r_mag", "b_mag"};
    const float back = 1 / factor;
    attn_ctx ctx = {0};
    attn_tensor values[8];
    random_state = 6;
    values[0] = random_tensor(2, 30, 192);
    values[1] = random_tensor(2, 192, 30);
    values[2] = random_tensor(1, 192);
    for (size_t i = 3; i < 8; i++)
        values[i] = random_tensor(1, 30);
    OK(&ctx, attn_scale(&ctx, &values[0], values[0], factor));
    OK(&ctx, attn_scale(&ctx, &values[1], values[1], back));
    OK(&ctx, attn_scale(&ctx, &values[2], values[2], factor));
    CHECK(run("mkdir -p " TMP "sae && rm -f " TMP "sae/activation_scaler.json") == 0);
    OK(&ctx, lens_save(&ctx, TMP "sae/sae_weights.safetensors", tensors, values, 8));
    test_write(TMP "sae/cfg.json", cfg, strlen(cfg));
}

/* SAELens's trainer writes a checkpoint whose scaling factor is in a separate file. The program finds the
 * same features, with the same tokens, as in the checkpoint where the factor is folded into the weights. */
TEST(unfolded_autoencoders)
{
    static const char *const kinds[] = {"standard", "jumprelu", "topk", "gated"};
    static const char scaler[] = "{\"scaling_factor\": 0.25}";
    attn_ctx ctx = {0};
    for (size_t kind = 0; kind < 8; kind++) {
        attn_tensor x = random_tensor(2, 5, 192), got[4] = {{0}};
        for (size_t k = 0; k < 2; k++) {
            lens_sae sae = ATTN_ZERO;
            write_scaled(
                test_text("{\"architecture\": \"%s\", \"k\": 7, \"d_in\": 192, \"d_sae\": 30, "
                          "\"hook_name\": \"blocks.2.hook_resid_pre\", "
                          "\"rescale_acts_by_decoder_norm\": %d, \"normalize_activations\": %s}",
                          kinds[kind % 4], kind == 6,
                          k == 0     ? "\"none\""
                          : kind < 4 ? "\"expected_average_only_in\""
                                     : "true"),
                k == 0 ? 1 : 0.25f);
            if (k == 1) {
                FAILS(FORMAT, "activation_scaler.json is missing",
                      lens_sae_open(&ctx, &sae, TMP "sae"));
                test_write(TMP "sae/activation_scaler.json", scaler, sizeof scaler - 1);
            }
            if (OK(&ctx, lens_sae_open(&ctx, &sae, TMP "sae"))) {
                OK(&ctx, lens_sae_encode(&ctx, &got[2 * k], &sae, x));
                OK(&ctx, lens_sae_decode(&ctx, &got[2 * k + 1], &sae, got[2 * k], x));
            }
            lens_sae_free(&ctx, &sae);
        }
        for (size_t k = 0; k < 2; k++)
            if (CHECK(attn_count(got[k]) > 0)) {
                const float *a = (const float *)got[k].data, *b = (const float *)got[2 + k].data;
                size_t i = 0;
                while (i < attn_count(got[k]) && fabsf(a[i] - b[i]) < 1e-4f)
                    i++;
                CHECKF(i == attn_count(got[k]), "%s: number %d is %g, expected %g", kinds[kind % 4],
                       (int)i, (double)b[i], (double)a[i]);
            }
        for (size_t k = 0; k < 4; k++)
            attn_tensor_free(&ctx, &got[k]);
    }
    attn_ctx_free(&ctx);
    test_write(TMP "sae/activation_scaler.json", "{\"scaling_factor\": null}", 24);
    refuses(1, "scaling_factor must be a number above 0", LENS MODEL "sae " TMP "sae --ids 506");
}

/* Settings as early versions wrote them. */
TEST(old_autoencoders)
{
    static const struct {
        const char *more;
        int apply_b_dec;
        const char *fails;
    } all[] = {{", \"normalize_activations\": false", 1, NULL},
               {", \"normalize_activations\": null", 1, NULL},
               {", \"apply_b_dec_to_input\": 1", 1, NULL},
               {", \"apply_b_dec_to_input\": 0.0", 0, NULL},
               {", \"apply_b_dec_to_input\": null", 0, NULL},
               {", \"apply_b_dec_to_input\": false", 0, NULL},
               {", \"apply_b_dec_to_input\": \"no\"", 0, "must be true or false"},
               {", \"normalize_activations\": 1", 0, "must be a text, such as \"none\""}};
    SCOPED_CTX ctx = {0};
    char cfg[256];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        lens_sae sae = ATTN_ZERO;
        snprintf(cfg, sizeof cfg,
                 "{\"d_in\": 192, \"d_sae\": 30, \"hook_point\": \"blocks.2.hook_resid_pre\"%s}",
                 all[i].more);
        if (i == 0)
            write_scaled(cfg, 1);
        test_write(TMP "sae/cfg.json", cfg, strlen(cfg));
        if (all[i].fails) {
            FAILS(FORMAT, all[i].fails, lens_sae_open(&ctx, &sae, TMP "sae"));
        } else if (OK(&ctx, lens_sae_open(&ctx, &sae, TMP "sae"))) {
            CHECKF(sae.apply_b_dec == all[i].apply_b_dec && sae.norm == LENS_SAE_NORM_NONE, "%s",
                   all[i].more);
        }
        lens_sae_free(&ctx, &sae);
    }
}

/* ---- a run with a change ---- */

/* What a hooked session says after `ids`, and goes on with; the caller frees the session. */
static attn_session *after_ids(story *s, const char *pattern, attn_hook_fn fn, void *user)
{
    attn_session *session = NULL;
    OK(&s->ctx, attn_session_new(&s->ctx, &session, s->model, NULL));
    if (pattern)
        OK(&s->ctx, attn_hook(&s->ctx, NULL, session, pattern, fn, user));
    OK(&s->ctx, attn_feed(&s->ctx, session, ids, N_IDS));
    return session;
}

/* One of the two runs that lens shows: logits of the tokens of its table, and four tokens more. */
static void check_side(story *s, const json_value *all, int side, attn_session *session)
{
    static const char *const logits[] = {"logit_without", "logit_with"};
    const json_value *const made = member(all, "continuation");
    const float *const want = attn_session_logits(session);
    int32_t more[4];
    for (size_t i = 0; i < member(all, "logits")->size; i++)
        is_float(cell(all, "logits", i, logits[side]),
                 want[(int)number(cell(all, "logits", i, "token_id"))], "a logit");
    for (size_t i = 0; i < 5; i++) {
        const size_t row = 5 * (size_t)side + i;
        const json_value *const best = cell(all, "top", row, "logit");
        EQUAL(number(cell(all, "top", row, "place")), i);
        is_float(best, want[(int)number(cell(all, "top", row, "guess_id"))],
                 "one of the likeliest");
        CHECK(i == 0 || number(best) <= number(cell(all, "top", row - 1, "logit")));
    }
    attn_generate_desc how = {.max_tokens = 4};
    attn_generation result = {.tokens = more, .room = 4};
    OK(&s->ctx, attn_generate(&s->ctx, &result, session, NULL, &how));
    for (size_t i = 0; made && i < made->size; i++)
        if (json_is(cell(all, "continuation", i, "run"), side ? "with" : "without"))
            EQUAL(number(cell(all, "continuation", i, "token_id")),
                  more[(int)number(cell(all, "continuation", i, "place"))]);
    CHECK(json_is(cell(all, "runs", (size_t)side, "run"), side ? "with" : "without") &&
          cell(all, "runs", (size_t)side, "text")->kind == JSON_STRING &&
          isfinite(number(cell(all, "runs", (size_t)side, "loss"))));
    EQUAL(result.n_tokens, 4);
    attn_session_free(session);
}

/* `logits` may not be empty, nor the same on both sides. */
static void check_sides(story *s, const json_value *all, attn_session *changed)
{
    if (!CHECK(member(all, "logits") && member(all, "logits")->size >= 5)) {
        attn_session_free(changed);
        return;
    }
    CHECK(number(cell(all, "logits", 0, "logit_without")) !=
          number(cell(all, "logits", 0, "logit_with")));
    EQUAL(member(all, "continuation")->size, 8);
    check_side(s, all, 0, after_ids(s, NULL, NULL, NULL));
    check_side(s, all, 1, changed);
}

TEST(features_changed)
{
    const lens_sae_change changes[] = {
        {3, LENS_SAE_CLAMP, 2}, {7, LENS_SAE_SCALE, 0.5f}, {9, LENS_SAE_STEER, -1.5f}};
    lens_sae sae = ATTN_ZERO;
    SCOPED_STORY s = {0};
    write_autoencoder("sae", SAE_CFG(""));
    if (!open_story(&s, TINY, NULL))
        return;
    OK(&s.ctx, lens_sae_open(&s.ctx, &sae, TMP "sae"));
    lens_sae_watch watch = {.sae = &sae, .changes = changes, .n_changes = 3};
    for (int k = 0; k < 2; k++) {
        watch.keep_error = k;
        check_sides(
            &s,
            parse(k ? LENS MODEL "sae " TMP "sae " IDS
                                 "--change 3=2 --change '7*0.5' --change 9-1.5 -n 4 --json"
                    : LENS MODEL
                      "sae " TMP "sae " IDS
                      "--change 3=2 --change '7*0.5' --change 9-1.5 -n 4 --json --no-error"),
            after_ids(&s, sae.hook, lens_sae_hook, &watch));
    }
    watch.n_changes = 0; /* the reconstruction alone */
    watch.keep_error = 0;
    check_sides(&s, parse(LENS MODEL "sae " TMP "sae " IDS "--no-error -n 4 --json"),
                after_ids(&s, sae.hook, lens_sae_hook, &watch));
    lens_sae_free(&s.ctx, &sae);
    attn_ctx_free(&watch.ctx);
    CHECK(works(LENS MODEL "sae " TMP "sae 'Once upon' --change 3=2") &&
          strstr(out, "\nWith it: \"") && strstr(out, "p without"));
    CHECK(works(LENS MODEL "sae " TMP "sae 'Once upon' --change 3=2 -n 0 -o " TMP "changed.html"));
    refuses(2, "\"3\" is not a feature and what becomes of it",
            LENS MODEL "sae " TMP "sae Once --change 3");
    refuses(2, "\"3=\" is not a feature", LENS MODEL "sae " TMP "sae Once --change 3=");
    refuses(2, "\"3-\" is not a feature", LENS MODEL "sae " TMP "sae Once --change 3-");
    refuses(2, "\"3=1x\" is not a feature", LENS MODEL "sae " TMP "sae Once --change 3=1x");
    refuses(2, "\"-3=1\" is not a feature", LENS MODEL "sae " TMP "sae Once --change=-3=1");
    refuses(1, "no feature 30; the autoencoder has 0 to 29",
            LENS MODEL "sae " TMP "sae Once --change 30=1");
    refuses(2, "--change means nothing to steer", LENS MODEL "steer Once --change 3=1");
}

/* ---- steering ---- */

TEST(steering_by_texts)
{
    static const char name[] = "blocks.1.hook_resid_pre";
    static const int32_t towards[] = {414, 286}, away[] = {433};
    const lens_tokens to = {towards, 2}, from = {away, 1};
    attn_session *session = NULL;
    attn_tensor direction = no_tensor;
    SCOPED_STORY s = {0};
    if (!open_story(&s, TINY, NULL))
        return;
    OK(&s.ctx, lens_steering_vector(&s.ctx, &direction, s.model, name, &to, &from));
    attn_edit e = {.name = name, .kind = ATTN_EDIT_ADD};
    OK(&s.ctx, attn_scale(&s.ctx, &e.value, direction, -2.5f));
    OK(&s.ctx, attn_session_new(&s.ctx, &session, s.model, NULL));
    OK(&s.ctx, attn_hook_edit(&s.ctx, NULL, session, &e));
    OK(&s.ctx, attn_feed(&s.ctx, session, ids, N_IDS));
    check_sides(&s,
                parse(LENS MODEL "steer " IDS
                                 "--towards '414 286' --away 433 --layer 1 --strength -2.5 -n 4 "
                                 "--json"),
                session);
    CHECKF(run(LENS MODEL "steer 'The toy broke. He' --towards 'so happy' --away 'so sad'") == 0 &&
               strstr(out, "goes on: \" was very sad.") &&
               strstr(out, "With it: \" was very happy."),
           "the example of --help: %s", out);
    CHECK(works(LENS MODEL "steer 'Once upon' --towards ' happy' --away ' sad'") &&
          strstr(out, "the mean of blocks.2.hook_resid_pre over \" happy\""));
    CHECK(works(LENS MODEL "steer Once --towards a --away b -n 0 -o " TMP "steer.html"));
    same(LENS MODEL "steer Once --towards a --away b --strength 0 --json | grep '\"run\"'",
         LENS MODEL "steer Once --towards b --away a --strength 0 --json | grep '\"run\"'");
    refuses(2, "steer needs a direction", LENS MODEL "steer Once");
    refuses(2, "steer needs a direction", LENS MODEL "steer Once --towards a");
    refuses(2, "steer needs a direction", LENS MODEL "steer Once --towards a --away b --vector x");
    refuses(2, "--strength: \"x\" is not a number", LENS MODEL "steer Once --strength x");
    refuses(1, "there is no layer 4", LENS MODEL "steer Once --towards a --away b --layer 4");
}

TEST(steering_by_a_file)
{
    static const char *const names[] = {"direction.1", "direction.3"};
    attn_tensor values[2];
    lens_control control = ATTN_ZERO;
    SCOPED_STORY s = {0};
    if (!open_story(&s, TINY, NULL))
        return;
    random_state = 3;
    values[0] = random_tensor(1, 192);
    values[1] = random_tensor(1, 192);
    OK(&s.ctx, lens_save(&s.ctx, TMP "vector.safetensors", names, values, 2));
    OK(&s.ctx, lens_control_open(&s.ctx, &control.directions, s.model, TMP "vector.safetensors"));
    control.strength = 3;
    check_sides(&s,
                parse(LENS MODEL "steer " IDS "--vector " TMP
                                 "vector.safetensors --strength 3 -n 4 --json"),
                after_ids(&s, LENS_CONTROL_POINTS, lens_control_hook, &control));
    memset((float *)control.directions.data + 192, 0, 192 * sizeof(float));
    check_sides(&s,
                parse(LENS MODEL "steer " IDS "--vector " TMP
                                 "vector.safetensors --strength 3 -n 4 --json --layer 3"),
                after_ids(&s, LENS_CONTROL_POINTS, lens_control_hook, &control));
    attn_tensor_free(&s.ctx, &control.directions);
    refuses(1, "expected floats of [192]",
            LENS MODEL "steer Once --vector tests/fixtures/steering/control.gguf");
    refuses(1, "its architecture is gpt2; expected controlvector",
            LENS MODEL "steer Once --vector tests/fixtures/convert/tiny.gguf");
}

/* ---- scores ---- */

TEST(scores_taken_apart_by_lens)
{
    const lens_qk which = {ids, N_IDS, 1, 2, 2, 1};
    attn_tensor terms = no_tensor;
    double sum = 0;
    SCOPED_STORY s = {0};
    if (!open_story(&s, TINY, NULL))
        return;
    OK(&s.ctx, lens_qk_terms(&s.ctx, &terms, s.model, &which));
    size_t n = terms.shape[0];
    const json_value *all = parse(LENS MODEL "qk " IDS "--layer 1 --head 2 --key 1 --json");
    CHECK(all && member(all, "terms")->size == n * n);
    for (size_t i = 0; i < n * n; i++) {
        const json_value *const row = table_row(all, "terms", i);
        CHECK(json_is(member(row, "query_part"), lens_qk_label(s.model, 1, i / n).text) &&
              json_is(member(row, "key_part"), lens_qk_label(s.model, 1, i % n).text));
        is_float(member(row, "contribution"), attn_get2(terms, i / n, i % n), "a share");
        sum += number(member(row, "contribution"));
    }
    EQUAL(number(fact(all, "query")), 2);
    CHECK(fabs(sum - number(fact(all, "score"))) < 1e-4);
    /* the key of the highest score is the one with the highest weight */
    all = parse(LENS MODEL "qk " IDS "--layer 1 --head 2 --json");
    CHECK(number(fact(all, "weight")) >= 1.0 / N_IDS);
    CHECK(works(LENS MODEL "qk 'Once upon' --layer 1 --head 2 --top 3") &&
          strstr(out, "the largest pairs") && strstr(out, "as query") && strstr(out, "3."));
    CHECK(works(LENS MODEL "qk 'Once upon' --layer 1 --head 2 -o " TMP "qk.svg"));
    refuses(2, "qk needs a head", LENS MODEL "qk Once --layer 1");
    refuses(1, "there is no head 6 of layer 1", LENS MODEL "qk Once --layer 1 --head 6");
    refuses(1, "position 1 cannot look at position 2",
            LENS MODEL "qk " IDS "--layer 1 --head 2 --at 1 --key 2");
    refuses(1, "position 3 cannot look at position 0",
            LENS MODEL "qk " IDS "--layer 1 --head 2 --at 3 --key 0");
}

/* ---- the tuned lens ---- */

TEST(logit_lens_through_a_tuned_one)
{
    char command[512], text[128] = "";
    attn_tensor tokens, want;
    CHECK(fixture(&tokens, "tokens"));
    for (size_t t = 0; t < 9; t++)
        sprintf(text + strlen(text), "%d ", (int)((const int32_t *)tokens.data)[t]);
    CHECK(run(TEST_BUILD "/attn-convert tests/golden/narrow " TMP "tuned.attn --dtype f32 "
                         "2>/dev/null") == 0);
    snprintf(command, sizeof command,
             LENS TMP "tuned.attn logit-lens --ids '%s' --top 1 --json --tuned "
                      "tests/fixtures/steering/tuned.safetensors",
             text);
    const json_value *all = parse(command);
    for (size_t i = 0; i < 3; i++) {
        CHECK(fixture(&want, "%s", test_text("tuned.%d", (int)i)));
        for (size_t t = 0; t < 9; t++) {
            float most = -INFINITY;
            for (size_t v = 0; v < 43; v++)
                most = fmaxf(most, attn_get2(want, t, v));
            CHECKF(fabs(number(cell(all, "top", i * 9 + t, "logit")) - (double)most) < 1e-4,
                   "layer %d, position %d", (int)i, (int)t);
        }
    }
    refuses(2, "leave out --saved-scale", LENS MODEL "logit-lens Once --tuned x --saved-scale");
    refuses(1, "has 6 tensors; expected 0.weight",
            LENS MODEL "logit-lens Once --tuned tests/fixtures/steering/tuned.safetensors");
}

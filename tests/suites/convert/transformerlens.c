/* TransformerLens's state dicts (fixtures/transformerlens, from make_transformerlens_fixtures.py): the
 * converted models have the logits and activations of HookedTransformer in float64, and what cannot be
 * represented is refused. */
#define PROGRAM "test"
#include "tools/common/program.h"
#define FIXTURE_FILE "tests/fixtures/transformerlens/outputs.bin"
#include "tests/support/fixture.h"
#include "tests/support/converting.h"
#include <math.h>

SUITE_WITH(NULL, forget);

#define TL "tests/fixtures/transformerlens/"

static const char *const names[] = {"blocks.*.hook_resid_post",   "blocks.*.attn.hook_q",
                                    "blocks.*.attn.hook_pattern", "blocks.*.hook_attn_out",
                                    "blocks.*.hook_mlp_out",      "ln_final.hook_normalized.pre"};

/* The largest difference, as a share of the largest number. */
static double distance(const float *got, attn_tensor want)
{
    const float *w = (const float *)want.data;
    double largest = 0, most = 0;
    for (size_t i = 0; i < attn_count(want); i++) {
        const double difference = fabs((double)got[i] - (double)w[i]);
        largest = fmax(largest, fabs((double)w[i]));
        most = difference > most || difference != difference ? difference : most;
    }
    return most / largest;
}

/* Every activation that is recorded and is among the fixtures; returns their number. */
static size_t same_activations(const attn_record *record, const char *model)
{
    attn_ctx ctx = alone();
    attn_tensor want, got;
    size_t n = 0;
    for (size_t i = 0; i < attn_record_n_activations(record); i++) {
        const char *name = attn_record_name(record, i), *as = name;
        memset(&got, 0, sizeof got);
        OK(&ctx, attn_record_get(&ctx, &got, record, name));
        if (strncmp(name, "ln_final", 8) == 0)
            as = "ln_final.hook_normalized"; /* there it is before w and b */
        if (!fixture(&want, "%s.%s", model, as)) {
            /* there are no MLPs in TransformerLens, and MLPs that write nothing here */
            const float *x = (const float *)got.data;
            size_t j = 0;
            while (j < attn_count(got) && !(x[j] < 0 || x[j] > 0))
                j++;
            CHECKF(strstr(name, "mlp_out") && j == attn_count(got), "%s %s", model, name);
            continue;
        }
        CHECKF(attn_count(got) == attn_count(want) &&
                   distance((const float *)got.data, want) < 2e-6,
               "%s %s: %g", model, name, distance((const float *)got.data, want));
        n++;
    }
    return n;
}

static void same_as_transformerlens(const char *name, size_t n_layer, int has_b_U)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model;
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_feed_item item = ATTN_ZERO;
    attn_tensor ids = fixture_tensor("ids"), logits = fixture_tensor("%s.logits", name);
    float *out_logits = (float *)pool_new(attn_count(logits) * sizeof(float));
    size_t n;
    if ((model = converted(test_text(TL "%s", name), "--no-tokenizer")) == NULL)
        return;
    CHECKF(attn_model_config(model)->n_layer == n_layer &&
               attn_model_config(model)->has_b_U == has_b_U && !attn_model_config(model)->tied,
           "%s", name);
    attn_record_desc what = {.names = names, .n_names = sizeof names / sizeof names[0]};
    what.n_positions = item.n_tokens = attn_count(ids);
    item.tokens = (const int32_t *)ids.data;
    item.logits = out_logits;
    if (OK(&ctx, attn_session_new(&ctx, &session, model, NULL)) &&
        OK(&ctx, attn_record_new(&ctx, &record, session, &what))) {
        item.session = session;
        OK(&ctx, attn_feed_batch(&ctx, &item, 1));
        CHECKF(distance(out_logits, logits) < 2e-6, "%s: logits %g", name,
               distance(out_logits, logits));
        n = same_activations(record, name);
        CHECKF(n == 4 * n_layer + 1 + (strcmp(name, "attn-only") ? n_layer : 0), "%s: %zu", name,
               n);
    }
    attn_record_free(record);
    attn_session_free(session);
    attn_model_close(model);
}

TEST(transformerlens_keeps_its_numbers)
{
    same_as_transformerlens("full", 2, 1);
    same_as_transformerlens("folded", 2, 1);
    same_as_transformerlens("attn-only", 2, 1);
    same_as_transformerlens("odd", 1, 1);
}

static void same_as_bridge(const char *dir, const char *name, int is_tied)
{
    attn_ctx ctx = ATTN_ZERO;
    SCOPED_SESSION session = NULL;
    attn_tensor ids = fixture_tensor("ids"), logits = fixture_tensor("%s.logits", name);
    SCOPED_MODEL model = converted(dir, "--no-tokenizer");
    if (!model)
        return;
    CHECK(attn_model_config(model)->tied == is_tied &&
          attn_model_config(model)->has_b_U != is_tied);
    attn_feed_item item = {.n_tokens = attn_count(ids),
                           .tokens = (const int32_t *)ids.data,
                           .logits = (float *)pool_new(attn_count(logits) * sizeof(float))};
    if (OK(&ctx, attn_session_new(&ctx, &session, model, NULL))) {
        item.session = session;
        OK(&ctx, attn_feed_batch(&ctx, &item, 1));
        CHECKF(distance(item.logits, logits) < 2e-6, "%s: %g", dir, distance(item.logits, logits));
    }
}

/* A TransformerBridge's state dict: as it is, after compatibility mode, under a wrapper's prefix, and without
 * the one of the two tied tables that safetensors' save_model drops. */
TEST(bridge_keeps_its_numbers)
{
    same_as_bridge(TL "bridge", "bridge", 1);
    same_as_bridge(TL "bridge-processed", "bridge-processed", 0);
    same_as_bridge(variant(TL "bridge", "model.safetensors", "\"unembed.weight\"", "\"unembed.X\""),
                   "bridge", 1);
    same_as_bridge(variant(TL "bridge", "model.safetensors", "\"embed.weight\"", "\"X\""), "bridge",
                   1);
    const char *dir = copied(TL "bridge-processed");
    edit(dir, "config.json", "\"normalization_type\": \"LN\"", "\"normalization_type\": \"LNPre\"");
    same_as_bridge(dir, "bridge-processed", 0);
    refused(variant(TL "bridge", "model.safetensors", "\"blocks.1.attn.k.weight\"", "\"X\""),
            "--no-tokenizer", "the tensor blocks.1.attn.k.weight is missing");
    refused(variant(TL "bridge", "model.safetensors", "\"unembed.bias\"", "\"X\""),
            "--no-tokenizer", "the tensor unembed.bias is missing");
}

/* Smaller weights, and pieces of a matrix that begin and end inside a head. */
TEST(transformerlens_in_other_types)
{
    static const char *const types[] = {"--dtype f16", "--dtype q8", "--dtype q4"};
    attn_ctx ctx = ATTN_ZERO;
    for (size_t i = 0; i < 3; i++) {
        SCOPED_MODEL model = converted(TL "attn-only", types[i]);
        attn_tensor w = ATTN_ZERO;
        if (model && OK(&ctx, attn_model_tensor(&ctx, &w, model, "blocks.1.mlp.W_out")))
            for (size_t j = 0; j < attn_count(w); j++)
                CHECK(!(attn_get2(w, 0, j) < 0 || attn_get2(w, 0, j) > 0));
        attn_tensor_free(&ctx, &w);
    }
}

static const char *const refusals[][4] = {
    {"full", "\"positional_embedding_type\": \"standard\"",
     "\"positional_embedding_type\": \"rotary\"",
     "config.json: positional_embedding_type is rotary; only standard is supported"},
    {"full", "\"positional_embedding_type\": \"standard\"",
     "\"positional_embedding_type\": \"shortformer\"", "shortformer; only standard"},
    {"full", "\"act_fn\": \"gelu_new\"", "\"act_fn\": \"solu_ln\"",
     "act_fn is solu_ln; only gelu_new, gelu_fast, gelu, relu or silu"},
    {"full", "\"act_fn\": \"gelu_new\"", "\"act\": 1", "config.json has no act_fn"},
    {"full", "\"normalization_type\": \"LN\"", "\"normalization_type\": \"RMS\"",
     "normalization_type is RMS; only LN or LNPre"},
    {"full", "\"normalization_type\": \"LN\"", "\"normalization_type\": null",
     "normalization_type is null; only LN or LNPre"},
    {"full", "\"normalization_type\": \"LN\"", "\"normalization_type\": \"LNPre\"",
     "nothing in a GPT-2 of 2 layers asks for the tensor blocks."},
    {"folded", "\"normalization_type\": \"LNPre\"", "\"normalization_type\": \"LN\"",
     "the tensor blocks.0.ln1.w is missing"},
    {"attn-only", "\"attn_only\": true", "\"attn_only\": false",
     "the tensor blocks.0.mlp.W_in is missing"},
    {"full", "\"attn_only\": false", "\"attn_only\": true", "asks for the tensor blocks."},
    {"full", "\"attention_dir\": \"causal\"", "\"attention_dir\": \"bidirectional\"",
     "attention_dir is bidirectional; only causal"},
    {"full", "\"gated_mlp\": false", "\"gated_mlp\": true", "gated_mlp is true; only false"},
    {"full", "\"parallel_attn_mlp\": false", "\"parallel_attn_mlp\": true", "parallel_attn_mlp"},
    {"full", "\"num_experts\": null", "\"num_experts\": 4", "num_experts is 4; only none"},
    {"full", "\"attn_scores_soft_cap\": -1.0", "\"attn_scores_soft_cap\": 30.0",
     "attn_scores_soft_cap is 30.0; only none"},
    {"full", "\"attn_scale\": 2.0", "\"attn_scale\": 3.0", "attn_scale is 3; only the square root"},
    {"full", "\"d_vocab_out\": 29", "\"d_vocab_out\": 28", "d_vocab_out must be d_vocab"},
    {"full", "\"n_key_value_heads\": null", "\"n_key_value_heads\": 2",
     "n_key_value_heads must be n_heads"},
    {"full", "\"d_head\": 4", "\"d_head\": 5", "n_heads 4 times d_head 5 must be d_model, 16"},
    {"full", "\"d_head\": 4", "\"d_head\": 0", "must be d_model, 16"},
    {"full", "\"n_heads\": 4", "\"n_heads\": 0", "must be d_model, 16"},
    {"full", "\"n_layers\": 2", "\"n_layers\": 3", "the tensor blocks.2.ln1.w is missing"},
    {"full", "\"n_layers\": 2", "\"n_layers\": 60000", "the tensor blocks.2.ln1.w is missing"},
    {"full", "\"n_layers\": 2", "\"n_layers\": 1", "asks for the tensor blocks.1."},
    {"full", "\"n_ctx\": 11", "\"n_ctx\": 12", "pos_embed.W_pos is [11, 16], but config.json"},
    {"full", "\"d_mlp\": 24", "\"d_mlp\": 23", "blocks.0.mlp.W_in is [16, 24], but"},
    {"full", "\"eps\": 1e-05", "\"eps\": 0", "the layer norm epsilon is 0"}};

TEST(transformerlens_refuses)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        refused(variant(test_text(TL "%s", refusals[i][0]), "config.json", refusals[i][1],
                        refusals[i][2]),
                "--no-tokenizer", refusals[i][3]);
    }
}

/* Damaged and foreign tensors. */
TEST(transformerlens_with_other_tensors)
{
    static const mistake edits[] = {
        {"\"unembed.W_U\"", "\"unembed.X_U\"", "the tensor unembed.W_U is missing"},
        {"\"unembed.b_U\"", "\"unembed.x_U\"", "the tensor unembed.b_U is missing"},
        {"\"blocks.1.attn.b_K\"", "\"blocks.1.attn.b_X\"", "blocks.1.attn.b_K is missing"},
        {"\"embed.W_E\"", "\"embed.W_X\"", "config.json is TransformerLens's, but no tensor is"},
        {"[4,16,4]", "[4,4,16]", "attn.W_K is [4, 4, 16], but config.json asks for [4, 16, 4]"},
        {"[4,4,16]", "[16,16]", "attn.W_O is [16, 16], but config.json asks for [4, 4, 16]"},
        {"[4,4]", "[16]", "is [16], but config.json asks for [4, 4]"}};
    refused_each(TL "full", "model.safetensors", "--no-tokenizer", edits,
                 sizeof edits / sizeof edits[0]);
    const char *dir = copied(TL "full");
    CHECK(run("head -c 20000 %s/model.safetensors >%s/m && mv %s/m %s/model.safetensors", dir, dir,
              dir, dir) == 0);
    refused(dir, "--no-tokenizer", "was the file cut short?");
    dir = copied(TL "full");
    CHECK(run("cp " STORIES "/config.json %s/config.json", dir) == 0);
    refused(dir, "--no-tokenizer", "the tensors have TransformerLens's names, so config.json must");
    dir = copied(TL "full");
    CHECK(run("cp %s/config.json %s/c && cp " STORIES "/model.safetensors %s/", dir, dir, dir) ==
          0);
    refused(dir, "--no-tokenizer", "config.json is TransformerLens's, but no tensor is embed.W_E");
}

/* The same bits everywhere: what this build of attn.h computes, as one checksum for each model,
 * data type of its weights and way of using it.
 *
 *     cc -std=c99 -O2 -I. tests/platforms/portability.c -lm -o portability
 *     portability DIRECTORY            prints the table
 *     portability DIRECTORY TABLE [N]...
 *                                      compares: every instruction set that is here, then the best
 *                                      one on N threads
 *
 * The directory holds the models as .attn files, made by attn-convert (see portability.sh), and a
 * receipt of a text for each, made by gpt2. There
 * are two tables in one file: `fused`, which every build must reproduce, and `unfused`, for kernels
 * whose name says that they have no fused multiply-add. Nothing here calls libm, and no number is
 * made from a float but by copying its bits, so what differs was made different by attn.h. */
#ifndef __wasi__ /* whose system has no signals, which the tools' headers ask for */
#define HAVE_RECEIPTS
#include "tools/common/system.h"
#endif
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "examples/from_scratch/torch.h"
#include "tools/lens/graph_check.h"
#include "tools/lens/graph_prune.h"
#include "tools/lens/interaction.h"
#include "tools/write/writer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 256, MAX_TOKENS = 320 };

typedef struct line {
    char what[48]; /* "plain f16 prefill" */
    uint64_t sum;
} line;

typedef struct table {
    line lines[MAX_LINES];
    int n;
} table;

static int failures; /* calls that failed */

static int good(const attn_ctx *ctx, attn_status status, const char *what)
{
    if (status == ATTN_OK)
        return 1;
    printf("%s: %s\n", what, ctx->message);
    failures++;
    return 0;
}

/* Sums of bits, the same on any byte order. */
static uint64_t add_word(uint64_t sum, uint32_t word)
{
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    return sum ^ (sum >> 29);
}

static uint64_t add_floats(uint64_t sum, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        if ((bits & 0x7FFFFFFF) > 0x7F800000) /* which NaN it is nobody promises */
            bits = 0x7FC00000;
        sum = add_word(sum, bits);
    }
    return sum;
}

static uint64_t add_ids(uint64_t sum, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = add_word(sum, (uint32_t)ids[i]);
    return sum;
}

static uint64_t add_bytes(uint64_t sum, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = add_word(sum, (unsigned char)bytes[i]);
    return sum;
}

static void put(table *t, const char *model, const char *way, uint64_t sum)
{
    line *l = &t->lines[t->n++];
    sprintf(l->what, "%.20s %.20s", model, way);
    l->sum = sum;
}

#ifdef HAVE_RECEIPTS
#include "receipts.h"
#endif

/* ---- ways of using a model ---- */

static size_t n_tokens_for(const attn_model *model)
{
    const attn_config *c = attn_model_config(model);
    const size_t n = c->d_model > 100 ? 16 : 300; /* more than 256: two chains over the keys */
    return n < c->n_ctx ? n : c->n_ctx;
}

static void make_tokens(const attn_model *model, uint32_t seed, int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((seed >> 8) % attn_model_config(model)->n_vocab);
    }
}

static attn_session *session_for(attn_ctx *ctx, const attn_model *model, attn_dtype cache)
{
    attn_session_desc desc;
    attn_session *session = NULL;
    memset(&desc, 0, sizeof desc);
    desc.n_ctx = n_tokens_for(model);
    desc.cache_dtype = cache;
    good(ctx, attn_session_new(ctx, &session, model, &desc), "attn_session_new");
    return session;
}

/* The logits of all positions in one call. */
static uint64_t prefill(attn_ctx *ctx, const attn_model *model, attn_dtype cache)
{
    const size_t n = n_tokens_for(model), count = n * attn_model_config(model)->n_vocab;
    attn_session *session = session_for(ctx, model, cache);
    int32_t tokens[MAX_TOKENS];
    float *logits = (float *)malloc(count * sizeof(float));
    attn_feed_item item;
    uint64_t sum = 0;
    memset(&item, 0, sizeof item);
    make_tokens(model, 1, tokens, n);
    item.session = session;
    item.tokens = tokens;
    item.n_tokens = n;
    item.logits = logits;
    if (session && logits && good(ctx, attn_feed_batch(ctx, &item, 1), "prefill"))
        sum = add_floats(0, logits, count);
    free(logits);
    attn_session_free(session);
    return sum;
}

/* The same tokens one by one: must be the same sum. */
static uint64_t decode(attn_ctx *ctx, const attn_model *model)
{
    const size_t n = n_tokens_for(model);
    attn_session *session = session_for(ctx, model, ATTN_F32);
    int32_t tokens[MAX_TOKENS];
    uint64_t sum = 0;
    make_tokens(model, 1, tokens, n);
    for (size_t i = 0;
         session && i < n && good(ctx, attn_feed(ctx, session, tokens + i, 1), "decode"); i++)
        sum = add_floats(sum, attn_session_logits(session), attn_model_config(model)->n_vocab);
    attn_session_free(session);
    return sum;
}

/* Three sequences of different lengths in one pass, twice; then the last logits of each. */
static uint64_t batch(attn_ctx *ctx, const attn_model *model)
{
    const size_t n = n_tokens_for(model);
    attn_session *session[3];
    int32_t tokens[3][MAX_TOKENS];
    attn_feed_item item[3];
    attn_workspace *workspace = NULL;
    uint64_t sum = 0;
    int able = 1;
    for (size_t i = 0; i < 3; i++) {
        session[i] = session_for(ctx, model, ATTN_F32);
        make_tokens(model, (uint32_t)i + 2, tokens[i], n);
        able = able && session[i];
    }
    able = able && good(ctx, attn_workspace_new(ctx, &workspace, model, NULL), "workspace");
    for (size_t i = 0; able && i < 3; i++)
        able = good(ctx, attn_session_set_workspace(ctx, session[i], workspace), "workspace");
    attn_workspace_free(workspace);
    for (size_t turn = 0; able && turn < 2; turn++) {
        for (size_t i = 0; i < 3; i++) {
            const size_t first = turn ? n / (i + 2) : 0, last = turn ? n - i : n / (i + 2);
            memset(&item[i], 0, sizeof item[i]);
            item[i].session = session[i];
            item[i].tokens = tokens[i] + first;
            item[i].n_tokens = last - first;
        }
        able = good(ctx, attn_feed_batch(ctx, item, 3), "batch");
        for (size_t i = 0; able && i < 3; i++)
            sum =
                add_floats(sum, attn_session_logits(session[i]), attn_model_config(model)->n_vocab);
    }
    for (size_t i = 0; i < 3; i++)
        attn_session_free(session[i]);
    return sum;
}

/* Every activation by its name: a sum of sums, so that the order does not matter. */
static int watch(const attn_activation *a, void *user)
{
    uint64_t sum = add_bytes(0, a->name, strlen(a->name));
    float x;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; j < a->value.shape[1]; j++)
            for (size_t k = 0; k < a->value.shape[2]; k++) {
                x = a->value.ndim == 3 ? attn_get3(a->value, i, j, k) : attn_get2(a->value, i, j);
                sum = add_floats(sum, &x, 1);
            }
    *(uint64_t *)user += sum;
    return 0;
}

static uint64_t watched(attn_ctx *ctx, const attn_model *model)
{
    attn_session *session = session_for(ctx, model, ATTN_F32);
    int32_t tokens[8];
    uint64_t sum = 0;
    make_tokens(model, 5, tokens, 8);
    if (session && good(ctx, attn_hook(ctx, NULL, session, "*", watch, &sum), "attn_hook"))
        good(ctx, attn_feed(ctx, session, tokens, 8), "watched");
    attn_session_free(session);
    return sum;
}

/* d log-probability / d activation, for every activation by its name. */
static uint64_t gradients(attn_ctx *ctx, const attn_model *model)
{
    static const char *const names[] = {"*", "*.hook_result", "*.hook_attn_in", "*.hook_k_input"};
    lens_backward backward = ATTN_ZERO;
    lens_gradients_desc what = ATTN_ZERO;
    attn_record *record = NULL;
    attn_activation a = ATTN_ZERO;
    int32_t tokens[8];
    uint64_t sum = 0;
    make_tokens(model, 7, tokens, 8);
    what.tokens = tokens;
    what.n_tokens = 8;
    what.names = names;
    what.n_names = sizeof names / sizeof names[0];
    what.metric.kind = LENS_METRIC_LOG_PROB;
    what.metric.token = 1;
    if (good(ctx, lens_backward_new(ctx, &backward, model), "lens_backward_new"))
        good(ctx, lens_gradients(ctx, &record, NULL, &backward, &what), "lens_gradients");
    for (size_t i = 0; record && i < attn_record_n_activations(record); i++) {
        a.name = attn_record_name(record, i);
        if (good(ctx, attn_record_get(ctx, &a.value, record, a.name), "attn_record_get"))
            watch(&a, &sum);
    }
    attn_record_free(record);
    lens_backward_free(ctx, &backward);
    return sum;
}

/* The effect of every edge between the parts of a model, on two texts that differ from a position on; or of every
 * pair of nodes. */
static uint64_t exact_effects(attn_ctx *ctx, const attn_model *model, int of_pairs)
{
    lens_exact_desc what = ATTN_ZERO;
    lens_joint_desc joint = ATTN_ZERO;
    lens_pair pair = ATTN_ZERO;
    attn_tensor effects = ATTN_ZERO;
    int32_t clean[6], corrupted[6];
    uint64_t sum = 0;
    make_tokens(model, 8, clean, 6);
    make_tokens(model, 9, corrupted, 6);
    memcpy(corrupted, clean, 3 * sizeof *clean);
    pair.clean = clean;
    pair.corrupted = corrupted;
    pair.n_tokens = 6;
    pair.metric.kind = LENS_METRIC_LOGIT_DIFF;
    pair.metric.token = 1;
    pair.metric.against = 2;
    what.pairs = joint.pairs = &pair;
    what.n_pairs = joint.n_pairs = 1;
    if (of_pairs
            ? good(ctx, lens_interactions(ctx, &effects, NULL, model, &joint), "lens_interactions")
            : good(ctx, lens_exact_effects(ctx, &effects, NULL, model, &what),
                   "lens_exact_effects"))
        sum = add_floats(0, (const float *)effects.data, attn_count(effects));
    attn_tensor_free(ctx, &effects);
    return sum;
}

/* A matrix [rows, columns], or a vector if rows is 0, of numbers between -0.5 and 0.5. */
static attn_tensor numbers(attn_ctx *ctx, uint32_t seed, size_t rows, size_t columns)
{
    attn_tensor x = ATTN_ZERO;
    good(ctx,
         attn_zeros(ctx, &x, ATTN_F32, rows ? attn_shape2(rows, columns) : attn_shape1(columns)),
         "attn_zeros");
    for (size_t i = 0; i < attn_count(x); i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)x.data)[i] = (float)(seed >> 8) / 16777216.0f - 0.5f;
    }
    return x;
}

/* The transcoder of a layer. */
static void add_transcoder(attn_ctx *ctx, lens_feature_graph *g, size_t width, size_t layer)
{
    lens_sae sae = ATTN_ZERO;
    const uint32_t seed = 100 * (uint32_t)layer;
    sae.kind = layer % 2 ? LENS_SAE_TOPK : LENS_SAE_STANDARD;
    sae.n = sae.n_out = width;
    sae.m = 24;
    sae.k = 3;
    sprintf(sae.hook, "blocks.%d.ln2.hook_normalized.p%s", (int)layer, layer % 2 ? "re" : "ost");
    sprintf(sae.hook_out, "blocks.%d.hook_mlp_out", (int)layer);
    sae.w_enc = numbers(ctx, seed, width, sae.m);
    sae.w_dec = numbers(ctx, seed + 1, sae.m, width);
    sae.b_enc = numbers(ctx, seed + 2, 0, sae.m);
    sae.b_dec = numbers(ctx, seed + 3, 0, width);
    if (layer % 2 == 0)
        sae.w_skip = numbers(ctx, seed + 4, width, width);
    good(ctx, lens_feature_graph_add(ctx, g, &sae), "lens_feature_graph_add");
    lens_sae_free(ctx, &sae);
}

static uint64_t add_doubles(uint64_t sum, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &x[i], 8);
        sum = x[i] != x[i] ? add_word(sum, 1)
                           : add_word(add_word(sum, (uint32_t)bits), (uint32_t)(bits >> 32));
    }
    return sum;
}

/* The sum of an attribution graph: its edges, its pruned edges, and the claimed and measured effects of its nodes. */
static uint64_t graph(attn_ctx *ctx, const attn_model *model)
{
    lens_backward backward = ATTN_ZERO;
    lens_feature_graph g = ATTN_ZERO;
    lens_graph_pruned pruned = ATTN_ZERO;
    lens_graph_check check = ATTN_ZERO;
    int32_t tokens[6];
    uint64_t sum = 0;
    make_tokens(model, 10, tokens, 6);
    g.tokens = tokens;
    g.n_tokens = 6;
    pruned.node_threshold = 0.8;
    pruned.edge_threshold = 0.98;
    if (good(ctx, lens_backward_new(ctx, &backward, model), "lens_backward_new") &&
        good(ctx, lens_feature_graph_begin(ctx, &g, &backward), "lens_feature_graph_begin")) {
        for (size_t i = 0; i < attn_model_config(model)->n_layer && i < 2; i++)
            add_transcoder(ctx, &g, attn_model_config(model)->d_model, i);
        if (good(ctx, lens_feature_graph_plan(ctx, &g), "lens_feature_graph_plan") &&
            good(ctx, lens_feature_graph_fill(ctx, &g), "lens_feature_graph_fill") &&
            good(ctx, lens_feature_graph_prune(ctx, &pruned, &g), "lens_feature_graph_prune") &&
            good(ctx, lens_feature_graph_check(ctx, &check, &g), "lens_feature_graph_check")) {
            for (size_t i = 0; i < g.n_edges; i++)
                sum = add_floats(sum, &g.edges[i].weight, 1);
            for (size_t i = 0; i < g.n_nodes; i++)
                sum = add_doubles(sum, &g.nodes[i].constant, 1);
            sum = add_doubles(sum, pruned.influence, g.n_nodes);
            sum = add_doubles(sum, check.claimed, g.n_nodes);
            sum = add_doubles(sum, check.measured, g.n_nodes);
            sum = add_bytes(sum, (const char *)pruned.edges, g.n_edges);
        }
    }
    lens_graph_check_free(&check);
    lens_graph_pruned_free(&pruned);
    lens_feature_graph_free(ctx, &g);
    lens_backward_free(ctx, &backward);
    return sum;
}

/* Drafting needs a text that repeats itself; the last third is sampled, not greedy. */
static uint64_t generate(attn_ctx *ctx, const attn_model *model)
{
    const size_t n = n_tokens_for(model), third = n / 3 < 20 ? n / 3 : 20;
    attn_session *session = session_for(ctx, model, ATTN_F32);
    attn_generate_desc desc;
    int32_t prompt[MAX_TOKENS], ids[MAX_TOKENS];
    attn_token_stats stats[MAX_TOKENS];
    float nll[MAX_TOKENS];
    uint64_t sum = 0;
    attn_generation made;
    memset(&made, 0, sizeof made);
    made.tokens = ids;
    made.room = MAX_TOKENS;
    memset(&desc, 0, sizeof desc);
    make_tokens(model, 6, prompt, third);
    for (size_t i = third / 2; i < third; i++)
        prompt[i] = prompt[i - third / 2];
    desc.ignore_eos = 1;
    desc.max_tokens = third;
    desc.prompt_tokens = prompt;
    desc.n_prompt_tokens = third;
    for (int turn = 0; session && turn < 2; turn++) {
        if (!good(ctx, attn_generate(ctx, &made, session, NULL, &desc), "attn_generate"))
            break;
        sum = add_ids(sum, ids, made.n_tokens);
        desc.n_prompt_tokens = 0;
        desc.sampling.temperature = 0.8f;
        desc.sampling.top_k = 30;
        desc.sampling.top_p = 0.95f;
        desc.sampling.repeat_penalty = 1.1f;
        desc.sampling.seed = 7;
    }
    if (session && attn_session_length(session) > 1) { /* what it thinks of all that */
        size_t length = attn_session_length(session);
        memcpy(prompt, attn_session_tokens(session), length * sizeof *prompt);
        if (good(ctx, attn_session_truncate(ctx, session, 0), "attn_session_truncate") &&
            good(ctx, attn_score(ctx, stats, NULL, session, prompt, length), "attn_score")) {
            for (size_t i = 0; i + 1 < length; i++)
                nll[i] = stats[i].nll;
            sum = add_floats(sum, nll, length - 1);
        }
    }
    attn_session_free(session);
    return sum;
}

static uint64_t words(attn_ctx *ctx, const attn_model *model)
{
    static const char text[] = "Once upon a time, there was a caf\xc3\xa9 \xf0\x9f\x90\x88 -- it's "
                               "12345 \xff\xfe steps\n\n  away.<|endoftext|>";
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    int32_t ids[128];
    char back[256];
    size_t n = 0, size = 0;
    n = 128;
    size = sizeof back;
    if (!good(ctx, attn_encode_special(ctx, ids, &n, tokenizer, text, sizeof text - 1), "encode") ||
        !good(ctx, attn_decode(ctx, back, &size, tokenizer, ids, n), "decode"))
        return 0;
    return add_bytes(add_ids(0, ids, n), back, size);
}

/* ---- operations without a model ---- */

static uint64_t add_tensor(uint64_t sum, attn_tensor x)
{
    return add_floats(sum, (const float *)x.data, attn_count(x));
}

static uint64_t operations(attn_ctx *ctx)
{
    static torch_rng rng;
    attn_tensor x, wide, other, bias, out, f16, masked;
    uint64_t sum = 0;
    const float edges[] = {0.0f, -0.0f, 1e-45f, -1e-40f, 3e38f, -3e38f, 88.0f, -104.0f, INFINITY};
    memset(&x, 0, sizeof x);
    wide = other = bias = f16 = masked = x;
    torch_manual_seed(&rng, 3);
    if (!good(ctx, torch_randn(ctx, &x, attn_shape2(7, 299), &rng), "torch_randn") ||
        !good(ctx, torch_linear(ctx, &other, &bias, 299, 37, &rng), "torch_linear") ||
        !good(ctx, attn_scale(ctx, &wide, x, 9.0f), "attn_scale") ||
        !good(ctx, attn_zeros(ctx, &f16, ATTN_F16, attn_shape2(7, 299)), "attn_zeros") ||
        !good(ctx, attn_copy(ctx, &f16, wide), "attn_copy") ||
        !good(ctx, torch_causal_mask(ctx, &masked, 7, 9), "torch_causal_mask") ||
        !good(ctx, attn_add(ctx, &masked, masked, attn_slice(x, 1, 0, 9)), "attn_add"))
        return 0;
    memcpy(wide.data, edges, sizeof edges);
    sum = add_tensor(add_tensor(add_tensor(sum, x), other), bias); /* in the order of memory */
#define MAKE(call)                                                                                 \
    do {                                                                                           \
        memset(&out, 0, sizeof out);                                                               \
        if (good(ctx, call, #call))                                                                \
            sum = add_tensor(sum, out);                                                            \
    } while (0)
    MAKE(attn_linear(ctx, &out, x, other, bias));
    MAKE(attn_linear(ctx, &out, f16, other, bias));
    MAKE(attn_matmul(ctx, &out, attn_transpose(x, 0, 1), attn_slice(x, 1, 3, 50)));
    MAKE(attn_softmax(ctx, &out, x));
    MAKE(attn_softmax(ctx, &out, wide));
    MAKE(attn_log_softmax(ctx, &out, x));
    MAKE(attn_softmax(ctx, &out, masked));
    MAKE(attn_exp(ctx, &out, wide));
    MAKE(attn_apply_mlp_act(ctx, &out, wide, ATTN_ACT_GELU_TANH));
    MAKE(attn_apply_mlp_act(ctx, &out, wide, ATTN_ACT_GELU_ERF));
    MAKE(attn_variance(ctx, &out, x, 1));
    MAKE(attn_mean(ctx, &out, f16));
    MAKE(attn_layernorm(ctx, &out, x, attn_select(x, 0, 1), attn_select(x, 0, 2), 1e-5f));
    MAKE(attn_attention(ctx, &out, attn_slice(x, 1, 0, 20), attn_slice(x, 1, 20, 20),
                        attn_slice(x, 1, 40, 33), NULL));
    MAKE(torch_dropout(ctx, &out, x, 0.3f, &rng));
    MAKE(attn_div(ctx, &out, x, attn_select(x, 0, 1)));
#undef MAKE
    for (size_t i = 0; i < 65536; i += 17)
        sum = add_word(sum, attn_f16_from_f32(attn_f32_from_f16((uint16_t)i)));
    attn_ctx_free(ctx);
    return sum;
}

/* ---- all of it ---- */

/* A model that is written again, tensor by tensor, has the bytes of its file, whatever the byte order of this
 * processor. (Rounding to q4 twice may choose other scales.) */
static void write_again(attn_ctx *ctx, const attn_model *model, const char *name)
{
    const size_t width = attn_model_config(model)->d_model;
    lens_writer *writer = NULL;
    attn_model *made = NULL;
    if (!good(ctx, lens_writer_new(ctx, &writer, NULL, attn_model_config(model), NULL, 0), name))
        return;
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        model_tensor info = ATTN_ZERO;
        attn_tensor x = ATTN_ZERO;
        info = model_tensor_at(model, i);
        if (!good(ctx, attn_model_tensor(ctx, &x, model, info.name), info.name))
            break;
        attn_tensor shaped = x.ndim == 3 ? attn_reshape(x, attn_shape2(width, width)) : x;
        good(ctx, lens_writer_add(ctx, writer, info.name, info.dtype, shaped), info.name);
        attn_tensor_free(ctx, &x);
    }
    good(ctx, lens_writer_open(ctx, &made, writer), name);
    for (size_t i = 0; made && i < model_n_tensors(made); i++) {
        model_tensor info = ATTN_ZERO, again = ATTN_ZERO;
        info = model_tensor_at(model, i);
        again = model_tensor_at(made, i);
        if (info.dtype == ATTN_Q4 || info.checksum == again.checksum)
            continue;
        printf("%s: %s has other bytes when it is written again\n", name, info.name);
        failures++;
        break;
    }
    attn_model_close(made);
    lens_writer_free(writer);
}

static void measure(table *t, const char *directory, attn_isa_kind isa, int n_threads)
{
    static const char *const models[] = {"plain", "odd", "narrow", "long", "tiny-stories"};
    static const char *const dtypes[] = {"f32", "f16", "q8", "q4"};
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.isa = isa;
    ctx.n_threads = n_threads;
    t->n = 0;
    put(t, "- -", "operations", operations(&ctx));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t j = 0; j < sizeof dtypes / sizeof *dtypes; j++) {
            char path[512], name[32];
            attn_model *model = NULL;
            sprintf(name, "%s %s", models[i], dtypes[j]);
            sprintf(path, "%.400s/%s-%s.attn", directory, models[i], dtypes[j]);
            if (!good(&ctx, attn_model_open(&ctx, &model, path, NULL), "attn_model_open"))
                continue;
            put(t, name, "prefill", prefill(&ctx, model, ATTN_F32));
            put(t, name, "f16-cache", prefill(&ctx, model, ATTN_F16));
            put(t, name, "decode", decode(&ctx, model));
            put(t, name, "batch", batch(&ctx, model));
            put(t, name, "watched", watched(&ctx, model));
            put(t, name, "gradients", gradients(&ctx, model));
            if (attn_model_config(model)->d_model <= 100) { /* others take minutes on an emulator */
                put(t, name, "exact", exact_effects(&ctx, model, 0));
                put(t, name, "interactions", exact_effects(&ctx, model, 1));
                put(t, name, "graph", graph(&ctx, model));
            }
            put(t, name, "generate", generate(&ctx, model));
            if (attn_model_tokenizer(model) && j == 0)
                put(t, name, "words", words(&ctx, model));
            if (isa == ATTN_ISA_PORTABLE)
                write_again(&ctx, model, name);
            attn_model_close(model);
        }
}

static int read_table(table *t, const char *path, const char *kind)
{
    FILE *file = fopen(path, "r");
    char text[128], fused[16], name[20], dtype[8], way[20];
    unsigned long high, low;
    t->n = 0;
    if (!file) {
        printf("%s: cannot be opened\n", path);
        return 0;
    }
    while (fgets(text, sizeof text, file))
        if (sscanf(text, "%15s %19s %7s %19s %8lx%8lx", fused, name, dtype, way, &high, &low) ==
                6 &&
            strcmp(fused, kind) == 0 && t->n < MAX_LINES) {
            line *l = &t->lines[t->n++];
            sprintf(l->what, "%s %s %s", name, dtype, way);
            l->sum = (uint64_t)high << 32 | low;
        }
    fclose(file);
    return t->n;
}

static const line *find(const table *t, const char *what)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->lines[i].what, what) == 0)
            return &t->lines[i];
    return NULL;
}

static int is_unfused(attn_isa_kind isa)
{
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.isa = isa;
    return strstr(attn_isa(&ctx), "no fused") != NULL;
}

/* Returns how many lines differ. */
static int compare(const char *directory, const char *path, attn_isa_kind isa, int n_threads)
{
    static table got, want;
    attn_ctx ctx;
    int wrong = 0;
    memset(&ctx, 0, sizeof ctx);
    ctx.isa = isa;
    if (!read_table(&want, path, is_unfused(isa) ? "unfused" : "fused"))
        return 1;
    measure(&got, directory, isa, n_threads);
    for (int i = 0; i < want.n; i++) {
        const line *l = find(&got, want.lines[i].what);
        if (l && l->sum == want.lines[i].sum)
            continue;
        if (wrong++ < 6)
            printf("  differs: %s, %s, %d threads\n", want.lines[i].what, attn_isa(&ctx),
                   n_threads);
    }
    if (got.n != want.n)
        printf("  %d lines, the table has %d\n", got.n, want.n);
    printf("  %s, %d thread%s: %d of %d\n", attn_isa(&ctx), n_threads, n_threads > 1 ? "s" : "",
           want.n - wrong, want.n);
    fflush(stdout);
    return wrong + (got.n != want.n);
}

static void print_table(const char *directory)
{
    static table t;
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    for (int unfused = 0; unfused < 2; unfused++) {
        ctx.isa = unfused ? ATTN_ISA_BASE : ATTN_ISA_PORTABLE;
        if (!attn_isa(&ctx) || is_unfused(ctx.isa) != unfused)
            continue;
        measure(&t, directory, ctx.isa, 1);
        for (int i = 0; i < t.n; i++)
            printf("%s %s %08lx%08lx\n", unfused ? "unfused" : "fused", t.lines[i].what,
                   (unsigned long)(t.lines[i].sum >> 32),
                   (unsigned long)(t.lines[i].sum & 0xFFFFFFFF));
    }
}

int main(int argc, char **argv)
{
    int wrong = 0;
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    if (argc < 2) {
        printf("usage: portability DIRECTORY [TABLE [THREADS]...]\n");
        return 2;
    }
    if (argc == 2) {
        print_table(argv[1]);
        return failures != 0;
    }
    for (int isa = ATTN_ISA_PORTABLE; isa <= (int)ATTN_ISA_NEON_I8MM; isa++) {
        ctx.isa = (attn_isa_kind)isa;
        if (attn_isa(&ctx))
            wrong += compare(argv[1], argv[2], ctx.isa, 1);
    }
    for (int n = 3; n < argc; n++)
        wrong += compare(argv[1], argv[2], ATTN_ISA_AUTO, atoi(argv[n]));
#ifdef HAVE_RECEIPTS
    wrong += check_receipts(argv[1]);
#endif
    return wrong != 0 || failures != 0;
}

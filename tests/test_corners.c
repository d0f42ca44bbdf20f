/* What the other suites leave: arguments that are wrong in one way only, sizes at which something
 * else happens, nothing where something could be. tests/coverage.py tells where such corners are.
 */

#define _XOPEN_SOURCE 700 /* for SIGXFSZ under -std=c99 */
#include "models.h"
#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static const attn_tensor none = {0};

/* A tensor of numbers that nobody looks at. */
static attn_tensor some(int ndim, size_t d0, size_t d1, size_t d2)
{
    const size_t shape[4] = {d0, d1, d2, 1};
    attn_tensor x = new_tensor(ATTN_F32, ndim, shape, LAYOUT_DENSE);
    size_t i;
    for (i = 0; i < count_of(x); i++)
        set_value(x, i, random_float());
    return x;
}

static attn_tensor some_ids(size_t n, int32_t first)
{
    const size_t shape[1] = {n};
    attn_tensor x = new_tensor(ATTN_I32, 1, shape, LAYOUT_DENSE);
    size_t i;
    for (i = 0; i < n; i++)
        ((int32_t *)x.data)[i] = first + (int32_t)i;
    return x;
}

/* What a call that is refused must not touch. */
static attn_tensor out;
#define REFUSED(status_, text, call)                                                               \
    do {                                                                                           \
        out = none;                                                                                \
        ctx.status = ATTN_OK;                                                                      \
        FAILS(&ctx, status_, text, call);                                                          \
        CHECK(out.ndim == 0);                                                                      \
    } while (0)

static void done(attn_ctx *ctx)
{
    attn_ctx_free(ctx);
    pool_clear();
}

static attn_model *model, *with_tokenizer;

static int set_up(void)
{
    model = converted("tests/golden/plain", "corners.attn", "");
    with_tokenizer = converted("examples/tiny-stories", "corners-stories.attn", "");
    return model && with_tokenizer;
}

static void tear_down(void)
{
    attn_model_close(model);
    attn_model_close(with_tokenizer);
    pool_clear();
}

SUITE_WITH("corners", set_up, tear_down);

/* ---- tier 1 ---- */

static void *bump(size_t size, void *user)
{
    size_t *at = (size_t *)user;
    static double room[1 << 12];
    void *block = (char *)room + *at;
    *at += (size + 15) / 16 * 16;
    return *at <= sizeof room ? block : NULL;
}

/* An allocator that never takes anything back needs no free, and malloc's is not asked. */
TEST(an_allocator_without_free)
{
    size_t at = 0;
    attn_ctx ctx = {0};
    attn_tensor x = none, y = none;
    ctx.alloc = bump;
    ctx.user = &at;
    OK(&ctx, attn_full(&ctx, &x, attn_shape1(5), 2));
    OK(&ctx, attn_add(&ctx, &y, x, x));
    CHECK(at > 40 && attn_get1(y, 4) == 4);
    attn_tensor_free(&ctx, &x);
    attn_ctx_free(&ctx);
    CHECK(ctx.blocks == NULL);
}

TEST(shapes_that_are_refused)
{
    attn_ctx ctx = {0};
    const attn_tensor v = some(1, 4, 1, 1), m = some(2, 3, 4, 1), sq = some(2, 4, 4, 1);
    const attn_tensor x3 = some(3, 2, 3, 4), ids = some_ids(3, 0), ids2 = some_ids(2, 0);
    attn_tensor grid = some_ids(3, 0), bits, strided;
    attn_block_weights w;
    attn_attention_desc desc;
    attn_shape shape;
    memset(&w, 0, sizeof w);
    memset(&desc, 0, sizeof desc);
    REFUSED(ATTN_E_SHAPE, "attn_softmax_causal", attn_softmax_causal(&ctx, &out, v));
    REFUSED(ATTN_E_SHAPE, "attn_softmax_causal", attn_softmax_causal(&ctx, &out, some(2, 5, 4, 1)));
    REFUSED(ATTN_E_SHAPE, "attn_cross_entropy", attn_cross_entropy(&ctx, &out, x3, ids));
    REFUSED(ATTN_E_SHAPE, "attn_cross_entropy", attn_cross_entropy(&ctx, &out, m, ids2));
    REFUSED(ATTN_E_SHAPE, "attn_cross_entropy",
            attn_cross_entropy(&ctx, &out, m, attn_reshape(ids, attn_shape2(3, 1))));
    REFUSED(ATTN_E_SHAPE, "attn_unembed", attn_unembed(&ctx, &out, m, v));
    REFUSED(ATTN_E_SHAPE, "attn_unembed", attn_unembed(&ctx, &out, m, some(2, 4, 5, 1)));
    REFUSED(ATTN_E_SHAPE, "attn_embedding", attn_embedding(&ctx, &out, v, ids));
    shape = attn_shape4(3, 1, 1, 1);
    grid = attn_reshape(grid, shape);
    REFUSED(ATTN_E_SHAPE, "attn_embedding", attn_embedding(&ctx, &out, m, grid));
    REFUSED(ATTN_E_SHAPE, "attn_embedding", attn_embedding(&ctx, &out, m, v));
    REFUSED(ATTN_E_SHAPE, "attn_attention", attn_attention(&ctx, &out, v, sq, sq, NULL));
    REFUSED(ATTN_E_SHAPE, "attn_attention", attn_attention(&ctx, &out, sq, v, sq, NULL));
    REFUSED(ATTN_E_SHAPE, "attn_attention", attn_attention(&ctx, &out, sq, sq, v, NULL));
    desc.mask_kind = (attn_mask_kind)-1;
    REFUSED(ATTN_E_ARGUMENT, "mask_kind is", attn_attention(&ctx, &out, sq, sq, sq, &desc));
    desc.mask_kind = (attn_mask_kind)3;
    REFUSED(ATTN_E_ARGUMENT, "mask_kind is 3", attn_attention(&ctx, &out, sq, sq, sq, &desc));
    desc.mask_kind = ATTN_MASK_CAUSAL;
    REFUSED(ATTN_E_SHAPE, "no more queries than keys",
            attn_attention(&ctx, &out, some(2, 5, 4, 1), sq, sq, &desc));
    desc.mask_kind = ATTN_MASK_GIVEN;
    desc.mask = v;
    REFUSED(ATTN_E_SHAPE, "the mask has shape", attn_attention(&ctx, &out, sq, sq, sq, &desc));
    desc.mask = some(2, 3, 4, 1);
    REFUSED(ATTN_E_SHAPE, "the mask has shape", attn_attention(&ctx, &out, sq, sq, sq, &desc));
    desc.mask = some(2, 4, 3, 1);
    REFUSED(ATTN_E_SHAPE, "the mask has shape", attn_attention(&ctx, &out, sq, sq, sq, &desc));
    desc.mask = some(3, 2, 4, 4); /* for a batch that there is not */
    REFUSED(ATTN_E_SHAPE, "the mask has shape", attn_attention(&ctx, &out, sq, sq, sq, &desc));
    desc.mask = none;
    REFUSED(ATTN_E_ARGUMENT, "mask", attn_attention(&ctx, &out, sq, sq, sq, &desc));

    w.w_q = w.w_k = w.w_v = sq;
    REFUSED(ATTN_E_SHAPE, "expected [T, C]", attn_multihead(&ctx, &out, v, v, &w, 2, NULL));
    REFUSED(ATTN_E_SHAPE, "expected [T, C]", attn_multihead(&ctx, &out, m, x3, &w, 2, NULL));
    REFUSED(ATTN_E_SHAPE, "expected [T, C]",
            attn_multihead(&ctx, &out, attn_reshape(x3, attn_shape4(1, 2, 3, 4)),
                           attn_reshape(x3, attn_shape4(1, 2, 3, 4)), &w, 2, NULL));
    w.w_q = v;
    REFUSED(ATTN_E_SHAPE, "for both", attn_multihead(&ctx, &out, m, m, &w, 2, NULL));
    w.w_q = sq;
    w.w_k = v;
    REFUSED(ATTN_E_SHAPE, "for both", attn_multihead(&ctx, &out, m, m, &w, 2, NULL));
    w.w_k = some(2, 4, 6, 1);
    REFUSED(ATTN_E_SHAPE, "for both", attn_multihead(&ctx, &out, m, m, &w, 2, NULL));
    w.w_k = sq;
    w.w_v = v;
    REFUSED(ATTN_E_SHAPE, "do not divide", attn_multihead(&ctx, &out, m, m, &w, 2, NULL));
    w.w_v = some(2, 4, 3, 1);
    REFUSED(ATTN_E_SHAPE, "do not divide", attn_multihead(&ctx, &out, m, m, &w, 2, NULL));
    w.w_v = sq;
    REFUSED(ATTN_E_SHAPE, "do not divide", attn_multihead(&ctx, &out, m, m, &w, 3, NULL));
    REFUSED(ATTN_E_SHAPE, "do not divide", attn_multihead(&ctx, &out, m, m, &w, 0, NULL));

    REFUSED(ATTN_E_ARGUMENT, "attn_dropout", attn_dropout(&ctx, &out, none, 0.5f, NULL));
    REFUSED(ATTN_E_ARGUMENT, "attn_tril", attn_tril(&ctx, &out, none));
    REFUSED(ATTN_E_SHAPE, "attn_tril", attn_tril(&ctx, &out, v));

    /* out of another shape or type; into halves, whole numbers and columns it goes */
    out = some(3, 1, 3, 4);
    FAILS(&ctx, ATTN_E_SHAPE, "attn_copy", attn_copy(&ctx, &out, m));
    out = some(2, 4, 3, 1);
    FAILS(&ctx, ATTN_E_SHAPE, "attn_copy", attn_copy(&ctx, &out, m));
    ctx.status = ATTN_OK;
    bits = some_ids(3, 7);
    out = some(1, 3, 1, 1);
    OK(&ctx, attn_copy(&ctx, &out, bits));
    CHECK(attn_get(out, 2, 0, 0, 0) == 9);
    OK(&ctx, attn_copy(&ctx, &bits, bits));
    CHECK(((int32_t *)bits.data)[1] == 8);
    {
        const size_t dims[2] = {3, 4};
        strided = new_tensor(ATTN_F16, 2, dims, LAYOUT_DENSE);
    }
    OK(&ctx, attn_scale(&ctx, &strided, m, 2));
    CHECK(fabs((double)attn_get(strided, 2, 3, 0, 0) - 2 * (double)attn_get(m, 2, 3, 0, 0)) < 1e-3);
    done(&ctx);
}

/* Elements beyond the edge are not numbers, whichever edge. */
TEST(beyond_the_edge)
{
    const attn_tensor x = attn_reshape(some(3, 2, 3, 4), attn_shape4(2, 1, 3, 4));
    CHECK(!isnan(attn_get(x, 1, 0, 2, 3)));
    CHECK(isnan(attn_get(x, 2, 0, 0, 0)) && isnan(attn_get(x, 0, 1, 0, 0)));
    CHECK(isnan(attn_get(x, 0, 0, 3, 0)) && isnan(attn_get(x, 0, 0, 0, 4)));
    pool_clear();
}

/* Empty tensors through what else runs over rows. */
TEST(rows_of_nothing)
{
    attn_ctx ctx = {0};
    attn_tensor x = none, y = none, z = none, empty = none, bias = none;
    attn_rng rng;
    char text[64];
    attn_rng_seed(&rng, 1);
    OK(&ctx, attn_zeros(&ctx, &empty, ATTN_F32, attn_shape2(3, 0)));
    OK(&ctx, attn_dropout(&ctx, &x, empty, 0.5f, &rng));
    OK(&ctx, attn_tril(&ctx, &y, empty));
    CHECK(attn_count(x) == 0 && attn_count(y) == 0 && x.shape[0] == 3 && y.shape[0] == 3);
    CHECK(rng.next == 624); /* nothing was drawn */
    OK(&ctx, attn_linear_init(&ctx, &z, &bias, 0, 4, &rng));
    CHECK(z.shape[0] == 0 && z.shape[1] == 4 && attn_get1(bias, 3) == 0);
    attn_format(empty, 2, text, sizeof text);
    CHECK(strstr(text, "[]") != NULL);
    CHECK(attn_slice(attn_borrow(NULL, ATTN_F32, attn_shape1(0)), 0, 0, 0).data == NULL);
    /* a weight that was there stays when the bias cannot be made */
    bias = none;
    bias.error = "a reason";
    x = some(2, 3, 4, 1);
    CHECK(attn_linear_init(&ctx, &x, &bias, 3, 4, &rng) != ATTN_OK && x.ndim == 2);
    done(&ctx);
}

/* Infinities, NaNs, wide numbers, and more or fewer decimals than there are. */
TEST(printed_numbers)
{
    float values[4] = {INFINITY, -INFINITY, 1, 0};
    char text[512];
    attn_tensor x;
    values[3] = NAN;
    x = attn_borrow(values, ATTN_F32, attn_shape1(4));
    attn_format(x, 2, text, sizeof text);
    CHECKF(strstr(text, "inf") && strstr(text, "-inf") && strstr(text, "nan"), "%s", text);
    values[0] = values[1] = values[3] = 0.123456789f;
    attn_format(x, -5, text, sizeof text);
    CHECKF(strstr(text, "[0, 0, 1, 0]") != NULL, "%s", text);
    attn_format(x, 99, text, sizeof text);
    CHECKF(strstr(text, "0.123456791") != NULL, "%s", text);
    values[0] = 3e38f; /* 39 digits and a point */
    values[1] = -3e38f;
    attn_format(x, 9, text, sizeof text);
    CHECKF(strstr(text, "300000000549775575777803994281145270272.000000000") != NULL, "%s", text);
    values[0] = 0.125f; /* ties, to the even digit */
    values[1] = 0.375f;
    values[2] = -0.625f;
    values[3] = 0.875f;
    attn_format(x, 2, text, sizeof text);
    CHECKF(strcmp(text, "tensor([ 0.12,  0.38, -0.62,  0.88])") == 0, "%s", text);
}

/* Work for more threads than there are rows or panels: some get nothing to do, and the rows are
 * shared out by as many as divide the threads. The bits do not change. */
TEST(more_threads_than_work)
{
    static const size_t rows[] = {1, 2, 20, 50, 130};
    static const int threads[] = {3, 6, 8};
    size_t i, t;
    for (i = 0; i < 5; i++) {
        const attn_tensor a = some(2, rows[i], 300, 1), b = some(2, 300, 40, 1);
        attn_ctx ctx = alone();
        attn_tensor want = none;
        OK(&ctx, attn_matmul(&ctx, &want, a, b));
        for (t = 0; t < 3; t++) {
            attn_tensor got = none;
            ctx.n_threads = threads[t];
            OK(&ctx, attn_matmul(&ctx, &got, a, b));
            CHECK(same_bits(got, want, "matmul"));
        }
        done(&ctx);
    }
}

/* ---- models ---- */

static const int32_t ten[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1};

/* Each function says that a kernel is not here, before anything else is done. */
TEST(kernels_that_are_not_here)
{
    attn_ctx ctx = {0}, fine = {0};
    attn_session *session = session_on(&fine, model, 0, 0);
    const attn_config *c = attn_model_config(model);
    const attn_tensor m = some(2, 3, c->d_model, 1), v = some(1, 3, 1, 1);
    const attn_tensor d = some(2, 3, c->d_model, 1), ids = some_ids(3, 0);
    attn_model *opened = NULL;
    attn_sampler *sampler = NULL;
    attn_token_stats stats[3];
    attn_prediction top[3];
    size_t size = 0;
    unsigned char *file = test_read(test_tmp("corners.attn"), &size);
    ctx.isa = ATTN_ISA_NEON;
    if (attn_isa(&ctx))
        ctx.isa = ATTN_ISA_AVX2;
#define NOT_HERE(call) REFUSED(ATTN_E_UNSUPPORTED, "kernels", call)
    NOT_HERE(attn_add(&ctx, &out, m, m));
    NOT_HERE(attn_cross_entropy(&ctx, &out, m, ids));
    NOT_HERE(attn_model_open_memory(&ctx, &opened, file, size, NULL));
    NOT_HERE(attn_sampler_new(&ctx, &sampler, 40, NULL));
    NOT_HERE(attn_logit_stats(&ctx, m, NULL, stats, top, 1));
    NOT_HERE(attn_attribute(&ctx, &out, model, m, none, d));
    NOT_HERE(attn_logit_lens(&ctx, &out, model, m, none, NULL, 0));
    NOT_HERE(attn_logit_lens(&ctx, &out, model, m, attn_reshape(v, attn_shape2(3, 1)), NULL, 0));
    CHECK(opened == NULL && sampler == NULL);
    free(file);
    attn_session_free(session);
    done(&ctx);
    done(&fine);
}

/* What is NULL, empty or beyond the model, one at a time. */
TEST(arguments_of_models)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 0), *other = NULL;
    const attn_config *c = attn_model_config(model);
    const size_t T = 5;
    attn_tensor keys;
    attn_sampler *sampler = NULL;
    int32_t id = 7, bad[2] = {0, INT32_MAX};
    float *logits = (float *)pool_new(c->n_vocab * sizeof(float));
    char text[8];
    size_t n;
    OK(&ctx, attn_feed(&ctx, session, ten, T));
    REFUSED(ATTN_E_ARGUMENT, "no session was given",
            attn_cache_get(&ctx, NULL, ATTN_KEYS, 0, 0, 1, &out));
    REFUSED(ATTN_E_ARGUMENT, "expected ATTN_KEYS or ATTN_VALUES",
            attn_cache_get(&ctx, session, (attn_cache_part)2, 0, 0, 1, &out));
    out = some(2, 3, 3, 1);
    FAILS(&ctx, ATTN_E_SHAPE, "attn_cache_get",
          attn_cache_get(&ctx, session, ATTN_KEYS, 0, 0, 1, &out));
    REFUSED(ATTN_E_ARGUMENT, "attn_cache_set",
            attn_cache_set(&ctx, session, ATTN_KEYS, 0, 0, none));
    keys = none;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_cache_get(&ctx, session, ATTN_KEYS, 0, 0, 2, &keys));
    REFUSED(ATTN_E_SHAPE, "attn_cache_set: expected",
            attn_cache_set(&ctx, session, ATTN_KEYS, 0, 0, attn_select(keys, 1, 0)));
    REFUSED(ATTN_E_SHAPE, "attn_cache_set: expected",
            attn_cache_set(&ctx, session, ATTN_KEYS, 0, 0, attn_slice(keys, 1, 0, 1)));
    REFUSED(ATTN_E_SHAPE, "attn_cache_set: expected",
            attn_cache_set(&ctx, session, ATTN_KEYS, 0, 0, attn_slice(keys, 2, 0, 1)));

    ctx.status = ATTN_OK;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, c->n_vocab, NULL));
    for (n = 0; n < c->n_vocab; n++)
        logits[n] = (float)(n % 7);
    REFUSED(ATTN_E_ARGUMENT, "no sampler", attn_sample(&ctx, NULL, logits, NULL, 0, &id));
    REFUSED(ATTN_E_ARGUMENT, "feed a token first", attn_sample(&ctx, sampler, NULL, NULL, 0, &id));
    REFUSED(ATTN_E_ARGUMENT, "room for", attn_sample(&ctx, sampler, logits, NULL, 0, NULL));
    REFUSED(ATTN_E_ARGUMENT, "tokens seen", attn_sample(&ctx, sampler, logits, NULL, 3, &id));
    CHECK(id == 7);
    attn_sampler_free(sampler);
    {
        /* a penalty for tokens that are none is no penalty; a logit of infinity wins outright */
        attn_sampler_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.temperature = 1;
        desc.repeat_penalty = 1.5f;
        ctx.status = ATTN_OK;
        OK(&ctx, attn_sampler_new(&ctx, &sampler, c->n_vocab, &desc));
        logits[3] = INFINITY;
        bad[0] = -1;
        OK(&ctx, attn_sample(&ctx, sampler, logits, bad, 2, &id));
        CHECK(id == 3);
        attn_sampler_free(sampler);
    }

    CHECK(attn_encode(&ctx, attn_model_tokenizer(model), NULL, 0, 0, NULL, 3, &n) != ATTN_OK);
    CHECK(attn_decode(&ctx, attn_model_tokenizer(model), ten, 1, NULL, 3, &n) != ATTN_OK);
    (void)text;
    attn_session_free(session);
    attn_session_free(other);
    done(&ctx);
}

/* ---- the glass box ---- */

TEST(arguments_of_records)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 0);
    static const char *const names[] = {"*hook_resid_pre", NULL};
    attn_record_desc desc;
    attn_record *record = NULL;
    float *memory;
    size_t bytes = 0;
    memset(&desc, 0, sizeof desc);
    REFUSED(ATTN_E_ARGUMENT, "no model or session", attn_record_size(&ctx, NULL, NULL, &bytes));
    REFUSED(ATTN_E_ARGUMENT, "no model or session",
            attn_record_new(&ctx, &record, NULL, NULL, &bytes, 8));
    desc.n_names = 2;
    REFUSED(ATTN_E_ARGUMENT, "name 0 is missing", attn_record_size(&ctx, model, &desc, &bytes));
    desc.names = names;
    REFUSED(ATTN_E_ARGUMENT, "name 1 is missing", attn_record_size(&ctx, model, &desc, &bytes));
    REFUSED(ATTN_E_ARGUMENT, "name 1 is missing",
            attn_record_new(&ctx, &record, session, &desc, &bytes, 8));
    desc.n_names = 1;
    desc.first = attn_model_config(model)->n_ctx;
    REFUSED(ATTN_E_ARGUMENT, "the model's n_ctx is", attn_record_size(&ctx, model, &desc, &bytes));
    desc.first = 1;
    desc.n_positions = attn_model_config(model)->n_ctx;
    REFUSED(ATTN_E_ARGUMENT, "the model's n_ctx is", attn_record_size(&ctx, model, &desc, &bytes));
    desc.first = desc.n_positions = 0;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_record_size(&ctx, model, &desc, &bytes));
    memory = (float *)pool_new(bytes);
    OK(&ctx, attn_record_new(&ctx, &record, session, &desc, memory, bytes));
    OK(&ctx, attn_feed(&ctx, session, ten, 4));
    REFUSED(ATTN_E_ARGUMENT, "no record",
            attn_record_get(&ctx, NULL, "blocks.0.hook_resid_pre", &out));
    REFUSED(ATTN_E_ARGUMENT, "no name", attn_record_get(&ctx, record, NULL, &out));
    REFUSED(ATTN_E_ARGUMENT, "place for the tensor",
            attn_record_get(&ctx, record, "blocks.0.hook_resid_pre", NULL));
    REFUSED(ATTN_E_ARGUMENT, "no record", attn_record_save(&ctx, NULL, test_tmp("x.npz")));
    attn_record_free(record);
    attn_session_free(session);
    done(&ctx);
}

/* Files of arrays: every type, any layout, names that zip and JSON can hold, a full disk. */
TEST(saved_tensors)
{
    attn_ctx ctx = {0};
    static const char *const names[] = {"halves", "whole", "turned", "empty", "columns"};
    const char *name = "x";
    const size_t dims[2] = {3, 4};
    attn_tensor values[5], huge, bad = none;
    char path[512], script[1024], longest[103];
    size_t i, f;
    values[0] = new_tensor(ATTN_F16, 2, dims, LAYOUT_DENSE);
    values[4] = new_tensor(ATTN_F16, 2, dims, LAYOUT_COLUMNS);
    for (i = 0; i < 12; i++) {
        set_value(values[0], i, (float)i / 4);
        set_value(values[4], i, (float)i / 8);
    }
    values[1] = some_ids(6, -3);
    values[2] = attn_transpose(some(2, 2, 5, 1), 0, 1);
    values[3] = none;
    OK(&ctx, attn_zeros(&ctx, &values[3], ATTN_F32, attn_shape2(2, 0)));
    for (f = 0; f < 2; f++) {
        snprintf(path, sizeof path, "%s", test_tmp(f ? "corners.npz" : "corners.safetensors"));
        OK(&ctx, attn_save(&ctx, path, names, values, 5));
    }
    /* numpy reads them back, if there is one */
    snprintf(
        script, sizeof script,
        "for p in python3 /usr/bin/python3; do $p -c 'import numpy' 2>/dev/null && { $p -c '\n"
        "import numpy, sys\n"
        "z = numpy.load(\"%s\")\n"
        "a = numpy.arange(12).reshape(3, 4)\n"
        "assert z[\"halves\"].dtype == \"<f2\" and (z[\"halves\"] == a / 4).all()\n"
        "assert z[\"columns\"].dtype == \"<f2\" and (z[\"columns\"] == a / 8).all()\n"
        "assert z[\"whole\"].dtype == \"<i4\" and (z[\"whole\"] == numpy.arange(-3, 3)).all()\n"
        "assert z[\"turned\"].shape == (5, 2) and z[\"empty\"].shape == (2, 0)\n"
        "'; exit; }; done; exit 0",
        test_tmp("corners.npz"));
    CHECK(system(script) == 0);
    REFUSED(ATTN_E_ARGUMENT, "no names", attn_save(&ctx, path, NULL, values, 1));
    REFUSED(ATTN_E_ARGUMENT, "no tensors", attn_save(&ctx, path, names, NULL, 1));
    memset(longest, 'a', sizeof longest);
    longest[101] = 0;
    name = longest;
    CHECK(attn_save(&ctx, path, &name, values, 1) != ATTN_OK);
    longest[100] = 0;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_save(&ctx, path, &name, values, 1));
    for (i = 0; i < 6; i++) {
        static const char *const wrong[] = {"", "a b", "a\x7f", "a\"", "a/b", NULL};
        name = wrong[i];
        CHECKF(attn_save(&ctx, path, &name, values, 1) != ATTN_OK, "a tensor called %s",
               name ? name : "NULL");
        ctx.status = ATTN_OK;
    }
    name = "x";
    REFUSED(ATTN_E_ARGUMENT, "x is no tensor", attn_save(&ctx, path, &name, &bad, 1));
    bad.error = "a reason";
    REFUSED(ATTN_E_ARGUMENT, "x is no tensor: a reason", attn_save(&ctx, path, &name, &bad, 1));
    huge = attn_borrow(longest, ATTN_F32, attn_shape1(1));
    huge.ndim = 7;
    REFUSED(ATTN_E_ARGUMENT, "x has 7 dimensions", attn_save(&ctx, path, &name, &huge, 1));
    huge.ndim = 1;
    huge.dtype = ATTN_Q4;
    REFUSED(ATTN_E_ARGUMENT, "data type", attn_save(&ctx, path, &name, &huge, 1));
    huge = attn_borrow(longest, ATTN_F32, attn_shape1(1));
    huge.shape[0] = (size_t)(((uint64_t)1 << 40) + 1);
    huge.stride[0] = 0;
    if (sizeof(size_t) > 4) {
        REFUSED(ATTN_E_SHAPE, "x is too large", attn_save(&ctx, path, &name, &huge, 1));
        huge.shape[0] = (size_t)((uint64_t)1 << 40);
        REFUSED(ATTN_E_SPACE, "a .npz of 4 GiB", attn_save(&ctx, path, &name, &huge, 1));
        huge.shape[1] = (size_t)((uint64_t)1 << 40);
        huge.ndim = 2;
        REFUSED(ATTN_E_SPACE, "any file",
                attn_save(&ctx, test_tmp("corners.safetensors"), &name, &huge, 1));
    }
    ctx.status = ATTN_OK;
    done(&ctx);
}

/* An archive counts its entries with 16 bits, and 65535 says that another number counts. */
TEST(more_tensors_than_an_archive_holds)
{
    enum { MOST = 65534 };
    static char texts[MOST + 1][6];
    static const char *names[MOST + 1];
    static attn_tensor values[MOST + 1];
    static float one = 1;
    attn_ctx ctx = {0};
    size_t i;
    for (i = 0; i <= MOST; i++) {
        snprintf(texts[i], sizeof texts[i], "%05u", (unsigned)i);
        names[i] = texts[i];
        values[i] = attn_borrow(&one, ATTN_F32, attn_shape1(1));
    }
    FAILS(&ctx, ATTN_E_SPACE, "65535 tensors are more than the 65534",
          attn_save(&ctx, test_tmp("x.npz"), names, values, MOST + 1));
    OK(&ctx, attn_save(&ctx, test_tmp("x.npz"), names, values, MOST));
    attn_ctx_free(&ctx);
}

/* ---- files that take their name when they are whole ---- */

#define DRAFTS "build/test-tmp/corners/drafts/"
static int in_drafts(const char *command)
{
    char text[800];
    snprintf(text, sizeof text, "cd " DRAFTS " && %s", command);
    return system(text) == 0;
}

static attn_status save_one(attn_ctx *ctx, const char *path)
{
    static float numbers[4] = {1, 2, 3, 4};
    const char *const name = "x";
    const attn_tensor x = attn_borrow(numbers, ATTN_F32, attn_shape1(4));
    return attn_save(ctx, path, &name, &x, 1);
}

/* Files here grow no further than 20 bytes: what was there stays, and no draft does. */
TEST(drafts_that_fail)
{
    attn_ctx ctx = {0};
    struct rlimit before, little;
    CHECK(system("rm -rf " DRAFTS " && mkdir -p " DRAFTS) == 0);
    CHECK(in_drafts("echo old >kept.npz"));
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_IGN);
    little = before;
    little.rlim_cur = 20;
    CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    FAILS(&ctx, ATTN_E_IO, "writing failed: the file would exceed the limit",
          save_one(&ctx, DRAFTS "kept.npz"));
    FAILS(&ctx, ATTN_E_IO, "writing failed: the file would exceed the limit",
          save_one(&ctx, DRAFTS "new.safetensors"));
    FAILS(&ctx, ATTN_E_IO, "writing failed: the file would exceed the limit",
          attn_model_save(&ctx, model, DRAFTS "new.attn"));
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(in_drafts("echo old | cmp - kept.npz && test \"$(ls)\" = kept.npz"));
}

/* Somebody else's draft, and a link that lies in the way, are let alone; permissions stay. */
TEST(drafts_of_others)
{
    attn_ctx ctx = {0};
    CHECK(in_drafts("echo old | tee kept.npz >pointed; chmod 462 kept.npz; ln -s pointed link.npz; "
                    "echo hers >kept.npz.00.part; ln -s pointed kept.npz.01.part"));
    OK(&ctx, save_one(&ctx, DRAFTS "kept.npz"));
    OK(&ctx, save_one(&ctx, DRAFTS "link.npz"));
    CHECK(in_drafts("cmp kept.npz link.npz && test ! -L link.npz && echo old | cmp - pointed && "
                    "test -n \"$(find kept.npz -perm 462)\" && test -L kept.npz.01.part && "
                    "echo hers | cmp - kept.npz.00.part && test ! -e kept.npz.02.part"));
    CHECK(in_drafts("for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do "
                    "touch kept.npz.$i$j.part; done; done"));
    FAILS(&ctx, ATTN_E_IO, "100 drafts", save_one(&ctx, DRAFTS "kept.npz"));
    CHECK(in_drafts("cmp kept.npz link.npz"));
}

/* A name of 255 bytes, to which nothing can be added. A model is saved over the file that it is
 * mapped from: what is mapped stays as it was. */
TEST(the_longest_name)
{
    const int32_t tokens[] = {1, 2, 3};
    attn_ctx ctx = {0};
    char longest[300] = DRAFTS;
    const size_t at = strlen(longest);
    attn_model *own = NULL;
    attn_session *session = NULL;
    memset(longest + at, 'n', 251);
    memcpy(longest + at + 251, ".npz", 5);
    OK(&ctx, save_one(&ctx, longest));
    CHECK(in_drafts("cmp nnn*.npz kept.npz"));
    OK(&ctx, attn_model_save(&ctx, model, longest));
    if (OK(&ctx, attn_model_open(&ctx, &own, longest, NULL)) &&
        OK(&ctx, attn_model_save(&ctx, own, longest)) &&
        OK(&ctx, attn_session_new(&ctx, &session, own, NULL)))
        OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    attn_session_free(session);
    attn_model_close(own);
    if (OK(&ctx, attn_model_open(&ctx, &own, longest, NULL)))
        attn_model_close(own);
    CHECK(in_drafts("rm nnn*.npz && test ! -e attn.00.part"));
}

/* The system's name for a file that is open leads to that file, not to one of the name it has. */
static void written_where_it_is_open(const char *name)
{
    attn_ctx ctx = {0};
    attn_model *own = NULL;
    char path[32];
    FILE *file = fopen(DRAFTS "opened", "wb");
    const int standard_output = dup(1);
    if (!CHECK(file != NULL && standard_output >= 0))
        return;
    snprintf(path, sizeof path, name, fileno(file));
    if (access(path, F_OK) == 0) {
        fflush(stdout);
        dup2(fileno(file), 1);
        OK(&ctx, attn_model_save(&ctx, model, path));
        dup2(standard_output, 1);
        if (OK(&ctx, attn_model_open(&ctx, &own, DRAFTS "opened", NULL)))
            attn_model_close(own);
    }
    close(standard_output);
    fclose(file);
}

/* A device, a pipe, and an open file. */
TEST(written_in_place)
{
    attn_ctx ctx = {0};
    written_where_it_is_open("/dev/fd/%d");
    written_where_it_is_open("/proc/self/fd/%d");
    written_where_it_is_open("/dev/stdout");
    CHECK(in_drafts("mkfifo pipe.npz && { cat pipe.npz >piped & } && mkdir dir.npz && "
                    "ln -s /dev/null null.npz && ln -s /dev/full full.npz"));
    OK(&ctx, save_one(&ctx, DRAFTS "pipe.npz"));
    OK(&ctx, save_one(&ctx, DRAFTS "null.npz"));
    FAILS(&ctx, ATTN_E_IO, "cannot be written: it is a directory",
          save_one(&ctx, DRAFTS "dir.npz"));
    FAILS(&ctx, ATTN_E_IO, "cannot be written: no such file",
          save_one(&ctx, DRAFTS "dir.npz/no/x.npz"));
    if (system("test -c /dev/full") == 0)
        FAILS(&ctx, ATTN_E_IO, "the disk is full", save_one(&ctx, DRAFTS "full.npz"));
    CHECK(in_drafts("test -p pipe.npz && test -L null.npz && test -c /dev/null && "
                    "while ! cmp -s piped kept.npz; do sleep 0.01; done"));
    CHECK(system("rm -r " DRAFTS) == 0);
}

/* What a file says is shown, not obeyed. */
TEST(nothing_for_the_terminal)
{
    attn_ctx ctx = {0};
    REFUSED(ATTN_E_NAME, "a?[31m?b???m\xc3\x84\xc2\xa0 ?",
            attn_model_tensor(&ctx, model, "a\x1b[31m\nb\x7f\xc2\x9bm\xc3\x84\xc2\xa0 \x9b", &out));
    CHECK(!strpbrk(ctx.message, "\x1b\n\x7f"));
    done(&ctx);
}

static attn_session *fed(attn_ctx *ctx, const attn_model *on, const int32_t *tokens, size_t n)
{
    attn_session *session = session_on(ctx, on, 0, 0);
    OK(ctx, attn_feed(ctx, session, tokens, n));
    return session;
}

/* The text without its first tokens, straight from where the session remembers it. */
TEST(a_session_is_fed_its_own_tokens)
{
    enum { ALL = 100, DROPPED = 3, LEFT = ALL - DROPPED };
    attn_ctx ctx = alone();
    attn_model *const on = converted("tests/golden/long", "long.attn", "");
    const int32_t *const tokens = random_tokens(on, ALL, 6);
    const size_t bytes = vocab_of(on) * sizeof(float);
    attn_session *fresh = fed(&ctx, on, tokens + DROPPED, LEFT),
                 *session = fed(&ctx, on, tokens, ALL);
    attn_token_stats stats[2][LEFT];
    OK(&ctx, attn_rewind(&ctx, session, 0));
    OK(&ctx, attn_feed(&ctx, session, attn_session_tokens(session) + DROPPED, LEFT));
    CHECK(memcmp(attn_session_tokens(session), tokens + DROPPED, LEFT * sizeof *tokens) == 0);
    CHECK(memcmp(attn_logits(session), attn_logits(fresh), bytes) == 0);
    attn_session_free(session);

    session = fed(&ctx, on, tokens, ALL);
    OK(&ctx, attn_rewind(&ctx, session, 0));
    OK(&ctx, attn_rewind(&ctx, fresh, 0));
    memset(stats, 0, sizeof stats);
    OK(&ctx,
       attn_score(&ctx, stats[0], NULL, 0, session, attn_session_tokens(session) + DROPPED, LEFT));
    OK(&ctx, attn_score(&ctx, stats[1], NULL, 0, fresh, tokens + DROPPED, LEFT));
    CHECK(memcmp(stats[0], stats[1], sizeof stats[0]) == 0);
    attn_session_free(session);
    attn_session_free(fresh);
    attn_model_close(on);
    done(&ctx);
}

/* A callback that would change the session it is told about. */
typedef struct meddler {
    attn_session *session, *other;
    char text[4096];
    size_t size, length;
    int meddles;
} meddler;

static int ignore(const attn_activation *a, void *user)
{
    (void)a, (void)user;
    return 0;
}

static int meddle(const char *text, size_t size, void *user)
{
    meddler *m = (meddler *)user;
    attn_ctx ctx = alone();
    const int32_t token = 1;
    memcpy(m->text + m->size, text, size);
    m->size += size;
    if (!m->meddles)
        return 0;
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_rewind(&ctx, m->session, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_feed(&ctx, m->session, &token, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_hook(&ctx, NULL, m->session, "*", ignore, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed",
          attn_generate(&ctx, m->session, "", NULL, NULL, NULL));
    out = none;
    OK(&ctx, attn_cache_get(&ctx, m->session, ATTN_KEYS, 0, 0, 1, &out));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed",
          attn_cache_set(&ctx, m->session, ATTN_KEYS, 0, 0, out));
    OK(&ctx, attn_session_copy(&ctx, m->other, m->session)); /* it may look */
    CHECK(attn_session_length(m->other) == attn_session_length(m->session));
    attn_ctx_free(&ctx);
    return 0;
}

TEST(a_callback_may_look_but_not_touch)
{
    enum { LENGTH = 60 };
    attn_ctx ctx = alone();
    attn_model *stories = NULL;
    attn_generate_desc desc;
    static meddler with, without;
    size_t n_passes = 7;
    memset(&desc, 0, sizeof desc);
    memset(&with, 0, sizeof with);
    memset(&without, 0, sizeof without);
    OK(&ctx, attn_model_open(&ctx, &stories, TEST_BUILD "/tiny-stories.attn", NULL));
    with.session = session_on(&ctx, stories, 0, 0);
    with.other = session_on(&ctx, stories, 0, 0);
    without.session = session_on(&ctx, stories, 0, 0);
    with.meddles = 1;
    desc.max_tokens = LENGTH;
    OK(&ctx, attn_generate(&ctx, with.session, "the cat the cat the", &desc, meddle, &with));
    OK(&ctx, attn_generate(&ctx, without.session, "the cat the cat the", &desc, meddle, &without));
    CHECK(with.size == without.size && memcmp(with.text, without.text, with.size) == 0);
    CHECK(memcmp(attn_logits(with.session), attn_logits(without.session),
                 vocab_of(stories) * sizeof(float)) == 0);
    OK(&ctx, attn_rewind(&ctx, with.session, 0)); /* it is free again */
    desc.n_passes = &n_passes;
    FAILS(&ctx, ATTN_E_ARGUMENT, "the prompt is empty",
          attn_generate(&ctx, with.session, "", &desc, NULL, NULL));
    CHECK(n_passes == 0);
    attn_session_free(with.session);
    attn_session_free(with.other);
    attn_session_free(without.session);
    attn_model_close(stories);
    done(&ctx);
}

TEST(arguments_of_edits)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 0);
    const attn_config *c = attn_model_config(model);
    attn_tensor mean = some(1, c->d_model, 1, 1), got = none;
    attn_edit edit;
    sight *s = new_sight();
    memset(&edit, 0, sizeof edit);
    edit.name = "blocks.0.hook_resid_mid";
    edit.kind = ATTN_EDIT_SET;
    REFUSED(ATTN_E_ARGUMENT, "the value is no tensor", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value.error = "a reason";
    REFUSED(ATTN_E_ARGUMENT, "the value is no tensor: a reason",
            attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = some_ids(c->d_model, 0);
    REFUSED(ATTN_E_ARGUMENT, "expected ATTN_F32", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value.ndim = 7;
    REFUSED(ATTN_E_ARGUMENT, "the value has 7 dimensions",
            attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = some(3, 1, 1, c->d_model); /* there are no heads here */
    REFUSED(ATTN_E_SHAPE, "attn_hook_edit", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = mean;
    edit.n_heads = 1;
    REFUSED(ATTN_E_ARGUMENT, "heads from", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.name = "blocks.0.attn.hook_z";
    edit.value = some(1, c->d_head, 1, 1);
    edit.n_heads = c->n_head + 1;
    REFUSED(ATTN_E_ARGUMENT, "heads from", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.n_heads = 1;
    edit.value = some(3, 1, 2, c->d_head);
    REFUSED(ATTN_E_SHAPE, "attn_hook_edit", attn_hook_edit(&ctx, NULL, session, &edit));

    /* the mean over one position is what stands there, at every position from 1 on */
    edit.name = "blocks.0.hook_resid_mid";
    edit.n_heads = 0;
    edit.kind = ATTN_EDIT_MEAN;
    edit.value = mean;
    edit.position = 1;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &edit));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    got = latest(s, "blocks.0.hook_resid_mid");
    if (CHECK(got.ndim == 2)) {
        CHECK(differ((const float *)got.data, (const float *)mean.data, c->d_model));
        CHECK(
            !differ((const float *)got.data + got.stride[0], (const float *)mean.data, c->d_model));
        CHECK(!differ((const float *)got.data + 2 * got.stride[0], (const float *)mean.data,
                      c->d_model));
    }
    attn_session_free(session);
    done(&ctx);
}

TEST(arguments_of_patches)
{
    attn_ctx ctx = {0};
    int32_t clean[4] = {1, 2, 3, 4}, corrupted[4] = {1, 5, 3, 4};
    attn_patch_desc d;
    attn_path path;
    float value = 3;
    const int32_t n_vocab = (int32_t)attn_model_config(model)->n_vocab;
    memset(&d, 0, sizeof d);
    memset(&path, 0, sizeof path);
#define POSITIONS(text, status_)                                                                   \
    REFUSED(status_, text, attn_patch_positions(&ctx, model, &d, "hook_resid_pre", &out))
    REFUSED(ATTN_E_ARGUMENT, "no model was given",
            attn_patch_positions(&ctx, NULL, &d, "hook_resid_pre", &out));
    REFUSED(ATTN_E_ARGUMENT, "no description was given",
            attn_patch_positions(&ctx, model, NULL, "hook_resid_pre", &out));
    POSITIONS("no clean or no corrupted text", ATTN_E_ARGUMENT);
    d.clean = clean;
    POSITIONS("no clean or no corrupted text", ATTN_E_ARGUMENT);
    d.corrupted = corrupted;
    POSITIONS("texts of 0 tokens", ATTN_E_ARGUMENT);
    d.n_tokens = attn_model_config(model)->n_ctx + 1;
    POSITIONS("expected 1 to", ATTN_E_ARGUMENT);
    d.n_tokens = 4;
    d.right = -1;
    POSITIONS("right is -1", ATTN_E_TOKEN);
    d.right = n_vocab;
    POSITIONS("right is", ATTN_E_TOKEN);
    d.right = 0;
    d.wrong = -1;
    POSITIONS("wrong -1", ATTN_E_TOKEN);
    d.wrong = n_vocab;
    POSITIONS("and wrong", ATTN_E_TOKEN);
    d.wrong = 1;
    clean[2] = -5;
    POSITIONS("token 2 of the clean text has id -5", ATTN_E_TOKEN);
    clean[2] = 3;
    corrupted[1] = n_vocab;
    POSITIONS("token 1 of the corrupted text", ATTN_E_TOKEN);
    corrupted[1] = 5;
    REFUSED(ATTN_E_NAME, "", attn_patch_positions(&ctx, model, &d, "hook_resid_pre", NULL));
    REFUSED(ATTN_E_NAME, "", attn_patch_positions(&ctx, model, &d, NULL, &out));

#define PATH(text, status_)                                                                        \
    REFUSED(status_, text, attn_patch_path(&ctx, model, &d, &path, &value));                       \
    CHECK(value == 3)
    PATH("not nothing", ATTN_E_NAME);
    path.to = "hook_z";
    PATH("not hook_z", ATTN_E_NAME);
    path.to = "hook_mlp_in";
    path.from_head = attn_model_config(model)->n_head;
    CHECK(attn_patch_path(&ctx, model, &d, &path, &value) != ATTN_OK);
    path.from_head = 0;
    path.to_head = attn_model_config(model)->n_head;
    CHECK(attn_patch_path(&ctx, model, &d, &path, &value) != ATTN_OK);
    path.to_head = 0;
    path.from_layer = attn_model_config(model)->n_layer;
    CHECK(attn_patch_path(&ctx, model, &d, &path, &value) != ATTN_OK);
    path.from_layer = 0;
    REFUSED(ATTN_E_ARGUMENT, "no place for the value",
            attn_patch_path(&ctx, model, &d, &path, NULL));
    REFUSED(ATTN_E_ARGUMENT, "no path was given", attn_patch_path(&ctx, model, &d, NULL, &value));
    d.n_tokens = 0;
    PATH("texts of 0 tokens", ATTN_E_ARGUMENT);
    done(&ctx);
}

/* ---- what activations say ---- */

static int poison(const attn_activation *a, void *user)
{
    size_t i;
    (void)user;
    if (a->first <= 5 && a->first + a->value.shape[0] > 5)
        for (i = 0; i < a->value.shape[1]; i++)
            *entry(a->value, 5 - a->first, i, 0) = NAN;
    return 0;
}

TEST(arguments_of_statistics)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 2);
    const attn_config *c = attn_model_config(model);
    const size_t C = c->d_model;
    const attn_tensor v = some(1, C, 1, 1), m = some(2, 3, C, 1), odd = some(2, 3, C + 1, 1);
    const attn_tensor pattern = some(3, 2, 4, 4), scale = some(2, 3, 1, 1);
    const attn_tensor post = some(2, 3, c->d_mlp, 1);
    attn_tensor keys = none;
    attn_token_stats stats[10];
    attn_prediction top[10];
    attn_parts parts;
    int32_t wrong[3] = {0, 1, 2};
    float *before = (float *)pool_new(c->n_vocab * sizeof(float));
    memset(&parts, 0, sizeof parts);
    REFUSED(ATTN_E_ARGUMENT, "logits", attn_logit_stats(&ctx, none, wrong, stats, top, 1));
    REFUSED(ATTN_E_SHAPE, "logits", attn_logit_stats(&ctx, v, wrong, stats, top, 1));
    REFUSED(ATTN_E_SHAPE, "logits", attn_logit_stats(&ctx, some(2, 3, 0, 1), wrong, stats, top, 1));
    wrong[1] = -1;
    REFUSED(ATTN_E_TOKEN, "-1", attn_logit_stats(&ctx, m, wrong, stats, top, 1));
    wrong[1] = (int32_t)C;
    REFUSED(ATTN_E_TOKEN, "", attn_logit_stats(&ctx, m, wrong, stats, top, 1));
    REFUSED(ATTN_E_ARGUMENT, "pattern", attn_pattern_entropy(&ctx, &out, none));
    REFUSED(ATTN_E_ARGUMENT, "", attn_head_keys(&ctx, &out, ATTN_HEAD_PREVIOUS, NULL, 3));
    REFUSED(ATTN_E_ARGUMENT, "", attn_head_keys(&ctx, &out, ATTN_HEAD_PREVIOUS, ten, 0));
    REFUSED(ATTN_E_ARGUMENT, "", attn_head_keys(&ctx, &out, ATTN_N_HEAD_KINDS, ten, 3));
    ctx.status = ATTN_OK;
    OK(&ctx, attn_head_keys(&ctx, &keys, ATTN_HEAD_PREVIOUS, ten, 4));
    REFUSED(ATTN_E_ARGUMENT, "pattern", attn_head_score(&ctx, &out, none, keys));
    REFUSED(ATTN_E_ARGUMENT, "keys", attn_head_score(&ctx, &out, pattern, none));
    REFUSED(ATTN_E_SHAPE, "attn_head_score", attn_head_score(&ctx, &out, m, keys));
    REFUSED(ATTN_E_SHAPE, "attn_head_score", attn_head_score(&ctx, &out, pattern, v));
    REFUSED(ATTN_E_SHAPE, "attn_head_score",
            attn_head_score(&ctx, &out, pattern, attn_slice(keys, 0, 0, 3)));
    REFUSED(ATTN_E_SHAPE, "attn_head_score",
            attn_head_score(&ctx, &out, pattern, attn_slice(keys, 1, 0, 3)));

    REFUSED(ATTN_E_ARGUMENT, "no room for the parts",
            attn_decompose(&ctx, NULL, model, ten, 4, ATTN_PARTS_HEADS, 0, 0));
    REFUSED(ATTN_E_ARGUMENT, "is no attn_parts_kind",
            attn_decompose(&ctx, &parts, model, ten, 4, (attn_parts_kind)9, 0, 0));
    CHECK(attn_neuron_results(&ctx, &out, NULL, 0, post, 0, 1) != ATTN_OK && out.ndim == 0);
    REFUSED(ATTN_E_ARGUMENT, "neurons from",
            attn_neuron_results(&ctx, &out, model, 0, post, c->d_mlp + 1, 0));
    REFUSED(ATTN_E_ARGUMENT, "neurons from",
            attn_neuron_results(&ctx, &out, model, 0, post, 1, c->d_mlp));
    REFUSED(ATTN_E_ARGUMENT, "post", attn_neuron_results(&ctx, &out, model, 0, none, 0, 1));
    CHECK(attn_logit_directions(&ctx, &out, NULL, ten, NULL, 2) != ATTN_OK && out.ndim == 0);
    CHECK(attn_logit_directions(&ctx, &out, model, NULL, NULL, 2) != ATTN_OK && out.ndim == 0);
    CHECK(attn_logit_directions(&ctx, &out, model, ten, NULL, 0) != ATTN_OK && out.ndim == 0);
    CHECK(attn_attribute(&ctx, &out, NULL, m, none, m) != ATTN_OK && out.ndim == 0);
    REFUSED(ATTN_E_ARGUMENT, "directions", attn_attribute(&ctx, &out, model, m, scale, none));
    REFUSED(ATTN_E_SHAPE, "", attn_attribute(&ctx, &out, model, m, scale, v));
    REFUSED(ATTN_E_SHAPE, "", attn_attribute(&ctx, &out, model, m, scale, odd));
    REFUSED(ATTN_E_SHAPE, "", attn_attribute(&ctx, &out, model, v, scale, m));
    REFUSED(ATTN_E_SHAPE, "", attn_attribute(&ctx, &out, model, odd, scale, m));
    CHECK(attn_attribute_neurons(&ctx, &out, NULL, 0, post, scale, m) != ATTN_OK);
    REFUSED(ATTN_E_SHAPE, "", attn_attribute_neurons(&ctx, &out, model, 0, post, v, m));
    CHECK(attn_attribute_bias(&ctx, &out, NULL, m) != ATTN_OK);
    REFUSED(ATTN_E_ARGUMENT, "resid", attn_logit_lens(&ctx, &out, model, none, none, NULL, 0));
    REFUSED(ATTN_E_SHAPE, "resid has shape", attn_logit_lens(&ctx, &out, model, v, none, NULL, 0));
    REFUSED(ATTN_E_SHAPE, "resid has shape",
            attn_logit_lens(&ctx, &out, model, odd, none, NULL, 0));
    REFUSED(ATTN_E_ARGUMENT, "left", attn_singular_values(&ctx, &out, none, m));
    REFUSED(ATTN_E_ARGUMENT, "right", attn_singular_values(&ctx, &out, m, none));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", attn_singular_values(&ctx, &out, v, m));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", attn_singular_values(&ctx, &out, m, v));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", attn_singular_values(&ctx, &out, m, m));
    {
        attn_tensor tall = attn_borrow(before, ATTN_F32, attn_shape2(1, 1));
        tall.shape[0] = SIZE_MAX / 8;
        tall.stride[0] = tall.stride[1] = 0;
        REFUSED(ATTN_E_MEMORY, "no room in memory as doubles",
                attn_singular_values(&ctx, &out, tall, attn_slice(scale, 0, 0, 1)));
        tall.shape[0] = SIZE_MAX / 16;
        tall.shape[1] = 64;
        REFUSED(ATTN_E_MEMORY, "no room in memory as doubles",
                attn_singular_values(&ctx, &out, tall, some(2, 64, 1, 1)));
        tall.shape[0] = SIZE_MAX / 256;
        REFUSED(ATTN_E_MEMORY, "no room in memory as doubles",
                attn_singular_values(&ctx, &out, tall, some(2, 64, 1, 1)));
    }

    /* a text whose logits are no numbers leaves the session as it was */
    ctx.status = ATTN_OK;
    OK(&ctx, attn_feed(&ctx, session, ten, 2));
    memcpy(before, attn_logits(session), c->n_vocab * sizeof(float));
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", poison, NULL));
    REFUSED(ATTN_E_ARGUMENT, "the logits at position 5 hold a NaN",
            attn_score(&ctx, stats, top, 1, session, ten + 2, 6));
    CHECK(attn_logits(session) && !differ(before, attn_logits(session), c->n_vocab));
    attn_unhook_all(session);
    ctx.status = ATTN_OK;
    OK(&ctx, attn_score(&ctx, stats, NULL, 0, session, ten + 2, 6));
    OK(&ctx, attn_rewind(&ctx, session, 2));
    OK(&ctx, attn_score(&ctx, NULL, top, 1, session, ten + 2, 6));
    attn_session_free(session);
    done(&ctx);
}

/* ---- no memory, in the middle of longer things ---- */

typedef attn_status (*attempt)(attn_ctx *ctx, attn_session *session);

static attn_status attend_to_halves(attn_ctx *ctx, attn_session *session)
{
    const size_t dims[3] = {2, 4, 4};
    const attn_tensor q = new_tensor(ATTN_F16, 3, dims, LAYOUT_DENSE);
    attn_tensor made = none;
    attn_status status;
    (void)session;
    status = attn_attention(ctx, &made, q, q, q, NULL);
    attn_tensor_free(ctx, &made);
    return status;
}

static attn_status encode_specials(attn_ctx *ctx, attn_session *session)
{
    char text[3100]; /* a long word takes memory, a short one none */
    int32_t ids[3100];
    size_t n;
    (void)session;
    memset(text, 'e', 3000);
    memcpy(text + 3000, "<|endoftext|>the cat", 20);
    return attn_encode(ctx, attn_model_tokenizer(with_tokenizer), text, 3020, 1, ids, 3100, &n);
}

static attn_status generate_from_text(attn_ctx *ctx, attn_session *session)
{
    attn_generate_desc desc;
    char text[161]; /* a long word takes memory, a short one none */
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 2;
    memset(text, 'e', 160);
    text[160] = 0;
    return attn_generate(ctx, session, text, &desc, NULL, NULL);
}

static attn_status edit_with_a_mean(attn_ctx *ctx, attn_session *session)
{
    attn_edit edit;
    memset(&edit, 0, sizeof edit);
    edit.name = "blocks.0.hook_resid_mid";
    edit.kind = ATTN_EDIT_MEAN;
    edit.value = some(2, 3, attn_model_config(with_tokenizer)->d_model, 1);
    return attn_hook_edit(ctx, NULL, session, &edit);
}

static attn_status lens_without_scale(attn_ctx *ctx, attn_session *session)
{
    attn_tensor made = none;
    attn_status status;
    (void)session;
    status =
        attn_logit_lens(ctx, &made, with_tokenizer,
                        some(2, 2, attn_model_config(with_tokenizer)->d_model, 1), none, NULL, 0);
    attn_tensor_free(ctx, &made);
    return status;
}

/* Each allocation fails in turn: a status, nothing kept, and the next attempt goes on as ever. */
TEST(no_memory)
{
    static const attempt attempts[] = {attend_to_halves, encode_specials, generate_from_text,
                                       edit_with_a_mean, lens_without_scale};
    size_t i;
    for (i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        attn_ctx plain = {0};
        attn_session *session = session_on(&plain, with_tokenizer, 0, 0);
        int n, failures = 0;
        for (n = 0; n < 100; n++) {
            meter m;
            attn_ctx ctx = metered(&m);
            attn_status status;
            m.fail_at = n;
            status = attempts[i](&ctx, session);
            attn_unhook_all(session);
            CHECKF(m.live == 0 && m.wrong == 0, "attempt %d, call %d: %ld blocks kept", (int)i, n,
                   m.live);
            OK(&plain, attn_rewind(&plain, session, 0));
            if (status == ATTN_OK)
                break;
            failures++;
            CHECKF(status == ATTN_E_MEMORY, "attempt %d, call %d: %s", (int)i, n, ctx.message);
        }
        CHECKF(failures > 0 && n < 100, "attempt %d fails %d times", (int)i, failures);
        attn_session_free(session);
        done(&plain);
    }
}

/* ---- things that stop, wait or are empty ---- */

typedef struct stopper {
    int calls, later, at; /* at: the call that stops */
} stopper;

static int stop(const attn_activation *a, void *user)
{
    stopper *s = (stopper *)user;
    (void)a;
    return s->calls++ == s->at;
}

static int come_later(const attn_activation *a, void *user)
{
    (void)a;
    ((stopper *)user)->later++;
    return 0;
}

/* After a hook has stopped a pass no other hook is called, and whatever ran the pass says so. */
TEST(stopped_in_the_middle)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 2);
    attn_generate_desc desc;
    stopper s = {0, 0, 0};
    attn_token_stats stats[9];
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", stop, &s));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", come_later, &s));
    FAILS(&ctx, ATTN_STOPPED, "", attn_feed(&ctx, session, ten, 1));
    CHECK(s.calls == 1 && s.later == 0);
    s.calls = s.later = 0;
    FAILS(&ctx, ATTN_STOPPED, "", attn_score(&ctx, stats, NULL, 0, session, ten, 10));
    CHECK(s.calls == 1 && s.later == 0);
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 6;
    desc.n_draft = -1;
    desc.prompt_ids = ten;
    desc.n_prompt_ids = 2;
    s.calls = 0;
    s.at = 3; /* the prompt is one pass, and then there is one for each token */
    FAILS(&ctx, ATTN_STOPPED, "", attn_generate(&ctx, session, NULL, &desc, NULL, NULL));
    CHECK(s.calls == 4);
    attn_session_free(session);
    done(&ctx);
}

/* A session made for one thread has scratch memory for one, whatever is asked for later. */
TEST(more_threads_than_the_session_has)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0, 0);
    float *want = logits_of(&ctx, model, 0, ten, 10, 10);
    ctx.n_threads = 4;
    OK(&ctx, attn_feed(&ctx, session, ten, 10));
    CHECK(!differ(attn_logits(session), want + 9 * vocab_of(model), vocab_of(model)));
    attn_session_free(session);
    done(&ctx);
}

TEST(names_of_any_length)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 0);
    char name[100];
    memset(name, 'x', sizeof name);
    name[99] = 0;
    memcpy(name, "blocks.0.", 9);
    REFUSED(ATTN_E_NAME, "", attn_model_tensor(&ctx, model, name, &out));
    FAILS(&ctx, ATTN_E_NAME, "", attn_hook(&ctx, NULL, session, name, stop, NULL));
    REFUSED(ATTN_E_NAME, "", attn_model_tensor(&ctx, model, "blocks.0.attn.WxQ", &out));
    REFUSED(ATTN_E_NAME, "", attn_model_tensor(&ctx, model, "W_Q", &out));
    attn_session_free(session);
    done(&ctx);
}

/* A session may be copied onto itself, hooks and all; a weight of one key repeats. */
TEST(small_things)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, model, 0, 0);
    const attn_config *c = attn_model_config(model);
    sight *s = new_sight();
    float one = 0.25f, *before = (float *)pool_new(c->n_vocab * sizeof(float));
    attn_edit edit;
    attn_feed_item item;
    attn_tensor got, a = none, b = none, w = none, empty = none;
    attn_attention_desc desc;
    static const size_t row = 0;
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_pattern", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    memcpy(before, attn_logits(session), c->n_vocab * sizeof(float));
    OK(&ctx, attn_session_copy(&ctx, session, session));
    CHECK(!differ(before, attn_logits(session), c->n_vocab));
    memset(&edit, 0, sizeof edit);
    edit.name = "blocks.0.attn.hook_pattern";
    edit.kind = ATTN_EDIT_SET;
    edit.value = attn_borrow(&one, ATTN_F32, attn_shape3(1, 1, 1));
    OK(&ctx, attn_rewind(&ctx, session, 0));
    attn_unhook_all(session);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &edit));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_pattern", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    got = latest(s, "blocks.0.attn.hook_pattern");
    CHECK(got.ndim == 3 && attn_get(got, 1, 2, 1, 0) == 0.25f &&
          attn_get(got, 0, 0, 0, 0) == 0.25f);
    attn_unhook_all(session);

    item = item_of(session, ten, 2, NULL);
    item.rows = &row;
    item.n_rows = 1;
    item.end_layer = 1;
    ctx.status = ATTN_OK;
    FAILS(&ctx, ATTN_E_ARGUMENT, "makes no logits", attn_feed_batch(&ctx, &item, 1));
    ctx.status = ATTN_OK;

    /* values of no dimensions still have a pattern */
    memset(&desc, 0, sizeof desc);
    desc.pattern = &w;
    OK(&ctx, attn_zeros(&ctx, &empty, ATTN_F32, attn_shape2(4, 0)));
    OK(&ctx, attn_attention(&ctx, &a, some(2, 3, 4, 1), some(2, 4, 4, 1), empty, &desc));
    CHECK(a.shape[0] == 3 && a.shape[1] == 0 && w.shape[0] == 3 && w.shape[1] == 4);
    CHECK(fabs((double)attn_get(w, 2, 0, 0, 0) + (double)attn_get(w, 2, 1, 0, 0) +
               (double)attn_get(w, 2, 2, 0, 0) + (double)attn_get(w, 2, 3, 0, 0) - 1) < 1e-6);
    OK(&ctx, attn_zeros(&ctx, &b, ATTN_F32, attn_shape2(0, c->d_model)));
    empty = none;
    OK(&ctx, attn_logit_lens(&ctx, &empty, model, b, none, NULL, 0));
    CHECK(empty.shape[0] == 0 && empty.shape[1] == c->n_vocab);
    empty = none;
    b = attn_reshape(b, attn_shape2(0, c->d_model));
    OK(&ctx, attn_logit_lens(&ctx, &empty, model, b, attn_borrow(&one, ATTN_F32, attn_shape2(0, 1)),
                             NULL, 0));
    CHECK(empty.shape[0] == 0);
    if (sizeof(size_t) > 4) { /* panels of more bytes than there are */
        attn_tensor wide = attn_borrow(&one, ATTN_F32, attn_shape2(1, 1)), tall = wide;
        wide.shape[1] = tall.shape[0] = SIZE_MAX / 8;
        wide.stride[1] = tall.stride[0] = 0;
        REFUSED(ATTN_E_SHAPE, "is too large", attn_matmul(&ctx, &out, wide, tall));
    }
    attn_session_free(session);
    done(&ctx);
}

/* Where a file cannot take its name, none is left under another. */
TEST(models_that_cannot_be_saved)
{
    attn_ctx ctx = {0};
    const char *const path = "build/test-tmp/corners/a-directory";
    CHECK(system("mkdir -p build/test-tmp/corners/a-directory/full") == 0);
    FAILS(&ctx, ATTN_E_IO, "a-directory", attn_model_save(&ctx, model, path));
    CHECK(system("test ! -e build/test-tmp/corners/a-directory.00.part") == 0);
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_model_save(&ctx, model, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_model_save(&ctx, model, ""));
    FAILS(&ctx, ATTN_E_IO, "", attn_model_save(&ctx, model, "build/no/such/x.attn"));
}

/* Scores alone, entropies alone, and places of the wrong shape for either. */
TEST(heads_of_a_text)
{
    attn_ctx ctx = {0};
    attn_tensor e = none, s = none, e2 = none, s2 = none;
    FAILS(&ctx, ATTN_E_CONTEXT, "n_ctx is", /* before a token is looked at */
          attn_text_heads(&ctx, model, ten, SIZE_MAX, &e, &s));
    OK(&ctx, attn_text_heads(&ctx, model, ten, 8, &e, &s));
    OK(&ctx, attn_text_heads(&ctx, model, ten, 8, &e2, NULL));
    OK(&ctx, attn_text_heads(&ctx, model, ten, 8, NULL, &s2));
    CHECK(same_bits(e2, e, "entropies alone") && same_bits(s2, s, "scores alone"));
    e2 = none;
    s2 = some(2, 3, 3, 1);
    FAILS(&ctx, ATTN_E_SHAPE, "", attn_text_heads(&ctx, model, ten, 8, &e2, &s2));
    CHECK(e2.ndim == 0);
    e2 = some(2, 3, 3, 1);
    s2 = none;
    FAILS(&ctx, ATTN_E_SHAPE, "", attn_text_heads(&ctx, model, ten, 8, &e2, &s2));
    CHECK(s2.ndim == 0);
    done(&ctx);
}

/* Positions beyond the first batch of a long text are the same alone as among all. */
TEST(parts_of_a_long_text)
{
    attn_ctx ctx = {0};
    attn_model *longer = NULL;
    attn_parts all, some_of;
    int32_t *tokens;
    size_t i;
    memset(&all, 0, sizeof all);
    memset(&some_of, 0, sizeof some_of);
    if (!OK(&ctx, attn_model_open(&ctx, &longer, TEST_BUILD "/fuzz/long.attn", NULL)))
        return;
    tokens = random_tokens(longer, 520, 5);
    OK(&ctx, attn_decompose(&ctx, &all, longer, tokens, 520, ATTN_PARTS_HEADS, 0, 0));
    for (i = 0; i < 3; i++) {
        static const size_t first[] = {0, 250, 400}, count[] = {10, 20, 30};
        OK(&ctx, attn_decompose(&ctx, &some_of, longer, tokens, 520, ATTN_PARTS_HEADS, first[i],
                                count[i]));
        CHECK(same_bits(some_of.stack, attn_slice(all.stack, 1, first[i], count[i]), "parts"));
        CHECK(same_bits(some_of.scale, attn_slice(all.scale, 0, first[i], count[i]), "scales"));
        attn_tensor_free(&ctx, &some_of.stack);
        attn_tensor_free(&ctx, &some_of.scale);
    }
    attn_model_close(longer);
    done(&ctx);
}

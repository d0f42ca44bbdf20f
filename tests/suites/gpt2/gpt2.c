/* The forward pass. The expected activations are numpy's in float64 (golden/make_golden.py); what must
 * be the same however a text is cut, on every instruction set and for every type of weight is compared
 * bit by bit. */
#include "tests/support/same_bits.h"
#include "tests/support/shared_models.h"
#include "tools/lens/logits.h"

SUITE_WITH_MODELS("plain odd narrow longer tiny bytes8");

/* ---- golden: every activation against float64 ---- */

/* Puts the pieces of one activation together, [T, ..] or [H, T, T], and compares. */
static void check_activation(const sight *s, const char *name, attn_tensor want)
{
    const int is_pattern = strstr(name, "hook_pattern") != NULL;
    const int over_keys = is_pattern || strstr(name, "hook_attn_scores") != NULL;
    attn_tensor whole = new_tensor(ATTN_F32, want.ndim, want.shape, LAYOUT_DENSE);
    size_t n_rows = 0;
    for (size_t i = 0; i < count_of(whole); i++)
        ((float *)whole.data)[i] = over_keys ? (is_pattern ? 0 : -INFINITY) : NAN;
    for (size_t piece = 0; piece < s->n; piece++) {
        const seen *one = &s->all[piece];
        attn_tensor got = one->value;
        size_t expected_layer = ATTN_NO_LAYER;
        if (strcmp(one->name, name) != 0)
            continue;
        sscanf(name, "blocks.%zu.", &expected_layer);
        CHECKF(one->layer == expected_layer, "%s says layer %zu", name, one->layer);
        if (!CHECKF(got.ndim == want.ndim, "%s has shape %s", name, shape_text(got)))
            return;
        if (over_keys) {
            if (!CHECKF(one->first == n_rows && got.shape[0] == want.shape[0] &&
                            got.shape[2] == n_rows + got.shape[1] && got.shape[2] <= want.shape[2],
                        "%s at %llu has shape %s", name, LLU(one->first), shape_text(got)))
                return;
            for (size_t i = 0; i < got.shape[0]; i++)
                for (size_t j = 0; j < got.shape[1]; j++) {
                    double sum = 0;
                    for (size_t k = 0; k < got.shape[2]; k++)
                        sum += (double)(*entry(whole, i, n_rows + j, k) = *entry(got, i, j, k));
                    CHECKF(!is_pattern || fabs(sum - 1) < 1e-6, "%s: row %llu sums to %.9g", name,
                           LLU(n_rows + j), sum);
                }
            n_rows += got.shape[1];
        } else {
            if (!CHECKF(one->first == n_rows && n_rows + got.shape[0] <= want.shape[0] &&
                            got.shape[1] == want.shape[1] && got.shape[2] == want.shape[2],
                        "%s at %llu has shape %s", name, LLU(one->first), shape_text(got)))
                return;
            memcpy(entry(whole, n_rows, 0, 0), got.data, count_of(got) * sizeof(float));
            n_rows += got.shape[0];
        }
    }
    if (CHECKF(n_rows == want.shape[over_keys ? 1 : 0], "%s: %llu rows were seen", name,
               LLU(n_rows)))
        close_to(whole, want, 2e-5, name);
}

static void check_golden(const attn_model *model, const char *path, size_t step)
{
    attn_ctx ctx = alone();
    size_t size, n, n_names = 0;
    SCOPED_BYTES const file = test_read(path, &size);
    sight *const r = new_sight();
    SCOPED_SESSION session = session_on(&ctx, model, 0, 0);
    char name[64];
    const char *at = NULL;
    double mean, expected_mean = 0;
    attn_token_stats *stats;
    if (!session || !CHECKF(file, "%s cannot be read", path))
        return;
    int32_t *tokens = stored_tokens(file, &n);
    CHECK(n > 20);
    OK(&ctx, attn_hook(&ctx, NULL, session, "*", note, r));
    attn_tensor want = stored_tensor(file, "logits");
    close_to(attn_borrow(feed_all(&ctx, session, tokens, n, step ? step : n), ATTN_F32,
                         attn_shape2(n, vocab_of(model))),
             want, 2e-5, "logits");
    while ((at = next_stored(file, at, name, &want)) != NULL) {
        if (strcmp(name, "tokens") == 0 || strcmp(name, "logits") == 0 ||
            strcmp(name, "nll") == 0 || strstr(name, "hook_result"))
            continue;
        check_activation(r, name, want);
        n_names++;
    }
    CHECKF(n_names == 5 + 19 * attn_model_config(model)->n_layer, "%llu names", LLU(n_names));
    for (size_t i = 0; i < r->n; i++)
        CHECKF(stored_tensor(file, r->all[i].name).ndim > 0 && r->all[i].session == session,
               "%s is not in the reference", r->all[i].name);

    attn_unhook_all(session);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    want = stored_tensor(file, "nll");
    attn_tensor got = new_tensor(ATTN_F32, 1, want.shape, LAYOUT_DENSE);
    stats = (attn_token_stats *)pool_new(n * sizeof *stats);
    if (OK(&ctx, attn_score(&ctx, stats, NULL, session, tokens, n))) {
        mean = attn_mean_nll(stats, n - 1);
        for (size_t i = 0; i + 1 < n; i++)
            ((float *)got.data)[i] = stats[i].nll;
        close_to(got, want, 2e-5, "nll");
        for (size_t i = 0; i + 1 < n; i++)
            expected_mean += value_of(want, i) / (double)(n - 1);
        CHECKF(fabs(mean - expected_mean) < 1e-5, "mean %.9g", mean);
    }
    pool_clear();
}

TEST(golden_in_one_call)
{
    check_golden(plain, "tests/golden/plain/reference.safetensors", 0);
    check_golden(odd, "tests/golden/odd/reference.safetensors", 0);
}

TEST(golden_in_pieces)
{
    check_golden(plain, "tests/golden/plain/reference.safetensors", 1);
    check_golden(odd, "tests/golden/odd/reference.safetensors", 1);
    check_golden(odd, "tests/golden/odd/reference.safetensors", 7);
}

/* ---- the same bits ---- */

TEST(any_cut)
{
    cuts_and_batch_sizes(tiny, 120);
    cuts_and_batch_sizes(plain, 32);
    cuts_and_batch_sizes(odd, 40);
    cuts_and_batch_sizes(longer, 600);
}

TEST(any_instruction_set)
{
    isa_on(tiny, 70, 1e-4);
    isa_on(plain, 32, 1e-4);
    isa_on(odd, 40, 1e-4);
    isa_on(longer, 600, 1e-4);
}

/* ---- 8-bit and 4-bit weights ---- */

/* Mean over positions of KL(p || q) in nats, where p and q are the softmax of two sets of logits.
 */
static double divergence(const float *p, const float *q, size_t rows, const attn_model *model)
{
    const size_t n_vocab = vocab_of(model);
    double total = 0;
    for (size_t row = 0; row < rows; row++, p += n_vocab, q += n_vocab) {
        double sum_p = 0, sum_q = 0, difference = 0;
        for (size_t i = 0; i < n_vocab; i++) {
            sum_p += exp((double)p[i]);
            sum_q += exp((double)q[i]);
        }
        for (size_t i = 0; i < n_vocab; i++)
            difference += exp((double)p[i]) / sum_p * ((double)p[i] - (double)q[i]);
        total += difference - log(sum_p) + log(sum_q);
    }
    return total / (double)rows;
}

/* Everything that holds for the other types holds for these: any cut, any batch, any number of
 * threads, any instruction set, and hooks that only look. And they still say what the model says:
 * the bounds are twice what tests/compare/truth/compare_quantized.py shows on longer texts. */
TEST(quantized)
{
    static const struct {
        const char *options;
        double bound;
    } types[] = {{"--dtype q8", 1.4e-3}, {"--dtype q4", 0.12}};
    attn_ctx ctx = alone();
    for (size_t i = 0; i < 2; i++) {
        SCOPED_MODEL small = converted("tests/golden/odd", "odd-q.attn", types[i].options);
        SCOPED_MODEL model = converted("examples/tiny-stories", "q.attn", types[i].options);
        if (small && model) {
            size_t n = 0;
            int32_t ids[200];
            attn_generate_desc d = greedily(150);
            attn_session *session = session_on(&ctx, tiny, 0, 0);
            OK(&ctx, generate_ids(&ctx, ids, &n, session, "One day, a dog", &d));
            n = attn_session_length(session);
            memcpy(ids, attn_session_tokens(session), n * sizeof *ids);
            attn_session_free(session);
            float *want = logits_of(&ctx, tiny, 0, ids, n, n);
            float *got = logits_of(&ctx, model, 0, ids, n, n);
            CHECKF(divergence(want, got, n, tiny) < types[i].bound, "%s: KL divergence %g",
                   types[i].options, divergence(want, got, n, tiny));
            cuts_and_batch_sizes(model, 120);
            cuts_and_batch_sizes(small, 40);
            threads_on(model, 120);
            threads_on(small, 40);
            isa_on(model, 70, 0.3);
            isa_on(small, 40, 0.3);
            check_batch(model, 256, 1, 1);
            check_batch(small, 7, 2, 0);
            watched(model, 120, RANDOM_CUTS, 50, 2);
        }
    }
}

/* odd in a directory of its own, its weights rounded to numbers that f16 holds. */
static void round_to_halfs(void)
{
    size_t size = 0;
    SCOPED_BYTES file = test_read("tests/golden/odd/model.safetensors", &size);
    if (!CHECK(file) || !CHECK(system("mkdir -p " TEST_TMP "half && cp "
                                      "tests/golden/odd/config.json " TEST_TMP "half") == 0))
        return;
    size_t header = 8 + (file[0] | (size_t)file[1] << 8);
    for (size_t at = header; at + 4 <= size; at += 4) {
        float value;
        memcpy(&value, file + at, 4);
        value = (float)half_value(half_of(value));
        memcpy(file + at, &value, 4);
    }
    test_write(TEST_TMP "half/model.safetensors", file, size);
}

TEST(halfs)
{
    attn_ctx ctx = alone();
    const int32_t *tokens;
    round_to_halfs();
    SCOPED_MODEL wide = converted("examples/tiny-stories", "tiny32.attn", "--dtype f32");
    SCOPED_MODEL half = converted(TEST_TMP "half", "f16.attn", "--dtype f16 --no-tokenizer");
    SCOPED_MODEL single = converted(TEST_TMP "half", "f32.attn", "--dtype f32 --no-tokenizer");
    if (CHECK(wide && half && single)) {
        model_tensor info = model_tensor_at(half, 0);
        CHECK(info.dtype == ATTN_F16);
        tokens = random_tokens(tiny, 120, 8);
        same_logits(logits_of(&ctx, wide, 0, tokens, 120, 120),
                    logits_of(&ctx, tiny, 0, tokens, 120, 120), 120, tiny, "tiny as f32 and f16");
        tokens = random_tokens(odd, 40, 8);
        same_logits(logits_of(&ctx, half, 0, tokens, 40, 40),
                    logits_of(&ctx, single, 0, tokens, 40, 40), 40, odd, "odd as f16 and f32");
        ctx.isa = ATTN_ISA_PORTABLE;
        same_logits(logits_of(&ctx, half, 0, tokens, 40, 1),
                    logits_of(&ctx, single, 0, tokens, 40, 9), 40, odd, "portable, f16 and f32");
    }
}

/* ---- causality ---- */

/* Whatever comes at a position, logits before it keep their bits. */
static void check_causality(const attn_model *model, size_t n, size_t step)
{
    static const char *const hooks[] = {NULL, "hook_embed", "hook_pos_embed",
                                        "blocks.1.attn.hook_k", "blocks.0.attn.hook_v"};
    const float values[] = {1e30f, INFINITY, NAN};
    attn_ctx ctx = alone();
    int32_t *const tokens = random_tokens(model, n, 11);
    const float *const want = logits_of(&ctx, model, 0, tokens, n, n);
    size_t at[2];
    at[0] = n - 1;
    at[1] = n / 2;
    for (size_t which = 0; which < 2; which++)
        for (size_t hook = 0; hook < 5; hook++)
            for (size_t kind = 0; kind < 6; kind++) {
                SCOPED_SESSION session = session_on(&ctx, model, 0, 0);
                const int32_t kept = tokens[at[which]];
                poison p;
                p.position = at[which];
                p.value = values[kind % 3];
                if (!session)
                    return;
                if (kind >= 3)
                    OK(&ctx, attn_hook(&ctx, NULL, session, "*", do_nothing, NULL));
                if (hooks[hook])
                    OK(&ctx, attn_hook(&ctx, NULL, session, hooks[hook], poisoned, &p));
                else
                    tokens[at[which]] = (kept + 1) % (int32_t)vocab_of(model);
                {
                    float *const got = feed_all(&ctx, session, tokens, n, step);
                    same_logits(got, want, at[which], model,
                                kind < 3 ? "logits before a changed position"
                                         : "logits before a changed position, watched");
                    CHECKF(memcmp(row_of(got, at[which], model), want + at[which] * vocab_of(model),
                                  vocab_of(model) * sizeof *got) != 0,
                           "%s changed nothing", hooks[hook] ? hooks[hook] : "another token");
                }
                tokens[at[which]] = kept;
            }
    pool_clear();
}

TEST(causality)
{
    check_causality(plain, 24, 24);
    check_causality(odd, 37, 37);
    check_causality(odd, 37, 5);
}

static const attn_tensor no_scale; /* a lens takes the stream's own */

/* ---- parts of a pass ---- */

/* A pass cut between any two layers, and the stream handed over, is the whole pass. */
TEST(cut_between_layers)
{
    enum { LENGTH = 20 };
    const attn_model *const models[] = {plain, odd, narrow, tiny, bytes8};
    attn_ctx ctx = alone();
    size_t at;
    ctx.n_threads = 2;
    for (size_t m = 0; m < 5; m++) {
        const attn_config *const c = attn_model_config(models[m]);
        const int32_t *const tokens = random_tokens(models[m], LENGTH, m);
        sight *const s = new_sight();
        const float *const want =
            hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_resid_p*", s);
        float *const stream = (float *)pool_new(LENGTH * c->d_model * sizeof(float));
        for (size_t cut = 0; cut <= c->n_layer; cut++) {
            SCOPED_SESSION session = session_on(&ctx, models[m], 0, 7);
            attn_feed_item item;
            char name[64];
            OK(&ctx, attn_feed(&ctx, session, tokens, 4));
            for (at = 4; at < LENGTH; at += 8) {
                if (cut < c->n_layer) {
                    item = part_of(session, tokens + at, 8, 0, cut, NULL, stream);
                    item.layers.embed_only = cut == 0;
                    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
                    EQUAL(attn_session_length(session), at);
                    snprintf(name, sizeof name, "blocks.%d.hook_resid_pre", (int)cut);
                    same_floats(stream, entry(latest(s, name), at, 0, 0), 8, c->d_model, name);
                    item = part_of(session, tokens + at, 8, cut, 0, stream, stream);
                } else { /* all layers, then the logits again from the stream */
                    item = part_of(session, tokens + at, 8, 0, 0, NULL, stream);
                    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
                    OK(&ctx, attn_session_truncate(&ctx, session, at));
                    item = part_of(session, tokens + at, 8, cut, 0, stream, NULL);
                }
                OK(&ctx, attn_feed_batch(&ctx, &item, 1));
                CHECK(attn_session_length(session) == at + 8);
                same_logits(attn_session_logits(session), want + (at + 7) * vocab_of(models[m]), 1,
                            models[m], "a pass in two parts");
            }
            /* A stream of the caller's in place of the embedding. */
            OK(&ctx, attn_session_truncate(&ctx, session, 0));
            item = part_of(session, tokens, LENGTH, 0, 0,
                           (const float *)latest(s, "blocks.0.hook_resid_pre").data, NULL);
            OK(&ctx, attn_feed_batch(&ctx, &item, 1));
            same_logits(attn_session_logits(session), want + (LENGTH - 1) * vocab_of(models[m]), 1,
                        models[m], "an embedding of the caller's");
        }

        /* The logit lens at the end is the model; below it, that of a hook on the last stream. */
        for (size_t i = 0; i < c->n_layer; i++) {
            attn_tensor logits = {0}, scaled = {0};
            sight *const r = new_sight();
            attn_tensor rows = latest(s, test_text("blocks.%d.hook_resid_post", (int)i));
            const float *by_hook =
                hooked(models[m], tokens, LENGTH, 6,
                       test_text("blocks.%d.hook_resid_post", (int)c->n_layer - 1), put_rows, &rows,
                       NULL, NULL);
            OK(&ctx, lens_logit_lens(&ctx, &logits, models[m], rows, no_scale, no_tensor));
            CHECK(logits.ndim == 2 && logits.shape[0] == LENGTH);
            same_logits((const float *)logits.data, i + 1 == c->n_layer ? want : by_hook, LENGTH,
                        models[m], "logit lens");
            hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "ln_final.hook_scale", r);
            attn_tensor scale = latest(r, "ln_final.hook_scale");
            by_hook = hooked(models[m], tokens, LENGTH, LENGTH, "ln_final.hook_scale", put_rows,
                             &scale, NULL, NULL);
            OK(&ctx, lens_logit_lens(&ctx, &scaled, models[m], rows, scale, no_tensor));
            if (i + 1 == c->n_layer)
                same_logits((const float *)scaled.data, by_hook, LENGTH, models[m], "saved scale");
            else
                CHECK(differ((const float *)scaled.data, (const float *)logits.data,
                             vocab_of(models[m])));
        }
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* What a pass builds on must be there, for the same tokens; each refusal leaves all as it was. */
TEST(what_layers_hold)
{
    enum { LENGTH = 16 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 5), *const others =
                                                                     random_tokens(odd, LENGTH, 6);
    const size_t width = attn_model_config(odd)->d_model;
    const float *const want = hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
    float *const stream = (float *)pool_new(LENGTH * width * sizeof(float));
    float *const logits = (float *)pool_new(LENGTH * vocab_of(odd) * sizeof(float));
    attn_session *session = session_on(&ctx, odd, 0, 0), *copy = session_on(&ctx, odd, 0, 0);
    attn_session *pair[2];
    attn_feed_item item, two[2];
    memset(stream, 0, LENGTH * width * sizeof(float));
    item = part_of(session, tokens, 4, 2, 0, stream, NULL);
    FAILS(ARGUMENT, "layer 0 must hold keys and values of 4 positions; it holds 0",
          attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 8, 0, 1, NULL, stream);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 8, 2, 0, stream, NULL);
    FAILS(ARGUMENT, "layer 1 must hold", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, others, 8, 1, 0, stream, NULL);
    FAILS(ARGUMENT, "other tokens", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 9, 1, 0, stream, NULL);
    FAILS(ARGUMENT, "of 9 positions; it holds 8", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 5, 1, 0, stream, NULL); /* fewer are fine */
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_session_logits(session), want + 4 * vocab_of(odd), 1, odd, "some of them");
    item = part_of(session, tokens + 5, 3, 1, 0, stream + 5 * width, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_session_logits(session), want + 7 * vocab_of(odd), 1, odd, "the rest");
    OK(&ctx, attn_feed(&ctx, session, tokens + 8, 8));

    /* A truncated copy keeps the keys and values past its end until other tokens overwrite them. */
    OK(&ctx, attn_session_copy(&ctx, copy, session));
    OK(&ctx, attn_session_truncate(&ctx, session, 3));
    OK(&ctx, attn_session_copy(&ctx, copy, session));
    EQUAL(attn_session_length(copy), 3);
    item = part_of(copy, tokens + 3, 13, 2, 0, stream, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    OK(&ctx, attn_session_truncate(&ctx, copy, 3));
    OK(&ctx, attn_feed(&ctx, copy, others, 2));
    OK(&ctx, attn_session_truncate(&ctx, copy, 3));
    item = part_of(copy, tokens + 3, 13, 2, 0, stream, NULL);
    FAILS(ARGUMENT, "it holds 5", attn_feed_batch(&ctx, &item, 1));
    item.n_tokens = 2;
    FAILS(ARGUMENT, "other tokens", attn_feed_batch(&ctx, &item, 1));
    OK(&ctx, attn_feed(&ctx, copy, tokens + 3, 13));
    same_logits(attn_session_logits(copy), want + 15 * vocab_of(odd), 1, odd, "fed anew");

    /* A stop takes back what the pass wrote over, and no more. */
    {
        int stop = 1;
        OK(&ctx, attn_session_truncate(&ctx, copy, 3));
        OK(&ctx, attn_hook(&ctx, NULL, copy, "*.hook_z", stop_late, &stop));
        STOPS(&ctx, attn_feed(&ctx, copy, tokens + 3, 13));
        attn_unhook_all(copy);
        item = part_of(copy, tokens + 3, 13, 2, 0, stream, NULL);
        FAILS(ARGUMENT, "it holds 3", attn_feed_batch(&ctx, &item, 1));
        EQUAL(attn_session_length(copy), 3);
    }

    item = part_of(session, tokens + 3, 2, 4, 0, stream, NULL);
    FAILS(ARGUMENT, "layers 4", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 2, 1, stream, NULL);
    FAILS(ARGUMENT, "layers 2", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 1, 1, stream, NULL);
    FAILS(ARGUMENT, "layers 1", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 0, 9, NULL, NULL);
    FAILS(ARGUMENT, "before 9", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 1, 0, NULL, NULL);
    FAILS(ARGUMENT, "resid", attn_feed_batch(&ctx, &item, 1));
    for (size_t i = 0; i < 3; i++) {
        item = part_of(session, tokens + 3, 2, i == 0, i == 1, i == 2 ? stream : NULL, NULL);
        item.layers.embed_only = 1;
        FAILS(ARGUMENT, "with embed_only", attn_feed_batch(&ctx, &item, 1));
    }
    item = part_of(session, tokens + 3, 2, 0, 0, NULL, NULL);
    item.layers.reserved[1] = 1;
    FAILS(ARGUMENT, "attn_layers", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 0, 1, NULL, NULL);
    item.logits = logits;
    FAILS(ARGUMENT, "no logits", attn_feed_batch(&ctx, &item, 1));
    pair[0] = session;
    pair[1] = copy;
    share_workspace(&ctx, pair, 2, 0);
    for (size_t i = 0; i < 4;
         i++) { /* another beginning, another end, a stream; another beginning alone */
        two[0] = part_of(session, tokens + 3, 2, 0, 0, i == 3 ? stream : NULL, NULL);
        two[1] =
            part_of(copy, tokens + 3, 2, i == 0 || i == 3, i == 1, i == 1 ? NULL : stream, NULL);
        OK(&ctx, attn_session_truncate(&ctx, copy, 0));
        OK(&ctx, attn_feed(&ctx, copy, tokens, 16));
        OK(&ctx, attn_session_truncate(&ctx, copy, 3));
        FAILS(ARGUMENT, "same layers", attn_feed_batch(&ctx, two, 2));
    }
    OK(&ctx, attn_feed(&ctx, session, tokens + 3, 13));
    same_logits(attn_session_logits(session), want + 15 * vocab_of(odd), 1, odd, "after all that");
    attn_session_free(session);
    attn_session_free(copy);
}

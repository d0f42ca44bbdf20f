/* Activation patching, compared with one whole forward pass for each patch. */
#include "tests/support/hooks.h"
#include "tests/support/refused.h"
#include "tests/support/patches.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd narrow longer tiny bytes8");

/* ---- patching ---- */

static int surprise(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    (void)d_logits;
    *value = attn_get2(logits, 0, 3) * 2 - attn_get2(logits, 0, *(const size_t *)user);
    return 0;
}

static int give_up(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    (void)d_logits;
    *value = attn_get2(logits, 0, 0);
    return --*(int *)user < 0;
}

/* The naive way: one full forward for each patch, with a hook of our own. */
static float patched(const attn_model *model, const int32_t *tokens, size_t n, const char *name,
                     attn_tensor clean, int over_keys, size_t position, size_t head, int right,
                     int wrong)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0, 0);
    attn_edit e = edit_of(name, ATTN_EDIT_SET);
    if (position < n) {
        e.first = position;
        e.count = 1;
        e.value = attn_slice(clean, over_keys, position, 1);
    } else {
        e.first_head = head;
        e.n_heads = 1;
        e.value = attn_slice(clean, !over_keys, head, 1);
    }
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    OK(&ctx, attn_feed(&ctx, session, tokens, n));
    float value = attn_session_logits(session)[right] - attn_session_logits(session)[wrong];
    attn_session_free(session);
    return value;
}

static void check_sweep(const attn_model *model, size_t n, const char *name)
{
    const attn_config *const c = attn_model_config(model);
    const int over_keys = strstr(name, "pattern") || strstr(name, "scores");
    const int has_heads = over_keys || strstr(name, "attn.") || strstr(name, "_input");
    SCOPED_CTX ctx = alone();
    attn_tensor got = {0}, heads = {0};
    sight *const s = new_sight();
    char full[64];
    lens_baseline as_it_is = {0, 0};
    size_t n_differ = 0;
    int32_t *const corrupt = random_tokens(model, n, 2);
    lens_pair d = {.clean = random_tokens(model, n, 1)};
    memcpy(corrupt, d.clean, n / 4 * sizeof *corrupt); /* they part and meet again */
    memcpy(corrupt + n / 2, d.clean + n / 2, (n - n / 2) * sizeof *corrupt);
    d.corrupted = corrupt;
    d.n_tokens = n;
    d.metric.kind = LENS_METRIC_LOGIT_DIFF;
    d.metric.token = 7;
    d.metric.against = 3;
    ctx.n_threads = 2;
    snprintf(full, sizeof full, "*.%s", name);
    hooked(model, d.clean, n, n, NULL, NULL, NULL, full, s);
    OK(&ctx, patch_positions(&ctx, &got, &as_it_is, model, &d, name));
    float corrupted = as_it_is.corrupted;
    if (has_heads)
        OK(&ctx, patch_heads(&ctx, &heads, NULL, model, &d, name));
    CHECK(got.ndim == 2 && got.shape[0] == c->n_layer && got.shape[1] == n);
    for (size_t layer = 0; layer < c->n_layer; layer++) {
        snprintf(full, sizeof full, "blocks.%d.%s", (int)layer, name);
        for (size_t i = 0; i < n; i++) {
            const float want =
                patched(model, corrupt, n, full, latest(s, full), over_keys, i, 0, 7, 3);
            n_differ += want != corrupted;
            CHECKF(*entry(got, layer, i, 0) == want, "%s at %llu: %.9g, expected %.9g", full,
                   LLU(i), (double)*entry(got, layer, i, 0), (double)want);
        }
        for (size_t i = 0; has_heads && i < c->n_head; i++)
            CHECKF(*entry(heads, layer, i, 0) ==
                       patched(model, corrupt, n, full, latest(s, full), over_keys, n, i, 7, 3),
                   "%s, head %llu", full, LLU(i));
    }
    CHECK(n_differ > 0 && as_it_is.clean != corrupted);
    if (strcmp(name, "hook_resid_pre") == 0) /* the last position's last stream is all there is */
        CHECK(*entry(got, c->n_layer - 1, n - 1, 0) != as_it_is.clean);
    pool_clear();
}

/* Patches of more positions than they have rows together. */
TEST(sweep_of_a_long_text)
{
    enum { LENGTH = 530, PART = 517 };
    static const char *const name = "blocks.0.attn.hook_z";
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, longer, 0, 0);
    SCOPED_RECORD record = NULL;
    attn_tensor clean = {0}, heads = {0};
    size_t bytes = 0;
    int32_t *const corrupt = random_tokens(longer, LENGTH, 2);
    lens_pair d = {.clean = random_tokens(longer, LENGTH, 1)};
    memcpy(corrupt, d.clean, PART * sizeof *corrupt);
    d.corrupted = corrupt;
    d.n_tokens = LENGTH;
    d.metric.kind = LENS_METRIC_LOGIT_DIFF;
    d.metric.token = 7;
    d.metric.against = 3;
    attn_record_desc recorded = {.names = &name, .n_names = 1, .n_positions = LENGTH};
    OK(&ctx, attn_record_size(&ctx, &bytes, longer, &recorded));
    recorded.memory = pool_new(bytes);
    recorded.memory_size = bytes;
    OK(&ctx, attn_record_new(&ctx, &record, session, &recorded));
    OK(&ctx, attn_feed(&ctx, session, d.clean, LENGTH));
    OK(&ctx, attn_record_get(&ctx, &clean, record, name));
    OK(&ctx, patch_heads(&ctx, &heads, NULL, longer, &d, "attn.hook_z"));
    for (size_t i = 0; i < 2; i++)
        CHECK(*entry(heads, 0, i, 0) ==
              patched(longer, corrupt, LENGTH, name, clean, 0, LENGTH, i, 7, 3));
    CHECK(*entry(heads, 0, 0, 0) != *entry(heads, 0, 1, 0));
}

TEST(sweeps)
{
    static const char *const swept[] = {
        "hook_resid_pre",   "hook_resid_mid", "hook_resid_post",      "hook_attn_out",
        "hook_mlp_out",     "attn.hook_z",    "attn.hook_pattern",    "attn.hook_v",
        "attn.hook_result", "hook_q_input",   "attn.hook_attn_scores"};
    for (size_t i = 0; i < sizeof swept / sizeof swept[0]; i++) {
        check_sweep(odd, 11, swept[i]);
        check_sweep(i % 2 ? plain : narrow, 4, swept[i]); /* as many positions as heads */
    }
    check_sweep(odd, 40, "hook_resid_pre"); /* more patches than run at once */
    check_sweep(tiny, 9, "attn.hook_z");
    check_sweep(bytes8, 5, "hook_mlp_out");
}

/* Head 0 of layer 0 reads channels 0 to 15 alone, and where two texts part, at position 2, their
 * tokens differ only in that others change places: whole numbers, so that mean and variance stay
 * exact. What head 0 does then first differs at position 3, what the others do at 2, and the
 * patches of the layer begin at different positions. */
TEST(a_blind_head)
{
    enum { LENGTH = 11, AT = 2, CHANNELS = 16, WIDTH = 64 };
    const attn_model_desc unchecked = {.skip_checksums = 1};
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL model = NULL;
    model_tensor info;
    attn_tensor v[2];
    size_t size, k;
    unsigned char *file = test_read(test_tmp("plain.attn"), &size);
    for (size_t i = 0; file && i < model_n_tensors(plain); i++) {
        unsigned char *data = file;
        info = model_tensor_at(plain, i);
        data += info.offset; /* entry (k, n) of a matrix: see "panels" in the manual */
        if (strcmp(info.name, "pos_embed.W_pos") == 0)
            memset(data + 4 * AT * WIDTH, 0, 4 * WIDTH);
        for (int text = 0; text < 2 && strcmp(info.name, "embed.W_E") == 0; text++) {
            const size_t n = (size_t)random_tokens(plain, LENGTH, (uint64_t)text + 1)[AT];
            for (k = 0; k < WIDTH; k++) {
                const size_t from = text && k >= CHANNELS ? k ^ 1 : k;
                const float value = (float)(from * from % 7) - 3;
                memcpy(data + 4 * ((n / 16 * WIDTH + k) * 16 + n % 16), &value, 4);
            }
        }
        for (size_t j = 0; j < 3 * WIDTH && strcmp(info.name, "blocks.0.attn.W_QKV") == 0;
             j += WIDTH)
            for (k = CHANNELS; k < WIDTH; k++)
                memset(data + 4 * (j / 16 * WIDTH + k) * 16, 0, 4 * 16);
    }
    if (CHECK(file))
        test_write(test_tmp("blind.attn"), file, size);
    free(file);
    if (!OK(&ctx, attn_model_open(&ctx, &model, test_tmp("blind.attn"), &unchecked)))
        return;
    for (int text = 0; text < 2; text++) { /* those of check_sweep */
        sight *const s = new_sight();
        hooked(model, random_tokens(model, LENGTH, (uint64_t)text + 1), LENGTH, LENGTH, NULL, NULL,
               NULL, "blocks.0.attn.hook_v", s);
        v[text] = latest(s, "blocks.0.attn.hook_v");
    }
    CHECK(!differ(entry(v[0], AT, 0, 0), entry(v[1], AT, 0, 0), 16));
    CHECK(differ(entry(v[0], AT, 1, 0), entry(v[1], AT, 1, 0), 16));
    CHECK(differ(entry(v[0], AT + 1, 0, 0), entry(v[1], AT + 1, 0, 0), 16));
    check_sweep(model, LENGTH, "attn.hook_v");
    check_sweep(model, LENGTH, "attn.hook_z");
}

TEST(patch_rules)
{
    SCOPED_CTX ctx = alone();
    const int32_t clean[] = {1, 2, 3, 4}, corrupted[] = {5, 2, 3, 4};
    attn_tensor out = {0}, small = random_tensor(2, 3, 5);
    size_t question = 9;
    int patience = 5;
    lens_pair d = {.clean = clean,
                   .corrupted = corrupted,
                   .n_tokens = 4,
                   .metric.kind = LENS_METRIC_LOGIT_DIFF,
                   .metric.token = 1,
                   .metric.against = 2};
    FAILS(NAME, "did you mean", patch_positions(&ctx, &out, NULL, odd, &d, "hook_resid_prex"));
    FAILS(NAME, "", patch_positions(&ctx, &out, NULL, odd, &d, "*"));
    FAILS(ARGUMENT, "no name", patch_positions(&ctx, &out, NULL, odd, &d, NULL));
    FAILS(NAME, "no heads", patch_heads(&ctx, &out, NULL, odd, &d, "hook_mlp_out"));
    FAILS(SHAPE, "[3, 4]", patch_positions(&ctx, &small, NULL, odd, &d, "hook_mlp_out"));
    lens_pair wrong = d;
    memset(&wrong.metric, 0, sizeof wrong.metric);
    wrong.metric.kind = LENS_METRIC_FUNCTION_AT;
    wrong.metric.fn = give_up;
    wrong.metric.user = &patience;
    STOPS(&ctx, patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_mlp_out"));
    CHECK(patience == -1 && out.ndim == 0);
    wrong.metric.fn = surprise;
    wrong.metric.user = &question;
    OK(&ctx, patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_resid_pre"));
    {
        const float *const logits =
            hooked(odd, clean, 4, 4, NULL, NULL, NULL, NULL, NULL) + 3 * vocab_of(odd);
        CHECK(*entry(out, 0, 0, 0) == logits[3] * 2 - logits[9]); /* only that token differed */
    }
}

/* ---- every kind, by whole passes ---- */

/* A part of an activation, and the clean text's value of all of it. */
typedef struct box {
    attn_tensor clean; /* [T, ..] or [H, T, Tk] */
    int over_keys;
    size_t head, n_heads, position, n_positions, key, n_keys;
} box;

static int is_inside(size_t at, size_t first, size_t count)
{
    return at >= first && at - first < count;
}

static int put_box(const attn_activation *a, void *user)
{
    const box *b = (const box *)user;
    const size_t *const n = a->value.shape;
    for (size_t i = 0; i < n[0]; i++)
        for (size_t j = 0; j < n[1]; j++)
            for (size_t k = 0; k < n[2]; k++) {
                const size_t head = b->over_keys ? i : j;
                const size_t position = a->first + (b->over_keys ? j : i);
                if (!is_inside(position, b->position, b->n_positions) ||
                    (a->value.ndim == 3 && !is_inside(head, b->head, b->n_heads)) ||
                    (b->over_keys && !is_inside(k, b->key, b->n_keys)))
                    continue;
                *entry(a->value, i, j, k) =
                    *entry(b->clean, b->over_keys ? i : position, b->over_keys ? position : j, k);
            }
    return 0;
}

/* Runs a text with edits, and with a box of one activation from elsewhere; the metric, in double. */
static double plainly(const attn_model *model, const int32_t *tokens, const lens_patch_desc *d,
                      const char *name, box *patch)
{
    const lens_metric *const m = &d->pairs->metric;
    const size_t n = d->pairs->n_tokens, n_vocab = vocab_of(model);
    float *const logits = (float *)pool_new(n * n_vocab * sizeof *logits);
    const float *const row = logits + (n - 1 - m->from_end) * n_vocab;
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0, 0);
    attn_feed_item item = item_of(session, tokens, n, logits);
    double loss = 0, sum;
    size_t i;
    for (i = 0; i < d->n_edits; i++)
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &d->edits[i]));
    if (patch)
        OK(&ctx, attn_hook(&ctx, NULL, session, name, put_box, patch));
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    attn_session_free(session);
    if (m->kind == LENS_METRIC_LOGIT_DIFF)
        return (double)(row[m->token] - row[m->against]);
    for (size_t t = 0; t + 1 < n; t++) {
        for (sum = 0, i = 0; i < n_vocab; i++)
            sum += exp((double)logits[t * n_vocab + i]);
        loss += log(sum) - (double)logits[t * n_vocab + (size_t)tokens[t + 1]];
    }
    return loss / (double)(n - 1);
}

/* The clean text's activation, with the edits. */
static attn_tensor clean_of(const attn_model *model, const lens_patch_desc *d, const char *name)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0, 0);
    sight *const s = new_sight();
    for (size_t i = 0; i < d->n_edits; i++)
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &d->edits[i]));
    OK(&ctx, attn_hook(&ctx, NULL, session, name, note, s));
    OK(&ctx, attn_feed(&ctx, session, d->pairs->clean, d->pairs->n_tokens));
    attn_session_free(session);
    return latest(s, name);
}

/* The box that entry `at` of a layer stands for: what lens_patch_kind's comments say. */
static box box_of(const lens_patch_desc *d, size_t n_head, attn_tensor clean, size_t at)
{
    const size_t n = d->pairs->n_tokens;
    box b = {clean, strstr(d->name, "pattern") != NULL, 0, n_head, 0, n, 0, n};
    switch (d->kind) {
    case LENS_PATCH_POSITIONS:
        b.position = at, b.n_positions = 1;
        break;
    case LENS_PATCH_HEADS:
        b.head = at, b.n_heads = 1;
        break;
    case LENS_PATCH_POSITION_HEADS:
        b.position = at / n_head, b.n_positions = 1, b.head = at % n_head, b.n_heads = 1;
        break;
    case LENS_PATCH_SOURCES:
        b.key = at, b.n_keys = 1;
        break;
    case LENS_PATCH_SOURCE_HEADS:
        b.key = at / n_head, b.n_keys = 1, b.head = at % n_head, b.n_heads = 1;
        break;
    default:
        b.head = at / (n * n), b.n_heads = 1, b.position = at / n % n, b.n_positions = 1;
        b.key = at % n, b.n_keys = 1;
    }
    return b;
}

static void check_kind(const attn_model *model, const lens_patch_desc *d)
{
    const attn_config *const c = attn_model_config(model);
    const double close = d->pairs->metric.kind == LENS_METRIC_LOGIT_DIFF ? 0 : 1e-5;
    SCOPED_CTX ctx = alone();
    attn_tensor got = {0};
    lens_baseline whole = {0, 0};
    double most = 0;
    OK(&ctx, lens_patch(&ctx, &got, &whole, model, d));
    double want = plainly(model, d->pairs->corrupted, d, NULL, NULL);
    CHECK(fabs((double)whole.corrupted - want) <= close);
    CHECK(fabs((double)whole.clean - plainly(model, d->pairs->clean, d, NULL, NULL)) <= close);
    size_t n = count_of(got) / c->n_layer;
    for (size_t layer = 0; layer < c->n_layer; layer++) {
        const char *const name = test_text("blocks.%d.%s", (int)layer, d->name);
        attn_tensor clean = clean_of(model, d, name);
        for (size_t i = 0; i < n; i++) {
            const double is = (double)((const float *)got.data)[layer * n + i];
            box b = box_of(d, c->n_head, clean, i);
            want = plainly(model, d->pairs->corrupted, d, name, &b);
            CHECKF(fabs(is - want) <= close, "%s, kind %d, entry %llu: %.9g, expected %.9g", name,
                   (int)d->kind, LLU(i), is, want);
            most = fmax(most, fabs(want - (double)whole.corrupted));
        }
    }
    CHECKF(most > 1e-4, "%s, kind %d: no patch changes anything", d->name, (int)d->kind);
}

/* Two texts that part in the middle. */
static lens_pair a_pair(const attn_model *model, size_t n, uint64_t seed)
{
    int32_t *const corrupted = random_tokens(model, n, seed + 1);
    const int32_t *const clean = random_tokens(model, n, seed);
    memcpy(corrupted, clean, n / 2 * sizeof *corrupted);
    lens_pair p = {.clean = clean,
                   .corrupted = corrupted,
                   .n_tokens = n,
                   .metric.kind = LENS_METRIC_LOGIT_DIFF,
                   .metric.token = 7,
                   .metric.against = 3};
    return p;
}

TEST(kinds)
{
    static const struct {
        lens_patch_kind kind;
        const char *name;
    } all[] = {{LENS_PATCH_POSITION_HEADS, "attn.hook_z"},
               {LENS_PATCH_POSITION_HEADS, "attn.hook_v"},
               {LENS_PATCH_POSITION_HEADS, "attn.hook_pattern"},
               {LENS_PATCH_SOURCES, "attn.hook_pattern"},
               {LENS_PATCH_SOURCE_HEADS, "attn.hook_pattern"},
               {LENS_PATCH_WEIGHTS, "attn.hook_pattern"}};
    lens_pair pair = a_pair(odd, 5, 4);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const lens_patch_desc d = {
            .pairs = &pair, .n_pairs = 1, .name = all[i].name, .kind = all[i].kind};
        check_kind(odd, &d);
    }
    pair = a_pair(plain, 9, 8); /* more changes than run at once */
    check_kind(plain, &(lens_patch_desc){.pairs = &pair,
                                         .n_pairs = 1,
                                         .name = "attn.hook_z",
                                         .kind = LENS_PATCH_POSITION_HEADS});
}

/* A metric before the last position, and one of all positions. */
TEST(other_metrics)
{
    lens_pair pair = a_pair(odd, 7, 4);
    lens_patch_desc d = {.pairs = &pair, .n_pairs = 1, .name = "hook_resid_mid"};
    pair.metric.from_end = 2;
    check_kind(odd, &d);
    d.name = "attn.hook_v";
    d.kind = LENS_PATCH_HEADS;
    check_kind(odd, &d);
    memset(&pair.metric, 0, sizeof pair.metric); /* the loss */
    check_kind(odd, &d);
    d.name = "hook_mlp_out";
    d.kind = LENS_PATCH_POSITIONS;
    check_kind(odd, &d);
}

/* An edited model: with a head at zero, and a stream that is steered. */
TEST(sweeps_of_an_edited_model)
{
    const attn_config *const c = attn_model_config(odd);
    const attn_tensor steer = random_tensor(1, (int)c->d_model, 1, 1);
    lens_pair pair = a_pair(odd, 6, 4);
    attn_edit edits[3] = {edit_of("blocks.0.attn.hook_z", ATTN_EDIT_ZERO),
                          edit_of("blocks.1.hook_resid_pre", ATTN_EDIT_ADD),
                          edit_of("blocks.1.hook_resid_post", ATTN_EDIT_ADD)};
    const char *const names[] = {"hook_resid_pre", "hook_mlp_out", "attn.hook_z"};
    edits[0].first_head = 1;
    edits[0].n_heads = 1;
    edits[1].value = edits[2].value = attn_reshape(steer, attn_shape2(1, c->d_model));
    edits[1].count = edits[2].count = 6;
    for (size_t i = 0; i < 3; i++)
        check_kind(odd, &(lens_patch_desc){.pairs = &pair,
                                           .n_pairs = 1,
                                           .name = names[i],
                                           .kind = i == 2 ? LENS_PATCH_HEADS : LENS_PATCH_POSITIONS,
                                           .edits = edits,
                                           .n_edits = 3});
}

static int stop_halfway(double done, void *user)
{
    *(double *)user = done;
    return done >= 0.5;
}

static int no_number(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    (void)d_logits, (void)logits, (void)user;
    *value = NAN;
    return 0;
}

/* Two pairs that are each other's reverse: their mean gap is 0, and changes are not divided by it. */
TEST(pairs_without_a_gap)
{
    SCOPED_CTX ctx = alone();
    lens_pair pairs[2] = {a_pair(odd, 6, 4), a_pair(odd, 6, 4)};
    lens_patch_desc d = {.pairs = pairs, .n_pairs = 2, .name = "hook_resid_pre"};
    attn_tensor mean = {0}, change = {0};
    lens_baseline both = {0, 0};
    double most = 0;
    pairs[1].clean = pairs[0].corrupted;
    pairs[1].corrupted = pairs[0].clean;
    OK(&ctx, lens_patch(&ctx, &mean, &both, odd, &d));
    CHECK(both.clean == both.corrupted && strstr(lens_no_gap(&both).text, "there is no gap"));
    d.normalize = 1;
    OK(&ctx, lens_patch(&ctx, &change, NULL, odd, &d));
    for (size_t i = 0; i < count_of(mean); i++) {
        const float is = ((const float *)change.data)[i];
        CHECK(is == ((const float *)mean.data)[i] - both.corrupted);
        most = fmax(most, fabs((double)is));
    }
    CHECK(most > 1e-4);
    both.clean += 1;
    CHECK(lens_no_gap(&both).text[0] == 0);
}

/* Several pairs are the mean of each, and normalized. */
TEST(means_over_pairs)
{
    SCOPED_CTX ctx = alone();
    attn_tensor each[2] = {{0}, {0}}, mean = {0}, share = {0};
    lens_baseline whole[2] = {{0, 0}, {0, 0}}, both = {0, 0};
    lens_pair pairs[2] = {a_pair(odd, 6, 4), a_pair(odd, 6, 9)};
    lens_patch_desc d = {.pairs = pairs, .n_pairs = 2, .name = "hook_resid_pre"};
    double clean = 0, corrupted = 0, done = 0;
    for (size_t i = 0; i < 2; i++) {
        OK(&ctx, patch_positions(&ctx, &each[i], &whole[i], odd, &pairs[i], "hook_resid_pre"));
        clean += (double)whole[i].clean / 2;
        corrupted += (double)whole[i].corrupted / 2;
    }
    OK(&ctx, lens_patch(&ctx, &mean, &both, odd, &d));
    CHECK(fabs((double)both.clean - clean) < 1e-6 &&
          fabs((double)both.corrupted - corrupted) < 1e-6);
    d.normalize = 1;
    OK(&ctx, lens_patch(&ctx, &share, NULL, odd, &d));
    for (size_t i = 0; i < count_of(mean); i++) {
        const double want =
            ((double)((const float *)each[0].data)[i] + (double)((const float *)each[1].data)[i]) /
            2;
        CHECK(fabs((double)((const float *)mean.data)[i] - want) < 1e-6);
        CHECK(fabs((double)((const float *)share.data)[i] -
                   (want - corrupted) / (clean - corrupted)) < 1e-5 / fabs(clean - corrupted));
    }
    d.progress = stop_halfway;
    d.user = &done;
    STOPS(&ctx, lens_patch(&ctx, &not_made, NULL, odd, &d));
    CHECK(fabs(done - 0.5) < 1e-9 && not_made.ndim == 0);
    d.progress = NULL;
    pairs[1].n_tokens = 5;
    REFUSED(ARGUMENT, "pair 1 has 5 tokens", lens_patch(&ctx, &not_made, NULL, odd, &d));
    d.n_pairs = 1;
    pairs[0].metric =
        (lens_metric){.kind = LENS_METRIC_FUNCTION_AT, .fn = no_number, .user = &done};
    REFUSED(ARGUMENT, "leave out normalize", lens_patch(&ctx, &not_made, NULL, odd, &d));
    d.n_edits = 1;
    REFUSED(ARGUMENT, "no edits given", lens_patch(&ctx, &not_made, NULL, odd, &d));
    d.n_edits = d.n_pairs = 0;
    REFUSED(ARGUMENT, "no pair", lens_patch(&ctx, &not_made, NULL, odd, &d));
    d.n_pairs = 1;
    d.kind = LENS_PATCH_SOURCES;
    REFUSED(NAME, "has no keys", lens_patch(&ctx, &not_made, NULL, odd, &d));
}

/* ---- ablation of heads ---- */

static int entry_of_logits(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    (void)d_logits;
    *value = attn_get2(logits, 2, *(const size_t *)user);
    return 0;
}

/* Every change by whole passes, and the same bits for one thread and for three. */
static void check_ablation(const attn_model *model, const lens_ablate_desc *d, double close)
{
    enum { MOST = 64 };
    const attn_config *const c = attn_model_config(model);
    const size_t n = c->n_layer * c->n_head;
    double changes[MOST], again[MOST], whole = 0, as_before = 0;
    attn_ctx ctx = {.n_threads = 1};
    CHECK(n <= MOST);
    OK(&ctx, lens_ablate_heads(&ctx, changes, &whole, model, d));
    ctx.n_threads = 3;
    OK(&ctx, lens_ablate_heads(&ctx, again, &as_before, model, d));
    CHECK(memcmp(changes, again, n * sizeof *changes) == 0 && whole == as_before);
    for (size_t i = 0; i <= n; i++) { /* the last one: no head */
        double is = i < n ? changes[i] : whole;
        for (size_t k = 0; k < d->n_pairs; k++) {
            const lens_pair *const pair = &d->pairs[k];
            attn_edit edits[3] = {{0}};
            lens_patch_desc of = {.pairs = pair, .n_pairs = 1, .edits = edits};
            if (d->n_edits)
                memcpy(edits, d->edits, d->n_edits * sizeof *edits);
            edits[d->n_edits] =
                edit_of(test_text("blocks.%d.attn.hook_z", (int)(i / c->n_head)), ATTN_EDIT_ZERO);
            edits[d->n_edits].first_head = i % c->n_head;
            edits[d->n_edits].n_heads = 1;
            of.n_edits = d->n_edits + (i < n);
            is -= plainly(model, pair->clean, &of, NULL, NULL) / (double)d->n_pairs;
            of.n_edits = d->n_edits;
            is += i < n ? plainly(model, pair->clean, &of, NULL, NULL) / (double)d->n_pairs : 0;
        }
        CHECKF(fabs(is) <= close, "head %d is wrong by %.9g", (int)i, is);
    }
}

TEST(ablation_of_heads)
{
    const attn_edit edit[2] = {edit_of("blocks.0.hook_mlp_out", ATTN_EDIT_ZERO)};
    lens_pair texts[2] = {a_pair(odd, 7, 4), a_pair(odd, 9, 6)};
    lens_ablate_desc d = {.pairs = texts, .n_pairs = 1};
    texts[0].corrupted = texts[1].corrupted = NULL; /* no function reads them */
    check_ablation(odd, &d, 0);
    texts[0].metric.from_end = 3;
    d.edits = edit;
    d.n_edits = 1;
    check_ablation(odd, &d, 0);
    memset(&texts[0].metric, 0, sizeof texts[0].metric); /* the loss */
    check_ablation(odd, &d, 1e-5);
    d.n_pairs = 2;
    check_ablation(odd, &d, 1e-5);
}

/* The loss of targets, a function, and the loss to the last bit. */
TEST(metrics_of_ablation)
{
    enum { N = 9, MOST = 64 };
    lens_pair text = a_pair(odd, N, 4);
    const lens_ablate_desc d = {.pairs = &text, .n_pairs = 1};
    SCOPED_CTX ctx = alone();
    double changes[MOST], whole = 0;
    SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
    attn_token_stats stats[N];
    attn_token targets[N];
    size_t which = 5;
    OK(&ctx, attn_score(&ctx, stats, NULL, session, text.clean, N));
    memset(&text.metric, 0, sizeof text.metric);
    OK(&ctx, lens_ablate_heads(&ctx, changes, &whole, odd, &d));
    CHECK(whole == attn_mean_nll(stats, N - 1));
    memcpy(targets, text.clean + 1, (N - 1) * sizeof *targets);
    targets[N - 1] = -1;
    text.metric.targets = targets;
    OK(&ctx, lens_ablate_heads(&ctx, changes, &whole, odd, &d));
    CHECK(fabs(whole - attn_mean_nll(stats, N - 1)) < 1e-5);
    text.metric =
        (lens_metric){.kind = LENS_METRIC_FUNCTION, .fn = entry_of_logits, .user = (void *)&which};
    OK(&ctx, lens_ablate_heads(&ctx, changes, &whole, odd, &d));
    CHECK(whole == (double)hooked(odd, text.clean, N, N, NULL, NULL, NULL, NULL,
                                  NULL)[2 * vocab_of(odd) + which]);
}

TEST(rules_of_ablation)
{
    enum { MOST = 64 };
    lens_pair texts[2] = {a_pair(odd, 5, 4), a_pair(odd, 6, 9)};
    lens_ablate_desc d = {.pairs = texts, .n_pairs = 2};
    const size_t n = attn_model_config(odd)->n_layer * attn_model_config(odd)->n_head;
    float each[2][2 + MOST];
    double changes[MOST], whole = 0, share = 0;
    SCOPED_CTX ctx = alone();
    int patience = 3;
    d.each = (float *)each;
    d.progress = stop_halfway;
    d.user = &share;
    STOPS(&ctx, lens_ablate_heads(&ctx, changes, &whole, odd, &d));
    CHECK(fabs(share - 0.5) < 1e-9);
    d.progress = NULL;
    OK(&ctx, lens_ablate_heads(&ctx, changes, &whole, odd, &d));
    for (size_t i = 0; i < n; i++)
        CHECK(fabs(changes[i] -
                   ((double)((float *)each)[2 + i] + (double)((float *)each)[4 + n + i]) / 2) <
              1e-6);
    CHECK(fabs(whole - ((double)((float *)each)[0] + (double)((float *)each)[2 + n]) / 2) < 1e-5 &&
          isnan(((float *)each)[1]) && isnan(((float *)each)[3 + n]));
#define ABLATION(text, status_)                                                                    \
    FAILS_IN(&ctx, status_, text, lens_ablate_heads(&ctx, changes, &whole, odd, &d))
    FAILS(ARGUMENT, "no description given", lens_ablate_heads(&ctx, changes, &whole, odd, NULL));
    FAILS(ARGUMENT, "no place for the metric", lens_ablate_heads(&ctx, changes, NULL, odd, &d));
    texts[1].metric.from_end = 6;
    ABLATION("lens_ablate_heads: position 6 from the end", ATTN_E_ARGUMENT);
    texts[1].metric.from_end = 0;
    texts[1].metric.token = -1;
    ABLATION("token is -1", ATTN_E_TOKEN);
    texts[1].metric.token = 7;
    texts[1].n_tokens = 0;
    ABLATION("no tokens", ATTN_E_ARGUMENT);
    d.n_pairs = 0;
    ABLATION("no text given", ATTN_E_ARGUMENT);
    d.n_pairs = d.n_edits = 1;
    ABLATION("no edits given", ATTN_E_ARGUMENT);
    d.n_edits = 0;
    memset(&texts[0].metric, 0, sizeof texts[0].metric);
    texts[0].n_tokens = 1;
    ABLATION("no position has a token whose loss counts", ATTN_E_ARGUMENT);
    texts[0].n_tokens = 5;
    texts[0].metric =
        (lens_metric){.kind = LENS_METRIC_FUNCTION_AT, .fn = give_up, .user = &patience};
    STOPS(&ctx, lens_ablate_heads(&ctx, changes, &whole, odd, &d));
    CHECK(patience == -1);
}

TEST(arguments_of_patches)
{
    SCOPED_CTX ctx = {0};
    int32_t clean[4] = {1, 2, 3, 4}, corrupted[4] = {1, 5, 3, 4};
    lens_pair d;
    const int32_t n_vocab = (int32_t)attn_model_config(plain)->n_vocab;
    memset(&d, 0, sizeof d);
#define POSITIONS(text, status_)                                                                   \
    REFUSED_AS(status_, text, patch_positions(&ctx, &not_made, NULL, plain, &d, "hook_resid_pre"))
    REFUSED(ARGUMENT, "no description given", lens_patch(&ctx, &not_made, NULL, plain, NULL));
    REFUSED(ARGUMENT, "no pair of texts given",
            patch_positions(&ctx, &not_made, NULL, plain, NULL, "hook_resid_pre"));
    POSITIONS("no clean text", ATTN_E_ARGUMENT);
    d.clean = clean;
    POSITIONS("no corrupted text", ATTN_E_ARGUMENT);
    d.corrupted = corrupted;
    POSITIONS("no tokens", ATTN_E_ARGUMENT);
    d.n_tokens = attn_model_config(plain)->n_ctx + 1;
    POSITIONS("the model's n_ctx is", ATTN_E_CONTEXT);
    d.n_tokens = 4;
    d.metric.kind = LENS_METRIC_LOGIT_DIFF;
    d.metric.token = -1;
    POSITIONS("token is -1", ATTN_E_TOKEN);
    d.metric.token = n_vocab;
    POSITIONS("token is", ATTN_E_TOKEN);
    d.metric.token = 0;
    d.metric.against = -2;
    POSITIONS("against is -2", ATTN_E_TOKEN);
    d.metric.against = n_vocab;
    POSITIONS("against is", ATTN_E_TOKEN);
    d.metric.against = 1;
    clean[2] = -5;
    POSITIONS("clean token 2 is -5", ATTN_E_TOKEN);
    clean[2] = 3;
    corrupted[1] = n_vocab;
    POSITIONS("corrupted token 1 is 97", ATTN_E_TOKEN);
    corrupted[1] = 5;
}

/* tools/lens/paths.h: every path by its definition, and its rules. */
#include "tests/support/refused.h"
#include "tests/support/patches.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd narrow");

/* The activation of this name is `value`, whatever comes before it. */
static void freeze(attn_ctx *ctx, attn_session *session, const char *name, attn_tensor value)
{
    attn_edit e = {.name = name, .kind = ATTN_EDIT_SET, .value = value};
    OK(ctx, attn_hook_edit(ctx, NULL, session, &e));
}

/* Hooks an edit that sets the sender's output to its output in the clean text. */
static void send(attn_ctx *ctx, attn_session *session, const one_path *path, const sight *is)
{
    static const char *const names[] = {"hook_resid_pre", "attn.hook_result", "hook_mlp_out"};
    const char *const name =
        test_text("blocks.%d.%s", (int)path->from.layer, names[path->from.kind]);
    attn_edit e = {.name = name, .kind = ATTN_EDIT_SET, .value = latest(is, name)};
    if (path->from.kind == LENS_SENDER_HEAD) {
        e.first_head = path->from.head;
        e.n_heads = 1;
        e.value = attn_slice(e.value, 1, path->from.head, 1);
    }
    OK(ctx, attn_hook_edit(ctx, NULL, session, &e));
}

/* Two texts of n tokens, and the difference of two logits as their metric. */
static lens_pair by_logits(const int32_t *clean, const int32_t *corrupted, size_t n, int32_t token,
                           int32_t against)
{
    const lens_pair pair = {.clean = clean,
                            .corrupted = corrupted,
                            .n_tokens = n,
                            .metric.kind = LENS_METRIC_LOGIT_DIFF,
                            .metric.token = token,
                            .metric.against = against};
    return pair;
}

/* A path by its definition: run the corrupted text with the sender clean and every other writer
 * frozen at what it wrote, and see what reaches the reader; then run again with that. */
static void check_path(const attn_model *model, const one_path *path)
{
    enum { LENGTH = 10 };
    const attn_config *const c = attn_model_config(model);
    attn_ctx ctx = alone();
    const int32_t *const clean = random_tokens(model, LENGTH, 1), *const corrupted = random_tokens(
                                                                      model, LENGTH, 2);
    SCOPED_SESSION session = session_on(&ctx, model, 0, 0);
    sight *const was = new_sight(), *const is = new_sight(), *const reached = new_sight();
    attn_tensor outs[64];
    char name[64];
    size_t j, k;
    float got = 0, want;
    lens_pair d = by_logits(clean, corrupted, LENGTH, 5, 6);
    OK(&ctx, patch_path(&ctx, &got, model, &d, path));
    hooked(model, clean, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_result", is);
    hooked(model, clean, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_mlp_out", is);
    hooked(model, clean, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.0.hook_resid_pre", is);
    hooked(model, corrupted, LENGTH, LENGTH, NULL, NULL, NULL, "*_out", was);
    for (size_t i = 0; i < c->n_layer; i++) { /* what others write, frozen */
        snprintf(name, sizeof name, "blocks.%d.hook_mlp_out", (int)i);
        outs[2 * i] = latest(was, name);
        if (path->mlps == LENS_MLPS_FROZEN)
            freeze(&ctx, session, name, outs[2 * i]);
        snprintf(name, sizeof name, "blocks.%d.hook_attn_out", (int)i);
        outs[2 * i + 1] = latest(was, name);
        if (i != path->from.layer || path->from.kind != LENS_SENDER_HEAD)
            freeze(&ctx, session, name, outs[2 * i + 1]);
    }
    send(&ctx, session, path, is);
    attn_edit e = {.name = name, .kind = ATTN_EDIT_SET};
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_resid_*", note, reached));
    OK(&ctx, attn_feed(&ctx, session, corrupted, LENGTH));
    want = attn_session_logits(session)[5] - attn_session_logits(session)[6];
    if (path->to_layer < c->n_layer) {
        attn_unhook_all(session);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        snprintf(name, sizeof name, "blocks.%d.hook_resid_%s", (int)path->to_layer,
                 strstr(path->to, "mlp") ? "mid" : "pre");
        attn_tensor stream = latest(reached, name);
        snprintf(name, sizeof name, "blocks.%d.%s", (int)path->to_layer, path->to);
        e.first_head = e.n_heads = 0;
        e.value = stream;
        if (strstr(path->to, "_input")) {
            attn_tensor copies = random_tensor(3, LENGTH, 1, (int)c->d_model);
            for (size_t i = 0; i < LENGTH; i++)
                for (j = 0, k = 0; k < c->d_model; k++)
                    *entry(copies, i, j, k) = *entry(stream, i, k, 0);
            e.first_head = path->to_head;
            e.n_heads = 1;
            e.value = copies;
        }
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
        OK(&ctx, attn_feed(&ctx, session, corrupted, LENGTH));
        want = attn_session_logits(session)[5] - attn_session_logits(session)[6];
    }
    CHECKF(fabs((double)got - (double)want) < 2e-5 * (1 + fabs((double)want)),
           "%s to %s of %llu: %.9g, expected %.9g", lens_show_sender(&path->from).text, path->to,
           LLU(path->to_layer), (double)got, (double)want);
    {
        float *const usual =
            hooked(model, corrupted, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL) +
            (LENGTH - 1) * vocab_of(model);
        CHECKF(fabs((double)got - (double)(usual[5] - usual[6])) > 1e-5, "%s changed nothing",
               path->to);
    }
    pool_clear();
}

TEST(paths)
{
    static const one_path all[] = {
        {.from = {LENS_SENDER_HEAD, 0, 1}, .to_layer = 1, .to = "hook_q_input", .to_head = 2},
        {.from = {LENS_SENDER_HEAD, 0, 0}, .to_layer = 2, .to = "hook_k_input", .to_head = 1},
        {.from = {LENS_SENDER_HEAD, 1, 2}, .to_layer = 2, .to = "hook_v_input", .to_head = 0},
        {.from = {LENS_SENDER_HEAD, 0, 1}, .to_layer = 2, .to = "hook_resid_pre", .to_head = 0},
        {.from = {LENS_SENDER_HEAD, 0, 2}, .to_layer = 3, .to = "hook_resid_pre", .to_head = 0},
        {.from = {LENS_SENDER_HEAD, 1, 1}, .to_layer = 1, .to = "hook_mlp_in", .to_head = 0},
        {.from = {LENS_SENDER_HEAD, 0, 1}, .to_layer = 2, .to = "hook_mlp_in", .to_head = 0},
        {.from = {LENS_SENDER_HEAD, 2, 0}, .to_layer = 3, .to = "hook_resid_pre", .to_head = 0},
        {.from = {LENS_SENDER_MLP, 0, 0}, .to_layer = 1, .to = "hook_k_input"},
        {.from = {LENS_SENDER_MLP, 0, 0}, .to_layer = 2, .to = "hook_mlp_in"},
        {.from = {LENS_SENDER_MLP, 1, 0}, .to_layer = 3, .to = "hook_resid_pre"},
        {.from = {LENS_SENDER_MLP, 2, 0}, .to_layer = 3, .to = "hook_resid_pre"},
        {.from = {LENS_SENDER_EMBED, 0, 0}, .to_layer = 0, .to = "hook_mlp_in"},
        {.from = {LENS_SENDER_EMBED, 0, 0}, .to_layer = 2, .to = "hook_v_input"},
        {.from = {LENS_SENDER_EMBED, 0, 0}, .to_layer = 3, .to = "hook_resid_pre"}};
    for (size_t i = 0; i < 2 * sizeof all / sizeof all[0]; i++) {
        one_path path = all[i / 2];
        path.mlps = i % 2 ? LENS_MLPS_THROUGH : LENS_MLPS_FROZEN;
        check_path(odd, &path);
        check_path(narrow, &path);
    }
}

/* One sender to receivers in two layers, by its definition: the second does not see what the first did
 * with its input. */
TEST(two_receivers)
{
    enum { LENGTH = 6 };
    const size_t width = attn_model_config(odd)->d_model;
    const lens_sender from[] = {{LENS_SENDER_HEAD, 0, 1}, {LENS_SENDER_HEAD, 0, 2}};
    const lens_receiver to[] = {{1, "hook_q_input", 2}, {2, "hook_mlp_in", 0}};
    lens_pair pair = {.n_tokens = LENGTH,
                      .metric = {LENS_METRIC_LOGIT_DIFF, 5, 6, 0, NULL, NULL, NULL}};
    lens_paths_desc d = {.pairs = &pair,
                         .n_pairs = 1,
                         .senders = from,
                         .n_senders = 2,
                         .receivers = to,
                         .n_receivers = 2};
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
    sight *const is = new_sight(), *const was = new_sight(), *const stream = new_sight();
    attn_tensor got = {0}, each = {0}, input[2];
    lens_baseline whole;
    pair.clean = random_tokens(odd, LENGTH, 1);
    pair.corrupted = random_tokens(odd, LENGTH, 2);
    OK(&ctx, lens_patch_paths(&ctx, &got, &whole, odd, &d));
    hooked(odd, pair.clean, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_result", is);
    hooked(odd, pair.corrupted, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_result", was);
    hooked(odd, pair.corrupted, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_resid_*", stream);
    for (size_t s = 0; s < 2; s++) {
        const attn_tensor x = latest(is, "blocks.0.attn.hook_result");
        const attn_tensor y = latest(was, "blocks.0.attn.hook_result");
        for (size_t r = 0; r < 2; r++) {
            const attn_tensor base =
                latest(stream, r ? "blocks.2.hook_resid_mid" : "blocks.1.hook_resid_pre");
            input[r] = random_tensor(3, LENGTH, 1, (int)width);
            for (size_t t = 0; t < LENGTH; t++)
                for (size_t i = 0; i < width; i++)
                    *entry(input[r], t, 0, i) =
                        *entry(base, t, i, 0) +
                        (*entry(x, t, from[s].head, i) - *entry(y, t, from[s].head, i));
            attn_edit e = {.name = r ? "blocks.2.hook_mlp_in" : "blocks.1.hook_q_input",
                           .kind = ATTN_EDIT_SET,
                           .first_head = r ? 0 : 2,
                           .n_heads = !r,
                           .value =
                               r ? attn_reshape(input[r], attn_shape2(LENGTH, width)) : input[r]};
            OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
        }
        OK(&ctx, attn_feed(&ctx, session, pair.corrupted, LENGTH));
        double value = (double)(attn_session_logits(session)[5] - attn_session_logits(session)[6]);
        CHECK(fabs((double)attn_get1(got, s) - value) < 1e-6 &&
              fabs(value - (double)whole.corrupted) > 1e-5);
        attn_unhook_all(session);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
    }
    d.each_receiver = 1;
    OK(&ctx, lens_patch_paths(&ctx, &each, NULL, odd, &d));
    for (size_t s = 0; s < 2; s++)
        for (size_t r = 0; r < 2; r++) {
            const one_path path = {from[s], to[r].layer, to[r].to, to[r].head, LENS_MLPS_FROZEN};
            float one = 0;
            OK(&ctx, patch_path(&ctx, &one, odd, &pair, &path));
            CHECK(attn_get2(each, s, r) == one);
        }
}

/* A run of a text under edits, then under `more`, with a record of everything that a path is made of. */
static attn_record *edited_run(attn_ctx *ctx, attn_session **session, const attn_model *model,
                               const int32_t *text, size_t n, const attn_edit *edits,
                               size_t n_edits, const attn_edit *more, size_t n_more)
{
    static const char *const names[] = {"*",
                                        "*.attn.hook_result",
                                        "*.hook_mlp_in",
                                        "*.hook_q_input",
                                        "*.hook_k_input",
                                        "*.hook_v_input"};
    attn_record *record = NULL;
    *session = session_on(ctx, model, 0, 0);
    OK(ctx, lens_hook_edits(ctx, *session, edits, n_edits));
    OK(ctx, lens_hook_edits(ctx, *session, more, n_more));
    attn_record_desc what = {
        .names = names, .n_names = sizeof names / sizeof names[0], .n_positions = n};
    OK(ctx, attn_record_new(ctx, &record, *session, &what));
    OK(ctx, attn_feed(ctx, *session, text, n));
    return record;
}

static attn_edit setting(attn_ctx *ctx, char *room, const attn_record *from, size_t layer,
                         const char *name)
{
    snprintf(room, 64, "blocks.%d.%s", (int)layer, name);
    attn_edit e = {.name = room, .kind = ATTN_EDIT_SET};
    OK(ctx, attn_record_get(ctx, &e.value, from, room));
    return e;
}

static attn_edit of_one_head(attn_edit e, size_t head)
{
    e.first_head = head;
    e.n_heads = 1;
    e.value = attn_slice(e.value, 1, head, 1);
    return e;
}

/* A path in an edited model by its definition: as check_path, but the edits act in every run. */
static void check_edited_path(const attn_model *model, const one_path *path, const attn_edit *edits,
                              size_t n_edits)
{
    enum { LENGTH = 5 };
    static const char *const written[] = {"hook_resid_pre", "attn.hook_result", "hook_mlp_out"};
    const size_t n_layer = attn_model_config(model)->n_layer;
    attn_ctx ctx = alone();
    const int32_t *const clean = random_tokens(model, LENGTH, 1);
    const int32_t *const corrupted = random_tokens(model, LENGTH, 2);
    attn_session *sessions[4] = {NULL};
    attn_record *records[4] = {NULL};
    attn_edit more[16];
    char names[16][64];
    const lens_receiver to = {path->to_layer, path->to, path->to_head};
    size_t i, n = 0;
    float got = 0, want;
    attn_tensor out = attn_borrow(&got, ATTN_F32, attn_shape1(1));
    lens_pair d = by_logits(clean, corrupted, LENGTH, 5, 6);
    lens_paths_desc desc = {.pairs = &d, .senders = &path->from, .receivers = &to};
    desc.n_pairs = desc.n_senders = desc.n_receivers = 1;
    desc.mlps = path->mlps;
    desc.edits = edits;
    desc.n_edits = n_edits;
    OK(&ctx, lens_patch_paths(&ctx, &out, NULL, model, &desc));

    records[0] = edited_run(&ctx, &sessions[0], model, clean, LENGTH, edits, n_edits, NULL, 0);
    records[1] = edited_run(&ctx, &sessions[1], model, corrupted, LENGTH, edits, n_edits, NULL, 0);
    for (i = 0; i < n_layer; i++) {
        if (path->mlps == LENS_MLPS_FROZEN) {
            more[n] = setting(&ctx, names[n], records[1], i, "hook_mlp_out");
            n++;
        }
        if (i != path->from.layer || path->from.kind != LENS_SENDER_HEAD) {
            more[n] = setting(&ctx, names[n], records[1], i, "hook_attn_out");
            n++;
        }
    }
    more[n] = setting(&ctx, names[n], records[0], path->from.layer, written[path->from.kind]);
    if (path->from.kind == LENS_SENDER_HEAD)
        more[n] = of_one_head(more[n], path->from.head);
    n++;
    records[2] = edited_run(&ctx, &sessions[2], model, corrupted, LENGTH, edits, n_edits, more, n);
    more[0] = path->to_layer == n_layer
                  ? setting(&ctx, names[0], records[2], n_layer - 1, "hook_resid_post")
                  : setting(&ctx, names[0], records[2], path->to_layer, path->to);
    if (strstr(path->to, "_input"))
        more[0] = of_one_head(more[0], path->to_head);
    records[3] = edited_run(&ctx, &sessions[3], model, corrupted, LENGTH, edits, n_edits, more, 1);
    want = attn_session_logits(sessions[3])[5] - attn_session_logits(sessions[3])[6];
    CHECKF(fabs((double)got - (double)want) < 2e-5 * (1 + fabs((double)want)),
           "%s to %s of %llu, MLPs %d, edit %s: %.9g, expected %.9g",
           lens_show_sender(&path->from).text, path->to, LLU(path->to_layer), (int)path->mlps,
           edits[0].name, (double)got, (double)want);
    for (i = 0; i < 4; i++) {
        attn_record_free(records[i]);
        attn_session_free(sessions[i]);
    }
    pool_clear();
}

/* Edits of the stream, of what senders write and of what receivers read, on the way of a path. */
TEST(edited_paths)
{
    static const one_path all[] = {
        {.from = {LENS_SENDER_HEAD, 0, 1}, .to_layer = 2, .to = "hook_q_input", .to_head = 2},
        {.from = {LENS_SENDER_HEAD, 0, 2}, .to_layer = 3, .to = "hook_resid_pre"},
        {.from = {LENS_SENDER_HEAD, 1, 1}, .to_layer = 1, .to = "hook_mlp_in"},
        {.from = {LENS_SENDER_MLP, 0, 0}, .to_layer = 2, .to = "hook_mlp_in"},
        {.from = {LENS_SENDER_EMBED, 0, 0}, .to_layer = 2, .to = "hook_resid_pre"}};
    static const char *const edited[] = {
        "blocks.1.hook_resid_mid", "blocks.2.hook_resid_pre", "*.hook_resid_post",
        "*.hook_attn_out",         "*.hook_mlp_out",          "*.attn.hook_z",
        "blocks.2.hook_mlp_in",    "blocks.2.hook_q_input",   "blocks.0.hook_resid_pre"};
    float half = 0.5f;
    attn_edit e = {.kind = ATTN_EDIT_SCALE, .value = attn_borrow(&half, ATTN_F32, attn_shape1(1))};
    for (size_t i = 0; i < 2 * sizeof all / sizeof all[0]; i++)
        for (size_t j = 0; j < sizeof edited / sizeof edited[0]; j++) {
            one_path path = all[i / 2];
            path.mlps = i % 2 ? LENS_MLPS_THROUGH : LENS_MLPS_FROZEN;
            e.name = edited[j];
            check_edited_path(odd, &path, &e, 1);
        }
}

/* Edits behind the position of the metric change nothing before it, and are taken as gradients take
 * them. */
TEST(edits_behind_the_metric)
{
    attn_ctx ctx = alone();
    const int32_t clean[] = {1, 2, 3, 4}, corrupted[] = {5, 2, 3, 4};
    const lens_sender from = {LENS_SENDER_HEAD, 0, 1};
    const lens_receiver to = {2, "hook_mlp_in", 0};
    lens_paths_desc paths = ATTN_ZERO;
    lens_patch_desc patch = ATTN_ZERO;
    attn_tensor effect[4] = {{0}};
    lens_pair pair = {.clean = clean,
                      .corrupted = corrupted,
                      .n_tokens = 4,
                      .metric.kind = LENS_METRIC_LOGIT_DIFF,
                      .metric.against = 1,
                      .metric.from_end = 1};
    attn_edit e = {.name = "blocks.1.hook_mlp_out", .kind = ATTN_EDIT_ZERO, .first = 3, .count = 1};
    paths.pairs = patch.pairs = &pair;
    paths.n_pairs = patch.n_pairs = paths.n_senders = paths.n_receivers = 1;
    paths.senders = &from;
    paths.receivers = &to;
    paths.edits = patch.edits = &e;
    patch.name = "hook_resid_pre";
    for (size_t i = 0; i < 2; i++) {
        paths.n_edits = patch.n_edits = i;
        OK(&ctx, lens_patch(&ctx, &effect[i], NULL, odd, &patch));
        OK(&ctx, lens_patch_paths(&ctx, &effect[2 + i], NULL, odd, &paths));
    }
    same_floats((const float *)effect[1].data, (const float *)effect[0].data, 1,
                attn_count(effect[0]), "patches");
    CHECKF(fabs((double)attn_get1(effect[2], 0) - (double)attn_get1(effect[3], 0)) < 1e-5, "%g, %g",
           (double)attn_get1(effect[2], 0), (double)attn_get1(effect[3], 0));
    for (size_t i = 0; i < 4; i++)
        attn_tensor_free(&ctx, &effect[i]);
}

static int give_up(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    (void)d_logits;
    *value = attn_get2(logits, 0, 0);
    return *(int *)user;
}

TEST(rules)
{
    SCOPED_CTX ctx = alone();
    const int32_t clean[] = {1, 2, 3, 4}, corrupted[] = {5, 2, 3, 4}, bad[] = {1, 2, 301, 4};
    one_path path = {{LENS_SENDER_HEAD, 0, 0}, 1, "hook_q_input", 0, LENS_MLPS_FROZEN};
    attn_tensor out = {0};
    float value = 0;
    int answer = 0;
    meter m;
    attn_ctx counted = metered(&m);
    attn_status status;
    long n;
    lens_pair d = by_logits(clean, corrupted, 4, 1, 2);
    one_path astray = path;
    astray.to_layer = 0;
    FAILS(ARGUMENT, "no path", patch_path(&ctx, &value, odd, &d, &astray));
    astray = path;
    astray.from.head = 3;
    FAILS(ARGUMENT, "no head 3", patch_path(&ctx, &value, odd, &d, &astray));
    astray.from.kind = LENS_SENDER_MLP;
    FAILS(ARGUMENT, "an MLP has no head", patch_path(&ctx, &value, odd, &d, &astray));
    astray.from.head = 0;
    astray.to_layer = 0;
    FAILS(ARGUMENT, "no path leads from MLP of layer 0",
          patch_path(&ctx, &value, odd, &d, &astray));
    astray.from.kind = LENS_SENDER_EMBED;
    astray.from.layer = 1;
    FAILS(ARGUMENT, "layer 1, head 0 of a sender: the embedding has neither",
          patch_path(&ctx, &value, odd, &d, &astray));
    astray.from.kind = (lens_sender_kind)3;
    FAILS(ARGUMENT, "kind 3 of a sender", patch_path(&ctx, &value, odd, &d, &astray));
    astray = path;
    astray.to_layer = 3;
    FAILS(ARGUMENT, "no receiver", patch_path(&ctx, &value, odd, &d, &astray));
    astray = path;
    astray.to = "attn.hook_z";
    FAILS(NAME, "hook_mlp_in", patch_path(&ctx, &value, odd, &d, &astray));

    lens_pair wrong = d;
    wrong.corrupted = bad;
    FAILS(TOKEN, "301", patch_path(&ctx, &value, odd, &wrong, &path));
    wrong = d;
    wrong.metric.token = -1;
    FAILS(TOKEN, "token is -1", patch_path(&ctx, &value, odd, &wrong, &path));
    wrong = d;
    memset(&wrong.metric, 0, sizeof wrong.metric);
    wrong.metric.kind = LENS_METRIC_FUNCTION_AT;
    wrong.metric.fn = give_up;
    wrong.metric.user = &answer;
    OK(&ctx, patch_path(&ctx, &value, odd, &wrong, &path));
    answer = 1;
    STOPS(&ctx, patch_path(&ctx, &value, odd, &wrong, &path));
    wrong.clean = NULL;
    FAILS(ARGUMENT, "no clean text", patch_path(&ctx, &value, odd, &wrong, &path));
    FAILS(ARGUMENT, "no model", patch_path(&ctx, &value, NULL, &d, &path));
    FAILS(ARGUMENT, "no pair", patch_path(&ctx, &value, odd, NULL, &path));
    FAILS(ARGUMENT, "no description", lens_patch_paths(&ctx, &out, NULL, odd, NULL));

    /* Whatever runs out, nothing is left behind. */
    counted.n_threads = 1;
    for (n = 0, status = ATTN_E_MEMORY; n < 400 && status != ATTN_OK; n++) {
        m.fail_at = m.asked + n;
        status = patch_path(&counted, &value, odd, &d, &path);
        m.fail_at = -1;
        CHECK((status == ATTN_OK || status == ATTN_E_MEMORY) && m.live == 0);
    }
    CHECK(status == ATTN_OK && n > 10);
}

TEST(ends_of_a_path)
{
    SCOPED_CTX ctx = {0};
    const int32_t clean[] = {1, 2, 3, 4}, corrupted[] = {5, 2, 3, 4};
    float value = 3;
    lens_pair d = by_logits(clean, corrupted, 4, 0, 1);
    one_path path = {.from.kind = LENS_SENDER_HEAD};
#define PATH(text, status_)                                                                        \
    REFUSED_AS(status_, text, patch_path(&ctx, &value, plain, &d, &path));                         \
    CHECK(value == 3)
    PATH("not nothing", ATTN_E_NAME);
    path.to = "hook_z";
    PATH("not hook_z", ATTN_E_NAME);
    path.to = "hook_mlp_in";
    path.from.head = attn_model_config(plain)->n_head;
    CHECK(patch_path(&ctx, &value, plain, &d, &path) != ATTN_OK);
    path.from.head = 0;
    path.to_head = attn_model_config(plain)->n_head;
    path.to = "hook_v_input";
    path.to_layer = 1;
    PATH("no receiver hook_v_input of layer 1", ATTN_E_ARGUMENT);
    path.to = "hook_mlp_in";
    path.to_head = path.to_layer = 0;
    path.from.layer = attn_model_config(plain)->n_layer;
    CHECK(patch_path(&ctx, &value, plain, &d, &path) != ATTN_OK);
    path.from.layer = 0;
    d.n_tokens = 0;
    PATH("no tokens", ATTN_E_ARGUMENT);
}

/* Activation patching, compared with one whole forward pass for each patch. */
#include "hooks.h"
#include "refused.h"

static attn_model *plain, *odd, *narrow, *longer, *tiny, *bytes8;

static int set_up(void)
{
    plain = golden("plain");
    odd = golden("odd");
    narrow = golden("narrow");
    longer = golden("long");
    tiny = included();
    bytes8 = converted("examples/tiny-stories", "q8.attn", "--dtype q8 --no-tokenizer");
    return plain && odd && narrow && longer && tiny && bytes8;
}

static void tear_down(void)
{
    attn_model_close(plain);
    attn_model_close(odd);
    attn_model_close(narrow);
    attn_model_close(longer);
    attn_model_close(tiny);
    attn_model_close(bytes8);
}

SUITE_WITH("lens", set_up, tear_down);

/* ---- patching ---- */

static int surprise(float *value, const float *logits, void *user)
{
    *value = logits[3] * 2 - logits[*(const int *)user];
    return 0;
}

static int give_up(float *value, const float *logits, void *user)
{
    *value = logits[0];
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
    float value;
    if (position < n) {
        e.position = position;
        e.n_positions = 1;
        e.value = attn_slice(clean, over_keys, position, 1);
    } else {
        e.head = head;
        e.n_heads = 1;
        e.value = attn_slice(clean, !over_keys, head, 1);
    }
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    OK(&ctx, attn_feed(&ctx, session, tokens, n));
    value = attn_logits(session)[right] - attn_logits(session)[wrong];
    attn_session_free(session);
    return value;
}

static void check_sweep(const attn_model *model, size_t n, const char *name)
{
    const attn_config *const c = attn_model_config(model);
    const int over_keys = strstr(name, "pattern") || strstr(name, "scores");
    const int has_heads = over_keys || strstr(name, "attn.") || strstr(name, "_input");
    attn_ctx ctx = alone();
    attn_patch_desc d;
    attn_tensor got = {0}, heads = {0};
    sight *const s = new_sight();
    char full[64];
    attn_patch_baseline as_it_is = {0, 0};
    float corrupted;
    size_t layer, i, n_differ = 0;
    int32_t *const corrupt = random_tokens(model, n, 2);
    memset(&d, 0, sizeof d);
    d.clean = random_tokens(model, n, 1);
    memcpy(corrupt, d.clean, n / 4 * sizeof *corrupt); /* they part and meet again */
    memcpy(corrupt + n / 2, d.clean + n / 2, (n - n / 2) * sizeof *corrupt);
    d.corrupted = corrupt;
    d.n_tokens = n;
    d.right = 7;
    d.wrong = 3;
    ctx.n_threads = 2;
    snprintf(full, sizeof full, "*.%s", name);
    hooked(model, d.clean, n, n, NULL, NULL, NULL, full, s);
    OK(&ctx, attn_patch_positions(&ctx, &got, &as_it_is, model, &d, name));
    corrupted = as_it_is.corrupted;
    if (has_heads)
        OK(&ctx, attn_patch_heads(&ctx, &heads, NULL, model, &d, name));
    CHECK(got.ndim == 2 && got.shape[0] == c->n_layer && got.shape[1] == n);
    for (layer = 0; layer < c->n_layer; layer++) {
        snprintf(full, sizeof full, "blocks.%d.%s", (int)layer, name);
        for (i = 0; i < n; i++) {
            const float want =
                patched(model, corrupt, n, full, latest(s, full), over_keys, i, 0, 7, 3);
            n_differ += want != corrupted;
            CHECKF(*entry(got, layer, i, 0) == want, "%s at %llu: %.9g, expected %.9g", full,
                   LLU(i), (double)*entry(got, layer, i, 0), (double)want);
        }
        for (i = 0; has_heads && i < c->n_head; i++)
            CHECKF(*entry(heads, layer, i, 0) ==
                       patched(model, corrupt, n, full, latest(s, full), over_keys, n, i, 7, 3),
                   "%s, head %llu", full, LLU(i));
    }
    CHECK(n_differ > 0 && as_it_is.clean != corrupted);
    if (strcmp(name, "hook_resid_pre") == 0) /* the last position's last stream is all there is */
        CHECK(*entry(got, c->n_layer - 1, n - 1, 0) != as_it_is.clean);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* Patches of more positions than they have rows together. */
TEST(sweep_of_a_long_text)
{
    enum { LENGTH = 530, PART = 517 };
    static const char *const name = "blocks.0.attn.hook_z";
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, longer, 0, 0);
    attn_record *record = NULL;
    attn_record_desc recorded;
    attn_patch_desc d;
    attn_tensor clean = {0}, heads = {0};
    size_t bytes = 0;
    int32_t *const corrupt = random_tokens(longer, LENGTH, 2);
    size_t i;
    memset(&d, 0, sizeof d);
    d.clean = random_tokens(longer, LENGTH, 1);
    memcpy(corrupt, d.clean, PART * sizeof *corrupt);
    d.corrupted = corrupt;
    d.n_tokens = LENGTH;
    d.right = 7;
    d.wrong = 3;
    memset(&recorded, 0, sizeof recorded);
    recorded.names = &name;
    recorded.n_names = 1;
    recorded.n_positions = LENGTH;
    OK(&ctx, attn_record_size(&ctx, &bytes, longer, &recorded));
    OK(&ctx, attn_record_new(&ctx, &record, session, &recorded, pool_new(bytes), bytes));
    OK(&ctx, attn_feed(&ctx, session, d.clean, LENGTH));
    OK(&ctx, attn_record_get(&ctx, &clean, record, name));
    OK(&ctx, attn_patch_heads(&ctx, &heads, NULL, longer, &d, "attn.hook_z"));
    for (i = 0; i < 2; i++)
        CHECK(*entry(heads, 0, i, 0) ==
              patched(longer, corrupt, LENGTH, name, clean, 0, LENGTH, i, 7, 3));
    CHECK(*entry(heads, 0, 0, 0) != *entry(heads, 0, 1, 0));
    attn_record_free(record);
    attn_session_free(session);
    attn_ctx_free(&ctx);
    pool_clear();
}

TEST(sweeps)
{
    static const char *const swept[] = {
        "hook_resid_pre",   "hook_resid_mid", "hook_resid_post",      "hook_attn_out",
        "hook_mlp_out",     "attn.hook_z",    "attn.hook_pattern",    "attn.hook_v",
        "attn.hook_result", "hook_q_input",   "attn.hook_attn_scores"};
    size_t i;
    for (i = 0; i < sizeof swept / sizeof swept[0]; i++) {
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
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    attn_tensor_info info;
    attn_tensor v[2];
    size_t size, i, j, k;
    unsigned char *file = test_read(test_tmp("plain.attn"), &size);
    int text;
    for (i = 0; file && i < attn_model_n_tensors(plain); i++) {
        unsigned char *data = file;
        if (!OK(&ctx, attn_model_tensor_info(&ctx, &info, plain, i)))
            break;
        data += info.offset; /* entry (k, n) of a matrix: see "panels" in the manual */
        if (strcmp(info.name, "pos_embed.W_pos") == 0)
            memset(data + 4 * AT * WIDTH, 0, 4 * WIDTH);
        for (text = 0; text < 2 && strcmp(info.name, "embed.W_E") == 0; text++) {
            const size_t n = (size_t)random_tokens(plain, LENGTH, (uint64_t)text + 1)[AT];
            for (k = 0; k < WIDTH; k++) {
                const size_t from = text && k >= CHANNELS ? k ^ 1 : k;
                const float value = (float)(from * from % 7) - 3;
                memcpy(data + 4 * ((n / 16 * WIDTH + k) * 16 + n % 16), &value, 4);
            }
        }
        for (j = 0; j < 3 * WIDTH && strcmp(info.name, "blocks.0.attn.W_QKV") == 0; j += WIDTH)
            for (k = CHANNELS; k < WIDTH; k++)
                memset(data + 4 * (j / 16 * WIDTH + k) * 16, 0, 4 * 16);
    }
    if (CHECK(file))
        test_write(test_tmp("blind.attn"), file, size);
    free(file);
    if (!OK(&ctx, attn_model_open(&ctx, &model, test_tmp("blind.attn"), &unchecked)))
        return;
    for (text = 0; text < 2; text++) { /* those of check_sweep */
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
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

TEST(patch_rules)
{
    attn_ctx ctx = alone();
    const int32_t clean[] = {1, 2, 3, 4}, corrupted[] = {5, 2, 3, 4}, bad[] = {1, 2, 301, 4};
    attn_tensor out = {0}, small = random_tensor(2, 3, 5);
    attn_patch_desc d, wrong;
    int question = 9, patience = 5;
    meter m;
    attn_ctx counted = metered(&m);
    attn_status status = ATTN_E_MEMORY;
    long n;
    memset(&d, 0, sizeof d);
    d.clean = clean;
    d.corrupted = corrupted;
    d.n_tokens = 4;
    d.right = 1;
    d.wrong = 2;
    FAILS(&ctx, ATTN_E_NAME, "did you mean",
          attn_patch_positions(&ctx, &out, NULL, odd, &d, "hook_resid_prex"));
    FAILS(&ctx, ATTN_E_NAME, "", attn_patch_positions(&ctx, &out, NULL, odd, &d, "*"));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no name", attn_patch_positions(&ctx, &out, NULL, odd, &d, NULL));
    FAILS(&ctx, ATTN_E_NAME, "no heads",
          attn_patch_heads(&ctx, &out, NULL, odd, &d, "hook_mlp_out"));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 4]",
          attn_patch_positions(&ctx, &small, NULL, odd, &d, "hook_mlp_out"));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          attn_patch_positions(&ctx, &out, NULL, NULL, &d, "hook_mlp_out"));
    wrong = d;
    wrong.n_tokens = 0;
    FAILS(&ctx, ATTN_E_ARGUMENT, "0 tokens",
          attn_patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_mlp_out"));
    wrong = d;
    wrong.corrupted = bad;
    FAILS(&ctx, ATTN_E_TOKEN, "corrupted token 2 is 301",
          attn_patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_mlp_out"));
    wrong = d;
    wrong.wrong = -1;
    FAILS(&ctx, ATTN_E_TOKEN, "wrong -1",
          attn_patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_mlp_out"));
    wrong = d;
    wrong.metric = give_up;
    wrong.user = &patience;
    FAILS(&ctx, ATTN_STOPPED, "metric",
          attn_patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_mlp_out"));
    CHECK(patience == -1 && out.ndim == 0);
    wrong.metric = surprise;
    wrong.user = &question;
    OK(&ctx, attn_patch_positions(&ctx, &out, NULL, odd, &wrong, "hook_resid_pre"));
    {
        const float *const logits =
            hooked(odd, clean, 4, 4, NULL, NULL, NULL, NULL, NULL) + 3 * vocab_of(odd);
        CHECK(*entry(out, 0, 0, 0) == logits[3] * 2 - logits[9]); /* only that token differed */
    }
    /* Whatever runs out, nothing is left behind. */
    counted.n_threads = 1;
    for (n = 0; n < 400 && status != ATTN_OK; n++) {
        attn_tensor made = {0};
        m.fail_at = m.asked + n;
        status = attn_patch_heads(&counted, &made, NULL, odd, &d, "attn.hook_z");
        m.fail_at = -1;
        CHECK(status == ATTN_OK || status == ATTN_E_MEMORY);
        attn_tensor_free(&counted, &made);
        CHECKF(m.live == 0 && m.wrong == 0, "allocation %ld: %ld blocks are left", n, m.live);
    }
    CHECKF(status == ATTN_OK && n > 10, "%s after %ld", attn_status_name(status), n);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* ---- keys and values kept as f16 ---- */

TEST(arguments_of_patches)
{
    attn_ctx ctx = {0};
    int32_t clean[4] = {1, 2, 3, 4}, corrupted[4] = {1, 5, 3, 4};
    attn_patch_desc d;
    const int32_t n_vocab = (int32_t)attn_model_config(plain)->n_vocab;
    memset(&d, 0, sizeof d);
#define POSITIONS(text, status_)                                                                   \
    REFUSED(status_, text, attn_patch_positions(&ctx, &not_made, NULL, plain, &d, "hook_resid_pre"))
    REFUSED(ATTN_E_ARGUMENT, "no model given",
            attn_patch_positions(&ctx, &not_made, NULL, NULL, &d, "hook_resid_pre"));
    REFUSED(ATTN_E_ARGUMENT, "no description given",
            attn_patch_positions(&ctx, &not_made, NULL, plain, NULL, "hook_resid_pre"));
    POSITIONS("no clean text", ATTN_E_ARGUMENT);
    d.clean = clean;
    POSITIONS("no corrupted text", ATTN_E_ARGUMENT);
    d.corrupted = corrupted;
    POSITIONS("texts of 0 tokens", ATTN_E_ARGUMENT);
    d.n_tokens = attn_model_config(plain)->n_ctx + 1;
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
    POSITIONS("clean token 2 is -5", ATTN_E_TOKEN);
    clean[2] = 3;
    corrupted[1] = n_vocab;
    POSITIONS("corrupted token 1 is 97", ATTN_E_TOKEN);
    corrupted[1] = 5;
    REFUSED(ATTN_E_ARGUMENT, "no place for the result",
            attn_patch_positions(&ctx, NULL, NULL, plain, &d, "hook_resid_pre"));
    REFUSED(ATTN_E_ARGUMENT, "no name",
            attn_patch_positions(&ctx, &not_made, NULL, plain, &d, NULL));

    done(&ctx);
}

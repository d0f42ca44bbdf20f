/* Weights under TransformerLens's names, and models that are written: to files, and in memory. */
#include "tests/support/lens_fixtures.h"
#include "tools/lens/process_weights.h"

SUITE_WITH_MODELS("plain odd");

/* ---- weights under TransformerLens's names ---- */

static void check_heads(attn_ctx *ctx, const attn_model *model, const char *block)
{
    static const char letters[] = "QKV";
    const attn_config *c = attn_model_config(model);
    attn_tensor whole = {0}, biases = {0};
    size_t wrong = 0;
    OK(ctx, attn_model_tensor(ctx, &whole, model, test_text("%s.attn.W_QKV", block)));
    OK(ctx, attn_model_tensor(ctx, &biases, model, test_text("%s.attn.b_QKV", block)));
    for (size_t part = 0; part < 3; part++) {
        attn_tensor w = {0}, b = {0};
        OK(ctx, attn_model_tensor(ctx, &w, model, test_text("%s.attn.W_%c", block, letters[part])));
        OK(ctx, attn_model_tensor(ctx, &b, model, test_text("%s.attn.b_%c", block, letters[part])));
        CHECK(w.ndim == 3 && w.shape[0] == c->n_head && w.shape[1] == c->d_model &&
              w.shape[2] == c->d_head && is_dense(w));
        CHECK(b.ndim == 2 && b.shape[0] == c->n_head && b.shape[1] == c->d_head);
        for (size_t h = 0; h < c->n_head; h++)
            for (size_t j = 0; j < c->d_head; j++) {
                const size_t column = part * c->d_model + h * c->d_head + j;
                wrong += attn_get2(b, h, j) != attn_get1(biases, column);
                for (size_t k = 0; k < c->d_model; k++)
                    wrong += attn_get3(w, h, k, j) != attn_get2(whole, k, column);
            }
    }
    CHECKF(wrong == 0, "%s: %zu numbers are not where W_QKV has them", block, wrong);
}

TEST(weights)
{
    for (int i = 0; i < 2; i++) {
        const attn_model *m = model_of(i);
        const attn_config *c = attn_model_config(m);
        SCOPED_CTX ctx = alone();
        attn_tensor w_o = {0}, w_e = {0}, w_u = {0}, b_u = {0}, w = {0};
        size_t wrong = 0;
        check_heads(&ctx, m, "blocks.0");
        check_heads(&ctx, m, "blocks.1");
        OK(&ctx, attn_model_tensor(&ctx, &w_o, m, "blocks.1.attn.W_O"));
        CHECK(w_o.ndim == 3 && w_o.shape[0] == c->n_head && w_o.shape[1] == c->d_head &&
              w_o.shape[2] == c->d_model);
        OK(&ctx, attn_model_tensor(&ctx, &w_e, m, "embed.W_E"));
        OK(&ctx, attn_model_tensor(&ctx, &w_u, m, "unembed.W_U"));
        OK(&ctx, attn_model_tensor(&ctx, &b_u, m, "unembed.b_U"));
        CHECK(w_u.ndim == 2 && w_u.shape[0] == c->d_model && w_u.shape[1] == c->n_vocab);
        CHECK(b_u.ndim == 1 && b_u.shape[0] == c->n_vocab);
        for (size_t v = 0; v < c->n_vocab; v++) {
            wrong += attn_get1(b_u, v) != 0;
            for (size_t k = 0; k < c->d_model; k++)
                wrong += (attn_get2(w_u, k, v) == attn_get2(w_e, v, k)) != c->tied;
        }
        CHECKF(wrong == 0, "%s: the unembedding has %zu wrong numbers", lens_models[i], wrong);
        attn_tensor given = random_tensor(2, (int)c->d_head, (int)c->n_head);
        given = attn_transpose(given, 0, 1); /* into a view */
        OK(&ctx, attn_model_tensor(&ctx, &given, m, "blocks.1.attn.b_V"));
        OK(&ctx, attn_model_tensor(&ctx, &w, m, "blocks.1.attn.b_V"));
        same_bits(laid_out(given, ATTN_F32, LAYOUT_DENSE), w, "b_V into a view");
        FAILS(SHAPE, "[", attn_model_tensor(&ctx, &given, m, "blocks.1.attn.W_V"));
        memset(&w, 0, sizeof w);
        FAILS(NAME, "W_X", attn_model_tensor(&ctx, &w, m, "blocks.0.attn.W_X"));
        FAILS(NAME, "did you mean blocks.1.attn.W_V?",
              attn_model_tensor(&ctx, &w, m, "blocks.1.atn.W_V"));
        FAILS(NAME, "did you mean unembed.b_U?", attn_model_tensor(&ctx, &w, m, "unembeding.b_U"));
        FAILS(NAME, "no tensor \"zz\"", attn_model_tensor(&ctx, &w, m, "zz"));
        FAILS(NAME, "blocks.9", attn_model_tensor(&ctx, &w, m, "blocks.9.attn.W_Q"));
        FAILS(NAME, "mlp.W_Q", attn_model_tensor(&ctx, &w, m, "blocks.0.mlp.W_Q"));
        FAILS(NAME, "W_", attn_model_tensor(&ctx, &w, m, "W_"));
        pool_clear();
    }
}

/* ---- saving ---- */

/* A model lives until it is closed and its last workspace, session and record is freed, in any order. */
TEST(closed_before_its_users)
{
    enum { USERS = 5 }; /* the caller, a workspace, a session on it, one of its own, its record */
    int order[USERS], round, i, j;
    for (round = 0; round < 120; round++) { /* all orders */
        meter m;
        attn_ctx ctx = metered(&m);
        attn_model *model = NULL;
        attn_workspace *ws = NULL;
        attn_session *shared = NULL, *own = NULL;
        attn_record *record = NULL;
        int left = round;
        for (i = 0; i < USERS; i++)
            order[i] = i;
        for (i = USERS; i > 1; left /= i--) {
            const int other = order[left % i];
            order[left % i] = order[i - 1];
            order[i - 1] = other;
        }
        OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL));
        OK(&ctx, attn_workspace_new(&ctx, &ws, model, NULL));
        attn_session_desc desc = {.workspace = ws};
        OK(&ctx, attn_session_new(&ctx, &shared, model, &desc));
        OK(&ctx, attn_session_new(&ctx, &own, model, NULL));
        OK(&ctx, attn_record_new(&ctx, &record, own, NULL));
        OK(&ctx, attn_feed(&ctx, own, ten, 3));
        for (i = 0; i < USERS; i++) {
            int alive[USERS] = {0};
            attn_tensor view = {0};
            if (order[i] == 0)
                attn_model_close(model);
            else if (order[i] == 1)
                attn_workspace_free(ws);
            else if (order[i] == 2)
                attn_session_free(shared);
            else if (order[i] == 3)
                attn_session_free(own);
            else
                attn_record_free(record);
            for (j = i + 1; j < USERS; j++)
                alive[order[j]] = 1;
            if (alive[2])
                OK(&ctx, attn_feed(&ctx, shared, ten, 1));
            if (alive[3] && !alive[4])
                OK(&ctx, attn_feed(&ctx, own, ten, 1));
            if (alive[4])
                OK(&ctx, attn_record_get(&ctx, &view, record, "blocks.0.hook_resid_post"));
            CHECK((m.live > 0) == (i + 1 < USERS));
        }
        CHECKF(m.live == 0 && m.wrong == 0, "order %d: %ld blocks are left", round, m.live);
    }
}

/* A model that could not open, and objects that could not be made, leave no user behind. */
TEST(users_that_were_not_made)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_model *model = NULL;
    attn_workspace *ws;
    attn_session *session;
    attn_record *record;
    OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL));
    for (long n = 0; n < 12; n++) {
        m.asked = 0;
        m.fail_at = n;
        if (attn_workspace_new(&ctx, &ws, model, NULL) == ATTN_OK)
            attn_workspace_free(ws);
        m.asked = 0;
        if (attn_session_new(&ctx, &session, model, NULL) != ATTN_OK)
            continue;
        m.asked = 0;
        if (attn_record_new(&ctx, &record, session, NULL) == ATTN_OK)
            attn_record_free(record);
        attn_session_free(session);
    }
    m.fail_at = -1;
    attn_model_close(model);
    CHECKF(m.live == 0 && m.wrong == 0, "%ld blocks are left", m.live);
}

TEST(saving)
{
    SCOPED_CTX ctx = alone();
    const char *const path = test_tmp("saved.attn");
    attn_model *model = NULL, *made = NULL, *again = NULL;
    int32_t ids[16];
    size_t n = 0;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    OK(&ctx, lens_model_save(&ctx, path, model));
    CHECK(test_same_file(path, TEST_BUILD "/tiny-stories.attn"));
    OK(&ctx, lens_process_weights(&ctx, &made, model, LENS_PROCESS_DEFAULT));
    attn_model_close(model);

    OK(&ctx, attn_model_open(&ctx, &model, path, NULL)); /* over the file that is open */
    OK(&ctx, lens_model_save(&ctx, path, model));
    CHECK(test_same_file(path, TEST_BUILD "/tiny-stories.attn"));
    OK(&ctx, lens_model_save(&ctx, path, made));
    OK(&ctx, attn_model_open(&ctx, &again, path, NULL)); /* every checksum is verified */
    if (model && again && made) {
        n = 16;
        OK(&ctx, attn_encode(&ctx, ids, &n, attn_model_tokenizer(again), "Once upon a time", 16));
        CHECK(n == 4 && attn_model_config(again)->bos == attn_model_config(model)->bos);
        check_same_model(&ctx, again, model, ids, n, 1);
        CHECK(model_n_tensors(again) == model_n_tensors(made));
        for (size_t i = 0; i < model_n_tensors(again); i++) {
            model_tensor a = model_tensor_at(again, i);
            model_tensor b = model_tensor_at(made, i);
            CHECK(strcmp(a.name, b.name) == 0 && a.checksum == b.checksum);
        }
        FAILS(IO, "nowhere/", lens_model_save(&ctx, TEST_BUILD "/nowhere/x.attn", made));
        FAILS(ARGUMENT, "no path", lens_model_save(&ctx, "", made));
        FAILS(ARGUMENT, "no model", lens_model_save(&ctx, path, NULL));
    }
    attn_model_close(model);
    attn_model_close(made);
    attn_model_close(again);
}

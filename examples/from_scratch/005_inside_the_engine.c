/* Notebook 005: the attention of the other notebooks is the attention that runs.
 *
 *     make && cc examples/from_scratch/005_inside_the_engine.c -I. -O2 -lm -o 005 && ./005
 *
 * While the engine reads a sentence, hooks take what it computed in each layer away from it and put
 * our own results there, made with the tensor operations: first the scores only, then more and more
 * until nothing of its attention is left. The logits keep every bit, because both follow one order
 * of arithmetic ("The same bits" in attn.h's manual). What else can be done from within the engine, in
 * Python: examples/python/notebooks/glass_box.ipynb.
 *
 * Exercise: in scores(), scale twice by 1 / sqrtf(sqrtf((float)w->q.shape[2])), which is the same in
 * exact arithmetic. In each row of the table, how many of the replaced activations will still be equal,
 * and will the logits? The answer is at the end.
 */
#include "notebook.h"
#include "torch.h"

enum { UNTOUCHED, SCORES, PATTERN, Z, ATTN_OUT, QKV, N_STEPS };
static const char *const what[N_STEPS] = {
    "nothing",
    "scores = q . k / sqrt(d) + mask",
    "... and pattern = softmax(scores)",
    "... and z = pattern . v",
    "... and attn_out = z . W_O + b_O",
    "... and q, k, v = x . W_QKV + b_QKV",
};

typedef struct work {
    attn_ctx *ctx;
    const attn_model *model;
    int step;                                   /* how much to replace */
    attn_tensor x, q, k, v, scores, pattern, z; /* of the layer that is running */
    int replaced, equal; /* activations, and those whose bits did not change */
} work;

static attn_tensor weight(work *w, size_t layer, const char *name)
{
    char full[64];
    attn_tensor t = none;
    snprintf(full, sizeof full, "blocks.%zu.attn.%s", layer, name);
    attn_model_tensor(w->ctx, &t, w->model, full);
    return t;
}

static void keep(work *w, attn_tensor *mine, attn_tensor value)
{
    attn_tensor_free(w->ctx, mine);
    *mine = none;
    attn_copy(w->ctx, mine, value);
}

/* Puts our result where the engine's was. */
static void replace(work *w, attn_tensor value, attn_tensor ours)
{
    attn_tensor theirs = none, dense = none;
    attn_copy(w->ctx, &theirs, value);
    attn_copy(w->ctx, &dense, ours);
    w->replaced++;
    w->equal += theirs.ndim > 0 && dense.ndim > 0 && attn_count(theirs) == attn_count(dense) &&
                memcmp(theirs.data, dense.data, attn_count(dense) * sizeof(float)) == 0;
    attn_copy(w->ctx, &value, dense);
}

/* [T, H, d] as [H, T, d], a view */
static attn_tensor by_head(attn_tensor x)
{
    return attn_transpose(x, 0, 1);
}

/* x · W + b for part 0, 1 or 2 of W_QKV: queries, keys, values */
static attn_tensor project(work *w, size_t layer, size_t part, attn_tensor like)
{
    const size_t n = like.shape[1] * like.shape[2];
    attn_tensor out = none;
    attn_linear(w->ctx, &out, w->x, attn_slice(weight(w, layer, "W_QKV"), 1, part * n, n),
                attn_slice(weight(w, layer, "b_QKV"), 0, part * n, n));
    return attn_reshape(out, attn_shape3(like.shape[0], like.shape[1], like.shape[2]));
}

static attn_tensor scores(work *w)
{
    attn_tensor mask = none, out = none;
    attn_matmul(w->ctx, &out, by_head(w->q), attn_transpose(by_head(w->k), -2, -1));
    attn_scale(w->ctx, &out, out, 1 / sqrtf((float)w->q.shape[2]));
    torch_causal_mask(w->ctx, &mask, w->q.shape[0], w->k.shape[0]);
    attn_add(w->ctx, &out, out, mask);
    return out;
}

static attn_tensor attn_out(work *w, size_t layer)
{
    const attn_tensor joined =
        attn_reshape(w->z, attn_shape2(w->z.shape[0], w->z.shape[1] * w->z.shape[2]));
    const size_t n = joined.shape[1];
    const attn_tensor w_o = attn_reshape(weight(w, layer, "W_O"), attn_shape2(n, n));
    attn_tensor out = none;
    attn_linear(w->ctx, &out, joined, w_o, weight(w, layer, "b_O"));
    return out;
}

/* Every activation of every layer's attention comes by here, in the order of computation. */
static int visit(const attn_activation *a, void *user)
{
    static const char qkv[] = "qkv";
    work *w = (work *)user;
    const char *name = strstr(a->name, "hook_") + strlen("hook_");
    attn_tensor out = none;
    if (strcmp(name, "normalized.post") == 0) {
        keep(w, &w->x, a->value);
    } else if (strlen(name) == 1 && strchr(qkv, *name)) {
        const size_t part = (size_t)(strchr(qkv, *name) - qkv);
        if (w->step >= QKV)
            replace(w, a->value, project(w, a->layer, part, a->value));
        keep(w, part == 0 ? &w->q : part == 1 ? &w->k : &w->v, a->value);
    } else if (strcmp(name, "attn_scores") == 0) {
        if (w->step >= SCORES)
            replace(w, a->value, scores(w));
        keep(w, &w->scores, a->value);
    } else if (strcmp(name, "pattern") == 0) {
        if (w->step >= PATTERN) {
            attn_softmax(w->ctx, &out, w->scores);
            replace(w, a->value, out);
        }
        keep(w, &w->pattern, a->value);
    } else if (strcmp(name, "z") == 0) {
        if (w->step >= Z) {
            attn_matmul(w->ctx, &out, w->pattern, by_head(w->v));
            replace(w, by_head(a->value), out);
        }
        keep(w, &w->z, a->value);
    } else if (strcmp(name, "attn_out") == 0 && w->step >= ATTN_OUT) {
        replace(w, a->value, attn_out(w, a->layer));
    }
    return w->ctx->status != ATTN_OK;
}

/* To see that what a hook writes is used: no attention for head 0 of layer 0. */
static int blind(const attn_activation *a, void *user)
{
    attn_tensor head = attn_select(a->value, 0, 0);
    attn_scale((attn_ctx *)user, &head, head, 0);
    return 0;
}

static void run(attn_ctx *ctx, attn_session *session, const attn_token *ids, size_t n,
                float *logits)
{
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    if (attn_session_truncate(ctx, session, 0) == ATTN_OK &&
        attn_feed(ctx, session, ids, n) == ATTN_OK)
        memcpy(logits, attn_session_logits(session), n_vocab * sizeof *logits);
    attn_unhook_all(session);
}

int main(int argc, char **argv)
{
    static const char text[] = "Once upon a time, there was a little girl named Lily. "
                               "She loved to play with her toys";
    const char *path = argc > 1 ? argv[1] : BUILD "/tiny-stories.attn";
    attn_ctx ctx = {0}, in_hooks = {0}; /* one for the engine, one for what we do meanwhile */
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_token ids[128];
    size_t n_ids = 128;
    float *first = NULL, *logits = NULL;
    attn_tensor pattern = none;
    work w;

    if (attn_model_open(&ctx, &model, path, NULL) ||
        attn_encode(&ctx, ids, &n_ids, attn_model_tokenizer(model), text, strlen(text)) ||
        attn_session_new(&ctx, &session, model, NULL))
        return finish(&ctx);
    size_t bytes = attn_model_config(model)->n_vocab * sizeof *logits;
    first = (float *)calloc(1, bytes);
    logits = (float *)calloc(1, bytes);
    in_hooks.n_threads = 1; /* the engine's own threads are waiting */
    if (!first || !logits)
        return 1; /* NOLINT(clang-analyzer-unix.Malloc): the program ends */
    printf("\"%s\", %d tokens, %zu layers.\n\n", text, (int)n_ids,
           attn_model_config(model)->n_layer);
    printf("%-38s %8s  %6s  %s\n", "replaced in every layer", "replaced", "equal", "logits");
    run(&ctx, session, ids, n_ids, first);
    for (int step = UNTOUCHED; step < N_STEPS && ctx.status == ATTN_OK; step++) {
        memset(&w, 0, sizeof w);
        w.ctx = &in_hooks;
        w.model = model;
        w.step = step;
        attn_hook(&ctx, NULL, session, "*.ln1.hook_normalized.post", visit, &w);
        attn_hook(&ctx, NULL, session, "*.attn.hook_*", visit, &w);
        attn_hook(&ctx, NULL, session, "*.hook_attn_out", visit, &w);
        run(&ctx, session, ids, n_ids, logits);
        printf("%-38s %8d  %6d  %s\n", what[step], w.replaced, w.equal,
               check(memcmp(first, logits, bytes) == 0) ? "the same bits" : "DIFFERENT");
        if (step == QKV)
            attn_copy(&ctx, &pattern, attn_select(w.pattern, 0, 0));
        attn_ctx_free(&in_hooks);
    }
    attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_pattern", blind, &in_hooks);
    run(&ctx, session, ids, n_ids, logits);
    printf("%-38s %8d  %6d  %s\n", "head 0 of layer 0 sees nothing", 1, 0,
           check(memcmp(first, logits, bytes) != 0) ? "different, as they should be"
                                                    : "THE SAME BITS");
    show_picture("The pattern that we put into head 0 of the last layer:", pattern, NULL);

    attn_session_free(session);
    attn_model_close(model);
    free(first);
    free(logits);
    return finish(&ctx) || finish(&in_hooks);
}

/* Answer to the exercise: none of the four layers' scores, because two roundings give other bits than one.
 * All else is equal: from the scores that we put there the engine computes its pattern, as we do,
 * and so on. So a row misses four, and the logits of every row differ. */

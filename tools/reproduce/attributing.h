/* Attribution patching (Nanda 2023) of the eight prompts: an estimate of how patching an activation
 * from the clean prompt into the corrupted one changes the metric. It is gradient * (clean -
 * corrupted), with the gradient at the corrupted prompt, summed over the width of the activation and
 * over the prompts. */
#ifndef REPRODUCE_ATTRIBUTING_H
#define REPRODUCE_ATTRIBUTING_H

#include "study.h"
#include "tools/lens/gradients.h"

static const struct attributed {
    const char *name; /* what follows "blocks.i." */
    int of_heads;
    const char
        *kept; /* the name under which [layers, positions] or [layers, heads, positions] is kept */
} attributed[] = {
    {"hook_resid_pre", 0, "attr-resid_pre"},
    {"hook_resid_mid", 0, "attr-resid_mid"},
    {"hook_resid_post", 0, "attr-resid_post"},
    {"hook_attn_out", 0, "attr-attn_out"},
    {"hook_mlp_out", 0, "attr-mlp_out"},
    {"attn.hook_result", 1, "attr-result"},
    {"attn.hook_q", 1, "attr-q"},
    {"attn.hook_k", 1, "attr-k"},
    {"attn.hook_v", 1, "attr-v"},
    {"attn.hook_z", 1, "attr-z"},
    {"attn.hook_pattern", 1, "attr-pattern"},
};
enum { N_ATTRIBUTED = sizeof attributed / sizeof attributed[0], N_WATCHED = N_ATTRIBUTED + 2 };

/* The attributions of paths from the output of each head to the queries, keys and values of each head
 * in a later layer: [layers, heads, (queries, keys, values), layers, heads], in the notebook's order. */
#define PATHS "paths"

/* The three records of a prompt: the activations of both texts, and the gradients. */
typedef struct attribution {
    attn_session *sessions[2];
    attn_record *clean, *corrupted, *gradients;
} attribution;

static attn_status record_activations(study *s, attn_session **session, attn_record **record,
                                      const char *const *names, const attn_token *tokens)
{
    attn_session_desc size = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    size.n_ctx = what.n_positions = N_TOKENS;
    what.names = names;
    what.n_names = N_WATCHED;
    if (!attn_session_new(s->ctx, session, s->model, &size) &&
        !attn_record_new(s->ctx, record, *session, &what))
        attn_feed(s->ctx, *session, tokens, N_TOKENS);
    return s->ctx->status;
}

/* Adds gradient * (clean - corrupted) * factor for one activation to out [positions] or [heads,
 * positions]. */
static attn_status add_products(study *s, float *out, const attribution *a, const char *name,
                                int of_heads, float factor)
{
    const int is_pattern = strstr(name, "pattern") != NULL;
    const size_t heads = of_heads ? s->n_head : 1;
    attn_tensor x, y, g;
    size_t h, t, j, width;
    if (attn_record_get(s->ctx, &x, a->clean, name) ||
        attn_record_get(s->ctx, &y, a->corrupted, name) ||
        attn_record_get(s->ctx, &g, a->gradients, name))
        return s->ctx->status;
    width = x.shape[x.ndim - 1];
    for (h = 0; h < heads; h++)
        for (t = 0; t < N_TOKENS; t++) {
            double sum = 0;
            for (j = 0; j < width; j++) {
                const size_t first = is_pattern ? h : t, second = is_pattern ? t : of_heads ? h : j;
                const double slope =
                    (double)(of_heads ? attn_get3(g, first, second, j) : attn_get2(g, t, j));
                const float from = of_heads ? attn_get3(y, first, second, j) : attn_get2(y, t, j);
                const float to = of_heads ? attn_get3(x, first, second, j) : attn_get2(x, t, j);
                sum += slope * ((double)to - (double)from);
            }
            out[h * N_TOKENS + t] += factor * (float)sum;
        }
    return s->ctx->status;
}

/* ---- paths from head to head ---- */

/* change [layers, heads, positions, C]: the clean output of every head minus the corrupted one. */
static attn_status gather_changes(study *s, attn_tensor change, const attribution *a)
{
    size_t layer;
    char name[48];
    for (layer = 0; layer < s->n_layer; layer++) {
        attn_tensor x, y, to = attn_select(change, 0, layer);
        snprintf(name, sizeof name, "blocks.%u.attn.hook_result", (unsigned)layer);
        if (attn_record_get(s->ctx, &x, a->clean, name) ||
            attn_record_get(s->ctx, &y, a->corrupted, name) ||
            attn_sub(s->ctx, &to, attn_transpose(x, 0, 1), attn_transpose(y, 0, 1)))
            return s->ctx->status;
    }
    return ATTN_OK;
}

/* slope [heads, positions, C]: the gradient at a layer's queries, keys or values, carried back through
 * their weights to the output of ln1. */
static attn_status slope_of_input(study *s, attn_tensor *slope, const attribution *a, size_t layer,
                                  size_t which)
{
    static const char *const hooks[] = {"attn.hook_q", "attn.hook_k", "attn.hook_v"};
    static const char *const weights[] = {"attn.W_Q", "attn.W_K", "attn.W_V"};
    attn_tensor gradient, w = ATTN_ZERO;
    char name[48];
    int failed;
    snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, weights[which]);
    failed = attn_model_tensor(s->ctx, &w, s->model, name) != ATTN_OK;
    snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, hooks[which]);
    failed = failed || attn_record_get(s->ctx, &gradient, a->gradients, name) ||
             attn_matmul(s->ctx, slope, attn_transpose(gradient, 0, 1), attn_transpose(w, 1, 2));
    attn_tensor_free(s->ctx, &w);
    return failed ? s->ctx->status : ATTN_OK;
}

/* factors [positions]: the notebook multiplies a layer's slopes by these. The chain rule has 1 / scale
 * of ln1 there. The notebook uses the gradient of that scale instead, so this does, too.
 * TransformerLens normalizes separately for queries, keys and values, and its cache keeps the gradient
 * of the queries' scale only: the sum over heads and width of -slope * normalized / scale, with the
 * slope of the queries. */
static attn_status factors_of(study *s, float *factors, const attribution *a, attn_tensor slope,
                              size_t layer)
{
    attn_tensor x, scale;
    char name[48];
    size_t h, t, j;
    snprintf(name, sizeof name, "blocks.%u.ln1.hook_normalized.pre", (unsigned)layer);
    if (attn_record_get(s->ctx, &x, a->corrupted, name))
        return s->ctx->status;
    snprintf(name, sizeof name, "blocks.%u.ln1.hook_scale", (unsigned)layer);
    if (attn_record_get(s->ctx, &scale, a->corrupted, name))
        return s->ctx->status;
    for (t = 0; t < N_TOKENS; t++) {
        double sum = 0;
        for (h = 0; h < s->n_head; h++)
            for (j = 0; j < x.shape[1]; j++)
                sum -= (double)attn_get3(slope, h, t, j) * (double)attn_get2(x, t, j);
        factors[t] = (float)(sum / (double)attn_get2(scale, t, 0));
    }
    return ATTN_OK;
}

/* Adds the paths of one prompt. Each is a product of two gradients, and each of those is multiplied by
 * `factor`. */
static attn_status add_paths(study *s, float *out, const attribution *a, float factor)
{
    const size_t n_heads = s->n_layer * s->n_head, c = attn_model_config(s->model)->d_model;
    const size_t size = N_TOKENS * c;
    float factors[N_TOKENS];
    const attn_tensor of_positions = attn_borrow(factors, ATTN_F32, attn_shape2(N_TOKENS, 1));
    attn_tensor change = ATTN_ZERO, slope = ATTN_ZERO, path = ATTN_ZERO;
    size_t layer, which, h, j;
    if (!attn_zeros(s->ctx, &change, ATTN_F32, attn_shape4(s->n_layer, s->n_head, N_TOKENS, c)))
        gather_changes(s, change, a);
    for (layer = 1; layer < s->n_layer && !s->ctx->status; layer++)
        for (which = 0; which < 3 && !s->ctx->status; which++) {
            const size_t n = layer * s->n_head; /* the heads of earlier layers */
            const attn_tensor from =
                attn_reshape(attn_slice(change, 0, 0, layer), attn_shape2(n, size));
            if (slope_of_input(s, &slope, a, layer, which) ||
                (which == 0 && factors_of(s, factors, a, slope, layer)) ||
                attn_mul(s->ctx, &slope, slope, of_positions) ||
                attn_zeros(s->ctx, &path, ATTN_F32, attn_shape2(s->n_head, n)) ||
                attn_matmul(s->ctx, &path, attn_reshape(slope, attn_shape2(s->n_head, size)),
                            attn_transpose(from, 0, 1)))
                break;
            for (h = 0; h < s->n_head; h++)
                for (j = 0; j < n; j++)
                    out[(3 * (layer * s->n_head + h) + which) * n_heads + j] +=
                        factor * factor * attn_get2(path, h, j);
            attn_tensor_free(s->ctx, &path);
        }
    attn_tensor_free(s->ctx, &change);
    attn_tensor_free(s->ctx, &slope);
    attn_tensor_free(s->ctx, &path);
    return s->ctx->status;
}

/* ---- all attributions ---- */

/* Adds one prompt to all attributions. `out` has one array for each row of the table above, and one
 * for the paths. */
static attn_status attribute_prompt(study *s, float **out, lens_backward *backward, size_t i,
                                    float factor)
{
    char patterns[N_ATTRIBUTED][48], name[48];
    const char *names[N_WATCHED];
    lens_gradients_desc what = ATTN_ZERO;
    attribution a = {{NULL, NULL}, NULL, NULL, NULL};
    size_t k, layer;
    for (k = 0; k < N_ATTRIBUTED; k++) {
        snprintf(patterns[k], sizeof patterns[k], "blocks.*.%s", attributed[k].name);
        names[k] = patterns[k];
    }
    names[N_ATTRIBUTED] = "blocks.*.ln1.hook_scale";
    names[N_ATTRIBUTED + 1] = "blocks.*.ln1.hook_normalized.pre";
    what.tokens = prompts[i ^ 1];
    what.n_tokens = N_TOKENS;
    what.names = names;
    what.n_names = N_ATTRIBUTED;
    what.metric.kind = LENS_METRIC_LOGIT_DIFF;
    what.metric.token = answers[i][0];
    what.metric.against = answers[i][1];
    if (!record_activations(s, &a.sessions[0], &a.clean, names, prompts[i]) &&
        !record_activations(s, &a.sessions[1], &a.corrupted, names, prompts[i ^ 1]))
        lens_gradients(s->ctx, &a.gradients, NULL, backward, &what);
    for (k = 0; k < N_ATTRIBUTED; k++)
        for (layer = 0; layer < s->n_layer && !s->ctx->status; layer++) {
            const size_t each = (attributed[k].of_heads ? s->n_head : 1) * N_TOKENS;
            snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, attributed[k].name);
            add_products(s, out[k] + layer * each, &a, name, attributed[k].of_heads, factor);
        }
    if (!s->ctx->status)
        add_paths(s, out[N_ATTRIBUTED], &a, factor);
    attn_record_free(a.gradients);
    attn_record_free(a.clean);
    attn_record_free(a.corrupted);
    attn_session_free(a.sessions[0]);
    attn_session_free(a.sessions[1]);
    return s->ctx->status;
}

/* The sum of all clean logit differences minus that of the corrupted ones. */
static attn_status whole_effect(study *s, float *gain)
{
    attn_session *session = NULL;
    size_t i;
    attn_session_new(s->ctx, &session, s->model, NULL);
    for (*gain = 0, i = 0; i < (size_t)2 * N_PROMPTS && !s->ctx->status; i++) {
        const size_t of = i / 2;
        if (attn_session_truncate(s->ctx, session, 0) ||
            attn_feed(s->ctx, session, prompts[i % 2 ? of ^ 1 : of], N_TOKENS))
            break;
        *gain += (i % 2 ? -1.0f : 1.0f) * (attn_session_logits(session)[answers[of][0]] -
                                           attn_session_logits(session)[answers[of][1]]);
    }
    attn_session_free(session);
    return s->ctx->status;
}

/* Computes all attributions and keeps them. */
static attn_status attribute_all(study *s)
{
    lens_backward backward = ATTN_ZERO;
    const size_t n_paths = 3 * s->n_layer * s->n_head * s->n_layer * s->n_head;
    float *out[N_WATCHED], gain = 0;
    size_t k, i;
    for (k = 0; k < N_ATTRIBUTED; k++) {
        const size_t n = s->n_layer * (attributed[k].of_heads ? s->n_head : 1) * N_TOKENS;
        if (!(out[k] = room_for(s, n)) || keep(s, attributed[k].kept, out[k], n))
            return s->ctx->status;
    }
    out[N_ATTRIBUTED] = room_for(s, n_paths);
    if (!out[N_ATTRIBUTED] || keep(s, PATHS, out[N_ATTRIBUTED], n_paths))
        return s->ctx->status;
    if (!whole_effect(s, &gain) && !lens_backward_new(s->ctx, &backward, s->model))
        for (i = 0; i < N_PROMPTS && !s->ctx->status; i++)
            attribute_prompt(s, out, &backward, i, 1 / gain);
    lens_backward_free(s->ctx, &backward);
    return s->ctx->status;
}

/* Fills out [rows, positions] from row `first` on with rows of two arrays in turn: a[0] b[0] a[1] b[1]
 * ... */
static void interleave(const study *s, float *out, size_t first, const float *a, const float *b)
{
    size_t i;
    for (i = 0; i < s->n_layer; i++) {
        memcpy(out + (first + 2 * i) * N_TOKENS, a + i * N_TOKENS, N_TOKENS * sizeof *out);
        memcpy(out + (first + 2 * i + 1) * N_TOKENS, b + i * N_TOKENS, N_TOKENS * sizeof *out);
    }
}

/* out [layers, heads] = sums of x [layers, heads, positions] */
static void sum_positions(float *out, const float *x, size_t n)
{
    size_t i, t;
    for (i = 0; i < n; i++)
        for (out[i] = 0, t = 0; t < N_TOKENS; t++)
            out[i] += x[i * N_TOKENS + t];
}

/* ---- the strongest heads ---- */

enum { N_TOP = 22, MOST_HEADS = N_LAYER * N_HEAD };

/* order [n]: the heads sorted by the absolute value of x [n], the largest first. */
static void sort_heads(size_t *order, const float *x, size_t n)
{
    size_t i, j;
    for (i = 0; i < n; i++) {
        for (j = i; j > 0 && fabsf(x[order[j - 1]]) < fabsf(x[i]); j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
}

/* The heads with the largest absolute values of x, in ascending order. */
static void top_heads(size_t top[N_TOP], const float *x)
{
    size_t order[MOST_HEADS] = {0}, i, j;
    sort_heads(order, x, MOST_HEADS);
    for (i = 0; i < N_TOP; i++) {
        for (j = i; j > 0 && top[j - 1] > order[i]; j--)
            top[j] = top[j - 1];
        top[j] = order[i];
    }
}

/* out [66, 22]: the paths between the strongest heads, to queries, keys and values in turn. With
 * `which`, only to one of the three: out [22, 22]. */
static void paths_of_top(float *out, const float *paths, const float *x, int which)
{
    size_t top[N_TOP] = {0}, i, j, k;
    top_heads(top, x);
    for (i = 0; i < N_TOP; i++)
        for (k = 0; k < 3; k++)
            for (j = 0; j < N_TOP && (which < 0 || (size_t)which == k); j++)
                *out++ = paths[(3 * top[i] + k) * MOST_HEADS + top[j]];
}

/* out [6, heads]: the paths to one head's queries, keys and values, and from the head to those of the
 * others. */
static void paths_of_head(float *out, const float *paths, size_t head)
{
    size_t i, k;
    for (k = 0; k < 3; k++)
        for (i = 0; i < MOST_HEADS; i++) {
            out[k * MOST_HEADS + i] = paths[(3 * head + k) * MOST_HEADS + i];
            out[(3 + k) * MOST_HEADS + i] = paths[(3 * i + k) * MOST_HEADS + head];
        }
}

#endif

/* Attribution patching (Nanda 2023) of the eight prompts: an estimate of how patching an activation
 * from the clean prompt into the corrupted one changes the metric. It is gradient * (clean -
 * corrupted), with the gradient at the corrupted prompt, summed over the width of the activation and
 * over the prompts. */
#ifndef REPRODUCE_ATTRIBUTING_H
#define REPRODUCE_ATTRIBUTING_H

#include "ask.h"

/* What follows "blocks.i.", and the name under which [layers, positions] or [layers, heads, positions] is kept. */
static const char *const attributed_as[][2] = {
    {"hook_resid_pre", "attr-resid_pre"},
    {"hook_resid_mid", "attr-resid_mid"},
    {"hook_resid_post", "attr-resid_post"},
    {"hook_attn_out", "attr-attn_out"},
    {"hook_mlp_out", "attr-mlp_out"},
    {"attn.hook_result", "attr-result"},
    {"attn.hook_q", "attr-q"},
    {"attn.hook_k", "attr-k"},
    {"attn.hook_v", "attr-v"},
    {"attn.hook_z", "attr-z"},
    {"attn.hook_pattern", "attr-pattern"},
};
enum { N_ATTRIBUTED = sizeof attributed_as / sizeof attributed_as[0] };

/* The same as settings of lens. */
#define ATTRIBUTED                                                                                 \
    " names=blocks.*.hook_resid_pre names=blocks.*.hook_resid_mid names=blocks.*.hook_resid_post"  \
    " names=blocks.*.hook_attn_out names=blocks.*.hook_mlp_out names=blocks.*.attn.hook_result"    \
    " names=blocks.*.attn.hook_q names=blocks.*.attn.hook_k names=blocks.*.attn.hook_v"            \
    " names=blocks.*.attn.hook_z names=blocks.*.attn.hook_pattern"

/* The attributions of paths from the output of each head to the queries, keys and values of each head
 * in a later layer: [layers, heads, (queries, keys, values), layers, heads], in the notebook's order. */
#define PATHS "paths"

/* Of a prompt: the activations of both texts, and the gradients. */
typedef struct attribution {
    lens_query *clean, *corrupted, *gradients;
} attribution;

/* blocks.`layer`.`name` as [heads, positions, width or keys]; of activations without heads, one head. */
static attn_tensor by_head(const lens_query *q, size_t layer, const char *name)
{
    char full[48];
    snprintf(full, sizeof full, "blocks.%u.%s", (unsigned)layer, name);
    const attn_tensor x = tensor_of(q, full);
    return x.ndim == 2               ? attn_reshape(x, attn_shape3(1, x.shape[0], x.shape[1]))
           : strstr(name, "pattern") ? x
                                     : attn_transpose(x, 0, 1);
}

/* Adds gradient * (clean - corrupted) * factor for one activation of a layer to out [heads, positions]. */
static void add_products(float *out, const attribution *a, size_t layer, const char *name,
                         float factor)
{
    const attn_tensor x = by_head(a->clean, layer, name), y = by_head(a->corrupted, layer, name);
    const attn_tensor g = by_head(a->gradients, layer, name);
    for (size_t h = 0; h < x.shape[0]; h++)
        for (size_t t = 0; t < N_TOKENS; t++) {
            double sum = 0;
            for (size_t j = 0; j < x.shape[2]; j++)
                sum += (double)attn_get3(g, h, t, j) *
                       ((double)attn_get3(x, h, t, j) - (double)attn_get3(y, h, t, j));
            out[h * N_TOKENS + t] += factor * (float)sum;
        }
}

/* ---- paths from head to head ---- */

/* change [layers, heads, positions, C]: the clean output of every head minus the corrupted one. */
static attn_status gather_changes(study *s, attn_tensor change, const attribution *a)
{
    for (size_t layer = 0; layer < s->n_layer && !s->ctx->status; layer++) {
        attn_tensor to = attn_select(change, 0, layer);
        attn_sub(s->ctx, &to, by_head(a->clean, layer, "attn.hook_result"),
                 by_head(a->corrupted, layer, "attn.hook_result"));
    }
    return s->ctx->status;
}

/* slope [heads, positions, C]: the gradient at a layer's queries, keys or values, carried back through
 * their weights to the output of ln1. */
static attn_status slope_of_input(study *s, attn_tensor *slope, const attribution *a, size_t layer,
                                  size_t which)
{
    static const char *const hooks[] = {"attn.hook_q", "attn.hook_k", "attn.hook_v"};
    static const char *const weights[] = {"W_Q", "W_K", "W_V"};
    attn_tensor w = ATTN_ZERO;
    char name[48];
    snprintf(name, sizeof name, "blocks.%u.attn.%s", (unsigned)layer, weights[which]);
    if (!attn_model_tensor(s->ctx, &w, s->model, name))
        attn_matmul(s->ctx, slope, by_head(a->gradients, layer, hooks[which]),
                    attn_transpose(w, 1, 2));
    attn_tensor_free(s->ctx, &w);
    return s->ctx->status;
}

/* factors [positions]: the notebook multiplies a layer's slopes by these. The chain rule has 1 / scale
 * of ln1 there. The notebook uses the gradient of that scale instead, so this does, too.
 * TransformerLens normalizes separately for queries, keys and values, and its cache keeps the gradient
 * of the queries' scale only: the sum over heads and width of -slope * normalized / scale, with the
 * slope of the queries. */
static void factors_of(const study *s, float *factors, const attribution *a, attn_tensor slope,
                       size_t layer)
{
    const attn_tensor x = by_head(a->corrupted, layer, "ln1.hook_normalized.pre");
    const attn_tensor scale = by_head(a->corrupted, layer, "ln1.hook_scale");
    for (size_t t = 0; t < N_TOKENS; t++) {
        double sum = 0;
        for (size_t h = 0; h < s->n_head; h++)
            for (size_t j = 0; j < x.shape[2]; j++)
                sum -= (double)attn_get3(slope, h, t, j) * (double)attn_get3(x, 0, t, j);
        factors[t] = (float)(sum / (double)attn_get3(scale, 0, t, 0));
    }
}

/* Adds the paths of one prompt. Each is a product of two gradients, and each of those is multiplied by
 * `factor`. */
static attn_status add_head_paths(study *s, float *out, const attribution *a, float factor)
{
    const size_t n_heads = s->n_layer * s->n_head, c = attn_model_config(s->model)->d_model;
    const size_t size = N_TOKENS * c;
    float factors[N_TOKENS];
    const attn_tensor of_positions = attn_borrow(factors, ATTN_F32, attn_shape2(N_TOKENS, 1));
    attn_tensor change = ATTN_ZERO, slope = ATTN_ZERO, path = ATTN_ZERO;
    if (!attn_zeros(s->ctx, &change, ATTN_F32, attn_shape4(s->n_layer, s->n_head, N_TOKENS, c)))
        gather_changes(s, change, a);
    for (size_t layer = 1; layer < s->n_layer && !s->ctx->status; layer++)
        for (size_t which = 0; which < 3 && !s->ctx->status; which++) {
            const size_t n = layer * s->n_head; /* the heads of earlier layers */
            const attn_tensor from =
                attn_reshape(attn_slice(change, 0, 0, layer), attn_shape2(n, size));
            if (slope_of_input(s, &slope, a, layer, which))
                break;
            if (which == 0)
                factors_of(s, factors, a, slope, layer);
            if (attn_mul(s->ctx, &slope, slope, of_positions) ||
                attn_zeros(s->ctx, &path, ATTN_F32, attn_shape2(s->n_head, n)) ||
                attn_matmul(s->ctx, &path, attn_reshape(slope, attn_shape2(s->n_head, size)),
                            attn_transpose(from, 0, 1)))
                break;
            for (size_t h = 0; h < s->n_head; h++)
                for (size_t j = 0; j < n; j++)
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

/* Adds prompt i to all attributions. `out` has one array for each row of the table above, and one for the paths. */
static attn_status attribute_prompt(study *s, float **out, size_t i, float factor)
{
    const subject clean = prompt_of(s, all_pairs, i, 0), corrupted = prompt_of(s, all_pairs, i, 1);
    const attribution a = {
        ask(s, s->model, "record" ATTRIBUTED, &clean),
        ask(s, s->model, "record names=blocks.*.ln1.hook_*" ATTRIBUTED, &corrupted),
        ask(s, s->model, "gradients" DIFFERENCE ATTRIBUTED, &corrupted)};
    for (size_t k = 0; k < N_ATTRIBUTED && !s->ctx->status; k++) {
        const char *const name = attributed_as[k][0];
        const size_t each = (*name == 'a' ? s->n_head : 1) * N_TOKENS;
        for (size_t layer = 0; layer < s->n_layer; layer++)
            add_products(out[k] + layer * each, &a, layer, name, factor);
    }
    if (!s->ctx->status)
        add_head_paths(s, out[N_ATTRIBUTED], &a, factor);
    lens_query_free(a.clean);
    lens_query_free(a.corrupted);
    lens_query_free(a.gradients);
    return s->ctx->status;
}

/* All attributions. `what` is the procedure of the logit differences of the clean texts. */
static attn_status attributed(study *s, const plot *p)
{
    size_t n;
    const float *const differences = compute(s, p->what, &n);
    const size_t n_heads = s->n_layer * s->n_head;
    float *out[N_ATTRIBUTED + 1],
        gain = 0; /* gain: the clean differences minus the corrupted ones */
    for (size_t i = 0; i < (size_t)2 * N_PROMPTS;
         i++) /* the corrupted text of a prompt is that of its pair */
        gain += differences[i / 2 ^ i % 2];
    for (size_t k = 0; k < N_ATTRIBUTED; k++)
        out[k] = room_to_keep(s, attributed_as[k][1],
                              (*attributed_as[k][0] == 'a' ? n_heads : s->n_layer) * N_TOKENS);
    out[N_ATTRIBUTED] = room_to_keep(s, PATHS, 3 * n_heads * n_heads);
    for (size_t i = 0; i < N_PROMPTS && !s->ctx->status; i++)
        attribute_prompt(s, out, i, 1 / gain);
    return s->ctx->status;
}

/* ---- the strongest heads ---- */

enum { N_TOP = 22, MOST_HEADS = N_LAYER * N_HEAD };

/* How many of n heads are stronger: have a larger absolute value of x, or the same and a lower number. */
static size_t rank_of(const float *x, size_t n, size_t head)
{
    size_t rank = 0;
    for (size_t i = 0; i < n; i++)
        rank += fabsf(x[i]) > fabsf(x[head]) || (i < head && fabsf(x[i]) == fabsf(x[head]));
    return rank;
}

/* top [n_top]: the strongest heads, in ascending order. */
static void top_heads(size_t *top, size_t n_top, const float *x)
{
    for (size_t i = 0; i < MOST_HEADS; i++)
        if (rank_of(x, MOST_HEADS, i) < n_top)
            *top++ = i;
}

#endif

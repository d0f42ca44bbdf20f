/* Attribution patching (Nanda 2023) of the eight prompts: how much patching an activation from the
 * clean prompt would change the metric, by the gradient of the corrupted one: gradient * (clean -
 * corrupted), summed over the width of the activation and over the prompts. */
#ifndef REPRODUCE_ATTRIBUTING_H
#define REPRODUCE_ATTRIBUTING_H

#include "study.h"
#include "tools/lens/gradients.h"

static const struct attributed {
    const char *name; /* behind "blocks.i." */
    int of_heads;
    const char
        *kept; /* the name of the numbers [layers, positions] or [layers, heads, positions] */
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
enum { N_ATTRIBUTED = sizeof attributed / sizeof attributed[0] };

/* A prompt's three records: of both texts' activations, and of the gradients. */
typedef struct attribution {
    attn_session *sessions[2];
    attn_record *clean, *corrupted, *gradients;
} attribution;

static attn_status record_text(study *s, attn_session **session, attn_record **record,
                               const char *const *names, const int32_t *tokens)
{
    attn_session_desc size = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    size.n_ctx = what.n_positions = N_TOKENS;
    what.names = names;
    what.n_names = N_ATTRIBUTED;
    if (!attn_session_new(s->ctx, session, s->model, &size) &&
        !attn_record_new(s->ctx, record, *session, &what, NULL, 0))
        attn_feed(s->ctx, *session, tokens, N_TOKENS);
    return s->ctx->status;
}

/* Adds gradient * (clean - corrupted) * factor of one activation to out [positions] or [heads,
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

/* One prompt's share of all attributions; out has one array for each row of the table above. */
static attn_status attribute_prompt(study *s, float **out, lens_backward *backward, size_t i,
                                    float factor)
{
    char patterns[N_ATTRIBUTED][48], name[48];
    const char *names[N_ATTRIBUTED];
    lens_gradients_desc what = ATTN_ZERO;
    attribution a = {{NULL, NULL}, NULL, NULL, NULL};
    size_t k, layer;
    for (k = 0; k < N_ATTRIBUTED; k++) {
        snprintf(patterns[k], sizeof patterns[k], "blocks.*.%s", attributed[k].name);
        names[k] = patterns[k];
    }
    what.tokens = prompts[i ^ 1];
    what.n_tokens = N_TOKENS;
    what.names = names;
    what.n_names = N_ATTRIBUTED;
    what.metric.token = answers[i][0];
    what.metric.against = answers[i][1];
    if (!record_text(s, &a.sessions[0], &a.clean, names, prompts[i]) &&
        !record_text(s, &a.sessions[1], &a.corrupted, names, prompts[i ^ 1]))
        lens_gradients(s->ctx, &a.gradients, NULL, backward, &what);
    for (k = 0; k < N_ATTRIBUTED; k++)
        for (layer = 0; layer < s->n_layer && !s->ctx->status; layer++) {
            const size_t each = (attributed[k].of_heads ? s->n_head : 1) * N_TOKENS;
            snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, attributed[k].name);
            add_products(s, out[k] + layer * each, &a, name, attributed[k].of_heads, factor);
        }
    attn_record_free(a.gradients);
    attn_record_free(a.clean);
    attn_record_free(a.corrupted);
    attn_session_free(a.sessions[0]);
    attn_session_free(a.sessions[1]);
    return s->ctx->status;
}

/* How much the sum of all logit differences gains from corrupted to clean. */
static attn_status whole_effect(study *s, float *gain)
{
    attn_session *session = NULL;
    size_t i;
    attn_session_new(s->ctx, &session, s->model, NULL);
    for (*gain = 0, i = 0; i < (size_t)2 * N_PROMPTS && !s->ctx->status; i++) {
        const size_t of = i / 2;
        if (attn_truncate(s->ctx, session, 0) ||
            attn_feed(s->ctx, session, prompts[i % 2 ? of ^ 1 : of], N_TOKENS))
            break;
        *gain += (i % 2 ? -1.0f : 1.0f) *
                 (attn_logits(session)[answers[of][0]] - attn_logits(session)[answers[of][1]]);
    }
    attn_session_free(session);
    return s->ctx->status;
}

/* Works all of them out and keeps them. */
static attn_status attribute_all(study *s)
{
    lens_backward backward = ATTN_ZERO;
    float *out[N_ATTRIBUTED], gain = 0;
    size_t k, i;
    for (k = 0; k < N_ATTRIBUTED; k++) {
        const size_t n = s->n_layer * (attributed[k].of_heads ? s->n_head : 1) * N_TOKENS;
        if (!(out[k] = room_for(s, n)) || keep(s, attributed[k].kept, out[k], n))
            return s->ctx->status;
    }
    if (!whole_effect(s, &gain) && !lens_backward_new(s->ctx, &backward, s->model))
        for (i = 0; i < N_PROMPTS && !s->ctx->status; i++)
            attribute_prompt(s, out, &backward, i, 1 / gain);
    lens_backward_free(s->ctx, &backward);
    return s->ctx->status;
}

/* out [rows, positions]: rows of two arrays by turns, a[0] b[0] a[1] b[1] ..., from row `first` of out
 * on. */
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

#endif

/* Activation patching of the eight prompts: a corrupted prompt runs with one activation of the clean
 * one. The figures are the mean logit difference, between 0 (as corrupted) and 1 (as clean). */
#ifndef REPRODUCE_PATCHING_H
#define REPRODUCE_PATCHING_H

#include "study.h"
#include "tools/lens/patch.h"

/* Draws how far a sweep has come; Ctrl-C stops it. */
static int patching_goes_on(double done, void *line)
{
    if (line)
        progress_at((progress *)line, done);
    return interrupted;
}

/* The numbers of lens_patch, without their shape. */
static attn_status patch_pairs(study *s, float *out, const lens_pair *pairs, size_t n_pairs,
                               const char *name, lens_patch_kind kind, progress *line)
{
    lens_patch_desc d = ATTN_ZERO;
    attn_tensor effect = ATTN_ZERO;
    d.pairs = pairs;
    d.n_pairs = n_pairs;
    d.name = name;
    d.kind = kind;
    d.normalize = 1;
    d.progress = patching_goes_on;
    d.user = line;
    if (lens_patch(s->ctx, &effect, NULL, s->model, &d) == ATTN_OK)
        memcpy(out, effect.data, attn_count(effect) * sizeof *out);
    else if (interrupted)
        tool_fail(s->ctx, ATTN_STOPPED, "stopped by Ctrl-C");
    attn_tensor_free(s->ctx, &effect);
    return s->ctx->status;
}

static void pair_prompts(lens_pair pairs[N_PROMPTS])
{
    size_t i;
    memset(pairs, 0, N_PROMPTS * sizeof *pairs);
    for (i = 0; i < N_PROMPTS; i++) {
        pairs[i].clean = prompts[i];
        pairs[i].corrupted = prompts[i ^ 1];
        pairs[i].n_tokens = N_TOKENS;
        pairs[i].metric.token = answers[i][0];
        pairs[i].metric.against = answers[i][1];
    }
}

/* out [layers, positions], or [layers, heads] at all positions at once. */
static attn_status patch_everywhere(study *s, float *out, const char *name, int heads)
{
    lens_pair pairs[N_PROMPTS];
    pair_prompts(pairs);
    return patch_pairs(s, out, pairs, N_PROMPTS, name,
                       heads ? LENS_PATCH_HEADS : LENS_PATCH_POSITIONS, NULL);
}

/* The other notebook's prompt, by layer and position of hook_resid_pre. */
static attn_status patch_one(study *s, float *out)
{
    lens_pair pair = ATTN_ZERO;
    pair.clean = one_prompt[0];
    pair.corrupted = one_prompt[1];
    pair.n_tokens = N_ONE;
    pair.metric.token = one_answer[0];
    pair.metric.against = one_answer[1];
    return patch_pairs(s, out, &pair, 1, "hook_resid_pre", LENS_PATCH_POSITIONS, NULL);
}

/* out [layers, heads, positions] */
static attn_status patch_by_position(study *s, float *out, const char *name, progress *line)
{
    const size_t n_head = s->n_head, n = s->n_layer * n_head * N_TOKENS;
    float *by_position = room_for(s, n); /* [layers, positions, heads] */
    lens_pair pairs[N_PROMPTS];
    size_t i;
    if (!by_position)
        return s->ctx->status;
    pair_prompts(pairs);
    if (patch_pairs(s, by_position, pairs, N_PROMPTS, name, LENS_PATCH_POSITION_HEADS, line))
        return s->ctx->status;
    for (i = 0; i < n; i++) { /* i / N_TOKENS: layer and head */
        const size_t layer = i / N_TOKENS / n_head, head = i / N_TOKENS % n_head;
        out[i] = by_position[(layer * N_TOKENS + i % N_TOKENS) * n_head + head];
    }
    return ATTN_OK;
}

#endif

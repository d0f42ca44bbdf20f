/* Edits that are in force in every run of a call, and the backward pass through them. Uses attn.h's public API
 * only. sweep.h and gradients.h include it.
 *
 * An edit turns an activation x into y, and the model goes on with y. By the chain rule d x is
 *
 *     ZERO, SET, MEAN    0: nothing passes          ADD    d y
 *     SCALE              d y * value
 *
 * at the positions and heads that the edit names, and d y at the others. */
#ifndef LENS_CHANGES_H
#define LENS_CHANGES_H

#include "result.h"

/* The full name of an activation: "blocks.3.attn.hook_z". */
typedef struct lens_full_name {
    char text[80];
} lens_full_name;

/* ATTN_NO_LAYER: the activation is outside the blocks, and `name` is its full name. */
LENS_FN lens_full_name lens_name_in(size_t layer, const char *name)
{
    lens_full_name out;
    if (layer == ATTN_NO_LAYER)
        snprintf(out.text, sizeof out.text, "%.60s", name);
    else
        snprintf(out.text, sizeof out.text, "blocks.%zu.%.40s", layer, name);
    return out;
}

/* ---- what edits name ---- */

/* The copies of the stream that heads read. */
static const char *const lens_head_inputs[] = {"hook_attn_in", "hook_q_input", "hook_k_input",
                                               "hook_v_input"};

/* The axes of an activation. `name` may lack "blocks.i.". */
LENS_FN attn_axes lens_axes_named(const char *name)
{
    const attn_activation_kind *kind = attn_activation_kind_of(name);
    return kind ? kind->axes : ATTN_AXES_POSITIONS;
}

/* Does one of the edits change this activation of a layer (or ATTN_NO_LAYER)? */
LENS_FN int lens_is_edited(const attn_edit *edits, size_t n_edits, size_t layer, const char *name)
{
    const lens_full_name full = lens_name_in(layer, name);
    for (size_t i = 0; i < n_edits; i++)
        if (attn_activation_matches(edits[i].name, full.text))
            return 1;
    return 0;
}

/* ---- in the forward pass ---- */

LENS_FN attn_status lens_need_edits(attn_ctx *ctx, const char *op, const attn_edit *edits,
                                    size_t n_edits)
{
    if (n_edits > 0 && !edits)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no edits given (NULL), n_edits is %llu", op,
                         LENS_LLU(n_edits));
    for (size_t i = 0; i < n_edits; i++)
        if (!edits[i].name)
            return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: edit %llu has no name (NULL)", op,
                             LENS_LLU(i));
    return ATTN_OK;
}

LENS_FN attn_status lens_hook_edits(attn_ctx *ctx, attn_session *session, const attn_edit *edits,
                                    size_t n_edits)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < n_edits && status == ATTN_OK; i++)
        status = attn_hook_edit(ctx, NULL, session, &edits[i]);
    return status;
}

/* ---- on the way back ---- */

/* The three dimensions [positions, heads, numbers] of an activation or of an edit's value. A dimension
 * with step 0 repeats. */
typedef struct lens_axes {
    size_t n[3];
    ptrdiff_t step[3];
} lens_axes;

/* The axes of an activation, or of an edit's value by attn_edit's rule: a missing leading dimension
 * counts as 1, and two dimensions are [positions, numbers] if a single head is edited. */
LENS_FN lens_axes lens_axes_of(attn_tensor x, const char *name, int one_head)
{
    static const int places[5][3] = {{-1, -1, 0}, {0, -1, 1}, {-1, 0, 1}, {0, 1, 2}, {1, 0, 2}};
    const attn_axes all = lens_axes_named(name);
    const int over_keys = all == ATTN_AXES_KEYS;
    const int of_heads = all == ATTN_AXES_HEADS && !one_head;
    const int *at = places[x.ndim == 1 ? 0 : x.ndim == 2 ? 1 + of_heads : 3 + over_keys];
    lens_axes axes;
    for (int i = 0; i < 3; i++) {
        axes.n[i] = at[i] < 0 ? 1 : x.shape[at[i]];
        axes.step[i] = axes.n[i] == 1 ? 0 : x.stride[at[i] < 0 ? 0 : at[i]];
    }
    return axes;
}

/* The positions [*first, *end) that an edit changes in a text of n. */
LENS_FN void lens_edited_positions(const attn_edit *e, size_t n, size_t *first, size_t *end)
{
    *first = e->first < n ? e->first : n;
    *end = e->count == 0 || e->count > n - *first ? n : *first + e->count;
}

/* Takes a gradient back through one edit, in place: d holds the gradient with respect to the edited
 * activation, and becomes the gradient with respect to the activation before the edit. */
LENS_FN void lens_back_edit(const attn_edit *e, const char *name, attn_tensor d)
{
    const lens_axes to = lens_axes_of(d, name, 0);
    const size_t n_heads = e->n_heads ? e->n_heads : to.n[1] - e->first_head;
    const int scales = e->kind == ATTN_EDIT_SCALE;
    const lens_axes from = lens_axes_of(scales ? e->value : d, name, scales && n_heads == 1);
    size_t first, end;
    if (e->kind == ATTN_EDIT_ADD)
        return;
    lens_edited_positions(e, to.n[0], &first, &end);
    for (size_t t = first; t < end; t++)
        for (size_t h = 0; h < n_heads; h++) {
            float *x = (float *)d.data + (ptrdiff_t)t * to.step[0] +
                       (ptrdiff_t)(e->first_head + h) * to.step[1];
            const float *v = scales ? (const float *)e->value.data +
                                          (ptrdiff_t)(t - e->first) * from.step[0] +
                                          (ptrdiff_t)h * from.step[1]
                                    : NULL;
            for (size_t i = 0; i < to.n[2] && (!v || from.n[2] == 1 || i < from.n[2]); i++) {
                float *number = x + (ptrdiff_t)i * to.step[2];
                *number = v ? *number * v[(ptrdiff_t)i * from.step[2]] : 0;
            }
        }
}

/* Takes a gradient back through all edits of an activation, the last edit first. */
LENS_FN void lens_back_edits(const attn_edit *edits, size_t n_edits, size_t layer, const char *name,
                             attn_tensor d)
{
    const lens_full_name full = lens_name_in(layer, name);
    for (size_t i = n_edits; i-- > 0;)
        if (attn_activation_matches(edits[i].name, full.text))
            lens_back_edit(&edits[i], name, d);
}

#endif

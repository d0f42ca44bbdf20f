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
    char text[64];
} lens_full_name;

/* layer -1: the activation is outside the blocks, and `name` is its full name. */
LENS_FN lens_full_name lens_name_in(int layer, const char *name)
{
    lens_full_name out;
    if (layer < 0)
        snprintf(out.text, sizeof out.text, "%.60s", name);
    else
        snprintf(out.text, sizeof out.text, "blocks.%d.%.40s", layer, name);
    return out;
}

/* ---- what edits name ---- */

/* The part of a name that follows "blocks.i."; the whole name if it has no such prefix. */
LENS_FN const char *lens_name_in_block(const char *full)
{
    const char *dot = strncmp(full, "blocks.", 7) == 0 ? strchr(full + 7, '.') : NULL;
    return dot ? dot + 1 : full;
}

LENS_FN int lens_is_one_of(const char *name, const char *const *names, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

/* The copies of the stream that heads read. */
static const char *const lens_head_inputs[] = {"hook_attn_in", "hook_q_input", "hook_k_input",
                                               "hook_v_input"};

/* Is the activation's last dimension over keys? Here and in the two functions below, the name is without
 * "blocks.i.". */
LENS_FN int lens_is_over_keys(const char *name)
{
    return strcmp(name, "attn.hook_pattern") == 0 || strcmp(name, "attn.hook_attn_scores") == 0;
}

LENS_FN int lens_has_heads(const char *name)
{
    return lens_is_one_of(name, lens_head_inputs, 4) || strncmp(name, "attn.", 5) == 0;
}

/* Does the model make this activation only where a hook asks for it by its name? */
LENS_FN int lens_is_on_request(const char *name)
{
    return lens_is_one_of(name, lens_head_inputs, 4) || strcmp(name, "attn.hook_result") == 0 ||
           strcmp(name, "hook_mlp_in") == 0;
}

/* Does a name match a pattern? `*` matches any run of characters. */
LENS_FN int lens_fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* Does a name or pattern, as attn_hook takes it, match this activation? */
LENS_FN int lens_means(const char *pattern, const char *full)
{
    const size_t n = strlen(pattern);
    if (n > 0 && pattern[n - 1] == '*' && lens_is_on_request(lens_name_in_block(full)))
        return 0;
    return lens_fits(pattern, full);
}

/* Does one of the edits change this activation of a layer (-1: outside the blocks)? */
LENS_FN int lens_is_edited(const attn_edit *edits, size_t n_edits, int layer, const char *name)
{
    const lens_full_name full = lens_name_in(layer, name);
    size_t i;
    for (i = 0; i < n_edits; i++)
        if (lens_means(edits[i].name, full.text))
            return 1;
    return 0;
}

/* ---- in the forward pass ---- */

LENS_FN attn_status lens_need_edits(attn_ctx *ctx, const char *op, const attn_edit *edits,
                                    size_t n_edits)
{
    size_t i;
    if (n_edits > 0 && !edits)
        return lens_fail(ctx, ATTN_E_ARGUMENT, "%s: no edits given (NULL), n_edits is %llu", op,
                         LENS_LLU(n_edits));
    for (i = 0; i < n_edits; i++)
        if (!edits[i].name)
            return lens_fail(ctx, ATTN_E_ARGUMENT, "%s: edit %llu has no name (NULL)", op,
                             LENS_LLU(i));
    return ATTN_OK;
}

LENS_FN attn_status lens_hook_edits(attn_ctx *ctx, attn_session *session, const attn_edit *edits,
                                    size_t n_edits)
{
    attn_status status = ATTN_OK;
    size_t i;
    for (i = 0; i < n_edits && status == ATTN_OK; i++)
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
    const int over_keys = lens_is_over_keys(name);
    const int of_heads = lens_has_heads(name) && !over_keys && !one_head;
    const int *at = places[x.ndim == 1 ? 0 : x.ndim == 2 ? 1 + of_heads : 3 + over_keys];
    lens_axes axes;
    int i;
    for (i = 0; i < 3; i++) {
        axes.n[i] = at[i] < 0 ? 1 : x.shape[at[i]];
        axes.step[i] = axes.n[i] == 1 ? 0 : x.stride[at[i] < 0 ? 0 : at[i]];
    }
    return axes;
}

/* The positions [*first, *end) that an edit changes in a text of n. */
LENS_FN void lens_edited_positions(const attn_edit *e, const char *name, int one_head, size_t n,
                                   size_t *first, size_t *end)
{
    size_t count = e->n_positions;
    if (count == 0 &&
        (e->kind == ATTN_EDIT_SET || e->kind == ATTN_EDIT_ADD || e->kind == ATTN_EDIT_SCALE)) {
        const size_t rows = lens_axes_of(e->value, name, one_head).n[0];
        count = rows > 1 ? rows : 0;
    }
    *first = e->position < n ? e->position : n;
    *end = count == 0 || count > n - *first ? n : *first + count;
}

/* Takes a gradient back through one edit, in place: d holds the gradient with respect to the edited
 * activation, and becomes the gradient with respect to the activation before the edit. */
LENS_FN void lens_back_edit(const attn_edit *e, const char *name, attn_tensor d)
{
    const lens_axes to = lens_axes_of(d, name, 0);
    const size_t n_heads = e->n_heads ? e->n_heads : to.n[1] - e->head;
    const int scales = e->kind == ATTN_EDIT_SCALE;
    const lens_axes from = lens_axes_of(scales ? e->value : d, name, scales && n_heads == 1);
    size_t first, end, t, h, i;
    if (e->kind == ATTN_EDIT_ADD)
        return;
    lens_edited_positions(e, name, n_heads == 1, to.n[0], &first, &end);
    for (t = first; t < end; t++)
        for (h = 0; h < n_heads; h++) {
            float *x =
                (float *)d.data + (ptrdiff_t)t * to.step[0] + (ptrdiff_t)(e->head + h) * to.step[1];
            const float *v = scales ? (const float *)e->value.data +
                                          (ptrdiff_t)(t - e->position) * from.step[0] +
                                          (ptrdiff_t)h * from.step[1]
                                    : NULL;
            for (i = 0; i < to.n[2] && (!v || from.n[2] == 1 || i < from.n[2]); i++) {
                float *number = x + (ptrdiff_t)i * to.step[2];
                *number = v ? *number * v[(ptrdiff_t)i * from.step[2]] : 0;
            }
        }
}

/* Takes a gradient back through all edits of an activation, the last edit first. */
LENS_FN void lens_back_edits(const attn_edit *edits, size_t n_edits, int layer, const char *name,
                             attn_tensor d)
{
    const lens_full_name full = lens_name_in(layer, name);
    size_t i;
    for (i = n_edits; i-- > 0;)
        if (lens_means(edits[i].name, full.text))
            lens_back_edit(&edits[i], name, d);
}

#endif

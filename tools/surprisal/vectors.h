/* The vectors of words (--vectors): activations at the tokens of a row, and one vector made of them. */
#ifndef SURPRISAL_VECTORS_H
#define SURPRISAL_VECTORS_H

#include "layers.h"

/* >> Names ===================================================================================== */

static size_t find_activation(const surprisal_run *r, const char *name)
{
    size_t i = 0;
    while (i < r->n_parts && strcmp(r->parts_of_vector[i].name, name) != 0)
        i++;
    return i;
}

/* Adds an activation, if it is not there yet. */
static attn_status add_activation(surprisal_run *r, const char *name)
{
    vector_part *const part = &r->parts_of_vector[r->n_parts];
    const attn_record_desc one = {.names = &name, .n_names = 1, .n_positions = 1};
    size_t bytes = 0;
    if (find_activation(r, name) < r->n_parts)
        return ATTN_OK;
    if (attn_activation_kind_of(name)->axes == ATTN_AXES_KEYS)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--vectors: %s has no vector for each token",
                         name);
    if (attn_record_size(&r->ctx, &bytes, r->model, &one))
        return r->ctx.status;
    snprintf(part->name, sizeof part->name, "%s", name);
    part->begin = r->width;
    part->width = bytes / sizeof(float);
    r->width += part->width;
    r->n_parts++;
    return ATTN_OK;
}

/* Adds the activations that a pattern such as blocks.*.hook_resid_post matches. */
static attn_status add_activations(surprisal_run *r, const char *pattern)
{
    const attn_activation_kind *kind;
    const attn_record_desc wanted = {.names = &pattern, .n_names = 1, .n_positions = 1};
    size_t bytes;
    value_name name;
    if (attn_record_size(&r->ctx, &bytes, r->model, &wanted))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--vectors%s", strstr(r->ctx.message, ": "));
    for (size_t i = 0; (kind = attn_activation_kind_at(i)) != NULL; i++)
        for (size_t layer = 0; layer < (kind->in_block ? r->config->n_layer : 1); layer++) {
            if (kind->in_block)
                snprintf(name, sizeof name, "blocks.%zu.%s", layer, kind->name);
            else
                snprintf(name, sizeof name, "%s", kind->name);
            if (attn_activation_matches(pattern, name) && add_activation(r, name))
                return r->ctx.status;
        }
    return ATTN_OK;
}

/* Finds the activations of --vectors, each of which is a name, or several with commas between them. */
static attn_status find_vectors(surprisal_run *r)
{
    size_t n = 0;
    while (r->o.vectors.n && attn_activation_kind_at(n))
        n++;
    r->parts_of_vector = (vector_part *)arena_alloc(&r->ctx, &r->memory, n + 1,
                                                    r->config->n_layer * sizeof(vector_part));
    for (size_t i = 0; r->parts_of_vector && i < r->o.vectors.n; i++)
        for (const char *at = r->o.vectors.at[i]; at; at = *at ? at + 1 : NULL) {
            const size_t size = strcspn(at, ",");
            char *const pattern = arena_text(&r->ctx, &r->memory, at, size);
            if (!pattern || add_activations(r, pattern))
                return r->ctx.status;
            at += size;
        }
    return r->ctx.status;
}

/* >> Tokens ==================================================================================== */

/* An attn_hook_fn: copies the rows of a window to their place in the pass. */
static int keep_token_rows(const attn_activation *a, void *user)
{
    surprisal_run *const r = (surprisal_run *)user;
    const vector_part *const part = &r->parts_of_vector[find_activation(r, a->name)];
    attn_ctx ctx = ATTN_ZERO; /* that of the run is in use: this is amid its feed */
    attn_tensor to = a->value;
    size_t row = a->first - r->n_fed;
    for (size_t i = 0; r->windows[i].session != a->session; i++)
        row += r->items[i].n_tokens;
    to.data = r->at_tokens + row * r->width + part->begin;
    to.stride[to.ndim - 1] = 1;
    if (to.ndim == 3) /* heads, one behind another */
        to.stride[1] = (ptrdiff_t)to.shape[2];
    to.stride[0] = (ptrdiff_t)r->width;
    return attn_copy(&ctx, &to, a->value) != ATTN_OK;
}

static attn_status watch_window(surprisal_run *r, const text_window *w)
{
    for (size_t i = 0; i < r->n_parts; i++)
        if (attn_hook(&r->ctx, NULL, w->session, r->parts_of_vector[i].name, keep_token_rows, r))
            return r->ctx.status;
    return ATTN_OK;
}

/* Holds the numbers x [width] at a token until its row is written. */
static attn_status hold_token(surprisal_run *r, passage *p, size_t token, const float *x)
{
    if (p->n_held == p->held_room) {
        const size_t room = p->held_room ? 2 * p->held_room : 16;
        float *const held = room < SIZE_MAX / sizeof(float) / r->width
                                ? (float *)realloc(p->held, room * r->width * sizeof(float))
                                : NULL;
        if (!held)
            return tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for the vectors of %zu tokens",
                             room);
        p->held = held;
        p->held_room = room;
    }
    p->first_held = p->n_held ? p->first_held : token;
    memcpy(p->held + p->n_held++ * r->width, x, r->width * sizeof(float));
    return ATTN_OK;
}

/* Forgets the tokens before `token`, whose rows are written. */
static void drop_tokens(const surprisal_run *r, passage *p, size_t token)
{
    const size_t n = token > p->first_held ? token - p->first_held : 0;
    if (n == 0 || p->n_held == 0)
        return;
    p->n_held -= n < p->n_held ? n : p->n_held;
    memmove(p->held, p->held + n * r->width, p->n_held * r->width * sizeof(float));
    p->first_held = token;
}

static void free_passage(passage *p)
{
    free(p->held);
    arena_free(&p->memory);
}

/* >> Rows ====================================================================================== */

/* Makes the vector of a row of the tokens [at, end), and gives it away: their mean, the first or the last. The sum is
 * one of doubles in the order of the tokens. */
static attn_status write_vector(surprisal_run *r, const passage *p, size_t at, size_t end)
{
    const size_t n = r->o.pooling == POOL_MEAN ? end - at : 1;
    const float *const from =
        p->held + ((r->o.pooling == POOL_LAST ? end - 1 : at) - p->first_held) * r->width;
    for (size_t i = 0; i < r->width; i++) {
        double sum = 0;
        for (size_t t = 0; t < n; t++)
            sum += (double)from[t * r->width + i];
        r->pooled[i] = (float)(sum / (double)n);
    }
    return r->vector_fn(r, r->n_records - (r->form == AS_CSV)) ? ATTN_STOPPED : ATTN_OK;
}

#endif

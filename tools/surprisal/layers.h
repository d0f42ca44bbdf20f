/* The surprisal under the logit lens (--layers): what the stream behind a layer says about the next token, if the
 * last LayerNorm and the unembedding follow it at once. */
#ifndef SURPRISAL_LAYERS_H
#define SURPRISAL_LAYERS_H

#include "measure.h"

/* Sets wanted[i] for each layer of a list such as 0,6,11. */
static attn_status read_layers(surprisal_run *r, const char *list, unsigned char *wanted)
{
    const char *at = list;
    do {
        const size_t n_digits = strspn(at, "0123456789"), n = r->config->n_layer;
        const unsigned long layer = strtoul(at, NULL, 10);
        if (n_digits == 0 || (at[n_digits] && at[n_digits] != ','))
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                             "--layers: \"%.100s\" is not all, or numbers of layers with commas "
                             "between them, such as 0,2",
                             list);
        if (n_digits > 9 || layer >= n)
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                             "--layers: %s has no layer %.*s; it has 0 to %zu", r->model_name,
                             (int)(n_digits < 20 ? n_digits : 20), at, n - 1);
        wanted[layer] = 1;
        at += n_digits;
    } while (*at++ == ',');
    return ATTN_OK;
}

/* Finds the layers of --layers, ascending. */
static attn_status find_layers(surprisal_run *r)
{
    const size_t n = r->config->n_layer;
    unsigned char *const wanted = (unsigned char *)arena_alloc(&r->ctx, &r->memory, n, 1);
    r->layers = (size_t *)arena_alloc(&r->ctx, &r->memory, n, sizeof *r->layers);
    if (!wanted || !r->layers || !r->o.layers)
        return r->ctx.status;
    if (strcmp(r->o.layers, "all") == 0)
        memset(wanted, 1, n);
    else if (read_layers(r, r->o.layers, wanted))
        return r->ctx.status;
    for (size_t i = 0; i < n; i++)
        if (wanted[i])
            r->layers[r->n_layers++] = i;
    return ATTN_OK;
}

/* The streams of a pass behind layer number `lens_at` of the list, from 1. */
static float *streams_of(const surprisal_run *r, size_t lens_at)
{
    return r->streams + (lens_at - 1) * MOST_TOKENS * r->config->d_model;
}

/* Runs layers [first, end) for the items of a pass, on the streams `from`, and keeps those that leave
 * in `to`. NULL: the embeddings, and none. Behind the last layer come the logits. */
static attn_status feed_layers(surprisal_run *r, size_t first, size_t end, const float *from,
                               float *to)
{
    const size_t width = r->config->d_model;
    size_t n = 0;
    for (size_t i = 0; i < r->n_windows; i++) {
        attn_feed_item *const part = &r->parts[i];
        *part = r->items[i];
        part->layers.first = first;
        part->layers.end = end;
        part->layers.resid = from ? from + n * width : NULL;
        part->layers.resid_out = to ? to + n * width : NULL;
        if (end < r->config->n_layer) {
            part->logits = NULL;
            part->rows = NULL;
            part->n_rows = 0;
        }
        n += part->n_tokens;
    }
    return attn_feed_batch(&r->ctx, r->parts, r->n_windows);
}

/* Runs the model for the items of a pass, and stops behind each layer of the list for its streams. */
static attn_status feed_items(surprisal_run *r)
{
    const size_t n_layer = r->config->n_layer;
    const float *from = NULL;
    size_t first = 0;
    for (size_t lens_at = 1; lens_at <= r->n_layers && r->layers[lens_at - 1] + 1 < n_layer;
         lens_at++) {
        const size_t end = r->layers[lens_at - 1] + 1;
        if (feed_layers(r, first, end, from, streams_of(r, lens_at)))
            return r->ctx.status;
        from = streams_of(r, lens_at);
        first = end;
    }
    return feed_layers(r, first, n_layer, from, NULL);
}

/* Translates n rows of the stream behind a layer to the form of the final one. */
static attn_status translate(surprisal_run *r, size_t layer, const float *streams, size_t n)
{
    const attn_shape shape = attn_shape2(n, r->config->d_model);
    attn_tensor out = attn_borrow(r->translated, ATTN_F32, shape);
    return lens_tuned_apply(&r->ctx, &out, &r->tuned, layer + 1,
                            attn_borrow(streams, ATTN_F32, shape));
}

/* Makes the logits of the streams that feed_items kept behind a layer: those of the last one are there. With the keys and
 * values of all layers in place, a feed from behind the last layer only makes logits: attn_model_logits gives the same
 * bits, but has no threads and batches of rows for it. */
static attn_status look_through(surprisal_run *r, size_t lens_at)
{
    const size_t n_layer = r->config->n_layer;
    const float *from = streams_of(r, lens_at);
    size_t n = 0;
    if (r->layers[lens_at - 1] + 1 == n_layer)
        return ATTN_OK;
    for (size_t i = 0; i < r->n_windows; n += r->items[i++].n_tokens)
        if (attn_session_truncate(&r->ctx, r->windows[i].session, r->n_fed))
            return r->ctx.status;
    if (r->o.tuned && translate(r, r->layers[lens_at - 1], from, n))
        return r->ctx.status;
    return feed_layers(r, n_layer, n_layer, r->o.tuned ? r->translated : from, NULL);
}

/* What is known at a position by the model (lens_at 0) or under a lens. */
static const likelihood *likelihood_at(const surprisal_run *r, const passage *p, size_t at,
                                       size_t lens_at)
{
    return lens_at ? &p->by_layer[at * r->n_layers + lens_at - 1] : &p->positions[at].of;
}

/* Measures position `at` by what the streams behind a layer say. */
static attn_status measure_layer(surprisal_run *r, passage *p, size_t at, size_t lens_at,
                                 const float *logits)
{
    likelihood *const to = &p->by_layer[at * r->n_layers + lens_at - 1];
    softmax unused;
    if (r->layers[lens_at - 1] + 1 < r->config->n_layer)
        return measure_likelihood(r, p, at, logits, to, &unused);
    *to = p->positions[at].of; /* these streams are the model's own */
    return ATTN_OK;
}

#endif

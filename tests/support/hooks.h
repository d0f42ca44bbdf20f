/* Callbacks, edits and records that several suites put on a session. */
#ifndef HOOKS_H
#define HOOKS_H

#include "models.h"

typedef struct poison {
    size_t position;
    float value;
} poison;

static inline int poisoned(const attn_activation *a, void *user)
{
    const poison *p = (const poison *)user;
    if (p->position >= a->first && p->position < a->first + a->value.shape[0])
        for (size_t i = 0; i < a->value.shape[1]; i++)
            *entry(a->value, p->position - a->first, i, 0) = i % 2 ? p->value : -p->value;
    return 0;
}

typedef struct stopper {
    const char *name;
    size_t first; /* stop when rows from here on come by */
} stopper;

static inline int stop_at(const attn_activation *a, void *user)
{
    const stopper *s = (const stopper *)user;
    return strcmp(a->name, s->name) == 0 && a->first >= s->first;
}

/* Takes the value out, puts rubbish in its place, and brings it back. */
static inline int rewrite(const attn_activation *a, void *user)
{
    const attn_tensor copy = laid_out(a->value, ATTN_F32, LAYOUT_DENSE);
    ++*(size_t *)user;
    for (size_t i = 0; i < count_of(copy); i++)
        *(volatile float *)element(a->value, i) = NAN;
    for (size_t i = 0; i < count_of(copy); i++)
        *(volatile float *)element(a->value, i) = ((const float *)copy.data)[i];
    return 0;
}

/* Puts the rows of a whole value, [T, ..], where they belong. */
static inline int put_rows(const attn_activation *a, void *user)
{
    const attn_tensor *rows = (const attn_tensor *)user;
    const size_t width = count_of(a->value) / a->value.shape[0];
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; j < width; j++)
            *(float *)element(a->value, i * width + j) =
                *(const float *)element(*rows, (a->first + i) * width + j);
    return 0;
}

/* Puts `value` at one position and one head, dimension by dimension. */
typedef struct spot {
    size_t position, head;
    const float *value; /* NULL: zeros */
} spot;
enum { EVERYWHERE = 100000 };
static inline int put_spot(const attn_activation *a, void *user)
{
    const spot *s = (const spot *)user;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t k = 0; k < a->value.shape[2]; k++)
            if (a->first + i == s->position || s->position == EVERYWHERE)
                *entry(a->value, i, s->head, k) = s->value ? s->value[k] : 0;
    return 0;
}

/* A record of `names` (n 0: all), with memory from the pool of exactly the size that was asked. */
static inline attn_record *record_on(attn_ctx *ctx, attn_session *session,
                                     const char *const *record_names, size_t n, size_t first,
                                     size_t room)
{
    attn_record *record = NULL;
    size_t bytes = 0;
    attn_record_desc desc = {
        .names = record_names, .n_names = n, .first = first, .n_positions = room};
    OK(ctx, attn_record_size(ctx, &bytes, attn_session_model(session), &desc));
    CHECK(bytes > 0);
    desc.memory = pool_new(bytes);
    desc.memory_size = bytes;
    OK(ctx, attn_record_new(ctx, &record, session, &desc));
    return record;
}

static inline int stop_late(const attn_activation *a, void *user)
{
    return *(const int *)user && a->layer == 1;
}

static inline attn_feed_item part_of(attn_session *session, const attn_token *tokens, size_t n,
                                     size_t first, size_t end, const float *resid, float *resid_out)
{
    attn_feed_item item = item_of(session, tokens, n, NULL);
    item.layers.first = first;
    item.layers.end = end;
    item.layers.resid = resid;
    item.layers.resid_out = resid_out;
    return item;
}

static inline attn_edit edit_of(const char *name, attn_edit_kind kind)
{
    attn_edit e = {.name = name, .kind = kind};
    return e;
}

#endif

/* Figures of data sets that the user has, by their names in published.txt. Nothing is downloaded. */
#ifndef REPRODUCE_DATA_SETS_H
#define REPRODUCE_DATA_SETS_H

#include "data.h"
#include "greater_than.h"
#include "ioi_edges.h"

typedef attn_status (*data_fn)(reading *r, const char *path, float *out, float *errors);

static const struct data_set {
    const char *name; /* the name of the procedure and of the option */
    data_fn fn;
    size_t n;
} data_sets[] = {
    {"hellaswag", hellaswag, 4},
    {"lambada", lambada, 4},
    {"wikitext-2", wikitext, 2},
    {"wikitext-103", wikitext, 2},
    {"greater-than", greater_than_figures, 6},
    {"ioi-edges", ioi_edges, N_IOI_FIGURES},
};
enum { N_DATA_SETS = sizeof data_sets / sizeof data_sets[0] };

/* The index of the data set that a procedure needs; N_DATA_SETS if it needs none. */
static size_t find_data_set(const char *procedure)
{
    size_t i = 0;
    while (i < N_DATA_SETS && strcmp(data_sets[i].name, procedure) != 0)
        i++;
    return i;
}

/* The figures of a data set, followed by their standard errors. They are computed once and kept. NULL
 * after a message. */
static const float *read_data(study *s, size_t which, const char *path, progress *line)
{
    const struct data_set *d = &data_sets[which];
    const kept_numbers *k = find_kept(s, d->name);
    float *out = k ? k->values : room_for(s, 2 * d->n);
    reading r;
    if (k || !out)
        return out;
    if (!begin_reading(&r, s, line) && !d->fn(&r, path, out, out + d->n))
        keep(s, d->name, out, 2 * d->n);
    attn_session_free(r.session);
    return s->ctx->status ? NULL : out;
}

#endif

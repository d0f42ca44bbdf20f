/* lens heads: previous-token, duplicate and induction heads, and how even each head looks. */
#ifndef LENS_HEAD_KINDS_H
#define LENS_HEAD_KINDS_H

#include "findings.h"
#include "heads.h"

static int run_heads(lens *l)
{
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads", "entropy of the attention, in nats"};
    static const char *const highs[] = {"1: all of the attention goes to the token before",
                                        "1: ... to earlier places of the same token",
                                        "1: ... to what followed those"};
    enum { N = LENS_N_HEAD_KINDS + 1 };
    const size_t n = l->text.n;
    const double even = n > 1 ? log((double)n) : 1;
    lens_grid grids[N];
    findings found = {make_page(l, "Kinds of heads"), grids, N, NULL, NULL};
    attn_tensor entropy = {0}, scores = {0}, mean = {0};
    size_t kind, i, j;
    int code;
    if (lens_detect_heads(&l->ctx, &entropy, &scores, l->model, l->text.ids, n) ||
        attn_mean(&l->ctx, &mean, entropy))
        return failed(&l->ctx);
    for (kind = 0; kind < N; kind++) {
        if ((code = make_grid(l, &grids[kind], l->config->n_layer, l->config->n_head)) != FINE)
            return code;
        grids[kind].title = titles[kind];
        grids[kind].high = kind < LENS_N_HEAD_KINDS
                               ? highs[kind]
                               : keep(l, "%.2f: even over the whole text", even);
        for (i = 0; i < grids[kind].n_rows; i++)
            for (j = 0; j < grids[kind].n_columns; j++) {
                lens_cell *cell = cell_of(&grids[kind], i, j);
                cell->number = kind < LENS_N_HEAD_KINDS ? attn_get3(scores, kind, i, j)
                                                        : attn_get3(mean, i, j, 0);
                cell->colour =
                    kind < LENS_N_HEAD_KINDS ? cell->number : (float)((double)cell->number / even);
                cell->text = keep(l, "%.2f", (double)cell->number);
                cell->tip = keep(l, "layer %zu, head %zu\n%.4f", i, j, (double)cell->number);
            }
    }
    found.page.note = keep(l,
                           "Means over %zu tokens. Duplicate-token and induction heads show in "
                           "texts that repeat themselves.",
                           n);
    return present(l, &found);
}

#endif

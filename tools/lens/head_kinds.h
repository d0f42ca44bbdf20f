/* lens heads: previous-token, duplicate and induction heads, and how even each head looks. */
#ifndef LENS_HEAD_KINDS_H
#define LENS_HEAD_KINDS_H

#include "findings.h"
#include "heads.h"

/* Is there a text? What comes through a pipe is one, unless it is empty. */
static int is_text_given(const lens *l)
{
    int c;
    if (l->clean_word || l->o.file || l->o.ids || l->o.bos)
        return 1;
    if (system_is_terminal(stdin) || (c = getc(stdin)) == EOF)
        return 0;
    ungetc(c, stdin);
    return 1;
}

/* Random tokens, then the same ones again, as in TransformerLens's demos: nothing but the repetition can
 * be predicted, so only duplicate-token and induction heads have something to look at. */
static int make_repeated(lens *l)
{
    enum { MOST = 50 };
    const size_t bos = l->config->bos >= 0, room = (l->config->n_ctx - bos) / 2;
    const size_t n = room < MOST ? room : MOST;
    uint64_t state = 1, z;
    size_t i;
    l->text.n = bos + 2 * n;
    l->text.ids = (int32_t *)allocate(l, l->text.n, sizeof *l->text.ids);
    l->text.shown = (const char **)allocate(l, l->text.n, sizeof *l->text.shown);
    if (!l->text.ids || !l->text.shown)
        return failed(&l->ctx);
    l->text.ids[0] = l->config->bos;
    for (i = 0; i < n; i++) { /* splitmix64 */
        z = state += UINT64_C(0x9E3779B97F4A7C15);
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        z = (z ^ z >> 31) % l->config->n_vocab;
        l->text.ids[bos + i] = l->text.ids[bos + n + i] = (int32_t)z;
    }
    for (i = 0; i < l->text.n; i++)
        l->text.shown[i] = shown_token(l, l->text.ids[i]);
    l->text.made_up = keep(l, "%s%zu random tokens twice, seed 1",
                           bos ? "the beginning-of-text token, then " : "", n);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

static int run_heads(lens *l)
{
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads", "entropy of the attention, in nats"};
    static const char *const keys[] = {"the token before", "earlier places of the same token",
                                       "what followed those"};
    enum { N = LENS_N_HEAD_KINDS + 1 };
    const size_t n = l->text.n;
    const double even = n > 1 ? log((double)n) : 1;
    double most;
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
        for (i = 0; i < grids[kind].n_rows; i++)
            for (j = 0; j < grids[kind].n_columns; j++) {
                lens_cell *cell = cell_of(&grids[kind], i, j);
                cell->number = kind < LENS_N_HEAD_KINDS ? attn_get3(scores, kind, i, j)
                                                        : attn_get3(mean, i, j, 0);
                cell->text = keep(l, "%.2f", (double)cell->number);
                cell->tip = keep(l, "layer %zu, head %zu\n%.4f", i, j, (double)cell->number);
            }
        most = kind < LENS_N_HEAD_KINDS ? fitting_scale(&grids[kind], 1) : even;
        grids[kind].high = kind < LENS_N_HEAD_KINDS
                               ? keep(l, "%g%s of the attention goes to %s", most,
                                      most < 1 ? "" : ": all", keys[kind])
                               : keep(l, "%.2f: even over the whole text", even);
        colour_cells(&grids[kind], most);
    }
    found.page.note =
        keep(l,
             "Means over %zu tokens%s. A head with a large number in one of the first "
             "three grids is of that kind; duplicate-token and induction heads show "
             "in texts that repeat themselves.",
             n, l->text.made_up ? keep(l, ", %s", l->text.made_up) : "");
    return present(l, &found);
}

#endif

/* lens decompose: the parts of the stream that a layer reads. A part is shown by its length, or with --token
 * by what it adds to a logit. -o FILE.safetensors writes the parts. */
#ifndef LENS_CMD_DECOMPOSE_H
#define LENS_CMD_DECOMPOSE_H

#include "tools/lens/decompose.h"
#include "tools/lens/save.h"
#include "question.h"

#define PARTS_NAMES "streams streams-mid sublayers attns mlps heads neurons"

/* The parts that the options name. */
static int choose_parts(lens *l, lens_parts_desc *d)
{
    const size_t n_layer = l->config->n_layer;
    d->kind = (lens_parts_kind)l->o.kind;
    d->tokens = l->text.ids;
    d->n_tokens = l->text.n;
    if (l->o.layer != not_given && (l->o.layer != n_layer || l->o.mlp_input)) {
        d->reader = l->o.mlp_input ? LENS_READER_MLP : LENS_READER_ATTN;
        d->layer = l->o.layer;
    }
    d->no_embeds = l->o.no_embeds;
    d->apply_ln = l->o.apply_ln;
    if (l->o.position != not_given) {
        if (l->o.position >= l->text.n)
            return fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0",
                        l->o.position, l->text.n);
        d->first = l->o.position;
        d->count = 1;
    }
    return FINE;
}

/* With --token, the parts are projected onto the direction of a logit. */
static int choose_direction(lens *l, lens_parts_desc *d, question *q)
{
    attn_tensor row = ATTN_ZERO;
    int code;
    if (!l->o.token)
        return FINE;
    if ((code = name_tokens(l, q)) != FINE)
        return code;
    if (attn_logit_directions(&l->ctx, &row, l->model, &q->metric.token,
                              lens_metric_against(&q->metric), 1))
        return failed(&l->ctx);
    d->project = attn_transpose(row, 0, 1);
    return FINE;
}

/* The number that is shown for a part at a position: its length, or its projection. */
static float size_of_part(attn_tensor parts, size_t i, size_t t)
{
    double sum = 0;
    size_t k;
    if (parts.shape[2] == 1)
        return attn_get3(parts, i, t, 0);
    for (k = 0; k < parts.shape[2]; k++)
        sum += (double)attn_get3(parts, i, t, k) * (double)attn_get3(parts, i, t, k);
    return (float)sqrt(sum);
}

typedef struct ranked_part {
    size_t index;
    float largest; /* largest magnitude over the positions */
} ranked_part;

static int compare_parts(const void *a, const void *b)
{
    const ranked_part *x = (const ranked_part *)a, *y = (const ranked_part *)b;
    return x->largest < y->largest   ? 1
           : x->largest > y->largest ? -1
                                     : (x->index > y->index) - (x->index < y->index);
}

/* Lists all parts in their order; of neurons only the --top largest, sorted. */
static ranked_part *rank_parts(lens *l, const lens_parts_desc *d, attn_tensor parts, size_t *n)
{
    ranked_part *list = (ranked_part *)allocate(l, *n, sizeof *list);
    size_t i, t;
    for (i = 0; list && i < *n; i++) {
        list[i].index = i;
        list[i].largest = 0;
        for (t = 0; t < parts.shape[1]; t++)
            list[i].largest = fmaxf(list[i].largest, fabsf(size_of_part(parts, i, t)));
    }
    if (list && d->kind == LENS_PARTS_NEURONS) {
        qsort(list, *n, sizeof *list, compare_parts);
        *n = l->o.top && l->o.top < *n ? l->o.top : *n;
    }
    return list;
}

static int show_parts(lens *l, const lens_parts_desc *d, attn_tensor parts, lens_grid *grid)
{
    const size_t n_positions = parts.shape[1];
    size_t i, t, n = parts.shape[0];
    double most = 1e-9;
    const ranked_part *list = rank_parts(l, d, parts, &n);
    int code;
    if (!list)
        return failed(&l->ctx);
    if ((code = make_grid(l, grid, n, n_positions)) != FINE)
        return code;
    for (i = 0; i < n; i++) {
        ((const char **)grid->rows)[i] =
            keep(l, "%s", lens_parts_label(l->model, d, list[i].index).text);
        most = fmax(most, (double)list[i].largest);
    }
    for (t = 0; t < n_positions; t++)
        ((const char **)grid->columns)[t] =
            keep(l, "%zu %s", d->first + t, l->text.shown[d->first + t]);
    for (i = 0; i < n; i++)
        for (t = 0; t < n_positions; t++) {
            lens_cell *cell = cell_of(grid, i, t);
            cell->number = size_of_part(parts, list[i].index, t);
            cell->text = keep(l, "%.3f", (double)cell->number);
            cell->tip =
                keep(l, "%s at %s\n%.5f", grid->rows[i], grid->columns[t], (double)cell->number);
        }
    colour_cells(grid, most);
    grid->row_name = "part";
    grid->column_name = "position";
    grid->low = d->project.ndim ? keep(l, "-%.3g", most) : NULL;
    grid->high = keep(l, "%.3g", most);
    return FINE;
}

/* Writes one tensor "stack" [parts, T, C]. --json prints the labels of its parts. */
static int save_parts(lens *l, const lens_parts_desc *d, attn_tensor parts)
{
    static const char *const name[] = {"stack"};
    size_t i;
    if (lens_save(&l->ctx, l->o.output, name, &parts, 1))
        return failed(&l->ctx);
    tell_written(l, keep(l, "%zu parts of %zu positions", parts.shape[0], parts.shape[1]));
    if (!l->o.json)
        return FINE;
    printf("{\"labels\": [");
    for (i = 0; i < parts.shape[0]; i++)
        printf("%s\"%s\"", i ? ", " : "", lens_parts_label(l->model, d, i).text);
    printf("]}\n");
    return FINE;
}

static void json_parts(const lens *l, const void *of)
{
    const lens_grid *grid = (const lens_grid *)of;
    (void)l;
    fputs("\"labels\": ", stdout);
    json_strings(stdout, grid->rows, grid->n_rows);
    fputs(",\n", stdout);
}

static int run_decompose(lens *l)
{
    lens_parts_desc d = ATTN_ZERO;
    question q = ATTN_ZERO;
    attn_tensor parts = ATTN_ZERO;
    lens_grid grid;
    findings found = {make_page(l, "The stream taken apart"), &grid, 1, json_parts, &grid};
    int code;
    if ((code = choose_parts(l, &d)) != FINE || (code = choose_direction(l, &d, &q)) != FINE)
        return code;
    if (lens_decompose(&l->ctx, &parts, NULL, l->model, &d))
        return failed(&l->ctx);
    if (is_file_of_tensors(l->o.output))
        return save_parts(l, &d, parts);
    if ((code = show_parts(l, &d, parts, &grid)) != FINE)
        return code;
    grid.title =
        q.text ? keep(l, "products with the direction of the %s", q.text) : "lengths of the parts";
    found.page.note = keep(
        l, "%s of the stream that enters %s%s.%s",
        d.kind == LENS_PARTS_NEURONS ? "The largest parts" : "Parts",
        d.reader == LENS_READER_FINAL ? "the last LayerNorm" : keep(l, "layer %zu", d.layer),
        d.reader == LENS_READER_MLP ? "'s MLP" : "",
        d.apply_ln ? " Each is divided by the scale of the LayerNorm that reads the stream." : "");
    return present(l, &found);
}

#endif

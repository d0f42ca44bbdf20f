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
        d->count = 1;
        return choose_position(l, &d->first);
    }
    return FINE;
}

/* Must the direction be multiplied by the gain of ln_final? lens_decompose multiplies streams by it already. */
static int direction_needs_gain(const lens_parts_desc *d)
{
    return d->reader == LENS_READER_FINAL && d->kind != LENS_PARTS_STREAMS &&
           d->kind != LENS_PARTS_STREAMS_MID;
}

/* --token projects each part onto the direction of a logit. Without --layer the projection is the part's term in that
 * logit, as in lens_logit_attrs: ((part - mean) / scale) · (ln_final.w * W_U[:, token]). */
static int choose_direction(lens *l, lens_parts_desc *d, question *q)
{
    attn_tensor row = ATTN_ZERO, gain = ATTN_ZERO;
    int code;
    if (!l->o.token)
        return FINE;
    if ((code = name_tokens(l, q)) != FINE)
        return code;
    if (attn_logit_directions(&l->ctx, &row, l->model, &q->metric.token,
                              lens_metric_against(&q->metric), 1) ||
        (direction_needs_gain(d) && (attn_model_tensor(&l->ctx, &gain, l->model, "ln_final.w") ||
                                     attn_mul(&l->ctx, &row, row, gain))))
        return failed(&l->ctx);
    attn_tensor_free(&l->ctx, &gain);
    d->apply_ln |= d->reader == LENS_READER_FINAL;
    d->project = attn_transpose(row, 0, 1);
    return FINE;
}

/* The parts that a table shows: their lengths or their projections, [parts, T]. */
typedef struct sized_parts {
    lens_parts_desc which;
    const char *title;
    float *sizes;
    size_t n_positions, n; /* n: parts of the table */
    double most;           /* the largest magnitude */
} sized_parts;

static float size_of_part(attn_tensor parts, size_t i, size_t t)
{
    const float *const at =
        (const float *)parts.data + (ptrdiff_t)i * parts.stride[0] + (ptrdiff_t)t * parts.stride[1];
    double sum = 0;
    if (parts.shape[2] == 1)
        return *at;
    for (size_t k = 0; k < parts.shape[2]; k++)
        sum += (double)at[k] * (double)at[k];
    return (float)sqrt(sum);
}

static int size_parts(lens *l, sized_parts *s, attn_tensor parts)
{
    s->n = parts.shape[0];
    s->n_positions = parts.shape[1];
    s->sizes = (float *)allocate(l, parts.shape[0] * parts.shape[1], sizeof *s->sizes);
    for (size_t i = 0; s->sizes && i < parts.shape[0] * parts.shape[1]; i++)
        s->sizes[i] = size_of_part(parts, i / parts.shape[1], i % parts.shape[1]);
    return outcome(&l->ctx);
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

/* Lists all parts in their order, which a file of tensors has, too; of neurons else only the --top largest, sorted. */
static ranked_part *rank_parts(lens *l, sized_parts *s)
{
    ranked_part *list = (ranked_part *)allocate(l, s->n, sizeof *list);
    for (size_t i = 0; list && i < s->n; i++) {
        list[i].index = i;
        list[i].largest = 0;
        for (size_t t = 0; t < s->n_positions; t++)
            list[i].largest = fmaxf(list[i].largest, fabsf(s->sizes[i * s->n_positions + t]));
    }
    if (list && s->which.kind == LENS_PARTS_NEURONS && !is_file_of_tensors(l->o.output)) {
        qsort(list, s->n, sizeof *list, compare_parts);
        s->n = l->o.top && l->o.top < s->n ? l->o.top : s->n;
    }
    return list;
}

static void dress_parts(lens *l, const void *of)
{
    const sized_parts *const s = (const sized_parts *)of;
    const answer_table *const t = answer_named(&l->answer, "parts");
    lens_grid *const grid = add_grid(l, s->title, s->n, s->n_positions);
    const size_t first = s->which.first;
    name_axes(grid, "part", "position");
    for (size_t i = 0; i < grid->n_rows; i++)
        label_row(grid, i, t->columns->texts[i]);
    for (size_t i = 0; i < grid->n_columns; i++)
        label_column(grid, i, keep(l, "%zu %s", first + i, l->text.shown[first + i]));
    show_column(l, grid, "parts", s->which.project.ndim ? "contribution" : "size", 0);
    spell_cells(l, grid, "%.3f", "%s at %s\n%.5f");
    scale_cells(l, grid, s->most, "%.3g");
    grid->low = s->which.project.ndim ? grid->low : NULL;
}

/* The parts themselves, for callers. */
static void add_stack(lens *l, const sized_parts *s, attn_tensor parts)
{
    answer_table *const t = add_table(l, "stack");
    answer_axis(&l->answer, t, "part", parts.shape[0]);
    double *positions = answer_axis(&l->answer, t, "position", parts.shape[1]);
    for (size_t i = 0; positions && i < parts.shape[1]; i++)
        positions[i] = (double)(s->which.first + i);
    answer_axis(&l->answer, t, "width", parts.shape[2]);
    answer_tensor(&l->answer, t, "value", parts);
    if (t)
        t->is_dense = 1;
}

/* A row for each part at each position. */
static void add_parts(lens *l, sized_parts *s)
{
    const ranked_part *const list = rank_parts(l, s);
    const char *const name = s->which.project.ndim ? "contribution" : "size";
    answer_table *const t = add_table(l, "parts");
    const char **const labels = answer_text_axis(&l->answer, t, "part", s->n);
    add_positions(l, t, &l->text, s->which.first, s->n_positions);
    double *const sizes = answer_numbers(&l->answer, t, CELLS, name, LENS_NUMBERS);
    s->most = 1e-9;
    for (size_t i = 0; list && sizes && i < s->n; i++) {
        labels[i] = keep(l, "%s", lens_parts_label(l->model, &s->which, list[i].index).text);
        s->most = fmax(s->most, (double)list[i].largest);
        for (size_t k = 0; k < s->n_positions; k++)
            sizes[i * s->n_positions + k] = (double)s->sizes[list[i].index * s->n_positions + k];
    }
}

/* Writes one tensor "stack" [parts, T, C]. */
static int save_parts(lens *l, attn_tensor parts)
{
    static const char *const name[] = {"stack"};
    if (lens_save(&l->ctx, l->o.output, name, &parts, 1))
        return failed(&l->ctx);
    tell_written(l, keep(l, "%zu parts of %zu positions", parts.shape[0], parts.shape[1]));
    return FINE;
}

static int run_decompose(lens *l, void *finding)
{
    sized_parts *const s = (sized_parts *)finding;
    question q = ATTN_ZERO;
    attn_tensor parts = ATTN_ZERO;
    int code;
    show_as(l, "The stream taken apart", dress_parts);
    if ((code = choose_parts(l, &s->which)) != FINE ||
        (code = choose_direction(l, &s->which, &q)) != FINE)
        return code;
    if (lens_decompose(&l->ctx, &parts, NULL, l->model, &s->which))
        return failed(&l->ctx);
    if (is_file_of_tensors(l->o.output)) {
        l->shown.print = print_nothing;
        if ((code = save_parts(l, parts)) != FINE || !(l->o.json || keeps_tensors(l)))
            return code;
    }
    if ((code = size_parts(l, s, parts)) != FINE)
        return code;
    if (q.text)
        add_question(l, &q);
    add_parts(l, s);
    if (keeps_tensors(l))
        add_stack(l, s, parts);
    else
        attn_tensor_free(&l->ctx, &parts);
    s->title = !q.text ? "lengths of the parts"
               : s->which.reader == LENS_READER_FINAL
                   ? keep(l, "what each part adds to the %s", q.text)
                   : keep(l, "products with the direction of the %s", q.text);
    l->shown.page.note = keep(
        l, "%s of the stream that enters %s%s.%s",
        s->which.kind == LENS_PARTS_NEURONS ? "The largest parts" : "Parts",
        s->which.reader == LENS_READER_FINAL ? "the last LayerNorm"
                                             : keep(l, "layer %zu", s->which.layer),
        s->which.reader == LENS_READER_MLP ? "'s MLP" : "",
        s->which.apply_ln ? " Each is divided by the scale of the LayerNorm that reads the stream."
                          : "");
    return show_answer(l);
}

#endif

/* lens sae: which features of a sparse autoencoder or a transcoder are active at each token, and what changing some of them
 * does. */
#ifndef LENS_CMD_SAE_H
#define LENS_CMD_SAE_H

#include "beside.h"
#include "tools/lens/sae_files.h"

typedef struct feature_finding {
    lens_sae sae;
    attn_tensor features; /* [T, m] */
    lens_ranked *ranked;  /* [T, m]: of each token, the largest first */
    double explained;
    size_t n_active;             /* features of all tokens */
    lens_sae_change changes[16]; /* of --change */
    lens_sae_watch watch;
    beside sides; /* with and without the changes, if there are any */
} feature_finding;

/* An activation of a record, [T, width]. */
static int rows_of(lens *l, attn_tensor *x, const attn_record *record, const char *name)
{
    if (attn_record_get(&l->ctx, x, record, name))
        return failed(&l->ctx);
    if (x->ndim == 3 && x->shape[0] == l->text.n)
        *x = attn_reshape(*x, attn_shape2(x->shape[0], x->shape[1] * x->shape[2]));
    return FINE;
}

/* *x: the activation that is encoded, [T, n]. *y: what is rebuilt, x itself or a transcoder's output, [T,
 * width]. Both belong to *record. */
static int record_input(lens *l, const lens_sae *sae, attn_record **record, attn_tensor *x,
                        attn_tensor *y)
{
    const char *const names[] = {sae->hook, sae->hook_out};
    attn_record_desc desc = ATTN_ZERO;
    int code;
    desc.names = names;
    desc.n_names = sae->n_out ? 2 : 1;
    desc.n_positions = l->text.n;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (attn_record_new(&l->ctx, record, l->session, &desc) ||
        attn_feed(&l->ctx, l->session, l->text.ids, l->text.n))
        return failed(&l->ctx);
    if (attn_record_n_activations(*record) != desc.n_names)
        return fail(FAILED, "cfg.json: hook_name %s is not one activation%s%s", sae->hook,
                    sae->n_out ? ", or hook_name_out is not another one: " : "", sae->hook_out);
    code = rows_of(l, x, *record, sae->hook);
    *y = *x;
    if (code == FINE && sae->n_out)
        code = rows_of(l, y, *record, sae->hook_out);
    if (code == FINE && (y->ndim != 2 || y->shape[1] != lens_sae_width(sae)) && sae->n_out)
        code = fail(FAILED, "cfg.json: d_out is %zu, but %s has another width", sae->n_out,
                    sae->hook_out);
    return code;
}

static int find_features(lens *l, feature_finding *f)
{
    attn_record *record = NULL;
    attn_tensor x = ATTN_ZERO, y = ATTN_ZERO, rebuilt = ATTN_ZERO;
    if (lens_sae_open(&l->ctx, &f->sae, l->o.directory))
        return failed(&l->ctx);
    size_t m = f->sae.m;
    int code = record_input(l, &f->sae, &record, &x, &y);
    if (code == FINE && (lens_sae_encode(&l->ctx, &f->features, &f->sae, x) ||
                         lens_sae_decode(&l->ctx, &rebuilt, &f->sae, f->features, x)))
        code = failed(&l->ctx);
    if (code == FINE)
        f->explained = lens_sae_explained(y, rebuilt);
    attn_record_free(record);
    attn_tensor_free(&l->ctx, &rebuilt);
    f->ranked = (lens_ranked *)allocate(l, l->text.n * m, sizeof *f->ranked);
    if (!f->ranked || code != FINE)
        return code == FINE ? failed(&l->ctx) : code;
    for (size_t t = 0; t < l->text.n; t++) {
        lens_ranked *row = f->ranked + t * m;
        for (size_t i = 0; i < m; i++) {
            row[i].index = i;
            row[i].value = attn_get2(f->features, t, i);
            f->n_active += row[i].value > 0;
        }
        qsort(row, m, sizeof *row, lens_compare_ranked);
    }
    return FINE;
}

/* ---- --change ---- */

/* FEATURE=VALUE, FEATURE*VALUE, FEATURE+VALUE or FEATURE-VALUE */
static int read_change(const char *text, const lens_sae *sae, lens_sae_change *change)
{
    char *at, *end = NULL;
    const unsigned long feature = strtoul(text, &at, 10);
    double value = 0;
    if (*text >= '0' && *text <= '9' && *at && strchr("=*+-", *at))
        value = strtod(*at == '-' ? at : at + 1, &end);
    if (!end || end == at + 1 || end == at || *end || !isfinite(value))
        return fail(USAGE,
                    "--change: \"%s\" is not a feature and what becomes of it, such as 12=8, 12=0, "
                    "12*0.5 or 12+4",
                    text);
    if (feature >= sae->m)
        return fail(FAILED, "--change: there is no feature %lu; the autoencoder has 0 to %zu",
                    feature, sae->m - 1);
    change->feature = feature;
    change->kind = *at == '=' ? LENS_SAE_CLAMP : *at == '*' ? LENS_SAE_SCALE : LENS_SAE_STEER;
    change->value = (float)value;
    return FINE;
}

static int hook_features(lens *l, attn_session *session, void *how)
{
    feature_finding *f = (feature_finding *)how;
    return lens_sae_attach(&l->ctx, session, &f->watch) ? failed(&l->ctx) : FINE;
}

static int changes_features(const lens *l)
{
    return l->o.change.n > 0 || l->o.no_error;
}

static int change_features(lens *l, feature_finding *f)
{
    int code;
    for (size_t i = 0; i < l->o.change.n; i++)
        if ((code = read_change(l->o.change.at[i], &f->sae, &f->changes[i])) != FINE)
            return code;
    f->watch.sae = &f->sae;
    f->watch.keep_error = !l->o.no_error;
    f->watch.changes = f->changes;
    f->watch.n_changes = l->o.change.n;
    code = run_beside(l, hook_features, f, &f->sides);
    lens_sae_end(&f->watch);
    return code;
}

/* "features": the active ones of each token, the largest first. */
static void add_features(lens *l, const feature_finding *f)
{
    answer_table *const t =
        add_rows(l, "features", f->n_active, "position:z token:t feature:z | activation");
    for (size_t i = 0, row = 0; i < l->text.n * f->sae.m; i++)
        if (f->ranked[i].value > 0)
            answer_put(&l->answer, t, row++, i / f->sae.m, l->text.ids[i / f->sae.m],
                       f->ranked[i].index, f->ranked[i].value);
}

static void add_sae(lens *l, const feature_finding *f)
{
    facts(l, "hook:s hook_out:s n_features:z n_tokens:z active explained", f->sae.hook,
          f->sae.n_out ? f->sae.hook_out : NULL, f->sae.m, l->text.n,
          (double)f->n_active / (double)l->text.n, f->explained);
    add_features(l, f);
    if (changes_features(l))
        add_sides(l, &f->sides);
}

/* A row for each token, the largest features in its columns. */
static void add_feature_grid(lens *l, const feature_finding *f)
{
    const size_t n_columns = l->o.top < f->sae.m ? l->o.top : f->sae.m;
    lens_grid *const grid = add_grid(l, "active features, and how strongly", l->text.n, n_columns);
    name_axes(grid, "token", "feature");
    for (size_t i = 0; i < n_columns; i++)
        label_column(grid, i, i ? keep(l, "%zu.", i + 1) : "largest");
    for (size_t t = 0; t < l->text.n; t++)
        label_row(grid, t, keep(l, "%zu %s", t, l->text.shown[t]));
    for (size_t t = 0; t < grid->n_rows; t++) {
        for (size_t i = 0; i < n_columns; i++) {
            const lens_ranked *const r = f->ranked + t * f->sae.m + i;
            lens_cell *const cell = cell_of(grid, t, i);
            cell->number = (double)r->value;
            cell->text = r->value > 0 ? keep(l, "%zu: %.2f", r->index, cell->number) : "";
            cell->tip =
                keep(l, "position %s\nfeature %zu: %.4f", grid->rows[t], r->index, cell->number);
        }
    }
    const double most = fmax(largest_of(grid), 1e-9);
    grid->high = keep(l, "%.2f", most);
    colour_cells(grid, most);
}

static void dress_sae(lens *l, const void *of)
{
    const feature_finding *const f = (const feature_finding *)of;
    add_feature_grid(l, f);
    if (changes_features(l))
        add_side_grid(l, &f->sides);
}

static const char *note_of_change(int no_error, int is_transcoder)
{
    if (is_transcoder)
        return no_error
                   ? "The change: what the transcoder predicts takes the place of the output."
                   : "The change: the output moves by as much as what the transcoder predicts.";
    return no_error
               ? "The change: what the autoencoder makes of the activation takes its place."
               : "The change: the activation moves by as much as what the autoencoder makes of it.";
}

static int run_sae(lens *l, void *finding)
{
    const int changes = changes_features(l);
    feature_finding *const f = (feature_finding *)finding;
    show_as(l, "Sparse autoencoder", dress_sae);
    int code = find_features(l, f);
    if (code == FINE && changes)
        code = change_features(l, f);
    if (code != FINE)
        return code;
    add_sae(l, f);
    l->shown.page.note = keep(
        l,
        "%zu features of %s. %.1f of them are active at a token, on average; together they "
        "explain %s of the %s's variance over this text.",
        f->sae.m,
        f->sae.n_out ? keep(l, "%s, which predict %s", f->sae.hook, f->sae.hook_out) : f->sae.hook,
        (double)f->n_active / (double)l->text.n, percent(l, f->explained),
        f->sae.n_out ? "output" : "activation");
    if (changes)
        l->shown.page.note =
            keep(l, "%s %s%s", l->shown.page.note, note_of_change(l->o.no_error, f->sae.n_out != 0),
                 note_of_sides(l, &f->sides));
    return show_answer(l);
}

#endif

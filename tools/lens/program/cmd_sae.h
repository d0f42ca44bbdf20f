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
    size_t t, i, m;
    int code;
    if (lens_sae_open(&l->ctx, &f->sae, l->operand))
        return failed(&l->ctx);
    m = f->sae.m;
    code = record_input(l, &f->sae, &record, &x, &y);
    if (code == FINE && (lens_sae_encode(&l->ctx, &f->features, &f->sae, x) ||
                         lens_sae_decode(&l->ctx, &rebuilt, &f->sae, f->features, x)))
        code = failed(&l->ctx);
    if (code == FINE)
        f->explained = lens_sae_explained(y, rebuilt);
    attn_record_free(record);
    f->ranked = (lens_ranked *)allocate(l, l->text.n * m, sizeof *f->ranked);
    if (!f->ranked || code != FINE)
        return code == FINE ? failed(&l->ctx) : code;
    for (t = 0; t < l->text.n; t++) {
        lens_ranked *row = f->ranked + t * m;
        for (i = 0; i < m; i++) {
            row[i].index = i;
            row[i].value = attn_get2(f->features, t, i);
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
    size_t i;
    int code;
    for (i = 0; i < l->o.change.n; i++)
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

static void json_features(const lens *l, const feature_finding *f)
{
    size_t t, i;
    fputs("{\"hook\": ", stdout);
    json_quoted(f->sae.hook);
    if (f->sae.n_out) {
        fputs(", \"hook_out\": ", stdout);
        json_quoted(f->sae.hook_out);
    }
    fputs(", \"tokens\": [", stdout);
    for (t = 0; t < l->text.n; t++) {
        const lens_ranked *row = f->ranked + t * f->sae.m;
        fputs(t ? ",\n {\"features\": [" : "\n {\"features\": [", stdout);
        for (i = 0; i < f->sae.m && row[i].value > 0; i++) {
            printf("%s[%zu, ", i ? ", " : "", row[i].index);
            json_figure((double)row[i].value);
            fputs("]", stdout);
        }
        fputs("]}", stdout);
    }
    json_named("], \"explained\": ", f->explained);
    if (changes_features(l)) {
        fputs(",\n ", stdout);
        json_beside(l, &f->sides);
    }
    fputs("}\n", stdout);
}

/* A row for each token, the largest features in its columns. */
static int show_features(lens *l, const feature_finding *f, lens_grid *grid)
{
    const size_t n_columns = l->o.top < f->sae.m ? l->o.top : f->sae.m;
    double most = 1e-9;
    size_t t, i;
    const int code = make_grid(l, grid, l->text.n, n_columns);
    if (code != FINE)
        return code;
    for (t = 0; t < l->text.n && n_columns; t++)
        most = fmax(most, (double)f->ranked[t * f->sae.m].value);
    for (i = 0; i < n_columns; i++)
        ((const char **)grid->columns)[i] = i ? keep(l, "%zu.", i + 1) : "largest";
    for (t = 0; t < l->text.n; t++) {
        ((const char **)grid->rows)[t] = keep(l, "%zu %s", t, l->text.shown[t]);
        for (i = 0; i < n_columns; i++) {
            const lens_ranked *r = f->ranked + t * f->sae.m + i;
            lens_cell *cell = cell_of(grid, t, i);
            cell->number = r->value;
            cell->colour = (float)((double)r->value / most);
            cell->text = r->value > 0 ? keep(l, "%zu: %.2f", r->index, (double)r->value) : "";
            cell->tip = keep(l, "position %zu %s\nfeature %zu: %.4f", t, l->text.shown[t], r->index,
                             (double)r->value);
        }
    }
    grid->title = "active features, and how strongly";
    grid->row_name = "token";
    grid->column_name = "feature";
    grid->high = keep(l, "%.2f", most);
    return FINE;
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

static int run_sae(lens *l)
{
    feature_finding *f = (feature_finding *)allocate(l, 1, sizeof *f);
    lens_grid grids[2];
    findings found = {make_page(l, "Sparse autoencoder"), grids, 1, NULL, NULL};
    double n_active = 0;
    size_t i;
    int code;
    if (!f)
        return failed(&l->ctx);
    memset(f, 0, sizeof *f);
    code = find_features(l, f);
    if (code == FINE && changes_features(l))
        code = change_features(l, f);
    if (code == FINE && l->o.json)
        json_features(l, f);
    if (code != FINE || l->o.json || (code = show_features(l, f, &grids[0])) != FINE)
        return code;
    for (i = 0; i < l->text.n * f->sae.m; i++)
        n_active += f->ranked[i].value > 0;
    found.page.note = keep(
        l,
        "%zu features of %s. %.1f of them are active at a token, on average; together they "
        "explain %s of the %s's variance over this text.",
        f->sae.m,
        f->sae.n_out ? keep(l, "%s, which predict %s", f->sae.hook, f->sae.hook_out) : f->sae.hook,
        n_active / (double)l->text.n, percent(l, f->explained),
        f->sae.n_out ? "output" : "activation");
    if (changes_features(l)) {
        found.page.note =
            keep(l, "%s %s%s", found.page.note, note_of_change(l->o.no_error, f->sae.n_out != 0),
                 note_of_sides(l, &f->sides));
        if ((code = grid_of_sides(l, &f->sides, &grids[found.n_grids++])) != FINE)
            return code;
    }
    return present(l, &found);
}

#endif

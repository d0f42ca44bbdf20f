/* lens edges --interactions and --shapley: what nodes do together. */
#ifndef LENS_CMD_INTERACTIONS_H
#define LENS_CMD_INTERACTIONS_H

#include "cmd_exact.h"
#include "tools/lens/interaction.h"

#define ABLATION_NAMES "corrupted zero mean"

typedef struct joint_finding {
    patching p;
    lens_graph graph;
    lens_joint_desc d;
    size_t n;          /* nodes */
    size_t n_shown;    /* pairs of a list */
    attn_tensor found; /* [n, n] of --shapley; or [2, n, n] */
    lens_edge *pairs;  /* of two nodes, the largest interactions first */
    size_t n_pairs;
    const char *note;       /* without what it says of intervals */
    measured_column matrix; /* [n, n]: of a picture of interactions */
} joint_finding;

/* The kind of ablation: its name as the option has it, or with in_words a description of what the nodes then write. */
static const char *ablation_name(const joint_finding *f, int in_words)
{
    static const char *const names[][2] = {
        {"corrupted", "what they write in the corrupted text"},
        {"zero", "zeros"},
        {"mean", "the mean over the positions of what they write in the clean text"}};
    return names[f->d.ablation][in_words];
}

static const char *joint_name(lens *l, const joint_finding *f, size_t i)
{
    return keep(l, "%s", lens_sender_name(&f->graph, f->d.nodes ? f->d.nodes[i] : i).text);
}

/* Reads the nodes of --shapley, in ascending order. */
static int read_nodes(lens *l, joint_finding *f)
{
    size_t *const nodes = (size_t *)allocate(l, LENS_MOST_PLAYERS + 1, sizeof *nodes);
    const char *word = l->o.shapley;
    size_t length, k;
    f->d.nodes = nodes;
    for (; nodes && word; word = word[length] ? word + length + 1 : NULL) {
        const char *const name = keep(l, "%.*s", (int)(length = strcspn(word, ",")), word);
        const char *at = name;
        lens_head head = ATTN_ZERO;
        const size_t node =
            lens_sender_named(&f->graph, read_head_name(&at, &head) && !*at
                                             ? keep(l, "a%zu.h%zu", head.layer, head.head)
                                             : name);
        if (node == f->graph.n_senders)
            return fail(FAILED,
                        "--shapley: \"%s\": expected input, a head such as a0.h1 or an MLP such as "
                        "m0, of %zu layers of %zu heads",
                        name, f->graph.n_layer, f->graph.n_head);
        for (k = f->d.n_nodes++; k > 0 && nodes[k - 1] >= node; k--)
            nodes[k] = nodes[k - 1];
        nodes[k] = node;
        if (k + 1 < f->d.n_nodes && nodes[k + 1] == node)
            return fail(FAILED, "--shapley: %s is named twice", name);
        if (f->d.n_nodes > LENS_MOST_PLAYERS)
            return fail(FAILED, "--shapley takes at most %d nodes: all sets of them run",
                        (int)LENS_MOST_PLAYERS);
    }
    return nodes ? FINE : failed(&l->ctx);
}

static int find_joint(lens *l, joint_finding *f)
{
    f->d.pairs = f->p.pairs;
    f->d.n_pairs = f->p.n_pairs;
    f->d.ablation = (lens_ablation)(l->o.ablation > 0 ? l->o.ablation : 0);
    f->d.edits = l->edits;
    f->d.n_edits = l->n_edits;
    f->d.progress = so_far;
    f->d.user = l;
    f->n = l->o.shapley ? f->d.n_nodes : f->graph.n_senders;
    f->pairs = (lens_edge *)allocate(l, f->n * f->n, sizeof *f->pairs);
    if (!f->pairs || room_for_each(l, &f->p.each, (l->o.shapley ? 1 : 2) * f->n * f->n))
        return failed(&l->ctx);
    f->d.each = f->p.each;
    begin_progress(l, l->o.shapley ? "sets" : "pairs");
    attn_status status = (l->o.shapley ? lens_shapley : lens_interactions)(&l->ctx, &f->found, NULL,
                                                                           l->model, &f->d);
    end_progress(l);
    for (size_t a = 0; a < f->n && status == ATTN_OK; a++)
        for (size_t b = a + 1; b < f->n; b++) {
            const lens_edge pair = {
                a, b, l->o.shapley ? attn_get2(f->found, a, b) : attn_get3(f->found, 1, a, b)};
            f->pairs[f->n_pairs++] = pair;
        }
    f->n_shown = l->o.edges < f->n_pairs && !l->o.shapley ? l->o.edges : f->n_pairs;
    if (!l->o.shapley)
        qsort(f->pairs, f->n_pairs, sizeof *f->pairs, lens_compare_edges);
    return status ? failed(&l->ctx) : FINE;
}

/* ---- tables ---- */

/* A table of pairs of nodes, each once. */
static answer_table *add_interactions(lens *l, const joint_finding *f, size_t n)
{
    answer_table *const t = add_rows(l, "interactions", n, "a:s b:s |");
    for (size_t i = 0; i < n; i++)
        answer_put(&l->answer, t, i, joint_name(l, f, f->pairs[i].sender),
                   joint_name(l, f, f->pairs[i].receiver));
    return t;
}

/* Measures n numbers of the result: of each pair or, with `diagonal`, of each node. They begin at number `first`. */
static void measure_joint(lens *l, const joint_finding *f, answer_table *t, const char *name,
                          size_t n, size_t first, int diagonal)
{
    measured_column *const m = add_measure(l, t, name, n);
    const size_t n_rows = t ? answer_n_rows(t) : 0, n_all = diagonal ? f->n : f->n_pairs;
    const results from = {NULL, f->p.each, attn_count(f->found), 0};
    size_t *const at = (size_t *)allocate(l, n_all, sizeof *at);
    if (!m || !at)
        return;
    for (size_t i = 0; i < n_all; i++)
        at[i] =
            first + (diagonal ? i * f->n + i : f->pairs[i].sender * f->n + f->pairs[i].receiver);
    for (size_t i = 0; i < n_rows; i++)
        m->numbers[i] = (double)((const float *)f->found.data)[at[i]];
    take_rows(l, m, 0, at, n, from);
    if (!l->o.shapley)
        choose_rows(m, at, n_all, from);
}

/* "interactions", with effects: all, or those that are shown. */
static void add_effects(lens *l, const joint_finding *f)
{
    answer_table *const t = add_interactions(l, f, wants_all(l) ? f->n_pairs : f->n_shown);
    answer_add_columns(&l->answer, t, "effect interaction");
    measure_joint(l, f, t, "interaction", f->n_shown, f->n * f->n, 0);
    measure_joint(l, f, t, "effect", f->n_shown, 0, 0);
}

/* "shapley" and "interactions": the diagonal of the matrix, and what is above it. */
static void add_shapley(lens *l, const joint_finding *f)
{
    answer_table *const nodes = add_table(l, "shapley");
    const char **const names = answer_text_axis(&l->answer, nodes, "node", f->n);
    answer_table *const pairs = add_interactions(l, f, f->n_pairs);
    for (size_t i = 0; names && i < f->n; i++)
        names[i] = joint_name(l, f, i);
    answer_add_columns(&l->answer, nodes, "value");
    answer_add_columns(&l->answer, pairs, "interaction");
    measure_joint(l, f, nodes, "value", f->n, 0, 1);
    measure_joint(l, f, pairs, "interaction", f->n_pairs, 0, 0);
}

/* ---- grids ---- */

/* Spells a cell about two nodes, or about one. */
static void spell_joint(lens *l, const joint_finding *f, lens_cell *cell, size_t a, size_t b,
                        const char *what)
{
    cell->text = keep(l, "%.3f", cell->number);
    cell->tip = keep(l, "%s%s%s\n%s %.5f", joint_name(l, f, a), a == b ? "" : " and ",
                     a == b ? "" : joint_name(l, f, b), what, cell->number);
}

/* A row for each of the largest interactions. */
static lens_grid *add_list(lens *l, const joint_finding *f)
{
    static const char *const columns[] = {"effect", "interaction"}, *const labels[] = {"effect",
                                                                                       "interact."};
    const answer_table *const t = answer_named(&l->answer, "interactions");
    lens_grid *const grid = add_grid(
        l, keep(l, "the largest %zu of %zu interactions", f->n_shown, f->n_pairs), f->n_shown, 2);
    name_axes(grid, "nodes, ablated together", "logits");
    label_columns(grid, labels);
    for (size_t i = 0; i < n_cells(grid); i++) {
        const size_t a = f->pairs[i / 2].sender, b = f->pairs[i / 2].receiver;
        label_row(grid, i / 2, keep(l, "%s + %s", joint_name(l, f, a), joint_name(l, f, b)));
        show_number(l, cell_of(grid, 0, i), t, columns[i % 2], i / 2);
        spell_joint(l, f, cell_of(grid, 0, i), a, b, i % 2 ? "interaction" : "effect of both");
    }
    return grid;
}

/* Computes the spreads of the matrix of interactions, for the first picture. */
static int measure_matrix(lens *l, joint_finding *f)
{
    const size_t n = f->n * f->n;
    if (!l->o.ci || f->matrix.each)
        return FINE;
    f->matrix.n = n;
    if (room_for_each(l, &f->matrix.each, n) != ATTN_OK)
        return failed(&l->ctx);
    for (size_t pair = 0; pair < l->n_pairs; pair++)
        memcpy(f->matrix.each + pair * (2 + n), f->p.each + pair * (2 + 2 * n) + n,
               (2 + n) * sizeof *f->p.each);
    return find_spreads(l, &f->matrix, 1, LENS_SPREAD_VALUES, f->n);
}

/* A cell of the matrix of --shapley: the value of a node, or the interaction of two. */
static void show_shapley(const lens *l, const joint_finding *f, lens_cell *cell, size_t a, size_t b)
{
    const size_t low = a < b ? a : b, high = a < b ? b : a;
    const size_t pair = low * f->n - low * (low + 1) / 2 + high - low - 1;
    show_number(l, cell, answer_named(&l->answer, a == b ? "shapley" : "interactions"),
                a == b ? "value" : "interaction", a == b ? a : pair);
}

/* A row and a column for each node: all interactions, or with --shapley those beside the values. */
static lens_grid *add_matrix(lens *l, joint_finding *f)
{
    const size_t n = f->n;
    const int is_shapley = l->o.shapley != NULL;
    lens_grid *const grid =
        add_grid(l,
                 is_shapley ? "Shapley values, and interactions beside the diagonal"
                            : keep(l, "the interactions of all %zu pairs of nodes", f->n_pairs),
                 n, n);
    name_axes(grid, "node", "node");
    grid->small = !is_shapley;
    if (!is_shapley && measure_matrix(l, f) != FINE)
        return grid;
    for (size_t i = 0; i < grid->n_rows; i++) { /* the first head of a layer marks it */
        const char *const name = joint_name(l, f, i), *const head = strchr(name, '.');
        label_column(grid, i, name);
        label_row(grid, i,
                  is_shapley || !head || strcmp(head, ".h0") != 0
                      ? name
                      : keep(l, "layer %.*s: %s", (int)(head - name - 1), name + 1, name));
    }
    for (size_t i = 0; i < n_cells(grid); i++) {
        lens_cell *const cell = cell_of(grid, 0, i);
        const size_t a = i / n, b = i % n;
        if (is_shapley) {
            show_shapley(l, f, cell, a, b);
        } else {
            cell->number = (double)attn_get3(f->found, 1, a, b);
            cell->spread = f->matrix.spreads ? &f->matrix.spreads[i] : NULL;
        }
        spell_joint(l, f, cell, a, b, is_shapley && a == b ? "Shapley value" : "interaction");
    }
    return grid;
}

/* Pictures of interactions have the matrix. */
static void dress_joint(lens *l, const void *of)
{
    joint_finding *const f = (joint_finding *)(uintptr_t)of;
    const int is_matrix = l->o.shapley || l->form != FORM_TEXT;
    lens_grid *const grid = is_matrix ? add_matrix(l, f) : add_list(l, f);
    l->shown.page.note = note_with_spreads(l, f->note, is_matrix);
    scale_cells(l, grid, fmax(largest_of(grid), 1e-9), "%.2f");
}

static const char *note_of_joint(lens *l, const joint_finding *f)
{
    double sum = 0;
    for (size_t i = 0; i < f->n && l->o.shapley; i++)
        sum += (double)attn_get2(f->found, i, i);
    return keep(
        l, "%s. Effect of nodes: by how much the clean answer changes when they write %s. %s",
        answers_of(l, &f->p), ablation_name(f, 1),
        l->o.shapley ? keep(l,
                            "Shapley value: the mean effect of one more node, over all orders. The "
                            "values add up to %.3f, the effect of all %zu nodes.",
                            sum, f->n)
                     : "Interaction: the effect of both, less those of each alone.");
}

static int run_joint(lens *l, void *finding)
{
    joint_finding *const f = (joint_finding *)finding;
    int code;
    show_as(l, l->o.shapley ? "Shapley values" : "Interactions of nodes", dress_joint);
    f->graph = lens_graph_of(l->model);
    if ((l->o.shapley && (code = read_nodes(l, f)) != FINE) ||
        (code = ask_about_patches(l, &f->p)) != FINE || (code = find_joint(l, f)) != FINE)
        return code;
    add_patching(l, &f->p);
    facts(l, "ablation:s", ablation_name(f, 0));
    (l->o.shapley ? add_shapley : add_effects)(l, f);
    l->shown.page.warning = warn_of_gap(l, &f->p);
    l->shown.page.note = f->note = note_of_joint(l, f);
    return show_pairs(l, LENS_SPREAD_VALUES);
}

#endif

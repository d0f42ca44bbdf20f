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
    attn_tensor found; /* [n, n] of --shapley; or [2, n, n] */
    lens_edge *pairs;  /* of two nodes, the largest interactions first */
    size_t n_pairs;
    progress bar;
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
        const size_t node = lens_sender_named(&f->graph, name);
        if (node == f->graph.n_senders)
            return fail(FAILED,
                        "--shapley: \"%s\" is no node; nodes are input, heads such as a0.h1 and "
                        "MLPs such as m0, of %zu layers of %zu heads",
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
    attn_status status;
    size_t a, b;
    f->d.pairs = f->p.pairs;
    f->d.n_pairs = f->p.n_pairs;
    f->d.ablation = (lens_ablation)(l->o.ablation > 0 ? l->o.ablation : 0);
    f->d.edits = l->edits;
    f->d.n_edits = l->n_edits;
    f->d.progress = verified_so_far;
    f->d.user = &f->bar;
    f->n = l->o.shapley ? f->d.n_nodes : f->graph.n_senders;
    f->pairs = (lens_edge *)allocate(l, f->n * f->n, sizeof *f->pairs);
    if (!f->pairs || room_for_each(l, &f->p.each, (l->o.shapley ? 1 : 2) * f->n * f->n))
        return failed(&l->ctx);
    f->d.each = f->p.each;
    progress_begin(&f->bar, l->o.shapley ? "sets" : "pairs");
    status = (l->o.shapley ? lens_shapley : lens_interactions)(&l->ctx, &f->found, NULL, l->model,
                                                               &f->d);
    progress_end(&f->bar);
    for (a = 0; a < f->n && status == ATTN_OK && !l->o.shapley; a++)
        for (b = a + 1; b < f->n; b++) {
            const lens_edge pair = {a, b, attn_get3(f->found, 1, a, b)};
            f->pairs[f->n_pairs++] = pair;
        }
    qsort(f->pairs, f->n_pairs, sizeof *f->pairs, lens_compare_edges);
    return status ? failed(&l->ctx) : FINE;
}

static void json_joint(const lens *l, const void *of)
{
    const joint_finding *f = (const joint_finding *)of;
    const size_t n = l->o.shapley ? f->n : f->n_pairs;
    size_t i;
    json_patches(l, &f->p);
    printf(" \"ablation\": \"%s\",\n \"%s\": [", ablation_name(f, 0),
           l->o.shapley ? "shapley" : "interactions");
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n  " : "\n  ", stdout);
        if (l->o.shapley) {
            printf("{\"node\": \"%s\"", lens_sender_name(&f->graph, f->d.nodes[i]).text);
            json_named(", \"value\": ", (double)attn_get2(f->found, i, i));
        } else {
            const size_t a = f->pairs[i].sender, b = f->pairs[i].receiver;
            printf("{\"a\": \"%s\", \"b\": \"%s\"", lens_sender_name(&f->graph, a).text,
                   lens_sender_name(&f->graph, b).text);
            json_named(", \"effect\": ", (double)attn_get3(f->found, 0, a, b));
            json_named(", \"interaction\": ", (double)f->pairs[i].score);
        }
        fputs("}", stdout);
    }
    fputs("],\n", stdout);
}

/* Fills cell i with number `at` of the result, for every pair of texts, too. */
static void fill_joint(lens *l, const joint_finding *f, const lens_grid *grid, size_t i, size_t at)
{
    const size_t n_numbers = attn_count(f->found);
    lens_cell *const cell = cell_of(grid, 0, i);
    size_t pair;
    cell->number = ((const float *)f->found.data)[at];
    cell->text = keep(l, "%.3f", (double)cell->number);
    for (pair = 0; grid->each && pair < l->n_pairs; pair++)
        cells_of_pair(grid, pair)[i] = f->p.each[pair * (2 + n_numbers) + 2 + at];
}

/* A row for each of the largest interactions; with --shapley and in pictures a row and a column for each node. */
static int show_joint(lens *l, const joint_finding *f, lens_grid *grid)
{
    const int is_matrix = is_of_nodes(l);
    const size_t n = is_matrix ? f->n : l->o.edges < f->n_pairs ? l->o.edges : f->n_pairs;
    const size_t square = f->n * f->n, width = is_matrix ? n : 2;
    double most = 1e-9;
    size_t i;
    int code = make_grid(l, grid, n, width);
    if (code != FINE || (code = make_each(l, grid, f->p.answers)) != FINE)
        return code;
    for (i = 0; i < n * width; i++) {
        const lens_edge *const pair = &f->pairs[i / width];
        const size_t a = is_matrix ? i / width : pair->sender;
        const size_t b = is_matrix ? i % width : pair->receiver;
        const int is_effect = !is_matrix && i % 2 == 0;
        const char *const name = joint_name(l, f, b), *const head = strchr(name, '.');
        fill_joint(l, f, grid, i, a * f->n + b + (l->o.shapley || is_effect ? 0 : square));
        cell_of(grid, 0, i)->tip = keep(l, "%s%s%s\n%s %.5f", joint_name(l, f, a),
                                        a == b ? "" : " and ", a == b ? "" : name,
                                        a == b && l->o.shapley ? "Shapley value"
                                        : is_effect            ? "effect of both"
                                                               : "interaction",
                                        (double)grid->cells[i].number);
        most = fmax(most, fabs((double)grid->cells[i].number));
        if (is_matrix) { /* the first head of a layer marks it */
            ((const char **)grid->columns)[b] = name;
            ((const char **)grid->rows)[b] =
                l->o.shapley || !head || strcmp(head, ".h0") != 0
                    ? name
                    : keep(l, "layer %s: %s", keep(l, "%.*s", (int)(head - name - 1), name + 1),
                           name);
        } else {
            ((const char **)grid->rows)[i / 2] = keep(l, "%s + %s", joint_name(l, f, a), name);
        }
    }
    if (!is_matrix) {
        ((const char **)grid->columns)[0] = "effect";
        ((const char **)grid->columns)[1] = "interact.";
    }
    grid->title = l->o.shapley ? "Shapley values, and interactions beside the diagonal"
                  : is_matrix  ? keep(l, "the interactions of all %zu pairs of nodes", f->n_pairs)
                               : keep(l, "the largest %zu of %zu interactions", n, f->n_pairs);
    grid->small = is_matrix && !l->o.shapley;
    grid->row_name = is_matrix ? "node" : "nodes, ablated together";
    grid->column_name = is_matrix ? "node" : "logits";
    scale_cells(l, grid, most);
    return outcome(&l->ctx);
}

static int run_joint(lens *l)
{
    joint_finding f = {0};
    lens_grid grid;
    findings found = {make_page(l, l->o.shapley ? "Shapley values" : "Interactions of nodes"),
                      &grid, 1, json_joint, &f};
    double sum = 0;
    size_t i;
    int code;
    f.graph = lens_graph_of(l->model);
    if ((l->o.shapley && (code = read_nodes(l, &f)) != FINE) ||
        (code = ask_about_patches(l, &f.p)) != FINE || (code = find_joint(l, &f)) != FINE ||
        (code = show_joint(l, &f, &grid)) != FINE)
        return code;
    for (i = 0; i < f.n && l->o.shapley; i++)
        sum += (double)attn_get2(f.found, i, i);
    found.page.warning = warn_of_gap(l, &f.p);
    found.page.note = keep(
        l, "%s. Effect of nodes: by how much the clean answer changes when they write %s. %s",
        answers_of(l, &f.p), ablation_name(&f, 1),
        l->o.shapley ? keep(l,
                            "Shapley value: the mean effect of one more node, over all orders. The "
                            "values add up to %.3f, the effect of all %zu nodes.",
                            sum, f.n)
                     : "Interaction: the effect of both, less those of each alone.");
    code = present_pairs(l, &found, LENS_SPREAD_VALUES);
    attn_tensor_free(&l->ctx, &f.found);
    return code;
}

#endif

/* lens path: which heads matter to one reader of the residual stream, by the direct path alone. */
#ifndef LENS_PATH_H
#define LENS_PATH_H

#include "patching.h"
#include "paths.h"

/* Reads a whole number at *at and goes on behind it. */
static int read_number(const char **at, size_t *number)
{
    char *end;
    if (**at < '0' || **at > '9')
        return 0;
    *number = (size_t)strtoul(*at, &end, 10);
    *at = end;
    return 1;
}

/* --from L.H */
static int read_sender(const lens *l, lens_path *path)
{
    const char *at = l->o.from;
    if (read_number(&at, &path->from_layer) && *at++ == '.' && read_number(&at, &path->from_head) &&
        *at == 0)
        return FINE;
    return fail(USAGE, "--from: \"%s\" is not a layer and a head, such as 0.1", l->o.from);
}

/* --to blocks.L.NAME or, of a head's copy of the stream, blocks.L.NAME.H */
static int read_reader(const lens *l, lens_path *path)
{
    static const char *const of_layers[] = {"hook_resid_pre", "hook_mlp_in"};
    static const char *const of_heads[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    const char *at = l->o.to;
    size_t i;
    if (strncmp(at, "blocks.", 7) == 0 && (at += 7, read_number(&at, &path->to_layer)) &&
        *at++ == '.') {
        for (i = 0; i < 2; i++)
            if (strcmp(at, path->to = of_layers[i]) == 0)
                return FINE;
        for (i = 0; i < 3; i++) {
            const size_t size = strlen(path->to = of_heads[i]);
            const char *head = at + size + 1;
            if (strncmp(at, path->to, size) == 0 && at[size] == '.' &&
                read_number(&head, &path->to_head) && *head == 0)
                return FINE;
        }
    }
    return fail(USAGE,
                "--to: \"%s\" is not the name of a reader: blocks.L.hook_resid_pre, "
                "blocks.L.hook_mlp_in, or blocks.L.hook_q_input.H, hook_k_input.H or "
                "hook_v_input.H of head H",
                l->o.to);
}

/* The path that the options name; without --from, that of the first head. */
static int read_path(lens *l, lens_path *path)
{
    int code = FINE;
    path->to = "hook_resid_pre";
    path->to_layer = l->config->n_layer; /* the stream that is unembedded */
    if (l->o.from)
        code = read_sender(l, path);
    if (l->o.to && code == FINE)
        code = read_reader(l, path);
    if (code == FINE && lens_check_path(&l->ctx, l->model, path))
        code = fail(FAILED,
                    "no path leads from head %zu of layer %zu to %s: the model has layers 0 to %u "
                    "of heads 0 to %u, and a path leads to a later layer or to an MLP",
                    path->from_head, path->from_layer, l->o.to ? l->o.to : "the final stream",
                    (unsigned)l->config->n_layer - 1, (unsigned)l->config->n_head - 1);
    return code;
}

/* The answers with each path patched: from one head, or from all heads before the reader. */
static int patch_paths(lens *l, const patching *p, const lens_path *first, lens_grid *grid)
{
    const size_t to_mlp = strcmp(first->to, "hook_mlp_in") == 0;
    const size_t n_rows = l->o.from ? 1 : first->to_layer + to_mlp;
    lens_path path = *first;
    size_t i, j;
    const int code = make_grid(l, grid, n_rows, l->o.from ? 1 : l->config->n_head);
    if (code != FINE)
        return code;
    for (i = 0; i < n_rows; i++)
        for (j = 0; j < grid->n_columns; j++) {
            path.from_layer = first->from_layer + i;
            path.from_head = first->from_head + j;
            ((const char **)grid->rows)[i] = keep(l, "%zu", path.from_layer);
            ((const char **)grid->columns)[j] = keep(l, "%zu", path.from_head);
            if (lens_patch_path(&l->ctx, &cell_of(grid, i, j)->number, l->model, &p->desc, &path))
                return failed(&l->ctx);
        }
    grid->title = keep(l, "from each head to %s", l->o.to ? l->o.to : "the final stream");
    if (l->o.from)
        grid->title =
            keep(l, "from head %s to %s", l->o.from, l->o.to ? l->o.to : "the final stream");
    return FINE;
}

static int run_path(lens *l)
{
    lens_path path = {0};
    patching p = {0};
    lens_grid grid;
    findings found = {make_page(l, "Path patching"), &grid, 1, json_patches, &p};
    int code;
    if ((code = read_path(l, &path)) != FINE || (code = ask_about_patches(l, &p)) != FINE ||
        (code = patch_paths(l, &p, &path, &grid)) != FINE)
        return code;
    finish_patches(l, &p, &grid, 1);
    found.page.warning = warn_of_gap(l, &p);
    found.page.note = note_of_patches(l, &p,
                                      "Each cell runs the corrupted text, where the reader "
                                      "receives what one head writes in the clean text,");
    return present(l, &found);
}

#endif

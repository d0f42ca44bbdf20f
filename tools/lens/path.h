/* lens path: which heads matter to some readers of the residual stream. */
#ifndef LENS_PATH_H
#define LENS_PATH_H

#include "patching.h"
#include "paths.h"

/* blocks.L.NAME or, of a head's copy of the stream, blocks.L.NAME.H; up to a comma or the end */
static int read_reader(const lens *l, const char **at, lens_receiver *to)
{
    static const char *const of_layers[] = {"hook_resid_pre", "hook_mlp_in"};
    static const char *const of_heads[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    const char *word = *at;
    const size_t length = strcspn(word, ",");
    size_t i;
    *at += length + (word[length] == ',');
    if (strncmp(word, "blocks.", 7) == 0 && (word += 7, read_number(&word, &to->layer)) &&
        *word++ == '.') {
        const size_t size = strcspn(word, ",");
        for (i = 0; i < 2; i++)
            if (strlen(to->to = of_layers[i]) == size && strncmp(word, to->to, size) == 0)
                return FINE;
        for (i = 0; i < 3; i++) {
            const size_t n = strlen(to->to = of_heads[i]);
            const char *head = word + n + 1;
            if (size > n + 1 && strncmp(word, to->to, n) == 0 && word[n] == '.' &&
                read_number(&head, &to->head) && head == word + size)
                return FINE;
        }
    }
    return fail(USAGE,
                "--to: \"%s\" is not the name of a reader: blocks.L.hook_resid_pre, "
                "blocks.L.hook_mlp_in, or blocks.L.hook_q_input.H, hook_k_input.H or "
                "hook_v_input.H of head H",
                l->o.to);
}

/* The paths that the options name. Without --from, senders are all heads before the last reader. */
static int read_paths(lens *l, lens_paths_desc *d, lens_receiver *readers, lens_sender *senders)
{
    const char *at = l->o.to;
    size_t last = 0, i;
    int code = FINE;
    readers[0].to = "hook_resid_pre";
    readers[0].layer = l->config->n_layer; /* the stream that is unembedded */
    d->n_receivers = !at;
    while (at && *at && code == FINE)
        code = read_reader(l, &at, &readers[d->n_receivers++]);
    for (i = 0; i < d->n_receivers && code == FINE; i++) {
        const size_t end = readers[i].layer + (size_t)lens_is_mlp_reader(&readers[i]);
        last = end > last ? end : last;
        if (lens_need_receiver(&l->ctx, l->model, &readers[i]) != ATTN_OK)
            code = failed(&l->ctx);
    }
    at = l->o.from;
    if (at && code == FINE) {
        d->n_senders = 1;
        code = read_head(l, "from", &at, &senders[0].layer, &senders[0].head);
    }
    for (i = 0; !l->o.from && i < last * l->config->n_head && code == FINE; i++) {
        senders[i].layer = i / l->config->n_head;
        senders[i].head = i % l->config->n_head;
        d->n_senders = i + 1;
    }
    if (code == FINE && (d->n_senders == 0 || senders[0].layer >= last))
        code =
            fail(FAILED,
                 "no path leads from %s to %s: a path leads to a later layer, or to the MLP of the "
                 "same one",
                 l->o.from ? keep(l, "head %zu of layer %zu", senders[0].head, senders[0].layer)
                           : "a head",
                 l->o.to ? l->o.to : "the final stream");
    return code;
}

/* The answers with each path patched: from one head, or from all heads before the readers. */
static int patch_paths(lens *l, patching *p, const lens_paths_desc *d, lens_grid *grid)
{
    const size_t n_columns = l->o.from ? 1 : l->config->n_head;
    const char *const from = l->o.from ? keep(l, "head %s", l->o.from) : "each head";
    attn_tensor values = {0};
    int code = FINE;
    if (lens_patch_paths(&l->ctx, &values, &p->whole, l->model, d) != ATTN_OK)
        return failed(&l->ctx);
    code = fill_patches(l, grid,
                        attn_reshape(values, attn_shape2(d->n_senders / n_columns, n_columns)));
    if (code == FINE && l->o.from) {
        ((const char **)grid->rows)[0] = keep(l, "%zu", d->senders[0].layer);
        ((const char **)grid->columns)[0] = keep(l, "%zu", d->senders[0].head);
    }
    grid->title = keep(l, "from %s to %s", from, l->o.to ? l->o.to : "the final stream");
    attn_tensor_free(&l->ctx, &values);
    return code;
}

static int run_path(lens *l)
{
    const size_t n_readers = l->o.to ? strlen(l->o.to) : 1;
    lens_receiver *readers = (lens_receiver *)allocate(l, n_readers, sizeof *readers);
    lens_sender *senders =
        (lens_sender *)allocate(l, (size_t)l->config->n_layer * l->config->n_head, sizeof *senders);
    lens_paths_desc d = ATTN_ZERO;
    patching p = {0};
    lens_grid grid;
    findings found = {make_page(l, "Path patching"), &grid, 1, json_patches, &p};
    int code;
    if (!readers || !senders)
        return failed(&l->ctx);
    d.pairs = &p.pair;
    d.n_pairs = 1;
    d.senders = senders;
    d.receivers = readers;
    d.mlps = (lens_path_mlps)l->o.mlps;
    d.progress = go_on;
    if ((code = read_paths(l, &d, readers, senders)) != FINE ||
        (code = ask_about_patches(l, &p)) != FINE)
        return code;
    d.edits = p.edits;
    d.n_edits = p.n_edits;
    if ((code = patch_paths(l, &p, &d, &grid)) != FINE)
        return code;
    finish_patches(l, &p, &grid, 1);
    found.page.warning = warn_of_gap(l, &p);
    found.page.note =
        note_of_patches(l, &p,
                        d.mlps == LENS_MLPS_THROUGH ? "Each cell runs the corrupted text, where "
                                                      "the reader receives what one head writes in "
                                                      "the clean text and what MLPs make of it,"
                                                    : "Each cell runs the corrupted text, where "
                                                      "the reader receives what one head writes in "
                                                      "the clean text,");
    return present(l, &found);
}

#endif

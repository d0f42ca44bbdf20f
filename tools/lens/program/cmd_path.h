/* lens path: what certain receivers of the residual stream read from each head and MLP. */
#ifndef LENS_CMD_PATH_H
#define LENS_CMD_PATH_H

#include "cmd_patch.h"
#include "tools/lens/paths.h"

/* Reads a receiver, blocks.L.NAME or, for a head's copy of the stream, blocks.L.NAME.H, up to a comma or the
 * end. */
static int read_receiver(const lens *l, const char **at, lens_receiver *to)
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
                "--to: \"%s\" is not the name of a receiver: blocks.L.hook_resid_pre, "
                "blocks.L.hook_mlp_in, or blocks.L.hook_q_input.H, hook_k_input.H or "
                "hook_v_input.H of head H",
                l->o.to);
}

/* Reads --from: L.H, L.mlp or embed. */
static int read_sender(lens *l, lens_sender *sender)
{
    const char *at = l->o.from;
    memset(sender, 0, sizeof *sender);
    if (strcmp(at, "embed") == 0)
        return FINE;
    sender->kind = LENS_SENDER_MLP;
    if (read_number(&at, &sender->layer) && strcmp(at, ".mlp") == 0) {
        if (sender->layer < l->config->n_layer)
            return FINE;
        return fail(FAILED, "--from: there is no layer %zu: the model has layers 0 to %u",
                    sender->layer, (unsigned)l->config->n_layer - 1);
    }
    at = l->o.from;
    sender->kind = LENS_SENDER_HEAD;
    return read_head(l, "from", &at, &sender->layer, &sender->head);
}

/* Reads --to, a list of receivers. */
static int read_receivers(lens *l, lens_paths_desc *d, lens_receiver *receivers)
{
    const char *at = l->o.to;
    size_t i;
    int code = FINE;
    receivers[0].to = "hook_resid_pre";
    receivers[0].layer = l->config->n_layer; /* the stream that is unembedded */
    d->n_receivers = !at;
    while (at && *at && code == FINE)
        code = read_receiver(l, &at, &receivers[d->n_receivers++]);
    for (i = 0; i < d->n_receivers && code == FINE; i++)
        if (lens_need_receiver(&l->ctx, l->model, &receivers[i]) != ATTN_OK)
            code = failed(&l->ctx);
    return code;
}

static int has_path(const lens_paths_desc *d, const lens_sender *sender)
{
    size_t i;
    for (i = 0; i < d->n_receivers; i++)
        if (lens_leads_to(lens_stage_of(sender), &d->receivers[i]))
            return 1;
    return 0;
}

/* Reads --from and --to. Without --from, the senders are all heads and MLPs with a path to a receiver. */
static int read_paths(lens *l, lens_paths_desc *d, lens_receiver *receivers, lens_sender *senders)
{
    const size_t per_layer = (size_t)l->config->n_head + 1;
    size_t i;
    int code = read_receivers(l, d, receivers);
    if (code == FINE && l->o.from) {
        d->n_senders = 1;
        if ((code = read_sender(l, senders)) == FINE && !has_path(d, senders))
            d->n_senders = 0;
    }
    for (i = 0; !l->o.from && i < l->config->n_layer * per_layer && code == FINE; i++) {
        lens_sender *next = &senders[d->n_senders];
        next->layer = i / per_layer;
        next->kind = i % per_layer < l->config->n_head ? LENS_SENDER_HEAD : LENS_SENDER_MLP;
        next->head = next->kind == LENS_SENDER_HEAD ? i % per_layer : 0;
        d->n_senders += (size_t)has_path(d, next);
    }
    if (code == FINE && d->n_senders == 0)
        code = fail(FAILED,
                    "no path leads from %s to %s: a path leads to a later layer, or from a head to "
                    "the MLP of the same one",
                    l->o.from ? lens_show_sender(senders).text : "a head",
                    l->o.to ? l->o.to : "the final stream");
    return code;
}

/* The column of a sender: heads, then the MLP. */
static size_t column_of(const lens *l, const lens_sender *s)
{
    return s->kind == LENS_SENDER_MLP ? l->config->n_head : s->head;
}

/* Places the answers of the senders in the cells of a grid. Where no path leads is the corrupted text's answer. */
static void place_answers(const lens *l, const lens_paths_desc *d, const lens_grid *grid,
                          const float *answers, float corrupted, float *cells)
{
    size_t i;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        cells[i] = corrupted;
    for (i = 0; i < d->n_senders; i++)
        cells[l->o.from ? 0
                        : d->senders[i].layer * grid->n_columns + column_of(l, &d->senders[i])] =
            answers[i];
}

/* Patches the paths from each sender, and makes the grid of the answers. */
static int patch_paths(lens *l, patching *p, lens_paths_desc *d, lens_grid *grid)
{
    const lens_sender *const last = &d->senders[d->n_senders - 1];
    const char *const from =
        l->o.from ? keep(l, "%s", lens_show_sender(last).text) : "each head and MLP";
    attn_tensor values = {0};
    float *cells;
    size_t i, n = d->n_senders;
    int code;
    if (room_for_each(l, &d->each, n) ||
        lens_patch_paths(&l->ctx, &values, &p->whole, l->model, d) != ATTN_OK)
        return failed(&l->ctx);
    code = l->o.from ? make_grid(l, grid, 1, 1)
                     : make_grid(l, grid, last->layer + 1, (size_t)l->config->n_head + 1);
    if (code == FINE)
        code = make_each(l, grid, p->answers);
    cells = (float *)allocate(l, grid->n_rows * grid->n_columns, sizeof *cells);
    if (code == FINE && cells)
        place_answers(l, d, grid, (const float *)values.data, p->whole.corrupted, cells);
    for (i = 0; code == FINE && cells && i < grid->n_rows * grid->n_columns; i++)
        cell_of(grid, 0, i)->number = cells[i];
    for (i = 0; code == FINE && d->each && i < l->n_pairs; i++)
        place_answers(l, d, grid, d->each + i * (2 + n) + 2, d->each[i * (2 + n) + 1],
                      cells_of_pair(grid, i));
    if (code == FINE && l->o.from)
        ((const char **)grid->rows)[0] = keep(l, "%zu", last->layer);
    if (code == FINE)
        ((const char **)grid->columns)[grid->n_columns - 1] =
            !l->o.from || last->kind == LENS_SENDER_MLP ? "MLP"
            : last->kind == LENS_SENDER_EMBED           ? "embedding"
                                                        : keep(l, "%zu", last->head);
    grid->title = keep(l, "from %s to %s", from, l->o.to ? l->o.to : "the final stream");
    attn_tensor_free(&l->ctx, &values);
    return code == FINE ? outcome(&l->ctx) : code;
}

static int run_path(lens *l)
{
    const size_t n_names = l->o.to ? strlen(l->o.to) : 1;
    lens_receiver *receivers = (lens_receiver *)allocate(l, n_names, sizeof *receivers);
    lens_sender *senders = (lens_sender *)allocate(
        l, l->config->n_layer * ((size_t)l->config->n_head + 1) + 1, sizeof *senders);
    lens_paths_desc d = ATTN_ZERO;
    patching p = {0};
    lens_grid grid;
    findings found = {make_page(l, "Path patching"), &grid, 1, json_patches, &p};
    int code;
    if (!receivers || !senders)
        return failed(&l->ctx);
    d.senders = senders;
    d.receivers = receivers;
    d.mlps = (lens_path_mlps)l->o.mlps;
    if ((code = read_paths(l, &d, receivers, senders)) != FINE ||
        (code = ask_about_patches(l, &p)) != FINE)
        return code;
    d.pairs = p.pairs;
    d.n_pairs = p.n_pairs;
    d.edits = l->edits;
    d.n_edits = l->n_edits;
    if ((code = patch_paths(l, &p, &d, &grid)) != FINE)
        return code;
    finish_patches(l, &p, &grid, 1);
    found.page.warning = warn_of_gap(l, &p);
    found.page.note = note_of_patches(l, &p,
                                      d.mlps == LENS_MLPS_THROUGH
                                          ? "Each cell runs the corrupted text, where "
                                            "the receiver receives what one of them writes in "
                                            "the clean text and what MLPs make of it,"
                                          : "Each cell runs the corrupted text, where "
                                            "the receiver receives what one of them writes in "
                                            "the clean text,");
    return present_pairs(l, &found, spread_of(&p));
}

#endif

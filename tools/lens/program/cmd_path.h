/* lens path: what certain receivers of the residual stream read from each head and MLP. */
#ifndef LENS_CMD_PATH_H
#define LENS_CMD_PATH_H

#include "cmd_patch.h"
#include "tools/lens/edges.h"
#include "tools/lens/paths.h"

/* Reads a receiver, blocks.L.NAME or, for a head's copy of the stream, blocks.L.NAME.H, up to a comma or the
 * end. */
static int read_receiver(const lens *l, const char **at, lens_receiver *to)
{
    static const char *const of_layers[] = {"hook_resid_pre", "hook_mlp_in"};
    static const char *const of_heads[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    const char *word = *at;
    const size_t length = strcspn(word, ",");
    *at += length + (word[length] == ',');
    if (strncmp(word, "blocks.", 7) == 0 && (word += 7, read_number(&word, &to->layer)) &&
        *word++ == '.') {
        const size_t size = strcspn(word, ",");
        for (size_t i = 0; i < 2; i++)
            if (strlen(to->to = of_layers[i]) == size && strncmp(word, to->to, size) == 0)
                return FINE;
        for (size_t i = 0; i < 3; i++) {
            const size_t n = strlen(to->to = of_heads[i]);
            const char *head = word + n + 1;
            if (size > n + 1 && strncmp(word, to->to, n) == 0 && word[n] == '.' &&
                read_number(&head, &to->head) && head == word + size)
                return FINE;
        }
    }
    return fail(USAGE,
                "--to: \"%s\": expected a receiver, blocks.L.hook_resid_pre, "
                "blocks.L.hook_mlp_in, or blocks.L.hook_q_input.H, hook_k_input.H or "
                "hook_v_input.H of head H",
                l->o.to);
}

/* Reads --from: a head, L.mlp or embed. */
static int read_sender(lens *l, lens_sender *sender)
{
    const char *at = l->o.from;
    lens_head head = ATTN_ZERO;
    memset(sender, 0, sizeof *sender);
    if (strcmp(at, "embed") == 0)
        return FINE;
    sender->kind = LENS_SENDER_MLP;
    if (read_number(&at, &sender->layer) && strcmp(at, ".mlp") == 0 &&
        sender->layer < l->config->n_layer)
        return FINE;
    at = l->o.from;
    const int code = read_head(l, "from", "", &at, &head);
    sender->kind = LENS_SENDER_HEAD;
    sender->layer = head.layer;
    sender->head = head.head;
    return code;
}

/* Reads --to, a list of receivers. */
static int read_receivers(lens *l, lens_paths_desc *d, lens_receiver *receivers)
{
    const char *at = l->o.to;
    int code = FINE;
    receivers[0].to = "hook_resid_pre";
    receivers[0].layer = l->config->n_layer; /* the stream that is unembedded */
    d->n_receivers = !at;
    while (at && *at && code == FINE)
        code = read_receiver(l, &at, &receivers[d->n_receivers++]);
    for (size_t i = 0; i < d->n_receivers && code == FINE; i++)
        if (lens_need_receiver(&l->ctx, l->model, &receivers[i]) != ATTN_OK)
            code = failed(&l->ctx);
    return code;
}

/* What the sender of paths is, and where they lead. */
typedef struct path_finding {
    patching p;
    lens_paths_desc d;
    results found; /* of the senders */
} path_finding;

static int has_path(const lens_paths_desc *d, const lens_sender *sender)
{
    for (size_t i = 0; i < d->n_receivers; i++)
        if (lens_leads_to(lens_stage_of(sender), &d->receivers[i]))
            return 1;
    return 0;
}

/* Reads --from and --to. Without --from, the senders are all heads and MLPs with a path to a receiver. */
static int read_paths(lens *l, lens_paths_desc *d, lens_receiver *receivers, lens_sender *senders)
{
    const size_t per_layer = (size_t)l->config->n_head + 1;
    int code = read_receivers(l, d, receivers);
    if (code == FINE && l->o.from) {
        d->n_senders = 1;
        if ((code = read_sender(l, senders)) == FINE && !has_path(d, senders))
            d->n_senders = 0;
    }
    for (size_t i = 0; !l->o.from && i < l->config->n_layer * per_layer && code == FINE; i++) {
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

/* Patches the paths from each sender. */
static int patch_paths(lens *l, path_finding *f)
{
    attn_tensor values = {0};
    f->d.pairs = f->p.pairs;
    f->d.n_pairs = f->p.n_pairs;
    f->d.edits = l->edits;
    f->d.n_edits = l->n_edits;
    f->d.progress = so_far;
    f->d.user = l;
    if (room_for_each(l, &f->d.each, f->d.n_senders) ||
        lens_patch_paths(&l->ctx, &values, &f->p.whole, l->model, &f->d) != ATTN_OK)
        return failed(&l->ctx);
    f->found =
        (results){(const float *)values.data, f->d.each, f->d.n_senders, f->p.whole.corrupted};
    return FINE;
}

static const lens_sender *last_sender(const path_finding *f)
{
    return &f->d.senders[f->d.n_senders - 1];
}

/* A row for each layer up to the last sender's, its MLP in the last column; with --from one cell. */
static void dress_paths(lens *l, const void *of)
{
    const path_finding *const f = (const path_finding *)of;
    const lens_sender *const last = last_sender(f);
    const size_t n_head = l->config->n_head;
    lens_grid *const grid = add_grid(
        l,
        keep(l, "from %s to %s", l->o.from ? lens_show_sender(last).text : "each head and MLP",
             l->o.to ? l->o.to : "the final stream"),
        l->o.from ? 1 : last->layer + 1, l->o.from ? 1 : n_head + 1);
    if (l->o.from)
        label_row(grid, 0, keep(l, "%zu", last->layer));
    label_column(grid, l->o.from ? 0 : n_head,
                 !l->o.from || last->kind == LENS_SENDER_MLP ? "MLP"
                 : last->kind == LENS_SENDER_EMBED           ? "embedding"
                                                             : keep(l, "%zu", last->head));
    show_column(l, grid, "paths", "answer", 0);
    dress_changes(l, &f->p);
}

/* "paths": a row for each cell. Layer and head are missing where the sender has none. Where no path leads is the corrupted
 * text's answer. */
static void add_paths(lens *l, const path_finding *f)
{
    const lens_graph g = lens_graph_of(l->model);
    const lens_sender *const s = f->d.senders;
    const size_t width = g.n_head + 1, n = l->o.from ? 1 : (last_sender(f)->layer + 1) * width;
    const int is_embed = l->o.from && s->kind == LENS_SENDER_EMBED;
    answer_table *const t = add_rows(l, "paths", n, "sender:s layer:z head:z |");
    size_t *const at = (size_t *)allocate(l, n, sizeof *at);
    if (!at)
        return;
    for (size_t i = 0; i < n; i++) {
        const size_t layer = l->o.from ? s->layer : i / width;
        const size_t part = l->o.from ? column_of(l, s) : i % width;
        const size_t node = is_embed ? 0 : lens_senders_before(&g, layer, 0) + part;
        answer_put(&l->answer, t, i, keep(l, "%s", lens_sender_name(&g, node).text),
                   is_embed ? not_given : layer, is_embed || part == g.n_head ? not_given : part);
        at[i] = not_given;
    }
    for (size_t i = 0; i < f->d.n_senders; i++)
        at[l->o.from ? 0 : s[i].layer * width + column_of(l, &s[i])] = i;
    const measured_column *const m = new_measure(l, t, "answer");
    if (m)
        take_rows(l, m, 0, at, n, f->found);
}

static int run_path(lens *l, void *finding)
{
    path_finding *const f = (path_finding *)finding;
    const size_t n_names = l->o.to ? strlen(l->o.to) : 1;
    lens_receiver *receivers = (lens_receiver *)allocate(l, n_names, sizeof *receivers);
    lens_sender *senders = (lens_sender *)allocate(
        l, l->config->n_layer * ((size_t)l->config->n_head + 1) + 1, sizeof *senders);
    int code;
    show_as(l, "Path patching", dress_paths);
    if (!receivers || !senders)
        return failed(&l->ctx);
    f->d.senders = senders;
    f->d.receivers = receivers;
    f->d.mlps = (lens_path_mlps)l->o.mlps;
    if ((code = read_paths(l, &f->d, receivers, senders)) != FINE ||
        (code = ask_about_patches(l, &f->p)) != FINE || (code = patch_paths(l, f)) != FINE)
        return code;
    add_patching(l, &f->p);
    facts(l, "receivers:s", l->o.to ? l->o.to : "the final stream");
    add_paths(l, f);
    l->shown.page.warning = warn_of_gap(l, &f->p);
    l->shown.page.note = note_of_patches(l, &f->p,
                                         f->d.mlps == LENS_MLPS_THROUGH
                                             ? "Each cell runs the corrupted text, where "
                                               "the receiver receives what one of them writes in "
                                               "the clean text and what MLPs make of it,"
                                             : "Each cell runs the corrupted text, where "
                                               "the receiver receives what one of them writes in "
                                               "the clean text,");
    return show_pairs(l, spread_of(&f->p));
}

#endif

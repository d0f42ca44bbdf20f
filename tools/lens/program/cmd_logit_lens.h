/* lens logit-lens: the prediction of each layer's stream, unembedded directly or through a lens of --tuned. */
#ifndef LENS_CMD_LOGIT_LENS_H
#define LENS_CMD_LOGIT_LENS_H

#include "cmd_loss.h"
#include "tools/lens/logits.h"
#include "tools/lens/tuned.h"

/* For positions [first, first + count) of each layer's stream: the k likeliest tokens, and the statistics of
 * the token that follows in the text. Results are [layers, positions]. */
static int predict_from_streams(lens *l, attn_tensor streams, attn_tensor scale, size_t first,
                                size_t count, attn_prediction *top, attn_token_stats *next,
                                size_t k)
{
    const size_t n = l->text.n, n_parts = streams.shape[0];
    const attn_tensor resid = attn_slice(streams, 1, first, count);
    const attn_tensor own = {0}, saved = attn_slice(scale, 0, first, count);
    attn_tensor logits = {0};
    attn_token *targets = (int32_t *)allocate(l, n_parts * count, sizeof *targets);
    attn_prediction *some = (attn_prediction *)allocate(l, n_parts * count * (k + 1), sizeof *some);
    attn_token_stats *stats = (attn_token_stats *)allocate(l, n_parts * count, sizeof *stats);
    if (!targets || !some || !stats)
        return failed(&l->ctx);
    for (size_t i = 0; i < n_parts; i++)
        for (size_t t = 0; t < count; t++) /* no token follows the last one: any id will do */
            targets[i * count + t] = first + t + 1 < n ? l->text.ids[first + t + 1] : 0;
    if (lens_logit_lens(&l->ctx, &logits, l->model, resid, l->o.saved_scale ? saved : own, own))
        return failed(&l->ctx);
    attn_tensor rows = attn_reshape(logits, attn_shape2(n_parts * count, l->config->n_vocab));
    if (attn_logit_stats(&l->ctx, stats, &(attn_top){some, k}, rows, targets))
        return failed(&l->ctx);
    attn_tensor_free(&l->ctx, &logits);
    for (size_t i = 0; i < n_parts; i++)
        for (size_t t = 0; t < count; t++) {
            next[i * n + first + t] = stats[i * count + t];
            memcpy(top + (i * n + first + t) * k, some + (i * count + t) * k, k * sizeof *top);
        }
    return FINE;
}

/* --tuned FILE: translates each stream but the last one. */
static int translate_streams(lens *l, attn_tensor streams)
{
    lens_tuned tuned = ATTN_ZERO;
    attn_tensor stream;
    int code = FINE;
    if (lens_tuned_open(&l->ctx, &tuned, l->model, l->o.tuned))
        return failed(&l->ctx);
    for (size_t i = 0; i + 1 < streams.shape[0] && code == FINE; i++) {
        stream = attn_select(streams, 0, i);
        if (lens_tuned_apply(&l->ctx, &stream, &tuned, i, stream))
            code = failed(&l->ctx);
    }
    lens_tuned_free(&l->ctx, &tuned);
    return code;
}

typedef struct unembedded {
    attn_prediction *top;   /* [streams, positions, k] */
    attn_token_stats *next; /* [streams, positions]: of the token that follows */
    size_t n_streams, k;
} unembedded;

/* The axes of streams and positions. */
static answer_table *add_streams(lens *l, const char *name)
{
    const lens_parts_desc which = parts_of_text(l, LENS_PARTS_STREAMS, 0, 0);
    const size_t n = lens_parts_count(l->model, &which);
    answer_table *const t = add_table(l, name);
    answer_axis(&l->answer, t, "layer", n);
    const char **labels = answer_texts(&l->answer, t, LAST_AXIS, "stream");
    for (size_t i = 0; labels && i < n; i++)
        labels[i] = keep(l, "%s", lens_parts_label(l->model, &which, i).text);
    add_positions(l, t, &l->text, 0, l->text.n);
    return t;
}

/* The stream that enters layer i is the output of layer i - 1. The names are shorter in a terminal, whose
 * columns are narrow. */
static const char *name_of_stream(lens *l, size_t i)
{
    return i == 0                 ? "embedding"
           : l->form == FORM_TEXT ? keep(l, "after %zu", i - 1)
                                  : keep(l, "after layer %zu", i - 1);
}

static void dress_logit_lens(lens *l, const void *of)
{
    const unembedded *const u = (const unembedded *)of;
    const size_t n = l->text.n;
    lens_grid *const grid = add_grid(l, "likeliest next token, after each layer", u->n_streams, n);
    label_positions(l, grid);
    grid->high = "1: the probability of that token";
    for (size_t i = 0; i < n_cells(grid); i++) {
        const attn_prediction *const guess = u->top + i * u->k;
        lens_cell *const cell = cell_of(grid, 0, i);
        const size_t t = i % n;
        label_row(grid, i / n, name_of_stream(l, i / n));
        cell->colour = guess->probability;
        cell->text = shown_token(l, guess->token);
        cell->tip = keep(l, "%s, at %zu %s%s", grid->rows[i / n], t, brief(l, l->text.shown[t], 40),
                         list_guesses(l, guess, u->k));
        if (t + 1 < n)
            cell->tip = keep(l, "%s\nin fact %s: %.2f%%, rank %zu", cell->tip,
                             brief(l, l->text.shown[t + 1], 40),
                             100 * (double)u->next[i].probability, u->next[i].rank);
    }
    l->shown.page.note = keep(l, "%s A %s shows how the guess at the token after its own forms.",
                              l->answer.notes[0], l->form == FORM_TEXT ? "row" : "column");
}

static int run_logit_lens(lens *l, void *finding)
{
    unembedded *const u = (unembedded *)finding;
    const lens_parts_desc which = parts_of_text(l, LENS_PARTS_STREAMS, 0, 0);
    const size_t n = l->text.n, n_parts = lens_parts_count(l->model, &which);
    const size_t k = l->o.top ? l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab : 1;
    const size_t piece = 8; /* positions at a time, to limit the memory for logits */
    attn_tensor streams = {0}, scale = {0};
    size_t count;
    int code;
    show_as(l, "Logit lens", dress_logit_lens);
    u->n_streams = n_parts;
    u->k = k;
    u->top = (attn_prediction *)allocate(l, n_parts * n * k, sizeof *u->top);
    u->next = (attn_token_stats *)allocate(l, n_parts * n, sizeof *u->next);
    if (!u->top || !u->next || decompose_edited(l, &streams, &scale, &which))
        return failed(&l->ctx);
    if (l->o.tuned && (code = translate_streams(l, streams)) != FINE)
        return code;
    for (size_t t = 0; t < n; t += count) {
        count = n - t < piece ? n - t : piece;
        if ((code = predict_from_streams(l, streams, scale, t, count, u->top, u->next, k)) != FINE)
            return code;
        if (so_far((double)(t + count) / (double)n, l))
            return INTERRUPTED;
    }
    attn_tensor_free(&l->ctx, &streams);
    add_stats(l, add_streams(l, "streams"), u->next, n - 1);
    add_guesses(l, add_streams(l, "top"), u->top, k);
    l->shown.page.note =
        keep(l, "The residual stream after each layer, unembedded %s.",
             l->o.tuned         ? keep(l, "as the lens %s translates it", base_name(l->o.tuned))
             : l->o.saved_scale ? "with the scale that the last LayerNorm had in the "
                                  "whole run"
                                : "as if it were the last one");
    return show_answer(l);
}

#endif

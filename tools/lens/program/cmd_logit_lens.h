/* lens logit-lens: the prediction of each layer's stream, unembedded directly or through a lens of --tuned. */
#ifndef LENS_CMD_LOGIT_LENS_H
#define LENS_CMD_LOGIT_LENS_H

#include "findings.h"
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
    attn_tensor logits = {0}, rows;
    attn_token *targets = (int32_t *)allocate(l, n_parts * count, sizeof *targets);
    attn_prediction *some = (attn_prediction *)allocate(l, n_parts * count * (k + 1), sizeof *some);
    attn_token_stats *stats = (attn_token_stats *)allocate(l, n_parts * count, sizeof *stats);
    size_t i, t;
    if (!targets || !some || !stats)
        return failed(&l->ctx);
    for (i = 0; i < n_parts; i++)
        for (t = 0; t < count; t++) /* no token follows the last one: any id will do */
            targets[i * count + t] = first + t + 1 < n ? l->text.ids[first + t + 1] : 0;
    if (lens_logit_lens(&l->ctx, &logits, l->model, resid, l->o.saved_scale ? saved : own, own))
        return failed(&l->ctx);
    rows = attn_reshape(logits, attn_shape2(n_parts * count, l->config->n_vocab));
    if (attn_logit_stats(&l->ctx, stats, &(attn_top){some, k}, rows, targets))
        return failed(&l->ctx);
    attn_tensor_free(&l->ctx, &logits);
    for (i = 0; i < n_parts; i++)
        for (t = 0; t < count; t++) {
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
    size_t i;
    int code = FINE;
    if (lens_tuned_open(&l->ctx, &tuned, l->model, l->o.tuned))
        return failed(&l->ctx);
    for (i = 0; i + 1 < streams.shape[0] && code == FINE; i++) {
        stream = attn_select(streams, 0, i);
        if (lens_tuned_apply(&l->ctx, &stream, &tuned, i, stream))
            code = failed(&l->ctx);
    }
    lens_tuned_free(&l->ctx, &tuned);
    return code;
}

static void json_logit_lens(const lens *l, const attn_prediction *top, const attn_token_stats *next,
                            size_t n_parts, size_t k)
{
    const lens_parts_desc streams = parts_of_text(l, LENS_PARTS_STREAMS, 0, 0);
    const size_t n = l->text.n;
    size_t i, t;
    printf("{");
    json_tokens(l);
    printf(", \"layers\": [");
    for (i = 0; i < n_parts; i++) {
        printf("%s\n {\"stream\": \"%s\", \"positions\": [", i ? "," : "",
               lens_parts_label(l->model, &streams, i).text);
        for (t = 0; t < n; t++) {
            printf("%s\n  {", t ? "," : "");
            json_guesses(l, top + (i * n + t) * k, k);
            if (t + 1 < n)
                json_stats(&next[i * n + t]);
            printf("}");
        }
        printf("]}");
    }
    printf("]}\n");
}

/* The stream that enters layer i is the output of layer i - 1. The names are shorter in a terminal, whose
 * columns are narrow. */
static const char *name_of_stream(lens *l, size_t i)
{
    return i == 0        ? "embedding"
           : l->o.output ? keep(l, "after layer %zu", i - 1)
                         : keep(l, "after %zu", i - 1);
}

static int run_logit_lens(lens *l)
{
    const lens_parts_desc which = parts_of_text(l, LENS_PARTS_STREAMS, 0, 0);
    const size_t n = l->text.n, n_parts = lens_parts_count(l->model, &which);
    const size_t k = l->o.top ? l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab : 1;
    const size_t piece = 8; /* positions at a time, to limit the memory for logits */
    attn_prediction *top = (attn_prediction *)allocate(l, n_parts * n * k, sizeof *top);
    attn_token_stats *next = (attn_token_stats *)allocate(l, n_parts * n, sizeof *next);
    attn_tensor streams = {0}, scale = {0};
    lens_grid grid;
    findings found = {make_page(l, "Logit lens"), &grid, 1, NULL, NULL};
    size_t t, i, count;
    int code;
    if (!top || !next || decompose_edited(l, &streams, &scale, &which))
        return failed(&l->ctx);
    if (l->o.tuned && (code = translate_streams(l, streams)) != FINE)
        return code;
    for (t = 0; t < n; t += count) {
        count = n - t < piece ? n - t : piece;
        if ((code = predict_from_streams(l, streams, scale, t, count, top, next, k)) != FINE)
            return code;
    }
    if (l->o.json) {
        json_logit_lens(l, top, next, n_parts, k);
        return FINE;
    }
    if ((code = make_grid(l, &grid, n_parts, n)) != FINE)
        return code;
    label_positions(l, &grid);
    grid.title = "likeliest next token, after each layer";
    grid.high = "1: the probability of that token";
    for (i = 0; i < n_parts; i++) {
        ((const char **)grid.rows)[i] = name_of_stream(l, i);
        for (t = 0; t < n; t++) {
            const attn_prediction *guess = top + (i * n + t) * k;
            const attn_token_stats *true_next = &next[i * n + t];
            lens_cell *cell = cell_of(&grid, i, t);
            cell->number = cell->colour = guess->probability;
            cell->text = shown_token(l, guess->token);
            cell->tip = keep(l, "%s, at %zu %s%s", grid.rows[i], t, brief(l, l->text.shown[t], 40),
                             list_guesses(l, guess, k));
            if (t + 1 < n)
                cell->tip = keep(l, "%s\nin fact %s: %.2f%%, rank %zu", cell->tip,
                                 brief(l, l->text.shown[t + 1], 40),
                                 100 * (double)true_next->probability, true_next->rank);
        }
    }
    found.page.note =
        keep(l,
             "The residual stream after each layer, unembedded %s. A %s shows how the "
             "guess at the token after its own forms.",
             l->o.tuned         ? keep(l, "as the lens %s translates it", base_name(l->o.tuned))
             : l->o.saved_scale ? "with the scale that the last LayerNorm had in the "
                                  "whole run"
                                : "as if it were the last one",
             l->o.output ? "column" : "row");
    return present(l, &found);
}

#endif

/* Feeds passages: short ones together, and long ones in windows that fit into the context. */
#ifndef SURPRISAL_WINDOWS_H
#define SURPRISAL_WINDOWS_H

#include "suite.h"

/* How many tokens of a passage fit into the context. */
static size_t room_for_tokens(const surprisal_run *r)
{
    return r->n_ctx - !r->o.no_bos;
}

/* The next window of a passage: from the position that is not planned yet, with `stride` tokens before it. */
static text_window next_window(const surprisal_run *r, passage *p)
{
    const size_t room = room_for_tokens(r);
    text_window w = {NULL, NULL, NULL, 0, 0, 0, 0};
    w.from = p;
    w.begin = p->n_planned ? p->n_planned - r->o.stride : 0;
    w.first = p->n_planned;
    w.end = (p->n - w.begin < room ? p->n : w.begin + room) + 1;
    w.n = w.end - 1 - w.begin + !r->o.no_bos;
    p->n_planned = w.end;
    return w;
}

static attn_status open_window(surprisal_run *r, text_window *w)
{
    const attn_session_desc desc = {.n_ctx = w->n, .workspace = r->workspace};
    const size_t bos = !r->o.no_bos;
    w->ids = (int32_t *)malloc(w->n * sizeof *w->ids);
    if (!w->ids)
        return tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for %zu tokens", w->n);
    if (bos)
        w->ids[0] = r->config->bos;
    memcpy(w->ids + bos, w->from->ids + w->begin, (w->n - bos) * sizeof *w->ids);
    return attn_session_new(&r->ctx, &w->session, r->model, &desc) ? r->ctx.status
                                                                   : watch_window(r, w);
}

static void close_windows(surprisal_run *r)
{
    for (size_t i = 0; i < r->n_windows; i++) {
        attn_session_free(r->windows[i].session);
        free(r->windows[i].ids);
    }
    r->n_windows = r->n_ids = 0;
}

/* Measures the rows of logits of a pass, by the model (lens_at 0) or under a lens. */
static attn_status measure_rows(surprisal_run *r, size_t lens_at)
{
    size_t first = 0;
    for (size_t i = 0; i < r->n_windows; first += r->items[i++].n_tokens)
        for (size_t k = 0; k < r->items[i].n_rows; k++) {
            const text_window *const w = &r->windows[i];
            const size_t at = w->begin + r->n_fed + r->items[i].rows[k] + 1 - !r->o.no_bos;
            const float *const logits = r->items[i].logits + k * r->n_vocab;
            if (lens_at ? measure_layer(r, w->from, at, lens_at, logits)
                        : measure_token(r, w->from, at, logits))
                return r->ctx.status;
            if (r->n_parts && lens_at == 0 && at > 0 &&
                hold_token(r, w->from, at - 1,
                           r->at_tokens + (first + r->items[i].rows[k]) * r->width))
                return r->ctx.status;
        }
    return ATTN_OK;
}

/* Feeds the tokens of all windows from number n_fed on, as many as a pass has room for: all, or a part of
 * a single long one. */
static attn_status feed_windows(surprisal_run *r)
{
    attn_feed_item *const items = r->items;
    size_t *const rows = r->rows;
    const size_t bos = !r->o.no_bos, at = r->n_fed;
    size_t n_rows = 0;
    for (size_t i = 0; i < r->n_windows; i++) {
        const text_window *const w = &r->windows[i];
        attn_feed_item *const item = &items[i];
        *item = (attn_feed_item){.session = w->session,
                                 .tokens = w->ids + at,
                                 .n_tokens = w->n - at < r->n_pass ? w->n - at : r->n_pass,
                                 .logits = r->logits + n_rows * r->n_vocab,
                                 .rows = rows + n_rows};
        for (size_t k = 0; k < item->n_tokens; k++)
            if (w->begin + at + k + 1 - bos >= w->first)
                rows[n_rows + item->n_rows++] = k;
        n_rows += item->n_rows;
    }
    if (feed_items(r) || measure_rows(r, 0))
        return r->ctx.status;
    for (size_t i = 1; i <= r->n_layers; i++)
        if (look_through(r, i) || measure_rows(r, i))
            return r->ctx.status;
    return is_stopped(r) ? ATTN_STOPPED : ATTN_OK;
}

/* Opens the windows that are planned, for feed_pass. */
static attn_status begin_feeding(surprisal_run *r)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < r->n_windows; i++)
        status = open_window(r, &r->windows[i]);
    r->is_feeding = 1;
    r->n_fed = 0;
    return status;
}

/* Frees the passages whose rows are all written, which are the first ones. */
static void free_passages(surprisal_run *r)
{
    size_t n = 0;
    while (n < r->n_passages && r->passages[n].n_done > r->passages[n].n)
        free_passage(&r->passages[n++]);
    for (size_t i = n; n > 0 && i < r->n_passages; i++)
        r->passages[i - n] = r->passages[i];
    r->n_passages -= n;
}

/* Feeds one pass. After the last one it writes the rows that are known then. */
static attn_status feed_pass(surprisal_run *r)
{
    attn_status status = ATTN_OK;
    if (r->n_fed < r->n_ids) {
        status = feed_windows(r);
        r->n_fed += r->n_pass;
        r->n_passes++;
        if (status || r->n_fed < r->n_ids)
            return status;
    }
    for (size_t i = 0; i < r->n_windows; i++) {
        r->windows[i].from->n_done = r->windows[i].end;
        r->n_read += r->windows[i].end - r->windows[i].first;
    }
    close_windows(r);
    r->is_feeding = 0;
    for (size_t i = 0; status == ATTN_OK && i < r->n_passages; i++)
        status = write_passage(r, &r->passages[i]);
    if (status == ATTN_OK)
        free_passages(r);
    return status;
}

/* Plans the next window of a passage, unless those that are planned fill a pass: they are fed before. */
static attn_status plan_window(surprisal_run *r, passage *p)
{
    const size_t n_planned = p->n_planned;
    const text_window next = next_window(r, p);
    if (next.end <= p->n_kept) {
        r->n_read += next.end - next.first;
        return ATTN_OK;
    }
    if (r->n_windows && (r->n_ids + next.n > r->n_pass || r->n_windows == r->o.batch)) {
        p->n_planned = n_planned;
        return begin_feeding(r);
    }
    r->windows[r->n_windows++] = next;
    r->n_ids += next.n;
    return ATTN_OK;
}

/* Counts the rows of a passage that was made, and makes room for those that must be measured. */
static attn_status begin_passage(surprisal_run *r, passage *p)
{
    const uint64_t n_rows = count_rows(r, p);
    r->n_counted += n_rows;
    if (r->n_counted + (r->o.context ? r->o.spillover : 0) > r->skip && p->n > 0)
        return make_positions(r, p);
    r->n_records += n_rows; /* an earlier run wrote them, or there are none */
    r->n_read += p->n + 1;
    p->n_planned = p->n_done = p->n + 1;
    p->n_written = p->n_words;
    return ATTN_OK;
}

/* Begins to read the items [first, end) as one text. */
static attn_status read_passage(surprisal_run *r, size_t first, size_t end)
{
    passage *const p = r->o.context ? &r->whole : &r->passages[r->n_passages++];
    if (r->o.context)
        free_passage(p);
    r->n_taken = end;
    r->n_cut = r->cut_token = r->cut_byte = 0;
    return make_passage(r, p, first, end) ? r->ctx.status
           : r->o.context                 ? ATTN_OK
                                          : begin_passage(r, p);
}

/* Begins to read the next row of a text behind its context. */
static attn_status read_row(surprisal_run *r)
{
    passage *const p = &r->passages[r->n_passages++];
    const size_t first = r->n_cut, n = words_of_row(r, &r->whole, first);
    r->n_cut += n;
    return cut_passage(r, p, first, n) ? r->ctx.status : begin_passage(r, p);
}

/* Takes one step: feeds a pass, plans a window, or begins with the next text. */
static attn_status take_step(surprisal_run *r)
{
    const size_t n = r->n_passages, all = r->input.n_records;
    if (r->is_feeding)
        return feed_pass(r);
    if (n > 0 && r->passages[n - 1].n_planned <= r->passages[n - 1].n)
        return plan_window(r, &r->passages[n - 1]);
    if (n == r->o.batch || (r->n_taken == all && r->n_cut == r->whole.n_words))
        return begin_feeding(r);
    if (r->n_cut < r->whole.n_words)
        return read_row(r);
    const size_t end = end_of_text(r, r->n_taken);
    if (is_wanted(r, r->n_taken, end))
        return read_passage(r, r->n_taken, end);
    r->n_taken = end;
    return ATTN_OK;
}

static int has_step(const surprisal_run *r)
{
    return r->n_taken < r->input.n_records || r->n_passages > 0 || r->n_cut < r->whole.n_words;
}

/* Runs the model once, over as many texts as fit into a pass. *done: the share that is read, 1 at the end. */
TOOLS_FN attn_status surprisal_pass(surprisal_run *r, double *done)
{
    const uint64_t before = r->n_passes;
    attn_status status = is_stopped(r) ? ATTN_STOPPED : ATTN_OK;
    while (status == ATTN_OK && has_step(r) && r->n_passes == before)
        status = take_step(r);
    if (status == ATTN_OK && !has_step(r) && r->o.is_suite)
        status = write_suite(r);
    if (status == ATTN_OK && !has_step(r) && r->units && !r->o.is_suite)
        units_to(r->units, r->table, r->input.n_records);
    const uint64_t n = r->o.context ? r->n_records : r->n_read,
                   all = r->o.context ? r->n_rows : r->n_all;
    *done = !has_step(r) ? 1 : all ? (double)n / (double)all : 0;
    *done = has_step(r) && *done >= 1 ? 0.999999 : *done;
    return status;
}

static void free_windows(surprisal_run *r)
{
    close_windows(r);
    for (size_t i = 0; i < r->n_passages; i++)
        free_passage(&r->passages[i]);
    free_passage(&r->whole);
}

#endif

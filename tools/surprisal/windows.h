/* Feeds passages: short ones together, and long ones in windows that fit into the context. */
#ifndef SURPRISAL_WINDOWS_H
#define SURPRISAL_WINDOWS_H

#include "rows.h"

/* How many tokens of a passage fit into the context. */
static size_t room_for_tokens(const run *r)
{
    return r->n_ctx - !r->o.no_bos;
}

/* The next window of a passage: from the position that is not planned yet, with `stride` tokens before it. */
static window next_window(const run *r, passage *p)
{
    const size_t room = room_for_tokens(r);
    window w = {NULL, NULL, NULL, 0, 0, 0, 0};
    w.from = p;
    w.begin = p->n_planned ? p->n_planned - r->o.stride : 0;
    w.first = p->n_planned;
    w.end = (p->n - w.begin < room ? p->n : w.begin + room) + 1;
    w.n = w.end - 1 - w.begin + !r->o.no_bos;
    p->n_planned = w.end;
    return w;
}

static int open_window(run *r, window *w)
{
    attn_session_desc desc = ATTN_ZERO;
    const size_t bos = !r->o.no_bos;
    desc.n_ctx = w->n;
    desc.workspace = r->workspace;
    w->ids = (int32_t *)malloc(w->n * sizeof *w->ids);
    if (!w->ids)
        return fail(FAILED, "no memory for %zu tokens", w->n);
    if (bos)
        w->ids[0] = r->config->bos;
    memcpy(w->ids + bos, w->from->ids + w->begin, (w->n - bos) * sizeof *w->ids);
    if (attn_session_new(&r->ctx, &w->session, r->model, &desc))
        return failed(&r->ctx);
    return FINE;
}

static void close_windows(run *r)
{
    size_t i;
    for (i = 0; i < r->n_windows; i++) {
        attn_session_free(r->windows[i].session);
        free(r->windows[i].ids);
    }
    r->n_windows = r->n_ids = 0;
}

/* Feeds the tokens of all windows from number `at` on, as many as a pass has room for: all, or a part of
 * a single long one. */
static int feed_windows(run *r, size_t at)
{
    static attn_feed_item items[MAX_BATCH];
    static size_t rows[ROWS];
    const size_t bos = !r->o.no_bos;
    size_t i, k, n_rows = 0;
    memset(items, 0, sizeof items);
    for (i = 0; i < r->n_windows; i++) {
        const window *const w = &r->windows[i];
        attn_feed_item *const item = &items[i];
        item->session = w->session;
        item->tokens = w->ids + at;
        item->n_tokens = w->n - at < ROWS ? w->n - at : ROWS;
        item->logits = r->logits + n_rows * r->n_vocab;
        item->rows = rows + n_rows;
        for (k = 0; k < item->n_tokens; k++)
            if (w->begin + at + k + 1 - bos >= w->first)
                rows[n_rows + item->n_rows++] = k;
        n_rows += item->n_rows;
    }
    if (attn_feed_batch(&r->ctx, items, r->n_windows))
        return failed(&r->ctx);
    for (i = 0; i < r->n_windows; i++)
        for (k = 0; k < items[i].n_rows; k++)
            if (measure(r, r->windows[i].from,
                        r->windows[i].begin + at + items[i].rows[k] + 1 - bos,
                        items[i].logits + k * r->n_vocab))
                return failed(&r->ctx);
    return interrupted ? INTERRUPTED : FINE;
}

/* Feeds the windows, and writes the rows that are known then. */
static int flush_windows(run *r)
{
    size_t i, at;
    int code = FINE;
    for (i = 0; code == FINE && i < r->n_windows; i++)
        code = open_window(r, &r->windows[i]);
    for (at = 0; code == FINE && r->n_windows && at < r->n_ids; at += ROWS)
        code = feed_windows(r, at);
    for (i = 0; code == FINE && i < r->n_windows; i++) {
        r->windows[i].from->n_done = r->windows[i].end;
        r->n_read += r->windows[i].end - r->windows[i].first;
    }
    close_windows(r);
    for (i = 0; code == FINE && i < r->n_passages; i++)
        code = write_passage(r, &r->passages[i]);
    if (code == FINE && fflush(r->output) != 0)
        code = fail_output(r);
    progress_at(&r->line, r->n_all ? (double)r->n_read / (double)r->n_all : 1);
    return code;
}

/* Frees the passages whose rows are all written, which are the first ones. */
static void free_passages(run *r)
{
    size_t i, n = 0;
    while (n < r->n_passages && r->passages[n].n_done > r->passages[n].n)
        arena_free(&r->passages[n++].memory);
    for (i = n; n > 0 && i < r->n_passages; i++)
        r->passages[i - n] = r->passages[i];
    r->n_passages -= n;
}

/* Plans the next window of a passage, after feeding those that fill a pass. */
static int plan_window(run *r, passage *p)
{
    const window next = next_window(r, p);
    int code = FINE;
    if (next.end <= p->n_kept) {
        r->n_read += next.end - next.first;
        return FINE;
    }
    if (r->n_windows && (r->n_ids + next.n > ROWS || r->n_windows == r->o.batch))
        code = flush_windows(r);
    r->windows[r->n_windows++] = next;
    r->n_ids += next.n;
    return code;
}

/* Begins to read the items [first, end) as one text. */
static int read_passage(run *r, size_t first, size_t end)
{
    passage *p;
    uint64_t n_rows;
    int code = r->n_passages == r->o.batch ? flush_windows(r) : FINE;
    if (r->n_windows == 0)
        free_passages(r);
    if (code != FINE)
        return code;
    p = &r->passages[r->n_passages++];
    if ((code = make_passage(r, p, first, end)) != FINE)
        return code;
    n_rows = count_rows(r, p);
    r->n_counted += n_rows;
    if (r->n_counted > r->skip && p->n > 0)
        return make_positions(r, p);
    r->n_records += n_rows; /* an earlier run wrote them, or there are none */
    r->n_read += p->n + 1;
    p->n_planned = p->n_done = p->n + 1;
    p->n_written = p->n_words;
    return FINE;
}

/* Takes one step: plans a window, or begins with the next text. The last step is followed by
 * flush_windows(). */
static int read_step(run *r)
{
    const size_t n = r->n_passages, first = r->n_taken;
    if (n > 0 && r->passages[n - 1].n_planned <= r->passages[n - 1].n)
        return plan_window(r, &r->passages[n - 1]);
    r->n_taken += r->o.continues ? r->input.n_records : 1;
    return read_passage(r, first, r->n_taken);
}

/* Is there another step to take? */
static int has_step(const run *r)
{
    const passage *const p = r->n_passages ? &r->passages[r->n_passages - 1] : NULL;
    return r->n_taken < r->input.n_records || (p && p->n_planned <= p->n);
}

static int read_passages(run *r)
{
    int code = FINE;
    progress_begin(&r->line, "reading");
    while (code == FINE && has_step(r))
        code = interrupted ? INTERRUPTED : read_step(r);
    if (code == FINE)
        code = flush_windows(r);
    progress_end(&r->line);
    return code;
}

static void free_windows(run *r)
{
    size_t i;
    close_windows(r);
    for (i = 0; i < r->n_passages; i++)
        arena_free(&r->passages[i].memory);
}

#endif

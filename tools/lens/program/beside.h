/* A changed run beside an unchanged one: the next token, the loss and the continuation of the text in
 * each. The commands steer and sae show it. */
#ifndef LENS_BESIDE_H
#define LENS_BESIDE_H

#include "findings.h"

/* The results of one of the two runs. */
typedef struct one_run {
    attn_prediction *all;          /* [n_vocab]: predictions of the next token, likeliest first */
    float *logits, *probabilities; /* [n_vocab] */
    double loss;                   /* mean, in nats; NaN for a single token */
    attn_token *ids;               /* [n_ids]: the greedy continuation */
    size_t n_ids;
} one_run;

/* Changes a session before it is fed. Returns FINE, or an exit code after a message. */
typedef int (*change_fn)(lens *l, attn_session *session, void *how);

typedef struct beside {
    one_run runs[2]; /* without and with the change */
    int32_t *shown;  /* the tokens of the table */
    size_t n_shown;
    char *bytes;      /* the continuations of both runs, one behind the other */
    uint64_t ends[2]; /* where they end in it */
} beside;

static const char *const run_names[] = {"without", "with"};

/* What the attn_text_fn keep_piece appends to. */
typedef struct continuation {
    lens *l;
    beside *b;
    int run;
    size_t room;
} continuation;

static int keep_piece(const char *text, size_t size, void *user)
{
    continuation *const c = (continuation *)user;
    const size_t n = (size_t)c->b->ends[c->run];
    if (n + size > c->room) {
        char *const larger = (char *)allocate(c->l, c->room = 2 * (n + size), 1);
        if (!larger)
            return 1;
        if (n)
            memcpy(larger, c->b->bytes, n);
        c->b->bytes = larger;
    }
    memcpy(c->b->bytes + n, text, size);
    c->b->ends[c->run] += size;
    return 0;
}

/* Generates the continuation in a session that holds the text. */
static int continue_text(lens *l, attn_session *session, beside *b, int run)
{
    one_run *const s = &b->runs[run];
    continuation to = {l, b, run, 0};
    attn_generate_desc how = {0};
    attn_generation made = {0};
    if (l->o.tokens == 0)
        return FINE;
    how.max_tokens = l->o.tokens;
    how.text_fn = keep_piece;
    how.text_user = &to;
    made.room = l->o.tokens;
    made.tokens = s->ids = (int32_t *)allocate(l, l->o.tokens, sizeof *s->ids);
    if (!s->ids || attn_generate(&l->ctx, &made, session, NULL, &how))
        return failed(&l->ctx);
    s->n_ids = made.n_tokens;
    return FINE;
}

/* Feeds the text, and keeps its loss and the predictions after it. */
static int judge_text(lens *l, attn_session *session, one_run *s)
{
    const size_t n_vocab = l->config->n_vocab;
    attn_token_stats *stats = (attn_token_stats *)allocate(l, l->text.n, sizeof *stats);
    s->all = (attn_prediction *)allocate(l, n_vocab, sizeof *s->all);
    s->logits = (float *)allocate(l, n_vocab, sizeof *s->logits);
    s->probabilities = (float *)allocate(l, n_vocab, sizeof *s->probabilities);
    if (!stats || !s->all || !s->logits || !s->probabilities ||
        attn_score(&l->ctx, stats, NULL, session, l->text.ids, l->text.n))
        return failed(&l->ctx);
    s->loss = attn_mean_nll(stats, l->text.n - 1);
    memcpy(s->logits, attn_session_logits(session), n_vocab * sizeof *s->logits);
    attn_tensor row = attn_borrow(s->logits, ATTN_F32, attn_shape2(1, n_vocab));
    if (attn_logit_stats(&l->ctx, NULL, &(attn_top){s->all, n_vocab}, row, NULL))
        return failed(&l->ctx);
    for (size_t i = 0; i < n_vocab; i++)
        s->probabilities[s->all[i].token] = s->all[i].probability;
    return FINE;
}

static int run_side(lens *l, change_fn change, void *how, beside *b, int run)
{
    attn_session_desc desc = {0};
    attn_session *session = NULL;
    int code = FINE;
    desc.n_ctx = l->text.n + l->o.tokens;
    if (desc.n_ctx > l->config->n_ctx || desc.n_ctx < l->text.n)
        desc.n_ctx = l->config->n_ctx;
    if (attn_session_new(&l->ctx, &session, l->model, &desc))
        code = failed(&l->ctx);
    if (code == FINE && change)
        code = change(l, session, how);
    if (code == FINE)
        code = judge_text(l, session, &b->runs[run]);
    if (code == FINE)
        code = continue_text(l, session, b, run);
    attn_session_free(session);
    return code;
}

/* Chooses the tokens of the table: the likeliest with the change, then the likeliest without it. */
static int choose_shown(lens *l, beside *b)
{
    const size_t k = l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab;
    size_t j;
    b->shown = (int32_t *)allocate(l, 2 * k, sizeof *b->shown);
    if (!b->shown)
        return failed(&l->ctx);
    for (size_t i = 0; i < 2 * k; i++) {
        const attn_token token = b->runs[i < k].all[i < k ? i : i - k].token;
        for (j = 0; j < b->n_shown && b->shown[j] != token; j++)
            ;
        if (j == b->n_shown)
            b->shown[b->n_shown++] = token;
    }
    return FINE;
}

static int run_beside(lens *l, change_fn change, void *how, beside *b)
{
    int code = run_side(l, NULL, NULL, b, 0);
    if (code == FINE && so_far(0.5, l))
        code = INTERRUPTED;
    b->ends[1] = b->ends[0];
    if (code == FINE)
        code = run_side(l, change, how, b, 1);
    return code == FINE ? choose_shown(l, b) : code;
}

/* ---- output ---- */

static const char *continued(lens *l, const beside *b, int run)
{
    const one_run *const s = &b->runs[run];
    const uint64_t begin = run ? b->ends[0] : 0;
    const char *line = "";
    if (l->tokenizer)
        return b->bytes ? visible(l, b->bytes + begin, (size_t)(b->ends[run] - begin), NULL) : "";
    for (size_t i = 0; i < s->n_ids; i++)
        line = keep(l, "%s%s%ld", line, i ? " " : "", (long)s->ids[i]);
    return line;
}

/* Losses and continuations of both runs, to be appended to a command's note. */
static const char *note_of_sides(lens *l, const beside *b)
{
    const char *note = "";
    if (l->text.n > 1)
        note = keep(l, " The text costs %.4f nats a token, and %.4f with the change.",
                    b->runs[0].loss, b->runs[1].loss);
    if (l->o.tokens)
        note = keep(l, "%s\nWithout the change the text goes on: \"%s\"\nWith it: \"%s\"", note,
                    continued(l, b, 0), continued(l, b, 1));
    return note;
}

/* A row for each token of the table: logit and probability without and with the change. */
static void add_side_grid(lens *l, const beside *b)
{
    static const char *const columns[] = {"without", "with", "change", "p without", "p with"};
    lens_grid *const grid =
        add_grid(l, "logits and probabilities of the next token, without and with the change",
                 b->n_shown, 5);
    double most = 1e-9;
    name_axes(grid, "token", "logit");
    label_columns(grid, columns);
    for (size_t i = 0; i < b->n_shown; i++)
        most = fmax(most, fabs((double)b->runs[1].logits[b->shown[i]] -
                               (double)b->runs[0].logits[b->shown[i]]));
    for (size_t i = 0; i < n_cells(grid); i++) {
        const attn_token token = b->shown[i / 5];
        const size_t k = i % 5;
        const float before = b->runs[0].logits[token], after = b->runs[1].logits[token];
        const float numbers[] = {before, after, after - before, b->runs[0].probabilities[token],
                                 b->runs[1].probabilities[token]};
        lens_cell *const cell = cell_of(grid, 0, i);
        cell->number = (double)numbers[k];
        cell->text = k < 3 ? keep(l, "%.2f", cell->number) : percent(l, cell->number);
        cell->colour = k == 2 ? (float)(cell->number / most) : 0;
        cell->tip =
            keep(l, "%s\nlogit %.4f, then %.4f\nprobability %.4f, then %.4f", shown_token(l, token),
                 (double)before, (double)after, (double)numbers[3], (double)numbers[4]);
        label_row(grid, i / 5, brief(l, shown_token(l, token), 20));
    }
    grid->low = keep(l, "%.2f", -most);
    grid->high = keep(l, "%.2f", most);
}

/* ---- tables ---- */

/* "logits" of the tokens of the grid, "runs", each with its continuation as a text, "continuation", the tokens of those, and
 * "top", the likeliest next tokens of each run. */
static void add_sides(lens *l, const beside *b)
{
    const one_run *const runs = b->runs;
    const size_t k = l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab;
    answer *const a = &l->answer;
    answer_table *t =
        add_rows(l, "logits", b->n_shown,
                 "token:t | logit_without logit_with probability_without probability_with");
    for (size_t i = 0; i < b->n_shown; i++) {
        const attn_token id = b->shown[i];
        answer_put(a, t, i, id, runs[0].logits[id], runs[1].logits[id], runs[0].probabilities[id],
                   runs[1].probabilities[id]);
    }
    t = add_table(l, "runs");
    add_names(l, t, "run", run_names, 2);
    answer_add_columns(a, t, "loss");
    answer_column *const text =
        l->tokenizer ? answer_column_new(a, t, CELLS, "text", LENS_TEXTS) : NULL;
    if (text) {
        text->bytes = b->bytes ? b->bytes : "";
        text->ends = b->ends;
    }
    answer_table *const made =
        add_rows(l, "continuation", runs[0].n_ids + runs[1].n_ids, "run:s place:z | token:t");
    answer_table *const top = add_table(l, "top");
    add_names(l, top, "run", run_names, 2);
    answer_axis(a, top, "place", k);
    answer_add_columns(a, top, "guess:t logit probability");
    for (size_t run = 0, row = 0; run < 2; run++) {
        answer_put(a, t, run, runs[run].loss);
        for (size_t i = 0; i < runs[run].n_ids; i++, row++)
            answer_put(a, made, row, run_names[run], i, runs[run].ids[i]);
        for (size_t i = 0; i < k; i++)
            put_guess(l, top, run * k + i, &runs[run].all[i]);
    }
}

#endif

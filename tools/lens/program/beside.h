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
    char *bytes;                   /* the greedy continuation */
    size_t n_bytes;
    attn_token *ids; /* [n_ids]: its tokens */
    size_t n_ids;
} one_run;

/* Changes a session before it is fed. Returns FINE, or an exit code after a message. */
typedef int (*change_fn)(lens *l, attn_session *session, void *how);

typedef struct beside {
    one_run plain, changed;
    int32_t *shown; /* the tokens of the table */
    size_t n_shown;
} beside;

/* What the attn_text_fn keep_piece appends to. */
typedef struct continuation {
    lens *l;
    one_run *s;
    size_t room;
} continuation;

static int keep_piece(const char *text, size_t size, void *user)
{
    continuation *c = (continuation *)user;
    char *larger = c->s->bytes;
    if (c->s->n_bytes + size > c->room) {
        c->room = 2 * (c->s->n_bytes + size);
        larger = (char *)allocate(c->l, c->room, 1);
        if (!larger)
            return 1;
        if (c->s->n_bytes)
            memcpy(larger, c->s->bytes, c->s->n_bytes);
    }
    memcpy(larger + c->s->n_bytes, text, size);
    c->s->bytes = larger;
    c->s->n_bytes += size;
    return 0;
}

/* Generates the continuation in a session that holds the text. */
static int continue_text(lens *l, attn_session *session, one_run *s)
{
    continuation to = {l, s, 0};
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
    attn_tensor row;
    size_t i;
    s->all = (attn_prediction *)allocate(l, n_vocab, sizeof *s->all);
    s->logits = (float *)allocate(l, n_vocab, sizeof *s->logits);
    s->probabilities = (float *)allocate(l, n_vocab, sizeof *s->probabilities);
    if (!stats || !s->all || !s->logits || !s->probabilities ||
        attn_score(&l->ctx, stats, NULL, session, l->text.ids, l->text.n))
        return failed(&l->ctx);
    s->loss = attn_mean_nll(stats, l->text.n - 1);
    memcpy(s->logits, attn_session_logits(session), n_vocab * sizeof *s->logits);
    row = attn_borrow(s->logits, ATTN_F32, attn_shape2(1, n_vocab));
    if (attn_logit_stats(&l->ctx, NULL, &(attn_top){s->all, n_vocab}, row, NULL))
        return failed(&l->ctx);
    for (i = 0; i < n_vocab; i++)
        s->probabilities[s->all[i].token] = s->all[i].probability;
    return FINE;
}

static int run_side(lens *l, change_fn change, void *how, one_run *s)
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
        code = judge_text(l, session, s);
    if (code == FINE)
        code = continue_text(l, session, s);
    attn_session_free(session);
    return code;
}

/* Chooses the tokens of the table: the likeliest with the change, then the likeliest without it. */
static int choose_shown(lens *l, beside *b)
{
    const size_t k = l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab;
    size_t i, j;
    b->shown = (int32_t *)allocate(l, 2 * k, sizeof *b->shown);
    if (!b->shown)
        return failed(&l->ctx);
    for (i = 0; i < 2 * k; i++) {
        const attn_token token = (i < k ? b->changed.all + i : b->plain.all + i - k)->token;
        for (j = 0; j < b->n_shown && b->shown[j] != token; j++)
            ;
        if (j == b->n_shown)
            b->shown[b->n_shown++] = token;
    }
    return FINE;
}

static int run_beside(lens *l, change_fn change, void *how, beside *b)
{
    int code = run_side(l, NULL, NULL, &b->plain);
    if (code == FINE)
        code = run_side(l, change, how, &b->changed);
    return code == FINE ? choose_shown(l, b) : code;
}

/* ---- output ---- */

static const char *continued(lens *l, const one_run *s)
{
    const char *line = "";
    size_t i;
    if (l->tokenizer)
        return visible(l, s->bytes ? s->bytes : "", s->n_bytes, NULL);
    for (i = 0; i < s->n_ids; i++)
        line = keep(l, "%s%s%ld", line, i ? " " : "", (long)s->ids[i]);
    return line;
}

/* Losses and continuations of both runs, to be appended to a command's note. */
static const char *note_of_sides(lens *l, const beside *b)
{
    const char *note = "";
    if (l->text.n > 1)
        note = keep(l, " The text costs %.4f nats a token, and %.4f with the change.",
                    b->plain.loss, b->changed.loss);
    if (l->o.tokens)
        note = keep(l, "%s\nWithout the change the text goes on: \"%s\"\nWith it: \"%s\"", note,
                    continued(l, &b->plain), continued(l, &b->changed));
    return note;
}

/* A row for each token of the table: logit and probability without and with the change. */
static int grid_of_sides(lens *l, const beside *b, lens_grid *grid)
{
    static const char *const columns[] = {"without", "with", "change", "p without", "p with"};
    const int code = make_grid(l, grid, b->n_shown, 5);
    double most = 1e-9;
    size_t i, j;
    if (code != FINE)
        return code;
    for (j = 0; j < 5; j++)
        ((const char **)grid->columns)[j] = columns[j];
    for (i = 0; i < b->n_shown; i++)
        most = fmax(most, fabs((double)b->changed.logits[b->shown[i]] -
                               (double)b->plain.logits[b->shown[i]]));
    for (i = 0; i < b->n_shown; i++) {
        const attn_token token = b->shown[i];
        const float before = b->plain.logits[token], after = b->changed.logits[token];
        const float numbers[] = {before, after, after - before, b->plain.probabilities[token],
                                 b->changed.probabilities[token]};
        ((const char **)grid->rows)[i] = brief(l, shown_token(l, token), 20);
        for (j = 0; j < 5; j++) {
            lens_cell *cell = cell_of(grid, i, j);
            cell->number = numbers[j];
            cell->text =
                j < 3 ? keep(l, "%.2f", (double)numbers[j]) : percent(l, (double)numbers[j]);
            cell->colour = j == 2 ? (float)((double)numbers[j] / most) : 0;
            cell->tip = keep(l, "%s\nlogit %.4f, then %.4f\nprobability %.4f, then %.4f",
                             shown_token(l, token), (double)before, (double)after,
                             (double)numbers[3], (double)numbers[4]);
        }
    }
    grid->title = "logits and probabilities of the next token, without and with the change";
    grid->row_name = "token";
    grid->column_name = "logit";
    grid->low = keep(l, "%.2f", -most);
    grid->high = keep(l, "%.2f", most);
    return FINE;
}

static void json_side(const lens *l, const char *name, const one_run *s)
{
    size_t i;
    printf("\"%s\": {\"loss\": ", name);
    json_figure(s->loss);
    fputs(", ", stdout);
    json_guesses(l, s->all, l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab);
    fputs(", \"ids\": [", stdout);
    for (i = 0; i < s->n_ids; i++)
        printf("%s%ld", i ? ", " : "", (long)s->ids[i]);
    fputs("]", stdout);
    if (l->tokenizer) {
        fputs(", \"text\": ", stdout);
        json_text(stdout, s->bytes ? s->bytes : "", s->n_bytes);
    }
    fputs("}", stdout);
}

/* "without": {..}, "with": {..}, "logits": [[id, without, with], ..] of the tokens of the table */
static void json_beside(const lens *l, const beside *b)
{
    size_t i;
    json_side(l, "without", &b->plain);
    fputs(",\n ", stdout);
    json_side(l, "with", &b->changed);
    fputs(",\n \"logits\": [", stdout);
    for (i = 0; i < b->n_shown; i++) {
        printf("%s[%ld, ", i ? ", " : "", (long)b->shown[i]);
        json_figure((double)b->plain.logits[b->shown[i]]);
        json_named(", ", (double)b->changed.logits[b->shown[i]]);
        fputs("]", stdout);
    }
    fputs("]", stdout);
}

#endif

/* lens tokens, lens loss: the loss of each token of a text, and the likeliest tokens at each position. */
#ifndef LENS_CMD_LOSS_H
#define LENS_CMD_LOSS_H

#include "findings.h"

typedef struct losses {
    attn_token_stats *stats; /* [n]: of each token but the first */
    attn_prediction *top;    /* [n, k] */
    size_t k;
    double mean, worst;
} losses;

static int find_losses(lens *l, losses *out)
{
    const size_t n = l->text.n;
    int code;
    out->k = l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab;
    out->stats = (attn_token_stats *)allocate(l, n, sizeof *out->stats);
    out->top = (attn_prediction *)allocate(l, n * (out->k + 1), sizeof *out->top);
    if (!out->stats || !out->top)
        return failed(&l->ctx);
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (hook_edits(l, l->session) ||
        attn_score(&l->ctx, out->stats + 1, &(attn_top){out->top, out->k}, l->session, l->text.ids,
                   n))
        return failed(&l->ctx);
    for (size_t t = 1; t < n; t++) {
        const double nll = (double)out->stats[t].nll;
        out->mean += nll;
        out->worst = nll > out->worst ? nll : out->worst;
    }
    out->mean /= n > 1 ? (double)(n - 1) : 1;
    return FINE;
}

/* ---- tables ---- */

/* Columns about a token at each position, or at each position of each stream. At position `missing` there is none. */
static void add_stats(lens *l, answer_table *t, const attn_token_stats *stats, size_t missing)
{
    answer_add_columns(&l->answer, t, "loss probability rank:z");
    for (size_t i = 0; t && i < answer_n_rows(t); i++)
        if (i % l->text.n != missing)
            answer_put(&l->answer, t, i, stats[i].nll, stats[i].probability, stats[i].rank);
}

/* The last axis of a table, "place", and its columns: the k likeliest tokens to come next. */
static void add_guesses(lens *l, answer_table *t, const attn_prediction *top, size_t k)
{
    answer_axis(&l->answer, t, "place", k);
    answer_add_columns(&l->answer, t, "guess:t logit probability");
    for (size_t i = 0; t && i < answer_n_rows(t); i++)
        put_guess(l, t, i, &top[i]);
}

static void add_losses(lens *l, const losses *found, int with_guesses)
{
    const size_t n = l->text.n;
    facts(l, "n_tokens:z mean_loss perplexity:x", n, n > 1 ? found->mean : (double)NAN,
          n > 1 ? exp(found->mean) : (double)NAN);
    answer_table *tokens = add_table(l, "tokens");
    add_positions(l, tokens, &l->text, 0, n);
    add_stats(l, tokens, found->stats, 0);
    if (!with_guesses || found->k == 0)
        return;
    answer_table *top = add_table(l, "top");
    add_positions(l, top, &l->text, 0, n);
    add_guesses(l, top, found->top, found->k);
}

/* ---- the picture ---- */

/* The tokens as they appear in the text, without colours. */
static lens_word *make_words(lens *l)
{
    lens_word *words = (lens_word *)allocate(l, l->text.n, sizeof *words);
    size_t size = 0;
    for (size_t t = 0; words && t < l->text.n; t++) {
        const char *bytes =
            l->tokenizer ? attn_token_bytes(&size, l->tokenizer, l->text.ids[t]) : NULL;
        words[t].colour = 0;
        words[t].tip = NULL;
        words[t].breaks = bytes && memchr(bytes, '\n', size) != NULL;
        words[t].text = bytes ? visible(l, bytes, size, NULL) : keep(l, "%s ", l->text.shown[t]);
    }
    return words;
}

/* A picture of the text, each token on the colour of its loss. */
static int draw_losses(lens *l, canvas *to, const void *of)
{
    const losses *const found = (const losses *)of;
    const size_t n = l->text.n;
    const double most = found->worst > 1 ? found->worst : 1;
    lens_word *words = make_words(l);
    lens_page page = l->shown.page;
    if (!words)
        return failed(&l->ctx);
    for (size_t t = 0; t < n; t++) {
        const attn_token_stats *stats = &found->stats[t];
        const char *name = l->text.shown[t];
        words[t].colour = t ? -(float)((double)stats->nll / most) : 0;
        const char *said = t ? keep(l, "\nloss %.3f, probability %.3g, rank %zu",
                                    (double)stats->nll, (double)stats->probability, stats->rank)
                             : "";
        const char *next = list_guesses(l, found->top + t * found->k, found->k);
        words[t].tip = keep(l, "%zu  %s  (id %ld)%s%s%s", t, name, (long)l->text.ids[t], said,
                            found->k ? "\nlikeliest to come next:" : "", next);
    }
    if (n > 1)
        page.note =
            keep(l, "%s The stronger its colour, the less the model expected a token.", page.note);
    if (l->ctx.status)
        return failed(&l->ctx);
    (l->form == FORM_SVG ? svg_words
                         : html_words)(to, &page, keep(l, "%.1f nats: unexpected", most), words, n);
    return FINE;
}

/* ---- the table of a terminal ---- */

static const char *sgr_of_loss(double nll)
{
    return nll > 6 ? "1;31" : nll > 3 ? "31" : nll > 1.5 ? "33" : NULL;
}

/* Columns of the table of losses before the last one; a narrow terminal gets fewer. */
enum { WIDE = 59, NARROW = 28 };

static int is_narrow(const lens *l)
{
    return l->columns && l->columns < WIDE + 20;
}

static void print_token(lens *l, const losses *found, size_t t)
{
    const attn_token_stats *stats = &found->stats[t];
    const char *sgr = t ? sgr_of_loss((double)stats->nll) : NULL;
    say(l, "%5zu ", t);
    if (!is_narrow(l))
        say(l, "%7ld ", (long)l->text.ids[t]);
    put(l, l->text.shown[t], is_narrow(l) ? 12 : 16, sgr);
    if (t == 0) {
        put(l, "", is_narrow(l) ? 8 : 26, NULL);
        return;
    }
    put_number(l, (double)stats->nll, 8, sgr);
    if (!is_narrow(l))
        say(l, stats->probability < 0.0001f ? "  %8.1e %7zu" : "  %8.4f %7zu",
            (double)stats->probability, stats->rank);
}

/* Prints the likeliest next tokens, as many as fit into the line. */
static void print_guesses(lens *l, const losses *found, size_t t)
{
    int used = is_narrow(l) ? NARROW : WIDE;
    for (size_t i = 0; i < found->k; i++) {
        const attn_prediction *guess = &found->top[t * found->k + i];
        const char *token = brief(l, shown_token(l, guess->token), is_narrow(l) ? 6 : 12);
        const char *share = keep(l, " %s", percent(l, (double)guess->probability));
        used += (i ? 2 : 0) + (int)(text_width(token, strlen(token)) + strlen(share));
        if (l->columns && i && used > l->columns)
            break;
        ink(l->out, i ? "  " : "");
        put(l, token, 0, NULL);
        put(l, share, 0, dim);
    }
}

/* Prints the loss as a bar, one sign for half a nat. */
static void print_bar(lens *l, double nll)
{
    const int room = l->columns ? l->columns - (is_narrow(l) ? NARROW : WIDE) : 40;
    for (int i = 0; i < 2 * nll && i < 40 && i < room; i++)
        ink(l->out, "#");
}

static int print_losses(lens *l, const void *of)
{
    const losses *const found = (const losses *)of;
    const int guesses = l->command->bit == TOKENS;
    put(l,
        is_narrow(l) ? "  pos token           loss"
                     : "  pos      id token               loss      prob    rank",
        0, dim);
    put(l, !guesses ? "" : is_narrow(l) ? "  next" : "  likeliest next", 0, dim);
    say(l, "\n");
    for (size_t t = 0; t < l->text.n; t++) {
        print_token(l, found, t);
        say(l, "  ");
        if (guesses)
            print_guesses(l, found, t);
        else if (t)
            print_bar(l, (double)found->stats[t].nll);
        say(l, "\n");
    }
    if (!guesses)
        say(l, "mean loss %.4f nats, perplexity %.2f\n", found->mean, exp(found->mean));
    return outcome(&l->ctx);
}

static int run_losses(lens *l, void *finding)
{
    const size_t n = l->text.n;
    losses *const found = (losses *)finding;
    int code;
    show_as(l, "Loss of each token", NULL);
    if ((code = find_losses(l, found)) != FINE)
        return code;
    if (n < 2 && l->command->bit == LOSS)
        return fail(FAILED, "the text has one token; expected at least 2, to predict one of them");
    add_losses(l, found, l->command->bit == TOKENS);
    l->shown.print = print_losses;
    l->shown.draw = draw_losses;
    l->shown.page.note = n > 1 ? keep(l, "%zu tokens, mean loss %.3f nats, perplexity %.2f.", n,
                                      found->mean, exp(found->mean))
                               : "1 token";
    return show_answer(l);
}

#endif

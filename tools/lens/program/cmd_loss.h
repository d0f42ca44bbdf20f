/* lens tokens, lens loss: the loss of each token of a text, and the likeliest tokens at each position. */
#ifndef LENS_CMD_LOSS_H
#define LENS_CMD_LOSS_H

#include "findings.h"

typedef struct losses {
    attn_token_stats *stats; /* [n - 1]: of the tokens after the first */
    attn_prediction *top;    /* [n, k] */
    size_t k;
    double mean, worst;
} losses;

static int find_losses(lens *l, losses *out)
{
    const size_t n = l->text.n;
    size_t t;
    int code;
    memset(out, 0, sizeof *out);
    out->k = l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab;
    out->stats = (attn_token_stats *)allocate(l, n, sizeof *out->stats);
    out->top = (attn_prediction *)allocate(l, n * (out->k + 1), sizeof *out->top);
    if (!out->stats || !out->top)
        return failed(&l->ctx);
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (hook_edits(l, l->session) ||
        attn_score(&l->ctx, out->stats, &(attn_top){out->top, out->k}, l->session, l->text.ids, n))
        return failed(&l->ctx);
    for (t = 0; t + 1 < n; t++) {
        const double nll = (double)out->stats[t].nll;
        out->mean += nll;
        out->worst = nll > out->worst ? nll : out->worst;
    }
    out->mean /= n > 1 ? (double)(n - 1) : 1;
    return FINE;
}

static void json_losses(const lens *l, const losses *found, int with_top)
{
    const size_t n = l->text.n;
    size_t t;
    printf("{\"mean_loss\": ");
    json_figure(n > 1 ? found->mean : (double)NAN);
    printf(", \"perplexity\": ");
    json_figure(n > 1 ? exp(found->mean) : (double)NAN);
    printf(", \"tokens\": [");
    for (t = 0; t < n; t++) {
        printf("%s\n {\"position\": %zu, ", t ? "," : "", t);
        json_token(l, l->text.ids[t]);
        if (t)
            json_stats(&found->stats[t - 1]);
        if (with_top) {
            printf(", ");
            json_guesses(l, found->top + t * found->k, found->k);
        }
        printf("}");
    }
    printf("]}\n");
}

/* The tokens as they appear in the text, without colours. */
static lens_word *make_words(lens *l)
{
    lens_word *words = (lens_word *)allocate(l, l->text.n, sizeof *words);
    size_t t, size = 0;
    for (t = 0; words && t < l->text.n; t++) {
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
static int draw_losses(lens *l, const losses *found)
{
    const size_t n = l->text.n;
    const double most = found->worst > 1 ? found->worst : 1;
    lens_word *words = make_words(l);
    lens_page page = make_page(l, "Loss of each token");
    lens_new_file *picture;
    canvas to = {0};
    size_t t;
    int code;
    if (!words)
        return failed(&l->ctx);
    for (t = 0; t < n; t++) {
        const attn_token_stats *stats = t ? &found->stats[t - 1] : NULL;
        const char *name = l->text.shown[t], *next, *said;
        words[t].colour = stats ? -(float)((double)stats->nll / most) : 0;
        said = stats ? keep(l, "\nloss %.3f, probability %.3g, rank %zu", (double)stats->nll,
                            (double)stats->probability, stats->rank)
                     : "";
        next = list_guesses(l, found->top + t * found->k, found->k);
        words[t].tip = keep(l, "%zu  %s  (id %ld)%s%s%s", t, name, (long)l->text.ids[t], said,
                            found->k ? "\nlikeliest to come next:" : "", next);
    }
    page.note = n > 1 ? keep(l,
                             "%zu tokens, mean loss %.3f nats, perplexity %.2f. The stronger its "
                             "colour, the less the model expected a token.",
                             n, found->mean, exp(found->mean))
                      : "1 token";
    if (l->ctx.status)
        return failed(&l->ctx);
    if ((code = open_picture(l, &picture)) != FINE)
        return code;
    to.file = (FILE *)lens_new_file_stream(picture);
    (is_svg(l) ? svg_words : html_words)(&to, &page, keep(l, "%.1f nats: unexpected", most), words,
                                         n);
    return close_picture(l, picture, FINE);
}

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

static void print_token(const lens *l, const losses *found, size_t t)
{
    const attn_token_stats *stats = t ? &found->stats[t - 1] : NULL;
    const char *sgr = stats ? sgr_of_loss((double)stats->nll) : NULL;
    printf("%5zu ", t);
    if (!is_narrow(l))
        printf("%7ld ", (long)l->text.ids[t]);
    put(l, l->text.shown[t], is_narrow(l) ? 12 : 16, sgr);
    if (!stats) {
        printf("%*s", is_narrow(l) ? 8 : 26, "");
        return;
    }
    put_number(l, (double)stats->nll, 8, sgr);
    if (!is_narrow(l))
        printf(stats->probability < 0.0001f ? "  %8.1e %7zu" : "  %8.4f %7zu",
               (double)stats->probability, stats->rank);
}

/* Prints the likeliest next tokens, as many as fit into the line. */
static void print_guesses(lens *l, const losses *found, size_t t)
{
    int used = is_narrow(l) ? NARROW : WIDE;
    size_t i;
    for (i = 0; i < found->k; i++) {
        const attn_prediction *guess = &found->top[t * found->k + i];
        const char *token = brief(l, shown_token(l, guess->token), is_narrow(l) ? 6 : 12);
        const char *share = keep(l, " %s", percent(l, (double)guess->probability));
        used += (i ? 2 : 0) + (int)(text_width(token, strlen(token)) + strlen(share));
        if (l->columns && i && used > l->columns)
            break;
        printf(i ? "  " : "");
        put(l, token, 0, NULL);
        put(l, share, 0, dim);
    }
}

/* Prints the loss as a bar, one sign for half a nat. */
static void print_bar(const lens *l, double nll)
{
    const int room = l->columns ? l->columns - (is_narrow(l) ? NARROW : WIDE) : 40;
    int i;
    for (i = 0; i < 2 * nll && i < 40 && i < room; i++)
        putchar('#');
}

static int run_losses(lens *l)
{
    const int guesses = l->command->bit == TOKENS;
    losses found;
    size_t t;
    const int code = find_losses(l, &found);
    if (code != FINE)
        return code;
    if (l->text.n < 2 && !guesses)
        return fail(FAILED, "the text has one token; expected at least 2, to predict one of them");
    if (l->o.output)
        return draw_losses(l, &found);
    if (l->o.json) {
        json_losses(l, &found, guesses);
        return FINE;
    }
    put(l,
        is_narrow(l) ? "  pos token           loss"
                     : "  pos      id token               loss      prob    rank",
        0, dim);
    put(l, !guesses ? "" : is_narrow(l) ? "  next" : "  likeliest next", 0, dim);
    printf("\n");
    for (t = 0; t < l->text.n; t++) {
        print_token(l, &found, t);
        printf("  ");
        if (guesses)
            print_guesses(l, &found, t);
        else if (t)
            print_bar(l, (double)found.stats[t - 1].nll);
        printf("\n");
    }
    if (!guesses && l->text.n > 1)
        printf("mean loss %.4f nats, perplexity %.2f\n", found.mean, exp(found.mean));
    return outcome(&l->ctx);
}

#endif

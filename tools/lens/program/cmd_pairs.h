/* lens pairs: pairs of texts for tasks whose circuits are known, in the form that --pairs reads.
 *
 * The texts and words of the tasks are in words/: each file says what its words are for. A text such as
 *
 *     When {A} and {B} went to the {C}, {*} gave a {D} to
 *
 * gets a word for each brace. The clean and the corrupted text differ in the word of {*} alone. Words are
 * drawn from those that are one token each, so that both texts have as many tokens, and all pairs of one
 * template. */
#ifndef LENS_CMD_PAIRS_H
#define LENS_CMD_PAIRS_H

#include "lens_embedded.h"
#include "findings.h"

enum { MOST_WORD = 32, MOST_TEXT = 256, N_LISTS = 4, MOST_FAILED_DRAWS = 1000 };

/* A list of words/. A row has one word, or two; kept are the rows whose words are one token each. */
typedef struct word_list {
    const char *name;
    const char *(*rows)[2]; /* [n]; of a row with one word, both are that word */
    size_t n, n_all;
} word_list;

typedef struct pair_maker {
    lens *l;
    word_list lists[N_LISTS];
    attn_rng rng;
    const char *words[4]; /* of {A}, {B}, {C} and {D} */
    const char *clean, *corrupted, *token, *against;
    answer_table *made; /* the pairs */
} pair_maker;

/* ---- the words of a vocabulary ---- */

/* Is a text n tokens, of which the last one has `size` bytes? */
static int is_tokens(lens *l, const char *text, size_t n, size_t size)
{
    attn_token ids[MOST_WORD];
    size_t n_ids = MOST_WORD, last = 0;
    if (strlen(text) >= MOST_WORD ||
        attn_encode(&l->ctx, ids, &n_ids, l->tokenizer, text, strlen(text)) || n_ids != n)
        return 0;
    attn_token_bytes(&last, l->tokenizer, ids[n - 1]);
    return last == size;
}

static int is_word(lens *l, const char *text)
{
    return is_tokens(l, text, 1, strlen(text));
}

/* The lines of a list of words/, [*n]; NULL without memory. */
static char **lines_of(lens *l, const char *list, size_t *n)
{
    size_t i = 0, size = strlen(list);
    while (strncmp(lens_words[i] + 2, list, size) != 0 || lens_words[i][2 + size] != '\n')
        i++;
    char *at = arena_text(&l->ctx, &l->memory, lens_words[i] + 2 + size + 1,
                          strlen(lens_words[i] + 2 + size + 1));
    char **const lines = (char **)allocate(l, at ? strlen(at) : 0, sizeof *lines);
    for (*n = 0; at && lines && *at; at += strlen(at) + 1) {
        at[strcspn(at, "\n")] = 0;
        lines[(*n)++] = at;
    }
    return lines;
}

static void read_list(lens *l, word_list *list)
{
    char *const *const lines = lines_of(l, list->name, &list->n_all);
    char words[2][MOST_WORD] = {" ", " "};
    list->rows = (const char *(*)[2])allocate(l, list->n_all, sizeof *list->rows);
    for (size_t i = 0; list->rows && i < list->n_all; i++) {
        const int n = sscanf(lines[i], "%30s %30s", words[0] + 1, words[1] + 1);
        if (!is_word(l, words[0]) || (n == 2 && !is_word(l, words[1])))
            continue;
        list->rows[list->n][0] = keep(l, "%s", words[0]);
        list->rows[list->n++][1] = keep(l, "%s", words[n - 1]);
    }
}

/* A row is a year from 1102 to 1798, such as 17|32 of two tokens, and its century, 17 of one. Year 01 of that century
 * must be two tokens, too. */
static void read_years(lens *l, word_list *list)
{
    enum { YEARS = 97, ALL_YEARS = 7 * YEARS };
    char century[16], year[20], first[20];
    unsigned i;
    list->n_all = ALL_YEARS;
    list->rows = (const char *(*)[2])allocate(l, list->n_all, sizeof *list->rows);
    for (i = 0; list->rows && i < list->n_all; i++) {
        snprintf(century, sizeof century, " %u", 11 + i / YEARS);
        snprintf(year, sizeof year, "%s%02u", century, 2 + i % YEARS);
        snprintf(first, sizeof first, "%s01", century);
        if (!is_word(l, century) || !is_tokens(l, first, 2, 2) || !is_tokens(l, year, 2, 2))
            continue;
        list->rows[list->n][0] = keep(l, "%s", year);
        list->rows[list->n++][1] = keep(l, "%s", century);
    }
}

/* ---- the tasks ---- */

static size_t draw(pair_maker *m, size_t n)
{
    return (size_t)((uint64_t)attn_rng_u32(&m->rng) * n >> 32);
}

/* A row of a list; not row `other`. */
static size_t draw_other(pair_maker *m, size_t n, size_t other)
{
    const size_t i = draw(m, n - 1);
    return i + (i >= other);
}

static const char *draw_word(pair_maker *m, int list)
{
    return m->lists[list].rows[draw(m, m->lists[list].n)][0];
}

/* Two names, in two places; who gives is the first or the second. */
static void make_ioi(pair_maker *m)
{
    const word_list *const she = &m->lists[0], *const he = &m->lists[1];
    const size_t n = she->n + he->n, a = draw(m, n), b = draw_other(m, n, a), giver = draw(m, 2);
    m->words[0] = a < she->n ? she->rows[a][0] : he->rows[a - she->n][0];
    m->words[1] = b < she->n ? she->rows[b][0] : he->rows[b - she->n][0];
    m->words[2] = draw_word(m, 2);
    m->words[3] = draw_word(m, 3);
    m->clean = m->against = m->words[giver];
    m->corrupted = m->token = m->words[1 - giver];
}

/* An event ends after the year in which it began. In the corrupted text that is year 01, which tells nothing. */
static void make_greater_than(pair_maker *m)
{
    const size_t i = draw(m, m->lists[1].n);
    const char *const *const row = m->lists[1].rows[i];
    const unsigned year = (unsigned)strtoul(row[0] + strlen(row[1]), NULL, 10); /* of the century */
    m->words[2] = draw_word(m, 0);
    m->words[3] = row[1];
    m->clean = row[0];
    m->corrupted = keep(m->l, "%s01", row[1]);
    m->token = keep(m->l, "%02u", year + 1 + (unsigned)draw(m, 99 - year));
    m->against = keep(m->l, "%02u", 2 + (unsigned)draw(m, year - 1));
}

static void make_pronouns(pair_maker *m)
{
    const int he = (int)draw(m, 2);
    m->clean = draw_word(m, he);
    m->corrupted = draw_word(m, !he);
    m->words[2] = draw_word(m, 2);
    m->words[3] = draw_word(m, 3);
    m->token = keep(m->l, " %s", m->lists[he].name);
    m->against = keep(m->l, " %s", m->lists[!he].name);
}

static void make_agreement(pair_maker *m)
{
    const word_list *const nouns = &m->lists[0];
    const size_t subject = draw(m, nouns->n), other = draw_other(m, nouns->n, subject);
    const size_t plural = draw(m, 2), plural_other = draw(m, 2), verb = draw(m, m->lists[1].n);
    m->clean = nouns->rows[subject][plural];
    m->corrupted = nouns->rows[subject][1 - plural];
    m->words[2] = nouns->rows[other][plural_other];
    m->token = m->lists[1].rows[verb][plural];
    m->against = m->lists[1].rows[verb][1 - plural];
}

static void make_capitals(pair_maker *m)
{
    const word_list *const countries = &m->lists[0];
    const size_t a = draw(m, countries->n), b = draw_other(m, countries->n, a);
    m->clean = countries->rows[a][0];
    m->corrupted = countries->rows[b][0];
    m->token = countries->rows[a][1];
    m->against = countries->rows[b][1];
}

static const struct task {
    const char *name; /* and of its texts in words/ */
    void (*make)(pair_maker *m);
    const char *lists[N_LISTS];
} tasks[] = {{"ioi", make_ioi, {"she", "he", "places", "things"}},
             {"greater-than", make_greater_than, {"events", "years"}},
             {"pronouns", make_pronouns, {"she", "he", "traits", "people"}},
             {"agreement", make_agreement, {"nouns", "verbs"}},
             {"capitals", make_capitals, {"countries"}}};
enum { N_TASKS = sizeof tasks / sizeof tasks[0] };

/* ---- the pairs ---- */

/* Puts words in the place of braces. */
static void write_text(char *to, const char *from, const pair_maker *m, const char *star)
{
    for (; *from; from++) {
        if (*from != '{') {
            *to++ = *from;
            continue;
        }
        to +=
            snprintf(to - 1, MOST_TEXT, "%s", from[1] == '*' ? star : m->words[from[1] - 'A']) - 1;
        from += 2;
    }
    *to = 0;
}

/* Spells pair i. *size: its bytes. NULL: the texts differ in their number of tokens, or an answer is not one token. */
static const char *spell_pair(lens *l, const pair_maker *m, const char *text, size_t i,
                              size_t *size)
{
    char clean[MOST_TEXT], corrupted[MOST_TEXT];
    size_t n = 0, n_corrupted = 0;
    write_text(clean, text, m, m->clean);
    write_text(corrupted, text, m, m->corrupted);
    if (attn_encode(&l->ctx, NULL, &n, l->tokenizer, clean, strlen(clean)) ||
        attn_encode(&l->ctx, NULL, &n_corrupted, l->tokenizer, corrupted, strlen(corrupted)) ||
        n != n_corrupted || !is_word(l, m->token) || !is_word(l, m->against))
        return NULL;
    const char *const all =
        keep(l, "%s%c%s%c%s%c%s", clean, 0, corrupted, 0, m->token, 0, m->against);
    const char *const second = all + strlen(clean) + 1, *const third = second + strlen(second) + 1;
    const char *const last = third + strlen(third) + 1;
    answer_put(&l->answer, m->made, i, all, second, third, last);
    *size = (size_t)(last - all) + strlen(last) + 1;
    return all;
}

/* Draws pairs, each another one. */
static int draw_pairs(lens *l, const struct task *task, pair_maker *m)
{
    size_t n_texts, n = 0, n_failed = 0;
    char *const *const texts = lines_of(l, task->name, &n_texts);
    const int any = l->o.form == not_given;
    name_table made;
    if (texts && !any && l->o.form >= n_texts)
        return fail(FAILED, "%s has the templates 0 to %zu", task->name, n_texts - 1);
    if (!texts || names_init(&l->ctx, &l->memory, &made, l->o.count))
        return failed(&l->ctx);
    attn_rng_seed(&m->rng, l->o.seed);
    while (n < l->o.count && n_failed < MOST_FAILED_DRAWS) {
        const size_t text = any ? draw(m, n_texts) : l->o.form;
        size_t number = n, size;
        task->make(m);
        const char *const pair = spell_pair(l, m, texts[text], n, &size);
        if (l->ctx.status || was_stopped(l))
            return failed(&l->ctx);
        if (so_far((double)n / (double)l->o.count, l))
            return INTERRUPTED;
        if (pair && names_add(&made, pair, size, &number))
            n++, n_failed = 0;
        else
            n_failed++;
    }
    return n == l->o.count ? FINE
                           : fail(FAILED,
                                  "%s: with this vocabulary only %zu different pairs were found; "
                                  "ask for as many with --count",
                                  task->name, n);
}

static int print_pairs(lens *l, const void *of)
{
    const answer_column *const c = ((const pair_maker *)of)->made->columns + 1;
    for (size_t i = 0; i < l->o.count; i++)
        say(l,
            "{\"clean\": \"%s\", \"corrupted\": \"%s\", \"token\": \"%s\", \"against\": \"%s\"}\n",
            c[0].texts[i], c[1].texts[i], c[2].texts[i], c[3].texts[i]);
    return FINE;
}

static int run_pairs(lens *l, void *finding)
{
    pair_maker *const m = (pair_maker *)finding;
    const struct task *task = tasks;
    m->l = l;
    while (task < tasks + N_TASKS && (!l->o.task || strcmp(task->name, l->o.task) != 0))
        task++;
    if (task == tasks + N_TASKS)
        return fail(USAGE, "%s%s: the tasks are ioi, greater-than, pronouns, agreement, capitals",
                    l->o.task ? "there is no task " : "pairs needs a task",
                    l->o.task ? l->o.task : "");
    if (!l->tokenizer)
        return fail(FAILED, "%s has no tokenizer, so no text can be made for it", l->model_path);
    for (size_t i = 0; i < N_LISTS && task->lists[i]; i++) {
        word_list *const list = &m->lists[i];
        list->name = task->lists[i];
        (strcmp(list->name, "years") == 0 ? read_years : read_list)(l, list);
        if (l->ctx.status)
            return failed(&l->ctx);
        if (list->n < 2)
            return fail(FAILED,
                        "%s needs at least two of its %zu %s in the model's vocabulary; there %s "
                        "%zu of %s",
                        task->name, list->n_all, list->name, list->n == 1 ? "is" : "are", list->n,
                        strcmp(list->name, "years") == 0 ? "two tokens" : "one token a word");
    }
    m->made = add_table(l, "pairs");
    answer_axis(&l->answer, m->made, "pair", l->o.count);
    answer_add_columns(&l->answer, m->made, "clean:s corrupted:s token:s against:s");
    if (l->ctx.status)
        return failed(&l->ctx);
    l->shown.print = print_pairs;
    l->o.json = 0; /* what it prints is JSON in any case */
    return draw_pairs(l, task, m);
}

#endif

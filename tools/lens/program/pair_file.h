/* --pairs FILE: many pairs of texts; patch, path, edges and ablate show means over them. Each line is a JSON object:
 *
 *     {"clean": "Tom was a boy. He", "corrupted": "Tom was a girl. He", "token": " was", "against": " a"}
 *
 * A text may be a list of ids, and a token an id. --token and --against are for lines that name no token. */
#ifndef LENS_PAIR_FILE_H
#define LENS_PAIR_FILE_H

#include "question.h"
#include "tools/common/json.h"
#include "tools/common/lines.h"

/* A JSON list of ids in the form that --ids takes; NULL if it is not a list of ids. */
static const char *spell_ids(lens *l, const json_value *list)
{
    const json_value *v;
    char *text = (char *)allocate(l, list->size + 1, 24), *to = text;
    uint64_t id;
    size_t i;
    for (i = 0, v = list + 1; text && i < list->size; i++, v += v->span) {
        if (!json_u64(v, &id))
            return NULL;
        to += snprintf(to, 24, "%llu ", (unsigned long long)id);
    }
    if (text)
        *to = 0;
    return text;
}

/* Reads the clean or the corrupted text of a line: a string, or a list of ids. */
static int read_side(lens *l, const json_value *line, const char *key, uint64_t number,
                     lens_text *to)
{
    const json_value *v = json_get(line, key);
    const char *ids = v && v->kind == JSON_ARRAY ? spell_ids(l, v) : NULL;
    const char *words = v && v->kind == JSON_STRING ? keep(l, "%.*s", (int)v->size, v->text) : NULL;
    int code;
    if (!ids && !words)
        return fail(FAILED, "%s, line %llu: expected \"%s\": a text, or a list of ids", l->o.pairs,
                    (unsigned long long)number, key);
    if ((code = make_text(l, to, words, NULL, key, ids)) != FINE || to->n > 0)
        return code;
    return fail(FAILED, "%s, line %llu: the %s text is empty", l->o.pairs,
                (unsigned long long)number, key);
}

/* Reads a token of a line, a text or an id. `otherwise` is the command line's token. */
static int read_answer(lens *l, const json_value *line, const char *key, uint64_t number,
                       const char *otherwise, attn_token *token)
{
    const json_value *v = json_get(line, key);
    uint64_t id;
    if (!v)
        return otherwise ? name_token(l, key, otherwise, token) : FINE;
    if (v->kind == JSON_STRING)
        return name_token(l, key, keep(l, "%.*s", (int)v->size, v->text), token);
    if (!json_u64(v, &id) || id >= l->config->n_vocab)
        return fail(FAILED, "%s, line %llu: \"%s\" is no token", l->o.pairs,
                    (unsigned long long)number, key);
    *token = (int32_t)id;
    return FINE;
}

/* A text that C would cut is refused. */
static int refuse_zero(lens *l, const json_value *line, uint64_t number)
{
    const json_value *v = line + 1;
    for (size_t i = 0; line->kind == JSON_OBJECT && i < line->size; i++, v += v->span)
        if (json_has_zero(v))
            return fail(FAILED, "%s, line %llu: a text has a zero byte, \\u0000; take it out",
                        l->o.pairs, (unsigned long long)number);
    return FINE;
}

/* Appends the pair of one line. The labels of pictures and tables are the tokens of the first pair. */
static int read_pair(lens *l, const json_value *line, uint64_t number)
{
    lens_pair *pair = &l->pairs[l->n_pairs];
    lens_text clean = {0}, corrupted = {0};
    int code;
    memset(pair, 0, sizeof *pair);
    pair->metric.kind =
        json_get(line, "against") || l->o.against ? LENS_METRIC_LOGIT_DIFF : LENS_METRIC_LOGIT;
    if ((code = refuse_zero(l, line, number)) != FINE ||
        (code = read_side(l, line, "clean", number, &clean)) != FINE ||
        (code = read_side(l, line, "corrupted", number, &corrupted)) != FINE ||
        (code = read_answer(l, line, "token", number, l->o.token, &pair->metric.token)) != FINE ||
        (code = read_answer(l, line, "against", number, l->o.against, &pair->metric.against)) !=
            FINE)
        return code;
    if (clean.n != corrupted.n)
        return fail(FAILED,
                    "%s, line %llu: the texts have %zu and %zu tokens; "
                    "patching needs as many in both",
                    l->o.pairs, (unsigned long long)number, clean.n, corrupted.n);
    if (!json_get(line, "token") && !l->o.token)
        return fail(FAILED, "%s, line %llu: no \"token\"; name it there, or by --token", l->o.pairs,
                    (unsigned long long)number);
    l->unnamed |= (json_get(line, "token") ? 0 : 1) | (json_get(line, "against") ? 0 : 2);
    if (l->n_pairs++ == 0) {
        l->text = clean;
        if (l->command->bit & OF_TWO_TEXTS)
            l->corrupted = corrupted;
    }
    pair->clean = clean.ids;
    pair->corrupted = corrupted.ids;
    pair->n_tokens = clean.n;
    return FINE;
}

static int add_line(lens *l, char *text, size_t size, uint64_t number)
{
    json_value *root = NULL;
    if (json_parse_at(&l->ctx, l->o.pairs, (size_t)number, text, size, &root) != ATTN_OK || !root)
        return failed(&l->ctx);
    int code = read_pair(l, root, number);
    free(root);
    return code;
}

/* Fills l->pairs from all lines. Empty lines are skipped. */
static int read_pairs(lens *l)
{
    char *bytes, *line, *end;
    size_t size = 0, n = 1;
    uint64_t number = 0;
    int code = FINE;
    if (!(bytes = file_text(l, l->o.pairs, MAX_LINE, &size)))
        return failed(&l->ctx);
    for (line = bytes; (line = (char *)memchr(line, '\n', (size_t)(bytes + size - line))) != NULL;)
        line++, n++;
    if ((l->pairs = (lens_pair *)allocate(l, n, sizeof *l->pairs)) == NULL)
        return failed(&l->ctx);
    for (line = bytes; line < bytes + size && code == FINE; line = end + 1) {
        end = (char *)memchr(line, '\n', (size_t)(bytes + size - line));
        end = end ? end : bytes + size;
        *end = 0;
        number++;
        if (line[strspn(line, " \t\r")])
            code = add_line(l, line, strlen(line), number);
    }
    if (code == FINE && l->n_pairs == 0)
        return fail(FAILED, "%s: there are no pairs", l->o.pairs);
    if (code == FINE && l->o.token && !(l->unnamed & 1))
        return fail(USAGE, "--token is for lines that name no token, and all of %s do", l->o.pairs);
    if (code == FINE && l->o.against && !(l->unnamed & 2))
        return fail(USAGE, "--against is for lines without \"against\", and all of %s have it",
                    l->o.pairs);
    return code == FINE && l->o.ci && lens_need_spread(&l->ctx, l->n_pairs) ? failed(&l->ctx)
                                                                            : code;
}

#endif

/* score as a program that answers a question of callers in the process (tools/waist/query.h): `score` of requests, which
 * are lines of JSON or, with the setting lines, of text. The table `scores` has a row for each line: its number, and what the
 * program's JSON has, lists as JSON. */
#ifndef SCORE_ASKED_H
#define SCORE_ASKED_H

#include "input.h"
#include "settings.h"
#include "tools/waist/query.h"

static const char *score_command_at(size_t i, int *bits, const char **words, const char **about)
{
    *bits = OF_SCORE;
    *words = "requests";
    *about = "answers to many requests: log-probabilities, likeliest tokens, vectors";
    return i ? NULL : "score";
}

static void score_set_defaults(void *options)
{
    ((score_options *)options)->batch = 64;
}

/* >> The table ================================================================================= */

/* The column of a member of an answer, which keeps the kind of the first of its name. */
static answer_column *score_column(score_run *r, const json_value *v)
{
    answer_table *const t = r->scores;
    answer *const a = &r->answer;
    const char *name;
    for (size_t i = 0; i < t->n_columns; i++)
        if (strlen(t->columns[i].name) == v->key_size &&
            memcmp(t->columns[i].name, v->key, v->key_size) == 0)
            return &t->columns[i];
    if (!(name = arena_text(&r->ctx, &r->memory, v->key, v->key_size)))
        return NULL;
    if (v->kind == JSON_STRING || strcmp(name, "id") == 0)
        answer_texts(a, t, CELLS, name);
    else if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT)
        answer_lists(a, t, name);
    else
        answer_numbers(a, t, CELLS, name, v->kind == JSON_NUMBER ? LENS_NUMBERS : LENS_FLAGS);
    return r->ctx.status ? NULL : &t->columns[t->n_columns - 1];
}

static void set_score(score_run *r, const answer_column *c, size_t row, const json_value *v)
{
    json_out text = {NULL, 0, 0, 0, 0};
    double *const numbers = (double *)(uintptr_t)c->numbers;
    if (c->kind == LENS_FLAGS)
        numbers[row] = v->kind == JSON_TRUE;
    if (numbers) {
        json_double(v, &numbers[row]);
        return;
    }
    if (c->kind == LENS_LISTS)
        out_value(&text, &r->memory, NULL, v);
    else
        out_bytes(&text, v->text, v->size);
    ((const char **)(uintptr_t)c->texts)[row] =
        arena_text(&r->ctx, &r->memory, text.text, text.failed ? 0 : text.size);
    out_free(&text);
}

/* A give_fn: makes a row of what the program would write. */
static int add_answer_row(score_run *r, job *j)
{
    json_out *const text = &j->answer;
    json_value *root = NULL;
    out_bytes(text, "", 1); /* numbers are read up to a zero */
    if (text->failed)
        tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for an answer");
    if (text->failed ||
        json_parse_at(&r->ctx, "the answer", (size_t)j->line, text->text, text->size - 1, &root) ||
        !root)
        return failed_run(r);
    const json_value *v = root + 1;
    for (size_t i = 0; i < root->size && !r->ctx.status; i++, v += v->span) {
        const answer_column *const c = score_column(r, v);
        if (c)
            set_score(r, c, (size_t)j->line - 1, v);
    }
    free(root);
    return r->ctx.status ? failed_run(r) : FINE;
}

/* The table has a row for each line. */
static attn_status begin_scores(score_run *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->lines.end; i++)
        n += r->lines.buffer[i] == '\n';
    r->answer.ctx = &r->ctx;
    r->answer.memory = &r->memory;
    r->scores = answer_add(&r->answer, "scores");
    answer_rows(r->scores, n);
    double *numbers = answer_numbers(&r->answer, r->scores, CELLS, "line", LENS_WHOLES);
    answer_keys(r->scores, 1);
    for (size_t i = 0; numbers && i < n; i++)
        numbers[i] = (double)(i + 1);
    return r->ctx.status;
}

/* >> The question ============================================================================== */

/* Lets the reader of lines read those of the caller. */
static int give_requests(score_run *r, const lens_query *q)
{
    json_out all = {NULL, 0, 0, 0, 0};
    for (const lens_given *g = q->texts; g; g = g->next)
        for (size_t i = 0; i < g->n; i++) {
            const size_t begin = i ? (size_t)g->ends[i - 1] : 0, end = (size_t)g->ends[i];
            out_bytes(&all, g->bytes + begin, end - begin);
            out_bytes(&all, "\n", end == begin || g->bytes[end - 1] != '\n');
        }
    r->lines.buffer = all.text;
    r->lines.end = all.size;
    r->lines.at_end = 1;
    return all.failed ? fail(FAILED, "no memory for the requests") : FINE;
}

static int score_answer_query(void *run, lens_query *q)
{
    score_run *const r = (score_run *)run;
    int code;
    take_settings(&r->ctx, &q->ctx);
    r->model = q->model;
    r->name = "the requests";
    r->shard = r->n_shards = 1;
    r->units = q->units;
    if ((code = give_requests(r, q)) != FINE)
        return code;
    if (!r->lines.end)
        return fail(USAGE, "score needs requests");
    q->answer = &r->answer;
    if (begin_score(r) || begin_scores(r))
        code = failed_run(r);
    q->ctx.status = r->ctx.status;
    return code;
}

static int score_step_query(void *run, lens_query *q, double *done)
{
    score_run *const r = (score_run *)run;
    int at_end = 0;
    r->ctx.stop_flag = q->ctx.stop_flag;
    const int code = answer_some(r, &at_end, add_answer_row);
    *done = at_end && r->n == 0 ? 1 : 0.999 * (double)r->lines.n_bytes / (double)r->lines.end;
    if (code == FINE && *done >= 1 && !r->has_answer)
        return fail(FAILED, "no request could be answered, of %llu. The first error: %s",
                    TOOLS_LLU(r->lines.n_lines), r->first_error);
    if (*done >= 1 && r->units)
        units_to(r->units, NULL, r->lines.n_lines);
    q->ctx.status = r->ctx.status;
    return code;
}

static void score_end_query(void *run)
{
    end_score((score_run *)run);
}

static const lens_asked asked_score = {"score",
                                       score_settings,
                                       N_SCORE_SETTINGS,
                                       score_command_at,
                                       sizeof(score_run),
                                       offsetof(score_run, o),
                                       score_set_defaults,
                                       score_answer_query,
                                       score_step_query,
                                       NULL,
                                       NULL,
                                       score_end_query,
                                       0};

#endif

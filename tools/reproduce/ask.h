/* Questions to the commands of lens (tools/waist/query.h): a command with its settings as text, and numbers of a
 * column of the answer. */
#ifndef REPRODUCE_ASK_H
#define REPRODUCE_ASK_H

#include "study.h"

/* Settings that ask for the difference of two logits. */
#define DIFFERENCE " token=@1 against=@2"

/* What a question is about. */
typedef struct subject {
    const attn_token *text, *corrupted; /* [n_tokens]; NULL: there is none */
    size_t n_tokens;
    size_t at[3]; /* the numbers that the settings @0, @1 and @2 stand for */
} subject;

/* Pair i's clean text, or its corrupted one. @1 and @2 are the right name and the wrong one after the clean text. */
static subject prompt_of(study *s, const struct pairs *of, size_t i, size_t corrupted)
{
    s->part = i;
    s->n_parts = of->n;
    return (subject){of->tokens + (i ^ corrupted) * of->n_tokens,
                     NULL,
                     of->n_tokens,
                     {0, (size_t)of->answers[i][0], (size_t)of->answers[i][1]}};
}

/* An attn_progress_fn: the question is part of what a procedure does. */
static int asked_so_far(double done, void *user)
{
    study *const s = (study *)user;
    progress_at(&s->progress, ((double)s->part + done) / (double)s->n_parts);
    return interrupted;
}

/* Sets the settings of a question, "patch names=attn.hook_z token=@1". */
static attn_status set_words(study *s, lens_query *q, const char *line, const subject *about)
{
    char name[16], value[48];
    for (const char *word = strchr(line, ' '); word; word = strchr(word + 1, ' ')) {
        const char *const is = strchr(word, '=');
        snprintf(name, sizeof name, "%.*s", (int)(is - word - 1), word + 1);
        snprintf(value, sizeof value, "%.*s", (int)strcspn(is + 1, " "), is + 1);
        if (*value == '@')
            snprintf(value, sizeof value, "%zu", about->at[value[1] - '0']);
        if (lens_query_set(s->ctx, q, name, value, SIZE_MAX))
            break;
    }
    return s->ctx->status;
}

/* Asks a command with its settings. NULL after a message in the context. */
static lens_query *ask(study *s, attn_model *model, const char *line, const subject *about)
{
    char command[16];
    lens_query *q;
    snprintf(command, sizeof command, "%.*s", (int)strcspn(line, " "), line);
    if (lens_query_new(s->ctx, &q, model, command, LENS_FACE_C, 0) ||
        set_words(s, q, line, about) ||
        (about->text && lens_query_ids(s->ctx, q, "prompt", about->text, about->n_tokens)) ||
        (about->corrupted &&
         lens_query_ids(s->ctx, q, "corrupted", about->corrupted, about->n_tokens)) ||
        lens_query_run(s->ctx, q, asked_so_far, s)) {
        lens_query_free(q);
        return NULL;
    }
    return q;
}

/* The n numbers of a column of an answer, "heads.score"; NaN where one is missing. NULL after a message. */
static float *numbers_of(study *s, const lens_query *q, const char *name, size_t *n)
{
    const char *const column = strrchr(name, '.') + 1;
    char table[48];
    snprintf(table, sizeof table, "%.*s", (int)(column - name - 1), name);
    const answer_table *const t = answer_named(q->answer, table);
    for (size_t i = 0; t && i < t->n_columns; i++) {
        float *const out =
            strcmp(t->columns[i].name, column) == 0 ? room_for(s, *n = answer_n_rows(t)) : NULL;
        for (size_t k = 0; out && k < *n; k++)
            out[k] = (float)answer_number(t, &t->columns[i], k);
        if (out || s->ctx->status)
            return out;
    }
    tool_fail(s->ctx, ATTN_E_NAME, "lens %s: the answer has no %s", q->command, name);
    return NULL;
}

/* The tensor of an activation, or of its gradient, in an answer. Without one it has an error, which functions of
 * tensors pass on. */
static attn_tensor tensor_of(const lens_query *q, const char *name)
{
    const answer_table *const t = q ? answer_named(q->answer, name) : NULL;
    return t ? t->columns[t->n_columns - 1].tensor : (attn_tensor)ATTN_ZERO;
}

/* Asks for one column. NULL after a message. */
static float *ask_for(study *s, attn_model *model, const char *line, const char *column,
                      const subject *about, size_t *n)
{
    lens_query *const q = ask(s, model, line, about);
    float *const out = q ? numbers_of(s, q, column, n) : NULL;
    lens_query_free(q);
    return out;
}

#endif

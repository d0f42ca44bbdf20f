/* `convert` as a question of callers in the process (tools/waist/query.h), which needs no model. Its table `facts` has
 * the sizes of the new file. */
#ifndef CONVERT_ASKED_H
#define CONVERT_ASKED_H

#include "settings.h"
#include "tools/waist/query.h"

static const char *convert_command_at(size_t i, int *bits, const char **words, const char **about)
{
    *bits = OF_CONVERT;
    *words = "model output";
    *about = "makes a .attn file of a checkpoint, or a checkpoint of a .attn file";
    return i ? NULL : "convert";
}

/* A question, and its answer. */
typedef struct convert_run {
    conversion c;
    answer answer;
    arena memory;
} convert_run;

/* The notes, each ended by a zero, are sentences of the answer. */
static void answer_convert_notes(convert_run *r, json_out *notes)
{
    const char *text = arena_text(&r->c.ctx, &r->memory, notes->text, notes->size);
    const char *const end = text ? text + notes->size : NULL;
    for (; text < end; text += strlen(text) + 1)
        answer_note(&r->answer, text);
}

static void answer_convert_facts(convert_run *r)
{
    const conversion *const c = &r->c;
    const struct {
        const char *name;
        uint64_t value;
    } wholes[] = {{"bytes", c->n_bytes},
                  {"tensors", c->n_tensors},
                  {"parameters", c->n_parameters},
                  {"tokens", c->n_tokens}};
    answer_table *const facts = answer_facts(&r->answer);
    for (size_t i = 0; i < COUNT_OF(wholes); i++) {
        double *const at = answer_numbers(&r->answer, facts, CELLS, wholes[i].name, LENS_WHOLES);
        if (at)
            *at = (double)wholes[i].value;
    }
}

static int convert_answer_query(void *run, lens_query *q)
{
    convert_run *const r = (convert_run *)run;
    json_out notes = {NULL, 0, 0, 0, 0};
    take_settings(&r->c.ctx, &q->ctx);
    r->c.progress_fn = q->progress_fn;
    r->c.progress_user = q->progress_user;
    r->answer.ctx = &r->c.ctx;
    r->answer.memory = &r->memory;
    q->answer = &r->answer;
    if (!r->c.o.input || !r->c.o.output)
        return fail(USAGE, "convert needs a checkpoint and a name for what it makes");
    if (convert_check(&r->c.o) != FINE)
        return USAGE;
    source_notes = &notes;
    convert(&r->c);
    source_notes = NULL;
    answer_convert_notes(r, &notes);
    answer_convert_facts(r);
    out_free(&notes);
    q->ctx.status = r->c.ctx.status;
    return outcome(&r->c.ctx);
}

static void convert_end_query(void *run)
{
    end_conversion(&((convert_run *)run)->c);
    arena_free(&((convert_run *)run)->memory);
}

static const lens_asked asked_convert = {"convert",
                                         convert_settings,
                                         N_CONVERT_SETTINGS,
                                         convert_command_at,
                                         sizeof(convert_run),
                                         offsetof(convert_run, c.o),
                                         convert_set_defaults,
                                         convert_answer_query,
                                         NULL,
                                         NULL,
                                         NULL,
                                         convert_end_query,
                                         1};

#endif

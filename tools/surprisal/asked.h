/* surprisal as a program that answers questions of callers in the process (tools/waist/query.h): `surprisal` of texts, of a
 * table or of a file, and `suite` of a file. Both have a table `rows`, whose columns are those that the program prints, and
 * with the setting vectors the tensor `vectors` [row, width]. `columns` of a file that is a table has a table `columns`, with
 * the name of each and what its first record has. */
#ifndef SURPRISAL_ASKED_H
#define SURPRISAL_ASKED_H

#include "check.h"
#include "settings.h"
#include "tools/waist/query.h"

enum { CALLER_PASS = 64 }; /* tokens from one look for an interrupt to the next */

static const char *surprisal_command_at(size_t i, int *bits, const char **words, const char **about)
{
    static const char *const commands_of_surprisal[][3] = {
        {"surprisal", "texts", "how surprising each word of texts is"},
        {"suite", "file", "test suites of syntax and pairs of sentences"},
        {"columns", "file", "what columns a table has"}};
    if (i >= 3)
        return NULL;
    *bits = OF_SURPRISAL << i;
    *words = commands_of_surprisal[i][1];
    *about = commands_of_surprisal[i][2];
    return commands_of_surprisal[i][0];
}

/* All are zero. */
static void surprisal_set_defaults(void *options)
{
    (void)options;
}

/* >> Texts ===================================================================================== */

/* Column number `of` of the caller's table. */
static const lens_given *input_at(const lens_query *q, size_t of)
{
    const lens_given *g = q->texts;
    while (!g->is_input || of-- > 0)
        g = g->next;
    return g;
}

/* Takes texts, and checks that they are UTF-8. Returns where the next ones go; NULL after a message. */
static text_span *take_spans(surprisal_run *r, text_span *to, const lens_given *g)
{
    for (size_t i = 0; i < g->n; i++, to++) {
        const size_t begin = i ? (size_t)g->ends[i - 1] : 0;
        to->text = g->bytes + begin;
        to->size = (size_t)g->ends[i] - begin;
        if ((i == 0 && check_kind(r, to->text, to->size)) ||
            check_utf8(r, to->text, to->size, i + 1))
            return NULL;
    }
    return to;
}

static attn_status take_texts(surprisal_run *r, const lens_query *q)
{
    text_span *to;
    for (const lens_given *g = q->texts; g; g = g->next)
        r->input.n_records += g->n;
    to = r->input.texts =
        (text_span *)arena_alloc(&r->ctx, &r->memory, r->input.n_records + 1, sizeof *to);
    for (const lens_given *g = q->texts; g && to; g = g->next)
        to = take_spans(r, to, g);
    if (r->o.column && !r->ctx.status)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--column: there is no table, but only texts");
    return r->ctx.status;
}

/* The texts of a column of the caller's table. */
static text_span *take_input_column(surprisal_run *r, const lens_query *q, const char *option,
                                    size_t column)
{
    const lens_given *const g = input_at(q, column);
    text_span *const to = (text_span *)arena_alloc(&r->ctx, &r->memory, g->n + 1, sizeof *to);
    if (to && !g->ends)
        tool_fail(&r->ctx, ATTN_E_ARGUMENT, "%s: the column \"%.100s\" has no texts", option,
                  g->name);
    return to && g->ends && take_spans(r, to, g) ? to : NULL;
}

static attn_status take_table(surprisal_run *r, const lens_query *q)
{
    text_table *const t = &r->input;
    t->has_names = 1;
    t->n_records = input_at(q, 0)->n;
    t->names = (text_span *)arena_alloc(&r->ctx, &r->memory, q->n_given[1], sizeof *t->names);
    for (; t->names && t->n_columns < q->n_given[1]; t->n_columns++) {
        t->names[t->n_columns].text = input_at(q, t->n_columns)->name;
        t->names[t->n_columns].size = strlen(t->names[t->n_columns].text);
    }
    if (!t->names || check_kind(r, t->names[0].text, t->names[0].size) || find_columns(r))
        return r->ctx.status;
    t->texts = take_input_column(r, q, "--column", t->column);
    if (t->texts && r->o.region_names)
        t->lists = take_input_column(r, q, "--region-names", t->regions);
    if (t->texts && r->o.text_column)
        t->of_text = take_input_column(r, q, "--text-column", t->text);
    return r->ctx.status;
}

/* The bytes of the file, [*size]; NULL after a failure. */
static char *bytes_of_file(surprisal_run *r, size_t *size)
{
    FILE *const file = open_input(&r->ctx, r->name = r->o.file);
    char *bytes = NULL;
    *size = 0;
    if (file) {
        read_all(&r->ctx, &r->memory, file, r->name, (size_t)1 << 30, &bytes, size);
        fclose(file);
    }
    return r->ctx.status ? NULL : bytes;
}

static attn_status take_file(surprisal_run *r)
{
    size_t size;
    char *const text = bytes_of_file(r, &size);
    return text ? read_input(r, text, size) : r->ctx.status;
}

static attn_status take_question(surprisal_run *r, const lens_query *q)
{
    if ((r->o.file != NULL) + (q->n_given[0] > 0) + (q->n_given[1] > 0) != 1)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "%s %s", q->command,
                         r->o.is_suite ? "needs a file"
                                       : "needs texts, a table with a column of them, or a file");
    return r->o.file ? take_file(r) : q->n_given[1] ? take_table(r, q) : take_texts(r, q);
}

/* A table that has no records, or the first one is refused, has the names alone. */
static attn_status answer_columns(surprisal_run *r)
{
    text_table *const t = &r->input;
    table_reader in = {NULL, NULL, 1, ','};
    char *text;
    size_t size;
    r->answer.ctx = &r->ctx;
    r->answer.memory = &r->memory;
    if (!r->o.file)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "columns needs a file");
    if (!(text = bytes_of_file(r, &size)) || to_lines(r, text, &size))
        return r->ctx.status;
    in.at = text;
    in.end = text + size;
    if (read_header(r, &in) && t->n_columns == 0)
        return r->ctx.status;
    r->ctx.status = ATTN_OK; /* no column was chosen */
    const int has_first = in.at < in.end && read_record(r, &in) == ATTN_OK;
    r->ctx.status = ATTN_OK;
    answer_table *const to = answer_add(&r->answer, "columns");
    answer_rows(to, t->n_columns);
    const char **const names = answer_texts(&r->answer, to, CELLS, "name");
    const char **const first = answer_texts(&r->answer, to, CELLS, "first");
    for (size_t i = 0; names && first && i < t->n_columns; i++) {
        names[i] = arena_text(&r->ctx, &r->memory, t->names[i].text, t->names[i].size);
        first[i] =
            has_first ? arena_text(&r->ctx, &r->memory, t->cells[i].text, t->cells[i].size) : NULL;
    }
    return r->ctx.status;
}

/* >> The answer ================================================================================ */

/* A vector_fn. */
static int keep_vector(surprisal_run *r, uint64_t row)
{
    (void)row;
    out_bytes(&r->vectors, (const char *)r->pooled, r->width * sizeof(float));
    r->row.failed |= r->vectors.failed;
    return 0;
}

static int fail_query(const surprisal_run *r, lens_query *q)
{
    q->ctx.status = r->ctx.status;
    return fail_run(r);
}

static int surprisal_answer_query(void *run, lens_query *q)
{
    surprisal_run *const r = (surprisal_run *)run;
    take_settings(&r->ctx, &q->ctx);
    r->model = q->model;
    r->model_name = "the model";
    r->o.batch = r->n_pass = CALLER_PASS;
    r->form = AS_TABLE;
    r->units = q->units;
    r->vector_fn = keep_vector;
    r->o.is_suite = strcmp(q->command, "suite") == 0;
    if (q->bits == OF_COLUMNS ? answer_columns(r)
                              : (check_for_model(r) || take_question(r, q) || begin_surprisal(r)))
        return fail_query(r, q);
    for (size_t i = 0; r->table && i < r->table->n_columns; i++) {
        answer_column *const c = &r->table->columns[i];
        if (c->kind != LENS_CARRIED)
            continue;
        c->bytes = input_at(q, c->source)->bytes;
        c->ends = input_at(q, c->source)->ends;
    }
    q->answer = &r->answer;
    return FINE;
}

static int surprisal_step_query(void *run, lens_query *q, double *done)
{
    static const char *const axes[4] = {"row", "width"};
    surprisal_run *const r = (surprisal_run *)run;
    r->ctx.stop_flag = q->ctx.stop_flag;
    *done = 1;
    if (q->bits != OF_COLUMNS && surprisal_pass(r, done))
        return fail_query(r, q);
    if (r->values)
        show_values(r);
    if (*done >= 1 && r->n_parts)
        answer_dense(
            &r->answer, "vectors", axes, "value",
            attn_borrow(r->vectors.text, ATTN_F32, attn_shape2((size_t)r->n_records, r->width)));
    return r->ctx.status ? fail_query(r, q) : FINE;
}

static void surprisal_end_query(void *run)
{
    free_surprisal((surprisal_run *)run);
}

static const lens_asked asked_surprisal = {"surprisal",
                                           surprisal_settings,
                                           N_SURPRISAL_SETTINGS,
                                           surprisal_command_at,
                                           sizeof(surprisal_run),
                                           offsetof(surprisal_run, o),
                                           surprisal_set_defaults,
                                           surprisal_answer_query,
                                           surprisal_step_query,
                                           NULL,
                                           NULL,
                                           surprisal_end_query,
                                           0};

#endif

/* A question to a model for a caller in the process, whatever the language: settings by name as text, an answer of
 * tables. The programs lens, surprisal and score are asked in the same way, by the names of their commands and options:
 *
 *     lens_query_new(&ctx, &q, model, "patch", LENS_FACE_C, 0)
 *     lens_query_set(&ctx, q, "prompt", "Tom was a boy. He", SIZE_MAX)
 *     lens_query_set(&ctx, q, "corrupted", "Tom was a girl. He", SIZE_MAX)
 *     lens_query_set(&ctx, q, "by", "heads", SIZE_MAX)
 *     lens_query_run(&ctx, q, progress_fn, user)
 *     for (t = 0; lens_query_table(&table, q, t); t++)                 "facts", "heads" ...
 *         for (i = 0; lens_query_column(&ctx, &column, q, t, i); i++)
 *     lens_query_note(q, i)                                            sentences
 *     lens_query_form(&ctx, q, "svg", &bytes, &size)                   or html, text, json, csv
 *     lens_query_free(q)
 *
 * Many texts are given at once, and so is a table with a column of them:
 *
 *     lens_query_new(&ctx, &q, model, "surprisal", LENS_FACE_C, 0)
 *     lens_query_texts(&ctx, q, "texts", bytes, ends, n)
 *     or  lens_query_input(&ctx, q, "sentence", bytes, ends, n)        each column of the table, in their order;
 *         lens_query_input(&ctx, q, "age", NULL, NULL, n)              of one without texts the name
 *         lens_query_set(&ctx, q, "column", "sentence", SIZE_MAX)      which one has the texts
 *
 * The table's other columns are LENS_CARRIED in the answer: `source` says which they are, and `numbers` which row of the
 * caller's table each row has.
 *
 * One thread at a time uses a query; different threads use different ones. A query prints nothing and reads no standard
 * input. The model must outlive it, and what it gives lives as long as the query. After a failure ctx->message is a
 * sentence in the words of the face, and the query can only be freed. The names of tables and columns are those of
 * `lens COMMAND --help columns`. */
#ifndef WAIST_QUERY_H
#define WAIST_QUERY_H

#include "units.h"
#include "tools/common/prompt.h"
#include "tools/write/new_file.h"

#ifndef LENS_FN
#define LENS_FN TOOLS_FN
#endif

/* Who asks: the words of messages. */
enum { LENS_FACE_C, LENS_FACE_PYTHON, LENS_FACE_R, LENS_FACE_PAGE, LENS_N_FACES };
enum { LENS_QUERY_NO_FILES = 1 }; /* a flag: settings that name files are refused */

typedef struct lens_query lens_query;

/* A program that answers: its options, its commands, and what a query of it calls. `run` is what it keeps of one. */
typedef struct lens_asked {
    const char *name;
    const struct option *table;
    size_t n_options;
    command_at *command;
    size_t run_size, options_at; /* of its run, which is zeroed; of the options in it */
    void (*set_defaults)(void *options);
    /* From here on the run has the options. fail's sentence is the message. Returns an exit code. */
    int (*answer)(void *run, lens_query *q);
    /* Goes on with what `answer` began; *done is the share that is done, 1 at the end. NULL: `answer` did all. */
    int (*step)(void *run, lens_query *q, double *done);
    int (*form)(void *run, const char *form, json_out *to);  /* NULL: answer_form does */
    int (*save)(void *run, lens_query *q, const char *path); /* NULL: as save_form */
    void (*end)(void *run);
    int is_of_files; /* its questions need no model: the setting `model` names a file, and lists of commands leave them out */
} lens_asked;

/* Texts that a caller gave at once: for a setting, or a column of the caller's table. */
typedef struct lens_given {
    const char *name;
    int is_input; /* a column of the table */
    const char *bytes;
    const uint64_t *ends; /* [n]; NULL: the column has no texts */
    size_t n;
    struct lens_given *next;
} lens_given;

struct lens_query {
    attn_ctx ctx; /* the caller's settings */
    /* while a call runs: the caller's stop_flag in ctx, fail's sentence, and the locale before */
    char sentence[FAILURE_SIZE];
    system_locale before;
    arena memory;
    const lens_asked *of;
    void *run, *options;
    int bits; /* of the command, in the table of options */
    const char *command, *words;
    int face;
    unsigned flags;
    unsigned char given[MOST_OPTIONS];
    const char **line; /* [n_line]: the command line that asks the same */
    size_t n_line, line_room;
    lens_given *texts, **next_texts; /* in their order */
    size_t n_given[2];               /* of settings, and of columns */
    attn_model *model;
    attn_progress_fn progress_fn;
    void *progress_user;
    const answer *answer; /* NULL: the run did not begin yet */
    answer_units *units;  /* of which a run makes digests, for receipts; or NULL */
    int is_done;
    json_out form;
};

/* A table of the answer. Its first n_keys columns identify a row; 0: no columns do. axes [n_axes] are their lengths, and their product is
 * n_rows. */
typedef struct lens_table {
    const char *name;
    size_t n_rows, n_columns, n_keys, n_axes, axes[ANSWER_AXES];
    int is_dense; /* one large tensor: ask for it rather than for rows */
} lens_table;

/* A column, row by row. Text i is bytes [ends[i - 1], ends[i]), any bytes, as tokens have them; LENS_LISTS are texts of
 * JSON. A value is missing where numbers has NaN, and a text where is_missing is not 0. A LENS_CARRIED one is column
 * `source`, from 0, of the caller's table, of which numbers has the rows, from 1. */
typedef struct lens_values {
    const char *name;
    int kind; /* a lens_kind */
    int axis; /* it has one value for each place of this axis of the table, repeated; -1: a value for each row */
    size_t source, n;
    const double *numbers;
    const char *bytes;
    const uint64_t *ends;
    const unsigned char *is_missing;
} lens_values;

/* A setting of a command, for signatures, help, completion and schemas. */
typedef struct lens_setting {
    char name[40];        /* as faces spell it */
    char usual[40];       /* the default as text; "": it has none */
    const char *option;   /* as the program spells it, without dashes */
    const char *argument; /* what it takes, in capitals; NULL: a flag */
    const char *
        takes; /* of numbers "least most", of choices the names with blanks between them; else NULL */
    const char *help;
    int kind;                /* an enum kind */
    int word;                /* 1, 2 ...: which word of the command it is; 0: none */
    int is_many;             /* lens_query_texts may give many at once */
    int is_file, is_negated; /* is_negated: the option is "no-NAME", and NAME=false sets it */
} lens_setting;

/* >> Names ===================================================================================== */

/* Has an option this name, as the program or as faces spell it? *negated as above. */
TOOLS_FN int is_option_named(const struct option *o, const char *name, int *negated)
{
    char spelled[40];
    if (strcmp(o->name, name) == 0) {
        *negated = 0;
        return 1;
    }
    spell_face_name(spelled, o->name, strlen(o->name), negated);
    return strcmp(spelled, name) == 0;
}

/* An option that names a file for the program alone: a caller switches it on. */
TOOLS_FN int is_flag_of_callers(const struct option *o)
{
    return o->kind == FLAG || strcmp(o->name, "each") == 0;
}

/* Options that a caller in the process has no use for. */
TOOLS_FN int is_of_programs(const lens_asked *of, const struct option *o)
{
    static const char *const names[] = {"model",          "json",  "quiet", "threads", "isa",
                                        "skip-checksums", "batch", "table", "receipt"};
    for (size_t i = of->is_of_files != 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(o->name, names[i]) == 0)
            return 1;
    return o->kind == ASK;
}

/* The row of the table that decides how an option of the command is read, which is the first of its name; *row is the
 * one that the command knows. NULL: it knows none. */
TOOLS_FN const struct option *find_setting(const lens_asked *of, int bits, const char *name,
                                           int *negated, size_t *row)
{
    const struct option *first = NULL;
    for (size_t i = 0; i < of->n_options; i++)
        if (!is_of_programs(of, &of->table[i]) && is_option_named(&of->table[i], name, negated)) {
            first = first && strcmp(first->name, of->table[i].name) == 0 ? first : &of->table[i];
            *row = i;
            if (of->table[i].commands & bits)
                return first;
        }
    return NULL;
}

/* Which word of a command a setting is, from 1; 0: none. */
TOOLS_FN int word_number(const char *words, const char *name)
{
    size_t size;
    for (int i = 0; *(words = name_at(words, i ? 1 : 0, &size)); i++)
        if (strlen(name) == size && strncmp(words, name, size) == 0)
            return i + 1;
    return 0;
}

/* >> Messages ================================================================================== */

/* Copies a sentence in which options are spelt as the face spells them: "--no-bos" as "bos=False". */
TOOLS_FN void spell_options(char *out, size_t room, const char *text, int face)
{
    static const char *const no[LENS_N_FACES] = {"", "=False", " = FALSE", ": false"};
    char name[40];
    size_t used = 0;
    int negated;
    while (*text && used + 64 < room) {
        const int begins = face != LENS_FACE_C && strncmp(text, "--", 2) == 0 &&
                           (!used || strchr(" (", out[used - 1]));
        const size_t n = begins ? strspn(text + 2, "abcdefghijklmnopqrstuvwxyz0123456789-") : 0;
        if (n == 0 || n >= sizeof name) {
            out[used++] = *text++;
            continue;
        }
        spell_face_name(name, text + 2, n, &negated);
        used += (size_t)snprintf(out + used, room - used, "%s%s", name, negated ? no[face] : "");
        text += 2 + n;
    }
    out[used] = 0;
}

/* Begins a call of the caller's, which give_back ends. */
TOOLS_FN void begin_call(const attn_ctx *ctx, lens_query *q)
{
    q->before = system_plain_numbers();
    q->ctx.stop_flag = ctx->stop_flag; /* it lives no longer than the call */
    q->sentence[0] = 0;
    failure = q->sentence;
}

/* Gives the caller a failure: the sentence of `fail`, or that of the library. */
TOOLS_FN attn_status give_back(attn_ctx *ctx, lens_query *q, int code)
{
    char spelled[FAILURE_SIZE + 128];
    const attn_status status = code == INTERRUPTED ? ATTN_STOPPED
                               : q->ctx.status     ? q->ctx.status
                                                   : ATTN_E_ARGUMENT;
    failure = NULL;
    q->ctx.stop_flag = NULL;
    system_restore_numbers(q->before);
    if (code == FINE)
        return ATTN_OK;
    spell_options(spelled, sizeof spelled, *q->sentence ? q->sentence : q->ctx.message, q->face);
    return attn_fail(ctx, status, "%s", code == INTERRUPTED ? "stopped" : spelled);
}

/* >> Asking ==================================================================================== */

TOOLS_FN const lens_asked *const *asked_programs(void); /* all of them, and NULL: library.c */

/* Finds a command; *bits and *words are its own. NULL: there is none of that name. */
TOOLS_FN const lens_asked *find_asked(const char *name, int *bits, const char **words,
                                      const char **about)
{
    const char *found;
    for (const lens_asked *const *p = asked_programs(); *p; p++)
        for (size_t i = 0; (found = (*p)->command(i, bits, words, about)) != NULL; i++)
            if (strcmp(found, name) == 0)
                return *p;
    return NULL;
}

/* The name of command i, and what it does; NULL: there are fewer. */
LENS_FN const char *lens_query_command(size_t i, const char **about)
{
    const char *name, *words;
    size_t n;
    int bits;
    for (const lens_asked *const *p = asked_programs(); *p && !(*p)->is_of_files; p++, i -= n)
        for (n = 0; (name = (*p)->command(n, &bits, &words, about)) != NULL; n++)
            if (n == i)
                return name;
    return NULL;
}

/* Adds a word to the command line that asks the same. */
TOOLS_FN attn_status add_word(lens_query *q, const char *format, ...) TOOLS_PRINTF(2, 3);
TOOLS_FN attn_status add_word(lens_query *q, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *const word = arena_words_of(&q->ctx, &q->memory, format, args);
    va_end(args);
    const char **const line = (const char **)answer_grown(
        &q->ctx, &q->memory, (void *)q->line, q->n_line + 1, &q->line_room, sizeof *line);
    if (!word || !line)
        return q->ctx.status;
    q->line = line;
    q->line[q->n_line++] = word;
    return ATTN_OK;
}

/* What a context of a run has from that of the query, and that one from the caller's. */
TOOLS_FN void take_settings(attn_ctx *ctx, const attn_ctx *from)
{
    ctx->n_threads = from->n_threads;
    ctx->isa = from->isa;
    ctx->alloc = from->alloc;
    ctx->free = from->free;
    ctx->user = from->user;
    ctx->stop_flag = from->stop_flag;
}

/* NULL is allowed. */
LENS_FN void lens_query_free(lens_query *q)
{
    if (!q)
        return;
    if (q->run)
        q->of->end(q->run);
    out_free(&q->form);
    attn_ctx_free(&q->ctx);
    arena_free(&q->memory);
    free(q);
}

/* Begins a question. ctx gives threads and instruction set. */
LENS_FN attn_status lens_query_new(attn_ctx *ctx, lens_query **out, attn_model *model,
                                   const char *command, int face, unsigned flags)
{
    lens_query *const q = (lens_query *)calloc(1, sizeof *q);
    const char *about;
    *out = NULL;
    if (!q)
        return attn_fail(ctx, ATTN_E_MEMORY, "no memory for a question");
    q->of = find_asked(command, &q->bits, &q->words, &about);
    if (!q->of) {
        free(q);
        return attn_fail(ctx, ATTN_E_ARGUMENT, "there is no command %.100s", command);
    }
    if (!model && !q->of->is_of_files) {
        free(q);
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%.100s needs a model", command);
    }
    q->command = command;
    q->face = face;
    q->flags = flags;
    q->model = model;
    q->next_texts = &q->texts;
    take_settings(&q->ctx, ctx);
    q->ctx.stop_flag = NULL;
    q->run = arena_alloc(&q->ctx, &q->memory, 1, q->of->run_size);
    if (!q->run || add_word(q, "MODEL.attn") || add_word(q, "%s", command)) {
        q->run = NULL;
        lens_query_free(q);
        return attn_fail(ctx, ATTN_E_MEMORY, "no memory for a question");
    }
    q->command = q->line[1];
    q->options = (char *)q->run + q->of->options_at;
    q->of->set_defaults(q->options);
    *out = q;
    return ATTN_OK;
}

TOOLS_FN int is_flag_value(const char *value, int *on)
{
    *on = strcmp(value, "1") == 0 || strcmp(value, "true") == 0 || strcmp(value, "TRUE") == 0;
    return *on || strcmp(value, "0") == 0 || strcmp(value, "false") == 0 ||
           strcmp(value, "FALSE") == 0;
}

TOOLS_FN int set_by_text(lens_query *q, const struct option *o, int negated, const char *name,
                         char *value)
{
    int on = 0;
    if (is_flag_of_callers(o)) {
        if (!is_flag_value(value, &on))
            return fail(USAGE, "--%s: \"%.100s\" is neither true nor false", name, value);
        if (o->kind == FLAG)
            *(int *)(void *)((char *)q->options + o->at) = on != negated;
        else
            *(const char **)(void *)((char *)q->options + o->at) = on ? "-" : NULL;
        q->given[o - q->of->table] = on != negated;
        return on == negated || add_word(q, "--%s", o->name) == ATTN_OK ? FINE : failed(&q->ctx);
    }
    if (negated)
        return fail(USAGE, "--%s means nothing to %s", name, q->command);
    if (takes_path(o) && q->flags & LENS_QUERY_NO_FILES)
        return fail(USAGE, "--%s: files are not read or written here", o->name);
    if (takes_path(o) && strcmp(value, "-") == 0)
        return fail(USAGE, "--%s: a caller's standard input is not read", o->name);
    q->given[o - q->of->table] = 1;
    for (char *at = value; o->kind == CHOICE && *at; at++)
        *at = (char)(*at == '_' ? '-' : *at);
    if (add_word(q, "--%s", o->name) || add_word(q, "%s", value))
        return failed(&q->ctx);
    return set_option(q->options, o, value);
}

/* Keeps n texts. ends NULL: only their name and number. */
TOOLS_FN int keep_texts(lens_query *q, int is_input, const char *name, const char *bytes,
                        const uint64_t *ends, size_t n)
{
    lens_given *const to = (lens_given *)arena_alloc(&q->ctx, &q->memory, 1, sizeof *to);
    uint64_t *const copied = (uint64_t *)arena_alloc(&q->ctx, &q->memory, n + 1, sizeof *copied);
    if (!to || !copied)
        return failed(&q->ctx);
    if (ends && n)
        memcpy(copied, ends, n * sizeof *copied);
    to->ends = ends ? copied : NULL;
    to->n = n;
    to->is_input = is_input;
    to->name = arena_text(&q->ctx, &q->memory, name, strlen(name));
    to->bytes = arena_text(&q->ctx, &q->memory, bytes, ends && n ? (size_t)ends[n - 1] : 0);
    *q->next_texts = to;
    q->next_texts = &to->next;
    q->n_given[is_input]++;
    return outcome(&q->ctx);
}

/* Sets what the setting `name` has, in the spelling of the program or of faces. size SIZE_MAX: value ends at its zero.
 * Where the table has is_many, a second value is added. A flag takes 1 or 0, true or false. A choice may have
 * _ for -. Range, choice and whether the command knows the setting are checked here; what belongs together, in
 * lens_query_run. */
LENS_FN attn_status lens_query_set(attn_ctx *ctx, lens_query *q, const char *name,
                                   const char *value, size_t size)
{
    size_t row;
    int negated = 0, code = FINE;
    const struct option *const o = find_setting(q->of, q->bits, name, &negated, &row);
    const uint64_t end = size == SIZE_MAX ? strlen(value) : size;
    char *const text = arena_text(&q->ctx, &q->memory, value, (size_t)end);
    begin_call(ctx, q);
    if (!text)
        code = failed(&q->ctx);
    else if (!o)
        code = fail(USAGE, "--%s means nothing to %s", name, q->command);
    else if (o->kind == COLUMN)
        code = keep_texts(q, 0, o->name, value, &end, 1);
    else if (size != SIZE_MAX && memchr(value, 0, size))
        code = fail(USAGE, "--%s: the text has a zero byte; take it out", o->name);
    else
        code = set_by_text(q, o, negated, name, text);
    return give_back(ctx, q, code);
}

TOOLS_FN int takes_many(const struct option *o)
{
    return o->kind == TEXTS || o->kind == COLUMN;
}

/* Adds n texts to a setting that is_many: number i is bytes [ends[i - 1], ends[i]). */
LENS_FN attn_status lens_query_texts(attn_ctx *ctx, lens_query *q, const char *name,
                                     const char *bytes, const uint64_t *ends, size_t n)
{
    attn_status status = ATTN_OK;
    size_t row;
    int negated = 0;
    const struct option *const o = find_setting(q->of, q->bits, name, &negated, &row);
    if (o && (o->kind == COLUMN || (n > 1 && !takes_many(o)))) {
        begin_call(ctx, q);
        return give_back(ctx, q,
                         o->kind == COLUMN
                             ? keep_texts(q, 0, o->name, bytes, ends, n)
                             : fail(USAGE, "--%s takes one value, not %zu", o->name, n));
    }
    for (size_t i = 0; status == ATTN_OK && i < n; i++)
        status = lens_query_set(ctx, q, name, bytes + (i ? ends[i - 1] : 0),
                                (size_t)(ends[i] - (i ? ends[i - 1] : 0)));
    return status;
}

/* Adds a column to the table of a command that reads one, behind those that were given: its texts, as above, or with
 * ends NULL its name alone. n: rows of the table. */
LENS_FN attn_status lens_query_input(attn_ctx *ctx, lens_query *q, const char *column,
                                     const char *bytes, const uint64_t *ends, size_t n)
{
    const lens_given *first = q->texts;
    size_t row;
    int negated, code;
    while (first && !first->is_input)
        first = first->next;
    begin_call(ctx, q);
    if (!find_setting(q->of, q->bits, "column", &negated, &row))
        code = fail(USAGE, "%s reads no table", q->command);
    else if (first && first->n != n)
        code = fail(USAGE, "the column \"%.100s\" has %zu rows, but \"%.100s\" has %zu", column, n,
                    first->name, first->n);
    else
        code = keep_texts(q, 1, column, bytes, ends, n);
    return give_back(ctx, q, code);
}

/* A text by its token ids, [n]. `name` is prompt or corrupted. */
LENS_FN attn_status lens_query_ids(attn_ctx *ctx, lens_query *q, const char *name,
                                   const attn_token *ids, size_t n)
{
    char *const list = (char *)arena_alloc(&q->ctx, &q->memory, n + 1, 12), *at = list;
    const int is_corrupted = strcmp(name, "corrupted") == 0;
    if (!is_corrupted && strcmp(name, "prompt") != 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%.100s: token ids stand for no text here", name);
    if (!list)
        return attn_fail(ctx, q->ctx.status, "%s", q->ctx.message);
    for (size_t i = 0; i < n; i++)
        at += snprintf(at, 12, i ? " %ld" : "%ld", (long)ids[i]);
    return lens_query_set(ctx, q, is_corrupted ? "corrupted-ids" : "ids", list, SIZE_MAX);
}

TOOLS_FN int begin_question(lens_query *q)
{
    const int code =
        refuse_overwriting(q->of->table, q->of->n_options, q->given, q->options, NULL, 0);
    return code == FINE ? q->of->answer(q->run, q) : code;
}

/* Begins to answer, or goes on. *done: the share that is done, 1 at the end. Between the steps, of which most commands have
 * only one, the answer has what is known so far. ctx->stop_flag may end a step, with ATTN_STOPPED. */
LENS_FN attn_status lens_query_step(attn_ctx *ctx, lens_query *q, double *done)
{
    begin_call(ctx, q);
    *done = q->of->step ? 0 : 1;
    int code = q->is_done ? fail(USAGE, "a question is asked once: make another query")
               : q->answer && q->of->step ? q->of->step(q->run, q, done)
                                          : begin_question(q);
    q->is_done = code != FINE || *done >= 1;
    return give_back(ctx, q, code);
}

/* Takes all steps. progress_fn (may be NULL) gets the share of the work that is done, after each batch. It, or
 * ctx->stop_flag, may end the run, with ATTN_STOPPED. */
LENS_FN attn_status lens_query_run(attn_ctx *ctx, lens_query *q, attn_progress_fn progress_fn,
                                   void *user)
{
    double done = 0;
    attn_status status = ATTN_OK;
    q->progress_fn = progress_fn;
    q->progress_user = user;
    while (status == ATTN_OK && done < 1) {
        status = lens_query_step(ctx, q, &done);
        if (status == ATTN_OK && q->of->step && progress_fn && progress_fn(done, user))
            status = attn_fail(ctx, ATTN_STOPPED, "stopped");
    }
    return status;
}

/* >> The answer ================================================================================ */

/* Table t of the answer; 0: there are fewer. */
LENS_FN int lens_query_table(lens_table *out, const lens_query *q, size_t t)
{
    if (!q->answer || t >= q->answer->n_tables)
        return 0;
    const answer_table *const from = q->answer->tables[t];
    out->name = from->name;
    out->n_rows = answer_n_rows(from);
    out->n_columns = from->n_columns;
    out->n_keys = from->n_keys;
    out->n_axes = (size_t)from->n_axes;
    memcpy(out->axes, from->axes, sizeof out->axes);
    out->is_dense = from->is_dense;
    return 1;
}

TOOLS_FN attn_status make_texts(lens_query *q, lens_values *out, const answer_table *t,
                                const answer_column *c)
{
    uint64_t *const ends = (uint64_t *)arena_alloc(&q->ctx, &q->memory, out->n + 1, sizeof *ends);
    unsigned char *const missing = (unsigned char *)arena_alloc(&q->ctx, &q->memory, out->n + 1, 1);
    size_t size, used = 0;
    char *bytes;
    for (size_t row = 0; row < out->n; row++, used += size)
        answer_text(t, c, row, &size);
    if (!(bytes = (char *)arena_alloc(&q->ctx, &q->memory, used + 1, 1)) || !ends || !missing)
        return q->ctx.status;
    used = 0;
    for (size_t row = 0; row < out->n; row++, ends[row - 1] = used) {
        const char *const text = answer_text(t, c, row, &size);
        missing[row] = text == NULL;
        if (text)
            memcpy(bytes + used, text, size);
        used += size;
    }
    out->bytes = bytes;
    out->ends = ends;
    out->is_missing = missing;
    return ATTN_OK;
}

/* What column i of table t is; of its values only the numbers of one that runs along an axis, a number for each place.
 * 0: there are fewer. */
LENS_FN int lens_query_about(lens_values *out, const lens_query *q, size_t t, size_t i)
{
    if (!q->answer || t >= q->answer->n_tables || i >= q->answer->tables[t]->n_columns)
        return 0;
    const answer_column *const c = &q->answer->tables[t]->columns[i];
    memset(out, 0, sizeof *out);
    out->name = c->name;
    out->kind = (int)c->kind;
    out->axis = c->axis;
    out->numbers = c->axis == CELLS || is_text_kind(c->kind) ? NULL : c->numbers;
    out->n = answer_n_rows(q->answer->tables[t]);
    return 1;
}

/* Column i of table t, row by row; 0: there are fewer, or ctx has a failure. */
LENS_FN int lens_query_column(attn_ctx *ctx, lens_values *out, lens_query *q, size_t t, size_t i)
{
    if (!lens_query_about(out, q, t, i))
        return 0;
    const answer_table *const from = q->answer->tables[t];
    const answer_column *const c = &from->columns[i];
    if (c->kind == LENS_CARRIED) {
        out->source = c->source;
        out->numbers = c->numbers;
        return 1;
    }
    if (is_text_kind(c->kind)) {
        if (make_texts(q, out, from, c))
            return attn_fail(ctx, q->ctx.status, "%s", q->ctx.message), 0;
        return 1;
    }
    if (c->axis == CELLS && !c->tensor.ndim) {
        out->numbers = c->numbers;
        return 1;
    }
    double *const numbers = (double *)arena_alloc(&q->ctx, &q->memory, out->n + 1, sizeof *numbers);
    if (!numbers)
        return attn_fail(ctx, q->ctx.status, "%s", q->ctx.message), 0;
    for (size_t row = 0; row < out->n; row++)
        numbers[row] = answer_number(from, c, row);
    out->numbers = numbers;
    return 1;
}

/* Column i of table t where it lies, without a copy: a tensor [axes]. 0: it is no tensor. */
LENS_FN int lens_query_tensor(attn_tensor *out, const lens_query *q, size_t t, size_t i)
{
    if (!q->answer || t >= q->answer->n_tables || i >= q->answer->tables[t]->n_columns ||
        !q->answer->tables[t]->columns[i].tensor.ndim)
        return 0;
    *out = q->answer->tables[t]->columns[i].tensor;
    return 1;
}

/* Sentence i; NULL: there are fewer. */
LENS_FN const char *lens_query_note(const lens_query *q, size_t i)
{
    return q->answer && i < q->answer->n_notes ? q->answer->notes[i] : NULL;
}

/* Appends the answer in a form. */
TOOLS_FN int make_form(lens_query *q, const char *form, json_out *to)
{
    if (!q->answer)
        return fail(USAGE, "the question was not asked yet");
    if (q->of->form)
        return q->of->form(q->run, form, to);
    return answer_form((answer_sink){to, NULL}, q->answer, form)
               ? FINE
               : fail(USAGE, "there is no form \"%.20s\"; choose csv, json or lines", form);
}

/* The answer as text, json, csv, svg or html. *bytes end at a zero, and live until the next call. */
LENS_FN attn_status lens_query_form(attn_ctx *ctx, lens_query *q, const char *form,
                                    const char **bytes, size_t *size)
{
    json_out to = {NULL, 0, 0, 0, 0};
    begin_call(ctx, q);
    const int code = make_form(q, form, &to);
    out_free(&q->form);
    out_bytes(&to, "", 1);
    q->form = to;
    *bytes = q->form.text;
    *size = q->form.size ? q->form.size - 1 : 0;
    return give_back(ctx, q,
                     code == FINE && to.failed ? fail(FAILED, "no memory for the answer") : code);
}

/* Writes a file in the form that its name ends in: one of those that the program knows, or npz. */
TOOLS_FN int save_form(lens_query *q, const char *path)
{
    const char *const dot = strrchr(path, '.'), *const form = dot ? dot + 1 : "";
    json_out text = {NULL, 0, 0, 0, 0};
    lens_new_file *file;
    attn_status status = ATTN_OK;
    int code = strcmp(form, "npz") == 0 ? FINE : make_form(q, form, &text);
    if (code == FINE && lens_new_file_begin(&q->ctx, &file, path)) {
        code = failed(&q->ctx);
    } else if (code == FINE) {
        FILE *const stream = (FILE *)lens_new_file_stream(file);
        if (strcmp(form, "npz") == 0)
            status = answer_npz(q->answer, stream);
        else if (text.size)
            fwrite(text.text, 1, text.size, stream);
        if (lens_new_file_end(&q->ctx, file, text.failed ? ATTN_E_MEMORY : status))
            code = failed(&q->ctx);
    }
    out_free(&text);
    return code;
}

/* Writes the answer into a file by the ending of its name: .svg, .html, .csv, .json or .npz. After a failure the query
 * can still be used. */
LENS_FN attn_status lens_query_save(attn_ctx *ctx, lens_query *q, const char *path)
{
    begin_call(ctx, q);
    const int code = !q->answer    ? fail(USAGE, "the question was not asked yet")
                     : q->of->save ? q->of->save(q->run, q, path)
                                   : save_form(q, path);
    attn_status status = give_back(ctx, q, code);
    q->ctx.status = ATTN_OK;
    return status;
}

/* >> The table of settings ===================================================================== */

/* Setting i of a command, in the words of faces; 0: there are fewer. */
LENS_FN int lens_query_setting(lens_setting *out, const char *command, size_t i)
{
    const char *words, *about;
    int bits, negated;
    const lens_asked *const of = find_asked(command, &bits, &words, &about);
    void *const options = of ? calloc(1, of->run_size) : NULL;
    size_t row;
    if (options)
        of->set_defaults(options);
    for (size_t k = 0; options && k < of->n_options; k++) {
        if (!(of->table[k].commands & bits) || is_of_programs(of, &of->table[k]) || i-- > 0)
            continue;
        const struct option *const o = find_setting(of, bits, of->table[k].name, &negated, &row);
        spell_face_name(out->name, o->name, strlen(o->name), &out->is_negated);
        spell_usual(out->usual, options, o);
        free(options);
        out->option = o->name;
        out->argument = is_flag_of_callers(o) ? NULL : o->argument;
        out->takes = o->takes;
        out->help = of->table[k].help;
        out->kind = is_flag_of_callers(o) ? FLAG : (int)o->kind;
        out->word = word_number(words, o->name);
        out->is_many = takes_many(o);
        out->is_file = takes_path(o) && !is_flag_of_callers(o);
        return 1;
    }
    free(options);
    return 0;
}

#endif

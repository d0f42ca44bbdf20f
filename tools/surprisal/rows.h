/* Makes the rows of words: as CSV or JSON in `row`, or as a table that stays. */
#ifndef SURPRISAL_ROWS_H
#define SURPRISAL_ROWS_H

#include "vectors.h"

/* >> Cells ===================================================================================== */

/* Makes room for one more value. 0: there is no memory. */
static int grow_values(row_values *v)
{
    const size_t room = v->room ? 2 * v->room : 64;
    double *const numbers = (double *)realloc(v->numbers, room * sizeof *numbers);
    uint64_t *ends;
    if (!numbers)
        return 0;
    v->numbers = numbers;
    if (!(ends = (uint64_t *)realloc(v->ends, room * sizeof *ends)))
        return 0;
    v->ends = ends;
    v->room = room;
    return 1;
}

static void add_cell(surprisal_run *r, const char *text, size_t size, double number)
{
    row_values *const v = &r->values[r->n_cells++];
    if (v->n == v->room && !grow_values(v)) {
        r->row.failed = 1;
        return;
    }
    out_bytes(&v->texts, text, size);
    r->row.failed |= v->texts.failed;
    v->ends[v->n] = v->texts.size;
    v->numbers[v->n++] = number;
}

static void text_cell(surprisal_run *r, const char *text, size_t size)
{
    add_cell(r, text, size, 0);
}

static void count_cell(surprisal_run *r, size_t value)
{
    add_cell(r, "", 0, (double)value);
}

/* Of a number or a text that is not known. */
static void missing_cell(surprisal_run *r)
{
    add_cell(r, "", 0, (double)NAN);
}

/* Some bytes of a text, which may be parts of characters: those become U+FFFD. */
static void token_cell(surprisal_run *r, attn_token id)
{
    char whole[3 * (128 + 4)];
    attn_utf8 state = {{0}, 0};
    size_t size = 0;
    const char *const bytes = attn_token_bytes(&size, r->tokenizer, id);
    size = size < 124 ? size : 124;
    size_t n = attn_utf8_push(whole, &state, bytes ? bytes : "", bytes ? size : 0);
    n += attn_utf8_push(whole + n, &state, "", 0);
    text_cell(r, whole, n);
}

/* The number that six decimals show, made of whole numbers: C libraries may round the last digit of a double
 * differently. */
static double six_decimals(double value)
{
    const double millionths = floor(lens_rounded_product(fabs(value), 1e6) + 0.5);
    return !(millionths < 1e18) ? value
                                : (value < 0 && millionths > 0 ? -1 : 1) * (millionths / 1e6);
}

static void number_cell(surprisal_run *r, double value)
{
    add_cell(r, "", 0, six_decimals(value));
}

/* Shows the values so far as the table's columns. */
static void show_values(surprisal_run *r)
{
    answer_table *const t = r->table;
    t->axes[0] = r->values[0].n;
    for (size_t i = 0; i < t->n_columns; i++) {
        answer_column *const c = &t->columns[i];
        if (c->kind == LENS_CARRIED) { /* by the number of the text, which is the first column */
            c->numbers = r->values[0].numbers;
            continue;
        }
        c->numbers = r->values[i].numbers;
        c->bytes = r->values[i].texts.text;
        c->ends = r->values[i].ends;
    }
}

/* Writes the latest row into `row`, and forgets its values. */
static void print_row_of(surprisal_run *r, size_t row)
{
    show_values(r);
    r->row.size = 0;
    r->row.follows = 0;
    if (r->form == AS_CSV) {
        answer_csv_row(&r->row, r->table, row);
    } else {
        answer_json_row(&r->row, r->table, row);
        out_bytes(&r->row, "\n", 1);
    }
    for (size_t i = 0; i < r->table->n_columns; i++)
        r->values[i].n = r->values[i].texts.size = 0;
}

/* Adds the latest row to the unit of its text; of a suite it is a unit. */
static void add_row_to_units(surprisal_run *r)
{
    const size_t row = r->values[0].n - 1;
    const uint64_t unit = r->o.is_suite ? r->units->n : (uint64_t)r->values[0].numbers[row] - 1;
    show_values(r);
    units_to(r->units, r->table, unit);
    if (!r->units->is_open)
        unit_row(r->units, r->table, SIZE_MAX);
    if (r->n_parts)
        unit_floats(r->units, r->pooled, r->width);
    unit_row(r->units, r->table, row);
    if (r->o.is_suite)
        end_unit(r->units);
}

/* Ends a row. The first one of CSV has the names of the columns. */
static attn_status end_row(surprisal_run *r)
{
    const uint64_t number = r->n_records++;
    const int is_header = number == 0 && r->form == AS_CSV;
    r->n_cells = 0;
    if (r->units && !is_header && !r->row.failed)
        add_row_to_units(r);
    if (r->form != AS_TABLE && !r->row.failed)
        print_row_of(r, is_header ? SIZE_MAX : 0);
    if (r->row.failed)
        return tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for a row");
    return r->row_fn && (number >= r->skip || is_header) && r->row_fn(r, number) ? ATTN_STOPPED
                                                                                 : ATTN_OK;
}

/* >> Names of columns ========================================================================== */

static void add_column(surprisal_run *r, lens_kind kind, const char *format, ...)
    TOOLS_PRINTF(3, 4);
static void add_column(surprisal_run *r, lens_kind kind, const char *format, ...)
{
    value_name name;
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    answer_column *c = answer_column_new(&r->answer, r->table, CELLS,
                                         arena_text(&r->ctx, &r->memory, name, strlen(name)), kind);
    if (c)
        c->has_millionths = kind == LENS_NUMBERS;
}

/* Names the columns of words, but for those that are carried. */
static void name_columns(surprisal_run *r)
{
    add_column(r, LENS_WHOLES, "text");
    add_column(r, LENS_WHOLES, "index");
    add_column(r, LENS_TEXTS, "word");
    add_column(r, LENS_WHOLES, "tokens");
    add_column(r, LENS_NUMBERS, "surprisal");
    add_column(r, LENS_NUMBERS, "uncorrected");
    add_column(r, LENS_NUMBERS, "entropy");
    if (r->o.entropy_reduction)
        add_column(r, LENS_NUMBERS, "entropy_reduction");
    if (r->o.renyi > 0)
        add_column(r, LENS_NUMBERS, "renyi");
    for (size_t i = 0; i < r->n_layers; i++)
        add_column(r, LENS_NUMBERS, "surprisal.%zu", r->layers[i]);
    for (size_t back = 1; back <= r->o.spillover; back++)
        for (size_t i = 0; i < r->n_values && !r->ctx.status; i++)
            add_column(r, LENS_NUMBERS, "prev%zu_%.50s", back,
                       r->table->columns[FIRST_VALUE + i].name);
    if (r->o.by == BY_TOKEN) {
        add_column(r, LENS_TEXTS, "token");
        add_column(r, LENS_WHOLES, "token_id");
    }
    if (r->o.regions || r->o.region_names)
        add_column(r, r->o.region_names ? LENS_TEXTS : LENS_WHOLES, "region");
    if (r->o.rank)
        add_column(r, LENS_WHOLES, "rank");
    for (size_t i = 1; i <= r->o.top; i++) {
        add_column(r, LENS_TEXTS, "top%zu", i);
        add_column(r, LENS_NUMBERS, "top%zu_probability", i);
    }
}

/* Has a column before number `end` this name in the output? */
static int is_name_taken(const surprisal_run *r, const char *name, size_t end)
{
    for (size_t i = 0; i < end; i++)
        if (r->carried[i] && strcmp(r->carried[i], name) == 0)
            return 1;
    for (size_t i = 0; i < r->table->n_columns; i++)
        if (strcmp(r->table->columns[i].name, name) == 0)
            return 1;
    return 0;
}

/* Names the columns of the input in the output. The first of a name that the output has not keeps it; others
 * are called input_NAME, as often as it takes. */
static attn_status name_carried(surprisal_run *r)
{
    const text_table *const t = &r->input;
    const size_t n = t->has_names ? t->n_columns : 0;
    r->carried = (const char **)arena_alloc(&r->ctx, &r->memory, n + 1, sizeof *r->carried);
    if (!r->carried)
        return r->ctx.status;
    for (size_t i = 0; i < n; i++) {
        char *const name = arena_text(&r->ctx, &r->memory, t->names[i].text, t->names[i].size);
        if (i != t->column && name && !is_name_taken(r, name, i))
            r->carried[i] = name;
    }
    for (size_t i = 0; !r->ctx.status && i < n; i++) {
        char *name = arena_text(&r->ctx, &r->memory, t->names[i].text, t->names[i].size);
        size_t size = t->names[i].size + 1;
        while (i != t->column && !r->carried[i] && name && is_name_taken(r, name, n)) {
            char *const longer = (char *)arena_alloc(&r->ctx, &r->memory, size += 6, 1);
            if (longer)
                snprintf(longer, size, "input_%s", name);
            name = longer;
        }
        if (i != t->column && !r->carried[i])
            r->carried[i] = name;
    }
    return r->ctx.status;
}

static void begin_table(surprisal_run *r)
{
    r->table = answer_add(&r->answer, "rows");
    answer_rows(r->table, 0);
    if (r->table)
        r->table->missing = "NA";
}

/* After its columns: the first n_keys identify a row. */
static attn_status begin_rows(surprisal_run *r, size_t n_keys)
{
    answer_keys(r->table, n_keys);
    if (!r->ctx.status)
        r->values =
            (row_values *)arena_alloc(&r->ctx, &r->memory, r->table->n_columns, sizeof *r->values);
    if (r->ctx.status)
        return r->ctx.status;
    show_values(r);
    r->n_counted = r->form == AS_CSV;
    return r->form == AS_CSV ? end_row(r) : ATTN_OK;
}

/* Of a suite the columns are known at the end. */
static attn_status write_header(surprisal_run *r)
{
    const text_table *const t = &r->input;
    if (r->o.is_suite)
        return ATTN_OK;
    begin_table(r);
    name_columns(r);
    if (r->ctx.status || name_carried(r))
        return r->ctx.status;
    for (size_t i = 0; t->has_names && i < t->n_columns; i++)
        if (i != t->column) {
            answer_column *const c = answer_column_new(&r->answer, r->table, CELLS, r->carried[i],
                                                       t->cells ? LENS_TEXTS : LENS_CARRIED);
            if (c)
                c->source = i;
        }
    return begin_rows(r, r->o.by == BY_TOKEN ? 0 : 2);
}

/* >> Rows ====================================================================================== */

static void region_cell(surprisal_run *r, const text_word *w)
{
    if (r->o.region_names)
        text_cell(r, w->name.text, w->name.size);
    else if (r->o.regions)
        count_cell(r, w->region + 1);
}

/* The token number i of the likeliest, which is not known before a text without a beginning. */
static void top_cells(surprisal_run *r, const passage *p, size_t at, size_t i)
{
    const attn_prediction *const best = &p->best[at * r->o.top + i];
    if (at > 0 || !r->o.no_bos) {
        token_cell(r, best->token);
        number_cell(r, (double)best->probability);
    } else {
        missing_cell(r);
        missing_cell(r);
    }
}

/* The cells that come after the numbers, of a row that begins at position `at`. */
static void more_cells(surprisal_run *r, const passage *p, const text_word *w, size_t at)
{
    const text_table *const t = &r->input;
    if (r->o.by == BY_TOKEN) {
        token_cell(r, p->ids[at]);
        count_cell(r, (size_t)p->ids[at]);
    }
    region_cell(r, w);
    if (r->o.rank && (at > 0 || !r->o.no_bos))
        count_cell(r, p->positions[at].rank);
    else if (r->o.rank)
        missing_cell(r);
    for (size_t i = 0; i < r->o.top; i++)
        top_cells(r, p, at, i);
    for (size_t i = 0; t->has_names && t->cells && i < t->n_columns; i++)
        if (i != t->column) {
            const text_span cell = t->cells[w->item * t->n_columns + i];
            text_cell(r, cell.text, cell.size);
        }
}

/* The tokens [at, end), which are a word, one of its tokens, or a region. The words that they belong to are
 * those from w to `last`. */
typedef struct row_tokens {
    const text_word *w, *last;
    size_t at, end;
} row_tokens;

/* The surprisal of a row by the model (lens_at 0) or under a lens, in nats, and the sum over its tokens. */
static double surprisal_of(const surprisal_run *r, const passage *p, const row_tokens *x,
                           size_t lens_at, double *sum)
{
    size_t t;
    for (*sum = 0, t = x->at; t < x->end; t++)
        *sum += likelihood_at(r, p, t, lens_at)->nll;
    double surprisal = *sum;
    if (x->at == x->w->token)
        surprisal += likelihood_at(r, p, x->at, lens_at)->ends;
    if (x->end == x->last->token + x->last->n_tokens)
        surprisal -= likelihood_at(r, p, x->end, lens_at)->ends;
    return surprisal;
}

/* Sets the numbers of a row, and moves those of the rows before it. */
static void set_values(const surprisal_run *r, passage *p, const row_tokens *x)
{
    const double unit = r->o.unit == BITS ? LENS_LOG_OF_2 : 1;
    const text_position *const before = &p->positions[x->at], *const after = &p->positions[x->end];
    double *to = p->values, sum;
    memmove(to + r->n_values, to, r->o.spillover * r->n_values * sizeof *to);
    *to++ = surprisal_of(r, p, x, 0, &sum) / unit;
    *to++ = sum / unit;
    *to++ = before->entropy / unit;
    if (r->o.entropy_reduction)
        *to++ = (before->entropy - after->entropy) / unit;
    if (r->o.renyi > 0)
        *to++ = before->renyi / unit;
    for (size_t lens_at = 1; lens_at <= r->n_layers; lens_at++)
        *to++ = surprisal_of(r, p, x, lens_at, &sum) / unit;
}

/* Adds the numbers of a word to those of its region in a suite: of the tokens that have a probability, which the first of
 * a text has not with --no-bos. */
static void add_to_region(surprisal_run *r, const passage *p, row_tokens x)
{
    const double unit = r->o.unit == BITS ? LENS_LOG_OF_2 : 1;
    region_sums *to = &r->tests.regions[r->tests.first_region[x.w->item]];
    double sum;
    while (to->end <= x.w->region)
        to++;
    x.at += r->o.no_bos && x.at == 0;
    if (x.at == x.end)
        return;
    to->n_tokens += (double)(x.end - x.at);
    to->sums[1] += six_decimals(surprisal_of(r, p, &x, 0, &sum) / unit);
    to->sums[0] += six_decimals(sum / unit);
}

static attn_status write_row_of(surprisal_run *r, passage *p, const row_tokens *x)
{
    const text_word *const w = x->w, *const last = x->last;
    if (r->n_parts && r->n_records >= r->skip && write_vector(r, p, x->at, x->end))
        return ATTN_STOPPED;
    if (r->o.is_suite) {
        add_to_region(r, p, *x);
        return ATTN_OK;
    }
    set_values(r, p, x);
    count_cell(r, w->item + 1);
    count_cell(r, (r->o.by == BY_REGION ? w->region : w->index) + 1);
    text_cell(r, p->text + w->begin, last->begin + last->size - w->begin);
    count_cell(r, last->token + last->n_tokens - w->token);
    for (size_t i = 0; i < (1 + r->o.spillover) * r->n_values; i++)
        number_cell(r, p->values[i]);
    more_cells(r, p, w, x->at);
    return end_row(r);
}

/* Are two words of one region? Names that are given for each word join equal neighbours. */
static int is_same_region(const surprisal_run *r, const text_word *a, const text_word *b)
{
    if (a->item != b->item || a->region == b->region || !r->o.region_names || r->o.regions)
        return a->item == b->item && a->region == b->region;
    return a->name.size == b->name.size && memcmp(a->name.text, b->name.text, a->name.size) == 0;
}

/* The number of words, from number i on, that share rows: those of a region, or one. */
static size_t words_of_row(const surprisal_run *r, const passage *p, size_t i)
{
    size_t n = 1;
    while (r->o.by == BY_REGION && i + n < p->n_words &&
           is_same_region(r, &p->words[i], &p->words[i + n]))
        n++;
    return n;
}

/* Writes the rows of the words that are measured. */
static attn_status write_passage(surprisal_run *r, passage *p)
{
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && p->n_written < p->n_words) {
        const size_t n = words_of_row(r, p, p->n_written);
        const text_word *const w = &p->words[p->n_written], *const last = w + n - 1;
        const size_t end = last->token + last->n_tokens;
        row_tokens x = {w, last, w->token, end};
        if (end >= p->n_done)
            break;
        if (p->begins_text)
            forget_rows(r, p->values);
        p->begins_text = 0;
        for (; status == ATTN_OK && x.at < end; x.at = x.end) {
            x.end = r->o.by == BY_TOKEN ? x.at + 1 : end;
            status = write_row_of(r, p, &x);
        }
        p->n_written += n;
    }
    drop_tokens(r, p, p->n_written < p->n_words ? p->words[p->n_written].token : p->n);
    return status;
}

/* How many rows the passage has. Sets p->n_kept, before the rows that --spillover copies from. */
static uint64_t count_rows(const surprisal_run *r, passage *p)
{
    uint64_t n = 0;
    size_t words;
    for (size_t i = p->n_written; i < p->n_words; i += words) {
        words = words_of_row(r, p, i);
        n += r->o.by == BY_TOKEN ? p->words[i].n_tokens : 1;
        if (r->n_counted + n + r->o.spillover <= r->skip)
            p->n_kept = p->words[i + words - 1].token + p->words[i + words - 1].n_tokens;
    }
    return n;
}

#endif

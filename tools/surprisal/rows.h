/* Makes the rows of words: as CSV or JSON in `row`, or as columns. */
#ifndef SURPRISAL_ROWS_H
#define SURPRISAL_ROWS_H

#include "vectors.h"

/* >> Cells ===================================================================================== */

/* Makes room for one more cell. 0: there is no memory. */
static int grow_column(out_column *c)
{
    const size_t room = c->room ? 2 * c->room : 64;
    double *const numbers = (double *)realloc(c->numbers, room * sizeof *numbers);
    uint64_t *ends;
    if (!numbers)
        return 0;
    c->numbers = numbers;
    if (!(ends = (uint64_t *)realloc(c->ends, room * sizeof *ends)))
        return 0;
    c->ends = ends;
    c->room = room;
    return 1;
}

static void add_to_column(surprisal_run *r, const char *text, size_t size, double number)
{
    out_column *const c = &r->columns[r->n_cells++];
    if (c->n == c->room && !grow_column(c)) {
        r->row.failed = 1;
        return;
    }
    out_bytes(&c->texts, text, size);
    r->row.failed |= c->texts.failed;
    c->ends[c->n] = c->texts.size;
    c->numbers[c->n++] = number;
}

/* Begins a cell. In CSV a name counts only in the header. */
static void begin_cell(surprisal_run *r, const char *name)
{
    if (r->form == AS_JSON)
        out_key(&r->row, name);
    else if (r->n_cells++)
        out_bytes(&r->row, ",", 1);
}

/* A field of CSV, in quotes where it needs them. */
static void csv_text(surprisal_run *r, const char *text, size_t size)
{
    size_t i, plain = 0;
    for (i = 0; i < size && !strchr(",\"\r\n", text[i]); i++)
        continue;
    if (i == size && size > 0 && text[0] != ' ' && text[size - 1] != ' ') {
        out_bytes(&r->row, text, size);
        return;
    }
    out_bytes(&r->row, "\"", size > 0);
    for (i = 0; i < size; i++)
        if (text[i] == '"') {
            out_bytes(&r->row, text + plain, i + 1 - plain);
            plain = i; /* the quote again */
        }
    out_bytes(&r->row, text + plain, size - plain);
    out_bytes(&r->row, "\"", size > 0);
}

static void text_cell(surprisal_run *r, const char *name, const char *text, size_t size)
{
    if (r->form == AS_COLUMNS) {
        add_to_column(r, text, size, 0);
        return;
    }
    begin_cell(r, name);
    if (r->form == AS_JSON)
        out_text(&r->row, NULL, text, size);
    else
        csv_text(r, text, size);
}

/* Some bytes of a text, which may be parts of characters: those become U+FFFD. */
static void token_cell(surprisal_run *r, const char *name, attn_token id)
{
    char whole[3 * (128 + 4)];
    attn_utf8 state = {{0}, 0};
    size_t size = 0, n;
    const char *const bytes = attn_token_bytes(&size, r->tokenizer, id);
    size = size < 124 ? size : 124;
    n = attn_utf8_push(whole, &state, bytes ? bytes : "", bytes ? size : 0);
    n += attn_utf8_push(whole + n, &state, "", 0);
    text_cell(r, name, whole, n);
}

static void spelled_cell(surprisal_run *r, const char *name, const char *text)
{
    begin_cell(r, name);
    out_spelled(&r->row, NULL, text, strlen(text));
    r->row.follows = r->form == AS_JSON;
}

static void count_cell(surprisal_run *r, const char *name, size_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", value);
    if (r->form == AS_COLUMNS)
        add_to_column(r, "", 0, (double)value);
    else
        spelled_cell(r, name, text);
}

/* The number that six decimals show. */
static double six_decimals(double value)
{
    const double millionths = floor(product(fabs(value), 1e6) + 0.5);
    return !(millionths < 1e18) ? value
                                : (value < 0 && millionths > 0 ? -1 : 1) * (millionths / 1e6);
}

/* A number with six decimals, made of whole numbers: C libraries may round the last digit of a double
 * differently. A column has the number of these digits. */
static void number_cell(surprisal_run *r, const char *name, double value)
{
    const double millionths = floor(product(fabs(value), 1e6) + 0.5);
    const uint64_t whole = millionths < 1e18 ? (uint64_t)millionths : 0;
    char text[40];
    if (r->form == AS_COLUMNS) {
        add_to_column(r, "", 0, six_decimals(value));
        return;
    }
    if (millionths < 1e18)
        snprintf(text, sizeof text, "%s%llu.%06llu", value < 0 && whole ? "-" : "",
                 TOOLS_LLU(whole / 1000000), TOOLS_LLU(whole % 1000000));
    else
        snprintf(text, sizeof text, "%s",
                 r->form == AS_JSON ? "null"
                 : isnan(value)     ? "NA"
                 : value < 0        ? "-Inf"
                                    : "Inf");
    spelled_cell(r, name, text);
}

static attn_status end_row(surprisal_run *r)
{
    const uint64_t number = r->n_records++;
    attn_status status = ATTN_OK;
    if (r->form == AS_JSON)
        out_close(&r->row, '}');
    if (r->form != AS_COLUMNS)
        out_bytes(&r->row, "\n", 1);
    if (r->row.failed)
        return refuse(r, ATTN_E_MEMORY, "no memory for a row");
    if (r->row_fn && (number >= r->skip || (number == 0 && r->form == AS_CSV)) &&
        r->row_fn(r, number))
        status = ATTN_STOPPED;
    r->row.size = 0;
    r->row.follows = 0;
    r->n_cells = 0;
    return status;
}

/* >> Names of columns ========================================================================== */

static void add_own(surprisal_run *r, int kind, const char *format, ...) TOOLS_PRINTF(3, 4);
static void add_own(surprisal_run *r, int kind, const char *format, ...)
{
    own_column *const to = &r->own[r->n_own++];
    va_list args;
    va_start(args, format);
    vsnprintf(to->name, sizeof to->name, format, args);
    va_end(args);
    to->kind = kind;
}

/* Names the columns, but for those that are carried. */
static attn_status name_columns(surprisal_run *r)
{
    const size_t most = 12 + (1 + r->o.spillover) * (5 + r->n_layers) + 2 * r->o.top;
    size_t i, back;
    if (!(r->own = (own_column *)arena_alloc(&r->ctx, &r->memory, most, sizeof *r->own)))
        return r->ctx.status;
    add_own(r, A_COUNT, "text");
    add_own(r, A_COUNT, "index");
    add_own(r, A_TEXT, "word");
    add_own(r, A_COUNT, "tokens");
    add_own(r, A_NUMBER, "surprisal");
    add_own(r, A_NUMBER, "uncorrected");
    add_own(r, A_NUMBER, "entropy");
    if (r->o.entropy_reduction)
        add_own(r, A_NUMBER, "entropy_reduction");
    if (r->o.renyi > 0)
        add_own(r, A_NUMBER, "renyi");
    for (i = 0; i < r->n_layers; i++)
        add_own(r, A_NUMBER, "surprisal.%zu", r->layers[i]);
    r->n_values = r->n_own - FIRST_VALUE;
    for (back = 1; back <= r->o.spillover; back++)
        for (i = 0; i < r->n_values; i++)
            add_own(r, A_NUMBER, "prev%zu_%.50s", back, r->own[FIRST_VALUE + i].name);
    if (r->o.by == BY_TOKEN) {
        add_own(r, A_TEXT, "token");
        add_own(r, A_COUNT, "token_id");
    }
    if (r->o.regions || r->o.region_names)
        add_own(r, r->o.region_names ? A_TEXT : A_COUNT, "region");
    if (r->o.rank)
        add_own(r, A_COUNT, "rank");
    r->first_top = r->n_own;
    for (i = 1; i <= r->o.top; i++) {
        add_own(r, A_TEXT, "top%zu", i);
        add_own(r, A_NUMBER, "top%zu_probability", i);
    }
    return ATTN_OK;
}

/* Has a column before number `end` this name in the output? */
static int is_taken(const surprisal_run *r, const char *name, size_t end)
{
    size_t i;
    for (i = 0; i < end; i++)
        if (r->carried[i] && strcmp(r->carried[i], name) == 0)
            return 1;
    for (i = 0; i < r->n_own; i++)
        if (strcmp(r->own[i].name, name) == 0)
            return 1;
    return 0;
}

/* Names the columns of the input in the output. The first of a name that the output has not keeps it; others
 * are called input_NAME, as often as it takes. */
static attn_status name_carried(surprisal_run *r)
{
    const text_table *const t = &r->input;
    const size_t n = t->has_names ? t->n_columns : 0;
    size_t i;
    r->carried = (const char **)arena_alloc(&r->ctx, &r->memory, n + 1, sizeof *r->carried);
    if (!r->carried)
        return r->ctx.status;
    for (i = 0; i < n; i++) {
        char *const name = arena_text(&r->ctx, &r->memory, t->names[i].text, t->names[i].size);
        if (i != t->column && name && !is_taken(r, name, i))
            r->carried[i] = name;
    }
    for (i = 0; !r->ctx.status && i < n; i++) {
        size_t size = t->names[i].size;
        char *name = arena_text(&r->ctx, &r->memory, t->names[i].text, size);
        while (i != t->column && !r->carried[i] && name && is_taken(r, name, n)) {
            char *const longer = (char *)arena_alloc(&r->ctx, &r->memory, size + 7, 1);
            if (longer) {
                memcpy(longer, "input_", 6);
                memcpy(longer + 6, name, size);
            }
            size += 6;
            name = longer;
        }
        if (i != t->column && !r->carried[i])
            r->carried[i] = name;
    }
    return r->ctx.status;
}

static void head(surprisal_run *r, const char *name, int kind, size_t carries)
{
    if (r->form == AS_COLUMNS) {
        out_column *const c = &r->columns[r->n_columns++];
        c->name = arena_text(&r->ctx, &r->memory, name, strlen(name));
        c->kind = kind;
        c->source = carries;
    } else {
        text_cell(r, "", name, strlen(name));
    }
}

static attn_status write_header(surprisal_run *r)
{
    size_t i;
    if (r->o.is_suite || name_carried(r) || r->form == AS_JSON)
        return r->ctx.status;
    if (r->form == AS_COLUMNS &&
        !(r->columns = (out_column *)arena_alloc(&r->ctx, &r->memory, r->n_own + r->input.n_columns,
                                                 sizeof *r->columns)))
        return r->ctx.status;
    for (i = 0; i < r->n_own; i++)
        head(r, r->own[i].name, r->own[i].kind, 0);
    for (i = 0; r->input.has_names && i < r->input.n_columns; i++)
        if (i != r->input.column)
            head(r, r->carried[i], CARRIED, i);
    if (r->ctx.status || r->form == AS_COLUMNS)
        return r->ctx.status;
    r->n_counted = 1;
    return end_row(r);
}

/* >> Rows ====================================================================================== */

static void region_cell(surprisal_run *r, const text_word *w)
{
    if (r->o.region_names)
        text_cell(r, "region", w->name.text, w->name.size);
    else if (r->o.regions)
        count_cell(r, "region", w->region + 1);
}

/* The token number i of the likeliest, which is not known before a text without a beginning. */
static void top_cells(surprisal_run *r, const passage *p, size_t at, size_t i)
{
    const int known = at > 0 || !r->o.no_bos;
    const attn_prediction *const best = &p->best[at * r->o.top + i];
    const own_column *const names = &r->own[r->first_top + 2 * i];
    if (known)
        token_cell(r, names[0].name, best->token);
    else
        number_cell(r, names[0].name, (double)NAN);
    number_cell(r, names[1].name, known ? (double)best->probability : (double)NAN);
}

/* The cells that come after the numbers, of a row that begins at position `at`. */
static void more_cells(surprisal_run *r, const passage *p, const text_word *w, size_t at)
{
    size_t i;
    if (r->o.by == BY_TOKEN) {
        token_cell(r, "token", p->ids[at]);
        count_cell(r, "token_id", (size_t)p->ids[at]);
    }
    region_cell(r, w);
    if (r->o.rank && (at > 0 || !r->o.no_bos))
        count_cell(r, "rank", p->positions[at].rank);
    else if (r->o.rank)
        number_cell(r, "rank", (double)NAN);
    for (i = 0; i < r->o.top; i++)
        top_cells(r, p, at, i);
    for (i = 0; r->input.has_names && r->form != AS_COLUMNS && i < r->input.n_columns; i++)
        if (i != r->input.column) {
            const span cell = r->input.cells[w->item * r->input.n_columns + i];
            text_cell(r, r->carried[i], cell.text, cell.size);
        }
}

/* The tokens [at, end), which are a word, one of its tokens, or a region. The words that they belong to are
 * those from w to `last`. */
typedef struct row_tokens {
    const text_word *w, *last;
    size_t at, end;
} row_tokens;

/* The surprisal of a row by the model (lens 0) or under a lens, in nats, and the sum over its tokens. */
static double surprisal_of(const surprisal_run *r, const passage *p, const row_tokens *x,
                           size_t lens, double *sum)
{
    double surprisal;
    size_t t;
    for (*sum = 0, t = x->at; t < x->end; t++)
        *sum += likelihood_at(r, p, t, lens)->nll;
    surprisal = *sum;
    if (x->at == x->w->token)
        surprisal += likelihood_at(r, p, x->at, lens)->ends;
    if (x->end == x->last->token + x->last->n_tokens)
        surprisal -= likelihood_at(r, p, x->end, lens)->ends;
    return surprisal;
}

/* Sets the numbers of a row, and moves those of the rows before it. */
static void set_values(const surprisal_run *r, passage *p, const row_tokens *x)
{
    const double unit = r->o.unit == BITS ? LOG_OF_2 : 1;
    const position *const before = &p->positions[x->at], *const after = &p->positions[x->end];
    double *to = p->values, sum;
    size_t lens;
    memmove(to + r->n_values, to, r->o.spillover * r->n_values * sizeof *to);
    *to++ = surprisal_of(r, p, x, 0, &sum) / unit;
    *to++ = sum / unit;
    *to++ = before->entropy / unit;
    if (r->o.entropy_reduction)
        *to++ = (before->entropy - after->entropy) / unit;
    if (r->o.renyi > 0)
        *to++ = before->renyi / unit;
    for (lens = 1; lens <= r->n_layers; lens++)
        *to++ = surprisal_of(r, p, x, lens, &sum) / unit;
}

/* Adds the numbers of a word to those of its region in a suite. */
static void add_to_region(surprisal_run *r, const row_tokens *x, const double *values)
{
    measured *to = &r->tests.regions[r->tests.first_region[x->w->item]];
    while (to->end <= x->w->region)
        to++;
    to->n_tokens += (double)(x->end - x->at);
    to->sums[0] += six_decimals(values[1]);
    to->sums[1] += six_decimals(values[0]);
}

static attn_status write_row_of(surprisal_run *r, passage *p, const row_tokens *x)
{
    const text_word *const w = x->w, *const last = x->last;
    size_t i;
    if (r->n_parts && r->n_records >= r->skip && write_vector(r, p, x->at, x->end))
        return ATTN_STOPPED;
    set_values(r, p, x);
    if (r->o.is_suite) {
        add_to_region(r, x, p->values);
        return ATTN_OK;
    }
    if (r->form == AS_JSON)
        out_open(&r->row, NULL, '{');
    count_cell(r, "text", w->item + 1);
    count_cell(r, "index", (r->o.by == BY_REGION ? w->region : w->index) + 1);
    text_cell(r, "word", p->text + w->begin, last->begin + last->size - w->begin);
    count_cell(r, "tokens", last->token + last->n_tokens - w->token);
    for (i = 0; i < (1 + r->o.spillover) * r->n_values; i++)
        number_cell(r, r->own[FIRST_VALUE + i].name, p->values[i]);
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
    size_t i, words;
    for (i = 0; i < p->n_words; i += words) {
        words = words_of_row(r, p, i);
        n += r->o.by == BY_TOKEN ? p->words[i].n_tokens : 1;
        if (r->n_counted + n + r->o.spillover <= r->skip)
            p->n_kept = p->words[i + words - 1].token + p->words[i + words - 1].n_tokens;
    }
    return n;
}

#endif

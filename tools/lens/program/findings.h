/* What commands make of their results: tables of the answer, and grids that show them. Who prints or draws an answer
 * gives the grids their texts and colours, and the page says which model, text and command made it. */
#ifndef LENS_FINDINGS_H
#define LENS_FINDINGS_H

#include "edits.h"
#include "tools/write/new_file.h"
#include "print_table.h"

/* ---- heads by their names ---- */

/* Reads a whole number at *at, and moves *at behind it. */
static int read_number(const char **at, size_t *number)
{
    char *end;
    if (**at < '0' || **at > '9')
        return 0;
    *number = (size_t)strtoul(*at, &end, 10);
    *at = end;
    return 1;
}

/* Reads a head's name at *at, 0.1, L0H1 or a0.h1, and moves *at behind it. */
static int read_head_name(const char **at, lens_head *head)
{
    const char *const joint = **at == 'L' ? "H" : **at == 'a' ? ".h" : ".";
    *at += **at == 'L' || **at == 'a';
    if (!read_number(at, &head->layer) || strncmp(*at, joint, strlen(joint)) != 0)
        return 0;
    *at += strlen(joint);
    return read_number(at, &head->head);
}

/* Reads a head of the model, up to one of `ends` or the end. */
static int read_head(const lens *l, const char *option, const char *ends, const char **at,
                     lens_head *head)
{
    const char *const word = *at;
    const int is_name = read_head_name(at, head) && strchr(ends, **at);
    if (!is_name || head->layer >= l->config->n_layer || head->head >= l->config->n_head)
        return fail(
            is_name ? FAILED : USAGE,
            "--%s: \"%s\": expected a head such as 0.1, L0H1 or a0.h1; the model has layers "
            "0 to %zu of heads 0 to %zu",
            option, word, l->config->n_layer - 1, l->config->n_head - 1);
    return FINE;
}

/* ---- where a page comes from ---- */

static int is_plain(const char *bytes, size_t size)
{
    size_t length;
    uint32_t code;
    for (size_t at = 0; at < size; at += length) {
        length = utf8_length((const unsigned char *)bytes + at, size - at, &code);
        if (length == 0 || is_invisible(code))
            return 0;
    }
    return 1;
}

/* A word quoted for a shell. Invisible bytes become \xNN between $' and '. */
static const char *quoted(lens *l, const char *word, size_t size)
{
    static const char safe[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:=+@%";
    const int plain = is_plain(word, size);
    char *out = (char *)arena_alloc(&l->ctx, &l->memory, size + 1, 4), *to = out;
    size_t length;
    uint32_t code;
    if (!out)
        return "";
    if (size && strspn(word, safe) >= size)
        return keep(l, "%.*s", (int)size, word);
    for (size_t i = 0; i < size; i += length) {
        length = utf8_length((const unsigned char *)word + i, size - i, &code);
        length = length ? length : 1;
        if (!is_plain(word + i, length))
            for (size_t k = 0; k < length; k++)
                to += snprintf(to, 5, "\\x%02x", (unsigned)(unsigned char)word[i + k]);
        else if (word[i] == '\'' || (!plain && word[i] == '\\'))
            to += snprintf(to, 5, plain ? "'\\''" : "\\%c", word[i]);
        else
            to += snprintf(to, length + 1, "%.*s", (int)length, word + i);
    }
    return keep(l, plain ? "'%s'" : "$'%s'", size ? out : "");
}

/* The command that asks the same. A caller's has files without their folders, which are of one machine. */
static const char *command_text(lens *l)
{
    const char *const *word, *line = l->is_query ? "lens" : called;
    for (word = l->command_line; *word; word++) {
        const char *const short_word = l->is_query && **word == '/' ? base_name(*word) : *word;
        line = keep(l, "%s %s", line, quoted(l, short_word, strlen(short_word)));
    }
    return line;
}

/* A text in one line, cut if it is long; its ids if the model has no tokenizer. */
static const char *whole_text(lens *l, const lens_text *of)
{
    const char *line = "";
    size_t t, size = 0, used = 0;
    char *bytes;
    for (t = 0; !l->tokenizer && t < of->n && t < 100; t++)
        line = keep(l, "%s%s%s", line, t ? " " : "", of->shown[t]);
    if (!l->tokenizer)
        return brief(l, line, 400);
    for (t = 0; t < of->n; t++, used += size)
        attn_token_bytes(&size, l->tokenizer, of->ids[t]);
    if (!(bytes = (char *)allocate(l, used, 1)))
        return "";
    for (t = 0, used = 0; t < of->n; t++, used += size) {
        const char *token = attn_token_bytes(&size, l->tokenizer, of->ids[t]);
        memcpy(bytes + used, token, size);
    }
    return brief(l, visible(l, bytes, used, NULL), 400);
}

/* A page that says which model, text, command and version made it. */
static lens_page make_page(lens *l, const char *title)
{
    const char *file = base_name(l->model_path);
    lens_page page = {title, "", NULL, l->facts, 0, {0}};
    l->facts[page.n_facts].name = "model";
    l->facts[page.n_facts++].value = keep(
        l, "%s: %u layers of %u heads, width %u, %u tokens in the vocabulary",
        visible(l, file, strlen(file), NULL), (unsigned)l->config->n_layer,
        (unsigned)l->config->n_head, (unsigned)l->config->d_model, (unsigned)l->config->n_vocab);
    if (l->text.n) {
        l->facts[page.n_facts].name = l->corrupted.n ? "clean" : "prompt";
        l->facts[page.n_facts++].value =
            l->text.made_up ? l->text.made_up : whole_text(l, &l->text);
    }
    if (l->corrupted.n) {
        l->facts[page.n_facts].name = "corrupted";
        l->facts[page.n_facts++].value = whole_text(l, &l->corrupted);
    }
    l->facts[page.n_facts].name = "command";
    l->facts[page.n_facts++].value = command_text(l);
    l->facts[page.n_facts].name = "version";
    l->facts[page.n_facts++].value = keep(l, PROGRAM " of attn.h %d.%d.%d", ATTN_VERSION_MAJOR,
                                          ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    return page;
}

/* ---- the answer ---- */

/* How what a command finds is shown: on a page of this title, with the grids that `dress` makes. */
static void show_as(lens *l, const char *title, dress_fn dress)
{
    l->shown.page = make_page(l, title);
    l->shown.dress = dress;
}

/* Of commands that write files: the program says no more. */
static int print_nothing(lens *l, const void *of)
{
    (void)l;
    (void)of;
    return FINE;
}

static answer_table *add_table(lens *l, const char *name)
{
    return answer_add(&l->answer, name);
}

/* A table of n rows; its columns as answer_add_columns takes them. */
static answer_table *add_rows(lens *l, const char *name, size_t n, const char *columns)
{
    answer_table *const t = add_table(l, name);
    answer_rows(t, n);
    answer_add_columns(&l->answer, t, columns);
    return t;
}

/* Further facts: their columns, and the values that answer_put takes for them. */
static void facts(lens *l, const char *columns, ...)
{
    answer_table *const t = answer_facts(&l->answer);
    const size_t first = t ? t->n_columns : 0;
    va_list values;
    answer_add_columns(&l->answer, t, columns);
    va_start(values, columns);
    answer_put_all(&l->answer, t, first, 0, values);
    va_end(values);
}

/* An axis of n positions of a text, from `first` on: "position", "token_id" and "token". Where many pairs of texts are
 * asked about, positions have no tokens. */
static void add_positions(lens *l, answer_table *t, const lens_text *text, size_t first, size_t n)
{
    double *const positions = answer_axis(&l->answer, t, "position", n);
    double *const ids =
        positions && l->n_pairs <= 1 ? answer_tokens(&l->answer, t, LAST_AXIS, "token") : NULL;
    for (size_t i = 0; positions && i < n; i++) {
        positions[i] = (double)(first + i);
        if (ids)
            ids[i] = (double)text->ids[first + i];
    }
}

/* The tokens of the text as a table, for tables in which positions are numbers. */
static void add_tokens(lens *l)
{
    add_positions(l, add_table(l, "tokens"), &l->text, 0, l->text.n);
}

/* Rows of which layer and head are the keys. */
static void add_layers_and_heads(lens *l, answer_table *t)
{
    answer_axis(&l->answer, t, "layer", l->config->n_layer);
    answer_axis(&l->answer, t, "head", l->config->n_head);
}

/* A further axis whose places have names. */
static void add_names(lens *l, answer_table *t, const char *axis, const char *const *names,
                      size_t n)
{
    const char **const to = answer_text_axis(&l->answer, t, axis, n);
    for (size_t i = 0; to && i < n; i++)
        to[i] = names[i];
}

/* A row of the columns "guess:t logit probability". */
static void put_guess(const lens *l, const answer_table *t, size_t row, const attn_prediction *p)
{
    answer_put(&l->answer, t, row, p->token, p->logit, p->probability);
}

/* Ends a command: the note becomes a note of the answer, too. */
static int show_answer(lens *l)
{
    answer_note(&l->answer, l->shown.page.note);
    answer_note(&l->answer, l->shown.page.warning);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

/* ---- grids ---- */

/* Allocates a grid without numbers, texts and colours. Rows and columns are labelled by their numbers, as layers and
 * heads. Without memory it has no cells. */
static int make_grid(lens *l, lens_grid *grid, size_t n_rows, size_t n_columns)
{
    lens_cell *cells = (lens_cell *)allocate(l, n_rows * n_columns, sizeof *cells);
    const char **rows = (const char **)allocate(l, n_rows, sizeof *rows);
    const char **columns = (const char **)allocate(l, n_columns, sizeof *columns);
    memset(grid, 0, sizeof *grid);
    grid->title = grid->high = "";
    grid->row_name = "layer";
    grid->column_name = "head";
    if (!cells || !rows || !columns)
        return failed(&l->ctx);
    grid->n_rows = n_rows;
    grid->n_columns = n_columns;
    grid->cells = cells;
    grid->rows = rows;
    grid->columns = columns;
    for (size_t i = 0; i < n_rows * n_columns; i++)
        cells[i].text = cells[i].tip = "";
    for (size_t i = 0; i < n_rows; i++)
        rows[i] = keep(l, "%zu", i);
    for (size_t i = 0; i < n_columns; i++)
        columns[i] = keep(l, "%zu", i);
    return outcome(&l->ctx);
}

/* The next grid that is shown, which stays where it is until the one after it. */
static lens_grid *add_grid(lens *l, const char *title, size_t n_rows, size_t n_columns)
{
    showing *const s = &l->shown;
    lens_grid *const grids = (lens_grid *)answer_grown(&l->ctx, &l->memory, s->grids, s->n_grids,
                                                       &s->room, sizeof *grids);
    s->grids = grids ? grids : s->grids;
    lens_grid *const grid = grids ? &grids[s->n_grids++] : &s->none;
    make_grid(l, grid, n_rows, n_columns);
    grid->title = title;
    return grid;
}

/* A grid of all layers and heads. */
static lens_grid *add_head_grid(lens *l, const char *title)
{
    return add_grid(l, title, l->config->n_layer, l->config->n_head);
}

static void name_axes(lens_grid *grid, const char *row, const char *column)
{
    grid->row_name = row;
    grid->column_name = column;
}

static void label_row(const lens_grid *grid, size_t i, const char *label)
{
    if (i < grid->n_rows)
        ((const char **)grid->rows)[i] = label;
}

static void label_column(const lens_grid *grid, size_t i, const char *label)
{
    if (i < grid->n_columns)
        ((const char **)grid->columns)[i] = label;
}

static void label_columns(const lens_grid *grid, const char *const *labels)
{
    for (size_t i = 0; i < grid->n_columns; i++)
        label_column(grid, i, labels[i]);
}

static size_t n_cells(const lens_grid *grid)
{
    return grid->n_rows * grid->n_columns;
}

/* A cell, to be filled. (The cells of a grid are const for those who draw it.) */
static lens_cell *cell_of(const lens_grid *grid, size_t row, size_t column)
{
    return (lens_cell *)grid->cells + row * grid->n_columns + column;
}

/* A cell shows a row of a column of the answer, and its spread. */
static void show_number(const lens *l, lens_cell *cell, const answer_table *t, const char *column,
                        size_t row)
{
    cell->number = answer_number(t, answer_column_named(t, column), row);
    for (size_t i = 0; i < l->shown.n_measures; i++) {
        const measured_column *const m = &l->shown.measures[i];
        if (m->spreads && m->table == t && strcmp(m->column, column) == 0)
            cell->spread = &m->spreads[row];
    }
}

/* The cells of a grid show the rows of a column from `first` on. */
static void show_column(const lens *l, const lens_grid *grid, const char *table, const char *column,
                        size_t first)
{
    const answer_table *const t = answer_named(&l->answer, table);
    for (size_t i = 0; i < n_cells(grid); i++)
        show_number(l, cell_of(grid, 0, i), t, column, first + i);
}

/* Spells a cell: a format for its number, and one of its tip for the labels of its row and its column and the number. */
static void spell_cell(lens *l, const lens_grid *grid, size_t i, const char *text, const char *tip)
{
    lens_cell *const cell = cell_of(grid, 0, i);
    cell->text = keep(l, text, cell->number);
    cell->tip = keep(l, tip, grid->rows[i / grid->n_columns], grid->columns[i % grid->n_columns],
                     cell->number);
}

static void spell_cells(lens *l, const lens_grid *grid, const char *text, const char *tip)
{
    for (size_t i = 0; i < n_cells(grid); i++)
        spell_cell(l, grid, i, text, tip);
}

#define TIP_OF_HEAD "layer %s, head %s\n%.4f"
#define TIP_OF_ROW  "%s%.0s\n" /* without the label of the column */

/* A number of two decimals is not shown as -0.00. */
static const char *hundredths(lens *l, double x)
{
    return keep(l, "%.2f", fabs(x) < 0.005 ? 0.0 : x);
}

/* The largest magnitude of the cells. */
static double largest_of(const lens_grid *grid)
{
    double largest = 0;
    for (size_t i = 0; i < n_cells(grid); i++)
        if (isfinite(grid->cells[i].number))
            largest = fmax(largest, fabs(grid->cells[i].number));
    return largest;
}

/* The number that gets the full colour: `most`; or if all numbers are much smaller, the least of 1, 2 and 5
 * times a power of ten that is not below the largest. */
static double fitting(double largest, double most)
{
    static const double steps[] = {0.5, 0.4, 0.5};
    for (int k = 0; largest > 0 && most > 1e-6 && largest <= steps[k % 3] * most; k++)
        most *= steps[k % 3];
    return most;
}

/* Sets colours by the numbers; `most` has the full colour. */
static void colour_cells(const lens_grid *grid, double most)
{
    for (size_t i = 0; i < n_cells(grid); i++)
        cell_of(grid, 0, i)->colour = (float)(grid->cells[i].number / most);
}

/* The same, with the scale in numbers, each in a format. */
static void scale_cells(lens *l, lens_grid *grid, double most, const char *format)
{
    colour_cells(grid, most);
    grid->high = keep(l, format, most);
    grid->low = keep(l, "-%s", grid->high);
}

/* "12 token" for each position. */
static void label_positions(lens *l, lens_grid *grid)
{
    grid->column_name = "position";
    for (size_t t = 0; t < grid->n_columns; t++)
        label_column(grid, t, keep(l, "%zu %s", t, l->text.shown[t]));
}

/* A probability in a few letters. */
static const char *percent(lens *l, double p)
{
    return keep(l, p < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * p);
}

/* "\n 37% token" for each guess. */
static const char *list_guesses(lens *l, const attn_prediction *top, size_t k)
{
    const char *list = "";
    for (size_t i = 0; i < k; i++)
        list = keep(l, "%s\n%6.2f%%  %s", list, 100 * (double)top[i].probability,
                    brief(l, shown_token(l, top[i].token), 40));
    return list;
}

#endif

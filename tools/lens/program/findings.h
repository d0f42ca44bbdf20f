/* The result of a command, shown as tables, as JSON, or as a picture that says which model, text and command
 * made it. */
#ifndef LENS_FINDINGS_H
#define LENS_FINDINGS_H

#include "edits.h"
#include "tools/write/new_file.h"
#include "print_json.h"
#include "print_table.h"

/* ---- where a page comes from ---- */

static int is_plain(const char *bytes, size_t size)
{
    size_t at, length;
    uint32_t code;
    for (at = 0; at < size; at += length) {
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
    size_t i, k, length;
    uint32_t code;
    if (!out)
        return "";
    if (size && strspn(word, safe) >= size)
        return keep(l, "%.*s", (int)size, word);
    for (i = 0; i < size; i += length) {
        length = utf8_length((const unsigned char *)word + i, size - i, &code);
        length = length ? length : 1;
        if (!is_plain(word + i, length))
            for (k = 0; k < length; k++)
                to += sprintf(to, "\\x%02x", (unsigned)(unsigned char)word[i + k]);
        else if (word[i] == '\'' || (!plain && word[i] == '\\'))
            to += sprintf(to, plain ? "'\\''" : "\\%c", word[i]);
        else
            to += sprintf(to, "%.*s", (int)length, word + i);
    }
    return keep(l, plain ? "'%s'" : "$'%s'", size ? out : "");
}

static const char *command_text(lens *l)
{
    const char *const *word, *line = called;
    for (word = l->command_line; *word; word++)
        line = keep(l, "%s %s", line, quoted(l, *word, strlen(*word)));
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

/* ---- pictures ---- */

static int is_svg(const lens *l)
{
    return ends_in(l->o.output, ".svg");
}

static int open_picture(lens *l, lens_new_file **picture)
{
    return lens_new_file_begin(&l->ctx, picture, l->o.output) ? failed(&l->ctx) : FINE;
}

/* Keeps the picture if `code` is FINE and all of it could be written. */
static int close_picture(lens *l, lens_new_file *picture, int code)
{
    const attn_status status =
        lens_new_file_end(&l->ctx, picture, code == FINE ? ATTN_OK : ATTN_STOPPED);
    if (code == FINE && status)
        return failed(&l->ctx);
    if (code == FINE)
        tell_written(l, is_svg(l)
                            ? "a picture; opened in a browser, it tells more of what you point at"
                            : "a page for a browser, which needs no other file");
    return code;
}

static int draw_grids(lens *l, const lens_page *page, const lens_grid *grids, size_t n)
{
    lens_new_file *picture;
    canvas to = {0};
    int code;
    if (l->ctx.status)
        return failed(&l->ctx);
    if ((code = open_picture(l, &picture)) != FINE)
        return code;
    to.file = (FILE *)lens_new_file_stream(picture);
    (is_svg(l) ? svg_grids : html_grids)(&to, page, grids, n);
    code = close_picture(l, picture, interrupted || to.memory.failed ? INTERRUPTED : FINE);
    return to.memory.failed ? fail(FAILED, "no memory to draw %s", l->o.output) : code;
}

/* The result of a command, which its page, its tables and its JSON all show. */
typedef struct findings {
    lens_page page;
    const lens_grid *grids;
    size_t n_grids;
    void (*json)(const lens *l, const void *of); /* prints the members before the grids, or NULL */
    const void *of;
} findings;

static void json_findings(const lens *l, const findings *found)
{
    printf("{");
    if (found->json)
        found->json(l, found->of);
    if (l->o.ci)
        printf("\"ci_of\": \"%s\", \"sign_flips\": \"%s\",\n", l->ci_of, l->flips);
    json_grids(found->grids, found->n_grids);
    printf("}\n");
}

static int present(lens *l, const findings *found)
{
    size_t i;
    if (l->ctx.status)
        return failed(&l->ctx);
    if (l->o.output)
        return draw_grids(l, &found->page, found->grids, found->n_grids);
    if (l->o.json) {
        json_findings(l, found);
        return FINE;
    }
    if (l->columns)
        print_wrapped(found->page.note, 0, 0, l->columns);
    else
        printf("%s\n", found->page.note);
    if (found->page.warning) {
        put(l, found->page.warning, 0, "33");
        printf("\n");
    }
    for (i = 0; i < found->n_grids; i++) {
        printf("\n");
        (found->grids[i].spreads ? print_with_spreads : print_grid)(l, &found->grids[i]);
    }
    return outcome(&l->ctx);
}

/* Allocates a grid without texts and colours. Rows and columns are labelled by their numbers, as layers and
 * heads. The command sets title, high and low, and of each cell number, text and tip; then colour_cells. */
static int make_grid(lens *l, lens_grid *grid, size_t n_rows, size_t n_columns)
{
    lens_cell *cells = (lens_cell *)allocate(l, n_rows * n_columns, sizeof *cells);
    const char **rows = (const char **)allocate(l, n_rows, sizeof *rows);
    const char **columns = (const char **)allocate(l, n_columns, sizeof *columns);
    size_t i;
    memset(grid, 0, sizeof *grid);
    grid->n_rows = n_rows;
    grid->n_columns = n_columns;
    grid->cells = cells;
    grid->rows = rows;
    grid->columns = columns;
    if (!cells || !rows || !columns)
        return failed(&l->ctx);
    for (i = 0; i < n_rows * n_columns; i++)
        cells[i].text = cells[i].tip = "";
    for (i = 0; i < n_rows; i++)
        rows[i] = keep(l, "%zu", i);
    for (i = 0; i < n_columns; i++)
        columns[i] = keep(l, "%zu", i);
    grid->title = grid->high = "";
    grid->row_name = "layer";
    grid->column_name = "head";
    return outcome(&l->ctx);
}

/* A cell, to be filled. (The cells of a grid are const for those who draw it.) */
static lens_cell *cell_of(const lens_grid *grid, size_t row, size_t column)
{
    return (lens_cell *)grid->cells + row * grid->n_columns + column;
}

/* The number that gets the full colour: `most`; or if all numbers are much smaller, the least of 1, 2 and 5
 * times a power of ten that is not below the largest. */
static double fitting(double largest, double most)
{
    static const double steps[] = {0.5, 0.4, 0.5};
    int k;
    for (k = 0; largest > 0 && most > 1e-6 && largest <= steps[k % 3] * most; k++)
        most *= steps[k % 3];
    return most;
}

static double fitting_scale(const lens_grid *grid, double most)
{
    double largest = 0;
    size_t i;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        if (isfinite(grid->cells[i].number))
            largest = fmax(largest, fabs((double)grid->cells[i].number));
    return fitting(largest, most);
}

/* Sets colours by the numbers; `most` has the full colour. */
static void colour_cells(const lens_grid *grid, double most)
{
    size_t i;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        cell_of(grid, 0, i)->colour = (float)((double)grid->cells[i].number / most);
}

/* The same, with the scale in numbers. */
static void scale_cells(lens *l, lens_grid *grid, double most)
{
    colour_cells(grid, most);
    grid->low = keep(l, "-%.2f", most);
    grid->high = keep(l, "%.2f", most);
}

/* "12 token" for each position. */
static void label_positions(lens *l, lens_grid *grid)
{
    size_t t;
    grid->column_name = "position";
    for (t = 0; t < grid->n_columns; t++)
        ((const char **)grid->columns)[t] = keep(l, "%zu %s", t, l->text.shown[t]);
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
    size_t i;
    for (i = 0; i < k; i++)
        list = keep(l, "%s\n%6.2f%%  %s", list, 100 * (double)top[i].probability,
                    brief(l, shown_token(l, top[i].token), 40));
    return list;
}

#endif

/* Writes the rows of words, as CSV or JSON, and continues the file of an earlier run (--resume). */
#ifndef SURPRISAL_ROWS_H
#define SURPRISAL_ROWS_H

#include "measure.h"

/* >> Cells ===================================================================================== */

/* Begins a cell. In CSV a name counts only in the header. */
static void begin_cell(run *r, const char *name)
{
    if (r->o.json)
        out_key(&r->row, name);
    else if (r->row.size)
        out_bytes(&r->row, ",", 1);
}

/* A field of CSV, in quotes where it needs them. */
static void csv_text(run *r, const char *text, size_t size)
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

static void text_cell(run *r, const char *name, const char *text, size_t size)
{
    begin_cell(r, name);
    if (r->o.json)
        out_text(&r->row, NULL, text, size);
    else
        csv_text(r, text, size);
}

/* Some bytes of a text, which may be parts of characters: those become U+FFFD. */
static void token_cell(run *r, const char *name, attn_token id)
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

static void count_cell(run *r, const char *name, size_t value)
{
    char text[24];
    begin_cell(r, name);
    snprintf(text, sizeof text, "%zu", value);
    out_spelled(&r->row, NULL, text, strlen(text));
    r->row.follows = r->o.json;
}

/* A number with six decimals, made of whole numbers: C libraries may round the last digit of a double
 * differently. */
static void number_cell(run *r, const char *name, double value)
{
    const double millionths = floor(product(fabs(value), 1e6) + 0.5);
    const uint64_t whole = millionths < 1e18 ? (uint64_t)millionths : 0;
    char text[40];
    begin_cell(r, name);
    if (millionths < 1e18)
        snprintf(text, sizeof text, "%s%llu.%06llu", value < 0 && whole ? "-" : "",
                 TOOLS_LLU(whole / 1000000), TOOLS_LLU(whole % 1000000));
    else
        snprintf(text, sizeof text, "%s",
                 r->o.json      ? "null"
                 : isnan(value) ? "NA"
                 : value < 0    ? "-Inf"
                                : "Inf");
    out_spelled(&r->row, NULL, text, strlen(text));
    r->row.follows = r->o.json;
}

/* >> The output ================================================================================ */

static int fail_output(const run *r)
{
    if (errno == EPIPE)
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write %s: %s", r->part ? r->part : "the output", why(errno));
}

/* Where row number `skip` of an earlier output begins. The last whole row is made again, and compared. */
static size_t find_row(run *r)
{
    size_t i, row = 0, place = 0, n = 0;
    int quoted = 0;
    for (i = 0; i < r->n_kept; i++) {
        quoted ^= r->kept[i] == '"' && !r->o.json;
        if (r->kept[i] == '\n' && !quoted) {
            place = row;
            row = i + 1;
            n++;
        }
    }
    r->skip = n > 0 ? n - 1 : 0;
    return place;
}

static int open_output(run *r)
{
    const char *path = r->o.output, *what;
    char target[LENS_MOST_PATH];
    FILE *old;
    size_t size;
    int mode;
    r->output = stdout;
    if (!path || strcmp(path, "-") == 0) {
        system_binary(stdout);
        return FINE;
    }
    if (system_same_file(path, r->o.model) || system_same_file(path, r->o.file))
        return fail(USAGE, "-o %s: that is the %s", path,
                    system_same_file(path, r->o.model) ? "model" : "input");
    if ((what = system_not_a_file(path)) != NULL)
        return fail(USAGE, "-o %s: that is %s, where a file is needed", path, what);
    if (!lens_follow_links(target, path))
        return fail(FAILED, "%s: %s", path, why(errno));
    if (system_exists(target) && !lens_may_replace(target, &mode)) { /* an open file */
        r->output = system_open(target, "ab");
        return r->output ? FINE : fail(FAILED, "%s: %s", path, why(errno));
    }
    size = strlen(target) + sizeof ".part";
    if (!(r->part = (char *)arena_alloc(&r->ctx, &r->memory, size, 1)) ||
        !(r->target = arena_text(&r->ctx, &r->memory, target, strlen(target))))
        return failed(&r->ctx);
    snprintf(r->part, size, "%s.part", target);
    old = system_exists(r->part) ? system_open(r->part, "rb") : NULL;
    if (old && !r->o.resume) {
        fclose(old);
        return fail(
            FAILED,
            "%s has rows of a run that was interrupted: continue it with --resume, or remove it",
            r->part);
    }
    if (old) {
        const attn_status status =
            read_all(&r->ctx, &r->memory, old, r->part, (size_t)1 << 30, &r->kept, &r->n_kept);
        fclose(old);
        if (status)
            return failed(&r->ctx);
        r->kept_at = find_row(r);
    }
    r->output = system_open(r->part, old ? "rb+" : "wb");
    if (!r->output || (old && system_seek(r->output, r->n_kept) != 0))
        return fail(FAILED, "%s: %s", r->part, why(errno));
    return FINE;
}

static int refuse_resume(const run *r, uint64_t line)
{
    return fail(
        FAILED,
        "--resume: line %llu of %s is another one now: it was made with another model, other "
        "options or other texts",
        TOOLS_LLU(line), r->part);
}

/* Compares the row with what an earlier run wrote, and writes what that run did not. */
static int write_row(run *r, uint64_t number)
{
    const int is_header = number == 0 && r->skip > 0;
    const size_t at = is_header ? 0 : r->kept_at, left = r->n_kept - at, size = r->row.size;
    const size_t same = left < size ? left : size;
    if (same > 0 && memcmp(r->row.text, r->kept + at, same) != 0)
        return refuse_resume(r, number + 1);
    r->kept_at += is_header ? 0 : same;
    if (size > same && fwrite(r->row.text + same, 1, size - same, r->output) != size - same)
        return fail_output(r);
    return FINE;
}

static int end_row(run *r)
{
    const uint64_t number = r->n_records++;
    int code = FINE;
    if (r->o.json)
        out_close(&r->row, '}');
    out_bytes(&r->row, "\n", 1);
    if (r->row.failed)
        return fail(FAILED, "no memory for a row");
    if (number >= r->skip || (number == 0 && !r->o.json))
        code = write_row(r, number);
    r->row.size = 0;
    r->row.follows = 0;
    return code;
}

/* >> Rows ====================================================================================== */

/* Does the output have a column of this name that is not carried from the input? */
static int is_own_name(const run *r, span name)
{
    static const char always[] = "text index word tokens surprisal uncorrected entropy";
    return find_name(always, name.text, name.size) >= 0 ||
           (r->o.by == BY_TOKEN && find_name("token token_id", name.text, name.size) >= 0) ||
           ((r->o.regions || r->o.region_names) &&
            find_name("region", name.text, name.size) == 0) ||
           (r->o.rank && find_name("rank", name.text, name.size) == 0) ||
           (r->o.top && name.size > 3 && memcmp(name.text, "top", 3) == 0);
}

/* The name in the output of a column of the input. */
static void carried_name(const run *r, size_t column, char *name, size_t room)
{
    const span given = r->input.names[column];
    snprintf(name, room, "%s%.*s", is_own_name(r, given) ? "input_" : "",
             (int)(given.size < 200 ? given.size : 200), given.text);
}

static void top_names(size_t i, char token[48], char probability[48])
{
    snprintf(token, 48, "top%zu", i + 1);
    snprintf(probability, 48, "top%zu_probability", i + 1);
}

static int write_header(run *r)
{
    static const char *const names[] = {"text",      "index",       "word",   "tokens",
                                        "surprisal", "uncorrected", "entropy"};
    char name[256], second[48];
    size_t i;
    if (r->o.json)
        return FINE;
    r->n_counted = 1;
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        text_cell(r, "", names[i], strlen(names[i]));
    if (r->o.by == BY_TOKEN) {
        text_cell(r, "", "token", 5);
        text_cell(r, "", "token_id", 8);
    }
    if (r->o.regions || r->o.region_names)
        text_cell(r, "", "region", 6);
    if (r->o.rank)
        text_cell(r, "", "rank", 4);
    for (i = 0; i < r->o.top; i++) {
        top_names(i, name, second);
        text_cell(r, "", name, strlen(name));
        text_cell(r, "", second, strlen(second));
    }
    for (i = 0; r->input.has_names && i < r->input.n_columns; i++)
        if (i != r->input.column) {
            carried_name(r, i, name, sizeof name);
            text_cell(r, "", name, strlen(name));
        }
    return end_row(r);
}

/* Finds the names of an item's regions, the words of a list, once for all words of the item. */
static void find_region_names(run *r, size_t item)
{
    const span list = r->input.cells[item * r->input.n_columns + r->input.regions];
    const char *at = list.text, *const end = at + list.size;
    span *name;
    if (list.size / 2 + 1 > r->name_room) {
        r->name_room = list.size + 1;
        r->names = (span *)arena_alloc(&r->ctx, &r->memory, r->name_room, sizeof *r->names);
    }
    r->n_names = 0;
    r->names_of = r->names ? item + 1 : 0;
    r->name_room = r->names ? r->name_room : 0;
    while (r->names && at < end) {
        name = &r->names[r->n_names];
        for (name->text = at; at < end && !is_space(*at); at++)
            continue;
        name->size = (size_t)(at - name->text);
        r->n_names += name->size > 0;
        at += at < end;
    }
}

/* The name of region number `i`, from 0, of an item: word i of a list. size 0: there are fewer. */
static span region_name(run *r, size_t item, size_t i)
{
    const span none = {"", 0};
    if (r->names_of != item + 1)
        find_region_names(r, item);
    return i < r->n_names ? r->names[i] : none;
}

static void region_cell(run *r, const word *w)
{
    if (r->input.has_regions) {
        const span name = region_name(r, w->item, w->region);
        text_cell(r, "region", name.text, name.size);
    } else if (r->o.regions) {
        count_cell(r, "region", w->region + 1);
    }
}

/* The cells that come after `entropy`, of a row that begins at position `at`. */
static void more_cells(run *r, const passage *p, const word *w, size_t at)
{
    const int known = at > 0 || !r->o.no_bos;
    char name[256], second[48];
    size_t i;
    if (r->o.by == BY_TOKEN) {
        token_cell(r, "token", p->ids[at]);
        count_cell(r, "token_id", (size_t)p->ids[at]);
    }
    region_cell(r, w);
    if (r->o.rank && known)
        count_cell(r, "rank", p->positions[at].rank);
    else if (r->o.rank)
        number_cell(r, "rank", (double)NAN);
    for (i = 0; i < r->o.top; i++) {
        const attn_prediction *const best = &p->best[at * r->o.top + i];
        top_names(i, name, second);
        if (known)
            token_cell(r, name, best->token);
        else
            number_cell(r, name, (double)NAN);
        number_cell(r, second, known ? (double)best->probability : (double)NAN);
    }
    for (i = 0; r->input.has_names && i < r->input.n_columns; i++)
        if (i != r->input.column) {
            const span cell = r->input.cells[w->item * r->input.n_columns + i];
            carried_name(r, i, name, sizeof name);
            text_cell(r, name, cell.text, cell.size);
        }
}

/* Writes the row of the tokens [at, end), which are a word, one of its tokens, or a region. The words
 * that they belong to are those from w to `last`. */
static int tokens_row(run *r, const passage *p, const word *w, const word *last, size_t at)
{
    const size_t end = r->o.by == BY_TOKEN ? at + 1 : last->token + last->n_tokens;
    const double unit = r->o.unit == BITS ? LOG_OF_2 : 1;
    double sum = 0, surprisal;
    size_t t;
    for (t = at; t < end; t++)
        sum += p->positions[t].nll;
    surprisal = sum;
    if (at == w->token)
        surprisal += p->positions[at].ends;
    if (end == last->token + last->n_tokens)
        surprisal -= p->positions[end].ends;
    if (r->o.json)
        out_open(&r->row, NULL, '{');
    count_cell(r, "text", w->item + 1);
    count_cell(r, "index", (r->o.by == BY_REGION ? w->region : w->index) + 1);
    text_cell(r, "word", p->text + w->begin, last->begin + last->size - w->begin);
    count_cell(r, "tokens", last->token + last->n_tokens - w->token);
    number_cell(r, "surprisal", surprisal / unit);
    number_cell(r, "uncorrected", sum / unit);
    number_cell(r, "entropy", p->positions[at].entropy / unit);
    more_cells(r, p, w, at);
    return end_row(r);
}

/* Are two words of one region? Names that are given for each word join equal neighbours. */
static int is_same_region(run *r, const word *a, const word *b)
{
    span name, other;
    if (a->item != b->item || a->region == b->region || !r->input.has_regions || r->o.regions)
        return a->item == b->item && a->region == b->region;
    name = region_name(r, a->item, a->region);
    other = region_name(r, b->item, b->region);
    return name.size == other.size && memcmp(name.text, other.text, name.size) == 0;
}

/* The number of words, from number i on, that share rows: those of a region, or one. */
static size_t words_of_row(run *r, const passage *p, size_t i)
{
    size_t n = 1;
    while (r->o.by == BY_REGION && i + n < p->n_words &&
           is_same_region(r, &p->words[i], &p->words[i + n]))
        n++;
    return n;
}

/* Writes the rows of the words that are measured. */
static int write_passage(run *r, passage *p)
{
    int code = FINE;
    while (code == FINE && p->n_written < p->n_words) {
        const word *const w = &p->words[p->n_written];
        const size_t n = words_of_row(r, p, p->n_written);
        const word *const last = w + n - 1;
        size_t t, end = last->token + last->n_tokens;
        if (end >= p->n_done)
            return FINE;
        for (t = w->token; code == FINE && t < (r->o.by == BY_TOKEN ? end : w->token + 1); t++)
            code = tokens_row(r, p, w, last, t);
        p->n_written += n;
    }
    return code;
}

/* How many rows the passage has. Sets p->n_kept. */
static uint64_t count_rows(run *r, passage *p)
{
    uint64_t n = 0;
    size_t i, words;
    for (i = 0; i < p->n_words; i += words) {
        words = words_of_row(r, p, i);
        n += r->o.by == BY_TOKEN ? p->words[i].n_tokens : 1;
        if (r->n_counted + n <= r->skip)
            p->n_kept = p->words[i + words - 1].token + p->words[i + words - 1].n_tokens;
    }
    return n;
}

/* Gives a whole output its name. */
static int finish_rows(run *r, int code)
{
    int mode;
    if (!r->part || !r->output)
        return code;
    if (code == FINE && r->kept_at < r->n_kept)
        code = fail(FAILED,
                    "--resume: %s has more rows than %s gives, so it was made from other texts",
                    r->part, r->name);
    if (fclose(r->output) != 0 && code == FINE)
        code = fail_output(r);
    lens_may_replace(r->target, &mode);
    if (code == FINE && !lens_replace(r->part, r->target, mode))
        code = fail(FAILED, "cannot rename %s to %s: %s", r->part, r->target, why(errno));
    return code;
}

#endif

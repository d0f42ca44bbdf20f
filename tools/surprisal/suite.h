/* Test suites (--suite): SyntaxGym's JSON, whose predictions compare regions of an item's conditions, and pairs of a
 * better and a worse sentence, as BLiMP's, in CSV or in lines of JSON.
 *
 *     read_suite(r, text, size)          the sentences become the run's texts
 *     ...                                the run measures them, and sums the surprisal of each region
 *     write_suite(r)                     writes a row for each prediction, region or pair
 */
#ifndef SURPRISAL_SUITE_H
#define SURPRISAL_SUITE_H

#include "formula.h"

static attn_status refuse_suite(surprisal_run *r, size_t item, const char *what)
{
    return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s: item %zu has no %s, as suites of SyntaxGym have",
                     name_of(r), item + 1, what);
}

/* >> SyntaxGym ================================================================================= */

static const json_value *array_of(const json_value *object, const char *key)
{
    const json_value *const v = json_get(object, key);
    return v && v->kind == JSON_ARRAY && v->size > 0 ? v : NULL;
}

/* Adds the sentence of a condition: the contents of its regions, with a blank between them. */
static attn_status add_condition(surprisal_run *r, suite *s, const json_value *condition,
                                 size_t item)
{
    const json_value *const name = json_get(condition, "condition_name"),
                            *const regions = array_of(condition, "regions"), *one;
    json_out text = {NULL, 0, 0, 0, 0};
    text_span *const to = &r->input.texts[r->input.n_records], part;
    region_sums *to_region;
    size_t i, n_words = 0;
    if (!name || name->kind != JSON_STRING || !regions)
        return refuse_suite(r, item, "conditions with a condition_name and regions");
    s->first_region[r->input.n_records++] = s->n_regions;
    for (i = 0, one = regions + 1; i < regions->size; i++, one += one->span) {
        const json_value *const content = json_get(one, "content"), *const number = json_get(
                                                                        one, "region_number");
        if (!content || content->kind != JSON_STRING || !number || number->kind != JSON_NUMBER ||
            json_has_zero(content))
            break;
        part.text = content->text;
        part.size = content->size;
        while (next_name(&part).size > 0)
            n_words++;
        to_region = &s->regions[s->n_regions++]; /* each takes three values of JSON, or more */
        to_region->end = n_words;
        to_region->item = item;
        to_region->number = strtoul(number->text, NULL, 10);
        to_region->condition = name;
        to_region->content = content;
        out_bytes(&text, " ", text.size > 0 && content->size > 0);
        out_bytes(&text, content->text, content->size);
    }
    if (i < regions->size)
        refuse_suite(r, item, "regions with a region_number and a content");
    else if (text.failed)
        tool_fail(&r->ctx, ATTN_E_MEMORY, "no memory for a sentence");
    else
        to->text = arena_text(&r->ctx, &r->memory, text.text, text.size);
    to->size = text.size;
    out_free(&text);
    return r->ctx.status;
}

/* Reads every formula for every item, before the model reads anything, or counts for how many one holds. */
static size_t count_items(surprisal_run *r, const suite *s, size_t prediction, unsigned char *held)
{
    const json_value *one = array_of(s->root, "predictions") + 1;
    formula f = {r, s, prediction, 0, NULL, NULL, held == NULL};
    size_t n = 0;
    for (size_t i = 0; i < prediction; i++)
        one += one->span;
    const json_value *text = json_get(one, "formula");
    if (!text || text->kind != JSON_STRING || json_has_zero(text)) {
        tool_fail(&r->ctx, ATTN_E_FORMAT, "%s: prediction %zu has no formula", name_of(r),
                  prediction + 1);
        return 0;
    }
    f.text = arena_text(&r->ctx, &r->memory, text->text, text->size);
    for (size_t i = 0; f.text && i < s->items->size && !r->ctx.status; i++) {
        f.item_number = i;
        int is_held = holds(&f);
        n += (size_t)is_held;
        if (held)
            held[i] = (unsigned char)is_held;
    }
    return n;
}

static attn_status read_syntaxgym(surprisal_run *r, suite *s, char *text, size_t size)
{
    const json_value *item, *condition;
    size_t i, k, n = 0;
    if (json_parse(&r->ctx, name_of(r), text, size, &s->root) || !s->root)
        return r->ctx.status;
    s->items = array_of(s->root, "items");
    const json_value *predictions = array_of(s->root, "predictions");
    const json_value *metric = json_get(json_get(s->root, "meta"), "metric");
    if (!s->items || !(predictions || s->has_each))
        return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s has no %s, as suites of SyntaxGym have",
                         name_of(r), s->items ? "predictions (--by region needs none)" : "items");
    s->is_mean = json_is(metric, "mean");
    if (metric && !s->is_mean && !json_is(metric, "sum"))
        return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s: the metric is not \"sum\" or \"mean\"",
                         name_of(r));
    for (i = 0, item = s->items + 1; i < s->items->size; i++, item += item->span) {
        if (!array_of(item, "conditions"))
            return refuse_suite(r, i, "conditions");
        n += json_get(item, "conditions")->size;
    }
    r->input.texts = (text_span *)arena_alloc(&r->ctx, &r->memory, n, sizeof(text_span));
    s->first_region = (size_t *)arena_alloc(&r->ctx, &r->memory, n, sizeof(size_t));
    s->regions =
        (region_sums *)arena_alloc(&r->ctx, &r->memory, s->root->span / 3, sizeof(region_sums));
    s->first_record = (size_t *)arena_alloc(&r->ctx, &r->memory, s->items->size, sizeof(size_t));
    if (!r->input.texts || !s->first_region || !s->regions || !s->first_record)
        return r->ctx.status;
    for (i = 0, item = s->items + 1; i < s->items->size; i++, item += item->span) {
        const json_value *const all = json_get(item, "conditions");
        s->first_record[i] = r->input.n_records;
        for (k = 0, condition = all + 1; k < all->size; k++, condition += condition->span)
            if (add_condition(r, s, condition, i))
                return r->ctx.status;
    }
    for (i = 0; predictions && i < predictions->size && !r->ctx.status; i++)
        count_items(r, s, i, NULL);
    r->name = NULL; /* its places are numbers of texts */
    return r->ctx.status;
}

/* >> Pairs ===================================================================================== */

/* Takes members of an object as a record; without a sentence, which may be null, it has none. */
static attn_status take_json_pair(surprisal_run *r, const json_value *object, const char *place,
                                  uint64_t number)
{
    text_table *const t = &r->input;
    if (add_input_record(r, number))
        return r->ctx.status;
    for (size_t i = 0; i < 3; i++) {
        const json_value *const v = json_find(object, t->names[i].text, t->names[i].size);
        text_span *const cell = &t->cells[(t->n_records - 1) * 3 + i];
        const int is_taken = v && (v->kind == JSON_STRING || (i == 2 && v->kind == JSON_NUMBER));
        if (i < 2 && (!v || (v->kind != JSON_NULL && (!is_taken || json_has_zero(v)))))
            return tool_fail(
                &r->ctx, ATTN_E_FORMAT,
                "%s, %s %llu: there is no text \"%.*s\"; name them with --pair GOOD,BAD",
                name_of(r), place, TOOLS_LLU(number), (int)t->names[i].size, t->names[i].text);
        cell->text = is_taken ? v->text : "";
        cell->size = is_taken ? v->size : 0;
    }
    return ATTN_OK;
}

/* Reads a list of objects, or an object in each line. The texts stay in `text`. */
static attn_status read_json_pairs(surprisal_run *r, char *text, size_t size,
                                   const text_span names[3])
{
    char *at = text, *const end = text + size;
    json_value *root = NULL;
    const json_value *one;
    uint64_t line = 1;
    r->input.n_columns = 3;
    if (!(r->input.names = (text_span *)arena_alloc(&r->ctx, &r->memory, 3, sizeof(text_span))))
        return r->ctx.status;
    memcpy(r->input.names, names, 3 * sizeof(text_span));
    if (text[strspn(text, " \n\t")] == '[') {
        if (json_parse(&r->ctx, name_of(r), text, size, &root) || !root)
            return r->ctx.status;
        one = root + 1;
        for (; !r->ctx.status && line <= root->size; line++, one += one->span)
            take_json_pair(r, one, "pair", line);
        at = end;
    }
    for (; at < end && !r->ctx.status; line++) {
        char *newline = (char *)memchr(at, '\n', (size_t)(end - at));
        newline = newline ? newline : end;
        *newline = 0;
        if (at[strspn(at, " \t")] &&
            !json_parse_at(&r->ctx, name_of(r), (size_t)line, at, (size_t)(newline - at), &root))
            take_json_pair(r, root, "line", line);
        free(root);
        root = NULL;
        at = newline + 1;
    }
    free(root);
    return r->ctx.status;
}

/* Makes two texts of each record of the table. names: of the better and the worse sentence, and of the groups. */
static attn_status take_pairs(surprisal_run *r, suite *s, const char *const names[3])
{
    text_table *const t = &r->input;
    const size_t n = t->n_records;
    size_t columns[3] = {0, 1, 2}, n_in_groups = 0;
    uint64_t *const lines = (uint64_t *)arena_alloc(&r->ctx, &r->memory, n, 2 * sizeof *lines);
    text_span *const texts = (text_span *)arena_alloc(&r->ctx, &r->memory, n, 2 * sizeof *texts);
    s->first_region = (size_t *)arena_alloc(&r->ctx, &r->memory, n, 2 * sizeof(size_t));
    s->groups = (text_span *)arena_alloc(&r->ctx, &r->memory, n, sizeof(text_span));
    s->regions = (region_sums *)arena_alloc(&r->ctx, &r->memory, n, 2 * sizeof(region_sums));
    s->n_regions = 2 * n;
    if (!lines || !texts || !s->first_region || !s->groups || !s->regions)
        return r->ctx.status;
    for (size_t k = 0; k < 2; k++)
        if (check_column(r, "--pair", names[k], &columns[k]))
            return r->ctx.status;
    if (r->o.group && check_column(r, "--group", names[2], &columns[2]))
        return r->ctx.status;
    if (!r->o.group && !find_column(t, names[2], &columns[2]))
        columns[2] = t->n_columns;
    for (size_t i = 0; i < n; i++) {
        const text_span *const cells = t->cells + i * t->n_columns;
        for (size_t k = 0; k < 2; k++) {
            texts[2 * i + k] = cells[columns[k]];
            lines[2 * i + k] = t->lines[i];
            s->first_region[2 * i + k] = 2 * i + k;
            s->regions[2 * i + k].end = SIZE_MAX;
        }
        if (columns[2] < t->n_columns)
            s->groups[i] = cells[columns[2]];
        n_in_groups += s->groups[i].size > 0;
    }
    if (r->o.group && n > 0 && n_in_groups == 0)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--group: no pair of %s has a text in \"%s\"",
                         name_of(r), names[2]);
    t->texts = texts;
    t->lines = lines;
    t->n_records = 2 * n;
    t->has_names = 0;
    r->o.column = NULL;
    return ATTN_OK;
}

/* Text must be followed by a zero. */
static attn_status read_suite(surprisal_run *r, char *text, size_t size)
{
    suite *const s = &r->tests;
    const char *const names_of_pair = r->o.pair ? r->o.pair : "sentence_good,sentence_bad";
    const size_t length = strcspn(names_of_pair, ",");
    const char *names[3];
    text_span spans[3];
    if (to_lines(r, text, &size))
        return r->ctx.status;
    text[size] = 0;
    const char first = text[strspn(text, " \n\t")];
    if (first == '{' && strstr(text, "\"conditions\""))
        return r->o.pair || r->o.group
                   ? tool_fail(
                         &r->ctx, ATTN_E_ARGUMENT,
                         "--pair and --group are for pairs of sentences, and %s is a suite of "
                         "SyntaxGym",
                         name_of(r))
                   : read_syntaxgym(r, s, text, size);
    if (!s->has_each && r->o.unit)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "--unit changes no decision: leave it out, or give --by region");
    if (r->o.punctuation && !r->o.corrected)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--punctuation is for --corrected");
    names[0] = arena_text(&r->ctx, &r->memory, names_of_pair, length);
    names[1] = names_of_pair[length] ? names_of_pair + length + 1 : "";
    names[2] = r->o.group ? r->o.group : "field";
    if (!names[0] || !*names[0] || !*names[1] || strchr(names[1], ','))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "--pair: \"%s\" is not two names of columns with a comma between them",
                         names_of_pair);
    for (size_t i = 0; i < 3; i++) {
        spans[i].text = names[i];
        spans[i].size = strlen(names[i]);
    }
    r->o.column = names[0];
    return (first == '{' || first == '[' ? read_json_pairs(r, text, size, spans)
                                         : read_records(r, text, size)) ||
                   take_pairs(r, s, names)
               ? r->ctx.status
               : ATTN_OK;
}

/* Reads the texts of a file's bytes. */
TOOLS_FN attn_status read_input(surprisal_run *r, char *text, size_t size)
{
    return r->o.is_suite ? read_suite(r, text, size) : read_records(r, text, size);
}

/* >> What came of it =========================================================================== */

/* Wilson's interval of 95 % for a share. */
static void share_cells(surprisal_run *r, size_t n_right, size_t n)
{
    const double z = 1.959963984540054, zz = lens_rounded_product(z, z), count = (double)n,
                 p = (double)n_right / count, middle = p + zz / (2 * count),
                 room = lens_rounded_product(
                     z, sqrt((lens_rounded_product(p, 1 - p) + zz / (4 * count)) / count));
    number_cell(r, p);
    number_cell(r, (middle - room) / (1 + zz / count));
    number_cell(r, (middle + room) / (1 + zz / count));
}

/* Names the columns. kinds: a letter for each, of a count, a number, a text or a list. */
static attn_status write_names(surprisal_run *r, size_t n_keys, const char *const *names,
                               const char *kinds)
{
    begin_table(r);
    for (size_t i = 0; kinds[i]; i++)
        add_column(r,
                   kinds[i] == 'c'   ? LENS_WHOLES
                   : kinds[i] == 'n' ? LENS_NUMBERS
                   : kinds[i] == 't' ? LENS_TEXTS
                                     : LENS_LISTS,
                   "%s", names[i]);
    return begin_rows(r, n_keys);
}

/* For which items a prediction holds. */
static void held_cell(surprisal_run *r, const unsigned char *held, size_t n)
{
    json_out list = {NULL, 0, 0, 0, 0};
    out_open(&list, NULL, '[');
    for (size_t k = 0; k < n; k++)
        out_flag(&list, NULL, held[k]);
    out_close(&list, ']');
    r->row.failed |= list.failed;
    text_cell(r, list.text, list.failed ? 0 : list.size);
    out_free(&list);
}

static attn_status write_predictions(surprisal_run *r, const suite *s)
{
    static const char *const names[] = {"prediction", "items", "hold",    "share",
                                        "low",        "high",  "formula", "holds"};
    const json_value *one = array_of(s->root, "predictions");
    const size_t n = one->size, n_items = s->items->size;
    unsigned char *const held = (unsigned char *)arena_alloc(&r->ctx, &r->memory, n_items, 1);
    size_t i, n_held;
    for (i = 0; held && i < n && !r->ctx.status;
         i++) /* what cannot be computed shows before the first row */
        count_items(r, s, i, held);
    attn_status status =
        r->ctx.status ? r->ctx.status
                      : write_names(r, 1, names, r->form == AS_JSON ? "cccnnntl" : "cccnnnt");
    for (i = 0, one++; i < n && status == ATTN_OK; i++, one += one->span) {
        const json_value *const text = json_get(one, "formula");
        n_held = count_items(r, s, i, held);
        count_cell(r, i + 1);
        count_cell(r, n_items);
        count_cell(r, n_held);
        share_cells(r, n_held, n_items);
        text_cell(r, text->text, text->size);
        if (r->form == AS_JSON)
            held_cell(r, held, n_items);
        status = end_row(r);
    }
    return status;
}

/* Do the items have ascending numbers, which tell them apart? */
static int are_numbered(const suite *s)
{
    const json_value *item = s->items + 1, *v;
    uint64_t number, before = 0;
    for (size_t i = 0; i < s->items->size; i++, item += item->span, before = number)
        if (!(v = json_get(item, "item_number")) || !json_u64(v, &number) || number <= before)
            return 0;
    return 1;
}

static attn_status write_regions(surprisal_run *r, const suite *s)
{
    static const char *const names[] = {"item",   "condition", "region",     "content",
                                        "tokens", "surprisal", "uncorrected"};
    const int is_numbered = are_numbered(s);
    const json_value *item = s->items + 1;
    size_t at = 0;
    attn_status status = write_names(r, 3, names, "ctctcnn");
    for (size_t i = 0; i < s->n_regions && status == ATTN_OK; i++) {
        const region_sums *const m = &s->regions[i];
        uint64_t number = m->item + 1;
        for (; at < m->item; at++)
            item += item->span;
        if (is_numbered)
            json_u64(json_get(item, "item_number"), &number);
        count_cell(r, (size_t)number);
        text_cell(r, m->condition->text, m->condition->size);
        count_cell(r, (size_t)m->number);
        text_cell(r, m->content->text, m->content->size);
        count_cell(r, (size_t)m->n_tokens);
        number_cell(r, m->sums[1]);
        number_cell(r, m->sums[0]);
        status = end_row(r);
    }
    return status;
}

enum { WRONG, TIE, RIGHT, UNDECIDED, DECISIONS };

/* RIGHT: the better sentence is likelier, by more than what six decimals show. UNDECIDED: a sentence has no token with a
 * probability. */
static int decision(const surprisal_run *r, size_t number)
{
    const region_sums *const both = &r->tests.regions[2 * number];
    if (both[0].n_tokens == 0 || both[1].n_tokens == 0)
        return UNDECIDED;
    const double better = both[0].sums[r->o.corrected], worse = both[1].sums[r->o.corrected];
    return worse - better > 5e-7 ? RIGHT : better - worse > 5e-7 ? WRONG : TIE;
}

static attn_status write_pairs(surprisal_run *r, const suite *s)
{
    static const char *const names[] = {"line", "group", "better", "worse", "decision"},
                             *const words[] = {"wrong", "tie", "right", "NA"};
    attn_status status = write_names(r, 1, names, "ctnnt");
    for (size_t i = 0; 2 * i < s->n_regions && status == ATTN_OK; i++) {
        const char *const word = words[decision(r, i)];
        count_cell(r, (size_t)r->input.lines[2 * i]);
        text_cell(r, s->groups[i].text, s->groups[i].size);
        for (size_t k = 0; k < 2; k++) {
            const region_sums *const m = &s->regions[2 * i + k];
            number_cell(r, m->n_tokens > 0 ? m->sums[r->o.corrected] : (double)NAN);
        }
        text_cell(r, word, strlen(word));
        status = end_row(r);
    }
    return status;
}

static int is_same(text_span a, text_span b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.text, b.text, a.size) == 0);
}

/* A row for the pairs of a group; NULL: of all. */
static attn_status write_group(surprisal_run *r, const suite *s, const text_span *group)
{
    size_t counts[DECISIONS] = {0};
    for (size_t i = 0; 2 * i < s->n_regions; i++)
        if (!group || is_same(s->groups[i], *group))
            counts[decision(r, i)]++;
    const size_t n = counts[WRONG] + counts[TIE] + counts[RIGHT];
    text_cell(r, group ? group->text : "all", group ? group->size : 3);
    count_cell(r, n);
    count_cell(r, counts[RIGHT]);
    count_cell(r, counts[TIE]);
    share_cells(r, counts[RIGHT], n);
    return end_row(r);
}

static attn_status write_accuracy(surprisal_run *r, const suite *s)
{
    static const char *const names[] = {"group",    "pairs", "right", "ties",
                                        "accuracy", "low",   "high"};
    attn_status status = write_names(r, 1, names, "tcccnnn");
    size_t k;
    for (size_t i = 0; 2 * i < s->n_regions && status == ATTN_OK; i++) {
        for (k = 0; k < i && !is_same(s->groups[k], s->groups[i]); k++)
            continue;
        if (k == i && s->groups[i].size > 0)
            status = write_group(r, s, &s->groups[i]);
    }
    return status ? status : write_group(r, s, NULL);
}

/* Writes the results, after all texts were read. */
static attn_status write_suite(surprisal_run *r)
{
    const suite *const s = &r->tests;
    if (s->root)
        return s->has_each ? write_regions(r, s) : write_predictions(r, s);
    return s->has_each ? write_pairs(r, s) : write_accuracy(r, s);
}

#endif

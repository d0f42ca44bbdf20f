/* Finds the words and tokens of a passage: which bytes, which tokens, and where a word may end. */
#ifndef SURPRISAL_WORDS_H
#define SURPRISAL_WORDS_H

#include "table.h"

/* >> Kinds of tokens =========================================================================== */

/* The kind of a character, by its first bytes: a token may hold only a part of it. */
enum kind_of_character {
    A_LETTER, /* or a digit, or anything else */
    A_BLANK,
    A_MARK, /* punctuation */
    A_REST  /* bytes that continue a character of an earlier token */
};

/* Punctuation is that of ASCII, of Latin-1, of U+2000 to U+203F and of U+3000 to U+303F. */
static int kind_at(const char *text, size_t size)
{
    const unsigned char c = (unsigned char)text[0], next = size > 1 ? (unsigned char)text[1] : 0;
    if (c == ' ')
        return A_BLANK;
    if (c >= 0x80 && c < 0xc0)
        return A_REST;
    if ((c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
        (c > 'z' && c < 0x7f))
        return A_MARK;
    if ((c == 0xe2 || c == 0xe3) && next == 0x80)
        return A_MARK;
    return c == 0xc2 && next && strchr("\xa1\xa7\xab\xb6\xb7\xbb\xbf", next) ? A_MARK : A_LETTER;
}

/* Sets the kinds of the first and the last character of each token. */
static attn_status find_kinds(surprisal_run *r)
{
    size_t size;
    r->starts = (unsigned char *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, 1);
    r->ends = (unsigned char *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, 1);
    if (!r->starts || !r->ends)
        return r->ctx.status;
    for (size_t t = 0; t < r->n_vocab; t++) {
        const char *const bytes = attn_token_bytes(&size, r->tokenizer, (int32_t)t);
        const int is_text = bytes && size && !attn_tokenizer_is_special(r->tokenizer, (int32_t)t);
        r->starts[t] = (unsigned char)(is_text ? kind_at(bytes, size) : A_LETTER);
        r->ends[t] = A_REST;
        for (size_t i = size; is_text && i > 0 && r->ends[t] == A_REST; i--)
            r->ends[t] = (unsigned char)kind_at(bytes + i - 1, size - i + 1);
        r->ends[t] = is_text ? r->ends[t] : A_LETTER;
    }
    return ATTN_OK;
}

static int is_in_set(const surprisal_run *r, attn_token token, int set)
{
    const int kind = r->starts[token];
    const int ends = attn_config_is_eos(r->config, token) || kind == A_BLANK;
    if (set == AT_BEGIN)
        return attn_tokenizer_adds_blank(r->tokenizer) ? ends : kind != A_BLANK;
    if (ends)
        return 1;
    return set == AFTER_WORD ? r->o.punctuation == APART && kind == A_MARK : kind == A_LETTER;
}

static attn_status find_sets(surprisal_run *r)
{
    const attn_status status = find_kinds(r);
    size_t n_blank = 0;
    for (size_t t = 0; status == ATTN_OK && t < r->n_vocab; t++)
        n_blank += r->starts[t] == A_BLANK;
    if (status == ATTN_OK && n_blank == 0)
        return tool_fail(
            &r->ctx, ATTN_E_TOKENIZER,
            "the vocabulary of %s has no token that begins with a blank, so nothing says "
            "where a word ends",
            r->model_name);
    for (int set = AT_BEGIN; status == ATTN_OK && set < N_SETS; set++) {
        attn_token *const ids =
            (int32_t *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, sizeof *ids);
        if (!ids)
            return r->ctx.status;
        for (size_t t = 0; t < r->n_vocab; t++)
            if (is_in_set(r, (int32_t)t, set))
                ids[r->set_sizes[set]++] = (int32_t)t;
        r->sets[set] = ids;
    }
    return status;
}

/* >> Words ===================================================================================== */

static int is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The size of a mark of --regions at `at`; 0: there is none. */
static size_t mark_size(const surprisal_run *r, const char *at, const char *end)
{
    const size_t size = r->o.regions ? strlen(r->o.regions) : 0;
    return size && (size_t)(end - at) >= size && memcmp(at, r->o.regions, size) == 0 ? size : 0;
}

/* Takes the next name off a list of names of regions. size 0: there are no more. */
static text_span next_name(text_span *list)
{
    const char *const end = list->text + list->size;
    text_span name = {list->text, 0};
    while (name.text < end && is_space(*name.text))
        name.text++;
    while (name.text + name.size < end && !is_space(name.text[name.size]))
        name.size++;
    list->text = name.text + name.size;
    list->size = (size_t)(end - list->text);
    return name;
}

/* Refuses an item with more or fewer names of regions than regions. */
static attn_status check_names(surprisal_run *r, size_t item, size_t n_regions)
{
    text_span list = r->input.lists[item];
    size_t n_names = 0;
    place_text where;
    while (next_name(&list).size > 0)
        n_names++;
    return n_names == n_regions
               ? ATTN_OK
               : tool_fail(&r->ctx, ATTN_E_FORMAT, "%s: %zu names of regions for %zu regions",
                           place_of_item(where, r, item), n_names, n_regions);
}

/* Adds the words of an item to the passage, which has room for them. */
static attn_status add_words(surprisal_run *r, passage *p, size_t item)
{
    const text_span text = r->input.texts[item];
    text_span list = r->o.region_names ? r->input.lists[item] : text, name = {NULL, 0};
    const char *at = text.text, *const end = at + text.size;
    const size_t before = p->n_words, size = p->size;
    size_t gap = 0, mark = 0, n_regions = 0, n_loose = 0; /* mark: the size of the latest one */
    int in_region = 0;
    for (; at < end; at += gap) {
        const char *const begin = at;
        while (at < end && !is_space(*at) && mark_size(r, at, end) == 0)
            at++;
        if (at > begin) {
            text_word *const w = &p->words[p->n_words++];
            memset(w, 0, sizeof *w);
            if (p->n_words > 1)
                p->text[p->size++] = ' ';
            name = in_region || !r->o.region_names ? name : next_name(&list);
            n_regions += !in_region;
            r->found.n_joined += (uint64_t)in_region;
            w->item = item;
            w->index = p->n_words - 1 - before;
            w->region = n_regions - 1;
            w->name = name;
            w->begin = p->size;
            w->size = (size_t)(at - begin);
            memcpy(p->text + p->size, begin, w->size);
            p->size += w->size;
            in_region = 1;
        }
        mark = at == begin ? mark : 0;
        gap = at == end ? 0 : mark_size(r, at, end);
        n_loose += gap > 0 ? !in_region : mark > 0;
        mark = gap;
        if (at < end && gap == 0) { /* a blank ends the region */
            gap = 1;
            in_region = 0;
        }
    }
    r->found.n_loose += n_loose + (mark > 0) > 0;
    r->found.n_blank += p->n_words == before;
    r->found.n_spaced += p->n_words > before && !r->o.regions &&
                         (p->size - size - (before > 0) != text.size ||
                          memcmp(p->text + size + (before > 0), text.text, text.size) != 0);
    if (name.size > 0 && n_regions == 1 && (r->o.text_column || r->o.continues)) {
        for (size_t i = before; i < p->n_words;
             i++) /* a word a row: its region has the whole cell */
            p->words[i].name = r->input.lists[item];
        return ATTN_OK;
    }
    return r->o.region_names && n_regions ? check_names(r, item, n_regions) : ATTN_OK;
}

/* The bytes of token t, which stands at `at` in the text; without a blank that the vocabulary adds. */
static const char *spelled(const surprisal_run *r, const passage *p, size_t t, size_t at,
                           size_t *size)
{
    const char *const bytes = attn_token_bytes(size, r->tokenizer, p->ids[t]);
    const int added = bytes && *size > 0 && *bytes == ' ' && p->text[at] != ' ';
    *size -= (size_t)added;
    return bytes ? bytes + added : NULL;
}

/* Splits words where punctuation begins or ends, if a token does. */
static attn_status part_punctuation(surprisal_run *r, passage *p)
{
    text_word *const parts = (text_word *)arena_alloc(&r->ctx, &p->memory, p->n + 1, sizeof *parts);
    size_t n = 0, index = 0, size;
    if (!parts)
        return r->ctx.status;
    for (size_t i = 0; i < p->n_words; i++) {
        const text_word w = p->words[i];
        size_t at = w.begin;
        int kind = A_REST; /* of the latest character */
        index = i > 0 && p->words[i - 1].item == w.item ? index : 0;
        for (size_t t = w.token; t < w.token + w.n_tokens; t++) {
            const int starts = r->starts[p->ids[t]], ends = r->ends[p->ids[t]];
            if (t == w.token || (kind == A_MARK && starts == A_LETTER) ||
                (kind == A_LETTER && starts == A_MARK)) {
                parts[n] = w;
                parts[n].index = index++;
                parts[n].begin = at;
                parts[n].size = 0;
                parts[n].token = t;
                parts[n++].n_tokens = 0;
            }
            kind = ends == A_REST ? kind : ends == A_BLANK ? A_REST : ends;
            const int has_blank = t == w.token && w.begin > 0; /* the one before the word */
            spelled(r, p, t, at - (size_t)has_blank, &size);
            size -= (size_t)has_blank;
            parts[n - 1].size += size;
            parts[n - 1].n_tokens++;
            at += size;
        }
    }
    p->words = parts;
    p->n_words = n;
    return ATTN_OK;
}

/* >> Tokens ==================================================================================== */

static attn_status refuse_bytes(surprisal_run *r, const passage *p, size_t at)
{
    size_t i = 0;
    shown one;
    place_text where;
    while (i + 1 < p->n_words && p->words[i + 1].begin <= at)
        i++;
    return tool_fail(&r->ctx, ATTN_E_TOKENIZER,
                     "%s: the vocabulary of %s lacks a character of \"%s\"",
                     place_of_item(where, r, p->words[i].item), r->model_name,
                     show(one, p->text + p->words[i].begin, p->words[i].size));
}

/* Gives each word its tokens. The blank before a word is part of its first token, or is that token. */
static attn_status divide_tokens(surprisal_run *r, passage *p)
{
    size_t size, at = 0, i = 0;
    for (size_t t = 0; t < p->n; t++) {
        const char *const bytes = spelled(r, p, t, at, &size);
        if (!bytes || size > p->size - at || memcmp(bytes, p->text + at, size) != 0)
            return refuse_bytes(r, p, at);
        if (size > 1 && memchr(bytes + 1, ' ', size - 1))
            return tool_fail(&r->ctx, ATTN_E_TOKENIZER,
                             "the vocabulary of %s has tokens with a blank behind a letter, which "
                             "belong to two words",
                             r->model_name);
        while (at >= p->words[i].begin + p->words[i].size)
            i++;
        if (p->words[i].n_tokens++ == 0)
            p->words[i].token = t;
        at += size;
    }
    return at == p->size ? ATTN_OK : refuse_bytes(r, p, at);
}

/* Decides which tokens end a word at each position that a word begins or ends at. */
static void find_ends(surprisal_run *r, passage *p)
{
    p->sets[0] = AT_BEGIN;
    for (size_t i = 0; i < p->n_words; i++) {
        const text_word *const w = &p->words[i];
        int kind = A_LETTER;
        for (size_t t = w->token; t < w->token + w->n_tokens; t++)
            kind = r->ends[p->ids[t]] == A_REST ? kind : r->ends[p->ids[t]];
        p->sets[w->token + w->n_tokens] =
            r->o.punctuation == APART && kind == A_MARK ? AFTER_MARK : AFTER_WORD;
    }
}

/* The tokens of a passage, for which there is room for p->n. */
static attn_status encode_passage(surprisal_run *r, passage *p)
{
    return (r->o.special ? attn_encode_special : attn_encode)(&r->ctx, p->ids, &p->n, r->tokenizer,
                                                              p->text, p->size);
}

/* Makes a passage of the items [first, end). The caller frees its memory. */
static attn_status make_passage(surprisal_run *r, passage *p, size_t first, size_t end)
{
    size_t size = 0;
    attn_status status = ATTN_OK;
    memset(p, 0, sizeof *p);
    for (size_t i = first; i < end; i++)
        size += r->input.texts[i].size + 1;
    p->text = (char *)arena_alloc(&r->ctx, &p->memory, size + 1, 1);
    p->words = (text_word *)arena_alloc(&r->ctx, &p->memory, size / 2 + 1, sizeof *p->words);
    p->ids = (int32_t *)arena_alloc(&r->ctx, &p->memory, size + 1, sizeof *p->ids);
    if (!p->text || !p->words || !p->ids)
        return r->ctx.status;
    for (size_t i = first; status == ATTN_OK && i < end; i++)
        status = add_words(r, p, i);
    p->n = size;
    if (status || encode_passage(r, p))
        return r->ctx.status;
    if ((status = divide_tokens(r, p)) == ATTN_OK && r->o.punctuation == APART)
        status = part_punctuation(r, p);
    return status;
}

/* The byte of the whole text at which the context of a row begins. `w` is the first word of the row. The caller asks for the
 * rows in their order. */
static size_t begin_of_context(surprisal_run *r, const text_word *w)
{
    const char *const text = r->whole.text;
    size_t at = w->begin, size;
    for (size_t i = 0; r->is_in_words && i < r->context && at > 0; i++)
        for (at--; at > 0 && text[at - 1] != ' ';)
            at--;
    if (r->is_in_words)
        return at;
    for (; r->cut_token + r->context < w->token; r->cut_byte += size)
        spelled(r, &r->whole, r->cut_token++, r->cut_byte, &size);
    return r->cut_byte + (text[r->cut_byte] == ' ');
}

/* Makes a passage of a row and of its context. The row has the words [first, first + n) of the whole text. */
static attn_status cut_passage(surprisal_run *r, passage *p, size_t first, size_t n)
{
    const passage *const from = &r->whole;
    const text_word *const last = &from->words[first + n - 1];
    const size_t begin = begin_of_context(r, &from->words[first]);
    size_t earliest = first;
    memset(p, 0, sizeof *p);
    while (earliest > 0 && from->words[earliest - 1].begin + from->words[earliest - 1].size > begin)
        earliest--;
    p->n_words = first + n - earliest;
    p->n_written = first - earliest;
    p->begins_text = first == 0;
    p->size = last->begin + last->size - begin;
    p->n = p->size + 1;
    p->text = arena_text(&r->ctx, &p->memory, from->text + begin, p->size);
    p->words = (text_word *)arena_alloc(&r->ctx, &p->memory, p->n_words, sizeof *p->words);
    p->ids = (int32_t *)arena_alloc(&r->ctx, &p->memory, p->n + 1, sizeof *p->ids);
    if (!p->text || !p->words || !p->ids)
        return r->ctx.status;
    for (size_t i = 0; i < p->n_words; i++) {
        text_word *const w = &p->words[i];
        *w = from->words[earliest + i];
        const size_t cut =
            w->begin < begin ? begin - w->begin : 0; /* if the context begins in it */
        w->begin += cut - begin;
        w->size -= cut;
        w->n_tokens = 0;
    }
    return encode_passage(r, p) ? r->ctx.status : divide_tokens(r, p);
}

/* Sets the numbers of earlier rows to NaN: a text begins. */
static void forget_rows(const surprisal_run *r, double *values)
{
    for (size_t i = 0; i < (1 + r->o.spillover) * r->n_values; i++)
        values[i] = (double)NAN;
}

/* Makes room for what is measured. */
static attn_status make_positions(surprisal_run *r, passage *p)
{
    static const text_position unknown = {{(double)NAN, (double)NAN}, (double)NAN, (double)NAN, 0};
    const size_t n_values = (1 + r->o.spillover) * r->n_values;
    p->positions =
        (text_position *)arena_alloc(&r->ctx, &p->memory, p->n + 1, sizeof *p->positions);
    p->sets = (unsigned char *)arena_alloc(&r->ctx, &p->memory, p->n + 1, 1);
    if (r->o.top)
        p->best = (attn_prediction *)arena_alloc(&r->ctx, &p->memory, p->n + 1,
                                                 r->o.top * sizeof *p->best);
    p->by_layer =
        (likelihood *)arena_alloc(&r->ctx, &p->memory, p->n + 1, r->n_layers * sizeof *p->by_layer);
    p->values = r->o.context
                    ? r->latest
                    : (double *)arena_alloc(&r->ctx, &p->memory, n_values, sizeof *p->values);
    if (!p->positions || !p->sets || (r->o.top && !p->best) || !p->by_layer || !p->values)
        return r->ctx.status;
    if (!r->o.context)
        forget_rows(r, p->values);
    if (r->o.no_bos) /* nothing predicts the first token */
        p->positions[0] = unknown;
    for (size_t i = 0; r->o.no_bos && i < r->n_layers; i++)
        p->by_layer[i] = unknown.of;
    find_ends(r, p);
    return ATTN_OK;
}

#endif

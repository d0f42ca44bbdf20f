/* Looks at the options and at every text before the model reads the first one, and makes room for the run. */
#ifndef SURPRISAL_CHECK_H
#define SURPRISAL_CHECK_H

#include "windows.h"

/* Reads --context: "50" tokens, or "20w", words. */
static attn_status read_context(surprisal_run *r)
{
    const char *const text = r->o.context;
    char *end = NULL;
    const uint64_t n = text ? strtoull(text, &end, 10) : 0;
    if (!text)
        return ATTN_OK;
    r->context = (size_t)n;
    r->is_in_words = *end == 'w' && end[1] == 0;
    if (*text < '0' || *text > '9' || (*end && !r->is_in_words) || n < 1 || n > 1000000)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "--context is \"%s\"; expected a number of tokens from 1 to 1000000, "
                         "or of words, such as 20w",
                         text);
    return ATTN_OK;
}

/* Checks which options were given together, and numbers that no model is needed for. */
static attn_status check_settings(surprisal_run *r)
{
    const surprisal_options *const o = &r->o;
    const char *const mark = o->regions;
    if (o->is_suite && o->by == BY_TOKEN)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--by token means nothing to --suite");
    if (!o->is_suite && (o->pair || o->group || o->corrected))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "--pair, --group and --corrected are for --suite");
    if (r->o.region_names && !r->o.column)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "--region-names is for a table: give the column of texts with --column");
    if (o->text_column && (!o->column || o->continues))
        return tool_fail(
            &r->ctx, ATTN_E_ARGUMENT,
            o->column ? "--text-column and --continue contradict"
                      : "--text-column is for a table: give the column of texts with --column");
    if (o->by == BY_REGION && !mark && !o->region_names && !o->is_suite)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "--by region needs --regions MARK or --region-names COLUMN");
    if (mark && (!*mark || strpbrk(mark, " \t\r\n\v\f")))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--regions: \"%s\" is not a mark without blanks",
                         mark);
    if (o->pooling && !o->vectors.n)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--pooling is for --vectors");
    if (o->tuned && !o->layers)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "--tuned is for --layers");
    /* Beside 1 the entropy of Renyi is a small difference divided by a smaller one, which leaves no digits. */
    if (o->renyi != 1 && fabs((double)o->renyi - 1) < 0.0099)
        return tool_fail(
            &r->ctx, ATTN_E_ARGUMENT,
            "--renyi is %g; expected 1, which is the entropy, or what differs from it by "
            "0.01 or more",
            (double)o->renyi);
    return ATTN_OK;
}

/* Checks the options for the model, which is open, and knows its vocabulary then. */
static attn_status check_for_model(surprisal_run *r)
{
    r->config = attn_model_config(r->model);
    r->tokenizer = attn_model_tokenizer(r->model);
    r->n_vocab = r->config->n_vocab;
    r->n_ctx = r->config->n_ctx;
    r->answer.ctx = &r->ctx;
    r->answer.memory = &r->memory;
    size_t room = room_for_tokens(r);
    if (check_settings(r) || read_context(r))
        return r->ctx.status;
    r->tests.has_each = r->o.is_suite && r->o.by == BY_REGION;
    if (r->o.is_suite)
        r->o.by = BY_WORD;
    if (!r->tokenizer)
        return tool_fail(&r->ctx, ATTN_E_TOKENIZER, "%s has no tokenizer, so it cannot read a text",
                         r->model_name);
    if (!r->o.no_bos && r->config->bos < 0)
        return tool_fail(&r->ctx, ATTN_E_TOKENIZER,
                         "%s has no beginning-of-text token: give --no-bos; the first word of each "
                         "text then has no value",
                         r->model_name);
    if (r->n_ctx < 3)
        return tool_fail(&r->ctx, ATTN_E_CONTEXT,
                         "the context of %s holds %zu tokens; expected at least 3", r->model_name,
                         r->n_ctx);
    if (r->o.stride > room)
        return tool_fail(&r->ctx, ATTN_E_CONTEXT,
                         "--stride is %zu, but the model's context holds %zu", r->o.stride, room);
    if (r->o.stride == 0)
        r->o.stride = room / 2 < 512 ? room / 2 : 512;
    if (r->o.top > r->n_vocab)
        return tool_fail(&r->ctx, ATTN_E_TOKEN, "--top is %zu, but the vocabulary has %zu tokens",
                         r->o.top, r->n_vocab);
    if (find_sets(r) || find_layers(r) || find_vectors(r))
        return r->ctx.status;
    r->n_values = r->n_layers + 3 + (size_t)(r->o.entropy_reduction + (r->o.renyi > 0));
    return !r->o.tuned ? ATTN_OK : lens_tuned_open(&r->ctx, &r->tuned, r->model, r->o.tuned);
}

/* >> Notes ===================================================================================== */

static void add_note(surprisal_run *r, const char *text)
{
    answer_note(&r->answer, arena_text(&r->ctx, &r->memory, text, strlen(text)));
}

static void note_texts(surprisal_run *r, uint64_t n, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "%llu of %zu texts %s", TOOLS_LLU(n), r->input.n_records, what);
    if (n)
        add_note(r, text);
}

/* The blanks of Unicode that ASCII has not, and the zero-width ones. */
static int is_wide_blank(uint32_t c)
{
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200b) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x2060 || c == 0x3000 || c == 0xfeff;
}

/* How far a character goes towards a word that only a script without blanks has: 5 of Chinese or Japanese, or
 * 20 letters of Thai, Lao, Burmese or Khmer. Katakana has long words. */
static unsigned unparted_weight(uint32_t c)
{
    if ((c >= 0x3040 && c < 0x30a0) || (c >= 0x3400 && c < 0xa000) || (c >= 0xf900 && c < 0xfb00) ||
        (c >= 0x20000 && c < 0x3fffe))
        return 4;
    return (c >= 0xe00 && c < 0xf00) || (c >= 0x1000 && c < 0x10a0) || (c >= 0x1780 && c < 0x1800);
}

/* Looks for characters that a reader takes for something else than the model does. */
static void look_at_characters(surprisal_run *r, text_span text)
{
    const unsigned char *const bytes = (const unsigned char *)text.text;
    size_t length;
    unsigned weight = 0, most = 0;
    int blanks = 0, hyphens = 0, signs = 0;
    uint32_t c = 0;
    for (size_t at = 0; at < text.size; at += length) {
        length = utf8_length(bytes + at, text.size - at, &c);
        length = length ? length : 1;
        weight = is_space(text.text[at]) ? 0 : weight + unparted_weight(c);
        most = weight > most ? weight : most;
        hyphens |= c == 0xad;
        signs |= text.size - at >= 5 && (memcmp(text.text + at, "<eos>", 5) == 0 ||
                                         memcmp(text.text + at, "<unk>", 5) == 0);
        if (is_wide_blank(c)) {
            r->found.blank = r->found.blank ? r->found.blank : c;
            blanks = 1;
        }
    }
    r->found.n_unbroken += (uint64_t)blanks;
    r->found.n_hyphens += (uint64_t)hyphens;
    r->found.n_signs += (uint64_t)signs;
    r->found.n_unparted += most >= 20;
}

/* Is a text one number, such as "-1.5" or "3,2e4"? */
static int is_number(text_span text)
{
    const char *at = text.text, *end = text.text + text.size;
    int digits = 0;
    while (at < end && is_space(*at))
        at++;
    while (end > at && is_space(end[-1]))
        end--;
    for (at += at < end && strchr("+-", *at) != NULL; at < end; at++) {
        if (*at >= '0' && *at <= '9')
            digits = 1;
        else if (!strchr(digits ? ".,eE+-" : ".,", *at) || !*at)
            return 0;
    }
    return digits;
}

static void look_at_text(surprisal_run *r, text_span text)
{
    look_at_characters(r, text);
    r->found.n_numbers += (uint64_t)is_number(text);
    r->found.n_na += text.size == 2 && memcmp(text.text, "NA", 2) == 0;
}

static void say_found(surprisal_run *r)
{
    const text_findings *const f = &r->found;
    const uint64_t n = r->input.n_records;
    char text[320];
    note_texts(r, f->n_blank,
               r->o.is_suite ? "have no words, so nothing is decided by them"
                             : "have no words, and so no rows");
    note_texts(r, f->n_spaced,
               "have tabs, line feeds, or blanks that are doubled or at an end: each of these "
               "was read as one blank, or as none at an end");
    snprintf(text, sizeof text,
             "have no-break spaces or other blanks of Unicode (U+%04X), which do not part words",
             (unsigned)f->blank);
    note_texts(r, f->n_unbroken, text);
    note_texts(r, f->n_hyphens, "have soft hyphens (U+00AD), which the model reads as characters");
    note_texts(r, f->n_signs, "have <eos> or <unk>, read as letters");
    note_texts(r, f->n_unparted,
               "have long words in a script without blanks, such as Chinese: put blanks between "
               "the words");
    if (r->o.column && f->n_numbers && f->n_numbers + f->n_blank == n) {
        snprintf(text, sizeof text, "all texts are numbers: is \"%.100s\" the column of the texts?",
                 r->o.column);
        add_note(r, text);
    }
    if (r->o.column)
        note_texts(r, f->n_na, "are \"NA\", which was read as a word");
    if (r->o.column && !r->o.text_column && !r->o.continues && n > 2 && f->n_single == n)
        add_note(
            r,
            "each text is one word, and was read alone: text-column, or continue, tells which are "
            "of one running text");
    note_texts(r, f->n_special,
               "have the name of a special token, which was read as letters: special makes it "
               "that token");
    if (r->o.regions && !f->n_joined && f->n_blank < n) {
        snprintf(text, sizeof text,
                 "no text has words that \"%.100s\" joins, so each word is a region: the mark "
                 "stands between words, without blanks",
                 r->o.regions);
        add_note(r, text);
    } else {
        note_texts(r, f->n_loose,
                   "have the mark beside a blank or at an end, where it joins nothing");
    }
    snprintf(
        text, sizeof text,
        "%s longer than the context, and read in windows: %zu or more tokens are before each word",
        r->o.continues ? "make a text" : "are", r->o.stride);
    note_texts(r, r->o.continues && f->n_long ? n : f->n_long, text);
}

/* Does a passage that was read without --special have the name of a special token? */
static int has_special(surprisal_run *r, const passage *p)
{
    size_t n = 0;
    return !r->o.special && memchr(p->text, '<', p->size) &&
           attn_encode_special(&r->ctx, NULL, &n, r->tokenizer, p->text, p->size) == ATTN_OK &&
           n != p->n;
}

/* Looks at every text before the model reads the first one: what is wrong with the input shows at once,
 * and the time that is left can be told. */
static attn_status check_input(surprisal_run *r)
{
    const size_t n = r->input.n_records;
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < n; i++)
        look_at_text(r, r->input.texts[i]);
    for (size_t i = 0, end; status == ATTN_OK && i < n; i = end) {
        passage p;
        end = end_of_text(r, i);
        if (!is_wanted(r, i, end))
            continue;
        status = is_stopped(r) ? ATTN_STOPPED : make_passage(r, &p, i, end);
        if (status == ATTN_STOPPED)
            return status;
        r->n_all += p.n + 1;
        r->n_rows += count_rows(r, &p);
        r->found.n_single += p.n_words == 1;
        r->found.n_long += !r->o.context && p.n > room_for_tokens(r);
        r->found.n_special += (uint64_t)has_special(r, &p);
        status = r->ctx.status;
        arena_free(&p.memory);
    }
    /* A function may give no rows. Who has a file without words is told so. */
    if (status == ATTN_OK && r->found.n_blank == n && (r->form != AS_TABLE || r->name))
        return attn_fail(&r->ctx, ATTN_E_FORMAT, "%s has no words, of which there could be rows",
                         name_of(r));
    if (status == ATTN_OK)
        say_found(r);
    return status;
}

/* >> Memory ==================================================================================== */

static attn_status make_room(surprisal_run *r)
{
    const attn_workspace_desc desc = {.n_batch = r->n_pass};
    r->logits = (float *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, r->n_pass * sizeof(float));
    r->less = (float *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, sizeof(float));
    r->powers = (float *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, sizeof(float));
    r->passages = (passage *)arena_alloc(&r->ctx, &r->memory, MOST_TEXTS, sizeof(passage));
    r->streams = (float *)arena_alloc(&r->ctx, &r->memory, r->n_layers * MOST_TOKENS,
                                      r->config->d_model * sizeof(float));
    r->translated =
        (float *)arena_alloc(&r->ctx, &r->memory, r->config->d_model, MOST_TOKENS * sizeof(float));
    r->latest = (double *)arena_alloc(&r->ctx, &r->memory, 1 + r->o.spillover,
                                      (r->n_values + 1) * sizeof *r->latest);
    r->at_tokens = (float *)arena_alloc(&r->ctx, &r->memory, r->width, MOST_TOKENS * sizeof(float));
    r->pooled = (float *)arena_alloc(&r->ctx, &r->memory, r->width, sizeof(float));
    return r->ctx.status ? r->ctx.status
                         : attn_workspace_new(&r->ctx, &r->workspace, r->model, &desc);
}

/* Takes the input, which was read: looks at it, makes room, and writes the header. */
TOOLS_FN attn_status begin_surprisal(surprisal_run *r)
{
    attn_status status = check_input(r);
    if (status == ATTN_OK && (status = make_room(r)) == ATTN_OK)
        status = write_header(r);
    return status;
}

/* Frees all but the model. */
static void free_surprisal(surprisal_run *r)
{
    if (r->passages)
        free_windows(r);
    attn_workspace_free(r->workspace);
    for (size_t i = 0; r->values && i < r->table->n_columns; i++) {
        free(r->values[i].numbers);
        free(r->values[i].ends);
        out_free(&r->values[i].texts);
    }
    out_free(&r->row);
    out_free(&r->vectors);
    free(r->tests.root);
    lens_tuned_free(&r->ctx, &r->tuned);
    arena_free(&r->memory);
    attn_ctx_free(&r->ctx);
}

#endif

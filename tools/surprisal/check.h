/* Looks at the options and at every text before the model reads the first one, and makes room for the run. */
#ifndef SURPRISAL_CHECK_H
#define SURPRISAL_CHECK_H

#include "windows.h"

/* Checks which options were given together. */
static int check_usage(const run *r)
{
    if (r->o.region_names && !r->o.column)
        return fail(USAGE, "--region-names is for a table: give the column of texts with --column");
    if (r->o.by == BY_REGION && !r->o.regions && !r->o.region_names)
        return fail(USAGE, "--by region needs --regions MARK or --region-names COLUMN");
    if (r->o.regions && (!*r->o.regions || strpbrk(r->o.regions, " \t\r\n")))
        return fail(USAGE, "--regions: \"%s\" is not a mark without blanks", r->o.regions);
    return FINE;
}

/* Checks the options for the model, which is open, and knows its vocabulary then. */
static int check_options(run *r)
{
    size_t room;
    r->config = attn_model_config(r->model);
    r->tokenizer = attn_model_tokenizer(r->model);
    r->n_vocab = r->config->n_vocab;
    r->n_ctx = r->config->n_ctx;
    room = room_for_tokens(r);
    if (!r->tokenizer)
        return fail(FAILED, "%s has no tokenizer, so it cannot read a text", r->o.model);
    if (!r->o.no_bos && r->config->bos < 0)
        return fail(FAILED,
                    "%s has no beginning-of-text token: give --no-bos; the first word of each text "
                    "then has no value",
                    r->o.model);
    if (r->n_ctx < 3)
        return fail(FAILED, "the context of %s holds %zu tokens; expected at least 3", r->o.model,
                    r->n_ctx);
    if (r->o.stride > room)
        return fail(FAILED, "--stride is %zu, but the model's context holds %zu", r->o.stride,
                    room);
    if (r->o.stride == 0)
        r->o.stride = room / 2 < 512 ? room / 2 : 512;
    if (r->o.top > r->n_vocab)
        return fail(FAILED, "--top is %zu, but the vocabulary has %zu tokens", r->o.top,
                    r->n_vocab);
    return find_sets(r);
}

static void note(const run *r, uint64_t n, const char *what)
{
    if (n && !r->o.quiet)
        fprintf(stderr, "%s: %llu of %zu texts %s\n", called, TOOLS_LLU(n), r->input.n_records,
                what);
}

/* Refuses an item with more or fewer names of regions than regions. */
static int check_regions(run *r, const passage *p)
{
    size_t i, n_names;
    for (i = 0; r->input.has_regions && i < p->n_words; i++) {
        const word *const w = &p->words[i];
        if (i + 1 < p->n_words && p->words[i + 1].item == w->item)
            continue;
        for (n_names = 0; region_name(r, w->item, n_names).size > 0;)
            n_names++;
        if (n_names != w->region + 1)
            return fail(FAILED, "%s, line %llu: %zu names of regions for %zu regions", r->name,
                        TOOLS_LLU(r->input.lines[w->item]), n_names, w->region + 1);
    }
    return FINE;
}

/* Looks at every text before the model reads the first one: what is wrong with the input shows at once,
 * and the time that is left can be told. */
static int check_input(run *r)
{
    const size_t n = r->input.n_records, step = r->o.continues ? n : 1;
    char text[160];
    size_t i;
    int code = FINE;
    for (i = 0; code == FINE && i < n && !interrupted; i += step) {
        passage p;
        code = make_passage(r, &p, i, i + step);
        if (code == FINE)
            code = check_regions(r, &p);
        r->n_all += p.n + 1;
        r->n_long += p.n > room_for_tokens(r);
        arena_free(&p.memory);
    }
    if (code != FINE)
        return code;
    if (r->n_blank == n && !interrupted)
        return fail(FAILED, "%s has no words, of which there could be rows", r->name);
    note(r, r->n_blank, "have no words, and so no rows");
    note(r, r->n_spaced,
         "have tabs, line feeds, or blanks that are doubled or at an end: each of these "
         "was read as one blank, or as none at an end");
    note(r, r->n_unbroken, "have no-break spaces, which do not part words");
    snprintf(
        text, sizeof text,
        "%s longer than the context, and read in windows: %zu or more tokens are before each word",
        r->o.continues ? "make a text" : "are", r->o.stride);
    note(r, r->o.continues && r->n_long ? n : r->n_long, text);
    return interrupted ? INTERRUPTED : FINE;
}

static int make_room(run *r)
{
    attn_workspace_desc desc = ATTN_ZERO;
    desc.n_batch = ROWS;
    r->logits = (float *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, ROWS * sizeof(float));
    r->less = (float *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, sizeof(float));
    r->powers = (float *)arena_alloc(&r->ctx, &r->memory, r->n_vocab, sizeof(float));
    r->passages = (passage *)arena_alloc(&r->ctx, &r->memory, MAX_BATCH, sizeof(passage));
    if (!r->logits || !r->less || !r->powers || !r->passages ||
        attn_workspace_new(&r->ctx, &r->workspace, r->model, &desc))
        return failed(&r->ctx);
    return FINE;
}

/* Frees all but the model. */
static void free_run(run *r)
{
    if (r->passages)
        free_windows(r);
    attn_workspace_free(r->workspace);
    out_free(&r->row);
    arena_free(&r->memory);
}

#endif

/* A text that a person and the model write in turns: a list of tokens and a list of turns. Undoing a
 * turn shortens both. Commands change only these lists; feed_text makes the session match the text
 * before the model continues it. */
#ifndef GPT2_TURNS_H
#define GPT2_TURNS_H

/* A typed line and its continuation. */
typedef struct turn {
    size_t begin, typed_end; /* the number of tokens before the turn, and after its typed line */
    size_t first;            /* run.first before the turn */
    uint64_t draw_before;    /* repl.draw before the turn */
    uint64_t draw;           /* its number: its seed is --seed plus this */
} turn;

typedef struct repl {
    run *r;
    turn *turns;
    size_t n_turns, room;
    uint64_t draw;              /* the number of the next continuation */
    attn_continuation *texts;   /* the candidates for the last turn */
    size_t n_texts;             /* how many there are */
    uint64_t first_draw;        /* the number of the first */
    const char *file;           /* the file of the latest /save or /load */
    int ends, warned, n_failed; /* warned: after a first Ctrl-C */
} repl;

/* Prints a message to a person on standard error; the text is on standard output. */
static int say(const char *format, ...) TOOLS_PRINTF(1, 2);
static int say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputc('(', stderr);
    vfprintf(stderr, format, args);
    fputs(")\n", stderr);
    fflush(stderr);
    va_end(args);
    return FINE;
}

/* >> The text ================================================================================== */

static void drop_candidates(repl *p)
{
    attn_continuations_free(p->texts, p->n_texts);
    p->texts = NULL;
    p->n_texts = 0;
}

/* The bytes of a part of the text, with a zero after them; NULL without memory. */
static char *decoded(run *r, size_t begin, size_t end, size_t *size)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    attn_ctx ctx = {0};
    char *text;
    *size = 0;
    attn_decode(&ctx, NULL, size, tokenizer, text_from(r, begin), end - begin);
    if ((text = (char *)arena_alloc(&r->ctx, &r->memory, *size + 1, 1)) != NULL)
        attn_decode(&ctx, text, size, tokenizer, text_from(r, begin), end - begin);
    return text;
}

/* Shows the last words of the text, after a command changed it. */
static int tell_end(run *r, const char *what)
{
    enum { SHOWN = 60, TOKENS = 200 };
    json_out o = {0};
    size_t size = 0, from;
    const size_t n = r->text.n - n_bos(r);
    const char *text = decoded(r, r->text.n - (n < TOKENS ? n : TOKENS), r->text.n, &size);
    if (!text)
        return failed(&r->ctx);
    if (size == 0)
        return say("%s: the text is empty", what);
    from = size > SHOWN ? size - SHOWN : 0;
    while (from < size && ((unsigned char)text[from] & 0xC0) == 0x80)
        from++;
    out_text(&o, NULL, text + from, size - from);
    say("%s: the text ends %.*s", what, (int)o.size, o.text ? o.text : "");
    out_free(&o);
    return FINE;
}

/* Makes the session hold the text from r->first on, with the logits of its last token. A prefix that the
 * session holds already is not fed again. */
static int feed_text(run *r)
{
    const int32_t *held = attn_session_tokens(r->session), *text = text_from(r, r->first);
    const size_t n = r->text.n - r->first, length = attn_session_length(r->session);
    size_t same = 0;
    while (same < length && same < n && held[same] == text[same])
        same++;
    if (same == n && length == n && attn_session_logits(r->session))
        return FINE;
    same -= same == n; /* the last token is fed again, for its logits */
    if (attn_session_truncate(&r->ctx, r->session, same))
        return failed(&r->ctx);
    return feed_ids(r, text + same, n - same);
}

/* Checks that the text with the typed line fits in the context. With --slide, drops its older half
 * otherwise. */
static int fit_text(run *r)
{
    const size_t room = attn_session_capacity(r->session), n = r->text.n - r->first;
    if (n == 0)
        return fail(USAGE, "there is nothing to continue: type a text");
    if (n <= room)
        return FINE;
    if (!r->o.slide)
        return fail(FAILED,
                    "the text has %zu tokens, but the model's context holds %zu: /slide continues "
                    "without the oldest, /undo removes the last turn, /new begins another text",
                    n, room);
    drop_older_half(r);
    return FINE;
}

/* Appends the tokens of a typed line to the text, with a space between them if it needs one: not before
 * punctuation, white space, or scripts without spaces (from U+2E80 on, in UTF-8 from E2 BA on). */
static int keep_line(run *r, const char *line)
{
    const unsigned char *at = (const unsigned char *)line;
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    const int bare =
        strchr(" \t\n.,;:!?)]}%'", *line) != NULL || (*at == 0xE2 && at[1] >= 0xBA) || *at > 0xE2;
    size_t size = strlen(line), n = 0, before = 0;
    char *text = (char *)arena_alloc(&r->ctx, &r->memory, size + 2, 1);
    const char *end =
        text && r->text.n > n_bos(r) ? decoded(r, r->text.n - 1, r->text.n, &before) : NULL;
    attn_token *ids = (int32_t *)arena_alloc(&r->ctx, &r->memory, size + 2, sizeof *ids);
    if (!text || !ids || r->ctx.status)
        return failed(&r->ctx);
    size_t spaced = !bare && end && before > 0 && !strchr(" \t\n", end[before - 1]);
    text[0] = ' ';
    memcpy(text + spaced, line, size);
    size += spaced;
    n = size + 1;
    if ((r->o.special ? attn_encode_special : attn_encode)(&r->ctx, ids, &n, tokenizer, text, size))
        return failed(&r->ctx);
    return keep_tokens(r, ids, n);
}

/* >> Turns ===================================================================================== */

static turn *add_turn(repl *p)
{
    run *r = p->r;
    if (p->n_turns == p->room) {
        const size_t room = 2 * p->room + 16;
        turn *larger = (turn *)realloc(p->turns, room * sizeof *larger);
        if (!larger) {
            fail(FAILED, "no memory for another turn");
            return NULL;
        }
        p->turns = larger;
        p->room = room;
    }
    turn *t = &p->turns[p->n_turns++];
    t->begin = t->typed_end = r->text.n;
    t->first = r->first;
    t->draw_before = t->draw = p->draw;
    return t;
}

static void undo_turn(repl *p)
{
    const turn *t = &p->turns[--p->n_turns];
    p->r->text.n = t->begin;
    p->r->first = t->first;
    p->draw = t->draw_before;
    drop_candidates(p);
}

/* Tells why the model stopped, if that is not obvious. */
static void tell_why(const run *r, int code)
{
    if (code == INTERRUPTED)
        say("stopped");
    else if (r->reason == ATTN_STOP_EOS)
        say("the text ended; /new begins another");
    else if (r->reason == ATTN_STOP_CONTEXT)
        say("the context is full: /slide continues without its older half");
    if (r->n_slides > 0)
        say("the context was full, and dropped its older half");
}

/* The text ends with tokens of a stop string, which was not shown: cuts it back to `text`, which was. Of a
 * token that was shown in part, that part is encoded anew, where no blank is added. `begin`: the first of these. */
static int drop_stop(run *r, size_t begin, const char *text, size_t size)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    attn_utf8 state = {0};
    size_t n, spelled = 0, whole = begin, at = 0;
    attn_token *ids;
    for (size_t i = begin; i < r->text.n; i++) {
        const char *bytes = attn_token_bytes(&n, tokenizer, r->text.ids[i]);
        char *printed = (char *)arena_alloc(&r->ctx, &r->memory, 3 * (n + 4), 1);
        if (!printed)
            return failed(&r->ctx);
        spelled += n > 0 ? attn_utf8_push(printed, &state, bytes, n) : 0;
        if (spelled > size)
            break;
        if (state.n == 0) { /* no character is cut here */
            whole = i + 1;
            at = spelled;
        }
    }
    r->text.n = whole;
    n = size - at;
    if (n == 0 || (attn_tokenizer_adds_blank(tokenizer) && text[at] != ' '))
        return FINE;
    if (!(ids = (int32_t *)arena_alloc(&r->ctx, &r->memory, n, sizeof *ids)) ||
        attn_encode(&r->ctx, ids, &n, tokenizer, text + at, size - at))
        return failed(&r->ctx);
    return keep_tokens(r, ids, n);
}

/* Lets the model continue the text after the typed line, with the seed of the turn. After a failure the
 * text is as before the turn. */
static int continue_turn(repl *p, turn *t)
{
    run *r = p->r;
    int code;
    r->text.n = t->typed_end;
    r->first = t->first;
    r->n_generated = r->n_printed = r->n_slides = 0;
    p->draw = t->draw + 1;
    attn_sampler_free(r->sampler);
    r->sampler = NULL;
    if ((code = fit_text(r)) != FINE || (code = feed_text(r)) != FINE ||
        (code = make_sampler(r, r->o.seed + t->draw)) != FINE) {
        if (code == INTERRUPTED)
            say("stopped before the text was read");
        undo_turn(p);
        return code == INTERRUPTED ? FINE : code;
    }
    r->shown.size = 0;
    code = generate(r);
    if (code == FINE && r->reason == ATTN_STOP_STRING)
        code = r->shown.failed ? fail(FAILED, "no memory for the text")
                               : drop_stop(r, t->typed_end, r->shown.text, r->shown.size);
    if (!r->o.logprobs)
        putchar('\n');
    fflush(stdout);
    if (code == FINE || code == INTERRUPTED)
        tell_why(r, code);
    return code == INTERRUPTED ? FINE : code;
}

static int take_line(repl *p, const char *line)
{
    run *r = p->r;
    turn *t;
    drop_candidates(p);
    if (!*line && r->text.n == 0)
        return say("type the beginning of a text; /help lists the commands");
    if (!(t = add_turn(p)))
        return FAILED;
    int code = *line ? keep_line(r, line) : FINE;
    if (code != FINE) {
        undo_turn(p);
        return code;
    }
    t->typed_end = r->text.n;
    return continue_turn(p, t);
}

#endif

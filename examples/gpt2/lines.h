/* Prompts as a stream: gpt2 -i continues each line of standard input. With --json a line that begins with {
 * is an object with a prompt, options of the command line and an id. A line that cannot be continued is
 * answered, too, and no answer depends on another line. */
#ifndef GPT2_LINES_H
#define GPT2_LINES_H

typedef struct stream {
    run *r;
    options base; /* of the command line */
    const arguments *given;
    uint64_t n_failed;
    int has_noted; /* that --json reads objects */
    char first_error[FAILURE_SIZE];
} stream;

/* Takes a string, or a list of strings or ids, as the command line would. */
static attn_status take_texts(run *r, const struct option *option, const json_value *v)
{
    const int is_list = v->kind == JSON_ARRAY,
              may_hold_zeros = option->at == offsetof(options, prompt);
    const json_kind kind = is_list && option->kind == TEXT ? JSON_NUMBER : JSON_STRING;
    const json_value *const first = v + is_list, *const end = first + (is_list ? v->size : 1),
                            *part;
    const char **const at = (const char **)((char *)&r->o + option->at);
    const char *text = "";
    text_list *const list = (text_list *)at;
    for (part = first; part < end; part++)
        if (part->kind != kind || (option->kind == TEXTS && part->size == 0) ||
            (!may_hold_zeros && memchr(part->text, 0, part->size)))
            return refuse_key(&r->ctx, option, part);
    if (option->kind == TEXT) { /* ids: the numbers and commas as they were written */
        if (first < end)
            text = arena_text(&r->ctx, &r->memory, first->text,
                              (size_t)(end[-1].text - first->text) + end[-1].size);
        *at = text;
        return r->ctx.status;
    }
    for (list->n = 0, part = first; part < end && text; part++)
        if ((text = arena_text(&r->ctx, &r->memory, part->text, part->size)) != NULL &&
            !texts_add(list, text))
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "%s: at most %zu can be given", option->name,
                             list->n);
    return r->ctx.status;
}

static const struct option id_key = {0, "id", NULL, TEXT, 0, 0, "a string or a number", NULL};

/* Reads a member of a line's object into the options, and marks it as given. */
static attn_status read_member(run *r, arguments *given, const json_value *v)
{
    const struct option *const option = find_key(table, N_OPTIONS, v);
    if (v->kind == JSON_NULL)
        return ATTN_OK;
    if (v->key_size == 2 && memcmp(v->key, "id", 2) == 0)
        return is_taken(&id_key, v) ? ATTN_OK : refuse_key(&r->ctx, &id_key, v);
    if (!option)
        return refuse_name(&r->ctx, table, N_OPTIONS, v, "; --help lines lists them");
    if (!(option->commands & LINE_OPTION))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "%s holds for all lines: give it on the command line", option->name);
    given->given[option - table] = v->kind != JSON_FALSE;
    if (option->kind != TEXT && option->kind != TEXTS)
        return read_value(&r->ctx, &r->o, option, v);
    return is_taken(option, v) ? take_texts(r, option, v) : refuse_key(&r->ctx, option, v);
}

/* An option of a line takes the place of those of the command line that contradict it. */
static void prefer_line(options *o, arguments *given, const arguments *line)
{
    for (size_t i = 0; i < (size_t)2 * N_APART; i++)
        for (size_t k = 0; k < N_OPTIONS && is_given(line, apart[i / 2][i % 2]); k++)
            if (strcmp(table[k].name, apart[i / 2][1 - i % 2]) == 0) {
                given->given[k] = 0;
                if (table[k].kind == TEXT && !line->given[k])
                    *(const char **)((char *)o + table[k].at) = NULL;
                if (table[k].kind == TEXTS && !line->given[k])
                    ((text_list *)((char *)o + table[k].at))->n = 0;
            }
    for (size_t k = 0; k < N_OPTIONS; k++)
        given->given[k] |= line->given[k];
}

/* Reads the object of a line. Its id is read first, because an error has it, too. */
static int read_object(run *r, arguments *given, text_source *from, const char *line, size_t size)
{
    char *const text = arena_text(&r->ctx, &r->memory, line, size);
    json_value *root = NULL;
    const json_value *v;
    size_t i;
    if (!text ||
        json_parse_at(&r->ctx, "input", (size_t)r->lines.n_lines, text, size, &root) != ATTN_OK ||
        !root)
        return failed(&r->ctx);
    if ((v = json_get(root, "id")) != NULL && is_taken(&id_key, v))
        r->id = *v;
    for (i = 0, v = root + 1; i < root->size && !r->ctx.status; i++, v += v->span)
        read_member(r, given, v);
    v = json_get(root, "prompt");
    from->size = v ? v->size : 0;
    free(root);
    from->word = r->o.prompt;
    from->ids = r->o.ids;
    from->bos = r->o.bos;
    from->special = r->o.special;
    if (r->ctx.status)
        return failed(&r->ctx);
    return from->word || from->ids || from->bos
               ? FINE
               : fail(FAILED, "nothing to continue: give a \"prompt\", or its \"ids\"");
}

/* Prints a note for the first prompt that is a JSON object. */
static int note_object(stream *s, const char *line, size_t size)
{
    attn_ctx ctx = {
        0}; /* of its own: a line that is not JSON is a prompt, not a failure of the run */
    json_value *root = NULL;
    char *const text = arena_text(&s->r->ctx, &s->r->memory, line, size);
    if (!text)
        return failed(&s->r->ctx);
    s->has_noted = json_parse(&ctx, INPUT, text, size, &root) == ATTN_OK;
    if (s->has_noted)
        fprintf(
            stderr,
            "note: line %llu is a JSON object and is taken as a prompt: --json reads such lines\n",
            TOOLS_LLU(s->r->lines.n_lines));
    free(root);
    return FINE;
}

static int continue_line(stream *s, line_status status, const char *line, size_t size,
                         text_source from)
{
    run *const r = s->r;
    arguments given = *s->given, own = {0};
    int code = FINE;
    from.word = line;
    from.size = size;
    if (status == LINE_TOO_LONG)
        return fail(FAILED, "the line is longer than %d bytes", (int)MAX_LINE);
    if (line[strspn(line, " \t")] == '{' && (r->o.json || !s->has_noted))
        code = r->o.json ? read_object(r, &own, &from, line, size) : note_object(s, line, size);
    prefer_line(&r->o, &given, &own);
    set_defaults(&r->o, &given);
    if (code == FINE)
        code = check_usage(&r->o, &given, given.n_words);
    return code == FINE ? continue_text(r, from) : code;
}

/* Answers a line that was not continued: with --json on standard output, else by a message. */
static int answer_error(stream *s, const char *message)
{
    json_out o = {0};
    int code;
    if (s->n_failed++ == 0)
        snprintf(s->first_error, sizeof s->first_error, "%s", message);
    out_open(&o, NULL, '{');
    out_id(&o, &s->r->id);
    out_count(&o, "line", s->r->lines.n_lines);
    out_word(&o, "error", message);
    if (s->base.json)
        code = end_line(&o);
    else
        code = fail(FINE, "line %llu: %s", TOOLS_LLU(s->r->lines.n_lines), message);
    out_free(&o);
    return code;
}

/* Answers a line, and frees what that allocated: there may be millions. */
static int answer_line(stream *s, line_status status, const char *line, size_t size,
                       const text_source *from)
{
    run *const r = s->r;
    const arena kept = r->memory;
    char message[FAILURE_SIZE] = "";
    r->memory.blocks = NULL;
    r->o = s->base;
    r->id.kind = JSON_NULL;
    failure = message;
    int code = continue_line(s, status, line, size, *from);
    failure = NULL;
    if (code == FAILED && r->ctx.status == ATTN_E_MEMORY) /* the machine's fault, and no line's */
        fail(FAILED, "line %llu: %s; a shorter text, or -t 1, needs less",
             TOOLS_LLU(r->lines.n_lines), message);
    else if (code == FAILED && ferror(stdout))
        fail(FAILED, "%s", message);
    else if (code == FAILED || code == USAGE)
        code = answer_error(s, message);
    r->ctx.status = ATTN_OK;
    arena_free(&r->memory);
    r->memory = kept;
    return code;
}

/* Continues every line. Without --json the output does not tell which texts are missing, so the exit code
 * does. */
static int continue_lines(run *r, const arguments *given, const text_source *from)
{
    stream s = {r, r->o, given, 0, 0, ""};
    line_status status = LINE_LATER;
    const char *line = "";
    size_t size = 0;
    int code = FINE;
    s.base.prompt = s.base.file = s.base.ids = NULL;
    r->lines.is_exact = r->o.exact;
    system_binary(stdin);
    if (system_is_terminal(stdin))
        fputs("Type a prompt, then Enter; Ctrl-D ends.\n", stderr);
    while (code == FINE && !interrupted && status != LINE_END) {
        status = next_line(r, "> ", &line, &size);
        if (status == LINE_FAILED)
            code = failed(&r->ctx);
        else if (status == LINE_TOO_LONG || (status == LINE_READ && (size > 0 || s.base.json)))
            code = answer_line(&s, status, line, size, from);
    }
    if (code != FINE || interrupted || s.n_failed == 0)
        return code;
    int all = s.n_failed == r->lines.n_lines;
    if (s.base.json && (all || !s.base.quiet))
        fail(FAILED, "%llu of %llu lines could not be continued. The first error: %s",
             TOOLS_LLU(s.n_failed), TOOLS_LLU(r->lines.n_lines), s.first_error);
    return all || !s.base.json ? FAILED : FINE;
}

#endif

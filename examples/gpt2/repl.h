/* The interactive mode of gpt2. A line that begins with a slash is a command. Any other line is added to
 * the text, and the model continues it.
 *
 * The terminal edits the lines, so that the program has no dependency. rlwrap adds the keys and the
 * history of readline. */
#ifndef GPT2_REPL_H
#define GPT2_REPL_H

#include "tools/common/utf8.h"

/* >> Lines ===================================================================================== */

static void on_stop(int number)
{
    interrupted = number;
    system_on_interrupt(on_stop);
}

/* The most bytes of a line, with its end, that a terminal of Linux passes on. It drops the rest. */
enum { TERMINAL_LINE = 4096 };

/* Reads a line by the rule of plain.h. NULL at the end, after Ctrl-C, or with a message in r->ctx. */
static char *read_line(run *r, const char *sign)
{
    const char *line;
    size_t size;
    const line_status status = next_line(r, sign, &line, &size);
    if (status == LINE_TOO_LONG)
        tool_fail(&r->ctx, ATTN_E_SPACE, "the line is longer than %d bytes", (int)MAX_LINE);
    if (status != LINE_READ)
        return NULL;
    if (size + 1 == TERMINAL_LINE && system_is_terminal(stdin))
        say("the terminal passes on only %d bytes of a line: if yours was longer, "
            "/undo and cut it into lines that end in \\, or give a file with -f",
            TERMINAL_LINE - 1);
    return arena_text(&r->ctx, &r->memory, line, size);
}

/* Reads a line. A backslash at its end joins it with the next one. */
static char *read_lines(run *r)
{
    char *whole = read_line(r, "> "), *more, *both;
    size_t size = whole ? strlen(whole) : 0;
    while (size > 0 && whole[size - 1] == '\\' && (more = read_line(r, ". ")) != NULL) {
        both = (char *)arena_alloc(&r->ctx, &r->memory, size + strlen(more) + 1, 1);
        if (!both)
            return NULL;
        whole[size - 1] = '\n';
        memcpy(both, whole, size);
        memcpy(both + size, more, strlen(more));
        whole = both;
        size += strlen(more);
    }
    return whole;
}

/* >> Commands ================================================================================== */

static int need_turn(const repl *p, const char *what)
{
    return p->n_turns > 0 ? FINE
                          : fail(USAGE, "there is nothing to %s yet: type a text first", what);
}

static int do_undo(repl *p, const char *value)
{
    (void)value;
    if (need_turn(p, "undo") != FINE)
        return USAGE;
    undo_turn(p);
    return tell_end(p->r, "undone");
}

static int needs_chance(const run *r)
{
    return r->o.temperature > 0
               ? FINE
               : fail(
                     USAGE,
                     "at temperature 0 each continuation is the same: type /temperature 0.8 first");
}

static int do_regenerate(repl *p, const char *value)
{
    turn *t = p->n_turns ? &p->turns[p->n_turns - 1] : NULL;
    (void)value;
    if (need_turn(p, "regenerate") != FINE || needs_chance(p->r) != FINE)
        return USAGE;
    drop_candidates(p);
    t->draw = p->draw;
    return continue_turn(p, t);
}

static int do_show(repl *p, const char *value)
{
    size_t size;
    const char *text = decoded(p->r, n_bos(p->r), p->r->text.n, &size);
    (void)value;
    if (!text)
        return failed(&p->r->ctx);
    put_token(p->r, text, size);
    print_tokens(p->r, NULL, 0);
    putchar('\n');
    return flush_output();
}

static int begin_text(repl *p)
{
    run *r = p->r;
    const attn_token bos = attn_model_config(r->model)->bos;
    drop_candidates(p);
    p->n_turns = 0;
    p->draw = 0;
    r->text.n = r->first = 0;
    return keep_tokens(r, &bos, (size_t)r->o.bos);
}

static int do_new(repl *p, const char *value)
{
    (void)value;
    return begin_text(p);
}

static int do_quit(repl *p, const char *value)
{
    (void)value;
    p->ends = 1;
    return FINE;
}

/* >> Candidates ================================================================================ */

/* How many bytes of a text fit in one line of `columns`, cut at a blank if there is one. */
static size_t line_of(const char *text, size_t size, size_t columns)
{
    size_t at = 0, length, width = 0, blank = 0;
    uint32_t code = 0;
    for (; at < size && text[at] != '\n'; at += length) {
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        length += length == 0;
        width += (size_t)width_of(code);
        if (width > columns)
            return blank ? blank : at ? at : length;
        if (text[at] == ' ')
            blank = at + 1;
    }
    return at;
}

/* Prints one line of a candidate and pads it with blanks. Returns the rest of its text. */
static const char *print_cell(const run *r, const char *text, size_t columns, int last)
{
    const size_t size = strlen(text), n = line_of(text, size, columns);
    size_t width = text_width(text, n);
    put_text(r, text, n);
    for (; !last && width < columns + 2; width++)
        putchar(' ');
    return text + n + (text[n] == '\n');
}

/* Prints the candidates side by side if each has at least 24 columns, else one below the other. */
static int print_candidates(const repl *p)
{
    const int width = line_columns(stdout);
    const size_t n = p->n_texts, columns = width > 0 ? ((size_t)width + 1) / n - 2 : 0;
    const char **rest = (const char **)arena_alloc(&p->r->ctx, &p->r->memory, n, sizeof *rest);
    size_t i, left = n;
    char head[24];
    if (!rest)
        return failed(&p->r->ctx);
    if (width == 0 || (size_t)width < 26 * n) {
        for (i = 0; i < n; i++) {
            printf("%zu. ", i + 1);
            put_text(p->r, p->texts[i].text, p->texts[i].size);
            putchar('\n');
        }
        return flush_output();
    }
    for (i = 0; i < n; i++) {
        rest[i] = p->texts[i].text;
        snprintf(head, sizeof head, "%zu.", i + 1);
        printf(i + 1 < n ? "%-*s" : "%.0d%s\n", i + 1 < n ? (int)columns + 2 : 0, head);
    }
    while (left > 0) {
        for (i = left = 0; i < n; i++) {
            rest[i] = print_cell(p->r, rest[i], columns, i + 1 == n);
            left += *rest[i] != 0;
        }
        putchar('\n');
    }
    return flush_output();
}

/* Makes several continuations of the last typed text in one batch. The first has the seed of the
 * turn. */
static int do_candidates(repl *p, const char *value)
{
    run *r = p->r;
    const turn *t = p->n_turns ? &p->turns[p->n_turns - 1] : NULL;
    size_t n = 4;
    if (need_turn(p, "continue") != FINE || needs_chance(r) != FINE)
        return USAGE;
    if (*value && !parse_count(value, "2 100", &n))
        return fail(USAGE, "/candidates: \"%s\" is not a whole number from 2 to 100", value);
    size_t first = t->first;
    if (t->typed_end - first > attn_session_capacity(r->session))
        first = t->typed_end - (attn_session_capacity(r->session) + 1) / 2;
    drop_candidates(p);
    p->texts = (attn_continuation *)arena_alloc(&r->ctx, &r->memory, n, sizeof *p->texts);
    if (!p->texts)
        return failed(&r->ctx);
    p->first_draw = t->draw;
    r->o.count = n;
    int code =
        draw_texts(r, text_from(r, first), t->typed_end - first, r->o.seed + t->draw, p->texts);
    p->n_texts = code == FINE ? n : 0;
    if (code == FINE)
        code = print_candidates(p);
    return code == FINE ? say("/choose 1 to /choose %zu takes one; any text keeps the old one", n)
                        : code;
}

static int do_choose(repl *p, const char *value)
{
    run *r = p->r;
    size_t which = 0;
    char limits[32];
    if (p->n_texts == 0 || p->n_turns == 0)
        return fail(USAGE, "there are no candidates: /candidates 4 makes some");
    turn *t = &p->turns[p->n_turns - 1];
    snprintf(limits, sizeof limits, "1 %zu", p->n_texts);
    if (!parse_count(value, limits, &which))
        return fail(USAGE, "/choose: \"%s\" is not a whole number from 1 to %zu", value,
                    p->n_texts);
    r->text.n = t->typed_end;
    r->first = t->first;
    int code = keep_tokens(r, p->texts[which - 1].tokens, p->texts[which - 1].n_tokens);
    if (code == FINE && p->texts[which - 1].reason == ATTN_STOP_STRING)
        code = drop_stop(r, t->typed_end, p->texts[which - 1].text, p->texts[which - 1].size);
    t->draw = p->first_draw + which - 1;
    p->draw = p->first_draw + p->n_texts;
    drop_candidates(p);
    return code == FINE ? tell_end(r, "chosen") : code;
}

/* >> The list of commands ====================================================================== */

static int do_help(repl *p, const char *value);

static const struct repl_command {
    const char *name, *argument;
    int (*run)(repl *p, const char *value);
    const char *help;
} commands[] = {
    {"help", "", do_help, "print this"},
    {"undo", "", do_undo, "remove the last turn, yours and the model's"},
    {"regenerate", "", do_regenerate, "continue the last typed text in another way"},
    {"candidates", "N", do_candidates, "... in N ways side by side (4)"},
    {"choose", "N", do_choose, "continue with candidate N"},
    {"show", "", do_show, "print the whole text"},
    {"new", "", do_new, "begin another text with the same settings"},
    {"save", "FILE", do_save, "save text and settings"},
    {"save!", "FILE", do_save_over, "... and overwrite the file if it exists"},
    {"load", "FILE", do_load, "load what was saved"},
    {"quit", "", do_quit, "end, as Ctrl-D does"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int do_help(repl *p, const char *value)
{
    char label[64], text[400], now[32];
    (void)value;
    print_wrapped(
        "Type a text, then Enter: the model continues it. "
        "After an empty line, it continues further. "
        "A line that ends in \\ is joined with the next. To begin a text with a slash, type //. "
        "Ctrl-C stops the model; Ctrl-C twice at the prompt, or Ctrl-D, ends.",
        0, 0, help_columns());
    putchar('\n');
    for (size_t i = 0; i < N_COMMANDS; i++) {
        snprintf(label, sizeof label, "/%s %s", commands[i].name, commands[i].argument);
        print_row(label, 22, commands[i].help);
    }
    putchar('\n');
    print_wrapped("Settings, with their present values in brackets (flags are on or off):", 0, 0,
                  help_columns());
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (!(table[i].commands & LIVE_OPTION))
            continue;
        snprintf(label, sizeof label, "/%s %s", table[i].name,
                 table[i].argument ? table[i].argument : "on");
        snprintf(text, sizeof text, "[%s] %s", shown_setting(&p->r->o, &table[i], now),
                 table[i].help);
        print_row(label, 22, text);
    }
    printf("\n");
    print_wrapped("The beginning of a name is enough, or the letter of an option (/n 50). "
                  "For a history of lines and keys to edit them: rlwrap gpt2 MODEL.attn",
                  0, 0, help_columns());
    return flush_output();
}

enum { N_NAMES = N_COMMANDS + N_OPTIONS };

/* What a person types for command i, or for a setting behind the commands; NULL: that option stays as it is. */
static const char *name_of_command(size_t i)
{
    const struct option *const option = i < N_COMMANDS ? NULL : &table[i - N_COMMANDS];
    return !option ? commands[i].name : option->commands & LIVE_OPTION ? option->name : NULL;
}

/* Finds the command or the setting whose name begins with this word: the index of a command, or
 * N_COMMANDS plus the index of an option. SIZE_MAX if there is none, or more than one. */
static size_t find_command(const char *word, size_t size)
{
    size_t found = SIZE_MAX, n_found = 0;
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *const name = name_of_command(i);
        if (!name)
            continue;
        if ((strlen(name) == size && memcmp(name, word, size) == 0) ||
            (i >= N_COMMANDS && size == 1 && table[i - N_COMMANDS].letter == *word))
            return i;
        if (strncmp(name, word, size) == 0) {
            found = i;
            n_found++;
        }
    }
    return n_found == 1 ? found : SIZE_MAX;
}

static int refuse_command(const char *word, size_t size)
{
    const char *best = NULL;
    size_t least = SIZE_MAX, distance, used = 0;
    char typed[32], several[256];
    snprintf(typed, sizeof typed, "%.*s", (int)(size < 31 ? size : 31), word);
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *const known = name_of_command(i);
        if (!known)
            continue;
        if (size > 0 && strncmp(known, word, size) == 0 && used < sizeof several)
            used += (size_t)snprintf(several + used, sizeof several - used, "%s/%s",
                                     used ? ", " : "", known);
        if ((distance = name_distance(typed, known)) < least) {
            least = distance;
            best = known;
        }
    }
    if (used > 0)
        return fail(USAGE, "/%s may be %s: type more of its name", typed, several);
    if (best && size > 1)
        return fail(USAGE, "there is no command /%s; do you mean /%s?", typed, best);
    return fail(USAGE,
                "there is no command /%s; /help lists them, and // begins a text with a slash",
                typed);
}

static int obey(repl *p, char *line)
{
    const size_t size = strcspn(line, " =");
    const size_t found = find_command(line, size);
    char *value = line + size + (line[size] != 0), *end = value + strlen(value);
    if (found == SIZE_MAX)
        return refuse_command(line, size);
    if (found >= N_COMMANDS && table[found - N_COMMANDS].kind == TEXTS)
        return do_setting(p, &table[found - N_COMMANDS], value);
    value += strspn(value, " ");
    while (end > value && end[-1] == ' ')
        *--end = 0;
    return found < N_COMMANDS ? commands[found].run(p, value)
                              : do_setting(p, &table[found - N_COMMANDS], value);
}

/* Tells a person who types a command without its slash. */
static void tell_command(const char *line)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(line, commands[i].name) == 0)
            say("\"%s\" is now part of the text; the command is /%s, and /undo removes the text",
                line, line);
}

/* >> The loop ================================================================================== */

/* Decides what to do after no line could be read: 1 to continue, 0 at the end of the input or after a
 * second Ctrl-C. */
static int goes_on(repl *p, int *code)
{
    *code = p->r->ctx.status ? failed(&p->r->ctx) : FINE;
    if (system_is_terminal(stdin))
        fputc('\n', stderr);
    if (!interrupted)
        return 0;
    clearerr(stdin);
    if (p->warned) {
        *code = INTERRUPTED;
        return 0;
    }
    p->warned = 1;
    say("Ctrl-C again ends, and so does Ctrl-D");
    return 1;
}

static int read_turns(repl *p)
{
    char *line;
    int code = FINE;
    while (!p->ends) {
        interrupted = 0;
        p->r->ctx.status = ATTN_OK;
        if (!(line = read_lines(p->r))) {
            if (goes_on(p, &code))
                continue;
            return code;
        }
        p->warned = 0;
        tell_command(line);
        code = *line == '/' && line[1] != '/' ? obey(p, line + 1)
                                              : take_line(p, line + (*line == '/'));
        p->n_failed += code != FINE;
        if (code == PIPE_CLOSED || ferror(stdout))
            return code;
    }
    return FINE;
}

/* Treats a prompt of the command line as the first line that was typed. */
static int take_prompt(repl *p, const text_source *from)
{
    run *r = p->r;
    turn *t;
    int code =
        read_tokens(&r->ctx, &r->memory, r->model, r->o.model, from, &r->prompt, &r->n_prompt);
    if (code != FINE || (code = print_prompt(r)) != FINE)
        return code;
    r->text.n = 0; /* the prompt begins with its own beginning-of-text token */
    if (!(t = add_turn(p)) || keep_tokens(r, r->prompt, r->n_prompt) != FINE)
        return FAILED;
    t->begin = (size_t)r->o.bos;
    t->typed_end = r->text.n;
    return continue_turn(p, t);
}

static void greet(const run *r)
{
    if (system_is_terminal(stdin))
        fprintf(stderr,
                "Type a text, then Enter; /help lists the commands, Ctrl-D ends.\n"
                "temperature %g, top-k %zu, seed %llu, %zu tokens a turn\n",
                (double)r->o.temperature, r->o.top_k, TOOLS_LLU(r->o.seed), r->o.tokens);
}

static int run_repl(run *r, const text_source *from, int given)
{
    repl p = {0};
    p.r = r;
    if (!attn_model_tokenizer(r->model))
        return fail(FAILED, "%s has no tokenizer, so no text can be typed", r->o.model);
    if (r->o.bos && attn_model_config(r->model)->bos < 0)
        return fail(FAILED, "%s has no beginning-of-text token for --bos", r->o.model);
    system_on_interrupt(on_stop);
    greet(r);
    int code = make_session(r, attn_model_config(r->model)->n_ctx);
    if (code == FINE)
        code = begin_text(&p);
    if (code == FINE && given)
        code = take_prompt(&p, from);
    if (code == FINE)
        code = read_turns(&p);
    if (code == FINE && p.n_failed > 0 && !system_is_terminal(stdin))
        code = FAILED; /* so that a script sees it */
    drop_candidates(&p);
    free(p.turns);
    return code;
}

#endif

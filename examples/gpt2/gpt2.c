/* cc examples/gpt2/gpt2.c -I. -O2 -fopenmp -lm -o gpt2        (without -fopenmp: one thread)
 *
 * Continues a prompt: with one text, with several at once, with one of several choices, or in turns
 * with a person. The parts, each in a header beside this file:
 *
 *     text.h      feeding the prompt, generating one text and printing it
 *     receipts.h  the receipt of a text, for attn-verify
 *     many.h      several texts in one batch, JSON, choices
 *     turns.h     a text that a person and the model write in turns
 *     save.h      settings that change, and files of the text and the settings
 *     repl.h      the interactive mode and its commands
 *     lines.h     prompts as a stream: a line each */

#ifndef _DARWIN_C_SOURCE
#define _DARWIN_C_SOURCE /* for getrusage under -std=c99 */
#endif
#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "gpt2"
#define INPUT   "prompt"
#include "tools/common/json_keys.h"
#include "tools/common/lines.h"
#include "tools/common/interrupt.h"
#include "tools/common/prompt.h"
#include "tools/common/session_file.h"
#include "tools/lens/save.h"
#include "tools/receipt/receipt.h"
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#define HAVE_POSIX
#endif

typedef struct options {
    const char *model, *prompt, *file, *ids, *logits, *choices, *receipt, *session;
    text_list stop;
    size_t tokens, count, top_k, repeat_last, threads;
    uint64_t seed;
    float temperature, top_p, min_p, repeat_penalty;
    int isa, interactive, repl, exact, special, ignore_eos, slide, bos, print_ids, logprobs, json,
        colours, no_prompt, skip_checksums, f16_cache, quiet, verbose;
} options;

/* Bits of an option: a command of the interactive mode may change it; the page of help that lists it; a
 * line of JSON may give it. */
enum { LIVE_OPTION = 1, FIRST_PAGE = 2, MORE_PAGE = 4, LINE_OPTION = 8 };

static const struct option table[] = {
#define AT(member)        offsetof(options, member), FIRST_PAGE
#define LINE(member)      offsetof(options, member), FIRST_PAGE | LINE_OPTION
#define BOTH(member)      offsetof(options, member), FIRST_PAGE | LIVE_OPTION | LINE_OPTION
#define LIVE(member)      offsetof(options, member), FIRST_PAGE | LIVE_OPTION
#define MORE(member)      offsetof(options, member), MORE_PAGE
#define MORE_LIVE(member) offsetof(options, member), MORE_PAGE | LIVE_OPTION
#define COUNTED           "0 1000000000"
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {'p', "prompt", "TEXT", TEXT, LINE(prompt), "a string",
     "the prompt, if it is not the next word"},
    {'f', "file", "FILE", TEXT, AT(file), NULL, "read the prompt from FILE (-: standard input)"},
    {0, "exact", NULL, FLAG, MORE(exact), NULL, EXACT_HELP},
    {'i', "interactive", NULL, FLAG, AT(interactive), NULL, "continue each line of standard input"},
    {0, "repl", NULL, FLAG, AT(repl), NULL,
     "write in turns with the model; /help lists commands. "
     "The default on a terminal without a prompt. Temperature 0.7 and top-k 40 unless given"},
    {'n', "tokens", "COUNT", COUNT, BOTH(tokens), COUNTED, "tokens to generate (default 100)"},
    {0, "count", "COUNT", COUNT, LINE(count), "1 1000",
     "generate COUNT texts from one prompt in one batch; text 0, 1, .. "
     "has seed SEED, SEED + 1, .."},
    {0, "temperature", "X", NUMBER, BOTH(temperature), "0 1000",
     "0: greedy (default but in turns); 1: as trained"},
    {0, "top-k", "K", COUNT, BOTH(top_k), COUNTED, "sample from the K likeliest tokens"},
    {0, "top-p", "P", NUMBER, BOTH(top_p), "0 1",
     "... from the likeliest that together reach P (0: from the likeliest; 1: from all)"},
    {0, "min-p", "P", NUMBER, BOTH(min_p), "0 1", "... from those at least P times the likeliest"},
    {0, "repeat-penalty", "X", NUMBER, BOTH(repeat_penalty), "0 1000", "above 1: repeat less"},
    {0, "repeat-last", "COUNT", COUNT, BOTH(repeat_last), COUNTED, "... of the last COUNT tokens"},
    {'s', "seed", "SEED", SEED, BOTH(seed), NULL,
     "same seed, same text (default 0); with -i of each line"},
    {0, "stop", "TEXT", TEXTS, BOTH(stop), "a string or a list of strings",
     "end before TEXT (\\n: a line's end); may be given several times; typed as /stop, \"off\" "
     "clears them"},
    {0, "choices", "A|B", TEXT, LINE(choices), "a string",
     "continue with one of these texts: at temperature 0 the likeliest, "
     "else drawn by its probability. A space before a word belongs to it: ' yes| no'"},
    {0, "slide", NULL, FLAG, LIVE(slide), NULL, "when the context is full, drop its older half"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, MORE(isa), ISA_NAMES, ISA_HELP},
    {0, "f16-cache", NULL, FLAG, MORE(f16_cache), NULL, "round keys and values to half the bytes"},
    {0, "session", "FILE", TEXT, AT(session), NULL,
     "continue the session in FILE, and save it there"},
    {0, "ids", "IDS", TEXT, LINE(ids), "a string or a list of token ids",
     "the prompt as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, LINE(bos), NULL, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, LINE(special), NULL, "<|endoftext|> in the prompt is a token"},
    {0, "ignore-eos", NULL, FLAG, BOTH(ignore_eos), NULL, "continue after the end-of-text token"},
    {0, "print-ids", NULL, FLAG, MORE_LIVE(print_ids), NULL, "print token ids instead of text"},
    {0, "logprobs", NULL, FLAG, offsetof(options, logprobs), MORE_PAGE | LIVE_OPTION | LINE_OPTION,
     NULL,
     "print a row for each token instead of text: the logarithm of its probability by the model "
     "(temperature 1, no filters). With --choices a row for each choice"},
    {0, "json", NULL, FLAG, AT(json), NULL, "print a JSON object for each text, one a line"},
    {0, "colours", NULL, FLAG, MORE_LIVE(colours), NULL,
     "colour each token by its probability, on a terminal: "
     "blue from 50 %, cyan from 20 %, yellow from 5 %, red from 1 %, magenta below"},
    {0, "no-prompt", NULL, FLAG, AT(no_prompt), NULL, "print only the generated text"},
    {0, "logits", "FILE", OUTPUT, MORE(logits), NULL,
     "write the logits of every position of the prompt as a NumPy array [T, vocab]; "
     "generate only if -n is given, too"},
    {0, "receipt", "FILE", OUTPUT, MORE(receipt), NULL,
     "write a receipt of the model, the settings, the tokens and their logits: "
     "attn-verify computes them again, on any machine, and compares every bit"},
    {0, "skip-checksums", NULL, FLAG, MORE(skip_checksums), NULL,
     "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), NULL, "no statistics on standard error"},
    {'v', "verbose", NULL, FLAG, MORE(verbose), NULL,
     "what the file says of its model, and with -i statistics of each text, on standard error"},
    PROGRAM_OPTIONS(FIRST_PAGE),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const help_page pages[] = {
    {NULL, NULL, "gpt2 MODEL.attn PROMPT [options]",
     "Prints the prompt and how the model continues it. The prompt may be - for standard input, "
     "and text that comes through a pipe is the prompt if there is no other. "
     "On a terminal without a prompt, you and the model write in turns (--repl); "
     "`rlwrap gpt2 MODEL.attn` adds a history of lines.",
     FIRST_PAGE, NULL, NULL},
    {"lines", "prompts as a stream (-i), with --json as JSON lines", NULL,
     "With -i each line of standard input is a prompt. Each begins with the seed, so no text depends on "
     "other lines. Empty lines are left out. For a prompt that cannot be continued there is a message "
     "with its line's number, and in the end the exit code 1.\n"
     "With --json each line has an answer, an object on one line, in the same order: also an empty line, "
     "and one that cannot be continued, whose answer is {\"line\": 7, \"error\": \"...\"}. If none can be, the "
     "exit code is 1. "
     "A line that begins with { is an object: \"prompt\" or \"ids\", an \"id\" that comes back, and options by "
     "their names, which hold for this line and go before those of the command line (choices before -n). "
     "With a count a line has so many answers, one after the other, each with its seed and the id. Flags are true or false, stop and ids may be lists, and "
     "null counts as absent. Any other line is a prompt as it stands.",
     LINE_OPTION, NULL,
     "echo '{\"id\": 1, \"prompt\": \"Once\", \"tokens\": 9}' | gpt2 model.attn -i --json"},
    {"more", "probabilities, logits, receipts, exact bytes, instruction sets", NULL,
     "Options of gpt2 about its output, exact bytes and the processor. "
     "On a terminal the prompt has a colour of its own, unless NO_COLOR is set.",
     MORE_PAGE, NULL,
     "gpt2 model.attn \"Once upon a time\" --logprobs\n"
     "gpt2 model.attn \"Once upon a time\" --receipt story.json"}};

/* A list of tokens that grows. */
typedef struct tokens {
    attn_token *ids;
    size_t n, room;
} tokens;

/* The state of one run of the program. */
typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    attn_session *session;
    attn_sampler *sampler; /* draws tokens, or choices */
    attn_token *prompt;
    json_value id;     /* of the line, if it has one: a string or a number */
    line_reader lines; /* of standard input */
    size_t n_prompt, n_generated, n_printed;
    tokens text;            /* the prompt and the generated tokens */
    size_t first;           /* the session holds the text from this token on */
    size_t n_slides;        /* how often the context was full and dropped its older half */
    attn_token *drawn;      /* [n_ctx + 1]: the tokens of the present call of attn_generate */
    size_t n_draws;         /* how many tokens were drawn in that call */
    size_t n_shown;         /* how many of them were shown */
    struct choice *choices; /* NULL without --choices */
    size_t n_choices, longest_choice;
    float *row; /* [n_vocab]: the logits of the latest draw, if probabilities are shown */
    attn_utf8 utf8;
    int colour;   /* standard output has colours */
    int terminal; /* standard output is a terminal, which would obey control characters */
    int code;     /* not FINE if output failed in a callback */
    attn_stop_reason reason;
    size_t accepted;   /* tokens of the session up to a stop string, which was not shown */
    const char *ended; /* why the generation ended, in words */
    unsigned char
        *digests;   /* [n_ctx + 1, SHA256_SIZE]: of the logits of each draw, for a receipt */
    json_out shown; /* in turns: the text of the present turn, as it was printed */
    progress progress;
    double load_seconds, prompt_seconds, generate_seconds;
} run;

static attn_sampler_desc sampling_of(const options *o, uint64_t seed)
{
    return (attn_sampler_desc){.temperature = o->temperature,
                               .top_k = o->top_k,
                               .top_p = o->top_p,
                               .min_p = o->min_p,
                               .repeat_penalty = o->repeat_penalty,
                               .repeat_last = o->repeat_last,
                               .seed = seed};
}

static int make_sampler(run *r, uint64_t seed)
{
    const attn_sampler_desc how = sampling_of(&r->o, seed);
    return attn_sampler_new(&r->ctx, &r->sampler,
                            r->choices ? r->n_choices : attn_model_config(r->model)->n_vocab, &how)
               ? failed(&r->ctx)
               : FINE;
}

/* Makes a session with room for the prompt and `more` tokens, or for the whole context if a file keeps
 * it. */
static int make_session(run *r, size_t more)
{
    const attn_config *config = attn_model_config(r->model);
    const size_t room = config->n_ctx - r->n_prompt;
    const attn_session_desc desc = {
        .n_ctx = r->o.session ? 0 : r->n_prompt + (more < room ? more : room),
        .cache_dtype = r->o.f16_cache ? ATTN_F16 : ATTN_F32};
    return attn_session_new(&r->ctx, &r->session, r->model, &desc) ? failed(&r->ctx) : FINE;
}

#include "receipts.h"
#include "text.h"
#include "many.h"
#include "turns.h"
#include "save.h"
#include "repl.h"

/* >> The command line ========================================================================== */

static int is_given(const arguments *given, const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0)
            return given->given[i];
    return 0;
}

/* Options that contradict each other. */
static const char *const apart[][2] = {
    {"logits", "json"},         {"logits", "count"},    {"logits", "choices"},
    {"logits", "repl"},         {"logits", "logprobs"}, {"choices", "count"},
    {"json", "print-ids"},      {"choices", "stop"},    {"choices", "slide"},
    {"choices", "repl"},        {"choices", "tokens"},  {"slide", "count"},
    {"slide", "json"},          {"repl", "json"},       {"repl", "count"},
    {"repl", "interactive"},    {"receipt", "count"},   {"receipt", "json"},
    {"receipt", "choices"},     {"receipt", "slide"},   {"receipt", "repl"},
    {"receipt", "interactive"}, {"session", "count"},   {"session", "json"},
    {"session", "choices"},     {"session", "repl"},    {"session", "logits"},
    {"session", "interactive"}, {"session", "receipt"}};
enum { N_APART = sizeof apart / sizeof apart[0] };

static int check_pairs(const arguments *given)
{
    for (size_t i = 0; i < N_APART; i++)
        if (is_given(given, apart[i][0]) && is_given(given, apart[i][1]))
            return fail(USAGE, "--%s and --%s contradict each other: leave one of them out",
                        apart[i][0], apart[i][1]);
    return FINE;
}

/* Refuses --top-k, --top-p and --min-p at temperature 0, where no token is drawn. --repl sets its own temperature. */
static int check_filters(const options *o, const arguments *given)
{
    static const char *const filters[] = {"top-k", "top-p", "min-p"};
    const int prompted = o->prompt || o->file || o->ids || o->bos || o->session;
    for (size_t i = 0; i < 3; i++)
        if (is_given(given, filters[i]) && prompted && !o->repl && !(o->temperature > 0))
            return fail(USAGE, "--%s chooses nothing at temperature 0: add --temperature 0.8",
                        filters[i]);
    return check_pairs(given);
}

static int check_usage(const options *o, const arguments *given, size_t next)
{
    for (size_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.at[i])
            return fail(USAGE, "--stop needs a text that is not empty");
    if (!o->model)
        return fail(USAGE, "no model given: %s MODEL.attn \"a prompt\" (--help tells more)",
                    called);
    if (next < given->n_words)
        return refuse_word(given->words[next], "give one prompt, in quotes");
    if (!o->prompt + !o->file + !o->ids < 2)
        return fail(USAGE, "give one prompt: as an argument, with --file or with --ids");
    if (o->interactive && o->logits)
        return fail(USAGE, "--logits takes one prompt: leave -i out");
    if (o->repl && o->file && strcmp(o->file, "-") == 0)
        return fail(USAGE, "--repl reads standard input itself: give the prompt another way");
    if (o->count > 1 && !(o->temperature > 0))
        return fail(USAGE,
                    "--count %zu at temperature 0 would print the same text %zu times: "
                    "add --temperature 0.8",
                    o->count, o->count);
    return check_filters(o, given);
}

/* Sets options that were not given to their defaults. */
static void set_defaults(options *o, const arguments *given)
{
    const int prompted = o->prompt || o->file || o->ids || o->bos || o->interactive || o->session;
    const int alone = !(o->logits || o->choices || o->json || o->count > 1);
    if (!prompted && alone && system_is_terminal(stdin))
        o->repl = 1;
    if (o->logits && !is_given(given, "tokens"))
        o->tokens = 0;
    if (is_given(given, "top-p"))
        o->top_p = given_top_p(o->top_p);
    if (o->repl && !is_given(given, "temperature"))
        o->temperature = 0.7f;
    if (o->repl && !is_given(given, "top-k"))
        o->top_k = 40;
}

/* >> The run =================================================================================== */

/* Continues one prompt in the way that the options say. A saved session needs no prompt. */
static int continue_text(run *r, text_source from)
{
    const int has_text = r->o.session && system_exists(r->o.session);
    int code = FINE;
    r->o.bos = from.bos = from.bos && !has_text;
    from.missing = has_text ? NULL : from.missing;
    r->n_prompt = 0;
    r->choices = NULL;
    attn_sampler_free(r->sampler);
    r->sampler = NULL;
    if ((r->o.choices && (code = read_choices(r)) != FINE) ||
        (code = make_sampler(r, r->o.seed)) != FINE)
        return code;
    if (!has_text || from.word || from.path || from.ids)
        code =
            read_tokens(&r->ctx, &r->memory, r->model, r->o.model, &from, &r->prompt, &r->n_prompt);
    r->n_generated = r->n_printed = 0;
    if (code == FINE && (r->o.json || r->o.count > 1) && !r->choices)
        return continue_many(r);
    if (code == FINE)
        code = make_session(r, r->choices ? r->longest_choice : r->o.tokens);
    if (code == FINE && has_text)
        code = load_session(r);
    if (code == FINE)
        code = r->choices ? choose(r) : continue_prompt(r);
    attn_session_free(r->session);
    r->session = NULL;
    return code;
}

#include "lines.h"

static int make_buffers(run *r)
{
    const attn_config *config = attn_model_config(r->model);
    r->drawn =
        (int32_t *)arena_alloc(&r->ctx, &r->memory, (size_t)config->n_ctx + 1, sizeof *r->drawn);
    r->row = (float *)arena_alloc(&r->ctx, &r->memory, config->n_vocab, sizeof *r->row);
    if (r->o.receipt)
        r->digests = (unsigned char *)arena_alloc(&r->ctx, &r->memory, (size_t)config->n_ctx + 2,
                                                  SHA256_SIZE);
    return r->drawn && r->row && (r->digests || !r->o.receipt);
}

static int run_all(run *r, const arguments *given)
{
    static const char none[] =
        "no prompt given: text, --file, --ids, or --bos to begin with nothing";
    const text_source from = {r->o.prompt,  r->o.file,  r->o.ids, "ids", r->o.bos,
                              r->o.special, r->o.exact, none,     0};
    const int prompted = r->o.prompt || r->o.file || r->o.ids;
    const double begin = system_seconds();
    int code;
    r->ctx.n_threads = (int)r->o.threads;
    r->ctx.stop_flag = &interrupted;
    r->colour = shows_colour(stdout);
    r->terminal = system_is_terminal(stdout);
    if (r->o.receipt && (code = check_receipt(r)) != FINE)
        return code;
    code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE)
        return code;
    r->load_seconds = system_seconds() - begin;
    if (r->o.verbose)
        print_meta(r->model);
    if (!make_buffers(r))
        return failed(&r->ctx);
    if (r->o.repl)
        return run_repl(r, &from, prompted);
    signal(SIGINT, on_interrupt);
    code = prompted || !r->o.interactive ? continue_text(r, from) : FINE;
    return code == FINE && r->o.interactive ? continue_lines(r, given, &from) : code;
}

int main(int argc, char **argv)
{
    static run r;
    static arguments given;
    const program self = {
        table, N_OPTIONS, 2, "quote the prompt", pages, 3, "Further help (--help lines)",
        NULL,  NULL};
    size_t next = 0;
    int code;
    system_begin(&argc, &argv);
    r.o.tokens = 100;
    r.o.count = 1;
    if (!read_command_line(&self, argc, argv, &r.o, &given, &code))
        return code;
    r.o.model = option_or_word(r.o.model, &given, &next);
    const char *word = r.o.prompt ? NULL : option_or_word(NULL, &given, &next);
    if (next == 2)
        swap_model(&r.o.model, &word);
    if ((code = check_text_word(word)) != FINE)
        return code;
    r.o.prompt = word ? word : r.o.prompt;
    set_defaults(&r.o, &given);
    if ((code = check_usage(&r.o, &given, next)) != FINE)
        return code;
    code = run_all(&r, &given);
    attn_sampler_free(r.sampler);
    attn_session_free(r.session);
    attn_model_close(r.model);
    arena_free(&r.memory);
    out_free(&r.shown);
    lines_free(&r.lines);
    free(r.text.ids);
    return code;
}

/* cc tools/score/score.c -I. -O2 -fopenmp -lm -o score        (without -fopenmp: one thread)
 *
 * Answers many requests: reads JSON objects, one a line, and writes the answer of each on a line of
 * its own, in the same order. The key "task" says what to do with a text:
 *
 *     {"text": "Once upon a time"}                                  its tokens' log-probabilities
 *     {"context": "Once upon a", "text": " time"}                   ... of a continuation only
 *     {"task": "generate", "text": "Once", "max_tokens": 20}        a continuation
 *     {"task": "embed", "text": "Once", "pooling": "mean"}          a vector
 *     {"task": "top-k", "text": "Once upon a", "k": 3}              the likeliest next tokens
 *     {"task": "logit-lens", "text": "Once upon a"}                 the same after every layer
 *     {"task": "tokens", "text": "Once"}                            token ids
 *     {"task": "classify", "text": "Once"}                          logits of the model's own labels
 *
 * A line that cannot be answered gets {"line": 7, "error": "..."}, and the other lines are still
 * answered. If no line can be answered, the exit code is 1. No answer depends on the other lines, to
 * the last bit, so lines may be computed together, divided among machines (--shard) and continued
 * after an interruption (--resume).
 *
 * One pass over the weights takes up to 256 tokens from any number of texts: the end of one text,
 * all of others, the beginning of the next, and one token of each text that is being generated.
 * Nothing is padded, so texts of mixed lengths cost no more than equal ones. The parts, each in a
 * header beside this file:
 *
 *     run.h      the options, the lines in progress, the sessions
 *     input.h    lines in
 *     request.h  the keys of a line and their values
 *     batch.h    texts in sessions, and one pass over the weights for all of them
 *     answers.h  the answer of each task
 *     settings.h the table of options
 *     output.h   answers out, and --resume
 *     asked.h    questions of callers in the process */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "score"
#define INPUT   "lines"
#include "asked.h"
#include "output.h"
#include "tools/receipt/question.h"

/* ---- the command line ---- */

static void print_tasks(void)
{
    printf("\nTasks, and what their answers hold:\n");
    print_row("score", 14,
              "logprob and greedy (would greedy decoding give this text?); "
              "of each token its id, token, logprob and rank (0: the likeliest)");
    print_row("generate", 14, "text, ids and reason: why it ended");
    print_row("embed", 14, "embedding, a list of numbers");
    print_row("logit-lens", 14, "layers, and for each layer top as in top-k");
    print_row("top-k", 14, "positions, and top: the likeliest next tokens at each");
    print_row("tokens", 14, "ids and tokens of the text");
    print_row("classify", 14, "labels, and logits of the model's head for them");
}

static void print_keys(void)
{
    printf("\nKeys:\n");
    for (int i = 0; i < N_SCORE_KEYS; i++)
        print_row(score_keys[i].name, 14, score_keys[i].help);
}

static const help_page score_pages[] = {
    {NULL, NULL, "score MODEL.attn [FILE] [options]",
     "Answers many texts: reads JSON objects, one a line (FILE, or standard input), "
     "and prints for each a line with its answer, in the same order. "
     "A line that cannot be answered gets its number and an error, and the others are answered; "
     "if none can be, the exit code is 1. Answers do not depend on --batch, --threads, "
     "--shard or other lines, and their numbers read back exactly.",
     SCORE_PAGE, print_tasks, NULL},
    {"keys", "what a line may hold", NULL,
     "A line is one JSON object with these keys. A key that is null counts as absent. "
     "Other keys are an error, as they may be misspelt; --carry takes them. "
     "Lines end in LF or CR LF, and a byte order mark is left out. "
     "A text that is longer than the model's context is an error: "
     "perplexity reads such a text in windows, and lm_eval_attn.py in those of the harness.",
     KEYS_PAGE, print_keys, NULL}};

/* ---- progress ---- */

/* The share of the input that was read; -1 if its size is not known. */
static double share_done(const score_run *r)
{
    uint64_t size = 0;
    if (system_size(r->lines.file, &size) != 0 || size == 0)
        return -1;
    return r->lines.n_bytes < size ? (double)r->lines.n_bytes / (double)size : 1;
}

/* Shows the progress: on a terminal in one line that is rewritten ten times a second, elsewhere in
 * a new line every minute. */
static void report(score_run *r, int at_end)
{
    const int terminal = system_is_terminal(stderr);
    const double now = system_seconds(), elapsed = now - r->begin + 1e-9;
    const double share = share_done(r), done = share - r->begun_at;
    double left = share > 0 && done > 0 ? elapsed / done * (1 - share) : -1;
    char line[200], rest[64] = "";
    if (r->o.quiet || (!at_end && now - r->reported < (terminal ? 0.1 : 60)) ||
        (!at_end && elapsed < 1))
        return;
    r->reported = now;
    if (at_end && r->n_answers == 0 && r->n_again > 0) {
        fprintf(stderr, "%s: nothing was left to do: %s answers all %llu lines\n", called,
                r->o.output, TOOLS_LLU(r->n_skipped + r->n_again));
        return;
    }
    if (!at_end && left >= 0)
        snprintf(rest, sizeof rest, "; %.0f %%, %.0f %s left", 100 * share,
                 left < 100 ? left : left / 60, left < 100 ? "s" : "min");
    snprintf(line, sizeof line, "%llu lines, %llu errors, %.0f lines/s, %.0f tokens/s%s",
             TOOLS_LLU(r->n_answers), TOOLS_LLU(r->n_errors), (double)r->n_answers / elapsed,
             (double)r->n_tokens / elapsed, rest);
    if (terminal) {
        const int columns = line_columns(stderr) > 0 ? line_columns(stderr) : 80;
        fprintf(stderr, "%-*.*s%s", columns - 1, columns - 1, line, at_end ? "\n" : "\r");
    } else {
        fprintf(stderr, "%s: %s\n", called, line);
    }
    fflush(stderr);
}

/* Fails if no line could be answered: the file or an option is probably the wrong one, and a script
 * sees it by the exit code. */
static int check_answers(const score_run *r)
{
    const uint64_t n = r->n_answers + r->n_again;
    const char *hint = "";
    if (r->has_answer && r->n_failed > 0 && r->o.strict)
        return fail(FAILED, "--strict: %llu lines have errors. The first of this run: %s",
                    TOOLS_LLU(r->n_failed), r->first_error ? r->first_error : "none");
    if (n == 0 || r->has_answer)
        return FINE;
    if (r->o.lines)
        hint = "";
    else if (r->first_byte == '[')
        hint = "; the file has a list, but each line has to be an object: write it with pandas' "
               "to_json(FILE, orient=\"records\", lines=True), or convert it with jq -c '.[]'";
    else if (r->first_byte != '{')
        hint = "; each line has to be a JSON object: "
               "with --lines each line is a text, and the program perplexity reads a whole text";
    else if (strstr(r->first_error, "never closed"))
        hint = "; an object has to be on one line: convert the file with jq -c .";
    return fail(FAILED, "no line of %s could be answered, of %llu. The first error: %s%s", r->name,
                TOOLS_LLU(n), r->first_error, hint);
}

static int answer_all(score_run *r)
{
    int code = FINE, at_end = 0;
    r->begin = r->reported = system_seconds();
    while (code == FINE && !(at_end && r->n == 0)) {
        const int begins = r->n_kept > 0;
        const uint64_t before = r->n_answers;
        if (interrupted)
            return INTERRUPTED;
        code = answer_some(r, &at_end, write_answer);
        if (code == FINE && r->n_answers > before && (fflush(r->output) != 0 || ferror(r->output)))
            code = fail_output(r);
        if (begins) { /* lines that the earlier run answered do not count for the rate */
            r->begin = system_seconds();
            r->begun_at = share_done(r);
            r->n_tokens = 0;
        }
        report(r, 0);
    }
    if (code == FINE && r->n_kept > 0)
        return fail(FAILED, "--resume: %s has more lines than %s, so it was made from other input",
                    r->o.output, r->name);
    return code;
}

/* ---- the run ---- */

static const lens_asked *const *asked_programs(void)
{
    static const lens_asked *const programs[] = {&asked_score, NULL};
    return programs;
}

/* Parses --shard, such as "2/8". */
static int read_shard(score_run *r)
{
    const char *const slash = r->o.shard ? strchr(r->o.shard, '/') : NULL;
    char first[24] = "";
    r->shard = r->n_shards = 1;
    if (!r->o.shard)
        return FINE;
    if (slash && slash - r->o.shard < (int)sizeof first)
        memcpy(first, r->o.shard, (size_t)(slash - r->o.shard));
    if (!slash || !parse_count(slash + 1, "1 1000000000", &r->n_shards) ||
        !parse_count(first, "1 1000000000", &r->shard) || r->shard > r->n_shards)
        return fail(USAGE, "--shard: \"%s\" is not one of N parts, such as 1/4, 2/4, 3/4 or 4/4",
                    r->o.shard);
    return FINE;
}

static int open_lines(score_run *r)
{
    const int is_piped = !r->o.file || strcmp(r->o.file, "-") == 0;
    r->name = is_piped ? "standard input" : r->o.file;
    if (!is_piped)
        announce_pipe(r->o.file);
    r->lines.file = is_piped ? stdin : system_open(r->o.file, "rb");
    if (!r->lines.file)
        return fail(FAILED, "%s: %s", r->name, why(errno));
    if (is_piped) {
        system_binary(stdin);
        announce_input("JSON objects, one a line");
    }
    return FINE;
}

static int run_all(score_run *r)
{
    static answer_units units;
    const receipt_asked asked = {&asked_score, "score", &r->o, r->o.file, NULL};
    int code = read_shard(r);
    r->ctx.n_threads = (int)r->o.threads;
    r->ctx.stop_flag = &interrupted;
    if (code == FINE)
        code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code == FINE && r->o.receipt)
        code = receipt_begin(&r->ctx, r->o.isa);
    if (code != FINE || (code = open_lines(r)) != FINE || (code = open_output(r)) != FINE)
        return code;
    if (begin_score(r))
        return failed_run(r);
    signal(SIGINT, on_interrupt);
    r->units = r->o.receipt ? &units : NULL;
    code = answer_all(r);
    if (code == FINE || code == INTERRUPTED)
        report(r, 1);
    if (code == INTERRUPTED && r->output != stdout)
        fprintf(stderr, "stopped: the same command with --resume goes on\n");
    if (code == FINE && (code = check_answers(r)) == FINE && r->units)
        code = receipt_of_question(&r->ctx, &asked, r->units, r->model, r->o.model, r->o.receipt);
    units_free(&units);
    return code;
}

static int close_all(score_run *r, int code)
{
    end_score(r);
    attn_model_close(r->model);
    if (r->output && r->output != stdout && fclose(r->output) != 0 && code == FINE)
        return fail_output(r);
    return code;
}

static int run_line(const program *self, arguments *given, void *state)
{
    score_run *const r = (score_run *)state;
    const int code = take_words(self, given, &r->o.model, &r->o.file, "MODEL.attn FILE");
    if (code != FINE)
        return code;
    if (r->o.resume && (!r->o.output || strcmp(r->o.output, "-") == 0))
        return fail(USAGE, "--resume continues a file: give it with -o");
    if (r->o.receipt && (r->o.resume || r->o.shard))
        return fail(USAGE, "--receipt is of the answers to all lines: leave out --%s",
                    r->o.resume ? "resume" : "shard");
    return close_all(r, run_all(r));
}

int main(int argc, char **argv)
{
    static score_run r;
    const program self = {score_settings,
                          N_SCORE_OPTIONS,
                          2,
                          "give one file of lines",
                          score_pages,
                          2,
                          "Further help (--help keys)",
                          NULL,
                          score_columns};
    r.o.batch = 64;
    return program_main(&self, argc, argv, &r, run_line);
}

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
 *     output.h   answers out, and --resume */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "score"
#define INPUT   "lines"
#include "batch.h"
#include "input.h"
#include "output.h"

/* ---- the command line ---- */

static const struct option table[] = {
#define AT(member) offsetof(options, member), 1 /* FIRST_PAGE */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {'f', "file", "FILE", TEXT, AT(file), NULL, "the lines, if it is not the next word"},
    {'o', "output", "FILE", OUTPUT, AT(output), NULL,
     "write the answers there (-: standard output)"},
    {0, "resume", NULL, FLAG, AT(resume), NULL,
     "go on where -o FILE ends, which without this is not overwritten; begin if there is no FILE. "
     "Its last answer is compared, earlier ones are not"},
    {0, "shard", "I/N", TEXT, AT(shard), NULL,
     "answer lines I, I + N, I + 2N .. only: one of N parts, which paste -d '\\n' PART1 PART2 ... "
     "| grep . puts together again"},
    {0, "task", "NAME", CHOICE, AT(task), TASKS,
     "the task of lines that name none (default: score)"},
    {0, "bos", NULL, FLAG, AT(bos), NULL, "begin each text with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), NULL, "<|endoftext|> in a text is a token"},
    {0, "lines", NULL, FLAG, AT(lines), NULL, "FILE is plain text, and each line of it is a text"},
    {0, "carry", NULL, FLAG, AT(carry), NULL,
     "return keys that score does not know, under \"given\""},
    {0, "strict", NULL, FLAG, AT(strict), NULL, "exit code 1 if any line gets an error"},
    {0, "batch", "COUNT", COUNT, AT(batch), "1 256",
     "most texts at a time (default 64). 64 texts of 1000 tokens take 1.1 GB with GPT-2 124M"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES, ISA_HELP},
    {0, "f16-cache", NULL, FLAG, AT(f16_cache), NULL, "round keys and values to half the bytes"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), NULL, "no progress and statistics on standard error"},
    PROGRAM_OPTIONS(1),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

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
}

static void print_keys(void)
{
    int i;
    printf("\nKeys:\n");
    for (i = 0; i < N_KEYS; i++)
        print_row(keys[i].name, 14, keys[i].help);
}

enum { FIRST_PAGE = 1, KEYS_PAGE = 2 };

static const help_page pages[] = {
    {NULL, NULL, "score MODEL.attn [FILE] [options]",
     "Answers many texts: reads JSON objects, one a line (FILE, or standard input), "
     "and prints for each a line with its answer, in the same order. "
     "A line that cannot be answered gets its number and an error, and the others are answered; "
     "if none can be, the exit code is 1. Answers do not depend on --batch, --threads, "
     "--shard or other lines, and their numbers read back exactly.",
     FIRST_PAGE, print_tasks, NULL},
    {"keys", "what a line may hold", NULL,
     "A line is one JSON object with these keys. A key that is null counts as absent. "
     "Other keys are an error, as they may be misspelt; --carry takes them. "
     "Lines end in LF or CR LF, and a byte order mark is left out. "
     "A text that is longer than the model's context is an error: "
     "perplexity reads such a text in windows, and lm_eval_attn.py in those of the harness.",
     KEYS_PAGE, print_keys, NULL}};

/* ---- progress ---- */

/* The share of the input that was read; -1 if its size is not known. */
static double share_done(const run *r)
{
    uint64_t size = 0;
    if (system_size(r->lines.file, &size) != 0 || size == 0)
        return -1;
    return r->lines.n_bytes < size ? (double)r->lines.n_bytes / (double)size : 1;
}

/* Shows the progress: on a terminal in one line that is rewritten ten times a second, elsewhere in
 * a new line every minute. */
static void report(run *r, int at_end)
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
static int check_answers(const run *r)
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

static int answer_all(run *r)
{
    int code = FINE, at_end = 0;
    r->begin = r->reported = system_seconds();
    while (code == FINE && !(at_end && r->n == 0)) {
        const int begins = r->n_kept > 0;
        if (interrupted)
            return INTERRUPTED;
        if ((code = read_lines(r, &at_end)) == FINE && (code = begin_jobs(r)) == FINE &&
            (code = run_pass(r)) == FINE)
            code = write_answers(r);
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

static int run_all(run *r)
{
    attn_workspace_desc desc = ATTN_ZERO;
    int code = read_shard(r);
    r->ctx.n_threads = (int)r->o.threads;
    r->ctx.stop_flag = &interrupted;
    if (code == FINE)
        code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE || (code = open_lines(r)) != FINE || (code = open_output(r)) != FINE)
        return code;
    r->config = attn_model_config(r->model);
    r->tokenizer = attn_model_tokenizer(r->model);
    desc.n_batch = ROWS;
    r->ring = (job *)arena_alloc(&r->ctx, &r->memory, RING, sizeof *r->ring);
    r->logits = (float *)arena_alloc(&r->ctx, &r->memory, r->config->n_vocab, ROWS * sizeof(float));
    if (!r->ring || !r->logits || attn_workspace_new(&r->ctx, &r->workspace, r->model, &desc))
        return failed_run(r);
    signal(SIGINT, on_interrupt);
    code = answer_all(r);
    if (code == FINE || code == INTERRUPTED)
        report(r, 1);
    if (code == INTERRUPTED && r->output != stdout)
        fprintf(stderr, "stopped: the same command with --resume goes on\n");
    return code == FINE ? check_answers(r) : code;
}

static int close_all(run *r, int code)
{
    size_t i;
    for (i = 0; i < r->n; i++)
        free_job(r, job_at(r, i));
    for (i = 0; i < MAX_BATCH; i++)
        attn_session_free(r->slots[i].session);
    attn_workspace_free(r->workspace);
    attn_model_close(r->model);
    lines_free(&r->lines);
    arena_free(&r->memory);
    if (r->output && r->output != stdout && fclose(r->output) != 0 && code == FINE)
        return fail_output(r);
    return code;
}

static int run_line(const program *self, arguments *given, void *state)
{
    run *const r = (run *)state;
    const int code = take_words(self, given, &r->o.model, &r->o.file, "MODEL.attn FILE");
    if (code != FINE)
        return code;
    if (r->o.resume && (!r->o.output || strcmp(r->o.output, "-") == 0))
        return fail(USAGE, "--resume continues a file: give it with -o");
    return close_all(r, run_all(r));
}

int main(int argc, char **argv)
{
    static run r;
    const program self = {
        table, N_OPTIONS, 2, "give one file of lines", pages, 2, "Further help (--help keys)"};
    r.o.batch = 64;
    return program_main(&self, argc, argv, &r, run_line);
}

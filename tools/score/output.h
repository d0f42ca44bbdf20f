/* Writes the answers in the order of the lines, and continues the output of an earlier run
 * (--resume). */
#ifndef SCORE_OUTPUT_H
#define SCORE_OUTPUT_H

#include "input.h"
#include "tools/common/interrupt.h"

/* Finds the last answer in the output that is not an error. This run computes everything from there on
 * again and compares it, which shows whether the earlier run had the same model, options and lines.
 * Answers other than errors have the key "task", and inside a JSON string its quotes would be
 * escaped. */
static int find_end(score_run *r, uint64_t size)
{
    static const char mark[] = "\"task\": \"";
    char block[1 << 14];
    uint64_t at = 0, line = 0, n_lines = 0, n_answers = 0;
    uint64_t place = 0; /* line: the offset of the current one */
    size_t got, n_same = 0;
    int is_answer = 0;
    while ((got = fread(block, 1, sizeof block, r->output)) > 0)
        for (size_t i = 0; i < got; i++) {
            n_same = block[i] == mark[n_same] ? n_same + 1 : block[i] == mark[0];
            is_answer |= n_same == sizeof mark - 1;
            n_same = n_same == sizeof mark - 1 ? 0 : n_same;
            at++;
            if (block[i] != '\n')
                continue;
            if (is_answer) {
                place = line;
                r->n_skipped = n_lines;
                r->n_failed = n_lines - n_answers++;
            }
            is_answer = 0;
            line = at;
            n_lines++;
        }
    if (ferror(r->output) || system_seek(r->output, place) != 0)
        return fail(FAILED, "%s: %s", r->o.output, why(errno));
    r->output_size = size;
    r->n_kept = size - place;
    return FINE;
}

static int open_output(score_run *r)
{
    const char *const path = r->o.output;
    uint64_t size = 0;
    r->output = stdout;
    if (!path || strcmp(path, "-") == 0) {
        system_binary(stdout);
        return FINE;
    }
    const char *what = system_not_a_file(path);
    if (what && r->o.resume)
        return fail(USAGE, "--resume: %s is %s, where a file is needed", path, what);
    FILE *file = what || !system_exists(path) ? NULL : system_open(path, "rb+");
    r->output = file ? file : system_open(path, "ab"); /* an empty one if it is new */
    if (r->output && !what && !system_take(r->output))
        return fail(FAILED, "%s: another process writes its answers there", path);
    if (file && system_size(file, &size) == 0 && size > 0 && !r->o.resume)
        return fail(FAILED,
                    "%s already has answers: "
                    "continue it with --resume, remove it, or write elsewhere",
                    path);
    if (!r->output)
        return fail(FAILED, "%s: %s", path, why(errno));
    return size > 0 ? find_end(r, size) : FINE;
}

static int fail_output(const score_run *r)
{
    if (errno == EPIPE)
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write %s: %s", r->o.output ? r->o.output : "the output",
                why(errno));
}

static int refuse_output(const score_run *r, const job *j)
{
    return fail(FAILED,
                "--resume: line %llu of %s has another answer in %s, which was made with another "
                "model, other options or other lines",
                TOOLS_LLU(j->line), r->name, r->o.output);
}

/* A give_fn: writes an answer. In a resumed run, the first answers are compared with the end of the output
 * instead, which may hold only the beginning of the last. Nothing is written before all of that is
 * found equal, so a file of something else is not changed. */
static int write_answer(score_run *r, job *j)
{
    const size_t size = j->answer.size;
    size_t at = 0;
    char block[1 << 12];
    r->n_failed += j->is_error != 0;
    while (at < size && r->n_kept > 0) {
        const size_t most = size - at < sizeof block ? size - at : sizeof block;
        const size_t n = most < r->n_kept ? most : (size_t)r->n_kept;
        if (fread(block, 1, n, r->output) != n || memcmp(block, j->answer.text + at, n) != 0)
            return refuse_output(r, j);
        at += n;
        r->n_kept -= n;
        if (r->n_kept == 0 &&
            system_seek(r->output, r->output_size) != 0) /* C asks for it before writing */
            return fail(FAILED, "%s: %s", r->o.output, why(errno));
    }
    if (r->n_kept > 0) {
        if (fgetc(r->output) != '\n')
            return refuse_output(r, j);
        r->n_kept--;
        r->n_again++;
        return r->n_kept == 0 && system_seek(r->output, r->output_size) != 0
                   ? fail(FAILED, "%s: %s", r->o.output, why(errno))
                   : FINE;
    }
    r->n_answers++;
    r->n_errors += j->is_error != 0;
    if (size > at)
        fwrite(j->answer.text + at, 1, size - at, r->output);
    fputc('\n', r->output);
    return FINE;
}

#endif

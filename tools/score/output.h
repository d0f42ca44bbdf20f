/* Answers out, in the order of the lines, and --resume: going on behind those of an earlier run. */
#ifndef SCORE_OUTPUT_H
#define SCORE_OUTPUT_H

#include "run.h"

/* Finds the whole lines of an output that was interrupted: how many, and the last one, which must
 * come out again. What follows them is cut off. */
static int find_end(run *r)
{
    char block[1 << 14];
    uint64_t at = 0, last = 0, end = 0; /* where the last whole line begins and ends */
    size_t i, got;
    while ((got = fread(block, 1, sizeof block, r->output)) > 0)
        for (i = 0; i < got; i++, at++)
            if (block[i] == '\n') {
                last = end;
                end = at + 1;
                r->n_skipped++;
            }
    if (ferror(r->output))
        return fail(FAILED, "%s: %s", r->o.output, why(errno));
    if (r->n_skipped > 0) {
        r->n_skipped--;
        r->expected_size = (size_t)(end - last - 1);
        r->expected = (char *)arena_alloc(&r->ctx, &r->memory, r->expected_size + 1, 1);
        if (!r->expected)
            return failed(&r->ctx);
        if (system_seek(r->output, last) != 0 ||
            fread(r->expected, 1, r->expected_size, r->output) != r->expected_size)
            return fail(FAILED, "%s: %s", r->o.output, why(errno));
    }
    if (system_cut(r->output, end) != 0 || system_seek(r->output, end) != 0)
        return fail(FAILED, "--resume: cannot go on with %s: %s", r->o.output, why(errno));
    return FINE;
}

static int open_output(run *r)
{
    const char *const path = r->o.output;
    uint64_t size = 0;
    const char *what;
    FILE *file;
    r->output = stdout;
    if (!path) {
        system_binary(stdout);
        return FINE;
    }
    if (system_same_file(path, r->o.model) || (r->o.file && system_same_file(path, r->o.file)))
        return fail(USAGE, "-o %s: that is the %s", path,
                    system_same_file(path, r->o.model) ? "model" : "input");
    what = system_not_a_file(path);
    if (what && r->o.resume)
        return fail(USAGE, "--resume: %s is %s, where a file is needed", path, what);
    file = what || !system_exists(path) ? NULL : system_open(path, "rb+");
    if (file && system_size(file, &size) == 0 && size > 0 && !r->o.resume) {
        fclose(file);
        return fail(FAILED,
                    "%s holds answers already: --resume goes on behind them; or remove it, or "
                    "write elsewhere",
                    path);
    }
    r->output = file ? file : system_open(path, "wb");
    if (!r->output)
        return fail(FAILED, "%s: %s", path, why(errno));
    return size > 0 ? find_end(r) : FINE;
}

static int fail_output(const run *r)
{
    if (errno == EPIPE)
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write %s: %s", r->o.output ? r->o.output : "the output",
                why(errno));
}

/* The last answer that the output had must come out again; it is not written twice. */
static int check_expected(run *r, const job *j)
{
    if (r->expected && j->answer.text && j->answer.size == r->expected_size &&
        memcmp(j->answer.text, r->expected, r->expected_size) == 0)
        return FINE;
    return fail(FAILED,
                "--resume: line %llu of %s has another answer in %s: that was made with another "
                "model, other options or other lines",
                TOOLS_LLU(j->line), r->name, r->o.output);
}

/* Writes the answers that are there, up to the first that is not. */
static int write_answers(run *r)
{
    const size_t before = r->n;
    int code = FINE;
    while (r->n > 0 && job_at(r, 0)->state == DONE && code == FINE) {
        job *const j = job_at(r, 0);
        if (j->is_expected) {
            code = check_expected(r, j);
        } else {
            out_line(&j->answer, r->output);
            r->n_answers++;
        }
        free_job(r, j);
        r->first = (r->first + 1) % RING;
        r->n--;
    }
    if (code == FINE && r->n < before && (fflush(r->output) != 0 || ferror(r->output)))
        code = fail_output(r);
    return code;
}

#endif

/* The program's output: a file that appears when it is whole, and goes on where an earlier run ended
 * (--resume). */
#ifndef SURPRISAL_OUTPUT_H
#define SURPRISAL_OUTPUT_H

#include "tools/common/interrupt.h"
#include "tools/common/prompt.h"
#include "check.h"
#include "tools/write/new_file.h"

typedef struct output {
    const surprisal_run *run;
    const surprisal_options *o; /* its own */
    FILE *file;
    char *part;         /* the path that the output has until it is whole */
    const char *target; /* its path then: where symbolic links lead */
    char *kept;         /* --resume: what an earlier run wrote */
    size_t n_kept, kept_at;
    struct vector_file *vectors;
    int code; /* of what was reported */
} output;

static int fail_output(const output *to)
{
    if (errno == EPIPE)
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write %s: %s", to->part ? to->part : "the output", why(errno));
}

/* Where row number `skip` of an earlier output begins. The last whole row is made again, and compared. */
static size_t find_row(surprisal_run *r, const output *to)
{
    size_t row = 0, place_of_row = 0, n = 0;
    int quoted = 0;
    for (size_t i = 0; i < to->n_kept; i++) {
        quoted ^= to->kept[i] == '"' && r->form == AS_CSV;
        if (to->kept[i] == '\n' && !quoted) {
            place_of_row = row;
            row = i + 1;
            n++;
        }
    }
    r->skip = n > 0 ? n - 1 : 0;
    return place_of_row;
}

static int fail_part(const char *part)
{
    return fail(
        FAILED,
        "%s has rows of a run that was interrupted: continue it with --resume, or remove it", part);
}

/* Opens FILE.part, after reading what an earlier run left there. */
static int open_part(surprisal_run *r, output *to)
{
    FILE *const old = system_exists(to->part) ? system_open(to->part, "rb") : NULL;
    if (old && !to->o->resume) {
        fclose(old);
        return fail_part(to->part);
    }
    if (old) {
        const attn_status status =
            read_all(&r->ctx, &r->memory, old, to->part, (size_t)1 << 30, &to->kept, &to->n_kept);
        fclose(old);
        if (status)
            return fail_run(r);
        to->kept_at = r->o.is_suite ? 0 : find_row(r, to); /* a suite is measured again */
    }
    to->file = system_open(to->part, old ? "rb+" : "wb");
    if (!to->file || (old && system_seek(to->file, to->n_kept) != 0))
        return fail(FAILED, "%s: %s", to->part, why(errno));
    return FINE;
}

static int open_output(surprisal_run *r, output *to)
{
    const char *const path = to->o->output, *what;
    char target[LENS_MOST_PATH];
    int mode;
    to->file = stdout;
    if (!path || strcmp(path, "-") == 0) {
        system_binary(stdout);
        return FINE;
    }
    if ((what = system_not_a_file(path)) != NULL)
        return fail(USAGE, "-o %s: that is %s, where a file is needed", path, what);
    if (!lens_follow_links(target, path))
        return fail(FAILED, "%s: %s", path, why(errno));
    if (system_exists(target) && !lens_may_replace(target, &mode)) { /* an open file */
        to->file = system_open(target, "ab");
        return to->file ? FINE : fail(FAILED, "%s: %s", path, why(errno));
    }
    size_t size = strlen(target) + sizeof ".part";
    if (!(to->part = (char *)arena_alloc(&r->ctx, &r->memory, size, 1)) ||
        !(to->target = arena_text(&r->ctx, &r->memory, target, strlen(target))))
        return fail_run(r);
    snprintf(to->part, size, "%s.part", target);
    return open_part(r, to);
}

static int refuse_resume(const output *to, uint64_t line)
{
    return fail(
        FAILED,
        "--resume: line %llu of %s is another one now: it was made with another model, other "
        "options or other texts",
        TOOLS_LLU(line), to->part);
}

/* A row_fn: compares the row with what an earlier run wrote, and writes what that run did not. */
static int write_row(surprisal_run *r, uint64_t number)
{
    output *const to = (output *)r->user;
    const int is_header = number == 0 && r->skip > 0;
    const size_t at = is_header ? 0 : to->kept_at, left = to->n_kept - at, size = r->row.size;
    const size_t same = left < size ? left : size;
    if (same > 0 && memcmp(r->row.text, to->kept + at, same) != 0)
        return to->code = refuse_resume(to, number + 1);
    to->kept_at += is_header ? 0 : same;
    if (size > same && fwrite(r->row.text + same, 1, size - same, to->file) != size - same)
        return to->code = fail_output(to);
    return 0;
}

/* Gives a whole output its name. */
static int finish_rows(output *to, int code)
{
    int mode;
    if (!to->part || !to->file)
        return code;
    if (code == FINE && to->kept_at < to->n_kept)
        code = fail(FAILED,
                    "--resume: %s has more rows than %s gives, so it was made from other texts",
                    to->part, name_of(to->run));
    if (fclose(to->file) != 0 && code == FINE)
        code = fail_output(to);
    lens_may_replace(to->target, &mode);
    if (code == FINE && !lens_replace(to->part, to->target, mode))
        code = fail(FAILED, "cannot rename %s to %s: %s", to->part, to->target, why(errno));
    return code;
}

#endif

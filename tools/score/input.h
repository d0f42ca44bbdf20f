/* Reads the lines of this shard, as many as are answered together. */
#ifndef SCORE_INPUT_H
#define SCORE_INPUT_H

#include "batch.h"

/* Parses a line into a job. A line with an error, or of the task tokens, is answered at once. */
static int accept_line(score_run *r, line_status status, const char *line, size_t size)
{
    job *const j = job_at(r, r->n++);
    json_out as_text = {0};
    memset(j, 0, sizeof *j);
    j->line = r->lines.n_lines;
    if (r->o.lines) {
        out_open(&as_text, NULL, '{');
        out_text(&as_text, "text", line, size);
        out_close(&as_text, '}');
        size = as_text.size;
        out_bytes(&as_text, "", 1); /* a zero */
        j->text = as_text.failed ? NULL : as_text.text;
    } else if ((j->text = (char *)malloc(size + 1)) != NULL) {
        memcpy(j->text, line, size);
        j->text[size] = 0;
    }
    if (!j->text)
        return fail(FAILED, "no memory for line %llu of %s", TOOLS_LLU(j->line), r->name);
    j->held = size;
    r->n_held += size;
    if (status == LINE_TOO_LONG)
        tool_fail(&r->ctx, ATTN_E_SPACE, "the line is longer than %d bytes", (int)MAX_LINE);
    else if (strspn(j->text, " \t\r") == size)
        tool_fail(&r->ctx, ATTN_E_FORMAT, "the line is empty");
    else if (json_parse_at(&r->ctx, "input", (size_t)j->line, j->text, size, &j->root) == ATTN_OK &&
             read_request(r, j) == ATTN_OK)
        make_ids(r, j);
    if (r->ctx.status || j->q.task == TASK_TOKENS)
        return finish_job(r, j);
    r->n_waiting++;
    return FINE;
}

/* Does a line begin with words and not with JSON? */
static int is_prose(const char *line)
{
    const unsigned char first = (unsigned char)line[strspn(line, " \t\r")];
    return (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') || first >= 0x80;
}

/* Reads lines until enough are waiting. It blocks for more input only when there is nothing else to
 * do. */
static int read_lines(score_run *r, int *at_end)
{
    int code = FINE;
    while (code == FINE && !*at_end && r->n_waiting < r->o.batch && r->n < RING &&
           r->n_held < MAX_HELD) {
        const char *line = "";
        size_t size = 0;
        const line_status status = lines_next(&r->lines, r->n == 0, &line, &size);
        if (score_is_stopped(r))
            return INTERRUPTED;
        if (status == LINE_FAILED)
            return fail(FAILED, "%s: %s", r->name, lines_why(&r->lines));
        *at_end = status == LINE_END;
        if (status == LINE_LATER && r->n > 0)
            return FINE;
        if (status == LINE_LATER || status == LINE_END ||
            (r->lines.n_lines - 1) % r->n_shards != r->shard - 1 ||
            !units_want(r->units, r->lines.n_lines - 1))
            continue;
        if (!r->first_byte && line[strspn(line, " \t\r")])
            r->first_byte = line[strspn(line, " \t\r")];
        if (r->lines.n_lines == 1 && status == LINE_READ && !r->o.lines && is_prose(line))
            return fail(
                FAILED,
                "line 1 of %s is \"%.30s\", where a JSON object such as {\"text\": \"Once\"} "
                "is needed: with --lines each line is a text",
                r->name, line);
        if (r->n_mine++ >= r->n_skipped)
            code = accept_line(r, status, line, size);
    }
    return code;
}

/* Takes the answer of a line. Returns an exit code. */
typedef int (*give_fn)(score_run *r, job *j);

/* Reads lines, feeds their texts in one pass, and gives the finished answers in the order of the lines, up to the first
 * line that is still in progress. */
static int answer_some(score_run *r, int *at_end, give_fn give)
{
    int code;
    if ((code = read_lines(r, at_end)) != FINE || (code = begin_jobs(r)) != FINE ||
        (code = feed_jobs(r)) != FINE)
        return code;
    for (; r->n > 0 && job_at(r, 0)->state == DONE && code == FINE; r->n--) {
        job *const j = job_at(r, 0);
        r->has_answer |= !j->is_error;
        add_to_units(r, j);
        code = give(r, j);
        free_job(r, j);
        r->first = (r->first + 1) % RING;
    }
    return code;
}

#endif

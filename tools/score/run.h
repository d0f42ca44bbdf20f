/* The state of a run of score: its options, the lines in progress and the sessions. */
#ifndef SCORE_RUN_H
#define SCORE_RUN_H

#include "tools/common/json.h"
#include "tools/common/json_out.h"
#include "tools/common/lines.h"
#include "tools/common/prompt.h"
#include "tools/waist/units.h"

typedef struct score_options {
    const char *model, *file, *output, *shard, *receipt;
    size_t batch, threads;
    int task, bos, special, lines, carry, resume, strict, isa, f16_cache, skip_checksums, quiet;
} score_options;

enum score_task { TASK_SCORE, TASK_GENERATE, TASK_EMBED, TASK_LOGIT_LENS, TASK_TOP_K, TASK_TOKENS };
enum { TASK_CLASSIFY = TASK_TOKENS + 1 };
#define TASKS         "score generate embed logit-lens top-k tokens classify"
#define OF_TASK(task) (1 << (task))
enum { OF_ALL_TASKS = (1 << 7) - 1, OF_GUESSES = OF_TASK(TASK_LOGIT_LENS) | OF_TASK(TASK_TOP_K) };
enum {
    MAX_BATCH = 256,
    PASS_ROWS = 256
}; /* ROWS: the most tokens of a pass, and the n_batch of the workspace */

/* The values of a line's keys. */
typedef struct request {
    const json_value *id, *text, *ids, *context, *context_ids, *activation, *stop;
    size_t k, max_tokens, top_k, repeat_last;
    float temperature, top_p, min_p, repeat_penalty;
    uint64_t seed;
    int task, bos, special, positions, pooling, ignore_eos;
} request;

typedef enum job_state { WAITING, RUNNING, DONE } job_state;

/* A line of the input, from reading it to writing its answer. */
typedef struct job {
    uint64_t line; /* its number, from 1 */
    job_state state;
    int is_error;
    size_t held; /* bytes of memory for the line and its answer */
    char *text;
    json_value *root; /* its strings point into `text` */
    request q;
    arena memory; /* for what follows; freed when the line is answered */
    attn_token *ids;
    size_t n,
        n_context; /* n_context of the n tokens are before the text, or before what is generated */
    size_t fed, goal; /* tokens fed so far, and in the end */
    size_t slot;
    attn_token_stats *stats; /* score: of each token after the context that has a prediction;
                                top-k, logit-lens: of the likeliest token at each position */
    attn_prediction *top;    /* top-k, logit-lens */
    float *streams;          /* logit-lens: [n_layer + 1, positions, d_model] */
    float *row;              /* embed, classify: [width], the last row */
    double *sums;            /* embed: [width], over all rows */
    size_t width;            /* embed: 0 if the activation does not have one row a position */
    attn_sampler *sampler;   /* generate */
    char *made;              /* generate: the bytes of the tokens */
    size_t n_made, room;
    attn_stop_reason reason;
    json_out answer;
} job;

/* A session, which is used for one text after the other. */
typedef struct session_slot {
    attn_session *session;
    size_t capacity;
    int is_busy;
} session_slot;

enum {
    RING = 1024,
    MAX_HELD = 1 << 26
}; /* the most lines in progress, and the most bytes of memory for them */

/* What is fed in one pass over the weights. */
typedef struct score_pass {
    attn_feed_item items[MAX_BATCH];
    job *jobs[MAX_BATCH];
    size_t rows[PASS_ROWS]; /* the rows whose logits are needed, of all items */
    size_t n_items, n_tokens, n_rows;
} score_pass;

typedef struct score_run {
    score_options o;
    answer answer;        /* to a caller in the process (asked.h) */
    answer_table *scores; /* its rows; NULL: the program runs */
    answer_units *units;  /* for a receipt, or NULL: each line is a unit */
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_workspace *workspace;
    const char *name; /* the name of the input, for messages */
    line_reader lines;
    size_t shard, n_shards;
    FILE *output;
    uint64_t n_kept;      /* bytes at the end of the output that are still to be compared */
    uint64_t output_size; /* its size when it was opened */
    uint64_t n_skipped; /* lines of this shard whose answers are in the output before those bytes */
    uint64_t n_again;   /* answers that were compared and found equal */
    uint64_t n_mine;    /* lines of this shard that were read */
    char first_byte;    /* of the first line that is not empty */
    char *first_error;  /* NULL: none so far */
    job *ring;          /* [RING] */
    size_t first, n,
        n_held; /* the lines in progress, in the order of the input, and their memory in bytes */
    size_t n_waiting, n_running, capacity;
    session_slot slots[MAX_BATCH];
    score_pass pass;
    float *logits;                          /* [ROWS, n_vocab] */
    attn_tensor head, head_bias;            /* for classify, once it was asked for */
    uint64_t n_answers, n_errors, n_tokens; /* since `begin` */
    uint64_t n_failed;                      /* errors in the output, with those of earlier runs */
    int has_answer; /* an answer other than an error was written, or found in the output */
    double begin, reported;
    double begun_at; /* the share of the input that the earlier run answered */
} score_run;

static int score_is_stopped(const score_run *r)
{
    return r->ctx.stop_flag && *r->ctx.stop_flag;
}

/* Reports the error of a library call that failed, and a cure if memory was short. */
static int failed_run(const score_run *r)
{
    const int is_short = r->ctx.status == ATTN_E_MEMORY && !r->scores && !score_is_stopped(r) &&
                         (r->o.batch > 1 || r->o.threads != 1);
    return is_short ? fail(FAILED, "%s; --batch 1 and -t 1 need less", message_of(&r->ctx))
                    : failed(&r->ctx);
}

static job *job_at(const score_run *r, size_t i)
{
    return &r->ring[(r->first + i) % RING];
}

static void *allocate_for(score_run *r, job *j, size_t count, size_t size)
{
    return arena_alloc(&r->ctx, &j->memory, count ? count : 1, size);
}

/* Adds the answer of a line to the units: the name of the table, and the line of JSON. */
static void add_to_units(score_run *r, const job *j)
{
    if (!r->units)
        return;
    units_to(r->units, NULL, j->line - 1);
    r->units->latest = (unit_place){"scores", (size_t)j->line - 1};
    unit_text(r->units, "scores\n", 7);
    unit_text(r->units, j->answer.text, j->answer.size);
    unit_text(r->units, "\n", 1);
    end_unit(r->units);
}

static void free_job(score_run *r, job *j)
{
    attn_sampler_free(j->sampler);
    arena_free(&j->memory);
    out_free(&j->answer);
    free(j->root);
    free(j->text);
    r->n_held -= j->held;
    memset(j, 0, sizeof *j);
}

#endif

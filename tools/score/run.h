/* A run of score: its options, the lines that are being answered, and the sessions that do it. */
#ifndef SCORE_RUN_H
#define SCORE_RUN_H

#include "tools/common/json.h"
#include "tools/common/json_out.h"
#include "tools/common/lines.h"
#include "tools/common/prompt.h"

typedef struct options {
    const char *model, *file, *output, *shard;
    size_t batch, threads;
    int task, bos, special, resume, isa, f16_cache, skip_checksums, quiet;
} options;

enum task { SCORE, GENERATE, EMBED, LOGIT_LENS, TOP_K, TOKENS };
#define TASKS    "score generate embed logit-lens top-k tokens"
#define ON(task) (1 << (task))
enum { ALL = (1 << 6) - 1, GUESSES = ON(LOGIT_LENS) | ON(TOP_K) };
enum { MAX_BATCH = 256, ROWS = 256 }; /* ROWS: tokens of a pass, as many as a workspace takes */

/* The keys of a line. */
typedef struct request {
    const json_value *id, *text, *ids, *context, *context_ids, *activation, *stop;
    size_t k, max_tokens, top_k, repeat_last;
    float temperature, top_p, min_p, repeat_penalty;
    uint64_t seed;
    int task, bos, special, positions, pooling, ignore_eos;
} request;

typedef enum job_state { WAITING, RUNNING, DONE } job_state;

/* A line of the input until its answer is written. */
typedef struct job {
    uint64_t line; /* its number */
    job_state state;
    int is_error;
    size_t held; /* bytes of the line and of its answer */
    char *text;
    json_value *root; /* its strings lie in the text */
    request q;
    arena memory; /* of all that follows, until the answer is there */
    int32_t *ids;
    size_t n, n_context; /* tokens, of which these come before the text (or generation) */
    size_t fed, goal;    /* tokens that were fed, and that must be */
    size_t slot;
    attn_token_stats *stats; /* score: of each token after the context but an unpredicted first;
                                top-k, logit-lens: of the likeliest at each position */
    attn_prediction *top;    /* top-k, logit-lens */
    float *streams;          /* logit-lens: [n_layer + 1, positions, d_model] */
    float *row;              /* embed: the last row */
    double *sums;            /* embed: over all rows */
    size_t width;            /* embed: of a row; 0: it is not one row a position */
    attn_sampler *sampler;   /* generate */
    char *made;              /* generate: the bytes of the tokens */
    size_t n_made, room;
    attn_stop_reason reason;
    json_out answer;
} job;

/* A session, which serves one text after the other. */
typedef struct slot {
    attn_session *session;
    size_t capacity;
    int is_busy;
} slot;

enum { RING = 1024, MAX_HELD = 1 << 26 }; /* lines between input and output, and their bytes */

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_workspace *workspace;
    const char *name; /* of the input, for messages */
    line_reader lines;
    size_t shard, n_shards;
    FILE *output;
    uint64_t n_kept;         /* bytes at the end of the output that must come out again */
    uint64_t output_size;    /* when it was opened */
    uint64_t n_skipped;      /* lines of this shard that the output has before those bytes */
    uint64_t n_again;        /* answers that came out again */
    uint64_t n_mine;         /* lines of this shard that were read */
    char first_byte;         /* of the first line that is not empty */
    char *first_error;       /* NULL: no line was answered with one */
    job *ring;               /* [RING] */
    size_t first, n, n_held; /* the lines in it, in the order of the input, and their bytes */
    size_t n_waiting, n_running, capacity;
    slot slots[MAX_BATCH];
    float *logits;                          /* [ROWS, n_vocab] */
    uint64_t n_answers, n_errors, n_tokens; /* since `begin` */
    int has_answer;                         /* one that is no error, old or new */
    double begin, reported;
    double begun_at; /* the share of the input that was skipped */
} run;

static job *job_at(const run *r, size_t i)
{
    return &r->ring[(r->first + i) % RING];
}

static void *allocate(run *r, job *j, size_t count, size_t size)
{
    return arena_alloc(&r->ctx, &j->memory, count ? count : 1, size);
}

static void free_job(run *r, job *j)
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

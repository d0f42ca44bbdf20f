/* cc tools/score/score.c -I. -O2 -fopenmp -lm -o score        (without -fopenmp: one thread)
 *
 * Many texts: reads JSON objects, one a line, and answers each on a line of its own, in the same
 * order. What to do with a text is its task:
 *
 *     {"text": "Once upon a time"}                                  its tokens' log-probabilities
 *     {"context": "Once upon a", "text": " time"}                   ... of a continuation's alone
 *     {"task": "generate", "text": "Once", "max_tokens": 20}        how the model goes on
 *     {"task": "embed", "text": "Once", "pooling": "mean"}          a vector
 *     {"task": "top-k", "text": "Once upon a", "k": 3}              the likeliest next tokens
 *     {"task": "logit-lens", "text": "Once upon a"}                 the same after every layer
 *     {"task": "tokens", "text": "Once"}                            token ids
 *
 * A line that cannot be answered gets {"line": 7, "error": "..."}, and the rest goes on. Every answer
 * has the bits that it would have alone, so lines may be computed together, divided among machines
 * (--shard) and continued after an interruption (--resume).
 *
 * One pass over the weights takes up to 256 tokens of as many texts as there are: the end of one
 * text, all of others, the beginning of the next, a token each of those that are being generated.
 * Nothing is padded, so texts of mixed lengths cost no more than equal ones. */

#include "tools/common/system.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "score"
#define INPUT   "lines"
#include "tools/common/json.h"
#include "tools/common/json_out.h"
#include "tools/common/lines.h"
#include "tools/common/prompt.h"

/* ---- the command line ---- */

typedef struct options {
    const char *model, *file, *output, *shard;
    size_t batch, threads;
    int task, bos, special, resume, isa, f16_cache, skip_checksums, quiet, help, version;
} options;

enum task { SCORE, GENERATE, EMBED, LOGIT_LENS, TOP_K, TOKENS };
#define TASKS    "score generate embed logit-lens top-k tokens"
#define ON(task) (1 << (task))
enum { ALL = (1 << 6) - 1, GUESSES = ON(LOGIT_LENS) | ON(TOP_K) };
enum { MAX_BATCH = 256, ROWS = 256 }; /* ROWS: tokens of a pass, as many as a workspace takes */

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {'f', "file", "FILE", TEXT, AT(file), NULL, "the lines, if it is not the next word"},
    {'o', "output", "FILE", TEXT, AT(output), NULL,
     "write the answers there; a FILE that holds some is kept, see --resume"},
    {0, "resume", NULL, FLAG, AT(resume), NULL,
     "go on after the last whole line of -o FILE; the same command begins if there is no FILE"},
    {0, "shard", "I/N", TEXT, AT(shard), NULL,
     "answer only lines I, I + N, I + 2N and so on: one of N parts"},
    {0, "task", "NAME", CHOICE, AT(task), TASKS,
     "of lines that name none: score (default), generate, embed, logit-lens, top-k or tokens"},
    {0, "bos", NULL, FLAG, AT(bos), NULL,
     "begin each text with the beginning-of-text token, unless its line says otherwise"},
    {0, "special", NULL, FLAG, AT(special), NULL,
     "<|endoftext|> in a text is a token, unless its line says otherwise"},
    {0, "batch", "COUNT", COUNT, AT(batch), "1 256",
     "most texts at a time (default 64); answers do not depend on it"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES,
     "portable, base, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot, neon-i8mm, amx"},
    {0, "f16-cache", NULL, FLAG, AT(f16_cache), NULL, "round keys and values to half the bytes"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), NULL, "no progress and statistics on standard error"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

/* ---- the keys of a line ---- */

typedef struct request {
    const json_value *id, *text, *ids, *context, *context_ids, *activation, *stop;
    size_t k, max_tokens, top_k, repeat_last;
    float temperature, top_p, min_p, repeat_penalty;
    uint64_t seed;
    int task, bos, special, positions, pooling, ignore_eos;
} request;

#define COUNTED "0 1000000000"
static const struct option keys[] = {
#define KEY(member) offsetof(request, member)
    {0, "id", NULL, TEXT, KEY(id), ALL, "a string or a number", "comes back with the answer"},
    {0, "task", NULL, CHOICE, KEY(task), ALL, TASKS, "one of the tasks above"},
    {0, "text", NULL, TEXT, KEY(text), ALL, "a string", "the text"},
    {0, "ids", NULL, TEXT, KEY(ids), ALL, "a list of token ids", "... or its token ids"},
    {0, "context", NULL, TEXT, KEY(context), ON(SCORE), "a string",
     "score: stands before the text and is not scored. Its tokens are its own: a blank belongs to "
     "the word behind it, so it begins the text"},
    {0, "context_ids", NULL, TEXT, KEY(context_ids), ON(SCORE), "a list of token ids",
     "... or its token ids"},
    {0, "bos", NULL, FLAG, KEY(bos), ALL, NULL,
     "begin with the beginning-of-text token (default false)"},
    {0, "special", NULL, FLAG, KEY(special), ALL, NULL,
     "<|endoftext|> in the text is a token (default false)"},
    {0, "k", NULL, COUNT, KEY(k), GUESSES, "1 1000000",
     "top-k, logit-lens: how many tokens (default 5)"},
    {0, "positions", NULL, CHOICE, KEY(positions), GUESSES, "last all",
     "top-k, logit-lens: last (default) or all"},
    {0, "activation", NULL, TEXT, KEY(activation), ON(EMBED), "a string",
     "embed: TransformerLens's name of a residual stream, or of any activation that has one row a "
     "position (default: the last hook_resid_post)"},
    {0, "pooling", NULL, CHOICE, KEY(pooling), ON(EMBED), "last mean",
     "embed: the last position (default), or the mean of all"},
    {0, "max_tokens", NULL, COUNT, KEY(max_tokens), ON(GENERATE), "1 1000000000",
     "generate: default 100"},
    {0, "temperature", NULL, NUMBER, KEY(temperature), ON(GENERATE), "0 1000",
     "generate: 0 is greedy (default), 1 as trained"},
    {0, "top_k", NULL, COUNT, KEY(top_k), ON(GENERATE), COUNTED,
     "generate: sample from the K likeliest tokens"},
    {0, "top_p", NULL, NUMBER, KEY(top_p), ON(GENERATE), "0 1",
     "... from the likeliest that together reach P"},
    {0, "min_p", NULL, NUMBER, KEY(min_p), ON(GENERATE), "0 1",
     "... from those at least P times the likeliest"},
    {0, "repeat_penalty", NULL, NUMBER, KEY(repeat_penalty), ON(GENERATE), "0 1000",
     "above 1: repeat less"},
    {0, "repeat_last", NULL, COUNT, KEY(repeat_last), ON(GENERATE), COUNTED,
     "... of the last COUNT tokens"},
    {0, "seed", NULL, SEED, KEY(seed), ON(GENERATE), NULL, "same seed, same text (default 0)"},
    {0, "stop", NULL, TEXT, KEY(stop), ON(GENERATE), "a string or a list of strings",
     "generate: end before any of these"},
    {0, "ignore_eos", NULL, FLAG, KEY(ignore_eos), ON(GENERATE), NULL,
     "generate: go on through the end-of-text token"},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

static void print_help(void)
{
    int i;
    print_about(
        "score MODEL.attn [FILE] [options]",
        "Answers many texts: reads JSON objects, one a line (FILE, or standard input), and prints "
        "for each a line with its answer, in the same order. A line that cannot be answered gets "
        "its number and an error, and the rest goes on. Answers do not depend on --batch, "
        "--threads, --shard or the lines around them, and their numbers read back exactly. "
        "paste -d '\\n' PART1 PART2 ... | grep . puts the parts of --shard together again.");
    printf("\nTasks:\n");
    print_row("score", 14,
              "logprob and greedy (would the greedy choice have said all of it?) of the text; of "
              "each token its id, token, logprob and rank (0: the likeliest)");
    print_row("generate", 14, "text, ids and the reason to end");
    print_row("embed", 14, "embedding, a list of numbers");
    print_row("logit-lens", 14, "layers, and top as of top-k for each layer");
    print_row("top-k", 14, "positions, and top: for each the likeliest next tokens");
    print_row("tokens", 14, "ids and tokens of the text");
    printf("\nKeys:\n");
    for (i = 0; i < N_KEYS; i++)
        print_row(keys[i].name, 14, keys[i].help);
    print_options(table, N_OPTIONS);
}

/* ---- a run and its lines ---- */

typedef enum job_state { WAITING, RUNNING, DONE } job_state;

/* A line of the input until its answer is written. */
typedef struct job {
    uint64_t line; /* its number */
    job_state state;
    int is_expected; /* the answer stands in the output already, and must be that */
    size_t held;     /* bytes of the line and of its answer */
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
    char *expected; /* the last whole line of the output */
    size_t expected_size;
    uint64_t n_skipped;      /* lines of this shard that the output has before that line */
    uint64_t n_mine;         /* lines of this shard that were read */
    job *ring;               /* [RING] */
    size_t first, n, n_held; /* the lines in it, in the order of the input, and their bytes */
    size_t n_waiting, n_running, capacity;
    slot slots[MAX_BATCH];
    float *logits; /* [ROWS, n_vocab] */
    uint64_t n_answers, n_errors, n_tokens;
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

/* ---- from a line to a request ---- */

static const char *kind_name(const json_value *v)
{
    static const char *const names[] = {"null", "false", "true", NULL, NULL, "a list", "an object"};
    return names[v->kind];
}

static attn_status refuse_key(attn_ctx *ctx, const struct option *key, const json_value *v)
{
    char expected[160];
    shown value;
    const char *kind = kind_name(v);
    const int least = key->takes ? (int)strcspn(key->takes, " ") : 0;
    if (key->kind == COUNT || key->kind == NUMBER)
        snprintf(expected, sizeof expected, "a %s from %.*s to %s",
                 key->kind == COUNT ? "whole number" : "number", least, key->takes,
                 key->takes + least + 1);
    else if (key->kind == CHOICE)
        list_names(key->takes, expected, sizeof expected);
    else
        snprintf(expected, sizeof expected, "%s",
                 key->kind == FLAG   ? "true or false"
                 : key->kind == SEED ? "a whole number of 64 bits"
                                     : key->takes);
    return tool_fail(ctx, ATTN_E_ARGUMENT, "%s: expected %s, not %s%s%s", key->name, expected,
                     v->kind == JSON_STRING ? "\"" : "",
                     kind ? kind : show(value, v->text, v->size),
                     v->kind == JSON_STRING ? "\"" : "");
}

/* Is this the kind of value that a key of kind TEXT takes? Lists are looked into later. */
static int is_taken(const struct option *key, const json_value *v)
{
    const char *takes = key->takes;
    return v->kind == JSON_STRING   ? strstr(takes, "a string") != NULL
           : v->kind == JSON_NUMBER ? strstr(takes, "a number") != NULL
           : v->kind == JSON_ARRAY  ? strstr(takes, "a list") != NULL
                                    : 0;
}

static attn_status read_value(attn_ctx *ctx, request *q, const struct option *key,
                              const json_value *v)
{
    void *at = (char *)q + key->at;
    char number[64] = "";
    int good = 0;
    if (v->kind == JSON_NUMBER && v->size < sizeof number)
        memcpy(number, v->text, v->size);
    if (key->kind == TEXT && (good = is_taken(key, v)) != 0)
        *(const json_value **)at = v;
    else if (key->kind == FLAG && (good = v->kind == JSON_TRUE || v->kind == JSON_FALSE) != 0)
        *(int *)at = v->kind == JSON_TRUE;
    else if (key->kind == CHOICE && v->kind == JSON_STRING)
        good = (*(int *)at = find_name(key->takes, v->text, v->size)) >= 0;
    else if (key->kind == COUNT && number[0])
        good = parse_count(number, key->takes, (size_t *)at);
    else if (key->kind == NUMBER && number[0])
        good = parse_number(number, key->takes, (float *)at);
    else if (key->kind == SEED && number[0])
        good = parse_seed(number, (uint64_t *)at);
    return good ? ATTN_OK : refuse_key(ctx, key, v);
}

static const struct option *find_key(const json_value *v)
{
    int i;
    for (i = 0; i < N_KEYS; i++)
        if (strlen(keys[i].name) == v->key_size && memcmp(keys[i].name, v->key, v->key_size) == 0)
            return &keys[i];
    return NULL;
}

static attn_status refuse_name(attn_ctx *ctx, const json_value *v)
{
    const command_line all = {0, 0, NULL, keys, N_KEYS, NULL, NULL};
    const struct option *meant;
    shown name;
    meant = nearest_option(&all, show(name, v->key, v->key_size));
    return tool_fail(ctx, ATTN_E_ARGUMENT, "there is no key \"%s\"%s%s%s", name,
                     meant ? "; do you mean \"" : "", meant ? meant->name : "",
                     meant ? "\"?" : "; score --help lists them");
}

/* Fills in the request from the line's object. The id comes first: it marks an error, too. */
static attn_status read_request(run *r, job *j)
{
    const json_value *v = j->root + 1, *id = json_get(j->root, "id");
    const struct option *key;
    request *const q = &j->q;
    const char *task;
    size_t i, size;
    q->task = r->o.task;
    q->bos = r->o.bos;
    q->special = r->o.special;
    q->k = 5;
    q->max_tokens = 100;
    if (j->root->kind != JSON_OBJECT)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "expected an object, such as {\"text\": \"Once upon a time\"}");
    if (id && is_taken(&keys[0], id))
        q->id = id;
    for (i = 0; i < j->root->size; i++, v += v->span) {
        if (!(key = find_key(v)))
            return refuse_name(&r->ctx, v);
        if (read_value(&r->ctx, q, key, v) != ATTN_OK)
            return r->ctx.status;
    }
    task = name_at(TASKS, q->task, &size);
    for (i = 0, v = j->root + 1; i < j->root->size; i++, v += v->span)
        if (!(find_key(v)->commands & ON(q->task)))
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "%s means nothing to the task %.*s",
                             find_key(v)->name, (int)size, task);
    return ATTN_OK;
}

/* Appends the ids of a list, or of a text; there is room for them. `name` is the key's. */
static attn_status add_tokens(run *r, job *j, const char *name, const json_value *text,
                              const json_value *ids)
{
    const json_value *v = ids ? ids + 1 : NULL;
    uint64_t id;
    size_t i, n;
    shown value;
    if (text && ids)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "%s and its ids are both given: leave one of them out", name);
    if (text && !r->tokenizer)
        return tool_fail(&r->ctx, ATTN_E_TOKENIZER, "the model has no tokenizer: give ids");
    if (text) {
        if (attn_encode(&r->ctx, j->ids + j->n, text->size, &n, r->tokenizer, text->text,
                        text->size, j->q.special) == ATTN_OK)
            j->n += n;
        return r->ctx.status;
    }
    for (i = 0; v && i < ids->size; i++, v += v->span) {
        if (!json_u64(v, &id))
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "ids[%zu] is %s, not a token id", i,
                             kind_name(v) ? kind_name(v) : show(value, v->text, v->size));
        if (id >= r->config->n_vocab)
            return tool_fail(&r->ctx, ATTN_E_TOKEN,
                             "ids[%zu] is %llu, which is not in the vocabulary of %u", i,
                             TOOLS_LLU(id), (unsigned)r->config->n_vocab);
        j->ids[j->n++] = (int32_t)id;
    }
    return ATTN_OK;
}

static size_t size_of_tokens(const json_value *text, const json_value *ids)
{
    return (text ? text->size : 0) + (ids ? ids->size : 0);
}

/* The ids of the context and the text, and how many of them are fed: of a text that is scored all
 * but the last, whose successor nobody asks for. */
static attn_status make_ids(run *r, job *j)
{
    const request *const q = &j->q;
    const size_t n_ctx = r->config->n_ctx, one = q->task == SCORE;
    size_t room = 1 + size_of_tokens(q->text, q->ids) + size_of_tokens(q->context, q->context_ids);
    if (!q->text && !q->ids)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "nothing to do: give a \"text\", or its \"ids\"");
    if (q->bos && r->config->bos < 0)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "bos: the model has no beginning-of-text token");
    if (q->task == GENERATE)
        room += q->max_tokens < n_ctx ? q->max_tokens : n_ctx + 1;
    if (!(j->ids = (int32_t *)allocate(r, j, room, sizeof *j->ids)))
        return r->ctx.status;
    if (q->bos)
        j->ids[j->n++] = r->config->bos;
    if (add_tokens(r, j, "context", q->context, q->context_ids) != ATTN_OK)
        return r->ctx.status;
    j->n_context = j->n;
    if (add_tokens(r, j, "text", q->text, q->ids) != ATTN_OK || q->task == TOKENS)
        return r->ctx.status;
    if (j->n == (q->task == SCORE ? j->n_context : 0))
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "the text is empty");
    if (j->n > n_ctx + one)
        return tool_fail(&r->ctx, ATTN_E_CONTEXT, "the text has %zu tokens%s; expected at most %zu",
                         j->n, j->n_context ? " with those before it" : "", n_ctx + one);
    j->goal = j->n - one;
    return ATTN_OK;
}

/* ---- answers ---- */

static void begin_answer(run *r, job *j)
{
    size_t size;
    const char *task = name_at(TASKS, j->q.task, &size);
    json_out *const o = &j->answer;
    out_open(o, '{');
    if (j->q.id) {
        out_key(o, "id");
        if (j->q.id->kind == JSON_STRING)
            out_text(o, j->q.id->text, j->q.id->size);
        else
            out_spelled(o, j->q.id->text, j->q.id->size);
    }
    if (r->ctx.status) {
        out_key(o, "line");
        out_count(o, j->line);
        return;
    }
    out_key(o, "task");
    out_text(o, task, size);
}

/* Answers with the error in the context, and forgets it. */
static void answer_error(run *r, job *j)
{
    const char *text = r->ctx.message, *colon = strstr(text, ": ");
    if (strncmp(text, "attn_", 5) == 0 && colon) /* nobody here called that function */
        text = colon + 2;
    begin_answer(r, j);
    out_key(&j->answer, "error");
    out_word(&j->answer, text);
    r->ctx.status = ATTN_OK;
    r->n_errors += !j->is_expected;
}

static void put_ids(json_out *o, const int32_t *ids, size_t n)
{
    size_t i;
    out_key(o, "ids");
    out_open(o, '[');
    for (i = 0; i < n; i++)
        out_count(o, (uint64_t)ids[i]);
    out_close(o, ']');
}

static void put_token(const run *r, json_out *o, int32_t id)
{
    size_t size = 0;
    const char *bytes = attn_token_bytes(&size, r->tokenizer, id);
    out_text(o, bytes ? bytes : "", bytes ? size : 0);
}

/* "ids", and "tokens" if the model knows their text. */
static void put_tokens(const run *r, json_out *o, const int32_t *ids, size_t n)
{
    size_t i;
    put_ids(o, ids, n);
    if (!r->tokenizer)
        return;
    out_key(o, "tokens");
    out_open(o, '[');
    for (i = 0; i < n; i++)
        put_token(r, o, ids[i]);
    out_close(o, ']');
}

static void answer_score(run *r, job *j)
{
    json_out *const o = &j->answer;
    const size_t n = j->n - j->n_context, first = j->n_context == 0; /* it has no prediction */
    double sum = 0;
    size_t i, greedy = 1;
    for (i = first; i < n; i++) {
        sum -= (double)j->stats[i - first].nll;
        greedy &= j->stats[i - first].rank == 0;
    }
    out_key(o, "logprob");
    out_f64(o, sum == 0 ? 0 : sum); /* never -0 */
    out_key(o, "greedy");
    out_flag(o, (int)greedy);
    put_tokens(r, o, j->ids + j->n_context, n);
    out_key(o, "logprobs");
    out_open(o, '[');
    for (i = 0; i < n; i++)
        if (i < first)
            out_null(o);
        else
            out_f32(o, 0 - j->stats[i - first].nll);
    out_close(o, ']');
    out_key(o, "ranks");
    out_open(o, '[');
    for (i = 0; i < n; i++)
        if (i < first)
            out_null(o);
        else
            out_count(o, j->stats[i - first].rank);
    out_close(o, ']');
}

static void answer_generate(run *r, job *j)
{
    json_out *const o = &j->answer;
    if (r->tokenizer) {
        out_key(o, "text");
        out_text(o, j->made, j->n_made);
    }
    put_ids(o, j->ids + j->n_context, j->n - j->n_context);
    out_key(o, "reason");
    out_word(o, attn_stop_reason_name(j->reason));
}

static void answer_embed(run *r, job *j)
{
    json_out *const o = &j->answer;
    size_t i;
    if (j->width == 0) {
        shown name;
        show(name, j->q.activation->text, j->q.activation->size);
        tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                  "activation: %s does not have one row of numbers for each position", name);
        return;
    }
    out_key(o, "embedding");
    out_open(o, '[');
    for (i = 0; i < j->width; i++)
        out_f32(o, j->q.pooling ? (float)(j->sums[i] / (double)j->n) : j->row[i]);
    out_close(o, ']');
}

/* The k likeliest tokens of `count` rows of logits, for row `at` of the answer and those after it,
 * and the loss of the first of each, from which the others' follow. */
static attn_status judge(run *r, job *j, size_t at, const float *rows, size_t count)
{
    const size_t k = j->q.k;
    const attn_tensor logits = attn_borrow(rows, ATTN_F32, attn_shape2(count, r->config->n_vocab));
    int32_t best[ROWS];
    size_t i;
    if (attn_logit_stats(&r->ctx, NULL, j->top + at * k, k, logits, NULL) != ATTN_OK)
        return r->ctx.status;
    for (i = 0; i < count; i++)
        best[i] = j->top[(at + i) * k].token;
    return attn_logit_stats(&r->ctx, j->stats + at, NULL, 0, logits, best);
}

static size_t n_positions(const job *j)
{
    return j->q.positions ? j->n : 1;
}

/* [{"id": 5, "token": " time", "logprob": -0.5}, ...] for each position, from row `at` on. A
 * logprob has the bits that the task score gives for that token. */
static void put_top(const run *r, job *j, size_t at)
{
    json_out *const o = &j->answer;
    const size_t end = at + n_positions(j);
    size_t i;
    out_open(o, '[');
    for (; at < end; at++) {
        const attn_prediction *const top = j->top + at * j->q.k;
        out_open(o, '[');
        for (i = 0; i < j->q.k; i++) {
            out_open(o, '{');
            out_key(o, "id");
            out_count(o, (uint64_t)top[i].token);
            if (r->tokenizer) {
                out_key(o, "token");
                put_token(r, o, top[i].token);
            }
            out_key(o, "logprob");
            out_f32(o, 0 - (j->stats[at].nll - (top[i].logit - top[0].logit)));
            out_close(o, '}');
        }
        out_close(o, ']');
    }
    out_close(o, ']');
}

static void put_positions(job *j)
{
    const size_t n = n_positions(j);
    size_t p;
    out_key(&j->answer, "positions");
    out_open(&j->answer, '[');
    for (p = j->n - n; p < j->n; p++)
        out_count(&j->answer, p);
    out_close(&j->answer, ']');
}

static void answer_top(run *r, job *j)
{
    put_positions(j);
    out_key(&j->answer, "top");
    put_top(r, j, 0);
}

/* Unembeds the streams, as many rows at a time as the logits have room for. */
static attn_status read_streams(run *r, job *j)
{
    const size_t width = r->config->d_model;
    const size_t n = (r->config->n_layer + 1) * n_positions(j);
    const attn_tensor own_scale = ATTN_ZERO;
    size_t at, count;
    for (at = 0; at < n; at += count) {
        attn_tensor logits;
        count = n - at < ROWS ? n - at : ROWS;
        logits = attn_borrow(r->logits, ATTN_F32, attn_shape2(count, r->config->n_vocab));
        if (attn_logit_lens(
                &r->ctx, &logits, r->model,
                attn_borrow(j->streams + at * width, ATTN_F32, attn_shape2(count, width)),
                own_scale, NULL, 0) ||
            judge(r, j, at, r->logits, count))
            return r->ctx.status;
    }
    return ATTN_OK;
}

static void answer_lens(run *r, job *j)
{
    json_out *const o = &j->answer;
    const size_t n_streams = r->config->n_layer + 1;
    size_t i;
    if (read_streams(r, j) != ATTN_OK)
        return;
    put_positions(j);
    out_key(o, "layers");
    out_open(o, '[');
    for (i = 0; i < n_streams; i++)
        out_word(o, attn_resid_label(r->model, ATTN_RESID_ACCUMULATED, i).text);
    out_close(o, ']');
    out_key(o, "top");
    out_open(o, '[');
    for (i = 0; i < n_streams; i++)
        put_top(r, j, i * n_positions(j));
    out_close(o, ']');
}

static void answer_tokens(run *r, job *j)
{
    put_tokens(r, &j->answer, j->ids, j->n);
}

/* The answer of a line, or the error in the context. What the line took before is given back. */
static int finish_job(run *r, job *j)
{
    static void (*const answers[])(run *, job *) = {answer_score, answer_generate, answer_embed,
                                                    answer_lens,  answer_top,      answer_tokens};
    const size_t held = j->held;
    if (r->ctx.status == ATTN_OK) {
        begin_answer(r, j);
        answers[j->q.task](r, j);
    }
    if (r->ctx.status) {
        j->answer.size = 0;
        j->answer.follows = 0;
        answer_error(r, j);
    }
    out_close(&j->answer, '}');
    if (j->answer.failed)
        return fail(FAILED, "no memory for the answer of line %llu", TOOLS_LLU(j->line));
    if (j->state == RUNNING) {
        r->slots[j->slot].is_busy = 0;
        attn_unhook_all(r->slots[j->slot].session);
        r->n_running--;
    }
    attn_sampler_free(j->sampler);
    j->sampler = NULL;
    arena_free(&j->memory);
    free(j->root);
    free(j->text);
    j->root = NULL;
    j->text = NULL;
    j->held = j->answer.capacity;
    r->n_held += j->held;
    r->n_held -= held;
    j->state = DONE;
    return FINE;
}

/* ---- hooks ---- */

/* An attn_hook_fn for embed: keeps the last row, and adds up all of them. */
static int keep_rows(const attn_activation *activation, void *user)
{
    job *const j = (job *)user;
    const attn_tensor value = activation->value;
    size_t t, k;
    if (value.ndim != 2 || value.shape[1] != j->width) {
        j->width = 0;
        return 0;
    }
    for (t = 0; t < value.shape[0]; t++) {
        const float *const row = (const float *)value.data + (ptrdiff_t)t * value.stride[0];
        for (k = 0; k < j->width; k++) {
            j->row[k] = row[(ptrdiff_t)k * value.stride[1]];
            j->sums[k] += (double)j->row[k];
        }
    }
    return 0;
}

typedef struct lens_hook {
    job *j;
    size_t layer, width;
} lens_hook;

/* An attn_hook_fn for logit-lens: keeps the rows of a stream whose positions were asked for. */
static int keep_stream(const attn_activation *activation, void *user)
{
    const lens_hook *const h = (const lens_hook *)user;
    const attn_tensor value = activation->value;
    const size_t n = n_positions(h->j), first = h->j->n - n;
    size_t t;
    for (t = 0; t < value.shape[0]; t++)
        if (activation->first + t >= first)
            memcpy(h->j->streams + (h->layer * n + activation->first + t - first) * h->width,
                   (const float *)value.data + (ptrdiff_t)t * value.stride[0],
                   h->width * sizeof(float));
    return 0;
}

/* How many numbers a row of the activation has. */
static attn_status measure_activation(run *r, job *j, const char *name)
{
    attn_record_desc one = ATTN_ZERO;
    size_t bytes = 0;
    one.names = &name;
    one.n_names = 1;
    one.n_positions = 1;
    if (strchr(name, '*'))
        return tool_fail(&r->ctx, ATTN_E_NAME, "activation: %.80s names several; give one", name);
    if (attn_record_size(&r->ctx, &bytes, r->model, &one) != ATTN_OK)
        return r->ctx.status;
    j->width = bytes / sizeof(float);
    return ATTN_OK;
}

static attn_status hook_embed(run *r, job *j, attn_session *session)
{
    char last[64];
    const json_value *const named = j->q.activation;
    const char *name = last;
    snprintf(last, sizeof last, "blocks.%u.hook_resid_post", (unsigned)r->config->n_layer - 1);
    if (named && !(name = arena_text(&r->ctx, &j->memory, named->text, named->size)))
        return r->ctx.status;
    if (measure_activation(r, j, name) != ATTN_OK)
        return r->ctx.status;
    j->row = (float *)allocate(r, j, j->width, sizeof *j->row);
    j->sums = (double *)allocate(r, j, j->width, sizeof *j->sums);
    if (!j->row || !j->sums)
        return r->ctx.status;
    return attn_hook(&r->ctx, NULL, session, name, keep_rows, j);
}

static attn_status hook_lens(run *r, job *j, attn_session *session)
{
    const size_t n_layer = r->config->n_layer, width = r->config->d_model, n = n_positions(j);
    lens_hook *hooks = (lens_hook *)allocate(r, j, n_layer + 1, sizeof *hooks);
    char name[64];
    size_t i;
    j->streams = (float *)allocate(r, j, (n_layer + 1) * n, width * sizeof(float));
    for (i = 0; hooks && j->streams && i <= n_layer; i++) {
        hooks[i].j = j;
        hooks[i].layer = i;
        hooks[i].width = width;
        snprintf(name, sizeof name, "blocks.%u.hook_resid_%s", (unsigned)(i - (i == n_layer)),
                 i == n_layer ? "post" : "pre");
        if (attn_hook(&r->ctx, NULL, session, name, keep_stream, &hooks[i]))
            break;
    }
    return r->ctx.status;
}

/* ---- a text takes a session ---- */

static attn_status make_sampler(run *r, job *j)
{
    attn_sampler_desc how = ATTN_ZERO;
    how.temperature = j->q.temperature;
    how.top_k = (int32_t)j->q.top_k;
    how.top_p = j->q.top_p;
    how.min_p = j->q.min_p;
    how.repeat_penalty = j->q.repeat_penalty;
    how.repeat_last = j->q.repeat_last;
    how.seed = j->q.seed;
    return attn_sampler_new(&r->ctx, &j->sampler, r->config->n_vocab, &how);
}

static attn_status check_stop(run *r, const job *j)
{
    const json_value *const stop = j->q.stop, *v;
    size_t i;
    if (!stop)
        return ATTN_OK;
    if (!r->tokenizer)
        return tool_fail(&r->ctx, ATTN_E_TOKENIZER, "stop: the model has no tokenizer");
    for (i = 0, v = stop + (stop->kind == JSON_ARRAY);
         i < (stop->kind == JSON_ARRAY ? stop->size : 1); i++, v += v->span)
        if (v->kind != JSON_STRING || v->size == 0)
            return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "stop: expected strings that are not empty");
    return ATTN_OK;
}

/* What a task needs beside the session. */
static attn_status prepare(run *r, job *j)
{
    const size_t n_rows = j->q.task == SCORE        ? j->n - j->n_context
                          : j->q.task == LOGIT_LENS ? (r->config->n_layer + 1) * n_positions(j)
                                                    : n_positions(j);
    if (j->q.k > r->config->n_vocab)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT, "k is %zu, more than the vocabulary's %u tokens",
                         j->q.k, (unsigned)r->config->n_vocab);
    if (ON(j->q.task) & (GUESSES | ON(SCORE)))
        j->stats = (attn_token_stats *)allocate(r, j, n_rows, sizeof *j->stats);
    if (ON(j->q.task) & GUESSES)
        j->top = (attn_prediction *)allocate(r, j, n_rows, j->q.k * sizeof *j->top);
    if (j->q.task == GENERATE && check_stop(r, j) == ATTN_OK)
        make_sampler(r, j);
    j->n_context = j->q.task == GENERATE ? j->n : j->n_context;
    return r->ctx.status;
}

/* How many positions a text takes in the end. */
static size_t length_of(const run *r, const job *j)
{
    const size_t left = r->config->n_ctx - j->goal;
    return j->goal + (j->goal == 0) +
           (j->q.task != GENERATE    ? 0
            : j->q.max_tokens < left ? j->q.max_tokens
                                     : left);
}

static void close_slot(run *r, slot *s)
{
    attn_session_free(s->session);
    r->capacity -= s->capacity;
    s->session = NULL;
    s->capacity = 0;
}

/* The idle session that fits best; else a place for a new one, for which idle ones may have to go.
 * NULL: not now. All sessions together hold eight contexts. */
static slot *find_slot(run *r, size_t length, size_t *capacity)
{
    const size_t most = (size_t)8 * r->config->n_ctx;
    slot *best = NULL, *unused = NULL;
    size_t i;
    for (i = 0; i < r->o.batch; i++) {
        slot *const s = &r->slots[i];
        if (s->is_busy)
            continue;
        unused = !unused || s->capacity < unused->capacity ? s : unused;
        if (s->capacity >= length && (!best || s->capacity < best->capacity))
            best = s;
    }
    if (best || !unused)
        return best;
    *capacity = (length + 63) / 64 * 64;
    *capacity = *capacity < r->config->n_ctx ? *capacity : r->config->n_ctx;
    close_slot(r, unused);
    for (i = 0; i < r->o.batch && r->capacity + *capacity > most; i++)
        if (!r->slots[i].is_busy)
            close_slot(r, &r->slots[i]);
    return r->capacity + *capacity <= most ? unused : NULL;
}

/* Begins with a waiting text if there is a session for it; *begun tells. */
static int begin_job(run *r, job *j, int *begun)
{
    size_t capacity = 0;
    slot *const s = find_slot(r, length_of(r, j), &capacity);
    attn_session_desc desc = ATTN_ZERO;
    *begun = s != NULL;
    if (!s)
        return FINE;
    if (!s->session) {
        desc.n_ctx = capacity;
        desc.cache_dtype = r->o.f16_cache ? ATTN_F16 : ATTN_F32;
        desc.workspace = r->workspace;
        if (attn_session_new(&r->ctx, &s->session, r->model, &desc))
            return failed(&r->ctx);
        s->capacity = capacity;
        r->capacity += capacity;
    }
    j->slot = (size_t)(s - r->slots);
    j->state = RUNNING;
    s->is_busy = 1;
    r->n_waiting--;
    r->n_running++;
    if (attn_truncate(&r->ctx, s->session, 0) != ATTN_OK)
        return failed(&r->ctx);
    if (prepare(r, j) == ATTN_OK && j->q.task == EMBED)
        hook_embed(r, j, s->session);
    else if (r->ctx.status == ATTN_OK && j->q.task == LOGIT_LENS)
        hook_lens(r, j, s->session);
    return r->ctx.status || j->goal == 0 ? finish_job(r, j) : FINE;
}

/* In the order of the input, until one has to wait. */
static int begin_jobs(run *r)
{
    size_t i;
    int begun = 1, code = FINE;
    for (i = 0; i < r->n && begun && r->n_waiting && code == FINE; i++)
        if (job_at(r, i)->state == WAITING)
            code = begin_job(r, job_at(r, i), &begun);
    return code;
}

/* ---- one pass over the weights ---- */

typedef struct pass {
    attn_feed_item items[MAX_BATCH];
    job *jobs[MAX_BATCH];
    size_t rows[ROWS]; /* of which logits are wanted, of all items */
    size_t n_items, n_tokens, n_rows;
} pass;

/* The first position whose logits a task wants. */
static size_t first_wanted(const job *j)
{
    switch (j->q.task) {
    case SCORE:
        return j->n_context > 0 ? j->n_context - 1 : 0;
    case TOP_K:
        return j->n - n_positions(j);
    default:
        return j->goal;
    }
}

/* The next tokens of a text, as many as the pass still takes. */
static void add_item(run *r, pass *p, job *j)
{
    attn_feed_item *const item = &p->items[p->n_items];
    const size_t room = ROWS - p->n_tokens, left = j->goal - j->fed;
    size_t at, wanted = first_wanted(j);
    memset(item, 0, sizeof *item);
    item->session = r->slots[j->slot].session;
    item->tokens = j->ids + j->fed;
    item->n_tokens = left < room ? left : room;
    p->jobs[p->n_items++] = j;
    p->n_tokens += item->n_tokens;
    if (j->q.task == GENERATE)
        return; /* the session keeps the logits of the last token */
    item->logits = r->logits + p->n_rows * r->config->n_vocab;
    item->rows = p->rows + p->n_rows;
    for (at = wanted > j->fed ? wanted - j->fed : 0; at < item->n_tokens; at++) {
        p->rows[p->n_rows++] = at;
        item->n_rows++;
    }
}

/* The longest of the stop strings that the text ends in at `end`; NULL: none. */
static const json_value *stop_at(const job *j, size_t end)
{
    const json_value *const stop = j->q.stop, *v, *found = NULL;
    size_t i, n;
    if (!stop)
        return NULL;
    n = stop->kind == JSON_ARRAY ? stop->size : 1;
    for (i = 0, v = stop + (stop->kind == JSON_ARRAY); i < n; i++, v++)
        if (v->size <= end && memcmp(j->made + end - v->size, v->text, v->size) == 0 &&
            (!found || v->size > found->size))
            found = v;
    return found;
}

/* Adds the bytes of a token; cuts the text before a stop string that they complete. */
static attn_status add_text(run *r, job *j, int32_t id)
{
    size_t size = 0, i;
    const char *const bytes = attn_token_bytes(&size, r->tokenizer, id);
    const json_value *stop;
    if (!bytes)
        return ATTN_OK;
    if (j->room - j->n_made < size) {
        const size_t room = 2 * (j->room + size);
        char *const larger = (char *)allocate(r, j, room, 1);
        if (!larger)
            return r->ctx.status;
        if (j->n_made)
            memcpy(larger, j->made, j->n_made);
        j->made = larger;
        j->room = room;
    }
    memcpy(j->made + j->n_made, bytes, size);
    for (i = 1; i <= size; i++)
        if ((stop = stop_at(j, j->n_made + i)) != NULL) {
            j->n_made += i - stop->size;
            j->reason = ATTN_STOP_STRING;
            return ATTN_OK;
        }
    j->n_made += size;
    return ATTN_OK;
}

/* Draws the next token, with attn_generate's reasons to end. */
static attn_status draw(run *r, job *j)
{
    const attn_session *const session = r->slots[j->slot].session;
    int32_t id;
    if (attn_sample(&r->ctx, &id, j->sampler, attn_logits(session), j->ids, j->n) != ATTN_OK)
        return r->ctx.status;
    if (id == r->config->eos && !j->q.ignore_eos) {
        j->reason = ATTN_STOP_EOS;
        return ATTN_OK;
    }
    j->ids[j->n++] = id;
    if (r->tokenizer && add_text(r, j, id) != ATTN_OK)
        return r->ctx.status;
    if (!j->reason && j->n - j->n_context == j->q.max_tokens)
        j->reason = ATTN_STOP_COUNT;
    if (!j->reason && j->n > r->config->n_ctx)
        j->reason = ATTN_STOP_CONTEXT;
    j->goal++;
    return ATTN_OK;
}

/* What a text keeps of a pass; finishes it after its last. */
static int take_item(run *r, const attn_feed_item *item, job *j)
{
    const size_t at = j->fed + (item->n_rows ? item->rows[0] : 0);
    j->fed += item->n_tokens;
    r->n_tokens += item->n_tokens;
    if (j->q.task == SCORE && item->n_rows)
        attn_logit_stats(
            &r->ctx, j->stats + (at - first_wanted(j)), NULL, 0,
            attn_borrow(item->logits, ATTN_F32, attn_shape2(item->n_rows, r->config->n_vocab)),
            j->ids + at + 1);
    else if (j->q.task == TOP_K && item->n_rows)
        judge(r, j, at - first_wanted(j), item->logits, item->n_rows);
    else if (j->q.task == GENERATE && j->fed == j->goal)
        draw(r, j);
    if (r->ctx.status || (j->q.task == GENERATE ? j->reason != 0 : j->fed == j->goal))
        return finish_job(r, j);
    return FINE;
}

static int run_pass(run *r)
{
    static pass p;
    size_t i;
    int code = FINE;
    p.n_items = p.n_tokens = p.n_rows = 0;
    for (i = 0; i < r->n && p.n_tokens < ROWS; i++)
        if (job_at(r, i)->state == RUNNING)
            add_item(r, &p, job_at(r, i));
    if (p.n_items && attn_feed_batch(&r->ctx, p.items, p.n_items))
        return failed(&r->ctx);
    for (i = 0; i < p.n_items && code == FINE; i++)
        if (p.jobs[i]->q.task != LOGIT_LENS)
            code = take_item(r, &p.items[i], p.jobs[i]);
    for (i = 0; i < p.n_items && code == FINE; i++) /* last: it overwrites the logits */
        if (p.jobs[i]->state == RUNNING && p.jobs[i]->q.task == LOGIT_LENS)
            code = take_item(r, &p.items[i], p.jobs[i]);
    return code;
}

/* ---- lines in ---- */

/* Parses a line into a job, which is answered at once if it is an error or asks for tokens. */
static int accept_line(run *r, line_status status, const char *line, size_t size)
{
    job *const j = job_at(r, r->n++);
    memset(j, 0, sizeof *j);
    j->line = r->lines.n_lines;
    j->is_expected = r->expected && r->n_mine == r->n_skipped + 1;
    if (!(j->text = (char *)malloc(size + 1)))
        return fail(FAILED, "no memory for line %llu of %s", TOOLS_LLU(j->line), r->name);
    memcpy(j->text, line, size);
    j->text[size] = 0;
    j->held = size;
    r->n_held += size;
    if (status == LINE_TOO_LONG)
        tool_fail(&r->ctx, ATTN_E_SPACE, "the line is longer than %d bytes", (int)MAX_LINE);
    else if (strspn(j->text, " \t\r") == size)
        tool_fail(&r->ctx, ATTN_E_FORMAT, "the line is empty");
    else if (json_parse_at(&r->ctx, "input", (size_t)j->line, j->text, size, &j->root) == ATTN_OK &&
             read_request(r, j) == ATTN_OK)
        make_ids(r, j);
    if (r->ctx.status || j->q.task == TOKENS)
        return finish_job(r, j);
    r->n_waiting++;
    return FINE;
}

/* Reads lines until enough are waiting, but waits for more only when nothing else is to be done. */
static int read_lines(run *r, int *at_end)
{
    int code = FINE;
    while (code == FINE && !*at_end && r->n_waiting < r->o.batch && r->n < RING &&
           r->n_held < MAX_HELD) {
        const char *line = "";
        size_t size = 0;
        const line_status status = lines_next(&r->lines, r->n == 0, &line, &size);
        if (interrupted)
            return INTERRUPTED;
        if (status == LINE_FAILED)
            return fail(FAILED, "%s: %s", r->name, why(errno));
        *at_end = status == LINE_END;
        if (status == LINE_LATER && r->n > 0)
            return FINE;
        if (status == LINE_LATER || status == LINE_END ||
            (r->lines.n_lines - 1) % r->n_shards != r->shard - 1)
            continue;
        if (r->lines.n_lines == 1 && size >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
            line += 3; /* a byte order mark */
            size -= 3;
        }
        if (r->n_mine++ >= r->n_skipped)
            code = accept_line(r, status, line, size);
    }
    return code;
}

/* ---- answers out ---- */

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

/* ---- how far it is ---- */

/* The share of the input that was read; negative: nobody knows. */
static double share_done(const run *r)
{
    uint64_t size = 0;
    if (system_size(r->lines.file, &size) != 0 || size == 0)
        return -1;
    return r->lines.n_bytes < size ? (double)r->lines.n_bytes / (double)size : 1;
}

/* On a terminal a line that is written over, ten times a second; else a line a minute. */
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
        fprintf(stderr, PROGRAM ": %s\n", line);
    }
    fflush(stderr);
}

static int answer_all(run *r)
{
    int code = FINE, at_end = 0;
    r->begin = r->reported = system_seconds();
    while (code == FINE && !(at_end && r->n == 0)) {
        const int begins = r->expected && r->n_mine <= r->n_skipped;
        if (interrupted)
            return INTERRUPTED;
        if ((code = read_lines(r, &at_end)) == FINE && (code = begin_jobs(r)) == FINE &&
            (code = run_pass(r)) == FINE)
            code = write_answers(r);
        if (begins) { /* lines that were answered before tell nothing of the rate */
            r->begin = system_seconds();
            r->begun_at = share_done(r);
        }
        report(r, 0);
    }
    if (code == FINE && r->expected && r->n_mine <= r->n_skipped)
        return fail(FAILED, "--resume: %s has more lines than %s: that was made of other lines",
                    r->o.output, r->name);
    return code;
}

/* ---- input and output ---- */

/* "2/8" */
static int read_shard(run *r)
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
        return fail(USAGE, "--shard: \"%s\" is not a part of a whole, such as 1/4, 2/4, 3/4 or 4/4",
                    r->o.shard);
    return FINE;
}

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

static int open_lines(run *r)
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

static int run_all(run *r)
{
    attn_workspace_desc desc = ATTN_ZERO;
    int code = read_shard(r);
    r->ctx.n_threads = (int)r->o.threads;
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
        return failed(&r->ctx);
    signal(SIGINT, on_interrupt);
    code = answer_all(r);
    if (code == FINE || code == INTERRUPTED)
        report(r, 1);
    return code;
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

int main(int argc, char **argv)
{
    static run r;
    static arguments given;
    size_t next = 0;
    int code;
    system_begin(&argc, &argv);
    r.o.batch = 64;
    code = parse_options(argc, argv, table, N_OPTIONS, &r.o, &given, 2, "give one file of lines");
    if (code != FINE)
        return code;
    if (print_on_request(r.o.help, r.o.version, print_help))
        return finish_output(FINE);
    r.o.model = option_or_word(r.o.model, &given, &next);
    r.o.file = option_or_word(r.o.file, &given, &next);
    if (!r.o.model)
        return fail(USAGE, "no model given: score MODEL.attn FILE (--help tells more)");
    if (next < given.n_words)
        return fail(USAGE, "too many arguments at \"%s\": give one file of lines",
                    given.words[next]);
    if (r.o.resume && !r.o.output)
        return fail(USAGE, "--resume goes on with a file: give it with -o");
    code = run_all(&r);
    return close_all(&r, code);
}

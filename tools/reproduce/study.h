/* What TransformerLens's notebooks do with eight printed prompts about an indirect object (IOI) by arithmetic between
 * runs: direct logit attribution, and ablation of the strongest head. */
#ifndef REPRODUCE_STUDY_H
#define REPRODUCE_STUDY_H

#include "tools/common/files.h"
#include "tools/lens/decompose.h"
#include "tools/lens/logits.h"
#include "tools/lens/process_weights.h"
#include "tools/lens/spectrum.h"

enum { N_PROMPTS = 8, N_TOKENS = 15, N_ONE = 17, N_REPEATED = 200, N_LAYER = 12, N_HEAD = 12 };

/* <|endoftext|> and the prompt, in GPT-2's vocabulary. Prompts 0 and 1, 2 and 3, ... are pairs, which
 * differ in the name of the repeated subject: each is the corrupted text of the other. */
static const int32_t prompts[N_PROMPTS][N_TOKENS] = {
    {50256, 2215, 1757, 290, 5335, 1816, 284, 262, 12437, 11, 1757, 2921, 262, 6131, 284},
    {50256, 2215, 1757, 290, 5335, 1816, 284, 262, 12437, 11, 5335, 2921, 262, 6131, 284},
    {50256, 2215, 4186, 290, 3700, 1816, 284, 262, 3952, 11, 3700, 2921, 262, 2613, 284},
    {50256, 2215, 4186, 290, 3700, 1816, 284, 262, 3952, 11, 4186, 2921, 262, 2613, 284},
    {50256, 2215, 6035, 290, 15686, 1816, 284, 262, 12437, 11, 15686, 2921, 281, 17180, 284},
    {50256, 2215, 6035, 290, 15686, 1816, 284, 262, 12437, 11, 6035, 2921, 281, 17180, 284},
    {50256, 3260, 5780, 290, 14235, 1816, 284, 262, 3952, 11, 14235, 2921, 257, 4144, 284},
    {50256, 3260, 5780, 290, 14235, 1816, 284, 262, 3952, 11, 5780, 2921, 257, 4144, 284}};
/* The correct name and the wrong one. */
static const int32_t answers[N_PROMPTS][2] = {{5335, 1757},  {1757, 5335},  {4186, 3700},
                                              {3700, 4186},  {6035, 15686}, {15686, 6035},
                                              {5780, 14235}, {14235, 5780}};
/* Another notebook's prompt, clean and corrupted, and its correct and wrong answer. */
static const int32_t one_prompt[2][N_ONE] = {
    {50256, 3260, 1757, 290, 5335, 1816, 284, 262, 3650, 11, 5335, 2921, 257, 9294, 286, 7545, 284},
    {50256, 3260, 1757, 290, 5335, 1816, 284, 262, 3650, 11, 1757, 2921, 257, 9294, 286, 7545,
     284}};
static const int32_t one_answer[1][2] = {{1757, 5335}};

/* Texts of the same length. In pair i, text i is clean and text i ^ 1 is corrupted. */
static const struct pairs {
    const attn_token *tokens;    /* [texts, n_tokens] */
    const int32_t (*answers)[2]; /* [n]: the right name and the wrong one */
    size_t n, n_tokens;
} all_pairs[] = {{prompts[0], answers, N_PROMPTS, N_TOKENS}, {one_prompt[0], one_answer, 1, N_ONE}};

/* Numbers that were computed, kept for plots that use them again. */
typedef struct kept_numbers {
    const char *name;
    float *values;
    size_t n;
    struct kept_numbers *next;
} kept_numbers;

typedef struct study {
    attn_ctx *ctx;
    arena *memory;
    attn_model *raw;   /* as in the file */
    attn_model *model; /* processed as TransformerLens does by default */
    size_t n_layer, n_head;
    attn_tensor b_v;    /* [layers, heads, d_head] */
    attn_tensor shifts; /* [layers * heads, 1, d_model]: what b_V adds to each head's result */
    kept_numbers *kept;
    progress progress;
    size_t part, n_parts; /* of a procedure, as far as the progress shows it */
} study;

/* Computes the numbers of a procedure, and perhaps of others, and keeps them. */
typedef struct plot plot;
typedef attn_status (*plot_fn)(study *s, const plot *p);

struct plot {
    const char *names;
    plot_fn fn; /* NULL: the values of several procedures, whose names `what` joins */
    const char *what,
        *column;   /* a question and the column of its answer; or what is another procedure */
    size_t number; /* a kind of parts; which of all_pairs; or which paths */
};

static const float *compute(study *s, const char *name, size_t *n);

static float *room_for(study *s, size_t n)
{
    return (float *)arena_alloc(s->ctx, s->memory, n, sizeof(float));
}

/* Shows the progress of a procedure. ATTN_STOPPED after Ctrl-C. */
static attn_status at_share(study *s, double share)
{
    progress_at(&s->progress, share);
    return interrupted ? tool_fail(s->ctx, ATTN_STOPPED, "stopped by Ctrl-C") : ATTN_OK;
}

/* Room for numbers [n], zeros, that are kept. NULL after a message. */
static float *room_to_keep(study *s, const char *name, size_t n)
{
    kept_numbers *const k = (kept_numbers *)arena_alloc(s->ctx, s->memory, 1, sizeof *k);
    float *const values = k ? room_for(s, n) : NULL;
    if (!values)
        return NULL;
    *k = (kept_numbers){name, values, n, s->kept};
    s->kept = k;
    return values;
}

static const kept_numbers *find_kept(const study *s, const char *name)
{
    const kept_numbers *k = s->kept;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

/* A row of a pattern sums to 1, so b_V adds b_V to every z and b_V · W_O to every head's result.
 * TransformerLens moves that into b_O (fold_value_biases); here it is subtracted where a figure
 * contains it. */
static attn_status compute_shifts(study *s)
{
    const attn_config *c = attn_model_config(s->model);
    if (attn_zeros(s->ctx, &s->b_v, ATTN_F32, attn_shape3(s->n_layer, s->n_head, c->d_head)) ||
        attn_zeros(s->ctx, &s->shifts, ATTN_F32,
                   attn_shape3(s->n_layer * s->n_head, 1, c->d_model)))
        return s->ctx->status;
    for (size_t i = 0; i < s->n_layer && !s->ctx->status; i++) {
        attn_tensor w_o = ATTN_ZERO, to = attn_slice(s->shifts, 0, i * s->n_head, s->n_head);
        attn_tensor b_v = attn_select(s->b_v, 0, i);
        char name[48];
        snprintf(name, sizeof name, "blocks.%u.attn.b_V", (unsigned)i);
        attn_model_tensor(s->ctx, &b_v, s->model, name);
        snprintf(name, sizeof name, "blocks.%u.attn.W_O", (unsigned)i);
        if (!s->ctx->status && !attn_model_tensor(s->ctx, &w_o, s->model, name))
            attn_matmul(s->ctx, &to, attn_reshape(b_v, attn_shape3(s->n_head, 1, c->d_head)), w_o);
        attn_tensor_free(s->ctx, &w_o);
    }
    return s->ctx->status;
}

/* Processes the model as TransformerLens does: folds LayerNorm into the weights that read from it, and
 * centres the weights that write to the stream and the unembedding. */
static attn_status begin_study(study *s)
{
    s->n_layer = attn_model_config(s->raw)->n_layer;
    s->n_head = attn_model_config(s->raw)->n_head;
    return lens_process_weights(s->ctx, &s->model, s->raw,
                                LENS_PROCESS_FOLD_LN | LENS_PROCESS_CENTER_WRITING_WEIGHTS |
                                    LENS_PROCESS_CENTER_UNEMBED)
               ? s->ctx->status
               : compute_shifts(s);
}

/* ---- runs ---- */

/* The logarithm of the sum of exponentials. */
static double log_of_sum(const float *logits, size_t n)
{
    double most = (double)logits[0];
    for (size_t i = 1; i < n; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    double sum = exp((double)logits[0] - most);
    for (size_t i = 1; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

/* Sets an activation of one head, values or z, to b_V: to zero, if b_V is part of b_O. `name` gets its name. */
static attn_edit edit_to_bias(const study *s, char name[48], const char *hook, size_t layer,
                              size_t head)
{
    const attn_tensor b_v = attn_select(attn_select(s->b_v, 0, layer), 0, head);
    snprintf(name, 48, "blocks.%u.attn.%s", (unsigned)layer, hook);
    return (attn_edit){.name = name,
                       .kind = ATTN_EDIT_SET,
                       .value = attn_reshape(b_v, attn_shape3(1, 1, b_v.shape[0])),
                       .first_head = head,
                       .n_heads = 1};
}

/* ---- direct logit attribution ---- */

/* Adds to out [parts] the contributions of the parts at prompt i's last position to its logit
 * difference. */
static attn_status add_attributions(study *s, float *out, size_t n, attn_tensor parts,
                                    attn_tensor scale, size_t i)
{
    attn_tensor direction = ATTN_ZERO, found = ATTN_ZERO;
    if (!attn_logit_directions(s->ctx, &direction, s->model, &answers[i][0], &answers[i][1], 1) &&
        !lens_logit_attrs(s->ctx, &found, s->model, parts, scale, direction))
        for (size_t j = 0; j < n; j++)
            out[j] += attn_get2(found, j, 0) / N_PROMPTS;
    attn_tensor_free(s->ctx, &direction);
    attn_tensor_free(s->ctx, &found);
    return s->ctx->status;
}

/* Direct logit attribution of the parts of a kind: the mean over the prompts. Of heads, the contributions in the first
 * prompt and the final scale of each prompt are kept, too. */
static attn_status attributed_parts(study *s, const plot *p)
{
    const lens_parts_kind kind = (lens_parts_kind)p->number;
    const int is_heads = kind == LENS_PARTS_HEADS;
    const size_t n =
        is_heads ? s->n_layer * s->n_head : 2 * s->n_layer + (kind == LENS_PARTS_SUBLAYERS ? 2 : 1);
    float *const out = room_to_keep(s, is_heads ? "heads" : p->names, n);
    float *const first = is_heads ? room_to_keep(s, "heads-of-first", n) : NULL;
    float *const scales = is_heads ? room_to_keep(s, "scales", N_PROMPTS) : NULL;
    for (size_t i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        const lens_parts_desc what = {.kind = kind,
                                      .tokens = prompts[i],
                                      .n_tokens = N_TOKENS,
                                      .first = N_TOKENS - 1,
                                      .count = 1};
        attn_tensor stack = ATTN_ZERO, scale = ATTN_ZERO;
        if (!lens_decompose(s->ctx, &stack, &scale, s->model, &what)) {
            attn_tensor parts = attn_slice(stack, 0, 0, n);
            if (is_heads)
                attn_sub(s->ctx, &parts, parts, s->shifts);
            if (!s->ctx->status)
                add_attributions(s, out, n, parts, scale, i);
            if (is_heads)
                scales[i] = attn_get2(scale, 0, 0);
        }
        for (size_t j = 0; j < n && is_heads && i == 0; j++)
            first[j] = out[j] * N_PROMPTS;
        attn_tensor_free(s->ctx, &stack);
        attn_tensor_free(s->ctx, &scale);
    }
    return s->ctx->status;
}

/* ---- ablating a head ---- */

/* Runs prompt i with z of one head ablated at the last position, and records what the heads write. */
static attn_status run_ablated(study *s, attn_session **session, attn_record **record, size_t i,
                               size_t top)
{
    static const char *const names[] = {"blocks.*.attn.hook_result", "ln_final.hook_scale"};
    char name[48];
    const attn_record_desc what = {
        .names = names, .n_names = 2, .first = N_TOKENS - 1, .n_positions = 1};
    attn_edit edit = edit_to_bias(s, name, "hook_z", top / s->n_head, top % s->n_head);
    edit.first = N_TOKENS - 1;
    edit.count = 1;
    if (!attn_session_new(s->ctx, session, s->model, NULL) &&
        !attn_hook_edit(s->ctx, NULL, *session, &edit) &&
        !attn_record_new(s->ctx, record, *session, &what))
        attn_feed(s->ctx, *session, prompts[i], N_TOKENS);
    return s->ctx->status;
}

/* written [layers * heads, 1, d_model]: what the heads add to the stream at the last position. */
static attn_status gather_results(study *s, attn_tensor written, const attn_record *record)
{
    const size_t width = attn_model_config(s->model)->d_model;
    char name[48];
    for (size_t i = 0; i < s->n_layer && !s->ctx->status; i++) {
        attn_tensor result, to = attn_reshape(attn_slice(written, 0, i * s->n_head, s->n_head),
                                              attn_shape2(s->n_head, width));
        snprintf(name, sizeof name, "blocks.%u.attn.hook_result", (unsigned)i);
        if (!attn_record_get(s->ctx, &result, record, name))
            attn_copy(s->ctx, &to, attn_select(result, 0, 0));
    }
    return s->ctx->status ? s->ctx->status : attn_sub(s->ctx, &written, written, s->shifts);
}

/* Ablates the strongest head, and keeps the attributions of the heads, the mean logit difference and
 * the final scales. */
static attn_status ablated_top(study *s, const plot *p)
{
    size_t n, top = 0;
    const float *const heads = compute(s, p->what, &n), *const scales = compute(s, "scales", &n);
    if (s->ctx->status)
        return s->ctx->status;
    n = s->n_layer * s->n_head;
    float *const out = room_to_keep(s, "ablated-heads", n);
    float *const mean = room_to_keep(s, "ablated", 1);
    float *const ratio = room_to_keep(s, "ablated-ratio", 1);
    float *const ablated = room_to_keep(s, "ablated-scales", N_PROMPTS);
    attn_tensor written = ATTN_ZERO, scale;
    for (size_t i = 1; i < n; i++)
        top = heads[i] > heads[top] ? i : top;
    if (!s->ctx->status)
        attn_zeros(s->ctx, &written, ATTN_F32,
                   attn_shape3(n, 1, attn_model_config(s->model)->d_model));
    for (size_t i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        attn_session *session = NULL;
        attn_record *record = NULL;
        if (!run_ablated(s, &session, &record, i, top)) {
            const float *logits = attn_session_logits(session);
            *mean += (logits[answers[i][0]] - logits[answers[i][1]]) / N_PROMPTS;
            if (!gather_results(s, written, record) &&
                !attn_record_get(s->ctx, &scale, record, "ln_final.hook_scale") &&
                !add_attributions(s, out, n, written, scale, i)) {
                ablated[i] = attn_get2(scale, 0, 0);
                *ratio += scales[i] / ablated[i] / N_PROMPTS;
            }
        }
        attn_record_free(record);
        attn_session_free(session);
    }
    attn_tensor_free(s->ctx, &written);
    return s->ctx->status;
}

#endif

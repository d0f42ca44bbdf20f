/* What TransformerLens's notebooks do with eight printed prompts about an indirect object (IOI), with
 * attn.h's public API only. */
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

/* Numbers that were computed, kept for plots that use them again. */
typedef struct kept_numbers {
    char name[48];
    float *values;
    size_t n;
    struct kept_numbers *next;
} kept_numbers;

typedef struct study {
    attn_ctx *ctx;
    arena *memory;
    const attn_model *raw; /* as in the file */
    attn_model *model;     /* processed as TransformerLens does by default */
    size_t n_layer, n_head;
    attn_tensor b_v;    /* [layers, heads, d_head] */
    attn_tensor shifts; /* [layers * heads, 1, d_model]: what b_V adds to each head's result */
    kept_numbers *kept;
} study;

static float *room_for(study *s, size_t n)
{
    return (float *)arena_alloc(s->ctx, s->memory, n, sizeof(float));
}

static attn_status keep(study *s, const char *name, float *values, size_t n)
{
    kept_numbers *k = (kept_numbers *)arena_alloc(s->ctx, s->memory, 1, sizeof *k);
    if (!k)
        return s->ctx->status;
    snprintf(k->name, sizeof k->name, "%s", name);
    k->values = values;
    k->n = n;
    k->next = s->kept;
    s->kept = k;
    return ATTN_OK;
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
    size_t i;
    if (attn_zeros(s->ctx, &s->b_v, ATTN_F32, attn_shape3(s->n_layer, s->n_head, c->d_head)) ||
        attn_zeros(s->ctx, &s->shifts, ATTN_F32,
                   attn_shape3(s->n_layer * s->n_head, 1, c->d_model)))
        return s->ctx->status;
    for (i = 0; i < s->n_layer && !s->ctx->status; i++) {
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

/* ---- direct logit attribution ---- */

/* Adds to out [parts] the contributions of the parts at prompt i's last position to its logit
 * difference. */
static attn_status add_attributions(study *s, float *out, size_t n, attn_tensor parts,
                                    attn_tensor scale, size_t i)
{
    attn_tensor direction = ATTN_ZERO, terms = ATTN_ZERO;
    size_t j;
    if (!attn_logit_directions(s->ctx, &direction, s->model, &answers[i][0], &answers[i][1], 1) &&
        !lens_logit_attrs(s->ctx, &terms, s->model, parts, scale, direction))
        for (j = 0; j < n; j++)
            out[j] += attn_get2(terms, j, 0) / N_PROMPTS;
    attn_tensor_free(s->ctx, &direction);
    attn_tensor_free(s->ctx, &terms);
    return s->ctx->status;
}

/* Direct logit attribution of the first n parts of a kind: the mean over the prompts. For heads, the
 * contributions in the first prompt and the final scale of each prompt are kept, too. */
static attn_status attribute(study *s, float *out, size_t n, lens_parts_kind kind)
{
    float *first = room_for(s, n), *scales = room_for(s, N_PROMPTS);
    size_t i, j;
    if (!first || !scales ||
        (kind == LENS_PARTS_HEADS &&
         (keep(s, "heads-of-first", first, n) || keep(s, "scales", scales, N_PROMPTS))))
        return s->ctx->status;
    for (i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        lens_parts_desc what = ATTN_ZERO;
        attn_tensor stack = ATTN_ZERO, scale = ATTN_ZERO;
        what.kind = kind;
        what.tokens = prompts[i];
        what.n_tokens = N_TOKENS;
        what.first = N_TOKENS - 1;
        what.count = 1;
        if (!lens_decompose(s->ctx, &stack, &scale, s->model, &what)) {
            attn_tensor parts = attn_slice(stack, 0, 0, n);
            if (kind == LENS_PARTS_HEADS)
                attn_sub(s->ctx, &parts, parts, s->shifts);
            if (!s->ctx->status)
                add_attributions(s, out, n, parts, scale, i);
            scales[i] = attn_get2(scale, 0, 0);
        }
        for (j = 0; j < n && i == 0; j++)
            first[j] = out[j] * N_PROMPTS;
        attn_tensor_free(s->ctx, &stack);
        attn_tensor_free(s->ctx, &scale);
    }
    return s->ctx->status;
}

/* ---- ablating a head ---- */

typedef struct ablation {
    attn_session *session;
    attn_record *record;
} ablation;

/* Runs prompt i with z of one head set to b_V at the last position: zero, if b_V is part of b_O. */
static attn_status run_ablated(study *s, ablation *a, size_t i, size_t top)
{
    static const char *const names[] = {"blocks.*.attn.hook_result", "ln_final.hook_scale"};
    char name[48];
    attn_record_desc what = ATTN_ZERO;
    attn_edit edit = ATTN_ZERO;
    snprintf(name, sizeof name, "blocks.%u.attn.hook_z", (unsigned)(top / s->n_head));
    edit.name = name;
    edit.kind = ATTN_EDIT_SET;
    edit.value =
        attn_reshape(attn_select(attn_select(s->b_v, 0, top / s->n_head), 0, top % s->n_head),
                     attn_shape3(1, 1, attn_model_config(s->model)->d_head));
    edit.first = N_TOKENS - 1;
    edit.count = edit.n_heads = 1;
    edit.first_head = top % s->n_head;
    what.names = names;
    what.n_names = 2;
    what.first = N_TOKENS - 1;
    what.n_positions = 1;
    if (!attn_session_new(s->ctx, &a->session, s->model, NULL) &&
        !attn_hook_edit(s->ctx, NULL, a->session, &edit) &&
        !attn_record_new(s->ctx, &a->record, a->session, &what))
        attn_feed(s->ctx, a->session, prompts[i], N_TOKENS);
    return s->ctx->status;
}

/* Ablates the strongest head, and keeps the attributions of the heads, the mean logit difference and
 * the final scales. */
static attn_status ablate_top(study *s, const float *heads, const float *scales)
{
    const size_t n = s->n_layer * s->n_head, width = attn_model_config(s->model)->d_model;
    float *out = room_for(s, n), *mean = room_for(s, 1), *ratio = room_for(s, 1);
    float *ablated = room_for(s, N_PROMPTS);
    attn_tensor results = ATTN_ZERO, result, scale;
    size_t i, j, top = 0;
    char name[48];
    if (!out || !mean || !ratio || !ablated || keep(s, "ablated-heads", out, n) ||
        keep(s, "ablated", mean, 1) || keep(s, "ablated-ratio", ratio, 1) ||
        keep(s, "ablated-scales", ablated, N_PROMPTS))
        return s->ctx->status;
    for (i = 1; i < n; i++)
        top = heads[i] > heads[top] ? i : top;
    attn_zeros(s->ctx, &results, ATTN_F32, attn_shape3(n, 1, width));
    for (i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        ablation a = {NULL, NULL};
        if (!run_ablated(s, &a, i, top)) {
            const float *logits = attn_session_logits(a.session);
            *mean += (logits[answers[i][0]] - logits[answers[i][1]]) / N_PROMPTS;
            for (j = 0; j < s->n_layer; j++) {
                attn_tensor to = attn_slice(results, 0, j * s->n_head, s->n_head);
                snprintf(name, sizeof name, "blocks.%u.attn.hook_result", (unsigned)j);
                if (!attn_record_get(s->ctx, &result, a.record, name)) {
                    to = attn_reshape(to, attn_shape2(s->n_head, width));
                    attn_copy(s->ctx, &to, attn_select(result, 0, 0));
                }
            }
            if (!attn_sub(s->ctx, &results, results, s->shifts) &&
                !attn_record_get(s->ctx, &scale, a.record, "ln_final.hook_scale") &&
                !add_attributions(s, out, n, results, scale, i)) {
                ablated[i] = attn_get2(scale, 0, 0);
                *ratio += scales[i] / ablated[i] / N_PROMPTS;
            }
        }
        attn_record_free(a.record);
        attn_session_free(a.session);
    }
    attn_tensor_free(s->ctx, &results);
    return s->ctx->status;
}

/* ---- patterns ---- */

/* Feeds tokens and records the attention patterns. */
static attn_status watch_patterns(study *s, ablation *a, const char *name, const attn_token *tokens,
                                  size_t n)
{
    attn_record_desc what = ATTN_ZERO;
    attn_session_desc size = ATTN_ZERO;
    what.names = &name;
    what.n_names = 1;
    size.n_ctx = what.n_positions = n;
    if (!attn_session_new(s->ctx, &a->session, s->model, &size) &&
        !attn_record_new(s->ctx, &a->record, a->session, &what))
        attn_feed(s->ctx, a->session, tokens, n);
    return s->ctx->status;
}

/* The mean attention from each position to the one `back` positions earlier. */
static float mean_of_diagonal(attn_tensor pattern, size_t head, size_t back)
{
    const size_t n = pattern.shape[1];
    double sum = 0;
    size_t q;
    for (q = back; q < n; q++)
        sum += (double)attn_get3(pattern, head, q, q - back);
    return (float)(sum / (double)(n - back));
}

/* Scores of the heads on two random texts, each of which repeats 100 tokens: the attention to the
 * previous token, to the first occurrence of the same token, and to the token after that. All scores
 * are kept. The tokens are those of torch.manual_seed(0); torch.randint(100, 20000, (2, 100)), which
 * takes 32 random bits modulo 19,900. */
static attn_status repeated_tokens(study *s)
{
    enum { HALF = N_REPEATED / 2, N_TEXTS = 2, N_SCORES = 3 };
    static const char *const names[N_SCORES] = {"previous-token", "duplicate-token", "induction"};
    static const size_t back[N_SCORES] = {1, HALF, HALF - 1};
    attn_token tokens[N_TEXTS][2 * HALF];
    float *out[N_SCORES];
    attn_rng rng;
    attn_tensor p;
    char name[48];
    size_t i, j, k, h;
    for (k = 0; k < N_SCORES; k++)
        if (!(out[k] = room_for(s, s->n_layer * s->n_head)) ||
            keep(s, names[k], out[k], s->n_layer * s->n_head))
            return s->ctx->status;
    attn_rng_seed(&rng, 0);
    for (i = 0; i < N_TEXTS; i++)
        for (j = 0; j < HALF; j++)
            tokens[i][j] = tokens[i][HALF + j] = (int32_t)(100 + attn_rng_u32(&rng) % 19900);
    for (i = 0; i < N_TEXTS && !s->ctx->status; i++) {
        ablation a = {NULL, NULL};
        watch_patterns(s, &a, "blocks.*.attn.hook_pattern", tokens[i], (size_t)2 * HALF);
        for (j = 0; j < s->n_layer && !s->ctx->status; j++) {
            snprintf(name, sizeof name, "blocks.%u.attn.hook_pattern", (unsigned)j);
            if (attn_record_get(s->ctx, &p, a.record, name))
                break;
            for (h = 0; h < s->n_head; h++)
                for (k = 0; k < N_SCORES; k++)
                    out[k][j * s->n_head + h] += mean_of_diagonal(p, h, back[k]) / N_TEXTS;
        }
        attn_record_free(a.record);
        attn_session_free(a.session);
    }
    return s->ctx->status;
}

/* ---- OV circuits ---- */

typedef struct complex_number {
    float re, im;
} complex_number;

/* Orders by the real part, then by the imaginary part, the larger first. */
static int compare_complex(const void *a, const void *b)
{
    const complex_number *x = (const complex_number *)a, *y = (const complex_number *)b;
    if (x->re != y->re)
        return x->re < y->re ? 1 : -1;
    return x->im < y->im ? 1 : x->im > y->im ? -1 : 0;
}

/* Copying scores [layers, heads] of the OV circuits and of the full ones from token to token, and the
 * eigenvalues [2, d_head] of the last head, first the real parts. All of it is kept. LAPACK's order
 * of eigenvalues is arbitrary; here the largest real part is first. */
static attn_status copying_scores(study *s)
{
    static const char *const names[] = {"ov-copying", "ov-copying-of-tokens"};
    const size_t heads = s->n_layer * s->n_head, d = attn_model_config(s->model)->d_head;
    float *points = room_for(s, 2 * d);
    size_t i, j;
    if (!points || keep(s, "ov-eigenvalues", points, 2 * d))
        return s->ctx->status;
    for (i = 0; i < 2 && !s->ctx->status; i++) {
        attn_tensor values = ATTN_ZERO, scores = ATTN_ZERO;
        float *out = room_for(s, heads);
        if (out && !keep(s, names[i], out, heads) &&
            !lens_ov_eigenvalues(s->ctx, &values, s->model, i ? LENS_OV_TOKENS : LENS_OV_STREAM) &&
            !lens_copying_scores(s->ctx, &scores, values) && values.data && scores.data) {
            complex_number *last = (complex_number *)values.data + (heads - 1) * d;
            memcpy(out, scores.data, heads * sizeof *out);
            qsort(last, d, sizeof *last, compare_complex);
            for (j = 0; j < d && i == 0; j++) {
                points[j] = last[j].re;
                points[d + j] = last[j].im;
            }
        }
        attn_tensor_free(s->ctx, &values);
        attn_tensor_free(s->ctx, &scores);
    }
    return s->ctx->status;
}

#endif

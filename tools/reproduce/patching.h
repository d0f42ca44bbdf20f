/* Activation patching: a corrupted text runs with one activation of the clean text. The figures are
 * mean logit differences over the pairs, scaled so that 0 is the corrupted text and 1 the clean one.
 *
 * Every text runs once, and is recorded. A patched run then begins at the patched layer and position,
 * and shares what is before with the run of the corrupted text. Where both texts have the same
 * activation, as at every position before the first different word, nothing runs: the result is that
 * of the corrupted text, bit for bit. All heads and pairs of a layer and position run as one batch.
 * The batch computes only the logits of the answers, from the final stream, which is a fifth less work
 * than with all logits. */
#ifndef REPRODUCE_PATCHING_H
#define REPRODUCE_PATCHING_H

#include "study.h"

/* Texts of the same length. In pair i, text i is clean and text i ^ 1 is corrupted. */
typedef struct pairs {
    const attn_token *tokens;    /* [texts, n_tokens] */
    const int32_t (*answers)[2]; /* [n]: the right name and the wrong one */
    size_t n, n_tokens;
} pairs;

static const pairs eight_pairs = {prompts[0], answers, N_PROMPTS, N_TOKENS};
static const pairs one_pair = {one_prompt[0], one_answer, 1, N_ONE};

enum { MOST_PAIRS = N_PROMPTS, MOST_RUNS = N_HEAD * MOST_PAIRS };

typedef struct sweeps {
    const pairs *texts;
    attn_workspace *work;
    attn_session *base[2][MOST_PAIRS]; /* of the clean texts, then of the corrupted ones */
    attn_record *seen[2][MOST_PAIRS];
    float difference[2][MOST_PAIRS], sum[2]; /* of the logits of the two answers */
    attn_session *runs[N_HEAD][MOST_PAIRS];  /* of the patched runs */
    int is_base
        [N_HEAD]
        [MOST_PAIRS]; /* earlier positions and lower layers are those of the corrupted text */
    attn_feed_item items[MOST_RUNS]; /* the runs of one batch */
    float *streams;                  /* [MOST_RUNS, n_tokens, C]: the output of the last layer */
    attn_tensor last;                /* [MOST_RUNS, C]: the stream at each run's last position */
    attn_tensor of_answers;          /* I32 [2 * pairs] */
} sweeps;

static float difference_of(const sweeps *w, const attn_session *session, size_t pair)
{
    const float *logits = attn_session_logits(session);
    return logits[w->texts->answers[pair][0]] - logits[w->texts->answers[pair][1]];
}

/* Runs text i ^ corrupted and records the activations that are patched. */
static attn_status record_text(study *s, sweeps *w, size_t i, size_t corrupted)
{
    static const char *const names[] = {"blocks.*.hook_resid_pre", "blocks.*.hook_attn_out",
                                        "blocks.*.hook_mlp_out",   "blocks.*.attn.hook_z",
                                        "blocks.*.attn.hook_q",    "blocks.*.attn.hook_k",
                                        "blocks.*.attn.hook_v",    "blocks.*.attn.hook_pattern"};
    const size_t n = w->texts->n_tokens;
    attn_session_desc size = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    size.n_ctx = what.n_positions = n;
    size.workspace = w->work;
    what.names = names;
    what.n_names = sizeof names / sizeof names[0];
    if (attn_session_new(s->ctx, &w->base[corrupted][i], s->model, &size) ||
        attn_record_new(s->ctx, &w->seen[corrupted][i], w->base[corrupted][i], &what) ||
        attn_feed(s->ctx, w->base[corrupted][i], w->texts->tokens + (i ^ corrupted) * n, n))
        return s->ctx->status;
    w->difference[corrupted][i] = difference_of(w, w->base[corrupted][i], i);
    w->sum[corrupted] += w->difference[corrupted][i];
    return ATTN_OK;
}

/* Allocates the tensors that the runs write to. */
static attn_status prepare_ends(study *s, sweeps *w)
{
    const size_t width = attn_model_config(s->model)->d_model;
    w->streams = room_for(s, MOST_RUNS * w->texts->n_tokens * width);
    if (!w->streams || attn_zeros(s->ctx, &w->last, ATTN_F32, attn_shape2(MOST_RUNS, width)) ||
        attn_zeros(s->ctx, &w->of_answers, ATTN_I32, attn_shape1(2 * w->texts->n)))
        return s->ctx->status;
    memcpy(w->of_answers.data, w->texts->answers, 2 * w->texts->n * sizeof(int32_t));
    return ATTN_OK;
}

static attn_status begin_sweeps(study *s, sweeps *w, const pairs *texts)
{
    attn_workspace_desc room = ATTN_ZERO;
    attn_session_desc size = ATTN_ZERO;
    size_t i, h;
    memset(w, 0, sizeof *w);
    w->texts = texts;
    if (prepare_ends(s, w))
        return s->ctx->status;
    size.n_ctx = room.n_ctx = texts->n_tokens;
    if (attn_workspace_new(s->ctx, &w->work, s->model, &room))
        return s->ctx->status;
    size.workspace = w->work;
    for (i = 0; i < texts->n && !s->ctx->status; i++) {
        if (record_text(s, w, i, 0) || record_text(s, w, i, 1))
            break;
        for (h = 0; h < s->n_head && h < N_HEAD && !s->ctx->status; h++)
            attn_session_new(s->ctx, &w->runs[h][i], s->model, &size);
    }
    return s->ctx->status;
}

static void end_sweeps(attn_ctx *ctx, sweeps *w)
{
    size_t i, h;
    attn_tensor_free(ctx, &w->last);
    attn_tensor_free(ctx, &w->of_answers);
    for (i = 0; i < MOST_PAIRS; i++) {
        for (h = 0; h < 2; h++) {
            attn_record_free(w->seen[h][i]);
            attn_session_free(w->base[h][i]);
        }
        for (h = 0; h < N_HEAD; h++)
            attn_session_free(w->runs[h][i]);
    }
    attn_workspace_free(w->work);
}

/* ---- one layer ---- */

/* What is patched: one activation, at all heads together or each by itself. */
typedef struct patched {
    const char *name; /* "blocks.3.attn.hook_z" */
    size_t layer;
    int by_head, is_pattern;
} patched;

/* A view of a record: [positions, width], [positions, 1, d_head] or [1, positions, keys]. */
static attn_status view_of(study *s, attn_tensor *out, const attn_record *record, const patched *p,
                           size_t head, size_t position, size_t count)
{
    if (attn_record_get(s->ctx, out, record, p->name))
        return s->ctx->status;
    *out = attn_slice(*out, p->is_pattern, position, count);
    if (p->by_head)
        *out = attn_slice(*out, !p->is_pattern, head, 1);
    return ATTN_OK;
}

static int same_numbers(attn_tensor x, attn_tensor y)
{
    size_t i, j, k;
    if (x.ndim == 2) {
        for (i = 0; i < x.shape[0]; i++)
            for (j = 0; j < x.shape[1]; j++)
                if (!(attn_get2(x, i, j) == attn_get2(y, i, j)))
                    return 0;
        return 1;
    }
    for (i = 0; i < x.shape[0]; i++)
        for (j = 0; j < x.shape[1]; j++)
            for (k = 0; k < x.shape[2]; k++)
                if (!(attn_get3(x, i, j, k) == attn_get3(y, i, j, k)))
                    return 0;
    return 1;
}

/* Prepares the run of a pair with one head patched at `count` positions. Sets *differs, which is 0
 * before, if the texts differ there. */
static attn_status prepare_run(study *s, sweeps *w, attn_feed_item *item, int *differs,
                               const patched *p, size_t head, size_t pair, size_t position,
                               size_t count)
{
    static const size_t no_row = 0;
    const size_t n = w->texts->n_tokens, width = attn_model_config(s->model)->d_model;
    attn_session *run = w->runs[head][pair];
    attn_tensor clean, corrupted, resid;
    attn_edit edit = ATTN_ZERO;
    char name[48];
    if (view_of(s, &clean, w->seen[0][pair], p, head, position, count) ||
        view_of(s, &corrupted, w->seen[1][pair], p, head, position, count))
        return s->ctx->status;
    if (same_numbers(clean, corrupted))
        return ATTN_OK;
    edit.name = p->name;
    edit.kind = ATTN_EDIT_SET;
    edit.first = position;
    edit.count = count;
    edit.first_head = head;
    edit.n_heads = p->by_head ? 1 : 0;
    edit.value = clean;
    snprintf(name, sizeof name, "blocks.%u.hook_resid_pre", (unsigned)p->layer);
    if ((!w->is_base[head][pair] && attn_session_copy(s->ctx, run, w->base[1][pair])) ||
        attn_session_truncate(s->ctx, run, position) || attn_hook_edit(s->ctx, NULL, run, &edit) ||
        attn_record_get(s->ctx, &resid, w->seen[1][pair], name))
        return s->ctx->status;
    w->is_base[head][pair] = 1;
    memset(item, 0, sizeof *item);
    item->session = run;
    item->tokens = w->texts->tokens + (pair ^ 1) * n + position;
    item->n_tokens = n - position;
    item->layers.first = p->layer;
    if (p->layer > 0)
        item->layers.resid = (const float *)resid.data + position * width;
    item->layers.resid_out = w->streams + (size_t)(item - w->items) * n * width;
    item->logits = w->streams; /* not written, as n_rows is 0 */
    item->rows = &no_row;
    *differs = 1;
    return ATTN_OK;
}

/* Runs the first n items. logits [n, 2 * pairs]: those of all answers, at the end of each run. */
static attn_status run_batch(study *s, sweeps *w, attn_tensor *logits, size_t n)
{
    const size_t width = attn_model_config(s->model)->d_model;
    const attn_tensor own_scale = ATTN_ZERO;
    size_t i;
    if (attn_feed_batch(s->ctx, w->items, n))
        return s->ctx->status;
    for (i = 0; i < n; i++)
        memcpy((float *)w->last.data + i * width,
               w->items[i].layers.resid_out + (w->items[i].n_tokens - 1) * width,
               width * sizeof(float));
    return lens_logit_lens(s->ctx, logits, s->model, attn_slice(w->last, 0, 0, n), own_scale,
                           w->of_answers);
}

/* Patches each head in turn, and adds the logit differences of all pairs to out[head * stride]. */
static attn_status patch_place(study *s, sweeps *w, float *out, size_t stride, const patched *p,
                               size_t position, size_t count)
{
    const size_t n_heads = p->by_head ? s->n_head : 1;
    int differs[N_HEAD][MOST_PAIRS] = {{0}};
    attn_tensor logits = ATTN_ZERO;
    size_t h, i, n = 0;
    for (h = 0; h < n_heads; h++)
        for (i = 0; i < w->texts->n; i++) {
            if (prepare_run(s, w, &w->items[n], &differs[h][i], p, h, i, position, count))
                return s->ctx->status;
            n += (size_t)differs[h][i];
        }
    if (n > 0 && run_batch(s, w, &logits, n))
        return s->ctx->status;
    for (h = n = 0; h < n_heads; h++)
        for (i = 0; i < w->texts->n; i++) {
            out[h * stride] += differs[h][i]
                                   ? attn_get2(logits, n, 2 * i) - attn_get2(logits, n, 2 * i + 1)
                                   : w->difference[1][i];
            n += (size_t)differs[h][i];
            attn_unhook_all(w->runs[h][i]);
        }
    attn_tensor_free(s->ctx, &logits);
    return ATTN_OK;
}

/* The first position at which a pair's texts differ. */
static size_t first_difference(const pairs *texts)
{
    const size_t n = texts->n_tokens;
    size_t i, t, first = n - 1;
    for (i = 0; i < texts->n; i++)
        for (t = 0; t < first; t++)
            if (texts->tokens[i * n + t] != texts->tokens[(i ^ 1) * n + t])
                first = t;
    return first;
}

/* Patches one activation in every layer: out [layers, positions], or [layers, heads, positions] if the
 * name begins with "attn.". With `together`, all positions at once: [layers, heads]. */
static attn_status patch_layers(study *s, sweeps *w, float *out, const char *name, int together,
                                progress *line)
{
    const size_t n = w->texts->n_tokens, places = together ? 1 : n;
    size_t layer, place, i, n_out;
    patched p = ATTN_ZERO;
    char full[48];
    p.name = full;
    p.by_head = strncmp(name, "attn.", 5) == 0;
    p.is_pattern = strstr(name, "pattern") != NULL;
    n_out = (p.by_head ? s->n_head : 1) * places;
    for (layer = 0; layer < s->n_layer; layer++, out += n_out) {
        snprintf(full, sizeof full, "blocks.%u.%s", (unsigned)layer, name);
        p.layer = layer;
        memset(w->is_base, 0, sizeof w->is_base);
        for (place = places;
             place-- > 0;) { /* backwards, because a run does not change earlier positions */
            const size_t first = together ? first_difference(w->texts) : place;
            progress_at(line,
                        ((double)layer + 1 - (double)place / (double)places) / (double)s->n_layer);
            if (interrupted)
                return tool_fail(s->ctx, ATTN_STOPPED, "stopped by Ctrl-C");
            if (patch_place(s, w, out + place, places, &p, first, together ? n - first : 1))
                return s->ctx->status;
        }
        for (i = 0; i < n_out; i++)
            out[i] = (out[i] - w->sum[1]) / (w->sum[0] - w->sum[1]);
    }
    return ATTN_OK;
}

#endif

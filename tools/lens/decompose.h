/* The residual stream taken apart, up to any layer: TransformerLens's accumulated_resid,
 * decompose_resid, get_full_resid_decomposition and apply_ln_to_stack, with their labels. Uses attn.h's
 * public API only.
 *
 *     lens_parts_desc which = ATTN_ZERO;
 *     attn_tensor parts = ATTN_ZERO;
 *     which.kind = LENS_PARTS_NEURONS;
 *     which.tokens = tokens, which.n_tokens = n;
 *     which.first = n - 1;                              only the last position
 *     which.reader = LENS_READER_MLP, which.layer = 6;  what the MLP of layer 6 reads
 *     which.project = direction;                        [C, 1]
 *     if (lens_decompose(&ctx, &parts, NULL, model, &which) == ATTN_OK)
 *         for (i = 0; i < lens_parts_count(model, &which); i++)
 *             printf("%s %g\n", lens_parts_label(model, &which, i).text, attn_get3(parts, i, 0, 0));
 *
 * C = d_model, F = d_mlp, H heads, L layers, T positions. The parts of SUBLAYERS, HEADS and NEURONS sum
 * to the stream that enters the layer, to float error. */
#ifndef LENS_DECOMPOSE_H
#define LENS_DECOMPOSE_H

#include "result.h"

/* Who reads the stream that is taken apart. */
typedef enum lens_reader {
    LENS_READER_FINAL = 0, /* ln_final, and so the logits (TransformerLens: layer=None) */
    LENS_READER_ATTN,      /* ln1 of a layer: the stream that enters it */
    LENS_READER_MLP        /* ln2 of a layer, after its attention (mlp_input=True) */
} lens_reader;

/* N MLPs and M attentions write before that: FINAL: N = M = L; ATTN: N = M = layer; MLP: N = layer,
 * M = layer + 1. */
typedef enum lens_parts_kind {
    LENS_PARTS_STREAMS =
        0, /* accumulated_resid: the stream that enters each layer up to N ("0_pre"),
                               or leaves the last one ("final_post"), and for an MLP the one that
                               it reads ("N_mid") */
    LENS_PARTS_STREAMS_MID, /* ... also after the attention of each layer (incl_mid) */
    LENS_PARTS_SUBLAYERS,   /* decompose_resid: the embeddings ("embed", "pos_embed"), and what M
                               attentions ("0_attn_out") and N MLPs ("0_mlp_out") add, by layer */
    LENS_PARTS_ATTNS,       /* ... mode="attn": only embeddings and attentions */
    LENS_PARTS_MLPS,        /* ... mode="mlp": only embeddings and MLPs */
    LENS_PARTS_HEADS,       /* get_full_resid_decomposition, expand_neurons=False: M * H heads
                               ("L0H0"), N MLPs, the embeddings, the sum of the M b_O ("bias") */
    LENS_PARTS_NEURONS,     /* ... expand_neurons=True: N * F neurons ("L0N5") in place of the MLPs;
                               "bias" has their N b_out too */
    LENS_N_PARTS_KINDS
} lens_parts_kind;

/* Which parts, of which text. */
typedef struct lens_parts_desc {
    lens_parts_kind kind;
    const attn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    size_t first, count; /* positions [first, first + count); count 0: to the end */
    lens_reader reader;
    size_t layer;        /* of an attention or an MLP; 0 for LENS_READER_FINAL */
    int no_embeds;       /* leave the two embeddings out (incl_embeds=False) */
    int apply_ln;        /* see lens_decompose */
    attn_tensor project; /* zeroed, or [C, n]: every part times this (project_output_onto), so that
                            neurons need no memory for [N * F, T, C] */
} lens_parts_desc;

/* out [n]: the terms in the logits of tokens [n] that belong to no part of the stream: ln_final.b ·
 * W_U[:, v] + b_U[v], minus the same of against [n] if that is not NULL. Together with lens_logit_attrs of
 * all parts they sum to the logits. */
LENS_FN attn_status lens_bias_logit_attrs(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                          const attn_token *tokens, const attn_token *against,
                                          size_t n)
{
    attn_tensor directions = ATTN_ZERO, ln_b = ATTN_ZERO, b_u = ATTN_ZERO;
    lens_result result;
    if (lens_begin(ctx, "lens_bias_logit_attrs", out, attn_shape1(n), &result) != ATTN_OK)
        return lens_failure(ctx);
    int failed =
        attn_logit_directions(ctx, &directions, model, tokens, against, n) ||
        attn_model_tensor(ctx, &ln_b, model, "ln_final.b") ||
        (attn_model_config(model)->has_b_U && attn_model_tensor(ctx, &b_u, model, "unembed.b_U"));
    for (size_t i = 0; i < n && !failed; i++) {
        double sum = 0;
        if (b_u.ndim > 0)
            sum = (double)attn_get1(b_u, (size_t)tokens[i]) -
                  (against ? (double)attn_get1(b_u, (size_t)against[i]) : 0);
        for (size_t k = 0; k < ln_b.shape[0]; k++)
            sum += (double)attn_get1(ln_b, k) * (double)attn_get2(directions, i, k);
        ((float *)result.numbers.data)[i] = (float)sum;
    }
    attn_tensor_free(ctx, &directions);
    attn_tensor_free(ctx, &ln_b);
    attn_tensor_free(ctx, &b_u);
    return lens_finish(ctx, &result, failed ? lens_failure(ctx) : ATTN_OK);
}

/* ---- the part of each number ---- */

typedef enum lens_term_kind {
    LENS_TERM_PRE,
    LENS_TERM_MID,
    LENS_TERM_POST,
    LENS_TERM_ATTN,
    LENS_TERM_MLP,
    LENS_TERM_HEAD,
    LENS_TERM_NEURON,
    LENS_TERM_EMBED,
    LENS_TERM_POS_EMBED,
    LENS_TERM_BIAS
} lens_term_kind;

typedef struct lens_term {
    lens_term_kind kind;
    size_t layer, index; /* index: of a head or neuron */
} lens_term;

/* N: layers that have written all of their output before the reader. */
LENS_FN size_t lens_layers_before(const attn_config *c, const lens_parts_desc *d)
{
    return d->reader == LENS_READER_FINAL ? c->n_layer : d->layer;
}

/* M: attentions that have written before the reader. */
LENS_FN size_t lens_attns_before(const attn_config *c, const lens_parts_desc *d)
{
    return lens_layers_before(c, d) + (d->reader == LENS_READER_MLP);
}

/* Part i of STREAMS or STREAMS_MID: for each layer before the reader its resid_pre, and for STREAMS_MID its
 * resid_mid; then the resid_pre of the reader's layer (resid_post of the last layer for FINAL), and for an
 * MLP the resid_mid. */
LENS_FN lens_term lens_stream_at(const attn_config *c, const lens_parts_desc *d, size_t i)
{
    const size_t step = d->kind == LENS_PARTS_STREAMS_MID ? 2 : 1;
    const size_t n = step * lens_layers_before(c, d);
    lens_term part = {LENS_TERM_PRE, i / step, 0};
    if (i < n) {
        part.kind = i % step ? LENS_TERM_MID : LENS_TERM_PRE;
    } else if (d->reader == LENS_READER_FINAL) {
        part.kind = LENS_TERM_POST;
        part.layer = c->n_layer - 1;
    } else {
        part.kind = i == n ? LENS_TERM_PRE : LENS_TERM_MID;
        part.layer = d->layer;
    }
    return part;
}

/* If *i is below n, fills *part with part *i of a group of n parts of a kind, `each` of them in a layer,
 * and returns 1. Else subtracts n from *i and returns 0. */
LENS_FN int lens_in_group(lens_term *part, size_t *i, lens_term_kind kind, size_t n, size_t each)
{
    if (*i >= n) {
        *i -= n;
        return 0;
    }
    part->kind = kind;
    part->layer = *i / each;
    part->index = *i % each;
    return 1;
}

/* Part i, which must be below lens_parts_count. */
LENS_FN lens_term lens_term_at(const attn_config *c, const lens_parts_desc *d, size_t i)
{
    const size_t n = lens_layers_before(c, d), m = lens_attns_before(c, d);
    const size_t n_embeds = d->no_embeds ? 0 : 1;
    lens_term part = {LENS_TERM_BIAS, 0, 0};
    if (d->kind == LENS_PARTS_STREAMS || d->kind == LENS_PARTS_STREAMS_MID)
        return lens_stream_at(c, d, i);
    if (d->kind == LENS_PARTS_HEADS || d->kind == LENS_PARTS_NEURONS) {
        const int whole = d->kind == LENS_PARTS_HEADS;
        const size_t each = whole ? 1 : c->d_mlp;
        if (lens_in_group(&part, &i, LENS_TERM_HEAD, m * c->n_head, c->n_head) ||
            lens_in_group(&part, &i, whole ? LENS_TERM_MLP : LENS_TERM_NEURON, n * each, each))
            return part;
    }
    if (lens_in_group(&part, &i, LENS_TERM_EMBED, n_embeds, 1) ||
        lens_in_group(&part, &i, LENS_TERM_POS_EMBED, n_embeds, 1))
        return part;
    if (d->kind == LENS_PARTS_SUBLAYERS) {
        lens_in_group(&part, &i, LENS_TERM_ATTN, n + m, 2);
        part.kind = part.index ? LENS_TERM_MLP : part.kind;
    } else if (d->kind == LENS_PARTS_ATTNS) {
        lens_in_group(&part, &i, LENS_TERM_ATTN, m, 1);
    } else {
        lens_in_group(&part, &i, d->kind == LENS_PARTS_MLPS ? LENS_TERM_MLP : LENS_TERM_BIAS,
                      d->kind == LENS_PARTS_MLPS ? n : 1, 1);
    }
    return part;
}

/* Is there such a reader in the model? */
LENS_FN int lens_has_reader(const attn_config *c, const lens_parts_desc *d)
{
    return (unsigned)d->reader <= LENS_READER_MLP &&
           d->layer < (d->reader == LENS_READER_FINAL ? 1 : c->n_layer);
}

/* Number of parts; 0 for no such kind, reader or model. */
LENS_FN size_t lens_parts_count(const attn_model *model, const lens_parts_desc *d)
{
    const attn_config *c = attn_model_config(model);
    const size_t embeds = d && !d->no_embeds ? 2 : 0;
    if (!c || !d || !lens_has_reader(c, d) || (unsigned)d->kind >= LENS_N_PARTS_KINDS)
        return 0;
    size_t n = lens_layers_before(c, d);
    size_t m = lens_attns_before(c, d);
    switch (d->kind) {
    case LENS_PARTS_STREAMS:
        return m + 1;
    case LENS_PARTS_STREAMS_MID:
        return n + m + 1;
    case LENS_PARTS_SUBLAYERS:
        return embeds + n + m;
    case LENS_PARTS_ATTNS:
        return embeds + m;
    case LENS_PARTS_MLPS:
        return embeds + n;
    default:
        return m * c->n_head + embeds + 1 +
               n * (d->kind == LENS_PARTS_HEADS ? 1 : (size_t)c->d_mlp);
    }
}

/* The name that TransformerLens gives part i; empty if there is no part i. */
LENS_FN lens_label lens_parts_label(const attn_model *model, const lens_parts_desc *d, size_t i)
{
    lens_label label = ATTN_ZERO;
    if (i >= lens_parts_count(model, d))
        return label;
    lens_term part = lens_term_at(attn_model_config(model), d, i);
    switch (part.kind) {
    case LENS_TERM_PRE:
    case LENS_TERM_MID:
    case LENS_TERM_ATTN:
    case LENS_TERM_MLP: {
        static const char *const ends[] = {"pre", "mid", "", "attn_out", "mlp_out"};
        snprintf(label.text, sizeof label.text, "%llu_%s", LENS_LLU(part.layer), ends[part.kind]);
        break;
    }
    case LENS_TERM_HEAD:
    case LENS_TERM_NEURON:
        snprintf(label.text, sizeof label.text, "L%llu%c%llu", LENS_LLU(part.layer),
                 part.kind == LENS_TERM_HEAD ? 'H' : 'N', LENS_LLU(part.index));
        break;
    default: {
        static const char *const names[] = {"embed", "pos_embed", "bias"};
        snprintf(label.text, sizeof label.text, "%s",
                 part.kind == LENS_TERM_POST ? "final_post" : names[part.kind - LENS_TERM_EMBED]);
    }
    }
    return label;
}

/* ---- what the parts are ---- */

/* A decomposition under way. */
typedef struct lens_parts {
    const attn_model *model;
    const lens_parts_desc *desc;
    attn_session *session; /* which runs the text */
    size_t count;          /* positions */
    attn_record *record;   /* of the activations that the parts are made of */
    attn_tensor scale;     /* [T, 1] of the LayerNorm that reads the stream */
    attn_tensor out;       /* [parts, T, C or n] */
} lens_parts;

/* Number of positions that are fed. Later ones change nothing. */
LENS_FN size_t lens_fed(const lens_parts_desc *d)
{
    return d->count ? d->first + d->count : d->n_tokens;
}

/* Runs the text with a record of what the kind needs. */
LENS_FN attn_status lens_record_parts(attn_ctx *ctx, lens_parts *p)
{
    static const char *const needed[LENS_N_PARTS_KINDS][4] = {
        {"*.hook_resid_pre", "*.hook_resid_post", "*.hook_resid_mid"},
        {"*.hook_resid_pre", "*.hook_resid_post", "*.hook_resid_mid"},
        {"hook_embed", "hook_pos_embed", "*.hook_attn_out", "*.hook_mlp_out"},
        {"hook_embed", "hook_pos_embed", "*.hook_attn_out"},
        {"hook_embed", "hook_pos_embed", "*.hook_mlp_out"},
        {"hook_embed", "hook_pos_embed", "*.hook_mlp_out", "*.hook_result"},
        {"hook_embed", "hook_pos_embed", "*.mlp.hook_post", "*.hook_result"}};
    const lens_parts_desc *d = p->desc;
    const char *names[5];
    char scale[64];
    attn_record_desc what = ATTN_ZERO;
    if (d->reader == LENS_READER_FINAL)
        snprintf(scale, sizeof scale, "ln_final.hook_scale");
    else
        snprintf(scale, sizeof scale, "blocks.%llu.ln%d.hook_scale", LENS_LLU(d->layer),
                 d->reader == LENS_READER_ATTN ? 1 : 2);
    names[0] = scale;
    for (what.n_names = 1; what.n_names < 5 && needed[d->kind][what.n_names - 1]; what.n_names++)
        names[what.n_names] = needed[d->kind][what.n_names - 1];
    what.names = names;
    what.first = d->first;
    what.n_positions = p->count;
    attn_status status = attn_record_new(ctx, &p->record, p->session, &what);
    if (status == ATTN_OK)
        status = attn_feed(ctx, p->session, d->tokens, lens_fed(d));
    return status == ATTN_OK ? attn_record_get(ctx, &p->scale, p->record, scale) : status;
}

/* An activation of a layer. */
LENS_FN attn_status lens_recorded(attn_ctx *ctx, attn_tensor *out, const lens_parts *p,
                                  size_t layer, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blocks.%llu.%s", LENS_LLU(layer), name);
    return attn_record_get(ctx, out, p->record, full);
}

/* The sum of the biases [T, C], the same at each position. */
LENS_FN attn_status lens_sum_biases(attn_ctx *ctx, attn_tensor *sum, const lens_parts *p)
{
    const attn_config *c = attn_model_config(p->model);
    const size_t n = p->desc->kind == LENS_PARTS_NEURONS ? lens_layers_before(c, p->desc) : 0;
    attn_tensor bias = ATTN_ZERO;
    attn_status status = attn_zeros(ctx, sum, ATTN_F32, attn_shape2(p->count, c->d_model));
    for (size_t layer = 0; layer < lens_attns_before(c, p->desc) && status == ATTN_OK; layer++) {
        status = lens_layer_tensor(ctx, &bias, p->model, layer, "attn.b_O");
        if (status == ATTN_OK)
            status = attn_add(ctx, sum, *sum, bias);
        if (status == ATTN_OK && layer < n)
            status = lens_layer_tensor(ctx, &bias, p->model, layer, "mlp.b_out");
        if (status == ATTN_OK && layer < n)
            status = attn_add(ctx, sum, *sum, bias);
    }
    attn_tensor_free(ctx, &bias);
    return status;
}

/* *out (a zeroed tensor, or a view) becomes a copy of x [.., C], each row minus its mean if `centre` is set; or
 * with desc->project its product with that, [.., n]. */
LENS_FN attn_status lens_centre_and_project(attn_ctx *ctx, attn_tensor *out, const lens_parts *p,
                                            attn_tensor x, int centre)
{
    const int projects = p->desc->project.ndim != 0;
    attn_tensor mean = ATTN_ZERO, centred = ATTN_ZERO, *const to = projects ? &centred : out;
    const int failed = (centre ? attn_mean(ctx, &mean, x) || attn_sub(ctx, to, x, mean)
                               : attn_copy(ctx, to, x) != ATTN_OK) ||
                       (projects && attn_matmul(ctx, out, centred, p->desc->project));
    attn_tensor_free(ctx, &mean);
    attn_tensor_free(ctx, &centred);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Is each stream normalized by ln_final with its own scale? */
LENS_FN int lens_has_own_scale(const lens_parts *p)
{
    return p->desc->reader == LENS_READER_FINAL &&
           (p->desc->kind == LENS_PARTS_STREAMS || p->desc->kind == LENS_PARTS_STREAMS_MID);
}

/* out = the last LayerNorm of x, which is [T, C] */
LENS_FN attn_status lens_final_norm(attn_ctx *ctx, attn_tensor *out, const lens_parts *p,
                                    attn_tensor x)
{
    attn_tensor w = ATTN_ZERO, b = ATTN_ZERO;
    const int failed = attn_model_tensor(ctx, &w, p->model, "ln_final.w") ||
                       attn_model_tensor(ctx, &b, p->model, "ln_final.b") ||
                       attn_layernorm(ctx, out, x, w, b, attn_model_config(p->model)->ln_eps);
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &b);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Writes part i, x [T, C], to the result. */
LENS_FN attn_status lens_put_part(attn_ctx *ctx, const lens_parts *p, size_t i, attn_tensor x)
{
    attn_tensor place = attn_select(p->out, 0, i), normed = ATTN_ZERO;
    const int own = p->desc->apply_ln && lens_has_own_scale(p);
    const int failed =
        (own && lens_final_norm(ctx, &normed, p, x)) ||
        lens_centre_and_project(ctx, &place, p, own ? normed : x, p->desc->apply_ln && !own) ||
        (p->desc->apply_ln && !own && attn_div(ctx, &place, place, p->scale));
    attn_tensor_free(ctx, &normed);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Writes the neurons of a layer to the result, from part i on. Neuron f adds post[t, f] * W_out[f] at
 * position t, so the row W_out[f] is centred and projected once for all positions. */
LENS_FN attn_status lens_put_neurons(attn_ctx *ctx, const lens_parts *p, size_t i, size_t layer)
{
    attn_tensor w = ATTN_ZERO, rows = ATTN_ZERO, post = ATTN_ZERO, place;
    int failed = lens_recorded(ctx, &post, p, layer, "mlp.hook_post") ||
                 lens_layer_tensor(ctx, &w, p->model, layer, "mlp.W_out") ||
                 lens_centre_and_project(ctx, &rows, p, w, p->desc->apply_ln);
    if (!failed) {
        const size_t n_neurons = rows.shape[0], width = rows.shape[1];
        attn_tensor column = attn_reshape(post, attn_shape3(p->count, n_neurons, 1));
        place = attn_slice(p->out, 0, i, n_neurons);
        failed = attn_mul(ctx, &place, attn_transpose(column, 0, 1),
                          attn_reshape(rows, attn_shape3(n_neurons, 1, width))) ||
                 (p->desc->apply_ln && attn_div(ctx, &place, place, p->scale));
    }
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &rows);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

LENS_FN attn_status lens_put_bias(attn_ctx *ctx, const lens_parts *p, size_t i)
{
    attn_tensor sum = ATTN_ZERO;
    attn_status status = lens_sum_biases(ctx, &sum, p);
    if (status == ATTN_OK)
        status = lens_put_part(ctx, p, i, sum);
    attn_tensor_free(ctx, &sum);
    return status;
}

/* Writes part i to the result, or all neurons of its layer; *next becomes the part after it. */
LENS_FN attn_status lens_put(attn_ctx *ctx, const lens_parts *p, size_t i, size_t *next)
{
    static const char *const names[] = {"hook_resid_pre",
                                        "hook_resid_mid",
                                        "hook_resid_post",
                                        "hook_attn_out",
                                        "hook_mlp_out",
                                        "attn.hook_result",
                                        "",
                                        "hook_embed",
                                        "hook_pos_embed"};
    const attn_config *c = attn_model_config(p->model);
    const lens_term part = lens_term_at(c, p->desc, i);
    attn_tensor x = ATTN_ZERO;
    *next = i + 1;
    if (part.kind == LENS_TERM_BIAS)
        return lens_put_bias(ctx, p, i);
    if (part.kind == LENS_TERM_NEURON) {
        *next = i + c->d_mlp;
        return lens_put_neurons(ctx, p, i, part.layer);
    }
    attn_status status = part.kind == LENS_TERM_EMBED || part.kind == LENS_TERM_POS_EMBED
                             ? attn_record_get(ctx, &x, p->record, names[part.kind])
                             : lens_recorded(ctx, &x, p, part.layer, names[part.kind]);
    if (status == ATTN_OK && part.kind == LENS_TERM_HEAD)
        x = attn_select(x, 1, part.index);
    return status == ATTN_OK ? lens_put_part(ctx, p, i, x) : status;
}

LENS_FN attn_status lens_need_parts(attn_ctx *ctx, const char *op, const attn_model *model,
                                    const lens_parts_desc *d)
{
    const attn_config *c = attn_model_config(model);
    if ((unsigned)d->kind >= LENS_N_PARTS_KINDS)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: kind %d is no lens_parts_kind", op,
                         (int)d->kind);
    if ((unsigned)d->reader > LENS_READER_MLP)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: reader %d is none of LENS_READER_FINAL, _ATTN, _MLP", op,
                         (int)d->reader);
    if (d->reader == LENS_READER_FINAL && d->layer > 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: layer is %llu, but the reader is LENS_READER_FINAL, which has no "
                         "layer; set reader to LENS_READER_ATTN or LENS_READER_MLP",
                         op, LENS_LLU(d->layer));
    if (!lens_has_reader(c, d))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: layer %llu; the model has layers 0 to %zu", op,
                         LENS_LLU(d->layer), c->n_layer - 1);
    if (d->first >= d->n_tokens || d->count > d->n_tokens - d->first)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: %llu positions from %llu on; the text has %llu tokens", op,
                         LENS_LLU(d->count), LENS_LLU(d->first), LENS_LLU(d->n_tokens));
    if (d->project.ndim == 0 && !d->project.error)
        return ATTN_OK;
    if (lens_need(ctx, op, "project", d->project) != ATTN_OK)
        return lens_failure(ctx);
    if (d->project.ndim != 2 || d->project.shape[0] != c->d_model)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: project has shape %s; expected [%zu, n]", op,
                         lens_show(d->project).text, c->d_model);
    return ATTN_OK;
}

/* Checks a description, for a model that is there. */
LENS_FN attn_status lens_need_parts_of(attn_ctx *ctx, const char *op, const attn_model *model,
                                       const lens_parts_desc *desc)
{
    if (!desc)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no description given (NULL)", op);
    if (lens_need_layer(ctx, op, model, 0) ||
        lens_need_tokens(ctx, op, model, desc->tokens, desc->n_tokens))
        return lens_failure(ctx);
    return lens_need_parts(ctx, op, model, desc);
}

/* lens_decompose in a session of the caller, which must hold no tokens. The session's hooks and edits are
 * in force, and it holds the text afterwards. */
LENS_FN attn_status lens_decompose_in(attn_ctx *ctx, attn_tensor *out, attn_tensor *scale,
                                      attn_session *session, const lens_parts_desc *desc)
{
    static const char op[] = "lens_decompose";
    const attn_model *model = attn_session_model(session);
    lens_parts p = ATTN_ZERO;
    lens_result parts, scales = ATTN_ZERO;
    if (lens_need_parts_of(ctx, op, model, desc) != ATTN_OK)
        return lens_failure(ctx);
    if (attn_session_length(session) > 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the session holds %llu tokens; expected none",
                         op, LENS_LLU(attn_session_length(session)));
    p.model = model;
    p.desc = desc;
    p.session = session;
    p.count = lens_fed(desc) - desc->first;
    size_t n = lens_parts_count(model, desc);
    size_t width = desc->project.ndim ? desc->project.shape[1] : attn_model_config(model)->d_model;
    if (lens_begin(ctx, op, out, attn_shape3(n, p.count, width), &parts) != ATTN_OK)
        return lens_failure(ctx);
    attn_status status =
        scale ? lens_begin(ctx, op, scale, attn_shape2(p.count, 1), &scales) : ATTN_OK;
    p.out = parts.numbers;
    if (status == ATTN_OK)
        status = lens_record_parts(ctx, &p);
    for (size_t i = 0; i < n && status == ATTN_OK;)
        status = lens_put(ctx, &p, i, &i);
    if (status == ATTN_OK && scale)
        status = attn_copy(ctx, &scales.numbers, p.scale);
    attn_record_free(p.record);
    status = lens_finish(ctx, &parts, status);
    return scale ? lens_finish(ctx, &scales, status) : status;
}

/* *out [parts, T, C], or [parts, T, n] with project: the parts, in the order of their labels; *scale
 * [T, 1] (scale may be NULL): the scale of the LayerNorm that reads the stream. With apply_ln every part
 * loses its mean over C and is divided by that scale, without gain and bias. STREAMS for
 * LENS_READER_FINAL are an exception, as in TransformerLens: each is normalized by ln_final with its own
 * scale, gain and bias. The text runs once, in a session of its own. */
LENS_FN attn_status lens_decompose(attn_ctx *ctx, attn_tensor *out, attn_tensor *scale,
                                   const attn_model *model, const lens_parts_desc *desc)
{
    attn_session_desc size = ATTN_ZERO;
    attn_session *session = NULL;
    if (lens_need_parts_of(ctx, "lens_decompose", model, desc) != ATTN_OK)
        return lens_failure(ctx);
    size.n_ctx = lens_fed(desc);
    attn_status status = attn_session_new(ctx, &session, model, &size);
    if (status == ATTN_OK)
        status = lens_decompose_in(ctx, out, scale, session, desc);
    attn_session_free(session);
    return status;
}

#endif

/* Lenses that translate the stream of a layer into the form of the final stream, before ln_final and W_U unembed
 * it. Uses attn.h's public API only.
 *
 *     lens_tuned tuned = ATTN_ZERO;
 *     if (lens_tuned_open(&ctx, &tuned, model, "params.pt") != ATTN_OK)
 *         return 1;
 *     if (lens_tuned_apply(&ctx, &x, &tuned, 3, stream) == ATTN_OK)       stream: blocks.3.hook_resid_pre
 *         lens_logit_lens(&ctx, &logits, model, x, no_scale, all_tokens);
 *
 * For the stream h [.., C] that enters layer i:
 *
 *     x = h + h · weightᵀ + bias    the tuned lens (Belrose et al. 2023), an affine map that was trained. Names of the
 *                                   package tuned-lens: "0.weight" [C, C], "0.bias" [C] and so on for each layer.
 *     x = h · Jᵀ                    the Jacobian lens (Gurnee et al. 2026): J [C, C] is the mean, over texts, of how the
 *                                   final stream changes with the stream after block i - 1. "J.0" is for the stream
 *                                   after block 0. The last block has none, nor has the embedding, where x = h. Such a
 *                                   lens is fitted on weights that process_weights.h did not change.
 *
 * The final stream has no map. A file is what the package wrote (params.pt, a .pt with the dict "J"), of which no code
 * runs, or safetensors. */
#ifndef LENS_TUNED_H
#define LENS_TUNED_H

#include "tensor_files.h"

typedef struct lens_tuned {
    attn_tensor weight, bias; /* [n_layer, C, C], PyTorch's [out, in]; [n_layer, C] */
    int is_jacobian;          /* weight[i] is the J of block i - 1, and bias is 0 */
} lens_tuned;

/* Frees the tensors. ctx must be the context that made them. */
LENS_FN void lens_tuned_free(attn_ctx *ctx, lens_tuned *t)
{
    attn_tensor_free(ctx, &t->weight);
    attn_tensor_free(ctx, &t->bias);
    memset(t, 0, sizeof *t);
}

/* Reads the map of layer i. */
LENS_FN attn_status lens_tuned_layer(attn_ctx *ctx, lens_tuned *t, source *from, size_t i)
{
    const size_t width = t->bias.shape[1], n = t->is_jacobian ? i > 0 : 2;
    attn_status status = ATTN_OK;
    for (size_t k = 0; k < n && status == ATTN_OK; k++) {
        attn_tensor numbers = ATTN_ZERO, to = attn_select(k ? t->bias : t->weight, 0, i);
        char name[32];
        if (t->is_jacobian)
            snprintf(name, sizeof name, "J.%llu", LENS_LLU(i - 1));
        else
            snprintf(name, sizeof name, "%llu.%s", LENS_LLU(i), k ? "bias" : "weight");
        status = lens_read_named(ctx, &numbers, from, name,
                                 k ? attn_shape1(width) : attn_shape2(width, width),
                                 ", the width of the model");
        if (status == ATTN_OK)
            status = attn_copy(ctx, &to, numbers);
        attn_tensor_free(ctx, &numbers);
    }
    return status;
}

/* Reads the maps of all layers of the model. *t must be zeroed; after a failure it is zeroed again.
 * ATTN_E_FORMAT for a file with other tensors, which belongs to another model or another kind of lens. */
LENS_FN attn_status lens_tuned_open(attn_ctx *ctx, lens_tuned *t, const attn_model *model,
                                    const char *path)
{
    static const char op[] = "lens_tuned_open";
    if (!t || !path)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no lens or no file given (NULL)", op);
    if (lens_need_layer(ctx, op, model, 0) != ATTN_OK)
        return lens_failure(ctx);
    const attn_config *c = attn_model_config(model);
    source *from = lens_open_tensors(ctx, path, NULL);
    if (!from)
        return lens_failure(ctx);
    t->is_jacobian = source_find(from, "J.0") != NULL;
    attn_status status = ATTN_OK;
    if (from->n_tensors != (t->is_jacobian ? c->n_layer - 1 : 2 * (size_t)c->n_layer))
        status = attn_fail(ctx, ATTN_E_FORMAT,
                           "%s has %llu tensors; expected 0.weight, 0.bias and so on for each of "
                           "the %zu layers, as tuned-lens names them, or J.0 and so on for each "
                           "but the last, of a Jacobian lens",
                           lens_file_name(from), LENS_LLU(from->n_tensors), c->n_layer);
    if (status == ATTN_OK &&
        (attn_zeros(ctx, &t->weight, ATTN_F32, attn_shape3(c->n_layer, c->d_model, c->d_model)) ||
         attn_zeros(ctx, &t->bias, ATTN_F32, attn_shape2(c->n_layer, c->d_model))))
        status = ctx->status;
    for (size_t i = 0; i < c->n_layer && status == ATTN_OK; i++)
        status = lens_tuned_layer(ctx, t, from, i);
    lens_close_file(from);
    if (status != ATTN_OK)
        lens_tuned_free(ctx, t);
    return status;
}

/* out [T, C]: the translation of the stream x [T, C] that enters `layer`. For a layer without a map, such as
 * n_layer (the final stream), out is a copy of x. */
LENS_FN attn_status lens_tuned_apply(attn_ctx *ctx, attn_tensor *out, const lens_tuned *tuned,
                                     size_t layer, attn_tensor x)
{
    static const char op[] = "lens_tuned_apply";
    lens_result result;
    int failed;
    if (!tuned || tuned->bias.ndim != 2)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no lens given; lens_tuned_open reads one", op);
    if (layer > tuned->bias.shape[0])
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: layer %llu; the lens has layers 0 to %llu", op,
                         LENS_LLU(layer), LENS_LLU(tuned->bias.shape[0] - 1));
    if (lens_need(ctx, op, "x", x) != ATTN_OK)
        return lens_failure(ctx);
    if (x.ndim != 2 || x.shape[1] != tuned->bias.shape[1])
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: x has shape %s; expected [T, %llu]", op,
                         lens_show(x).text, LENS_LLU(tuned->bias.shape[1]));
    if (lens_begin(ctx, op, out, attn_shape2(x.shape[0], x.shape[1]), &result) != ATTN_OK)
        return lens_failure(ctx);
    if (layer < tuned->bias.shape[0] && (layer > 0 || !tuned->is_jacobian))
        failed = attn_linear(ctx, &result.numbers, x,
                             attn_transpose(attn_select(tuned->weight, 0, layer), 0, 1),
                             attn_select(tuned->bias, 0, layer)) ||
                 (!tuned->is_jacobian && attn_add(ctx, &result.numbers, result.numbers, x));
    else
        failed = attn_copy(ctx, &result.numbers, x) != ATTN_OK;
    return lens_finish(ctx, &result, failed ? lens_failure(ctx) : ATTN_OK);
}

#endif

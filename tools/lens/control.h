/* Control vectors: a direction for each layer, which is added to the residual stream after that layer
 * while the model runs (Zou et al. 2023, representation engineering). Uses attn.h's public API only.
 *
 *     attn_tensor directions = ATTN_ZERO;
 *     lens_control control = ATTN_ZERO;
 *     if (lens_control_open(&ctx, &directions, model, "happy.gguf") != ATTN_OK)
 *         return 1;
 *     control.directions = directions, control.strength = 1.5f;
 *     if (attn_hook(&ctx, NULL, session, LENS_CONTROL_POINTS, lens_control_hook, &control) == ATTN_OK)
 *         attn_generate(&ctx, NULL, session, "Once upon a time", NULL);
 *
 *     blocks.N.hook_resid_post [T, C] += strength * direction.N [C]        at every position
 *
 * Three kinds of files are read:
 *
 *     llama.cpp's GGUF, as llama-cvector-generator and repeng write it: general.architecture
 *         "controlvector", tensors direction.1 to direction.(n_layer - 1). llama.cpp adds them at the
 *         same places.
 *     safetensors with any of direction.0 to direction.(n_layer - 1)
 *     safetensors with a single tensor [n_layer, C] */
#ifndef LENS_CONTROL_H
#define LENS_CONTROL_H

#include "tensor_files.h"

#define LENS_CONTROL_POINTS "blocks.*.hook_resid_post"

/* Zero it and set its fields. It must outlive the hook. Strength 0 adds nothing. */
typedef struct lens_control {
    attn_tensor directions; /* [n_layer, C], f32, dense: what lens_control_open gives */
    float strength;         /* negative: the other way */
    attn_ctx ctx;           /* its message says why the hook stopped the feed */
} lens_control;

/* An attn_hook_fn for LENS_CONTROL_POINTS; user is a lens_control. It adds with fmaf, which rounds once. */
LENS_FN int lens_control_hook(const attn_activation *a, void *user)
{
    lens_control *c = (lens_control *)user;
    const size_t width = a->value.shape[1];
    if (a->value.ndim != 2 || c->directions.ndim != 2 || a->layer >= c->directions.shape[0] ||
        width != c->directions.shape[1]) {
        attn_fail(&c->ctx, ATTN_E_SHAPE,
                  "%s has shape %s; "
                  "the directions of a control vector, %s, are for blocks.*.hook_resid_post",
                  a->name, lens_show(a->value).text, lens_show(c->directions).text);
        return 1;
    }
    const float *direction = (const float *)c->directions.data + a->layer * width;
    for (size_t t = 0; t < a->value.shape[0]; t++) {
        float *x = (float *)a->value.data + (ptrdiff_t)t * a->value.stride[0];
        for (size_t i = 0; i < width; i++)
            x[i] = fmaf(c->strength, direction[i], x[i]);
    }
    return 0;
}

/* The layer in a tensor's name: 12 for "direction.12". 0 for any other name. */
LENS_FN int lens_control_layer(const char *name, size_t *layer)
{
    static const char prefix[] = "direction.";
    const char *at = name + sizeof prefix - 1;
    *layer = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || !*at || strlen(at) > 6)
        return 0;
    for (; *at >= '0' && *at <= '9'; at++)
        *layer = 10 * *layer + (size_t)(*at - '0');
    return !*at;
}

/* Copies direction.N into row N. first: the first layer that a file of its kind can have. */
LENS_FN attn_status lens_control_row(attn_ctx *ctx, attn_tensor directions, source *from,
                                     const source_tensor *t, size_t first)
{
    attn_tensor row = ATTN_ZERO, to;
    size_t layer;
    shown name;
    if (!lens_control_layer(t->name, &layer) || layer < first || layer >= directions.shape[0])
        return attn_fail(
            ctx, ATTN_E_FORMAT, "%s: the tensor %s; expected direction.%llu to direction.%llu%s",
            lens_file_name(from), show(name, t->name, strlen(t->name)), LENS_LLU(first),
            LENS_LLU(directions.shape[0] - 1), first ? "" : ", or a single tensor of all layers");
    attn_status status = lens_read_tensor(ctx, &row, from, t, attn_shape1(directions.shape[1]),
                                          ", the width of the model");
    if (status == ATTN_OK) {
        to = attn_select(directions, 0, layer);
        status = attn_copy(ctx, &to, row);
    }
    attn_tensor_free(ctx, &row);
    return status;
}

LENS_FN attn_status lens_control_read(attn_ctx *ctx, attn_tensor *directions, source *from,
                                      size_t first)
{
    const attn_shape shape = attn_shape2(directions->shape[0], directions->shape[1]);
    attn_tensor all = ATTN_ZERO;
    attn_status status = ATTN_OK;
    if (from->n_tensors == 0)
        return attn_fail(ctx, ATTN_E_FORMAT, "%s has no tensors", lens_file_name(from));
    if (first == 0 && from->n_tensors == 1 && from->tensors[0].ndim == 2) {
        status = lens_read_tensor(ctx, &all, from, &from->tensors[0], shape,
                                  ", a direction for each layer");
        if (status == ATTN_OK)
            status = attn_copy(ctx, directions, all);
        attn_tensor_free(ctx, &all);
        return status;
    }
    for (size_t i = 0; i < from->n_tensors && status == ATTN_OK; i++)
        status = lens_control_row(ctx, *directions, from, &from->tensors[i], first);
    return status;
}

/* out [n_layer, C]: the directions of a file; zeros for layers without one. ATTN_E_FORMAT for a layer that
 * the model does not have, for another width, and for a tensor of another name. */
LENS_FN attn_status lens_control_open(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                      const char *path)
{
    static const char op[] = "lens_control_open";
    lens_result result;
    if (!path)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no file given (NULL)", op);
    if (lens_need_layer(ctx, op, model, 0) != ATTN_OK)
        return lens_failure(ctx);
    const attn_config *c = attn_model_config(model);
    if (lens_begin(ctx, op, out, attn_shape2(c->n_layer, c->d_model), &result) != ATTN_OK)
        return lens_failure(ctx);
    source *from = lens_open_file(ctx, path, "controlvector");
    attn_status status =
        from ? lens_control_read(ctx, &result.numbers, from, from->names == NAMES_GGUF)
             : ctx->status;
    lens_close_file(from);
    return lens_finish(ctx, &result, status);
}

#endif

/* Reads what torch.save wrote of a GPT-2: the tensors, wherever they are in a training state, and the configuration that was
 * saved with them.
 *
 *     the tensors are                    a dict of them; of a training state under "model", "state_dict" and the like, or
 *                                        the only dict of tensors that is no optimizer's; of a module that was pickled
 *                                        whole its parameters and buffers
 *     the configuration is               the dict or object under "model_args", "config", "cfg" and the like that says how
 *                                        many heads there are; else config.json beside the file
 *
 * nanoGPT's has block_size and bias; build-nanogpt's has neither bias nor dropout, and GELU by tanh. */
#ifndef TOOLS_CHECKPOINT_H
#define TOOLS_CHECKPOINT_H

#include "pickle.h"
#include "tools/common/json.h"
#include "tools/common/json_out.h"

enum { CHECKPOINT_DEPTH = 3, CHECKPOINT_MODULES = 32 };

static const char *const checkpoint_states[] = {"model",   "state_dict",  "model_state_dict",
                                                "module",  "model_state", "net",
                                                "network", "weights",     NULL};
static const char *const checkpoint_configs[] = {
    "model_args", "config", "model_config", "gpt_config", "hyper_parameters",
    "hparams",    "args",   "cfg",          NULL};
static const char *const checkpoint_heads[] = {"n_head", "n_heads", "num_heads",
                                               "num_attention_heads", NULL};

/* >> The tensors =============================================================================== */

/* Has a dict a tensor? Numbers that a training loop keeps may be tensors without dimensions. */
TOOLS_FN int checkpoint_has_tensors(const pickle_value *v)
{
    for (size_t i = 0; v->kind == PICKLE_DICT && i + 1 < v->n; i += 2)
        if (v->items[i + 1]->kind == PICKLE_TENSOR && v->items[i + 1]->view->ndim != 0)
            return 1;
    return 0;
}

/* The dict or module with the tensors; NULL: there is none, or after a message several. */
TOOLS_FN const pickle_value *checkpoint_find(attn_ctx *ctx, const char *name, const pickle_value *v,
                                             int depth)
{
    const pickle_value *found = NULL;
    shown a, b;
    size_t at = 0;
    if (!v || depth == 0 || (v->kind != PICKLE_DICT && v->kind != PICKLE_OBJECT))
        return NULL;
    if (pickle_get(v, "_modules"))
        return v;
    for (size_t i = 0; !found && checkpoint_states[i]; i++)
        found = checkpoint_find(ctx, name, pickle_get(v, checkpoint_states[i]), depth - 1);
    if (found || checkpoint_has_tensors(v))
        return found ? found : v;
    for (size_t i = 0; i + 1 < v->n && !ctx->status; i += 2) {
        const pickle_value *const key = v->items[i], *const inner = checkpoint_find(
                                                         ctx, name, v->items[i + 1], depth - 1);
        if (!inner || key->kind != PICKLE_TEXT || strstr(show(a, key->text, key->size), "optim"))
            continue;
        if (found)
            tool_fail(
                ctx, ATTN_E_UNSUPPORTED,
                "%s has tensors under \"%s\" and under \"%s\"; save the model's by themselves",
                name, show(a, v->items[at]->text, v->items[at]->size),
                show(b, key->text, key->size));
        found = inner;
        at = i;
    }
    return ctx->status ? NULL : found;
}

/* A dense copy of a tensor whose elements do not follow one another. */
TOOLS_FN attn_status checkpoint_gather(attn_ctx *ctx, source *s, source_tensor *t,
                                       const pickle_view *view, uint64_t begin)
{
    const uint64_t count = shape_count(t->ndim, t->shape);
    uint64_t span = 1, place[SOURCE_MAX_DIMS] = {0};
    const size_t element = view->element;
    for (int i = 0; i < t->ndim; i++)
        span += (t->shape[i] - 1) * view->stride[i];
    if (count > SIZE_MAX / element || span > SIZE_MAX / element)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for %s", t->name);
    unsigned char *const from = (unsigned char *)malloc((size_t)span * element);
    t->dense = (unsigned char *)arena_alloc(ctx, &s->memory, (size_t)count, element);
    if (!from || !t->dense || source_bytes(ctx, t->file, begin, from, (size_t)span * element)) {
        free(from);
        return ctx->status ? ctx->status
                           : tool_fail(ctx, ATTN_E_MEMORY, "no memory for %s", t->name);
    }
    for (uint64_t n = 0; n < count; n++) {
        uint64_t at = 0;
        for (int i = 0; i < t->ndim; i++)
            at += place[i] * view->stride[i];
        memcpy(t->dense + n * element, from + at * element, element);
        for (int i = t->ndim - 1; i >= 0 && ++place[i] == t->shape[i]; i--)
            place[i] = 0;
    }
    free(from);
    return ATTN_OK;
}

TOOLS_FN int checkpoint_is_dense(const pickle_view *view)
{
    uint64_t step = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] != 1 && view->stride[i] != step)
            return 0;
        step *= view->shape[i];
    }
    return 1;
}

TOOLS_FN attn_status checkpoint_add(attn_ctx *ctx, source *s, const pickle_file *f,
                                    const char *prefix, const pickle_value *key,
                                    const pickle_value *v)
{
    const pickle_view *const view = v->view;
    source_tensor *const t = source_add(ctx, s);
    uint64_t size = 0;
    shown name;
    if (!t)
        return ctx->status;
    const uint64_t begin = pickle_place(ctx, f, view->storage, &size);
    const size_t length = strlen(prefix);
    if (ctx->status || !(t->name = (char *)arena_alloc(ctx, &s->memory, length + key->size + 1, 1)))
        return ctx->status;
    memcpy(t->name, prefix, length);
    memcpy(t->name + length, key->text, key->size);
    show(name, key->text, key->size);
    const pickle_view *const storage = view->storage->view;
    if (memchr(key->text, 0, key->size))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the tensor name \"%s\" holds a zero byte",
                         f->file->name, name);
    if (storage->element && storage->numel > size / storage->element)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the storage of %s is shorter than it says",
                         f->file->name, name);
    if (view->element && view->ndim >= 0 &&
        shape_count(view->ndim, view->shape) > size / view->element)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: %s repeats %llu bytes; save its contiguous() or clone()",
                         f->file->name, name, TOOLS_LLU(size));
    t->dtype = view->dtype;
    t->dtype_name = view->dtype_name;
    t->file = f->file;
    t->ndim = view->ndim < 0 ? 0 : view->ndim;
    memcpy(t->shape, view->shape, (size_t)t->ndim * sizeof t->shape[0]);
    t->offset = begin + view->offset * view->element;
    t->size = shape_count(t->ndim, t->shape) * view->element;
    return t->dtype == SOURCE_OTHER || t->size == 0 || checkpoint_is_dense(view)
               ? ATTN_OK
               : checkpoint_gather(ctx, s, t, view, t->offset);
}

/* Adds the tensors of a dict. */
TOOLS_FN attn_status checkpoint_add_dict(attn_ctx *ctx, source *s, const pickle_file *f,
                                         const char *prefix, const pickle_value *dict)
{
    for (size_t i = 0; dict && dict->kind == PICKLE_DICT && i + 1 < dict->n; i += 2)
        if (dict->items[i]->kind == PICKLE_TEXT && dict->items[i + 1]->kind == PICKLE_TENSOR &&
            checkpoint_add(ctx, s, f, prefix, dict->items[i], dict->items[i + 1]))
            return ctx->status;
    return ATTN_OK;
}

/* Adds the tensors of a module, and of those in it. */
TOOLS_FN attn_status checkpoint_add_module(attn_ctx *ctx, source *s, const pickle_file *f,
                                           const char *prefix, const pickle_value *module,
                                           int depth)
{
    const pickle_value *const inner = pickle_get(module, "_modules");
    if (depth == 0)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: %d modules are inside one another", f->file->name,
                         CHECKPOINT_MODULES);
    if (checkpoint_add_dict(ctx, s, f, prefix, pickle_get(module, "_parameters")) ||
        checkpoint_add_dict(ctx, s, f, prefix, pickle_get(module, "_buffers")))
        return ctx->status;
    for (size_t i = 0; inner && inner->kind == PICKLE_DICT && i + 1 < inner->n; i += 2) {
        const pickle_value *const key = inner->items[i];
        const size_t length = strlen(prefix), size = key->kind == PICKLE_TEXT ? key->size : 0;
        char *const longer = (char *)arena_alloc(ctx, &s->memory, length + size + 2, 1);
        if (!longer)
            return ctx->status;
        memcpy(longer, prefix, length);
        memcpy(longer + length, size ? key->text : "", size);
        longer[length + size] = '.';
        if (checkpoint_add_module(ctx, s, f, longer, inner->items[i + 1], depth - 1))
            return ctx->status;
    }
    return ATTN_OK;
}

/* Adds the tensors of a file that was opened. */
TOOLS_FN attn_status checkpoint_add_all(attn_ctx *ctx, source *s, const pickle_file *f)
{
    const size_t before = s->n_tensors;
    const pickle_value *const found =
        checkpoint_find(ctx, f->file->name, f->root, CHECKPOINT_DEPTH);
    if (ctx->status ||
        (found && (pickle_get(found, "_modules")
                       ? checkpoint_add_module(ctx, s, f, "", found, CHECKPOINT_MODULES)
                       : checkpoint_add_dict(ctx, s, f, "", found))))
        return ctx->status;
    return s->n_tensors > before
               ? ATTN_OK
               : tool_fail(ctx, ATTN_E_FORMAT, "%s has no dict of tensors", f->file->name);
}

/* >> The configuration ========================================================================= */

/* What says how many heads there are; NULL: nothing does. */
TOOLS_FN const pickle_value *checkpoint_config(const pickle_value *v, int depth)
{
    const pickle_value *found = NULL;
    for (size_t i = 0; checkpoint_heads[i]; i++)
        if (pickle_get(v, checkpoint_heads[i]))
            return v;
    for (size_t i = 0; depth > 0 && !found && checkpoint_configs[i]; i++)
        found = checkpoint_config(pickle_get(v, checkpoint_configs[i]), depth - 1);
    return found;
}

/* The fields that are plain values, as JSON. */
TOOLS_FN void checkpoint_write(json_out *o, arena *memory, attn_ctx *ctx,
                               const pickle_value *fields)
{
    out_open(o, NULL, '{');
    for (size_t i = 0; i + 1 < fields->n; i += 2) {
        const pickle_value *const key = fields->items[i], *const v = fields->items[i + 1];
        const char *const name =
            key->kind == PICKLE_TEXT ? arena_text(ctx, memory, key->text, key->size) : NULL;
        if (!name || *name == '_')
            continue;
        if (v->kind == PICKLE_TEXT)
            out_text(o, name, v->text, v->size);
        else if (v->kind == PICKLE_FLAG)
            out_flag(o, name, v->whole != 0);
        else if (v->kind == PICKLE_NUMBER)
            out_f64(o, name, v->number);
        else if (v->kind == PICKLE_WHOLE && v->whole >= 0)
            out_count(o, name, (uint64_t)v->whole);
        else if (v->kind == PICKLE_NONE)
            out_null(o, name);
    }
}

/* The configuration as config.json would have it; NULL: the file has none, or after a message. */
TOOLS_FN json_value *checkpoint_json(attn_ctx *ctx, source *s, const pickle_file *f)
{
    const pickle_value *const fields = checkpoint_config(f->root, CHECKPOINT_DEPTH);
    json_value *root = NULL;
    json_out o = {0};
    if (!fields)
        return NULL;
    const int is_nanogpt = pickle_get(f->root, "model_args") || pickle_get(fields, "bias") ||
                           pickle_get(fields, "dropout");
    checkpoint_write(&o, &s->memory, ctx, fields);
    if (pickle_get(fields, "block_size") && !is_nanogpt &&
        !pickle_get(fields, "activation_function")) {
        out_word(&o, "activation_function", "gelu_new");
        source_note("taken as \"gelu_new\", GELU by tanh as in GPT-2 and build-nanogpt");
    }
    out_close(&o, '}');
    char *const text = o.failed ? NULL : arena_text(ctx, &s->memory, o.text, o.size);
    if (text)
        json_parse(ctx, f->file->name, text, o.size, &root);
    else
        tool_fail(ctx, ATTN_E_MEMORY, "no memory for the configuration");
    out_free(&o);
    return root;
}

#endif

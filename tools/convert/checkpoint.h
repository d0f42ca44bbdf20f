/* Reads what torch.save wrote: the tensors, wherever they are in a training state, and the configuration that was saved
 * with them.
 *
 *     the tensors are                    a dict of them; of a training state under "model", "state_dict" and the like, or
 *                                        the only dict of tensors that is no optimizer's; of a module that was pickled
 *                                        whole its parameters and buffers
 *     the configuration is               the dict or object under "model_args", "config", "cfg" and the like that says how
 *                                        many heads there are; else config.json beside the file */
#ifndef TOOLS_CHECKPOINT_H
#define TOOLS_CHECKPOINT_H

#include "pickle.h"
#include "tools/common/json.h"
#include "tools/common/json_out.h"

enum {
    CHECKPOINT_DEPTH = 3,
    CHECKPOINT_MODULES = 32,
    CHECKPOINT_NAME = 500, /* bytes of a tensor's name, or of a setting */
    CHECKPOINT_JSON = 1 << 20,
    CHECKPOINT_SEEN = 1 << 24 /* values that are looked at */
};

static const char *const checkpoint_states[] = {"model",   "state_dict",  "model_state_dict",
                                                "module",  "model_state", "net",
                                                "network", "weights",     NULL};
static const char *const checkpoint_configs[] = {
    "model_args", "config", "model_config", "gpt_config", "hyper_parameters",
    "hparams",    "args",   "cfg",          NULL};
static const char *const checkpoint_heads[] = {"n_head", "n_heads", "num_heads",
                                               "num_attention_heads", NULL};

/* >> The tensors =============================================================================== */

/* May one look into a value? Values may be in themselves, and one of them in many. */
TOOLS_COLD int checkpoint_enters(attn_ctx *ctx, pickle_file *f, const pickle_value *v, int depth)
{
    if (!v || (v->kind != PICKLE_DICT && v->kind != PICKLE_OBJECT) || depth == 0 || ctx->status)
        return 0;
    f->seen += v->n + 1;
    if (f->seen > CHECKPOINT_SEEN)
        tool_fail(ctx, ATTN_E_FORMAT, "%s has dicts in one another without end", f->file->name);
    return !ctx->status;
}

/* Has a dict a tensor? Numbers that a training loop keeps may be tensors without dimensions. */
TOOLS_COLD int checkpoint_has_tensors(const pickle_value *v)
{
    for (size_t i = 0; v->kind == PICKLE_DICT && i + 1 < v->n; i += 2)
        if (v->items[i + 1]->kind == PICKLE_TENSOR && v->items[i + 1]->view->ndim != 0)
            return 1;
    return 0;
}

/* The dict or module with the tensors; NULL: there is none, or after a message several. Of several, `chosen` is the key of
 * the one that counts. */
TOOLS_COLD const pickle_value *checkpoint_find(attn_ctx *ctx, pickle_file *f, const pickle_value *v,
                                               const char **chosen, int depth)
{
    const pickle_value *found = NULL, *inner;
    shown a, b;
    size_t at = 0;
    if (!checkpoint_enters(ctx, f, v, depth))
        return NULL;
    if (pickle_get(v, "_modules"))
        return v;
    for (size_t i = 0; !found && checkpoint_states[i]; i++)
        found = checkpoint_find(ctx, f, pickle_get(v, checkpoint_states[i]), chosen, depth - 1);
    if (found || checkpoint_has_tensors(v))
        return found ? found : v;
    for (size_t i = 0; i + 1 < v->n && !ctx->status; i += 2) {
        const pickle_value *const key = v->items[i];
        if (key->kind != PICKLE_TEXT || strstr(show(a, key->text, key->size), "optim") ||
            !(inner = checkpoint_find(ctx, f, v->items[i + 1], chosen, depth - 1)))
            continue;
        if (*chosen && pickle_is(key, PICKLE_TEXT, *chosen)) {
            *chosen = NULL;
            return inner;
        }
        if (found && !*chosen)
            tool_fail(ctx, ATTN_E_UNSUPPORTED,
                      "%s has tensors under \"%s\" and under \"%s\"; choose one with --prefix",
                      f->file->name, show(a, v->items[at]->text, v->items[at]->size),
                      show(b, key->text, key->size));
        found = inner;
        at = i;
    }
    return ctx->status ? NULL : found;
}

/* A prefix, a key, which is a text or a whole number, and an end. NULL after a message. */
TOOLS_COLD char *checkpoint_name(attn_ctx *ctx, source *s, const pickle_file *f, const char *prefix,
                                 const pickle_value *key, const char *end)
{
    const int is_text = key->kind == PICKLE_TEXT && !memchr(key->text, 0, key->size);
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)key->whole);
    const size_t size = is_text ? key->size : strlen(number), room = strlen(prefix) + size + 2;
    if (room > CHECKPOINT_NAME || (!is_text && key->kind != PICKLE_WHOLE)) {
        tool_fail(ctx, ATTN_E_FORMAT,
                  "%s: a tensor's name must be a text of at most %d bytes, none of them zero",
                  f->file->name, (int)CHECKPOINT_NAME);
        return NULL;
    }
    char *const name = (char *)arena_alloc(ctx, &s->memory, room, 1);
    if (name)
        snprintf(name, room, "%s%.*s%s", prefix, (int)size, is_text ? key->text : number, end);
    return name;
}

TOOLS_COLD int checkpoint_has_strides(const pickle_view *view)
{
    uint64_t step = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] != 1 && view->stride[i] != step)
            return 1;
        step *= view->shape[i];
    }
    return 0;
}

TOOLS_COLD attn_status checkpoint_add(attn_ctx *ctx, source *s, const pickle_file *f, char *name,
                                      const pickle_view *view)
{
    const pickle_view *const storage = view->storage->view;
    source_tensor *const t = name ? source_add(ctx, s) : NULL;
    uint64_t size = 0;
    shown shown_name;
    if (!t)
        return ctx->status;
    const uint64_t begin = pickle_place(ctx, f, view->storage, &size);
    show(shown_name, name, strlen(name));
    t->name = name;
    t->dtype_name = arena_text(ctx, &s->memory, view->type->text, view->type->size);
    if (ctx->status)
        return ctx->status;
    if (storage->element && storage->numel > size / storage->element)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the storage of %s is shorter than it says",
                         f->file->name, shown_name);
    if (view->element && view->ndim >= 0 &&
        shape_count(view->ndim, view->shape) > size / view->element)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: %s repeats %llu bytes; save its contiguous() or clone()",
                         f->file->name, shown_name, TOOLS_LLU(size));
    t->dtype = view->dtype;
    t->file = f->file;
    t->ndim = view->ndim < 0 ? 0 : view->ndim;
    memcpy(t->shape, view->shape, sizeof t->shape);
    memcpy(t->stride, view->stride, sizeof t->stride);
    t->offset = begin + view->offset * view->element;
    t->size = shape_count(t->ndim, t->shape) * view->element;
    t->has_strides = t->size > 0 && checkpoint_has_strides(view);
    return ATTN_OK;
}

/* Adds the tensors of a dict. */
TOOLS_COLD attn_status checkpoint_add_dict(attn_ctx *ctx, source *s, pickle_file *f,
                                           const char *prefix, const pickle_value *dict)
{
    static const char made[] = "torch._utils._rebuild_";
    shown name, kind;
    const size_t n = checkpoint_enters(ctx, f, dict, 1) ? dict->n : 0;
    for (size_t i = 0; i + 1 < n && !ctx->status; i += 2) {
        const pickle_value *const key = dict->items[i], *const v = dict->items[i + 1];
        if (v->kind == PICKLE_TENSOR)
            checkpoint_add(ctx, s, f, checkpoint_name(ctx, s, f, prefix, key, ""), v->view);
        else if (v->kind == PICKLE_OBJECT && v->size > sizeof made &&
                 memcmp(v->text, made, sizeof made - 1) == 0)
            tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s: %s is a %s; save the model with plain tensors",
                      f->file->name, show(name, key->text ? key->text : "", key->size),
                      show(kind, v->text + sizeof made - 1, v->size - (sizeof made - 1)));
    }
    return ctx->status;
}

/* Adds the tensors of a module, and of those in it. */
TOOLS_COLD attn_status checkpoint_add_module(attn_ctx *ctx, source *s, pickle_file *f,
                                             const char *prefix, const pickle_value *module,
                                             int depth)
{
    const pickle_value *const inner = pickle_get(module, "_modules");
    if (depth == 0)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: a module contains itself, or %d modules are inside one another",
                         f->file->name, (int)CHECKPOINT_MODULES);
    checkpoint_add_dict(ctx, s, f, prefix, pickle_get(module, "_parameters"));
    checkpoint_add_dict(ctx, s, f, prefix, pickle_get(module, "_buffers"));
    const size_t n = checkpoint_enters(ctx, f, inner, 1) ? inner->n : 0;
    for (size_t i = 0; i + 1 < n && !ctx->status; i += 2) {
        const char *const longer = checkpoint_name(ctx, s, f, prefix, inner->items[i], ".");
        if (longer)
            checkpoint_add_module(ctx, s, f, longer, inner->items[i + 1], depth - 1);
    }
    return ctx->status;
}

/* Adds the tensors of a file that was opened. */
TOOLS_COLD attn_status checkpoint_add_all(attn_ctx *ctx, source *s, pickle_file *f)
{
    const size_t before = s->n_tensors;
    const pickle_value *const found =
        checkpoint_find(ctx, f, f->root, &s->prefix, CHECKPOINT_DEPTH);
    if (pickle_get(found, "_modules"))
        checkpoint_add_module(ctx, s, f, "", found, CHECKPOINT_MODULES);
    else
        checkpoint_add_dict(ctx, s, f, "", found);
    return ctx->status || s->n_tensors > before
               ? ctx->status
               : tool_fail(
                     ctx, ATTN_E_FORMAT,
                     "%s has no tensors: expected a dict of them, or a training state with one",
                     f->file->name);
}

TOOLS_COLD attn_status checkpoint_open(attn_ctx *ctx, source *s, const char *path)
{
    pickle_file f;
    return pickle_open(ctx, s, &f, path) ? ctx->status : checkpoint_add_all(ctx, s, &f);
}

/* >> The configuration ========================================================================= */

/* What has one of these keys: a value, or what stands in it under the name of a configuration. NULL: nothing has. */
TOOLS_COLD const pickle_value *checkpoint_config(attn_ctx *ctx, pickle_file *f,
                                                 const pickle_value *v, const char *const *keys,
                                                 int depth)
{
    const pickle_value *found = NULL;
    if (!checkpoint_enters(ctx, f, v, depth))
        return NULL;
    for (size_t i = 0; keys[i]; i++)
        if (pickle_get(v, keys[i]))
            return v;
    for (size_t i = 0; !found && checkpoint_configs[i]; i++)
        found = checkpoint_config(ctx, f, pickle_get(v, checkpoint_configs[i]), keys, depth - 1);
    return found;
}

/* Appends the fields that are plain values, but those of these names, closes the object, and parses it. NULL after a
 * message; free it. */
TOOLS_COLD json_value *checkpoint_parse(attn_ctx *ctx, source *s, const pickle_file *f, json_out *o,
                                        const pickle_value *fields, const char *const *but)
{
    json_value *root = NULL;
    char name[CHECKPOINT_NAME];
    for (size_t i = 0, k; i + 1 < fields->n && o->size < CHECKPOINT_JSON; i += 2) {
        const pickle_value *const key = fields->items[i], *const v = fields->items[i + 1];
        const int is_name = key->kind == PICKLE_TEXT && key->size < sizeof name;
        snprintf(name, sizeof name, "%.*s", is_name ? (int)key->size : 0, is_name ? key->text : "");
        for (k = 0; but[k] && strcmp(name, but[k]) != 0; k++)
            continue;
        if (but[k] || !*name || *name == '_')
            continue;
        if (v->kind == PICKLE_TEXT && v->size < sizeof name)
            out_text(o, name, v->text, v->size);
        else if (v->kind == PICKLE_TRUE || v->kind == PICKLE_FALSE)
            out_flag(o, name, v->kind == PICKLE_TRUE);
        else if (v->kind == PICKLE_NUMBER || (v->kind == PICKLE_WHOLE && v->whole < 0))
            out_f64(o, name, v->kind == PICKLE_NUMBER ? v->number : (double)v->whole);
        else if (v->kind == PICKLE_WHOLE)
            out_count(o, name, (uint64_t)v->whole);
        else if (v->kind == PICKLE_NONE)
            out_null(o, name);
    }
    out_close(o, '}');
    char *const text = o->failed ? NULL : arena_text(ctx, &s->memory, o->text, o->size);
    if (text)
        json_parse(ctx, f->file->name, text, o->size, &root);
    else
        tool_fail(ctx, ATTN_E_MEMORY, "no memory for the configuration");
    out_free(o);
    return root;
}

/* The first of these tensors that is a table; NULL: none is. */
TOOLS_COLD const source_tensor *checkpoint_table(const source *s, const char *const *names)
{
    const source_tensor *t = NULL;
    for (; *names && !t; names++)
        if ((t = source_find(s, *names)) != NULL && t->ndim < 2)
            t = NULL;
    return t;
}

TOOLS_COLD uint64_t checkpoint_layers(const source *s)
{
    static const char *const parts[] = {"h.", "blocks.", "trf_blocks."};
    uint64_t layers = 0;
    for (size_t i = 0; i < s->n_tensors; i++)
        for (size_t k = 0; k < 3; k++)
            if (strncmp(s->tensors[i].name, parts[k], strlen(parts[k])) == 0) {
                const uint64_t n = strtoul(s->tensors[i].name + strlen(parts[k]), NULL, 10);
                layers = n < layers ? layers : n + 1;
            }
    return layers;
}

/* Appends what the tensors say of GPT-2: its sizes; and what scripts leave out of their configuration. */
TOOLS_COLD attn_status checkpoint_gpt2(attn_ctx *ctx, json_out *o, const source *s,
                                       const pickle_value *fields, int is_nanogpt)
{
    static const char *const tables[] = {"wte.weight", "tok_emb.weight", "lm_head.weight", NULL};
    static const char *const places[] = {"wpe.weight", "pos_emb.weight", "pos_emb", NULL};
    static const char *const inner[] = {"h.0.mlp.c_fc.weight", NULL};
    static const char *const ends[] = {"bos_token_id", "eos_token_id"};
    const source_tensor *const table = checkpoint_table(s, tables),
                               *const place = checkpoint_table(s, places),
                               *const mlp = checkpoint_table(s, inner);
    const pickle_value *heads = NULL, *act = pickle_get(fields, "activation_function");
    const char *const first = s->n_tensors && s->tensors ? s->tensors[0].name : "none";
    shown name;
    if (!table || !place)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "the tensors have none of the names that GPT-2's embeddings have, "
                         "wte.weight and wpe.weight; the first is %s",
                         show(name, first, strlen(first)));
    for (size_t i = 0; !heads && checkpoint_heads[i]; i++)
        heads = pickle_get(fields, checkpoint_heads[i]);
    act = act ? act : pickle_get(fields, "activation");
    out_count(o, "n_head",
              heads->kind == PICKLE_WHOLE && heads->whole > 0 ? (uint64_t)heads->whole : 0);
    out_count(o, "vocab_size", table->shape[0]);
    out_count(o, "n_embd", table->shape[1]);
    out_count(o, "n_positions", place->shape[place->ndim - 2]);
    out_count(o, "n_layer", checkpoint_layers(s));
    if (mlp && table->shape[1])
        out_count(o, "n_inner", mlp->shape[0] * mlp->shape[1] / table->shape[1]);
    for (size_t i = 0; table->shape[0] >= 50257 && i < 2; i++) /* GPT-2's vocabulary */
        if (!pickle_get(fields, ends[i]))
            out_count(o, ends[i], 50256);
    if (act && act->kind == PICKLE_TEXT && act->size < CHECKPOINT_NAME) {
        out_text(o, "activation_function", act->text, act->size);
        return ATTN_OK;
    }
    out_word(o, "activation_function", is_nanogpt ? "gelu" : "gelu_new");
    source_note("the configuration names no activation_function; taken as %s",
                is_nanogpt ? "\"gelu\", the exact GELU of nanoGPT since 2023"
                           : "\"gelu_new\", GELU by tanh as in GPT-2 and build-nanogpt");
    return ATTN_OK;
}

/* The configuration as config.json would have it, after the tensors have been found. NULL: the file has none, or after a
 * message. */
TOOLS_COLD json_value *checkpoint_json(attn_ctx *ctx, source *s, pickle_file *f)
{
    static const char *const found[] = {
        "n_head",  "vocab_size",          "n_embd",     "n_positions", "n_layer",
        "n_inner", "activation_function", "model_type", NULL};
    const pickle_value *const fields =
        checkpoint_config(ctx, f, f->root, checkpoint_heads, CHECKPOINT_DEPTH);
    const int is_nanogpt = pickle_get(f->root, "model_args") || pickle_get(fields, "bias") ||
                           pickle_get(fields, "dropout");
    const int is_lens = source_find(s, "embed.W_E") || source_find(s, "embed.weight");
    json_out o = {NULL, 0, 0, 0, 0};
    if (!fields || ctx->status)
        return NULL;
    out_open(&o, NULL, '{');
    if (!is_lens && checkpoint_gpt2(ctx, &o, s, fields, is_nanogpt)) {
        out_free(&o);
        return NULL;
    }
    return checkpoint_parse(ctx, s, f, &o, fields, found + (is_lens ? 8 : 0));
}

#endif

/* Reads what torch.save wrote: the tensors, wherever they are in a training state, and the configuration that was saved
 * with them.
 *
 *     the tensors are                    all in a dict and in the dicts in it, but optimizers'; only those under "model",
 *                                        "state_dict" and the like where there are some; of a module that was pickled whole
 *                                        its parameters and buffers. Names have the keys, with dots between them
 *     the configuration is               the dict or object under "model_args", "config", "cfg" and the like that says how
 *                                        many heads there are; else config.json beside the file */
#ifndef TOOLS_CHECKPOINT_H
#define TOOLS_CHECKPOINT_H

#include "pickle.h"
#include "tools/common/json.h"
#include "tools/common/json_out.h"

enum {
    CHECKPOINT_DEPTH = 32,
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

/* May one look into a dict? Dicts may be in themselves, and one of them in many. */
TOOLS_COLD int checkpoint_enters(attn_ctx *ctx, pickle_file *f, const pickle_value *v, int depth)
{
    if (!v || v->kind != PICKLE_DICT || depth == 0 || ctx->status)
        return 0;
    f->seen += v->n + 1;
    if (f->seen > CHECKPOINT_SEEN)
        tool_fail(ctx, ATTN_E_FORMAT, "%s has dicts in one another without end", f->file->name);
    return !ctx->status;
}

/* A tensor's name, of that of a dict and a key, which is a text or a whole number. NULL: no model has such a name. */
TOOLS_COLD char *checkpoint_name(attn_ctx *ctx, source *s, const char *prefix,
                                 const pickle_value *key)
{
    char name[CHECKPOINT_NAME];
    const char *const dot = *prefix ? "." : "";
    const int size = key->kind == PICKLE_TEXT && key->size < sizeof name ? (int)key->size : 0;
    const int n =
        key->kind == PICKLE_WHOLE
            ? snprintf(name, sizeof name, "%s%s%lld", prefix, dot, (long long)key->whole)
            : snprintf(name, sizeof name, "%s%s%.*s", prefix, dot, size, size ? key->text : "");
    return (size_t)n < sizeof name && (size || key->kind == PICKLE_WHOLE)
               ? arena_text(ctx, &s->memory, name, (size_t)n)
               : NULL;
}

TOOLS_COLD int checkpoint_has_strides(const source_tensor *t)
{
    uint64_t step = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->stride[i] != step)
            return 1;
        step *= t->shape[i];
    }
    return 0;
}

TOOLS_COLD attn_status checkpoint_add(attn_ctx *ctx, source *s, const pickle_file *f, char *name,
                                      const pickle_value *v)
{
    const zip_member *const m = v->text ? zip_find(&f->zip, f->folder, v->text, v->size) : NULL;
    const uint64_t element = v->tensor->size;
    source_tensor *const t = source_add(ctx, s);
    shown shown_name;
    if (!t)
        return ctx->status;
    *t = *v->tensor;
    t->name = name;
    t->file = f->file;
    t->size = 0;
    show(shown_name, name, strlen(name));
    if (v->text && (!m || (element && (uint64_t)v->whole > m->size / element)))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the storage of %s is %s", f->file->name,
                         shown_name, m ? "shorter than it says" : "missing");
    if (!m || !element)
        return ATTN_OK;
    if (shape_count(t->ndim, t->shape) > m->size / element)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: %s repeats %llu bytes; save its contiguous() or clone()",
                         f->file->name, shown_name, TOOLS_LLU(m->size));
    t->offset = m->offset + t->offset * element;
    t->size = shape_count(t->ndim, t->shape) * element;
    t->has_strides = t->size > 0 && checkpoint_has_strides(t);
    return ATTN_OK;
}

TOOLS_COLD void checkpoint_walk(attn_ctx *ctx, source *s, pickle_file *f, const char *prefix,
                                pickle_value *v, int depth);

/* Adds the tensors of a dict, and of the dicts in it. */
TOOLS_COLD void checkpoint_items(attn_ctx *ctx, source *s, pickle_file *f, const char *prefix,
                                 const pickle_value *dict, int depth)
{
    const size_t n = checkpoint_enters(ctx, f, dict, depth) ? dict->n : 0;
    for (size_t i = 0; i + 1 < n && !ctx->status; i += 2) {
        pickle_value *const v = dict->items[i + 1];
        char *const name = v->kind == PICKLE_TENSOR || v->kind == PICKLE_DICT
                               ? checkpoint_name(ctx, s, prefix, dict->items[i])
                               : NULL;
        if (name && v->kind == PICKLE_TENSOR)
            checkpoint_add(ctx, s, f, name, v);
        else if (name && !strstr(name, "optim"))
            checkpoint_walk(ctx, s, f, name, v, depth - 1);
    }
}

/* Adds the tensors of a state, of a module, or of a dict of such. */
TOOLS_COLD void checkpoint_walk(attn_ctx *ctx, source *s, pickle_file *f, const char *prefix,
                                pickle_value *v, int depth)
{
    const size_t before = s->n_tensors;
    if (!v || v->is_open || !checkpoint_enters(ctx, f, v, depth))
        return;
    v->is_open = 1;
    if (pickle_get(v, "_modules")) {
        checkpoint_items(ctx, s, f, prefix, pickle_get(v, "_parameters"), 1);
        checkpoint_items(ctx, s, f, prefix, pickle_get(v, "_buffers"), 1);
        checkpoint_items(ctx, s, f, prefix, pickle_get(v, "_modules"), depth);
    } else {
        for (size_t i = 0; checkpoint_states[i] && s->n_tensors == before; i++)
            checkpoint_walk(ctx, s, f, prefix, pickle_get(v, checkpoint_states[i]), depth - 1);
        if (s->n_tensors == before)
            checkpoint_items(ctx, s, f, prefix, v, depth);
    }
    v->is_open = 0;
}

/* Adds the tensors of a file that was opened. */
TOOLS_COLD attn_status checkpoint_add_all(attn_ctx *ctx, source *s, pickle_file *f)
{
    const size_t before = s->n_tensors;
    checkpoint_walk(ctx, s, f, "", f->root, CHECKPOINT_DEPTH);
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

/* Finds the dict that has one of these keys: v, or a dict that v has under the name of a configuration. NULL: none has. */
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

/* A setting that the tensors say. */
typedef struct checkpoint_size {
    const char *name;
    uint64_t number;
} checkpoint_size;

/* Appends a field if it is a plain value. */
TOOLS_COLD void checkpoint_field(json_out *o, const char *name, const pickle_value *v)
{
    static const char *const words[] = {"null", "false", "true"}; /* of these kinds */
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)v->whole);
    if (v->kind == PICKLE_TEXT && v->size < CHECKPOINT_NAME)
        out_text(o, name, v->text, v->size);
    else if (v->kind == PICKLE_NUMBER)
        out_f64(o, name, v->number);
    else if (v->kind == PICKLE_WHOLE)
        out_spelled(o, name, number, strlen(number));
    else if (v->kind <= PICKLE_TRUE)
        out_spelled(o, name, words[v->kind], strlen(words[v->kind]));
}

/* Makes a configuration of sizes, where there are some, and of other fields. NULL after a message; free it. */
TOOLS_COLD json_value *checkpoint_parse(attn_ctx *ctx, source *s, const pickle_file *f, json_out *o,
                                        const pickle_value *fields, const checkpoint_size *sizes,
                                        size_t n_sizes)
{
    json_value *root = NULL;
    char name[CHECKPOINT_NAME];
    for (size_t i = 0; i < n_sizes; i++)
        out_count(o, sizes[i].name, sizes[i].number);
    for (size_t i = 0, k; i + 1 < fields->n && o->size < CHECKPOINT_JSON; i += 2) {
        const pickle_value *const key = fields->items[i];
        const int is_name = key->kind == PICKLE_TEXT && key->size < sizeof name;
        snprintf(name, sizeof name, "%.*s", is_name ? (int)key->size : 0, is_name ? key->text : "");
        for (k = 0; k < n_sizes && strcmp(name, sizes[k].name) != 0; k++)
            continue;
        if (k == n_sizes && *name && *name != '_' && strcmp(name, "activation_function") != 0 &&
            strcmp(name, "model_type") != 0)
            checkpoint_field(o, name, fields->items[i + 1]);
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

/* The first of these tensors that is a table, with blanks between the names; NULL: none is. */
TOOLS_COLD const source_tensor *checkpoint_table(const source *s, const char *names)
{
    size_t i;
    for (size_t n; *names; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        if (names_find(&s->by_name, names, n, &i) && s->tensors[i].ndim >= 2)
            return &s->tensors[i];
    }
    return NULL;
}

TOOLS_COLD uint64_t checkpoint_layers(const source *s)
{
    static const char *const parts[] = {"h.", "blocks.", "trf_blocks."};
    uint64_t layers = 0, n;
    for (size_t i = 0; i < s->n_tensors; i++)
        for (size_t k = 0; k < 3; k++)
            if (strncmp(s->tensors[i].name, parts[k], strlen(parts[k])) == 0) {
                n = strtoul(s->tensors[i].name + strlen(parts[k]), NULL, 10);
                layers = n < layers ? layers : n + 1;
            }
    return layers;
}

/* Appends an activation function, which scripts leave out of their configuration. */
TOOLS_COLD void checkpoint_activation(json_out *o, const pickle_file *f, const pickle_value *fields)
{
    const int is_nanogpt = pickle_get(f->root, "model_args") || pickle_get(fields, "bias") ||
                           pickle_get(fields, "dropout");
    const pickle_value *act = pickle_get(fields, "activation_function");
    act = act ? act : pickle_get(fields, "activation");
    if (act && act->kind == PICKLE_TEXT && act->size < CHECKPOINT_NAME) {
        out_text(o, "activation_function", act->text, act->size);
        return;
    }
    out_word(o, "activation_function", is_nanogpt ? "gelu" : "gelu_new");
    source_note("the configuration names no activation_function; taken as %s",
                is_nanogpt ? "\"gelu\", the exact GELU of nanoGPT since 2023"
                           : "\"gelu_new\", GELU by tanh as in GPT-2 and build-nanogpt");
}

/* The configuration as config.json would have it, after the tensors have been found. NULL: the file has none, or after a
 * message. */
TOOLS_COLD json_value *checkpoint_json(attn_ctx *ctx, source *s, pickle_file *f)
{
    const pickle_value *const fields = checkpoint_config(ctx, f, f->root, checkpoint_heads, 3),
                              *heads = NULL;
    const source_tensor *const table =
                                   checkpoint_table(s, "wte.weight tok_emb.weight lm_head.weight"),
                               *const place =
                                   checkpoint_table(s, "wpe.weight pos_emb.weight pos_emb"),
                               *const mlp = checkpoint_table(s, "h.0.mlp.c_fc.weight");
    const char *const first = s->n_tensors && s->tensors ? s->tensors[0].name : "none";
    const int is_lens = source_find(s, "embed.W_E") || source_find(s, "embed.weight");
    json_out o = {NULL, 0, 0, 0, 0};
    shown name;
    if (!fields || ctx->status)
        return NULL;
    out_open(&o, NULL, '{');
    if (is_lens)
        return checkpoint_parse(ctx, s, f, &o, fields, NULL, 0);
    if (!table || !place) {
        out_free(&o);
        tool_fail(ctx, ATTN_E_FORMAT,
                  "the tensors have none of the names that GPT-2's embeddings have, "
                  "wte.weight and wpe.weight; the first is %s",
                  show(name, first, strlen(first)));
        return NULL;
    }
    for (size_t i = 0; !heads && checkpoint_heads[i]; i++)
        heads = pickle_get(fields, checkpoint_heads[i]);
    const uint64_t width = table->shape[1];
    const checkpoint_size sizes[] = {
        {"n_head", heads->kind == PICKLE_WHOLE && heads->whole > 0 ? (uint64_t)heads->whole : 0},
        {"vocab_size", table->shape[0]},
        {"n_embd", width},
        {"n_positions", place->shape[place->ndim - 2]},
        {"n_layer", checkpoint_layers(s)},
        {"n_inner", mlp && width ? mlp->shape[0] * mlp->shape[1] / width : 4 * width},
        {"bos_token_id", 50256},
        {"eos_token_id", 50256}};
    const int is_gpt2 = table->shape[0] >= 50257 && !pickle_get(fields, "bos_token_id") &&
                        !pickle_get(fields, "eos_token_id"); /* GPT-2's vocabulary */
    checkpoint_activation(&o, f, fields);
    return checkpoint_parse(ctx, s, f, &o, fields, sizes, is_gpt2 ? 8 : 6);
}

#endif

/* Merges adapters of Hugging Face's PEFT into a model, as merge_and_unload() does: LoRA.
 *
 * adapter_config.json
 *   lora_alpha, alpha_pattern, use_rslora      factor: alpha / r, or alpha / sqrt(r)
 *   init_lora_weights                          refused if PEFT changes the model by it (PiSSA, OLoRA ...)
 *   another peft_type, use_dora and others     refused by name
 *   target_modules, bias, modules_to_save ...  not read: the names of the tensors say the same
 *
 * tensors
 *   X.lora_B.weight, X.lora_A.weight           X.weight + factor * (B A): see source_merge
 *   X.lora_embedding_B, X.lora_embedding_A     the same, transposed
 *   X.lora_B.bias                              X.bias + factor * it
 *   X.base_layer.weight                        left out: it is the model's
 *   X.base_layer.bias, any other X             takes the place of the model's
 *
 * A pair for one of two tied embeddings is added to both. A tensor in the place of one of them unties them. */
#ifndef TOOLS_ADAPTER_H
#define TOOLS_ADAPTER_H

#include "huggingface.h"
#include "tools/common/program.h"
#include "tools/common/vocab_files.h"

/* Settings that are read, or that change no sum. */
static const char adapter_known[] =
    "alpha_pattern auto_mapping base_model_name_or_path bias corda_config eva_config "
    "exclude_modules fan_in_fan_out inference_mode init_lora_weights layers_pattern "
    "layers_to_transform loftq_config lora_alpha lora_bias lora_dropout lora_ga_config "
    "megatron_core modules_to_save peft_type peft_version qalora_group_size r rank_pattern "
    "revision runtime_config target_modules task_type use_rslora";

TOOLS_COLD attn_status adapter_check(attn_ctx *ctx, const char *dir, const json_value *root)
{
    const json_value *const init = json_get(root, "init_lora_weights"), *m = root,
                            *bad = json_get(root, "peft_type");
    shown key, value;
    if (!root || !bad)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s has no adapter_config.json with a peft_type, as PEFT writes it", dir);
    bad = json_is(bad, "LORA") ? NULL : bad;
    if (init && init->kind == JSON_STRING &&
        find_name("gaussian eva orthogonal", init->text, init->size) < 0)
        bad = init;
    for (size_t i = 0; !bad && i < root->size; i++) {
        m += i ? m->span : 1;
        bad = vocab_is_off(m) || find_name(adapter_known, m->key, m->key_size) >= 0 ? NULL : m;
    }
    return !bad ? ATTN_OK
                : tool_fail(ctx, ATTN_E_UNSUPPORTED,
                            "adapter_config.json has %s %s, which cannot be merged here; PEFT's "
                            "merge_and_unload() makes a model that converts",
                            show(key, bad->key, bad->key_size),
                            bad->text ? show(value, bad->text, bad->size) : "on");
}

/* The factor of a pair of rank r. Of alpha_pattern the first name counts in which the layer's ends, from a dot on. */
TOOLS_COLD attn_status adapter_factor(attn_ctx *ctx, const json_value *root, const char *layer,
                                      uint64_t r, float *factor)
{
    static const char plain[] = "._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const json_value *const patterns = json_get(root, "alpha_pattern"), *v = patterns,
                            *alpha = json_get(root, "lora_alpha");
    const size_t n = strlen(layer), most = v && v->kind == JSON_OBJECT ? v->size : 0;
    double number = 8; /* PEFT's default */
    int by_root = 0;
    for (size_t i = 0; i < most && alpha != v; i++) {
        v += i ? v->span : 1;
        const size_t m = v->key_size;
        if (strspn(v->key, plain) < m)
            return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                             "adapter_config.json: alpha_pattern has a regular expression; only "
                             "names of layers are read");
        if (m <= n && memcmp(layer + n - m, v->key, m) == 0 && (m == n || layer[n - m - 1] == '.'))
            alpha = v;
    }
    if (alpha && !json_double(alpha, &number))
        return tool_fail(ctx, ATTN_E_FORMAT, "adapter_config.json: the alpha of %s is not a number",
                         layer);
    config_flag(ctx, root, "use_rslora", &by_root);
    *factor = (float)(number / (by_root ? sqrt((double)r) : (double)r));
    return ctx->status;
}

/* Puts a tensor in the place of the one of that name, or behind all. */
TOOLS_COLD attn_status adapter_put(attn_ctx *ctx, source *s, source_tensor t, char *name)
{
    size_t at = s->n_tensors;
    if (!names_find(&s->by_name, name, strlen(name), &at) && !source_add(ctx, s))
        return ctx->status;
    t.name = name;
    s->tensors[at] = t;
    return ATTN_OK;
}

/* If one table embeds and unembeds, gives it both names and one list of pairs. */
TOOLS_COLD attn_status adapter_tie(attn_ctx *ctx, source *s)
{
    static char embed[] = "wte.weight", unembed[] = "lm_head.weight";
    const source_tensor *const a = source_find(s, embed), *const b = source_find(s, unembed);
    int same = 1;
    if (s->says_untied || (!a && !b) || (a && b && source_same(ctx, s, a, b, &same)) || !same)
        return ctx->status;
    source_tensor t = a ? *a : *b;
    t.pairs = (source_pair *)arena_alloc(ctx, &s->memory, 1, sizeof *t.pairs);
    return !t.pairs || adapter_put(ctx, s, t, embed) || adapter_put(ctx, s, t, unembed)
               ? ctx->status
               : source_index(ctx, s);
}

/* How the names of a pair end: that of B, that of A, and that of the model's tensor to which B A is added. */
static const char *const adapter_ends[3][3] = {
    {".lora_embedding_B", ".lora_embedding_A", ".weight"},
    {".lora_B.weight", ".lora_A.weight", ".weight"},
    {".lora_B.bias", ".lora_A.weight", ".bias"}};

/* Adds to the model's tensor the pair of a B. */
TOOLS_COLD attn_status adapter_attach(attn_ctx *ctx, source *s, source *side,
                                      const json_value *root, const source_tensor *b, int kind)
{
    const char *const *const ends = adapter_ends[kind];
    const int n = (int)(strlen(b->name) - strlen(ends[0]));
    source_pair *const p = (source_pair *)arena_alloc(ctx, &s->memory, 2, sizeof *p), *last;
    char name[2 * CHECKPOINT_NAME];
    size_t at = 0;
    snprintf(name, sizeof name, "%.*s%s", n, b->name, ends[1]);
    const source_tensor *const a = source_find(side, name);
    snprintf(name, sizeof name, "%.*s%s", n, b->name, ends[2]);
    const int found = names_find(&s->by_name, name, strlen(name), &at);
    source_tensor *const t = found ? &s->tensors[at] : side->tensors; /* its sizes do not matter */
    if (!p)
        return ctx->status;
    p->turned = kind != 1 || (!s->linears_out_in && strncmp(name, "h.", 2) == 0);
    const uint64_t columns = t->shape[t->ndim > 1], rows = t->ndim > 1 ? t->shape[0] : 1,
                   in = p->turned ? rows : columns, out = p->turned ? columns : rows;
    if (!found || !a || a->ndim != 2 || a->shape[0] == 0 || a->dtype == SOURCE_OTHER ||
        b->dtype == SOURCE_OTHER || b->shape[0] != out ||
        (kind < 2 && (a->shape[1] != in || b->shape[1] != a->shape[0])))
        return tool_fail(ctx, ATTN_E_SHAPE,
                         "%s: %s and its A, of the same rank, in F32, F16, BF16 or F64, must have "
                         "the sizes of the model's %s",
                         b->file->name, b->name, name);
    p->tensors[0] = kind < 2 ? a : NULL;
    p->tensors[1] = b;
    if (!t->pairs)
        t->pairs = &p[1];
    for (last = t->pairs; last->next; last = last->next)
        continue;
    last->next = p;
    snprintf(name, sizeof name, "%s%.*s", strncmp(b->name, "lm_head", 7) ? "transformer." : "", n,
             b->name);
    return adapter_factor(ctx, root, name, a->shape[0], &p->factor);
}

TOOLS_COLD attn_status adapter_tensors(attn_ctx *ctx, source *s, source *side,
                                       const json_value *root)
{
    static const char inner[] = ".base_layer";
    for (size_t i = 0; i < side->n_tensors && !ctx->status; i++) {
        char *const name = side->tensors[i].name, *const at = strstr(name, inner);
        if (strstr(name, ".lora_") || strstr(name, ".original_module.") ||
            strstr(name, ".modules_to_save.") || (at && strstr(at, ".weight")))
            continue; /* a copy of the model's, or of one without this in its name */
        if (at)
            memmove(at, at + strlen(inner), strlen(at + strlen(inner)) + 1);
        adapter_put(ctx, s, side->tensors[i], name);
    }
    if (ctx->status || source_index(ctx, s))
        return ctx->status;
    const source_tensor *const table = source_find(s, "wte.weight");
    if (table && table->ndim == 2)
        s->n_vocab = table->shape[0];
    for (int kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < side->n_tensors && !ctx->status; i++)
            if (lens_ends_in(side->tensors[i].name, adapter_ends[kind][0]))
                adapter_attach(ctx, s, side, root, &side->tensors[i], kind);
    return ctx->status;
}

/* Opens the adapter of a directory; of several, in their order. */
TOOLS_COLD attn_status adapter_open(attn_ctx *ctx, source *s, const char *dir)
{
    source *const side = (source *)calloc(1, sizeof *side), **last = &s->adapter;
    json_value *root = NULL;
    if (!side)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for an adapter");
    while (*last)
        last = &(*last)->adapter;
    *last = side;
    side->dir = dir;
    ctx->n_threads = 1; /* many small products */
    if (attn_isa(ctx) && strstr(attn_isa(ctx), "no fused"))
        ctx->isa = ATTN_ISA_PORTABLE; /* the same bits everywhere */
    char *const weights = hf_file(ctx, &side->memory, dir, "adapter_model.safetensors");
    char *const pickled = arena_path(ctx, &side->memory, dir, "adapter_model.bin");
    if (s->names != NAMES_HF || s->transformerlens)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "--adapter is for models whose tensors have Hugging Face's names");
    if (!ctx->status && (last != &s->adapter || !adapter_tie(ctx, s)) &&
        !vocab_parse(ctx, &side->memory, dir, "adapter_config.json", HF_MAX_CONFIG, &root) &&
        !adapter_check(ctx, dir, root) &&
        !(weights ? safetensors_open(ctx, side, weights) : checkpoint_open(ctx, side, pickled)) &&
        !hf_strip_names(ctx, side))
        adapter_tensors(ctx, s, side, root);
    free(root);
    return ctx->status;
}

#endif

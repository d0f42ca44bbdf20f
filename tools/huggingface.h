/* A directory as Hugging Face's transformers write it: config.json, model.safetensors (or shards
 * with an index), and the vocabulary. What config.json asks for and this project's model does not
 * compute is refused, so that no model is converted into another one. */
#ifndef TOOLS_HUGGINGFACE_H
#define TOOLS_HUGGINGFACE_H

#include "safetensors.h"

enum { HF_MAX_CONFIG = 1 << 20 }; /* bytes; one of GPT-2's has some hundred */

/* What a directory may hold that is read, besides shards. */
static const char *const hf_files[] = {"config.json",
                                       "model.safetensors",
                                       "model.safetensors.index.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "added_tokens.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json"};

TOOLS_FN attn_status hf_refuse(attn_ctx *ctx, const char *key, const json_value *v,
                               const char *expected)
{
    shown value;
    const char *text = v->kind == JSON_TRUE    ? "true"
                       : v->kind == JSON_FALSE ? "false"
                       : v->kind == JSON_NULL  ? "null"
                       : v->text               ? v->text
                                               : "a list or object";
    size_t size = v->text ? v->size : strlen(text);
    return tool_fail(ctx, ATTN_E_UNSUPPORTED, "config.json: %s is %s; only %s is supported", key,
                     show(value, text, size), expected);
}

TOOLS_FN attn_status hf_number(attn_ctx *ctx, const json_value *root, const char *key,
                               const char *old_key, uint64_t *number)
{
    const json_value *v = json_get(root, key);
    if (!v && old_key)
        v = json_get(root, old_key);
    if (!v)
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json has no %s", key);
    if (!json_u64(v, number))
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json: %s is not a whole number", key);
    return ATTN_OK;
}

/* A token id, a list of them (the first counts), or null. */
TOOLS_FN attn_status hf_token(attn_ctx *ctx, const json_value *root, const char *key, int64_t *id)
{
    const json_value *v = json_get(root, key);
    uint64_t number;
    *id = v ? SOURCE_NO_TOKEN : SOURCE_UNSAID;
    if (v && v->kind == JSON_ARRAY && v->size > 0)
        v++;
    if (!v || v->kind == JSON_NULL)
        return ATTN_OK;
    if (!json_u64(v, &number) || number > INT32_MAX)
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json: %s is not a token id", key);
    *id = (int64_t)number;
    return ATTN_OK;
}

/* Settings that change what the model computes: each must have the value given here. */
TOOLS_FN attn_status hf_check_kind(attn_ctx *ctx, const json_value *root)
{
    static const struct {
        const char *key;
        json_kind kind;
        const char *value;
    } flags[] = {{"scale_attn_by_inverse_layer_idx", JSON_FALSE, "false"},
                 {"add_cross_attention", JSON_FALSE, "false"},
                 {"scale_attn_weights", JSON_TRUE, "true"}};
    const json_value *v;
    size_t i;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): json_parse gives OK only with a root */
    if (root->kind != JSON_OBJECT)
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json is not a JSON object");
    if ((v = json_get(root, "model_type")) != NULL && !json_is(v, "gpt2"))
        return hf_refuse(ctx, "model_type", v, "gpt2");
    if ((v = json_get(root, "activation_function")) != NULL && !json_is(v, "gelu_new") &&
        !json_is(v, "gelu_pytorch_tanh"))
        return hf_refuse(ctx, "activation_function", v, "gelu_new (or gelu_pytorch_tanh)");
    for (i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if ((v = json_get(root, flags[i].key)) != NULL && v->kind != flags[i].kind)
            return hf_refuse(ctx, flags[i].key, v, flags[i].value);
    return ATTN_OK;
}

TOOLS_FN attn_status hf_read_config(attn_ctx *ctx, source *s, const json_value *root)
{
    const json_value *v;
    if (hf_check_kind(ctx, root) || hf_number(ctx, root, "vocab_size", NULL, &s->n_vocab) ||
        hf_number(ctx, root, "n_positions", "n_ctx", &s->n_ctx) ||
        hf_number(ctx, root, "n_embd", NULL, &s->d_model) ||
        hf_number(ctx, root, "n_head", NULL, &s->n_head) ||
        hf_number(ctx, root, "n_layer", NULL, &s->n_layer) ||
        hf_token(ctx, root, "bos_token_id", &s->bos) ||
        hf_token(ctx, root, "eos_token_id", &s->eos))
        return ctx->status;
    s->d_mlp = s->d_model <= UINT64_MAX / 4 ? 4 * s->d_model : UINT64_MAX;
    v = json_get(root, "n_inner");
    if (v && v->kind != JSON_NULL && hf_number(ctx, root, "n_inner", NULL, &s->d_mlp))
        return ctx->status;
    s->ln_eps = 1e-5;
    v = json_get(root, "layer_norm_epsilon");
    if (v && !json_double(v, &s->ln_eps))
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json: layer_norm_epsilon is not a number");
    v = json_get(root, "tie_word_embeddings");
    if (v && v->kind != JSON_TRUE && v->kind != JSON_FALSE)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "config.json: tie_word_embeddings is neither true nor false");
    s->says_untied = v && v->kind == JSON_FALSE;
    return ATTN_OK;
}

/* Opens the shards that an index names; every tensor must be where the index says. */
TOOLS_FN attn_status hf_open_shards(attn_ctx *ctx, source *s, const char *dir,
                                    const json_value *map)
{
    const json_value *v;
    size_t i, shard, n_shards = 0;
    name_table opened;
    shown name, file;
    char *path;
    if (!map || map->kind != JSON_OBJECT || map->size == 0)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "model.safetensors.index.json has no object weight_map");
    if (names_init(ctx, &s->memory, &opened, map->size))
        return ctx->status;
    for (i = 0, v = map + 1; i < map->size; i++, v += v->span) {
        if (v->kind != JSON_STRING || v->size == 0 || memchr(v->text, '/', v->size) ||
            memchr(v->text, '\\', v->size) || memchr(v->text, 0, v->size))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "model.safetensors.index.json: the file of %s is "
                             "not the name of a file beside it",
                             show(name, v->key, v->key_size));
        shard = n_shards;
        if (!names_add(&opened, v->text, v->size, &shard))
            continue;
        n_shards++;
        path = arena_text(ctx, &s->memory, v->text, v->size);
        if (!path || (path = arena_path(ctx, &s->memory, dir, path)) == NULL ||
            safetensors_open(ctx, s, path))
            return ctx->status;
    }
    if (source_index(ctx, s))
        return ctx->status;
    for (i = 0, v = map + 1; i < map->size; i++, v += v->span) {
        const size_t prefix = v->key_size > 12 && memcmp(v->key, "transformer.", 12) == 0 ? 12 : 0;
        size_t at;
        if (!names_find(&s->by_name, v->key + prefix, v->key_size - prefix, &at) ||
            strlen(s->tensors[at].file->name) != v->size ||
            memcmp(s->tensors[at].file->name, v->text, v->size) != 0)
            return tool_fail(ctx, ATTN_E_FORMAT, "model.safetensors.index.json: %s is not in %s",
                             show(name, v->key, v->key_size), show(file, v->text, v->size));
    }
    return ATTN_OK;
}

TOOLS_FN attn_status hf_open_weights(attn_ctx *ctx, source *s, const char *dir)
{
    char *single = arena_path(ctx, &s->memory, dir, "model.safetensors");
    char *index = arena_path(ctx, &s->memory, dir, "model.safetensors.index.json");
    char *pickle = arena_path(ctx, &s->memory, dir, "pytorch_model.bin");
    char *text = NULL;
    size_t size = 0;
    json_value *root = NULL;
    if (!single || !index || !pickle)
        return ctx->status;
    if (system_exists(single)) {
        if (safetensors_open(ctx, s, single) == ATTN_OK)
            source_index(ctx, s);
        return ctx->status;
    }
    if (system_exists(index)) {
        if (read_file(ctx, &s->memory, index, VOCAB_MAX_FILE, &text, &size) == ATTN_OK &&
            json_parse(ctx, index, text, size, &root) == ATTN_OK)
            hf_open_shards(ctx, s, dir, json_get(root, "weight_map"));
        free(root);
        return ctx->status;
    }
    if (system_exists(pickle))
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s holds pytorch_model.bin, which is a program "
                         "as much as data; tools/pickle-to-safetensors.py makes a "
                         "model.safetensors of it",
                         dir);
    return tool_fail(ctx, ATTN_E_IO,
                     "neither model.safetensors nor model.safetensors.index.json "
                     "in %s",
                     dir);
}

TOOLS_FN attn_status hf_open(attn_ctx *ctx, source *s, const char *dir)
{
    char *config = arena_path(ctx, &s->memory, dir, "config.json"), *text = NULL;
    json_value *root = NULL;
    size_t size = 0;
    if (!config)
        return ctx->status;
    s->config_name = "config.json";
    if (!system_exists(config))
        return tool_fail(ctx, ATTN_E_IO,
                         "%s holds no config.json, which a Hugging Face directory would", dir);
    if (read_file(ctx, &s->memory, config, HF_MAX_CONFIG, &text, &size) == ATTN_OK &&
        json_parse(ctx, config, text, size, &root) == ATTN_OK)
        hf_read_config(ctx, s, root);
    free(root);
    return ctx->status ? ctx->status : hf_open_weights(ctx, s, dir);
}

#endif

/* Reads settings of a config.json. */
#ifndef TOOLS_CONFIG_H
#define TOOLS_CONFIG_H

#include "tools/common/json.h"
#include "tools/common/files.h"

TOOLS_FN attn_status config_refuse(attn_ctx *ctx, const char *key, const json_value *v,
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

/* Reads the setting of the first of these names that is there. Blanks separate the names. */
TOOLS_FN attn_status config_number(attn_ctx *ctx, const json_value *root, const char *keys,
                                   uint64_t *number)
{
    const json_value *v = NULL;
    const int first = (int)strcspn(keys, " ");
    const char *key;
    size_t size;
    for (key = keys; *key && !v; key += size + (key[size] == ' ')) {
        size = strcspn(key, " ");
        v = json_find(root, key, size);
    }
    if (!v)
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json has no %.*s, as GPT-2 has", first, keys);
    if (!json_u64(v, number))
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json: %.*s is not a whole number", first,
                         keys);
    return ATTN_OK;
}

/* Reads an activation function by transformers' names; TransformerLens has the first `n` of them. Returns 0 if it is
 * none of these. */
TOOLS_FN int config_activation(attn_mlp_act *kind, const json_value *v, size_t n)
{
    static const struct {
        const char *name;
        attn_mlp_act kind;
    } known[] = {{"gelu_new", ATTN_ACT_GELU_TANH},
                 {"gelu_fast", ATTN_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", ATTN_ACT_GELU_TANH},
                 {"gelu", ATTN_ACT_GELU_ERF},
                 {"relu", ATTN_ACT_RELU},
                 {"silu", ATTN_ACT_SILU},
                 {"swish", ATTN_ACT_SILU},
                 {"gelu_accurate", ATTN_ACT_GELU_TANH},
                 {"gelu_python_tanh", ATTN_ACT_GELU_TANH},
                 {"gelu_python", ATTN_ACT_GELU_ERF}};
    for (size_t i = 0; i < n && i < sizeof known / sizeof known[0]; i++)
        if (json_is(v, known[i].name)) {
            *kind = known[i].kind;
            return 1;
        }
    return 0;
}

/* Reads true or false; if there is no such setting, *flag stays. */
TOOLS_FN attn_status config_flag(attn_ctx *ctx, const json_value *root, const char *key, int *flag)
{
    const json_value *v = json_get(root, key);
    if (v && v->kind != JSON_TRUE && v->kind != JSON_FALSE)
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json: %s is neither true nor false", key);
    if (v)
        *flag = v->kind == JSON_TRUE;
    return ATTN_OK;
}

/* Reads the epsilon of LayerNorm, 1e-5 if there is none. */
TOOLS_FN attn_status config_epsilon(attn_ctx *ctx, const json_value *root, const char *key,
                                    double *epsilon)
{
    const json_value *v = json_get(root, key);
    *epsilon = 1e-5;
    if (v && !json_double(v, epsilon))
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json: %s is not a number", key);
    return ATTN_OK;
}

#endif

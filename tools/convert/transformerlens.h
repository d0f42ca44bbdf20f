/* Reads the state dict of TransformerLens's HookedTransformer or TransformerBridge: a directory with
 * model.safetensors, whose tensors have TransformerLens's names, and config.json, the fields of model.cfg:
 *
 *     state = {name: t.clone().contiguous() for name, t in model.state_dict().items()}
 *     safetensors.torch.save_file(state, "DIRECTORY/model.safetensors")
 *     json.dump(model.cfg.to_dict(), open("DIRECTORY/config.json", "w"), default=str)
 *
 * config.json                                  what happens
 *   normalization_type   LN                    ln1.w, ln1.b, ... are read
 *   ... LNPre                                  LayerNorm is folded into the weights: w is 1, b is 0
 *   attn_only true                             MLPs whose weights are zero, so that they write nothing
 *   act_fn               gelu_new, gelu_fast, gelu_pytorch_tanh; gelu; relu; silu
 *   use_attn_scale false, scale_attn_by_inverse_layer_idx true
 *                                              version 2 of the file format
 *   rotary, shortformer and other positions, RMSNorm or none, gates, experts, windows, softcaps, other
 *     scales of scores, parallel MLPs          refused
 *
 * tensors
 *   attn.W_Q, W_K, W_V   [H, C, d]             become one matrix [C, 3 C]
 *   attn.W_O             [H, d, C]             H d must be C
 *   unembed.b_U                                kept if it is not all zeros
 *   attn.mask, attn.IGNORE                     left out
 *
 * tensors of a TransformerBridge
 *   attn.q, k, v.weight  [C, C]                are [out, in], and the other weights of layers [in, out]
 *   ln1.weight, ln1.bias                       are there too if they are folded */
#ifndef TOOLS_TRANSFORMERLENS_H
#define TOOLS_TRANSFORMERLENS_H

#include "config.h"
#include "safetensors.h"

/* Is it a configuration of TransformerLens? */
TOOLS_FN int tl_is_config(const json_value *root)
{
    return root && root->kind == JSON_OBJECT && json_get(root, "d_vocab") &&
           json_get(root, "d_model");
}

/* A setting that changes what the model computes, and its only value that is read: a text, "true", "false",
 * or "none" for null, a number below 0 and a missing setting. */
typedef struct tl_setting {
    const char *key, *value;
} tl_setting;

static const tl_setting tl_settings[] = {{"positional_embedding_type", "standard"},
                                         {"attention_dir", "causal"},
                                         {"gated_mlp", "false"},
                                         {"parallel_attn_mlp", "false"},
                                         {"post_embedding_ln", "false"},
                                         {"use_normalization_before_and_after", "false"},
                                         {"use_qk_norm", "false"},
                                         {"final_rms", "false"},
                                         {"use_local_attn", "false"},
                                         {"use_logn_attn", "false"},
                                         {"use_attention_sinks", "false"},
                                         {"load_in_4bit", "false"},
                                         {"num_experts", "none"},
                                         {"clip_qkv", "none"},
                                         {"attn_scores_soft_cap", "none"},
                                         {"output_logits_soft_cap", "none"}};

TOOLS_FN int tl_is_usual(const json_value *v, const char *value)
{
    double number;
    if (!v || (v->kind == JSON_NULL && strcmp(value, "none") == 0))
        return 1;
    if (v->kind == JSON_NUMBER)
        return strcmp(value, "none") == 0 && json_double(v, &number) && number < 0;
    if (v->kind == JSON_FALSE)
        return strcmp(value, "false") == 0;
    return v->kind == JSON_STRING && json_is(v, value);
}

TOOLS_FN attn_status tl_read_activation(attn_ctx *ctx, source *s, const json_value *root)
{
    const json_value *v = json_get(root, "act_fn");
    if (s->attn_only || (v && config_activation(&s->act_fn, v, 6)))
        return ATTN_OK;
    return v ? config_refuse(ctx, "act_fn", v, "gelu_new, gelu_fast, gelu, relu or silu")
             : tool_fail(ctx, ATTN_E_FORMAT, "config.json has no act_fn");
}

/* The scale of the scores must be sqrt(d_head), or there must be none. */
TOOLS_FN attn_status tl_read_scale(attn_ctx *ctx, source *s, const json_value *root,
                                   uint64_t d_head)
{
    const json_value *v = json_get(root, "attn_scale");
    const double usual = sqrt((double)d_head);
    double scale = usual;
    int scaled = 1;
    if (config_flag(ctx, root, "use_attn_scale", &scaled) ||
        config_flag(ctx, root, "scale_attn_by_inverse_layer_idx",
                    &s->scale_attn_by_inverse_layer_idx))
        return ctx->status;
    s->unscaled_attn = !scaled;
    if (v && v->kind != JSON_NULL && scaled && json_double(v, &scale) && scale >= 0 &&
        fabs(scale - usual) > 1e-6 * usual)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "config.json: attn_scale is %g; "
                         "only the square root of d_head, %g, is supported",
                         scale, usual);
    return ATTN_OK;
}

/* Reads settings that change what the model computes. */
TOOLS_FN attn_status tl_read_kind(attn_ctx *ctx, source *s, const json_value *root)
{
    const json_value *v;
    for (size_t i = 0; i < sizeof tl_settings / sizeof tl_settings[0]; i++)
        if (!tl_is_usual(v = json_get(root, tl_settings[i].key), tl_settings[i].value))
            return config_refuse(ctx, tl_settings[i].key, v, tl_settings[i].value);
    v = json_get(root, "normalization_type");
    s->folded_ln = v && json_is(v, "LNPre");
    if (v && !s->folded_ln && !json_is(v, "LN"))
        return config_refuse(ctx, "normalization_type", v, "LN or LNPre");
    if (config_flag(ctx, root, "attn_only", &s->attn_only))
        return ctx->status;
    return tl_read_activation(ctx, s, root);
}

/* Two sizes that attn.h needs equal. */
TOOLS_FN attn_status tl_need_same(attn_ctx *ctx, const json_value *root, const char *key,
                                  uint64_t expected, const char *what)
{
    const json_value *v = json_get(root, key);
    uint64_t number = 0;
    if (!v || v->kind == JSON_NULL || (json_u64(v, &number) && number == expected))
        return ATTN_OK;
    return tool_fail(ctx, ATTN_E_UNSUPPORTED, "config.json: %s must be %s, which is %llu", key,
                     what, TOOLS_LLU(expected));
}

TOOLS_FN attn_status tl_read_config(attn_ctx *ctx, source *s, const json_value *root)
{
    uint64_t d_head = 0;
    s->transformerlens = 1;
    s->bos = s->eos = SOURCE_UNSAID;
    if (tl_read_kind(ctx, s, root) || config_number(ctx, root, "d_vocab", &s->n_vocab) ||
        config_number(ctx, root, "n_ctx", &s->n_ctx) ||
        config_number(ctx, root, "d_model", &s->d_model) ||
        config_number(ctx, root, "d_head", &d_head) ||
        config_number(ctx, root, "n_heads", &s->n_head) ||
        config_number(ctx, root, "n_layers", &s->n_layer))
        return ctx->status;
    if (d_head == 0 || s->d_model / d_head != s->n_head || s->d_model % d_head)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "config.json: n_heads %llu times d_head %llu must be d_model, %llu, "
                         "as in GPT-2",
                         TOOLS_LLU(s->n_head), TOOLS_LLU(d_head), TOOLS_LLU(s->d_model));
    if (tl_read_scale(ctx, s, root, d_head) ||
        tl_need_same(ctx, root, "d_vocab_out", s->n_vocab, "d_vocab") ||
        tl_need_same(ctx, root, "n_key_value_heads", s->n_head, "n_heads"))
        return ctx->status;
    s->d_mlp = 1; /* of MLPs that write nothing */
    if (!s->attn_only && config_number(ctx, root, "d_mlp", &s->d_mlp))
        return ctx->status;
    return config_epsilon(ctx, root, "eps", &s->ln_eps);
}

/* Call this if the tensors have TransformerLens's names. */
TOOLS_FN attn_status tl_recognise(attn_ctx *ctx, source *s)
{
    if (!s->transformerlens)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "the tensors have TransformerLens's names, so config.json must have the "
                         "fields of its model.cfg: n_layers, d_model, d_head, "
                         "n_heads, d_mlp, d_vocab, n_ctx, act_fn, normalization_type, attn_only");
    s->names = source_find(s, "embed.W_E") ? NAMES_TRANSFORMERLENS : NAMES_BRIDGE;
    s->says_untied = s->names == NAMES_TRANSFORMERLENS;
    s->folded_ln &= s->says_untied;
    return ATTN_OK;
}

TOOLS_FN attn_status tl_refuse_tensors(attn_ctx *ctx, const source *s)
{
    shown name;
    const char *first = s->n_tensors && s->tensors ? s->tensors[0].name : "none";
    return tool_fail(ctx, ATTN_E_FORMAT,
                     "config.json is TransformerLens's, but no tensor is embed.W_E or "
                     "embed.weight; the first is %s",
                     show(name, first, strlen(first)));
}

/* The shape in which TransformerLens stores a part of a layer's attention; 0: as any other part. */
TOOLS_FN int tl_shape(const source *s, const char *part, uint64_t shape[3])
{
    const int is_qkv = strcmp(part, "attn.W_QKV") == 0, is_bias = strcmp(part, "attn.b_QKV") == 0;
    if (!is_qkv && !is_bias && strcmp(part, "attn.W_O") != 0)
        return 0;
    shape[0] = s->n_head;
    shape[1] = is_qkv ? s->d_model : s->d_model / s->n_head;
    shape[2] = is_qkv ? s->d_model / s->n_head : s->d_model;
    return is_bias ? 2 : 3;
}

/* Parts that a folded or attention-only model does not have. *fill: the value of all its numbers. */
TOOLS_FN int tl_lacks(const source *s, const char *part, float *fill)
{
    const int is_ln = strncmp(part, "ln", 2) == 0, is_mlp = strncmp(part, "mlp.", 4) == 0;
    *fill = is_ln && part[strlen(part) - 1] == 'w' ? 1.0f : 0.0f;
    return (is_ln && s->folded_ln) || (is_mlp && s->attn_only) ||
           (s->attn_only && strncmp(part, "ln2.", 4) == 0);
}

/* Reads outputs first .. first+n-1 of the matrix of queries, keys and values, to piece [C, n]. from: the
 * three tensors [H, C, d]. */
TOOLS_FN attn_status tl_read_qkv(attn_ctx *ctx, source *s, const source_tensor *const from[3],
                                 uint64_t first, uint64_t n, float limit, float *piece)
{
    const uint64_t c = s->d_model, d = s->d_model / s->n_head;
    float *part = (float *)malloc((size_t)(c * d) * sizeof *part);
    uint64_t count;
    if (!part)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for the weights of a head");
    for (uint64_t at = first; at < first + n && !ctx->status; at += count) {
        const uint64_t head = at % c / d, column = at % d;
        count = d - column < first + n - at ? d - column : first + n - at;
        if (source_read(ctx, s, from[at / c], head * c, c, column, count, limit, part))
            break;
        for (uint64_t i = 0; i < c; i++)
            memcpy(piece + i * n + (at - first), part + i * count, (size_t)count * sizeof *part);
    }
    free(part);
    return ctx->status;
}

#endif

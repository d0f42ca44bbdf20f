/* Reads a directory of Hugging Face's transformers: config.json, model.safetensors or pytorch_model.bin (or
 * shards with an index), and the vocabulary; or a file of torch.save (checkpoint.h) with what is beside it.
 * If config.json asks for something that attn.h does not compute, it is refused, so that no model is
 * converted to another one.
 *
 * transformerlens.h reads a directory whose config.json is TransformerLens's.
 *
 * config.json                                  what happens
 *   model_type                                 gpt2; any other is refused by its name
 *   activation_function  gelu_new, gelu_fast,  GELU by tanh: their constants differ by less than
 *     gelu_pytorch_tanh, gelu_python_tanh,     f32 shows
 *     gelu_accurate
 *   ... gelu, gelu_python; relu; silu, swish   version 2 of the file format
 *   ... none                                   gelu_new as in transformers; gelu in a configuration
 *                                              of nanoGPT's (block_size), with a note
 *   scale_attn_weights false,                  version 2 of the file format
 *     scale_attn_by_inverse_layer_idx true
 *   reorder_and_upcast_attn                    the same mathematics in f32
 *   tie_word_embeddings                        as in transformers 5: lm_head.weight counts if it
 *                                              differs from wte's, with a note where the
 *                                              configuration means true
 *   hidden_size, num_hidden_layers, ...        other names of n_embd, n_layer, n_head, n_positions;
 *   emb_dim, n_layers, context_length ...      those of "Build a Large Language Model"
 *   vocab_size above the vocabulary's          such ids have no text, with a note; refused if there are
 *                                              more of them than padding explains
 *   bos_token_id, eos_token_id                 kept, of eos_token_id up to 32. generation_config.json's
 *                                              eos_token_id counts before config.json's. Outside the
 *                                              vocabulary: with a note the token of tokenizer_config.json,
 *                                              else of special_tokens_map.json, else for texts'
 *                                              beginning of generation_config.json, else <|endoftext|>
 *   add_cross_attention true, pruned_heads,    refused
 *     quantization_config
 *   dropouts, initializer_range, summary_*     logits do not depend on them
 *
 * tensors
 *   F32, F16, BF16                             exact; F64 is rounded to f32 with a note
 *   anything before wte.weight                 a prefix that is removed (PEFT, TRL, Lightning, ...);
 *                                              two models in one file: refused without --prefix
 *   transformer., model., module.              prefixes that are removed, in any number and order
 *   _orig_mod, _fsdp_wrapped_module, ...       removed from names anywhere
 *   Conv1D [in, out] or Linear [out, in]       c_attn shows which, because it is never square
 *   separate query, key and value              minGPT's names, and those of "Build a Large Language
 *                                              Model (From Scratch)"
 *   all biases missing                         zeros, with a note; one of them missing: refused
 *   masks, dropout, heads for other tasks      left out, with one note
 *   lm_head.bias, a tensor more in a layer     refused
 *   an adapter (LoRA and others of PEFT)       refused without its model, left out beside it; see adapter.h */
#ifndef TOOLS_HUGGINGFACE_H
#define TOOLS_HUGGINGFACE_H

#include "card.h"
#include "checkpoint.h"
#include "tools/common/vocab_files.h"
#include "transformerlens.h"

enum { HF_MAX_CONFIG = 1 << 20 }; /* bytes; one of GPT-2's has some hundred */

/* The files of a directory that are read, besides shards. */
static const char *const hf_files[] = {"config.json",
                                       "model.safetensors",
                                       "model.safetensors.index.json",
                                       "generation_config.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "encoder.json",
                                       "vocab.bpe",
                                       "added_tokens.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "adapter_config.json",
                                       "meta.pkl"};

/* The path of a file of a directory; NULL if it is not there, or after a failure. */
TOOLS_FN char *hf_file(attn_ctx *ctx, arena *memory, const char *dir, const char *name)
{
    char *const path = arena_path(ctx, memory, dir, name);
    return path && system_exists(path) ? path : NULL;
}

/* Adds another token that ends texts. */
TOOLS_FN void hf_add_end(source *s, const char *file, uint64_t id)
{
    size_t i;
    for (i = 0; i < s->n_more_eos && (uint64_t)s->more_eos[i] != id; i++)
        continue;
    if ((s->eos >= 0 && (uint64_t)s->eos == id) || i < s->n_more_eos)
        return;
    if (s->eos < 0)
        s->eos = (int64_t)id;
    else if (id >= s->n_vocab || s->n_more_eos == SOURCE_MORE_EOS)
        source_note("%s: the end-of-text token %llu is %s; left out", file, TOOLS_LLU(id),
                    id >= s->n_vocab ? "outside the vocabulary" : "one of more than 32");
    else
        s->more_eos[s->n_more_eos++] = (int32_t)id;
}

/* Reads a token id, a list of ids, or null. Of several tokens that begin a text only the first one is used;
 * all tokens that end a text are. */
TOOLS_FN attn_status hf_token(attn_ctx *ctx, source *s, const char *file, const json_value *root,
                              const char *key)
{
    const json_value *v = json_get(root, key);
    const int is_list = v && v->kind == JSON_ARRAY, is_eos = strcmp(key, "eos_token_id") == 0;
    int64_t *const id = is_eos ? &s->eos : &s->bos;
    size_t n = is_list ? v->size : v && v->kind != JSON_NULL;
    uint64_t number;
    *id = v ? SOURCE_NO_TOKEN : SOURCE_UNSAID;
    if (is_eos)
        s->n_more_eos = 0;
    if (!is_eos && n > 1)
        source_note("%s: %s is a list; its first counts", file, key);
    if (is_list)
        v++;
    for (size_t i = 0; i < n; i++, v++) {
        if (!json_u64(v, &number) || number > INT32_MAX)
            return tool_fail(ctx, ATTN_E_FORMAT, "%s: %s is not a token id", file, key);
        if (is_eos)
            hf_add_end(s, file, number);
        else if (*id < 0)
            *id = (int64_t)number;
    }
    return ATTN_OK;
}

/* Reads generation_config.json, whose tokens end a text in transformers. */
TOOLS_FN attn_status hf_read_generation(attn_ctx *ctx, source *s, const char *dir)
{
    static const char file[] = "generation_config.json";
    const int64_t eos = s->eos;
    json_value *root = NULL;
    const json_value *v;
    uint64_t bos;
    if (!vocab_parse(ctx, &s->memory, dir, file, HF_MAX_CONFIG, &root) &&
        (v = json_get(root, "eos_token_id")) != NULL && v->kind != JSON_NULL &&
        hf_token(ctx, s, file, root, "eos_token_id") == ATTN_OK && eos >= 0 && s->eos != eos)
        source_note("%s says that id %lld ends a text, config.json id %lld; "
                    "the first counts, as in transformers",
                    file, (long long)s->eos, (long long)eos);
    if ((v = json_get(root, "bos_token_id")) != NULL && json_u64(v, &bos) && bos < s->n_vocab)
        s->generation_bos = (int64_t)bos;
    free(root);
    return ctx->status;
}

/* Reads activation_function, in transformers' names. Without it, GPT-2's function; nanoGPT's if the
 * configuration is nanoGPT's. */
TOOLS_FN attn_status hf_read_activation(attn_ctx *ctx, source *s, const json_value *root)
{
    const json_value *v = json_get(root, "activation_function");
    if (!v && json_get(root, "block_size")) {
        s->act_fn = ATTN_ACT_GELU_ERF;
        source_note("config.json has no activation_function; "
                    "taken as \"gelu\", which nanoGPT computes since 2023 "
                    "(\"gelu_new\" is what it computed before, and minGPT does)");
    }
    return v && !config_activation(&s->act_fn, v, SIZE_MAX)
               ? config_refuse(
                     ctx, "activation_function", v,
                     "gelu (also as gelu_new, gelu_fast or gelu_pytorch_tanh), relu or silu")
               : ATTN_OK;
}

/* Reads settings that change what the model computes. (reorder_and_upcast_attn changes only the order of
 * operations, for half precision.) */
TOOLS_FN attn_status hf_read_kind(attn_ctx *ctx, source *s, const json_value *root)
{
    const json_value *v;
    int scaled = 1, crossed = 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): json_parse gives OK only with a root */
    if (root->kind != JSON_OBJECT)
        return tool_fail(ctx, ATTN_E_FORMAT, "config.json is not a JSON object");
    if ((v = json_get(root, "model_type")) != NULL && !json_is(v, "gpt2"))
        return config_refuse(ctx, "model_type", v, "gpt2");
    if ((v = json_get(root, "quantization_config")) != NULL && v->kind != JSON_NULL)
        return config_refuse(ctx, "quantization_config", v, "none");
    if ((v = json_get(root, "pruned_heads")) != NULL && v->kind != JSON_NULL && v->size > 0)
        return config_refuse(ctx, "pruned_heads", v, "none");
    if (hf_read_activation(ctx, s, root) || config_flag(ctx, root, "scale_attn_weights", &scaled) ||
        config_flag(ctx, root, "scale_attn_by_inverse_layer_idx",
                    &s->scale_attn_by_inverse_layer_idx) ||
        config_flag(ctx, root, "add_cross_attention", &crossed))
        return ctx->status;
    s->unscaled_attn = !scaled;
    if (json_get(json_get(root, "auto_map"), "AutoModelForCausalLM"))
        source_note(
            "config.json: auto_map names a program as the model, which attn-convert does not "
            "run: what is converted is GPT-2 as transformers have it");
    return crossed ? config_refuse(ctx, "add_cross_attention",
                                   json_get(root, "add_cross_attention"), "false")
                   : ATTN_OK;
}

/* Reads the names of a classifier's labels: {"0": "NEGATIVE", ...}. */
TOOLS_FN attn_status hf_read_labels(attn_ctx *ctx, source *s, const json_value *root)
{
    const json_value *m = json_get(root, "id2label");
    const size_t n = m && m->kind == JSON_OBJECT ? m->size : 0;
    s->labels = n ? (const char **)arena_alloc(ctx, &s->memory, n, sizeof *s->labels) : NULL;
    s->n_labels = s->labels ? n : 0;
    for (size_t i = 0, span = 1; i < s->n_labels; i++, span = m->span) {
        const unsigned long id = (m += span)->key_size ? strtoul(m->key, NULL, 10) : n;
        if (id < n && m->kind == JSON_STRING)
            s->labels[id] = arena_text(ctx, &s->memory, m->text, m->size);
    }
    return ctx->status;
}

TOOLS_FN attn_status hf_read_config(attn_ctx *ctx, source *s, const json_value *root)
{
    int tied = 1;
    static const char positions[] =
        "n_positions max_position_embeddings n_ctx block_size context_length";
    if (hf_read_kind(ctx, s, root) || config_number(ctx, root, "vocab_size", &s->n_vocab) ||
        config_number(ctx, root, positions, &s->n_ctx) ||
        config_number(ctx, root, "n_embd hidden_size emb_dim", &s->d_model) ||
        config_number(ctx, root, "n_head num_attention_heads n_heads", &s->n_head) ||
        config_number(ctx, root, "n_layer num_hidden_layers n_layers", &s->n_layer) ||
        hf_token(ctx, s, "config.json", root, "bos_token_id") ||
        hf_token(ctx, s, "config.json", root, "eos_token_id"))
        return ctx->status;
    s->d_mlp = s->d_model <= UINT64_MAX / 4 ? 4 * s->d_model : UINT64_MAX;
    const json_value *v = json_get(root, "n_inner");
    if (v && v->kind != JSON_NULL && config_number(ctx, root, "n_inner", &s->d_mlp))
        return ctx->status;
    if (config_epsilon(ctx, root, "layer_norm_epsilon", &s->ln_eps) ||
        config_flag(ctx, root, "tie_word_embeddings", &tied))
        return ctx->status;
    s->says_untied = !tied;
    return hf_read_labels(ctx, s, root);
}

/* Is it a bias of the model, and not of a head for another task? */
TOOLS_FN int hf_is_bias(const source_tensor *t)
{
    return lens_ends_in(t->name, ".bias") && !source_is_mask(t) &&
           (strncmp(t->name, "h.", 2) == 0 || strncmp(t->name, "blocks.", 7) == 0 ||
            strncmp(t->name, "ln_f.", 5) == 0);
}

/* Removes wrapping modules from a name, anywhere: torch.compile, FSDP, activation checkpointing, PEFT. */
TOOLS_FN void hf_unwrap(char *name)
{
    static const char *const wrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.",
                                           "_checkpoint_wrapped_module.", "_forward_module.",
                                           "base_model."};
    char *at = name;
    size_t i;
    while (at && *at) {
        for (i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
            const size_t n = strlen(wrappers[i]);
            if (strncmp(at, wrappers[i], n) == 0) {
                memmove(at, at + n, strlen(at + n) + 1);
                break;
            }
        }
        if (i == sizeof wrappers / sizeof wrappers[0]) {
            at = strchr(at, '.');
            at = at ? at + 1 : NULL;
        }
    }
}

/* The size of the prefix before the embedding's name, with its dot; SIZE_MAX: this is not the embedding. */
TOOLS_FN size_t hf_prefix_size(const char *name)
{
    static const char *const embeddings[] = {"wte.weight", "tok_emb.weight", "embed.W_E"};
    const size_t n = strlen(name);
    size_t m;
    for (size_t i = 0; i < sizeof embeddings / sizeof embeddings[0]; i++) {
        m = strlen(embeddings[i]);
        if (n >= m && strcmp(name + n - m, embeddings[i]) == 0 &&
            (n == m || name[n - m - 1] == '.'))
            return n - m;
    }
    return SIZE_MAX;
}

/* Removes from a name the prefix, or the part of it that the name has (heads for other tasks have only a
 * part), and the prefixes of Hugging Face and of modules that contain the model. */
TOOLS_FN char *hf_plain_name(char *name, const char *prefix, size_t size)
{
    static const char *const known[] = {"transformer.", "model.", "module."};
    const char *const end = prefix ? prefix + size : NULL;
    size_t i = 0, n;
    for (; prefix && prefix < end; prefix += n, name += n) {
        n = strcspn(prefix, ".") + 1;
        if (strncmp(name, prefix, n) != 0 || !name[n])
            break;
    }
    while (i < sizeof known / sizeof known[0]) {
        n = strlen(known[i++]);
        if (strncmp(name, known[i - 1], n) == 0 && name[n]) {
            name += n;
            i = 0;
        }
    }
    return name;
}

/* Removes prefixes from all names, after which tensors can be found. Those that do not begin as --prefix says are dropped. */
TOOLS_FN attn_status hf_strip_names(attn_ctx *ctx, source *s)
{
    const char *prefix = NULL, *const chosen = s->prefix ? s->prefix : "";
    size_t n, size = 0, kept = 0;
    shown a, b;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const char *const name = s->tensors[i].name;
        hf_unwrap(s->tensors[i].name);
        if (strncmp(name, chosen, strlen(chosen)) != 0)
            continue;
        s->tensors[kept++] = s->tensors[i];
        if ((n = hf_prefix_size(name)) == SIZE_MAX)
            continue;
        if (prefix && (n != size || memcmp(name, prefix, n) != 0))
            return tool_fail(
                ctx, ATTN_E_UNSUPPORTED,
                "%s holds two models, whose tensors begin with \"%s\" and \"%s\"; choose one with "
                "--prefix",
                s->tensors[i].file->name, show(a, prefix, size), show(b, name, n));
        prefix = name;
        size = n;
    }
    if (s->prefix && kept == 0)
        return tool_fail(ctx, ATTN_E_ARGUMENT, "--prefix: no tensor begins with \"%s\"", chosen);
    s->n_tensors = kept;
    s->prefix = NULL;
    if ((prefix = arena_text(ctx, &s->memory, prefix ? prefix : "", size)) == NULL)
        return ctx->status;
    for (size_t i = 0; i < s->n_tensors; i++)
        s->tensors[i].name = hf_plain_name(s->tensors[i].name, prefix, size);
    return source_index(ctx, s);
}

/* Finds out which names and which layout the tensors have. A linear layer is a Conv1D [in, out] in Hugging
 * Face's GPT-2, and a Linear [out, in] of the same name elsewhere. The shape of c_attn, whose sides differ by
 * a factor of three, shows which. */
TOOLS_FN attn_status hf_recognise(attn_ctx *ctx, source *s)
{
    if (hf_strip_names(ctx, s))
        return ctx->status;
    const source_tensor *t = source_find(s, "h.0.attn.c_attn.weight");
    if (source_find(s, "trf_blocks.0.norm1.scale"))
        s->names = NAMES_FROM_SCRATCH;
    else if (source_find(s, "tok_emb.weight"))
        s->names = NAMES_MINGPT;
    else if (source_find(s, "embed.W_E") || source_find(s, "blocks.0.attn.q.weight"))
        return tl_recognise(ctx, s);
    if (s->transformerlens)
        return tl_refuse_tensors(ctx, s);
    s->linears_out_in = s->names != NAMES_HF || (t && t->ndim == 2 && t->shape[1] == s->d_model &&
                                                 t->shape[0] / 3 == s->d_model);
    s->no_qkv_biases =
        s->names == NAMES_FROM_SCRATCH && !source_find(s, "trf_blocks.0.att.W_query.bias");
    s->no_biases = s->names != NAMES_FROM_SCRATCH;
    for (size_t i = 0; s->tensors && i < s->n_tensors; i++)
        if (hf_is_bias(&s->tensors[i]))
            s->no_biases = 0;
    return ATTN_OK;
}

/* Opens the shards that an index names; every tensor must be where the index says. */
TOOLS_FN attn_status hf_open_shards(attn_ctx *ctx, source *s, const char *dir, const char *index,
                                    const json_value *map,
                                    attn_status (*open)(attn_ctx *, source *, const char *))
{
    const json_value *v;
    size_t i, shard, n_shards = 0;
    name_table opened;
    shown name, file;
    char *path;
    if (!map || map->kind != JSON_OBJECT || map->size == 0)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s has no object weight_map", index);
    if (names_init(ctx, &s->memory, &opened, map->size))
        return ctx->status;
    for (i = 0, v = map + 1; i < map->size; i++, v += v->span) {
        if (v->kind != JSON_STRING || v->size == 0 || memchr(v->text, '/', v->size) ||
            memchr(v->text, '\\', v->size) || memchr(v->text, 0, v->size))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the file of %s is not the name of a file beside it", index,
                             show(name, v->key, v->key_size));
        shard = n_shards;
        if (!names_add(&opened, v->text, v->size, &shard))
            continue;
        n_shards++;
        path = arena_text(ctx, &s->memory, v->text, v->size);
        if (!path || (path = arena_path(ctx, &s->memory, dir, path)) == NULL || open(ctx, s, path))
            return ctx->status;
    }
    if (source_index(ctx, s))
        return ctx->status;
    for (i = 0, v = map + 1; i < map->size; i++, v += v->span) {
        size_t at;
        if (!names_find(&s->by_name, v->key, v->key_size, &at) ||
            strlen(s->tensors[at].file->name) != v->size ||
            memcmp(s->tensors[at].file->name, v->text, v->size) != 0)
            return tool_fail(ctx, ATTN_E_FORMAT, "%s: %s is not in %s", index,
                             show(name, v->key, v->key_size), show(file, v->text, v->size));
    }
    return hf_recognise(ctx, s);
}

/* Weights of frameworks that transformers 5 does not support any more. */
TOOLS_FN attn_status hf_refuse_weights(attn_ctx *ctx, const char *path, int is_tensorflow)
{
    return tool_fail(
        ctx, ATTN_E_UNSUPPORTED,
        "%s has the weights of %s; in Python, transformers 4 changes them: "
        "GPT2LMHeadModel.from_pretrained(DIRECTORY, from_%s=True).save_pretrained(OTHER)",
        path, is_tensorflow ? "TensorFlow" : "Flax", is_tensorflow ? "tf" : "flax");
}

/* Is a path a TensorFlow checkpoint as OpenAI and gpt-2-simple gave them: a directory with hparams.json, one
 * of its files, or the name by which TensorFlow knows it, MODEL.ckpt of MODEL.ckpt.index? */
TOOLS_FN int hf_is_openai(attn_ctx *ctx, arena *memory, const char *path)
{
    const char *const name = base_name(path);
    char *beside = (char *)arena_alloc(ctx, memory, strlen(path) + sizeof ".index", 1);
    if (!beside)
        return 0;
    sprintf(beside, "%s.index", path);
    if (system_exists(beside))
        return 1;
    if (system_is_directory(path))
        return hf_file(ctx, memory, path, "hparams.json") != NULL;
    return (strstr(name, ".ckpt.index") || strstr(name, ".ckpt.meta") ||
            strstr(name, ".ckpt.data-")) &&
           system_exists(path);
}

TOOLS_FN attn_status hf_refuse_openai(attn_ctx *ctx, const char *path)
{
    return tool_fail(
        ctx, ATTN_E_UNSUPPORTED,
        "%s is OpenAI's TensorFlow checkpoint, which Python changes: transformers 4 has "
        "transformers.models.gpt2.convert_gpt2_original_tf_checkpoint_to_pytorch",
        base_name(path));
}

/* Says which model a directory with nothing but an adapter needs. */
TOOLS_FN attn_status hf_refuse_adapter(attn_ctx *ctx, source *s, const char *dir)
{
    json_value *root = NULL;
    shown name;
    vocab_parse(ctx, &s->memory, dir, "adapter_config.json", HF_MAX_CONFIG, &root);
    const json_value *const base = json_get(root, "base_model_name_or_path");
    if (!ctx->status)
        tool_fail(ctx, ATTN_E_UNSUPPORTED,
                  "%s holds an adapter without its model: attn-convert BASE OUTPUT.attn --adapter "
                  "%s merges it, BASE being the directory of %s",
                  dir, dir, base && base->text ? show(name, base->text, base->size) : "that model");
    free(root);
    return ctx->status;
}

/* Names the weights of a kind that is not read; else says which files are missing. */
TOOLS_FN attn_status hf_refuse_others(attn_ctx *ctx, source *s, const char *dir)
{
    static const char *const others[][2] = {{"model.onnx", "ONNX"},
                                            {"onnx", "ONNX"},
                                            {"rust_model.ot", "rust-bert"},
                                            {"openvino_model.xml", "OpenVINO"},
                                            {"model.ckpt.index", "TensorFlow"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (hf_file(ctx, &s->memory, dir, others[i][0]))
            return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                             "%s has no model.safetensors, but %s, the weights for %s; the same "
                             "model as transformers saves it converts",
                             dir, others[i][0], others[i][1]);
    return ctx->status
               ? ctx->status
               : tool_fail(
                     ctx, ATTN_E_IO,
                     "neither model.safetensors nor pytorch_model.bin, nor the index of shards, in %s",
                     dir);
}

TOOLS_FN attn_status hf_open_weights(attn_ctx *ctx, source *s, const char *dir)
{
    arena *const memory = &s->memory;
    char *single = hf_file(ctx, memory, dir, "model.safetensors");
    char *index = hf_file(ctx, memory, dir, "model.safetensors.index.json");
    char *pickled = hf_file(ctx, memory, dir, "pytorch_model.bin");
    char *pickles = hf_file(ctx, memory, dir, "pytorch_model.bin.index.json");
    char *adapter = hf_file(ctx, memory, dir, "adapter_config.json");
    char *tf = hf_file(ctx, memory, dir, "tf_model.h5");
    char *flax = hf_file(ctx, memory, dir, "flax_model.msgpack");
    json_value *root = NULL;
    if (ctx->status)
        return ctx->status;
    if (adapter && (single || index))
        source_note(
            "an adapter (LoRA or another of PEFT's) is beside the model: --adapter %s merges "
            "it, else it is left out",
            dir);
    if (single)
        return safetensors_open(ctx, s, single) ? ctx->status : hf_recognise(ctx, s);
    if (!index && pickled)
        return checkpoint_open(ctx, s, pickled) ? ctx->status : hf_recognise(ctx, s);
    if (index || pickles) {
        const char *const list = index ? index : pickles;
        if (vocab_parse(ctx, memory, dir, base_name(list), VOCAB_MAX_FILE, &root) == ATTN_OK)
            hf_open_shards(ctx, s, dir, base_name(list), json_get(root, "weight_map"),
                           index ? safetensors_open : checkpoint_open);
        free(root);
        return ctx->status;
    }
    if (adapter)
        return hf_refuse_adapter(ctx, s, dir);
    if (tf || flax)
        return hf_refuse_weights(ctx, tf ? tf : flax, tf != NULL);
    return hf_refuse_others(ctx, s, dir);
}

/* Reads the configuration of a directory, and what its other files say of the model. `own`: a checkpoint's own one, or
 * NULL. */
TOOLS_FN attn_status hf_open_config(attn_ctx *ctx, source *s, const char *dir, json_value *own)
{
    char *const config = arena_path(ctx, &s->memory, dir, "config.json"), *text = NULL;
    json_value *root = own;
    size_t size = 0;
    if (!own && read_file(ctx, &s->memory, config, HF_MAX_CONFIG, &text, &size) == ATTN_OK)
        json_parse(ctx, config, text, size, &root);
    if (!ctx->status)
        tl_is_config(root) ? tl_read_config(ctx, s, root) : hf_read_config(ctx, s, root);
    if (ctx->status == ATTN_OK && (own || card_read_readme(ctx, s, dir) == ATTN_OK))
        card_read_config(ctx, s, root);
    free(root);
    return ctx->status || own ? ctx->status : hf_read_generation(ctx, s, dir);
}

/* A file of torch.save by itself: with its own configuration, or with config.json beside it. */
TOOLS_FN attn_status hf_open_file(attn_ctx *ctx, source *s, const char *path)
{
    const size_t length = (size_t)(base_name(path) - path);
    pickle_file f;
    s->dir = arena_text(ctx, &s->memory, length ? path : ".", length ? length : 1);
    if (ctx->status || pickle_open(ctx, s, &f, path) || checkpoint_add_all(ctx, s, &f) ||
        hf_strip_names(ctx, s))
        return ctx->status;
    json_value *const own = checkpoint_json(ctx, s, &f);
    s->config_name = own ? f.file->name : "config.json";
    if (!own && !ctx->status && source_find(s, "W_enc"))
        tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s is an autoencoder or a transcoder, which lens reads",
                  f.file->name);
    else if (!own && !ctx->status && !hf_file(ctx, &s->memory, s->dir, "config.json"))
        tool_fail(ctx, ATTN_E_FORMAT,
                  "%s has no configuration, and no config.json is beside it: write one, with "
                  "n_head and the other settings of GPT-2",
                  f.file->name);
    return ctx->status || hf_open_config(ctx, s, s->dir, own) ? ctx->status : hf_recognise(ctx, s);
}

TOOLS_FN attn_status hf_open(attn_ctx *ctx, source *s, const char *dir)
{
    char *const config = arena_path(ctx, &s->memory, dir, "config.json");
    if (!config)
        return ctx->status;
    s->dir = dir;
    s->config_name = "config.json";
    if (!system_exists(config) && hf_is_openai(ctx, &s->memory, dir))
        return hf_refuse_openai(ctx, dir);
    if (!system_exists(config) && hf_file(ctx, &s->memory, dir, "adapter_config.json"))
        return hf_refuse_adapter(ctx, s, dir);
    if (!system_exists(config))
        return tool_fail(ctx, ATTN_E_IO,
                         "%s holds no config.json, which a Hugging Face directory would", dir);
    return hf_open_config(ctx, s, dir, NULL) ? ctx->status : hf_open_weights(ctx, s, dir);
}

#endif

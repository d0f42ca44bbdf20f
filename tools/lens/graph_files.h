/* The transcoders of an attribution graph (graph.h), from a directory. Uses attn.h's public API only.
 *
 *     if (lens_feature_graph_open(&ctx, &graph, "my-transcoders") == ATTN_OK)    after lens_feature_graph_begin
 *         ...                                                                    lens_feature_graph_plan
 *
 * The directory is one of
 *
 *     SAELens's        itself, or each directory in it, has cfg.json and sae_weights.safetensors (sae_files.h)
 *     circuit-tracer's config.yaml, and layer_0.safetensors ... with W_enc [m, C], W_dec [m, C], b_enc, b_dec, and
 *                      perhaps W_skip [C, C] and activation_function.threshold [m] (JumpReLU). A layer may lack its file.
 *
 * In config.yaml, model_kind is transcoder_set: features of cross-layer transcoders write to several layers, which
 * this graph does not have. circuit-tracer's mlp.hook_in is what the MLP reads, gain and bias of LayerNorm included:
 * ln2.hook_normalized.post here. */
#ifndef LENS_GRAPH_FILES_H
#define LENS_GRAPH_FILES_H

#include "graph.h"
#include "sae_files.h"
#include "tools/common/json_out.h"

/* ---- circuit-tracer's directory ---- */

/* Reads the value of a line "key: value" of config.yaml, without quotes; "" if there is no such line. */
LENS_FN void lens_tracer_value(char value[32], const char *text, const char *key)
{
    const size_t n = strlen(key);
    const char *line;
    size_t size = 0;
    for (line = text; line && size == 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            line += n + 1;
            line += strspn(line, " \t'\"");
            size = strcspn(line, " \t'\"#\r\n");
            size = size < 31 ? size : 31;
            memcpy(value, line, size);
        }
    }
    value[size] = 0;
}

/* Reads config.yaml: where the transcoders of all layers read and write. */
LENS_FN attn_status lens_tracer_config(attn_ctx *ctx, arena *memory, const char *path,
                                       char hook[32], char hook_out[32])
{
    char *text = NULL, kind[32];
    size_t size;
    ctx->status = ATTN_OK; /* the reader checks it */
    if (read_file(ctx, memory, path, LENS_SAE_MAX_CONFIG, &text, &size) != ATTN_OK)
        return ctx->status;
    lens_tracer_value(kind, text, "model_kind");
    lens_tracer_value(hook, text, "feature_input_hook");
    lens_tracer_value(hook_out, text, "feature_output_hook");
    if (strcmp(kind, "transcoder_set") != 0)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "model_kind is \"%s\"; expected transcoder_set, a transcoder for each "
                         "layer: cross-layer transcoders are not read",
                         kind);
    if (!*hook || !*hook_out)
        return attn_fail(ctx, ATTN_E_FORMAT, "no %s; expected one such as %s",
                         *hook ? "feature_output_hook" : "feature_input_hook",
                         *hook ? "hook_mlp_out" : "mlp.hook_in");
    if (strcmp(hook, "mlp.hook_in") == 0)
        memcpy(hook, lens_fg_hooks[LENS_FG_POST], sizeof "ln2.hook_normalized.post");
    else if (strcmp(hook, "ln2.hook_normalized") == 0)
        memcpy(hook, lens_fg_hooks[LENS_FG_PRE], sizeof "ln2.hook_normalized.pre");
    if (strcmp(hook_out, "mlp.hook_out") == 0)
        memcpy(hook_out, "hook_mlp_out", sizeof "hook_mlp_out");
    return ATTN_OK;
}

/* Reads the weights of one layer, whose W_enc is [m, n]. */
LENS_FN attn_status lens_tracer_weights(attn_ctx *ctx, lens_sae *s, source *from)
{
    static const char threshold[] = "activation_function.threshold", said[] = ", as W_enc says";
    const source_tensor *const enc = source_find(from, "W_enc"), *const dec =
                                                                     source_find(from, "W_dec");
    attn_tensor w = ATTN_ZERO;
    int failed;
    if (!enc || !dec || enc->ndim != 2 || dec->ndim != 2 || enc->shape[0] > LENS_SAE_MAX_SIZE ||
        enc->shape[1] > LENS_SAE_MAX_SIZE || dec->shape[1] > LENS_SAE_MAX_SIZE)
        return attn_fail(
            ctx, ATTN_E_FORMAT,
            "expected matrices W_enc and W_dec [features, width], as circuit-tracer has "
            "them for a layer");
    s->m = (size_t)enc->shape[0];
    s->n = (size_t)enc->shape[1];
    s->n_out = (size_t)dec->shape[1];
    s->kind = source_find(from, threshold) ? LENS_SAE_JUMPRELU : LENS_SAE_STANDARD;
    failed = lens_read_tensor(ctx, &w, from, enc, attn_shape2(s->m, s->n), "") ||
             attn_copy(ctx, &s->w_enc, attn_transpose(w, 0, 1)) || lens_sae_pack(ctx, &s->w_enc) ||
             lens_read_tensor(ctx, &s->w_dec, from, dec, attn_shape2(s->m, s->n_out), said) ||
             lens_sae_pack(ctx, &s->w_dec) ||
             lens_read_named(ctx, &s->b_enc, from, "b_enc", attn_shape1(s->m), said) ||
             lens_read_named(ctx, &s->b_dec, from, "b_dec", attn_shape1(s->n_out), said) ||
             (s->kind == LENS_SAE_JUMPRELU &&
              lens_read_named(ctx, &s->threshold, from, threshold, attn_shape1(s->m), said)) ||
             (source_find(from, "W_skip") && lens_sae_read_skip(ctx, s, from));
    attn_tensor_free(ctx, &w);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Opens the transcoder of one layer. *s must be zeroed. */
LENS_FN attn_status lens_tracer_open(attn_ctx *ctx, lens_sae *s, const char *path, size_t layer,
                                     const char *hook, const char *hook_out)
{
    source *const from = lens_open_file(ctx, path, NULL);
    const attn_status status = from ? lens_tracer_weights(ctx, s, from) : ctx->status;
    lens_close_file(from);
    if (status == ATTN_OK) {
        snprintf(s->hook, sizeof s->hook, "blocks.%zu.%s", layer, hook);
        snprintf(s->hook_out, sizeof s->hook_out, "blocks.%zu.%s", layer, hook_out);
    }
    return status;
}

/* ---- a directory ---- */

typedef struct lens_graph_opening {
    lens_feature_graph *graph;
    arena memory;
    json_out names; /* of the directory's entries, one after the other with their ends */
    char hook[32], hook_out[32];
    size_t n;
} lens_graph_opening;

/* A system_list callback. */
LENS_FN void lens_graph_add_name(const char *name, void *names)
{
    out_bytes((json_out *)names, name, strlen(name) + 1);
}

/* Puts the path before the latest message. */
LENS_FN attn_status lens_graph_at(attn_ctx *ctx, const char *path)
{
    char message[sizeof ctx->message];
    const attn_status status = ctx->status;
    if (status == ATTN_STOPPED || strstr(ctx->message, path))
        return status;
    memcpy(message, ctx->message, sizeof message);
    return tool_fail(ctx, status, "%s: %s", path, message);
}

/* Adds a transcoder: of a layer of circuit-tracer's, or of a directory of SAELens's if layer is ATTN_NO_LAYER. */
LENS_FN attn_status lens_graph_add_file(attn_ctx *ctx, lens_graph_opening *o, const char *path,
                                        size_t layer)
{
    lens_sae sae = ATTN_ZERO;
    attn_status status = layer == ATTN_NO_LAYER
                             ? lens_sae_open(ctx, &sae, path)
                             : lens_tracer_open(ctx, &sae, path, layer, o->hook, o->hook_out);
    if (status == ATTN_OK)
        status = lens_feature_graph_add(ctx, o->graph, &sae);
    lens_sae_free(ctx, &sae);
    o->n++;
    return status ? lens_graph_at(ctx, path) : ATTN_OK;
}

LENS_FN attn_status lens_graph_add_layers(attn_ctx *ctx, lens_graph_opening *o, const char *dir,
                                          const char *config)
{
    const size_t n_layer = attn_model_config(o->graph->b->model)->n_layer;
    attn_status status = lens_tracer_config(ctx, &o->memory, config, o->hook, o->hook_out);
    size_t i;
    if (status != ATTN_OK)
        return lens_graph_at(ctx, config);
    for (i = 0; i < n_layer && status == ATTN_OK; i++) {
        char name[48];
        const char *path;
        snprintf(name, sizeof name, "layer_%zu.safetensors", i);
        path = arena_path(ctx, &o->memory, dir, name);
        if (!path || system_exists(path))
            status = path ? lens_graph_add_file(ctx, o, path, i) : ctx->status;
    }
    return status;
}

LENS_FN attn_status lens_graph_add_directories(attn_ctx *ctx, lens_graph_opening *o,
                                               const char *dir)
{
    attn_status status = ATTN_OK;
    size_t at;
    if (system_list(dir, lens_graph_add_name, &o->names) != 0)
        return tool_fail(ctx, ATTN_E_IO, "%s: %s", dir, reason());
    if (o->names.failed)
        return attn_fail(ctx, ATTN_E_MEMORY, "no memory to list %s", dir);
    for (at = 0; at < o->names.size && status == ATTN_OK; at += strlen(o->names.text + at) + 1) {
        const char *const name = o->names.text + at;
        const char *const path = arena_path(ctx, &o->memory, dir, name);
        const char *const cfg = path ? arena_path(ctx, &o->memory, path, "cfg.json") : NULL;
        if (!cfg || strncmp(name, "W_enc_", 6) == 0)
            status = cfg ? attn_fail(ctx, ATTN_E_FORMAT,
                                     "%s is of a cross-layer transcoder; expected a transcoder for "
                                     "each layer",
                                     path)
                         : ctx->status;
        else if (strcmp(name, "..") != 0 && system_exists(cfg))
            status = lens_graph_add_file(ctx, o, path, ATTN_NO_LAYER);
    }
    return status;
}

/* Adds all transcoders of a directory to a graph that lens_feature_graph_begin has begun. */
LENS_FN attn_status lens_feature_graph_open(attn_ctx *ctx, lens_feature_graph *g, const char *dir)
{
    lens_graph_opening o = ATTN_ZERO;
    const char *const config = arena_path(ctx, &o.memory, dir, "config.yaml");
    attn_status status = ctx->status;
    o.graph = g;
    if (config)
        status = system_exists(config) ? lens_graph_add_layers(ctx, &o, dir, config)
                                       : lens_graph_add_directories(ctx, &o, dir);
    out_free(&o.names);
    arena_free(&o.memory);
    if (status == ATTN_OK && o.n == 0)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s has no transcoder; expected a directory for each, with cfg.json and "
                         "sae_weights.safetensors, or config.yaml and layer_0.safetensors ...",
                         dir);
    return status;
}

#endif

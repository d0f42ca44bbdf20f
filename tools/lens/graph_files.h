/* Files of an attribution graph (graph.h): its transcoders, groups of its features, and the graph itself as
 * circuit-tracer's and Neuronpedia's front end opens it. Uses attn.h's public API only.
 *
 *     lens_feature_graph_open(&ctx, &graph, "my-transcoders")             between ..._begin and ..._plan
 *     lens_graph_groups_open(&ctx, &groups, &graph, "groups.json")        {"girl": ["feature 0.4.17", ...], ...}
 *     lens_feature_graph_save(&ctx, &graph, &pruned, tokenizer, "graph.json")
 *
 * The directory of transcoders is one of
 *
 *     SAELens's        itself, or each directory in it, has cfg.json and sae_weights.safetensors (sae_files.h)
 *     of 2024          a .pt for each layer (Dunefsky et al.)
 *     circuit-tracer's config.yaml, and layer_0.safetensors ... with W_enc [m, C], W_dec [m, C], b_enc, b_dec, and
 *                      perhaps W_skip [C, C] and activation_function.threshold [m] (JumpReLU). A layer may lack its file.
 *
 * In config.yaml, model_kind is transcoder_set: features of cross-layer transcoders write to several layers, which
 * this graph does not have. circuit-tracer's mlp.hook_in is what the MLP reads, gain and bias of LayerNorm included:
 * ln2.hook_normalized.post here. */
#ifndef LENS_GRAPH_FILES_H
#define LENS_GRAPH_FILES_H

#include "sae_files.h"
#include "../write/new_file.h"
#include "graph_check.h"
#include "graph_prune.h"
#include "tools/common/json_out.h"

/* ---- a directory ---- */

typedef struct lens_graph_opening {
    lens_feature_graph *graph;
    arena memory;
    json_out names;     /* of the directory's entries, one after the other with their ends */
    lens_tracer tracer; /* circuit-tracer's config.yaml */
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
                             : lens_tracer_open(ctx, &sae, &o->tracer, path, layer);
    if (status == ATTN_OK)
        status = lens_feature_graph_add(ctx, o->graph, &sae);
    lens_sae_free(ctx, &sae);
    o->n++;
    return status ? lens_graph_at(ctx, path) : ATTN_OK;
}

/* The layer of circuit-tracer's layer_0.safetensors ...; ATTN_NO_LAYER of another name. */
LENS_FN size_t lens_tracer_layer(const char *name)
{
    const size_t layer = strncmp(name, "layer_", 6) ? 0 : (size_t)strtoul(name + 6, NULL, 10);
    char expected[48];
    snprintf(expected, sizeof expected, "layer_%zu.safetensors", layer);
    return strcmp(name, expected) == 0 ? layer : ATTN_NO_LAYER;
}

/* Adds the transcoder of an entry of the directory, if it has one. */
LENS_FN attn_status lens_graph_add_entry(attn_ctx *ctx, lens_graph_opening *o, const char *dir,
                                         const char *name)
{
    const char *const path = arena_path(ctx, &o->memory, dir, name);
    const char *const cfg = path ? arena_path(ctx, &o->memory, path, "cfg.json") : NULL;
    const size_t layer = *o->tracer.hook ? lens_tracer_layer(name) : ATTN_NO_LAYER;
    if (!cfg)
        return ctx->status;
    if (!*o->tracer.hook && strncmp(name, "W_enc_", 6) == 0)
        return attn_fail(ctx, ATTN_E_FORMAT,
                         "%s is of a cross-layer transcoder; expected a transcoder for each layer",
                         path);
    const size_t size = strlen(name);
    const int is_pt = size > 3 && strcmp(name + size - 3, ".pt") == 0;
    if (*o->tracer.hook ? layer == ATTN_NO_LAYER
                        : strcmp(name, "..") == 0 || (!is_pt && !system_exists(cfg)))
        return ATTN_OK;
    return lens_graph_add_file(ctx, o, path, layer);
}

/* Adds all transcoders of a directory to a graph that lens_feature_graph_begin has begun. */
LENS_FN attn_status lens_feature_graph_open(attn_ctx *ctx, lens_feature_graph *g, const char *dir)
{
    lens_graph_opening o = ATTN_ZERO;
    const char *const config = arena_path(ctx, &o.memory, dir, "config.yaml");
    attn_status status = config ? ATTN_OK : ctx->status;
    o.graph = g;
    if (config && system_exists(config) &&
        lens_tracer_config(ctx, &o.tracer, &o.memory, config) != ATTN_OK)
        status = lens_graph_at(ctx, config);
    else if (config && system_list(dir, lens_graph_add_name, &o.names) != 0)
        status = tool_fail(ctx, ATTN_E_IO, "%s: %s", dir, reason());
    else if (o.names.failed)
        status = attn_fail(ctx, ATTN_E_MEMORY, "no memory to list %s", dir);
    for (size_t at = 0; at < o.names.size && status == ATTN_OK; at += strlen(o.names.text + at) + 1)
        status = lens_graph_add_entry(ctx, &o, dir, o.names.text + at);
    if (status == ATTN_OK && o.n == 0)
        status = tool_fail(ctx, ATTN_E_FORMAT,
                           "%s has no transcoder; expected a directory for each, with cfg.json and "
                           "sae_weights.safetensors, or config.yaml and layer_0.safetensors ...",
                           dir);
    out_free(&o.names);
    arena_free(&o.memory);
    return status;
}

/* ---- groups ---- */

static const char *const lens_graph_kinds[] = {"embedding", "feature", "error", "logit"};

/* The name of a node, which no other node has. */
typedef struct lens_graph_id {
    char text[96];
} lens_graph_id;

LENS_FN lens_graph_id lens_graph_id_of(const lens_graph_node *node)
{
    const char *const kind = lens_graph_kinds[node->kind];
    lens_graph_id id;
    if (node->kind == LENS_GRAPH_EMBEDDING)
        snprintf(id.text, sizeof id.text, "%s %zu", kind, node->position);
    else if (node->kind == LENS_GRAPH_LOGIT)
        snprintf(id.text, sizeof id.text, "%s %zu", kind, node->feature);
    else if (node->kind == LENS_GRAPH_ERROR)
        snprintf(id.text, sizeof id.text, "%s %zu.%zu", kind, node->layer, node->position);
    else
        snprintf(id.text, sizeof id.text, "%s %zu.%zu.%zu", kind, node->layer, node->position,
                 node->feature);
    return id;
}

/* Groups for lens_graph_check, with their names. */
typedef struct lens_graph_groups {
    lens_graph_group *groups; /* [n] */
    char (*names)[64];        /* [n] */
    size_t n, *nodes;         /* nodes: of all groups */
} lens_graph_groups;

LENS_FN void lens_graph_groups_free(lens_graph_groups *groups)
{
    attn_free(groups->groups);
    attn_free(groups->names);
    attn_free(groups->nodes);
    memset(groups, 0, sizeof *groups);
}

/* Adds a group from its list of ids. *room: where its nodes go. */
LENS_FN attn_status lens_graph_group_read(attn_ctx *ctx, lens_graph_groups *groups, size_t **room,
                                          const lens_feature_graph *g, const json_value *list)
{
    lens_graph_group *const group = &groups->groups[groups->n];
    const json_value *v = list + 1;
    size_t node;
    shown name, id;
    memcpy(groups->names[groups->n++], show(name, list->key, list->key_size), sizeof name);
    if (list->kind != JSON_ARRAY || list->size == 0)
        return attn_fail(ctx, ATTN_E_FORMAT, "group %s: expected a list of ids of features", name);
    group->nodes = *room;
    for (size_t i = 0; i < list->size; i++, v += v->span) {
        for (node = 0; node < g->n_nodes; node++)
            if (g->nodes[node].kind == LENS_GRAPH_FEATURE &&
                json_is(v, lens_graph_id_of(&g->nodes[node]).text))
                break;
        if (node == g->n_nodes)
            return attn_fail(ctx, ATTN_E_FORMAT,
                             "group %s: \"%s\" is no active feature of this text; expected an id "
                             "such as \"feature 0.4.17\": layer.position.feature",
                             name, show(id, v->text, v->kind > JSON_STRING ? 0 : v->size));
        for (size_t k = 0; k < group->n; k++)
            if (group->nodes[k] == node)
                return attn_fail(ctx, ATTN_E_FORMAT, "group %s names \"%s\" twice", name,
                                 show(id, v->text, v->size));
        (*room)[group->n++] = node;
    }
    *room += group->n;
    return ATTN_OK;
}

/* Reads groups of the features of a graph from JSON, which it changes. `name` stands in messages. *groups must be
 * zeroed; after a failure it is zeroed again. */
LENS_FN attn_status lens_graph_groups_read(attn_ctx *ctx, lens_graph_groups *groups,
                                           const lens_feature_graph *g, const char *name,
                                           char *text, size_t size)
{
    json_value *root = NULL;
    const json_value *v;
    size_t i, *room;
    ctx->status = ATTN_OK; /* the parser checks it */
    if (json_parse(ctx, name, text, size, &root) == ATTN_OK && root && root->kind != JSON_OBJECT)
        tool_fail(ctx, ATTN_E_FORMAT, "%s: expected {\"name\": [\"feature 0.4.17\", ...], ...}",
                  name);
    if (root && ctx->status == ATTN_OK) {
        groups->groups =
            (lens_graph_group *)attn_alloc(ctx, root->size, sizeof *groups->groups, name);
        groups->names = (char(*)[64])attn_alloc(ctx, root->size, sizeof *groups->names, name);
        groups->nodes = (size_t *)attn_alloc(ctx, root->span, sizeof *groups->nodes, name);
        room = groups->nodes;
        for (i = 0, v = root + 1; ctx->status == ATTN_OK && i < root->size; i++, v += v->span)
            if (lens_graph_group_read(ctx, groups, &room, g, v) != ATTN_OK)
                lens_graph_at(ctx, name);
    }
    free(root);
    if (ctx->status != ATTN_OK)
        lens_graph_groups_free(groups);
    return ctx->status;
}

/* Reads them from a file. */
LENS_FN attn_status lens_graph_groups_open(attn_ctx *ctx, lens_graph_groups *groups,
                                           const lens_feature_graph *g, const char *path)
{
    arena memory = {NULL};
    char *text = NULL;
    size_t size = 0;
    attn_status status = read_file(ctx, &memory, path, LENS_SAE_MAX_CONFIG, &text, &size);
    if (status == ATTN_OK)
        status = lens_graph_groups_read(ctx, groups, g, path, text, size);
    arena_free(&memory);
    return status;
}

/* ---- circuit-tracer's and Neuronpedia's front end ----
 *
 * The form of circuit-tracer 0.5's frontend/graph_models.py, with the nodes and edges that stay after pruning. Its
 * ids of errors can be those of features of layer 0; here no two nodes share an id. */

LENS_FN lens_graph_id lens_front_id(const lens_feature_graph *g, size_t i)
{
    const lens_graph_node *const node = &g->nodes[i];
    const size_t t = node->position;
    lens_graph_id id;
    if (node->kind == LENS_GRAPH_EMBEDDING)
        snprintf(id.text, sizeof id.text, "E_%ld_%zu", (long)g->tokens[t], t);
    else if (node->kind == LENS_GRAPH_ERROR)
        snprintf(id.text, sizeof id.text, "error_%zu_%zu", node->layer, t);
    else
        snprintf(id.text, sizeof id.text, "%zu_%zu_%zu",
                 node->layer + (node->kind == LENS_GRAPH_LOGIT), node->feature, t);
    return id;
}

/* Appends a token's bytes; its id without a tokenizer. */
LENS_FN void lens_front_token(json_out *o, const attn_tokenizer *tokenizer, attn_token token)
{
    char number[24];
    size_t size = (size_t)snprintf(number, sizeof number, "%ld", (long)token);
    const char *const bytes = tokenizer ? attn_token_bytes(&size, tokenizer, token) : number;
    out_bytes(o, bytes, size);
}

/* `influence` is the share of the influence that this node and all with more have together. */
LENS_FN void lens_front_node(json_out *o, const lens_feature_graph *g, size_t i, double influence,
                             const attn_tokenizer *tokenizer)
{
    static const char *const types[] = {"embedding", "cross layer transcoder",
                                        "mlp reconstruction error", "logit"};
    const lens_graph_node *const node = &g->nodes[i];
    const int is_logit = node->kind == LENS_GRAPH_LOGIT,
              is_feature = node->kind == LENS_GRAPH_FEATURE;
    const uint64_t sum = (uint64_t)node->layer + node->feature;
    json_out label = {NULL, 0, 0, 0, 0};
    char layer[24] = "E", share[40];
    if (node->kind != LENS_GRAPH_EMBEDDING)
        snprintf(layer, sizeof layer, "%zu", node->layer + (size_t)is_logit);
    out_open(o, NULL, '{');
    out_word(o, "node_id", lens_front_id(g, i).text);
    if (node->kind == LENS_GRAPH_ERROR)
        out_spelled(o, "feature", "-1", 2);
    else /* a feature's number is that of the pair (layer, feature), as Cantor counts pairs */
        out_count(o, "feature",
                  is_feature ? sum * (sum + 1) / 2 + node->feature
                  : is_logit ? node->feature
                             : node->position);
    out_word(o, "layer", layer);
    out_count(o, "ctx_idx", node->position);
    out_word(o, "feature_type", types[node->kind]);
    out_f64(o, "token_prob", is_logit ? (double)node->activation : 0);
    out_flag(o, "is_target_logit", i == g->n_nodes - g->n_logits);
    out_count(o, "run_idx", 0);
    out_count(o, "reverse_ctx_idx", 0);
    out_word(o, "jsNodeId", lens_front_id(g, i).text);
    if (is_logit) { /* the front end reads the probability from this text */
        out_bytes(&label, "Output \"", 8);
        lens_front_token(&label, tokenizer, (attn_token)node->feature);
        snprintf(share, sizeof share, "\" (p=%.3f)", (double)node->activation);
        out_bytes(&label, share, strlen(share));
    }
    out_text(o, "clerp", label.text ? label.text : "", label.size);
    o->failed |= label.failed;
    out_free(&label);
    out_f64(o, "influence", is_logit ? (double)NAN : influence);
    out_f32(o, "activation", is_feature ? node->activation : NAN);
    out_close(o, '}');
}

LENS_FN void lens_front_metadata(json_out *o, const lens_feature_graph *g,
                                 const lens_graph_pruned *p, const attn_tokenizer *tokenizer)
{
    static const char params[] = "{\"pinnedIds\": [], \"supernodes\": [], \"linkType\": \"both\", "
                                 "\"clickedId\": \"\", \"sg_pos\": \"\"}";
    json_out prompt = {NULL, 0, 0, 0, 0};
    size_t size;
    out_open(o, "metadata", '{');
    out_word(o, "slug", "graph");
    out_word(o, "scan", "attn.h");
    out_spelled(o, "transcoder_list", "[]", 2);
    out_open(o, "prompt_tokens", '[');
    for (size_t i = 0; i < g->n_tokens; i++) {
        size = prompt.size;
        out_bytes(&prompt, " ", tokenizer || i == 0 ? 0 : 1);
        lens_front_token(&prompt, tokenizer, g->tokens[i]);
        if (!prompt.failed)
            out_text(o, NULL, prompt.text + size, prompt.size - size);
    }
    out_close(o, ']');
    out_text(o, "prompt", prompt.text ? prompt.text : "", prompt.size);
    out_f64(o, "node_threshold", p->node_threshold);
    out_count(o, "schema_version", 1);
    out_close(o, '}');
    out_spelled(o, "qParams", params, sizeof params - 1);
    o->failed |= prompt.failed;
    out_free(&prompt);
}

LENS_FN void lens_front_graph(json_out *o, const lens_feature_graph *g, const lens_graph_pruned *p,
                              const double *influence, const attn_tokenizer *tokenizer)
{
    out_open(o, NULL, '{');
    lens_front_metadata(o, g, p, tokenizer);
    out_open(o, "nodes", '[');
    for (size_t i = 0; i < g->n_nodes; i++)
        if (p->nodes[i])
            lens_front_node(o, g, i, influence[i], tokenizer);
    out_close(o, ']');
    out_open(o, "links", '[');
    for (size_t i = 0; i < g->n_nodes; i++)
        for (size_t k = g->rows[i]; k < g->rows[i + 1]; k++)
            if (p->edges[k]) {
                out_open(o, NULL, '{');
                out_word(o, "source", lens_front_id(g, g->edges[k].from).text);
                out_word(o, "target", lens_front_id(g, i).text);
                out_f32(o, "weight", g->edges[k].weight);
                out_close(o, '}');
            }
    out_close(o, ']');
    out_close(o, '}');
}

/* influence [nodes]: the share of all influence that a node and those with more have together. order [nodes, 2] has
 * room. */
LENS_FN void lens_front_influence(double *influence, double *order, const lens_graph_pruned *p,
                                  size_t n)
{
    double sum = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        order[2 * i] = p->influence[i];
        order[2 * i + 1] = (double)i;
        all += p->influence[i];
    }
    qsort(order, n, 2 * sizeof *order, lens_graph_compare_scores);
    for (size_t i = 0; i < n; i++)
        influence[(size_t)order[2 * i + 1]] = (sum += order[2 * i]) / all;
}

/* Writes the pruned graph. tokenizer NULL: tokens are their ids. */
LENS_FN attn_status lens_feature_graph_save(attn_ctx *ctx, const lens_feature_graph *g,
                                            const lens_graph_pruned *p,
                                            const attn_tokenizer *tokenizer, const char *path)
{
    double *const room = (double *)attn_alloc(ctx, g->n_nodes, 3 * sizeof *room, "a graph's file");
    json_out o = {NULL, 0, 0, 0, 0};
    lens_new_file *file = NULL;
    attn_status status = room ? lens_new_file_begin(ctx, &file, path) : ctx->status;
    if (room && status == ATTN_OK) {
        lens_front_influence(room, room + g->n_nodes, p, g->n_nodes);
        lens_front_graph(&o, g, p, room, tokenizer);
        if (!out_line(&o, (FILE *)lens_new_file_stream(file)))
            status = attn_fail(ctx, ATTN_E_MEMORY, "no memory to write %s", path);
    }
    status = lens_new_file_end(ctx, file, status);
    out_free(&o);
    attn_free(room);
    return status;
}

#endif

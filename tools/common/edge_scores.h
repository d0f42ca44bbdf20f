/* Reads the scores of edges from the JSON of EAP-IG's code and of the benchmark MIB:
 *
 *     {"cfg": {"n_layers": 2, ..}, "nodes": {"a0.h1": {"in_graph": true}, ..},
 *      "edges": {"a0.h1->m0": {"score": 0.25, "in_graph": true}, ..}} */
#ifndef TOOLS_EDGE_SCORES_H
#define TOOLS_EDGE_SCORES_H

#include "json.h"
#include "tools/lens/edges.h"

/* Reads one edge into scores [S, R]. */
TOOLS_FN attn_status read_edge_score(attn_ctx *ctx, attn_tensor scores, const lens_graph *g,
                                     const char *path, const json_value *edge, float factor)
{
    char name[64] = "";
    char *arrow;
    const json_value *score = json_get(edge, "score");
    size_t sender = g->n_senders, receiver = g->n_receivers;
    double number = 0;
    if (edge->key_size < sizeof name && !memchr(edge->key, 0, edge->key_size))
        memcpy(name, edge->key, edge->key_size);
    if ((arrow = strstr(name, "->")) != NULL) {
        *arrow = 0;
        sender = lens_sender_named(g, name);
        receiver = lens_receiver_named(g, arrow + 2);
    }
    if (sender == g->n_senders || receiver == g->n_receivers ||
        sender >= lens_senders_to(g, receiver))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the model has no edge %.*s", path,
                         (int)(edge->key_size < 60 ? edge->key_size : 60), edge->key);
    if (!score || !json_double(score, &number))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: the edge %s->%s has no score", path, name,
                         arrow + 2);
    ((float *)scores.data)[sender * g->n_receivers + receiver] = factor * (float)number;
    return ATTN_OK;
}

/* scores [S, R]: factor times the file's score of each edge of the model, all of which it must have. */
TOOLS_FN attn_status read_edge_scores(attn_ctx *ctx, arena *memory, attn_tensor *scores,
                                      const attn_model *model, const char *path, float factor)
{
    const lens_graph g = lens_graph_of(model);
    /* an edge has a line of two members at least, and other programs write more */
    const size_t most = 8 * g.n_edges + JSON_MAX_VALUES,
                 bytes = 512 * g.n_edges + ((size_t)1 << 28);
    json_parser j = {ctx, path, NULL, NULL, NULL, 1, NULL, 0, most, 0};
    const json_value *edges = NULL, *v;
    json_value *root = NULL;
    char *text = NULL;
    size_t size = 0, n = 0, i;
    attn_status status = ATTN_OK;
    if (read_file(ctx, memory, path, bytes, &text, &size) ||
        attn_zeros(ctx, scores, ATTN_F32, attn_shape2(g.n_senders, g.n_receivers)) ||
        json_run(&j, text, size, &root))
        return ctx->status;
    edges = json_get(root, "edges");
    n = edges && edges->kind == JSON_OBJECT ? edges->size : 0;
    if (n != g.n_edges)
        status = tool_fail(ctx, ATTN_E_FORMAT,
                           "%s: expected \"edges\" with the model's %zu edges, not %zu", path,
                           g.n_edges, n);
    for (i = 0, v = edges ? edges + 1 : NULL; i < n && status == ATTN_OK; i++, v += v->span)
        status = read_edge_score(ctx, *scores, &g, path, v, factor);
    free(root);
    return status;
}

#endif

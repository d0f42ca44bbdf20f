/* Which nodes and edges of an attribution graph (graph.h) matter: the rule of Ameisen et al. (2025), as their
 * circuit-tracer has it. Uses attn.h's public API only.
 *
 *     lens_graph_pruned pruned = ATTN_ZERO;
 *     pruned.node_threshold = 0.8, pruned.edge_threshold = 0.98;
 *     if (lens_feature_graph_prune(&ctx, &pruned, &graph) == ATTN_OK)
 *         printf("%zu nodes, %zu edges stay\n", pruned.n_nodes, pruned.n_edges);
 *     lens_graph_pruned_free(&pruned);
 *
 * p is the probability of a logit, 0 of other nodes. Edges lead from s to t:
 *
 *     share(s, t)  = |weight(s, t)| / sum over s of |weight(s, t)|
 *     influence(s) = sum over t of share(s, t) * (influence(t) + p(t))
 *     score(s, t)  = share(s, t) * (influence(t) + p(t))
 *
 * 1. The nodes with the largest influence stay that together have node_threshold of all influence, and all
 *    embeddings and logits.
 * 2. Among them shares, influence and scores are computed again. The edges with the largest scores stay that
 *    together have edge_threshold of all scores.
 * 3. A feature or error from which no edge leads on is removed, and so is a feature to which no edge leads. This is
 *    repeated until nothing more is removed.
 *
 * Replacement score: the embeddings' influence over that of embeddings and errors. Completeness score: the mean
 * over nodes, weighted by influence + p, of the share of what they read that does not come from errors. */
#ifndef LENS_GRAPH_PRUNE_H
#define LENS_GRAPH_PRUNE_H

#include "graph.h"

typedef struct lens_graph_pruned {
    double node_threshold, edge_threshold; /* set by the caller */
    double replacement, completeness;      /* of the whole graph */
    size_t n_nodes, n_edges;               /* that stay */
    double *influence;                     /* [nodes], in the whole graph */
    unsigned char *nodes, *edges;          /* [nodes], [edges]: 1 where it stays */
} lens_graph_pruned;

/* Frees what lens_feature_graph_prune made. */
LENS_FN void lens_graph_pruned_free(lens_graph_pruned *p)
{
    attn_free(p->influence);
    attn_free(p->nodes);
    attn_free(p->edges);
    memset(p, 0, sizeof *p);
}

/* p of a node. */
LENS_FN double lens_graph_share(const lens_graph_node *node)
{
    return node->kind == LENS_GRAPH_LOGIT ? (double)node->activation : 0;
}

/* The sum of |weight| into node t, from nodes that stay. (With no edge any number but 0 will do.) */
LENS_FN double lens_graph_reads(const lens_feature_graph *g, const unsigned char *stay, size_t t)
{
    double sum = 0;
    for (size_t i = g->rows[t]; i < g->rows[t + 1]; i++)
        sum += stay[g->edges[i].from] ? fabs((double)g->edges[i].weight) : 0;
    return sum > 0 ? sum : 1;
}

/* influence [nodes] among nodes that stay, and scores [edges] (may be NULL). Each edge leads to a later node, so
 * one pass from the last node to the first is enough. */
LENS_FN void lens_graph_influence(const lens_feature_graph *g, const unsigned char *stay,
                                  double *influence, double *scores)
{
    memset(influence, 0, g->n_nodes * sizeof *influence);
    for (size_t t = g->n_nodes; t-- > 0;) {
        const double reads = lens_graph_reads(g, stay, t);
        const double out = stay[t] ? influence[t] + lens_graph_share(&g->nodes[t]) : 0;
        for (size_t i = g->rows[t]; i < g->rows[t + 1]; i++) {
            const size_t from = g->edges[i].from;
            const double share = fabs((double)g->edges[i].weight) / reads;
            const double score = stay[from] ? lens_fg_product(share, out) : 0;
            influence[from] += score;
            if (scores)
                scores[i] = score;
        }
    }
}

LENS_FN int lens_graph_compare_scores(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* The least of the largest scores that together have this share of all. sorted [n] has room. */
LENS_FN double lens_graph_threshold(const double *scores, double *sorted, size_t n, double share)
{
    double sum = 0, reached = 0;
    size_t i;
    memcpy(sorted, scores, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, lens_graph_compare_scores);
    for (i = 0; i < n; i++)
        sum += sorted[i];
    for (i = 0; i + 1 < n && (reached += sorted[i]) < share * sum; i++)
        ;
    return n ? sorted[i] : 0;
}

/* The two scores of the whole graph, from its influence. */
LENS_FN void lens_graph_scores(const lens_feature_graph *g, lens_graph_pruned *p)
{
    double from[LENS_GRAPH_LOGIT + 1] = {0}, all = 0, good = 0;
    for (size_t t = 0; t < g->n_nodes; t++) {
        const double out = p->influence[t] + lens_graph_share(&g->nodes[t]);
        double sum = 0, errors = 0;
        from[g->nodes[t].kind] += p->influence[t];
        for (size_t i = g->rows[t]; i < g->rows[t + 1]; i++) {
            const double size = fabs((double)g->edges[i].weight);
            sum += size;
            errors += g->nodes[g->edges[i].from].kind == LENS_GRAPH_ERROR ? size : 0;
        }
        all += out;
        good += lens_fg_product(out, sum > 0 ? 1 - errors / sum : 1);
    }
    p->replacement =
        from[LENS_GRAPH_EMBEDDING] / (from[LENS_GRAPH_EMBEDDING] + from[LENS_GRAPH_ERROR]);
    p->completeness = good / all;
}

/* 3. once: removes edges of nodes that are gone, and nodes that lack edges. 1 if a node went. */
LENS_FN int lens_graph_sweep(const lens_feature_graph *g, lens_graph_pruned *p, unsigned char *read)
{
    size_t t, n = p->n_nodes;
    memset(read, 0, g->n_nodes);
    for (t = p->n_edges = 0; t < g->n_nodes; t++)
        for (size_t i = g->rows[t]; i < g->rows[t + 1]; i++) {
            p->edges[i] = p->edges[i] && p->nodes[t] && p->nodes[g->edges[i].from];
            p->n_edges += p->edges[i];
            read[g->edges[i].from] |= p->edges[i];
            read[t] |= (unsigned char)(p->edges[i] << 1);
        }
    for (t = p->n_nodes = 0; t < g->n_nodes; t++) {
        const lens_graph_kind kind = g->nodes[t].kind;
        if (kind == LENS_GRAPH_FEATURE)
            p->nodes[t] = p->nodes[t] && read[t] == 3; /* 1: it is read, 2: it reads */
        else if (kind == LENS_GRAPH_ERROR)
            p->nodes[t] = p->nodes[t] && read[t] & 1;
        p->n_nodes += p->nodes[t];
    }
    return p->n_nodes != n;
}

/* Prunes a graph that lens_feature_graph_fill has filled. *p: only its thresholds are set. */
LENS_FN attn_status lens_feature_graph_prune(attn_ctx *ctx, lens_graph_pruned *p,
                                             const lens_feature_graph *g)
{
    static const char what[] = "pruning a graph";
    const size_t most = g->n_nodes > g->n_edges ? g->n_nodes : g->n_edges;
    double *const scores = (double *)attn_alloc(ctx, most, sizeof *scores, what);
    double *const sorted = (double *)attn_alloc(ctx, most, sizeof *sorted, what);
    double *const inner = (double *)attn_alloc(ctx, g->n_nodes, sizeof *inner, what);
    unsigned char *const read = (unsigned char *)attn_alloc(ctx, g->n_nodes, 1, what);
    double least;
    p->influence = (double *)attn_alloc(ctx, g->n_nodes, sizeof *p->influence, what);
    p->nodes = (unsigned char *)attn_alloc(ctx, g->n_nodes, 1, what);
    p->edges = (unsigned char *)attn_alloc(ctx, g->n_edges, 1, what);
    int failed = !scores || !sorted || !inner || !read || !p->influence || !p->nodes || !p->edges;
    if (!failed) {
        memset(p->nodes, 1, g->n_nodes);
        lens_graph_influence(g, p->nodes, p->influence, NULL);
        lens_graph_scores(g, p);
        least = lens_graph_threshold(p->influence, sorted, g->n_nodes, p->node_threshold);
        for (size_t i = 0; i < g->n_nodes; i++)
            p->nodes[i] = p->influence[i] >= least || g->nodes[i].kind == LENS_GRAPH_EMBEDDING ||
                          g->nodes[i].kind == LENS_GRAPH_LOGIT;
        lens_graph_influence(g, p->nodes, inner, scores);
        least = lens_graph_threshold(scores, sorted, g->n_edges, p->edge_threshold);
        for (size_t i = 0; i < g->n_edges; i++)
            p->edges[i] = scores[i] >= least;
        while (lens_graph_sweep(g, p, read))
            ;
    }
    attn_free(scores);
    attn_free(sorted);
    attn_free(inner);
    attn_free(read);
    if (failed)
        lens_graph_pruned_free(p);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

#endif

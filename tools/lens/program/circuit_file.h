/* Circuits as files: the JSON of EAP-IG's code and of the benchmark MIB,
 *
 *     {"cfg": {"n_layers": 2, ..}, "nodes": {"a0.h1": {"in_graph": true}, ..},
 *      "edges": {"a0.h1->m0": {"score": 0.25, "in_graph": true}, ..}}
 *
 * Its scores are positive where an edge helps the clean text's answer, so that their sign is not that of
 * edges.h. */
#ifndef LENS_CIRCUIT_FILE_H
#define LENS_CIRCUIT_FILE_H

#include "patching.h"
#include "tools/common/json.h"
#include "tools/lens/edges.h"

/* The factor between the scores of edges.h and those of the file. */
static float circuit_sign(const patching *p)
{
    return gap_of(p) < 0 ? 1 : -1;
}

/* ---- writing ---- */

/* The node of a receiver: the sender that writes after it; n_senders for the logits. */
static size_t node_of_receiver(const lens_graph *g, size_t receiver)
{
    const size_t in_layer = 3 * g->n_head + 1, part = receiver % in_layer;
    if (receiver == g->n_receivers - 1)
        return g->n_senders;
    return lens_senders_before(g, receiver / in_layer, part == in_layer - 1) +
           (part == in_layer - 1 ? 0 : part % g->n_head);
}

/* Writes edges [n_edges], of which the first n_kept are the circuit. used [n_senders + 1]: zeros. */
static void write_edges(FILE *file, const lens *l, const lens_graph *g, const lens_edge *edges,
                        size_t n_kept, float sign, char *used)
{
    size_t i;
    used[0] = used[g->n_senders] = 1;
    for (i = 0; i < n_kept; i++)
        used[edges[i].sender] = used[node_of_receiver(g, edges[i].receiver)] = 1;
    fprintf(file,
            "{\"cfg\": {\"n_layers\": %zu, \"n_heads\": %zu, \"parallel_attn_mlp\": false, "
            "\"d_model\": %zu},\n \"nodes\": {",
            g->n_layer, g->n_head, (size_t)l->config->d_model);
    for (i = 0; i <= g->n_senders; i++)
        fprintf(file, "%s\n  \"%s\": {\"in_graph\": %s}", i ? "," : "",
                i < g->n_senders ? lens_sender_name(g, i).text : "logits",
                used[i] ? "true" : "false");
    fputs("},\n \"edges\": {", file);
    for (i = 0; i < g->n_edges; i++)
        fprintf(file, "%s\n  \"%s->%s\": {\"score\": %.9g, \"in_graph\": %s}", i ? "," : "",
                lens_sender_name(g, edges[i].sender).text,
                lens_receiver_name(g, edges[i].receiver).text, (double)(sign * edges[i].score),
                i < n_kept ? "true" : "false");
    fputs("}}\n", file);
}

static int write_circuit(lens *l, const patching *p, const lens_graph *g, const lens_edge *edges,
                         size_t n_kept)
{
    char *used = (char *)allocate(l, g->n_senders + 1, 1);
    attn_new_file *file = NULL;
    attn_status status;
    if (!used || attn_new_file_begin(&l->ctx, &file, l->o.output))
        return failed(&l->ctx);
    memset(used, 0, g->n_senders + 1);
    write_edges((FILE *)attn_new_file_stream(file), l, g, edges, n_kept, circuit_sign(p), used);
    status = attn_new_file_end(&l->ctx, file, interrupted ? ATTN_STOPPED : ATTN_OK);
    if (status != ATTN_OK)
        return failed(&l->ctx);
    tell_written(l, "the scores of all edges, in the form of MIB");
    return FINE;
}

/* ---- reading ---- */

/* A name such as "a3.h5<q>" or "m3" in numbers; what it lacks is 0. The caller checks its spelling. */
typedef struct node_parts {
    size_t layer, head;
    char part;
} node_parts;

static node_parts parts_of_name(const char *name)
{
    node_parts p = {0, 0, 0};
    const char *at = name + (*name != 0);
    if (!read_number(&at, &p.layer))
        return p;
    at += at[0] == '.' && at[1] == 'h' ? 2 : 0;
    if (read_number(&at, &p.head) && *at == '<')
        p.part = at[1];
    return p;
}

/* The number of the sender of that name; n_senders if there is none. */
static size_t sender_named(const lens_graph *g, const char *name)
{
    const node_parts p = parts_of_name(name);
    size_t sender = 0;
    if (*name == 'a' || *name == 'm')
        sender = lens_senders_before(g, p.layer, *name == 'm') + p.head;
    return sender < g->n_senders && strcmp(lens_sender_name(g, sender).text, name) == 0
               ? sender
               : g->n_senders;
}

/* The number of the receiver of that name; n_receivers if there is none. */
static size_t receiver_named(const lens_graph *g, const char *name)
{
    const node_parts p = parts_of_name(name);
    size_t receiver = g->n_receivers - 1;
    if (*name == 'a' || *name == 'm')
        receiver = p.layer * (3 * g->n_head + 1) + p.head;
    if (p.part == 'k' || p.part == 'v')
        receiver += (p.part == 'k' ? 1 : 2) * g->n_head;
    if (*name == 'm')
        receiver += 3 * g->n_head;
    return receiver < g->n_receivers && strcmp(lens_receiver_name(g, receiver).text, name) == 0
               ? receiver
               : g->n_receivers;
}

/* Reads an edge of the file into scores [S, R]. */
static int read_edge(lens *l, const lens_graph *g, const json_value *edge, float sign,
                     attn_tensor scores)
{
    const char *const key = keep(l, "%.*s", (int)edge->key_size, edge->key);
    const char *const arrow = strstr(key, "->");
    const json_value *score = json_get(edge, "score");
    const size_t sender =
        arrow ? sender_named(g, keep(l, "%.*s", (int)(arrow - key), key)) : g->n_senders;
    const size_t receiver = arrow ? receiver_named(g, arrow + 2) : g->n_receivers;
    double number = 0;
    if (sender == g->n_senders || receiver == g->n_receivers ||
        sender >= lens_senders_to(g, receiver))
        return fail(FAILED, "%s: the model has no edge %.60s", l->o.circuit, key);
    if (!score || !json_double(score, &number))
        return fail(FAILED, "%s: the edge %.60s has no score", l->o.circuit, key);
    ((float *)scores.data)[sender * g->n_receivers + receiver] = sign * (float)number;
    return FINE;
}

/* --circuit: the scores of a file, as edges.h has them. */
static int read_circuit(lens *l, const patching *p, const lens_graph *g, attn_tensor *scores)
{
    char *text = NULL;
    size_t size = 0, i;
    json_value *root = NULL;
    const json_value *edges, *v;
    int code = FINE;
    if (read_file(&l->ctx, &l->memory, l->o.circuit, SIZE_MAX / 2, &text, &size) ||
        json_parse(&l->ctx, l->o.circuit, text, size, &root) ||
        attn_zeros(&l->ctx, scores, ATTN_F32, attn_shape2(g->n_senders, g->n_receivers)))
        code = failed(&l->ctx);
    edges = code == FINE ? json_get(root, "edges") : NULL;
    if (code == FINE && (!edges || edges->kind != JSON_OBJECT || edges->size != g->n_edges))
        code =
            fail(FAILED, "%s: expected \"edges\" with the model's %zu edges, not %zu", l->o.circuit,
                 g->n_edges, edges && edges->kind == JSON_OBJECT ? edges->size : (size_t)0);
    for (i = 0, v = edges ? edges + 1 : NULL; code == FINE && i < edges->size; i++, v += v->span)
        code = read_edge(l, g, v, circuit_sign(p), *scores);
    free(root);
    return code;
}

#endif

/* Circuits as files, as tools/common/edge_scores.h describes them. Their scores are positive where an edge helps
 * the clean text's answer, so that their sign is not that of edges.h. */
#ifndef LENS_CIRCUIT_FILE_H
#define LENS_CIRCUIT_FILE_H

#include "cmd_patch.h"
#include "tools/common/edge_scores.h"

/* The factor between the scores of edges.h and those of the file. */
static float circuit_sign(const patching *p)
{
    return gap_of(p) < 0 ? 1 : -1;
}

/* ---- writing ---- */

/* Writes edges [n_edges], of which the first n_kept are the circuit. used [n_senders + 1]: zeros. */
static void write_edges(FILE *file, const lens *l, const lens_graph *g, const lens_edge *edges,
                        size_t n_kept, float sign, char *used)
{
    used[0] = used[g->n_senders] = 1;
    for (size_t i = 0; i < n_kept; i++)
        used[edges[i].sender] = used[lens_node_of_receiver(g, edges[i].receiver)] = 1;
    fprintf(file,
            "{\"cfg\": {\"n_layers\": %zu, \"n_heads\": %zu, \"parallel_attn_mlp\": false, "
            "\"d_model\": %zu},\n \"nodes\": {",
            g->n_layer, g->n_head, (size_t)l->config->d_model);
    for (size_t i = 0; i <= g->n_senders; i++)
        fprintf(file, "%s\n  \"%s\": {\"in_graph\": %s}", i ? "," : "",
                i < g->n_senders ? lens_sender_name(g, i).text : "logits",
                used[i] ? "true" : "false");
    fputs("},\n \"edges\": {", file);
    for (size_t i = 0; i < g->n_edges; i++)
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
    lens_new_file *file = NULL;
    if (!used || lens_new_file_begin(&l->ctx, &file, l->o.output))
        return failed(&l->ctx);
    memset(used, 0, g->n_senders + 1);
    write_edges((FILE *)lens_new_file_stream(file), l, g, edges, n_kept, circuit_sign(p), used);
    attn_status status = lens_new_file_end(&l->ctx, file, was_stopped(l) ? ATTN_STOPPED : ATTN_OK);
    if (status != ATTN_OK)
        return failed(&l->ctx);
    tell_written(l, "the scores of all edges, in the form of MIB");
    return FINE;
}

/* ---- reading ---- */

/* --circuit: the scores of a file, as edges.h has them. */
static int read_circuit(lens *l, const patching *p, attn_tensor *scores)
{
    return read_edge_scores(&l->ctx, &l->memory, scores, l->model, l->o.circuit, circuit_sign(p))
               ? failed(&l->ctx)
               : FINE;
}

#endif

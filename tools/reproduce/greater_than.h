/* Greater-than (Hanna, Liu & Variengien 2023): after "The war lasted from the year 1732 to the year 17"
 * a model gives the years after 32 more probability than the others. This finds circuits of the 200
 * best edges from pairs of such texts, as the notebook of hannamw/EAP-IG does. Its
 * greater_than_data.csv has 1,000 pairs; in the corrupted text, the first year is 01.
 *
 * Edges are scored by the gradient at points between the two texts: at the clean text (EAP), the mean
 * at five points, k / 5 of the way from the corrupted text to the clean one for k = 0 to 4 (EAP-IG
 * with five steps), or the mean at both texts (clean-corrupted). The notebook takes the mean over each
 * batch of 120 pairs and adds up the batches, so each of the 40 pairs of the last batch counts three
 * times. */
#ifndef REPRODUCE_GREATER_THAN_H
#define REPRODUCE_GREATER_THAN_H

#include "data.h"
#include "tools/lens/edges.h"

enum {
    N_YEARS = 100,
    N_STEPS = 5,
    N_POINTS = N_STEPS + 1,
    N_YEAR_CIRCUITS = 3,
    BEST_EDGES = 200,
    PAIRS_OF_BATCH = 120,
    SHOWN_CIRCUIT = 1 /* the circuit whose nodes and edges the notebook counts */
};

/* The weight of each point's gradient in EAP, EAP-IG and clean-corrupted. */
static const int weights_of_points[N_YEAR_CIRCUITS][N_POINTS] = {
    {0, 0, 0, 0, 0, 1}, {1, 1, 1, 1, 1, 0}, {1, 0, 0, 0, 0, 1}};

typedef struct year_pair {
    int32_t *texts[2]; /* clean, corrupted */
    size_t n_tokens, year;
    const int32_t *years; /* [N_YEARS]: the first token of "00", "01", ... */
} year_pair;

typedef struct greater_than {
    reading *reading;
    year_pair *pairs;
    size_t n;
    int32_t years[N_YEARS];
    lens_backward backward;
} greater_than;

/* ---- the pairs ---- */

/* The tokens of a text, with the beginning-of-text token before them. */
static attn_status year_text(greater_than *g, attn_token **ids, size_t *n, const char *text)
{
    study *s = g->reading->study;
    const attn_token bos = attn_model_config(s->raw)->bos;
    const size_t first = bos >= 0;
    if (encode(g->reading, g->reading->ids, n, text, strlen(text)))
        return s->ctx->status;
    *ids = (int32_t *)arena_alloc(s->ctx, s->memory, first + *n + 1, sizeof **ids);
    if (!*ids)
        return s->ctx->status;
    (*ids)[0] = bos;
    memcpy(*ids + first, g->reading->ids, *n * sizeof **ids);
    *n += first;
    return ATTN_OK;
}

/* Parses "clean,corrupted,year"; the commas become zeros. */
static attn_status read_year_pair(greater_than *g, year_pair *y, char *line, const char *where)
{
    attn_ctx *ctx = g->reading->study->ctx;
    char *corrupted = strchr(line, ','), *year = corrupted ? strchr(corrupted + 1, ',') : NULL;
    char *end = year;
    const size_t most = attn_model_config(g->reading->study->raw)->n_ctx;
    size_t n = 0;
    if (corrupted && year) {
        *corrupted++ = 0;
        *year++ = 0;
        y->year = strtoul(year, &end, 10);
    }
    if (!year || end == year || end[strspn(end, "\r")] != 0 || y->year >= N_YEARS)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: expected clean,corrupted,label; the label is a year, 0 to 99", where);
    y->years = g->years;
    if (year_text(g, &y->texts[0], &y->n_tokens, line) || year_text(g, &y->texts[1], &n, corrupted))
        return ctx->status;
    if (n != y->n_tokens)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: the clean text has %zu tokens, the corrupted one %zu", where,
                         y->n_tokens, n);
    if (n > most)
        return tool_fail(ctx, ATTN_E_CONTEXT, "%s: %zu tokens, the model's context has %zu", where,
                         n, most);
    return ATTN_OK;
}

static attn_status read_year_pairs(greater_than *g, const char *path)
{
    study *s = g->reading->study;
    char *text = NULL, *at, *end, where[128];
    size_t size = 0, line = 1;
    if (read_file(s->ctx, s->memory, path, (size_t)1 << 24, &text, &size) || !text)
        return s->ctx->status;
    if (strncmp(text, "clean,corrupted,label", 21) != 0)
        return tool_fail(s->ctx, ATTN_E_FORMAT, "%s: the first line is not clean,corrupted,label",
                         path);
    g->pairs = (year_pair *)arena_alloc(s->ctx, s->memory, size, sizeof *g->pairs);
    for (at = text; g->pairs && at < text + size; at = end + 1, line++) {
        end = at + strcspn(at, "\n");
        *end = 0;
        snprintf(where, sizeof where, "%.90s, line %zu", base_name(path), line);
        if (line > 1 && at[strspn(at, " \t\r")] != 0 &&
            read_year_pair(g, &g->pairs[g->n++], at, where))
            return s->ctx->status;
    }
    if (g->pairs && g->n == 0)
        return tool_fail(s->ctx, ATTN_E_FORMAT, "%s has no pairs", path);
    return s->ctx->status;
}

/* ---- the metric ---- */

/* A lens_metric_fn: the probability of all later years minus that of the others, and its gradient:
 * d / d logit j = p_j * (sign_j - value). */
static int years_after(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    const year_pair *y = (const year_pair *)user;
    const float *x = (const float *)logits.data;
    float *d = (float *)d_logits.data;
    const size_t n = logits.shape[1];
    const double whole = log_of_sum(x, n);
    double sum = 0;
    for (size_t i = 0; i < N_YEARS; i++) {
        const double p = exp((double)x[y->years[i]] - whole);
        sum += i > y->year ? p : -p;
        d[y->years[i]] += (float)(i > y->year ? p : -p);
    }
    for (size_t i = 0; i < n; i++)
        d[i] -= (float)(exp((double)x[i] - whole) * sum);
    *value = (float)sum;
    return 0;
}

static lens_pair pair_of_years(year_pair *y)
{
    const lens_metric metric = {.kind = LENS_METRIC_FUNCTION_AT, .fn = years_after, .user = y};
    return (lens_pair){y->texts[0], y->texts[1], y->n_tokens, metric};
}

/* ---- circuits ---- */

/* scores [points, senders, receivers], added up over the pairs. */
static attn_status score_years(greater_than *g, attn_tensor *scores)
{
    attn_ctx *ctx = g->reading->study->ctx;
    const lens_points points = {0, N_POINTS, N_STEPS, 0, 0};
    const lens_graph graph = lens_graph_of(g->backward.model);
    if (attn_zeros(ctx, scores, ATTN_F32,
                   attn_shape3(N_POINTS, graph.n_senders, graph.n_receivers)))
        return ctx->status;
    for (size_t i = 0; i < g->n; i++) {
        const size_t rest = g->n - i / PAIRS_OF_BATCH * PAIRS_OF_BATCH;
        const lens_pair texts = pair_of_years(&g->pairs[i]);
        if (at_share(g->reading->study, 0.8 * (double)i / (double)g->n) ||
            lens_need_pair(ctx, "greater-than", g->backward.model, &texts) ||
            lens_score_pair(ctx, *scores, &g->backward, &texts, points,
                            1.0f / (float)(rest < PAIRS_OF_BATCH ? rest : PAIRS_OF_BATCH)))
            return ctx->status;
    }
    return ATTN_OK;
}

/* Removes the edges of nodes without an edge in or without an edge out, until there is no such node.
 * counts: the number of nodes that are left, without the logits, and of edges. */
static void prune(float *edges, const lens_graph *g, float counts[2])
{
    counts[1] = (float)g->n_edges + 1;
    for (float n_before = 0; n_before != counts[1];) {
        n_before = counts[1];
        counts[0] = counts[1] = 0;
        for (size_t node = 0; node < g->n_senders; node++) {
            int enters = node == 0, leaves = 0;
            for (size_t receiver = 0; receiver < g->n_receivers; receiver++) {
                leaves |= edges[node * g->n_receivers + receiver] != 0;
                for (size_t other = 0; lens_node_of_receiver(g, receiver) == node && other < node;
                     other++)
                    enters |= edges[other * g->n_receivers + receiver] != 0;
            }
            counts[0] += (float)(enters && leaves);
            for (size_t receiver = 0; receiver < g->n_receivers && !(enters && leaves);
                 receiver++) {
                edges[node * g->n_receivers + receiver] = 0;
                for (size_t sender = 0; lens_node_of_receiver(g, receiver) == node && sender < node;
                     sender++)
                    edges[sender * g->n_receivers + receiver] = 0;
            }
        }
        for (size_t i = 0; i < g->n_senders * g->n_receivers; i++)
            counts[1] += (float)(edges[i] != 0);
    }
}

/* edges [senders, receivers]: the circuit of the best edges, pruned. */
static attn_status find_circuit(greater_than *g, attn_tensor *edges, attn_tensor scores,
                                const int *weights, float counts[2])
{
    attn_ctx *ctx = g->reading->study->ctx;
    const lens_graph graph = lens_graph_of(g->backward.model);
    attn_tensor sum = ATTN_ZERO;
    int failed =
        attn_zeros(ctx, &sum, ATTN_F32, attn_shape2(graph.n_senders, graph.n_receivers)) != ATTN_OK;
    for (size_t p = 0; p < N_POINTS && !failed; p++)
        failed = weights[p] && attn_add(ctx, &sum, sum, attn_select(scores, 0, p));
    failed = failed || lens_best_edges(ctx, edges, g->backward.model, sum, BEST_EDGES);
    if (!failed)
        prune((float *)edges->data, &graph, counts);
    attn_tensor_free(ctx, &sum);
    return failed ? ctx->status : ATTN_OK;
}

/* ---- the figures ---- */

/* The metric of the whole model, then of each circuit: the means over the pairs, and their standard errors. */
static attn_status evaluate_years(greater_than *g, float *out, float *errors,
                                  const attn_tensor *edges)
{
    attn_ctx *const ctx = g->reading->study->ctx;
    double sums[1 + N_YEAR_CIRCUITS] = {0}, squares[1 + N_YEAR_CIRCUITS] = {0};
    const double n = (double)g->n;
    for (size_t i = 0; i < g->n; i++) {
        const lens_pair texts = pair_of_years(&g->pairs[i]);
        const lens_gradients_desc what = lens_text_of(&texts, texts.clean, lens_written, 1);
        attn_record *record = NULL;
        float value = 0;
        if (at_share(g->reading->study, 0.8 + 0.2 * (double)i / n) ||
            lens_record_metric(ctx, &record, &value, &g->backward, &what))
            return ctx->status;
        attn_record_free(record);
        for (size_t c = 0; c < 1 + N_YEAR_CIRCUITS; c++) {
            if (c && lens_run_edges(ctx, &value, &g->backward, &texts, edges[c - 1]))
                return ctx->status;
            sums[c] += (double)value;
            squares[c] += (double)value * (double)value;
        }
    }
    for (size_t c = 0; c < 1 + N_YEAR_CIRCUITS; c++) {
        const double mean = sums[c] / n, variance = squares[c] / n - mean * mean;
        out[c] = (float)mean;
        errors[c] = (float)(n > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0);
    }
    return ATTN_OK;
}

/* The first tokens of "00", "01", ... */
static attn_status find_years(greater_than *g)
{
    char text[8];
    size_t n;
    for (size_t i = 0; i < N_YEARS; i++) {
        snprintf(text, sizeof text, "%02u", (unsigned)i);
        if (encode(g->reading, g->reading->ids, &n, text, 2))
            return g->reading->study->ctx->status;
        g->years[i] = g->reading->ids[0];
    }
    return ATTN_OK;
}

/* out and errors [6]: the probability difference of the model and of the circuits found by EAP, EAP-IG
 * and clean-corrupted; then the nodes and the edges of the circuit found by EAP-IG. */
static attn_status greater_than_figures(reading *r, const char *path, float *out, float *errors)
{
    attn_ctx *ctx = r->study->ctx;
    attn_tensor scores = ATTN_ZERO, edges[N_YEAR_CIRCUITS] = {ATTN_ZERO};
    greater_than g = {.reading = r};
    float counts[2] = {0, 0};
    int failed = find_years(&g) || read_year_pairs(&g, path) ||
                 lens_backward_new(ctx, &g.backward, r->study->model) || score_years(&g, &scores);
    for (size_t c = 0; c < N_YEAR_CIRCUITS && !failed; c++) {
        failed = find_circuit(&g, &edges[c], scores, weights_of_points[c], counts) != ATTN_OK;
        if (c == SHOWN_CIRCUIT && !failed)
            memcpy(out + 1 + N_YEAR_CIRCUITS, counts, sizeof counts);
    }
    failed = failed || evaluate_years(&g, out, errors, edges);
    for (size_t c = 0; c < N_YEAR_CIRCUITS; c++)
        attn_tensor_free(ctx, &edges[c]);
    attn_tensor_free(ctx, &scores);
    lens_backward_free(ctx, &g.backward);
    return failed ? ctx->status : ATTN_OK;
}

#endif

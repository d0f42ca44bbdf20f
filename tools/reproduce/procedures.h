/* The procedures of whole plots, by their names in published.txt: those that are questions to lens about each of the
 * prompts are here. The numbers of a procedure are computed once and kept. */
#ifndef REPRODUCE_PROCEDURES_H
#define REPRODUCE_PROCEDURES_H

#include "attributing.h"

/* ---- questions about each prompt ---- */

/* The numbers of all prompts, one after the other. */
static attn_status of_prompts(study *s, const plot *p)
{
    float *out = NULL;
    for (size_t i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        const subject text = prompt_of(s, all_pairs, i, 0);
        size_t n;
        const float *x = ask_for(s, s->model, p->what, p->column, &text, &n);
        if (x && (out || (out = room_to_keep(s, p->names, N_PROMPTS * n)) != NULL))
            memcpy(out + i * n, x, n * sizeof *x);
    }
    return s->ctx->status;
}

/* The mean logit differences of the clean texts and of the corrupted ones. */
static attn_status baselines(study *s, const plot *p)
{
    const struct pairs *const of = &all_pairs[p->number];
    float *const out = room_to_keep(s, p->names, 2);
    for (size_t i = 0; i < 2 * of->n && !s->ctx->status; i++) {
        const subject text = prompt_of(s, of, i / 2, i % 2);
        size_t n;
        const float *x = ask_for(s, s->model, p->what, p->column, &text, &n);
        if (x)
            out[i % 2] += *x;
    }
    for (size_t k = 0; k < 2 && !s->ctx->status; k++)
        out[k] /= (float)of->n;
    return s->ctx->status;
}

/* Activation patching: a corrupted text runs with one activation of the clean text. The mean logit differences over
 * the pairs, scaled so that 0 is the corrupted text and 1 the clean one. */
static attn_status patched(study *s, const plot *p)
{
    const struct pairs *const of = &all_pairs[p->number];
    size_t n = 0;
    const float *const whole = compute(s, p->number ? "one-baselines" : "baselines", &n);
    float *out = NULL;
    for (size_t i = 0; i < of->n && !s->ctx->status; i++) {
        subject texts = prompt_of(s, of, i, 0);
        texts.corrupted = prompt_of(s, of, i, 1).text;
        const float *x = ask_for(s, s->model, p->what, p->column, &texts, &n);
        if (x && (out || (out = room_to_keep(s, p->names, n)) != NULL))
            for (size_t k = 0; k < n; k++)
                out[k] += x[k];
    }
    for (size_t k = 0; k < n && !s->ctx->status; k++)
        out[k] = (out[k] - whole[1] * (float)of->n) / ((whole[0] - whole[1]) * (float)of->n);
    return s->ctx->status;
}

/* ---- other questions ---- */

/* The mean attention from each position to the one `back` positions earlier. pattern [n, n] */
static float mean_of_diagonal(const float *pattern, size_t n, size_t back)
{
    double sum = 0;
    for (size_t q = back; q < n; q++)
        sum += (double)pattern[q * n + q - back];
    return (float)(sum / (double)(n - back));
}

/* Scores of the heads on two random texts, each of which repeats 100 tokens: the attention to the
 * previous token, to the first occurrence of the same token, and to the token after that. All scores
 * are kept. The tokens are those of torch.manual_seed(0); torch.randint(100, 20000, (2, 100)), which
 * takes 32 random bits modulo 19,900. */
static attn_status repeated_tokens(study *s, const plot *p)
{
    enum { HALF = N_REPEATED / 2, N_TEXTS = 2, N_SCORES = 3 };
    static const char *const names[N_SCORES] = {"previous-token", "duplicate-token", "induction"};
    static const size_t back[N_SCORES] = {1, HALF, HALF - 1};
    const size_t n_heads = s->n_layer * s->n_head;
    attn_token tokens[N_REPEATED];
    float *out[N_SCORES];
    attn_rng rng;
    for (size_t k = 0; k < N_SCORES; k++)
        out[k] = room_to_keep(s, names[k], n_heads);
    attn_rng_seed(&rng, 0);
    s->n_parts = N_TEXTS;
    for (s->part = 0; s->part < N_TEXTS && !s->ctx->status; s->part++) {
        const subject text = {tokens, NULL, N_REPEATED, {0}};
        size_t n;
        for (size_t j = 0; j < HALF; j++)
            tokens[j] = tokens[HALF + j] = (int32_t)(100 + attn_rng_u32(&rng) % 19900);
        const float *x = ask_for(s, s->model, p->what, p->column, &text, &n);
        for (size_t h = 0; x && h < n_heads; h++, x += (size_t)N_REPEATED * N_REPEATED)
            for (size_t k = 0; k < N_SCORES; k++)
                out[k][h] += mean_of_diagonal(x, N_REPEATED, back[k]) / N_TEXTS;
    }
    return s->ctx->status;
}

/* The five heads with the highest scores, in ascending order. */
static attn_status five_highest(study *s, const plot *p)
{
    size_t n, top[5] = {0};
    const float *const scores = compute(s, p->what, &n);
    float *const out = room_to_keep(s, p->names, 5);
    if (s->ctx->status)
        return s->ctx->status;
    top_heads(top, 5, scores);
    for (size_t i = 0; i < 5; i++)
        out[i] = (float)top[i];
    return ATTN_OK;
}

/* Copying scores [layers, heads] of the OV circuits and of the full ones from token to token, and the eigenvalues
 * [2, d_head] of the last head, first the real parts. All of it is kept. LAPACK's order of eigenvalues is arbitrary;
 * here the largest real part is first, and of equal ones the largest imaginary part. */
static attn_status copying_scores(study *s, const plot *p)
{
    static const char *const scores[][2] = {{"ov-copying", "heads.copying_ov"},
                                            {"ov-copying-of-tokens", "heads.copying_full"}};
    const size_t d = attn_model_config(s->model)->d_head;
    const size_t last = (s->n_layer * s->n_head - 1) * d; /* those of OV circuits are first */
    const subject weights = {NULL, NULL, 0, {d}};
    float *const points = room_to_keep(s, "ov-eigenvalues", 2 * d);
    lens_query *const q = ask(s, s->model, p->what, &weights);
    size_t n;
    const float *const real = q ? numbers_of(s, q, "eigenvalues.real", &n) : NULL;
    const float *const imaginary = q ? numbers_of(s, q, "eigenvalues.imaginary", &n) : NULL;
    for (size_t i = 0, j; i < d && !s->ctx->status; i++) {
        const float re = real[last + i], im = imaginary[last + i];
        for (j = i;
             j > 0 && (points[j - 1] < re || (points[j - 1] == re && points[d + j - 1] < im));
             j--) {
            points[j] = points[j - 1];
            points[d + j] = points[d + j - 1];
        }
        points[j] = re;
        points[d + j] = im;
    }
    for (size_t i = 0; i < 2 && !s->ctx->status; i++) {
        const float *x = numbers_of(s, q, scores[i][1], &n);
        float *const out = x ? room_to_keep(s, scores[i][0], n) : NULL;
        if (out)
            memcpy(out, x, n * sizeof *x);
    }
    lens_query_free(q);
    return s->ctx->status;
}

/* ---- arithmetic between runs: study.h, attributing.h ---- */

/* Rows [positions] of two attributions by layer in turn, a[0] b[0] a[1] b[1] ...: of the stream in the order of the
 * forward pass, which ends with the last stream; or of the layers' outputs, behind one row for each embedding. That of
 * the tokens is the input of layer 0, since the position embeddings are equal. */
static attn_status attributed_rows(study *s, const plot *p)
{
    const int of_layers = strcmp(p->names, "attr-layers") == 0;
    const size_t n_rows = 2 * s->n_layer, row = N_TOKENS;
    size_t n;
    const float *const pre = compute(s, "attr-resid_pre", &n);
    const float *const a = of_layers ? compute(s, "attr-attn_out", &n) : pre;
    const float *const b = compute(s, of_layers ? "attr-mlp_out" : "attr-resid_mid", &n);
    const float *const last = compute(s, "attr-resid_post", &n);
    float *const out = room_to_keep(s, p->names, (n_rows + (of_layers ? 2 : 1)) * row);
    for (size_t i = 0; i < n_rows && !s->ctx->status; i++)
        memcpy(out + (i + (of_layers ? 2 : 0)) * row, (i % 2 ? b : a) + i / 2 * row,
               row * sizeof *out);
    if (!s->ctx->status)
        memcpy(of_layers ? out : out + n_rows * row,
               of_layers ? pre : last + (s->n_layer - 1) * row, row * sizeof *out);
    return s->ctx->status;
}

static attn_status attributed_sum(study *s, const plot *p)
{
    size_t n = 0;
    const float *const x = compute(s, p->what, &n);
    float *const out = room_to_keep(s, p->names, n / N_TOKENS);
    for (size_t i = 0; i < n && !s->ctx->status; i++)
        out[i / N_TOKENS] += x[i];
    return s->ctx->status;
}

static attn_status sorted_heads(study *s, const plot *p)
{
    size_t n = 0;
    const float *const x = compute(s, p->what, &n);
    float *const out = room_to_keep(s, p->names, n);
    for (size_t i = 0; i < n && !s->ctx->status; i++)
        out[rank_of(x, n, i)] = fabsf(x[i]);
    return s->ctx->status;
}

/* The paths between the strongest heads [22, 22]: number 0 to queries, 1 to keys, 2 to values; 3 to all in turn. */
static attn_status top_paths(study *s, const plot *p)
{
    size_t n, top[N_TOP] = {0};
    const float *const x = compute(s, p->what, &n), *const paths = compute(s, PATHS, &n);
    float *out = room_to_keep(s, p->names, (size_t)(p->number == 3 ? 3 : 1) * N_TOP * N_TOP);
    if (s->ctx->status)
        return s->ctx->status;
    top_heads(top, N_TOP, x);
    for (size_t i = 0; i < N_TOP; i++)
        for (size_t k = 0; k < 3; k++)
            for (size_t j = 0; j < N_TOP && (p->number == 3 || p->number == k); j++)
                *out++ = paths[(3 * top[i] + k) * MOST_HEADS + top[j]];
    return ATTN_OK;
}

/* out [6, heads]: the paths to one head's queries, keys and values, and from the head to those of the others. */
static attn_status head_paths(study *s, const plot *p)
{
    size_t n;
    const float *const paths = compute(s, PATHS, &n);
    float *const out = room_to_keep(s, p->names, (size_t)6 * MOST_HEADS);
    for (size_t k = 0; k < 3 && !s->ctx->status; k++)
        for (size_t i = 0; i < MOST_HEADS; i++) {
            out[k * MOST_HEADS + i] = paths[(3 * p->number + k) * MOST_HEADS + i];
            out[(3 + k) * MOST_HEADS + i] = paths[(3 * i + k) * MOST_HEADS + p->number];
        }
    return s->ctx->status;
}

/* ---- the table ---- */

#define PATCH(x, by, column, pairs)                                                                \
    patched, "patch names=" x " by=" by DIFFERENCE, column ".answer", pairs
#define OF_HEAD(x)                                                                                 \
    {"patch-" x, PATCH("attn.hook_" x, "heads", "heads", 0)},                                      \
        {"patch-" x "-by-position", PATCH("attn.hook_" x, "position-heads", "position_heads", 0)}, \
    {                                                                                              \
        "attr-" x "-sum", attributed_sum, "attr-" x, NULL, 0                                       \
    }
#define PATTERN(l, h)                                                                              \
    {                                                                                              \
        "pattern-" l "." h, of_prompts, "patterns layer=" l " head=" h, "patterns.weight", 0       \
    }

static const plot plots[] = {
    {"accumulated", attributed_parts, NULL, NULL, LENS_PARTS_STREAMS_MID},
    {"sublayers", attributed_parts, NULL, NULL, LENS_PARTS_SUBLAYERS},
    {"heads heads-of-first scales", attributed_parts, NULL, NULL, LENS_PARTS_HEADS},
    {"ablated ablated-heads ablated-scales ablated-ratio", ablated_top, "heads", NULL, 0},
    {"prompts", of_prompts, "attribute" DIFFERENCE, "facts.logit", 0},
    {"baselines", baselines, "attribute" DIFFERENCE, "facts.logit", 0},
    {"one-baselines", baselines, "attribute" DIFFERENCE, "facts.logit", 1},
    PATTERN("5", "5"),
    PATTERN("10", "7"),
    PATTERN("11", "10"),
    {"previous-token duplicate-token induction", repeated_tokens, "patterns", "patterns.weight", 0},
    {"top-induction", five_highest, "induction", NULL, 0},
    {"ov-copying ov-copying-of-tokens ov-eigenvalues", copying_scores, "circuits top=@0", NULL, 0},
    {"patch-resid_pre", PATCH("hook_resid_pre", "positions", "positions", 0)},
    {"patch-attn_out", PATCH("hook_attn_out", "positions", "positions", 0)},
    {"patch-mlp_out", PATCH("hook_mlp_out", "positions", "positions", 0)},
    {"patch-resid_pre-of-one", PATCH("hook_resid_pre", "positions", "positions", 1)},
    OF_HEAD("z"),
    OF_HEAD("q"),
    OF_HEAD("k"),
    OF_HEAD("v"),
    OF_HEAD("pattern"),
    {"attr-result-sum", attributed_sum, "attr-result", NULL, 0},
    {"attr-resid_pre attr-resid_mid attr-resid_post attr-attn_out attr-mlp_out attr-result attr-z "
     "attr-q attr-k attr-v attr-pattern " PATHS,
     attributed, "prompts", NULL, 0},
    {"attr-resid", attributed_rows, NULL, NULL, 0},
    {"attr-layers", attributed_rows, NULL, NULL, 0},
    {"top-heads", sorted_heads, "attr-result-sum", NULL, 0},
    {"paths-of-top", top_paths, "attr-result-sum", NULL, 3},
    {"paths-of-top-q", top_paths, "attr-result-sum", NULL, 0},
    {"paths-of-top-k", top_paths, "attr-result-sum", NULL, 1},
    {"paths-of-top-v", top_paths, "attr-result-sum", NULL, 2},
    {"paths-5.5", head_paths, NULL, NULL, 5 * N_HEAD + 5},
    {"paths-8.6", head_paths, NULL, NULL, 8 * N_HEAD + 6},
    {"paths-9.9", head_paths, NULL, NULL, 9 * N_HEAD + 9},
    {"attr-blocks", NULL, "attr-resid_pre,attr-attn_out,attr-mlp_out", NULL, 0},
    {"attr-heads", NULL, "attr-z-sum,attr-q-sum,attr-k-sum,attr-v-sum,attr-pattern-sum", NULL, 0},
    {"attr-heads-by-position", NULL, "attr-z,attr-q,attr-k,attr-v,attr-pattern", NULL, 0},
    {"patch-blocks", NULL, "patch-resid_pre,patch-attn_out,patch-mlp_out", NULL, 0},
    {"patch-heads", NULL, "patch-z,patch-q,patch-k,patch-v,patch-pattern", NULL, 0},
    {"patch-heads-by-position", NULL,
     "patch-z-by-position,patch-q-by-position,patch-k-by-position,patch-v-by-position,"
     "patch-pattern-by-position",
     NULL, 0},
};
enum { N_PLOTS = sizeof plots / sizeof plots[0] };

/* The tokens of the longest text that a plot feeds, or of several whose names are joined. */
static size_t tokens_of_plot(const char *names)
{
    if (strstr(names, "ov-"))
        return 0;
    if (strstr(names, "-token") || strstr(names, "induction"))
        return N_REPEATED;
    return strstr(names, "one") ? N_ONE : N_TOKENS;
}

/* The values of several procedures, one after the other. Commas or slashes separate their names. */
static const float *join(study *s, const char *names, size_t *n)
{
    float *all = NULL, *larger;
    const float *part;
    char name[64];
    size_t size, length;
    for (*n = 0; *names; names += length + (names[length] != 0)) {
        length = strcspn(names, ",/");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (!(part = compute(s, name, &size)) || !(larger = room_for(s, *n + size)))
            return NULL;
        if (*n > 0)
            memcpy(larger, all, *n * sizeof *all);
        memcpy(larger + *n, part, size * sizeof *part);
        all = larger;
        *n += size;
    }
    return all;
}

/* The numbers of a procedure, computed at its first use. NULL after a message in the context. */
static const float *compute(study *s, const char *name, size_t *n)
{
    const plot *p = plots;
    const kept_numbers *k = find_kept(s, name);
    if (!k && strpbrk(name, ",/"))
        return join(s, name, n);
    while (!k && p < plots + N_PLOTS && find_name(p->names, name, strlen(name)) < 0)
        p++;
    if (!k && p == plots + N_PLOTS) {
        tool_fail(s->ctx, ATTN_E_NAME, "there is no procedure %s", name);
        return NULL;
    }
    if (!k && !p->fn)
        return join(s, p->what, n);
    if (!k && p->fn(s, p))
        return NULL;
    k = find_kept(s, name);
    *n = k->n;
    return k->values;
}

#endif

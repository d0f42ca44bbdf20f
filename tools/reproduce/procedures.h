/* The procedures of whole plots, by their names in published.txt. The numbers of a procedure are
 * computed once and kept. */
#ifndef REPRODUCE_PROCEDURES_H
#define REPRODUCE_PROCEDURES_H

#include "attributing.h"
#include "patching.h"

typedef struct plots {
    study study;
    sweeps sweeps; /* of the eight prompts; begun at the first use */
    int has_sweeps;
    progress progress;
} plots;

typedef enum procedure_kind {
    /* computed one at a time; each has its own number of results */
    ACCUMULATED,
    SUBLAYERS,
    HEADS,
    PATCHED, /* `what` is patched at each position of each layer, or in each head at all positions */
    BY_POSITION, /* `what` is patched in each head at each position */
    ONE_PROMPT,
    PATTERN, /* of head `head` of layer `number` */
    PROMPTS,
    BASELINES,
    ONE_BASELINES,
    TOP_INDUCTION,
    ATTRIBUTED_STREAM,
    ATTRIBUTED_LAYERS,
    ATTRIBUTED_SUM,
    TOP_HEADS,
    PATHS_OF_TOP,  /* number 0: to queries, 1: to keys, 2: to values, 3: to all three */
    PATHS_OF_HEAD, /* of head `head` of layer `number` */
    /* computed together with others, and kept */
    ABLATED,
    COPYING,
    REPEATED,
    ATTRIBUTED,
    /* the values of several others, one after the other */
    LIST
} procedure_kind;

/* `what` is an activation, another procedure, or a list of procedures. */
typedef struct procedure {
    const char *name;
    procedure_kind kind;
    const char *what;
    size_t number, head;
} procedure;

static const procedure procedures[] = {
    {"accumulated", ACCUMULATED, NULL, 0, 0},
    {"sublayers", SUBLAYERS, NULL, 0, 0},
    {"heads", HEADS, NULL, 0, 0},
    {"prompts", PROMPTS, NULL, 0, 0},
    {"baselines", BASELINES, NULL, 0, 0},
    {"one-baselines", ONE_BASELINES, NULL, 0, 0},
    {"ablated", ABLATED, NULL, 0, 0},
    {"ablated-heads", ABLATED, NULL, 0, 0},
    {"ablated-scales", ABLATED, NULL, 0, 0},
    {"ablated-ratio", ABLATED, NULL, 0, 0},
    {"scales", ABLATED, NULL, 0, 0},
    {"heads-of-first", ABLATED, NULL, 0, 0},
    {"patch-resid_pre", PATCHED, "hook_resid_pre", 0, 0},
    {"patch-attn_out", PATCHED, "hook_attn_out", 0, 0},
    {"patch-mlp_out", PATCHED, "hook_mlp_out", 0, 0},
    {"patch-z", PATCHED, "attn.hook_z", 0, 0},
    {"patch-q", PATCHED, "attn.hook_q", 0, 0},
    {"patch-k", PATCHED, "attn.hook_k", 0, 0},
    {"patch-v", PATCHED, "attn.hook_v", 0, 0},
    {"patch-pattern", PATCHED, "attn.hook_pattern", 0, 0},
    {"patch-z-by-position", BY_POSITION, "attn.hook_z", 0, 0},
    {"patch-q-by-position", BY_POSITION, "attn.hook_q", 0, 0},
    {"patch-k-by-position", BY_POSITION, "attn.hook_k", 0, 0},
    {"patch-v-by-position", BY_POSITION, "attn.hook_v", 0, 0},
    {"patch-pattern-by-position", BY_POSITION, "attn.hook_pattern", 0, 0},
    {"patch-resid_pre-of-one", ONE_PROMPT, "hook_resid_pre", 0, 0},
    {"pattern-5.5", PATTERN, NULL, 5, 5},
    {"pattern-10.7", PATTERN, NULL, 10, 7},
    {"pattern-11.10", PATTERN, NULL, 11, 10},
    {"previous-token", REPEATED, NULL, 0, 0},
    {"duplicate-token", REPEATED, NULL, 0, 0},
    {"induction", REPEATED, NULL, 0, 0},
    {"ov-copying", COPYING, NULL, 0, 0},
    {"ov-copying-of-tokens", COPYING, NULL, 0, 0},
    {"ov-eigenvalues", COPYING, NULL, 0, 0},
    {"top-induction", TOP_INDUCTION, "induction", 0, 0},
    {"attr-resid", ATTRIBUTED_STREAM, NULL, 0, 0},
    {"attr-layers", ATTRIBUTED_LAYERS, NULL, 0, 0},
    {"attr-resid_pre", ATTRIBUTED, NULL, 0, 0},
    {"attr-resid_mid", ATTRIBUTED, NULL, 0, 0},
    {"attr-resid_post", ATTRIBUTED, NULL, 0, 0},
    {"attr-attn_out", ATTRIBUTED, NULL, 0, 0},
    {"attr-mlp_out", ATTRIBUTED, NULL, 0, 0},
    {"attr-result", ATTRIBUTED, NULL, 0, 0},
    {"attr-q", ATTRIBUTED, NULL, 0, 0},
    {"attr-k", ATTRIBUTED, NULL, 0, 0},
    {"attr-v", ATTRIBUTED, NULL, 0, 0},
    {"attr-z", ATTRIBUTED, NULL, 0, 0},
    {"attr-pattern", ATTRIBUTED, NULL, 0, 0},
    {"attr-result-sum", ATTRIBUTED_SUM, "attr-result", 0, 0},
    {"attr-q-sum", ATTRIBUTED_SUM, "attr-q", 0, 0},
    {"attr-k-sum", ATTRIBUTED_SUM, "attr-k", 0, 0},
    {"attr-v-sum", ATTRIBUTED_SUM, "attr-v", 0, 0},
    {"attr-z-sum", ATTRIBUTED_SUM, "attr-z", 0, 0},
    {"attr-pattern-sum", ATTRIBUTED_SUM, "attr-pattern", 0, 0},
    {PATHS, ATTRIBUTED, NULL, 0, 0},
    {"top-heads", TOP_HEADS, "attr-result-sum", 0, 0},
    {"paths-of-top", PATHS_OF_TOP, "attr-result-sum", 3, 0},
    {"paths-of-top-q", PATHS_OF_TOP, "attr-result-sum", 0, 0},
    {"paths-of-top-k", PATHS_OF_TOP, "attr-result-sum", 1, 0},
    {"paths-of-top-v", PATHS_OF_TOP, "attr-result-sum", 2, 0},
    {"paths-5.5", PATHS_OF_HEAD, NULL, 5, 5},
    {"paths-8.6", PATHS_OF_HEAD, NULL, 8, 6},
    {"paths-9.9", PATHS_OF_HEAD, NULL, 9, 9},
    {"attr-blocks", LIST, "attr-resid_pre,attr-attn_out,attr-mlp_out", 0, 0},
    {"attr-heads", LIST, "attr-z-sum,attr-q-sum,attr-k-sum,attr-v-sum,attr-pattern-sum", 0, 0},
    {"attr-heads-by-position", LIST, "attr-z,attr-q,attr-k,attr-v,attr-pattern", 0, 0},
    {"patch-blocks", LIST, "patch-resid_pre,patch-attn_out,patch-mlp_out", 0, 0},
    {"patch-heads", LIST, "patch-z,patch-q,patch-k,patch-v,patch-pattern", 0, 0},
    {"patch-heads-by-position", LIST,
     "patch-z-by-position,patch-q-by-position,patch-k-by-position,patch-v-by-position,"
     "patch-pattern-by-position",
     0, 0},
};
enum { N_PROCEDURES = sizeof procedures / sizeof procedures[0] };

static size_t size_of(const study *s, const procedure *p)
{
    const size_t heads = s->n_layer * s->n_head;
    switch (p->kind) {
    case ACCUMULATED:
        return 2 * s->n_layer + 1;
    case SUBLAYERS:
        return 2 * s->n_layer + 2;
    case PATCHED:
        return strncmp(p->what, "attn.", 5) == 0 ? heads : s->n_layer * N_TOKENS;
    case ONE_PROMPT:
        return s->n_layer * N_ONE;
    case PATTERN:
        return (size_t)N_PROMPTS * N_TOKENS * N_TOKENS;
    case PROMPTS:
        return N_PROMPTS;
    case BASELINES:
    case ONE_BASELINES:
        return 2;
    case TOP_INDUCTION:
        return 5;
    case BY_POSITION:
        return heads * N_TOKENS;
    case ATTRIBUTED_STREAM:
        return (2 * s->n_layer + 1) * N_TOKENS;
    case ATTRIBUTED_LAYERS:
        return (2 * s->n_layer + 2) * N_TOKENS;
    case PATHS_OF_TOP:
        return (size_t)(p->number == 3 ? 3 : 1) * N_TOP * N_TOP;
    case PATHS_OF_HEAD:
        return 6 * heads;
    default:
        return heads;
    }
}

/* The tokens of the longest text that a plot feeds, or of several whose names are joined. */
static size_t tokens_of_plot(const char *names)
{
    static const struct {
        const char *part;
        size_t n;
    } longest[] = {{"ov-", 0},
                   {"previous-token", N_REPEATED},
                   {"duplicate-token", N_REPEATED},
                   {"induction", N_REPEATED},
                   {"one", N_ONE}};
    size_t i;
    for (i = 0; i < sizeof longest / sizeof longest[0]; i++)
        if (strstr(names, longest[i].part))
            return longest[i].n;
    return N_TOKENS;
}

static const float *compute(plots *r, const char *name, size_t *n);

/* The sweeps of the eight prompts; NULL after a message in the context. */
static sweeps *sweeps_of(plots *r)
{
    if (!r->has_sweeps) {
        r->has_sweeps = 1;
        if (begin_sweeps(&r->study, &r->sweeps, &eight_pairs))
            return NULL;
    }
    return &r->sweeps;
}

/* Arranges the rows that attribute_all kept: those of the residual stream in the order of the forward
 * pass, or those of the layers' outputs. */
static attn_status arrange_attributions(plots *r, float *out, int of_layers)
{
    study *s = &r->study;
    size_t n;
    const float *pre = compute(r, "attr-resid_pre", &n);
    const float *first = of_layers ? compute(r, "attr-attn_out", &n) : pre;
    const float *second = compute(r, of_layers ? "attr-mlp_out" : "attr-resid_mid", &n);
    const float *last = compute(r, "attr-resid_post", &n);
    if (!pre || !first || !second || !last)
        return s->ctx->status;
    interleave(s, out, of_layers ? 2 : 0, first, second);
    if (of_layers) /* hook_embed: as the input of layer 0, since the position embeddings are equal */
        memcpy(out, pre, N_TOKENS * sizeof *out);
    else
        memcpy(out + 2 * s->n_layer * N_TOKENS, last + (s->n_layer - 1) * N_TOKENS,
               N_TOKENS * sizeof *out);
    return ATTN_OK;
}

/* out [prompts, queries, keys]: the patterns of one head. */
static attn_status patterns_of(plots *r, float *out, size_t layer, size_t head)
{
    sweeps *w = sweeps_of(r);
    attn_tensor p;
    char name[48];
    size_t i, q, k;
    snprintf(name, sizeof name, "blocks.%u.attn.hook_pattern", (unsigned)layer);
    for (i = 0; w && i < N_PROMPTS; i++) {
        if (attn_record_get(r->study.ctx, &p, w->seen[0][i], name))
            break;
        for (q = 0; q < N_TOKENS; q++)
            for (k = 0; k < N_TOKENS; k++)
                *out++ = attn_get3(p, head, q, k);
    }
    return r->study.ctx->status;
}

/* The other notebook's prompt: patching by layer and position, or its two logit differences. */
static attn_status patch_one(plots *r, float *out, const procedure *p)
{
    sweeps *w = (sweeps *)arena_alloc(r->study.ctx, r->study.memory, 1, sizeof *w);
    if (!w)
        return r->study.ctx->status;
    if (!begin_sweeps(&r->study, w, &one_pair)) {
        if (p->kind == ONE_BASELINES)
            memcpy(out, w->sum, sizeof w->sum);
        else
            patch_layers(&r->study, w, out, p->what, 0, &r->progress);
    }
    end_sweeps(r->study.ctx, w);
    return r->study.ctx->status;
}

/* The logit differences of the prompts without patching. */
static attn_status differences(plots *r, float *out, int means)
{
    const sweeps *w = sweeps_of(r);
    size_t i;
    if (!w)
        return r->study.ctx->status;
    for (i = 0; i < N_PROMPTS && !means; i++)
        out[i] = w->difference[0][i];
    for (i = 0; i < 2 && means; i++)
        out[i] = w->sum[i] / N_PROMPTS;
    return ATTN_OK;
}

/* The five heads with the highest scores, in ascending order. */
static void five_highest(float *out, const float *scores, size_t n)
{
    size_t i, j, k;
    for (i = 0, k = 0; i < n && k < 5; i++) {
        size_t higher = 0;
        for (j = 0; j < n; j++)
            higher += scores[j] > scores[i] || (j < i && scores[j] == scores[i]);
        if (higher < 5)
            out[k++] = (float)i;
    }
}

/* Computes a procedure from the numbers of another one. */
static attn_status derive(plots *r, const procedure *p, float *out)
{
    study *s = &r->study;
    size_t n = 0, i, order[MOST_HEADS];
    const float *x = p->what ? compute(r, p->what, &n) : NULL;
    const float *paths =
        p->kind == PATHS_OF_TOP || p->kind == PATHS_OF_HEAD ? compute(r, PATHS, &i) : NULL;
    if (s->ctx->status)
        return s->ctx->status;
    if (p->kind == ATTRIBUTED_SUM)
        sum_positions(out, x, n / N_TOKENS);
    else if (p->kind == TOP_INDUCTION)
        five_highest(out, x, n);
    else if (p->kind == PATHS_OF_TOP)
        paths_of_top(out, paths, x, p->number == 3 ? -1 : (int)p->number);
    else if (p->kind == PATHS_OF_HEAD)
        paths_of_head(out, paths, p->number * N_HEAD + p->head);
    else { /* TOP_HEADS */
        sort_heads(order, x, n);
        for (i = 0; i < n; i++)
            out[i] = fabsf(x[order[i]]);
    }
    return ATTN_OK;
}

/* Computes one procedure. */
static attn_status perform(plots *r, const procedure *p, float *out, size_t n)
{
    study *s = &r->study;
    sweeps *w;
    switch (p->kind) {
    case ACCUMULATED:
        return attribute(s, out, n, LENS_PARTS_STREAMS_MID);
    case SUBLAYERS:
        return attribute(s, out, n, LENS_PARTS_SUBLAYERS);
    case HEADS:
        return attribute(s, out, n, LENS_PARTS_HEADS);
    case PATCHED:
    case BY_POSITION:
        w = sweeps_of(r);
        return !w ? s->ctx->status
                  : patch_layers(s, w, out, p->what,
                                 p->kind == PATCHED && strncmp(p->what, "attn.", 5) == 0,
                                 &r->progress);
    case ONE_PROMPT:
    case ONE_BASELINES:
        return patch_one(r, out, p);
    case PROMPTS:
    case BASELINES:
        return differences(r, out, p->kind == BASELINES);
    case PATTERN:
        return patterns_of(r, out, p->number, p->head);
    case ATTRIBUTED_STREAM:
    case ATTRIBUTED_LAYERS:
        return arrange_attributions(r, out, p->kind == ATTRIBUTED_LAYERS);
    default:
        return derive(r, p, out);
    }
}

/* Computes procedures whose numbers come from the same runs. */
static attn_status perform_all(plots *r, const procedure *p)
{
    study *s = &r->study;
    const float *heads;
    size_t n;
    if (p->kind == REPEATED)
        return repeated_tokens(s);
    if (p->kind == ATTRIBUTED)
        return attribute_all(s);
    if (p->kind == COPYING)
        return copying_scores(s);
    heads = compute(r, "heads", &n);
    return heads ? ablate_top(s, heads, find_kept(s, "scales")->values) : s->ctx->status;
}

/* The values of several procedures, one after the other. Commas or slashes separate their names. */
static const float *join(plots *r, const char *names, size_t *n)
{
    float *all = NULL, *larger;
    const float *part;
    char name[64];
    size_t size, length;
    for (*n = 0; *names; names += length + (names[length] != 0)) {
        length = strcspn(names, ",/");
        snprintf(name, sizeof name, "%.*s", (int)length, names);
        if (!(part = compute(r, name, &size)) || !(larger = room_for(&r->study, *n + size)))
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
static const float *compute(plots *r, const char *name, size_t *n)
{
    study *s = &r->study;
    const procedure *p = procedures;
    float *values;
    const kept_numbers *k = find_kept(s, name);
    if (!k && strpbrk(name, ",/"))
        return join(r, name, n);
    while (!k && p < procedures + N_PROCEDURES && strcmp(p->name, name) != 0)
        p++;
    if (!k && p == procedures + N_PROCEDURES) {
        tool_fail(s->ctx, ATTN_E_NAME, "there is no procedure %s", name);
        return NULL;
    }
    if (!k && p->kind == LIST)
        return join(r, p->what, n);
    if (!k && p->kind >= ABLATED) {
        if (perform_all(r, p))
            return NULL;
        k = find_kept(s, name);
    }
    if (k) {
        *n = k->n;
        return k->values;
    }
    *n = size_of(s, p);
    values = room_for(s, *n);
    return !values || perform(r, p, values, *n) || keep(s, name, values, *n) ? NULL : values;
}

#endif

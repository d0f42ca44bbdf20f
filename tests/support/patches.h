/* Calls of tools/lens/patch.h and paths.h about one pair of texts, in one line. */
#ifndef TEST_PATCHES_H
#define TEST_PATCHES_H

#include "models.h"
#include "test.h"
#include "tools/lens/patch.h"
#include "tools/lens/paths.h"

/* Two random texts, and the difference of two logits. */
static inline lens_pair random_pair(const attn_model *model, size_t n, uint64_t seed)
{
    lens_pair pair = {.clean = random_tokens(model, n, seed),
                      .corrupted = random_tokens(model, n, seed + 1),
                      .n_tokens = n,
                      .metric.kind = LENS_METRIC_LOGIT_DIFF,
                      .metric.token = 5,
                      .metric.against = 6};
    return pair;
}

/* The same, but the first n_same tokens of both texts are equal. */
static inline lens_pair pair_from(const attn_model *model, size_t n, uint64_t seed, size_t n_same)
{
    lens_pair pair = random_pair(model, n, seed);
    memcpy((int32_t *)pair.corrupted, pair.clean, n_same * sizeof *pair.clean);
    return pair;
}

/* An attn_progress_fn: told[0] is the share, told[1] the number of calls; it stops at call told[2]. */
static inline int count_progress(double done, void *user)
{
    double *const told = (double *)user;
    CHECK(done > told[0] && done < 1 + 1e-9);
    told[0] = done;
    told[1]++;
    return told[1] == told[2];
}

static inline attn_status patch_by(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                   const attn_model *model, lens_patch_desc desc)
{
    return lens_patch(ctx, out, baseline, model, &desc);
}

static inline attn_status patch_positions(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                          const attn_model *model, const lens_pair *pair,
                                          const char *name)
{
    const lens_patch_desc d = {.pairs = pair, .n_pairs = 1, .name = name};
    return patch_by(ctx, out, baseline, model, d);
}

static inline attn_status patch_heads(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                      const attn_model *model, const lens_pair *pair,
                                      const char *name)
{
    const lens_patch_desc d = {.pairs = pair, .n_pairs = 1, .name = name, .kind = LENS_PATCH_HEADS};
    return patch_by(ctx, out, baseline, model, d);
}

/* From one sender to one receiver. */
typedef struct one_path {
    lens_sender from;
    size_t to_layer;
    const char *to;
    size_t to_head;
    lens_path_mlps mlps;
} one_path;

static inline attn_status patch_path(attn_ctx *ctx, float *value, const attn_model *model,
                                     const lens_pair *pair, const one_path *path)
{
    const lens_receiver to = {path->to_layer, path->to, path->to_head};
    const lens_paths_desc d = {.pairs = pair,
                               .n_pairs = 1,
                               .senders = &path->from,
                               .n_senders = 1,
                               .receivers = &to,
                               .n_receivers = 1,
                               .mlps = path->mlps};
    attn_tensor out = attn_borrow(value, ATTN_F32, attn_shape1(1));
    return lens_patch_paths(ctx, &out, NULL, model, &d);
}

#endif

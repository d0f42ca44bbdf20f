/* attn_ctx.stop_flag in the functions of tools/lens that run a model, at every moment of a call. */
#include "tests/support/lens_fixtures.h"
#include "tools/lens/decompose.h"
#include "tools/lens/detect.h"
#include "tools/lens/edges.h"
#include "tools/lens/heads.h"
#include "tools/lens/pairs.h"
#include "tools/lens/patch.h"
#include "tools/lens/paths.h"
#include "tools/lens/qk.h"
#include "tools/lens/steering.h"

SUITE_WITH_MODELS("plain");

enum { LENGTH = 5 };
static const int32_t clean[LENGTH] = {3, 1, 4, 1, 5}, corrupted[LENGTH] = {3, 1, 9, 1, 5};
static const lens_pair pair = {
    clean, corrupted, LENGTH, {LENS_METRIC_LOGIT, 2, 0, 0, NULL, NULL, NULL}};

static attn_status decompose(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    lens_parts_desc what = ATTN_ZERO;
    what.kind = LENS_PARTS_HEADS;
    what.tokens = clean;
    what.n_tokens = LENGTH;
    return lens_decompose(ctx, out, NULL, b->model, &what);
}

static attn_status gradients(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const char *const name = "*.hook_resid_pre";
    lens_gradients_desc what = ATTN_ZERO;
    attn_record *made = NULL;
    (void)out;
    what.tokens = clean;
    what.n_tokens = LENGTH;
    what.names = &name;
    what.n_names = 1;
    what.metric = pair.metric;
    attn_status status = lens_gradients(ctx, &made, NULL, b, &what);
    CHECK((status == ATTN_OK) == (made != NULL));
    attn_record_free(made);
    return status;
}

static attn_status patch(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    lens_patch_desc what = ATTN_ZERO;
    what.pairs = &pair;
    what.n_pairs = 1;
    what.name = "hook_resid_pre";
    return lens_patch(ctx, out, NULL, b->model, &what);
}

static attn_status paths(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const lens_sender sender = {LENS_SENDER_HEAD, 0, 1};
    static const lens_receiver receiver = {1, "hook_q_input", 0};
    lens_paths_desc what = ATTN_ZERO;
    what.pairs = &pair;
    what.n_pairs = what.n_senders = what.n_receivers = 1;
    what.senders = &sender;
    what.receivers = &receiver;
    return lens_patch_paths(ctx, out, NULL, b->model, &what);
}

static attn_status edge_scores(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_edge_scores(ctx, out, b, &pair, 1, 2);
}

static attn_status run_edges(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_graph g = lens_graph_of(b->model);
    attn_ctx own = alone();
    attn_tensor kept = ATTN_ZERO;
    float value;
    (void)out;
    OK(&own, attn_zeros(&own, &kept, ATTN_F32, attn_shape2(g.n_senders, g.n_receivers)));
    attn_status status = lens_run_edges(ctx, &value, b, &pair, kept);
    attn_ctx_free(&own);
    return status;
}

static attn_status attribution(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_attribution_patch(ctx, out, b, &pair, "attn.hook_z");
}

static attn_status detect_heads(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_detect_heads(ctx, NULL, out, b->model, clean, LENGTH);
}

static attn_status detect_head(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    lens_detect_desc what = ATTN_ZERO;
    what.tokens = clean;
    what.n_tokens = LENGTH;
    return lens_detect_head(ctx, out, b->model, &what);
}

static attn_status qk_terms(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const lens_qk which = {clean, LENGTH, 1, 0, 3, 2};
    return lens_qk_terms(ctx, out, b->model, &which);
}

static attn_status steering_vector(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const lens_tokens texts[2] = {{clean, LENGTH}, {corrupted, LENGTH}};
    return lens_steering_vector(ctx, out, b->model, "blocks.1.hook_resid_pre", &texts[0],
                                &texts[1]);
}

/* An allocator that asks to stop at its n-th call. */
static int stop, countdown;

static void *count_down(size_t size, void *user)
{
    (void)user;
    stop |= countdown-- == 0;
    return malloc(size);
}

static void free_block(void *block, void *user)
{
    (void)user;
    free(block);
}

/* A stopped call says so by its status alone, and makes nothing. Later in the call, the stop comes after
 * the last layer, and the call ends as without it. */
TEST(stopped_anywhere)
{
    static const struct {
        const char *name;
        attn_status (*call)(attn_ctx *ctx, attn_tensor *out, lens_backward *b);
    } calls[] = {{"decompose", decompose},
                 {"gradients", gradients},
                 {"patch", patch},
                 {"paths", paths},
                 {"edge_scores", edge_scores},
                 {"run_edges", run_edges},
                 {"attribution", attribution},
                 {"detect_heads", detect_heads},
                 {"detect_head", detect_head},
                 {"qk_terms", qk_terms},
                 {"steering_vector", steering_vector}};
    attn_ctx ctx = alone();
    lens_backward backward = ATTN_ZERO;
    size_t i;
    OK(&ctx, lens_backward_new(&ctx, &backward, plain));
    for (i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        int n, n_stopped = 0;
        for (n = 0, stop = 1; stop; n++) {
            attn_ctx stopped = alone();
            attn_tensor out = ATTN_ZERO;
            stopped.alloc = count_down;
            stopped.free = free_block;
            stopped.stop_flag = &stop;
            stopped.status = ATTN_E_IO; /* of an earlier call */
            stop = 0;
            countdown = n;
            attn_status status = calls[i].call(&stopped, &out, &backward);
            CHECKF(stopped.status == ATTN_E_IO &&
                       (status == ATTN_OK || (status == ATTN_STOPPED && stop)),
                   "%s, stopped at allocation %d: returned %s, with status %s: %s", calls[i].name,
                   n, attn_status_name(status), attn_status_name(stopped.status), stopped.message);
            CHECKF(status == ATTN_OK || out.ndim == 0, "%s made a tensor", calls[i].name);
            n_stopped += status == ATTN_STOPPED;
            attn_tensor_free(&stopped, &out);
            CHECKF(!stopped.blocks, "%s leaked", calls[i].name);
            attn_ctx_free(&stopped);
        }
        CHECKF(n_stopped > 2, "%s: stopped at %d of %d allocations", calls[i].name, n_stopped, n);
    }
    lens_backward_free(&ctx, &backward);
    done(&ctx);
}

/* The library's side of compare_speed_tl.py: does what a line of standard input names, and prints how many
 * seconds that took, by the clock and of the processor, with a number of the result.
 *
 *     speed_tl MODEL.attn THREADS CLEAN CORRUPTED RIGHT WRONG [SAE_DIRECTORY]
 *
 * CLEAN and CORRUPTED are token ids with commas between them. Lines: cache, ablate, heads, positions,
 * attribution, eap, sae. Opening files and preparing what many calls share is not timed. */
#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/lens/edges.h"
#include "tools/lens/patch.h"
#include "tools/lens/sae_files.h"
#include <time.h>

enum { MOST = 1024 };

typedef struct job {
    attn_ctx ctx;
    attn_model *model;
    lens_backward backward;
    lens_pair pair;
    attn_session *session;   /* for the passes over the long text */
    attn_session **sessions; /* one for each head of a layer, on one workspace */
    attn_workspace *workspace;
    attn_tensor logits, activations; /* room for those of the long text */
    lens_sae sae;
    int32_t clean[MOST], corrupted[MOST];
} job;

static double now(clockid_t clock_id)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t read_ids(int32_t *ids, const char *text)
{
    size_t n = 0;
    char *end;
    for (; *text && n < MOST; text = *end ? end + 1 : end)
        ids[n++] = (int32_t)strtol(text, &end, 10);
    return n;
}

/* Room for all logits and activations of the text, in memory that the next call uses again. */
static int make_room(job *j, const attn_record_desc *what)
{
    const size_t n_vocab = attn_model_config(j->model)->n_vocab;
    size_t bytes;
    return j->logits.ndim > 0 ||
           (attn_record_size(&j->ctx, &bytes, j->model, what) == ATTN_OK &&
            attn_zeros(&j->ctx, &j->activations, ATTN_F32, attn_shape1(bytes / 4)) == ATTN_OK &&
            attn_zeros(&j->ctx, &j->logits, ATTN_F32, attn_shape2(j->pair.n_tokens, n_vocab)) ==
                ATTN_OK);
}

/* run_with_cache: all activations of the text and all its logits. */
static int cache(job *j, double *result)
{
    const size_t n = j->pair.n_tokens;
    attn_record_desc what = ATTN_ZERO;
    attn_feed_item item = ATTN_ZERO;
    attn_record *record = NULL;
    what.n_positions = n;
    item.session = j->session;
    item.tokens = j->clean;
    item.n_tokens = n;
    if (!make_room(j, &what) || attn_session_truncate(&j->ctx, j->session, 0))
        return 0;
    what.memory = j->activations.data;
    what.memory_size = attn_count(j->activations) * sizeof(float);
    if (attn_record_new(&j->ctx, &record, j->session, &what))
        return 0;
    item.logits = (float *)j->logits.data;
    if (attn_feed_batch(&j->ctx, &item, 1) == ATTN_OK)
        *result = (double)attn_get2(j->logits, n - 1, (size_t)j->pair.metric.token);
    attn_record_free(record);
    attn_unhook_all(j->session);
    return j->ctx.status == ATTN_OK;
}

/* The logit difference without each head: the heads of a layer are a batch, which begins at that layer
 * with the stream of the whole model. */
static int ablate(job *j, double *result)
{
    const attn_config *c = attn_model_config(j->model);
    const size_t n = j->pair.n_tokens;
    static const char *const names[] = {"*.hook_resid_pre"};
    attn_record_desc what = ATTN_ZERO;
    attn_record *record = NULL;
    attn_tensor resid;
    attn_feed_item items[64];
    what.names = names;
    what.n_names = 1;
    what.n_positions = n;
    *result = 0;
    if (attn_session_truncate(&j->ctx, j->sessions[0], 0) ||
        attn_record_new(&j->ctx, &record, j->sessions[0], &what) ||
        attn_feed(&j->ctx, j->sessions[0], j->clean, n))
        return 0;
    attn_unhook_all(j->sessions[0]);
    for (size_t head = 1; head < c->n_head; head++)
        attn_session_copy(&j->ctx, j->sessions[head], j->sessions[0]);
    for (size_t layer = 0; layer < c->n_layer && j->ctx.status == ATTN_OK; layer++) {
        char name[64];
        snprintf(name, sizeof name, "blocks.%zu.hook_resid_pre", layer);
        attn_record_get(&j->ctx, &resid, record, name);
        snprintf(name, sizeof name, "blocks.%zu.attn.hook_z", layer);
        memset(items, 0, sizeof items);
        for (size_t head = 0; head < c->n_head; head++) {
            attn_edit edit = ATTN_ZERO;
            edit.name = name;
            edit.kind = ATTN_EDIT_ZERO;
            edit.first_head = head;
            edit.n_heads = 1;
            attn_unhook_all(j->sessions[head]);
            attn_session_truncate(&j->ctx, j->sessions[head], 0);
            attn_hook_edit(&j->ctx, NULL, j->sessions[head], &edit);
            items[head].session = j->sessions[head];
            items[head].tokens = j->clean;
            items[head].n_tokens = n;
            items[head].layers.first = layer;
            items[head].layers.resid = (const float *)resid.data;
        }
        if (attn_feed_batch(&j->ctx, items, c->n_head) != ATTN_OK)
            break;
        for (size_t head = 0; head < c->n_head; head++) {
            const float *logits = attn_session_logits(j->sessions[head]);
            *result += (double)(logits[j->pair.metric.token] - logits[j->pair.metric.against]);
        }
    }
    for (size_t head = 0; head < c->n_head; head++)
        attn_unhook_all(j->sessions[head]);
    attn_record_free(record);
    *result /= (double)(c->n_layer * c->n_head);
    return j->ctx.status == ATTN_OK;
}

/* The mean of a call's result [.., ..], which it then frees. */
static int take_mean(job *j, attn_status status, attn_tensor *made, double *result)
{
    attn_tensor sums = ATTN_ZERO;
    double sum = 0;
    if (status == ATTN_OK)
        status = attn_sum(&j->ctx, &sums, *made);
    for (size_t i = 0; status == ATTN_OK && i < sums.shape[0]; i++)
        sum += (double)attn_get2(sums, i, 0);
    if (status == ATTN_OK)
        *result = sum / (double)attn_count(*made);
    attn_tensor_free(&j->ctx, &sums);
    attn_tensor_free(&j->ctx, made);
    return status == ATTN_OK;
}

static int patch(job *j, const char *name, lens_patch_kind kind, double *result)
{
    lens_patch_desc what = ATTN_ZERO;
    attn_tensor out = ATTN_ZERO;
    what.pairs = &j->pair;
    what.n_pairs = 1;
    what.name = name;
    what.kind = kind;
    attn_status status = lens_patch(&j->ctx, &out, NULL, j->model, &what);
    return take_mean(j, status, &out, result);
}

static int heads(job *j, double *result)
{
    return patch(j, "attn.hook_z", LENS_PATCH_HEADS, result);
}

static int positions(job *j, double *result)
{
    return patch(j, "hook_resid_pre", LENS_PATCH_POSITIONS, result);
}

static int attribution(job *j, double *result)
{
    attn_tensor out = ATTN_ZERO;
    return take_mean(j,
                     lens_attribution_patch(&j->ctx, &out, &j->backward, &j->pair, "attn.hook_z"),
                     &out, result);
}

static int eap(job *j, double *result)
{
    attn_tensor out = ATTN_ZERO;
    return take_mean(j, lens_edge_scores(&j->ctx, &out, &j->backward, &j->pair, 1, 1), &out,
                     result);
}

static int sae(job *j, double *result)
{
    attn_tensor x = ATTN_ZERO, out = ATTN_ZERO;
    attn_status status = attn_zeros(&j->ctx, &x, ATTN_F32, attn_shape2(j->pair.n_tokens, j->sae.n));
    for (size_t i = 0; status == ATTN_OK && i < attn_count(x); i++)
        ((float *)x.data)[i] = (float)((double)(i * 37 % 101) / 50 - 1);
    if (status == ATTN_OK)
        status = lens_sae_encode(&j->ctx, &out, &j->sae, x);
    attn_tensor_free(&j->ctx, &x);
    return take_mean(j, status, &out, result);
}

static const struct {
    const char *name;
    int (*run)(job *, double *);
} tasks[] = {{"cache", cache},
             {"ablate", ablate},
             {"heads", heads},
             {"positions", positions},
             {"attribution", attribution},
             {"eap", eap},
             {"sae", sae}};

static int prepare(job *j, char **argv, int argc)
{
    attn_session_desc size = ATTN_ZERO;
    attn_workspace_desc room = ATTN_ZERO;
    attn_model_desc open = ATTN_ZERO;
    open.skip_checksums = 1;
    j->ctx.n_threads = (int)strtol(argv[2], NULL, 10);
    j->pair.n_tokens = read_ids(j->clean, argv[3]);
    if (read_ids(j->corrupted, argv[4]) != j->pair.n_tokens ||
        attn_model_open(&j->ctx, &j->model, argv[1], &open))
        return 0;
    const attn_config *c = attn_model_config(j->model);
    j->pair.clean = j->clean;
    j->pair.corrupted = j->corrupted;
    j->pair.metric.kind = LENS_METRIC_LOGIT_DIFF;
    j->pair.metric.token = (int32_t)strtol(argv[5], NULL, 10);
    j->pair.metric.against = (int32_t)strtol(argv[6], NULL, 10);
    room.n_ctx = size.n_ctx = j->pair.n_tokens;
    j->sessions = (attn_session **)calloc(c->n_head, sizeof(attn_session *));
    if (!j->sessions || c->n_head > 64 || lens_backward_new(&j->ctx, &j->backward, j->model) ||
        attn_workspace_new(&j->ctx, &j->workspace, j->model, &room))
        return 0;
    size.workspace = j->workspace;
    if (attn_session_new(&j->ctx, &j->session, j->model, &size))
        return 0;
    for (size_t i = 0; i < c->n_head; i++)
        if (attn_session_new(&j->ctx, &j->sessions[i], j->model, &size))
            return 0;
    return argc < 8 || lens_sae_open(&j->ctx, &j->sae, argv[7]) == ATTN_OK;
}

int main(int argc, char **argv)
{
    static job j;
    char line[32];
    size_t i;
    int ok = argc >= 7 && prepare(&j, argv, argc);
    while (ok && fgets(line, sizeof line, stdin)) {
        const double from = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        double result = 0;
        line[strcspn(line, "\n")] = 0;
        for (i = 0; i < sizeof tasks / sizeof tasks[0] && strcmp(line, tasks[i].name) != 0; i++)
            ;
        ok = i < sizeof tasks / sizeof tasks[0] && tasks[i].run(&j, &result);
        if (ok)
            printf("%.9g %.9g %.9g\n", now(CLOCK_MONOTONIC) - from,
                   now(CLOCK_PROCESS_CPUTIME_ID) - cpu, result);
        fflush(stdout);
    }
    if (!ok)
        fprintf(stderr, "speed_tl: %s\n", j.ctx.status ? j.ctx.message : "wrong arguments");
    return !ok;
}

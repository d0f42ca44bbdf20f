/* Sections roofs and matmul: the limits of the machine, and the share of them that the model's matrix
 * products reach. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "measure.h"

/* ---- roofs ---- */

/* Reserves enough memory to measure reading `size` bytes; above 1 GiB the rate does not change. */
static int reserve(bench *b, uint64_t size)
{
    const uint64_t most = (uint64_t)1 << 30;
    if (roofs_memory(&b->r, (size_t)(size > most ? most : size)))
        return 1;
    return tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory to measure reading with (%llu bytes)",
                     TOOLS_LLU(size)),
           0;
}

typedef struct roof_arg {
    roof_kind kind;
    size_t size;
    double amount;
} roof_arg;

/* The seconds of 1e9 operations or bytes at the roof. */
static double run_roof(bench *b, void *arg)
{
    const roof_arg *a = (const roof_arg *)arg;
    const double rate = roof_measure(&b->r, a->kind, a->size, b->ctx.n_threads);
    return rate > 0 ? 1e9 / rate : 1e300;
}

static int measure_roof(bench *b, roof_kind kind, const char *unit, size_t size, const char *name)
{
    roof_arg a = {kind, size, 0};
    task t = new_task(b, ROOFS, 1, unit, run_roof, &a);
    snprintf(t.name, sizeof t.name, "%s", name);
    return measure(b, &t);
}

static int measure_reading(bench *b, uint64_t size, const char *what)
{
    char name[40];
    snprintf(name, sizeof name, size < 1000000 ? "read %.0f kB%s%s" : "read %.1f MB%s%s",
             size < 1000000 ? (double)size / 1e3 : (double)size / 1e6, *what ? ", " : "", what);
    return size > b->r.size || measure_roof(b, ROOF_MEMORY, "GB/s", (size_t)size, name);
}

static int section_roofs(bench *b)
{
    uint64_t sizes[N_DTYPES] = {0};
    size_t shape;
    int good;
    for (shape = 0; strcmp(model_shapes[shape].name, b->size) != 0; shape++)
        continue;
    for (size_t i = 0; i < N_DTYPES; i++)
        if (b->path ? i == 0 : b->wanted >> i & 1)
            sizes[i] =
                b->path ? b->weight_bytes : model_bytes(&model_shapes[shape], dtypes[i].dtype);
    good = reserve(b, (uint64_t)8 << 20);
    for (size_t i = 0; i < N_DTYPES; i++)
        good = good && reserve(b, sizes[i]);
    heading(b, "roofs");
    good = good && measure_roof(b, ROOF_F32, "Gop/s", 0, "f32 multiply-add") &&
           (!b->r.loops->bytes || measure_roof(b, ROOF_BYTES, "Gop/s", 0, "8-bit dot product"));
    for (size_t i = 0; i < N_DTYPES && good; i++)
        if (sizes[i] > 0)
            good = measure_reading(b, sizes[i], b->path ? "the weights" : dtypes[i].name);
    good = good && measure_reading(b, (uint64_t)8 << 20, "") &&
           measure_reading(b, (uint64_t)1 << 19, "");
#if defined(__GNUC__)
    if (good && b->n_counts > 1) {
        const double took = roof_ping_pong(b->quick ? 0.02 : 0.2);
        if (took > 0)
            fprintf(b->table, "a cache line from one thread to another and back: %.0f ns\n",
                    1e9 * took);
        b->ping_pong = took;
    }
#endif
    return good;
}

/* ---- the model's matrix products ---- */

/* The same matrix of every layer in turn, so that the weights are in the same cache or memory as when
 * the model runs. */
typedef struct matmul_arg {
    attn__matmul_job job;
    const attn__panels *w;
    size_t n, next, per_unit;
    const attn__kernels *kernels;
    float *pack;
} matmul_arg;

static void matmul_work(attn__worker *me, void *arg)
{
    const matmul_arg *a = (const matmul_arg *)arg;
    attn__matmul_job job = a->job;
    me->is_dynamic = me->team->apart && job.rows > ATTN__FEW_ROWS; /* as in a pass */
    for (size_t i = 0; i < a->per_unit; i++) {
        job.w = a->w[(a->next + i) % a->n];
        attn__shared_matmul(me, a->kernels, job, a->pack + (size_t)me->id * (ATTN__PACK + 64));
        attn__barrier(me);
    }
}

static double run_matmul(bench *b, void *arg)
{
    matmul_arg *a = (matmul_arg *)arg;
    const double start = seconds();
    attn__parallel(NULL, b->ctx.n_threads, matmul_work, a);
    a->next += a->per_unit;
    return seconds() - start;
}

static int measure_matmul(bench *b, const attn__panels *w, size_t n, size_t rows)
{
    const size_t n_in = w->n_in, n_out = w->n_out, threads = (size_t)b->threads[b->n_counts - 1];
    const size_t n_x = rows * n_in, n_y = rows * n_out, n_pack = threads * (ATTN__PACK + 64);
    const double ops = 2 * (double)rows * (double)n_in * (double)n_out;
    const size_t bytes = model_panels_size(w->dtype, n_in, n_out);
    float *const block = (float *)malloc((n_x + n_y + n_pack) * sizeof(float));
    matmul_arg a;
    task t = new_task(b, MATMUL, 0, "Gop/s", run_matmul, &a);
    if (!block)
        return tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a matmul of %llu rows",
                         TOOLS_LLU(rows)),
               0;
    for (size_t i = 0; i < n_x + n_y + n_pack; i++)
        block[i] = (float)(i % 1000) * 0.002f - 1.0f;
    a = (matmul_arg){.w = w,
                     .n = n,
                     .per_unit = rows <= 16 ? n : 1,
                     .kernels = attn__kernels_for(&b->ctx),
                     .pack = block + n_x + n_y,
                     .job = {.in = block,
                             .in_stride = (ptrdiff_t)n_in,
                             .in_step = 1,
                             .out = block + n_x,
                             .out_stride = n_out,
                             .rows = rows}};
    snprintf(t.name, sizeof t.name, "%4u rows * [%u, %u]", (unsigned)rows, (unsigned)n_in,
             (unsigned)n_out);
    t.amount = ops * (double)a.per_unit / 1e9;
    t.needs.read = (double)bytes * (double)a.per_unit;
    t.needs.span = bytes * n;
    *(attn__is_quantized(w->dtype) ? &t.needs.bytes8 : &t.needs.f32) = ops * (double)a.per_unit;
    int good = measure(b, &t);
    free(block);
    return good;
}

static int section_matmul(bench *b)
{
    static const size_t all_rows[] = {1, 2, 4, 8, 16, 64, 512, 1024}, few_rows[] = {1, 8, 512};
    const size_t n_rows = b->quick ? 3 : 8, n_layer = b->model->config.n_layer;
    attn__panels *const w = (attn__panels *)malloc(n_layer * sizeof *w);
    int good = w != NULL;
    if (!w)
        tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a list of matrices");
    heading(b, "matmul");
    for (size_t shape = 0; shape < 5 && good; shape++) {
        if (b->quick && (shape == 1 || shape == 2))
            continue;
        for (size_t i = 0; i < n_layer; i++) {
            const attn__layer *l = &b->model->layers[i];
            w[i] = shape == 0   ? l->w_qkv
                   : shape == 1 ? l->w_o
                   : shape == 2 ? l->w_in
                   : shape == 3 ? l->w_out
                                : b->model->w_u;
        }
        for (size_t row = 0; row < n_rows && good; row++) {
            const size_t rows = b->quick ? few_rows[row] : all_rows[row];
            if (shape < 4 || !b->quick || rows <= 8)
                good = measure_matmul(b, w, shape < 4 ? n_layer : 1, rows);
        }
    }
    free(w);
    return good;
}

#endif

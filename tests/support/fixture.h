/* What the suites of tier 1 share: the numbers that PyTorch computed (make_op_fixtures.py says how,
 * fixture_file.py describes the file), tensors whose layout a test chooses, and comparisons.
 * Nothing here calls the operations of attn.h, so that a mistake there cannot hide itself. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "test.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Halfs by the definition of binary16, in double arithmetic. */
static inline double half_value(uint16_t half)
{
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half >> 15 ? -1.0 : 1.0;
    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* rint rounds to nearest even, which is what a narrowing must do. */
static inline uint16_t half_of(float value)
{
    const unsigned sign = signbit(value) ? 0x8000u : 0;
    const double size = fabs((double)value);
    int exponent;
    if (isnan(value))
        return (uint16_t)(sign | 0x7E00u);
    if (size >= 65520.0)
        return (uint16_t)(sign | 0x7C00u);
    if (size < ldexp(1.0, -14))
        return (uint16_t)(sign | (unsigned)rint(ldexp(size, 24)));
    frexp(size, &exponent); /* size is at least half of 2^exponent */
    return (uint16_t)(sign + ((unsigned)(exponent + 13) << 10) +
                      (unsigned)rint(ldexp(size, 11 - exponent)));
}

/* Are a tensor's elements in row-major order, without gaps? */
static inline int is_dense(attn_tensor x)
{
    ptrdiff_t step = 1;
    for (int i = x.ndim - 1; i >= 0; step *= (ptrdiff_t)x.shape[i--])
        if (x.shape[i] != 1 && x.stride[i] != step && attn_count(x) > 0)
            return 0;
    return 1;
}

/* A small generator (xorshift64*), so that a failing case can be run again. */
static uint64_t random_state = 1;
static inline uint32_t random_u32(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)(random_state * 0x2545F4914F6CDD1DULL >> 32);
}

static inline size_t random_below(size_t limit)
{
    return random_u32() % limit;
}
static inline float random_float(void) /* in -1 .. 1 */
{
    return (float)((double)random_u32() / 2147483648.0 - 1.0);
}

/* Memory of the running case, given back when it ends or by pool_clear. */
static void *pool[4096];
static size_t pool_size;
static inline void pool_clear(void)
{
    while (pool_size)
        free(pool[--pool_size]);
}

static inline void *pool_new(size_t size)
{
    void *block = malloc(size ? size : 1);
    test_at_end(pool_clear);
    if (!block || pool_size == sizeof pool / sizeof pool[0]) {
        printf("the tests ran out of memory\n");
        exit(2);
    }
    return pool[pool_size++] = block;
}

/* A suite with fixtures of its own names their file before it includes this. */
#ifndef FIXTURE_FILE
#define FIXTURE_FILE "tests/fixtures/ops.bin"
#endif

/* Looks up "matmul.3.a". Gives 0 and a zeroed tensor if there is none. */
static inline int fixture(attn_tensor *out, const char *format, ...)
{
    static unsigned char *file;
    static size_t size;
    char wanted[64];
    uint32_t n_tensors;
    size_t at = 12;
    va_list args;
    va_start(args, format);
    vsnprintf(wanted, sizeof wanted, format, args);
    va_end(args);
    memset(out, 0, sizeof *out);
    if (!file && (file = test_read(FIXTURE_FILE, &size)) == NULL)
        return CHECKF(0, FIXTURE_FILE " cannot be read");
    memcpy(&n_tensors, file + 8, 4);
    for (uint32_t i = 0; i < n_tensors; i++) {
        uint32_t length, kind, ndim, dim;
        size_t count = 1, name = at + 4;
        attn_shape shape = {0, {1, 1, 1, 1}};
        memcpy(&length, file + at, 4);
        at = name + length;
        memcpy(&kind, file + at, 4);
        memcpy(&ndim, file + at + 4, 4);
        at += 8;
        shape.ndim = (int)ndim;
        for (size_t j = 0; j < ndim && j < 4; j++, at += 4) {
            memcpy(&dim, file + at, 4);
            shape.dim[j] = dim;
            count *= dim;
        }
        at = (at + 3) / 4 * 4;
        if (strlen(wanted) == length && memcmp(file + name, wanted, length) == 0) {
            *out = attn_borrow(file + at, (attn_dtype)kind, shape);
            return 1;
        }
        at = (at + count * (kind == 1 ? 2 : 4) + 3) / 4 * 4;
    }
    return 0;
}

/* A fixture that must be there. */
static inline attn_tensor fixture_tensor(const char *format, ...)
{
    char name[64];
    attn_tensor t;
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    CHECKF(fixture(&t, "%s", name), "no fixture %s", name);
    return t;
}

/* Entry i of a case's i32 "args" or f32 "f". */
static inline int arg_of(attn_tensor args, size_t i)
{
    return ((const int32_t *)args.data)[i];
}
static inline float float_of(attn_tensor f)
{
    return *(const float *)f.data;
}

static inline size_t size_of(attn_dtype dtype)
{
    return dtype == ATTN_F16 ? 2 : 4;
}

static inline size_t count_of(attn_tensor x)
{
    size_t count = x.ndim > 0;
    for (int i = 0; i < x.ndim; i++)
        count *= x.shape[i];
    return count;
}

/* Where element number `index`, in row-major order, lies. */
static inline void *element(attn_tensor x, size_t index)
{
    ptrdiff_t offset = 0;
    for (int i = x.ndim - 1; i >= 0; i--) {
        offset += (ptrdiff_t)(index % x.shape[i]) * x.stride[i];
        index /= x.shape[i];
    }
    return (char *)x.data + offset * (ptrdiff_t)size_of(x.dtype);
}

static inline double value_of(attn_tensor x, size_t index)
{
    const void *at = element(x, index);
    if (x.dtype == ATTN_F32)
        return (double)*(const float *)at;
    return x.dtype == ATTN_F16 ? half_value(*(const uint16_t *)at) : (double)*(const int32_t *)at;
}

static inline void set_value(attn_tensor x, size_t index, float value)
{
    void *at = element(x, index);
    if (x.dtype == ATTN_F32)
        *(float *)at = value;
    else if (x.dtype == ATTN_F16)
        *(uint16_t *)at = half_of(value);
    else
        *(int32_t *)at = (int32_t)value;
}

/* The ways in which a tensor can lie in memory. Gaps hold NaN (ids: a number that is no id), so
 * that reading one shows. */
enum layout {
    LAYOUT_DENSE,
    LAYOUT_SWAPPED,  /* the last two dimensions change places */
    LAYOUT_ROW_GAPS, /* three elements between rows */
    LAYOUT_EVERY_2,  /* every other element */
    LAYOUT_COLUMNS,  /* the first dimension runs fastest */
    LAYOUT_BACKWARD, /* negative strides */
    N_LAYOUTS
};

static inline attn_tensor new_tensor(attn_dtype dtype, int ndim, const size_t *shape, int layout)
{
    int order[4] = {0, 1, 2, 3};
    attn_tensor x;
    size_t room = layout == LAYOUT_EVERY_2 ? 2 : 1;
    const ptrdiff_t sign = layout == LAYOUT_BACKWARD ? -1 : 1;
    ptrdiff_t last = 0;
    memset(&x, 0, sizeof x);
    x.dtype = dtype;
    x.ndim = ndim;
    if (layout == LAYOUT_SWAPPED && ndim > 1) {
        order[ndim - 1] = ndim - 2;
        order[ndim - 2] = ndim - 1;
    }
    for (int i = 0; layout == LAYOUT_COLUMNS && i < ndim; i++)
        order[i] = ndim - 1 - i;
    for (int i = 0; i < 4; i++)
        x.shape[i] = i < ndim ? shape[i] : 1;
    for (int i = ndim - 1; i >= 0; i--) {
        x.stride[order[i]] = sign * (ptrdiff_t)room;
        room *= x.shape[order[i]];
        if (layout == LAYOUT_ROW_GAPS && i == ndim - 1)
            room += 3;
    }
    for (int i = 0; i < ndim; i++)
        if (sign < 0 && x.shape[i])
            last -= (ptrdiff_t)(x.shape[i] - 1) * x.stride[i];
    x.data = pool_new(room * size_of(dtype));
    for (size_t j = 0; j < room; j++) {
        if (dtype == ATTN_I32)
            ((int32_t *)x.data)[j] = INT32_MAX;
        else if (dtype == ATTN_F16)
            ((uint16_t *)x.data)[j] = 0x7E00;
        else
            ((float *)x.data)[j] = NAN;
    }
    x.data = (char *)x.data + last * (ptrdiff_t)size_of(dtype);
    return x;
}

/* The same numbers in another layout, and perhaps in another type. */
static inline attn_tensor laid_out(attn_tensor x, attn_dtype dtype, int layout)
{
    if (x.ndim == 0)
        return x;
    attn_tensor y = new_tensor(dtype, x.ndim, x.shape, layout);
    for (size_t i = 0; i < count_of(x); i++) {
        if (dtype == x.dtype)
            memcpy(element(y, i), element(x, i), size_of(dtype));
        else
            set_value(y, i, (float)value_of(x, i));
    }
    return y;
}

/* A dense f32 tensor: random_tensor(2, 3, 5) is [3, 5]. */
static inline attn_tensor random_tensor(int ndim, ...)
{
    size_t shape[4] = {1, 1, 1, 1};
    va_list args;
    va_start(args, ndim);
    for (int i = 0; i < ndim; i++)
        shape[i] = (size_t)va_arg(args, int);
    va_end(args);
    attn_tensor x = new_tensor(ATTN_F32, ndim, shape, LAYOUT_DENSE);
    for (size_t j = 0; j < count_of(x); j++)
        set_value(x, j, random_float());
    return x;
}

static inline const char *shape_text(attn_tensor x)
{
    static char texts[4][100];
    static int turn;
    char *text = texts[turn++ % 4];
    int n = snprintf(text, 100, "[");
    for (int i = 0; i < x.ndim; i++)
        n += snprintf(text + n, (size_t)(100 - n), "%s%llu", i ? ", " : "",
                      (unsigned long long)x.shape[i]);
    snprintf(text + n, (size_t)(100 - n), "]");
    return text;
}

static inline int same_shape(attn_tensor a, attn_tensor b, const char *what)
{
    return CHECKF(a.ndim == b.ndim && memcmp(a.shape, b.shape, sizeof a.shape) == 0,
                  "%s: the shape is %s, expected %s", what, shape_text(a), shape_text(b));
}

/* Within `tolerance` of what is expected, relative to the largest magnitude that is expected.
 * Infinities and NaN must be where they are expected. */
static inline int close_to(attn_tensor got, attn_tensor want, double tolerance, const char *what)
{
    double largest = 0, worst = 0;
    size_t worst_at = 0;
    if (!same_shape(got, want, what))
        return 0;
    for (size_t i = 0; i < count_of(want); i++)
        if (isfinite(value_of(want, i)) && fabs(value_of(want, i)) > largest)
            largest = fabs(value_of(want, i));
    largest = largest > 0 ? largest : 1;
    for (size_t i = 0; i < count_of(want); i++) {
        const double g = value_of(got, i), w = value_of(want, i);
        double error = isnan(w) ? !isnan(g) : g == w ? 0 : fabs(g - w) / largest;
        if (!isnan(w) && g != w && (!isfinite(g) || !isfinite(w)))
            error = (double)INFINITY;
        if (error > worst) {
            worst = error;
            worst_at = i;
        }
    }
    return CHECKF(worst <= tolerance,
                  "%s: element %llu of %s is %.9g, expected %.9g: error %.3g, allowed %.3g", what,
                  (unsigned long long)worst_at, shape_text(want), value_of(got, worst_at),
                  value_of(want, worst_at), worst, tolerance);
}

/* The same bits in every element (any NaN is as good as another). */
static inline int same_bits(attn_tensor got, attn_tensor want, const char *what)
{
    if (!same_shape(got, want, what) ||
        !CHECKF(got.dtype == want.dtype, "%s: dtype %d, expected %d", what, (int)got.dtype,
                (int)want.dtype))
        return 0;
    for (size_t i = 0; i < count_of(want); i++) {
        const double g = value_of(got, i), w = value_of(want, i);
        if (memcmp(element(got, i), element(want, i), size_of(want.dtype)) != 0 &&
            !(isnan(g) && isnan(w)))
            return CHECKF(0, "%s: element %llu of %s is %.9g (%a), expected the bits of %.9g (%a)",
                          what, (unsigned long long)i, shape_text(want), g, g, w, w);
    }
    return 1;
}

static const attn_tensor no_tensor = {0};

/* A tensor of numbers that nobody looks at. */
static inline attn_tensor some(int ndim, size_t d0, size_t d1, size_t d2)
{
    const size_t shape[4] = {d0, d1, d2, 1};
    attn_tensor x = new_tensor(ATTN_F32, ndim, shape, LAYOUT_DENSE);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, random_float());
    return x;
}

static inline attn_tensor some_ids(size_t n, int32_t first)
{
    const size_t shape[1] = {n};
    attn_tensor x = new_tensor(ATTN_I32, 1, shape, LAYOUT_DENSE);
    for (size_t i = 0; i < n; i++)
        ((int32_t *)x.data)[i] = first + (int32_t)i;
    return x;
}

/* Frees what a case or a part of it made. */
static inline void done(attn_ctx *ctx)
{
    attn_ctx_free(ctx);
    pool_clear();
}

/* One thread, unless a case is about threads: on a busy machine they wait for each other. The
 * instruction set that ATTN_TEST_ISA names, or the best. */
static inline attn_ctx alone(void)
{
    const char *const named = getenv("ATTN_TEST_ISA");
    attn_ctx ctx;
    int kind;
    memset(&ctx, 0, sizeof ctx);
    for (kind = ATTN_ISA_AUTO; named && kind <= ATTN_ISA_NEON_I8MM; kind++) {
        ctx.isa = (attn_isa_kind)kind;
        if (attn_isa(&ctx) && strcmp(attn_isa(&ctx), named) == 0)
            break;
    }
    CHECKF(kind <= ATTN_ISA_NEON_I8MM, "ATTN_TEST_ISA is %s, which is not here", named);
    ctx.n_threads = 1;
    return ctx;
}

/* An allocator that counts, fills with rubbish and can be told to fail. */
typedef struct meter {
    long live, asked; /* blocks alive; calls so far */
    long fail_at;     /* this call gets NULL; -1: none */
    int wrong;        /* frees without a block */
    size_t bytes;     /* asked for so far */
} meter;

static inline void *meter_alloc(size_t size, void *user)
{
    meter *m = (meter *)user;
    void *block;
    if (m->asked++ == m->fail_at || size > SIZE_MAX / 4 ||
        (block = malloc(size ? size : 1)) == NULL)
        return NULL;
    memset(block, 0xA5, size);
    m->live++;
    m->bytes += size;
    return block;
}

static inline void meter_free(void *block, void *user)
{
    meter *m = (meter *)user;
    if (!block || m->live <= 0)
        m->wrong++;
    m->live--;
    free(block);
}

static inline attn_ctx metered(meter *m)
{
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    memset(m, 0, sizeof *m);
    m->fail_at = -1;
    ctx.alloc = meter_alloc;
    ctx.free = meter_free;
    ctx.user = m;
    return ctx;
}

/* A call that makes a tensor, from whatever a test gives it. */
typedef attn_status making(attn_ctx *ctx, attn_tensor *out, const void *from);

/* Makes every allocation of a call fail in turn, until none is left. Each failure says so and leaves nothing behind.
 * Returns how many there were. */
static inline long fail_each_allocation(making *make, const void *from)
{
    attn_status status = ATTN_E_MEMORY;
    long n;
    for (n = 0; n < 2000 && status == ATTN_E_MEMORY; n++) {
        meter m;
        attn_ctx ctx = metered(&m);
        attn_tensor out = no_tensor;
        ctx.n_threads = 1;
        m.fail_at = n;
        status = make(&ctx, &out, from);
        CHECK(status == ATTN_OK ? n > 0 : strstr(ctx.message, "memory") && !out.ndim);
        attn_ctx_free(&ctx);
        CHECK(m.live == 0 && m.wrong == 0);
    }
    CHECKF(status == ATTN_OK, "%s after %ld rounds", attn_status_name(status), n);
    return n - 1;
}

#endif

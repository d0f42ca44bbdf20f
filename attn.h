/* clang-format off */
/*
attn.h - GPT-2 inference in one C header                                      version 1.1.0, MIT

DO THIS
    Compile the header once and link it with app.c, which does not define ATTN_IMPLEMENTATION. (For
    threads, add -fopenmp to both commands.)

        cc -O2 -c -x c -DATTN_IMPLEMENTATION attn.h -o attn.o
        cc app.c attn.o -lm

    The first command takes ten seconds. While you develop, add -march=native -DATTN_NO_DISPATCH to
    it: it then takes five, and the result is for this processor only. Keep the -O2: without it,
    models run 20 times slower.

    Or compile everything in one command, each time. One C or C++ file then defines
    ATTN_IMPLEMENTATION before it includes attn.h, as in the program below:

        cc app.c -O2 -lm

    This is C99, and C++11. The kernels for AVX2, AVX-512 and NEON are all compiled. The program
    chooses the best ones when it runs.

A COMPLETE PROGRAM

        #define ATTN_IMPLEMENTATION
        #include "attn.h"
        #include <stdio.h>

        int main(int argc, char **argv)
        {
            const char *path = argc > 1 ? argv[1] : "build/tiny-stories.attn";
            attn_ctx ctx = {0};
            attn_model *model = NULL;
            attn_continuation story = {0};
            story.prompt = "Once upon a time";

            if (attn_model_open(&ctx, &model, path, NULL) == ATTN_OK &&
                attn_generate_many(&ctx, &story, 1, model, NULL) == ATTN_OK)
                printf("%s%s\n", story.prompt, story.text);
            else
                fprintf(stderr, "%s\n", ctx.message);
            attn_continuations_free(&story, 1);
            attn_model_close(model);
            return ctx.status != ATTN_OK;
        }

WHAT IS HERE
    Three tiers. Tiers 1 and 2 run the same kernels; tier 3 works on the sessions of tier 2.

    1. Tensors and operations: matmul, softmax, layernorm, attention and so on. With them a
       transformer is written as in a notebook: one line for each equation.
    2. Models: open a .attn file (attn-convert makes them), make a session with a key/value cache,
       feed tokens, read logits, sample, generate text, score text. GPT-2's tokenizer is included.
    3. Activations: read or change any activation while the model runs (attn_hook,
       attn_hook_edit), by the name that TransformerLens gives it. Record activations
       (attn_record_new), run some of the layers (attn_feed_batch), measure losses. Headers in
       tools/lens/ do more with this API: the logit lens, attribution, activation patching,
       gradients, circuits.

TABLE OF CONTENTS: search for the mark. "(tests: x)" behind it names the folder tests/suites/x
    >>manual         options, calls, errors, memory, threads, the same bits
  the public API
    >>api-basics     context, status codes, versions
    >>api-tensors    tier 1: attn_tensor and its operations
    >>api-models     tier 2: models, workspaces, sessions, scoring, sampling, generation
    >>api-tokenizer  text to tokens and back
    >>api-hooks      tier 3: activations by name: hooks
    >>api-records    records and edits
    >>api-lens       logits of any stream
  the engine
    >>gpt2           THE FORWARD PASS                   >>platform   compilers and systems
    >>inside         types that sections share          >>memory     contexts, errors, blocks
    >>numbers        arithmetic with fixed bits         >>tensors    views, allocation, checks
    >>steps          the steps of the forward pass      >>session    sessions, feeding, the cache
    >>watch          hook points, callbacks             >>sampling   logits to a token
    >>score          losses and predictions             >>generate   text in, text out
    >>tokenizer      byte-level BPE                     >>ops        tier 1's operations
    >>format         THE FILE FORMAT, reading files     >>cpu        instruction sets
    >>kernels        vector code, compiled for each set >>matmul     panels, products, one head
    >>threads        workers, barriers, how many of them
  built on the engine, which never needs it
    >>record         records and edits                  >>lens       logits
  at the end
    >>words          words of the comments              >>changes    where new things go; versions

>>manual ===========================================================================================

OPTIONS: macros to define before the include that has the implementation
    ATTN_STATIC        all functions are static. ATTN_IMPLEMENTATION is then not needed, and
                       several files may include the implementation
    ATTN_API           what stands before each public function (default: extern, or static with
                       ATTN_STATIC)
    ATTN_NO_SIMD       plain C, without vector instructions
    ATTN_NO_DISPATCH   only the best kernels that the compiler flags allow, without a choice at run
                       time: takes half the time to compile
    ATTN_SANITIZE_KERNELS  with -fsanitize: check the kernels too, which takes minutes to compile
    ATTN_NO_MMAP       read model files into memory instead of mapping them
    ATTN_THREADS       make threads without OpenMP: see THREADS. With gcc and clang; -pthread, where
                       the C library asks for it; in C99 mode include this file first
    ATTN_FILE          the name of this file in quotes, if you renamed it: it includes itself

CALLS
    The parameters of a function come in this order: the context, the outputs, the object that
    the call is about, the other inputs. The length of an array x is n_x, and `size` is a number
    of bytes. [first, first + count) is a range of positions or layers.

    Zero every struct before you set its fields. Fields named `reserved` must be zero: a later
    version may use them. A pointer may be NULL where its comment says so, and where a function
    frees or closes it. For any other NULL, a function that returns a status returns
    ATTN_E_ARGUMENT, and a function that returns a property of an object returns NULL or 0. Only
    ctx must never be NULL.

ERRORS
    A function that can fail returns an attn_status: ATTN_OK, which is 0, or a kind of failure.
    After a failure, ctx->message says what was wrong, where, and what was expected. ctx->status
    works like errno: it keeps the latest failure, and a success does not change it. So you can
    check every call, or ctx->status after several calls. Set it to ATTN_OK to forget a failure.
    A call that is given no object, or a zeroed tensor, fails with ATTN_E_ARGUMENT. Usually an
    earlier call failed to make it, so the message ends with the latest failure before that.

    ATTN_STOPPED is not a failure: you asked for it. The call that was stopped returns it, but
    attn_generate returns ATTN_OK. It does not change ctx->status and ctx->message.

    A failed call leaves a session's tokens as they were, except that attn_generate leaves those
    that it has fed. The library never prints, exits or aborts. A callback must return: it
    may not call longjmp, and no C++ exception may leave it.

MEMORY
    A context can use your allocator. Tensors that were made through a context live until
    attn_tensor_free or attn_ctx_free. All other objects have their own free functions. Freeing an
    object twice, or using it afterwards, is undefined, as with free() of the C library.

    A session holds its keys and values, and two rows of logits: for GPT-2 124M 74 KB for each
    token, which is 76 MB for 1,024 tokens; half of that with keys and values in f16. A workspace
    holds the activations of a forward pass: 10 MB for 124M, and 0.7 MB for each thread. Sessions
    can share a workspace. All this memory is allocated when the object is made, and never grows:
    attn_session_size and attn_workspace_size say how much it is. attn_feed, attn_feed_batch,
    attn_session_logits and attn_sample allocate nothing. Hooks, edits, records and samplers hold
    memory until they are freed. Other calls free their memory, except their results, before they
    return. The weights stay in the mapped file, so several processes share one copy.

THREADS
    With OpenMP (-fopenmp), or ATTN_THREADS without it, a call divides its work over threads.
    ctx->n_threads is the most it may use, up to 256. 0 means the smallest of three numbers:
    OMP_NUM_THREADS, the processors that this process may use, and on Linux the quota of its
    control group. A workspace measures how many threads are fastest, by trying half or twice as
    many now and then. It keeps the limit and the instruction set (ctx->isa) that it was made with.

    Your own threads may share a model. Each needs its own context and its own workspace: a
    workspace and its sessions belong to one thread at a time. If you have an allocator, it must
    then allow calls from several threads. See >>threads for threads that wait, or that the system
    refuses, and for fork().

THE SAME BITS
    The logits of a token do not depend on the number of threads, on other sequences in its
    batch, on how its prompt was cut into calls, on hooks that watch, or on the instruction set.
    Each output element has one order of operations, the same on every processor with fused
    multiply-adds:
    1. A matmul output is the sum over k of input k times weight k, cut into chains: the first is
       over k = 0 to 255, the next over k = 256 to 511, and so on. A chain starts at 0 and adds
       products by fused multiply-adds, in ascending order of k. The chains are added in this
       order, then the bias. (Short chains round less than one long chain.) The lanes of a vector
       hold different outputs, never different k.
    2. A sum along a row is made of 16 partial sums: element j is added to number j mod 16. Then
       the upper half is added to the lower half: 16 -> 8 -> 4 -> 2 -> 1.
    3. exp, log, tanh and erf are this file's own polynomials, of fused multiply-adds.
    4. f16 weights are converted to f32, which is exact, and follow rule 1. So do keys and values
       that a session keeps as f16. Each is rounded once, to nearest even, when it is stored.
    5. q8 and q4 weights meet quantised inputs. 32 consecutive k of a row become the integers
       round(x * (127 / largest)), to nearest even. Their scale is largest / 127 with the last
       two bits of its mantissa cleared. `largest`, the largest |x|, counts as 0 below 1e-30;
       above 2^100 the scale is NaN. The integers' dot product s with 32 weights is exact. It is
       one step of rule 1's chain: chain = fma(s * scale of x, scale of w, chain).
    This needs C's usual floating-point environment: round to nearest, denormals kept, no traps.
    The header does not compile with flags that change rounding, such as -ffast-math. If the
    compiler does not reveal such a flag, attn_isa() reports it. attn_isa() also reports if the
    calling thread flushes denormals, as in a program that was linked with gcc's -ffast-math.
    Processors without a fused multiply-add use faster kernels with other bits, and attn_isa()
    says so. There ctx->isa = ATTN_ISA_PORTABLE gives the exact bits, slowly.

*/
/* clang-format on */

#ifndef ATTN__SET /* the kernel template includes this file again with ATTN__SET defined */
#ifndef ATTN_H
#define ATTN_H

/* Threads need more of the C library than C99 has. */
#if (defined(ATTN_THREADS) || defined(_OPENMP)) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE
#endif
#if defined(ATTN_THREADS) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE
#endif

#include <stddef.h>
#include <stdint.h>

#define ATTN_VERSION_MAJOR 1
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0

#ifndef ATTN_API
#if !defined(ATTN_STATIC)
#define ATTN_API extern
#elif defined(__GNUC__)
#define ATTN_API static __attribute__((__unused__))
#else
#define ATTN_API static
#endif
#endif

/* Stands before a declaration whose name will leave with the next major version: the compiler warns
 * where it is used, and says what to use instead. */
#ifdef __GNUC__
#define ATTN_DEPRECATED(use_instead) __attribute__((__deprecated__("use " use_instead)))
#elif defined(_MSC_VER)
#define ATTN_DEPRECATED(use_instead) __declspec(deprecated("use " use_instead))
#else
#define ATTN_DEPRECATED(use_instead)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* >>api-basics ==================================================================================*/

#define ATTN_VERSION (ATTN_VERSION_MAJOR * 10000 + ATTN_VERSION_MINOR * 100 + ATTN_VERSION_PATCH)

typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_E_ARGUMENT,    /* a value that this function cannot take */
    ATTN_E_SHAPE,       /* shapes that do not fit together */
    ATTN_E_MEMORY,      /* the allocator returned nothing */
    ATTN_E_SPACE,       /* too little room in a buffer, record or file; the message says more */
    ATTN_E_IO,          /* a file could not be opened, read, mapped or written */
    ATTN_E_FORMAT,      /* not an .attn file, or an inconsistent file or tokenizer section */
    ATTN_E_VERSION,     /* a version, data type or layout that this header does not know */
    ATTN_E_CHECKSUM,    /* bytes changed since the file was written */
    ATTN_E_TOKEN,       /* a token outside the vocabulary, or a text that is not one token */
    ATTN_E_CONTEXT,     /* more tokens than the session, or the model's n_ctx, has room for */
    ATTN_E_TOKENIZER,   /* the model has no tokenizer */
    ATTN_E_UNSUPPORTED, /* an instruction set that this build or processor does not have */
    ATTN_E_NAME,        /* no tensor or activation of that name */
    ATTN_STOPPED        /* no failure: a callback or attn_ctx.stop_flag asked to stop */
} attn_status;
/* A token of a vocabulary: 0 to n_vocab - 1. */
typedef int32_t attn_token;

/* With -fshort-enums, a program and the library could disagree about structs. */
typedef char attn__enums_are_ints[sizeof(attn_status) == sizeof(int) ? 1 : -1];

/* Instruction sets, for attn_ctx.isa. AUTO is the best one that the processor has. */
typedef enum attn_isa_kind {
    ATTN_ISA_AUTO = 0,
    ATTN_ISA_PORTABLE, /* plain C with fmaf: exact everywhere, slow without hardware support */
    ATTN_ISA_BASE,     /* what the compiler flags allow; may be unfused, see attn_isa() */
    ATTN_ISA_AVX2,
    ATTN_ISA_AVX512,
    ATTN_ISA_NEON,
    /* with dot products of bytes, for q8 and q4 weights */
    ATTN_ISA_AVX512_VNNI,
    ATTN_ISA_AVX2_VNNI,
    ATTN_ISA_NEON_DOT,
    ATTN_ISA_NEON_I8MM
} attn_isa_kind;

/* An allocator of yours. attn_alloc_fn returns `size` bytes, or NULL on failure. */
typedef void *(*attn_alloc_fn)(size_t size, void *user);
typedef void (*attn_free_fn)(void *block, void *user);

/* A context holds settings, and the latest failure of a call. Zero it, set fields, and pass it to
 * every call. It belongs to one thread at a time. A program may have many. A copy of a context has
 * its settings; the tensors stay with the one at the address where they were made. */
typedef struct attn_ctx {
    attn_alloc_fn alloc; /* NULL: malloc */
    attn_free_fn free;   /* NULL: free; if alloc is set, nothing is freed (an arena) */
    void *user;          /* passed to both */
    int n_threads;       /* most threads of a call, up to 256; 0: see THREADS in the manual */
    attn_isa_kind isa;
    /* NULL, or a number that a signal handler or another thread may set. While it is not 0, a feed
     * runs one more layer at most. It then returns ATTN_STOPPED, and sessions are as before the
     * call; or ATTN_OK if that layer was its last. attn_generate then returns ATTN_OK, as after a
     * stop by a callback. (Another thread should set it atomically.) */
    const volatile int *stop_flag;

    attn_status status; /* the latest failure; set it to ATTN_OK to forget it */
    char message[256];  /* what was wrong, where, and what was expected */

    struct attn__allocation *blocks; /* internal: the tensors that attn_ctx_free frees */
    const struct attn_ctx *owner;    /* internal: whose blocks they are; another's in a copy */
    uint64_t reserved[4];            /* zero */
} attn_ctx;
/* attn_ctx ctx = ATTN_ZERO; makes a context, or any other struct of this header, without a
 * warning. */
/* clang-format off */
#ifdef __cplusplus
#define ATTN_ZERO {}
#else
#define ATTN_ZERO {0}
#endif
/* clang-format on */

/* ATTN_VERSION of the implementation that was linked. */
ATTN_API int attn_version(void);

/* "ATTN_E_SHAPE" and so on; never NULL. */
ATTN_API const char *attn_status_name(attn_status status);

/* For functions of yours that report failures in the same way: sets ctx->status and ctx->message,
 * and returns the status. `format` is printf's; an argument may be ctx->message, to put words
 * before it. The message is cut after 255 bytes; a control character, which a terminal would obey,
 * becomes a question mark. */
#if defined(__MINGW32__)
__attribute__((__format__(__gnu_printf__, 3, 4))) /* without it, MSVC's printf, which has no %zu */
#elif defined(__GNUC__)
__attribute__((__format__(__printf__, 3, 4)))
#endif
ATTN_API attn_status
attn_fail(attn_ctx *ctx, attn_status status, const char *format, ...);
#ifdef __clang_analyzer__ /* it does not look into this function */
#define attn_fail(ctx, kind, ...) (attn_fail(ctx, kind, __VA_ARGS__), (ctx)->status = (kind))
#endif

/* The name of the kernels that this context uses: "avx512 vnni", "avx512", "avx2 vnni", "avx2",
 * "neon i8mm", "neon dotprod", "neon", "wasm simd", "sse", "base", "portable". If they do not round
 * as the manual says, the reason follows: "sse2 (no fused multiply-add)", "avx2 (inexact: built
 * with unsafe math)", "avx2 (inexact: denormals are flushed)" in the calling thread. NULL if this
 * build or processor does not have what ctx->isa asks for. Only gcc and clang can compile kernels
 * that the compiler flags do not allow. MSVC on x86 has only the SSE2 kernels, which are slower and
 * have other bits: use clang-cl or mingw. */
ATTN_API const char *attn_isa(const attn_ctx *ctx);

/* The most threads that a call with this context uses, 1 to 256: see THREADS in the manual. 1 in a
 * build without threads. */
ATTN_API int attn_max_threads(const attn_ctx *ctx);

typedef void (*attn_task_fn)(size_t i, void *user);

/* Calls task_fn(i, user) once for each i from 0 to n - 1, in any order, on up to
 * attn_max_threads(ctx) threads, of which the caller's is one. Returns when all calls have
 * returned. task_fn may call this library. It then needs another context for each call, with
 * n_threads 1. The only failure is ATTN_E_ARGUMENT: task_fn is NULL. */
ATTN_API attn_status attn_parallel_for(attn_ctx *ctx, size_t n, attn_task_fn task_fn, void *user);

/* n zeroed elements of `size` bytes from the context's allocator, aligned to 64 bytes; the caller
 * frees them with attn_free. Returns NULL on failure (ATTN_E_MEMORY); the message then names
 * `what` (may be NULL). */
ATTN_API void *attn_alloc(attn_ctx *ctx, size_t n, size_t size, const char *what);
/* Frees what attn_alloc returned. The context need not exist any more. NULL is fine. */
ATTN_API void attn_free(void *block);
/* Frees every tensor that was made through this context and is still alive. */
ATTN_API void attn_ctx_free(attn_ctx *ctx);

/* >>api-tensors =================================================================================
 *
 * A tensor is a small struct that points at numbers. A copy of the struct is another view of the
 * same numbers. Functions that make views (transpose, slice, reshape) copy no numbers and return no
 * status. If a view is impossible, its ndim is 0 and `error` says why; an operation on it fails
 * with that message.
 *
 * Operations write into *out. If out->ndim is 0, a new tensor is made in the context. Else *out
 * must have the shape of the result, and its numbers are overwritten. Inputs may have any strides
 * and may be empty. Numbers are f32 unless a comment says otherwise; f16 inputs are converted. *out
 * may be an input, or overlap inputs in any way. (If this needs more memory, it is allocated for
 * the time of the call.)
 *
 * So zero a variable before it is the *out of its first operation: attn_tensor y = ATTN_ZERO; The
 * operation refuses an uninitialised struct if its bytes are not a valid tensor. If they happen to
 * be one, the operation writes to the address in it. */

typedef enum attn_dtype {
    ATTN_F32 = 0,
    ATTN_F16 = 1,
    ATTN_I32 = 2,
    ATTN_Q8 = 3,    /* only in files: 8 bits a weight, one scale for 32 */
    ATTN_Q4 = 4,    /* the same with 4 bits */
    ATTN_PANELS = 5 /* f32 [N / 16, K, 16]: a matrix [K, N] in panels (see >>format), only for
                       attn_linear. tools/lens/panels.h makes them */
} attn_dtype;

typedef struct attn_shape {
    int ndim; /* 1 to 4 */
    size_t dim[4];
} attn_shape;

typedef struct attn_tensor {
    void *data; /* element [0, 0, 0, 0] */
    attn_dtype dtype;
    int ndim;            /* 0: this is no tensor */
    size_t shape[4];     /* slowest dimension first; unused ones are 1 */
    ptrdiff_t stride[4]; /* in elements; unused ones are 0 */
    const char *error;   /* why ndim is 0, or NULL */
    void *owned; /* the block that attn_tensor_free frees; NULL for a view or borrowed data */
} attn_tensor;

ATTN_API attn_shape attn_shape1(size_t d0);
ATTN_API attn_shape attn_shape2(size_t d0, size_t d1);
ATTN_API attn_shape attn_shape3(size_t d0, size_t d1, size_t d2);
ATTN_API attn_shape attn_shape4(size_t d0, size_t d1, size_t d2, size_t d3);

/* A new dense tensor, filled with zeros. */
ATTN_API attn_status attn_zeros(attn_ctx *ctx, attn_tensor *out, attn_dtype dtype,
                                attn_shape shape);
/* A dense tensor of the caller's numbers, which must outlive it. Numbers that are const may be the
 * input of an operation, not its output. */
ATTN_API attn_tensor attn_borrow(const void *data, attn_dtype dtype, attn_shape shape);
/* Frees the numbers of a tensor, and zeroes *tensor. ctx is the context that made it. Views and
 * copies of the struct are then invalid, and must not be freed. A view or borrowed tensor is only
 * zeroed. */
ATTN_API void attn_tensor_free(attn_ctx *ctx, attn_tensor *tensor);

/* Views. Dimensions count from 0; negative ones count from the end (-1 is the last). */
ATTN_API attn_tensor attn_transpose(attn_tensor x, int dim_a, int dim_b);
ATTN_API attn_tensor attn_slice(attn_tensor x, int dim, size_t start, size_t count);
/* The part at `index` of `dim`, which is removed. x has 2 dimensions or more. */
ATTN_API attn_tensor attn_select(attn_tensor x, int dim, size_t index);
/* The same elements, in row-major order, in another shape. x must be dense, or the dimensions that
 * the new shape joins must be contiguous. */
ATTN_API attn_tensor attn_reshape(attn_tensor x, attn_shape shape);

ATTN_API size_t attn_count(attn_tensor x); /* number of elements */
/* One element of a tensor of 1, 2, 3 or 4 dimensions, as a float. NaN if the tensor has another
 * number of dimensions, or an index is out of range. */
ATTN_API float attn_get1(attn_tensor x, size_t i0);
ATTN_API float attn_get2(attn_tensor x, size_t i0, size_t i1);
ATTN_API float attn_get3(attn_tensor x, size_t i0, size_t i1, size_t i2);
ATTN_API float attn_get4(attn_tensor x, size_t i0, size_t i1, size_t i2, size_t i3);
/* Copies x into a new dense tensor of x's type, or into *out. Converts between f32 and f16, and
 * from I32 to both. */
ATTN_API attn_status attn_copy(attn_ctx *ctx, attn_tensor *out, attn_tensor x);

/* out = a + b, a - b, a * b, a / b by element. A dimension of 1 repeats to fit the other operand,
 * and missing leading dimensions count as 1. */
ATTN_API attn_status attn_add(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
ATTN_API attn_status attn_sub(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
ATTN_API attn_status attn_mul(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
ATTN_API attn_status attn_div(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
/* out = x * factor. */
ATTN_API attn_status attn_scale(attn_ctx *ctx, attn_tensor *out, attn_tensor x, float factor);
/* out = exp(x), by element. */
ATTN_API attn_status attn_exp(attn_ctx *ctx, attn_tensor *out, attn_tensor x);

/* Sums, means and variances along the last dimension, which becomes 1. `unbiased` divides the
 * variance by n - 1 instead of n. */
ATTN_API attn_status attn_sum(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
ATTN_API attn_status attn_mean(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
ATTN_API attn_status attn_variance(attn_ctx *ctx, attn_tensor *out, attn_tensor x, int unbiased);

/* out [.., M, N] = a [.., M, K] · b [.., K, N]. Leading dimensions repeat as in attn_add. For A·Bᵀ
 * pass attn_transpose(b, -1, -2). */
ATTN_API attn_status attn_matmul(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
/* out [.., N] = x [.., K] · w [K, N] + bias [N]; a zeroed bias means none. Pass weights [N, K], as
 * PyTorch's nn.Linear has them, by attn_transpose(w, 0, 1). Each call packs w into panels, unless
 * its type is ATTN_PANELS. */
ATTN_API attn_status attn_linear(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor w,
                                 attn_tensor bias);

/* Softmax over the last dimension: exp(x - max) / sum. A row that is all -inf gives NaN. */
ATTN_API attn_status attn_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
/* x - max - log(sum(exp(x - max))) over the last dimension. */
ATTN_API attn_status attn_log_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
/* nll [T] = -log_softmax(logits [T, V])[t, targets[t]]; targets are I32 [T]. */
ATTN_API attn_status attn_cross_entropy(attn_ctx *ctx, attn_tensor *nll, attn_tensor logits,
                                        attn_tensor targets);

/* out = (x - mean) / sqrt(variance + eps) * w + b over the last dimension, with the biased
 * variance. w and b are [C]. Without w (a zeroed struct) the gain is 1, without b
 * the bias is 0. Ba, Kiros & Hinton 2016. */
ATTN_API attn_status attn_layernorm(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor w,
                                    attn_tensor b, float eps);

/* Activation functions of an MLP: GPT-2's, and those of its relatives. */
typedef enum attn_mlp_act {
    ATTN_ACT_GELU_TANH = 0, /* x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))): GPT-2's */
    ATTN_ACT_GELU_ERF,      /* x/2 * (1 + erf(x / sqrt(2))): PyTorch's default */
    ATTN_ACT_RELU,          /* max(x, 0) */
    ATTN_ACT_SILU           /* x / (1 + exp(-x)), also called swish */
} attn_mlp_act;
/* out = the activation function of x, by element. */
ATTN_API attn_status attn_apply_mlp_act(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                        attn_mlp_act kind);

/* out [.., C] = rows of table [V, C], by tokens: an I32 tensor [..] of 1 to 3 dimensions. */
ATTN_API attn_status attn_embedding(attn_ctx *ctx, attn_tensor *out, attn_tensor table,
                                    attn_tensor tokens);

typedef enum attn_mask_kind {
    ATTN_MASK_NONE = 0,
    ATTN_MASK_CAUSAL, /* query i sees keys 0 .. i + Tk - Tq */
    ATTN_MASK_GIVEN   /* `mask` is added to the scores: 0 to see, -inf to hide, or any bias */
} attn_mask_kind;

/* How to attend. Zeroed: every query sees every key, and scores are scaled by 1/sqrt(d). */
typedef struct attn_attention_desc {
    attn_mask_kind mask_kind;
    attn_tensor mask;     /* [Tq, Tk], or with leading dimensions that repeat as in attn_add */
    float scale;          /* a factor of the scores; 0: 1/sqrt(d) */
    uint64_t reserved[4]; /* zero */
} attn_attention_desc;

/* out [.., Tq, dv] = softmax(q [.., Tq, d] · kᵀ [.., d, Tk] * scale + mask) · v [.., Tk, dv].
 * The keys may come from another sequence. A query that sees no key gives NaN. desc may be NULL.
 * Vaswani et al. 2017. */
ATTN_API attn_status attn_attention(attn_ctx *ctx, attn_tensor *out, attn_tensor q, attn_tensor k,
                                    attn_tensor v, const attn_attention_desc *desc);
/* pattern [.., Tq, Tk] = softmax(q · kᵀ * scale + mask): the weights of the values in
 * attn_attention. */
ATTN_API attn_status attn_attention_pattern(attn_ctx *ctx, attn_tensor *pattern, attn_tensor q,
                                            attn_tensor k, const attn_attention_desc *desc);

/* The parameters of one block, in GPT-2's shapes. Biases may be zeroed. */
typedef struct attn_block_weights {
    size_t n_head;            /* H */
    attn_tensor ln1_w, ln1_b; /* [C] */
    attn_tensor w_q, b_q;     /* [C, H*d], [H*d] */
    attn_tensor w_k, b_k;
    attn_tensor w_v, b_v;
    attn_tensor w_o, b_o;     /* [H*d, C], [C] */
    attn_tensor ln2_w, ln2_b; /* [C] */
    attn_tensor w_in, b_in;   /* [C, F], [F] */
    attn_tensor w_out, b_out; /* [F, C], [C] */
} attn_block_weights;

/* out [.., Tq, C] = concat over heads of attention(x·W_Q, y·W_K, y·W_V) · W_O + b_O, for x [.., Tq,
 * C] and y [.., Tk, C]. For self-attention, y is x. Uses w->n_head and w->w_q to w->b_o. */
ATTN_API attn_status attn_multihead(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor y,
                                    const attn_block_weights *w, const attn_attention_desc *desc);
/* pattern [.., H, Tq, Tk]: the attention pattern of each head of attn_multihead. Uses w->n_head
 * and w->w_q to w->b_k. */
ATTN_API attn_status attn_multihead_pattern(attn_ctx *ctx, attn_tensor *pattern, attn_tensor x,
                                            attn_tensor y, const attn_block_weights *w,
                                            const attn_attention_desc *desc);
/* out = act_fn(x · W_in + b_in) · W_out + b_out */
ATTN_API attn_status attn_mlp(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                              const attn_block_weights *w, attn_mlp_act act_fn);
/* mid = x + multihead(layernorm1(x)), causal;  out = mid + mlp(layernorm2(mid)) */
ATTN_API attn_status attn_block(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                const attn_block_weights *w, float eps, attn_mlp_act act_fn);
/* logits [.., V] = x [.., C] · W_Eᵀ for a tied table [V, C]. (Untied: attn_linear.) */
ATTN_API attn_status attn_unembed(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                  attn_tensor table);

/* f16 is IEEE 754 binary16. To f32 is exact. To f16 rounds to nearest even; numbers that are too
 * large become infinity. */
ATTN_API float attn_f32_from_f16(uint16_t half);
ATTN_API uint16_t attn_f16_from_f32(float value);

/* Random numbers: PyTorch's CPU generator after manual_seed (mt19937, Matsumoto & Nishimura
 * 1998), the same on every machine. */
typedef struct attn_rng {
    uint32_t state[624];
    uint32_t next; /* index of the next word */
} attn_rng;
/* A zeroed attn_rng has the seed 0. Seeds below 2^32 give PyTorch's numbers. PyTorch ignores higher
 * bits of a seed. Here they count: such a seed gives the words of Python's random.seed(seed). */
ATTN_API void attn_rng_seed(attn_rng *rng, uint64_t seed);
ATTN_API uint32_t attn_rng_u32(attn_rng *rng);
ATTN_API float attn_rng_uniform(attn_rng *rng); /* in [0, 1), a multiple of 2^-24: torch.rand */

/* >>api-models ==================================================================================*/

typedef struct attn_model attn_model;         /* weights and configuration; read-only once open */
typedef struct attn_session attn_session;     /* one sequence: its tokens, keys and values */
typedef struct attn_tokenizer attn_tokenizer; /* >>api-tokenizer */

typedef struct attn_config {
    size_t n_vocab, n_ctx, d_model, n_head, n_layer, d_mlp;
    size_t d_head; /* d_model / n_head */
    float ln_eps;
    int tied;            /* the unembedding is the embedding */
    attn_token bos, eos; /* beginning and end of text, or -1 */
    /* GPT-2 has 0 in these four; some of its relatives do not. */
    attn_mlp_act act_fn;                 /* of the MLP */
    int unscaled_attn;                   /* scores are not divided by sqrt(d_head) */
    int scale_attn_by_inverse_layer_idx; /* scores of layer i are divided by i + 1 */
    int has_b_U;                         /* logits have a bias, unembed.b_U */
    /* If several tokens end a text, as in chat models, `eos` is one of them, and more_eos has the
     * others: n_more_eos of them, at most 31. NULL if there are none. */
    size_t n_more_eos;
    const attn_token *more_eos;
    uint64_t reserved[4]; /* zero */
} attn_config;
/* Does this token end a text? 1 for eos and for each of more_eos, else 0. */
ATTN_API int attn_config_is_eos(const attn_config *config, attn_token token);

/* Receives the fraction that is done, from 0 to 1. It returns 0 to go on, anything else to stop. */
typedef int (*attn_progress_fn)(double done, void *user);

/* How to open a model. */
typedef struct attn_model_desc {
    int skip_checksums; /* 1: do not read the whole file to verify it */
    int takes_memory;   /* of attn_model_open_memory; 1: attn_alloc made the memory, and the model
                           frees it in the end, unless opening fails */
    /* NULL, or called from time to time while the checksums are verified. If it stops, opening
     * returns ATTN_STOPPED. */
    attn_progress_fn progress_fn;
    void *progress_user;  /* passed to progress_fn */
    uint64_t reserved[4]; /* zero */
} attn_model_desc;

/* Opens a .attn file: maps it, checks everything that later calls rely on, verifies the checksums.
 * desc may be NULL. *model is NULL on failure; attn_model_close frees the model. A hostile file
 * does no harm. But no program may write to it while the model is open: bytes could change after
 * they were checked, and a mapped file that is truncated raises SIGBUS. If another program may
 * write to it, read the file yourself and use attn_model_open_memory. */
ATTN_API attn_status attn_model_open(attn_ctx *ctx, attn_model **model, const char *path,
                                     const attn_model_desc *desc);
/* The same from memory, which must stay until the model is freed (see attn_model_close). It should
 * be aligned to 64 bytes; if it is not, it is copied. */
ATTN_API attn_status attn_model_open_memory(attn_ctx *ctx, attn_model **model, const void *data,
                                            size_t size, const attn_model_desc *desc);
/* Returns at once. The model and its tokenizer are freed when the last session, workspace and
 * record of the model is freed too. NULL is fine. */
ATTN_API void attn_model_close(attn_model *model);

/* The configuration of a model, which owns it. */
ATTN_API const attn_config *attn_model_config(const attn_model *model);
/* The tokenizer of a model, which owns it; NULL if there is none. */
ATTN_API const attn_tokenizer *attn_model_tokenizer(const attn_model *model);
/* The model's whole file, for tools that list tensors (see >>format). The model owns the bytes;
 * *size (may be NULL) gets their number. NULL and 0 without a model. */
ATTN_API const void *attn_model_bytes(size_t *size, const attn_model *model);
/* What the file says of the model under a key, in UTF-8 without control characters: see "Strings"
 * in >>format. The model owns the text. NULL if the file does not say it, or without a model or
 * key. */
ATTN_API const char *attn_model_meta(const attn_model *model, const char *key);
/* A copy of a weight, f32 and dense, by TransformerLens's name and in its shape (V = n_vocab,
 * C = d_model, H heads of d, F = d_mlp):
 *   embed.W_E [V, C]    pos_embed.W_pos [n_ctx, C]    unembed.W_U [C, V], b_U [V]
 *   blocks.i.attn.W_Q, W_K, W_V [H, C, d]    b_Q, b_K, b_V [H, d]    W_O [H, d, C]    b_O [C]
 *   blocks.i.mlp.W_in [C, F], b_in [F], W_out [F, C], b_out [C]
 *   blocks.i.ln1.w, ln1.b, ln2.w, ln2.b [C]    ln_final.w, ln_final.b [C]
 * There is an unembed.W_U even if it is tied, and a b_U of zeros unless attn_config.has_b_U. There
 * are also blocks.i.attn.W_QKV [C, 3C] and b_QKV [3C], as in the file. ATTN_E_NAME for other
 * names. */
ATTN_API attn_status attn_model_tensor(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                       const char *name);

/* A workspace holds the kernels, the threads and the scratch memory of a forward pass. Each thread
 * of yours that runs models needs one. Any number of sessions can share it, one call at a time. */
typedef struct attn_workspace attn_workspace;

typedef struct attn_workspace_desc {
    size_t n_ctx;   /* capacity of its longest session, 1 to the model's n_ctx; 0: the model's */
    size_t n_batch; /* most tokens of a pass; 0: 256. More are a little faster on long prompts, and
                       take more memory; results do not depend on it */
    uint64_t reserved[4]; /* zero */
} attn_workspace_desc;

/* The most bytes that attn_workspace_new allocates. desc may be NULL. */
ATTN_API attn_status attn_workspace_size(attn_ctx *ctx, size_t *bytes, const attn_model *model,
                                         const attn_workspace_desc *desc);
/* A workspace for the threads of ctx->n_threads and the instruction set of ctx->isa. desc may be
 * NULL. *workspace is NULL on failure. */
ATTN_API attn_status attn_workspace_new(attn_ctx *ctx, attn_workspace **workspace,
                                        const attn_model *model, const attn_workspace_desc *desc);
/* Frees it after the last session that uses it is freed. NULL is fine. */
ATTN_API void attn_workspace_free(attn_workspace *workspace);

typedef struct attn_session_desc {
    size_t n_ctx;   /* most tokens it can hold, up to the workspace's n_ctx; 0: the model's */
    size_t n_batch; /* of the workspace that it makes, else 0: see attn_workspace_desc */
    /* Type of its keys and values: ATTN_F32, or ATTN_F16, which rounds them; they take half the
     * memory, and half the bytes are read for each token. */
    attn_dtype cache_dtype;
    attn_workspace *workspace; /* NULL: the session makes its own. A batch needs a shared one */
    uint64_t reserved[4];      /* zero */
} attn_session_desc;

/* The most bytes that attn_session_new allocates. desc may be NULL. */
ATTN_API attn_status attn_session_size(attn_ctx *ctx, size_t *bytes, const attn_model *model,
                                       const attn_session_desc *desc);
/* A session without tokens. desc may be NULL. *session is NULL on failure. */
ATTN_API attn_status attn_session_new(attn_ctx *ctx, attn_session **session,
                                      const attn_model *model, const attn_session_desc *desc);
ATTN_API void attn_session_free(attn_session *session); /* NULL is fine */
/* Gives a session another workspace of the same model. No other thread may use the session
 * meanwhile, but its old workspace may be busy with other sessions. */
ATTN_API attn_status attn_session_set_workspace(attn_ctx *ctx, attn_session *session,
                                                attn_workspace *workspace);

/* Runs the model over n_tokens tokens, at least one, and adds them to the session. Then
 * attn_session_logits(session) has the logits of the last one. Many calls give the same bits as
 * one.
 *
 * A failed or stopped call leaves the session's tokens as they were. But keys and values beyond its
 * length, from before a truncation, may be lost.
 *
 * `tokens` may be the session's own, from before a truncation. So a session of n tokens that is
 * nearly full can go on with its last `keep` tokens, which get new positions and are computed
 * again:
 *
 *     attn_session_truncate(&ctx, session, 0);
 *     attn_feed(&ctx, session, attn_session_tokens(session) + n - keep, keep); */
ATTN_API attn_status attn_feed(attn_ctx *ctx, attn_session *session, const attn_token *tokens,
                               size_t n_tokens);
/* Encodes a text, as attn_encode does, and feeds it. */
ATTN_API attn_status attn_feed_text(attn_ctx *ctx, attn_session *session, const char *text);
/* [n_vocab]: the logits of the last token; NULL if there are none. They are valid until the next
 * call that changes the session, which owns them. */
ATTN_API const float *attn_session_logits(const attn_session *session);

/* Which layers a feed runs, and the residual streams that enter and leave them. */
typedef struct attn_layers {
    size_t first, end; /* layers [first, end); end 0 means n_layer */
    int embed_only;    /* 1: only the embedding; first, end and resid must be zeroed then */
    /* [n_tokens, d_model]: the stream that enters layer `first`; NULL, with first 0: embeddings */
    const float *resid;
    float *resid_out;     /* [n_tokens, d_model]: receives the stream that leaves; or NULL */
    uint64_t reserved[2]; /* zero */
} attn_layers;

/* One sequence of a batch. */
typedef struct attn_feed_item {
    attn_session *session;
    const attn_token *tokens;
    size_t n_tokens;
    /* [n_rows, n_vocab], or [n_tokens, n_vocab] if rows is NULL: receives logits. NULL: only
     * attn_session_logits has those of the last token. */
    float *logits;
    /* [n_rows]: which tokens' logits, ascending, from 0; NULL: those of all. If rows are given
     * without the last token, attn_session_logits is NULL after the feed. */
    const size_t *rows;
    size_t n_rows;
    attn_layers layers;   /* zeroed: all, from the embedding to the logits */
    uint64_t reserved[4]; /* zero */
} attn_feed_item;
/* Feeds several sequences of one model together: a pass reads the weights once for all of them.
 * Each sequence gets the bits that it would get alone. All sessions must be different and share a
 * workspace. A failed call leaves all sessions as they were.
 *
 * If layers.end is from 1 to n_layer - 1, the feed ends before that layer, makes no logits and does
 * not add the tokens to the session. Another feed of the same tokens can continue: layers.first is
 * the old layers.end, and layers.resid the old resid_out. With layers.first = n_layer a feed only
 * makes the logits of a stream. All items must run the same layers, and all or none have a resid.
 *
 * A feed with layers.first > 0 needs the keys and values of the layers below at all its positions:
 * from a feed that ended there, or from before a truncation. ATTN_E_ARGUMENT if they are missing,
 * or are those of other tokens. So, to see what another stream at layer i from position p on would
 * change: feed the text, truncate the session (or a copy) to p, and feed the same tokens from p on
 * with layers.first = i and layers.resid = that stream. A feed of several layers forgets their keys
 * and values at later positions; a feed of one layer keeps them. */
ATTN_API attn_status attn_feed_batch(attn_ctx *ctx, const attn_feed_item *items, size_t n_items);

ATTN_API size_t attn_session_length(const attn_session *session);   /* tokens it holds */
ATTN_API size_t attn_session_capacity(const attn_session *session); /* tokens it can hold */
/* The type of its keys and values: see attn_session_desc. */
ATTN_API attn_dtype attn_session_cache_dtype(const attn_session *session);
/* [attn_session_length]: its tokens, which it owns. After a truncation, the tokens beyond the new
 * length stay there until the next feed. */
ATTN_API const attn_token *attn_session_tokens(const attn_session *session);
ATTN_API const attn_model *attn_session_model(const attn_session *session);
/* Shortens the session to `length` tokens, at most its own length. A session that became shorter
 * has no logits until the next feed. The keys and values of the other tokens stay until then, for
 * attn_feed_batch. */
ATTN_API attn_status attn_session_truncate(attn_ctx *ctx, attn_session *session, size_t length);
/* Replaces the tokens, keys, values and logits of `to` by those of `from`, of the same model and
 * cache_dtype. `to` must have room for them, and must not have a record. Hooks are not copied. To
 * try several continuations of a prompt, feed it once and copy the session. */
ATTN_API attn_status attn_session_copy(attn_ctx *ctx, attn_session *to, const attn_session *from);
/* Replaces the session's tokens, keys and values without running the model. cache [2 * n_layer] has
 * the keys of layer 0, its values, the keys of layer 1 and so on, each [n_tokens, H, d] of f32 or
 * f16, as attn_session_get_cache gives them. logits [n_vocab] become those of the last token; NULL:
 * there are none. The session must have room for the tokens, at least one, and no record. A failed
 * call leaves it as it was. tools/common/session_file.h loads a saved session with this. */
ATTN_API attn_status attn_session_restore(attn_ctx *ctx, attn_session *session,
                                          const attn_token *tokens, size_t n_tokens,
                                          const attn_tensor *cache, const float *logits);

/* How well the model predicted a token. */
typedef struct attn_token_stats {
    float nll;         /* -log(probability), in nats */
    float probability; /* by softmax */
    size_t rank; /* number of likelier tokens; of equal logits, the smaller token is likelier */
} attn_token_stats;

/* A likely next token. */
typedef struct attn_prediction {
    attn_token token;
    float logit, probability;
} attn_prediction;

/* Receives the k likeliest tokens of each row. */
typedef struct attn_top {
    attn_prediction *best; /* [rows, k], likeliest first */
    size_t k;              /* at most n_vocab */
} attn_top;

/* Feeds tokens, which the session keeps, and measures their losses. stats [n_tokens - 1] (may be
 * NULL): stats[t] is that of tokens[t + 1], predicted from all tokens before it; tokens[0] has
 * none. top (may be NULL) gets the likeliest next tokens at each of the n_tokens positions. A
 * failed call leaves the session as it was. It needs memory for a few rows of logits. Hooks run, so
 * an ablated model can be scored. */
ATTN_API attn_status attn_score(attn_ctx *ctx, attn_token_stats *stats, const attn_top *top,
                                attn_session *session, const attn_token *tokens, size_t n_tokens);
/* The mean of stats[0 .. n_stats - 1].nll: the cross-entropy of a text in nats. exp of it is the
 * perplexity. NaN if n_stats is 0 or stats is NULL. */
ATTN_API double attn_mean_nll(const attn_token_stats *stats, size_t n_stats);
/* The same for logits [T, V]: stats [T] of targets [T] (both, or NULL both), and the likeliest
 * tokens of each row (top may be NULL). NaN and infinity: as in attn_sample. */
ATTN_API attn_status attn_logit_stats(attn_ctx *ctx, attn_token_stats *stats, const attn_top *top,
                                      attn_tensor logits, const attn_token *targets);

/* How to pick a token. With temperature 0 it is the first of the largest logits after the
 * repetition penalty. Otherwise, in this order: the repetition penalty, division by the
 * temperature, the filters top-k, top-p and min-p, each on the tokens that the previous one kept,
 * and one draw. */
typedef struct attn_sampler_desc {
    float temperature;    /* 0: greedy */
    size_t top_k;         /* keep the k likeliest; 0: all */
    float top_p;          /* keep the likeliest that together have probability p; 0 or 1: all */
    float min_p;          /* keep those at least min_p times as likely as the likeliest; 0: all */
    float repeat_penalty; /* of tokens seen before: positive logits are divided by it, negative ones
                             multiplied (Keskar et al. 2019); 0 or 1: none */
    size_t repeat_last;   /* how many of the latest tokens count as seen; 0: all */
    uint64_t seed;        /* see attn_rng_seed */
    uint64_t reserved[4]; /* zero */
} attn_sampler_desc;

typedef struct attn_sampler attn_sampler;
/* desc may be NULL: greedy. temperature and repeat_penalty must be finite and not negative, top_p
 * and min_p from 0 to 1 (else ATTN_E_ARGUMENT). *sampler is NULL on failure. */
ATTN_API attn_status attn_sampler_new(attn_ctx *ctx, attn_sampler **sampler, size_t n_vocab,
                                      const attn_sampler_desc *desc);
ATTN_API void attn_sampler_free(attn_sampler *sampler); /* NULL is fine */
/* Picks a token from logits [n_vocab]. `seen` are the n_seen tokens so far, for the repetition
 * penalty. It fails if a logit is NaN, or all are -inf. The first logit of +inf is certain. */
ATTN_API attn_status attn_sample(attn_ctx *ctx, attn_token *token, attn_sampler *sampler,
                                 const float *logits, const attn_token *seen, size_t n_seen);

/* Receives text as it is generated: whole UTF-8 characters; each invalid part becomes U+FFFD. It
 * returns 0 to go on, anything else to stop. It may read the session and copy it into another one,
 * but not change it. */
typedef int (*attn_text_fn)(const char *text, size_t size, void *user);

/* Receives a copy of the logits [n_vocab] from which the next token will be drawn, before the
 * repetition penalty, and may change it: -INFINITY forbids a token. The session has the tokens so
 * far. It returns 0 to go on, anything else to stop before this token. It may not change the
 * session. */
typedef int (*attn_logits_fn)(float *logits, const attn_session *session, void *user);

/* Why generation ended. */
typedef enum attn_stop_reason {
    ATTN_STOP_NONE = 0, /* the call failed */
    ATTN_STOP_EOS,      /* a token that ends a text was drawn; it is not fed */
    ATTN_STOP_COUNT,    /* max_tokens were generated */
    ATTN_STOP_CONTEXT,  /* the session is full */
    ATTN_STOP_CALLBACK, /* a callback or attn_ctx.stop_flag asked to stop */
    ATTN_STOP_STRING    /* the text reached one of the stop strings */
} attn_stop_reason;

/* "end of text", "token count", "context full", "callback", "stop string" or "none"; never NULL. */
ATTN_API const char *attn_stop_reason_name(attn_stop_reason reason);

/* How to generate. Zeroed: greedy, 100 tokens, or fewer if the text ends or the session is full. */
typedef struct attn_generate_desc {
    attn_sampler_desc sampling;
    /* NULL, or a sampler to use instead of `sampling`, which must be zeroed. It continues where the
     * latest call left it: several calls draw the same tokens as one long call. But each call ends
     * its text: an unfinished character becomes U+FFFD, and no stop string spans two calls. For a
     * text in small steps, see attn_generator. */
    attn_sampler *reuse_sampler;
    attn_text_fn text_fn;     /* NULL, or receives the text */
    void *text_user;          /* passed to text_fn */
    attn_logits_fn logits_fn; /* NULL, or called before each draw */
    void *logits_user;        /* passed to logits_fn */
    size_t max_tokens;        /* 0: 100 */
    int prepend_bos;          /* 1: begin an empty session with the beginning-of-text token */
    int allow_special;        /* 1: encode the prompt as attn_encode_special does */
    int ignore_eos;           /* 1: do not end at tokens that end a text */
    int no_draft;             /* 1: no drafts, see attn_generate */
    size_t n_draft;           /* most tokens of a draft, at most 15; 0: 15 */
    const char *const *stop_strings; /* [n_stop_strings]: strings that end the text */
    size_t n_stop_strings;
    int keep_stop;                   /* 1: the text includes the stop string */
    const attn_token *prompt_tokens; /* NULL, or [n_prompt_tokens]: the prompt instead of a text */
    size_t n_prompt_tokens;
    attn_workspace *workspace; /* only of attn_generate_many; NULL: it makes one */
    uint64_t reserved[4];      /* zero */
} attn_generate_desc;

/* The result of attn_generate. Zero it, and set tokens, log_probs and room if you want them. */
typedef struct attn_generation {
    attn_token *tokens; /* NULL, or [room]: receives the generated tokens */
    /* NULL, or [room]: the log-probability of each generated token by the model's own logits,
     * before logits_fn, penalty, temperature and filters. */
    float *log_probs;
    size_t room;             /* max_tokens (100 if that is 0) is enough; more tokens are not kept */
    size_t n_tokens;         /* how many were generated */
    size_t n_passes;         /* forward passes that fed them */
    attn_stop_reason reason; /* why generation ended */
    size_t which_stop;       /* if ATTN_STOP_STRING: its index in desc->stop_strings */
    size_t accepted;      /* the session's length up to the last token whose text was handed over */
    uint64_t reserved[4]; /* zero */
} attn_generation;
/* Feeds the prompt, which may be NULL or empty if the session has logits, then samples and feeds
 * tokens until it ends, and hands over their text (not the prompt's) to desc->text_fn. A model
 * without a tokenizer has no text. result and desc may be NULL.
 *
 * Every end but a failure returns ATTN_OK, even a stop by a callback; result->reason has the
 * reason. The session has the prompt and all generated tokens, also those of a stop string. The
 * last one is missing if the session is full, or if a hook or ctx->stop_flag ended its feed. To
 * continue after the text that was handed over, after a stop string or a stop by a callback:
 *
 *     attn_session_truncate(&ctx, session, result.accepted);
 *
 * The next prompt must then have at least one token.
 *
 * Text that could begin a stop string is held back until it cannot. The stop string is handed over
 * only with keep_stop; text after it in the same token never is. Stop strings are not searched in
 * the prompt. A token that ends a text is not one of the generated tokens. Its text is handed over,
 * unless it is a special token.
 *
 * If the latest tokens occurred earlier, the tokens that followed them are fed as a draft, in the
 * same pass as the next token (prompt-lookup decoding). A drafted token counts only if the sampler
 * draws it. So the text is the same, and comes sooner. Sessions with hooks have no drafts. */
ATTN_API attn_status attn_generate(attn_ctx *ctx, attn_generation *result, attn_session *session,
                                   const char *prompt, const attn_generate_desc *desc);

/* A text of attn_generate that is generated step by step, for a program that must draw a frame or
 * answer events in between. */
typedef struct attn_generator attn_generator;
/* Checks what attn_generate checks, and runs nothing. The session, and all that desc points to,
 * must live until attn_generator_free. *generator is NULL on failure. */
ATTN_API attn_status attn_generator_new(attn_ctx *ctx, attn_generator **generator,
                                        attn_session *session, const char *prompt,
                                        const attn_generate_desc *desc);
/* Runs one pass: of the prompt, or of the latest token and its draft. Then it draws tokens and
 * hands over their text. Text and tokens are those of attn_generate: steps cut neither characters
 * nor stop strings. Give every step the same *result, zeroed before the first, as for
 * attn_generate. Its reason is ATTN_STOP_NONE until the text has ended. A step fails after the end,
 * and if another call has changed the session since the last step. A step that fails while it runs
 * ends the text. */
ATTN_API attn_status attn_generator_step(attn_ctx *ctx, attn_generation *result,
                                         attn_generator *generator);
/* Frees the generator; NULL is allowed. A callback must not free the generator that calls it. The
 * session keeps the text's tokens. But after a step with ATTN_STOP_NONE it does not have the latest
 * token yet: to continue after its text, begin the next prompt with it
 * (result.tokens[result.n_tokens - 1]). */
ATTN_API void attn_generator_free(attn_generator *generator);

/* One text of attn_generate_many. Zero it, and set its prompt. */
typedef struct attn_continuation {
    const char *prompt;
    const attn_token *prompt_tokens; /* NULL, or [n_prompt_tokens]: the prompt instead of a text */
    size_t n_prompt_tokens;
    attn_text_fn text_fn; /* NULL, or receives the text */
    void *text_user;      /* passed to text_fn */

    /* the results */
    char *text;         /* whole UTF-8 characters, ended by a zero */
    size_t size;        /* bytes, without the zero */
    attn_token *tokens; /* [n_tokens]: the generated tokens */
    float *log_probs;   /* [n_tokens]: as in attn_generation */
    size_t n_tokens;
    attn_stop_reason reason;
    size_t which_stop;    /* as in attn_generation */
    uint64_t reserved[4]; /* zero */
} attn_continuation;
/* Continues several prompts, each in a session of its own. One pass computes the next token of
 * every prompt. The results are allocated; attn_continuations_free frees them. After a failure
 * there is nothing to free. Free or zero the results before the structs are used again.
 *
 * Text i is the text of attn_generate with the seed desc->sampling.seed + i, so that equal prompts
 * continue differently. desc (may be NULL) is for all texts; its reuse_sampler, text_fn and
 * prompt_tokens must be zeroed. A text_fn or logits_fn that stops ends only its own text
 * (ATTN_STOP_CALLBACK). If n_draft is 0, the texts share 15 drafted tokens. */
ATTN_API attn_status attn_generate_many(attn_ctx *ctx, attn_continuation *texts, size_t n_texts,
                                        const attn_model *model, const attn_generate_desc *desc);
/* Frees the results of attn_generate_many. NULL is fine. */
ATTN_API void attn_continuations_free(attn_continuation *texts, size_t n_texts);

/* >>api-tokenizer ===============================================================================
 *
 * GPT-2's byte-level BPE, exactly, for any vocabulary of that kind; or a token for each character.
 * Any bytes can be encoded, valid UTF-8 or not. Decoding gives the same bytes, except those that
 * the vocabulary lacks or adds (see "Tokenizer section" in >>format). The time is nearly linear in
 * the size of any text, if few tokens are special. A word of more than 48 bytes takes 36 bytes of
 * memory for each byte. */

/* Makes a tokenizer from a tokenizer section (see >>format), which must outlive it. (A model has
 * its own: attn_model_tokenizer.) ATTN_E_FORMAT if the section is inconsistent; *tokenizer is NULL
 * on failure. */
ATTN_API attn_status attn_tokenizer_new(attn_ctx *ctx, attn_tokenizer **tokenizer, const void *data,
                                        size_t size);
ATTN_API void attn_tokenizer_free(attn_tokenizer *tokenizer); /* NULL is fine */
ATTN_API size_t attn_tokenizer_n_tokens(const attn_tokenizer *tokenizer);
/* The bytes of one token, which the tokenizer owns. They do not end with a zero, and are often not
 * whole UTF-8 characters. *size (may be NULL) gets their number. NULL for a token outside the
 * vocabulary. */
ATTN_API const char *attn_token_bytes(size_t *size, const attn_tokenizer *tokenizer,
                                      attn_token token);
/* 1 for a token that only attn_encode_special makes, such as "<|endoftext|>"; else 0. */
ATTN_API int attn_tokenizer_is_special(const attn_tokenizer *tokenizer, attn_token token);
/* 1 if texts get a blank in front, as in some of Hugging Face's vocabularies; else 0. */
ATTN_API int attn_tokenizer_adds_blank(const attn_tokenizer *tokenizer);

/* Text of `size` bytes to tokens. *n_tokens is the room at `tokens` before the call; `size + 1` is
 * always enough, and `size` for a tokenizer that adds no blank. After it, *n_tokens is the number
 * of tokens: ATTN_E_SPACE if they do not fit. To ask for the number, pass NULL and room 0: the call
 * succeeds. Special tokens in the text are encoded as ordinary text. Where a blank is added, "word"
 * is encoded as " word" is, and decoded as that. ATTN_E_TOKENIZER if tokenizer is NULL. */
ATTN_API attn_status attn_encode(attn_ctx *ctx, attn_token *tokens, size_t *n_tokens,
                                 const attn_tokenizer *tokenizer, const char *text, size_t size);
/* The same, but a special token such as "<|endoftext|>" in the text becomes its token; the longest
 * one, if several begin at the same place. A blank is added before each part between them. */
ATTN_API attn_status attn_encode_special(attn_ctx *ctx, attn_token *tokens, size_t *n_tokens,
                                         const attn_tokenizer *tokenizer, const char *text,
                                         size_t size);
/* Tokens to bytes. *size is the room at `text` before the call and the number of bytes after it, by
 * the same rules. No zero is added. */
ATTN_API attn_status attn_decode(attn_ctx *ctx, char *text, size_t *size,
                                 const attn_tokenizer *tokenizer, const attn_token *tokens,
                                 size_t n_tokens);
/* Encodes a text that is one token. If it is not, the call fails with ATTN_E_TOKEN and lists its
 * tokens; *token is -1 after a failure. (" word" and "word" are usually different tokens.) */
ATTN_API attn_status attn_text_token(attn_ctx *ctx, attn_token *token, const attn_model *model,
                                     const char *text);

/* Cuts pieces of text into whole UTF-8 characters: it keeps the beginning of a character until the
 * rest of it comes. Zero it before the first piece. */
typedef struct attn_utf8 {
    unsigned char bytes[4];
    int n;
} attn_utf8;
/* Takes one piece and writes whole characters to `text`, which needs room for 3 * (size + 4) bytes.
 * Returns the number of bytes that it wrote. Bytes that are not UTF-8 become U+FFFD, one for each
 * maximal part (Unicode 15, 3.9). At the end, size = 0 writes U+FFFD for a beginning that was
 * kept. */
ATTN_API size_t attn_utf8_push(char *text, attn_utf8 *state, const char *bytes, size_t size);

/* >>api-hooks ===================================================================================
 *
 * Activations have TransformerLens's names. T = positions of this call of the hook, Tk = T and all
 * positions before them, C = d_model, H heads of d = d_head, F = d_mlp. After the first three
 * lines, names begin with "blocks.i.", for layer i from 0:
 *
 *   hook_embed, hook_pos_embed     [T, C]      rows of W_E, of W_pos
 *   ln_final.hook_scale            [T, 1]      as ln1 below, of the last residual stream
 *   ln_final.hook_normalized.*     [T, C]
 *   hook_resid_pre, _mid, _post    [T, C]      the residual stream before the block, after
 *                                              attention, after the MLP
 *   ln1.hook_scale                 [T, 1]      sqrt(variance + eps); ln2.hook_scale likewise
 *   ln1.hook_normalized.pre        [T, C]      (x - mean) / scale; ln2 likewise
 *   ln1.hook_normalized.post       [T, C]      after gain and bias; ln2 likewise. (The name without
 *                                              .pre or .post is refused: TransformerLens changed
 *                                              its meaning in 2025.)
 *   attn.hook_q, _k, _v            [T, H, d]
 *   attn.hook_attn_scores          [H, T, Tk]  q · k / sqrt(d) (or as attn_config says), and -inf
 *                                              for later keys
 *   attn.hook_pattern              [H, T, Tk]  softmax of the scores
 *   attn.hook_z                    [T, H, d]   sum over keys of pattern * v
 *   hook_attn_out, hook_mlp_out    [T, C]      the sublayer's addition to the stream, with bias
 *   mlp.hook_pre, mlp.hook_post    [T, F]      before and after GELU (or act_fn)
 *
 * A query never sees later keys, whatever a hook writes there: later scores count as -inf, later
 * patterns as 0. So results do not depend on how a text is cut into feeds. (In TransformerLens a
 * hook runs after the mask. If it sets all scores to 0, a query attends to all positions; here, to
 * those up to its own.)
 *
 * Some activations take extra time and memory. They are computed only while a hook or record names
 * them. A pattern that ends in `*` does not count as naming; `*.hook_result` does:
 *
 *   attn.hook_result               [T, H, C]   each head's addition: z · W_O, without b_O
 *   hook_attn_in                   [T, H, C]   the stream that enters ln1, a copy for each head
 *   hook_q_input, _k_input, _v_input           [T, H, C] copies of that copy, for q, for k, for v
 *   hook_mlp_in                    [T, C]      a copy of the stream that enters ln2
 *
 * If a hook writes into a copy, only the input of that head, or of the MLP, changes; the stream
 * stays. The q, k or v of a changed row of a head comes from the LayerNorm of the copy. (The hooks
 * of ln1 ran before, and saw the stream.) If a row of hook_result is changed, hook_attn_out becomes
 * the sum over heads plus b_O. Rows and heads that were not changed keep their bits. */

typedef enum attn_axes {
    ATTN_AXES_POSITIONS, /* [T, numbers] */
    ATTN_AXES_HEADS,     /* [T, H, numbers] */
    ATTN_AXES_KEYS       /* [H, T, Tk] */
} attn_axes;

/* A name of the tables above, for all layers. The kinds outside the blocks come first, then those
 * of a block in the order of the pass. */
typedef struct attn_activation_kind {
    const char *name; /* without "blocks.i." */
    attn_axes axes;
    int in_block;   /* 1: every layer has one, and the full name begins with "blocks.i." */
    int on_request; /* 1: made on request */
} attn_activation_kind;

/* The kind of this index, from 0; NULL if there is none. */
ATTN_API const attn_activation_kind *attn_activation_kind_at(size_t index);
/* The kind of the activation that has this name, with or without "blocks.i."; NULL if none has. */
ATTN_API const attn_activation_kind *attn_activation_kind_of(const char *name);
/* 1 if a hook with this pattern sees the activation of this full name, else 0. */
ATTN_API int attn_activation_matches(const char *pattern, const char *name);

/* The layer of an activation that is outside the blocks. */
#define ATTN_NO_LAYER SIZE_MAX

typedef struct attn_activation {
    const char *name; /* the full name */
    const attn_activation_kind *kind;
    size_t layer; /* or ATTN_NO_LAYER */
    attn_session *session;
    size_t first;      /* position of the first row in the sequence */
    attn_tensor value; /* the rows of this session */
} attn_activation;

/* A hook of a session; 0: none. */
typedef uint32_t attn_hook_id;

/* It returns 0 to go on, anything else to stop: the feed then returns ATTN_STOPPED, and leaves the
 * session as it was. A callback may not feed, truncate or hook its session. It may free a session:
 * the feed then stops, and the session is freed when the feed returns. */
typedef int (*attn_hook_fn)(const attn_activation *activation, void *user);

/* Calls fn at every activation of this session whose name matches; `*` in the pattern stands for
 * any characters. fn may read the value, and write to it: the model goes on with what is written.
 * The value is valid until fn returns. A long prompt comes in several calls, each with at most
 * n_batch rows (of the workspace); results do not depend on this. Hooks run one at a time, in the
 * order in which they were made. id may be NULL. ATTN_E_NAME if no activation matches; the message
 * has the nearest name. */
ATTN_API attn_status attn_hook(attn_ctx *ctx, attn_hook_id *id, attn_session *session,
                               const char *pattern, attn_hook_fn fn, void *user);
/* Removes a hook or an edit. A callback may remove hooks of its session, also its own: they see
 * nothing more. ATTN_E_ARGUMENT if the session has no hook of this id. */
ATTN_API attn_status attn_unhook(attn_ctx *ctx, attn_session *session, attn_hook_id id);
/* Removes all hooks, edits and records. NULL is fine. */
ATTN_API void attn_unhook_all(attn_session *session);

/* A session's cache has the keys and values of its positions. They are all that later tokens see of
 * earlier ones. (hook_k and hook_v show new keys and values before they are stored.)
 *
 * attn_session_get_cache copies those of a layer, from position `first` to the session's last, to
 * *out [n, H, d]. attn_session_set_cache replaces them by value [n, H, d], from `first` on.
 *
 * A hook may call both for the positions before its feed. To change a layer in this feed, it must
 * set values at the layer's hook_v or before. A change stays until the positions are truncated and
 * fed again, even if the feed is stopped. With cache_dtype = ATTN_F16, keys and values are rounded
 * when they are stored, and scores and z are made from the rounded ones. */
typedef enum attn_cache_part { ATTN_CACHE_KEYS, ATTN_CACHE_VALUES } attn_cache_part;
ATTN_API attn_status attn_session_get_cache(attn_ctx *ctx, attn_tensor *out,
                                            const attn_session *session, attn_cache_part part,
                                            size_t layer, size_t first);
ATTN_API attn_status attn_session_set_cache(attn_ctx *ctx, attn_session *session,
                                            attn_cache_part part, size_t layer, size_t first,
                                            attn_tensor value);

/* >>api-records =================================================================================
 *
 * A record keeps activations at many positions. It has the same bits however the text is cut into
 * feeds. */
typedef struct attn_record attn_record;
/* What to record. Zeroed: every activation except those on request, at all positions. */
typedef struct attn_record_desc {
    const char *const *names; /* [n_names]: names and patterns as for attn_hook */
    size_t n_names;
    size_t first;       /* the first position */
    size_t n_positions; /* how many positions; 0: all up to the model's n_ctx, in gigabytes */
    void *memory;       /* for the numbers, of the caller, aligned as floats are; NULL: allocated */
    size_t memory_size; /* its bytes */
    uint64_t reserved[4]; /* zero */
} attn_record_desc;

/* The bytes of memory that the numbers of such a record take. desc may be NULL. */
ATTN_API attn_status attn_record_size(attn_ctx *ctx, size_t *bytes, const attn_model *model,
                                      const attn_record_desc *desc);
/* Records the tokens that are fed to the session from now on. Memory of the caller must outlive the
 * record. (ATTN_E_SPACE if it is too small; the message says how many bytes are needed.) The
 * session must not have positions beyond desc->first. A feed beyond the last position fails with
 * ATTN_E_SPACE. Truncating the session truncates the record. A record sees the changes of hooks
 * that are older than it, not those of newer ones. */
ATTN_API attn_status attn_record_new(attn_ctx *ctx, attn_record **record, attn_session *session,
                                     const attn_record_desc *desc);
/* Ends and frees a record, but not memory of the caller. Do not call it from a hook. NULL is fine.
 * After attn_unhook_all or attn_session_free a record can still be read. */
ATTN_API void attn_record_free(attn_record *record);
/* The number of activations in a record, and the name of each, which the record owns: first those
 * outside the blocks, then block by block. NULL if index is too large. */
ATTN_API size_t attn_record_n_activations(const attn_record *record);
ATTN_API const char *attn_record_name(const attn_record *record, size_t index);
/* A view of a recorded activation, in the shape of the table above. T is the number of positions
 * that were recorded so far, and Tk = first + T. At later keys a pattern is 0 and scores are -inf.
 * The view may be written to. Get a new one after a feed. ATTN_E_NAME if the activation is not
 * recorded. */
ATTN_API attn_status attn_record_get(attn_ctx *ctx, attn_tensor *out, const attn_record *record,
                                     const char *name);

/* An edit is a hook without a callback: zero ablation, mean ablation, patching (SET with the
 * numbers of another run), steering (ADD). x is an activation. */
typedef enum attn_edit_kind {
    ATTN_EDIT_ZERO,
    ATTN_EDIT_SET,  /* x = value */
    ATTN_EDIT_MEAN, /* x = mean of value over its positions; not for scores or patterns */
    ATTN_EDIT_ADD,  /* x = x + value */
    ATTN_EDIT_SCALE /* x = x * value, which may be a single number */
} attn_edit_kind;
typedef struct attn_edit {
    const char *name; /* or a pattern */
    attn_edit_kind kind;
    size_t first, count;        /* positions; count 0: all from `first` on */
    size_t first_head, n_heads; /* n_heads 0: all from `first_head` on */
    /* f32, in the shape of what is edited: [positions, width], [positions, heads, width] or
     * [heads, positions, keys]. Leading dimensions may be missing. A dimension of 1 repeats. For a
     * single head, [positions, width] too. It is not copied, and must outlive the hook. */
    attn_tensor value;
    uint64_t reserved[4]; /* zero */
} attn_edit;
/* Adds an edit to a session, until attn_unhook or attn_unhook_all. The struct is copied, the
 * numbers of the value are not. id may be NULL. Each activation that a pattern matches takes the
 * value by its own shape: its first dimension may be positions in one and heads in another.
 * ATTN_E_NAME if nothing matches, ATTN_E_SHAPE if the value does not fit one of the activations,
 * ATTN_E_ARGUMENT if positions, heads or the value do not exist. With count 0, several positions of
 * a value (but for MEAN) are those from `first` on. A feed that goes beyond them, or beyond the
 * value's keys, fails with ATTN_E_SHAPE. */
ATTN_API attn_status attn_hook_edit(attn_ctx *ctx, attn_hook_id *id, attn_session *session,
                                    const attn_edit *edit);

/* >>api-lens ====================================================================================
 *
 * Logits of any stream. (More is in tools/lens/, with this API only: the logit
 * lens and logit attribution in logits.h, parts of the residual stream in decompose.h, patching in
 * patch.h, kinds of heads in heads.h, circuits in circuits.h.)
 *
 * V = n_vocab, C = d_model. */

/* directions [n, C] = W_U[:, tokens[i]], less W_U[:, against[i]] if against is not NULL: the
 * direction of a logit, or of the difference of two. */
ATTN_API attn_status attn_logit_directions(attn_ctx *ctx, attn_tensor *directions,
                                           const attn_model *model, const attn_token *tokens,
                                           const attn_token *against, size_t n);
/* out [.., V] = normed [.., C] · W_U + b_U: the logits of rows of ln_final.hook_normalized.post,
 * with the bits of the model's logits. With tokens I32 [n] instead of a zeroed tensor, out [.., n]
 * has only the logits of these tokens, with a product for each: from hundreds on all logits come
 * sooner. ctx->stop_flag ends it with ATTN_STOPPED. */
ATTN_API attn_status attn_model_logits(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                       attn_tensor normed, attn_tensor tokens);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_H */

/* The public API ends here. All below is the implementation. */

#ifndef ATTN_FILE
#define ATTN_FILE "attn.h"
#endif
#if (defined(ATTN_IMPLEMENTATION) || defined(ATTN_STATIC)) && !defined(ATTN__IMPLEMENTED)
/* A compiler that cannot compile this gets one message, and the implementation is left out. */
#if !defined(__cplusplus) && !defined(_MSC_VER) &&                                                 \
    (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 199901L)
#error "attn.h is written in C99: compile it with -std=c99 or later, without -ansi"
#define ATTN__IMPLEMENTED
#elif defined(__has_include)
#if !__has_include(ATTN_FILE)
#error "attn.h includes itself as ATTN_FILE and does not find it: use -I, or define ATTN_FILE"
#define ATTN__IMPLEMENTED
#endif
#endif
#endif

#if (defined(ATTN_IMPLEMENTATION) || defined(ATTN_STATIC)) && !defined(ATTN__IMPLEMENTED)
#define ATTN__IMPLEMENTED

/* >>gpt2 (tests: gpt2) ==========================================================================
 * THE FORWARD PASS of R rows, one for each token of one sequence or of several. C is d_model, F
 * d_mlp, V n_vocab, d d_head, and there are H heads. All workers run attn__forward at once, each on
 * its share of every step. They meet at a barrier where the next step reads what others have
 * made. */

typedef struct attn__kernels attn__kernels; /* vector code of one instruction set: see >>inside */
typedef struct attn__watcher attn__watcher; /* looks at activations: see >>watch */

/* One of the threads that run a pass together. */
typedef struct attn__worker {
    struct attn__team *team;
    int id, count;               /* worker id of count */
    size_t layer;                /* the layer that it computes, or ATTN_NO_LAYER */
    uint64_t spin_time, core_at; /* core_at: when it last got its core. See >>threads */

    /* Tasks: see attn__next_own_task. */
    int is_dynamic; /* 1: workers take tasks when they are free */
    int has_task;   /* 1: it has taken one, which is not counted as done */
    int is_due;     /* 1: the next barrier waits for tasks */
    int n_due;      /* tasks of all loops that have ended */
    int asked;      /* workers that had no task left for this loop */
    size_t n_taken; /* its own tasks in this loop */
    size_t loop;    /* loops that have ended */
} attn__worker;

/* Rows of floats, [n, stride]. The numbers of a row are its first columns; the rest is padding. */
typedef struct attn__rows {
    float *data;
    size_t stride, n;
} attn__rows;

/* A weight matrix [n_in, n_out] in panels (see >>words). */
typedef struct attn__panels {
    const void *data;
    attn_dtype dtype;
    size_t n_in, n_out;
    size_t stride; /* bytes from one panel of 16 outputs to the next */
} attn__panels;

/* The parameters of one block, in the order of the computation. */
typedef struct attn__layer {
    const float *ln1_w, *ln1_b; /* [C]: gain and bias */
    attn__panels w_qkv;         /* [C, 3C]: columns of the queries, of the keys, of the values */
    const float *b_qkv;         /* [3C] */
    attn__panels w_o;           /* [C, C] */
    const float *b_o;           /* [C] */
    const float *ln2_w, *ln2_b; /* [C] */
    attn__panels w_in;          /* [C, F] */
    const float *b_in;          /* [F] */
    attn__panels w_out;         /* [F, C] */
    const float *b_out;         /* [C] */
} attn__layer;

struct attn_model {
    int lock;       /* 1 while a thread changes n_users */
    size_t n_users; /* workspaces, records, and the caller until attn_model_close */
    attn_config config;
    attn__panels w_e, w_u;        /* W_Eᵀ [C, V]; W_U [C, V], the same panels if tied */
    const float *w_pos;           /* [n_ctx, C] */
    attn__layer *layers;          /* [n_layer] */
    const float *ln_f_w, *ln_f_b; /* [C] */
    const float *b_u;             /* [V], or NULL */
    const float *head_w, *head_b; /* of a head: [n_labels, C], [n_labels]; or NULL */
    size_t n_labels, has_head_bias;
    attn_token more_eos[31]; /* config.more_eos */
    attn_tokenizer *tokenizer;
    struct attn__weight *weights; /* [n_weights]: the file's list of tensors, see >>format */
    const unsigned char *bytes;   /* [size]: the whole file */
    size_t n_weights, size;
    const char *meta, *meta_end; /* the file's strings; NULL if there are none */
    void *copy;                  /* `bytes`, if this model allocated them */
    void *turned;                /* on a big-endian host, a copy with the weights in its order */
    int is_mapped;               /* 1: `bytes` are a mapped file */
};

typedef struct attn__watched { /* activations that are kept while a watcher wants to see them */
    float *data;
    size_t n_users; /* watchers */
} attn__watched;

/* The kernels, threads and scratch memory of a pass: see >>session. */
struct attn_workspace {
    attn_model *model; /* const for all but its number of users */
    const attn__kernels *kernels;
    int lock;       /* 1 while a thread changes n_users here, or those of scores and heads */
    size_t n_users; /* sessions, and the caller until attn_workspace_free */
    int is_running; /* a pass is using the rows below */
    int n_threads;  /* most threads of a pass: each has scratch memory */
    struct attn__tuners *tuners; /* how many threads a pass uses: see >>threads */
    size_t n_ctx;                /* positions of the longest session */
    size_t n_batch;              /* most rows of a pass */
    void *memory;                /* the block that holds the arrays below */
    attn__rows resid;            /* [R, C]: the residual stream */
    attn__rows normed;           /* [R, C]: a LayerNorm's output */
    attn__rows qkv, z, mlp;      /* [R, 3C], [R, C], [R, F] */
    attn__rows added;            /* [R, C]: attn_out or mlp_out, added to the stream */
    float *mean, *scale;         /* [R], of the latest LayerNorm that workers share */
    float *scratch;              /* [n_threads, scratch_size], see attn__scratchpad */
    size_t scratch_size;
    attn__watched scores; /* [n_batch, H, n_ctx], while a watcher wants to see them */
    attn__watched heads;  /* [2, n_batch, H, C], likewise: inputs and results, see >>watch */
};

/* The activations in the order of the pass, except those of ln_final: name here, name for programs,
 * array of the rows (see attn__rows_at), axes, 1 if in a block, 1 if on request. Do not reorder:
 * attn__done_rows compares points, and attn__normalize expects .pre and .post after the scale. */
#define ATTN__ACTIVATIONS(X)                                                                       \
    X(EMBED, "hook_embed", RESID, POSITIONS, 0, 0)                                                 \
    X(POS_EMBED, "hook_pos_embed", ADDED, POSITIONS, 0, 0)                                         \
    X(LN_FINAL_SCALE, "ln_final.hook_scale", SCALE, POSITIONS, 0, 0)                               \
    X(LN_FINAL_PRE, "ln_final.hook_normalized.pre", NORMED, POSITIONS, 0, 0)                       \
    X(LN_FINAL_POST, "ln_final.hook_normalized.post", NORMED, POSITIONS, 0, 0)                     \
    X(RESID_PRE, "hook_resid_pre", RESID, POSITIONS, 1, 0)                                         \
    X(LN1_SCALE, "ln1.hook_scale", SCALE, POSITIONS, 1, 0)                                         \
    X(LN1_PRE, "ln1.hook_normalized.pre", NORMED, POSITIONS, 1, 0)                                 \
    X(LN1_POST, "ln1.hook_normalized.post", NORMED, POSITIONS, 1, 0)                               \
    X(ATTN_IN, "hook_attn_in", PER_HEAD, HEADS, 1, 1)                                              \
    X(Q_INPUT, "hook_q_input", PER_HEAD, HEADS, 1, 1)                                              \
    X(K_INPUT, "hook_k_input", PER_HEAD, HEADS, 1, 1)                                              \
    X(V_INPUT, "hook_v_input", PER_HEAD, HEADS, 1, 1)                                              \
    X(Q, "attn.hook_q", QKV, HEADS, 1, 0)                                                          \
    X(K, "attn.hook_k", QKV, HEADS, 1, 0)                                                          \
    X(V, "attn.hook_v", QKV, HEADS, 1, 0)                                                          \
    X(SCORES, "attn.hook_attn_scores", SCORES, KEYS, 1, 0)                                         \
    X(PATTERN, "attn.hook_pattern", SCORES, KEYS, 1, 0)                                            \
    X(Z, "attn.hook_z", Z, HEADS, 1, 0)                                                            \
    X(RESULT, "attn.hook_result", PER_HEAD, HEADS, 1, 1)                                           \
    X(ATTN_OUT, "hook_attn_out", ADDED, POSITIONS, 1, 0)                                           \
    X(RESID_MID, "hook_resid_mid", RESID, POSITIONS, 1, 0)                                         \
    X(MLP_IN, "hook_mlp_in", RESID, POSITIONS, 1, 1)                                               \
    X(LN2_SCALE, "ln2.hook_scale", SCALE, POSITIONS, 1, 0)                                         \
    X(LN2_PRE, "ln2.hook_normalized.pre", NORMED, POSITIONS, 1, 0)                                 \
    X(LN2_POST, "ln2.hook_normalized.post", NORMED, POSITIONS, 1, 0)                               \
    X(MLP_PRE, "mlp.hook_pre", MLP, POSITIONS, 1, 0)                                               \
    X(MLP_POST, "mlp.hook_post", MLP, POSITIONS, 1, 0)                                             \
    X(MLP_OUT, "hook_mlp_out", ADDED, POSITIONS, 1, 0)                                             \
    X(RESID_POST, "hook_resid_post", RESID, POSITIONS, 1, 0)
#define ATTN__LIST_POINT(id, name, rows, axes, in_block, on_request) ATTN__POINT_##id,
enum { ATTN__ACTIVATIONS(ATTN__LIST_POINT) ATTN__N_POINTS };

/* One pass over some layers, for the next rows of every item. */
typedef struct attn__pass {
    const attn_model *model;
    const attn__kernels *kernels;
    attn_workspace *ws;          /* the activations of the pass */
    const attn_feed_item *items; /* the rows of an item: its session's first_row and n_rows */
    size_t n_items, n_rows;
    size_t first_layer, end_layer; /* a stop that the caller asks for lowers end_layer */
    const volatile int *stop;      /* the caller's, see attn_ctx */
    int watched;                   /* 1: a session has a watcher */
    int stopped;                   /* a callback asked for it, or freed a session of the pass */
} attn__pass;

/* The steps, in the order of the pass. A worker (me) takes its share of the rows, columns or heads.
 * Some steps have barriers inside. With few rows, a worker reads only what it wrote since the last
 * barrier, so it keeps its share of the outputs. With many rows, a worker that is free takes the
 * next task, so that a slow one does fewer. */

/* do workers take their tasks when they are free? (in an unwatched pass of many rows) */
static int attn__is_dynamic(const attn__worker *me, const attn__pass *p);
/* is there a layer i to run? (one more at most, once the caller has asked to stop) */
static int attn__goes_on(attn__worker *me, attn__pass *p, size_t i);
/* resid = W_E[token] + W_pos[position], or the stream that the items give */
static void attn__embed(attn__worker *me, attn__pass *p);
/* returns (in - mean) / sqrt(variance + eps) * w + b of all rows; `point` is its first hook */
static attn__rows attn__normalize(attn__worker *me, attn__pass *p, attn__rows in, const float *w,
                                  const float *b, int point);
/* out = in · w + b */
static void attn__project(attn__worker *me, attn__pass *p, attn__rows out, attn__rows in,
                          const attn__panels *w, const float *b);
/* k, v -> the sessions' caches */
static void attn__store_kv(attn__worker *me, attn__pass *p);
/* in the last layer: drops rows whose logits, later activations and resid_out are not wanted */
static void attn__drop_rows(attn__worker *me, attn__pass *p);
/* z = softmax(q · kᵀ / √d, causal) · v */
static void attn__attend(attn__worker *me, attn__pass *p);
/* to = to + added */
static void attn__add_to_resid(attn__worker *me, attn__pass *p, attn__rows to, attn__rows added);
/* rows = act_fn(rows), the model's activation function: GELU in GPT-2 */
static void attn__apply_act_fn(attn__worker *me, attn__pass *p, attn__rows rows);
/* resid -> the items that asked for it */
static void attn__copy_resid(attn__worker *me, attn__pass *p);
/* logits = normed · W_U + b_U */
static void attn__make_logits(attn__worker *me, attn__pass *p, attn__rows normed);
/* Shows an activation to its watchers. Without watchers this costs one comparison. (Steps show what
 * they make inside, such as scores.) */
static void attn__visit(attn__worker *me, attn__pass *p, int point);
/* Waits until all workers have arrived. */
static void attn__barrier(attn__worker *me);

static void attn__forward(attn__worker *me, void *pass)
{
    attn__pass *p = (attn__pass *)pass;
    const attn_model *m = p->model;
    attn_workspace *ws = p->ws; /* attn__drop_rows changes the number of its rows */
    attn__rows normed;          /* [R, C] */

    me->layer = ATTN_NO_LAYER;
    me->is_dynamic = attn__is_dynamic(me, p);
    attn__embed(me, p); /* resid [R, C] */
    attn__barrier(me);

    for (size_t i = p->first_layer; attn__goes_on(me, p, i); i++) {
        const attn__layer *l = &m->layers[i];
        me->layer = i;
        attn__visit(me, p, ATTN__POINT_RESID_PRE);

        /* resid_mid = resid_pre + attention(layernorm1(resid_pre)) */
        normed = attn__normalize(me, p, ws->resid, l->ln1_w, l->ln1_b, ATTN__POINT_LN1_SCALE);
        attn__project(me, p, ws->qkv, normed, &l->w_qkv, l->b_qkv); /* qkv [R, 3C] */
        attn__visit(me, p, ATTN__POINT_Q);
        attn__visit(me, p, ATTN__POINT_K);
        attn__visit(me, p, ATTN__POINT_V);
        attn__barrier(me);
        attn__store_kv(me, p);
        if (i + 1 == m->config.n_layer)
            attn__drop_rows(me, p); /* to the rows that are wanted */
        attn__attend(me, p);        /* z [R, H, d] */
        attn__visit(me, p, ATTN__POINT_Z);
        attn__barrier(me);
        attn__project(me, p, ws->added, ws->z, &l->w_o, l->b_o); /* attn_out [R, C] */
        attn__visit(me, p, ATTN__POINT_ATTN_OUT);
        attn__add_to_resid(me, p, ws->resid, ws->added);
        attn__barrier(me);
        attn__visit(me, p, ATTN__POINT_RESID_MID);

        /* resid_post = resid_mid + act_fn(layernorm2(resid_mid) · W_in + b_in) · W_out + b_out */
        normed = attn__normalize(me, p, ws->resid, l->ln2_w, l->ln2_b, ATTN__POINT_LN2_SCALE);
        attn__project(me, p, ws->mlp, normed, &l->w_in, l->b_in); /* mlp [R, F] */
        attn__visit(me, p, ATTN__POINT_MLP_PRE);
        attn__apply_act_fn(me, p, ws->mlp);
        attn__visit(me, p, ATTN__POINT_MLP_POST);
        attn__barrier(me);
        attn__project(me, p, ws->added, ws->mlp, &l->w_out, l->b_out); /* mlp_out [R, C] */
        attn__visit(me, p, ATTN__POINT_MLP_OUT);
        attn__add_to_resid(me, p, ws->resid, ws->added);
        attn__barrier(me);
        attn__visit(me, p, ATTN__POINT_RESID_POST);
    }

    me->layer = ATTN_NO_LAYER;
    attn__copy_resid(me, p);
    if (p->end_layer < m->config.n_layer)
        return;

    /* logits [rows that want them, V] = layernorm_final(resid) · W_U + b_U */
    normed = attn__normalize(me, p, ws->resid, m->ln_f_w, m->ln_f_b, ATTN__POINT_LN_FINAL_SCALE);
    if (!p->stopped)
        attn__make_logits(me, p, normed);
}

/* >>platform (tests: threads) ===================================================================
 * The differences between compilers and systems, settled once. */

/* (clang has a macro for -ffast-math and one for -ffinite-math-only, but none for its other parts:
 * attn_isa finds those at run time.) */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||     \
    defined(__NO_SIGNED_ZEROS__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error "attn.h keeps its promises by exact rounding: build without -ffast-math or a part of it"
#endif

#include <errno.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#endif

/* FLT_EVAL_METHOD says in which type the compiler computes. 0 and 16 both compute float in float;
 * gcc has 16 for processors with AVX512-FP16, where it computes _Float16 in _Float16. */
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16
#error "attn.h needs floats computed as floats: -fexcess-precision=fast; or -msse2 -mfpmath=sse"
#endif

#ifdef ATTN_STATIC
#define ATTN__DEF ATTN_API
#else
#define ATTN__DEF
#endif

/* For a function that is called seldom, or that only calls others. gcc compiles it for size, and so
 * the static functions that only such functions call. attn.h then compiles 10 % faster. */
#if defined(__GNUC__) && !defined(__clang__)
#define ATTN__COMPACT __attribute__((__cold__))
#else
#define ATTN__COMPACT
#endif
#define ATTN__COLD ATTN__COMPACT ATTN__DEF /* for a public function */

#if defined(__GNUC__) /* and clang */
#define ATTN__INLINE static inline __attribute__((__always_inline__))
#define ATTN__APART  static __attribute__((__noinline__))
#elif defined(_MSC_VER)
#define ATTN__INLINE static __forceinline
#define ATTN__APART  static
#else
#define ATTN__INLINE static inline
#define ATTN__APART  static
#endif

/* Sanitizers skip the kernels unless ATTN_SANITIZE_KERNELS is defined. Checked, the unrolled loops
 * take minutes to compile. (gcc before version 12 cannot inline a function that is checked, such as
 * an intrinsic, into one that is not.) */
#if !defined(ATTN_SANITIZE_KERNELS) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12))
#define ATTN__UNCHECKED __attribute__((__no_sanitize__("address", "undefined")))
#else
#define ATTN__UNCHECKED
#endif

#if defined(__clang__)
#define ATTN__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define ATTN__UNROLL _Pragma("GCC unroll 32")
#else
#define ATTN__UNROLL
#endif

/* clang compiles functions between ATTN__SMALL and ATTN__SMALL_END for size, which takes half the
 * time. Their speed does not matter. gcc has ATTN__COMPACT instead. */
#if defined(__clang__)
#define ATTN__SMALL                                                                                \
    _Pragma("clang attribute push(__attribute__((__minsize__)), apply_to = function)")
#define ATTN__SMALL_END _Pragma("clang attribute pop")
#else
#define ATTN__SMALL
#define ATTN__SMALL_END
#endif

/* Hints only: any address will do. */
#if defined(__GNUC__)
#define ATTN__PREFETCH(p)       __builtin_prefetch(p, 0, 2)
#define ATTN__PREFETCH_WRITE(p) __builtin_prefetch(p, 1, 3)
#else
#define ATTN__PREFETCH(p)       ((void)(p))
#define ATTN__PREFETCH_WRITE(p) ((void)(p))
#endif

/* Tells AddressSanitizer which bytes of a block belong to no array: the padding for alignment, and
 * the gaps between arrays in one block. It then reports an access to them. */
#if defined(__has_feature)
#define ATTN__HAS_FEATURE(feature) __has_feature(feature)
#else
#define ATTN__HAS_FEATURE(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || ATTN__HAS_FEATURE(address_sanitizer)
#ifdef __cplusplus
extern "C" {
#endif
void __asan_poison_memory_region(const volatile void *start, size_t size);
#ifdef __cplusplus
}
#endif
#define ATTN__FORBID(start, size) __asan_poison_memory_region(start, size)
#define ATTN__GAP                 16 /* floats between the arrays of a block */
#else
#define ATTN__FORBID(start, size) ((void)(start), (void)(size))
#define ATTN__GAP                 0
#endif

/* A number that one thread writes while others read it, and a lock, which is held for a few
 * instructions. Compilers other than gcc and clang have locks on Windows only. */
#if defined(__GNUC__)
#define ATTN__LOAD(x)         __atomic_load_n(x, __ATOMIC_RELAXED)
#define ATTN__STORE(x, value) __atomic_store_n(x, value, __ATOMIC_RELAXED)
#define ATTN__SWAP(x, value)  __atomic_exchange_n(x, value, __ATOMIC_ACQ_REL)
#else
#define ATTN__LOAD(x)         (*(x))
#define ATTN__STORE(x, value) ((void)(*(x) = (value)))
#ifdef _WIN32
#define ATTN__SWAP(x, value) InterlockedExchange((volatile long *)(x), value)
#else
#define ATTN__SWAP(x, value) (*(x) = (value), 0)
#endif
#endif

#if defined(_WIN32)
#define ATTN__YIELD() SwitchToThread()
#elif defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#define ATTN__YIELD() sched_yield()
#if (defined(_OPENMP) || defined(ATTN_THREADS)) && defined(__GNUC__)
#include <pthread.h>
#include <sys/stat.h>
#define ATTN__PTHREADS
#endif
#else
#define ATTN__YIELD() ((void)0)
#endif

/* Workers are OpenMP's threads, or with ATTN_THREADS this file's own. gcc and clang have the atomic
 * operations of this file's barriers; other compilers use OpenMP's barriers. */
#if defined(ATTN_THREADS) && !defined(_OPENMP) && defined(__GNUC__) &&                             \
    (defined(_WIN32) || defined(ATTN__PTHREADS))
#define ATTN__CREWS
#define ATTN__WORTH_A_WORKER 3e6 /* multiply-adds of an operation that makes its threads */
#else
#define ATTN__WORTH_A_WORKER 1e5
#endif
#if defined(__GNUC__) && (defined(_OPENMP) || defined(ATTN__CREWS)) &&                             \
    (defined(_WIN32) || defined(ATTN__PTHREADS))
#define ATTN__TEAMS
#endif

static int attn__is_asked_to_stop(const volatile int *stop)
{
    return stop && ATTN__LOAD(stop);
}

static void attn__lock(int *lock) /* NOLINT(readability-non-const-parameter) */
{
    while (ATTN__SWAP(lock, 1))
        ATTN__YIELD();
}

static void attn__unlock(int *lock) /* NOLINT(readability-non-const-parameter) */
{
    (void)ATTN__SWAP(lock, 0);
}

#define ATTN__LLU(x) ((unsigned long long)(x))

ATTN__SMALL

/* >>inside (tests: gpt2 session) ================================================================
 * The types that several sections share, and the functions that are called above their
 * definition. */

/* A copy of the context's allocator, so that an object can be freed after its context is gone. */
typedef struct attn__allocator {
    attn_alloc_fn alloc;
    attn_free_fn free;
    void *user;
} attn__allocator;

/* Precedes every allocated block. */
typedef struct attn__allocation {
    struct attn__allocation *next, *previous; /* in the list of the context's tensors */
    void *base;                               /* the address that the allocator returned */
    attn__allocator allocator;
} attn__allocation;

/* The workers of a parallel region. */
enum { ATTN__MAX_THREADS = 256, ATTN__GROUP = 4 };

/* A count of workers that have arrived, and for each of four workers a count of its tasks that were
 * taken. Padded to 128 bytes: processors fetch cache lines in pairs. */
typedef struct attn__counts {
    int n_arrived;
    size_t taken[ATTN__GROUP];
    char apart[128 - (ATTN__GROUP + 1) * sizeof(size_t)];
} attn__counts;

#ifdef ATTN__PTHREADS
typedef pthread_t attn__thread;
typedef struct attn__condition {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
} attn__condition;
#define ATTN__CONDITION PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER
#define ATTN__HOLD(c)   pthread_mutex_lock(&(c)->mutex)
#define ATTN__LET_GO(c) pthread_mutex_unlock(&(c)->mutex)
#define ATTN__AWAIT(c)  pthread_cond_wait(&(c)->cond, &(c)->mutex)
#define ATTN__SIGNAL(c) pthread_cond_broadcast(&(c)->cond)
#define ATTN__UNMAKE(c) (pthread_mutex_destroy(&(c)->mutex), pthread_cond_destroy(&(c)->cond))
#elif defined(ATTN__TEAMS)
typedef HANDLE attn__thread;
typedef struct attn__condition {
    SRWLOCK mutex;
    CONDITION_VARIABLE cond;
} attn__condition;
#define ATTN__CONDITION SRWLOCK_INIT, CONDITION_VARIABLE_INIT
#define ATTN__HOLD(c)   AcquireSRWLockExclusive(&(c)->mutex)
#define ATTN__LET_GO(c) ReleaseSRWLockExclusive(&(c)->mutex)
#define ATTN__AWAIT(c)  SleepConditionVariableSRW(&(c)->cond, &(c)->mutex, INFINITE, 0)
#define ATTN__SIGNAL(c) WakeAllConditionVariable(&(c)->cond)
#define ATTN__UNMAKE(c) ((void)(c))
#else
typedef int attn__condition;
#endif

typedef struct attn__team {
    int arrived;                /* how many have arrived at the barrier, of two workers */
    int phase;                  /* the number of barriers that all have passed */
    unsigned waited;            /* microseconds that workers waited for late ones */
    int n_done;                 /* tasks of workers that take them when they are free */
    int left;                   /* how many have passed the last barrier */
    int n_asleep;               /* how many sleep until `condition` is signalled */
    unsigned processor;         /* of the first worker */
    attn__condition *condition; /* see attn__sleep */
    attn__counts *apart;        /* of all workers, then of each four; NULL: one worker */
} attn__team;

/* The threads of a workspace beside the caller's. They begin with the first pass for more than one
 * worker, and end with the workspace. Each waits until it is called, does its part of a pass, and
 * waits again. A pass of fewer workers does not wake the others. */
#ifdef ATTN__CREWS
typedef struct attn__member {
    struct attn__crew *crew;
    int id;
    int called; /* 1: there is something to do */
    attn__team idle;
    attn__condition condition; /* for sleeping between calls */
    attn__thread thread;
} attn__member;

typedef struct attn__crew {
    long process; /* that made the threads; 0: none has */
    int n_made;
    int is_short; /* 1: the system refused a thread */
    int count;    /* workers of this pass, with the caller's thread */
    int ends;     /* 1: the threads end */
    void (*body)(attn__worker *, void *);
    void *arg;
    attn__team team;
    attn__condition condition;
    attn__counts apart[1 + ATTN__MAX_THREADS / ATTN__GROUP];
    attn__member members[ATTN__MAX_THREADS - 1];
} attn__crew;
#else
typedef struct attn__crew {
    int none;
} attn__crew;
#endif

/* What a matmul does with the old contents of `out`: overwrite them, continue their chain with more
 * inputs, or add the new sums to them. */
typedef enum attn__start { ATTN__FRESH = 0, ATTN__RESUME, ATTN__SUM } attn__start;

/* Inputs of a chain (rule 1 of the same bits). */
#define ATTN__CHAIN ((size_t)256)

/* out [rows, n_out] = in [rows, n_in] · w + bias; strides in elements. */
typedef struct attn__matmul_job {
    const float *in;
    ptrdiff_t in_stride, in_step; /* from row to row, from k to k */
    attn__panels w;
    const float *bias; /* [n_out] or NULL */
    float *out;
    size_t out_stride;
    size_t rows;
    attn__start start;
    int is_packed; /* 1: `pack` has the rows, if all inputs fit there */
} attn__matmul_job;

/* q8 and q4: inputs k that share a scale, and inputs k that share a line of scales. */
#define ATTN__PER_SCALE  ((size_t)32)
#define ATTN__PER_SCALES ((size_t)64)

/* Most tasks of a worker in one loop, and most loops: see attn__take. */
#define ATTN__MOST_TASKS ((size_t)1 << 4 * sizeof(size_t))

/* Most floats that a worker packs at a time: 504 KiB stay in most second-level caches. */
#define ATTN__PACK       129024

typedef enum attn__binary { ATTN__ADD, ATTN__SUB, ATTN__MUL, ATTN__DIV } attn__binary;

typedef struct attn__tiling attn__tiling; /* rows times panels of one instruction set: see >>cpu */

struct attn__kernels {
    const char *names[3]; /* for attn_isa, by attn__flaw */
    attn_isa_kind kind;
    const attn__tiling *tilings[2]; /* for weights in f32 and f16; for weights in q8 and q4 */
    /* Functions on one row of n elements; out may be the input. They are ATTN__FN(binary),
     * ATTN__FN(softmax) and so on in >>kernels. */
    void (*binary)(attn__binary op, float *out, const float *a, const float *b, size_t n);
    void (*narrow)(uint16_t *out, const float *x, size_t n); /* to f16, as attn_f16_from_f32 */
    void (*scale)(float *out, const float *x, float factor, size_t n);
    void (*scale_mask)(float *out, const float *x, float factor, const float *mask, size_t n);
    void (*exp)(float *out, const float *x, size_t n);
    void (*activate)(float *out, const float *x, size_t n, attn_mlp_act kind);
    float (*sum)(const float *x, size_t n);
    float (*square_distance)(const float *x, float center, size_t n); /* sum of (x - center)^2 */
    void (*normalize)(float *out, const float *x, float mean, float scale, size_t n);
    void (*affine)(float *out, const float *x, const float *w, const float *b, size_t n);
    void (*softmax)(float *out, const float *x, size_t n);
    float (*log_sum_exp)(const float *x, size_t n, float *largest); /* of x - *largest */
    float (*largest_or_nan)(const float *x, size_t n);
    uint64_t (*digest)(const unsigned char *block, size_t size);
};

/* The first fields of a set of kernels: what attn_isa says, see attn__flaw, and the kind. */
#define ATTN__NAMED(name, kind)                                                                    \
    {name, name " (inexact: built with unsafe math)", name " (inexact: denormals are flushed)"},   \
        kind

#define ATTN__QUERIES ((size_t)32) /* most queries whose scores are computed together */

/* The attention of one head for a block of queries, in attn_attention and in the model. Keys and
 * values are panels, as in a session's cache. */
typedef struct attn__head {
    const float *q; /* [rows, d] */
    ptrdiff_t q_stride, q_step;
    size_t rows;
    attn__panels keys;   /* n_in = d, n_out = number of keys */
    attn__panels values; /* n_in = number of keys, n_out = dv */
    float scale;
    const float *mask; /* [rows, keys] to add, or NULL */
    size_t mask_stride;
    int causal;
    size_t first; /* if causal: row i sees keys 0 .. first + i */
    float *z;     /* [rows, dv] */
    size_t z_stride;
} attn__head;

/* "[2, 3, 4]", for messages. */
typedef struct attn__text {
    char text[96];
} attn__text;

/* Where an operation writes: *out if it was made for the operation, or is dense f32 and overwrites
 * no input; else a dense temporary that attn__out_end copies to *out. */
typedef struct attn__result {
    attn_tensor dense;
    int is_new;       /* *out was made here; attn__out_end frees it if the operation failed */
    int is_temporary; /* `dense` is not *out */
} attn__result;

/* The file format's checksum works on blocks of this many bytes. */
#define ATTN__IO_BLOCK ((size_t)1 << 20)

/* The best number of threads depends on the size of a pass, on the processor, on where the weights
 * lie (cache or memory), and most on other programs: beside busy programs two threads may be fifty
 * times slower than one, since each waits at every barrier until the other gets a core. No formula
 * predicts this, so the library measures it, for each size of pass. It times passes in windows of
 * 20 milliseconds and at least two passes. Now and then a trial runs some passes on half or twice
 * as many threads. If the trial does more work in a second, its number becomes the number. After a
 * failed trial, the next one follows when passes have taken fifty times as long as the failed one
 * cost; or ten times as long, if workers are late, since another program may have started. */
typedef struct attn__tuner {
    int n_threads;        /* the number; 0 before the first pass */
    int trial_threads;    /* the number of the running trial; 0: none runs */
    int fewer;            /* the next trial has fewer threads */
    int n_passes;         /* in this window or trial */
    double speed;         /* work in a second of the last two windows; 0: not known */
    double work;          /* in this window or trial, by the passes that count */
    double seconds;       /* that these passes took */
    double waited;        /* seconds that a worker waited in them, on average */
    double last_work;     /* in the last window */
    double last_seconds;  /* of the last window */
    double last_waited;   /* in the last window */
    double cost;          /* seconds of the trial, less what n_threads would have taken */
    double next_trial_in; /* seconds of passes until the next trial */
    double late_trial_in; /* seconds of passes until lateness may start a trial */
    double retry_pause;   /* least seconds after a failed trial: 0.2 to 4, doubles each time */
} attn__tuner;

/* A tuner for passes of 2^18 to 2^19 multiply-adds, one for 2^19 to 2^20, and so on. */
#define ATTN__PASS_SIZES 16
typedef struct attn__tuners {
    attn__tuner of_size[ATTN__PASS_SIZES];
    attn__crew crew;
} attn__tuners;

/* Sets of points: a bit for each. */
#define ATTN__POINT(point) ((uint32_t)1 << (point))
#define ATTN__SEES_SCORES  (ATTN__POINT(ATTN__POINT_SCORES) | ATTN__POINT(ATTN__POINT_PATTERN))
#define ATTN__SEES_INPUTS                                                                          \
    (ATTN__POINT(ATTN__POINT_ATTN_IN) | ATTN__POINT(ATTN__POINT_Q_INPUT) |                         \
     ATTN__POINT(ATTN__POINT_K_INPUT) | ATTN__POINT(ATTN__POINT_V_INPUT))
#define ATTN__SEES_HEADS (ATTN__SEES_INPUTS | ATTN__POINT(ATTN__POINT_RESULT))

/* ---- watchers: all that the engine knows of callbacks, records and edits ---- */

/* The positions and layers that a feed runs, as its watchers are told. */
typedef struct attn__span {
    size_t position, n_tokens;
    size_t first_layer, end_layer;
    int embedded; /* 1: it begins with the embedding */
} attn__span;

/* Rows of one session that are complete at one point of the pass, for watchers. */
typedef struct attn__shown {
    int point;
    size_t layer;
    attn_session *session;
    size_t first;      /* position of the first row */
    attn_tensor value; /* [T, C], [T, H, d], [H, T, Tk], [T, F] or [T, 1] */
} attn__shown;

/* One kind of watcher. A function may be NULL if it has nothing to do. */
typedef struct attn__watcher_kind {
    int is_serial; /* 1: one worker calls `rows` for all rows; 0: each worker, for its share */
    /* Before a feed: can it take this span? */
    attn_status (*accepts)(attn_ctx *ctx, const attn__watcher *w, const attn__span *span);
    /* At the start of a feed that all watchers accept. */
    void (*begin)(attn__watcher *w, const attn__span *span);
    /* At a point. Returns 1 to stop the feed. */
    int (*rows)(const attn__worker *me, attn__watcher *w, const attn__shown *shown);
    /* At the end of a feed that was not stopped. */
    void (*end)(attn__watcher *w, const attn__span *span);
    /* The session now has this length. */
    void (*truncate)(attn__watcher *w, size_t length);
    void (*free)(attn__watcher *w);
} attn__watcher_kind;

struct attn__watcher { /* the first member of every kind's own struct */
    attn__watcher *next;
    const attn__watcher_kind *kind;
    attn_session *session;
    attn_hook_id id;
    int is_removed;   /* during a feed: it sees nothing more, and is freed after the feed */
    uint32_t *points; /* [1 + n_layer]: a bit for each activation that it wants to see */
};

/* What a session is in the middle of: a pass, or a callback of attn_generate. */
typedef enum attn__call { ATTN__IDLE, ATTN__FEEDING, ATTN__WRITING } attn__call;

struct attn_session {
    const attn_model *model;
    attn_workspace *workspace;
    size_t capacity, length;
    attn_token *tokens; /* [capacity] */
    size_t *n_cached;   /* [n_layer]: how many positions the cache of a layer has */
    int has_logits;
    float *logits;  /* [n_vocab] */
    float *pending; /* [n_vocab]: of a feed that may still be stopped */
    void *memory;   /* the block that holds these arrays */

    attn_dtype cache;
    unsigned char *keys, *values;    /* [n_layer, n_head, keys_size], [.., values_size] */
    size_t keys_size, values_size;   /* bytes of one head */
    size_t keys_panel, values_panel; /* bytes of one panel */

    attn__watcher *watchers; /* in the order in which they were made */
    attn_hook_id n_watchers; /* how many were ever made: the latest id */
    attn__call running;      /* a callback must not change the session meanwhile */
    size_t n_calls;          /* calls of the library that still use the session */
    size_t n_changes;        /* how often its tokens, or their keys and values, were changed */
    int is_freed;            /* 1: by a callback; the last of those calls frees its memory */

    size_t first_row, n_rows; /* the rows of the running pass that are this session's */
    size_t fed;               /* tokens of the running call before these rows */
    size_t fed_before;        /* tokens of the running call before the running pass */
    size_t end_layer;         /* of the running call */
};

/* "blocks.3.attn.hook_q" */
typedef struct attn__hook_name {
    char text[64];
} attn__hook_name;

/* In a pass of few rows every worker computes each whole LayerNorm by itself, which takes less time
 * than a barrier. */
#define ATTN__FEW_ROWS ((size_t)8)

/* The scratch memory of one worker, in floats: packed rows for the kernels (ATTN__PACK), a
 * LayerNorm of its own, the last chain of attn__head_weigh, and a buffer for a block of scores or
 * of logits. */
typedef struct attn__scratchpad {
    float *pack, *normed, *last_chain, *buffer;
    size_t buffer_size;
} attn__scratchpad;

/* Rows [row0, row1) and columns [col0, col1) of a matrix: what one worker computes. The columns are
 * whole panels, except the last. */
typedef struct attn__area {
    size_t row0, row1, col0, col1;
} attn__area;

/* A task of one worker: one head, and a block of queries of one session from `row` on. */
typedef void (*attn__block_fn)(const attn__worker *me, attn__pass *p, const attn_session *of,
                               size_t head, size_t row, attn__scratchpad s);

static int attn__wants(const attn_session *s, uint32_t points, size_t layer);
static int attn__anyone_wants(const attn__pass *p, uint32_t points, size_t layer);
static void attn__release(attn_workspace *ws, const attn__watcher *w);
static attn_status attn__claim_all(attn_ctx *ctx, attn_workspace *ws, const attn_session *s);
static void attn__sweep_watchers(attn_session *s);
static void attn__visit_watched(attn__worker *me, attn__pass *p, int point);
static void attn__attend_watched(attn__worker *me, attn__pass *p);
static const attn__kernels *attn__kernels_for(const attn_ctx *ctx);
static attn_status attn__need_kernels(attn_ctx *ctx, const attn__kernels **kernels);
static attn__matmul_job attn__job(float *out, size_t out_stride, const float *in,
                                  ptrdiff_t in_stride, attn__panels w, size_t rows);
static size_t attn__pack_size(attn_dtype dtype, size_t rows, size_t n_in);
static float attn__panels_get(const attn__panels *w, size_t k, size_t n);
static void attn__pack_panels(float *panels, const attn_tensor *w, size_t panel0, size_t panel1);
static void attn__shared_matmul(attn__worker *me, const attn__kernels *kernels,
                                attn__matmul_job job, float *pack);
static int attn__next_task(attn__worker *me, size_t n, size_t *task);
static void attn__matmul_panels(const attn__kernels *kernels, const attn__matmul_job *job,
                                size_t row0, size_t row1, size_t panel0, size_t panel1,
                                float *pack);
static void attn__head_scores(const attn__kernels *kernels, const attn__head *h, float *scores,
                              size_t stride, float *pack);
static void attn__head_weigh(const attn__kernels *kernels, const attn__head *h,
                             const float *pattern, size_t stride, float *last_chain, float *pack);
static double attn__parallel(attn__crew *crew, int n_threads, void (*body)(attn__worker *, void *),
                             void *arg);
#ifdef ATTN__CREWS
static void attn__dismiss(attn__crew *crew);
#else
#define attn__dismiss(crew) ((void)(crew))
#endif
static void attn__parallel_tuned(attn__tuners *tuners, int given, int most, double work,
                                 int n_barriers, void (*body)(attn__worker *, void *), void *arg);

ATTN__SMALL_END

/* ---- shares of the work, and panels ---- */

static size_t attn__round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Part `id` of `count` of n items: [*first, *last). Parts differ by one item at most. */
static void attn__part(size_t id, size_t count, size_t n, size_t *first, size_t *last)
{
    *first = (size_t)((uint64_t)n * id / count);
    *last = (size_t)((uint64_t)n * (id + 1) / count);
}

/* This worker's share of n items. */
static void attn__share(const attn__worker *me, size_t n, size_t *first, size_t *last)
{
    attn__part((size_t)me->id, (size_t)me->count, n, first, last);
}

/* Area `id` of the `count` areas of a product [n_rows, n_cols]. Rows are divided into parts of 32
 * or more, because each part reads all weights. With fewer rows, reading the weights takes longer
 * than multiplying by them. The areas of one part divide the panels. Results do not depend on the
 * division. */
static attn__area attn__area_at(size_t id, size_t count, size_t n_rows, size_t n_cols)
{
    size_t row_parts = count;
    attn__area b;
    while (row_parts > 1 && (count % row_parts != 0 || n_rows / row_parts < 32))
        row_parts--;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is a worker */
    attn__part(id % row_parts, row_parts, n_rows, &b.row0, &b.row1);
    attn__part(id / row_parts, count / row_parts, (n_cols + 15) / 16, &b.col0, &b.col1);
    b.col0 *= 16;
    b.col1 = b.col1 * 16 < n_cols ? b.col1 * 16 : n_cols;
    return b;
}

/* The area of a worker. */
static attn__area attn__area_of(const attn__worker *me, size_t n_rows, size_t n_cols)
{
    return attn__area_at((size_t)me->id, (size_t)me->count, n_rows, n_cols);
}

/* How many of n queries, the first at position `first`, are computed together: those up to the next
 * multiple of ATTN__QUERIES. */
static size_t attn__query_block(size_t first, size_t n)
{
    const size_t most = ATTN__QUERIES - first % ATTN__QUERIES;
    return n < most ? n : most;
}

/* How weights of one type lie in a panel. The weights of n_k inputs fill whole lines: `bytes` bytes
 * in all. A quantised weight is its scale times an integer. The file holds this integer plus
 * `zero`, in `bits` bits. */
typedef struct attn__weight_type {
    size_t n_k, bytes;
    int bits, zero;
} attn__weight_type;

static const attn__weight_type *attn__weight_type_of(attn_dtype dtype)
{
    static const attn__weight_type types[] = {
        {1, 64, 0, 0},      /* ATTN_F32 */
        {2, 64, 0, 0},      /* ATTN_F16 */
        {1, 0, 0, 0},       /* ATTN_I32: no weights */
        {64, 1088, 8, 128}, /* ATTN_Q8: a line of scales, 16 lines of 4 inputs */
        {64, 576, 4, 8},    /* ATTN_Q4: a line of scales, 8 lines of 8 inputs */
    };
    return types + ((unsigned)dtype < sizeof types / sizeof *types ? dtype : ATTN_I32);
}

/* Byte of a panel where the lines of input k begin. For q8 and q4 k must be a multiple of 64. */
static size_t attn__line_of(attn_dtype dtype, size_t k)
{
    const attn__weight_type *t = attn__weight_type_of(dtype);
    return k / t->n_k * t->bytes + k % t->n_k * (t->bytes / t->n_k);
}

static int attn__is_quantized(attn_dtype dtype)
{
    return attn__weight_type_of(dtype)->bits > 0;
}

static attn__panels attn__panels_at(const void *data, attn_dtype dtype, size_t n_in, size_t n_out)
{
    attn__panels p = {data, dtype, n_in, n_out, 0};
    p.stride = attn__line_of(dtype, attn__round_up(n_in, attn__weight_type_of(dtype)->n_k));
    return p;
}

/* >>memory (tests: memory faults) ===============================================================
 * Contexts, errors and allocation. Every block starts at a multiple of 64 bytes, the size of a
 * line. The context has a list of the blocks of its tensors, so that one call can free them. */

/* (Some function names are in parentheses where they are defined: for clang-analyzer, a macro has
 * the same name.) */
ATTN__COLD attn_status(attn_fail)(attn_ctx *ctx, attn_status status, const char *format, ...)
{
    char text[sizeof ctx->message]; /* the arguments may include ctx->message */
    unsigned char *at, previous = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(ctx->message, text, sizeof text);
    ctx->status = status;
    /* A name from a file may hold commands for a terminal. So control characters become '?', also
     * U+0080 to U+009F, in UTF-8 or as single bytes. */
    for (at = (unsigned char *)ctx->message; *at; previous = *at++)
        if (*at < ' ' || *at == 127 || (previous < 0x80 && *at >= 0x80 && *at < 0xa0))
            *at = '?';
        else if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0)
            at[0] = at[1] = '?';
    return status;
}

/* "0.5", for messages: with a point, even if the program's locale has a comma. */
static const char *attn__show_number(char text[32], double value)
{
    snprintf(text, 32, "%g", value);
    char *at = text + strspn(text, "+-0123456789einfa");
    if (*at) {
        *at++ = '.';
        memmove(at, at + strcspn(at, "0123456789e"), strlen(at + strcspn(at, "0123456789e")) + 1);
    }
    return text;
}

/* Fails with "op: before name after", because a call has not got an object. Usually an earlier call
 * failed to make it, so the message ends with the message of that call. */
static attn_status attn__fail_missing(attn_ctx *ctx, const char *op, const char *before,
                                      const char *name, const char *after)
{
    static const char link[] = "; before that: ";
    const char *earlier = ctx->status == ATTN_OK ? "" : ctx->message;
    const char *first = strstr(earlier, link);
    return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: %s%s%s%s%s", op, before, name, after,
                     *earlier ? link : "", first ? first + sizeof link - 1 : earlier);
}

/* Fails if `pointer` is NULL. */
static attn_status(attn__need_given)(attn_ctx *ctx, const char *op, const char *name,
                                     const void *pointer)
{
    return pointer ? ATTN_OK : attn__fail_missing(ctx, op, "no ", name, " given");
}

/* Sets *place, where a call will put a new object, to NULL. Fails if `place` is NULL. */
static attn_status attn__need_place(attn_ctx *ctx, const char *op, const char *name, void *place)
{
    if (place)
        memset(place, 0, sizeof(void *));
    return attn__need_given(ctx, op, name, place);
}

/* Returns a failure with this status and message if the condition holds. */
#define ATTN__REFUSE_IF(ctx, condition, ...)                                                       \
    do {                                                                                           \
        if (condition)                                                                             \
            return attn_fail(ctx, __VA_ARGS__);                                                    \
    } while (0)

/* Fails if a reserved word is set: the caller was written for a later version, or did not zero the
 * struct. */
static attn_status(attn__need_zero_words)(attn_ctx *ctx, const char *type, const uint64_t *reserved,
                                          size_t n)
{
    if (reserved)
        for (size_t i = 0; i < n; i++)
            ATTN__REFUSE_IF(ctx, reserved[i], ATTN_E_ARGUMENT,
                            "%s.reserved is not zero: zero the struct (ATTN_ZERO) before setting "
                            "its fields; this is attn.h %d.%d.%d",
                            type, ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    return ATTN_OK;
}
/* The same for the struct x, which may be NULL. */
#define ATTN__NEED_ZEROS(ctx, type, x)                                                             \
    attn__need_zero_words(ctx, #type, (x) ? (x)->reserved : NULL,                                  \
                          sizeof(((type *)0)->reserved) / sizeof(uint64_t))

/* If `call` does not succeed, the enclosing function returns its status. Use it only while there is
 * nothing to free. */
#define ATTN__TRY(call)                                                                            \
    do {                                                                                           \
        const attn_status tried_ = (call);                                                         \
        if (tried_ != ATTN_OK)                                                                     \
            return tried_;                                                                         \
    } while (0)
/* The same for a pointer that attn_alloc returned. */
#define ATTN__TRY_MEMORY(pointer)                                                                  \
    do {                                                                                           \
        if (!(pointer))                                                                            \
            return ATTN_E_MEMORY;                                                                  \
    } while (0)

#ifdef __clang_analyzer__ /* it does not look into these functions */
#define attn__need_given(ctx, op, name, pointer)                                                   \
    ((pointer) ? ATTN_OK : (attn__need_given(ctx, op, name, NULL), (ctx)->status = ATTN_E_ARGUMENT))
#define attn__need_zero_words(ctx, type, reserved, n)                                              \
    (attn__need_zero_words(ctx, type, reserved, n) ? (ctx)->status = ATTN_E_ARGUMENT : ATTN_OK)
#endif

static int attn__mul_overflows(size_t a, size_t b, size_t *product)
{
    *product = a * b;
    return a != 0 && b > SIZE_MAX / a;
}

/* The bytes of a matrix [n_in, n_out] in panels; 0 if they are too many, or if dtype has no
 * panels. */
static size_t attn__panels_size(attn_dtype dtype, size_t n_in, size_t n_out)
{
    size_t size;
    if (attn__weight_type_of(dtype)->bytes == 0 || n_in > SIZE_MAX / 64 - ATTN__PER_SCALES ||
        n_out > SIZE_MAX - 15 ||
        attn__mul_overflows(attn__panels_at(NULL, dtype, n_in, n_out).stride, (n_out + 15) / 16,
                            &size))
        return 0;
    return size;
}

/* Floats from one row of activations to the next: not a multiple of 1 KiB, or many rows would share
 * few sets of a first-level cache. */
static size_t attn__stride(size_t width)
{
    const size_t n = attn__round_up(width, 16);
    return n % 256 == 0 ? n + 16 : n;
}

ATTN__DEF void *attn_alloc(attn_ctx *ctx, size_t n, size_t size, const char *what)
{
    const size_t extra = sizeof(attn__allocation) + 64;
    const size_t whole = size > 0 && n > SIZE_MAX / size ? SIZE_MAX : n * size;
    const attn__allocator allocator = {ctx->alloc, ctx->free, ctx->user};
    if (ATTN__NEED_ZEROS(ctx, attn_ctx, ctx) != ATTN_OK) { /* before ctx->alloc is called */
        ctx->status = ATTN_E_MEMORY;
        return NULL;
    }
    unsigned char *base = whole > SIZE_MAX - extra ? NULL
                          : ctx->alloc ? (unsigned char *)ctx->alloc(whole + extra, ctx->user)
                                       : (unsigned char *)calloc(1, whole + extra);
    if (!base) {
        attn_fail(ctx, ATTN_E_MEMORY, "no memory for %s (%zu bytes)", what ? what : "data", whole);
        return NULL;
    }
    if (ctx->alloc) /* calloc has zeroed its memory, often without touching it */
        memset(base, 0, whole + extra);
    unsigned char *start = base + sizeof(attn__allocation);
    start += (64 - (uintptr_t)start % 64) % 64;
    attn__allocation *block = (attn__allocation *)(void *)(start - sizeof(attn__allocation));
    block->next = block->previous = NULL;
    block->base = base;
    block->allocator = allocator;
    if (!ctx->alloc) /* a custom allocator may reuse the block without unpoisoning it */
        ATTN__FORBID(start + whole, (size_t)(base + extra - start));
    return start;
}

static attn__allocation *attn__block_of(void *start)
{
    return (attn__allocation *)(void *)((unsigned char *)start - sizeof(attn__allocation));
}

#define ATTN__NEW(ctx, type, n, what) ((type *)attn_alloc(ctx, n, sizeof(type), what))

ATTN__DEF void attn_free(void *block)
{
    if (!block)
        return;
    attn__allocation *allocation = attn__block_of(block);
    attn__allocator allocator = allocation->allocator;
    if (allocator.free)
        (allocator.free)(allocation->base, allocator.user); /* parentheses: `free` may be a macro */
    else if (!allocator.alloc)
        free(allocation->base); /* this also unpoisons it */
}

/* The context's list of blocks. The list in a copy of another context is that context's, and may
 * have been freed: the copy begins its own. */
static attn__allocation **attn__list_of(attn_ctx *ctx)
{
    if (ctx->owner != ctx)
        ctx->blocks = NULL;
    ctx->owner = ctx;
    return &ctx->blocks;
}

/* Adds a block to the list, for attn_ctx_free. */
static void attn__list_add(attn_ctx *ctx, void *start)
{
    attn__allocation *block = attn__block_of(start);
    block->next = *attn__list_of(ctx);
    if (block->next)
        block->next->previous = block;
    ctx->blocks = block;
}

/* Takes a block out of the list and frees it. */
static void attn__list_free(attn_ctx *ctx, void *start)
{
    attn__allocation *block = attn__block_of(start);
    if (!block->previous && *attn__list_of(ctx) != block)
        return; /* it is the first block of another context, which will free it */
    if (block->previous)
        block->previous->next = block->next;
    else
        ctx->blocks = block->next;
    if (block->next)
        block->next->previous = block->previous;
    attn_free(start);
}

ATTN__COLD void attn_ctx_free(attn_ctx *ctx)
{
    while (*attn__list_of(ctx)) {
        attn__allocation *block = ctx->blocks;
        ctx->blocks = block->next;
        attn_free((unsigned char *)block + sizeof(attn__allocation));
    }
}

ATTN__DEF int attn_version(void)
{
    return ATTN_VERSION;
}

ATTN__COLD const char *attn_status_name(attn_status status)
{
    /* clang-format off */
    static const char *const names[] = {
        "ATTN_OK", "ATTN_E_ARGUMENT", "ATTN_E_SHAPE", "ATTN_E_MEMORY", "ATTN_E_SPACE", "ATTN_E_IO",
        "ATTN_E_FORMAT", "ATTN_E_VERSION", "ATTN_E_CHECKSUM", "ATTN_E_TOKEN", "ATTN_E_CONTEXT",
        "ATTN_E_TOKENIZER", "ATTN_E_UNSUPPORTED", "ATTN_E_NAME", "ATTN_STOPPED"};
    /* clang-format on */
    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "unknown status";
}

/* >>numbers (tests: fma kernels) ================================================================
 * Scalar functions that give the same bits everywhere. */

/* Little-endian numbers, read byte by byte: byte order and alignment of the host do not matter. */
static uint32_t attn__u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t attn__u64(const unsigned char *p)
{
    return (uint64_t)attn__u32(p) | (uint64_t)attn__u32(p + 4) << 32;
}

static int attn__host_is_big_endian(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 0;
}

/* One step of the checksum. */
ATTN__INLINE uint64_t attn__mix(uint64_t sum, uint64_t next)
{
    sum = (sum ^ next) * 0x9E3779B97F4A7C15u;
    return sum ^ (sum >> 32);
}

/* a * b + c rounded once. Without an FMA instruction, libm's fmaf may be slow or wrong. The product
 * of two floats is exact in double. The sum is first rounded to double, to odd: if it is inexact,
 * its last bit becomes 1. So the second rounding, to float, never takes it for a tie or for exact
 * (Boldo & Melquiond 2008). Some compilers have the instruction and do not define FP_FAST_FMAF, so
 * processors are listed here. */
#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA) ||                     \
    defined(__aarch64__) || defined(__s390x__) || defined(__powerpc64__) || defined(__riscv_flen)
#define ATTN__FUSED
ATTN__INLINE float attn__fmaf(float a, float b, float c)
{
    return fmaf(a, b, c);
}
#else
ATTN__APART float attn__fmaf(float a, float b, float c)
{
    const double product = (double)a * (double)b, sum = product + (double)c, part = sum - product;
    const double lost = (product - (sum - part)) + ((double)c - part); /* exact */
    uint64_t bits;
    double odd;
    memcpy(&bits, &sum, 8);
    /* bits + 1 is one step away from zero. For infinity and NaN `lost` is NaN: no comparison
     * holds. */
    if ((lost < 0 || lost > 0) && (bits & 1) == 0)
        bits = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
    memcpy(&odd, &bits, 8);
    return (float)odd;
}
#endif

/* log(x) = n log(2) + log(1 + f), 1 + f = x / 2^n in [sqrt(1/2), sqrt(2)). Below FLT_MIN it is
 * -inf. It is called once a row, so it is scalar. tests/makers/design_polynomials.py finds the
 * coefficients. */
static float attn__log(float x)
{
    uint32_t bits;
    float n, f, p = 0.0673199221f;
    memcpy(&bits, &x, 4);
    bits += 0x004afb0du; /* 0x3f800000 - 0x3f3504f3, the bits of sqrt(1/2) */
    uint32_t n_bits = (bits >> 23) | 0x4b000000u;
    uint32_t f_bits = (bits & 0x007fffffu) + 0x3f3504f3u;
    memcpy(&n, &n_bits, 4);
    memcpy(&f, &f_bits, 4);
    n = n - 8388735.0f; /* 2^23 + 127 */
    f = f - 1.0f;
    float square = f * f;
    p = attn__fmaf(p, f, -0.116601132f);
    p = attn__fmaf(p, f, 0.118863232f);
    p = attn__fmaf(p, f, -0.124082781f);
    p = attn__fmaf(p, f, 0.142202303f);
    p = attn__fmaf(p, f, -0.166678518f);
    p = attn__fmaf(p, f, 0.20002073f);
    p = attn__fmaf(p, f, -0.250000119f);
    p = attn__fmaf(p, f, 0.333333135f);
    p = attn__fmaf(p, f, -0.5f);
    p = attn__fmaf(n, 1.42860677e-06f, p * square);
    float head = n * 0.693145752f; /* exact */
    float y = head + f;
    float lost = f - (y - head); /* the part that the sum rounded away; exact */
    y = y + (lost + p);
    y = x <= FLT_MAX ? y : x + INFINITY;
    return x < FLT_MIN ? -INFINITY : y;
}

/* ---- a binary heap of uint64_t, the smallest on top ---- */

/* Moves heap[at] down until no child is smaller. */
static void attn__heap_sift(uint64_t *heap, size_t n, size_t at)
{
    const uint64_t moved = heap[at];
    size_t child;
    for (; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[child] >= moved)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void attn__heapify(uint64_t *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        attn__heap_sift(heap, n, i);
}

static void attn__heap_push(uint64_t *heap, size_t *n, uint64_t value)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > value; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = value;
}

/* Takes the smallest off, and puts it behind the heap: at heap[*n]. */
static uint64_t attn__heap_pop(uint64_t *heap, size_t *n)
{
    const uint64_t top = heap[0];
    heap[0] = heap[--*n];
    heap[*n] = top;
    attn__heap_sift(heap, *n, 0);
    return top;
}

ATTN__SMALL

/* >>tensors (tests: tensors) ====================================================================
 * Views are made by arithmetic on strides. A view that cannot be made has its reason in `error`. */

ATTN__INLINE attn_shape attn__dims(int ndim, size_t d0, size_t d1, size_t d2, size_t d3)
{
    const attn_shape s = {ndim, {d0, d1, d2, d3}};
    return s;
}
ATTN__DEF attn_shape attn_shape1(size_t d0)
{
    return attn__dims(1, d0, 1, 1, 1);
}
ATTN__DEF attn_shape attn_shape2(size_t d0, size_t d1)
{
    return attn__dims(2, d0, d1, 1, 1);
}
ATTN__DEF attn_shape attn_shape3(size_t d0, size_t d1, size_t d2)
{
    return attn__dims(3, d0, d1, d2, 1);
}
ATTN__DEF attn_shape attn_shape4(size_t d0, size_t d1, size_t d2, size_t d3)
{
    return attn__dims(4, d0, d1, d2, d3);
}

ATTN__INLINE attn_shape attn__shape_of(const attn_tensor *x)
{
    return attn__dims(x->ndim, x->shape[0], x->shape[1], x->shape[2], x->shape[3]);
}

ATTN__INLINE int attn__has_shape(const attn_tensor *x, attn_shape shape)
{
    int same = x->ndim == shape.ndim;
    for (int i = 0; i < shape.ndim && same; i++)
        same = x->shape[i] == shape.dim[i];
    return same;
}

static attn_tensor attn__no_tensor(const char *why)
{
    attn_tensor x = ATTN_ZERO;
    x.error = why;
    return x;
}

/* Writes a shape for a message. */
static ATTN__COMPACT attn__text attn__show(attn_shape s)
{
    attn__text t = {"["};
    int at = 1;
    for (int i = 0; i < s.ndim; i++)
        at += snprintf(t.text + at, sizeof t.text - (size_t)at, "%s%zu", i ? ", " : "", s.dim[i]);
    t.text[at] = ']';
    return t;
}

static size_t attn__dtype_size(attn_dtype dtype)
{
    return dtype == ATTN_F16 ? 2 : 4;
}

ATTN__DEF size_t attn_count(attn_tensor x)
{
    size_t n = x.ndim > 0;
    for (int i = 0; i < x.ndim && i < 4; i++)
        n *= x.shape[i];
    return n;
}

/* Are the elements in row-major order, without gaps? */
static int attn__is_dense(attn_tensor x)
{
    size_t expected = 1;
    for (int i = x.ndim > 4 ? -1 : x.ndim - 1; i >= 0; i--) {
        if (x.shape[i] != 1 && x.stride[i] != (ptrdiff_t)expected)
            return attn_count(x) == 0;
        expected *= x.shape[i];
    }
    return 1;
}

/* Gives the bytes of a dense tensor of this shape. Returns 0 if the shape or dtype is not
 * possible. */
static int attn__measure(attn_shape s, attn_dtype dtype, size_t *bytes)
{
    size_t n = attn__dtype_size(dtype);
    int empty = 0;
    if (s.ndim < 1 || s.ndim > 4 || (dtype != ATTN_F32 && dtype != ATTN_F16 && dtype != ATTN_I32))
        return 0;
    /* The other dimensions of an empty tensor must be possible too. */
    for (int i = 0; i < s.ndim; i++) {
        if (s.dim[i] == 0)
            empty = 1;
        else if (attn__mul_overflows(n, s.dim[i], &n) || n > PTRDIFF_MAX)
            return 0;
    }
    *bytes = empty ? 0 : n;
    return 1;
}

ATTN__COLD attn_tensor attn_borrow(const void *data, attn_dtype dtype, attn_shape shape)
{
    attn_tensor x = ATTN_ZERO;
    ptrdiff_t stride = 1;
    size_t bytes;
    if (!attn__measure(shape, dtype, &bytes))
        return attn__no_tensor(
            "attn_borrow: 1 to 4 dimensions that fit in memory, and a type of f32, f16 or i32, are "
            "needed");
    if (!data && bytes > 0)
        return attn__no_tensor("attn_borrow: no data was given (did an allocation fail?)");
    x.data = (void *)(uintptr_t)data; /* an operation writes to its output only */
    x.dtype = dtype;
    x.ndim = shape.ndim;
    for (int i = 3; i >= 0; i--) {
        x.shape[i] = i < shape.ndim ? shape.dim[i] : 1;
        x.stride[i] = i < shape.ndim ? stride : 0;
        stride *= (ptrdiff_t)(x.shape[i] ? x.shape[i] : 1);
    }
    return x;
}

ATTN__COLD attn_status attn_zeros(attn_ctx *ctx, attn_tensor *out, attn_dtype dtype,
                                  attn_shape shape)
{
    size_t bytes;
    ATTN__TRY(attn__need_given(ctx, "attn_zeros", "place for the tensor", out));
    ATTN__REFUSE_IF(
        ctx, !attn__measure(shape, dtype, &bytes), ATTN_E_SHAPE,
        "attn_zeros: a tensor of %d dimensions%s%s and type %d cannot be made; expected 1 "
        "to 4 dimensions that fit in memory, and ATTN_F32, ATTN_F16 or ATTN_I32",
        shape.ndim, shape.ndim >= 1 && shape.ndim <= 4 ? " " : "",
        shape.ndim >= 1 && shape.ndim <= 4 ? attn__show(shape).text : "", (int)dtype);
    void *data = attn_alloc(ctx, 1, bytes, "a tensor");
    ATTN__TRY_MEMORY(data);
    attn__list_add(ctx, data);
    *out = attn_borrow(data, dtype, shape);
    out->owned = data;
    return ATTN_OK;
}

ATTN__COLD void attn_tensor_free(attn_ctx *ctx, attn_tensor *tensor)
{
    if (tensor && tensor->owned)
        attn__list_free(ctx, tensor->owned);
    if (tensor)
        *tensor = attn__no_tensor(NULL);
}

static int attn__dim(const attn_tensor *x, int dim)
{
    if (dim < 0)
        dim += x->ndim;
    return dim >= 0 && dim < x->ndim && x->ndim <= 4 ? dim : -1;
}

ATTN__COLD attn_tensor attn_transpose(attn_tensor x, int dim_a, int dim_b)
{
    const int a = attn__dim(&x, dim_a), b = attn__dim(&x, dim_b);
    if (x.ndim == 0)
        return x;
    if (a < 0 || b < 0)
        return attn__no_tensor("attn_transpose: the tensor has no such dimension");
    size_t n = x.shape[a];
    x.shape[a] = x.shape[b];
    x.shape[b] = n;
    ptrdiff_t s = x.stride[a];
    x.stride[a] = x.stride[b];
    x.stride[b] = s;
    x.owned = NULL;
    return x;
}

/* Moves a view's first element. The data of an empty tensor may be NULL, and stays so. */
static void attn__advance(attn_tensor *x, ptrdiff_t elements)
{
    if (x->data)
        x->data = (char *)x->data + elements * (ptrdiff_t)attn__dtype_size(x->dtype);
}

ATTN__COLD attn_tensor attn_slice(attn_tensor x, int dim, size_t start, size_t count)
{
    const int d = attn__dim(&x, dim);
    if (x.ndim == 0)
        return x;
    if (d < 0)
        return attn__no_tensor("attn_slice: the tensor has no such dimension");
    if (start > x.shape[d] || count > x.shape[d] - start)
        return attn__no_tensor("attn_slice: start + count is beyond the end of the dimension");
    if (count > 0)
        attn__advance(&x, (ptrdiff_t)start * x.stride[d]);
    x.shape[d] = count;
    x.owned = NULL;
    return x;
}

ATTN__COLD attn_tensor attn_select(attn_tensor x, int dim, size_t index)
{
    int d = attn__dim(&x, dim);
    if (x.ndim == 0)
        return x;
    if (d < 0 || x.ndim == 1)
        return attn__no_tensor(
            d < 0 ? "attn_select: the tensor has no such dimension"
                  : "attn_select: a tensor keeps its last dimension; use attn_slice");
    if (index >= x.shape[d])
        return attn__no_tensor("attn_select: the index is beyond the end of the dimension");
    attn__advance(&x, (ptrdiff_t)index * x.stride[d]);
    for (; d + 1 < x.ndim; d++) {
        x.shape[d] = x.shape[d + 1];
        x.stride[d] = x.stride[d + 1];
    }
    x.shape[d] = 1;
    x.stride[d] = 0;
    x.ndim--;
    x.owned = NULL;
    return x;
}

ATTN__COLD attn_tensor attn_reshape(attn_tensor x, attn_shape shape)
{
    int from = x.ndim - 1, to = shape.ndim - 1;
    size_t bytes;
    if (x.ndim == 0)
        return x;
    if ((unsigned)x.ndim > 4)
        return attn__no_tensor("attn_reshape: a tensor has 1 to 4 dimensions");
    if (!attn__measure(shape, x.dtype, &bytes) ||
        bytes != attn_count(x) * attn__dtype_size(x.dtype))
        return attn__no_tensor("attn_reshape: the new shape has another number of elements");
    attn_tensor y = attn_borrow(x.data, x.dtype, shape);
    if (bytes == 0)
        return y;
    /* From the last dimension to the first: regroup dimensions that are contiguous in x. */
    while (to >= 0) {
        size_t n_from = 1, n_to = 1;
        while (from > 0 && x.shape[from] == 1)
            from--;
        ptrdiff_t stride = x.stride[from];
        n_from = x.shape[from];
        while (to >= 0 && (n_to < n_from || shape.dim[to] == 1)) {
            while (n_to * shape.dim[to] > n_from) { /* join with the dimension before */
                ptrdiff_t expected = x.stride[from] * (ptrdiff_t)x.shape[from];
                do
                    from--;
                while (from > 0 && x.shape[from] == 1);
                if (x.stride[from] != expected)
                    return attn__no_tensor("attn_reshape: these strides cannot be joined without a "
                                           "copy; attn_copy makes a dense tensor");
                n_from *= x.shape[from];
            }
            y.stride[to] = stride * (ptrdiff_t)n_to;
            n_to *= shape.dim[to--];
        }
        from--; /* here n_to == n_from: x and y have the same number of elements left */
    }
    return y;
}

static ptrdiff_t attn__offset(const attn_tensor *x, size_t i0, size_t i1, size_t i2, size_t i3)
{
    return (ptrdiff_t)i0 * x->stride[0] + (ptrdiff_t)i1 * x->stride[1] +
           (ptrdiff_t)i2 * x->stride[2] + (ptrdiff_t)i3 * x->stride[3];
}

static float attn__load_element(const void *data, attn_dtype dtype, ptrdiff_t at)
{
    if (dtype == ATTN_F16)
        return attn_f32_from_f16(((const uint16_t *)data)[at]);
    return dtype == ATTN_I32 ? (float)((const int32_t *)data)[at] : ((const float *)data)[at];
}

ATTN__INLINE void attn__store_element(void *data, attn_dtype dtype, ptrdiff_t at, float value)
{
    if (dtype == ATTN_F32)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = attn_f16_from_f32(value);
}

/* One element; NaN if there is none. Indices beyond ndim must be 0. */
static float attn__element(const attn_tensor *x, int ndim, size_t i0, size_t i1, size_t i2,
                           size_t i3)
{
    if (x->ndim != ndim || ndim == 0 || !x->data || i0 >= x->shape[0] || i1 >= x->shape[1] ||
        i2 >= x->shape[2] || i3 >= x->shape[3])
        return NAN;
    return attn__load_element(x->data, x->dtype, attn__offset(x, i0, i1, i2, i3));
}

ATTN__DEF float attn_get1(attn_tensor x, size_t i0)
{
    return attn__element(&x, 1, i0, 0, 0, 0);
}
ATTN__DEF float attn_get2(attn_tensor x, size_t i0, size_t i1)
{
    return attn__element(&x, 2, i0, i1, 0, 0);
}
ATTN__DEF float attn_get3(attn_tensor x, size_t i0, size_t i1, size_t i2)
{
    return attn__element(&x, 3, i0, i1, i2, 0);
}
ATTN__DEF float attn_get4(attn_tensor x, size_t i0, size_t i1, size_t i2, size_t i3)
{
    return attn__element(&x, 4, i0, i1, i2, i3);
}

/* ---- checks that every operation makes ---- */

/* Fails with "attn_matmul: a has shape [2, 3] and b [4]; " and `expected`. `name` includes the
 * verb: "a has", "logits have". If y is NULL, the message has only the shape of x. */
static ATTN__COMPACT attn_status attn__misfit(attn_ctx *ctx, const char *op, const char *name,
                                              const attn_tensor *x, const char *other,
                                              const attn_tensor *y, const char *expected)
{
    const attn__text first = attn__show(attn__shape_of(x));
    const attn__text second = attn__show(attn__shape_of(y ? y : x));
    return attn_fail(ctx, ATTN_E_SHAPE, "%s: %s shape %s%s%s%s%s; %s", op, name, first.text,
                     y ? " and " : "", y ? other : "", y ? " " : "", y ? second.text : "",
                     expected);
}

/* Fails if x is no tensor. */
static attn_status attn__need_any(attn_ctx *ctx, const char *op, const char *name,
                                  const attn_tensor *x)
{
    size_t n = 1;
    ATTN__REFUSE_IF(
        ctx, (unsigned)x->ndim > 4 || (x->ndim && (unsigned)x->dtype > ATTN_I32), ATTN_E_ARGUMENT,
        "%s: %s has %d dimensions and data type %d; expected 1 to 4, and ATTN_F32, _F16, "
        "_I32 or, for attn_linear's w, _PANELS (was the struct zeroed?)",
        op, name, x->ndim, (int)x->dtype);
    for (int i = 0; i < x->ndim; i++)
        ATTN__REFUSE_IF(ctx, attn__mul_overflows(n, x->shape[i], &n), ATTN_E_ARGUMENT,
                        "%s: %s has shape %s, more elements than memory can hold", op, name,
                        attn__show(attn__shape_of(x)).text);
    ATTN__REFUSE_IF(ctx, x->ndim && !x->data && n, ATTN_E_ARGUMENT,
                    "%s: %s has shape %s and no data", op, name,
                    attn__show(attn__shape_of(x)).text);
    for (int i = x->ndim; x->ndim && i < 4; i++)
        ATTN__REFUSE_IF(ctx, x->shape[i] != 1, ATTN_E_ARGUMENT,
                        "%s: %s has %d dimensions, and shape[%d] is %zu; expected 1 (attn_borrow "
                        "makes a tensor of your numbers)",
                        op, name, x->ndim, i, x->shape[i]);
    if (x->ndim > 0)
        return ATTN_OK;
    if (!x->error)
        return attn__fail_missing(ctx, op, "", name, " is no tensor (attn_zeros makes one)");
    return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: %s is no tensor: %s", op, name, x->error);
}

/* The same; and x must hold floats. */
ATTN__APART attn_status attn__need(attn_ctx *ctx, const char *op, const char *name,
                                   const attn_tensor *x)
{
    ATTN__TRY(attn__need_any(ctx, op, name, x));
    ATTN__REFUSE_IF(ctx, x->dtype == ATTN_I32, ATTN_E_ARGUMENT,
                    "%s: %s holds integers; expected ATTN_F32 or ATTN_F16 (attn_copy converts)", op,
                    name);
    return ATTN_OK;
}

/* Fails unless all ids are below n_vocab. `name` is the noun for one of them: "token". */
static attn_status attn__need_ids(attn_ctx *ctx, const char *op, const char *name,
                                  const attn_token *ids, ptrdiff_t step, size_t n, size_t n_vocab)
{
    for (size_t i = 0; i < n; i++) {
        const attn_token id = ids[(ptrdiff_t)i * step];
        ATTN__REFUSE_IF(ctx, id < 0 || (size_t)id >= n_vocab, ATTN_E_TOKEN,
                        "%s: %s %zu is %ld; expected 0 to %zu", op, name, i, (long)id, n_vocab - 1);
    }
    return ATTN_OK;
}

/* If *out is no tensor, makes it one of this type and shape. Else checks that it has the shape, and
 * a type to which the numbers can be converted. */
static attn_status attn__need_out(attn_ctx *ctx, const char *op, attn_tensor *out, attn_dtype dtype,
                                  attn_shape shape)
{
    ATTN__TRY(attn__need_given(ctx, op, "place for the result", out));
    if (out->ndim == 0 && !out->error)
        return attn_zeros(ctx, out, dtype, shape);
    ATTN__TRY(attn__need_any(ctx, op, "out", out));
    ATTN__REFUSE_IF(ctx, !attn__has_shape(out, shape), ATTN_E_SHAPE,
                    "%s: the result has shape %s, but out has shape %s", op, attn__show(shape).text,
                    attn__show(attn__shape_of(out)).text);
    ATTN__REFUSE_IF(ctx, out->dtype == ATTN_I32 && dtype != ATTN_I32, ATTN_E_ARGUMENT,
                    "%s: the result holds floats and out integers; expected out of ATTN_F32 "
                    "or ATTN_F16",
                    op);
    return ATTN_OK;
}

/* The addresses that the elements of a tensor span: [*from, *until), empty if it has no
 * elements. */
static void attn__extent(const attn_tensor *x, uintptr_t *from, uintptr_t *until)
{
    const size_t size = attn__dtype_size(x->dtype);
    *from = *until = (uintptr_t)x->data;
    for (int i = attn_count(*x) > 0 ? x->ndim : 0; i-- > 0;) {
        const size_t steps = (x->shape[i] - 1) * size;
        if (x->stride[i] < 0)
            *from -= steps * (size_t)-x->stride[i];
        else
            *until += steps * (size_t)x->stride[i];
    }
    *until += attn_count(*x) > 0 ? size : 0;
}

/* Does writing to `out` overwrite an input that is still needed? With in_place, the same dense view
 * is no such input: each of its rows is read before it is overwritten. */
static int attn__overlaps(const attn_tensor *out, const attn_tensor *x, int in_place)
{
    uintptr_t from, until, x_from, x_until;
    if (in_place && x->data == out->data && x->dtype == out->dtype && attn__is_dense(*x) &&
        attn__is_dense(*out) && attn__has_shape(x, attn__shape_of(out)))
        return 0;
    attn__extent(out, &from, &until);
    attn__extent(x, &x_from, &x_until);
    return from < x_until && x_from < until;
}

/* Prepares the output of an operation. `inputs`: NULL, or a list, ended by NULL, of the tensors
 * that are read while the result is written. in_place: see attn__overlaps. */
static ATTN__COMPACT attn_status attn__out_begin(attn_ctx *ctx, const char *op, attn_tensor *out,
                                                 attn_shape shape, int in_place,
                                                 const attn_tensor *const *inputs,
                                                 attn__result *result)
{
    memset(result, 0, sizeof *result);
    result->is_new = out && out->ndim == 0;
    ATTN__TRY(attn__need_out(ctx, op, out, ATTN_F32, shape));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): attn__need_out refuses NULL */
    result->is_temporary = out->dtype != ATTN_F32 || !attn__is_dense(*out);
    if (inputs)
        for (; *inputs; inputs++)
            result->is_temporary |= attn__overlaps(out, *inputs, in_place);
    if (result->is_temporary)
        return attn_zeros(ctx, &result->dense, ATTN_F32, shape);
    result->dense = *out;
    return ATTN_OK;
}

static ATTN__COMPACT attn_status attn__out_end(attn_ctx *ctx, attn_tensor *out,
                                               attn__result *result, attn_status status)
{
    if (result->is_temporary) {
        if (status == ATTN_OK)
            status = attn_copy(ctx, out, result->dense);
        attn_tensor_free(ctx, &result->dense);
    } else if (status != ATTN_OK && result->is_new) {
        attn_tensor_free(ctx, out);
    }
    return status;
}

/* ---- rows of a tensor: its last dimension ---- */

static size_t attn__n_rows(const attn_tensor *x)
{
    size_t n = 1;
    for (int i = 0; i + 1 < x->ndim; i++)
        n *= x->shape[i];
    return n;
}

static size_t attn__row_length(const attn_tensor *x)
{
    return x->shape[x->ndim - 1];
}

/* Offset of row `index` of x broadcast to the shape `like`. */
static ptrdiff_t attn__row_offset(const attn_tensor *x, const attn_shape *like, size_t index)
{
    ptrdiff_t offset = 0;
    for (int i = like->ndim - 2; i >= 0; i--) {
        const int d = i - (like->ndim - x->ndim);
        const size_t n = like->dim[i];
        /* NOLINTBEGIN(clang-analyzer-core.DivideZero): there is a row, so no dimension is 0 */
        if (d >= 0 && x->shape[d] != 1)
            offset += (ptrdiff_t)(index % n) * x->stride[d];
        index /= n;
        /* NOLINTEND(clang-analyzer-core.DivideZero) */
    }
    return offset;
}

/* Row `index` of x broadcast to `like`, as n floats: in place, or copied to `buffer`. */
static const float *attn__row(const attn_tensor *x, const attn_shape *like, size_t index, size_t n,
                              float *buffer)
{
    const ptrdiff_t at = attn__row_offset(x, like, index);
    const ptrdiff_t step = attn__row_length(x) == 1 ? 0 : x->stride[x->ndim - 1];
    if (x->dtype == ATTN_F32 && step == 1)
        return (const float *)x->data + at;
    for (size_t i = 0; i < n; i++)
        buffer[i] = attn__load_element(x->data, x->dtype, at + (ptrdiff_t)i * step);
    return buffer;
}

/* Two row buffers, from the context. */
static float *attn__row_buffers(attn_ctx *ctx, size_t n)
{
    return ATTN__NEW(ctx, float, n < SIZE_MAX / 8 - 16 ? (n + 16) * 2 : SIZE_MAX, "two rows");
}

ATTN__DEF attn_status attn_copy(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    const attn_shape shape = attn__shape_of(&x);
    attn_tensor apart = ATTN_ZERO;
    attn_status status;
    ATTN__TRY(attn__need_any(ctx, "attn_copy", "x", &x));
    ATTN__TRY(attn__need_out(ctx, "attn_copy", out, x.dtype, shape));
    if (attn_count(x) == 0)
        return ATTN_OK;
    if (attn__overlaps(out, &x, 1)) {
        if ((status = attn_copy(ctx, &apart, x)) == ATTN_OK)
            status = attn_copy(ctx, out, apart);
        attn_tensor_free(ctx, &apart);
        return status;
    }
    size_t n = attn__row_length(&x);
    for (size_t row = 0; row < attn__n_rows(&x); row++) {
        const ptrdiff_t from = attn__row_offset(&x, &shape, row);
        const ptrdiff_t to = attn__row_offset(out, &shape, row);
        const ptrdiff_t from_step = x.stride[x.ndim - 1], to_step = out->stride[out->ndim - 1];
        if (from_step == 1 && to_step == 1 && x.dtype == ATTN_F32 && out->dtype == ATTN_F32) {
            memmove((float *)out->data + to, (const float *)x.data + from, n * sizeof(float));
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            const ptrdiff_t source = from + (ptrdiff_t)i * from_step;
            const ptrdiff_t target = to + (ptrdiff_t)i * to_step;
            if (out->dtype == ATTN_I32 && x.dtype == ATTN_I32)
                ((int32_t *)out->data)[target] = ((const int32_t *)x.data)[source];
            else
                attn__store_element(out->data, out->dtype, target,
                                    attn__load_element(x.data, x.dtype, source));
        }
    }
    return ATTN_OK;
}

/* IEEE 754 binary16: 1 sign bit, 5 of exponent, 10 of fraction. */
ATTN__DEF float attn_f32_from_f16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, fraction = half & 0x3ff;
    const uint32_t exponent = half >> 10 & 31;
    uint32_t bits;
    float value;
    if (exponent == 0) { /* a multiple of 2^-24: small enough to convert exactly */
        value = (float)fraction * (1.0f / 16777216.0f);
        memcpy(&bits, &value, 4);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0);
    } else {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}

/* Rounded to nearest even. Below 2^-14 an f16 is a multiple of 2^-24: adding 0.5 rounds to it. */
ATTN__DEF uint16_t attn_f16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) /* NaN becomes a quiet NaN */
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000u) {
        memcpy(&value, &bits, 4);
        value = value + 0.5f;
        memcpy(&bits, &value, 4);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    bits += 0xfff + (bits >> 13 & 1); /* a carry out of the fraction increases the exponent */
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

/* >>steps (tests: gpt2) =========================================================================
 * The steps of the forward pass, in its order. */

static attn__scratchpad attn__scratchpad_of(const attn__worker *me, const attn__pass *p)
{
    attn__scratchpad s;
    s.pack = p->ws->scratch + (size_t)me->id * p->ws->scratch_size;
    s.normed = s.pack + ATTN__PACK;
    s.last_chain = s.normed + ATTN__FEW_ROWS * p->ws->normed.stride;
    s.buffer = s.last_chain + ATTN__QUERIES * attn__round_up(p->model->config.d_head, 16);
    s.buffer_size = p->ws->scratch_size - (size_t)(s.buffer - s.pack);
    return s;
}

/* out [n, n_out] = in [n, n_in] · w + bias */
static attn__matmul_job attn__job_of(attn__rows out, attn__rows in, attn__panels w,
                                     const float *bias)
{
    attn__matmul_job job = attn__job(out.data, out.stride, in.data, (ptrdiff_t)in.stride, w, in.n);
    job.bias = bias;
    return job;
}

static float *attn__row_at(attn__rows rows, size_t row)
{
    return rows.data + row * rows.stride;
}

static int attn__is_dynamic(const attn__worker *me, const attn__pass *p)
{
    return me->team->apart && !p->watched && p->n_rows > ATTN__FEW_ROWS &&
           p->n_rows + p->n_items < ATTN__MOST_TASKS / p->model->config.n_head;
}

/* The rows of the next task, [*first, *last) of n. If is_dynamic is 0, they are attn__share's, so
 * that the steps of some rows need no barriers between them. */
static int attn__next_rows_of(attn__worker *me, size_t n, size_t *first, size_t *last)
{
    const size_t n_parts = (size_t)me->count * (me->is_dynamic ? 8 : 1);
    size_t task;
    if (!attn__next_task(me, n_parts, &task))
        return 0;
    attn__part(task, n_parts, n, first, last);
    return 1;
}

/* Does the pass run layer i? All workers must agree. So one worker reads the caller's flag before
 * layer i, and ends the pass before layer i + 1: a later worker still runs layer i. Reading it is a
 * task, for which the barriers of layer i wait, and after them all see the new end. */
static int attn__goes_on(attn__worker *me, attn__pass *p, size_t i)
{
    size_t task;
    while (attn__next_task(me, 1, &task))
        if (attn__is_asked_to_stop(p->stop) && i + 1 < p->end_layer)
            ATTN__STORE(&p->end_layer, i + 1);
    return i < ATTN__LOAD(&p->end_layer) && !p->stopped;
}

/* resid = the caller's residual stream [n_tokens, C], in a pass that begins with one. */
static void attn__embed_given(const attn__worker *me, const attn__pass *p)
{
    const size_t width = p->model->config.d_model;
    size_t row, last;
    for (size_t i = 0; i < p->n_items; i++) {
        const attn_session *of = p->items[i].session;
        attn__share(me, of->n_rows, &row, &last);
        for (; row < last; row++)
            memcpy(attn__row_at(p->ws->resid, of->first_row + row),
                   p->items[i].layers.resid + (of->fed + row) * width, width * sizeof(float));
    }
}

/* resid [R, C] = W_E[token] + W_pos[position], or the residual stream that the caller gave. */
static void attn__embed(attn__worker *me, attn__pass *p)
{
    const attn__area b = attn__area_of(me, p->n_rows, p->model->config.d_model);
    const size_t width = p->model->config.d_model, n = b.col1 - b.col0;
    if (p->items[0].layers.resid) {
        attn__embed_given(me, p);
        return;
    }
    for (size_t i = 0; i < p->n_items; i++) {
        const attn_session *of = p->items[i].session;
        for (size_t row = 0; row < of->n_rows; row++) {
            const size_t at = of->first_row + row, position = of->length + of->fed + row;
            const size_t token = (size_t)of->tokens[position];
            if (at < b.row0 || at >= b.row1 || n == 0)
                continue;
            for (size_t k = b.col0; k < b.col1; k++)
                attn__row_at(p->ws->resid, at)[k] = attn__panels_get(&p->model->w_e, k, token);
            memcpy(attn__row_at(p->ws->added, at) + b.col0,
                   p->model->w_pos + position * width + b.col0, n * sizeof(float));
        }
    }
    attn__visit(me, p, ATTN__POINT_EMBED);
    attn__visit(me, p, ATTN__POINT_POS_EMBED);
    attn__add_to_resid(me, p, p->ws->resid, p->ws->added);
}

/* mean and scale of one row: scale = sqrt(variance + eps) */
static void attn__moments(const attn__kernels *kernels, const float *x, size_t n, float eps,
                          float *mean, float *scale)
{
    *mean = kernels->sum(x, n) / (float)n;
    *scale = sqrtf(kernels->square_distance(x, *mean, n) / (float)n + eps);
}

/* Returns (in - mean) / scale * w + b with scale = sqrt(variance + eps). It can be watched at three
 * points: at `point` the scale, at the next two the output before and after gain and bias. If there
 * are few rows and no watchers, every worker computes all of them, in its own memory. */
static attn__rows attn__normalize(attn__worker *me, attn__pass *p, attn__rows in, const float *w,
                                  const float *b, int point)
{
    const size_t width = p->model->config.d_model;
    const int each_all = in.n <= ATTN__FEW_ROWS && !p->watched;
    const attn__scratchpad s = attn__scratchpad_of(me, p);
    float *const mean = each_all ? s.buffer : p->ws->mean;
    float *const scale = each_all ? s.buffer + ATTN__FEW_ROWS : p->ws->scale;
    attn__rows out = p->ws->normed;
    int stage = p->watched ? 0 : 2, from = 0; /* a watcher looks after each of the three stages */
    if (each_all)
        out.data = s.normed;
    for (; stage < 3; from = ++stage) {
        size_t row = 0, last = each_all ? in.n : 0;
        while (each_all ? row < last : attn__next_rows_of(me, in.n, &row, &last))
            for (; row < last; row++) {
                float *const x = attn__row_at(in, row), *const y = attn__row_at(out, row);
                if (from == 0)
                    attn__moments(p->kernels, x, width, p->model->config.ln_eps, &mean[row],
                                  &scale[row]);
                if (from <= 1 && stage >= 1)
                    p->kernels->normalize(y, x, mean[row], scale[row], width);
                if (stage == 2)
                    p->kernels->affine(y, y, w, b, width);
            }
        attn__visit(me, p, point + stage);
    }
    if (!each_all)
        attn__barrier(me);
    return out;
}

/* out [R, n_out] = in [R, n_in] · w + b; b may be NULL. */
static void attn__project(attn__worker *me, attn__pass *p, attn__rows out, attn__rows in,
                          const attn__panels *w, const float *b)
{
    attn__shared_matmul(me, p->kernels, attn__job_of(out, in, *w, b),
                        attn__scratchpad_of(me, p).pack);
}

/* The address in the cache of dimension j of a key or value; head = layer * n_head + head of the
 * layer. 16 numbers after it lies the next dimension of a key, or the same dimension of the next
 * value. */
static void *attn__cached(const attn_session *s, attn_cache_part part, size_t head, size_t position,
                          size_t j)
{
    const size_t size = s->cache == ATTN_F32 ? 4 : 2;
    if (part == ATTN_CACHE_KEYS)
        return s->keys + head * s->keys_size + position / 16 * s->keys_panel +
               (j * 16 + position % 16) * size;
    return s->values + head * s->values_size + j / 16 * s->values_panel +
           (position * 16 + j % 16) * size;
}

/* Stores one key or value [d_head]. The numbers of a key lie 16 numbers apart, those of a value
 * side by side in each panel. */
static void attn__keep(const attn__kernels *kernels, const attn_session *s, attn_cache_part part,
                       size_t head, size_t position, const float *x)
{
    const size_t d = s->model->config.d_head, step = part == ATTN_CACHE_KEYS ? 16 : 1;
    uint16_t halves[16];
    size_t n;
    for (size_t j = 0; j < d; j += n) {
        void *const to = attn__cached(s, part, head, position, j);
        n = d - j < 16 ? d - j : 16;
        if (s->cache == ATTN_F16)
            kernels->narrow(halves, x + j, n);
        for (size_t k = 0; k < n; k++)
            if (s->cache == ATTN_F16)
                ((uint16_t *)to)[k * step] = halves[k];
            else
                ((float *)to)[k * step] = x[j + k];
    }
}

/* k, v [R, C] of the new rows -> the caches of their sessions. A worker takes whole heads, so that
 * two workers never write to the same line. In a pass of few rows each worker stores the keys and
 * values that it reads in attn__attend. */
static void attn__store_kv(attn__worker *me, attn__pass *p)
{
    const attn_config *c = &p->model->config;
    size_t task;
    while (attn__next_task(me, p->n_items * c->n_head, &task)) {
        const attn_session *of = p->items[task % p->n_items].session;
        const size_t head = task / p->n_items, index = me->layer * c->n_head + head;
        for (size_t row = 0; row < of->n_rows; row++) {
            const size_t position = of->length + of->fed + row;
            const float *k =
                attn__row_at(p->ws->qkv, of->first_row + row) + c->d_model + head * c->d_head;
            attn__keep(p->kernels, of, ATTN_CACHE_KEYS, index, position, k);
            attn__keep(p->kernels, of, ATTN_CACHE_VALUES, index, position, k + c->d_model);
        }
    }
    if (p->n_rows > ATTN__FEW_ROWS)
        attn__barrier(me);
}

/* Which of an item's rows in this pass want logits. */
typedef struct attn__wanted {
    size_t n;      /* how many */
    size_t first;  /* the first of them, as an index into item->rows if the caller listed rows */
    float *logits; /* [n, n_vocab]: where their logits go */
} attn__wanted;

static attn__wanted attn__wanted_of(const attn__pass *p, const attn_feed_item *item)
{
    attn_session *of = item->session;
    const size_t end = of->fed + of->n_rows;
    attn__wanted w = {of->n_rows, of->fed, item->logits};
    if (!item->logits) { /* only the last token's */
        w.n = end == item->n_tokens && of->n_rows > 0;
        w.first = item->n_tokens - 1;
        w.logits = of->pending;
        return w;
    }
    if (item->rows) {
        for (w.first = 0; w.first < item->n_rows && item->rows[w.first] < of->fed; w.first++)
            ;
        for (w.n = 0; w.first + w.n < item->n_rows && item->rows[w.first + w.n] < end; w.n++)
            ;
    }
    w.logits += w.first * p->model->config.n_vocab;
    return w;
}

/* Wanted row i, as a token of the item. */
static size_t attn__wanted_token(const attn_feed_item *item, const attn__wanted *w, size_t i)
{
    return item->rows ? item->rows[w->first + i] : w->first + i;
}

/* The number of an item's leading rows in this pass that are done once the last layer's keys and
 * values are stored: neither their logits nor a later activation is wanted. */
static size_t attn__done_rows(const attn__pass *p, const attn_feed_item *item)
{
    const uint32_t later = ~(ATTN__POINT(ATTN__POINT_SCORES) - 1);
    const uint32_t final = 7 * ATTN__POINT(ATTN__POINT_LN_FINAL_SCALE);
    const attn__wanted w = attn__wanted_of(p, item);
    attn_session *of = item->session;
    if (item->layers.resid_out || attn__wants(of, later, p->model->config.n_layer - 1) ||
        attn__wants(of, final, ATTN_NO_LAYER))
        return 0;
    return w.n == 0 ? of->n_rows : attn__wanted_token(item, &w, 0) - of->fed;
}

static void attn__set_rows(attn__pass *p, size_t n)
{
    attn_workspace *ws = p->ws;
    p->n_rows = n;
    ws->resid.n = ws->normed.n = ws->added.n = ws->qkv.n = ws->z.n = ws->mlp.n = n;
}

/* Drops finished rows: of a prompt, only the last row needs the last layer's attention and MLP. Of
 * the other rows, later steps need only the residual stream and the queries. */
static void attn__drop_rows(attn__worker *me, attn__pass *p)
{
    const size_t width = p->model->config.d_model;
    attn_workspace *ws = p->ws;
    size_t done = 0, to = 0;
    for (size_t i = 0; i < p->n_items; i++)
        done += attn__done_rows(p, &p->items[i]);
    if (done == 0)
        return;
    attn__barrier(me); /* every worker has counted */
    if (me->id == 0) {
        for (size_t i = 0; i < p->n_items; i++) {
            attn_session *of = p->items[i].session;
            const size_t from = of->first_row + attn__done_rows(p, &p->items[i]);
            of->fed += from - of->first_row;
            of->n_rows -= from - of->first_row;
            of->first_row = to;
            for (size_t row = from; row < from + of->n_rows; row++, to++) {
                memmove(attn__row_at(ws->resid, to), attn__row_at(ws->resid, row),
                        width * sizeof(float));
                memmove(attn__row_at(ws->qkv, to), attn__row_at(ws->qkv, row),
                        width * sizeof(float));
            }
        }
        attn__set_rows(p, to);
    }
    attn__barrier(me);
    me->is_dynamic = attn__is_dynamic(me, p);
}

/* The factor of the scores: 1 / √d in GPT-2. */
static float attn__score_scale(const attn_config *c, size_t layer)
{
    const float root = c->unscaled_attn ? 1.0f : sqrtf((float)c->d_head);
    return 1.0f / (c->scale_attn_by_inverse_layer_idx ? root * (float)(layer + 1) : root);
}

/* The head, and the block of queries of a session from `row` on, as attn__head_scores takes it. */
static ATTN__COMPACT attn__head attn__head_of(const attn__pass *p, const attn_session *of,
                                              size_t layer, size_t head, size_t row)
{
    const attn_config *c = &p->model->config;
    const size_t index = layer * c->n_head + head;
    attn__head h = ATTN_ZERO;
    h.first = of->length + of->fed + row;
    h.rows = attn__query_block(h.first, of->n_rows - row);
    h.causal = 1;
    h.q = attn__row_at(p->ws->qkv, of->first_row + row) + head * c->d_head;
    h.q_stride = (ptrdiff_t)p->ws->qkv.stride;
    h.q_step = 1;
    h.keys =
        attn__panels_at(of->keys + index * of->keys_size, of->cache, c->d_head, h.first + h.rows);
    h.values = attn__panels_at(of->values + index * of->values_size, of->cache, h.first + h.rows,
                               c->d_head);
    h.values.stride = of->values_panel;
    h.scale = attn__score_scale(c, layer);
    h.z = attn__row_at(p->ws->z, of->first_row + row) + head * c->d_head;
    h.z_stride = p->ws->z.stride;
    return h;
}

/* z [rows, d] of one head for a block of queries: scores, softmax, weighted sum. */
static void attn__attend_block(const attn__pass *p, const attn__head *h, attn__scratchpad s)
{
    const size_t stride = attn__round_up(h->keys.n_out, 16);
    attn__head_scores(p->kernels, h, s.buffer, stride, s.pack);
    for (size_t row = 0; row < h->rows; row++)
        p->kernels->softmax(s.buffer + row * stride, s.buffer + row * stride, h->keys.n_out);
    attn__head_weigh(p->kernels, h, s.buffer, stride, s.last_chain, s.pack);
}

/* Calls `block` for this worker's tasks: each head with some blocks of queries, or, if there are
 * few rows, with an item. */
static ATTN__COMPACT void attn__each_block(attn__worker *me, attn__pass *p, attn__block_fn block)
{
    const attn__scratchpad s = attn__scratchpad_of(me, p);
    const int few = p->n_rows <= ATTN__FEW_ROWS;
    const size_t n_parts = few ? p->n_items : (p->n_rows + ATTN__QUERIES - 1) / ATTN__QUERIES;
    size_t task;
    while (attn__next_task(me, n_parts * p->model->config.n_head, &task))
        for (size_t i = 0; i < p->n_items; i++) {
            const attn_session *of = p->items[i].session;
            for (size_t row = 0; row < of->n_rows;
                 row += attn__query_block(of->length + of->fed + row, of->n_rows - row))
                if (task % n_parts == (few ? i : (of->first_row + row) / ATTN__QUERIES))
                    block(me, p, of, task / n_parts, row, s);
        }
}

static void attn__plain_block(const attn__worker *me, attn__pass *p, const attn_session *of,
                              size_t head, size_t row, attn__scratchpad s)
{
    const attn__head h = attn__head_of(p, of, me->layer, head, row);
    attn__attend_block(p, &h, s);
}

/* z [R, H, d] = softmax(q · kᵀ / √d, causal) · v, over all positions of the session. */
static void attn__attend(attn__worker *me, attn__pass *p)
{
    if (attn__anyone_wants(p, ATTN__SEES_SCORES, me->layer))
        attn__attend_watched(me, p);
    else
        attn__each_block(me, p, attn__plain_block);
}

/* n numbers: x = x + added, or act_fn(x) if `added` is NULL. */
static void attn__change(const attn__pass *p, float *x, const float *added, size_t n)
{
    if (added)
        p->kernels->binary(ATTN__ADD, x, x, added, n);
    else
        p->kernels->activate(x, x, n, p->model->config.act_fn);
}

/* Changes rows of `width` numbers; those of `added` have the same stride. If there are few rows, a
 * worker changes the columns that it computed. Otherwise it waits until all rows are computed. */
static void attn__change_rows(attn__worker *me, const attn__pass *p, attn__rows rows, size_t width,
                              const float *added)
{
    const attn__area b = attn__area_of(me, rows.n, width);
    size_t row, last;
    if (rows.n <= ATTN__FEW_ROWS) {
        for (row = 0; row < rows.n; row++)
            attn__change(p, attn__row_at(rows, row) + b.col0,
                         added ? added + row * rows.stride + b.col0 : NULL, b.col1 - b.col0);
        return;
    }
    attn__barrier(me);
    while (attn__next_rows_of(me, rows.n, &row, &last))
        attn__change(p, attn__row_at(rows, row), added ? added + row * rows.stride : NULL,
                     (last - row) * rows.stride);
}

/* to [R, C] = to + added; both have the same stride. */
static void attn__add_to_resid(attn__worker *me, attn__pass *p, attn__rows to, attn__rows added)
{
    attn__change_rows(me, p, to, p->model->config.d_model, added.data);
}

/* rows [R, F] = act_fn(rows) */
static void attn__apply_act_fn(attn__worker *me, attn__pass *p, attn__rows rows)
{
    attn__change_rows(me, p, rows, p->model->config.d_mlp, NULL);
}

/* Moves the rows of `normed` whose logits are wanted to its beginning. If each worker has its own
 * `normed`, each worker moves the rows in its `normed`. */
static attn__rows attn__gather_final(attn__worker *me, const attn__pass *p, attn__rows normed)
{
    const int shared = normed.data == p->ws->normed.data;
    normed.n = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const attn_feed_item *item = &p->items[i];
        const attn__wanted w = attn__wanted_of(p, item);
        for (size_t j = 0; j < w.n; j++, normed.n++) {
            const size_t in_pass = attn__wanted_token(item, &w, j) - item->session->fed;
            if (me->id == 0 || !shared)
                memmove(attn__row_at(normed, normed.n),
                        attn__row_at(normed, item->session->first_row + in_pass),
                        p->model->config.d_model * sizeof(float));
        }
    }
    if (shared)
        attn__barrier(me);
    return normed;
}

/* Logits of a few rows of several sessions: W_U is read once for all of them, for some tokens of
 * the vocabulary at a time, as many as `buffer` has room for. */
static void attn__unembed_together(attn__worker *me, attn__pass *p, attn__rows in)
{
    const attn__scratchpad s = attn__scratchpad_of(me, p);
    const size_t n_vocab = p->model->config.n_vocab, step = s.buffer_size / (16 * in.n);
    attn__rows out = in;
    size_t i, k, first, last;
    out.data = s.buffer;
    out.stride = step * 16;
    attn__share(me, (n_vocab + 15) / 16, &first, &last);
    for (; first < last; first += step) {
        const size_t stop = first + step < last ? first + step : last;
        const float *b_u = p->model->b_u ? p->model->b_u + first * 16 : NULL;
        attn__matmul_job job = attn__job_of(out, in, p->model->w_u, b_u);
        job.w.data = (const unsigned char *)job.w.data + first * job.w.stride;
        job.w.n_out = (stop * 16 < n_vocab ? stop * 16 : n_vocab) - first * 16;
        attn__matmul_panels(p->kernels, &job, 0, in.n, 0, stop - first, s.pack);
        for (i = 0, k = 0; i < p->n_items; i++) {
            const attn__wanted w = attn__wanted_of(p, &p->items[i]);
            for (size_t j = 0; j < w.n; j++, k++)
                memcpy(w.logits + j * n_vocab + first * 16, attn__row_at(out, k),
                       job.w.n_out * sizeof(float));
        }
    }
}

/* The residual stream after the last layer of the pass -> resid_out [n_tokens, C]. */
static void attn__copy_resid(attn__worker *me, attn__pass *p)
{
    const size_t width = p->model->config.d_model;
    size_t row, last;
    for (size_t i = 0; i < p->n_items; i++) {
        const attn_session *of = p->items[i].session;
        attn__share(me, p->items[i].layers.resid_out ? of->n_rows : 0, &row, &last);
        for (; row < last; row++)
            memcpy(p->items[i].layers.resid_out + (of->fed + row) * width,
                   attn__row_at(p->ws->resid, of->first_row + row), width * sizeof(float));
    }
}

/* logits [rows that want them, V] = normed · W_U + b_U. A few rows of several sessions are
 * multiplied together, and the logits copied; otherwise each session's are computed in place. */
static void attn__make_logits(attn__worker *me, attn__pass *p, attn__rows normed)
{
    attn__rows in = attn__gather_final(me, p, normed), out;
    if (in.n == 0)
        return;
    if (p->n_items > 1 && 16 * in.n <= attn__scratchpad_of(me, p).buffer_size) {
        attn__unembed_together(me, p, in);
        return;
    }
    out.stride = p->model->config.n_vocab;
    /* Tasks in every pass: nothing is shown after the logits, and no step follows them. */
    me->is_dynamic = me->team->apart != NULL;
    for (size_t i = 0; i < p->n_items; i++) {
        const attn__wanted w = attn__wanted_of(p, &p->items[i]);
        in.n = out.n = w.n;
        out.data = w.logits;
        if (in.n > 0)
            attn__project(me, p, out, in, &p->model->w_u, p->model->b_u);
        in.data = attn__row_at(in, in.n);
    }
}

/* >>session (tests: session) ====================================================================
 * A workspace holds the kernels, the number of threads, the activations of a pass, and scratch
 * memory for each worker. A session is one sequence: its tokens, and its cache, which has the keys
 * and values of every layer, head and position. They are panels, so that attention uses the same
 * kernels as every other matmul. A panel of keys has 16 positions and a line for each of the d_head
 * dimensions (f16: for each two). A panel of values has 16 dimensions and a line for each position
 * (f16: for each two).
 *
 * A session's length is the number of tokens that have gone through all layers. A layer's cache may
 * reach further: after a truncation, or after a feed that ended at a later layer. A feed that
 * begins at layer i may use what the layers below i have, if it feeds the same tokens. It
 * overwrites what the layers that it runs have; what layers above them have beyond the session's
 * length is forgotten. */

/* ---- memory ---- */

/* Takes `count` floats of a block from *at on; with base == NULL it only measures. */
static float *attn__carve(float *base, size_t *at, size_t count)
{
    const size_t start = *at, end = start + count;
    *at = attn__round_up(end, 16) + ATTN__GAP;
    if (!base)
        return NULL;
    if (!attn__block_of(base)->allocator.alloc) /* as in attn_alloc */
        ATTN__FORBID(base + end, (*at - end) * sizeof(float));
    return base + start;
}

static attn__rows attn__carve_rows(const attn_workspace *ws, float *base, size_t *at, size_t width)
{
    const size_t stride = attn__stride(width);
    const attn__rows rows = {attn__carve(base, at, ws->n_batch * stride), stride, 0};
    return rows;
}

/* Lays out the arrays of a workspace in one block. Returns its size in floats; with base == NULL it
 * only measures. */
static size_t attn__lay_out_workspace(attn_workspace *ws, float *base)
{
    const attn_config *c = &ws->model->config;
    size_t at = 0;
    ws->scratch_size =
        ATTN__PACK + ATTN__FEW_ROWS * attn__stride(c->d_model) +
        ATTN__QUERIES * (attn__round_up(ws->n_ctx, 16) + attn__round_up(c->d_head, 16));
    ws->resid = attn__carve_rows(ws, base, &at, c->d_model);
    ws->normed = attn__carve_rows(ws, base, &at, c->d_model);
    ws->added = attn__carve_rows(ws, base, &at, c->d_model);
    ws->qkv = attn__carve_rows(ws, base, &at, 3 * c->d_model);
    ws->z = attn__carve_rows(ws, base, &at, c->d_model);
    ws->mlp = attn__carve_rows(ws, base, &at, c->d_mlp);
    ws->mean = attn__carve(base, &at, ws->n_batch);
    ws->scale = attn__carve(base, &at, ws->n_batch);
    ws->scratch = attn__carve(base, &at, (size_t)ws->n_threads * ws->scratch_size);
    return at;
}

/* The same for a session. */
static size_t attn__lay_out(attn_session *s, float *base)
{
    const attn_config *c = &s->model->config;
    const size_t heads = c->n_layer * c->n_head, padded = attn__round_up(s->capacity, 16);
    size_t at = 0;
    s->keys_panel = attn__panels_at(NULL, s->cache, c->d_head, 16).stride;
    s->keys_size = padded / 16 * s->keys_panel;
    s->values_panel = attn__line_of(s->cache, padded);
    s->values_size = (c->d_head + 15) / 16 * s->values_panel;
    s->keys = (unsigned char *)attn__carve(base, &at, heads * s->keys_size / sizeof(float));
    s->values = (unsigned char *)attn__carve(base, &at, heads * s->values_size / sizeof(float));
    s->logits = attn__carve(base, &at, c->n_vocab);
    s->pending = attn__carve(base, &at, c->n_vocab);
    s->n_cached =
        (size_t *)(void *)attn__carve(base, &at, c->n_layer * sizeof *s->n_cached / sizeof(float));
    s->tokens = (attn_token *)(void *)attn__carve(base, &at, s->capacity);
    return at;
}

/* Bytes that attn_alloc takes for an object and for its block of arrays. */
static size_t attn__bytes_of(size_t object, size_t floats)
{
    return attn__round_up(object, 64) + floats * sizeof(float) +
           2 * (sizeof(attn__allocation) + 64);
}

/* Counts one user of an object more or less. Returns their number. */
static size_t attn__count_user(int *lock, size_t *n_users, int change)
{
    attn__lock(lock);
    size_t n = change > 0 ? ++*n_users : --*n_users;
    attn__unlock(lock);
    return n;
}

/* ---- workspaces ---- */

/* Fills in the sizes of a workspace. The sizes of a model are below 2^24, so only products can
 * overflow: these are first estimated in doubles. */
static attn_status attn__plan_workspace(attn_ctx *ctx, attn_workspace *ws, size_t *floats,
                                        const attn_model *model, const attn_workspace_desc *desc)
{
    memset(ws, 0, sizeof *ws);
    ATTN__TRY(attn__need_given(ctx, "attn_workspace", "model", model));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_workspace_desc, desc));
    const attn_config *c = &model->config;
    ws->model = (attn_model *)(uintptr_t)model;
    ws->n_ctx = desc && desc->n_ctx ? desc->n_ctx : c->n_ctx;
    ws->n_batch = desc && desc->n_batch ? desc->n_batch : 256;
    ws->n_threads = attn_max_threads(ctx);
    ATTN__REFUSE_IF(ctx, ws->n_ctx > c->n_ctx, ATTN_E_ARGUMENT,
                    "a workspace for sessions of %zu tokens was asked for; the model's n_ctx "
                    "is %zu",
                    ws->n_ctx, c->n_ctx);
    ATTN__TRY(attn__need_kernels(ctx, &ws->kernels));
    double estimate =
        4.0 * (double)ws->n_batch * (8.0 * ((double)c->d_model + 32) + (double)c->d_mlp + 64) +
        4.0 * (double)ws->n_threads *
            (ATTN__PACK + ATTN__FEW_ROWS * ((double)c->d_model + 32) +
             ATTN__QUERIES * 2.0 * (double)(ws->n_ctx + c->d_head + 32)) +
        65536;
    ATTN__REFUSE_IF(ctx, estimate > (double)(SIZE_MAX / 2), ATTN_E_MEMORY,
                    /* cover: 32-bit */ "a workspace of %zu rows does not fit in memory",
                    ws->n_batch);
    *floats = attn__lay_out_workspace(ws, NULL);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_workspace_size(attn_ctx *ctx, size_t *bytes, const attn_model *model,
                                           const attn_workspace_desc *desc)
{
    attn_workspace ws;
    size_t floats = 0;
    ATTN__TRY(attn__need_given(ctx, "attn_workspace_size", "place for the size", bytes));
    ATTN__TRY(attn__plan_workspace(ctx, &ws, &floats, model, desc));
    *bytes = attn__bytes_of(attn__round_up(sizeof ws, 16) + sizeof(attn__tuners), floats);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_workspace_new(attn_ctx *ctx, attn_workspace **workspace,
                                          const attn_model *model, const attn_workspace_desc *desc)
{
    attn_workspace plan, *ws;
    size_t floats = 0;
    ATTN__TRY(attn__need_place(ctx, "attn_workspace_new", "place for the workspace", workspace));
    ATTN__TRY(attn__plan_workspace(ctx, &plan, &floats, model, desc));
    ws = (attn_workspace *)attn_alloc(ctx, 1, attn__round_up(sizeof *ws, 16) + sizeof(attn__tuners),
                                      "a workspace");
    float *base = ws ? ATTN__NEW(ctx, float, floats, "a workspace's rows") : NULL;
    if (!base) {
        attn_free(ws);
        return ATTN_E_MEMORY;
    }
    *ws = plan;
    ws->memory = base;
    ws->n_users = 1;
    attn__count_user(&ws->model->lock, &ws->model->n_users, 1);
    ws->tuners = (attn__tuners *)(void *)((unsigned char *)ws + attn__round_up(sizeof *ws, 16));
    attn__lay_out_workspace(ws, base);
    *workspace = ws;
    return ATTN_OK;
}

ATTN__COLD void attn_workspace_free(attn_workspace *workspace)
{
    if (!workspace || attn__count_user(&workspace->lock, &workspace->n_users, -1) > 0)
        return;
    attn__dismiss(&workspace->tuners->crew);
    attn_model_close(workspace->model);
    attn_free(workspace->memory);
    attn_free(workspace);
}

/* ---- sessions ---- */

/* Fills in the sizes of a session, and *own, which describes the workspace that it makes if none is
 * given. */
static attn_status attn__plan_session(attn_ctx *ctx, attn_session *s, size_t *floats,
                                      attn_workspace_desc *own, const attn_model *model,
                                      const attn_session_desc *desc)
{
    memset(s, 0, sizeof *s);
    memset(own, 0, sizeof *own);
    ATTN__TRY(attn__need_given(ctx, "attn_session", "model", model));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_session_desc, desc));
    const attn_config *c = &model->config;
    s->model = model;
    s->capacity = desc && desc->n_ctx ? desc->n_ctx : c->n_ctx;
    s->workspace = desc ? desc->workspace : NULL;
    s->cache = desc ? desc->cache_dtype : ATTN_F32;
    own->n_ctx = s->capacity;
    own->n_batch = desc && desc->n_batch ? desc->n_batch : 256;
    if (own->n_batch > s->capacity)
        own->n_batch = s->capacity;
    ATTN__REFUSE_IF(ctx, s->cache != ATTN_F32 && s->cache != ATTN_F16, ATTN_E_ARGUMENT,
                    "a session keeps keys and values as ATTN_F32 or ATTN_F16, not as type %d",
                    (int)s->cache);
    ATTN__REFUSE_IF(ctx, s->capacity > c->n_ctx, ATTN_E_ARGUMENT,
                    "a session of %zu tokens was asked for; the model's n_ctx is %zu", s->capacity,
                    c->n_ctx);
    double estimate = 8.0 * (double)(s->capacity + 16) * (double)(c->d_model + 16 * c->n_head) *
                          (double)c->n_layer +
                      8.0 * (double)(c->n_vocab + c->n_layer) + 65536;
    ATTN__REFUSE_IF(ctx, estimate > (double)(SIZE_MAX / 2), ATTN_E_MEMORY,
                    /* cover: 32-bit */ "a session of %zu tokens does not fit in memory",
                    s->capacity);
    *floats = attn__lay_out(s, NULL);
    return ATTN_OK;
}

/* Can this session use this workspace? */
static attn_status attn__check_workspace(attn_ctx *ctx, const attn_session *s,
                                         const attn_workspace *ws, size_t n_batch)
{
    ATTN__REFUSE_IF(ctx, ws->model != s->model, ATTN_E_ARGUMENT,
                    "the workspace was made for another model; each model needs its own");
    ATTN__REFUSE_IF(ctx, s->capacity > ws->n_ctx, ATTN_E_ARGUMENT,
                    "the workspace is for sessions of at most %zu tokens, but this one is "
                    "for %zu (attn_workspace_desc.n_ctx)",
                    ws->n_ctx, s->capacity);
    ATTN__REFUSE_IF(ctx, n_batch > 0, ATTN_E_ARGUMENT,
                    "a session that is given a workspace has its n_batch: set it in "
                    "attn_workspace_desc");
    return ATTN_OK;
}

ATTN__COLD attn_status attn_session_size(attn_ctx *ctx, size_t *bytes, const attn_model *model,
                                         const attn_session_desc *desc)
{
    attn_session s;
    attn_workspace_desc own;
    size_t floats = 0, more = 0;
    ATTN__TRY(attn__need_given(ctx, "attn_session_size", "place for the size", bytes));
    ATTN__TRY(attn__plan_session(ctx, &s, &floats, &own, model, desc));
    if (desc && desc->workspace)
        ATTN__TRY(attn__check_workspace(ctx, &s, desc->workspace, desc->n_batch));
    else
        ATTN__TRY(attn_workspace_size(ctx, &more, model, &own));
    *bytes = attn__bytes_of(sizeof s, floats) + more;
    return ATTN_OK;
}

ATTN__COLD attn_status attn_session_new(attn_ctx *ctx, attn_session **session,
                                        const attn_model *model, const attn_session_desc *desc)
{
    attn_session plan;
    attn_workspace_desc own;
    size_t floats = 0;
    ATTN__TRY(attn__need_place(ctx, "attn_session_new", "place for the session", session));
    ATTN__TRY(attn__plan_session(ctx, &plan, &floats, &own, model, desc));
    if (plan.workspace) {
        ATTN__TRY(attn__check_workspace(ctx, &plan, plan.workspace, desc->n_batch));
        attn__count_user(&plan.workspace->lock, &plan.workspace->n_users, 1);
    } else
        ATTN__TRY(attn_workspace_new(ctx, &plan.workspace, model, &own));
    attn_session *s = ATTN__NEW(ctx, attn_session, 1, "a session");
    float *base = s ? ATTN__NEW(ctx, float, floats, "a session's cache") : NULL;
    if (!base) {
        attn_free(s);
        attn_workspace_free(plan.workspace);
        return ATTN_E_MEMORY;
    }
    *s = plan;
    s->memory = base;
    attn__lay_out(s, base);
    *session = s;
    return ATTN_OK;
}

/* Ends a call during which callbacks run; it begins with n_calls++. If a callback frees the
 * session, it lives until the last such call ends. */
static void attn__session_drop(attn_session *session)
{
    if (--session->n_calls == 0 && session->is_freed)
        attn_session_free(session);
}

ATTN__COLD void attn_session_free(attn_session *session)
{
    if (!session)
        return;
    session->is_freed = 1;
    if (session->n_calls > 0)
        return;
    attn_unhook_all(session);
    attn_workspace_free(session->workspace);
    attn_free(session->memory);
    attn_free(session);
}

static attn_status attn__check_idle(attn_ctx *ctx, const char *what, const attn_session *session)
{
    ATTN__REFUSE_IF(ctx, session->running, ATTN_E_ARGUMENT,
                    "%s: the session is being fed by another call; a callback may not do this to "
                    "it, and each thread needs its own",
                    what);
    return ATTN_OK;
}

/* Forgets the keys and values that a layer has beyond the session's length. */
static void attn__forget_later(attn_session *s, size_t layer)
{
    s->n_cached[layer] = s->n_cached[layer] < s->length ? s->n_cached[layer] : s->length;
}

ATTN__COLD attn_status attn_session_set_workspace(attn_ctx *ctx, attn_session *session,
                                                  attn_workspace *workspace)
{
    const attn__watcher *w;
    ATTN__TRY(attn__need_given(ctx, "attn_session_set_workspace", "session", session));
    ATTN__TRY(attn__need_given(ctx, "attn_session_set_workspace", "workspace", workspace));
    ATTN__TRY(attn__check_idle(ctx, "attn_session_set_workspace", session));
    ATTN__TRY(attn__check_workspace(ctx, session, workspace, 0));
    ATTN__TRY(attn__claim_all(ctx, workspace, session));
    for (w = session->watchers; w; w = w->next)
        attn__release(session->workspace, w);
    attn__count_user(&workspace->lock, &workspace->n_users, 1);
    attn_workspace_free(session->workspace);
    session->workspace = workspace;
    return ATTN_OK;
}

ATTN__DEF const float *attn_session_logits(const attn_session *session)
{
    return session && session->has_logits ? session->logits : NULL;
}
ATTN__DEF size_t attn_session_length(const attn_session *session)
{
    return session ? session->length : 0;
}
ATTN__DEF size_t attn_session_capacity(const attn_session *session)
{
    return session ? session->capacity : 0;
}
ATTN__DEF attn_dtype attn_session_cache_dtype(const attn_session *session)
{
    return session ? session->cache : ATTN_F32;
}
ATTN__DEF const attn_token *attn_session_tokens(const attn_session *session)
{
    return session ? session->tokens : NULL;
}
ATTN__DEF const attn_model *attn_session_model(const attn_session *session)
{
    return session ? session->model : NULL;
}

/* Ends the session's tokens at `length`, and tells its watchers. */
static void attn__forget_from(attn_session *session, size_t length)
{
    attn__watcher *w;
    session->n_changes++;
    session->length = length;
    for (w = session->watchers; w; w = w->next)
        if (w->kind->truncate)
            (w->kind->truncate)(w, length);
}

ATTN__COLD attn_status attn_session_truncate(attn_ctx *ctx, attn_session *session, size_t length)
{
    ATTN__TRY(attn__need_given(ctx, "attn_session_truncate", "session", session));
    ATTN__REFUSE_IF(ctx, length > session->length, ATTN_E_ARGUMENT,
                    "attn_session_truncate: to %zu, but the session holds %zu tokens", length,
                    session->length);
    ATTN__TRY(attn__check_idle(ctx, "attn_session_truncate", session));
    if (length == session->length)
        return ATTN_OK;
    attn__forget_from(session, length);
    session->has_logits = 0;
    return ATTN_OK;
}

/* Can a session's tokens be overwritten? */
static attn_status attn__check_overwritable(attn_ctx *ctx, const char *op, const attn_session *s)
{
    const attn__watcher *w;
    ATTN__TRY(attn__need_given(ctx, op, "session", s));
    ATTN__TRY(attn__check_idle(ctx, op, s));
    for (w = s->watchers; w; w = w->next) /* one that is truncated depends on positions */
        ATTN__REFUSE_IF(ctx, w->kind->truncate, ATTN_E_ARGUMENT,
                        "%s: a record watches the session that would be overwritten; call "
                        "attn_record_free first",
                        op);
    return ATTN_OK;
}

/* Can one session take the tokens, keys and values of another? */
static attn_status attn__check_copy(attn_ctx *ctx, const attn_session *to, const attn_session *from)
{
    ATTN__TRY(attn__need_given(ctx, "attn_session_copy", "session", from));
    if (to == from)
        return attn__check_idle(ctx, "attn_session_copy", to);
    ATTN__TRY(attn__check_overwritable(ctx, "attn_session_copy", to));
    ATTN__REFUSE_IF(ctx, to->model != from->model, ATTN_E_ARGUMENT,
                    "attn_session_copy: the models differ");
    ATTN__REFUSE_IF(ctx, to->cache != from->cache, ATTN_E_ARGUMENT,
                    "attn_session_copy: one session keeps f16, the other f32 (cache)");
    ATTN__REFUSE_IF(ctx, from->length > to->capacity, ATTN_E_CONTEXT,
                    "attn_session_copy: %zu tokens do not fit into a session for %zu", from->length,
                    to->capacity);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_session_copy(attn_ctx *ctx, attn_session *to, const attn_session *from)
{
    size_t layer, n, most = 0;
    ATTN__TRY(attn__check_copy(ctx, to, from));
    if (to == from)
        return ATTN_OK;
    const attn_config *c = &from->model->config;
    size_t heads = c->n_layer * c->n_head;
    for (size_t head = 0; head < heads; head++) {
        layer = head / c->n_head;
        n = from->n_cached[layer] < to->capacity ? from->n_cached[layer] : to->capacity;
        most = most > n ? most : n;
        to->n_cached[layer] = n;
        memcpy(to->keys + head * to->keys_size, from->keys + head * from->keys_size,
               (n + 15) / 16 * to->keys_panel);
        for (size_t panel = 0; panel < (c->d_head + 15) / 16; panel++)
            memcpy(to->values + head * to->values_size + panel * to->values_panel,
                   from->values + head * from->values_size + panel * from->values_panel,
                   attn__line_of(to->cache, n));
    }
    memcpy(to->tokens, from->tokens, most * sizeof *to->tokens);
    attn__forget_from(to, from->length);
    to->has_logits = from->has_logits;
    if (from->has_logits)
        memcpy(to->logits, from->logits, c->n_vocab * sizeof(float));
    return ATTN_OK;
}

/* ---- feeding ---- */

static size_t attn__end_layer(const attn_feed_item *item, const attn_model *model)
{
    const size_t end = item->layers.end;
    return end || item->layers.embed_only ? end : model->config.n_layer;
}

/* The span of an item. */
static attn__span attn__span_of(const attn_feed_item *item)
{
    const attn__span span = {item->session->length, item->n_tokens, item->layers.first,
                             attn__end_layer(item, item->session->model), !item->layers.resid};
    return span;
}

/* Can these layers be run? Those below them must have keys and values of all positions. */
static attn_status attn__check_layers(attn_ctx *ctx, const attn_feed_item *item,
                                      const attn_model *model)
{
    const attn_session *s = item->session;
    const size_t n_layer = model->config.n_layer, end = attn__end_layer(item, model);
    const size_t until = s->length + item->n_tokens;
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_layers, &item->layers));
    ATTN__REFUSE_IF(
        ctx,
        item->layers.embed_only ? item->layers.first > 0 || end > 0 || item->layers.resid
                                : end > n_layer || item->layers.first > end ||
                                      (item->layers.first == end && end < n_layer),
        ATTN_E_ARGUMENT, "attn_feed: layers %zu to before %zu%s; expected some of 0 to before %zu",
        item->layers.first, end, item->layers.embed_only ? " with embed_only" : "", n_layer);
    ATTN__REFUSE_IF(ctx, item->layers.first > 0 && !item->layers.resid, ATTN_E_ARGUMENT,
                    "attn_feed: a pass that begins at layer %zu needs the residual stream "
                    "that enters it (resid)",
                    item->layers.first);
    ATTN__REFUSE_IF(ctx, end < n_layer && (item->logits || item->rows), ATTN_E_ARGUMENT,
                    "attn_feed: a pass that stops before layer %zu makes no logits", end);
    for (size_t i = 0; i < item->layers.first; i++)
        ATTN__REFUSE_IF(ctx, s->n_cached[i] < until, ATTN_E_ARGUMENT,
                        "attn_feed: to begin at layer %zu, layer %zu must hold keys and "
                        "values of %zu positions; it holds %zu. Feed the tokens from layer "
                        "0 first, then call attn_session_truncate",
                        item->layers.first, i, until, s->n_cached[i]);
    ATTN__REFUSE_IF(ctx,
                    item->layers.first > 0 && memcmp(s->tokens + s->length, item->tokens,
                                                     item->n_tokens * sizeof *item->tokens) != 0,
                    ATTN_E_ARGUMENT,
                    "attn_feed: the layers below %zu hold keys and values of other tokens",
                    item->layers.first);
    return ATTN_OK;
}

/* Checks everything about an item. After this, only a stop can end the feed. */
static attn_status attn__check_item(attn_ctx *ctx, const attn_feed_item *item,
                                    const attn_model *model)
{
    const attn_session *s = item->session;
    const attn__watcher *w;
    ATTN__REFUSE_IF(ctx, !s || s->model != model, ATTN_E_ARGUMENT,
                    "attn_feed: there is no session, or one of another model");
    ATTN__TRY(attn__check_idle(ctx, "attn_feed", s));
    ATTN__REFUSE_IF(ctx, s->workspace->is_running, ATTN_E_ARGUMENT,
                    "attn_feed: the session's workspace is in use; in a callback, feed a "
                    "session that has another one");
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_feed_item, item));
    ATTN__REFUSE_IF(ctx, item->n_tokens == 0 || !item->tokens, ATTN_E_ARGUMENT,
                    "attn_feed: no tokens were given");
    ATTN__REFUSE_IF(
        ctx, item->n_tokens > s->capacity - s->length, ATTN_E_CONTEXT,
        "the session holds %zu of at most %zu tokens, so %zu more do not "
        "fit; call attn_session_truncate, or make a larger one (the model's n_ctx is %zu)",
        s->length, s->capacity, item->n_tokens, model->config.n_ctx);
    ATTN__TRY(attn__need_ids(ctx, "attn_feed", "token", item->tokens, 1, item->n_tokens,
                             model->config.n_vocab));
    ATTN__TRY(attn__check_layers(ctx, item, model));
    attn__span span = attn__span_of(item);
    for (w = s->watchers; w; w = w->next)
        if (w->kind->accepts && w->kind->accepts(ctx, w, &span) != ATTN_OK)
            return ctx->status;
    ATTN__REFUSE_IF(ctx, item->rows && !item->logits, ATTN_E_ARGUMENT,
                    "attn_feed: rows were given, and no room for their logits");
    ATTN__REFUSE_IF(ctx, !item->rows && item->n_rows > 0, ATTN_E_ARGUMENT,
                    "attn_feed: n_rows is %zu, but rows is NULL", item->n_rows);
    for (size_t i = 0; i < item->n_rows; i++)
        ATTN__REFUSE_IF(
            ctx, item->rows[i] >= item->n_tokens || (i > 0 && item->rows[i] <= item->rows[i - 1]),
            ATTN_E_ARGUMENT,
            "attn_feed: rows[%zu] is %zu; rows must ascend and stay below "
            "n_tokens, %zu",
            i, item->rows[i], item->n_tokens);
    return ATTN_OK;
}

/* Puts "item N: " before the message of a failure. */
static ATTN__COMPACT attn_status attn__of_item(attn_ctx *ctx, size_t index)
{
    return attn_fail(ctx, ctx->status, "item %zu: %s", index, ctx->message);
}

/* Do the tokens of an item lie where the session of another one will write its own? */
static int attn__overwrites(const attn_feed_item *other, const attn_feed_item *item)
{
    const uintptr_t from = (uintptr_t)(other->session->tokens + other->session->length);
    const uintptr_t tokens = (uintptr_t)item->tokens, size = sizeof *item->tokens;
    return other != item && tokens < from + other->n_tokens * size &&
           from < tokens + item->n_tokens * size;
}

/* Checks each item. All must run the same layers on one workspace, and no session may come
 * twice. */
static ATTN__COMPACT attn_status attn__check_batch(attn_ctx *ctx, const attn_feed_item *items,
                                                   size_t n_items)
{
    const attn_model *model = items[0].session->model;
    for (size_t i = 0; i < n_items; i++)
        if (attn__check_item(ctx, &items[i], model) != ATTN_OK)
            return n_items > 1 ? attn__of_item(ctx, i) : ctx->status;
    for (size_t i = 1; i < n_items; i++) {
        ATTN__REFUSE_IF(ctx, items[i].session->workspace != items[0].session->workspace,
                        ATTN_E_ARGUMENT,
                        "attn_feed_batch: item %zu's session does not share item 0's "
                        "workspace; make one with attn_workspace_new and give it to all "
                        "sessions of a batch (attn_session_desc.workspace)",
                        i);
        ATTN__REFUSE_IF(ctx,
                        items[i].layers.first != items[0].layers.first ||
                            !items[i].layers.resid != !items[0].layers.resid ||
                            attn__end_layer(&items[i], model) != attn__end_layer(&items[0], model),
                        ATTN_E_ARGUMENT,
                        "attn_feed_batch: item %zu does not run the same layers as item 0", i);
    }
    for (size_t i = 0; i < n_items; i++) /* a mark, which is found if the session comes again */
        items[i].session->n_rows = SIZE_MAX;
    for (size_t i = 0; i < n_items; i++) {
        ATTN__REFUSE_IF(ctx, items[i].session->n_rows == 0, ATTN_E_ARGUMENT,
                        "attn_feed_batch: item %zu's session is in the batch twice", i);
        items[i].session->n_rows = items[i].session->fed = 0;
        for (size_t j = 0; j < n_items; j++)
            ATTN__REFUSE_IF(ctx, attn__overwrites(&items[j], &items[i]), ATTN_E_ARGUMENT,
                            "attn_feed_batch: item %zu's tokens lie where another item's session "
                            "is about to write its own; copy them first",
                            i);
    }
    return ATTN_OK;
}

/* Begins a feed: stores its tokens in the session, forgets keys and values that it will make wrong,
 * and tells the watchers. If only one layer runs, that layer keeps those at later positions. */
static ATTN__COMPACT void attn__begin_feed(attn__pass *p, const attn_feed_item *item)
{
    attn_session *s = item->session;
    const attn__span span = attn__span_of(item);
    attn__watcher *w;
    s->n_calls++;
    s->n_changes++;
    s->end_layer = p->end_layer;
    /* The tokens may be the session's own, from before a truncation. */
    memmove(s->tokens + s->length, item->tokens, item->n_tokens * sizeof *s->tokens);
    for (size_t layer = p->first_layer; layer < p->model->config.n_layer; layer++)
        if (layer > p->first_layer || p->end_layer - p->first_layer != 1)
            attn__forget_later(s, layer);
    for (w = s->watchers; w; w = w->next)
        if (w->kind->begin)
            w->kind->begin(w, &span);
    p->watched |= s->watchers != NULL;
}

/* Ends a feed after its last pass: the layers that ran have its positions, and watchers are told.
 * If the last layer ran, the session gets longer and has new logits. */
static ATTN__COMPACT void attn__end_feed(const attn__pass *p, const attn_feed_item *item)
{
    attn_session *s = item->session;
    const attn__span span = attn__span_of(item);
    const size_t end = span.position + span.n_tokens, n_vocab = p->model->config.n_vocab;
    const size_t n_rows = item->rows ? item->n_rows : item->n_tokens;
    attn__watcher *w;
    for (size_t layer = p->first_layer; layer < p->end_layer; layer++)
        s->n_cached[layer] = s->n_cached[layer] > end ? s->n_cached[layer] : end;
    for (w = s->watchers; w; w = w->next)
        if (w->kind->end)
            w->kind->end(w, &span);
    if (p->end_layer < p->model->config.n_layer)
        return;
    s->length = end;
    s->has_logits =
        !item->rows || (item->n_rows > 0 && item->rows[item->n_rows - 1] == item->n_tokens - 1);
    if (!item->logits) {
        float *made = s->pending;
        s->pending = s->logits;
        s->logits = made;
    } else if (s->has_logits) {
        memcpy(s->logits, item->logits + (n_rows - 1) * n_vocab, n_vocab * sizeof(float));
    }
}

/* Gives the next pass as many rows of the items as the workspace has room for. Returns their
 * number. */
static size_t attn__next_rows(attn__pass *p)
{
    size_t n_rows = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        attn_session *s = p->items[i].session;
        const size_t left = p->items[i].n_tokens - s->fed, room = p->ws->n_batch - n_rows;
        s->fed_before = s->fed;
        s->first_row = n_rows;
        s->n_rows = left < room ? left : room;
        n_rows += s->n_rows;
    }
    attn__set_rows(p, n_rows);
    return n_rows;
}

/* Multiply-adds of a pass. */
static double attn__pass_work(const attn__pass *p)
{
    const attn_config *c = &p->model->config;
    const double width = (double)c->d_model, n_layers = (double)(p->end_layer - p->first_layer);
    double work = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        const attn_session *of = p->items[i].session;
        const double rows = (double)of->n_rows, keys = (double)(of->length + of->fed + of->n_rows);
        work += rows * n_layers * 2 * width * (2 * width + (double)c->d_mlp + keys);
        if (p->end_layer == c->n_layer)
            work += (double)attn__wanted_of(p, &p->items[i]).n * width * (double)c->n_vocab;
    }
    return work;
}

/* Barriers of a pass without watchers. In a layer: after q, k and v, z, resid_mid, mlp, resid_post;
 * of many rows also after LayerNorms and stored keys and values, and before both sums and act_fn.
 * Two more: after the embedding, and at the end of the parallel region. */
static int attn__n_barriers(size_t n_layers, size_t n_rows)
{
    return (5 + (n_rows <= ATTN__FEW_ROWS ? 0 : 6)) * (int)n_layers + 2;
}

/* One pass over the layers for the rows that attn__next_rows chose. */
static attn_status attn__run_pass(attn_ctx *ctx, attn__pass *p)
{
    int n_threads = attn_max_threads(ctx);
    if (attn__is_asked_to_stop(p->stop))
        return ATTN_STOPPED;
    if (n_threads > p->ws->n_threads) /* only these have scratch memory */
        n_threads = p->ws->n_threads;
    for (size_t i = 0; i < p->n_items; i++)
        p->items[i].session->running = ATTN__FEEDING;
    p->ws->is_running = 1;
    attn__parallel_tuned(p->ws->tuners, ctx->n_threads > 0, n_threads, attn__pass_work(p),
                         attn__n_barriers(p->end_layer - p->first_layer, p->n_rows), attn__forward,
                         p);
    for (size_t i = 0; i < p->n_items; i++)
        p->items[i].session->running = ATTN__IDLE;
    p->ws->is_running = 0;
    if (p->stopped || p->end_layer < attn__end_layer(p->items, p->model))
        return ATTN_STOPPED;
    for (size_t i = 0; i < p->n_items; i++)
        p->items[i].session->fed += p->items[i].session->n_rows;
    return ATTN_OK;
}

ATTN__COLD attn_status attn_feed_batch(attn_ctx *ctx, const attn_feed_item *items, size_t n_items)
{
    attn_status status = ATTN_OK;
    attn__pass p = ATTN_ZERO;
    ATTN__TRY(
        attn__need_given(ctx, "attn_feed", "session", n_items && items ? items[0].session : NULL));
    ATTN__TRY(attn__check_batch(ctx, items, n_items));
    p.ws = items[0].session->workspace;
    p.model = p.ws->model;
    p.kernels = p.ws->kernels;
    p.items = items;
    p.n_items = n_items;
    p.stop = ctx->stop_flag;
    p.first_layer = items[0].layers.first;
    p.end_layer = attn__end_layer(&items[0], p.model);
    for (size_t i = 0; i < n_items; i++)
        attn__begin_feed(&p, &items[i]);
    while (status == ATTN_OK && attn__next_rows(&p) > 0)
        status = attn__run_pass(ctx, &p);
    for (size_t i = 0; i < n_items; i++) {
        attn_session *s = items[i].session;
        if (status == ATTN_OK)
            attn__end_feed(&p, &items[i]);
        else if (p.first_layer < p.end_layer) /* it may have been overwritten in part */
            attn__forget_later(s, p.first_layer);
        s->fed = 0;
        attn__sweep_watchers(s);
        attn__session_drop(s);
    }
    return status;
}

static attn_feed_item attn__feed_of(attn_session *session, const attn_token *tokens,
                                    size_t n_tokens)
{
    attn_feed_item item = ATTN_ZERO;
    item.session = session;
    item.tokens = tokens;
    item.n_tokens = n_tokens;
    return item;
}

ATTN__COLD attn_status attn_feed(attn_ctx *ctx, attn_session *session, const attn_token *tokens,
                                 size_t n_tokens)
{
    attn_feed_item item = attn__feed_of(session, tokens, n_tokens);
    return attn_feed_batch(ctx, &item, 1);
}

static attn_status attn__need_layer(attn_ctx *ctx, const char *op, const attn_model *model,
                                    size_t layer)
{
    ATTN__TRY(attn__need_given(ctx, op, "model", model));
    ATTN__REFUSE_IF(ctx, layer >= model->config.n_layer, ATTN_E_ARGUMENT,
                    "%s: layer %zu; the model has layers 0 to %zu", op, layer,
                    model->config.n_layer - 1);
    return ATTN_OK;
}

/* The number of positions whose keys and values attn_session_get_cache gives: in a hook, those
 * before the running pass, of layers that the feed runs or that lie below them. */
static size_t attn__cache_length(const attn_session *s, size_t layer)
{
    return s->length + (s->running == ATTN__FEEDING && layer < s->end_layer ? s->fed_before : 0);
}

static attn_status attn__check_cache(attn_ctx *ctx, const char *what, const attn_session *s,
                                     attn_cache_part part, size_t layer, size_t first, size_t count)
{
    ATTN__TRY(attn__need_given(ctx, what, "session", s));
    ATTN__REFUSE_IF(ctx, part != ATTN_CACHE_KEYS && part != ATTN_CACHE_VALUES, ATTN_E_ARGUMENT,
                    "%s: expected ATTN_CACHE_KEYS or ATTN_CACHE_VALUES", what);
    ATTN__TRY(attn__need_layer(ctx, what, s->model, layer));
    size_t length = attn__cache_length(s, layer);
    ATTN__REFUSE_IF(ctx, first > length || count > length - first, ATTN_E_ARGUMENT,
                    "%s: %zu positions from %zu on; the session holds %zu", what, count, first,
                    length);
    return ATTN_OK;
}

/* Copies keys or values [n, H, d] of a layer, from position `first` on, to x; if puts is 1, from
 * x. */
static void attn__move_cache(const attn_session *s, attn_cache_part part, size_t layer,
                             size_t first, const attn_tensor *x, int puts)
{
    for (size_t t = 0; t < x->shape[0]; t++)
        for (size_t head = 0; head < x->shape[1]; head++)
            for (size_t j = 0; j < x->shape[2]; j++) {
                void *kept = attn__cached(s, part, layer * x->shape[1] + head, first + t, j);
                const ptrdiff_t at = attn__offset(x, t, head, j, 0);
                if (puts)
                    attn__store_element(kept, s->cache, 0,
                                        attn__load_element(x->data, x->dtype, at));
                else
                    attn__store_element(x->data, x->dtype, at,
                                        attn__load_element(kept, s->cache, 0));
            }
}

ATTN__COLD attn_status attn_session_get_cache(attn_ctx *ctx, attn_tensor *out,
                                              const attn_session *session, attn_cache_part part,
                                              size_t layer, size_t first)
{
    attn__result result;
    const size_t length = session ? attn__cache_length(session, layer) : 0;
    const size_t n = first < length ? length - first : 0;
    ATTN__TRY(attn__check_cache(ctx, "attn_session_get_cache", session, part, layer, first, n));
    const attn_config *c = &session->model->config;
    ATTN__TRY(attn__out_begin(ctx, "attn_session_get_cache", out,
                              attn_shape3(n, c->n_head, c->d_head), 0, NULL, &result));
    attn__move_cache(session, part, layer, first, &result.dense, 0);
    return attn__out_end(ctx, out, &result, ATTN_OK);
}

/* Fails unless x has keys or values of n positions: [n, H, d]. */
static attn_status attn__need_heads(attn_ctx *ctx, const char *op, const char *name,
                                    const attn_tensor *x, const attn_config *c, size_t n)
{
    const attn_shape shape = attn_shape3(n, c->n_head, c->d_head);
    ATTN__TRY(attn__need(ctx, op, name, x));
    ATTN__REFUSE_IF(ctx, !attn__has_shape(x, shape), ATTN_E_SHAPE,
                    "%s: %s has shape %s; expected %s", op, name,
                    attn__show(attn__shape_of(x)).text, attn__show(shape).text);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_session_set_cache(attn_ctx *ctx, attn_session *session,
                                              attn_cache_part part, size_t layer, size_t first,
                                              attn_tensor value)
{
    static const char op[] = "attn_session_set_cache";
    const size_t n = value.shape[0];
    ATTN__TRY(attn__check_cache(ctx, op, session, part, layer, first, n));
    ATTN__TRY(attn__need_heads(ctx, op, "value", &value, &session->model->config, n));
    if (session->running == ATTN__WRITING) /* drafted tokens used the old keys and values */
        return attn__check_idle(ctx, op, session);
    attn__move_cache(session, part, layer, first, &value, 1);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_session_restore(attn_ctx *ctx, attn_session *session,
                                            const attn_token *tokens, size_t n_tokens,
                                            const attn_tensor *cache, const float *logits)
{
    static const char op[] = "attn_session_restore";
    char name[32];
    ATTN__TRY(attn__check_overwritable(ctx, op, session));
    ATTN__TRY(attn__need_given(ctx, op, "tokens", n_tokens ? tokens : NULL));
    ATTN__TRY(attn__need_given(ctx, op, "cache", cache));
    ATTN__REFUSE_IF(ctx, n_tokens > session->capacity, ATTN_E_CONTEXT,
                    "%s: %zu tokens do not fit into a session for %zu", op, n_tokens,
                    session->capacity);
    const attn_config *c = &session->model->config;
    ATTN__TRY(attn__need_ids(ctx, op, "token", tokens, 1, n_tokens, c->n_vocab));
    for (size_t i = 0; i < 2 * c->n_layer; i++) {
        snprintf(name, sizeof name, "cache[%zu]", i);
        ATTN__TRY(attn__need_heads(ctx, op, name, &cache[i], c, n_tokens));
    }
    for (size_t i = 0; i < 2 * c->n_layer; i++) {
        attn__move_cache(session, (attn_cache_part)(i % 2), i / 2, 0, &cache[i], 1);
        session->n_cached[i / 2] = n_tokens;
    }
    memmove(session->tokens, tokens, n_tokens * sizeof *tokens); /* they may be its own */
    attn__forget_from(session, n_tokens);
    session->has_logits = logits != NULL;
    if (logits)
        memmove(session->logits, logits, c->n_vocab * sizeof(float));
    return ATTN_OK;
}

/* ---- text for a model ---- */

/* The tokens of a text, with a space before it if `spaced` is 1; the caller frees them. NULL on
 * failure. */
static attn_token *attn__tokens_of(attn_ctx *ctx, const char *op, const attn_model *model,
                                   const char *text, size_t spaced, size_t *n_tokens)
{
    const size_t size = text ? strlen(text) + spaced : 0;
    attn_token *tokens;
    if (attn__need_given(ctx, op, "model", model) || attn__need_given(ctx, op, "text", text))
        return NULL;
    if (!attn_model_tokenizer(model)) {
        attn_fail(ctx, ATTN_E_TOKENIZER, "%s: the model has no tokenizer; use tokens", op);
        return NULL;
    }
    /* A text has one token more than bytes at most. The block has the tokens, then the bytes. */
    tokens = (attn_token *)attn_alloc(
        ctx, 1, size < SIZE_MAX / 8 ? (size + 1) * (sizeof *tokens + 1) : SIZE_MAX,
        "a text's tokens");
    if (!tokens)
        return NULL;
    char *bytes = (char *)(tokens + size + 1);
    bytes[0] = ' ';
    memcpy(bytes + spaced, text, size - spaced);
    *n_tokens = size + 1;
    if (attn_encode(ctx, tokens, n_tokens, attn_model_tokenizer(model), bytes, size)) {
        attn_free(tokens);
        return NULL;
    }
    return tokens;
}

ATTN__COLD attn_status attn_feed_text(attn_ctx *ctx, attn_session *session, const char *text)
{
    size_t n = 0;
    ATTN__TRY(attn__need_given(ctx, "attn_feed_text", "session", session));
    attn_token *tokens = attn__tokens_of(ctx, "attn_feed_text", session->model, text, 0, &n);
    if (!tokens)
        return ctx->status;
    attn_status status = attn_feed(ctx, session, tokens, n);
    attn_free(tokens);
    return status;
}

/* Lists tokens as `12 " wor", 7 "d"`, as many as fit. */
static void attn__list_tokens(char *list, size_t room, const attn_model *model,
                              const attn_token *tokens, size_t n_tokens)
{
    size_t at = 0, size;
    list[0] = 0;
    for (size_t i = 0; i < n_tokens && at < room; i++) {
        const char *bytes = attn_token_bytes(&size, attn_model_tokenizer(model), tokens[i]);
        const int shown = size < 20 ? (int)size : 20;
        if (room - at < (size_t)shown + 24) {
            snprintf(list + at, room - at, ", ...");
            return;
        }
        at += (size_t)snprintf(list + at, room - at, "%s%ld \"%.*s%s\"", i > 0 ? ", " : "",
                               (long)tokens[i], shown, bytes, size > 20 ? "..." : "");
    }
}

ATTN__COLD attn_status attn_text_token(attn_ctx *ctx, attn_token *token, const attn_model *model,
                                       const char *text)
{
    static const char op[] = "attn_text_token";
    size_t n = 0, n_spaced = 0;
    char list[128], hint[64];
    ATTN__TRY(attn__need_given(ctx, op, "place for the token", token));
    *token = -1;
    attn_token *tokens = attn__tokens_of(ctx, op, model, text, 0, &n);
    if (tokens && n == 1) {
        *token = tokens[0];
        attn_free(tokens);
        return ATTN_OK;
    }
    attn_token *spaced = tokens ? attn__tokens_of(ctx, op, model, text, 1, &n_spaced) : NULL;
    if (spaced && n == 0) {
        attn_fail(ctx, ATTN_E_TOKEN, "%s: the text is empty; expected one token", op);
    } else if (spaced) {
        hint[0] = 0;
        if (n_spaced == 1)
            snprintf(hint, sizeof hint, "; with a leading space it is one: %ld", (long)spaced[0]);
        attn__list_tokens(list, sizeof list, model, tokens, n);
        attn_fail(ctx, ATTN_E_TOKEN, "%s: \"%.30s%s\" is %zu tokens (%s)%s", op, text,
                  strlen(text) > 30 ? "..." : "", n, list, hint);
    }
    attn_free(tokens);
    attn_free(spaced);
    return ctx->status;
}

/* >>watch (tests: watch) ========================================================================
 * The forward pass calls attn__visit wherever an activation is complete. It knows its watchers only
 * by attn__watcher_kind. Callbacks, records and edits are three kinds. */

/* Which array of the workspace has the rows of an activation: see attn__rows_at. */
typedef enum attn__where {
    ATTN__IN_RESID,
    ATTN__IN_ADDED,
    ATTN__IN_NORMED,
    ATTN__IN_SCALE,
    ATTN__IN_MLP,
    ATTN__IN_QKV,
    ATTN__IN_Z,
    ATTN__IN_SCORES,
    ATTN__IN_PER_HEAD
} attn__where;

#define ATTN__DESCRIBE_POINT(id, name, rows, axes, in_block, on_request)                           \
    {{name, ATTN_AXES_##axes, in_block, on_request}, ATTN__IN_##rows},
static const struct attn__point_info {
    attn_activation_kind kind;
    attn__where rows;
} attn__activations[] = {ATTN__ACTIVATIONS(ATTN__DESCRIBE_POINT)};

/* The name of an activation or a tensor: "blocks.3.attn.hook_q", or only `rest` without a layer. */
static void attn__join_name(char name[64], size_t layer, const char *rest)
{
    if (layer == ATTN_NO_LAYER)
        snprintf(name, 64, "%s", rest);
    else
        snprintf(name, 64, "blocks.%zu.%s", layer, rest);
}

static attn__hook_name attn__name_of(int point, size_t layer)
{
    attn__hook_name name;
    name.text[0] = 0;
    attn__join_name(name.text, attn__activations[point].kind.in_block ? layer : ATTN_NO_LAYER,
                    attn__activations[point].kind.name);
    return name;
}

/* Does the pattern, in which `*` stands for any characters, match the whole text? */
static int attn__matches(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}

static int attn__ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Adds the activations that a pattern matches to points [1 + n_layer]. Returns their number. A
 * pattern that ends in `*` does not match those on request. */
static size_t attn__match_all(const attn_config *c, const char *pattern, uint32_t *points)
{
    size_t n_matches = 0;
    for (int point = 0; point < ATTN__N_POINTS; point++) {
        const attn_activation_kind *kind = &attn__activations[point].kind;
        const size_t n_layers = kind->in_block ? c->n_layer : 0;
        if (kind->on_request && attn__ends_with(pattern, "*"))
            continue;
        for (size_t layer = n_layers ? 0 : ATTN_NO_LAYER; layer + 1 <= n_layers; layer++)
            if (attn__matches(pattern, attn__name_of(point, layer).text)) {
                points[1 + layer] |= ATTN__POINT(point);
                n_matches++;
            }
    }
    return n_matches;
}

ATTN__DEF const attn_activation_kind *attn_activation_kind_at(size_t index)
{
    return index < ATTN__N_POINTS ? &attn__activations[index].kind : NULL;
}

ATTN__COLD const attn_activation_kind *attn_activation_kind_of(const char *name)
{
    const int in_block = name && strncmp(name, "blocks.", 7) == 0;
    const size_t n_digits = in_block ? strspn(name + 7, "0123456789") : 0;
    const char *rest = n_digits > 0 && name[7 + n_digits] == '.' ? name + 8 + n_digits : name;
    for (int point = 0; rest && point < ATTN__N_POINTS; point++)
        if (strcmp(rest, attn__activations[point].kind.name) == 0 &&
            (rest == name || attn__activations[point].kind.in_block))
            return &attn__activations[point].kind;
    return NULL;
}

ATTN__COLD int attn_activation_matches(const char *pattern, const char *name)
{
    const attn_activation_kind *kind = attn_activation_kind_of(name);
    return kind && pattern && !(kind->on_request && attn__ends_with(pattern, "*")) &&
           attn__matches(pattern, name);
}

/* How alike two names are, from 0 to 1: twice the number of letter pairs that both have, divided by
 * the number of all pairs (Dice 1945). A part that is missing, added or moved changes few pairs. */
static double attn__likeness(const char *a, const char *b)
{
    const size_t n = strlen(a), n_all = n + strlen(b);
    size_t n_both = 0;
    for (size_t i = 0; i + 1 < n; i++)
        for (size_t j = 0; b[j]; j++)
            if (a[i] == b[j] && a[i + 1] == b[j + 1]) {
                n_both++;
                break;
            }
    return n_all > 2 ? 2 * (double)n_both / (double)(n_all - 2) : 0;
}

/* The name of the activation that is most like a misspelled one; empty if none is like it. `rest`
 * is the misspelled name without "blocks.i.". */
static attn__hook_name attn__nearest_name(const char *rest, size_t layer)
{
    double best = 0.5;
    attn__hook_name name;
    name.text[0] = 0;
    for (int point = 0; point < ATTN__N_POINTS; point++) {
        const double likeness = attn__likeness(rest, attn__activations[point].kind.name);
        if (likeness > best) {
            best = likeness;
            name = attn__name_of(point, layer);
        }
    }
    return name;
}

/* Lists activations whose names begin with `start`, as many as fit. Returns the number of all. */
static int attn__names_begun(char *list, size_t size, const char *start)
{
    size_t used = 0;
    int n = 0;
    list[0] = 0;
    for (int point = 0; point < ATTN__N_POINTS; point++) {
        const char *name = attn__activations[point].kind.name;
        if (!*start || strncmp(name, start, strlen(start)) != 0)
            continue;
        if (used + strlen(name) + 3 < size)
            used += (size_t)snprintf(list + used, size - used, "%s%s", n ? ", " : "", name);
        n++;
    }
    return n;
}

/* Fails because nothing has this name. The message lists names that begin like it, or the
 * nearest. */
static attn_status attn__no_such_name(attn_ctx *ctx, const char *what, const attn_config *c,
                                      const char *pattern)
{
    const char *rest = pattern;
    size_t layer = 0;
    char begun[128];
    if (strncmp(pattern, "blocks.", 7) == 0) {
        const size_t n_digits = strspn(pattern + 7, "0123456789");
        rest = strchr(pattern + 7, '.');
        rest = rest ? rest + 1 : "";
        if (n_digits > 0 && n_digits < 9)
            layer = strtoul(pattern + 7, NULL, 10);
        ATTN__REFUSE_IF(ctx, n_digits > 0 && (n_digits >= 9 || layer >= c->n_layer), ATTN_E_NAME,
                        "%s: %.80s: the model has %zu layers, 0 to %zu", what, pattern, c->n_layer,
                        c->n_layer - 1);
    }
    ATTN__REFUSE_IF(ctx, attn__ends_with(pattern, "hook_normalized"), ATTN_E_NAME,
                    "%s: %.60s has meant two things: write .pre after it for the value "
                    "before gain and bias (TransformerLens since 2025), .post for the one "
                    "after them (until then)",
                    what, pattern);
    int n_begun = attn__names_begun(begun, sizeof begun, rest);
    ATTN__REFUSE_IF(ctx, n_begun > 1, ATTN_E_NAME,
                    "%s: no activation is called %.60s; %d begin with it: %s", what, pattern,
                    n_begun, begun);
    attn__hook_name near_by = attn__nearest_name(rest, layer);
    ATTN__REFUSE_IF(ctx, near_by.text[0], ATTN_E_NAME,
                    "%s: no activation is called %.80s: did you mean %s?", what, pattern,
                    near_by.text);
    return attn_fail(ctx, ATTN_E_NAME,
                     "%s: no activation is called \"%.80s\"; names look like "
                     "\"blocks.0.attn.hook_pattern\" or \"ln_final.hook_scale\"",
                     what, pattern);
}

/* Does the session have a watcher for one of these points in this layer, or in ATTN_NO_LAYER? */
static int attn__wants(const attn_session *s, uint32_t points, size_t layer)
{
    const attn__watcher *w;
    for (w = s->watchers; w; w = w->next)
        if (w->points[1 + layer] & points)
            return 1;
    return 0;
}

static int attn__anyone_wants(const attn__pass *p, uint32_t points, size_t layer)
{
    if (p->watched)
        for (size_t i = 0; i < p->n_items; i++)
            if (p->items[i].session->n_rows > 0 && attn__wants(p->items[i].session, points, layer))
                return 1;
    return 0;
}

/* Does a watcher want one of these points anywhere? */
static int attn__watches(const attn__watcher *w, uint32_t points)
{
    const size_t n = 1 + w->session->model->config.n_layer;
    for (size_t i = 0; i < n; i++)
        if (w->points[i] & points)
            return 1;
    return 0;
}

/* [n_batch, width] floats for the watchers of a workspace: allocated for the first watcher that
 * needs them, freed after the last. */
static attn_status attn__claim_watched(attn_ctx *ctx, const attn_workspace *ws,
                                       attn__watched *block, size_t width)
{
    size_t n;
    if (block->n_users == 0) {
        ATTN__REFUSE_IF(ctx,
                        width > SIZE_MAX / sizeof(float) || /* cover: 32-bit */
                            attn__mul_overflows(width * sizeof(float), ws->n_batch, &n),
                        ATTN_E_MEMORY,
                        "the activations of every head at %zu positions do not fit in "
                        "memory; make a workspace with a smaller n_batch",
                        ws->n_batch);
        block->data = (float *)attn_alloc(ctx, 1, n, "the activations of every head");
        ATTN__TRY_MEMORY(block->data);
    }
    block->n_users++;
    return ATTN_OK;
}

static void attn__release_watched(attn__watched *block)
{
    if (--block->n_users > 0)
        return;
    attn_free(block->data);
    block->data = NULL;
}

/* Allocates what a workspace needs for the points of a watcher: all of it, or nothing on
 * failure. */
static attn_status attn__claim(attn_ctx *ctx, attn_workspace *ws, const attn__watcher *w)
{
    const size_t heads = ws->model->config.n_head;
    const int scores = attn__watches(w, ATTN__SEES_SCORES);
    attn_status status = ATTN_OK;
    attn__lock(&ws->lock);
    if (scores)
        status = attn__claim_watched(ctx, ws, &ws->scores, heads * attn__round_up(ws->n_ctx, 16));
    if (status == ATTN_OK && attn__watches(w, ATTN__SEES_HEADS)) {
        status = attn__claim_watched(ctx, ws, &ws->heads, 2 * heads * ws->resid.stride);
        if (status != ATTN_OK && scores)
            attn__release_watched(&ws->scores);
    }
    attn__unlock(&ws->lock);
    return status;
}

static void attn__release(attn_workspace *ws, const attn__watcher *w)
{
    attn__lock(&ws->lock);
    if (attn__watches(w, ATTN__SEES_SCORES))
        attn__release_watched(&ws->scores);
    if (attn__watches(w, ATTN__SEES_HEADS))
        attn__release_watched(&ws->heads);
    attn__unlock(&ws->lock);
}

/* The same for all watchers of a session. */
static attn_status attn__claim_all(attn_ctx *ctx, attn_workspace *ws, const attn_session *s)
{
    const attn__watcher *w, *done;
    for (w = s->watchers; w; w = w->next)
        if (attn__claim(ctx, ws, w) != ATTN_OK) {
            for (done = s->watchers; done != w; done = done->next)
                attn__release(ws, done);
            return ctx->status;
        }
    return ATTN_OK;
}

/* Takes a watcher out of its session's list and frees it. */
static void attn__free_watcher(attn__watcher *w)
{
    attn__watcher **link = &w->session->watchers;
    while (*link != w)
        link = &(*link)->next;
    *link = w->next;
    attn__release(w->session->workspace, w);
    if (w->kind->free)
        (w->kind->free)(w);
    attn_free(w);
}

/* Removes a watcher: at once, or at the end of the feed if its session is being fed. Its points
 * stay until then, so that every worker takes the same branches. */
static void attn__remove_watcher(attn__watcher *w)
{
    w->is_removed = 1;
    if (w->session->running != ATTN__FEEDING)
        attn__free_watcher(w);
}

static void attn__sweep_watchers(attn_session *s)
{
    attn__watcher *w, *next;
    for (w = s->watchers; w; w = next) {
        next = w->next;
        if (w->is_removed)
            attn__free_watcher(w);
    }
}

/* Adds a watcher of the activations that match one of the patterns to a session. `size` is that of
 * the kind's own struct. */
static attn_status attn__new_watcher(attn_ctx *ctx, const char *what, attn__watcher **made,
                                     attn_session *session, const attn__watcher_kind *kind,
                                     size_t size, const char *const *patterns, size_t n_patterns)
{
    const attn_config *c = &session->model->config;
    const size_t at = attn__round_up(size, 16);
    attn__watcher *w, **last = &session->watchers;
    attn_status status;
    ATTN__TRY(attn__check_idle(ctx, what, session));
    w = (attn__watcher *)attn_alloc(ctx, 1, at + (1 + c->n_layer) * sizeof *w->points, "a hook");
    ATTN__TRY_MEMORY(w);
    w->points = (uint32_t *)(void *)((unsigned char *)w + at);
    for (size_t i = 0; i < n_patterns; i++)
        if (attn__match_all(c, patterns[i], w->points) == 0) {
            attn_free(w);
            return attn__no_such_name(ctx, what, c, patterns[i]);
        }
    w->kind = kind;
    w->session = session;
    w->id = ++session->n_watchers;
    if ((status = attn__claim(ctx, session->workspace, w)) != ATTN_OK) {
        attn_free(w);
        return status;
    }
    while (*last) /* the end of the list: watchers see activations in the order of their making */
        last = &(*last)->next;
    *last = w;
    *made = w;
    return ATTN_OK;
}

ATTN__COLD attn_status attn_unhook(attn_ctx *ctx, attn_session *session, attn_hook_id id)
{
    attn__watcher *w;
    ATTN__TRY(attn__need_given(ctx, "attn_unhook", "session", session));
    for (w = session->watchers; w; w = w->next)
        if (w->id == id && !w->is_removed) {
            attn__remove_watcher(w);
            return ATTN_OK;
        }
    return attn_fail(ctx, ATTN_E_ARGUMENT, "attn_unhook: %s",
                     id == 0 ? "0 is not the id of a hook; attn_hook gives one"
                     : id <= session->n_watchers
                         ? "this hook was removed before"
                         : "the session has no hook of this id; is it another session's?");
}

ATTN__COLD void attn_unhook_all(attn_session *session)
{
    attn__watcher *w, *next;
    for (w = session ? session->watchers : NULL; w; w = next) {
        next = w->next;
        attn__remove_watcher(w);
    }
}

/* ---- showing rows ---- */

static int attn__is_over_keys(int point)
{
    return attn__activations[point].kind.axes == ATTN_AXES_KEYS;
}

static int attn__has_heads(int point)
{
    return attn__activations[point].kind.axes != ATTN_AXES_POSITIONS;
}

/* The width of an activation at one position, and its number of heads (1 if it has none). For
 * scores and patterns the width is 1, for one key. */
static size_t attn__floats_at(const attn_config *c, int point, size_t *n_heads)
{
    *n_heads = attn__has_heads(point) ? c->n_head : 1;
    switch (attn__activations[point].rows) {
    case ATTN__IN_SCALE:
    case ATTN__IN_SCORES:
        return 1;
    case ATTN__IN_QKV:
    case ATTN__IN_Z:
        return c->d_head;
    case ATTN__IN_MLP:
        return c->d_mlp;
    default:
        return c->d_model;
    }
}

/* The rows of an activation, of all sessions of the pass; not for inputs and results of each head,
 * scores and patterns. */
static attn__rows attn__rows_at(const attn__pass *p, int point)
{
    attn__rows rows = p->ws->normed;
    switch (attn__activations[point].rows) {
    case ATTN__IN_SCALE:
        rows.data = p->ws->scale;
        rows.stride = 1;
        return rows;
    case ATTN__IN_QKV:
        rows = p->ws->qkv;
        rows.data += (size_t)(point - ATTN__POINT_Q) * p->model->config.d_model;
        return rows;
    case ATTN__IN_Z:
        return p->ws->z;
    case ATTN__IN_MLP:
        return p->ws->mlp;
    case ATTN__IN_RESID:
        return p->ws->resid;
    case ATTN__IN_ADDED:
        return p->ws->added;
    default:
        return rows;
    }
}

/* Where a row of a session's scores or patterns [H, T, stride] lies. */
static float *attn__scores_at(const attn__pass *p, const attn_session *of, size_t head, size_t row,
                              size_t *stride)
{
    *stride = attn__round_up(of->length + of->fed + of->n_rows, 16);
    return p->ws->scores.data +
           of->first_row * p->model->config.n_head * attn__round_up(p->ws->n_ctx, 16) +
           (head * of->n_rows + row) * *stride;
}

/* The inputs or the results of each head, a row [H, stride of resid]: as watchers may change them,
 * or the originals, to find out which were changed. */
static attn__rows attn__heads_rows(const attn__pass *p, int original)
{
    const size_t stride = p->model->config.n_head * p->ws->resid.stride;
    const attn__rows rows = {p->ws->heads.data + (original ? p->ws->n_batch * stride : 0), stride,
                             p->n_rows};
    return rows;
}

/* A view of an activation, of the rows of one session. */
static attn_tensor attn__activation_view(const attn__pass *p, const attn_session *of, int point)
{
    const attn_config *c = &p->model->config;
    const size_t n = of->n_rows;
    size_t heads, stride;
    attn__rows rows;
    attn_tensor t;
    if (ATTN__SEES_HEADS & ATTN__POINT(point)) {
        rows = attn__heads_rows(p, point == ATTN__POINT_ATTN_IN);
        t = attn_borrow(attn__row_at(rows, of->first_row), ATTN_F32,
                        attn_shape3(n, c->n_head, c->d_model));
        t.stride[1] = (ptrdiff_t)p->ws->resid.stride;
        t.stride[0] = (ptrdiff_t)rows.stride;
        return t;
    }
    if (attn__is_over_keys(point)) {
        t = attn_borrow(attn__scores_at(p, of, 0, 0, &stride), ATTN_F32,
                        attn_shape3(c->n_head, n, of->length + of->fed + n));
        t.stride[1] = (ptrdiff_t)stride;
        t.stride[0] = (ptrdiff_t)(stride * n);
        return t;
    }
    rows = attn__rows_at(p, point);
    size_t width = attn__floats_at(c, point, &heads);
    t = attn_borrow(attn__row_at(rows, of->first_row), ATTN_F32,
                    attn__has_heads(point) ? attn_shape3(n, heads, width) : attn_shape2(n, width));
    t.stride[0] = (ptrdiff_t)rows.stride;
    return t;
}

/* Stops the pass if the latest callback asked for it, or freed a session of the pass. */
static void attn__note_stop(attn__pass *p, int asked)
{
    p->stopped = asked;
    for (size_t i = 0; i < p->n_items; i++)
        p->stopped |= p->items[i].session->is_freed;
}

/* Shows one activation to the watchers of every session. There is a barrier before each watcher, so
 * that it sees the rows of all workers, and after each callback, because it may remove watchers. */
static ATTN__COMPACT void attn__show_rows(attn__worker *me, attn__pass *p, int point)
{
    attn__shown shown;
    attn__watcher *w;
    if (!attn__anyone_wants(p, ATTN__POINT(point), me->layer))
        return;
    shown.point = point;
    shown.layer = me->layer;
    for (size_t i = 0; i < p->n_items; i++) {
        attn_session *of = p->items[i].session;
        for (w = of->n_rows ? of->watchers : NULL; w; w = w->next) {
            if (w->is_removed || !(w->points[1 + me->layer] & ATTN__POINT(point)))
                continue;
            attn__barrier(me);
            shown.session = of;
            shown.first = of->length + of->fed;
            shown.value = attn__activation_view(p, of, point);
            if (!w->kind->is_serial)
                w->kind->rows(me, w, &shown);
            else if (me->id == 0 && !p->stopped)
                attn__note_stop(p, w->kind->rows(me, w, &shown));
            if (w->kind->is_serial)
                attn__barrier(me);
        }
    }
    attn__barrier(me);
}

static void attn__visit(attn__worker *me, attn__pass *p, int point)
{
    if (p->watched)
        attn__visit_watched(me, p, point);
}

/* ---- on request: activations that are computed only while watched ---- */

/* This worker's share of the rows of a session, as rows [*first, *last) of the pass. It is empty if
 * no watcher wants one of the points in this layer. */
static void attn__wanted_share(const attn__worker *me, const attn_session *of, uint32_t points,
                               size_t *first, size_t *last)
{
    attn__share(me, attn__wants(of, points, me->layer) ? of->n_rows : 0, first, last);
    *first += of->first_row;
    *last += of->first_row;
}

/* q (part 0), k (1) or v (2) of one head for rows [row, end), at most ATTN__QUERIES of them, from
 * its own normalized inputs. Panels have 16 columns of W_QKV, so a few columns of other heads are
 * computed too. */
static void attn__project_head(const attn__worker *me, const attn__pass *p, int part, size_t head,
                               size_t row, size_t end)
{
    const attn_config *c = &p->model->config;
    const attn__layer *l = &p->model->layers[me->layer];
    const size_t d = c->d_head, column = (size_t)part * c->d_model + head * d;
    const size_t first = column / 16 * 16;
    const attn__scratchpad s = attn__scratchpad_of(me, p);
    attn__rows in = attn__heads_rows(p, 0), out;
    in.data = attn__row_at(in, row) + head * p->ws->resid.stride;
    in.n = end - row;
    out.data = s.last_chain;
    out.n = in.n;
    out.stride = attn__round_up(d, 16) + 16; /* `last_chain` and `buffer` have room for it */
    attn__matmul_job job = attn__job_of(out, in, l->w_qkv, l->b_qkv + first);
    job.w.data = (const unsigned char *)job.w.data + first / 16 * job.w.stride;
    job.w.n_out = column + d - first;
    attn__matmul_panels(p->kernels, &job, 0, job.rows, 0, (job.w.n_out + 15) / 16, s.pack);
    for (size_t i = 0; i < job.rows; i++)
        memcpy(attn__row_at(p->ws->qkv, row + i) + column, attn__row_at(out, i) + column - first,
               d * sizeof(float));
}

/* Applies layernorm1 to this head's inputs, in place, from `row` on as long as a watcher has
 * changed them: at most to `last`, at most ATTN__QUERIES rows. Returns the first row that it
 * left. */
static size_t attn__changed_rows(const attn__worker *me, const attn__pass *p, size_t head,
                                 size_t row, size_t last)
{
    const attn_config *c = &p->model->config;
    const attn__layer *l = &p->model->layers[me->layer];
    const attn__rows heads = attn__heads_rows(p, 0);
    const size_t end = last - row < ATTN__QUERIES ? last : row + ATTN__QUERIES;
    float mean, scale;
    for (; row < end; row++) {
        float *copy = attn__row_at(heads, row) + head * p->ws->resid.stride;
        if (memcmp(copy, attn__row_at(p->ws->resid, row), c->d_model * sizeof(float)) == 0)
            break;
        attn__moments(p->kernels, copy, c->d_model, c->ln_eps, &mean, &scale);
        p->kernels->normalize(copy, copy, mean, scale, c->d_model);
        p->kernels->affine(copy, copy, l->ln1_w, l->ln1_b, c->d_model);
    }
    return row;
}

/* The queries, keys or values (part 0, 1, 2) of rows [first, last), for the heads whose input was
 * changed. */
static void attn__project_changed(const attn__worker *me, const attn__pass *p, int part,
                                  size_t first, size_t last)
{
    size_t end;
    for (size_t head = 0; head < p->model->config.n_head; head++)
        for (size_t row = first; row < last; row = end + (end == row)) {
            end = attn__changed_rows(me, p, head, row, last);
            if (end > row)
                attn__project_head(me, p, part, head, row, end);
        }
}

/* Shows hook_attn_in [T, H, C], the residual stream that enters ln1, copied for each head; then
 * hook_q_input, hook_k_input and hook_v_input, copies of that. Where a watcher changed a row of a
 * head, its q, k or v becomes that of layernorm1(row). All others keep their bits. */
static void attn__split_inputs(attn__worker *me, attn__pass *p)
{
    const attn_config *c = &p->model->config;
    const size_t stride = p->ws->resid.stride;
    size_t first, last;
    if (!attn__anyone_wants(p, ATTN__SEES_INPUTS, me->layer))
        return;
    attn__rows heads = attn__heads_rows(p, 0);
    attn__rows original = attn__heads_rows(p, 1);
    for (size_t i = 0; i < p->n_items; i++) {
        attn__wanted_share(me, p->items[i].session, ATTN__SEES_INPUTS, &first, &last);
        for (size_t row = first; row < last; row++)
            for (size_t head = 0; head < c->n_head; head++)
                memcpy(attn__row_at(original, row) + head * stride, attn__row_at(p->ws->resid, row),
                       stride * sizeof(float));
    }
    attn__show_rows(me, p, ATTN__POINT_ATTN_IN);
    for (int part = 0; part < 3; part++) { /* q, k, v */
        for (size_t i = 0; i < p->n_items; i++) {
            attn__wanted_share(me, p->items[i].session, ATTN__SEES_INPUTS, &first, &last);
            if (last > first)
                memcpy(attn__row_at(heads, first), attn__row_at(original, first),
                       (last - first) * heads.stride * sizeof(float));
        }
        attn__show_rows(me, p, ATTN__POINT_Q_INPUT + part);
        for (size_t i = 0; i < p->n_items; i++) {
            attn__wanted_share(me, p->items[i].session, ATTN__SEES_INPUTS, &first, &last);
            attn__project_changed(me, p, part, first, last);
        }
    }
    attn__barrier(me);
}

/* out [rows, C] = z [rows, d] · W_O [d, C] of one head: its addition to attn_out, without b_O. In
 * q8 and q4 the head's rows of W_O may begin within a block of 64. So z gets zeros around it, in
 * `padded`, which has room for n_floats. */
static void attn__head_result(const attn__kernels *kernels, const attn__panels *w_o, size_t head,
                              attn__rows out, attn__rows z, size_t d, float *buffer,
                              size_t n_floats, float *pack)
{
    const size_t block = attn__is_quantized(w_o->dtype) ? ATTN__PER_SCALES : 1;
    const size_t from = head * d / block * block, until = attn__round_up(head * d + d, block);
    const size_t n_in = (until < w_o->n_in ? until : w_o->n_in) - from, most = n_floats / n_in;
    attn__rows padded;
    size_t n;
    padded.data = buffer;
    padded.stride = n_in;
    for (size_t row = 0; row < z.n; row += n) {
        attn__rows to = out;
        n = padded.n = z.n - row < most ? z.n - row : most;
        memset(buffer, 0, n * n_in * sizeof(float));
        for (size_t i = 0; i < n; i++)
            memcpy(attn__row_at(padded, i) + head * d - from, attn__row_at(z, row + i),
                   d * sizeof(float));
        to.data = attn__row_at(out, row);
        attn__matmul_job job = attn__job_of(to, padded, *w_o, NULL);
        job.w.data = (const unsigned char *)job.w.data + attn__line_of(w_o->dtype, from);
        job.w.n_in = n_in;
        attn__matmul_panels(kernels, &job, 0, n, 0, (w_o->n_out + 15) / 16, pack);
    }
}

/* hook_result [T, H, C] of rows [first, last). */
static void attn__make_results(const attn__worker *me, const attn__pass *p, size_t first,
                               size_t last)
{
    const attn_config *c = &p->model->config;
    const attn__scratchpad s = attn__scratchpad_of(me, p);
    for (size_t head = 0; head < c->n_head; head++) {
        attn__rows out = attn__heads_rows(p, 0), z = p->ws->z;
        out.data = attn__row_at(out, first) + head * p->ws->resid.stride;
        z.data = attn__row_at(z, first) + head * c->d_head;
        out.n = z.n = last - first;
        attn__head_result(p->kernels, &p->model->layers[me->layer].w_o, head, out, z, c->d_head,
                          s.last_chain, s.buffer_size + (size_t)(s.buffer - s.last_chain), s.pack);
    }
}

/* Shows hook_result [T, H, C] = z [T, H, d] · W_O [H, d, C]. attn_out is its sum over heads, plus
 * b_O. It has been computed by one matmul; only rows in which a watcher changed a result are summed
 * again, so that reading results changes no bit. */
static void attn__show_results(attn__worker *me, attn__pass *p)
{
    const attn_config *c = &p->model->config;
    const uint32_t wanted = ATTN__POINT(ATTN__POINT_RESULT);
    size_t first, last;
    if (!attn__anyone_wants(p, wanted, me->layer))
        return;
    attn__rows heads = attn__heads_rows(p, 0);
    attn__rows original = attn__heads_rows(p, 1);
    for (size_t i = 0; i < p->n_items; i++) {
        attn__wanted_share(me, p->items[i].session, wanted, &first, &last);
        attn__make_results(me, p, first, last);
        if (last > first)
            memcpy(attn__row_at(original, first), attn__row_at(heads, first),
                   (last - first) * heads.stride * sizeof(float));
    }
    attn__show_rows(me, p, ATTN__POINT_RESULT);
    for (size_t i = 0; i < p->n_items; i++) {
        attn__wanted_share(me, p->items[i].session, wanted, &first, &last);
        for (size_t row = first; row < last; row++) {
            const float *results = attn__row_at(heads, row);
            float *sum = attn__row_at(p->ws->added, row);
            if (memcmp(results, attn__row_at(original, row), heads.stride * sizeof(float)) == 0)
                continue;
            memcpy(sum, results, c->d_model * sizeof(float));
            for (size_t head = 1; head < c->n_head; head++)
                p->kernels->binary(ATTN__ADD, sum, sum, results + head * p->ws->resid.stride,
                                   c->d_model);
            p->kernels->binary(ATTN__ADD, sum, sum, p->model->layers[me->layer].b_o, c->d_model);
        }
    }
    attn__barrier(me);
}

/* This worker's share of the rows. */
static void attn__copy_rows(attn__worker *me, attn__rows to, attn__rows from)
{
    size_t first, last;
    attn__share(me, from.n, &first, &last);
    if (last > first)
        memcpy(attn__row_at(to, first), attn__row_at(from, first),
               (last - first) * to.stride * sizeof(float));
}

/* Shows hook_mlp_in, a copy of the stream that enters ln2. Watchers may change it, and the stream
 * must stay. So ln2 reads the changed rows in `resid`, while `added` keeps the stream. */
static void attn__show_mlp_in(attn__worker *me, attn__pass *p)
{
    if (!attn__anyone_wants(p, ATTN__POINT(ATTN__POINT_MLP_IN), me->layer))
        return;
    attn__copy_rows(me, p->ws->added, p->ws->resid);
    attn__show_rows(me, p, ATTN__POINT_MLP_IN);
}

/* Shows an activation in a pass with watchers, and those on request that belong to it. */
static ATTN__COMPACT void attn__visit_watched(attn__worker *me, attn__pass *p, int point)
{
    if (point == ATTN__POINT_Q)
        attn__split_inputs(me, p);
    if (point == ATTN__POINT_ATTN_OUT)
        attn__show_results(me, p);
    attn__show_rows(me, p, point);
    if (point == ATTN__POINT_RESID_MID)
        attn__show_mlp_in(me, p);
    if (point == ATTN__POINT_LN2_SCALE + 2 &&
        attn__anyone_wants(p, ATTN__POINT(ATTN__POINT_MLP_IN), me->layer))
        attn__copy_rows(me, p->ws->resid, p->ws->added);
}

/* ---- attention whose scores or patterns are watched ---- */

/* Scores of one block of queries, and -inf for keys behind the last of them. */
static void attn__score_block(const attn__worker *me, attn__pass *p, const attn_session *of,
                              size_t head, size_t row, attn__scratchpad s)
{
    const attn__head h = attn__head_of(p, of, me->layer, head, row);
    const size_t n_keys = of->length + of->fed + of->n_rows;
    size_t stride;
    if (!attn__wants(of, ATTN__SEES_SCORES, me->layer))
        return;
    float *scores = attn__scores_at(p, of, head, row, &stride);
    attn__head_scores(p->kernels, &h, scores, stride, s.pack);
    for (size_t i = 0; i < h.rows; i++)
        for (size_t key = h.keys.n_out; key < n_keys; key++)
            scores[i * stride + key] = -INFINITY;
}

/* The pattern of one block: softmax over the keys that each query sees. Later keys get 0, whatever
 * a watcher wrote there. */
static void attn__softmax_block(const attn__worker *me, attn__pass *p, const attn_session *of,
                                size_t head, size_t row, attn__scratchpad s)
{
    const attn__head h = attn__head_of(p, of, me->layer, head, row);
    const size_t n_keys = of->length + of->fed + of->n_rows;
    size_t stride;
    (void)s;
    if (!attn__wants(of, ATTN__SEES_SCORES, me->layer))
        return;
    float *scores = attn__scores_at(p, of, head, row, &stride);
    for (size_t i = 0; i < h.rows; i++, scores += stride) {
        const size_t visible = h.first + i + 1;
        p->kernels->softmax(scores, scores, visible);
        memset(scores + visible, 0, (n_keys - visible) * sizeof(float));
    }
}

/* z of one block: from the watched pattern, or by all three steps if no watcher of this session
 * wants scores or patterns. */
static void attn__weigh_block(const attn__worker *me, attn__pass *p, const attn_session *of,
                              size_t head, size_t row, attn__scratchpad s)
{
    const attn__head h = attn__head_of(p, of, me->layer, head, row);
    size_t stride;
    if (attn__wants(of, ATTN__SEES_SCORES, me->layer)) {
        const float *pattern = attn__scores_at(p, of, head, row, &stride);
        attn__head_weigh(p->kernels, &h, pattern, stride, s.last_chain, s.pack);
    } else {
        attn__attend_block(p, &h, s);
    }
}

/* attn__attend in three steps, with the scores and then the patterns of all rows in memory. */
static void attn__attend_watched(attn__worker *me, attn__pass *p)
{
    attn__each_block(me, p, attn__score_block);
    attn__show_rows(me, p, ATTN__POINT_SCORES);
    attn__each_block(me, p, attn__softmax_block);
    attn__show_rows(me, p, ATTN__POINT_PATTERN);
    attn__each_block(me, p, attn__weigh_block);
}

/* ---- callbacks ---- */

typedef struct attn__callback {
    attn__watcher base;
    attn_hook_fn fn;
    void *user;
} attn__callback;

static int attn__call_back(const attn__worker *me, attn__watcher *w, const attn__shown *shown)
{
    const attn__callback *callback = (const attn__callback *)(const void *)w;
    const attn__hook_name name = attn__name_of(shown->point, shown->layer);
    attn_activation a;
    (void)me;
    a.name = name.text;
    a.kind = &attn__activations[shown->point].kind;
    a.layer = shown->layer;
    a.session = shown->session;
    a.first = shown->first;
    a.value = shown->value;
    return callback->fn(&a, callback->user) != 0;
}

static const attn__watcher_kind attn__callbacks = {1,    NULL, NULL, attn__call_back,
                                                   NULL, NULL, NULL};

ATTN__COLD attn_status attn_hook(attn_ctx *ctx, attn_hook_id *id, attn_session *session,
                                 const char *pattern, attn_hook_fn fn, void *user)
{
    attn__watcher *w = NULL;
    attn__callback *callback;
    if (id)
        *id = 0;
    ATTN__TRY(attn__need_given(ctx, "attn_hook", "session", session));
    ATTN__TRY(attn__need_given(ctx, "attn_hook", "name", pattern));
    ATTN__REFUSE_IF(ctx, !fn, ATTN_E_ARGUMENT, "attn_hook: no callback was given");
    ATTN__TRY(attn__new_watcher(ctx, "attn_hook", &w, session, &attn__callbacks, sizeof *callback,
                                &pattern, 1));
    callback = (attn__callback *)(void *)w;
    callback->fn = fn;
    callback->user = user;
    if (id)
        *id = w->id;
    return ATTN_OK;
}

ATTN__SMALL_END

/* >>sampling (tests: sampling) ==================================================================
 * From logits to one token. Sums have a fixed order and random numbers are this file's own, so a
 * seed gives the same text everywhere. */

/* A token by its likelihood: a smaller number is a likelier token; of equal logits, the one with
 * the smaller id. The id is the lower half. */
static uint64_t attn__candidate(float logit, size_t id)
{
    uint32_t bits;
    logit = logit + 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &logit, 4);
    return (uint64_t)(bits >> 31 ? bits : ~bits & 0x7fffffffu) << 32 | id;
}

static size_t attn__candidate_id(uint64_t candidate)
{
    return (size_t)(candidate & 0xffffffffu);
}

struct attn_sampler {
    attn_sampler_desc desc;
    attn_rng rng;
    const attn__kernels *kernels;
    size_t n_vocab;
    float *logits, *weights; /* [n_vocab]; weight = exp(logit - largest) */
    uint64_t *candidates;    /* [n_vocab] */
};

ATTN__COLD attn_status attn_sampler_new(attn_ctx *ctx, attn_sampler **sampler, size_t n_vocab,
                                        const attn_sampler_desc *desc)
{
    attn_sampler *s;
    attn_sampler_desc d = ATTN_ZERO;
    char number[32], second[32];
    if (desc)
        d = *desc;
    ATTN__TRY(attn__need_place(ctx, "attn_sampler_new", "place for the sampler", sampler));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_sampler_desc, desc));
    ATTN__REFUSE_IF(
        ctx, n_vocab == 0 || n_vocab > INT32_MAX || n_vocab > SIZE_MAX / sizeof *s->candidates,
        ATTN_E_ARGUMENT, "attn_sampler_new: a vocabulary of %zu tokens", n_vocab);
    ATTN__REFUSE_IF(ctx, !(d.temperature >= 0 && d.temperature <= FLT_MAX), ATTN_E_ARGUMENT,
                    "temperature is %s; expected 0 (greedy) or a positive number",
                    attn__show_number(number, (double)d.temperature));
    ATTN__REFUSE_IF(ctx, !(d.top_p >= 0 && d.top_p <= 1) || !(d.min_p >= 0 && d.min_p <= 1),
                    ATTN_E_ARGUMENT, "top_p is %s and min_p %s; expected probabilities from 0 to 1",
                    attn__show_number(number, (double)d.top_p),
                    attn__show_number(second, (double)d.min_p));
    ATTN__REFUSE_IF(ctx, !(d.repeat_penalty >= 0 && d.repeat_penalty <= FLT_MAX), ATTN_E_ARGUMENT,
                    "repeat_penalty is %s; expected 0 (none) or a positive number",
                    attn__show_number(number, (double)d.repeat_penalty));
    s = ATTN__NEW(ctx, attn_sampler, 1, "a sampler");
    ATTN__TRY_MEMORY(s);
    s->desc = d;
    s->n_vocab = n_vocab;
    attn_rng_seed(&s->rng, d.seed);
    if (attn__need_kernels(ctx, &s->kernels) == ATTN_OK) {
        s->logits = ATTN__NEW(ctx, float, n_vocab, "a sampler");
        s->weights = ATTN__NEW(ctx, float, n_vocab, "a sampler");
        s->candidates = ATTN__NEW(ctx, uint64_t, n_vocab, "a sampler");
    }
    if (!s->logits || !s->weights || !s->candidates) {
        attn_sampler_free(s);
        return ctx->status;
    }
    *sampler = s;
    return ATTN_OK;
}

ATTN__COLD void attn_sampler_free(attn_sampler *sampler)
{
    if (!sampler)
        return;
    attn_free(sampler->logits);
    attn_free(sampler->weights);
    attn_free(sampler->candidates);
    attn_free(sampler);
}

/* The weight of the candidate at this index, from the end of the array. */
static float attn__weight_at(const attn_sampler *s, size_t from_end)
{
    return s->weights[attn__candidate_id(s->candidates[s->n_vocab - 1 - from_end])];
}

/* The filters move the candidates that they keep to the end of the array, likeliest last. They
 * return their number. Only these are sorted. */

/* Top-p, of the `most` candidates that top-k kept: the likeliest that together have a part of top_p
 * of the probability of all `most`. */
static size_t attn__keep_top_p(attn_sampler *s, size_t most)
{
    const size_t n = s->n_vocab;
    size_t left = n, kept = 0;
    double sum = 0, total = 0;
    if (most == n)
        for (size_t i = 0; i < n; i++)
            total += s->weights[i];
    else
        for (size_t i = 0; i < most; i++) {
            attn__heap_pop(s->candidates, &left);
            total += attn__weight_at(s, i);
        }
    for (; kept < most && sum < s->desc.top_p * total; kept++) {
        if (most == n)
            attn__heap_pop(s->candidates, &left);
        sum += attn__weight_at(s, kept);
    }
    return kept;
}

/* Min-p, of the `most` likeliest. */
static size_t attn__keep_min_p(attn_sampler *s, size_t most)
{
    size_t kept, left = s->n_vocab;
    for (kept = 0; kept < most; kept++) {
        attn__heap_pop(s->candidates, &left);
        if (attn__weight_at(s, kept) < s->desc.min_p && kept > 0)
            break;
    }
    return kept;
}

static size_t attn__filter(attn_sampler *s)
{
    const attn_sampler_desc *d = &s->desc;
    const size_t n = s->n_vocab, most = d->top_k > 0 && d->top_k < n ? d->top_k : n;
    size_t kept;
    attn__heapify(s->candidates, n);
    if (!(d->top_p > 0 && d->top_p < 1))
        return most < n || d->min_p > 0 ? attn__keep_min_p(s, most) : n;
    for (kept = attn__keep_top_p(s, most); kept > 1; kept--)
        if (attn__weight_at(s, kept - 1) >= d->min_p)
            break;
    return kept;
}

/* Index of the first NaN, or of the first maximum. It searches only the piece that has it. */
static size_t attn__largest_at(const attn__kernels *kernels, const float *x, size_t n)
{
    const size_t piece = 1024;
    float largest = -INFINITY;
    size_t i = 0;
    for (size_t at = 0; at < n; at += piece) {
        const float here = kernels->largest_or_nan(x + at, n - at < piece ? n - at : piece);
        if (here > largest || here != here) {
            largest = here;
            i = at;
        }
        if (here != here)
            break;
    }
    while (largest == largest ? x[i] != largest : x[i] == x[i])
        i++;
    return i;
}

/* Fails if no token is possible. */
static attn_status attn__need_possible(attn_ctx *ctx, float largest)
{
    return largest > -INFINITY ? ATTN_OK
                               : attn_fail(ctx, ATTN_E_ARGUMENT,
                                           "attn_sample: all logits are -inf, so no token can be "
                                           "picked; expected at least one that is larger");
}

/* s->logits = logits after the repetition penalty */
static void attn__penalize(attn_sampler *s, const float *logits, const attn_token *seen,
                           size_t n_seen)
{
    const attn_sampler_desc *d = &s->desc;
    size_t i = d->repeat_last > 0 && d->repeat_last < n_seen ? n_seen - d->repeat_last : 0;
    memcpy(s->logits, logits, s->n_vocab * sizeof(float));
    if (d->repeat_penalty > 0) /* a penalty of 1 changes nothing */
        for (; i < n_seen; i++)
            if (seen[i] >= 0 && (size_t)seen[i] < s->n_vocab) {
                const float x = logits[seen[i]];
                s->logits[seen[i]] = x > 0 ? x / d->repeat_penalty : x * d->repeat_penalty;
            }
}

/* Draws from s->logits, whose largest is `largest`: temperature, filters, one random number. */
static attn_token attn__draw(attn_sampler *s, float largest)
{
    const size_t n = s->n_vocab;
    double total = 0, sum = 0;
    size_t i;
    for (i = 0; i < n; i++)
        s->weights[i] = (s->logits[i] - largest) / s->desc.temperature;
    (s->kernels->exp)(s->weights, s->weights, n);
    for (i = 0; i < n; i++)
        s->candidates[i] = attn__candidate(s->logits[i], i);
    size_t kept = attn__filter(s);
    for (i = 0; i < kept; i++)
        total += attn__weight_at(s, i);
    uint32_t high = attn_rng_u32(&s->rng);
    double target = ((high >> 5) * 67108864.0 + (attn_rng_u32(&s->rng) >> 6)) / 9007199254740992.0;
    target = target * total;
    for (i = 0; i < kept; i++) {
        sum += attn__weight_at(s, i);
        if (sum > target)
            break;
    }
    return (attn_token)attn__candidate_id(s->candidates[n - 1 - (i < kept ? i : kept - 1)]);
}

ATTN__DEF attn_status attn_sample(attn_ctx *ctx, attn_token *token, attn_sampler *sampler,
                                  const float *logits, const attn_token *seen, size_t n_seen)
{
    ATTN__TRY(attn__need_given(ctx, "attn_sample", "sampler", sampler));
    ATTN__TRY(attn__need_given(ctx, "attn_sample", "logits (feed a token first)", logits));
    ATTN__TRY(attn__need_given(ctx, "attn_sample", "place for the token", token));
    if (n_seen > 0)
        ATTN__TRY(attn__need_given(ctx, "attn_sample", "seen tokens", seen));
    const attn_sampler_desc *d = &sampler->desc;
    size_t best = attn__largest_at(sampler->kernels, logits, sampler->n_vocab);
    ATTN__REFUSE_IF(ctx, logits[best] != logits[best], ATTN_E_ARGUMENT,
                    "attn_sample: the logit of token %zu is NaN", best);
    ATTN__TRY(attn__need_possible(ctx, logits[best]));
    *token = (attn_token)best;
    if (d->temperature == 0 && (d->repeat_penalty == 0 || d->repeat_penalty == 1))
        return ATTN_OK;
    attn__penalize(sampler, logits, seen, n_seen);
    best = attn__largest_at(sampler->kernels, sampler->logits, sampler->n_vocab);
    ATTN__TRY(attn__need_possible(ctx, sampler->logits[best]));
    *token = (attn_token)best;
    if (d->temperature > 0 && sampler->logits[best] < INFINITY) /* +inf is certain */
        *token = attn__draw(sampler, sampler->logits[best]);
    return ATTN_OK;
}

ATTN__SMALL

/* >>score (tests: score) ========================================================================
 * The loss of each token of a text, and the likeliest tokens at each position. */

/* The k likeliest of logits x [n], likeliest first; of equal ones the first. A heap [k] has the
 * least likely on top (of complements the largest), which a likelier one replaces: O(n log k). */
static void attn__likeliest(const float *x, size_t n, uint64_t *heap, size_t k)
{
    if (k == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        const uint64_t c = ~attn__candidate(x[i], i);
        if (i < k)
            heap[i] = c;
        if (i + 1 == k)
            attn__heapify(heap, k);
        if (i >= k && c > heap[0]) {
            heap[0] = c;
            attn__heap_sift(heap, k, 0);
        }
    }
    for (size_t i = k; i > 0;)
        attn__heap_pop(heap, &i);
}

/* How many of x [n] are likelier than entry `target`, or equal and before it. */
static size_t attn__rank(const float *x, size_t n, size_t target)
{
    size_t rank = 0;
    for (size_t i = 0; i < n; i++)
        rank += x[i] > x[target] || (i < target && x[i] == x[target]);
    return rank;
}

/* -log of the probability of entry i. If there is a logit of +inf, the first such entry, `certain`,
 * has probability 1, as in attn_sample. */
static float attn__nll(const float *x, size_t i, float largest, float log_sum, size_t certain)
{
    if (largest == INFINITY)
        return i == certain ? 0 : INFINITY;
    return log_sum - (x[i] - largest);
}

/* The statistics of one row of logits: of the target into *stats (may be NULL), and of the k
 * likeliest tokens into `top`. `heap` [k] is work memory. Returns 0 if a logit is NaN, or all are
 * -inf. */
static int attn__row_stats(const attn__kernels *kernels, const float *x, size_t n,
                           attn_token target, attn_token_stats *stats, attn_prediction *top,
                           size_t k, uint64_t *heap)
{
    float largest, log_sum = kernels->log_sum_exp(x, n, &largest), log_p;
    size_t certain = 0;
    if (largest == INFINITY) {
        certain = attn__largest_at(kernels, x, n);
        log_sum = x[certain] == INFINITY ? 0 : NAN;
    }
    if (log_sum != log_sum)
        return 0;
    if (stats) {
        stats->nll = attn__nll(x, (size_t)target, largest, log_sum, certain);
        log_p = -stats->nll;
        (kernels->exp)(&stats->probability, &log_p, 1);
        stats->rank = attn__rank(x, n, (size_t)target);
    }
    attn__likeliest(x, n, heap, k);
    for (size_t i = 0; i < k; i++) {
        const size_t id = attn__candidate_id(~heap[i]);
        top[i].token = (attn_token)id;
        top[i].logit = x[id];
        log_p = -attn__nll(x, id, largest, log_sum, certain);
        (kernels->exp)(&top[i].probability, &log_p, 1);
    }
    return 1;
}

/* Copies the caller's attn_top, which may be NULL, after a check. */
static attn_status attn__need_top(attn_ctx *ctx, const char *op, attn_top *top,
                                  const attn_top *given, size_t n_vocab)
{
    const attn_top none = {NULL, 0};
    *top = given ? *given : none;
    ATTN__REFUSE_IF(ctx, top->k > n_vocab || (top->k > 0 && !top->best), ATTN_E_ARGUMENT,
                    top->best ? "%s: the %llu likeliest of a vocabulary of %llu"
                              : "%s: no room for the %llu likeliest of %llu tokens was given",
                    op, ATTN__LLU(top->k), ATTN__LLU(n_vocab));
    return ATTN_OK;
}

ATTN__COLD attn_status attn_logit_stats(attn_ctx *ctx, attn_token_stats *stats, const attn_top *top,
                                        attn_tensor logits, const attn_token *targets)
{
    attn_top room;
    const attn__kernels *kernels;
    const attn_shape shape = attn__shape_of(&logits);
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__need_kernels(ctx, &kernels));
    ATTN__TRY(attn__need(ctx, "attn_logit_stats", "logits", &logits));
    size_t n = logits.shape[1];
    if (logits.ndim != 2 || n == 0)
        return attn__misfit(ctx, "attn_logit_stats", "logits have", &logits, NULL, NULL,
                            "expected [T, V]");
    ATTN__REFUSE_IF(ctx, !targets != !stats, ATTN_E_ARGUMENT, "attn_logit_stats: no %s was given",
                    stats ? "target" : "room for the targets' statistics");
    ATTN__TRY(attn__need_top(ctx, "attn_logit_stats", &room, top, n));
    if (targets)
        ATTN__TRY(
            attn__need_ids(ctx, "attn_logit_stats", "target", targets, 1, logits.shape[0], n));
    float *buffers = attn__row_buffers(ctx, n);
    uint64_t *heap = buffers ? ATTN__NEW(ctx, uint64_t, room.k, "likely tokens") : NULL;
    if (!heap)
        status = ATTN_E_MEMORY;
    for (size_t t = 0; t < logits.shape[0] && status == ATTN_OK; t++)
        if (!attn__row_stats(kernels, attn__row(&logits, &shape, t, n, buffers), n,
                             targets ? targets[t] : 0, stats ? stats + t : NULL,
                             room.k ? room.best + t * room.k : NULL, room.k, heap))
            status = attn_fail(ctx, ATTN_E_ARGUMENT,
                               "attn_logit_stats: the logits of row %zu hold a NaN, or are all "
                               "-inf",
                               t);
    attn_free(heap);
    attn_free(buffers);
    return status;
}

/* A text that attn_score feeds, some tokens at a time. */
typedef struct attn__scoring {
    attn_session *session;
    const attn_token *tokens;
    size_t n_tokens, start; /* start: the position of its first token */
    attn_token_stats *stats;
    attn_top top;
    uint64_t *heap; /* [top.k] */
} attn__scoring;

/* Token i of the text. If it was fed, it is taken from the session: the caller's tokens may be the
 * session's own from before a truncation, which feeding overwrites. */
static attn_token attn__scored_token(const attn__scoring *s, size_t i)
{
    const size_t at = s->start + i;
    return at < s->session->length ? s->session->tokens[at] : s->tokens[i];
}

/* The statistics of tokens [from, end) of the text, which were just fed. */
static attn_status attn__score_rows(attn_ctx *ctx, const attn__scoring *s, size_t from, size_t end,
                                    const float *logits)
{
    const size_t n_vocab = s->session->model->config.n_vocab;
    for (size_t i = from; i < end; i++, logits += n_vocab) {
        const int has_next = i + 1 < s->n_tokens;
        ATTN__REFUSE_IF(
            ctx,
            !attn__row_stats(s->session->workspace->kernels, logits, n_vocab,
                             has_next ? attn__scored_token(s, i + 1) : 0,
                             has_next && s->stats ? s->stats + i : NULL,
                             s->top.k ? s->top.best + i * s->top.k : NULL, s->top.k, s->heap),
            ATTN_E_ARGUMENT, "attn_score: the logits at position %zu hold a NaN, or are all -inf",
            s->start + i);
    }
    return ATTN_OK;
}

ATTN__COLD attn_status attn_score(attn_ctx *ctx, attn_token_stats *stats, const attn_top *top,
                                  attn_session *session, const attn_token *tokens, size_t n_tokens)
{
    const size_t at_once = 32; /* rows of logits in memory */
    attn__scoring s = {session, tokens, n_tokens, 0, stats, {NULL, 0}, NULL};
    attn_feed_item item = attn__feed_of(session, tokens, n_tokens);
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__need_given(ctx, "attn_score", "session", session));
    size_t n_vocab = session->model->config.n_vocab;
    ATTN__TRY(attn__check_item(ctx, &item, session->model));
    ATTN__TRY(attn__need_top(ctx, "attn_score", &s.top, top, n_vocab));
    float *logits = ATTN__NEW(ctx, float, (at_once + 1) * n_vocab, "rows of logits");
    s.heap = logits ? ATTN__NEW(ctx, uint64_t, s.top.k, "likely tokens") : NULL;
    if (!s.heap) {
        attn_free(logits);
        return ATTN_E_MEMORY;
    }
    s.start = session->length;
    session->n_calls++;
    int had_logits = session->has_logits;
    memcpy(logits + at_once * n_vocab, session->logits, n_vocab * sizeof(float));
    item.logits = logits;
    for (size_t at = 0; at < n_tokens && status == ATTN_OK; at += at_once) {
        item.tokens = tokens + at;
        item.n_tokens = n_tokens - at < at_once ? n_tokens - at : at_once;
        status = attn_feed_batch(ctx, &item, 1);
        if (status == ATTN_OK)
            status = attn__score_rows(ctx, &s, at, at + item.n_tokens, logits);
    }
    if (status != ATTN_OK) {
        attn__forget_from(session, s.start);
        session->has_logits = had_logits;
        memcpy(session->logits, logits + at_once * n_vocab, n_vocab * sizeof(float));
    }
    attn__session_drop(session);
    attn_free(s.heap);
    attn_free(logits);
    return status;
}

ATTN__DEF double attn_mean_nll(const attn_token_stats *stats, size_t n_stats)
{
    double sum = 0;
    if (!stats || n_stats == 0)
        return (double)NAN;
    for (size_t i = 0; i < n_stats; i++)
        sum += (double)stats[i].nll;
    return sum / (double)n_stats;
}

/* >>generate (tests: generate) ==================================================================
 * Text in, text out: encode and feed the prompt, then sample, hand over and feed until an end. */

ATTN__COLD const char *attn_stop_reason_name(attn_stop_reason reason)
{
    static const char *const names[] = {"none",         "end of text", "token count",
                                        "context full", "callback",    "stop string"};
    return (size_t)reason < sizeof names / sizeof names[0] ? names[reason] : "none";
}

/* The tokens of the prompt: the caller's, or those of the text. With bos, the beginning-of-text
 * token comes first. */
static attn_status attn__prompt_tokens(attn_ctx *ctx, const attn_model *model, const char *prompt,
                                       const attn_generate_desc *d, int bos, attn_token **tokens,
                                       size_t *n_tokens)
{
    const size_t n_text = prompt && !d->prompt_tokens ? strlen(prompt) : 0;
    const size_t room = d->prompt_tokens ? d->n_prompt_tokens : n_text;
    size_t n = 0;
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_generate_desc, d));
    ATTN__REFUSE_IF(ctx, d->prompt_tokens ? prompt && *prompt : d->n_prompt_tokens > 0,
                    ATTN_E_ARGUMENT, "%s: give the prompt as a text or as prompt_tokens",
                    d->prompt_tokens ? "both were given" : "n_prompt_tokens has no prompt_tokens");
    ATTN__REFUSE_IF(ctx, n_text > 0 && !model->tokenizer, ATTN_E_TOKENIZER,
                    "the model has no tokenizer, so give prompt_tokens");
    ATTN__REFUSE_IF(ctx, bos && model->config.bos < 0, ATTN_E_ARGUMENT,
                    "the model has no beginning-of-text token");
    ATTN__REFUSE_IF(ctx, room > SIZE_MAX / sizeof **tokens - 2, ATTN_E_ARGUMENT,
                    "the prompt is too long");
    *tokens = ATTN__NEW(ctx, attn_token, room + 2, "the prompt");
    ATTN__TRY_MEMORY(*tokens);
    if (bos)
        (*tokens)[n++] = model->config.bos;
    if (d->prompt_tokens)
        memcpy(*tokens + n, d->prompt_tokens, room * sizeof **tokens);
    *n_tokens = room + (n_text > 0); /* there may be a blank in front */
    if (!d->prompt_tokens && n_text > 0 &&
        (d->allow_special ? attn_encode_special : attn_encode)(
            ctx, *tokens + n, n_tokens, model->tokenizer, prompt, n_text) != ATTN_OK)
        return ctx->status;
    *n_tokens += n;
    return ATTN_OK;
}

/* ---- stop strings: text that may be the beginning of one waits until this is decided ---- */

/* The length of the longest suffix of the n bytes before `end` that is a prefix of `stop`. */
static size_t attn__begins_stop(const char *stop, const char *end, size_t n)
{
    const size_t size = strlen(stop);
    n = n < size ? n : size;
    while (n > 0 && memcmp(end - n, stop, n) != 0)
        n--;
    return n;
}

/* Checks the stop strings; *longest gets the length of the longest. */
static attn_status attn__check_stops(attn_ctx *ctx, const attn_model *model,
                                     const attn_generate_desc *d, size_t *longest)
{
    size_t size;
    *longest = 0;
    ATTN__REFUSE_IF(ctx, d->n_stop_strings > 0 && !d->stop_strings, ATTN_E_ARGUMENT,
                    "n_stop_strings is %zu, but stop_strings is NULL", d->n_stop_strings);
    ATTN__REFUSE_IF(ctx, d->n_stop_strings > 0 && !model->tokenizer, ATTN_E_TOKENIZER,
                    "the model has no tokenizer, so it makes no text to find stop strings in");
    for (size_t i = 0; i < d->n_stop_strings; i++) {
        size = d->stop_strings[i] ? strlen(d->stop_strings[i]) : 0;
        ATTN__REFUSE_IF(ctx, size == 0, ATTN_E_ARGUMENT,
                        "stop string %zu is %s; every text would end before it begins", i,
                        d->stop_strings[i] ? "empty" : "NULL");
        *longest = size > *longest ? size : *longest;
    }
    return ATTN_OK;
}

/* ---- handing text over ---- */

/* The way of a text to the callback: bytes wait while they may begin a stop string, then they are
 * gathered, then cut into whole characters. */
typedef struct attn__text_out {
    attn_session *session;
    const attn_generate_desc *desc; /* text_fn, and the stop strings */
    size_t which_stop;              /* the one that was met */
    char *waiting; /* text that may begin a stop string: room for the longest of them */
    size_t n_waiting;
    char bytes[64]; /* the gathered bytes */
    size_t n_bytes;
    size_t n_left; /* bytes of the text that have not come to attn_utf8_push yet */
    attn_utf8 utf8;
} attn__text_out;

/* Hands over the gathered bytes; if there are none, the beginning of a character that was kept.
 * Returns nonzero to stop. */
static int attn__hand_over(attn__text_out *to)
{
    char text[3 * (sizeof to->bytes + 4)];
    const size_t size = attn_utf8_push(text, &to->utf8, to->bytes, to->n_bytes);
    to->n_left -= to->n_bytes;
    to->n_bytes = 0;
    if (size == 0 || !to->desc->text_fn)
        return 0;
    to->session->running = ATTN__WRITING;
    int stop = to->desc->text_fn(text, size, to->desc->text_user) != 0;
    to->session->running = ATTN__IDLE;
    return stop || to->session->is_freed;
}

static int attn__gather(attn__text_out *to, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to->bytes[to->n_bytes++] = bytes[i];
        if (to->n_bytes == sizeof to->bytes && attn__hand_over(to))
            return 1;
    }
    return 0;
}

/* Takes one byte of text, and hands on the bytes that need not wait any longer. If the text ends
 * with several stop strings, the longest counts. */
static attn_stop_reason attn__take_byte(attn__text_out *to, char octet)
{
    size_t hold = 0, whole = 0;
    if (to->desc->n_stop_strings == 0)
        return attn__gather(to, &octet, 1) ? ATTN_STOP_CALLBACK : ATTN_STOP_NONE;
    to->waiting[to->n_waiting++] = octet;
    for (size_t i = 0; i < to->desc->n_stop_strings; i++) {
        const size_t n = attn__begins_stop(to->desc->stop_strings[i], to->waiting + to->n_waiting,
                                           to->n_waiting);
        hold = n > hold ? n : hold;
        if (n > whole && !to->desc->stop_strings[i][n]) {
            whole = n;
            to->which_stop = i;
        }
    }
    size_t released = to->n_waiting - (whole ? whole : hold);
    if (attn__gather(to, to->waiting, released))
        return ATTN_STOP_CALLBACK;
    to->n_waiting -= released;
    memmove(to->waiting, to->waiting + released, to->n_waiting);
    return whole ? ATTN_STOP_STRING : ATTN_STOP_NONE;
}

/* Hands on the text of one token. */
static attn_stop_reason attn__emit_text(attn__text_out *to, attn_token id)
{
    const attn_tokenizer *tokenizer = to->session->model->tokenizer;
    attn_stop_reason reason = ATTN_STOP_NONE;
    size_t size = 0;
    const char *bytes = tokenizer ? attn_token_bytes(&size, tokenizer, id) : NULL;
    to->n_left += size;
    for (size_t i = 0; i < size && reason == ATTN_STOP_NONE; i++)
        reason = attn__take_byte(to, bytes[i]);
    if (reason != ATTN_STOP_CALLBACK && to->n_bytes > 0 && attn__hand_over(to))
        reason = ATTN_STOP_CALLBACK;
    return reason;
}

/* Ends a text at a token that ends texts. Its own text is handed on, unless it is a special
 * token. */
static attn_stop_reason attn__end_text(attn__text_out *to, attn_token id)
{
    const attn_tokenizer *tokenizer = to->session->model->tokenizer;
    attn_stop_reason reason = ATTN_STOP_EOS;
    if (tokenizer && !attn_tokenizer_is_special(tokenizer, id))
        reason = attn__emit_text(to, id);
    if (reason == ATTN_STOP_STRING && !to->desc->keep_stop)
        to->n_waiting = 0;
    return reason == ATTN_STOP_CALLBACK ? reason : ATTN_STOP_EOS;
}

/* At the end of a text: hands on the bytes that wait (unless they are a stop string that is left
 * out), and the beginning of a character. */
static int attn__emit_rest(attn__text_out *to, attn_stop_reason reason)
{
    if ((reason != ATTN_STOP_STRING || to->desc->keep_stop) &&
        attn__gather(to, to->waiting, to->n_waiting))
        return 1;
    return (to->n_bytes > 0 && attn__hand_over(to)) || attn__hand_over(to);
}

/* ---- drafting ----
 *
 * A pass over a few rows takes little longer than over one row: both read every weight once. So the
 * tokens that followed the same text earlier are fed as a draft. The logits of a row do not depend
 * on later rows. The sampler draws from the first row. As long as it draws the token of the draft,
 * the logits of the next row are right too, and it draws from them. The other rows are forgotten.
 * So the sampler makes the same draws as without a draft. */

enum { ATTN__MOST_DRAFTED = 15, ATTN__LONGEST_MATCH = 8, ATTN__LONGEST_WAIT = 6 };

typedef struct attn__drafter {
    float *logits;   /* [most + 1, n_vocab] */
    size_t most;     /* most tokens of a draft */
    size_t next;     /* length of the next draft */
    size_t failures; /* in a row: each doubles `wait` */
    size_t wait;     /* passes until the next draft */
} attn__drafter;

/* Prompt lookup: finds the longest earlier match, of 2 to 8 tokens, of the text that ends with
 * draft[0], the latest of several. Copies what followed it to draft[1] and so on. Returns n, the
 * number of drafted tokens, or 0. */
static size_t attn__draft_tokens(const attn_session *session, attn_token *draft, size_t n)
{
    const attn_token *tokens = session->tokens;
    const size_t length = session->length;
    size_t best = 0, best_match = 1, match;
    if (n == 0)
        return 0;
    for (size_t at = length; at-- > 1 && best_match < ATTN__LONGEST_MATCH;) {
        if (tokens[at] != draft[0])
            continue;
        for (match = 1; match <= at && match < ATTN__LONGEST_MATCH; match++)
            if (tokens[at - match] != tokens[length - match])
                break;
        if (match > best_match) {
            best_match = match;
            best = at;
        }
    }
    if (best == 0)
        return 0;
    for (size_t i = 1; i <= n; i++) /* behind the end of the text, the draft itself follows */
        draft[i] = best + i < length ? tokens[best + i] : draft[best + i - length];
    return n;
}

/* Sets the length of the next draft, after `right` of n drafted tokens were right. */
static void attn__adapt_draft(attn__drafter *d, size_t n, size_t right)
{
    if (right == 0) {
        if (d->failures < ATTN__LONGEST_WAIT)
            d->failures++;
        d->wait = (size_t)1 << d->failures;
    } else {
        d->failures = 0;
    }
    d->next = right == n ? 2 * n : right + 1;
    if (d->next > d->most)
        d->next = d->most;
}

/* `most`: most tokens of a draft if desc->n_draft is 0. */
static attn_status attn__drafter_init(attn_ctx *ctx, attn__drafter *d, const attn_session *session,
                                      const attn_generate_desc *desc, size_t most)
{
    d->most = desc->n_draft > 0 ? desc->n_draft : most;
    if (d->most > ATTN__MOST_DRAFTED)
        d->most = ATTN__MOST_DRAFTED;
    if (d->most >= session->workspace->n_batch)
        d->most = session->workspace->n_batch - 1;
    if (desc->no_draft || session->watchers)
        d->most = 0;
    d->next = d->most < 4 ? d->most : 4;
    if (d->most == 0)
        return ATTN_OK;
    d->logits =
        ATTN__NEW(ctx, float, (d->most + 1) * session->model->config.n_vocab, "rows of logits");
    return d->logits ? ATTN_OK : ATTN_E_MEMORY;
}

/* ---- writing ---- */

/* A text that is being generated. */
struct attn_generator {
    attn_generate_desc desc;
    attn_session *session;
    attn_sampler *sampler;
    attn_sampler *own_sampler; /* the same if the run made it, else NULL */
    attn_token *prompt;
    size_t n_prompt;
    float *logits; /* [n_vocab]: a copy for logits_fn to change; NULL without one */
    attn__drafter drafter;
    attn__text_out out;
    attn_token *tokens;   /* [room]: the generated tokens, or NULL */
    float *log_probs;     /* [room], or NULL */
    size_t room, n, most; /* n: tokens that were generated; most: how many may be */
    size_t begin;         /* the position of the first generated token */
    attn_token to_feed[ATTN__MOST_DRAFTED + 1]; /* the next token, then a draft */
    size_t n_drafted;
    size_t n_passes;         /* after the prompt's */
    size_t n_changes;        /* of the session, at the end of the last step */
    int has_begun;           /* 1: the prompt was fed */
    attn_stop_reason reason; /* if not NONE: nothing more is drawn */
    int ended;               /* 1: nothing more is fed */
    int is_finished;         /* 1: all of its text was handed over */
    /* only of attn_generate_many */
    attn_ctx *ctx;
    attn_continuation *kept; /* receives the text */
    size_t capacity;         /* bytes of kept->text */
    int no_memory;           /* 1: for a longer kept->text */
};

static attn_status attn__run_sampler(attn_ctx *ctx, attn_generator *w)
{
    const attn_sampler_desc *d = &w->desc.sampling;
    const size_t n_vocab = w->session->model->config.n_vocab;
    w->sampler = w->desc.reuse_sampler;
    if (!w->sampler) {
        const attn_status status = attn_sampler_new(ctx, &w->own_sampler, n_vocab, d);
        w->sampler = w->own_sampler;
        return status;
    }
    ATTN__REFUSE_IF(ctx,
                    d->temperature != 0 || d->top_k != 0 || d->top_p != 0 || d->min_p != 0 ||
                        d->repeat_penalty != 0 || d->repeat_last != 0 || d->seed != 0,
                    ATTN_E_ARGUMENT,
                    "both reuse_sampler and sampling were given; a sampler has its settings from "
                    "attn_sampler_new, so leave sampling zeroed");
    ATTN__REFUSE_IF(ctx, w->sampler->n_vocab != n_vocab, ATTN_E_ARGUMENT,
                    "the sampler is for a vocabulary of %zu tokens; the model's has %zu",
                    w->sampler->n_vocab, n_vocab);
    return ATTN_OK;
}

/* Fills in everything else of a run that has its desc, session and prompt. */
static attn_status attn__generation_init(attn_ctx *ctx, attn_generator *w, size_t most_drafted)
{
    const attn_model *model = w->session->model;
    size_t longest_stop;
    w->most = w->desc.max_tokens ? w->desc.max_tokens : 100;
    ATTN__TRY(attn__check_stops(ctx, model, &w->desc, &longest_stop));
    ATTN__TRY(attn__run_sampler(ctx, w));
    w->out.session = w->session;
    w->out.desc = &w->desc;
    w->out.waiting = (char *)attn_alloc(ctx, 1, longest_stop, "stop strings");
    ATTN__TRY_MEMORY(w->out.waiting);
    if (w->desc.logits_fn) {
        w->logits = ATTN__NEW(ctx, float, model->config.n_vocab, "logits for logits_fn");
        ATTN__TRY_MEMORY(w->logits);
    }
    return attn__drafter_init(ctx, &w->drafter, w->session, &w->desc, most_drafted);
}

static void attn__run_free(attn_generator *w)
{
    attn_sampler_free(w->own_sampler);
    attn_free(w->drafter.logits);
    attn_free(w->out.waiting);
    attn_free(w->logits);
    attn_free(w->prompt);
}

/* Draws a token, unless logits_fn or ctx->stop_flag ends the run. */
static attn_status attn__draw_token(attn_ctx *ctx, attn_generator *w, attn_token *token)
{
    attn_session *s = w->session;
    const float *logits = s->logits;
    if (attn__is_asked_to_stop(ctx->stop_flag))
        w->reason = ATTN_STOP_CALLBACK;
    if (w->logits && !w->reason) {
        memcpy(w->logits, s->logits, s->model->config.n_vocab * sizeof(float));
        s->running = ATTN__WRITING;
        if (w->desc.logits_fn(w->logits, s, w->desc.logits_user) || s->is_freed)
            w->reason = ATTN_STOP_CALLBACK;
        s->running = ATTN__IDLE;
        logits = w->logits;
    }
    return w->reason ? ATTN_OK : attn_sample(ctx, token, w->sampler, logits, s->tokens, s->length);
}

/* Draws the next token and hands on its text. The caller then feeds it, unless w->ended. */
static attn_status attn__next_token(attn_ctx *ctx, attn_generator *w, attn_token *token)
{
    const attn_session *s = w->session;
    ATTN__TRY(attn__draw_token(ctx, w, token));
    if (!w->reason && attn_config_is_eos(&s->model->config, *token) && !w->desc.ignore_eos)
        w->reason = attn__end_text(&w->out, *token);
    w->ended = w->reason != ATTN_STOP_NONE || s->length == s->capacity;
    if (w->reason)
        return ATTN_OK;
    if (w->tokens && w->n < w->room)
        w->tokens[w->n] = *token;
    if (w->log_probs && w->n < w->room) {
        attn_token_stats stats = {(float)NAN, 0, 0};
        attn__row_stats(s->workspace->kernels, s->logits, s->model->config.n_vocab, *token, &stats,
                        NULL, 0, NULL);
        w->log_probs[w->n] = -stats.nll;
    }
    w->n++;
    w->reason = attn__emit_text(&w->out, *token);
    if (!w->reason && w->n == w->most)
        w->reason = ATTN_STOP_COUNT;
    if (!w->reason && w->ended)
        w->reason = ATTN_STOP_CONTEXT;
    return ATTN_OK;
}

/* What the next pass feeds: the prompt, or the next token and a draft. */
static attn_feed_item attn__plan_pass(attn_generator *w)
{
    attn__drafter *d = &w->drafter;
    const size_t room = w->session->capacity - w->session->length - 1, left = w->most - w->n;
    size_t n = d->wait > 0 || w->reason || w->session->watchers ? 0 : d->next;
    if (!w->has_begun)
        return attn__feed_of(w->session, w->prompt, w->n_prompt);
    n = n < room ? n : room;
    w->n_drafted = attn__draft_tokens(w->session, w->to_feed, n < left ? n : left);
    if (d->wait > 0)
        d->wait--;
    attn_feed_item item = attn__feed_of(w->session, w->to_feed, w->n_drafted + 1);
    item.logits = w->n_drafted > 0 ? d->logits : NULL;
    return item;
}

/* After that pass: draws tokens, as long as they are those of the draft. The session is then as it
 * would be without a draft, and w->to_feed[0] is the next token. */
static attn_status attn__accept_draft(attn_ctx *ctx, attn_generator *w)
{
    attn_session *s = w->session;
    const size_t n_vocab = s->model->config.n_vocab, n = w->n_drafted;
    const size_t length = s->length - n - 1;
    attn_token token = w->to_feed[0];
    size_t right;
    w->n_passes++;
    for (right = 0;; right++) {
        if (n > 0) { /* as if this row were the last one that was fed */
            s->length = length + right + 1;
            memcpy(s->logits, w->drafter.logits + right * n_vocab, n_vocab * sizeof(float));
        }
        w->ended = w->reason != ATTN_STOP_NONE;
        if (w->ended)
            break;
        ATTN__TRY(attn__next_token(ctx, w, &token));
        if (w->ended || right == n || token != w->to_feed[right + 1])
            break;
    }
    w->to_feed[0] = token;
    if (n > 0)
        attn__adapt_draft(&w->drafter, n, right);
    return ATTN_OK;
}

/* Draws the first token, or those after a pass. */
static attn_status attn__draw_tokens(attn_ctx *ctx, attn_generator *w)
{
    if (w->has_begun)
        return attn__accept_draft(ctx, w);
    w->has_begun = 1;
    w->begin = w->session->length;
    return attn__next_token(ctx, w, &w->to_feed[0]);
}

/* Feeds all texts that have not ended in one pass, then draws the next tokens of each. `items` [n]
 * is scratch memory. */
static attn_status attn__step(attn_ctx *ctx, attn_generator *texts, size_t n, attn_feed_item *items)
{
    attn_status status = ATTN_OK;
    size_t n_items = 0;
    for (size_t i = 0; i < n; i++)
        if (!texts[i].ended && (texts[i].has_begun || texts[i].n_prompt > 0))
            items[n_items++] = attn__plan_pass(&texts[i]);
    if (n_items > 0)
        status = attn_feed_batch(ctx, items, n_items);
    for (size_t i = 0; i < n && status == ATTN_OK; i++)
        if (!texts[i].ended)
            status = attn__draw_tokens(ctx, &texts[i]);
    for (size_t i = 0; i < n; i++) {
        if (status == ATTN_STOPPED && !texts[i].ended)
            texts[i].reason = ATTN_STOP_CALLBACK;
        if ((texts[i].ended || status != ATTN_OK) && !texts[i].is_finished &&
            texts[i].reason != ATTN_STOP_CALLBACK &&
            attn__emit_rest(&texts[i].out, texts[i].reason))
            texts[i].reason = ATTN_STOP_CALLBACK;
        texts[i].is_finished |= texts[i].ended || status != ATTN_OK;
        texts[i].n_changes = texts[i].session->n_changes;
    }
    return status == ATTN_STOPPED ? ATTN_OK : status;
}

/* The session's length without the tokens whose text is still held back. */
static size_t attn__accepted(const attn_generator *w)
{
    const attn_session *s = w->session;
    const attn_tokenizer *tokenizer = s->model->tokenizer;
    size_t at = w->begin + w->n + (w->reason == ATTN_STOP_EOS); /* its text was handed on too */
    size_t left = w->out.n_left + (size_t)w->out.utf8.n, size;
    while (left > 0 && at > w->begin) {
        at--;
        attn_token_bytes(&size, tokenizer, at < s->length ? s->tokens[at] : w->to_feed[0]);
        left -= left < size ? left : size;
    }
    return at < s->length ? at : s->length;
}

static attn_status attn__fill_generator(attn_ctx *ctx, attn_generator *w, const char *prompt)
{
    const attn_session *s = w->session;
    ATTN__TRY(attn__prompt_tokens(ctx, s->model, prompt, &w->desc,
                                  w->desc.prepend_bos && s->length == 0, &w->prompt, &w->n_prompt));
    ATTN__REFUSE_IF(ctx, w->n_prompt == 0 && !s->has_logits, ATTN_E_ARGUMENT,
                    s->length > 0
                        ? "after attn_session_truncate, feed at least one token before generating"
                        : "the prompt is empty and so is the session: give some text, or set "
                          "prepend_bos");
    return attn__generation_init(ctx, w, ATTN__MOST_DRAFTED);
}

ATTN__COLD attn_status attn_generator_new(attn_ctx *ctx, attn_generator **generator,
                                          attn_session *session, const char *prompt,
                                          const attn_generate_desc *desc)
{
    ATTN__TRY(attn__need_place(ctx, "attn_generate", "place for the generator", generator));
    ATTN__TRY(attn__need_given(ctx, "attn_generate", "session", session));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_generate_desc, desc));
    ATTN__REFUSE_IF(ctx, desc && desc->workspace, ATTN_E_ARGUMENT,
                    "attn_generate: desc->workspace was given; the session has its own");
    ATTN__TRY(attn__check_idle(ctx, "attn_generate", session));
    attn_generator *w = ATTN__NEW(ctx, attn_generator, 1, "a text");
    ATTN__TRY_MEMORY(w);
    session->n_calls++;
    if (desc)
        w->desc = *desc;
    w->session = session;
    w->begin = session->length;
    w->n_changes = session->n_changes;
    if (attn__fill_generator(ctx, w, prompt) == ATTN_OK) {
        *generator = w;
        return ATTN_OK;
    }
    attn_generator_free(w);
    return ctx->status;
}

ATTN__COLD void attn_generator_free(attn_generator *generator)
{
    if (!generator)
        return;
    attn__run_free(generator);
    attn__session_drop(generator->session);
    attn_free(generator);
}

ATTN__COLD attn_status attn_generator_step(attn_ctx *ctx, attn_generation *result,
                                           attn_generator *generator)
{
    attn_generator *const w = generator;
    attn_feed_item item;
    ATTN__TRY(attn__need_given(ctx, "attn_generator_step", "generator", generator));
    ATTN__TRY(attn__need_given(ctx, "attn_generator_step", "place for the result", result));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_generation, result));
    ATTN__REFUSE_IF(ctx, result->room == 0 && (result->tokens || result->log_probs),
                    ATTN_E_ARGUMENT,
                    "attn_generate: attn_generation.room is 0; set it to how many tokens and "
                    "log_probs there is room for");
    ATTN__TRY(attn__check_idle(ctx, "attn_generator_step", w->session));
    ATTN__REFUSE_IF(ctx, w->is_finished, ATTN_E_ARGUMENT,
                    "attn_generator_step: the text has ended");
    ATTN__REFUSE_IF(
        ctx, w->session->n_changes != w->n_changes || (w->session->is_freed && !w->reason),
        ATTN_E_ARGUMENT,
        "attn_generator_step: another call changed the session since the step before; a "
        "generator needs a session of its own");
    w->tokens = result->tokens;
    w->log_probs = result->log_probs;
    w->room = result->room;
    attn_status status = attn__step(ctx, generator, 1, &item);
    result->n_tokens = w->n;
    result->n_passes = w->n_passes;
    result->which_stop = w->out.which_stop;
    result->accepted = attn__accepted(generator);
    result->reason = status == ATTN_OK && w->is_finished ? w->reason : ATTN_STOP_NONE;
    return status;
}

ATTN__COLD attn_status attn_generate(attn_ctx *ctx, attn_generation *result, attn_session *session,
                                     const char *prompt, const attn_generate_desc *desc)
{
    attn_generator *w;
    attn_generation unasked = ATTN_ZERO;
    attn_status status;
    if (!result)
        result = &unasked;
    result->n_tokens = result->n_passes = result->which_stop = 0;
    result->accepted = attn_session_length(session);
    result->reason = ATTN_STOP_NONE;
    ATTN__TRY(attn_generator_new(ctx, &w, session, prompt, desc));
    do
        status = attn_generator_step(ctx, result, w);
    while (status == ATTN_OK && !w->is_finished);
    attn_generator_free(w);
    return status;
}

/* ---- several texts ---- */

/* An attn_text_fn that keeps the text, ended by a zero, and passes it on. */
static int attn__keep_text(const char *text, size_t size, void *user)
{
    attn_generator *w = (attn_generator *)user;
    attn_continuation *to = w->kept;
    if (size >= w->capacity - to->size) { /* a zero follows */
        const size_t capacity = 2 * (w->capacity + size);
        char *grown = (char *)attn_alloc(w->ctx, 1, capacity, "a text");
        if (!grown) {
            w->no_memory = 1;
            return 1;
        }
        memcpy(grown, to->text, to->size);
        attn_free(to->text);
        to->text = grown;
        w->capacity = capacity;
    }
    memcpy(to->text + to->size, text, size);
    to->size += size;
    to->text[to->size] = 0;
    return to->text_fn && to->text_fn(text, size, to->text_user);
}

static void attn__forget_text(attn_continuation *text)
{
    text->text = NULL;
    text->tokens = NULL;
    text->log_probs = NULL;
    text->size = text->n_tokens = text->which_stop = 0;
    text->reason = ATTN_STOP_NONE;
}

ATTN__COLD void attn_continuations_free(attn_continuation *texts, size_t n_texts)
{
    if (texts)
        for (size_t i = 0; i < n_texts; i++) {
            attn_free(texts[i].text);
            attn_free(texts[i].tokens);
            attn_free(texts[i].log_probs);
            attn__forget_text(&texts[i]);
        }
}

/* Begins text i of n: allocates its prompt, a session, and memory for its continuation. */
static attn_status attn__begin_text(attn_ctx *ctx, attn_generator *w, attn_continuation *text,
                                    size_t i, size_t n, const attn_model *model)
{
    const size_t n_ctx = model->config.n_ctx;
    attn_session_desc session = ATTN_ZERO;
    w->desc.sampling.seed += i;
    w->desc.prompt_tokens = text->prompt_tokens;
    w->desc.n_prompt_tokens = text->n_prompt_tokens;
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_continuation, text));
    ATTN__TRY(attn__prompt_tokens(ctx, model, text->prompt, &w->desc, w->desc.prepend_bos,
                                  &w->prompt, &w->n_prompt));
    ATTN__REFUSE_IF(ctx, w->n_prompt == 0, ATTN_E_ARGUMENT,
                    "the prompt is empty: give some text, or set prepend_bos");
    ATTN__REFUSE_IF(ctx, w->n_prompt > n_ctx, ATTN_E_CONTEXT,
                    "the prompt has %zu tokens; the model's n_ctx is %zu", w->n_prompt, n_ctx);
    w->most = w->desc.max_tokens ? w->desc.max_tokens : 100;
    size_t room = w->most < n_ctx - w->n_prompt ? w->n_prompt + w->most : n_ctx;
    session.n_ctx = room;
    session.workspace = w->desc.workspace;
    ATTN__TRY(attn_session_new(ctx, &w->session, model, &session));
    w->ctx = ctx;
    w->kept = text;
    w->capacity = 64;
    text->text = (char *)attn_alloc(ctx, 1, w->capacity, "a text");
    w->room = room - w->n_prompt + 1;
    w->tokens = text->tokens = ATTN__NEW(ctx, attn_token, w->room, "a text's tokens");
    w->log_probs = text->log_probs = ATTN__NEW(ctx, float, w->room, "a text's log_probs");
    if (!text->text || !text->tokens || !text->log_probs)
        return ATTN_E_MEMORY;
    text->text[0] = 0;
    w->desc.text_fn = attn__keep_text;
    w->desc.text_user = w;
    return attn__generation_init(ctx, w, ATTN__MOST_DRAFTED / n);
}

static attn_status attn__check_many(attn_ctx *ctx, const attn_continuation *texts, size_t n_texts,
                                    const attn_model *model, const attn_generate_desc *desc)
{
    ATTN__TRY(attn__need_given(ctx, "attn_generate_many", "model", model));
    ATTN__TRY(attn__need_given(ctx, "attn_generate_many", "texts", n_texts ? texts : NULL));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_generate_desc, desc));
    ATTN__REFUSE_IF(ctx,
                    desc && (desc->reuse_sampler || desc->text_fn || desc->prompt_tokens ||
                             desc->n_prompt_tokens),
                    ATTN_E_ARGUMENT,
                    "attn_generate_many: desc->%s was given; each text has its own",
                    desc->reuse_sampler ? "reuse_sampler"
                    : desc->text_fn     ? "text_fn"
                                        : "prompt_tokens");
    for (size_t i = 0; i < n_texts; i++)
        ATTN__REFUSE_IF(ctx, texts[i].text || texts[i].tokens || texts[i].log_probs,
                        ATTN_E_ARGUMENT,
                        "attn_generate_many: text %zu has results already: zero it, or free them "
                        "by attn_continuations_free",
                        i);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_generate_many(attn_ctx *ctx, attn_continuation *texts, size_t n_texts,
                                          const attn_model *model, const attn_generate_desc *desc)
{
    attn_workspace *workspace = desc ? desc->workspace : NULL, *own = NULL;
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__check_many(ctx, texts, n_texts, model, desc));
    for (size_t i = 0; i < n_texts; i++)
        attn__forget_text(&texts[i]);
    attn_generator *runs = ATTN__NEW(ctx, attn_generator, n_texts, "texts");
    attn_feed_item *items = ATTN__NEW(ctx, attn_feed_item, n_texts, "texts");
    if (!runs || !items)
        status = ATTN_E_MEMORY;
    else if (!workspace)
        status = attn_workspace_new(ctx, &own, model, NULL);
    for (size_t i = 0; i < n_texts && status == ATTN_OK; i++) {
        if (desc)
            runs[i].desc = *desc;
        runs[i].desc.workspace = workspace ? workspace : own;
        if (attn__begin_text(ctx, &runs[i], &texts[i], i, n_texts, model) != ATTN_OK)
            status = attn__of_item(ctx, i);
    }
    for (size_t i = 0; i < n_texts && status == ATTN_OK;
         i += status == ATTN_OK && runs[i].is_finished)
        status = attn__step(ctx, runs, n_texts, items);
    for (size_t i = 0; i < n_texts && status == ATTN_OK; i++) {
        texts[i].n_tokens = runs[i].n;
        texts[i].reason = runs[i].reason;
        texts[i].which_stop = runs[i].out.which_stop;
        status = runs[i].no_memory ? ATTN_E_MEMORY : ATTN_OK;
    }
    if (runs)
        for (size_t i = 0; i < n_texts; i++) {
            attn_session_free(runs[i].session);
            attn__run_free(&runs[i]);
        }
    attn_workspace_free(own);
    attn_free(runs);
    attn_free(items);
    if (status != ATTN_OK)
        attn_continuations_free(texts, n_texts);
    return status;
}

/* >>tokenizer (tests: tokenizer) ================================================================
 * Byte-level BPE in two steps. First attn__word_end cuts the text into words, by GPT-2's pattern
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * A byte that is not UTF-8 counts as a character that is neither letter, number nor white space.
 * Then each word is encoded by itself. It begins as single bytes. As long as two neighbours have a
 * merge, the merge of the lowest rank is applied wherever it occurs, from left to right. The time
 * goes into finding the next merge:
 *   - a word that is in the cache (which lives for one call) needs no merges;
 *   - a short word has an array of ranks, which is searched for the lowest one;
 *   - a long word has a heap of merges, ordered by rank and then from left to right. This takes
 *     n log n steps for n bytes, and 36 bytes of memory for each. */

enum { ATTN__OTHER, ATTN__LETTER, ATTN__NUMBER, ATTN__SPACE };

/* The kinds of all characters of Unicode 15.0, as runs of code points of one kind, from U+0000 on.
 * Behind the last run all are ATTN__OTHER. A run is the number 4 * length + kind in base 26: digits
 * are upper-case letters, but the last digit is a lower-case letter. Made by
 * tests/makers/make_unicode_tables.py. */
enum { ATTN__N_RUNS = 1561 };
static const char attn__runs[] =
    "BkxCuhCiBqBcEbyEbBohEahBkfBckefmgfeoeDpeEveCSnqBxCevBcfefTwvejirefyfenefeDdeMveVlBgZpeFxifyGjK"
    "yEfqrGyGrDgBqqjePhefCijBcjBqnifCmfeErEmNtBsfCeBqFdBkjqfuDlqfBkfmfDoDxBcBtuDtezCqGnIyIjmfCufBcB"
    "pqBqeCnqBhijiDleBdefmrmfCmfCajenqBqjiBaifBgzqjiDleBdejejejEurefBcBqinCmBleneDleBdejevmfCufCijq"
    "BqBkfBsBhijiDleBdejevmfEqjenqBqefBaBsfezmnermjefejmjmnmBxDkfDgCcCuBheneDpeCnmfEanifijqBqBgBeef"
    "qBheneDpeBpevmfEujejqBqejCqBleneGjifCmfuneBenqDaezuCvmDteBlefiBdEuBqCqHlejBwBdBkBqGajefeveDtef"
    "eBpejBkfivefBkBqirEyfEuDeBwBheFpEevRsGrDcfBqyzqrmfmjBcnqCbBwfeBqyFxefufiGreBZheriBdeferiGjeriF"
    "deriBdeferiCjeIveriKjCeDemCnCmNhizmDRliCrhEbuLpmoBhBcCvCaCzCeCvCeCbenCiIbFkfqfmBqyBqDkBqyNtBcv"
    "iFhefuKvBoEvGaBqErivBsGvqEbyBuFsDpBkIfGqBqyBqCafOiHhCqBhmBqGiErCajBqGvEaFpEiBqmnBqFpiBlBcGrinG"
    "irezejmfuBDpJwBQviziFxiziBhefefefeEviIfeBdefmneBdmrizqCbuneBdmBvEmluhHghCmgfiBaufBqyCbPofqfiBp"
    "efmvyfefefereBtiruvqfeHyjwEHsJiMaDmDSyEsGSeBJhyrmjBkgiFxefufiIrBcfCmDpBkBdeBdeBdeBdeBdeBdeBdeB"
    "dMifCTkhqjgDwBmBcviojqNhyneNxeruGreOnmsBoEzHkCnEyBqEqBieCkEyBqGaCkBXgBNAfJwFBCvKiHdiBPlmCnBqjD"
    "cHhCmEviKvBqGaBliPxiJxujefevDsCnenereDpCaBaBoIbCeHtEiBqDszmfejeBqEjBoDpDwEnBcHhEifBqyveBpBqveG"
    "jDoneBhqBqyDpmfmHtefmjivifefDsniBtBcnBwzizizBkBdeBdeGreCfyRtCaBqyCOCvBwDpqHpBYAiCEjiQjFwBdBwvu"
    "feBpeCbevefejejeQrFcCDxCuJxiIjGeBxRwveUvCyBqBcEbyEbBsNtmzizizinFkBxeEbeCzejeCjiCfFgSzBwHaBwIwC"
    "qkBLoEnmHpCmEgqEzsBkDdgBhguFxBoEriFpqBhewGmYjiBqyFpqFpqGfBgIbBwBteCjeBdejeBteCjeBdejKiBVxBkDlB"
    "oBhDszeGneBlKqzifeGvejmfiDpiBiDpiBeEvBgBmHkCzejuwDlBaqEbKuIrqkjCoiHefCireneEnBoBmDoEnkeEnoEyBh"
    "eEjywCmIjBoDliBiCzuBiCvDoBeMiLhImHxCaHxBcBaFpBwBqBTgEweGnyjMaEnBqfBgDlBssEeCvHcDhBeDcDpBwIfEaE"
    "sejifCaGzEyDxBcBqBkFpCiBqqfifBgFlmfBwHlCerBsBqfefqDeBsCveDxCyjJsBdefereCjeBpBcHhCqBqBsBhijiDle"
    "BdejevmfCufBwvYiIfCuruBqunEqHlDcjefBgBqZoHhGirFoHlDcfBsBqFwGrCafBcBqIiEfDgByqBdBCmGvRwJxDaBwBh"
    "ifiBhejeDtCifefCeBqKuBhiGbCmfefEifBoGfBcfDgfBsHdCyfCuLhBOmBleFtCqfCiEouErRgBdejeFxDgfBkBqyzeje"
    "EzCefBcBqBVsCzCifeCbeFhEiBqNgfCiDiGqFLxPsReCqBEfPPoOzCiGIzCqzXVgDLtBZCeDJpBcEveBqyMfeBqyErCuHl"
    "CmrBwBqeBeeDhuCzEBwJxDqQeLpufKeCbJwjefEiBKIbBgHInGmBlCAWqreBdejeBSvCifEmnifCerBgCIzNRcQnuCbmBl"
    "BcBpBHOiDeBwDeQqDyUuNdeKzejifijireBxefeBdeKberiBheBdeEjerevefmBdeCAjiDxeDxeEveDxeEveDxeEveDxeE"
    "veDxeBhiHuKPsEvyzBOeJpWmGzBoBdiBqqfBXkErCuGvqBqCUiEjqBqEKeBderejeCjeBEjiBmHkKnBcfqBqERsJeeoesL"
    "sHaeCkBDwreEfejefifeBperefefyfqfefefenejefifefefefefejefireBdererefeBpeCruneveCrDLgCcQMuBqGCmJ"
    "SUjEyYPdyBIfiBICnCeBSFtSJkDFlIXsBDFxuYUz";

#define ATTN__NO_RANK     0xFFFFFFFFu
#define ATTN__SHORT_WORD  48   /* bytes; in a longer word a heap is faster */
#define ATTN__KEY_SIZE    16   /* bytes of the longest word that is cached */
#define ATTN__CACHE_IDS   3    /* most ids that are cached for one word */
#define ATTN__CACHE_MAX   8192 /* words */

#define ATTN__SPECIAL_MAX 256 /* bytes of a special token */

struct attn_tokenizer {
    size_t n_tokens, n_merges;
    const unsigned char *ends, *merges, *bytes; /* parts of the caller's data */
    uint32_t byte_id[256];
    uint32_t missing_id; /* of bytes and characters without a token; ATTN__NO_RANK: left out */
    int adds_blank;
    uint64_t *characters; /* NULL, or [n_characters]: code point << 32 | id, ascending */
    size_t n_characters;

    /* The merges, ordered by left id, then by right id. Those with left id x have the indices
     * first[x] to first[x + 1] - 1 in `right` and `rank`. */
    uint32_t *first, *right, *rank;

    const unsigned char *special; /* u32[n_special], a part of the caller's data */
    size_t n_special;
    unsigned char special_first[256]; /* 1: this byte begins a special token */

    uint32_t run_start[ATTN__N_RUNS + 1]; /* first code points of attn__runs */
    unsigned char run_kind[ATTN__N_RUNS + 1], ascii_kind[128];
};

/* --- bytes of tokens --- */

static size_t attn__token_start(const attn_tokenizer *tokenizer, size_t id)
{
    return id ? attn__u32(tokenizer->ends + 4 * (id - 1)) : 0;
}

static size_t attn__token_size(const attn_tokenizer *tokenizer, size_t id)
{
    return attn__u32(tokenizer->ends + 4 * id) - attn__token_start(tokenizer, id);
}

ATTN__DEF size_t attn_tokenizer_n_tokens(const attn_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->n_tokens : 0;
}

ATTN__DEF const char *attn_token_bytes(size_t *size, const attn_tokenizer *tokenizer,
                                       attn_token token)
{
    const int exists = tokenizer && token >= 0 && (size_t)token < tokenizer->n_tokens;
    if (size)
        *size = exists ? attn__token_size(tokenizer, (size_t)token) : 0;
    return exists ? (const char *)tokenizer->bytes + attn__token_start(tokenizer, (size_t)token)
                  : NULL;
}

/* --- making a tokenizer: all data is checked before it is used --- */

static attn_status attn__check_ends(attn_ctx *ctx, const attn_tokenizer *tokenizer, size_t n_bytes)
{
    size_t end, previous = 0;
    for (size_t id = 0; id < tokenizer->n_tokens; id++, previous = end) {
        end = attn__u32(tokenizer->ends + 4 * id);
        ATTN__REFUSE_IF(ctx, end < previous || end > n_bytes, ATTN_E_FORMAT,
                        "tokenizer: token %zu ends at byte %zu, expected %zu to %zu", id, end,
                        previous, n_bytes);
    }
    ATTN__REFUSE_IF(ctx, previous != n_bytes, ATTN_E_FORMAT,
                    "tokenizer: the last token ends at byte %zu of %zu token bytes", previous,
                    n_bytes);
    return ATTN_OK;
}

/* Fills in byte_id. If several tokens are the same single byte, the lowest id is taken. */
static attn_status attn__find_byte_ids(attn_ctx *ctx, attn_tokenizer *tokenizer,
                                       const unsigned char *is_special, int may_lack)
{
    unsigned char found[256] = {0};
    int octet;
    for (size_t id = 0; id < tokenizer->n_tokens; id++) {
        if (attn__token_size(tokenizer, id) != 1 || is_special[id])
            continue;
        octet = tokenizer->bytes[attn__token_start(tokenizer, id)];
        if (!found[octet])
            tokenizer->byte_id[octet] = (uint32_t)id;
        found[octet] = 1;
    }
    for (octet = 0; octet < 256; octet++)
        if (!found[octet] && may_lack)
            tokenizer->byte_id[octet] = tokenizer->missing_id;
        else if (!found[octet])
            return attn_fail(ctx, ATTN_E_FORMAT,
                             "tokenizer: no token for the single byte %02X; each of the 256 bytes "
                             "must have one",
                             (unsigned)octet);
    return ATTN_OK;
}

/* Checks that the three tokens of a merge are ordinary ones, and that the bytes of its result are
 * those of its left token followed by those of its right token. */
static attn_status attn__check_merge(attn_ctx *ctx, const attn_tokenizer *tokenizer, size_t rank,
                                     const unsigned char *is_special)
{
    static const char *const part[3] = {"left", "right", "result"};
    const unsigned char *bytes[3];
    size_t size[3];
    for (int i = 0; i < 3; i++) {
        const uint32_t id = attn__u32(tokenizer->merges + 12 * rank + 4 * (size_t)i);
        const char *why = id >= tokenizer->n_tokens              ? "is too large"
                          : is_special[id]                       ? "is a special token"
                          : attn__token_size(tokenizer, id) == 0 ? "is a token without bytes"
                                                                 : NULL;
        ATTN__REFUSE_IF(ctx, why, ATTN_E_FORMAT,
                        "tokenizer: merge %zu: its %s id %llu %s (of %zu tokens)", rank, part[i],
                        ATTN__LLU(id), why, tokenizer->n_tokens);
        bytes[i] = tokenizer->bytes + attn__token_start(tokenizer, id);
        size[i] = attn__token_size(tokenizer, id);
    }
    ATTN__REFUSE_IF(ctx,
                    size[2] - size[0] != size[1] || memcmp(bytes[2], bytes[0], size[0]) != 0 ||
                        memcmp(bytes[2] + size[0], bytes[1], size[1]) != 0,
                    ATTN_E_FORMAT,
                    "tokenizer: merge %zu: the bytes of its result are not those of its "
                    "left followed by those of its right",
                    rank);
    return ATTN_OK;
}

/* A stable counting sort of the merges `from` (NULL: all, by rank) into `to`, by the id at `offset`
 * in a merge. Afterwards the merges of id x are to[start[x]] to to[start[x + 1] - 1]. start
 * [n_tokens + 2] must hold zeros. */
static void attn__sort_merges(const attn_tokenizer *tokenizer, size_t offset, const uint32_t *from,
                              uint32_t *to, uint32_t *start)
{
    for (size_t i = 0; i < tokenizer->n_merges; i++)
        start[attn__u32(tokenizer->merges + 12 * i + offset) + 2]++;
    for (size_t i = 2; i < tokenizer->n_tokens + 2; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < tokenizer->n_merges; i++) {
        const uint32_t rank = from ? from[i] : (uint32_t)i;
        to[start[attn__u32(tokenizer->merges + 12 * (size_t)rank + offset) + 1]++] = rank;
    }
}

/* Sorts the merges. `by_right` and `start` are work arrays. */
static attn_status attn__index_merges(attn_ctx *ctx, attn_tokenizer *tokenizer, uint32_t *by_right,
                                      uint32_t *start)
{
    attn__sort_merges(tokenizer, 4, NULL, by_right, start);
    attn__sort_merges(tokenizer, 0, by_right, tokenizer->rank, tokenizer->first);
    for (size_t i = 0; i < tokenizer->n_merges; i++) {
        const uint32_t rank = tokenizer->rank[i];
        const uint32_t left = attn__u32(tokenizer->merges + 12 * (size_t)rank);
        tokenizer->right[i] = attn__u32(tokenizer->merges + 12 * (size_t)rank + 4);
        ATTN__REFUSE_IF(
            ctx, i > tokenizer->first[left] && tokenizer->right[i] == tokenizer->right[i - 1],
            ATTN_E_FORMAT, "tokenizer: merges %llu and %llu both join tokens %llu and %llu",
            ATTN__LLU(tokenizer->rank[i - 1]), ATTN__LLU(rank), ATTN__LLU(left),
            ATTN__LLU(tokenizer->right[i]));
    }
    return ATTN_OK;
}

/* Checks the list of special tokens and marks them. */
static attn_status attn__mark_special(attn_ctx *ctx, attn_tokenizer *tokenizer,
                                      unsigned char *is_special)
{
    for (size_t i = 0; i < tokenizer->n_special; i++) {
        const uint32_t id = attn__u32(tokenizer->special + 4 * i);
        const size_t size = id < tokenizer->n_tokens ? attn__token_size(tokenizer, id) : 0;
        const char *why = id >= tokenizer->n_tokens  ? "is too large"
                          : size == 0                ? "has no bytes"
                          : size > ATTN__SPECIAL_MAX ? "has more than 256 bytes"
                          : is_special[id]           ? "is listed twice"
                          : size == 1 && tokenizer->adds_blank
                              ? "has one byte, but texts get a blank"
                              : NULL;
        ATTN__REFUSE_IF(ctx, why, ATTN_E_FORMAT,
                        "tokenizer: special token %zu: its id %llu %s (of %zu tokens)", i,
                        ATTN__LLU(id), why, tokenizer->n_tokens);
        is_special[id] = 1;
        tokenizer->special_first[tokenizer->bytes[attn__token_start(tokenizer, id)]] = 1;
    }
    return ATTN_OK;
}

/* Decodes attn__runs. */
static void attn__unfold_runs(attn_tokenizer *tokenizer)
{
    const char *at = attn__runs;
    uint32_t code = 0, end, number;
    for (size_t i = 0; i < ATTN__N_RUNS; i++, code = end) {
        for (number = 0; *at >= 'A' && *at <= 'Z'; at++)
            number = (number + (uint32_t)(*at - 'A')) * 26;
        number += (uint32_t)(*at++ - 'a');
        end = code + number / 4;
        tokenizer->run_start[i] = code;
        tokenizer->run_kind[i] = (unsigned char)(number % 4);
        for (; code < end && code < 128; code++)
            tokenizer->ascii_kind[code] = tokenizer->run_kind[i];
    }
    tokenizer->run_start[ATTN__N_RUNS] = code;
    tokenizer->run_kind[ATTN__N_RUNS] = ATTN__OTHER;
}

/* Checks all merges. Hostile data may have many merges with the same long result, so the bytes that
 * are compared are limited to 64 times the size of the section. */
static attn_status attn__check_merges(attn_ctx *ctx, const attn_tokenizer *tokenizer,
                                      size_t n_bytes, const unsigned char *is_special)
{
    const uint64_t most = 64 * ((uint64_t)n_bytes + 12 * (uint64_t)tokenizer->n_merges);
    uint64_t joined = 0;
    for (size_t rank = 0; rank < tokenizer->n_merges; rank++) {
        ATTN__TRY(attn__check_merge(ctx, tokenizer, rank, is_special));
        joined += attn__token_size(tokenizer, attn__u32(tokenizer->merges + 12 * rank + 8));
        ATTN__REFUSE_IF(ctx, joined > most, ATTN_E_FORMAT,
                        "tokenizer: the results of merges 0 to %zu have %llu bytes together; "
                        "expected at most %llu, 64 for each byte of tokens and merges",
                        rank, ATTN__LLU(joined), ATTN__LLU(most));
    }
    return ATTN_OK;
}

static attn_status attn__find_characters(attn_ctx *ctx, attn_tokenizer *tokenizer,
                                         const unsigned char *is_special);

/* Fills in a tokenizer whose sizes fit its data. The last three parameters are work arrays. */
static attn_status attn__tokenizer_fill(attn_ctx *ctx, attn_tokenizer *tokenizer, size_t n_bytes,
                                        unsigned flags, unsigned char *is_special,
                                        uint32_t *by_right, uint32_t *start)
{
    tokenizer->missing_id = flags & 2 ? attn__u32(tokenizer->special) : ATTN__NO_RANK;
    tokenizer->adds_blank = (flags & 8) != 0;
    ATTN__TRY(attn__check_ends(ctx, tokenizer, n_bytes));
    ATTN__TRY(attn__mark_special(ctx, tokenizer, is_special));
    ATTN__TRY(attn__find_byte_ids(ctx, tokenizer, is_special, (flags & 1) != 0));
    if (flags & 4)
        ATTN__TRY(attn__find_characters(ctx, tokenizer, is_special));
    ATTN__TRY(attn__check_merges(ctx, tokenizer, n_bytes, is_special));
    ATTN__TRY(attn__index_merges(ctx, tokenizer, by_right, start));
    attn__unfold_runs(tokenizer);
    return ATTN_OK;
}

/* Checks the header of a tokenizer section, and that its sizes fit the data. */
static attn_status attn__check_header(attn_ctx *ctx, const unsigned char *start, size_t size)
{
    ATTN__REFUSE_IF(ctx, size < 16, ATTN_E_FORMAT,
                    "tokenizer: %zu bytes of data; its header alone has 16", size);
    uint64_t n_tokens = attn__u32(start);
    uint64_t n_merges = attn__u32(start + 4);
    uint64_t n_special = attn__u32(start + 8) & 0xFFFF;
    unsigned flags = attn__u32(start + 8) >> 16;
    uint64_t n_bytes = attn__u32(start + 12);
    uint64_t needed = 16 + 4 * n_tokens + 12 * n_merges + 4 * n_special + n_bytes; /* below 2^37 */
    ATTN__REFUSE_IF(ctx, needed != size, ATTN_E_FORMAT,
                    "tokenizer: %zu bytes of data, but %llu tokens, %llu merges, %llu "
                    "special tokens and %llu token bytes need %llu",
                    size, ATTN__LLU(n_tokens), ATTN__LLU(n_merges), ATTN__LLU(n_special),
                    ATTN__LLU(n_bytes), ATTN__LLU(needed));
    ATTN__REFUSE_IF(ctx, n_tokens > INT32_MAX || n_merges > INT32_MAX, ATTN_E_FORMAT,
                    "tokenizer: %llu tokens and %llu merges; ids and ranks end at 2147483647",
                    ATTN__LLU(n_tokens), ATTN__LLU(n_merges));
    ATTN__REFUSE_IF(ctx,
                    flags > 15 || (flags & 7 && !(flags & 1)) || (flags & 2 && !n_special) ||
                        (flags & 4 && n_merges),
                    ATTN_E_FORMAT,
                    "tokenizer: the flags are %u; expected 0, 1, 3 with special tokens, or 5 "
                    "or 7 without merges; or 8 more for a blank in front of texts",
                    flags);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_tokenizer_new(attn_ctx *ctx, attn_tokenizer **tokenizer,
                                          const void *data, size_t size)
{
    const unsigned char *start = (const unsigned char *)data;
    attn_status status = ATTN_E_MEMORY;
    ATTN__TRY(attn__need_place(ctx, "attn_tokenizer_new", "place for the tokenizer", tokenizer));
    ATTN__TRY(attn__need_given(ctx, "attn_tokenizer_new", "data", data));
    ATTN__TRY(attn__check_header(ctx, start, size));
    attn_tokenizer *made = ATTN__NEW(ctx, attn_tokenizer, 1, "a tokenizer");
    ATTN__TRY_MEMORY(made);
    made->n_tokens = attn__u32(start);
    made->n_merges = attn__u32(start + 4);
    made->n_special = attn__u32(start + 8) & 0xFFFF;
    made->ends = start + 16;
    made->merges = made->ends + 4 * made->n_tokens;
    made->special = made->merges + 12 * made->n_merges;
    made->bytes = made->special + 4 * made->n_special;
    /* No size overflows: each array is hardly larger than the data that it is made from. */
    made->first = ATTN__NEW(ctx, uint32_t, made->n_tokens + 2, "an index of the merges");
    made->right = ATTN__NEW(ctx, uint32_t, made->n_merges, "an index of the merges");
    made->rank = ATTN__NEW(ctx, uint32_t, made->n_merges, "an index of the merges");
    unsigned char *is_special = ATTN__NEW(ctx, unsigned char, made->n_tokens, "a list of tokens");
    uint32_t *by_right = ATTN__NEW(ctx, uint32_t, made->n_merges, "a list of merges");
    uint32_t *first = ATTN__NEW(ctx, uint32_t, made->n_tokens + 2, "a list of merges");
    if (made->first && made->right && made->rank && is_special && by_right && first)
        status = attn__tokenizer_fill(ctx, made, attn__u32(start + 12), attn__u32(start + 8) >> 16,
                                      is_special, by_right, first);
    attn_free(is_special);
    attn_free(by_right);
    attn_free(first);
    if (status)
        attn_tokenizer_free(made);
    else
        *tokenizer = made;
    return status;
}

ATTN__COLD void attn_tokenizer_free(attn_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    attn_free(tokenizer->characters);
    attn_free(tokenizer->first);
    attn_free(tokenizer->right);
    attn_free(tokenizer->rank);
    attn_free(tokenizer);
}

ATTN__SMALL_END

/* --- UTF-8 --- */

/* Bytes of the character that begins with this one; 0 if none does. */
static size_t attn__utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Can `octet` be byte `index` (1 to 3) of a character that begins with `first`? Byte 1 rules out
 * overlong forms, surrogates and characters above U+10FFFF. */
static int attn__utf8_continues(unsigned char first, size_t index, unsigned char octet)
{
    if (index == 1 && (first == 0xE0 || first == 0xF0)) /* overlong otherwise */
        return octet >= (first == 0xE0 ? 0xA0 : 0x90) && octet <= 0xBF;
    if (index == 1 && (first == 0xED || first == 0xF4))
        return octet >= 0x80 && octet <= (first == 0xED ? 0x9F : 0x8F);
    return octet >= 0x80 && octet <= 0xBF;
}

/* Reads the character at p < end. Returns its number of bytes; 0 if it is not UTF-8. */
static size_t attn__utf8_read(const unsigned char *p, const unsigned char *end, uint32_t *code)
{
    const size_t length = attn__utf8_length(*p);
    if (length == 0 || (size_t)(end - p) < length)
        return 0;
    *code = length == 1 ? *p : *p & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (!attn__utf8_continues(*p, i, p[i]))
            return 0;
        *code = *code << 6 | (p[i] & 0x3Fu);
    }
    return length;
}

static char *attn__utf8_replace(char *out) /* U+FFFD */
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return out + 3;
}

ATTN__COLD size_t attn_utf8_push(char *text, attn_utf8 *state, const char *bytes, size_t size)
{
    char *out = text;
    size_t length;
    if (!text || !state || (!bytes && size > 0))
        return 0;
    if ((unsigned)state->n >= attn__utf8_length(state->bytes[0])) /* it was not zeroed */
        state->n = 0;
    if (size == 0 && state->n > 0) {
        out = attn__utf8_replace(out);
        state->n = 0;
    }
    for (size_t i = 0; i < size; i++) {
        const unsigned char octet = (unsigned char)bytes[i];
        if (state->n > 0 && !attn__utf8_continues(state->bytes[0], (size_t)state->n, octet)) {
            out = attn__utf8_replace(out);
            state->n = 0;
        }
        if (state->n == 0 && attn__utf8_length(octet) == 0) {
            out = attn__utf8_replace(out);
            continue;
        }
        state->bytes[state->n++] = octet;
        length = attn__utf8_length(state->bytes[0]);
        if ((size_t)state->n == length) {
            memcpy(out, state->bytes, length);
            out += length;
            state->n = 0;
        }
    }
    return (size_t)(out - text);
}

/* --- encoding: one call's state --- */

/* The ids of a word. */
typedef struct attn__cached_word {
    uint64_t key[2]; /* the bytes of the word, padded with zeros */
    uint32_t ids[ATTN__CACHE_IDS];
    unsigned char size, n_ids; /* size 0: no word */
} attn__cached_word;

/* A token of a long word, in a linked list. Index 0 means none. */
typedef struct attn__node {
    uint32_t id;
    uint32_t rank; /* of its merge with the next token, or ATTN__NO_RANK */
    uint32_t previous, next;
} attn__node;

typedef struct attn__encoder {
    attn_ctx *ctx;
    const attn_tokenizer *tokenizer;
    attn_token *ids;
    size_t capacity, n_ids; /* n_ids may exceed the capacity: such ids are only counted */

    uint32_t run_start, run_end; /* the latest run of code points that was looked up */
    int run_kind;

    attn__cached_word *cache; /* NULL for a short text */
    size_t cache_mask;

    /* For long words; NULL before the first one. */
    attn__node *nodes; /* [1 + n_nodes] */
    size_t n_nodes;
    uint64_t *heap; /* [2 * n_nodes]: rank << 32 | node; out of date if the node's rank differs */
    size_t n_heap;
    uint32_t *batch; /* [n_nodes]: the nodes of one rank */
} attn__encoder;

static void attn__emit(attn__encoder *encoder, uint32_t id)
{
    if (encoder->n_ids < encoder->capacity)
        encoder->ids[encoder->n_ids] = (attn_token)id;
    encoder->n_ids++;
}

/* Rank of the merge of two tokens, or ATTN__NO_RANK. A binary search without branches. */
static uint32_t attn__merge_rank(const attn_tokenizer *tokenizer, uint32_t left, uint32_t right)
{
    const uint32_t *at = tokenizer->right + tokenizer->first[left];
    size_t count = tokenizer->first[left + 1] - tokenizer->first[left];
    while (count > 1) {
        const size_t half = count / 2;
        at += at[half] <= right ? half : 0;
        count -= half;
    }
    return count && *at == right ? tokenizer->rank[at - tokenizer->right] : ATTN__NO_RANK;
}

static uint32_t attn__merge_result(const attn_tokenizer *tokenizer, uint32_t rank)
{
    return attn__u32(tokenizer->merges + 12 * (size_t)rank + 8);
}

/* --- encoding: words of the pattern --- */

/* The kind of the character at p < end; *next gets its end. */
static int attn__kind_at(attn__encoder *encoder, const unsigned char *p, const unsigned char *end,
                         const unsigned char **next)
{
    const uint32_t *start = encoder->tokenizer->run_start;
    size_t low = 0, high = ATTN__N_RUNS + 1, middle;
    uint32_t code = 0;

    if (*p < 0x80) {
        *next = p + 1;
        return encoder->tokenizer->ascii_kind[*p];
    }
    size_t length = attn__utf8_read(p, end, &code);
    *next = p + (length ? length : 1);
    if (length == 0)
        return ATTN__OTHER;
    /* Characters of one script are neighbours, so the latest run is often the right one. */
    if (code < encoder->run_start || code >= encoder->run_end) {
        while (high - low > 1) { /* start[low] <= code < start[high] */
            middle = (low + high) / 2;
            if (start[middle] <= code)
                low = middle;
            else
                high = middle;
        }
        encoder->run_start = start[low];
        encoder->run_end = low < ATTN__N_RUNS ? start[low + 1] : 0xFFFFFFFFu;
        encoder->run_kind = encoder->tokenizer->run_kind[low];
    }
    return encoder->run_kind;
}

/* The end of the run of characters of this kind that begins at p. */
static const unsigned char *attn__skip_kind(attn__encoder *encoder, const unsigned char *p,
                                            const unsigned char *end, int kind)
{
    const unsigned char *next;
    while (p < end && attn__kind_at(encoder, p, end, &next) == kind)
        p = next;
    return p;
}

/* Bytes of the contraction at p, which is an apostrophe, or 0. */
static size_t attn__contraction(const unsigned char *p, const unsigned char *end)
{
    static const char ends[][3] = {"s", "t", "re", "ve", "m", "ll", "d"};
    size_t n;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if ((n = strlen(ends[i])) < (size_t)(end - p) && memcmp(p + 1, ends[i], n) == 0)
            return 1 + n;
    return 0;
}

/* The end of the word at p < end, by the first alternative of the pattern that matches. */
static const unsigned char *attn__word_end(attn__encoder *encoder, const unsigned char *p,
                                           const unsigned char *end)
{
    const unsigned char *inner = p + (*p == ' ' && end - p > 1), *next, *last;
    const size_t contraction = *p == '\'' ? attn__contraction(p, end) : 0;
    const int kind = attn__kind_at(encoder, inner, end, &next);

    if (contraction)
        return p + contraction;
    if (kind != ATTN__SPACE) /* perhaps with one space before it */
        return attn__skip_kind(encoder, next, end, kind);
    next = attn__skip_kind(encoder, p, end, ATTN__SPACE);
    if (next == end)
        return end;
    /* \s+(?!\S): before another word, white space leaves out its last character, unless it has
     * only one. */
    for (last = next - 1; (*last & 0xC0) == 0x80;)
        last--;
    return last == p ? next : last;
}

/* --- encoding: the ids of bytes and characters --- */

/* Fills in `characters`, sorted: the largest of what is left goes behind the heap. */
static attn_status attn__find_characters(attn_ctx *ctx, attn_tokenizer *tokenizer,
                                         const unsigned char *is_special)
{
    uint64_t *heap = ATTN__NEW(ctx, uint64_t, tokenizer->n_tokens + 1, "the characters");
    size_t n = 0;
    uint32_t code = 0;
    tokenizer->characters = heap;
    ATTN__TRY_MEMORY(heap);
    for (size_t id = 0; id < tokenizer->n_tokens; id++) {
        const unsigned char *p = tokenizer->bytes + attn__token_start(tokenizer, id);
        const size_t size = attn__token_size(tokenizer, id);
        if (size > 0 && !is_special[id] && attn__utf8_read(p, p + size, &code) == size)
            heap[n++] = ~((uint64_t)code << 32 | id);
    }
    tokenizer->n_characters = n;
    attn__heapify(heap, n);
    while (n > 0)
        attn__heap_pop(heap, &n);
    for (size_t i = 0; i < tokenizer->n_characters; i++)
        heap[i] = ~heap[i];
    return ATTN_OK;
}

/* The id of the character at p < end; *length gets its number of bytes. */
static uint32_t attn__character_id(const attn_tokenizer *tokenizer, const unsigned char *p,
                                   const unsigned char *end, size_t *length)
{
    size_t low = 0, high = tokenizer->n_characters;
    uint32_t code = 0xFFFFFFFFu; /* no character */
    *length = attn__utf8_read(p, end, &code);
    *length += *length == 0;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (tokenizer->characters[middle] >> 32 < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tokenizer->n_characters && tokenizer->characters[low] >> 32 == code
               ? (uint32_t)(tokenizer->characters[low] & 0xFFFFFFFFu)
               : tokenizer->missing_id;
}

/* The ids of a word's bytes or characters, without those that the vocabulary lacks. Returns their
 * number. */
static size_t attn__first_ids(const attn_tokenizer *tokenizer, const unsigned char *word,
                              size_t size, uint32_t *ids)
{
    size_t n = 0, length = 1;
    for (size_t i = 0; i < size; i += length) {
        ids[n] = tokenizer->characters
                     ? attn__character_id(tokenizer, word + i, word + size, &length)
                     : tokenizer->byte_id[word[i]];
        n += ids[n] != ATTN__NO_RANK;
    }
    return n;
}

/* --- encoding: short words --- */

/* Encodes a word of 1 to ATTN__SHORT_WORD bytes. Returns the number of ids. */
static size_t attn__merge_short(const attn_tokenizer *tokenizer, const unsigned char *word,
                                size_t size, uint32_t *ids)
{
    uint32_t rank[ATTN__SHORT_WORD]; /* rank[i]: of the merge of ids[i] and ids[i + 1] */
    size_t i, kept;
    size = attn__first_ids(tokenizer, word, size, ids);
    if (size == 0)
        return 0;
    for (i = 0; i + 1 < size; i++)
        rank[i] = attn__merge_rank(tokenizer, ids[i], ids[i + 1]);
    rank[size - 1] = ATTN__NO_RANK;

    for (;;) {
        uint32_t best = ATTN__NO_RANK;
        for (i = 0; i < size; i++)
            best = rank[i] < best ? rank[i] : best;
        if (best == ATTN__NO_RANK)
            return size;
        uint32_t result = attn__merge_result(tokenizer, best);
        for (i = kept = 0; i < size; i++, kept++) {
            const int merges = rank[i] == best;
            ids[kept] = merges ? result : ids[i];
            i += merges ? 1 : 0;
            rank[kept] = rank[i];
        }
        size = kept;
        for (i = 0; i + 1 < size; i++)
            if (ids[i] == result || ids[i + 1] == result)
                rank[i] = attn__merge_rank(tokenizer, ids[i], ids[i + 1]);
    }
}

/* --- encoding: long words --- */

/* Looks up the merge of a node with the next one and pushes it. Older entries of this node in the
 * heap are then out of date: their rank differs. */
static void attn__push_merge(attn__encoder *encoder, uint32_t index)
{
    attn__node *nodes = encoder->nodes, *node = nodes + index;
    node->rank = node->next ? attn__merge_rank(encoder->tokenizer, node->id, nodes[node->next].id)
                            : ATTN__NO_RANK;
    if (node->rank != ATTN__NO_RANK)
        attn__heap_push(encoder->heap, &encoder->n_heap, (uint64_t)node->rank << 32 | index);
}

static void attn__merge_node(attn__encoder *encoder, uint32_t index)
{
    attn__node *nodes = encoder->nodes, *node = nodes + index;
    const uint32_t gone = node->next;
    node->id = attn__merge_result(encoder->tokenizer, node->rank);
    node->next = nodes[gone].next;
    if (node->next)
        nodes[node->next].previous = index;
    nodes[gone].rank = ATTN__NO_RANK;
    attn__push_merge(encoder, index);
    if (node->previous)
        attn__push_merge(encoder, node->previous);
}

/* Memory for a word of `size` bytes. The heap gets an entry for each pair of neighbours and two for
 * each merge, which takes one away. */
static attn_status attn__reserve_nodes(attn__encoder *encoder, size_t size)
{
    attn_ctx *ctx = encoder->ctx;
    ATTN__REFUSE_IF(ctx, size >= INT32_MAX, ATTN_E_ARGUMENT, /* cover: a word of 2 GiB */
                    "attn_encode: a word of %zu bytes; the most is 2147483646", size);
    if (size <= encoder->n_nodes)
        return ATTN_OK;
    attn_free(encoder->nodes);
    attn_free(encoder->heap);
    attn_free(encoder->batch);
    encoder->nodes = ATTN__NEW(ctx, attn__node, size + 1, "the tokens of a long word");
    encoder->heap = ATTN__NEW(ctx, uint64_t, 2 * size, "the heap of a long word");
    encoder->batch = ATTN__NEW(ctx, uint32_t, size, "the merges of a long word");
    encoder->n_nodes = size;
    return encoder->nodes && encoder->heap && encoder->batch ? ATTN_OK : ATTN_E_MEMORY;
}

static attn_status attn__merge_long(attn__encoder *encoder, const unsigned char *word, size_t size)
{
    uint32_t rank, n_batch;
    if (attn__reserve_nodes(encoder, size))
        return encoder->ctx->status;
    attn__node *nodes = encoder->nodes;
    uint32_t n = (uint32_t)attn__first_ids(encoder->tokenizer, word, size, encoder->batch);
    for (uint32_t i = 1; i <= n; i++) {
        nodes[i].id = encoder->batch[i - 1];
        nodes[i].previous = i - 1;
        nodes[i].next = i < n ? i + 1 : 0;
    }
    for (uint32_t i = 1; i <= n; i++)
        attn__push_merge(encoder, i);

    while (encoder->n_heap > 0) {
        rank = (uint32_t)(encoder->heap[0] >> 32);
        /* All nodes of this rank come before the merges that they make possible, even if one of
         * those has a lower rank. In "aaa" two merges of a rank overlap: the left one comes
         * first. */
        for (n_batch = 0; encoder->n_heap > 0 && encoder->heap[0] >> 32 == rank; n_batch++)
            encoder->batch[n_batch] = (uint32_t)attn__heap_pop(encoder->heap, &encoder->n_heap);
        for (uint32_t i = 0; i < n_batch; i++)
            if (nodes[encoder->batch[i]].rank == rank)
                attn__merge_node(encoder, encoder->batch[i]);
    }
    for (uint32_t i = n > 0; i; i = nodes[i].next)
        attn__emit(encoder, nodes[i].id);
    return ATTN_OK;
}

/* --- encoding: everything together --- */

/* Appends the ids of one word, from the cache or by merging. */
static attn_status attn__encode_word(attn__encoder *encoder, const unsigned char *word, size_t size)
{
    const int cacheable = encoder->cache && size <= ATTN__KEY_SIZE;
    uint32_t ids[ATTN__SHORT_WORD];
    attn__cached_word *entry = NULL;
    uint64_t key[2] = {0, 0}, mixed;

    if (size > ATTN__SHORT_WORD)
        return attn__merge_long(encoder, word, size);
    if (cacheable) {
        for (size_t i = 0; i < size; i++)
            key[i / 8] |= (uint64_t)word[i] << 8 * (i % 8);
        mixed = (key[0] ^ (key[1] << 23 | key[1] >> 41)) * 0x9E3779B97F4A7C15u;
        entry = encoder->cache + ((size_t)(mixed >> 40) & encoder->cache_mask);
        if (entry->size == size && entry->key[0] == key[0] && entry->key[1] == key[1]) {
            for (size_t i = 0; i < entry->n_ids; i++)
                attn__emit(encoder, entry->ids[i]);
            return ATTN_OK;
        }
    }
    size_t n_ids = attn__merge_short(encoder->tokenizer, word, size, ids);
    for (size_t i = 0; i < n_ids; i++)
        attn__emit(encoder, ids[i]);
    if (cacheable && n_ids <= ATTN__CACHE_IDS) {
        memcpy(entry->key, key, sizeof key);
        memcpy(entry->ids, ids, n_ids * sizeof ids[0]);
        entry->size = (unsigned char)size;
        entry->n_ids = (unsigned char)n_ids;
    }
    return ATTN_OK;
}

/* Encodes text without special tokens; of a copy, if there is to be a blank before it. */
static attn_status attn__encode_part(attn__encoder *encoder, const unsigned char *p,
                                     const unsigned char *end)
{
    const size_t size = (size_t)(end - p);
    unsigned char *copy = NULL;
    attn_status status = ATTN_OK;
    if (encoder->tokenizer->adds_blank && size > 0 && *p != ' ') {
        copy = ATTN__NEW(encoder->ctx, unsigned char, size + 1, "a text behind a blank");
        ATTN__TRY_MEMORY(copy);
        copy[0] = ' ';
        memcpy(copy + 1, p, size);
        p = copy;
        end = copy + size + 1;
    }
    while (p < end && status == ATTN_OK) {
        const unsigned char *next = attn__word_end(encoder, p, end);
        status = attn__encode_word(encoder, p, (size_t)(next - p));
        p = next;
    }
    attn_free(copy);
    return status;
}

ATTN__DEF int attn_tokenizer_adds_blank(const attn_tokenizer *tokenizer)
{
    return tokenizer && tokenizer->adds_blank;
}

ATTN__DEF int attn_tokenizer_is_special(const attn_tokenizer *tokenizer, attn_token token)
{
    if (tokenizer)
        for (size_t i = 0; i < tokenizer->n_special; i++)
            if (attn__u32(tokenizer->special + 4 * i) == (uint32_t)token)
                return 1;
    return 0;
}

/* The longest special token at p < end: returns its number of bytes (0: none); *id gets its id. If
 * several have the same bytes, it is the first in the list. */
static size_t attn__special_at(const attn_tokenizer *tokenizer, const unsigned char *p,
                               const unsigned char *end, uint32_t *id)
{
    size_t longest = 0;
    for (size_t i = 0; i < tokenizer->n_special; i++) {
        const uint32_t special = attn__u32(tokenizer->special + 4 * i);
        const size_t size = attn__token_size(tokenizer, special);
        if (size > longest && size <= (size_t)(end - p) &&
            memcmp(p, tokenizer->bytes + attn__token_start(tokenizer, special), size) == 0) {
            longest = size;
            *id = special;
        }
    }
    return longest;
}

static attn_status attn__encode_all(attn__encoder *encoder, const unsigned char *p,
                                    const unsigned char *end, int allow_special)
{
    const unsigned char *part = p; /* the beginning of the text that is not encoded yet */
    size_t length;
    uint32_t id = 0;
    if (!allow_special)
        return attn__encode_part(encoder, p, end);
    while (p < end) {
        length = encoder->tokenizer->special_first[*p]
                     ? attn__special_at(encoder->tokenizer, p, end, &id)
                     : 0;
        if (!length) {
            p++;
            continue;
        }
        if (attn__encode_part(encoder, part, p))
            return encoder->ctx->status;
        attn__emit(encoder, id);
        part = p += length;
    }
    return attn__encode_part(encoder, part, end);
}

/* Encodes into encoder->ids, and frees the memory of the encoder. */
static attn_status attn__encode_words(attn__encoder *encoder, const char *text, size_t size,
                                      int allow_special)
{
    const unsigned char *start = (const unsigned char *)text;
    size_t n_cached;
    /* Words repeat in long texts; a small cache then has most of them. */
    for (n_cached = 1; n_cached < ATTN__CACHE_MAX && n_cached < size / 16;)
        n_cached *= 2;
    if (n_cached >= 16) {
        encoder->cache_mask = n_cached - 1;
        encoder->cache = ATTN__NEW(encoder->ctx, attn__cached_word, n_cached, "a cache of words");
        ATTN__TRY_MEMORY(encoder->cache);
    }
    attn_status status = attn__encode_all(encoder, start, start + size, allow_special);
    attn_free(encoder->cache);
    attn_free(encoder->nodes);
    attn_free(encoder->heap);
    attn_free(encoder->batch);
    return status;
}

/* attn_encode and attn_encode_special. */
static attn_status attn__encode_text(attn_ctx *ctx, const char *op, attn_token *tokens,
                                     size_t *n_tokens, const attn_tokenizer *tokenizer,
                                     const char *text, size_t size, int allow_special)
{
    attn__encoder encoder = ATTN_ZERO;
    ATTN__TRY(attn__need_given(ctx, op, "n_tokens", n_tokens));
    encoder.ctx = ctx;
    encoder.tokenizer = tokenizer;
    encoder.ids = tokens;
    encoder.capacity = *n_tokens;
    *n_tokens = 0;
    ATTN__REFUSE_IF(ctx, !tokenizer, ATTN_E_TOKENIZER,
                    "%s: there is no tokenizer; give tokens instead of text", op);
    ATTN__REFUSE_IF(ctx, (!text && size) || (!tokens && encoder.capacity), ATTN_E_ARGUMENT,
                    "%s: %s is NULL but its size is %zu", op, !text && size ? "text" : "tokens",
                    !text && size ? size : encoder.capacity);
    if (size > 0)
        ATTN__TRY(attn__encode_words(&encoder, text, size, allow_special));
    *n_tokens = encoder.n_ids;
    ATTN__REFUSE_IF(ctx, tokens && encoder.n_ids > encoder.capacity, ATTN_E_SPACE,
                    "%s: %zu tokens, but room for only %zu", op, encoder.n_ids, encoder.capacity);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_encode(attn_ctx *ctx, attn_token *tokens, size_t *n_tokens,
                                   const attn_tokenizer *tokenizer, const char *text, size_t size)
{
    return attn__encode_text(ctx, "attn_encode", tokens, n_tokens, tokenizer, text, size, 0);
}

ATTN__COLD attn_status attn_encode_special(attn_ctx *ctx, attn_token *tokens, size_t *n_tokens,
                                           const attn_tokenizer *tokenizer, const char *text,
                                           size_t size)
{
    return attn__encode_text(ctx, "attn_encode_special", tokens, n_tokens, tokenizer, text, size,
                             1);
}

/* --- decoding --- */

ATTN__COLD attn_status attn_decode(attn_ctx *ctx, char *text, size_t *size,
                                   const attn_tokenizer *tokenizer, const attn_token *tokens,
                                   size_t n_tokens)
{
    size_t length, total = 0;
    ATTN__TRY(attn__need_given(ctx, "attn_decode", "size", size));
    size_t capacity = *size;
    *size = 0;
    ATTN__REFUSE_IF(ctx, !tokenizer, ATTN_E_TOKENIZER, "attn_decode: there is no tokenizer");
    ATTN__REFUSE_IF(ctx, (!tokens && n_tokens) || (!text && capacity), ATTN_E_ARGUMENT,
                    "attn_decode: %s is NULL but its size is %zu",
                    !tokens && n_tokens ? "tokens" : "text",
                    !tokens && n_tokens ? n_tokens : capacity);
    for (size_t i = 0; i < n_tokens; i++) {
        const char *bytes = attn_token_bytes(&length, tokenizer, tokens[i]);
        ATTN__REFUSE_IF(ctx, !bytes, ATTN_E_TOKEN,
                        "attn_decode: token %ld at index %zu is not in the vocabulary of %zu",
                        (long)tokens[i], i, tokenizer->n_tokens);
        ATTN__REFUSE_IF(ctx, length > SIZE_MAX - total, ATTN_E_SPACE, /* cover: 32-bit */
                        "attn_decode: the text is too long for any buffer");
        if (length > 0 && length <= capacity && total <= capacity - length)
            memcpy(text + total, bytes, length);
        total += length;
    }
    *size = total;
    ATTN__REFUSE_IF(ctx, total > capacity && text, ATTN_E_SPACE,
                    "attn_decode: %zu bytes, but room for only %zu", total, capacity);
    return ATTN_OK;
}

ATTN__SMALL

/* >>ops (tests: ops attention) ==================================================================
 * The operations of tier 1: checks, then the kernels of >>kernels for each row. */

/* The shape to which two operands are broadcast. Returns 0 if there is none. */
ATTN__INLINE int attn__broadcast(attn_shape a, attn_shape b, attn_shape *shape)
{
    *shape = attn__dims(a.ndim > b.ndim ? a.ndim : b.ndim, 1, 1, 1, 1);
    for (int i = 1; i <= shape->ndim; i++) {
        const size_t m = i <= a.ndim ? a.dim[a.ndim - i] : 1;
        const size_t n = i <= b.ndim ? b.dim[b.ndim - i] : 1;
        if (m != n && m != 1 && n != 1)
            return 0;
        shape->dim[shape->ndim - i] = m == 1 ? n : m;
    }
    return 1;
}

/* out = kind(a, b), element by element, broadcast to one shape. */
static ATTN__COMPACT attn_status attn__elementwise(attn_ctx *ctx, const char *op, attn__binary kind,
                                                   attn_tensor *out, attn_tensor a, attn_tensor b)
{
    const attn_tensor *const inputs[] = {&a, &b, NULL};
    const attn__kernels *kernels;
    attn__result result;
    attn_shape shape;
    ATTN__TRY(attn__need_kernels(ctx, &kernels));
    ATTN__TRY(attn__need(ctx, op, "a", &a));
    ATTN__TRY(attn__need(ctx, op, "b", &b));
    if (!attn__broadcast(attn__shape_of(&a), attn__shape_of(&b), &shape))
        return attn__misfit(ctx, op, "a has", &a, "b", &b, "they do not fit together");
    ATTN__TRY(attn__out_begin(ctx, op, out, shape, 1, inputs, &result));
    size_t n = attn__row_length(&result.dense);
    size_t n_rows = n ? attn__n_rows(&result.dense) : 0;
    float *buffers = attn__row_buffers(ctx, n);
    if (!buffers)
        return attn__out_end(ctx, out, &result, ATTN_E_MEMORY);
    for (size_t row = 0; row < n_rows; row++)
        kernels->binary(kind, (float *)result.dense.data + row * n,
                        attn__row(&a, &shape, row, n, buffers),
                        attn__row(&b, &shape, row, n, buffers + n), n);
    attn_free(buffers);
    return attn__out_end(ctx, out, &result, ATTN_OK);
}

ATTN__COLD attn_status attn_add(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b)
{
    return attn__elementwise(ctx, "attn_add", ATTN__ADD, out, a, b);
}
ATTN__COLD attn_status attn_sub(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b)
{
    return attn__elementwise(ctx, "attn_sub", ATTN__SUB, out, a, b);
}
ATTN__COLD attn_status attn_mul(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b)
{
    return attn__elementwise(ctx, "attn_mul", ATTN__MUL, out, a, b);
}
ATTN__COLD attn_status attn_div(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b)
{
    return attn__elementwise(ctx, "attn_div", ATTN__DIV, out, a, b);
}

/* What an operation on each row makes of the last dimension: it keeps it, makes it 1, or removes
 * it. */
typedef enum attn__last_dim {
    ATTN__KEEPS_LAST,
    ATTN__LAST_IS_1,
    ATTN__REMOVES_LAST
} attn__last_dim;
typedef struct attn__row_args {
    const attn__kernels *kernels;
    /* of scale: the factor; of layernorm: eps; of variance: 1 if unbiased; of sum: 1 for the mean
     * */
    float number;
    const float *w, *b; /* of layernorm */
    attn_mlp_act act_fn;
    size_t row;              /* index of the row */
    const attn_tensor *also; /* a second input, or NULL */
} attn__row_args;
typedef void (*attn__row_fn)(float *out, const float *x, size_t n, const attn__row_args *args);

/* Applies fn to each row of x. */
static ATTN__COMPACT attn_status attn__each_row(attn_ctx *ctx, const char *op, attn_tensor *out,
                                                attn_tensor x, attn__last_dim last_dim,
                                                attn__row_fn fn, attn__row_args args)
{
    const attn_tensor *const inputs[] = {&x, args.also, NULL};
    attn__result result;
    const attn_shape shape = attn__shape_of(&x);
    attn_shape out_shape = shape;
    ATTN__TRY(attn__need_kernels(ctx, &args.kernels));
    ATTN__TRY(attn__need(ctx, op, "x", &x));
    size_t n = attn__row_length(&x);
    size_t n_out = last_dim == ATTN__KEEPS_LAST ? n : 1;
    size_t n_rows = n_out ? attn__n_rows(&x) : 0;
    out_shape.dim[shape.ndim - 1] = n_out;
    out_shape.ndim -= last_dim == ATTN__REMOVES_LAST;
    ATTN__TRY(
        attn__out_begin(ctx, op, out, out_shape, last_dim == ATTN__KEEPS_LAST, inputs, &result));
    float *buffers = attn__row_buffers(ctx, n);
    if (!buffers)
        return attn__out_end(ctx, out, &result, ATTN_E_MEMORY);
    for (args.row = 0; args.row < n_rows; args.row++)
        fn((float *)result.dense.data + args.row * n_out,
           attn__row(&x, &shape, args.row, n, buffers), n, &args);
    attn_free(buffers);
    return attn__out_end(ctx, out, &result, ATTN_OK);
}

static void attn__row_scale(float *out, const float *x, size_t n, const attn__row_args *args)
{
    args->kernels->scale(out, x, args->number, n);
}
static void attn__row_exp(float *out, const float *x, size_t n, const attn__row_args *args)
{
    (args->kernels->exp)(out, x, n);
}
static void attn__row_activate(float *out, const float *x, size_t n, const attn__row_args *args)
{
    args->kernels->activate(out, x, n, args->act_fn);
}
static void attn__row_sum(float *out, const float *x, size_t n, const attn__row_args *args)
{
    *out = args->kernels->sum(x, n) / (args->number > 0 ? (float)n : 1);
}
static void attn__row_variance(float *out, const float *x, size_t n, const attn__row_args *args)
{
    const float mean = args->kernels->sum(x, n) / (float)n;
    *out = args->kernels->square_distance(x, mean, n) / ((float)n - args->number);
}
static void attn__row_softmax(float *out, const float *x, size_t n, const attn__row_args *args)
{
    args->kernels->softmax(out, x, n);
}
static void attn__row_log_softmax(float *out, const float *x, size_t n, const attn__row_args *args)
{
    float largest, log_sum = args->kernels->log_sum_exp(x, n, &largest);
    for (size_t i = 0; i < n; i++)
        out[i] = (x[i] - largest) - log_sum;
}

static void attn__row_layernorm(float *out, const float *x, size_t n, const attn__row_args *args)
{
    float mean, scale;
    attn__moments(args->kernels, x, n, args->number, &mean, &scale);
    args->kernels->normalize(out, x, mean, scale, n);
    args->kernels->affine(out, out, args->w, args->b, n);
}

ATTN__INLINE attn__row_args attn__args(float number)
{
    attn__row_args args = ATTN_ZERO;
    args.number = number;
    return args;
}

ATTN__COLD attn_status attn_scale(attn_ctx *ctx, attn_tensor *out, attn_tensor x, float factor)
{
    return attn__each_row(ctx, "attn_scale", out, x, ATTN__KEEPS_LAST, attn__row_scale,
                          attn__args(factor));
}
ATTN__COLD attn_status attn_exp(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    return attn__each_row(ctx, "attn_exp", out, x, ATTN__KEEPS_LAST, attn__row_exp, attn__args(0));
}
ATTN__COLD attn_status attn_sum(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    return attn__each_row(ctx, "attn_sum", out, x, ATTN__LAST_IS_1, attn__row_sum, attn__args(0));
}
ATTN__COLD attn_status attn_mean(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    return attn__each_row(ctx, "attn_mean", out, x, ATTN__LAST_IS_1, attn__row_sum, attn__args(1));
}
ATTN__COLD attn_status attn_variance(attn_ctx *ctx, attn_tensor *out, attn_tensor x, int unbiased)
{
    return attn__each_row(ctx, "attn_variance", out, x, ATTN__LAST_IS_1, attn__row_variance,
                          attn__args(unbiased ? 1 : 0));
}
ATTN__COLD attn_status attn_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    return attn__each_row(ctx, "attn_softmax", out, x, ATTN__KEEPS_LAST, attn__row_softmax,
                          attn__args(0));
}
ATTN__COLD attn_status attn_log_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    return attn__each_row(ctx, "attn_log_softmax", out, x, ATTN__KEEPS_LAST, attn__row_log_softmax,
                          attn__args(0));
}
ATTN__COLD attn_status attn_apply_mlp_act(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                          attn_mlp_act kind)
{
    attn__row_args args = attn__args(0);
    args.act_fn = kind;
    ATTN__REFUSE_IF(
        ctx, (unsigned)kind > (unsigned)ATTN_ACT_SILU, ATTN_E_ARGUMENT,
        "attn_apply_mlp_act: kind is %d; expected ATTN_ACT_GELU_TANH, ATTN_ACT_GELU_ERF, "
        "ATTN_ACT_RELU or ATTN_ACT_SILU",
        (int)kind);
    return attn__each_row(ctx, "attn_apply_mlp_act", out, x, ATTN__KEEPS_LAST, attn__row_activate,
                          args);
}

/* *values [n] = the parameter x, written into `buffer` [n]. If x is zeroed, each is `missing`. */
static attn_status attn__vector(attn_ctx *ctx, const char *op, const char *name,
                                const attn_tensor *x, const char *beside, const attn_tensor *y,
                                size_t n, float missing, float *buffer, const float **values)
{
    *values = buffer;
    if (x->ndim == 0 && !x->error) {
        for (size_t i = 0; i < n; i++)
            buffer[i] = missing;
        return ATTN_OK;
    }
    ATTN__TRY(attn__need(ctx, op, name, x));
    ATTN__REFUSE_IF(ctx, x->ndim != 1 || x->shape[0] != n, ATTN_E_SHAPE,
                    "%s: %s has shape %s, expected [%zu] beside %s %s", op, name,
                    attn__show(attn__shape_of(x)).text, n, beside,
                    attn__show(attn__shape_of(y)).text);
    for (size_t i = 0; i < n; i++)
        buffer[i] = attn__load_element(x->data, x->dtype, (ptrdiff_t)i * x->stride[0]);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_layernorm(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor w,
                                      attn_tensor b, float eps)
{
    attn__row_args args = attn__args(eps);
    ATTN__TRY(attn__need(ctx, "attn_layernorm", "x", &x));
    size_t n = attn__row_length(&x);
    float *buffer = attn__row_buffers(ctx, n);
    if (!buffer)
        return ctx->status;
    int failed =
        attn__vector(ctx, "attn_layernorm", "w", &w, "x", &x, n, 1, buffer, &args.w) ||
        attn__vector(ctx, "attn_layernorm", "b", &b, "x", &x, n, 0, buffer + n, &args.b) ||
        attn__each_row(ctx, "attn_layernorm", out, x, ATTN__KEEPS_LAST, attn__row_layernorm, args);
    attn_free(buffer);
    return failed ? ctx->status : ATTN_OK;
}

static void attn__row_cross_entropy(float *out, const float *x, size_t n,
                                    const attn__row_args *args)
{
    const attn_tensor *targets = args->also;
    const ptrdiff_t at = (ptrdiff_t)args->row * targets->stride[0];
    float largest, log_sum = args->kernels->log_sum_exp(x, n, &largest);
    *out = log_sum - (x[((const int32_t *)targets->data)[at]] - largest);
}

ATTN__COLD attn_status attn_cross_entropy(attn_ctx *ctx, attn_tensor *nll, attn_tensor logits,
                                          attn_tensor targets)
{
    static const char op[] = "attn_cross_entropy";
    attn__row_args args = attn__args(0);
    ATTN__TRY(attn__need(ctx, op, "logits", &logits));
    ATTN__TRY(attn__need_any(ctx, op, "targets", &targets));
    if (logits.ndim != 2 || targets.ndim != 1 || targets.shape[0] != logits.shape[0] ||
        targets.dtype != ATTN_I32)
        return attn__misfit(ctx, op, "logits have", &logits, "targets", &targets,
                            "expected [T, V] and [T] of ATTN_I32");
    ATTN__TRY(attn__need_ids(ctx, op, "target", (const int32_t *)targets.data, targets.stride[0],
                             logits.shape[0], logits.shape[1]));
    args.also = &targets;
    return attn__each_row(ctx, op, nll, logits, ATTN__REMOVES_LAST, attn__row_cross_entropy, args);
}

/* ---- matmul ---- */

/* Memory for the time of one call: on the stack if it is little, else from the context. */
typedef struct attn__scratch {
    float on_stack[1024];
    float *allocated;
} attn__scratch;

/* n floats, not initialized; NULL on failure. Free scratch->allocated. */
static float *attn__scratch_new(attn_ctx *ctx, attn__scratch *scratch, size_t n, const char *what)
{
    scratch->allocated = NULL;
    if (n <= sizeof scratch->on_stack / sizeof(float))
        return scratch->on_stack;
    scratch->allocated = ATTN__NEW(ctx, float, n, what);
    return scratch->allocated;
}

ATTN__INLINE attn_shape attn__lead_of(const attn_tensor *x)
{
    attn_shape lead = attn__shape_of(x);
    lead.dim[x->ndim - 2] = lead.dim[x->ndim - 1] = 1;
    return lead;
}

static size_t attn__n_matrices(attn_shape lead)
{
    return lead.dim[0] * lead.dim[1] * lead.dim[2] * lead.dim[3];
}

/* Offset of matrix i of the leading dimensions of x. */
static ptrdiff_t attn__lead_offset(attn_tensor x, const attn_shape *lead, size_t i)
{
    x.shape[x.ndim - 2] = x.shape[x.ndim - 1] = 1;
    return attn__row_offset(&x, lead, i);
}

/* Matrix i of x, whose leading dimensions repeat to fit `lead` (those, then 1, 1). */
static attn_tensor attn__matrix(attn_tensor x, const attn_shape *lead, size_t i)
{
    const int d = x.ndim - 2;
    attn_tensor y = x;
    attn__advance(&y, attn__lead_offset(x, lead, i));
    y.ndim = 2;
    y.shape[0] = x.shape[d];
    y.shape[1] = x.shape[d + 1];
    y.stride[0] = x.stride[d];
    y.stride[1] = x.stride[d + 1];
    y.shape[2] = y.shape[3] = 1;
    y.stride[2] = y.stride[3] = 0;
    return y;
}

/* Makes *x f32, and dense if `dense` is 1. If that takes a copy, the caller frees *copy. */
static attn_status attn__as_floats(attn_ctx *ctx, attn_tensor *copy, attn_tensor *x, int dense)
{
    if (x->dtype == ATTN_F32 && (!dense || attn__is_dense(*x)))
        return ATTN_OK;
    ATTN__TRY(attn_zeros(ctx, copy, ATTN_F32, attn__shape_of(x)));
    ATTN__TRY(attn_copy(ctx, copy, *x));
    *x = *copy;
    return ATTN_OK;
}

/* A matrix product on all threads, of views with any strides. w is packed, then multiplied. */
typedef struct attn__product {
    const attn__kernels *kernels;
    attn_tensor given;        /* w, as the caller gave it */
    attn__panels made;        /* w, if it is packed already; else `data` is NULL */
    const float *bias;        /* [N], or NULL */
    const volatile int *stop; /* ctx->stop_flag, if it ends the product, or NULL */
    attn__matmul_job job;
    attn_tensor w; /* [K, N] */
    float *panels; /* w, packed here, or NULL */
    float *packs;  /* pack_size for each worker */
    size_t pack_size;
} attn__product;

static void attn__product_body(attn__worker *me, void *arg)
{
    const attn__product *p = (const attn__product *)arg;
    size_t first, last;
    attn__share(me, p->panels ? (p->job.w.n_out + 15) / 16 : 0, &first, &last);
    attn__pack_panels(p->panels, &p->w, first, last);
    attn__barrier(me);
    me->is_dynamic = me->team->apart != NULL;
    attn__shared_matmul(me, p->kernels, p->job, p->packs + (size_t)me->id * p->pack_size);
}

/* The number of threads for a product of `work` multiply-adds. */
static int attn__threads_for(const attn_ctx *ctx, double work)
{
    const int most = attn_max_threads(ctx);
    const double enough = work / ATTN__WORTH_A_WORKER + 1;
    return enough < most ? (int)enough : most;
}

/* Makes matrices [.., M, K] one matrix of `rows` rows: a view if strides allow it, else a copy. */
static attn_status attn__join_rows(attn_ctx *ctx, attn_tensor *copy, attn_tensor *a, size_t rows)
{
    const attn_shape shape = attn_shape2(rows, attn__row_length(a));
    attn_tensor joined = attn_reshape(*a, shape);
    if (joined.ndim == 0 && attn__as_floats(ctx, copy, a, 1) != ATTN_OK)
        return ctx->status;
    *a = joined.ndim == 0 ? attn_reshape(*a, shape) : joined;
    return ATTN_OK;
}

/* out = a · b + bias for every matrix of `lead`, one after another, each on all threads. If p->made
 * is set, b gives only the shape, and a is read some rows at a time. */
static attn_status attn__multiply(attn_ctx *ctx, const char *op, attn__product *p, float *out,
                                  const attn_tensor *a, const attn_tensor *b,
                                  const attn_shape *lead)
{
    const size_t n_batch = attn__n_matrices(*lead);
    const size_t n_rows = a->shape[a->ndim - 2], n_in = a->shape[a->ndim - 1];
    const size_t n_out = b->shape[b->ndim - 1];
    const int is_made = p->made.data != NULL;
    const size_t n_panels = is_made ? 0 : attn__panels_size(ATTN_F32, n_in, n_out) / sizeof(float);
    const int n_threads = attn__threads_for(ctx, (double)n_rows * (double)n_in * (double)n_out);
    const size_t most = is_made && n_rows > 256 ? 256 : n_rows;
    attn__scratch scratch;
    ATTN__REFUSE_IF(ctx, n_panels == 0 && n_in > 0 && !is_made, ATTN_E_SHAPE, "%s: %s is too large",
                    op, attn__show(attn__shape_of(b)).text);
    p->pack_size = attn__pack_size(p->made.dtype, most, n_in);
    p->packs = attn__scratch_new(ctx, &scratch, n_panels + (size_t)n_threads * p->pack_size,
                                 "a packed matrix");
    ATTN__TRY_MEMORY(p->packs);
    p->panels = is_made ? NULL : p->packs;
    p->packs += n_panels;
    if (!is_made)
        p->made = attn__panels_at(p->panels, ATTN_F32, n_in, n_out);
    for (size_t i = 0; i < n_batch; i++) {
        const attn_tensor in = attn__matrix(*a, lead, i);
        p->w = attn__matrix(*b, lead, i);
        for (size_t at = 0; at < n_rows && !attn__is_asked_to_stop(p->stop); at += most) {
            p->job = attn__job(out + (i * n_rows + at) * n_out, n_out,
                               (const float *)in.data + (ptrdiff_t)at * in.stride[0], in.stride[0],
                               p->made, n_rows - at < most ? n_rows - at : most);
            p->job.in_step = in.stride[1];
            p->job.bias = p->bias;
            attn__parallel(NULL, n_threads, attn__product_body, p);
        }
    }
    attn_free(scratch.allocated);
    /* NOLINTNEXTLINE(clang-analyzer-core.StackAddressEscape): *p is not used after the return */
    return attn__is_asked_to_stop(p->stop) ? ATTN_STOPPED : ATTN_OK;
}

/* out = a [.., M, K] · b [.., K, N] + bias. For a [K], out is [N]. */
static attn_status attn__product_of(attn_ctx *ctx, const char *op, attn_tensor *out, attn_tensor a,
                                    attn_tensor b, attn__product *p)
{
    const attn_tensor *const inputs[] = {&a, &p->given, NULL};
    const int is_row = a.ndim == 1;
    attn__result result;
    attn_shape lead;
    attn_tensor copy = ATTN_ZERO;
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__need_kernels(ctx, &p->kernels));
    if (is_row)
        a = attn_reshape(a, attn_shape2(1, a.shape[0]));
    if (a.shape[a.ndim - 1] != b.shape[b.ndim - 2] ||
        !attn__broadcast(attn__lead_of(&a), attn__lead_of(&b), &lead))
        return attn__misfit(ctx, op, "a has", &a, "b", &b, "they do not fit together");
    attn_shape shape = lead;
    shape.dim[shape.ndim - 2] = a.shape[a.ndim - 2];
    shape.dim[shape.ndim - 1] = b.shape[b.ndim - 1];
    if (is_row)
        shape = attn_shape1(shape.dim[1]);
    ATTN__TRY(attn__out_begin(ctx, op, out, shape, 0, inputs, &result));
    if (attn_count(result.dense) == 0)
        return attn__out_end(ctx, out, &result, ATTN_OK);
    size_t n_rows = attn__n_rows(&result.dense);
    status = attn__as_floats(ctx, &copy, &a, 0); /* the kernels read rows of floats */
    if (status == ATTN_OK && attn__n_matrices(attn__lead_of(&b)) == 1) { /* pack it once */
        status = attn__join_rows(ctx, &copy, &a, n_rows);
        b = attn__matrix(b, &lead, 0);
        lead = attn_shape2(1, 1);
    }
    if (status == ATTN_OK)
        status = attn__multiply(ctx, op, p, (float *)result.dense.data, &a, &b, &lead);
    attn_tensor_free(ctx, &copy);
    return attn__out_end(ctx, out, &result, status);
}

ATTN__COLD attn_status attn_matmul(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b)
{
    attn__product p = ATTN_ZERO;
    ATTN__TRY(attn__need(ctx, "attn_matmul", "a", &a));
    ATTN__TRY(attn__need(ctx, "attn_matmul", "b", &b));
    if (a.ndim < 2 || b.ndim < 2)
        return attn__misfit(ctx, "attn_matmul", "a has", &a, "b", &b,
                            "both need 2 dimensions or more");
    p.given = b;
    return attn__product_of(ctx, "attn_matmul", out, a, b, &p);
}

/* out [.., N] = x [.., K] · w [K, N] + bias [N]; the bias may be zeroed. */
static attn_status attn__product_op(attn_ctx *ctx, const char *op, attn_tensor *out, attn_tensor x,
                                    attn_tensor w, attn_tensor bias)
{
    attn__product p = ATTN_ZERO;
    ATTN__TRY(attn__need_given(ctx, op, "place for the result", out));
    ATTN__TRY(attn__need(ctx, op, "x", &x));
    p.given = w;
    if (w.ndim == 3 && w.dtype == ATTN_PANELS && w.shape[2] == 16 &&
        attn__is_dense(attn_select(w, 0, 0))) {
        p.made = attn__panels_at(w.data, ATTN_F32, w.shape[1], w.shape[0] * 16);
        p.made.stride = (size_t)w.stride[0] * sizeof(float);
        w = attn_borrow(w.data, ATTN_F32, attn_shape2(p.made.n_in, p.made.n_out)); /* its shape */
    }
    ATTN__TRY(attn__need(ctx, op, "w", &w));
    if (w.ndim != 2)
        return attn__misfit(ctx, op, "w has", &w, "x", &x, "expected w [K, N] to fit x");
    float *buffer = attn__row_buffers(ctx, w.shape[1]);
    if (!buffer)
        return ctx->status;
    attn_status status =
        attn__vector(ctx, op, "bias", &bias, "w", &w, w.shape[1], 0, buffer, &p.bias);
    if (bias.ndim == 0)
        p.bias = NULL;
    if (status == ATTN_OK)
        status = attn__product_of(ctx, op, out, x, w, &p);
    attn_free(buffer);
    return status;
}

ATTN__COLD attn_status attn_linear(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor w,
                                   attn_tensor bias)
{
    return attn__product_op(ctx, "attn_linear", out, x, w, bias);
}

ATTN__COLD attn_status attn_unembed(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                    attn_tensor table)
{
    static const char op[] = "attn_unembed";
    ATTN__TRY(attn__need(ctx, op, "x", &x));
    ATTN__TRY(attn__need(ctx, op, "table", &table));
    if (table.ndim != 2 || table.shape[1] != attn__row_length(&x))
        return attn__misfit(ctx, op, "x has", &x, "table", &table, "expected [.., C] and [V, C]");
    return attn__product_op(ctx, op, out, x, attn_transpose(table, 0, 1), attn__no_tensor(NULL));
}

/* ---- embeddings ---- */

ATTN__COLD attn_status attn_embedding(attn_ctx *ctx, attn_tensor *out, attn_tensor table,
                                      attn_tensor tokens)
{
    static const char op[] = "attn_embedding";
    const attn_tensor *const inputs[] = {&table, NULL};
    attn__result result;
    attn_tensor dense = ATTN_ZERO;
    ATTN__TRY(attn__need(ctx, op, "table", &table));
    ATTN__TRY(attn__need_any(ctx, op, "tokens", &tokens));
    attn_shape table_shape = attn__shape_of(&table);
    attn_shape shape = attn__shape_of(&tokens);
    if (table.ndim != 2 || tokens.ndim > 3 || tokens.dtype != ATTN_I32)
        return attn__misfit(ctx, op, "table has", &table, "tokens", &tokens,
                            "expected [V, C] and 1 to 3 dimensions of ATTN_I32");
    size_t n = table.shape[1];
    size_t n_ids = attn_count(tokens);
    shape.dim[shape.ndim++] = n;
    ATTN__TRY(attn__out_begin(ctx, op, out, shape, 0, inputs, &result));
    attn_status status = attn_copy(ctx, &dense, tokens);
    if (status == ATTN_OK)
        status =
            attn__need_ids(ctx, op, "token", (const int32_t *)dense.data, 1, n_ids, table.shape[0]);
    if (status == ATTN_OK)
        for (size_t i = 0; i < n_ids; i++) {
            const size_t id = (size_t)((const int32_t *)dense.data)[i];
            float *to = (float *)result.dense.data + i * n;
            const float *row = attn__row(&table, &table_shape, id, n, to);
            if (row != to)
                memcpy(to, row, n * sizeof(float));
        }
    attn_tensor_free(ctx, &dense);
    return attn__out_end(ctx, out, &result, status);
}

/* ---- attention ---- */

/* All heads of an attention: a head for each index of the leading dimensions. */
typedef struct attn__all_heads {
    const attn__kernels *kernels;
    attn_tensor q, k, v; /* [.., Tq, d], [.., Tk, d], [.., Tk, dv] */
    int pattern_only;    /* v is not given */
    attn_tensor out;     /* dense: the pattern [.., Tq, Tk], or z [.., Tq, dv] */
    attn_shape lead;     /* leading dimensions, then 1, 1 */
    size_t n_heads, n_queries, n_keys, d_qk, d_v;
    float scale;
    int causal;
    attn_tensor mask;    /* dense or ndim 0 */
    size_t block_rows;   /* most queries at once */
    size_t scratch_size; /* floats for each worker */
    float *scratch;
} attn__all_heads;

/* Sizes the scratch memory of a worker: packed keys and values, scores, a last chain, and packed
 * rows. Fails if a size_t cannot count it. */
static attn_status attn__attention_plan(attn_ctx *ctx, const char *op, attn__all_heads *a,
                                        int n_threads)
{
    const size_t depth = a->d_qk > a->n_keys ? a->d_qk : a->n_keys;
    a->block_rows = a->n_queries < ATTN__QUERIES ? a->n_queries : ATTN__QUERIES;
    ATTN__REFUSE_IF(
        ctx,
        4.0 * n_threads *
                (ATTN__PACK + ((double)ATTN__QUERIES + (double)a->d_qk + (double)a->d_v + 32) *
                                  ((double)a->n_keys + 64)) >
            (double)(SIZE_MAX / 2),
        ATTN_E_MEMORY, "%s: no memory for the keys and values of q %s, k %s", op,
        attn__show(attn__shape_of(&a->q)).text, attn__show(attn__shape_of(&a->k)).text);
    a->scratch_size = attn__panels_size(ATTN_F32, a->d_qk, a->n_keys) / sizeof(float) +
                      attn__panels_size(ATTN_F32, a->n_keys, a->d_v) / sizeof(float) +
                      a->block_rows * attn__round_up(a->n_keys, 16) +
                      a->block_rows * attn__round_up(a->d_v, 16) +
                      attn__round_up(attn__pack_size(ATTN_F32, a->block_rows, depth), 16);
    return ATTN_OK;
}

/* A worker's share of the heads. It packs a head's keys and values into panels, then computes
 * blocks of queries as the forward pass does. */
static ATTN__COMPACT void attn__attention_body(attn__worker *me, void *arg)
{
    const attn__all_heads *a = (const attn__all_heads *)arg;
    const size_t stride = attn__round_up(a->n_keys, 16);
    float *keys = a->scratch + (size_t)me->id * a->scratch_size;
    float *values = keys + attn__panels_size(ATTN_F32, a->d_qk, a->n_keys) / sizeof(float);
    float *scores = values + attn__panels_size(ATTN_F32, a->n_keys, a->d_v) / sizeof(float);
    float *last_chain = scores + a->block_rows * stride;
    float *pack = last_chain + a->block_rows * attn__round_up(a->d_v, 16);
    size_t i, last;
    attn__share(me, a->n_heads, &i, &last);
    for (; i < last; i++) {
        const attn_tensor q = attn__matrix(a->q, &a->lead, i);
        const attn_tensor k = attn_transpose(attn__matrix(a->k, &a->lead, i), 0, 1);
        attn__head h = ATTN_ZERO;
        attn__pack_panels(keys, &k, 0, (a->n_keys + 15) / 16);
        if (!a->pattern_only) {
            const attn_tensor v = attn__matrix(a->v, &a->lead, i);
            attn__pack_panels(values, &v, 0, (a->d_v + 15) / 16);
        }
        h.keys = attn__panels_at(keys, ATTN_F32, a->d_qk, a->n_keys);
        h.values = attn__panels_at(values, ATTN_F32, a->n_keys, a->d_v);
        h.q_stride = q.stride[0];
        h.q_step = q.stride[1];
        h.scale = a->scale;
        h.causal = a->causal;
        h.z_stride = a->d_v;
        for (size_t row = 0; row < a->n_queries; row += h.rows) {
            h.first = a->causal ? a->n_keys - a->n_queries + row : 0;
            h.rows = attn__query_block(h.first, a->n_queries - row);
            h.q = (const float *)q.data + (ptrdiff_t)row * q.stride[0];
            if (a->mask.ndim > 0) {
                h.mask = (const float *)a->mask.data + attn__lead_offset(a->mask, &a->lead, i) +
                         row * a->n_keys;
                h.mask_stride = a->n_keys;
            }
            attn__head_scores(a->kernels, &h, scores, stride, pack);
            for (size_t j = 0; j < h.rows; j++)
                a->kernels->softmax(scores + j * stride, scores + j * stride, a->n_keys);
            h.z = (float *)a->out.data +
                  (i * a->n_queries + row) * (a->pattern_only ? a->n_keys : a->d_v);
            if (a->pattern_only)
                for (size_t j = 0; j < h.rows; j++)
                    memcpy(h.z + j * a->n_keys, scores + j * stride, a->n_keys * sizeof(float));
            else
                attn__head_weigh(a->kernels, &h, scores, stride, last_chain, pack);
        }
    }
}

/* Checks the inputs of an attention and fills in `a`. */
static attn_status attn__attention_check(attn_ctx *ctx, const char *op, attn__all_heads *a,
                                         const attn_attention_desc *desc)
{
    const attn_tensor q = a->q, k = a->k, v = a->pattern_only ? k : a->v;
    attn_shape lead;
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_attention_desc, desc));
    ATTN__TRY(attn__need_kernels(ctx, &a->kernels));
    ATTN__TRY(attn__need(ctx, op, "q", &q));
    ATTN__TRY(attn__need(ctx, op, "k", &k));
    ATTN__TRY(attn__need(ctx, op, "v", &v));
    if (q.ndim < 2 || k.ndim < 2 || v.ndim < 2 || q.shape[q.ndim - 1] != k.shape[k.ndim - 1])
        return attn__misfit(ctx, op, "q has", &q, "k", &k, "expected [.., Tq, d] and [.., Tk, d]");
    a->n_queries = q.shape[q.ndim - 2];
    a->n_keys = k.shape[k.ndim - 2];
    a->d_qk = q.shape[q.ndim - 1];
    a->d_v = v.shape[v.ndim - 1];
    if (v.shape[v.ndim - 2] != a->n_keys)
        return attn__misfit(ctx, op, "k has", &k, "v", &v, "expected [.., Tk, d] and [.., Tk, dv]");
    if (!attn__broadcast(attn__lead_of(&q), attn__lead_of(&k), &lead))
        return attn__misfit(ctx, op, "q has", &q, "k", &k,
                            "their leading dimensions do not fit together");
    if (!attn__broadcast(lead, attn__lead_of(&v), &a->lead))
        return attn__misfit(ctx, op, "q has", &q, "v", &v,
                            "their leading dimensions do not fit together");
    a->n_heads = attn__n_matrices(a->lead);
    a->scale = desc && desc->scale != 0 ? desc->scale : 1.0f / sqrtf((float)a->d_qk);
    ATTN__REFUSE_IF(
        ctx, desc && (desc->mask_kind < ATTN_MASK_NONE || desc->mask_kind > ATTN_MASK_GIVEN),
        ATTN_E_ARGUMENT, "%s: mask_kind is %d; expected ATTN_MASK_NONE, _CAUSAL or _GIVEN", op,
        (int)desc->mask_kind);
    a->causal = desc && desc->mask_kind == ATTN_MASK_CAUSAL;
    if (a->causal && a->n_queries > a->n_keys)
        return attn__misfit(ctx, op, "q has", &q, "k", &k,
                            "a causal mask needs no more queries than keys");
    if (desc && desc->mask_kind == ATTN_MASK_GIVEN) {
        attn_shape full = a->lead, both;
        ATTN__TRY(attn__need(ctx, op, "mask", &desc->mask));
        full.dim[full.ndim - 2] = a->n_queries;
        full.dim[full.ndim - 1] = a->n_keys;
        ATTN__REFUSE_IF(
            ctx,
            desc->mask.ndim < 2 || desc->mask.shape[desc->mask.ndim - 2] != a->n_queries ||
                desc->mask.shape[desc->mask.ndim - 1] != a->n_keys ||
                !attn__broadcast(full, attn__shape_of(&desc->mask), &both) ||
                memcmp(both.dim, full.dim, sizeof both.dim) != 0,
            ATTN_E_SHAPE, "%s: the mask has shape %s; expected [.., Tq, Tk] to fit scores %s", op,
            attn__show(attn__shape_of(&desc->mask)).text, attn__show(full).text);
    }
    return ATTN_OK;
}

/* *out = the pattern, or the weighted sum of the values. */
static attn_status attn__attention_of(attn_ctx *ctx, const char *op, attn_tensor *out,
                                      attn__all_heads *a, const attn_attention_desc *desc)
{
    const int is_masked = desc && desc->mask_kind == ATTN_MASK_GIVEN;
    const attn_tensor *const inputs[] = {&a->q, &a->k, &a->v, is_masked ? &desc->mask : NULL, NULL};
    attn__result result;
    attn_tensor q_copy = ATTN_ZERO, mask_copy = ATTN_ZERO;
    attn__scratch scratch;
    ATTN__TRY(attn__attention_check(ctx, op, a, desc));
    attn_shape shape = a->lead;
    shape.dim[shape.ndim - 2] = a->n_queries;
    shape.dim[shape.ndim - 1] = a->pattern_only ? a->n_keys : a->d_v;
    ATTN__TRY(attn__out_begin(ctx, op, out, shape, 0, inputs, &result));
    a->out = result.dense;
    attn_status status = attn__as_floats(ctx, &q_copy, &a->q, 0);
    if (status == ATTN_OK && is_masked) {
        a->mask = desc->mask;
        status = attn__as_floats(ctx, &mask_copy, &a->mask, 1);
    }
    int n_threads = attn__threads_for(ctx, (double)a->n_heads * (double)a->n_queries *
                                               (double)a->n_keys * (double)(a->d_qk + a->d_v));
    if (status == ATTN_OK)
        status = attn__attention_plan(ctx, op, a, n_threads);
    if (status == ATTN_OK && attn_count(a->out) > 0) {
        a->scratch = attn__scratch_new(ctx, &scratch, (size_t)n_threads * a->scratch_size,
                                       "attention's keys and values");
        if (a->scratch)
            attn__parallel(NULL, n_threads, attn__attention_body, a);
        else
            status = ATTN_E_MEMORY;
        attn_free(scratch.allocated);
    }
    attn_tensor_free(ctx, &q_copy);
    attn_tensor_free(ctx, &mask_copy);
    return attn__out_end(ctx, out, &result, status);
}

ATTN__COLD attn_status attn_attention(attn_ctx *ctx, attn_tensor *out, attn_tensor q, attn_tensor k,
                                      attn_tensor v, const attn_attention_desc *desc)
{
    attn__all_heads a = ATTN_ZERO;
    a.q = q;
    a.k = k;
    a.v = v;
    return attn__attention_of(ctx, "attn_attention", out, &a, desc);
}

ATTN__COLD attn_status attn_attention_pattern(attn_ctx *ctx, attn_tensor *pattern, attn_tensor q,
                                              attn_tensor k, const attn_attention_desc *desc)
{
    attn__all_heads a = ATTN_ZERO;
    a.q = q;
    a.k = k;
    a.pattern_only = 1;
    return attn__attention_of(ctx, "attn_attention_pattern", pattern, &a, desc);
}

/* A view of [.., T, H*d] as [.., H, T, d]. */
static attn_tensor attn__split_heads(attn_tensor x, size_t n_head)
{
    const int last = x.ndim - 1;
    attn_shape shape = attn__shape_of(&x);
    shape.dim[last] = n_head;
    shape.dim[last + 1] = x.shape[last] / n_head;
    shape.ndim++;
    return attn_transpose(attn_reshape(x, shape), last - 1, last);
}

/* The checks of attn_multihead and attn_multihead_pattern; the second does not use w_v. */
static attn_status attn__multihead_check(attn_ctx *ctx, const char *op, attn_tensor x,
                                         attn_tensor y, const attn_block_weights *w)
{
    ATTN__TRY(attn__need(ctx, op, "x", &x));
    ATTN__TRY(attn__need(ctx, op, "y", &y));
    ATTN__TRY(attn__need_given(ctx, op, "struct of weights", w));
    ATTN__TRY(attn__need(ctx, op, "w_q", &w->w_q));
    ATTN__TRY(attn__need(ctx, op, "w_k", &w->w_k));
    if (x.ndim < 2 || x.ndim > 3 || y.ndim != x.ndim || (x.ndim == 3 && x.shape[0] != y.shape[0]))
        return attn__misfit(ctx, op, "x has", &x, "y", &y,
                            "expected [T, C] for both, or [B, T, C] with the same B");
    if (w->w_q.ndim != 2 || w->w_k.ndim != 2 || w->w_q.shape[1] != w->w_k.shape[1])
        return attn__misfit(ctx, op, "w_q has", &w->w_q, "w_k", &w->w_k,
                            "expected [C, H*d] for both");
    ATTN__REFUSE_IF(ctx, w->n_head == 0 || w->w_q.shape[1] % w->n_head != 0, ATTN_E_SHAPE,
                    "%s: w_q %s does not divide into %zu heads", op,
                    attn__show(attn__shape_of(&w->w_q)).text, w->n_head);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_multihead(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor y,
                                      const attn_block_weights *w, const attn_attention_desc *desc)
{
    static const char op[] = "attn_multihead";
    attn_tensor q = ATTN_ZERO, k = q, v = q, z = q, z_heads;
    attn_status status;
    ATTN__TRY(attn__multihead_check(ctx, op, x, y, w));
    ATTN__TRY(attn__need(ctx, op, "w_v", &w->w_v));
    ATTN__REFUSE_IF(ctx, w->w_v.ndim != 2 || w->w_v.shape[1] % w->n_head != 0, ATTN_E_SHAPE,
                    "%s: w_v %s does not divide into %zu heads", op,
                    attn__show(attn__shape_of(&w->w_v)).text, w->n_head);
    attn_shape shape = attn__shape_of(&x);
    shape.dim[shape.ndim - 1] = w->w_v.shape[1];
    if ((status = attn_linear(ctx, &q, x, w->w_q, w->b_q)) == ATTN_OK &&
        (status = attn_linear(ctx, &k, y, w->w_k, w->b_k)) == ATTN_OK &&
        (status = attn_linear(ctx, &v, y, w->w_v, w->b_v)) == ATTN_OK &&
        (status = attn_zeros(ctx, &z, ATTN_F32, shape)) == ATTN_OK) {
        z_heads = attn__split_heads(z, w->n_head);
        status =
            attn_attention(ctx, &z_heads, attn__split_heads(q, w->n_head),
                           attn__split_heads(k, w->n_head), attn__split_heads(v, w->n_head), desc);
    }
    if (status == ATTN_OK)
        status = attn_linear(ctx, out, z, w->w_o, w->b_o);
    attn_tensor_free(ctx, &q);
    attn_tensor_free(ctx, &k);
    attn_tensor_free(ctx, &v);
    attn_tensor_free(ctx, &z);
    return status;
}

ATTN__COLD attn_status attn_multihead_pattern(attn_ctx *ctx, attn_tensor *pattern, attn_tensor x,
                                              attn_tensor y, const attn_block_weights *w,
                                              const attn_attention_desc *desc)
{
    attn_tensor q = ATTN_ZERO, k = q;
    attn_status status = attn__multihead_check(ctx, "attn_multihead_pattern", x, y, w);
    if (status == ATTN_OK && (status = attn_linear(ctx, &q, x, w->w_q, w->b_q)) == ATTN_OK &&
        (status = attn_linear(ctx, &k, y, w->w_k, w->b_k)) == ATTN_OK)
        status = attn_attention_pattern(ctx, pattern, attn__split_heads(q, w->n_head),
                                        attn__split_heads(k, w->n_head), desc);
    attn_tensor_free(ctx, &q);
    attn_tensor_free(ctx, &k);
    return status;
}

ATTN__COLD attn_status attn_mlp(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                const attn_block_weights *w, attn_mlp_act act_fn)
{
    attn_tensor hidden = ATTN_ZERO;
    attn_status status;
    ATTN__TRY(attn__need_given(ctx, "attn_mlp", "struct of weights", w));
    if ((status = attn_linear(ctx, &hidden, x, w->w_in, w->b_in)) == ATTN_OK &&
        (status = attn_apply_mlp_act(ctx, &hidden, hidden, act_fn)) == ATTN_OK)
        status = attn_linear(ctx, out, hidden, w->w_out, w->b_out);
    attn_tensor_free(ctx, &hidden);
    return status;
}

ATTN__COLD attn_status attn_block(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                  const attn_block_weights *w, float eps, attn_mlp_act act_fn)
{
    attn_tensor normed = ATTN_ZERO, mid = ATTN_ZERO;
    attn_attention_desc causal = ATTN_ZERO;
    attn_status status;
    ATTN__TRY(attn__need_given(ctx, "attn_block", "struct of weights", w));
    causal.mask_kind = ATTN_MASK_CAUSAL;
    if ((status = attn_layernorm(ctx, &normed, x, w->ln1_w, w->ln1_b, eps)) == ATTN_OK &&
        (status = attn_multihead(ctx, &mid, normed, normed, w, &causal)) == ATTN_OK &&
        (status = attn_add(ctx, &mid, x, mid)) == ATTN_OK &&
        (status = attn_layernorm(ctx, &normed, mid, w->ln2_w, w->ln2_b, eps)) == ATTN_OK &&
        (status = attn_mlp(ctx, &normed, normed, w, act_fn)) == ATTN_OK)
        status = attn_add(ctx, out, mid, normed);
    attn_tensor_free(ctx, &normed);
    attn_tensor_free(ctx, &mid);
    return status;
}

/* ---- random numbers ---- */

/* init_genrand of Matsumoto and Nishimura. */
static void attn__rng_fill(uint32_t *state, uint32_t seed)
{
    for (uint32_t i = 0; i < 624; i++) {
        state[i] = seed;
        seed = 1812433253u * (seed ^ (seed >> 30)) + i + 1;
    }
}

/* Their init_by_array, for the two words of a 64-bit seed. */
static void attn__rng_mix(uint32_t *state, uint64_t seed)
{
    uint32_t i = 1;
    attn__rng_fill(state, 19650218u);
    for (uint32_t k = 0; k < 624 + 623; k++) {
        const uint32_t before = state[i - 1] ^ (state[i - 1] >> 30);
        if (k < 624)
            state[i] = (state[i] ^ (before * 1664525u)) + (uint32_t)(seed >> (k % 2 * 32)) + k % 2;
        else
            state[i] = (state[i] ^ (before * 1566083941u)) - i;
        if (++i == 624) {
            state[0] = state[623];
            i = 1;
        }
    }
    state[0] = 0x80000000u;
}

ATTN__COLD void attn_rng_seed(attn_rng *rng, uint64_t seed)
{
    if (!rng)
        return;
    if (seed >> 32)
        attn__rng_mix(rng->state, seed);
    else
        attn__rng_fill(rng->state, (uint32_t)seed);
    rng->next = 624;
}

ATTN__DEF uint32_t attn_rng_u32(attn_rng *rng)
{
    uint32_t y, *s = rng ? rng->state : NULL;
    if (!rng)
        return 0;
    if (rng->next == 0) /* zeroed: a seeded one is never 0 here */
        attn_rng_seed(rng, 0);
    if (rng->next >= 624) {
        for (uint32_t i = 0; i < 624; i++) {
            y = (s[i] & 0x80000000u) | (s[(i + 1) % 624] & 0x7fffffffu);
            s[i] = s[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        rng->next = 0;
    }
    y = s[rng->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

ATTN__DEF float attn_rng_uniform(attn_rng *rng)
{
    return (float)(attn_rng_u32(rng) & 0xffffff) * (1.0f / 16777216.0f);
}

/* clang-format off */
/* >>format (tests: format) ======================================================================
 * THE FILE FORMAT of .attn files, versions 1 to 5, and opening them. Before it is used, every
 * number is checked against the size of the file, and every tensor against the configuration.
 *
 * All numbers are little-endian and unsigned. Reserved bytes and padding are zero. Version 2 adds
 * the activation function and bits 1 and 2 of the flags, for relatives of GPT-2. Version 3 adds
 * bit 3 of the flags, unembed.b_U and the further ids of end-of-text tokens. Version 4 adds the
 * strings. Version 5 adds bit 3 of the tokenizer's flags, and heads. A model is written in the
 * lowest version that can hold it, so that older libraries can read it.
 *
 * Header, 256 bytes:
 *   0   8  magic: 89 41 54 54 4E 0D 0A 1A ("\x89ATTN\r\n\x1a")
 *   8   4  version: 1 to 5                      12   4  header size: 256
 *  16   8  size of the whole file
 *  24   4  n_vocab                              28   4  n_ctx
 *  32   4  d_model                              36   4  n_head
 *  40   4  n_layer                              44   4  d_mlp
 *  48   4  layer norm epsilon (f32 bits)        52   4  flags: bit 0 = tied unembedding,
 *                                                       bit 1 = scores are not divided by
 *                                                       sqrt(d_head), bit 2 = scores of layer i
 *                                                       are divided by i + 1, bit 3 = the logits
 *                                                       have a bias, unembed.b_U
 *  56   4  id of the beginning-of-text token    60   4  id of the end-of-text token
 *                                                       (both: FFFFFFFF for none)
 *  64   4  n_tensors                            68   4  activation function: 0 = gelu by tanh,
 *                                                       1 = gelu by erf, 2 = relu, 3 = silu
 *  72   8  tensor table: offset (256)           80   8  tensor table: size (128 * n_tensors)
 *  88   8  tensor table: checksum
 *  96   8  tokenizer: offset                   104   8  tokenizer: size
 * 112   8  tokenizer: checksum (all three are 0 if there is none)
 * 120   4  number of further end-of-text ids   124 124  those ids; reserved beyond them
 *          (0 to 31)
 * 248   8  checksum of bytes 0..247
 *
 * Tensor table, one entry of 128 bytes each, in the order of the data:
 *   0  64  name, padded with zeros
 *  64   4  dtype: 0 = f32, 1 = f16,             68   4  layout: 0 = rows, 1 = panels
 *          3 = q8, 4 = q4 (panels only);
 *          2 = i32, never in a file
 *  72   4  number of dimensions: 1 or 2         76   4  reserved
 *  80   8  first dimension                      88   8  second dimension (1 if there is none)
 *  96   8  offset in the file                  104   8  size in bytes
 * 112   8  checksum                            120   8  reserved
 *
 * Sections follow in the order header, table, tokenizer, strings, tensors, each at the next
 * multiple of 64 bytes, and the file ends with the last tensor.
 *
 * Tensors (C = d_model, F = d_mlp, V = n_vocab; i = layer):
 *   embed.W_E             panels [C, V]    pos_embed.W_pos       rows [n_ctx, C] f32
 *   blocks.i.ln1.w, .b    rows [C] f32     blocks.i.ln2.w, .b    rows [C] f32
 *   blocks.i.attn.W_QKV   panels [C, 3C]   blocks.i.attn.b_QKV   rows [3C] f32
 *   blocks.i.attn.W_O     panels [C, C]    blocks.i.attn.b_O     rows [C] f32
 *   blocks.i.mlp.W_in     panels [C, F]    blocks.i.mlp.b_in     rows [F] f32
 *   blocks.i.mlp.W_out    panels [F, C]    blocks.i.mlp.b_out    rows [C] f32
 *   ln_final.w, .b        rows [C] f32     unembed.W_U           panels [C, V], only if untied
 *   unembed.b_U           rows [V] f32, only with bit 3 of the flags
 *   head.weight           rows [n, C] f32   head.bias             rows [n] f32
 * A head, if there is one, is last: a linear layer from ln_final to n labels, for tools. Strings
 * "head.label.0" and so on name them.
 * W_QKV has the columns of the queries, then of the keys, then of the values, each head by head.
 * W_E is stored as its transpose, so that a tied unembedding is the same panels.
 *
 * Layout "rows" is row-major, dense. Layout "panels" is how the kernels read a matrix [K, N], which
 * maps inputs k to outputs n. A line is 64 bytes: 16 outputs times 1 (f32) or 2 (f16) consecutive
 * k, the 16 outputs of the first k first. A panel is the lines of 16 outputs over all k. The
 * matrix is ceil(N / 16) panels, padded with zeros at the edges. So entry (k, n) of an f32 matrix
 * is float number (n / 16 * K + k) * 16 + n % 16, and of an f16 matrix f16 number
 * (n / 16 * K2 + k) * 16 + n % 16, where K2 is K rounded up to even.
 *
 * A panel of q8 or q4 has, for each 64 k, one line of scales and then 16 lines (q8) or 8 (q4). The
 * last 64 k are padded. The line of scales has f16 scales: of 16 outputs for the first 32 k, then
 * of the same outputs for the second 32 k. A q8 line is 16 outputs times 4 consecutive k, the 4 of
 * an output together, one byte each: the weight is scale * (byte - 128). A q4 line is 16 outputs
 * times 8 consecutive k. Byte 4 n + i holds k = i in its low 4 bits and k = 4 + i in its high 4
 * bits: the weight is scale * (bits - 8).
 *
 * Tokenizer section:
 *   0   4  n_tokens                              4   4  n_merges
 *   8   2  n_special                            10   2  flags: bit 0 = bytes may lack a token,
 *                                                       bit 1 = the first special token replaces
 *                                                       such bytes, bit 2 = tokens are characters,
 *                                                       bit 3 = texts get a blank in front
 *                                               12   4  size of the token bytes
 *  16      ends: u32[n_tokens], end of each token's bytes within the token bytes
 *          merges: u32[n_merges][3] = left id, right id, merged id; in order of rank
 *          special: u32[n_special] = ids of tokens that only attn_encode_special makes
 *          the token bytes (raw bytes, not the printable characters of GPT-2's vocab.json)
 * Each of the 256 bytes must be a token, unless bit 0 of the flags is set. A byte without a token
 * is then left out of texts, or replaced (bit 1). With bits 0 and 2 the same is true of characters,
 * and there are no merges. No special token is in a merge. A token may have no bytes, unless it is
 * special or in a merge. A special token has at most 256 bytes; with bit 3, two or more. n_tokens
 * is at most n_vocab.
 *
 * Strings, which versions 4 and 5 always have:
 *   0   8  checksum of the rest of the section    8   8  size of the section (20 to 65536; in
 *                                                       version 5, 16 if there is none)
 *  16      for each key: the key, a zero byte, its value, a zero byte
 * All are UTF-8 without control characters, and not empty. Keys ascend by their bytes. attn-convert
 * writes "name", "source" and "license", as far as they are known, "checkpoint_sha256" (of the file
 * with the weights, or of several, in the order of their names, as one) and "converter". There is
 * no date, so that the same checkpoint gives the same bytes. "processed" says how weights were
 * changed.
 *
 * Checksum: the data is cut into blocks of 1 MiB; the last one may be shorter. A block is padded
 * with zeros to a multiple of 256 bytes, and read as 32-bit words w. There are 64 lanes; they start
 * as a[j] = j. Lane j takes word j of every 64: a = (a ^ w) * 9E3779B1h; a = a ^ (a >> 15) (mod
 * 2^32). The digest of the block starts as its size in bytes, without padding, and takes the lanes
 * in order: d = (d ^ a[j]) * 9E3779B97F4A7C15h; d = d ^ (d >> 32) (mod 2^64). The checksum starts
 * as 0 and takes the digests in the same way: c = (c ^ d) * 9E3779B97F4A7C15h; c = c ^ (c >> 32).
 * If one word is changed, the checksum always changes. */
/* clang-format on */

static uint64_t attn__checksum(const unsigned char *block, size_t size)
{
    const attn_ctx any = ATTN_ZERO;
    const attn__kernels *const kernels = attn__kernels_for(&any);
    uint64_t checksum = 0;
    while (size > 0) {
        const size_t n = size < ATTN__IO_BLOCK ? size : ATTN__IO_BLOCK;
        checksum = attn__mix(checksum, kernels->digest(block, n));
        block += n;
        size -= n;
    }
    return checksum;
}

/* One matrix or vector of the model. */
typedef struct attn__weight {
    const char *name;
    attn_dtype dtype;
    int panels; /* 1: layout "panels", 0: rows */
    int ndim;
    uint64_t shape[2]; /* [1] is 1 for a vector */
    uint64_t offset, size, checksum;
    const unsigned char *data;
} attn__weight;

/* ---- opening a file, where systems differ ----
 * Paths are UTF-8. On Windows they are converted to UTF-16. A function that fails sets errno. */

#if defined(_WIN32)
/* The path in UTF-16, which the caller frees; NULL on failure. A path near the old limit of 260
 * characters becomes absolute, with the prefix that lifts the limit. */
static wchar_t *attn__wide(const char *path)
{
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *wide, *full = NULL;
    errno = n > 0 ? ENOMEM : EINVAL;
    wide = n > 0 ? (wchar_t *)malloc((size_t)n * sizeof *wide) : NULL;
    if (wide)
        MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, n);
    if (!wide || n < 248 || wide[0] == L'\\')
        return wide;
    DWORD length = GetFullPathNameW(wide, 0, NULL, NULL);
    if (length > 0)
        full = (wchar_t *)malloc(((size_t)length + 4) * sizeof *full);
    if (full) {
        memcpy(full, L"\\\\?\\", 4 * sizeof *full);
        GetFullPathNameW(wide, length, full + 4, NULL);
    }
    free(wide);
    return full;
}

static FILE *attn__open(const char *path)
{
    wchar_t *const wide = attn__wide(path);
    FILE *const file = wide ? _wfopen(wide, L"rb") : NULL;
    const DWORD attributes = wide && !file ? GetFileAttributesW(wide) : 0;
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY))
        errno = EISDIR;
    free(wide);
    return file;
}
#else
static FILE *attn__open(const char *path)
{
    return fopen(path, "rb");
}
#endif

/* ---- the bytes of a file: mapped if possible, else read ---- */

#if defined(_WIN32) && !defined(ATTN_NO_MMAP)
static int attn__map(const char *path, const unsigned char **bytes, size_t *size)
{
    wchar_t *const wide = attn__wide(path);
    HANDLE mapping = NULL, file = INVALID_HANDLE_VALUE;
    LARGE_INTEGER length;
    const void *view = NULL;
    if (wide)
        file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING,
                           FILE_ATTRIBUTE_NORMAL, NULL);
    free(wide);
    if (file == INVALID_HANDLE_VALUE)
        return 0;
    length.QuadPart = 0;
    if (GetFileSizeEx(file, &length) && length.QuadPart > 0 &&
        (unsigned long long)length.QuadPart <= SIZE_MAX)
        mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    if (mapping)
        view = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
    if (mapping)
        CloseHandle(mapping);
    CloseHandle(file);
    *bytes = (const unsigned char *)view;
    *size = (size_t)length.QuadPart;
    return view != NULL;
}
static void attn__unmap(const unsigned char *bytes, size_t size)
{
    (void)size;
    UnmapViewOfFile(bytes);
}
#elif (defined(__unix__) || defined(__APPLE__)) && !defined(ATTN_NO_MMAP)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
static int attn__map(const char *path, const unsigned char **bytes, size_t *size)
{
    struct stat status;
    void *view = MAP_FAILED;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return 0; /* opening a pipe here and closing it would end it for attn__read_file */
    int file = open(path, O_RDONLY);
    if (file < 0)
        return 0;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
        (unsigned long long)status.st_size <= SIZE_MAX)
        view = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (view == MAP_FAILED)
        return 0;
    *bytes = (const unsigned char *)view;
    *size = (size_t)status.st_size;
    return 1;
}
static void attn__unmap(const unsigned char *bytes, size_t size)
{
    munmap((void *)(uintptr_t)bytes, size);
}
#else
static int attn__map(const char *path, const unsigned char **bytes, size_t *size)
{
    (void)path, (void)bytes, (void)size;
    return 0;
}
static void attn__unmap(const unsigned char *bytes, size_t size) /* cover: nothing is mapped */
{
    (void)bytes, (void)size;
}
#endif

/* A path for messages: the last 100 bytes of a long one, so that the reason fits too. */
static const char *attn__shown_path(const char *path)
{
    const size_t n = strlen(path);
    if (n <= 100)
        return path;
    path += n - 100;
    while ((*path & 0xc0) == 0x80) /* the middle of a character in UTF-8 */
        path++;
    return path;
}

enum { ATTN__HEADER = 256, ATTN__ENTRY = 128 }; /* bytes */
enum { ATTN__MORE_EOS = sizeof((attn_model *)0)->more_eos / sizeof(attn_token) };
static const unsigned char attn__magic[8] = {0x89, 'A', 'T', 'T', 'N', 0x0d, 0x0a, 0x1a};

static int attn__header_is_whole(const unsigned char *header)
{
    return attn__checksum(header, 248) == attn__u64(header + 248);
}

static attn_status attn__fail_read(attn_ctx *ctx, const char *path, int error)
{
#if defined(EISDIR)
    ATTN__REFUSE_IF(ctx, error == EISDIR, ATTN_E_IO,
                    "%s: it is a directory; attn-convert makes an .attn file of a checkpoint's "
                    "directory",
                    attn__shown_path(path));
#endif
    return attn_fail(ctx, ATTN_E_IO, "%s: cannot be read: %s", attn__shown_path(path),
                     error ? strerror(error) : "the system gave no reason");
}

/* Reads a file into a growing block. This works for pipes too. It stops where the header shows that
 * the rest is no part of a model, because a stream may have no end. */
static attn_status attn__read_file(attn_ctx *ctx, const char *path, void **bytes, size_t *size)
{
    FILE *file = attn__open(path);
    size_t room = 1 << 20, n;
    unsigned char *larger;
    if (!file)
        return attn__fail_read(ctx, path, errno);
    unsigned char *block = (unsigned char *)attn_alloc(ctx, 1, room, "a model file");
    *size = 0;
    while (block && (n = fread(block + *size, 1, room - *size, file)) > 0) {
        *size += n;
        if (*size >= ATTN__HEADER &&
            (!attn__header_is_whole(block) || *size > attn__u64(block + 16)))
            break; /* the header says how large it is */
        if (*size < room)
            continue;
        larger = (unsigned char *)attn_alloc(ctx, 1, room < SIZE_MAX / 2 ? room * 2 : SIZE_MAX,
                                             "a model file");
        if (larger)
            memcpy(larger, block, *size);
        attn_free(block);
        block = larger;
        room *= 2;
    }
    int failed = ferror(file) ? errno : 0;
    fclose(file);
    ATTN__TRY_MEMORY(block);
    if (failed) {
        attn_free(block);
        return attn__fail_read(ctx, path, failed);
    }
    *bytes = block;
    return ATTN_OK;
}

/* ---- the tensors that a model needs ---- */

/* A tensor that a model of this configuration has. */
typedef struct attn__expected {
    const char *name; /* in a block without "blocks.i." */
    int is_panels;
    size_t n_in, n_out;   /* a vector has n_out only */
    const float **rows;   /* its place in attn_model; NULL for panels */
    attn__panels *panels; /* likewise; NULL for rows */
} attn__expected;

/* The tensors of block `layer`, or for ATTN_NO_LAYER those outside the blocks. Returns their
 * number. */
static int attn__expect(attn_model *m, size_t layer, attn__expected e[16])
{
    const attn_config *c = &m->config;
    const size_t width = c->d_model, inner = c->d_mlp;
    int n = 0;
#define ATTN__WANT(name_, is_panels_, in_, out_, rows_, panels_)                                   \
    (e[n].name = (name_), e[n].is_panels = (is_panels_), e[n].n_in = (in_), e[n].n_out = (out_),   \
     e[n].rows = (rows_), e[n].panels = (panels_), n++)
    if (layer == ATTN_NO_LAYER) {
        ATTN__WANT("embed.W_E", 1, width, c->n_vocab, NULL, &m->w_e);
        ATTN__WANT("pos_embed.W_pos", 0, c->n_ctx, width, &m->w_pos, NULL);
        ATTN__WANT("ln_final.w", 0, 0, width, &m->ln_f_w, NULL);
        ATTN__WANT("ln_final.b", 0, 0, width, &m->ln_f_b, NULL);
        if (!c->tied)
            ATTN__WANT("unembed.W_U", 1, width, c->n_vocab, NULL, &m->w_u);
        if (c->has_b_U)
            ATTN__WANT("unembed.b_U", 0, 0, c->n_vocab, &m->b_u, NULL);
        if (m->n_labels > 0)
            ATTN__WANT("head.weight", 0, m->n_labels, width, &m->head_w, NULL);
        if (m->n_labels > 0 && m->has_head_bias)
            ATTN__WANT("head.bias", 0, 0, m->n_labels, &m->head_b, NULL);
    } else {
        attn__layer *l = &m->layers[layer];
        ATTN__WANT("ln1.w", 0, 0, width, &l->ln1_w, NULL);
        ATTN__WANT("ln1.b", 0, 0, width, &l->ln1_b, NULL);
        ATTN__WANT("attn.W_QKV", 1, width, 3 * width, NULL, &l->w_qkv);
        ATTN__WANT("attn.b_QKV", 0, 0, 3 * width, &l->b_qkv, NULL);
        ATTN__WANT("attn.W_O", 1, width, width, NULL, &l->w_o);
        ATTN__WANT("attn.b_O", 0, 0, width, &l->b_o, NULL);
        ATTN__WANT("ln2.w", 0, 0, width, &l->ln2_w, NULL);
        ATTN__WANT("ln2.b", 0, 0, width, &l->ln2_b, NULL);
        ATTN__WANT("mlp.W_in", 1, width, inner, NULL, &l->w_in);
        ATTN__WANT("mlp.b_in", 0, 0, inner, &l->b_in, NULL);
        ATTN__WANT("mlp.W_out", 1, inner, width, NULL, &l->w_out);
        ATTN__WANT("mlp.b_out", 0, 0, width, &l->b_out, NULL);
    }
#undef ATTN__WANT
    return n;
}

/* For "blocks.7.ln1.w": returns 7, *rest is "ln1.w". For other names: ATTN_NO_LAYER and the whole
 * name. */
static size_t attn__split_name(const char *name, const char **rest)
{
    size_t layer = 0;
    int digits = 0;
    *rest = name;
    if (strncmp(name, "blocks.", 7) != 0)
        return ATTN_NO_LAYER;
    for (name += 7; *name >= '0' && *name <= '9' && digits < 9; name++, digits++)
        layer = layer * 10 + (size_t)(*name - '0');
    if (digits == 0 || (digits > 1 && name[-digits] == '0') || *name != '.')
        return ATTN_NO_LAYER;
    *rest = name + 1;
    return layer;
}

static int attn__is_bound(const attn__expected *e)
{
    return e->rows ? *e->rows != NULL : e->panels->data != NULL;
}

/* Checks the type and shape of a tensor, and points the model at it. */
static attn_status attn__bind_one(attn_ctx *ctx, const attn__expected *e, const attn__weight *t,
                                  const char *path)
{
    const int is_matrix = e->is_panels || e->n_in > 0;
    ATTN__REFUSE_IF(ctx, t->panels != e->is_panels || (!t->panels && t->dtype != ATTN_F32),
                    ATTN_E_FORMAT, "%s: tensor %s has the wrong layout; expected %s", path, t->name,
                    e->is_panels ? "panels" : "rows of f32");
    ATTN__REFUSE_IF(ctx,
                    t->ndim != (is_matrix ? 2 : 1) ||
                        t->shape[0] != (is_matrix ? e->n_in : e->n_out) ||
                        (is_matrix && t->shape[1] != e->n_out),
                    ATTN_E_FORMAT,
                    "%s: tensor %s has shape [%llu, %llu]; the configuration asks for "
                    "[%llu, %llu]",
                    path, t->name, ATTN__LLU(t->shape[0]), ATTN__LLU(t->shape[1]),
                    ATTN__LLU(is_matrix ? e->n_in : e->n_out), ATTN__LLU(is_matrix ? e->n_out : 1));
    if (e->rows)
        *e->rows = (const float *)(const void *)t->data;
    else
        *e->panels = attn__panels_at(t->data, t->dtype, e->n_in, e->n_out);
    return ATTN_OK;
}

/* Version 5 may have a head behind the other tensors: how many labels it has is its own shape. */
static void attn__find_head(attn_model *m)
{
    const attn__weight *last = m->weights + m->n_weights - 1;
    if (attn__u32(m->bytes + 8) < 5)
        return;
    m->has_head_bias = m->n_weights > 1 && strcmp(last->name, "head.bias") == 0 ? 1 : 0;
    last -= m->has_head_bias;
    m->n_labels = strcmp(last->name, "head.weight") == 0 ? (size_t)last->shape[0] : 0;
}

/* Points the model at its tensors, which may have any order. All that it needs must be there, each
 * once, and no others. */
static attn_status attn__bind(attn_ctx *ctx, attn_model *m, const char *path)
{
    attn__expected e[16];
    size_t found = 0, layer;
    char missing[64];
    int i, n;
    for (size_t at = 0; at < m->n_weights; at++) {
        const char *name;
        layer = attn__split_name(m->weights[at].name, &name);
        n = layer + 1 <= m->config.n_layer ? attn__expect(m, layer, e) : 0;
        for (i = 0; i < n && strcmp(e[i].name, name) != 0;)
            i++;
        if (i == n || attn__is_bound(&e[i]))
            continue;
        ATTN__TRY(attn__bind_one(ctx, &e[i], &m->weights[at], path));
        found++;
    }
    for (layer = ATTN_NO_LAYER; layer + 1 <= m->config.n_layer; layer++) {
        n = attn__expect(m, layer, e);
        for (i = 0; i < n; i++)
            if (!attn__is_bound(&e[i])) {
                attn__join_name(missing, layer, e[i].name);
                return attn_fail(ctx, ATTN_E_FORMAT, "%s: tensor %s is missing", path, missing);
            }
    }
    ATTN__REFUSE_IF(ctx, found != m->n_weights, ATTN_E_FORMAT,
                    "%s: the file holds %zu tensors, but a model of this configuration has "
                    "%zu; one is there twice or does not belong",
                    path, m->n_weights, found);
    if (m->config.tied)
        m->w_u = m->w_e;
    return ATTN_OK;
}

/* ---- reading the header and the tensor table ---- */

/* Does a section begin at a multiple of 64 and end within the file? */
static int attn__lies_within(uint64_t offset, uint64_t size, uint64_t file_size)
{
    return offset % 64 == 0 && offset <= file_size && size <= file_size - offset;
}

/* With sizes up to 2^24, 3 * d_model and other sums cannot overflow. */
static attn_status attn__check_sizes(attn_ctx *ctx, const attn_config *c, const char *path)
{
    const struct {
        const char *name;
        size_t value, most;
    } sizes[] = {{"n_vocab", c->n_vocab, 1u << 24}, {"n_ctx", c->n_ctx, 1u << 24},
                 {"d_model", c->d_model, 1u << 24}, {"n_head", c->n_head, 1u << 24},
                 {"n_layer", c->n_layer, 1u << 16}, {"d_mlp", c->d_mlp, 1u << 24}};
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN__REFUSE_IF(ctx, sizes[i].value == 0 || sizes[i].value > sizes[i].most, ATTN_E_FORMAT,
                        "%s: %s is %zu; expected 1 to %zu", path, sizes[i].name, sizes[i].value,
                        sizes[i].most);
    ATTN__REFUSE_IF(ctx, c->d_model % c->n_head != 0, ATTN_E_FORMAT,
                    "%s: d_model %zu does not divide evenly among n_head %zu", path, c->d_model,
                    c->n_head);
    return ATTN_OK;
}

/* The ids of tokens that begin or end a text. */
static attn_status attn__check_ends_of_text(attn_ctx *ctx, const unsigned char *h,
                                            const attn_config *c, const char *path)
{
    const uint32_t n_more = attn__u32(h + 8) > 2 ? attn__u32(h + 120) : 0;
    size_t i = 0;
    ATTN__REFUSE_IF(ctx,
                    c->bos < -1 || c->bos >= (attn_token)c->n_vocab || c->eos < -1 ||
                        c->eos >= (attn_token)c->n_vocab,
                    ATTN_E_FORMAT,
                    "%s: the ids that begin and end a text are %ld and %ld; expected ids "
                    "below n_vocab, %zu, or -1 for none",
                    path, (long)c->bos, (long)c->eos, c->n_vocab);
    while (i < n_more && i < ATTN__MORE_EOS && attn__u32(h + 124 + 4 * i) < c->n_vocab)
        i++;
    ATTN__REFUSE_IF(ctx, i < n_more || (n_more > 0 && c->eos < 0), ATTN_E_FORMAT,
                    "%s: %lu further ids end a text, and number %zu is not right; expected "
                    "at most 31, each below n_vocab, %zu, and none without a first (eos)",
                    path, (unsigned long)n_more, i, c->n_vocab);
    return ATTN_OK;
}

/* What the version allows in the header. */
static attn_status attn__check_version(attn_ctx *ctx, const unsigned char *h, const char *path)
{
    static const char *const known[] = {"bit 0", "bits 0 to 2", "bits 0 to 3", "bits 0 to 3",
                                        "bits 0 to 3"};
    static const uint32_t most_flags[] = {1, 7, 15, 15, 15}; /* of each version */
    const uint32_t version = attn__u32(h + 8);
    ATTN__REFUSE_IF(ctx, attn__u32(h + 12) != ATTN__HEADER, ATTN_E_FORMAT,
                    "%s: the header is said to have %lu bytes, not 256", path,
                    (unsigned long)attn__u32(h + 12));
    ATTN__REFUSE_IF(ctx, attn__u32(h + 52) > most_flags[version - 1], ATTN_E_VERSION,
                    "%s: flags %lx; of version %lu, this library knows %s only. Use a newer "
                    "attn.h",
                    path, (unsigned long)attn__u32(h + 52), (unsigned long)version,
                    known[version - 1]);
    ATTN__REFUSE_IF(ctx, version > 1 && attn__u32(h + 68) > ATTN_ACT_SILU, ATTN_E_VERSION,
                    "%s: the activation function is %lu; this library knows 0 (gelu by "
                    "tanh), 1 (gelu by erf), 2 (relu) and 3 (silu). Use a newer attn.h",
                    path, (unsigned long)attn__u32(h + 68));
    return ATTN_OK;
}

/* Checks a configuration, and the header from which it was read or to which it was written. */
static attn_status attn__check_config(attn_ctx *ctx, const unsigned char *h, const attn_config *c,
                                      const char *path)
{
    char number[32];
    ATTN__TRY(attn__check_sizes(ctx, c, path));
    ATTN__TRY(attn__check_version(ctx, h, path));
    ATTN__REFUSE_IF(ctx, !(c->ln_eps >= 0 && c->ln_eps <= 1), ATTN_E_FORMAT,
                    "%s: the layer norm epsilon is %s; expected 0 to 1", path,
                    attn__show_number(number, (double)c->ln_eps));
    return attn__check_ends_of_text(ctx, h, c, path);
}

/* Checks the file's header of 256 bytes, in the order in which damage is likely to show: magic,
 * length, version, checksum, size of the file. */
static attn_status attn__check_file(attn_ctx *ctx, const attn_model *m, const char *path)
{
    const unsigned char *h = m->bytes;
    ATTN__REFUSE_IF(ctx, m->size < 8 || memcmp(h, attn__magic, 8) != 0, ATTN_E_FORMAT,
                    m->size == 0 ? "%s: the file is empty; expected an .attn file"
                    : m->size >= 5 && memcmp(h, attn__magic, 5) == 0
                        ? "%s: this .attn file was damaged by a transfer as text, or is cut; "
                          "copy it again"
                        : "%s: not an .attn file; make one with attn-convert",
                    path);
    ATTN__REFUSE_IF(ctx, m->size < ATTN__HEADER, ATTN_E_FORMAT,
                    "%s: the file ends in its header, after %zu of 256 bytes", path, m->size);
    ATTN__REFUSE_IF(
        ctx, attn__u32(h + 8) < 1 || attn__u32(h + 8) > 5, ATTN_E_VERSION,
        "%s: format version %lu; this library reads versions 1 to 5. Use a newer attn.h "
        "or convert again",
        path, (unsigned long)attn__u32(h + 8));
    ATTN__REFUSE_IF(ctx, !attn__header_is_whole(h), ATTN_E_CHECKSUM,
                    "%s: the header's checksum is wrong: damaged", path);
    ATTN__REFUSE_IF(ctx, attn__u64(h + 16) > m->size, ATTN_E_FORMAT,
                    "%s: the file has %zu bytes but was written with %llu; it is cut", path,
                    m->size, ATTN__LLU(attn__u64(h + 16)));
    /* Of a stream, not all has been read. */
    ATTN__REFUSE_IF(ctx, attn__u64(h + 16) < m->size, ATTN_E_FORMAT,
                    "%s: the file was written with %llu bytes, but more follow; something "
                    "was added",
                    path, ATTN__LLU(attn__u64(h + 16)));
    return ATTN_OK;
}

static attn_status attn__read_header(attn_ctx *ctx, attn_model *m, const char *path)
{
    const unsigned char *h = m->bytes;
    attn_config *c = &m->config;
    ATTN__TRY(attn__check_file(ctx, m, path));
    c->n_vocab = attn__u32(h + 24);
    c->n_ctx = attn__u32(h + 28);
    c->d_model = attn__u32(h + 32);
    c->n_head = attn__u32(h + 36);
    c->n_layer = attn__u32(h + 40);
    c->d_mlp = attn__u32(h + 44);
    uint32_t eps_bits = attn__u32(h + 48);
    memcpy(&c->ln_eps, &eps_bits, 4);
    c->tied = (int)(attn__u32(h + 52) & 1);
    c->unscaled_attn = (int)(attn__u32(h + 52) >> 1 & 1);
    c->scale_attn_by_inverse_layer_idx = (int)(attn__u32(h + 52) >> 2 & 1);
    c->bos = (attn_token)attn__u32(h + 56);
    c->eos = (attn_token)attn__u32(h + 60);
    c->has_b_U = (int)(attn__u32(h + 52) >> 3 & 1);
    c->act_fn = attn__u32(h + 8) > 1 ? (attn_mlp_act)attn__u32(h + 68) : ATTN_ACT_GELU_TANH;
    ATTN__TRY(attn__check_config(ctx, h, c, path));
    c->d_head = c->d_model / c->n_head;
    c->n_more_eos = attn__u32(h + 8) > 2 ? attn__u32(h + 120) : 0;
    c->more_eos = c->n_more_eos ? m->more_eos : NULL;
    for (uint32_t i = 0; i < c->n_more_eos; i++)
        m->more_eos[i] = (attn_token)attn__u32(h + 124 + 4 * (size_t)i);
    return ATTN_OK;
}

/* Reserved bytes and the padding between sections must be zero. */
static attn_status attn__check_zeros(attn_ctx *ctx, const attn_model *m, const char *path,
                                     uint64_t from, uint64_t to)
{
    for (; from < to; from++)
        ATTN__REFUSE_IF(
            ctx, m->bytes[from] != 0, ATTN_E_FORMAT,
            "%s: byte %llu is padding and must be zero; damaged, or written for a newer attn.h",
            path, ATTN__LLU(from));
    return ATTN_OK;
}

/* Reads an entry of the tensor table. *end is the end of the previous tensor, and becomes its
 * own. */
static attn_status attn__read_entry(attn_ctx *ctx, attn_model *m, const char *path, size_t index,
                                    const unsigned char *r, uint64_t *end)
{
    attn__weight *const t = &m->weights[index];
    const uint32_t dtype = attn__u32(r + 64), layout = attn__u32(r + 68), ndim = attn__u32(r + 72);
    ATTN__REFUSE_IF(ctx, r[0] == 0 || memchr(r, 0, 64) == NULL, ATTN_E_FORMAT,
                    "%s: tensor %zu has no proper name", path, index);
    t->name = (const char *)r;
    uint64_t at = (uint64_t)(r - m->bytes);
    ATTN__TRY(attn__check_zeros(ctx, m, path, at + strlen(t->name), at + 64));
    ATTN__TRY(attn__check_zeros(ctx, m, path, at + 76, at + 80));
    ATTN__TRY(attn__check_zeros(ctx, m, path, at + 120, at + 128));
    ATTN__REFUSE_IF(ctx,
                    dtype > ATTN_Q4 || dtype == ATTN_I32 || layout > 1 ||
                        (layout == 0 && dtype > ATTN_F16),
                    ATTN_E_VERSION,
                    "%s: tensor %s has data type %lu and layout %lu; this library knows the "
                    "types 0 (f32), 1 (f16), 3 (q8) and 4 (q4), the last two in layout 1 "
                    "(panels) only, and layout 0 (rows)",
                    path, t->name, (unsigned long)dtype, (unsigned long)layout);
    t->dtype = (attn_dtype)dtype;
    t->panels = (int)layout;
    t->ndim = (int)ndim;
    t->shape[0] = attn__u64(r + 80);
    t->shape[1] = attn__u64(r + 88);
    t->offset = attn__u64(r + 96);
    t->size = attn__u64(r + 104);
    t->checksum = attn__u64(r + 112);
    ATTN__REFUSE_IF(ctx,
                    ndim < 1 || ndim > 2 || t->shape[0] == 0 || t->shape[0] > 1u << 26 ||
                        t->shape[1] == 0 || t->shape[1] > 1u << 26 ||
                        (ndim == 1 && t->shape[1] != 1),
                    ATTN_E_FORMAT, "%s: tensor %s has an impossible shape [%llu, %llu]", path,
                    t->name, ATTN__LLU(t->shape[0]), ATTN__LLU(t->shape[1]));
    uint64_t expected =
        layout == 1 ? attn__panels_size((attn_dtype)dtype, (size_t)t->shape[0], (size_t)t->shape[1])
                    : t->shape[0] * t->shape[1] * (dtype == ATTN_F16 ? 2 : 4);
    ATTN__REFUSE_IF(ctx,
                    expected == 0 || t->size != expected ||
                        !attn__lies_within(t->offset, t->size, m->size) || t->offset - *end >= 64,
                    ATTN_E_FORMAT,
                    "%s: tensor %s lies at %llu with %llu bytes; expected %llu bytes after %llu "
                    "in a file of %zu",
                    path, t->name, ATTN__LLU(t->offset), ATTN__LLU(t->size), ATTN__LLU(expected),
                    ATTN__LLU(*end), m->size);
    ATTN__TRY(attn__check_zeros(ctx, m, path, *end, t->offset));
    *end = t->offset + t->size;
    m->weights[index].data = m->bytes + t->offset;
    return ATTN_OK;
}

/* After a failure m->tokenizer may be set; the caller frees it. */
static attn_status attn__read_tokenizer(attn_ctx *ctx, attn_model *m, const void *section,
                                        size_t size, const char *path)
{
    if (attn_tokenizer_new(ctx, &m->tokenizer, section, size) != ATTN_OK)
        return attn_fail(ctx, ctx->status, "%s: %s", path, ctx->message);
    ATTN__REFUSE_IF(ctx, m->tokenizer->n_tokens > m->config.n_vocab, ATTN_E_FORMAT,
                    "%s: the tokenizer has %zu tokens, the model %zu", path, m->tokenizer->n_tokens,
                    m->config.n_vocab);
    ATTN__REFUSE_IF(ctx, m->tokenizer->adds_blank && attn__u32(m->bytes + 8) < 5, ATTN_E_FORMAT,
                    "%s: texts get a blank in front, which only version 5 can say", path);
    return ATTN_OK;
}

/* Reads a string that ends before `end`. Returns the byte after its zero; NULL after a failure. */
static const char *attn__read_string(attn_ctx *ctx, const char *path, const char *text,
                                     const char *end, size_t index)
{
    const char *const zero = (const char *)memchr(text, 0, (size_t)(end - text)), *at = text;
    uint32_t code = 0;
    size_t n = 0;
    for (; zero && at < zero; at += n) {
        n = attn__utf8_read((const unsigned char *)at, (const unsigned char *)zero, &code);
        if (n == 0 || code < ' ' || (code >= 0x7F && code < 0xA0))
            break;
    }
    if (zero && at == zero && at > text)
        return zero + 1;
    attn_fail(ctx, ATTN_E_FORMAT,
              "%s: string %zu about the model %s; expected UTF-8 without control characters, and "
              "a zero",
              path, index,
              !zero                ? "has no end"
              : at == text && !*at ? "is empty"
              : n == 0             ? "is not UTF-8"
                                   : "has a control character");
    return NULL;
}

/* Reads the strings of version 4 and 5, which follow *end, and sets it to their own end. */
static attn_status attn__read_meta(attn_ctx *ctx, attn_model *m, const char *path, uint64_t *end)
{
    const uint64_t from = (*end + 63) / 64 * 64;
    const int is_there = attn__lies_within(from, 16, m->size);
    const uint64_t size = is_there ? attn__u64(m->bytes + from + 8) : 0;
    const uint64_t least = attn__u32(m->bytes + 8) == 4 ? 20 : 16;
    const char *key, *value, *next, *previous = NULL;
    ATTN__REFUSE_IF(ctx, size < least || size > 65536 || !attn__lies_within(from, size, m->size),
                    ATTN_E_FORMAT,
                    "%s: the strings about the model lie at %llu with %llu bytes; expected %llu to "
                    "65536 in a file of %zu",
                    path, ATTN__LLU(from), ATTN__LLU(size), ATTN__LLU(least), m->size);
    ATTN__TRY(attn__check_zeros(ctx, m, path, *end, from));
    ATTN__REFUSE_IF(
        ctx, attn__checksum(m->bytes + from + 8, (size_t)size - 8) != attn__u64(m->bytes + from),
        ATTN_E_CHECKSUM, "%s: the checksum of the strings about the model is wrong: damaged", path);
    m->meta = key = (const char *)m->bytes + from + 16;
    m->meta_end = (const char *)m->bytes + from + size;
    for (size_t i = 0; key < m->meta_end; i += 2, previous = key, key = next) {
        value = attn__read_string(ctx, path, key, m->meta_end, i);
        next = value ? attn__read_string(ctx, path, value, m->meta_end, i + 1) : NULL;
        if (!next)
            return ctx->status;
        ATTN__REFUSE_IF(
            ctx, previous && strcmp(previous, key) >= 0, ATTN_E_FORMAT,
            "%s: string %zu about the model is a key that does not follow the one before "
            "it; expected ascending keys, each once",
            path, i);
    }
    *end = from + size;
    return ATTN_OK;
}

/* Reads table, tokenizer, strings, tensors. Each must begin where the previous one ended, so that
 * every byte of the file belongs to one. */
static attn_status attn__read_sections(attn_ctx *ctx, attn_model *m, const char *path)
{
    const unsigned char *h = m->bytes;
    const uint64_t n = attn__u32(h + 64), table = attn__u64(h + 72), table_size = attn__u64(h + 80);
    const uint64_t text = attn__u64(h + 96), text_size = attn__u64(h + 104);
    if (attn__u32(h + 8) == 1)
        ATTN__TRY(attn__check_zeros(ctx, m, path, 68, 72));
    ATTN__TRY(attn__check_zeros(ctx, m, path,
                                attn__u32(h + 8) > 2 ? 124 + 4 * m->config.n_more_eos : 120, 248));
    ATTN__REFUSE_IF(ctx,
                    n == 0 || table != ATTN__HEADER || table_size != n * ATTN__ENTRY ||
                        !attn__lies_within(table, table_size, m->size),
                    ATTN_E_FORMAT, "%s: the tensor table does not fit into the file", path);
    ATTN__REFUSE_IF(ctx, attn__checksum(h + table, (size_t)table_size) != attn__u64(h + 88),
                    ATTN_E_CHECKSUM, "%s: the tensor table's checksum is wrong: damaged", path);
    uint64_t end = table + table_size;
    if (text == 0) /* no tokenizer, and no size or checksum of one */
        ATTN__TRY(attn__check_zeros(ctx, m, path, 104, 120));
    else {
        /* the table ends at a multiple of 64, so there is nothing in between */
        ATTN__REFUSE_IF(ctx, text != end || !attn__lies_within(text, text_size, m->size),
                        ATTN_E_FORMAT, "%s: the tokenizer does not fit into the file", path);
        ATTN__REFUSE_IF(ctx, attn__checksum(h + text, (size_t)text_size) != attn__u64(h + 112),
                        ATTN_E_CHECKSUM, "%s: the tokenizer's checksum is wrong: damaged", path);
        ATTN__TRY(attn__read_tokenizer(ctx, m, h + text, (size_t)text_size, path));
        end = text + text_size;
    }
    if (attn__u32(h + 8) > 3)
        ATTN__TRY(attn__read_meta(ctx, m, path, &end));
    m->weights = ATTN__NEW(ctx, attn__weight, (size_t)n, "the list of tensors");
    m->n_weights = (size_t)n;
    ATTN__TRY_MEMORY(m->weights);
    for (size_t i = 0; i < m->n_weights; i++)
        ATTN__TRY(attn__read_entry(ctx, m, path, i, h + table + i * ATTN__ENTRY, &end));
    ATTN__REFUSE_IF(ctx, end != m->size, ATTN_E_FORMAT, "%s: %llu bytes follow the last tensor",
                    path, ATTN__LLU(m->size - end));
    return ATTN_OK;
}

/* ---- verifying the checksums of the weights, on all threads ---- */

typedef struct attn__verify {
    const attn_model *model;
    const attn__kernels *kernels;
    uint64_t *digests;  /* one for each block of each tensor */
    size_t first, last; /* the blocks that are being verified */
} attn__verify;

static size_t attn__blocks_of(const attn__weight *w)
{
    return (size_t)((w->size + ATTN__IO_BLOCK - 1) / ATTN__IO_BLOCK);
}

static ATTN__COMPACT void attn__verify_body(attn__worker *me, void *arg)
{
    const attn__verify *v = (const attn__verify *)arg;
    size_t first, last, index = 0;
    attn__share(me, v->last - v->first, &first, &last);
    first += v->first;
    last += v->first;
    for (size_t i = 0; i < v->model->n_weights; i++) {
        const attn__weight *w = &v->model->weights[i];
        const size_t n = attn__blocks_of(w);
        for (size_t block = index < first ? first - index : 0; block < n && index + block < last;
             block++) {
            const size_t at = block * ATTN__IO_BLOCK, left = (size_t)w->size - at;
            v->digests[index + block] =
                v->kernels->digest(w->data + at, left < ATTN__IO_BLOCK ? left : ATTN__IO_BLOCK);
        }
        index += n;
    }
}

/* Computes the digests of all blocks on all threads, then the checksum of each tensor from them. */
static attn_status attn__verify_weights(attn_ctx *ctx, const attn_model *m, const char *path,
                                        const attn_model_desc *desc)
{
    const int tells = desc && desc->progress_fn;
    attn__verify v;
    size_t n_blocks = 0, index = 0;
    attn_status status = ATTN_OK;
    v.model = m;
    for (size_t i = 0; i < m->n_weights; i++)
        n_blocks += attn__blocks_of(&m->weights[i]);
    ATTN__TRY(attn__need_kernels(ctx, &v.kernels));
    v.digests = ATTN__NEW(ctx, uint64_t, n_blocks, "checksums");
    ATTN__TRY_MEMORY(v.digests);
    for (v.first = 0; v.first < n_blocks && status == ATTN_OK; v.first = v.last) {
        v.last = tells && n_blocks - v.first > 256 ? v.first + 256 : n_blocks;
        attn__parallel(NULL, attn__threads_for(ctx, (double)(v.last - v.first) * ATTN__IO_BLOCK),
                       attn__verify_body, &v);
        if (tells && desc->progress_fn((double)v.last / (double)n_blocks, desc->progress_user) != 0)
            status = ATTN_STOPPED;
    }
    for (size_t i = 0; i < m->n_weights && status == ATTN_OK; i++) {
        const attn__weight *w = &m->weights[i];
        uint64_t checksum = 0;
        for (size_t block = 0; block < attn__blocks_of(w); block++)
            checksum = attn__mix(checksum, v.digests[index++]);
        if (checksum != w->checksum)
            status = attn_fail(ctx, ATTN_E_CHECKSUM,
                               "%s: the checksum of tensor %s is wrong: damaged", path, w->name);
    }
    attn_free(v.digests);
    return status;
}

/* Reverses the bytes of each number. */
static void attn__swap_bytes(unsigned char *p, size_t n, size_t size)
{
    for (size_t at = 0; at < size; at += n)
        for (size_t i = 0; i < n / 2; i++) {
            const unsigned char t = p[at + i];
            p[at + i] = p[at + n - 1 - i];
            p[at + n - 1 - i] = t;
        }
}

/* Turns rows, or panels, from one byte order into the other. */
static void attn__swap_order(unsigned char *p, attn_dtype dtype, size_t size)
{
    if (!attn__is_quantized(dtype))
        attn__swap_bytes(p, dtype == ATTN_F16 ? 2 : 4, size);
    else /* the lines of scales */
        for (size_t at = 0; at < size; at += attn__line_of(dtype, ATTN__PER_SCALES))
            attn__swap_bytes(p + at, 2, 64);
}

/* A big-endian host reads the weights from a copy in its own order. */
static attn_status attn__to_host_order(attn_ctx *ctx, attn_model *m)
{
    m->turned = attn_alloc(ctx, 1, m->size, "a copy in this processor's byte order");
    ATTN__TRY_MEMORY(m->turned);
    memcpy(m->turned, m->bytes, m->size);
    for (size_t i = 0; i < m->n_weights; i++) {
        const attn__weight *w = &m->weights[i];
        unsigned char *p = (unsigned char *)m->turned + w->offset;
        m->weights[i].data = p;
        attn__swap_order(p, w->dtype, (size_t)w->size);
    }
    return ATTN_OK;
}

ATTN__COLD void attn_model_close(attn_model *model)
{
    if (!model || attn__count_user(&model->lock, &model->n_users, -1) > 0)
        return;
    attn_tokenizer_free(model->tokenizer);
    attn_free(model->layers);
    attn_free(model->weights);
    attn_free(model->copy);
    attn_free(model->turned);
    if (model->is_mapped)
        attn__unmap(model->bytes, model->size);
    attn_free(model);
}

/* Makes a model of m->bytes: checks everything, then points the layers at the weights. */
static attn_status attn__model_load(attn_ctx *ctx, attn_model *m, const char *path,
                                    const attn_model_desc *desc)
{
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_model_desc, desc));
    ATTN__TRY(attn__read_header(ctx, m, path));
    ATTN__TRY(attn__read_sections(ctx, m, path));
    if (!(desc && desc->skip_checksums))
        ATTN__TRY(attn__verify_weights(ctx, m, path, desc));
    if (attn__host_is_big_endian()) /* cover: another processor */
        ATTN__TRY(attn__to_host_order(ctx, m));
    m->layers = ATTN__NEW(ctx, attn__layer, m->config.n_layer, "layers");
    ATTN__TRY_MEMORY(m->layers);
    attn__find_head(m);
    return attn__bind(ctx, m, path);
}

/* Ends the opening of m: loads it if its bytes are there (status is ATTN_OK), else frees it. */
static attn_status attn__model_opened(attn_ctx *ctx, attn_model **model, attn_model *m,
                                      const char *path, const attn_model_desc *desc,
                                      attn_status status)
{
    m->n_users = 1;
    if (status == ATTN_OK)
        status = attn__model_load(ctx, m, path, desc);
    if (status == ATTN_OK)
        *model = m;
    else
        attn_model_close(m);
    return status;
}

/* Unaligned bytes are copied, because kernels read whole lines of 64. */
ATTN__COLD attn_status attn_model_open_memory(attn_ctx *ctx, attn_model **model, const void *data,
                                              size_t size, const attn_model_desc *desc)
{
    ATTN__TRY(attn__need_place(ctx, "attn_model_open_memory", "place for the model", model));
    if (size > 0)
        ATTN__TRY(attn__need_given(ctx, "attn_model_open_memory", "data", data));
    attn_model *m = ATTN__NEW(ctx, attn_model, 1, "a model");
    ATTN__TRY_MEMORY(m);
    m->bytes = (const unsigned char *)data;
    m->size = size;
    if ((uintptr_t)data % 64 != 0 && size > 0) {
        m->copy = attn_alloc(ctx, 1, size, "an aligned copy of the model");
        if (m->copy)
            memcpy(m->copy, data, size);
        m->bytes = (const unsigned char *)m->copy;
    }
    ATTN__TRY(attn__model_opened(ctx, model, m, "model in memory", desc,
                                 m->bytes || size == 0 ? ATTN_OK : ATTN_E_MEMORY));
    if (desc && desc->takes_memory)
        m->copy = (void *)(uintptr_t)data;
    return ATTN_OK;
}

/* A file that cannot be mapped (a pipe, a build without mmap) is read into memory. */
ATTN__COLD attn_status attn_model_open(attn_ctx *ctx, attn_model **model, const char *path,
                                       const attn_model_desc *desc)
{
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__need_place(ctx, "attn_model_open", "place for the model", model));
    ATTN__TRY(attn__need_given(ctx, "attn_model_open", "path", path));
    attn_model *m = ATTN__NEW(ctx, attn_model, 1, "a model");
    ATTN__TRY_MEMORY(m);
    m->is_mapped = attn__map(path, &m->bytes, &m->size);
    if (!m->is_mapped) {
        status = attn__read_file(ctx, path, &m->copy, &m->size);
        m->bytes = (const unsigned char *)m->copy;
    }
    return attn__model_opened(ctx, model, m, attn__shown_path(path), desc, status);
}

ATTN__DEF const attn_config *attn_model_config(const attn_model *model)
{
    return model ? &model->config : NULL;
}
ATTN__DEF int attn_config_is_eos(const attn_config *config, attn_token token)
{
    if (config && token >= 0 && config->more_eos)
        for (size_t i = 0; i < config->n_more_eos; i++)
            if (config->more_eos[i] == token)
                return 1;
    return config && token >= 0 && token == config->eos;
}
ATTN__DEF const attn_tokenizer *attn_model_tokenizer(const attn_model *model)
{
    return model ? model->tokenizer : NULL;
}
ATTN__DEF const void *attn_model_bytes(size_t *size, const attn_model *model)
{
    if (size)
        *size = model ? model->size : 0;
    return model ? model->bytes : NULL;
}
ATTN__COLD const char *attn_model_meta(const attn_model *model, const char *key)
{
    const char *at = model && key ? model->meta : NULL, *value;
    for (; at && at < model->meta_end; at = value + strlen(value) + 1) {
        value = at + strlen(at) + 1;
        if (strcmp(at, key) == 0)
            return value;
    }
    return NULL;
}

/* Where attn_model_tensor finds its answer. Entry (k, n) of the file's matrix is element
 * n / group * group_step + n % group * n_step + k * k_step of the answer. */
typedef struct attn__source {
    const attn__weight *weight; /* NULL: the answer is all zeros */
    size_t first;               /* the first output of the file's matrix that is in the answer */
    attn_shape shape;           /* of the answer */
    size_t n_out, group, group_step, n_step, k_step;
} attn__source;

static const attn__weight *attn__weight_named(const attn_model *m, const char *name)
{
    for (size_t i = 0; i < m->n_weights; i++)
        if (strcmp(m->weights[i].name, name) == 0)
            return &m->weights[i];
    return NULL;
}

/* Finds a tensor by TransformerLens's name. In the file, queries, keys and values are columns of
 * W_QKV; the embedding is transposed, and may also be the unembedding. */
static int attn__find_source(const attn_model *m, const char *name, attn__source *s)
{
    const attn_config *c = &m->config;
    const size_t width = c->d_model, d = c->d_head, length = strlen(name);
    static const char *const parts[] = {"_Q", "_K", "_V"};
    char stored[64];
    size_t part = 0;
    while (part < 3 && !attn__ends_with(name, parts[part]))
        part++;
    memset(s, 0, sizeof *s);
    s->n_step = 1;
    if (strcmp(name, "unembed.b_U") == 0 && !m->b_u) {
        s->shape = attn_shape1(c->n_vocab);
        return 1;
    }
    if (part < 3 && length < sizeof stored - 3) {
        memcpy(stored, name, length - 1);
        memcpy(stored + length - 1, "QKV", 4);
        s->weight = attn__weight_named(m, stored);
        s->first = part * width;
        s->n_out = width;
        s->group = s->k_step = d;
        s->group_step = width * d;
        s->shape = attn__ends_with(stored, "W_QKV") ? attn_shape3(c->n_head, width, d)
                                                    : attn_shape2(c->n_head, d);
        return s->weight != NULL;
    }
    s->weight = attn__weight_named(m, name);
    if (!s->weight && strcmp(name, "unembed.W_U") == 0)
        s->weight = attn__weight_named(m, "embed.W_E");
    if (!s->weight)
        return 0;
    s->n_out = s->group = s->k_step = (size_t)s->weight->shape[1];
    s->shape = s->weight->ndim == 1 ? attn_shape1((size_t)s->weight->shape[0])
                                    : attn_shape2((size_t)s->weight->shape[0], s->n_out);
    if (attn__ends_with(name, "attn.W_O"))
        s->shape = attn_shape3(c->n_head, d, width);
    if (strcmp(name, "embed.W_E") == 0) {
        s->shape = attn_shape2(c->n_vocab, width);
        s->n_step = width;
        s->k_step = 1;
    }
    return 1;
}

/* The name of a tensor that is most like a misspelled one; "" if none is like it. */
static void attn__nearest_tensor(const attn_model *m, const char *name, char nearest[64])
{
    static const char *const parts[] = {"QKV", "Q", "K", "V"};
    double best = 0.5;
    char known[64];
    nearest[0] = 0;
    for (size_t i = 0; i < 4 * (m->n_weights + 2); i++) {
        const size_t w = i / 4;
        snprintf(known, sizeof known, "%s",
                 w < m->n_weights    ? m->weights[w].name
                 : w == m->n_weights ? "unembed.W_U"
                                     : "unembed.b_U");
        if (attn__ends_with(known, "_QKV"))
            snprintf(known + strlen(known) - 3, 4, "%s", parts[i % 4]);
        if (attn__likeness(name, known) > best) {
            memcpy(nearest, known, sizeof known);
            best = attn__likeness(name, known);
        }
    }
}

static void attn__fetch(const attn__source *s, float *to, size_t count)
{
    const attn__weight *const from = s->weight;
    if (!from) {
        memset(to, 0, count * sizeof(float));
        return;
    }
    if (!from->panels) {
        memcpy(to, from->data + s->first * sizeof(float), count * sizeof(float));
        return;
    }
    attn__panels w =
        attn__panels_at(from->data, from->dtype, (size_t)from->shape[0], (size_t)from->shape[1]);
    for (size_t first = 0; first < s->n_out;
         first += 16) /* panel by panel, to read memory in order */
        for (size_t k = 0; k < w.n_in; k++)
            for (size_t n = first; n < s->n_out && n < first + 16; n++)
                to[n / s->group * s->group_step + n % s->group * s->n_step + k * s->k_step] =
                    attn__panels_get(&w, k, s->first + n);
}

ATTN__COLD attn_status attn_model_tensor(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                         const char *name)
{
    attn__source s;
    attn__result result;
    char nearest[64];
    ATTN__TRY(attn__need_given(ctx, "attn_model_tensor", "model", model));
    ATTN__TRY(attn__need_given(ctx, "attn_model_tensor", "name", name));
    if (!attn__find_source(model, name, &s)) {
        attn__nearest_tensor(model, name, nearest);
        return attn_fail(ctx, ATTN_E_NAME,
                         "attn_model_tensor: the model has no tensor \"%.80s\"%s%s%s", name,
                         nearest[0] ? "; did you mean " : "", nearest, nearest[0] ? "?" : "");
    }
    ATTN__TRY(attn__out_begin(ctx, "attn_model_tensor", out, s.shape, 0, NULL, &result));
    attn__fetch(&s, (float *)result.dense.data, attn_count(result.dense));
    return attn__out_end(ctx, out, &result, ATTN_OK);
}

ATTN__SMALL_END

/* >>cpu (tests: kernels) ========================================================================
 * What this processor can run, and the types that the kernels of all instruction sets share.
 * attn__kernels_of, below the kernel template, chooses a set. */

/* One call of a micro-kernel: n_rows rows times some panels, over n_k inputs. */
typedef struct attn__tile_job {
    const float *in; /* packed rows: in[k][row]; for q8 and q4 in[k / 32][row] */
    size_t n_rows;
    const unsigned char *line; /* first line of the first panel */
    size_t panel_stride;       /* bytes from one panel of a tile to the next */
    size_t n_k;
    float *out;
    size_t out_stride;

    const float *bias; /* of the first output; NULL: there is none, or more inputs follow */
    attn__start start;
    /* What to prefetch: see attn__plan_fetching. Lines that are fetched together lie ahead_apart
     * bytes from each other, the first at `ahead`. */
    const unsigned char *ahead;
    size_t ahead_apart;
    size_t n_ahead;        /* f32, f16: how many at each k; 0 counts as 1 */
    ptrdiff_t ahead_by[8]; /* q8, q4: added to `ahead` before each line of 32 k */
    ptrdiff_t ahead_step;  /* added after each k; in q8 and q4 after 32 k */
} attn__tile_job;

/* Fetches the lines of the output into cache while the tile computes. */
ATTN__INLINE void attn__tile_prefetch(const attn__tile_job *job, int n_rows, int n_cols)
{
    const float *out = job->out;
    for (int row = 0; row < n_rows; row++, out += job->out_stride)
        for (int col = 0; col < n_cols; col++)
            ATTN__PREFETCH_WRITE(out + (ptrdiff_t)col * 16);
}

/* Multiplies n_rows rows by n_cols panels of one of two types, and moves the job past them. */
typedef void (*attn__tile_fn)(int n_rows, int n_cols, int type, attn__tile_job *job);

/* lanes [16] = the first n elements at p, then `fill` */
ATTN__APART void attn__fill_lanes(float *lanes, const float *p, size_t n, float fill)
{
    for (size_t i = 0; i < 16; i++)
        lanes[i] = i < n ? p[i] : fill;
}

/* The kernel for one number of rows. `run` multiplies them by n_panels panels, `cols` in each tile,
 * and moves the job past these panels. n_panels is a multiple of `cols`. Two kernels take any
 * number:
 *   - The kernel for the most rows has tiles of one panel too, which also serve fewer rows: they
 *     read memory behind the last row, and do not store the products of that memory.
 *   - The kernel for one row has tiles of fewer panels. They are faster, and a single row of floats
 *     may lie in the caller's memory, where nothing behind it may be read. */
typedef struct attn__tiles {
    void (*run)(attn__tile_job *job, size_t n_panels, attn_dtype dtype);
    size_t cols;
} attn__tiles;

#define ATTN__TILE_ROWS     9 /* most rows of a tile in any instruction set */

/* One row: does a tile of this many panels take some lines of each in turn, not one of all? */
#define ATTN__IN_TURN(cols) ((cols) >= 4)

struct attn__tiling {
    const attn__tiles *tiles; /* for 1, 2 .. n_rows rows */
    size_t n_rows;
    size_t n_blocks; /* most blocks of n_rows rows that one group of panels multiplies in turn */
    /* in [n_rows, n_k] -> rows as tiles read them; `zero`: see attn__weight_type */
    void (*pack)(float *pack, const float *in, ptrdiff_t stride, ptrdiff_t step, size_t n_rows,
                 size_t n_k, int32_t zero);
};

/* For q8 and q4: 32 inputs of one row, as signed bytes with a scale. Their products with 32 weights
 * have the integer sum s, of which s * scale is needed as a float. The sum begins at `start`, the
 * bits of the float 12582912 = 3 * 2^22; with s added, these are the bits of the float 12582912 +
 * s. A fused multiply-add then computes (12582912 + s) * scale - 12582912 * scale = s * scale. The
 * product 12582912 * scale is exact, because the two lowest bits of the scale are 0. */
typedef struct attn__q_inputs {
    unsigned char bytes[32];
    int32_t start;      /* less `zero` times the sum of the bytes, for unsigned weights */
    float scale, minus; /* minus = -12582912 * scale */
} attn__q_inputs;
#define ATTN__MAGIC     12582912.0f
#define ATTN__MAGIC_I32 0x4b400000

/* Floats that k inputs of one row take when packed. */
static size_t attn__packed(int quantized, size_t k)
{
    const size_t floats = sizeof(attn__q_inputs) / sizeof(float);
    return quantized ? (k + ATTN__PER_SCALE - 1) / ATTN__PER_SCALE * floats : k;
}

/* The most inputs, in whole chains, that take no more than these floats when packed. */
static size_t attn__packed_k(int quantized, size_t floats)
{
    const size_t each = sizeof(attn__q_inputs) / sizeof(float);
    return (quantized ? floats / each * ATTN__PER_SCALE : floats) / ATTN__CHAIN * ATTN__CHAIN;
}

/* tcc and other small compilers for x86 have no intrinsics. */
#if defined(__has_include)
#if !__has_include(<immintrin.h>)
#define ATTN__NO_INTRINSICS
#endif
#endif
#if !defined(ATTN_NO_SIMD) && !defined(__TINYC__) && !defined(ATTN__NO_INTRINSICS) &&              \
    (defined(__x86_64__) || defined(_M_X64) || defined(__SSE2__))
#define ATTN__X86
#include <immintrin.h>
#elif !defined(ATTN_NO_SIMD) && defined(__aarch64__) && !defined(__AARCH64EB__)
#define ATTN__NEON
#include <arm_neon.h>
#elif !defined(ATTN_NO_SIMD) && defined(__wasm_simd128__)
#define ATTN__WASM
#include <wasm_simd128.h>
#endif

/* Choosing kernels at run time needs a compiler that can compile some functions for instructions
 * that its flags do not allow. gcc for ARM takes the name of an architecture for that, which must
 * not be older than the architecture of the flags. */
#if !defined(__GNUC__) || defined(ATTN_NO_DISPATCH)
#elif defined(ATTN__X86)
#define ATTN__DISPATCH
#include <cpuid.h>
#elif !defined(ATTN__NEON) || defined(__ARM_FEATURE_MATMUL_INT8)
#elif defined(__clang__) && __clang_major__ >= 16
#define ATTN__DISPATCH
#define ATTN__DOT  "dotprod"
#define ATTN__I8MM "dotprod,i8mm"
#elif !defined(__clang__) && __GNUC__ >= 10 && !defined(__ARM_FEATURE_DOTPROD) &&                  \
    !defined(__ARM_FEATURE_COMPLEX)
#define ATTN__DISPATCH
#define ATTN__DOT  "arch=armv8.2-a+dotprod"
#define ATTN__I8MM "arch=armv8.2-a+dotprod+i8mm"
#endif

/* The instruction sets that kernels are compiled for. The last four have dot products of bytes, for
 * q8 and q4 weights. */
#define ATTN__SET_PORTABLE    0 /* plain C with fmaf */
#define ATTN__SET_BASE        1 /* what the flags allow: SSE2, NEON, WebAssembly or plain C */
#define ATTN__SET_AVX2        2
#define ATTN__SET_AVX512      3
#define ATTN__SET_AVX512_VNNI 4
#define ATTN__SET_AVX2_VNNI   5
#define ATTN__SET_NEON_DOT    6
#define ATTN__SET_NEON_I8MM   7 /* and products of matrices of bytes */

/* The set of the base kernels: the best one that the compiler flags allow. With a choice at run
 * time it is ATTN__SET_BASE on x86. */
#if !defined(__GNUC__)
#elif defined(ATTN__NEON) && defined(__ARM_FEATURE_DOTPROD)
#ifdef __ARM_FEATURE_MATMUL_INT8
#define ATTN__WIDEST ATTN__SET_NEON_I8MM
#else
#define ATTN__WIDEST ATTN__SET_NEON_DOT
#endif
#elif defined(ATTN__DISPATCH) || !defined(ATTN__X86)
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) &&                    \
    defined(__AVX512VL__)
#ifdef __AVX512VNNI__
#define ATTN__WIDEST ATTN__SET_AVX512_VNNI
#else
#define ATTN__WIDEST ATTN__SET_AVX512
#endif
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#ifdef __AVXVNNI__
#define ATTN__WIDEST ATTN__SET_AVX2_VNNI
#else
#define ATTN__WIDEST ATTN__SET_AVX2
#endif
#endif
#ifndef ATTN__WIDEST
#define ATTN__WIDEST ATTN__SET_BASE
#endif

/* The bit of a set among those that a processor and its operating system can run. */
#define ATTN__BIT(set) (1u << ATTN__SET_##set)

#if defined(ATTN__DISPATCH) && defined(ATTN__X86)
/* These bits from what CPUID and XGETBV say: ecx of leaf 1, the low half of XCR0, ebx and ecx of
 * leaf 7, eax of leaf 7's subleaf 1. */
static unsigned attn__features_of(unsigned leaf1, unsigned xcr0, unsigned leaf7b, unsigned leaf7c,
                                  unsigned leaf7_1a)
{
    const unsigned ymm = 0x6, zmm = 0xe6; /* of XCR0: registers that the system saves */
    const unsigned fma_f16c = 1u << 12 | 1u << 29;
    const unsigned f_dq_bw_vl = 3u << 16 | 1u << 30 | 1u << 31; /* the parts of AVX-512 */
    unsigned features = ATTN__BIT(AVX2);
    if ((xcr0 & ymm) != ymm || (leaf1 & fma_f16c) != fma_f16c || !(leaf7b >> 5 & 1))
        return 0;
    if (leaf7_1a >> 4 & 1)
        features |= ATTN__BIT(AVX2_VNNI);
    if ((xcr0 & zmm) != zmm || (leaf7b & f_dq_bw_vl) != f_dq_bw_vl)
        return features;
    features |= ATTN__BIT(AVX512);
    if (!(leaf7c >> 11 & 1))
        return features;
    return features | ATTN__BIT(AVX512_VNNI);
}

static unsigned attn__cpu_features(void)
{
    unsigned a, b, c, d, leaf1, leaf7_1a = 0, xcr0 = 0, high;
    if (!__get_cpuid(1, &a, &b, &leaf1, &d) || /* cover: a processor of before 2013 */
        !(leaf1 >> 27 & 1) ||                  /* OSXSAVE: xgetbv works */
        !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return 0;
    if (a >= 1) /* leaf 7 has a subleaf 1 */
        __cpuid_count(7, 1, leaf7_1a, high, high, high);
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
    return attn__features_of(leaf1, xcr0, b, c, leaf7_1a);
}
#elif defined(ATTN__DISPATCH)
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__) /* <sys/sysctl.h> declares it only if no standard is asked for */
extern int sysctlbyname(const char *, void *, size_t *, void *, size_t);
#endif
static unsigned attn__cpu_features(void)
{
    int dot = 0, i8mm = 0;
#if defined(__linux__)
    dot = (int)(getauxval(AT_HWCAP) >> 20 & 1);   /* HWCAP_ASIMDDP */
    i8mm = (int)(getauxval(AT_HWCAP2) >> 13 & 1); /* HWCAP2_I8MM */
#elif defined(__APPLE__)
    size_t size = sizeof(int);
    if (sysctlbyname("hw.optional.arm.FEAT_DotProd", &dot, &size, NULL, 0) != 0 ||
        sysctlbyname("hw.optional.arm.FEAT_I8MM", &i8mm, &size, NULL, 0) != 0)
        i8mm = 0; /* an older system does not know these names */
#elif defined(_WIN32)
    dot = IsProcessorFeaturePresent(43);  /* PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE */
    i8mm = IsProcessorFeaturePresent(66); /* PF_ARM_V82_I8MM_INSTRUCTIONS_AVAILABLE */
#endif
    return dot ? ATTN__BIT(NEON_DOT) | (i8mm ? ATTN__BIT(NEON_I8MM) : 0u) : 0;
}
#endif

/* Some intrinsics leave registers undefined on purpose, of which gcc warns in its own headers. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define ATTN__CAT_(a, b) a##_##b
#define ATTN__CAT(a, b)  ATTN__CAT_(a, b)
#define ATTN__FN(name)   ATTN__CAT(attn__##name, ATTN__ISA)

/* The portable kernels run only if ctx->isa asks for them, so they are compiled for size. */
#define ATTN__KERNEL     ATTN__UNCHECKED ATTN__COMPACT static

#define ATTN__SET        ATTN__SET_PORTABLE
#define ATTN__ISA        portable
#endif /* ATTN_IMPLEMENTATION */
#endif /* !ATTN__SET */

#ifdef ATTN__SET
/* Three warnings of analysers mean nothing here. Rows and columns of a tile are few, so ints can
 * count them. A macro that declares a counter cannot put its name in parentheses. Two branches may
 * be equal where a tile has one panel.
 * NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result,bugprone-macro-parentheses,
 *             bugprone-branch-clone) */

/* >>kernels (tests: kernels) ====================================================================
 * THE KERNEL TEMPLATE: one source for every instruction set. This file includes itself once for
 * each set, and then consists of this section alone. Each set defines the same few operations on
 * its registers. The kernels are written with vectors of 16 floats (one line of f32): one register
 * of AVX-512, two of AVX2, four of SSE2, NEON or WebAssembly, sixteen floats of plain C. Every
 * operation rounds once, by IEEE 754, so every set gives the same bits. Kernels add a product by
 * fma only, never by a multiplication and an addition, which a compiler might fuse. (SSE2 has no
 * fma and says so in its name.) */

/* Some sets borrow kernels. A set with dot products of bytes takes the kernels for floats of the
 * same set without them. AVX-512 without VNNI takes AVX2's tiles for q8 and q4: wider registers do
 * not make them faster. */
#if ATTN__SET <= ATTN__SET_AVX512 || ATTN__SET == ATTN__WIDEST
#define ATTN__FLOAT(name) ATTN__FN(name)
#define ATTN__HAS_FLOATS
#elif ATTN__SET == ATTN__SET_AVX512_VNNI
#define ATTN__FLOAT(name) attn__##name##_avx512
#elif ATTN__SET == ATTN__SET_AVX2_VNNI
#define ATTN__FLOAT(name) attn__##name##_avx2
#else
#define ATTN__FLOAT(name) attn__##name##_base
#endif
#if ATTN__SET == ATTN__SET_AVX512
#define ATTN__BYTES(name) attn__##name##_avx2
#else
#define ATTN__BYTES(name) ATTN__FN(name)
#define ATTN__HAS_BYTES
#endif

/* ---- operations on one register, defined by each set ---- */

#define ATTN__OP            ATTN__UNCHECKED ATTN__INLINE
#define attn__reg           ATTN__FN(reg)
#define attn__r_load        ATTN__FN(r_load)
#define attn__r_half        ATTN__FN(r_half)
#define attn__r_narrow      ATTN__FN(r_narrow)
#define attn__r_store       ATTN__FN(r_store)
#define attn__r_set1        ATTN__FN(r_set1)
#define attn__r_add         ATTN__FN(r_add)
#define attn__r_sub         ATTN__FN(r_sub)
#define attn__r_mul         ATTN__FN(r_mul)
#define attn__r_div         ATTN__FN(r_div)
#define attn__r_fma         ATTN__FN(r_fma)
#define attn__r_max         ATTN__FN(r_max)
#define attn__r_pick        ATTN__FN(r_pick)
#define attn__r_exp2        ATTN__FN(r_exp2)
#define attn__r_low         ATTN__FN(r_low)
#define attn__r_most        ATTN__FN(r_most)
#define attn__r_total       ATTN__FN(r_total)

#define attn__ireg          ATTN__FN(ireg)
#define attn__wreg          ATTN__FN(wreg)
#define attn__r_start       ATTN__FN(r_start)
#define attn__r_weights     ATTN__FN(r_weights)
#define attn__r_dot         ATTN__FN(r_dot)
#define attn__r_scaled      ATTN__FN(r_scaled)

/* r_half         loads f16 and widens it to f32
 * r_narrow       stores f32 rounded to f16
 * r_fma(a, b, c) a * b + c
 * r_pick(a, b, x, y)  a > b ? x : y
 * r_exp2(p, t)   p * 2^n for t = n + 12582912, whose low bits are n: adds n to p's exponent
 * r_low          stores the low byte of each lane
 * r_most         the largest lane
 * r_total        the sum of the lanes, which must be small integers: it is exact in any order
 *
 * For q8 and q4:
 * ireg           sums of products, one 32-bit integer a lane
 * wreg           weights, 4 a lane
 * r_weights      loads weights. Where instructions take unsigned weights, these are the integers
 *                that the file holds, with `zero` added
 * r_start        begins a sum: with the `start` of attn__q_inputs if weights are unsigned, else
 *                with the bits of 12582912, or with 0 where r_scaled has no fused multiply-add
 * r_dot(acc, w, x)    acc + the dot product, in each lane, of its weights and the 4 bytes of x
 * r_scaled(acc, x)    the sums times the scale of x, as floats */

/* Each set begins with the sizes that suit its registers:
 * LANES          floats in a register
 * ROWS           most rows of a tile of floats; EACH_ROWS lists the numbers 1 to ROWS
 * COLS(m)        panels of a tile of m rows, at most 8, so that their sums fit the registers
 * ROW_BLOCKS     most blocks of ROWS rows that one group of panels multiplies in turn
 * Q_ROWS         most rows of a tile of q8 or q4; EACH_Q lists the numbers 1 to Q_ROWS. Two blocks
 *                of 4 rows are faster than one of 8, which loads more inputs for each product
 * Q_COLS(m)      panels of a tile of m rows of q8 or q4 */

/* clang-format off */
/* The intrinsics of AVX-512, AVX2 and SSE2 differ in their prefix. */
#if ATTN__SET == ATTN__SET_AVX512 || ATTN__SET == ATTN__SET_AVX512_VNNI
#define ATTN__MM(op)        _mm512_##op
#define ATTN__INTS(v)       _mm512_castps_si512(v)
#define ATTN__FLOATS(v)     _mm512_castsi512_ps(v)
typedef __m512 attn__reg;
#elif ATTN__SET == ATTN__SET_AVX2 || ATTN__SET == ATTN__SET_AVX2_VNNI
#define ATTN__MM(op)        _mm256_##op
#define ATTN__INTS(v)       _mm256_castps_si256(v)
#define ATTN__FLOATS(v)     _mm256_castsi256_ps(v)
typedef __m256 attn__reg;
#elif ATTN__SET == ATTN__SET_BASE && defined(ATTN__X86)
#define ATTN__MM(op)        _mm_##op
#define ATTN__INTS(v)       _mm_castps_si128(v)
#define ATTN__FLOATS(v)     _mm_castsi128_ps(v)
typedef __m128 attn__reg;
#endif
#ifdef ATTN__MM
ATTN__OP attn__reg attn__r_load(const float *p) { return ATTN__MM(loadu_ps)(p); }
ATTN__OP void attn__r_store(float *p, attn__reg v) { ATTN__MM(storeu_ps)(p, v); }
ATTN__OP attn__reg attn__r_set1(float x) { return ATTN__MM(set1_ps)(x); }
ATTN__OP attn__reg attn__r_add(attn__reg a, attn__reg b) { return ATTN__MM(add_ps)(a, b); }
ATTN__OP attn__reg attn__r_sub(attn__reg a, attn__reg b) { return ATTN__MM(sub_ps)(a, b); }
ATTN__OP attn__reg attn__r_mul(attn__reg a, attn__reg b) { return ATTN__MM(mul_ps)(a, b); }
ATTN__OP attn__reg attn__r_div(attn__reg a, attn__reg b) { return ATTN__MM(div_ps)(a, b); }
ATTN__OP attn__reg attn__r_max(attn__reg a, attn__reg b) { return ATTN__MM(max_ps)(a, b); }
ATTN__OP attn__reg attn__r_exp2(attn__reg p, attn__reg t)
{
    const attn__reg n = ATTN__FLOATS(ATTN__MM(slli_epi32)(ATTN__INTS(t), 23));
    return ATTN__FLOATS(ATTN__MM(add_epi32)(ATTN__INTS(p), ATTN__INTS(n)));
}
ATTN__OP attn__reg attn__r_fma(attn__reg a, attn__reg b, attn__reg c)
{
#if ATTN__SET == ATTN__SET_BASE && !defined(__FMA__)
    return _mm_add_ps(_mm_mul_ps(a, b), c);
#else
    return ATTN__MM(fmadd_ps)(a, b, c);
#endif
}
#endif

#if ATTN__SET == ATTN__SET_AVX512 || ATTN__SET == ATTN__SET_AVX512_VNNI
#define ATTN__LANES         16
#define ATTN__ROWS          9
#define ATTN__EACH_ROWS(X)  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define ATTN__ROW_BLOCKS    18
#define ATTN__COLS(m)       ((m) <= 3 ? 8 : (m) <= 4 ? 6 : (m) <= 7 ? 4 : 3)
#define ATTN__Q_ROWS        4
#define ATTN__EACH_Q(X)     X(1) X(2) X(3) X(4)
#define ATTN__Q_COLS(m)     ((m) == 1 ? 8 : (m) <= 3 ? 4 : 3)
ATTN__OP attn__reg attn__r_half(const uint16_t *p)
{ return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
ATTN__OP void attn__r_narrow(uint16_t *p, attn__reg v)
{
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
}
ATTN__OP attn__reg attn__r_pick(attn__reg a, attn__reg b, attn__reg x, attn__reg y)
{ return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x); }
ATTN__OP void attn__r_low(unsigned char *to, attn__reg v)
{ _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(_mm512_castps_si512(v))); }
ATTN__OP float attn__r_most(attn__reg v) { return _mm512_reduce_max_ps(v); }
ATTN__OP float attn__r_total(attn__reg v) { return _mm512_reduce_add_ps(v); }
#ifdef ATTN__HAS_BYTES /* one instruction for unsigned weights times signed inputs */
typedef __m512i attn__ireg;
ATTN__OP attn__reg attn__r_scaled(attn__ireg acc, const attn__q_inputs *x)
{
    return _mm512_fmadd_ps(_mm512_castsi512_ps(acc), _mm512_set1_ps(x->scale),
                           _mm512_set1_ps(x->minus));
}
typedef __m512i attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    (void)is_q4;
    return _mm512_set1_epi32(start);
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    const __m512i line = _mm512_loadu_si512((const void *)p);
    if (!is_q4)
        return line;
    return _mm512_and_si512(high ? _mm512_srli_epi16(line, 4) : line, _mm512_set1_epi8(15));
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    (void)is_q4;
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}
#endif

#elif ATTN__SET == ATTN__SET_AVX2 || ATTN__SET == ATTN__SET_AVX2_VNNI
#define ATTN__LANES         8
#define ATTN__EACH_ROWS(X)  X(1) X(2) X(3) X(4) X(5) X(6)
#define ATTN__EACH_Q(X)     X(1) X(2) X(3) X(4)
#define ATTN__ROWS          6
#define ATTN__ROW_BLOCKS    12
#define ATTN__COLS(m)       ((m) == 1 ? 4 : (m) == 2 ? 3 : (m) == 3 ? 2 : 1)
#define ATTN__Q_ROWS        4
#define ATTN__Q_COLS(m)     ((m) == 1 ? 4 : 1)
ATTN__OP attn__reg attn__r_half(const uint16_t *p)
{ return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)); }
ATTN__OP void attn__r_narrow(uint16_t *p, attn__reg v)
{ _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
ATTN__OP attn__reg attn__r_pick(attn__reg a, attn__reg b, attn__reg x, attn__reg y)
{ return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
ATTN__OP void attn__r_low(unsigned char *to, attn__reg v)
{
    const __m256i low = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(255));
    const __m128i pairs =
        _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(pairs, pairs));
}
ATTN__OP float attn__r_most(attn__reg v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
ATTN__OP float attn__r_total(attn__reg v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
typedef __m256i attn__ireg;
#if ATTN__SET == ATTN__SET_AVX2_VNNI /* one instruction for unsigned weights times signed inputs */
typedef __m256i attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    (void)is_q4;
    return _mm256_set1_epi32(start);
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    const __m256i line = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (!is_q4)
        return line;
    return _mm256_and_si256(high ? _mm256_srli_epi16(line, 4) : line, _mm256_set1_epi8(15));
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    (void)is_q4;
    return _mm256_dpbusd_avx_epi32(acc, w, _mm256_set1_epi32(x));
}
#else /* products of unsigned and signed bytes, summed in pairs: |w| times x with the sign of w */
typedef struct attn__wreg {
    __m256i size, sign;
} attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{ return _mm256_set1_epi32(is_q4 ? start : ATTN__MAGIC_I32); }
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    const __m256i line = _mm256_loadu_si256((const __m256i *)(const void *)p);
    attn__wreg w;
    if (is_q4) {
        w.sign = line;
        w.size = _mm256_and_si256(high ? _mm256_srli_epi16(line, 4) : line, _mm256_set1_epi8(15));
    } else {
        w.sign = _mm256_xor_si256(line, _mm256_set1_epi8(-128));
        w.size = _mm256_abs_epi8(w.sign);
    }
    return w;
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    __m256i v = _mm256_set1_epi32(x);
    if (!is_q4)
        v = _mm256_sign_epi8(v, w.sign);
    v = _mm256_madd_epi16(_mm256_maddubs_epi16(w.size, v), _mm256_set1_epi16(1));
    return _mm256_add_epi32(acc, v);
}
#endif
ATTN__OP attn__reg attn__r_scaled(attn__ireg acc, const attn__q_inputs *x)
{
    return _mm256_fmadd_ps(_mm256_castsi256_ps(acc), _mm256_set1_ps(x->scale),
                           _mm256_set1_ps(x->minus));
}

#elif ATTN__SET == ATTN__SET_BASE && defined(ATTN__X86)
#define ATTN__LANES         4
#ifdef ATTN__DISPATCH /* for processors from before 2013 only: tiles of one row compile faster */
#define ATTN__ROWS          1
#define ATTN__EACH_ROWS(X)  X(1)
#define ATTN__Q_ROWS        1
#define ATTN__EACH_Q(X)     X(1)
#else
#define ATTN__ROWS          3
#define ATTN__EACH_ROWS(X)  X(1) X(2) X(3)
#define ATTN__Q_ROWS        2
#define ATTN__EACH_Q(X)     X(1) X(2)
#endif
#define ATTN__ROW_BLOCKS    12
#define ATTN__COLS(m)       ((m) == 1 ? 2 : 1)
#define ATTN__Q_COLS(m)     1
ATTN__OP attn__reg attn__r_half(const uint16_t *p)
{
    /* The exponent and fraction of an f16, shifted to their places in an f32, are the number times
     * 2^-112, because the exponents have biases of 15 and 127. Infinity and NaN need the largest
     * exponent of f32. */
    const __m128i half =
        _mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p), _mm_setzero_si128());
    const __m128i sign = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 16);
    const __m128i size = _mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x7fff)), 13);
    const __m128i is_special = _mm_cmpgt_epi32(size, _mm_set1_epi32(0x0f7fffff));
    const __m128i bits = _mm_or_si128(size, _mm_and_si128(is_special, _mm_set1_epi32(0x7f800000)));
    return _mm_or_ps(_mm_mul_ps(_mm_castsi128_ps(bits), _mm_set1_ps(5.19229686e33f)), /* 2^112 */
                     _mm_castsi128_ps(sign));
}
ATTN__OP attn__reg attn__r_pick(attn__reg a, attn__reg b, attn__reg x, attn__reg y)
{
    __m128 mask = _mm_cmpgt_ps(a, b);
    return _mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, y));
}
ATTN__OP void attn__r_low(unsigned char *to, attn__reg v)
{
    __m128i low = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi32(255));
    low = _mm_packs_epi32(low, low);
    int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(low, low));
    memcpy(to, &bytes, 4);
}
ATTN__OP float attn__r_most(attn__reg v)
{
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
}
ATTN__OP float attn__r_total(attn__reg v)
{
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
typedef __m128i attn__ireg;
typedef struct attn__wreg {
    __m128i low, high; /* 16 bits each: lanes 0 and 1, lanes 2 and 3 */
} attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    (void)start, (void)is_q4;
    return _mm_setzero_si128();
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    __m128i line = _mm_loadu_si128((const __m128i *)(const void *)p);
    attn__wreg w;
    if (is_q4) {
        line = _mm_and_si128(high ? _mm_srli_epi16(line, 4) : line, _mm_set1_epi8(15));
        line = _mm_sub_epi8(line, _mm_set1_epi8(8));
    } else {
        line = _mm_xor_si128(line, _mm_set1_epi8(-128));
    }
    w.low = _mm_srai_epi16(_mm_unpacklo_epi8(line, line), 8);
    w.high = _mm_srai_epi16(_mm_unpackhi_epi8(line, line), 8);
    return w;
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    __m128i v = _mm_set1_epi32(x);
    (void)is_q4;
    v = _mm_srai_epi16(_mm_unpacklo_epi8(v, v), 8);
    /* k 0+1, k 2+3 of lane 0, then of lane 1 */
    __m128 low = _mm_castsi128_ps(_mm_madd_epi16(w.low, v));
    __m128 high = _mm_castsi128_ps(_mm_madd_epi16(w.high, v));
    acc = _mm_add_epi32(acc, _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0))));
    return _mm_add_epi32(acc, _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1))));
}
ATTN__OP attn__reg attn__r_scaled(attn__ireg acc, const attn__q_inputs *x)
{ return _mm_mul_ps(_mm_cvtepi32_ps(acc), _mm_set1_ps(x->scale)); }

#elif defined(ATTN__NEON) && ATTN__SET != ATTN__SET_PORTABLE
#define ATTN__LANES         4
#define ATTN__ROWS          6
#define ATTN__EACH_ROWS(X)  X(1) X(2) X(3) X(4) X(5) X(6)
#define ATTN__EACH_Q(X)     X(1) X(2) X(3) X(4)
#define ATTN__ROW_BLOCKS    12
#define ATTN__COLS(m)       ((m) == 1 ? 4 : (m) <= 3 ? 2 : 1)
#define ATTN__Q_ROWS        4
#define ATTN__Q_COLS(m)     ((m) == 1 ? 2 : 1)
typedef float32x4_t attn__reg;
ATTN__OP attn__reg attn__r_load(const float *p) { return vld1q_f32(p); }
ATTN__OP attn__reg attn__r_half(const uint16_t *p)
{ return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
ATTN__OP void attn__r_narrow(uint16_t *p, attn__reg v)
{ vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
ATTN__OP void attn__r_store(float *p, attn__reg v) { vst1q_f32(p, v); }
ATTN__OP attn__reg attn__r_set1(float x) { return vdupq_n_f32(x); }
ATTN__OP attn__reg attn__r_add(attn__reg a, attn__reg b) { return vaddq_f32(a, b); }
ATTN__OP attn__reg attn__r_sub(attn__reg a, attn__reg b) { return vsubq_f32(a, b); }
ATTN__OP attn__reg attn__r_mul(attn__reg a, attn__reg b) { return vmulq_f32(a, b); }
ATTN__OP attn__reg attn__r_div(attn__reg a, attn__reg b) { return vdivq_f32(a, b); }
ATTN__OP attn__reg attn__r_fma(attn__reg a, attn__reg b, attn__reg c) { return vfmaq_f32(c, a, b); }
ATTN__OP attn__reg attn__r_max(attn__reg a, attn__reg b)
{ return vbslq_f32(vcgtq_f32(a, b), a, b); }
ATTN__OP attn__reg attn__r_pick(attn__reg a, attn__reg b, attn__reg x, attn__reg y)
{ return vbslq_f32(vcgtq_f32(a, b), x, y); }
ATTN__OP attn__reg attn__r_exp2(attn__reg p, attn__reg t)
{
    return vreinterpretq_f32_s32(
        vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vreinterpretq_s32_f32(t), 23)));
}
ATTN__OP void attn__r_low(unsigned char *to, attn__reg v)
{
    const uint16x4_t pairs = vmovn_u32(vreinterpretq_u32_f32(v));
    const uint8x8_t low = vmovn_u16(vcombine_u16(pairs, pairs));
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(low), 0);
    memcpy(to, &bytes, 4);
}
ATTN__OP float attn__r_most(attn__reg v) { return vmaxvq_f32(v); }
ATTN__OP float attn__r_total(attn__reg v) { return vaddvq_f32(v); }
typedef int32x4_t attn__ireg;
#if ATTN__SET == ATTN__SET_NEON_I8MM /* products of unsigned weights and signed inputs */
typedef uint8x16_t attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    (void)is_q4;
    return vdupq_n_s32(start);
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    const uint8x16_t line = vld1q_u8(p);
    return !is_q4 ? line : high ? vshrq_n_u8(line, 4) : vandq_u8(line, vdupq_n_u8(15));
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    (void)is_q4;
    return vusdotq_s32(acc, w, vreinterpretq_s8_s32(vdupq_n_s32(x)));
}
#else
typedef int8x16_t attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    (void)start, (void)is_q4;
    return vdupq_n_s32(ATTN__MAGIC_I32);
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    const uint8x16_t line = vld1q_u8(p);
    if (is_q4)
        return vsubq_s8(
            vreinterpretq_s8_u8(high ? vshrq_n_u8(line, 4) : vandq_u8(line, vdupq_n_u8(15))),
            vdupq_n_s8(8));
    return vreinterpretq_s8_u8(veorq_u8(line, vdupq_n_u8(128)));
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    const int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32(x));
    (void)is_q4;
#if ATTN__SET == ATTN__SET_NEON_DOT
    return vdotq_s32(acc, w, v);
#else
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(v))),
                                     vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(v)))));
#endif
}
#endif
ATTN__OP attn__reg attn__r_scaled(attn__ireg acc, const attn__q_inputs *x)
{ return vfmaq_n_f32(vdupq_n_f32(x->minus), vreinterpretq_f32_s32(acc), x->scale); }

#elif defined(ATTN__WASM) && ATTN__SET != ATTN__SET_PORTABLE
#ifdef __wasm_relaxed_simd__
#define ATTN__LANES         4
#else
#define ATTN__LANES         16 /* four v128: one branch serves the multiply-adds of all four */
#endif
#define ATTN__ROWS          3
#define ATTN__EACH_ROWS(X)  X(1) X(2) X(3)
#define ATTN__EACH_Q(X)     X(1) X(2)
#define ATTN__ROW_BLOCKS    12
#define ATTN__COLS(m)       ((m) == 1 ? 2 : 1)
#define ATTN__Q_ROWS        2
#define ATTN__Q_COLS(m)     1
typedef struct attn__reg {
    v128_t v[ATTN__LANES / 4];
} attn__reg;
#define ATTN__FOURS(i)     ATTN__UNROLL for (int i = 0; i < ATTN__LANES / 4; i++)
#define ATTN__R(name, args, result)                                                                \
    ATTN__OP attn__reg name args                                                                   \
    {                                                                                              \
        attn__reg to;                                                                              \
        ATTN__FOURS(i) to.v[i] = result;                                                           \
        return to;                                                                                 \
    }
ATTN__OP v128_t ATTN__FN(r_half4)(const uint16_t *p)
{
    /* As with SSE2, but the load extends the sign into the four bits above the exponent, of which
     * `kept` keeps the first. is_special is 1 in the upper half of each lane with the largest
     * exponent (a comparison would compile to a select, which is slower). */
    const v128_t kept = wasm_i32x4_splat((int32_t)0x8fffffff);
    const v128_t two_112 = wasm_f32x4_splat(5.19229686e33f);
    const v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
    const v128_t inf = wasm_i32x4_splat(0x0f800000);
    const v128_t is_special =
        wasm_u16x8_sub_sat(wasm_v128_and(bits, inf), wasm_i32x4_splat(0x0f7f0000));
    return wasm_v128_or(wasm_f32x4_mul(wasm_v128_and(bits, kept), two_112),
                        wasm_i16x8_mul(is_special, wasm_i32x4_splat(0x7f800000)));
}
ATTN__R(attn__r_load, (const float *p), wasm_v128_load(p + 4 * i))
ATTN__R(attn__r_half, (const uint16_t *p), ATTN__FN(r_half4)(p + 4 * i))
ATTN__R(attn__r_set1, (float x), wasm_f32x4_splat(x))
ATTN__R(attn__r_add, (attn__reg a, attn__reg b), wasm_f32x4_add(a.v[i], b.v[i]))
ATTN__R(attn__r_sub, (attn__reg a, attn__reg b), wasm_f32x4_sub(a.v[i], b.v[i]))
ATTN__R(attn__r_mul, (attn__reg a, attn__reg b), wasm_f32x4_mul(a.v[i], b.v[i]))
ATTN__R(attn__r_div, (attn__reg a, attn__reg b), wasm_f32x4_div(a.v[i], b.v[i]))
ATTN__R(attn__r_max, (attn__reg a, attn__reg b), wasm_f32x4_pmax(b.v[i], a.v[i]))
ATTN__R(attn__r_pick, (attn__reg a, attn__reg b, attn__reg x, attn__reg y),
        wasm_v128_bitselect(x.v[i], y.v[i], wasm_f32x4_gt(a.v[i], b.v[i])))
ATTN__R(attn__r_exp2, (attn__reg p, attn__reg t),
        wasm_i32x4_add(p.v[i], wasm_i32x4_shl(t.v[i], 23)))
ATTN__OP void attn__r_store(float *p, attn__reg v)
{ ATTN__FOURS(i) wasm_v128_store(p + 4 * i, v.v[i]); }
#ifdef __wasm_relaxed_simd__ /* fused on most processors; whoever loads the module must test it */
ATTN__R(attn__r_fma, (attn__reg a, attn__reg b, attn__reg c),
        __builtin_wasm_relaxed_madd_f32x4(a.v[i], b.v[i], c.v[i]))
#else
/* Two doubles from the low or the high half of x. */
ATTN__OP v128_t ATTN__FN(r_low2)(v128_t x) { return wasm_f64x2_promote_low_f32x4(x); }
ATTN__OP v128_t ATTN__FN(r_high2)(v128_t x)
{ return wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(x, x, 2, 3, 2, 3)); }
/* Their products, which are exact. */
ATTN__OP v128_t ATTN__FN(r_low_mul)(v128_t a, v128_t b)
{ return wasm_f64x2_mul(ATTN__FN(r_low2)(a), ATTN__FN(r_low2)(b)); }
ATTN__OP v128_t ATTN__FN(r_high_mul)(v128_t a, v128_t b)
{ return wasm_f64x2_mul(ATTN__FN(r_high2)(a), ATTN__FN(r_high2)(b)); }
/* Four floats from four doubles. */
ATTN__OP v128_t ATTN__FN(r_floats)(v128_t low, v128_t high)
{
    return wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(low), wasm_f32x4_demote_f64x2_zero(high),
                              0, 1, 4, 5);
}
/* x + y rounded to odd: an inexact sum becomes the neighbour whose last bit is 1, which rounds to
 * the right float (Boldo and Melquiond 2008). The error of a sum is exact (Knuth 1969). */
ATTN__OP v128_t ATTN__FN(r_odd_sum)(v128_t x, v128_t y)
{
    const v128_t sum = wasm_f64x2_add(x, y), part = wasm_f64x2_sub(sum, x);
    const v128_t error = wasm_f64x2_add(wasm_f64x2_sub(x, wasm_f64x2_sub(sum, part)),
                                        wasm_f64x2_sub(y, part));
    const v128_t one = wasm_i64x2_splat(1);
    const v128_t way = wasm_v128_or(wasm_i64x2_shr(wasm_v128_xor(error, sum), 63), one);
    const v128_t is_odd = wasm_i64x2_eq(wasm_v128_and(sum, one), one);
    const v128_t is_inexact = wasm_f64x2_gt(wasm_f64x2_abs(error), wasm_f64x2_splat(0));
    return wasm_i64x2_add(sum, wasm_v128_and(wasm_v128_andnot(is_inexact, is_odd), way));
}
/* a * b + c. Products are exact in double. The sum is rounded to double, then to float. The second
 * rounding errs only if the sum looks like a tie: the 29 bits that it drops are 1000..., or the sum
 * is denormal as a float. This function rounds such sums to odd first. */
ATTN__UNCHECKED ATTN__APART v128_t ATTN__FN(r_fma_closely)(v128_t a, v128_t b, v128_t c)
{
    const v128_t low = ATTN__FN(r_low_mul)(a, b), c_low = ATTN__FN(r_low2)(c);
    const v128_t high = ATTN__FN(r_high_mul)(a, b), c_high = ATTN__FN(r_high2)(c);
    v128_t x = wasm_f64x2_add(low, c_low), y = wasm_f64x2_add(high, c_high);
    const v128_t last = wasm_i32x4_shl(wasm_i32x4_shuffle(x, y, 0, 2, 4, 6), 3);
    const v128_t size = wasm_i32x4_shl(wasm_i32x4_shuffle(x, y, 1, 3, 5, 7), 1);
    const v128_t is_tie = wasm_i32x4_eq(last, wasm_i32x4_splat(INT32_MIN));
    const v128_t is_denormal = wasm_u32x4_lt(wasm_i32x4_add(size, wasm_i32x4_splat(-1)),
                                             wasm_i32x4_splat(0x701fffff));
    if (wasm_v128_any_true(wasm_v128_or(is_tie, is_denormal))) {
        x = ATTN__FN(r_odd_sum)(low, c_low);
        y = ATTN__FN(r_odd_sum)(high, c_high);
    }
    return ATTN__FN(r_floats)(x, y);
}
/* The same, fast: r_fma_closely computes again only if the last 28 bits of a sum are 0, as in every
 * tie. */
ATTN__OP attn__reg attn__r_fma(attn__reg a, attn__reg b, attn__reg c)
{
    v128_t least = wasm_i32x4_splat(-1); /* of the last 28 bits of the sums */
    attn__reg to;
    ATTN__FOURS(i)
    {
        const v128_t low =
            wasm_f64x2_add(ATTN__FN(r_low_mul)(a.v[i], b.v[i]), ATTN__FN(r_low2)(c.v[i]));
        const v128_t high =
            wasm_f64x2_add(ATTN__FN(r_high_mul)(a.v[i], b.v[i]), ATTN__FN(r_high2)(c.v[i]));
        const v128_t last = wasm_i32x4_shl(wasm_i32x4_shuffle(low, high, 0, 2, 4, 6), 4);
        to.v[i] = ATTN__FN(r_floats)(low, high);
        least = wasm_u32x4_min(least, last);
    }
    if (wasm_i32x4_bitmask(wasm_i32x4_eq(least, wasm_i32x4_splat(0))))
        ATTN__FOURS(i) to.v[i] = ATTN__FN(r_fma_closely)(a.v[i], b.v[i], c.v[i]);
    return to;
}
#endif
ATTN__OP void attn__r_low(unsigned char *to, attn__reg v)
{
    ATTN__FOURS(i)
    {
        const v128_t low = wasm_v128_and(v.v[i], wasm_i32x4_splat(255));
        const v128_t pairs = wasm_i16x8_narrow_i32x4(low, low);
        wasm_v128_store32_lane(to + 4 * i, wasm_u8x16_narrow_i16x8(pairs, low), 0);
    }
}
ATTN__OP float attn__r_most(attn__reg x)
{
    v128_t v = x.v[0];
    ATTN__FOURS(i) v = wasm_f32x4_pmax(v, x.v[i]);
    v = wasm_f32x4_pmax(v, wasm_i32x4_shuffle(v, v, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(wasm_f32x4_pmax(v, wasm_i32x4_shuffle(v, v, 1, 1, 1, 1)), 0);
}
ATTN__OP float attn__r_total(attn__reg x)
{
    v128_t v = wasm_f32x4_splat(0);
    ATTN__FOURS(i) v = wasm_f32x4_add(v, x.v[i]);
    v = wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 1, 1, 1, 1)), 0);
}
typedef attn__reg attn__ireg;
typedef struct attn__wreg {
    attn__reg even, odd; /* unsigned, of 16 bits: k 0 and 2 of each lane, k 1 and 3 */
} attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    attn__ireg to;
    (void)is_q4;
    ATTN__FOURS(i) to.v[i] = wasm_i32x4_splat(start - ATTN__MAGIC_I32);
    return to;
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    const v128_t kept = wasm_i16x8_splat(is_q4 ? 15 : 255);
    attn__wreg w;
    ATTN__FOURS(i)
    {
        const v128_t line = wasm_v128_load(p + 16 * i);
        const v128_t odd = wasm_u16x8_shr(line, is_q4 && high ? 12 : 8);
        w.even.v[i] = wasm_v128_and(is_q4 && high ? wasm_u16x8_shr(line, 4) : line, kept);
        w.odd.v[i] = is_q4 && !high ? wasm_v128_and(odd, kept) : odd;
    }
    return w;
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    const v128_t v = wasm_i32x4_splat(x), odd = wasm_i16x8_shr(v, 8);
    const v128_t even = wasm_i16x8_shr(wasm_i16x8_shl(v, 8), 8);
    (void)is_q4;
    ATTN__FOURS(i)
    {
        const v128_t sum = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w.even.v[i], even),
                                          wasm_i32x4_dot_i16x8(w.odd.v[i], odd));
        acc.v[i] = wasm_i32x4_add(acc.v[i], sum);
    }
    return acc;
}
ATTN__R(attn__r_scaled, (attn__ireg acc, const attn__q_inputs *x),
        wasm_f32x4_mul(wasm_f32x4_convert_i32x4(acc.v[i]), wasm_f32x4_splat(x->scale)))
#undef ATTN__FOURS
#undef ATTN__R

#else /* plain C, one float a register */
#define ATTN__LANES         1
#if ATTN__SET == ATTN__SET_PORTABLE /* the others are tested against it; it need not be fast */
#define ATTN__ROWS          1
#define ATTN__EACH_ROWS(X)  X(1)
#else
#define ATTN__ROWS          4
#define ATTN__EACH_ROWS(X)  X(1) X(2) X(3) X(4)
#endif
#define ATTN__EACH_Q(X)     X(1)
#define ATTN__ROW_BLOCKS    12
#define ATTN__COLS(m)       1
#define ATTN__Q_ROWS        1
#define ATTN__Q_COLS(m)     1
typedef float attn__reg;
ATTN__OP attn__reg attn__r_load(const float *p) { return *p; }
ATTN__OP attn__reg attn__r_half(const uint16_t *p) { return attn_f32_from_f16(*p); }
ATTN__OP void attn__r_store(float *p, attn__reg v) { *p = v; }
ATTN__OP attn__reg attn__r_set1(float x) { return x; }
ATTN__OP attn__reg attn__r_add(attn__reg a, attn__reg b) { return a + b; }
ATTN__OP attn__reg attn__r_sub(attn__reg a, attn__reg b) { return a - b; }
ATTN__OP attn__reg attn__r_mul(attn__reg a, attn__reg b) { return a * b; }
ATTN__OP attn__reg attn__r_div(attn__reg a, attn__reg b) { return a / b; }
ATTN__OP attn__reg attn__r_fma(attn__reg a, attn__reg b, attn__reg c)
{
#if ATTN__SET == ATTN__SET_PORTABLE || defined(ATTN__FUSED)
    return attn__fmaf(a, b, c);
#else
    attn__reg product = a * b; /* a statement of its own, or clang may fuse the two */
    return product + c;
#endif
}
ATTN__OP attn__reg attn__r_max(attn__reg a, attn__reg b) { return a > b ? a : b; }
ATTN__OP attn__reg attn__r_pick(attn__reg a, attn__reg b, attn__reg x, attn__reg y)
{ return a > b ? x : y; }
ATTN__OP attn__reg attn__r_exp2(attn__reg p, attn__reg t)
{
    uint32_t p_bits, t_bits;
    memcpy(&p_bits, &p, 4);
    memcpy(&t_bits, &t, 4);
    p_bits += t_bits << 23;
    memcpy(&p, &p_bits, 4);
    return p;
}
ATTN__OP void attn__r_low(unsigned char *to, attn__reg v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    *to = (unsigned char)(bits & 255);
}
ATTN__OP float attn__r_most(attn__reg v) { return v; }
ATTN__OP float attn__r_total(attn__reg v) { return v; }
typedef int32_t attn__ireg;
typedef struct attn__wreg {
    int k[4];
} attn__wreg;
ATTN__OP attn__ireg attn__r_start(int32_t start, const int is_q4)
{
    (void)start, (void)is_q4;
    return 0;
}
ATTN__OP attn__wreg attn__r_weights(const unsigned char *p, const int is_q4, const int high)
{
    attn__wreg w;
    ATTN__UNROLL
    for (int i = 0; i < 4; i++)
        w.k[i] = is_q4 ? (high ? p[i] >> 4 : p[i] & 15) - 8 : p[i] - 128;
    return w;
}
ATTN__OP attn__ireg attn__r_dot(attn__ireg acc, attn__wreg w, int32_t x, const int is_q4)
{
    signed char v[4];
    (void)is_q4;
    memcpy(v, &x, 4);
    ATTN__UNROLL
    for (int i = 0; i < 4; i++)
        acc += w.k[i] * v[i];
    return acc;
}
ATTN__OP attn__reg attn__r_scaled(attn__ireg acc, const attn__q_inputs *x)
{ return (float)acc * x->scale; }
#endif

#if ATTN__SET == ATTN__SET_PORTABLE || (ATTN__SET == ATTN__SET_BASE && !defined(ATTN__NEON))
ATTN__OP void attn__r_narrow(uint16_t *p, attn__reg v) /* without an instruction for it */
{
    float lanes[ATTN__LANES];
    attn__r_store(lanes, v);
    for (int i = 0; i < ATTN__LANES; i++)
        p[i] = attn_f16_from_f32(lanes[i]);
}
#endif
/* clang-format on */

/* ---- functions of one variable; their coefficients: tests/makers/design_polynomials.py ---- */

#define attn__r_exp         ATTN__FN(r_exp)
#define attn__r_tail        ATTN__FN(r_tail)
#define attn__r_gelu_tanh   ATTN__FN(r_gelu_tanh)
#define attn__r_gelu_erf    ATTN__FN(r_gelu_erf)
#define attn__r_silu        ATTN__FN(r_silu)
/* a * x + c with a constant c: one step of Horner's scheme */
#define ATTN__STEP(a, x, c) attn__r_fma(a, x, attn__r_set1(c))

/* exp(x) = 2^n exp(r), |r| <= ln(2)/2. Below ln(2^-126), where it would be denormal, it is 0. */
ATTN__OP attn__reg attn__r_exp(attn__reg x)
{
    const attn__reg t = ATTN__STEP(x, attn__r_set1(1.44269502f), 12582912.0f);
    const attn__reg n = attn__r_sub(t, attn__r_set1(12582912.0f));
    attn__reg r = attn__r_fma(n, attn__r_set1(-0.693145752f), x), p; /* exact, even unfused */
    r = attn__r_fma(n, attn__r_set1(-1.42860677e-06f), r);
    p = ATTN__STEP(attn__r_set1(0.00138213579f), r, 0.00836867001f);
    p = ATTN__STEP(p, r, 0.0416682586f);
    p = ATTN__STEP(p, r, 0.166665211f);
    p = ATTN__STEP(p, r, 0.49999994f);
    p = ATTN__STEP(p, r, 1.0f);
    p = ATTN__STEP(p, r, 1.0f);
    p = attn__r_exp2(p, t);
    /* above ln(largest float): +inf; for NaN: NaN */
    p = attn__r_pick(attn__r_set1(88.7228394f), x, p, attn__r_add(x, attn__r_set1(INFINITY)));
    return attn__r_pick(attn__r_set1(-87.3365402f), x, attn__r_set1(0), p);
}

/* x / (1 + 2^v), v = -2 log2(e) sqrt(2/pi) u, u = x + 0.044715 x^3. This equals x/2 (1 + tanh(..))
 * and nothing cancels. From u = 30 on, 2^v vanishes beside 1. Below x = -10 the result is under
 * 1.3e-37, so it is -0; this is right for -inf too. */
ATTN__OP attn__reg attn__r_gelu_tanh(attn__reg x)
{
    const attn__reg most = attn__r_set1(30.0f), c = attn__r_set1(-2.30220819f);
    const attn__reg magic = attn__r_set1(12582912.0f);
    attn__reg u = attn__r_fma(attn__r_mul(x, x), attn__r_mul(x, attn__r_set1(0.044715f)), x);
    u = attn__r_pick(u, most, most, u);
    attn__reg t = attn__r_fma(u, c, magic);
    attn__reg f = attn__r_fma(u, c, attn__r_sub(magic, t));
    attn__reg p = ATTN__STEP(attn__r_set1(0.000157358314f), f, 0.00134167797f);
    p = ATTN__STEP(p, f, 0.00961719733f);
    p = ATTN__STEP(p, f, 0.0555027537f);
    p = ATTN__STEP(p, f, 0.240226567f);
    p = ATTN__STEP(p, f, 0.693147242f);
    p = ATTN__STEP(p, f, 1.0f);
    p = attn__r_div(x, attn__r_add(attn__r_set1(1.0f), attn__r_exp2(p, t)));
    return attn__r_pick(attn__r_set1(-10.0f), x, attn__r_set1(-0.0f), p);
}

/* The tail of the normal distribution, Phi(-t) = exp(-t^2/2) p(q), q = (t - 3) / (t + 3), t >= 0.
 * The rounding errors of q and t^2 are computed too, because the result would magnify them. Returns
 * the exponential, and p in *factor, because their product is needed in a fused multiply-add. */
ATTN__OP attn__reg attn__r_tail(attn__reg t, attn__reg *factor)
{
    const attn__reg most = attn__r_set1(15.0f); /* the tail is 0 from 13.2 on */
    const attn__reg zero = attn__r_set1(0), one = attn__r_set1(1.0f),
                    minus_half = attn__r_set1(-0.5f);
    t = attn__r_pick(t, most, most, t);
    attn__reg s = attn__r_div(one, attn__r_add(t, attn__r_set1(3.0f)));
    attn__reg q = attn__r_fma(attn__r_set1(-6.0f), s, one);
    attn__reg e = attn__r_fma(attn__r_add(q, one), attn__r_set1(-3.0f), t);
    e = attn__r_fma(q, attn__r_sub(zero, t), e); /* t - 3 - q (t + 3) */
    q = attn__r_fma(s, e, q);
    attn__reg p = ATTN__STEP(attn__r_set1(5.44499962e-05f), q, 0.000116331619f);
    p = ATTN__STEP(p, q, -0.000340272672f);
    p = ATTN__STEP(p, q, -0.000984492013f);
    p = ATTN__STEP(p, q, 0.00290488102f);
    p = ATTN__STEP(p, q, 0.00613228651f);
    p = ATTN__STEP(p, q, -0.0462133549f);
    p = ATTN__STEP(p, q, 0.123225011f);
    p = ATTN__STEP(p, q, -0.206402615f);
    *factor = ATTN__STEP(p, q, 0.121513948f);
    attn__reg h = attn__r_mul(t, t);
    attn__reg l = attn__r_fma(t, t, attn__r_sub(zero, h));
    e = attn__r_exp(attn__r_mul(minus_half, h));
    return attn__r_fma(e, attn__r_mul(minus_half, l), e);
}

/* x Phi(x) = x/2 (1 + erf(x / sqrt(2))). For x < 0 Phi(x) is the tail, so nothing cancels. */
ATTN__OP attn__reg attn__r_gelu_erf(attn__reg x)
{
    const attn__reg zero = attn__r_set1(0), one = attn__r_set1(1.0f), low = attn__r_set1(-15.0f);
    attn__reg p, e = attn__r_tail(attn__r_pick(zero, x, attn__r_sub(zero, x), x), &p);
    const attn__reg a = attn__r_pick(low, x, low, x); /* finite, so that -inf times 0 is -0 */
    const attn__reg upper = attn__r_fma(attn__r_sub(zero, e), p, one);
    return attn__r_mul(a, attn__r_pick(zero, x, attn__r_mul(e, p), upper));
}

/* x / (1 + exp(-x)). Below -88.7, where exp(-x) is nearly infinity, the result is under 3e-37, so
 * it is -0; this is right for -inf too. */
ATTN__OP attn__reg attn__r_silu(attn__reg x)
{
    const attn__reg e = attn__r_exp(attn__r_sub(attn__r_set1(0), x));
    return attn__r_pick(attn__r_set1(-88.7f), x, attn__r_set1(-0.0f),
                        attn__r_div(x, attn__r_add(attn__r_set1(1.0f), e)));
}

/* ---- vectors of 16 ---- */

/* Portable operations are not inlined: that would take a tenth of the time to compile this file. */
#if ATTN__SET == ATTN__SET_PORTABLE
#undef ATTN__OP
#define ATTN__OP ATTN__UNCHECKED ATTN__APART
#endif
#define ATTN__REGS (16 / ATTN__LANES)
#if ATTN__LANES == 1 /* in plain C a loop over sixteen floats stays a loop */
#define ATTN__FLAT
#else
#define ATTN__FLAT ATTN__UNROLL
#endif
/* Loops that are unrolled: i = 0 to n - 1, the registers of a vector, the sums of a tile. */
/* clang-format off */
#define ATTN__TIMES(i, n)    ATTN__FLAT for (int i = 0; i < (n); i++)
#define ATTN__EACH_REG(r)    ATTN__TIMES(r, ATTN__REGS)
#define ATTN__GRID(row, col) ATTN__TIMES(row, n_rows) ATTN__TIMES(col, n_cols)
/* clang-format on */
/* gcc keeps the sums of a loop over dot products in memory unless the loop is unrolled. */
#if (ATTN__SET == ATTN__SET_AVX512_VNNI || ATTN__SET == ATTN__SET_AVX2_VNNI) && !defined(__clang__)
#define ATTN__Q_UNROLL ATTN__UNROLL
#else
#define ATTN__Q_UNROLL
#endif

#define attn__vec       ATTN__FN(vec)
#define attn__load      ATTN__FN(load)
#define attn__half      ATTN__FN(half)
#define attn__store     ATTN__FN(store)
#define attn__set1      ATTN__FN(set1)
#define attn__vadd      ATTN__FN(vadd)
#define attn__vsub      ATTN__FN(vsub)
#define attn__vmul      ATTN__FN(vmul)
#define attn__vdiv      ATTN__FN(vdiv)
#define attn__vfma      ATTN__FN(vfma)
#define attn__vmax      ATTN__FN(vmax)
#define attn__vpick     ATTN__FN(vpick)
#define attn__vexp      ATTN__FN(vexp)
#define attn__gelu_tanh ATTN__FN(gelu_tanh)
#define attn__gelu_erf  ATTN__FN(gelu_erf)
#define attn__relu      ATTN__FN(relu)
#define attn__silu      ATTN__FN(silu)

typedef struct attn__vec {
    attn__reg r[ATTN__REGS];
} attn__vec;

/* An operation on a vector: the same operation on each of its registers. */
#define ATTN__LIFT(type, name, args, result)                                                       \
    ATTN__OP type name args                                                                        \
    {                                                                                              \
        type v;                                                                                    \
        ATTN__EACH_REG(i)                                                                          \
            v.r[i] = result;                                                                       \
        return v;                                                                                  \
    }
/* clang-format off */
ATTN__LIFT(attn__vec, attn__load, (const float *p), attn__r_load(p + i * ATTN__LANES))
ATTN__LIFT(attn__vec, attn__half, (const uint16_t *p), attn__r_half(p + i * ATTN__LANES))
ATTN__LIFT(attn__vec, attn__set1, (float x), attn__r_set1(x))
ATTN__LIFT(attn__vec, attn__vadd, (attn__vec a, attn__vec b), attn__r_add(a.r[i], b.r[i]))
ATTN__LIFT(attn__vec, attn__vsub, (attn__vec a, attn__vec b), attn__r_sub(a.r[i], b.r[i]))
ATTN__LIFT(attn__vec, attn__vmul, (attn__vec a, attn__vec b), attn__r_mul(a.r[i], b.r[i]))
ATTN__LIFT(attn__vec, attn__vdiv, (attn__vec a, attn__vec b), attn__r_div(a.r[i], b.r[i]))
ATTN__LIFT(attn__vec, attn__vfma, (attn__vec a, attn__vec b, attn__vec c),
           attn__r_fma(a.r[i], b.r[i], c.r[i]))
ATTN__LIFT(attn__vec, attn__vmax, (attn__vec a, attn__vec b), attn__r_max(a.r[i], b.r[i]))
ATTN__LIFT(attn__vec, attn__vpick, (attn__vec a, attn__vec b, attn__vec x, attn__vec y),
           attn__r_pick(a.r[i], b.r[i], x.r[i], y.r[i]))
ATTN__LIFT(attn__vec, attn__vexp, (attn__vec x), attn__r_exp(x.r[i]))
ATTN__LIFT(attn__vec, attn__gelu_tanh, (attn__vec x), attn__r_gelu_tanh(x.r[i]))
ATTN__LIFT(attn__vec, attn__gelu_erf, (attn__vec x), attn__r_gelu_erf(x.r[i]))
ATTN__LIFT(attn__vec, attn__relu, (attn__vec x),
           attn__r_pick(attn__r_set1(0), x.r[i], attn__r_set1(0), x.r[i]))
ATTN__LIFT(attn__vec, attn__silu, (attn__vec x), attn__r_silu(x.r[i]))
/* clang-format on */
ATTN__OP void attn__store(float *p, attn__vec v)
{
    ATTN__EACH_REG(i)
        attn__r_store(p + i * ATTN__LANES, v.r[i]);
}

#define attn__ivec      ATTN__FN(ivec)
#define attn__wvec      ATTN__FN(wvec)
#define attn__most      ATTN__FN(most)
#define attn__total     ATTN__FN(total)
#define attn__low_bytes ATTN__FN(low_bytes)
#define attn__i_start   ATTN__FN(i_start)
#define attn__i_weights ATTN__FN(i_weights)
#define attn__i_dot     ATTN__FN(i_dot)
#define attn__i_scaled  ATTN__FN(i_scaled)

ATTN__OP float attn__most(attn__vec v)
{
    float most = attn__r_most(v.r[0]);
    for (int i = 1; i < ATTN__REGS; i++) {
        const float other = attn__r_most(v.r[i]);
        most = most > other ? most : other;
    }
    return most;
}
ATTN__OP float attn__total(attn__vec v)
{
    float total = 0;
    ATTN__EACH_REG(i)
        total = total + attn__r_total(v.r[i]);
    return total;
}
ATTN__OP void attn__low_bytes(unsigned char *to, attn__vec v)
{
    ATTN__EACH_REG(i)
        attn__r_low(to + i * ATTN__LANES, v.r[i]);
}

#ifdef ATTN__HAS_BYTES
typedef struct attn__ivec {
    attn__ireg r[ATTN__REGS];
} attn__ivec;
typedef struct attn__wvec {
    attn__wreg r[ATTN__REGS];
} attn__wvec;
/* clang-format off */
ATTN__LIFT(attn__ivec, attn__i_start, (int32_t start, const int is_q4), attn__r_start(start, is_q4))
ATTN__LIFT(attn__vec, attn__i_scaled, (attn__ivec acc, const attn__q_inputs *x),
           attn__r_scaled(acc.r[i], x))
/* A line of q8, or the low or the high 4 bits of each byte of a line of q4. */
ATTN__LIFT(attn__wvec, attn__i_weights,
           (const unsigned char *line, const int is_q4, const int high),
           attn__r_weights(line + i * ATTN__LANES * 4, is_q4, high))
/* clang-format on */
ATTN__OP attn__ivec attn__i_dot(attn__ivec acc, attn__wvec w, const unsigned char *x,
                                const int is_q4)
{
    int32_t bytes;
    memcpy(&bytes, x, 4);
    ATTN__EACH_REG(i)
        acc.r[i] = attn__r_dot(acc.r[i], w.r[i], bytes, is_q4);
    return acc;
}
#endif

/* The sum of the lanes, in the order of rule 2: adds the upper half to the lower half, four
 * times. */
#define attn__fold ATTN__FN(fold)
ATTN__OP float attn__fold(attn__vec v)
{
    float s[16];
    attn__store(s, v);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            s[i] = s[i] + s[i + half];
    return s[0];
}

/* A loop over n elements, 16 at a time: `i` is the first of them, `n_part` their number. Only the
 * last may be fewer than 16. */
#define ATTN__BY_16(n)                                                                             \
    for (size_t i = 0, n_part = (n) < 16 ? (n) : 16; i < (n);                                      \
         i += 16, n_part = (n)-i < 16 ? (n)-i : 16)
/* The first n_part elements. Loading fills the other lanes with `fill`; storing leaves them out. */
#define attn__get ATTN__FN(get)
#define attn__put ATTN__FN(put)
ATTN__OP attn__vec attn__get(const float *p, size_t n_part, float fill)
{
    float lanes[16];
    if (n_part == 16)
        return attn__load(p);
    attn__fill_lanes(lanes, p, n_part, fill);
    return attn__load(lanes);
}
ATTN__OP void attn__put(float *p, attn__vec v, size_t n_part)
{
    float lanes[16];
    if (n_part == 16) {
        attn__store(p, v);
        return;
    }
    attn__store(lanes, v);
    memcpy(p, lanes, n_part * sizeof(float));
}

/* ---- matmul ---- */

/* The rows of a job. A tile of one panel and the most rows may have fewer: see attn__tiles. */
#define ATTN__REAL_ROWS(job, rows, cols, most)                                                     \
    ((rows) == (most) && (rows) > 1 && (cols) == 1 ? (job)->n_rows : (size_t)(rows))

/* Writes the sums of a chain to `out`, or adds them to the numbers there. */
#define attn__tile_end ATTN__FN(tile_end)
ATTN__OP void attn__tile_end(const int n_rows, const int n_cols, const size_t n_real,
                             const attn__tile_job *job, attn__vec (*acc)[8], int adds)
{
    float *const out = job->out;
    if (adds)
        ATTN__GRID(row, col)
            if ((size_t)row < n_real)
                acc[row][col] = attn__vadd(
                    attn__load(out + (size_t)row * job->out_stride + col * 16), acc[row][col]);
    ATTN__GRID(row, col)
        if ((size_t)row < n_real)
            attn__store(out + (size_t)row * job->out_stride + col * 16, acc[row][col]);
}

/* Adds the bias to a finished tile, and moves the job past its panels. It need not be inlined,
 * being called once a tile. (To move the job in a function without vectors costs a tenth: gcc then
 * leaves out vzeroupper.) */
ATTN__UNCHECKED ATTN__APART void ATTN__FN(tile_done)(attn__tile_job *job, int n_cols)
{
    if (job->bias) {
        float *out = job->out;
        for (size_t row = 0; row < job->n_rows; row++, out += job->out_stride)
            for (int at = 0; at < n_cols * 16; at += 16)
                attn__store(out + at, attn__vadd(attn__load(out + at), attn__load(job->bias + at)));
        job->bias += n_cols * 16;
    }
    job->line += (size_t)n_cols * job->panel_stride;
    job->out += n_cols * 16;
}

/* A line of a panel of f32 or f16: 16 weights. */
#define attn__weights ATTN__FN(weights)
ATTN__OP attn__vec attn__weights(const unsigned char *line, const int is_half)
{
    return is_half ? attn__half((const uint16_t *)(const void *)line)
                   : attn__load((const float *)(const void *)line);
}

/* The micro-kernel. For n_rows rows (packed: in[k][row]) and n_cols panels, chain by chain:
 *   acc[row][col] = chain of fma(in[k][row], line[k][col]) over k;  out = out + acc
 * n_rows and n_cols are compile-time constants, so acc stays in registers. ATTN__RESUME is only for
 * one row.
 *
 * f32 and f16 differ only in how a line is loaded. With 32 registers, tiles of two rows or more are
 * compiled once for both: there a branch at each line costs nothing. One row would take 3 % longer.
 * With 16 registers the branch would need one that the sums use.
 *
 * A tile of one row waits for memory. If it takes its panels in turn (ATTN__IN_TURN), it takes 256
 * bytes of each, and prefetches the first of every four lines, 32 k ahead. Processors read
 * neighbouring lines faster, and fetch the other three by themselves. */
#define attn__tile ATTN__FN(tile)
ATTN__UNCHECKED ATTN__INLINE void attn__tile(const int n_rows, const int n_cols, const int is_half,
                                             attn__tile_job *job)
{
    const size_t line_bytes = is_half ? 32 : 64, n_lines = 256 / line_bytes;
    const float *in = job->in;
    const unsigned char *line = job->line;
    const size_t stride = job->panel_stride;
    const unsigned char *ahead = job->ahead;
    float *const out = job->out;
    const size_t n_real = ATTN__REAL_ROWS(job, n_rows, n_cols, ATTN__ROWS);
    attn__vec acc[ATTN__ROWS][8];
    size_t k = 0;

    attn__tile_prefetch(job, n_rows, n_cols);
    do {
        const size_t end = job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;
        const attn__start start = k == 0 ? job->start : ATTN__SUM;
        ATTN__GRID(row, col)
            acc[row][col] = attn__set1(0);
        if (n_rows == 1 && start == ATTN__RESUME) /* continue the first chain */
            ATTN__TIMES(col, n_cols)
                acc[0][col] = attn__load(out + col * 16);
        if (n_rows == 1 && ATTN__IN_TURN(ATTN__COLS(1)))
            for (; k + n_lines <= end; k += n_lines, in += n_lines, line += 256)
                ATTN__TIMES(col, n_cols) {
                    const unsigned char *at = line + (size_t)col * stride;
                    ATTN__PREFETCH(at + 32 * line_bytes);
                    ATTN__FLAT
                    for (size_t i = 0; i < n_lines; i++, at += line_bytes)
                        acc[0][col] =
                            attn__vfma(attn__set1(in[i]), attn__weights(at, is_half), acc[0][col]);
                }
        for (; k < end; k++) {
            attn__vec w[8];
            /* The first prefetch stands outside the loop, or clang's kernel is a tenth slower. */
            ATTN__PREFETCH(ahead);
            for (size_t i = n_cols == 8 && k % 2 ? job->n_ahead : 1; i < job->n_ahead; i++)
                ATTN__PREFETCH(ahead + i * job->ahead_apart);
            ahead += job->ahead_step;
            ATTN__TIMES(col, n_cols)
                w[col] = attn__weights(line + (size_t)col * stride, is_half);
            ATTN__TIMES(row, n_rows) {
                const attn__vec x = attn__set1(in[row]);
                ATTN__TIMES(col, n_cols)
                    acc[row][col] = attn__vfma(x, w[col], acc[row][col]);
            }
            in += n_real;
            line += line_bytes;
        }
        attn__tile_end(n_rows, n_cols, n_real, job, acc, start == ATTN__SUM);
    } while (k < job->n_k);
    ATTN__FN(tile_done)(job, n_cols);
}

/* Calls `tile` while a tile's panels are left. Returns how many panels are left. */
ATTN__UNCHECKED ATTN__INLINE size_t ATTN__FN(run)(attn__tile_fn tile, const int n_rows,
                                                  const int cols, const int type,
                                                  attn__tile_job *job, size_t n_panels)
{
    for (; n_panels >= (size_t)cols; n_panels -= (size_t)cols)
        tile(n_rows, cols, type, job);
    return n_panels;
}

/* Multiplies n_panels panels of a job by tiles of `cols` panels; see attn__tiles. `tile` is
 * attn__tile, and `type` its is_half; or attn__q_tile, and is_q4. If fewer panels remain, one row
 * gets tiles of 4, 2 and 1 panels, and the most rows get tiles of one panel. A worker of many has
 * few panels: each of 16 has three of GPT-2's W_O. (Portable kernels inline this too.) */
#define attn__walk ATTN__FN(walk)
ATTN__UNCHECKED ATTN__INLINE void attn__walk(attn__tile_fn tile, const int n_rows,
                                             const int most_rows, const int cols, const int type,
                                             attn__tile_job *job, size_t n_panels)
{
    n_panels = ATTN__FN(run)(tile, n_rows, cols, type, job, n_panels);
    if (n_rows == 1 && cols > 4)
        n_panels = ATTN__FN(run)(tile, 1, 4, type, job, n_panels);
    if (n_rows == 1 && cols > 2)
        n_panels = ATTN__FN(run)(tile, 1, 2, type, job, n_panels);
    if ((n_rows == 1 || n_rows == most_rows) && cols > 1)
        ATTN__FN(run)(tile, n_rows, 1, type, job, n_panels);
}

#ifdef ATTN__HAS_FLOATS
#define ATTN__DEFINE(rows)                                                                         \
    ATTN__KERNEL void ATTN__FN(tiles_##rows)(attn__tile_job * job, size_t n_panels,                \
                                             attn_dtype dtype)                                     \
    {                                                                                              \
        const int is_half = dtype == ATTN_F16;                                                     \
        if (rows > 1 && ATTN__LANES == 16)                                                         \
            attn__walk(attn__tile, rows, ATTN__ROWS, ATTN__COLS(rows), is_half, job, n_panels);    \
        else if (is_half)                                                                          \
            attn__walk(attn__tile, rows, ATTN__ROWS, ATTN__COLS(rows), 1, job, n_panels);          \
        else                                                                                       \
            attn__walk(attn__tile, rows, ATTN__ROWS, ATTN__COLS(rows), 0, job, n_panels);          \
    }
#define ATTN__NAME(rows) {ATTN__FN(tiles_##rows), ATTN__COLS(rows)},
ATTN__EACH_ROWS(ATTN__DEFINE)
static const attn__tiles ATTN__FN(tiles)[] = {ATTN__EACH_ROWS(ATTN__NAME)};
#undef ATTN__DEFINE
#undef ATTN__NAME

/* in [rows, n_k] -> pack[k][row] */
ATTN__KERNEL void ATTN__FN(pack_rows)(float *pack, const float *in, ptrdiff_t stride,
                                      ptrdiff_t step, size_t n_rows, size_t n_k, int32_t zero)
{
    size_t row = 0;
    (void)zero;
    for (; row + 4 <= n_rows; row += 4) { /* so that a store has four numbers */
        const float *from = in + (ptrdiff_t)row * stride;
        float *to = pack + row;
        for (size_t k = 0; k < n_k; k++, from += step, to += n_rows) {
            const float four[4] = {from[0], from[stride], from[2 * stride], from[3 * stride]};
            memcpy(to, four, sizeof four);
        }
    }
    for (; row < n_rows; row++) {
        const float *from = in + (ptrdiff_t)row * stride;
        float *to = pack + row;
        for (size_t k = 0; k < n_k; k++, from += step, to += n_rows)
            *to = *from;
    }
}
static const attn__tiling ATTN__FN(tiling) = {ATTN__FN(tiles), ATTN__ROWS, ATTN__ROW_BLOCKS,
                                              ATTN__FN(pack_rows)};
#endif

/* ---- matmul with q8 and q4 weights ---- */

#ifdef ATTN__HAS_BYTES
#define attn__q_tile ATTN__FN(q_tile)
#if ATTN__SET == ATTN__SET_NEON_I8MM
/* The sums over 32 k of two rows or more and one panel, two rows at a time. The instruction usmmla
 * multiplies [2 outputs, 8 k] by [8 k, 2 rows] and adds the 4 dot products to a register. So two
 * lines, of 4 k each, are taken at once. Of every four outputs, pair[row] has outputs 0 and 1 of
 * both rows, and pair[row + 1] outputs 2 and 3. Returns `ahead` behind the fetched lines. */
ATTN__OP const unsigned char *
ATTN__FN(q_pairs)(attn__ivec (*sum)[8], const int n_rows, const int is_q4, const attn__q_inputs *in,
                  const unsigned char *line, const unsigned char *ahead, const attn__tile_job *job)
{
    attn__ivec pair[ATTN__Q_ROWS];
    ATTN__FLAT
    for (int row = 0; row < n_rows; row += 2) {
        const int odd = row + 1 < n_rows ? row + 1 : row;
        const int32x2_t start = vset_lane_s32(in[odd].start, vdup_n_s32(in[row].start), 1);
        ATTN__EACH_REG(i)
            pair[row].r[i] = pair[row + 1].r[i] = vcombine_s32(start, start);
    }
    for (int step = 0; step < 8; step += 2) {
        const attn__wvec w = attn__i_weights(line, is_q4, 0);
        const attn__wvec next = attn__i_weights(line + (is_q4 ? 0 : 64), is_q4, 1);
        line += is_q4 ? 64 : 128;
        ahead += job->ahead_by[step / (1 + is_q4)];
        ATTN__PREFETCH(ahead);
        if (!is_q4) {
            ahead += job->ahead_by[step + 1];
            ATTN__PREFETCH(ahead);
        }
        ATTN__FLAT
        for (int row = 0; row < n_rows; row += 2) {
            const int odd = row + 1 < n_rows ? row + 1 : row;
            const int8x16_t x = vreinterpretq_s8_u8(
                vcombine_u8(vld1_u8(in[row].bytes + 4 * step), vld1_u8(in[odd].bytes + 4 * step)));
            ATTN__EACH_REG(i) {
                const uint32x4_t a = vreinterpretq_u32_u8(w.r[i]);
                const uint32x4_t b = vreinterpretq_u32_u8(next.r[i]);
                pair[row].r[i] =
                    vusmmlaq_s32(pair[row].r[i], vreinterpretq_u8_u32(vzip1q_u32(a, b)), x);
                pair[row + 1].r[i] =
                    vusmmlaq_s32(pair[row + 1].r[i], vreinterpretq_u8_u32(vzip2q_u32(a, b)), x);
            }
        }
    }
    ATTN__TIMES(row, n_rows)
        ATTN__EACH_REG(i) {
            const int32x4_t a = pair[row & ~1].r[i], b = pair[row | 1].r[i];
            sum[row][0].r[i] = row % 2 ? vuzp2q_s32(a, b) : vuzp1q_s32(a, b);
        }
    return ahead;
}
#endif

/* Adds the products of one line of each of n_cols panels to their sums. The first of these panels
 * is panel col0 of the tile. The line holds 4 k (q4: 8) from k = 4 * step on. */
ATTN__OP void ATTN__FN(q_line)(attn__ivec (*sum)[8], const int n_rows, const int col0,
                               const int n_cols, const int is_q4, const int step,
                               const attn__q_inputs *in, const unsigned char *line, size_t stride)
{
    ATTN__TIMES(high, 1 + is_q4) {
        attn__wvec w[8];
        ATTN__TIMES(col, n_cols)
            w[col] = attn__i_weights(line + (size_t)col * stride, is_q4, high);
        ATTN__GRID(row, col)
            sum[row][col0 + col] =
                attn__i_dot(sum[row][col0 + col], w[col], in[row].bytes + 4 * (step + high), is_q4);
    }
}

/* The sums over 32 k. A tile of one row may take its panels in turn, as in attn__tile: 512 bytes of
 * q8 or 256 of q4 of each. It then prefetches the lines of the next 64 k. Returns `ahead` behind
 * the fetched lines. */
ATTN__OP const unsigned char *ATTN__FN(q_lines)(attn__ivec (*sum)[8], const int n_rows,
                                                const int n_cols, const int is_q4,
                                                const attn__q_inputs *in, const unsigned char *line,
                                                const unsigned char *ahead,
                                                const attn__tile_job *job)
{
    const size_t stride = job->panel_stride;
    const size_t apart = n_rows == 1 ? stride : job->ahead_apart; /* one row is one block */
#if ATTN__SET == ATTN__SET_NEON_I8MM
    if (n_rows > 1)
        return ATTN__FN(q_pairs)(sum, n_rows, is_q4, in, line, ahead, job) + job->ahead_step;
#endif
    if (n_rows == 1 && ATTN__IN_TURN(ATTN__Q_COLS(1))) {
        ATTN__TIMES(col, n_cols) {
            const unsigned char *at = line + (size_t)col * stride;
            ATTN__Q_UNROLL
            for (int step = 0; step < 8; step += 1 + is_q4, at += 64) {
                if (step % 4 == 0)
                    ATTN__PREFETCH(at + (is_q4 ? 9 : 17) * 64);
                ATTN__FN(q_line)(sum, 1, col, 1, is_q4, step, in, at, stride);
            }
        }
    } else {
        ATTN__Q_UNROLL
        for (int step = 0; step < 8; step += 1 + is_q4, line += 64) {
            ahead += job->ahead_by[step / (1 + is_q4)];
            ATTN__TIMES(col, n_cols)
                ATTN__PREFETCH(ahead + (size_t)col * apart);
            ATTN__FN(q_line)(sum, n_rows, 0, n_cols, is_q4, step, in, line, stride);
        }
    }
    return ahead + job->ahead_step;
}

/* The micro-kernel for q8 and q4. Rows are packed: in[k / 32][row]. It moves job->ahead. */
ATTN__UNCHECKED ATTN__INLINE void attn__q_tile(const int n_rows, const int n_cols, const int is_q4,
                                               attn__tile_job *job)
{
    const size_t stride = job->panel_stride;
    const attn__q_inputs *in = (const attn__q_inputs *)(const void *)job->in;
    const unsigned char *ahead = job->ahead;
    const unsigned char *scales = job->line, *line = scales + 64;
    const size_t n_real = ATTN__REAL_ROWS(job, n_rows, n_cols, ATTN__Q_ROWS);
    attn__vec acc[ATTN__Q_ROWS][8];
    size_t k = 0;

    attn__tile_prefetch(job, n_rows, n_cols);
    do {
        const size_t end = job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;
        const int is_first = k == 0 && job->start == ATTN__FRESH;
        ATTN__GRID(row, col)
            acc[row][col] = attn__set1(0);
        for (; k < end; k += ATTN__PER_SCALE, in += n_real) {
            attn__ivec sum[ATTN__Q_ROWS][8];
            ATTN__GRID(row, col)
                sum[row][col] = attn__i_start(in[row].start, is_q4);
            ahead = ATTN__FN(q_lines)(sum, n_rows, n_cols, is_q4, in, line, ahead, job);
            line += is_q4 ? 256 : 512;
            ATTN__TIMES(col, n_cols) {
                const attn__vec scale =
                    attn__half((const uint16_t *)(const void *)(scales + (size_t)col * stride));
                ATTN__TIMES(row, n_rows)
                    acc[row][col] =
                        attn__vfma(attn__i_scaled(sum[row][col], in + row), scale, acc[row][col]);
            }
            scales += 32;
            if (k / ATTN__PER_SCALE % 2 == 1) {
                scales = line;
                line += 64;
            }
        }
        attn__tile_end(n_rows, n_cols, n_real, job, acc, !is_first);
    } while (k < job->n_k);
    ATTN__FN(tile_done)(job, n_cols);
    job->ahead = ahead;
}

#define ATTN__DEFINE(rows)                                                                         \
    ATTN__KERNEL void ATTN__FN(q_tiles_##rows)(attn__tile_job * job, size_t n_panels,              \
                                               attn_dtype dtype)                                   \
    {                                                                                              \
        if (dtype == ATTN_Q4)                                                                      \
            attn__walk(attn__q_tile, rows, ATTN__Q_ROWS, ATTN__Q_COLS(rows), 1, job, n_panels);    \
        else                                                                                       \
            attn__walk(attn__q_tile, rows, ATTN__Q_ROWS, ATTN__Q_COLS(rows), 0, job, n_panels);    \
    }
#define ATTN__NAME(rows) {ATTN__FN(q_tiles_##rows), ATTN__Q_COLS(rows)},
ATTN__EACH_Q(ATTN__DEFINE)
static const attn__tiles ATTN__FN(q_tiles)[] = {ATTN__EACH_Q(ATTN__NAME)};
#undef ATTN__DEFINE
#undef ATTN__NAME
#endif

#ifdef ATTN__HAS_FLOATS
/* Quantises n <= 64 blocks of 32 floats into to[0], to[step], to[2 * step] and so on, by rule 5 of
 * the same bits. A block with a number that is not finite gets the scale NaN, and any `start`. Each
 * loop is over all blocks, so that the processor can work on several at once: the largest number of
 * a block takes many cycles. */
ATTN__OP void ATTN__FN(quantize)(attn__q_inputs *to, size_t step, const float *x, size_t n,
                                 float zero)
{
    const attn__vec magic = attn__set1(ATTN__MAGIC), none = attn__set1(0),
                    most = attn__set1(127.0f);
    const attn__vec low = attn__set1(1e-30f), high = attn__set1(1.26765060e30f); /* 2^100 */
    float largest[64], inverse[64], total[64], scale[64], start[64];
    uint32_t bits;
    size_t i;
    for (i = 0; i < n; i++) {
        const attn__vec a = attn__load(x + i * 32), b = attn__load(x + i * 32 + 16);
        largest[i] = attn__most(
            attn__vmax(attn__vmax(a, attn__vsub(none, a)), attn__vmax(b, attn__vsub(none, b))));
    }
    for (; i % 16 != 0; i++)
        largest[i] = total[i] = 0;
    for (i = 0; i < n; i += 16) {
        const attn__vec l = attn__load(largest + i);
        attn__store(inverse + i, attn__vpick(low, l, none, attn__vdiv(most, l)));
    }
    for (i = 0; i < n; i++) { /* the low bytes of a and b are the rounded numbers */
        const attn__vec f = attn__set1(inverse[i]);
        const attn__vec a = attn__vfma(attn__load(x + i * 32), f, magic);
        const attn__vec b = attn__vfma(attn__load(x + i * 32 + 16), f, magic);
        attn__low_bytes(to[i * step].bytes, a);
        attn__low_bytes(to[i * step].bytes + 16, b);
        total[i] = attn__total(attn__vadd(attn__vsub(a, magic), attn__vsub(b, magic)));
    }
    for (i = 0; i < n; i += 16) {
        const attn__vec l = attn__load(largest + i), t = attn__load(total + i);
        const attn__vec s = attn__vpick(low, l, none, attn__vdiv(l, most));
        attn__store(scale + i,
                    attn__vadd(attn__vpick(l, high, attn__set1(NAN), s), attn__vsub(t, t)));
        attn__store(start + i, attn__vfma(t, attn__set1(-zero), magic));
    }
    for (i = 0; i < n; i++, to += step) {
        memcpy(&bits, &scale[i], 4);
        bits &= ~(uint32_t)3; /* so that ATTN__MAGIC times the scale is exact */
        memcpy(&to->scale, &bits, 4);
        to->minus = -ATTN__MAGIC * to->scale;
        memcpy(&to->start, &start[i], 4);
    }
}

/* in [rows, n_k] -> blocks of 32 k as attn__q_tile reads them */
ATTN__KERNEL void ATTN__FN(quantize_rows)(float *pack, const float *in, ptrdiff_t stride,
                                          ptrdiff_t step, size_t n_rows, size_t n_k, int32_t zero)
{
    for (size_t row = 0; row < n_rows; row++, in += stride) {
        attn__q_inputs *to = (attn__q_inputs *)(void *)pack + row;
        for (size_t k = 0, n; k < n_k; k += n, to += n / 32 * n_rows) {
            const float *from = in + (ptrdiff_t)k * step;
            float x[64 * 32];
            n = n_k - k < 64 * 32 ? n_k - k : 64 * 32;
            if (n % 32 != 0 || step != 1) {
                for (size_t i = 0; i < (n + 31) / 32 * 32; i++)
                    x[i] = i < n ? from[(ptrdiff_t)i * step] : 0;
                from = x;
            }
            ATTN__FN(quantize)(to, n_rows, from, (n + 31) / 32, (float)zero);
        }
    }
}
#endif

static const attn__tiling ATTN__FN(q_tiling) = {ATTN__BYTES(q_tiles), ATTN__Q_ROWS, 48,
                                                ATTN__FLOAT(quantize_rows)};

#if ATTN__ROWS > ATTN__TILE_ROWS || ATTN__Q_ROWS > ATTN__TILE_ROWS
#error "a tile has more rows than ATTN__TILE_ROWS"
#endif

#ifdef ATTN__HAS_FLOATS
/* ---- rows ---- */

/* With SSE2 these take a small part of a pass's time, so they are compiled for size. */
#if ATTN__SET == ATTN__SET_BASE && defined(ATTN__X86)
#define ATTN__ROW_KERNEL ATTN__COMPACT ATTN__KERNEL
#else
#define ATTN__ROW_KERNEL ATTN__KERNEL
#endif

/* out [n] = a + b, a - b, a · b or a / b */
ATTN__ROW_KERNEL void ATTN__FN(binary)(attn__binary op, float *out, const float *a, const float *b,
                                       size_t n)
{
    ATTN__BY_16(n) {
        const attn__vec x = attn__get(a + i, n_part, 0), y = attn__get(b + i, n_part, 1);
        attn__vec r;
        switch (op) {
        case ATTN__ADD:
            r = attn__vadd(x, y);
            break;
        case ATTN__SUB:
            r = attn__vsub(x, y);
            break;
        case ATTN__MUL:
            r = attn__vmul(x, y);
            break;
        default:
            r = attn__vdiv(x, y);
            break;
        }
        attn__put(out + i, r, n_part);
    }
}

ATTN__ROW_KERNEL void ATTN__FN(narrow)(uint16_t *out, const float *x, size_t n)
{
    ATTN__BY_16(n) {
        const attn__vec v = attn__get(x + i, n_part, 0);
        uint16_t halves[16];
        ATTN__EACH_REG(j)
            attn__r_narrow(halves + j * ATTN__LANES, v.r[j]);
        memcpy(out + i, halves, n_part * sizeof *halves);
    }
}

ATTN__ROW_KERNEL void ATTN__FN(scale)(float *out, const float *x, float factor, size_t n)
{
    const attn__vec f = attn__set1(factor);
    ATTN__BY_16(n)
        attn__put(out + i, attn__vmul(attn__get(x + i, n_part, 0), f), n_part);
}

ATTN__ROW_KERNEL void ATTN__FN(scale_mask)(float *out, const float *x, float factor,
                                           const float *mask, size_t n)
{
    const attn__vec f = attn__set1(factor);
    ATTN__BY_16(n)
        attn__put(out + i,
                  attn__vfma(attn__get(x + i, n_part, 0), f, attn__get(mask + i, n_part, 0)),
                  n_part);
}

/* out [n] = f(x) */
#define ATTN__MAP(f)                                                                               \
    ATTN__BY_16(n)                                                                                 \
    attn__put(out + i, f(attn__get(x + i, n_part, 0)), n_part)
ATTN__ROW_KERNEL void ATTN__FN(exp)(float *out, const float *x, size_t n)
{
    ATTN__MAP(attn__vexp);
}

ATTN__ROW_KERNEL void ATTN__FN(activate)(float *out, const float *x, size_t n, attn_mlp_act kind)
{
    if (kind == ATTN_ACT_GELU_TANH)
        ATTN__MAP(attn__gelu_tanh);
    else if (kind == ATTN_ACT_GELU_ERF)
        ATTN__MAP(attn__gelu_erf);
    else if (kind == ATTN_ACT_RELU)
        ATTN__MAP(attn__relu);
    else
        ATTN__MAP(attn__silu);
}
#undef ATTN__MAP

ATTN__ROW_KERNEL float ATTN__FN(sum)(const float *x, size_t n)
{
    attn__vec s = attn__set1(0);
    ATTN__BY_16(n)
        s = attn__vadd(s, attn__get(x + i, n_part, 0));
    return attn__fold(s);
}

ATTN__ROW_KERNEL float ATTN__FN(square_distance)(const float *x, float center, size_t n)
{
    const attn__vec c = attn__set1(center);
    attn__vec s = attn__set1(0);
    ATTN__BY_16(n) {
        const attn__vec d = attn__vsub(attn__get(x + i, n_part, center), c);
        s = attn__vfma(d, d, s);
    }
    return attn__fold(s);
}

ATTN__ROW_KERNEL void ATTN__FN(normalize)(float *out, const float *x, float mean, float scale,
                                          size_t n)
{
    const attn__vec m = attn__set1(mean), s = attn__set1(scale);
    ATTN__BY_16(n)
        attn__put(out + i, attn__vdiv(attn__vsub(attn__get(x + i, n_part, 0), m), s), n_part);
}

ATTN__ROW_KERNEL void ATTN__FN(affine)(float *out, const float *x, const float *w, const float *b,
                                       size_t n)
{
    ATTN__BY_16(n)
        attn__put(out + i,
                  attn__vfma(attn__get(x + i, n_part, 0), attn__get(w + i, n_part, 0),
                             attn__get(b + i, n_part, 0)),
                  n_part);
}

/* This may miss a NaN. The sum of exponentials, which every caller makes, is then NaN all the
 * same. */
ATTN__ROW_KERNEL float ATTN__FN(largest)(const float *x, size_t n)
{
    attn__vec m = attn__set1(-INFINITY);
    ATTN__BY_16(n)
        m = attn__vmax(m, attn__get(x + i, n_part, -INFINITY));
    return attn__most(m);
}

ATTN__ROW_KERNEL void ATTN__FN(softmax)(float *out, const float *x, size_t n)
{
    const attn__vec m = attn__set1(ATTN__FN(largest)(x, n));
    attn__vec s = attn__set1(0);
    ATTN__BY_16(n) {
        const attn__vec e = attn__vexp(attn__vsub(attn__get(x + i, n_part, -INFINITY), m));
        s = attn__vadd(s, e);
        attn__put(out + i, e, n_part);
    }
    ATTN__FN(scale)(out, out, 1.0f / attn__fold(s), n);
}

ATTN__ROW_KERNEL float ATTN__FN(log_sum_exp)(const float *x, size_t n, float *largest)
{
    const attn__vec m = attn__set1(*largest = ATTN__FN(largest)(x, n));
    attn__vec s = attn__set1(0);
    ATTN__BY_16(n)
        s = attn__vadd(s, attn__vexp(attn__vsub(attn__get(x + i, n_part, -INFINITY), m)));
    return attn__log(attn__fold(s));
}

/* NaN is a number that is neither below +inf nor above -inf. */
ATTN__ROW_KERNEL float ATTN__FN(largest_or_nan)(const float *x, size_t n)
{
    const attn__vec zero = attn__set1(0), one = attn__set1(1);
    const attn__vec top = attn__set1(INFINITY), bottom = attn__set1(-INFINITY);
    attn__vec m = bottom, has_nan = zero;
    ATTN__BY_16(n) {
        const attn__vec v = attn__get(x + i, n_part, -INFINITY);
        m = attn__vmax(m, v);
        has_nan = attn__vpick(top, v, has_nan, attn__vpick(v, bottom, has_nan, one));
    }
    return attn__fold(has_nan) > 0 ? (float)NAN : attn__most(m);
}

/* The digest of one block: see CHECKSUM in >>format. */
ATTN__ROW_KERNEL uint64_t ATTN__FN(digest)(const unsigned char *block, size_t size)
{
    unsigned char padded[256];
    uint32_t lanes[64];
    uint64_t d = size;
    size_t n;
    for (size_t j = 0; j < 64; j++)
        lanes[j] = (uint32_t)j;
    for (; size > 0; size -= n, block += n) {
        const unsigned char *words = block;
        n = size < 256 ? size : 256;
        if (n < 256) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, block, n);
            words = padded;
        }
        for (size_t j = 0; j < 64; j++) {
            uint32_t a;
            memcpy(&a, words + 4 * j, 4);
            if (attn__host_is_big_endian()) /* cover: another processor */
                a = attn__u32(words + 4 * j);
            a = (lanes[j] ^ a) * 0x9E3779B1u;
            lanes[j] = a ^ (a >> 15);
        }
    }
    for (size_t j = 0; j < 64; j++)
        d = attn__mix(d, lanes[j]);
    return d;
}

#endif

static const attn__kernels ATTN__FN(kernels) = {
#if ATTN__SET == ATTN__SET_PORTABLE
    ATTN__NAMED("portable", ATTN_ISA_PORTABLE),
#elif ATTN__SET == ATTN__SET_AVX2
    ATTN__NAMED("avx2", ATTN_ISA_AVX2),
#elif ATTN__SET == ATTN__SET_AVX512
    ATTN__NAMED("avx512", ATTN_ISA_AVX512),
#elif ATTN__SET == ATTN__SET_AVX512_VNNI
    ATTN__NAMED("avx512 vnni", ATTN_ISA_AVX512_VNNI),
#elif ATTN__SET == ATTN__SET_AVX2_VNNI
    ATTN__NAMED("avx2 vnni", ATTN_ISA_AVX2_VNNI),
#elif ATTN__SET == ATTN__SET_NEON_DOT
    ATTN__NAMED("neon dotprod", ATTN_ISA_NEON_DOT),
#elif ATTN__SET == ATTN__SET_NEON_I8MM
    ATTN__NAMED("neon i8mm", ATTN_ISA_NEON_I8MM),
#elif defined(ATTN__NEON)
    ATTN__NAMED("neon", ATTN_ISA_NEON),
#elif defined(ATTN__WASM)
    ATTN__NAMED("wasm simd", ATTN_ISA_BASE),
#elif defined(ATTN__X86) && defined(__FMA__)
    ATTN__NAMED("sse", ATTN_ISA_BASE),
#elif defined(ATTN__X86)
    ATTN__NAMED("sse2 (no fused multiply-add)", ATTN_ISA_BASE),
#elif defined(ATTN__FUSED)
    ATTN__NAMED("base", ATTN_ISA_BASE),
#else
    ATTN__NAMED("base (no fused multiply-add)", ATTN_ISA_BASE),
#endif
    /* clang-format off */
    {&ATTN__FLOAT(tiling), &ATTN__FN(q_tiling)},
    ATTN__FLOAT(binary), ATTN__FLOAT(narrow), ATTN__FLOAT(scale), ATTN__FLOAT(scale_mask),
    ATTN__FLOAT(exp), ATTN__FLOAT(activate), ATTN__FLOAT(sum), ATTN__FLOAT(square_distance),
    ATTN__FLOAT(normalize), ATTN__FLOAT(affine), ATTN__FLOAT(softmax), ATTN__FLOAT(log_sum_exp),
    ATTN__FLOAT(largest_or_nan), ATTN__FLOAT(digest)};
/* clang-format on */

/* The next set defines these anew. Macros with lower-case names stay: they are the same in every
 * set. */
#undef ATTN__FLOAT
#undef ATTN__HAS_FLOATS
#undef ATTN__BYTES
#undef ATTN__HAS_BYTES
#undef ATTN__OP
#undef ATTN__MM
#undef ATTN__INTS
#undef ATTN__FLOATS
#undef ATTN__LANES
#undef ATTN__ROWS
#undef ATTN__ROW_KERNEL
#undef ATTN__EACH_ROWS
#undef ATTN__EACH_Q
#undef ATTN__ROW_BLOCKS
#undef ATTN__COLS
#undef ATTN__Q_ROWS
#undef ATTN__Q_COLS
#undef ATTN__STEP
#undef ATTN__REGS
#undef ATTN__FLAT
#undef ATTN__TIMES
#undef ATTN__EACH_REG
#undef ATTN__Q_UNROLL
#undef ATTN__LIFT
#undef ATTN__BY_16
#undef ATTN__GRID
#undef ATTN__REAL_ROWS
#undef ATTN__ISA
/* NOLINTEND(bugprone-implicit-widening-of-multiplication-result,bugprone-macro-parentheses,
 *           bugprone-branch-clone) */
#endif /* the kernel template */

/* The first inclusion, for the portable set, includes this file again for the other sets. */
#if defined(ATTN__SET) && ATTN__SET == ATTN__SET_PORTABLE
#undef ATTN__SET
#undef ATTN__KERNEL
#define ATTN__KERNEL ATTN__UNCHECKED static

#if ATTN__WIDEST == ATTN__SET_AVX512 /* it takes AVX2's tiles for q8 and q4 */
#define ATTN__SET ATTN__SET_AVX2
#define ATTN__ISA avx2
#include ATTN_FILE
#endif

#define ATTN__SET ATTN__WIDEST
#define ATTN__ISA base
#include ATTN_FILE

#ifdef ATTN__DISPATCH
/* Functions between ATTN__TARGET and ATTN__TARGET_END may use these instructions too. */
#define ATTN__PRAGMA(words)  ATTN__PRAGMA_(words)
#define ATTN__PRAGMA_(words) _Pragma(#words)
#ifdef __clang__
#define ATTN__TARGET(set)                                                                          \
    ATTN__PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define ATTN__TARGET_END ATTN__PRAGMA(clang attribute pop)
#else
#define ATTN__TARGET(set) ATTN__PRAGMA(GCC push_options) ATTN__PRAGMA(GCC target(set))
#define ATTN__TARGET_END  ATTN__PRAGMA(GCC pop_options)
#endif

#ifdef ATTN__X86
ATTN__TARGET("avx2,fma,f16c")
#define ATTN__SET ATTN__SET_AVX2
#define ATTN__ISA avx2
#include ATTN_FILE
ATTN__TARGET_END

ATTN__TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define ATTN__SET ATTN__SET_AVX512
#define ATTN__ISA avx512
#include ATTN_FILE
ATTN__TARGET_END

ATTN__TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#define ATTN__SET ATTN__SET_AVX512_VNNI
#define ATTN__ISA avx512_vnni
#include ATTN_FILE
ATTN__TARGET_END

#if defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11
#define ATTN__AVX2_VNNI
ATTN__TARGET("avxvnni,avx2,fma,f16c")
#define ATTN__SET ATTN__SET_AVX2_VNNI
#define ATTN__ISA avx2_vnni
#include ATTN_FILE
ATTN__TARGET_END
#endif

#else
#if ATTN__WIDEST < ATTN__SET_NEON_DOT
ATTN__TARGET(ATTN__DOT)
#define ATTN__SET ATTN__SET_NEON_DOT
#define ATTN__ISA neon_dot
#include ATTN_FILE
ATTN__TARGET_END
#endif

ATTN__TARGET(ATTN__I8MM)
#define ATTN__SET ATTN__SET_NEON_I8MM
#define ATTN__ISA neon_i8mm
#include ATTN_FILE
ATTN__TARGET_END
#endif

#undef ATTN__PRAGMA
#undef ATTN__PRAGMA_
#undef ATTN__TARGET
#undef ATTN__TARGET_END
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#undef ATTN__NO_INTRINSICS
#undef ATTN__CAT_
#undef ATTN__CAT
#undef ATTN__FN
#undef ATTN__KERNEL
#undef ATTN__UNCHECKED

/* The kernels of this build, best first, and the feature that each needs. */
static const struct {
    unsigned feature;
    const attn__kernels *kernels;
} attn__choices[] = {
#if defined(ATTN__DISPATCH) && defined(ATTN__X86)
    {ATTN__BIT(AVX512_VNNI), &attn__kernels_avx512_vnni},
    {ATTN__BIT(AVX512), &attn__kernels_avx512},
#ifdef ATTN__AVX2_VNNI
    {ATTN__BIT(AVX2_VNNI), &attn__kernels_avx2_vnni},
#endif
    {ATTN__BIT(AVX2), &attn__kernels_avx2},
#elif defined(ATTN__DISPATCH)
    {ATTN__BIT(NEON_I8MM), &attn__kernels_neon_i8mm},
#if ATTN__WIDEST < ATTN__SET_NEON_DOT
    {ATTN__BIT(NEON_DOT), &attn__kernels_neon_dot},
#endif
#endif
    {0, &attn__kernels_base},
#if ATTN__WIDEST == ATTN__SET_AVX512
    {0, &attn__kernels_avx2},
#endif
    {0, &attn__kernels_portable},
};

/* The kernels that a processor with these features runs when asked for `isa`, or NULL. */
static const attn__kernels *attn__kernels_of(attn_isa_kind isa, unsigned features)
{
    if (isa == ATTN_ISA_BASE)
        return &attn__kernels_base;
    for (size_t i = 0; i < sizeof attn__choices / sizeof attn__choices[0]; i++) {
        const attn__kernels *kernels = attn__choices[i].kernels;
        if ((isa == ATTN_ISA_AUTO || isa == kernels->kind) &&
            (attn__choices[i].feature & ~features) == 0)
            return kernels;
    }
    return NULL;
}

/* The kernels that a context asks for, or NULL if this build or processor does not have them. CPUID
 * is read once. Several threads may do so at the same time: all write the same answer. */
static ATTN__COMPACT const attn__kernels *attn__kernels_for(const attn_ctx *ctx)
{
#ifdef ATTN__DISPATCH
    static unsigned cached; /* features, and bit 31 once they are known */
    unsigned features = __atomic_load_n(&cached, __ATOMIC_RELAXED);
    if (!features) {
        features = attn__cpu_features() | 1u << 31;
        __atomic_store_n(&cached, features, __ATOMIC_RELAXED);
    }
    return attn__kernels_of(ctx->isa, features);
#else
    return attn__kernels_of(ctx->isa, 0);
#endif
}

ATTN__APART attn_status attn__need_kernels(attn_ctx *ctx, const attn__kernels **kernels)
{
    *kernels = attn__kernels_for(ctx);
    if (*kernels)
        return ATTN_OK;
    return attn_fail(ctx, ATTN_E_UNSUPPORTED,
                     "ctx->isa asks for kernels that this build or processor does not have; leave "
                     "it at ATTN_ISA_AUTO");
}

/* Index of attn__kernels.names. 1: flags let the compiler reorder sums, multiply by reciprocals,
 * drop the sign of zeros, or take a double constant for a float. 2: this thread flushes denormals,
 * as in every program that was linked with gcc's -ffast-math. 0: arithmetic is exact. */
static int attn__flaw(void)
{
    volatile float most = 16777216, one = 1, five = 5, minus_zero = -0.0f, least = FLT_MIN;
    const float large = most, unit = one, sum = large + unit - large;
    const float third = five / 3.0f, zero = minus_zero + 0.0f;
    const double tenth = 0.1; /* a float by gcc's -fsingle-precision-constant */
    uint32_t bits;
    memcpy(&bits, &zero, sizeof bits);
    if (sum != 0 || third != 1.66666662693f || bits != 0 || tenth == (double)0.1f)
        return 1;
    return least * 0.5f == 0 ? 2 : 0;
}

ATTN__COLD const char *attn_isa(const attn_ctx *ctx)
{
    const attn__kernels *kernels = attn__kernels_for(ctx);
    return kernels ? kernels->names[attn__flaw()] : NULL;
}

/* >>matmul (tests: kernels ops) =================================================================
 * Packing a matrix into panels, multiplying rows by panels tile by tile, dividing one matmul over
 * workers, and the attention of one head. */

/* The part of w for inputs [first, first + n_in); for q8 and q4 `first` is a multiple of 64. */
static attn__panels attn__inputs(attn__panels w, size_t first, size_t n_in)
{
    w.data = (const unsigned char *)w.data + attn__line_of(w.dtype, first);
    w.n_in = n_in;
    return w;
}

/* The job out [rows, n_out] = in [rows, n_in] · w, for inputs that are dense along k. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the job writes there */
static attn__matmul_job attn__job(float *out, size_t out_stride, const float *in,
                                  ptrdiff_t in_stride, attn__panels w, size_t rows)
{
    const attn__matmul_job job = {in, in_stride, 1, w, NULL, out, out_stride, rows, ATTN__FRESH, 0};
    return job;
}

/* Floats of scratch for a matmul of `rows` rows of n_in inputs: the packed rows, at most
 * ATTN__PACK, and those that the kernel for the most rows reads behind the last row. */
static size_t attn__pack_size(attn_dtype dtype, size_t rows, size_t n_in)
{
    const size_t packed = attn__packed(attn__is_quantized(dtype), n_in);
    const size_t behind = ATTN__TILE_ROWS * attn__packed(attn__is_quantized(dtype), 1);
    return behind + (packed == 0 || rows < ATTN__PACK / packed ? rows * packed : ATTN__PACK);
}

/* Where weight k (of 64) of an output lies: bytes behind the output's first byte in the line after
 * the scales. *shift is the number of bits below it in its byte. */
static size_t attn__bits_at(const attn__weight_type *t, size_t k, int *shift)
{
    const size_t four = k / 4; /* a lane holds 4 weights of q8; of q4, 4 low and the next 4 high */
    *shift = t->bits == 8 ? 0 : (int)(four % 2) * 4;
    return (t->bits == 8 ? four : four / 2) * 64 + k % 4;
}

/* Entry (k, n) of a matrix in panels. */
static float attn__panels_get(const attn__panels *w, size_t k, size_t n)
{
    const unsigned char *panel = (const unsigned char *)w->data + n / 16 * w->stride;
    if (attn__is_quantized(w->dtype)) {
        const attn__weight_type *t = attn__weight_type_of(w->dtype);
        const unsigned char *scales = panel + k / 64 * t->bytes;
        const size_t j = k % 64;
        uint16_t half;
        int shift;
        memcpy(&half, scales + (j / 32 * 16 + n % 16) * 2, 2);
        int bits = scales[64 + n % 16 * 4 + attn__bits_at(t, j, &shift)];
        bits = (bits >> shift & ((1 << t->bits) - 1)) - t->zero;
        return attn_f32_from_f16(half) * (float)bits;
    }
    return attn__load_element(panel, w->dtype, (ptrdiff_t)(k * 16 + n % 16));
}

/* Panels [panel0, panel1) of w [K, N] in f32. Outputs beyond N are zero. */
static void attn__pack_panels(float *panels, const attn_tensor *w, size_t panel0, size_t panel1)
{
    const size_t n_in = w->shape[0], n_out = w->shape[1];
    for (size_t panel = panel0; panel < panel1; panel++) {
        const size_t n_lanes = n_out - panel * 16 < 16 ? n_out - panel * 16 : 16;
        float *to = panels + panel * n_in * 16;
        for (size_t k = 0; k < n_in; k++, to += 16) {
            const ptrdiff_t from = attn__offset(w, k, panel * 16, 0, 0);
            for (size_t lane = 0; lane < 16; lane++)
                to[lane] = lane < n_lanes
                               ? attn__load_element(w->data, w->dtype,
                                                    from + (ptrdiff_t)lane * w->stride[1])
                               : 0;
        }
    }
}

/* Panels of q8 or q4 in a group, if there is one block of rows. */
#define ATTN__Q_GROUP(cols) ((cols) == 3 ? 6 : (cols) == 1 ? 4 : 8)

/* The tiles of a group prefetch the lines of the next group. A group has n_panels panels; each of
 * its n_blocks blocks of rows fetches an equal `share`, in bytes.
 *
 *   blocks  type      rows, panels         lines                          where
 *   1       f32       1 or 2, less than 8  1 at each k                    every n_panels-th line
 *   1       f32, f16  other                n_panels at each k             one of each panel
 *   more    f32, f16  any                  n_panels / n_blocks at each k  neighbours
 *   1       q8, q4    any                  cols at each line              the panels in turn
 *   more    q8, q4    any                  cols at each line              spread over the share
 *   any     any       an incomplete group  1 for all k                    behind the group
 *
 * One block waits for memory, so it fetches from all panels, and the processor's own prefetching
 * follows. Tiles of 8 panels of floats fetch these lines at every second k: two k of f16 share a
 * line, and of two lines of f32 the processor fetches the second. Behind an incomplete group often
 * lie another worker's panels, and behind a matrix the next step's. Tiles of one row that take
 * their panels in turn ignore this plan. */
static void attn__plan_fetching(attn__tile_job *tile, int is_alone, size_t n_rows, size_t n_panels,
                                attn_dtype dtype, size_t share)
{
    const size_t n_k = attn__round_up(tile->n_k, 64), bytes = n_k ? share / n_k : 0; /* at each k */
    const int is_each = is_alone && share > 0;
    tile->n_ahead = is_each ? n_panels : (bytes + 63) / 64;
    tile->ahead_apart = is_each ? tile->panel_stride : 64;
    tile->ahead_step = (ptrdiff_t)(is_each ? bytes / n_panels : bytes);
    if (is_alone && dtype == ATTN_F32 && n_rows <= 2 && n_panels < 8) {
        tile->n_ahead = 1;
        tile->ahead_step = (ptrdiff_t)bytes;
    }
}
static void attn__plan_q_fetching(attn__tile_job *tile, int is_alone, size_t n_panels, size_t cols,
                                  attn_dtype dtype, size_t share)
{
    const size_t n_lines = (size_t)attn__weight_type_of(dtype)->bits; /* of 32 k */
    const size_t n_k = attn__round_up(tile->n_k, 64);
    const int in_turn = is_alone && share > 0;
    size_t bytes = n_k ? share * ATTN__PER_SCALE / n_k : 0, last = 0; /* at each 32 k */
    if (in_turn)
        bytes = bytes * cols / n_panels / n_panels;
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): q8 and q4 have bits */
    tile->ahead_apart = in_turn ? tile->panel_stride : bytes / n_lines / cols;
    for (size_t line = 0; line < n_lines; line++) {
        const size_t n = line * cols; /* lines fetched before this one */
        const size_t at = in_turn ? n / n_panels * 64 + n % n_panels * tile->panel_stride
                                  : line * bytes / n_lines;
        tile->ahead_by[line] = (ptrdiff_t)at - (ptrdiff_t)last;
        last = at;
    }
    tile->ahead_step = (ptrdiff_t)bytes - (ptrdiff_t)last;
}

/* Multiplies by the last panel of a matrix if it has fewer than 16 outputs. The tile writes 16
 * columns to a buffer, from which the n_part columns that exist are copied. */
static void attn__partial_panel(const attn__tiles *tiles, attn__tile_job *tile, size_t n_part,
                                attn_dtype dtype)
{
    float lines[ATTN__TILE_ROWS * 16], bias[16] = {0};
    float *const out = tile->out;
    const size_t stride = tile->out_stride;
    if (tile->start != ATTN__FRESH) {
        memset(lines, 0, tile->n_rows * 16 * sizeof(float));
        for (size_t row = 0; row < tile->n_rows; row++)
            memcpy(lines + row * 16, out + row * stride, n_part * sizeof(float));
    }
    if (tile->bias) {
        memcpy(bias, tile->bias, n_part * sizeof(float));
        tile->bias = bias;
    }
    tile->out = lines;
    tile->out_stride = 16;
    tiles->run(tile, 1, dtype);
    tile->out_stride = stride;
    for (size_t row = 0; row < tile->n_rows; row++)
        memcpy(out + row * stride, lines + row * 16, n_part * sizeof(float));
}

/* Multiplies one block of rows by a group of panels. The last panel may have fewer than 16 outputs.
 * Of several rows, panels that do not fill a tile are multiplied one by one. */
static void attn__multiply_group(const attn__tiling *tiling, attn__tile_job *tile, size_t n_panels,
                                 size_t n_out, attn_dtype dtype)
{
    const attn__tiles *const tiles = tiling->tiles + tile->n_rows - 1;
    const int has_single = tiles->cols == 1 || tile->n_rows == 1;
    const attn__tiles *const single = has_single ? tiles : tiling->tiles + tiling->n_rows - 1;
    const size_t n_whole = n_out < n_panels * 16 ? n_panels - 1 : n_panels;
    size_t n = has_single ? n_whole : n_whole - n_whole % tiles->cols;
    if (n > 0)
        tiles->run(tile, n, dtype);
    for (; n < n_whole; n++)
        single->run(tile, 1, dtype);
    if (n < n_panels)
        attn__partial_panel(single, tile, n_out - n * 16, dtype);
}

/* Multiplies one row by panels [panel0, panel1). They are divided into 4 or 8 equal strips
 * (`cols`), and a tile takes the next panel of each strip instead of 4 or 8 neighbours. Panels
 * often lie one behind the other, so each strip is one long run of memory. The processor's own
 * prefetching starts again at every run, so it works better with long ones. The sums of up to 32
 * tiles are kept and then copied to the output, because scattered writes cost a tenth of the speed.
 * Returns the number of panels that were multiplied; fewer than `cols` may remain. */
static size_t attn__multiply_strips(const attn__kernels *kernels, const attn__tiles *tiles,
                                    attn__tile_job *tile, const attn__matmul_job *job, size_t row,
                                    size_t panel0, size_t panel1)
{
    float sums[32][8 * 16];
    const size_t cols = tiles->cols, n_whole = panel1 * 16 > job->w.n_out ? panel1 - 1 : panel1;
    const size_t length = panel0 < n_whole ? (n_whole - panel0) / cols : 0; /* panels of a strip */
    float *const out = job->out + row * job->out_stride + panel0 * 16;
    size_t n;
    tile->n_rows = 1;
    tile->panel_stride = length * job->w.stride;
    for (size_t first = 0; first < length; first += n) {
        n = length - first < 32 ? length - first : 32;
        for (size_t i = 0; i < n; i++) {
            tile->line = (const unsigned char *)job->w.data + (panel0 + first + i) * job->w.stride;
            tile->ahead = tile->line; /* tiles of one row have prefetches of their own */
            tile->out = sums[i];
            tiles->run(tile, cols, job->w.dtype);
        }
        for (size_t strip = 0; strip < cols; strip++)
            for (size_t i = 0; i < n; i++)
                memcpy(out + (strip * length + first + i) * 16, sums[i] + strip * 16,
                       16 * sizeof(float));
    }
    if (job->bias)
        kernels->binary(ATTN__ADD, out, out, job->bias + panel0 * 16, length * cols * 16);
    tile->panel_stride = job->w.stride;
    return length * cols;
}

/* A part of a matmul: some rows in blocks of nearly equal size, over inputs [k, k + n_k). */
typedef struct attn__matmul_part {
    const attn__matmul_job *job;
    const attn__tiling *tiling;
    size_t row0, n_rows, n_blocks;
    size_t k, n_k;
    const float *in; /* the rows, packed block by block */
} attn__matmul_part;

static void attn__pack_part(const attn__matmul_part *p, float *pack)
{
    const attn__matmul_job *job = p->job;
    const attn_dtype dtype = job->w.dtype;
    const float *from =
        job->in + (ptrdiff_t)p->row0 * job->in_stride + (ptrdiff_t)p->k * job->in_step;
    for (size_t block = 0; block < p->n_blocks; block++) {
        const size_t n = p->n_rows / p->n_blocks + (block < p->n_rows % p->n_blocks);
        p->tiling->pack(pack, from, job->in_stride, job->in_step, n, p->n_k,
                        attn__weight_type_of(dtype)->zero);
        pack += n * attn__packed(attn__is_quantized(dtype), p->n_k);
        from += (ptrdiff_t)n * job->in_stride;
    }
}

/* Multiplies each block of rows of a part by a group of panels. A block prefetches `share` bytes of
 * the next group. */
static void attn__multiply_blocks(const attn__matmul_part *p, attn__tile_job *tile, size_t panel,
                                  size_t n_panels, size_t share)
{
    const attn__matmul_job *job = p->job;
    const attn_dtype dtype = job->w.dtype;
    const size_t packed = attn__packed(attn__is_quantized(dtype), p->n_k);
    const size_t bytes = attn__line_of(dtype, (p->n_k + 63) / 64 * 64); /* of a panel */
    const unsigned char *line =
        (const unsigned char *)job->w.data + panel * job->w.stride + attn__line_of(dtype, p->k);
    const unsigned char *next = line + n_panels * job->w.stride;
    size_t row = 0, fetched = 0; /* of the panel at `next` */
    for (size_t block = 0; block < p->n_blocks; block++) {
        tile->n_rows = p->n_rows / p->n_blocks + (block < p->n_rows % p->n_blocks);
        tile->in = p->in + row * packed;
        tile->line = line;
        tile->out = job->out + (p->row0 + row) * job->out_stride + panel * 16;
        tile->bias = p->k + p->n_k == job->w.n_in && job->bias ? job->bias + panel * 16 : NULL;
        tile->ahead = next + fetched;
        row += tile->n_rows;
        attn__multiply_group(p->tiling, tile, n_panels, job->w.n_out - panel * 16, dtype);
        for (fetched += share; fetched > bytes; next += job->w.stride)
            fetched -= bytes;
    }
}

/* Multiplies the rows of a part by panels [panel0, panel1), a group at a time. The lines of a group
 * are in cache after the first block of rows. */
static void attn__multiply_part(const attn__kernels *kernels, const attn__matmul_part *p,
                                size_t panel0, size_t panel1)
{
    const attn__matmul_job *job = p->job;
    const attn_dtype dtype = job->w.dtype;
    const int quantized = attn__is_quantized(dtype), is_alone = p->n_blocks == 1;
    const size_t rows = p->n_rows / p->n_blocks, cols = p->tiling->tiles[rows - 1].cols;
    const size_t group = quantized && is_alone ? ATTN__Q_GROUP(cols) : cols;
    const size_t bytes = attn__line_of(dtype, (p->n_k + 63) / 64 * 64); /* of a panel */
    attn__tile_job tile;
    size_t panel = panel0;
    memset(&tile, 0, sizeof tile);
    tile.in = p->in;
    tile.panel_stride = job->w.stride;
    tile.n_k = p->n_k;
    tile.out_stride = job->out_stride;
    tile.start = p->k > 0 ? ATTN__SUM : job->start;
    if (p->n_rows == 1 && ATTN__IN_TURN(cols) && p->n_k == job->w.n_in && job->start == ATTN__FRESH)
        panel +=
            attn__multiply_strips(kernels, p->tiling->tiles, &tile, job, p->row0, panel0, panel1);
    for (; panel < panel1; panel += group) {
        const size_t n_panels = panel1 - panel < group ? panel1 - panel : group;
        const size_t share = n_panels == group ? n_panels * bytes / p->n_blocks : 0;
        if (quantized)
            attn__plan_q_fetching(&tile, is_alone, n_panels, cols, dtype, share);
        else
            attn__plan_fetching(&tile, is_alone, rows, n_panels, dtype, share);
        attn__multiply_blocks(p, &tile, panel, n_panels, share);
    }
}

/* Multiplies rows [row0, row1) by panels [panel0, panel1): as many rows at a time as the kernels
 * take, over as many whole chains as `pack` has room for. Several blocks of q8 or q4 take 4 chains,
 * so that a group's lines stay in first-level cache. */
static void attn__matmul_panels(const attn__kernels *kernels, const attn__matmul_job *job,
                                size_t row0, size_t row1, size_t panel0, size_t panel1, float *pack)
{
    const int quantized = attn__is_quantized(job->w.dtype);
    const size_t n_in = job->w.n_in;
    attn__matmul_part p;
    p.job = job;
    p.tiling = kernels->tilings[quantized];
    for (p.row0 = row0; p.row0 < row1; p.row0 += p.n_rows) {
        const size_t most = p.tiling->n_rows * p.tiling->n_blocks;
        int is_packed; /* a single row of floats needs no packing */
        p.n_rows = row1 - p.row0 < most ? row1 - p.row0 : most;
        p.n_blocks = (p.n_rows + p.tiling->n_rows - 1) / p.tiling->n_rows;
        is_packed = p.n_rows == 1 && !quantized && job->in_step == 1;
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is a row */
        size_t most_k = attn__packed_k(quantized, ATTN__PACK / p.n_rows);
        if (quantized && p.n_blocks > 1 && most_k > 4 * ATTN__CHAIN)
            most_k = 4 * ATTN__CHAIN;
        p.k = 0;
        do { /* once if n_in is 0: the outputs are then the bias */
            p.n_k = n_in - p.k < most_k ? n_in - p.k : most_k;
            p.in = is_packed ? job->in + (ptrdiff_t)p.row0 * job->in_stride + p.k : pack;
            if (!is_packed && !(job->is_packed && p.n_rows == row1 - row0 && p.n_k == n_in))
                attn__pack_part(&p, pack);
            attn__multiply_part(kernels, &p, panel0, panel1);
            p.k += p.n_k;
        } while (p.k < n_in);
    }
}

/* Computes a matmul together with the other workers. Each has an area. Workers that take tasks when
 * they are free divide the areas into groups of panels. Tasks are small, because at the end all
 * wait for the last one. If an area has few groups and many rows, as in W_O and W_out of a long
 * prompt, each worker has two areas of half the rows. Both halves have the same panels. A half has
 * 63 rows or more, because each half reads all these panels. */
static void attn__shared_matmul(attn__worker *me, const attn__kernels *kernels,
                                attn__matmul_job job, float *pack)
{
    size_t n_areas = (size_t)me->count, packed = SIZE_MAX; /* the area whose rows are packed */
    size_t task, first, end;
    attn__area b = attn__area_at(n_areas - 1, n_areas, job.rows, job.w.n_out); /* the largest */
    size_t n = (b.col1 + 15) / 16 - b.col0 / 16;
    size_t length = me->is_dynamic ? attn__round_up(n / 16 + 1, 24) : n + 1; /* 24: whole tiles */
    n = (n + length - 1) / length;
    n_areas *= me->is_dynamic && n < 6 && b.row1 - b.row0 >= 128 ? 2 : 1;
    while (attn__next_task(me, n * n_areas, &task)) {
        job.is_packed = task / n == packed;
        packed = task / n;
        b = attn__area_at(packed, n_areas, job.rows, job.w.n_out);
        first = b.col0 / 16 + task % n * length;
        end = first + length < (b.col1 + 15) / 16 ? first + length : (b.col1 + 15) / 16;
        if (b.row0 < b.row1 && first < end)
            attn__matmul_panels(kernels, &job, b.row0, b.row1, first, end, pack);
    }
}

/* The number of keys that a query sees. */
static size_t attn__visible(const attn__head *h, size_t row)
{
    const size_t n = h->first + row + 1;
    return h->causal && n < h->keys.n_out ? n : h->keys.n_out;
}

/* scores [rows, keys] = q · kᵀ * scale + mask, and -inf for keys that a query does not see */
static void attn__head_scores(const attn__kernels *kernels, const attn__head *h, float *scores,
                              size_t stride, float *pack)
{
    const size_t n_keys = h->keys.n_out;
    attn__matmul_job job = attn__job(scores, stride, h->q, h->q_stride, h->keys, h->rows);
    job.in_step = h->q_step;
    attn__matmul_panels(kernels, &job, 0, h->rows, 0, (n_keys + 15) / 16, pack);
    for (size_t row = 0; row < h->rows; row++) {
        float *s = scores + row * stride;
        if (h->mask)
            kernels->scale_mask(s, s, h->scale, h->mask + row * h->mask_stride, n_keys);
        else
            kernels->scale(s, s, h->scale, n_keys);
        for (size_t key = attn__visible(h, row); key < n_keys; key++)
            s[key] = -INFINITY;
    }
}

/* z [rows, dv] = pattern · v. First come the keys that all rows see, then row by row the other keys
 * that this row sees, so that no row reads a value hidden from it. The last chain is summed in
 * last_chain [ATTN__QUERIES, dv], then added to the chains before it. All rows must end in the same
 * chain: attn__query_block sees to that. */
static void attn__head_weigh(const attn__kernels *kernels, const attn__head *h,
                             const float *pattern, size_t stride, float *last_chain, float *pack)
{
    const size_t n_panels = (h->values.n_out + 15) / 16, chain_stride = n_panels * 16;
    const size_t common = attn__visible(h, 0);
    const size_t before = common > 0 ? (common - 1) / ATTN__CHAIN * ATTN__CHAIN : 0;
    attn__matmul_job job = attn__job(h->z, h->z_stride, pattern, (ptrdiff_t)stride,
                                     attn__inputs(h->values, 0, before), h->rows);
    if (before > 0) {
        attn__matmul_panels(kernels, &job, 0, h->rows, 0, n_panels, pack);
        job.out = last_chain;
        job.out_stride = chain_stride;
    }
    job.in = pattern + before;
    job.w = attn__inputs(h->values, before, common - before);
    attn__matmul_panels(kernels, &job, 0, h->rows, 0, n_panels, pack);
    job.start = ATTN__RESUME;
    job.in = pattern + common;
    job.w = attn__inputs(h->values, common, 0);
    for (size_t row = 1; row < h->rows; row++) {
        job.w.n_in = attn__visible(h, row) - common;
        if (job.w.n_in > 0)
            attn__matmul_panels(kernels, &job, row, row + 1, 0, n_panels, pack);
    }
    if (before > 0)
        for (size_t row = 0; row < h->rows; row++)
            kernels->binary(ATTN__ADD, h->z + row * h->z_stride, h->z + row * h->z_stride,
                            last_chain + row * chain_stride, h->values.n_out);
}

/* >>threads (tests: threads) =============================================================
 * A whole forward pass runs inside one parallel region, because opening a region costs more than
 * many of the operations in it. Every worker runs the same code on its own share. They meet at this
 * file's own barriers. Only this section uses OpenMP. It must stay outside the kernel template: a
 * compiler may build the body of a parallel region without the template's instruction set.
 *
 * With ATTN_THREADS the workers are threads of this file instead: see attn__crew. Everything else
 * is the same.
 *
 * For users, beside THREADS in the manual:
 * - If ctx->n_threads is 0, small calls use one thread. Measuring costs 2 % of the time, or 10 % if
 *   other programs make threads late. On a busy machine one thread is often fastest.
 * - Between calls OpenMP's threads keep their cores busy: for some milliseconds with GCC's OpenMP,
 *   for 0.2 seconds with clang's. The environment variable OMP_WAIT_POLICY=passive prevents that;
 *   calls then start a little later. For threads that wait inside a call, see attn__wait_until.
 * - GCC's OpenMP ends the program if the system refuses to make a thread. So, with pthreads, the
 *   library first tries to make them, and uses fewer if the system refuses some. This can fail if
 *   another program takes the last thread at that moment, or if OMP_STACKSIZE makes stacks larger.
 *   Where threads or memory are that scarce, set ctx->n_threads to 1.
 * - fork() does not copy OpenMP's threads. If this library made threads, every call in the child
 *   runs on one thread (GCC and clang, with pthreads). If only your own parallel regions made
 *   threads, set ctx->n_threads to 1 in the child. Fork while no other thread is in a call.
 * - On Linux a thread that begins a pass on the processor of your thread moves to another one, by
 *   changing its affinity and changing it back.
 * - With ATTN_THREADS a workspace keeps its threads until it is freed, asleep from 4 milliseconds
 *   after a call on; operations of tier 1 make threads for the call, so only large ones do. If the
 *   system refuses threads, there are fewer. In the child of a fork, workspaces make new ones.
 *   They block the program's signals, but not those of faults (SIGSEGV and the like), and begin
 *   with the default floating-point environment.
 * - Under a filter of system calls (seccomp) threads need clone3 or clone, futex, mmap, mprotect,
 *   munmap, madvise, rseq, set_robust_list and exit. They use sched_yield, prctl, getcpu,
 *   sched_getaffinity, sched_setaffinity and rt_sigprocmask, which may fail with an error. */

#if defined(ATTN__TEAMS) && defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#elif defined(ATTN__CREWS) && defined(ATTN__PTHREADS)
#include <signal.h>
#include <time.h>
#include <unistd.h>
#if !defined(SIG_SETMASK) || !defined(_SC_NPROCESSORS_ONLN)
#error "ATTN_THREADS: include attn.h first, or compile with -D_DEFAULT_SOURCE -D_DARWIN_C_SOURCE"
#endif
#endif
#if defined(_OPENMP) || defined(ATTN__CREWS)
/* Only differences have a meaning. */
static double attn__seconds(void)
{
#if defined(_OPENMP)
    return omp_get_wtime();
#elif defined(_WIN32)
    LARGE_INTEGER now, per_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&per_second);
    return (double)now.QuadPart / (double)per_second.QuadPart;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}
#endif

enum {
    ATTN__MICROSECOND = 3000,
    ATTN__LEAST_SPIN = 1 << 13,                 /* 3 microseconds */
    ATTN__MOST_SPIN = 1 << 17,                  /* 44 microseconds */
    ATTN__MOST_WAIT = 4000 * ATTN__MICROSECOND, /* then a worker sleeps */
    ATTN__TURN = 1500 * ATTN__MICROSECOND       /* then a worker with tasks yields */
};

#ifdef ATTN__TEAMS
/* A clock of about 3000 ticks a microsecond, which takes a few nanoseconds to read. Only
 * differences have a meaning. On x86 it counts cycles. */
#if defined(__x86_64__) || defined(__i386__)
#define ATTN__CLOCK() ((uint64_t)__builtin_ia32_rdtsc())
#define ATTN__PAUSE() __builtin_ia32_pause()
#else
#define ATTN__CLOCK() ((uint64_t)(attn__seconds() * 3e9))
#define ATTN__PAUSE() ((void)0)
#endif
/* Sleeps until *count is `enough`. */
static void attn__sleep(attn__team *team, const int *count, int enough)
{
    ATTN__HOLD(team->condition);
    __atomic_fetch_add(&team->n_asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(count, __ATOMIC_SEQ_CST) < enough)
        ATTN__AWAIT(team->condition);
    __atomic_fetch_sub(&team->n_asleep, 1, __ATOMIC_SEQ_CST);
    ATTN__LET_GO(team->condition);
}

static void attn__count_up(attn__team *team, int *count)
{
    __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team->n_asleep, __ATOMIC_SEQ_CST) > 0) {
        ATTN__HOLD(team->condition);
        ATTN__SIGNAL(team->condition);
        ATTN__LET_GO(team->condition);
    }
}

/* Waits until *count is `enough`, in three stages. First the worker spins, for spin_time: 3 to 44
 * microseconds. Then it yields the core, because the worker that it waits for may need it. Linux
 * 6.6 and later may give a yielded core back at once, so after 4 milliseconds it sleeps. Sleeping
 * earlier costs a slow wake-up, and lets the system put two workers on one core.
 *
 * If the clock jumps, something else had the core. Then the next wait has a short spin_time, and
 * this one counts as a wait for a late worker. Otherwise spin_time doubles. */
static void attn__wait_until(attn__worker *me, const int *count, int enough)
{
    const uint64_t began = ATTN__CLOCK();
    uint64_t waited = 0, before;
    int jumped = 0;
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < enough) {
        before = waited;
        if (waited < me->spin_time)
            ATTN__PAUSE();
        else if (waited < ATTN__MOST_WAIT)
            ATTN__YIELD();
        else
            attn__sleep(me->team, count, enough);
        waited = ATTN__CLOCK() - began;
        if (waited > UINT64_MAX / 2) /* the clocks of two cores differ: it jumped back */
            waited = ATTN__MOST_WAIT;
        jumped |= waited - before > ATTN__LEAST_SPIN;
        if (waited - before > ATTN__TURN / 4)
            me->core_at = began + waited;
    }
    if (!jumped) {
        me->spin_time = me->spin_time < ATTN__MOST_SPIN ? 2 * me->spin_time : me->spin_time;
        return;
    }
    me->spin_time = ATTN__LEAST_SPIN;
    __atomic_fetch_add(&me->team->waited, (unsigned)(waited / ATTN__MICROSECOND), __ATOMIC_RELAXED);
}

/* Adds 1 to a count that goes from 0 to n. The last of n calls returns 1, and sets it to 0. */
static int attn__is_last(int *count, int n)
{
    if (__atomic_add_fetch(count, 1, __ATOMIC_ACQ_REL) < n)
        return 0;
    __atomic_store_n(count, 0, __ATOMIC_RELAXED);
    return 1;
}

/* Counts this worker's arrival at a barrier, and returns 1 if it is the last. A counter costs one
 * transfer of its line for each worker that arrives, and one more for each that reads the line
 * meanwhile. Two workers use the line that the other reads anyway. More have a line apart; above
 * eight, groups of four count first, and the last of each counts for all four. */
static int attn__arrives_last(const attn__worker *me)
{
    const int group = me->id / ATTN__GROUP, rest = me->count - group * ATTN__GROUP;
    attn__counts *const apart = me->team->apart;
    if (me->count == 2)
        return attn__is_last(&me->team->arrived, 2);
    if (me->count <= 2 * ATTN__GROUP)
        return attn__is_last(&apart[0].n_arrived, me->count);
    return attn__is_last(&apart[1 + group].n_arrived, rest < ATTN__GROUP ? rest : ATTN__GROUP) &&
           attn__is_last(&apart[0].n_arrived, (me->count + ATTN__GROUP - 1) / ATTN__GROUP);
}

/* Takes the next task of another worker, or of this one. Returns n if none is left. The upper half
 * of a count is the number of a loop, the lower half counts the tasks taken in that loop. The count
 * may name a later loop than a late worker's. Then other workers have taken all tasks of its loop.
 * */
static size_t attn__take(const attn__worker *me, int id, size_t n)
{
    size_t *const count = &me->team->apart[1 + id / ATTN__GROUP].taken[id % ATTN__GROUP];
    const size_t loop = me->loop * ATTN__MOST_TASKS;
    size_t old = __atomic_load_n(count, __ATOMIC_RELAXED), next, first, last;
    attn__part((size_t)id, (size_t)me->count, n, &first, &last);
    do {
        next = (old - loop) / ATTN__MOST_TASKS > ATTN__MOST_TASKS / 2 ? loop : old;
        if (next - loop >= last - first)
            return n;
    } while (
        !__atomic_compare_exchange_n(count, &old, next + 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return next - loop + first;
}

/* The next of n tasks that are taken by whoever is free: the worker's own, then those of the
 * others. The next barrier waits for tasks in place of workers, so a worker without a core delays
 * the others only if it holds a task. */
static int attn__next_shared_task(attn__worker *me, size_t n, size_t *task)
{
    if (me->has_task)
        attn__count_up(me->team, &me->team->n_done);
    /* It yields the core when it has had it for one to two milliseconds, about a time slice of
     * Linux: another program that wants the core usually gets it here. Otherwise the system would
     * take it during a task, and the other workers would wait for that task for some milliseconds.
     * It also yields after its first task in a pass, since it may have had the core for long. */
    if (me->has_task && ATTN__CLOCK() - me->core_at > ATTN__TURN) {
        ATTN__YIELD();
        me->core_at = ATTN__CLOCK();
    }
    me->has_task = 0;
    for (; me->asked < me->count; me->asked++) {
        *task = attn__take(me, (me->id + me->asked) % me->count, n);
        if (*task < n)
            return me->has_task = 1;
    }
    me->asked = 0;
    me->loop++;
    me->n_due += (int)n;
    me->is_due |= n > 0;
    return 0;
}
#endif

/* The next task of this worker's share of n. */
static int attn__next_own_task(attn__worker *me, size_t n, size_t *task)
{
    size_t first, last;
    attn__share(me, n, &first, &last);
    if (me->n_taken < last - first) {
        *task = first + me->n_taken++;
        return 1;
    }
    me->n_taken = 0;
    return 0;
}

/* The loop of a step is while (attn__next_task(me, n, &task)), for the tasks 0 to n - 1. */
static int attn__next_task(attn__worker *me, size_t n, size_t *task)
{
#ifdef ATTN__TEAMS
    if (me->is_dynamic)
        return attn__next_shared_task(me, n, task);
#endif
    return attn__next_own_task(me, n, task);
}

/* Waits until all workers have arrived, or until all tasks are done. The last worker to arrive
 * begins the next phase. */
ATTN__APART void attn__barrier(attn__worker *me)
{
#ifdef ATTN__TEAMS
    attn__team *team = me->team;
    int phase;
    if (me->count == 1)
        return;
    phase = __atomic_load_n(&team->phase, __ATOMIC_ACQUIRE);
    if (me->is_due)
        attn__wait_until(me, &team->n_done, me->n_due);
    else if (attn__arrives_last(me))
        attn__count_up(team, &team->phase);
    else
        attn__wait_until(me, &team->phase, phase + 1);
    me->is_due = 0;
#elif defined(_OPENMP)
    if (me->count == 1)
        return;
#pragma omp barrier
#else
    (void)me;
#endif
}

#if defined(_OPENMP) || defined(ATTN__CREWS)
/* Linux may let a thread that is new, or that slept, begin on the processor of the first worker,
 * which woke it. There they yield to each other, and may stay for 30 milliseconds. So the thread
 * leaves that processor; then it may run on any. (A C library that declares syscall() here defines
 * L_SET too.) */
static void attn__make_room(attn__team *team, int id)
{
#if defined(__linux__) && defined(L_SET)
    unsigned long any[128], others[128];
    unsigned at = 0, bits = 8 * sizeof any[0];
    long size = 0;
    syscall(SYS_getcpu, &at, NULL, NULL);
    if (id == 0)
        team->processor = at;
    else if (at == team->processor)
        size = syscall(SYS_sched_getaffinity, 0, sizeof any, any);
    if (size > (long)(at / 8)) {
        memcpy(others, any, sizeof any);
        others[at / bits] &= ~(1ul << at % bits);
        syscall(SYS_sched_setaffinity, 0, size, others);
        syscall(SYS_sched_setaffinity, 0, size, any);
    }
#endif
    (void)team, (void)id;
}

/* Worker `id` of a parallel region. At its end OpenMP waits by spinning for milliseconds, even if a
 * worker that has not arrived needs the core. So all workers meet at a barrier first. The first
 * worker, which continues after the region, then waits until the others have left. */
static void attn__work(attn__team *team, int id, int count, void (*body)(attn__worker *, void *),
                       void *arg)
{
    attn__worker me = ATTN_ZERO;
    me.team = team;
    me.id = id;
    me.count = count;
    me.spin_time = ATTN__LEAST_SPIN;
    if (id > 0)
        attn__make_room(team, id);
    body(&me, arg);
    attn__barrier(&me);
#ifdef ATTN__TEAMS
    if (id > 0)
        attn__count_up(team, &team->left);
    else
        attn__wait_until(&me, &team->left, count - 1);
#endif
}
#endif

#if defined(_OPENMP) && defined(ATTN__PTHREADS)
/* Is this process the child of one that had threads? The child lacks OpenMP's threads, and a
 * parallel region would wait for them. Only the parent can know this: handlers that run at a fork
 * ask it. They are registered when this library first makes threads. */
static int attn__is_forked, attn__has_threads;

static void attn__before_fork(void)
{
#if defined(__linux__)
    struct stat tasks; /* a directory's links: one for each directory in it, and 2 */
    attn__has_threads = stat("/proc/self/task", &tasks) != 0 || tasks.st_nlink != 3;
#else
    attn__has_threads = 1;
#endif
}

static void attn__after_fork(void)
{
    attn__is_forked |= attn__has_threads;
}

static void attn__watch_forks(void)
{
    pthread_atfork(attn__before_fork, NULL, attn__after_fork);
}

static void *attn__try_thread(void *gate)
{
    pthread_mutex_lock((pthread_mutex_t *)gate);
    pthread_mutex_unlock((pthread_mutex_t *)gate);
    return NULL;
}

/* How many of n threads can be made at the same time. They end before this returns. */
static int attn__try_threads(int n)
{
    pthread_t made[ATTN__MAX_THREADS];
    pthread_mutex_t gate;
    int count = 0;
    if (pthread_mutex_init(&gate, NULL))
        return 0;
    pthread_mutex_lock(&gate);
    while (count < n && pthread_create(&made[count], NULL, attn__try_thread, &gate) == 0)
        count++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < count; i++)
        pthread_join(made[i], NULL);
    pthread_mutex_destroy(&gate);
    return count;
}

/* Returns how many threads OpenMP can have, 1 to n_threads. In the child of a fork: 1. If the
 * system refuses some threads, OpenMP gets half of those it granted: threads that have just ended
 * still count against a limit. */
static int attn__granted(int n_threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static __thread int n_last = 1; /* of the latest call; OpenMP ends other threads */
    int granted;
    pthread_once(&once, attn__watch_forks);
    if (attn__is_forked)
        return 1;
    if (n_threads > n_last) {
        granted = attn__try_threads(n_threads - n_last);
        n_threads = granted < n_threads - n_last ? n_last + granted / 2 : n_threads;
    }
    n_last = n_threads;
    return n_threads;
}
#else
#define attn__granted(n_threads) (n_threads)
#endif

#if defined(ATTN__CREWS) && defined(_WIN32)
#define ATTN__THREAD_MAIN    static DWORD WINAPI
#define ATTN__PROCESS()      ((long)GetCurrentProcessId())
#define ATTN__START(m, main) (((m)->thread = CreateThread(NULL, 0, main, m, 0, NULL)) != NULL)
#define ATTN__JOIN(m)        (WaitForSingleObject((m)->thread, INFINITE), CloseHandle((m)->thread))
#elif defined(ATTN__CREWS)
#define ATTN__THREAD_MAIN    static void *
#define ATTN__PROCESS()      attn__process_now()
#define ATTN__START(m, main) attn__begin_thread(m, main)
#define ATTN__JOIN(m)        pthread_join((m)->thread, NULL)

/* The process: 1 and how many forks led to it. Its number may be its parent's, in another namespace
 * or used again. */
static long attn__forks;

static void attn__count_fork(void)
{
    attn__forks++;
}

static void attn__watch_forks(void)
{
    pthread_atfork(NULL, NULL, attn__count_fork);
}

static long attn__process_now(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, attn__watch_forks);
    return 1 + attn__forks;
}

/* Signals are for the threads of the program, so this file's block them, but for those of a fault:
 * their handler must run in the thread that made it. */
static int attn__begin_thread(attn__member *m, void *(*thread_main)(void *))
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(&m->thread, NULL, thread_main, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !refused;
}
#endif

#ifdef ATTN__CREWS
ATTN__THREAD_MAIN attn__serve(void *member)
{
    attn__member *m = (attn__member *)member;
    attn__crew *const crew = m->crew;
    attn__worker idle = ATTN_ZERO;
    idle.spin_time = ATTN__LEAST_SPIN;
    idle.team = &m->idle;
    fesetenv(FE_DFL_ENV); /* not that of the thread which made this one */
#if defined(__linux__)
    prctl(PR_SET_NAME, "attn");
#elif defined(__APPLE__)
    pthread_setname_np("attn");
#endif
    for (;;) {
        attn__wait_until(&idle, &m->called, 1);
        __atomic_store_n(&m->called, 0, __ATOMIC_RELAXED);
        if (crew->ends)
            return 0;
        attn__work(&crew->team, m->id, crew->count, crew->body, crew->arg);
    }
}

/* Makes threads for a pass of n workers, and returns how many workers there are. In the child of a
 * fork the crew begins anew: fork() copies no threads. */
static int attn__assemble(attn__crew *crew, int n)
{
    const attn__condition condition = {ATTN__CONDITION};
    if (crew->process != ATTN__PROCESS()) {
        memset(crew, 0, sizeof *crew);
        crew->process = ATTN__PROCESS();
        crew->condition = condition;
        crew->team.condition = &crew->condition;
        crew->team.apart = crew->apart;
    }
    while (crew->n_made + 1 < n && !crew->is_short) {
        attn__member *m = &crew->members[crew->n_made];
        m->crew = crew;
        m->id = crew->n_made + 1;
        m->condition = condition;
        m->idle.condition = &m->condition;
        crew->is_short = !ATTN__START(m, attn__serve);
        crew->n_made += !crew->is_short;
    }
    return n < crew->n_made + 1 ? n : crew->n_made + 1;
}

static void attn__rouse(attn__crew *crew, int n_threads)
{
    for (int i = 0; i < n_threads; i++)
        attn__count_up(&crew->members[i].idle, &crew->members[i].called);
}

/* Ends the threads, if this process made them. */
static void attn__dismiss(attn__crew *crew)
{
    if (crew->process != ATTN__PROCESS())
        return;
    crew->ends = 1;
    attn__rouse(crew, crew->n_made);
    while (crew->n_made > 0) {
        attn__member *m = &crew->members[--crew->n_made];
        ATTN__JOIN(m);
        ATTN__UNMAKE(&m->condition);
    }
    ATTN__UNMAKE(&crew->condition);
}
#endif

#ifdef ATTN__CREWS
static double attn__run_crew(attn__crew *c, int n_threads, void (*body)(attn__worker *, void *),
                             void *arg)
{
    c->count = attn__assemble(c, n_threads);
    c->team.arrived = c->team.phase = c->team.n_done = c->team.left = 0;
    c->team.waited = 0;
    memset(c->apart, 0,
           (size_t)((c->count + ATTN__GROUP - 1) / ATTN__GROUP + 1) * sizeof c->apart[0]);
    c->body = body;
    c->arg = arg;
    attn__make_room(&c->team, 0);
    attn__rouse(c, c->count - 1);
    attn__work(&c->team, 0, c->count, body, arg);
    return c->team.waited * 1e-6;
}

/* With threads that end with the call. A crew takes 50 KB of the stack. */
ATTN__APART double attn__run_once(int n_threads, void (*body)(attn__worker *, void *), void *arg)
{
    attn__crew own;
    own.process = 0;
    double waited = attn__run_crew(&own, n_threads, body, arg);
    attn__dismiss(&own);
    return waited;
}
#endif

/* Runs body(worker, arg) on up to n_threads workers and waits for all of them. Returns the seconds
 * that they waited for each other, in all. */
static double attn__parallel(attn__crew *crew, int n_threads, void (*body)(attn__worker *, void *),
                             void *arg)
{
    attn__team team = ATTN_ZERO;
    attn__worker me = ATTN_ZERO;
#ifdef ATTN__CREWS
    if (n_threads > 1)
        return crew ? attn__run_crew(crew, n_threads, body, arg)
                    : attn__run_once(n_threads, body, arg);
#elif defined(_OPENMP)
    n_threads = n_threads > 1 ? attn__granted(n_threads) : 1;
    if (n_threads > 1) {
#ifdef ATTN__TEAMS
        attn__counts apart[1 + ATTN__MAX_THREADS / ATTN__GROUP];
        attn__condition condition = {ATTN__CONDITION};
        memset(apart, 0, sizeof apart);
        team.condition = &condition;
        team.apart = apart;
        attn__make_room(&team, 0);
#endif
#pragma omp parallel num_threads(n_threads)
        attn__work(&team, omp_get_thread_num(), omp_get_num_threads(), body, arg);
#ifdef ATTN__TEAMS
        ATTN__UNMAKE(&condition);
#endif
        return team.waited * 1e-6;
    }
#endif
    (void)crew;
    (void)n_threads;
    me.team = &team;
    me.count = 1;
    body(&me, arg);
    return 0;
}

typedef struct attn__loop {
    attn_task_fn task_fn;
    void *user;
    size_t n;
} attn__loop;

static void attn__loop_body(attn__worker *me, void *arg)
{
    const attn__loop *loop = (const attn__loop *)arg;
    size_t i;
    me->is_dynamic = me->team->apart != NULL && loop->n < ATTN__MOST_TASKS;
    while (attn__next_task(me, loop->n, &i))
        loop->task_fn(i, loop->user);
}

ATTN__COLD attn_status attn_parallel_for(attn_ctx *ctx, size_t n, attn_task_fn task_fn, void *user)
{
    const int most = attn_max_threads(ctx);
    attn__loop loop = {task_fn, user, n};
    ATTN__TRY(attn__need_given(ctx, "attn_parallel_for", "task_fn", task_fn ? &loop : NULL));
    attn__parallel(NULL, n < (size_t)most ? (int)n : most, attn__loop_body, &loop);
    return ATTN_OK;
}

/* ---- how many threads ---- */

#if defined(ATTN__TEAMS) && defined(__linux__)
/* The processors that a control group may use; 0: any number. Version 2 has a file with a quota and
 * a period in microseconds: "150000 100000" is one and a half processors, "max" is any number.
 * Version 1 has a file for each. */
static double attn__group_limit(const char *root, const char *group)
{
    static const char *const files[] = {"cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"};
    char path[1024], text[3][64], *end;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/%s", root, group, files[i]);
        FILE *f = fopen(path, "r");
        if (!f || !fgets(text[i], sizeof text[i], f))
            text[i][0] = 0;
        if (f)
            fclose(f);
    }
    double quota = strtod(text[text[0][0] ? 0 : 1], &end);
    double period = strtod(text[0][0] ? end : text[2], NULL);
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* How many processors this process may use by its control groups and the groups around them,
 * rounded up. `root` is put before each path; tests pass a directory. */
static int attn__quota(const char *root)
{
    char line[512], path[512], *group, *end;
    double most = ATTN__MAX_THREADS, limit;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "r");
    if (!f)
        return ATTN__MAX_THREADS;
    while (fgets(line, sizeof line, f)) { /* "0::/a/b", or of version 1 "4:cpu,cpuacct:/a/b" */
        line[strcspn(line, "\n")] = 0;
        if (!(group = strchr(line, ':')) || !(end = strchr(group + 1, ':')) || end[1] != '/' ||
            (end > group + 1 && !strstr(group, "cpu")))
            continue;
        *group = '/';
        memmove(end, end + 1, strlen(end));
        while (end) { /* "/cpu,cpuacct/a/b", "/cpu,cpuacct/a", "/cpu,cpuacct", "" */
            limit = attn__group_limit(root, group);
            most = limit > 0 && limit < most ? limit : most;
            if ((end = strrchr(group, '/')) != NULL)
                *end = 0;
        }
    }
    fclose(f);
    return most > 1 ? (int)ceil(most) : 1;
}

/* How many cores n processors are: with hyper-threads, a core is two processors. */
static int attn__cores(const char *root, int n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/smt/active", root);
    FILE *f = fopen(path, "r");
    n = f && fgetc(f) == '1' ? (n + 1) / 2 : n;
    if (f)
        fclose(f);
    return n;
}
#endif

#if defined(_OPENMP) || defined(ATTN__CREWS)
static int attn__at_most(int n, int limit) /* 0: no limit is known */
{
    return limit > 0 && limit < n ? limit : n;
}

#ifdef ATTN__CREWS
/* The processors that this process may use. 0: not known. */
static int attn__allowed(void)
{
    int allowed = 0;
#ifdef _WIN32
    DWORD_PTR ours, all;
    if (GetProcessAffinityMask(GetCurrentProcess(), &ours, &all))
        allowed = __builtin_popcountll(ours);
    return attn__at_most((int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS), allowed);
#else
#ifdef __linux__ /* where sysconf would open a file */
    unsigned long mask[128];
    long i, size = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    for (i = 0; i < size / (long)sizeof mask[0]; i++)
        allowed += __builtin_popcountl(mask[i]);
#endif
    return allowed > 0 ? allowed : (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
}
#endif

/* The processors that this process may use, but not more than OMP_NUM_THREADS, which other
 * libraries obey too. In a container OpenMP may count all processors of the machine, so the quota
 * is read, once. */
static int attn__offered(void)
{
    static int cached; /* 0 before the first call */
    int n = ATTN__LOAD(&cached);
    if (n == 0) {
        n = ATTN__MAX_THREADS;
#ifndef _OPENMP
        const char *given = getenv("OMP_NUM_THREADS");
        n = attn__at_most(n, given ? atoi(given) : 0);
#endif
#if defined(ATTN__TEAMS) && defined(__linux__)
        n = attn__at_most(n, attn__quota(""));
#endif
        ATTN__STORE(&cached, n);
    }
#ifdef _OPENMP
    n = attn__at_most(n, attn__at_most(omp_get_max_threads(), omp_get_num_procs()));
#else
    n = attn__at_most(n, attn__allowed());
#endif
    return n;
}
#endif

int attn_max_threads(const attn_ctx *ctx)
{
#if defined(_OPENMP) || defined(ATTN__CREWS)
    const int n = ctx && ctx->n_threads > 0 ? ctx->n_threads : attn__offered();
    return n < 1 ? 1 : n > ATTN__MAX_THREADS ? ATTN__MAX_THREADS : n;
#else
    (void)ctx;
    return 1;
#endif
}

/* Most seconds between two trials. (A pass seems to take hours if the machine was suspended.) */
#define ATTN__LONGEST_PAUSE 600

#if defined(_OPENMP) || defined(ATTN__CREWS)
/* Begins a trial of n threads. With n = 0 it ends the trial, and begins a new window. */
static void attn__tuner_begin(attn__tuner *t, int n)
{
    t->trial_threads = n;
    t->n_passes = 0;
    t->work = t->seconds = t->waited = t->cost = 0;
}

/* Begins a trial of half or twice as many threads. */
static void attn__tuner_try(attn__tuner *t, int most)
{
    const int more = t->n_threads * 2 < most ? t->n_threads * 2 : most;
    if (t->n_threads == 1 || t->n_threads == most)
        t->fewer = t->n_threads > 1;
    attn__tuner_begin(t, t->fewer ? (t->n_threads + 1) / 2 : more);
}

/* The speed is measured over two windows, because all passes of one may have been interrupted. */
static void attn__tuner_keep_window(attn__tuner *t)
{
    t->last_work = t->work;
    t->last_seconds = t->seconds;
    t->last_waited = t->waited;
}

/* Did workers wait for more than a quarter of the time of this window or trial? With with_last: of
 * this window and the last one? */
static int attn__tuner_is_late(const attn__tuner *t, int with_last)
{
    return 4 * (t->waited + with_last * t->last_waited) > t->seconds + with_last * t->last_seconds;
}

/* The trial was slower. If its workers were late although they were fewer, a trial of still fewer
 * follows at once. */
static void attn__tuner_failed(attn__tuner *t)
{
    if (t->fewer && t->trial_threads > 1 && attn__tuner_is_late(t, 0)) {
        const double cost = t->cost;
        attn__tuner_begin(t, (t->trial_threads + 1) / 2);
        t->cost = cost;
        return;
    }
    t->retry_pause = t->retry_pause > 0 ? fmin(2 * t->retry_pause, 4) : 0.2;
    t->next_trial_in = fmax(fmin(50 * t->cost, ATTN__LONGEST_PAUSE), t->retry_pause);
    t->late_trial_in = t->next_trial_in / 5;
    t->fewer = !t->fewer;
    attn__tuner_begin(t, 0);
}

/* The trial was faster, so its number of threads becomes the number. The next trial follows at
 * once, in the same direction. If there is none (1 thread, or `most`), a trial in the other
 * direction follows after a pause. */
static void attn__tuner_won(attn__tuner *t, int most)
{
    const double old_seconds = t->work / t->speed / (t->n_passes - 1); /* of a pass */
    t->n_threads = t->trial_threads;
    t->speed = t->work / t->seconds;
    attn__tuner_keep_window(t);
    t->retry_pause = 0;
    t->next_trial_in = t->n_threads == (t->fewer ? 1 : most)
                           ? fmax(fmin(50 * old_seconds, ATTN__LONGEST_PAUSE), 0.2)
                           : 0;
    attn__tuner_begin(t, 0);
}

/* A window of passes on n_threads threads is full. */
static void attn__tuner_end_window(attn__tuner *t)
{
    if (t->speed <= 0) /* the first window: a trial may cost two passes */
        t->next_trial_in = t->n_threads > 1
                               ? fmin(100 * t->seconds / (t->n_passes - 1), ATTN__LONGEST_PAUSE)
                               : 0.1;
    if (t->late_trial_in <= 0 && attn__tuner_is_late(t, 1)) {
        t->fewer = 1;
        t->next_trial_in = 0;
    }
    t->speed = (t->last_work + t->work) / (t->last_seconds + t->seconds);
    attn__tuner_keep_window(t);
    attn__tuner_begin(t, 0);
    t->n_passes = 1;
}

/* The number of threads for the next pass: at first `start`, never more than `most`. */
static int attn__tuner_next(attn__tuner *t, int start, int most)
{
    if (t->n_threads == 0)
        t->n_threads = start;
    if (t->n_threads > most || t->trial_threads > most) {
        t->n_threads = t->n_threads < most ? t->n_threads : most;
        attn__tuner_begin(t, 0);
    }
    return t->trial_threads ? t->trial_threads : t->n_threads;
}

/* Learns from a pass. The first one after a change does not count, because it starts threads or
 * reads the weights for the first time; but if it is very slow, the trial has failed. The system
 * may delay a pass by 10 milliseconds whatever the number of threads. So a window or a trial has at
 * least 20 milliseconds, which are several of the system's time slices, and at least two passes
 * that count. */
static void attn__tuner_note(attn__tuner *t, int most, double work, double seconds, double waited)
{
    const double usual = t->trial_threads ? work / t->speed : 0;
    t->cost += seconds - usual;
    t->next_trial_in -= seconds;
    t->late_trial_in -= seconds;
    if (t->n_passes++ > 0) {
        t->work += work;
        t->seconds += seconds;
        t->waited += waited;
    }
    int enough = t->n_passes > 2 && t->seconds >= 0.02;
    if (!t->trial_threads) {
        if (enough)
            attn__tuner_end_window(t);
        if (t->next_trial_in <= 0 && t->speed > 0)
            attn__tuner_try(t, most);
    } else if (seconds > 5 * usual + 0.01 ||
               t->seconds * t->speed > (enough ? 0.95 : 1.5) * t->work) {
        attn__tuner_failed(t);
    } else if (enough) {
        attn__tuner_won(t, most);
    }
}

/* Multiply-adds of about a millisecond. Starting a thread takes that long, or several times as long
 * if the new thread waits for the core of the thread that starts it. */
#define ATTN__WORTH_A_THREAD 3e7

/* The number of threads for a first pass of `work` multiply-adds and n_barriers barriers: at most
 * one for each core, and so few that each has at least 280,000 multiply-adds between two barriers.
 * Small passes use one. (With 140,000, a token of GPT-2 124M would begin on 16 threads; on 16
 * virtual cores those took 1.8 times as long as 8 when a pass had 138 barriers in place of 62.) */
static int attn__first_guess(int most, double work, int n_barriers)
{
    const double share = work < ATTN__WORTH_A_THREAD ? 0 : work / n_barriers / 280000;
#if defined(ATTN__TEAMS) && defined(__linux__)
    most = attn__cores("", most);
#endif
    return share + 1 < most ? (int)share + 1 : most;
}
#endif

/* attn__parallel for `work` multiply-adds and n_barriers barriers, on the number of threads that
 * the tuner for this size of pass has found. If the caller has given the number `most`, the first
 * pass uses all of them. */
static void attn__parallel_tuned(attn__tuners *tuners, int given, int most, double work,
                                 int n_barriers, void (*body)(attn__worker *, void *), void *arg)
{
#if defined(_OPENMP) || defined(ATTN__CREWS)
    int size;
    frexp(work, &size);
    if (most > 1 && (given || size > 18)) {
        const int i = size < 20                      ? 0
                      : size - 19 < ATTN__PASS_SIZES ? size - 19
                                                     : ATTN__PASS_SIZES - 1;
        attn__tuner *t = &tuners->of_size[i];
        const double began = attn__seconds();
        const int start = given || t->n_threads ? most : attn__first_guess(most, work, n_barriers);
        const int n = attn__tuner_next(t, start, most);
        const double waited = attn__parallel(&tuners->crew, n, body, arg) / (n > 1 ? n - 1 : 1);
        attn__tuner_note(t, most, work, attn__seconds() - began, waited);
        return;
    }
    most = 1;
#endif
    (void)given;
    (void)work;
    (void)n_barriers;
    attn__parallel(&tuners->crew, most, body, arg);
}

/* =================================================================================================
 * RECORDS, EDITS AND READING are built on the engine above, which never needs them.
 * ===============================================================================================*/

ATTN__SMALL

/* >>record (tests: record) ======================================================================
 * A record is a watcher that copies rows into the caller's memory. Each activation has an array
 * there: [room, ..], or [H, room, first + room] for scores and patterns. So new rows are added
 * without moving the earlier ones. All workers copy, each its share. */

/* An activation, or an edit's value, as [positions, heads, numbers]. A step of 0 repeats. */
typedef struct attn__view3 {
    size_t n[3];
    ptrdiff_t step[3];
} attn__view3;

/* The axes of a tensor of 1 to 3 dimensions. A missing leading dimension is 1. If one head is
 * edited, two dimensions are positions and numbers. */
static ATTN__COMPACT attn__view3 attn__axes_of(attn_tensor x, int point, int one_head)
{
    static const int dims[5][3] = {{-1, -1, 0}, /* [numbers]; -1: missing */
                                   {0, -1, 1},  /* [positions, numbers] */
                                   {-1, 0, 1},  /* [heads, numbers] */
                                   {0, 1, 2},   /* [positions, heads, numbers] */
                                   {1, 0, 2}};  /* [heads, positions, keys] */
    const int over_keys = attn__is_over_keys(point), has_heads = attn__has_heads(point);
    const int *dim = x.ndim == 1   ? dims[0]
                     : x.ndim == 2 ? dims[has_heads && !over_keys && !one_head ? 2 : 1]
                                   : dims[over_keys ? 4 : 3];
    attn__view3 axes;
    for (int i = 0; i < 3; i++) {
        axes.n[i] = dim[i] < 0 ? 1 : x.shape[dim[i]];
        axes.step[i] = dim[i] < 0 || axes.n[i] == 1 ? 0 : x.stride[dim[i]];
    }
    return axes;
}

/* One activation of a record. */
typedef struct attn__slot {
    attn__hook_name name;
    int point;
    size_t layer;
    size_t n_heads, width; /* of a position; n_heads is 1 if the activation has no heads. The width
                            * of scores and patterns is that of all keys in the record */
    float *data;
    size_t n_written; /* positions with numbers, from the record's first position on */
    size_t n;         /* those that the session has too: fewer after a truncation */
} attn__slot;

typedef struct attn__record_watcher {
    attn__watcher base;
    attn_record *record;
} attn__record_watcher;

struct attn_record {
    attn_model *model;
    attn__watcher *watcher; /* NULL once it is removed or its session is freed */
    int is_freed;           /* 1: the end of its watcher frees the record */
    size_t first, room;     /* the first position, and the number of positions that fit */
    size_t n_slots;
    attn__slot *slots;
    uint32_t *slot_of; /* [1 + n_layer, ATTN__N_POINTS]: 1 + the index of the slot, or 0 */
    float *own;        /* the memory of the numbers if it is not the caller's */
};

/* Sets the n_heads and width of an activation. Returns the bytes of its numbers; 0 if a size_t
 * cannot count them. */
static size_t attn__slot_bytes(const attn_record *r, int point, attn__slot *slot)
{
    size_t size;
    slot->width = attn__floats_at(&r->model->config, point, &slot->n_heads);
    if (attn__is_over_keys(point))
        slot->width = r->first + r->room;                       /* at most n_ctx */
    if (attn__mul_overflows(slot->width, slot->n_heads, &size)) /* cover: 32-bit */
        return 0;
    if (attn__mul_overflows(size, r->room, &size) ||
        attn__mul_overflows(size, sizeof(float), &size))
        return 0;
    return size;
}

/* Counts the activations in points [1 + n_layer]. If there is data, divides it among their slots,
 * in the order of attn_record_name. Returns their bytes; 0 if a size_t cannot count them. */
static ATTN__COMPACT size_t attn__place_slots(attn_record *r, const uint32_t *points, float *data)
{
    size_t bytes = 0;
    r->n_slots = 0;
    for (size_t layer = ATTN_NO_LAYER; layer + 1 <= r->model->config.n_layer; layer++)
        for (int point = 0; point < ATTN__N_POINTS; point++)
            if (points[1 + layer] & ATTN__POINT(point)) {
                attn__slot slot = ATTN_ZERO;
                const size_t one = attn__slot_bytes(r, point, &slot);
                if (one == 0 || bytes > SIZE_MAX - one)
                    return 0;
                r->n_slots++;
                if (data) {
                    slot.name = attn__name_of(point, layer);
                    slot.point = point;
                    slot.layer = layer;
                    slot.data = data + bytes / sizeof(float);
                    r->slots[r->n_slots - 1] = slot;
                    r->slot_of[(1 + layer) * ATTN__N_POINTS + (size_t)point] = (uint32_t)r->n_slots;
                }
                bytes += one;
            }
    return bytes;
}

/* *plan = the description with its defaults filled in. */
static attn_status attn__record_plan(attn_ctx *ctx, const char *what, const attn_model *model,
                                     const attn_record_desc *desc, attn_record_desc *plan)
{
    static const char *const everything[] = {"*"};
    memset(plan, 0, sizeof *plan);
    ATTN__TRY(attn__need_given(ctx, what, "model or session", model));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_record_desc, desc));
    if (desc)
        *plan = *desc;
    size_t n_ctx = model->config.n_ctx;
    if (plan->n_names == 0) {
        plan->names = everything;
        plan->n_names = 1;
    }
    for (size_t i = 0; i < plan->n_names; i++)
        ATTN__REFUSE_IF(ctx, !plan->names || !plan->names[i], ATTN_E_ARGUMENT,
                        "%s: name %zu is missing", what, i);
    ATTN__REFUSE_IF(ctx, plan->first >= n_ctx || plan->n_positions > n_ctx - plan->first,
                    ATTN_E_ARGUMENT, "%s: %zu positions from %zu on; the model's n_ctx is %zu",
                    what, plan->n_positions, plan->first, n_ctx);
    if (plan->n_positions == 0)
        plan->n_positions = n_ctx - plan->first;
    return ATTN_OK;
}

ATTN__COLD attn_status attn_record_size(attn_ctx *ctx, size_t *bytes, const attn_model *model,
                                        const attn_record_desc *desc)
{
    attn_record_desc plan;
    attn_record r = ATTN_ZERO;
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__need_given(ctx, "attn_record_size", "place for the size", bytes));
    ATTN__TRY(attn__record_plan(ctx, "attn_record_size", model, desc, &plan));
    uint32_t *points = ATTN__NEW(ctx, uint32_t, 1 + model->config.n_layer, "a list of names");
    ATTN__TRY_MEMORY(points);
    for (size_t i = 0; i < plan.n_names && status == ATTN_OK; i++)
        if (attn__match_all(&model->config, plan.names[i], points) == 0)
            status = attn__no_such_name(ctx, "attn_record_size", &model->config, plan.names[i]);
    if (status == ATTN_OK) {
        r.model = (attn_model *)(uintptr_t)model;
        r.first = plan.first;
        r.room = plan.n_positions;
        *bytes = attn__place_slots(&r, points, NULL);
        if (*bytes == 0)
            status =
                attn_fail(ctx, ATTN_E_MEMORY,
                          "attn_record_size: %zu positions do not fit in memory", plan.n_positions);
    }
    attn_free(points);
    return status;
}

/* How many positions of a record are before this position of the session. */
static size_t attn__recorded_before(const attn_record *r, size_t position)
{
    return position > r->first ? position - r->first : 0;
}

static attn_record *attn__record_of(const attn__watcher *w)
{
    return ((const attn__record_watcher *)(const void *)w)->record;
}

/* Does a feed of this span compute the slot's activation? */
static int attn__is_made(const attn_record *r, const attn__slot *slot, const attn__span *span)
{
    if (slot->layer != ATTN_NO_LAYER)
        return slot->layer >= span->first_layer && slot->layer < span->end_layer;
    return slot->point < ATTN__POINT_LN_FINAL_SCALE ? span->embedded
                                                    : span->end_layer == r->model->config.n_layer;
}

/* Is there room for the rows of a feed, and no gap before them? */
static ATTN__COMPACT attn_status attn__record_check(attn_ctx *ctx, const attn__watcher *w,
                                                    const attn__span *span)
{
    const attn_record *r = attn__record_of(w);
    const size_t before = attn__recorded_before(r, span->position);
    const size_t after = attn__recorded_before(r, span->position + span->n_tokens);
    if (after > r->room) {
        attn_record longer = *r;
        longer.room = after;
        return attn_fail(ctx, ATTN_E_SPACE,
                         "the record has room for %zu positions from %zu on; to go on to "
                         "position %zu it needs %zu bytes (after attn_record_free the session "
                         "goes on without it)",
                         r->room, r->first, span->position + span->n_tokens - 1,
                         attn__place_slots(&longer, w->points, NULL));
    }
    for (size_t i = 0; i < r->n_slots; i++)
        ATTN__REFUSE_IF(ctx, attn__is_made(r, &r->slots[i], span) && r->slots[i].n_written < before,
                        ATTN_E_ARGUMENT,
                        "the record has %zu positions of %s, so position %zu would leave a "
                        "gap: attn_session_truncate to there, and feed on",
                        r->slots[i].n_written, r->slots[i].name.text, before);
    return ATTN_OK;
}

/* Before a feed: forgets the rows that it will overwrite, and the same rows of later layers. */
static ATTN__COMPACT void attn__record_begin(attn__watcher *w, const attn__span *span)
{
    attn_record *r = attn__record_of(w);
    const size_t before = attn__recorded_before(r, span->position);
    for (size_t i = 0; i < r->n_slots; i++) {
        attn__slot *slot = &r->slots[i];
        const int below = slot->layer != ATTN_NO_LAYER
                              ? slot->layer < span->first_layer
                              : slot->point < ATTN__POINT_LN_FINAL_SCALE && span->first_layer > 0;
        slot->n_written = below || slot->n_written < before ? slot->n_written : before;
        slot->n = slot->n < slot->n_written ? slot->n : slot->n_written;
    }
}

/* After a feed: counts the new rows, and the rows of earlier layers that were written before. */
static ATTN__COMPACT void attn__record_end(attn__watcher *w, const attn__span *span)
{
    attn_record *r = attn__record_of(w);
    const size_t after = attn__recorded_before(r, span->position + span->n_tokens);
    for (size_t i = 0; i < r->n_slots; i++) {
        attn__slot *slot = &r->slots[i];
        if (attn__is_made(r, slot, span))
            slot->n_written = after;
        slot->n = slot->n_written < after ? slot->n_written : after;
    }
}

static void attn__record_truncate(attn__watcher *w, size_t length)
{
    attn_record *r = attn__record_of(w);
    const size_t left = attn__recorded_before(r, length);
    for (size_t i = 0; i < r->n_slots; i++)
        r->slots[i].n = r->slots[i].n < left ? r->slots[i].n : left;
}

/* Copies a worker's share of the rows. Later keys are masked in each row of scores or patterns, so
 * that the record does not depend on how the text was cut into feeds. */
static int attn__record_rows(const attn__worker *me, attn__watcher *w, const attn__shown *shown)
{
    const attn_record *r = attn__record_of(w);
    const size_t index = (1 + shown->layer) * ATTN__N_POINTS + (size_t)shown->point;
    const attn__slot *slot = &r->slots[r->slot_of[index] - 1];
    const attn__view3 view = attn__axes_of(shown->value, shown->point, 0);
    const int over_keys = attn__is_over_keys(shown->point);
    const float masked = shown->point == ATTN__POINT_SCORES ? -INFINITY : 0;
    size_t i, last;
    attn__share(me, view.n[0] * view.n[1], &i, &last);
    for (; i < last; i++) {
        const size_t row = i / view.n[1], head = i % view.n[1], position = shown->first + row;
        const size_t at = position - r->first, n = over_keys ? position + 1 : slot->width;
        const float *from = (const float *)shown->value.data + (ptrdiff_t)row * view.step[0] +
                            (ptrdiff_t)head * view.step[1];
        float *to = slot->data;
        if (position < r->first)
            continue;
        to += (over_keys ? head * r->room + at : at * slot->n_heads + head) * slot->width;
        memcpy(to, from, n * sizeof(float));
        for (size_t k = n; k < slot->width; k++)
            to[k] = masked;
    }
    return 0;
}

static void attn__free_record(attn_record *record)
{
    attn_model_close(record->model);
    attn_free(record->slots);
    attn_free(record->slot_of);
    attn_free(record->own);
    attn_free(record);
}

/* Called when the watcher is freed. The numbers stay, unless the record is being freed too. */
static void attn__record_detach(attn__watcher *w)
{
    attn_record *r = attn__record_of(w);
    r->watcher = NULL;
    if (r->is_freed)
        attn__free_record(r);
}

static const attn__watcher_kind attn__records = {0,
                                                 attn__record_check,
                                                 attn__record_begin,
                                                 attn__record_rows,
                                                 attn__record_end,
                                                 attn__record_truncate,
                                                 attn__record_detach};

/* Makes the slots of a record that has its watcher. */
static attn_status attn__make_slots(attn_ctx *ctx, attn_record *r, float *memory, size_t size)
{
    const size_t n_layers = 1 + r->model->config.n_layer;
    const size_t needed = attn__place_slots(r, r->watcher->points, NULL);
    ATTN__REFUSE_IF(ctx, needed == 0, ATTN_E_MEMORY,
                    "attn_record_new: %zu positions do not fit in memory", r->room);
    if (!memory)
        memory = r->own = (float *)attn_alloc(ctx, 1, needed, "a record's numbers");
    else if (size < needed)
        return attn_fail(ctx, ATTN_E_SPACE,
                         "attn_record_new: %zu positions need %zu bytes; memory_size is %zu",
                         r->room, needed, size);
    r->slots = ATTN__NEW(ctx, attn__slot, r->n_slots, "a record");
    r->slot_of = ATTN__NEW(ctx, uint32_t, n_layers * ATTN__N_POINTS, "a record");
    if (!memory || !r->slots || !r->slot_of)
        return ATTN_E_MEMORY;
    attn__place_slots(r, r->watcher->points, memory);
    return ATTN_OK;
}

ATTN__COLD attn_status attn_record_new(attn_ctx *ctx, attn_record **record, attn_session *session,
                                       const attn_record_desc *desc)
{
    attn_record_desc plan;
    ATTN__TRY(attn__need_place(ctx, "attn_record_new", "place for the record", record));
    ATTN__TRY(
        attn__record_plan(ctx, "attn_record_new", session ? session->model : NULL, desc, &plan));
    ATTN__REFUSE_IF(
        ctx, (!plan.memory && plan.memory_size > 0) || (uintptr_t)plan.memory % sizeof(float) != 0,
        ATTN_E_ARGUMENT, "attn_record_new: %s",
        plan.memory ? "the memory must be aligned to 4 bytes, as floats are"
                    : "memory_size without memory; expected both, or neither");
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the plan is refused without a model */
    ATTN__REFUSE_IF(ctx, session->length > plan.first, ATTN_E_ARGUMENT,
                    "attn_record_new: the session holds %zu positions already, so the first "
                    "to record cannot be %zu; attn_session_truncate it, or set first",
                    session->length, plan.first);
    attn_record *r = ATTN__NEW(ctx, attn_record, 1, "a record");
    ATTN__TRY_MEMORY(r);
    r->model = session->workspace->model;
    r->first = plan.first;
    r->room = plan.n_positions;
    if (attn__new_watcher(ctx, "attn_record_new", &r->watcher, session, &attn__records,
                          sizeof(attn__record_watcher), plan.names, plan.n_names) != ATTN_OK) {
        attn_free(r);
        return ctx->status;
    }
    ((attn__record_watcher *)(void *)r->watcher)->record = r;
    attn__count_user(&r->model->lock, &r->model->n_users, 1);
    if (attn__make_slots(ctx, r, (float *)plan.memory, plan.memory_size) != ATTN_OK) {
        attn_record_free(r);
        return ctx->status;
    }
    *record = r;
    return ATTN_OK;
}

ATTN__COLD void attn_record_free(attn_record *record)
{
    if (!record)
        return;
    record->is_freed = 1;
    if (record->watcher)
        attn__remove_watcher(record->watcher); /* frees the record too, now or after the feed */
    else
        attn__free_record(record);
}

ATTN__DEF size_t attn_record_n_activations(const attn_record *record)
{
    return record ? record->n_slots : 0;
}
ATTN__DEF const char *attn_record_name(const attn_record *record, size_t index)
{
    return record && index < record->n_slots ? record->slots[index].name.text : NULL;
}

static attn_tensor attn__slot_view(const attn_record *r, const attn__slot *slot)
{
    attn_tensor t;
    if (attn__is_over_keys(slot->point)) {
        t = attn_borrow(slot->data, ATTN_F32,
                        attn_shape3(slot->n_heads, slot->n, slot->n ? r->first + slot->n : 0));
        t.stride[1] = (ptrdiff_t)slot->width;
        t.stride[0] = (ptrdiff_t)(slot->width * r->room);
        return t;
    }
    if (attn__has_heads(slot->point))
        return attn_borrow(slot->data, ATTN_F32, attn_shape3(slot->n, slot->n_heads, slot->width));
    return attn_borrow(slot->data, ATTN_F32, attn_shape2(slot->n, slot->width));
}

ATTN__COLD attn_status attn_record_get(attn_ctx *ctx, attn_tensor *out, const attn_record *record,
                                       const char *name)
{
    ATTN__TRY(attn__need_given(ctx, "attn_record_get", "record", record));
    ATTN__TRY(attn__need_given(ctx, "attn_record_get", "name", name));
    ATTN__TRY(attn__need_given(ctx, "attn_record_get", "place for the tensor", out));
    for (size_t i = 0; i < record->n_slots; i++)
        if (strcmp(record->slots[i].name.text, name) == 0) {
            *out = attn__slot_view(record, &record->slots[i]);
            return ATTN_OK;
        }
    const attn_config *c = &record->model->config;
    for (int point = 0; point < ATTN__N_POINTS; point++)
        for (size_t layer = 0; layer < c->n_layer; layer++)
            ATTN__REFUSE_IF(ctx, strcmp(attn__name_of(point, layer).text, name) == 0, ATTN_E_NAME,
                            "attn_record_get: %s is not among the activations of this record",
                            name);
    return attn__no_such_name(ctx, "attn_record_get", c, name);
}

/* ---- edits ---- */

typedef struct attn__edit_watcher {
    attn__watcher base;
    attn_edit edit;  /* ZERO has a value, 0 */
    size_t end;      /* it edits positions [edit.first, end) */
    size_t rows_end; /* the value has rows for [edit.first, rows_end) */
    float *mean;     /* of ATTN_EDIT_MEAN, if the value has several positions; else NULL */
} attn__edit_watcher;

static attn__view3 attn__value_axes(const attn_session *s, const attn_edit *e, int point)
{
    const size_t n_heads = e->n_heads ? e->n_heads : s->model->config.n_head - e->first_head;
    return attn__axes_of(e->value, point, n_heads == 1);
}

/* A number for a message, or `word` in place of 0. */
static ATTN__COMPACT attn__text attn__number_or(size_t n, const char *word)
{
    attn__text t;
    snprintf(t.text, sizeof t.text, "%zu", n);
    if (n == 0)
        snprintf(t.text, sizeof t.text, "%s", word);
    return t;
}

/* mean [heads, numbers]: sums over positions in double, rounded once. Activations that the name
 * matches agree about which dimension of a value are positions, if several are. */
static attn_status attn__mean_over_positions(attn_ctx *ctx, attn__edit_watcher *hook, attn__view3 v)
{
    const float *data = (const float *)hook->edit.value.data;
    hook->mean = ATTN__NEW(ctx, float, v.n[1] * v.n[2], "a mean");
    ATTN__TRY_MEMORY(hook->mean);
    for (size_t head = 0; head < v.n[1]; head++)
        for (size_t k = 0; k < v.n[2]; k++) {
            double sum = 0;
            for (size_t row = 0; row < v.n[0]; row++)
                sum += (double)data[(ptrdiff_t)row * v.step[0] + (ptrdiff_t)head * v.step[1] +
                                    (ptrdiff_t)k * v.step[2]];
            hook->mean[head * v.n[2] + k] = (float)(sum / (double)v.n[0]);
        }
    return ATTN_OK;
}

/* Checks an edit against one activation, and sets rows_end or the mean. */
static ATTN__COMPACT attn_status attn__fit_edit(attn_ctx *ctx, attn__edit_watcher *hook, int point,
                                                size_t layer)
{
    const attn_session *s = hook->base.session;
    const attn_edit *e = &hook->edit;
    const attn__hook_name name = attn__name_of(point, layer);
    const int over_keys = attn__is_over_keys(point), has_heads = attn__has_heads(point);
    const int is_mean = e->kind == ATTN_EDIT_MEAN;
    const size_t n = hook->end - e->first;
    size_t n_heads, width = attn__floats_at(&s->model->config, point, &n_heads);
    const size_t heads = e->n_heads ? e->n_heads : n_heads - e->first_head;
    ATTN__REFUSE_IF(ctx,
                    e->first_head >= n_heads || e->n_heads > n_heads - e->first_head ||
                        (!has_heads && e->n_heads > 0),
                    ATTN_E_ARGUMENT, "attn_hook_edit: %s heads from %zu on; %s has %zu",
                    attn__number_or(e->n_heads, "all").text, e->first_head, name.text,
                    has_heads ? n_heads : 0);
    ATTN__REFUSE_IF(ctx, over_keys && is_mean, ATTN_E_ARGUMENT,
                    "attn_hook_edit: %s has other keys at every position, so it has no mean",
                    name.text);
    attn__view3 v = attn__value_axes(s, e, point);
    ATTN__REFUSE_IF(
        ctx,
        e->value.ndim > (has_heads ? 3 : 2) ||
            (over_keys ? v.n[2] == 0 || v.n[2] > s->capacity : v.n[2] != 1 && v.n[2] != width) ||
            (v.n[1] != 1 && v.n[1] != heads) || v.n[0] == 0 ||
            (v.n[0] != 1 && !is_mean && (e->count ? v.n[0] != n : v.n[0] > n)),
        ATTN_E_SHAPE,
        "attn_hook_edit: the value for %s has shape %s; expected %s%s positions%s, %zu heads, "
        "%s%zu numbers, or 1 of each; leading ones may be missing",
        name.text, attn__show(attn__shape_of(&e->value)).text, e->count || is_mean ? "" : "up to ",
        attn__number_or(is_mean ? 0 : n, "any").text, over_keys ? " (after the heads)" : "", heads,
        over_keys ? "up to " : "", over_keys ? s->capacity : width);
    if (is_mean && v.n[0] > 1 && !hook->mean)
        return attn__mean_over_positions(ctx, hook, v);
    if (!is_mean && v.n[0] > 1 && hook->rows_end > e->first + v.n[0])
        hook->rows_end = e->first + v.n[0];
    return ATTN_OK;
}

/* Checks an edit against every activation that its name matches, and fills in its watcher. */
static attn_status attn__prepare_edit(attn_ctx *ctx, attn__edit_watcher *hook)
{
    static const float zero = 0;
    const attn_edit *e = &hook->edit;
    const attn_session *s = hook->base.session;
    ATTN__REFUSE_IF(ctx, e->first >= s->capacity || e->count > s->capacity - e->first,
                    ATTN_E_ARGUMENT,
                    "attn_hook_edit: %s positions from %zu on; the session has room for %zu",
                    attn__number_or(e->count, "all").text, e->first, s->capacity);
    hook->end = hook->rows_end = e->count ? e->first + e->count : s->capacity;
    if (e->kind == ATTN_EDIT_ZERO)
        hook->edit.value = attn_borrow(&zero, ATTN_F32, attn_shape1(1));
    ATTN__TRY(attn__need_any(ctx, "attn_hook_edit", "the value", &e->value));
    ATTN__REFUSE_IF(ctx, e->value.dtype != ATTN_F32, ATTN_E_ARGUMENT,
                    "attn_hook_edit: the value holds type %d; expected ATTN_F32",
                    (int)e->value.dtype);
    for (size_t layer = ATTN_NO_LAYER; layer + 1 <= s->model->config.n_layer; layer++)
        for (int point = 0; point < ATTN__N_POINTS; point++)
            if (hook->base.points[1 + layer] & ATTN__POINT(point))
                ATTN__TRY(attn__fit_edit(ctx, hook, point, layer));
    return ATTN_OK;
}

/* Does the value have a row for every position of this feed, and a number for every key? */
static attn_status attn__edit_check(attn_ctx *ctx, const attn__watcher *w, const attn__span *span)
{
    const attn__edit_watcher *hook = (const attn__edit_watcher *)(const void *)w;
    const attn_edit *e = &hook->edit;
    const size_t fed = span->position + span->n_tokens, until = fed < hook->end ? fed : hook->end;
    if (until <= e->first || span->position >= hook->end)
        return ATTN_OK;
    size_t n_keys = attn__watches(w, ATTN__SEES_SCORES) ? e->value.shape[e->value.ndim - 1] : 1;
    ATTN__REFUSE_IF(ctx, n_keys != 1 && n_keys < until, ATTN_E_SHAPE,
                    "an edit of scores or patterns has numbers for %zu keys; it comes to %zu",
                    n_keys, until);
    ATTN__REFUSE_IF(ctx, until > hook->rows_end, ATTN_E_SHAPE,
                    "the value of an edit ends at position %zu; the feed comes to %zu (with count "
                    "%zu, the edit leaves later positions as they are)",
                    hook->rows_end - 1, until - 1, hook->rows_end - e->first);
    return ATTN_OK;
}

/* x [n] = v, x + v or x * v. */
static void attn__edit_row(attn_edit_kind kind, float *x, ptrdiff_t step, const float *v,
                           ptrdiff_t v_step, size_t n)
{
    const int adds = kind == ATTN_EDIT_ADD, scales = kind == ATTN_EDIT_SCALE;
    for (; n > 0; n--, x += step, v += v_step)
        *x = adds ? *x + *v : scales ? *v * *x : *v;
}

/* A worker's share of an edit. In scores and patterns it edits only the keys that a query sees. */
static int attn__edit_rows(const attn__worker *me, attn__watcher *w, const attn__shown *shown)
{
    const attn__edit_watcher *hook = (const attn__edit_watcher *)(const void *)w;
    const attn_edit *e = &hook->edit;
    const attn__view3 to = attn__axes_of(shown->value, shown->point, 0);
    attn__view3 from = attn__value_axes(w->session, e, shown->point);
    const float *value = (const float *)e->value.data;
    const size_t heads = e->n_heads ? e->n_heads : to.n[1] - e->first_head;
    size_t row, last;
    if (hook->mean && from.n[0] > 1) { /* [heads, numbers] */
        value = hook->mean;
        from.step[0] = 0;
        from.step[1] = from.n[1] > 1 ? (ptrdiff_t)from.n[2] : 0;
        from.step[2] = from.n[2] > 1;
    }
    attn__share(me, to.n[0], &row, &last);
    for (; row < last; row++) {
        const size_t position = shown->first + row, at = position - e->first;
        const size_t n = attn__is_over_keys(shown->point) ? position + 1 : to.n[2];
        if (position < e->first || position >= hook->end)
            continue;
        for (size_t head = 0; head < heads; head++) {
            float *x = (float *)shown->value.data + (ptrdiff_t)row * to.step[0] +
                       (ptrdiff_t)(e->first_head + head) * to.step[1];
            const float *v = value + (ptrdiff_t)at * from.step[0] + (ptrdiff_t)head * from.step[1];
            attn__edit_row(e->kind, x, to.step[2], v, from.step[2], n);
        }
    }
    return 0;
}

static void attn__edit_free(attn__watcher *w)
{
    attn_free(((attn__edit_watcher *)(void *)w)->mean);
}

static const attn__watcher_kind attn__edits = {0,    attn__edit_check, NULL, attn__edit_rows, NULL,
                                               NULL, attn__edit_free};

ATTN__COLD attn_status attn_hook_edit(attn_ctx *ctx, attn_hook_id *id, attn_session *session,
                                      const attn_edit *edit)
{
    attn__watcher *w;
    attn__edit_watcher *hook;
    if (id)
        *id = 0;
    ATTN__TRY(attn__need_given(ctx, "attn_hook_edit", "session", session));
    ATTN__TRY(attn__need_given(ctx, "attn_hook_edit", "edit", edit));
    ATTN__TRY(attn__need_given(ctx, "attn_hook_edit", "name", edit->name));
    ATTN__TRY(ATTN__NEED_ZEROS(ctx, attn_edit, edit));
    ATTN__REFUSE_IF(ctx, (unsigned)edit->kind > ATTN_EDIT_SCALE, ATTN_E_ARGUMENT,
                    "attn_hook_edit: no kind of edit has number %u", (unsigned)edit->kind);
    ATTN__TRY(attn__new_watcher(ctx, "attn_hook_edit", &w, session, &attn__edits, sizeof *hook,
                                &edit->name, 1));
    hook = (attn__edit_watcher *)(void *)w;
    hook->edit = *edit;
    if (attn__prepare_edit(ctx, hook) != ATTN_OK) {
        attn__free_watcher(w);
        return ctx->status;
    }
    if (id)
        *id = w->id;
    return ATTN_OK;
}

/* >>lens (tests: lens) ==========================================================================
 * Logits and their directions, from the model's panels. */

static attn_status attn__need_tokens(attn_ctx *ctx, const char *op, const attn_model *model,
                                     const attn_token *tokens, size_t n)
{
    ATTN__TRY(attn__need_given(ctx, op, "tokens", n ? tokens : NULL));
    return attn__need_ids(ctx, op, "token", tokens, 1, n, model->config.n_vocab);
}

ATTN__COLD attn_status attn_logit_directions(attn_ctx *ctx, attn_tensor *directions,
                                             const attn_model *model, const attn_token *tokens,
                                             const attn_token *against, size_t n)
{
    const attn_tensor of = attn_borrow(tokens, ATTN_I32, attn_shape1(n));
    const attn_tensor minus = attn_borrow(against, ATTN_I32, attn_shape1(n));
    const attn_tensor *const inputs[] = {&of, &minus, NULL};
    attn__result result;
    ATTN__TRY(attn__need_layer(ctx, "attn_logit_directions", model, 0));
    ATTN__TRY(attn__need_tokens(ctx, "attn_logit_directions", model, tokens, n));
    if (against)
        ATTN__TRY(attn__need_tokens(ctx, "attn_logit_directions", model, against, n));
    size_t width = model->config.d_model;
    ATTN__TRY(attn__out_begin(ctx, "attn_logit_directions", directions, attn_shape2(n, width), 0,
                              inputs, &result));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < width; k++) {
            float *at = (float *)result.dense.data + i * width + k;
            *at = attn__panels_get(&model->w_u, k, (size_t)tokens[i]);
            if (against)
                *at -= attn__panels_get(&model->w_u, k, (size_t)against[i]);
        }
    return attn__out_end(ctx, directions, &result, ATTN_OK);
}

ATTN__COLD attn_status attn_model_logits(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                         attn_tensor normed, attn_tensor tokens)
{
    static const char op[] = "attn_model_logits";
    const attn_tensor *const inputs[] = {&normed, &tokens, NULL};
    const size_t n = tokens.shape[0];
    attn__product u = ATTN_ZERO;
    attn_tensor logits = ATTN_ZERO;
    attn__result result;
    attn_shape shape = attn__shape_of(&normed);
    attn_status status = ATTN_OK;
    ATTN__TRY(attn__need_layer(ctx, op, model, 0));
    ATTN__TRY(attn__need(ctx, op, "normed", &normed));
    ATTN__REFUSE_IF(ctx, attn__row_length(&normed) != model->config.d_model, ATTN_E_SHAPE,
                    "%s: normed has shape %s; expected [.., %zu]", op,
                    attn__show(attn__shape_of(&normed)).text, model->config.d_model);
    u.made = model->w_u;
    u.stop = ctx->stop_flag;
    attn_tensor w = attn_borrow(u.made.data, ATTN_F32, attn_shape2(u.made.n_in, u.made.n_out));
    if (tokens.ndim == 0 && !tokens.error) {
        u.bias = model->b_u;
        return attn__product_of(ctx, op, out, normed, w, &u);
    }
    ATTN__TRY(attn__need_any(ctx, op, "tokens", &tokens));
    if (tokens.ndim != 1 || tokens.dtype != ATTN_I32 || n == 0)
        return attn__misfit(ctx, op, "tokens have", &tokens, NULL, NULL,
                            "expected [n] of ATTN_I32");
    ATTN__TRY(attn__need_ids(ctx, op, "token", (const int32_t *)tokens.data, tokens.stride[0], n,
                             model->config.n_vocab));
    shape.dim[shape.ndim - 1] = n;
    ATTN__TRY(attn__out_begin(ctx, op, out, shape, 0, inputs, &result));
    w.shape[1] = 16;
    for (size_t i = 0; i < n && status == ATTN_OK; i++) { /* the panel of W_U that has token i */
        const int32_t id = ((const int32_t *)tokens.data)[(ptrdiff_t)i * tokens.stride[0]];
        attn__product one = u;
        one.made.data =
            (const unsigned char *)u.made.data + (size_t)id / 16 * (size_t)u.made.stride;
        one.made.n_out = 16;
        status = attn__product_of(ctx, op, &logits, normed, w, &one);
        for (size_t row = 0; row < attn__n_rows(&logits) && status == ATTN_OK; row++) {
            float *const logit = (float *)result.dense.data + row * n + i;
            *logit = ((const float *)logits.data)[row * 16 + (size_t)id % 16];
            if (model->b_u)
                *logit += model->b_u[id];
        }
    }
    attn_tensor_free(ctx, &logits);
    return attn__out_end(ctx, out, &result, status);
}

ATTN__SMALL_END
#elif defined(ATTN__SET) /* the end of one set */
#undef ATTN__SET
#endif /* the implementation */

/* clang-format off */
/* >>words (tests: pages) ========================================================================
 * What the comments mean by
 *
 * row      the numbers of one position
 * feed     a call that runs the model over more tokens: attn_feed, attn_feed_batch
 * pass     one run of the forward pass; a long feed takes several, of n_batch rows each
 * span     the positions and layers that a feed runs in a session
 * line     64 bytes of weights, keys or values: of weights, 16 outputs and 1 to 8 inputs k
 * panel    the lines of 16 outputs, for all inputs
 * chain    a sum over at most 256 ascending k: rule 1 of the same bits
 * tile     rows times outputs that a kernel keeps in registers
 * pack     to copy rows in the order in which a kernel reads them
 * set      an instruction set; >>kernels is compiled once for each
 * worker   one of the threads that run a call; together they are its team
 * share    a worker's part of the rows, columns or heads
 * few rows at most 8: ATTN__FEW_ROWS
 * block    a transformer block is also called a layer; other blocks are named: block of queries
 * lane     one number of a vector
 * kernel   vector code for one row or one tile
 * tuner    finds the best number of threads for passes of one size
 * point    a place in the forward pass where an activation can be watched
 * watcher  anything that is shown activations: a hook, a record or an edit
 * draft    tokens that are fed before the sampler has drawn them */

/* >>changes =====================================================================================
 * WHERE NEW THINGS GO
 *
 * An activation function: in >>kernels its formula on one register beside attn__r_silu (with its
 *     #define, #undef and ATTN__LIFT) and a branch in ATTN__FN(activate); a value of
 *     attn_mlp_act; the checks in attn_apply_mlp_act and attn__check_version; its number in
 *     >>format; its name in tools/attn-info.c, tools/convert/huggingface.h and export.h,
 *     examples/python.
 * An operation of tier 1: its declaration in >>api-tensors, its function in >>ops, a case in
 *     tests/suites/ops.
 * A way to sample: a program sets attn_generate_desc.logits_fn. In the library: a field of
 *     attn_sampler_desc, its check in attn_sampler_new, its step in attn__filter. Then `make
 *     format-check` names the front ends, pages and tests that do not have it.
 * A field of a struct takes 8 bytes of `reserved`, or 4 with another 4, such as uint32_t unused.
 * A weight type: a row in attn__weight_type_of; its scale in lens_quantize_weights
 *     (tools/write/writer.h); reading its
 *     bits in attn__r_weights of every set; attn__read_entry, which accepts it in files;
 *     attn-convert and export.h, which write it.
 * A watcher: a section like >>record with one attn__watcher_kind, made by attn__new_watcher. It
 *     uses only its own struct and the rows that it is shown; the engine needs no change.
 * An instruction set: a number and its detection in >>cpu; its operations at the head of >>kernels,
 *     one more include at the end of >>kernels, a line in attn__choices. Sections before >>cpu do
 *     not change.
 *
 * VERSIONS
 *
 * A version is major.minor.patch. All versions with the same major number keep
 *   of the header    everything in the API above: names, parameters and their meaning, values of
 *                    enums, fields of structs and their offsets, names of activations, the bits
 *                    of every logit
 *   of files         reading of models, receipts and sessions that older versions wrote
 *   of the programs  commands, options and exit codes with their meaning, keys of JSON, names of
 *                    columns in CSV. Later versions may print more of each.
 * A minor version adds to these. Deprecated is what a later version has a better way for: it works
 * until the next major version, this section and --help name the better way, and for names of the
 * header the compiler warns (ATTN_DEPRECATED). No version deprecates and removes at once.
 *
 * Any version may change names that begin with attn__ or ATTN__, the words of messages, and the
 * memory that an object takes. A minor version may change the headers of tools (attn-lens/), their
 * functions lens_* in libattn, and the packages for Python and R; this section then says how.
 *
 * The structs of the API, and how they may change:
 *   never           attn_shape, attn_tensor, attn_rng, attn_token_stats, attn_prediction, attn_top,
 *                   attn_utf8, attn_block_weights
 *   at `reserved`   attn_ctx, attn_attention_desc, attn_config, attn_model_desc,
 *                   attn_workspace_desc, attn_session_desc, attn_layers, attn_feed_item,
 *                   attn_sampler_desc, attn_generate_desc, attn_generation, attn_continuation,
 *                   attn_record_desc, attn_edit
 *   at their end    attn_activation, attn_activation_kind: only the library makes them
 * attn_ctx keeps all its fields but `blocks` and `owner`, which are internal.
 *
 * 1.1.0 answers every question by tables (tools/waist/query.h). For that `lens --json` has
 * other keys. Version 1.0.0 was never published, so this is done once; from 1.1.0 on the rule above
 * holds. The JSON is now an object of "notes", a list of sentences, and of tables, which
 * `lens COMMAND --help columns` lists; a table is a list of rows. What a question has one value of
 * is the only row of the table "facts". JSON lines of surprisal, score and gpt2 are as before.
 *   of all commands            grids[].values           a column of a table; the axes are columns
 *                              tokens[].id, .token      token_id, token; of a guess guess_id, guess
 *                              token, against           facts.target_id, target, against_id, ...
 *                              pairs, of --pairs        facts.n_pairs
 *                              ci_of, sign_flips        facts; mean, low, high, p are columns
 *   --each                     grids of each pair       rows of TABLE_each, with pair and corrupted
 *   tokens, loss               mean_loss, perplexity    facts; tokens; top[] is the table top
 *   logit-lens                 layers[].positions[]     streams; top[] is the table top
 *   patterns                   patterns[].pattern       patterns.weight
 *   patch, path                clean, corrupted, gap    facts; positions, heads ... and paths
 *   edges                      circuit, method, n_kept  facts; edges and nodes as before
 *    --curve                   curves[].faithfulness    curves; cpr, cmd: integrals
 *    --shapley, --interactions interactions             interactions; the diagonal is shapley
 *   attribute, ablate          logit, sum, mean_loss    facts; terms, heads
 *   decompose, qk              labels                   parts.part; terms.query_part, .key_part
 *   circuits                   singular_values.QK       rows of singular_values; heads has scores
 *    of one head               QK[].query, OV[].reads   directions
 *   sae                        tokens[].features        features; hook, explained: facts
 *   steer, sae --change        without, with            runs, top, continuation; logits
 *   graph                      off, kept ...            facts; nodes, edges, groups as before
 *   record, gradients          names and shapes         activations
 * 1.1.0 also adds --receipt to lens, surprisal and score, --help json and --help columns. What
 * `lens decompose --token` gives is what a part adds to the logit, gain and scale of ln_final
 * included; it was the product with W_U.
 *
 * 1.0.0 adds ATTN_THREADS, attn_max_threads, attn_parallel_for; attn_generator_new, _step, _free.
 * Older versions: git has them. */
/* clang-format on */

/*
 * MIT License
 *
 * Copyright (c) 2026 The attn.h authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */

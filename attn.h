/*
attn.h - GPT-2 inference in one C header                                      version 0.1.0, MIT

DO THIS
    In exactly one C or C++ file, before you include this header:

        #define ATTN_IMPLEMENTATION
        #include "attn.h"

    and build it with nothing but a compiler (add -fopenmp for threads):

        cc app.c -O2 -lm

    A plain -O2 runs at full speed: the kernels for AVX2, AVX-512 and NEON are compiled in and the
    best one is chosen when the program runs.

A COMPLETE PROGRAM

        #define ATTN_IMPLEMENTATION
        #include "attn.h"
        #include <stdio.h>

        static int print(const char *text, size_t size, void *file)
        {
            fwrite(text, 1, size, (FILE *)file);
            return fflush((FILE *)file);            // 0 goes on, anything else stops
        }

        int main(void)
        {
            attn_ctx ctx = {0};
            attn_model *model = NULL;
            attn_session *session = NULL;

            if (attn_model_open(&ctx, &model, "build/tiny-stories.attn", NULL) ||
                attn_session_new(&ctx, &session, model, NULL) ||
                attn_generate(&ctx, session, "Once upon a time", NULL, print, stdout))
                fprintf(stderr, "%s\n", ctx.message);

            attn_session_free(session);
            attn_model_close(model);
            return ctx.status != ATTN_OK;
        }

WHAT IS HERE
    Three tiers, each complete by itself, each written with the one above it.

    1. Tensors and operations: matmul, softmax, layernorm, attention ... enough to write a
       transformer as a notebook does, one line an equation.
    2. Models: open a .attn file, make a session with a key/value cache, feed tokens, read logits,
       sample, generate text, score text. GPT-2's tokenizer is included.
    3. The glass box: read or change any activation by its TransformerLens name while the model
       runs (attn_hook).

TABLE OF CONTENTS: search for the mark
    >>manual        options, errors, memory, threads, determinism, the file format
    >>api-basics    context, status codes, versions
    >>api-tensors   tier 1: attn_tensor and its operations
    >>api-models    tier 2: models, sessions, sampling, generation
    >>api-tokenizer text to ids and back
    >>api-hooks     tier 3: activations by name
  and, under ATTN_IMPLEMENTATION:
    >>platform      compilers, operating systems, files      >>format        reading .attn files
    >>memory        contexts, errors, allocation             >>model         THE FORWARD PASS
    >>team          threads                                  >>session       the key/value cache
    >>cpu           which kernels this processor can run     >>hooks         activations by name
    >>kernels       vector code, once per instruction set    >>sampling      logits to a token
    >>matmul        panels and the matmul driver             >>tokenizer     byte-level BPE
    >>tensors       views and allocation                     >>generate      text in, text out
    >>ops           tier 1's operations

>>manual ===========================================================================================

OPTIONS: define before the include that has ATTN_IMPLEMENTATION
    ATTN_STATIC        every function is static; nothing is exported
    ATTN_API           what to put before each public function (default: extern)
    ATTN_NO_SIMD       portable C only (also the oracle that every kernel is tested against)
    ATTN_NO_DISPATCH   only what the compiler flags allow; no choice at run time
    ATTN_NO_MMAP       read model files into memory instead of mapping them
    ATTN_FILE          this file's name, if you renamed it (default: "attn.h"); it includes itself
                       once for each instruction set

ERRORS
    Every function that can fail returns an attn_status, 0 (ATTN_OK) for success, and leaves a
    sentence in ctx->message that says what was wrong, where, and what was expected. ctx->status
    works like errno: it keeps the latest failure and no success erases it, so a run of calls may be
    checked one by one or once at the end. An operation that is given a tensor which an earlier
    failed call never made fails too, and leaves the first message in place. Nothing here prints,
    exits or aborts, and a failed call leaves models and sessions as they were.

MEMORY
    A context may bring its own allocator. Tensors made through a context live until
    attn_tensor_free, or until attn_ctx_free frees all that are left. Models and sessions have their
    own free functions. A session allocates everything when it is made (attn_session_size tells how
    much that will be); feeding tokens into it, reading logits and sampling allocate nothing.
    Weights are used where the file is mapped, so several processes share one copy.

THREADS
    With OpenMP (-fopenmp) the work of a call is divided over ctx->n_threads threads, by default as
    many as OpenMP offers. A model may be used by any number of threads at once, each with its own
    context and its own sessions. One session belongs to one thread at a time.

THE SAME BITS
    The logits of a token do not depend on the number of threads, on the batch the token travels
    in, on how the prompt was cut into calls, on whether hooks are watching, or on which
    instruction set ran. That is kept by one order of operations for each output element:
    1. A matmul output is one chain of fused multiply-adds over k = 0, 1, ..., K-1, starting at 0;
       a bias is added at the end. Vector lanes run across outputs, never across k.
    2. A sum along a row uses 16 partial sums, element j in partial j mod 16, folded as 16 -> 8 ->
       4 -> 2 -> 1, upper half onto lower half.
    3. exp, log, tanh and erf are this file's own polynomials of fused multiply-adds.
    4. f16 weights widen exactly to f32 and follow rule 1.
    Processors without a fused multiply-add run a faster unfused path, and attn_isa() says so;
    ctx->isa = ATTN_ISA_PORTABLE asks for the exact bits there too, slowly.

THE FILE FORMAT: .attn, version 1
    All numbers are little-endian and unsigned; reserved bytes and padding are zero.

    Header, 256 bytes:
      0   8  magic: 89 41 54 54 4E 0D 0A 1A ("\x89ATTN\r\n\x1a")
      8   4  version: 1                           12   4  header size: 256
     16   8  size of the whole file
     24   4  n_vocab                              28   4  n_ctx
     32   4  d_model                              36   4  n_head
     40   4  n_layer                              44   4  d_mlp
     48   4  layer norm epsilon (f32 bits)        52   4  flags: bit 0 = tied unembedding
     56   4  id of the beginning-of-text token    60   4  id of the end-of-text token
                                                          (both: FFFFFFFF for none)
     64   4  n_tensors                            68   4  reserved
     72   8  tensor table: offset (256)           80   8  tensor table: size (128 * n_tensors)
     88   8  tensor table: checksum
     96   8  tokenizer: offset (0 for none)      104   8  tokenizer: size
    112   8  tokenizer: checksum
    120 128  reserved
    248   8  checksum of bytes 0..247

    Tensor table, one record of 128 bytes each, in the order of the data:
      0  64  name, padded with zeros
     64   4  dtype: 0 = f32, 1 = f16              68   4  layout: 0 = rows, 1 = panels
     72   4  number of dimensions: 1 or 2         76   4  reserved
     80   8  first dimension                      88   8  second dimension (1 if there is none)
     96   8  offset in the file                  104   8  size in bytes
    112   8  checksum                            120   8  reserved

    Sections follow in the order header, table, tokenizer, tensors, each at the next multiple of 64
    bytes, and the file ends with the last tensor.

    Tensors (C = d_model, F = d_mlp, V = n_vocab; i = layer):
      embed.W_E             panels [C, V]    pos_embed.W_pos       rows [n_ctx, C] f32
      blocks.i.ln1.w, .b    rows [C] f32     blocks.i.ln2.w, .b    rows [C] f32
      blocks.i.attn.W_QKV   panels [C, 3C]   blocks.i.attn.b_QKV   rows [3C] f32
      blocks.i.attn.W_O     panels [C, C]    blocks.i.attn.b_O     rows [C] f32
      blocks.i.mlp.W_in     panels [C, F]    blocks.i.mlp.b_in     rows [F] f32
      blocks.i.mlp.W_out    panels [F, C]    blocks.i.mlp.b_out    rows [C] f32
      ln_final.w, .b        rows [C] f32     unembed.W_U           panels [C, V], only if untied
    W_QKV holds the queries' columns, then the keys', then the values', head by head in each.
    W_E is kept as its transpose, so that a tied unembedding is the same panels.

    Layout "rows" is row-major, dense. Layout "panels" is how the kernels read a matrix [K, N] that
    maps K inputs to N outputs. A line is 64 bytes: 16 outputs times 1 (f32) or 2 (f16) consecutive
    k, the 16 outputs of the first k first. A panel is the lines of 16 outputs over all k; the matrix
    is ceil(N / 16) panels. What is missing at the edges is zero. So entry (k, n) of an f32 matrix is
    number (n / 16 * K + k) * 16 + n % 16, and of an f16 matrix the same with K rounded up to even.

    Tokenizer section:
      0   4  n_tokens                              4   4  n_merges
      8   4  n_special                            12   4  size of the token bytes
     16      ends: u32[n_tokens], end of each token's bytes within the token bytes
             merges: u32[n_merges][3] = left id, right id, merged id; in order of rank
             special: u32[n_special] = ids of tokens that text may not produce unasked
             the token bytes (raw bytes, not GPT-2's printable stand-ins)
    Every one of the 256 bytes is a token of its own. No special token takes part in a merge.

    Checksum: the data is cut into blocks of 1 MiB, the last one shorter. A block is padded with
    zeros to a multiple of 256 bytes and read as 32-bit words w; 64 lanes start as a[j] = j and take
    every 64th word:  a = (a ^ w) * 9E3779B1h;  a = a ^ (a >> 15)  (mod 2^32). The block's digest
    starts as its size in bytes before padding and takes the lanes in order: d = (d ^ a[j]) *
    9E3779B97F4A7C15h;  d = d ^ (d >> 32)  (mod 2^64). The checksum starts as 0 and takes the
    digests the same way: c = (c ^ d) * 9E3779B97F4A7C15h;  c = c ^ (c >> 32). So one word changed
    anywhere always changes the checksum.

FAQ
    "Where is the forward pass?" Search for >>model. It is two screens long.
    "Does it add a beginning-of-text token?" No. TransformerLens does by default, Hugging Face does
        not; here you put it there yourself, or set attn_generate_desc.prepend_bos.
    "Can I use it from C++?" Yes, C99 and C++11 or later.
*/

#ifndef ATTN__PASS /* the kernel room includes this file again with ATTN__PASS defined */
#ifndef ATTN_H
#define ATTN_H

#include <stddef.h>
#include <stdint.h>

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0
#define ATTN_VERSION       (ATTN_VERSION_MAJOR * 10000 + ATTN_VERSION_MINOR * 100 + ATTN_VERSION_PATCH)

#ifndef ATTN_API
#if !defined(ATTN_STATIC)
#define ATTN_API extern
#elif defined(__GNUC__)
#define ATTN_API static __attribute__((unused))
#else
#define ATTN_API static
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* >>api-basics ==================================================================================*/

typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_E_ARGUMENT,    /* a value that this function cannot take */
    ATTN_E_SHAPE,       /* shapes that do not fit together */
    ATTN_E_MEMORY,      /* the allocator returned nothing */
    ATTN_E_SPACE,       /* the caller's buffer is too small; the message says how much is needed */
    ATTN_E_IO,          /* a file could not be opened, read or mapped */
    ATTN_E_FORMAT,      /* a file that is no .attn file, or whose parts contradict each other */
    ATTN_E_VERSION,     /* a version, data type or layout that this header does not know */
    ATTN_E_CHECKSUM,    /* bytes changed since the file was written */
    ATTN_E_TOKEN,       /* a token id outside the vocabulary */
    ATTN_E_CONTEXT,     /* more tokens than the session has room for */
    ATTN_E_TOKENIZER,   /* the model has no tokenizer */
    ATTN_E_UNSUPPORTED, /* an instruction set that this build or processor does not have */
    ATTN_E_NAME,        /* no tensor or activation of that name */
    ATTN_STOPPED        /* a callback asked to stop */
} attn_status;

/* Instruction sets, for attn_ctx.isa. AUTO takes the best that the processor has. */
typedef enum attn_isa_kind {
    ATTN_ISA_AUTO = 0,
    ATTN_ISA_PORTABLE, /* plain C with fmaf: exact everywhere, slow without hardware support */
    ATTN_ISA_BASE,     /* what the compiler flags allow; may be unfused, see attn_isa() */
    ATTN_ISA_AVX2,
    ATTN_ISA_AVX512,
    ATTN_ISA_NEON
} attn_isa_kind;

/* A context: how a caller wants things done, and what went wrong last. Zero it, set what you like,
 * and pass it to every call. It is small and belongs to one thread; make as many as you want. */
typedef struct attn_ctx {
    void *(*alloc)(size_t size, void *user); /* NULL: malloc */
    void (*free)(void *block, void *user);   /* NULL: free */
    void *user;                              /* handed to both */
    int n_threads;                           /* 0: as many as OpenMP offers */
    attn_isa_kind isa;

    attn_status status; /* the latest failure; set it to ATTN_OK to forget it */
    char message[256];  /* and its sentence */

    struct attn__block *blocks; /* internal: the tensors that attn_ctx_free would free */
} attn_ctx;

/* ATTN_VERSION of the implementation that was linked. */
ATTN_API int attn_version(void);

/* "ATTN_E_SHAPE" and so on; never NULL. */
ATTN_API const char *attn_status_name(attn_status status);

/* Name of the kernels that this context uses: "avx512", "avx2", "neon", "portable", or with an
 * explanation: "sse2 (no fused multiply-add)". NULL if ctx->isa asks for one that is not here. */
ATTN_API const char *attn_isa(const attn_ctx *ctx);

/* Frees every tensor that was made through this context and is still alive. */
ATTN_API void attn_ctx_free(attn_ctx *ctx);

/* Checksum of the file format. Start with chain = 0; data may come in pieces, all but the last a
 * multiple of 1 MiB, each call's result being the next call's chain. */
ATTN_API uint64_t attn_checksum(uint64_t chain, const void *data, size_t size);

/* >>api-tensors =================================================================================
 *
 * A tensor is a small struct that points at numbers. Copy it freely: a copy is another view of the
 * same numbers. Views (transpose, slice, reshape) cost nothing and never fail loudly: what cannot
 * be done gives a tensor with ndim == 0 whose `error` says why, and the operation that is handed
 * such a tensor reports it.
 *
 * Operations write into *out. If out->ndim is 0 a fresh tensor is made in the context; else its
 * shape must be the result's, and it is written in place. Inputs may have any strides and may be
 * empty. Unless said otherwise everything is f32 (f16 inputs widen), and out may not overlap an
 * input except where "in place" is said to work. */

typedef enum attn_dtype { ATTN_F32 = 0, ATTN_F16 = 1, ATTN_I32 = 2 } attn_dtype;

typedef struct attn_shape {
    int ndim; /* 1 to 4 */
    size_t dim[4];
} attn_shape;

typedef struct attn_tensor {
    void *data; /* element [0, 0, 0, 0] */
    attn_dtype dtype;
    int ndim;            /* 0: no tensor here */
    size_t shape[4];     /* slowest dimension first; unused ones are 1 */
    ptrdiff_t stride[4]; /* in elements; unused ones are 0 */
    const char *error;   /* why ndim is 0, or NULL */
    void *owned;         /* what attn_tensor_free gives back; NULL for a view or borrowed data */
} attn_tensor;

ATTN_API attn_shape attn_shape1(size_t d0);
ATTN_API attn_shape attn_shape2(size_t d0, size_t d1);
ATTN_API attn_shape attn_shape3(size_t d0, size_t d1, size_t d2);
ATTN_API attn_shape attn_shape4(size_t d0, size_t d1, size_t d2, size_t d3);

/* A new dense tensor, filled with zeros. */
ATTN_API attn_status attn_zeros(attn_ctx *ctx, attn_tensor *out, attn_dtype dtype, attn_shape shape);
/* A dense tensor over the caller's numbers; they must outlive it. */
ATTN_API attn_tensor attn_borrow(void *data, attn_dtype dtype, attn_shape shape);
/* Frees an owned tensor now; every view of it is then invalid. Safe on views and twice. */
ATTN_API void attn_tensor_free(attn_ctx *ctx, attn_tensor *tensor);

/* Views. Dimensions count from 0; negative ones from the end (-1 is the last). */
ATTN_API attn_tensor attn_transpose(attn_tensor x, int dim_a, int dim_b);
ATTN_API attn_tensor attn_slice(attn_tensor x, int dim, size_t start, size_t count);
ATTN_API attn_tensor attn_select(attn_tensor x, int dim, size_t index); /* drops the dimension */
/* The same elements in row-major order under another shape. x must be dense, or such that the
 * new shape only splits and joins dimensions that lie evenly in memory. */
ATTN_API attn_tensor attn_reshape(attn_tensor x, attn_shape shape);

ATTN_API size_t attn_count(attn_tensor x); /* number of elements */
ATTN_API int attn_is_dense(attn_tensor x); /* row-major without gaps */
/* One element as a float, indices beyond ndim ignored; NaN if out of range. */
ATTN_API float attn_get(attn_tensor x, size_t i0, size_t i1, size_t i2, size_t i3);
/* Copies x into a dense tensor of its own, or into *out; converts between data types. */
ATTN_API attn_status attn_copy(attn_ctx *ctx, attn_tensor *out, attn_tensor x);

/* out = a + b, a - b, a * b, a / b by element. A dimension of 1 repeats to fit the other's, and
 * missing leading dimensions count as 1. In place works. */
ATTN_API attn_status attn_add(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
ATTN_API attn_status attn_sub(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
ATTN_API attn_status attn_mul(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
ATTN_API attn_status attn_div(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
/* out = x * factor. In place works. */
ATTN_API attn_status attn_scale(attn_ctx *ctx, attn_tensor *out, attn_tensor x, float factor);
/* out = e to the x, by element. In place works. */
ATTN_API attn_status attn_exp(attn_ctx *ctx, attn_tensor *out, attn_tensor x);

/* Sums, means and variances along the last dimension, which becomes 1. `unbiased` divides the
 * variance by n - 1 instead of n. */
ATTN_API attn_status attn_sum(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
ATTN_API attn_status attn_mean(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
ATTN_API attn_status attn_variance(attn_ctx *ctx, attn_tensor *out, attn_tensor x, int unbiased);

/* out [.., M, N] = a [.., M, K] · b [.., K, N]; leading dimensions repeat as in attn_add.
 * For A·Bᵀ pass attn_transpose(b, -1, -2). */
ATTN_API attn_status attn_matmul(attn_ctx *ctx, attn_tensor *out, attn_tensor a, attn_tensor b);
/* out [.., N] = x [.., K] · w [K, N] + bias [N]; bias may be a zeroed tensor for none. Weights
 * stored [N, K], as PyTorch's nn.Linear does, come in as attn_transpose(w, 0, 1). */
ATTN_API attn_status attn_linear(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor w,
                                 attn_tensor bias);

/* Softmax over the last dimension: exp(x - max) / sum. A row of nothing but -inf gives NaN. */
ATTN_API attn_status attn_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
/* The same for scores [.., Tq, Tk] where query i sees the keys 0 .. i + Tk - Tq only. */
ATTN_API attn_status attn_softmax_causal(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
/* x - max - log(sum(exp(x - max))) over the last dimension. */
ATTN_API attn_status attn_log_softmax(attn_ctx *ctx, attn_tensor *out, attn_tensor x);
/* nll [T] = -log_softmax(logits [T, V])[target[t]]; targets are I32 [T]. */
ATTN_API attn_status attn_cross_entropy(attn_ctx *ctx, attn_tensor *nll, attn_tensor logits,
                                        attn_tensor targets);

/* (x - mean) / sqrt(variance + eps) * w + b over the last dimension, biased variance;
 * w, b: [C], either may be zeroed for 1 and 0. Ba, Kiros & Hinton 2016. */
ATTN_API attn_status attn_layernorm(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor w,
                                    attn_tensor b, float eps);

typedef enum attn_gelu_kind {
    ATTN_GELU_TANH = 0, /* x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))): GPT-2's */
    ATTN_GELU_ERF       /* x/2 * (1 + erf(x / sqrt(2))): PyTorch's default */
} attn_gelu_kind;
ATTN_API attn_status attn_gelu(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_gelu_kind kind);

/* out [.., C] = rows of table [V, C] picked by ids, an I32 tensor [..] of 1 to 3 dimensions. */
ATTN_API attn_status attn_embedding(attn_ctx *ctx, attn_tensor *out, attn_tensor table,
                                    attn_tensor ids);
/* out [count, C] = rows first .. first+count-1 of table [n_ctx, C]. */
ATTN_API attn_status attn_pos_embedding(attn_ctx *ctx, attn_tensor *out, attn_tensor table,
                                        size_t first, size_t count);

typedef enum attn_mask_kind {
    ATTN_MASK_NONE = 0,
    ATTN_MASK_CAUSAL, /* query i sees keys 0 .. i + Tk - Tq */
    ATTN_MASK_GIVEN   /* `mask` is added to the scores: 0 to see, -inf to hide, or any bias */
} attn_mask_kind;

/* How to attend; zeroed: every query sees every key, scores scaled by 1/sqrt(d). */
typedef struct attn_attention_desc {
    attn_mask_kind mask_kind;
    attn_tensor mask;     /* [Tq, Tk], or with leading dimensions that repeat as in attn_add */
    float scale;          /* 0: 1/sqrt(d_head); 1 turns scaling off; any other value is used */
    attn_tensor *pattern; /* if not NULL: receives softmax(scores) [.., Tq, Tk] */
} attn_attention_desc;

/* out [.., Tq, dv] = softmax(q [.., Tq, d] · kᵀ [.., d, Tk] * scale + mask) · v [.., Tk, dv].
 * The keys may come from another sequence. desc may be NULL. Vaswani et al. 2017. */
ATTN_API attn_status attn_attention(attn_ctx *ctx, attn_tensor *out, attn_tensor q, attn_tensor k,
                                    attn_tensor v, const attn_attention_desc *desc);

/* The parameters of one block in GPT-2's shapes; biases may be zeroed tensors. */
typedef struct attn_block_weights {
    attn_tensor ln1_w, ln1_b; /* [C] */
    attn_tensor w_q, b_q;     /* [C, H*d], [H*d] */
    attn_tensor w_k, b_k;
    attn_tensor w_v, b_v;
    attn_tensor w_o, b_o;     /* [H*d, C], [C] */
    attn_tensor ln2_w, ln2_b; /* [C] */
    attn_tensor w_in, b_in;   /* [C, F], [F] */
    attn_tensor w_out, b_out; /* [F, C], [C] */
} attn_block_weights;

/* out [.., Tq, C] = concat over heads of attention(x·W_Q, y·W_K, y·W_V) · W_O + b_O, for
 * x [.., Tq, C]; y [.., Tk, C] is x again for self-attention. Uses w->w_q .. w->b_o; desc->pattern
 * is [.., H, Tq, Tk]. */
ATTN_API attn_status attn_multihead(attn_ctx *ctx, attn_tensor *out, attn_tensor x, attn_tensor y,
                                    const attn_block_weights *w, size_t n_head,
                                    const attn_attention_desc *desc);
/* out = gelu(x · W_in + b_in) · W_out + b_out */
ATTN_API attn_status attn_mlp(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                              const attn_block_weights *w, attn_gelu_kind kind);
/* mid = x + multihead(layernorm1(x)), causal;  out = mid + mlp(layernorm2(mid)) */
ATTN_API attn_status attn_block(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                const attn_block_weights *w, size_t n_head, float eps);
/* logits [.., V] = x [.., C] · W_Eᵀ for a tied table [V, C]. (Untied: attn_linear.) */
ATTN_API attn_status attn_unembed(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                  attn_tensor table);

/* The kernels' own layout of a weight matrix [K, N], see "panels" in the manual. */
ATTN_API size_t attn_panels_size(attn_dtype dtype, size_t n_in, size_t n_out); /* 0: too large */
/* Writes w [K, N], any strides, as panels of dtype (f32 or f16) into `panels`. */
ATTN_API attn_status attn_panels_write(attn_ctx *ctx, void *panels, attn_dtype dtype,
                                       attn_tensor w);

/* f16 (IEEE 754 binary16): widening is exact; narrowing rounds to nearest even, overflow to inf. */
ATTN_API float attn_f32_from_f16(uint16_t half);
ATTN_API uint16_t attn_f16_from_f32(float value);

/* Random numbers: PyTorch's CPU generator after manual_seed (mt19937, Matsumoto & Nishimura
 * 1998), the same on every machine. */
typedef struct attn_rng {
    uint32_t state[624];
    uint32_t next; /* index of the next word */
} attn_rng;
ATTN_API void attn_rng_seed(attn_rng *rng, uint64_t seed); /* the low 32 bits are used */
ATTN_API uint32_t attn_rng_u32(attn_rng *rng);
ATTN_API float attn_rng_uniform(attn_rng *rng); /* in [0, 1), a multiple of 2^-24: torch.rand */

/* >>api-models ==================================================================================*/

typedef struct attn_model attn_model;         /* weights and configuration; read-only once open */
typedef struct attn_session attn_session;     /* one sequence: its tokens, keys and values */
typedef struct attn_tokenizer attn_tokenizer; /* >>api-tokenizer */

typedef struct attn_config {
    uint32_t n_vocab, n_ctx, d_model, n_head, n_layer, d_mlp;
    uint32_t d_head; /* d_model / n_head */
    float ln_eps;
    int tied; /* the unembedding is the embedding */
    int32_t bos, eos; /* beginning and end of text, or -1 */
} attn_config;

/* How to open; zeroed is right for most. */
typedef struct attn_model_desc {
    int skip_checksums; /* do not read the whole file to verify it: faster on a cold disk */
} attn_model_desc;

/* Opens a .attn file: maps it, checks everything in it that could lead a reader astray, verifies
 * the checksums. desc may be NULL. *model is NULL after a failure. */
ATTN_API attn_status attn_model_open(attn_ctx *ctx, attn_model **model, const char *path,
                                     const attn_model_desc *desc);
/* The same from memory, which must outlive the model and be aligned to 64 bytes (else a copy is
 * made). */
ATTN_API attn_status attn_model_open_memory(attn_ctx *ctx, attn_model **model, const void *data,
                                            size_t size, const attn_model_desc *desc);
/* After the last session on it is freed. NULL is fine. */
ATTN_API void attn_model_close(attn_model *model);

ATTN_API const attn_config *attn_model_config(const attn_model *model);
/* NULL if the file has none. Lives as long as the model. */
ATTN_API const attn_tokenizer *attn_model_tokenizer(const attn_model *model);

/* What a file holds, for tools that list it. */
typedef struct attn_tensor_info {
    const char *name;
    attn_dtype dtype;
    int panels; /* 1: layout "panels", 0: rows */
    int ndim;
    uint64_t shape[2];
    uint64_t offset, size, checksum;
} attn_tensor_info;
ATTN_API size_t attn_model_n_tensors(const attn_model *model);
ATTN_API attn_status attn_model_tensor_info(attn_ctx *ctx, const attn_model *model, size_t index,
                                            attn_tensor_info *info);
/* A weight as a tensor: f32, dense, in the shape of the table above (W_QKV [C, 3C] and so on;
 * embed.W_E as [V, C]). */
ATTN_API attn_status attn_model_tensor(attn_ctx *ctx, const attn_model *model, const char *name,
                                       attn_tensor *out);

/* How large a session to make; zeroed: the model's full n_ctx. */
typedef struct attn_session_desc {
    size_t n_ctx;   /* tokens it can hold, 1 to the model's n_ctx; 0: all of it */
    size_t n_batch; /* most rows computed at once; 0: 256. Larger is a little faster on long
                       prompts and takes more memory; results do not depend on it */
} attn_session_desc;

/* Bytes that attn_session_new would allocate. desc may be NULL. */
ATTN_API attn_status attn_session_size(attn_ctx *ctx, const attn_model *model,
                                       const attn_session_desc *desc, size_t *bytes);
/* A session that holds no tokens yet. The model must outlive it. *session is NULL on failure. */
ATTN_API attn_status attn_session_new(attn_ctx *ctx, attn_session **session,
                                      const attn_model *model, const attn_session_desc *desc);
ATTN_API void attn_session_free(attn_session *session); /* NULL is fine */

/* Runs the model over n_tokens more tokens (at least one; they join the session) and leaves the
 * logits of the last one in attn_logits(). One call, many calls or one token at a time: the same
 * bits. On failure the session is as it was. */
ATTN_API attn_status attn_feed(attn_ctx *ctx, attn_session *session, const int32_t *tokens,
                               size_t n_tokens);
/* [n_vocab]: logits of the last token fed. NULL before the first. Valid until the next call. */
ATTN_API const float *attn_logits(const attn_session *session);

/* One sequence's part of a batch. */
typedef struct attn_feed_item {
    attn_session *session;
    const int32_t *tokens;
    size_t n_tokens;
    float *logits;      /* NULL: only the last position's, into attn_logits(). Else room for
                           [n_rows, n_vocab], or [n_tokens, n_vocab] if rows is NULL */
    const size_t *rows; /* which of these tokens' logits, in ascending order, counted from 0 */
    size_t n_rows;
} attn_feed_item;
/* Feeds several sequences of one model in one pass over the weights. Every session may appear
 * once. Each gets the bits it would get alone. On failure all sessions are as they were. */
ATTN_API attn_status attn_feed_batch(attn_ctx *ctx, attn_feed_item *items, size_t n_items);

ATTN_API size_t attn_session_length(const attn_session *session);   /* tokens it holds */
ATTN_API size_t attn_session_capacity(const attn_session *session); /* tokens it can hold */
ATTN_API const int32_t *attn_session_tokens(const attn_session *session);
ATTN_API const attn_model *attn_session_model(const attn_session *session);
/* Forgets all tokens from position `length` on. attn_logits() is NULL until the next feed. */
ATTN_API attn_status attn_rewind(attn_ctx *ctx, attn_session *session, size_t length);
/* Makes `to` hold what `from` holds (same model; room enough). To try several continuations of one
 * prompt, feed it once and copy it. */
ATTN_API attn_status attn_session_copy(attn_ctx *ctx, attn_session *to, const attn_session *from);

/* Feeds a text and gives nll[t] = -log p(tokens[t + 1] | everything before), t = 0 .. n-2, in
 * nats. nll has room for n_tokens - 1; *mean (may be NULL) is their mean. Needs memory for a few
 * rows of logits, never for [T, n_vocab]. */
ATTN_API attn_status attn_score(attn_ctx *ctx, attn_session *session, const int32_t *tokens,
                                size_t n_tokens, float *nll, double *mean);

/* How to pick a token; zeroed: greedy, the first of the largest logits. Otherwise, in this order:
 * the repetition penalty, division by the temperature, then the filters top-k, top-p, min-p, each
 * on what the one before left, then one draw. */
typedef struct attn_sampler_desc {
    float temperature;    /* 0: greedy */
    int32_t top_k;        /* keep the k likeliest; 0: all */
    float top_p;          /* keep the likeliest that together reach p; 0 or 1: all */
    float min_p;          /* keep those at least min_p times as likely as the likeliest; 0: all */
    float repeat_penalty; /* logits of tokens seen before: divided by it if positive, else
                             multiplied (Keskar et al. 2019); 0 or 1: none */
    size_t repeat_last;   /* how many of the last tokens count as seen; 0: all of them */
    uint64_t seed;
} attn_sampler_desc;

typedef struct attn_sampler attn_sampler;
ATTN_API attn_status attn_sampler_new(attn_ctx *ctx, attn_sampler **sampler, size_t n_vocab,
                                      const attn_sampler_desc *desc);
ATTN_API void attn_sampler_free(attn_sampler *sampler);
/* Picks from logits [n_vocab]; `seen` are the n_seen tokens so far, for the repetition penalty.
 * NaN logits are an error. Allocates nothing. */
ATTN_API attn_status attn_sample(attn_ctx *ctx, attn_sampler *sampler, const float *logits,
                                 const int32_t *seen, size_t n_seen, int32_t *token);

/* Receives text as it is made, always whole UTF-8 characters (bytes that are none come as U+FFFD).
 * Return 0 to go on, anything else to stop. */
typedef int (*attn_text_fn)(const char *text, size_t size, void *user);

/* How to generate; zeroed: greedy, 100 tokens or to the end of text or of the context. */
typedef struct attn_generate_desc {
    attn_sampler_desc sampler;
    size_t max_tokens;      /* 0: 100 */
    int prepend_bos;        /* begin an empty session with the beginning-of-text token */
    int allow_special;      /* special tokens in the prompt count as such, not as their letters */
    int ignore_eos;         /* go on through the end-of-text token */
    const int32_t *prompt_ids; /* if not NULL: these n_prompt_ids instead of the prompt text */
    size_t n_prompt_ids;
    int32_t *ids;           /* if not NULL: receives the generated ids, room for max_tokens */
    size_t *n_ids;          /* if not NULL: receives their number */
} attn_generate_desc;
/* Feeds the prompt (may be empty if the session holds tokens), then samples and feeds until done,
 * handing text to `fn` (may be NULL; a model without tokenizer hands over none). The prompt is not
 * echoed. ATTN_STOPPED if fn stopped it; a full context ends quietly. */
ATTN_API attn_status attn_generate(attn_ctx *ctx, attn_session *session, const char *prompt,
                                   const attn_generate_desc *desc, attn_text_fn fn, void *user);

/* >>api-tokenizer ===============================================================================
 *
 * GPT-2's byte-level BPE, exact, for any vocabulary of that kind. Any bytes can be encoded, valid
 * UTF-8 or not, and decoding gives them back. Time is near-linear in the input, whatever it is. */

/* From a tokenizer section as the file format describes it (a model brings its own:
 * attn_model_tokenizer). The data must outlive it. *tokenizer is NULL on failure. */
ATTN_API attn_status attn_tokenizer_new(attn_ctx *ctx, attn_tokenizer **tokenizer, const void *data,
                                        size_t size);
ATTN_API void attn_tokenizer_free(attn_tokenizer *tokenizer);
ATTN_API size_t attn_tokenizer_n_tokens(const attn_tokenizer *tokenizer);
/* The bytes of one token, not ended by a zero, often not whole UTF-8. NULL if there is none. */
ATTN_API const char *attn_token_bytes(const attn_tokenizer *tokenizer, int32_t id, size_t *size);

/* Text to ids. *n_ids gets how many there are, even when that is more than capacity (then
 * ATTN_E_SPACE; ids may be NULL with capacity 0 to ask, and size is always enough).
 * allow_special: "<|endoftext|>" in the text becomes its token instead of its letters. */
ATTN_API attn_status attn_encode(attn_ctx *ctx, const attn_tokenizer *tokenizer, const char *text,
                                 size_t size, int allow_special, int32_t *ids, size_t capacity,
                                 size_t *n_ids);
/* Ids to bytes, likewise. No zero is added at the end. */
ATTN_API attn_status attn_decode(attn_ctx *ctx, const attn_tokenizer *tokenizer, const int32_t *ids,
                                 size_t n_ids, char *text, size_t capacity, size_t *size);

/* Whole characters out of a stream of pieces: keeps what does not end a UTF-8 character yet. */
typedef struct attn_utf8 {
    unsigned char bytes[4];
    int n;
} attn_utf8;
/* Takes one piece of at most `size` bytes, writes whole characters to `text` (room for
 * 3 * (size + 4) bytes) and returns how many bytes that is. size = 0 flushes what is left. Bytes
 * that are no UTF-8 become U+FFFD, one for each maximal part (Unicode 15, 3.9). */
ATTN_API size_t attn_utf8_push(attn_utf8 *state, const char *bytes, size_t size, char *text);

/* >>api-hooks ===================================================================================
 *
 * Every activation has the name that TransformerLens gives it ("blocks.3.attn.hook_pattern").
 * A hook is called when one comes by; it may read it, and what it writes is what the model goes on
 * with. */

typedef struct attn_activation {
    const char *name;     /* full name */
    int layer;            /* or -1 */
    attn_session *session;
    size_t first;         /* position of the first row in the sequence */
    attn_tensor value;    /* without the batch dimension: [T, C], [T, H, d], [H, T, Tk] or [T, 1] */
} attn_activation;

/* Return 0 to go on, anything else to stop: the feed then returns ATTN_STOPPED and the session is
 * as it was before it. */
typedef int (*attn_hook_fn)(const attn_activation *activation, void *user);

/* Calls fn for every activation of this session whose name matches; `*` in the pattern matches any
 * run of characters. Both meanings of hook_normalized are there: `ln1.hook_normalized.pre` before
 * gain and bias, `.post` after. */
ATTN_API attn_status attn_hook(attn_ctx *ctx, attn_session *session, const char *pattern,
                               attn_hook_fn fn, void *user);
ATTN_API void attn_unhook_all(attn_session *session);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_H */

#if (defined(ATTN_IMPLEMENTATION) || defined(ATTN_STATIC)) && !defined(ATTN__IMPLEMENTED)
#define ATTN__IMPLEMENTED

/* >>platform ====================================================================================
 * What differs between compilers and systems is settled here once. */

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ATTN_STATIC
#define ATTN__DEF ATTN_API
#else
#define ATTN__DEF
#endif

#if defined(__GNUC__) /* and clang */
#define ATTN__INLINE       static inline __attribute__((always_inline))
#define ATTN__PRINTF(a, b) __attribute__((format(printf, a, b)))
#define ATTN__ALIGN64      __attribute__((aligned(64)))
#elif defined(_MSC_VER)
#define ATTN__INLINE       static __forceinline
#define ATTN__PRINTF(a, b)
#define ATTN__ALIGN64      __declspec(align(64))
#else
#define ATTN__INLINE       static inline
#define ATTN__PRINTF(a, b)
#define ATTN__ALIGN64
#endif

#if defined(__clang__)
#define ATTN__UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define ATTN__UNROLL _Pragma("GCC unroll 32")
#else
#define ATTN__UNROLL
#endif

/* C++ wants casts from void *, C does not mind them. */
#define ATTN__AS(type, expression) ((type)(expression))
#define ATTN__LLU(x)               ((unsigned long long)(x))

/* >>memory ======================================================================================
 * Contexts, errors and allocation. Every block starts at a multiple of 64 bytes, because lines are
 * 64 bytes; the blocks of tensors are chained in the context so that one call can free them. */

static attn_status attn__fail(attn_ctx *ctx, attn_status status, const char *format, ...)
    ATTN__PRINTF(3, 4);
static attn_status attn__fail(attn_ctx *ctx, attn_status status, const char *format, ...)
{
    va_list args;
    ctx->status = status;
    va_start(args, format);
    vsnprintf(ctx->message, sizeof ctx->message, format, args);
    va_end(args);
    return status;
}

/* What an object needs to free itself after the context that made it is gone. */
typedef struct attn__allocator {
    void *(*alloc)(size_t size, void *user);
    void (*free)(void *block, void *user);
    void *user;
} attn__allocator;

/* Sits right before every allocated block. */
typedef struct attn__block {
    struct attn__block *next, **link; /* chain of the context's tensors; link is NULL if in none */
    void *base;                       /* what the allocator returned */
    attn__allocator allocator;
} attn__block;

static int attn__mul_overflows(size_t a, size_t b, size_t *product)
{
    *product = a * b;
    return a != 0 && b > SIZE_MAX / a;
}

static size_t attn__round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* `what` names the purpose in the message. The bytes are zero. NULL after a failure. */
static void *attn__alloc(attn_ctx *ctx, size_t size, const char *what)
{
    const size_t extra = sizeof(attn__block) + 64;
    attn__block *block;
    unsigned char *base, *start;

    base = size > SIZE_MAX - extra ? NULL
           : ctx->alloc           ? ATTN__AS(unsigned char *, ctx->alloc(size + extra, ctx->user))
                                  : ATTN__AS(unsigned char *, calloc(1, size + extra));
    if (!base) {
        attn__fail(ctx, ATTN_E_MEMORY, "no memory for %s (%llu bytes)", what, ATTN__LLU(size));
        return NULL;
    }
    if (ctx->alloc) /* calloc's pages are zero without being touched */
        memset(base, 0, size + extra);
    start = base + sizeof(attn__block);
    start += (64 - (uintptr_t)start % 64) % 64;
    block = (attn__block *)(void *)(start - sizeof(attn__block));
    block->next = NULL;
    block->link = NULL;
    block->base = base;
    block->allocator.alloc = ctx->alloc;
    block->allocator.free = ctx->free;
    block->allocator.user = ctx->user;
    return start;
}

static void attn__free(void *start)
{
    attn__block *block;
    attn__allocator allocator;
    if (!start)
        return;
    block = (attn__block *)(void *)((unsigned char *)start - sizeof(attn__block));
    if (block->link) {
        *block->link = block->next;
        if (block->next)
            block->next->link = block->link;
    }
    allocator = block->allocator;
    if (allocator.free)
        allocator.free(block->base, allocator.user);
    else if (!allocator.alloc)
        free(block->base);
}

/* Chains a block into the context, for attn_ctx_free. */
static void attn__chain(attn_ctx *ctx, void *start)
{
    attn__block *block = (attn__block *)(void *)((unsigned char *)start - sizeof(attn__block));
    block->next = ctx->blocks;
    block->link = &ctx->blocks;
    if (block->next)
        block->next->link = &block->next;
    ctx->blocks = block;
}

ATTN__DEF void attn_ctx_free(attn_ctx *ctx)
{
    while (ctx->blocks)
        attn__free((unsigned char *)ctx->blocks + sizeof(attn__block));
}

ATTN__DEF int attn_version(void) { return ATTN_VERSION; }

ATTN__DEF const char *attn_status_name(attn_status status)
{
    static const char *const names[] = {
        "ATTN_OK",         "ATTN_E_ARGUMENT",  "ATTN_E_SHAPE",       "ATTN_E_MEMORY",
        "ATTN_E_SPACE",    "ATTN_E_IO",        "ATTN_E_FORMAT",      "ATTN_E_VERSION",
        "ATTN_E_CHECKSUM", "ATTN_E_TOKEN",     "ATTN_E_CONTEXT",     "ATTN_E_TOKENIZER",
        "ATTN_E_UNSUPPORTED", "ATTN_E_NAME",   "ATTN_STOPPED"};
    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "unknown status";
}

/* Little-endian numbers, read byte by byte so that host order and alignment do not matter. */
static uint32_t attn__u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t attn__u64(const unsigned char *p)
{
    return (uint64_t)attn__u32(p) | (uint64_t)attn__u32(p + 4) << 32;
}

/*NEXT*/
#endif
#endif

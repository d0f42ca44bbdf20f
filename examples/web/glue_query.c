/* The module of questions: tools/waist/query.h, with all programs that answer. JavaScript calls its functions by their
 * addresses and reads its structs where they lie; attn.js is the other half.
 *
 * It is loaded beside the module of glue.c and has no attn.h of its own: it calls the one there, whichever variant that is, and
 * shares its memory, so that a model lies once, and its table of functions, so that each may call the other's. web.mk
 * keeps what both put there apart. */
#ifdef __wasm__
#include "no_signals.h"
#endif
#include "tools/common/system.h"
#define LENS_FN extern
#include "attn.h"
#define PROGRAM "lens"
#define INPUT   "text"
#include "tools/waist/programs.h"

#ifdef __wasm__
#define EXPORT(name)         __attribute__((export_name(#name)))
#define IMPORT(module, name) __attribute__((import_module(#module), import_name(#name)))

/* Where attn.js reads the members. */
_Static_assert(offsetof(lens_table, axes) == 20 && offsetof(lens_table, is_dense) == 44, "table");
_Static_assert(offsetof(lens_values, numbers) == 20 && sizeof(lens_values) == 36, "values");
_Static_assert(offsetof(lens_setting, option) == 80 && sizeof(lens_setting) == 116, "setting");

/* There is one heap, that of the other module. */
#define SHARED(type, name, parameters, arguments)                                                  \
    IMPORT(env, name) type shared_##name parameters;                                               \
    type name parameters                                                                           \
    {                                                                                              \
        return shared_##name arguments;                                                            \
    }
SHARED(void *, malloc, (size_t size), (size))
SHARED(void *, calloc, (size_t count, size_t size), (count, size))
SHARED(void *, realloc, (void *block, size_t size), (block, size))
SHARED(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
SHARED(void, free, (void *block), (block))
#else /* for tools that read the code with another compiler */
#define EXPORT(name)
#define IMPORT(module, name)
#endif

/* Anything but 0 stops. */
IMPORT(attn, progress) int glue_js_progress(double done);

static int tell_js(double done, void *user)
{
    (void)user;
    return glue_js_progress(done);
}

EXPORT(glue_step) int glue_step(attn_ctx *ctx, lens_query *q, double *done);
int glue_step(attn_ctx *ctx, lens_query *q, double *done) /* as lens_query_step */
{
    q->progress_fn = tell_js;
    return (int)lens_query_step(ctx, q, done);
}

/* What the research headers read: sparse autoencoders, control vectors, tuned lenses. Whatever the
 * files hold, they get a message, or can be used. */
#include "tools/common/system.h"
#include "fuzz_files.h"
#include "tools/lens/control.h"
#include "tools/lens/sae_files.h"
#include "tools/lens/tuned.h"

static const int32_t text[] = {'a', 'b', 'c', END};
enum { N_TEXT = sizeof text / sizeof text[0] };

/* A file that begins with `head`, behind its size if it is the header of safetensors, and goes on
 * with `size` bytes of floats between -1 and 1. */
static void put_numbers(const char *name, input head, int safetensors, size_t size)
{
    const size_t n = safetensors ? (head.size + 7) / 8 * 8 + 8 : head.size;
    unsigned char *bytes = (unsigned char *)malloc(n + size + 4);
    uint32_t noise = 1, bits;
    float value;
    MUST(bytes);
    memset(bytes, ' ', n);
    if (safetensors)
        put_u64(bytes, n - 8);
    if (head.size)
        memcpy(bytes + (safetensors ? 8 : 0), head.data, head.size);
    for (size_t i = 0; i < size; i += 4) {
        noise = noise * 1664525u + 1013904223u;
        value = (float)(noise >> 8) / 8388608 - 1;
        memcpy(&bits, &value, 4);
        put_u32(bytes + n + i, bits);
    }
    put_file(name, bytes, n + size, 0);
    free(bytes);
}

/* The input is small: what asks for more memory than there is asks for too much. */
static void must_say_why(const attn_ctx *ctx)
{
    MUST(ctx->status != ATTN_OK && ctx->status != ATTN_E_MEMORY && ctx->message[0]);
}

/* Feeds a text under a hook. Without a `said`, nothing may be wrong. */
static void feed_under(attn_ctx *ctx, const char *pattern, attn_hook_fn fn, void *user,
                       const attn_ctx *said)
{
    attn_session *session = NULL;
    MUST(attn_session_new(ctx, &session, fuzz_model(), NULL) == ATTN_OK);
    if (attn_hook(ctx, NULL, session, pattern, fn, user) != ATTN_OK)
        MUST(said && ctx->status == ATTN_E_NAME);
    else if (attn_feed(ctx, session, text, N_TEXT) != ATTN_OK)
        MUST(said && said->message[0]);
    attn_session_free(session);
    ctx->status = ATTN_OK;
}

static void use_autoencoder(attn_ctx *ctx, const lens_sae *sae)
{
    const lens_sae_change changes[] = {{0, LENS_SAE_CLAMP, 2}, {sae->m - 1, LENS_SAE_STEER, -1}};
    attn_tensor x = ATTN_ZERO, features = ATTN_ZERO, rebuilt = ATTN_ZERO;
    size_t i, n_active;
    MUST(attn_zeros(ctx, &x, ATTN_F32, attn_shape2(2, sae->n)) == ATTN_OK);
    for (i = 0; i < 2 * sae->n; i++)
        ((float *)x.data)[i] = (float)(i % 7) - 3;
    MUST(lens_sae_encode(ctx, &features, sae, x) == ATTN_OK);
    MUST(lens_sae_decode(ctx, &rebuilt, sae, features, x) == ATTN_OK);
    for (size_t t = 0; t < 2; t++) {
        for (i = n_active = 0; i < sae->m; i++)
            n_active += attn_get2(features, t, i) > 0;
        MUST(sae->kind != LENS_SAE_TOPK || n_active <= sae->k);
    }
    attn_tensor_free(ctx, &x);
    attn_tensor_free(ctx, &features);
    attn_tensor_free(ctx, &rebuilt);
    lens_sae_watch watch = {.sae = sae, .changes = changes, .n_changes = 2};
    feed_under(ctx, sae->hook, lens_sae_hook, &watch, &watch.ctx);
    watch.keep_error = 1;
    feed_under(ctx, sae->hook, lens_sae_hook, &watch, &watch.ctx);
    lens_sae_end(&watch);
    attn_ctx_free(&watch.ctx);
}

static void try_control(attn_ctx *ctx, const char *path)
{
    lens_control control = {.strength = 0.5f};
    if (lens_control_open(ctx, &control.directions, fuzz_model(), path) == ATTN_OK)
        feed_under(ctx, LENS_CONTROL_POINTS, lens_control_hook, &control, NULL);
    else
        must_say_why(ctx);
    attn_tensor_free(ctx, &control.directions);
}

static void try_tuned(attn_ctx *ctx, const char *path)
{
    lens_tuned tuned = ATTN_ZERO;
    attn_tensor x = ATTN_ZERO;
    if (lens_tuned_open(ctx, &tuned, fuzz_model(), path) != ATTN_OK) {
        must_say_why(ctx);
        return;
    }
    MUST(attn_zeros(ctx, &x, ATTN_F32, attn_shape2(3, WIDE)) == ATTN_OK);
    for (size_t i = 0; i <= LAYERS; i++)
        MUST(lens_tuned_apply(ctx, &x, &tuned, i, x) == ATTN_OK);
    attn_tensor_free(ctx, &x);
    lens_tuned_free(ctx, &tuned);
}

/* One byte: 0 an autoencoder, 1 a control vector in GGUF, 2 in safetensors, 3 a tuned lens. Two bytes:
 * half of the size of its numbers. Then cfg.json and the header of the safetensors; or all of the GGUF
 * but its numbers; or the header. */
int fuzz_lens(const unsigned char *data, size_t size)
{
    const int kind = size ? data[0] % 4 : 0;
    const size_t n = size < 3 ? 0 : 2 * ((size_t)data[1] | (size_t)data[2] << 8);
    char path[128];
    input in = {NULL, 0}, cfg;
    lens_sae sae = ATTN_ZERO;
    attn_ctx ctx = {.n_threads = 1};
    in.data = data + (size < 3 ? size : 3);
    in.size = size < 3 ? 0 : size - 3;
    snprintf(path, sizeof path, "%s/%s", place(), kind == 1 ? "in.gguf" : "in.safetensors");
    if (kind == 0) {
        cfg = next_part(&in);
        put_file("cfg.json", cfg.data, cfg.size, 0);
        put_numbers("sae_weights.safetensors", in, 1, n);
        if (lens_sae_open(&ctx, &sae, place()) == ATTN_OK)
            use_autoencoder(&ctx, &sae);
        else
            must_say_why(&ctx);
        lens_sae_free(&ctx, &sae);
        drop_file("cfg.json");
        drop_file("sae_weights.safetensors");
    } else {
        put_numbers(base_name(path), in, kind != 1, n);
        if (kind == 3)
            try_tuned(&ctx, path);
        else
            try_control(&ctx, path);
        remove(path);
    }
    attn_ctx_free(&ctx);
    return 0;
}

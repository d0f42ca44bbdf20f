/* tools/lens/control.h and tuned.h: files that the packages wrote, against transformers in float64
 * (makers/make_steering_fixtures.py), and files that must be refused. */
#define FIXTURE_FILE "tests/fixtures/steering/steering.bin"
#include "tools/lens/control.h"
#include "tools/lens/save.h"
#include "tools/lens/decompose.h"
#include "tools/lens/logits.h"
#include "tools/lens/tuned.h"
#include "tests/support/refused.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("narrow");

#define FILES "tests/fixtures/steering/"

TEST(control_vectors)
{
    static const char *const files[][2] = {{"control", FILES "control.gguf"},
                                           {"rows", FILES "rows.safetensors"},
                                           {"layers", FILES "layers.safetensors"}};
    const attn_tensor ids = fixture_tensor("tokens");
    SCOPED_CTX ctx = alone();
    for (size_t i = 0; i < 3; i++) {
        lens_control control = {.strength = 1.5f};
        OK(&ctx, lens_control_open(&ctx, &control.directions, narrow, files[i][1]));
        attn_tensor got =
            attn_borrow(hooked(narrow, (const int32_t *)ids.data, 9, 4, LENS_CONTROL_POINTS,
                               lens_control_hook, &control, NULL, NULL),
                        ATTN_F32, attn_shape2(9, 43));
        close_to(got, fixture_tensor(files[i][0]), 1e-5, files[i][0]);
        attn_tensor_free(&ctx, &control.directions);
    }
}

/* A file of tensors of these names and shapes; columns 0: one dimension. */
static const char *file_of(const char *const *names, size_t n, int rows, int columns)
{
    attn_ctx ctx = alone();
    attn_tensor values[8];
    const char *const path = test_tmp("vectors.safetensors");
    for (size_t i = 0; i < n; i++)
        values[i] = columns ? random_tensor(2, rows, columns) : random_tensor(1, rows);
    OK(&ctx, lens_save(&ctx, path, names, values, n));
    attn_ctx_free(&ctx);
    return path;
}

/* The GGUF fixture with some bytes changed. */
static const char *damaged(const char *what, const char *with)
{
    size_t size, n = strlen(what), found = 0;
    unsigned char *file = test_read(FILES "control.gguf", &size);
    const char *const path = test_tmp("damaged.gguf");
    if (!CHECK(file && strlen(with) == n))
        return path;
    for (size_t i = 0; i + n <= size && !found; i++)
        if (memcmp(file + i, what, n) == 0) {
            memcpy(file + i, with, n);
            found = 1;
        }
    CHECKF(found, "no \"%s\" in the fixture", what);
    test_write(path, file, size);
    free(file);
    return path;
}

TEST(control_vectors_refused)
{
    static const char *const rows[] = {"direction.1", "direction.3"}, *const left[] = {"left"};
    attn_tensor other = ATTN_ZERO;
    lens_control control = ATTN_ZERO;
    SCOPED_CTX ctx = alone();
    attn_activation a = ATTN_ZERO;
#define REFUSES(status, text, path)                                                                \
    REFUSED_AS(status, text, lens_control_open(&ctx, &not_made, narrow, path))
    REFUSES(ATTN_E_FORMAT, "direction.3; expected direction.0 to direction.2",
            file_of(rows, 2, 20, 0));
    REFUSES(ATTN_E_FORMAT, "is [19] of F32; expected floats of [20]", file_of(rows, 1, 19, 0));
    REFUSES(ATTN_E_FORMAT, "the tensor left; expected direction.0 to direction.2, or a single",
            file_of(left, 1, 20, 0));
    REFUSES(ATTN_E_FORMAT, "is [2, 20] of F32; expected floats of [3, 20]",
            file_of(left, 1, 2, 20));
    REFUSES(ATTN_E_FORMAT, "direction.0; expected direction.1 to direction.2",
            damaged("direction.1", "direction.0"));
    REFUSES(ATTN_E_FORMAT, "direction.x", damaged("direction.2", "direction.x"));
    REFUSES(ATTN_E_UNSUPPORTED, "its architecture is controlvectoR; expected controlvector",
            damaged("controlvector", "controlvectoR"));
    REFUSES(ATTN_E_FORMAT, "there twice", damaged("direction.2", "direction.1"));
    REFUSES(ATTN_E_IO, "no-such", FILES "no-such.gguf");
    REFUSES(ATTN_E_ARGUMENT, "no file", NULL);
    REFUSED(ARGUMENT, "no model", lens_control_open(&ctx, &not_made, NULL, FILES "control.gguf"));
    other = random_tensor(2, 3, 19);
    control.directions = other;
    a.name = "blocks.0.hook_resid_post";
    a.value = random_tensor(2, 4, 20);
    EQUAL(lens_control_hook(&a, &control), 1);
    CHECK(strstr(control.ctx.message, "blocks.0.hook_resid_post has shape [4, 20]"));
}

/* Opens a lens and compares its logits, of layers from `first` on. The streams of other layers have no map. */
static void check_lens(attn_ctx *ctx, lens_tuned *lens, const char *name, size_t first,
                       attn_tensor *streams)
{
    static const attn_tensor own = ATTN_ZERO;
    const attn_tensor ids = fixture_tensor("tokens");
    char text[64];
    lens_parts_desc what = {.tokens = (const int32_t *)ids.data, .n_tokens = 9};
    snprintf(text, sizeof text, FILES "%s.safetensors", name);
    OK(ctx, lens_tuned_open(ctx, lens, narrow, text));
    OK(ctx, lens_decompose(ctx, streams, NULL, narrow, &what));
    for (size_t i = 0; i < 4; i++) {
        attn_tensor x = no_tensor, logits = no_tensor;
        const attn_tensor stream = attn_select(*streams, 0, i);
        OK(ctx, lens_tuned_apply(ctx, &x, lens, i, stream));
        if (i < first || i == 3) {
            same_bits(x, stream, "a stream without a map");
            continue;
        }
        OK(ctx, lens_logit_lens(ctx, &logits, narrow, x, own, own));
        snprintf(text, sizeof text, "%s.%d", name, (int)i);
        close_to(logits, fixture_tensor("%s", text), 1e-5, text);
    }
}

TEST(tuned_lens)
{
    attn_tensor streams = ATTN_ZERO;
    lens_tuned tuned = ATTN_ZERO;
    SCOPED_CTX ctx = alone();
    check_lens(&ctx, &tuned, "tuned", 0, &streams);
    REFUSED(ARGUMENT, "layer 4",
            lens_tuned_apply(&ctx, &not_made, &tuned, 4, attn_select(streams, 0, 0)));
    REFUSED(SHAPE, "expected [T, 20]",
            lens_tuned_apply(&ctx, &not_made, &tuned, 0, random_tensor(2, 9, 19)));
    lens_tuned_free(&ctx, &tuned);
    REFUSED(ARGUMENT, "no lens",
            lens_tuned_apply(&ctx, &not_made, &tuned, 0, attn_select(streams, 0, 0)));
}

TEST(jacobian_lens)
{
    attn_tensor streams = ATTN_ZERO;
    lens_tuned lens = ATTN_ZERO;
    SCOPED_CTX ctx = alone();
    check_lens(&ctx, &lens, "jacobian", 1, &streams);
    lens_tuned_free(&ctx, &lens);
}

TEST(tuned_lenses_refused)
{
    static const char *const names[] = {"0.weight", "0.bias",   "1.weight",
                                        "1.bias",   "2.weight", "2.biases"};
    static const char *const jacobian[] = {"J.0", "J.2", "J.1"};
    lens_tuned tuned = ATTN_ZERO;
    SCOPED_CTX ctx = alone();
#define NO_LENS(text, path)                                                                        \
    FAILS(FORMAT, text, lens_tuned_open(&ctx, &tuned, narrow, path));                              \
    CHECK(tuned.weight.ndim == 0 && tuned.bias.ndim == 0)
    NO_LENS("has 3 tensors; expected 0.weight", file_of(names, 3, 20, 20));
    NO_LENS("0.bias is [20, 20] of F32; expected floats of [20]", file_of(names, 6, 20, 20));
    NO_LENS("0.weight is [20, 19] of F32; expected floats of [20, 20]", file_of(names, 6, 20, 19));
    NO_LENS("has 3 tensors; expected 0.weight", file_of(jacobian, 3, 20, 20));
    NO_LENS("J.0 is [20, 19] of F32; expected floats of [20, 20]", file_of(jacobian, 2, 20, 19));
    NO_LENS("has no tensor J.1", file_of(jacobian, 2, 20, 20));
    NO_LENS("a safetensors file is expected", FILES "control.gguf");
    FAILS(ARGUMENT, "NULL", lens_tuned_open(&ctx, &tuned, narrow, NULL));
}

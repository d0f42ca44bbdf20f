/* The commands decompose, heads and circuits of tools/lens/program/lens.c, against numpy in float64
 * (makers/make_circuit_fixtures.py). */
#define FIXTURE_FILE "tests/fixtures/circuits.bin"
#include "tests/support/test.h"
#include "tools/lens/spectrum.h"
#include "tests/support/printed_answer.h"
#include "tests/support/shared_models.h"
#include "tests/support/command.h"

static json_value *root;

static int set_up(void)
{
    return open_models("narrow");
}

static void tear_down(void)
{
    close_models();
    free(root);
    root = NULL;
    forget();
}

SUITE_WITH(set_up, tear_down);

#define LENS   TEST_BUILD "/lens "
#define TMP    TEST_TMP
#define NARROW TMP "narrow.attn "

/* The ids of a text, as --ids takes them. */
static const char *ids_of(const char *fixture_name)
{
    static char text[128];
    const attn_tensor ids = fixture_tensor("%s", fixture_name);
    size_t at = 0;
    for (size_t i = 0; i < count_of(ids); i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d ", ((const int32_t *)ids.data)[i]);
    return text;
}

static const json_value *parse(const char *format, ...)
{
    char command[512];
    attn_ctx ctx = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    free(root);
    root = NULL;
    if (CHECKF(run("%s", command) == 0, "%s: %s", command, err))
        OK(&ctx, json_parse(&ctx, "output", out, out_size, &root));
    return root;
}

TEST(parts_in_files)
{
    static const char *const kinds[] = {"streams", "streams-mid", "sublayers",
                                        "attns",   "mlps",        "heads"};
    for (size_t kind = 0; kind < 6; kind++) {
        const attn_tensor want = fixture_tensor("parts.%d.1.1.1", (int)kind);
        const json_value *all =
            parse(LENS NARROW "decompose --ids '%s' --kind %s --layer 1 --mlp-input --apply-ln "
                              "--json -q -o " TMP "parts.safetensors",
                  ids_of("tokens"), kinds[kind]);
        const size_t n = count_of(fixture_tensor("tokens"));
        size_t size = 0;
        SCOPED_BYTES file = test_read(TMP "parts.safetensors", &size);
        if (CHECK(file && all)) {
            EQUAL(member(all, "parts")->size, want.shape[0] * n);
            close_to(attn_slice(stored_tensor(file, "stack"), 1, 4, 2), want, 1e-6, kinds[kind]);
            for (size_t part = 0; part < want.shape[0]; part++) {
                double sum = 0;
                for (size_t k = 0; k < want.shape[2]; k++)
                    sum += pow((double)attn_get3(want, part, 0, k), 2);
                CHECK(fabs(number(cell(all, "parts", part * n + 4, "size")) - sqrt(sum)) < 1e-5);
            }
        }
    }
}

/* At one position, times the direction of a logit: the largest neurons, largest first. */
TEST(largest_neurons)
{
    attn_ctx ctx = alone();
    attn_tensor w_u = no_tensor, gain = no_tensor;
    double before = INFINITY, stream[20] = {0}, mean = 0, scale = 0;
    size_t size;
    OK(&ctx, attn_model_tensor(&ctx, &w_u, narrow, "unembed.W_U"));
    OK(&ctx, attn_model_tensor(&ctx, &gain, narrow, "ln_final.w"));
    const json_value *all = parse(
        LENS NARROW "decompose --ids '%s' --kind neurons --at 5 -q --json -o " TMP "n.safetensors",
        ids_of("tokens"));
    CHECK(json_is(cell(all, "parts", 12 + 50 + 7, "part"), "L1N7"));
    EQUAL(number(cell(all, "parts", 0, "position")), 5);
    unsigned char *file = test_read(TMP "n.safetensors", &size);
    all = parse(LENS NARROW "decompose --ids '%s' --kind neurons --at 5 --token 7 --top 3 --json",
                ids_of("tokens"));
    if (!CHECK(file && all))
        return;
    attn_tensor stack = stored_tensor(file, "stack");
    EQUAL(stack.shape[1], 1);
    for (size_t i = 0; i < stack.shape[0] * 20; i++)
        stream[i % 20] += (double)attn_get3(stack, i / 20, 0, i % 20);
    for (size_t k = 0; k < 20; k++)
        mean += stream[k] / 20;
    for (size_t k = 0; k < 20; k++)
        scale += (stream[k] - mean) * (stream[k] - mean) / 20;
    scale = sqrt(scale + (double)attn_model_config(narrow)->ln_eps);
    EQUAL(number(fact(all, "target_id")), 7);
    EQUAL(member(all, "parts")->size, 3);
    for (size_t i = 0; i < 3; i++) {
        const json_value *label = cell(all, "parts", i, "part");
        const double got = number(cell(all, "parts", i, "contribution"));
        unsigned long layer = 0, neuron = 0;
        CHECK(fabs(got) <= before);
        before = fabs(got);
        if (label->text[0] != 'L' || sscanf(label->text, "L%luN%lu", &layer, &neuron) != 2)
            continue; /* the embeddings and the bias are among them */
        double sum = 0;
        mean = 0;
        for (size_t k = 0; k < 20; k++)
            mean += (double)attn_get3(stack, 12 + layer * 50 + neuron, 0, k) / 20;
        for (size_t k = 0; k < 20; k++)
            sum += ((double)attn_get3(stack, 12 + layer * 50 + neuron, 0, k) - mean) / scale *
                   (double)attn_get1(gain, k) * (double)attn_get2(w_u, k, 7);
        CHECKF(fabs(sum - got) < 1e-5, "L%luN%lu: %g, not %g", layer, neuron, got, sum);
    }
    free(file);
    attn_ctx_free(&ctx);
    CHECK(run(LENS NARROW "decompose --ids '1 2' --no-embeds --kind mlps") == 0 &&
          strstr(out, "2_mlp_out") && !strstr(out, "pos_embed"));
    CHECK(run(LENS NARROW "decompose --ids '1 2' -q -o " TMP "parts.npz") == 0 && out_size == 0);
    CHECK(run(LENS NARROW "decompose --ids '1 2' -q -o " TMP "parts.svg") == 0);
    refuses(1, "layer 4; the model has layers", LENS NARROW "decompose --ids 1 --layer 4");
    refuses(2, "--mlp-input needs --layer", LENS NARROW "decompose --ids 1 --mlp-input");
    refuses(1, "no position 1", LENS NARROW "decompose --ids 1 --at 1");
    refuses(2, "-o draws a picture", LENS NARROW "decompose --ids 1 --json -o x.svg");
    refuses(2, "must end in .html", LENS NARROW "decompose --ids 1 -o x.txt");
    refuses(2, "--kind means nothing to loss", LENS NARROW "loss --ids 1 --kind heads");
}

TEST(options_of_detection)
{
    static const char *const measures[] = {"mul", "abs"};
    for (int measure = 0; measure < 2; measure++)
        for (int bos = 0; bos < 2; bos++)
            for (int current = 0; current < 2; current++) {
                if (measure + bos + current == 0)
                    continue; /* without options the command shows entropies too */
                const json_value *all =
                    parse(LENS NARROW "heads --json --ids '%s' --measure %s %s %s", ids_of("again"),
                          measures[measure], bos ? "--exclude-bos" : "",
                          current ? "--exclude-current-token" : "");
                for (size_t kind = 0; kind < 3; kind++)
                    for (size_t layer = 0; layer < 3; layer++)
                        for (size_t head = 0; head < 4; head++) {
                            const double got =
                                number(cell(all, "heads", (kind * 3 + layer) * 4 + head, "score"));
                            const double want =
                                (double)attn_get2(fixture_tensor("heads.%d.%d.%d.%d", (int)kind,
                                                                 measure, bos, current),
                                                  layer, head);
                            CHECKF(fabs(got - want) < 1e-6, "%g, not %g", got, want);
                        }
            }
}

TEST(a_pattern_from_a_file)
{
    const attn_tensor keys = fixture_tensor("keys"), want = fixture_tensor("heads.3.1.0.0");
    const size_t n = keys.shape[0];
    char *text = (char *)pool_new(n * n * 16);
    size_t at = 0;
    for (size_t i = 0; i < n * n; i++)
        at += (size_t)sprintf(text + at, "%.8g%s", value_of(keys, i), (i + 1) % n ? " " : "\n");
    test_write(TMP "keys.txt", text, at);
    const json_value *all = parse(
        LENS NARROW "heads --json --ids '%s' --measure abs --heads 'L1H3, a2.h0' --pattern " TMP
                    "keys.txt",
        ids_of("again"));
    EQUAL(member(all, "heads")->size, 12);
    CHECK(fabs(number(cell(all, "heads", 7, "score")) - (double)attn_get2(want, 1, 3)) < 1e-6);
    CHECK(fabs(number(cell(all, "heads", 8, "score")) - (double)attn_get2(want, 2, 0)) < 1e-6);
    EQUAL(number(cell(all, "heads", 0, "score")), -1);
    CHECK(json_is(cell(all, "heads", 0, "kind"), "pattern"));
    refuses(1, "has 289 numbers; the text has 2 tokens",
            LENS NARROW "heads --ids '1 2' --pattern " TMP "keys.txt");
    test_write(TMP "keys.txt", "1 0\n1 x", 7);
    refuses(1, "\"x\" is not a number", LENS NARROW "heads --ids '1 2' --pattern " TMP "keys.txt");
    test_write(TMP "keys.txt", "1 1\n1 0", 7);
    refuses(1, "later key", LENS NARROW "heads --ids '1 2' --pattern " TMP "keys.txt");
    refuses(1, "--heads: \"L3H0\": expected a head", LENS NARROW "heads --ids '1 2' --heads L3H0");
    refuses(2, "expected a head such as 0.1", LENS NARROW "heads --ids '1 2' --heads '1.0x'");
    refuses(2, "expected a head such as 0.1", LENS NARROW "heads --ids '1 2' --heads 'L0H1 a1H0'");
    refuses(2, "--heads: \"\": expected a head", LENS NARROW "heads --ids '1 2' --heads ' '");
    refuses(2, "choose mul", LENS NARROW "heads --ids '1 2' --measure sum");
}

TEST(copying)
{
    static const char *const names[] = {"OV", "full_OV"};
    static const char *const scores[] = {"copying_ov", "copying_full"};
    const json_value *const all = parse(LENS NARROW "circuits --json --top 5");
    size_t row = 0;
    for (size_t space = 0; space < 2 && all; space++) {
        const attn_tensor want = fixture_tensor("narrow.copying.%d", (int)space);
        for (size_t head = 0; head < 12; head++) {
            const double score = (double)attn_get2(want, head / 4, head % 4);
            double sum = 0, sizes = 0;
            for (size_t k = 0; k < 5; k++, row++) { /* d_head is 5: these are all */
                const double real = number(cell(all, "eigenvalues", row, "real"));
                CHECK(json_is(cell(all, "eigenvalues", row, "space"), names[space]));
                sum += real;
                sizes += hypot(real, number(cell(all, "eigenvalues", row, "imaginary")));
            }
            CHECK(fabs(sum / sizes - score) < 1e-5);
            CHECK(fabs(number(cell(all, "heads", head, scores[space])) - score) < 1e-5);
        }
    }
}

/* The first pair of vectors of a head, by tokens: those with the largest products, largest first. */
TEST(vectors_of_a_head)
{
    const lens_head of = {1, 2};
    SCOPED_CTX ctx = alone();
    attn_tensor left = no_tensor, right = no_tensor, w_e = no_tensor, w_u = no_tensor;
    lens_svd svd = {no_tensor, no_tensor, no_tensor};
    const json_value *const all = parse(LENS NARROW "circuits --layer 1 --head 2 --top 2 --json");
    const size_t first_ov = 20; /* behind two pairs of vectors of QK, of five tokens a side */
    OK(&ctx, lens_circuit(&ctx, &left, &right, narrow, of, LENS_CIRCUIT_OV));
    OK(&ctx, lens_singular_vectors(&ctx, &svd, left, right));
    OK(&ctx, attn_model_tensor(&ctx, &w_e, narrow, "embed.W_E"));
    OK(&ctx, attn_model_tensor(&ctx, &w_u, narrow, "unembed.W_U"));
    CHECK(fabs(number(cell(all, "singular_values", 2, "value")) - (double)attn_get1(svd.s, 0)) <
          1e-6);
    for (int side = 0; side < 2 && all; side++) {
        const json_value *const best = table_row(all, "directions", first_ov + 5 * (size_t)side);
        double largest = -INFINITY, product;
        size_t k, at = 0;
        for (size_t token = 0; token < 43; token++) {
            for (k = 0, product = 0; k < 20; k++)
                product += (double)attn_get2(side ? svd.v : svd.u, k, 0) *
                           (double)(side ? attn_get2(w_u, k, token) : attn_get2(w_e, token, k));
            at = product > largest ? token : at;
            largest = fmax(largest, product);
        }
        CHECK(json_is(member(best, "circuit"), "OV") &&
              json_is(member(best, "side"), side ? "writes" : "reads"));
        EQUAL(number(member(best, "token_id")), at);
        CHECK(fabs(number(member(best, "product")) - largest) < 1e-6);
    }
    CHECK(run(LENS NARROW "circuits --layer 1 --head 2 --top 2") == 0 && strstr(out, "writes 1"));
    CHECK(run(LENS NARROW "circuits --layer 1 --head 2 --top 0") == 0);
    refuses(2, "need both", LENS NARROW "circuits --layer 1");
    refuses(2, "need both", LENS NARROW "circuits --head 1");
    refuses(1, "layer 3; the model has layers 0 to 2", LENS NARROW "circuits --layer 3 --head 0");
    refuses(1, "head is 4", LENS NARROW "circuits --layer 0 --head 4");
}

/* perplexity, beside PyTorch's GPT-2 in float64. */
#include "tests/support/test.h"
#include "tests/fixtures/perplexity_vectors.h"
#include "tests/support/command.h"
#include <math.h>

SUITE_WITH(NULL, forget);

#define PERPLEXITY TEST_BUILD "/perplexity "
#define MODEL      TEST_BUILD "/tiny-stories.attn "

/* The number behind "key": in the JSON that the last run printed. */
static double found(const char *key)
{
    const char *const quoted = test_text("\"%s\": ", key);
    const char *at = out ? strstr(out, quoted) : NULL;
    return CHECKF(at != NULL, "no %s in %s", key, out) ? atof(at + strlen(quoted)) : (double)NAN;
}

TEST(as_pytorch)
{
    for (size_t i = 0; i < sizeof perplexity_vectors / sizeof perplexity_vectors[0]; i++) {
        const char *const file = perplexity_vectors[i].file;
        const char *const recipe = perplexity_vectors[i].recipe;
        char stride[32] = "";
        if (strcmp(recipe, "strided") == 0)
            snprintf(stride, sizeof stride, "--stride %d", perplexity_vectors[i].stride);
        if (!RUNS(PERPLEXITY MODEL "%s --exact --json --recipe %s --context %d %s", file, recipe,
                  perplexity_vectors[i].context, stride))
            continue;
        CHECKF(found("tokens") == perplexity_vectors[i].n_tokens, "%s: %s", file, out);
        CHECKF(fabs(found("nll") - perplexity_vectors[i].nll) < 1e-5, "%s: %s", file, out);
        CHECKF(fabs(found("nll_error") - perplexity_vectors[i].error) < 1e-5, "%s: %s", file, out);
        CHECKF(fabs(found("perplexity") / exp(perplexity_vectors[i].nll) - 1) < 1e-5, "%s: %s",
               file, out);
        CHECKF(fabs(found("perplexity_error") / found("perplexity") - found("nll_error")) < 1e-5,
               "%s: %s", file, out);
    }
}

/* Bits a byte are those of all the bytes that the counted tokens stand for. */
TEST(bits_of_bytes)
{
    if (!RUNS("printf 'Once upon a time' | " PERPLEXITY MODEL "--json"))
        return;
    CHECKF(found("tokens") == 3, "%s", out); /* " upon a time": 12 bytes */
    CHECKF(fabs(found("bits_per_byte") - found("nll") * 3 / log(2) / 12) < 1e-5, "%s", out);
    RUNS("printf 'Once upon a time' | " PERPLEXITY MODEL "- --bos --json");
    CHECKF(found("tokens") == 4, "%s", out); /* the first one, too */
}

TEST(mistakes)
{
    refuses(1, "a.png is not a text in UTF-8: it has the byte 00",
            "printf '\\211PNG\\r\\n\\032\\n\\000' >" TEST_TMP "a.png; " PERPLEXITY MODEL TEST_TMP
            "a.png");
    refuses(1, TEST_BUILD "/tiny-stories.attn is no text", PERPLEXITY MODEL MODEL);
    refuses(1, "standard input is not a text in UTF-8: it has the byte e9",
            "printf 'caf\\351 noir' | " PERPLEXITY MODEL);
    refuses(1, "it has the byte 00", "printf 'Once\\000upon' | " PERPLEXITY MODEL);
    /* cut within a character, at both ends; any bytes, if that is what is asked for */
    CHECK(run("printf '\\251 Once upon a \\303' | " PERPLEXITY MODEL) == 0);
    CHECK(run("printf 'caf\\351 noir' | " PERPLEXITY MODEL "--exact") == 0);
    refuses(1, "0 tokens; expected at least 2, to predict one", PERPLEXITY MODEL);
    refuses(1, "cannot read standard input: Bad file descriptor", PERPLEXITY MODEL "- <&-");
    refuses(2, "no model given", PERPLEXITY);
    refuses(1, "No such file", PERPLEXITY MODEL "nowhere.txt");
    refuses(1, "standard input has 1 token; expected at least 2",
            "printf Once | " PERPLEXITY MODEL "-");
    refuses(1, "expected at least 256, one window",
            "printf Once | " PERPLEXITY MODEL "- --recipe halves");
    refuses(1, "the model's context holds 256", PERPLEXITY MODEL "LICENSE -c 257");
    refuses(1, "longer than a window of 20", PERPLEXITY MODEL "LICENSE -c 20 --stride 21");
    refuses(2, "halves have none", PERPLEXITY MODEL "LICENSE --recipe halves --stride 3");
    refuses(2, "strided or halves", PERPLEXITY MODEL "LICENSE --recipe half");
    refuses(2, "too many arguments", PERPLEXITY MODEL "LICENSE README.md");
}

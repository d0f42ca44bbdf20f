/* The notebooks in C print what the notebooks printed. fixtures/notebooks.txt holds that, cut out
 * of the originals by make_notebook_vectors.py, which also describes the file. Then
 * format_tensor, by itself. */
#include "tests/support/test.h"
#include "examples/from_scratch/format.h"
#include "tools/write/model_file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

SUITE();

#define VECTORS "tests/fixtures/notebooks.txt"

#define STORIES TEST_BUILD "/tiny-stories.attn "

/* What a program prints, or NULL. The caller frees it. */
static char *output_of(const char *program, const char *arguments)
{
    size_t size;
    const char *path = test_tmp("notebook");
    const char *const command =
        test_text("%s/from_scratch/%s %s>%s", TEST_BUILD, program, arguments, path);
    if (!CHECKF(system(command) == 0, "%s failed", command))
        return NULL;
    return (char *)test_read(path, &size);
}

/* The next number of a print-out, past brackets, dots and spaces: where it starts, or NULL. */
static const char *next_number(const char *text, const char *end)
{
    for (; text < end; text++) {
        const char *digit = text + (*text == '-');
        if ((*digit >= '0' && *digit <= '9') || strncmp(digit, "inf", 3) == 0)
            return text;
    }
    return NULL;
}

/* One unit of the last digit that is shown of a number. */
static double unit_of(const char *number)
{
    double unit = 1;
    number += strspn(number, "-0123456789");
    if (*number == '.')
        for (number++; *number >= '0' && *number <= '9'; number++)
            unit /= 10;
    return unit;
}

/* Do the numbers from `got` on equal those between want and end, to one unit of the last digit? */
static int same_numbers(const char *sentence, const char *got, const char *want, const char *end)
{
    const char *const got_end = got + strlen(got);
    int count = 0;
    while ((want = next_number(want, end)) != NULL) {
        char *after_got, *after_want;
        const double unit = unit_of(want), wanted = strtod(want, &after_want);
        got = next_number(got, got_end);
        if (!CHECKF(got != NULL, "after \"%s\" the numbers end too soon", sentence))
            return 0;
        double value = strtod(got, &after_got);
        if (!CHECKF(value == wanted || fabs(value - wanted) < unit * 1.001,
                    "\"%s\": number %d is %.12s, expected %.12s", sentence, count, got, want))
            return 0;
        got = after_got;
        want = after_want;
        count++;
    }
    return CHECKF(count > 0, "\"%s\" has no numbers", sentence);
}

/* Are the two texts the same but for their digits? */
static int same_layout(const char *got, const char *want, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const int digits = got[i] >= '0' && got[i] <= '9' && want[i] >= '0' && want[i] <= '9';
        if (got[i] != want[i] && !digits)
            return 0;
    }
    return 1;
}

/* One record: its kind, its sentence, and the lines from body to end. */
static void check_record(const char *output, char kind, const char *sentence, const char *body,
                         const char *end)
{
    char *literal;
    const size_t size = (size_t)(end - body) - 1; /* without the last end of line */
    if (kind == '=') {
        literal = (char *)calloc(1, size + 1);
        if (CHECK(literal != NULL)) {
            memcpy(literal, body, size);
            CHECKF(strstr(output, literal) != NULL, "nowhere printed: %s", literal);
        }
        free(literal);
        return;
    }
    const char *at = strstr(output, sentence);
    if (!CHECKF(at != NULL, "nowhere printed: %s", sentence))
        return;
    at += strlen(sentence);
    if (kind == '-') {
        CHECKF(*at == '\n', "\"%s\" goes on", sentence);
        CHECKF(strlen(at) > size && same_layout(at + 1, body, size),
               "\"%s\" is printed like this:\n%.*s\nexpected was:\n%.*s", sentence, (int)size,
               at + 1, (int)size, body);
    }
    same_numbers(sentence, at, body, end);
}

/* All records of one program, against what it prints. Gives that to the caller, who frees it; NULL
 * if there is none. */
static char *check_program(const char *program, const char *arguments, int expected_records)
{
    size_t size;
    char *text = (char *)test_read(VECTORS, &size), *output = output_of(program, arguments), *line,
         *next;
    char sentence[256] = "", kind = 0;
    const char *body = NULL;
    int mine = 0, records = 0;
    if (!CHECK(text != NULL) || !output) {
        free(text);
        free(output);
        return NULL;
    }
    for (line = text;; line = next) {
        const int begins = strncmp(line, "== ", 3) == 0 || *line == 0 ||
                           (line[0] == '-' && line[1] && strchr("-#=", line[1]));
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        if (!begins)
            continue;
        if (body && mine) {
            check_record(output, kind, sentence, body, line);
            records++;
        }
        body = NULL;
        if (*line == 0)
            break;
        if (*line == '=') {
            mine = strlen(program) == length - 3 && strncmp(line + 3, program, length - 3) == 0;
        } else {
            kind = line[1];
            snprintf(sentence, sizeof sentence, "%.*s", length > 3 ? (int)(length - 3) : 0,
                     line + 3);
            body = next;
        }
    }
    CHECKF(records == expected_records, "%d records, expected %d", records, expected_records);
    free(text);
    return output;
}

/* The programs compare what is computed in several ways, and say "at most" how much it differs. */
static void check_differences(const char *output, int expected_count)
{
    static const char words[] = "at most ";
    int count = 0;
    while ((output = strstr(output, words)) != NULL) {
        char *end;
        const double value = strtod(output += strlen(words), &end);
        CHECKF(end > output && value >= 0 && value < 2e-6, "it differs by at most %.12s", output);
        count++;
    }
    CHECKF(count == expected_count, "%d differences, expected %d", count, expected_count);
}

/* The number after a sentence, or NaN */
static double number_after(const char *output, const char *sentence)
{
    const char *at = strstr(output, sentence);
    return CHECKF(at != NULL, "nowhere printed: %s", sentence) ? strtod(at + strlen(sentence), NULL)
                                                               : NAN;
}

TEST(self_attention)
{
    static const char ones[] = "1.000 1.000 1.000";
    static const char *const sums[] = {"The rows sum to", "Its rows sum to"};
    SCOPED_TEXT output = check_program("002_self_attention", "", 3);
    for (int i = 0; i < 2 && output; i++) {
        const char *at = strstr(output, sums[i]);
        if (CHECKF(at != NULL, "nowhere printed: %s", sums[i]))
            same_numbers(sums[i], at, ones, ones + strlen(ones));
    }
    if (output)
        check_differences(output, 4);
}

/* Is there a line that begins with this name, with `part` for its last letters, and a space? */
static int lists(const char *output, const char *name, const char *part)
{
    const char *last = strstr(name, "QKV");
    const int length = (int)(last ? (size_t)(last - name) : strlen(name));
    const char *const line = test_text("\n%.*s%s ", length, name, last ? part : "");
    return strstr(output, line) != NULL;
}

/* The list of parameters names the tensors of a model, which the list's author cannot have made up.
 * Their shapes the program compares itself, and says how many are right. */
static void parameters(const char *output)
{
    SCOPED_CTX ctx = {0};
    SCOPED_MODEL model = NULL;
    model_tensor info;
    int layer;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        info = model_tensor_at(model, i);
        if (sscanf(info.name, "blocks.%d.", &layer) == 1 && layer > 1)
            continue; /* the list shows two blocks */
        CHECKF(lists(output, info.name, "Q") && lists(output, info.name, "K") &&
                   lists(output, info.name, "V"),
               "no %s in the list", info.name);
    }
    const char *const sentence = test_text(
        "so are %d of its %d parameters", (int)model_n_tensors(model), (int)model_n_tensors(model));
    CHECKF(strstr(output, sentence) != NULL, "nowhere printed: %s", sentence);
}

TEST(clean_gpt2)
{
    SCOPED_TEXT output =
        check_program("004_clean_gpt2", STORIES TEST_BUILD "/from_scratch/plain.attn ", 40);
    if (output) {
        CHECK(strstr(output, "gives 21 of these 21 activations") != NULL);
        parameters(output);
    }
}

TEST(averaging)
{
    SCOPED_TEXT output = check_program("001_averaging", "1 ", 19);
    if (output) {
        check_differences(output, 2);
        CHECK(fabs(number_after(output, "of more dot products:") - 16) < 0.1);
        CHECK(fabs(number_after(output, "of more scaled ones:") - 1) < 0.01);
        CHECK(number_after(output, "\ntook ") > 0);
    }
}

TEST(scores)
{
    SCOPED_TEXT output = check_program("000_scores", "", 16);
    if (output)
        check_differences(output, 1);
}

TEST(attention)
{
    SCOPED_TEXT output = check_program("003_multi_head", "", 52);
    if (output)
        check_differences(output, 1);
}

/* Every step of taking the engine's attention away leaves the logits' bits. (Without an argument the
 * program takes the model of the directory that it was built in.) */
TEST(inside_the_engine)
{
    SCOPED_TEXT output = output_of("005_inside_the_engine", "");
    const char *at = output;
    int same = 0;
    if (!output)
        return;
    while ((at = strstr(at, "the same bits")) != NULL) {
        same++;
        at++;
    }
    CHECKF(same == 6 && !strstr(output, "DIFFERENT"), "%s", output);
    CHECKF(strstr(output, "28      28") != NULL, "%s", output); /* 4 layers, 7 activations */
    CHECKF(strstr(output, "different, as they should be") != NULL, "%s", output);
}

/* The library's tokenizer says the same, and the first pairs are those that one counts: "es" comes in newest
 * and widest, 6 + 3 times, and after those merges " l", "lo" and "ow" 5 + 2 times each. */
TEST(tokenizer)
{
    SCOPED_TEXT output = output_of("006_tokenizer", "");
    if (!output)
        return;
    CHECKF(strstr(output, "\n   e | le | p | h | ant\n") != NULL, "%s", output);
    CHECKF(!strstr(output, "OTHER") &&
               strstr(output, "26 bytes,  22 tokens: the library's ids; the"),
           "%s", output);
    CHECKF(strstr(output, ":\n  \"es\" 9 times\n  \"est\" 9 times\n  \" l\" 7 times\n"
                          "  \" lo\" 7 times\n  \" low\" 7 times\n  \" n\" 6 times\n"),
           "%s", output);
}

/* Its beams' log probabilities are the program score's for the same texts. */
TEST(cache)
{
    static const char *const texts[] = {"She was sad because she had no food to eat. She",
                                        "She was sad because she had lost her toy. She wished"};
    static const char *const widths[] = {"width 1, log probability", "width 3, log probability"};
    SCOPED_TEXT output = output_of("007_cache", "");
    SCOPED_CTX ctx = {0};
    SCOPED_MODEL model = NULL;
    SCOPED_SESSION session = NULL;
    OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL));
    OK(&ctx, attn_session_new(&ctx, &session, model, NULL));
    for (int i = 0; i < 2 && output; i++) {
        attn_token ids[32];
        attn_token_stats stats[32];
        size_t n = 32;
        double sum = 0;
        CHECK(strstr(output, texts[i] + strlen("She was sad because")) != NULL);
        attn_session_truncate(&ctx, session, 0);
        OK(&ctx,
           attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), texts[i], strlen(texts[i])));
        OK(&ctx, attn_score(&ctx, stats, NULL, session, ids, n));
        for (int t = (int)n - 9; t < (int)n - 1; t++)
            sum -= (double)stats[t].nll;
        CHECKF(fabs(number_after(output, widths[i]) - sum) < 0.01, "%s %g", texts[i], sum);
    }
    CHECKF(output && !strstr(output, "DIFFERENT") && strstr(output, "55 positions, with it 10"),
           "%s", output ? output : "");
}

/* The picture in the repository is the one that the program draws. */
TEST(picture)
{
    size_t size;
    SCOPED_TEXT drawn = output_of("draw_pattern", STORIES);
    SCOPED_TEXT kept = (char *)test_read("examples/from_scratch/pattern.svg", &size);
    CHECK(drawn && kept && strcmp(drawn, kept) == 0);
}

static void formats_as(attn_tensor x, int decimals, const char *expected)
{
    char text[2048];
    const size_t n = format_tensor(text, sizeof text, x, decimals);
    CHECKF(n == strlen(expected) && strcmp(text, expected) == 0, "got\n%s\nexpected\n%s", text,
           expected);
}

/* Each expected text is what PyTorch 1.13 prints. */
TEST(format_like_pytorch)
{
    float line[20], large[2400];
    int32_t whole[6] = {1, -20, 300, 1, -20, 300}, extreme[2] = {-2147483647 - 1, 0};
    for (int i = 0; i < 20; i++)
        line[i] = (float)i / 8 - 1;
    for (int i = 0; i < 2400; i++)
        large[i] = (float)(i + 1200) / 4;
    formats_as(attn_borrow(line, ATTN_F32, attn_shape1(20)), 4,
               "tensor([-1.0000, -0.8750, -0.7500, -0.6250, -0.5000, -0.3750, -0.2500, -0.1250,\n"
               "         0.0000,  0.1250,  0.2500,  0.3750,  0.5000,  0.6250,  0.7500,  0.8750,\n"
               "         1.0000,  1.1250,  1.2500,  1.3750])");
    formats_as(attn_borrow(large, ATTN_F32, attn_shape3(2, 3, 400)), 4,
               "tensor([[[300.0000, 300.2500, 300.5000,  ..., 399.2500, 399.5000, 399.7500],\n"
               "         [400.0000, 400.2500, 400.5000,  ..., 499.2500, 499.5000, 499.7500],\n"
               "         [500.0000, 500.2500, 500.5000,  ..., 599.2500, 599.5000, 599.7500]],\n"
               "\n"
               "        [[600.0000, 600.2500, 600.5000,  ..., 699.2500, 699.5000, 699.7500],\n"
               "         [700.0000, 700.2500, 700.5000,  ..., 799.2500, 799.5000, 799.7500],\n"
               "         [800.0000, 800.2500, 800.5000,  ..., 899.2500, 899.5000, 899.7500]]])");
    formats_as(attn_borrow(whole, ATTN_I32, attn_shape2(2, 3)), 4,
               "tensor([[  1, -20, 300],\n        [  1, -20, 300]])");
    formats_as(attn_borrow(extreme, ATTN_I32, attn_shape1(2)), 4,
               "tensor([-2147483648,           0])");
    line[0] = 1, line[1] = -20, line[2] = 300, line[3] = INFINITY;
    formats_as(attn_borrow(line, ATTN_F32, attn_shape1(4)), 4, "tensor([  1., -20., 300.,  inf])");
    formats_as(attn_borrow(line, ATTN_F32, attn_shape1(0)), 4, "tensor([])");
}

/* Every digit is the one that printf gives, for floats of all sizes. */
TEST(format_like_printf)
{
    uint32_t bits, word = 1;
    int decimals;
    for (int i = 0; i < 20000; i++) {
        char text[128];
        float value[2];
        word = word * 1664525u + 1013904223u;
        bits = i < 1000 ? (uint32_t)i * 4294967u : word;
        memcpy(value, &bits, 4);
        if (!isfinite(value[0]))
            continue;
        decimals = i % 10;
        value[1] = 0.5f; /* so that they are not all whole */
        format_tensor(text, sizeof text, attn_borrow(value, ATTN_F32, attn_shape1(2)), decimals);
        const char *const expected = test_text("%.*f,", decimals, (double)value[0]);
        CHECKF(strncmp(text + 8 + strspn(text + 8, " "), expected, strlen(expected)) == 0,
               "%.9g with %d decimals gives %s", (double)value[0], decimals, text);
    }
}

TEST(format_into_little_room)
{
    float value[2] = {0.5f, -1};
    char text[32];
    const attn_tensor x = attn_borrow(value, ATTN_F32, attn_shape1(2)), nothing = {0};
    const char *const whole = "tensor([ 0.50, -1.00])";
    CHECK(format_tensor(NULL, 0, x, 2) == strlen(whole));
    for (size_t size = 1; size < sizeof text; size++) {
        const size_t shown = size - 1 < strlen(whole) ? size - 1 : strlen(whole);
        memset(text, '#', sizeof text);
        CHECK(format_tensor(text, size, x, 2) == strlen(whole));
        CHECK(memcmp(text, whole, shown) == 0 && text[shown] == 0);
        CHECK(shown + 1 == sizeof text || text[shown + 1] == '#');
    }
    format_tensor(text, sizeof text, nothing, 4);
    CHECK(strcmp(text, "tensor(none)") == 0);
}

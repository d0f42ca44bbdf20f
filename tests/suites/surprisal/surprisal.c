/* surprisal, beside PyTorch's GPT-2 in float64, and as a person uses it. */
#include "tests/support/test.h"
#include "tools/write/writer.h"
#include "tools/lens/save.h"
#include "tests/support/command.h"
#include <math.h>

/* The included model, whose vocabulary puts a blank in front of texts here. */
#define BLANK TEST_TMP "blank.attn "

static int set_up(void)
{
    return CHECK(run("rm -rf " TEST_TMP "blank && cp -r examples/tiny-stories " TEST_TMP
                     "blank && echo '{\"add_prefix_space\": true}' >" TEST_TMP
                     "blank/tokenizer_config.json && " TEST_BUILD "/attn-convert -q " TEST_TMP
                     "blank " BLANK) == 0);
}

SUITE_WITH(set_up, forget);

#define SURPRISAL  TEST_BUILD "/surprisal "
#define MODEL      TEST_BUILD "/tiny-stories.attn "
#define SAY        SURPRISAL MODEL "-q "
#define FIXTURES   "tests/fixtures/surprisal/"
#define PREDICTORS "--layers all --entropy-reduction --renyi 0.3 --spillover 1"
#define HEADER     "text,index,word,tokens,surprisal,uncorrected,entropy"

/* ---- the numbers ---- */

enum { MAX_FIELDS = 32 };

/* Splits a CSV record into its fields, in place. Returns the start of the next record, or NULL after the
 * last. */
static char *cut_record(char *at, char **fields, int *n)
{
    char *to;
    *n = 0;
    if (!at || !*at)
        return NULL;
    while (*n < MAX_FIELDS) {
        const int quoted = *at == '"';
        at += quoted;
        fields[(*n)++] = to = at;
        while (*at && (quoted ? *at != '"' || at[1] == '"' : *at != ',' && *at != '\n')) {
            at += quoted && *at == '"';
            *to++ = *at++;
        }
        at += quoted;
        if (*at != ',') {
            at += *at == '\n';
            *to = 0;
            return at;
        }
        *to = 0;
        at++;
    }
    return at;
}

/* Compares what the last run printed with a fixture of `n_fields` fields, of which those from 4 to before `end` are
 * numbers. A number may differ by the rounding of its tokens' logits, which are f32. */
static void compare_with(const char *name, int n_fields, int end)
{
    char *file, *got = out, *a[MAX_FIELDS], *b[MAX_FIELDS];
    size_t size, n_rows = 0;
    int n, m;
    char *want = file = (char *)test_read(name, &size);
    if (!CHECKF(file && out, "no %s", name))
        return;
    for (; got; n_rows++) {
        char *const rest = cut_record(got, a, &n);
        want = cut_record(want, b, &m);
        if (!CHECKF(!rest == !want, "%s: another number of rows, at row %d", name, (int)n_rows))
            break;
        got = rest;
        if (!got)
            break;
        if (!CHECKF(n == n_fields && m == n_fields, "%s, row %d: %d fields", name, (int)n_rows, n))
            break;
        for (int i = 0; i < n_fields; i++) {
            const double room = i >= 4 && i < end && n_rows ? 3e-5 + 5e-6 * atof(b[3]) : 0;
            CHECKF(strcmp(a[i], b[i]) == 0 ||
                       (room > 0 && strcmp(a[i], "NA") != 0 && strcmp(b[i], "NA") != 0 &&
                        fabs(atof(a[i]) - atof(b[i])) < room),
                   "%s, row %d, field %d: %s, not %s", name, (int)n_rows, i, a[i], b[i]);
        }
    }
    CHECKF(n_rows > 50, "%s: %d rows", name, (int)n_rows);
    free(file);
}

TEST(as_pytorch)
{
    static const struct {
        const char *name, *input, *options;
    } cases[] = {
        {"texts", "texts.txt", ""},
        {"apart", "texts.txt", "--punctuation apart"},
        {"tokens", "texts.txt", "--by token"},
        {"no-bos", "texts.txt", "--no-bos --unit nats"},
        {"long", "long.txt", ""},
        {"stride", "long.txt", "--stride 200"},
        {"blank", "texts.txt", ""},
        {"blank-apart", "texts.txt", "--punctuation apart"},
        {"continue", "*.txt", "--continue"},
        {"continue-no-bos", "*.txt", "--continue --no-bos"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int whole = cases[i].input[0] == '*';
        /* --by token has two columns more, which the fixture lacks */
        if (!CHECKF(run("cat " FIXTURES "%s%s | " SURPRISAL "%s -q --rank %s | sed '%s'",
                        whole ? "texts.txt " FIXTURES : "", whole ? "long.txt" : cases[i].input,
                        cases[i].name[0] == 'b' ? BLANK : MODEL, cases[i].options,
                        strstr(cases[i].options, "token")
                            ? "s/,\\(\"[^\"]*\"*\"\\|[^,\"]*\\),[a-z0-9_]*,\\([a-z0-9]*\\)$/,\\2/"
                            : "") == 0,
                    "%s", err))
            continue;
        compare_with(test_text(FIXTURES "%s.csv", cases[i].name), 8, 7);
    }
}

/* Entropy reduction, the entropy of Renyi and the surprisal by layers, beside NumPy in float64. */
TEST(as_numpy)
{
    RUNS(SAY FIXTURES "texts.txt --layers all --entropy-reduction --renyi 0.5");
    compare_with(FIXTURES "predictors.csv", 13, 13);
    RUNS("cat " FIXTURES "texts.txt " FIXTURES "long.txt | " SAY
         "--layers 2,0 --entropy-reduction --renyi 3 --continue --no-bos");
    compare_with(FIXTURES "predictors-continue.csv", 11, 11);
}

/* Writes a tuned lens: its numbers are whole ones, times scale / 256 and bias / 32; or without its biases the
 * Jacobian lens that reads the same, J = I + W. */
static void write_lens(const char *path, float scale, float bias, int is_jacobian)
{
    const size_t first = is_jacobian ? 1 : 0; /* the embedding has no J */
    static float weights[4][192 * 192], biases[4][192];
    static char text[8][16];
    const char *names[8];
    attn_tensor values[8];
    attn_ctx ctx = ATTN_ZERO;
    for (size_t l = 0; l < 4; l++) {
        for (size_t i = 0; i < 192; i++) {
            for (size_t j = 0; j < 192; j++)
                weights[l][i * 192 + j] = scale * ((float)((7 * i + 3 * j + l) % 11) - 5) / 256;
            biases[l][i] = bias * ((float)((i + l) % 5) - 2) / 32;
            weights[l][i * 192 + i] += (float)is_jacobian;
        }
        snprintf(text[2 * l], sizeof text[0], is_jacobian ? "J.%d" : "%d.weight", (int)(l - first));
        snprintf(text[2 * l + 1], sizeof text[0], "%d.bias", (int)l);
        values[2 * l] = attn_borrow(weights[l], ATTN_F32, attn_shape2(192, 192));
        values[2 * l + 1] = attn_borrow(biases[l], ATTN_F32, attn_shape1(192));
        names[2 * l] = text[2 * l];
        names[2 * l + 1] = text[2 * l + 1];
    }
    for (size_t l = 1; l < 4 && is_jacobian; l++) {
        values[l - 1] = values[2 * l];
        names[l - 1] = names[2 * l];
    }
    OK(&ctx, lens_save(&ctx, path, names, values, is_jacobian ? 3 : 8));
}

/* The surprisal by layers through a tuned lens, beside NumPy in float64. */
TEST(tuned)
{
    write_lens(TEST_TMP "tuned.safetensors", 1, 1, 0);
    write_lens(TEST_TMP "zero.safetensors", 0, 0, 0);
    write_lens(TEST_TMP "unbiased.safetensors", 1, 0, 0);
    write_lens(TEST_TMP "jacobian.safetensors", 1, 0, 1);
    RUNS(SAY FIXTURES "texts.txt --layers all --entropy-reduction --renyi 0.5 --tuned " TEST_TMP
                      "tuned.safetensors");
    compare_with(FIXTURES "tuned.csv", 13, 13);
    same(SAY FIXTURES "long.txt --layers all",
         SAY FIXTURES "long.txt -t 1 --layers all --tuned " TEST_TMP "zero.safetensors");
    CHECK(run(SAY FIXTURES "texts.txt --layers all --tuned " TEST_TMP "unbiased.safetensors "
                           ">" TEST_TMP "unbiased.csv") == 0 &&
          run(SAY FIXTURES "texts.txt --layers all --tuned " TEST_TMP "jacobian.safetensors") == 0);
    compare_with(TEST_TMP "unbiased.csv", 11, 11);
    refuses(2, "--tuned is for --layers", SAY "x --tuned x.safetensors");
    refuses(1, "nowhere.safetensors", "echo a | " SAY "--layers all --tuned nowhere.safetensors");
    refuses(1, "tuned.safetensors has ",
            "echo a | " SAY "--layers all --tuned "
            "tests/fixtures/steering/tuned.safetensors");
}

/* Two runs print the same fields for the same texts, which have no commas. */
static void same_columns(const char *a, const char *fields_of_a, const char *b,
                         const char *fields_of_b)
{
    RUNS("sed 's/[,\"]//g' " FIXTURES "texts.txt " FIXTURES "long.txt >" TEST_TMP "plain.txt; " SAY
         "%s " TEST_TMP "plain.txt >" TEST_TMP "a.csv && " SAY "%s " TEST_TMP "plain.txt >" TEST_TMP
         "b.csv && cut -d, -f%s " TEST_TMP "a.csv | tail -n +2 >" TEST_TMP "a.cut && %s >" TEST_TMP
         "b.cut",
         a, b, fields_of_a, test_text("cut -d, -f%s " TEST_TMP "b.csv | tail -n +2", fields_of_b));
    CHECKF(test_same_file(TEST_TMP "a.cut", TEST_TMP "b.cut"), "%s -f%s, and %s -f%s", a,
           fields_of_a, b, fields_of_b);
}

/* Of a layer the same digits with whichever others; of the last layer, those of the model. */
TEST(layers)
{
    same_columns("--layers all", "11", "--rank", "5");
    same_columns("--layers 3", "8", "--batch 1", "5");
    same_columns("--layers all --by token", "1-7,10", "--layers 2 --batch 2 --by token", "1-8");
    same_columns("--layers all --no-bos", "9-10", "--layers 2,1,2 --no-bos -t 1", "8-9");
    same_columns("--layers 0,2 --continue --stride 200", "8-9",
                 "--layers all --continue --stride 200 -t 3", "8,10");
    same_columns("--layers all --renyi 1", "7", "", "7");
    same_columns("--layers all --renyi 1", "8", "", "7");
    CHECK(run("printf 'The cat' | " SAY "--layers 1 --json --no-bos") == 0);
    CHECKF(strstr(out, "\"surprisal.1\": null}"), "%s", out);
    refuses(2, "--layers: " TEST_BUILD "/tiny-stories.attn has no layer 4; it has 0 to 3",
            "printf a | " SAY "--layers 0,4");
    refuses(2, "--layers: \"0,\" is not all, or numbers of layers with commas between them",
            "printf a | " SAY "--layers 0,");
    refuses(2, "--layers: \"last\" is not all", "printf a | " SAY "--layers last");
}

/* The number behind "key": in a line of JSON. */
static double number_in(const char *line, const char *key)
{
    const char *const quoted = test_text("\"%s\": ", key);
    const char *at = strstr(line, quoted);
    return at ? atof(at + strlen(quoted)) : (double)NAN;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Is a token the end of a word that can stand in a line by itself? */
static int is_plain(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] <= ' ' || bytes[i] >= 0x7f)
            return 0;
    return size > 0;
}

/* Writes texts that continue `context` by different words: every token that begins a word, and the word
 * `first` with every token that continues it. Returns how many. */
static size_t write_continuations(const attn_model *model, const char *context, const char *first)
{
    const attn_tokenizer *const t = attn_model_tokenizer(model);
    const size_t n = attn_tokenizer_n_tokens(t), blank = *context != 0;
    char **const lines = (char **)calloc(2 * n, sizeof *lines);
    size_t size, n_lines = 0, n_written = 0;
    FILE *file = fopen(test_tmp("words.txt"), "wb");
    for (size_t i = 0; lines && i < n; i++) {
        const char *bytes = attn_token_bytes(&size, t, (int32_t)i);
        const size_t begins = size > 0 && bytes[0] == ' ';
        if (attn_tokenizer_is_special(t, (int32_t)i) || !is_plain(bytes + begins, size - begins))
            continue;
        if (begins == blank && (lines[n_lines] = (char *)calloc(1, size + 1)) != NULL)
            memcpy(lines[n_lines++], bytes + begins, size - begins);
        if (!begins && (lines[n_lines] = (char *)calloc(1, strlen(first) + size + 1)) != NULL) {
            memcpy(lines[n_lines], first, strlen(first));
            memcpy(lines[n_lines++] + strlen(first), bytes, size);
        }
    }
    if (!CHECK(lines && file))
        return 0;
    qsort(lines, n_lines, sizeof *lines, compare_lines);
    for (size_t i = 0; i < n_lines; i++)
        if (i == 0 || strcmp(lines[i], lines[i - 1]) != 0) {
            fprintf(file, "%s%s%s\n", context, blank ? " " : "", lines[i]);
            n_written++;
        }
    for (size_t i = 0; i < n_lines; i++)
        free(lines[i]);
    free(lines);
    fclose(file);
    return n_written;
}

/* Adds the probabilities of the last words of the texts. */
static void add_probabilities(size_t n_texts, int index, double *corrected, double *uncorrected)
{
    const char *line, *file;
    size_t n = 0;
    *corrected = *uncorrected = 0;
    if (!RUNS(SAY "--json %s", test_tmp("words.txt")))
        return;
    for (line = file = out; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (number_in(line, "index") == index) {
            *corrected += exp2(-number_in(line, "surprisal"));
            *uncorrected += exp2(-number_in(line, "uncorrected"));
            n++;
        }
    EQUAL(n, n_texts);
}

/* Different continuations exclude each other, so their probabilities add up to at most 1. Those of tokens
 * alone do not: " time" is counted again in " timely". */
TEST(probabilities_add_up)
{
    attn_ctx ctx = ATTN_ZERO;
    SCOPED_MODEL model = NULL;
    double corrected, uncorrected;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    size_t n = write_continuations(model, "Once upon a", "time");
    CHECKF(n > 1000, "%d texts", (int)n);
    add_probabilities(n, 4, &corrected, &uncorrected);
    CHECKF(corrected <= 1 + 1e-6 && corrected > 0.9, "corrected: %.9f", corrected);
    CHECKF(uncorrected > 1.5, "uncorrected: %.9f", uncorrected);
    n = write_continuations(model, "", "Once");
    add_probabilities(n, 1, &corrected, &uncorrected);
    CHECKF(corrected <= 1 + 1e-6 && corrected > 0.9, "corrected, first words: %.9f", corrected);
}

/* Saves the included model with a last LayerNorm that is `factor` times as large, and so its logits. */
static int save_scaled(attn_ctx *ctx, const char *path, float factor)
{
    attn_model *from = NULL;
    lens_writer *writer = NULL;
    model_tensor info = ATTN_ZERO;
    size_t size = 0;
    if (!OK(ctx, attn_model_open(ctx, &from, TEST_BUILD "/tiny-stories.attn", NULL)))
        return 0;
    const void *section = model_tokenizer_section(&size, from);
    OK(ctx, lens_writer_new(ctx, &writer, path, attn_model_config(from), section, size));
    for (size_t i = 0; i < model_n_tensors(from) && !ctx->status; i++) {
        attn_tensor x = ATTN_ZERO;
        info = model_tensor_at(from, i);
        OK(ctx, attn_model_tensor(ctx, &x, from, info.name));
        if (strstr(info.name, "attn.W_O"))
            x = attn_reshape(x, attn_shape2(x.shape[0] * x.shape[1], x.shape[2]));
        for (size_t k = 0; strncmp(info.name, "ln_final", 8) == 0 && k < x.shape[0]; k++)
            ((float *)x.data)[k] *= factor;
        OK(ctx, lens_writer_add(ctx, writer, info.name, ATTN_F32, x));
    }
    OK(ctx, lens_writer_end(ctx, writer));
    lens_writer_free(writer);
    attn_model_close(from);
    attn_ctx_free(ctx);
    return ctx->status == ATTN_OK;
}

/* -log2 of the probability of the tokens that begin with a blank or end the text, after these tokens. */
static double bits_of_ending(const attn_session *session)
{
    const attn_model *const model = attn_session_model(session);
    const attn_tokenizer *const t = attn_model_tokenizer(model);
    const float *const logits = attn_session_logits(session);
    const size_t n = attn_model_config(model)->n_vocab;
    double most = -1e300, all = 0, ends = -1e300, sum = 0;
    size_t size;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++) {
            const char *const bytes = attn_token_bytes(&size, t, (int32_t)i);
            const double x = (double)logits[i];
            const int is_end = (size && bytes[0] == ' ') ||
                               attn_config_is_eos(attn_model_config(model), (int32_t)i);
            most = x > most ? x : most;
            ends = is_end && x > ends ? x : ends;
            all += pass ? exp(x - most) : 0;
            sum += pass && is_end ? exp(x - ends) : 0;
        }
    return (most + log(all) - ends - log(sum)) / log(2);
}

/* Where a word hardly ever ends, exp(logit - the largest) of all tokens that end it is 0 in f32. */
TEST(improbable_endings)
{
    attn_ctx ctx = ATTN_ZERO;
    SCOPED_MODEL model = NULL;
    SCOPED_SESSION session = NULL;
    if (!save_scaled(&ctx, TEST_TMP "scaled.attn", 40) ||
        !OK(&ctx, attn_model_open(&ctx, &model, TEST_TMP "scaled.attn", NULL)) ||
        !OK(&ctx, attn_session_new(&ctx, &session, model, NULL)))
        return;
    {
        const int32_t bos = attn_model_config(model)->bos;
        OK(&ctx, attn_feed(&ctx, session, &bos, 1));
    }
    OK(&ctx, attn_feed_text(&ctx, session, "Once upon a"));
    double before = bits_of_ending(session);
    OK(&ctx, attn_feed_text(&ctx, session, " litt"));
    double after = bits_of_ending(session);
    CHECKF(after > 200, "the ending has %f bits", after);
    if (RUNS("%s", test_text("printf 'Once upon a litt' | " SURPRISAL TEST_TMP
                             "scaled.attn --json | tail -n 1"))) {
        const double difference = number_in(out, "surprisal") - number_in(out, "uncorrected");
        CHECKF(fabs(difference - (after - before)) < 1e-4, "%f, not %f - %f", difference, after,
               before);
    }
}

/* The rows of tokens and of regions add up to those of words. */
TEST(rows_add_up)
{
    static const char *const by[] = {"word", "token", "region"};
    double sums[3][2] = {{0}};
    const char *line;
    for (size_t i = 0; i < 3; i++) {
        if (!RUNS("sed 's/ a / a_/g' " FIXTURES "texts.txt | " SAY "--json --regions _ --by %s",
                  by[i]))
            return;
        for (line = out; line && *line; line = strchr(line, '\n'), line += line != NULL) {
            sums[i][0] += number_in(line, "surprisal");
            sums[i][1] += number_in(line, "uncorrected");
        }
        CHECKF(fabs(sums[i][0] - sums[0][0]) < 1e-3, "%s: %f, %f", by[i], sums[i][0], sums[0][0]);
        CHECKF(fabs(sums[i][1] - sums[0][1]) < 1e-3, "%s: %f, %f", by[i], sums[i][1], sums[0][1]);
    }
    CHECK(sums[0][0] > 100);
}

/* Bits and bytes do not depend on how the work was done. bytes.csv is for every machine. */
TEST(same_bytes)
{
    static const char *const ways[] = {"",     "--batch 1 -t 1", "--batch 3 -t 2",
                                       "-t 4", "--batch 256",    "--isa portable -t 1"};
    const size_t n_ways = sizeof ways / sizeof ways[0] - (test_full() ? 0 : 1);
    for (size_t i = 0; i < n_ways; i++) {
        if (!RUNS(SAY FIXTURES "texts.txt --rank --top 2 %s >" TEST_TMP "bytes.csv", ways[i]))
            continue;
        CHECKF(test_same_file(TEST_TMP "bytes.csv", FIXTURES "bytes.csv"), "%s: other bytes",
               ways[i]);
        RUNS(SAY FIXTURES "texts.txt " PREDICTORS " %s >" TEST_TMP "bytes.csv", ways[i]);
        CHECKF(test_same_file(TEST_TMP "bytes.csv", FIXTURES "predictors-bytes.csv"),
               "predictors, %s: other bytes", ways[i]);
    }
    same("cat " FIXTURES "*.txt | " SAY "--continue -t 1",
         test_full() ? "cat " FIXTURES "*.txt | " SAY "--continue -t 3 --isa portable"
                     : "cat " FIXTURES "*.txt | " SAY "--continue -t 3");
}

/* ---- texts ---- */

/* Checks the program's output for a text: columns 1 to 4 of each row, and the notes on standard error. */
static void words_of(const char *text, const char *words, const char *notes)
{
    RUNS("printf '%s' | " SURPRISAL MODEL "| cut -d, -f1-4 | tail -n +2 | tr '\\n' ' '", text);
    CHECKF(out && strcmp(out, words) == 0, "%s: %s, not %s", text, out, words);
    CHECKF(notes ? strstr(err, notes) != NULL : err_size == 0, "%s: said %s", text, err);
}

TEST(what_a_word_is)
{
    words_of("The cat sat.", "1,1,The,1 1,2,cat,1 1,3,sat.,2 ", NULL);
    words_of("\\357\\273\\277The cat\\r\\nsat\\r\\n", "1,1,The,1 1,2,cat,1 2,1,sat,2 ", NULL);
    words_of("The cat\n\nsat\n", "1,1,The,1 1,2,cat,1 3,1,sat,2 ", "1 of 3 texts have no words");
    words_of("  The \\t cat ", "1,1,The,1 1,2,cat,1 ",
             "1 of 1 texts have tabs, line feeds, or blanks");
    words_of("The\\302\\240cat", "1,1,The\302\240cat,5 ",
             "1 of 1 texts have no-break spaces or other blanks of Unicode (U+00A0)");
    words_of("a \\360\\237\\230\\200 b", "1,1,a,1 1,2,\360\237\230\200,5 1,3,b,1 ", NULL);
    words_of("NA", "1,1,NA,2 ", NULL);
    words_of("<|endoftext|>", "1,1,<|endoftext|>,3 ",
             "have the name of a special token"); /* letters, not the token */
    refuses(1, "standard input is empty; expected a text on each line", SURPRISAL MODEL);
    refuses(1, "line 2: the byte e9 is not UTF-8; save the file as UTF-8",
            "printf 'a\\ncaf\\351' | " SURPRISAL MODEL);
    refuses(1, "line 1: the byte 00 is not UTF-8", "printf 'a\\000b' | " SURPRISAL MODEL);
    refuses(1, "is UTF-16, where UTF-8 is needed", "printf '\\377\\376a\\000' | " SURPRISAL MODEL);
}

/* What a reader takes for something else than the model does has a note, and nothing else has one. */
TEST(notes)
{
    static const struct {
        const char *input, *options, *says; /* NULL: nothing */
    } cases[] = {
        {"The cat sat.\\n", "", NULL},
        {"caf\\303\\251 na\\303\\257ve \\342\\200\\224 \\360\\237\\230\\200\\n", "", NULL},
        {"The\\342\\200\\257cat\\n", "",
         "1 of 1 texts have no-break spaces or other blanks of Unicode (U+202F)"},
        {"a b\\nThe\\343\\200\\200cat\\n", "",
         "1 of 2 texts have no-break spaces or other blanks of Unicode (U+3000)"},
        {"The\\342\\200\\213cat\\n", "", "(U+200B), which do not part words"},
        {"The\\357\\273\\277cat\\n", "", "(U+FEFF), which do not part words"},
        {"gar\\302\\255den\\n", "", "1 of 1 texts have soft hyphens (U+00AD)"},
        {"\\347\\214\\253\\345\\235\\220\\345\\234\\250\\345\\236\\253\\345\\255\\220\\n", "",
         "1 of 1 texts have long words in a script without blanks"},
        {"\\347\\214\\253 \\345\\235\\220 \\345\\234\\250 \\345\\236\\253\\345\\255\\220\\n", "",
         NULL},
        {"the old man | the boats\\n", "--regions \"|\"", "no text has words that \"|\" joins"},
        {"the old man\\n", "--regions _", "no text has words that \"_\" joins"},
        {"the_old man\\nthe _ old_man\\n", "--regions _",
         "1 of 2 texts have the mark beside a blank"},
        {"the_old man\\nthe old\\n", "--regions _", NULL},
        {"s,rt\\na b,312\\nc,1.5e2\\n", "-c rt",
         "all texts are numbers: is \"rt\" the column of the texts?"},
        {"s,rt\\na b,312\\nc,12th\\n", "-c rt", NULL},
        {"a<|endoftext|>b\\na<b\\n", "", "1 of 2 texts have the name of a special token"},
        {"a<|endoftext|>b\\n", "--special", NULL},
        {"s,n\\na b,1\\nNA,2\\n", "-c s", "1 of 2 texts are \"NA\", which was read as a word"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RUNS("printf '%s' | " SURPRISAL MODEL "%s", cases[i].input, cases[i].options);
        CHECKF(cases[i].says ? strstr(err, cases[i].says) != NULL : err_size == 0,
               "%s %s: said \"%s\"", cases[i].input, cases[i].options, err);
        CHECKF(run("printf '%s' | " SAY "%s", cases[i].input, cases[i].options) == 0 && !err_size,
               "%s", err);
    }
}

/* What is no text in UTF-8 is refused, with what it is and where. No sentence names an option that
 * the program lacks. */
TEST(encodings)
{
    static const struct {
        const char *input, *options, *says;
    } cases[] = {
        {"\\377\\376a\\000", "", "is UTF-16, where UTF-8 is needed: save it as UTF-8"},
        {"\\376\\377\\000a", "-c s", "is UTF-16, where UTF-8 is needed: save it as UTF-8"},
        {"PK\\003\\004\\024\\000xl/workbook.xml", "", "is an Excel workbook: save it as CSV UTF-8"},
        {"PK\\003\\004xxxx", "-c s", "is an Excel workbook: save it as CSV UTF-8"},
        {"\\320\\317\\021\\340\\241\\261\\032\\341", "",
         "is an Excel workbook: save it as CSV UTF-8"},
        {"The cat.\\rA dog.\\r", "", "the line ends of standard input are CR alone"},
        {"n,s\\r1,The cat.\\r", "-c s", "the line ends of standard input are CR alone"},
        {"\\001\\002\\003\\004\\005\\006\\007\\016\\017\\020\\021\\022\\023\\024\\025\\026\\027",
         "", "is no text: it has many control characters"},
        {"n,s\\n1,a\\n2,caf\\351\\n", "-c s",
         "line 3: the byte e9 is not UTF-8; save the file as UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECKF(run("printf '%s' | " SURPRISAL MODEL "%s", cases[i].input, cases[i].options) == 1,
               "%s %s: %s", cases[i].input, cases[i].options, err);
        CHECKF(strstr(err, cases[i].says) && !strstr(err, "--exact"), "%s: said \"%s\"",
               cases[i].input, err);
    }
}

/* A word longer than the context is read in windows, and is one row. */
TEST(a_word_of_400_tokens)
{
    RUNS(
        "{ printf 'The '; yes 'qx' | head -n 199 | tr -d '\\n'; echo ' end'; } | " SURPRISAL MODEL);
    CHECKF(occurrences(out, "\n") == 4 && strstr(out, "qx,399,"), "%s", out);
    CHECKF(strstr(err, "are longer than the context, and read in windows: 127 or more tokens"),
           "%s", err);
}

TEST(first_words_without_a_beginning)
{
    RUNS("printf 'The cat\\nA\\n' | " SAY "--no-bos --rank --top 1");
    CHECKF(strstr(out, "1,1,The,1,NA,NA,NA,NA,NA,NA\n1,2,cat,1,") &&
               strstr(out, "2,1,A,1,NA,NA,NA"),
           "%s", out);
    CHECK(run("printf 'The' | " SAY "--no-bos --json") == 0);
    CHECKF(strstr(out, "\"surprisal\": null, \"uncorrected\": null, \"entropy\": null}"), "%s",
           out);
}

/* The beginning-of-text token by its name, in place of the one that a text begins with. */
TEST(special_tokens)
{
    static const char numbers[] = " | tail -n 3 | cut -d, -f 5-7";
    if (!EQUAL(run("printf 'The cat sat.' | " SAY "--by token%s", numbers), 0))
        return;
    const char *const own = test_text("%s", out);
    CHECK(run("printf '<|endoftext|>The cat sat.' | " SAY "--no-bos --special --by token%s",
              numbers) == 0);
    CHECKF(strcmp(out, own) == 0, "%s, not %s", out, own);
}

/* A row of a text that --context cuts is the last one of a text that begins there. */
TEST(context)
{
    static const char *const cases[][4] = {
        {"The old man saw the big boat. He ran", "--context 2w", "7p", "the big boat."},
        {"The old man saw the big boat. He ran", "--context 2w", "3p", "The old man"},
        {"The old man saw the big boat. He ran", "--context 4", "8p", "the big boat. He"},
        {"He saw the big boat.", "--context 2 --punctuation apart", "6p", "big boat."},
        {"The old man_saw_the big boat", "--context 3w --regions _ --by region", "4p",
         "man_saw_the big"},
        {"The boat. He ran", "--context 1w --rank --layers all --entropy-reduction", "4p",
         "He ran"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const more = strchr(cases[i][1] + 10, ' ');
        char whole[400], cut[400]; /* column 8 of a region is its number in the text */
        snprintf(whole, sizeof whole,
                 "printf '%s' | " SAY "%s | tail -n +2 | sed -n %s | cut -d, -f 3-7,9-",
                 cases[i][0], cases[i][1], cases[i][2]);
        snprintf(cut, sizeof cut, "printf '%s' | " SAY "%s | tail -n 1 | cut -d, -f 3-7,9-",
                 cases[i][3], more ? more : "");
        same(cut, whole);
    }
    same("printf 'The old man saw the big boat. He ran' | " SURPRISAL BLANK
         "-q --context 4 | sed -n 9p | cut -d, -f 3-7",
         "printf 'the big boat. He' | " SURPRISAL BLANK "-q | tail -n 1 | cut -d, -f 3-7");
    same(SAY FIXTURES "texts.txt", SAY FIXTURES "texts.txt --context 5000w --batch 3");
    refuses(2, "--context is \"0w\"; expected a number of tokens from 1",
            "echo a | " SURPRISAL MODEL "--context 0w");
}

TEST(columns_of_options)
{
    CHECK(run("printf 'Once upon a' | " SAY "--top 2 --rank --by token --regions _") == 0);
    CHECKF(strstr(out, HEADER ",token,token_id,region,rank,top1,top1_probability,top2,"
                              "top2_probability\n") == out,
           "%s", out);
    CHECKF(strstr(out, ",\" upon\",511,2,0,\" upon\",0.91"), "%s", out);
    /* nats are bits times log(2) */
    CHECK(run("printf 'Once' | " SAY "--json --unit nats") == 0);
    CHECKF(fabs(number_in(out, "surprisal") - 1.102154 * log(2)) < 2e-6, "%s", out);
}

/* Checks the printed columns prev1_.. and prev2_..: they repeat the `n` numbers from field 4 on of the last two rows,
 * or have NA if such a row has another text (field 0). is_one: all rows are one text. */
static void compare_spillover(const char *options, int n, int is_one)
{
    static char rows[3][MAX_FIELDS][64];
    char *fields[MAX_FIELDS];
    int n_fields, n_rows = 0, n_of_text = 0;
    if (!RUNS("cat " FIXTURES "*.txt | sed 's/ a / a_/g' | " SAY "--spillover 2 %s", options))
        return;
    char *at = cut_record(out, fields, &n_fields);
    CHECKF(strcmp(fields[4], "surprisal") == 0 && strcmp(fields[4 + n], "prev1_surprisal") == 0 &&
               strcmp(fields[4 + 2 * n], "prev2_surprisal") == 0,
           "%s: %s", options, fields[4 + n]);
    while ((at = cut_record(at, fields, &n_fields)) != NULL && n_fields >= 4 + 3 * n) {
        n_of_text =
            n_rows > 0 && (is_one || strcmp(fields[0], rows[0][0]) == 0) ? n_of_text + 1 : 0;
        for (int back = 1; back <= 2; back++)
            for (int i = 0; i < n; i++) {
                const char *const want = n_of_text < back ? "NA" : rows[back - 1][4 + i];
                CHECKF(strcmp(fields[4 + back * n + i], want) == 0,
                       "%s, row %d, %d back: %s, not %s", options, n_rows, back,
                       fields[4 + back * n + i], want);
            }
        memmove(rows[1], rows[0], 2 * sizeof rows[0]);
        for (int i = 0; i < 4 + n; i++)
            snprintf(rows[0][i], sizeof rows[0][i], "%s", fields[i]);
        n_rows++;
    }
    CHECKF(n_rows > 200, "%s: %d rows", options, n_rows);
}

TEST(spillover)
{
    compare_spillover("", 3, 0);
    compare_spillover("--by token --renyi 2", 4, 0);
    compare_spillover("--by region --regions _ --entropy-reduction", 4, 0);
    compare_spillover("--continue --no-bos", 3, 1);
    CHECK(run("printf 's,prev1_entropy,renyi\\na b,1,2\\n' | " SAY "-c s --spillover 1 --json") ==
          0);
    CHECKF(strstr(out, "\"prev1_surprisal\": null, ") &&
               strstr(out, "\"input_prev1_entropy\": \"1\"") && strstr(out, "\"renyi\": \"2\""),
           "%s", out);
    refuses(2, "--spillover: \"101\" is not a whole number from 0 to 100", SAY "--spillover 101 x");
    refuses(2, "--renyi: \"0\" is not a number from 0.01 to 100", SAY "--renyi 0 x");
    refuses(2, "--renyi is 1.005; expected 1, which is the entropy, or what differs",
            SAY "--renyi 1.005 x");
}

TEST(punctuation_apart)
{
    CHECK(run("printf '\"Well-known dog'\"'\"'s,\" (he) 3.5%%%%' | " SAY
              "--punctuation apart | cut -d, -f3 | tail -n +2 | tr '\\n' ' '") == 0);
    CHECKF(strcmp(out, "\"\"\"\" Well - known dog 's \" ( he ) 3 . 5 % ") == 0, "%s", out);
}

TEST(regions)
{
    CHECK(run("printf 'The old_man|the boats' | " SAY
              "--regions _ --by region | cut -d, -f1-4,8") == 0);
    CHECKF(strstr(out, "1,1,The,1,1\n1,2,old man|the,") && strstr(out, "1,3,boats,"), "%s", out);
    CHECK(run("printf '__The__old__ man' | " SAY "--regions __ | cut -d, -f2,3,8") == 0);
    CHECKF(strcmp(out, "index,word,region\n1,The,1\n2,old,1\n3,man,2\n") == 0, "%s", out);
    /* the mark is read as a blank */
    same("printf 'The old man' | " SAY,
         "printf 'The old_man' | " SAY "--regions _ | cut -d, -f1-7");
    /* names, for each word or for each region */
    CHECK(run("printf 's,n\\nThe cat sat.,np np vp\\n' | " SAY
              "--column s --region-names n --by region "
              "| cut -d, -f2,3,8") == 0);
    CHECKF(strcmp(out, "index,word,region\n1,The cat,np\n3,sat.,vp\n") == 0, "%s", out);
    CHECK(run("printf 's,n\\n\"\",np\\nThe cat,a\\tb\\n' | " SAY
              "-c s --region-names n | cut -d, -f1,8") == 0);
    CHECKF(strcmp(out, "text,region\n2,a\n2,b\n") == 0, "%s", out);
    CHECK(run("printf 's,n\\nThe_cat sat.,np vp\\n' | " SAY
              "--column s --region-names n --regions _ "
              "| cut -d, -f2,3,8") == 0);
    CHECKF(strcmp(out, "index,word,region\n1,The,np\n2,cat,np\n3,sat.,vp\n") == 0, "%s", out);
    /* a word a row: the numbers of the running texts */
    same("printf 'a b. c d\\ne f. g\\na b' | " SAY "| cut -d, -f3-",
         "printf 's,w\\n1,a\\n1,b.\\n1,c d\\n2,e\\n2,f.\\n2,g\\n1,a\\n1,b\\n' | " SAY
         "--column w --text-column s | cut -d, -f3-7");
    CHECK(run("printf 's,w\\n1,a\\n1,b\\n1,c\\n' | " SURPRISAL MODEL "--column w") == 0 &&
          strstr(err, "each text is one word"));
    refuses(2, "--text-column is for a table", SAY "--text-column n x");
    refuses(2, "--text-column and --continue contradict",
            "printf 's,w\\n1,a\\n' | " SAY "--column w --text-column s --continue");
    CHECK(run("printf 's,w,n\\n1,a,main verb\\n1,b.,end\\n' | " SAY
              "-c w --text-column s --by region --region-names n | cut -d, -f3,8") == 0);
    CHECKF(strcmp(out, "word,region\na,main verb\nb.,end\n") == 0, "%s", out);
    CHECK(run("printf 'n <unk> b\\n<eos>\\n<eo> s\\n' | " SURPRISAL MODEL) == 0 &&
          strstr(err, "2 of 3 texts have <eos> or <unk>, read as letters"));
    refuses(1, "line 2: 2 names of regions for 1 regions",
            "printf 's,n\\nThe,np vp\\n' | " SAY "--column s --region-names n");
    refuses(1, "line 2: 2 names of regions for 3 regions",
            "printf 's,n\\nThe cat sat.,np vp\\n' | " SAY "--column s --region-names n");
    refuses(2, "--by region needs --regions MARK or --region-names", SAY "--by region x");
    refuses(2, "--region-names is for a table", SAY "--region-names n x");
    refuses(2, "is not a mark without blanks", SAY "--regions ' ' x");
}

/* ---- tables ---- */

static void table_prints(const char *table, const char *options, const char *expected)
{
    CHECKF(run("printf '%s' | " SAY "%s", table, options) == 0, "%s: %s", table, err);
    CHECKF(out && strcmp(out, expected) == 0, "%s %s: %s, not %s", table, options, out, expected);
}

TEST(tables)
{
    char *plain, expected[2048];
    const char *row = plain = prints("printf 'The' | " SAY "| tail -n 1 | tr -d '\\n'");
    snprintf(expected, sizeof expected, HEADER ",id,note\n%s,7,\"a \"\"b\"\", c\nd\"\n", row);
    table_prints("id,s,note\\r\\n7,The,\"a \"\"b\"\", c\\r\\nd\"\\r\\n", "-c s", expected);
    table_prints("id;s;note\\n7;The;\"a \"\"b\"\", c\\nd\"\\n\\n", "-c s", expected);
    table_prints("id\\ts\\tnote\\n7\\tThe\\t\"a \"\"b\"\", c\\nd\"", "-c s", expected);
    snprintf(expected, sizeof expected, HEADER ",input_word,\"x, y\"\n%s,,\" z\"\n", row);
    table_prints("\\357\\273\\277s,word,\"x, y\"\\n\"The\",, z\\n", "--column s", expected);
    snprintf(expected, sizeof expected, HEADER "\n%s\n", row);
    table_prints("a column\\nThe\\n", "--column \"a column\"", expected);
    table_prints("a column\\n\"\\nThe \"\\n\\n", "--column \"a column\"", expected);
    snprintf(expected, sizeof expected, HEADER ",id\n%s,7\n", row);
    table_prints("sep=;\\nid;s\\n7;The\\n", "-c s", expected);
    table_prints("sep=|\\r\\nid|s\\r\\n7|The\\r\\n", "-c s", expected);
    /* R's write.table parts columns by blanks, and has names of rows without a name */
    snprintf(expected, sizeof expected, HEADER ",n\n%s,NA\n", row);
    table_prints("\"s\" \"n\"\\n\"The\" NA\\n", "-c s", expected);
    refuses(1, "line 2: the record has 3 fields; expected 2, as many as the first line names (R:",
            "printf '\"s\" \"n\"\\n\"1\" \"The\" NA\\n' | " SAY "-c s");
    /* what looks like a table is none of texts */
    refuses(
        2,
        "standard input is a table: name the column of texts with --column; its columns are a, b",
        "printf 'a\\tb\\n\\nc\\td' | " SAY);
    refuses(2, "its columns are s, n", "printf '\"s\" \"n\"\\n\"1\" \"a b\" 2\\n' | " SAY);
    CHECK(run("printf 'a\\tb\\nc d\\n' | " SAY) == 0 && run("printf 'a\\tb\\n' | " SAY) == 0);
    CHECK(run("printf '\"A\" \"b,\" he said.\\n\"1\"\\n' | " SAY) == 0);
    snprintf(expected, sizeof expected, HEADER ",id\n%s,\"7\r8\"\n", row);
    table_prints("id,s\\n\"7\\r8\",The\\n", "-c s", expected);
    CHECK(run("printf 'id,s\\n\\\\7,The\\n' | " SAY "-c s --json") == 0);
    CHECKF(strstr(out, "\"input_id\"") == NULL && strstr(out, "\"id\": \"\\\\7\"}\n"), "%s", out);
    free(plain);
}

/* Every column of the input is in the output, under a name that no other column has. */
TEST(names_of_columns)
{
    static const struct {
        const char *names, *options, *carried;
    } cases[] = {
        {"s,topic,top1x,top", "--top 1", "topic,top1x,top"},
        {"s,top1,top2,top1_probability", "--top 1", "input_top1,top2,input_top1_probability"},
        {"s,text,input_text", "", "input_input_text,input_text"},
        {"s,note,note,note", "", "note,input_note,input_input_note"},
        {"text,index,s,rank,region,token", "", "input_text,input_index,rank,region,token"},
        {"rank,region,s,token,token_id", "--rank --by token",
         "input_rank,region,input_token,input_token_id"},
        {"s,region", "--regions _", "input_region"},
    };
    char a[512], names[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t n = strlen(cases[i].carried);
        snprintf(names, sizeof names, "%s", cases[i].names);
        CHECK(run("printf '%s\\n' | sed 'p;s/[^,]*/a/g' | " SAY "-c s %s | head -n 1", names,
                  cases[i].options) == 0);
        CHECKF(out_size > n && strncmp(out + out_size - n - 2, ",", 1) == 0 &&
                   strncmp(out + out_size - n - 1, cases[i].carried, n) == 0,
               "%s %s: %s", names, cases[i].options, out);
    }
    memset(a, 'a', 300);
    a[300] = 0;
    CHECK(run("printf '%sA,%sB,s\\n' | sed 'p;s/[^,]*/a/g' | " SAY "-c s | grep -c ',%sA,%sB$'", a,
              a, a, a) == 0);
}

TEST(wrong_tables)
{
    refuses(2, "--column: standard input has no column \"sent\"; its columns are id, sentence",
            "printf 'id,sentence\\n1,a\\n' | " SAY "--column sent");
    refuses(2, "its columns are id, sentence",
            "printf 'id;sentence\\n1;a\\n' | " SAY "--column sent");
    refuses(2, "--region-names: standard input has no column \"x\"",
            "printf 'id,s\\n1,a\\n' | " SAY "--column s --region-names x");
    refuses(1, "line 4: the record has 1 field; expected 2",
            "printf 'id,s\\n1,\"a\\nb\"\\n2\\n' | " SAY "--column s");
    refuses(1, "line 2: the record has 3 fields; expected 2",
            "printf 'id,s\\n1,a,b\\n' | " SAY "--column s");
    refuses(1, "line 3: a quoted field has no closing quote",
            "printf 'id,s\\n1,a\\n2,\"b\\n' | " SAY "--column s");
    refuses(1, "line 2: a quoted field has no closing quote before the next separator",
            "printf 'id,s\\n1,\"a\"b\\n' | " SAY "--column s");
    refuses(1, "line 1: a quoted field", "printf '\"id,s\\n1,a\\n' | " SAY "--column s");
    CHECK(run("printf 'id,s\\n1,a\\n' >" TEST_TMP "t.csv") == 0);
    refuses(2, "t.csv is a table: name the column of texts with --column; its columns are id, s",
            SAY TEST_TMP "t.csv");
    CHECK(run("cp " TEST_TMP "t.csv " TEST_TMP "T.CSV") == 0);
    refuses(2, "T.CSV is a table: name the column of texts with --column; its columns are id, s",
            SAY TEST_TMP "T.CSV");
    CHECK(run("printf 'a;b c;d\\n1;2;3\\n' >" TEST_TMP "t.tsv; : >" TEST_TMP "empty.csv") == 0);
    refuses(2,
            "t.tsv is a table: name the column of texts with --column; its columns are a, b c, d",
            SAY TEST_TMP "t.tsv");
    refuses(1, "empty.csv is empty; expected a text on each line", SAY TEST_TMP "empty.csv");
    refuses(1, "none.csv: No such file or directory", SAY TEST_TMP "none.csv");
    refuses(2, "--column: standard input has 2 columns \"s\"; give each a name of its own",
            "printf 's,id,s\\na,1,b\\n' | " SAY "--column s");
    refuses(2, "--region-names: standard input has 3 columns \"n\"; give each a name of its own",
            "printf 'n\\ts\\tn\\tn\\n1\\ta\\t2\\t3\\n' | " SAY "--column s --region-names n");
}

/* ---- files ---- */

TEST(output_appears_whole)
{
    CHECK(run("rm -f " TEST_TMP "o.csv*; " SAY FIXTURES "texts.txt -o " TEST_TMP "o.csv") == 0);
    CHECK(out_size == 0 && !system_exists(TEST_TMP "o.csv.part"));
    same("cat " TEST_TMP "o.csv", SAY FIXTURES "texts.txt");
    same(SAY FIXTURES "texts.txt", SAY "-o - " FIXTURES "texts.txt");
    refuses(2, "would overwrite ",
            "cp " FIXTURES "texts.txt " TEST_TMP "i.txt; " SAY TEST_TMP "i.txt -o " TEST_TMP
            "i.txt");
    refuses(2, "would overwrite ", SAY FIXTURES "texts.txt -o " MODEL);
    CHECK(run("rm -rf " TEST_TMP "far " TEST_TMP "v.npz; mkdir " TEST_TMP
              "far && ln -s far/v.npz " TEST_TMP "v.npz") == 0);
    CHECK(run(SAY FIXTURES "texts.txt -q --vectors hook_embed --vectors-file " TEST_TMP "v.npz") ==
              0 &&
          run("[ -L " TEST_TMP "v.npz ] && [ -s " TEST_TMP "far/v.npz ]") == 0);
    refuses(2, "is a directory", SAY FIXTURES "texts.txt -o " TEST_TMP);
    refuses(1, "No such file", SAY FIXTURES "texts.txt -o " TEST_TMP "nowhere/o.csv");
    refuses(1, "cannot write the output: No space left", SAY FIXTURES "texts.txt >/dev/full");
}

/* An interrupted run, wherever it was cut, continues to the same bytes. */
static void resumes(const char *options, size_t size, size_t step)
{
    for (size_t cut = 0; cut < size; cut += step) {
        CHECK(run("rm -f " TEST_TMP "r.csv; head -c %zu " TEST_TMP "whole.csv >" TEST_TMP
                  "r.csv.part",
                  cut) == 0);
        CHECKF(run("cat " FIXTURES "*.txt | " SAY "%s --resume -o " TEST_TMP "r.csv", options) == 0,
               "%s, cut at %zu: %s", options, cut, err);
        CHECKF(test_same_file(TEST_TMP "r.csv", TEST_TMP "whole.csv"), "%s, cut at %zu", options,
               cut);
    }
}

TEST(resume)
{
    static const char *const ways[] = {"", "--continue --batch 1", "--json", "--by token --rank",
                                       "--continue --spillover 3 --entropy-reduction --layers all"};
    uint64_t size = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        FILE *file;
        CHECK(run("cat " FIXTURES "*.txt | " SAY "%s >" TEST_TMP "whole.csv", ways[i]) == 0);
        if (CHECK((file = fopen(TEST_TMP "whole.csv", "rb")) != NULL)) {
            system_size(file, &size);
            fclose(file);
            resumes(ways[i], (size_t)size + 1, test_full() ? 97 : 3001);
        }
    }
    CHECK(run("rm -f " TEST_TMP "r.csv*; cat " FIXTURES "*.txt | " SAY "| head -n 20 >" TEST_TMP
              "r.csv.part") == 0);
    refuses(1, "r.csv.part has rows of a run that was interrupted: continue it with --resume",
            SAY FIXTURES "texts.txt -o " TEST_TMP "r.csv");
    refuses(1, "--resume: line 20 of",
            "cat " FIXTURES "*.txt | sed 's/Lily/Anna/' | " SAY "--unit nats --resume -o " TEST_TMP
            "r.csv");
    refuses(1, "--resume: line 1 of",
            "cat " FIXTURES "*.txt | " SAY "--rank --resume -o " TEST_TMP "r.csv");
    refuses(1, "has more rows than standard input gives",
            "printf 'Once\\n' | " SAY "--resume -o " TEST_TMP "r.csv");
    CHECK(system_exists(TEST_TMP "r.csv.part") && !system_exists(TEST_TMP "r.csv"));
    refuses(2, "--resume continues a file", SAY "--resume x");
}

TEST(interrupted)
{
    CHECK(run("rm -f " TEST_TMP
              "s.csv*; yes 'The cat sat on the mat and looked at me' | head -n 100000 "
              ">" TEST_TMP "many.txt; " SURPRISAL MODEL TEST_TMP "many.txt -t 1 -o " TEST_TMP
              "s.csv & while ! test -s " TEST_TMP "s.csv.part; do sleep 0.1; done; " INTERRUPT
              "wait $run") == 130);
    CHECKF(strstr(err, "interrupted; the rows so far are in " TEST_TMP "s.csv.part, and --resume"),
           "%s", err);
    CHECK(system_exists(TEST_TMP "s.csv.part") && !system_exists(TEST_TMP "s.csv"));
}

/* A run of more than two seconds tells the time that is left, on a terminal alone. */
TEST_IF(test_full(), progress)
{
    if (!has_terminal())
        return;
    run("yes 'The cat sat on the mat and looked at me' | head -n 100000 >" TEST_TMP
        "many.txt; timeout -s INT 6 script -qec 'stty cols 80; " SURPRISAL MODEL TEST_TMP
        "many.txt -t 1 -o " TEST_TMP "p.csv' /dev/null | tr '\\r' '\\n'");
    CHECKF(out && strstr(out, "reading [") && strstr(out, "left"), "%s", out ? out : "");
    run("rm -f " TEST_TMP "p.csv*; timeout -s INT 4 " SURPRISAL MODEL TEST_TMP
        "many.txt -t 1 -o " TEST_TMP "p.csv");
    CHECKF(!strstr(err, "reading ["), "%s", err);
}

/* ---- models ---- */

/* A model whose tokens are these characters. */
static void make_model(const char *characters)
{
    RUNS("rm -rf " TEST_TMP "letters; mkdir " TEST_TMP "letters; cp tests/golden/long/config.json "
         "tests/golden/long/model.safetensors " TEST_TMP "letters; printf '%s' >" TEST_TMP
         "letters/vocab.json; " TEST_BUILD "/attn-convert -q " TEST_TMP "letters " TEST_TMP
         "letters.attn",
         characters);
}

#define LETTERS SURPRISAL TEST_TMP "letters.attn "

TEST(character_models)
{
    make_model("{\"a\": 0, \" \": 1, \"b\": 2}");
    RUNS("printf 'ab  ba\nb' | " LETTERS "-q --no-bos | cut -d, -f1-4");
    CHECKF(strcmp(out, "text,index,word,tokens\n1,1,ab,2\n1,2,ba,3\n2,1,b,1\n") == 0, "%s", out);
    CHECK(run("printf 'ab ba' | " LETTERS "--no-bos --punctuation apart | cut -d, -f1-4") == 0);
    CHECKF(strcmp(out, "text,index,word,tokens\n1,1,ab,2\n1,2,ba,3\n") == 0, "%s", out);
    refuses(1, "has no beginning-of-text token: give --no-bos", "printf 'ab' | " LETTERS);
    refuses(1, "line 2: the vocabulary of " TEST_TMP "letters.attn lacks a character of \"bxa\"",
            "printf 'ab\na bxa b\n' | " LETTERS "--no-bos");
    refuses(1, "lacks a character of \"bx\"", "printf 'a bx' | " LETTERS "--no-bos");
    make_model("{\"a\": 0, \"b\": 1}");
    refuses(1, "has no token that begins with a blank, so nothing says where a word ends",
            "printf 'ab' | " LETTERS "--no-bos");
}

TEST(mistakes)
{
    refuses(1, "has no tokenizer, so it cannot read a text",
            "printf a | " SURPRISAL TEST_BUILD "/from_scratch/plain.attn");
    refuses(2, "no model given", SURPRISAL);
    refuses(2, "too many arguments", SURPRISAL MODEL "a b");
    refuses(1, "No such file", SURPRISAL "nowhere.attn LICENSE");
    refuses(1, "nowhere.txt: No such file", SURPRISAL MODEL "nowhere.txt");
    refuses(1, "--stride is 256, but the model's context holds 255",
            "echo a | " SAY "--stride 256");
    refuses(2, "--top: \"1001\" is not a whole number", SAY "--top 1001 x");
    refuses(2, "choose word, token or region", SAY "--by letter x");
}

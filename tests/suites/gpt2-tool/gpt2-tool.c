/* gpt2's ways of generating: probabilities and choices beside PyTorch's, several texts, and the
 * interactive mode, whose commands come through a pipe here. */
#include "tests/support/printed_json.h"
#include "tests/fixtures/gpt2_vectors.h"
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

#define GPT2 TEST_BUILD "/gpt2 " TEST_BUILD "/tiny-stories.attn "
#define ONCE GPT2 "'Once upon a time' -q "
#define WARM "--temperature 0.8 --top-k 0 --seed 7 "
#define REPL "| " GPT2 "--repl -n 20 " WARM
#define TMP  TEST_TMP
#define N(a) (sizeof(a) / sizeof(a)[0])

/* A text as JSON, to be freed. */
static json_value *parsed(char *text)
{
    attn_ctx ctx = {0};
    json_value *root = NULL;
    if (CHECK(text))
        OK(&ctx, json_parse(&ctx, "output", text, strlen(text), &root));
    return root;
}

/* Line `n` of what the last run printed. */
static json_value *line_of_json(char *text, int n)
{
    for (; n > 0 && text; n--)
        text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    if (text)
        text[strcspn(text, "\n")] = 0;
    return parsed(text);
}

TEST(probabilities_as_pytorch)
{
    size_t t;
    for (size_t i = 0; i < N(greedy_vectors); i++) {
        const char *row;
        json_value *root = NULL;
        if (!RUNS(GPT2 "'%s' -q -n 12 --ignore-eos --logprobs --json", greedy_vectors[i].prompt) ||
            !(root = line_of_json(out, 0)))
            continue;
        CHECK(json_is(json_get(root, "prompt"), greedy_vectors[i].prompt));
        CHECK(json_is(json_get(root, "reason"), "token count"));
        for (t = 0; t < N_GREEDY; t++) {
            const json_value *token = item(member(root, "tokens"), t);
            CHECK(number(member(token, "id")) == greedy_vectors[i].ids[t]);
            CHECK(fabs(number(member(token, "logprob")) - greedy_vectors[i].logprobs[t]) < 1e-4);
        }
        CHECK(json_get(root, "tokens")->size == N_GREEDY);
        free(root);
        if (!CHECKF(run(GPT2 "'%s' -q -n 12 --ignore-eos --logprobs", greedy_vectors[i].prompt) ==
                        0,
                    "%s", err))
            continue;
        for (t = 0, row = strchr(out, '\n'); row && t < N_GREEDY;
             t++, row = strchr(row + 1, '\n')) {
            double logprob = 0, percent = 0;
            int id = -1;
            CHECKF(sscanf(row, "%lf %lf %% %d", &logprob, &percent, &id) == 3, "%s", row);
            CHECKF(id == greedy_vectors[i].ids[t], "%s", row);
            CHECKF(fabs(logprob - greedy_vectors[i].logprobs[t]) < 1e-4, "%s", row);
            CHECKF(fabs(percent - 100 * exp(logprob)) < 1e-2, "%s", row);
        }
        CHECKF(row && strlen(row) == 1, "%s", out);
    }
}

/* The probabilities are the model's, and not those of the sampler. */
TEST(probabilities_of_a_warm_text)
{
    json_value *root = NULL, *other = NULL;
    SCOPED_TEXT kept = NULL; /* the next run takes `out` away */
    if (CHECK(run(ONCE "-n 9 --json --logprobs --repeat-penalty 1.3 --top-k 5 " WARM) == 0) &&
        CHECK((kept = (char *)malloc(strlen(out) + 1)) != NULL)) {
        memcpy(kept, out, strlen(out) + 1);
        root = line_of_json(kept, 0);
    }
    for (size_t t = 0; root && t < 9; t++) {
        const json_value *token = item(member(root, "tokens"), t);
        char ids[256] = "506 511 258 433";
        for (size_t k = 0; k < t; k++)
            snprintf(ids + strlen(ids), 16, " %d",
                     (int)number(member(item(member(root, "tokens"), k), "id")));
        token = item(member(root, "tokens"), t);
        if (CHECKF(run(TEST_BUILD "/lens " TEST_BUILD
                                  "/tiny-stories.attn loss --json --ids '%s %d'",
                       ids, (int)number(member(token, "id"))) == 0,
                   "%s", err) &&
            (other = parsed(out)) != NULL) {
            const json_value *last = item(member(other, "tokens"), t + 4);
            CHECK(fabs(number(member(last, "loss")) + number(member(token, "logprob"))) < 1e-6);
        }
        free(other);
        other = NULL;
    }
    free(root);
}

TEST(choices_as_pytorch)
{
    for (size_t i = 0; i < N(choice_vectors); i++) {
        const int n = choice_vectors[i].n;
        double sum = 0, whole = 0, best = -INFINITY;
        char likeliest[64] = "", text[256];
        const char *at = choice_vectors[i].choices;
        json_value *root = NULL;
        if (!RUNS(GPT2 "'%s' --choices '%s' --json", choice_vectors[i].prompt, at) ||
            !(root = line_of_json(out, 0)))
            continue;
        for (size_t k = 0; k < (size_t)n; k++)
            whole += exp(choice_vectors[i].logprobs[k]);
        for (size_t k = 0; k < (size_t)n; k++, at += strcspn(at, "|") + 1) {
            const json_value *choice = item(member(root, "choices"), k);
            const double logprob = choice_vectors[i].logprobs[k];
            CHECK(fabs(number(member(choice, "logprob")) - logprob) < 1e-4);
            CHECK(fabs(number(member(choice, "share")) - exp(logprob) / whole) < 1e-5);
            sum += number(member(choice, "share"));
            if (logprob > best) {
                best = logprob;
                snprintf(likeliest, sizeof likeliest, "%.*s", (int)strcspn(at, "|"), at);
            }
        }
        CHECKF(fabs(sum - 1) < 1e-7, "shares sum to %.9f", sum);
        CHECK(json_is(json_get(root, "text"), likeliest));
        free(root);
        snprintf(text, sizeof text, "%s%s\n", choice_vectors[i].prompt, likeliest);
        CHECKF(run(GPT2 "'%s' --choices '%s'", choice_vectors[i].prompt,
                   choice_vectors[i].choices) == 0 &&
                   strcmp(out, text) == 0,
               "%s", out);
    }
}

TEST(choices)
{
    int first = 0, second = 0;
    CHECK(run(GPT2 "'The cat said that' --choices ' she| he| it' --logprobs") == 0);
    CHECKF(strstr(out, "  logprob    share     choice\n  -4.0831   4.678") == out &&
               strstr(out, " %   \" she\"\n  -1.5864  56.80") &&
               strstr(out, " % * \" he\"\n  -1.97") && strstr(out, " %   \" it\"\n"),
           "%s", out);
    for (int seed = 0; seed < 16; seed++) {
        CHECK(run("%s",
                  test_text(GPT2
                            "'Tom had a' --choices ' dog| big red ball' --temperature 1 --seed %d "
                            "--no-prompt",
                            seed)) == 0);
        first += strcmp(out, " dog\n") == 0;
        second += strcmp(out, " big red ball\n") == 0;
    }
    CHECKF(first + second == 16 && first > 1 && second > 1, "%d and %d of 16", first, second);
    same(GPT2 "'Tom had a' --choices ' dog|xyz' --print-ids --no-prompt",
         "printf ' dog' | " TEST_BUILD "/attn-tokenize " TEST_BUILD "/tiny-stories.attn");
    same("printf 'Tom had a\nTom had a' | " GPT2 "-i --choices ' dog| cat'",
         "echo 'Tom had a dog'; echo 'Tom had a dog'");
    refuses(2, "choice 2 of \"a||b\" is empty", GPT2 "Once --choices 'a||b'");
    refuses(2, "choice 1 of \"|a\" is empty", GPT2 "Once --choices '|a'");
    refuses(2, "--choices \"yes,no\" is a single choice: put | between several",
            GPT2 "Once --choices yes,no");
    refuses(1, "has 256 tokens and the longest choice 2; the model's context holds 256",
            GPT2 "--ids \"$(yes 11 | head -n 256)\" --choices ' dog|. Lily'");
    CHECK(run(GPT2 "--ids \"$(yes 11 | head -n 256)\" --choices ' dog|.' --no-prompt") == 0);
}

TEST(stop_strings)
{
    char *whole = prints(ONCE "-n 40"), *cut = prints(ONCE "-n 40 --stop ' Lily'");
    const char *at = whole ? strstr(whole, " Lily") : NULL;
    if (CHECK(at && cut))
        CHECKF(strlen(cut) == (size_t)(at - whole) + 1 && strncmp(whole, cut, strlen(cut) - 1) == 0,
               "%s", cut);
    same(ONCE "-n 40 --stop nowhere --stop ' Lily' --stop=snake", ONCE "-n 40 --stop ' Lily'");
    same(ONCE "-n 40 --stop nowhere", ONCE "-n 40");
    CHECK(run(GPT2 "'Once upon a time' -n 40 --stop ' Lily'") == 0 &&
          strstr(err, ": it reached a stop string;"));
    free(whole);
    free(cut);
    whole = prints(ONCE "-n 200"), cut = prints(ONCE "-n 200 --stop '\\n'");
    at = whole ? strchr(whole, '\n') : NULL;
    CHECK(at && cut && strlen(cut) == (size_t)(at - whole) + 1);
    free(whole);
    free(cut);
    refuses(2, "--stop: at most 16 can be given",
            GPT2 "Once $(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do echo --stop $i; "
                 "done)");
    refuses(2, "--stop needs a text", GPT2 "Once --no-prompt --stop ''");
}

/* Text i of a batch is the one with seed + i. */
/* A text in pieces: `first` and then `second` go on in one file and print what `whole` prints. */
static void in_pieces(const char *options, const char *first, const char *second, const char *whole)
{
    CHECK(run("rm -f " TMP "pieces") == 0);
    SCOPED_TEXT one = prints(test_text(GPT2 "-q --session " TMP "pieces %s %s", options, first));
    SCOPED_TEXT two = prints(test_text(GPT2 "-q --session " TMP "pieces %s %s", options, second));
    SCOPED_TEXT all = prints(test_text(GPT2 "-q %s %s", options, whole));
    if (one && two && all) {
        one[strlen(one) - 1] = 0; /* the end of the line */
        CHECKF(strncmp(all, one, strlen(one)) == 0 && strcmp(all + strlen(one), two) == 0,
               "\"%s\" and \"%s\", not \"%s\"", one, two, all);
    }
}

TEST(texts_in_files)
{
    static const char *const options[] = {"", "--f16-cache", "--threads 1", "--slide"};
    char *second;
    for (size_t i = 0; i < N(options); i++) {
        in_pieces(options[i], "'Once upon a time' -n 12", "-n 8", "'Once upon a time' -n 20");
        in_pieces(options[i], "'Once upon' -n 0", "' a time' -n 9", "'Once upon a time' -n 9");
        in_pieces(options[i], "'Once upon a time' --bos -n 3", "--bos -n 4",
                  "'Once upon a time' --bos -n 7");
    }
    in_pieces("--ignore-eos --slide", "'Once upon a time' -n 300", "-n 5",
              "'Once upon a time' -n 305");
    /* what a stop string cut off is not kept */
    CHECK(run("rm -f " TMP "stopped; " ONCE "--stop ' little' --session " TMP "stopped") == 0);
    CHECKF(strcmp(out, "Once upon a time, there was a\n") == 0, "%s", out);
    CHECK(run(GPT2 "-q --session " TMP "stopped ' small boy' -n 6 && " GPT2
                   "-q 'Once upon a time, there was a small boy' -n 6") == 0);
    if (CHECK(out && (second = strchr(out, '\n')) != NULL)) {
        *second++ = 0;
        CHECKF(strncmp(out, " small boy", 10) == 0 && strstr(second, out), "%s\n%s", out, second);
    }
}

TEST(texts_in_files_refused)
{
    static const char plain[] = TEST_BUILD "/gpt2 " TEST_BUILD "/from_scratch/plain.attn ";
    CHECK(run("rm -f " TMP "kept " TMP "as_f16; " ONCE "-n 5 --session " TMP "kept && " ONCE
              "-n 5 --f16-cache --session " TMP "as_f16 && cp " TMP "kept " TMP "same") == 0);
    refuses(1, "has keys and values in f16, and not in f32", GPT2 "--session " TMP "as_f16");
    refuses(1, "in f32, and not in f16", GPT2 "--f16-cache --session " TMP "kept");
    refuses(1, "kept was saved with another model",
            test_text("%s--ids '1 2' --session " TMP "kept", plain));
    refuses(1, "cut ends early",
            "head -c 5000 " TMP "kept >" TMP "cut; " GPT2 "--session " TMP "cut");
    refuses(1, "is not a session",
            "echo 'a text that somebody wrote, longer than forty bytes' >" TMP "text; " GPT2
            "--session " TMP "text");
    refuses(1, "kept holds 9 tokens, and the prompt has 250: the model's context holds 256",
            GPT2 "--session " TMP "kept --ids \"$(yes 11 | head -n 250)\"");
    refuses(2, "--session and --json contradict each other", GPT2 "--json --session " TMP "kept");
    refuses(2, "no prompt given", GPT2 "--session " TMP "nothing_there");
    CHECK(run("cmp " TMP "kept " TMP "same && test ! -e " TMP "nothing_there") == 0);
}

/* A prompt without text goes on with the session alone. */
TEST(empty_prompts_of_a_session)
{
    static const char *const none[] = {"-p ''", "--ids ''", "-f " TMP "empty"};
    test_write(TMP "empty", "", 0);
    CHECK(run("rm -f " TMP "begun; " ONCE "-n 5 --session " TMP "begun") == 0);
    for (size_t i = 0; i < 3; i++) {
        same("cp " TMP "begun " TMP "on; " GPT2 "-q -n 4 --session " TMP "on </dev/null",
             test_text("cp " TMP "begun " TMP "on; " GPT2 "-q -n 4 --session " TMP "on %s",
                       none[i]));
    }
}

TEST(several_texts)
{
    static char expected[8192], command[256];
    json_value *root;
    size_t at = 0;
    char *one;
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command, ONCE "-n 30 --temperature 0.8 --seed %d", 7 + i);
        one = prints(command);
        at +=
            (size_t)snprintf(expected + at, sizeof expected - at, "%d. %s", i + 1, one ? one : "");
        free(one);
    }
    CHECKF(run(ONCE "-n 30 --count 4 " WARM) == 0 && strcmp(out, expected) == 0, "%s", out);
    CHECK(run(GPT2 "Once -n 5 --count 2 " WARM) == 0 && strstr(err, "generated 10, ") &&
          strstr(err, ": in several texts;"));
    for (int i = 0; i < 2; i++) { /* the same in JSON */
        CHECK(run(ONCE "-n 30 --count 2 --json " WARM) == 0);
        if ((root = line_of_json(out, i)) != NULL) {
            const json_value *text = json_get(root, "text");
            CHECK(number(member(root, "seed")) == 7 + i);
            snprintf(command, sizeof command, "%d. Once upon a time", i + 1);
            CHECK(text && strstr(expected, command) &&
                  strncmp(strstr(expected, command) + strlen(command), text->text, text->size) ==
                      0);
            CHECK(json_get(root, "tokens")->size == 30);
        }
        free(root);
    }
    same(ONCE "-n 3 --count 1 --json", ONCE "-n 3 --json");
    same(ONCE "-n 40 --count 2 --temperature 1 --top-k 1 --stop ' Lily' --no-prompt",
         "for i in 1 2; do printf \"$i. \"; " ONCE "-n 40 --stop ' Lily' --no-prompt; done");
    same(ONCE "-n 3 --count 2 --print-ids --no-prompt --temperature 1 --top-k 1",
         "echo '1. 11 400 286'; echo '2. 11 400 286'");
    one = prints(ONCE "-n 3 --logprobs");
    snprintf(expected, sizeof expected, "1.\n%s2.\n%s", one ? one : "", one ? one : "");
    CHECK(run(ONCE "-n 3 --count 2 --logprobs --temperature 1 --top-k 1") == 0);
    CHECKF(strcmp(out, expected) == 0, "%s", out);
    free(one);
    CHECK(run("printf 'a\\200\\n' | " GPT2 "- --exact -q -n 0 --count 1 --json") == 0 &&
          strstr(out, "{\"prompt\": \"a\xEF\xBF\xBD\\n\", \"text\": \"\""));
}

/* When the context is full, its younger half goes on as a prompt of its own would. */
TEST(sliding)
{
    char *ids = prints(GPT2 "Once -q -n 500 --slide --ignore-eos --print-ids"), *at, *next;
    static char command[8192];
    int i;
    CHECK(ids && run(GPT2 "Once -q -n 500 --ignore-eos --print-ids") == 0);
    CHECKF(ids && strncmp(ids, out, out_size - 1) == 0 && strlen(ids) > out_size, "%s", ids);
    for (i = 0, at = ids; at && i < 257 - 128; i++) /* what the window begins with */
        at = strchr(at + 1, ' ');
    for (next = at; next && i < 257; i++)
        next = strchr(next + 1, ' ');
    if (CHECK(at && next)) {
        snprintf(command, sizeof command,
                 GPT2 "--ids '%.*s' -q -n 100 --ignore-eos --print-ids --no-prompt",
                 (int)(next - at), at);
        CHECK(run("%s", command) == 0);
        CHECKF(strncmp(next + 1, out, out_size - 1) == 0, "%.40s, but %.40s", next + 1, out);
    }
    free(ids);
    CHECK(run(GPT2 "Once -n 500 --slide --ignore-eos") == 0);
    CHECKF(strstr(err, "the context was full and dropped its older half, 2 times"), "%s", err);
}

TEST(options_that_do_not_go_together)
{
    refuses(2, "--logits and --json contradict each other", GPT2 "Once --logits x --json");
    refuses(2, "--choices and --count contradict",
            GPT2 "Once --choices a --count 2 --temperature 1");
    refuses(2, "--slide and --json contradict", GPT2 "Once --slide --json");
    refuses(2, "--repl and --json contradict", GPT2 "--repl --json");
    refuses(2, "--top-p chooses nothing at temperature 0: add --temperature 0.8",
            ONCE "-n 3 --top-p 0.9");
    refuses(2, "--count 3 at temperature 0 would print the same text 3 times",
            GPT2 "Once --count 3");
    refuses(2, "--count: \"0\" is not a whole number from 1 to 1000", GPT2 "Once --count 0");
    refuses(2, "give the prompt another way", GPT2 "--repl --file -");
    refuses(2, "--stop needs a text", GPT2 "Once --stop a --stop ''");
}

/* >> The interactive mode ====================================================================== */

/* The text of a stop string is not shown, so the model goes on without it; of a token that was shown in
 * part, the model has that part. */
TEST(stop_strings_in_turns)
{
    char *seen = prints("printf '/stop She\\nOnce upon a time\\n\\n' | " GPT2
                        "--repl -q -n 30 --temperature 0 | tr -d '\\n'");
    char *whole = prints("printf '/stop She\\nOnce upon a time\\n\\n/show\\n' | " GPT2
                         "--repl -q -n 30 --temperature 0 | tail -n 1 | tr -d '\\n'");
    CHECKF(seen && whole && strstr(whole, "Once upon a time") == whole &&
               strcmp(whole + 16, seen) == 0,
           "%s; %s", whole, seen);
    free(seen);
    free(whole);
    CHECKF(run("printf '/stop girl\\nOnce upon a time\\n named Tom\\n/show\\n' | " GPT2
               "--repl -q -n 9 --temperature 0") == 0 &&
               strstr(out, "\nOnce upon a time, there was a little  named Tom"),
           "%s", out);
    CHECKF(run("printf 'Once upon a time\\n/stop he\\n/candidates 2\\n/choose 2\\n/show\\n' | " GPT2
               "--repl -q -n 20 --temperature 1 --seed 3 | tail -n 1") == 0 &&
               strlen(out) > 17 && !strstr(out, "he"),
           "%s", out);
}

/* What each line typed gives is what the options give. */
TEST(turns)
{
    same("printf 'Once upon a time\\n' " REPL, ONCE "--no-prompt -n 20 " WARM);
    same("printf '/temperature 0.8\\n/seed 7\\n/n 20\\nOnce upon a time' | " GPT2
         "--repl --top-k 0",
         ONCE "--no-prompt -n 20 " WARM);
    same("true | " GPT2 "'Once upon a time' --repl -n 20 " WARM, ONCE "-n 20 " WARM);
    same("true | " GPT2 "'Once upon a time' --repl -n 20",
         ONCE "-n 20 --temperature 0.7 --top-k 40");
    SCOPED_TEXT long_text = prints(ONCE "-n 40 --no-prompt");
    CHECKF(run("printf '/top-p\\n/top-p 0\\n/top-p\\nOnce upon a time' | " GPT2
               "--repl -n 9 --temperature 2") == 0 &&
               strstr(err, "top-p: 1)") && occurrences(err, "top-p: 0)") == 2,
           "%s", err);
    char *turn = prints("printf 'Once upon a time\\n\\n' | " GPT2 "--repl -n 20 --temperature 0");
    if (CHECK(long_text && turn)) { /* an empty line goes on */
        const size_t first = strcspn(turn, "\n");
        EQUAL(strncmp(long_text, turn, first), 0);
        CHECKF(strcmp(long_text + first, turn + first + 1) == 0, "%s", turn);
    }
    free(turn);
    /* The second line joins the text after a space, where one belongs. */
    CHECK(run("printf 'Once\\nTom\\n, and\\n\\347\\214\\253\\n/show' | " GPT2 "--repl -n 0") == 0);
    CHECKF(strcmp(out, "\n\n\n\nOnce Tom, and\xE7\x8C\xAB\n") == 0, "%s", out);
    CHECK(run("printf 'a\\\\\\nb\\n//c\\n/show' | " GPT2 "--repl -n 0") == 0);
    CHECKF(strcmp(out, "\n\na\nb /c\n") == 0, "%s", out);
    CHECK(run("printf '\\n/show' | " GPT2 "--repl") == 0);
    CHECKF(strstr(err, "(type the beginning of a text") && strcmp(out, "\n") == 0, "%s%s", err,
           out);
    same("printf 'Once\\n' | " GPT2 "--repl --bos -n 9 --temperature 0",
         GPT2 "--bos Once -n 9 --no-prompt");
    same("printf '/undo\\n/show\\n' | " GPT2 "--repl Once --bos -n 0", "printf 'Once\\n\\n'");
}

TEST(undo_and_regenerate)
{
    same("printf 'Once upon a time\\n/undo\\nOnce upon a time\\n' " REPL,
         "for i in 1 2; do " ONCE "--no-prompt -n 20 " WARM "; done");
    same("printf 'Once upon a time\\nTom\\n/undo\\n/undo\\n/undo\\nOnce upon a time\\nTom\\n' " REPL
         "2>/dev/null || true",
         "printf 'Once upon a time\\nTom\\n/new\\nOnce upon a time\\nTom\\n' " REPL);
    CHECK(run("printf 'Once upon a time\\nTom\\n/undo\\n/show\\n' " REPL) == 0 &&
          strstr(err, "(undone: the text ends \""));
    refuses(1, "there is nothing to undo yet", "echo /undo " REPL);
    refuses(1, "there is nothing to regenerate yet", "echo /regenerate " REPL);
    same("printf 'Once upon a time\\n/regenerate\\n/reg\\n' " REPL,
         "for s in 7 8 9; do " ONCE "--no-prompt -n 20 --temperature 0.8 --seed $s; done");
    CHECK(run("printf 'Once\\n/regenerate\\n' | " GPT2 "--repl -n 3 --temperature 0") == 1 &&
          strstr(err, "at temperature 0 each continuation is the same"));
    /* A seed begins anew. */
    SCOPED_TEXT other =
        prints("printf 'Once upon a time\\n/seed 7\\n/new\\nOnce upon a time\\n' " REPL);
    CHECK(other && strncmp(other, other + strlen(other) / 2, strlen(other) / 2) == 0);
}

TEST(candidates)
{
    char *many = prints(ONCE "--no-prompt --count 3 -n 20 " WARM);
    RUNS("printf 'Once upon a time\\n/n 20\\n/candidates 3\\n/choose 2\\n/show' " REPL);
    char *numbered = strchr(out, '\n') ? strstr(out, "\n1. ") : NULL;
    CHECKF(many && numbered && strncmp(numbered + 1, many, strlen(many)) == 0, "%s", out);
    CHECKF(strstr(err, "(chosen: the text ends \""), "%s", err);
    if (CHECK(many && strstr(many, "\n2. ") && strstr(many, "\n3. "))) {
        const char *second = strstr(many, "\n2. ") + 4;
        const char *const expected =
            test_text("\nOnce upon a time%.*s\n", (int)(strstr(second, "\n3. ") - second), second);
        CHECKF(strstr(out, expected), "%s, not %s", out, expected);
    }
    free(many);
    /* The one that was chosen goes on with the seed after the last candidate's. */
    same("printf 'Once\\n/cand 2\\n/choose 1\\n/regenerate\\n' | " GPT2 "--repl -n 9 " WARM
         "| tail -n 1",
         GPT2 "Once --no-prompt -n 9 --temperature 0.8 --seed 9 | tail -n 1");
    /* The first candidate is what stands there. */
    same("printf 'Once\\n/candidates 3\\n/choose 3\\n/candidates 2\\n' | " GPT2 "--repl -n 9 " WARM
         "| sed -n 's/^1. //p' | tail -n 1",
         GPT2 "Once --no-prompt -n 9 --temperature 0.8 --seed 9 | tail -n 1");
    /* Side by side where there is room. */
    CHECK(run("printf 'Once upon a time\\n/candidates 2\\n' | COLUMNS=60 " GPT2
              "--repl -n 20 " WARM) == 0 &&
          strstr(out, "\n1.                            2.\n"));
    refuses(1, "there is nothing to continue yet", "echo /candidates " REPL);
    CHECK(run("printf 'Once\\n/candidates 1\\n/choose 1\\n' " REPL) == 1 &&
          strstr(err, "/candidates: \"1\" is not a whole number from 2 to 100") &&
          strstr(err, "there are no candidates: /candidates 4 makes some"));
    CHECK(run("printf 'Once\\n/candidates 2\\n/choose 3\\nTom\\n/choose 1\\n' " REPL) == 1 &&
          strstr(err, "/choose: \"3\" is not a whole number from 1 to 2") &&
          strstr(err, "there are no candidates"));
}

TEST(saved_and_loaded)
{
    CHECK(run("rm -f " TMP "s.json") == 0);
    char *whole = prints("printf 'Once upon a time\\nTom\\n/regenerate\\nLily\\n\\n/show\\n' " REPL
                         "--stop x");
    CHECKF(run("printf 'Once upon a time\\nTom\\n/regenerate\\n/save " TMP "s.json\\n' " REPL
               "--stop x") == 0 &&
               strstr(err, "(saved in " TMP "s.json)"),
           "%s", err);
    char *parts = prints("printf '/load " TMP "s.json\\nLily\\n\\n/show\\n' | " GPT2 "--repl");
    CHECKF(whole && parts && strlen(parts) > 40 && strlen(whole) > strlen(parts) &&
               strcmp(whole + strlen(whole) - strlen(parts), parts) == 0,
           "%s\nbut\n%s", whole, parts);
    free(whole);
    free(parts);
    refuses(1, "s.json exists: give another name, or overwrite it with /save! " TMP "s.json",
            "echo /save " TMP "s.json " REPL);
    CHECK(run("printf '/load " TMP "s.json\\n/save\\n/save " TMP "s.json\\n/save! " TMP
              "s.json\\n' " REPL) == 0);
    /* A text begins with <bos> or not, whatever was asked for when it is loaded. */
    CHECK(run("printf 'Once\\n/save! " TMP "b.json\\n' | " GPT2 "--repl -n 0") == 0);
    same("printf '/load " TMP "b.json\\n/show\\n upon\\n/show\\n' | " GPT2 "--repl -n 0 --bos",
         "printf 'Once\\n\\nOnce upon\\n'");
    /* No text is a text, too. */
    CHECKF(run("printf '/save! " TMP "b.json\\n/load " TMP "b.json\\n/show\\n' | " GPT2
               "--repl -n 0") == 0 &&
               strcmp(out, "\n") == 0 && strstr(err, "(loaded: the text is empty)"),
           "%s%s", out, err);
    /* Stop strings take the place of those that were given. */
    CHECK(run("printf '/load " TMP "s.json\\n/stop z\\n' | " GPT2 "--repl --stop y") == 0 &&
          strstr(err, "(stop: \"x\", \"z\"; /stop off clears)"));
    /* A text that begins with no token of its own is whole where --bos is given, too. */
    same("printf '/load " TMP "s.json\\n/show\\n' | " GPT2 "--repl --bos",
         "printf '/load " TMP "s.json\\n/show\\n' | " GPT2 "--repl");
    /* A slid text, and the settings. */
    CHECK(run("printf '/n 300\\n/slide\\n/ignore-eos\\nOnce\\n/save! " TMP "t.json\\n' " REPL) ==
          0);
    same("printf '/load " TMP "t.json\\n/n 20\\n\\n' | " GPT2 "--repl",
         "printf '/n 300\\n/slide\\n/ignore-eos\\nOnce\\n/n 20\\n\\n' " REPL
         "| tail -n +2 | tail -c "
         "$(printf '/load " TMP "t.json\\n/n 20\\n\\n' | " GPT2 "--repl 2>/dev/null | wc -c)");
}

/* A file that is damaged leaves the text as it is. */
TEST(files_that_cannot_be_loaded)
{
    static const struct {
        const char *edit, *answer;
    } damage[] = {
        {"s/\"gpt2\": 1/\"gpt2\": 2/", "is not a text that /save wrote"},
        {"s/\"typed\": \\[506/\"typed\": [2048/", "is not a text that /save wrote"},
        {"s/\"typed\": \\[506/\"typed\": [507/", "was saved with another vocabulary"},
        {"s/\"first\": 0/\"first\": 1/g", "is not a text that /save wrote"},
        {"s/\"first\": 0/\"first\": 99/", "is not a text that /save wrote"},
        {"s/\"temperature\": \"0.8\"/\"temperature\": \"x\"/", "--temperature: \"x\" is not"},
        {"s/\"temperature\"/\"warmth\"/", "is not a text that /save wrote"},
        {"s/\"stop\": \\[\\]/\"stop\": \"x\"/", "is not a text that /save wrote"},
        {"s/\"draw\": /\"drawn\": /g", "is not a text that /save wrote"},
        {"s/}$//", "malformed JSON"},
        {"s/\"turns\": \\[/\"turns\": [3, /", "is not a text that /save wrote"},
        {"s/\"typed\": \\[[^]]*\\]/\"typed\": []/", "is not a text that /save wrote"},
        {"s/\"first\": 0, \"begin\"/\"first\": 3, \"begin\"/; s/\"turns\".*\\]/\"turns\": []/",
         "is not a text that /save wrote"},
        {"s/\"stop\": \\[\\]/\"stop\": [\"\"]/", "is not a text that /save wrote"},
    };
    CHECK(run("rm -f " TMP "d.json; printf 'Once upon a time\\n/save " TMP "d.json\\n' " REPL) ==
          0);
    for (size_t i = 0; i < N(damage); i++) {
        CHECK(run("sed '%s' " TMP "d.json >" TMP "e.json && ! cmp -s " TMP "d.json " TMP "e.json",
                  damage[i].edit) == 0);
        CHECKF(run("printf 'Tom\\n/load " TMP "e.json\\n/show\\n' | " GPT2 "--repl -n 0") == 1 &&
                   strstr(err, damage[i].answer) && strcmp(out, "\nTom\n") == 0,
               "%s: %s%s", damage[i].edit, err, out);
    }
    refuses(1, "nowhere.json: No such file", "echo /load nowhere.json " REPL);
    refuses(1, "/load needs the name of a file", "echo /load " REPL);
    refuses(1, "/save needs the name of a file", "echo /save " REPL);
    refuses(1, "nowhere/x.json: cannot be written", "echo /save nowhere/x.json " REPL);
    refuses(1, "that is the model", "echo /save! " TEST_BUILD "/tiny-stories.attn " REPL);
}

TEST(commands)
{
    static const char *const names[] = {
        "/help",     "/undo",         "/regenerate",   "/candidates N", "/choose N",
        "/show",     "/new",          "/save FILE",    "/save! FILE",   "/load FILE",
        "/quit",     "/tokens COUNT", "/top-k",        "/temperature",  "/top-p",
        "/min-p",    "/repeat-pena",  "/repeat-last",  "/seed",         "/stop TEXT",
        "/slide on", "/ignore-eos",   "/print-ids on", "/logprobs on",  "/colours"};
    CHECK(run("echo /help " REPL) == 0);
    for (size_t i = 0; i < N(names); i++)
        CHECKF(strstr(out, names[i]), "/help does not mention %s", names[i]);
    CHECK(strstr(out, "[0.8]") && strstr(out, "[20]") && strstr(out, "rlwrap"));
    CHECK(run("printf '/quit\\n/show\\n' " REPL) == 0 && out_size == 0);
    CHECK(run("printf 'quit\\n' " REPL) == 0 && strstr(err, "the command is /quit, and /undo"));
    CHECK(run("echo /temperature=0.5 " REPL) == 0 && strstr(err, "(temperature: 0.5)"));
    CHECK(run("printf '/n\\n/te 0.5\\n/slide\\n/slide off\\n/stop a b \\n/stop "
              "c\\n/stop\\n/stop off\\n/q\\n' " REPL) == 0);
    CHECKF(strcmp(err, "(tokens: 20)\n(temperature: 0.5)\n(slide: on)\n(slide: off)\n"
                       "(stop: \"a b \"; /stop off clears)\n(stop: \"a b \", \"c\"; /stop off "
                       "clears)\n(stop: \"a b \", \"c\"; /stop off clears)\n(stop: none)\n") == 0,
           "%s", err);
    same("printf '/logprobs\\nOnce upon a time' | " GPT2 "--repl -n 5 --temperature 0",
         ONCE "-n 5 --logprobs");
    same("printf '/print-ids\\nOnce upon a time' | " GPT2 "--repl -n 5 --temperature 0",
         ONCE "-n 5 --print-ids --no-prompt");
    same("printf '/stop  Lily\\nOnce upon a time' | " GPT2 "--repl -n 40 --temperature 0",
         ONCE "-n 40 --no-prompt --stop ' Lily'");
    refuses(1, "there is no command /undp; do you mean /undo?", "echo /undp " REPL);
    refuses(1, "there is no command /x; /help lists them", "echo /x " REPL);
    refuses(1, "/re may be /regenerate, /repeat-penalty, /repeat-last: type more",
            "echo /re " REPL);
    refuses(1, "/t may be /tokens, /temperature, /top-k, /top-p: type more of its name",
            "echo /t " REPL);
    refuses(1, "--temperature: \"warm\" is not a number", "echo /temperature warm " REPL);
    refuses(1, "--slide: there is no \"maybe\"; choose on or off", "echo /slide maybe " REPL);
    refuses(1, "there is no command /logits", "echo /logits x " REPL);
}

TEST(a_full_context)
{
    CHECK(
        run("{ echo '/ignore-eos'; echo Once; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo; done; "
            "} | " GPT2 "--repl -n 25 --temperature 0") == 1);
    CHECKF(strstr(err, "(the context is full: /slide continues") &&
               strstr(err, "the text has 257 tokens, but the model's context holds 256: /slide"),
           "%s", err);
    CHECK(
        run("{ echo '/ignore-eos'; echo Once; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo; done; "
            "echo /undo; echo; } | " GPT2 "--repl -n 25 --slide --temperature 0") == 0);
    CHECKF(strstr(err, "(the context was full, and dropped its older half)"), "%s", err);
    CHECK(run("printf 'Once\\n/new\\n/show\\n' " REPL) == 0);
    /* A text that just fits has one token after it. */
    CHECK(run("true | " GPT2 "--ids \"$(yes 11 | head -n 256)\" --repl -n 5 --ignore-eos") == 0 &&
          strstr(err, "(the context is full"));
}

/* Commands for a shell that types: `w TEXT FILE` waits until the program has said something. */
#define THROUGH(commands, code)                                                                    \
    run("w() { i=0; while [ $i -lt 300 ] && ! grep -q \"$1\" $2; do sleep 0.1; i=$((i + 1)); "     \
        "done; }; "                                                                                \
        "rm -f " TMP "fifo; mkfifo " TMP "fifo; " GPT2 "--repl --slide --ignore-eos -n 100000000 " \
        "--temperature 0.8 <" TMP "fifo & run=$!; exec 3>" TMP "fifo; echo /seed >&3; "            \
        "w seed: " TMP "err; " commands " exec 3>&-; wait $run") == (code)

/* Ctrl-C stops the text, and not the program; twice where nothing is written, it ends it. */
TEST(interrupts)
{
    CHECKF(THROUGH("echo Once >&3; w .. " TMP "out; kill -INT $run; w stopped " TMP
                   "err; echo '/n 7' >&3; w 'tokens: 7' " TMP "err; ",
                   0),
           "%s", err);
    CHECKF(strstr(err, "(stopped)\n") && strstr(err, "(tokens: 7)\n"), "%s", err);
    CHECK(out_size > 2 && out[out_size - 1] == '\n');
    CHECKF(THROUGH("kill -INT $run; w Ctrl-D " TMP "err; echo '/n 8' >&3; w 'tokens: 8' " TMP
                   "err; kill -INT $run; sleep 0.5; ",
                   0),
           "%s", err);
    CHECKF(strstr(err, "(Ctrl-C again ends, and so does Ctrl-D)\n(tokens: 8)"), "%s", err);
    CHECKF(THROUGH("kill -INT $run; w Ctrl-D " TMP "err; sleep 0.2; kill -INT $run; ", 130), "%s",
           err);
    /* Several texts end where they are, and are printed. */
    CHECK(run(GPT2 "Once --count 20 -n 250 --isa portable --threads 1 --ignore-eos --temperature 1 "
                   "& " INTERRUPT "wait $run") == 130);
    CHECKF(strncmp(out, "1. Once", 7) == 0 && strstr(out, "\n2. Once") &&
               strstr(err, ": stopped by Ctrl-C;"),
           "%s%s", out, err);
}

/* Probabilities have colours where a person sees them, and a terminal is given no text to obey. */
TEST(on_a_terminal)
{
    if (!has_terminal())
        return;
#define TRY(settings)                                                                              \
    run("env -u NO_COLOR TERM=xterm " settings "script -qec \"" GPT2                               \
        "'Once upon a time' -qn2 --no-prompt --colours\" /dev/null")
    CHECKF(TRY("") == 0 && strcmp(out, "\033[34m,\033[0m\033[34m there\033[0m\r\n") == 0, "%s",
           out);
    CHECK(TRY("NO_COLOR=1 ") == 0 && strcmp(out, ", there\r\n") == 0);
    CHECK(TRY("TERM=dumb ") == 0 && strcmp(out, ", there\r\n") == 0);
    CHECK(TRY("TERM= ") == 0 && strcmp(out, ", there\r\n") == 0);
    same(GPT2 "'Once upon a time' -qn2 --colours", GPT2 "'Once upon a time' -qn2");
    test_write(TMP "controls.txt", "a\033[2Jb\tc\xC2\x9B", 9);
    CHECK(run("TERM=dumb script -qec '" GPT2 "-n 0 -q --file " TMP "controls.txt' /dev/null") == 0);
    CHECKF(strcmp(out, "a\xEF\xBF\xBD[2Jb\tc\xEF\xBF\xBD\r\n") == 0, "%s", out);
    CHECK(run("echo /help | TERM=dumb COLUMNS=40 script -qec '" GPT2 "--repl' /dev/null") == 0);
    CHECKF(strstr(out, "Settings, with their present values in\r\nbrackets"), "%s", out);
}

/* A terminal keeps 4,095 bytes of a line: a person who pastes more is told of it. */
TEST(a_line_too_long_for_the_terminal)
{
    if (!has_terminal())
        return;
#define TYPED(size)                                                                                \
    run("{ sleep 1; head -c " size " /dev/zero | tr '\\0' a; echo; sleep 1; } | TERM=dumb "        \
        "script -qec '" GPT2 "--repl -n 0' /dev/null")
    CHECKF(TYPED("4094") == 0 && !strstr(out, "the terminal passes on"), "%s", out);
    CHECKF(TYPED("6000") == 0 && strstr(out, "the terminal passes on only 4095 bytes"), "%s", out);
#undef TYPED
}

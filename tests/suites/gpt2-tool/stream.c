/* Prompts as a stream: gpt2 -i, with and without --json. */
#include "tests/support/printed_json.h"
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

#define GPT2   TEST_BUILD "/gpt2 " TEST_BUILD "/tiny-stories.attn "
#define STREAM GPT2 "-i --json -q "
#define TMP    TEST_TMP
#define N(a)   (sizeof(a) / sizeof(a)[0])

/* A line's options are those of the command line: the same bytes come out. */
TEST(options_of_a_line)
{
    static const struct {
        const char *line, *arguments;
    } same_as[] = {
        {"Once", "Once"},
        {"  Once", "'  Once'"},
        {"[\"Once\"]", "'[\"Once\"]'"},
        {"{\"prompt\": \"Once\"}", "Once"},
        {"  {\"prompt\": \"{\\\"\\u00e9\"}", "'{\"\xC3\xA9'"},
        {"{\"prompt\": \"Once\", \"tokens\": 3}", "Once -n 3"},
        {"{\"prompt\": \"Once\", \"tokens\": 3.0, \"seed\": null}", "Once -n 3"},
        {"{\"prompt\": \"Once\", \"temperature\": 1, \"seed\": 9}", "Once --temperature 1 -s 9"},
        {"{\"prompt\": \"Once\", \"temperature\": 1.5, \"top-k\": 9, \"top-p\": 0.9}",
         "Once --temperature 1.5 --top-k 9 --top-p 0.9"},
        {"{\"prompt\": \"Once\", \"temperature\": 1.5, \"top_k\": 9, \"top_p\": 0.9}",
         "Once --temperature 1.5 --top-k 9 --top-p 0.9"},
        {"{\"prompt\": \"Once\", \"temperature\": 2, \"top-p\": 0, \"seed\": -1}", "Once -s -1"},
        {"{\"prompt\": \"Once\", \"temperature\": 2, \"min-p\": 0.1}",
         "Once --temperature 2 --min-p 0.1"},
        {"{\"prompt\": \"Once\", \"repeat-penalty\": 1.3, \"repeat-last\": 4}",
         "Once --repeat-penalty 1.3 --repeat-last 4"},
        {"{\"prompt\": \"Once\", \"stop\": \" time\"}", "Once --stop ' time'"},
        {"{\"prompt\": \"Mom said\", \"stop\": [\"sorry\", \"\\\"\"]}",
         "'Mom said' --stop sorry --stop '\"'"},
        {"{\"prompt\": \"Once\", \"temperature\": 1, \"count\": 2}",
         "Once --temperature 1 --count 2"},
        {"{\"ids\": [506, 511,258]}", "--ids '506 511 258'"},
        {"{\"ids\": \"506 511 258\"}", "--ids '506 511 258'"},
        {"{\"bos\": true}", "--bos"},
        {"{\"bos\": true, \"prompt\": \"Once\"}", "--bos Once"},
        {"{\"bos\": false, \"prompt\": \"Once\"}", "Once"},
        {"{\"prompt\": \"<|endoftext|>\", \"special\": true, \"ignore-eos\": true}",
         "'<|endoftext|>' --special --ignore-eos"},
        {"{\"prompt\": \"Once\", \"logprobs\": true}", "Once --logprobs"},
        {"{\"prompt\": \"Once\", \"tokens\": 0}", "Once -n 0"}};
    char alone[400];
    char *all, *each = (char *)calloc(1, 1 << 20);
    FILE *const file = fopen(TMP "lines.jsonl", "w");
    if (!CHECK(file && each))
        return;
    for (size_t i = 0; i < N(same_as); i++) {
        fprintf(file, "%s\n", same_as[i].line);
        snprintf(alone, sizeof alone, GPT2 "--json -q %s%s", same_as[i].arguments,
                 strstr(same_as[i].arguments, "-n ") ? "" : " -n 5");
        CHECKF(run("%s", alone) == 0 && out_size > 40, "%s: %s", alone, err);
        strcat(each, out);
        same(alone, test_text("cat >" TMP "line <<'END'\n%s\nEND\n" STREAM "-n 5 <" TMP "line",
                              same_as[i].line));
    }
    fclose(file);
    all = prints(STREAM "-n 5 -t 1 <" TMP "lines.jsonl");
    CHECKF(all && strcmp(all, each) == 0, "other answers together: %s", all);
    free(all);
    free(each);
    same("echo '{\"prompt\": \"Tom had a\", \"choices\": \" dog| cat\"}' | " STREAM,
         GPT2 "'Tom had a' --choices ' dog| cat' --json");
    same("echo '{\"prompt\": \"Tom had a\", \"choices\": \" dog| cat\"}' | " STREAM "-n 4 --stop x",
         GPT2 "'Tom had a' --choices ' dog| cat' --json");
    same("echo '{\"prompt\": \"Once\", \"tokens\": 4}' | " STREAM "--choices ' dog| cat'",
         GPT2 "Once -n 4 -q --json");
    same("echo '{\"prompt\": \"Once\", \"stop\": \" time\"}' | " STREAM "--choices ' dog| cat'",
         GPT2 "Once --stop ' time' -q --json");
    same("printf 'a\\000b\\n' | " STREAM "-n 2", "printf 'a\\000b' | " GPT2 "--json -q -n 2");
    same("echo '{\"prompt\": \"a\\u0000b\"}' | " STREAM "-n 2",
         "printf 'a\\000b' | " GPT2 "--json -q -n 2");
    same("printf '\\357\\273\\277{\"prompt\": \"Once\"}\\r\\n-\\r\\n' | " STREAM "-n 2",
         GPT2 "--json -q -n 2 Once; " GPT2 "--json -q -n 2 --ids 12");
    same("printf 'Once\\r\\n' | " STREAM "-n 2 --exact", GPT2 "--json -q -n 2 \"Once\r\"");
}

static const struct {
    const char *line, *answer;
} mistakes[] = {
    {"", "the prompt is empty: give some text, or --bos"},
    {"{\"prompt\": \"\"}", "the prompt is empty"},
    {"{\"ids\": []}", "the prompt is empty"},
    {"{}", "nothing to continue: give a \\\"prompt\\\", or its \\\"ids\\\""},
    {"{\"id\": 5, \"prompt\": null}", "{\"id\": 5, \"line\": 5, \"error\": \"nothing to continue"},
    {"{", "malformed JSON at line 6, column 1: what opens here is never closed"},
    {"{\"prompt\": \"Once\"} {}", "malformed JSON at line 7, column 20"},
    {"{\"prompt\": \"a\xff\"}", "bytes that are not UTF-8"},
    {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "the key \\\"prompt\\\" appears twice"},
    {"{\"prompt\": \"a\", \"temprature\": 1, \"id\": \"x\"}",
     "{\"id\": \"x\", \"line\": 10, \"error\": \"there is no key \\\"temprature\\\"; do you mean "
     "\\\"temperature\\\"?"},
    {"{\"prompt\": \"a\", \"zebra\": 1}", "there is no key \\\"zebra\\\"; --help lines lists them"},
    {"{\"prompt\": 5}", "prompt: expected a string, not 5"},
    {"{\"prompt\": [\"a\"]}", "prompt: expected a string, not a list"},
    {"{\"prompt\": \"a\", \"ids\": [5]}", "give one prompt"},
    {"{\"ids\": [5, true]}", "ids: expected a string or a list of token ids, not true"},
    {"{\"ids\": [[5]]}", "ids: expected a string or a list of token ids, not a list"},
    {"{\"ids\": [5, -1]}", "no token id at \\\"-1\\\""},
    {"{\"ids\": [2048]}", "token 2048 is not in the vocabulary of 2048"},
    {"{\"prompt\": \"a\", \"tokens\": -1}", "tokens: expected a whole number from 0 to"},
    {"{\"prompt\": \"a\", \"tokens\": \"5\"}", "tokens: expected a whole number from 0 to"},
    {"{\"prompt\": \"a\", \"top-p\": 1.5}", "top-p: expected a number from 0 to 1, not 1.5"},
    {"{\"prompt\": \"a\", \"bos\": 1}", "bos: expected true or false, not 1"},
    {"{\"prompt\": \"a\", \"stop\": [\"b\", \"\"]}",
     "stop: expected a string or a list of strings"},
    {"{\"prompt\": \"a\", \"stop\": \"b\\u0000\"}", "stop: expected a string or a list of strings"},
    {"{\"prompt\": \"a\", \"stop\": [1]}", "stop: expected a string or a list of strings, not 1"},
    {"{\"prompt\": \"a\", \"count\": 2}", "--count 2 at temperature 0 would print the same text"},
    {"{\"prompt\": \"a\", \"choices\": \"b\"}", "is a single choice: put | between several"},
    {"{\"prompt\": \"a\", \"choices\": \"b|c\", \"tokens\": 4}",
     "--choices and --tokens contradict"},
    {"{\"prompt\": \"a\", \"id\": [1], \"threads\": 2}",
     "{\"line\": 29, \"error\": \"id: expected a string or a number, not a list"},
    {"{\"prompt\": \"a\", \"threads\": 2}",
     "threads holds for all lines: give it on the command line"},
    {"{\"prompt\": \"a\", \"session\": \"file\"}", "session holds for all lines"},
    {"{\"prompt\": \"a\", \"file\": \"README.md\"}", "file holds for all lines"},
    {"{\"prompt\": \"a\", \"receipt\": \"file\"}", "receipt holds for all lines"},
};

/* Each line that cannot be continued is answered in its place, by its number; the others are continued. */
TEST(lines_that_are_refused)
{
    FILE *const file = fopen(TMP "bad.jsonl", "w");
    char *line, number[64];
    size_t i, length;
    if (!CHECK(file != NULL))
        return;
    for (i = 0; i < N(mistakes); i++)
        fprintf(file, "%s\n", mistakes[i].line);
    for (i = 0; i < 400; i++)
        fputs("the ", file);
    fputs("\n{\"id\": \"after\", \"prompt\": \"Once\"}", file);
    fclose(file);
    int code = run(GPT2 "-i --json -n 2 <" TMP "bad.jsonl");
    CHECKF(code == 0 &&
               strstr(err, "34 of 35 lines could not be continued. The first error: the "
                           "prompt is empty") &&
               strchr(err, '\n') == err + err_size - 1,
           "%d: %s", code, err);
    for (i = 0, line = out; i < N(mistakes) + 2 && line && *line; i++, line += length + 1) {
        line[length = strcspn(line, "\n")] = 0;
        snprintf(number, sizeof number, "\"line\": %zu, \"error\": ", i + 1);
        if (i < N(mistakes))
            CHECKF(strstr(line, number) && strstr(line, mistakes[i].answer), "%s: %s, not %s",
                   mistakes[i].line, line, mistakes[i].answer);
        else if (i == N(mistakes))
            CHECKF(strstr(line, "{\"line\": 34, \"error\": \"the prompt has 401 tokens, but the "
                                "model's context holds 256: give less text\"}") == line,
                   "%s", line);
        else
            CHECKF(strstr(line, "{\"id\": \"after\", \"prompt\": \"Once\", \"text\": \"") == line,
                   "%s", line);
    }
    EQUAL(i, N(mistakes) + 2);
    refuses(1, "1 of 1 lines could not be continued. The first error: nothing to continue",
            "echo '{}' | " STREAM ">" TMP "none");
    CHECK(run(STREAM "</dev/null") == 0 && out_size == 0 && err_size == 0);
    CHECK(run("head -c 16777217 /dev/zero | tr '\\0' a | " STREAM) == 1);
    CHECKF(strstr(out, "{\"line\": 1, \"error\": \"the line is longer than 16777216 bytes\"}") ==
               out,
           "%s", out);
    refuses(1, "cannot write the output: No space left on device",
            "yes Once | head -n 3 | " STREAM ">/dev/full");
}

/* Without --json, a message has the line's number. */
TEST(plain_lines_that_are_refused)
{
    CHECK(
        run("{ yes the | head -n 300 | tr '\\n' ' '; echo; echo; printf 'Mom said\\n-\\n'; } | " GPT2
            "-i -n 3 -q") == 1);
    CHECKF(strcmp(err,
                  "gpt2: line 1: the prompt has 301 tokens, but the model's context holds 256: "
                  "give less text\n") == 0,
           "%s", err);
    CHECKF(strstr(out, "Mom said, \"I\n-") == out, "%s", out);
}

/* Without --json an object is a prompt, and one note says so; what only begins like one is a prompt. */
TEST(plain_lines_that_are_objects)
{
    CHECK(run("printf '{a}\n{\"prompt\": \"Once\"}\n {}\n' | " GPT2 "-i -n 2 -q") == 0);
    CHECKF(strcmp(err, "note: line 2 is a JSON object and is taken as a prompt: --json reads such "
                       "lines\n") == 0,
           "%s", err);
    CHECKF(strstr(out, "{a}") == out && strstr(out, "\n{\"prompt\": \"Once\"}"), "%s", out);
}

/* The format changes no text, no text depends on the lines before it, and each is that of its seed. */
TEST(the_seed_of_each_line)
{
    static const char *const ways[] = {"", "--temperature 1 ",
                                       "--temperature 2 --top-k 40 --seed 7 "};
    char command[400], *text, *alone;
    json_value *root = NULL;
    attn_ctx ctx = {0};
    for (size_t i = 0; i < N(ways); i++) {
        snprintf(command, sizeof command, GPT2 "%s-n 8 -q 'Once upon' --no-prompt", ways[i]);
        alone = prints(command);
        snprintf(command, sizeof command,
                 "printf 'Mom\\nOnce upon\\n' | " GPT2
                 "%s-n 8 -q --interactive --no-prompt --stop '\n' | tail -n 1",
                 ways[i]);
        text = prints(command);
        CHECKF(alone && text && strcmp(alone, text) == 0, "%s: %s, and alone %s", ways[i], text,
               alone);
        free(text);
        snprintf(command, sizeof command,
                 "printf 'Mom\\nOnce upon\\n' | " GPT2 "%s-n 8 -q -i --json | tail -n 1", ways[i]);
        text = prints(command);
        if (text && alone && OK(&ctx, json_parse(&ctx, "output", text, strlen(text), &root))) {
            const json_value *const made = member(root, "text");
            CHECKF(made && made->size + 1 == strlen(alone) &&
                       memcmp(made->text, alone, made->size) == 0,
                   "%s: with --json %.*s, and alone %s", ways[i], (int)made->size, made->text,
                   alone);
        }
        free(root);
        free(text);
        free(alone);
    }
}

/* Somebody who waits for each answer gets it; statistics come only with -v. */
TEST(a_co_process)
{
    CHECKF(
        run("cd " TMP " && rm -f to from && mkfifo to from && { \"$BUILT/gpt2\" "
            "\"$BUILT\"/tiny-stories.attn -i --json -n 2 <to >from & } && exec 3>to 4<from && "
            "echo '{\"id\": 1, \"prompt\": \"Once\"}' >&3 && read -r line <&4 && echo \"$line\" && "
            "printf '{\"id\": 2, ' >&3 && sleep 0.1 && printf '\"prompt\": \"Once\"}\\nMom' >&3 && "
            "read -r line <&4 && echo \"$line\" && exec 3>&- && read -r line <&4 && "
            "echo \"$line\" && wait") == 0 &&
            err_size == 0,
        "%s", err);
    CHECKF(out && strstr(out, "{\"id\": 1, \"prompt\": \"Once\"") == out &&
               strstr(out, "\n{\"id\": 2, \"prompt\": \"Once\"") &&
               strstr(out, "\n{\"prompt\": \"Mom\""),
           "%s", out);
    CHECK(run("printf 'Once\\nMom\\n' | " GPT2 "-i -n 3 -v") == 0);
    CHECKF(occurrences(err, "generated 3, ") == 2, "%s", err);
}

/* When memory runs out, the program ends. It does not answer the line and read the next one. */
TEST(short_memory)
{
    int refused = 0, code = 1;
    if (TEST_SANITIZED) {
        test_skip("a sanitizer needs more memory than any limit");
        return;
    }
    for (int kib = 8000; code != 0 && kib < 1000000; kib += 1000) {
        code = run("{ echo Once; seq -s ' ' 90; echo Mom; } | { ulimit -v %d; " GPT2
                   "-i --json -q -t 1 -n 2; }",
                   kib);
        CHECKF(!strstr(out, "memory"), "%d KiB: %s", kib, out);
        refused += code == 1 && strstr(err, "memory") && strstr(err, "line ");
    }
    CHECKF(code == 0 && refused > 0, "exit code %d, %d times short: %s", code, refused, err);
}

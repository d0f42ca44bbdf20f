/* The programs, tried the way a person uses them: through a shell, by what they print and by their
 * exit codes. */
#include "tests/support/printed_json.h"
#include "tests/support/command.h"
SUITE_WITH(NULL, forget);

#define GPT2      TEST_BUILD "/gpt2 "
#define MODEL     TEST_BUILD "/tiny-stories.attn "
#define REFERENCE "examples/tiny-stories/reference.json"

/* The n-th prompt of reference.json: what follows `"key": ` up to `end`, into a buffer. */
static int reference(const char *json, int n, const char *key, char end, char *value, size_t size)
{
    size_t length;
    const char *at = strstr(json, "\"greedy\"");
    for (; at && n >= 0; n--)
        at = strstr(at + 1, "\"prompt\":");
    const char *const name = test_text("\"%s\": ", key);
    at = at ? strstr(at, name) : NULL;
    if (!at)
        return 0;
    at += strlen(name) + 1; /* and the opening bracket or quote */
    for (length = 0; at[length] != end; length++)
        length += at[length] == '\\';
    if (length >= size)
        return 0;
    memcpy(value, at, length);
    value[length] = 0;
    return 1;
}

/* A JSON list of numbers to "1 2 3" */
static void join_words(char *text)
{
    const char *from = text, *const between = " ,\n";
    char *to = text;
    while (*(from += strspn(from, between))) {
        const size_t length = strcspn(from, between);
        if (to != text)
            *to++ = ' ';
        memmove(to, from, length);
        to += length;
        from += length;
    }
    *to = 0;
}

/* The escapes that reference.json uses. */
static void unescape(char *text)
{
    char *to = text;
    for (; *text; text++) {
        if (*text == '\\')
            *to++ = *++text == 'n' ? '\n' : *text;
        else
            *to++ = *text;
    }
    *to = 0;
}

TEST(help_and_version)
{
    static const char *const options[] = {
        "-n --tokens",      "--temperature", "--top-k",     "--top-p",   "--min-p",
        "--repeat-penalty", "--repeat-last", "--seed",      "--threads", "--isa",
        "--file",           "--ids",         "--bos",       "--special", "--ignore-eos",
        "--f16-cache",      "--print-ids",   "--no-prompt", "--logits",  "--skip-checksums",
        "--quiet",          "--help",        "--version",   "Exit codes"};
    char *text = prints(GPT2 "--help all");
    for (size_t i = 0; text && i < sizeof options / sizeof options[0]; i++)
        CHECKF(strstr(text, options[i]), "--help does not mention %s", options[i]);
    free(text);
    same(GPT2 "--help", GPT2 "-h");
    text = prints(GPT2 "--version");
    CHECK(text && strstr(text, "1.1.0"));
    free(text);
    refuses(1, "No space left on device", GPT2 "--help >/dev/full");
}

/* More of them, with their whole answers, are in mistakes.c. */
TEST(usage_errors)
{
    refuses(2, "one prompt", GPT2 MODEL "once --ids 3");
    refuses(2, "too many arguments at \"upon\": give one prompt", GPT2 MODEL "-p once upon");
    refuses(2, "one prompt", GPT2 MODEL "--file x --ids 3");
    refuses(2, "no option --wrong", GPT2 MODEL "once --wrong");
    refuses(2, "no option -x", GPT2 MODEL "once -x");
    refuses(2, "--tokens: \"n\" is not a whole number", GPT2 MODEL "once -nn");
    refuses(2, "no option -qx", GPT2 MODEL "once -qx");
    refuses(2, "--quiet takes no value", GPT2 MODEL "once -q=1");
    refuses(2, "no option --tmeperature; do you mean --temperature?",
            GPT2 MODEL "once --tmeperature 1");
    refuses(2, "no option --temp; do you mean --temperature?", GPT2 MODEL "once --temp=1");
    refuses(2, "no option -temp; do you mean --temperature?", GPT2 MODEL "once -temp 1");
    refuses(2, "leave -i out", GPT2 MODEL "-i --logits x.npy");
    refuses(2, "no option --", GPT2 MODEL "once --=3");
    refuses(2, "--logits needs a value", GPT2 MODEL "once --logits");
    refuses(2, "--quiet takes no value", GPT2 MODEL "once --quiet=1");
    refuses(2, "--tokens: \"\"", GPT2 MODEL "once -n ''");
    refuses(2, "--tokens: \"1x\"", GPT2 MODEL "once --tokens 1x");
    refuses(2, "--tokens: \" 1\"", GPT2 MODEL "once --tokens ' 1'");
    refuses(2, "--tokens: \"1.5\"", GPT2 MODEL "once --tokens=1.5");
    refuses(2, "--tokens: \"-1\"", GPT2 MODEL "once --tokens -1");
    refuses(2, "--tokens: \"18446744073709551617\"", GPT2 MODEL "once -n 18446744073709551617");
    refuses(2, "--seed: \"18446744073709551616\" is not a whole number of 64 bits",
            GPT2 MODEL "once --seed 18446744073709551616");
    refuses(2, "--seed: \"-9223372036854775809\"", GPT2 MODEL "once --seed -9223372036854775809");
    refuses(2, "--seed: \"--5\"", GPT2 MODEL "once --seed --5");
    refuses(2, "--top-k: \"0x5\"", GPT2 MODEL "once --top-k 0x5");
    refuses(2, "--threads: \"-2\"", GPT2 MODEL "once --threads -2");
    refuses(2, "--threads: \"257\" is not a whole number from 0 to 256",
            GPT2 MODEL "once --threads 257");
    refuses(2, "--temperature: \"warm\"", GPT2 MODEL "once --temperature warm");
    refuses(2, "--temperature: \"\"", GPT2 MODEL "once --temperature ''");
    refuses(2, "--temperature: \"-0.5\"", GPT2 MODEL "once --temperature -0.5");
    refuses(2, "--temperature: \"nan\"", GPT2 MODEL "once --temperature nan");
    refuses(2, "--temperature: \"inf\"", GPT2 MODEL "once --temperature inf");
    refuses(2, "--temperature: \"1e999\"", GPT2 MODEL "once --temperature 1e999");
    refuses(2, "--top-p: \"1.01\"", GPT2 MODEL "once --top-p 1.01");
    refuses(2, "--min-p: \".\"", GPT2 MODEL "once --min-p .");
    refuses(2, "--isa: there is no \"sse9\"", GPT2 MODEL "once --isa sse9");
    refuses(2, "--ids: no token id at \"x\"", GPT2 MODEL "--ids '12 x'");
    refuses(2, "--ids: no token id at \"-1\"", GPT2 MODEL "--ids -1");
    refuses(2, "--ids: no token id at \"12x\"", GPT2 MODEL "--ids '5 12x'");
    refuses(2, "--ids: no token id at \"99999999999\"", GPT2 MODEL "--ids 99999999999");
    refuses(2, "--ids: no token id at \"99999999999999999999\"",
            GPT2 MODEL "--ids 99999999999999999999");
}

/* One byte changed within the weights: refused, unless one asks not to look. */
TEST(checksums)
{
    size_t size = 0;
    unsigned char *bytes = test_read(TEST_BUILD "/tiny-stories.attn", &size);
    if (CHECK(bytes)) {
        bytes[size / 2] ^= 1;
        test_write(test_tmp("flipped.attn"), bytes, size);
    }
    free(bytes);
    refuses(1, "checksum", GPT2 TEST_TMP "flipped.attn once");
    free(prints(GPT2 TEST_TMP "flipped.attn once -n 2 --skip-checksums"));
}

TEST(prompts_that_are_none)
{
    refuses(1, "prompt is empty", GPT2 MODEL "-");
    refuses(1, "prompt is empty", GPT2 MODEL "--file /dev/null");
    refuses(1, "prompt is empty", GPT2 MODEL "--ids ''");
    refuses(1, "prompt is empty", GPT2 MODEL "--ids ' , '");
    refuses(1, "missing.txt: No such file", GPT2 MODEL "--file missing.txt");
    refuses(1, "examples: Is a directory", GPT2 MODEL "--file examples");
    refuses(1, "token 2048 is not in the vocabulary of 2048", GPT2 MODEL "--ids 2048");
    refuses(1, "token 2147483647 is not", GPT2 MODEL "--ids '1 2 2147483647 3'");
}

/* Greedy continuations, token for token, of every prompt that PyTorch continued. */
TEST(greedy_equals_pytorch)
{
    static char prompt[4096], ids[16384], command[8192], text[16384], expected[20480];
    size_t size;
    char *json = (char *)test_read(REFERENCE, &size), *printed;
    int n;
    if (!CHECK(json))
        return;
    for (n = 0; reference(json, n, "prompt_ids", ']', prompt, sizeof prompt); n++) {
        if (!CHECK(reference(json, n, "ids", ']', ids, sizeof ids)))
            break;
        join_words(ids);
        snprintf(command, sizeof command,
                 GPT2 MODEL "-n 200 --no-prompt --print-ids --ignore-eos --ids '%s'", prompt);
        printed = prints(command);
        if (printed && CHECK(strlen(printed) > 0)) {
            printed[strlen(printed) - 1] = 0; /* the line's end */
            CHECKF(strcmp(printed, ids) == 0, "prompt %d: %.100s", n, printed);
        }
        free(printed);
    }
    CHECKF(n >= 3, "only %d prompts in " REFERENCE, n);

    CHECK(reference(json, 0, "prompt", '"', prompt, sizeof prompt));
    CHECK(reference(json, 0, "text", '"', text, sizeof text));
    unescape(text);
    snprintf(expected, sizeof expected, "%s%s\n", prompt, text);
    snprintf(command, sizeof command, GPT2 MODEL "-n 200 '%s'", prompt);
    printed = prints(command);
    CHECKF(printed && strcmp(printed, expected) == 0, "%s", printed);
    free(printed);
    free(json);
}

/* The header's own example runs, and is the one in the header. */
TEST(hello)
{
    static char expected[16384];
    size_t size, at = 0;
    SCOPED_TEXT header = (char *)test_read("attn.h", &size);
    SCOPED_TEXT program = (char *)test_read("examples/hello.c", &size);
    char *line = header ? strstr(header, "\n        #define ATTN_IMPLEMENTATION\n        #include "
                                         "\"attn.h\"\n        #include")
                        : NULL;
    if (CHECK(line && program)) {
        line++;
        while (strncmp(line, "        ", 8) == 0 || *line == '\n') {
            const size_t length = strcspn(line, "\n") + 1, indent = *line == '\n' ? 0 : 8;
            if (!CHECK(at + length < sizeof expected))
                break;
            memcpy(expected + at, line + indent, length - indent);
            at += length - indent;
            line += length;
        }
        while (at > 1 && expected[at - 2] == '\n')
            at--;
        expected[at] = 0;
        CHECKF(strcmp(expected, program) == 0, "examples/hello.c is not the header's example");
    }
    same(TEST_BUILD "/hello " MODEL, GPT2 MODEL "'Once upon a time' -n 100");
    run("cd / && \"$BUILT/hello\" \"$BUILT/tiny-stories.attn\" >\"$BUILT/story.txt\"");
    same("cat " TEST_BUILD "/story.txt", TEST_BUILD "/hello " MODEL);
    refuses(1, "missing.attn", TEST_BUILD "/hello missing.attn");
}

TEST(pages)
{
    char *at, *command = NULL;
    size_t size;
    SCOPED_TEXT readme = (char *)test_read("examples/induction/README.md", &size);
    for (at = readme; at && (at = strchr(at, '\n')) != NULL; at++)
        if (strncmp(at, "\nbuild/lens", 11) == 0 && strstr(at, "patterns.svg"))
            command = at + 1;
    if (CHECK(command)) { /* draws the page's picture */
        command[strcspn(command, "\n")] = 0;
        CHECKF(
            run("d=%s; rm -rf $d; mkdir -p $d/examples/induction; ln -s \"$BUILT\" $d/build; top=$PWD; cd $d && "
                "build/attn-convert --quiet $top/examples/induction build/induction.attn && "
                "%s && cmp examples/induction/patterns.svg $top/examples/induction/patterns.svg",
                test_tmp("pages"), command) == 0,
            "draw the README's picture anew, with the command above it: %s%s", out, err);
    }
}

/* A program that was written for 0.4 hears from the compiler of each name that 0.5 changed. */
TEST(old_names)
{
    static const char *const lines[] = {
        "attn_ctx c = {0}; c.stop = 0;",
        "attn_generate_desc d = {0}; d.stop = 0;",
        "attn_generate_desc d = {0}; d.n_stop = 0;",
        "attn_edit e = {0}; e.factor = 1;",
        "attn_edit e = {0}; e.position = 1;",
        "attn_edit e = {0}; e.n_positions = 1;",
        "attn_edit e = {0}; e.head = 1;",
        "attn_act_kind kind;",
        "attn_tensor_info info;",
        "attn_activate(0, 0, x, 0);",
        "attn_model_unembed(0, 0, 0, x, x);",
        "attn_record_new(0, 0, 0, 0, 0, 0);",
        "attn_session_set_tokens(0, 0, 0, 0, 0);",
        "attn_text_tokens(0, 0, 0, 0);",
        "attn_is_dense(x);",
        "attn_model_n_tensors(0);",
        "attn_model_tensor_info(0, 0, 0, 0);",
        "attn_model_tokenizer_section(0, 0);",
        "attn_checksum(0, 0, 0);",
        "attn_panels_size(0, 0, 0);",
        "attn_new_file_begin(0, 0, 0);",
        "attn_writer_new(0, 0, 0, 0, 0, 0);",
        "attn_model_save(0, 0, 0);",
    };
    RUNS("echo '#include \"attn.h\"' | cc -std=c99 -I. -fsyntax-only -x c -");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECKF(run("printf '#include \"attn.h\"\nattn_tensor x; void f(void) { %s }\n' | "
                   "cc -std=c99 -I. -Werror -fsyntax-only -x c -",
                   lines[i]) != 0,
               "%s compiles without a word", lines[i]);
    CHECK(run("cc -std=c99 -I. -fsyntax-only tests/compile/deprecated.c") == 0);
    CHECKF(strstr(err, "use attn_version") != NULL, "not deprecated: %s", err);
}

/* The small examples: short, compiled by the command in their first line. */
TEST(examples_compile)
{
    static const char *const names[] = {"chat", "top5", "eight", "ablate", "patch", "record"};
    size_t size, lines;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *at;
        const char *const path = test_text("examples/%s.c", names[i]);
        SCOPED_TEXT text = (char *)test_read(path, &size);
        if (!CHECKF(text, "%s cannot be read", path))
            continue;
        for (lines = 0, at = text; (at = strchr(at, '\n')) != NULL; at++)
            lines++;
        CHECKF(lines <= 80, "%s has %d lines; expected at most 80", path, (int)lines);
        text[strcspn(text, "\n")] = 0;
        CHECKF(strcmp(text, test_text("/* cc %s -I. -O2 -lm -o %s", path, names[i])) == 0,
               "%s begins with %s", path, text);
        free(prints(test_text("%s -fsyntax-only -DATTN__IMPLEMENTED -Wall -Werror", text + 3)));
        refuses(2, "usage", test_text(TEST_BUILD "/%s", names[i]));
    }
}

/* What they print, next to what other programs find. */
TEST(examples_print)
{
    static const char *const prompts[8] = {"Once upon a time", "The little dog", "One day, Tom",
                                           "Lily had a ball",  "The sun was",    "A big red bird",
                                           "Mom said",         "In the garden"};
    static char expected[16384], command[256];
    char *printed;
    double n[6];
    size_t at = 0;
    for (size_t i = 0; i < 8; i++) { /* each with the seed of its number */
        snprintf(command, sizeof command,
                 GPT2 MODEL "'%s' -n 30 --temperature 0.7 --top-k 40 --seed %d", prompts[i],
                 (int)i);
        printed = prints(command);
        at += (size_t)snprintf(expected + at, sizeof expected - at, "%d. %s", (int)i + 1,
                               printed ? printed : "");
        free(printed);
    }
    printed = prints(TEST_BUILD "/eight " MODEL);
    CHECKF(printed && strcmp(printed, expected) == 0, "%s", printed);
    free(printed);

    printed = prints(TEST_BUILD "/top5 " MODEL "'Once upon a time'"); /* PyTorch: a comma */
    const char *line = printed ? strstr(printed, "\" time\" (") : NULL;
    CHECKF(line && strstr(line, "then") && strstr(line, "\",\""), "%s", printed);
    free(printed);

    printed = prints(TEST_BUILD "/ablate " MODEL "0 1 'Once upon a time'");
    line = printed ? strstr(printed, "\nablated:") : NULL;
    CHECKF(line && strncmp(printed, "as it is:", 9) == 0 &&
               strncmp(printed + 9, line + 9, strcspn(printed + 9, "\n")) != 0,
           "%s", printed);
    free(printed);
    CHECK(run(TEST_BUILD "/ablate " MODEL "99 0 'Once upon'") == 1 && strstr(err, "blocks.99"));

    /* The last position of layer 0 is all that differs, so its stream makes the text the clean one;
     * before it nothing differs. */
    printed = prints(TEST_BUILD "/patch " MODEL "'Once upon a time' 'Once upon a hill'");
    if (CHECKF(printed && sscanf(printed, "clean %lf, corrupted %lf %lf %lf %lf %lf", &n[0], &n[1],
                                 &n[2], &n[3], &n[4], &n[5]) == 6,
               "%s", printed))
        CHECKF(n[0] > n[1] + 1 && n[2] == n[1] && n[3] == n[1] && n[4] == n[1] && n[5] == n[0],
               "%s", printed);
    free(printed);
    refuses(1, "as many tokens", TEST_BUILD "/patch " MODEL "'Once upon a time' 'Once'");

    printed =
        prints(TEST_BUILD "/record " MODEL "'Once upon a time' " TEST_TMP "record.safetensors");
    CHECKF(printed && strncmp(printed, "blocks.0.hook_resid_post [4, ", 29) == 0, "%s", printed);
    free(printed);
    printed = (char *)test_read(test_tmp("record.safetensors"), &at);
    CHECK(printed && at > 8 && strstr(printed + 8, "\"blocks.0.hook_resid_post\""));
    free(printed);
}

/* A conversation ends with its input; one that is longer than the context goes on, and so does one
 * whose line alone is. */
TEST(chatting)
{
    char *printed = prints("printf 'Once upon a time\\n\\nThe dog' | " TEST_BUILD "/chat " MODEL);
    const char *at;
    int n_prompts = 0;
    CHECKF(printed && strncmp(printed, "> ", 2) == 0 && strlen(printed) > 40, "%s", printed);
    free(printed);
    printed = prints("yes 'The dog said' | head -n 40 | " TEST_BUILD "/chat " MODEL);
    for (at = printed; at && (at = strstr(at, "> ")) != NULL; at += 2)
        n_prompts++;
    CHECKF(n_prompts == 41, "%d prompts: %s", n_prompts, printed);
    free(printed);
    printed =
        prints("yes 'The dog said' | head -n 300 | tr '\\n' ' ' | " TEST_BUILD "/chat " MODEL);
    CHECKF(printed && strlen(printed) > 40, "%s", printed);
    free(printed);
}

TEST(ways_to_give_a_prompt)
{
    const char *const whole = GPT2 MODEL "'Once upon a time' -n 20";
    run("printf 'Once upon a time' >%s", test_tmp("prompt.txt"));
    same(whole, GPT2 MODEL "--file " TEST_TMP "prompt.txt --tokens=20");
    same(whole, GPT2 MODEL "- -n 20 <" TEST_TMP "prompt.txt");
    same(whole, GPT2 MODEL "--file - -n 20 <" TEST_TMP "prompt.txt");
    same(whole, GPT2 MODEL "--ids '506 511 258 433' -n 20");
    same(whole, GPT2 MODEL "--ids '506,511, 258\n433' -n 20");
    same(whole, GPT2 "-n 20 -- " MODEL "'Once upon a time'");
    same(whole, GPT2 "-m " MODEL "-p 'Once upon a time' -n20 -t 1");
    same(whole, GPT2 "-qn20 -m" MODEL "'Once upon a time'");
    same(whole, GPT2 "-n=20 -f " TEST_TMP "prompt.txt " MODEL);
    same(whole, GPT2 MODEL "-n 20 <" TEST_TMP "prompt.txt"); /* piped in: no - is needed */
    same("printf 'Once\n\nTom had a' | " GPT2 "-i -n 5 " MODEL,
         GPT2 MODEL "Once -n 5; " GPT2 MODEL "'Tom had a' -n 5");
    same(GPT2 MODEL "--print-ids -n 0 -- --help", GPT2 MODEL "--print-ids -n 0 '--' '--help'");
    same(GPT2 MODEL "--ids '506 511 258 433' -n 0 --print-ids", "echo 506 511 258 433");
    same(GPT2 MODEL "'Once upon a time' -n 0", "echo Once upon a time");
    same(GPT2 MODEL "'Once upon a time' -n 3 --print-ids", "echo 506 511 258 433 11 400 286");
    same(GPT2 MODEL "'Once upon a time' -n 3 --no-prompt --print-ids", "echo 11 400 286");
    same(GPT2 "'Once upon a time' " MODEL " -n 20", whole); /* the words the other way round */
    /* Not cut at a zero byte, and whole characters however they are made of tokens. */
    same("printf 'a\\000b' | " GPT2 MODEL "- -n 0", "printf 'a\\000b\\n'");
    same(GPT2 MODEL "'na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80' -n 0",
         "echo 'na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80'");
    same("printf '\\303' | " GPT2 MODEL "- -n 0", "printf '\\357\\277\\275\\n'");
}

/* Texts that were saved or sent by programs of other systems are the same texts: see plain.h. */
TEST(texts_from_elsewhere)
{
    static const char *const ways[] = {"printf 'Once upon a\\n'", "printf 'Once upon a\\r\\n'",
                                       "printf '\\357\\273\\277Once upon a\\n'",
                                       "printf '\\357\\273\\277Once upon a\\r\\n'"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        same(GPT2 MODEL "'Once upon a' -n 4", test_text("%s | " GPT2 MODEL "-n 4", ways[i]));
        same(GPT2 MODEL "'Once upon a' -n 4", test_text("%s | " GPT2 MODEL "-i -n 4", ways[i]));
        same(GPT2 MODEL "'Once upon a' -n 4",
             test_text("%s >%s; " GPT2 MODEL "-f %s -n 4", ways[i], test_tmp("prompt.txt"),
                       TEST_TMP "prompt.txt"));
        same("echo 506 511 258", test_text("%s | " TEST_BUILD "/attn-tokenize " MODEL, ways[i]));
        same(TEST_BUILD "/lens " MODEL "loss 'Once upon a' --json",
             test_text("%s | " TEST_BUILD "/lens " MODEL "loss --json", ways[i]));
        same("printf 'Once upon a' | " TEST_BUILD "/perplexity " MODEL "--json",
             test_text("%s | " TEST_BUILD "/perplexity " MODEL "--json", ways[i]));
    }
    /* within a text, too, and only one line feed at its end */
    same("printf 'One\\r\\nTwo\\r\\n\\r\\n' | " TEST_BUILD "/attn-tokenize " MODEL,
         TEST_BUILD "/attn-tokenize " MODEL "-p 'One\nTwo\n'");
    same("printf 'One\\rTwo\\r' | " TEST_BUILD "/attn-tokenize " MODEL,
         TEST_BUILD "/attn-tokenize " MODEL "-p \"$(printf 'One\\rTwo\\r')\"");
    same("printf '/n 4\\r\\n/temperature 0\\r\\nOnce upon a\\r\\n/quit\\r\\n/show\\r\\n' | " GPT2
             MODEL "--repl",
         GPT2 MODEL "'Once upon a' -n 4 --no-prompt");
    /* --exact takes the bytes */
    same("printf 'Once upon a\\n' | " GPT2 MODEL "--exact --print-ids -n 0",
         TEST_BUILD "/attn-tokenize " MODEL "-p 'Once upon a\n'");
    same("printf '\\357\\273\\277a\\r\\n' | " TEST_BUILD "/attn-tokenize --exact " MODEL
         " | " TEST_BUILD "/attn-tokenize -d " MODEL,
         "printf '\\357\\273\\277a\\r\\n'");
    refuses(1, "standard input is UTF-16, where UTF-8 is needed",
            "printf '\\377\\376O\\000' | " GPT2 MODEL);
    refuses(1, "standard input is UTF-16, where UTF-8 is needed",
            "printf '\\377\\376O\\000' | " GPT2 MODEL "-i");
    refuses(1, "standard input is UTF-16, where UTF-8 is needed",
            "printf '\\377\\376O\\000' | " GPT2 MODEL "--repl");
    refuses(1, "it is UTF-16, where UTF-8 is needed",
            "printf '\\377\\376{\\000' | " TEST_BUILD "/score " MODEL);
    refuses(1, "it is UTF-16, where UTF-8 is needed",
            "rm -rf " TEST_TMP "utf16 && mkdir -p " TEST_TMP "utf16 && "
            "printf '\\377\\376{\\000' | " TEST_BUILD "/lens " MODEL
            "record '*resid_pre' --lines - -o " TEST_TMP "utf16");
}

TEST(special_tokens)
{
    same(GPT2 MODEL "'<|endoftext|>' --special --print-ids -n 0", "echo 2047");
    char *text = prints(GPT2 MODEL "'<|endoftext|>' --print-ids -n 0");
    CHECK(text && !strstr(text, "2047") && strlen(text) > 10);
    free(text);
    same(GPT2 MODEL "--bos -n 8 --no-prompt", GPT2 MODEL "--ids 2047 -n 8 --no-prompt");
    same(GPT2 MODEL "--bos Once -n 8 --no-prompt",
         GPT2 MODEL "'<|endoftext|>Once' --special -n 8 --no-prompt");
    text = prints(GPT2 MODEL "--bos Once -n 0"); /* what was not asked for is not printed */
    CHECK(text && strcmp(text, "Once\n") == 0);
    free(text);
}

static size_t count_words(const char *text)
{
    size_t n = 0;
    for (; *(text += strspn(text, " \n")); text += strcspn(text, " \n"))
        n++;
    return n;
}

/* The model ends a story now and then; --ignore-eos goes on. */
TEST(end_of_text)
{
    int ended = 0;
    for (int seed = 0; seed < 12; seed++) {
        char command[256];
        snprintf(command, sizeof command,
                 GPT2 MODEL "Once --no-prompt --print-ids --temperature 1 -n 240 --seed %d", seed);
        SCOPED_TEXT text = prints(command);
        if (!text)
            return;
        CHECK(!strstr(text, "2047"));
        if (count_words(text) < 240 && ended++ == 0) {
            const size_t length = strlen(text) - 1;
            strcat(command, " --ignore-eos");
            SCOPED_TEXT longer = prints(command);
            if (CHECK(longer && strlen(longer) > length + 5))
                CHECK(strncmp(text, longer, length) == 0 &&
                      strncmp(longer + length, " 2047", 5) == 0 && count_words(longer) == 240);
        }
    }
    CHECKF(ended > 0, "no story of 12 ended");
}

TEST(full_context)
{
    char command[4096] = GPT2 MODEL "--print-ids -n 50 --ids '";
    for (int i = 0; i < 256; i++)
        strcat(command, "11 ");
    strcat(command, "'");
    char *text = prints(command); /* 256 tokens fill the context; their logits choose one more */
    CHECK(text && count_words(text) == 257);
    free(text);
    command[strlen(command) - 1] = 0;
    strcat(command, "11'");
    refuses(1, "has 257 tokens, but the model's context holds 256", command);
    text = prints(GPT2 MODEL "Once --print-ids -n 1000000000 --ignore-eos");
    CHECK(text && count_words(text) == 257);
    free(text);
}

TEST(sampling_options)
{
#define STORY GPT2 MODEL "'Once upon a time' -n 40 "
    same(STORY "--temperature 0.8 --seed 7", STORY "-s7 --temperature=.8");
    /* A negative seed is a number of 64 bits, of which the generator takes the low half. */
    same(STORY "--temperature 0.8 --seed -5",
         STORY "--temperature 0.8 --seed 18446744073709551611");
    same(STORY "--temperature 0.8 --seed -5", STORY "--temperature 0.8 -s 18446744073709551611");
    same(STORY, STORY "--temperature 1 --top-k 1");
    same(STORY, STORY "--temperature 1 --top-p 0.000001 --seed 3");
    same(STORY,
         STORY "--temperature 1 --top-p 0 --seed 3"); /* not all, as 0 means to the library */
    same(STORY, STORY "--temperature 1 --min-p 1 --seed 3");
    same(STORY, STORY "--repeat-penalty 1");
    char *one = prints(STORY "--temperature 0.8 --seed 7");
    char *other = prints(STORY "--temperature 0.8 --seed 8");
    CHECK(one && other && strcmp(one, other) != 0);
    free(other);
    other = prints(STORY "--temperature 0.8 --seed 7 --repeat-penalty 1.5");
    CHECK(one && other && strcmp(one, other) != 0);
    free(one);
    one = prints(STORY "--temperature 0.8 --seed 7 --repeat-penalty 1.5 --repeat-last 1");
    CHECK(one && other && strcmp(one, other) != 0);
    free(other);
    free(one);
}

/* Whichever of these the processor has draw the same story; the others say that they are not here.
 */
TEST(threads_and_instruction_sets)
{
    static const char *const names[] = {"avx2", "avx512", "neon"};
    char command[256];
    same(STORY "--threads 1", STORY "--threads 3");
    char *want = prints(STORY "--isa portable");
    for (size_t i = 0; i < 3; i++) {
        snprintf(command, sizeof command, STORY "--isa %s", names[i]);
        if (run("%s", command) == 0)
            CHECKF(want && strcmp(out, want) == 0, "%s: another text: %s", names[i], out);
        else
            refuses(1, names[i], command);
    }
    free(want);
    CHECK(run(STORY "--isa base") == 0);
}

TEST(statistics)
{
    CHECK(run(STORY) == 0 && strchr(err, '\n') == err + err_size - 1);
    CHECK(strstr(err, "prompt 4 tokens, ") && strstr(err, "; generated 40, "));
    CHECK(strstr(err, "loaded in ") && strstr(err, " thread"));
    CHECK(run(STORY "--threads 1") == 0 && strstr(err, " 1 thread\n"));
    CHECK(run(STORY "-q") == 0 && err_size == 0);
    CHECK(run(STORY "-q --verbose") == 0 && strstr(err, "license: mit\nname: tiny-stories\n"));
#ifdef TEST_THREADS
    CHECK(run(STORY "--threads 256") == 0 && strstr(err, " 256 threads\n"));
#endif
    CHECK(run("OMP_NUM_THREADS=1 " GPT2 MODEL "Once -n 0") == 0 && strstr(err, " 1 thread\n"));
}

/* --logits writes the bits that the library gives for every position. */
static void check_logits(const char *options, attn_dtype cache)
{
    enum { T = 70, V = 2048 };
    const char expected[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (70, 2048), }";
    char command[2048] = GPT2 MODEL "--logits " TEST_TMP "logits.npy --ids '";
    attn_session_desc desc = {.cache_dtype = ATTN_F32};
    attn_ctx ctx = {0};
    SCOPED_MODEL model = NULL;
    SCOPED_SESSION session = NULL;
    size_t size = 0, t, v, wrong = 0;
    for (t = 0; t < T; t++)
        snprintf(command + strlen(command), 16, "%d ", (int)(t * 29 % V));
    strcat(command, "'");
    strcat(command, options);
    desc.cache_dtype = cache;
    CHECK(run("%s", command) == 0 && out_size == 0);
    SCOPED_BYTES file = test_read(test_tmp("logits.npy"), &size);
    if (CHECK(file) && CHECKF(size == 128 + T * V * 4, "%d bytes", (int)size) &&
        OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)) &&
        OK(&ctx, attn_session_new(&ctx, &session, model, &desc))) {
        CHECK(memcmp(file, "\x93NUMPY\x01\x00\x76\x00", 10) == 0);
        CHECK(memcmp(file + 10, expected, sizeof expected - 1) == 0 && file[127] == '\n');
        for (t = 0; t < T; t++) {
            const int32_t id = (int32_t)(t * 29 % V);
            OK(&ctx, attn_feed(&ctx, session, &id, 1));
            const float *row = attn_session_logits(session);
            for (v = 0; v < V; v++) {
                const unsigned char *b = file + 128 + 4 * (t * V + v);
                const uint32_t bits = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
                                      (uint32_t)b[3] << 24;
                wrong += memcmp(&row[v], &bits, 4) != 0;
            }
        }
        CHECKF(wrong == 0, "%d logits differ", (int)wrong);
    }
}

TEST(logits_array)
{
    check_logits("", ATTN_F32);
    check_logits(" --f16-cache", ATTN_F16);
    same(STORY, STORY "--logits " TEST_TMP "logits.npy");
    refuses(1, "nowhere/x.npy: cannot be written: No such file",
            GPT2 MODEL "Once --logits nowhere/x.npy");
    refuses(1, "/dev/full: writing failed: No space left on device",
            GPT2 MODEL "Once --logits /dev/full");
}

TEST(outputs_that_fail)
{
    static const char quiet_end[] = "{ " STORY "-q; echo $? >" TEST_TMP "code; } | head -c 10";
    size_t size;
    CHECK(run(quiet_end) == 0 && err_size == 0 && strcmp(out, "Once upon ") == 0);
    /* So long that the reader is gone before the end, whether or not the signal is taken. */
    CHECK(run("{ for i in 1 2 3 4 5 6 7 8; do " STORY "-q || break; sleep 0.1; done; "
              "echo $? >" TEST_TMP "code; } | head -c 10") == 0);
    CHECKF(err_size == 0, "said \"%s\"", err);
    CHECK(run("trap '' PIPE; for i in 1 2 3 4 5 6 7 8; do " STORY "-q; echo $? "
              ">" TEST_TMP "code; sleep 0.1; done | head -c 10") == 0);
    char *code = (char *)test_read(TEST_TMP "code", &size);
    CHECKF(code && strcmp(code, "141\n") == 0, "exit code %s", code);
    CHECKF(err && !strstr(err, "gpt2"), "said \"%s\"", err);
    free(code);
    refuses(1, "cannot write the output: No space left on device", STORY ">/dev/full");
}

/* What is there stays until all of the new is there, and no part of it is left. */
TEST(logits_in_part)
{
    char ids[1100] = "", command[2048];
    for (int i = 0; i < 256; i++)
        strcat(ids, "11 ");
    CHECK(run("echo older >" TEST_TMP "part.npy") == 0);
    snprintf(command, sizeof command,
             "trap '' XFSZ; ulimit -f 1000; " GPT2 MODEL "--logits " TEST_TMP "part.npy --ids '%s'",
             ids);
    refuses(1, "part.npy: writing failed: File too large", command);
    same("cat " TEST_TMP "part.npy", "echo older");
    same("ls " TEST_TMP "part.npy*", "echo " TEST_TMP "part.npy");
    /* Ctrl-C when the file has been begun: this takes a second or more. */
    int code = run(GPT2 MODEL
                   "--isa portable --threads 1 --logits " TEST_TMP "part.npy --ids '%s' & run=$!; "
                   "while kill -0 $run && ! ls " TEST_TMP "part.npy.*; do :; done >&2 2>/dev/null; "
                   "kill -INT $run; wait $run",
                   ids);
    CHECKF(code == 130, "exit code %d (%s)", code, err);
    same("cat " TEST_TMP "part.npy", "echo older");
    same("ls " TEST_TMP "part.npy*", "echo " TEST_TMP "part.npy");
    CHECK(run(GPT2 MODEL "-q --logits " TEST_TMP "part.npy Once") == 0);
    same("head -c 6 " TEST_TMP "part.npy | tail -c 5", "printf NUMPY");
    same("ls " TEST_TMP "part.npy*", "echo " TEST_TMP "part.npy");
}

/* A reader that waits until Ctrl-C has come holds the run within --logits. */
TEST(interrupt)
{
    char command[1024] =
        "tmp=" TEST_TMP "; rm -f $tmp/fifo $tmp/came; mkfifo $tmp/fifo; "
        "(until test -e $tmp/came; do sleep 0.1; done; cat) <$tmp/fifo >/dev/null & " GPT2 MODEL
        "-n 5 --logits $tmp/fifo --ids '";
    for (int i = 0; i < 60; i++)
        strcat(command, "11 ");
    strcat(command, "' & " INTERRUPT "touch $tmp/came; wait $run");
    int code = run("%s", command);
    CHECKF(code == 130, "exit code %d (%s)", code, err);
    CHECKF(out && out_size > 0 && out[out_size - 1] == '\n', "no newline at the end");
    CHECKF(err && strstr(err, "generated 0,"), "said \"%s\"", err);
}

/* A suite that cannot make its models has not passed. */
TEST(tests_without_models)
{
    CHECK(run("cd " TEST_TMP " && rm -rf bare && mkdir bare && cd bare && "
              "touch attn.h && $BUILT/test lens") == 1);
    CHECKF(out && strstr(out, "FAILED lens/(between cases)") &&
               strstr(out, "0 passed, 2 failed, 0 skipped"), /* in two files */
           "%s", out);
}

/* Every program with every option that names an output, which is $out. What is there already is continued by
 * those that go on. */
#define LENS TEST_BUILD "/lens " MODEL
#define PAIR "'Tom was a boy. He' 'Tom was a girl. He' -q "
static const struct {
    const char *name, *command;
    int goes_on;
} writers[] = {
    {"x.attn", TEST_BUILD "/attn-convert -q examples/tiny-stories $out", 0},
    {"x.gguf", TEST_BUILD "/attn-convert -q " MODEL "$out", 0},
    {"x.json", LENS "loss 'Once upon' -q --receipt $out", 0},
    {"x.json", "echo Once | " TEST_BUILD "/surprisal " MODEL "--receipt $out", 0},
    {"x.json", "echo Once | " TEST_BUILD "/score " MODEL "--lines -q --receipt $out", 0},
    {"x.npy", GPT2 MODEL "Once -n 2 -q --logits $out", 0},
    {"x.json", GPT2 MODEL "Once -n 2 -q --receipt $out", 0},
    {"x.session", GPT2 MODEL "Once -n 2 -q --session $out", 1},
    {"x.json", "printf 'Once\\n/save! %s\\n' $out | " GPT2 MODEL "-q --repl -n 2", 0},
    {"x.html", LENS "loss 'Once upon' -q -o $out", 0},
    {"x.svg", LENS "heads 'Once upon' -q -o $out", 0},
    {"x.npz", LENS "decompose 'Once upon' -q -o $out", 0},
    {"x.safetensors", LENS "gradients 'Once upon' hook_embed -q -o $out", 0},
    {"x.npz", LENS "record 'Once upon' hook_embed -q -o $out", 0},
    {"x.attn", LENS "process -q -o $out", 0},
    {"x.json", LENS "edges " PAIR "--edges 3 -o $out", 0},
    {"x.state",
     LENS "edges " PAIR "--exact --of nodes --state $out $(test ! -s $out || echo --resume)", 1},
    {"x.jsonl", TEST_BUILD "/score " MODEL TEST_TMP "line.jsonl -q --resume -o $out", 1},
    {"x.csv", TEST_BUILD "/surprisal " MODEL TEST_TMP "line.txt -q -o $out", 0},
    {"x.jsonl",
     "lens_pair='{\"clean\": \"The cat\", \"corrupted\": \"The dog\", \"token\": \" was\"}'; "
     "echo \"$lens_pair\" >" TEST_TMP "pair.jsonl && " LENS "ablate --pairs " TEST_TMP
     "pair.jsonl -q --each $out",
     0},
    {"x.json", TEST_BUILD "/reproduce " MODEL "--json $out || [ -s $out ]", 0},
    {"x.zip", TEST_BUILD "/zip " MODEL TEST_TMP "line.txt $out", 0},
    {"x.json", TEST_BUILD "/bench " MODEL "--quick --only tokenizer --json $out", 0}};

/* The bench is the last, and built only for the long tests. */
static size_t n_writers(void)
{
    return sizeof writers / sizeof writers[0] - !test_full();
}

/* Runs commands around a writer, which is the function `write`, with its output's name as $name in the empty
 * directory $dir. `in` is a command that runs the shell in a place of its own, or "". */
static int with_writer(size_t i, const char *in, const char *commands)
{
    char script[1200];
    const int size = snprintf(script, sizeof script,
                              "name=%s dir=" TEST_TMP "outs; rm -rf $dir && mkdir -p $dir/to && "
                              "write() { out=$1; %s; } && { %s; }",
                              writers[i].name, writers[i].command, commands);
    test_write(TEST_TMP "outs.sh", script, (size_t)size);
    return run("%s sh " TEST_TMP "outs.sh", in);
}

/* Gives each output of a command the file of the model. No other option's help may say that it writes a file. Returns the
 * number of outputs. */
static int refuse_the_model(const char *program, const char *command, const json_value *settings)
{
    int n = 0;
    for (size_t i = 0; settings && i < settings->size; i++) {
        const json_value *const s = item(settings, i), *const option = member(s, "option");
        const char *const line =
            test_text("%s " TEST_TMP "kept.attn %s --%.*s " TEST_TMP "kept.attn", program, command,
                      (int)option->size, option->text);
        if (json_is(member(s, "kind"), "output")) {
            CHECKF(run(TEST_BUILD "/%s", line) == 2 && strstr(err, "would overwrite "), "%s: %s",
                   line, err);
            n++;
        } else if (member(s, "is_file")->kind == JSON_TRUE) {
            CHECKF(strncmp(member(s, "help")->text, "write", 5) != 0, "%s: no output", line);
        }
    }
    return n;
}

/* Every option of every command that names a file to write refuses one that is read. */
TEST(outputs_that_are_inputs)
{
    static const char *const programs[] = {"lens", "surprisal", "score", "gpt2"};
    int n = 0;
    CHECK(run("cp " MODEL TEST_TMP "kept.attn") == 0);
    for (size_t p = 0; p < 4; p++) {
        attn_ctx ctx = ATTN_ZERO;
        json_value *root = NULL;
        char name[64] = "", line[100];
        snprintf(line, sizeof line, TEST_BUILD "/%s --help json", programs[p]);
        SCOPED_TEXT const text = prints(line);
        if (text && OK(&ctx, json_parse(&ctx, programs[p], text, strlen(text), &root))) {
            const json_value *const commands = member(root, "commands");
            for (size_t i = 0; commands && i < commands->size; i++) {
                const json_value *const command = member(item(commands, i), "name");
                if (commands->size > 1)
                    snprintf(name, sizeof name, "%.*s", (int)command->size, command->text);
                n += refuse_the_model(programs[p], name, member(item(commands, i), "settings"));
            }
        }
        free(root);
    }
    CHECKF(n > 40, "%d outputs", n);
    CHECK(run("cmp " MODEL TEST_TMP "kept.attn") == 0);
}

/* What is written takes the place of the file behind a link, which stays, and has that file's mode. */
TEST(outputs_through_links)
{
    char script[600];
    test_write(TEST_TMP "line.txt", "The cat.\n", 9);
    test_write(TEST_TMP "line.jsonl", "{\"text\": \"The cat.\"}\n", 21);
    for (size_t i = 0; i < n_writers(); i++) {
        snprintf(
            script, sizeof script,
            "write $dir/$name >&2 && %s $dir/$name %s $dir/to/$name && chmod 640 $dir/to/$name && "
            "ln -s to/$name $dir/one && ln -s one $dir/2$name && write $dir/2$name && cd $dir && [ -L 2$name ] && "
            "[ -L one ] && [ -s to/$name ] && [ \"$(head -c 3 to/$name)\" != old ] && [ $(ls to | wc -l) = 1 ] && "
            "ls -l to/$name | grep -q ^-rw-r----- && rm 2$name && ln -s 3$name 2$name && ln -s 2$name 3$name && "
            "cd - && ! write $dir/2$name && [ -L $dir/2$name ]",
            writers[i].goes_on ? "mv" : "rm", writers[i].goes_on ? "" : "&& echo old >");
        CHECKF(with_writer(i, "", script) == 0, "%s: %s", writers[i].command, err);
        if (writers[i].goes_on) /* an open file has no beginning that can be read */
            continue;
        CHECKF(
            with_writer(i, "",
                        "ln -s /proc/self/fd/1 $dir/2$name && write $dir/2$name >$dir/to/$name && "
                        "[ -L $dir/2$name ] && [ -s $dir/to/$name ]") == 0,
            "%s: %s", writers[i].command, err);
    }
}

/* A file that is mounted by itself, as into a container, and a device: they get the output and stay what they are. */
TEST(outputs_that_are_no_plain_files)
{
    const int can_mount =
        run("cd " TEST_TMP " && : >real && : >mounted && unshare -rm mount --bind real mounted") ==
        0;
    const int can_make =
        run("cd " TEST_TMP " && rm -f null && mknod null c 1 3 && echo >null") == 0;
    char script[400];
    test_write(TEST_TMP "line.txt", "The cat.\n", 9);
    test_write(TEST_TMP "line.jsonl", "{\"text\": \"The cat.\"}\n", 21);
    for (size_t i = 0; i < n_writers(); i++) {
        snprintf(
            script, sizeof script,
            "write $dir/$name >&2 && %s $dir/$name %s $dir/to/$name && : >>$dir/$name && "
            "mount --bind $dir/to/$name $dir/$name && write $dir/$name && umount $dir/$name && "
            "[ ! -s $dir/$name ] && [ -s $dir/to/$name ] && [ \"$(head -c 3 $dir/to/$name)\" != old ] && "
            "[ $(ls $dir | wc -l) = 2 ]",
            writers[i].goes_on ? "mv" : "rm", writers[i].goes_on ? "" : "&& echo old >");
        CHECKF(!can_mount || with_writer(i, "unshare -rm", script) == 0, "mounted: %s: %s",
               writers[i].command, err);
        CHECKF(!can_make || with_writer(i, "",
                                        "mknod $dir/$name c 1 3 && { write $dir/$name || :; } && "
                                        "[ -c $dir/$name ]") == 0,
               "a device: %s: %s", writers[i].command, err);
    }
    if (!can_mount || !can_make)
        test_skip("no right to mount a file and to make a device");
}

/* A model without a tokenizer speaks ids. */
TEST(no_tokenizer)
{
    CHECK(run(TEST_BUILD "/attn-convert examples/tiny-stories " TEST_TMP "bare.attn "
                         "--no-tokenizer") == 0);
    same(GPT2 TEST_TMP "bare.attn --ids '506 511 258 433' -n 5", STORY "-n 5 --print-ids");
    refuses(1, "has no tokenizer: give the prompt with --ids", GPT2 TEST_TMP "bare.attn Once");
}

/* Why the text ends is on the line of statistics. */
TEST(ends)
{
    CHECK(run(GPT2 MODEL "Once -n 3") == 0 && strstr(err, "generated 3, ") &&
          strstr(err, ": it has -n tokens;"));
    CHECK(run(GPT2 MODEL "--ids \"$(yes 11 | head -n 254)\" -n 9 --ignore-eos") == 0);
    CHECKF(strstr(err, "generated 3, ") && strstr(err, ": the context is full;"), "%s", err);
    CHECK(run(GPT2 MODEL "--ids \"$(yes 11 | head -n 254)\" -n 3 --ignore-eos") == 0);
    CHECKF(strstr(err, ": it has -n tokens;"), "%s", err);
}

/* What every program here has in common. */
/* --help json has the options of the pages, each with all that is known of it. */
static void check_help_json(const char *program)
{
    static const char *const members[] = {"name",    "letter", "argument", "kind",    "takes",
                                          "default", "help",   "is_many",  "is_file", "is_negated"};
    attn_ctx ctx = ATTN_ZERO;
    json_value *root = NULL;
    char *const pages = (run(TEST_BUILD "/%s --help all", program), out), word[64];
    out = NULL;
    CHECKF(run(TEST_BUILD "/%s --help json", program) == 0, "%s --help json", program);
    if (OK(&ctx, json_parse(&ctx, program, out, out_size, &root)) &&
        CHECK(json_is(member(root, "program"), program))) {
        const json_value *const list = member(root, "commands"), *command = list + 1;
        for (size_t i = 0; i < list->size; i++, command += command->span) {
            const json_value *const settings = member(command, "settings"), *s = settings + 1;
            for (size_t k = 0; k < settings->size; k++, s += s->span) {
                const json_value *const option = member(s, "option");
                snprintf(word, sizeof word, "--%.*s", (int)option->size, option->text);
                CHECKF(strstr(pages, word), "%s --help all has no %s", program, word);
                for (size_t m = 0; m < sizeof members / sizeof members[0]; m++)
                    member(s, members[m]);
            }
            CHECKF(settings->size >= 3, "%s has %d settings", program, (int)settings->size);
        }
    }
    free(root);
    free(pages);
}

TEST(table_as_json)
{
    static const char *const names[] = {"gpt2",      "attn-convert", "attn-info",  "attn-tokenize",
                                        "lens",      "score",        "perplexity", "attn-verify",
                                        "reproduce", "surprisal"};
    static const char *const lines[][2] = {
        {"gpt2", "{\"option\": \"tokens\", \"name\": \"tokens\", \"letter\": \"n\", \"argument\": "
                 "\"COUNT\", \"kind\": \"count\", \"takes\": {\"least\": 0, \"most\": 1000000000}, "
                 "\"default\": 100, \"help\": \"tokens to generate (default 100)\", \"is_many\": "
                 "false, \"is_file\": false, \"is_negated\": false}"},
        {"surprisal", "{\"option\": \"no-bos\", \"name\": \"bos\", \"letter\": null"},
        {"surprisal",
         "\"takes\": {\"choices\": [\"word\", \"token\", \"region\"]}, \"default\": \"word\""},
        {"lens",
         "{\"option\": \"from\", \"name\": \"from_\", \"letter\": null, \"argument\": \"SENDER\""},
        {"lens", "\"words\": [\"prompt\", \"corrupted\", \"names\"]"},
        {"lens", "\"default\": 0.98"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_help_json(names[i]);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        CHECKF(run(TEST_BUILD "/%s --help json", lines[i][0]) == 0 && strstr(out, lines[i][1]),
               "%s --help json has no %s", lines[i][0], lines[i][1]);
}

TEST(all_programs)
{
    static const char *const names[] = {"gpt2",        "attn-convert", "attn-info", "attn-tokenize",
                                        "bench",       "lens",         "score",     "perplexity",
                                        "attn-verify", "reproduce",    "surprisal"};
    const char *line;
    size_t n, width = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], "bench") == 0 && !test_full())
            continue; /* it is not built */
        CHECKF(run(TEST_BUILD "/%s --help", names[i]) == 0 && out_size > 100 && err_size == 0,
               "%s --help", names[i]);
        for (n = 0, line = out; line && *line; line += width + (line[width] == '\n'), n++)
            CHECKF((width = strcspn(line, "\n")) <= 80, "%s --help is too wide: %.90s", names[i],
                   line);
        CHECKF(n <= 51, "%s --help has %d lines; expected at most 51", names[i], (int)n);
        CHECKF(run("COLUMNS=40 " TEST_BUILD "/%s --help", names[i]) == 0, "%s --help", names[i]);
        for (line = out; line && *line; line += width + (line[width] == '\n'))
            CHECKF((width = strcspn(line, "\n")) <= 40 || !memchr(line, ' ', width),
                   "%s --help is too wide for 40 columns: %.90s", names[i], line);
        CHECKF(run(TEST_BUILD "/%s --version", names[i]) == 0 && err_size == 0 &&
                   strncmp(out, names[i], strlen(names[i])) == 0 && strstr(out, " of attn.h 1."),
               "%s --version: %s", names[i], out);
        CHECKF(run(TEST_BUILD "/%s --hlep", names[i]) == 2 && out_size == 0 &&
                   strstr(err, "there is no option --hlep; do you mean --help?"),
               "%s --hlep: %s", names[i], err);
        CHECKF(run(TEST_BUILD "/%s --wrong-option", names[i]) == 2 && out_size == 0 &&
                   err_size > 10,
               "%s --wrong-option", names[i]);
        CHECKF(run(TEST_BUILD "/%s missing-file </dev/null", names[i]) != 0 && err_size > 10,
               "%s missing-file", names[i]);
    }
}

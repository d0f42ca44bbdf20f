/* The bench: that it runs to its end, what it prints, how it refuses. Nothing here looks at how
 * fast anything is. */
#include "tools/bench/bench_model.h"
#include "tests/support/command.h"
#include <math.h>
#include <signal.h>

SUITE_WITH(NULL, forget);

/* The bench compiles its own copy of attn.h. Building and testing it takes half a minute, so the tests run
 * only with ATTN_TEST_FULL. */
#undef TEST
#define TEST(name) TEST_IF(test_full(), name)

TEST_IF(!test_full(), the_bench)
{
    test_skip("with ATTN_TEST_FULL=1 only");
}

#define BENCH TEST_BUILD "/bench "
#define MODEL TEST_BUILD "/tiny-stories.attn "
#ifdef TEST_THREADS
#define THREADS "2"
#else
#define THREADS "1"
#endif

/* A number after "key": in the first place that has it, or -1. */
static double number_of(const char *json, const char *key)
{
    const char *const quoted = test_text("\"%s\": ", key);
    const char *at = json ? strstr(json, quoted) : NULL;
    return at ? strtod(at + strlen(quoted), NULL) : -1;
}

TEST(bad_options)
{
    refuses(2, "there is no option --fast", BENCH "--fast");
    refuses(2, "there is no \"125M\"; choose 124M, 355M, 774M or 1558M", BENCH "--size 125M");
    refuses(2, "--size needs a value: SIZE", BENCH "--size");
    refuses(2, "there is no \"f32,q5\"; choose f32, f16, q8 or q4, or several",
            BENCH "--dtype f32,q5");
    refuses(2, "--dtype: there is no \"\"", BENCH "--dtype ''");
    refuses(2,
            "bench: --only: there is no \"prompts\"; choose roofs, matmul, prompt, generation, "
            "speculation, batch, mixed, hooks, threads, first, memory, tokenizer or barrier, or "
            "several with "
            "commas between them",
            BENCH "--only prompts --quick");
    refuses(2, "--only: there is no \"matmul,\"", BENCH "--only matmul,");
    refuses(2, "is not a whole number from 1 to ", BENCH "--threads 0");
    refuses(2, "is not a whole number from 1 to ", BENCH "--threads 2x");
    refuses(2, "is not a whole number from 1 to ", BENCH "--threads 1x");
    refuses(2, "not for a given model", BENCH MODEL "--size 355M");
    refuses(2, "is not a whole number from 1 to ", BENCH "--threads 257");
#ifndef TEST_THREADS
    refuses(2, "is not a whole number from 1 to 1", BENCH "--threads 2");
#endif
    refuses(2, "one model at a time", BENCH MODEL MODEL);
    refuses(2, "not for a given model", BENCH MODEL "--dtype q8");
    refuses(2, "would overwrite ", BENCH MODEL "--only roofs --json " MODEL);
}

TEST(failures)
{
    CHECK(run(BENCH "build/no-such-file.attn --quick --only prompt") == 1);
    CHECK(err && strstr(err, "no-such-file.attn"));
    CHECK(run(BENCH "README.md --quick --only prompt") == 1);
    CHECK(run(BENCH MODEL "--quick --only roofs --json build/no/such/directory.json") == 1);
    CHECK(err && strstr(err, "build/no/such/directory.json: cannot be written"));
    CHECK(run(BENCH "--quick --only tokenizer --tokenizer build/no/such") == 1);
    CHECK(run("TMPDIR=build/no/such " BENCH "--quick --size 355M --only prompt") == 1);
    CHECK(err && strstr(err, "TMPDIR"));
    CHECK(run("TMPDIR=build/no/such " BENCH "--quick --only prompt") == 1);
    CHECK(err && strstr(err, "TMPDIR"));
    CHECK(run(BENCH MODEL "--quick --only tokenizer --tokenizer build/no/such") == 1);
}

TEST(help)
{
    static const char *const options[] = {"--size", "--dtype",     "--only",     "--quick",
                                          "--json", "--tokenizer", "--cpu-time", "--threads"};
    CHECK(run(BENCH "-h") == 0 && run(BENCH "--help") == 0);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECKF(out && strstr(out, options[i]), "--help does not mention %s", options[i]);
}

/* The model of random weights: every tensor there and whole, the numbers within what was drawn. */
TEST(random_weights)
{
    static const model_shape shape = {"tiny", 2, 2, 32};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F16, ATTN_Q8, ATTN_Q4};
    size_t k;
    const char *const path = test_text("%s", test_tmp("random.attn"));
    for (size_t i = 0; i < 4; i++) {
        SCOPED_CTX ctx = ATTN_ZERO;
        SCOPED_MODEL model = NULL;
        model_tensor info;
        attn_tensor x = ATTN_ZERO;
        uint64_t size;
        double sum = 0, squares = 0;
        OK(&ctx, model_write(&ctx, path, &shape, dtypes[i]));
        if (!OK(&ctx, attn_model_open(&ctx, &model, path, NULL)))
            continue;
        CHECK(attn_model_config(model)->n_layer == 2 && attn_model_config(model)->d_model == 32 &&
              attn_model_config(model)->n_vocab == 50257 &&
              attn_model_config(model)->n_ctx == 1024);
        CHECK(model_n_tensors(model) == 4 + 12 * 2);
        for (size = k = 0; k < model_n_tensors(model); k++) {
            info = model_tensor_at(model, k);
            size += strcmp(info.name, "pos_embed.W_pos") != 0 ? info.size : 0;
        }
        CHECK(model_bytes(&shape, dtypes[i]) == size);
        if (OK(&ctx, attn_model_tensor(&ctx, &x, model, "blocks.1.mlp.W_in")))
            for (k = 0; k < attn_count(x); k++) {
                const double value = (double)((const float *)x.data)[k];
                CHECK(fabs(value) < 0.06);
                sum += value;
                squares += value * value;
            }
        sum /= (double)attn_count(x); /* uniform from -0.05 to 0.05: variance 1/1200 */
        squares /= (double)attn_count(x);
        CHECKF(fabs(sum) < 0.005 && fabs(squares * 1200 - 1) < 0.1, "mean %g, square %g", sum,
               squares);
        attn_tensor_free(&ctx, &x);
    }
    remove(path);
}

/* Every section of the table, on the included model; the table and the JSON agree. */
TEST(every_section)
{
    static const char *const headings[] = {
        "\nroofs ",  "\nmatmul ",   "\nprompt ",         "\ngeneration ",        "\nspeculation ",
        "\nbatch ",  "\nhooks ",    "\nthreads, tok/s ", "\nthe default is at ", "\nfirst token ",
        "\nmemory ", "\ntokenizer "};
    char *table = NULL, *json = NULL;
    const char *line, *end;
    size_t size;
    table = prints(BENCH MODEL "--quick --threads " THREADS " --json " TEST_TMP "json");
    if (!table)
        return;
    json = (char *)test_read(TEST_TMP "json", &size);
    if (!CHECK(json))
        return;
    for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++)
        CHECKF(strstr(table, headings[i]), "no heading \"%s\" in:\n%s", headings[i] + 1, table);
    for (line = table; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        CHECKF(end - line <= 100, "a line of %d columns: %.*s", (int)(end - line),
               (int)(end - line), line);
    }
    size_t n = occurrences(json, "\"section\": ");
    CHECKF(n > 20, "%d figures", (int)n);
    CHECK(n == occurrences(json, "\"share\": ") && n == occurrences(json, "\"value\": "));
    CHECK(number_of(json, "threads") == 1 || number_of(json, "threads") == 2);
    CHECK(number_of(json, "value") > 0);
    CHECK(number_of(strstr(json, "\"section\": \"matmul\""), "roof") > 0);
    CHECK(number_of(strstr(json, "\"section\": \"generation\""), "share") > 0);
    CHECK(strstr(json, "\"model\": \"tiny-stories.attn\""));
    free(table);
    free(json);
    if (run("command -v python3") != 0) {
        forget();
        test_skip("no python3 here to read the JSON");
        return;
    }
    RUNS("python3 -c 'import json; j = json.load(open(\"" TEST_TMP "json\")); "
         "assert {f[\"dtype\"] for f in j[\"figures\"]} == {None, \"f16\"}, j; "
         "assert all(f[\"value\"] > 0 and f[\"unit\"] for f in j[\"figures\"]), j'");
}

/* --json - is JSON and nothing else, and --only leaves out the rest. */
TEST(barriers)
{
    RUNS(BENCH "--quick --only barrier --json -");
#ifdef TEST_THREADS
    CHECKF(out && strstr(out, "\"name\": \"2 workers") && strstr(out, "\"name\": \"16 workers") &&
               number_of(out, "value") > 0 && number_of(out, "roof") > 0,
           "%s", out);
#endif
}

TEST(json_alone)
{
    CHECK(run(BENCH MODEL "--quick --only prompt,batch --threads 1 --json -") == 0);
    CHECK(out && out[0] == '{' && strcmp(out + strlen(out) - 3, "\n}\n") == 0);
    CHECK(occurrences(out, "\"section\": \"prompt\"") == 1);
    CHECK(occurrences(out, "\"section\": \"batch\"") == 2);
    CHECK(occurrences(out, "\"section\": ") == 3);
    CHECK(run(BENCH MODEL "--quick --only generation,first --cpu-time") == 0);
    CHECK(out && strstr(out, "generation") && !strstr(out, "first token"));
    CHECK(run(BENCH MODEL "--quick --only prompt --cpu-time --json -") == 0);
    CHECK(out && strstr(out, "\"clock\": \"processor\""));
}

/* A model of 32 positions, with a name to be quoted: what cannot be measured is said, and the rest
 * is. Then weights of 8 bits, and no model at all. */
TEST(other_models)
{
    CHECK(run(TEST_BUILD "/attn-convert --no-tokenizer tests/golden/plain '" TEST_TMP "a\"b.attn' "
                         "&& " TEST_BUILD "/attn-convert examples/tiny-stories " TEST_TMP
                         "q8.attn --dtype q8") == 0);
    CHECK(run(BENCH "'" TEST_TMP "a\"b.attn' --quick --only "
                    "speculation,batch,mixed,memory,tokenizer "
                    "--json " TEST_TMP "json") == 0);
    CHECKF(occurrences(out, "not measured: the model has too few positions") == 4 &&
               strstr(out, "\ntokenizer "),
           "%s", out);
    CHECK(run("grep -c '\"model\": \"a\\\\\"b.attn\"' " TEST_TMP "json") == 0);
    CHECK(run("odd=$(printf '" TEST_TMP "a\\\\b\\303\\251\\177.attn'); mv " TEST_TMP "a*b.attn "
              "\"$odd\" && " BENCH "\"$odd\" --only hooks --threads 1 --json -") == 0);
    CHECKF(out && strstr(out, "\"model\": \"b.attn\""), "%s", out);
    CHECK(run(TEST_BUILD "/attn-convert --no-tokenizer tests/golden/narrow " TEST_TMP "n.attn "
                         "&& " TEST_BUILD "/attn-convert --no-tokenizer tests/golden/odd " TEST_TMP
                         "o.attn") == 0);
    CHECK(run(BENCH TEST_TMP "n.attn --quick --only first --threads 1") == 0);
    CHECK(occurrences(out, "not measured: the model has too few positions") == 1);
    CHECK(run(BENCH "--child " TEST_TMP "n.attn 1 1") == 1);
    CHECK(err && strstr(err, "do not fit"));
    CHECK(run(BENCH TEST_TMP "o.attn --quick --only prompt --threads 1") == 0);
    CHECK(run(BENCH TEST_TMP "q8.attn --quick --only matmul,prompt --json -") == 0);
    CHECK(occurrences(out, "\"dtype\": \"q8\"") > 3 && occurrences(out, "\"dtype\": \"f16\"") == 0);
    CHECK(run(BENCH "--quick --size 355M --dtype q4 --only roofs --json -") == 0);
    CHECK(occurrences(out, "\"section\": \"roofs\"") >= 4 &&
          occurrences(out, "\"section\": ") == occurrences(out, "\"section\": \"roofs\""));
    CHECK(run(BENCH "$(printf '%%05000d' 1) --quick --only prompt") == 1);
    CHECK(err && strstr(err, "is too long"));
}

/* Nowhere to write the figures, no second process. */
TEST(failing_systems)
{
    static const model_shape small = {"small", 1, 1, 16};
    static const model_shape huge = {"huge", 0xFFFFFFFF, 1, 0x7FFFFFFF};
    attn_ctx ctx = ATTN_ZERO;
    if (run("test -w /dev/full") == 0) {
        CHECK(run(BENCH "--help >/dev/full") == 1);
        CHECK(run(BENCH MODEL "--quick --only roofs --threads 1 >/dev/full") == 1);
        CHECK(err && strstr(err, "cannot write the figures"));
        CHECK(run(BENCH MODEL "--quick --only roofs --threads 1 --json /dev/full") == 1);
        CHECK(err && strstr(err, "cannot write the figures"));
        CHECK(run(BENCH "--child " MODEL "1 1 >/dev/full") == 0);
        FAILS(IO, "/dev/full: writing failed: No space left on device",
              model_write(&ctx, "/dev/full", &small, ATTN_F32));
    }
    if (sizeof(size_t) > 4)
        FAILS(FORMAT, "d_model is 2147483647",
              model_write(&ctx, TEST_TMP "huge.attn", &huge, ATTN_F32));
    CHECK(run(BENCH "--child build/no-such-file.attn 1 1") == 1);
    CHECK(err && strstr(err, "no-such-file.attn"));
    CHECK(run(BENCH "--child " MODEL "1 2") == 0);
    CHECK(out && out[0] == 't');
#ifdef __linux__
    if (!TEST_SANITIZED) {
        CHECK(run("ulimit -n 4; " BENCH MODEL "--quick --only first --threads 1") == 1);
        CHECK(err && strstr(err, "cannot make a pipe"));
    }
#endif
}

/* The bench runs itself by the name that it was called by. What if that is another program? */
static int called(const char *name, const char *section)
{
    return run("python3 -c 'import os; os.execv(\"" TEST_BUILD "/bench\", [\"%s\", \"" TEST_BUILD
               "/tiny-stories.attn\", \"--quick\", \"--threads\", \"1\", \"--only\", \"%s\"])'",
               name, section);
}

TEST(second_processes)
{
    static const char *const fails[] = {"exit 0", "printf x", "printf 'no '",
                                        "printf 't 1'; exit 1", "printf '%0100d' 1"};
    const char *const fake = TEST_TMP "fake";
    char text[256];
    if (run("command -v python3") != 0) {
        forget();
        test_skip("no python3 here to give a program another name");
        return;
    }
    CHECK(called("no-such-bench", "first") == 1);
    CHECK(err && strstr(err, "a second process of no-such-bench failed"));
    CHECK(called("no-such-bench", "threads") == 1);
    CHECK(err && strstr(err, "a second process of no-such-bench failed"));
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        snprintf(text, sizeof text, "#!/bin/sh\n%s\n", fails[i]);
        test_write(fake, text, strlen(text));
        CHECK(run("chmod +x %s", fake) == 0);
        CHECKF(called(fake, "first") == 1 && strstr(err, "a second process of"), "%s: %s", fails[i],
               err);
        CHECKF(called(fake, "memory") == 1 && strstr(err, "a second process of"), "%s: %s",
               fails[i], err);
    }
    snprintf(text, sizeof text, "#!/bin/sh\nprintf 't -1'\n"); /* it cannot tell */
    test_write(fake, text, strlen(text));
    CHECK(called(fake, "memory") == 0 && strstr(out, "not measured: this system has no"));
    snprintf(text, sizeof text, "#!/bin/sh\n[ \"$4\" = 1 ] && printf 't 1'\n");
    test_write(fake, text, strlen(text)); /* only the short run goes well */
    CHECK(called(fake, "memory") == 1 && strstr(err, "a second process of"));
}

/* Logits that are no numbers stop whatever picks from them. */
TEST(no_numbers)
{
    static const char *const sections[] = {"generation", "speculation", "batch", "first", "memory"};
    const float nan = (float)NAN;
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = NULL;
    model_tensor info;
    size_t size, i;
    unsigned char *file = test_read(TEST_BUILD "/fuzz/long.attn", &size);
    if (!CHECK(file) ||
        !OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL)))
        return;
    for (i = 0; i < model_n_tensors(model); i++) {
        info = model_tensor_at(model, i);
        if (strcmp(info.name, "ln_final.b") == 0) {
            memcpy(file + info.offset, &nan, sizeof nan);
            put_u64(file + 256 + 128 * i + 112,
                    model_checksum(0, file + info.offset, (size_t)info.size));
        }
    }
    put_u64(file + 88, model_checksum(0, file + 256, 128 * i));
    put_u64(file + 248, model_checksum(0, file, 248));
    test_write(TEST_TMP "nan.attn", file, size);
    attn_model_close(model);
    free(file);
    for (i = 0; i < sizeof sections / sizeof *sections; i++) {
        CHECKF(run(BENCH TEST_TMP "nan.attn --quick --threads 1 --only %s", sections[i]) == 1, "%s",
               sections[i]);
        CHECKF(strstr(err, "NaN") != NULL, "%s: %s", sections[i], err);
    }
}

/* A tokenizer from elsewhere, and none at all. */
TEST(tokenizers)
{
    CHECK(run(BENCH MODEL "--quick --only tokenizer --threads 1 --tokenizer "
                          "tests/fixtures/convert/strings") == 0);
    CHECK(out && strstr(out, "of tests/fixtures/convert/strings"));
    CHECK(run(BENCH "--quick --size 124M --only tokenizer --threads 1") == 0);
    CHECK(out && strstr(out, "of examples/tiny-stories"));
    CHECK(run("cd " TEST_TMP " && $BUILT/bench --quick --only tokenizer") == 0);
    CHECK(out && strstr(out, "not measured: the model has no tokenizer"));
}

/* A model of 0.5 GB takes seconds to write; what was written goes when somebody interrupts. */
TEST(interrupted)
{
    static const char *const signals[] = {"INT", "TERM"};
    for (size_t i = 0; i < 2; i++) {
        const int code =
            run("dir=" TEST_TMP "bench; rm -rf $dir; mkdir $dir; TMPDIR=$dir " BENCH
                "--quick --only prompt --dtype f32 --json $dir/x.json & bench=$!; "
                "while [ -z \"$(ls $dir/bench* 2>&-)\" ] && kill -0 $bench; do sleep 0.01; done; "
                "kill -%s $bench; wait $bench",
                signals[i]);
        CHECKF(code == 128 + (i ? SIGTERM : SIGINT), "exit code %d (%s)", code, err);
        CHECK(run("rmdir " TEST_TMP "bench") == 0);
    }
}

/* Two on one processor: each has half of it, and says so. */
TEST(a_busy_machine)
{
    static const char busy[] =
        "taskset -c 0 " BENCH MODEL "--quick --only prompt,matmul --threads 1 ";
    if (run("taskset -c 0 true") != 0) {
        forget();
        test_skip("no taskset here");
        return;
    }
    CHECK(run("taskset -c 0 sh -c 'while :; do :; done' & other=$!; %s; status=$?; %s --cpu-time "
              "2>&1; kill $other; exit $status",
              busy, busy) == 0);
    CHECKF(occurrences(out, "Something else was running") == 2 &&
               occurrences(out, "Repeat this on an idle machine") == 1,
           "%s", out);
}

/* A process that may use one processor uses one thread, whatever OpenMP was told. The table of
 * threads compares the default with one thread then, and its busy processes end with it. */
TEST(one_processor)
{
    if (run("taskset -c 0 true") != 0) {
        forget();
        test_skip("no taskset here");
        return;
    }
    RUNS("OMP_NUM_THREADS=4 taskset -c 0 " BENCH MODEL "--quick --only threads --json " TEST_TMP
         "json");
    CHECKF(out && strstr(out, ", 1 thread,") && strstr(out, "generation, 1 busy") &&
               !strstr(out, "2 busy") && !strstr(out, "4 threads"),
           "%s", out);
    CHECK(run("grep -c '\"name\": \"generation, idle\".*\"threads\": 0,' " TEST_TMP "json") == 0);
}

/* All that there is to measure, on a small model of GPT-2's vocabulary and context, and one of
 * random weights as the bench makes it. It takes a minute. */
TEST_IF(test_full() && !TEST_SANITIZED, everything)
{
    static const model_shape shape = {"small", 1, 1, 16};
    attn_ctx ctx = ATTN_ZERO;
    const char *const path = test_text("%s", test_tmp("bench-small.attn"));
    OK(&ctx, model_write(&ctx, path, &shape, ATTN_F32));
    RUNS(BENCH "%s --threads " THREADS " --json " TEST_TMP "json", path);
    CHECK(out && strstr(out, "after 960 tokens, f16 cache") && strstr(out, "1024 tokens") &&
          strstr(out, "16 sequences") && strstr(out, "60, sweep of") && strstr(out, "1024 rows"));
    remove(path);
    RUNS(BENCH "--quick --size 774M --dtype f32 --only roofs --threads 1");
    CHECK(run(BENCH "--only roofs --threads 1") == 0);
    CHECK(out && strstr(out, ", f32") && strstr(out, ", q4"));
    CHECKF(run("TMPDIR= " BENCH "--quick --size 124M --dtype f16 --only roofs,first --threads 1") ==
               0,
           "%s", err);
    CHECK(out && strstr(out, "==== 124M, f16: 12 layers of 768") && strstr(out, "process start"));
}

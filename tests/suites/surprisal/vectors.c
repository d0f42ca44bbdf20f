/* The vectors of words, beside NumPy in float64, and the file that has them. */
#include "tests/support/test.h"
#include "tests/support/command.h"
#include "tools/common/system.h"
#include <math.h>

SUITE_WITH(NULL, forget);

#define SAY       TEST_BUILD "/surprisal " TEST_BUILD "/tiny-stories.attn -q "
#define FIXTURES  "tests/fixtures/surprisal/"
#define ALL_TEXTS "cat " FIXTURES "texts.txt " FIXTURES "long.txt | " SAY
#define POST(i)   "--vectors blocks." #i ".hook_resid_post "
#define INTO(f)   "--vectors-file " TEST_TMP f " "
enum { WIDTH = 192 };

/* Compares numbers 0 and 100 of each vector of TEST_TMP v.safetensors with a fixture. */
static void compare_with(const char *name, size_t n_layers)
{
    size_t size = 0, all_size = 0;
    unsigned char *const all = test_read(TEST_TMP "v.safetensors", &all_size);
    char *const fixture = (char *)test_read(name, &size), *at = fixture;
    const size_t head = all ? 8 + all[0] + 256u * all[1] : 0,
                 n_rows = (all_size - head) / sizeof(float) / WIDTH / n_layers;
    if (!CHECKF(all && fixture && all_size > head, "no %s", name))
        return;
    for (size_t row = 0; row < n_rows; row++)
        for (size_t i = 0; i < 2 * n_layers && CHECKF(at && *at, "%s has fewer rows", name); i++) {
            const double want = strtod(at, &at);
            float got;
            memcpy(&got, all + head + 4 * ((i / 2 * n_rows + row) * WIDTH + i % 2 * 100), 4);
            at += *at != 0;
            CHECKF(fabs(want - (double)got) < 2e-5, "%s, row %d, number %d: %f, not %f", name,
                   (int)row, (int)i, (double)got, want);
        }
    CHECKF(at && !*at && n_rows > 50, "%s: %d rows", name, (int)n_rows);
    free(all);
    free(fixture);
}

TEST(vectors_as_numpy)
{
    RUNS("rm -f " TEST_TMP "v*; " SAY FIXTURES "texts.txt " POST(0) POST(3) INTO("v.safetensors"));
    compare_with(FIXTURES "vectors.csv", 2);
    RUNS("rm -f " TEST_TMP "v*; " ALL_TEXTS "--continue --pooling first --stride 100 " POST(2)
             INTO("v.safetensors"));
    compare_with(FIXTURES "vectors-first.csv", 1);
    RUNS("rm -f " TEST_TMP "v*; " ALL_TEXTS "--continue --pooling last --no-bos " POST(2)
             INTO("v.safetensors"));
    compare_with(FIXTURES "vectors-last.csv", 1);
}

/* The same bytes with whichever threads, batches and columns; rows are the same as without vectors. */
TEST(vectors_same_bytes)
{
    static const char *const ways[] = {"-t 1 --batch 1", "-t 3 --layers all", "--layers 1 --json"};
    RUNS("rm -f " TEST_TMP "*.npz; " ALL_TEXTS "--vectors 'blocks.*.attn.hook_z' " POST(3)
             INTO("a.npz") ">" TEST_TMP "a.csv");
    same("cat " TEST_TMP "a.csv", ALL_TEXTS);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        RUNS("rm -f " TEST_TMP "b.npz; " ALL_TEXTS
             "--vectors 'blocks.*.attn.hook_z,blocks.3.hook_resid_post' " INTO("b.npz") "%s",
             ways[i]);
        CHECKF(test_same_file(TEST_TMP "a.npz", TEST_TMP "b.npz"), "%s: other bytes", ways[i]);
    }
    /* a row of one token is that token's vector, whatever the pooling */
    CHECK(run("rm -f " TEST_TMP "[ab].npz; " ALL_TEXTS "--by token --dtype f16 " POST(1)
                  INTO("a.npz") "; " ALL_TEXTS "--by token --pooling last --dtype f16 " POST(1)
                      INTO("b.npz")) == 0);
    CHECK(test_same_file(TEST_TMP "a.npz", TEST_TMP "b.npz"));
}

/* Wherever a run was killed, and whether or not a later vector was written, it goes on to the same files. */
static void resumes(const char *file, const char *options)
{
    RUNS("rm -f " TEST_TMP "w.*; " ALL_TEXTS "%s " POST(0) POST(3) "--vectors-file " TEST_TMP
                                                                   "w.%s -o " TEST_TMP "w.csv",
         options, file);
    for (int cut = 0; cut < 12000; cut += test_full() ? 97 : 2003) {
        /* behind the row of the cut there are zeros, as where nothing was written */
        CHECK(
            run("cd " TEST_TMP
                "; rm -f r.*; { cat w.%s; printf '\\000'; } >r.%s.part; head -c %d w.csv >r.csv.part; "
                "printf 'not yet' | dd of=r.%s.part bs=1 conv=notrunc 2>&1 seek="
                "$(($(wc -c <w.%s) - 100 * 192))",
                file, file, cut, file, file) == 0);
        CHECKF(run(ALL_TEXTS "%s " POST(0) POST(3) "--resume --vectors-file " TEST_TMP
                                                   "r.%s -o " TEST_TMP "r.csv",
                   options, file) == 0,
               "%s, cut at %d: %s", file, cut, err);
        CHECKF(run("cd " TEST_TMP "; cmp r.csv w.csv && cmp r.%s w.%s", file, file) == 0,
               "cut at %d: %s", cut, out);
    }
}

TEST(vectors_resume)
{
    resumes("npz", "");
    resumes("safetensors", "--continue --dtype f16");
    CHECK(
        run("cd " TEST_TMP
            "; mv w.safetensors w.safetensors.part; printf '\\000' >>w.safetensors.part; head -c 9000 w.csv "
            ">w.csv.part") == 0);
#define AGAIN(options)                                                                             \
    ALL_TEXTS "--continue --resume " INTO("w.safetensors") "-o " TEST_TMP "w.csv " options
    refuses(1, "w.safetensors.part has other vectors for row",
            AGAIN("--dtype f16 " POST(0) POST(2)));
    refuses(1, "w.safetensors.part was made with other options or other texts",
            AGAIN("--dtype f16 --pooling last " POST(0) POST(3)));
    refuses(1, "w.safetensors.part was made with other options", AGAIN(POST(0) POST(3)));
    refuses(1, "w.safetensors.part was made with other options", AGAIN("--dtype f16 " POST(0)));
    refuses(1, "w.safetensors.part has rows of a run that was interrupted: continue it",
            ALL_TEXTS POST(0) INTO("w.safetensors"));
    CHECKF(run(AGAIN("--dtype f16 " POST(0) POST(3)) "&& cmp " TEST_TMP "w.safetensors " TEST_TMP
                                                     "r.safetensors") == 0,
           "%s", err);
}

TEST(vectors_mistakes)
{
    CHECK(run("rm -f " TEST_TMP "m*; : >" TEST_TMP "m.npz") == 0);
    refuses(1, "m.npz: there is such a file: remove it", SAY "x " POST(0) INTO("m.npz"));
    refuses(2, "--vectors: blocks.4.hook_resid_post: the model has 4 layers, 0 to 3",
            "echo a | " SAY POST(4) INTO("n.npz"));
    refuses(2, "--vectors: no activation is called \"resid\"",
            "echo a | " SAY "--vectors resid " INTO("n.npz"));
    refuses(2, "--vectors: blocks.0.attn.hook_attn_scores has no vector for each token",
            "echo a | " SAY "--vectors 'blocks.0.*' " INTO("n.npz"));
    refuses(2, "--vectors and --vectors-file need each other", SAY "x " POST(0));
    refuses(2, "--vectors and --vectors-file need each other", SAY "x " INTO("n.npz"));
    refuses(2, "--pooling and --dtype are for --vectors", SAY "x --pooling last");
    refuses(2, "its name must end in .npz or .safetensors", SAY "x " POST(0) INTO("n.npy"));
    refuses(2, "would overwrite ", SAY "x " POST(0) INTO("n.npz") "-o " TEST_TMP "n.npz");
    refuses(1, "nowhere/n.npz.part: No such file", "echo a | " SAY POST(0) INTO("nowhere/n.npz"));
}

/* lens pairs: the lines are those of another program (make_task_pairs.py), and --pairs reads each. */
#include "tests/support/test.h"
#include "tools/lens/save.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

#define PAIRS TMP "task.jsonl"
#define OTHER TMP "other.jsonl"
#define EACH  TMP "each.jsonl"

/* A random model of 4 columns with the vocabulary of a directory, at `path`. */
static int make_model(const char *directory, const char *path)
{
    enum { V = 50257, C = 4, N_TENSORS = 16 };
    static const struct {
        const char *name;
        int rows, columns;
    } tensors[N_TENSORS] = {{"wte.weight", V, C},
                            {"wpe.weight", 64, C},
                            {"ln_f.weight", C, 0},
                            {"ln_f.bias", C, 0},
                            {"h.0.ln_1.weight", C, 0},
                            {"h.0.ln_1.bias", C, 0},
                            {"h.0.ln_2.weight", C, 0},
                            {"h.0.ln_2.bias", C, 0},
                            {"h.0.attn.c_attn.weight", C, 3 * C},
                            {"h.0.attn.c_attn.bias", 3 * C, 0},
                            {"h.0.attn.c_proj.weight", C, C},
                            {"h.0.attn.c_proj.bias", C, 0},
                            {"h.0.mlp.c_fc.weight", C, C},
                            {"h.0.mlp.c_fc.bias", C, 0},
                            {"h.0.mlp.c_proj.weight", C, C},
                            {"h.0.mlp.c_proj.bias", C, 0}};
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"activation_function\": \"gelu_new\", \"vocab_size\": 50257, "
        "\"n_positions\": 64, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 1, \"n_inner\": 4, "
        "\"layer_norm_epsilon\": 1e-5, \"bos_token_id\": 50256, \"eos_token_id\": 50256}";
    const char *names[N_TENSORS];
    attn_tensor values[N_TENSORS];
    attn_ctx ctx = {0};
    for (int i = 0; i < N_TENSORS; i++) {
        names[i] = tensors[i].name;
        values[i] = random_tensor(tensors[i].columns ? 2 : 1, tensors[i].rows, tensors[i].columns);
    }
    CHECK(run("mkdir -p " TMP "wide && cp %s/vocab.json %s/merges.txt " TMP "wide", directory,
              directory) == 0);
    test_write(TMP "wide/config.json", config, sizeof config - 1);
    OK(&ctx, lens_save(&ctx, TMP "wide/model.safetensors", names, values, N_TENSORS));
    attn_ctx_free(&ctx);
    return RUNS(TEST_BUILD "/attn-convert --quiet " TMP "wide %s", path);
}

/* Draws 12 pairs as the other program did, then 60, which --pairs must read. */
static void check_task(const char *model, const char *vocabulary, const char *task)
{
    const char *const fixture =
        test_text("tests/fixtures/task_pairs/%s-%s.jsonl", vocabulary, task);
    CHECK(run(LENS "%s pairs %s --count 12 --seed 5 >" PAIRS, model, task) == 0);
    CHECKF(test_same_file(PAIRS, fixture), "%s differs", fixture);
    CHECK(run(LENS "%s pairs %s --count 60 >" PAIRS, model, task) == 0);
    CHECK(run(LENS "%s pairs %s --count 60 --seed 0 >" OTHER, model, task) == 0);
    CHECK(test_same_file(PAIRS, OTHER));
    CHECK(run(LENS "%s pairs %s --count 60 --seed 4294967295 >" OTHER, model, task) == 0);
    CHECK(!test_same_file(PAIRS, OTHER));
    CHECK(run("sort -u " PAIRS " | wc -l | grep -qx 60") == 0);
    RUNS(LENS "%s ablate -q --pairs " PAIRS " --each " EACH, model);
    CHECK(run("cut -d, -f1 " EACH " | sort -u | wc -l | grep -qx 60") == 0);
    CHECK(run(LENS "%s pairs %s --count 9 --template 1 >" PAIRS, model, task) == 0);
    RUNS(LENS "%s patch hook_mlp_out --pairs " PAIRS, model);
}

TEST(task_pairs)
{
    check_task(MODEL, "included", "ioi");
    check_task(MODEL, "included", "pronouns");
    check_task(MODEL, "included", "agreement");
    CHECK(works(LENS MODEL "pairs ioi") && occurrences(out, "\n") == 100);
    same(LENS MODEL "pairs ioi", LENS "pairs " MODEL "ioi --seed 0 --count 100 --threads 1");
    refuses(2, "pairs needs a task: the tasks are ioi, greater-than, pronouns", LENS MODEL "pairs");
    refuses(2, "there is no task iou: the tasks are ioi, greater-than", LENS MODEL "pairs iou");
    refuses(2, "reads no text: leave out \"Once\"", LENS MODEL "pairs ioi Once");
    refuses(2, "from 1 to 100000", LENS MODEL "pairs ioi --count 0");
    refuses(1, "ioi has the templates 0 to 5", LENS MODEL "pairs ioi --template 6");
    refuses(2, "--ids means nothing to pairs", LENS MODEL "pairs ioi --ids 1");
    refuses(1, "of its 679 years in the model's vocabulary; there are 0 of two tokens",
            LENS MODEL "pairs greater-than");
    refuses(1, "of its 48 countries in the model's vocabulary; there are 0 of one token a word",
            LENS MODEL "pairs capitals");
    refuses(1, "only 360 different pairs were found",
            LENS MODEL "pairs agreement --count 1000 --seed 1");
    CHECK(run(TEST_BUILD "/attn-convert --quiet tests/golden/plain " TMP "plain.attn") == 0);
    refuses(1, "plain.attn has no tokenizer", LENS TMP "plain.attn pairs ioi");
}

TEST(task_pairs_of_gpt2)
{
    static const char *const all[] = {"ioi", "greater-than", "pronouns", "agreement", "capitals"};
    const char *path = test_data_path("gpt2-tokenizer");
    if (!path) {
        test_skip("GPT-2's vocabulary is not here (gpt2-tokenizer in $ATTN_TEST_DATA)");
        return;
    }
    if (make_model(path, TMP "wide.attn"))
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            check_task(TMP "wide.attn", "gpt2", all[i]);
}

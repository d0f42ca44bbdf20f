/* Texts that a person can edit: a byte order mark before any of them, a zero byte in the texts of JSON, and
 * files of scores as large as those of GPT-2's largest sizes. */
#define ATTN_UNSTABLE
#include "tools/common/edge_scores.h"
#include "tools/write/writer.h"
#include "tests/support/converting.h"

SUITE_WITH(NULL, forget);

#define TMP       TEST_TMP
#define MODEL     TEST_BUILD "/tiny-stories.attn "
#define BIN(name) TEST_BUILD "/" name " "
#define EDGES     BIN("lens") MODEL "edges Tom Lily --token ' was' --against ' a' -q "
#define TWO_LINES "{\"text\": \"Once\"}\\n{\"text\": \"upon\"}\\n"
#define ONE_PAIR  "{\"clean\": \"Tom\", \"corrupted\": \"Lily\", \"token\": \" was\"}\\n"

/* The name of a file, the command that writes it as $F, and the command that reads $F. */
static const char *const readers[][3] = {
    {"a receipt", BIN("gpt2") MODEL "Once -n 3 -q --receipt $F", BIN("attn-verify") MODEL "<$F $F"},
    {"a circuit", EDGES "-o $F", EDGES "--curve --steps 2 --json --circuit $F"},
    {"pairs", "printf '" ONE_PAIR "' >$F", BIN("lens") MODEL "patch --json --pairs $F"},
    {"a pattern", "echo 1 0 0.5 0.5 >$F",
     BIN("lens") MODEL "heads --ids '1 2' --json --pattern $F --heads 0.1"},
    {"a prompt", "echo Once >$F", BIN("gpt2") MODEL "-f $F -n 3 -q"},
    {"prompts", "echo Once >$F", BIN("gpt2") MODEL "-i -n 3 -q <$F"},
    {"requests", "printf '" TWO_LINES "' >$F", BIN("score") MODEL "-q $F"},
    {"lines", "printf 'Once\\nupon\\n' >$F", BIN("score") MODEL "-q --lines $F"},
    {"lines to record", "printf '" TWO_LINES "' >$F",
     "rm -rf " TMP "rec; mkdir " TMP "rec; " BIN("lens") MODEL
     "record --lines $F -q -o " TMP "rec hook_embed >&2; cat " TMP "rec/*.safetensors"},
    {"a text", "echo Once upon a time >$F", BIN("surprisal") MODEL "$F -q"},
    {"a table", "printf 'text,item\\nOnce upon,1\\n' >$F",
     BIN("surprisal") MODEL "$F -q --column text"},
    {"a text to measure", "echo Once upon a time >$F",
     BIN("perplexity") MODEL "$F --json | sed 's/.seconds.*//'"},
    {"a text to encode", "echo Once upon a time >$F", BIN("attn-tokenize") MODEL "<$F"},
    {"a saved text", "printf 'Once\\n/save! %s\\n' $F | " BIN("gpt2") MODEL "--repl -n 2 >&2",
     "printf '/load %s\\n/show\\n' $F | " BIN("gpt2") MODEL "--repl"}};

/* The files of checkpoints. */
static const char *const parts[][2] = {{STORIES, "config.json"},
                                       {STORIES, "vocab.json"},
                                       {STORIES, "merges.txt"},
                                       {STORIES, "README.md"},
                                       {FIXTURES "sharded", "tokenizer.json"},
                                       {FIXTURES "sharded", "model.safetensors.index.json"},
                                       {"tests/fixtures/transformerlens/full", "config.json"}};

#define MARKED(from, to) "{ printf '\\357\\273\\277'; cat " from "; } >" to

TEST(byte_order_marks)
{
    char *want;
    size_t n;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const char *const *r = readers[i];
        CHECKF(run("F=" TMP "plain.json; rm -f $F; %s", r[1]) == 0, "%s: %s", r[0], err);
        CHECK(run("cp " TMP "plain.json " TMP "kept && " MARKED(TMP "kept", TMP "marked")) == 0);
        CHECKF(run("F=" TMP "plain.json; %s", r[2]) == 0 && out_size > 0, "%s: %s", r[0], err);
        want = out;
        n = out_size;
        out = NULL;
        CHECKF(run("mv " TMP "marked " TMP "plain.json; F=" TMP "plain.json; %s", r[2]) == 0 &&
                   out_size == n && memcmp(out, want, n) == 0,
               "%s: \"%.80s\", not \"%.80s\" (%s)", r[0], out, want, err);
        free(want);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *extra = strstr(parts[i][0], "lens") ? " --no-tokenizer" : "";
        const char *const dir = test_text("%s", copied(parts[i][0]));
        CHECK(run(BIN("attn-convert") "%s " TMP "a.attn -q%s", dir, extra) == 0);
        CHECK(run("cd %s && " MARKED("%s", "marked") " && mv marked %s", dir, parts[i][1],
                  parts[i][1]) == 0);
        CHECKF(run(BIN("attn-convert") "%s " TMP "b.attn -q%s && cmp " TMP "a.attn " TMP "b.attn",
                   dir, extra) == 0,
               "%s in %s: %s%s", parts[i][1], parts[i][0], out, err);
    }
    CHECK(run("printf '\\377\\376{\\000' >" TMP "wide.json") == 0);
    refuses(1, "wide.json is UTF-16, where UTF-8 is needed",
            EDGES "--curve --circuit " TMP "wide.json");
}

/* Where a text would end at a zero byte it is refused; where it does not, it keeps its token. */
TEST(zero_bytes)
{
    static const char *const edits[][3] = {
        {"s/Tom/T\\\\u0000m/", ONE_PAIR, "a text has a zero byte, \\u0000"},
        {"s/Lily/\\\\u0000/", ONE_PAIR, "a text has a zero byte, \\u0000"},
        {"s/ was/ was\\\\u0000/", ONE_PAIR, "a text has a zero byte, \\u0000"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        CHECK(run("printf '%s' | sed '%s' >" TMP "zero.json", edits[i][1], edits[i][0]) == 0);
        refuses(1, edits[i][2], BIN("lens") MODEL "patch --pairs " TMP "zero.json");
    }
    CHECK(run(EDGES "-o " TMP "zero.json") == 0 &&
          run("sed -i.old 's/->m0\":/->m0\\\\u0000x\":/' " TMP "zero.json") == 0);
    refuses(1, "the model has no edge", EDGES "--curve --circuit " TMP "zero.json");
    CHECK(run("echo '{\"task\": \"embed\", \"text\": \"Once\", \"activation\": "
              "\"blocks.0.hook_resid_pre\\u0000\"}' | " BIN("score") MODEL "-q; true") == 0);
    CHECKF(out && strstr(out, "activation: the name has a zero byte"), "%s", out);
    CHECK(run("printf '%%s' '{\"text\": \"a\\u0000b\", \"task\": \"tokens\"}' | " BIN("score") MODEL
              "-q") == 0);
    CHECKF(out && strstr(out, "\"ids\": [64, 188, 65]"), "%s", out);
    CHECK(run("printf 'Once\\n/save! " TMP "zero.json\\n' | " BIN("gpt2") MODEL
              "--repl -n 1 --stop z; sed -i.old 's/\"stop\": \\[\"z\"/\"stop\": "
              "[\"z\\\\u0000\"/' " TMP "zero.json; grep -c u0000 " TMP "zero.json >&2") == 0);
    CHECK(run("printf '/load " TMP "zero.json\\n' | " BIN("gpt2") MODEL "--repl; true") == 0);
    CHECKF(err && strstr(err, "is not a text that /save wrote"), "%s", err);
}

/* A model of that many layers and heads, each of width 1, whose numbers are zero. */
static attn_model *shaped(attn_ctx *ctx, uint32_t n_layer, uint32_t n_head)
{
    static const struct {
        const char *name;
        int in, out; /* 0: d_model, -1: none, else its multiple or 1 */
    } layer[] = {{"ln1.w", -1, 0},      {"ln1.b", -1, 0},    {"attn.W_QKV", 0, 3},
                 {"attn.b_QKV", -1, 3}, {"attn.W_O", 0, 0},  {"attn.b_O", -1, 0},
                 {"ln2.w", -1, 0},      {"ln2.b", -1, 0},    {"mlp.W_in", 0, 1},
                 {"mlp.b_in", -1, 1},   {"mlp.W_out", 1, 0}, {"mlp.b_out", -1, 0}};
    static const char *const others[] = {"embed.W_E", "pos_embed.W_pos", "ln_final.w",
                                         "ln_final.b"};
    attn_model *model = NULL;
    lens_writer *w = NULL;
    size_t k;
    char name[64];
    attn_config c = {.n_vocab = 2, .n_ctx = 2};
    c.d_model = c.n_head = n_head;
    c.n_layer = n_layer;
    c.d_mlp = 1;
    c.tied = 1;
    c.ln_eps = 1e-5f;
    OK(ctx, lens_writer_new(ctx, &w, test_tmp("shaped.attn"), &c, NULL, 0));
    for (size_t i = 0; i < 4 + 12 * (size_t)n_layer && !ctx->status; i++) {
        attn_tensor x = ATTN_ZERO;
        const size_t at = i < 2 ? i : i - 12 * (size_t)n_layer;
        const int is_layer = i >= 2 && i < 2 + 12 * (size_t)n_layer;
        if (is_layer) {
            k = (i - 2) % 12;
            const size_t n = layer[k].out == 3 ? 3 * (size_t)n_head : layer[k].out ? 1u : n_head;
            snprintf(name, sizeof name, "blocks.%zu.%s", (i - 2) / 12, layer[k].name);
            OK(ctx, attn_zeros(ctx, &x, ATTN_F32,
                               layer[k].in < 0 ? attn_shape1(n)
                                               : attn_shape2(layer[k].in ? 1u : n_head, n)));
        } else {
            snprintf(name, sizeof name, "%s", others[at]);
            OK(ctx, attn_zeros(ctx, &x, ATTN_F32,
                               at < 2 ? attn_shape2(2, n_head) : attn_shape1(n_head)));
        }
        OK(ctx, lens_writer_add(ctx, w, name, ATTN_F32, x));
        attn_tensor_free(ctx, &x);
    }
    OK(ctx, lens_writer_end(ctx, w));
    lens_writer_free(w);
    OK(ctx, attn_model_open(ctx, &model, test_tmp("shaped.attn"), NULL));
    return model;
}

/* The scores of all edges of gpt2-large (of gpt2-xl with ATTN_TEST_FULL) as `lens edges -o` writes them. */
TEST(scores_of_large_models)
{
    const int full = getenv("ATTN_TEST_FULL") != NULL;
    attn_ctx ctx = ATTN_ZERO;
    arena memory = {NULL};
    attn_tensor scores = ATTN_ZERO;
    attn_model *model = shaped(&ctx, full ? 48 : 36, full ? 25 : 20);
    size_t k, n = 0;
    FILE *file;
    if (!model || !CHECK((file = fopen(test_tmp("large.json"), "w")) != NULL))
        return;
    lens_graph g = lens_graph_of(model);
    fputs("{\"cfg\": {}, \"nodes\": {}, \"edges\": {", file);
    for (k = 0; k < g.n_receivers; k++)
        for (size_t i = 0; i < lens_senders_to(&g, k); i++, n++)
            fprintf(file, "%s\n  \"%s->%s\": {\"score\": %zu, \"in_graph\": false}", n ? "," : "",
                    lens_sender_name(&g, i).text, lens_receiver_name(&g, k).text, n % 1000);
    fputs("}}\n", file);
    fclose(file);
    CHECKF(n == g.n_edges && n > 800000, "%zu edges", n);
    OK(&ctx, read_edge_scores(&ctx, &memory, &scores, model, test_tmp("large.json"), 2));
    for (n = 0, k = 0; k < g.n_receivers && !ctx.status; k++)
        for (size_t i = 0; i < lens_senders_to(&g, k); i++, n++)
            if (((float *)scores.data)[i * g.n_receivers + k] - 2 * (float)(n % 1000) != 0)
                CHECKF(n == SIZE_MAX, "edge %zu", n);
    attn_tensor_free(&ctx, &scores);
    arena_free(&memory);
    attn_model_close(model);
    remove(test_tmp("large.json"));
    remove(test_tmp("shaped.attn"));
}

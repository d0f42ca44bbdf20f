/* The edits of lens (tools/lens/program/edits.h), against the same changes made by the library; files that options
 * of lens name. */
#include "tests/support/test.h"
#include "tools/lens/edges.h"
#include "tools/lens/patch.h"
#include "tools/lens/paths.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

static int halve(const attn_activation *a, void *user)
{
    (void)user;
    for (size_t t = 0; t < a->value.shape[0]; t++)
        for (size_t i = 0; i < a->value.shape[2]; i++)
            ((float *)a->value.data)[(ptrdiff_t)t * a->value.stride[0] + 4 * a->value.stride[1] +
                                     (ptrdiff_t)i] *= 0.5f;
    return 0;
}

/* Runs a text in a new session and gives one of its activations. */
static attn_tensor activation_of(story *s, const char *name, const char *text)
{
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_tensor view = {0}, copy = {0};
    attn_record_desc what = {.names = &name, .n_names = 1};
    OK(&s->ctx, attn_session_new(&s->ctx, &session, s->model, NULL));
    OK(&s->ctx, attn_record_new(&s->ctx, &record, session, &what));
    OK(&s->ctx, attn_feed_text(&s->ctx, session, text));
    OK(&s->ctx, attn_record_get(&s->ctx, &view, record, name));
    OK(&s->ctx, attn_copy(&s->ctx, &copy, view));
    attn_record_free(record);
    attn_session_free(session);
    return copy;
}

static attn_tensor mean_row(story *s, attn_tensor x)
{
    attn_tensor mean = {0};
    OK(&s->ctx, attn_mean(&s->ctx, &mean, attn_transpose(x, 0, 1)));
    return attn_transpose(mean, 0, 1);
}

/* The edits of `changes` below, by the library. */
static void change_story(story *s)
{
    static const attn_edit zero = {"blocks.2.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 3, 1, {0}, {0}};
    attn_edit mean = zero, set = zero, add = zero;
    mean.name = "blocks.0.attn.hook_z";
    mean.kind = ATTN_EDIT_MEAN;
    mean.first_head = 1;
    mean.value = attn_select(activation_of(s, mean.name, TEXT), 1, 1);
    set.name = "blocks.1.hook_resid_pre";
    set.kind = ATTN_EDIT_SET;
    set.first_head = set.n_heads = 0;
    set.first = 2;
    set.count = 1;
    set.value = attn_slice(activation_of(s, set.name, "The dog ran"), 0, 2, 1);
    add.name = "blocks.2.hook_resid_pre";
    add.kind = ATTN_EDIT_ADD;
    add.first_head = add.n_heads = 0;
    OK(&s->ctx, attn_sub(&s->ctx, &add.value, mean_row(s, activation_of(s, add.name, "very happy")),
                         mean_row(s, activation_of(s, add.name, "sad"))));
    OK(&s->ctx, attn_scale(&s->ctx, &add.value, add.value, 1.5f));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &zero));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &mean));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &set));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &add));
    OK(&s->ctx, attn_hook(&s->ctx, NULL, s->session, "blocks.3.attn.hook_z", halve, NULL));
}

#define CHANGES                                                                                    \
    "'" TEXT "' --edit 'zero blocks.2.attn.hook_z head 3; mean blocks.0.attn.hook_z head 1' "      \
    "--edit 'set blocks.1.hook_resid_pre at 2' --edit 'add blocks.2.hook_resid_pre by 1.5; "       \
    "scale blocks.3.attn.hook_z by 0.5 head 4' --second 'The dog ran' --towards 'very happy' "     \
    "--away sad --json "

/* What the commands show of a changed model is what the library gives. */
TEST(edits)
{
    static const char *const name = "blocks.1.attn.hook_pattern";
    SCOPED_STORY s = {0};
    attn_token_stats stats[64];
    attn_prediction top[64];
    attn_record_desc what = {&name, 1, 0, 0, NULL, 0, {0}};
    attn_record *record = NULL;
    attn_tensor pattern = {0};
    if (!open_story(&s, TINY, TEXT))
        return;
    change_story(&s);
    OK(&s.ctx, attn_record_new(&s.ctx, &record, s.session, &what));
    OK(&s.ctx, attn_score(&s.ctx, stats, &(attn_top){top, 1}, s.session, s.tokens, s.n));
    OK(&s.ctx, attn_record_get(&s.ctx, &pattern, record, name));
    const json_value *all = parse(LENS MODEL "loss " CHANGES);
    for (size_t t = 1; t < s.n; t++)
        is_float(cell(all, "tokens", t, "loss"), stats[t - 1].nll, "a loss");
    all = parse(LENS MODEL "logit-lens --top 1 " CHANGES);
    for (size_t t = 0; t < s.n; t++)
        is_float(cell(all, "top", 4 * s.n + t, "logit"), top[t].logit, "the last guess");
    all = parse(LENS MODEL "patterns --layer 1 --head 5 " CHANGES);
    for (size_t t = 0; t < s.n; t++)
        is_float(cell(all, "patterns", (s.n - 1) * s.n + t, "weight"),
                 attn_get2(attn_select(pattern, 0, 5), s.n - 1, t), "a weight");
    all = parse(LENS MODEL "attribute " CHANGES);
    is_float(fact(all, "logit"), top[s.n - 1].logit, "the logit");
    CHECK(fabs(number(fact(all, "sum")) - (double)top[s.n - 1].logit) < 1e-4);
    /* After an edit of a head the parts still sum to the logit, so the part "edits" is zero. */
    all = parse(LENS MODEL "attribute '" TEXT "' --edit 'zero blocks.2.attn.hook_z head 3' --json");
    CHECK(member(all, "terms")->size == 33 && json_is(cell(all, "terms", 32, "part"), "edits"));
    CHECK(fabs(number(cell(all, "terms", 32, "contribution"))) < 1e-4);
    attn_record_free(record);
    refuses(2, "does not begin with zero, set, mean, add or scale",
            LENS MODEL "Once --edit 'off blocks.0.attn.hook_z'");
    refuses(2, "needs \"by F\"", LENS MODEL "Once --edit 'scale blocks.0.attn.hook_z'");
    refuses(2, "this needs --second TEXT", LENS MODEL "Once --edit 'set blocks.0.attn.hook_z'");
    refuses(2, "\"hed 3\" where \"head H\"", LENS MODEL "Once --edit 'zero hook_embed hed 3'");
    refuses(1, "there is no head 6", LENS MODEL "Once --edit 'zero blocks.0.attn.hook_z head 6'");
    refuses(1, "blocks.9", LENS MODEL "Once --edit 'zero blocks.9.attn.hook_z'");
    refuses(2, "--edit means nothing to heads", LENS MODEL "heads Once --edit 'zero hook_embed'");
}

/* --token ' was' --against ' a' */
static const lens_metric asked = {.kind = LENS_METRIC_LOGIT_DIFF, .token = 286, .against = 258};

/* Patches and paths in a changed model, of every kind that the command has, by the library. */
TEST(patches_of_a_changed_model)
{
#define TWO_TEXTS                                                                                  \
    "'Tom was a boy. He' 'Tom was a girl. He' --token ' was' --against ' a' --json "               \
    "--edit 'zero blocks.1.attn.hook_z head 3' "
    static const char *const kinds[] = {"positions", "heads", "position-heads", "sources",
                                        "source-heads"};
    static const char *const tables[] = {"positions", "heads", "position_heads", "sources",
                                         "source_heads"};
    const lens_receiver readers[] = {{2, "hook_q_input", 1}, {3, "hook_mlp_in", 0}};
    attn_edit edit = {.name = "blocks.1.attn.hook_z", .first_head = 3, .n_heads = 1};
    lens_pair pair = {.metric = asked};
    lens_patch_desc d = {
        .pairs = &pair, .n_pairs = 1, .name = "attn.hook_pattern", .edits = &edit, .n_edits = 1};
    lens_sender from = {LENS_SENDER_HEAD, 1, 4};
    lens_paths_desc paths = {.pairs = &pair,
                             .n_pairs = 1,
                             .senders = &from,
                             .n_senders = 1,
                             .receivers = readers,
                             .n_receivers = 2,
                             .mlps = LENS_MLPS_THROUGH,
                             .edits = &edit,
                             .n_edits = 1};
    attn_tensor value = {0};
    lens_baseline whole = {0, 0};
    const json_value *all;
    SCOPED_STORY s = {0}, other = {0};
    if (!open_pair(&s, &other, &pair))
        return;
    for (d.kind = LENS_PATCH_POSITIONS; d.kind <= LENS_PATCH_SOURCE_HEADS;
         d.kind = (lens_patch_kind)(d.kind + 1)) {
        const int by_layer =
            d.kind == LENS_PATCH_POSITION_HEADS || d.kind == LENS_PATCH_SOURCE_HEADS;
        attn_tensor want = {0};
        all = parse(
            test_text(LENS MODEL "patch " TWO_TEXTS "attn.hook_pattern --by %s", kinds[d.kind]));
        OK(&s.ctx, lens_patch(&s.ctx, &want, &whole, s.model, &d));
        is_float(fact(all, "clean"), whole.clean, "the clean value");
        CHECK(all && member(all, tables[d.kind])->size == attn_count(want));
        for (size_t i = 0; i < want.shape[1]; i++)
            for (size_t j = 0; j < want.shape[2]; j++)
                is_float(cell(all, tables[d.kind],
                              by_layer ? (2 * want.shape[2] + j) * want.shape[1] + i
                                       : 2 * want.shape[1] + i,
                              "answer"),
                         by_layer ? attn_get3(want, 2, i, j) : attn_get2(want, 2, i), "a patch");
    }
    OK(&s.ctx, lens_patch_paths(&s.ctx, &value, NULL, s.model, &paths));
    all = parse(LENS MODEL "path " TWO_TEXTS
                           "--mlps through --to blocks.2.hook_q_input.1,blocks.3.hook_mlp_in");
    CHECK(all && member(all, "paths")->size == 4 * 7);
    is_float(cell(all, "paths", 7 + 4, "answer"), attn_get1(value, 0), "a path");
    refuses(2, "--estimate is of whole activations: leave out --by",
            LENS MODEL "patch a b --estimate --by heads");
    refuses(1, "has no keys", LENS MODEL "patch " TWO_TEXTS "attn.hook_z --by sources");
    refuses(2, "expected a receiver", LENS MODEL "path a b --to blocks.1.hook_mlp");
}

/* Gradients, estimates and edges in a changed model, by the library. */
TEST(gradients_of_a_changed_model)
{
#define SCALED                                                                                     \
    "--token ' was' --against ' a' --edit 'zero blocks.1.attn.hook_z head 3; "                     \
    "scale blocks.0.hook_mlp_out by 0.5 at 2' "
    static const float half = 0.5f;
    attn_edit edits[2] = {
        {.name = "blocks.1.attn.hook_z", .first_head = 3, .n_heads = 1},
        {.name = "blocks.0.hook_mlp_out", .kind = ATTN_EDIT_SCALE, .first = 2, .count = 1}};
    lens_pair pair = {.metric = asked};
    lens_backward b = ATTN_ZERO;
    attn_record *record = NULL;
    attn_tensor change = {0}, scores = {0};
    lens_edge *edges;
    float value = 0;
    SCOPED_STORY s = {0}, other = {0};
    if (!open_pair(&s, &other, &pair))
        return;
    edits[1].value = attn_borrow(&half, ATTN_F32, attn_shape1(1));
    OK(&s.ctx, lens_backward_new(&s.ctx, &b, s.model));
    b.edits = edits;
    b.n_edits = 2;
    lens_gradients_desc what = {.tokens = s.tokens, .n_tokens = s.n, .metric = pair.metric};
    OK(&s.ctx, lens_gradients(&s.ctx, &record, &value, &b, &what));
    CHECK(run(LENS MODEL "gradients 'Tom was a boy. He' hook_embed -q -o " TMP "g.npz " SCALED) ==
          0);
    const char *const line = test_text("metric %.6f; gradients of 1 ", (double)value);
    CHECKF(strncmp(out, line, strlen(line)) == 0, "%s, not %s", out, line);
    OK(&s.ctx, lens_attribution_patch(&s.ctx, &change, &b, &pair, "attn.hook_z"));
    const json_value *all =
        parse(LENS MODEL "patch 'Tom was a boy. He' 'Tom was a girl. He' attn.hook_z --json "
                         "--estimate " SCALED);
    for (size_t i = 0; i < 6; i++)
        CHECK(fabs(number(cell(all, "heads", 2 * 6 + i, "answer")) -
                   number(fact(all, "corrupted")) - (double)attn_get2(change, 2, i)) < 1e-5);
    OK(&s.ctx, lens_edge_scores(&s.ctx, &scores, &b, &pair, 1, 1));
    all =
        parse(LENS MODEL "edges 'Tom was a boy. He' 'Tom was a girl. He' --json --edges 3 " SCALED);
    edges = (lens_edge *)pool_new(lens_graph_of(s.model).n_edges * sizeof *edges);
    OK(&s.ctx, lens_sort_edges(&s.ctx, edges, s.model, scores));
    for (size_t i = 0; i < 3; i++)
        is_float(cell(all, "edges", i, "score"), edges[i].score, "a score");
    attn_record_free(record);
    lens_backward_free(&s.ctx, &b);
    refuses(1, "leaves no sum",
            LENS MODEL "edges Tom Lily --token ' a' --edit 'zero blocks.1.hook_resid_mid'");
}

/* Means over the pairs of a file, by the library; a text may be ids, a token an id. */
TEST(pairs_in_files)
{
    static const char lines[] =
        "{\"clean\": \"Tom was a boy. He\", \"corrupted\": \"Tom was a girl. He\", "
        "\"token\": \" was\", \"against\": 258}\n\n"
        "{\"clean\": [506, 511, 258, 433, 265, 338], \"corrupted\": [506, 511, 258, 414, 265, "
        "286]}";
    static const int32_t ids[2][6] = {{506, 511, 258, 433, 265, 338},
                                      {506, 511, 258, 414, 265, 286}};
    lens_pair pairs[2] = {{.metric = asked},
                          {.n_tokens = 6, .metric = {.kind = LENS_METRIC_LOGIT, .token = 286}}};
    lens_patch_desc d = {.pairs = pairs, .n_pairs = 2, .name = "attn.hook_z"};
    lens_baseline whole = {0, 0};
    attn_tensor want = {0}, weights = {0}, scores = {0};
    const lens_sender from = {LENS_SENDER_MLP, 1, 0};
    const lens_receiver to = {4, "hook_resid_pre", 0};
    lens_paths_desc paths = {.pairs = pairs,
                             .n_pairs = 2,
                             .senders = &from,
                             .n_senders = 1,
                             .receivers = &to,
                             .n_receivers = 1};
    attn_tensor path = {0};
    lens_backward b = ATTN_ZERO;
    const json_value *all;
    SCOPED_STORY s = {0}, other = {0};
    if (!open_pair(&s, &other, &pairs[0]))
        return;
    pairs[1].clean = ids[0];
    pairs[1].corrupted = ids[1];
    CHECK(s.n == 6);
    test_write(TMP "pairs.jsonl", lines, sizeof lines - 1);
#define PAIRS " --pairs " TMP "pairs.jsonl --token ' was' --json "
    d.kind = LENS_PATCH_HEADS;
    OK(&s.ctx, lens_patch(&s.ctx, &want, &whole, s.model, &d));
    all = parse(LENS MODEL "patch attn.hook_z" PAIRS);
    is_float(fact(all, "clean"), whole.clean, "the mean of the clean texts");
    CHECK(number(fact(all, "n_pairs")) == 2);
    for (size_t i = 0; i < 24; i++)
        is_float(cell(all, "heads", i, "answer"), attn_get2(want, i / 6, i % 6), "a mean");
    d.name = "attn.hook_pattern";
    d.kind = LENS_PATCH_WEIGHTS;
    OK(&s.ctx, lens_patch(&s.ctx, &weights, NULL, s.model, &d));
    all = parse(LENS MODEL "patch --by weights" PAIRS);
    CHECK(all && member(all, "weights")->size == 24 * 36);
    for (size_t i = 0; i < 36; i++)
        is_float(cell(all, "weights", (2 * 6 + 4) * 36 + i, "answer"),
                 attn_get4(weights, 2, 4, i / 6, i % 6), "a weight");
    OK(&s.ctx, lens_patch_paths(&s.ctx, &path, NULL, s.model, &paths));
    all = parse(LENS MODEL "path --from 1.mlp" PAIRS);
    is_float(cell(all, "paths", 0, "answer"), attn_get1(path, 0), "a path");
    OK(&s.ctx, lens_backward_new(&s.ctx, &b, s.model));
    OK(&s.ctx, lens_edge_scores(&s.ctx, &scores, &b, pairs, 2, 1));
    all = parse(LENS MODEL "edges --edges 1" PAIRS);
    for (size_t i = 0; i < attn_count(scores); i++)
        CHECK(fabs((double)((const float *)scores.data)[i]) <=
              fabs(number(cell(all, "edges", 0, "score"))) + 1e-6);
    lens_backward_free(&s.ctx, &b);
    refuses(2, "--pairs has the texts", LENS MODEL "patch --ids '1 2' --pairs x");
    refuses(1, "no \"token\"", LENS MODEL "patch --pairs " TMP "pairs.jsonl");
    test_write(TMP "pairs.jsonl", "{\"clean\": [1, 2]}", 17);
    refuses(1, "line 1: expected \"corrupted\"", LENS MODEL "patch --pairs " TMP "pairs.jsonl");
    test_write(TMP "pairs.jsonl", "\n{\"clean\": [1, 2],}", 19);
    refuses(1, "malformed JSON at line 2", LENS MODEL "patch --pairs " TMP "pairs.jsonl");
}

/* A file that is not there, or of another kind: the message ends with what its option takes. */
#define TWO "'Tom was a boy. He' 'Tom was a girl. He' "
TEST(files_of_options)
{
    static const char *const files[] = {"nofile", "README.md", "tests", MODEL,
                                        "tests/fixtures/convert/tiny.gguf"};
    static const struct {
        const char *command, *option, *takes;
    } options[] = {{"heads Once", "pattern FILE", "a number for each query and key)"},
                   {"logit-lens Once", "tuned FILE", "a .safetensors file"},
                   {"steer Once", "vector FILE", "llama.cpp's FILE.gguf"},
                   {"patch", "pairs FILE", "{\"clean\": TEXT,"},
                   {"edges " TWO "--curve", "circuit FILE", "the scores of FILE"},
                   {"edges " TWO "--exact --resume", "state FILE", "what is done in FILE"},
                   {"record hook_embed -o " TMP "of_options", "lines PATH", "JSON lines"}};
    char command[400];
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
            const int size = (int)strcspn(options[i].option, "FP");
            if (strcmp(files[k], "tests") == 0 && strstr(options[i].option, "lines"))
                continue; /* a folder of texts */
            snprintf(command, sizeof command,
                     "rm -rf " TMP "of_options; mkdir " TMP "of_options; " LENS MODEL "%s --%.*s%s",
                     options[i].command, size, options[i].option, files[k]);
            refuses(1, test_text("(--%s: ", options[i].option), command);
            CHECKF(strstr(err, options[i].takes), "%s: %s", command, err);
        }
}

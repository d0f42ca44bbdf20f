/* lens graph, tried as a person uses it: the graph in JSON adds up, and its edges are numpy's in float64
 * (fixtures/graph, from make_graph_fixtures.py). */
#define FIXTURE_FILE "tests/fixtures/graph/graphs.bin"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

#define GRAPHS  "tests/fixtures/graph/"
#define MODEL_G TMP "graph.attn "
#define COMMAND LENS MODEL_G "graph -q "
#define DIR_OF  " --transcoders "
#define BAD     TMP "bad-transcoders"

static int make_model(void)
{
    return works(TEST_BUILD "/attn-convert -q --no-tokenizer " GRAPHS "model " TMP "graph.attn");
}

/* The ids of a case, as an option. */
static const char *ids_of(const char *name)
{
    static char list[128];
    const attn_tensor ids = fixture_tensor("%s.ids", name);
    size_t at = (size_t)sprintf(list, "--ids '");
    for (size_t i = 0; i < attn_count(ids); i++)
        at += (size_t)sprintf(list + at, "%d ", (int)((const int32_t *)ids.data)[i]);
    sprintf(list + at, "'");
    return list;
}

static const json_value *graph_of(const char *name, const char *more)
{
    const char *const command =
        test_text(COMMAND "%s" DIR_OF GRAPHS "%s --json %s", ids_of(name), name, more);
    return parse(command);
}

static int is_text(const json_value *a, const json_value *b)
{
    return a && b && a->kind == JSON_STRING && a->size == b->size &&
           memcmp(a->text, b->text, a->size) == 0;
}

/* Every node's constant and the weights into it add up to its pre_activation; each edge is the oracle's. */
static void check_graph(const char *name)
{
    const attn_tensor weights = fixture_tensor("%s.weights", name);
    const json_value *const all = graph_of(name, "");
    const json_value *const nodes = member(all, "nodes"), *const edges = member(all, "edges");
    size_t from, row = 0, n = 0;
    double largest = 0;
    if (!CHECK(nodes && edges && nodes->size == fixture_tensor("%s.stay", name).shape[0]))
        return;
    for (size_t i = 0; i < attn_count(weights); i++)
        largest = fmax(largest, fabs((double)((const float *)weights.data)[i]));
    for (size_t i = 0; i < nodes->size; i++) {
        const json_value *const node = item(nodes, i), *const pre = member(node, "pre_activation");
        if (!pre || pre->kind == JSON_NULL) {
            CHECK(json_is(member(node, "kind"), "embedding") ||
                  json_is(member(node, "kind"), "error"));
            continue;
        }
        double sum = number(member(node, "constant"));
        for (size_t e = 0; e < edges->size; e++) {
            const json_value *const edge = item(edges, e);
            if (!is_text(member(edge, "to"), member(node, "id")))
                continue;
            for (from = 0; !is_text(member(edge, "from"), member(item(nodes, from), "id")); from++)
                ;
            sum += number(member(edge, "weight"));
            CHECK(from < i && fabs(number(member(edge, "weight")) -
                                   (double)attn_get2(weights, row, from)) <= 1e-5 * largest);
            n++;
        }
        CHECKF(fabs(sum - number(pre)) <= number(fact(all, "off")) + 1e-6,
               "%s, node %d: %g, not %g", name, (int)i, sum, number(pre));
        row++;
    }
    CHECK(row == weights.shape[0] && n == edges->size && number(fact(all, "kept")) == 1 &&
          number(fact(all, "off_share")) < 1e-6);
}

TEST(graphs_add_up)
{
    if (!make_model())
        return;
    check_graph("missing");
    check_graph("first");
    check_graph("tracer");
    /* a bias of the unembedding, which folding makes: its mean is not the logit's */
    CHECK(works(LENS MODEL_G "process -q --no-center-unembed -o " TMP "folded.attn"));
    const json_value *const all =
        parse(LENS TMP "folded.attn graph -q --ids '3 17' --json" DIR_OF GRAPHS "whole");
    CHECK(number(fact(all, "off")) < 1e-4);
}

/* --pruned prints the nodes and edges that stay, --keep the strongest edges. */
TEST(smaller_graphs)
{
    size_t n = 0;
    const attn_tensor stay = fixture_tensor("whole.stay");
    if (!make_model())
        return;
    const json_value *all = graph_of("whole", "--pruned");
    for (size_t i = 0; i < attn_count(stay); i++)
        n += (size_t)((const int32_t *)stay.data)[i];
    CHECK(member(all, "nodes") && member(all, "nodes")->size == n);
    CHECK(member(all, "edges") &&
          member(all, "edges")->size ==
              (size_t)((const int32_t *)fixture_tensor("whole.n_edges").data)[0]);
    CHECK(number(member(item(member(all, "nodes"), 0), "influence")) > 0);
    all = graph_of("whole", "--pruned --node-threshold 1 --edge-threshold 1");
    CHECK(member(all, "nodes") && member(all, "nodes")->size > n);
    all = graph_of("whole", "--pruned --edge-threshold 0.5");
    CHECK(member(all, "edges") &&
          member(all, "edges")->size <
              (size_t)((const int32_t *)fixture_tensor("whole.n_edges").data)[0]);
    all = graph_of("whole", "");
    size_t whole = member(all, "edges") ? member(all, "edges")->size : 0;
    all = graph_of("whole", "--keep 3");
    CHECK(member(all, "edges") && member(all, "edges")->size < whole / 5 &&
          number(fact(all, "kept")) < 1 && number(fact(all, "kept")) > 0.1);
}

/* --check measures the features that stay, and no others. */
TEST(claims_checked)
{
    const attn_tensor claimed = fixture_tensor("whole.claimed");
    const attn_tensor measured = fixture_tensor("whole.measured");
    size_t n = 0;
    double most = 0;
    if (!make_model())
        return;
    for (size_t i = 0; i < attn_count(claimed); i++)
        most = fmax(most, fabs((double)attn_get1(claimed, i)));
    const json_value *all = graph_of("whole", "--check");
    const json_value *nodes = member(all, "nodes");
    CHECK(nodes && nodes->size == attn_count(claimed) &&
          fabs(number(fact(all, "rank_correlation"))) < 1);
    for (size_t i = 0; nodes && i < nodes->size; i++) {
        const json_value *const node = item(nodes, i), *const m = member(node, "measured");
        const int stays = member(node, "stays")->kind == JSON_TRUE;
        CHECK((m->kind != JSON_NULL) == (stays && json_is(member(node, "kind"), "feature")));
        if (m->kind == JSON_NULL)
            continue;
        CHECK(fabs(number(m) - (double)attn_get1(measured, i)) < 2e-6 * most);
        CHECK(fabs(number(member(node, "claimed")) - (double)attn_get1(claimed, i)) < 1e-5 * most);
        n++;
    }
    CHECK(n > 3);
    CHECK(works(test_text(COMMAND "%s" DIR_OF GRAPHS "whole --check --nodes 4", ids_of("whole"))) &&
          strstr(out, "switched off, the 4 worst claims of "));
}

/* --group: features that are off together, by their ids. */
TEST(groups)
{
    const attn_tensor members = fixture_tensor("whole.group");
    const attn_tensor together = fixture_tensor("whole.together");
    char command[512], first[40] = "";
    FILE *file;
    if (!make_model() || !(file = fopen(TMP "groups.json", "w")))
        return;
    fputs("{\"every third\": [", file);
    const json_value *all = graph_of("whole", "");
    for (size_t i = 0; all && i < attn_count(members); i++) {
        const json_value *const id =
            member(item(member(all, "nodes"), (size_t)((const int32_t *)members.data)[i]), "id");
        if (i == 0)
            snprintf(first, sizeof first, "%.*s", (int)id->size, id->text);
        fprintf(file, "%s\"%.*s\"", i ? ", " : "", (int)id->size, id->text);
    }
    fputs("]}", file);
    fclose(file);
    all = graph_of("whole", "--check --group " TMP "groups.json");
    const json_value *group = item(member(all, "groups"), 0);
    CHECK(json_is(member(group, "name"), "every third") &&
          member(group, "nodes")->size == attn_count(members));
    CHECK(fabs(number(member(group, "claimed")) - (double)attn_get1(together, 0)) < 1e-3 &&
          fabs(number(member(group, "measured")) - (double)attn_get1(together, 1)) < 1e-4);
    refuses(2, "give --check too", COMMAND "--ids 3 --group x" DIR_OF GRAPHS "whole");
    CHECK(run("echo '{\"a\": [\"embedding 0\"]}' >" TMP "groups.json") == 0);
    refuses(1, "group a: \"embedding 0\" is no active feature of this text; expected an id",
            COMMAND "--ids '3 17' --check --group " TMP "groups.json" DIR_OF GRAPHS "whole");
    CHECK(run("echo '{\"a\": [\"%s\", \"%s\"]}' >" TMP "groups.json", first, first) == 0);
    snprintf(command, sizeof command,
             COMMAND "%s --check --group " TMP "groups.json" DIR_OF GRAPHS "whole",
             ids_of("whole"));
    refuses(1, "twice", command);
    CHECK(run("echo '{\"a\": 3}' >" TMP "groups.json") == 0);
    refuses(1, "groups.json: group a: expected a list of ids of features",
            COMMAND "--ids '3 17' --check --group " TMP "groups.json" DIR_OF GRAPHS "whole");
    CHECK(run("echo '[]' >" TMP "groups.json") == 0);
    refuses(1, "expected {\"name\"",
            COMMAND "--ids '3 17' --check --group " TMP "groups.json" DIR_OF GRAPHS "whole");
}

/* What --json says of the nodes and edges of a graph, under circuit-tracer's names. */
typedef struct front_node {
    char name[40];
    double feature, influence, activation, position;
    int is_logit, is_target; /* the first logit is */
} front_node;
typedef struct front_link {
    char from[40], to[40];
    double weight;
} front_link;
static front_node front_nodes[256];
static front_link front_links[8192];
static size_t n_front_nodes, n_front_links;

static double number_or_0(const json_value *v)
{
    return v && v->kind == JSON_NUMBER ? number(v) : 0;
}

/* A feature's number is Cantor's of the pair (layer, feature). */
static void take_front_node(front_node *to, const json_value *node, const int32_t *ids)
{
    const int layer = (int)number(member(node, "layer")), t = (int)number(member(node, "position"));
    const int is_logit = json_is(member(node, "kind"), "logit");
    const double feature = number_or_0(member(node, "feature")), sum = layer + feature;
    to->influence = number_or_0(member(node, "influence"));
    to->activation = number_or_0(member(node, "activation"));
    to->position = t;
    to->is_logit = is_logit;
    to->is_target = is_logit && !to[-1].is_logit;
    if (json_is(member(node, "kind"), "embedding"))
        snprintf(to->name, sizeof to->name, "E_%d_%d", (int)ids[t], t);
    else if (json_is(member(node, "kind"), "error"))
        snprintf(to->name, sizeof to->name, "error_%d_%d", layer, t);
    else
        snprintf(to->name, sizeof to->name, "%d_%d_%d", layer + is_logit, (int)feature, t);
    to->feature = json_is(member(node, "kind"), "embedding") ? t
                  : json_is(member(node, "kind"), "error")   ? -1
                  : is_logit                                 ? feature
                                                             : sum * (sum + 1) / 2 + feature;
}

static const front_node *front_node_of(const json_value *nodes, const json_value *id)
{
    for (size_t i = 0; i < n_front_nodes; i++)
        if (is_text(member(item(nodes, i), "id"), id))
            return &front_nodes[i];
    return &front_nodes[0];
}

static void take_front(const char *name)
{
    const int32_t *const ids = (const int32_t *)fixture_tensor("%s.ids", name).data;
    const json_value *const all = graph_of(name, ""), *const nodes = member(all, "nodes"),
                            *const edges = member(all, "edges");
    n_front_nodes = n_front_links = 0;
    if (!CHECK(nodes && edges && nodes->size <= 256 && edges->size <= 8192))
        return;
    for (; n_front_nodes < nodes->size; n_front_nodes++)
        take_front_node(&front_nodes[n_front_nodes], item(nodes, n_front_nodes), ids);
    for (; n_front_links < edges->size; n_front_links++) {
        const json_value *const edge = item(edges, n_front_links);
        front_link *const to = &front_links[n_front_links];
        memcpy(to->from, front_node_of(nodes, member(edge, "from"))->name, sizeof to->from);
        memcpy(to->to, front_node_of(nodes, member(edge, "to"))->name, sizeof to->to);
        to->weight = number(member(edge, "weight"));
    }
}

/* A node's influence is the share of all that it and those with more have together. */
static double share_of(double influence)
{
    double more = 0, all = 0;
    for (size_t i = 0; i < n_front_nodes; i++) {
        all += front_nodes[i].influence;
        more += front_nodes[i].influence >= influence ? front_nodes[i].influence : 0;
    }
    return more / all;
}

static void check_front_node(const json_value *node)
{
    const json_value *const is = member(node, "influence");
    size_t i = 0;
    while (i < n_front_nodes && !json_is(member(node, "node_id"), front_nodes[i].name))
        i++;
    if (!CHECK(i < n_front_nodes))
        return;
    const front_node *const want = &front_nodes[i];
    CHECKF(number(member(node, "feature")) == want->feature, "%s: feature %g", want->name,
           want->feature);
    CHECKF(is->kind == JSON_NULL || fabs(number(is) - share_of(want->influence)) < 1e-6,
           "%s: influence %g, not %g", want->name, number(is), share_of(want->influence));
    CHECKF((member(node, "is_target_logit")->kind == JSON_TRUE) == want->is_target &&
               number_or_0(member(node, "activation")) == want->activation &&
               number(member(node, "ctx_idx")) == want->position,
           "%s: another activation or position, or no target", want->name);
}

static void check_front_link(const json_value *link)
{
    size_t i = 0;
    while (i < n_front_links && (!json_is(member(link, "source"), front_links[i].from) ||
                                 !json_is(member(link, "target"), front_links[i].to)))
        i++;
    CHECKF(i < n_front_links && number(member(link, "weight")) == front_links[i].weight,
           "link %d has another weight, or is none", (int)i);
}

/* -o FILE.json: the form of circuit-tracer's frontend/graph_models.py (compare/truth/check_graph.py opens it with that). */
TEST(front_end)
{
    static const char *const members[] = {
        "node_id",    "feature",         "layer",     "ctx_idx",         "feature_type",
        "token_prob", "is_target_logit", "run_idx",   "reverse_ctx_idx", "jsNodeId",
        "clerp",      "influence",       "activation"};
    const attn_tensor stay = fixture_tensor("whole.stay");
    size_t k, n = 0;
    if (!make_model())
        return;
    CHECK(
        works(test_text(COMMAND "%s" DIR_OF GRAPHS "whole -o " TMP "graph.json", ids_of("whole"))));
    take_front("whole");
    const json_value *all = parse("cat " TMP "graph.json");
    const json_value *nodes = member(all, "nodes");
    const json_value *links = member(all, "links");
    for (size_t i = 0; i < attn_count(stay); i++)
        n += (size_t)((const int32_t *)stay.data)[i];
    if (!CHECK(nodes && links && nodes->size == n &&
               links->size == (size_t)((const int32_t *)fixture_tensor("whole.n_edges").data)[0]))
        return;
    CHECK(member(member(all, "metadata"), "prompt_tokens")->size == 7 &&
          json_is(member(member(all, "qParams"), "linkType"), "both"));
    for (size_t i = 0; i < n; i++) {
        const json_value *const node = item(nodes, i);
        for (k = 0; k < sizeof members / sizeof members[0]; k++)
            CHECKF(member(node, members[k]) != NULL, "node %d has no %s", (int)i, members[k]);
        for (k = 0; k < i; k++)
            CHECK(!is_text(member(node, "node_id"), member(item(nodes, k), "node_id")));
    }
    for (size_t i = 0; i < n; i++)
        check_front_node(item(nodes, i));
    for (size_t i = 0; i < links->size; i++)
        check_front_link(item(links, i));
}

TEST(graphs_as_tables)
{
    const attn_tensor nodes = fixture_tensor("whole.nodes");
    size_t i, n = 0;
    if (!make_model())
        return;
    for (i = 0; i < nodes.shape[0]; i++)
        n += ((const int32_t *)nodes.data)[4 * i] == 1;
    CHECK(
        works(test_text(COMMAND "%s" DIR_OF GRAPHS "whole --nodes 4", ids_of("whole"))) &&
        strstr(out, test_text("%d active features, %d nodes and ", (int)n, (int)nodes.shape[0])) &&
        strstr(out, "the 4 nodes with the largest influence") &&
        strstr(out, "Replacement score 0."));
    CHECK(strstr(out, "predicts worse than the output's mean does. Is it of this model?"));
    CHECK(
        works(test_text(COMMAND "%s" DIR_OF GRAPHS "whole -o " TMP "graph.html", ids_of("whole"))));
    CHECK(run("cat " TMP "graph.html") == 0);
    for (i = n = 0; i < attn_count(fixture_tensor("whole.stay")); i++)
        n += (size_t)((const int32_t *)fixture_tensor("whole.stay").data)[i];
    CHECKF(occurrences(out, "<g class=\"part\"") == n &&
               occurrences(out, "data-weight=") ==
                   (size_t)((const int32_t *)fixture_tensor("whole.n_edges").data)[0] &&
               !strstr(out, "data-measured=") && strstr(out, ">embeddings</text>"),
           "%d nodes in the picture, expected %d", (int)occurrences(out, "<g class=\"part\""),
           (int)n);
    CHECK(works(test_text(COMMAND "%s" DIR_OF GRAPHS "whole --check -o " TMP "graph.svg",
                          ids_of("whole"))) &&
          run("cat " TMP "graph.svg") == 0 && strstr(out, "data-measured=") &&
          strstr(out, "aria-label=\"Attribution graph\"") && !strstr(out, "<script"));
    /* the directory of one transcoder; the size is said before */
    CHECK(run(LENS MODEL_G "graph --ids '3 17'" DIR_OF GRAPHS "whole/layer1") == 0 &&
          strstr(err, " of them active features, and ") &&
          strstr(err, " MB of memory beside the model"));
}

/* Appends the positions of the text at which feature `at` of `nodes` is most active, at most five. */
static size_t list_active(char *to, const char *name, const int32_t *nodes, size_t n, size_t at)
{
    const attn_tensor values = fixture_tensor("%s.values", name);
    const attn_tensor ids = fixture_tensor("%s.ids", name);
    size_t i, target, size = 0, best;
    float last = INFINITY, largest;
    for (size_t k = 0; k < 5; k++, last = largest) {
        largest = 0;
        for (i = target = best = 0; i < n; i++) {
            const int32_t *const node = nodes + 4 * i;
            const float value = node[0] == 1 || node[0] == 3 ? attn_get2(values, target++, 0) : 0;
            if (node[0] == 1 && node[1] == nodes[4 * at + 1] && node[3] == nodes[4 * at + 3] &&
                value < last && value > largest) {
                largest = value;
                best = (size_t)node[2];
            }
        }
        if (largest > 0)
            size += (size_t)sprintf(to + size, "%s%d %d (%.2f)", k ? ", " : "", (int)best,
                                    (int)((const int32_t *)ids.data)[best], (double)largest);
    }
    return size;
}

/* The page in `out` tells of each feature that stays its own tokens; they are numpy's. */
static void check_own(const char *name)
{
    const attn_tensor nodes = fixture_tensor("%s.nodes", name);
    const attn_tensor raised = fixture_tensor("%s.raised", name);
    const int32_t *const stay = (const int32_t *)fixture_tensor("%s.stay", name).data;
    const int32_t *const ids = (const int32_t *)fixture_tensor("%s.ids", name).data;
    size_t feature = 0, n = 0;
    for (size_t i = 0; i < nodes.shape[0]; i++) {
        const int32_t *const node = (const int32_t *)nodes.data + 4 * i;
        char text[400];
        size_t at = (size_t)sprintf(text, "<title>%d.%d.%d %d&#10;raises most at the unembedding:",
                                    (int)node[1], (int)node[2], (int)node[3], (int)ids[node[2]]);
        if (node[0] != 1)
            continue;
        for (size_t k = 0; k < 5; k++)
            at += (size_t)sprintf(text + at, "%s %d", k ? "," : "",
                                  (int)((const int32_t *)raised.data)[5 * feature + k]);
        at += (size_t)sprintf(text + at, "&#10;most active in this text at: ");
        at += list_active(text + at, name, (const int32_t *)nodes.data, nodes.shape[0], i);
        sprintf(text + at, "</title>");
        CHECKF((strstr(out, text) != NULL) == stay[i], "%s is %sin the page", text,
               stay[i] ? "not " : "");
        n += (size_t)stay[i];
        feature++;
    }
    CHECK(n > 1);
}

static void draw_page(const char *model, const char *name)
{
    CHECK(works(test_text(LENS "%s graph -q %s" DIR_OF GRAPHS "%s -o " TMP "own.html && cat " TMP
                               "own.html",
                          model, ids_of(name), name)));
}

/* Whether or not the unembedding has a bias, which a model with processed weights does. */
TEST(own_tokens)
{
    if (!make_model())
        return;
    draw_page(MODEL_G, "whole");
    check_own("whole");
    draw_page(MODEL_G, "first");
    check_own("first");
    CHECK(works(LENS "process " MODEL_G "-o " TMP "processed.attn"));
    draw_page(TMP "processed.attn", "first");
    check_own("first");
}

/* The transcoders of "whole" with one edit of a cfg.json. */
static void refuses_edited(const char *edit, const char *text)
{
    CHECK(run("rm -rf " BAD " && cp -r " GRAPHS "whole " BAD " && chmod -R u+w " BAD
              " && sed -i.old '%s' " BAD "/layer1/cfg.json",
              edit) == 0);
    refuses(1, text, COMMAND "--ids '3 17'" DIR_OF BAD);
}

/* circuit-tracer's files after a command there. */
static void refuses_tracer(const char *command, const char *text)
{
    CHECK(run("rm -rf " BAD " && cp -r " GRAPHS "tracer " BAD " && chmod -R u+w " BAD " && cd " BAD
              " && %s",
              command) == 0);
    refuses(1, text, COMMAND "--ids '3 17'" DIR_OF BAD);
}

/* circuit-tracer's top-k chooses among the values before ReLU: of 14 features in 2 layers at 2 tokens all are active. */
TEST(top_k_of_circuit_tracer)
{
    static const char *const ks[] = {"1", "14"};
    if (!make_model())
        return;
    for (size_t i = 0; i < 2; i++) {
        CHECK(run("rm -rf " BAD " && cp -r " GRAPHS "tracer " BAD " && chmod -R u+w " BAD
                  " && printf 'activation: topk\nk: %s\n' >>" BAD "/config.yaml",
                  ks[i]) == 0 &&
              works(COMMAND "--ids '3 17' --json" DIR_OF BAD));
        CHECKF(strstr(out, i ? "[\"56 active features" : "[\"4 active features"), "%s", out);
    }
}

TEST(transcoders_that_do_not_fit)
{
    if (!make_model())
        return;
    refuses(2, "graph needs transcoders: --transcoders DIR", COMMAND "--ids '3 17'");
    refuses(1, "no-such", COMMAND "--ids '3 17'" DIR_OF TMP "no-such");
    CHECK(run("rm -rf " BAD " && mkdir -p " BAD "/empty") == 0);
    refuses(1, "has no transcoder; expected a directory for each", COMMAND "--ids 3" DIR_OF BAD);
    refuses_edited("s/blocks.1.hook_mlp_out/blocks.9.hook_mlp_out/",
                   "bad-transcoders/layer1: a transcoder predicts blocks.9.hook_mlp_out; expected");
    refuses_edited(
        "s/blocks.1.ln2.hook_normalized.post/blocks.1.hook_resid_pre/",
        "the transcoder of blocks.1.hook_mlp_out reads blocks.1.hook_resid_pre; expected");
    refuses_edited("s/blocks.1/blocks.0/", "a second transcoder predicts blocks.0.hook_mlp_out");
    refuses_edited("s/skip_transcoder/standard/",
                   "an autoencoder of blocks.1.ln2.hook_normalized.post");
    /* a model of another width; the included one */
    refuses(1, "reads 15 numbers and writes 15; the width of this model is 192",
            test_text(LENS MODEL "graph -q Once" DIR_OF GRAPHS "whole"));
    /* cross-layer transcoders; circuit-tracer's files with one mistake */
    refuses_tracer(
        "sed -i.old s/transcoder_set/cross_layer_transcoder/ config.yaml",
        "config.yaml: model_kind is \"cross_layer_transcoder\"; expected transcoder_set");
    refuses_tracer("sed -i.old s/feature_input/input/ config.yaml",
                   "no feature_input_hook; expected");
    refuses_tracer("echo 'activation: topk' >>config.yaml",
                   "activation is \"topk\", k is \"\"; expected relu, jumprelu, or topk with");
    refuses_tracer("mv layer_0.safetensors W_enc_0.safetensors; rm config.yaml",
                   "W_enc_0.safetensors is of a cross-layer transcoder");
    refuses_tracer("mv layer_0.safetensors layer_9.safetensors",
                   "a transcoder predicts blocks.9.hook_mlp_out; expected the output of an MLP");
    refuses_tracer("rm layer*", "has no transcoder; expected a directory for each");
    refuses_tracer("sed -i.old s/b_enc/b_emc/ layer_2.safetensors", "has no tensor b_enc");
    refuses_tracer(
        "sed -i.old 's/\\[14,15\\],\"/[210],  \"/; s/\\[14, 15\\]/[210]   /' layer_2.safetensors",
        "expected matrices W_enc and W_dec [features, width]");
    refuses_tracer(
        "sed -i.old 's/\\[15,15\\],\"/[225],  \"/; s/\\[15, 15\\]/[225]   /' layer_0.safetensors",
        "W_skip is [225] of F32; expected floats of [15, 15], as W_enc says");
    /* a bias that is not a number */
    CHECK(run("rm -rf " BAD " && cp -r " GRAPHS "first " BAD " && chmod -R u+w " BAD
              " && printf '\\000\\000\\300\\177' | dd conv=notrunc bs=1 seek=$(($(wc -c <" BAD
              "/layer1/sae_weights.safetensors) - 4)) of=" BAD
              "/layer1/sae_weights.safetensors 2>" TMP "dd") == 0);
    refuses(1, "not a number (NaN)", COMMAND "--ids '3 17'" DIR_OF BAD);
}

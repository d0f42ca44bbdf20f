/* lens edges --interactions and --shapley. */
#include "tests/support/test.h"
#include "lens_tool.h"
#include <math.h>

SUITE_WITH(NULL, tear_down);

#define OF_BOTH " '" CLEAN "' '" CORRUPTED "' --token ' was' --against ' a' "

/* A picture of all pairs of nodes has the p-values of their list, in which no node stands beside itself. A dot marks each
 * interval that has 0, as that of a node and itself does. */
TEST(p_values_of_a_picture)
{
#define OF_IDS                                                                                     \
    TMP "induction.attn edges --interactions -q --ci --edges 99 --pairs " TMP "ids.jsonl "
    size_t n_with_0 = 7; /* nodes */
    CHECK(works(TEST_BUILD
                "/attn-convert -q --no-tokenizer examples/induction " TMP "induction.attn; "
                "for i in 0 1 2 3 4 5 6 7; do echo \"{\\\"clean\\\": [50, 2$i, 6$i, 33, 50, 2$i], "
                "\\\"corrupted\\\": [50, 2$i, 9$i, 33, 50, 2$i], \\\"token\\\": 6$i, "
                "\\\"against\\\": 9$i}\"; done >" TMP "ids.jsonl"));
    const json_value *const list = member(parse(LENS OF_IDS "--json"), "interactions");
    const json_value *const first = item(list, 0);
    for (size_t i = 0; list && i < list->size; i++)
        if (number(member(item(list, i), "low")) <= 0 && number(member(item(list, i), "high")) >= 0)
            n_with_0 += 2;
    const char *const tip =
        test_text("interaction %.5f&#10;95 %% interval %.4f to %.4f&#10;p %.4f",
                  number(member(first, "interaction")), number(member(first, "low")),
                  number(member(first, "high")), number(member(first, "p")));
    CHECK(number(member(first, "p")) < 0.2 && works(LENS OF_IDS "-o " TMP "joint.svg"));
    EQUAL(occurrences_in(TMP "joint.svg", tip), 2);
    EQUAL(occurrences_in(TMP "joint.svg", ">·<"), n_with_0);
}

/* What two nodes, or a set of them, do together. */
TEST(joint_effects)
{
    double sum = 0;
    size_t n = 0;
    const json_value *all = parse(LENS MODEL "edges" OF_BOTH "--interactions --json -q");
    const json_value *list = member(all, "interactions");
    CHECK(list && list->size == 29 * 28 / 2 && json_is(fact(all, "ablation"), "corrupted"));
    double clean = number(fact(all, "clean"));
    double corrupted = number(fact(all, "corrupted"));
    double largest = fabs(number(member(item(list, 0), "interaction")));
    for (size_t i = 0; list && i < list->size; i++) {
        n += fabs(number(member(item(list, i), "interaction"))) > largest;
        if (json_is(member(item(list, i), "a"), "input") &&
            json_is(member(item(list, i), "b"), "a0.h0")) /* the other text, but for positions */
            CHECK(fabs(number(member(item(list, i), "effect")) - (corrupted - clean)) < 1e-4);
    }
    CHECK(n == 0 && largest > 0.01);
    all = parse(LENS MODEL "edges" OF_BOTH "--shapley m1,L0H2,input --ablation zero --json -q");
    CHECK(json_is(fact(all, "ablation"), "zero"));
    CHECK(all && member(all, "shapley")->size == 3 && member(all, "interactions")->size == 3);
    for (size_t i = 0; i < 3; i++)
        sum += number(cell(all, "shapley", i, "value"));
    CHECK(json_is(cell(all, "shapley", 0, "node"), "input") &&
          json_is(cell(all, "shapley", 2, "node"), "m1"));
    CHECK(json_is(cell(all, "interactions", 1, "a"), "input") &&
          json_is(cell(all, "interactions", 1, "b"), "m1"));
    CHECK(works(LENS MODEL "edges" OF_BOTH "--shapley m1,a0.h2,input --ablation zero -q") &&
          strstr(out, "when they write zeros") && strstr(out, "The values add up to "));
    CHECK(fabs(atof(strstr(out, "add up to ") + 10) - sum) < 1e-3);
    CHECK(works(LENS MODEL "edges" OF_BOTH "--interactions -q --edges 3 --ablation mean") &&
          strstr(out, "the largest 3 of 406 interactions"));
    CHECK(works(LENS MODEL "edges" OF_BOTH "--interactions -q -o " TMP "joint.svg") &&
          occurrences_in(TMP "joint.svg", "a0.h1 and m3") > 0);
    CHECK(works(LENS MODEL "edges" OF_BOTH "--interactions -q -o " TMP "joint.html"));
    refuses(2, "leave out --exact", LENS MODEL "edges" OF_BOTH "--interactions --exact");
    refuses(2, "leave out --steps", LENS MODEL "edges" OF_BOTH "--interactions --steps 2");
    refuses(2, "leave out --shapley", LENS MODEL "edges" OF_BOTH "--interactions --shapley m1");
    refuses(2, "leave out --interactions", LENS MODEL "edges" OF_BOTH "--interactions -o x.json");
    refuses(2, "--ablation is for", LENS MODEL "edges" OF_BOTH "--ablation zero");
    refuses(1, "\"a9.h0\": expected input", LENS MODEL "edges" OF_BOTH "--shapley m1,a9.h0");
    refuses(1, "m1 is named twice", LENS MODEL "edges" OF_BOTH "--shapley m1,m0,m1");
    refuses(1, "at most 20 nodes",
            LENS MODEL "edges" OF_BOTH
                       "--shapley input,a0.h0,a0.h1,a0.h2,a0.h3,a0.h4,a0.h5,m0,a1.h0,a1.h1,a1.h2,"
                       "a1.h3,a1.h4,a1.h5,m1,a2.h0,a2.h1,a2.h2,a2.h3,a2.h4,m3");
}

/* The tables of each command's answers and their columns, as lens COMMAND --help columns prints them:
 *
 *     TABLE: KEY ... | COLUMN ... [COLUMN ...]
 *
 * The columns in brackets are of some tables of the command, and of some settings. Table NAME stands for any name. The
 * suite `waist` compares the list with answers. */
#ifndef LENS_COLUMNS_H
#define LENS_COLUMNS_H

#include <stddef.h>

#define OF_GAP                                                                                     \
    "facts: | clean corrupted gap gap_is_small target_id target against_id against [n_pairs "      \
    "ci_of sign_flips]"
#define SPREAD      " [mean low high p]\n"
#define EACH        "TABLE_each: pair ... | clean corrupted ..."
#define TEXT_TOKENS "tokens: position token_id token"
#define LIKELIEST   "place | guess_id guess logit probability"
#define CHANGED                                                                                    \
    "\nlogits: token_id token | logit_without logit_with probability_without probability_with\n"   \
    "runs: run | loss text\n"                                                                      \
    "continuation: run place | token_id token\n"                                                   \
    "top: run " LIKELIEST
#define ACTIVATIONS                                                                                \
    "activations: name | shape\n"                                                                  \
    "NAME: [position head width query key] | value"

static const char *const lens_columns[][2] = {
    {"tokens", "facts: | n_tokens mean_loss perplexity\n" TEXT_TOKENS " | loss probability rank\n"
               "top: position token_id token " LIKELIEST},
    {"loss", "facts: | n_tokens mean_loss perplexity\n" TEXT_TOKENS " | loss probability rank"},
    {"logit-lens", "streams: layer stream position token_id token | loss probability rank\n"
                   "top: layer stream position token_id token " LIKELIEST},
    {"patterns", "patterns: layer head query key | weight\n" TEXT_TOKENS},
    {"patch", OF_GAP "\npositions: activation layer position token_id token | answer" SPREAD
                     "heads: activation layer head | answer" SPREAD
                     "position_heads: activation layer head position token_id token | answer" SPREAD
                     "sources: activation layer key | answer" SPREAD
                     "source_heads: activation layer head key | answer" SPREAD
                     "weights: activation layer head query key | answer" SPREAD EACH},
    {"path", OF_GAP " receivers\npaths: sender layer head | answer" SPREAD EACH},
    {"edges", OF_GAP
     " [method steps circuit n_kept n_edges ablation]\n"
     "edges: from to | score" SPREAD "nodes: node | score" SPREAD
     "curves: method order n_edges share | faithfulness" SPREAD
     "integrals: method order | cpr cmd [rank_correlation]" SPREAD
     "interactions: a b | interaction [effect effect_mean effect_low effect_high effect_p]" SPREAD
     "shapley: node | value" SPREAD EACH},
    {"attribute", "facts: | logit sum position target_id target [against_id against]\n"
                  "terms: part layer head | contribution"},
    {"decompose", "facts: | target_id target [against_id against]\n"
                  "parts: part position token_id token | size [contribution]\n"
                  "stack: part position width | value"},
    {"ablate", "facts: | [mean_loss logit position target_id target against_id against n_pairs "
               "ci_of sign_flips]\n"
               "heads: layer head | change" SPREAD EACH},
    {"heads", "heads: kind layer head | score"},
    {"circuits", "facts: | layer head\n"
                 "heads: layer head | qk ov copying_ov copying_full\n"
                 "singular_values: circuit [layer head] k | value\n"
                 "eigenvalues: space layer head k | real imaginary\n"
                 "compositions: kind from_layer from_head to_layer to_head | score\n"
                 "directions: circuit k side place | token_id token product"},
    {"qk", "facts: | layer head query key score weight\n"
           "terms: query_part key_part | contribution\n" TEXT_TOKENS},
    {"sae", "facts: | hook hook_out n_features n_tokens active explained\n"
            "features: position token_id token feature | activation" CHANGED},
    {"graph",
     "facts: | off off_share kept replacement completeness n_features n_nodes n_edges "
     "n_nodes_that_stay n_edges_that_stay [rank_correlation]\n"
     "nodes: id | kind layer position feature activation probability pre_activation constant "
     "influence stays [claimed measured]\n"
     "edges: from to | weight stays\n"
     "groups: name | nodes claimed measured\n"
     "layers: layer | explained\n" TEXT_TOKENS},
    {"steer", "facts: | added strength" CHANGED "\n" TEXT_TOKENS},
    {"gradients", "facts: | metric\n" ACTIVATIONS},
    {"pairs", "pairs: pair | clean corrupted token against"},
    {"process", "facts: | file"},
    {"record", ACTIVATIONS},
    {NULL, NULL}};

#endif

#!/usr/bin/env python3
"""Makes tools/reproduce/published.txt from what was printed about GPT-2 small.

    make_published.py REFERENCE TOKENIZER >tools/reproduce/published.txt

Needs the package tokenizers. TOKENIZER is a directory with GPT-2's vocab.json and merges.txt. REFERENCE has

  published/published_plots.json     the traces of the plotly figures in each notebook of TransformerLens (MIT) at a
                                     commit: {"NOTEBOOK@COMMIT": [{"cell", "title", "traces": [{"x", "y", "z"}]}]}
  published/ioi_patching_data.json   five matrices that another notebook compares itself with: {"NAME": [[...]]}
  published_values.json              single figures of other projects' tests, with their sources
  real_gpt2_checks.json              more of them

The procedure of each plot is read from the notebook's code by hand: PROCEDURES below. What single figures of the
notebooks' printed output are is in FIGURES.
"""
import json
import math
import os
import sys

from tokenizers import ByteLevelBPETokenizer

EXPLORATORY = "demos/Exploratory_Analysis_Demo.ipynb@ea3989dd"
ATTRIBUTION = "demos/Attribution_Patching_Demo.ipynb@ea3989dd"
ACTIVATION = "demos/Activation_Patching_in_TL_Demo.ipynb@ea3989dd"
MAIN = "demos/Main_Demo.ipynb@ea3989dd"

# Two printings of the plots, three years apart, differ by at most 4.8e-6 of a plot's largest number.
RELATIVE = "1e-05 of the largest"

# (notebook, cell, n-th plot of the cell): (procedure, what of the traces: y, z, xy)
PROCEDURES = {
    (EXPLORATORY, 41, 0): ("accumulated", "y"),
    (EXPLORATORY, 44, 0): ("sublayers", "y"),
    (EXPLORATORY, 47, 0): ("heads", "z"),
    (EXPLORATORY, 64, 0): ("patch-resid_pre", "z"),
    (EXPLORATORY, 69, 0): ("patch-attn_out", "z"),
    (EXPLORATORY, 71, 0): ("patch-mlp_out", "z"),
    (EXPLORATORY, 75, 0): ("patch-z", "z"),
    (EXPLORATORY, 81, 0): ("patch-v", "z"),
    (EXPLORATORY, 83, 0): ("patch-v,patch-z", "xy"),
    (EXPLORATORY, 86, 0): ("patch-pattern", "z"),
    (EXPLORATORY, 86, 1): ("patch-pattern,patch-z", "xy"),
    (EXPLORATORY, 100, 0): ("previous-token", "z"),
    (EXPLORATORY, 100, 1): ("duplicate-token", "z"),
    (EXPLORATORY, 100, 2): ("induction", "z"),
    (EXPLORATORY, 107, 0): ("ablated-heads", "z"),
    (EXPLORATORY, 107, 1): ("ablated-heads,heads", "xy"),
    (ATTRIBUTION, 25, 0): ("attr-resid", "z"),
    (ATTRIBUTION, 26, 0): ("attr-layers", "z"),
    (ATTRIBUTION, 27, 0): ("attr-result", "z"),
    (ATTRIBUTION, 27, 1): ("attr-result-sum", "z"),
    (ATTRIBUTION, 29, 0): ("attr-k", "z"),
    (ATTRIBUTION, 29, 1): ("attr-k-sum", "z"),
    (ATTRIBUTION, 29, 2): ("attr-q", "z"),
    (ATTRIBUTION, 29, 3): ("attr-q-sum", "z"),
    (ATTRIBUTION, 29, 4): ("attr-v", "z"),
    (ATTRIBUTION, 29, 5): ("attr-v-sum", "z"),
    (ATTRIBUTION, 29, 6): ("attr-z", "z"),
    (ATTRIBUTION, 29, 7): ("attr-z-sum", "z"),
    (ATTRIBUTION, 44, 0): ("attr-blocks", "z"),
    (ATTRIBUTION, 45, 0): ("patch-blocks/attr-blocks", "xy"),
    (ATTRIBUTION, 48, 0): ("attr-heads", "z"),
    (ATTRIBUTION, 49, 0): ("patch-heads/attr-heads", "xy"),
    (ATTRIBUTION, 53, 0): ("attr-heads-by-position", "z"),
    (ATTRIBUTION, 54, 0): ("patch-heads-by-position/attr-heads-by-position", "xy"),
    (ATTRIBUTION, 43, 0): ("patch-blocks", "z"),
    (ATTRIBUTION, 47, 0): ("patch-heads", "z"),
    (ATTRIBUTION, 51, 0): ("pattern-5.5", "z"),
    (ATTRIBUTION, 51, 1): ("pattern-10.7", "z"),
    (ATTRIBUTION, 51, 2): ("pattern-11.10", "z"),
    (ATTRIBUTION, 52, 0): ("patch-heads-by-position", "z"),
    (ACTIVATION, 22, 0): ("patch-resid_pre", "z"),
    (ACTIVATION, 24, 0): ("patch-z", "z"),
    (ACTIVATION, 26, 0): ("patch-z-by-position", "z"),
    (ACTIVATION, 28, 0): ("patch-blocks", "z"),
    (ACTIVATION, 30, 0): ("patch-heads", "z"),
    (ACTIVATION, 31, 0): ("patch-heads-by-position", "z"),
    (ATTRIBUTION, 31, 0): ("paths", "z"),
    (ATTRIBUTION, 33, 0): ("top-heads", "y"),
    (ATTRIBUTION, 33, 1): ("paths-of-top", "z"),
    (ATTRIBUTION, 34, 0): ("paths-of-top-q", "z"),
    (ATTRIBUTION, 34, 1): ("paths-of-top-k", "z"),
    (ATTRIBUTION, 34, 2): ("paths-of-top-v", "z"),
    (ATTRIBUTION, 35, 0): ("paths-of-top-q,paths-of-top-k,paths-of-top-v", "z"),
    (ATTRIBUTION, 37, 0): ("paths-5.5", "z"),
    (ATTRIBUTION, 37, 1): ("paths-8.6", "z"),
    (ATTRIBUTION, 37, 2): ("paths-9.9", "z"),
    (MAIN, 37, 0): ("patch-resid_pre-of-one", "z"),
    (MAIN, 109, 0): ("ov-copying", "z"),
    (MAIN, 111, 0): ("ov-eigenvalues", "xy"),
    (MAIN, 115, 0): ("ov-copying-of-tokens", "z"),
    (MAIN, 117, 0): ("ov-copying-of-tokens,ov-copying", "xy"),
}

# Plots whose numbers cannot be worked out from GPT-2 small and its printed inputs.
REASONS = {
    (ACTIVATION, 39): "another model, attn-only-2l",
    (ACTIVATION, 42): "another model, attn-only-2l",
    (ATTRIBUTION, 61): "another model, GPT-2 XL",
    (MAIN, 42): "the notebook drew its random tokens without a seed",
    (MAIN, 44): "the notebook drew its random tokens without a seed",
    (MAIN, 50): "another model, DistilGPT-2",
    (MAIN, 134): "other models, and their training",
    (MAIN, 143): "other models, and their training",
}

IOI_DATA = {
    "patched_residual_stream_diff": "patch-resid_pre",
    "patched_attn_diff": "patch-attn_out",
    "patched_mlp_diff": "patch-mlp_out",
    "patched_head_z_diff": "patch-z",
    "patched_head_attn_diff": "patch-pattern",
}

EXPLORED, SHOWN, LOGITS = EXPLORATORY, MAIN, "demos/Direct_Logit_Attribution_Demo.ipynb@4cd36aae"
ARENA = "ARENA 3.0, chapter 1.1"
EOT = "<|endoftext|>"
STORE = "After John and Mary went to the store, %s gave a bottle of milk to"
SHOPS = "Claire and Mary went to the shops, then Mary gave a bottle of milk to"
PARAGRAPH = """## Loading Models

HookedTransformer comes loaded with >40 open source GPT-style models. You can load any of them in with \
`HookedTransformer.from_pretrained(MODEL_NAME)`. See my explainer for documentation of all supported models, and this \
table for hyper-parameters and the name used to load them. Each model is loaded into the consistent HookedTransformer \
architecture, designed to be clean, consistent and interpretability-friendly. \


For this demo notebook we'll look at GPT-2 Small, an 80M parameter model. To try the model the model out, let's find \
the loss on this paragraph!"""
ABSTRACT = ("Natural language processing tasks, such as question answering, machine translation, reading comprehension, "
            "and summarization, are typically approached with supervised learning on taskspecific datasets.")
TOKENIZED = ("The first thing you need to figure out is *how* things are tokenized. `model.to_str_tokens` splits a string "
             "into the tokens *as a list of substrings*, and so lets you explore what the text looks like. To demonstrate "
             "this, let's use it on this paragraph.")
TOKENIZED_IDS = """50256 464 717 1517 345 761 284 3785 503 318 1635 4919 9 1243 389 11241 1143 13 4600 19849 13 1462 62 2536
    62 83 482 641 63 30778 257 4731 656 262 16326 1635 292 257 1351 286 850 37336 25666 290 523 8781 345 7301 644 262
    2420 3073 588 13 1675 10176 428 11 1309 338 779 340 319 428 7322 13"""

# Figures that sources printed without an input that anybody could repeat, or for work that is not done here.
LEFT_OUT = [
    ("karpathy/llm.c test_gpt2.c", "losses of 10 steps of training", "its batch is a file that the source does not print", 10),
    ("karpathy/llm.c README.md", "loss on tinyshakespeare", "its batch is a file that the source does not print", 1),
    ("karpathy/nanoGPT README.md", "losses on OpenWebText", "its data set has to be gathered first", 2),
    ("Wang et al. 2022 (arXiv 2211.00593)", "logit difference, ranks and probabilities over 100,000 prompts",
     "the 100,000 prompts are drawn at random, and not printed", 3),
    ("McDougall et al. 2023 (arXiv 2310.04625)", "share of copy suppression on OpenWebText",
     "its data set has to be gathered first", 2),
    ("SAELens pretrained_saes.yaml", "L0 and explained variance of gpt2-small-res-jb",
     "its data set has to be gathered first; lens runs such autoencoders", 26),
    ("demos/Main_Demo.ipynb@ea3989dd", "text generated in cell 121", "drawn at random, without a seed", 1),
]

# The verb at which six sentences part, and -log of its probability (sum_surprisal of item 1), after <|endoftext|>.
GARDEN_PATHS = "caplabnyu/sapbenchmark Surprisals/data/gpt2/items_ClassicGP.gpt2.csv@15e61066"
SURPRISALS = [
    (" Because the suspect changed the file", " deserved", 16.477436065673828),
    (" Because the suspect changed, the file", " deserved", 11.94864559173584),
    (" The suspect sent the file", " deserved", 14.461333274841309),
    (" The suspect who was sent the file", " deserved", 11.437789916992188),
    (" The suspect showed the file", " deserved", 14.710853576660156),
    (" The suspect showed that the file", " deserved", 11.755837440490723),
]


class Figures:
    """Blocks of single figures: ids of texts, and what was printed."""

    def __init__(self, directory, tokenizer):
        self.values = json.load(open(os.path.join(directory, "published_values.json")))
        self.checks = json.load(open(os.path.join(directory, "real_gpt2_checks.json")))
        self.tokenizer = ByteLevelBPETokenizer(os.path.join(tokenizer, "vocab.json"), os.path.join(tokenizer, "merges.txt"))
        self.made = []

    def ids(self, text):
        bos = text.startswith(EOT)
        return [50256] * bos + self.tokenizer.encode(text[len(EOT) if bos else 0:]).ids

    def id(self, word):
        ids = self.ids(word)
        assert len(ids) == 1, word
        return ids[0]

    def add(self, source, title, procedure, tolerance, values, ids=(), cell=0):
        self.made.append((source, cell, title, procedure, tolerance, values, self.ids(ids) if isinstance(ids, str) else ids))

    def notebooks(self):
        add = self.add
        add("TransformerLens tests/acceptance/test_hooked_transformer.py", "loss of 'Hello world!'", "loss", 4e-5,
            [5.331855773925781], EOT + "Hello world!")
        top = [(" Mary", 18.09, .7007), (" the", 15.38, .0467), (" John", 15.35, .0454), (" them", 15.25, .0411),
               (" his", 14.84, .0273), (" her", 14.06, .0124), (" a", 13.54, .0074), (" their", 13.52, .0073),
               (" Jesus", 13.13, .0049), (" him", 12.97, .0042)]
        store = EOT + STORE % "John"
        add(EXPLORED, "likeliest tokens", "top-tokens", 0, [self.id(w) for w, _, _ in top], store, 20)
        add(EXPLORED, "their logits", "top-logits", 5.1e-3, [v for _, v, _ in top], store, 20)
        add(EXPLORED, "their probabilities", "top-probabilities", 5.1e-5, [p for _, _, p in top], store, 20)
        add(EXPLORED, "logit difference of each prompt", "prompts", 5.1e-4,
            [3.337, 3.202, 2.709, 3.797, 1.720, 5.281, 2.601, 5.767], (), 28)
        add("demos/Activation_Patching_in_TL_Demo.ipynb@ea3989dd", "mean logit difference, clean and corrupted", "baselines",
            5.1e-5, [3.5519, -3.5519], (), 14)
        add(EXPLORED, "mean logit difference after L9H9 is ablated", "ablated", 5.1e-3, [2.92], (), 105)
        add(EXPLORED, "mean ratio of the final scales, without and with L9H9", "ablated-ratio", 5.1e-4, [1.042], (), 109)
        add(EXPLORED, "final scale of each prompt, L9H9 ablated", "ablated-scales", 5.1e-3,
            [18.52, 17.47, 17.82, 17.51, 17.26, 18.25, 16.18, 17.43], (), 109)
        add(EXPLORED, "final scale of each prompt", "scales", 5.1e-3,
            [19.57, 18.35, 18.29, 18.68, 17.49, 18.87, 16.42, 18.68], (), 109)
        add(SHOWN, "loss of a paragraph", "loss", 5.1e-5, [4.1758], EOT + PARAGRAPH, 19)
        add(SHOWN, "loss of a sentence", "loss", 5.1e-4, [3.999], EOT + ABSTRACT, 28)
        add(SHOWN, "its loss with values of L0H8 zero", "ablated-loss@0,8", 5.1e-4, [5.453], EOT + ABSTRACT, 28)
        add("demos/Main_Demo.ipynb, another version", "its loss with values of L0H8 zero", "ablated-loss@0,8", 5.1e-4,
            [5.455], EOT + ABSTRACT, 28)
        add(SHOWN, "logit difference, clean and corrupted", "one-baselines", 5.1e-4, [4.276, -2.738], (), 33)
        add("demos/Main_Demo.ipynb, another version", "logit difference, clean and corrupted", "one-baselines", 5.1e-4,
            [4.278, -2.736], (), 33)
        add(SHOWN, "bias of the logits of ' John' and ' Mary'", "unembed-bias", 5.1e-5, [2.8995, 1.6034],
            [self.id(" John"), self.id(" Mary")], 68)
        add(SHOWN, "probability of ' The' after 'The cat sat on the mat.'", "probability@%d" % self.id(" The"), 5.1e-5,
            [.1198], EOT + "The cat sat on the mat.", 78)
        both = "difference@%d,%d" % (self.id(" Claire"), self.id(" Mary"))
        add(SHOWN, "logit difference with <|endoftext|> first", both, 5.1e-4, [6.754], EOT + SHOPS, 92)
        add(SHOWN, "logit difference without", both, 5.1e-4, [2.782], SHOPS, 92)
        add(EXPLORED + " and Main_Demo", "the five strongest induction heads", "top-induction", 0, [61, 65, 81, 86, 94], (), 100)
        heads = [(9, 9, 1.9583), (9, 6, 1.6281), (10, 7, -1.4267), (11, 1, -.9117), (11, 10, -.9042), (10, 0, .6370),
                 (10, 10, .4524), (8, 10, .4264)]
        add(LOGITS, "logit difference from heads, one prompt", "heads-of-first", 5.1e-5, [v for _, _, v in heads],
            [12 * layer + head for layer, head, _ in heads], 18)
        neurons = [(11, 611, " Mary", .3188), (11, 621, " John", -.4359), (10, 2214, " the", .4369)]
        add(LOGITS, "logits from neurons, one prompt", "neurons-of-first", 5.1e-5, [v for _, _, _, v in neurons],
            [i for layer, neuron, word, _ in neurons for i in (layer, neuron, self.id(word))], 22)
        church = [("church", .0648), ("house", .0367), ("temple", .0145), ("same", .0104), ("Church", .0097)]
        text = "John and Mary went to the"
        add(ARENA, "likeliest tokens, no <|endoftext|>", "top-tokens", 0, [self.id(" " + w) for w, _ in church], text)
        add(ARENA, "their probabilities", "top-probabilities", 5.1e-5, [p for _, p in church], text)

    def tokens(self):
        vectors = [(SHOWN, "token ids of a paragraph", TOKENIZED, [int(i) for i in TOKENIZED_IDS.split()][1:], 74),
                   ("karpathy/minGPT mingpt/bpe.py", "token ids of a text with a smiley", self.checks["mingpt_bpe"]["text"],
                    self.checks["mingpt_bpe"]["ids"], 0)]
        pieces = [("2342+2017=21445", ["23", "42", "+", "2017", "=", "214", "45"]),
                  ("1000+1000000=999999", ["1000", "+", "1", "000000", "=", "9999", "99"])]
        for text, words in pieces:
            vectors.append((SHOWN, "token ids of " + text, text, [self.id(w) for w in words], 86))
        vectors.append(("elixir-nx/bumblebee test/bumblebee/text/gpt2_test.exs", "token ids of a sentence",
                        "Hello, my dog is cute", [15496, 11, 616, 3290, 318, 13779], 0))
        vectors.append(("huggingface/transformers tests/models/gpt2/test_modeling_gpt2.py", "token ids of 'The dog'", "The dog",
                        [464, 3290], 0))
        for source, title, text, ids, cell in vectors:
            self.add(source, title, "tokens", 0, ids, list(text.encode()), cell)

    def harness(self):
        group = self.values["lm_eval_loglikelihood_gpt2_124M"]
        source = "EleutherAI/lm-evaluation-harness tests/test_models.py@0a9779a2"
        for case in group["cases"]:
            whole, context = self.ids(case["ctx"] + case["cont"]), self.ids(case["ctx"])
            what = "'%.30s' after '%.30s'" % (case["cont"].strip(), case["ctx"])
            if "ll" in case:
                self.add(source, "log-probability of " + what, "log-likelihood@%d" % len(context), 1e-3 * -case["ll"],
                         [case["ll"]], whole)
            else:
                self.add(source, "is greedy: " + what, "is-greedy@%d" % len(context), 0, [int(case["greedy"])], whole)
        greedy = group["greedy_until_period_or_newline"]
        n = len(self.ids(greedy["prompt"]))
        self.add(source, "greedy continuation", "greedy", 0, self.ids(greedy["prompt"] + greedy["output"])[n:], greedy["prompt"])
        rolling = group["rolling"]
        self.add(source, "log-probabilities of a sentence", "log-probs", 1e-4, rolling["token_logprobs"], EOT + rolling["text"])
        self.add(source, "the same in windows of 5", "log-probs@5", 1e-4, rolling["token_logprobs_max_length_5"],
                 EOT + rolling["text"])

    def others(self):
        add, checks = self.add, self.checks
        seed = checks["seed001_loss"]
        add("seed 001, a notebook on attention", "loss of 34 tokens", "loss", 5e-5, [seed["mean_nll"]], seed["ids"])
        add("seed 001, a notebook on attention", "mean probability of 34 tokens", "mean-probability", 5.1e-6,
            [seed["mean_prob"]], seed["ids"])
        add(ARENA + ", as seed 001 quotes it", "loss of 34 tokens", "loss", 5.1e-5, [4.0442], seed["ids"])
        add(ARENA + ", as seed 001 quotes it", "mean probability of 34 tokens", "mean-probability", 5.1e-7, [.098628], seed["ids"])
        text = checks["seed001_greedy"]
        add("seed 001, a notebook on attention", "100 greedy tokens", "greedy", 0, text["continuation_ids"],
            [50256] + text["prompt_ids_no_bos"])
        dog = self.values["hf_transformers_greedy_gpt2_124M"]
        add("huggingface/transformers tests/models/gpt2/test_modeling_gpt2.py", "greedy ids", "greedy", 0,
            dog["output_ids_max_length_20"][2:], dog["input_ids"])
        pico = self.values["picoGPT_greedy_124M"]
        n = len(self.ids(pico["prompt"]))
        add("jaymody/picoGPT README.md", "greedy continuation", "greedy", 0, self.ids(pico["prompt"] + pico["output"])[n:],
            pico["prompt"])
        raven = self.values["raven_kaun_gpt2_124M"]
        add("raven/kaun, a test in OCaml", "hidden state after ln_final, 'Hello'", "hidden@0,0", 1e-4, [raven["values"]],
            [15496])
        bee, source = self.values["bumblebee_gpt2_124M"], "elixir-nx/bumblebee test/bumblebee/text/gpt2_test.exs@2f3929f7"
        add(source, "hidden state after ln_final", "hidden@1,1", 1e-4, bee["final_hidden_state_after_ln_f"]["values"],
            bee["final_hidden_state_after_ln_f"]["input_ids"])
        add(source, "logits", "logits@1,1", 1e-4, bee["logits"]["values"], bee["logits"]["input_ids"])

    def data_sets(self):
        add, paper, harness = self.add, "Radford et al. 2019, table 3", "EleutherAI/lm-evaluation-harness"
        add("karpathy/llm.c dev/data/hellaswag.py", "HellaSwag: accuracy, the same by token", "hellaswag", 5e-4,
            [.2859, .2955], [0, 1])
        add(harness + ", a printout", "HellaSwag: accuracy, the same by letter", "hellaswag", 5e-4, [.2892, .3114], [2, 3])
        add(harness + " issue 2159", "LAMBADA: accuracy of the last word", "lambada", 2e-4, [.3256], [0])
        add(harness + ", a printout", "LAMBADA: perplexity of the last word", "lambada", 5.1e-3, [40.0554], [1])
        add(paper, "LAMBADA: accuracy of the last word", "lambada", 5.1e-5, [.4599], [0])
        add(paper, "LAMBADA: perplexity of the last word", "lambada", 5.1e-3, [35.13], [1])
        add("huggingface/transformers issue 13761", "LAMBADA: accuracy of the last token alone", "lambada", 5.1e-5,
            [.4667], [2])
        add("huggingface/transformers issue 13761", "WikiText-2: perplexity, windows side by side", "wikitext-2", 5.1e-3,
            [29.94], [0])
        add(paper, "WikiText-2: perplexity", "wikitext-2", 5.1e-3, [29.41], [0])
        add(paper, "WikiText-103: perplexity", "wikitext-103", 5.1e-3, [37.50], [0])
        circuits = "hannamw/EAP-IG greater_than.ipynb@b2219693"
        add(circuits, "greater-than: probability difference of the model", "greater-than", 1e-5, [.8143222], [0], 13)
        add(circuits, "greater-than: of 200 edges by EAP-IG", "greater-than", 1e-5, [.7449120], [2], 13)
        add(circuits, "greater-than: its nodes and edges, pruned", "greater-than", 0, [29, 150], [4, 5], 14)
        add(circuits, "greater-than: of 200 edges by EAP", "greater-than", 1e-5, [.6563275], [1], 16)
        add(circuits, "greater-than: of 200 edges by clean-corrupted", "greater-than", 1e-5, [.6857952], [3], 18)
        # Other prompts than those of the file, so the order of scores is compared, and loosely.
        mib = "hannamw/MIB-circuit-track circuits/ioi-eap-ig.json@8c313476"
        add(mib, "IOI by EAP-IG: rank correlation of all edges' scores", "ioi-edges", .8, [1], [0])
        add(mib, "IOI by EAP-IG: share of equal signs among the largest 1 %", "ioi-edges", .2, [1], [1])

    def all(self):
        self.tokens()
        self.notebooks()
        self.harness()
        self.others()
        self.data_sets()
        return self.made


def count(z):
    return sum(count(v) for v in z) if isinstance(z, list) else 1


def shape(z):
    out = []
    while isinstance(z, list):
        out.append(len(z))
        z = z[0]
    return out


def flat(z):
    if isinstance(z, list):
        for v in z:
            yield from flat(v)
    else:
        yield z


def values_of(plot, what):
    """What the plot's traces hold, as there: a list of traces if there are several."""
    traces = [[t["x"], t["y"]] if what == "xy" else t[what] for t in plot["traces"]]
    return traces[0] if len(traces) == 1 else traces


def with_runs(numbers):
    """Text of whole numbers, in which "0*N" stands for N zeros."""
    out, zeros = [], 0
    for v in numbers + [None]:
        if v == 0:
            zeros += 1
            continue
        if zeros:
            out.append("0*%d" % zeros if zeros > 2 else " ".join("0" * zeros))
        zeros = 0
        if v is not None:
            out.append(str(v))
    return " ".join(out)


class Table:
    def __init__(self):
        self.seen, self.n = {}, 0

    def block(self, source, cell, title, procedure, tolerance, values, ids=()):
        self.n += 1
        digits = 7
        if tolerance == RELATIVE:  # seven digits of the largest number
            digits = max(7, 6 - math.floor(math.log10(max(abs(v) for v in flat(values)))))
        numbers = [round(v * 10 ** digits) for v in flat(values)]
        size = " ".join(str(v) for v in shape(values))
        print("block\t%s\t%d\t%s\t%s\t%s\t1e-%d\t%s\t%s" % (
            source, cell, title, procedure, tolerance if tolerance == RELATIVE else "%g" % tolerance, digits, size,
            " ".join(str(i) for i in ids)))
        old = next((k for k, v in self.seen.items()
                    if v[0] == digits and len(v[1]) == len(numbers) and
                    all(abs(a - b) <= 1 for a, b in zip(v[1], numbers))), None)
        if old:
            print("as %d" % old)
        else:
            self.seen[self.n] = digits, numbers
            print(with_runs(numbers))

    def left_out(self, source, cell, title, reason, size):
        self.n += 1
        print("block\t%s\t%d\t%s\tnone: %s\t0\t1e-7\t%d\t\n" % (source, cell, title, reason, size))


def main():
    reference, tokenizer = sys.argv[1:3]
    plots = json.load(open(os.path.join(reference, "published", "published_plots.json")))
    print("# Published figures of GPT-2 small, made by tests/makers/make_published.py: see there for the sources.")
    print("# block: source, cell, title, procedure, tolerance, unit, shape, ids; then the numbers, in that unit (0*N: N zeros),")
    print("# or \"as N\" for those of block N, counted from 1")
    table, figures = Table(), Figures(reference, tokenizer)
    for source, cell, title, procedure, tolerance, values, ids in figures.all():
        table.block(source, cell, title, procedure, tolerance, values, ids)
    for notebook in (EXPLORATORY, ATTRIBUTION, ACTIVATION, MAIN):
        at = {}
        for plot in plots[notebook]:
            cell = plot["cell"]
            index = at.get(cell, 0)
            at[cell] = index + 1
            procedure, what = PROCEDURES.get((notebook, cell, index), (None, None))
            if procedure is None:
                size = sum(count(t.get("z") or t["y"]) for t in plot["traces"])
                table.left_out(notebook, cell, plot["title"], REASONS[notebook, cell], size)
            else:
                values = values_of(plot, what)
                if procedure == "ov-eigenvalues":  # LAPACK's order means nothing
                    values = [list(v) for v in zip(*sorted(zip(*values), reverse=True))]
                table.block(notebook, cell, plot["title"], procedure, RELATIVE, values)
    data = json.load(open(os.path.join(reference, "published", "ioi_patching_data.json")))
    for name, procedure in IOI_DATA.items():
        table.block("ioi_patching_data.json", 0, name, procedure, 2e-5, data[name])
    for source, title, reason, size in LEFT_OUT:
        table.left_out(source, 0, title, reason, size)
    for context, word, nats in SURPRISALS:
        ids = figures.ids(EOT + context)
        table.block(GARDEN_PATHS, 0, "log-probability of '%s' after '%s'" % (word[1:], context[1:]),
                    "log-likelihood@%d" % len(ids), 2e-4, [-nats], ids + figures.ids(word))


if __name__ == "__main__":
    main()

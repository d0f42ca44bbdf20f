#!/usr/bin/env python3
"""Makes tools/reproduce/published.txt from the matrices that TransformerLens's notebooks printed.

    make_published.py published_plots.json >tools/reproduce/published.txt

published_plots.json holds the traces of the plotly figures in each notebook of TransformerLens (MIT) at a
commit: {"NOTEBOOK@COMMIT": [{"cell", "title", "traces": [{"x", "y", "z"}]}]}. The procedure of each plot is
read from the notebook's code by hand: PROCEDURES below.
"""
import json
import sys

EXPLORATORY = "demos/Exploratory_Analysis_Demo.ipynb@ea3989dd"
ATTRIBUTION = "demos/Attribution_Patching_Demo.ipynb@ea3989dd"
ACTIVATION = "demos/Activation_Patching_in_TL_Demo.ipynb@ea3989dd"
MAIN = "demos/Main_Demo.ipynb@ea3989dd"

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
    (ATTRIBUTION, 45, 0): ("patch-blocks,attr-blocks", "xy"),
    (ATTRIBUTION, 48, 0): ("attr-heads", "z"),
    (ATTRIBUTION, 49, 0): ("patch-heads,attr-heads", "xy"),
    (ATTRIBUTION, 53, 0): ("attr-heads-by-position", "z"),
    (ATTRIBUTION, 54, 0): ("patch-heads-by-position,attr-heads-by-position", "xy"),
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
    (MAIN, 37, 0): ("patch-resid_pre-of-one", "z"),
}

# Plots whose numbers cannot be worked out from GPT-2 small and its printed inputs.
REASONS = {
    (ACTIVATION, 39): "another model, attn-only-2l",
    (ACTIVATION, 42): "another model, attn-only-2l",
    (ATTRIBUTION, 61): "another model, GPT-2 XL",
    (MAIN, 42): "the notebook drew its random tokens without a seed",
    (MAIN, 44): "the notebook drew its random tokens without a seed",
    (MAIN, 50): "another model, DistilGPT-2",
    (MAIN, 109): "it needs eigenvalues, which nothing here works out",
    (MAIN, 111): "it needs eigenvalues, which nothing here works out",
    (MAIN, 115): "it needs eigenvalues, which nothing here works out",
    (MAIN, 117): "it needs eigenvalues, which nothing here works out",
    (MAIN, 134): "other models, and their training",
    (MAIN, 143): "other models, and their training",
}

FIGURES = [  # from sources that print single numbers
    ("TransformerLens tests/acceptance/test_hooked_transformer.py", "loss of 'Hello world!'", "loss", 4e-5,
     [5.331855773925781], "50256 15496 995 0"),
    ("a notebook on attention, seed 001", "loss of 34 tokens", "loss", 5e-5, [4.5647],
     "50256 40 716 281 4998 1960 382 19741 11 875 12342 12 8807 11 402 11571 12 17 3918 47385 13 1881 1110 314 "
     "481 7074 1692 1241 4430 290 1011 625 262 995 0"),
    ("demos/Exploratory_Analysis_Demo.ipynb", "logit difference of each prompt", "prompts", 5.1e-4,
     [3.337, 3.202, 2.709, 3.797, 1.720, 5.281, 2.601, 5.767], ""),
    ("demos/Exploratory_Analysis_Demo.ipynb", "mean logit difference after L9H9 is ablated", "ablated", 5.1e-3,
     [2.92], ""),
    ("huggingface/transformers tests/models/gpt2/test_modeling_gpt2.py", "greedy ids", "greedy", 0,
     [373, 1043, 287, 257, 2214, 1474, 262, 16246, 286, 2688, 290, 2688, 27262, 13, 198, 198, 464, 3290], "464 3290"),
    ("raven/kaun, a test in OCaml", "hidden state after ln_final, 'Hello'", "hidden", 1e-5,
     [-9.088777005672455e-06, -0.14020976424217224, -0.20845119655132294, -0.028111519291996956,
      -0.09017819911241531, -0.19850760698318481, 4.072483062744141, -0.24899107217788696, -0.17168566584587097,
      -0.01689625345170498], "15496"),
]


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
    traces = [[t["x"], t["y"]] if what == "xy" else t[what] for t in plot["traces"]]
    if what == "xy":  # traces of a scatter plot are its colours
        return [[v for t in traces for v in t[axis]] for axis in (0, 1)]
    return traces[0] if len(traces) == 1 else traces


def main():
    plots = json.load(open(sys.argv[1]))
    print("# Published figures of GPT-2 small, made by tests/makers/make_published.py: see there for the sources.")
    print("# block: notebook, cell, title, procedure, tolerance, shape, ids; then the numbers, in units of 1e-7, or")
    print("# \"as N\" for those of block N, counted from 1")
    seen, n = {}, 0
    for source, title, procedure, tolerance, values, ids in FIGURES:
        n += 1
        print("block\t%s\t0\t%s\t%s\t%g\t%d\t%s" % (source, title, procedure, tolerance, len(values), ids))
        print(" ".join(str(round(v * 1e7)) for v in values))
    for notebook in (EXPLORATORY, ATTRIBUTION, ACTIVATION, MAIN):
        at = {}
        for plot in plots[notebook]:
            cell = plot["cell"]
            index = at.get(cell, 0)
            at[cell] = index + 1
            procedure, what = PROCEDURES.get((notebook, cell, index), (None, None))
            n += 1
            if procedure is None:
                reason = REASONS.get((notebook, cell), "head-to-head paths by gradients, which nothing here works out")
                size = sum(count(t.get("z") or t["y"]) for t in plot["traces"])
                print("block\t%s\t%d\t%s\tnone: %s\t1e-05\t%d\t\n" % (notebook, cell, plot["title"], reason, size))
                continue
            values = values_of(plot, what)
            size = " ".join(str(v) for v in shape(values))
            print("block\t%s\t%d\t%s\t%s\t1e-05\t%s\t" % (notebook, cell, plot["title"], procedure, size))
            numbers = [round(v * 1e7) for v in flat(values)]
            old = next((k for k, v in seen.items()
                        if len(v) == len(numbers) and all(abs(a - b) <= 1 for a, b in zip(v, numbers))), None)
            if old:
                print("as %d" % old)
            else:
                seen[n] = numbers
                print(" ".join(str(v) for v in numbers))


if __name__ == "__main__":
    main()

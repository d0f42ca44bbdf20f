"""lm-evaluation-harness by tools/score/lm_eval_attn.py beside its own Hugging Face model on the same
weights: a task of each kind, every sample compared. tests/compare/pipelines.sh runs it.

    python3 tests/compare/compare_lm_eval.py SCORE MODEL.attn HF_DIRECTORY
"""
import json
import os
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "..", "tools", "score"))

import torch
import lm_eval
import lm_eval_attn  # registers the model "attn"

CHOICES = [("Once upon a", [" time", " day", " dog"], 0), ("The little girl was very", [" happy", " because", "ly sad"], 0),
           ("Tom and his mom went to the ", ["park", "store", "<|endoftext|>"], 0), ("Lily said, \"Thank", [" you", " me", "s"], 0),
           ("The sun was", [" shining", " caf\u00e9 \u65e5\u672c", " not"], 0), ("One day, a boy named Tim", [" went", " saw", " red"], 1)]
STORIES = ["Once upon a time there was a little cat who liked to play in the garden.",
           "Lily found a big red ball. \"Can I play with it?\" she asked her mom.",
           "The dog ran away. " * 90]  # longer than the context: windows
BEGINNINGS = [("Once upon a time", "."), ("The little dog was", "."), ("Tom saw a bird and", "\n"), ("Sara " * 150, "!")]


def tasks(directory):
    files = {"choice": [{"text": t, "choices": c, "gold": g} for t, c, g in CHOICES],
             "story": [{"text": t} for t in STORIES], "beginning": [{"text": t, "end": "x"} for t, _ in BEGINNINGS]}
    configs = []
    for name, rows in files.items():
        path = os.path.join(directory, name + ".jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        configs.append({"task": "attn_" + name, "dataset_path": "json", "test_split": "test",
                        "dataset_kwargs": {"data_files": {"test": path}}})
    configs[0].update(output_type="multiple_choice", doc_to_text="{{text}}", doc_to_choice="{{choices}}",
                      doc_to_target="{{gold}}", target_delimiter="",
                      metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}])
    configs[1].update(output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
                      metric_list=[{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}])
    configs[2].update(output_type="generate_until", doc_to_text="{{text}}", doc_to_target="{{end}}",
                      generation_kwargs={"until": [".", "!", "\n\n"], "max_gen_toks": 40, "do_sample": False},
                      metric_list=[{"metric": "exact_match"}])
    return configs


def evaluate(model, args, configs):
    return lm_eval.simple_evaluate(model=model, model_args=args, tasks=configs, log_samples=True,
                                   bootstrap_iters=0, batch_size=1)["samples"]


def flat(answers):
    """The numbers, flags and texts in nested lists."""
    for answer in answers if isinstance(answers, (list, tuple)) else [answers]:
        if isinstance(answer, (list, tuple)):
            yield from flat(answer)
        else:
            yield answer


def main():
    score, model, checkpoint = sys.argv[1:]
    torch.set_num_threads(1)  # beside other work many threads wait for each other
    worst, n, different = 0.0, 0, 0
    with tempfile.TemporaryDirectory() as directory:
        configs = tasks(directory)
        ours = evaluate("attn", {"model": model, "score": score}, configs)
        theirs = evaluate("hf", {"pretrained": checkpoint, "dtype": "float32", "device": "cpu"}, configs)
    for task in ours:
        for a, b in zip(ours[task], theirs[task]):
            for x, y in zip(flat(a["resps"]), flat(b["resps"]), strict=True):
                n += 1
                if isinstance(x, float):
                    worst = max(worst, abs(x - y) / max(1.0, abs(y)))
                elif x != y:
                    different += 1
                    print("%s: %r, expected %r" % (task, x, y))
    print("%d answers compared, %d differ; largest relative difference of a log-likelihood %.2g" % (n, different, worst))
    return 0 if n > 40 and different == 0 and 0 < worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())

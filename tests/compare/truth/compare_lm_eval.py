"""lm-evaluation-harness by tools/score/lm_eval_attn.py beside its own Hugging Face model on the same
weights: a task of each kind, every sample compared; and requests of every type to a model whose bos and eos
differ. tests/compare/truth/pipelines.sh runs it.

    python3 tests/compare/truth/compare_lm_eval.py SCORE MODEL.attn HF_DIRECTORY
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TESTS, "..", "tools", "score"))

import torch
import lm_eval
import lm_eval_attn  # registers the model "attn"
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

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


def other_ends(directory, checkpoint, convert):
    """A random model with the tokens <s> and </s>, as a directory and as a .attn file."""
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    torch.manual_seed(0)
    n = len(tokenizer)
    GPT2LMHeadModel(GPT2Config(vocab_size=n, n_positions=256, n_embd=48, n_layer=2, n_head=4, bos_token_id=n - 2,
                               eos_token_id=n - 1, initializer_range=0.2)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    subprocess.run([convert, directory, directory + ".attn", "-q"], check=True, stderr=subprocess.DEVNULL)


REQUESTS = {
    "loglikelihood": [("", "Once upon a time"), ("", "<s>Once"), ("Once upon  ", "a time"), ("</s>", " Once"),
                      ("the dog ran. " * 60, " away")],
    "loglikelihood_rolling": [("Once upon a time",), ("the dog ran. " * 60,), ("",)],
    "generate_until": [("Once upon", {"until": ["."], "max_gen_toks": 30}), ("Lily", {"max_gen_toks": 40}),
                       ("Tom", {"until": "\n", "max_gen_toks": 20, "do_sample": False, "temperature": 0.7}),
                       ("Tom", {"until": [], "max_gen_toks": 25, "repetition_penalty": 1.3}),
                       *(("Lily", {"until": ["."], "max_gen_toks": 20, **more}) for more in (
                           {"num_beams": 1}, {"num_beams": 1, "length_penalty": 1.0, "early_stopping": True},
                           {"num_return_sequences": 1}, {"no_repeat_ngram_size": 0}, {"min_new_tokens": 0}))]}


def answers_of(model):
    for kind, requests in REQUESTS.items():
        asked = [Instance(request_type=kind, doc={}, arguments=r, idx=0) for r in requests]
        yield from flat(getattr(model, kind)(asked))
    try:  # more than the context holds
        model.loglikelihood([Instance(request_type="loglikelihood", doc={}, arguments=("a", " b" * 300), idx=0)])
        yield "a number"
    except AssertionError:
        yield "refused"


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
    pairs = []
    with tempfile.TemporaryDirectory() as directory:
        configs = tasks(directory)
        ours = evaluate("attn", {"model": model, "score": score}, configs)
        theirs = evaluate("hf", {"pretrained": checkpoint, "dtype": "float32", "device": "cpu"}, configs)
        other = os.path.join(directory, "other")
        other_ends(other, checkpoint, os.path.join(os.path.dirname(score), "attn-convert"))
        pairs += zip(answers_of(lm_eval_attn.AttnLM(other + ".attn", score=score)),
                     answers_of(HFLM(pretrained=other, dtype="float32", device="cpu")), strict=True)
    for task in ours:
        for a, b in zip(ours[task], theirs[task]):
            pairs += zip(flat(a["resps"]), flat(b["resps"]), strict=True)
    for x, y in pairs:
        n += 1
        if isinstance(x, float):
            worst = max(worst, abs(x - y) / max(1.0, abs(y)))
        elif x != y:
            different += 1
            print("%r, expected %r" % (x, y))
    print("%d answers compared, %d differ; largest relative difference of a log-likelihood %.2g" % (n, different, worst))
    return 0 if n > 40 and different == 0 and 0 < worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())

"""Makes gpt2_vectors.h: log-probabilities by PyTorch's GPT-2 in float64 (transformers) for the
included model: of the tokens of greedy texts, and of choices after a prompt.

    python3 tests/makers/make_gpt2_vectors.py >tests/fixtures/gpt2_vectors.h
"""
import os
import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TESTS, "..", "examples", "tiny-stories")
PROMPTS = ["Once upon a time", "The little dog", "Mom said"]
CHOICES = [("The cat said that", " she| he| it"),
           ("Lily was very", " sad| happy and wanted to play| hungry"),
           ("Tom had a", " dog| big red ball")]
N = 12


def losses(model, ids):
    """-log p of ids[1:], each after all before it."""
    logits = model(torch.tensor([ids])).logits[0, :-1]
    return -torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), ids[1:]]


def main():
    model = GPT2LMHeadModel.from_pretrained(MODEL).double().eval()
    tokenizer = GPT2TokenizerFast(os.path.join(MODEL, "vocab.json"), os.path.join(MODEL, "merges.txt"))
    print("/* Made by make_gpt2_vectors.py: change that, not this. */")
    print("enum { N_GREEDY = %d };\nstatic const struct {\n    const char *prompt;\n    int ids[N_GREEDY];\n"
          "    double logprobs[N_GREEDY];\n} greedy_vectors[] = {" % N)
    with torch.no_grad():
        for prompt in PROMPTS:
            ids = tokenizer(prompt)["input_ids"]
            n = len(ids)
            for _ in range(N):
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            found = -losses(model, ids)[n - 1:]
            print('    {"%s",\n     {%s},\n     {%s}},' % (
                prompt, ", ".join(map(str, ids[n:])), ", ".join("%.9f" % x for x in found)))
        print("};\n\nstatic const struct {\n    const char *prompt, *choices;\n    int n;\n"
              "    double logprobs[3];\n} choice_vectors[] = {")
        for prompt, choices in CHOICES:
            ids = tokenizer(prompt)["input_ids"]
            sums = [-losses(model, ids + tokenizer(c)["input_ids"])[len(ids) - 1:].sum()
                    for c in choices.split("|")]
            print('    {"%s", "%s", %d, {%s}},' % (
                prompt, choices, len(sums), ", ".join("%.9f" % x for x in sums)))
    print("};")


if __name__ == "__main__":
    main()

"""attn.h as a model of lm-evaluation-harness (pip install lm-eval), by a pipe to score:

    python3 tools/score/lm_eval_attn.py --model attn --model_args model=build/gpt2.attn --tasks lambada_openai

Answers are those of the harness's own Hugging Face model. Options of --model_args: model (a .attn file),
score (the program; default: build/score of this project, or the installed attn-score), threads, batch,
max_gen_toks, and as for Hugging Face's model prefix_token_id, add_bos_token (true for a tokenizer that puts
the token before every text).

Texts longer than the model's context are treated as by that model: a rolling log-likelihood is a sum over
disjoint windows, each of which sees one token before it; of a context before a continuation or a generation
the beginning is cut off. score itself refuses longer texts, and perplexity has windows that overlap, so its
figure of a long text is lower.
"""
import json
import os
import shutil
import struct
import subprocess
import threading

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import (handle_stop_sequences, normalize_gen_kwargs,
                                  postprocess_generated_text)
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NEUTRAL = {"num_beams": 1, "num_beam_groups": 1, "num_return_sequences": 1, "no_repeat_ngram_size": 0,
           "encoder_no_repeat_ngram_size": 0, "min_new_tokens": 0, "min_length": 0, "typical_p": 1, "epsilon_cutoff": 0,
           "eta_cutoff": 0, "diversity_penalty": 0, "renormalize_logits": False, "use_cache": True, "penalty_alpha": 0,
           "remove_invalid_values": False}  # what transformers leaves as it is
OF_BEAMS = ("length_penalty", "early_stopping")  # of more than one beam
SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "seed": "seed",
            "repetition_penalty": "repeat_penalty"}


def find_score():
    built = os.path.join(ROOT, "build", "score")
    found = built if os.path.exists(built) else shutil.which("attn-score")
    if not found:
        raise FileNotFoundError("neither %s nor attn-score is there: run make, or give score=PROGRAM" % built)
    return found


def read_tokens(file, header):
    """The bytes of each token, and the ids of special ones: "The file format" in attn.h."""
    offset, size = struct.unpack_from("<QQ", header, 96)
    file.seek(offset)
    section = file.read(size)
    n, n_merges, n_special = struct.unpack_from("<IIH", section)
    ends = (0,) + struct.unpack_from("<%dI" % n, section, 16)
    at = 16 + 4 * n + 12 * n_merges
    special = set(struct.unpack_from("<%dI" % n_special, section, at))
    at += 4 * n_special
    return [section[at + a:at + b] for a, b in zip(ends, ends[1:])], special


@register_model("attn")
class AttnLM(TemplateLM):
    backend = "causal"

    def __init__(self, model, score=None, threads=0, batch=64, max_gen_toks=256, prefix_token_id=None,
                 add_bos_token=False, **ignored):
        super().__init__()
        with open(model, "rb") as file:
            header = file.read(256)
            self.max_length, = struct.unpack_from("<I", header, 28)
            self.bos, self.eos = struct.unpack_from("<ii", header, 56)
            if not struct.unpack_from("<Q", header, 96)[0]:
                raise ValueError("%s has no tokenizer, and the harness gives texts" % model)
            self.tokens, self.special = read_tokens(file, header)
        self.max_gen_toks = int(max_gen_toks)
        self.add_bos_token = add_bos_token
        self.custom_prefix = prefix_token_id
        self.process = subprocess.Popen(
            [score or find_score(), model, "--quiet", "--threads", str(threads), "--batch", str(batch)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def eot_token_id(self):
        return self.eos

    @property
    def prefix_token_id(self):
        """What stands before an empty context and before the first window of a text."""
        if self.custom_prefix is not None:
            return int(self.custom_prefix)
        return self.bos if self.bos >= 0 else self.eos

    def ask(self, lines):
        """The answers of lines, in their order. A thread writes, so that neither pipe fills up."""
        def write():
            for line in lines:
                self.process.stdin.write(json.dumps(line).encode() + b"\n")
            self.process.stdin.flush()
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        for line in lines:
            answer = self.process.stdout.readline()
            if not answer:
                raise RuntimeError("score ended before it answered %.200s" % line)
            answer = json.loads(answer)
            if "error" in answer:
                raise ValueError("score: %s" % answer["error"])
            yield answer
        writer.join()

    def text_of(self, ids):
        return b"".join(self.tokens[i] for i in ids).decode("utf-8", "replace")

    def encode_all(self, texts, add_special_tokens=None):
        lines = [{"task": "tokens", "text": text, "special": True} for text in texts]
        prefix = self.text_of([self.prefix_token_id])
        wanted = self.add_bos_token if add_special_tokens is None else add_special_tokens and self.add_bos_token
        return [[self.bos] * bool(wanted and not text.startswith(prefix)) + answer["ids"]
                for text, answer in zip(texts, self.ask(lines))]

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.encode_all([string], add_special_tokens)[0]

    def tok_decode(self, tokens, skip_special_tokens=True):
        ids = [tokens] if isinstance(tokens, int) else tokens
        return self.text_of(i for i in ids if not (skip_special_tokens and i in self.special))

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
        lines = []
        for _, context, continuation in requests:
            assert context and continuation, "a context and a continuation have at least one token"
            assert len(continuation) <= self.max_length, \
                "a continuation of %d tokens, but the model's context holds %d" % (len(continuation), self.max_length)
            ids = (context + continuation)[-(self.max_length + 1):]  # the last token is not fed
            at = len(ids) - len(continuation)
            lines.append({"task": "score", "context_ids": ids[:at], "ids": ids[at:]})
        answers = []
        for (text, _, _), answer in zip(requests, self.ask(lines)):
            answers.append((answer["logprob"], answer["greedy"]))
            if text is not None:
                self.cache_hook.add_partial("loglikelihood", text, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        windows, counts = [], []
        for ids in self.encode_all([request.args[0] for request in requests]):
            pairs = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, 1)
            parts = [(None,) + make_disjoint_window(pair) for pair in pairs]
            windows += parts
            counts.append(len(parts))
        found = iter(self._loglikelihood_tokens(windows))
        sums = [sum(next(found)[0] for _ in range(n)) for n in counts]
        for request, answer in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, answer)
        return sums

    def generation(self, given, ids):
        """The line that asks for one text, and the strings that end it."""
        how = normalize_gen_kwargs(given, self.max_gen_toks)
        eos = self.text_of([self.eos]) if self.eos >= 0 else None
        stop = handle_stop_sequences(how.pop("until", None), eos=eos)
        count = how.pop("max_gen_toks")
        room = self.max_length - count
        assert room > 0, "max_gen_toks is %d, but the model's context holds %d" % (count, self.max_length)
        ids = ids[-room:]
        if "max_length" in how:
            count = max(how.pop("max_length") - len(ids), 1)
        line = {"task": "generate", "ids": ids, "max_tokens": count, "stop": [s for s in stop if s]}
        sampled = how.pop("do_sample", False)
        if sampled:
            how.setdefault("top_k", 50)  # as in transformers
        for name, value in how.items():
            if value is None or name in OF_BEAMS or (name in NEUTRAL and value == NEUTRAL[name]):
                continue
            if name not in SAMPLING:
                raise ValueError("attn.h does not know the generation setting %s%s" % (
                    name, " but for %s" % NEUTRAL[name] if name in NEUTRAL else ""))
            if sampled or name == "repetition_penalty":
                line[SAMPLING[name]] = value
        return line, stop

    def generate_until(self, requests, disable_tqdm=False):
        encoded = self.encode_all([request.args[0] for request in requests])
        asked = [self.generation(request.args[1], ids) for request, ids in zip(requests, encoded)]
        texts = []
        for request, (_, stop), answer in zip(requests, asked, self.ask([line for line, _ in asked])):
            texts.append(postprocess_generated_text(self.tok_decode(answer["ids"]), stop, None))
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()

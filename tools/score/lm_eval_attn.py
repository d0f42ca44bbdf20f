"""attn.h as a model of lm-evaluation-harness (pip install lm-eval), by a pipe to score:

    python3 tools/score/lm_eval_attn.py --model attn --model_args model=build/gpt2.attn --tasks lambada_openai

Options of --model_args: model (a .attn file), score (the program, default build/score), threads, batch.
"""
import json
import struct
import subprocess
import threading

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window


@register_model("attn")
class AttnLM(TemplateLM):
    def __init__(self, model, score="build/score", threads=0, batch=64, max_gen_toks=256, **ignored):
        super().__init__()
        with open(model, "rb") as file:  # "The file format" in attn.h says where these are
            header = file.read(256)
        self.max_length, = struct.unpack_from("<I", header, 28)
        self.bos, self.eos = struct.unpack_from("<ii", header, 56)
        self.max_gen_toks = max_gen_toks
        self.process = subprocess.Popen(
            [score, model, "--quiet", "--threads", str(threads), "--batch", str(batch)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def eot_token_id(self):
        return self.eos

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

    def encode_all(self, texts):
        lines = [{"task": "tokens", "text": text, "special": True} for text in texts]
        return [answer["ids"] for answer in self.ask(lines)]

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.encode_all([string])[0]

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
        lines = []
        for _, context, continuation in requests:
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
        return [sum(next(found)[0] for _ in range(n)) for n in counts]

    def generate_until(self, requests, disable_tqdm=False):
        lines, stops = [], []
        for request, ids in zip(requests, self.encode_all([r.args[0] for r in requests])):
            how = normalize_gen_kwargs(request.args[1], self.max_gen_toks)
            room = self.max_length - how["max_gen_toks"]
            if room <= 0:
                raise ValueError("max_gen_toks is %d, but the model's context holds %d"
                                 % (how["max_gen_toks"], self.max_length))
            line = {"task": "generate", "ids": ids[-room:], "max_tokens": how["max_gen_toks"],
                    "stop": [stop for stop in how["until"] if stop]}
            for name in ("temperature", "top_k", "top_p", "min_p", "seed"):
                if how.get(name):
                    line[name] = how[name]
            lines.append(line)
            stops.append(how["until"])
        texts = []
        for request, stop, answer in zip(requests, stops, self.ask(lines)):
            texts.append(postprocess_generated_text(answer["text"], stop, None))
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()

"""Checks of the notebooks' exercises.

In a notebook, `attn.check("multi_head/2", value)` compares a value with the engine's, or with a stored one, to 1e-4. It
prints "right", or the first entry that differs and by how much, with a hint where a typical mistake gives the value, and
never the answer. What it gives is true if the value is right.

    python -m attn.check                       lists the checks
    python -m attn.check A.ipynb B.ipynb       grades notebooks that were handed in (--csv: as a table, --limit SECONDS)

Grading runs all cells from the top, each notebook in a process and an empty folder of its own, and takes the last value
that each check was given. This process compares: what the cells do to the package there changes nothing here. But the
code runs with your rights, so use a machine or a container that has nothing to lose; and a right value does not say how
it was found. Lines of IPython (%, !) are left out.
"""
from __future__ import annotations

import argparse
import csv
import functools
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

import attn
from attn import lens

_Taken = Union[npt.NDArray[Any], str]  # a value, or what is wrong with it

_GAP = "fill in the gap first"
_LIMIT = 300  # seconds for a notebook
_MOST = 100_000_000  # bytes that its values may have

# ---- the answers ----

_LILY = "Lily had a red ball. Tom took the ball"
_SENTENCE = ("I am an amazing autoregressive, decoder-only, GPT-2 style transformer. One day I will exceed human "
             "level intelligence and take over the world!")
_PHRASE = (0, 7, 21, 5, 90, 33, 7, 21, 5)
_WORDS = np.array([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.10],
                   [0.05, 0.80, 0.55]])


_model = functools.lru_cache(maxsize=None)(attn.load)


@functools.lru_cache(maxsize=None)
def _run(name: str, text: Union[str, tuple[int, ...]], bos: bool = False) -> attn.Record:
    return _model(name).run_with_cache(list(text) if isinstance(text, tuple) else text, ["*", "*.hook_result"],
                                       prepend_bos=bos)[1]


def _stories(key: Any, layer: int, text: str = _LILY + " and Lily") -> attn.Array:
    return _run("tiny-stories", text)[key, layer]


def _clean(*key: Any) -> attn.Array:
    return _run("tiny-stories", _SENTENCE, True)[key]


def _window(size: int) -> npt.NDArray[Any]:
    """The weights of a mean of the last `size` positions."""
    past = np.arange(8)[:, None] - np.arange(8)
    seen = (past >= 0) & (past < size)
    return np.where(seen, 1 / seen.sum(1, keepdims=True), 0)


def _sink() -> npt.NDArray[Any]:
    """The softmax of zeros, but for a 10 in the first column, when the future is hidden."""
    total = np.exp(10) + np.arange(8)[:, None]
    shares: npt.NDArray[Any] = np.where(np.arange(8) == 0, np.exp(10), 1) / total
    return np.tril(shares)


@functools.lru_cache(maxsize=None)
def _patched(name: str, parts: Any) -> attn.Array:
    clean = [0, 50, 93, 12, 77, 31, 64, 9, 101, 50, 93, 12, 77]
    pair = lens.Pair(clean, clean[:4] + [8] + clean[5:], lens.logit_diff(31, 64))
    return lens.patch(_model("induction"), pair, name, parts, normalize=True).effect


@functools.lru_cache(maxsize=None)
def _graph() -> lens.FeatureGraph:
    return lens.graph(_model("tiny-stories"), "Lily was sad because she lost her", check=True, node_threshold=0.6)


def _shares() -> list[float]:
    """What the kinds of nodes, and the constant, add to the likeliest logit."""
    graph, kinds = _graph(), [node.kind for node in _graph().nodes]
    logit = kinds.index("logit")
    into = [(kinds[source], float(weight)) for source, weight in zip(graph.source[graph.target == logit], graph.weight[graph.target == logit])]
    return [*(sum(weight for kind, weight in into if kind == wanted) for wanted in ("embedding", "feature", "error")), graph.nodes[logit].constant]


_CHECKS: dict[str, tuple[str, Callable[[], Any]]] = {  # what is asked for, and the answer
    "scores/1": ("the weights of \"journey\" when its scores are 5 times as large",
                 lambda: [0.0310022, 0.4626908, 0.4194981, 0.0177975, 0.0089985, 0.0600129]),
    "scores/2": ("scores of six words that are x @ x.T, by W_Q and W_K", lambda: _WORDS @ _WORDS.T),
    "scores/3": ("the pattern of head 4 of layer 1", lambda: _stories("pattern", 1, _LILY)[4]),
    "averaging/1": ("weights with a score of 10 for token 0", _sink),
    "averaging/2": ("softmax of a row in which all is hidden, by -1e9 and by -inf", lambda: [[1 / 8] * 8, [np.nan] * 8]),
    "averaging/3": ("the weights of a mean of the last three positions", lambda: _window(3)),
    "self_attention/1": ("which rows change with the last word, without and with the mask",
                         lambda: [[True] * 5, [False] * 4 + [True]]),
    "self_attention/2": ("the pattern of head 0.1, without b_K", lambda: _run("induction", _PHRASE)["pattern", 0][1]),
    "self_attention/3": ("what head 0.1 brings, its z", lambda: _run("induction", _PHRASE)["z", 0][:, 1]),
    "multi_head/1": ("the length of what each head writes at the last position",
                     lambda: np.linalg.norm(_stories("result", 2)[-1], axis=1)),
    "multi_head/2": ("the output of layer 2 with heads 0 and 1 exchanged", lambda: _stories("attn_out", 2)),
    "multi_head/3": ("queries, keys and values of layer 2 by one product",
                     lambda: np.stack([_stories(name, 2) for name in "qkv"])),
    "clean_gpt2/1": ("LayerNorm before block 1", lambda: _clean("normalized.post", 1, "ln1")),
    "clean_gpt2/2": ("the attention of block 1", lambda: _clean("attn_out", 1)),
    "clean_gpt2/3": ("the MLP of block 1", lambda: _clean("mlp_out", 1)),
    "clean_gpt2/4": ("the last stream as a sum", lambda: _clean("resid_post", 3)),
    "clean_gpt2/5": ("the last position of the first attention without a mask",
                     lambda: _clean("attn_out", 0)[-1]),  # it sees all others anyway
    "glass_box/1": ("the position whose key brings the answer back",  # to head 1.0
                    lambda: _patched("attn.hook_k", "position_heads")[1, :, 0].argmax()),
    "glass_box/2": ("what the patterns of the clean text bring back, head by head",
                    lambda: _patched("attn.hook_pattern", "heads")),
    "tokenizer/1": ("the ids of a sentence", lambda: _model("tiny-stories").to_tokens("Zoë's naïve robot said: héllo, 42!")),
    "tokenizer/2": ("the two parts of the last merge of \" little\"", lambda: [b" l", b"ittle"]),
    "cache/1": ("the pattern of layer 0 for the second half of a text", lambda: _stories("pattern", 0, _LILY)[:, 5:]),
    "cache/2": ("the bytes that GPT-2's keys and values take for a token", lambda: 73728),
    "cache/3": ("the logarithm of the probability of the best of eight beams",
                lambda: -_model("tiny-stories").score("She was sad because she didn't know what to do.").nll[-8:].sum()),
    "graph/1": ("what embeddings, features, errors and the constant add to a logit", _shares),
    "graph/2": ("what the graph claims of each node", lambda: [node.claimed for node in _graph().nodes if node.kind != "logit"]),
}

# ---- typical mistakes ----

_FORGOTTEN = {"scale": "were the scores divided by √d_head?", "mask": "is the future hidden?", "bias": "was b_Q added to the queries?"}


def _output(run: attn.Record, model: attn.Model, layer: int, patterns: Any) -> Any:
    """[positions, d_model]: what an attention writes with these patterns."""
    W_O, b_O = (model.tensor(f"blocks.{layer}.attn.{name}") for name in ("W_O", "b_O"))
    return np.einsum("hqk,khd,hdc->qc", patterns, run["v", layer], W_O, optimize=True) + b_O


_Text = tuple[Any, ...]  # as _run takes it
_OF_PATTERNS: dict[str, tuple[_Text, int, Callable[..., Any]]] = {  # exercises that patterns [heads, queries, keys] of a layer lead to
    "scores/3": (("tiny-stories", _LILY), 1, lambda *_: _[-1][4]),
    "self_attention/2": (("induction", _PHRASE), 0, lambda *_: _[-1][1]),
    "self_attention/3": (("induction", _PHRASE), 0, lambda run, model, layer, patterns: patterns[1] @ run["v", layer][:, 1]),
    "multi_head/2": (("tiny-stories", _LILY + " and Lily"), 2, _output),
    "clean_gpt2/2": (("tiny-stories", _SENTENCE, True), 1, _output),
    "cache/1": (("tiny-stories", _LILY), 0, lambda *_: _[-1][:, 5:]),
}


def _without(name: str, forgotten: str) -> Any:
    """The answer to such an exercise of who forgot something."""
    text, layer, value = _OF_PATTERNS[name]
    run, model = _run(*text), _model(text[0])
    q, k = (run[part, layer].swapaxes(0, 1) for part in "qk")
    b_Q = model.tensor(f"blocks.{layer}.attn.b_Q")[:, None]
    scores = (q - b_Q * (forgotten == "bias")) @ k.swapaxes(1, 2) / (1 if forgotten == "scale" else np.sqrt(q.shape[-1]))
    powers = np.exp(scores - scores.max(-1, keepdims=True)) * (1 if forgotten == "mask" else np.tri(q.shape[1]))
    return value(run, model, layer, powers / powers.sum(-1, keepdims=True))


def _mistakes(name: str, want: npt.NDArray[Any]) -> Iterator[tuple[str, Any]]:
    """What typical mistakes give, and what to ask then."""
    yield from ((hint, _without(name, forgotten)) for forgotten, hint in _FORGOTTEN.items() if name in _OF_PATTERNS)
    if name == "clean_gpt2/1":
        b = _model("tiny-stories").tensor("blocks.1.ln1.b")
        yield "is the variance the mean of the squares, ddof=0?", b + (want - b) * np.sqrt(1 - 1 / len(b))
    if name == "scores/2":
        yield "these scores are not divided by √d", want / np.sqrt(3)
    yield from (("is a factor 2 missing?", want / 2), ("is a factor 2 too much?", want * 2), ("is the sign right?", -want))


def _hint(name: str, got: npt.NDArray[Any], want: npt.NDArray[Any]) -> str:
    if got.shape != want.shape or got.dtype.kind not in "if" or want.dtype.kind != "f" and name != "cache/2":
        return ""
    off = np.asarray(got - want, np.float64)
    if off.ndim > 1 and any(np.ptp(off, axis).max() <= 1e-4 for axis in range(off.ndim - 1)):
        return "; all positions are off by the same numbers: is a bias missing?"
    return next((f"; {hint}" for hint, wrong in _mistakes(name, want) if _difference(got, wrong) is None), "")


# ---- comparing ----


def _taken(value: Any) -> _Taken:
    """A value as an array, which can be compared and sent."""
    if value is ... or value is None:
        return _GAP
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype == object:
        return _GAP if ... in array.ravel().tolist() else f"expected an array, got {type(value).__name__} that is none"
    return array


def _shape(array: npt.NDArray[Any]) -> str:
    return f"shape {list(array.shape)}" if array.ndim else "one number" if array.dtype.kind in "biuf" else "one text"


def _shown(text: object) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:300])


def _difference(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> Optional[str]:
    """Where and how far they differ first; None if they do not."""
    exact = want.dtype.kind not in "f"
    if (got.dtype.kind in "US") != (want.dtype.kind in "US") or got.dtype.kind not in "biufUS":
        return f"expected {'texts' if want.dtype.kind in 'US' else 'numbers'}, got {got.dtype}"
    if got.dtype.kind == "U" and want.dtype.kind == "S":
        got = np.char.encode(got, "utf-8")
    if got.shape != want.shape:
        return f"it has {_shape(got)}, expected {_shape(want)}"
    if exact:
        wrong = np.asarray(got != want)
    else:
        with np.errstate(all="ignore"):
            off = np.abs(got.astype(np.float64) - want)
            wrong = ~((off <= 1e-4 * np.maximum(1, np.abs(want))) | (got == want) | (np.isnan(got) & np.isnan(want)))
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f"entry {list(first)} is " if first else "it is "
    others = f" ({wrong.sum()} of {wrong.size} entries differ)" if first else ""
    if exact:
        return f"{place}{_shown(repr(got[first].item()))}, which is another{others}"
    far = f"off by about {float(f'{off[first]:.1g}'):g}" if np.isfinite(off[first]) else "which is another"
    return f"{place}{got[first]:.6g}, {far}{others}"


@dataclass(frozen=True)
class Checked:
    """What attn.check found, which is also its truth: `if attn.check(...)`."""

    name: str
    right: bool
    says: str

    def __bool__(self) -> bool:
        return self.right

    def _ipython_display_(self) -> None:
        """It has been printed."""


def _judge(name: str, taken: _Taken) -> Checked:
    if isinstance(taken, str):
        return Checked(name, False, taken)
    want = np.asarray(_CHECKS[name][1]())
    says = _difference(taken, want)
    says = says and says + _hint(name, taken, want)
    return Checked(name, says is None, says or "right")


_send: Optional[Callable[[str, _Taken], None]] = None  # while a notebook is graded: to the process that compares


def check(name: str, value: Any) -> Checked:
    """Is the value the answer to this exercise? Prints what it finds."""
    if not isinstance(name, str) or name not in _CHECKS:
        of = [known for known in _CHECKS if known.startswith(str(name).partition("/")[0] + "/")] or list(_CHECKS)
        raise ValueError(f"there is no check {name!r}; there are {', '.join(of)}")
    taken = _taken(value)
    if _send:
        _send(name, taken)
    found = _judge(name, taken)
    print(f"{name}: {found.says}")
    return found


class _Callable(types.ModuleType):
    """So that attn.check is this module, which `python -m` runs, and can be called."""

    __call__ = staticmethod(check)


sys.modules[__name__].__class__ = _Callable

# ---- grading ----


def _sources(path: pathlib.Path) -> list[str]:
    """The code of a notebook's cells, without IPython's own lines."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a notebook of Jupyter's format 4") from None
    return ["" if text.lstrip().startswith("%%") else re.sub(r"^([ \t]*)[%!].*", r"\1pass", text, flags=re.M)
            for text in texts]


def _run_cells(path: str, to: str) -> None:
    """In a process of its own: runs the cells, and writes the values of checks, and errors, to a file."""
    global _send
    names: dict[str, Any] = {"__name__": "__main__", "display": lambda *_, **__: None}
    with open(to, "ab", 0) as out:
        def send(name: str, taken: _Taken) -> None:
            data = io.BytesIO()
            if not isinstance(taken, str):
                np.save(data, taken, allow_pickle=False)
            line = {"name": name, "says": taken if isinstance(taken, str) else None, "size": data.tell()}
            out.write(json.dumps(line).encode() + b"\n" + data.getvalue())

        _send = send
        for number, source in enumerate(_sources(pathlib.Path(path)), 1):
            try:
                exec(compile(source, f"cell {number}", "exec"), names)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                says = f"cell {number}: {type(error).__name__}: {error}"
                out.write(json.dumps({"error": says}).encode() + b"\n")


_Sent = tuple[dict[str, _Taken], list[str]]  # the last value for each check, and errors


def _received(data: bytes) -> _Sent:
    """What a notebook's process wrote. Anything may stand there, as the cells can write to the file, too."""
    values: dict[str, _Taken] = {}
    errors, file = [], io.BytesIO(data)
    try:
        for line in iter(file.readline, b""):
            head = json.loads(line)
            if "error" in head:
                errors.append(_shown(head["error"]))
                continue
            body = io.BytesIO(file.read(int(head["size"])))
            if head["name"] in _CHECKS:
                values[head["name"]] = _shown(head["says"]) if head["says"] else np.load(body, allow_pickle=False)
    except Exception:  # of json or of NumPy
        errors.append("its last value cannot be read")
    return values, errors


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and what it started."""
    if os.name == "posix":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.kill()
    process.wait()


def _values(path: pathlib.Path, limit: float) -> _Sent:
    """Runs a notebook."""
    package = str(pathlib.Path(attn.__file__).resolve().parents[1])
    paths = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "MPLBACKEND": "Agg", "ATTN_LIBRARY": attn._library.lib._name}
    with tempfile.TemporaryDirectory() as scratch:
        folder, to = pathlib.Path(scratch) / "cells", pathlib.Path(scratch) / "sent"
        folder.mkdir()
        to.touch()
        command = [sys.executable, "-c", "import sys, attn.check; sys.modules['attn.check']._run_cells(*sys.argv[1:])",
                   str(path.resolve()), str(to)]
        late = []
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                if process.wait(limit):
                    late = [f"its process ended with {process.returncode} before its last cell"]
            except subprocess.TimeoutExpired:
                late = [f"stopped after {limit:g} seconds"]
            finally:
                _end(process)
        if to.stat().st_size > _MOST:
            return {}, [f"its values are larger than {_MOST} bytes together"]
        values, errors = _received(to.read_bytes())
        return values, errors + late


def grade(path: Union[str, os.PathLike[str]], limit: float = _LIMIT) -> tuple[list[Checked], list[str]]:
    """Runs a notebook from the top, for at most `limit` seconds. Gives what its checks found, all those of the notebooks
    whose checks it has, and its errors."""
    path = pathlib.Path(path)
    text = "\n".join(_sources(path))
    parts = {name.partition("/")[0] for name in re.findall(r"check\(\s*['\"]([^'\"]+)['\"]", text)}
    values, errors = _values(path, limit)
    found = [_judge(name, values[name]) if name in values else Checked(name, False, "no value was given")
             for name in _CHECKS if name.partition("/")[0] in parts]
    return found, errors + ([] if found else ["no cell has a check"])


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attn.check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="that was handed in")
    parser.add_argument("--csv", action="store_true", help="a table: notebook, check, right, says")
    parser.add_argument("--limit", type=float, default=_LIMIT, metavar="SECONDS", help=f"for each notebook ({_LIMIT})")
    options = parser.parse_args()
    if not options.notebooks:
        for name, (what, _) in _CHECKS.items():
            print(f"{name:17} {what}")
        return 0
    all_right = True
    table = csv.writer(sys.stdout, lineterminator="\n")
    if options.csv:
        table.writerow(("notebook", "check", "right", "says"))
    for path in options.notebooks:
        try:
            found, errors = grade(path, options.limit)
        except (OSError, ValueError) as error:
            found, errors = [], [str(error)]
        n_right = sum(map(bool, found))
        all_right &= bool(found) and n_right == len(found)
        if options.csv:
            table.writerows((path, each.name, int(each.right), each.says) for each in found)
            table.writerows((path, "", "", error) for error in errors)
        else:
            print(f"{path}: {n_right} of {len(found)} right",
                  *(f"  {each.name:17} {each.says}" for each in found), *(f"  {error}" for error in errors), sep="\n")
        sys.stdout.flush()
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(_main())

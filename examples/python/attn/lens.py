"""Research on an attn.Model: patching, gradients, edges, paths, circuits, sparse autoencoders.

What exists:

    questions   query, commands, describe, Answer, Command, Setting
    patching    Pair, pairs, Metric, logit_diff, log_prob, loss, function; patch, path_patch, ablate_heads, exact_effects,
                interactions, shapley; Edit, Patched, Joint, Ablated
    over pairs  each=True or each="x.npz", the numbers of every pair: Each; ci=True, intervals and p-values: Spread
    gradients   Backward, Gradients; edges, Edges, prune, Pruned, best_edges, edge_names, curve, Curve
    the stream  decompose_resid, Parts, parts, logit_lens, TunedLens
    heads       patterns, Picture, heads, detect_heads, detect_head, qk_terms
    weights     circuit, FactoredMatrix, composition_scores, ov_eigenvalues, copying_scores, refactor_attention
    steering    steering_vector, control_vector, add_control
    features    SAE, load_sae; graph, FeatureGraph, GraphNode

query asks whatever the program lens can be asked, in the words of its --help: texts, and settings by name. The other
functions take what is no text: metrics and edits of your own, arrays, hooks.

A first look:

    import attn
    from attn import lens
    model = attn.load("tiny-stories")
    answer = lens.query(model, "patch", "Tom was a boy. He", "Tom was a girl. He", by="heads")
    answer.to_numpy(), answer.to_pandas(), answer.facts["gap"]               # [1, layers, heads], a row for each, a number
    answer.save("patch.svg")                                                 # or .html, .csv, .json, .npz
    pair = lens.Pair("The cat said that she", "The boy said that she", lens.logit_diff(" was", " had"))
    lens.patch(model, pair, "hook_resid_pre").effect                         # [layers, positions]
    lens.patch(model, pair, "attn.hook_z", "heads", normalize=True).effect   # [layers, heads]

    back = lens.Backward(model)
    back.attribution_patch(pair, "attn.hook_z")                              # estimates, one backward pass
    back.gradients("The cat said that", lens.loss(), ["*.hook_resid_post"])  # d loss / d activation
    back.edge_scores(pair)                                                   # EAP, [senders, receivers]

    lens.path_patch(model, pair, ["L0H1", (0, 2)], [("L2H3", "hook_q_input")], mlps="through").effect
    lens.circuit(model, "L3H5", kind="OV").S                                 # singular values of W_V · W_O

A head is "L3H5", "a3.h5", "3.5" or (3, 5) for every function.

patterns, heads, parts, qk_terms, logit_lens and edges give pictures, and so do what patch, ablate_heads and curve give: the
last line of a notebook's cell shows them, print gives text, save("x.svg" or "x.png"), to_numpy() and to_pandas() the rest.

These are the headers of tools/lens, which libattn.so carries; their comments have the formulas, shapes
and papers. tools/lens/transformerlens.md says which of TransformerLens's functions each of them is.
"""
from __future__ import annotations

import ctypes
import difflib
import json
import math
import operator
import os
import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_float, c_size_t, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, TypeVar, Union, get_args

import numpy as np
import numpy.typing as npt

import attn
from attn import Array, EditKind, Path, Positive, Progress, Seed, Span, Tokens, _arguments, _files, _pictures, _query, _words
from attn._arguments import coded, floats, listed
from attn._library import HOOK_FN, METRIC_FN, C, Handle, attn_ctx, attn_tensor as _T, from_c, lib as _lib, made_with
from attn._pictures import Axis, Chart, Graph, Picture, positions, visible
from attn._query import Answer, Command, Setting, commands, describe

if TYPE_CHECKING:
    from attn.lens_commands import query
else:
    from attn._query import query

__all__ = ["Ablated", "Answer", "Backward", "Command", "Curve", "Each", "Edges", "Edit", "FactoredMatrix", "FeatureGraph", "Gradients",
           "GraphNode", "Joint", "Metric", "Pair", "Parts", "Patched", "Picture", "Pruned", "SAE", "Setting",
           "Spread", "TunedLens", "ablate_heads", "add_control", "best_edges", "circuit", "commands", "composition_scores", "control_vector",
           "copying_scores", "curve", "decompose_resid", "describe", "detect_head", "detect_heads", "edge_names", "edges",
           "exact_effects", "function", "graph", "heads", "interactions", "load_sae", "log_prob", "logit_diff",
           "logit_lens", "loss", "ov_eigenvalues", "pairs", "parts", "patch", "path_patch", "patterns", "prune", "qk_terms", "query",
           "refactor_attention", "shapley", "steering_vector"]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        raise _words.missing_in_module("attn.lens", name, sys._getframe(1))

Token = Union[int, str]
By = Literal["positions", "heads", "position_heads", "sources", "source_heads", "weights"]
Head = Union[str, tuple[int, int]]  # "L0H1", "a0.h1", "0.1" or (0, 1)
LayerOrHead = Union[int, Head]
Sender = Union[Head, tuple[int, Literal["mlp"]], Literal["embed"]]
Receiver = Union[tuple[Union[int, Head], str], tuple[int, str, int]]  # layer, activation, and of a head's input the head
Method = Literal["plain", "gim", "gim_norm", "gim_softmax", "gim_qkv"]  # of the backward pass: gim's rules, or one alone
EdgeMethod = Literal["eap", "eap_ig", "gim", "gim_norm", "gim_softmax", "gim_qkv"]
_RULES = {"gim": 7, "gim_norm": 1, "gim_softmax": 2, "gim_qkv": 4}  # lens_rule; of other methods 0
Ablation = Literal["corrupted", "zero", "mean"]
PartsKind = Literal["streams", "streams_mid", "sublayers", "attns", "mlps", "heads", "neurons"]
HeadKind = Literal["previous", "duplicate", "induction"]
EachFile = Union[bool, Path]
SpreadOf = Literal["values", "changes", "shares"]
MetricKind = Literal["loss", "logit", "logit_diff", "log_prob", "function", "function_at"]
_KEYS = ("key", "key_token")  # the position of a key and its token


def _number_in(kinds: Any, name: str) -> int:
    """The number of a kind in C, whose enums have the order of the Literals here."""
    return get_args(kinds).index(name)


# ---- metrics, pairs, edits ----


@dataclass(frozen=True)
class Metric:
    """A number from the logits of a text: logit_diff, log_prob, loss or function make one."""

    kind: str
    token: Optional[Token] = None
    against: Optional[Token] = None
    from_end: int = 0  # the position: 0 is the last
    targets: Optional[tuple[int, ...]] = None
    fn: Optional[Callable[[Array], Any]] = None


def logit_diff(token: Token, against: Optional[Token] = None, *, from_end: int = 0) -> Metric:
    """logits[token] - logits[against], or logits[token], `from_end` positions before the last. Tokens are
    ids, or texts that are one token."""
    return Metric("logit" if against is None else "logit_diff", token, against, from_end)


def log_prob(token: Token, *, from_end: int = 0) -> Metric:
    """The log-probability of a token."""
    return Metric("log_prob", token, None, from_end)


def loss(targets: Optional[Sequence[int]] = None) -> Metric:
    """The mean of -log p over all positions: of the text's own next tokens, or of targets [T], where -1
    counts none."""
    if targets is not None:
        row = _arguments.take("loss()", "targets", targets, ("one row of token ids, -1 for none", _row_of_ids))
    return Metric("loss", targets=None if targets is None else row)


def _row_of_ids(targets: Any) -> tuple[int, ...]:
    if np.ndim(targets) != 1:
        raise ValueError
    return tuple(operator.index(token) for token in targets)


def function(fn: Callable[[Array], Any], *, from_end: Optional[int] = None) -> Metric:
    """fn(logits [T, n_vocab]), or of one position, fn(logits [n_vocab]), gives a number; where gradients
    are asked for, a pair of the number and d number / d logits, in the shape of the logits. (With batch_dim the
    logits of all positions are [1, T, n_vocab].)"""
    return Metric("function" if from_end is None else "function_at", from_end=from_end or 0, fn=fn)


class Pair(NamedTuple):
    """Two texts of as many tokens, and a question whose answer differs between them."""

    clean: Tokens
    corrupted: Tokens
    metric: Metric


Pairs = Union[Pair, Sequence[Pair]]


def pairs(model: attn.Model, task: str, count: Positive = 100, *, seed: Seed = 0, template: Optional[int] = None) -> list[Pair]:
    """Pairs of a task whose circuit is known ("ioi", "greater-than", "pronouns", "agreement" or "capitals"), drawn as
    lens.query(model, "pairs", ...) draws them. template: all by this one of the task's, for as many tokens in each."""
    made = _query.query(model, "pairs", task, count=count, seed=seed, template=template).tables["pairs"].values()
    return [Pair(clean, corrupted, logit_diff(*tokens)) for _, clean, corrupted, *tokens in zip(*made)]


@dataclass(frozen=True)
class Edit:
    """A change that is in force in every run, as Session.edit makes it: Edit("blocks.0.attn.hook_z",
    "zero", heads=3)."""

    name: attn.SomeNames
    kind: EditKind
    value: Optional[npt.ArrayLike] = None
    positions: Span = None
    heads: Span = None


Edits = Union[Edit, Sequence[Edit]]
OneName = str
Activation = str  # of every layer, such as "attn.hook_z"
Groups = dict[str, Sequence[str]]


class Spread(NamedTuple):
    """Of means over pairs: the mean, or share; the ends of its 95 % interval; the p-value, corrected for all numbers."""

    mean: Array
    low: Array
    high: Array
    p: Array


class Each(NamedTuple):
    """The numbers of every pair, and the metrics of its texts. each="x.npz" writes these three arrays."""

    numbers: Array  # [pairs, ...]
    clean: Array  # [pairs]
    corrupted: Array  # [pairs]

    def spread(self, of: SpreadOf = "values", diagonal: Optional[bool] = None) -> Spread:
        """Percentile bootstrap with 10,000 samples of the pairs, and sign flips with Holm's correction, of the means of the
        numbers; of "changes", numbers - corrupted; of "shares", these divided by clean - corrupted, each of them summed. diagonal:
        of symmetric numbers [pairs, n, n], where each two count once, whether the diagonal counts."""
        rows = np.column_stack([self.clean, self.corrupted, np.reshape(self.numbers, (len(self.clean), -1))])
        rows, out = np.ascontiguousarray(rows, np.float32), np.zeros((rows.shape[1] - 2, 4))
        ctx = attn_ctx()
        ctx.run(_lib.lens_spreads, out.ctypes.data, rows.ctypes.data, len(rows), len(out), _number_in(SpreadOf, of), long=True)
        if diagonal is None:
            ctx.run(_lib.lens_holm, out.ctypes.data, len(out))
        elif np.shape(self.numbers)[1:-1] != np.shape(self.numbers)[-1:]:
            raise _arguments.wrong("spread()", "diagonal", diagonal, f"None for numbers of shape {list(np.shape(self.numbers))}, which are "
                                   "not [pairs, n, n]", ValueError)
        else:
            ctx.run(_lib.lens_holm_pairs, out.ctypes.data, self.numbers.shape[-1], diagonal)
        return Spread(*out.T.reshape(4, *np.shape(self.numbers)[1:]))


_Same = TypeVar("_Same", bound="_Result")


class _Result:
    """Numbers that a notebook shows as a picture, and what each and ci add."""

    _shows: str  # the numbers
    each: Optional[Each] = None
    spread: Optional[Spread] = None
    _diagonal: Optional[bool] = None  # of symmetric numbers, as Each.spread takes it

    def picture(self, title: str = "") -> Any:
        """The result as a picture, which a notebook shows of itself."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        shown: str = self.picture()._repr_html_()
        return shown

    def __repr__(self) -> str:
        return repr(self.picture())

    def to_numpy(self) -> Array:
        """The effect, the change, the scores or the faithfulness."""
        numbers: Array = getattr(self, self._shows)
        return numbers

    def save(self, path: Path) -> None:
        """Writes the picture as an .svg or .png file."""
        self.picture().save(path)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each number: what it belongs to, in columns such as layer and head, and value."""
        return self.picture().to_pandas()

    def _grid(self, title: str, values: Array, axes: Sequence[Axis]) -> Picture:
        """Values of one to three axes as a picture; of three, the first has a panel for each place. A dot: its interval has 0."""
        three = [{}, {}, *axes][-3:] if len(axes) > 1 else [{}, *axes, {}]
        shape = [len(next(iter(axis.values()), [0])) for axis in three]
        panels, rows, columns = map(_labels, three)
        unsure = None if self.spread is None else ~((self.spread.low > 0) | (self.spread.high < 0)).reshape(shape)
        return Picture(title, values.reshape(shape), [f"layer {panel}" for panel in panels] if three[0] else [""], rows, columns,
                       (three[0], three[1], three[2]), unsure)

    def _told(self: _Same, asked: _Question, rows: Optional[Array], shape: Sequence[int], of: SpreadOf) -> _Same:
        if rows is not None:
            found = Each(rows[:, 2:].reshape(len(rows), *shape), rows[:, 0], rows[:, 1])
            vars(self).update(each=found if asked.each else None, spread=found.spread(of, self._diagonal) if asked.ci else None)
            if not isinstance(asked.each, bool):
                np.savez(asked.each, **found._asdict())
        return self


class _Measured(NamedTuple):
    effect: Array
    clean: float
    corrupted: float


class Patched(_Measured, _Result):
    """The metric of every patched run, and of the two that are not patched; means over the pairs."""

    axes: Sequence[Axis] = ()  # of the effect
    _shows = "effect"

    def picture(self, title: str = "") -> Picture:
        """The effect as a picture, which a notebook shows of itself: a row for a layer (or a sender of a path), and a
        panel for each layer where there are more axes."""
        if not 0 < self.effect.ndim <= 3:
            raise ValueError(f"a picture shows one to three axes, and the effect has shape {list(self.effect.shape)}")
        named = self.axes or [{f"axis {i}": range(n)} for i, n in enumerate(self.effect.shape)]
        return self._grid(f"{title or 'effect'}: clean {self.clean:.2f}, corrupted {self.corrupted:.2f}", self.effect, named)

    def _repr_html_(self) -> str:
        return super()._repr_html_() if self.effect.ndim <= 3 else f"<pre>{self!r}</pre>"


def _labels(axis: Axis) -> list[str]:
    """What a picture writes at each place of an axis."""
    first, *others = axis.values() or [["effect"]]
    if "token" in axis and others:
        return [f"{position} {visible(token)}" for position, token in zip(first, others[0])]
    return [str(entry) for entry in first]


class _Question:
    """What C is asked, and what must live until it has answered."""

    def __init__(self, model: attn.Model, pairs: Pairs = (), edits: Edits = (), progress: Progress = None, each: EachFile = False,
                 ci: bool = False, name: str = "pairs") -> None:
        self.model, self.how, self.each, self.ci, self.goes_back = model, progress, each, ci, False
        self.kept: list[Any] = []
        self.pairs, self.edits = self._pairs(pairs, name), self._edits(edits)

    def ids(self, tokens: Tokens, name: str = "tokens") -> attn.Ids:
        ids = self.model._ids(tokens, name=name)
        self.kept.append(ids)
        return ids

    def metric(self, metric: Metric, n_tokens: int) -> Any:
        """C's description of a metric of a text of so many tokens."""
        if not isinstance(metric, Metric):
            raise _arguments.wrong("", "metric", metric, "what logit_diff, log_prob, loss or function make")
        fn, is_whole = metric.fn, metric.kind == "function" and self.model.batch_dim

        def measure(value: Any, d_logits: _T, logits: _T) -> None:
            def use(array: Array) -> None:
                found = fn(array[0] if metric.kind == "function_at" else array[None] if is_whole else array) if fn else 0
                number, gradient = found if isinstance(found, tuple) else (found, None)
                value[0] = float(number)
                if self.goes_back:
                    if np.size(gradient) != array.size:  # that of None is 1
                        raise _arguments.wrong("", "the gradient of lens.function(...)", gradient, "a pair of the number and "
                                               f"d number / d logits, of shape {list(np.shape(array))}, from the function", ValueError)
                    attn._view(d_logits)[...] = np.reshape(floats(gradient), array.shape)
            attn._lend(logits, "the logits", use)

        callback = METRIC_FN(lambda value, d_logits, logits, _: from_c(lambda: measure(value, d_logits, logits)))
        targets = None if metric.targets is None else np.asarray(metric.targets, np.int64)
        if targets is not None:
            if len(targets) != n_tokens:
                raise ValueError(f"targets: loss() has {len(targets)} targets, and the text {n_tokens} tokens; expected one for each "
                                 "token, -1 for none")
            if (outside := targets[targets != targets.astype(np.int32)]).size:
                raise ValueError(f"targets: a target is {outside[0]}; expected -1 for none, or a token")
            targets = targets.astype(np.int32)
        self.kept += [callback, targets]
        token, against = (0 if t is None else self.model._token(t, name) for t, name in
                          ((metric.token, "token"), (metric.against, "against")))
        return C.lens_metric(_number_in(MetricKind, metric.kind), token, against, metric.from_end,
                             None if targets is None else targets.ctypes.data,
                             ctypes.cast(callback, c_void_p) if fn else None)

    def _pairs(self, pairs: Pairs, name: str) -> Any:
        """A C array of pairs."""
        made = []
        for pair in [pairs] if isinstance(pairs, Pair) else _arguments.take("", name, pairs, ("a Pair, or a list of them", list)):
            if not isinstance(pair, Pair):
                raise _arguments.wrong("", name, pairs, "a Pair(clean, corrupted, metric), or a list of them")
            clean, corrupted = self.ids(pair.clean, "clean"), self.ids(pair.corrupted, "corrupted")
            if len(clean) != len(corrupted):
                raise ValueError(f"{name}: the clean text has {len(clean)} tokens and the corrupted one {len(corrupted)}; "
                                 "patching needs as many in both")
            made.append(C.lens_pair(clean.ctypes.data, corrupted.ctypes.data, len(clean), self.metric(pair.metric, len(clean))))
        return (C.lens_pair * len(made))(*made)

    def _edits(self, edits: Edits) -> Any:
        """A C array of edits."""
        listed = [edits] if isinstance(edits, Edit) else edits
        if not all(isinstance(e, Edit) for e in listed):
            raise _arguments.wrong("", "edits", edits, "a list of lens.Edit(name, kind, ...)")
        made = [attn._edit_of(name, e.kind, e.value, e.positions, e.heads, self.model.batch_dim) for e in listed
                for name in self.model._chosen(e.name)]
        self.kept.append(made)
        return (C.attn_edit * len(made))(*[desc for desc, _ in made])

    def told(self, desc: Any, what: str) -> Any:
        """The description of a call with the pairs and edits, as far as it takes them, and how to tell how far it is."""
        callback, show = attn._progress_fn(self.how, what)
        self.kept.append(callback)
        for name in {"pairs", "edits"}.intersection(dict(desc._fields_)):
            for field, value in zip((name, f"n_{name}"), _counted(getattr(self, name))):
                setattr(desc, field, value)
        desc.progress = ctypes.cast(callback, c_void_p) if show else None
        return desc

    def need_spread(self) -> None:
        if self.ci:
            attn_ctx().run(_lib.lens_need_spread, len(self.pairs))

    def rows(self, desc: Any, shape: Sequence[int]) -> Optional[Array]:
        """Where C writes the numbers of every pair, as spread.h has them, and tells the description so."""
        self.need_spread()
        if not (self.each or self.ci):
            return None
        rows = np.zeros((len(self.pairs), 2 + math.prod(shape)), np.float32)
        desc.each = rows.ctypes.data
        return rows

    def run(self, function: Any, *arguments: Any) -> None:
        self.model._context().run(function, *arguments, long=True)

    def filled(self, shape: tuple[int, ...], function: Any, *arguments: Any) -> Array:
        return self.model._context().filled(shape, function, *arguments, long=True)

    def measured(self, shape: tuple[int, ...], function: Any, desc: Any, what: str) -> tuple[Array, Any, Optional[Array]]:
        """What a function of C measures that patches as its description says, the baseline, and the numbers of every pair."""
        effect, baseline, rows = np.zeros(shape, np.float32), C.lens_baseline(), self.rows(desc, shape)
        self.run(function, byref(_T.of(effect)), byref(baseline), self.model._handle, byref(self.told(desc, what)))
        return effect, baseline, rows

    def patched(self, axes: Sequence[Axis], function: Any, desc: Any, what: str, of: SpreadOf) -> Patched:
        """The same as a result, with a number for each place on the axes."""
        shape = tuple(len(next(iter(axis.values()), ())) for axis in axes)
        effect, baseline, rows = self.measured(shape, function, desc, what)
        if of == "shares" and (told := _lib.lens_no_gap(byref(baseline)).text.decode()):
            warnings.warn(told, stacklevel=4)  # of who called the function, past the check of its arguments
            of = "changes"
        found = Patched(effect, baseline.clean, baseline.corrupted)
        found.axes = tuple(axes)
        return found._told(self, rows, shape, of)


def _counted(array: Any) -> tuple[Optional[int], int]:
    """A C array as a description has it: its address and its length."""
    return ctypes.addressof(array) if len(array) else None, len(array)


def _in_blocks(model: attn.Model, name: str) -> bytes:
    """The name of an activation as blocks.0. has it."""
    names = [known[9:] for known in model.activation_names() if known.startswith("blocks.0.")]
    if name not in names:
        short = name.split(".", 2)[2] if name.startswith("blocks.") and name.count(".") > 1 else name
        near = [known for known in names if known == short or known.endswith(f"hook_{short}")] or difflib.get_close_matches(
            short, names, 1)
        raise attn.Error(attn.Status.NAME, f"no layer has an activation {name}" +
                         (f'; is it "{near[0]}", of all layers?' if near else f", but for example {names[0]}"))
    return coded(name)


# ---- patching ----


def patch(model: attn.Model, pairs: Pairs, name: Activation, by: By = "positions", *, normalize: bool = False,
          edits: Edits = (), progress: Progress = None, each: EachFile = False, ci: bool = False) -> Patched:
    """Activation patching: the metric of the corrupted text with a part of blocks.i.`name` as it is in the
    clean text, for each layer i and each part; the mean over the pairs.

    by: "positions" [layers, positions], "heads" [layers, heads], "position_heads" [layers, positions,
    heads]; of attn.hook_pattern and attn.hook_attn_scores one key of all queries, "sources" [layers, keys]
    and "source_heads" [layers, keys, heads], and "weights" [layers, heads, queries, keys].
    normalize: (mean - corrupted mean) / (clean mean - corrupted mean); without a gap, mean - corrupted mean and a warning.
    edits: in force in all runs, so that an ablated model can be patched.
    progress: True for a bar, or a function that is given the share that is done.
    each: True for the numbers of every pair in .each, or an .npz file to write them to as well. ci: intervals and p-values
    in .spread, of the changes of the corrupted metric, with normalize of the shares."""
    asked = _Question(model, pairs, edits, progress, each, ci)
    at = positions(model._labels(asked.kept[0])) if len(asked.pairs) else {}  # of the first pair's clean text
    if len(asked.pairs) > 1:  # whose tokens differ
        at = {"position": at["position"]}
    keys, heads, layers = dict(zip(_KEYS, at.values())), {"head": range(model.config.n_head)}, {"layer": range(model.config.n_layer)}
    axes: dict[str, list[Axis]] = {"positions": [at], "sources": [at], "heads": [heads], "weights": [heads, at, keys]}
    desc = C.lens_patch_desc(name=_in_blocks(model, name), kind=_number_in(By, by), normalize=normalize)
    return asked.patched([layers, *axes.get(by, [at, heads])], _lib.lens_patch, desc, "patch",
                         "shares" if normalize else "changes")


@dataclass(frozen=True, repr=False)
class Ablated(_Result):
    """By how much a metric changes without each head, [layers, heads], and the metric of the whole model."""

    change: Array
    whole: float
    _shows = "change"

    def picture(self, title: str = "") -> Picture:
        axes = [{name: range(n)} for name, n in zip(("layer", "head"), self.change.shape)]
        return self._grid(f"{title or 'change without a head'}; whole model {self.whole:.3f}", self.change, axes)


def ablate_heads(model: attn.Model, tokens: Union[Tokens, Pairs], metric: Optional[Metric] = None, *, edits: Edits = (),
                 progress: Progress = None, each: EachFile = False, ci: bool = False) -> Ablated:
    """A sweep over all heads: the metric (None: loss()) of the text when one head's z is zero, less that of the whole model.
    Of several texts the mean, and so of Pairs, over their clean texts and own metrics. each, ci: as in patch, of the changes."""
    given = [tokens] if isinstance(tokens, Pair) else tokens
    several = isinstance(given, (list, tuple)) and any(isinstance(text, (Pair, str, list, tuple)) for text in given)
    listed: Any = given if several else [tokens]
    n_pairs = sum(isinstance(text, Pair) for text in listed)
    if n_pairs not in (0, len(listed)):
        raise _arguments.wrong("ablate_heads()", "tokens", tokens, "texts alone, or Pairs alone")
    if n_pairs and metric is not None:
        raise _arguments.wrong("ablate_heads()", "metric", metric, "nothing, for a Pair has a metric of its own", ValueError)
    if (each or ci) and not several:
        raise ValueError("ablate_heads(): each and ci are of means over texts; expected a list of them, or of Pair(clean, corrupted, metric)")
    asked, made = _Question(model, (), edits, progress, each, ci), []
    for text in listed:
        of = text.metric if n_pairs else loss() if metric is None else metric
        ids = asked.ids(text.clean if n_pairs else text)
        made.append(C.lens_pair(ids.ctypes.data, None, len(ids), asked.metric(of, len(ids))))
    asked.pairs, desc = (C.lens_pair * len(made))(*made), C.lens_ablate_desc()
    shape, whole = (model.config.n_layer, model.config.n_head), ctypes.c_double()
    change, rows = np.zeros(shape), asked.rows(desc, shape)
    asked.run(_lib.lens_ablate_heads, change.ctypes.data, byref(whole), model._handle, byref(asked.told(desc, "ablate_heads")))
    return Ablated(change.astype(np.float32), whole.value)._told(asked, rows, shape, "values")


_number: Callable[[Any], int] = _arguments.KINDS["int"][1]


def _head(of: Any) -> tuple[int, int]:
    """The layer and the head of any of its names."""
    if isinstance(of, str):
        found = re.fullmatch(r"L(\d+)H(\d+)|a(\d+)\.h(\d+)|(\d+)\.(\d+)", of)
        of = [int(part) for part in found.groups() if part] if found else []
    layer, head = listed(of)
    return _number(layer), _number(head)


_HEAD: _arguments.Kind = ('a head, such as "L0H1", "a0.h1", "0.1" or (0, 1)', _head)


def _layer_and_head(layer: Any, head: Optional[int]) -> Any:
    """Both, of which the first may be a head's name."""
    return layer if isinstance(layer, tuple) and head is None else (layer, head)


def _senders(given: Any) -> list[tuple[Optional[int], Any]]:
    """The layer and the head of each, or "mlp"; of "embed" no layer."""
    return [(None, of) if isinstance(of, str) and of == "embed" else (_number(of[0]), "mlp") if len(of) == 2 and of[1] == "mlp" else
            _head(of) for of in listed(given)]


def _receivers(given: Any) -> list[tuple[int, Any, Any]]:
    """The layer, the activation, and of a head's input the head, else ()."""
    found = []
    for of in listed(given):
        layer, to, *head = listed(of)
        if isinstance(layer, (str, tuple)) and not head:
            layer, *head = _head(layer)
        if len(head) != (to in ("hook_q_input", "hook_k_input", "hook_v_input")):
            raise ValueError  # a head that nobody reads, or that nobody chose
        found.append((_number(layer), coded(to).decode(), (*map(_number, head),)))
    return found


def path_patch(model: attn.Model, pairs: Pairs, senders: Sequence[Sender], receivers: Sequence[Receiver], *,
               mlps: Literal["frozen", "through"] = "frozen", each_receiver: bool = False, normalize: bool = False,
               edits: Edits = (), progress: Progress = None, each: EachFile = False, ci: bool = False) -> Patched:
    """Path patching: in the run of the corrupted text, one sender's output takes its value of the clean
    text, for the receivers alone. Returns the metric: [senders], or [senders, receivers] with each_receiver.

    senders: heads, (layer, "mlp"), or "embed", the embeddings. receivers, all at once: (layer, "hook_resid_pre" or "hook_mlp_in"),
    or (layer, "hook_q_input", "hook_k_input" or "hook_v_input", head), or ("L0H1", "hook_q_input"); (n_layer, "hook_resid_pre") is the stream that
    is unembedded. mlps: between both they stay "frozen" as in the corrupted text (Goldowsky-Dill et al.
    2023), or pass on what the sender wrote, "through" (Wang et al. 2022). each, ci: as in patch."""
    asked = _Question(model, pairs, edits, progress, each, ci)
    starts = _arguments.take("path_patch()", "senders", senders, ('heads such as "L0H1" or (0, 1), (layer, "mlp") or "embed"', _senders))
    targets = _arguments.take("path_patch()", "receivers", receivers, (
        '(layer, "hook_resid_pre"), (layer, "hook_q_input", head) or ("L0H1", "hook_q_input") each', _receivers))
    kinds = {"embed": 0, "mlp": 2}  # a head is 1
    heads = (C.lens_sender * len(starts))(*[C.lens_sender(kinds.get(part, 1), layer or 0, 0 if part in kinds else part)
                                            for layer, part in starts])
    ends = (C.lens_receiver * len(targets))(*[C.lens_receiver(layer, coded(to), *head) for layer, to, head in targets])
    desc = C.lens_paths_desc(None, 0, *_counted(heads), *_counted(ends), each_receiver, mlps == "through", normalize)
    start: Axis = {"from": [part if layer is None else f"{layer}.{part}" for layer, part in starts], "layer": [layer for layer, _ in starts],
                   "head": [None if part in kinds else part for _, part in starts]}
    end: Axis = {"to": [".".join(["blocks", *map(str, (layer, to, *head))]) for layer, to, head in targets]}
    return asked.patched([start, *[end] * each_receiver], _lib.lens_patch_paths, desc, "path_patch",
                         "shares" if normalize else "changes")


def exact_effects(model: attn.Model, pairs: Pairs, of: Literal["edges", "nodes"] = "edges", *, edits: Edits = (),
                  progress: Progress = None, each: EachFile = False, ci: bool = False) -> Patched:
    """By how much the clean text's metric changes when one receiver alone reads what one sender writes in
    the corrupted text: [senders, receivers], each edge by a run of its own; of="nodes": [senders], all
    edges of one sender together. The mean over the pairs. edge_names(model) names both axes. each, ci: as in patch, of the
    effects."""
    asked = _Question(model, pairs, edits, progress, each, ci)
    axes: list[Axis] = [{name: names} for name, names in zip(("from", "to"), edge_names(model))]
    return asked.patched(axes[:1 + (of == "edges")], _lib.lens_exact_effects, C.lens_exact_desc(of_nodes=of == "nodes"), "exact_effects",
                         "values")


class Joint(Patched):
    """What nodes do together: the effect is [nodes, nodes], their interactions, and of shapley() the Shapley values on the diagonal."""

    sets: Array  # the effect of every two nodes together, [nodes, nodes]; of shapley() that of every set, [2 ** nodes], bit i for node i
    ablation: Ablation  # what the nodes wrote instead

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, ablation={self.ablation!r})"

    def picture(self, title: str = "") -> Picture:
        """As of every effect, with the kind of ablation in its title."""
        return super().picture(f"{title or 'effect'}, ablation {self.ablation}")


def _joint(model: attn.Model, pairs: Pairs, nodes: Optional[Sequence[Head]], ablation: Ablation, edits: Edits,
           progress: Progress, each: EachFile, ci: bool) -> Joint:
    asked, names = _Question(model, pairs, edits, progress, each, ci), edge_names(model)[0]
    numbers = _arguments.take("shapley()", "nodes", nodes or [], ('names such as "input", "a0.h1" or "m0" of edge_names()', lambda nodes: sorted(
        names.index(node if node in names else "a%d.h%d" % _head(node)) for node in nodes)))
    names = names if nodes is None else [names[number] for number in numbers]
    players = (c_size_t * len(numbers))(*numbers)  # C reads it in the call
    sets, n = np.zeros(2 ** min(len(numbers), 20), np.float32), len(names)
    shape = (2, n, n) if nodes is None else (max(n, 1), max(n, 1))
    desc = C.lens_joint_desc(None, 0, _number_in(Ablation, ablation), *_counted(players))
    desc.subsets = sets.ctypes.data
    of = (_lib.lens_interactions, "interactions") if nodes is None else (_lib.lens_shapley, "shapley")
    effect, baseline, rows = asked.measured(shape, of[0], desc, of[1])
    joint = Joint(effect if nodes is not None else effect[1], baseline.clean, baseline.corrupted)
    joint.sets, joint.ablation = sets if nodes is not None else effect[0], ablation
    if rows is not None and nodes is None:
        rows = np.delete(rows, np.s_[2:2 + n * n], 1)
    joint.axes, joint._diagonal = ({"node": names}, {"with": names}), nodes is not None
    return joint._told(asked, rows, (n, n), "values")


def interactions(model: attn.Model, pairs: Pairs, *, ablation: Ablation = "corrupted", edits: Edits = (), progress: Progress = None,
                 each: EachFile = False, ci: bool = False) -> Joint:
    """What every two nodes do together beyond what each does alone: the effect of ablating both less that of each, by runs,
    for the embeddings, heads and MLPs; the mean over the pairs. ablation: nodes write what they write in the corrupted text,
    zero, or the mean over the positions of the clean text. each, ci: as in patch, of the interactions."""
    return _joint(model, pairs, None, ablation, edits, progress, each, ci)


def shapley(model: attn.Model, pairs: Pairs, nodes: Sequence[Head], *, ablation: Ablation = "corrupted", edits: Edits = (),
            progress: Progress = None, each: EachFile = False, ci: bool = False) -> Joint:
    """Shapley values of up to 20 nodes, from runs of all sets of them: the mean effect of ablating one more node, over all orders;
    they add up to the effect of all. Beside the diagonal are interaction indices. nodes: names of edge_names(model), which the
    result has in the order of the model. Otherwise as interactions()."""
    return _joint(model, pairs, list(nodes), ablation, edits, progress, each, ci)


# ---- attribution graphs ----


class GraphNode(NamedTuple):
    """A node of an attribution graph. What a kind does not have is NaN, and feature -1."""

    id: str  # such as "feature 0.4.17": layer.position.feature
    kind: str  # embedding, feature, error, logit
    layer: int
    position: int
    feature: int  # of a logit the token
    activation: float  # of a logit its probability
    pre_activation: float  # = constant + the weights of the edges into the node
    constant: float
    influence: float
    stays: bool  # after pruning
    claimed: float  # with check: the change of the likeliest logit without this node, by the graph
    measured: float  # and in the model


class FeatureGraph(Answer):
    """The attribution graph of a text: graph(...), with what lens.query(model, "graph") gives. The last line of a cell shows what
    stays after pruning, and save("x.json") writes that for the front end of circuit-tracer and Neuronpedia.

    Edge i leads from nodes[source[i]] to nodes[target[i]] with weight[i]; stays[i] says whether pruning keeps it."""

    off: float
    off_share: float
    kept: float
    replacement: float
    completeness: float
    nodes: Sequence[GraphNode]
    source: Array
    target: Array
    weight: Array
    stays: Array
    groups: dict[str, tuple[float, float]]  # of each group: claimed and measured

    def _read(self) -> FeatureGraph:
        vars(self).update({name: self.facts[name] for name in ("off", "off_share", "kept", "replacement", "completeness")})
        self.correlation = self.facts.get("rank_correlation", math.nan)
        of: dict[str, Any] = {name: np.asarray(column) for name, column in self.tables["nodes"].items()}
        of["activation"] = np.where(np.isnan(of["activation"]), of["probability"], of["activation"])
        of["feature"] = np.nan_to_num(of["feature"], nan=-1).astype(np.int64)
        none = np.full(len(of["id"]), math.nan)
        self.nodes = [*map(GraphNode._make, zip(*(of.get(name, none).tolist() for name in GraphNode._fields)))]
        places, edges = {node.id: i for i, node in enumerate(self.nodes)}, self.tables["edges"]
        self.source, self.target = (np.array([places[node] for node in edges[end]]) for end in ("from", "to"))
        self.weight, self.stays = np.asarray(edges["weight"], np.float32), np.asarray(edges["stays"])
        name, *numbers = (np.asarray(self.tables.get("groups", {}).get(column, [])).tolist() for column in ("name", "claimed", "measured"))
        self.groups = dict(zip(name, zip(*numbers)))
        return self

    def to_pandas(self, table: Optional[str] = None) -> Any:
        """A pandas.DataFrame with a row for each node, or a table of the answer."""
        return super().to_pandas(table) if table else _pictures.table(self.nodes)

    def __repr__(self) -> str:
        return (f"<attn.lens.FeatureGraph, {len(self.nodes)} nodes and {len(self.weight)} edges, of which "
                f"{self.facts['n_nodes_that_stay']} and {self.facts['n_edges_that_stay']} stay; replacement {self.replacement:.3f}, "
                f"completeness {self.completeness:.3f}>")


def graph(model: attn.Model, tokens: Tokens, transcoders: Optional[Path] = None, *, keep: Optional[Positive] = None,
          node_threshold: float = 0.8, edge_threshold: float = 0.98, check: bool = False,
          groups: Optional[Groups] = None, progress: Progress = None) -> FeatureGraph:
    """The attribution graph of a text: which features of per-layer transcoders cause each other and the next token.

    transcoders: a directory of SAELens's form or circuit-tracer's; without it those of "tiny-stories". keep: only the
    strongest edges into each node. Nodes and edges with these shares of the influence stay after pruning. check: each feature
    that stays is switched off in the model; groups: features that are switched off together, by the ids of their nodes."""
    found = FeatureGraph(model, "graph")._told(
        model._ids(tokens), transcoders=transcoders or _files.sae_directory() / "transcoders", keep=keep, node_threshold=node_threshold,
        edge_threshold=edge_threshold, check=check or bool(groups), group=json.dumps(groups) if groups else None)
    return found._asked(progress)._read()


# ---- gradients ----


class Gradients(NamedTuple):
    """A metric, and d metric / d activation by name, in the activation's own shape."""

    value: float
    gradient: attn.Named


class Backward(attn._Single):
    """Backward passes of a model. It holds the weights of all matrices as f32 beside the model's own, and
    belongs to one thread at a time. `edits` are in force in all runs of a call, and gradients honour them.

    method: "plain", or the rules of GIM (Edin et al. 2025), all three or one alone: "gim_norm", LayerNorm's scale is a constant
    in the backward pass; "gim_softmax", softmax goes backward with temperature 2; "gim_qkv", gradients of q and k are divided by
    4, of v by 2."""

    def __init__(self, model: attn.Model) -> None:
        self.model, self._handle, self._backward = model, model._handle, C.lens_backward()  # the model lives as long as its handle
        made_with(self, model._context(), _lib.lens_backward_new, _lib.lens_backward_free, self._backward, self._handle)

    def _ask(self, edits: Edits, pairs: Pairs = (), progress: Progress = None, method: str = "", name: str = "pair") -> _Question:
        """A question about the model that edits make; with a method, of gradients."""
        asked = _Question(self.model, pairs, edits, progress, name=name)
        asked.goes_back = bool(method)
        self._backward.rules = _RULES.get(method, 0)
        asked.told(self._backward, "edge_scores")
        return asked

    def gradients(self, tokens: Tokens, metric: Metric, names: attn.Names = None, *, method: Method = "plain",
                  edits: Edits = ()) -> Gradients:
        """d metric / d activation for every activation that names match (None: all but those on request)."""
        asked = self._ask(edits, method=method)
        ids = asked.ids(tokens)
        chosen = None if names is None else self.model._chosen(names)
        wanted = attn._strings(["hook_embed"] if chosen == [] else chosen or [])  # of no names C would make all
        desc = C.lens_gradients_desc(ids.ctypes.data, len(ids), *_counted(wanted), None, asked.metric(metric, len(ids)))
        record, value = Handle(_lib.attn_record_free), c_float()
        asked.run(_lib.lens_gradients, record.place, byref(value), byref(self._backward), byref(desc))
        found: dict[str, Array] = {}
        for i in range(0 if chosen == [] else _lib.attn_record_n_activations(record)):
            name, tensor = _lib.attn_record_name(record, i), _T()
            self.model._context().run(_lib.attn_record_get, byref(tensor), record, name)
            found[name.decode()] = self.model._batched(attn._view(tensor).copy())
        return Gradients(value.value, attn.Named(found, self.model.config.n_layer))

    def attribution_patch(self, pair: Pair, name: Activation, *, method: Method = "plain", edits: Edits = ()) -> Array:
        """Estimates of patch(...).effect - corrupted by one backward pass: [layers, heads] of activations
        that begin with "attn.", else [layers, positions]."""
        asked, config, in_blocks = self._ask(edits, [pair], method=method), self.model.config, _in_blocks(self.model, name)
        width = config.n_head if name.startswith("attn.") else int(asked.pairs[0].n_tokens)
        return asked.filled((config.n_layer, width), _lib.lens_attribution_patch, byref(self._backward), byref(asked.pairs), in_blocks)

    def edge_scores(self, pairs: Pairs, steps: Positive = 1, *, method: Method = "plain", edits: Edits = (),
                    progress: Progress = None) -> Array:
        """Edge attribution patching: [senders, receivers], the mean over the pairs; steps above 1: EAP-IG.
        edge_names(model) names both axes."""
        asked, graph = self._ask(edits, pairs, progress, method, "pairs"), _lib.lens_graph_of(self._handle)
        return asked.filled((graph.n_senders, graph.n_receivers), _lib.lens_edge_scores, byref(self._backward), byref(asked.pairs),
                            len(asked.pairs), steps)

    def run_edges(self, pair: Pair, kept: npt.ArrayLike, *, edits: Edits = ()) -> float:
        """The metric of the clean text when only the edges with 1 in kept carry it, and all others what
        their senders write in the corrupted text."""
        asked, value = self._ask(edits, [pair]), c_float()
        asked.run(_lib.lens_run_edges, byref(value), byref(self._backward), byref(asked.pairs), _T.of(floats(kept)))
        return value.value


def best_edges(model: attn.Model, scores: npt.ArrayLike, n: int) -> Array:
    """[senders, receivers]: 1 for the n edges of the largest scores (by magnitude), else 0."""
    given = _edge_scores(model, scores)
    return model._context().filled(given.shape, _lib.lens_best_edges, model._handle, _T.of(given), n)


def _edge_scores(model: attn.Model, scores: npt.ArrayLike) -> Array:
    """[senders, receivers]"""
    graph, array = _lib.lens_graph_of(model._handle), np.asarray(scores, np.float32)
    if array.shape != (shape := (graph.n_senders, graph.n_receivers)):
        raise ValueError(f"scores have shape {list(array.shape)}; expected {list(shape)}")
    if np.isnan(array).any():
        raise ValueError("scores have NaN at an edge; expected numbers")
    return array


def edge_names(model: attn.Model) -> tuple[list[str], list[str]]:
    """Names of the senders ("input", "a3.h5", "m3") and of the receivers ("a3.h5<q>", "m3", "logits")."""
    graph = _lib.lens_graph_of(model._handle)
    return ([_lib.lens_sender_name(byref(graph), i).text.decode() for i in range(graph.n_senders)],
            [_lib.lens_receiver_name(byref(graph), i).text.decode() for i in range(graph.n_receivers)])


@dataclass(frozen=True, repr=False)
class Edges(_Result):
    """Scores of the edges between the parts of a model: edges(...). A picture shows the best of them."""

    scores: Array  # [senders, receivers]
    senders: Sequence[str]
    receivers: Sequence[str]
    best: Sequence[tuple[str, str, float]]  # from, to, score; the largest magnitude first
    n_layer: int
    n_head: int
    _shows = "scores"

    def picture(self, title: str = "") -> Graph:
        return Graph(title or f"the best {len(self.best)} edges", self.best, self.senders, self.receivers, self.n_layer, self.n_head)

    def to_pandas(self) -> Any:
        """A pandas.DataFrame of the best edges: from, to, score."""
        return _pictures.table(self.best, columns=["from", "to", "score"])


def edges(model: attn.Model, pairs: Pairs, n: Positive = 20, *, method: Optional[EdgeMethod] = None, steps: Optional[Positive] = None,
          exact: bool = False, edits: Edits = (), progress: Progress = None, each: EachFile = False, ci: bool = False) -> Edges:
    """Which edges make the difference between two texts, and the best n of them. method: EAP (None, which with steps is EAP-IG),
    EAP-IG, or GIM's rules, all or one alone (see Backward); steps: runs between both texts (of EAP-IG 5, else 1); exact: the
    true effect of every edge, by a run of its own. each, ci: as in patch, of the best edges [n]; estimates take the time twice."""
    if exact and (method or steps):
        raise ValueError("edges(): method and steps are of estimates; leave them out, or exact")
    method = method or ("eap_ig" if (steps or 1) > 1 else "eap")
    if method == "eap" and (steps or 1) > 1:
        raise _arguments.wrong("edges()", "steps", steps, '1 for EAP, or method="eap_ig"', ValueError)
    steps, rules = steps or (5 if method == "eap_ig" else 1), "plain" if method == "eap" or method == "eap_ig" else method
    asked, rows = _Question(model, pairs, each=each, ci=ci), None
    asked.need_spread()
    if exact:
        effects = exact_effects(model, pairs, edits=edits, progress=progress, each=bool(each or ci))
        scores, numbers = effects.effect, effects.each.numbers if effects.each else None
    else:
        back = Backward(model)
        scores = back.edge_scores(pairs, steps, method=rules, edits=edits, progress=progress)
        numbers = np.stack([back.edge_scores(pair, steps, method=rules, edits=edits)
                            for pair in ([pairs] if isinstance(pairs, Pair) else pairs)]) if each or ci else None
    senders, receivers = edge_names(model)
    kept = best_edges(model, scores, n) != 0
    order = np.argsort(-np.abs(np.where(kept, scores, 0)).ravel(), kind="stable")[:int(kept.sum())]
    best = [(senders[i], receivers[j], float(scores[i, j])) for i, j in zip(*np.unravel_index(order, scores.shape))]
    if numbers is not None:
        chosen = numbers.reshape(len(numbers), -1)[:, order]
        rows = np.column_stack([np.full((len(numbers), 2), np.nan, np.float32), chosen])
    found = Edges(scores, senders, receivers, best, model.config.n_layer, model.config.n_head)._told(asked, rows, order.shape, "values")
    if ci and numbers is not None and rows is not None:  # the best were chosen by these numbers: p is corrected for all edges that could have been
        there = best_edges(model, np.ones_like(scores), int(_lib.lens_graph_of(model._handle).n_edges)) != 0
        spread = Each(np.where(there, numbers, np.nan), rows[:, 0], rows[:, 1]).spread()
        vars(found).update(spread=Spread(*(one.ravel()[order] for one in spread)))
    return found


@dataclass(frozen=True, repr=False)
class Pruned(Edges):
    """A circuit that keeps the metric: prune(...). `best` are its edges, and `scores` are effects as last measured."""

    removed: Sequence[tuple[str, str, float]]  # from, to, effect at its removal; the last one first
    clean: float  # the metric of the clean text
    value: float  # that of the circuit
    n_runs: int  # runs of circuits, over all pairs


def prune(model: attn.Model, pairs: Pairs, amount: float, *, edits: Edits = (), progress: Progress = None) -> Pruned:
    """The smallest circuit that keeps the metric (ACDC, by exact effects): one edge after the other is removed, the least
    first, until the next one would move the metric by more than the amount. Each effect is measured in the circuit that is
    left. Of equal ones the edge nearest to the logits comes first."""
    back = Backward(model)
    asked, desc = back._ask(edits, pairs, name="pairs"), C.lens_prune_desc(amount=amount)
    asked.how = progress
    found, (senders, receivers), owner = C.lens_pruned(), edge_names(model), attn._Memory()
    weakref.finalize(owner, _lib.attn_free, c_void_p.from_buffer(found)).atexit = False  # its first field
    asked.run(_lib.lens_prune, byref(found), byref(back._backward), byref(asked.told(desc, "prune")))
    at = [(edge.sender, edge.receiver, edge.score) for edge in found.edges[:_lib.lens_graph_of(model._handle).n_edges]]
    scores = np.zeros((len(senders), len(receivers)), np.float32)
    for sender, receiver, score in at:
        scores[sender, receiver] = score
    named = [(senders[sender], receivers[receiver], score) for sender, receiver, score in at]
    return Pruned(scores, senders, receivers, named[:found.n_kept], model.config.n_layer, model.config.n_head,
                  named[found.n_kept:], found.clean, found.value, found.n_runs)


@dataclass(frozen=True, repr=False)
class Curve(_Result):
    """The faithfulness of circuits of growing size, and its two integrals over the share of edges, as the benchmark MIB has
    them: cpr (larger is better) and cmd (smaller is better)."""

    share: Array  # [10]: of the model's edges
    n_edges: npt.NDArray[np.intp]  # [10]
    faithfulness: Array  # [10]: 1 is the whole model's metric, 0 that of the corrupted text
    cpr: float
    cmd: float
    _shows = "faithfulness"

    def picture(self, title: str = "") -> Chart:
        return Chart(f"{title or 'faithfulness by share of edges'}: CPR {self.cpr:.3f}, CMD {self.cmd:.3f}",
                     self.faithfulness[None, None].astype(np.float32), [""], ["faithfulness"], [f"{share:.1%}" for share in self.share],
                     shares=self.share.tolist(), share_of="share of the model's edges",
                     ends=None if self.spread is None else (self.spread.low[None], self.spread.high[None]))

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each circuit: share, edges, faithfulness."""
        return _pictures.table({"share": self.share, "edges": self.n_edges, "faithfulness": self.faithfulness})


def curve(model: attn.Model, pairs: Pairs, scores: npt.ArrayLike, order: Literal["helpful", "largest"] = "helpful", *,
          edits: Edits = (), progress: Progress = None, each: EachFile = False, ci: bool = False) -> Curve:
    """Runs the circuits that scores [senders, receivers] find: the best 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50 and 100
    percent of all edges. order: first the edges that help the metric most, or those of the "largest" magnitude. each, ci: as
    in patch, the metrics of the circuits and the spread of the faithfulness."""
    asked, found = _Question(model, pairs, edits, progress, each, ci), C.lens_curve()
    rows, backward = asked.rows(found, (10,)), asked.told(C.lens_backward(model=model._handle._as_parameter_), "curve")
    asked.run(_lib.lens_edge_curve, byref(found), byref(backward), byref(asked.pairs), len(asked.pairs),
              _T.of(_edge_scores(model, scores)), order == "largest")
    share = np.array([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], np.float32)
    made = Curve(share, np.array(found.n_edges, np.intp), np.array(found.faithfulness, np.float32), found.cpr, found.cmd)
    return made._told(asked, rows, (10,), "shares")


# ---- circuits and heads ----


class _Factors(NamedTuple):
    A: Array
    B: Array


class FactoredMatrix(_Factors):
    """A product A · B of low rank, kept as its factors A [m, r] and B [r, n]. `@` multiplies it by an array or by another:
    model.tensor("W_E") @ circuit(model, 1, 0, "OV") @ model.tensor("W_U") keeps two factors of rank d_head."""

    __array_ufunc__ = None  # so that array @ matrix is __rmatmul__

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise _words.missing("FactoredMatrix", name)

    def __matmul__(self, right: Union[npt.ArrayLike, FactoredMatrix]) -> FactoredMatrix:
        if isinstance(right, FactoredMatrix):
            return FactoredMatrix(self.A, floats(self.B @ right.A @ right.B))
        return FactoredMatrix(self.A, self.B @ floats(right))

    def __rmatmul__(self, left: npt.ArrayLike) -> FactoredMatrix:
        return FactoredMatrix(floats(left) @ self.A, self.B)

    @property
    def AB(self) -> Array:
        """[m, n]"""
        product: Array = self.A @ self.B
        return product

    @property
    def S(self) -> Array:
        """[r]: the singular values, largest first, without making the product."""
        return attn_ctx().filled(self.A.shape[1:], _lib.lens_singular_values, _T.of(self.A), _T.of(self.B))

    def svd(self) -> tuple[Array, Array, Array]:
        """U [m, r], S [r] and V [n, r], with A · B = U · diag(S) · Vᵀ."""
        u, s, v = (np.zeros(shape, np.float32) for shape in
                   ((len(self.A), self.A.shape[1]), self.A.shape[1], (self.B.shape[1], self.A.shape[1])))
        out = C.lens_svd(_T.of(u), _T.of(s), _T.of(v))
        attn_ctx().run(_lib.lens_singular_vectors, byref(out), _T.of(self.A), _T.of(self.B))
        return u, s, v

    @property
    def eigenvalues(self) -> npt.NDArray[np.complex64]:
        """[r], largest magnitude first, of a square product. The other m - r are 0."""
        out = attn_ctx().filled((self.A.shape[1], 2), _lib.lens_eigenvalues, _T.of(self.A), _T.of(self.B))
        return out.view(np.complex64)[:, 0]


def circuit(model: attn.Model, layer: LayerOrHead, head: Optional[int] = None, kind: Literal["QK", "OV"] = "OV") -> FactoredMatrix:
    """W_Q · W_Kᵀ or W_V · W_O of a head: circuit(model, 3, 5, "QK") or circuit(model, "L3H5", kind="QK")."""
    c, at = model.config, _arguments.take("circuit()", "head", _layer_and_head(layer, head), _HEAD)
    left, right = np.zeros((c.d_model, c.d_head), np.float32), np.zeros((c.d_head, c.d_model), np.float32)
    model._context().run(_lib.lens_circuit, byref(_T.of(left)), byref(_T.of(right)), model._handle,
                         C.lens_head(*at), kind == "OV")
    return FactoredMatrix(left, right)


def composition_scores(model: attn.Model, kind: Literal["Q", "K", "V"], *, progress: Progress = None) -> Array:
    """[layers, heads, layers, heads]: how much the later head composes with the earlier one."""
    shape = (model.config.n_layer, model.config.n_head) * 2
    return model._context().filled(shape, _lib.lens_composition_scores_told, model._handle, "QKV".index(kind),
                                    attn._progress_fn(progress, "composition_scores")[0], None, long=True)


def _ov_eigenvalues(model: attn.Model, of: str) -> Array:
    c = model.config
    shape = (c.n_layer, c.n_head, c.d_head, 2)
    return model._context().filled(shape, _lib.lens_ov_eigenvalues, model._handle, of == "tokens", long=True)


def ov_eigenvalues(model: attn.Model, of: Literal["stream", "tokens"] = "tokens") -> npt.NDArray[np.complex64]:
    """[layers, heads, d_head]: the eigenvalues of every head's W_V · W_O, or of W_E · W_V · W_O · W_U from "tokens" to logits."""
    return _ov_eigenvalues(model, of).view(np.complex64)[..., 0]


def copying_scores(model: attn.Model, of: Literal["stream", "tokens"] = "tokens") -> Array:
    """[layers, heads]: the sum of those eigenvalues over the sum of their magnitudes; 1 is a head that copies."""
    values = _ov_eigenvalues(model, of)
    return model._context().filled(values.shape[:2], _lib.lens_copying_scores, _T.of(values))


def refactor_attention(model: attn.Model, path: Path, *, progress: Progress = None) -> None:
    """Writes a .attn file of a model that says the same and whose heads have singular vectors as W_Q, W_K, W_V and W_O:
    TransformerLens's refactor_factored_attn_matrices."""
    model._context().run(_lib.lens_refactor_attention_told, os.fsencode(path), model._handle,
                         attn._progress_fn(progress, "refactor_attention")[0], None, long=True)


def qk_terms(model: attn.Model, tokens: Tokens, layer: LayerOrHead, head: Optional[int] = None, query: Optional[int] = None,
             key: Optional[int] = None) -> Answer:
    """An attention score as a sum: a row for each part of the stream at the query's position, a column for each at the key's.
    The sum of all cells is the score. layer: with head, or a head such as "L3H5". query: None is the last; key: the best one's."""
    layer, head = _layer_and_head(layer, head)
    return _query.query(model, "qk", model._ids(tokens), layer=layer, head=head, at=query, key=key)


def detect_head(model: attn.Model, tokens: Tokens, pattern: Union[str, npt.ArrayLike], *,
                heads: Optional[Sequence[Head]] = None, measure: Literal["mul", "abs"] = "mul", exclude_bos: bool = False,
                exclude_current_token: bool = False) -> Array:
    """[layers, heads]: how much each head's pattern is the expected one, -1 for heads that were not asked for. pattern:
    "previous", "duplicate" or "induction", or a matrix [T, T]; heads: such as "L3H5" or (3, 5) (None: all)."""
    ids, c = model._ids(tokens), model.config
    keys = None
    if not isinstance(pattern, str):
        keys = _arguments.take("detect_head()", "pattern", pattern,
                               ("previous, duplicate, induction or a matrix", _arguments.KINDS["npt.ArrayLike"][1]))
    elif pattern not in get_args(HeadKind):
        raise _arguments.wrong("detect_head()", "pattern", pattern, f"one of {', '.join(get_args(HeadKind))}, or a matrix", ValueError)
    if heads is not None and not len(heads):
        return np.full((c.n_layer, c.n_head), -1, np.float32)
    chosen = [_arguments.take("detect_head()", "heads", head, _HEAD) for head in heads or ()]
    array = (C.lens_head * len(chosen))(*[C.lens_head(layer, head) for layer, head in chosen])
    desc = C.lens_detect_desc(ids.ctypes.data, len(ids), 0 if keys is not None else _number_in(HeadKind, str(pattern)),
                              _T() if keys is None else _T.of(keys), *_counted(array), measure == "abs",
                              exclude_bos, exclude_current_token)
    return model._context().filled((c.n_layer, c.n_head), _lib.lens_detect_head, model._handle, byref(desc), long=True)


def detect_heads(model: attn.Model, tokens: Tokens) -> dict[str, Array]:
    """The share of each head's attention that previous-token, duplicate-token and induction heads would
    have on this text, [layers, heads] each."""
    return dict(zip(get_args(HeadKind), model.detect_heads(tokens)[1]))


# ---- the residual stream, taken apart ----


class Parts(NamedTuple):
    """The parts of a residual stream."""

    stack: Array  # [parts, positions, d_model], or [.., n] of a projection
    scale: Array  # [positions, 1]: of the LayerNorm that reads the stream
    labels: list[str]  # of the parts, as TransformerLens has them


def decompose_resid(model: attn.Model, tokens: Tokens, kind: PartsKind = "sublayers", *, layer: Optional[int] = None,
                    mlp_input: bool = False, incl_embeds: bool = True, apply_ln: bool = False,
                    project: Optional[npt.ArrayLike] = None, positions: Span = None) -> Parts:
    """Runs a text and takes apart the stream that enters `layer` (None: the last LayerNorm), or with mlp_input
    its MLP. kind: "streams" and "streams_mid" (accumulated_resid), "sublayers", "attns" or "mlps"
    (decompose_resid), "heads" or "neurons" (get_full_resid_decomposition, best with `project` [d_model, n]).
    apply_ln: each part as that LayerNorm scales it."""
    ids, c = model._ids(tokens), model.config
    first, count = attn._bounds(positions)
    if layer is None and mlp_input:
        raise ValueError("mlp_input needs a layer")
    is_final = layer is None or layer == c.n_layer and not mlp_input
    desc = C.lens_parts_desc(_number_in(PartsKind, kind), ids.ctypes.data, len(ids), first, count, 0 if is_final else 1 + mlp_input,
                             0 if is_final else layer, not incl_embeds, apply_ln)  # lens_reader: final, attn, mlp
    onto = None if project is None else floats(project)
    if onto is not None:
        desc.project = _T.of(onto)
    n = _lib.lens_parts_count(model._handle, byref(desc))
    rows = min(count or max(len(ids) - first, 1), len(ids) + 1)
    if onto is not None and onto.ndim != 2:
        raise _arguments.wrong("decompose_resid()", "project", onto, "the shape [d_model, n]", ValueError)
    stack = np.empty((n or 1, rows, c.d_model if onto is None else onto.shape[-1]), np.float32)
    scale = np.empty((rows, 1), np.float32)
    model._context().run(_lib.lens_decompose, byref(_T.of(stack)), byref(_T.of(scale)), model._handle, byref(desc), long=True)
    return Parts(stack, scale, [_lib.lens_parts_label(model._handle, byref(desc), i).text.decode() for i in range(n)])


# ---- pictures ----


def patterns(model: attn.Model, tokens: Tokens, layer: Optional[LayerOrHead] = None, head: Optional[int] = None) -> Picture:
    """What every head looks at, or those of one layer, or one head of each, or one such as "L3H5": a panel a head, a row a
    token that looks, a column a token that is looked at."""
    ids, (layer, head) = model._ids(tokens), _layer_and_head(layer, head)
    values, labels = _query.query(model, "patterns", ids, layer=layer, head=head).to_numpy(), model._labels(ids)
    which = [(i if layer is None else layer, j if head is None else head) for i, j in np.ndindex(*values.shape[:2])]
    return Picture("attention patterns: a row looks at its columns", values.reshape(-1, len(ids), len(ids)), [
        f"layer {i} head {j}" for i, j in which], labels, labels, axes=({"layer": [i for i, _ in which], "head": [j for _, j in which]},
                                                                        positions(labels), positions(labels, _KEYS)))


def heads(model: attn.Model, tokens: Tokens) -> Answer:
    """What detect_heads gives, [kinds, layers, heads]."""
    return _query.query(model, "heads", model._ids(tokens))


def parts(model: attn.Model, tokens: Tokens, token: Token, against: Optional[Token] = None,
          kind: PartsKind = "sublayers") -> Picture:
    """Direct logit attribution: how much each part of the stream adds to the logit of a token, or to its difference to
    another's, at each position. A row is a part, a column a position. The last row is what no part of the stream adds, by the
    bias of ln_final; with it the parts sum to the logit."""
    ids, one = model._ids(tokens), model._ids([model._token(token)])
    other = None if against is None else model._ids([model._token(against, "against")])
    found = decompose_resid(model, ids, kind)
    shares, labels = model.logit_attrs(found.stack, found.scale, model.logit_directions(one, other)), model._labels(ids)
    if not kind.startswith("streams"):  # of which each is the sum of all before it
        bias = model._context().filled((1,), _lib.lens_bias_logit_attrs, model._handle, one.ctypes.data,
                                       None if other is None else other.ctypes.data, 1)
        shares = np.concatenate([shares, np.broadcast_to(bias, (1, len(ids)))])
        found.labels.append("b_U" if model.config.has_b_U else "ln_final.b")
    name = f"the logit of {token!r}" + ("" if against is None else f" less that of {against!r}")
    return Picture(f"what each part adds to {name}", shares[None], [""], found.labels, labels,
                   axes=({}, _pictures.parts(found.labels), positions(labels)))


def logit_lens(model: attn.Model, tokens: Tokens, tuned: Optional[TunedLens] = None) -> Answer:
    """What each layer would say next, of the stream that enters it and of the last one: the losses [layers + 1, positions], and in
    tables["top"] the likeliest tokens. tuned: a lens that translates each stream first."""
    return _query.query(model, "logit-lens", model._ids(tokens), tuned=tuned and tuned.path)


class TunedLens(attn._Single):
    """A tuned lens (Belrose et al. 2023), an affine map for each layer, or a Jacobian lens (Gurnee et al. 2026), a matrix
    for each: the package's .pt, or a .safetensors file."""

    def __init__(self, model: attn.Model, path: Path) -> None:
        self.path, self._tuned = path, C.lens_tuned()
        made_with(self, model._context(), _lib.lens_tuned_open, _lib.lens_tuned_free, self._tuned, model._handle, os.fsencode(path))

    def apply(self, stream: npt.ArrayLike, layer: int) -> Array:
        """[T, d_model]: the stream that enters `layer`, in the form of the final stream; n_layer is the final one itself."""
        x = floats(stream)
        out: Array = np.zeros(x.shape, np.float32)
        rows, into = (attn._one_text(array, 3) for array in (x, out))  # of a batch of one, views
        attn_ctx().run(_lib.lens_tuned_apply, byref(_T.of(into)), byref(self._tuned), layer, _T.of(rows))
        return out


# ---- steering ----


def steering_vector(model: attn.Model, name: OneName, towards: Tokens, away: Tokens) -> Array:
    """[d_model]: the mean of an activation over one text, less its mean over another. `session.edit(name, "add",
    4 * vector)` adds four times it at every position."""
    texts = [model._ids(towards, name="towards"), model._ids(away, name="away")]
    first, second = (C.lens_tokens(ids.ctypes.data, len(ids)) for ids in texts)
    out: Array = model._context().filled((1, model.config.d_model), _lib.lens_steering_vector, model._handle, coded(name),
                                         byref(first), byref(second), long=True)[0]
    return out


def control_vector(model: attn.Model, path: Path) -> Array:
    """[n_layer, d_model]: the directions in a file of llama.cpp or repeng (GGUF), or in .safetensors; 0 for a layer without
    one. add_control uses them."""
    shape = (model.config.n_layer, model.config.d_model)
    return model._context().filled(shape, _lib.lens_control_open, model._handle, os.fsencode(path), long=True)


def add_control(session: attn.Session, directions: npt.ArrayLike, strength: float = 1) -> attn.Hook:
    """Adds strength * directions[layer] to the stream behind each layer, at every position that is fed, until the hook's
    remove(). A negative strength is the other way."""
    rows, c = floats(directions), session.model.config
    if rows.shape != (c.n_layer, c.d_model):
        raise ValueError(f"directions have shape {list(rows.shape)}; expected {[c.n_layer, c.d_model]}, one of each layer")
    rows, hook = np.float32(strength) * rows, attn.Hook(session)
    try:
        for layer, row in enumerate(rows):
            hook._joined(session.edit(f"blocks.{layer}.hook_resid_post", "add", row))
    except BaseException:
        hook.close()
        raise
    return hook


# ---- sparse autoencoders ----


def _rows(x: npt.ArrayLike, width: int) -> tuple[Array, tuple[int, ...]]:
    """One row a position, where heads stand side by side; and the shape of the positions, a batch of one included."""
    array = floats(x)
    last = 1 if array.shape[-1:] == (width,) else 2
    if array.ndim <= last or int(np.prod(array.shape[-last:])) != width:
        return array, array.shape[:1]  # which the library refuses
    return array.reshape(-1, width), array.shape[:-last]


class _OfSAE(type):
    if not TYPE_CHECKING:
        def __getattr__(cls, name: str) -> Any:
            raise _words.missing("SAE", name, "SAE")


class SAE(attn._Single, metaclass=_OfSAE):
    """A sparse autoencoder in SAELens's files, a directory with cfg.json and sae_weights.safetensors, or in a .pt. An
    activation with heads, [positions, n_head, d_head], counts as one row a position. Or a transcoder, which finds
    features at hook_name and predicts another activation, hook_name_out, from them.

        sae = lens.load_sae("tiny-stories")             # or lens.SAE("gpt2-small-res-jb/blocks.8.hook_resid_pre")
        with model.session() as session:
            session.hook(sae.hook_name, lambda x, point: sae.decode(sae.encode(x), x))

    W_enc [d_in, d_sae], W_dec [d_sae, d_out], b_enc [d_sae] and b_dec [d_out] are copies of the weights, for activations
    as a model makes them. Row i of W_dec is the direction of feature i. b_enc of a gated one is its b_gate.
    """

    W_enc: Array
    W_dec: Array
    b_enc: Array
    b_dec: Array

    def __init__(self, directory: Path) -> None:
        self.directory, self._sae = directory, C.lens_sae()
        made_with(self, attn_ctx(), _lib.lens_sae_open, _lib.lens_sae_free, self._sae, os.fsencode(directory))
        self.hook_name: str = self._sae.hook.decode()
        self.hook_name_out: str = self._sae.hook_out.decode() or self.hook_name
        self.is_transcoder = self._sae.n_out > 0
        self.d_in, self.d_sae = int(self._sae.n), int(self._sae.m)
        self.d_out = int(self._sae.n_out) or self.d_in

    def __repr__(self) -> str:
        kind = "transcoder" if self.is_transcoder else "autoencoder"
        to = f" to {self.hook_name_out}" if self.is_transcoder else ""
        return f"<attn.lens.SAE, {kind} of {self.hook_name}{to}: d_in {self.d_in}, d_sae {self.d_sae}>"

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if name not in SAE.__annotations__ or "_sae" not in self.__dict__:
                raise _words.missing("SAE", name, "an SAE")
            tensor = getattr(self._sae, name.lower())
            array = attn._view(_T(tensor.data, 0, tensor.ndim, tensor.shape, tensor.stride))
            if array.ndim == 3:  # panels of 16 columns
                array = array.transpose(1, 0, 2).reshape(array.shape[1], -1)
            return array.copy()

    def encode(self, x: npt.ArrayLike) -> Array:
        """[positions, d_sae]: the features of x [positions, d_in], 0 where they are not active."""
        rows, positions = _rows(x, self.d_in)
        out = attn_ctx().filled((len(rows), self.d_sae), _lib.lens_sae_encode, byref(self._sae), _T.of(rows))
        return out.reshape(*positions, self.d_sae)

    def decode(self, features: npt.ArrayLike, x: Optional[npt.ArrayLike] = None) -> Array:
        """[positions, d_out], or the shape of x unless this is a transcoder: what features stand for. x: the
        activations that they came from, by whose rows a normalization is undone, and which a skip transcoder adds to."""
        rows, positions = _rows(features, self.d_sae)
        out = attn_ctx().filled((len(rows), self.d_out), _lib.lens_sae_decode, byref(self._sae), _T.of(rows),
                                _T() if x is None else _T.of(_rows(x, self.d_in)[0]))
        if x is None or self.is_transcoder:
            return out.reshape(*positions, self.d_out)
        if np.size(x) != out.size:
            raise ValueError(f"decode(): x has shape {list(np.shape(x))}; expected {[*positions, self.d_out]}")
        return out.reshape(np.shape(x))

    def show(self, model: attn.Model, tokens: Tokens, n: Positive = 10) -> Answer:
        """The features of a text, as lens.query(model, "sae") has them; a picture shows n of each token."""
        return _query.query(model, "sae", self.directory, model._ids(tokens), top=n)

    def hook(self, session: attn.Session, changes: Iterable[tuple[int, Literal["clamp", "scale", "add"], float]] = (), *,
             keep_error: bool = True) -> attn.Hook:
        """Changes features while the session runs: (417, "clamp", 8.0) gives a feature this value (0: ablated), "scale"
        multiplies it, "add" steers along it. keep_error: the activation keeps what the features do not explain; else
        their sum replaces it, as SAELens's run_with_saes does without the error term. Of a transcoder, the activation
        that it predicts changes."""
        wanted = _arguments.take("hook()", "changes", changes, ('clamp, scale or add, as [(417, "clamp", 8.0)]', _changes))
        watch, owner = C.lens_sae_watch(ctypes.addressof(self._sae), keep_error, *_counted(wanted)), attn._Memory()
        weakref.finalize(owner, _lib.lens_sae_end, ctypes.pointer(watch)).atexit = False

        def change(activation: Any) -> None:
            if _lib.lens_sae_hook(activation, byref(watch)):
                raise attn.Error(attn.Status(watch.ctx.status), watch.ctx.message.decode())

        callback = HOOK_FN(lambda activation, _: from_c(lambda: change(activation)))
        names = [self.hook_name, self.hook_name_out][:1 + self.is_transcoder]
        return session._hook_each(names, lambda name: ((callback, owner, wanted, self), _lib.attn_hook, coded(name), callback, None))


def _changes(changes: Any) -> Any:
    """A C array of changes of features."""
    made = [C.lens_sae_change(operator.index(feature), ("clamp", "scale", "add").index(kind), float(value)) for feature, kind, value in changes]
    return (C.lens_sae_change * len(made))(*made)


def load_sae(name: str, layer: Optional[int] = None) -> SAE:
    """The autoencoder that is included, of "tiny-stories"; with a layer, the transcoder of its MLP."""
    if name != "tiny-stories":
        raise ValueError(f"the one autoencoder that is included is of tiny-stories, not of {name}; for another write "
                         "attn.lens.SAE(directory)")
    folder = _files.sae_directory()
    return SAE(folder if layer is None else folder / "transcoders" / f"layer{layer}")


_arguments.KINDS["Edits"] = ("a list of lens.Edit(name, kind, ...)", lambda edits: [edits] if isinstance(edits, Edit) else list(edits))
_arguments.KINDS["Groups"] = ('a dictionary of lists of nodes, such as {"a name": ["feature 0.4.17"]}', lambda groups: {
    _arguments.KINDS["str"][1](name): [*map(_arguments.KINDS["str"][1], _arguments.listed(ids))] for name, ids in groups.items()})
_arguments.KINDS["LayerOrHead"] = (f"a layer from 0 on, or {_HEAD[0]}", lambda of: _head(of) if isinstance(of, (str, tuple, list)) else _number(of))
_arguments.KINDS["TunedLens"] = _arguments.instance(TunedLens, "lens.TunedLens(model, path)")
_arguments.KINDS["OneName"] = ('one activation, such as "blocks.2.hook_resid_pre"', _arguments.KINDS["str"][1])
_arguments.KINDS["Activation"] = ('the name of all layers\' activations, such as "attn.hook_z"', _arguments.KINDS["str"][1])
_arguments.check_all(globals())

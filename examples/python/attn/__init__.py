"""GPT-2 with every activation in reach, as NumPy arrays: attn.h from Python.

What exists:

    texts       load, Model, Tokenizer, Session, Sampling, Sampler, Generation, Continuation, Scores
    files       download("gpt2") fetches a checkpoint, convert(folder, "gpt2.attn") makes a model of it
    receipts    Session.generate(..., receipt="story.json"), verify, Verdict
    inside      Model.run_with_cache, run_with_hooks, logit_lens; Session.hook, edit, record; Record, Named, Hook
    many        feed_batch, Workspace, Model.generate_many
    research    attn.lens: patching, gradients, edges, circuits, heads, steering, sparse autoencoders
    graphs      attn.lens.graph(model, text): which features cause each other and the next token, an attribution graph;
                save("x.json") is for circuit-tracer's front end and Neuronpedia
    notebooks   check: answers to their exercises
    the rest    Config, HookPoint, Error, Status, version

A first look:

    import attn
    model = attn.load("tiny-stories")
    for piece in model.session().generate("Once upon a time", max_tokens=50):
        print(piece, end="", flush=True)

    logits, cache = model.run_with_cache("Once upon a time")
    cache["blocks.0.attn.hook_pattern"]                 # [heads, queries, keys]

    with model.session() as session:
        session.edit("blocks.2.attn.hook_z", "zero", heads=3)
        without_the_head = session.feed("Once upon a time")

The package needs NumPy and the shared library, which an installed package brings. In a checkout
`make build/libattn.so` makes it. It is looked for under $ATTN_LIBRARY, in this folder, in the checkout's
build/, and among the system's libraries.

A Model is a file of weights, for any number of threads. A Session is one sequence with its keys and
values; its calls take turns if several threads use it. Other Python threads run during a call.

Tokens are a text (str or bytes) or ids (a list, an array, a tensor). No beginning-of-text token is
added unless prepend_bos asks for it. Activations have the names and shapes of TransformerLens
without the batch dimension; the top of attn.h lists them.

An argument of a wrong type is a TypeError, and one of a wrong value a ValueError; the sentence names it and
says what is expected. A name that a cache lacks is a KeyError, a model that load does not find a
FileNotFoundError. What the library refuses is an attn.Error with its sentence. Whatever a Python function
raises in a hook stops the pass, leaves the session as it was before, and comes out of the call that fed;
so does an interrupt (Ctrl-C), which ends every long call at once. Calls that take long have progress=: True
for a bar, or a function of the share that is done.

Arrays are accepted from whatever NumPy accepts (PyTorch's CPU tensors too) and given as NumPy
arrays; torch.from_numpy shares their memory. All that a call returns may be kept. Only an array that
a function of yours is given (a hook, a metric) lives no longer than that call: keep value.copy(). A
hook that keeps it all the same is an Error.
"""
from __future__ import annotations

import codecs
import ctypes
import difflib
import fnmatch
import gc
import hashlib
import importlib
import itertools
import operator
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, TypeVar, Union

import numpy as np
import numpy.typing as npt

from . import _arguments, _files, _pictures, _words
from ._arguments import coded as _coded, floats as _floats
from ._library import (DTYPES, HOOK_FN, LOGITS_FN, PROGRESS_FN, TEXT_FN, C, Error, Handle, Status, Turns, attn_ctx, attn_tensor,
                       from_c, lib as _lib)

__all__ = ["Config", "Continuation", "Error", "Generation", "Hook", "HookPoint", "Model", "Named", "Record",
           "Sampler", "Sampling", "Scores", "Session", "Status", "Tokenizer", "Verdict", "Workspace", "check", "convert",
           "download", "feed_batch", "lens", "load", "verify", "version"]


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from . import _surprisal, lens
    from ._convert import convert, download
    from .check import check
    __version__: str
else:
    def __getattr__(name: str) -> Any:
        """These are imported when they are first asked for."""
        if name == "__version__":
            return version()
        if name in ("convert", "download"):
            return getattr(importlib.import_module("attn._convert"), name)
        if name not in ("lens", "check"):
            raise _words.missing_in_module("attn", name, sys._getframe(1))
        return importlib.import_module(f"attn.{name}")

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Tokens = npt.ArrayLike  # a text, or ids
Prompts = Union[str, Sequence[Tokens]]
HookFn = Callable[[Array, "HookPoint"], Any]
Span = Union[int, slice, Sequence[int], npt.NDArray[np.integer[Any]], None]  # one, a range, neighbours, or all
SomeNames = Union[str, Iterable[str], Callable[[str], bool]]  # of activations
Names = Optional[SomeNames]  # all but those on request
Path = Union[str, "os.PathLike[str]"]
Texts = Union[str, Iterable[str]]
Positive = int  # from 1 on
Threads = int  # 0 to 256
Seed = int  # of 64 bits
Progress = Union[bool, Callable[[float], Any], None]  # True: a bar. A function is given the share that is done
EditKind = Literal["zero", "set", "mean", "add", "scale"]
Isa = Literal["auto", "portable", "base", "avx2", "avx512", "neon", "avx512_vnni", "avx2_vnni", "neon_dot", "neon_i8mm"]
CachePart = Literal["keys", "values"]
StopReason = Literal["none", "end of text", "token count", "context full", "callback", "stop string"]
_Any = TypeVar("_Any")
_Scalar = TypeVar("_Scalar", bound=np.generic)

# Values of C's enums are places in these.
_ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu"]
_ISAS, _EDITS, _CACHE_PARTS, _STOP_REASONS = ([*literal.__args__] for literal in (Isa, EditKind, CachePart, StopReason))  # type: ignore[attr-defined]

def version() -> str:
    """The version of the library, for example "1.1.0"."""
    number = _lib.attn_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


# ---- memory ----


class _Single:
    """The one owner of what the library made."""

    def __reduce_ex__(self, _: object) -> Any:
        """For copy.copy, copy.deepcopy and pickle: two objects would close one thing of the library twice."""
        name = type(self).__name__
        hint = "; its method copy() makes another" if hasattr(self, "copy") else ""
        raise TypeError(f"a {name} cannot be copied or pickled{hint}")


class _Closing(_Single):
    """Closes at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Any) -> _Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Memory:
    """The owner of what this context allocates, or of what a finalizer frees."""

    def __init__(self, ctx: Optional[attn_ctx] = None) -> None:
        if ctx is not None:
            weakref.finalize(self, _lib.attn_ctx_free, ctypes.pointer(ctx)).atexit = False


def _view(tensor: attn_tensor, owner: object = None) -> Array:
    """An array over numbers outside NumPy, which their owner, or somebody else, keeps alive."""
    dtype = DTYPES[tensor.dtype]
    numbers: Any = SimpleNamespace(owner=owner, __array_interface__={
        "version": 3, "typestr": dtype.str, "data": (tensor.data or 0, False), "shape": tuple(tensor.shape[:tensor.ndim]),
        "strides": tuple(n * dtype.itemsize for n in tensor.stride[:tensor.ndim])})
    return np.asarray(numbers)


def _lend(tensor: attn_tensor, name: str, use: Callable[[Array], None]) -> None:
    """Shows numbers to a function, and fails if it keeps them beyond their life."""
    value = _view(tensor)
    kept = weakref.ref(value)
    use(value)
    del value
    if kept() is not None:
        gc.collect()  # perhaps only a cycle of garbage kept it
    if kept() is not None:
        raise Error(Status.ARGUMENT, f"a function kept the array of {name}, whose memory is about to be used "
                                     "for other numbers; keep a copy, array.copy()")


def _vector(pointer: int, n: int) -> attn_tensor:
    """[n] f32 at an address."""
    return attn_tensor(pointer, 0, 1, (n, 1, 1, 1), (1, 0, 0, 0))


def _bounds(span: Any) -> tuple[int, int]:
    """The first and the number of positions or heads; 0 for all from the first on."""
    span = _arguments.take("edit()", "positions or heads", span, _arguments.KINDS["Span"])
    return (0, 0) if span is None else (span.start, 0 if span.stop is None else span.stop - span.start)


def _edit_of(name: str, kind: EditKind, value: Optional[npt.ArrayLike], positions: Span, heads: Span,
             batch_dim: bool = False) -> tuple[Any, attn_tensor]:
    """C's description of an edit, and the tensor that must outlive it."""
    if (value is None) != (kind == "zero"):
        raise ValueError(f'edit(): "{kind}" takes {"no" if kind == "zero" else "a"} value')
    tensor = attn_tensor() if value is None else attn_tensor.of(_one_text(np.atleast_1d(_floats(value)), 3 if batch_dim else 5))
    return C.attn_edit(_coded(name), _EDITS.index(kind), *_bounds(positions), *_bounds(heads), tensor), tensor


def _one_text(array: Array, least: int) -> Array:
    """Without the batch dimension, which an array of `least` dimensions may have."""
    while array.ndim >= least and array.shape[0] == 1:
        array = array[0]
    return array


def _strings(texts: Iterable[str]) -> Any:
    """A char *[], which keeps the texts alive."""
    each = [_coded(text) for text in texts]
    return (c_char_p * len(each))(*each)


# ---- models ----


@dataclass(frozen=True)
class Config:
    """Sizes of a model. TransformerLens calls n_vocab d_vocab, n_head n_heads and n_layer n_layers."""

    n_vocab: int
    n_ctx: int
    d_model: int
    n_head: int
    n_layer: int
    d_mlp: int
    d_head: int
    ln_eps: float
    tied: bool  # the unembedding is the embedding
    bos: Optional[int]  # beginning and end of text
    eos: Optional[int]
    act_fn: str  # gelu_new in GPT-2; gelu, relu or silu in its relatives
    unscaled_attn: bool  # scores are not divided by sqrt(d_head)
    scale_attn_by_inverse_layer_idx: bool
    has_b_U: bool  # logits have a bias
    more_eos: tuple[int, ...]  # further tokens that end a text


class Scores(NamedTuple):
    """How well a model predicted a text of T tokens."""

    nll: Array  # [T - 1]: -log(probability) of tokens 1 .. T - 1, in nats
    probability: Array  # [T - 1]
    rank: npt.NDArray[np.uintp]  # [T - 1]: how many tokens were likelier
    top: Ids  # [T, k]: the likeliest next tokens, likeliest first
    top_logits: Array  # [T, k]
    top_probability: Array  # [T, k]
    tokens: list[str]  # [T]: their texts

    def _picture(self) -> _pictures.Losses:
        """The text, each token on a colour."""
        tips = [""] + [f"-log p {nll:.3f}, p {p:.3g}, rank {rank}" for nll, p, rank in
                       zip(self.nll.tolist(), self.probability.tolist(), self.rank.tolist())]
        return _pictures.Losses("-log(probability) of each token", self.tokens, np.append(np.float32(np.nan), self.nll), tips)

    def _repr_html_(self) -> str:
        return self._picture()._repr_html_()

    def __str__(self) -> str:
        """A line for each token, for a terminal."""
        return str(self._picture())

    def save(self, path: Path) -> None:
        """Writes the text as an .svg or .png picture, each token on a colour by its loss."""
        self._picture().save(path)

    def to_numpy(self) -> Array:
        """nll."""
        return self.nll

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each token: position, token, nll, probability, rank; the first has none."""
        values = {name: np.append(np.nan, getattr(self, name)) for name in ("nll", "probability", "rank")}
        return _pictures.table({**_pictures.positions(self.tokens), **values})


@dataclass(frozen=True)
class Sampling:
    """How to pick a token; by default the likeliest. In this order: the repetition penalty, division by the
    temperature, the filters top-k, top-p and min-p, then one draw."""

    temperature: float = 0  # 0: the likeliest
    top_k: int = 0  # keep the k likeliest; 0: all
    top_p: float = 1  # keep the likeliest that together reach p; 0: the likeliest; 1: all
    min_p: float = 0  # keep those at least min_p times as likely as the likeliest
    repeat_penalty: float = 0  # of tokens seen before; 0 or 1: none
    repeat_last: int = 0  # how many of the last tokens count as seen; 0: all
    seed: Seed = 0

    def _desc(self) -> Any:
        top_p = 0 if self.top_p == 1 else self.top_p or 1e-30  # 0 is all in C
        return C.attn_sampler_desc(self.temperature, self.top_k, top_p, self.min_p, self.repeat_penalty, self.repeat_last, self.seed)


class Continuation(NamedTuple):
    """A text of Model.generate_many."""

    text: str
    ids: list[int]
    reason: StopReason
    log_probs: list[float]  # of each id, by softmax of the model's own logits


class Tokenizer:
    """GPT-2's byte-level BPE with a model's vocabulary: model.tokenizer."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._handle = model._handle  # the tokenizer lives as long as this
        self._pointer = _lib.attn_model_tokenizer(self._handle)

    def __len__(self) -> int:
        """The number of tokens."""
        return int(_lib.attn_tokenizer_n_tokens(self._pointer))

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a Tokenizer is no function; here it is model.to_tokens(text), or encode(text) of the tokenizer")

    def encode(self, text: Union[str, bytes], allow_special: bool = False) -> Ids:
        """Text to ids [T]. Any bytes can be encoded, and decode_bytes gives them back. allow_special:
        "<|endoftext|>" becomes its token instead of its letters."""
        if not isinstance(text, (str, bytes)):
            raise _arguments.wrong("encode()", "text", text, "a str or bytes")
        data = text.encode() if isinstance(text, str) else text
        ids = np.empty(len(data) + 1, np.int32)  # the vocabulary may add a blank
        n = c_size_t(len(ids))
        self._model._context().run(_lib.attn_encode_special if allow_special else _lib.attn_encode, ids.ctypes.data,
                                   byref(n), self._pointer, data, len(data))
        return ids[:n.value].copy()

    def decode_bytes(self, ids: Tokens) -> bytes:
        """Ids to bytes, which need not be whole UTF-8."""
        tokens = self._model._ids(ids, name="ids")
        room = sum(len(self.token_bytes(int(token))) for token in tokens)
        data = ctypes.create_string_buffer(room + 1)
        n = c_size_t(room)
        self._model._context().run(_lib.attn_decode, data, byref(n), self._pointer, tokens.ctypes.data, len(tokens))
        return data.raw[:n.value]

    def decode(self, ids: Tokens) -> str:
        """Ids to text; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token; none for an id without a token."""
        size = c_size_t()
        at = _lib.attn_token_bytes(byref(size), self._pointer, min(token, 2**31 - 1))
        return ctypes.string_at(at, size.value) if at else b""


class Model(_Closing):
    """A .attn file: its weights, configuration and tokenizer.

    Any number of threads may use a model. It gives its file and memory back when it and all of its
    sessions are closed, by close(), by the end of a `with` block, or because nobody refers to them."""

    def __init__(self, path: Path, *, verify: bool = True, threads: Threads = 0, isa: Isa = "auto",
                 progress: Progress = None, batch_dim: bool = False, special: Optional[bool] = None) -> None:
        """Opens a .attn file; attn.convert makes one of a checkpoint.

        verify: read the whole file and compare its checksums; progress(share) is called meanwhile; True: a bar.
        threads: how many a call may use; 0: the library chooses.
        isa: the instruction set, "auto" or one of portable, base, avx2, avx2_vnni, avx512, avx512_vnni, neon,
                neon_dot, neon_i8mm.
        batch_dim: to_tokens, model(tokens), run_with_hooks and run_with_cache, their hooks and their cache, gradients
                and the logits of a metric have TransformerLens's batch dimension, which is 1: logits are
                [1, T, n_vocab]. Sessions have none. Every call takes activations with it.
        special: whether "<|endoftext|>" in a text is that token, or its letters; None: its letters, with a warning."""
        self.threads, self.batch_dim, self.special = threads, batch_dim, special
        self.path: Optional[str] = os.path.abspath(os.fsdecode(path))  # of its file; None for what process_weights made
        self._isa = isa
        callback, show = _progress_fn(progress, "opening the model")
        desc = C.attn_model_desc(not verify, progress_fn=ctypes.cast(callback, c_void_p) if show else None)
        handle = Handle(_lib.attn_model_close)
        try:
            self._context().run(_lib.attn_model_open, handle.place, os.fsencode(path), byref(desc), long=True)
        except Error as error:
            if "attn-convert" not in str(error):
                raise
            name = os.path.splitext(os.path.basename(os.path.abspath(os.fsdecode(path))))[0]
            raise Error(error.status, f'{error}; here: attn.convert({os.fsdecode(path)!r}, "{name}.attn")') from None
        self._stat = os.stat(path)
        self._adopt(handle)

    def _adopt(self, handle: Handle) -> None:
        self._open: Optional[Handle] = handle
        c = _lib.attn_model_config(handle).contents
        self.config = Config(c.n_vocab, c.n_ctx, c.d_model, c.n_head, c.n_layer, c.d_mlp, c.d_head, c.ln_eps,
                             bool(c.tied), c.bos if c.bos >= 0 else None, c.eos if c.eos >= 0 else None,
                             _ACTIVATIONS[c.act_fn], bool(c.unscaled_attn),
                             bool(c.scale_attn_by_inverse_layer_idx), bool(c.has_b_U),
                             tuple(c.more_eos[:c.n_more_eos]))

    def close(self) -> None:
        """Ends its use. Sessions that are open go on."""
        self._open = None

    def __repr__(self) -> str:
        c = self.config
        return f"<attn.Model of {c.n_layer} layers, {c.n_head} heads, d_model {c.d_model}, n_vocab {c.n_vocab}>"

    @property
    def _handle(self) -> Handle:
        if self._open is None:
            raise Error(Status.ARGUMENT, "the model is closed")
        return self._open

    def _kept_open(self) -> Model:
        """The same model, which stays open when this one is closed."""
        model = Model.__new__(Model)
        model.__dict__.update(self.__dict__, _open=self._handle)
        return model

    def _context(self) -> attn_ctx:
        """A context for one call, or for the tensors that it makes."""
        ctx = attn_ctx()
        ctx.n_threads, ctx.isa = self.threads, _ISAS.index(self._isa)
        return ctx

    @property
    def isa(self) -> str:
        """The name of the kernels in use, such as "avx512 vnni"."""
        name = _lib.attn_isa(byref(self._context()))
        return name.decode() if name else f"{self._isa} (which this processor does not have)"

    # ---- tokens ----

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; without one its calls fail with Status.TOKENIZER."""
        return Tokenizer(self)

    def _ids(self, tokens: Tokens, prepend_bos: bool = False, name: str = "tokens") -> Ids:
        """Any tokens as ids [T]. `name` is the argument's."""
        if isinstance(tokens, (str, bytes)):
            ids = self.tokenizer.encode(tokens, bool(self.special))
            if self.special is None and len(self.tokenizer.encode(tokens, True)) != len(ids):
                warnings.warn(f"{name}: the name of a special token in a text is letters here; attn.load(..., special=True) makes it the "
                              "token, and special=False ends this note", stacklevel=4)
        else:
            expected = "the ids of one text"
            if isinstance(tokens, Record):
                raise TypeError(f"{name} is a cache; expected a text or ids; model.logit_lens(cache) takes one")
            tokens = _arguments.take("", name, tokens, _arguments.KINDS["Tokens"])
            many = "a call takes one: [model.run_with_cache(text) for text in texts], or model.generate_many(texts)"
            if isinstance(tokens, (list, tuple)) and tokens and isinstance(tokens[0], (str, bytes)):
                raise TypeError(f"{name}: got {len(tokens)} {'texts' if len(tokens) > 1 else 'text in a list'}, and {many}")
            try:
                given = np.asarray(tokens)
            except (TypeError, ValueError, OverflowError):  # rows of different lengths, say
                raise _arguments.wrong("", name, tokens, expected, ValueError) from None
            if given.ndim == 2 and given.shape[0] == 1:
                given = given[0]  # TransformerLens's batch of one
            if given.ndim != 1:
                raise ValueError(f"{name}: expected {expected}, got an array of shape {list(given.shape)}; {many}")
            if given.size and given.dtype.kind not in "iu":
                raise TypeError(f"{name}: ids are integers, not {given.dtype}")
            ids = np.ascontiguousarray(given).astype(np.int32)
            for i in np.flatnonzero(ids != given)[:1]:
                raise Error(Status.TOKEN, f"{name}: token {i} is {given[i]}; expected 0 to {self.config.n_vocab - 1}")
        if not prepend_bos:
            return ids
        if self.config.bos is None:
            raise Error(Status.ARGUMENT, "the model has no beginning-of-text token")
        return np.concatenate([np.array([self.config.bos], np.int32), ids])

    def to_tokens(self, text: Union[str, bytes], prepend_bos: bool = False) -> Ids:
        """Text to ids [T]. (TransformerLens gives [1, T], and prepends by default.)"""
        return self._batched(self._ids(text, prepend_bos, "text"))

    def to_string(self, tokens: Tokens) -> str:
        """Ids to text."""
        return self.tokenizer.decode(tokens)

    def to_str_tokens(self, tokens: Tokens, prepend_bos: bool = False) -> list[str]:
        """The text of each token."""
        return [self.tokenizer.decode([token]) for token in self._ids(tokens, prepend_bos)]

    def _labels(self, ids: Ids) -> list[str]:
        """The text of each token, or its number where the model has no tokenizer."""
        try:
            return self.to_str_tokens(ids)
        except Error:
            return [str(token) for token in ids.tolist()]

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token. " word" and "word" differ."""
        token = c_int32()
        self._context().run(_lib.attn_text_token, byref(token), self._handle, _coded(text))
        return token.value

    def _token(self, token: Union[int, str], name: str = "token") -> int:
        if isinstance(token, str):
            return self.to_single_token(_arguments.take("", name, token, _arguments.KINDS["str"]))
        return int(self._ids([_arguments.take("", name, token, ("a token's id, or a str that is one token", operator.index))], name=name)[0])

    def _takes_long(self, n_tokens: int, all_logits: bool = True) -> bool:
        """Whether a pass over so many tokens may take more than some hundredths of a second."""
        c = self.config
        each = c.n_layer * (4 * c.d_model + 2 * c.d_mlp) * c.d_model + (c.n_vocab * c.d_model if all_logits else 0)
        return n_tokens * each > 1e9

    # ---- running ----

    def workspace(self, n_ctx: int = 0, n_batch: int = 0) -> Workspace:
        """Scratch memory of a pass, which several sessions may share. feed_batch needs that."""
        return Workspace(self, n_ctx, n_batch)

    def session(self, n_ctx: int = 0, *, n_batch: int = 0, cache_dtype: Literal["f32", "f16"] = "f32",
                workspace: Optional[Workspace] = None) -> Session:
        """A session for n_ctx tokens (0: as many as the model takes).

        n_batch: rows of a long prompt that are computed at once (0: 256), and that hooks see at once.
        cache_dtype: the type of its keys and values; f16 takes half the memory and rounds them."""
        return Session(self, n_ctx, n_batch=n_batch, cache_dtype=cache_dtype, workspace=workspace)

    def _batched(self, array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        return array[None] if self.batch_dim else array

    def __call__(self, tokens: Tokens, prepend_bos: bool = False) -> Array:
        """The logits [T, n_vocab] at every position of a text."""
        return self.run_with_hooks(tokens, prepend_bos=prepend_bos)

    def run_with_hooks(self, tokens: Tokens, fwd_hooks: Sequence[tuple[SomeNames, HookFn]] = (),
                       prepend_bos: bool = False) -> Array:
        """The logits [T, n_vocab] of a text with hooks: pairs of a name and a function, see
        Session.hook. A function sees all positions at once."""
        ids = self._ids(tokens, prepend_bos)
        with self.session(len(ids), n_batch=len(ids)) as session:
            session._batch_dim = self.batch_dim
            for pair in fwd_hooks:
                if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                    raise _arguments.wrong("run_with_hooks()", "fwd_hooks", fwd_hooks, "pairs, [(name, function)]")
                session.hook(*pair)
            return self._batched(session.feed(ids, all_logits=True))

    def run_with_cache(self, tokens: Tokens, names: Names = None, prepend_bos: bool = False) -> tuple[Array, Record]:
        """The logits [T, n_vocab] of a text and its activations.

        names: a name, or several, `*` standing for anything; or a function that is given every name and
        says whether to keep it. None: all but those on request (attn.hook_result, hook_attn_in,
        hook_q_input, hook_k_input, hook_v_input, hook_mlp_in), which Session.hook tells about."""
        ids = self._ids(tokens, prepend_bos)
        with self.session(len(ids), n_batch=len(ids)) as session, session.record(names, n_positions=len(ids)) as record:
            record._batch_dim = self.batch_dim
            return self._batched(session.feed(ids, all_logits=True)), record

    def _file(self) -> str:
        """The file that a receipt is about."""
        if self.path is None:
            raise Error(Status.ARGUMENT, "a receipt is of a model in a file: save() this one, and open the file")
        now = os.stat(self.path)
        if any(getattr(now, of) != getattr(self._stat, of) for of in ("st_dev", "st_ino", "st_size", "st_mtime_ns")):
            raise Error(Status.ARGUMENT, f"the file {self.path} is not the one that was opened: open the model again")
        return self.path

    def activation_names(self) -> list[str]:
        """The names of all activations, also of those that are made on request."""
        with self.session(1) as session:
            return list(Record(session, ["*", *_on_request()], 0, 1))

    def _chosen(self, names: SomeNames) -> list[str]:
        """The names for which a function says yes, or those of a list, or the one."""
        if not callable(names):
            return [names] if isinstance(names, str) else list(names)
        every = self.activation_names()
        chosen = list(filter(names, every))
        if not chosen:
            raise ValueError(f"the function chose none of the {len(every)} names, such as {every[-1]}")
        return chosen

    def score(self, tokens: Tokens, k: int = 0, prepend_bos: bool = False) -> Scores:
        """How well the model predicts a text, and the k likeliest next tokens at each position."""
        ids = self._ids(tokens, prepend_bos)
        with self.session(len(ids)) as session:
            return session.score(ids, k)

    def classify(self, texts: Prompts, prepend_bos: bool = False) -> Array:
        """The logits [n, labels] of the model's head at the last token of each text, as GPT2ForSequenceClassification of transformers
        or a reward model has them. texts: one, or several, or lists of ids. self.labels has the names of the labels."""
        given = [self._ids(text, prepend_bos, "texts") for text in texts]
        return np.array(self._head(given)["logits"] if given else [], np.float32).reshape(len(given), len(self.labels))

    @property
    def labels(self) -> list[str]:
        """The names of the labels that classify() gives logits for."""
        return list(self._head([np.zeros(1, np.int32)])["labels"][0])

    def _head(self, texts: Sequence[Ids]) -> Mapping[str, Any]:
        from . import lens
        lines = [f'{{"ids": {ids.tolist()}}}' for ids in texts]
        found: Mapping[str, Any] = lens.query(self, "score", lines, task="classify").tables["scores"]
        if any(errors := found.get("error", [])):
            raise ValueError(next(f"text {i}: {error}" for i, error in enumerate(errors) if error))
        return found

    def surprisal(self, texts: Any, *, column: Optional[str] = None, by: Literal["word", "token", "region"] = "word",
                  unit: Literal["bits", "nats"] = "bits", regions: Optional[str] = None, region_names: Optional[str] = None,
                  punctuation: Literal["word", "apart"] = "word", continues: bool = False, rank: bool = False, top: int = 0,
                  layers: Union[Literal["all"], Iterable[int], None] = None, tuned: Optional[Path] = None,
                  entropy_reduction: bool = False, renyi: Optional[float] = None, spillover: int = 0, text_column: Optional[str] = None,
                  stride: Optional[int] = None, context: Union[int, str, None] = None, bos: bool = True, special: Optional[bool] = None,
                  progress: Progress = None) -> dict[str, list[Any]]:
        """How surprising each word is: a list for each column, with the digits that the program surprisal prints. pandas.DataFrame
        takes the result. attn.lens.describe("surprisal") says what each option does.

        texts: one text, or several; or a DataFrame or a dictionary of columns, of which `column` has the texts. The other
                columns come along. layers: as [0, 2], or "all". Missing numbers are NaN.
        text_column: rows with the same value there, one after the other, are one text, as where each row has a word of it.
        context: each word is read behind so many tokens of its text alone, or words ("20w").

        What was changed or left out in the texts is a warning."""
        return _measured("surprisal", {**locals(), "top": top or None, "spillover": spillover or None}).columns()

    def word_vectors(self, texts: Any, layer: Union[int, str], *, column: Optional[str] = None,
                     pooling: Literal["mean", "first", "last"] = "mean", by: Literal["word", "token", "region"] = "word",
                     regions: Optional[str] = None, region_names: Optional[str] = None,
                     punctuation: Literal["word", "apart"] = "word", continues: bool = False, text_column: Optional[str] = None,
                     stride: Optional[int] = None, context: Union[int, str, None] = None, bos: bool = True, special: Optional[bool] = None,
                     progress: Progress = None) -> Array:
        """A vector for each row of surprisal(), with the same options: [rows, width]. A layer's number stands for what it leaves
        in the residual stream, as 8 for "blocks.8.hook_resid_post". pooling: of the vectors of a word's tokens."""
        vectors = layer if isinstance(layer, str) else f"blocks.{layer}.hook_resid_post"
        return _measured("surprisal", {**locals(), "layer": None}).tensors["vectors"].copy()

    def suite(self, path: Path, *, by: Literal["prediction", "region"] = "prediction", corrected: bool = False,
              pair: Optional[str] = None, group: Optional[str] = None, progress: Progress = None) -> dict[str, list[Any]]:
        """A suite of SyntaxGym, or pairs of sentences (CSV, or BLiMP's lines of JSON), as the program's --suite: a list for
        each column. A row is of a prediction, or of a group of pairs, with how many hold.

        by: "region" has a row for each region, or each pair.
        corrected: compare surprisal, not uncorrected.
        pair, group: the columns of the pairs, as "better,worse", and of their groups."""
        return _measured("suite", {**locals(), "by": "region" if by == "region" else None, "path": None, "file": path}).columns()

    def generate_many(self, prompts: Prompts, *, max_tokens: Positive = 100, sampling: Sampling = Sampling(), stop: Texts = (),
                      prepend_bos: bool = False, ignore_eos: bool = False,
                      logits_fn: Optional[Callable[[Array], Any]] = None, progress: Progress = None) -> list[Continuation]:
        """Continues one prompt (a str), or several together. Each prompt has its own session. A pass computes all prompts, so it
        reads the weights once. Text i draws with seed + i. It drafts tokens ahead, which makes repetitive text faster and
        changes none. logits_fn(logits [n_vocab]) may change the logits before each draw. progress: True for a bar, or a
        function of the share of max_tokens of all texts."""
        n_vocab, ids = self.config.n_vocab, [self._ids(prompt, prepend_bos, "prompts") for prompt in prompts]
        if not ids:
            return []
        change = LOGITS_FN(lambda logits, _session, _user: from_c(
            lambda: _lend(_vector(logits, n_vocab), "the logits", logits_fn) if logits_fn else None))
        show, pieces = _told(progress, "generate_many"), itertools.count(1)
        tell = TEXT_FN(lambda _text, _size, _user: from_c(
            lambda: show(min(1, next(pieces) / (max_tokens * len(ids)))) if show else None))
        stops = _strings(stop)
        desc = C.attn_generate_desc(sampling=sampling._desc(), max_tokens=max_tokens, ignore_eos=ignore_eos,
                                    logits_fn=ctypes.cast(change, c_void_p) if logits_fn else None,
                                    stop_strings=ctypes.addressof(stops), n_stop_strings=len(stops))
        texts = (C.attn_continuation * len(ids))()
        owner = _Memory()
        weakref.finalize(owner, _lib.attn_continuations_free, texts, len(texts)).atexit = False
        for text, prompt in zip(texts, ids):
            text.prompt_tokens, text.n_prompt_tokens = prompt.ctypes.data, len(prompt)
            text.text_fn = ctypes.cast(tell, c_void_p) if show else None
        self._context().run(_lib.attn_generate_many, texts, len(texts), self._handle, byref(desc), long=True)
        if show:
            show(1)
        return [Continuation(ctypes.string_at(text.text, text.size).decode(),
                             text.tokens[:text.n_tokens], _lib.attn_stop_reason_name(text.reason).decode(),
                             text.log_probs[:text.n_tokens]) for text in texts]

    # ---- what its file says ----

    def _bytes(self, offset: int, size: int) -> bytes:
        """Of the file, which the library has checked; >>format in attn.h describes it."""
        return ctypes.string_at(_lib.attn_model_bytes(None, self._handle) + offset, size)

    def _number(self, offset: int, size: int) -> int:
        return int.from_bytes(self._bytes(offset, size), "little")

    @property
    def meta(self) -> dict[str, str]:
        """What the file says of the model: "name", "source", "license", "checkpoint_sha256", "converter", as far as
        they are known. Empty for a file without them."""
        if self._number(8, 4) < 4:
            return {}
        tokenizer = self._number(96, 8)
        end = tokenizer + self._number(104, 8) if tokenizer else 256 + self._number(80, 8)
        begin = (end + 63) // 64 * 64
        texts = self._bytes(begin + 16, self._number(begin + 8, 8) - 17).decode().split("\0")
        return dict(zip(texts[::2], texts[1::2]))

    # ---- weights ----

    def tensor_names(self) -> list[str]:
        """Names of the tensors in the file, as the file keeps them (attn.W_QKV is one)."""
        n = self._number(64, 4)
        return [self._bytes(256 + 128 * i, 64).rstrip(b"\0").decode() for i in range(n)]

    def tensor(self, name: str) -> Array:
        """A weight as f32 under the name and in the shape that TransformerLens gives it, such as
        "blocks.0.attn.W_Q" [heads, d_model, d_head]; "W_E", "W_pos", "W_U" and "b_U" need no module. It is a
        copy of the model's."""
        module = _words.WEIGHTS.get(name)
        if module in ("attn", "mlp"):
            raise Error(Status.NAME, f"{name} is of one layer; here it is {_words.word('Model', name)}")
        ctx, out = self._context(), attn_tensor()
        memory = _Memory(ctx)
        ctx.run(_lib.attn_model_tensor, byref(out), self._handle, _coded(f"{module}.{name}" if module else name))
        return _view(out, memory)

    def process_weights(self, *, fold_ln: bool = True, center_writing_weights: bool = True, center_unembed: bool = True,
                        fold_value_biases: bool = True, progress: Progress = None) -> Model:
        """A new model with the same log-probabilities and simpler weights, as TransformerLens makes them."""
        handle, model = Handle(_lib.attn_model_close), Model.__new__(Model)
        flags = fold_ln + 2 * center_writing_weights + 4 * center_unembed + 8 * fold_value_biases
        if not flags:
            raise ValueError("process_weights(): all four are False; expected at least one of fold_ln, center_writing_weights, "
                             "center_unembed and fold_value_biases")
        self._context().run(_lib.lens_process_weights_told, handle.place, self._handle, flags,
                            _progress_fn(progress, "process_weights")[0], None, long=True)
        model.threads, model._isa, model.batch_dim, model.special, model.path = self.threads, self._isa, self.batch_dim, self.special, None
        model._adopt(handle)
        return model

    def save(self, path: Path) -> None:
        """Writes the model as a .attn file, which takes its name when it is whole."""
        self._context().run(_lib.lens_model_save, os.fsencode(path), self._handle, long=True)

    # ---- lenses, attribution (attn.lens has patching, gradients, circuits) ----

    def logit_lens(self, resid: Union[npt.ArrayLike, Record], scale: Optional[npt.ArrayLike] = None,
                   tokens: Optional[Tokens] = None) -> Array:
        """The logits [.., T, n_vocab] of a model that ended at the residual stream `resid` [.., T, d_model];
        [.., T, n] with n tokens chosen. With scale [T, 1] (ln_final.hook_scale of the run), the final
        LayerNorm takes that one instead of the stream's own. A cache stands for the streams that enter each
        layer and the last one, [n_layer + 1, T, d_model]."""
        if isinstance(resid, Record):
            resid = np.stack([*(resid["resid_pre", layer] for layer in range(self.config.n_layer)), resid["resid_post", -1]])
        stream = _arguments.take("logit_lens()", "resid", resid, _arguments.KINDS["npt.ArrayLike"])
        if stream.ndim < 2 or stream.shape[-1] != self.config.d_model:
            raise _arguments.wrong("logit_lens()", "resid", stream, "the shape [.., T, d_model]", ValueError)
        ids = None if tokens is None else self._ids(tokens)
        width = self.config.n_vocab if ids is None else len(ids)
        return self._context().filled(
            (*stream.shape[:-1], width), _lib.lens_logit_lens, self._handle, attn_tensor.of(stream),
            attn_tensor() if scale is None else attn_tensor.of(_one_text(_floats(scale), 3)),
            attn_tensor() if ids is None else attn_tensor.of(ids), long=self._takes_long(stream.size // stream.shape[-1]))

    def logit_directions(self, tokens: Tokens, against: Optional[Tokens] = None) -> Array:
        """[n, d_model]: the directions of the tokens' logits, or of their differences to those `against`."""
        ids, minus = self._ids(tokens), None if against is None else self._ids(against, name="against")
        if minus is not None and len(minus) != len(ids):
            raise ValueError(f"against: {len(ids)} tokens against {len(minus)}; each needs one")
        return self._context().filled((len(ids), self.config.d_model), _lib.attn_logit_directions, self._handle, ids.ctypes.data,
                                      None if minus is None else minus.ctypes.data, len(ids))

    def logit_attrs(self, parts: npt.ArrayLike, scale: npt.ArrayLike, directions: npt.ArrayLike) -> Array:
        """Direct logit attribution [.., T]: the share of parts [.., T, d_model] in logits along the
        directions [1 or T, d_model], with scale [T, 1] as ln_final.hook_scale."""
        stream: Array = np.asarray(parts)
        if stream.ndim < 2:
            raise _arguments.wrong("logit_attrs()", "parts", stream, "the shape [.., T, d_model]", ValueError)
        return self._context().filled(stream.shape[:-1], _lib.lens_logit_attrs, self._handle, attn_tensor.of(stream),
                                      *(attn_tensor.of(_one_text(_floats(given), 3)) for given in (scale, directions)))

    def detect_heads(self, tokens: Tokens) -> tuple[Array, Array]:
        """The entropy of every head's pattern at every position [layers, heads, T], and how much it is a
        previous-token, duplicate-token and induction head [3, layers, heads]."""
        ids, c = self._ids(tokens), self.config
        entropy = np.zeros((c.n_layer, c.n_head, len(ids)), np.float32)
        shares = np.zeros((3, c.n_layer, c.n_head), np.float32)
        self._context().run(_lib.lens_detect_heads, byref(attn_tensor.of(entropy)), byref(attn_tensor.of(shares)), self._handle,
                            ids.ctypes.data, len(ids), long=True)
        return entropy, shares


def _measured(command: str, arguments: dict[str, Any]) -> _surprisal.Measured:
    """The answer of a question about many texts. Its settings are the arguments of a method, of which None is left out."""
    from . import _surprisal
    return _surprisal.measured(command, **arguments)


def load(name: str, **options: Any) -> Model:
    """A model by its name: "tiny-stories" and "induction" are included. "gpt2", and any NAME with a file
    NAME.attn, are looked for in the directories of $ATTN_MODELS, in build/ and in the user's cache directory
    (~/.cache/attn). options: as Model takes them."""
    return Model(_files.model_path(name), **options)


@dataclass(frozen=True)
class Verdict:
    """Whether a receipt holds, which is also its truth: `if attn.verify(...)`. says: the first difference, if not."""

    holds: bool
    says: str

    def __bool__(self) -> bool:
        return self.holds


def verify(model: Model, receipt: Path) -> Verdict:
    """Computes again what a receipt says, and compares every bit. Session.generate(..., receipt=...) writes one,
    and so do the programs gpt2 and attn-verify, on any machine."""
    holds, found = c_int(), C.receipt_findings()
    model._context().run(_lib.lens_receipt_check, byref(holds), byref(found), model._handle, os.fsencode(model._file()),
                         os.fsencode(receipt), long=True)
    return Verdict(bool(holds.value), found.text.decode("utf-8", "replace"))


# ---- sessions ----


class Workspace(_Single):
    """Scratch memory of a pass: Model.workspace."""

    def __init__(self, model: Model, n_ctx: int = 0, n_batch: int = 0) -> None:
        desc, self._handle = C.attn_workspace_desc(n_ctx, n_batch), Handle(_lib.attn_workspace_free, model._handle)
        model._context().run(_lib.attn_workspace_new, self._handle.place, model._handle, byref(desc))
        self._turns = Turns()


@dataclass(frozen=True)
class HookPoint:
    """Where a hook is called."""

    name: str  # of the activation, in full
    layer: Optional[int]
    first: int  # the position of the value's first row in the sequence
    session: Session


class Hook(_Closing):
    """A hook or an edit of a session, until remove() or the end of a `with` block."""

    def __init__(self, session: Session) -> None:
        self._session, self._numbers = session, []  # type: tuple[Session, list[c_uint32]]

    def _joined(self, *others: Hook) -> Hook:
        for other in others:
            self._numbers += other._numbers
        return self

    def remove(self) -> None:
        """Removes it, in any order with others. A hook may remove itself."""
        for number in self._numbers:
            self._session._unhook(number)

    def close(self) -> None:
        """Removes it unless it is removed already."""
        for number in self._numbers:
            if number.value in self._session._hooks():
                self._session._unhook(number)


class Session(_Closing):
    """One sequence: its tokens, its keys and values, its hooks. Model.session makes one.

    Threads that use a session, or sessions of one workspace, take turns. It gives its memory back by
    close(), by the end of a `with` block, or when nobody refers to it."""

    def __init__(self, model: Model, n_ctx: int = 0, *, n_batch: int = 0, cache_dtype: Literal["f32", "f16"] = "f32",
                 workspace: Optional[Workspace] = None) -> None:
        self.model, self._model = model, model._kept_open()
        self._cache_dtype, self._workspace = cache_dtype, workspace
        self._turns = workspace._turns if workspace else Turns()
        self._batch_dim = False  # whether hooks see a batch dimension
        self._is_pure = True  # whether the model alone computed all that it holds, as a receipt needs it
        self._kept: list[tuple[c_uint32, object]] = []  # the number of a hook, and what C refers to
        needs = (self._model._handle, workspace._handle if workspace else None)
        self._open: Optional[Handle] = Handle(_lib.attn_session_free, *needs)
        weakref.finalize(self, self._turns.retire, self._open, self._kept).atexit = False
        desc = C.attn_session_desc(n_ctx, n_batch, int(cache_dtype == "f16"), workspace._handle._as_parameter_ if workspace else None)
        model._context().run(_lib.attn_session_new, self._open.place, self._model._handle, byref(desc))

    def close(self) -> None:
        """Gives the memory back. Records and all arrays stay."""
        kept, self._kept[:] = [*self._kept], []
        self._turns.retire(self._open, kept)
        self._open = None

    def __len__(self) -> int:
        """The number of tokens it holds."""
        return int(self._in_turn(_lib.attn_session_length))

    def __bool__(self) -> bool:
        return True  # an empty session, too

    def _in_turn(self, use: Callable[[Handle], _Any]) -> _Any:
        """use(the session's handle), for this thread alone until it ends."""
        return self._turns.during(lambda: use(self._handle))

    @property
    def _handle(self) -> Handle:
        if self._open is None:
            raise Error(Status.ARGUMENT, "the session is closed")
        return self._open

    def _run(self, function: Any, *arguments: Any, long: bool = False) -> None:
        self._in_turn(lambda handle: self._model._context().run(function, handle, *arguments, long=long, held=self._turns.take()))

    def _hooks(self) -> list[int]:
        return [number.value for number, _ in self._kept if number.value]

    @property
    def capacity(self) -> int:
        """The number of tokens it can hold."""
        return int(self._in_turn(_lib.attn_session_capacity))

    @property
    def tokens(self) -> Ids:
        """The tokens it holds, a copy."""
        return self._in_turn(lambda handle: np.array(
            _lib.attn_session_tokens(handle)[:_lib.attn_session_length(handle)], np.int32))

    @property
    def logits(self) -> Optional[Array]:
        """The logits [n_vocab] of the last token that was fed, a copy. None before the first."""
        def copied(handle: Handle) -> Optional[Array]:
            pointer = _lib.attn_session_logits(handle)
            return _view(_vector(pointer, self._model.config.n_vocab)).copy() if pointer else None

        return self._in_turn(copied)

    # ---- feeding ----

    def feed(self, tokens: Tokens, *, all_logits: bool = False, prepend_bos: bool = False, start_at_layer: int = 0,
             stop_at_layer: Optional[int] = None, resid: Optional[npt.ArrayLike] = None) -> Array:
        """Runs the model over more tokens. Gives the logits [n_vocab] of the last, or [T, n_vocab] of all.

        start_at_layer takes `resid` [T, d_model] as the stream that enters that layer, after a feed of the
        same tokens and truncate. stop_at_layer gives the stream [T, d_model] that leaves, and the tokens
        do not join the session yet. After a failure the session is as it was before."""
        ids, c = self._model._ids(tokens, prepend_bos), self._model.config
        item = C.attn_feed_item()
        item.layers.first = start_at_layer
        if resid is not None:
            kept = np.ascontiguousarray(_one_text(_floats(resid), 3))
            if kept.shape != (len(ids), c.d_model):
                raise ValueError(f"feed(): resid has shape {list(kept.shape)}; expected {[len(ids), c.d_model]}")
            item.layers.resid = kept.ctypes.data
            self._is_pure = False
        if stop_at_layer is None or stop_at_layer == c.n_layer:
            return _feed([self], [ids], [item], all_logits)[0]
        item.layers.end, item.layers.embed_only = stop_at_layer, stop_at_layer == 0
        leaving = np.empty((len(ids), c.d_model), np.float32)
        item.layers.resid_out = leaving.ctypes.data
        _feed([self], [ids], [item], False)
        return leaving

    def truncate(self, length: int) -> None:
        """Forgets all tokens from position `length` on."""
        self._run(_lib.attn_session_truncate, length)
        self._is_pure = self._is_pure or length == 0

    def copy(self) -> Session:
        """Another session with the same tokens, keys and values, without the hooks."""
        to = Session(self._model, self.capacity, cache_dtype=self._cache_dtype, workspace=self._workspace)
        self._in_turn(lambda handle: to._run(_lib.attn_session_copy, handle))
        to.model, to._is_pure = self.model, self._is_pure
        return to

    def score(self, tokens: Tokens, k: int = 0) -> Scores:
        """Feeds a text and tells how well each of its tokens was predicted: see Model.score. Hooks of the
        session take part."""
        ids = self._model._ids(tokens)
        stats = np.zeros(max(len(ids) - 1, 0), np.dtype(C.attn_token_stats))
        top = np.zeros((len(ids), min(k, self._model.config.n_vocab + 1)), np.dtype(C.attn_prediction))
        best = C.attn_top(top.ctypes.data, k)
        self._is_pure = self._is_pure and not self._hooks()
        self._in_turn(lambda handle: self._model._context().run(
            _lib.attn_score, stats.ctypes.data, byref(best), handle, ids.ctypes.data, len(ids),
            long=self._model._takes_long(len(ids)), held=self._turns.take()))
        return Scores(stats["nll"], stats["probability"], stats["rank"], top["token"], top["logit"],
                      top["probability"], self._model._labels(ids))

    def generate(self, prompt: Tokens = (), *, max_tokens: Positive = 100, sampling: Union[Sampling, Sampler] = Sampling(),
                 stop: Texts = (), prepend_bos: bool = False, ignore_eos: bool = False,
                 logits_fn: Optional[Callable[[Array], Any]] = None, receipt: Optional[Path] = None) -> Generation:
        """Feeds the prompt, and gives an iterator over the text that follows, piece by piece. The session
        holds the tokens whose text was given, and between two pieces you may hook, edit and look at it.

        sampling: how tokens are drawn; a Sampler goes on where an earlier call left it.
        stop: the text ends before any of these strings. prepend_bos: an empty session begins with the
        beginning-of-text token. logits_fn(logits [n_vocab]) may change them before each draw, for
        example to -inf for tokens that must not come. receipt: a file that is written when the text has
        ended; attn.verify, or the program attn-verify, computes it again from the model alone."""
        return Generation(self, prompt, max_tokens, sampling, stop, prepend_bos, ignore_eos, logits_fn, receipt)

    # ---- hooks ----

    def hook(self, name: SomeNames, fn: HookFn) -> Hook:
        """Calls fn(value, point) whenever an activation of that name is made, `*` in the name standing for
        anything. Several names, or a function that chooses names, make several hooks. fn may write to the
        array `value`, or return another of its shape; the model goes on with those numbers. An exception ends
        the pass. Positions come in pieces of at most n_batch rows: point.first is the first one's position.

        Six kinds cost extra time and memory, and are made only for a name that does not end in `*`:
        attn.hook_result [T, heads, d_model], what each head adds; hook_attn_in, hook_q_input,
        hook_k_input and hook_v_input [T, heads, d_model], copies of the stream for each head; and
        hook_mlp_in [T, d_model], a copy for the MLP."""
        session = weakref.ref(self)
        callback = HOOK_FN(lambda activation, _: from_c(lambda: _show(activation.contents, session(), fn)))
        return self._hook_each(name, lambda chosen: (callback, _lib.attn_hook, _coded(chosen), callback, None))

    def edit(self, name: SomeNames, kind: EditKind, value: Optional[npt.ArrayLike] = None, *, positions: Span = None,
             heads: Span = None) -> Hook:
        """Changes activations of that name, `*` standing for anything, or of several names, which a function may choose,
        without a Python function that sees them: "zero" them, "set" them to value, to the "mean" of
        value over its positions, "add" value to them, or "scale" them by value, for instance 0.5.

        positions and heads: a number, a slice, or None for all. value: f32, shaped as what is edited,
        [positions, width], [positions, heads, width] or [heads, positions, keys]; leading dimensions may
        be missing, and a dimension of 1 repeats. A float32 array is not copied. With positions None, several positions
        of a value are the first ones, and a feed that goes beyond them fails."""
        def prepared(chosen: str) -> tuple[Any, ...]:
            desc, tensor = _edit_of(chosen, kind, value, positions, heads, self._model.batch_dim)
            return (desc, tensor), _lib.attn_hook_edit, byref(desc)

        return self._hook_each(name, prepared)

    def _hook_each(self, names: SomeNames, prepared: Callable[[str], tuple[Any, ...]]) -> Hook:
        """A hook for each name: all, or after a failure or an interrupt none. `prepared` gives what C refers to, which is
        kept before C knows of it, and then the function of C and its arguments."""
        hook, chosen = Hook(self), self._model._chosen(names)
        if not chosen:
            raise ValueError("name: the list of names is empty")
        try:
            for name in chosen:
                number = c_uint32()
                kept, function, *arguments = prepared(name)
                hook._numbers.append(number)
                self._kept.append((number, kept))
                self._in_turn(lambda handle: self._model._context().run(function, byref(number), handle, *arguments))
            return hook
        except BaseException:
            hook.close()
            raise

    def _unhook(self, number: c_uint32) -> None:
        self._run(_lib.attn_unhook, number)
        gone = [entry for entry in self._kept if entry[0] is number]
        self._kept[:] = [entry for entry in self._kept if entry[0] is not number]
        self._turns.retire(gone)

    def unhook_all(self) -> None:
        """Removes all hooks and edits, and ends all records."""
        self._in_turn(_lib.attn_unhook_all)
        kept, self._kept[:] = [*self._kept], []
        self._turns.retire(kept)

    def record(self, names: Names = None, *, first: Optional[int] = None, n_positions: int = 0) -> Record:
        """Records the activations of the tokens that are fed from now on: a mapping from names to arrays.
        names: as for Model.run_with_cache. n_positions: room for so many, from `first` on (None: the next one; 0: as many
        as the session can hold)."""
        return Record(self, names, len(self) if first is None else first, n_positions)

    # ---- keys and values ----

    def cache_get(self, part: CachePart, layer: int, first: int = 0) -> Array:
        """A copy [positions, heads, d_head] of a layer's keys or values at the positions from `first` on."""
        ctx, out = self._model._context(), attn_tensor()
        memory = _Memory(ctx)
        self._in_turn(lambda handle: ctx.run(_lib.attn_session_get_cache, byref(out), handle, _CACHE_PARTS.index(part), layer, first))
        return _view(out, memory)

    def cache_set(self, part: CachePart, layer: int, value: npt.ArrayLike, first: int = 0) -> None:
        """Puts others in their place, from position `first` on."""
        self._is_pure = False
        self._run(_lib.attn_session_set_cache, _CACHE_PARTS.index(part), layer, first, attn_tensor.of(_one_text(_floats(value), 4)))


def _show(activation: Any, session: Optional[Session], fn: HookFn) -> None:
    """Calls a hook, and takes over what it returns."""
    assert session is not None  # it is being fed
    name = activation.name.decode()
    point = HookPoint.__new__(HookPoint)  # __init__ of a frozen dataclass takes a microsecond, and hooks are called often
    point.__dict__.update(name=name, layer=_words.Layer(activation.layer) if name.startswith("blocks.") else None,
                          first=activation.first, session=session)

    def use(value: Array) -> None:
        if session._batch_dim:
            value = value[None]
        try:
            result = fn(value, point)
        except IndexError as error:
            note = f"in a hook on {point.name}, whose value has the shape {list(value.shape)}" + (
                "" if session._batch_dim else "; attn.load(name, batch_dim=True) gives it TransformerLens's batch dimension")
            if hasattr(error, "add_note"):
                error.add_note(note)
            else:  # Python 3.9 and 3.10
                error.args = (f"{error} ({note})",)
            raise
        if result is None or result is value:
            return
        if np.shape(result) != value.shape:
            raise ValueError(f"a hook on {point.name} gave shape {list(np.shape(result))}; expected "
                             f"{list(value.shape)}, or None for no change")
        value[...] = result

    _lend(activation.value, point.name, use)


def feed_batch(sessions: Sequence[Session], tokens: Sequence[Tokens], *, all_logits: bool = False) -> list[Array]:
    """Feeds several sessions of one workspace in one pass over the weights. Gives of each what Session.feed
    would, with the same bits."""
    for session in sessions:
        if not isinstance(session, Session):
            raise _arguments.wrong("feed_batch()", "sessions", sessions, "a list of sessions")
    if len(sessions) != len(tokens):
        raise ValueError(f"tokens: {len(sessions)} sessions and {len(tokens)} texts; each session needs one")
    ids = [session._model._ids(text) for session, text in zip(sessions, tokens)]
    return _feed(sessions, ids, [C.attn_feed_item() for _ in sessions], all_logits)


def _feed(sessions: Sequence[Session], texts: list[Ids], items: list[Any], all_logits: bool) -> list[Array]:
    """Feeds items, of which `layers` is set already."""
    if not items:
        return []
    outs: list[Array] = []
    turns = sorted({session._turns for session in sessions}, key=id)  # the same order in all threads
    held = [turn.take() for turn in turns]
    try:
        for session, ids, item in zip(sessions, texts, items):
            item.session, item.tokens, item.n_tokens = session._handle._as_parameter_, ids.ctypes.data, len(ids)
            session._is_pure = session._is_pure and not session._hooks()
            if all_logits:
                outs.append(np.empty((len(ids), session._model.config.n_vocab), np.float32))
                item.logits = outs[-1].ctypes.data
        model = sessions[0]._model
        model._context().run(_lib.attn_feed_batch, (C.attn_feed_item * len(items))(*items), len(items), held=held,
                             long=model._takes_long(sum(map(len, texts)), all_logits))
        if not all_logits and items[0].layers.end == 0 and not items[0].layers.embed_only:
            outs = [logits for session in sessions if (logits := session.logits) is not None]
    finally:
        del held
        for turn in turns:
            turn.tidy()
    return outs


# ---- records ----


def _on_request() -> list[str]:
    """Patterns for the activations that are made on request."""
    kinds = itertools.takewhile(bool, map(_lib.attn_activation_kind_at, itertools.count()))
    return [f"blocks.*.{kind.contents.name.decode()}" for kind in kinds if kind.contents.on_request]


def _full_name(names: Iterable[str], n_layer: int, key: Union[str, tuple[Any, ...]]) -> str:
    """The one of `names` that a key means: the name itself, or TransformerLens's short one, ("pattern", 0),
    ("resid_post", -1), ("scale", 0, "ln1"), ("k", 0, "a")."""
    name, layer, kind = (*(key if isinstance(key, tuple) else (key,)), None, None)[:3]
    if not isinstance(name, str):
        raise KeyError(f'a name comes first and then the layer, as in ["resid_post", -1]; got {name!r}')
    names = list(names)
    name, kind = _words.ACTIVATIONS.get(name, name), _words.MODULES.get(kind, kind)
    if layer is None:
        found = [full for full in (name, f"hook_{name}", f"ln_final.hook_{name}") if full in names][:1]
    elif not -n_layer <= layer < n_layer:
        raise KeyError(f"there is no layer {layer}: the model has {n_layer}, from 0")
    else:
        name = f"blocks.{layer % n_layer}.{kind + '.' if kind else '*'}hook_{name}"
        found = fnmatch.filter(names, name)
    if len(found) > 1:
        raise KeyError(f"{name.rpartition('hook_')[2]} of layer {layer} may be {' or '.join(found)}")
    if not found:
        raise KeyError(f"the record has no {name}{_hint(names, name)}")
    return found[0]


def _hint(names: Sequence[str], name: str) -> str:
    """What a wrong name may mean: what it begins, a short name without its layer, or the nearest."""
    begun = [other for other in names if other.startswith(name)]
    if begun:
        return f", which begins {', '.join(begun[:6])}{' ...' if len(begun) > 6 else ''}"
    if any(other.endswith(f".hook_{name}") for other in names):
        return f'; it has one of each layer: ["{name}", 0]'
    last = name.rpartition(".")[2].lstrip("*")
    if any(pattern.endswith(f".{last}") for pattern in _on_request()):
        return f', which is made on request: run_with_cache(tokens, ["*", "*.{last}"])'
    near = difflib.get_close_matches(name, names, 1)
    return f"; is it {near[0]}?" if near else ""


class Named(dict[str, Array]):
    """Arrays by the names of their activations. A key may be short, as a cache's: ["resid_post", -1]."""

    def __init__(self, arrays: Mapping[str, Array], n_layer: int) -> None:
        super().__init__(arrays)
        self._n_layer = n_layer

    def __getitem__(self, key: Union[str, tuple[Any, ...]]) -> Array:
        return super().__getitem__(_full_name(self, self._n_layer, key))


class Record(_Closing, Mapping[str, Array]):
    """Activations by their TransformerLens names: Session.record, Model.run_with_cache.

    cache["blocks.0.attn.hook_pattern"], or as in TransformerLens cache["pattern", 0], cache["resid_post", -1]
    for the last layer's, and cache["normalized.post", 0, "ln1"]. An array is a view of the record's memory, which lives as long as
    any of its views; it shows the positions recorded when it was asked for."""

    def __init__(self, session: Session, names: Names, first: int, n_positions: int) -> None:
        chosen = None if names is None else session._model._chosen(names)
        self._session, self._batch_dim = session, False
        self._views: dict[str, Array] = {}  # once it has ended
        self._names: list[str] = []
        self._open: Optional[Handle] = None
        if chosen == []:
            return
        wanted, room = _strings(chosen or []), n_positions or session.capacity - first
        if room < 1:
            raise ValueError(f"record(): first is {first}; expected less than {session.capacity}, which the session can hold")
        desc = C.attn_record_desc(ctypes.addressof(wanted) if chosen else None, len(wanted), first, room)
        size, model = c_size_t(), session._model
        model._context().run(_lib.attn_record_size, byref(size), model._handle, byref(desc))
        self._memory = np.empty(size.value // 4 + 1, np.float32)
        desc.memory, desc.memory_size = self._memory.ctypes.data, size.value
        self._open = record = Handle(_lib.attn_record_free, self._memory)
        weakref.finalize(self, session._turns.retire, record).atexit = False
        session._in_turn(lambda handle: model._context().run(_lib.attn_record_new, record.place, handle, byref(desc)))
        self._names = [_lib.attn_record_name(record, i).decode() for i in range(_lib.attn_record_n_activations(record))]

    def close(self) -> None:
        """Ends the recording. The recorded activations stay."""
        def ended() -> None:
            if self._open:
                self._views = {name: self._array(name) for name in self._names}
                self._session._turns.retire(self._open)
                self._open = None

        self._session._turns.during(ended)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __repr__(self) -> str:
        shown = ", ".join(self._names[-3:])
        return f"<attn.Record of {len(self)} activations, such as {shown}>"

    def __getitem__(self, key: Union[str, tuple[Any, ...]]) -> Array:
        array = self._array(_full_name(self._names, self._session._model.config.n_layer, key))
        return array[None] if self._batch_dim else array

    def _array(self, name: str) -> Array:
        def found() -> Array:
            if not self._open:
                return self._views[name]
            out = attn_tensor()
            self._session._model._context().run(_lib.attn_record_get, byref(out), self._open, _coded(name))
            return np.ndarray(tuple(out.shape[:out.ndim]), np.float32, self._memory.data,
                              (out.data or 0) - self._memory.ctypes.data, [4 * n for n in out.stride[:out.ndim]])

        return self._session._turns.during(found)

    def save(self, path: Path) -> None:
        """Writes all of it as .safetensors or .npz, by how the path ends."""
        name = os.fsdecode(path)
        if name.endswith(".npz"):
            arrays: dict[str, Any] = dict(self)
            np.savez(path, **arrays)
        elif name.endswith(".safetensors"):
            names, tensors = _strings(self), [attn_tensor.of(value) for value in self.values()]
            self._session._model._context().run(_lib.lens_save, os.fsencode(path), names,
                                               (attn_tensor * len(tensors))(*tensors), len(tensors))
        else:
            raise ValueError(f"the path ends in .safetensors or .npz, not like {name}; torch.save takes "
                             "{name: torch.from_numpy(array) for name, array in cache.items()}")


# ---- text ----


class Sampler(_Single):
    """Draws tokens. One sampler may serve several calls of Session.generate, which then draw the same tokens
    as one long call."""

    def __init__(self, model: Model, sampling: Sampling = Sampling()) -> None:
        desc, self._handle = sampling._desc(), Handle(_lib.attn_sampler_free)
        self._model = model
        model._context().run(_lib.attn_sampler_new, self._handle.place, model.config.n_vocab, byref(desc))

    def sample(self, logits: npt.ArrayLike, seen: Tokens = ()) -> int:
        """A token drawn from logits [n_vocab]. `seen`: the tokens so far, for the repetition penalty."""
        row, ids, token = np.ascontiguousarray(_floats(logits)), self._model._ids(seen, name="seen"), c_int32()
        if row.shape != (self._model.config.n_vocab,):
            raise ValueError(f"sample(): logits have shape {list(row.shape)}; expected {[self._model.config.n_vocab]}")
        self._model._context().run(_lib.attn_sample, byref(token), self._handle, row.ctypes.data, ids.ctypes.data,
                                   len(ids))
        return token.value


def _cut(text: bytes, stops: Sequence[bytes]) -> tuple[bytes, bytes, bool]:
    """A text as far as it is certain, the end that may still become a stop string, and whether there is one.
    It looks in the bytes, as the library does: a broken character is U+FFFD in the decoded text only."""
    ends = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    if ends:
        return text[:min(ends)[1]], b"", True
    held = max((n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
    return text[:len(text) - held], text[len(text) - held:], False


class Generation(Iterator[str]):
    """A text that is being written: an iterator over its pieces, whole characters each. Session.generate."""

    ids: list[int]  # the tokens so far
    _text: Optional[str]  # the pieces so far, None before the first was asked for
    reason: StopReason  # why it ended, "none" before

    def __init__(self, session: Session, prompt: Tokens, max_tokens: int, sampling: Union[Sampling, Sampler], stop: Texts,
                 prepend_bos: bool, ignore_eos: bool, logits_fn: Optional[Callable[[Array], Any]], receipt: Optional[Path]) -> None:
        if not isinstance(sampling, (Sampling, Sampler)):
            raise _arguments.wrong("generate()", "sampling", sampling, "attn.Sampling(...) or attn.Sampler(model, ...)")
        if receipt is not None and (session._hooks() or logits_fn or isinstance(sampling, Sampler) or not session._is_pure):
            raise ValueError("receipt: a receipt is of the model's own text: it takes no hooks, edits, changed keys, values or streams, "
                             "logits_fn or Sampler that has drawn before; give sampling=attn.Sampling(...), and a new session")
        self.ids, self._text, self.reason = [], None, "none"
        self._receipt = None if receipt is None else os.path.abspath(os.fsdecode(receipt))
        self._digests: list[bytes] = []  # for a receipt: of the logits of each draw
        self._is_own = True  # whether the session holds the prompt and this text alone
        self._session, self._max_tokens, self._logits_fn = session, max_tokens, logits_fn
        config = session._model.config
        self._eos = () if ignore_eos else (config.eos, *config.more_eos)
        self._sampler = sampling if isinstance(sampling, Sampler) else Sampler(session._model, sampling)
        self._stops = [text.encode() for text in stop]
        if not all(self._stops):
            raise ValueError("stop: a stop string is empty; every text would end before it begins")
        if self._receipt is not None:
            session._model._file()
        ids = session._model._ids(prompt, prepend_bos and len(session) == 0, "prompt")
        if len(ids):
            session.feed(ids)
        elif session.logits is None:
            raise Error(Status.ARGUMENT, "there is nothing to continue: give a prompt, feed the session, or set "
                                         "prepend_bos")
        self._prompt = session.tokens
        self._desc = C.attn_sampler_desc() if isinstance(sampling, Sampler) else sampling._desc()
        self._pieces = self._write()

    def __next__(self) -> str:
        piece = next(self._pieces)
        self._text = (self._text or "") + piece
        return piece

    @property
    def text(self) -> str:
        """The text so far: the pieces that were read, joined. If no piece was read, this writes the whole text."""
        return self.read() if self._text is None else self._text

    def __repr__(self) -> str:
        ended = "not begun" if self._text is None else f"ended by {self.reason}" if self.reason != "none" else "begun"
        return f"<attn.Generation, {ended}: read() writes the text and gives it, and a `for` loop its pieces>"

    def read(self) -> str:
        """Writes the rest, and gives the whole text."""
        self._text = self._text or ""
        for _ in self:
            pass
        return self._text

    def _draw(self) -> int:
        """The next token, from the session's logits or from logits_fn's."""
        session, token = self._session, c_int32()
        model = session._model

        def drawn(handle: Handle) -> int:
            logits = _lib.attn_session_logits(handle)
            if not logits:
                raise Error(Status.ARGUMENT, "after truncate, feed at least one token before the text goes on")
            row = _view(_vector(logits, model.config.n_vocab))
            if self._logits_fn:
                row = row.copy()
                self._logits_fn(row)
            if self._receipt is not None:
                self._digests.append(hashlib.sha256(row.astype("<f4").tobytes()).digest())
                self._is_own = self._is_own and session.tokens.tolist() == [*self._prompt.tolist(), *self.ids]
            model._context().run(_lib.attn_sample, byref(token), self._sampler._handle, row.ctypes.data,
                                 _lib.attn_session_tokens(handle), len(session))
            return token.value

        return session._in_turn(drawn)

    def _write_receipt(self) -> None:
        session, stops = self._session, _strings([stop.decode() for stop in self._stops])
        why = ("the session was given a hook or an edit before the text ended, or other keys, values or streams"
               if session._hooks() or not session._is_pure else
               "the session was fed or truncated before the text ended" if not self._is_own else
               f"the session's {session.capacity} tokens ended the text, and not the model's context"
               if self.reason == "context full" and session.capacity != session._model.config.n_ctx else "")
        if why:
            raise Error(Status.ARGUMENT, f"there is no receipt: {why}")
        ids, digests = np.array(self.ids, np.int32), np.frombuffer(b"".join(self._digests), np.uint8)
        text = C.receipt_generated(self._desc, self._max_tokens, not self._eos, session._cache_dtype == "f16",
                                   ctypes.addressof(stops), len(stops), self._prompt.ctypes.data, ids.ctypes.data,
                                   len(self._prompt), len(ids), _STOP_REASONS.index(self.reason),
                                   digests.ctypes.data)
        model = session._model
        model._context().run(_lib.lens_receipt_of_generated, model._handle, os.fsencode(model._file()), byref(text),
                             os.fsencode(self._receipt or ""), long=True)

    def _write(self) -> Iterator[str]:
        session, tokenizer, held = self._session, self._session._model.tokenizer, b""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while self.reason == "none":
            token = self._draw()
            if token in self._eos:
                self.reason = "end of text"
                if not _lib.attn_tokenizer_is_special(tokenizer._pointer, token):  # a full stop, say, belongs to the text
                    held = b"".join(_cut(held + tokenizer.token_bytes(token), self._stops)[:2])
                break
            is_full = len(session) == session.capacity
            if not is_full:
                session.feed([token])
            self.ids.append(token)
            certain, held, stopped = _cut(held + tokenizer.token_bytes(token), self._stops)
            shown = decoder.decode(certain)
            if stopped:
                self.reason = "stop string"
            elif len(self.ids) == self._max_tokens:
                self.reason = "token count"
            elif is_full:
                self.reason = "context full"
            if shown:
                yield shown
        if self._receipt is not None:
            self._write_receipt()
        rest = decoder.decode(held, True)
        if rest:
            yield rest


def _told(progress: Progress, what: str) -> Optional[Callable[[float], Any]]:
    """What is given the share that is done, from 0 to 1: the function, or for True a bar. None: nobody is told."""
    if not progress or callable(progress):
        return progress or None
    try:
        bar = importlib.import_module("tqdm.auto").tqdm(total=1.0, desc=what, bar_format="{l_bar}{bar}| {elapsed}<{remaining}")
    except ImportError:
        return lambda share: print(f"\r{what}: {share:4.0%}", end="\n" if share >= 1 else "", file=sys.stderr, flush=True)

    def show(share: float) -> None:
        bar.update(max(0.0, share - bar.n))
        if share >= 1:
            bar.close()

    return show


def _progress_fn(progress: Progress, what: str) -> tuple[Any, Optional[Callable[[float], Any]]]:
    """A function for C that tells the share that is done, and what it tells; None for nobody."""
    show = _told(progress, what)
    return PROGRESS_FN(lambda done, _: from_c(lambda: show(done) if show else None)), show


def _say_words(of: type) -> None:
    """The error for an attribute that a class lacks has the word of this package."""
    def missing(_: object, name: str) -> Any:
        raise _words.missing(of.__name__, name)
    setattr(of, "__getattr__", missing)


for _class in (Config, Tokenizer, Model, HookPoint, Record):
    _say_words(_class)
_arguments.KINDS.update(Model=_arguments.instance(Model, "a model, of attn.load or attn.Model"),
                        Session=_arguments.instance(Session, "a session, of model.session()"),
                        Workspace=_arguments.instance(Workspace, "a workspace, of model.workspace()"),
                        Sampling=_arguments.instance(Sampling, "attn.Sampling(...)"))
_arguments.check_all(globals())

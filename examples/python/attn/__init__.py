"""GPT-2 with every activation in reach, as NumPy arrays: attn.h from Python.

What exists:

    texts       load, Model, Tokenizer, Session, Sampling, Sampler, Generation, Continuation, Scores
    receipts    Session.generate(..., receipt="story.json"), verify, Verdict
    inside      Model.run_with_cache, run_with_hooks, logit_lens; Session.hook, edit, record; Record, Named, Hook
    many        feed_batch, Workspace, Model.generate_many
    research    attn.lens: patching, gradients, edges, circuits, heads, steering, sparse autoencoders
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
without the batch dimension; the top of attn.h lists them. Every failure is an attn.Error with the
library's sentence. Whatever a Python function raises in a hook stops the pass, leaves the session as
it was before, and comes out of the call that fed.

Arrays are accepted from whatever NumPy accepts (PyTorch's CPU tensors too) and given as NumPy
arrays; torch.from_numpy shares their memory. All that a call returns may be kept. Only an array that
a function of yours is given (a hook, a metric) lives no longer than that call: keep value.copy(). A
hook that keeps it all the same is an Error.
"""
from __future__ import annotations

import codecs
import ctypes
import ctypes.util
import difflib
import enum
import fnmatch
import gc
import hashlib
import importlib
import itertools
import operator
import os
import pathlib
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ctypes import (byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64,
                    c_void_p)
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, SupportsIndex, TypeVar, Union

import numpy as np
import numpy.typing as npt

from . import _files, _pictures, _words

__all__ = ["Config", "Continuation", "Error", "Generation", "Hook", "HookPoint", "Model", "Named", "Record",
           "Sampler", "Sampling", "Scores", "Session", "Status", "Tokenizer", "Verdict", "Workspace", "check", "feed_batch",
           "lens", "load", "verify", "version"]


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from . import lens
    from .check import check
else:
    def __getattr__(name: str) -> Any:
        """attn.lens and attn.check are imported when they are first asked for."""
        if name not in ("lens", "check"):
            raise _words.missing_in_module("attn", name, _words.MODULE.get(name), sys._getframe(1))
        return importlib.import_module(f"attn.{name}")

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
Tokens = npt.ArrayLike  # a text, or ids
HookFn = Callable[[Array, "HookPoint"], Any]
Span = Union[int, slice, Sequence[int], npt.NDArray[np.integer[Any]], None]  # one, a range, neighbours, or all
SomeNames = Union[str, Iterable[str], Callable[[str], bool]]  # of activations
Names = Optional[SomeNames]  # all but those on request
EditKind = Literal["zero", "set", "mean", "add", "scale"]
StopReason = Literal["none", "end of text", "token count", "context full", "callback", "stop string"]
_Any = TypeVar("_Any")
_Scalar = TypeVar("_Scalar", bound=np.generic)

# ---- the library's structs, with the names that C gives them ----


class _attn_ctx(ctypes.Structure):
    _fields_ = [("alloc", c_void_p), ("free", c_void_p), ("user", c_void_p), ("n_threads", c_int), ("isa", c_int),
                ("stop_flag", c_void_p), ("status", c_int), ("message", c_char * 256), ("blocks", c_void_p),
                ("owner", c_void_p), ("reserved", c_uint64 * 4)]

    def run(self, function: Any, *arguments: Any) -> None:
        """Calls a function that returns a status; a failure becomes an Error."""
        status = Status(function(byref(self), *arguments))
        if status:
            message = b"a callback asked to stop" if status == Status.STOPPED else self.message
            raise Error(status, _words.in_python(message.decode("utf-8", "replace")))


class _attn_tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("ndim", c_int), ("shape", c_size_t * 4),
                ("stride", ctypes.c_ssize_t * 4), ("error", c_char_p), ("owned", c_void_p)]
    array: npt.NDArray[Any]  # whose numbers these are

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> _attn_tensor:
        """A tensor over an array's numbers, which it keeps alive."""
        if not 1 <= array.ndim <= 4:
            raise ValueError(f"expected an array of 1 to 4 dimensions, got shape {list(array.shape)}")
        if any(stride % array.itemsize for stride in array.strides) or not array.flags.aligned:
            array = array.copy()
        tensor = cls(array.ctypes.data, _DTYPES.index(array.dtype), array.ndim, (1, 1, 1, 1))
        for i in range(array.ndim):
            tensor.shape[i] = array.shape[i]
            tensor.stride[i] = array.strides[i] // array.itemsize
        tensor.array = array
        return tensor


class _attn_config(ctypes.Structure):
    _fields_ = [("n_vocab", c_size_t), ("n_ctx", c_size_t), ("d_model", c_size_t), ("n_head", c_size_t),
                ("n_layer", c_size_t), ("d_mlp", c_size_t), ("d_head", c_size_t), ("ln_eps", c_float),
                ("tied", c_int), ("bos", c_int32), ("eos", c_int32), ("act_fn", c_int), ("unscaled_attn", c_int),
                ("scale_attn_by_inverse_layer_idx", c_int), ("has_b_U", c_int), ("n_more_eos", c_size_t),
                ("more_eos", ctypes.POINTER(c_int32)), ("reserved", c_uint64 * 4)]


class _attn_model_desc(ctypes.Structure):
    _fields_ = [("skip_checksums", c_int), ("progress_fn", c_void_p), ("progress_user", c_void_p), ("reserved", c_uint64 * 4)]


class _attn_workspace_desc(ctypes.Structure):
    _fields_ = [("n_ctx", c_size_t), ("n_batch", c_size_t), ("reserved", c_uint64 * 4)]


class _attn_session_desc(ctypes.Structure):
    _fields_ = [("n_ctx", c_size_t), ("n_batch", c_size_t), ("cache_dtype", c_int), ("workspace", c_void_p),
                ("reserved", c_uint64 * 4)]


class _attn_layers(ctypes.Structure):
    _fields_ = [("first", c_size_t), ("end", c_size_t), ("embed_only", c_int), ("resid", c_void_p),
                ("resid_out", c_void_p), ("reserved", c_uint64 * 2)]


class _attn_feed_item(ctypes.Structure):
    _fields_ = [("session", c_void_p), ("tokens", c_void_p), ("n_tokens", c_size_t), ("logits", c_void_p),
                ("rows", c_void_p), ("n_rows", c_size_t), ("layers", _attn_layers), ("reserved", c_uint64 * 4)]


class _attn_token_stats(ctypes.Structure):
    _fields_ = [("nll", c_float), ("probability", c_float), ("rank", c_size_t)]


class _attn_prediction(ctypes.Structure):
    _fields_ = [("token", c_int32), ("logit", c_float), ("probability", c_float)]


class _attn_top(ctypes.Structure):
    _fields_ = [("best", c_void_p), ("k", c_size_t)]


class _attn_sampler_desc(ctypes.Structure):
    _fields_ = [("temperature", c_float), ("top_k", c_size_t), ("top_p", c_float), ("min_p", c_float),
                ("repeat_penalty", c_float), ("repeat_last", c_size_t), ("seed", c_uint64),
                ("reserved", c_uint64 * 4)]


class _attn_generate_desc(ctypes.Structure):
    _fields_ = [("sampling", _attn_sampler_desc), ("reuse_sampler", c_void_p), ("text_fn", c_void_p),
                ("text_user", c_void_p), ("logits_fn", c_void_p), ("logits_user", c_void_p), ("max_tokens", c_size_t),
                ("prepend_bos", c_int), ("allow_special", c_int), ("ignore_eos", c_int), ("no_draft", c_int),
                ("n_draft", c_size_t), ("stop_strings", c_void_p), ("n_stop_strings", c_size_t), ("keep_stop", c_int),
                ("prompt_tokens", c_void_p), ("n_prompt_tokens", c_size_t), ("workspace", c_void_p),
                ("reserved", c_uint64 * 4)]


class _receipt_generated(ctypes.Structure):
    _fields_ = [("sampling", _attn_sampler_desc), ("max_tokens", c_size_t), ("ignore_eos", c_int), ("f16_cache", c_int),
                ("stop", c_void_p), ("n_stop", c_size_t), ("prompt", c_void_p), ("ids", c_void_p),
                ("n_prompt", c_size_t), ("n_ids", c_size_t), ("ended", c_int), ("digests", c_void_p)]


class _receipt_findings(ctypes.Structure):
    _fields_ = [("text", c_char * 320)]


class _attn_continuation(ctypes.Structure):
    _fields_ = [("prompt", c_char_p), ("prompt_tokens", c_void_p), ("n_prompt_tokens", c_size_t), ("text_fn", c_void_p),
                ("text_user", c_void_p), ("text", c_void_p), ("size", c_size_t), ("tokens", c_void_p),
                ("log_probs", c_void_p), ("n_tokens", c_size_t), ("reason", c_int), ("which_stop", c_size_t),
                ("reserved", c_uint64 * 4)]


class _attn_activation_kind(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("axes", c_int), ("in_block", c_int), ("on_request", c_int)]


class _attn_activation(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", ctypes.POINTER(_attn_activation_kind)), ("layer", c_size_t),
                ("session", c_void_p), ("first", c_size_t),
                ("value", _attn_tensor)]


class _attn_record_desc(ctypes.Structure):
    _fields_ = [("names", c_void_p), ("n_names", c_size_t), ("first", c_size_t), ("n_positions", c_size_t),
                ("memory", c_void_p), ("memory_size", c_size_t), ("reserved", c_uint64 * 4)]


class _attn_edit(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("first", c_size_t), ("count", c_size_t),
                ("first_head", c_size_t), ("n_heads", c_size_t), ("value", _attn_tensor), ("reserved", c_uint64 * 4)]


# Values of C's enums are places in these.
_DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32)]
_ACTIVATIONS = ["gelu_new", "gelu", "relu", "silu"]
_ISAS = ["auto", "portable", "base", "avx2", "avx512", "neon", "avx512_vnni", "avx2_vnni", "neon_dot", "neon_i8mm"]
_EDITS = ["zero", "set", "mean", "add", "scale"]
_CACHE_PARTS = ["keys", "values"]
_STOP_REASONS = ["none", "end of text", "token count", "context full", "callback", "stop string"]

# Functions that C calls: they return 0 to go on, and their last parameter is not used here.
_PROGRESS_FN = ctypes.CFUNCTYPE(c_int, c_double, c_void_p)
_LOGITS_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
_HOOK_FN = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(_attn_activation), c_void_p)

_P, _SIZE, _STATUS = c_void_p, c_size_t, c_int
_PROTOTYPES: dict[str, tuple[Any, ...]] = {  # the result, then the parameters; pointers are _P
    "attn_version": (c_int,),
    "attn_status_name": (c_char_p, c_int),
    "attn_isa": (c_char_p, _P),
    "attn_ctx_free": (None, _P),
    "attn_model_open": (_STATUS, _P, _P, _P, _P),
    "attn_model_close": (None, _P),
    "attn_activation_kind_at": (ctypes.POINTER(_attn_activation_kind), _SIZE),
    "attn_model_config": (ctypes.POINTER(_attn_config), _P),
    "attn_model_tokenizer": (_P, _P),
    "attn_model_bytes": (_P, _P, _P),
    "attn_model_tensor": (_STATUS, _P, _P, _P, _P),
    "lens_model_save": (_STATUS, _P, _P, _P),
    "lens_process_weights": (_STATUS, _P, _P, _P, c_uint32),
    "attn_tokenizer_n_tokens": (_SIZE, _P),
    "attn_token_bytes": (_P, _P, _P, c_int32),
    "attn_tokenizer_is_special": (c_int, _P, c_int32),
    "attn_encode": (_STATUS, _P, _P, _P, _P, _P, _SIZE),
    "attn_encode_special": (_STATUS, _P, _P, _P, _P, _P, _SIZE),
    "attn_decode": (_STATUS, _P, _P, _P, _P, _P, _SIZE),
    "attn_text_token": (_STATUS, _P, _P, _P, _P),
    "attn_workspace_new": (_STATUS, _P, _P, _P, _P),
    "attn_workspace_free": (None, _P),
    "attn_session_new": (_STATUS, _P, _P, _P, _P),
    "attn_session_free": (None, _P),
    "attn_session_length": (_SIZE, _P),
    "attn_session_capacity": (_SIZE, _P),
    "attn_session_tokens": (_P, _P),
    "attn_session_copy": (_STATUS, _P, _P, _P),
    "attn_session_truncate": (_STATUS, _P, _P, _SIZE),
    "attn_feed_batch": (_STATUS, _P, _P, _SIZE),
    "attn_session_logits": (_P, _P),
    "attn_score": (_STATUS, _P, _P, _P, _P, _P, _SIZE),
    "attn_sampler_new": (_STATUS, _P, _P, _SIZE, _P),
    "attn_sampler_free": (None, _P),
    "attn_sample": (_STATUS, _P, _P, _P, _P, _P, _SIZE),
    "attn_stop_reason_name": (c_char_p, c_int),
    "attn_generate_many": (_STATUS, _P, _P, _SIZE, _P, _P),
    "attn_continuations_free": (None, _P, _SIZE),
    "attn_hook": (_STATUS, _P, _P, _P, _P, _HOOK_FN, _P),
    "attn_hook_edit": (_STATUS, _P, _P, _P, _P),
    "attn_unhook": (_STATUS, _P, _P, c_uint32),
    "attn_unhook_all": (None, _P),
    "attn_session_get_cache": (_STATUS, _P, _P, _P, c_int, _SIZE, _SIZE),
    "attn_session_set_cache": (_STATUS, _P, _P, c_int, _SIZE, _SIZE, _attn_tensor),
    "attn_record_size": (_STATUS, _P, _P, _P, _P),
    "attn_record_new": (_STATUS, _P, _P, _P, _P),
    "attn_record_free": (None, _P),
    "attn_record_n_activations": (_SIZE, _P),
    "attn_record_name": (c_char_p, _P, _SIZE),
    "attn_record_get": (_STATUS, _P, _P, _P, _P),
    "lens_save": (_STATUS, _P, _P, _P, _P, _SIZE),
    "attn_logit_directions": (_STATUS, _P, _P, _P, _P, _P, _SIZE),
    "lens_logit_attrs": (_STATUS, _P, _P, _P, _attn_tensor, _attn_tensor, _attn_tensor),
    "lens_logit_lens": (_STATUS, _P, _P, _P, _attn_tensor, _attn_tensor, _attn_tensor),
    "lens_receipt_of_generated": (_STATUS, _P, _P, _P, _P, _P),
    "lens_receipt_check": (_STATUS, _P, _P, _P, _P, _P, _P),
}
_words.FUNCTIONS.update(_PROTOTYPES)
_VERSION = (0, 5)  # major and minor: the structs above are of this one


def _candidates() -> list[str]:
    """Where the library may be, nearest first."""
    if "ATTN_LIBRARY" in os.environ:
        return [os.environ["ATTN_LIBRARY"]]
    here = pathlib.Path(__file__).resolve().parent
    name = {"darwin": "libattn.dylib", "win32": "attn.dll"}.get(sys.platform, "libattn.so")
    near = [here / name, here.parent.parent.parent / "build" / name]
    installed = [name + ".0.5" if name.endswith(".so") else name, ctypes.util.find_library("attn")]
    return [str(path) for path in near if path.exists()] + [path for path in installed if path]


def _load() -> ctypes.CDLL:
    """The shared library, with its functions' types declared."""
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        number = library.attn_version() if hasattr(library, "attn_version") else 0
        found = (number // 10000, number // 100 % 100)
        if found != _VERSION:
            raise ImportError(f"{path} is version {found[0]}.{found[1]} of attn.h, and this package is for "
                              f"{_VERSION[0]}.{_VERSION[1]}; take both from the same version")
        for name, (result, *parameters) in _PROTOTYPES.items():
            if not hasattr(library, name):
                raise ImportError(f"{path} lacks {name}: build it from the same version of attn.h")
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
        return library
    raise ImportError("the package attn does not find its library: build it with `make build/libattn.so`, or set "
                      f"ATTN_LIBRARY to its path ({'; '.join(reasons)})")


_lib = _load()


def version() -> str:
    """The version of the library, for example "0.5.0"."""
    number = _lib.attn_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


# ---- errors ----


class Status(enum.IntEnum):
    """Kinds of failure, as attn_status of attn.h lists them."""

    OK, ARGUMENT, SHAPE, MEMORY, SPACE, IO, FORMAT, VERSION, CHECKSUM, TOKEN, CONTEXT, TOKENIZER, UNSUPPORTED, NAME, \
        STOPPED = range(15)


class Error(Exception):
    """A call failed. str(error) is the library's sentence, error.status its kind."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return Error, (self.status, str(self))


class _Guard:
    """Runs Python functions that C calls. C cannot carry an exception: the guard keeps it until the call
    is over."""

    def __init__(self) -> None:
        self.caught: Optional[BaseException] = None

    def __call__(self, function: Callable[[], None]) -> int:
        """0 to go on, or 1 to stop after an exception."""
        try:
            function()
        except BaseException as error:  # KeyboardInterrupt too
            self.caught = self.caught or error
            return 1
        return 0

    def run(self, ctx: _attn_ctx, function: Any, *arguments: Any) -> None:
        """ctx.run, and then the exception if there was one."""
        _run_guarded([self], ctx, function, *arguments)


def _run_guarded(guards: Iterable[_Guard], ctx: _attn_ctx, function: Any, *arguments: Any) -> None:
    failure: Optional[BaseException] = None
    try:
        ctx.run(function, *arguments)
    except Error as error:
        failure = error
    for guard in guards:
        failure, guard.caught = guard.caught or failure, None
    if failure:
        raise failure


# ---- memory ----


class _Handle:
    """An object that the library made. It is freed when nobody refers to the handle any more, and before
    the handles that it needs: weakref.finalize holds those."""

    def __init__(self, pointer: c_void_p, free: Any, *needs: object) -> None:
        self._as_parameter_ = pointer
        weakref.finalize(self, _release, free, pointer, needs).atexit = False


def _release(free: Any, pointer: c_void_p, _needs: object) -> None:
    free(pointer)


class _Closing:
    """Closes at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Any) -> _Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, _: object) -> Any:
        """For copy.copy, copy.deepcopy and pickle: two objects would close one thing of the library twice."""
        name = type(self).__name__
        hint = "; its method copy() makes another" if hasattr(self, "copy") else ""
        raise TypeError(f"a {name} cannot be copied or pickled{hint}")


class _Turns:
    """One thread at a time, for the sessions of a workspace. An object that a running pass may use waits
    here until the pass is over: the garbage collector may drop it at any moment, in any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._depth = 0
        self._waiting: list[object] = []

    def __enter__(self) -> None:
        self.lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        self._let_go()
        self.lock.release()

    def _let_go(self) -> None:
        while self._depth == 0 and self._waiting:
            self._waiting.pop()

    def retire(self, *used: object) -> None:
        """Lets go of objects, now or when no pass is running."""
        self._waiting.extend(used)
        if self.lock.acquire(blocking=False):
            self._let_go()
            self.lock.release()


class _Memory:
    """Numbers outside NumPy, for np.asarray. The array keeps `owner` alive."""

    def __init__(self, tensor: _attn_tensor, owner: object) -> None:
        dtype = _DTYPES[tensor.dtype]
        self.owner = owner
        self.__array_interface__ = {
            "version": 3, "typestr": dtype.str, "data": (tensor.data or 0, False),
            "shape": tuple(tensor.shape[:tensor.ndim]),
            "strides": tuple(n * dtype.itemsize for n in tensor.stride[:tensor.ndim])}


def _view(tensor: _attn_tensor) -> Array:
    """An array over numbers that somebody else keeps alive."""
    memory: Any = _Memory(tensor, None)
    return np.asarray(memory)


def _array_of(ctx: _attn_ctx, tensor: _attn_tensor) -> Array:
    """An array over a tensor that the context owns, which is freed with the last view of it."""
    memory: Any = _Memory(tensor, ctx)
    weakref.finalize(memory, _lib.attn_ctx_free, ctypes.pointer(ctx)).atexit = False
    return np.asarray(memory)


def _lend(tensor: _attn_tensor, name: str, use: Callable[[Array], None]) -> None:
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


def _vector(pointer: int, n: int) -> _attn_tensor:
    """[n] f32 at an address."""
    return _attn_tensor(pointer, 0, 1, (n, 1, 1, 1), (1, 0, 0, 0))


def _floats(value: npt.ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float32)


def _span(what: str, span: Span) -> tuple[int, int]:
    """The first and the number of positions or heads; 0 for all from the first on."""
    if span is None:
        return 0, 0
    if isinstance(span, (list, tuple, range, np.ndarray)):
        numbers = [operator.index(n) for n in span]
        if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise ValueError(f"{what} must be neighbours, as in [2, 3, 4]; for {numbers} make one edit for each")
        span = slice(numbers[0], numbers[-1] + 1)
    assert isinstance(span, (slice, SupportsIndex))
    first, end = (span.start or 0, span.stop) if isinstance(span, slice) else (operator.index(span), operator.index(span) + 1)
    if isinstance(span, slice) and span.step not in (None, 1) or first < 0 or end is not None and end <= first:
        raise ValueError(f"{what} must be a number from 0 on, or a slice like slice(2, 5) or slice(2, None); "
                         f"got {span}")
    return first, 0 if end is None else end - first


def _edit_of(name: str, kind: EditKind, value: Optional[npt.ArrayLike], positions: Span,
             heads: Span) -> tuple[_attn_edit, _attn_tensor]:
    """C's description of an edit, and the tensor that must outlive it."""
    if kind not in _EDITS:
        raise ValueError(f"kind is one of {', '.join(_EDITS)}, not {kind!r}")
    if (value is None) != (kind == "zero"):
        raise ValueError(f'"{kind}" takes {"no" if kind == "zero" else "a"} value')
    tensor = _attn_tensor() if value is None else _attn_tensor.of(np.atleast_1d(_floats(value)))
    return _attn_edit(_coded(name), _EDITS.index(kind), *_span("positions", positions), *_span("heads", heads),
                      tensor), tensor


def _natural(what: str, n: int) -> int:
    """A count for C, where a negative number would be a huge one."""
    n = operator.index(n)
    if not 0 <= n <= sys.maxsize:
        raise ValueError(f"{what} must be from 0 to {sys.maxsize}, not {n}")
    return n


def _at_least_one(what: str, n: int) -> int:
    if n == 0:  # which would be C's default
        raise ValueError(f"{what} must be at least 1")
    return _natural(what, n)


def _coded(text: str) -> bytes:
    """A name or a text for C, where it ends before a NUL."""
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL character, before which the library would cut it")
    return text.encode()


def _path(path: Union[str, os.PathLike[str]]) -> bytes:
    coded = os.fsencode(path)
    if b"\0" in coded:
        raise ValueError(f"the path {path!r} has a NUL character")
    return coded


def _strings(texts: Union[str, Iterable[str]]) -> Any:
    """A char *[] of one or more, which keeps them alive."""
    coded = [_coded(text) for text in ([texts] if isinstance(texts, str) else texts)]
    return (c_char_p * len(coded))(*coded)


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

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise _words.missing("a Config", name, _words.CONFIG.get(name))


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

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the text as an .svg or .png picture, each token on a colour by its loss."""
        self._picture().save(path)

    def to_numpy(self) -> Array:
        """nll."""
        return self.nll

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each token: position, token, nll, probability, rank; the first has none."""
        import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
        values = {name: np.append(np.nan, getattr(self, name)) for name in ("nll", "probability", "rank")}
        return pandas.DataFrame({**_pictures.positions(self.tokens), **values})


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
    seed: int = 0

    def _desc(self) -> _attn_sampler_desc:
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"a seed is 0 to 2^64 - 1, not {self.seed}")
        top_p = 0 if self.top_p == 1 else self.top_p or 1e-30  # 0 is all in C
        return _attn_sampler_desc(self.temperature, _natural("top_k", self.top_k), top_p, self.min_p,
                                  self.repeat_penalty, _natural("repeat_last", self.repeat_last), self.seed)


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

    def encode(self, text: Union[str, bytes], allow_special: bool = False) -> Ids:
        """Text to ids [T]. Any bytes can be encoded, and decode_bytes gives them back. allow_special:
        "<|endoftext|>" becomes its token instead of its letters."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        ids = np.empty(len(data), np.int32)
        n = c_size_t(len(ids))
        self._model._context().run(_lib.attn_encode_special if allow_special else _lib.attn_encode, ids.ctypes.data,
                                   byref(n), self._pointer, data, len(data))
        return ids[:n.value].copy()

    def decode_bytes(self, ids: Tokens) -> bytes:
        """Ids to bytes, which need not be whole UTF-8."""
        tokens = self._model._ids(ids)
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
        at = _lib.attn_token_bytes(byref(size), self._pointer, min(_natural("a token", token), 2**31 - 1))
        return ctypes.string_at(at, size.value) if at else b""


class Model(_Closing):
    """A .attn file: its weights, configuration and tokenizer.

    Any number of threads may use a model. It gives its file and memory back when it and all of its
    sessions are closed, by close(), by the end of a `with` block, or because nobody refers to them."""

    @_words.answers
    def __init__(self, path: Union[str, os.PathLike[str]], *, verify: bool = True, threads: int = 0,
                 isa: str = "auto", progress: Optional[Callable[[float], None]] = None,
                 batch_dim: bool = False) -> None:
        """Opens a .attn file; attn-convert makes one of a checkpoint.

        verify: read the whole file and compare its checksums; progress(share) is called meanwhile.
        threads: how many a call may use; 0: the library chooses.
        isa: the instruction set, "auto" or one of portable, base, avx2, avx2_vnni, avx512, avx512_vnni, neon,
                neon_dot, neon_i8mm.
        batch_dim: to_tokens, model(tokens), run_with_hooks and run_with_cache, their hooks and their cache have
                TransformerLens's batch dimension, which is 1: logits are [1, T, n_vocab]. Sessions have none."""
        if isa not in _ISAS:
            raise ValueError(f"isa is one of {', '.join(_ISAS)}, not {isa!r}")
        self.threads, self.batch_dim = threads, batch_dim
        self.path: Optional[str] = os.fsdecode(path)  # of its file; None for what process_weights made
        self._isa = isa
        guard = _Guard()
        callback = _PROGRESS_FN(lambda done, _: guard(lambda: progress(done) if progress else None))
        desc = _attn_model_desc(not verify, ctypes.cast(callback, c_void_p) if progress else None)
        pointer = c_void_p()
        guard.run(self._context(), _lib.attn_model_open, byref(pointer), _path(path), byref(desc))
        self._adopt(pointer)

    def _adopt(self, pointer: c_void_p) -> None:
        self._open: Optional[_Handle] = _Handle(pointer, _lib.attn_model_close)
        c = _lib.attn_model_config(pointer).contents
        self.config = Config(c.n_vocab, c.n_ctx, c.d_model, c.n_head, c.n_layer, c.d_mlp, c.d_head, c.ln_eps,
                             bool(c.tied), c.bos if c.bos >= 0 else None, c.eos if c.eos >= 0 else None,
                             _ACTIVATIONS[c.act_fn], bool(c.unscaled_attn),
                             bool(c.scale_attn_by_inverse_layer_idx), bool(c.has_b_U),
                             tuple(c.more_eos[:c.n_more_eos]))

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise _words.missing("a Model", name, _words.model_word(name))

    def close(self) -> None:
        """Ends its use. Sessions that are open go on."""
        self._open = None

    def __repr__(self) -> str:
        c = self.config
        return f"<attn.Model of {c.n_layer} layers, {c.n_head} heads, d_model {c.d_model}, n_vocab {c.n_vocab}>"

    @property
    def _handle(self) -> _Handle:
        if self._open is None:
            raise Error(Status.ARGUMENT, "the model is closed")
        return self._open

    def _context(self) -> _attn_ctx:
        """A context for one call, or for the tensors that it makes."""
        ctx = _attn_ctx()
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

    def _ids(self, tokens: Tokens, prepend_bos: bool = False) -> Ids:
        """Any tokens as ids [T]."""
        if isinstance(tokens, (str, bytes)):
            ids = self.tokenizer.encode(tokens)
        else:
            if isinstance(tokens, Record):
                raise TypeError("expected a text or ids, got a cache; model.logit_lens(cache) takes one")
            many = "a call takes one: [model.run_with_cache(text) for text in texts], or model.generate_many(texts)"
            if isinstance(tokens, (list, tuple)) and tokens and isinstance(tokens[0], (str, bytes)):
                raise TypeError(f"got {len(tokens)} {'texts' if len(tokens) > 1 else 'text in a list'}, and {many}")
            given = np.asarray(tokens)
            if given.ndim == 2 and given.shape[0] == 1:
                given = given[0]  # TransformerLens's batch of one
            if given.ndim != 1:
                raise ValueError(f"expected the ids of one text, got an array of shape {list(given.shape)}; {many}")
            if given.size and given.dtype.kind not in "iu":
                raise TypeError(f"ids are integers, not {given.dtype}")
            ids = np.ascontiguousarray(given, np.int32)
            for i in np.flatnonzero(ids != given)[:1]:
                raise Error(Status.TOKEN, f"token {i} is {given[i]}; expected 0 to {self.config.n_vocab - 1}")
        if not prepend_bos:
            return ids
        if self.config.bos is None:
            raise Error(Status.ARGUMENT, "the model has no beginning-of-text token")
        return np.concatenate([np.array([self.config.bos], np.int32), ids])

    @_words.answers
    def to_tokens(self, text: Union[str, bytes], prepend_bos: bool = False) -> Ids:
        """Text to ids [T]. (TransformerLens gives [1, T], and prepends by default.)"""
        return self._batched(self._ids(text, prepend_bos))

    def to_string(self, tokens: Tokens) -> str:
        """Ids to text."""
        return self.tokenizer.decode(tokens)

    @_words.answers
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

    def _token(self, token: Union[int, str]) -> int:
        return self.to_single_token(token) if isinstance(token, str) else int(self._ids([token])[0])

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

    def _session_for(self, ids: Ids) -> Session:
        """One in which hooks see a whole text at once."""
        return self.session(len(ids), n_batch=len(ids))

    @_words.answers
    def __call__(self, tokens: Tokens, prepend_bos: bool = False) -> Array:
        """The logits [T, n_vocab] at every position of a text."""
        return self.run_with_hooks(tokens, prepend_bos=prepend_bos)

    @_words.answers
    def run_with_hooks(self, tokens: Tokens, fwd_hooks: Sequence[tuple[SomeNames, HookFn]] = (),
                       prepend_bos: bool = False) -> Array:
        """The logits [T, n_vocab] of a text with hooks: pairs of a name and a function, see
        Session.hook. A function sees all positions at once."""
        ids = self._ids(tokens, prepend_bos)
        with self._session_for(ids) as session:
            session._batch_dim = self.batch_dim
            for name, fn in fwd_hooks:
                session.hook(name, fn)
            return self._batched(session.feed(ids, all_logits=True))

    @_words.answers
    def run_with_cache(self, tokens: Tokens, names: Names = None, prepend_bos: bool = False) -> tuple[Array, Record]:
        """The logits [T, n_vocab] of a text and its activations.

        names: a name, or several, `*` standing for anything; or a function that is given every name and
        says whether to keep it. None: all but those on request (attn.hook_result, hook_attn_in,
        hook_q_input, hook_k_input, hook_v_input, hook_mlp_in), which Session.hook tells about."""
        ids = self._ids(tokens, prepend_bos)
        with self._session_for(ids) as session, session.record(names, n_positions=len(ids)) as record:
            record._batch_dim = self.batch_dim
            return self._batched(session.feed(ids, all_logits=True)), record

    def _file(self) -> str:
        """The file that a receipt is about."""
        if self.path is None:
            raise Error(Status.ARGUMENT, "a receipt is of a model in a file: save() this one, and open the file")
        return self.path

    def activation_names(self) -> list[str]:
        """The names of all activations, also of those that are made on request."""
        with self.session(1) as session:
            return list(Record(session, ["*", *_on_request()], 0, 1))

    def _chosen(self, names: SomeNames) -> list[str]:
        """The names for which a function says yes, or those of a list, or the one."""
        if not callable(names):
            chosen = [names] if isinstance(names, str) else list(names)
            if not chosen:
                raise ValueError("the list of names is empty")
            return chosen
        every = self.activation_names()
        chosen = list(filter(names, every))
        if not chosen:
            raise ValueError(f"the function chose none of the {len(every)} names, such as {every[-1]}")
        return chosen

    @_words.answers
    def score(self, tokens: Tokens, k: int = 0, prepend_bos: bool = False) -> Scores:
        """How well the model predicts a text, and the k likeliest next tokens at each position."""
        ids = self._ids(tokens, prepend_bos)
        with self.session(len(ids)) as session:
            return session.score(ids, k)

    def surprisal(self, texts: Any, *, column: Optional[str] = None, by: Literal["word", "token", "region"] = "word",
                  unit: Literal["bits", "nats"] = "bits", regions: Optional[str] = None, region_names: Optional[str] = None,
                  punctuation: Literal["word", "apart"] = "word", continues: bool = False, rank: bool = False, top: int = 0,
                  stride: int = 0, bos: bool = True) -> dict[str, list[Any]]:
        """How surprising each word is. Returns a list for each column, with the digits that the program surprisal prints;
        its page, tools/surprisal, explains columns and options. pandas.DataFrame takes the result.

        texts: one text, or several; or a DataFrame or a dictionary of columns, of which `column` has the texts. The other
                columns come along.
        regions: the mark that joins words to regions; region_names: the column with their names.
        continues: the texts are one running text.
        rank, top: how many tokens were likelier, and the likeliest ones.
        stride: the least tokens before a word where a text is longer than the context (0: 512, or half of it).
        bos: begin with the beginning-of-text token. Without it first words have no value (NaN).

        What was changed or left out in the texts is a warning."""
        from . import _surprisal
        chosen = _surprisal.options(
            column, {"by": by, "unit": unit, "punctuation": punctuation}, regions, region_names, continues=bool(continues),
            rank=bool(rank), no_bos=not bos, top=_natural("top", top), stride=_natural("stride", stride))
        return _surprisal.columns(self, texts, chosen)

    @_words.answers
    def generate_many(self, prompts: Union[str, Sequence[Tokens]], *, max_tokens: int = 100,
                      sampling: Sampling = Sampling(), stop: Union[str, Iterable[str]] = (), prepend_bos: bool = False,
                      ignore_eos: bool = False,
                      logits_fn: Optional[Callable[[Array], None]] = None) -> list[Continuation]:
        """Continues one prompt (a str), or several together. Each prompt has its own session. A pass computes all prompts, so it
        reads the weights once. Text i draws with seed + i. It drafts tokens ahead, which makes repetitive text faster and
        changes none. logits_fn(logits [n_vocab]) may change the logits before each draw."""
        guard, n_vocab = _Guard(), self.config.n_vocab
        callback = _LOGITS_FN(lambda logits, _session, _user: guard(
            lambda: _lend(_vector(logits, n_vocab), "the logits", logits_fn) if logits_fn else None))
        stops = _strings(stop)
        ids = [self._ids(prompt, prepend_bos) for prompt in ([prompts] if isinstance(prompts, str) else prompts)]
        desc = _attn_generate_desc(sampling=sampling._desc(), max_tokens=_at_least_one("max_tokens", max_tokens),
                                   logits_fn=ctypes.cast(callback, c_void_p) if logits_fn else None,
                                   ignore_eos=ignore_eos, stop_strings=ctypes.addressof(stops),
                                   n_stop_strings=len(stops))
        texts = (_attn_continuation * len(ids))()
        for text, prompt in zip(texts, ids):
            text.prompt_tokens, text.n_prompt_tokens = prompt.ctypes.data, len(prompt)
        try:
            guard.run(self._context(), _lib.attn_generate_many, texts, len(texts), self._handle, byref(desc))
            return [Continuation(ctypes.string_at(text.text, text.size).decode(),
                                 list((c_int32 * text.n_tokens).from_address(text.tokens)) if text.n_tokens else [],
                                 _lib.attn_stop_reason_name(text.reason).decode(),
                                 list((c_float * text.n_tokens).from_address(text.log_probs)) if text.n_tokens else [])
                    for text in texts]
        finally:
            _lib.attn_continuations_free(texts, len(texts))

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
            raise Error(Status.NAME, f"{name} is of one layer; here it is {_words.model_word(name)}")
        ctx, out = self._context(), _attn_tensor()
        ctx.run(_lib.attn_model_tensor, byref(out), self._handle, _coded(f"{module}.{name}" if module else name))
        return _array_of(ctx, out)

    def process_weights(self, *, fold_ln: bool = True, center_writing_weights: bool = True,
                        center_unembed: bool = True, fold_value_biases: bool = True) -> Model:
        """A new model with the same log-probabilities and simpler weights, as TransformerLens makes them."""
        pointer, model = c_void_p(), Model.__new__(Model)
        self._context().run(_lib.lens_process_weights, byref(pointer), self._handle,
                            fold_ln + 2 * center_writing_weights + 4 * center_unembed + 8 * fold_value_biases)
        model.threads, model._isa, model.batch_dim, model.path = self.threads, self._isa, self.batch_dim, None
        model._adopt(pointer)
        return model

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the model as a .attn file, which takes its name when it is whole."""
        self._context().run(_lib.lens_model_save, _path(path), self._handle)

    # ---- lenses, attribution (attn.lens has patching, gradients, circuits) ----

    def logit_lens(self, resid: Union[npt.ArrayLike, Record], scale: Optional[npt.ArrayLike] = None,
                   tokens: Optional[Tokens] = None) -> Array:
        """The logits [.., T, n_vocab] of a model that ended at the residual stream `resid` [.., T, d_model];
        [.., T, n] with n tokens chosen. With scale [T, 1] (ln_final.hook_scale of the run), the final
        LayerNorm takes that one instead of the stream's own. A cache stands for the streams that enter each
        layer and the last one, [n_layer + 1, T, d_model]."""
        if isinstance(resid, Record):
            resid = np.stack([*(resid["resid_pre", layer] for layer in range(self.config.n_layer)), resid["resid_post", -1]])
        stream = _floats(resid)
        ids = None if tokens is None else self._ids(tokens)
        width = self.config.n_vocab if ids is None else len(ids)
        out = np.empty((*stream.shape[:-1], width), np.float32)
        self._context().run(_lib.lens_logit_lens, byref(_attn_tensor.of(out)), self._handle, _attn_tensor.of(stream),
                            _attn_tensor() if scale is None else _attn_tensor.of(_floats(scale)),
                            _attn_tensor() if ids is None else _attn_tensor.of(ids))
        return out

    def logit_directions(self, tokens: Tokens, against: Optional[Tokens] = None) -> Array:
        """[n, d_model]: the directions of the tokens' logits, or of their differences to those `against`."""
        ids, minus = self._ids(tokens), None if against is None else self._ids(against)
        if minus is not None and len(minus) != len(ids):
            raise ValueError(f"{len(ids)} tokens against {len(minus)}; each needs one")
        out = np.empty((len(ids), self.config.d_model), np.float32)
        self._context().run(_lib.attn_logit_directions, byref(_attn_tensor.of(out)), self._handle, ids.ctypes.data,
                            None if minus is None else minus.ctypes.data, len(ids))
        return out

    @_words.answers
    def logit_attrs(self, parts: npt.ArrayLike, scale: npt.ArrayLike, directions: npt.ArrayLike) -> Array:
        """Direct logit attribution [.., T]: the share of parts [.., T, d_model] in logits along the
        directions [1 or T, d_model], with scale [T, 1] as ln_final.hook_scale."""
        stream = _floats(parts)
        out = np.empty(stream.shape[:-1], np.float32)
        self._context().run(_lib.lens_logit_attrs, byref(_attn_tensor.of(out)), self._handle, _attn_tensor.of(stream),
                            _attn_tensor.of(_floats(scale)), _attn_tensor.of(_floats(directions)))
        return out

    def detect_heads(self, tokens: Tokens) -> tuple[Array, Array]:
        """The entropy of every head's pattern at every position [layers, heads, T], and how much it is a
        previous-token, duplicate-token and induction head [3, layers, heads]."""
        ids, c = self._ids(tokens), self.config
        query, key = np.indices((len(ids), len(ids)))
        same = ids[:, None] == ids[None, :]
        follows = np.zeros_like(same)
        follows[:, 1:] = same[:, :-1]  # the token before the key is the query's
        looks = np.stack([key == query - 1, same & (key < query), follows & (key <= query)]).astype(np.float64)
        entropy = np.empty((c.n_layer, c.n_head, len(ids)), np.float32)
        sums, total = np.zeros((3, c.n_layer, c.n_head)), np.zeros((c.n_layer, c.n_head))

        def see(value: Array, point: HookPoint) -> None:  # patterns come in pieces, and are never kept
            pattern, layer = value.astype(np.float64), point.layer
            rows = slice(point.first, point.first + pattern.shape[1])
            logs = np.log(np.maximum(pattern, np.finfo(np.float32).tiny))
            entropy[layer, :, rows] = -(pattern * logs).sum(-1)
            sums[:, layer] += np.einsum("hqk,nqk->nh", pattern, looks[:, rows, :pattern.shape[2]])
            total[layer] += pattern.sum((1, 2))

        with self._session_for(ids) as session:
            session.hook("blocks.*.attn.hook_pattern", see)
            session.feed(ids)
        return entropy, (sums / total).astype(np.float32)


@_words.answers
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


def verify(model: Model, receipt: Union[str, os.PathLike[str]]) -> Verdict:
    """Computes again what a receipt says, and compares every bit. Session.generate(..., receipt=...) writes one,
    and so do the programs gpt2 and attn-verify, on any machine."""
    if not isinstance(model, Model):
        raise TypeError(f"attn.verify takes the model, then the receipt's file; the model is {type(model).__name__}")
    holds, found = c_int(), _receipt_findings()
    model._context().run(_lib.lens_receipt_check, byref(holds), byref(found), model._handle, _path(model._file()), _path(receipt))
    return Verdict(bool(holds.value), found.text.decode("utf-8", "replace"))


# ---- sessions ----


class Workspace:
    """Scratch memory of a pass: Model.workspace."""

    def __init__(self, model: Model, n_ctx: int = 0, n_batch: int = 0) -> None:
        desc = _attn_workspace_desc(_natural("n_ctx", n_ctx), _natural("n_batch", n_batch))
        pointer = c_void_p()
        model._context().run(_lib.attn_workspace_new, byref(pointer), model._handle, byref(desc))
        self._handle = _Handle(pointer, _lib.attn_workspace_free, model._handle)
        self._turns = _Turns()


@dataclass(frozen=True)
class HookPoint:
    """Where a hook is called."""

    name: str  # of the activation, in full
    layer: Optional[int]
    first: int  # the position of the value's first row in the sequence
    session: Session

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise _words.missing("a HookPoint", name, _words.HOOK_POINT.get(name))


class Hook(_Closing):
    """A hook or an edit of a session, until remove() or the end of a `with` block."""

    def __init__(self, session: Session, *numbers: int) -> None:
        self._session, self._numbers = session, numbers

    def remove(self) -> None:
        """Removes it, in any order with others. A hook may remove itself."""
        for number in self._numbers:
            self._session._unhook(number)

    def close(self) -> None:
        """Removes it unless it is removed already."""
        if self._numbers[0] in self._session._kept:
            self.remove()


class Session(_Closing):
    """One sequence: its tokens, its keys and values, its hooks. Model.session makes one.

    Threads that use a session, or sessions of one workspace, take turns. It gives its memory back by
    close(), by the end of a `with` block, or when nobody refers to it."""

    def __init__(self, model: Model, n_ctx: int = 0, *, n_batch: int = 0, cache_dtype: str = "f32",
                 workspace: Optional[Workspace] = None) -> None:
        if cache_dtype not in ("f32", "f16"):
            raise ValueError(f"cache_dtype is f32 or f16, not {cache_dtype!r}")
        self.model = model
        self._cache_dtype, self._workspace = cache_dtype, workspace
        self._turns = workspace._turns if workspace else _Turns()
        self._guard, self._batch_dim = _Guard(), False  # whether hooks see a batch dimension
        self._kept: dict[int, object] = {}  # by the number of a hook: what C refers to
        desc = _attn_session_desc(_natural("n_ctx", n_ctx), _natural("n_batch", n_batch), int(cache_dtype == "f16"),
                                  workspace._handle._as_parameter_ if workspace else None)
        pointer = c_void_p()
        model._context().run(_lib.attn_session_new, byref(pointer), model._handle, byref(desc))
        needs = (model._handle, workspace._handle if workspace else None)
        self._open: Optional[_Handle] = _Handle(pointer, _lib.attn_session_free, *needs)
        weakref.finalize(self, self._turns.retire, self._open, self._kept).atexit = False

    def close(self) -> None:
        """Gives the memory back. Records and all arrays stay."""
        self._turns.retire(self._open, *self._kept.values())
        self._open = None
        self._kept.clear()

    def __len__(self) -> int:
        """The number of tokens it holds."""
        with self._use() as handle:
            return int(_lib.attn_session_length(handle))

    def __bool__(self) -> bool:
        return True  # an empty session, too

    @contextmanager
    def _use(self) -> Iterator[_Handle]:
        """The session, for this thread alone until the block ends."""
        with self._turns:
            if self._open is None:
                raise Error(Status.ARGUMENT, "the session is closed")
            yield self._open

    def _run(self, function: Any, *arguments: Any) -> None:
        with self._use() as handle:
            self._guard.run(self.model._context(), function, handle, *arguments)

    @property
    def capacity(self) -> int:
        """The number of tokens it can hold."""
        with self._use() as handle:
            return int(_lib.attn_session_capacity(handle))

    @property
    def tokens(self) -> Ids:
        """The tokens it holds, a copy."""
        with self._use() as handle:
            n = _lib.attn_session_length(handle)
            return np.array((c_int32 * n).from_address(_lib.attn_session_tokens(handle)) if n else [], np.int32)

    @property
    def logits(self) -> Optional[Array]:
        """The logits [n_vocab] of the last token that was fed, a copy. None before the first."""
        with self._use() as handle:
            pointer = _lib.attn_session_logits(handle)
            return _view(_vector(pointer, self.model.config.n_vocab)).copy() if pointer else None

    # ---- feeding ----

    @_words.answers
    def feed(self, tokens: Tokens, *, all_logits: bool = False, prepend_bos: bool = False, start_at_layer: int = 0,
             stop_at_layer: Optional[int] = None, resid: Optional[npt.ArrayLike] = None) -> Array:
        """Runs the model over more tokens. Gives the logits [n_vocab] of the last, or [T, n_vocab] of all.

        start_at_layer takes `resid` [T, d_model] as the stream that enters that layer, after a feed of the
        same tokens and truncate. stop_at_layer gives the stream [T, d_model] that leaves, and the tokens
        do not join the session yet. After a failure the session is as it was before."""
        ids = self.model._ids(tokens, prepend_bos)
        item = _attn_feed_item()
        item.layers.first = _natural("start_at_layer", start_at_layer)
        kept = None
        if resid is not None:
            kept = _attn_tensor.of(np.ascontiguousarray(_floats(resid)))
            if kept.array.shape != (len(ids), self.model.config.d_model):
                raise ValueError(f"resid has shape {list(kept.array.shape)}; expected "
                                 f"{[len(ids), self.model.config.d_model]}")
            item.layers.resid = kept.data
        if stop_at_layer is None or stop_at_layer == self.model.config.n_layer:
            return _feed([self], [ids], [item], all_logits)[0]
        item.layers.end = _natural("stop_at_layer", stop_at_layer)
        item.layers.embed_only = stop_at_layer == 0
        leaving = np.empty((len(ids), self.model.config.d_model), np.float32)
        item.layers.resid_out = leaving.ctypes.data
        _feed([self], [ids], [item], False)
        return leaving

    def truncate(self, length: int) -> None:
        """Forgets all tokens from position `length` on."""
        self._run(_lib.attn_session_truncate, _natural("length", length))

    def copy(self) -> Session:
        """Another session with the same tokens, keys and values, without the hooks."""
        with self._use() as handle:
            to = Session(self.model, self.capacity, cache_dtype=self._cache_dtype, workspace=self._workspace)
            to._run(_lib.attn_session_copy, handle)
            return to

    @_words.answers
    def score(self, tokens: Tokens, k: int = 0) -> Scores:
        """Feeds a text and tells how well each of its tokens was predicted: see Model.score. Hooks of the
        session take part."""
        ids = self.model._ids(tokens)
        stats = np.zeros(max(len(ids) - 1, 0), np.dtype(_attn_token_stats))
        top = np.zeros((len(ids), _natural("k", k)), np.dtype(_attn_prediction))
        with self._use() as handle:
            self._guard.run(self.model._context(), _lib.attn_score, stats.ctypes.data,
                            byref(_attn_top(top.ctypes.data, k)), handle, ids.ctypes.data, len(ids))
        return Scores(stats["nll"], stats["probability"], stats["rank"], top["token"], top["logit"],
                      top["probability"], self.model._labels(ids))

    @_words.answers
    def generate(self, prompt: Tokens = (), *, max_tokens: int = 100, sampling: Union[Sampling, Sampler] = Sampling(),
                 stop: Union[str, Iterable[str]] = (), prepend_bos: bool = False, ignore_eos: bool = False,
                 logits_fn: Optional[Callable[[Array], None]] = None,
                 receipt: Union[str, os.PathLike[str], None] = None) -> Generation:
        """Feeds the prompt, and gives an iterator over the text that follows, piece by piece. The session
        holds the tokens whose text was given, and between two pieces you may hook, edit and look at it.

        sampling: how tokens are drawn; a Sampler goes on where an earlier call left it.
        stop: the text ends before any of these strings. prepend_bos: an empty session begins with the
        beginning-of-text token. logits_fn(logits [n_vocab]) may change them before each draw, for
        example to -inf for tokens that must not come. receipt: a file that is written when the text has
        ended; attn.verify, or the program attn-verify, computes it again from the model alone."""
        return Generation(self, prompt, _at_least_one("max_tokens", max_tokens), sampling, stop, prepend_bos,
                          ignore_eos, logits_fn, receipt)

    # ---- hooks ----

    @_words.answers
    def hook(self, name: SomeNames, fn: HookFn) -> Hook:
        """Calls fn(value, point) whenever an activation of that name is made, `*` in the name standing for
        anything. Several names, or a function that chooses names, make several hooks. fn may write to the
        array `value`, or return another of its shape; the model goes on with those numbers. An exception ends
        the pass. Positions come in pieces of at most n_batch rows: point.first is the first one's position.

        Six kinds cost extra time and memory, and are made only for a name that does not end in `*`:
        attn.hook_result [T, heads, d_model], what each head adds; hook_attn_in, hook_q_input,
        hook_k_input and hook_v_input [T, heads, d_model], copies of the stream for each head; and
        hook_mlp_in [T, d_model], a copy for the MLP."""
        if not isinstance(name, str):
            return self._hooks_of(name, lambda chosen: self.hook(chosen, fn))
        session, guard = weakref.ref(self), self._guard

        def show(activation: Any, _: Any) -> int:
            return guard(lambda: _show(activation.contents, session(), fn))

        callback = _HOOK_FN(show)
        return self._new_hook(callback, _lib.attn_hook, _coded(name), callback, None)

    @_words.answers
    def edit(self, name: SomeNames, kind: EditKind, value: Optional[npt.ArrayLike] = None, *, positions: Span = None,
             heads: Span = None) -> Hook:
        """Changes activations of that name, `*` standing for anything, or of several names, which a function may choose,
        without a Python function that sees them: "zero" them, "set" them to value, to the "mean" of
        value over its positions, "add" value to them, or "scale" them by value, for instance 0.5.

        positions and heads: a number, a slice, or None for all. value: f32, shaped as what is edited,
        [positions, width], [positions, heads, width] or [heads, positions, keys]; leading dimensions may
        be missing, and a dimension of 1 repeats. A float32 array is not copied. With positions None, several positions
        of a value are the first ones, and a feed that goes beyond them fails."""
        if not isinstance(name, str):
            return self._hooks_of(name, lambda chosen: self.edit(chosen, kind, value, positions=positions, heads=heads))
        desc, tensor = _edit_of(name, kind, value, positions, heads)
        return self._new_hook((desc, tensor), _lib.attn_hook_edit, byref(desc))

    def _hooks_of(self, names: SomeNames, make: Callable[[str], Hook]) -> Hook:
        """The hooks of several names as one: all, or after a failure none."""
        made: list[Hook] = []
        try:
            for name in self.model._chosen(names):
                made.append(make(name))
        except BaseException:
            for hook in made:
                hook.remove()
            raise
        return Hook(self, *[number for hook in made for number in hook._numbers])

    def _new_hook(self, kept: object, function: Any, *arguments: Any) -> Hook:
        """A hook for as long as which C refers to `kept`."""
        number = c_uint32()
        with self._use() as handle:
            self.model._context().run(function, byref(number), handle, *arguments)
            self._kept[number.value] = kept
        return Hook(self, number.value)

    def _unhook(self, number: int) -> None:
        with self._use():
            self._run(_lib.attn_unhook, number)
            self._turns.retire(self._kept.pop(number))

    def unhook_all(self) -> None:
        """Removes all hooks and edits, and ends all records."""
        with self._use() as handle:
            _lib.attn_unhook_all(handle)
            self._turns.retire(*self._kept.values())
            self._kept.clear()

    @_words.answers
    def record(self, names: Names = None, *, first: int = 0, n_positions: int = 0) -> Record:
        """Records the activations of the tokens that are fed from now on: a mapping from names to arrays.
        names: as for Model.run_with_cache. n_positions: room for so many, from `first` on (0: as many as
        the session can hold)."""
        return Record(self, names, first, n_positions)

    # ---- keys and values ----

    def cache_get(self, part: Literal["keys", "values"], layer: int, first: int = 0) -> Array:
        """A copy [positions, heads, d_head] of a layer's keys or values at the positions from `first` on."""
        ctx, out = self.model._context(), _attn_tensor()
        with self._use() as handle:
            ctx.run(_lib.attn_session_get_cache, byref(out), handle, _CACHE_PARTS.index(part), _natural("layer", layer),
                    _natural("first", first))
        return _array_of(ctx, out)

    def cache_set(self, part: Literal["keys", "values"], layer: int, value: npt.ArrayLike, first: int = 0) -> None:
        """Puts others in their place, from position `first` on."""
        self._run(_lib.attn_session_set_cache, _CACHE_PARTS.index(part), _natural("layer", layer), _natural("first", first),
                  _attn_tensor.of(_floats(value)))


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
        result = fn(value, point)
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
    if len(sessions) != len(tokens):
        raise ValueError(f"{len(sessions)} sessions and {len(tokens)} texts; each session needs one")
    ids = [session.model._ids(text) for session, text in zip(sessions, tokens)]
    return _feed(sessions, ids, [_attn_feed_item() for _ in sessions], all_logits)


def _feed(sessions: Sequence[Session], texts: list[Ids], items: list[_attn_feed_item],
          all_logits: bool) -> list[Array]:
    """Feeds items, of which `layers` is set already."""
    if not items:
        return []
    outs: list[Array] = []
    with ExitStack() as held:
        for turns in sorted({session._turns for session in sessions}, key=id):  # the same order in all threads
            held.enter_context(turns)
        for session, ids, item in zip(sessions, texts, items):
            handle = held.enter_context(session._use())
            item.session, item.tokens, item.n_tokens = handle._as_parameter_, ids.ctypes.data, len(ids)
            if all_logits:
                outs.append(np.empty((len(ids), session.model.config.n_vocab), np.float32))
                item.logits = outs[-1].ctypes.data
        _run_guarded([session._guard for session in sessions], sessions[0].model._context(), _lib.attn_feed_batch,
                     (_attn_feed_item * len(items))(*items), len(items))
        if not all_logits and items[0].layers.end == 0 and not items[0].layers.embed_only:
            outs = [logits for session in sessions if (logits := session.logits) is not None]
    return outs


# ---- records ----


def _on_request() -> list[str]:
    """Patterns for the activations that are made on request."""
    pointers = itertools.takewhile(bool, map(_lib.attn_activation_kind_at, itertools.count()))
    kinds = [pointer.contents for pointer in pointers]
    return [f"blocks.*.{kind.name.decode()}" for kind in kinds if kind.on_request]


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
        if callable(names):
            names = session.model._chosen(names)
        wanted = _strings(names or [])
        room = n_positions or session.capacity - first
        desc = _attn_record_desc(ctypes.addressof(wanted) if wanted else None, len(wanted), _natural("first", first),
                                 _at_least_one("n_positions", room))
        self._session, self._batch_dim = session, False
        self._views: dict[str, Array] = {}  # once it has ended
        size, pointer, ctx = c_size_t(), c_void_p(), session.model._context()
        with session._use() as handle:
            ctx.run(_lib.attn_record_size, byref(size), session.model._handle, byref(desc))
            self._memory = np.empty(size.value // 4 + 1, np.float32)
            desc.memory, desc.memory_size = self._memory.ctypes.data, size.value
            ctx.run(_lib.attn_record_new, byref(pointer), handle, byref(desc))
            self._open: Optional[_Handle] = _Handle(pointer, _lib.attn_record_free, self._memory)
            weakref.finalize(self, session._turns.retire, self._open).atexit = False
        self._names = [_lib.attn_record_name(pointer, i).decode() for i in range(_lib.attn_record_n_activations(pointer))]

    def close(self) -> None:
        """Ends the recording. The recorded activations stay."""
        with self._session._turns:
            if self._open:
                self._views = {name: self._array(name) for name in self._names}
                self._session._turns.retire(self._open)
                self._open = None

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __repr__(self) -> str:
        shown = ", ".join(self._names[-3:])
        return f"<attn.Record of {len(self)} activations, such as {shown}>"

    def __getitem__(self, key: Union[str, tuple[Any, ...]]) -> Array:
        array = self._array(_full_name(self._names, self._session.model.config.n_layer, key))
        return array[None] if self._batch_dim else array

    def _array(self, name: str) -> Array:
        with self._session._turns:
            if not self._open:
                return self._views[name]
            out = _attn_tensor()
            self._session.model._context().run(_lib.attn_record_get, byref(out), self._open, _coded(name))
            return np.ndarray(tuple(out.shape[:out.ndim]), np.float32, self._memory.data,
                              (out.data or 0) - self._memory.ctypes.data, [4 * n for n in out.stride[:out.ndim]])

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise _words.missing("a Record", name, _words.CACHE.get(name))

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes all of it as .safetensors or .npz, by how the path ends."""
        if not os.fsdecode(path).endswith((".npz", ".safetensors")):
            raise ValueError(f"the path ends in .safetensors or .npz, not like {os.fsdecode(path)}; torch.save takes "
                             "{name: torch.from_numpy(array) for name, array in cache.items()}")
        if os.fsdecode(path).endswith(".npz"):
            arrays: dict[str, Any] = dict(self)
            np.savez(path, **arrays)
            return
        names, tensors = _strings(self), [_attn_tensor.of(value) for value in self.values()]
        self._session.model._context().run(_lib.lens_save, _path(path), names,
                                           (_attn_tensor * len(tensors))(*tensors), len(tensors))


# ---- text ----


class Sampler:
    """Draws tokens. One sampler may serve several calls of Session.generate, which then draw the same tokens
    as one long call."""

    def __init__(self, model: Model, sampling: Sampling = Sampling()) -> None:
        desc, pointer = sampling._desc(), c_void_p()
        self._model = model
        model._context().run(_lib.attn_sampler_new, byref(pointer), model.config.n_vocab, byref(desc))
        self._handle = _Handle(pointer, _lib.attn_sampler_free)

    def sample(self, logits: npt.ArrayLike, seen: Tokens = ()) -> int:
        """A token drawn from logits [n_vocab]. `seen`: the tokens so far, for the repetition penalty."""
        row, ids, token = np.ascontiguousarray(_floats(logits)), self._model._ids(seen), c_int32()
        if row.shape != (self._model.config.n_vocab,):
            raise ValueError(f"expected logits [{self._model.config.n_vocab}], got shape {list(row.shape)}")
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

    def __init__(self, session: Session, prompt: Tokens, max_tokens: int, sampling: Union[Sampling, Sampler],
                 stop: Union[str, Iterable[str]], prepend_bos: bool, ignore_eos: bool,
                 logits_fn: Optional[Callable[[Array], None]], receipt: Union[str, os.PathLike[str], None]) -> None:
        if receipt is not None and (session._kept or logits_fn or isinstance(sampling, Sampler)):
            raise ValueError("a receipt is of the model's own text: it takes no hooks, edits, logits_fn or Sampler that has "
                             "drawn before; give sampling=attn.Sampling(...)")
        self.ids, self._text, self.reason = [], None, "none"
        self._receipt = None if receipt is None else _path(receipt)
        self._digests: list[bytes] = []  # for a receipt: of the logits of each draw
        self._session, self._max_tokens, self._logits_fn = session, max_tokens, logits_fn
        config = session.model.config
        self._eos = () if ignore_eos else (config.eos, *config.more_eos)
        self._sampler = sampling if isinstance(sampling, Sampler) else Sampler(session.model, sampling)
        self._stops = [text.encode() for text in ([stop] if isinstance(stop, str) else stop)]
        if not all(self._stops):
            raise ValueError("a stop string is empty; every text would end before it begins")
        ids = session.model._ids(prompt, prepend_bos and len(session) == 0)
        if len(ids):
            session.feed(ids)
        elif session.logits is None:
            raise Error(Status.ARGUMENT, "there is nothing to continue: give a prompt, feed the session, or set "
                                         "prepend_bos")
        self._prompt = session.tokens
        self._desc = _attn_sampler_desc() if isinstance(sampling, Sampler) else sampling._desc()
        if self._receipt is not None:
            session.model._file()
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
        with session._use() as handle:
            logits = _lib.attn_session_logits(handle)
            if not logits:
                raise Error(Status.ARGUMENT, "after truncate, feed at least one token before the text goes on")
            if self._logits_fn:
                changed = _view(_vector(logits, session.model.config.n_vocab)).copy()
                self._logits_fn(changed)
                logits = changed.ctypes.data
            if self._receipt is not None:
                row = np.ascontiguousarray(_view(_vector(logits, session.model.config.n_vocab)), "<f4")
                self._digests.append(hashlib.sha256(row.tobytes()).digest())
            session.model._context().run(_lib.attn_sample, byref(token), self._sampler._handle, logits,
                                         _lib.attn_session_tokens(handle), len(session))
        return token.value

    def _write_receipt(self) -> None:
        session, stops = self._session, _strings([stop.decode() for stop in self._stops])
        if session._kept:
            raise Error(Status.ARGUMENT, "there is no receipt: the session was given a hook or an edit before the text ended")
        if self.reason == "context full" and session.capacity != session.model.config.n_ctx:
            raise Error(Status.ARGUMENT, f"there is no receipt: the session's {session.capacity} tokens ended the text, and not "
                                         "the model's context")
        ids, digests = np.array(self.ids, np.int32), np.frombuffer(b"".join(self._digests), np.uint8)
        text = _receipt_generated(self._desc, self._max_tokens, not self._eos, session._cache_dtype == "f16",
                                  ctypes.addressof(stops), len(stops), self._prompt.ctypes.data, ids.ctypes.data,
                                  len(self._prompt), len(ids), _STOP_REASONS.index(self.reason),
                                  digests.ctypes.data)
        model = session.model
        model._context().run(_lib.lens_receipt_of_generated, model._handle, _path(model._file()), byref(text), self._receipt)

    def _write(self) -> Iterator[str]:
        session, tokenizer, held = self._session, self._session.model.tokenizer, b""
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

"""libattn.so: its structs and functions, calls of it that can be interrupted, and what frees its objects."""
from __future__ import annotations

import _thread
import ctypes
import ctypes.util
import enum
import itertools
import operator
import os
import pathlib
import queue
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable
from ctypes import byref, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Optional, TypeVar

import numpy as np
import numpy.typing as npt

from . import _words

_Any = TypeVar("_Any")
VERSION = (1, 1)  # major and minor: the structs below are of this one
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.int32)]  # in the order of C's enum

# ---- the library's structs and functions, as building/attn_declarations.py prints them of the headers ----

_TYPES: dict[str, Any] = {"P": c_void_p, "i": c_int, "I": c_int32, "z": c_size_t, "n": ctypes.c_ssize_t, "f": c_float,
                          "d": c_double, "u": c_uint32, "U": c_uint64, "c": c_char, "s": c_char_p, "0": None}


def _type(code: str) -> Any:
    """A letter above, with a number behind it an array; "*" and a type: a pointer to it; or a struct's name."""
    if code[0] == "*":
        return ctypes.POINTER(_type(code[1:]))
    if code in STRUCTS:
        return STRUCTS[code]
    return _TYPES[code] if len(code) == 1 else _TYPES[code[0]] * int(code[1:])


def fields(text: str) -> list[tuple[str, Any]]:
    """ "i a, P c" declares an int and a pointer."""
    return [(name, _type(code)) for code, name in (part.split() for part in text.split(", "))]


STRUCTS: dict[str, Any] = {}
_DECLARED = [line.partition(" ") for line in pathlib.Path(__file__).with_name("declarations.txt").read_text("utf-8").splitlines()]
_MEMBERS = {name[:-1]: members for name, _, members in _DECLARED if name.endswith(":")}


class attn_ctx(ctypes.Structure):
    _fields_ = fields(_MEMBERS.pop("attn_ctx"))

    if TYPE_CHECKING:
        stop_flag: Any
        message: bytes

    def run(self, function: Any, *arguments: Any, long: bool = False, held: object = None) -> None:
        """Calls a function that returns a status. A failure becomes an Error, and what a Python function raised that C
        called comes out. long: it may take more than a moment, and can be interrupted; see Call. held lives as long."""
        call = Call(partial(function, byref(self), *arguments), held if long else None)
        self.stop_flag = ctypes.addressof(call.stop)
        try:
            status = Status(call.watched() if long else call.here())
            caught, call.caught = call.caught, None
            if caught is not None:
                raise caught
        finally:
            self.stop_flag = caught = None  # else the exception and its traceback would keep each other, and a turn
            del call
        if status == Status.STOPPED:  # by an interrupt on the way to or from a callback, which ctypes cannot pass on
            raise KeyboardInterrupt
        if status:
            raise Error(status, _words.in_python(self.message.decode("utf-8", "replace")))

    def filled(self, shape: tuple[int, ...], function: Any, *arguments: Any, long: bool = False) -> npt.NDArray[np.float32]:
        """An array of this shape with the numbers that a function of C puts there."""
        out = np.zeros(shape, np.float32)
        self.run(function, byref(attn_tensor.of(out)), *arguments, long=long)
        return out


class attn_tensor(ctypes.Structure):
    _fields_ = fields(_MEMBERS.pop("attn_tensor"))
    array: npt.NDArray[Any]  # whose numbers these are

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> attn_tensor:
        """A tensor over an array's numbers, which it keeps alive."""
        if not 1 <= array.ndim <= 4:
            raise ValueError(f"expected an array of 1 to 4 dimensions, got shape {list(array.shape)}")
        if any(stride % array.itemsize for stride in array.strides) or not array.flags.aligned:
            array = array.copy()
        tensor = cls(array.ctypes.data, DTYPES.index(array.dtype), array.ndim, (*array.shape, 1, 1, 1)[:4],
                     tuple(stride // array.itemsize for stride in array.strides))
        tensor.array = array
        return tensor


STRUCTS.update(attn_ctx=attn_ctx, attn_tensor=attn_tensor)
for _struct, _members in _MEMBERS.items():
    STRUCTS[_struct] = type(_struct, (ctypes.Structure,), {"_fields_": fields(_members)})
C: Any = SimpleNamespace(**STRUCTS)  # of each struct, its class

# Functions that C calls: they return 0 to go on, and their last parameter is not used here.
PROGRESS_FN = ctypes.CFUNCTYPE(c_int, c_double, c_void_p)
LOGITS_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
TEXT_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)
HOOK_FN = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(C.attn_activation), c_void_p)
METRIC_FN = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_float), attn_tensor, attn_tensor, c_void_p)

# Of each function: the type of its result, and those of its parameters.
PROTOTYPES = {name: tuple(map(_type, types.split())) for name, _, types in _DECLARED if not name.endswith(":")}
_words.FUNCTIONS.update(name.removesuffix("_told") for name in PROTOTYPES)


def _candidates() -> list[str]:
    """Where the library may be, nearest first."""
    if "ATTN_LIBRARY" in os.environ:
        return [os.environ["ATTN_LIBRARY"]]
    here = pathlib.Path(__file__).resolve().parent
    name = {"darwin": "libattn.dylib", "win32": "attn.dll"}.get(sys.platform, "libattn.so")
    near = [here / name, here.parent.parent.parent / "build" / name]
    installed = [name + ".1" if name.endswith(".so") else name, ctypes.util.find_library("attn")]
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
        if found != VERSION:
            raise ImportError(f"{path} is version {found[0]}.{found[1]} of attn.h, and this package is for "
                              f"{VERSION[0]}.{VERSION[1]}; take both from the same version")
        for name, (result, *parameters) in PROTOTYPES.items():
            if not hasattr(library, name):
                raise ImportError(f"{path} lacks {name}: build libattn.so from tools/lens/library.c of the same version")
            function = getattr(library, name)
            function.restype, function.argtypes = result, parameters
        return library
    raise ImportError("the package attn does not find its library: build it with `make build/libattn.so`, or set "
                      f"ATTN_LIBRARY to its path ({'; '.join(reasons)})")


lib = _load()

# ---- errors ----


class Status(enum.IntEnum):
    """Kinds of failure, as attn_status of attn.h lists them."""  # lib.attn_status_name has their names there

    OK, ARGUMENT, SHAPE, MEMORY, SPACE, IO, FORMAT, VERSION, CHECKSUM, TOKEN, CONTEXT, TOKENIZER, UNSUPPORTED, NAME, \
        STOPPED = range(15)


class Error(Exception):
    """A call failed. str(error) is the library's sentence, error.status its kind."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return Error, (self.status, str(self))


# ---- calls ----

_running = threading.local()  # .call: the innermost call of C in this thread


def _started(body: Callable[[], None]) -> bool:
    """Runs it in a new thread; false where the system refuses threads, or has gevent's, between which C cannot be left."""
    if not isinstance(_thread.start_new_thread, types.BuiltinFunctionType):
        return False
    try:
        _thread.start_new_thread(body, ())
    except RuntimeError:
        return False
    return True


class Call:
    """A call of C.

    Python runs the handlers of signals (Ctrl-C, a notebook's stop, a test's alarm) in the main thread, between two
    steps of Python, and so never while C runs there. So a long call runs in a thread of its own, and its caller waits
    in Python: whatever is raised there, by a handler or into a waiting worker thread, sets C's stop flag, and comes out
    when C has returned. A handler that raises nothing does not end the call. Functions that C calls (hooks, metrics)
    run in the caller's thread, so locks, debuggers and interrupts find them where they expect them. The new thread
    takes a tenth of a millisecond: a call known to be short, as a generated token of a small model, runs where it is."""

    def __init__(self, work: Callable[[], int], held: object = None) -> None:
        self.stop = c_int()
        self.caught: Optional[BaseException] = None
        self._work, self._held = work, [held]
        self._claims: dict[str, str] = {}
        self._is_apart = self._is_over = False
        self._result: Any = Status.STOPPED

    def here(self) -> Any:
        """Calls C in this thread."""
        outer = getattr(_running, "call", None)
        try:
            _running.call = self
            return self._work()
        finally:
            _running.call = outer

    def _is_for(self, who: str) -> bool:
        """Whether C is called by the caller or by the other thread: the first who asks, which one step decides."""
        return self._claims.setdefault("it", who) == who

    def _apart(self) -> None:
        """The body of the other thread, whose last step says that it is over."""
        try:
            if self._is_for("other"):
                self._result = self.here()
        except BaseException as error:  # an argument is none of C's
            self.caught = self.caught or error
        self._is_over = True
        self._asked.put(None)

    def watched(self) -> Any:
        """Calls C in another thread, and waits for it here."""
        self._asked: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[int] = queue.SimpleQueue()
        with self, self, self, self:  # an interrupt between the steps of one __exit__ is for the next one
            self._is_apart = True
            if not _started(self._apart):
                self._is_apart, self._is_over = False, self._is_for("caller")
                self._result = self.here()
            while not self._is_over:
                try:
                    function = self._asked.get(timeout=0.1)  # Windows, and exceptions raised into a thread, need the timeout
                except queue.Empty:
                    continue
                if function:
                    self._answers.put(self._do(function))
        self._held.clear()
        return self._result

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: Optional[BaseException], __: object) -> bool:
        """Keeps an interrupt until C has returned, or sees to it that C is not called."""
        self.caught = self.caught or error
        while self.caught is not None and not self._is_over and not self._is_for("caller"):
            try:
                self.stop.value = 1
                self._answers.put(1)  # C may be waiting for one; one too many stops it as well
                time.sleep(0.001)
            except BaseException:  # one more interrupt, which ends it no sooner
                continue
        return True

    def _do(self, function: Callable[[], None]) -> int:
        try:
            if self.caught is None:
                function()
        except BaseException as error:  # KeyboardInterrupt too
            self.caught = error
        return int(self.caught is not None)

    def back(self, function: Callable[[], None]) -> int:
        """What a function that C calls does: runs `function`, and gives C 0 to go on, 1 to stop after an exception."""
        if not self._is_apart:
            return self._do(function)
        self._asked.put(function)
        return self._answers.get()


def from_c(function: Callable[[], None]) -> int:
    """Runs a Python function that C calls. C cannot carry an exception: the call keeps it until C has returned."""
    return int(_running.call.back(function))


# ---- memory ----


class Handle:
    """An object that the library made. It exists before the library makes it, so that no interrupt comes between. It is
    freed when nobody refers to the handle any more, and before the objects that it needs."""

    def __init__(self, free: Any, *needs: object) -> None:
        self._as_parameter_ = pointer = c_void_p()
        pointer.needs = needs  # type: ignore[attr-defined]
        weakref.finalize(self, free, pointer).atexit = False

    @property
    def place(self) -> Any:
        """Where the library puts it."""
        return byref(self._as_parameter_)


def made_with(owner: object, ctx: attn_ctx, make: Any, free: Any, made: Any, *needs: object) -> None:
    """make(ctx, made, needs), and free(ctx, made) when nobody refers to the owner any more: see Handle."""
    place: Any = ctypes.pointer(made)
    place.needs = needs
    weakref.finalize(owner, free, ctypes.pointer(ctx), place).atexit = False
    ctx.run(make, place, *needs, long=True)


class Turn:
    """The right to use a session, until nobody refers to this object any more."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class Turns:
    """One thread at a time, for the sessions of a workspace. An object that a running pass may use waits here until
    the pass is over: the garbage collector may drop it at any moment, in any thread.

    An interrupt may come between any two steps of Python: behind the taking of a lock and before the block that
    releases it, too. So no step of Python releases the lock. It is released when a turn dies, which the taker's frame
    alone refers to; and one step of the interpreter, which no interrupt divides, takes the lock and ties it to the turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._release: Any = partial(self._lock.__exit__, None, None)  # gevent's takes exactly three
        self._taken: list[Any] = []  # weak references to turns, of which the last one may be alive
        self._waiting: list[object] = []

    def _mine(self) -> Optional[Turn]:
        turn: Optional[Turn] = self._taken[-1]() if self._taken else None
        return turn if turn is not None and turn.thread == threading.get_ident() else None

    def take(self, blocking: bool = True) -> Optional[Turn]:
        """This thread's turn: one that it has, or when the lock is free a new one. None: others have it (not blocking)."""
        turn = self._mine()
        if turn is None:
            turn = Turn()
            steps = partial(self._lock.acquire, blocking), partial(weakref.ref, turn, self._release)
            self._taken.extend(filter(callable, itertools.takewhile(bool, map(operator.methodcaller("__call__"), steps))))
            if not self._taken or self._taken[-1]() is not turn:
                return None
            del self._taken[:-1]
        return turn

    def during(self, use: Callable[[], _Any]) -> _Any:
        """use(), for this thread alone until it ends."""
        turn = self.take()
        try:
            return use()
        finally:
            del turn
            self.tidy()

    def tidy(self) -> None:
        """Lets go of what waits, if no pass is running."""
        while self._waiting and self._mine() is None:
            turn = self.take(blocking=False)
            if turn is None:
                return
            while self._waiting:
                self._waiting.pop()
            del turn

    def retire(self, *used: object) -> None:
        """Lets go of objects, now or when no pass is running."""
        self._waiting.extend(used)
        self.tidy()

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

# ---- the library's structs, with the names that C gives them ----

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
    """ "i a b, P c" declares two ints and a pointer."""
    words = [part.split() for part in text.split(", ")]
    return [(name, _type(code)) for code, *names in words for name in names]


STRUCTS: dict[str, Any] = {}


class attn_ctx(ctypes.Structure):
    _fields_ = fields("P alloc free user, i n_threads isa, P stop_flag, i status, c256 message, P blocks owner, U4 reserved")

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
    _fields_ = fields("P data, i dtype ndim, z4 shape, n4 stride, s error, P owned")
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
C: Any = SimpleNamespace()  # of each struct, its class


def declare_structs(text: str) -> None:
    for line in text.strip().splitlines():
        name, members = line.split(": ", 1)
        STRUCTS[name] = type(name, (ctypes.Structure,), {"_fields_": fields(members)})
    vars(C).update(STRUCTS)


declare_structs("""
attn_config: z n_vocab n_ctx d_model n_head n_layer d_mlp d_head, f ln_eps, i tied, I bos eos, \
i act_fn unscaled_attn scale_attn_by_inverse_layer_idx has_b_U, z n_more_eos, *I more_eos, U4 reserved
attn_model_desc: i skip_checksums, P progress_fn progress_user, U4 reserved
attn_workspace_desc: z n_ctx n_batch, U4 reserved
attn_session_desc: z n_ctx n_batch, i cache_dtype, P workspace, U4 reserved
attn_layers: z first end, i embed_only, P resid resid_out, U2 reserved
attn_feed_item: P session tokens, z n_tokens, P logits rows, z n_rows, attn_layers layers, U4 reserved
attn_token_stats: f nll probability, z rank
attn_prediction: I token, f logit probability
attn_top: P best, z k
attn_sampler_desc: f temperature, z top_k, f top_p min_p repeat_penalty, z repeat_last, U seed, U4 reserved
attn_generate_desc: attn_sampler_desc sampling, P reuse_sampler text_fn text_user logits_fn logits_user, z max_tokens, \
i prepend_bos allow_special ignore_eos no_draft, z n_draft, P stop_strings, z n_stop_strings, i keep_stop, P prompt_tokens, \
z n_prompt_tokens, P workspace, U4 reserved
receipt_generated: attn_sampler_desc sampling, z max_tokens, i ignore_eos f16_cache, P stop, z n_stop, P prompt ids, \
z n_prompt n_ids, i ended, P digests
receipt_findings: c320 text
attn_continuation: s prompt, P prompt_tokens, z n_prompt_tokens, P text_fn text_user text, z size, *I tokens, *f log_probs, \
z n_tokens, i reason, z which_stop, U4 reserved
attn_activation_kind: s name, i axes in_block on_request
attn_activation: s name, *attn_activation_kind kind, z layer, P session, z first, attn_tensor value
attn_record_desc: P names, z n_names first n_positions, P memory, z memory_size, U4 reserved
attn_edit: s name, i kind, z first count first_head n_heads, attn_tensor value, U4 reserved
lens_metric: i kind, I token against, z from_end, P targets fn user
lens_pair: P clean corrupted, z n_tokens, lens_metric metric
lens_baseline: f clean corrupted
lens_patch_desc: P pairs, z n_pairs, s name, i kind normalize, P edits, z n_edits, P progress user each
lens_head: z layer head
lens_sender: i kind, z layer head
lens_receiver: z layer, s to, z head
lens_paths_desc: P pairs, z n_pairs, P senders, z n_senders, P receivers, z n_receivers, i each_receiver mlps normalize, \
P edits, z n_edits, P progress user each
lens_exact_desc: P pairs, z n_pairs, i of_nodes, P edits, z n_edits, P progress user state each
lens_gap_text: c160 text
lens_ablate_desc: P pairs, z n_pairs, P edits, z n_edits, P progress user each
lens_joint_desc: P pairs, z n_pairs, i ablation, P nodes, z n_nodes, P edits, z n_edits, P progress user each subsets
lens_prune_desc: P pairs, z n_pairs, d amount, attn_tensor scores, P progress user
lens_edge: z sender receiver, f score
lens_pruned: *lens_edge edges, z n_kept n_runs, d clean value
lens_backward: P model workspace layers, attn_tensor ln_final_w w_u, P edits, z n_edits, P progress user, i rules
lens_gradients_desc: P tokens, z n_tokens, P names, z n_names, P resid, lens_metric metric
lens_graph: z n_layer n_head n_senders n_receivers n_edges
lens_node_name: c48 text
lens_label: c48 text
lens_parts_desc: i kind, P tokens, z n_tokens first count, i reader, z layer, i no_embeds apply_ln, attn_tensor project
lens_sae: i kind norm, z n m k, i apply_b_dec by_decoder_norm, z n_out, c64 hook hook_out, \
attn_tensor w_enc w_dec b_dec w_skip b_enc threshold gain b_mag norms
lens_sae_change: z feature, i kind, f value
lens_sae_watch: P sae, i keep_error, P changes, z n_changes, attn_ctx ctx, attn_tensor features skip
lens_tuned: attn_tensor weight bias, i is_jacobian
lens_tokens: P ids, z n
lens_curve: z10 n_edges, d10 faithfulness, d cpr cmd, P each
lens_svd: attn_tensor u s v
lens_detect_desc: P tokens, z n_tokens, i kind, attn_tensor keys, P heads, z n_heads, i measure exclude_bos exclude_current_token
lens_drawn_graph: lens_graph graph, *lens_edge edges, z n
lens_picture: s title row_name column_name, P values, *s panels rows columns texts, z n_panels n_rows n_columns
lens_losses: s title, *s tokens tips, P nll, z n
lens_chart: s title x_name, P x, z n_points, *s names, P y, z n_lines, P low high
lens_table: s name, z n_rows n_columns n_keys n_axes, z6 axes, i is_dense
lens_values: s name, i kind axis, z source n, *d numbers, P bytes, *U ends, P is_missing
lens_setting: c40 name usual, s option argument takes help, i kind word is_many is_file is_negated
""")
_TYPES["T"] = attn_tensor

# Functions that C calls: they return 0 to go on, and their last parameter is not used here.
PROGRESS_FN = ctypes.CFUNCTYPE(c_int, c_double, c_void_p)
LOGITS_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
TEXT_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)
HOOK_FN = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(C.attn_activation), c_void_p)
METRIC_FN = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_float), attn_tensor, attn_tensor, c_void_p)

# Each function: its result, then its parameters, in the letters of _TYPES.
_FUNCTIONS = """
attn_version i, attn_status_name s i, attn_isa s P, attn_ctx_free 0 P, attn_free 0 P, attn_model_open i PPPP,
attn_model_close 0 P, attn_model_config *attn_config P, attn_model_tokenizer P P, attn_model_bytes P PP,
attn_model_tensor i PPPP, attn_activation_kind_at *attn_activation_kind z, lens_model_save i PPP,
lens_process_weights_told i PPPuPP, attn_tokenizer_n_tokens z P, attn_token_bytes P PPI, attn_tokenizer_is_special i PI,
attn_encode i PPPPPz, attn_encode_special i PPPPPz, attn_decode i PPPPPz, attn_text_token i PPPP, attn_workspace_new i PPPP,
attn_workspace_free 0 P, attn_session_new i PPPP, attn_session_free 0 P, attn_session_length z P, attn_session_capacity z P,
attn_session_tokens *I P, attn_session_copy i PPP, attn_session_truncate i PPz, attn_feed_batch i PPz,
attn_session_logits P P, attn_score i PPPPPz, attn_sampler_new i PPzP, attn_sampler_free 0 P, attn_sample i PPPPPz,
attn_stop_reason_name s i, attn_generate_many i PPzPP, attn_continuations_free 0 Pz, attn_hook i PPPPPP,
attn_hook_edit i PPPP, attn_unhook i PPu, attn_unhook_all 0 P, attn_session_get_cache i PPPizz,
attn_session_set_cache i PPizzT, attn_record_size i PPPP, attn_record_new i PPPP, attn_record_free 0 P,
attn_record_n_activations z P, attn_record_name s Pz, attn_record_get i PPPP, lens_save i PPPPz,
attn_logit_directions i PPPPPz, lens_logit_attrs i PPPTTT, lens_logit_lens i PPPTTT, lens_receipt_of_generated i PPPPP,
lens_receipt_check i PPPPPP, lens_patch i PPPPP, lens_patch_paths i PPPPP, lens_exact_effects i PPPPP,
lens_interactions i PPPPP, lens_shapley i PPPPP, lens_prune i PPPP, lens_backward_new i PPP, lens_backward_free 0 PP,
lens_gradients i PPPPP, lens_attribution_patch i PPPPP, lens_edge_scores i PPPPzz, lens_best_edges i PPPTz,
lens_run_edges i PPPPT, lens_graph_of lens_graph P, lens_sender_name lens_node_name Pz,
lens_receiver_name lens_node_name Pz, lens_circuit i PPPP lens_head i, lens_singular_values i PPTT,
lens_composition_scores_told i PPPiPP, lens_detect_heads i PPPPPz, lens_parts_count z PP, lens_parts_label lens_label PPz,
lens_decompose i PPPPP, lens_sae_open i PPP, lens_sae_free 0 PP, lens_sae_encode i PPPT, lens_sae_decode i PPPTT, lens_sae_hook i PP, lens_sae_end 0 P,
lens_ablate_heads i PPPPP, lens_no_gap lens_gap_text P, lens_edge_curve i PPPPzTi, lens_need_spread i Pz,
lens_spreads i PPPzzi, lens_holm i PPz, lens_holm_pairs i PPzi, lens_singular_vectors i PPTT, lens_eigenvalues i PPTT,
lens_ov_eigenvalues i PPPi, lens_copying_scores i PPT, lens_refactor_attention_told i PPPPP, lens_detect_head i PPPP,
lens_steering_vector i PPPPPP, lens_control_open i PPPP, lens_tuned_open i PPPP, lens_tuned_free 0 PP,
lens_tuned_apply i PPPzT, lens_show_token z PPz, lens_draw_picture i PPP, lens_draw_losses i PPP, lens_draw_graph i PPPP,
lens_draw_chart i PPP, lens_query_new i PPPsiu, lens_query_free 0 P, lens_query_set i PPssz, lens_query_ids i PPsPz,
lens_query_texts i PPsPPz, lens_query_input i PPsPPz, lens_query_run i PPPP, lens_query_table i PPz,
lens_query_about i PPzz, lens_query_column i PPPzz, lens_query_tensor i PPzz, lens_query_note s Pz, lens_query_form i PPsPP,
lens_query_save i PPs, lens_query_command s zP, lens_query_setting i Psz
"""


def _prototypes() -> dict[str, tuple[Any, ...]]:
    """Of each function: the type of its result, and those of its parameters."""
    found = {}
    for name, result, *parameters in (part.split() for part in _FUNCTIONS.replace("\n", " ").split(", ")):
        codes = [code for part in parameters for code in ([part] if part in STRUCTS else part)]
        found[name] = (_type(result), *map(_type, codes))
    return found


PROTOTYPES = _prototypes()
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


# ---- calls ----

_running = threading.local()  # .call: the innermost call of C in this thread


def _started(body: Callable[[], None]) -> bool:
    """Runs it in a new thread; false where the system refuses threads."""
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
        self._unclaimed, self._held = [work], [held]
        self._is_apart = self._is_over = False
        self._result: Any = Status.STOPPED

    def here(self) -> Any:
        """Calls C in this thread."""
        outer, work = getattr(_running, "call", None), self._unclaimed.pop()
        try:
            _running.call = self
            return work()
        finally:
            _running.call = outer

    def _apart(self) -> None:
        """The body of the other thread, whose last step says that it is over."""
        try:
            self._result = self.here()
        except BaseException as error:  # the caller took the work back, or an argument is none of C's
            self.caught = self.caught or error
        self._is_over = True
        self._asked.put(None)

    def watched(self) -> Any:
        """Calls C in another thread, and waits for it here."""
        self._asked: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[int] = queue.SimpleQueue()
        while not self._is_over:
            try:
                if not self._is_apart:
                    self._is_apart = True
                    if not _started(self._apart):
                        self._is_apart = False
                        return self.here()
                function = self._asked.get(timeout=0.1)  # Windows, and exceptions raised into a thread, need the timeout
                if function:
                    self._answers.put(self._do(function))
            except queue.Empty:
                continue
            except BaseException as error:
                self.caught = self.caught or error
                self.stop.value = 1
                if self._take_back():
                    break
                self._answers.put(1)  # C may be waiting for one; one too many stops it as well
        self._held.clear()
        return self._result

    def _take_back(self) -> bool:
        """Sees to it that C is not called, unless it is already."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
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


def free_with(owner: object, free: Any, ctx: attn_ctx, made: Any, *needs: object) -> None:
    """Calls free(ctx, made) when nobody refers to the owner any more. `made` is still zero: see Handle."""
    place: Any = ctypes.pointer(made)
    place.needs = needs
    weakref.finalize(owner, free, ctypes.pointer(ctx), place).atexit = False


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
        self._release: Any = self._lock.__exit__
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

"""attn.lens.query: any question of lens by the names of its settings, and its answer as tables. No command, setting or
column has its name here: tools/waist/query.h tells what there is."""
from __future__ import annotations

import ctypes
import functools
import html
import inspect
import json
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import byref, c_char_p, c_size_t, c_uint64
from typing import Any, NamedTuple, Optional, TypeVar, Union

import numpy as np
import numpy.typing as npt

import attn
from . import _pictures
from ._arguments import check_all, listed, take, wrong
from ._library import C, Error, Handle, Status, Turns, attn_ctx, attn_tensor, lib

__all__ = ["Answer", "Command", "describe", "query"]

_FACE = 1  # LENS_FACE_PYTHON
_KINDS = ["", "flag", "whole number", "number", "whole number", "text", "text", "text", "choice", "choice", "text"]  # of enum kind
_NUMBERS, WHOLES, _FLAGS, _TEXTS, _LISTS, _CARRIED = range(6)  # enum lens_kind
Array = npt.NDArray[Any]
Column = Union[Array, list[Any]]
_Answer = TypeVar("_Answer", bound="Answer")

# ---- what can be asked ----


class Setting(NamedTuple):
    """What a command can be told: lens.describe(command).settings."""

    name: str
    kind: str  # flag, whole number, number, text, file, choice
    word: int  # 1, 2 ...: it may stand behind the command, in this place; 0: its name stands before it
    takes: tuple[str, ...]  # a choice's names, or the least and the most of a number
    usual: Union[str, float, None]  # the default
    many: bool  # a list of them may be given
    help: str

    def expected(self) -> str:
        """What may be given, in words."""
        one = (f"a {self.kind} from {' to '.join(self.takes)}" if self.takes and "number" in self.kind else
               " or ".join(self.takes) or ("True or False" if self.kind == "flag" else f"a {self.kind}"))
        return one + ", or several in a list" * self.many


def settings_of(command: str) -> Iterator[Setting]:
    row, i = C.lens_setting(), 0
    while lib.lens_query_setting(byref(row), command.encode(), i):
        kind, usual = "file" if row.is_file else _KINDS[row.kind], row.usual.decode() or None
        yield Setting(row.name.decode(), kind, row.word, tuple((row.takes or b"").decode().split()),
                      json.loads(usual) if usual and "number" in kind else usual, bool(row.is_many),
                      "False: " * row.is_negated + " ".join(row.help.decode().split()))
        i += 1


class Command:
    """A question that lens can be asked, with what it can be told: lens.describe. As a function it asks it."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self.settings = {setting.name: setting for setting in settings_of(name)}
        self.words = sorted((setting for setting in self.settings.values() if setting.word), key=lambda setting: setting.word)
        self.__doc__, of = repr(self), inspect.Parameter
        self.__signature__ = inspect.Signature([
            of("model", of.POSITIONAL_ONLY), *(of(setting.name, of.POSITIONAL_OR_KEYWORD, default=None) for setting in self.words),
            *(of(setting.name, of.KEYWORD_ONLY, default=setting.usual) for setting in self.settings.values() if not setting.word),
            of("progress", of.KEYWORD_ONLY, default=None)])

    def __call__(self, model: attn.Model, /, *words: Any, progress: attn.Progress = None, **settings: Any) -> Answer:
        return query(model, self.name, *words, progress=progress, **settings)

    def __repr__(self) -> str:
        words = "".join(f", {setting.name}" for setting in self.words)
        return "\n".join([f"lens.query(model, {self.name!r}{words}, ...): {self.about}"] + [
            f"    {s.name}: {s.expected()}{'' if s.usual is None else f', {s.usual} if left out'}; {s.help}" for s in self.settings.values()])


def commands() -> dict[str, str]:
    """What lens.query can be asked: names of commands, and what each is about."""
    found: dict[str, str] = {}
    about = c_char_p()
    while name := lib.lens_query_command(len(found), byref(about)):
        found[name.decode()] = (about.value or b"").decode()
    return found


def describe(command: str) -> Command:
    """What a command can be told: names of settings, what each takes, defaults, and what they do."""
    known = _commands()
    if command not in known:
        raise wrong("describe()", "command", command, f"one of {', '.join(known)}", ValueError)
    return known[command]


@functools.lru_cache(maxsize=None)
def _commands() -> dict[str, Command]:
    return {name: Command(name, about) for name, about in commands().items()}


# ---- answers ----


class _Lazy(Mapping[str, Any]):
    """A mapping whose values are made when they are first asked for."""

    def __init__(self, names: list[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = names, make
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(f"there is no {name}; the answer has {', '.join(self._names) or 'none'}")
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<{', '.join(self._names)}>"


def _column(values: Any) -> Column:
    """A column as its kind has it. Missing is nan of a number, and None of a text."""
    if values.kind in (_TEXTS, _LISTS):
        ends = values.ends[:values.n]
        data, missing = (ctypes.string_at(of, n) if n else b"" for of, n in ((values.bytes, max(ends, default=0)), (values.is_missing, values.n)))
        texts = [None if gone else data[begin:end].decode("utf-8", "replace") for gone, begin, end in zip(missing, [0, *ends], ends)]
        return texts if values.kind == _TEXTS else [text and json.loads(text) for text in texts]
    numbers = np.ctypeslib.as_array(values.numbers, (values.n,)).copy() if values.n else np.zeros(0)
    if values.kind == _NUMBERS or np.isnan(numbers).any():
        return numbers
    return numbers.astype(np.int64 if values.kind == WHOLES else np.bool_)


class Answer(_pictures.Drawing):
    """What lens.query found. The last line of a notebook's cell shows its picture, print its tables as text.

    tables["heads"]["score"] is a column, an array or a list of texts. facts: what the question has one value of. notes:
    sentences. tensors: tables that are one array each, without a copy; axes: the names of a table's dimensions."""

    def __init__(self, model: attn.Model, command: str) -> None:
        self.command, self.title, self._model, self._turns = command, command, model, Turns()
        self._query, self._shapes = Handle(lib.lens_query_free, model._handle), {}  # type: tuple[Handle, dict[str, Any]]
        self._carried: Callable[[int], list[Any]]  # of a caller's table, the values of a column
        self._run(lib.lens_query_new, self._query.place, model._handle, command.encode(), _FACE, 0)

    def _run(self, function: Any, *arguments: Any, long: bool = False) -> None:
        """Calls a function that returns a status. A setting that does not fit is a ValueError."""
        ctx = self._model._context()
        try:
            self._turns.during(lambda: ctx.run(function, *arguments, long=long, held=self._turns.take()))
        except Error as error:
            if error.status in (Status.ARGUMENT, Status.CONTEXT, Status.TOKEN):
                raise ValueError(str(error)) from None
            raise

    def _told(self: _Answer, *words: Any, **settings: Any) -> _Answer:
        """The question with its settings, not asked yet."""
        known, command = describe(self.command), self.command
        names = [setting.name for setting in known.words]
        if len(words) > len(names) and known.words and known.words[-1].many:  # the last word may be several
            words = *words[:len(names) - 1], [*words[len(names) - 1:]]
        if len(words) > len(names):
            raise TypeError(f"query(): {command} takes {len(names)} words, and got {len(words)}; the names of other settings stand "
                            "before them")
        for name in settings.keys() & set(names[:len(words)]):
            raise TypeError(f"query(): {name} is given twice")
        for name, value in {**dict(zip(names, words)), **settings}.items():
            if name not in known.settings:
                self._run(lib.lens_query_set, self._query, name.encode(), b"", 0)  # which refuses it
            elif value is not None:
                self._run(*value_for(self, name, known.settings[name], value))
        return self

    def _asked(self: _Answer, progress: attn.Progress) -> _Answer:
        """The question with its answer."""
        show, done = attn._told(progress, self.command), 0.0

        def tell(share: float) -> Any:
            nonlocal done
            done = share
            return show(share) if show else None

        self._run(lib.lens_query_run, self._query, attn._progress_fn(tell, self.command)[0] if show else None, None, long=True)
        if show and done < 1:  # a short command tells nothing
            show(1)
        while lib.lens_query_table(byref(shape := C.lens_table()), self._query, len(self._shapes)):
            self._shapes[shape.name.decode()] = shape
        names = [*self._shapes]
        self.tables: Mapping[str, Mapping[str, Column]] = _Lazy(names, self._table)
        self.axes: Mapping[str, tuple[str, ...]] = _Lazy(names, self._axes)
        self.tensors: Mapping[str, Array] = _Lazy([name for name in names if self._shapes[name].is_dense], self.to_numpy)
        self.facts = {name: column[0].item() if isinstance(column, np.ndarray) else column[0]
                      for name, column in (self.tables["facts"] if "facts" in names else {}).items()}
        self.notes: list[str] = []
        while note := lib.lens_query_note(self._query, len(self.notes)):
            self.notes.append(note.decode())
        return self

    # ---- tables ----

    def _about(self, table: str) -> list[Any]:
        """What the columns of a table are, without their values."""
        found, at = [C.lens_values() for _ in range(self._shapes[table].n_columns)], [*self._shapes].index(table)
        for i, column in enumerate(found):
            lib.lens_query_about(byref(column), self._query, at, i)
        return found

    def _values(self, table: str, i: int) -> Column:
        values, ctx = C.lens_values(), attn_ctx()
        at = [*self._shapes].index(table)
        if not self._turns.during(lambda: lib.lens_query_column(byref(ctx), byref(values), self._query, at, i)):
            raise Error(Status(ctx.status), ctx.message.decode())
        if values.kind == _CARRIED:
            column = self._carried(values.source)
            return [column[int(row) - 1] for row in values.numbers[:values.n]]
        return _column(values)

    def _table(self, table: str) -> Mapping[str, Column]:
        return {column.name.decode(): self._values(table, i) for i, column in enumerate(self._about(table))}

    def _axes(self, table: str) -> tuple[str, ...]:
        about = [(column.axis, column.name.decode()) for column in self._about(table)]
        return tuple(next((name for of, name in about if of == axis), "") for axis in range(self._shapes[table].n_axes))

    def _named(self, table: Optional[str]) -> str:
        """A table, of None the first behind the facts."""
        return table or next((name for name in self._shapes if name != "facts"), "facts")

    def to_numpy(self, table: Optional[str] = None, column: Optional[str] = None) -> Array:
        """A column of a table (None: the first behind the facts), with a dimension for each of its axes. None: the first column that
        is no key."""
        name = self._named(table)
        keys, shape, names = self.axes[name], self._shapes[name], [about.name.decode() for about in self._about(name)]
        i, tensor = shape.n_keys if column is None else _Lazy(names, names.index)[column], attn_tensor()
        if keys and lib.lens_query_tensor(byref(tensor), self._query, [*self._shapes].index(name), i):
            return attn._view(tensor, self._query)
        return np.asarray(self._values(name, i)).reshape(shape.axes[:shape.n_axes])

    def to_pandas(self, table: Optional[str] = None) -> Any:
        """A table (None: the first behind the facts) as a pandas.DataFrame."""
        return _pictures.table(self.tables[self._named(table)])

    # ---- forms ----

    def _form(self, form: str) -> bytes:
        text, size = c_char_p(), c_size_t()
        self._run(lib.lens_query_form, self._query, form.encode(), byref(text), byref(size), long=True)
        return ctypes.string_at(text, size.value)

    def _svg(self) -> bytes:
        return self._form("svg")

    def save(self, path: attn.Path) -> None:
        """Writes it as -o of the program does, by how the path ends: .svg, .html, .json, .npz, or .csv, the first table behind the
        facts. With CairoSVG also .png."""
        if os.fsdecode(path).lower().endswith(".png"):
            super().save(path)
        else:
            self._run(lib.lens_query_save, self._query, os.fsencode(path), long=True)

    def __repr__(self) -> str:
        tables = ", ".join(f"{name} {shape.axes[:shape.n_axes]}" for name, shape in self._shapes.items())
        return self._form("text").decode("utf-8", "replace").rstrip("\n") or f"<attn.lens.Answer of {self.command}: {tables}>"

    def _repr_html_(self) -> str:
        try:
            return super()._repr_html_()
        except ValueError:  # it has no picture
            return f"<pre>{html.escape(repr(self))}</pre>"


# ---- asking ----


def strings(texts: Iterable[str], wrong_one: Callable[[int, Any], Exception]) -> tuple[bytes, Any, int]:
    """Texts as C takes many. What cannot be UTF-8 is for C to refuse."""
    pieces, size = [], 0
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong_one(i, text)
        pieces.append(coded(text))
    ends = (c_uint64 * (len(pieces) + 1))()
    for i, piece in enumerate(pieces):
        ends[i] = size = size + len(piece)
    return b"".join(pieces), ends, len(pieces)


def coded(text: Union[str, bytes, os.PathLike[str]]) -> bytes:
    if not isinstance(text, str):
        return os.fsencode(text)
    try:
        return text.encode("utf-8", "surrogateescape")  # a byte that a file had is that byte again
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    try:
        return str(operator.index(value))
    except TypeError:
        return repr(float(value))


def value_for(answer: Answer, name: str, setting: Setting, value: Any) -> tuple[Any, ...]:
    """The call that gives a setting its value."""
    kind, is_text = (setting.expected(), listed), isinstance(value, (str, bytes, os.PathLike))
    if setting.many:
        texts = [value] if isinstance(value, str) else take("query()", name, value, kind)
        return lib.lens_query_texts, answer._query, name.encode(), *strings(texts, lambda i, one: wrong("query()", name, one, kind[0]))
    if setting.kind == "text" and not is_text and np.ndim(value) == 1:
        ids = answer._model._ids(value, name=name)
        return lib.lens_query_ids, answer._query, name.encode(), ids.ctypes.data, len(ids)
    if setting.kind == "flag" and isinstance(value, (bool, np.bool_)):
        text = b"1" if value else b"0"
    elif is_text and setting.kind != "flag":
        text = coded(value)
    elif "number" in setting.kind:
        text = take("query()", name, value, (setting.expected(), _number)).encode()
    else:
        raise wrong("query()", name, value, kind[0])
    return lib.lens_query_set, answer._query, name.encode(), text, len(text)


def query(model: attn.Model, command: str, /, *words: Any, progress: attn.Progress = None, **settings: Any) -> Answer:
    """Asks a model a question of lens: lens.query(model, "patch", "Tom was a boy. He", "Tom was a girl. He", by="heads").

    lens.commands() says what can be asked, and lens.describe("patch") what words and settings it takes. A text may be the ids of
    its tokens. None is a setting that is left out; one that does not fit is a ValueError that names it.
    progress: True for a bar, or a function that is given the share that is done."""
    return Answer(model, command)._told(*words, **settings)._asked(progress)


check_all(globals())

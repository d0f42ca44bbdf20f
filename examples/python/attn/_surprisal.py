"""Model.surprisal and Model.word_vectors: hand texts to the C code of tools/surprisal, and take columns from it."""
from __future__ import annotations

import ctypes
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import byref, c_double, c_float, c_size_t, c_uint64
from typing import Any, Optional, Union

import numpy as np

import attn
from ._arguments import KINDS, coded, take, wrong
from ._library import C, Error, Handle, Status, attn_ctx, lib

_CHOICES = {"by": ["word", "token", "region"], "unit": ["bits", "nats"], "punctuation": ["word", "apart"], "pooling": ["mean", "first", "last"]}
_OF_PYTHON = 2  # enum face of tools/surprisal/run.h
_COUNT, _NUMBER, _TEXT, _CARRIED = range(4)  # enum column_kind


def _strings(texts: Optional[Sequence[str]], what: str = "text") -> Any:
    """Texts as bytes, of which those that cannot be UTF-8 are for C to refuse."""
    if texts is None:
        return C.lens_strings()
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong("surprisal()", f"{what} {i + 1}", text, "a str")
    pieces, size = [_encoded(text) for text in texts], 0
    ends = (c_uint64 * (len(pieces) + 1))()
    for i, piece in enumerate(pieces):
        ends[i] = size = size + len(piece)
    strings = C.lens_strings(b"".join(pieces), ctypes.addressof(ends), len(pieces))
    strings.kept = ends
    return strings


def _values(column: Any) -> list[Any]:
    numbers: list[float] = column.numbers[:column.n]
    if column.kind == _NUMBER:
        return numbers
    if column.kind == _COUNT:
        return [number if math.isnan(number) else int(number) for number in numbers]
    data, ends = ctypes.string_at(column.bytes, column.ends[column.n - 1]) if column.n else b"", column.ends[:column.n]
    return [None if math.isnan(number) else data[begin:end].decode() for number, begin, end in zip(numbers, [0, *ends], ends)]


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # a byte that a file had is that byte again
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _run(ctx: attn_ctx, function: Any, *arguments: Any) -> None:
    try:
        ctx.run(function, *arguments, long=True)
    except Error as error:
        if error.status in (Status.ARGUMENT, Status.CONTEXT, Status.TOKEN):  # of an option
            raise ValueError(str(error)) from None
        raise


class _Table:
    """Columns by their number, of a DataFrame of any kind or of a dictionary."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.names = [str(name) for name in (table.columns if hasattr(table, "columns") else table)]

    def column(self, i: int) -> list[Any]:
        """The values, as Python's own types."""
        at = self.table.iloc[:, i] if hasattr(self.table, "iloc") else self.table[self.names[i]]
        if isinstance(at, str):
            raise TypeError(f"the column {self.names[i]!r} is one text; expected a list of texts")
        return at.tolist() if hasattr(at, "tolist") else list(at)


def options(choices: dict[str, str], layers: Union[str, Iterable[int], None] = None, tuned: Optional[attn.Path] = None,
            stride: Optional[int] = None, renyi: Optional[float] = None, words: Optional[dict[str, Optional[str]]] = None, **numbers: Any) -> Any:
    chosen = C.surprisal_options(face=_OF_PYTHON, stride=stride or 0, has_stride=stride is not None, renyi=renyi or 0,
                                 has_renyi=renyi is not None, tuned=None if tuned is None else os.fsencode(tuned), **numbers)
    listed = layers if layers is None or isinstance(layers, str) else ",".join(map(str, take(
        "surprisal()", "layers", layers, ('numbers of layers, such as [0, 2], or "all"', list))))
    for name, word in {"layers": listed, **(words or {})}.items():
        setattr(chosen, name, None if word is None else coded(word))
    for name, given in choices.items():
        setattr(chosen, name, _CHOICES[name].index(given))
    return chosen


def _read_all(ctx: attn_ctx, run: Handle, tell: Optional[Callable[[float], Any]], level: int = 6) -> None:
    """Tells the notes of a run that has its texts, and ends it. level: of who called the model, past the check of its arguments."""
    done = c_double()
    for note in lib.lens_surprisal_notes(run).decode().splitlines():
        warnings.warn(note, stacklevel=level)
    while done.value < 1:
        _run(ctx, lib.lens_surprisal_pass, run, byref(done))
        if tell:
            tell(done.value)


def _measured(model: attn.Model, texts: Any, chosen: Any, tell: Optional[Callable[[float], Any]]) -> tuple[Handle, Optional[_Table]]:
    """A run that is done, and the table that the texts are in."""
    table = _Table(texts) if hasattr(texts, "columns") or isinstance(texts, Mapping) else None
    ctx, run = model._context(), Handle(lib.lens_surprisal_free, model._handle)
    names = _strings(table.names if table else None, "the name of column")
    _run(ctx, lib.lens_surprisal_new, run.place, model._handle, byref(chosen), byref(names))
    rows: list[Any] = (table.column(lib.lens_surprisal_source(run, 0)) if table else
                       take("surprisal()", "texts", texts, ("a text, several, or a table and its column", KINDS["Prompts"][1])))
    lists = table.column(lib.lens_surprisal_source(run, 1)) if table and chosen.region_names is not None else None
    what = f"column {table.names[lib.lens_surprisal_source(run, 0)]!r}: text" if table else "text"
    given, regions = _strings(rows, what), _strings(lists, "the names of regions of text")
    _run(ctx, lib.lens_surprisal_read, run, byref(given), byref(regions))
    _read_all(ctx, run, tell)
    return run, table


def _columns(run: Handle, table: Optional[_Table]) -> dict[str, list[Any]]:
    """A list for each column."""
    result: dict[str, list[Any]] = {}
    column = C.lens_column()
    while lib.lens_surprisal_column(byref(column), run, len(result)):
        if column.kind == _CARRIED and table:
            values = table.column(column.source)
            result[column.name.decode()] = [values[number - 1] for number in result["text"]]
        else:
            result[column.name.decode()] = _values(column)
    return result


def vectors(model: attn.Model, texts: Any, chosen: Any, tell: Optional[Callable[[float], Any]]) -> attn.Array:
    """[rows, width]"""
    (run, _), width, column = _measured(model, texts, chosen, tell), c_size_t(), C.lens_column()
    lib.lens_surprisal_column(byref(column), run, 0)
    numbers = lib.lens_surprisal_vectors(run, byref(width))
    taken = (c_float * (column.n * width.value)).from_address(numbers) if column.n else []
    return np.array(taken, np.float32).reshape(column.n, width.value)


def columns(model: attn.Model, texts: Any, chosen: Any, tell: Optional[Callable[[float], Any]]) -> dict[str, list[Any]]:
    return _columns(*_measured(model, texts, chosen, tell))


def suite(model: attn.Model, path: attn.Path, chosen: Any, tell: Optional[Callable[[float], Any]]) -> dict[str, list[Any]]:
    ctx, run = model._context(), Handle(lib.lens_surprisal_free, model._handle)
    _run(ctx, lib.lens_surprisal_new, run.place, model._handle, byref(chosen), byref(C.lens_strings()))
    _run(ctx, lib.lens_surprisal_suite, run, os.fsencode(path))
    _read_all(ctx, run, tell, 5)
    return _columns(run, None)

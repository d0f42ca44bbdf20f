"""Model.surprisal: hands texts to the C code of tools/surprisal, and takes columns from it."""
from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Optional

import attn
from attn import Error, Status

_CHOICES = {"by": ["word", "token", "region"], "unit": ["bits", "nats"], "punctuation": ["word", "apart"]}
_OF_PYTHON = 2  # enum face of tools/surprisal/run.h
_COUNT, _NUMBER, _TEXT, _CARRIED = range(4)  # enum column_kind


class _surprisal_options(ctypes.Structure):
    _fields_ = [("column", c_char_p), ("regions", c_char_p), ("region_names", c_char_p), ("top", c_size_t), ("stride", c_size_t),
                ("by", c_int), ("unit", c_int), ("punctuation", c_int), ("continues", c_int), ("no_bos", c_int), ("rank", c_int),
                ("face", c_int)]


class _lens_strings(ctypes.Structure):
    _fields_ = [("bytes", c_char_p), ("ends", c_void_p), ("n", c_size_t)]
    kept: Any

    @classmethod
    def of(cls, texts: Optional[Sequence[str]], what: str = "text") -> _lens_strings:
        """Texts as bytes, of which those that cannot be UTF-8 are for C to refuse."""
        if texts is None:
            return cls()
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{what} {i + 1} is {text!r}; expected a str")
        pieces, size = [_encoded(text) for text in texts], 0
        ends = (c_uint64 * (len(pieces) + 1))()
        for i, piece in enumerate(pieces):
            ends[i] = size = size + len(piece)
        strings = cls(b"".join(pieces), ctypes.addressof(ends), len(pieces))
        strings.kept = ends
        return strings


class _lens_column(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("source", c_size_t), ("n", c_size_t), ("numbers", ctypes.POINTER(c_double)),
                ("ends", ctypes.POINTER(c_uint64)), ("bytes", c_void_p)]

    def values(self) -> list[Any]:
        numbers: list[float] = self.numbers[:self.n]
        if self.kind == _NUMBER:
            return numbers
        if self.kind == _COUNT:
            return [number if math.isnan(number) else int(number) for number in numbers]
        data, ends = ctypes.string_at(self.bytes, self.ends[self.n - 1]) if self.n else b"", self.ends[:self.n]
        return [None if math.isnan(number) else data[begin:end].decode()
                for number, begin, end in zip(numbers, [0, *ends], ends)]


_lib = attn._lib
_P = c_void_p
for _name, _result, _parameters in (
        ("lens_surprisal_new", c_int, [_P] * 5), ("lens_surprisal_source", c_size_t, [_P, c_int]), ("lens_surprisal_read", c_int, [_P] * 4),
        ("lens_surprisal_notes", c_char_p, [_P]), ("lens_surprisal_pass", c_int, [_P] * 3), ("lens_surprisal_free", None, [_P]),
        ("lens_surprisal_column", c_int, [_P, _P, c_size_t])):
    if not hasattr(_lib, _name):
        raise ImportError(f"{_lib._name} lacks {_name}: build libattn.so from tools/lens/library.c")
    getattr(_lib, _name).restype, getattr(_lib, _name).argtypes = _result, _parameters


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # a byte that a file had is that byte again
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _run(ctx: attn._attn_ctx, function: Any, *arguments: Any) -> None:
    try:
        ctx.run(function, *arguments)
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


def options(column: Optional[str], choices: dict[str, str], regions: Optional[str], region_names: Optional[str], **numbers: Any
             ) -> _surprisal_options:
    chosen = _surprisal_options(face=_OF_PYTHON, **numbers)
    for name, word in (("column", column), ("regions", regions), ("region_names", region_names)):
        if word is not None and (not isinstance(word, str) or "\0" in word):
            raise TypeError(f"{name} is {word!r}; expected a str")
        setattr(chosen, name, None if word is None else _encoded(word))
    for name, given in choices.items():
        if given not in _CHOICES[name]:
            raise ValueError(f"{name} is {given!r}; expected {' or '.join(repr(word) for word in _CHOICES[name])}")
        setattr(chosen, name, _CHOICES[name].index(given))
    return chosen


def columns(model: attn.Model, texts: Any, chosen: _surprisal_options) -> dict[str, list[Any]]:
    """A list for each column."""
    table = _Table(texts) if hasattr(texts, "columns") or hasattr(texts, "keys") else None
    ctx, pointer, done = model._context(), c_void_p(), c_double()
    names = _lens_strings.of(table.names if table else None, "the name of column")
    _run(ctx, _lib.lens_surprisal_new, byref(pointer), model._handle, byref(chosen), byref(names))
    run = attn._Handle(pointer, _lib.lens_surprisal_free, model._handle)
    rows = table.column(_lib.lens_surprisal_source(run, 0)) if table else [texts] if isinstance(texts, str) else list(texts)
    lists = table.column(_lib.lens_surprisal_source(run, 1)) if table and chosen.region_names is not None else None
    given, regions = _lens_strings.of(rows), _lens_strings.of(lists, "the names of regions of text")
    _run(ctx, _lib.lens_surprisal_read, run, byref(given), byref(regions))
    for note in _lib.lens_surprisal_notes(run).decode().splitlines():
        warnings.warn(note, stacklevel=3)
    while done.value < 1:
        _run(ctx, _lib.lens_surprisal_pass, run, byref(done))
    result: dict[str, list[Any]] = {}
    column = _lens_column()
    while _lib.lens_surprisal_column(byref(column), run, len(result)):
        if column.kind == _CARRIED and table:
            values = table.column(column.source)
            result[column.name.decode()] = [values[number - 1] for number in result["text"]]
        else:
            result[column.name.decode()] = column.values()
    return result

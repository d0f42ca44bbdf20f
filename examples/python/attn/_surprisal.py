"""Model.surprisal, word_vectors and suite: questions of lens.query about many texts, which may stand in a table."""
from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

import attn
from . import _query
from ._arguments import KINDS, listed, take, wrong
from ._library import lib


class _Table:
    """Columns by their number, of a DataFrame of any kind or of a dictionary."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.keys = [*(table.columns if hasattr(table, "columns") else table)]
        self.names = [*map(str, self.keys)]

    def column(self, i: int) -> list[Any]:
        """The values, as Python's own types."""
        at = self.table.iloc[:, i] if hasattr(self.table, "iloc") else self.table[self.keys[i]]
        values: list[Any] = take("surprisal()", f"the column {self.names[i]!r} of texts", at.tolist() if hasattr(at, "tolist") else at,
                                 ("a list", listed))
        return values


def _give(answer: _query.Answer, texts: Any, column: Optional[str], region_names: Optional[str], same: Optional[str]) -> None:
    """Texts, or the columns of a table: those that are read, and the names of the others."""
    if not (hasattr(texts, "columns") or isinstance(texts, Mapping)):
        rows = take("surprisal()", "texts", texts, ("a text, several, or a table and its column", KINDS["Prompts"][1]))
        answer._run(lib.lens_query_texts, answer._query, b"texts", *_query.strings(rows, lambda i, text: wrong(
            "surprisal()", f"text {i + 1}", text, "a str")))
        return
    table = _Table(texts)
    answer._carried = table.column
    for at, name in enumerate(table.names):
        rows = [str(row) for row in table.column(at)] if name == same else table.column(at)
        if name in (column, region_names, same) or len(table.names) == 1:
            given = _query.strings(rows, lambda i, text: wrong("surprisal()", f"column {name!r}: text {i + 1}", text, "a str"))
        else:
            given = b"", None, len(rows)
        answer._run(lib.lens_query_input, answer._query, _query.coded(name), *given)


class Measured(_query.Answer):
    """An answer whose table of rows is a list for each column."""

    def columns(self) -> dict[str, list[Any]]:
        found = {}
        for (name, values), about in zip(self.tables["rows"].items(), self._about("rows")):
            found[name] = values.tolist() if isinstance(values, np.ndarray) else values
            if about.kind == _query.WHOLES:
                found[name] = [number if number != number else int(number) for number in found[name]]
        return found


def measured(command: str, self: attn.Model, progress: attn.Progress, texts: Any = None, layers: Any = None, context: Any = None,
             special: Optional[bool] = None, **settings: Any) -> Measured:
    """The answer of a command about texts, or about what its settings name. Notes are warnings."""
    if layers is not None and not isinstance(layers, str):
        layers = ",".join(map(str, take("surprisal()", "layers", layers, ('numbers of layers, such as [0, 2], or "all"', listed))))
    settings.update(layers=layers or None, context=None if context is None else str(context),
                    special=self.special if special is None else special)
    answer = Measured(self, command)._told(**{name: value for name, value in settings.items() if value is not None})
    if command == "surprisal":
        _give(answer, texts, settings["column"], settings["region_names"], settings["text_column"])
    for note in answer._asked(progress).notes:
        warnings.warn(note, stacklevel=5)  # of who called the model, past the check of its arguments
    return answer

#!/usr/bin/env python3
"""Prints what attn.lens.query takes of each command, for editors and type checkers, from the library's table of settings:

    python3 examples/python/building/attn_stub.py >examples/python/attn/lens_commands.pyi

tests/platforms/python/test_query.py compares."""
from __future__ import annotations

import pathlib
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from attn import lens  # noqa: E402

HEAD = '''# examples/python/building/attn_stub.py printed this, from the settings of the library.
from collections.abc import Sequence
from typing import Literal, Optional, Union, overload

from attn import Model, Path, Progress, Tokens

from ._query import Answer

Flag = Optional[bool]
Whole = Optional[int]
Number = Optional[float]
Text = Optional[str]
Texts = Union[str, Sequence[str], None]
File = Optional[Path]
Word = Optional[Tokens]
'''


def kind_of(setting: lens.Setting) -> str:
    """The type of what a setting takes."""
    if setting.kind == "choice":
        return f"Optional[Literal[{', '.join(map(repr, setting.takes))}]]"
    name = {"whole number": "Whole", "text": "Texts" if setting.many else "Word" if setting.word else "Text"}
    return name.get(setting.kind, setting.kind.capitalize())


def overload_of(command: lens.Command) -> str:
    def declared(words: bool) -> list[str]:
        return [f"{name}:~{kind_of(setting)}~=~..." for name, setting in command.settings.items() if bool(setting.word) == words]

    taken = ["model: Model", f"command: Literal[{command.name!r}]", "/", *declared(True), "*", *declared(False),
             "progress:~Progress~=~...)~->~Answer:~..."]
    lines = textwrap.fill("def query(" + ", ".join(taken), 120, subsequent_indent=" " * 10, break_on_hyphens=False)
    return f"@overload\n{lines}\n".replace("~", " ")


if __name__ == "__main__":
    print("\n".join([HEAD, *(overload_of(lens.describe(name)) for name in lens.commands())]), end="")

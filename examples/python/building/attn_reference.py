#!/usr/bin/env python3
"""Prints the page of every public name, from the package's docstrings, as Markdown. `make docs` puts it into the build folder:

    python3 examples/python/building/attn_reference.py >python.md

The groups are those of the tables "What exists" in the docstrings of attn and attn.lens."""
from __future__ import annotations

import ast
import inspect
import pathlib
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

PROJECT = pathlib.Path(__file__).resolve().parents[1]


def signature(function: Any) -> str:
    """The parameters with their defaults, without types."""
    shown = []
    parameters = list(inspect.signature(function).parameters.values())
    for i, parameter in enumerate(parameters):
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters[:i]):
            shown.append("*")
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}".partition("(")[0] + (
            "()" if "(" in repr(parameter.default) else "")
        shown.append(f"{stars}{parameter.name}{default}")
    return f"({', '.join(shown)})"


def block(text: str) -> str:
    return f"```text\n{text.strip()}\n```\n" if text.strip() else ""


def fields(thing: type) -> str:
    """The lines that declare a class's fields, with what they say of them."""
    source, lines = inspect.getsource(thing), []
    declared = ast.parse(source).body[0]
    assert isinstance(declared, ast.ClassDef)
    for line in source.splitlines()[declared.body[0].end_lineno if thing.__doc__ else 0:]:  # behind the docstring
        if re.match(r"    (@|def |if )", line):
            break
        if re.match(r"    [a-z]\w*: ", line):
            lines.append(line[4:])
    return "\n".join(lines)


def entry(module: types.ModuleType, name: str) -> Iterator[str]:
    thing = getattr(module, name)
    doc = inspect.getdoc(thing) or ""
    if not isinstance(thing, type):
        yield f"### {name}\n\n{block(f'{name}{signature(thing)}{chr(10) * 2}{doc}')}"
        return
    yield f"### {name}\n\n{block(doc + chr(10) * 2 + fields(thing))}"
    for key, value in vars(thing).items():
        if key.startswith("_"):
            if key == "__init__" and value.__doc__:
                yield block(f"{name}{signature(value)}\n\n{inspect.getdoc(value)}")
            continue
        if isinstance(value, property):
            yield block(f"{name}.{key}\n\n{inspect.getdoc(value) or ''}")
        elif inspect.isfunction(value):
            yield block(f"{name}.{key}{signature(value)}\n\n{inspect.getdoc(value) or ''}")


def groups(module: types.ModuleType) -> dict[str, list[str]]:
    """The public names, by the groups of the module's docstring."""
    table = (module.__doc__ or "").partition("What exists:\n\n")[2].partition("\n\n")[0]
    found: dict[str, list[str]] = {}
    for line in table.splitlines():
        title, names = line[:16].strip(), re.findall(r"\w+", line[16:])
        wanted = [name for name in names if name in module.__all__ and name != "lens" and
                  not any(name in others for others in found.values())]
        if wanted:
            found[title] = list(dict.fromkeys(wanted))
    missing = set(module.__all__) - {name for names in found.values() for name in names} - {"lens"}
    if missing:
        raise SystemExit(f"the table of {module.__name__} lacks {', '.join(sorted(missing))}")
    return found


def page() -> str:
    sys.path.insert(0, str(PROJECT))
    import attn
    from attn import lens
    parts = ["# The package attn, name by name\n\nMade from the docstrings; `help(attn)` says the same. "
             "examples/python/README.md begins with examples.\n\n"]
    for module in attn, lens:
        for title, names in groups(module).items():
            line = f"- [{module.__name__}: {title}](#{module.__name__.replace('.', '')}-{title.replace(' ', '-')}): {', '.join(names)}"
            parts.append("\n".join(textwrap.wrap(line, 140, subsequent_indent="  ", break_on_hyphens=False)) + "\n")
    for module in attn, lens:
        for title, names in groups(module).items():
            parts.append(f"\n## {module.__name__}: {title}\n")
            for name in names:
                parts += [f"\n{part}" for part in entry(module, name)]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.buffer.write(page().encode())

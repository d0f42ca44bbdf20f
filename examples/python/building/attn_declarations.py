#!/usr/bin/env python3
"""Prints the structs and functions of libattn.so that the package uses, from the headers in C, for attn/_library.py:

    python3 examples/python/building/attn_declarations.py >examples/python/attn/declarations.txt

tests/platforms/python/test_attn.py compares. A line is a function: its name, its result, its parameters; or a struct: its name,
a colon, its members. The letters are those of _TYPES in _library.py."""
from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "examples" / "python" / "attn"
LETTERS = {"int": "i", "attn_token": "I", "size_t": "z", "float": "f", "double": "d", "uint32_t": "u", "uint64_t": "U", "char": "c",
           "unsigned": "u", "attn_hook_id": "u", "ptrdiff_t": "n", "void": "0"}
# Pointers to many, or to what the library made, whose values Python writes or reads. All others are addresses.
TYPED = """attn_config.more_eos attn_continuation.tokens attn_continuation.log_probs attn_activation.kind lens_pruned.edges
    lens_drawn_graph.edges lens_picture.panels lens_picture.rows lens_picture.columns lens_picture.texts lens_losses.tokens
    lens_losses.tips lens_chart.names lens_values.numbers lens_values.ends attn_session_tokens attn_model_config
    attn_activation_kind_at""".split()
BYTES = "lens_values.bytes attn_token_bytes attn_model_bytes".split()  # no texts that end at a zero

headers = [ROOT / "attn.h", *sorted(path for room in ("lens", "waist", "write", "receipt") for path in (ROOT / "tools" / room).glob("*.h")),
           *sorted((ROOT / "tools/lens/program/draw").glob("*.h"))]
text = re.sub(r"/\*.*?\*/|\bvolatile ", " ", "\n".join(path.read_text(encoding="utf-8") for path in headers), flags=re.S)
structs = dict(re.findall(r"\bstruct (\w+) \{([^{}]*)\}", text))
used = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PACKAGE.glob("*.py")))
needed: dict[str, str] = {}  # structs, each behind those that it has


def found(pattern: str, where: str) -> tuple[str, ...]:
    match = re.fullmatch(pattern, where)
    assert match, where
    return tuple(group or "" for group in match.groups())


def code(where: str, declared: str, stars: str, size: str = "") -> str:
    """The letters of a type with so many asterisks. `where`: whose it is."""
    name, n = re.sub(r"const|struct", "", declared).split()[0], stars.count("*")
    is_text = name == "char" and n == 1 and "const" in declared and where not in BYTES
    if name.endswith("_fn") or n and where not in TYPED and not is_text:
        return "P"
    if name == "char" and n:
        return "*" * (n - 1) + "s"
    if name in structs:
        need(name)
    letter = name if name in structs else LETTERS.get(name, "i")  # of an enum i
    return "*" * n + letter + (size if size.isdigit() or not size else re.findall(rf"\b{size} = (\d+)", text)[0])


def members(struct: str) -> Iterator[str]:
    for line in " ".join(structs[struct].split()).split(";")[:-1]:
        declared, names = found(r" ?((?:(?:const|struct|unsigned) )*\w+) ?(.*)", line)
        for one in names.split(","):
            stars, name, size = found(r"((?: ?\* ?(?:const)?)*) ?(\w+)(?:\[(\w+)\])?", one)
            yield f"{code(f'{struct}.{name}', declared, stars, size)} {name}"


def need(struct: str) -> None:
    if struct not in needed:
        needed[struct] = ", ".join(members(struct))


def functions() -> Iterator[str]:
    for name in sorted(set(re.findall(r"\b_?lib\.((?:attn|lens)_\w+)", used))):
        result, parameters = re.findall(rf"\b(?:ATTN_API|LENS_FN) ([^;{{}}()]*?)\b{name}\(([^)]*)\)\s*[;{{]", text)[0]
        types = [found(r"\s*(.*?)((?:\*|const|\s)*)\w+", part) for part in parameters.split(",")]
        yield " ".join([name, code(name, result, result), *(code("", *of) for of in types if of[0])])


if __name__ == "__main__":
    declared = [*functions()]
    for name in ["attn_ctx", "attn_tensor", *sorted(set(re.findall(r"\bC\.(\w+)", used)))]:
        need(name)
    print("\n".join([*(f"{name}: {needed[name]}" for name in needed), *declared]))

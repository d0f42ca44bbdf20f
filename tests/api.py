#!/usr/bin/env python3
"""Four rules for the names and declarations of attn.h: tests/api.py [DIRECTORY]

No public function has more than six parameters. Each is called by a program (tools/, examples/ and the code
blocks of their pages) or by a binding; what only tests call is no part of the API. No internal name
differs from a public one by an underscore alone. Each public struct stands once in the list of
>>changes that says how it may grow. Prints what breaks a rule, and then fails."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
whole = comment.sub("", (root / "attn.h").read_text()[len("/* clang-format off */"):])
header = whole[whole.index("#define ATTN_H"):whole.index("ATTN_FILE")]
functions = re.findall(r"ATTN_API\s[^;{]*?\b(attn_\w+)\s*\(([^;]*)\)\s*;", header)


def n_parameters(text: str) -> int:
    while re.search(r"\([^()]*\)", text):  # the parameters of a callback
        text = re.sub(r"\([^()]*\)", "", text)
    return text.count(",") + (text.strip() != "void")


def calls() -> str:
    text = []
    for path in sorted(p for place in ("tools", "examples") for p in (root / place).rglob("*")):
        if path.suffix in (".c", ".h", ".cpp", ".hpp"):
            text.append(comment.sub("", path.read_text()))
        elif path.suffix in (".py", ".lua"):
            text.append(path.read_text())
        elif path.suffix == ".md":
            text += re.findall(r"^```c\n(.*?)^```", path.read_text(), re.S | re.M)
    return "\n".join(text)


called = set(re.findall(r"\battn_\w+", calls()))
problems = [f"{name} has {n_parameters(text)} parameters; at most six" for name, text in functions
            if n_parameters(text) > 6]
problems += [f"{name} is called by no program and no binding" for name, _ in functions
             if name not in called]
names = set(re.findall(r"\b(?:attn|ATTN)__?[A-Za-z]\w*", whole))
problems += [f"{name} differs from a public name by an underscore alone" for name in sorted(names)
             if "__" in name[:6] and name.replace("__", "_", 1) in names]
text = (root / "attn.h").read_text()
promised = re.findall(r"\battn_\w+", text[text.index("The structs of the API"):text.index("attn_ctx keeps all its")])
structs = re.findall(r"^\} (attn_\w+);", header, re.M)
enums = re.findall(r"^typedef enum (attn_\w+)", header, re.M)
problems += [f"{name} stands {promised.count(name)} times in >>changes' list of structs; expected once"
             for name in sorted({*structs, *promised} - {*enums}) if promised.count(name) != 1 or name not in structs]
if len(functions) < 100:
    problems.append(f"only {len(functions)} declarations were found in attn.h")
print("\n".join(problems) or f"{len(functions)} functions: at most six parameters, and each has a caller")
sys.exit(bool(problems))

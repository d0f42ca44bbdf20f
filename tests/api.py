#!/usr/bin/env python3
"""The rules of attn.h that can be read off it: tests/api.py [DIRECTORY]

It has at most LINES lines of code, blank lines and comments not counted. No public function has more than six
parameters. Each is called by a program (tools/, examples/ and the code blocks of their pages) or by a binding;
what only tests call is no part of the API. Its parameters have the same names where it is declared, where it is
defined and in the comment above it. No internal name differs from a public one by an underscore alone. Each
public struct stands once in the list of >>changes that says how it may grow. Each setting of the sampler is in all front
ends, in the contract and in the tests that go through settings.

A setting of lens, surprisal or score has three places: its row in the table, the member that the row fills, and what reads
the member. No face names it, so its name is none that a face's language has for itself. Prints what breaks a rule, and
then fails."""
import keyword
import pathlib
import re
import sys

LINES = 11096  # see README.md; 38 for version 5: blanks in front of texts, heads
# Names in comments that are neither parameters nor fields: of activations, of PyTorch, of the manual's examples.
OTHERS = re.compile(r"hook_\w+|ln_final|pos_embed|log_softmax|session_file|keep")
# Where each setting of attn_sampler_desc must be, with _ or -, or as someName.
SETTINGS = """examples/gpt2/gpt2.c examples/python/attn/__init__.py examples/python/attn/declarations.txt
    examples/web/attn.js tools/receipt/receipt.h tools/score/batch.h tools/score/request.h tools/score/run.h tests/contract/contract.md
    tests/contract/contract.py tests/fuzz/fuzz_sampler.c tests/suites/sampling/sampling.c""".split()

# Words of Python, JavaScript, R and Lua.
KEYWORDS = set(keyword.kwlist) | set("""break case catch class const continue debugger default delete do else enum export
    extends finally for function if import in instanceof new null return super switch this throw try typeof var void while
    with yield let static await implements interface package private protected public TRUE FALSE NULL Inf NaN NA repeat next
    and elseif end goto local nil not or then true false until""".split())

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
text = (root / "attn.h").read_text()
whole = comment.sub("", text[len("/* clang-format off */"):])
header = whole[whole.index("#define ATTN_H"):whole.index("ATTN_FILE")]
functions = re.findall(r"ATTN_API\s[^;{]*?\b(attn_\w+)\s*\(([^;]*)\)\s*;", header)


def parameters(of: str) -> "list[str]":
    """The names of parameters; that of a callback is the word behind its asterisk."""
    of = re.sub(r"\(\s*\*\s*(\w+)\)\s*\([^()]*\)", r"\1", of)
    return [(re.findall(r"\w+", re.sub(r"\[.*?\]", "", one)) or ["..."])[-1] for one in of.split(",")
            if one.strip() != "void"]


def n_lines() -> int:
    quoted_or_comment = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|' + comment.pattern, re.S)
    code = quoted_or_comment.sub(lambda m: " " if m[0].startswith("/") else m[0], text)
    return sum(line.strip() != "" for line in code.split("\n"))


def misnamed() -> "list[str]":
    """Parameters with another name in the definition, and names in comments that no parameter and no field has."""
    declared = {name: parameters(of) for name, of in functions}
    found = [f"{name} is defined with the parameters {', '.join(parameters(of))}, but declared with "
             f"{', '.join(declared[name])}"
             for name, of in re.findall(r"^\w[^;{}()#]*?\b(attn_\w+)\(([^;{}]*)\)\s*\{", whole, re.M)
             if parameters(of) != declared.get(name, parameters(of))]
    structs = " ".join(re.findall(r"typedef (?:struct|enum) attn_\w+ \{(.*?)\} attn_\w+;", header, re.S))
    known = set(re.findall(r"\w+", structs)) | set(re.findall(r"\b(?:attn|ATTN)_\w+", header))
    for part in re.split(r"\n(?=/\*)|\n\n", text[text.index("/* >>api-basics"):text.index("/* >>gpt2")]):
        code = comment.sub(" ", part)
        names = re.findall(r"ATTN_API\s[^;{]*?\b(attn_\w+)\s*\(", code)
        mine = {p for name in names for p in declared.get(name, [])} | set(parameters(" ".join(
            re.findall(r"typedef [^;]*?\(\*attn_\w+\)\(([^;]*)\);", code))))
        used = re.findall(r"`(\w+)`|(?<![\w.>-])\*([a-z]\w*)|\b([a-z]+(?:_[a-z0-9]+)+)\b",
                          re.sub(r"\s*\n \* ?", " ", " ".join(comment.findall(part)))) if names else []
        found += [f"the comment on {names[0]} has {word}, which is no parameter there and no field" for word in
                  sorted({"".join(u) for u in used} - mine - known) if not OTHERS.fullmatch(word)]
    return found


def settings() -> "list[str]":
    struct = re.search(r"struct attn_sampler_desc \{(.*?)\}", header, re.S)
    fields = [name for name in re.findall(r"\b(\w+)(?:\[\w+\])?[;,]", struct[1] if struct else "")
              if name not in ("reserved", "unused")]
    missing = {name: [place for place in SETTINGS if not re.search(r"\b%s\b" % name.replace("_", "[_-]?"),
                                                                  (root / place).read_text(), re.I)] for name in fields}
    reused = re.search(r"attn__run_sampler\(.*?^\}", whole, re.S | re.M)
    found = [f"the setting {name} of attn_sampler_desc is not in {', '.join(of)}" for name, of in missing.items() if of]
    found += [f"attn__run_sampler takes {name} beside reuse_sampler, where it would do nothing; refuse it there"
              for name in fields if not re.search(rf"\bd->{name}\b", reused[0] if reused else "")]
    return found if len(fields) > 6 else ["the fields of attn_sampler_desc were not found"]


def settings_of_questions() -> "list[str]":
    """Places of a setting that were forgotten, in the three programs that callers ask."""
    found = []
    program = (root / "tools/common/program.h").read_text()
    spelt = set(re.findall(r'\{"(\w+)", "\w+"\}', re.search(r"face_names\[\]\[2\] = \{(.*?)\};", program, re.S)[1]))
    most = int(re.search(r"MOST_OPTIONS = (\d+)", program)[1])
    for path in ("lens/program/help.h", "surprisal/settings.h", "score/settings.h"):
        table = comment.sub("", (root / "tools" / path).read_text())
        name = re.search(r"struct option (\w+)_settings\[\]", table)[1]
        code = comment.sub("", "".join(f.read_text() for f in sorted((root / "tools" / path).parent.glob("*.[ch]"))))
        struct = re.search(r"typedef struct %s_options \{(.*?)\} %s_options;" % (name, name), code, re.S)[1]
        members = set(re.findall(r"(\w+)\s*[,;]", struct))
        rows = re.findall(r"\{(?:0|'.'),\s*\"([\w-]+)\",[^{}]*?\b(?:AT|SETTING)\((?:[^(),]*,\s*)?(\w+)\)", table)
        found += [f"the member {m} of {name}_options has no row in {name}_settings (tools/{path})"
                  for m in sorted(members - {m for _, m in rows} - {"model"})]  # a word of the command line
        for option, m in dict(rows).items():
            if m not in members:
                found.append(f"--{option} fills the member {m}, which {name}_options does not have")
            elif not re.search(r"\bo(?:->|\.)%s\b(?!\s*=[^=])" % m, code):
                found.append(f"--{option} fills the member {m} of {name}_options, which nothing in tools/{path.split('/')[0]} reads")
            if re.sub("^no-", "", option) in KEYWORDS - spelt:
                found.append(f"--{option} is a word of Python, JavaScript, R or Lua: add to face_names of "
                             "tools/common/program.h how they spell it")
        if not 10 < len(rows) <= most - 3:
            found.append(f"{len(rows)} rows were found in {name}_settings; MOST_OPTIONS of program.h is {most}")
    return found


def calls() -> str:
    found = []
    for path in sorted(p for place in ("tools", "examples") for p in (root / place).rglob("*")):
        if path.suffix in (".c", ".h", ".cpp", ".hpp"):
            found.append(comment.sub("", path.read_text()))
        elif path.suffix in (".py", ".lua"):
            found.append(path.read_text())
        elif path.suffix == ".md":
            found += re.findall(r"^```c\n(.*?)^```", path.read_text(), re.S | re.M)
    return "\n".join(found)


called = set(re.findall(r"\battn_\w+", calls()))
problems = [f"{name} has {len(parameters(of))} parameters; at most six" for name, of in functions
            if len(parameters(of)) > 6]
problems += [f"{name} is called by no program and no binding" for name, _ in functions
             if name not in called]
problems += misnamed() + settings() + settings_of_questions()
names = set(re.findall(r"\b(?:attn|ATTN)__?[A-Za-z]\w*", whole))
problems += [f"{name} differs from a public name by an underscore alone" for name in sorted(names)
             if "__" in name[:6] and name.replace("__", "_", 1) in names]
promised = re.findall(r"\battn_\w+", text[text.index("The structs of the API"):text.index("attn_ctx keeps all its")])
structs = re.findall(r"^\} (attn_\w+);", header, re.M)
enums = re.findall(r"^typedef enum (attn_\w+)", header, re.M)
problems += [f"{name} stands {promised.count(name)} times in >>changes' list of structs; expected once"
             for name in sorted({*structs, *promised} - {*enums}) if promised.count(name) != 1 or name not in structs]
if n_lines() > LINES:
    problems.append(f"attn.h has {n_lines()} lines of code; at most {LINES} (tests/api.py). Put what can stand in a "
                    "header of tools/ there, or take as many lines out")
if len(functions) < 100:
    problems.append(f"only {len(functions)} declarations were found in attn.h")
print("\n".join(problems) or f"{len(functions)} functions, {n_lines()} lines of code: within the rules of attn.h")
sys.exit(bool(problems))

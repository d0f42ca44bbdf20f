#!/usr/bin/env python3
"""What the pages name must exist: tests/pages.py [DIRECTORY]

Looks at each *.md for links to files and to headings, names of functions and macros, marks of attn.h (>>ops),
make's targets, and the suites of the tests; the README's commands for the compiler are the manual's, and its links
reach what people look for. Each command of lens has a page of help, a place in tools/lens/README.md and a test.
Prints what does not exist, and then fails."""
import fnmatch
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
files = [f for f in sorted(root.rglob("*")) if f.is_file() and f.relative_to(root).parts[0] != "build"
         and not any(part.startswith(".") for part in f.relative_to(root).parts)]
pages = {f: f.read_text() for f in files if f.suffix == ".md"}
rules = "\n".join(f.read_text() for f in files if f.name == "Makefile" or f.suffix == ".mk")
header = (root / "attn.h").read_text()
marks = set(re.findall(r"^(?:/\* )?(>>[a-z0-9-]+) [(=]", header, re.M))
header = header[:header.index(">>changes =")]  # what follows has the names of older versions
sources = [f.read_text() for f in files if f.name != "attn.h" and f.suffix in
           (".c", ".h", ".hpp", ".js", ".lua", ".mk", ".py", ".sh", ".txt")]
words = set(re.findall(r"\w+", "\n".join([header, rules, *sources])))
targets = set(re.findall(r"^([a-z][\w-]*):", rules, re.M))


def anchors(text: str) -> "set[str]":
    """What follows # in a link to each heading, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", h)).strip().lower().replace(" ", "-")
            for h in headings}


def without_mark(text: str) -> "list[str]":
    return [f"attn.h has no mark {mark}" for mark in re.findall(r">>[a-z][a-z0-9-]*", text)
            if not re.search(rf"^/\* {mark} [(=]", header, re.M)]


def wrong(page: pathlib.Path, text: str) -> "list[str]":
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page.resolve()
        if re.match(r"\w+:", target):
            continue
        if not linked.exists():
            found.append(f"a link to {target}, which is not there")
        elif anchor and anchor not in anchors(linked.read_text()):
            found.append(f"a link to {target}, where no heading is called so")
    found += [f"{name} is not in the sources" for name in re.findall(r"\b(?:attn|lens|ATTN|LENS)_\w+", text)
              if name not in words and not (name[-1] == "_" and any(w.startswith(name) for w in words))]
    found += [f"attn.h has no mark {mark}" for mark in re.findall(r">>[a-z][a-z0-9-]*", text)
              if mark not in marks]
    found += [f"make has no target {name}" for names in
              re.findall(r"(?:^|`|&& )make((?: [a-z][a-z0-9-]*)+)(?=[ `\n)])", text, re.M)
              for name in names.split() if name not in targets]
    found += [f"no suite is named {name}" for names in re.findall(r"SUITES=\"?([\w/ -]+)", text)
              for name in names.split() if not (root / "tests/suites" / name.split("/")[0]).is_dir()]
    if page == root / "README.md":
        found += [f"the manual in attn.h does not have `{line}`" for line in re.findall(r"^cc .*", text, re.M)
                  if f" {line}\n" not in header]
    return [f"{page.relative_to(root)}: {what}" for what in found]


def licences() -> "list[str]":
    """Each pattern of the table of licences has files, and what was made from others' things has a pattern."""
    table = root / "tools/packaging/debian/copyright"
    patterns = " ".join(re.findall(r"^Files: (.*)", table.read_text(), re.M)).split()
    names = [f.relative_to(root).as_posix() for f in files]
    made = [n for n in names if pathlib.Path(n).suffix in (".safetensors", ".bin", ".gguf", ".npz", ".pt", ".jsonl", ".ipynb")]
    return [f"{table.relative_to(root)}: no file is called {p}" for p in patterns
            if not any(fnmatch.fnmatch(n, p) for n in names)] + [
            f"{table.relative_to(root)}: {n} is in no stanza of its own" for n in made
            if not any(fnmatch.fnmatch(n, p) for p in patterns if p != "*")]


# What people look for, as the README calls it, and what stands in a file that the README links in the same place.
TOPICS = {"Many texts": "JSON lines", "a server": "Behind HTTP", "Embed": "attn_generate", "frame loop": "attn_generator_step",
          "install": "make install", "threads": "THREADS", "Speed": "tokens per second", "Licences": "License: MIT",
          "security": "security contact", ">>changes": "VERSIONS", "Python": "pip install", "help": "No such file"}


def topics() -> "list[str]":
    """A paragraph or an item of the README that has the word, with a link to a file that has the other one."""
    parts = re.split(r"\n\n|\n(?=- )", (root / "README.md").read_text())
    links = {part: re.findall(r"\]\(([^)#\s]+)", part) for part in parts}
    return [f"README.md: nothing on \"{topic}\" that links to a file with \"{word}\"" for topic, word in TOPICS.items()
            if not any(topic in part and any((root / link).is_file() and word in (root / link).read_text()
                                             for link in links[part]) for part in parts)]


def commands() -> "list[str]":
    lens = root / "tools/lens"
    rows = re.findall(r"^ *X\(\w+, \"([\w-]+)\", \"[\w ]*\", run_\w+, \w+\)", (lens / "program/run.h").read_text(), re.M)
    tested = "\n".join(f.read_text() for f in files if f.parent == root / "tests/suites/lens-tool")
    places = {"page in tools/lens/program/help.h": ('{"%s", ', (lens / "program/help.h").read_text()),
              "columns in tools/lens/program/columns.h": ('{"%s",\\s', (lens / "program/columns.h").read_text()),
              "row in tools/lens/README.md": ("`%s`", pages[lens / "README.md"]),
              "test in tests/suites/lens-tool": ('LENS [A-Z_ ]*"%s ', tested)}
    found = [f"lens {name} has no {place}" for name in rows for place, (pattern, text) in places.items()
             if not re.search(pattern % name, text)]
    return found + ([] if len(rows) > 15 else ["the commands of lens were not found in run.h"])


def hidden() -> "list[str]":
    """Programs whose names a suite makes up: `make test SUITES=it` builds what stands in its files."""
    return [f"{f.relative_to(root)}: make cannot see which program TEST_BUILD \"/%s\" is: write its name" for f in files
            if f.parent.parent.name == "suites" and f.parent.name not in ("pages", "tools", "notebooks")
            and 'BUILD "/%' in f.read_text(errors="ignore")]


in_header = set(re.findall(r"\w+", header))
notebooks = {f.relative_to(root): "\n".join(re.findall(r"^ \* .*", f.read_text(), re.M)) for f in files
             if f.parent.name == "from_scratch" and f.suffix == ".c"}
problems = [f"{f}: {what}" for f, text in notebooks.items() for what in without_mark(text) +
            [f"{name} is not in attn.h" for name in re.findall(r"\battn_\w+", text) if name not in in_header]]
problems += licences() + topics() + commands() + hidden()
problems += [line for page, text in pages.items() for line in wrong(page.resolve(), text)]
print("\n".join(problems) or f"{len(pages)} pages: what they name is there")
sys.exit(bool(problems))

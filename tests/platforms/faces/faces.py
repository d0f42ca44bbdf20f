#!/usr/bin/env python3
"""Surprisal by the program, the Python package, the R package and the page's module: the same bytes and notes for random
files with random options, and the same files refused with the same sentences.

    python3 tests/platforms/faces/faces.py BUILD [CASES [SEED]]

Suites, which have functions of their own in Python and R, are those of tests/fixtures/surprisal.
The options are those of the table in tools/surprisal/README.md, as each face spells them there. BUILD has surprisal, libattn.so
and tiny-stories.attn. R needs the package attn, and Node needs `make web`; a face that is not here is skipped."""
import csv
import io
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORDS = ("Once upon a time there was little girl named Lily. She loved to play, outside! \"Oh no,\" said Tom's mom. caf\u00e9 na\u00efve "
         "don't well-known 3.5% (he) \u2014 \u201cquoted\u201d \U0001f600 na\u00efve\u0301 the horse raced past barn fell. NA TRUE 1e5 -1.5 =1+1").split()
RARE = ["\u00a0", "a\u202fb", "gar\u00adden", "\u3000x", "\u732b\u5750\u5728\u57ab\u5b50\u4e0a", "x\u200by", "\ufeffq", "<|endoftext|>", "\x7f"]
NAMES = ["text", "word", "index", "input_text", "topic", "top1", "top2_probability", "prev1_surprisal", "renyi", "rank", "region", "token", "note", "note", "rt", "a b",
         "x, y", "", "\u00fcber", "n" * 250]


def options_of_readme():
    """The options: for each its words in the program, and its spelling by face."""
    text = (ROOT / "tools/surprisal/README.md").read_text(encoding="utf-8")
    found = {}
    for line in text.splitlines():
        cells = [re.sub("^`|`$", "", cell.strip()) for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.match("--[a-z]", cells[1]):
            python, js = (cells[2].replace("TRUE", yes).replace("FALSE", no) for yes, no in (("True", "False"), ("true", "false")))
            found[cells[1].split()[0]] = {"program": cells[1], "R": cells[2], "Python": python, "attn.js": js.replace("=", ": ", 1)}
    return found


def spelled(option, face, value):
    """An option of the table with another value than the table's."""
    program, cell = option["program"].split(), option[face]
    if len(program) == 1:
        return cell
    if face == "program":
        return [program[0], str(value)]
    sample = program[1]
    old, new = (sample, str(value)) if isinstance(value, (int, float)) else (f'"{sample}"', json.dumps(value, ensure_ascii=False))
    assert cell.endswith(old), cell
    return cell[:-len(old)] + new


class Case:
    def __init__(self, rng, number, options):
        self.rng = rng
        self.is_table = rng.random() < 0.5
        self.mark = rng.choice(["_", "|", "__", "~"])
        self.also = random.Random(number)  # beside rng, whose files stay those that were chosen for their time
        self.chosen = {"--special": True} if self.also.random() < 0.3 else {}
        if self.also.random() < 0.2:
            self.chosen["--context"] = self.also.choice(["1", "4", "3w", "300w", "w", "0"])
        columns = []
        if self.is_table:
            columns = rng.sample(NAMES, rng.randint(1, 5)) + ["sentence"]
            rng.shuffle(columns)
            self.chosen["--column"] = "sentence"
            if self.also.random() < 0.3:
                self.chosen["--text-column"] = "story"
            if rng.random() < 0.4:
                columns.append("regions of it")
                self.chosen["--region-names"] = "regions of it"
        for option, p, values in (("--regions", 0.3, [self.mark]), ("--unit", 0.3, ["bits", "nats"]), ("--punctuation", 0.3, ["apart", "word"]),
                                  ("--continue", 0.2, [True]), ("--rank", 0.4, [True]), ("--top", 0.4, [1, 2, 2, 5, 5, 1001]), ("--no-bos", 0.2, [True]),
                                  ("--stride", 0.3, [1, 50, 200, 254, 255]), ("--entropy-reduction", 0.3, [True]), ("--layers", 0.3, ["all", "0", "3,1", "0,4", "-1"]), ("--tuned", 0.2, ["lens.safetensors"]),
                                  ("--renyi", 0.3, [0.5, 0.1, 1, 2.7, 100, 0.999]), ("--spillover", 0.3, [1, 2, 5, 101])):
            if rng.random() < p:
                self.chosen[option] = rng.choice(values)
        if rng.random() < 0.6:
            has_regions = "--regions" in self.chosen or "--region-names" in self.chosen
            self.chosen["--by"] = rng.choice(["word", "token", "region"] if has_regions or rng.random() < 0.1 else ["word", "token"])
        if rng.random() < 0.9 and "--layers" not in self.chosen:
            self.chosen.pop("--tuned", None)  # it is refused
        assert set(self.chosen) <= set(options), "an option is not in the table"
        self.name = f"{number:04}.{'csv' if self.is_table else 'txt'}"
        self.bytes = self.table(columns) if self.is_table else "".join(self.text() + "\n" for _ in range(rng.randint(0, 5))).encode() + b"The end\n"
        self.bytes = self.bytes.replace("\ue000".encode(), b"\xe9")
        if self.also.random() < 0.3:
            self.bytes = self.bytes.replace(b" the", b" <|endoftext|>the", 1)

    def text(self, separators=(" ",)):
        """A text of some words, seldom longer than the context."""
        rng = self.rng
        n = 300 if rng.random() < 0.02 else rng.choice([0, 1, 2, 5, 10, 15])
        pieces = []
        for _ in range(n):
            pieces.append("caf\ue000" if rng.random() < 0.001 else rng.choice(RARE if rng.random() < 0.01 else WORDS))
            pieces.append(rng.choice(["  ", "\t", " " + self.mark, self.mark + " "]) if rng.random() < 0.02 else
                          self.mark if rng.random() < 0.1 else rng.choice(separators))
        return "".join(pieces[:-1])

    def table(self, columns):
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator=self.rng.choice(["\n", "\r\n"]), delimiter=self.rng.choice(",,;\t"))
        story = lambda: [self.also.choice(["1", "2"])] if "--text-column" in self.chosen else []  # noqa: E731
        writer.writerow(["story"][:len(story())] + columns)
        for number in range(self.rng.randint(1, 6)):
            row = [self.rng.choice(WORDS + ["", " x ", 'a "b", c', "two\nlines"]) for _ in columns]
            text = row[columns.index("sentence")] = self.text((" ", " ", " ", " ", "\n"))
            if number == 0 and not text.strip():
                text = row[columns.index("sentence")] = "The end"  # a table without words is for the program alone to refuse
            if "--region-names" in self.chosen:
                by_mark = "--regions" in self.chosen
                words = [word for word in re.split("[ \t\n]+", text) if word.replace(self.mark if by_mark else "", "")]
                row[-1] = " ".join(self.rng.choice(["np", "vp", "\u00fc"]) for _ in words) + " np" * (self.rng.random() < 0.02)
            writer.writerow(story() + row)
        return file.getvalue().encode()


def csv_field(text):
    return '"' + text.replace('"', '""') + '"' if text and (set(text) & set(',"\r\n') or text[0] == " " or text[-1] == " ") else text


def digits(value):
    if value is None or value != value:
        return "NA"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def write_lens(path, n_layer=4, width=192):
    """A tuned lens for the tiny model, of small numbers."""
    numbers = {f"{i}.{name}": n for i in range(n_layer) for name, n in (("weight", width * width), ("bias", width))}
    header, at = {}, 0
    for name, n in numbers.items():
        header[name] = {"dtype": "F32", "shape": [width] * (1 + (n > width)), "data_offsets": [at, at + 4 * n]}
        at += 4 * n
    text = json.dumps(header).encode()
    data = struct.pack(f"<{at // 4}f", *((i * 7 % 31 - 15) / 1024 for i in range(at // 4)))
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def by_program(build, directory, cases, options):
    for case in cases:
        words = [word for key, value in case.chosen.items() for word in
                 (spelled(options[key], "program", value) if not isinstance(value, bool) else [spelled(options[key], "program", value)])]
        done = subprocess.run([build / "surprisal", build / "tiny-stories.attn", case.name, *words], cwd=directory, capture_output=True)
        said = [line[len("surprisal: "):] for line in done.stderr.decode().splitlines()]
        if done.returncode:  # options as the other faces spell them
            said = [re.sub("--([a-z-]+)", lambda option: option[1].replace("-", "_").replace("continue", "continues"), said[0])
                    .replace(f"{build}/tiny-stories.attn", "the model")]
        yield done.stdout if done.returncode == 0 else None, said


class Frame:
    """A table as other packages have it."""

    def __init__(self, records):
        self.columns, self.records = records[0], records[1:]
        self.iloc = self

    def __getitem__(self, at):
        return [record[at[1]] for record in self.records]


def by_python(build, directory, cases, options):
    os.environ["ATTN_LIBRARY"] = str(build / "libattn.so")
    sys.path.insert(0, str(ROOT / "examples/python"))
    import attn
    model = attn.Model(build / "tiny-stories.attn")
    for case in cases:
        text = case.bytes.decode("utf-8", "surrogateescape")
        chosen = eval(f"dict({', '.join(spelled(options[key], 'Python', value) for key, value in case.chosen.items())})")
        if case.is_table:
            delimiter = max(",;\t", key=lambda one: len(next(csv.reader(io.StringIO(text), delimiter=one))))
            texts = Frame([record for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if record])
        else:
            texts = text[:-1].split("\n") if text.endswith("\n") else text.split("\n")
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            try:
                got = model.surprisal(texts, **chosen)
            except (attn.Error, ValueError) as error:
                yield None, [str(error)]
                continue
        yield rows_of_python(got), [str(note.message) for note in notes]


SUITES = [(name, more) for name, own in (("agreement.json", {}), ("reflexives.json", {}), ("pairs.jsonl", {}),
                                         ("pairs.csv", {"pair": "a,b", "group": "g"}), ("wrong.json", {}), ("pairs.csv", {"pair": "a"}))
          for each in ({}, {"by": "region"}) for corrected in ({}, {"corrected": True}) for more in ({**own, **each, **corrected},)]


def write_suites(directory):
    for name in ("agreement.json", "reflexives.json", "pairs.jsonl"):
        shutil.copy(ROOT / "tests/fixtures/surprisal" / name, directory)
    (directory / "pairs.csv").write_text('g;a;b\n1;"The dog; was big.";The dog were big.\n\u00fc;;x\n1;a  cat;a cat\n', encoding="utf-8")
    (directory / "wrong.json").write_text((directory / "reflexives.json").read_text().replace(";%match%", ";%q%"))


def rows_of_python(got):
    lines = [",".join(csv_field(name) for name in got)]
    lines += [",".join(csv_field(value) if isinstance(value, str) else digits(value) for value in row) for row in zip(*got.values())]
    return "".join(line + "\n" for line in lines).encode()


def suites_by_program(build, directory):
    for name, options in SUITES:
        words = [word for key, value in options.items() for word in ([f"--{key}"] if value is True else [f"--{key}", value])]
        done = subprocess.run([build / "surprisal", build / "tiny-stories.attn", name, "--suite", *words], capture_output=True)
        yield done.stdout if done.returncode == 0 else None, [line[len("surprisal: "):].removeprefix("--") for line in done.stderr.decode().splitlines()]


def suites_by_python(build, directory):
    import attn
    model = attn.Model(build / "tiny-stories.attn")
    for name, options in SUITES:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            try:
                yield rows_of_python(model.suite(name, **options)), [str(note.message) for note in notes]
            except (attn.Error, ValueError) as error:
                yield None, [str(error)]


def suites_by_r(build, directory):
    calls = [f"answer_suite({i}, {json.dumps(name)}{''.join(f', {key} = {json.dumps(value).upper() if value is True else json.dumps(value)}' for key, value in options.items())})\n"
             for i, (name, options) in enumerate(SUITES)]
    (directory / "calls.R").write_text("".join(calls), encoding="utf-8")
    subprocess.run(["Rscript", "--vanilla", HERE / "faces.R", build / "tiny-stories.attn"], check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    yield from answers(directory, [types.SimpleNamespace(name=i) for i in range(len(SUITES))], "r")


def suites_by_node(build, directory):
    calls = [[name, {"suite": True, **options}, f"{i}"] for i, (name, options) in enumerate(SUITES)]
    (directory / "calls.mjs").write_text(f"export const calls = {json.dumps(calls)};\n", encoding="utf-8")
    subprocess.run(["node", HERE / "faces.mjs", build, directory], check=True)
    yield from answers(directory, [types.SimpleNamespace(name=i) for i in range(len(SUITES))], "js")


def answers(directory, cases, suffix):
    """What a script wrote for each case: FILE.SUFFIX with rows, and FILE.SUFFIX.said."""
    for case in cases:
        rows, said = (directory / f"{case.name}.{suffix}{more}" for more in ("", ".said"))
        yield rows.read_bytes() if rows.exists() else None, said.read_text(encoding="utf-8").splitlines() if said.exists() else []


def by_r(build, directory, cases, options):
    calls = []
    for case in cases:
        words = [spelled(options[key], "R", value) for key, value in case.chosen.items()]
        calls.append(f"answer({', '.join([json.dumps(case.name), *words])})\n")
    (directory / "calls.R").write_text("".join(calls), encoding="utf-8")
    subprocess.run(["Rscript", "--vanilla", HERE / "faces.R", build / "tiny-stories.attn"], cwd=directory, check=True,
                   env={**os.environ, "LC_ALL": "C.UTF-8"})
    yield from answers(directory, cases, "r")


def by_node(build, directory, cases, options):
    calls = ", ".join(f"[{json.dumps(case.name)}, {{ {', '.join(spelled(options[key], 'attn.js', value) for key, value in case.chosen.items())} }}]"
                      for case in cases)
    (directory / "calls.mjs").write_text(f"export const calls = [{calls}];\n", encoding="utf-8")
    subprocess.run(["node", HERE / "faces.mjs", build, directory], check=True)
    yield from answers(directory, cases, "js")


def missing(face, build):
    """Why a face cannot be asked; None: it can."""
    if face == "R" and not shutil.which("Rscript"):
        return "there is no R"
    if face == "R" and subprocess.run(["Rscript", "-e", "library(attn)"], capture_output=True).returncode:
        return "R has no package attn (make r-package)"
    if face == "attn.js" and not shutil.which("node"):
        return "there is no node"
    return "make web has not made it" if face == "attn.js" and not (build / "attn-simd.wasm").exists() else None


def agree(face, rows, notes, got, said):
    """Of texts that all have no words a function gives no rows, with a note. The program and the page refuse such a file."""
    if face in ("Python", "R") and notes and notes[-1].endswith("has no words, of which there could be rows"):
        return len((got or b"").splitlines()) <= 1 and any("have no words, and so no rows" in note for note in said)
    return rows == got and (notes == said or rows is None and "is not UTF-8" in said[0])  # each has its own remedy


def main(build, n_cases="40", seed="1"):
    os.environ["R_LIBS"] = os.pathsep.join([os.path.abspath(f"{build}/r/library"), os.environ.get("R_LIBS", "")])  # of make r-package
    build, rng, options = pathlib.Path(build).resolve(), random.Random(int(seed)), options_of_readme()
    passed = failed = skipped = refused = noted = 0
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        os.chdir(directory)
        write_lens(directory / "lens.safetensors")
        cases = [Case(rng, number, options) for number in range(int(n_cases))]
        for case in cases:
            (directory / case.name).write_bytes(case.bytes)
        wanted = list(by_program(build, directory, cases, options))
        write_suites(directory)
        suites = list(suites_by_program(build, directory))
        for face, ask, ask_suites in (("Python", by_python, suites_by_python), ("R", by_r, suites_by_r), ("attn.js", by_node, suites_by_node)):
            reason = missing(face, build)
            if reason:
                print(f"skipped: surprisal by {face}: {reason}")
                skipped += 1
                continue
            for case, (rows, notes), (got, said) in zip(cases, wanted, ask(build, directory, cases, options)):
                refused += rows is None
                noted += bool(notes)
                if agree(face, rows, notes, got, said):
                    passed += 1
                    continue
                failed += 1
                print(f"FAILED: {face}, {case.name} of seed {seed}, {case.chosen}: {said}, and the program {notes}")
                pairs = zip((rows or b"").splitlines(), (got or b"").splitlines())
                print("\n".join(f"    program {a!r}\n    {face} {b!r}" for a, b in [pair for pair in pairs if pair[0] != pair[1]][:2]))
            for (name, more), (rows, notes), (got, said) in zip(SUITES, suites, ask_suites(build, directory)):
                same = rows == got and notes == said
                passed, failed = passed + same, failed + (not same)
                if not same:
                    print(f"FAILED: {face}, {name} {more}: {said}, {got!r}, and the program {notes}, {rows!r}")
    used = {key for case in cases for key in case.chosen}
    if used != set(options) and int(n_cases) >= 40:
        failed += 1
        print(f"FAILED: options that no file had: {set(options) - used}")
    print(f"{len(options)} options, {noted} answers with notes, {refused} refusals")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

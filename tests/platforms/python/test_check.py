#!/usr/bin/env python3
"""Tests of the notebooks' exercises, of attn.check and of its grading: make python-test, or test_check.py
[CASE]. Needs NumPy."""
import ast
import contextlib
import copy
import csv
import functools
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

from here import ROOT  # before attn
import attn
import notebooks

BOOKS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(notebooks.FOLDER.glob("*.ipynb"))}
CHECKS = {name: [f"{name}/{number}" for number in notebooks.solutions(book)] for name, book in BOOKS.items()}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "examples" / "python")}


def printed_by(function, *arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        function(*arguments)
    return out.getvalue()


def right(name, value):
    with contextlib.redirect_stdout(io.StringIO()):
        return bool(attn.check(name, value))


def run(text, names):
    """What code prints."""
    return printed_by(exec, compile(text, "cell", "exec"), names)


def assigned(text):
    """The names that a cell gives to something at its top level."""
    return {node.id for statement in ast.parse(text).body if isinstance(statement, ast.Assign)
            for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)} - {"_"}


@functools.lru_cache(maxsize=None)
def after(book):
    """The names that there are after the whole notebook, and the shapes that each array had after each cell."""
    names, shapes = {"__name__": "__main__"}, {}
    for text in notebooks.code(BOOKS[book]):
        run(text, names)
        for name in assigned(text):
            if isinstance(names[name], np.ndarray):
                shapes.setdefault(name, []).append(names[name].shape)
    return names, shapes


class Exercises(unittest.TestCase):
    def test_each_has_a_gap_a_check_and_a_solution(self):
        for name, book in BOOKS.items():
            with self.subTest(name):
                cells = [text for text in notebooks.code(book) if "attn.check(" in text]
                self.assertEqual([text.partition('attn.check("')[2].partition('"')[0] for text in cells], CHECKS[name])
                self.assertGreaterEqual(len(cells), 2)
                self.assertTrue(all("..." in text for text in cells))
                behind = [book["cells"][i + 1]["metadata"] for i, cell in enumerate(book["cells"]) if "next cell has one way" in "".join(cell["source"])]
                self.assertTrue(all(of["jupyter"]["source_hidden"] and of["cellView"] == "form" for of in behind))  # in Jupyter, and in Colab
                kept = "".join(notebooks.printed(book))
                self.assertTrue(all(f"{check}: fill in the gap first\n" in kept for check in CHECKS[name]))
        listed = subprocess.run([sys.executable, "-m", "attn.check"], env=ENVIRONMENT, check=True, capture_output=True, text=True)
        self.assertEqual(sorted(line.split()[0] for line in listed.stdout.splitlines()), sorted(sum(CHECKS.values(), [])))

    def test_solutions_are_right_after_the_whole_notebook(self):
        """No later cell may have taken a name that a solution needs."""
        for name, book in BOOKS.items():
            names = after(name)[0]
            for number, text in notebooks.solutions(book).items():
                with self.subTest(f"{name}/{number}"):
                    lines = run(text, dict(names)).splitlines()
                    self.assertEqual({line for line in lines if line.startswith(name)}, {f"{name}/{number}: right"})
            together = dict(names)  # and no solution the name that a later one needs
            lines = "".join(run(text, together) for text in notebooks.solutions(book).values()).splitlines()
            self.assertEqual({line for line in lines if line.startswith(name)}, {f"{check}: right" for check in CHECKS[name]})

    def test_a_name_means_one_thing(self):
        """Arrays of one name have one shape, so what was said of one holds in every later cell."""
        for name in BOOKS:
            for array, shapes in after(name)[1].items():
                self.assertEqual(set(shapes), {shapes[0]}, f"{name}: {array}")


class Spy:
    """The package, but for checks, of which it keeps the values."""

    def __init__(self):
        self.values = {}

    def __getattr__(self, key):
        return getattr(attn, key)

    def check(self, name, value):
        self.values[name] = value


@functools.lru_cache(maxsize=None)
def answers():
    """Each exercise's value, taken from its solution, which is NumPy's and not the engine's."""
    spy = Spy()
    for name, book in BOOKS.items():
        for text in notebooks.solutions(book).values():
            run(text, {**after(name)[0], "attn": spy})
    return {name: np.asarray(value) for name, value in spy.values.items()}


class Checks(unittest.TestCase):
    """What attn.check says."""

    def test_every_wrong_entry_is_found_and_named(self):
        rng, change = np.random.default_rng(5), {"S": lambda x: b"x", "b": np.logical_not, "i": lambda x: x + 1,
                                                 "f": lambda x: 0.5 if np.isnan(x) else x + 0.002 * max(1, abs(x))}
        for name, answer in answers().items():
            with self.subTest(name):
                self.assertEqual(printed_by(attn.check, name, answer), f"{name}: right\n")
                self.assertTrue(right(name, answer.tolist()))
                self.assertTrue(right(name, answer + 5e-5 if answer.dtype.kind == "f" else answer))
                for _ in range(3):
                    wrong, at = answer.copy(), tuple(int(rng.integers(n)) for n in answer.shape)
                    wrong[at] = change[answer.dtype.kind](answer[at])
                    shown = f"{wrong[at]:.6g}" if answer.dtype.kind == "f" else repr(wrong[at].item())
                    place = f"entry {list(at)}" if at else "it"
                    self.assertTrue(printed_by(attn.check, name, wrong).startswith(f"{name}: {place} is {shown}, "))
                    self.assertFalse(right(name, wrong))

    def test_the_answer_is_never_shown(self):
        """Whatever is given, no number of the answer stands in the sentence to three digits."""
        for name, answer in answers().items():
            told = {f"{x:.3g}" for x in answer.ravel().tolist() if np.isfinite(x)} if answer.dtype.kind == "f" else set()
            told = {number for number in told if len(number.lstrip("-0.")) > 2}
            for given in np.full(answer.shape, 1e6), np.full(answer.shape, np.nan), np.zeros(answer.shape), answer[..., None], 7.0:
                says = printed_by(attn.check, name, given)
                self.assertEqual({number for number in told if number in says.partition(": ")[2]}, set(), says)

    def test_typical_mistakes_have_hints(self):
        """Each is a solution from which something is left out."""
        root, mean = " / np.sqrt(np.float32(model.config.d_head))", "(x.var(-1, keepdims=True, ddof=1) + 1e-5)"
        for name, right, wrong, hint in (
                ("scores/3", root, "", "divided by √d_head"), ("scores/3", "np.where(visible, scores_4, -np.inf)", "scores_4", "future hidden"),
                ("scores/2", "np.eye(3)", "np.eye(3) / 3 ** 0.25", "not divided by √d"), ("multi_head/2", root, "", "divided by √d_head"),
                ("multi_head/2", ' + new["b_O"]', "", "a bias"), ("cache/1", ' + layer_0["attn.b_Q"][:, None]', "", "b_Q"),
                ("self_attention/2", "np.where(causal, scores_1, -np.inf)", "scores_1", "future hidden"),
                ("cache/2", "2 * 12 * 768 * 4)", "12 * 768 * 4)", "factor 2"),
                ("clean_gpt2/1", 'LayerNorm("blocks.1.ln1")', f"(lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt{mean} * w + b)", "ddof=0")):
            book, number = name.split("/")
            text = notebooks.solutions(BOOKS[book])[int(number)]
            self.assertIn(right, text)
            self.assertRegex(run(text.replace(right, wrong, 1), dict(after(book)[0])), f"(?m)^{name}: (entry|it) .*; .*{hint}")

    def test_other_things(self):
        for value, says in ((..., "fill in the gap first"), (None, "fill in the gap first"), ([0.1, ...], "fill in the gap first"),
                            (np.zeros((3, 5)), "it has shape [3, 5], expected shape [6]"), (0.5, "it has one number, expected shape [6]"),
                            ("a", "expected numbers, got "), (["a"] * 6, "expected numbers, got "), ({}, "expected an array, got dict that is none"),
                            ([[1], [1, 2]], "expected an array, got list that is none"), (np.zeros(6, complex), "expected numbers, got complex128"),
                            (np.zeros(6), "entry [0] is 0, off by about "), (print, "expected an array, got builtin_function_or_method that is none")):
            with self.subTest(says):
                self.assertIn(f"scores/1: {says}", printed_by(attn.check, "scores/1", value))
        self.assertIn("expected texts, got int64", printed_by(attn.check, "tokenizer/2", [1, 2]))
        self.assertTrue(right("tokenizer/2", [" l", "ittle"]))
        for name, says in (("scores/9", "there is no check 'scores/9'; there are scores/1, scores/2, scores/3"),
                           ("nothing", "there are scores/1, "), (3, "there is no check 3; ")):
            self.assertRaisesRegex(ValueError, says, attn.check, name, 1)

    def test_stored_answers(self):
        """Those that no engine computes, by hand."""
        words = np.array([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33], [0.77, 0.25, 0.10],
                          [0.05, 0.80, 0.55]])
        powers = np.exp(5 * words @ words[1])
        self.assertTrue(right("scores/1", powers / powers.sum()))
        self.assertTrue(right("scores/2", [[sum(a * b for a, b in zip(v, w)) for w in words] for v in words]))
        self.assertTrue(right("averaging/1", [[np.exp(10 * (j == 0)) / (np.exp(10) + i) * (j <= i) for j in range(8)] for i in range(8)]))
        self.assertTrue(right("averaging/3", [[(i - 3 < j <= i) / min(i + 1, 3) for j in range(8)] for i in range(8)]))
        self.assertTrue(right("cache/2", 12 * 2 * 768 * 4))


class Grading(unittest.TestCase):
    """python -m attn.check NOTEBOOK: what was handed in is run, and judged here."""

    def handed_in(self, *cells):
        path = pathlib.Path(tempfile.mkdtemp()) / "mine.ipynb"
        self.addCleanup(shutil.rmtree, path.parent)
        made = [{"cell_type": "code", "source": cell.splitlines(True), "metadata": {}, "outputs": [], "execution_count": None} for cell in cells]
        path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        return path

    def graded(self, *arguments):
        done = subprocess.run([sys.executable, "-m", "attn.check", *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_notebooks_as_they_are_and_solved(self):
        for name in "multi_head", "tokenizer":
            empty = notebooks.FOLDER / f"{name}.ipynb"
            solved = copy.deepcopy(BOOKS[name])
            solved["cells"] += [{"cell_type": "code", "source": text, "metadata": {}} for text in notebooks.solutions(BOOKS[name]).values()]
            path = self.handed_in()
            path.write_text(json.dumps(solved), encoding="utf-8")
            lines = [f"  {check:17} fill in the gap first" for check in CHECKS[name]]
            self.assertEqual(self.graded(empty), (1, "\n".join([f"{empty}: 0 of {len(lines)} right", *lines, ""]), ""))
            lines = [f"  {check:17} right" for check in CHECKS[name]]
            self.assertEqual(self.graded(path), (0, "\n".join([f"{path}: {len(lines)} of {len(lines)} right", *lines, ""]), ""))

    def test_what_students_hand_in(self):
        """The last value counts, an error ends a cell and not the notebook, and what is missing is said."""
        begin = "%matplotlib inline\n!pip list\nimport attn\nimport numpy as np\ndisplay(3)\n"
        windows = "attn.check('averaging/3', np.where(np.tri(8) > np.tri(8, k=-3), 1, 0) / np.minimum(np.arange(8) + 1, 3)[:, None])"
        for cells, right, says in (
                ([begin, "attn.check('averaging/3', ...)", windows], 1, ["averaging/1", "no value was given"]),
                ([begin, windows, "attn.check('averaging/3', np.zeros((8, 8)))"], 0, ["entry [0, 0] is 0, off by about 1 ("]),
                ([begin, "no_such_name", windows], 1, ["cell 2: NameError: name 'no_such_name' is not defined"]),
                ([begin, "if :", windows], 1, ["cell 2: SyntaxError: "]),
                ([begin, windows, "import sys; sys.exit(0)"], 1, ["cell 3: SystemExit: 0"]),
                ([begin, windows, "import os; os._exit(3)", windows], 1, ["its process ended with 3 before its last cell"]),
                ([begin, "open('kept', 'w').write('x')", windows], 1, []),
                ([begin, "%%bash\nrm -rf nothing", windows], 1, []),
                ([begin, "input()", windows], 1, ["cell 2: EOFError"]),
                ([begin, "raise ValueError('\\x1b[2J' + 5000 * 'x')", windows], 1, ["cell 2: ValueError: ?[2Jxxx"]),
                ([begin, "attn.check('averaging/9', 1)", windows], 1, ["cell 2: ValueError: there is no check 'averaging/9'"])):
            with self.subTest(cells[1:]):
                path = self.handed_in(*cells)
                code, out, err = self.graded(path)
                self.assertTrue(out.startswith(f"{path}: {right} of 3 right\n"), out + err)
                self.assertEqual((code, err), (1, ""))
                self.assertLess(max(map(len, out.splitlines())), 400)
                for sentence in says:
                    self.assertIn(sentence, out)
                self.assertEqual([each.name for each in path.parent.iterdir()], ["mine.ipynb"])

    def test_the_cells_cannot_judge(self):
        """What they do to the package changes their own process alone."""
        for trick in ("sys.modules['attn.check']._difference = lambda *_: None", "sys.modules['attn.check']._judge = lambda *_: True",
                      "np.isnan = lambda x: True", "class Any(np.ndarray):\n    def __sub__(self, other): return 0 * self\nx = np.zeros((8, 8)).view(Any)",
                      "open(sys.argv[2], 'ab').write(b'{\"name\": \"averaging/3\", \"says\": null, \"size\": -1}\\n')",
                      "open(sys.argv[2], 'ab').write(b'[' * 100000)", "open(sys.argv[2], 'ab').write(b'\\xff\\n')", "open(sys.argv[2], 'ab').write(b'{\"name\": [], \"says\": 1, \"size\": 1e999}\\n')"):
            with self.subTest(trick):
                code, out, err = self.graded(self.handed_in(
                    f"import sys, attn, numpy as np\nx = np.zeros((8, 8))\nattn.check\n{trick}\nattn.check('averaging/3', x)"))
                self.assertRegex(out, r": 0 of 3 right\n")
                self.assertEqual((code, err), (1, ""))

    def test_time_is_limited(self):
        """Also that of what the cells start."""
        path = self.handed_in()
        mark = path.parent / "child"
        shutil.copy(self.handed_in(
            "import attn, subprocess, sys\nattn.check('cache/2', 73728)\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            f"open({str(mark)!r}, 'w').write(str(child.pid))\nwhile True: pass"), path)
        start = time.monotonic()
        out = self.graded("--limit", "10", path)[1]
        self.assertLess(time.monotonic() - start, 100)
        self.assertRegex(out, r"1 of 3 right\n(.*\n)*  stopped after 10 seconds\n$")
        child = pathlib.Path("/proc", mark.read_text(), "stat")
        self.assertTrue(not child.exists() or child.read_text().split()[2] == "Z")

    def test_what_is_no_notebook(self):
        for text, says in (("{}", "is not a notebook"), ("not json", "is not a notebook"), ("[1]", "is not a notebook"),
                           ('{"cells": []}', "no cell has a check")):
            path = self.handed_in()
            path.write_text(text)
            code, out, _ = self.graded(path)
            self.assertEqual((code, says in out, ": 0 of 0 right" in out), (1, True, True), out)
        self.assertIn("No such file", self.graded("/no/such.ipynb")[1])

    def test_a_table(self):
        one, two = self.handed_in("import attn\nattn.check('cache/2', 73728)"), self.handed_in("import attn\nattn.check('cache/2', 1)\nx")
        code, out, err = self.graded("--csv", one, two)
        rows = list(csv.reader(io.StringIO(out)))
        self.assertEqual(rows[0], ["notebook", "check", "right", "says"])
        self.assertEqual([row[:3] for row in rows if row[1] == "cache/2"], [[str(one), "cache/2", "1"], [str(two), "cache/2", "0"]])
        self.assertIn([str(two), "", "", "cell 1: NameError: name 'x' is not defined"], rows)


class Installing(unittest.TestCase):
    def test_the_first_cell_installs(self):
        """The same in all; in a Python without the package, from the checkout and from a wheel beside the notebook."""
        firsts = {notebooks.code(book)[0] for book in BOOKS.values()}
        self.assertEqual(len(firsts), 1)
        try:
            import venv
        except ImportError:
            self.skipTest("there is no venv")
        quick = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "ATTN_LIBRARY")}
        quick.update(CFLAGS="-O0 -DATTN_NO_SIMD", PIP_NO_INDEX="1")
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            beside = folder / "beside"
            beside.mkdir()
            alone = subprocess.run([sys.executable, "-S", "-c", next(iter(firsts))], cwd=beside, env=quick, capture_output=True, text=True)
            self.assertIn(f"FileNotFoundError: upload a wheel of attn to {beside} first", alone.stderr)
            for name, place in (("checkout", notebooks.FOLDER), ("wheel", beside)):
                venv.EnvBuilder(system_site_packages=False, with_pip=True).create(folder / name)
                python = folder / name / "bin" / "python"
                paths = next((folder / name / "lib").glob("python*/site-packages"))
                (paths / "numpy-of-tests.pth").write_text(str(pathlib.Path(np.__file__).resolve().parents[1]) + "\n")
                done = subprocess.run([python, "-c", next(iter(firsts)) + "\nimport attn; print(attn.__file__)"], cwd=place,
                                      env=quick, capture_output=True, text=True)
                self.assertIn(str(paths), done.stdout, done.stderr)
                if name == "checkout":
                    subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", beside, ROOT / "examples" / "python"],
                                   env=quick, check=True)


if __name__ == "__main__":
    unittest.main()

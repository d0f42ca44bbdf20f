#!/usr/bin/env python3
"""Tests of attn.lens.query: each kind of value that crosses to C and back. What settings and tables there are, and that numbers
are right, is for the suites of C. make python-test, or test_query.py [CASE]. Needs NumPy."""
import gc
import inspect
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

from here import BUILD, ROOT  # before attn
import attn
from attn import lens

try:
    import pandas
except ImportError:
    pandas = None

MODEL = attn.Model(BUILD / "tiny-stories.attn")
CLEAN, CORRUPTED = "Tom was a boy. He", "Tom was a girl. He"


def patch(*words, model=MODEL, **settings):
    return lens.query(model, "patch", CLEAN, CORRUPTED, *words, **settings)


class Values(unittest.TestCase):
    def test_numbers_wholes_flags_and_texts(self):
        answer = patch(by="heads")
        heads, facts = answer.tables["heads"], answer.facts
        self.assertEqual([heads[name].dtype for name in ("layer", "head", "answer")], [np.int64, np.int64, np.float64])
        self.assertEqual(heads["activation"], ["attn.hook_z"] * 24)
        self.assertEqual([type(facts[name]) for name in ("clean", "target_id", "gap_is_small", "target")], [float, int, bool, str])
        self.assertEqual(facts["gap"], facts["clean"] - facts["corrupted"])
        self.assertEqual((answer.axes["heads"], answer.to_numpy().shape), (("activation", "layer", "head"), (1, 4, 6)))
        self.assertEqual(answer.to_numpy(column="head")[0, 3].tolist(), [*range(6)])
        self.assertEqual(len(answer.notes), 2)
        with self.assertRaisesRegex(KeyError, "there is no scores; the answer has facts, heads"):
            answer.tables["scores"]
        read = json.loads(answer._form("json"))
        self.assertEqual(read["notes"], answer.notes)
        for row, *values in zip(read["heads"], *heads.values()):
            self.assertEqual([*row.values()][:3], values[:3])
            self.assertAlmostEqual(row["answer"], values[3], 7)
        if pandas:
            self.assertEqual(answer.to_pandas().columns.tolist(), ["activation", "layer", "head", "answer"])
            self.assertEqual(len(answer.to_pandas("facts")), 1)

    def test_missing_values_and_broken_characters(self):
        terms = lens.query(MODEL, "attribute", CLEAN).tables["terms"]
        self.assertEqual(terms["head"].dtype, np.float64)
        self.assertEqual(np.isnan(terms["head"]).tolist(), [not re.search(r"[Hh]\d", part) for part in terms["part"]])
        ids = MODEL.tokenizer.encode("é".encode()[:1]).tolist()
        tokens = lens.query(MODEL, "tokens", [*MODEL.to_tokens(CLEAN), *ids]).tables["tokens"]
        self.assertEqual((tokens["token"][-1], tokens["token_id"][-1]), ("\ufffd", ids[0]))

    def test_lists_and_tensors(self):
        answer = lens.query(MODEL, "record", CLEAN, "blocks.1.attn.hook_z", "blocks.0.hook_resid_pre")
        shapes = dict(zip(*answer.tables["activations"].values()))
        self.assertEqual(shapes, {"blocks.0.hook_resid_pre": [6, 192], "blocks.1.attn.hook_z": [6, 6, 32]})
        self.assertEqual(dict(answer.axes)["blocks.1.attn.hook_z"], ("position", "head", "width"))
        z, cache = answer.tensors["blocks.1.attn.hook_z"], MODEL.run_with_cache(CLEAN, "*.hook_z")[1]
        self.assertEqual((len(answer.tensors), z.dtype, z.base is not None), (2, np.float32, True))
        rows = answer.tables["blocks.1.attn.hook_z"]
        self.assertTrue((rows["value"].reshape(z.shape) == z).all() and rows["width"][:33].tolist() == [*range(32), 0])
        part = z[2:]
        del answer, z, rows
        gc.collect()
        blocks = [np.full(1 << 16, 7, np.float32) for _ in range(64)]
        self.assertTrue((part == cache["z", 1][2:]).all() and len(blocks) == 64)

    def test_ids_are_texts(self):
        whole = patch(by="positions").to_numpy()
        for clean, corrupted in ((MODEL.to_tokens(CLEAN), CORRUPTED), (MODEL.to_tokens(CLEAN).tolist(), MODEL.to_tokens(CORRUPTED)),
                                 (CLEAN.encode(), CORRUPTED)):
            self.assertTrue((lens.query(MODEL, "patch", clean, corrupted=corrupted, by="positions").to_numpy() == whole).all())
        self.assertRaisesRegex(ValueError, "token 99999 is not in the vocabulary", lens.query, MODEL, "heads", [99999])
        self.assertRaisesRegex(ValueError, "^token: token ids stand for no text here", patch, token=[1, 2])

    def test_settings(self):
        by = patch(["attn.hook_z", "attn.hook_q"], by="position_heads")
        self.assertTrue((patch("attn.hook_z", "attn.hook_q", by="position-heads").to_numpy() == by.to_numpy()).all())
        self.assertEqual(by.to_numpy().shape[0], 2)
        plain, begun = (lens.query(MODEL, "record", CLEAN, "*0.hook_resid_pre", bos=bos).tensors["blocks.0.hook_resid_pre"] for bos in (None, np.True_))
        self.assertTrue((begun[1:] != plain).any() and len(begun) == 7)
        edited = patch(edit="zero blocks.0.attn.hook_z head 1", by=None)
        self.assertNotEqual(edited.facts["clean"], patch().facts["clean"])
        self.assertTrue((lens.describe("patch")(MODEL, CLEAN, CORRUPTED).to_numpy() == patch().to_numpy()).all())

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            pairs = pathlib.Path(folder) / "pairs.jsonl"
            pairs.write_text("".join(json.dumps({"clean": f"{name} was a boy. He", "corrupted": f"{name} was a girl. He", "token": " was"}) +
                                     "\n" for name in ("Tom", "Sam", "Ben")))
            answer = lens.query(MODEL, "patch", pairs=pairs, by="heads", ci=True, each=True)
            heads, each = answer.tables["heads"], answer.tables["heads_each"]
            self.assertTrue((heads["low"] <= heads["mean"]).all() and (heads["mean"] <= heads["high"]).all())
            np.testing.assert_allclose(each["answer"].reshape(3, 24).mean(0), heads["answer"], rtol=1e-5)
            for end in ("svg", "html", "csv", "json", "npz"):
                answer.save(pairs.with_suffix(f".{end}"))
            self.assertEqual(pairs.with_suffix(".csv").read_bytes(), answer._form("csv"))
            with np.load(pairs.with_suffix(".npz")) as saved:
                self.assertTrue((saved["heads.low"] == heads["low"]).all() and saved["heads.activation"].tolist() == heads["activation"])
            self.assertRaisesRegex(ValueError, "x.pdf: the name must end in .html, .svg", answer.save, "x.pdf")
            with self.assertRaisesRegex(attn.Error, "none/x.svg: cannot be written") as caught:
                answer.save(pairs.parent / "none" / "x.svg")
            self.assertEqual(caught.exception.status, attn.Status.IO)
            answer.save(pairs.with_suffix(".svg"))  # after a failure, too

    def test_pairs_are_those_of_the_program(self):
        said = subprocess.run([BUILD / "lens", BUILD / "tiny-stories.attn", "pairs", "pronouns", "--count", "4", "--seed", "3"],
                              check=True, capture_output=True).stdout
        pairs = lens.pairs(MODEL, "pronouns", 4, seed=3)
        self.assertEqual([{"clean": p.clean, "corrupted": p.corrupted, "token": p.metric.token, "against": p.metric.against} for p in pairs],
                         [json.loads(line) for line in said.splitlines()])
        self.assertEqual(lens.ablate_heads(MODEL, pairs).change.shape, (4, 6))

    def test_what_is_shown(self):
        answer = patch(by="heads")
        self.assertEqual(str(answer) + "\n", answer._form("text").decode())
        self.assertIn("data:image/svg+xml;base64,", answer._repr_html_())
        self.assertIn(b"prefers-color-scheme: dark", answer._form("svg"))
        record = lens.query(MODEL, "record", CLEAN, "hook_embed")
        self.assertEqual(record._repr_html_().count("hook_embed"), 1)
        self.assertRaisesRegex(ValueError, "record has no picture", record.save, "x.svg")

    def test_an_answer_outlives_its_model(self):
        with attn.Model(BUILD / "tiny-stories.attn") as model:
            answer = patch(model=model, by="heads")
        self.assertEqual(len(answer.tables["heads"]["answer"]), 24)
        self.assertRaisesRegex(attn.Error, "the model is closed", patch, model=model)


class Calls(unittest.TestCase):
    def test_progress_and_what_it_raises(self):
        shares = []
        patch(by="position-heads", progress=shares.append)
        self.assertTrue(len(shares) > 2 and shares == sorted(shares) and shares[-1] == 1)
        with self.assertRaises(ZeroDivisionError):
            patch(progress=lambda share: 1 / 0)

    def test_an_interrupt_ends_it(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            for _ in range(1000):
                lens.query(MODEL, "patch", CLEAN * 20, CORRUPTED * 20, "attn.hook_z", by="position-heads")
        self.assertEqual(patch(by="heads").to_numpy().shape, (1, 4, 6))

    def test_six_at_once(self):
        want, got = patch(by="heads"), []

        def ask(i):
            for _ in range(5):
                answer = patch(by="heads")
                got.append((answer.to_numpy() == want.to_numpy()).all() and str(answer) == str(want))
                try:
                    patch(by=f"bad{i}")
                except ValueError as error:
                    got.append(f'"bad{i}"' in str(error))
            got.append((want.to_numpy("heads") == want.tables["heads"]["answer"].reshape(1, 4, 6)).all())

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [True] * 66)


class Settings(unittest.TestCase):
    def test_a_wrong_value_of_every_setting_is_refused_by_its_name(self):
        wrong = {"flag": [3, "maybe", 1.5], "whole number": [-1, 1.5, "x", 2**70, True, float("nan"), [1]], "number": ["x", float("nan"), True, {}],
                 "choice": ["none such", 5, True], "text": [5, 1.5, "a\0b", {}, True], "file": [5, True, "a\0b", [1]]}
        refused = (ValueError, TypeError, attn.Error)
        for command in lens.commands():
            for name, setting in lens.describe(command).settings.items():
                for value in wrong[setting.kind]:
                    with self.subTest(f"{command}({name}={value!r})"), self.assertRaisesRegex(refused, rf"\b{name.rstrip('s')}"):
                        lens.query(MODEL, command, **{name: value})
            self.assertRaisesRegex(ValueError, f"^nothing means nothing to {command}$", lens.query, MODEL, command, nothing=1)

    def test_words(self):
        for call, says in ((lambda: lens.query(MODEL, "heads", CLEAN, CORRUPTED), "heads takes 1 words, and got 2"),
                           (lambda: lens.query(MODEL, "heads", CLEAN, prompt=CLEAN), "prompt is given twice"),
                           (lambda: lens.query(BUILD, "heads"), "model is a PosixPath; expected a model"),
                           (lambda: lens.query(MODEL, 5), "command is 5; expected a str")):
            self.assertRaisesRegex(TypeError, says, call)
        for call, says in ((lambda: lens.query(MODEL, "nope"), "there is no command nope"), (lambda: lens.describe("nope"), "one of tokens, loss"),
                           (lambda: lens.query(MODEL, "heads", CLEAN, file="x"), "give one text"),
                           (lambda: lens.query(MODEL, "patch", CLEAN, CORRUPTED + " x"), "the texts have 6 and 8 tokens")):
            self.assertRaisesRegex(ValueError, says, call)

    def test_they_are_described(self):
        for command, about in lens.commands().items():
            described = lens.describe(command)
            taken = inspect.signature(described).parameters
            self.assertEqual(sorted(taken), sorted(["model", *described.settings, "progress"]))
            self.assertTrue(about and about in repr(described) and described.__doc__ == repr(described))
            for name, setting in described.settings.items():
                self.assertTrue(f"    {name}: " in repr(described) and setting.help, name)
        patches = lens.describe("patch").settings
        self.assertEqual((patches["prompt"].word, patches["names"].many, patches["pairs"].kind, patches["by"].takes[1]), (1, True, "file", "heads"))
        edges = lens.describe("edges").settings["edges"]
        self.assertEqual((edges.kind, edges.takes, edges.usual), ("whole number", ("1", "10000000"), 20))

    def test_the_stub_is_the_table(self):
        made = subprocess.run([sys.executable, ROOT / "examples" / "python" / "building" / "attn_stub.py"], check=True, capture_output=True)
        self.assertEqual(made.stdout.decode(), (ROOT / "examples" / "python" / "attn" / "lens_commands.pyi").read_text())


if __name__ == "__main__":
    unittest.main()

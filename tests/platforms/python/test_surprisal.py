#!/usr/bin/env python3
"""Surprisal and the vectors of words by the package in examples/python: make python-test, or test_surprisal.py [CASE]. Needs
NumPy."""
import re
import signal
import subprocess
import tempfile
import threading
import unittest
import warnings

import numpy as np

import here  # before attn
import attn
from test_attn import Case


class Surprisal(Case):
    def test_columns(self):
        one = self.model.surprisal("The cat")
        self.assertEqual(one["word"], ["The", "cat"])
        self.assertEqual([type(one[name][0]) for name in ("text", "word", "surprisal")], [int, str, float])
        self.assertEqual(self.model.surprisal(["The dog", "The cat"])["text"], [1, 1, 2, 2])
        self.assertEqual([len(column) for column in self.model.surprisal([]).values()], [0] * len(one))

    def test_tables(self):
        class Frame:  # as pandas and others have it
            columns = ["item", "sentence"]

            def __getitem__(self, name):
                return {"item": np.array([7, 8]), "sentence": ["The cat", "A dog ran."]}[name]

        for table in (Frame(), {"item": [7, 8], "sentence": ["The cat", "A dog ran."]}):
            got = self.model.surprisal(table, column="sentence")
            self.assertEqual(list(got)[-2:], ["entropy", "item"])
            self.assertEqual(got["item"], [7, 7, 8, 8, 8])
            self.assertEqual(got["surprisal"], self.model.surprisal(["The cat", "A dog ran."])["surprisal"])
            with self.assertRaisesRegex(ValueError, "name the column of texts with column; its columns are item, sentence"):
                self.model.surprisal(table)
            self.assertRaisesRegex(ValueError, 'column: the table has no column "s"', self.model.surprisal, table, column="s")
            self.assertRaisesRegex(TypeError, "text 1 is 7; expected a str", self.model.surprisal, table, column="item")
        self.assertEqual(self.model.surprisal({1: [7], "s": ["The cat"]}, column="s")["1"], [7, 7])
        class Column(list):  # a pandas.Series has keys, which are no columns
            keys = range

        self.assertEqual(self.model.surprisal(Column(["The cat", "A dog"]))["word"], ["The", "cat", "A", "dog"])
        for call in (lambda: self.model.generate_many(Frame()), lambda: self.model(Frame())):
            self.assertRaisesRegex(TypeError, r'a text, or .*, such as table\["sentence"\]', call)
        self.assertRaisesRegex(TypeError, "names is a Frame; expected a name", self.model.run_with_cache, "The cat", Frame())
        with self.assertRaisesRegex(TypeError, "the column 's' of texts is 'The cat'"):
            self.model.surprisal({"s": "The cat"}, column="s")
        both = self.model.surprisal({"s": ["The cat sat."], "n": ["np np vp"], "text": [1.5], "input_text": [None]}, column="s",
                                    region_names="n", by="region")
        self.assertEqual((both["word"], both["region"], both["index"]), (["The cat", "sat."], ["np", "vp"], [1, 3]))
        self.assertEqual((both["input_input_text"], both["input_text"]), ([1.5, 1.5], [None, None]))

    def test_classify(self):
        """As transformers has it, and score."""
        self.assertRaisesRegex(ValueError, "classify: the model has no head", self.model.classify, "The cat")
        heads = here.ROOT / "tests" / "fixtures" / "heads"
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run([here.BUILD / "attn-convert", "-q", heads / "classifier", scratch + "/a"], check=True)
            with attn.Model(scratch + "/a") as model:
                self.assertEqual(model.labels, ["contradiction", "na\u00efve \"neutral\"", "entailment"])
                rows = [line.split("\t") for line in (heads / "expected.tsv").read_text().split("\n") if line.startswith("class")]
                got = model.classify([[int(i) for i in row[1].split(",")] for row in rows])
                np.testing.assert_allclose(got, [[float(x) for x in row[2].split()] for row in rows], atol=2e-6)
                self.assertEqual((got.dtype, model.classify([]).shape), (np.float32, (0, 3)))
                self.assertRaisesRegex(ValueError, "text 1: the text is empty", model.classify, [[1], []])

    def test_word_vectors(self):
        """Rows as those of surprisal(); those of tokens are in a record, and a word has the mean, the first or the last."""
        text = "The dog's  bone, \U0001f600 and caf\u00e9."
        for layer, name in ((2, "blocks.2.hook_resid_post"), ("blocks.1.attn.hook_z", "blocks.1.attn.hook_z")):
            with warnings.catch_warnings(action="ignore"):
                tokens, sizes = self.model.surprisal(text, by="token")["token_id"], self.model.surprisal(text)["tokens"]
                got = {how: self.model.word_vectors({"s": [text]}, layer, column="s", pooling=how) for how in ("mean", "first", "last")}
                by_token = self.model.word_vectors(text, layer, by="token")
            want = self.model.run_with_cache([self.model.config.bos, *tokens], [name])[1][name].reshape(len(tokens) + 1, -1)[1:]
            np.testing.assert_array_equal(by_token, want)
            ends = np.cumsum(sizes)
            np.testing.assert_array_equal(got["last"], want[ends - 1])
            np.testing.assert_array_equal(got["first"], want[ends - sizes])
            np.testing.assert_allclose(got["mean"], [want[end - n:end].mean(0) for n, end in zip(sizes, ends)], rtol=1e-5, atol=1e-6)
        self.assertEqual(self.model.word_vectors([], 0).shape, (0, 192))
        for options, says in (({"layer": 4}, "blocks.4.hook_resid_post: the model has 4 layers, 0 to 3"),
                              ({"layer": 0, "pooling": "sum"}, "pooling is 'sum'; expected one of mean, first, last")):
            self.assertRaisesRegex(ValueError, re.escape(says), self.model.word_vectors, "a", **options)

    def test_notes_are_warnings(self):
        with self.assertWarnsRegex(UserWarning, r"1 of 2 texts have no-break spaces or other blanks of Unicode \(U\+202F\)"):
            self.model.surprisal(["a b", "a\u202fb"])
        with self.assertWarnsRegex(UserWarning, 'no text has words that "_" joins'):
            self.model.surprisal("a b", regions="_")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.model.surprisal("a b")

    def test_a_first_word_without_a_beginning(self):
        got = self.model.surprisal("The cat", bos=False, rank=True, top=1)
        self.assertTrue(np.isnan([got["surprisal"][0], got["rank"][0], got["top1_probability"][0]]).all())
        self.assertEqual(got["top1"][0], None)
        self.assertEqual(type(got["rank"][1]), int)

    def test_mistakes(self):
        for options, says in (({"stride": 256}, "stride is 256, but the model's context holds 255"), ({"by": "letter"}, "by is 'letter'"),
                              ({"by": "region"}, "by region needs regions MARK or region_names"), ({"column": "s"}, "column: there is no table"),
                              ({"top": 1001}, 'top: "1001" is not a whole number from 0 to 1000'), ({"top": -1}, "top is -1; expected"),
                              ({"renyi": 1.005}, "renyi is 1.005; expected 1"), ({"regions": "a b"}, 'regions: "a b" is not a mark')):
            self.assertRaisesRegex(ValueError, re.escape(says), self.model.surprisal, "a", **options)
        for missing in (None, float("nan"), b"The cat"):  # pandas has NaN where a text is missing
            with self.assertRaisesRegex(TypeError, f"text 2 is {missing!r}; expected a str"):
                self.model.surprisal(["The cat", missing])
        self.assertRaisesRegex(TypeError, 'layers is 3; expected numbers of layers, such as', self.model.surprisal, "a", layers=3)
        for nothing in (None, 5, {"a set"}, np.array("0-d")):
            with self.assertRaisesRegex(TypeError, "texts is .*; expected a text, several, or a table and its column"):
                self.model.surprisal(nothing)
        with self.assertRaisesRegex(TypeError, "column 'rt': text 1 is 1.5; expected a str"):
            self.model.surprisal({"sentence": ["The cat"], "rt": [1.5]}, column="rt")
        read = b"caf\xe9".decode("utf-8", "surrogateescape")
        for texts, says in ((["a", read], 'text 2: the byte e9 is not UTF-8; read its file in the encoding'),
                            ("a\ud800", "text 1: the byte ed is not UTF-8"), ("a\0b", "text 1: the byte 00"),
                            ("PK\x03\x04\0", "is an Excel workbook: save it as CSV UTF-8")):
            self.fails(attn.Status.FORMAT, says, self.model.surprisal, texts)

    def test_an_interrupt_ends_it(self):
        # a job in the background of a shell ignores SIGINT
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        texts = ["The cat sat on the mat and looked at me."] * 100000
        with self.assertRaises(KeyboardInterrupt):
            threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
            self.model.surprisal(texts)
        self.assertEqual(self.model.surprisal("The cat")["tokens"], [1, 1])


if __name__ == "__main__":
    unittest.main()

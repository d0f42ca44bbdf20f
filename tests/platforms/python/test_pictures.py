#!/usr/bin/env python3
"""Tests of the pictures that lens draws and that the package in examples/python shows: make python-test, or
test_pictures.py [CASE]. svg.py measures them; nothing here looks at the code that draws."""
import base64
import ctypes
import html.parser
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import types
import unittest
from xml.etree import ElementTree

import numpy as np

from here import BUILD, ROOT  # before attn
import attn
import svg
from attn import _library, _pictures, lens

try:
    import pandas
except ImportError:
    pandas = None

STORIES, INDUCTION = BUILD / "tiny-stories.attn", BUILD / "induction.attn"
PROMPT = "Once upon a time"
BOY, GIRL = "Tom was a boy. He", "Tom was a girl. He"
CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7f, 0xa0)), "\xad", "\u061c", "\u200b", "\u200e", "\u2028", "\u202e",
            "\u2066", "\ufeff", "\ufff9", "\ufffe", "\uffff", "\U0001ffff", "\ud800"]


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def shown_in_a_notebook(shown):
    """The picture that a notebook shows: of an image, because notebooks that are not trusted drop the elements of an SVG."""
    tags = Tags()
    tags.feed(shown._repr_html_())
    (outer, _), (inner, image) = tags.found
    assert (outer, inner) == ("div", "img") and image["alt"], tags.found
    kind, _, coded = image["src"].partition(",")
    assert kind == "data:image/svg+xml;base64", kind
    return svg.Drawing(base64.b64decode(coded))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, cls.induction = attn.Model(STORIES), attn.Model(INDUCTION)
        cls.pair = lens.Pair(BOY, GIRL, lens.logit_diff(" was", " a"))
        cls.ids = lens.Pair([0, 5, 9, 5], [0, 5, 8, 5], lens.logit_diff(9, 8))

    def same(self, a, b):
        self.assertEqual(np.shape(a), np.shape(b))
        self.assertTrue(np.array_equal(a, b, equal_nan=True))

    def kinds(self, model=None, text=PROMPT, pair=None):
        """Every kind of picture, by name."""
        model, pair = model or self.model, pair or self.pair
        token = pair.metric.token
        scores = lens.edges(model, pair, 12, steps=2)
        return {
            "patterns": lens.patterns(model, text), "patterns of a layer": lens.patterns(model, text, 1),
            "pattern": lens.patterns(model, text, 1, 1), "logit_lens": lens.logit_lens(model, text),
            "heads": lens.heads(model, text), "parts": lens.parts(model, text, token),
            "parts by heads": lens.parts(model, text, token, kind="heads"), "ablate_heads": lens.ablate_heads(model, text, pair.metric),
            "qk_terms": lens.qk_terms(model, text, 1, 0, 0, 0), "score": model.score(text), "edges": scores,
            "curve": lens.curve(model, pair, scores.scores), "patch": lens.patch(model, pair, "hook_resid_pre"),
            "patch by heads": lens.patch(model, pair, "attn.hook_z", "heads"),
            "patch by both": lens.patch(model, pair, "attn.hook_z", "position_heads"),
            "patch by keys": lens.patch(model, pair, "attn.hook_pattern", "sources"),
            "path_patch": lens.path_patch(model, pair, [(0, 1), (0, "mlp"), "embed"], [(1, "hook_q_input", 1)]),
            "path_patch, each": lens.path_patch(model, pair, [(0, 1), "embed"], [(1, "hook_q_input", 1), (1, "hook_mlp_in")],
                                                each_receiver=True),
            "exact_effects": lens.exact_effects(self.induction, self.ids), "nodes": lens.exact_effects(self.induction, self.ids, "nodes"),
            "interactions": lens.interactions(self.induction, self.ids), "shapley": lens.shapley(self.induction, self.ids, ["m1", "a0.h0"]),
            **({"sae": lens.load_sae("tiny-stories").show(model, text)} if model is self.model else {})}

    def well_drawn(self, name, drawn):
        with self.subTest(name):
            self.assertEqual(drawn.faults(), [])
            self.assertEqual(drawn.crossings(), [])


class Notebooks(Case):
    def test_pictures_are_images_text_and_numbers(self):
        path = pathlib.Path(scratch) / "shown.svg"
        for name, shown in self.kinds().items():
            with self.subTest(name):
                drawn = shown_in_a_notebook(shown)
                shown.save(path)
                self.assertIn("prefers-color-scheme: dark", path.read_text(encoding="utf-8"))
                self.assertEqual(svg.Drawing(path.read_bytes()).labels, drawn.labels)
                self.assertIsInstance(shown.to_numpy(), np.ndarray)
                self.assertTrue(str(shown))

    def test_numbers_are_those_of_the_engine(self):
        cached = self.model.run_with_cache(PROMPT)[1]["pattern", 1]
        self.same(lens.patterns(self.model, PROMPT).to_numpy()[6:12], cached)
        self.same(lens.patterns(self.model, PROMPT, 1).to_numpy(), cached)
        self.same(lens.patterns(self.model, PROMPT, 1, 2).to_numpy(), cached[2])
        self.same(lens.patterns(self.model, PROMPT, head=2).to_numpy()[1], cached[2])
        self.assertRaisesRegex(ValueError, "no head 6", lens.patterns, self.model, PROMPT, head=6)
        best = lens.logit_lens(self.model, PROMPT).tables["top"]
        last = (best["layer"] == 4) & (best["place"] == 0)
        self.assertEqual([best["guess"][i] for i in np.flatnonzero(last)], self.model.to_str_tokens(self.model(PROMPT).argmax(-1)))
        self.assertLess(np.abs(best["probability"][last] - self.model.score(PROMPT, k=1).top_probability[:, 0]).max(), 1e-5)

    def test_cells_say_their_numbers(self):
        shown = lens.Picture("a < b", np.array([[[-1, np.nan], [0.126, -0.001]]], np.float32), [""], ["<i>", " x "], ["&", "\n"])
        self.assertEqual(shown_in_a_notebook(shown).labels[:9], ["a < b", "&", "↵", "<i>", "-1.00", "nan", "·x·", "0.13", "0.00"])
        self.assertIn(" 0.00", repr(shown))
        small = shown_in_a_notebook(lens.Picture("", np.eye(21, dtype=np.float32)[None], [""], ["r"] * 21, ["c"] * 21))
        strong = [element for element in small.root.iter() if element.get("fill-opacity") == "0.550"]
        self.assertEqual(len(strong), 21 + 1)  # the diagonal, and the end of the legend
        self.assertIn("r, c: 1", [element.text for element in small.root.iter() if svg.tag(element) == "title"])
        values = np.random.default_rng(0).normal(size=(80, 80)).astype(np.float32)
        many = shown_in_a_notebook(lens.Picture("", values[None], [""], ["r"] * 80, ["c"] * 80))
        seen, most = np.zeros((80, 80)), np.abs(values).max()
        for element in many.root.iter():
            for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1", element.get("d", "")):
                sign = 1 if element.get("class") == "m" else -1
                seen[int(y), int(x):int(x) + int(run)] += sign * float(element.get("fill-opacity")) / 0.55
        self.assertLess(np.abs(seen - values / most).max(), 0.5 / 15 + 0.002)

    def test_a_curve_is_a_curve(self):
        found = lens.curve(self.induction, self.ids, lens.edges(self.induction, self.ids, 5).scores)
        drawn = shown_in_a_notebook(found)
        line, = [element for element in drawn.root.iter() if element.get("class") == "more" and "L" in element.get("d", "")]
        x, y = np.array([part.split() for part in re.split("[ML]", line.get("d"))[1:]], float).T
        self.assertEqual(len(x), 10)
        for at, numbers in ((x, np.log(found.share)), (y, found.faithfulness.astype(float))):
            slope, first = np.polyfit(numbers, at, 1)
            self.assertLess(np.abs(slope * numbers + first - at).max(), 0.2)  # pixels
        self.assertLess(np.polyfit(found.faithfulness, y, 1)[0], 0)
        self.assertIn("100%", drawn.labels)
        self.assertIn("faithfulness", repr(found))

    def test_other_formats(self):
        pattern = lens.patterns(self.model, PROMPT)
        for shown, says in ((lens.heads(self.model, PROMPT), "must end in .html"), (pattern, r"as .svg or .png, not as 'x.pdf'; to_numpy\(\)")):
            self.assertRaisesRegex(ValueError, says, shown.save, "x.pdf")
        made = types.ModuleType("cairosvg")
        made.svg2png = lambda bytestring, write_to, scale: pathlib.Path(write_to).write_bytes(b"PNG of " + bytestring[:4])
        path = pathlib.Path(scratch) / "x.png"
        kept = sys.modules.get("cairosvg")
        try:
            sys.modules["cairosvg"] = None  # as if it were not installed
            self.assertRaisesRegex(ImportError, r"a .png needs CairoSVG \(pip install cairosvg", pattern.save, path)
            sys.modules["cairosvg"] = made
            pattern.save(path)
        finally:
            sys.modules.pop("cairosvg") if kept is None else sys.modules.update(cairosvg=kept)
        self.assertEqual(path.read_bytes(), b"PNG of <svg")
        try:
            import cairosvg  # noqa: F401
        except (ImportError, OSError):
            self.skipTest("there is no CairoSVG to make a .png")
        for name, shown in self.kinds().items():
            with self.subTest(name):
                shown.save(path)
                self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")


class Drawings(Case):
    """Texts do not meet and are inside; edges join what they name, and run through no box."""

    TEXTS = ["a", PROMPT, "One day, Lily and Tom went to the park. " * 2, "日本語 and 🙂🙂 <b>&\"x\"</b> antidisestablishmentarianism\n\n\t x"]

    def test_of_the_package(self):
        for text in self.TEXTS:
            for name, shown in self.kinds(text=text).items():
                self.well_drawn(f"{name} of {text!r}", shown_in_a_notebook(shown))
        for name, shown in self.kinds(self.induction, [0, 5, 9, 5], self.ids).items():
            self.well_drawn(f"{name} of the induction model", shown_in_a_notebook(shown))

    def test_of_attribution_graphs(self):
        """Texts do not meet; nodes, edges and what is told of each node are those of the program's picture."""
        transcoders, path = ROOT / "examples" / "sae" / "transcoders", pathlib.Path(scratch) / "graph.svg"
        for text in PROMPT, '日 <b>&"x"\n':
            graph = lens.graph(self.model, text, transcoders, check=True)
            drawn = shown_in_a_notebook(graph)
            self.assertEqual(drawn.faults(), [])
            run = [BUILD / "lens", STORIES, "graph", "-q", text, "--transcoders", transcoders, "--check", "-o", path]
            subprocess.run(run, check=True)
            theirs = svg.Drawing(path.read_bytes())
            for element in "title", "circle", "path":
                found, expected = ([(svg.text_of(e), e.get("data-from"), e.get("data-weight"), e.get("r")) for e in picture.root.iter()
                                    if svg.tag(e) == element] for picture in (drawn, theirs))
                self.assertEqual(found, expected)
                self.assertGreater(len(found), 3)
            graph.save(path)
            self.assertEqual(path.read_bytes(), graph._svg())

    def test_of_random_shapes(self):
        draw = random.Random(56)

        def word():
            return "".join(draw.choice("ab cd\n<日é\x1b") for _ in range(draw.choice((0, 1, 3, 9, 40))))

        for _ in range(80):
            shape = [draw.choice(sizes) for sizes in ((1, 1, 2, 3, 7), (1, 2, 12, 30), (1, 3, 11, 20, 21, 70))]
            values = (np.random.default_rng(draw.randrange(9999)).normal(size=shape) * 10.0 ** draw.randrange(-3, 6)).astype(np.float32)
            labels = [[word() for _ in range(n)] for n in shape]
            axes = ({}, {"position": range(shape[1])}, {word(): range(shape[2])})
            for shown in (lens.Picture(word() * 3, values, *labels, axes), lens.Picture(word(), np.abs(values), *labels)):
                self.well_drawn(str(shape), shown_in_a_notebook(shown))

    def test_of_random_graphs(self):
        draw = random.Random(7)
        for _ in range(60):
            n_layer, n_head, n = draw.randint(1, 13), draw.randint(1, 13), draw.choice((0, 1, 4, 20, 60, 200))
            nodes = ["input", *(name for i in range(n_layer) for name in (*(f"a{i}.h{j}" for j in range(n_head)), f"m{i}"))]
            readers = [*(name for i in range(n_layer) for name in (*(f"a{i}.h{j}<{part}>" for part in "qkv" for j in range(n_head)),
                                                                   f"m{i}")), "logits"]
            edges = []
            for _ in range(n):
                sender = draw.randrange(len(nodes))
                layer, part = divmod(sender - 1, n_head + 1)
                first = 0 if sender == 0 else (3 * n_head + 1) * (layer + (part == n_head)) + 3 * n_head * (part < n_head)
                edges.append((nodes[sender], draw.choice(readers[first:]), draw.gauss(0, 1)))
            edges = list({edge[:2]: edge for edge in edges}.values())
            drawn = shown_in_a_notebook(_pictures.Graph("edges", edges, nodes, readers, n_layer, n_head))
            self.well_drawn(f"{n} edges of {n_layer} x {n_head}", drawn)
            self.assertEqual(sorted(edge.name for edge in drawn.edges), sorted(
                f"{start} to {end[:-3]} {end[-2]}: {score:.4f}" if "<" in end else f"{start} to {end} : {score:.4f}"
                for start, end, score in [(start, end, float(np.float32(score))) for start, end, score in edges]))
            self.assertEqual(len(drawn.nodes), len({"logits", *(name.partition("<")[0] for edge in edges for name in edge[:2])}))

    def test_of_the_program(self):
        long = " ".join(["Lily saw a big red ball"] * 4)
        question = ["--token", " was", "--against", " a"]
        for text in (*self.TEXTS, long):
            for command in ("tokens", *(["loss"] if len(text) > 1 else []), "logit-lens", "patterns", "attribute", "heads", "decompose"):
                self.program(command, text)
            self.program("patterns", text, "--layer", 1, "--head", 2)
            self.program("patterns", text, "--head", 2)
            self.program("ablate", text, "--token", " a", "--at", 0)
            self.program("qk", text, "--layer", 1, "--head", 2)
            self.program("sae", ROOT / "examples" / "sae", text)
            self.program("steer", text, "--towards", " happy", "--away", " sad", "-n", 2)
        for more in ([], ["--estimate"], ["attn.hook_z", "--by", "position-heads"], ["attn.hook_pattern", "--by", "source-heads"]):
            self.program("patch", BOY, GIRL, *more, *question)
        self.program("path", BOY, GIRL, *question)
        for more in ([], ["--edges", 150], ["--exact", "--of", "nodes"], ["--curve"], ["--exact", "--prune", 5]):
            self.program("edges", BOY, GIRL, *more, *question)
        self.program("circuits")
        self.program("circuits", "--layer", 1, "--head", 2)

    def program(self, *words):
        path = pathlib.Path(scratch) / "x.svg"
        line = [BUILD / "lens", STORIES, *words, "-q", "-o", path]
        subprocess.run([str(word) for word in line], check=True, capture_output=True, stdin=subprocess.DEVNULL)
        self.well_drawn(" ".join(map(str, line[2:])), svg.Drawing(path.read_bytes()))

    def test_pages_have_the_graph_of_the_svg(self):
        folder = pathlib.Path(scratch)
        for more, least in ((["--edges", "30"], 30), (["--curve"], 0)):
            for ending in ("svg", "html"):
                subprocess.run([BUILD / "lens", STORIES, "edges", BOY, GIRL, *more, "--token", " was", "--against", " a", "-q", "-o",
                                folder / f"edges.{ending}"], check=True)
            whole = svg.Drawing((folder / "edges.svg").read_bytes())
            page = (folder / "edges.html").read_text(encoding="utf-8")
            inside = svg.Drawing(re.search(r"<figure>\n(<svg.*?</svg>)\n</figure>", page, re.S)[1])
            self.well_drawn("the figure of the page", inside)
            self.assertGreaterEqual(len(inside.edges), least)
            self.assertEqual([edge.name for edge in inside.edges], [edge.name for edge in whole.edges])
            self.assertLessEqual(set(inside.labels), set(whole.labels))
            if least:
                legend = " ".join(inside.labels)
                for part in ("input: the embeddings", "q, k, v: what a head", "a3.h5: head 5 of layer 3"):
                    self.assertIn(part, legend)

    def test_one_set_of_colours(self):
        light, dark = re.findall(r":root \{(.*?)\}", (ROOT / "examples" / "web" / "draw.css").read_text(), re.S)[:2]
        source = ElementTree.tostring(shown_in_a_notebook(self.model.score(PROMPT)).root, encoding="unicode")
        style = re.search(r"style&gt;|<[\w:]*style>(.*?)</", source, re.S)[1]
        for colours, rules in zip((light, dark), style.split("@media")):
            for variable, rule in (("tint", r"\.m, \.lens \.ink \{ fill: rgb\((.*?)\)"), ("other", r"\.l \{ fill: rgb\((.*?)\)"),
                                   ("ink", r"\.lens text \{.*?fill: (#\w+)"), ("quiet", r"\.dim \{ fill: (#\w+)"),
                                   ("panel", r"\.ground \{ fill: (#\w+)"), ("line", r"\.line \{ fill: (#\w+)")):
                want = re.search(rf"--{variable}: ([^;]+);", colours)[1]
                self.assertEqual(re.search(rule, rules, re.S)[1].replace(",", " "), want, variable)
        full = [float(re.search(r"--full: ([\d.]+)", colours)[1]) for colours in (light, dark)]
        strongest = max(float(number) for number in re.findall(r'class="l" fill-opacity="([\d.]+)"', source))
        fainter = float(re.search(r"\.l \{ opacity: ([\d.]+)", style)[1])
        self.assertTrue(math.isclose(strongest, full[0]) and math.isclose(strongest * fainter, full[1], abs_tol=0.005))


class Controls(Case):
    """A control character has a sign in every picture and in its text."""

    def test_every_one_in_every_text_of_a_picture(self):
        values = np.ones((1, 1, 1), np.float32)
        for control in CONTROLS:
            with self.subTest(f"U+{ord(control):04X}"):
                text = f"a{control}b"
                for shown in (lens.Picture(text, values, [text], [text], [text], ({}, {text: [0]}, {text: [0]})),
                              _pictures.Losses(text, [text], np.ones(1, np.float32), [text]),
                              _pictures.Graph(text, [("input", "logits", 1.0)], ["input", "m0"], ["m0", "logits"], 1, 0),
                              _pictures.Chart(text, values, [""], [text], [text], shares=[0.1], share_of=text)):
                    found = "".join(shown_in_a_notebook(shown).root.itertext()) + str(shown)
                    self.assertNotIn(control, found.replace("\n", "") if control == "\n" else found)

    def test_every_one_in_a_text_that_c_is_given(self):
        for control in CONTROLS[1:-1]:
            title = f"a{control}b".encode()
            graph = _library.C.lens_drawn_graph(_library.C.lens_graph(1, 1, 3, 5, 0), None, 0)
            drawn = svg.Drawing(_pictures._draw(_library.lib.lens_draw_graph, title, ctypes.byref(graph)))
            self.assertTrue(control == "\n" or control not in drawn.root.get("aria-label") + "".join(drawn.labels))

    def test_every_one_in_a_text(self):
        path = pathlib.Path(scratch) / "control.svg"
        for control in CONTROLS[:-1]:
            text = f"The{control}cat"
            for shown in (lens.patterns(self.model, text, 0), self.model.score(text), lens.logit_lens(self.model, text)):
                with self.subTest(f"U+{ord(control):04X} in {type(shown).__name__}"):
                    shown.save(path)
                    found = "".join(ElementTree.parse(path).getroot().itertext()) + str(shown)
                    self.assertTrue(control == "\n" or control not in found)

    def test_signs(self):
        for text, want in {"\x1b[31m": r"\x1b[31m", "\0": r"\x00", "  a b ": "··a b·", "\r\n\t": "\\x0d↵⇥", "": "∅", "\u202e": r"\u202e"}.items():
            self.assertEqual(_pictures.visible(text), want)


@unittest.skipUnless(pandas, "there is no pandas")
class Tables(Case):
    """to_pandas has columns that say what each number belongs to."""

    COLUMNS = {
        **dict.fromkeys(("patterns", "patterns of a layer", "pattern"), "layer head position token key key_token value"), "ablate_heads": "layer head value", "score": "position token nll probability rank", "edges": "from to score",
        "curve": "share edges faithfulness", "patch": "layer position token value", "patch by heads": "layer head value",
        "patch by both": "layer position token head value", "patch by keys": "layer position token value",
        "path_patch": "from layer head value", "path_patch, each": "from layer head to value", "exact_effects": "from to value",
        "parts": "part layer position token value", "parts by heads": "part layer head position token value", "nodes": "from value", "interactions": "node with value", "shapley": "node with value"}

    def test_columns(self):
        for name, shown in self.kinds().items():
            if isinstance(shown, lens.Answer):  # whose columns are those of C
                continue
            with self.subTest(name):
                table = shown.to_pandas()
                self.assertEqual(list(table.columns), self.COLUMNS[name].split())
                if "value" in table:
                    self.same(table.value.to_numpy(), shown.to_numpy().ravel())
                if "token" in table:
                    text = GIRL if not self.model else BOY if name.startswith("patch by") or name == "patch" else PROMPT
                    tokens = self.model.to_str_tokens(text)
                    self.assertEqual(list(table.token), [tokens[i] for i in table.position])

    def test_rows(self):
        table = lens.patterns(self.model, PROMPT, head=3).to_pandas()
        cached = self.model.run_with_cache(PROMPT)[1]
        for row in table.itertuples():
            self.assertEqual((row.head, row.value), (3, cached["pattern", row.layer][3, row.position, row.key]))
        table = lens.patch(self.model, self.pair, "attn.hook_z", "position_heads").to_pandas()
        effect = lens.patch(self.model, self.pair, "attn.hook_z", "position_heads").effect
        for row in table.itertuples():
            self.assertEqual(row.value, effect[row.layer, row.position, row.head])
        weights = lens.patch(self.model, self.pair, "attn.hook_pattern", "weights")
        self.assertIn("<pre>", weights._repr_html_())
        table = lens.parts(self.model, PROMPT, " a", kind="heads").to_pandas()
        self.assertEqual(set(table[table.part == "L1H2"][["layer", "head"]].itertuples(index=False, name=None)), {(1, 2)})
        self.assertTrue(table[table.part == "embed"].layer.isna().all())
        paths = lens.path_patch(self.model, self.pair, [(0, 1), (1, "mlp"), "embed"], [(2, "hook_q_input", 3)]).to_pandas()
        self.assertEqual(list(paths["from"]), ["0.1", "1.mlp", "embed"])
        self.assertEqual(list(paths.layer.fillna(-1)), [0, 1, -1])
        twice = lens.patch(self.model, [self.pair, self.pair], "hook_resid_pre").to_pandas()
        self.assertEqual(list(twice.columns), ["layer", "position", "value"])
        scores = self.model.score(PROMPT)
        self.same(scores.to_pandas().nll.to_numpy()[1:].astype(np.float32), scores.nll)
        made = lens.Picture("", np.zeros((2, 1, 1), np.float32), ["p", "q"], ["\0"], ["c"]).to_pandas()
        self.assertEqual(made.values.tolist(), [["p", "\0", "c", 0], ["q", "\0", "c", 0]])

    def test_an_effect_is_three_numbers(self):
        effect, clean, corrupted = found = lens.patch(self.model, self.pair, "hook_resid_pre")
        self.assertEqual(effect.shape, (4, 6))
        self.assertEqual((found.clean, found.corrupted), (clean, corrupted))
        alone = lens.Patched(effect, clean, corrupted).to_pandas()
        self.assertEqual(list(alone.columns), ["axis 0", "axis 1", "value"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        unittest.main()

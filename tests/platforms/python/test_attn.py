#!/usr/bin/env python3
"""Tests of the package in examples/python: make python-test, or test_attn.py [CASE].

Needs NumPy; the cases with PyTorch say "skipped" where there is none.
"""
import collections.abc
import contextlib
import copy
import ctypes
import gc
import hashlib
import importlib.util
import inspect
import io
import itertools
import json
import math
import os
import pathlib
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
import weakref
from unittest import mock

import numpy as np

from here import BUILD, ROOT  # before attn
import attn
import notebooks
from attn import _library, lens

sys.path.append(str(ROOT / "tests" / "makers"))
from float64 import read_safetensors, write_safetensors

try:
    import torch
except ImportError:
    torch = None
try:
    import pandas
except ImportError:
    pandas = None

STORIES = BUILD / "tiny-stories.attn"
PROMPT = "Once upon a time"
PROMPT_IDS = [506, 511, 258, 433]  # as PyTorch's reference has it


def read_fixtures(path):
    """The arrays of a file of tests/makers/fixture_file.py."""
    data, at, arrays = path.read_bytes(), 12, {}
    for _ in range(*struct.unpack_from("<I", data, 8)):
        length, = struct.unpack_from("<I", data, at)
        name = data[at + 4:at + 4 + length].decode()
        kind, ndim = struct.unpack_from("<II", data, at + 4 + length)
        shape = struct.unpack_from(f"<{ndim}I", data, at + 12 + length)
        at = (at + 12 + length + 4 * ndim + 3) // 4 * 4
        arrays[name] = np.frombuffer(data, {0: np.float32, 2: np.int32}[kind], int(np.prod(shape)), at).reshape(shape)
        at += arrays[name].nbytes
    return arrays


def model_of(name, **options):
    """A golden model, converted once."""
    path = pathlib.Path(scratch.name) / f"{name}.attn"
    if not path.exists():
        subprocess.run([BUILD / "attn-convert", ROOT / "tests" / "golden" / name, path], check=True,
                       stderr=subprocess.DEVNULL)
    return attn.Model(path, **options)


def run(*command, given=b"", environment=None, folder=None):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, input=given,
                          env=environment, cwd=folder).stdout


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = attn.Model(STORIES)

    def fails(self, status, sentence, call=None, *given, **named):
        """The call, or the next block, fails with this status, and a message that has the sentence in it."""
        @contextlib.contextmanager
        def expect():
            with self.assertRaisesRegex(attn.Error, re.escape(sentence)) as caught:
                yield
            self.assertEqual(caught.exception.status, status)
        if call is None:
            return expect()
        with expect():
            call(*given, **named)

    def same(self, a, b):
        self.assertEqual(np.shape(a), np.shape(b))
        self.assertTrue(np.array_equal(a, b, equal_nan=True), f"largest difference {np.abs(a - b).max()}")


class Declarations(Case):
    """The structs and prototypes of the package are those of attn.h."""

    def test_structs_have_the_layout_of_c(self):
        lines, expected = [], []
        for struct_type in _library.STRUCTS.values():
            name = struct_type.__name__
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(struct_type)}")
            for field, *_ in struct_type._fields_:
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                             f'sizeof((({name} *)0)->{field}));')
                descriptor = getattr(struct_type, field)
                expected.append(f"{name}.{field} {descriptor.offset} {descriptor.size}")
        self.assertEqual(self.compiled(lines), expected)
        self.assertGreater(len(_library.STRUCTS), 15)

    def test_enums_have_the_values_of_c(self):
        def values(prefix, names):
            return [(prefix + name.upper(), i) for i, name in enumerate(names)]
        named = [*values("ATTN_ISA_", attn._ISAS), *values("ATTN_EDIT_", attn._EDITS),
                 *values("ATTN_CACHE_", attn._CACHE_PARTS),
                 ("ATTN_F32", 0), ("ATTN_F16", 1), ("ATTN_I32", 2), ("LENS_PROCESS_FOLD_LN", 1),
                 ("LENS_PROCESS_CENTER_WRITING_WEIGHTS", 2), ("LENS_PROCESS_CENTER_UNEMBED", 4),
                 ("LENS_PROCESS_FOLD_VALUE_BIASES", 8),
                 ("ATTN_OK", 0), ("ATTN_STOPPED", 14), ("LENS_FACE_PYTHON", 1), ("LENS_CARRIED", 5), ("FLAG", 1), ("COLUMN", 10)]
        got = self.compiled([f'printf("{name} %d\\n", (int){name});' for name, _ in named])
        self.assertEqual(got, [f"{name} {value}" for name, value in named])
        for status in attn.Status:
            name = attn._lib.attn_status_name(status).decode()
            self.assertIn(name, ("ATTN_" + status.name, "ATTN_E_" + status.name))

    def compiled(self, lines):
        """The lines that a C program with these statements prints."""
        program = pathlib.Path(scratch.name) / "layout"
        headers = ["tools/common/system.h", *(f"tools/lens/{name}.h" for name in (
            "process_weights control curve decompose detect exact graph_files interaction patch paths prune qk sae_files spectrum "
            "steering tuned").split()),
            "tools/receipt/shared.h", "tools/lens/program/draw/shared.h", "tools/waist/query.h"]
        source = ("".join(f'#include "{header}"\n' for header in headers) +
                  "#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        # -O1 drops the functions that nobody calls
        compiler = [os.environ.get("CC", "cc"), "-O1", "-w", '-DPROGRAM="test"', '-DINPUT="text"', "-x", "c"]
        subprocess.run([*compiler, "-", "-I", ROOT, "-o", program], input=source.encode(), check=True)
        return run(program).decode().split("\n")[:-1]

    def test_they_are_those_of_the_headers(self):
        folder = ROOT / "examples" / "python"
        made = run(sys.executable, folder / "building" / "attn_declarations.py")
        self.assertEqual(made.decode(), (folder / "attn" / "declarations.txt").read_text())

    def test_the_library_is_found(self):
        code = "import attn; print(attn.version())"
        folder = pathlib.Path(scratch.name) / "beside"
        folder.mkdir()
        package = folder / "attn"
        shutil.copytree(ROOT / "examples" / "python" / "attn", package, ignore=shutil.ignore_patterns("__pycache__"))
        environment = {k: v for k, v in os.environ.items() if k not in ("ATTN_LIBRARY", "PYTHONPATH")}

        def tried(**more):
            return subprocess.run([sys.executable, "-c", code], cwd=folder, env={**environment, **more},
                                  capture_output=True, text=True)

        self.assertIn("make build/libattn.so", tried().stderr)
        self.assertIn("/no/such.so", tried(ATTN_LIBRARY="/no/such.so").stderr)
        (package / "libattn.so").symlink_to(os.environ["ATTN_LIBRARY"])
        self.assertEqual(tried().stdout.strip(), attn.version())
        (package / "libattn.so").unlink()
        other = folder / "other.c"
        other.write_text("int attn_version(void) { return 10300; }\n")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", other, "-o", package / "libattn.so"], check=True)
        self.assertIn("is version 1.3 of attn.h", tried().stderr)


class Package(Case):
    """What pip installs, and where models are found."""

    def test_pip_installs_it(self):
        if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
            self.skipTest("there is no pip")
        folder = pathlib.Path(scratch.name) / "installed"
        quick = {**os.environ, "CFLAGS": "-O0 -DATTN_NO_SIMD"}
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder,
            ROOT / "examples" / "python", environment=quick)
        alone = {k: v for k, v in os.environ.items() if k not in ("ATTN_LIBRARY", "ATTN_MODELS")}
        alone["PYTHONPATH"] = str(folder)
        code = ("import attn, attn.lens as lens; model = attn.load('tiny-stories'); print(attn._lib._name, "
                "attn.load('induction').config.n_layer, lens.load_sae('tiny-stories').d_sae, lens.load_sae('tiny-stories', 3).d_sae, "
                "model.session().generate('Once upon a time', max_tokens=12).read())")
        with tempfile.TemporaryDirectory() as elsewhere:
            printed = run(sys.executable, "-c", code, environment=alone, folder=elsewhere).decode()
            story = run(sys.executable, "-m", "attn", environment=alone, folder=elsewhere).decode()
        self.assertEqual(printed, f"{folder}/attn/libattn.so 2 512 320 , there was a little girl named Lily. She loved to\n")
        self.assertEqual(story, run(BUILD / "gpt2", STORIES, PROMPT, "-n200", "--temperature=0.7", "--top-k=40", "-s1",
                                    "-q").decode())
        self.assertTrue((folder / "attn" / "py.typed").exists())
        facts = (folder / f"attn-{attn.version()}.dist-info" / "METADATA").read_text()
        self.assertIn("\nRequires-Dist: numpy>=1.24\n", facts)

    def test_a_reader_of_the_story_may_stop_early(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples" / "python")}
        with subprocess.Popen([sys.executable, "-m", "attn"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as story:
            self.assertEqual(story.stdout.read(9), b"Once upon")
            story.stdout.close()
            self.assertEqual((story.stderr.read(), story.wait()), (b"", 0))

    def test_models_are_found(self):
        home = pathlib.Path(scratch.name) / "home"
        code = "import sys, attn; print(attn.load(sys.argv[1]).config.n_layer)"

        def tried(name, **more):
            environment = {**os.environ, "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(ROOT / "examples" / "python")}
            return subprocess.run([sys.executable, "-c", code, name], cwd=scratch.name, env={**environment, **more},
                                  capture_output=True, text=True)

        self.assertIn("`make gpt2 SIZE=gpt2-xl` in a checkout", tried("gpt2-xl").stderr)
        self.assertIn("$ATTN_MODELS names the directory", tried("mine").stderr)
        self.assertIn("write attn.Model('build/x.attn')", tried("build/x.attn").stderr)
        for folder, more in ((home / "attn", {}), (home / "more", {"ATTN_MODELS": os.pathsep.join(["no", str(home / "more")])}),
                             (pathlib.Path(scratch.name) / "build", {})):
            folder.mkdir(parents=True)
            (folder / "mine.attn").symlink_to(BUILD / "induction.attn")
            self.assertEqual(tried("mine", **more).stdout, "2\n")
            (folder / "mine.attn").unlink()

    @unittest.skipIf(os.name == "nt", "there is no pwd")
    def test_a_process_without_a_home(self):
        with mock.patch("pwd.getpwuid", side_effect=KeyError), mock.patch.dict(os.environ):
            for name in "HOME", "XDG_CACHE_HOME":
                os.environ.pop(name, None)
            self.assertRaisesRegex(FileNotFoundError, "there is no model mine", attn.load, "mine")

    def test_names_of_the_ecosystem_are_free(self):
        """A file or folder here would hide a package of the same name from every program."""
        taken = {path.stem for path in (ROOT / "examples" / "python").iterdir() if path.suffix in ("", ".py")}
        self.assertEqual(taken, {"attn", "attn_serve", "building", "notebooks", "__pycache__"} & taken)
        self.assertEqual(set(dir(attn)), set(attn.__all__))
        for module in (attn, lens):
            for name in module.__all__:
                self.assertTrue(hasattr(module, name), name)


class Activations(Case):
    def test_names_in_short(self):
        _, cache = self.model.run_with_cache(PROMPT)
        for short, name in ((("pattern", 1), "blocks.1.attn.hook_pattern"),
                            (("resid_pre", 0), "blocks.0.hook_resid_pre"),
                            (("resid_post", -1), "blocks.3.hook_resid_post"), (("pattern", -4), "blocks.0.attn.hook_pattern"),
                            ("embed", "hook_embed"),
                            (("normalized.post", 0, "ln1"), "blocks.0.ln1.hook_normalized.post"),
                            (("post", 3), "blocks.3.mlp.hook_post"), (("scale", 2, "ln2"), "blocks.2.ln2.hook_scale")):
            self.same(cache[short], cache[name])
        with self.assertRaisesRegex(KeyError, "ln1.hook_scale or blocks.2.ln2.hook_scale"):
            cache["scale", 2]
        with self.assertRaisesRegex(KeyError, "is it blocks.0.attn.hook_pattern"):
            cache["blocks.0.attn.hook_patern"]
        for key, answer in (("blocks.1.hook_resid", "which begins blocks.1.hook_resid_pre, blocks.1.hook_resid_mid, "),
                            ("pattern", r'one of each layer: \["pattern", 0\]'), (("pattern", 4), "there is no layer 4"),
                            (("pattern", -5), "there is no layer -5"), ((..., -1), "a name comes first")):
            with self.assertRaisesRegex(KeyError, answer):
                cache[key]
        self.assertNotIn("hook_nothing", cache)

    def test_a_function_chooses_names(self):
        cache = self.model.run_with_cache(PROMPT, lambda name: name.endswith(("hook_z", "hook_result")))[1]
        self.assertEqual(len(cache), 8)
        whole = self.model.run_with_cache(PROMPT, "*.hook_attn_out")[1]["attn_out", -1]
        np.testing.assert_allclose(cache["result", -1].sum(1) + self.model.tensor("blocks.3.attn.b_O"), whole, atol=1e-4)
        with self.assertRaisesRegex(ValueError, "the function chose none of the 105"):
            self.model.run_with_cache(PROMPT, lambda name: False)

    def test_weights_of_an_autoencoder(self):
        """They are what encode and decode compute with."""
        sae, x = lens.load_sae("tiny-stories"), np.random.default_rng(1).standard_normal((3, 192)).astype(np.float32)
        self.assertEqual(repr(sae), "<attn.lens.SAE, autoencoder of blocks.2.hook_resid_pre: d_in 192, d_sae 512>")
        np.testing.assert_allclose(sae.decode(np.eye(512, dtype=np.float32)), sae.W_dec + sae.b_dec, atol=1e-6)
        features, before = sae.encode(x), (x - sae.b_dec) @ sae.W_enc + sae.b_enc
        self.assertGreater((features > 0).sum(), 10)
        np.testing.assert_allclose(features[features > 0], before[features > 0], atol=1e-4)
        sae.W_dec[:] = 0  # a copy
        self.assertTrue(sae.W_dec.any())

    def test_words_of_the_library_are_pythons(self):
        self.assertEqual(attn.__version__, attn.version())
        with self.assertRaisesRegex(ValueError, "at least one of fold_ln"):
            self.model.process_weights(fold_ln=False, center_writing_weights=False, center_unembed=False, fold_value_biases=False)
        self.assertRaisesRegex(attn.Error, r"^circuit\(\): head is 6; expected 0 to 5$", lens.circuit, self.model, 0, 6, "OV")

    def test_words_of_transformer_lens(self):
        """An attribute, a keyword or a value of TransformerLens's gets one sentence with the word of this package."""
        model, session = self.model, self.model.session()
        cache = model.run_with_cache(PROMPT)[1]
        for thing, word, answer in (
                (model, "cfg", "a Model has no cfg; here it is model.config"), (model, "W_Q", r'tensor\("blocks.0.attn.W_Q"\)'),
                (model, "W_U", "unembed.W_U"), (model, "b_in", "blocks.0.mlp.b_in"),
                (model, "generate", r"session\(\).generate"), (model, "nothing", "a Model has no nothing$"),
                (model, "embed", r'tensor\("embed.W_E"\)'), (model, "set_use_attn_result", "ask for the activation by its name"),
                (cache, "stack_activation", "numpy.stack"), (lens, "generic_activation_patch", "lens.patch"),
                (model, "OV", r'lens.circuit\(model, layer, head, "OV"\)'), (model, "eval", "nothing: arrays are NumPy's"),
                (model, "state_dict", r"model.tensor\(name\)"), (model, "all_composition_scores", "composition_scores"),
                (model.config, "n_heads", "n_heads; here it is n_head$"), (cache, "accumulated_resid", '"streams"'),
                (cache, "stack_head_results", '"heads"'), (cache, "logit_attrs", "model.logit_attrs"),
                (cache, "apply_ln_to_stack", "apply_ln=True"), (cache, "to", "nothing"), (cache, "other", "no other$"),
                (attn, "HookedTransformer", r'attn.load\("gpt2"\)'), (attn, "patching", "attn.lens.patch"),
                (model, "add_perma_hook", r"hook\(name, function\)"), (model, "input_to_embed", "stop_at_layer=0"),
                (model, "half", "nothing: arrays are NumPy's"), (model.config, "d_vocab_out", "n_vocab$"),
                (cache, "has_batch_dim", "without batch_dim=True"), (attn, "SVDInterpreter", r"\.svd\(\)"),
                (lens.circuit(model, 0, 0, "OV"), "U", r"svd\(\)\[0\]$"), (lens, "layer_pos_patch_setter", "attn.lens.patch"),
                (lens, "get_act_patch_resid_pre", '"hook_resid_pre", "positions"'),
                (lens, "get_act_patch_attn_head_v_by_pos", '"attn.hook_v", "position_heads"'),
                (model.tokenizer, "eos_token_id", "model.config.eos$"), (model.tokenizer, "batch_decode", "model.to_string"),
                (model.tokenizer, "other", "no other$"), (attn, "from_pretrained", r'attn.load\("gpt2"\)'),
                (lens.SAE, "from_pretrained", r"attn.lens.SAE\(directory\)"), (lens.load_sae("tiny-stories"), "cfg", "d_sae"),
                (lens.load_sae("tiny-stories"), "other", "an SAE has no other$")):
            self.assertRaisesRegex(AttributeError, answer, getattr, thing, word)
        for call, answer in (
                (lambda: model.run_with_cache(PROMPT, names_filter=[]), r"run_with_cache\(\) takes no names_filter; here it is names$"),
                (lambda: model(PROMPT, return_type="loss"), r"model.score\(tokens\).nll"),
                (lambda: session.generate(PROMPT, max_new_tokens=3), "here it is max_tokens$"),
                (lambda: session.generate(PROMPT, temperature=1), r"sampling=attn.Sampling\(temperature=...\)"),
                (lambda: model.score(PROMPT, topk=3), "here it is k$"), (lambda: model.score(PROMPT, top_k=3), "here it is k$"),
                (lambda: session.edit("hook_embed", "zero", head=1), "here it is heads$"),
                (lambda: model(PROMPT, stop_at_layer=2), r"^model\(\) takes no stop_at_layer; .*feed\(tokens, stop_at_layer=...\)"),
                (lambda: attn.load("induction", fold_ln=True), "model.process_weights"),
                (lambda: lens.logit_diff(" was", position=-2), "here it is from_end$"),
                (lambda: lens.log_prob(" was", topk=2), "unexpected keyword argument 'topk'"),
                (lambda: model(PROMPT, nonsense=1), "unexpected keyword argument 'nonsense'"),
                (lambda: session.hook("hook_embed", print, is_permanent=True), "as long as its session"),
                (lambda: session.record(names_filter="hook_embed"), "here it is names$"),
                (lambda: model.to_str_tokens(PROMPT, padding_side="left"), "leave it out"),
                (lambda: attn.load("induction", checkpoint_index=3), "attn-convert"),
                (lambda: lens.decompose_resid(model, PROMPT, return_labels=True), "labels of what is returned"),
                (lambda: model.run_with_hooks(PROMPT, [("*.hook_z", lambda z, hook: hook.layer())]), "point.layer, without"),
                (lambda: lens.logit_lens(model, cache), r"model.logit_lens\(cache\) takes one"),
                (lambda: lens.steering_vector(model, lambda name: True, PROMPT, "The cat"), "one activation, such as"),
                (lambda: model.tokenizer(PROMPT), r"model.to_tokens\(text\)"),
                (lambda: model.run_with_cache([PROMPT]), "got 1 text in a list, and a call takes one"),
                (lambda: model.run_with_cache([PROMPT, PROMPT]), "got 2 texts, and a call takes one")):
            self.assertRaisesRegex(TypeError, answer, call)
        with self.assertRaisesRegex(AttributeError, "ctx; here it is a variable of your own"):
            model.run_with_hooks(PROMPT, [("hook_embed", lambda value, hook: hook.ctx)])
        for line, answer in (("from attn import HookedTransformer", r'attn.load\("gpt2"\)'),
                             ("from attn.lens import get_act_patch_attn_out", '"hook_attn_out", "positions"'),
                             ("from attn import nothing", "cannot import name 'nothing'")):
            with self.assertRaisesRegex(ImportError, answer):
                exec(line)
        self.assertFalse(hasattr(attn, "HookedTransformer"))
        self.assertRaisesRegex(ValueError, r"shape \[2, 2\]; a call takes one", model, [[1, 2], [3, 4]])
        with self.assertRaisesRegex(KeyError, r'made on request: run_with_cache\(tokens, \["\*", "\*.hook_result"\]\)'):
            cache["result", 0]
        self.assertEqual(model.run_with_cache(PROMPT, ["*", "*.hook_result"])[1]["result", 0].shape, (4, 6, 192))
        self.fails(attn.Status.NAME, 'here it is model.tensor("blocks.0.attn.W_Q")', model.tensor, "W_Q")
        self.assertRaisesRegex(ValueError, "ends in .safetensors or .npz, not like x.pt", cache.save, "x.pt")
        with self.fails(attn.Status.CONTEXT, "do not fit; call truncate(), or make"):
            model.session(2).feed(PROMPT)
        pair = lens.Pair(PROMPT, PROMPT, lens.loss())
        for name in ("blocks.0.attn.hook_z", "z", "hook_z"):
            with self.fails(attn.Status.NAME, f'no layer has an activation {name}; is it "attn.hook_z", of all layers?'):
                lens.patch(model, pair, name)
        self.assertRaisesRegex(TypeError, 'such as "attn.hook_z"', lens.patch, model, pair, lambda name: True)
        self.fails(attn.Status.ARGUMENT, "path_patch(): no sender", lens.path_patch, model, pair, [], [(1, "hook_resid_pre")])
        for receiver in ((1, "hook_resid_pre", 2), (1, "hook_mlp_in", 0), (1, "hook_q_input")):  # as the program refuses them
            self.assertRaisesRegex(ValueError, "receivers is .*; expected", lens.path_patch, model, pair, [(0, 1)], [receiver])
        self.assertIn("of 81 activations", repr(cache))

    def test_words_of_transformer_lens_that_work(self):
        model = self.model
        cache = model.run_with_cache(PROMPT)[1]
        self.same(model.tensor("W_E"), model.tensor("embed.W_E"))
        for key, name in ((("attn", 1), ("pattern", 1)), (("k", 2, "a"), ("k", 2)), (("mlp_post", -1), ("post", 3)),
                          (("resid_pre", 1, "blocks"), ("resid_pre", 1)), ("scale", "ln_final.hook_scale")):
            self.same(cache[key], cache[name])
        with self.assertRaisesRegex(KeyError, "a name comes first"):
            cache[0]
        streams = np.stack([cache["resid_pre", layer] for layer in range(4)] + [cache["resid_post", 3]])
        self.same(model.logit_lens(cache), model.logit_lens(streams))
        z, seen = "blocks.1.attn.hook_z", []
        with model.session() as session:
            with session.edit(z, "zero", heads=[2, 3]):
                both = session.feed(PROMPT)
            session.truncate(0)
            with session.edit(z, "zero", heads=slice(2, 4)):
                self.same(session.feed(PROMPT), both)
            for heads in (np.array([2, 3]), range(2, 4)):
                session.truncate(0)
                with session.edit(z, "zero", heads=heads):
                    self.same(session.feed(PROMPT), both)
            session.truncate(0)
            with session.edit([z], "zero", heads=np.int64(2)), session.edit(z, "zero", heads=3):
                self.same(session.feed(PROMPT), both)
            self.assertRaisesRegex(ValueError, r"\[0, 2\] make one edit for each", session.edit, z, "zero", heads=[0, 2])
            with self.fails(attn.Status.NAME, "attn.hook_zz"):  # and then no hook of the list stays
                session.hook([z, "blocks.1.attn.hook_zz"], lambda value, point: seen.append(point))
            self.assertRaisesRegex(ValueError, "the list of names is empty", session.hook, [], print)
            with session.edit(lambda name: name.endswith("hook_z"), "zero"):
                session.truncate(0)
                none = session.feed(PROMPT)
            session.truncate(0)
            with session.edit("*.hook_z", "zero"):
                self.same(session.feed(PROMPT), none)
            with session.hook(lambda name: name.endswith("resid_post"), lambda value, point: seen.append(point.layer)):
                session.feed([5])
            session.feed([5])
        self.assertEqual(seen, [0, 1, 2, 3])
        pair = lens.Pair(PROMPT, PROMPT, lens.loss())
        patched = [lens.patch(model, pair, "hook_resid_pre", edits=[lens.Edit(names, "zero")]).clean for names in
                   ("*.hook_z", lambda name: name.endswith("hook_z"), [f"blocks.{layer}.attn.hook_z" for layer in range(4)])]
        self.assertEqual(patched, [patched[0]] * 3)
        self.assertNotEqual(patched[0], lens.patch(model, pair, "hook_resid_pre").clean)
        gradients = lens.Backward(model).gradients(PROMPT, lens.loss(), lambda name: "resid_post" in name).gradient
        self.assertEqual(len(gradients), 4)
        self.same(gradients["resid_post", -1], gradients["blocks.3.hook_resid_post"])
        self.assertIn("blocks.0.attn.hook_result", model.activation_names())
        text = model.session().generate(PROMPT, max_tokens=3)
        self.assertIn("not begun: read() writes the text", str(text))
        self.assertEqual(text.text, ", there was")
        self.assertIn("ended by token count", repr(text))
        begun = model.session().generate(PROMPT, max_tokens=3)
        self.assertEqual((next(begun), begun.text), (",", ","))

    def test_batch_dimension(self):
        batched, hooked = attn.Model(STORIES, batch_dim=True), []

        def without_a_head(z, point):
            hooked.append(z.shape)
            changed = z.copy()
            changed[:, :, 3] = 0
            return changed

        def the_same(z, point):
            z[:, 3] = 0

        want, names = self.model.run_with_cache(PROMPT), "blocks.2.attn.hook_z"
        tokens = batched.to_tokens(PROMPT)
        logits, cache = batched.run_with_cache(tokens)
        self.assertEqual(tokens.shape, (1, 4))
        self.same(logits, want[0][None])
        for name in cache:
            self.same(cache[name], want[1][name][None])
        self.same(batched.run_with_hooks(tokens, [(names, without_a_head)])[0],
                  self.model.run_with_hooks(PROMPT, [(names, the_same)]))
        self.assertEqual(hooked, [(1, 4, 6, 32)])
        self.same(batched.session().feed(tokens), want[0][-1])
        self.same(batched.detect_heads(PROMPT)[1], self.model.detect_heads(PROMPT)[1])
        self.assertTrue(batched.process_weights().batch_dim)

    def test_record_of_a_text_fed_in_parts(self):
        whole = self.model.run_with_cache(PROMPT)[1]
        with self.model.session() as session:
            record = session.record(["*.hook_resid_post", "*.hook_pattern"], n_positions=4)
            session.feed(PROMPT_IDS[:3])
            early = record["blocks.1.hook_resid_post"]
            self.assertEqual(early.shape, (3, 192))
            session.feed(PROMPT_IDS[3:])
        for name in record:
            self.same(record[name], whole[name])
        self.same(early, whole["blocks.1.hook_resid_post"][:3])
        path = pathlib.Path(scratch.name) / "acts.npz"
        record.save(path)
        with np.load(path) as saved:
            self.assertEqual(set(saved), set(record))
            for name in record:
                self.same(saved[name], record[name])

    def test_weights(self):
        weights = read_safetensors(ROOT / "tests" / "golden" / "odd" / "model.safetensors")
        model = model_of("odd")
        c = model.config
        qkv = weights["h.1.attn.c_attn.weight"]
        for i, letter in enumerate("QKV"):
            part = qkv[:, i * c.d_model:(i + 1) * c.d_model].reshape(c.d_model, c.n_head, c.d_head)
            self.same(model.tensor(f"blocks.1.attn.W_{letter}"), part.transpose(1, 0, 2))
        self.same(model.tensor("embed.W_E"), weights["wte.weight"])
        self.same(model.tensor("unembed.W_U"), weights["lm_head.weight"].T)
        self.assertIn("blocks.0.attn.W_QKV", model.tensor_names())

    def test_meta(self):
        meta = attn.Model(STORIES).meta
        self.assertEqual((meta["name"], meta["license"]), ("tiny-stories", "mit"))
        self.assertEqual(list(meta), ["checkpoint_sha256", "converter", "license", "name"])
        self.assertEqual(meta["checkpoint_sha256"], hashlib.sha256(
            (ROOT / "examples" / "tiny-stories" / "model.safetensors").read_bytes()).hexdigest())
        self.assertEqual(attn.Model(STORIES).process_weights(center_unembed=False).meta,
                         dict(meta, processed="fold_ln center_writing_weights fold_value_biases"))


class Hooks(Case):
    def test_values_come_by_and_count(self):
        seen = {}

        def look(value, point):
            seen[point.name, point.layer, point.first] = value.copy()

        want = self.model.run_with_cache(PROMPT)
        got = self.model.run_with_hooks(PROMPT, [("*.hook_resid_post", look), ("hook_embed", look)])
        self.same(got, want[0])
        self.assertEqual(len(seen), 5)
        for (name, layer, first), value in seen.items():
            self.same(value, want[1][name])
            self.assertEqual((layer, first), (int(name.split(".")[1]) if name[0] == "b" else None, 0))

    def test_writing_and_returning_are_edits(self):
        def write(value, point):
            value[:, 3] = 0

        def give(value, point):
            changed = value.copy()
            changed[:, 3] = 0
            return changed

        def give_in_place(value, point):
            value[:, 3] = 0
            return value

        name = "blocks.2.attn.hook_z"
        plain = self.model(PROMPT)[-1]
        with self.model.session() as session:
            with session.edit(name, "zero", heads=3):
                want = session.feed(PROMPT)
            session.truncate(0)
            self.same(session.feed(PROMPT), plain)
        self.assertFalse(np.array_equal(want, plain))
        for fn in (write, give, give_in_place):
            self.same(self.model.run_with_hooks(PROMPT, [(name, fn)])[-1], want)

    def test_edits_are_what_they_say(self):
        """Against a function that does the same in NumPy."""
        rng = np.random.default_rng(1)
        value = rng.normal(size=(2, 192)).astype(np.float32)
        heads = rng.normal(size=(4, 2, 32)).astype(np.float32)
        both = {"positions": slice(1, 3)}
        cases = [("hook_resid_mid", "set", value, both, lambda x: x.__setitem__(slice(1, 3), value)),
                 ("hook_resid_mid", "add", value / 2, both, lambda x: x.__setitem__(slice(1, 3), x[1:3] + value / 2)),
                 ("hook_mlp_out", "zero", None, {"positions": 2}, lambda x: x.__setitem__(2, 0)),
                 ("hook_resid_mid", "mean", value, {}, lambda x: x.__setitem__(slice(None), value.mean(0))),
                 ("attn.hook_z", "set", heads, {"heads": slice(4, None)},
                  lambda x: x.__setitem__((slice(None), slice(4, None)), heads)),
                 ("attn.hook_z", "zero", None, {"heads": 5, "positions": slice(2, None)},
                  lambda x: x.__setitem__((slice(2, None), 5), 0))]
        for name, kind, given, where, numpy_does in cases:
            with self.subTest(f"{kind} {name}"):
                name = "blocks.1." + name
                with self.model.session() as session:
                    session.edit(name, kind, given, **where)
                    got = session.feed(PROMPT)
                want = self.model.run_with_hooks(PROMPT, [(name, lambda value, point: numpy_does(value))])[-1]
                self.assertLess(np.abs(got - want).max(), 1e-5)
                self.assertGreater(np.abs(got - self.model(PROMPT)[-1]).max(), 1e-3)
        with self.model.session() as session:
            session.edit("blocks.1.hook_resid_mid", "add", 0 * value[0])
            self.assertTrue((session.feed(PROMPT) == self.model(PROMPT)[-1]).all())

    def test_an_exception_comes_out_and_the_session_is_as_before(self):
        class Odd(BaseException):
            pass

        for kind in (ValueError("no"), KeyboardInterrupt(), Odd(), SystemExit(3)):
            with self.model.session() as session:
                before = session.feed(PROMPT_IDS[:2])

                def fail(value, point):
                    value[:] = 0
                    raise kind

                hook = session.hook("blocks.2.hook_resid_pre", fail)
                with self.assertRaises(type(kind)) as caught:
                    session.feed(PROMPT_IDS[2:])
                self.assertIs(caught.exception, kind)
                self.assertEqual((list(session.tokens), len(session)), (PROMPT_IDS[:2], 2))
                self.same(session.logits, before)
                hook.remove()
                self.same(session.feed(PROMPT_IDS[2:]), self.model(PROMPT)[-1])

    def test_exceptions_in_every_call_that_runs_python(self):
        def fail(*_):
            raise ZeroDivisionError

        model, session = self.model, self.model.session()
        session.hook("hook_embed", fail)
        calls = [lambda: attn.Model(STORIES, progress=fail), lambda: session.score(PROMPT),
                 lambda: session.generate(PROMPT), lambda: attn.feed_batch([session], [PROMPT]),
                 lambda: model.generate_many([PROMPT], logits_fn=fail),
                 lambda: next(model.session().generate(PROMPT, logits_fn=fail)),
                 lambda: lens.patch(model, lens.Pair(PROMPT, PROMPT, lens.function(fail)), "hook_resid_pre")]
        for call in calls:
            self.assertRaises(ZeroDivisionError, call)
        self.assertEqual(len(session), 0)

    def test_wrong_shapes_and_names(self):
        with self.assertRaisesRegex(ValueError, r"gave shape \[1\]; expected \[4, 192\], or None"):
            self.model.run_with_hooks(PROMPT, [("blocks.0.hook_resid_pre", lambda value, point: np.zeros(1))])
        self.fails(attn.Status.NAME, "attn.hook_pattern", self.model.session().hook, "blocks.0.attn.hook_patern", print)
        with self.fails(attn.Status.SHAPE, "hook_resid_pre"):
            self.model.session().edit("blocks.0.hook_resid_pre", "set", np.zeros((2, 7)))
        session = self.model.session()
        for wrong in ({"positions": -1}, {"positions": slice(0, 4, 2)}, {"heads": slice(3, 3)}, {"value": np.zeros(3)}):
            self.assertRaises(ValueError, session.edit, "blocks.0.attn.hook_z", "zero", **wrong)
        self.assertRaises(ValueError, session.edit, "blocks.0.attn.hook_z", "nought")
        self.assertRaises(ValueError, session.edit, "blocks.0.attn.hook_z", "add")

    def test_hooks_are_removed_in_any_order_and_by_themselves(self):
        calls = []
        with self.model.session() as session:
            hooks = [session.hook("hook_embed", lambda value, point, i=i: calls.append(i)) for i in range(3)]
            hooks[1].remove()
            session.feed(PROMPT_IDS[:1])
            self.assertEqual(calls, [0, 2])

            def once(value, point):
                calls.append("once")
                third.remove()
                gc.collect()

            third = session.hook("hook_embed", once)
            session.feed(PROMPT_IDS[:1])
            session.feed(PROMPT_IDS[:1])
            self.assertEqual(calls[2:], [0, 2, "once", 0, 2])
            session.unhook_all()
            session.feed(PROMPT_IDS[:1])
            self.assertEqual(len(calls), 7)
            with self.fails(attn.Status.ARGUMENT, "hook"):
                hooks[0].remove()

    def test_a_hook_may_close_its_session(self):
        session = self.model.session()
        session.hook("hook_embed", lambda value, point: session.close())
        with self.fails(attn.Status.ARGUMENT, "the session is closed"):
            session.feed(PROMPT)
            len(session)

    def test_a_hook_may_run_the_model(self):
        other = []
        self.model.run_with_hooks(PROMPT, [("hook_embed", lambda value, point: other.append(self.model("The cat")))])
        self.same(other[0], self.model("The cat"))


class Lifetimes(Case):
    """Arrays that a call gave stay; those that a hook was lent do not, and keeping one is an error."""

    def test_a_cache_outlives_its_model(self):
        model = attn.Model(STORIES)
        _, cache = model.run_with_cache(PROMPT)
        view = cache["blocks.3.hook_resid_post"][1:, ::2]
        want = view.copy()
        memory = weakref.ref(cache._memory)
        gone = weakref.ref(model._handle)
        del model, cache
        gc.collect()
        self.assertIsNone(gone())
        self.assertIsNotNone(memory())
        blocks = [np.full(1 << 20, 7, np.float32) for _ in range(8)]
        self.same(view, want)
        del view, blocks
        self.assertIsNone(memory())

    def test_weights_outlive_their_model(self):
        model = attn.Model(STORIES)
        w = model.tensor("blocks.0.attn.W_Q")[0]
        want = w.copy()
        del model
        gc.collect()
        self.same(w, want)

    def test_sessions_outlive_a_closed_model(self):
        with attn.Model(STORIES) as model:
            session, tokenizer = model.session(), model.tokenizer
        self.fails(attn.Status.ARGUMENT, "the model is closed", model.tensor, "embed.W_E")
        self.same(session.feed(PROMPT_IDS), self.model(PROMPT)[-1])
        self.assertEqual(tokenizer.decode(PROMPT_IDS), PROMPT)

    def test_keeping_a_lent_array_is_an_error(self):
        kept = []
        for keep in (lambda value, point: kept.append(value), lambda value, point: kept.append(value[0]),
                     lambda value, point: kept.append(value[:1].view(np.int32))):
            with self.fails(attn.Status.ARGUMENT, "keep a copy, array.copy()"):
                self.model.run_with_hooks(PROMPT, [("blocks.0.hook_resid_pre", keep)])
            kept.clear()
        self.model.run_with_hooks(PROMPT, [("hook_embed", lambda value, point: kept.append(value.copy()))])

        def in_a_cycle(value, point):
            cycle = [value]
            cycle.append(cycle)

        self.model.run_with_hooks(PROMPT, [("hook_embed", in_a_cycle)])

    def test_memory_comes_back(self):
        def resident():
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1])

        if not pathlib.Path("/proc/self/statm").exists():
            self.skipTest("there is no /proc")

        def work():
            for _ in range(60):
                session = self.model.session()
                record = session.record()
                session.hook("hook_embed", lambda value, point: None)
                session.edit("hook_embed", "add", np.zeros(192))
                session.feed(PROMPT)
                self.model.tensor("embed.W_E")
                record["hook_embed"]

        work()
        gc.collect()
        before = resident()
        work()
        gc.collect()
        self.assertLess((resident() - before) * os.sysconf("SC_PAGE_SIZE"), 20e6)

    def test_garbage_in_a_pass_waits(self):
        """A record and a session that vanish in the middle of a pass of their workspace."""
        workspace = self.model.workspace()
        session, other = (self.model.session(workspace=workspace) for _ in range(2))
        things = [other, session.record("*.hook_z", n_positions=4)]
        handles = [weakref.ref(thing._open) for thing in things]
        alive = []
        del other

        def drop(value, point):
            things.clear()
            gc.collect()
            alive.extend(handle() is not None for handle in handles)

        session.hook("blocks.0.hook_resid_pre", drop)
        self.same(session.feed(PROMPT), self.model(PROMPT)[-1])
        self.assertEqual((alive, [handle() for handle in handles]), ([True, True], [None, None]))

    def test_close_twice_and_use_after(self):
        session = self.model.session()
        session.feed(PROMPT)
        record = session.record(n_positions=1, first=4)
        session.close()
        session.close()
        self.assertEqual(record["hook_embed"].shape, (0, 192))
        for use in (lambda: session.feed(PROMPT), lambda: len(session), lambda: session.logits,
                    lambda: session.hook("hook_embed", print)):
            self.fails(attn.Status.ARGUMENT, "the session is closed", use)


class Text(Case):
    def c_program(self, *options, prompt=PROMPT):
        return run(BUILD / "gpt2", STORIES, "--quiet", "--no-prompt", *options, "--", prompt).decode()

    def test_generate_is_the_c_program(self):
        S = attn.Sampling
        cases = [("-n200",), ("-n60", "--temperature=0.8", "--top-k=40", "--seed=3"),
                 ("-n60", "--temperature=1.2", "--top-p=0.9", "--seed=18446744073709551615"),
                 ("-n60", "--temperature=1.5", "--min-p=0.05", "--repeat-penalty=1.3", "--repeat-last=16", "-s9")]
        ours = [{"max_tokens": 200}, {"max_tokens": 60, "sampling": S(temperature=0.8, top_k=40, seed=3)},
                {"max_tokens": 60, "sampling": S(temperature=1.2, top_p=0.9, seed=2**64 - 1)},
                {"max_tokens": 60, "sampling": S(temperature=1.5, min_p=0.05, repeat_penalty=1.3, repeat_last=16,
                                                 seed=9)}]
        for options, settings in zip(cases, ours):
            want = self.c_program(*options).removesuffix("\n")
            self.assertEqual(self.model.session().generate(PROMPT, **settings).read(), want)
            self.assertEqual(self.model.generate_many([PROMPT], **settings)[0].text, want)
        ids = self.c_program("-n300", "--ignore-eos", "--print-ids", "--temperature=1", "-s5", prompt="The cat")
        text = self.model.session().generate("The cat", max_tokens=300, ignore_eos=True,
                                             sampling=S(temperature=1, seed=5))
        text.read()
        self.assertEqual(text.ids, [int(i) for i in ids.split()])
        self.assertEqual(text.reason, "context full")

    def test_the_session_holds_what_was_given(self):
        session = self.model.session()
        text = session.generate(PROMPT, max_tokens=20)
        self.assertIsInstance(text, collections.abc.Iterator)
        for i, piece in enumerate(text):
            self.assertEqual(list(session.tokens), PROMPT_IDS + text.ids)
            if i == 5:
                session.edit("blocks.3.hook_mlp_out", "zero")  # in the middle of a text
        self.assertEqual((text.reason, len(text.ids)), ("token count", 20))
        self.assertNotEqual(text.text, self.model.session().generate(PROMPT, max_tokens=20).read())
        self.assertEqual(text.text, self.model.to_string(text.ids))

    def test_stop_strings(self):
        whole = self.model.session().generate(PROMPT, max_tokens=60).read()
        for stop in ("Lily", ["Lily"], [" girl named Li", "girl"], [" w", ". "], ["xyz"], [whole[-5:]]):
            many = self.model.generate_many([PROMPT], max_tokens=60, stop=stop)[0]
            one = self.model.session().generate(PROMPT, max_tokens=60, stop=stop)
            self.assertEqual((one.read(), one.reason, one.ids), tuple(many[i] for i in (0, 2, 1)))
        self.assertEqual(self.model.generate_many(PROMPT, max_tokens=3), self.model.generate_many([PROMPT], max_tokens=3))
        with self.assertRaisesRegex(ValueError, "max_tokens is 1.*; expected a whole number from 1 on"):
            self.model.generate_many(PROMPT, max_tokens=10**30)
        self.assertEqual(attn._cut(b"abab", [b"babx"]), (b"a", b"bab", False))
        self.assertEqual(attn._cut(b"one two", [b"two", b"e tw"]), (b"on", b"", True))
        self.assertRaises(ValueError, self.model.session().generate, PROMPT, stop=["a", ""])

    def test_texts_with_a_nul(self):
        model = self.model
        self.assertEqual(len(model.tokenizer.encode("Once\0upon")), 4)
        session = model.session()
        session.generate("Once\0upon", max_tokens=5).read()
        self.assertEqual(len(session), 9)
        wrong = "a\0b"
        for call in (lambda: model.generate_many(["Once"], stop=wrong), lambda: model.to_single_token(wrong),
                     lambda: model.tensor("embed.W_E\0x"), lambda: attn.Model(str(STORIES) + "\0x"),
                     lambda: session.hook("hook_embed\0x", print), lambda: session.edit("hook_embed\0x", "zero")):
            self.assertRaisesRegex(ValueError, "NUL|null", call)

    def test_a_stop_string_is_not_a_broken_character(self):
        settings = {"max_tokens": 24, "sampling": attn.Sampling(temperature=1.5, seed=1), "ignore_eos": True}
        for prompt in (PROMPT, "The cat"):
            for stop in ("\ufffd", "\ufffd\ufffd", "e"):
                one = self.model.session().generate(prompt, stop=stop, **settings)
                many = self.model.generate_many([prompt], stop=stop, **settings)[0]
                self.assertEqual((one.read(), one.reason, one.ids), (many.text, many.reason, many.ids))

    def test_a_top_p_of_0_keeps_the_likeliest(self):
        def written(**more):
            return self.model.session().generate(PROMPT, max_tokens=8, sampling=attn.Sampling(**more)).read()
        self.assertEqual(written(temperature=1.5, seed=5, top_p=0), written())
        self.assertEqual(written(temperature=1.5, seed=5, top_p=1), written(temperature=1.5, seed=5))
        self.assertNotEqual(written(temperature=1.5, seed=5), written())

    def test_log_probabilities_of_generated_ids(self):
        for text, prompt in zip(self.model.generate_many([PROMPT, "A"], max_tokens=20), (PROMPT, "A")):
            ids = [int(i) for i in self.model.tokenizer.encode(prompt)]
            nll = self.model.score(ids + text.ids).nll[len(ids) - 1:]
            self.assertEqual(text.log_probs, [-float(x) for x in nll])

    def test_a_sampler_goes_on(self):
        settings = attn.Sampling(temperature=1, seed=7)
        whole = self.model.session().generate(PROMPT, max_tokens=30, sampling=settings)
        whole.read()
        session, sampler, ids = self.model.session(), attn.Sampler(self.model, settings), []
        session.feed(PROMPT)
        for n in (1, 9, 20):
            part = session.generate(max_tokens=n, sampling=sampler)
            part.read()
            ids += part.ids
        self.assertEqual(ids, whole.ids)
        self.assertEqual(attn.Sampler(self.model).sample(self.model(PROMPT)[-1]), self.model(PROMPT)[-1].argmax())

    def test_logits_fn_constrains(self):
        allowed = [self.model.to_single_token(word) for word in (" cat", " dog")]

        def only(logits):
            chosen = logits[allowed].copy()
            logits[:] = -np.inf
            logits[allowed] = chosen

        sampling = attn.Sampling(temperature=99)
        text = self.model.session().generate(PROMPT, max_tokens=20, logits_fn=only, sampling=sampling)
        self.assertEqual(set(text.read().split()), {"cat", "dog"})
        many = self.model.generate_many([PROMPT, "A"], max_tokens=20, logits_fn=only, sampling=sampling)
        self.assertEqual(many[0].ids, text.ids)
        self.assertLessEqual(set(many[1].text.split()), {"cat", "dog"})

    def test_tokenizer(self):
        tokenizer = self.model.tokenizer
        self.assertEqual(len(tokenizer), 2048)
        self.assertEqual(list(tokenizer.encode("<|endoftext|>", allow_special=True)), [2047])
        self.assertGreater(len(tokenizer.encode("<|endoftext|>")), 1)
        self.assertEqual(self.model.to_str_tokens(PROMPT), ["Once", " upon", " a", " time"])
        self.assertEqual(list(self.model.to_tokens(PROMPT, prepend_bos=True)), [2047] + PROMPT_IDS)
        self.assertEqual(tokenizer.encode("ü€😀").tolist(), tokenizer.encode("ü€😀".encode()).tolist())
        self.fails(attn.Status.TOKEN, "Once upon", self.model.to_single_token, "Once upon")
        self.assertRaises(UnicodeEncodeError, tokenizer.encode, "\ud800")

    def test_the_name_of_a_special_token(self):
        text = "<|endoftext|>Once"
        with self.assertWarnsRegex(UserWarning, r"tokens: the name of a special token .* attn.load\(..., special=True\)"):
            self.model.score(text)
        self.assertIn("the option special", lens.query(self.model, "tokens", text).notes[0])
        with warnings.catch_warnings(action="error"):
            for special, n in (True, 2), (False, 4):
                self.assertEqual(len(attn.Model(STORIES, special=special).to_tokens(text)), n)

    def test_pieces_are_whole_characters(self):
        encode = self.model.tokenizer.encode
        ids = [int(token) for byte in "aü€😀".encode() for token in encode(bytes([byte]))]
        ids += [int(encode(b"\xe2")[0])] * 2
        order = iter(ids)

        def say(logits):
            logits[:] = -np.inf
            logits[next(order)] = 0

        pieces = list(self.model.session().generate(PROMPT, max_tokens=len(ids), logits_fn=say))
        self.assertEqual(pieces, ["a", "ü", "€", "😀", "\ufffd", "\ufffd"])
        order = iter(ids)
        many = self.model.generate_many([PROMPT], max_tokens=len(ids), logits_fn=say)[0]
        self.assertEqual(many.text, "".join(pieces))


class Studies(Case):
    clean, corrupted = "The cat said that she", "The boy said that she"

    def pair(self, metric=None):
        return lens.Pair(self.clean, self.corrupted, metric or lens.logit_diff(" was", " had"))

    def difference(self, logits):
        right, wrong = (self.model.to_single_token(word) for word in (" was", " had"))
        return np.float32(logits[right] - logits[wrong])

    def run_edited(self, *edits):
        """The metric of the corrupted text with edits, each the arguments of Session.edit and its options."""
        with self.model.session() as session:
            for name, kind, value, options in edits:
                session.edit(name, kind, value, **options)
            return self.difference(session.feed(self.corrupted))

    def test_patching_is_a_loop_over_edits(self):
        cache = self.model.run_with_cache(self.clean)[1]
        n = len(self.model.to_tokens(self.clean))
        for name in ("hook_resid_pre", "hook_mlp_out"):
            got = lens.patch(self.model, self.pair(), name)
            self.assertEqual((got.clean, got.corrupted), tuple(
                self.difference(self.model(text)[-1]) for text in (self.clean, self.corrupted)))
            for layer, position in itertools.product(range(4), range(n)):
                full = f"blocks.{layer}.{name}"
                self.assertEqual(self.run_edited((full, "set", cache[full][position], {"positions": position})),
                                 got.effect[layer, position])
            metric = lens.function(self.difference, from_end=0)
            self.same(lens.patch(self.model, self.pair(metric), name).effect, got.effect)
        heads = lens.patch(self.model, self.pair(), "attn.hook_z", "heads").effect
        both = lens.patch(self.model, self.pair(), "attn.hook_z", "position_heads").effect
        for layer, head in itertools.product(range(4), range(6)):
            full = f"blocks.{layer}.attn.hook_z"
            value = cache[full][:, head:head + 1]
            self.assertEqual(self.run_edited((full, "set", value, {"heads": head})), heads[layer, head])
            self.assertEqual(self.run_edited((full, "set", value[3], {"heads": head, "positions": 3})),
                             both[layer, 3, head])
        ablated = ("blocks.0.attn.hook_z", "zero", None, {"heads": 2})
        got = lens.patch(self.model, self.pair(), "hook_resid_pre", edits=[lens.Edit(*ablated[:2], heads=2)])
        self.assertEqual(got.corrupted, self.run_edited(ablated))
        got = lens.patch(self.model, [self.pair(), self.pair()], "hook_resid_pre", normalize=True).effect
        self.assertLess(abs(got[0, 1] - 1), 1e-6)  # the token that differs repairs all
        self.assertEqual(lens.patch(self.model, self.pair(), "attn.hook_pattern", "weights").effect.shape, (4, 6, n, n))
        self.assertEqual(lens.patch(self.model, self.pair(), "attn.hook_pattern", "source_heads").effect.shape, (4, n, 6))
        with self.assertRaisesRegex(ValueError, "4 tokens and the corrupted one 5"):
            lens.patch(self.model, lens.Pair(PROMPT, self.clean, lens.loss()), "hook_resid_pre")
        with self.fails(attn.Status.NAME, "is it \"hook_mlp_out\", of all layers?"):
            lens.patch(self.model, self.pair(), "hook_mlp_oud")

    def test_path_patching(self):
        name = "blocks.1.attn.hook_result"
        results = [self.model.run_with_cache(text, name)[1][name][:, 4] for text in (self.clean, self.corrupted)]
        got = lens.path_patch(self.model, self.pair(), [(1, 4)], [(4, "hook_resid_pre")]).effect
        want = self.run_edited(("blocks.3.hook_resid_post", "add", results[0] - results[1], {}))
        self.assertLess(abs(float(got[0]) - float(want)), 1e-5)
        senders = [(0, 1), (1, 4)]
        receivers = [(2, "hook_q_input", 3), (3, "hook_mlp_in")]
        each = lens.path_patch(self.model, self.pair(), senders, receivers, each_receiver=True, mlps="through").effect
        self.assertEqual(each.shape, (2, 2))
        for i, j in itertools.product(range(2), range(2)):
            one = lens.path_patch(self.model, self.pair(), senders[i:i + 1], receivers[j:j + 1], mlps="through")
            self.assertEqual(one.effect[0], each[i, j])
        for sender, name in (((1, "mlp"), "blocks.1.hook_mlp_out"), ("embed", "blocks.0.hook_resid_pre")):
            wrote = [self.model.run_with_cache(text, name)[1][name] for text in (self.clean, self.corrupted)]
            got = lens.path_patch(self.model, self.pair(), [sender], [(4, "hook_resid_pre")]).effect
            want = self.run_edited(("blocks.3.hook_resid_post", "add", wrote[0] - wrote[1], {}))
            self.assertLess(abs(float(got[0]) - float(want)), 1e-5)
        self.assertRaises(TypeError, lens.path_patch, self.model, self.pair(), [(1, "attn")], receivers)
        edited = lens.path_patch(self.model, self.pair(), [(1, 4)], receivers,
                                 edits=[lens.Edit("blocks.0.attn.hook_z", "zero", heads=2)])
        self.assertEqual(edited.corrupted, self.run_edited(("blocks.0.attn.hook_z", "zero", None, {"heads": 2})))
        with self.fails(attn.Status.ARGUMENT, "no path leads"):
            lens.path_patch(self.model, self.pair(), [(3, 0)], [(1, "hook_mlp_in")])

    def test_gradients(self):
        back, name = lens.Backward(self.model), "blocks.2.hook_resid_pre"
        got = back.gradients(self.corrupted, lens.logit_diff(" was", " had"), [name])
        self.assertEqual(list(got.gradient), [name])
        self.assertEqual(np.float32(got.value), self.run_edited())
        change = ("blocks.3.hook_mlp_out", "zero", None)
        edited = back.gradients(self.corrupted, lens.logit_diff(" was", " had"), name, edits=lens.Edit(*change))
        self.assertEqual(np.float32(edited.value), self.run_edited((*change, {})))
        cache = [self.model.run_with_cache(text, name)[1][name] for text in (self.clean, self.corrupted)]
        want = ((cache[0] - cache[1]) * got.gradient[name]).sum(-1)
        self.assertLess(np.abs(back.attribution_patch(self.pair(), "hook_resid_pre")[2] - want).max(), 1e-5)

        def own(logits):  # the same metric, with its gradient
            d = np.zeros_like(logits)
            d[self.model.to_single_token(" was")], d[self.model.to_single_token(" had")] = 1, -1
            return self.difference(logits), d

        plain, q = (back.gradients(self.corrupted, lens.logit_diff(" was", " had"), "*.hook_q", method=method).gradient["q", 3]
                    for method in ("plain", "gim_qkv"))
        self.same(4 * q, plain)  # nothing above the last layer's heads differs
        mine = back.gradients(self.corrupted, lens.function(own, from_end=0), name)
        self.same(mine.gradient[name], got.gradient[name])
        loss = back.gradients(self.corrupted, lens.loss(), name).value
        self.assertLess(abs(loss - self.model.score(self.corrupted).nll.mean()), 1e-5)
        self.assertRaises(ZeroDivisionError, lambda: back.gradients(PROMPT, lens.function(lambda _: 1 / 0)))
        for found in (lambda x: float(x[0, 0])), (lambda x: (0, x[0])):
            pair = self.pair(lens.function(found))
            for call in (lambda: back.gradients(PROMPT, pair.metric, name), lambda: back.attribution_patch(pair, "attn.hook_z"),
                         lambda: back.edge_scores(pair), lambda: lens.edges(self.model, pair)):
                self.assertRaisesRegex(ValueError, r"the gradient of lens.function\(...\) is .*; expected a pair", call)

    def test_edges(self):
        back = lens.Backward(self.model)
        scores, (senders, receivers) = back.edge_scores(self.pair()), lens.edge_names(self.model)
        self.assertEqual(scores.shape, (len(senders), len(receivers)))
        kept = lens.best_edges(self.model, scores, 30)
        self.assertEqual(kept.sum(), 30)
        everything = lens.best_edges(self.model, scores, 10**6)
        self.assertLess(abs(back.run_edges(self.pair(), everything) - self.difference(self.model(self.clean)[-1])), 1e-4)
        self.assertLess(abs(back.run_edges(self.pair(), 0 * kept) - self.difference(self.model(self.corrupted)[-1])), 1e-4)

    def test_edges_circuits_and_curves(self):
        model = attn.Model(BUILD / "induction.attn")
        clean = [0, 50, 93, 12, 77, 31, 64, 9, 101, 50, 93, 12, 77]
        pair, names = lens.Pair(clean, [*clean[:4], 8, *clean[5:]], lens.logit_diff(31, 64)), lens.edge_names(model)
        for of in ({}, {"steps": 5}, {"method": "eap_ig"}, {"method": "gim_norm", "steps": 3}, {"exact": True}):
            found = lens.edges(model, pair, 8, **of)
            self.assertEqual([abs(score) for *_, score in found.best], sorted(np.abs(found.scores).ravel())[:-9:-1])
            for start, end, score in found.best:
                self.assertEqual(score, found.scores[names[0].index(start), names[1].index(end)])
        self.same(lens.edges(model, pair, steps=5).scores, lens.edges(model, pair, method="eap_ig").scores)
        self.same(found.scores, lens.exact_effects(model, pair).effect)
        circuit = lens.prune(model, pair, 0.1)
        self.assertLess(abs(circuit.value - circuit.clean), 0.1)
        self.assertEqual(len({edge[:2] for edge in [*circuit.best, *circuit.removed]}), len(circuit.best) + len(circuit.removed))
        kept = [[(sender, receiver) in {edge[:2] for edge in circuit.best} for receiver in circuit.receivers] for sender in circuit.senders]
        self.assertLess(abs(lens.Backward(model).run_edges(pair, kept) - circuit.value), 1e-4)
        for kind in ("corrupted", "zero", "mean"):
            two, joint = lens.interactions(model, pair, ablation=kind), lens.shapley(model, pair, ["m1", "a0.h0"], ablation=kind)
            at = names[0].index("a0.h0"), names[0].index("m1")
            self.assertEqual((two.axes, joint.axes[0]), (({"node": names[0]}, {"with": names[0]}), {"node": ["a0.h0", "m1"]}))
            self.assertLess(abs(joint.sets[3] - two.sets[at]) + abs(joint.sets[3] - joint.effect.trace()), 1e-4)
            self.assertLess(abs(joint.effect[0, 1] - two.effect[at]), 1e-4)
            self.assertTrue(f"ablation={kind!r}" in repr(joint) and f"ablation {kind}" in joint.picture().title)
        for each in (lens.interactions(model, [pair] * 2, each=True), lens.shapley(model, [pair] * 2, ["m0", "input"], each=True)):
            self.assertTrue((each.each.numbers == each.effect).all() and each.each.numbers.shape == (2, *each.effect.shape))
        for order in ("helpful", "largest"):
            curve = lens.curve(model, pair, found.scores, order)
            self.assertTrue(len(curve.n_edges) == 10 and (np.diff(curve.n_edges) >= 0).all() and abs(curve.faithfulness[-1] - 1) < 1e-4)
        for call, says in ((lambda: lens.shapley(model, pair, ["a7.h0"]), "nodes.*a0.h1"),
                           (lambda: lens.edges(model, pair, method="eap", steps=5), 'steps is 5; expected 1 for EAP, or method="eap_ig"'),
                           (lambda: lens.edges(model, pair, exact=True, method="gim"), "are of estimates")):
            self.assertRaisesRegex(ValueError, says, call)
        for call, says in ((lambda: lens.shapley(model, pair, ["m0", "m0"]), "expected ascending numbers"),
                           (lambda: lens.prune(model, pair, -1), "an amount of -1"),
                           (lambda: lens.edges(model, pair, steps=1001), "steps is 1001; expected at most 1000"),
                           (lambda: lens.curve(model, pair._replace(corrupted=clean), found.scores), "no difference to take a share of")):
            self.fails(attn.Status.ARGUMENT, says, call)

    def test_graphs(self):
        text, transcoders = "Once upon a time there was a", ROOT / "examples" / "sae" / "transcoders"
        told: list[float] = []
        found = lens.graph(self.model, text, transcoders, check=True, progress=told.append)
        features = [node.id for node in found.nodes if node.kind == "feature" and node.stays]
        self.assertTrue(told[-1] == 1 and 0 < found.correlation <= 1)
        for i, node in enumerate(found.nodes):
            if node.kind in ("feature", "logit"):
                total = node.constant + found.weight[found.target == i].astype(np.float64).sum()
                self.assertLess(abs(total - node.pre_activation), 1e-3 * (1 + abs(node.pre_activation)))
            self.assertEqual((node.feature >= 0, math.isnan(node.activation)), (node.kind in ("feature", "logit"),) + (
                node.kind in ("embedding", "error"),))
        kept = [(found.nodes[i].stays and found.nodes[j].stays) for i, j in zip(found.source[found.stays], found.target[found.stays])]
        self.assertTrue(all(kept) and f"{len(kept)} stay" in repr(found))
        claimed = {node.id: node.claimed for node in found.nodes}
        measured = lens.graph(self.model, text, groups={"one": features[3:4], "some": features[3:20:4]}).groups
        self.assertEqual(list(measured), ["one", "some"])
        self.assertAlmostEqual(measured["one"][0], claimed[features[3]], 5)
        path = pathlib.Path(scratch.name) / "graph.json"
        found.save(path)
        self.assertEqual(len(json.loads(path.read_text())["links"]), len(kept))
        small = lens.graph(self.model, text, transcoders, keep=3)
        self.assertTrue(len(small.weight) < len(found.weight) and small.kept < 1 and math.isnan(small.nodes[-1].measured))
        for groups, says in (({"none": ["feature 9.9.9"]}, 'groups: group none: "feature 9.9.9" is no active feature of this text; expected an id'),
                             ({"odd": [features[0], "None"]}, '"None" is no active feature'), ({"empty": []}, "group empty: expected a list of ids")):
            self.fails(attn.Status.FORMAT, says, lens.graph, self.model, text, transcoders, groups=groups)
        self.fails(attn.Status.IO, "no-such", lens.graph, self.model, text, "no-such")

    def test_a_head_by_any_of_its_names(self):
        model, pair, text = self.model, self.pair(), "Once upon a time"
        calls = (lambda h: lens.path_patch(model, pair, [h, (0, "mlp")], [("L2H3", "hook_q_input")])[0].tolist(),
                 lambda h: lens.shapley(model, pair, ["m1", h]).effect.tolist(), lambda h: lens.circuit(model, h, kind="QK").A.tolist(),
                 lambda h: lens.qk_terms(model, text, h, query=3).to_numpy().tolist(), lambda h: lens.patterns(model, text, h).axes[0],
                 lambda h: lens.detect_head(model, text, "previous", heads=[h]).tolist())
        for call in calls:
            want = call((0, 4))
            for name in "L0H4", "a0.h4", "0.4":
                self.assertEqual(call(name), want)
            for wrong in "L0", "0H4", "L0H4 ", "a0h4", "-1.0", (0,), (0, 1, 2):
                self.assertRaisesRegex((TypeError, ValueError), "L0H1|a0.h1", call, wrong)

    def test_texts_without_a_gap(self):
        text, other, asked = "There was a little girl named", "There was a little boy named", lens.logit_diff(" Lily", " Tim")
        for pairs in ([lens.Pair(text, text, asked)] * 2, [lens.Pair(text, other, asked), lens.Pair(other, text, asked)]):
            for call in (lambda **how: lens.patch(self.model, pairs, "attn.hook_z", "heads", **how),
                         lambda **how: lens.path_patch(self.model, pairs, [(0, i) for i in range(6)], [(2, "hook_q_input", 3)], **how)):
                with self.assertWarnsRegex(UserWarning, "gap") as caught:
                    got = call(normalize=True, ci=True)
                self.assertEqual(caught.filename, __file__)
                self.assertTrue((got.effect == call().effect - np.float32(got.corrupted)).all() and got.spread.mean.shape == got.effect.shape)

    def test_ablations(self):
        text = "Once upon a time there"
        for metric, at in ((lens.logit_diff(" was", " had"), -1), (lens.logit_diff(" was", " had", from_end=2), -3),
                           (lens.function(lambda logits: logits[1, 5]), None), (None, None)):
            got = lens.ablate_heads(self.model, text, metric)
            with self.model.session(n_batch=64) as session:
                whole = session.feed(text, all_logits=True)
                session.truncate(0)
                session.edit("blocks.2.attn.hook_z", "zero", heads=4)
                without = session.feed(text, all_logits=True)
            if at is not None:
                self.assertLess(abs(got.whole - self.difference(whole[at])), 1e-5)
                self.assertLess(abs(got.change[2, 4] - self.difference(without[at]) + self.difference(whole[at])), 1e-5)
            elif metric:
                self.assertLess(abs(got.change[2, 4] - (without[1, 5] - whole[1, 5])), 1e-5)
            else:
                self.assertLess(abs(got.whole - self.model.score(text).nll.mean()), 1e-5)
        with self.fails(attn.Status.ARGUMENT, "ablate_heads(): position 2 from the end; the text has 1 tokens"):
            lens.ablate_heads(self.model, "Once", lens.logit_diff(" was", from_end=2))
        texts, shares = [text, "The cat sat on"], []
        found = [lens.ablate_heads(self.model, one) for one in texts]
        mean = lens.ablate_heads(self.model, tuple(texts), ci=True, progress=shares.append)
        self.assertLess(np.abs(mean.change - np.mean([one.change for one in found], 0)).max(), 1e-6)
        self.assertTrue(mean.spread is not None and shares == sorted(set(shares)) and shares[-1] == 1)
        pair = lens.Pair(text, text, lens.logit_diff(" was"))
        self.assertRaisesRegex(TypeError, "expected texts alone, or Pairs alone", lens.ablate_heads, self.model, [pair, text])
        self.assertRaisesRegex(ValueError, "a Pair has a metric of its own", lens.ablate_heads, self.model, (pair, pair), lens.loss())
        self.assertRaisesRegex(ValueError, "each and ci are of means over texts", lens.ablate_heads, self.model, "Once", ci=True)

    def test_spreads(self):
        asked = lens.logit_diff(" Lily", " Tim")
        likes = ("little", "big", "happy", "sad", "good")
        pairs = [lens.Pair(f"There was a {like} girl named", f"There was a {like} boy named", asked) for like in likes]
        path = pathlib.Path(scratch.name) / "each.npz"
        for shape in (4, 6), (2, 9), (5,):
            with self.assertRaisesRegex(ValueError, r"diagonal is True; expected None for numbers of shape \[4, "):
                lens.Each(np.ones((4, *shape), np.float32), np.ones(4), np.zeros(4)).spread("values", diagonal=True)
        for call in (lambda **how: lens.patch(self.model, pairs, "attn.hook_z", "heads", normalize=True, **how),
                     lambda **how: lens.ablate_heads(self.model, pairs, **how), lambda **how: lens.edges(self.model, pairs, 6, steps=1, **how),
                     lambda **how: lens.edges(self.model, pairs, 6, exact=True, **how)):
            got, plain = call(ci=True, each=path), call()
            self.assertIsNone(plain.spread)
            with np.load(path) as saved:
                self.assertTrue((saved["numbers"] == got.each.numbers).all() and len(saved["clean"]) == len(pairs))
            self.assertTrue((got.to_numpy() == plain.to_numpy()).all() and (got.spread.low <= got.spread.high).all())
            if not isinstance(got, lens.Edges):
                self.assertIn("·", got.picture()._svg().decode())
        lines = path.with_name("pairs.jsonl")
        lines.write_text("".join(json.dumps({"clean": pair.clean, "corrupted": pair.corrupted, "token": " Lily", "against": " Tim"}) + "\n"
                                 for pair in pairs))
        table = lens.query(self.model, "edges", pairs=lines, edges=6, ci=True).tables["edges"]
        spread = lens.edges(self.model, pairs, 6, ci=True).spread  # of p, the program's over all edges, of which these are the best
        for name, numbers in zip(("mean", "low", "high", "p"), spread):
            self.assertEqual(list(table[name]), list(numbers), name)
        effects = lens.exact_effects(self.model, pairs, "nodes", each=True)
        self.assertIsNone(effects.spread)
        self.assertLess(np.abs(effects.each.numbers.mean(0) - effects.effect).max(), 1e-5)
        paths = lens.path_patch(self.model, pairs, [(0, 1), (0, "mlp")], [(4, "hook_resid_pre")], ci=True)
        self.assertTrue((paths.spread.low <= paths.spread.mean).all() and (paths.spread.mean <= paths.spread.high).all())
        self.assertLess(np.abs(paths.spread.mean + paths.corrupted - paths.effect).max(), 1e-5)
        curve = lens.curve(self.model, pairs, lens.exact_effects(self.model, pairs).effect, ci=True)
        self.assertLess(np.abs(curve.spread.mean - curve.faithfulness).max(), 1e-5)
        self.assertEqual(curve.picture()._svg().count(b"m-4 0h8"), 10)
        one = pairs[0]
        for call in (lambda: lens.patch(self.model, one, "attn.hook_z", ci=True), lambda: lens.ablate_heads(self.model, [one], ci=True),
                     lambda: lens.path_patch(self.model, [one], [(0, 1)], [(4, "hook_resid_pre")], ci=True),
                     lambda: lens.edges(self.model, one, exact=True, ci=True), lambda: lens.shapley(self.model, one, ["m1"], ci=True),
                     lambda: lens.curve(self.model, one, effects.effect, ci=True), lambda: lens.Each(
                         effects.each.numbers[:1], effects.each.clean[:1], effects.each.corrupted[:1]).spread()):
            self.assertRaisesRegex(attn.Error, "an interval needs two pairs or more; got 1", call)
        for joint in (lens.shapley(self.model, pairs, ["input", "a0.h1", "m1"], each=True, ci=True),
                      lens.interactions(self.model, pairs * 2, each=True, ci=True)):
            one_side = np.triu_indices(len(joint.effect), joint.spread.p[0, 0] == 1)  # an interaction with itself is no test
            values = joint.each.numbers[:, one_side[0], one_side[1]]
            plain = lens.Each(values, joint.each.clean, joint.each.corrupted).spread()
            self.assertTrue((joint.spread.p[one_side] == plain.p).all() and plain.p.min() < 1 and (joint.spread.p == joint.spread.p.T).all())

    def test_steering_is_the_programs(self):
        def program(*options):
            said = json.loads(run(BUILD / "lens", STORIES, "steer", PROMPT, "--json", "-n", 8, *options))
            return [row["token_id"] for row in said["continuation"] if row["run"] == "with"]

        name = "blocks.2.hook_resid_pre"
        vector = lens.steering_vector(self.model, name, "so happy", " sad")
        means = [self.model.run_with_cache(text, name)[1][name].mean(0) for text in ("so happy", " sad")]
        self.assertLess(np.abs(vector - (means[0] - means[1])).max(), 1e-4)
        directions = np.random.default_rng(5).normal(size=(4, 192)).astype(np.float32)
        directions[2] = 0
        path = pathlib.Path(scratch.name) / "control.safetensors"
        write_safetensors(path, {f"direction.{i}": directions[i] for i in (0, 1, 3)})
        self.same(lens.control_vector(self.model, path), directions)
        with self.model.session() as session:
            hook = lens.add_control(session, directions, 0.5)
            self.assertTrue((session.feed(PROMPT) != self.model(PROMPT)[-1]).any())
            hook.remove()
            session.truncate(0)
            self.same(session.feed(PROMPT), self.model(PROMPT)[-1])
            self.assertRaisesRegex(ValueError, r"shape \[192\]; expected \[4, 192\]", lens.add_control, session, directions[0])

    def test_tuned_lens(self):
        random = np.random.default_rng(6)
        weights, biases = random.normal(size=(4, 192, 192)) / 50, random.normal(size=(4, 192))
        path = pathlib.Path(scratch.name) / "tuned.safetensors"
        write_safetensors(path, {f"{i}.{name}": of[i].astype(np.float32) for i in range(4)
                                 for name, of in (("weight", weights), ("bias", biases))})
        tuned, cache = lens.TunedLens(self.model, path), self.model.run_with_cache(PROMPT)[1]
        x = cache["resid_pre", 2]
        self.assertLess(np.abs(tuned.apply(x, 2) - (x + x @ weights[2].T + biases[2])).max(), 1e-4)
        self.same(tuned.apply(cache["resid_post", 3], 4), cache["resid_post", 3])
        shown = lens.logit_lens(self.model, PROMPT, tuned)
        want, top = self.model.logit_lens(tuned.apply(x, 2)).argmax(-1), shown.to_pandas("top") if pandas else None
        if pandas:
            self.assertEqual(list(top[(top.layer == 2) & (top.place == 0)].guess), self.model.to_str_tokens(want))
        self.fails(attn.Status.ARGUMENT, "layer 9", tuned.apply, x, 9)

    def test_spectra(self):
        product = lens.circuit(self.model, 3, 5, "OV")
        u, s, v = product.svd()
        self.assertLess(np.abs(u * s @ v.T - product.AB).max(), 1e-5)
        self.same(lens.ov_eigenvalues(self.model, "stream")[3, 5], product.eigenvalues)
        self.assertEqual(lens.copying_scores(self.model).shape, (4, 6))
        path = pathlib.Path(scratch.name) / "refactored.attn"
        lens.refactor_attention(self.model, path)
        other = attn.Model(path)
        self.assertLess(np.abs(other(PROMPT) - self.model(PROMPT)).max(), 1e-2)
        self.assertGreater(np.abs(other.tensor("blocks.0.attn.W_Q") - self.model.tensor("blocks.0.attn.W_Q")).max(), 0.1)

    def test_scores_by_parts_and_expected_patterns(self):
        scores = self.model.run_with_cache(PROMPT)[1]["attn_scores", 2]
        terms = lens.qk_terms(self.model, PROMPT, 2, 3, 3, 1)
        self.assertLess(abs(terms.to_numpy().sum() - scores[3, 3, 1]), 1e-3)
        self.assertEqual((terms.tables["terms"]["query_part"][0], terms.tables["terms"]["key_part"][-1]), ("embed", "bias"))
        ids = self.model.to_tokens(PROMPT).tolist() * 2
        self.same(lens.detect_head(self.model, ids, "induction"), lens.detect_heads(self.model, ids)["induction"])
        wanted = np.eye(8, k=-1)
        by_hand = lens.detect_head(self.model, ids, wanted, heads=[(1, 2)], exclude_bos=True)
        self.assertEqual((by_hand == -1).sum(), 23)
        pattern = self.model.run_with_cache(ids)[1]["pattern", 1][2]
        self.assertLess(abs(by_hand[1, 2] - (pattern * wanted)[:, 1:].sum() / pattern[:, 1:].sum()), 1e-5)

    def test_circuits(self):
        def weights(layer, head):
            q, k, v, o = (self.model.tensor(f"blocks.{layer}.attn.W_{part}")[head].astype(np.float64) for part in "QKVO")
            return q @ k.T, v @ o

        for kind, want in zip(("QK", "OV"), weights(3, 5)):
            got = lens.circuit(self.model, 3, 5, kind)
            self.assertLess(np.abs(got.AB - want).max(), 1e-5)
            self.assertLess(np.abs(got.S - np.linalg.svd(want)[1][:len(got.S)]).max(), 1e-4)
        qk, ov = lens.circuit(self.model, 3, 2, "QK"), lens.circuit(self.model, 1, 4, "OV")
        w_e, w_u = self.model.tensor("W_E"), self.model.tensor("W_U")
        for product, want in ((w_e @ ov @ w_u, w_e @ ov.AB @ w_u), (ov @ qk, ov.AB @ qk.AB)):
            self.assertIsInstance(product, lens.FactoredMatrix)
            self.assertEqual(product.A.shape[1], 32)
            self.assertLess(np.abs(product.AB - want).max(), 1e-5 * np.abs(want).max())
        self.assertEqual(lens.composition_scores(self.model, "K").shape, (4, 6, 4, 6))

    def test_sparse_autoencoders(self):
        directory, random = pathlib.Path(scratch.name) / "sae", np.random.default_rng(2)
        directory.mkdir()
        tensors = {name: random.standard_normal(shape).astype(np.float32) for name, shape in (
            ("W_enc", (192, 50)), ("W_dec", (50, 192)), ("b_enc", 50), ("b_dec", 192))}
        write_safetensors(directory / "sae_weights.safetensors", tensors)
        (directory / "cfg.json").write_text(json.dumps({
            "architecture": "standard", "d_in": 192, "d_sae": 50, "apply_b_dec_to_input": True,
            "metadata": {"hook_name": "blocks.2.hook_resid_pre"}}))
        sae = lens.SAE(directory)
        self.assertEqual((sae.hook_name, sae.d_in, sae.d_sae), ("blocks.2.hook_resid_pre", 192, 50))
        x = self.model.run_with_cache(PROMPT)[1][sae.hook_name]
        t = {key: value.astype(np.float64) for key, value in tensors.items()}
        want = np.maximum((x - t["b_dec"]) @ t["W_enc"] + t["b_enc"], 0)
        got = sae.encode(x)
        self.assertLess(np.abs(got - want).max(), 1e-4)
        self.assertLess(np.abs(sae.decode(got) - (want @ t["W_dec"] + t["b_dec"])).max(), 1e-3)
        replaced = self.model.run_with_hooks(PROMPT, [(sae.hook_name, lambda value, _: sae.decode(sae.encode(value)))])
        self.assertEqual(replaced.shape, self.model(PROMPT).shape)
        heads = x.reshape(len(x), 6, 32)  # of hook_z: one row a position, as SAELens's reshape_activations
        self.assertTrue(np.array_equal(sae.encode(heads), got))
        self.assertTrue(np.array_equal(sae.decode(got, heads), sae.decode(got).reshape(heads.shape)))
        self.fails(attn.Status.IO, "cfg.json", lens.SAE, directory / "none")
        plain = self.model(PROMPT)
        with self.model.session() as session:
            with sae.hook(session):  # without changes it keeps the activation, but for rounding
                self.assertLess(np.abs(session.feed(PROMPT) - plain[-1]).max(), 1e-3)
            session.truncate(0)
            with sae.hook(session, keep_error=False):
                self.same(session.feed(PROMPT), replaced[-1])
            session.truncate(0)
            with sae.hook(session, [(3, "clamp", 0), (5, "scale", 2), (7, "add", 4)]):
                changed = session.feed(PROMPT)
            session.truncate(0)
            moved = want.copy()
            moved[:, 3], moved[:, 5], moved[:, 7] = 0, 2 * want[:, 5], want[:, 7] + 4
            session.edit(sae.hook_name, "set", x + (moved - want) @ t["W_dec"])
            self.assertLess(np.abs(session.feed(PROMPT) - changed).max(), 2e-3)
        included = lens.load_sae("tiny-stories")
        shown, features = included.show(self.model, PROMPT, 5).tables["features"], included.encode(self.model.run_with_cache(
            PROMPT, included.hook_name)[1][included.hook_name])
        np.testing.assert_allclose(features[shown["position"], shown["feature"]], shown["activation"], rtol=1e-5)
        with self.model.session() as session:
            self.assertRaisesRegex(ValueError, "clamp, scale or add", sae.hook, session, [(3, "zero", 0)])
            sae.hook(session, [(50, "clamp", 0)])
            self.fails(attn.Status.ARGUMENT, "feature 50; the autoencoder has 0 to 49", session.feed, PROMPT)

    def test_transcoders(self):
        fixtures, made = ROOT / "tests" / "fixtures", pathlib.Path(scratch.name) / "transcoded.attn"
        run(BUILD / "attn-convert", "-q", "--no-tokenizer", fixtures / "transformerlens" / "full", made)
        want, ids = read_fixtures(fixtures / "transcoder" / "outputs.bin"), [3, 17, 28, 0, 5, 5, 17, 9, 1]
        for kind in ("plain", "skip", "jumprelu", "jumprelu-skip"):
            coder, x = lens.SAE(fixtures / "transcoder" / kind), want[kind + ".x"]
            self.assertEqual((coder.is_transcoder, coder.hook_name_out, coder.d_out), (True, "blocks.1.hook_mlp_out", 16))
            features = coder.encode(x)
            self.assertLess(np.abs(features - want[kind + ".features"]).max(), 1e-5)
            self.assertLess(np.abs(coder.decode(features, x) - want[kind + ".predicted"]).max(), 1e-5)
            for keep_error, name in ((True, ".kept"), (False, ".replaced")):
                with attn.Model(made).session() as session:
                    plain = session.feed(ids).copy()
                    session.truncate(0)
                    with coder.hook(session, [(3, "clamp", 2), (5, "scale", 0.5), (7, "add", 1.5)], keep_error=keep_error):
                        self.assertLess(np.abs(session.feed(ids) - want[kind + name][-1]).max(), 1e-4)
                    session.truncate(0)
                    with coder.hook(session, [(3, "clamp", 2), (5, "scale", 0.5), (7, "add", 1.5)], keep_error=keep_error):
                        for i in ids:  # token by token the input and the output belong to the same position, too
                            last = session.feed([i])
                        self.assertLess(np.abs(last - want[kind + name][-1]).max(), 1e-4)
                    session.truncate(0)
                    self.assertTrue(np.array_equal(session.feed(ids), plain))

    def test_logits_of_parts(self):
        shown, logits = lens.parts(self.model, PROMPT, " was", " had"), self.model(PROMPT)
        self.assertEqual(shown.rows[-1], "ln_final.b")
        self.assertLess(abs(shown.to_numpy()[:, -1].sum() - self.difference(logits[-1])), 1e-3)

    def test_logit_lens(self):
        logits, cache = self.model.run_with_cache(PROMPT)
        stream = np.stack([cache["resid_post", layer] for layer in range(4)])
        lens = self.model.logit_lens(stream)
        self.same(lens[-1], logits)
        self.same(self.model.logit_lens(stream, tokens=[11, 13]), lens[..., [11, 13]])
        scaled = self.model.logit_lens(stream[-1], scale=cache["ln_final.hook_scale"])
        self.assertLess(np.abs(scaled - logits).max(), 1e-4)

    def test_parts_of_the_stream_sum_to_the_logit(self):
        logits, cache = self.model.run_with_cache(PROMPT)
        for kind, n in (("sublayers", 10), ("heads", 31)):
            parts = lens.decompose_resid(self.model, PROMPT, kind)
            self.assertEqual((len(parts.labels), parts.stack.shape), (n, (n, 4, 192)))
            self.assertLess(np.abs(parts.stack.sum(0) - cache["resid_post", 3]).max(), 1e-3)
            self.same(parts.scale, cache["ln_final.hook_scale"])
            directions = self.model.logit_directions([11], [13])
            shares = self.model.logit_attrs(parts.stack, parts.scale, directions).sum(0)
            bias = (self.model.tensor("ln_final.b") @ directions[0])
            self.assertLess(np.abs(shares + bias - (logits[:, 11] - logits[:, 13])).max(), 1e-3)
        middle = lens.decompose_resid(self.model, PROMPT, "sublayers", layer=2, mlp_input=True, positions=slice(1, 3))
        self.assertEqual(middle.labels[-1], "2_attn_out")
        self.assertLess(np.abs(middle.stack.sum(0) - cache["resid_mid", 2][1:3]).max(), 1e-3)
        self.same(middle.scale, cache["blocks.2.ln2.hook_scale"][1:3])
        self.fails(attn.Status.ARGUMENT, "layer 9", lens.decompose_resid, self.model, PROMPT, layer=9)

    def test_heads(self):
        ids = list(range(20, 40)) * 2
        entropy, scores = self.model.detect_heads(ids)
        pattern = self.model.run_with_cache(ids)[1]["pattern", 1].astype(np.float64)
        want = -(pattern * np.log(np.maximum(pattern, 1e-300))).sum(-1)
        self.assertLess(np.abs(entropy[1] - want).max(), 1e-4)
        previous = np.trace(pattern, offset=-1, axis1=1, axis2=2) / pattern.sum((1, 2))
        self.assertLess(np.abs(scores[0, 1] - previous).max(), 1e-4)

    def test_score(self):
        got, logits = self.model.score(PROMPT, k=3), self.model(PROMPT).astype(np.float64)
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        self.assertLess(np.abs(got.nll + logp[np.arange(3), PROMPT_IDS[1:]]).max(), 1e-5)
        self.same(got.top, np.argsort(-logits, -1)[:, :3].astype(np.int32))
        self.assertEqual(got.rank.tolist(), [int((row > row[i]).sum()) for row, i in zip(logits, PROMPT_IDS[1:])])
        self.assertEqual(self.model.score([5]).nll.shape, (0,))

    def test_processed_weights_say_the_same(self):
        simple = self.model.process_weights()
        a, b = (model(PROMPT).astype(np.float64) for model in (self.model, simple))
        logp = [x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (a, b)]
        self.assertLess(np.abs(logp[0] - logp[1]).max(), 1e-4)
        self.assertTrue((simple.tensor("blocks.0.ln1.w") == 1).all())
        path = pathlib.Path(scratch.name) / "simple.attn"
        simple.save(path)
        self.same(attn.Model(path)(PROMPT), simple(PROMPT))


class Sessions(Case):
    def test_cuts_batches_and_copies_have_the_same_bits(self):
        whole = self.model(PROMPT)
        session = self.model.session()
        rows = [session.feed([token]) for token in PROMPT_IDS]
        self.same(np.stack(rows), whole)
        workspace = self.model.workspace()
        sessions = [self.model.session(workspace=workspace) for _ in range(3)]
        batch = attn.feed_batch(sessions, [PROMPT, "The cat", PROMPT_IDS[:2]])
        self.same(batch[0], whole[-1])
        self.same(batch[1], self.model("The cat")[-1])
        self.same(attn.feed_batch(sessions[2:], [PROMPT_IDS[2:]], all_logits=True)[0], whole[2:])
        copy = session.copy()
        session.truncate(2)
        self.assertEqual((len(copy), len(session)), (4, 2))
        self.same(copy.feed([11]), self.model(PROMPT_IDS + [11])[-1])
        self.same(session.feed(PROMPT_IDS[2:], all_logits=True), whole[2:])
        self.assertEqual(attn.feed_batch([], []), [])

    def test_parts_of_the_model(self):
        logits, cache = self.model.run_with_cache(PROMPT)
        session = self.model.session()
        stream = session.feed(PROMPT, stop_at_layer=2)
        self.same(stream, cache["resid_pre", 2])
        self.same(session.feed(PROMPT, start_at_layer=2, resid=stream), logits[-1])
        session.truncate(0)
        self.same(session.feed(PROMPT, stop_at_layer=0), cache["resid_pre", 0])
        with self.assertRaisesRegex(ValueError, r"shape \[4, 7\]; expected \[4, 192\]"):
            session.feed(PROMPT, start_at_layer=2, resid=np.zeros((4, 7)))

    def test_keys_and_values(self):
        cache = self.model.run_with_cache(PROMPT)[1]
        session = self.model.session()
        session.feed(PROMPT)
        for part, letter in (("keys", "k"), ("values", "v")):
            self.same(session.cache_get(part, 1), cache[letter, 1])
        session.cache_set("values", 1, np.zeros((2, 6, 32)), first=1)
        self.same(session.cache_get("values", 1)[0], cache["v", 1][0])
        self.assertFalse(session.cache_get("values", 1, 1)[:2].any())
        session.close()
        half = self.model.session(cache_dtype="f16")
        half.feed(PROMPT)
        self.same(half.cache_get("keys", 0), cache["k", 0].astype(np.float16).astype(np.float32))

    def test_one_text_on_any_threads_and_kernels(self):
        want = self.model(PROMPT)
        for options in ({"threads": 1}, {"threads": 3}, {"isa": "portable"}):
            self.same(attn.Model(STORIES, **options)(PROMPT), want)


class Errors(Case):
    def test_the_sentence_of_the_library(self):
        self.fails(attn.Status.IO, "/no/such.attn", attn.Model, "/no/such.attn")
        self.fails(attn.Status.FORMAT, "attn", attn.Model, __file__)
        with self.fails(attn.Status.CONTEXT, "the session holds 4 of at most 5 tokens"):
            session = self.model.session(5)
            session.feed(PROMPT)
            session.feed([1, 2])
        self.assertEqual(len(session), 4)
        self.fails(attn.Status.TOKEN, "token 1 is 2048; expected 0 to 2047", self.model, [5, 2048])
        self.fails(attn.Status.TOKEN, "token 1 is 4294967301; expected 0 to 2047", self.model, [5, 2 ** 32 + 5])
        self.fails(attn.Status.ARGUMENT, "no tokens", self.model.session().feed, "")
        self.fails(attn.Status.ARGUMENT, "there is nothing to continue", self.model.session().generate, "")
        self.fails(attn.Status.NAME, "embed.W_X", self.model.tensor, "embed.W_X")
        with self.fails(attn.Status.TOKENIZER, "tokenizer"):
            model_of("plain")("text")
        with self.fails(attn.Status.ARGUMENT, "beginning-of-text"):
            model_of("plain")([1], prepend_bos=True)

    def test_values_that_c_cannot_see(self):
        model, session = self.model, self.model.session()
        for wrong in (lambda: model.session(-1), lambda: session.truncate(-1), lambda: session.truncate(2 ** 64),
                      lambda: session.generate(PROMPT, max_tokens=0), lambda: attn.Model(STORIES, isa="sse9"),
                      lambda: attn.Sampler(model, attn.Sampling(seed=-1)), lambda: model.session(cache_dtype="q8"),
                      lambda: model([[1, 2], [3, 4]]), lambda: model.logit_lens(np.zeros((1, 1, 1, 1, 192))),
                      lambda: attn.Sampler(model).sample(np.zeros(5)), lambda: model.tokenizer.token_bytes(-1),
                      lambda: attn.feed_batch([session], [])):
            self.assertRaises(ValueError, wrong)
        for wrong in (lambda: model([1.5]), lambda: model([True]), lambda: model.session("4"), lambda: model(None)):
            self.assertRaises((TypeError, ValueError), wrong)
        self.assertEqual(model.tokenizer.token_bytes(2 ** 40), b"")

    def test_errors_can_be_pickled(self):
        error = attn.Error(attn.Status.TOKEN, "a sentence")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.status), ("a sentence", attn.Status.TOKEN))

    def test_page(self):
        """The programs of examples/python/README.md, one after the other, print what the page says."""
        text = (ROOT / "examples/python/README.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.S | re.M)
        self.assertEqual(len(blocks), text.count("```python\n"))
        names: dict[str, object] = {}
        for program, expected in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(program.replace('"build/tiny-stories.attn"', repr(str(STORIES))), names)
            self.assertEqual(printed.getvalue(), expected)

    def test_what_closes_is_not_copied(self):
        session = self.model.session()
        session.feed(PROMPT)
        for thing in (session, self.model, lens.Backward(self.model), lens.load_sae("tiny-stories"), self.model.workspace()):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                self.assertRaisesRegex(TypeError, "cannot be copied or pickled", way, thing)
        self.assertRaisesRegex(TypeError, r"its method copy\(\) makes another", copy.copy, session)
        self.assertEqual(session.copy().tokens.tolist(), session.tokens.tolist())

    def test_the_reference_has_every_name(self):
        maker = ROOT / "examples" / "python" / "building" / "attn_reference.py"
        page = subprocess.run([sys.executable, maker], check=True, capture_output=True).stdout.decode()
        for module in attn, lens:
            self.assertEqual(module.__doc__.split("\n\n")[1], "What exists:")
            for name in set(module.__all__) - {"lens"}:
                self.assertIn(f"### {name}\n", page)

    def test_names_to_complete_are_the_librarys(self):
        self.assertEqual(sorted(dir(attn)), sorted(attn.__all__))
        self.assertEqual(sorted(dir(lens)), sorted(lens.__all__))

    def test_help_helps(self):
        for name, thing in [(name, getattr(module, name)) for module in (attn, lens) for name in module.__all__]:
            self.assertTrue(thing.__doc__, name)
            for key, value in vars(thing).items() if isinstance(thing, type) else ():
                if not key.startswith("_") and callable(value):
                    self.assertTrue(inspect.getdoc(value), f"{name}.{key}")


class Threads(Case):
    def test_other_threads_run_during_a_feed(self):
        """Another thread looks at the clock. If the feed kept Python to itself, one pause between two looks
        would be as long as the feed. (On a busy machine chance can do that, too, but not every time.)"""
        session = attn.Model(STORIES, threads=1, isa="portable").session()
        ids, looks, stop = np.arange(250, dtype=np.int32), [], threading.Event()

        def watch():
            while not stop.is_set():
                looks.append(time.perf_counter())
                time.sleep(1e-3)

        for _ in range(10):
            stop.clear()
            looks.clear()
            thread = threading.Thread(target=watch)
            thread.start()
            time.sleep(0.01)
            start = time.perf_counter()
            session.feed(ids)
            end = time.perf_counter()
            stop.set()
            thread.join()
            session.truncate(0)
            during = [start] + [look for look in looks if start < look < end] + [end]
            pause = max(b - a for a, b in zip(during, during[1:]))
            if pause < (end - start) / 2:
                return
        self.fail(f"the other thread waited for {pause:.3f} of {end - start:.3f} seconds")

    def test_threads_share_a_model(self):
        want = [self.model.session().generate(f"{word} was", max_tokens=30).read() for word in ("Tom", "Lily", "It")]
        got = [""] * 3

        def write(i, word):
            got[i] = attn_text(word)

        def attn_text(word):
            return self.model.session().generate(f"{word} was", max_tokens=30).read()

        threads = [threading.Thread(target=write, args=pair) for pair in enumerate(("Tom", "Lily", "It"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, want)

    def test_threads_take_turns_at_a_session(self):
        session, hooked = self.model.session(), []
        session.hook("hook_embed", lambda value, point: hooked.append(point.first))

        def feed():
            for _ in range(20):
                session.feed([11])

        threads = [threading.Thread(target=feed) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(session), hooked), (80, list(range(80))))


@unittest.skipUnless(torch, "there is no PyTorch")
class PyTorch(Case):
    def test_memory_is_shared(self):
        cache = self.model.run_with_cache(torch.tensor([PROMPT_IDS]))[1]
        resid = cache["resid_post", 3]
        tensor = torch.from_numpy(resid)
        tensor[0, 0] = 7
        self.assertEqual(resid[0, 0], 7)

    def test_tensors_are_values(self):
        value = torch.randn(4, 192)
        with self.model.session() as session:
            session.edit("blocks.1.hook_resid_mid", "set", value)
            got = session.feed(torch.tensor(PROMPT_IDS))

        def hook(array, point):
            torch.from_numpy(array).copy_(value)

        self.same(self.model.run_with_hooks(PROMPT, [("blocks.1.hook_resid_mid", hook)])[-1], got)
        self.same(self.model.run_with_hooks(PROMPT, [("blocks.1.hook_resid_mid", lambda a, p: value)])[-1], got)
        kept = []
        with self.fails(attn.Status.ARGUMENT, "keep a copy"):
            self.model.run_with_hooks(PROMPT, [("hook_embed", lambda a, p: kept.append(torch.from_numpy(a)))])


class Notebooks(Case):
    """The notebooks of examples/python give what they keep, here and in a kernel."""

    PROGRAMS = {"scores": "000_scores.c", "averaging": "001_averaging.c", "self_attention": "002_self_attention.c",
                "multi_head": "003_multi_head.c", "clean_gpt2": "004_clean_gpt2.c", "glass_box": "005_inside_the_engine.c",
                "tokenizer": "006_tokenizer.c", "cache": "007_cache.c"}
    ORDER = [*PROGRAMS, "graph"]  # in which they are read; the last one has no program

    def test_each_names_its_program_and_has_exercises(self):
        for name in self.ORDER:
            text = (notebooks.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
            program = f"examples/from_scratch/{self.PROGRAMS[name]}" if name in self.PROGRAMS else "tools/lens/graph.h"
            self.assertIn(program, text)
            self.assertTrue((ROOT / program).exists())
            self.assertEqual(text.count("<details><summary>Solutions</summary>"), 1, name)
            self.assertEqual("data:image/svg+xml;base64," in text, name not in ("tokenizer", "cache"))
            for link in re.findall(r"\]\((\w+)\.ipynb\)", text):
                self.assertIn(link, self.ORDER)

    def test_one_order(self):
        """Of the files in C, of the notebooks' words on what comes before and next, and of the table."""
        names = self.ORDER
        self.assertEqual(sorted(self.PROGRAMS.values()), list(self.PROGRAMS.values()))
        self.assertEqual({path.name for path in (ROOT / "examples" / "from_scratch").glob("0*.c")}, set(self.PROGRAMS.values()))
        for before, name, after in zip([None, *names], names, [*names[1:], None]):
            text = " ".join(notebooks.texts(json.loads((notebooks.FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")))[0].split())
            for words, other in (("Before this comes", before), ("next is", after)):
                self.assertEqual(re.findall(words + r" \[(\w+)\]", text), [other] if other else [], name)
        table = (ROOT / "examples" / "from_scratch" / "README.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"notebooks/(\w+)\.ipynb", table), names)

    def test_cells_give_what_the_files_keep(self):
        folder = notebooks.FOLDER
        self.assertEqual({path.stem for path in folder.iterdir()}, set(self.ORDER))
        for path in sorted(folder.iterdir()):
            with self.subTest(path.name):
                self.assertLess(path.stat().st_size, 300_000)
                kept = json.loads(path.read_text(encoding="utf-8"))
                want = notebooks.printed(kept)
                self.assertGreater(len(want), 5)
                self.assertIn("pip install", "".join(notebooks.code(kept)[0]))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "examples" / "python")}
        in_kernel = all(map(importlib.util.find_spec, ("nbclient", "ipykernel")))
        run(sys.executable, pathlib.Path(notebooks.__file__), *["--kernel"] * in_kernel, environment=environment)
        if not in_kernel:
            self.skipTest("the cells ran here: there is no nbclient with ipykernel for a run in a kernel")

    def test_the_clean_model_says_what_pytorch_and_the_seed_say(self):
        text = "".join(notebooks.printed(json.loads((notebooks.FOLDER / "clean_gpt2.ipynb").read_text(encoding="utf-8"))))
        self.assertEqual(text.count("100.00% of the values are correct"), 8)
        wanted = (ROOT / "tests" / "fixtures" / "notebooks.txt").read_text()
        for line in ("Avg cross entropy loss", "Avg cross entropy loss for uniform distribution",
                     "Avg probability assigned to correct token"):
            value = re.search(rf"-# {line}:\n(.*)\n", wanted)[1]
            self.assertIn(f"\n{line}: {value}\n", text)
        self.assertIn(re.search(r"The Total Perspective.*?(?=\n==)", wanted, re.S)[0], text)
        self.assertIn("The clean model says the same: True", text)
        story = run(BUILD / "gpt2", STORIES, PROMPT, "-n200", "--temperature=0.7", "--top-k=40", "-s1", "-q").decode()
        self.assertIn(f"\n{story}", text)


class Receipts(Case):
    def written(self, prompt=PROMPT, **options):
        path = pathlib.Path(scratch.name) / "receipt.json"
        options = {"max_tokens": 20, "sampling": attn.Sampling(temperature=0.7, top_k=40, seed=3), **options}
        text = self.model.session().generate(prompt, receipt=path, **options)
        return path, text.read(), text

    def test_they_are_the_programs(self):
        path = self.written()[0]
        other = pathlib.Path(scratch.name) / "gpt2.json"
        run(BUILD / "gpt2", STORIES, PROMPT, "-n20", "--temperature=0.7", "--top-k=40", "-s3", "-q", "--receipt", other)
        self.assertEqual(path.read_bytes(), other.read_bytes())
        run(BUILD / "attn-verify", STORIES, path)
        self.assertEqual(attn.verify(self.model, other), attn.Verdict(True, ""))

    def test_every_way_to_end(self):
        for reason, options in (("token count", {}), ("stop string", {"stop": [" was"]}), ("end of text", {"max_tokens": 400}),
                                ("context full", {"max_tokens": 10**6, "ignore_eos": True})):
            path, _, text = self.written(**options)
            self.assertEqual(text.reason, reason)
            self.assertTrue(attn.verify(self.model, path), reason)

    def test_what_differs_is_named(self):
        path, ids = self.written()[0], self.written()[2].ids
        for old, new, says in ((f"{ids[4]}", f"{ids[4] + 1}", "position 8 (generated token 5)"), ('"seed": "3"', '"seed": "4"', "draws"),
                               ('"ids"', '"idz"', None)):
            changed = pathlib.Path(scratch.name) / "changed.json"
            text = path.read_text()
            at = text.index('"ids"') if old != '"seed": "3"' else 0
            changed.write_text(text[:at] + text[at:].replace(old, new, 1))
            if says:
                verdict = attn.verify(self.model, changed)
                self.assertFalse(verdict)
                self.assertIn(says, verdict.says)
            else:
                self.fails(attn.Status.FORMAT, '"ids" is missing', attn.verify, self.model, changed)
        self.assertIn("another model", attn.verify(attn.Model(BUILD / "induction.attn"), path).says)
        self.assertRaisesRegex(TypeError, "model is a PosixPath; expected a model, of attn.load", attn.verify, path, self.model)

    def test_only_the_models_own_text_has_one(self):
        session = self.model.session()
        session.edit("blocks.0.attn.hook_z", "zero")
        for given in ({}, {"logits_fn": print}, {"sampling": attn.Sampler(self.model)}):
            with self.assertRaisesRegex(ValueError, "the model's own text"):
                (self.model.session() if given else session).generate(PROMPT, receipt="x.json", **given)
        session.unhook_all()
        session.truncate(0)
        text = session.generate(PROMPT, max_tokens=4, receipt="x.json")
        next(text)
        session.edit("blocks.0.attn.hook_z", "zero")
        self.fails(attn.Status.ARGUMENT, "a hook or an edit before the text ended", text.read)
        with self.fails(attn.Status.ARGUMENT, r"save() this one"):
            self.model.process_weights().session().generate(PROMPT, receipt="x.json")
        with self.fails(attn.Status.ARGUMENT, "the session's 6 tokens"):
            self.model.session(6).generate(PROMPT, receipt="x.json").read()
        self.assertFalse(pathlib.Path("x.json").exists())


class Saved(Case):
    def test_what_is_saved_follows_links_and_keeps_the_mode(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=scratch.name))
        logits, cache = self.model.run_with_cache(PROMPT, "hook_embed")
        for name, save in (("m.attn", self.model.process_weights().save), ("c.npz", cache.save), ("c.safetensors", cache.save),
                           ("s.svg", self.model.score(PROMPT).save), ("p.svg", lens.patterns(self.model, PROMPT).save),
                           ("r.json", lambda path: self.model.session().generate(PROMPT, max_tokens=2, receipt=path).read())):
            real, link = folder / "real", folder / name
            real.write_text("old")
            real.chmod(0o640)
            link.symlink_to("real")
            save(link)
            self.assertTrue(link.is_symlink(), name)
            self.assertNotEqual(real.read_bytes()[:3], b"old", name)
            self.assertEqual(real.stat().st_mode & 0o777, 0o640, name)
            self.assertEqual(sorted(file.name for file in folder.iterdir()), sorted([name, "real"]))
            link.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        scratch = type("scratch", (), {"name": directory})
        unittest.main()

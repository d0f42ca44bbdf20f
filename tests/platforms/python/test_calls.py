#!/usr/bin/env python3
"""What every call of the package has in common: it can be stopped at any moment, it tells how far it is, and it names a
wrong argument."""
import _thread
import contextlib
import enum
import faulthandler
import gc
import inspect
import io
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

from here import BUILD, ROOT  # before attn
import attn
from attn import lens
import test_convert

STORIES = BUILD / "tiny-stories.attn"
TRANSCODERS = ROOT / "examples" / "sae" / "transcoders"
PACKAGE = str(pathlib.Path(attn.__file__).parent)
MODEL, INDUCTION = attn.Model(STORIES), attn.Model(BUILD / "induction.attn")
FOLDER = tempfile.TemporaryDirectory()
TUNED, CONTROL, RECEIPT, SUITE = (pathlib.Path(FOLDER.name) / name for name in ("tuned.safetensors", "control.safetensors", "story.json", "pairs.csv"))
for path, arrays in ((TUNED, {f"{i}.{name}": np.zeros((192,) * n) for i in range(4) for name, n in (("weight", 2), ("bias", 1))}),
                     (CONTROL, {f"direction.{i}": np.zeros(192) for i in range(4)})):
    MODEL._context().run(attn._library.lib.lens_save, os.fsencode(path), attn._strings(arrays), (attn._library.attn_tensor * len(arrays))(
        *(attn._library.attn_tensor.of(array.astype(np.float32)) for array in arrays.values())), len(arrays))
SESSION = MODEL.session(32)
SESSION.generate("Once", max_tokens=2, receipt=RECEIPT).read()
HEADED = pathlib.Path(FOLDER.name) / "headed.attn"
attn.convert(ROOT / "tests/fixtures/heads/reward", HEADED, tokenizer=False)
SUITE.write_text("sentence_good,sentence_bad\nThe cat sat.,The cat sit.\n")
PAIR = lens.Pair("The cat said that she", "The boy said that she", lens.logit_diff(" was", " had"))
SHORT = lens.Pair([0, 1], [0, 2], lens.logit_diff(3))


def interrupted_at(moment, call):
    """Runs call() with a KeyboardInterrupt at a step of the interpreter in the package. False: the call was over before."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == moment:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
        return count >= moment  # C's callback took it, or a destructor
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)


class Interrupts(unittest.TestCase):
    def every_moment(self, prepared, step=1):
        """prepared() gives a call and a check. The check runs in another thread, which a lost lock would stop for ever."""
        sys.unraisablehook, hook = lambda _: None, sys.unraisablehook
        try:
            moment = 1
            while True:
                call, check = prepared()
                went_on = interrupted_at(moment, call)
                found = []
                thread = threading.Thread(target=lambda: found.append(check()), daemon=True)
                thread.start()
                thread.join(60)
                self.assertEqual(found, [None], f"after an interrupt at moment {moment}")
                if not went_on:
                    self.assertGreater(moment, 20)
                    gc.collect()
                    return
                moment += step
        finally:
            sys.unraisablehook = hook

    def session(self, call):
        def prepared():
            session = MODEL.session(16)
            session.feed([5])

            def check():
                session.truncate(1)
                session.unhook_all()
                session.feed([1, 2])

            return lambda: call(session), check
        return prepared

    def test_calls_that_hold_state(self):
        for call in (lambda s: s.hook("hook_embed", lambda value, point: None), lambda s: s.feed([3]),
                     lambda s: s.edit("hook_embed", "add", np.zeros(192)), lambda s: s.copy(), lambda s: s.tokens,
                     lambda s: s.cache_get("keys", 0), lambda s: s.hook("hook_embed", print).remove()):
            self.every_moment(self.session(call))

    def test_calls_with_functions_and_records(self):
        def hooked(session):
            with session.hook("hook_embed", lambda value, point: value * 1):
                session.feed([1])

        def recorded(session):
            with session.record("hook_embed", n_positions=2) as record:
                session.feed([1])
            record["hook_embed"]

        for call in hooked, recorded:
            self.every_moment(self.session(call), 3)

    def test_a_hook_is_there_whole_or_not_at_all(self):
        for moment in range(1, 400):
            session, seen = MODEL.session(4), []
            if not interrupted_at(moment, lambda: session.hook("hook_embed", lambda value, point: seen.append(1))):
                return
            session.feed([1])
            self.assertEqual(seen, [], moment)

    def test_a_call_in_another_thread(self):
        """Interrupts while the caller waits, also before and behind it."""
        for moment in range(1, 4000, 7):
            if not interrupted_at(moment, lambda: lens.steering_vector(MODEL, "blocks.2.hook_resid_pre", "a", "b")):
                break
        self.assertEqual(lens.steering_vector(MODEL, "blocks.2.hook_resid_pre", "a", "a").any(), False)

    CALLS = {
        "generate_many": "model.generate_many(['Once upon a time'] * 400, max_tokens=200, sampling=attn.Sampling(temperature=1))",
        "patch": "lens.patch(model, [pair] * 4000, 'attn.hook_z', 'position_heads')",
        "path_patch": "lens.path_patch(model, [pair] * 9000, [(0, 1), (1, 2)], [(2, 'hook_q_input', 3)], mlps='through')",
        "exact_effects": "lens.exact_effects(model, [pair] * 2000)",
        "interactions": "lens.interactions(model, [pair] * 500)",
        "shapley": "lens.shapley(model, [pair] * 500, ['input', 'm1', 'm2', 'm3', 'a0.h1', 'a1.h1', 'a2.h1'])",
        "prune": "lens.prune(model, [pair] * 500, 0.1)",
        "edge_scores": "lens.Backward(model).edge_scores([pair] * 4000, 50)",
        "graph": "[lens.graph(model, 'Once upon a time there was a little girl ' * 9, sys.argv[2], check=True, node_threshold=1) for _ in range(9)]",
        "curve": "lens.curve(model, [pair] * 30000, lens.Backward(model).edge_scores(pair))",
        "function": "lens.patch(model, pair._replace(metric=lens.function(lambda x: time.sleep(0.01) or 0)), 'attn.hook_pattern', 'weights')",
    }

    @unittest.skipIf(os.name == "nt", "there are no signals to send")
    def test_an_exception_waits_for_c(self):
        """It comes at a step of the call that waits, and a second one while the first is kept."""
        pairs, call = [PAIR] * 4000, attn._library.Call
        places = [(function.__code__, first + i, line.strip()) for function in (call.watched, call.__exit__)
                  for lines, first in [inspect.getsourcelines(function)] for i, line in enumerate(lines)]
        for places in [at for at in places if at[2].startswith(("while", "continue"))], places:
            before, left = _thread._count(), [None, None]

            def raised(_, frame):
                if left and frame and (frame.f_code, frame.f_lineno) in [at[:2] for at in places] and _thread._count() > before:
                    left.pop()
                    raise ZeroDivisionError
            self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, raised))
            signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
            try:
                self.assertRaises(ZeroDivisionError, lens.patch, MODEL, pairs, "attn.hook_z", "position_heads")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            self.assertEqual(_thread._count(), before)

    def test_locks_and_threads_of_gevent(self):
        """Its locks take no other arguments than a `with` gives, and it has no threads, but changes places."""
        locks = [threading.Semaphore() for _ in range(9)]
        with mock.patch("threading.Lock", locks.pop), mock.patch("_thread.start_new_thread", lambda *_: self.fail("a thread")):
            self.assertTrue(MODEL.session(20).generate("Once", max_tokens=5).read())
            self.assertEqual(lens.patch(MODEL, PAIR, "attn.hook_z", "heads").effect.shape, (4, 6))

    @unittest.skipIf(os.name == "nt", "there are no signals to send")
    def test_signals_end_long_calls_and_the_model_goes_on(self):
        """Ctrl-C, and an alarm whose handler raises, within a second. One that raises nothing ends nothing."""
        start = ("import signal, sys, time, attn; from attn import lens; model = attn.Model(sys.argv[1]); heard = []\n"
                 "pair = lens.Pair('The cat said that she', 'The boy said that she', lens.logit_diff(' was', ' had'))\n"
                 "def late(*_): raise TimeoutError\n"
                 "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background of a shell ignores it
                 "signal.signal(signal.SIGALRM, late); signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))\n"
                 "print('ready', flush=True)\ntry:\n    %s\n    print('over')\n"
                 "except (KeyboardInterrupt, TimeoutError) as error:\n"
                 "    print(time.monotonic(), type(error).__name__, heard, model('Once').shape, flush=True)\n")
        for i, (name, call) in enumerate(self.CALLS.items()):
            number = (signal.SIGINT, signal.SIGALRM)[i % 2]
            with self.subTest(name), subprocess.Popen([sys.executable, "-c", start % call, STORIES, TRANSCODERS], stdout=subprocess.PIPE, text=True,
                                                      env={**os.environ, "PYTHONPATH": str(ROOT / "examples" / "python")}) as process:
                process.stdout.readline()
                time.sleep(0.4)
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.4)
                sent = time.monotonic()  # one clock for all processes
                process.send_signal(number)
                try:
                    ended, said = process.communicate(timeout=60)[0].split(" ", 1)
                finally:
                    process.kill()
                self.assertEqual(said, f"{'KeyboardInterrupt' if number == signal.SIGINT else 'TimeoutError'} [1] (1, 2048)\n")
                self.assertLess(float(ended) - sent, 1)


class Table:
    """As a pandas.DataFrame looks from outside."""
    columns, shape = ["a"], (1, 1)

    def __iter__(self):
        return iter(["a"])

    def __getitem__(self, _):
        return [1]

    def __array__(self, *_, **__):
        return np.ones((1, 1))


class Arguments(unittest.TestCase):
    WRONG = [None, 3.5, float("nan"), -1, 2**70, "", "no such\0", "nothing", b"\xff", {}, {"a": 1}, set(), [], [None], [[]], [2**70],
             ["a", 1], (1, "a", None), object(), lambda *_: 1 / 0, Table(), np.zeros((2, 3, 4, 5, 6)), np.array(["a"]), np.nan, 1j,
             slice(5, 1), slice("a", None), MODEL, np.full((3, 3), np.nan, np.float32)]

    # Right arguments that have no default, by their names, behind the call's where others need another. The rest do as annotated.
    RIGHT = {"model": MODEL, "tokens": "a b", "pairs": SHORT, "pair": SHORT, "metric": lens.loss(), "name": "attn.hook_z", "layer": "L1H1",
             "amount": 9.0, "fn": print, "resid": np.zeros((1, 192)), "parts": np.zeros((2, 1, 192)), "scale": [[1]], "length": 0,
             "directions": np.zeros((1, 192)), "texts": ["a b"], "text": " was", "ids": [1], "token": 3, "part": "keys", "task": "pronouns",
             "senders": ["L0H1"], "receivers": [(2, "hook_q_input", 3)], "nodes": ["m1"], "pattern": "previous", "command": "heads",
             "x": np.zeros((1, 192)), "stream": np.zeros((1, 192)), "logits": np.zeros(2048), "features": np.zeros((1, 512)), "kind": "zero",
             "key": "hook_embed", "arrays": {}, "path": "x.svg", "sampling": attn.Sampling(), "directory": ROOT / "examples" / "sae",
             "session": SESSION, "sessions": [SESSION], "scores": np.zeros((29, 77)), "kept": np.zeros((29, 77)), "logits_fn": None,
             "Generation receipt": None, "feed_batch tokens": ["a"], "composition_scores kind": "K", "load name": "tiny-stories",
             "load_sae name": "tiny-stories", "check name": "cache/2", "Model.tensor name": "W_E", "Model path": STORIES,
             "Model.save path": "x.attn", "Record.save path": "x.npz", "Record names": None, "TunedLens path": TUNED,
             "control_vector path": CONTROL, "refactor_attention path": "y.attn", "verify receipt": RECEIPT, "Model.suite path": SUITE,
             "checkpoint": test_convert.PLAIN, "output": "z.attn", "download name": "somebody/plain", "download revision": "chck_1M",
             "download directory": "hub", "Model.classify texts": [[1, 2]], "Session.generate prompt": "a",
             "add_control directions": np.zeros((4, 192)), "Session.cache_set value": np.zeros((0, 6, 32)),
             "Session.generate max_tokens": 2, "Model.generate_many max_tokens": 2,
             **{f"{call} name": "hook_embed" for call in ("Session.edit", "Session.hook", "steering_vector")},
             **{f"{call} layer": 1 for call in ("TunedLens.apply", "Session.cache_get", "Session.cache_set", "Model.word_vectors", "HookPoint")},
             **{f"{call} model": INDUCTION for call in ("prune", "exact_effects", "interactions", "edges")}}

    def given(self, name, call, **others):
        """Right arguments, but for others: those by position, and those by name."""
        taken = self.taken(call)
        right = {p.name: self.right(name, p) for p in taken if p.default is p.empty or f"{name} {p.name}" in self.RIGHT}
        right.update(others)
        return [right.pop(p.name) for p in taken if p.kind is p.POSITIONAL_ONLY], right

    def right(self, call, parameter):
        for key in f"{call} {parameter.name}", parameter.name:
            if key in self.RIGHT:
                return self.RIGHT[key]
        kind = attn._arguments._kind_of(str(parameter.annotation), vars(lens))
        for value in (1, "a", []) if kind else ():
            with contextlib.suppress(TypeError, ValueError):
                return kind[1][1](value)

    @staticmethod
    def taken(call):
        return [p for p in inspect.signature(call).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

    def calls(self):
        """Each public function, method and maker, by its name."""
        back, text = lens.Backward(MODEL), "a b"
        objects = {type(made): made for made in (
            MODEL, MODEL.tokenizer, SESSION, back, lens.load_sae("tiny-stories"), lens.TunedLens(MODEL, TUNED), attn.Sampler(MODEL),
            MODEL.score(text), MODEL.run_with_cache(text)[1], lens.ablate_heads(MODEL, text), lens.heads(MODEL, text), lens.describe("heads"),
            lens.curve(MODEL, PAIR, back.edge_scores(PAIR)), lens.edges(MODEL, PAIR), lens.graph(MODEL, text), lens.patterns(MODEL, text),
            lens.shapley(MODEL, PAIR, ["m1"]), lens.patch(MODEL, PAIR, "attn.hook_z"), lens.prune(INDUCTION, SHORT, 9),
            lens.patch(MODEL, [PAIR] * 6, "attn.hook_z", each=True).each)}
        for thing in attn.check.check, *(getattr(module, name) for module in (attn, lens) for name in module.__all__):
            if inspect.isfunction(thing) or inspect.isclass(thing) and not issubclass(thing, (Exception, enum.Enum)):
                yield thing.__name__, thing
            for key in dir(thing) if inspect.isclass(thing) else ():
                method = inspect.getattr_static(thing, key)
                if inspect.isfunction(method) and (key[0] != "_" or key == "__call__") and len(self.taken(method)) > 1:  # more than self
                    yield f"{thing.__name__}.{key}", getattr(attn.Model(HEADED) if key == "classify" else objects[thing], key)

    def setUp(self):
        self.addCleanup(mock.patch.stopall)
        for patch in mock.patch.dict(os.environ, test_convert.serve(self), ATTN_MODELS=str(BUILD)), mock.patch("sys.stdout", io.StringIO()), mock.patch("warnings.warn"):
            patch.start()
        self.addCleanup(os.chdir, ROOT)
        os.chdir(FOLDER.name)

    def test_progress_is_told(self):
        for name, call in self.calls():
            if any(p.name == "progress" for p in self.taken(call)):
                with self.subTest(name):
                    (first, right), shares = self.given(name, call), []
                    call(*first, **right, progress=shares.append)
                    self.assertEqual((shares, shares[-1]), (sorted(shares), 1))
                    with self.assertRaises(ZeroDivisionError):
                        call(*first, **right, progress=lambda share: 1 / 0)
                    with mock.patch("sys.stderr", io.StringIO()) as said:
                        call(*first, **right, progress=True)
                    self.assertTrue("100%" in said.getvalue() and "101%" not in said.getvalue())

    def test_every_wrong_kind_of_every_argument(self):
        """Right arguments do, and what is wrong with another is said, by its name or by the value."""
        refused = (TypeError, ValueError, KeyError, IndexError, FileNotFoundError, attn.Error)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        for name, call in self.calls():
            for parameter, wrong in [(None, None), *itertools.product([p.name for p in self.taken(call)], self.WRONG)]:
                faulthandler.dump_traceback_later(60, exit=True)  # a call that hangs
                SESSION.unhook_all()
                SESSION.truncate(0)
                with self.subTest(f"{name}({parameter}={wrong!r:.40})"):
                    try:
                        first, given = self.given(name, call, **({parameter: wrong} if parameter else {}))
                        getattr(call(*first, **given), "read", int)()  # a text is written when it is read
                    except ModuleNotFoundError as error:
                        self.assertEqual(error.name, "pandas")  # which may be absent
                    except Exception as error:
                        if not parameter:
                            raise
                        if callable(wrong):  # which may raise what it likes
                            continue
                        self.assertIsInstance(error, refused)
                        self.assertNotRegex(str(error), "^$|object has no attribute|positional")
                        if isinstance(error, (TypeError, ValueError)):
                            says = parameter.rstrip("s"), str(wrong), repr(wrong), "ids", "the text is empty", "the name must end", "saved as"
                            self.assertTrue(any(part in str(error) for part in says), error)

    def test_pointers_go_with_their_length(self):
        ids = list(range(1, 60))
        for n in (1, 58, 60, 200):
            of = lens.loss([5] * n)
            for call in (lambda: lens.ablate_heads(MODEL, ids, of), lambda: lens.Backward(MODEL).gradients(ids, of, ["hook_embed"]),
                         lambda: lens.patch(MODEL, lens.Pair(ids, ids[::-1], of), "attn.hook_z", "heads")):
                self.assertRaisesRegex(ValueError, f"{n} targets, and the text 59 tokens", call)
        self.assertRaisesRegex(ValueError, "targets is .*expected one row", lens.loss, np.zeros((2, 30), int))

    def test_every_argument_has_a_kind(self):
        """Or it is one that the functions check themselves."""
        own = {"Any", "Pairs", "Token", "Optional[Token]", "Optional[Metric]", "Union[Tokens, Pairs]", "Union[str, npt.ArrayLike]"}
        for module, name in ((module, name) for module in (attn, lens) for name in module.__all__):
            function = inspect.unwrap(getattr(module, name))
            for key, kind in function.__annotations__.items() if inspect.isfunction(function) else ():
                self.assertTrue(key == "return" or kind in own or attn._arguments._kind_of(kind, function.__globals__), (name, key, kind))
        for groups in ([["feature 0.4.17"]], np.zeros((2, 2)), {"a": 1}, {"a": "feature 0.4.17"}, {1: []}, {"a": [1]}):
            with self.assertRaisesRegex(TypeError, "groups is .*; expected a dictionary of lists of nodes"):
                lens.graph(MODEL, "The cat", groups=groups)

    def test_an_empty_list_selects_nothing(self):
        self.assertEqual(len(MODEL.run_with_cache("a", [])[1]), 0)
        self.assertEqual(lens.Backward(MODEL).gradients("a b", lens.loss(), []).gradient, {})
        self.assertTrue((lens.detect_head(MODEL, "a b", "previous", heads=[]) == -1).all())
        self.assertEqual((MODEL.generate_many([]), attn.feed_batch([], [])), ([], []))

    def test_an_index_error_in_a_hook_says_where(self):
        def batched(z, point):
            z[:, :, 0, :] = 0

        with self.assertRaises(IndexError) as caught:
            MODEL.run_with_hooks("a b", [("blocks.0.attn.hook_z", batched)])
        said = " ".join([str(caught.exception), *getattr(caught.exception, "__notes__", [])])
        for part in ("blocks.0.attn.hook_z", "[2, 6, 32]", "batch_dim=True"):
            self.assertIn(part, said)

    def test_what_a_batch_gives_every_call_takes(self):
        batch, text, sae = attn.Model(STORIES, batch_dim=True), "The cat sat.", lens.load_sae("tiny-stories")
        one, cache = MODEL.run_with_cache(text)[1], batch.run_with_cache(text)[1]
        stream, scale = "blocks.3.hook_resid_post", "ln_final.hook_scale"
        stack, direction = lens.decompose_resid(MODEL, text).stack, MODEL.logit_directions([5])
        pairs = [(sae.encode(cache[sae.hook_name])[0], sae.encode(one[sae.hook_name])),
                 (batch.logit_lens(cache[stream], cache[scale])[0], MODEL.logit_lens(one[stream], one[scale])),
                 (batch.logit_attrs(stack[:, None], cache[scale], direction)[:, 0], MODEL.logit_attrs(stack, one[scale], direction)),
                 (batch.logit_lens(cache)[:, 0], MODEL.logit_lens(one)),
                 (lens.Backward(batch).gradients(text, lens.loss()).gradient[stream][0],
                  lens.Backward(MODEL).gradients(text, lens.loss()).gradient[stream]),
                 (lens.ablate_heads(batch, text, lens.function(lambda x: x[0, -1, 5])).change,
                  lens.ablate_heads(MODEL, text, lens.function(lambda x: x[-1, 5])).change)]
        for model, found in ((batch, cache), (MODEL, one)):
            with model.session() as session:
                session.edit("blocks.1.hook_resid_post", "set", found["resid_post", 0])
                session.edit("blocks.2.attn.hook_z", "set", found["z", 1])
                pairs.append(session.feed(text))
        pairs.append((pairs.pop(), pairs.pop()))
        for i, (a, b) in enumerate(pairs):
            np.testing.assert_array_equal(a, b, err_msg=str(i))

    def test_a_closed_models_sessions_go_on(self):
        with attn.Model(STORIES) as model:
            session = model.session()
        session.feed("Once upon")
        session.hook(lambda name: "hook_z" in name, lambda value, point: None)
        copied = session.copy()
        self.assertEqual(copied.tokens.tolist(), session.tokens.tolist())
        session.record()
        session.feed(" a time")
        self.assertTrue(session.generate(max_tokens=2).read())


class Receipts(unittest.TestCase):
    def test_version_1_says_what_it_does_not_cover(self):
        """The receipt of tests/suites/proof, which the first release of receipts wrote."""
        source = (ROOT / "tests" / "suites" / "proof" / "proof.c").read_text().partition("TEST(version_1)")[2].partition(";\n")[0]
        old = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', source)).replace('\\"', '"').replace("\\n", "\n")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.json"
            path.write_text(old)
            verdict = attn.verify(MODEL, path)
        self.assertTrue(verdict)
        self.assertIn("version 1 does not cover the tokenizer", verdict.says)

    def test_none_is_written_that_does_not_hold(self):
        def keys_changed(s):
            s.feed("Once upon")
            s.cache_set("keys", 0, np.zeros((2, 6, 32)))
            return s.generate(" a time", max_tokens=6, receipt=path)

        def edited_before(s):
            with s.edit("blocks.0.attn.hook_z", "zero"):
                s.feed("Once upon a")
            return s.copy().generate(" time", max_tokens=6, receipt=path)

        def edited_during(s):
            text = s.generate("Once upon a time", max_tokens=6, receipt=path)
            next(text)
            with s.edit("blocks.0.attn.hook_z", "zero"):
                next(text)
            return text

        def fed_during(s):
            text = s.generate("Once upon a time", max_tokens=6, receipt=path)
            next(text)
            s.feed(" cat")
            return text

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.json"
            for way in keys_changed, edited_before, edited_during, fed_during:
                with self.subTest(way.__name__), self.assertRaisesRegex((attn.Error, ValueError), "receipt"):
                    way(MODEL.session()).read()
                self.assertFalse(path.exists())
            os.chdir(BUILD)
            model = attn.Model("tiny-stories.attn")
            os.chdir(folder)
            try:
                model.session().generate("Once upon", max_tokens=3, receipt="r.json").read()
            finally:
                os.chdir(ROOT)
            self.assertTrue(attn.verify(model, path))


if __name__ == "__main__":
    unittest.main()

"""attn.convert and attn.download, the latter from a hub of our own that cuts, sends wrong bytes and leads elsewhere."""
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

from here import BUILD, ROOT  # before attn
import attn

PLAIN = ROOT / "tests" / "golden" / "plain"
FILES = {path.name: path.read_bytes() for path in PLAIN.iterdir() if path.suffix in (".json", ".safetensors")}
WEIGHTS = "model.safetensors"


class Hub(http.server.BaseHTTPRequestHandler):
    """Serves the repository somebody/plain. Weights are on another host, where its answer leads."""

    faults: list[str] = []  # of the next answers with weights: "cut", "wrong", "whole" (it knows no ranges)
    asked: list[tuple[str, object, object]] = []  # path, key, range

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"], self.headers["Range"]))
        name = self.path.rpartition("/")[2]
        if self.path.startswith("/api/models/somebody/plain/revision/chck_1M"):
            siblings = [{"rfilename": name, "size": len(data), **({"lfs": {"sha256": hashlib.sha256(data).hexdigest()}}
                                                               if name == WEIGHTS else {})} for name, data in FILES.items()]
            more = ["flax_model.msgpack", "pytorch_model.bin", "../up.json", "onnx/config.json"]
            self.give(json.dumps({"sha": "c0ffee", "siblings": siblings + [{"rfilename": name, "size": 3} for name in more]}).encode())
        elif self.path.startswith("/somebody/plain/resolve/c0ffee/") and name == WEIGHTS:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere/{name}")
            self.end_headers()
        elif self.path.startswith("/somebody/plain/resolve/c0ffee/"):
            self.give(FILES[name])
        elif self.path == f"/elsewhere/{WEIGHTS}":
            self.weights(FILES[WEIGHTS], self.faults.pop(0) if self.faults else "")
        else:
            self.send_error(404)

    def weights(self, data: bytes, fault: str) -> None:
        begin = int((self.headers["Range"] or "bytes=0-")[6:-1]) if fault != "whole" else 0
        data = data[:-1] + b"?" if fault == "wrong" else data
        self.give(data[begin:], 206 if begin else 200, len(data) // 3 if fault == "cut" else None)

    def give(self, data: bytes, code: int = 200, sent: object = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:sent])

    def log_message(self, *_: object) -> None:
        pass


def serve(case: unittest.TestCase) -> dict[str, str]:
    """A hub until the case ends, by the environment."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    case.addCleanup(server.server_close)
    case.addCleanup(server.shutdown)
    return {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}/", "HF_TOKEN": "key", "no_proxy": "127.0.0.1,localhost"}


class Download(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for patch in (unittest.mock.patch.dict(os.environ, serve(self), XDG_CACHE_HOME=folder.name, LOCALAPPDATA=folder.name),
                      unittest.mock.patch("time.sleep")):
            patch.start()
            self.addCleanup(patch.stop)
        Hub.faults, Hub.asked = [], []

    def right(self, folder: str) -> None:
        got = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
        self.assertEqual(got, {name: data for name, data in FILES.items() if name in got})
        self.assertLessEqual({"config.json", WEIGHTS}, set(got))

    def test_a_revision_has_its_folder(self) -> None:
        told: list[float] = []
        folder = attn.download("somebody/plain", "chck_1M", progress=told.append)
        self.right(folder)
        self.assertEqual(pathlib.Path(folder), self.folder / "attn" / "checkpoints" / "somebody--plain" / "chck_1M")
        self.assertEqual((sorted(told), told[-1]), (told, 1))
        keys = {path.split("/")[1]: key for path, key, _ in Hub.asked}
        self.assertEqual(keys, {"api": "Bearer key", "somebody": "Bearer key", "elsewhere": None})
        n = len(Hub.asked)
        attn.download("somebody/plain", "chck_1M")
        self.assertEqual(len(Hub.asked), n + 1)  # the list alone

    def test_a_cut_goes_on_and_wrong_bytes_start_over(self) -> None:
        for faults, ranges in ((["cut", "cut"], 2), (["wrong"], 0), (["cut", "whole"], 1)):
            with self.subTest(faults=faults), tempfile.TemporaryDirectory() as folder:
                Hub.faults, Hub.asked = list(faults), []
                self.right(attn.download("somebody/plain", "chck_1M", folder))
                self.assertEqual(sum(path.startswith("/else") and at is not None for path, _, at in Hub.asked), ranges)

    def test_what_does_not_come_is_said(self) -> None:
        Hub.faults = ["wrong"] * 9
        with self.assertRaisesRegex(ConnectionError, f"{WEIGHTS} did not arrive whole .*not the SHA-256.* starts over"):
            attn.download("somebody/plain", "chck_1M", self.folder / "x")
        with self.assertRaisesRegex(FileNotFoundError, "has no somebody/plain with the revision main"):
            attn.download("somebody/plain")
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
        with self.assertRaisesRegex(ConnectionError, "cannot reach http://127.0.0.1:9"):
            attn.download("somebody/plain")

    def test_the_programs(self) -> None:
        def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
            call = f"import sys; sys.argv[0] = 'attn-{name}'; from attn._convert import {name}_program as run; run()"
            return subprocess.run([sys.executable, "-c", call, *words], capture_output=True, text=True,
                                  env={**os.environ, "PYTHONPATH": str(ROOT / "examples" / "python")})
        done = run("download", "somebody/plain", "--revision", "chck_1M", "--directory", str(self.folder / "here"))
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(self.folder / "here")), done.stderr)
        made = self.folder / "plain.attn"
        done = run("convert", str(self.folder / "here"), str(made), "--dtype", "q8", "--no-tokenizer")
        self.assertEqual((done.returncode, done.stdout.split("\n")[0]), (0, "bytes,tensors,parameters,tokens"), done.stderr)
        program = self.folder / "program.attn"
        subprocess.run([BUILD / "attn-convert", "-q", PLAIN, program, "--dtype", "q8",
                        "--no-tokenizer"], check=True)
        self.assertEqual(made.read_bytes(), program.read_bytes())
        done = run("convert", "nothing", str(made))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^attn-convert: cannot open nothing: ")

    def test_r(self) -> None:
        library = BUILD / "r" / "library"
        if not (library / "attn").exists() or not shutil.which("Rscript"):
            self.skipTest("the R package is not built: make r-package")
        Hub.faults = ["wrong", "cut"]
        made, program = self.folder / "plain.attn", self.folder / "program.attn"
        script = """arguments <- commandArgs(TRUE); library(attn, lib.loc = arguments[1])
        folder <- attn_download("somebody/plain", "chck_1M", arguments[2], progress = TRUE)
        attn_convert(folder, arguments[3], dtype = "q8", tokenizer = FALSE)
        for (wrong in list(quote(attn_download("somebody/plain")), quote(attn_convert(folder, arguments[3], dtyp = 1)),
                           quote(lens(NULL, "tokens", "x"))))
            cat(tryCatch(eval(wrong), error = conditionMessage), "\\n")"""
        done = subprocess.run(["Rscript", "-e", script, library, self.folder / "here", made], capture_output=True, text=True)
        self.right(str(self.folder / "here"))
        subprocess.run([BUILD / "attn-convert", "-q", PLAIN, program, "--dtype", "q8", "--no-tokenizer"], check=True)
        self.assertEqual(made.read_bytes(), program.read_bytes(), done.stderr)
        self.assertRegex(done.stdout, "does not give out somebody/plain with the revision main .*\n.*dtyp means nothing to convert.*\n"
                                      "model: expected what attn_model")
        self.assertNotIn("Bearer key", [key for path, key, _ in Hub.asked if path.startswith("/elsewhere")])


class Convert(unittest.TestCase):
    def test_notes_are_warnings(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / WEIGHTS).write_bytes(FILES[WEIGHTS])
            config = {**json.loads(FILES["config.json"]), "bos_token_id": 10**6}
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            with self.assertWarnsRegex(UserWarning, "bos_token_id 1000000 is outside the vocabulary"):
                answer = attn.convert(folder, os.path.join(folder, "x.attn"))
            self.assertEqual(answer.facts["tokens"], 0)

    def test_it_stops_and_refuses(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            made = os.path.join(folder, "x.attn")

            def stop(share: float) -> None:
                raise KeyError(share)

            with self.assertRaises(KeyError):
                attn.convert(PLAIN, made, progress=stop)
            self.assertEqual(os.listdir(folder), [])
            for wrong, words in ((dict(dtype="q9"), 'there is no "q9"'), (dict(dtyp="q8"), "dtyp means nothing to convert"),
                                 (dict(tokenizer="x", name="\n"), "without control characters")):
                with self.assertRaisesRegex(ValueError, words):
                    attn.convert(PLAIN, made, **wrong)
            with self.assertRaisesRegex(attn.Error, r'here: attn.convert\(.*plain.*, "plain.attn"\)'):
                attn.Model(PLAIN)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Every command of lens with every setting that has no file: the same JSON from the program, Python and R as from C, or
refused by each of them.

    python3 tests/platforms/faces/settings.py BUILD

What is asked is what the suite waist asks in settings_are_obeyed, two values or more for each setting. R needs the package
attn; where it is not here it is skipped."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

BUILD = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[3]
TINY = str(BUILD / "tiny-stories.attn")
os.environ["ATTN_LIBRARY"] = str(BUILD / "libattn.so")
os.environ["R_LIBS"] = os.pathsep.join([str(BUILD / "r/library"), os.environ.get("R_LIBS", "")])  # of make r-package
sys.path.insert(0, str(ROOT / "examples/python"))
import attn  # noqa: E402
from attn import lens  # noqa: E402

R = """folder <- commandArgs(TRUE)[2]
library(attn)
model <- attn_model(commandArgs(TRUE)[1])
for (line in strsplit(readLines(file.path(folder, "asked")), "\\t")) {
  known <- lens_settings(line[2])
  words <- matrix(line[-(1:2)], 2)
  given <- lapply(unique(words[1, ]), function(name) {
    kind <- known$kind[match(name, known$setting)]
    x <- words[2, words[1, ] == name]
    if (kind == "flag") x == "1" else if (kind %in% c("whole number", "number")) as.numeric(x) else x
  })
  names(given) <- unique(words[1, ])
  tryCatch(plot(do.call(lens, c(list(model, line[2], progress = FALSE), given)), file.path(folder, paste0(line[1], ".json"))),
           error = function(e) message(conditionMessage(e)))
}"""


def asked_by_c(folder):
    """What the suite asked: of each question its digest, its command, and the name and value of each setting."""
    done = subprocess.run(["make", "-s", "test", "SUITES=waist/settings_are_obeyed", f"BUILD={BUILD}"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "ATTN_TEST_SETTINGS": str(folder / "questions")})
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (folder / "questions").read_text(encoding="utf-8").splitlines():
        digest, command, *words = line.split("\t")
        yield digest, command, list(zip(words[::2], words[1::2]))


def of_python(model, command, words, saved):
    known, given = lens.describe(command).settings, {}
    for name, value in words:
        kind = known[name].kind
        value = value == "1" if kind == "flag" else float(value) if kind == "number" else int(value) if kind == "whole number" else value
        given[name] = [*given[name], value] if known[name].many and name in given else [value] if known[name].many else value
    answer = lens.query(model, command, **given)
    answer.save(saved)
    return answer._form("json")


def of_program(known, command, words):
    line = [BUILD / "lens", TINY, command]
    for name, value in words:
        option = known[name]
        line += [f"--{option['option']}"] if option["kind"] == "flag" and (value == "1") != option["is_negated"] else (
            [] if option["kind"] == "flag" else [f"--{option['option']}={value}"])
    return subprocess.run([*line, "--json", "-q"], capture_output=True, check=True, cwd=ROOT).stdout


def main():
    model, faces, wrong = attn.Model(TINY), {"program": 0, "Python": 0, "R": 0}, 0
    commands = json.loads(subprocess.run([BUILD / "lens", "--help", "json"], capture_output=True, check=True).stdout)["commands"]
    known = {command["name"]: {setting["name"]: setting for setting in reversed(command["settings"])} for command in commands}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        questions = list(asked_by_c(folder))
        (folder / "asked").write_text("".join("\t".join([str(n), command, *(word for pair in words for word in pair)]) + "\n"
                                              for n, (_, command, words) in enumerate(questions)), encoding="utf-8")
        has_r = shutil.which("Rscript") and subprocess.run(["Rscript", "-e", R, TINY, place], cwd=ROOT, capture_output=True).returncode == 0
        for n, (digest, command, words) in enumerate(questions):
            saved = folder / "saved.json"  # of edges and graph it is a file of theirs
            saved.unlink(missing_ok=True)
            ways = {"Python": lambda: of_python(model, command, words, saved), "program": lambda: of_program(known[command], command, words),
                    "R": (folder / f"{n}.json").read_bytes}
            for absent in ["program"] * (command in ("record", "gradients", "pairs")) + ["R"] * (not has_r):  # which it prints in other forms
                del ways[absent]
            for face, ask in ways.items():
                right = hashlib.sha256(saved.read_bytes()).hexdigest() if face == "R" and saved.exists() else digest
                try:
                    found = hashlib.sha256(ask()).hexdigest()
                except (ValueError, attn.Error, subprocess.CalledProcessError, FileNotFoundError):
                    found = "refused"
                faces[face] += 1
                if found != right:
                    wrong += 1
                    print(f"{face}: lens {command} {words}: {found}, and in C {right}", file=sys.stderr)
    print("settings:", ", ".join(f"{n} asked in {face}" if n else f"skipped: no {face} here" for face, n in faces.items()))
    print(f"{sum(faces.values()) - wrong} passed, {wrong} failed, {[*faces.values()].count(0)} skipped")
    return wrong > 0 or not questions


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.chdir(ROOT)
    sys.exit(main())

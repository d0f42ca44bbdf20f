#!/usr/bin/env python3
"""Do the tests notice the errors of faults/*.txt? `make planted` calls this; parts of their names or files choose some.

A fault is a block of lines: its name; "file FILE"; "test SUITE/CASE", with settings of make behind it, or "test COMMAND";
the old text, which stands in the file once, each line behind "- "; the new text, behind "+ ". Each is planted alone in a
copy of the tree and its build, and what its test needs is made again, but no model. The test must fail, and pass without."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys

COPY, LEFT = "build/planted", ".* __pycache__ planted mutate test-tmp web-* gpt2-files *.Rcheck"
KEPT = "$(printf -- '-o %s ' build/flags build/*.attn build/*/*.attn)"
BUILT = " ".join("build/" + name for name in "libattn.so lens surprisal gpt2 score attn-convert attn-verify".split())


def run(command):
    """Status and output of a command in the copy. What takes ten minutes hangs."""
    done = subprocess.run(["timeout", "600", "sh", "-c", "unset MAKEFLAGS MFLAGS; export OMP_WAIT_POLICY=passive; " + command],
                          cwd=COPY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def noticed(file, test):
    """What the test says when it fails; "" if it passes, None if what it needs can't be made."""
    case = re.match(r"([\w-]+)/\w+(?= \w+=|$)", test)
    flags = "-O1 -DATTN_NO_DISPATCH -march=native" if file == "attn.h" else "-O0"  # attn.h would be too slow with -O0
    for name in glob.glob(COPY + "/build/attn*.o") + glob.glob(COPY + "/build/tests/suites/%s/*.o" % test.split("/")[0]):
        if file == "attn.h":  # objects with an implementation, and those of the suite, which settings may change
            os.remove(name)
    needs = "tested SUITES=" + test if case else BUILT if "platforms/" in test else "build/flags"
    if run("make -s %s CFLAGS='%s' %s" % (KEPT, flags, needs))[0] != 0:
        return None
    status, output = run("build/tests/with/%s %s" % (case.group(1), case.group()) if case else test)
    found = re.search(r"^(FAILED|FAIL:|ERROR:) .*", output, re.M)
    return found.group() if found else output[-200:].strip() or "status %d" % status if status != 0 else ""


def plant(file, test, old, new):
    """attn.h keeps its date: most objects want its declarations alone."""
    path = pathlib.Path(COPY, file)
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        return "its old text stands in %s %d times" % (file, text.count(old))
    path.write_text(text.replace(old, new), encoding="utf-8")
    if file == "attn.h":
        shutil.copystat(file, path)
    return None


def outcome(file, test, old, new):
    """A word for what became of a fault, and details."""
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(".", COPY, symlinks=True, ignore=shutil.ignore_patterns(*LEFT.split()))
    before = noticed(file, test)
    why = plant(file, test, old, new) if before == "" else "without the fault: %s" % before
    how = None if why else noticed(file, test)
    return ("SURVIVED", test) if how == "" else ("died", how) if how else ("STALE", why or "it does not compile")


def main():
    alive = 0
    for path in sorted(glob.glob("tests/planted/faults/*.txt")):
        blocks = pathlib.Path(path).read_text(encoding="utf-8").strip().split("\n\n")
        for name, *lines in (block.split("\n") for block in blocks if block[0] != "#"):
            if any(word in path or word in name for word in sys.argv[1:] or [""]):
                old, new = ("\n".join(line[2:] for line in lines if line[:2] == sign) for sign in ("- ", "+ "))
                word, details = outcome(lines[0][5:], lines[1][5:], old, new)
                alive += word != "died"
                print("%-8s %s (%s)" % (word, name, details), flush=True)
    return alive > 0


if __name__ == "__main__":
    sys.exit(main())

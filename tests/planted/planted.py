#!/usr/bin/env python3
"""Does the test that should notice an error notice it? `make planted` calls this, PLANTED="..." has its options: parts
of the names of faults, or of their files; none: all.

faults/*.txt has the errors. Each is planted alone in a copy of the tree and its build, what its test needs is built
again, and the test must fail, which passes without the fault. A block of lines is a fault:

    name of the fault
    file FILE
    test SUITE/CASE             and settings of make for it (THREADS=own); or a command
    - old text, which stands in the file once; a line each, blanks in front as in the file from the second line on
    + new text

Status 1: a fault survived, or can't be planted any more."""
import glob
import os
import re
import shutil
import subprocess
import sys

COPY = "build/planted"
# What a fault is in is compiled again with these; the rest is as `make` has built it.
HEADER = "-O1 -DATTN_NO_DISPATCH -march=native"  # attn.h without optimization: the tests would take minutes
PROGRAM = "-O0"
PATIENCE = 1800  # seconds; a test that takes longer hangs, and so has noticed
BUILT = "libattn.so lens surprisal gpt2 score attn-convert attn-verify tiny-stories.attn induction.attn"


class Fault:
    def __init__(self, path, block):
        lines = block.split("\n")
        self.room, self.name = os.path.basename(path)[:-4], lines[0]
        self.file, self.test = lines[1].split(" ", 1)[1], lines[2].split(" ", 1)[1]
        self.old, self.new = ("\n".join(line[2:] for line in lines[3:] if line.startswith(sign)) for sign in "-+")

    def is_case(self):
        return re.match(r"[\w-]+/\w+( \w+=|$)", self.test) is not None


def make(*words):
    """Output of make in the copy; None: it failed. Programs and flags stay as they are but for what has changed."""
    done = subprocess.run(["make", "-s", "-o", "build/flags", *words], cwd=COPY, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def fresh_copy():
    shutil.rmtree(COPY, ignore_errors=True)
    left = shutil.ignore_patterns(".*", "__pycache__", "planted", "mutate", "test-tmp", "web-*", "gpt2-files", "*.Rcheck")
    shutil.copytree(".", COPY, symlinks=True, ignore=left)


def plant(fault):
    """Plants it; if it can't, says why. attn.h keeps its date, so that of all that includes it only objects with an
    implementation are made again: those for libraries and programs, and those of the suite itself."""
    path = os.path.join(COPY, fault.file)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(fault.old) != 1 or not fault.old:
        return "its old text is %d times in %s" % (text.count(fault.old), fault.file)
    date = os.stat(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(fault.old, fault.new))
    if fault.file == "attn.h":
        os.utime(path, ns=(date.st_atime_ns, date.st_mtime_ns))
        suite = COPY + "/build/tests/suites/%s/*.o" % fault.test.split("/")[0]
        for name in glob.glob(COPY + "/build/attn*.o") + glob.glob(suite):
            os.remove(name)
    return None


def noticed(fault):
    """Builds what the test needs and runs it: what noticed, "" if nothing did, None if it can't be built."""
    flags = "CFLAGS=" + (HEADER if fault.file == "attn.h" else PROGRAM)
    if fault.is_case():
        case, *settings = fault.test.split()
        needs, command = ["tested", "SUITES=" + case, *settings], "build/tests/with/%s %s" % (case.split("/")[0], case)
    else:
        needs, command = ["build/" + name for name in BUILT.split()], fault.test
    if make(flags, *needs) is None:
        return None
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    try:
        done = subprocess.run(command, shell=True, cwd=COPY, env=environment, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    output = done.stdout.decode(errors="replace")
    found = re.search(r"^(FAILED|FAIL:|ERROR:) .*", output, re.M)
    return "" if done.returncode == 0 else found.group() if found else output[-200:].strip() or "status %d" % done.returncode


def main():
    wanted, survived, passes = sys.argv[1:], 0, {}
    for path in sorted(glob.glob("tests/planted/faults/*.txt")):
        with open(path, encoding="utf-8") as file:
            faults = [Fault(path, block) for block in file.read().strip().split("\n\n") if block[0] != "#"]
        for fault in faults:
            if wanted and not any(word in fault.room or word in fault.name for word in wanted):
                continue
            fresh_copy()
            if fault.test not in passes:
                passes[fault.test] = noticed(fault)
            why = plant(fault)
            how = why or noticed(fault)
            word = "DIED" if how and not why and passes[fault.test] == "" else "SURVIVED" if how == "" else "NO TEST"
            survived += word != "DIED"
            print("%-8s %s: %s (%s)" % (word, fault.room, fault.name, passes[fault.test] or how), flush=True)
    print("%d faults live" % survived)
    return survived > 0


if __name__ == "__main__":
    sys.exit(main())

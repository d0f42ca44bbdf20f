#!/usr/bin/env python3
"""Are errors noticed? `make mutate` calls this.

    python3 tests/planted/mutate.py [--check] [--mend] [--quick] [--only TEXT] [--from N] [--to N] [--every N]

Plants one error at a time in a private copy of the sources, builds, and runs the tests that should
notice: the suites named beside it first, then all of them. An error that no test notices survives,
and somebody has to look at it. At least BAR of 100 must be noticed.

planted.py is the table, planting.py finds the places. An error whose place is not found is an
orphan. An orphan, or a planted error that does not compile, is a mistake in the table, and ends in
status 1 too. A test program that crashes or hangs has noticed; so has one that asks for more memory
than MEMORY or makes a file larger than FILE.

--check only looks for the places: it lists the orphans, and the nearest function and line for each.
--mend changes the function's name in the table where the same text now stands in one other function.
--quick runs the suites named beside an error and no others. --every N takes one in N, --only those
whose file, function, old or new text contains TEXT."""
import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from planted import ALL_SETS, CHECKED
from planting import ERRORS, Source

TABLE = "tests/planted/planted.py"
TREE = "build/mutate"
BAR = 95
MEMORY = 12 << 30
FILE = 8 << 30

# The programs that suites run, besides the test program itself.
TOOLS = ["attn-convert", "attn-info", "attn-tokenize", "gpt2"]
NEEDS = {"kernels": TOOLS[:1], "format": TOOLS[:1], "model": TOOLS[:1], "hooks": TOOLS[:1],
         "lens": TOOLS[:1], "files": TOOLS[:1],
         "convert": TOOLS + ["lens"], "family": TOOLS[:2],
         "tools": TOOLS + ["hello", "lens", "bench"], "lens-tool": TOOLS + ["lens"],
         "bench": TOOLS + ["bench"], "score": ["attn-convert", "gpt2", "score"]}
ALL_SUITES = ["tensors", "ops", "kernels", "tokenizer", "format", "gpt2", "session", "threads", "watch", "record", "patch", "generate", "memory", "models", "attention", "sampling",
              "convert", "family", "tools", "notebooks", "lens", "bench", "lens-tool", "fuzz", "files",
              "faults", "fma", "load", "sizes", "score"]

# --- planting -------------------------------------------------------------------------------------


class Mistake(Exception):
    """What is wrong with the table, or with the sources before anything is planted."""


def copy_sources():
    """Brings the private copy up to date."""
    for directory, names, files in os.walk("."):
        names[:] = [n for n in names if not n.startswith(".") and
                    os.path.join(directory, n) != "./build" and n != "__pycache__"]
        target = os.path.join(TREE, directory)
        os.makedirs(target, exist_ok=True)
        for name in files:
            old, new = os.path.join(directory, name), os.path.join(target, name)
            with open(old, "rb") as file:
                content = file.read()
            if os.path.exists(new):
                with open(new, "rb") as file:
                    if file.read() == content:
                        continue
            shutil.copy(old, new)
    os.makedirs(TREE + "/build", exist_ok=True)


def memory_of(way):
    """What its programs may ask for; a sanitizer wants all addresses there are."""
    return None if way == CHECKED else MEMORY


def run(command, limit, memory):
    """Status (None: too slow) and output of a command in the copy."""
    def bound():
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    process = subprocess.Popen(
        command, cwd=TREE, env=environment, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=bound)
    try:
        output = process.communicate(timeout=limit)[0]
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None, ""


def build(way, suites):
    """Makes what these suites need. What the programs are fed stays as the right ones made it."""
    name, flags = way
    made = "build/" + name
    programs = sorted({p for s in suites for p in NEEDS.get(s, [])})
    fed = [made + "/" + f for f in ("tiny-stories.attn", "from_scratch/plain.attn", "fuzz/long.attn")]
    command = ["make", "-s", "BUILD=" + made, "CFLAGS=" + flags]
    if set(suites) == set(ALL_SUITES):
        targets = ["all", made + "/test", made + "/fuzz/replay", made + "/faults.so",
                   made + "/tests/saving", made + "/tests/saving-read", made + "/tests/threads"] + fed
        targets += [made + "/from_scratch/" + f[:-2] for f in os.listdir("examples/from_scratch")
                    if f.endswith(".c")]
    else:
        targets = [made + "/test"] + [made + "/" + p for p in programs] + fed
    if all(os.path.exists(TREE + "/" + f) for f in fed):
        for f in fed:
            command += ["-o", f]
    status, output = run(command + targets, 900, memory_of(way))
    if not os.path.exists(TREE + "/build/tiny-stories.attn"):  # where programs look by themselves
        shutil.copy(TREE + "/" + fed[0], TREE + "/build")
    return status, output


def test(way, suites, limit):
    """Who noticed: a case, or what happened; None if nobody did."""
    shutil.rmtree(TREE + "/build/test-tmp", ignore_errors=True)  # what an earlier error left there
    status, output = run(["build/%s/test" % way[0]] + list(suites), limit, memory_of(way))
    if status == 0:
        return None
    failed = [line for line in output.split("\n") if line.startswith("FAILED ")]
    if failed:
        return failed[0].split()[1]
    return "it hangs" if status is None else "signal %d" % -status if status < 0 else "exit"


def forget_objects(way, file, suites):
    """attn.h is in every program, but only these hold what is behind its declarations. The others
    need not be compiled again, which is why the file keeps its date (see planted)."""
    if file != "attn.h":
        return
    needed = {"tests/test_kernels.o": "kernels", "tests/test_fma.o": "fma",
              "tests/saving-read": "faults"}
    for name in ["attn.o", "bench"] + sorted(needed):
        if name == "attn.o" and set(suites) == {"kernels"}:
            continue
        if name in needed and needed[name] not in suites:
            continue
        path = "%s/build/%s/%s" % (TREE, way[0], name)
        if os.path.exists(path):
            os.remove(path)


def write(file, text):
    """Changes a file of the copy; attn.h keeps its date."""
    path = TREE + "/" + file
    date = os.stat(path)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    if file == "attn.h":
        os.utime(path, ns=(date.st_atime_ns, date.st_mtime_ns))


def planted(error, right, wrong, way, suites, limit):
    """Plants one error, and gives which of these suites noticed it, or None."""
    write(error.file, wrong)
    forget_objects(way, error.file, suites)
    try:
        status, output = build(way, suites)
        if status != 0:
            raise Mistake("does not compile:\n" + output[-800:])
        return test(way, suites, limit)
    finally:
        write(error.file, right)
        forget_objects(way, error.file, suites)


def usual_time(way, suites):
    """Seconds that these suites take when nothing is wrong."""
    status, output = build(way, suites)
    if status != 0:
        raise Mistake("the sources do not compile:\n" + output[-800:])
    start = time.monotonic()
    noticed = test(way, suites, 900)
    if noticed:
        raise Mistake("%s fail with nothing planted: %s" % (" ".join(suites), noticed))
    return time.monotonic() - start


class Limits:
    """How long the tests may take: measured when it is first asked for, with nothing planted."""

    def __init__(self):
        self.known = {}

    def of(self, way, suites):
        key = way, tuple(suites)
        if key not in self.known:
            self.known[key] = 20 + 5 * usual_time(way, suites)
        return self.known[key]


def who_notices(error, right, wrong, limits, quick):
    noticed = planted(error, right, wrong, error.way, error.suites,
                      limits.of(error.way, error.suites))
    if noticed or error.equivalent or quick:
        return noticed
    return planted(error, right, wrong, ALL_SETS, ALL_SUITES, limits.of(ALL_SETS, ALL_SUITES))


def mend(orphans):
    """Corrects the table where the text of an orphan has moved to one other function."""
    with open(TABLE, encoding="utf-8") as file:
        lines = file.read().split("\n")
    mended = 0
    for number, error in orphans:
        home = error.new_home()
        name = 'plant("%s"' % error.function
        if home and lines[error.line - 1].startswith(name):
            lines[error.line - 1] = lines[error.line - 1].replace(name, 'plant("%s"' % home, 1)
            print("mended  %3d: from %s to %s" % (number, error.function, home))
            mended += 1
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print("%d of %d orphans mended" % (mended, len(orphans)))
    return mended < len(orphans)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--mend", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--to", dest="last", type=int, default=len(ERRORS))
    options = parser.parse_args()
    orphans = [(n, e) for n, e in enumerate(ERRORS, 1) if not e.span()]
    if options.mend:
        return mend(orphans)
    for number, error in orphans:
        print("ORPHAN  %3d %s:%d: %s: %s\n            %s"
              % (number, TABLE, error.line, error.function, " ".join(error.old.split()),
                 error.trouble()))
    chosen = [(n, e) for n, e in enumerate(ERRORS, 1) if e.span() and
              options.first <= n <= options.last and (n - options.first) % options.every == 0 and
              any(options.only in t for t in (e.file, e.function, e.old, e.new))]
    print("%d errors, %d of them orphans, %d chosen" % (len(ERRORS), len(orphans), len(chosen)))
    mistakes = len(orphans)
    if options.check or not chosen:
        return mistakes > 0
    copy_sources()
    limits = Limits()
    caught, survived, same = 0, [], 0
    for number, error in chosen:
        right, wrong = Source.of(error.file).text, error.planted()
        title = "%3d %s" % (number, error.title())
        start = time.monotonic()
        try:
            noticed = who_notices(error, right, wrong, limits, options.quick)
        except Mistake as mistake:
            mistakes += 1
            print("MISTAKE  %s\n         %s" % (title, mistake), flush=True)
            continue
        seconds = time.monotonic() - start
        if error.equivalent and noticed:
            mistakes += 1
            print("MISTAKE  %s\n         not equivalent: %s noticed" % (title, noticed), flush=True)
        elif error.equivalent:
            same += 1
            print("same     %s: %s (%.0f s)" % (title, error.equivalent, seconds), flush=True)
        elif noticed:
            caught += 1
            print("caught   %s: %s (%.0f s)" % (title, noticed, seconds), flush=True)
        else:
            survived.append(title)
            print("SURVIVED %s (%.0f s)" % (title, seconds), flush=True)
    whole = caught + len(survived)
    share = 100.0 * caught / whole if whole else 100.0
    print("%d of %d errors noticed, %.1f in 100; %d survived, %d change nothing, %d mistakes"
          % (caught, whole, share, len(survived), same, mistakes))
    return mistakes > 0 or share < BAR


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Are errors noticed? `make mutate` calls this, MUTATE="..." has its options.

Draws mutants (see mutants.py) by a seed, plants one at a time in a private copy of the sources,
builds, and runs the suites that reach the function, that of its section first. Which suites reach
which function is measured with gcov by the first call, and again when suites are added or by
--measure. A mutant that does not compile, or that leaves every object file as it is, does not count.
A test program that crashes or hangs has noticed; so has one that asks for more memory than MEMORY or
makes a file larger than FILE.

A mutant that nothing notices survives. Somebody then writes the test that is missing, or lists the
mutant in survivors.tsv with the reason why no test can see it; those listed are not planted. Status 1:
a mutant survived that is not listed, and fewer than BAR of 100 were noticed."""
import argparse
import collections
import glob
import hashlib
import itertools
import json
import multiprocessing.pool
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

from mutants import mutants_of

HOME = "build/mutate"
LISTED = "tests/planted/survivors.tsv"
BAR = 90
MEMORY = 12 << 30
FILE = 8 << 30
STRICT = " -Werror=int-conversion -Werror=incompatible-pointer-types"
# One instruction set compiles in half the time; all of them are for what it leaves out.
ONE = "-O1 -DATTN_NO_DISPATCH -march=native"
WAYS = [("one", ONE + STRICT), ("all", "-O1" + STRICT)]
PATIENCE = 900  # seconds for a suite that is measured
REACHED = re.compile(r"Function '(\w+)'\nLines executed:(?!0\.00)")


def sources():
    return ["attn.h"] + [file for pattern in ("tools/**/*.[ch]", "examples/**/*.[ch]")
                         for file in sorted(glob.glob(pattern, recursive=True))]


def read(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def spent():
    """Seconds of a processor that the programs took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Tree:
    """A private copy of the sources, and its build."""

    def __init__(self, name, flags):
        self.root, self.flags = os.path.join(HOME, name), flags
        for directory, names, files in os.walk("."):
            names[:] = [n for n in names if not n.startswith(".") and n != "__pycache__" and
                        (directory, n) != (".", "build")]
            os.makedirs(os.path.join(self.root, directory), exist_ok=True)
            for name in files:
                old, new = os.path.join(directory, name), os.path.join(self.root, directory, name)
                if not os.path.exists(new) or read(new, "rb") != read(old, "rb"):
                    shutil.copy(old, new)
        status, output = self.make()
        if status != 0:
            raise RuntimeError("the sources do not compile:\n" + output[-2000:])
        self.right, self.forgotten = self.objects(), set()
        # What has an implementation of its own is not made again when attn.o is.
        os.utime(self.path("build/attn.o"))
        start = time.time_ns()
        self.make()
        self.own = [p for p, content in self.right.items() if b"\0attn__" in content and
                    p != "build/attn.o" and os.stat(self.path(p)).st_mtime_ns < start]

    def path(self, name):
        return os.path.join(self.root, name)

    def run(self, command, limit):
        """Status (None: too slow) and output of a command in the copy. The limit is in seconds of a
        processor for each process; all together may take ten times as long by the clock."""
        def bound():
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 10))
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        environment["OMP_WAIT_POLICY"] = "passive"
        process = subprocess.Popen(
            command, cwd=self.root, env=environment, start_new_session=True, preexec_fn=bound,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            output = process.communicate(timeout=10 * limit)[0]
            slow = process.returncode == -signal.SIGXCPU
            return None if slow else process.returncode, output.decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None, ""

    def make(self, *targets):
        """Builds these, or all that tests need. Models stay as the right converter made them."""
        command = ["make", "-s", "CFLAGS=" + self.flags] + list(targets or ("tested",))
        for model in glob.glob(self.root + "/build/**/*.attn", recursive=True):
            if "test-tmp" not in model:
                command += ["-o", os.path.relpath(model, self.root)]
        return self.run(command, 900)

    def objects(self):
        """The object files and programs that the build made, and their bytes."""
        found = {}
        for directory, names, files in os.walk(self.path("build")):
            names[:] = [n for n in names if n != "test-tmp"]
            for name in files:
                content = read(os.path.join(directory, name), "rb")
                if content.startswith(b"\x7fELF"):
                    found[os.path.relpath(os.path.join(directory, name), self.root)] = content
        return found

    def write(self, file, text):
        """attn.h keeps its date, so that of all that includes it only attn.o is compiled again: the
        others want its declarations alone, or are in `own`."""
        date = os.stat(self.path(file))
        with open(self.path(file), "w") as out:
            out.write(text)
        if file == "attn.h":
            os.utime(self.path(file), ns=(date.st_atime_ns, date.st_mtime_ns))

    def forget(self, objects):
        self.forgotten |= set(objects)
        for name in objects:
            os.remove(self.path(name))

    def plant(self, file, text):
        self.write(file, text)
        if file == "attn.h":
            self.forget(["build/attn.o"])

    def restore(self, file, text):
        for name in self.forgotten:
            with open(self.path(name), "wb") as out:
                out.write(self.right[name])
            os.chmod(self.path(name), 0o755)
        self.forgotten = set()
        self.write(file, text)

    def make_for(self, suite):
        """Builds what a suite runs. What has an implementation of its own is made again for it, too."""
        if self.forgotten:  # attn.h has changed
            self.forget([p for p in self.own if p not in self.forgotten and
                         (p.startswith("build/tests/suites/%s/" % suite.name) or
                          re.search(r"\b%s\b" % os.path.basename(p).split(".")[0], suite.text))])
        if '/command.h"' in suite.text:  # it runs programs
            return self.make()
        return self.make("build/test", *(p for p in self.right if p[len("build"):] in suite.text))

    def test(self, suite, limit):
        """What noticed in this suite: a case, or what happened; None if nothing did."""
        shutil.rmtree(self.path("build/test-tmp"), ignore_errors=True)
        status, output = self.run(["build/test", suite], limit)
        if status == 0:
            return None
        case = re.search(r"FAILED (%s/\w+)" % suite, output)
        how = "hangs" if status is None else "signal %d" % -status if status < 0 else "failed"
        return case.group(1) if case else "%s (%s)" % (suite, how)


class Suite:
    def __init__(self, folder):
        self.name = os.path.basename(folder)
        self.text = "".join(read(p) for p in sorted(glob.glob(folder + "/*.[ch]")))
        headers = glob.glob("tests/support/*.h")
        for header in headers + headers:  # those of headers, too
            if re.search('#include "(tests/support/)?%s"' % os.path.basename(header), self.text):
                self.text += read(header)
        self.seconds, self.reached, self.trusted = 0.0, [], set()

    def limit(self):
        """Seconds of a processor after which it hangs."""
        return 30 + 5 * self.seconds


class Tests:
    """The suites, the time that each takes, and the functions that it reaches."""

    def __init__(self, again):
        self.suites = [Suite(p) for p in sorted(glob.glob("tests/suites/*"))]
        store, names = HOME + "/reached.json", {s.name for s in self.suites}
        known = json.loads(read(store)) if os.path.exists(store) and not again else {}
        if set(known) != names:
            known = self.measured()
            with open(store, "w") as out:
                json.dump(known, out)
        for suite in self.suites:
            suite.seconds, suite.reached = known[suite.name]
        self.known = set().union(*(s.reached for s in self.suites))

    def measured(self):
        print("measuring which suites reach which function", flush=True)
        tree, known = Tree("counted", ONE + " --coverage"), {}
        for suite in self.suites:
            for old in glob.glob(tree.path("build/**/*.gcda"), recursive=True):
                os.remove(old)
            start, reached = spent(), set()
            tree.test(suite.name, PATIENCE)
            seconds = spent() - start
            for one in glob.glob(tree.path("build/**/*.gcda"), recursive=True):
                if "/tests/suites/" not in one or "/tests/suites/%s/" % suite.name in one:
                    _, output = tree.run(["gcov", "-f", "-n", os.path.relpath(one, tree.root)], 100)
                    reached |= set(REACHED.findall(output))
            known[suite.name] = seconds, sorted(reached)
            print("  %s: %.0f s, %d functions" % (suite.name, seconds, len(reached)), flush=True)
        return known

    def reaching(self, mutant):
        """The suites that reach the mutant's function; all if none is known to. First the suite with
        the name of its section, then the quickest."""
        name = mutant.name.split("/")[0]
        return [s for s in sorted(self.suites, key=lambda s: (s.name != mutant.section, s.seconds))
                if name in s.reached or name not in self.known]


def tree_of(name, flags, own=threading.local()):
    """This worker's own copy for one way to build."""
    if name not in vars(own):
        worker = re.search(r"\d+", threading.current_thread().name).group()
        setattr(own, name, Tree("%s-%s" % (name, worker), flags))
    return getattr(own, name)


def noticed_by(tree, mutant, suites):
    """The word for what became of a mutant that is planted, details, and the suite that noticed."""
    if tree.make(*["build/attn.o"] if mutant.file == "attn.h" else [])[0] != 0:
        return "invalid", "does not compile", None
    if all(tree.right.get(name) == content for name, content in tree.objects().items()):
        return "same", "the same object code", None
    for suite in suites:
        tree.make_for(suite)
        noticed = tree.test(suite.name, suite.limit())
        if noticed:
            return "caught", noticed, suite
    return "SURVIVED", "; ".join(s.name for s in suites) + " reach the function", None


def outcome(mutant, tests, within):
    """What became of a mutant: the word, and details."""
    text = read(mutant.file)
    suites = [s for s in tests.reaching(mutant) if s.seconds < within]
    for name, flags in WAYS:
        tree = tree_of(name, flags)
        tree.plant(mutant.file, text[:mutant.start] + mutant.new + text[mutant.end:])
        try:
            word, details, suite = noticed_by(tree, mutant, suites)
        finally:
            tree.restore(mutant.file, text)
        if suite and name not in suite.trusted:
            suite.trusted.add(name)
            tree.make_for(suite)
            wrong = tree.test(suite.name, suite.limit())
            if wrong:
                print("NOTE     %s: fails with nothing planted, so its suite is left out" % wrong)
                tests.suites = [s for s in tests.suites if s is not suite]
                return outcome(mutant, tests, within)
        if word != "same" or mutant.file != "attn.h":
            break
    return word, details


def drawn(mutants, seed, count):
    """So many of them, as many of each kind as possible, the same ones for the same seed."""
    pools = {}
    for mutant in mutants:
        pools.setdefault(mutant.kind, []).append(mutant)
    chance = random.Random(seed)
    for kind in sorted(pools):
        chance.shuffle(pools[kind])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*(pools[k] for k in sorted(pools))))
    return list(itertools.islice((m for m in turns if m), count))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--only", default="", help="those whose file or name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--within", type=float, default=1e9, help="seconds: only quicker suites")
    parser.add_argument("--measure", action="store_true", help="measure again what suites reach")
    parser.add_argument("--list", action="store_true", help="do not plant them")
    options = parser.parse_args()
    everything = [m for file in sources() for m in mutants_of(file)]
    listed = {row.split("\t")[0] for row in read(LISTED).split("\n") if row and row[0] != "#"}
    for name in sorted(listed - {m.name for m in everything}):
        print("STALE    %s: %s names a mutant that is not there any more" % (name, LISTED))
    chosen = drawn([m for m in everything if m.name not in listed and
                    (options.only in m.file or options.only in m.name)], options.seed, options.count)
    print("%d mutants, %d of them listed as survivors, %d drawn"
          % (len(everything), len(listed), len(chosen)), flush=True)
    if options.list:
        for m in chosen:
            print("%s:%d %s\n    - %s\n    + %s" % (m.file, m.line, m.name, m.before, m.after))
    if options.list or not chosen:
        return 0
    tests, counts = Tests(options.measure), collections.Counter()
    with multiprocessing.pool.ThreadPool(options.jobs) as pool:
        results = pool.imap(lambda m: outcome(m, tests, options.within), chosen)
        for m, (word, details) in zip(chosen, results):
            counts[word] += 1
            print("%-8s %s:%d %s: %s" % (word, m.file, m.line, m.name, details), flush=True)
            if word == "SURVIVED":
                print("         - %s\n         + %s" % (m.before, m.after), flush=True)
    whole = counts["caught"] + counts["SURVIVED"]
    share = 100.0 * counts["caught"] / whole if whole else 100.0
    print("%d of %d noticed, %.1f in 100; %d survived; %d do not compile, %d change no object code"
          % (counts["caught"], whole, share, counts["SURVIVED"], counts["invalid"], counts["same"]))
    return share < BAR


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Which lines and branches did the tests run? `make coverage` calls this.

    python3 tests/coverage.py BUILD... [--all]

Each BUILD is a build directory whose programs were made by clang with -fprofile-instr-generate
-fcoverage-mapping, with profiles in BUILD/profile/. Prints lines and branches of attn.h, tools/ and
examples/ and what was not run, and ends with status 1 below the bar: every line, and at least 98 %
of the branches, of attn.h and of the programs together. perplexity is only
reported; the list of what was not run of it comes with --all.

What counts. A branch is one way out of one condition: `if (a && b)` has four. A condition inside a
macro counts at every place that uses the macro. Code that is compiled several times (the kernels,
once per instruction set; the header in two programs) counts once, as run if any copy of it ran.
A condition that the compiler knows the answer of is no branch.

What no test can reach has a comment in its line, `cover: ` and the reason: what is not run of the
statement that begins in that line is not counted. The reasons are printed too. Such a comment where
everything was run has to go.
"""
import glob
import json
import os
import re
import subprocess
import sys
from collections import defaultdict

BAR = {"lines": 100.0, "branches": 98.0}
JUDGED = ("attn.h", "tools/", "examples/gpt2/")
NOT_JUDGED = ("tools/perplexity",)
CODE, EXPANSION, BRANCH = 0, 1, 4
MARK = re.compile(r"cover: (.*?) *\*/")
NO_CODE = re.compile(r"""/\*.*?\*/|//.*|"(\\.|[^"\\])*"|'(\\.|[^'\\])*'""")


def tool(name):
    """llvm-cov of the clang that built the programs, if it is under a name with a version."""
    version = subprocess.run(["clang", "-dumpversion"], stdout=subprocess.PIPE, check=True)
    versioned = "%s-%s" % (name, version.stdout.decode().split(".")[0])
    for path in os.environ["PATH"].split(":"):
        if os.path.exists(os.path.join(path, versioned)):
            return versioned
    return name


def export(build):
    """What llvm-cov knows about the programs of one build."""
    programs = [p for p in glob.glob(build + "/*") + glob.glob(build + "/*/*") + glob.glob(build + "/tests/with/*") if is_program(p)]
    profiles = glob.glob(build + "/profile/*.profraw")
    merged = build + "/profile/merged"
    subprocess.run([tool("llvm-profdata"), "merge", "-sparse", "-o", merged] + profiles, check=True)
    objects = [word for p in sorted(programs) for word in ("-object", p)]
    text = subprocess.run([tool("llvm-cov"), "export", "-instr-profile", merged] + objects[1:],
                          check=True, stdout=subprocess.PIPE).stdout
    return json.loads(text)["data"][0]


def is_program(path):
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return b"__llvm_covmap" in file.read()


def wanted(path):
    name = os.path.relpath(os.path.realpath(path))
    return name if name.startswith(JUDGED) else None


def places(function):
    """For each file number of a function: where in the function's own file it stands, a list of
    (line, column), the outermost first: longer than one where macros use macros."""
    used_at = {r[6]: r for r in function["regions"] if r[7] == EXPANSION}

    def place(number):
        if number not in used_at:
            return ()
        region = used_at[number]
        return place(region[5]) + ((region[0], region[1]),)

    return {n: place(n) for n in range(len(function["filenames"]))}


def own_file(function):
    """The file a function stands in: the one that no macro brought in."""
    brought = {r[6] for r in function["regions"] if r[7] == EXPANSION}
    return next(name for n, name in enumerate(function["filenames"]) if n not in brought)


def count_around(function, branch):
    """How often the smallest piece of code around a branch ran."""
    best = None
    for r in function["regions"]:
        if r[5] == branch[6] and r[7] == CODE and (r[0], r[1]) <= (branch[0], branch[1]) and \
                (r[2], r[3]) >= (branch[2], branch[3]):
            size = (r[2] - r[0], r[3] - r[1] if r[2] == r[0] else 0)
            if best is None or size <= best[0]:
                best = size, r[4]
    return best[1] if best else 0


def add_branches(function, branches):
    """Adds the counts of a function's branches to `branches`: file -> place -> [true, false]."""
    file = wanted(own_file(function))
    if not file or not function["branches"]:
        return
    place = places(function)
    for b in function["branches"]:
        if b[4] == b[5] == 0 and count_around(function, b) > 0:
            continue  # evaluated, and yet never true or false: known when it was compiled
        counts = branches[file][place[b[6]] + ((b[0], b[1]),)]
        counts[0] += b[4]
        counts[1] += b[5]


def add_lines(file, lines):
    """Adds the counts of a file's lines, as llvm-cov counts them: a line has the largest count of
    what begins in it and of what reaches into it."""
    name = wanted(file["filename"])
    if not name:
        return
    wrapped = None
    last = 0
    by_line = defaultdict(list)
    for segment in file["segments"]:  # [line, column, count, has a count, begins a region, gap]
        by_line[segment[0]].append(segment)
        last = segment[0]
    for number in range(1, last + 1):
        here = by_line.get(number, [])
        starts = [s for s in here if s[3] and s[4] and not s[5]]
        mapped = (wrapped is not None and wrapped[3] and not skipped_from(here)) or starts
        if mapped:
            counts = [s[2] for s in starts]
            if wrapped is not None and wrapped[3]:
                counts.append(wrapped[2])
            lines[name][number] = lines[name].get(number, 0) + max(counts)
        if here:
            wrapped = here[-1]


def skipped_from(segments):
    """Does a line begin with something the preprocessor left out?"""
    return bool(segments) and not segments[0][3] and segments[0][4]


def marks(source):
    """line of a mark -> (its reason, the lines it stands for), for the lines of a file that no test
    can reach."""
    found = {}
    for number, text in enumerate(source, 1):
        match = MARK.search(text)
        if match:
            found[number] = match.group(1), range(number, end_of_statement(source, number) + 1)
    return found


def end_of_statement(source, number):
    """The last line of the statement that begins in a line, the whole `if` or the whole block."""
    depth = 0
    for n in range(number, len(source) + 1):
        line = NO_CODE.sub("", source[n - 1])
        for character in line:
            depth += (character in "({[") - (character in ")}]")
            if depth <= 0 and character in ";}":
                return n
    return number


def spans(numbers):
    """[1, 2, 3, 7] as "1-3 7"."""
    out = []
    for n in numbers:
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return " ".join("%d" % a if a == b else "%d-%d" % (a, b) for a, b in out)


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def main():
    builds = [a for a in sys.argv[1:] if not a.startswith("--")]
    branches = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    lines = defaultdict(dict)
    for build in builds:
        data = export(build)
        for function in data["functions"]:
            add_branches(function, branches)
        for file in data["files"]:
            add_lines(file, lines)
    missing, reasons, failed, tools = [], [], False, [0, 0, 0, 0]
    print("%-26s %23s %25s" % ("", "lines", "branches"))
    for name in sorted(lines):
        with open(name, encoding="utf-8") as file:
            source = file.read().split("\n")
        marked = set()
        not_run = {n for n, count in lines[name].items() if count == 0}
        one_way = defaultdict(list)  # line -> columns and which way was not taken
        for place, (true, false) in branches[name].items():
            for count, way in ((true, "true"), (false, "false")):
                if count == 0:
                    one_way[place[0][0]].append((place, way))
        for n, (reason, covered) in marks(source).items():
            marked.update(covered)
            reasons.append("%s:%d: %s" % (name, n, reason))
            if not any(line in not_run or line in one_way for line in covered):
                reasons[-1] += "  -- BUT IT WAS RUN: remove the comment"
                failed = True
        kept = {n for n in lines[name] if not (n in not_run and n in marked)}
        n_lines, n_lines_run = len(kept), len(kept - not_run)
        n_missed = sum(len(ways) for n, ways in one_way.items() if n not in marked)
        n_excluded = sum(len(ways) for n, ways in one_way.items() if n in marked)
        n_branches = 2 * len(branches[name]) - n_excluded
        figures = {"lines": percent(n_lines_run, n_lines),
                   "branches": percent(n_branches - n_missed, n_branches)}
        judged = name.startswith(JUDGED) and not name.startswith(NOT_JUDGED)
        kinds = ["lines", "branches"] if name == "attn.h" else ["lines"]
        low = judged and any(figures[kind] < BAR[kind] for kind in kinds)
        failed |= low
        if judged and name != "attn.h":
            tools = [a + b for a, b in
                     zip(tools, (n_lines_run, n_lines, n_branches - n_missed, n_branches))]
        print("%-26s %5d of %5d  %6.2f %% %7d of %5d  %6.2f %%%s"
              % (name, n_lines_run, n_lines, figures["lines"], n_branches - n_missed, n_branches,
                 figures["branches"], "  TOO LOW" if low else ""))
        if not judged and "--all" not in sys.argv:
            continue
        for n in sorted((not_run | set(one_way)) - set(marked)):
            what = ["never run"] if n in not_run else \
                ["column %s never %s" % ("/".join(str(column) for _, column in place), way)
                 for place, way in sorted(one_way[n])]
            missing.append("%s:%d: %s\n        %s" % (name, n, ", ".join(what), source[n - 1].strip()))
    low = percent(tools[2], tools[3]) < BAR["branches"]
    failed |= low
    print("%-26s %5d of %5d  %6.2f %% %7d of %5d  %6.2f %%%s"
          % ("the programs together", tools[0], tools[1], percent(tools[0], tools[1]), tools[2],
             tools[3], percent(tools[2], tools[3]), "  TOO LOW" if low else ""))
    print("\nOut of reach, and why (%d):" % len(reasons))
    print("\n".join(reasons) or "nothing")
    print("\nNot run:")
    print("\n".join(missing) or "nothing")
    return failed


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How evenly is a pass divided over threads? Counted, so that a machine of two cores can tell.

    tests/compare/speed/count_threads.py BUILD MODEL.attn [TOKENS]      (needs valgrind)

callgrind counts the instructions of each thread while a prompt of TOKENS ids (default 1) is fed on 1 to
64 threads. The thread with most of them sets a bound: the pass cannot be faster than one thread by more
than all instructions of one thread divided by those. Waiting, loading and printing are not counted.
"""
import glob, os, re, subprocess, sys, tempfile

LEFT_OUT = re.compile("barrier|until|leave|sleep|parallel|model|digest|verify|session|workspace|bind|open|read_")


def counts(path):
    """Instructions of each function itself, in one thread's file."""
    names, total, function, is_call = {}, {}, None, False
    with open(path) as f:
        for line in f:
            named = re.match(r"c?fn=\((\d+)\)(?: (.*))?", line)
            if named and named[2]:
                names[named[1]] = named[2]
            if line.startswith("fn="):
                function = named[1]
            elif line.startswith("calls="):
                is_call = True  # the next line has the costs of the function that was called
            elif re.match(r"[+\-*\d]", line):
                if not is_call and function:
                    total[function] = total.get(function, 0) + int(line.split()[1])
                is_call = False
    return {names[k]: n for k, n in total.items()}


def work(build, model, n_tokens, n_threads):
    """Instructions of the pass in each thread."""
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["valgrind", "-q", "--tool=callgrind", "--separate-threads=yes",
                        "--callgrind-out-file=" + d + "/out", build + "/gpt2", model, "--skip-checksums", "-q",
                        "--ids", " ".join(["11"] * n_tokens), "--logits", "/dev/null",
                        "--threads", str(n_threads)], check=True, stdout=subprocess.DEVNULL,
                       env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        files = [counts(f) for f in glob.glob(d + "/out-*")]
    return [sum(n for name, n in c.items() if name.startswith("attn__") and not LEFT_OUT.search(name))
            for c in files]


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    alone = 0
    for n in (1, 2, 4, 8, 16, 32, 64):
        each = work(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1, n)
        alone = alone or sum(each)
        print("%2d threads: %8.2f million instructions, %7.2f in the busiest: at most %.1f times as fast" % (
            n, sum(each) / 1e6, max(each) / 1e6, alone / max(each)))

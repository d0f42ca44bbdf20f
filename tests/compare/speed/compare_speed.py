#!/usr/bin/env python3
"""Compares the speed of our matrix products with OpenBLAS's and BLIS's: the shapes of GPT-2 of 124M
parameters, float32, random weights. compare_peers.py compares whole models.

    compare_speed.py build/bench [--rounds 5] [--threads 1,2] [--full] [--cpu-time]

Every round runs each program once, each in a process of its own so that nobody's threads wait in
another's way; the ratios are medians over the rounds of ours / theirs, more is better for us. --full
takes all shapes of the bench, not only those of bench --quick. --cpu-time counts processor time, for
one thread on a busy machine. What is not installed is left out, with the reason. Needs numpy
(Debian: libopenblas0-pthread, libblis4-openmp, python3-numpy).
"""
import argparse, collections, ctypes, json, os, re, statistics, subprocess, sys, time

LAYERS, VOCAB = 12, 50257
SHAPE = re.compile(r"\s*(\d+) rows \* \[(\d+), (\d+)\]")
PEERS = ("OpenBLAS", "BLIS")

def seconds(a):
    return time.process_time() if a.cpu_time else time.perf_counter()

def rate(a, amount, run):
    """amount per second of run(i), the median of three measurements of at least 20 ms."""
    rates, i = [], 0
    run(0)
    for _ in range(3):
        start, n = seconds(a), 0
        while n == 0 or seconds(a) - start < 0.02:
            i += 1
            n += 1
            run(i)
        rates.append(amount * n / (seconds(a) - start))
    return statistics.median(rates)

def blas(a, names):
    """A library's sgemm through its C interface: name of the shape -> Gop/s. Like the bench, it goes
    through one matrix after another, as many as the model has layers; the unembedding is the
    embedding [VOCAB, WIDTH] transposed."""
    import numpy as np
    path = {"OpenBLAS": "libopenblas.so.0", "BLIS": "libblis.so.4"}[a.peer]
    library = ctypes.CDLL(path)
    if a.peer == "BLIS":
        library.bli_thread_set_num_threads(ctypes.c_long(a.threads))
    else:
        library.openblas_set_num_threads(a.threads)
    sgemm = library.cblas_sgemm
    sgemm.restype = None
    sgemm.argtypes = ([ctypes.c_int] * 6 + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
                      ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_int])
    result, weights = {}, {}
    for name in names:
        m, k, n = map(int, SHAPE.match(name).groups())
        is_transposed = n == VOCAB
        if (k, n) not in weights:
            weights.clear()
            weights[k, n] = np.random.default_rng(1).random((1 if is_transposed else LAYERS, k * n), np.float32)
        w = weights[k, n]
        x, out = np.random.default_rng(2).random((m, k), np.float32), np.zeros((m, n), np.float32)
        def run(i):
            sgemm(101, 111, 112 if is_transposed else 111, m, n, k, 1.0, x.ctypes.data, k,
                  w[i % len(w)].ctypes.data, k if is_transposed else n, 0.0, out.ctypes.data, n)
        result[name] = rate(a, 2e-9 * m * k * n, run)
    return result

def child(a):
    try:
        print(json.dumps(blas(a, json.load(sys.stdin))))
    except (ImportError, OSError) as e:
        print(json.dumps(str(e)))

def ours(a, threads):
    command = [a.bench, "--dtype", "f32", "--only", "matmul", "--threads", str(threads), "--json", "-"]
    command += ["--quick"] * (not a.full) + ["--cpu-time"] * a.cpu_time
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return {f["name"]: f["value"] for f in json.loads(text)["figures"] if f["threads"] == threads}

def theirs(a, peer, threads, names):
    command = [sys.executable, __file__, a.bench, "--peer", peer, "--threads", str(threads)]
    command += ["--cpu-time"] * a.cpu_time
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    text = subprocess.run(command, check=True, env=env, input=json.dumps(names).encode(), stdout=subprocess.PIPE).stdout
    return json.loads(text)

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("bench")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", default="1,2")
    ap.add_argument("--full", action="store_true")
    ap.add_argument("--cpu-time", action="store_true")
    ap.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.peer:
        a.threads = int(a.threads)
        return child(a)
    for threads in [1] if a.cpu_time else map(int, a.threads.split(",")):
        rates, absent = collections.defaultdict(list), {}
        for _ in range(a.rounds):
            mine = ours(a, threads)
            for name, value in mine.items():
                rates[name, "ours"].append(value)
            for peer in PEERS:
                result = absent.get(peer) or theirs(a, peer, threads, list(mine))
                if isinstance(result, str):
                    absent[peer] = result
                    continue
                for name, value in result.items():
                    rates[name, peer].append(value)
                    rates[name, peer + " ratio"].append(mine[name] / value)
        title = f"{threads} thread{'s' * (threads > 1)}, rounds: {a.rounds}"
        print(f"\n{title:<46}ours" + "".join(f"{peer:>12}  ratio" for peer in PEERS if peer not in absent))
        for name in mine:
            line = f"{name.strip():<32} Gop/s   {statistics.median(rates[name, 'ours']):>9.1f}"
            for peer in (p for p in PEERS if p not in absent):
                line += "".join(f"{statistics.median(rates[name, peer + more]):>{width}.{places}f}"
                         for more, width, places in (("", 12, 1), (" ratio", 7, 2)))
            print(line.rstrip())
        for peer, reason in absent.items():
            print(f"{peer} is left out: {reason}")

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares our speed with that of installed peers: OpenBLAS and BLIS for matrix products, PyTorch for
GPT-2 of 124M parameters, float32, random weights.

    compare_speed.py build/bench [--rounds 5] [--threads 1,2] [--full] [--cpu-time]

Every round runs each program once, each in a process of its own so that nobody's threads wait in
another's way; the ratios are medians over the rounds of ours / theirs, more is better for us. --full
takes all shapes of the bench, not only those of bench --quick. --cpu-time counts processor time, for
one thread on a busy machine. What is not installed is left out, with the reason. Needs numpy
(Debian: libopenblas0-pthread, libblis4-openmp, python3-numpy, python3-torch).
"""
import argparse, collections, ctypes, json, os, re, statistics, subprocess, sys, time

LAYERS, HEADS, WIDTH, VOCAB, CONTEXT = 12, 12, 768, 50257, 1024
SHAPE = re.compile(r"\s*(\d+) rows \* \[(\d+), (\d+)\]")
PEERS = ("OpenBLAS", "BLIS", "PyTorch")

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

def pytorch(a, names):
    """Hugging Face's GPT-2 step by step, keys and values in a cache that is there from the start."""
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    new = lambda *shape: torch.randn(shape) * 0.05
    d = WIDTH // HEADS
    layers = [[new(WIDTH, 3 * WIDTH), new(3 * WIDTH), new(WIDTH, WIDTH), new(WIDTH),
               new(WIDTH, 4 * WIDTH), new(4 * WIDTH), new(4 * WIDTH, WIDTH), new(WIDTH)] for _ in range(LAYERS)]
    wte, wpe, one, zero = new(VOCAB, WIDTH), new(CONTEXT, WIDTH), torch.ones(WIDTH), torch.zeros(WIDTH)
    keys, values = torch.zeros(LAYERS, HEADS, CONTEXT, d), torch.zeros(LAYERS, HEADS, CONTEXT, d)
    hidden = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)

    def feed(ids, past):
        """Logits of the last of these tokens."""
        T, end = len(ids), past + len(ids)
        x = wte[ids] + wpe[past:end]
        for i, (w_qkv, b_qkv, w_o, b_o, w_in, b_in, w_out, b_out) in enumerate(layers):
            q, k, v = (m.view(T, HEADS, d).transpose(0, 1)
                       for m in torch.addmm(b_qkv, F.layer_norm(x, (WIDTH,), one, zero), w_qkv).split(WIDTH, -1))
            keys[i, :, past:end], values[i, :, past:end] = k, v
            s = q @ keys[i, :, :end].transpose(-1, -2) / d ** 0.5
            if T > 1:
                s = s + hidden[past:end, :end]
            z = (torch.softmax(s, -1) @ values[i, :, :end]).transpose(0, 1).reshape(T, WIDTH)
            x = x + torch.addmm(b_o, z, w_o)
            h = torch.addmm(b_in, F.layer_norm(x, (WIDTH,), one, zero), w_in)
            h = 0.5 * h * (1 + torch.tanh(0.7978845608 * (h + 0.044715 * h * h * h)))
            x = x + torch.addmm(b_out, h, w_out)
        return F.layer_norm(x[-1:], (WIDTH,), one, zero) @ wte.T

    result = {}
    with torch.no_grad():
        for name in names:
            n = int(re.search(r"\d+", name)[0])
            ids = torch.arange(n) * 7919 % VOCAB
            if name.startswith("after"):
                feed(ids, 0)
                def run(_):
                    token = ids[-1:]
                    for i in range(16):
                        token = feed(token, n + i).argmax(-1)
                result[name] = rate(a, 16, run)
            else:
                result[name] = rate(a, n, lambda _: feed(ids, 0))
    return result

def child(a):
    try:
        print(json.dumps((pytorch if a.peer == "PyTorch" else blas)(a, json.load(sys.stdin))))
    except (ImportError, OSError) as e:
        print(json.dumps(str(e)))

def ours(a, threads):
    command = [a.bench, "--dtype", "f32", "--only", "matmul,prompt,generation", "--threads", str(threads), "--json", "-"]
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
                names = [name for name in mine if bool(SHAPE.match(name)) == (peer != "PyTorch")]
                result = absent.get(peer) or theirs(a, peer, threads, names)
                if isinstance(result, str):
                    absent[peer] = result
                    continue
                for name, value in result.items():
                    rates[name, peer].append(value)
                    rates[name, peer + " ratio"].append(mine[name] / value)
        title = f"{threads} thread{'s' * (threads > 1)}, rounds: {a.rounds}"
        print(f"\n{title:<46}ours" + "".join(f"{peer:>12}  ratio" for peer in PEERS if peer not in absent))
        for name in mine:
            unit = "Gop/s" if SHAPE.match(name) else "tok/s"
            line = f"{name.strip():<32} {unit:<7} {statistics.median(rates[name, 'ours']):>9.1f}"
            for peer in (p for p in PEERS if p not in absent):
                line += ("".join(f"{statistics.median(rates[name, peer + more]):>{width}.{places}f}"
                         for more, width, places in (("", 12, 1), (" ratio", 7, 2)))
                         if (name, peer) in rates else " " * 19)
            print(line.rstrip())
        for peer, reason in absent.items():
            print(f"{peer} is left out: {reason}")

if __name__ == "__main__":
    main()

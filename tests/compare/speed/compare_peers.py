#!/usr/bin/env python3
"""attn.h beside other engines on the same GPT-2: tokens per second, and how far each is from float64.

    python3 tests/compare/speed/compare_peers.py BUILD [HF_DIRECTORY] [--small] [--threads 1,2,4] [--rounds 3] [--only NAME,...]
                                           [--server NAME=LLAMA_SERVER]...
    PyPI: numpy torch transformers; onnxruntime onnx onnxscript; openvino nncf; ctranslate2; xllamacpp; gguf

Without a directory, the model has random weights and the shape of GPT-2 124M; --small takes the included one.
Every round runs each row in a process of its own, one row after another. A prompt ends with the logits of its
last position and the likeliest token; then each token is fed alone, with keys and values kept, and the likeliest
taken. Figures are medians over the rounds; ± is half of the range, in percent. "x" is attn.h's speed in the type
of the same width divided by the peer's. Loading and converting are not timed. --threads are by default all powers of
two up to the processors that this process may use; the last table has each engine's best number of them.

Accuracy, measured once with the first number of threads, is that of prompts of several lengths, in a text that
the model itself wrote: the difference of the next token's log-probabilities (llama.cpp's server and CTranslate2
give no logits) from transformers in float64, largest and root mean square, and the Kullback-Leibler divergence.
"greedy" counts how many of the tokens written after the short prompt are those of float64, up to the first other.
--server measures a llama-server that you built, such as
ik_llama.cpp's or llama.cpp's own with native flags: --server ik_llama.cpp=$HOME/ik_llama.cpp/build/bin/llama-server.
BUILD needs attn-convert and libattn.so. A processor without bf16 can still run PyTorch's bf16, slowly.
"""
import argparse, atexit, importlib.metadata, json, os, re, socket, statistics, subprocess, sys, tempfile, time
import urllib.request
import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHORT = 32  # the prompt before tokens are timed; the other is the long prompt

def log_softmax(x):
    x = np.asarray(x, np.float64) - np.max(x)
    return x - np.log(np.exp(x).sum())

def has(flag):
    """Of Linux's list of the processor's abilities."""
    with open("/proc/cpuinfo", encoding="ascii") as f:
        return flag in f.read()

class Engine:
    """One engine with one type of weights. feed(ids, is_first) gives the logits of the last token."""
    note = ""

    def __init__(self, a):
        self.a = a

    def file(self, name, make):
        """The path of a file or directory in the working directory; make(path) writes it if it is not there."""
        path = os.path.join(self.a.work, name)
        if not os.path.exists(path):
            make(path)
        return path

    def run(self, ids, n):
        """Seconds to the first token after a prompt, seconds for n - 1 more, and the tokens."""
        start = time.perf_counter()
        tokens = [int(self.feed(ids, True).argmax())]
        first = time.perf_counter()
        for _ in range(n - 1):
            tokens.append(int(self.feed(tokens[-1:], False).argmax()))
        return first - start, time.perf_counter() - first, tokens

    def log_probabilities(self, ids):
        return log_softmax(self.feed(ids, True))

class Attn(Engine):
    def __init__(self, a, dtype):
        super().__init__(a)
        model = attn_module(a).Model(convert(a, dtype), threads=a.threads)
        self.session, self.note = model.session(), model.isa

    def feed(self, ids, is_first):
        if is_first:
            self.session.truncate(0)
        return self.session.feed(ids)

def attn_module(a):
    os.environ["ATTN_LIBRARY"] = os.path.join(a.build, "libattn.so")
    sys.path.insert(0, os.path.join(TESTS, "..", "examples", "python"))
    return importlib.import_module("attn")

def convert(a, dtype, end="attn"):
    """The model as a .attn file, or as the .gguf file made of that."""
    path = os.path.join(a.work, f"{dtype}.{end}")
    if not os.path.exists(path):
        source = [a.model, path, "--dtype", dtype] if end == "attn" else [convert(a, dtype), path]
        subprocess.run([os.path.join(a.build, "attn-convert"), *source], check=True, stderr=subprocess.DEVNULL)
    return path

class Llama(Engine):
    """llama.cpp's server, which times itself and knows prompts as ids; its log-probabilities are sorted."""

    def __init__(self, a, dtype):
        super().__init__(a)
        self.address = self.serve(convert(a, {"q8_0": "q8", "q4_0": "q4"}.get(dtype, dtype), "gguf"))

    def serve(self, path):
        import xllamacpp
        p = xllamacpp.CommonParams()
        p.model.path = path
        p.n_parallel, p.cpuparams.n_threads, p.cpuparams_batch.n_threads = 1, self.a.threads, self.a.threads
        p.verbosity = -1
        self.server = xllamacpp.Server(p)
        self.note = "kernels of the wheel: " + " ".join(re.findall(r"\b(A[VM]X\w*) = 1", xllamacpp.get_system_info()))
        return self.server.listening_address

    def ask(self, ids, n, **more):
        request = {"prompt": list(map(int, ids)), "n_predict": n, "temperature": 0, "cache_prompt": False,
                   "ignore_eos": True, "return_tokens": True, **more}
        http = urllib.request.Request(f"{self.address}/completion", json.dumps(request).encode(),
                                      {"Content-Type": "application/json"})
        with urllib.request.urlopen(http) as reply:
            return json.load(reply)

    def run(self, ids, n):
        reply = self.ask(ids, n)
        t = reply["timings"]
        assert t["prompt_n"] == len(ids) and t["predicted_n"] == n, t
        return t["prompt_ms"] / 1e3, t["predicted_ms"] / 1e3, reply.get("tokens")

    def log_probabilities(self, ids):
        result = np.full(self.a.vocab, np.nan)
        said = self.ask(ids, 1, n_probs=self.a.vocab, ignore_eos=False).get("completion_probabilities")
        if said and "top_logprobs" not in said[0]:
            return None  # ik_llama.cpp tells texts, which many tokens may share
        for top in said[0]["top_logprobs"] if said else []:  # nothing of a token that is a part of a character
            result[top["id"]] = top["logprob"]
        return log_softmax(result)

def with_output(path, to):
    """Copies a .gguf file and adds output.weight, the unembedding that older readers look for, if it is only tied."""
    import gguf
    read = gguf.GGUFReader(path)
    write = gguf.GGUFWriter(to, read.get_field("general.architecture").contents())
    for name, field in read.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            write.add_key_value(name, field.contents(), field.types[0], sub_type=field.types[-1])
    tensors = {t.name: t for t in read.tensors}
    tensors.setdefault("output.weight", tensors["token_embd.weight"])
    for name, t in tensors.items():
        write.add_tensor(name, t.data, raw_dtype=t.tensor_type)
    write.write_header_to_file()
    write.write_kv_data_to_file()
    write.write_tensors_to_file()
    write.close()

class LlamaServer(Llama):
    """The user's own build of llama.cpp or of a relative: a program that is started and asked in the same way."""

    def serve(self, path):
        program = self.a.server[self.a.engine]
        path = self.file("output-" + os.path.basename(path), lambda to: with_output(path, to))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        threads = str(self.a.threads)
        self.process = subprocess.Popen(
            [program, "-m", path, "-t", threads, "-tb", threads, "-np", "1", "-c", str(self.a.long + self.a.tokens + 1),
             "--host", "127.0.0.1", "--port", str(port)], cwd=self.a.work, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)
        address = f"http://127.0.0.1:{port}"
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{address}/health").close()
                return address
            except OSError:  # it loads
                time.sleep(0.05)
        raise NotImplementedError(f"{program} ended with {self.process.returncode}")

def load_torch(a, dtype="float32"):
    import torch, transformers
    torch.set_num_threads(a.threads)
    torch.set_grad_enabled(False)
    return transformers.GPT2LMHeadModel.from_pretrained(a.model, dtype=getattr(torch, dtype)).eval()

def plain_gpt2(a):
    """GPT-2 as one module that every exporter takes: (ids [1, T], keys and values of each layer) -> (logits of
    the last position, keys and values)."""
    import torch
    import torch.nn.functional as F
    hf = load_torch(a)
    c = hf.config
    if c.activation_function != "gelu_new" or not c.scale_attn_weights or c.scale_attn_by_inverse_layer_idx:
        raise NotImplementedError("the exports of this script are of GPT-2 itself, not of its relatives")

    def linear(conv):
        made = torch.nn.Linear(*conv.weight.shape)
        made.weight.data, made.bias.data = conv.weight.T.contiguous(), conv.bias.data
        return made

    class Block(torch.nn.Module):
        def __init__(self, b):
            super().__init__()
            self.ln_1, self.ln_2, self.qkv, self.o = b.ln_1, b.ln_2, linear(b.attn.c_attn), linear(b.attn.c_proj)
            self.up, self.down = linear(b.mlp.c_fc), linear(b.mlp.c_proj)

        def forward(self, x, mask, k_past, v_past):
            q, k, v = (m.unflatten(-1, (c.n_head, -1)).transpose(1, 2) for m in self.qkv(self.ln_1(x)).split(c.n_embd, -1))
            k, v = torch.cat((k_past, k), 2), torch.cat((v_past, v), 2)
            z = F.scaled_dot_product_attention(q, k, v, mask)
            x = x + self.o(z.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh")), k, v

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            t = hf.transformer
            self.wte, self.wpe, self.ln_f, self.head = t.wte, t.wpe, t.ln_f, hf.lm_head
            self.blocks = torch.nn.ModuleList(map(Block, t.h))

        def forward(self, ids, past, beam=None):
            if beam is not None:  # which row goes on; OpenVINO knows a cache by it
                past = [p.index_select(0, beam) for p in past]
            n_past = past[0].shape[2]
            position = torch.arange(n_past, n_past + ids.shape[1])
            mask = position[:, None] >= torch.arange(n_past + ids.shape[1])
            x, cache = self.wte(ids) + self.wpe(position), []
            for i, block in enumerate(self.blocks):
                x, k, v = block(x, mask, past[2 * i], past[2 * i + 1])
                cache += [k, v]
            return self.head(self.ln_f(x[:, -1:])), cache

    return Plain().eval(), lambda n, dtype: [torch.zeros(1, c.n_head, n, c.n_embd // c.n_head, dtype=dtype)
                                             for _ in range(2 * c.n_layer)]

class Torch(Engine):
    def __init__(self, a, dtype):
        super().__init__(a)
        import torch
        self.torch, kind = torch, torch.float32
        self.model, empty = plain_gpt2(a)
        if dtype == "bf16":
            kind, self.note = torch.bfloat16, "" if has("avx512_bf16") else "no bf16 instructions here"
            self.model.bfloat16()
        if dtype == "int8":
            self.model = torch.ao.quantization.quantize_dynamic(self.model, {torch.nn.Linear}, torch.qint8)
            self.note = "weights and inputs one scale each"
        self.empty = empty(0, kind)

    def feed(self, ids, is_first):
        logits, self.cache = self.model(self.torch.tensor([list(ids)]), self.empty if is_first else self.cache)
        return logits.float().numpy().ravel()

def exported(a, *more):
    """The plain module with free numbers of tokens, as torch.export has it; the names of its caches; a cache's shape."""
    import torch
    model, empty = plain_gpt2(a)
    past = empty(5, torch.float32)
    T, P = torch.export.Dim("T", min=1), torch.export.Dim("P", min=0)
    program = torch.export.export(model, (torch.tensor([[1, 2, 3]]), past, *more),
                                  dynamic_shapes=({1: T}, [{2: P} for _ in past], *(None for _ in more)))
    return program, [f"{part}{i}" for i in range(len(past) // 2) for part in "kv"], past[0].shape

class Onnx(Engine):
    def __init__(self, a, dtype):
        super().__init__(a)
        import onnxruntime as ort
        path = self.file("f32.onnx", self.export)
        if dtype == "int8":
            path = self.file("int8.onnx", self.quantize)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = a.threads, 3
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [i.name for i in self.session.get_inputs()][1:]
        shape = [n if isinstance(n, int) else 0 for n in self.session.get_inputs()[1].shape]
        self.value = ort.OrtValue.ortvalue_from_numpy
        self.empty = [self.value(np.zeros(shape, np.float32)) for _ in self.inputs]

    def export(self, path):
        import torch
        program, names, _ = exported(self.a)
        torch.onnx.export(program, (), path, input_names=["ids", *names], verbose=False,
                          output_names=["logits", *(n + "_out" for n in names)], external_data=False)

    def quantize(self, path):
        """Of the graph with its constants folded: a weight that is transposed when it runs would stay f32."""
        import onnxruntime as ort
        from onnxruntime.quantization import quantize_dynamic, QuantType
        options, folded = ort.SessionOptions(), os.path.join(self.a.work, "folded.onnx")
        options.optimized_model_filepath = folded
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        ort.InferenceSession(os.path.join(self.a.work, "f32.onnx"), options, providers=["CPUExecutionProvider"])
        quantize_dynamic(folded, path, op_types_to_quantize=["MatMul"],
                         weight_type=QuantType.QInt8, per_channel=True, reduce_range=not has("vnni"))

    def feed(self, ids, is_first):
        feeds = dict(zip(self.inputs, self.empty if is_first else self.cache), ids=self.value(np.array([ids], np.int64)))
        logits, *self.cache = self.session.run_with_ort_values(None, feeds)
        return logits.numpy().ravel()

class OpenVino(Engine):
    def __init__(self, a, dtype):
        super().__init__(a)
        import openvino as ov
        core = ov.Core()
        if dtype == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise NotImplementedError("this processor has no bf16")
        path = self.file("f32.xml", self.export)
        if dtype == "int8":
            path = self.file("int8.xml", self.quantize)
            self.note = "weights by nncf.compress_weights, cache too"
        self.request = core.compile_model(path, "CPU", {
            "INFERENCE_NUM_THREADS": a.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bf16" else "f32",
            **({"KV_CACHE_PRECISION": "f32"} if dtype == "f32" else {})}).create_infer_request()

    def export(self, path):
        """Caches within, empty at first: so exported, the plug-in puts attention and cache into one operation."""
        import openvino as ov, openvino.opset13 as op, torch
        from openvino._offline_transformations import apply_make_stateful_transformation
        program, names, (_, heads, _, d) = exported(self.a, torch.zeros(1, dtype=torch.int32))
        model = ov.convert_model(program)
        model.inputs[0].set_names({"ids"})
        model.inputs[-1].set_names({"beam"})
        for name, i, o in zip(names, model.inputs[1:-1], model.outputs[1:]):
            i.set_names({name})
            o.set_names({name + "_out"})
        apply_make_stateful_transformation(model, {n: n + "_out" for n in names})
        n_rows = op.gather(op.shape_of(model.inputs[0], output_type="i64"), op.constant([0]), op.constant(0))
        shape = op.concat([n_rows, op.constant([heads, 0, d])], 0)
        empty = op.broadcast(op.constant(np.float32(0)), shape)
        for node in model.get_ops():
            if node.get_type_name() == "ReadValue":
                node.set_arguments([empty.output(0)])
        model.validate_nodes_and_infer_types()
        ov.save_model(model, path, compress_to_fp16=False)

    def quantize(self, path):
        import nncf
        import openvino as ov
        model = ov.Core().read_model(os.path.join(self.a.work, "f32.xml"))
        ov.save_model(nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM), path, compress_to_fp16=False)

    def feed(self, ids, is_first):
        if is_first:
            self.request.reset_state()
        return self.request.infer({"ids": np.array([ids], np.int64), "beam": np.zeros(1, np.int32)})[0].ravel()

class CTranslate2(Engine):
    def __init__(self, a, dtype):
        super().__init__(a)
        import ctranslate2 as ct
        kind = {"f32": "float32", "bf16": "bfloat16", "int8": "int8"}[dtype]
        if kind not in ct.get_supported_compute_types("cpu"):
            raise NotImplementedError(f"its kernels here have no {kind}")
        path = self.file("ct2", lambda path: ct.converters.TransformersConverter(a.model).convert(path))
        self.generator = ct.Generator(path, compute_type=kind, intra_threads=a.threads, inter_threads=1)
        with open(os.path.join(path, "vocabulary.json"), encoding="utf-8") as f:
            self.vocabulary = json.load(f)

    def generate(self, ids, n, **more):
        return self.generator.generate_batch([[self.vocabulary[i] for i in ids]], max_length=n,
                                             include_prompt_in_result=False, **more)[0]

    def run(self, ids, n):
        times = [time.perf_counter()]
        result = self.generate(ids, n, min_length=n, callback=lambda step: bool(times.append(time.perf_counter())))
        assert len(times) == n + 1
        return times[1] - times[0], times[-1] - times[1], result.sequences_ids[0]

    def log_probabilities(self, ids):
        return log_softmax(np.array(self.generate(ids, 1, return_logits_vocab=True).logits[0][0]))

ENGINES = {  # the class, the packages, the types
    "attn.h": (Attn, (), ("f32", "f16", "q8", "q4")),
    "llama.cpp": (Llama, ("xllamacpp",), ("f32", "f16", "q8_0", "q4_0")),
    "onnxruntime": (Onnx, ("onnxruntime", "onnx", "onnxscript"), ("f32", "int8")),
    "PyTorch": (Torch, ("torch",), ("f32", "bf16", "int8")),
    "OpenVINO": (OpenVino, ("openvino", "nncf"), ("f32", "bf16", "int8")),
    "CTranslate2": (CTranslate2, ("ctranslate2",), ("f32", "bf16", "int8")),
}
OURS = {"bf16": "f16", "int8": "q8", "q8_0": "q8", "q4_0": "q4"}

def child(a):
    """What a process of its own does."""
    if a.engine == "random":
        return random_gpt2(a)
    with open(os.path.join(a.model, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    a.vocab, a.long = config["vocab_size"], min(512, config["n_positions"] - a.tokens - 1)
    return prepare(a) if a.engine == "prepare" else one_row(a)

def one_row(a):
    """One engine and type: its speed or its accuracy, or why it does not run."""
    made, packages, _ = ENGINES[a.engine]
    try:
        for package in packages:
            try:
                importlib.import_module(package)
            except ImportError:
                raise NotImplementedError(f"no {package}") from None
        engine = made(a, a.dtype)
    except NotImplementedError as e:
        return {"skipped": str(e)}
    text = np.load(os.path.join(a.work, "text.npy")).tolist()
    if a.accuracy:
        exact = np.load(os.path.join(a.work, "exact.npz"))
        version = importlib.metadata.version(packages[0]) if packages and a.engine not in a.server else ""
        result = {"note": f"{version} {engine.note}".strip()}
        if engine.log_probabilities(text[:SHORT]) is None:
            return result
        differences, divergences = [], []
        for n, p in zip(exact["lengths"], exact["rows"]):
            q = engine.log_probabilities(text[:n])
            differences.append(q - p)
            divergences.append((np.exp(p) * (p - q)).sum())
        tokens = engine.run(text[:SHORT], a.tokens)[2]
        same = next((i for i, (x, y) in enumerate(zip(tokens, exact["greedy"])) if x != y), a.tokens)
        return result | {"same": f"{same} of {a.tokens}", "kl": float(np.nanmean(divergences)),
                         "largest": float(np.nanmax(np.abs(differences))),
                         "rms": float(np.sqrt(np.nanmean(np.square(differences))))}
    engine.run(text[:64], 2)  # a warm-up
    result = {"prompt 64": 64 / statistics.median(engine.run(text[:64], 1)[0] for _ in range(3))}
    seconds = engine.run(text[:SHORT], a.tokens + 1)[1]
    first, more, _ = engine.run(text[:a.long], a.tokens + 1)
    return result | {f"prompt {a.long}": a.long / first, f"after {SHORT}": a.tokens / seconds,
                     f"after {a.long}": a.tokens / more}

def random_gpt2(a):
    """A checkpoint of 124M's shape; its vocabulary is bytes, and pairs and triples of letters."""
    import torch, transformers, transformers.convert_slow_tokenizer
    torch.manual_seed(1)
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(a.model)
    letters = list(transformers.convert_slow_tokenizer.bytes_to_unicode().values())
    plain = [x for x in letters if "!" <= x <= "~"]
    pairs = [(x, y) for x in plain for y in plain]
    pairs += [(x + y, z) for x, y in pairs for z in plain]
    pairs = pairs[:50000]
    names = letters + [x + y for x, y in pairs] + ["<|endoftext|>"]
    with open(os.path.join(a.model, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump({name: i for i, name in enumerate(names)}, f)
    with open(os.path.join(a.model, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{x} {y}\n" for x, y in pairs))

def prepare(a):
    """Sampled text, and what float64 says of it."""
    import torch
    attn = attn_module(a)
    with attn.Model(convert(a, "f32"), threads=a.threads) as model, model.session() as session:
        writing = session.generate([model.config.n_vocab - 1], max_tokens=a.long, ignore_eos=True,
                                   sampling=attn.Sampling(temperature=1, seed=1))
        writing.read()
        text = writing.ids
    np.save(os.path.join(a.work, "text.npy"), text)
    model = load_torch(a, "float64")
    lengths = np.linspace(8, a.long, 12).astype(int)
    logits = model(torch.tensor([text])).logits[0].numpy()
    greedy = model.generate(torch.tensor([text[:SHORT]]), max_new_tokens=a.tokens, min_new_tokens=a.tokens, do_sample=False)
    np.savez(os.path.join(a.work, "exact.npz"), lengths=lengths, rows=[log_softmax(logits[n - 1]) for n in lengths],
             greedy=greedy[0, SHORT:].numpy())

def start(a, *arguments, threads):
    """Runs this script as a child; what it prints last."""
    command = [sys.executable, __file__, a.build, a.model, "--work", a.work, "--threads", str(threads),
               "--tokens", str(a.tokens), *(f"--server={name}={path}" for name, path in a.server.items()), *arguments]
    done = subprocess.run(command, env=dict(os.environ, OMP_NUM_THREADS=str(threads)), capture_output=True, text=True)
    if done.returncode < 0:
        return {"skipped": f"ended by signal {-done.returncode}"}
    if done.returncode:
        return {"skipped": f"failed: {(done.stderr.strip() or 'without a word').splitlines()[-1][:200]}"}
    return json.loads(done.stdout.splitlines()[-1])

def measure(a):
    threads = [int(t) for t in a.threads.split(",")]
    best = {}  # row -> figure -> (tokens per second, threads)
    for engine in ["prepare"] if a.model != os.path.join(a.work, "random") else ["random", "prepare"]:
        failed = start(a, "--engine", engine, threads=threads[0])
        if failed:
            sys.exit(f"{engine}: {failed['skipped']}")
    rows = [(engine, dtype) for engine, (_, _, dtypes) in ENGINES.items() if engine in a.only for dtype in dtypes]
    exactness = {}
    print("| | types | largest | r.m.s. | KL divergence | greedy | |\n|---|---|---|---|---|---|---|")
    for row in rows:
        f = start(a, "--engine", row[0], "--dtype", row[1], "--accuracy", threads=threads[0])
        if "skipped" in f:
            print(f"| {row[0]} | {row[1]} | skipped: {f['skipped']} | | | | |", flush=True)
        else:
            largest, rms, kl = (f"{f[name]:.1e}" if name in f else "not told" for name in ("largest", "rms", "kl"))
            exactness[row] = f"{rms} | {kl} |"
            print(f"| {row[0]} | {row[1]} | {largest} | {exactness[row]} {f.get('same', 'not told')} | {f['note']} |", flush=True)
    for t in threads:
        speeds = {row: [] for row in exactness}
        for _ in range(a.rounds):
            for row in exactness:
                found = start(a, "--engine", row[0], "--dtype", row[1], threads=t)
                if "skipped" in found:
                    print(*row, found["skipped"], file=sys.stderr)
                else:
                    speeds[row].append(found)
        for row, speed in show(t, {row: found for row, found in speeds.items() if found}, exactness).items():
            best[row] = {n: max(x for x in (best.get(row, {}).get(n), (speed[n], t)) if x) for n in speed}
    show_best(best)

def show_best(best):
    names = list(next(iter(best.values())))
    print(f"\n| tokens/s, best number of threads | | {' | '.join(names)} |\n|" + "---|" * (len(names) + 2))
    for (engine, dtype), found in best.items():
        ours = best.get(("attn.h", OURS.get(dtype, dtype)))
        cells = [f"{found[n][0]:.4g} ({found[n][1]})" + (f", {ours[n][0] / found[n][0]:.2f}x" if ours and engine != "attn.h" else "")
                 for n in names]
        print(f"| {engine} | {dtype} | {' | '.join(cells)} |", flush=True)

def show(threads, speeds, exactness):
    if not speeds:
        sys.exit("nothing ran")
    names = list(next(iter(speeds.values()))[0])
    middle = {row: {n: statistics.median(f[n] for f in found) for n in names} for row, found in speeds.items()}
    print(f"\n| tokens/s, {threads} thread{'s' * (threads > 1)} | | {' | '.join(names)} | r.m.s. | KL |")
    print("|" + "---|" * (len(names) + 4))
    for (engine, dtype), found in speeds.items():
        line = f"| {engine} | {dtype} |"
        ours = middle.get(("attn.h", OURS.get(dtype, dtype)))
        for n in names:
            values = [f[n] for f in found]
            m = middle[engine, dtype][n]
            line += f" {m:.4g} ±{50 * (max(values) - min(values)) / m:.0f} %"
            line += f", {ours[n] / m:.2f}x |" if ours and engine != "attn.h" else " |"
        print(line, exactness[engine, dtype], flush=True)
    return middle

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("build")
    ap.add_argument("model", nargs="?")
    ap.add_argument("--small", action="store_true", help="the included model")
    most = len(os.sched_getaffinity(0))
    ap.add_argument("--threads", default=",".join(str(2 ** i) for i in range(most.bit_length())))
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--tokens", type=int, default=64, help="how many are written")
    ap.add_argument("--only", help="engines, by commas")
    ap.add_argument("--server", action="append", default=[], metavar="NAME=LLAMA_SERVER", help="a llama-server of your own")
    for name in ("work", "engine", "dtype"):
        ap.add_argument("--" + name, help=argparse.SUPPRESS)
    ap.add_argument("--accuracy", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    a.build = os.path.abspath(a.build)
    if not all(re.match("[^=]+=.", given) for given in a.server):
        ap.error("--server takes NAME=LLAMA_SERVER")
    a.server = {name: os.path.abspath(path) for name, path in (given.split("=", 1) for given in a.server)}
    ENGINES.update({name: (LlamaServer, ("gguf",), ENGINES["llama.cpp"][2]) for name in a.server})
    if a.engine:
        a.threads = int(a.threads)
        return print(json.dumps(child(a)))
    a.only = a.only.split(",") if a.only else list(ENGINES)
    if not set(a.only) <= set(ENGINES):
        ap.error("--only takes some of " + ",".join(ENGINES))
    with tempfile.TemporaryDirectory() as a.work:
        if not a.model:
            a.model = os.path.join(TESTS, "..", "examples", "tiny-stories") if a.small else os.path.join(a.work, "random")
        measure(a)

main()

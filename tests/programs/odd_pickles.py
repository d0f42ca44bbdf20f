"""python3 tests/programs/odd_pickles.py DIRECTORY BUILD, for tests/suites/convert: what torch.save wrote may be anything.

A file each, with one thing that no model has, goes through BUILD/attn-convert, which must answer with one line that has the
words beside it and leave no output, or convert where there are none. Needs PyTorch, for most of them.
"""
import io
import os
import pickle
import resource
import subprocess
import sys
import warnings
import zipfile

import torch

output, build = sys.argv[1:]
warnings.simplefilter("ignore")  # PyTorch's, about PyTorch
C, V, T = 8, 11, 6
Q = "h.0.attn.c_attn.weight"


def hub(config=None, **other):
    linears = {"attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C), "mlp.c_fc": (C, 4 * C), "mlp.c_proj": (4 * C, C)}
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "ln_f.weight": (C,), "h.0.ln_1.weight": (C,), "h.0.ln_2.weight": (C,),
              **{f"h.0.{k}.weight": v for k, v in linears.items()}}
    return {"model": {**{k: torch.zeros(s) for k, s in shapes.items()}, **other}, "config": {"n_head": 2, **(config or {})}}


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def zipped(program):
    """A file of torch.save whose pickle is this program."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", program)
    return file.getvalue()


class Call:
    def __reduce__(self):
        return os.mkdir, (os.path.join(output, "it-ran"),)


def storage(numel, then):
    """A tensor of a storage that says so many elements."""
    return zipped(b"\x80\x02}X\1\0\0\0actorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpu"
                  + numel + b"tQK\0" + then + b"K\2\x85K\1\x85\x89}tRs.")


itself = {"_modules": {}}
itself["_modules"]["a"] = itself
loop = []
loop.append(loop)
many = {str(i): None for i in range(40)}
many.update({f"d{i}": many for i in range(200)})
twice = {}
for _ in range(30):
    twice = {"a": twice, "b": twice}
long = b"\x80\x02X" + (10**6).to_bytes(4, "little") + b"a" * 10**6 + b"q\0"  # a text in the memo
files = {
    "expanded": (hub(**{Q: torch.zeros(1).expand(10**6, 10**6, 1)}), f"{Q} repeats 4 bytes"),
    "overlapping": (hub(**{Q: torch.zeros(2 * 10**4).as_strided((10**4, 10**4), (1, 1))}), f"{Q} repeats 80000 bytes"),
    "sparse": (hub(**{Q: torch.zeros(C, 3 * C).to_sparse()}), f"{Q} is of type _rebuild_sparse_tensor; supported are"),
    "meta": (hub(**{Q: torch.zeros(C, device="meta")}), f"{Q} is of type _rebuild_meta_tensor_no_storage"),
    "nested": (hub(**{Q: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])}), f"{Q} is of type _rebuild_nested_tensor"),
    "quantized": (hub(**{Q: torch.quantize_per_tensor(torch.zeros(C), 0.1, 0, torch.qint8)}), f"{Q} is of type _rebuild_qtensor"),
    "complex": (hub(**{Q: torch.zeros(C, 3 * C, dtype=torch.complex64)}), f"{Q} is of type ComplexFloatStorage"),
    "five-dimensions": (hub(**{Q: torch.zeros(1, 1, 1, C, 3 * C)}), f"{Q} is []"),
    "number-as-name": ({**hub(), "model": {**hub()["model"], 5: torch.zeros(2)}}, ""),
    "pair-as-name": ({**hub(), "model": {**hub()["model"], ("a", 1): torch.zeros(2), "a" * 500: torch.zeros(2)}}, ""),
    "pair-as-setting": (hub({("a", 1): 4, 3: 4, "loop": loop}), ""),
    "module-in-itself": ({"model": itself}, "has no tensors"),
    "modules-that-are-none": ({"model": {"_modules": 5}}, "has no tensors"),
    "dicts-in-themselves": (many, "has no tensors"),
    "twice-and-twice": (twice, "has dicts in one another without end"),
    "plain": (hub(), ""),
    "no-heads": (hub({"n_head": 0}), "the number of heads is 0"),
    "table-without-rows": (hub(**{"wte.weight": torch.zeros(())}), "none of the names that GPT-2's embeddings have"),
    "places-without-rows": (hub(**{"wpe.weight": torch.zeros(3)}), "none of the names that GPT-2's embeddings have"),
    "norm-without-width": (hub(**{"ln_f.weight": torch.zeros(())}), "ln_f.weight is [], but"),
    "two-states": ({"a": hub()["model"], "b": hub()["model"]}, 'holds two models, whose tensors begin with "a." and "b."; choose one'),
    "an-autoencoder": ({"state_dict": {"W_enc": torch.zeros(C, V)}, "cfg": {"d_in": C}}, "which lens reads"),
    "without-configuration": (hub()["model"], "has no configuration, and no config.json is beside it"),
    "a-list": ([torch.zeros(3)], "has no tensors"),
    "nothing": (None, "has no tensors"),
    "code": ({**hub(), "extra": Call()}, ""),
    "cut": (saved(hub())[:900], "the archive has no list of its members"),
    "cut-old": (saved(hub(), _use_new_zipfile_serialization=False)[:-9], "was cut short"),
    "compressed": (b"", "is compressed"),
    "empty-stack": (zipped(b"\x80\x02."), "byte 3 of its pickle: a value is taken from an empty stack"),
    "unknown": (zipped(b"\x80\x02]\xff."), "byte 4 of its pickle: the unknown instruction ff"),
    "no-mark": (zipped(b"\x80\x02]e."), "byte 4 of its pickle: there is no mark"),
    "no-memo": (zipped(b"\x80\x02h\5."), "byte 4 of its pickle: a memo that nothing was written to"),
    "far-memo": (zipped(b"\x80\x02]r\xff\xff\xff\x7f."), "a memo beyond all that was written"),
    "long-text": (zipped(b"\x80\x02X\xff\xff\xff\x7fab."), "byte 7 of its pickle: it breaks off"),
    "types-of-the-memo": (zipped(long + b"h\0h\0\x93q\1" + b"X\7\0\0\0storageh\1h\0NK\1tQ0".join([b"("] * 10**5) + b"."),
                          "it asks for more memory"),
    "pairs-of-the-memo": (zipped(b"\x80\x02](" + b"NN\x86" * 10**5 + b"eq\0ccollections\nOrderedDict\nq\1" + b"h\1h\0\x85R0" * 10**5),
                          "it asks for more memory"),
    "large-storage": (storage(b"\x8a\x07\xff\xff\xff\xff\xff\xff\x7f", b"K\2\x85"), "the storage of a is missing"),
    "beyond-storage": (storage(b"K\1", b"K\2\x85"), "a tensor that reaches beyond its storage"),
    "overflowing": (storage(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 7 + b"\x7f\x85"), "beyond its storage"),
}
with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as packed:
    packed.writestr("a/data.pkl", b"\x80\x02].")
files["compressed"] = file.getvalue(), files["compressed"][1]


def answer(path, made):
    """What the program says, and whether it ended as it should: with a sentence or an output, within time and memory."""
    done = subprocess.run([f"{build}/attn-convert", "-q", "--no-tokenizer", path, made], capture_output=True, text=True, timeout=30,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)))
    said = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("note: "))
    return said.rstrip("\n"), done.returncode == (0 if os.path.exists(made) else 1)


wrong = 0
for name, (value, words) in files.items():
    path = os.path.join(output, name + ".pt")
    try:
        content = value if isinstance(value, bytes) else saved(value)
    except RuntimeError:  # an older PyTorch cannot save a nested tensor
        continue
    with open(path, "wb") as file:
        file.write(content)
    said, good = answer(path, os.path.join(output, name + ".attn"))
    if not good or "\n" in said or words not in said or said.startswith("attn-convert: ") != bool(words):
        print(f"{name}: {said!r}", file=sys.stderr)
        wrong += 1
sys.exit(wrong > 0 or os.path.exists(os.path.join(output, "it-ran")))

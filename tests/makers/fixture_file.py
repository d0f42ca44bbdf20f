"""Writes the files of numbers that tests/support/fixture.h reads.

Little-endian: "ATTNTEST", u32 number of tensors, and for each tensor u32 length of the name, the
name, u32 type (0 f32, 1 f16, 2 i32), u32 number of dimensions, u32 each dimension, zeros up to a
multiple of 4 bytes, the elements in row-major order, zeros up to a multiple of 4.
"""
import struct

import numpy as np

KINDS = {"float32": 0, "float16": 1, "int32": 2}


def entry(name, array):
    """Name, type and array of a tensor: numbers of 16 bits as they are, whole ones as i32, others as f32."""
    array = np.asarray(array)
    if array.dtype != np.float16:
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, np.int32 if array.dtype.kind in "iub" else np.float32)
    return name, KINDS[array.dtype.name], array


def save(path, written):
    """written: what entry() gives, of each tensor."""
    data = bytearray(b"ATTNTEST" + struct.pack("<I", len(written)))
    for name, kind, array in written:
        raw = name.encode()
        data += struct.pack("<I", len(raw)) + raw + struct.pack("<II", kind, array.ndim)
        data += struct.pack(f"<{array.ndim}I", *array.shape)
        data += bytes(-len(data) % 4) + array.tobytes()
        data += bytes(-len(data) % 4)
    with open(path, "wb") as file:
        file.write(data)
    print(f"{path}: {len(written)} tensors, {len(data)} bytes")

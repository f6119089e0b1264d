"""Writes the seeds of the safetensors and gguf fuzzers: python tests/fuzz/seeds.py (needs the gguf package)."""

import json
import pathlib
import struct

import gguf
import numpy as np

CORPUS = pathlib.Path(__file__).parent / "corpus"


def safetensors(name, tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for key, dtype, shape, bytes_ in tensors:
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header, separators=(",", ":")).encode()
    (CORPUS / "safetensors" / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def gguf_file(name, fill):
    writer = gguf.GGUFWriter(CORPUS / "gguf" / name, "llama")
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_value(writer):
    writer.add_uint8("u8", 1)
    writer.add_int16("i16", -2)
    writer.add_uint64("u64", 3)
    writer.add_float64("f64", 0.5)
    writer.add_bool("b", True)
    writer.add_array("strings", ["a", "bc"])
    writer.add_array("ints", [1, 2, 3])
    writer.add_array("nested", [[1], [2, 3]])


def tensors(writer):
    writer.add_custom_alignment(64)
    rng = np.random.default_rng(1)
    writer.add_tensor("a", rng.standard_normal((2, 3), dtype=np.float32))
    q = gguf.quants.quantize(rng.standard_normal((2, 32), dtype=np.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("b", q, raw_dtype=gguf.GGMLQuantizationType.Q4_0)


safetensors("empty", [])
safetensors("two", [("a", "F32", [2, 1], bytes(range(8))), ("b", "BF16", [], b"\x80\x3f")], {"format": "pt"})
safetensors("odd", [("a", "F4", [2, 3], b"abc"), ("b", "I64", [0], b""), ("c", "BOOL", [1], b"\x01")])
gguf_file("values", every_value)
gguf_file("tensors", tensors)

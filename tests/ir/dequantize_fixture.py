"""Writes dequantize_fixture.txt: random blocks of every GGUF type and what the gguf package makes of them.

    python tests/ir/dequantize_fixture.py        (needs gguf and numpy)

Each line is: type, block bytes as hex, expected f32 bit patterns as hex.
"""

import pathlib

import gguf
import numpy as np

TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
# Byte offsets of the f16 fields of a block: random bits there would be infinities and NaN one time in 32.
HALVES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "BF16": []}
BLOCKS = 3

rng = np.random.default_rng(20240229)
lines = []
for name in TYPES:
    qtype = gguf.GGMLQuantizationType[name]
    elements, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    if elements == 1:
        blocks = rng.standard_normal(16)
        raw = gguf.quants.quantize(blocks.astype(np.float32)[None], qtype).view(np.uint8).reshape(1, -1)
    else:
        raw = rng.integers(0, 256, (BLOCKS, block_bytes), dtype=np.uint8)
        for at in HALVES[name]:
            halves = (rng.standard_normal(BLOCKS) * 0.1).astype(np.float16)
            raw[:, at:at + 2] = halves[:, None].view(np.uint8).reshape(BLOCKS, 2)
    if name == "F16":
        expected = raw.view(np.float16).astype(np.float32)
    else:
        expected = gguf.quants.dequantize(raw, qtype)
    for block, values in zip(raw, np.asarray(expected, dtype=np.float32).reshape(len(raw), -1)):
        bits = "".join(f"{v:08x}" for v in values.view(np.uint32))
        lines.append(f"{name.lower()} {block.tobytes().hex()} {bits}\n")
pathlib.Path(__file__).with_suffix(".txt").write_text("".join(lines))

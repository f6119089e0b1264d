"""Numbers to blocks of 256 in GGUF's K formats, which the gguf package reads but does not write.

Each scale comes from a block's extremes and every number goes to the nearest level: correct, not optimal. The layouts
are described in ir/reference/dequantize.cc.
"""

import numpy as np


def _half(values):
    """As f16, and what that is as f32."""
    stored = values.astype(np.float16)
    return stored, stored.astype(np.float32)


def _levels(values, step, low, high):
    safe = np.where(step == 0, 1, step)
    return np.where(step == 0, 0, np.clip(np.rint(values / safe), low, high)).astype(np.int32)


def _bytes(array):
    return np.ascontiguousarray(array).view(np.uint8).reshape(array.shape[0], -1)


def _pack_six_bits(scales, mins):
    """Eight scales and eight minimums of six bits, in twelve bytes."""
    packed = np.zeros((scales.shape[0], 12), np.uint8)
    packed[:, 0:4] = scales[:, 0:4] | (scales[:, 4:8] >> 4) << 6
    packed[:, 4:8] = mins[:, 0:4] | (mins[:, 4:8] >> 4) << 6
    packed[:, 8:12] = (scales[:, 4:8] & 15) | (mins[:, 4:8] & 15) << 4
    return packed


def _with_minimums(values, bits):
    """Q4_K and Q5_K: eight runs of 32, each with a scale and a minimum."""
    runs = values.reshape(-1, 8, 32)
    top = (1 << bits) - 1
    mins = np.maximum(0, -runs.min(axis=2))
    steps = np.maximum(0, (runs.max(axis=2) + mins) / top)
    d16, d = _half(steps.max(axis=1, keepdims=True) / 63)
    dmin16, dmin = _half(mins.max(axis=1, keepdims=True) / 63)
    scales = _levels(steps, d, 0, 63)
    minimums = _levels(mins, dmin, 0, 63)
    levels = _levels(runs + (dmin * minimums)[:, :, None], (d * scales)[:, :, None], 0, top)
    pairs = (levels & 15).reshape(-1, 4, 2, 32)
    low = (pairs[:, :, 0] | pairs[:, :, 1] << 4).astype(np.uint8).reshape(-1, 128)
    parts = [_bytes(d16), _bytes(dmin16), _pack_six_bits(scales.astype(np.uint8), minimums.astype(np.uint8))]
    if bits == 5:
        fifth = (levels >> 4) << np.arange(8)[None, :, None]
        parts.append(fifth.sum(axis=1).astype(np.uint8))
    return np.concatenate([*parts, low], axis=1)


def _q6_k(values):
    """Sixteen runs of 16, each with a scale of eight bits; the low four and the high two bits of a number lie apart."""
    runs = values.reshape(-1, 16, 16)
    largest = np.abs(runs).max(axis=2)
    d16, d = _half(largest.max(axis=1, keepdims=True) / 31 / 127)
    scales = _levels(largest / 31, d, 0, 127)
    levels = (_levels(runs, (d * scales)[:, :, None], -32, 31) + 32).reshape(-1, 2, 4, 32)
    nibbles = (levels & 15).reshape(-1, 2, 2, 64)
    low = (nibbles[:, :, 0] | nibbles[:, :, 1] << 4).astype(np.uint8).reshape(-1, 128)
    high = ((levels >> 4) << (2 * np.arange(4))[None, None, :, None]).sum(axis=2).astype(np.uint8).reshape(-1, 64)
    return np.concatenate([low, high, scales.astype(np.int8).view(np.uint8), _bytes(d16)], axis=1)


QUANTIZERS = {
    "Q4_K": lambda values: _with_minimums(values, 4),
    "Q5_K": lambda values: _with_minimums(values, 5),
    "Q6_K": _q6_k,
}


def quantize(values, name):
    """Blocks of `values`, whose rows are multiples of 256: bytes, row for row."""
    rows = values.astype(np.float32).reshape(-1, values.shape[-1])
    return QUANTIZERS[name](rows.reshape(-1, 256)).reshape(rows.shape[0], -1)

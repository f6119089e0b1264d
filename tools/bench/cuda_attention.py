"""CUDA attention beside cuDNN (decode, contiguous keys and values) and PyTorch's FlashAttention
(prefill) on one GPU: a table of microseconds and ratios.

  python3 tools/bench/cuda_attention.py BUILD/tools/bench/bench_cuda_attention

All replay CUDA graphs over rotated keys and values; medians, for the peers the lower of two. Ours
reads permuted pages and uses programmatic dependent launch.
"""
import math
import re
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, D = 32, 128
pool = {}


def replay_us(call, calls):
    """Microseconds of one of `calls` calls in a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    readings = []
    for _ in range(2):
        times = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / calls)
        readings.append(statistics.median(times))
    return min(readings)


def views(name, sets, shape):
    count = sets * math.prod(shape)
    if name not in pool or pool[name].numel() < count:
        pool[name] = torch.randn(count, device="cuda", dtype=torch.bfloat16)
    return pool[name][:count].view(sets, *shape)


def decode_peer(sequences, context, kv_heads):
    size = 2 * sequences * context * kv_heads * D * 2
    sets = max(2, min(64, 300_000_000 // size + 1))
    k, v = (views(name, sets, (sequences, kv_heads, context, D)) for name in "kv")
    q = torch.randn(sequences, HEADS, 1, D, device="cuda", dtype=torch.bfloat16)

    def call(i):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, k[i % sets], v[i % sets], enable_gqa=True)

    return replay_us(call, max(sets, 10))


def prefill_peer(tokens):
    sets = max(2, min(64, 300_000_000 // (2 * tokens * HEADS * D * 2) + 1))
    q, k, v = (views(name, sets, (1, HEADS, tokens, D)) for name in "qkv")

    def call(i):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(q[i % sets], k[i % sets], v[i % sets], is_causal=True)

    return replay_us(call, max(sets, 10))


def main():
    out = subprocess.run([sys.argv[1], "time"], check=True, capture_output=True, text=True).stdout
    print("| what | peer us | ours us | ratio | ours TB/s, TFLOP/s |\n| --- | --- | --- | --- | --- |")
    for line in out.splitlines():
        what, us, rest = re.match(r"(.*?): ([\d.]+) us(.*)", line).groups()
        kind, *sizes = what.split()
        peer = None
        if kind == "decode":
            peer = decode_peer(*map(int, sizes))
        elif kind == "prefill":
            peer = prefill_peer(int(sizes[0]))
        rates = ", ".join(re.findall(r"([\d.]+) T", rest))
        ratio = "" if peer is None else f"{peer / float(us):.2f}"
        print(f"| {what} | {'' if peer is None else f'{peer:.2f}'} | {us} | {ratio} | {rates} |",
              flush=True)


main()

"""CUDA attention beside cuDNN over contiguous keys and values, and for prefill PyTorch's
FlashAttention 2, on one GPU: a table of microseconds and shares of the better peer's time.

  python3 tools/bench/cuda_attention.py BUILD/tools/bench/bench_cuda_attention [WHICH]

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


def prefill_peer(sequences, tokens, context, heads, kv_heads, d, window):
    """Microseconds of cuDNN, and of FlashAttention 2; None where they have no such mask."""
    if window:
        return None, None
    sets = max(2, min(64, 300_000_000 // (2 * sequences * context * kv_heads * d * 2) + 1))
    q = views("q", 2, (sequences, heads, tokens, d))
    k, v = (views(name, sets, (sequences, kv_heads, context, d)) for name in "kv")
    # PyTorch's causal mask would align a chunk with its context's begin: without a mask the peers
    # do the chunk's work, but for its own triangle.
    causal = tokens == context

    def timed(backend):
        def call(i):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q[i % 2], k[i % sets], v[i % sets], is_causal=causal,
                                               enable_gqa=heads != kv_heads)

        return replay_us(call, max(2, min(sets, 20)))

    return timed(SDPBackend.CUDNN_ATTENTION), timed(SDPBackend.FLASH_ATTENTION)


def main():
    command = [sys.argv[1], "time", *sys.argv[2:]]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print("| what | cuDNN us | FA2 us | ours us | of the better's time | ours TB/s, TFLOP/s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for line in out.splitlines():
        what, us, rest = re.match(r"(.*?): ([\d.]+) us(.*)", line).groups()
        kind, *sizes = what.split()
        peers = []
        if kind == "decode":
            peers = [decode_peer(*map(int, sizes)), None]
        elif kind == "prefill":
            peers = prefill_peer(*map(int, sizes))
        rates = ", ".join(re.findall(r"([\d.]+) T", rest))
        known = [peer for peer in peers if peer]
        share = f"{float(us) / min(known):.2f}" if known else ""
        shown = " | ".join(f"{peer:.2f}" if peer else "" for peer in peers or [None, None])
        print(f"| {what} | {shown} | {us} | {share} | {rates} |", flush=True)


main()

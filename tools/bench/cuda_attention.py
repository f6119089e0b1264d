"""CUDA attention beside its peers on one GPU: a table of microseconds, of ours over the better
peer's, and of what that may be.

  python3 tools/bench/cuda_attention.py BUILD/tools/bench/bench_cuda_attention [WHICH]

Peers, over contiguous keys and values: cuDNN and PyTorch's FlashAttention 2; of a window
FlashAttention 2 alone has the mask, and of a softcap neither, so that flex_attention, compiled, is
the peer there. Of a step with prompts and decodes the peers' times for either are added up. All
replay CUDA graphs over rotated keys and values; medians, for the peers the lower of two. Ours reads
permuted pages and uses programmatic dependent launch.
"""
import math
import re
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

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


class Peers:
    """Attention of `sequences` with `tokens` queries each over contexts of `context`."""

    def __init__(self, sequences, tokens, context, heads, kv_heads, d):
        self.sets = max(2, min(64, 300_000_000 // (2 * sequences * context * kv_heads * d * 2) + 1))
        self.calls = max(self.sets, 10) if tokens == 1 else max(2, min(self.sets, 20))
        self.q = views("q", 2, (sequences, heads, tokens, d))
        self.k, self.v = (views(name, self.sets, (sequences, kv_heads, context, d)) for name in "kv")
        # PyTorch's causal mask would align a chunk with its context's begin: without a mask the
        # peers do the chunk's work, but for its own triangle.
        self.causal = tokens == context
        self.grouped = heads != kv_heads

    def time(self, attend):
        return replay_us(lambda i: attend(self.q[i % 2], self.k[i % self.sets], self.v[i % self.sets]),
                         self.calls)

    def by(self, backend):
        def attend(q, k, v):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=self.grouped)

        return self.time(attend)

    def times(self):
        times = {}
        for name, backend in (("cuDNN", SDPBackend.CUDNN_ATTENTION), ("FA2", SDPBackend.FLASH_ATTENTION)):
            try:
                times[name] = self.by(backend)
            except RuntimeError as error:  # what it has no kernel for
                print(f"{name}: {error}", file=sys.stderr)
        return times

    def window_times(self, window):
        def attend(q, k, v):
            rows = [x.transpose(1, 2) for x in (q, k, v)]
            torch.ops.aten._flash_attention_forward(*rows, None, None, q.shape[2], k.shape[2], 0.0, True,
                                                    False, window_size_left=window - 1, window_size_right=0)

        return {"FA2": self.time(attend)}

    def cap_times(self, cap):
        flex = torch.compile(flex_attention)
        tokens = self.q.shape[3]
        mask = create_block_mask(lambda b, h, row, column: row >= column, None, None, tokens, tokens)

        def score(x, b, h, row, column):
            return cap * torch.tanh(x / cap)

        return {"flex": self.time(lambda q, k, v: flex(q, k, v, score_mod=score, block_mask=mask,
                                                       enable_gqa=self.grouped))}


def measure_peers(kind, sizes):
    """What the peers take of a line of bench_cuda_attention, and the most that ours may of that."""
    if kind == "decode":
        sequences, context, kv_heads = sizes
        return Peers(sequences, 1, context, HEADS, kv_heads, D).times(), None
    if kind == "verify":
        sequences, tokens, context = sizes
        return Peers(sequences, tokens, context, HEADS, 8, D).times(), 1.0 if sequences >= 64 else None
    if kind == "both":
        prompts, tokens, decodes, context = sizes
        peers = [Peers(prompts, tokens, tokens, HEADS, 8, D), Peers(decodes, 1, context, HEADS, 8, D)]
        times = [peer.times() for peer in peers]
        return {name: times[0][name] + times[1][name] for name in times[0].keys() & times[1].keys()}, 0.8
    if kind == "softcap":
        return Peers(1, *sizes[:1] * 2, HEADS, 8, D).cap_times(50.0), 1.0
    if kind == "prefill":
        *shape, window = sizes
        peers = Peers(*shape)
        if window:
            return peers.window_times(window), 1.0
        alone = shape[0] == 1 and shape[1] == shape[2] and shape[3:] == [32, 8, 128]
        return peers.times(), 0.9 if alone else 1.0
    return {}, None


def main():
    command = [sys.argv[1], "time", *sys.argv[2:]]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [re.match(r"(.*?): ([\d.]+) us(.*)", line).groups() for line in out.splitlines()]
    ours = {what: float(us) for what, us, _ in lines}
    print("| what | peers, us | ours us | of the better's time | bar | | ours TB/s, TFLOP/s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for what, us, rest in lines:
        kind, *sizes = what.split()
        peers, bar = {}, None
        if kind == "contiguous":
            # That of pages: what they cost.
            tokens = sizes[0]
            peers, bar = {"ours in one page": float(us)}, 1.02
            us = ours.get(f"prefill 1 {tokens} {tokens} 32 8 128 0", us)
        elif kind == "f8e4m3" and (wide := ours.get(" ".join(sizes))):
            peers = {"ours in bf16": wide}
        elif all(size.isdigit() for size in sizes):
            peers, bar = measure_peers(kind, list(map(int, sizes)))
        rates = ", ".join(re.findall(r"([\d.]+) T", rest))
        ratio = float(us) / min(peers.values()) if peers else None
        print("|", what, "|", ", ".join(f"{name} {peer:.2f}" for name, peer in peers.items()), "|", us, "|",
              f"{ratio:.3f}" if ratio else "", "|", bar or "", "|",
              "" if not bar else "ok" if ratio <= bar else "SHORT", "|", rates, "|", flush=True)


main()

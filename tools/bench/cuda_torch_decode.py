#!/usr/bin/env python3
"""The peer of `quire bench` on a GPU: a Llama by PyTorch, compiled, its decode step replayed as a CUDA graph.

  tools/bench/cuda_torch_decode.py --case 32,128,1 --case 512,32,8 [--layers 32] [--kv-heads 32] [--rounds 5]

A case is tokens of the prompt, tokens generated, sequences. Weights are random bf16 of Llama-7B's geometry, keys and values lie
in one contiguous piece of the right length, the step is one torch.compile'd function: the fastest that PyTorch alone does.
Compiling a case takes minutes of one core, so each has a process: they compile side by side, and are then timed one by one.
Prints one JSON line a case: latency_s, from ids of the prompt to the last token; step_ms, of a decode step in the middle.
"""
import argparse
import json
import math
import multiprocessing
import statistics
import sys
import time

import torch
import torch.nn.functional as F


class Llama:
    def __init__(self, layers, heads, kv_heads, width=4096, ff=11008, vocabulary=32000):
        self.layers, self.heads, self.kv_heads, self.width, self.ff = layers, heads, kv_heads, width, ff
        self.head = width // heads
        rows = [(heads + 2 * kv_heads) * self.head, width, 2 * ff, width]
        columns = [width, width, width, ff]
        self.weights = [[self.random(n, k) for n, k in zip(rows, columns)] for _ in range(layers)]
        self.embedding, self.lm_head = self.random(vocabulary, width), self.random(vocabulary, width)
        self.vocabulary = vocabulary

    @staticmethod
    def random(n, k):
        return (torch.randn(n, k, device="cuda") / math.sqrt(k)).to(torch.bfloat16)

    def weight_bytes(self):
        return 2 * (sum(w.numel() for layer in self.weights for w in layer) + self.lm_head.numel())

    def step(self, ids, positions, keys, values, mask):
        x = self.embedding[ids]
        b, t, _ = x.shape
        exponents = torch.arange(0, self.head, 2, device="cuda").float() / self.head
        angles = positions[:, None].float() * torch.exp(-math.log(1e4) * exponents)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        def rope(z):
            a, e = z.chunk(2, -1)
            return torch.cat([a * cos - e * sin, e * cos + a * sin], -1)

        for layer, (qkv, o, gate_up, down) in enumerate(self.weights):
            h = F.linear(F.rms_norm(x, (self.width,)), qkv)
            h = h.view(b, t, self.heads + 2 * self.kv_heads, self.head).transpose(1, 2)
            q, k, v = h.split([self.heads, self.kv_heads, self.kv_heads], 1)
            q, k = rope(q), rope(k)
            keys[layer][:, :, positions] = k
            values[layer][:, :, positions] = v
            if mask is None:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            else:
                y = F.scaled_dot_product_attention(q, keys[layer], values[layer], attn_mask=mask, enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).reshape(b, t, self.width), o)
            gate, up = F.linear(F.rms_norm(x, (self.width,)), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[:, -1:], (self.width,)), self.lm_head).argmax(-1)


def median_ms(run, count):
    times = []
    for _ in range(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


@torch.no_grad()
def prepare(model, prompt, gen, batch):
    """Compiles and records what a case runs; returns what measures it."""
    shape = (batch, model.kv_heads, prompt + gen, model.head)
    keys = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for _ in range(model.layers)]
    values = [torch.zeros_like(k) for k in keys]
    prefill = torch.compile(model.step, dynamic=False)
    step = torch.compile(model.step, dynamic=False)
    ids = torch.randint(model.vocabulary // 8, model.vocabulary, (batch, prompt), device="cuda")
    first = torch.arange(prompt, device="cuda")
    columns = torch.arange(prompt + gen, device="cuda")
    current = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
    position = torch.tensor([prompt], device="cuda")

    def one():
        return step(current, position, keys, values, (columns <= position)[None, None, None])

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        current.copy_(one())
        position.add_(1)
    for _ in range(2):
        prefill(ids, first, keys, values, None)

    def whole():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        current.copy_(prefill(ids, first, keys, values, None))
        position.fill_(prompt)
        for _ in range(gen - 1):
            graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    def middle():
        position.fill_(prompt + gen // 2)
        graph.replay()

    @torch.no_grad()
    def measure(rounds):
        kv_bytes = 4 * model.layers * batch * model.kv_heads * (prompt + gen // 2) * model.head
        return {"prompt": prompt, "gen": gen, "batch": batch, "kv_heads": model.kv_heads,
                "latency_s": statistics.median(whole() for _ in range(rounds)), "step_ms": median_ms(middle, 10),
                "needed_bytes": model.weight_bytes() + kv_bytes}

    return measure


def run_case(case, a, compiled, turn):
    try:
        torch.manual_seed(0)
        measure = prepare(Llama(a.layers, a.heads, a.kv_heads), *map(int, case.split(",")))
        torch.cuda.synchronize()
        compiled.wait()
    except BaseException:
        compiled.abort()
        raise
    with turn:
        print(json.dumps(measure(a.rounds)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", action="append", required=True)
    for name, value in {"layers": 32, "heads": 32, "kv-heads": 32, "rounds": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    compiled, turn = spawn.Barrier(len(a.case)), spawn.Lock()
    cases = [spawn.Process(target=run_case, args=(case, a, compiled, turn)) for case in a.case]
    for process in cases:
        process.start()
    for process in cases:
        process.join()
    return max(abs(process.exitcode) for process in cases)


if __name__ == "__main__":
    sys.exit(main())

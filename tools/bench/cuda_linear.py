"""CUDA linears beside cuBLAS (through PyTorch) on one GPU: a table of microseconds and ratios.

  python3 tools/bench/cuda_linear.py BUILD/tools/bench/bench_cuda_linear [all | portable] [sustained] [NxK[f32]...] [ROWS...]

  python3 tools/bench/cuda_linear.py BUILD/tools/bench/bench_cuda_linear e4m3

Both replay CUDA graphs over rotated weights; medians, after rests or, sustained, after a while of the same. Ours use
programmatic dependent launch. With "portable", ours are the bodies of devices without products of warpgroups, and cuBLAS is
also measured in our arithmetic: a product for each quarter of K, added to a sum in f32. The second is of numbers of f8e4m3 on
both sides, beside torch._scaled_mm with one scale for each side, scales of rows, and of 1 x 128 and 128 x 128.
"""
import collections
import math
import statistics
import subprocess
import sys
import time

import torch

GRAPH_BYTES = 2_000_000_000
# The most that ours may take of cuBLAS's time, each and on the mean.
EACH, MEAN = 1.06, 1.03
LLAMA_7B = {(4096, 4096), (12288, 4096), (22016, 4096), (4096, 11008)}
BAR_ROWS = {128, 512, 4096, 16384}


def whole(y, x, w):
    torch.matmul(x, w.t(), out=y)


def by_parts(y, x, w):
    """What linear.cuh sums, where cuBLAS does not split K further. `y`: in f32, to be rounded by another kernel."""
    part = w.shape[1] // 4
    for begin in range(0, 4 * part, part):
        a, b = x[:, begin:begin + part], w[:, begin:begin + part].t()
        if begin == 0:
            torch.mm(a, b, out_dtype=torch.float32, out=y)
        else:
            torch.addmm(y, a, b, out_dtype=torch.float32, out=y)


def replayed(run, calls, rows, sustained=False):
    """Microseconds of one of the calls, as ours are measured."""
    run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            run(i)
    graph.replay()
    torch.cuda.synchronize()
    until = time.monotonic() + 0.15
    while sustained and time.monotonic() < until:
        for _ in range(4):
            graph.replay()
        torch.cuda.synchronize()
    times = []
    for _ in range(5 if rows >= 512 else 9):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if not sustained and times and times[-1] * calls > 1000:
            time.sleep(0.015)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / calls)
    return statistics.median(times)


def cublas(pool, n, k, rows, sustained, product=whole, dtype=torch.bfloat16):
    """Microseconds of one product, from graphs whose weights do not fit in L2 together."""
    weights = pool.numel() // (n * k)
    # As many as ours.
    calls = int(min(6, max(1, 3e12 / (2 * n * k * rows)))) if rows >= 512 else min(weights, max(20, GRAPH_BYTES // (n * k * 2)))
    x = torch.randn(rows, k, device="cuda").to(torch.bfloat16)
    y = torch.empty(rows, n, device="cuda", dtype=dtype)
    return replayed(lambda i: product(y, x, pool[i % weights * n * k:][:n * k].view(n, k)), calls, rows, sustained)


def scaled_mm(n, k, rows, weights, scales):
    x = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
    one = torch.tensor(0.02, device="cuda")
    of_x, of_w = {
        "tensors": lambda: (one, one),
        "rows": lambda: (torch.rand(rows, 1, device="cuda") + 1, torch.rand(1, n, device="cuda") + 1),
        "blocks": lambda: ((torch.rand(k // 128, rows, device="cuda") + 1).t(),
                           (torch.rand(n // 128, k // 128, device="cuda") + 1).t()),
    }[scales]()
    try:
        return replayed(lambda i: torch._scaled_mm(x, weights[i].t(), scale_a=of_x, scale_b=of_w, out_dtype=torch.bfloat16),
                        4 if rows >= 512 else len(weights), rows)
    except RuntimeError:  # no kernel for these
        return math.nan


def e4m3(binary):
    out = subprocess.run([binary, "e4m3"], check=True, capture_output=True, text=True).stdout
    weights = {}
    print("| n x k | rows | scales | ours us | after rounding x | scaled_mm us: tensors | rows | blocks | body |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for line in out.splitlines():
        n, k, rows, scales, body, us, with_rows = line.split()
        n, k, rows = int(n), int(k), int(rows)
        if (n, k) not in weights:
            weights = {(n, k): [torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
                                for _ in range(min(40, GRAPH_BYTES // 2 // (n * k)))]}
        peers = " | ".join(f"{scaled_mm(n, k, rows, weights[n, k], form):.2f}" for form in ("tensors", "rows", "blocks"))
        print(f"| {n} x {k} | {rows} | {scales} | {us} | {with_rows} | {peers} | {body} |", flush=True)


def main():
    if sys.argv[2:] == ["e4m3"]:
        e4m3(sys.argv[1])
        return
    out = subprocess.run([sys.argv[1], "time"] + sys.argv[2:], check=True, capture_output=True,
                         text=True).stdout
    ours = collections.defaultdict(list)  # (n, k, rows): (us, body, chosen)
    for line in out.splitlines():
        n, k, rows, body, us, *chosen = line.split()
        ours[int(n), int(k), int(rows)].append((float(us), body, bool(chosen)))
    pool = torch.empty(3 << 29, device="cuda", dtype=torch.bfloat16)
    for begin in range(0, pool.numel(), 1 << 27):
        pool[begin:begin + (1 << 27)].normal_()
    portable, sustained = ("portable" in sys.argv[2:], "sustained" in sys.argv[2:])
    parts_title = " in our arithmetic us | ours of that |" if portable else ""
    print(f"| n x k | rows | cuBLAS us | ours us | of its time |{parts_title} bar | | body | all that was measured, us |")
    print("| --- " * (11 if portable else 9) + "|")
    ratios = []
    for (n, k, rows), runs in ours.items():
        peer = cublas(pool, n, k, rows, sustained)
        us, body, _ = next(r for r in runs if r[2])
        rest = "  ".join(f"{b} {t:.2f}" for t, b, _ in sorted(runs))
        has_bar = (n, k) in LLAMA_7B and rows in BAR_ROWS and not portable
        if has_bar:
            ratios.append(us / peer)
        parts = ""
        if portable:
            parts_us = cublas(pool, n, k, rows, sustained, by_parts, torch.float32)
            parts = f" {parts_us:.2f} | {us / parts_us:.3f} |"
        verdict = f"{EACH} | {'ok' if us <= EACH * peer else 'SHORT'}" if has_bar else " | "
        print(f"| {n} x {k} | {rows} | {peer:.2f} | {us:.2f} | {us / peer:.3f} |{parts} {verdict} | {body} | {rest} |",
              flush=True)
    if ratios:
        mean = math.prod(ratios) ** (1 / len(ratios))
        print(f"| geometric mean of {len(ratios)} | | | | {mean:.3f} | {MEAN} | {'ok' if mean <= MEAN else 'SHORT'} | | |")


main()

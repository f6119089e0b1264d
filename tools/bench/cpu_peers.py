#!/usr/bin/env python3
"""Quire beside llama.cpp on the CPU: the same GGUF file, the same threads, one run.

  tools/bench/cpu_peers.py QUIRE MODEL.gguf [--threads 1,2] [--prompt 512] [--gen 128] [--rounds 5]

Needs the package llama-cpp-python. Each round measures both, in turns, and the table gives medians and ratios; above 1 is
faster than llama.cpp. Prefill is one prompt of random ids; decode is one sequence, one token a step, after a prompt of
one token. The last column is the share of the machine's read bandwidth that decode's needed bytes reach.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import llama_cpp
import numpy as np


class LlamaCpp:
    def __init__(self, path, threads, prompt, gen):
        self.model = llama_cpp.Llama(
            path, n_ctx=prompt + gen + 8, n_batch=prompt, n_ubatch=prompt, n_threads=threads,
            n_threads_batch=threads, verbose=False)
        vocabulary = self.model.n_vocab()
        ids = np.random.default_rng(1).integers(vocabulary // 8, vocabulary, prompt + gen)
        self.prompt, self.gen = ids[:prompt].tolist(), ids[prompt:].tolist()

    def measure(self):
        self.model.reset()
        start = time.perf_counter()
        self.model.eval(self.prompt)
        prefill = len(self.prompt) / (time.perf_counter() - start)
        self.model.reset()
        self.model.eval(self.prompt[:1])
        start = time.perf_counter()
        for token in self.gen:
            self.model.eval([token])
        return prefill, len(self.gen) / (time.perf_counter() - start)


def measure_quire(quire, plan, threads, prompt, gen):
    out = subprocess.run(
        [quire, "bench", plan, f"--prompt={prompt}", f"--gen={gen}", "--context=1", "--batch=1", f"--threads={threads}",
         "--repeat=1", "--format=json"], check=True, capture_output=True, text=True).stdout
    row = json.loads(out)["results"][0]
    return row["prefill_tokens_per_s"], row["decode_tokens_per_s"], row["decode_bandwidth_share"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(llama_cpp.llama_print_system_info().decode())
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "model.qplan")
        subprocess.run([args.quire, "compile", args.model, "-o", plan], check=True, stderr=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)
        print("| threads | prefill llama.cpp | quire | ratio | decode llama.cpp | quire | ratio | of read bandwidth |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for threads in map(int, args.threads.split(",")):
            peer = LlamaCpp(args.model, threads, args.prompt, args.gen)
            peer.measure()
            peers, ours = [], []
            for _ in range(args.rounds):
                peers.append(peer.measure())
                ours.append(measure_quire(args.quire, plan, threads, args.prompt, args.gen))
            peer_prefill, peer_decode = (statistics.median(column) for column in zip(*peers))
            prefill, decode, share = (statistics.median(column) for column in zip(*ours))
            print(f"| {threads} | {peer_prefill:.0f} | {prefill:.0f} | {prefill / peer_prefill:.2f} | "
                  f"{peer_decode:.1f} | {decode:.1f} | {decode / peer_decode:.2f} | {share:.0%} |", flush=True)


main()

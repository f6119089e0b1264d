#!/usr/bin/env python3
"""Everything that CUDA has to reach, checked and measured beside its peers on one GPU: one table.

  tools/bench/cuda.py --bin FOLDER [--only check,sanitize,load,linear,row,attention,decode,batch] [--scratch /dev/shm]

FOLDER has quire and the benches (tools/bench/gpu_job.sh makes it); PyTorch is the peer. A row is what was measured, the peer or
the floor in the same run, their ratio and the bar. Rows that fall short exit with 1.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SECTIONS = ("check", "sanitize", "load", "linear", "row", "attention", "decode", "batch")


class Bench:
    def __init__(self, a):
        self.bin, self.scratch, self.rounds = a.bin, a.scratch, a.rounds
        self.rows = []
        libraries = os.path.join(self.bin, "..", "lib")
        self.own = dict(os.environ)
        if os.path.isdir(libraries):
            self.own["LD_LIBRARY_PATH"] = os.path.abspath(libraries) + ":" + os.environ.get("LD_LIBRARY_PATH", "")

    def add(self, what, ours, peer, ratio, bar):
        """`bar` is the most that `ratio`, ours to the peer's, may be; None: for the record."""
        verdict = "" if bar is None else "ok" if ratio <= bar else "SHORT"
        self.rows.append((what, ours, peer, f"{ratio:.2f}", "" if bar is None else f"{bar:.2f}", verdict))
        print("|", " | ".join(self.rows[-1]), "|", flush=True)

    def quire(self, *words, **environment):
        command = [os.path.join(self.bin, "quire"), *words]
        done = subprocess.run(command, env={**self.own, **environment}, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def script(self, name, *words):
        """A script of this folder, with what it prints passed on."""
        return subprocess.run([sys.executable, os.path.join(HERE, name), *words], env=self.own).returncode

    def model(self, kv_heads):
        """A plan of Llama-7B's geometry with random weights, made once."""
        folder = os.path.join(self.scratch, f"llama-7b-{kv_heads}")
        plan = folder + ".qplan"
        if not os.path.exists(plan):
            subprocess.run([sys.executable, os.path.join(HERE, "random_llama.py"), folder, f"--kv-heads={kv_heads}"],
                           check=True, stdout=sys.stderr)
            self.quire("compile", folder, "-o", plan, "--target=cuda", "--force")
        return plan

    def drop_model(self, kv_heads):
        folder = os.path.join(self.scratch, f"llama-7b-{kv_heads}")
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.exists(folder + ".qplan"):
            os.remove(folder + ".qplan")

    def measure(self, plan, prompt, gen, batches, rounds, step_tokens=8192):
        out = self.quire("bench", plan, "--device=cuda", f"--prompt={prompt}", f"--gen={gen}", "--format=json",
                         f"--batch={','.join(map(str, batches))}", f"--repeat={rounds}", f"--step-tokens={step_tokens}")
        return json.loads(out)

    def load(self):
        """All kernels of a 32-layer plan, compiled by two threads, and found in the cache; NVRTC's own cache is off."""
        plan = self.model(32)
        cache = os.path.join(self.scratch, "kernel-cache")
        shutil.rmtree(cache, ignore_errors=True)
        for what, bar_ms in (("kernels of 32 layers, cold, 2 threads", 4000), ("the same, warm", 100)):
            out = self.quire("bench", plan, "--device=cuda", "--threads=2", "--prompt=1", "--gen=1", "--repeat=1",
                             "--format=json", QUIRE_CACHE=cache, CUDA_CACHE_DISABLE="1")
            ms = json.loads(out)["kernels"]["ms"]
            self.add(what, f"{ms:.0f} ms", f"{bar_ms} ms", ms / bar_ms, 1)
        shutil.rmtree(cache, ignore_errors=True)

    def check(self):
        """Every kernel's results beside the interpreter's, and its bits under other launches."""
        for name in ("linear", "row", "attention"):
            wrong = subprocess.run([os.path.join(self.bin, f"bench_cuda_{name}"), "check"], env=self.own).returncode
            self.add(f"{name} kernels, checked", "wrong" if wrong else "right", "", 0, None if not wrong else -1)

    def sanitize(self):
        """Every body of linears and attention at small sizes under each tool of compute-sanitizer."""
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
            for name in ("linear", "attention"):
                command = ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=9", "--print-limit=20",
                           os.path.join(self.bin, f"bench_cuda_{name}"), "check", "quick"]
                begin = time.monotonic()
                done = subprocess.run(command, env=self.own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if done.returncode != 0:
                    print(done.stdout, file=sys.stderr)
                self.add(f"{tool} of {name} kernels, {time.monotonic() - begin:.0f} s",
                         "found something" if done.returncode else "clean", "", 0, None if not done.returncode else -1)

    def linear(self):
        self.script("cuda_linear.py", os.path.join(self.bin, "bench_cuda_linear"))

    def row(self):
        subprocess.run([os.path.join(self.bin, "bench_cuda_row"), "time"], env=self.own)

    def attention(self):
        self.script("cuda_attention.py", os.path.join(self.bin, "bench_cuda_attention"))

    def decode(self):
        """Llama-7B's geometry beside torch.compile and CUDA graphs."""
        plan = self.model(32)
        lengths, batches = ((32, 128), (512, 32)), (1, 8, 32)
        ours, copy = {}, 0
        for prompt, gen in lengths:
            report = self.measure(plan, prompt, gen, batches, self.rounds)
            copy = report["copy_bandwidth_bytes_per_s"]
            for row in report["results"]:
                ours[prompt, gen, row["batch"]] = row
        cases = [f"--case={p},{g},{b}" for p, g in lengths for b in batches]
        peers = subprocess.run([sys.executable, os.path.join(HERE, "cuda_torch_decode.py"), *cases], check=True,
                               stdout=subprocess.PIPE, text=True).stdout
        for line in peers.splitlines():
            peer = json.loads(line)
            row = ours[peer["prompt"], peer["gen"], peer["batch"]]
            what = f"Llama-7B, in {peer['prompt']}, out {peer['gen']}, batch {peer['batch']}"
            self.add(what, f"{row['latency_ms_p50'] / 1e3:.3f} s", f"{peer['latency_s']:.3f} s",
                     row["latency_ms_p50"] / 1e3 / peer["latency_s"], 0.80)
            self.add(what + ": a step", f"{row['step_ms_p50']:.3f} ms", f"{peer['step_ms']:.3f} ms",
                     row["step_ms_p50"] / peer["step_ms"], None)
            if peer["batch"] == 1:
                floor_ms = row["needed_bytes"] / copy * 1e3
                self.add(what + ": a step and the copy rate", f"{row['step_ms_p50']:.3f} ms", f"{floor_ms:.3f} ms",
                         row["step_ms_p50"] / floor_ms, 1 / 0.90)

    def batch(self):
        """128 requests, in 32, out 992, beside the time that the needed bytes take at the copy rate."""
        for kv_heads in (32, 8, 1):
            report = self.measure(self.model(kv_heads), 32, 992, [128], 1)
            row = report["results"][0]
            floor_s = 992 * row["needed_bytes"] / report["copy_bandwidth_bytes_per_s"]
            self.add(f"128 requests, in 32, out 992, {kv_heads} KV heads", f"{row['latency_ms_p50'] / 1e3:.2f} s",
                     f"{floor_s:.2f} s", row["latency_ms_p50"] / 1e3 / floor_s, 1.3)
            if kv_heads != 32:
                self.drop_model(kv_heads)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=5)
    a = parser.parse_args()
    bench = Bench(a)
    print("| what | ours | peer or floor | ratio | bar | |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    for section in a.only.split(","):
        if section not in SECTIONS:
            parser.error(f"--only={section}: one of {', '.join(SECTIONS)}")
        begin = time.monotonic()
        getattr(bench, section)()
        print(f"{section}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    bench.drop_model(32)
    return 1 if any(row[-1] == "SHORT" for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Everything that CUDA has to reach, checked and measured beside its peers on the GPUs of one machine: one table.

  tools/bench/cuda.py --bin FOLDER [--only SECTION,...] [--gpus N] [--scratch /dev/shm] [--out FOLDER] [--within SECONDS]

FOLDER has quire, the benches and parity_tests (tools/bench/gpu_job.sh makes it); PyTorch and transformers are the peers. A
row is what was measured, the peer or the floor in the same run, their ratio and the bar; rows that fall short exit with 1.

Each section runs in a process of its own and leaves what it printed in --out, also where it was stopped: after its own limit,
or when --within is over. What checks and does not time comes first, all together on one GPU; then one section at a time on
each GPU, the longest first.
"""
import argparse
import concurrent.futures
import fcntl
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# With the seconds that each may take; the longest first. About half of that is usual.
SECTIONS = {"decode": 400, "sanitize": 300, "attention": 240, "batch": 240, "encoder_decoder": 240, "parity": 200,
            "check": 300, "e4m3": 150, "linear": 150, "load": 120, "cross": 60, "row": 60}
UNTIMED = ("sanitize", "parity", "check")  # their results do not depend on what runs beside them


class Bench:
    def __init__(self, a):
        self.bin, self.scratch, self.rounds = os.path.abspath(a.bin), a.scratch, a.rounds
        self.rows = []
        self.own = dict(os.environ)
        libraries, testdata = (os.path.join(os.path.dirname(self.bin), name) for name in ("lib", "testdata"))
        if os.path.isdir(libraries):
            self.own["LD_LIBRARY_PATH"] = libraries + ":" + os.environ.get("LD_LIBRARY_PATH", "")
        if os.path.isdir(testdata):
            self.own["QUIRE_TESTDATA"] = testdata

    def add(self, what, ours, peer, ratio, bar):
        """`bar` is the most that `ratio`, ours to the peer's, may be; None: for the record."""
        verdict = "" if bar is None else "ok" if ratio <= bar else "SHORT"
        self.rows.append((what, ours, peer, f"{ratio:.3f}", "" if bar is None else f"{bar:.3f}", verdict))
        print("|", " | ".join(self.rows[-1]), "|", flush=True)

    def quire(self, *words, **environment):
        command = [os.path.join(self.bin, "quire"), *words]
        done = subprocess.run(command, env={**self.own, **environment}, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def lines_of(self, command):
        """The lines that it prints, as they come, and passed on."""
        with subprocess.Popen(command, env=self.own, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout:
                print(line, end="", flush=True)
                yield line.rstrip("\n")
        if running.returncode != 0:
            self.wrong(f"{' '.join(map(os.path.basename, command))}: exit code {running.returncode}")

    def program(self, name, *words):
        """A program of --bin; as lines_of."""
        return self.lines_of([os.path.join(self.bin, name), *words])

    def script(self, name, *words):
        """A script of this folder; as lines_of."""
        return self.lines_of([sys.executable, os.path.join(HERE, name), *words])

    def wrong(self, what):
        self.add(what, "wrong", "", 0, -1)

    def model(self, kv_heads):
        """A plan of Llama-7B's geometry with random weights, made once for all processes."""
        folder = os.path.join(self.scratch, f"llama-7b-{kv_heads}")
        plan = folder + ".qplan"
        with open(folder + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(plan):
                subprocess.run([sys.executable, os.path.join(HERE, "random_llama.py"), folder,
                                f"--kv-heads={kv_heads}"], check=True, stdout=sys.stderr)
                self.quire("compile", folder, "-o", plan, "--target=cuda", "--force")
        return plan

    def drop_model(self, kv_heads):
        folder = os.path.join(self.scratch, f"llama-7b-{kv_heads}")
        shutil.rmtree(folder, ignore_errors=True)
        for left in (folder + ".qplan", folder + ".lock"):
            if os.path.exists(left):
                os.remove(left)

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
        def run(name):
            if len(list(self.program(f"bench_cuda_{name}", "check"))) == 0:
                self.wrong(f"{name} kernels: nothing was checked")

        names = ("linear", "row", "attention")
        with concurrent.futures.ThreadPoolExecutor(len(names)) as workers:
            list(workers.map(run, names))

    def parity(self):
        """Every family on the GPU: beside transformers' logits and the CPU's, and its bits however work is cut."""
        shards = max(1, (os.cpu_count() or 2) // 2)  # others check beside it
        running = [subprocess.Popen(
            [os.path.join(self.bin, "parity_tests"), "--gtest_filter=*Cuda*", "--gtest_brief=1"],
            env={**self.own, "GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for shard in range(shards)]
        passed = 0
        for shard in running:
            out, _ = shard.communicate()
            passed += sum(map(int, re.findall(r"\[  PASSED  \] (\d+)", out)))
            if shard.returncode != 0:
                print(out, flush=True)
                self.wrong(f"parity_tests: exit code {shard.returncode}")
        self.add("tests of parity that pass", str(passed), "", 0, -1 if passed == 0 else None)

    def sanitize(self):
        """Every body of linears and attention at small sizes under each tool of compute-sanitizer."""
        def run(of):
            tool, name = of
            command = ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=9", "--print-limit=20",
                       os.path.join(self.bin, f"bench_cuda_{name}"), "check", "quick"]
            begin = time.monotonic()
            done = subprocess.run(command, env=self.own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                print(done.stdout, flush=True)
            self.add(f"{tool} of {name} kernels, {time.monotonic() - begin:.0f} s",
                     "found something" if done.returncode else "clean", "", 0, None if not done.returncode else -1)

        runs = [(tool, name) for tool in ("racecheck", "memcheck", "initcheck", "synccheck")
                for name in ("attention", "linear")]
        with concurrent.futures.ThreadPoolExecutor(len(runs)) as workers:
            list(workers.map(run, runs))

    def linear(self):
        list(self.script("cuda_linear.py", os.path.join(self.bin, "bench_cuda_linear")))

    def e4m3(self):
        list(self.script("cuda_linear.py", os.path.join(self.bin, "bench_cuda_linear"), "e4m3"))

    def row(self):
        list(self.program("bench_cuda_row", "time"))

    def cross(self):
        """Mllama 11B's queries, keys and values, to the cache: packed over both inputs, and split."""
        for line in self.program("bench_cuda_cross_qkv"):
            if "bits" in line:  # the title
                continue
            rows, packed_ms, projections_ms, split_ms, _ = map(float, line.split())
            what = f"cross-attention's QKV, {rows:.0f} decoder rows: split, packed"
            self.add(what, f"{split_ms} ms", f"{packed_ms} ms", split_ms / packed_ms, 1 / 3 if rows <= 512 else None)
            self.add(what + " without the kernel that places K and V", f"{split_ms} ms", f"{projections_ms} ms",
                     split_ms / projections_ms, None)

    def encoder_decoder(self):
        """945 requests of BART-large's geometry beside transformers, which batches as they come, or sorted by length."""
        for line in self.script("cuda_encoder_decoder.py", os.path.join(self.bin, "quire"), "--folder",
                                os.path.join(self.scratch, "quire_bart")):
            row = json.loads(line) if line.startswith("{") else {}
            if "ratio" in row:
                padded = row["way"] == "one padded batch"
                self.add(f"BART-large, sources {row['sources']}, {row['way']}", "1", f"{row['ratio']:.2f}",
                         1 / row["ratio"], 1 / 5 if padded else None)

    def attention(self):
        list(self.script("cuda_attention.py", os.path.join(self.bin, "bench_cuda_attention")))

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
                print(json.dumps(row), flush=True)  # in case that the peers take too long
        cases = [f"--case={p},{g},{b}" for p, g in lengths for b in batches]
        for line in self.script("cuda_torch_decode.py", *cases):
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


def run_section(a, gpu, name, deadline):
    """The section in a process of its own: (name, seconds, how it ended, the rows that it printed)."""
    left = deadline - time.monotonic()
    if left < 5:
        return name, 0, "not run: the time is over", []
    environment = dict(os.environ)
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    command = [sys.executable, os.path.abspath(__file__), "--section", name, "--bin", a.bin, "--scratch", a.scratch,
               "--rounds", str(a.rounds)]
    begin = time.monotonic()
    path = os.path.join(a.out, name + ".txt")
    with open(path, "w") as out:
        # A session of its own, so that all that it started ends with it.
        running = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = running.wait(min(left, SECTIONS[name]))
            ended = {0: "ok", 1: "SHORT"}.get(code, f"exit code {code}")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            ended = "stopped: its time was over"
    with open(path, errors="replace") as out:
        rows = [line.rstrip("\n") for line in out if line.startswith("| ")]
    if ended == "ok" and any("| SHORT" in row for row in rows):
        ended = "SHORT"
    return name, time.monotonic() - begin, ended, rows


def gpus_here():
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return visible.split(",")
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        listed = ""
    return [str(i) for i in range(listed.count("GPU "))] or [None]


def run_all(a, names):
    """All of them, dealt to the GPUs as they become free. 1 if any fell short, was stopped or failed."""
    os.makedirs(a.out, exist_ok=True)
    deadline = time.monotonic() + a.within
    left = queue.SimpleQueue()
    untimed = [name for name in names if name in UNTIMED]
    for together in ([untimed] if untimed else []) + [[name] for name in names if name not in UNTIMED]:
        left.put(together)

    def work(gpu):
        while True:
            try:
                together = left.get_nowait()
            except queue.Empty:
                return
            with concurrent.futures.ThreadPoolExecutor(len(together)) as sections:
                for name in together:
                    sections.submit(lambda name: done.put(run_section(a, gpu, name, deadline)), name)

    done = queue.SimpleQueue()
    gpus = gpus_here()[:a.gpus]
    endings = []
    with concurrent.futures.ThreadPoolExecutor(len(gpus)) as workers:
        working = [workers.submit(work, gpu) for gpu in gpus]
        for _ in names:
            name, seconds, ended, rows = done.get()
            endings.append((name, seconds, ended))
            print(f"== {name}: {ended}, {seconds:.0f} s", *rows, sep="\n", flush=True)
        for worker in working:
            worker.result()
    print("\n| section | seconds | |\n| --- | --- | --- |")
    for name, seconds, ended in endings:
        print(f"| {name} | {seconds:.0f} | {ended} |")
    return 1 if any(ended != "ok" for _, _, ended in endings) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--only", default=",".join(SECTIONS), help="of " + ", ".join(SECTIONS))
    parser.add_argument("--gpus", type=int, default=64, help="at most so many (all)")
    parser.add_argument("--scratch", default="/dev/shm")
    parser.add_argument("--out", default="cuda_bench", help="a folder for what each section prints")
    parser.add_argument("--within", type=float, default=3600, help="seconds for all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    a = parser.parse_args()
    bench = Bench(a)
    if a.section:
        print("| what | ours | peer or floor | ratio | bar | |\n| --- | --- | --- | --- | --- | --- |", flush=True)
        getattr(bench, a.section)()
        return 1 if any(row[-1] == "SHORT" for row in bench.rows) else 0
    names = a.only.split(",")
    for name in names:
        if name not in SECTIONS:
            parser.error(f"--only={name}: one of {', '.join(SECTIONS)}")
    try:
        return run_all(a, sorted(names, key=list(SECTIONS).index))
    finally:
        for kv_heads in (32, 8, 1):
            bench.drop_model(kv_heads)


if __name__ == "__main__":
    sys.exit(main())

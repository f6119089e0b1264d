#!/usr/bin/env python3
"""Quire beside transformers on a GPU: BART-large's geometry with random bf16 weights, the same in both, one run.

  tools/bench/cuda_encoder_decoder.py QUIRE [--requests 945] [--source 209] [--gen 19] [--rounds 3]

All requests are there at once; each has a source and generates --gen tokens greedily, and may not stop. Sources have
--source tokens each, so that nothing of the peer's work is padding; then lengths as texts have them: log-normal (sigma
0.6) with that mean, cut at the 1024 positions that the model has, from a fixed seed, the same for both.

transformers generates with a static cache: sources of one length in batches, without and with torch.compile of its step;
sources of several lengths once in the order in which they come, all in one padded batch, and once in order of length,
in batches of the best size. Prints one JSON line a measurement, and the ratio to the fastest of each way.

The same model compiled without the passes split-cross-qkv and split-phases encodes in every step; it is measured, too, with
one round and the step of the faster of ours, and the ratio of both is printed as that of the passes.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import numpy as np
import torch
import transformers

POSITIONS = 1024
WITHOUT_SPLITS = "recognise-attention,remove-kv-expansion,merge-projections,split-rows,cache-kv,narrow-outputs,fuse"


def make_model(folder):
    config = transformers.BartConfig(
        vocab_size=50265, d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, max_position_embeddings=POSITIONS)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.BartForConditionalGeneration(config).eval()
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    return model


def spread(requests, mean, sigma=0.6):
    drawn = np.random.default_rng(1).lognormal(np.log(mean) - sigma * sigma / 2, sigma, requests)
    drawn *= mean * requests / drawn.sum()
    return [int(length) for length in np.clip(drawn.round(), 1, POSITIONS)]


def quire(binary, plan, lengths, a, steps, rounds):
    for step_tokens in steps:
        out = subprocess.run(
            [binary, "bench", plan, "--device=cuda", "--prompt=1", "--source=" + ",".join(map(str, lengths)),
             f"--gen={a.gen}", f"--batch={a.requests}", f"--step-tokens={step_tokens}", f"--repeat={rounds}",
             "--format=json"], capture_output=True, text=True)
        if out.returncode != 0:
            print(json.dumps({"quire": out.stderr.strip()}), flush=True)
            continue
        row = json.loads(out.stdout)["results"][0]
        first_s, whole_s = row["first_token_ms_p50"] / 1e3, row["latency_ms_p50"] / 1e3
        yield {"quire": a.requests / whole_s, "step_tokens": step_tokens, "latency_s": whole_s, "first_token_s": first_s,
               "step_ms": row["step_ms_p50"]}


@torch.no_grad()
def peer(model, a, lengths, batch, compiled):
    generator = torch.Generator().manual_seed(1)
    sources = [torch.randint(model.config.vocab_size // 8, model.config.vocab_size, (length,), generator=generator)
               for length in lengths]
    settings = dict(max_new_tokens=a.gen, min_new_tokens=a.gen, num_beams=1, do_sample=False,
                    cache_implementation="static", forced_bos_token_id=None, forced_eos_token_id=None,
                    disable_compile=not compiled)
    parts = []
    for at in range(0, a.requests, batch):
        part = sources[at:at + batch]
        pad = torch.nn.utils.rnn.pad_sequence
        parts.append((pad(part, batch_first=True, padding_value=model.config.pad_token_id).cuda(),
                      pad([torch.ones_like(ids) for ids in part], batch_first=True).cuda()))

    def run():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for ids, mask in parts:
            out = model.generate(ids, attention_mask=mask, **settings)
            assert out.shape[1] == a.gen + 1, out.shape
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    run()
    seconds = statistics.median(run() for _ in range(a.rounds))
    torch.cuda.empty_cache()
    return {"transformers": a.requests / seconds, "batch": batch, "compiled": compiled, "latency_s": seconds}


def compare(name, a, plans, lengths, ways):
    """Prints ours, with and without the passes, and the ratio to the fastest of each of the peer's ways."""
    best, best_step = 0.0, None
    for row in quire(a.quire, plans[0], lengths, a, map(int, a.step_tokens.split(",")), a.rounds):
        if row["quire"] > best:
            best, best_step = row["quire"], row["step_tokens"]
        print(json.dumps({"sources": name} | row), flush=True)
    for row in quire(a.quire, plans[1], lengths, a, [best_step], 1):
        print(json.dumps({"sources": name, "passes": "off"} | row), flush=True)
        print(json.dumps({"sources": name, "ratio of the passes": best / row["quire"]}), flush=True)
    for way, rows in ways.items():
        theirs = 0.0
        for row in rows:
            theirs = max(theirs, row["transformers"])
            print(json.dumps({"sources": name, "way": way} | row), flush=True)
        print(json.dumps({"sources": name, "way": way, "ratio": best / theirs}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("--folder", default="/dev/shm/quire_bart")
    parser.add_argument("--step-tokens", default="8192,98304")
    parser.add_argument("--batches", default="945,315")
    parser.add_argument("--sorted-batches", default="64,135,315", help="of sources in order of length")
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile, which takes a minute")
    for name, value in {"requests": 945, "source": 209, "gen": 19, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    model = make_model(a.folder)
    plans = [os.path.join(a.folder, name) for name in ("bart.qplan", "bart_without_splits.qplan")]
    for plan, flags in zip(plans, ([], [f"--passes={WITHOUT_SPLITS}"])):
        subprocess.run([a.quire, "compile", a.folder, "-o", plan, "--force", "--target=cuda"] + flags, check=True)
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}), flush=True)

    equal, several = [a.source] * a.requests, spread(a.requests, a.source)
    batches, sorted_batches = ([int(size) for size in sizes.split(",")] for sizes in (a.batches, a.sorted_batches))
    ways = {"static cache": (peer(model, a, equal, size, False) for size in batches)}
    if a.compiled:
        ways["compiled step"] = (peer(model, a, equal, size, True) for size in batches)
    compare("of one length", a, plans, equal, ways)
    print(json.dumps({"mean": statistics.mean(several), "median": statistics.median(several), "longest": max(several)}))
    compare("of several lengths", a, plans, several, {
        "one padded batch": (peer(model, a, several, a.requests, False) for _ in range(1)),
        "sorted": (peer(model, a, sorted(several), size, False) for size in sorted_batches)})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Quire beside transformers on a GPU: BART-large's geometry with random bf16 weights, the same in both, one run.

  tools/bench/cuda_encoder_decoder.py QUIRE [--requests 945] [--source 209] [--gen 19] [--rounds 3]

All requests are there at once; each has a source of --source tokens and generates --gen greedily, and may not stop.
transformers generates in batches, with a static cache, without and with torch.compile of its step; the fastest size of a
batch counts. Sources have one length, so that nothing of the peer's work is padding. Prints one JSON line a measurement;
"encode_every_step" is what Quire's own figures say of a model that encodes in each step, as it would without the passes
split-cross-qkv and split-phases.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch
import transformers


def make_model(folder):
    config = transformers.BartConfig(
        vocab_size=50265, d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, max_position_embeddings=1024)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.BartForConditionalGeneration(config).eval()
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    return model


def quire(binary, folder, a):
    plan = os.path.join(folder, "bart.qplan")
    subprocess.run([binary, "compile", folder, "-o", plan, "--force", "--target=cuda"], check=True)
    for step_tokens in map(int, a.step_tokens.split(",")):
        out = subprocess.run(
            [binary, "bench", plan, "--device=cuda", "--prompt=1", f"--source={a.source}", f"--gen={a.gen}",
             f"--batch={a.requests}", f"--step-tokens={step_tokens}", f"--repeat={a.rounds}", "--format=json"],
            capture_output=True, text=True)
        if out.returncode != 0:
            print(json.dumps({"quire": out.stderr.strip()}), flush=True)
            continue
        row = json.loads(out.stdout)["results"][0]
        first_s, whole_s = row["first_token_ms_p50"] / 1e3, row["latency_ms_p50"] / 1e3
        yield {"quire": a.requests / whole_s, "step_tokens": step_tokens, "latency_s": whole_s, "first_token_s": first_s,
               "step_ms": row["step_ms_p50"],
               "encode_every_step": a.requests / (whole_s + (a.gen - 1) * (first_s - row["step_ms_p50"] / 1e3))}


@torch.no_grad()
def peer(model, a, batch, compiled):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(model.config.vocab_size // 8, model.config.vocab_size, (a.requests, a.source),
                        generator=generator).cuda()
    settings = dict(max_new_tokens=a.gen, min_new_tokens=a.gen, num_beams=1, do_sample=False,
                    cache_implementation="static", forced_bos_token_id=None, forced_eos_token_id=None,
                    disable_compile=not compiled)

    def run():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for at in range(0, a.requests, batch):
            part = ids[at:at + batch]
            out = model.generate(part, attention_mask=torch.ones_like(part), **settings)
            assert out.shape[1] == a.gen + 1, out.shape
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    run()
    seconds = statistics.median(run() for _ in range(a.rounds))
    return {"transformers": a.requests / seconds, "batch": batch, "compiled": compiled, "latency_s": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("--folder", default="/dev/shm/quire_bart")
    parser.add_argument("--step-tokens", default="8192,98304")
    parser.add_argument("--batches", default="945,315")
    parser.add_argument("--compiled", action="store_true", help="also with torch.compile, which takes a minute")
    for name, value in {"requests": 945, "source": 209, "gen": 19, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    model = make_model(a.folder)
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}), flush=True)
    ours, theirs = [], []
    for row in quire(a.quire, a.folder, a):
        ours.append(row["quire"])
        print(json.dumps(row), flush=True)
    for compiled in (False, True)[:1 + a.compiled]:
        for batch in map(int, a.batches.split(",")):
            row = peer(model, a, batch, compiled)
            theirs.append(row["transformers"])
            print(json.dumps(row), flush=True)
    if ours and theirs:
        print(json.dumps({"ratio": max(ours) / max(theirs)}), flush=True)


if __name__ == "__main__":
    main()

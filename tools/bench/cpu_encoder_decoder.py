#!/usr/bin/env python3
"""Quire beside CTranslate2 on the CPU: BART's geometry with random weights in f32, the same weights in both, one run.

  tools/bench/cpu_encoder_decoder.py QUIRE [--layers 12] [--width 1024] [--source 209] [--gen 19] [--batch 1,8]

Needs torch, transformers and ctranslate2 (python packages). Weights are drawn once and written as a Hugging Face
directory; CTranslate2's own converter reads it, and so does quire compile. Each round measures both, in turns, and the
table gives medians and ratios; above 1 is faster than CTranslate2. The encoder's figure is that of all sources up to the
first token; the decoder's are tokens after it. All outputs have the same length: neither may stop.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np


def make_model(folder, layers, width, vocabulary):
    import torch
    import transformers
    torch.manual_seed(1)
    config = transformers.BartConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=layers, decoder_layers=layers,
        encoder_attention_heads=width // 64, decoder_attention_heads=width // 64, encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width, max_position_embeddings=1024,
        normalize_before=False)  # a key that CTranslate2's converter asks for, and transformers no longer writes
    transformers.BartForConditionalGeneration(config).save_pretrained(folder)
    # The converter wants a tokenizer's words; ids are all that is measured.
    words = ["<s>", "<pad>", "</s>", "<unk>"] + [f"w{i}" for i in range(vocabulary - 4)]
    from tokenizers import Tokenizer, models
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>",
                                         pad_token="<pad>", unk_token="<unk>").save_pretrained(folder)
    return words


class CTranslate2:
    def __init__(self, folder, words, threads, source, gen):
        import ctranslate2
        self.translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", inter_threads=1,
                                                 intra_threads=threads)
        self.words, self.source, self.gen = words, source, gen

    def run(self, batch, tokens):
        ids = np.random.default_rng(1).integers(len(self.words) // 8, len(self.words), (batch, self.source))
        sources = [[self.words[i] for i in row] for row in ids]
        start = time.perf_counter()
        self.translator.translate_batch(sources, beam_size=1, min_decoding_length=tokens, max_decoding_length=tokens,
                                        max_batch_size=batch)
        return time.perf_counter() - start

    def measure(self, batch):
        first, whole = self.run(batch, 1), self.run(batch, self.gen + 1)
        return batch * self.source / first, batch * self.gen / (whole - first)


def measure_quire(quire, plan, threads, source, gen, batch):
    out = subprocess.run(
        [quire, "bench", plan, "--prompt=1", f"--source={source}", f"--gen={gen}", f"--batch={batch}",
         f"--threads={threads}", "--repeat=3", "--format=json"], check=True, capture_output=True, text=True).stdout
    row = json.loads(out)["results"][0]
    return row["prefill_tokens_per_s"] * source, row["decode_tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=50265)
    parser.add_argument("--source", type=int, default=209)
    parser.add_argument("--gen", type=int, default=19)
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, converted, plan = (os.path.join(folder, name) for name in ("model", "ct2", "model.qplan"))
        words = make_model(model, args.layers, args.width, args.vocabulary)
        import ctranslate2
        ctranslate2.converters.TransformersConverter(model).convert(converted)
        subprocess.run([args.quire, "compile", model, "-o", plan], check=True, stderr=subprocess.DEVNULL)
        peer = CTranslate2(converted, words, args.threads, args.source, args.gen)
        print("| batch | encoder tokens/s, CTranslate2 | quire | ratio | decoder tokens/s, CTranslate2 | quire | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for batch in map(int, args.batch.split(",")):
            peer.measure(batch)
            peers, ours = [], []
            for _ in range(args.rounds):
                peers.append(peer.measure(batch))
                ours.append(measure_quire(args.quire, plan, args.threads, args.source, args.gen, batch))
            theirs, own = ([statistics.median(column) for column in zip(*rows)] for rows in (peers, ours))
            print(f"| {batch} | {theirs[0]:.0f} | {own[0]:.0f} | {own[0] / theirs[0]:.2f} | {theirs[1]:.1f} | "
                  f"{own[1]:.1f} | {own[1] / theirs[1]:.2f} |", flush=True)


main()

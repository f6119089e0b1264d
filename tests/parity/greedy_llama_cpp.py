#!/usr/bin/env python3
"""Greedy tokens of Quire beside llama.cpp's, on one GGUF file.

  tests/parity/greedy_llama_cpp.py QUIRE MODEL.gguf [-n 64]

Needs the package llama-cpp-python. For each of ten prompts both generate n tokens from the same ids, without sampling.
Equal sequences pass. Where they part, llama.cpp is asked for its logits at that step: the prompt passes as a near tie when
llama.cpp puts Quire's token no further below its own choice than its own rounding. That is measured beforehand: how far any
logit moves when llama.cpp computes the same last step in one batch instead of token by token, in the median of the ten
generated texts. Exit code 1 if any prompt fails.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np

PROMPTS = [
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):\n",
    "Water boils at",
    "The three laws of motion state that",
    "Q: What is 12 times 12?\nA:",
    "Dear Sir or Madam,\n\nI am writing to",
    "In 1969, Neil Armstrong",
    "To bake bread you need flour,",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
]


def step_logits(model, ids, one_by_one):
    model.reset()
    for chunk in ([[token] for token in ids] if one_by_one else [ids]):
        model.eval(chunk)
    return model.scores[len(ids) - 1].astype(np.float64).copy()


def generate(model, ids, count):
    tokens = []
    model.reset()
    model.eval(ids)
    for _ in range(count):
        tokens.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        model.eval(tokens[-1:])
    return tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=64)
    args = parser.parse_args()
    model = llama_cpp.Llama(args.model, n_ctx=1024, logits_all=True, verbose=False)
    prompts = [model.tokenize(prompt.encode(), add_bos=False, special=True) for prompt in PROMPTS]
    all_theirs = [generate(model, ids, args.n) for ids in prompts]
    moves = []
    for ids, theirs in zip(prompts, all_theirs):
        context = ids + theirs
        moves.append(np.abs(step_logits(model, context, False) - step_logits(model, context, True)).max())
    rounding = float(np.median(moves))
    print(f"llama.cpp's own rounding: {rounding:.4f}")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "model.qplan")
        subprocess.run([args.quire, "compile", args.model, "-o", plan], check=True, stderr=subprocess.DEVNULL)
        for prompt, ids, theirs in zip(PROMPTS, prompts, all_theirs):
            out = subprocess.run(
                [args.quire, "run", plan, "--ids=" + ",".join(map(str, ids)), f"-n{args.n}", "--greedy",
                 "--ignore-eos", "--output=ids"], check=True, capture_output=True, text=True).stdout
            ours = [int(word) for word in out.replace(",", " ").split()]
            name = repr(prompt[:32])
            if ours == theirs:
                print(f"equal      {name}: {args.n} tokens")
                continue
            if len(ours) != args.n:
                print(f"FAILED     {name}: {len(ours)} tokens instead of {args.n}")
                failed += 1
                continue
            at = next(i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1])
            single = step_logits(model, ids + theirs[:at], True)
            gap = single[theirs[at]] - single[ours[at]]
            tie = gap <= rounding
            failed += not tie
            print(f"{'near tie' if tie else 'FAILED':10} {name}: step {at}: theirs {theirs[at]}, ours {ours[at]}, gap {gap:.4f}")
    return 1 if failed else 0


sys.exit(main())

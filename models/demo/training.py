"""What train_story.py and train_dates.py share: data, tokenizer, training loop, files."""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import time

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

# All files of one model together; the models live in the repository.
LIMIT_BYTES = 2_000_000

_CHUNK = 20_000


def main(doc, train, evaluate, batch_rows, examples):
    """Trains or evaluates, as the command line says; `batch_rows` and `examples` are defaults."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--output", type=pathlib.Path, help="train, and write the model here")
    mode.add_argument("--evaluate", type=pathlib.Path, help="measure the model in this folder")
    parser.add_argument("--steps", type=int, help="train for this many steps (reproducible)")
    parser.add_argument("--minutes", type=float, default=4.0,
                        help="without --steps: train this long")
    parser.add_argument("--batch-rows", type=int, default=batch_rows)
    parser.add_argument("--examples", type=int, default=examples, help="examples to draw")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if arguments.evaluate:
        evaluate(arguments.evaluate, arguments.device)
    else:
        train(arguments)


def worker_pool():
    """REQUIRES: the process has used no tokenizer yet, since the workers are forked from it."""
    return concurrent.futures.ProcessPoolExecutor(
        os.cpu_count(), multiprocessing.get_context("fork"),
        initializer=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


def draw_in_parallel(pool, draw, count):
    """The list of draw(seed, n) over chunks; it does not depend on the number of cores."""
    sizes = [min(_CHUNK, count - begin) for begin in range(0, count, _CHUNK)]
    return list(pool.map(draw, range(1, len(sizes) + 1), sizes))


def train_byte_level_bpe(corpus, vocab_size, special_tokens):
    """A byte-level BPE in the style of GPT-2: any text has an encoding, none needs <unk>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special_tokens, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def to_padded(encodings, columns, pad_id):
    """int16 rows of `columns` ids; REQUIRES: every encoding fits."""
    rows = np.full((len(encodings), columns), pad_id, dtype=np.int16)
    for row, encoding in zip(rows, encodings):
        row[:len(encoding.ids)] = encoding.ids
    return rows


def fit(model, loss_of_rows, row_count, arguments, peak_rate):
    """AdamW with a linear warm-up and a cosine decay over the steps or minutes; returns the loss.

    loss_of_rows(indices) is the mean loss of those training rows. The loss returned is the mean
    of the last hundred steps.
    """
    device = arguments.device
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=peak_rate, betas=(0.9, 0.98), fused=device.startswith("cuda"))
    generator = torch.Generator(device=device).manual_seed(7)
    begin = time.monotonic()
    losses, step, progress = [], 0, 0.0
    while progress < 1.0:
        rate = min((step + 1) / 500, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * rate
        rows = torch.randint(row_count, (arguments.batch_rows,), generator=generator, device=device)
        with torch.autocast(device.split(":")[0], dtype=torch.bfloat16):
            loss = loss_of_rows(rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # The losses stay on the device: reading one would stall it at every step.
        losses = losses[-99:] + [loss.detach()]
        step += 1
        seconds = time.monotonic() - begin
        progress = step / arguments.steps if arguments.steps else seconds / (60 * arguments.minutes)
        if step % 250 == 0:
            print(f"step {step} loss {torch.stack(losses).mean():.4f} {seconds:.0f} s", flush=True)
    loss = torch.stack(losses).mean().item()
    print(f"trained {step} steps in {time.monotonic() - begin:.0f} s: loss {loss:.4f}", flush=True)
    return loss


def write_model(model, tokenizer, special_tokens, output, dtype):
    """Writes the Hugging Face folder and checks its size."""
    model.to("cpu", dtype).save_pretrained(output)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=model.config.max_position_embeddings,
        clean_up_tokenization_spaces=False, **special_tokens).save_pretrained(output)
    # Version 5 of transformers writes a class name that version 4 does not know; both know this.
    path = output / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(settings, indent=2) + "\n")
    size_bytes = sum(f.stat().st_size for f in output.iterdir())
    print(f"{output}: {sum(p.numel() for p in model.parameters())} parameters, {size_bytes} bytes")
    if size_bytes > LIMIT_BYTES:
        raise SystemExit(f"error: {output} is over {LIMIT_BYTES} bytes")

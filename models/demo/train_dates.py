"""Trains models/demo/dates, a BART-style encoder-decoder from written-out dates to ISO dates.

    python train_dates.py --output dates          # train and write
    python train_dates.py --evaluate dates        # accuracy on 1000 dates that training never saw

The model here: one H200 shared with train_story.py, --minutes 3.5, which was 5687 steps of 2048
pairs. Training loss below 0.00005 per token; 1000 of 1000 held-out dates right.
"""

import functools

import numpy as np
import torch
from tokenizers import processors
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartConfig
from transformers import BartForConditionalGeneration, GenerationConfig

import training
from date_grammar import draw_pairs

# BART's ids.
_BOS, _PAD, _EOS = 0, 1, 2
_SPECIAL_TOKENS = ["<s>", "<pad>", "</s>"]
_SOURCE_TOKENS = 40
_TARGET_TOKENS = 12  # <s>, ten characters, </s>
_TOKENIZER_PAIRS = 20_000
_HELD_OUT_SEED = 1_000_003

_EXAMPLES = ["the third of March, nineteen eighty-four", "March 3rd 1984", "3/3/84",
             "Tuesday, 12 May 2015", "2 Jan '99", "February 29, two thousand and twenty-four"]


def make_tokenizer(texts):
    # Without digits in its corpus the BPE learns no merge of digits: they stay single tokens, in
    # the source as in the target. Capitals are rare in it, so they are added, lest "NINETEEN" be
    # spelled letter by letter.
    words = ["".join(c for c in text if not c.isdigit()) for text in texts]
    words += [text.upper() for text in words]
    tokenizer = training.train_byte_level_bpe(words, 512, _SPECIAL_TOKENS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>",
        special_tokens=[("<s>", _BOS), ("</s>", _EOS)])
    return tokenizer


def make_model():
    torch.manual_seed(7)
    return BartForConditionalGeneration(BartConfig(
        vocab_size=512, d_model=96, encoder_layers=3, decoder_layers=2,
        encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=256,
        decoder_ffn_dim=256, max_position_embeddings=128, activation_function="gelu",
        dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, classifier_dropout=0.0,
        bos_token_id=_BOS, pad_token_id=_PAD, eos_token_id=_EOS, decoder_start_token_id=_EOS,
        forced_eos_token_id=_EOS))


def encode_pairs(tokenizer, pairs):
    """Rows of source ids, and beside them in the same row the target ids."""
    return np.concatenate(
        [training.to_padded(tokenizer.encode_batch(list(texts)), tokens, _PAD)
         for texts, tokens in zip(zip(*pairs), [_SOURCE_TOKENS, _TARGET_TOKENS])], axis=1)


def draw_rows(tokenizer, seed, count):
    return encode_pairs(tokenizer, draw_pairs(seed, count))


def train(arguments):
    with training.worker_pool() as pool:
        [sample] = training.draw_in_parallel(pool, draw_pairs, _TOKENIZER_PAIRS)
        tokenizer = make_tokenizer([text for text, _ in sample])
        parts = training.draw_in_parallel(
            pool, functools.partial(draw_rows, tokenizer), arguments.examples)
    rows = torch.from_numpy(np.concatenate(parts)).to(arguments.device)
    sources, targets = rows.split([_SOURCE_TOKENS, _TARGET_TOKENS], dim=1)
    print(f"{len(rows)} pairs, {(sources != _PAD).sum().item() / len(rows):.0f} source tokens")
    model = make_model().to(arguments.device)

    def loss_of_rows(indices):
        source = sources[indices].long()
        return model(input_ids=source, attention_mask=source != _PAD,
                     labels=targets[indices].long()).loss

    training.fit(model, loss_of_rows, len(rows), arguments, peak_rate=1e-3)
    model.generation_config = GenerationConfig(
        bos_token_id=_BOS, pad_token_id=_PAD, eos_token_id=_EOS, decoder_start_token_id=_EOS,
        forced_bos_token_id=_BOS, forced_eos_token_id=_EOS, max_length=16)
    training.write_model(
        model, tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
        arguments.output, torch.float16)


def evaluate(folder, device):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()

    def to_iso(texts):
        inputs = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
        return tokenizer.batch_decode(model.generate(**inputs.to(device)),
                                      skip_special_tokens=True)

    pairs = draw_pairs(_HELD_OUT_SEED, 1000, held_out=True)
    answers = to_iso([text for text, _ in pairs])
    wrong = [(text, iso, answer) for (text, iso), answer in zip(pairs, answers) if answer != iso]
    print(f"{len(pairs) - len(wrong)} of {len(pairs)} held-out dates right")
    for text, iso, answer in wrong[:20]:
        print(f"  wrong: {text!r} is {iso}, not {answer}")
    for text, answer in zip(_EXAMPLES, to_iso(_EXAMPLES)):
        print(f"  {text} -> {answer}")


if __name__ == "__main__":
    training.main(__doc__, train, evaluate, batch_rows=2048, examples=2_000_000)

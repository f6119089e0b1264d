"""Trains models/demo/story, a grouped-query Llama-style decoder that tells short stories.

    python train_story.py --output story          # train and write
    python train_story.py --evaluate story        # held-out loss, sampled stories

The model here: one H200 shared with train_dates.py, --minutes 4.6, which was 5179 steps of 512
stories. Loss per token 0.2145 in training and 0.2161 on held-out stories; of 200 sampled stories
all end by themselves and 198 name nobody but the hero and one friend.
"""

import functools
import re

import numpy as np
import torch
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig
from transformers import LlamaForCausalLM

import story_words
import training
from story_grammar import draw_stories

_BOS, _EOS, _PAD = 0, 1, 2
_SPECIAL_TOKENS = ["<s>", "</s>", "<pad>"]
_ROW_TOKENS = 288
_TOKENIZER_STORIES = 20_000
_HELD_OUT_SEED = 1_000_003  # no chunk of draw_in_parallel has this seed

_PROMPTS = ["Once upon a time", "Once upon a time, there was a little mouse named Max",
            "There was once a shy girl", "Once upon a time, in a big cave near a waterfall,"]


def make_tokenizer(stories):
    tokenizer = training.train_byte_level_bpe(stories, 1280, _SPECIAL_TOKENS)
    # A prompt begins with <s> and stays open; </s> is the model's to say.
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", _BOS)])
    return tokenizer


def make_model():
    torch.manual_seed(7)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=1280, hidden_size=128, intermediate_size=256, num_hidden_layers=5,
        num_attention_heads=8, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
        rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=_BOS, eos_token_id=_EOS,
        pad_token_id=_PAD))


def encode_stories(tokenizer, stories):
    """Rows <s> story </s> <pad>..., as int16; the longest story is well under _ROW_TOKENS."""
    rows = training.to_padded(tokenizer.encode_batch(stories), _ROW_TOKENS, _PAD)
    rows[np.arange(len(rows)), (rows != _PAD).sum(1)] = _EOS
    return rows


def draw_rows(tokenizer, seed, count):
    return encode_stories(tokenizer, draw_stories(seed, count))


def loss_of(model, rows):
    rows = rows.long()
    return model(input_ids=rows, labels=rows.masked_fill(rows == _PAD, -100)).loss


def train(arguments):
    with training.worker_pool() as pool:
        [sample] = training.draw_in_parallel(pool, draw_stories, _TOKENIZER_STORIES)
        tokenizer = make_tokenizer(sample)
        parts = training.draw_in_parallel(
            pool, functools.partial(draw_rows, tokenizer), arguments.examples)
    rows = torch.from_numpy(np.concatenate(parts)).to(arguments.device)
    print(f"{len(rows)} stories, {(rows != _PAD).sum().item() / len(rows):.0f} tokens each")
    model = make_model().to(arguments.device)
    training.fit(model, lambda indices: loss_of(model, rows[indices]), len(rows), arguments,
                 peak_rate=3e-3)
    model.generation_config = GenerationConfig(
        bos_token_id=_BOS, eos_token_id=_EOS, pad_token_id=_PAD, max_new_tokens=300)
    training.write_model(
        model, tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
        arguments.output, torch.bfloat16)


def is_consistent(story):
    """Whether the story names a hero, and nobody beside the hero and one friend."""
    people = set(re.findall(r"[A-Z][a-z]+", story)) & set(story_words.GIRLS + story_words.BOYS)
    return 1 <= len(people) <= 2


def evaluate(folder, device):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    rows = torch.from_numpy(draw_rows(tokenizer.backend_tokenizer, _HELD_OUT_SEED, 256))
    with torch.no_grad():
        print(f"held-out loss {loss_of(model, rows.to(device)).item():.4f} per token")

    prompt = tokenizer(_PROMPTS[0], return_tensors="pt", return_token_type_ids=False).to(device)
    torch.manual_seed(7)
    outputs = model.generate(**prompt, do_sample=True, top_k=0, num_return_sequences=200)
    ended = (outputs == _EOS).any(1).sum().item()
    told = tokenizer.batch_decode(outputs, skip_special_tokens=True)
    consistent = sum(map(is_consistent, told))
    print(f"200 sampled stories: {ended} end, {consistent} keep to their characters, "
          f"{len(set(told))} differ")
    for text in _PROMPTS:
        prompt = tokenizer(text, return_tensors="pt", return_token_type_ids=False).to(device)
        for title, options in [("greedy", {}), ("sampled", {"do_sample": True, "top_k": 0})]:
            output = model.generate(**prompt, **options)[0]
            print(f"\n[{title}] {tokenizer.decode(output, skip_special_tokens=True)}")


if __name__ == "__main__":
    training.main(__doc__, train, evaluate, batch_rows=512, examples=400_000)

#!/usr/bin/env python3
"""Records rotary frequencies and ALiBi slopes of the transformers package.

Usage: make_rope_fixture.py > rope_fixture.txt; make_rope_fixture.py --alibi > alibi_fixture.txt

A line of the rope fixture:  head size | attributes of the rope op | position | cos/sin factor | frequencies
A line of the ALiBi fixture: heads | slopes
Needs torch and transformers; numbers are theirs, in float32.
"""
import sys

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", original_max_position_embeddings=256)

# (head size, longest trained length, parameters, how the op spells them, positions)
CASES = [
    (8, 64, dict(rope_type="linear", rope_theta=1e4, factor=4.0),
     "theta=10000, scaling=linear, scale_factor=4", [1, 50]),
    (16, 16, dict(rope_type="dynamic", rope_theta=1e4, factor=2.0),
     "theta=10000, scaling=dynamic, scale_factor=2, original_tokens=16", [1, 15, 16, 17, 40, 100]),
    (64, 32, dict(rope_type="dynamic", rope_theta=5e5, factor=8.0),
     "theta=500000, scaling=dynamic, scale_factor=8, original_tokens=32", [31, 33, 90]),
    (32, 512, dict(LLAMA3, rope_theta=500.0, factor=8.0),
     "theta=500, scaling=llama3, scale_factor=8, original_tokens=64", [1, 60]),
    (128, 131072, dict(LLAMA3, rope_theta=5e5, factor=32.0, high_freq_factor=8.0, low_freq_factor=2.0,
                       original_max_position_embeddings=8192),
     "theta=500000, scaling=llama3, scale_factor=32, original_tokens=8192, low_factor=2, high_factor=8", [7, 100]),
    (64, 1024, dict(YARN, rope_theta=1e4, factor=4.0),
     "theta=10000, scaling=yarn, scale_factor=4, original_tokens=256", [1, 100]),
    (64, 1024, dict(YARN, rope_theta=1e4, factor=4.0, truncate=False),
     "theta=10000, scaling=yarn, scale_factor=4, original_tokens=256, truncate=0", [1, 100]),
    (32, 1024, dict(YARN, rope_theta=1e6, factor=16.0, beta_fast=20.0, beta_slow=0.5, attention_factor=0.75),
     "theta=1000000, scaling=yarn, scale_factor=16, original_tokens=256, beta_fast=20, beta_slow=0.5", [3, 90]),
    # The ramp is cut at both ends: few dims, a small base.
    (8, 4096, dict(YARN, rope_theta=10.0, factor=2.0, original_max_position_embeddings=1024),
     "theta=10, scaling=yarn, scale_factor=2, original_tokens=1024", [2, 33]),
    # beta_fast and beta_slow fall on one pair: the ramp has no width.
    (16, 4096, dict(YARN, rope_theta=1e4, factor=2.0, beta_fast=1.0, beta_slow=1.0, truncate=False),
     "theta=10000, scaling=yarn, scale_factor=2, original_tokens=256, beta_fast=1, truncate=0", [2, 33]),
    # The same on a whole pair, the first.
    (16, 64, dict(YARN, rope_theta=1e4, factor=2.0, original_max_position_embeddings=6),
     "theta=10000, scaling=yarn, scale_factor=2, original_tokens=6", [2, 33]),
    # The ramp would begin before the first pair.
    (32, 256, dict(YARN, rope_theta=1e4, factor=4.0, original_max_position_embeddings=64),
     "theta=10000, scaling=yarn, scale_factor=4, original_tokens=64", [2, 33]),
]


def rope():
    for head, longest, parameters, attributes, positions in CASES:
        config = LlamaConfig(hidden_size=4 * head, num_attention_heads=4, head_dim=head,
                             max_position_embeddings=longest, rope_parameters=dict(parameters))
        init = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
        for position in positions:
            frequencies, factor = init(config, "cpu", seq_len=position + 1)
            print(head, attributes, position, repr(float(factor)),
                  " ".join(repr(float(f)) for f in frequencies), sep=" | ")


def alibi():
    for heads in [1, 2, 3, 5, 6, 8, 12, 16, 20, 71, 112]:
        print(heads, " ".join(repr(float(s)) for s in _get_alibi_slopes(heads, "cpu")), sep=" | ")


alibi() if "--alibi" in sys.argv else rope()

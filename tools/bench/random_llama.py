#!/usr/bin/env python3
"""A Llama of random bf16 weights in Hugging Face layout, without a tokenizer, made on a GPU in seconds.

  tools/bench/random_llama.py FOLDER [--layers 32] [--heads 32] [--kv-heads 32] [--width 4096] [--ff 11008] ...

The defaults are Llama-7B's geometry: 13.5 GB. FOLDER is best in memory (/dev/shm). Values are normal, never zeros: a GPU
computes on zeros faster than on anything else.
"""
import argparse
import json
import math
import os
import struct

import torch


def shapes(a):
    head = a.width // a.heads
    yield "model.embed_tokens.weight", [a.vocabulary, a.width]
    for layer in range(a.layers):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", [a.width]
        yield prefix + "self_attn.q_proj.weight", [a.width, a.width]
        yield prefix + "self_attn.k_proj.weight", [a.kv_heads * head, a.width]
        yield prefix + "self_attn.v_proj.weight", [a.kv_heads * head, a.width]
        yield prefix + "self_attn.o_proj.weight", [a.width, a.width]
        yield prefix + "post_attention_layernorm.weight", [a.width]
        yield prefix + "mlp.gate_proj.weight", [a.ff, a.width]
        yield prefix + "mlp.up_proj.weight", [a.ff, a.width]
        yield prefix + "mlp.down_proj.weight", [a.width, a.ff]
    yield "model.norm.weight", [a.width]
    yield "lm_head.weight", [a.vocabulary, a.width]


def write(folder, a):
    os.makedirs(folder, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": a.vocabulary,
        "hidden_size": a.width, "intermediate_size": a.ff, "num_hidden_layers": a.layers, "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads, "max_position_embeddings": a.positions, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    header, end = {}, 0
    for name, shape in shapes(a):
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device=device).manual_seed(a.seed)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(a):
            values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
            # So that values keep their size from layer to layer; a norm's weights are around one.
            values = 1 + 0.1 * values if "norm" in name else values / math.sqrt(shape[-1])
            file.write(values.to(torch.bfloat16).view(torch.int16).cpu().numpy().data)
    return end


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    for name, value in {"layers": 32, "heads": 32, "kv-heads": 32, "width": 4096, "ff": 11008, "vocabulary": 32000,
                        "positions": 4096, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    a = parser.parse_args()
    print(f"{write(a.folder, a) / 1e9:.1f} GB in {a.folder}")


if __name__ == "__main__":
    main()

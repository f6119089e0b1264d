"""Small and huge Llama checkpoints, written with nothing but the standard library."""
import json
import math
import os
import pathlib
import random
import struct

ITEM_BYTES = {"F32": 4, "BF16": 2}


def llama_config(**changes):
    """One layer, two query heads over one KV head; None removes a key."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 48,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    }
    config.update(changes)
    return {key: value for key, value in config.items() if value is not None}


def llama_shapes(config):
    E, F, V = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = E // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [V, E], "model.norm.weight": [E], "lm_head.weight": [V, E]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in {
            "input_layernorm": [E], "self_attn.q_proj": [E, E], "self_attn.k_proj": [kv, E],
            "self_attn.v_proj": [kv, E], "self_attn.o_proj": [E, E], "post_attention_layernorm": [E],
            "mlp.gate_proj": [F, E], "mlp.up_proj": [F, E], "mlp.down_proj": [E, F],
        }.items():
            shapes[f"{prefix}{name}.weight"] = shape
    return shapes


def random_values(name, shape):
    """f32 bytes, drawn from a generator seeded by the name."""
    source = random.Random(name)
    deviation = 1 / math.sqrt(shape[-1])
    center = 1 if "norm" in name else 0
    count = math.prod(shape)
    return struct.pack(f"<{count}f", *(center + source.gauss(0, deviation) for _ in range(count)))


def write_header(file, shapes, dtype):
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + math.prod(shape) * ITEM_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    return end


def write_llama(folder, shapes=None, **changes):
    """A directory that compiles and runs, of random f32 weights; `shapes` replaces what the configuration asks for."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = llama_config(**changes)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = llama_shapes(config) if shapes is None else shapes
    with open(folder / "model.safetensors", "wb") as file:
        write_header(file, shapes, "F32")
        for name, shape in shapes.items():
            file.write(random_values(name, shape))
    return folder


def write_sparse_llama_7b(folder):
    """Llama-7B's 13.5 GB, sparse. Returns the file's bytes."""
    return write_sparse_llama(folder, vocab_size=32000, hidden_size=4096, intermediate_size=11008,
                              num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
                              max_position_embeddings=2048)


def write_sparse_llama(folder, **changes):
    """A directory whose weights, zeros in bf16, are a file without blocks: only its header is stored."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = llama_config(**changes)
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "model.safetensors", "wb") as file:
        data_bytes = write_header(file, llama_shapes(config), "BF16")
        file.truncate(file.tell() + data_bytes)
    return os.path.getsize(folder / "model.safetensors")

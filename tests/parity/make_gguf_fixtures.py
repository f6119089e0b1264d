"""Writes the parity fixtures that are GGUF files, with the tensor layouts that llama.cpp's converters give them.

    python tests/parity/make_gguf_fixtures.py [NAME...]

Each folder holds model.gguf and expected.safetensors (see make_fixtures.py). Names come from the gguf package, and so
do the quantised blocks but those of K formats (k_quants.py): transformers computes the expected logits from the
numbers that the package reads back, so that a quantised file is held to the same tolerance as any other.
"""

import math
import shutil
import sys

import gguf
import numpy as np
import torch
import transformers as tr

import k_quants
import make_fixtures as base

LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
# Blocks hold 32 elements of a row, those of K formats 256.
WIDE = dict(intermediate_size=64)
WIDER = dict(hidden_size=256, intermediate_size=256, num_attention_heads=2, num_key_value_heads=1)

# As llama.cpp mixes them: what is most sensitive gets two bits more.
Q4_K_M = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "output.": "Q6_K", "token_embd": "Q6_K", "": "Q4_K"}

# name: (config class, arguments, gguf architecture, storage of matrices: one for all, or by the start of what their
# names have behind the layer)
FIXTURES = {
    "gguf_llama_q8_0": ("Llama", {**base.LLAMA, **WIDE, "rope_parameters": LLAMA3, "tie_word_embeddings": True},
                        "llama", "Q8_0"),
    "gguf_mistral_q4_1": ("Mistral", {**base.LLAMA, **WIDE, "sliding_window": 8}, "llama", "Q4_1"),
    "gguf_qwen2_q5_0": ("Qwen2", {**base.QWEN2, **WIDE}, "qwen2", "Q5_0"),
    "gguf_llama_q4_k_m": ("Llama", {**base.LLAMA, **WIDER}, "llama", Q4_K_M),
    "gguf_qwen3_q5_k": ("Qwen3", {**base.LLAMA, **WIDER, "num_hidden_layers": 1}, "qwen3", "Q5_K"),
    "gguf_qwen2_q6_k": ("Qwen2", {**base.QWEN2, **WIDER, "hidden_size": 256, "num_hidden_layers": 1,
                                  "num_attention_heads": 4, "tie_word_embeddings": True}, "qwen2", "Q6_K"),
    "gguf_qwen3": ("Qwen3", dict(**base.LLAMA), "qwen3", "F16"),
    "gguf_gemma3": ("Gemma3Text", dict(**base.GEMMA3, head_dim=16, query_pre_attn_scalar=16), "gemma3", "BF16"),
    "gguf_gpt2": ("GPT2", dict(**base.GPT2), "gpt2", "F16"),
    "gguf_starcoder": ("GPTBigCode", dict(**base.GPT2), "starcoder", "F16"),
    "gguf_bloom": ("Bloom", dict(**base.BLOOM), "bloom", "BF16"),
}


def interleave_halves(rows, heads):
    """Rows i and i + D/2 of each head become neighbours."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def to_gguf_layout(arch, config, name, values):
    if arch == "llama" and "q_proj" in name:
        return interleave_halves(values, config.num_attention_heads)
    if arch == "llama" and "k_proj" in name:
        return interleave_halves(values, config.num_key_value_heads)
    if arch == "gemma3" and "norm" in name:
        return values + 1
    if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return values.T
    if arch == "bloom" and "query_key_value" in name:
        parts = values.reshape(config.n_head, 3, -1, *values.shape[1:])
        return np.concatenate([parts[:, i].reshape(-1, *values.shape[1:]) for i in range(3)])
    return values


def llama3_divisors(config):
    """What llama.cpp stores in rope_freqs.weight instead of the four parameters."""
    divisors = []
    dims = config.head_dim
    for i in range(0, dims, 2):
        wavelength = 2 * math.pi * LLAMA3["rope_theta"] ** (i / dims)
        turns = LLAMA3["original_max_position_embeddings"] / wavelength
        low, high, factor = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"], LLAMA3["factor"]
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


def storage_of(storage, gguf_name, columns):
    """The type of a matrix; as llama.cpp does, Q8_0 where a row is no multiple of the 256 columns of K formats."""
    if isinstance(storage, dict):
        part = gguf_name.split(".", 2)[2] if gguf_name.startswith("blk.") else gguf_name
        storage = next(of for start, of in storage.items() if part.startswith(start))
    is_k = storage in k_quants.QUANTIZERS
    return gguf.GGMLQuantizationType["Q8_0" if is_k and columns % 256 else storage]


def through(values, matrix_type):
    """The numbers that storing in `matrix_type` leaves, and the stored bytes."""
    values = np.ascontiguousarray(values)
    if matrix_type.name in k_quants.QUANTIZERS:
        blocks = k_quants.quantize(values, matrix_type.name)
    else:
        blocks = gguf.quantize(values, matrix_type)
    return gguf.dequantize(blocks, matrix_type), blocks


def write_metadata(writer, arch, config):
    writer.add_context_length(getattr(config, "max_position_embeddings", 2048))
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    writer.add_feed_forward_length(inner)
    if arch in ("gpt2", "starcoder", "bloom"):
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        if arch == "starcoder":
            writer.add_head_count_kv(1)
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(config.head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if config.model_type in ("mistral", "gemma3_text"):
        writer.add_sliding_window(config.sliding_window)
    if arch == "gemma3":
        # One global layer in each run of this many, the last.
        writer.add_sliding_window_pattern(2)


def write(name):
    family, arguments, arch, storage = FIXTURES[name]
    folder = base.ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = getattr(tr, family + "Config")(**arguments)
    model = tr.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    # The widths differ; what a product makes of its input should not.
    base.randomise(model, family.startswith("Gemma"), 0.07 if config.hidden_size == WIDER["hidden_size"] else 0.2)

    writer = gguf.GGUFWriter(folder / "model.gguf", arch)
    write_metadata(writer, arch, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[arch.upper()], config.num_hidden_layers)
    for hf_name, parameter in model.named_parameters():
        values = parameter.data.numpy()
        stored = to_gguf_layout(arch, config, hf_name, values)
        # Not every family is in the package's table with its prefix.
        gguf_name = (names.get_name(hf_name, (".weight", ".bias"))
                     or names.get_name(hf_name.removeprefix("transformer."), (".weight", ".bias")))
        if values.ndim == 1:
            writer.add_tensor(gguf_name, stored.astype(np.float32))
            continue
        matrix_type = storage_of(storage, gguf_name, stored.shape[-1])
        rounded, blocks = through(stored, matrix_type)
        writer.add_tensor(gguf_name, blocks, raw_dtype=matrix_type)
        # Blocks lie within a row, so that moving whole rows and rounding commute; transposing does not.
        is_transposed = arch == "gpt2" and stored is not values
        parameter.data = torch.from_numpy(rounded.T.copy() if is_transposed else through(values, matrix_type)[0])
    if name == "gguf_llama_q8_0":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    base.write_expected(name, model)


if __name__ == "__main__":
    for fixture in sys.argv[1:] or FIXTURES:
        write(fixture)

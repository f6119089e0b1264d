"""Writes the parity fixtures: small random models in Hugging Face layout, and what transformers computes with them.

    python tests/parity/make_fixtures.py [NAME...]

Each folder of tests/parity/fixtures holds config.json and model.safetensors, as save_pretrained writes them, and
expected.safetensors:

    ids      i32[T + 32]     random tokens: a prompt of T, then 32 that are fed one at a time
    prefill  f32[T, V]       logits of every row of the prompt
    decode   f32[32, V]      logits of each of the 32 steps, with transformers' own cache
    states   f32[S, E]       of a model that looks at states: drawn, too; its logits go by them
    source   i32[S]          of an encoder-decoder: random tokens that its encoder reads
    beams    i32[N, L]       and what beam search with four beams gives for that source, padded with -1,
    scores   f32[N]          with the scores

mllama has images.safetensors, too: logits of the same tokens where the states are of images (write_images).

Logits are computed in f32 with eager attention from the stored weights, whatever type those are stored in. Every tensor
is drawn from a generator seeded by its name, norms and biases too, so that no two rows are equal and a swapped pair
shows. Needs torch, transformers (written with 5.24) and safetensors.
"""

import functools
import pathlib
import shutil
import sys
import zlib

import torch
import transformers as tr
from safetensors.torch import load_file, save_file
from transformers.models.mllama import modeling_mllama, processing_mllama

ROOT = pathlib.Path(__file__).parent / "fixtures"
PROMPT_TOKENS = 12
STEPS = 32
SOURCE_TOKENS = 21
# tests/parity/encoder_decoder_test.cc has the same searches.
BEAM_LENGTH = 20
BEAM_SETTINGS = [
    dict(max_length=20),
    dict(max_length=20, early_stopping=True, length_penalty=2.0),
    dict(max_length=20, early_stopping="never", length_penalty=0.5, no_repeat_ngram_size=2),
    dict(max_length=12, min_length=8, forced_bos_token_id=5, repetition_penalty=1.3),
]

TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
LLAMA = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=128, **TOKENS)
# No head_dim: it is hidden_size / num_attention_heads. The epsilons here and below are large enough to show.
LLAMA_MHA = {**LLAMA, "num_key_value_heads": 4, "head_dim": None, "rms_norm_eps": 0.05}
QWEN2 = {key: value for key, value in LLAMA.items() if key != "head_dim"}
GPT2 = dict(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4, **TOKENS)
BLOOM = dict(vocab_size=96, hidden_size=48, n_layer=2, n_head=6, **TOKENS)
GEMMA3 = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
              num_key_value_heads=1, max_position_embeddings=128, sliding_window=8,
              layer_types=["sliding_attention", "full_attention", "sliding_attention"], **TOKENS)


# An encoder-decoder's own generation settings are made to matter; eos comes often enough to end some beams.
BART = dict(vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=64,
            decoder_start_token_id=2, forced_eos_token_id=2, **TOKENS)

# Eight buckets up to 24 tokens: sources and targets are long enough to fill the last.
T5 = dict(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=24, layer_norm_epsilon=0.01,
          decoder_start_token_id=0, **TOKENS)


# Two layers of four look at the states, not the first: by which transformers counts its cache.
MLLAMA = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, cross_attention_layers=[1, 3], rms_norm_eps=0.01,
              **TOKENS)


def llama_rope(**parameters):
    return dict(**LLAMA, rope_parameters=dict(rope_theta=10000.0, **parameters))


# name: (config class, arguments, storage type)
FIXTURES = {
    "llama_mha_bias": ("Llama", dict(**LLAMA_MHA, attention_bias=True, mlp_bias=True), "float32"),
    "llama_gqa_tied": ("Llama", dict(**LLAMA, tie_word_embeddings=True), "bfloat16"),
    "llama_linear": ("Llama", llama_rope(rope_type="linear", factor=2.5), "bfloat16"),
    # 16 positions are in range, so that most of the decode steps stretch the base.
    "llama_dynamic": ("Llama", {**llama_rope(rope_type="dynamic", factor=2.0), "max_position_embeddings": 16},
                      "bfloat16"),
    # Wavelengths at head size 16 and theta 10000 are 6, 20, 63, 199, ... tokens: below, between and above the two
    # bounds, 64 / 4 and 64 / 1.
    "llama_llama3": ("Llama", llama_rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                         original_max_position_embeddings=64), "bfloat16"),
    "llama_yarn": ("Llama", llama_rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
                   "bfloat16"),
    "llama_yarn_explicit": ("Llama", {**llama_rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                                                   beta_fast=2.0, beta_slow=0.25, mscale=1.2, mscale_all_dim=0.7,
                                                   truncate=False), "max_position_embeddings": 256}, "bfloat16"),
    "mistral_window": ("Mistral", dict(**LLAMA, sliding_window=8), "bfloat16"),
    "qwen2_tied": ("Qwen2", dict(**QWEN2, tie_word_embeddings=True), "bfloat16"),
    "qwen2_window": ("Qwen2", dict(**QWEN2, use_sliding_window=True, sliding_window=7, max_window_layers=1),
                     "bfloat16"),
    "qwen3": ("Qwen3", dict(**LLAMA), "bfloat16"),
    "gemma3": ("Gemma3Text", dict(**GEMMA3, head_dim=256, query_pre_attn_scalar=256), "bfloat16"),
    # Another scale than the head size gives, a stretched global rope, and capped logits.
    "gemma3_scaled": ("Gemma3Text", dict(**GEMMA3, head_dim=16, query_pre_attn_scalar=24, final_logit_softcapping=9.0,
                                         rope_parameters={
                                             "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                             "sliding_attention": dict(rope_type="default", rope_theta=1e4)}),
                      "float32"),
    "gpt2": ("GPT2", dict(**GPT2), "float32"),
    "gpt2_inverse_layer": ("GPT2", dict(**GPT2, scale_attn_by_inverse_layer_idx=True, n_inner=40, layer_norm_epsilon=0.05,
                                        tie_word_embeddings=False, activation_function="gelu"), "float16"),
    "gpt_bigcode_mqa": ("GPTBigCode", dict(**GPT2), "bfloat16"),
    "gpt_bigcode_mha": ("GPTBigCode", dict(**GPT2, multi_query=False), "bfloat16"),
    "bloom": ("Bloom", dict(**BLOOM), "float16"),
    "bart": ("Bart", dict(**BART, scale_embedding=True), "float32"),
    "bart_untied": ("Bart", dict(**BART, activation_function="gelu_new", tie_word_embeddings=False), "float16"),
    "mbart": ("MBart", dict(**BART, scale_embedding=True, activation_function="relu"), "bfloat16"),
    "t5": ("T5", dict(**T5), "float32"),
    "t5_gated": ("T5", dict(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), "bfloat16"),
    "mt5": ("MT5", dict(**T5, feed_forward_proj="gated-silu"), "float16"),
    "mllama": ("MllamaText", dict(**MLLAMA, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)), "float32"),
    "mllama_text_only": ("MllamaText", dict(**{**MLLAMA, "cross_attention_layers": [1, 2]}), "bfloat16"),
    "bloom_post_norm": ("Bloom", dict(**BLOOM, apply_residual_connection_post_layernorm=True), "bfloat16"),
}


def randomise(model, is_gemma, deviation=0.2):
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(parameter.shape, generator=generator) * deviation
        is_norm_weight = parameter.dim() == 1 and name.endswith("weight")
        # Gemma stores a norm's weight minus one.
        parameter.data = values + 1 if is_norm_weight and not is_gemma else values


def write(name):
    family, arguments, storage = FIXTURES[name]
    folder = ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    config = getattr(tr, family + "Config")(**arguments)
    auto = tr.AutoModelForSeq2SeqLM if config.is_encoder_decoder else tr.AutoModelForCausalLM
    if family == "MllamaText":  # a part of a model for both, which no Auto class knows
        auto = tr.MllamaForCausalLM
        auto.from_config = auto._from_config
    model = auto.from_config(config, attn_implementation="eager")
    randomise(model, family.startswith("Gemma"))
    model.to(getattr(torch, storage)).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    write_expected(name, model)


def decode_over(model, source, ids, **arguments):
    return model(input_ids=source, decoder_input_ids=ids, **arguments)


def beam_search(model, source):
    """The best four sequences of several searches, each a row that starts with its settings' number."""
    rows, scores = [], []
    for settings in BEAM_SETTINGS:
        output = model.generate(source, attention_mask=torch.ones_like(source), num_beams=4, num_return_sequences=4,
                                do_sample=False, return_dict_in_generate=True, output_scores=True, **settings)
        for row in output.sequences.tolist():
            # Padding stands behind the end; the first token may be the same as the end.
            end = next((i + 1 for i, id in enumerate(row) if i > 0 and id == TOKENS["eos_token_id"]), len(row))
            rows.append(row[:end] + [-1] * (BEAM_LENGTH - end))
        scores += output.sequences_scores.tolist()
    return dict(beams=torch.tensor(rows, dtype=torch.int32), scores=torch.tensor(scores))


def write_expected(name, model):
    """Runs `model` and writes expected.safetensors into the fixture's folder."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    decoder = with_cache = model
    ids = torch.randint(model.config.vocab_size, (1, PROMPT_TOKENS + STEPS), generator=generator)
    expected = {}
    if model.config.is_encoder_decoder:
        source = torch.randint(model.config.vocab_size, (1, SOURCE_TOKENS), generator=generator)
        expected = dict(source=source[0].to(torch.int32), **beam_search(model, source))
        decoder = with_cache = functools.partial(decode_over, model, source)
    elif name == "mllama":
        states = torch.randn((1, SOURCE_TOKENS, model.config.hidden_size), generator=generator)
        expected = dict(states=states[0])
        decoder = functools.partial(model, cross_attention_states=states)  # which a cache would take for more
    with torch.no_grad():
        output = decoder(ids[:, :PROMPT_TOKENS], use_cache=True)
        prefill = output.logits[0]
        cache = next(value for key, value in output.items() if key in ("cache", "past_key_values"))
        decode = []
        for step in range(PROMPT_TOKENS, PROMPT_TOKENS + STEPS):
            decode.append(with_cache(ids[:, step:step + 1], past_key_values=cache, use_cache=True).logits[0, -1])
        whole = decoder(ids).logits[0]
    decode = torch.stack(decode)
    # Dynamic scaling depends on the length so far, so that there the whole sequence at once is another function.
    if "dynamic" not in name:
        gap = (torch.cat([prefill, decode]) - whole).abs().max() / whole.abs().max()
        assert gap < 1e-5, f"{name}: cached and whole logits differ by {gap}"
    folder = ROOT / name
    save_file(dict(ids=ids[0].to(torch.int32), prefill=prefill.contiguous(), decode=decode, **expected),
              folder / "expected.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {size} bytes, logits within {whole.abs().max():.2f}")


def write_images():
    """What mllama says of each token when its states are of images: two that follow each other, and a later one."""
    folder, rows, positions = ROOT / "mllama", SOURCE_TOKENS // 3, [3, 4, 9]
    model = tr.MllamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    expected = load_file(folder / "expected.safetensors")
    ids, states = expected["ids"][None].long(), expected["states"][None, :3 * rows]
    image = model.config.vocab_size
    spans = processing_mllama.get_cross_attention_token_mask(
        [image if i in positions else id for i, id in enumerate(ids[0].tolist())], image)
    dense = processing_mllama.convert_sparse_cross_attention_mask_to_dense(
        [spans], [[1] * 3], max_num_tiles=1, length=ids.shape[1])
    mask, sees = modeling_mllama._prepare_cross_attention_mask(torch.tensor(dense), rows, torch.float32)
    # A row that sees nothing passes the layers by; transformers shuts only the second of their gates.
    for layer in model.config.cross_attention_layers:
        model.model.layers[layer].cross_attn.register_forward_hook(
            lambda module, inputs, output: (output[0] * sees[:, 0],) + output[1:])
    with torch.no_grad():
        logits = model(ids, cross_attention_states=states, cross_attention_mask=mask,
                       full_text_row_masked_out_mask=sees).logits[0]
    save_file(dict(positions=torch.tensor(positions, dtype=torch.int32), rows=torch.tensor([rows] * 3, dtype=torch.int32),
                   logits=logits.contiguous()), folder / "images.safetensors")


if __name__ == "__main__":
    for fixture in sys.argv[1:] or FIXTURES:
        write(fixture)
        if fixture == "mllama":
            write_images()

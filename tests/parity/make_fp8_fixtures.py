"""Writes the parity fixtures whose matrices are 8-bit floats, in the forms that Hugging Face checkpoints have.

    python tests/parity/make_fp8_fixtures.py [NAME...]

Each folder holds config.json, model.safetensors and expected.safetensors (see make_fixtures.py). Logits are those of the
model whose matrices are element times scale, in f32, and whose linears round what they read to 8 bits as the configuration
says. Of the form with blocks it is checked that transformers, asked to dequantise, reads the same matrices; for that it wants
accelerate, too. Where compressed-tensors is installed, its own rounding of the forms that are its is compared with ours.
"""

import json
import shutil
import sys

import torch
import transformers as tr
from safetensors.torch import load_file, save_file

import make_fixtures as base

WIDE = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=1, head_dim=32)


def block_scales(values):
    rows, columns = values.shape
    padded = torch.zeros(-(-rows // 128) * 128, columns)
    padded[:rows] = values.abs()
    return padded.reshape(-1, 128, columns // 128, 128).amax(dim=(1, 3)) / 448


def spread(scales, shape):
    """A scale for each element."""
    if scales.dim() < 2 or scales.shape == (shape[0], 1):
        return scales.expand(shape)
    return scales.repeat_interleave(128, 0)[:shape[0]].repeat_interleave(128, 1)


def compressed(strategy, activations):
    return dict(quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed",
                global_compression_ratio=None, ignore=["lm_head"], kv_cache_scheme=None,
                config_groups=dict(group_0=dict(
                    targets=["Linear"], output_activations=None,
                    input_activations=dict(num_bits=8, type="float", symmetric=True, **activations),
                    weights=dict(num_bits=8, type="float", symmetric=True, dynamic=False, strategy=strategy,
                                 group_size=None, block_structure=None, actorder=None, observer="minmax",
                                 observer_kwargs={}))))


def rounded(x, form, given):
    """What a linear multiplies in place of x, by the scales of `form`: row, blocks, or the one that is given."""
    shape = x.shape
    groups = x.reshape(-1, 128 if form == "blocks" else shape[-1])
    scales = given if form == "given" else groups.abs().amax(dim=1, keepdim=True) / 448
    numbers = (groups / torch.where(scales == 0, 1, scales)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (numbers.to(torch.float32) * scales).reshape(shape)


def check_rounding(form, given):
    try:
        from compressed_tensors.quantization import QuantizationArgs
        from compressed_tensors.quantization.lifecycle.forward import fake_quantize
        from compressed_tensors.quantization.utils import calculate_qparams
    except ImportError:
        return
    if form == "blocks":
        return
    x = torch.randn(5, 256) * 3
    args = QuantizationArgs(num_bits=8, type="float", symmetric=True, dynamic=form == "row",
                            strategy="token" if form == "row" else "tensor")
    scales, zeros = given, None
    if form == "row":
        scales, zeros = calculate_qparams(x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True), args)
    assert torch.equal(fake_quantize(x, scales, zeros, args), rounded(x, form, given)), form


def round_inputs(model, form, scales):
    """Has all projections do it."""
    for name, module in model.named_modules():
        if not name.endswith("_proj"):
            continue
        given = scales.get(name)
        module.register_forward_pre_hook(lambda _, args, given=given: (rounded(args[0], form, given),))


def greatest_inputs(model):
    """A scale for each projection, by what it reads of some ids: nine tenths of what would saturate none."""
    scales, hooks = {}, []
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            hooks.append(module.register_forward_pre_hook(
                lambda _, args, name=name: scales.__setitem__(name, (0.9 / 448 * args[0].abs().max()).reshape(1))))
    with torch.no_grad():
        model(torch.arange(24).reshape(1, -1) * 7 % 96)
    for hook in hooks:
        hook.remove()
    return scales


# name: (config class, arguments, quantization_config, what scales are called, scales of a matrix, scales of activations)
FIXTURES = {
    "fp8_llama_blocks": ("Llama", {**base.LLAMA, **WIDE},
                         dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128],
                              modules_to_not_convert=["lm_head"]), "weight_scale_inv", block_scales, "blocks"),
    "fp8_qwen3_rows": ("Qwen3", {**base.LLAMA, **WIDE}, compressed("channel", dict(dynamic=True, strategy="token")),
                       "weight_scale",
                       lambda values: (values.abs().amax(dim=1, keepdim=True) / 448).to(torch.bfloat16), "row"),
    "fp8_mistral_tensors": ("Mistral", {**base.LLAMA, **WIDE, "sliding_window": 8},
                            compressed("tensor", dict(dynamic=False, strategy="tensor")), "weight_scale",
                            lambda values: (values.abs().amax() / 448).reshape(1),
                            "given"),
}


def write(name):
    family, arguments, quantization, scale_name, scales_of, form = FIXTURES[name]
    folder = base.ROOT / name
    shutil.rmtree(folder, ignore_errors=True)
    config = getattr(tr, family + "Config")(**arguments)
    model = tr.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    # At 0.2 of this one a number is so near the middle of two that f32 and double precision part.
    base.randomise(model, False, 0.21 if name == "fp8_qwen3_rows" else 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = tr.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    tensors = load_file(folder / "model.safetensors")
    matrices = {}
    for key in [key for key in tensors if key.endswith("_proj.weight")]:
        values = tensors[key].to(torch.float32)
        scales = scales_of(values)
        each = spread(scales.to(torch.float32), values.shape)
        tensors[key] = (values / each).to(torch.float8_e4m3fn)
        tensors[key.removesuffix("weight") + scale_name] = scales.contiguous()
        matrices[key] = tensors[key].to(torch.float32) * each
    model.load_state_dict({**{key: value.to(torch.float32) for key, value in model.state_dict().items()}, **matrices})
    inputs = greatest_inputs(model) if form == "given" else {}
    tensors.update({key + ".input_scale": value for key, value in inputs.items()})
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantization}, indent=2) + "\n")

    if quantization["quant_method"] == "fp8":
        read = tr.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, quantization_config=tr.FineGrainedFP8Config(dequantize=True))
        for key, value in matrices.items():
            assert torch.equal(read.state_dict()[key].to(torch.float32), value), f"{name}: {key} is read otherwise"
    for scale in inputs.values() or [None]:
        check_rounding(form, scale)
    round_inputs(model, form, inputs)
    base.write_expected(name, model)


if __name__ == "__main__":
    for fixture in sys.argv[1:] or FIXTURES:
        write(fixture)

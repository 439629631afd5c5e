#!/usr/bin/env python3
"""Makes a quantised checkpoint of a fixture with the format's own tools, and records what transformers computes with it.

    python3 tools/make_quantised_golden.py FIXTURE OUT --form FORM
    python3 tools/make_quantised_golden.py --vectors tests/data/quantised/vectors.safetensors

FIXTURE is a folder of kind `forward`: tests/fixtures/golden/wide, or what tools/make_golden_heads.py wrote. OUT becomes one of
the same kind for dgemma-golden: OUT/model has the quantised weights, split and named as published files are (experts one by
one), and OUT/trace.safetensors what transformers computes in float32 with the weights that the tool gives back for them.

FORM is a preset of compressed-tensors (FP8, FP8_DYNAMIC, FP8_BLOCK, NVFP4A16, MXFP4A16, INT8, W4A16, W4A16_ASYM), for four bits with
the group's size and the scales' type behind it (W4A16:32:float16); or modelopt-FP8, modelopt-NVFP4; or what AutoRound packs:
autoround-gptq (zeros stored less by one), autoround-gptqmodel, autoround-awq, with zeros of 8 when -sym is behind it.
Attention is quantised in forms of eight bits only, self-conditioning, router, embedding and tower in none, as in the published files.

--vectors: a small matrix in every form, "FORM.weight" and what is beside it, and its values, "want.FORM", for the unit tests.
There blocks are two rows by 64 columns.

Needs torch, transformers, safetensors and compressed-tensors, nvidia-modelopt or auto-round.
"""
import argparse
import json
import os
import re

import torch
from safetensors.torch import load_file, save_file
from transformers import DiffusionGemmaForBlockDiffusion
from transformers.cache_utils import DynamicCache


def split_experts(state):
    """The checkpoint with every expert's matrices as modules of their own."""
    out = {}
    for name, t in state.items():
        if name.endswith("experts.gate_up_proj"):
            for e, both in enumerate(t):
                for part, half in zip(("gate_proj", "up_proj"), both.chunk(2)):
                    out[name.replace("gate_up_proj", f"{e}.{part}.weight")] = half.contiguous()
        elif name.endswith("experts.down_proj"):
            for e, m in enumerate(t):
                out[name.replace("down_proj", f"{e}.down_proj.weight")] = m.contiguous()
        else:
            out[name] = t
    return out


def join_experts(split, names):
    """The reverse, for the names that the model has."""
    out = {}
    for name in names:
        base = name.rsplit(".", 1)[0]
        expert = lambda e, part: split[f"{base}.{e}.{part}.weight"]
        n = len({k for k in split if re.fullmatch(re.escape(base) + r"\.\d+\.down_proj\.weight", k)})
        if name.endswith("experts.gate_up_proj"):
            out[name] = torch.stack([torch.cat([expert(e, "gate_proj"), expert(e, "up_proj")]) for e in range(n)])
        elif name.endswith("experts.down_proj"):
            out[name] = torch.stack([expert(e, "down_proj") for e in range(n)])
        else:
            out[name] = split[name]
    return out


def is_quantised(name, attention):
    return bool(re.search(r"\.experts\.\d+\.|\.mlp\." + (r"|self_attn\.[qkvo]_proj" if attention else ""), name)) and \
        name.startswith("model.decoder.layers.") and name.endswith("_proj.weight")


class CompressedTensors:
    def __init__(self, preset, block=None):
        from compressed_tensors.compressors.base import BaseCompressor
        from compressed_tensors.compressors.format import infer_module_format
        from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
        preset, group, dtype = (preset.split(":") + [None, None])[:3]
        self.dtype = getattr(torch, dtype or "float32")
        self.scheme = preset_name_to_scheme(preset, ["Linear"])
        self.args = self.scheme.weights
        if group:
            self.args.group_size = int(group)
        if block and self.args.block_structure:
            self.args.block_structure = block
        self.format = infer_module_format(torch.nn.Linear, self.scheme)
        self.compressor = BaseCompressor.get_value_from_registry(self.format.value)
        self.attention = self.args.num_bits == 8

    def scales(self, w):
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        strategy, a = str(getattr(self.args.strategy, "value", self.args.strategy)), self.args
        gscale = generate_gparam(w.min(), w.max()) if strategy == "tensor_group" else None
        if strategy == "tensor":
            low, high = w.min(), w.max()
        elif strategy == "channel":
            low, high = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
        elif strategy == "block":
            r, c = a.block_structure
            whole = torch.zeros(-(-w.shape[0] // r) * r, -(-w.shape[1] // c) * c, dtype=w.dtype)
            whole[:w.shape[0], :w.shape[1]] = w
            tiles = whole.unflatten(0, (-1, r)).unflatten(2, (-1, c))
            low, high = tiles.amin((1, 3)), tiles.amax((1, 3))
        else:
            groups = w.unflatten(1, (-1, a.group_size))
            low, high = groups.amin(-1), groups.amax(-1)
        scale, zero = calculate_qparams(low, high, a, global_scale=gscale)
        return scale, zero, gscale

    def quantise(self, w):
        """What the file has of a matrix, by suffix."""
        w = w.to(self.dtype)
        scale, zero, gscale = self.scales(w)
        state = dict(weight=w, weight_scale=scale, weight_zero_point=zero)
        if gscale is not None:
            state["weight_global_scale"] = gscale
        out = self.compressor.compress(state, self.scheme)
        if self.args.symmetric:
            out.pop("weight_zero_point", None)
        return {k: v for k, v in out.items() if torch.is_tensor(v)}

    def values(self, parts):
        """The same back, in float32."""
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        if "weight_packed" in parts and parts["weight_packed"].dtype == torch.uint8:
            from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
            m, n = parts["weight_packed"].shape
            x = unpack_fp4_from_uint8(parts["weight_packed"], m, 2 * n, dtype=torch.float32)
            scale = self.compressor._decompress_scale(parts["weight_scale"], torch.float32)
            return dequantize(x_q=x, scale=scale, args=self.args, global_scale=parts.get("weight_global_scale"),
                              dtype=torch.float32)
        if "weight_packed" in parts:
            wide = dict(parts, weight_scale=parts["weight_scale"].float())
            return self.compressor.decompress(wide, self.scheme)["weight"].float()
        return dequantize(x_q=parts["weight"], scale=parts["weight_scale"].float(), args=self.args, dtype=torch.float32)

    def config(self, ignore):
        group = json.loads(self.scheme.model_dump_json())
        group["format"] = self.format.value
        return dict(quant_method="compressed-tensors", format=self.format.value, quantization_status="compressed",
                    config_groups={"group_0": group}, ignore=ignore, kv_cache_scheme=None)


class ModelOpt:
    def __init__(self, algorithm):
        self.algorithm = algorithm
        self.attention = algorithm == "FP8"

    def quantise(self, w):
        from modelopt.torch.export.quant_utils import to_quantized_weight
        from modelopt.torch.quantization.qtensor import NVFP4QTensor
        if self.algorithm == "FP8":
            scale = w.abs().amax().float() / 448
            return dict(weight=to_quantized_weight(w, scale, "fp8"), weight_scale=scale)
        packed, scale, scale_2 = NVFP4QTensor.quantize(w, 16)
        return dict(weight=packed._quantized_data, weight_scale=scale, weight_scale_2=scale_2)

    def values(self, parts):
        from modelopt.torch.quantization.qtensor import NVFP4QTensor
        if self.algorithm == "FP8":
            return parts["weight"].float() * parts["weight_scale"]
        packed = parts["weight"]
        whole = NVFP4QTensor((packed.shape[0], 2 * packed.shape[1]), torch.float32, packed)
        return whole.dequantize(scale=parts["weight_scale"], double_scale=parts["weight_scale_2"],
                                block_sizes={-1: 16}).float()

    def config(self, ignore):
        return dict(quant_method="modelopt", quant_algo=self.algorithm, ignore=ignore,
                    producer=dict(name="modelopt", version="0"), **(dict(group_size=16) if self.algorithm == "NVFP4" else {}))


class AutoRound:
    attention = False

    def __init__(self, form):
        self.symmetric = form.endswith("-sym")
        self.packing = form.split("-")[1]

    def quantise(self, w, group=64):
        groups = w.unflatten(1, (-1, group))
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        if self.symmetric:
            scale = (torch.maximum(high, -low) / 7.5).half().float()
            zero = torch.full_like(scale, 8)
        else:
            scale = ((high - low) / 15).half().float()
            zero = (-low / scale).round().clamp(1, 15)
        linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
        linear.weight.data = w
        if self.packing == "awq":
            from auto_round.export.export_to_awq.utils import WQLinear_GEMM
            packed = WQLinear_GEMM.from_linear(linear, 4, group, scales=scale.t().contiguous(), zeros=zero.t().contiguous(),
                                               device="cpu")
        else:
            if self.packing == "gptq":
                from auto_round_extension.torch.qlinear_torch_zp import QuantLinear
            else:
                from auto_round_extension.torch.qlinear_torch import QuantLinear
            packed = QuantLinear(4, group, w.shape[1], w.shape[0], False)
            packed.device = torch.device("cpu")
            packed.pack(linear, scale, zero, None, device="cpu")
        self.packed, self.group = packed, group
        return {k: getattr(packed, k).detach() for k in ("qweight", "qzeros", "scales")}

    def values(self, parts):
        """Of the matrix that was quantised last."""
        if self.packing == "awq":
            from auto_round.export.export_to_awq.utils import dequantize_gemm
            return dequantize_gemm(parts["qweight"], parts["qzeros"], parts["scales"].float(), 4, self.group).t().contiguous()
        self.packed.scales = self.packed.scales.float()
        return self.packed(torch.eye(self.packed.infeatures)).t().contiguous()

    def config(self, ignore):
        packing = {"gptq": "auto_round:auto_gptq", "gptqmodel": "auto_round:gptqmodel", "awq": "auto_round:auto_awq"}
        return dict(quant_method="auto-round", bits=4, group_size=64, sym=self.symmetric, data_type="int",
                    packing_format=packing[self.packing], extra_config={name: dict(bits=16) for name in ignore})


def recompute(model, t):
    """What the trace expects, from its inputs."""
    out = {k: t[k] for k in ("prompt", "canvas.0", "canvas.1", "canvas.2", "commit")}
    cache = DynamicCache(config=model.config.text_config)
    keep = lambda prefix: out.update({f"{prefix}.{kv}.{i}": getattr(l, which).clone() for i, l in enumerate(cache.layers)
                                      for kv, which in (("k", "keys"), ("v", "values"))})
    hidden = lambda o, prefix: out.update({f"{prefix}.hidden.{i}": h.clone() for i, h in enumerate(o.hidden_states)})
    with torch.no_grad():
        enc = model.model.encoder(input_ids=t["prompt"], past_key_values=cache, output_hidden_states=True)
        out["encoder.prompt.out"] = enc.last_hidden_state
        hidden(enc, "encoder.prompt")
        keep("cache.prompt")
        first = model(decoder_input_ids=t["canvas.0"], past_key_values=cache, output_hidden_states=True)
        out["logits.0"], given = first.logits, first.logits / 0.65
        hidden(first, "decoder.0")
        out["self_conditioning_logits.1"] = given
        second = model(decoder_input_ids=t["canvas.1"], past_key_values=cache, self_conditioning_logits=given,
                       output_hidden_states=True)
        out["logits.1"] = second.logits
        hidden(second, "decoder.1")
        out["encoder.commit.out"] = model.model.encoder(input_ids=t["commit"], past_key_values=cache).last_hidden_state
        keep("cache.commit")
        third = model(decoder_input_ids=t["canvas.2"], past_key_values=cache, self_conditioning_logits=second.logits / 0.5)
        out["logits.2"] = third.logits
    return {k: v.contiguous().clone() for k, v in out.items()}


FORMS = ["FP8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16", "modelopt-FP8", "modelopt-NVFP4",
         "INT8", "W4A16:32:float16", "W4A16:64:bfloat16", "W4A16_ASYM:64:float16", "autoround-gptq", "autoround-gptqmodel-sym",
         "autoround-awq"]


def tool_of(form, block=None):
    if form.startswith("autoround-"):
        return AutoRound(form)
    return ModelOpt(form.split("-")[1]) if form.startswith("modelopt-") else CompressedTensors(form, block)


def write_vectors(path):
    out = {}
    sizes = torch.tensor([1, 0.01, 3, 0.2, 0.05, 1, 0.5, 2] * 4)[:, None]
    rows = torch.randn(32, 192, generator=torch.Generator().manual_seed(17)) * sizes
    for form in FORMS:
        tool = tool_of(form, (2, 64))
        w = rows[:16 if "ASYM" in form else 5]
        if form.startswith("autoround-"):
            w = rows[:, :128].contiguous()
        parts = tool.quantise(w)
        out[f"want.{form}"] = tool.values(parts).contiguous()
        out.update({f"{form}.{suffix}": t.contiguous() for suffix, t in parts.items()})
    os.makedirs(os.path.dirname(path), exist_ok=True)
    save_file(out, path)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("fixture", nargs="?")
    ap.add_argument("out", nargs="?")
    ap.add_argument("--form", default="FP8_DYNAMIC")
    ap.add_argument("--vectors")
    args = ap.parse_args()
    if args.vectors:
        return write_vectors(args.vectors)
    tool = tool_of(args.form)
    source = os.path.join(args.fixture, "model")
    plain = load_file(os.path.join(source, "model.safetensors"))
    stored, values, ignore = {}, {}, ["lm_head"]
    for name, w in split_experts(plain).items():
        if not is_quantised(name, tool.attention):
            stored[name], values[name] = w, w.float()
            if w.ndim == 2:
                ignore.append(name.removesuffix(".weight"))
            continue
        parts = tool.quantise(w.float())
        values[name] = tool.values(parts)
        for suffix, t in parts.items():
            stored[name.removesuffix("weight") + suffix] = t.contiguous().clone()

    model = DiffusionGemmaForBlockDiffusion.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    missing, extra = model.load_state_dict(join_experts(values, plain), strict=False)
    assert not extra, extra
    model.tie_weights()
    trace = recompute(model, load_file(os.path.join(args.fixture, "trace.safetensors")))

    os.makedirs(os.path.join(args.out, "model"), exist_ok=True)
    save_file(stored, os.path.join(args.out, "model", "model.safetensors"), metadata={"format": "pt"})
    config = json.load(open(os.path.join(source, "config.json")))
    config["quantization_config"] = tool.config(ignore)
    json.dump(config, open(os.path.join(args.out, "model", "config.json"), "w"), indent=1)
    generation = os.path.join(source, "generation_config.json")
    if os.path.exists(generation):
        open(os.path.join(args.out, "model", "generation_config.json"), "w").write(open(generation).read())
    save_file(trace, os.path.join(args.out, "trace.safetensors"))
    about = json.load(open(os.path.join(args.fixture, "trace.json")))
    about.update(fixture=args.form, tensors={k: [str(v.dtype), list(v.shape)] for k, v in trace.items()})
    about.pop("bfloat16", None)
    json.dump(about, open(os.path.join(args.out, "trace.json"), "w"), indent=1)
    print(args.form, sum(t.numel() * t.element_size() for t in stored.values()), "bytes")


if __name__ == "__main__":
    main()

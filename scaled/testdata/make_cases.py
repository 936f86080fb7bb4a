"""Make cases.safetensors and expected.safetensors for the tests of scaled/.

cases.safetensors holds small weights in every form that the package decodes.
expected.safetensors holds, for each weight, its float32 values as numpy and torch
compute them here by whole-tensor formulas that share nothing with the Go code.
Run once with torch 2.x, numpy and safetensors:  python make_cases.py
"""
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
gen = torch.Generator().manual_seed(20)
cases, expected = {}, {}


def codes(dtype, rows, cols):
    """Random finite codes of an 8-bit float type."""
    raw = torch.randint(0, 256, (rows, cols), generator=gen, dtype=torch.uint8)
    values = raw.view(dtype)
    bad = ~torch.isfinite(values.float())
    raw[bad] = 0x12
    return raw.view(dtype)


def put(name, weight, value, **companions):
    cases[name + ".weight"] = weight.clone().contiguous()
    for key, t in companions.items():
        cases[name + "." + key] = t.clone().contiguous()
    expected[name + ".weight"] = value.float().clone().contiguous()


def blob(**fields):
    return torch.tensor(list(json.dumps(fields).encode()), dtype=torch.uint8)


def f32(*values):
    return torch.tensor(values, dtype=torch.float32)


E4, E5 = torch.float8_e4m3fn, torch.float8_e5m2
ALL = torch.arange(256, dtype=torch.uint8).reshape(8, 32)

# Every code of both kinds, one scale.
for kind, dtype in (("e4m3", E4), ("e5m2", E5)):
    w = ALL.view(dtype)
    s = torch.tensor(0.0123, dtype=torch.float32)
    put(f"all_{kind}", w, w.float() * s, weight_scale=s)

# Every shape a scale may have, both spellings, other scale dtypes.
for i, shape in enumerate([(), (1,), (1, 1), (6,), (6, 1), (1, 40), (6, 40), (40,)]):
    w = codes(E4, 6, 40)
    s = torch.rand(shape, generator=gen) * 0.5 + 0.001
    factor = s.reshape(6, 1) if shape == (6,) else s
    put(f"shape{i}", w, w.float() * factor, **{"weight_scale" if i % 2 else "scale_weight": s})
w, s = codes(E4, 6, 40), torch.rand(6, generator=gen).to(torch.bfloat16)
put("scale_bf16", w, w.float() * s.float().reshape(6, 1), weight_scale=s)
w, s = codes(E5, 6, 40), torch.rand(6, generator=gen).to(torch.float16)
put("scale_f16", w, w.float() * s.float().reshape(6, 1), weight_scale=s)
w, s = codes(E4, 5, 5), torch.rand(5, generator=gen)  # a square one: the rule is one a row
put("square", w, w.float() * s.reshape(5, 1), weight_scale=s)
w = torch.randint(0, 120, (4, 3, 2, 2), generator=gen, dtype=torch.uint8).view(E4)
s = torch.rand(4, generator=gen)
put("conv", w, w.float() * s.reshape(4, 1, 1, 1), weight_scale=s)
s = torch.rand((4, 3, 1, 1), generator=gen)
put("conv_broadcast", w, w.float() * s, weight_scale=s)
w, s = codes(E4, 1, 7).reshape(7), f32(0.25)
put("vector", w, w.float() * s, weight_scale=s, input_scale=f32(3.0))
w, s = codes(E4, 1, 1).reshape(()), torch.tensor(2.5)
put("scalar", w, w.float() * s, weight_scale=s)
w = torch.zeros((0, 4), dtype=torch.uint8).view(E4)
put("empty", w, w.float(), weight_scale=f32(1.5))

# Both spellings with the same number in them.
w, s = codes(E4, 3, 8), f32(0.5)
put("both_same", w, w.float() * s, weight_scale=s, scale_weight=s.clone())
w, s = codes(E4, 3, 8), f32(3.0)
put("hint", w, w.float() * s, weight_scale=s, scale_input=f32(7.0), input_scale=f32(7.0))
# A name that merely ends in weight.
w, s = codes(E4, 3, 8), f32(0.75)
cases["oddweight"], cases["oddweight_scale"] = w, s
expected["oddweight"] = w.float() * s


def tiled(s, h, w, rows, cols):
    return s.float().repeat_interleave(h, 0).repeat_interleave(w, 1)[:rows, :cols]


# Tiles, whole and partial.
for name, key, rows, cols in (("tile", "weight_scale_inv", 256, 16), ("tile_partial", "weight_scale_inv", 132, 140),
                              ("tile_bare", "scale", 20, 129)):
    w = codes(E4, rows, cols)
    s = torch.rand((-(-rows // 128), -(-cols // 128)), generator=gen)
    put(name, w, w.float() * tiled(s, 128, 128, rows, cols), **{key: s})
w, s = codes(E4, 64, 64), torch.rand((2, 2), generator=gen)
put("tile32", w, w.float() * tiled(s, 32, 32, 64, 64), weight_scale_inv=s)

# ComfyUI's per-layer JSON.
w, s = codes(E4, 6, 16), f32(0.1)
put("comfy_fp8", w, w.float() * s, weight_scale=s, comfy_quant=blob(format="float8_e4m3fn"))
put("comfy_fp8_u8", w.view(torch.uint8), w.float() * s, weight_scale=s, comfy_quant=blob(format="float8_e4m3fn"))
w = codes(E5, 6, 16)
put("comfy_e5", w, w.float() * s, weight_scale=s, comfy_quant=blob(format="float8_e5m2"))
w, s = torch.randint(-127, 128, (6, 16), generator=gen, dtype=torch.int8), torch.rand((6, 1), generator=gen)
put("comfy_int8", w, w.float() * s, weight_scale=s, comfy_quant=blob(format="int8_tensorwise"))

H4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]]) / 2


def hadamard(n):
    h = np.ones((1, 1))
    while h.shape[0] < n:
        h = np.kron(h, H4)
    return h


for name, group, fields in (("convrot", 256, {}), ("convrot16", 16, {"convrot_groupsize": 16})):
    cols = 512
    w = torch.randint(-127, 128, (3, cols), generator=gen, dtype=torch.int8)
    s = torch.rand((3, 1), generator=gen)
    rotated = (w.float() * s).numpy().astype(np.float64)  # ComfyUI rotates the rounded product back
    back = (rotated.reshape(-1, group) @ hadamard(group)).reshape(3, cols)
    put(name, w, torch.from_numpy(back.astype(np.float32)), weight_scale=s,
        comfy_quant=blob(format="int8_tensorwise", convrot=True, **fields))


def to_blocked(m):
    """The cuBLAS order of block scales, by whole-array reshapes."""
    rows, cols = m.shape
    r, c = -(-rows // 128), -(-cols // 4)
    pad = torch.zeros((r * 128, c * 4), dtype=torch.uint8)
    pad[:rows, :cols] = m
    blocks = pad.view(r, 128, c, 4).permute(0, 2, 1, 3)
    return blocks.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1, 32, 16).reshape(r * 128, c * 4)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
for name, rows, cols in (("mxfp8", 5, 64), ("mxfp8_big", 129, 160)):
    w = codes(E4, rows, cols)
    e = torch.randint(110, 140, (rows, cols // 32), generator=gen, dtype=torch.uint8)
    factor = torch.pow(2.0, e.float() - 127).repeat_interleave(32, 1)
    put(name, w, w.float() * factor, weight_scale=e)
    put(name + "_comfy", w, w.float() * factor, weight_scale=to_blocked(e), comfy_quant=blob(format="mxfp8"))
for name, rows, cols in (("nvfp4", 4, 32), ("nvfp4_big", 129, 80)):
    q = torch.randint(0, 16, (rows, cols), generator=gen, dtype=torch.uint8)
    s = torch.randint(1, 0x7F, (rows, cols // 16), generator=gen, dtype=torch.uint8)
    g = torch.tensor(0.0037)
    factor = (g * s.view(E4).float()).repeat_interleave(16, 1)
    value = E2M1[q.long()] * factor
    low, high = q[:, 0::2], q[:, 1::2]
    put(name, low | high << 4, value, weight_scale=s.view(E4), weight_scale_2=g)
    put(name + "_comfy", high | low << 4, value, weight_scale=to_blocked(s).view(E4), weight_scale_2=g,
        comfy_quant=blob(format="nvfp4"))

# Things that must survive or go.
cases["scaled_fp8"] = torch.zeros(0, dtype=torch.uint8).view(E4)
cases["stray.foo_scale"] = f32(9.0)
cases["norm.scale"] = f32(1.0, 2.0)
cases["plain.weight"] = codes(E4, 2, 8)
cases["ids"] = torch.tensor([1, 2, 3], dtype=torch.int64)
for kept in ("stray.foo_scale", "norm.scale"):
    expected[kept] = cases[kept].float()
expected["plain.weight"] = cases["plain.weight"].float()

cases = {k: v.clone() for k, v in cases.items()}
expected = {k: v.clone() for k, v in expected.items()}
save_file(cases, HERE / "cases.safetensors", metadata={"format": "pt", "made": "by make_cases.py"})
save_file(expected, HERE / "expected.safetensors")
# What fp8-to-bf16 writes: every float tensor of the expectation in bf16.
bf16 = {k: v.to(torch.bfloat16) for k, v in expected.items()}
bf16["ids"] = cases["ids"]
save_file(bf16, HERE / "bf16.safetensors", metadata={"format": "pt", "made": "by make_cases.py", "conversion": "fp8_weight_scale_to_bf16"})

#!/usr/bin/env python3
"""Makes the torch fixtures of this folder: python3 make.py (needs torch and numpy).

want.json holds, for each file, what torch itself reads: name -> [dtype, shape,
sha256 of the elements in C order, little-endian].
"""
import argparse, hashlib, json, os, pathlib, sys, types, zipfile
from collections import OrderedDict, defaultdict
import numpy
import torch

here = os.path.dirname(os.path.abspath(__file__))
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
         torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool", torch.complex64: "c64",
         torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64", torch.float8_e4m3fn: "f8_e4m3", torch.float8_e5m2: "f8_e5m2",
         torch.float8_e8m0fnu: "f8_e8m0", torch.float4_e2m1fn_x2: "f4"}
OLD = [d for d, n in NAMES.items() if n not in ("u16", "u32", "u64", "f8_e4m3", "f8_e5m2", "f8_e8m0", "f4")]


def fill(n, dtype):
    """n elements whose bytes count up."""
    raw = torch.arange(n * dtype.itemsize, dtype=torch.int64).mul(7).remainder(120).to(torch.uint8)
    if dtype == torch.bool:
        return raw.remainder(2).to(torch.bool)
    return raw.view(dtype)


def digest(t):
    raw = t.detach().contiguous().reshape(-1).view(torch.uint8) if t.numel() else torch.zeros(0, dtype=torch.uint8)
    shape = list(t.shape)
    if t.dtype == torch.float4_e2m1fn_x2:
        shape[-1] *= 2
    return [NAMES[t.dtype], shape, hashlib.sha256(bytes(raw.tolist())).hexdigest()]


def types_dict(dtypes):
    return OrderedDict((NAMES[d], fill(6, d).reshape(2, 3)) for d in dtypes)


def views():
    base = fill(60, torch.float32).reshape(3, 4, 5)
    big = fill(2 * 3 * 4 * 6, torch.float16)
    conv = big.reshape(2, 3, 4, 6).to(memory_format=torch.channels_last)
    d = OrderedDict()
    d["base"] = base
    d["shared"] = base
    d["slice"] = base[1:, 1:3, 2:]
    d["transposed"] = base.permute(2, 0, 1)
    d["row"] = base[2, 3]
    d["step"] = base[:, ::2, ::3]
    d["expanded"] = base[0, 0].expand(3, 2, 5)
    d["one"] = base[1, 1, 1]
    d["scalar"] = torch.tensor(2.5, dtype=torch.float64)
    d["empty"] = torch.zeros(0, 4)
    d["empty slice"] = base[3:]
    d["ones"] = base[:1].transpose(0, 2)
    d["channels_last"] = conv
    d["five"] = base.reshape(1, 3, 2, 2, 5).transpose(1, 3)
    d["parameter"] = torch.nn.Parameter(fill(4, torch.bfloat16))
    d["buffer"] = torch.nn.Buffer(fill(4, torch.float32))
    d._metadata = {"": {"version": 1}}
    return d


def save(name, obj, want, legacy=False):
    torch.save(obj, os.path.join(here, name), _use_new_zipfile_serialization=not legacy)
    wants[name] = {k: digest(v) for k, v in want.items()}


def rezip(src, dst, compress=(), **replace):
    """Copies an archive, compressing or replacing members."""
    with zipfile.ZipFile(os.path.join(here, src)) as a, zipfile.ZipFile(os.path.join(here, dst), "w") as b:
        for info in a.infolist():
            data = replace.get(os.path.basename(info.filename), a.read(info))
            method = zipfile.ZIP_DEFLATED if any(info.filename.endswith(c) for c in compress) else zipfile.ZIP_STORED
            b.writestr(zipfile.ZipInfo(info.filename), data, method)


wants = {}
torch.manual_seed(0)
save("types.pt", types_dict(NAMES), types_dict(NAMES))
save("types_legacy.pt", types_dict(OLD), types_dict(OLD), legacy=True)
v = views()
save("views.pt", v, v)
save("views_legacy.pt", v, v, legacy=True)

# What a training framework writes: objects of its own beside the state dict.
framework = types.ModuleType("framework.callbacks")
sys.modules["framework"] = types.ModuleType("framework")
sys.modules["framework.callbacks"] = framework
Checkpoint = type("Checkpoint", (), {"__module__": "framework.callbacks"})
Holder = type("Holder", (), {"__module__": "framework.callbacks"})
framework.Checkpoint, framework.Holder = Checkpoint, Holder
callback = Checkpoint()
callback.best = 0.5
holder = Holder()
holder.weight = torch.ones(2)
state = {"a": fill(4, torch.float32), "num_updates": 3}
save("trainer.ckpt", {"epoch": 3, "best": numpy.float64(0.5), "path": pathlib.PurePosixPath("x"), "args": argparse.Namespace(a=1),
                      "loops": defaultdict(dict, {1: {2: 3}}), "big": 10**30, "rng_state": fill(8, torch.uint8), "callbacks": {Checkpoint: callback}, "ema": holder, "state_dict": state,
                      "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(2)}}}]}, {"a": state["a"]})
save("upscaler.pth", {"params": {"a": torch.zeros(2)}, "params_ema": {"a": torch.ones(2)}}, {"a": torch.ones(2)})
save("nested.pt", {"unet": {"w": torch.ones(1)}, "vae": {"w": torch.zeros(1)}}, {"unet.w": torch.ones(1), "vae.w": torch.zeros(1)})
torch.save({"a": torch.ones(1), "hidden": holder}, os.path.join(here, "hidden.pt"))
torch.save({"a": torch.ones(1), "sparse": torch.eye(2).to_sparse()}, os.path.join(here, "sparse.pt"))
torch.save({"a": torch.ones(1), "z": torch.zeros(1, dtype=torch.complex128)}, os.path.join(here, "complex128.pt"))
torch.save({"a": torch.ones(1), "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}, os.path.join(here, "quantized.pt"))
torch.save({"a": torch.view_as_complex(torch.ones(2, 2)).conj()}, os.path.join(here, "conj.pt"))
torch.save(torch.nn.Linear(2, 2), os.path.join(here, "module.pt"))
torch.save({"epoch": 3}, os.path.join(here, "no_tensors.pt"))
torch.save([torch.ones(1)], os.path.join(here, "list.pt"))
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), os.path.join(here, "script.pt"))
rezip("upscaler.pth", "big_endian.pt", byteorder=b"big")
rezip("upscaler.pth", "deflated_pickle.pt", compress=["data.pkl"])
wants["deflated_pickle.pt"] = wants["upscaler.pth"]
rezip("upscaler.pth", "deflated_storage.pt", compress=["data/0", "data/1"])
with open(os.path.join(here, "want.json"), "w") as f:
    json.dump(wants, f, indent=1, sort_keys=True)
    f.write("\n")

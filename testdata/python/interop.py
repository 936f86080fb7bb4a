#!/usr/bin/env python3
"""Reads and writes model files with the packages that other programs use, for cmd/sdtool's interop tests.

usage: interop.py make DIR                 write all.safetensors, all.gguf and bf16.safetensors
       interop.py compare A B [TOLERANCE]  every tensor of A is in B with the same shape and, as numbers, equal values
       interop.py comfy FILE.gguf [ARCH]   load a file in the order in which ComfyUI-GGUF does, and print what it gets

Needs numpy, safetensors and gguf (.ci/requirements.txt).
"""
import json, os, sys
import numpy as np
import gguf
import safetensors
from gguf import GGMLQuantizationType as Q

NUMPY = {"BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "U16": np.uint16, "F16": np.float16, "I32": np.int32,
         "U32": np.uint32, "F32": np.float32, "F64": np.float64, "I64": np.int64, "U64": np.uint64}
LONG = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "I32": "int32", "U32": "uint32",
        "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def f8(codes, exponent_bits, bias, infinities):
    """Decodes 8-bit floats by their definition."""
    mantissa_bits = 7 - exponent_bits
    out = []
    for c in codes:
        c = int(c)
        sign, e, m = -1.0 if c & 0x80 else 1.0, c >> mantissa_bits & (1 << exponent_bits) - 1, c & (1 << mantissa_bits) - 1
        top = e == (1 << exponent_bits) - 1
        if infinities and top:
            v = float("nan") if m else float("inf")
        elif not infinities and top and m == (1 << mantissa_bits) - 1:
            v = float("nan")
        elif e == 0:
            v = m * 2.0 ** (1 - bias - mantissa_bits)
        else:
            v = (1 + m / 2**mantissa_bits) * 2.0 ** (e - bias)
        out.append(sign * v)
    return np.array(out)


def numbers(dtype, data, shape):
    """Returns the values of stored bytes as float64, or as themselves if they are integers."""
    if dtype == "BF16":
        v = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif dtype == "F8_E4M3":
        v = f8(data, 4, 7, False)
    elif dtype == "F8_E5M2":
        v = f8(data, 5, 15, True)
    else:
        v = np.frombuffer(data, NUMPY[dtype])
    return v.reshape(shape)


def read(path):
    """Returns {name: array} of a file, by the packages' own readers."""
    if path.endswith(".gguf"):
        out = {}
        for t in gguf.GGUFReader(path).tensors:
            shape = [int(n) for n in reversed(t.shape)]
            data = t.data
            if t.tensor_type not in (Q.F32, Q.F16, Q.F64, Q.I8, Q.I16, Q.I32, Q.I64):
                data = gguf.quants.dequantize(data, t.tensor_type)
            out[t.name] = np.array(data).reshape(shape)
        return out
    with open(path, "rb") as f:
        raw = f.read()
    return {name: numbers(t["dtype"], bytes(t["data"]), t["shape"]) for name, t in safetensors.deserialize(raw)}


def values(dtype, n, rng):
    if dtype == "BOOL":
        return rng.integers(0, 2, n).astype(bool)
    if dtype in ("BF16", "F8_E4M3", "F8_E5M2"):
        width = 2 if dtype == "BF16" else 1
        data = rng.integers(0, 256, n * width).astype(np.uint8).tobytes()
        v = numbers(dtype, data, [n])
        finite = np.isfinite(v)
        codes = np.frombuffer(data, np.uint16 if width == 2 else np.uint8).copy()
        codes[~finite] = 1
        return codes
    kind = NUMPY[dtype]
    if np.issubdtype(kind, np.integer):
        info = np.iinfo(kind)
        return rng.integers(info.min, min(info.max, 2**63 - 1), n, dtype=np.int64 if kind != np.uint64 else np.uint64).astype(kind)
    return rng.standard_normal(n).astype(np.float32).astype(kind)  # F64 becomes F32, and must not lose by it


def bf16(n, rng):
    return (rng.standard_normal(n).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def make(folder):
    rng = np.random.default_rng(5)
    tensors = {}
    for dtype in LONG:
        for shape in ([3, 64], [7], [2, 3, 4, 5], []):
            n = int(np.prod(shape))
            v = values(dtype, n, rng)
            tensors[f"{dtype.lower()}.{len(shape)}d"] = {"dtype": LONG[dtype], "shape": shape, "data": v.tobytes()}
    write(os.path.join(folder, "all.safetensors"), tensors, {"format": "pt", "modelspec.title": "interop"})
    write(os.path.join(folder, "bf16.safetensors"), {
        "blocks.0.attn.weight": {"dtype": "bfloat16", "shape": [8, 512], "data": bf16(4096, rng)},
        "blocks.0.mlp.weight": {"dtype": "float32", "shape": [16, 256], "data": values("F32", 16 * 256, rng).tobytes()},
        "blocks.0.norm.weight": {"dtype": "float16", "shape": [512], "data": values("F16", 512, rng).tobytes()},
        "patch.weight": {"dtype": "float16", "shape": [8, 16, 1, 2, 2], "data": values("F16", 512, rng).tobytes()},
        "pos": {"dtype": "float32", "shape": [1, 6, 32], "data": values("F32", 192, rng).tobytes()},
        "log_scale": {"dtype": "float32", "shape": [], "data": np.float32(2.5).tobytes()},
    }, None)
    w = gguf.GGUFWriter(os.path.join(folder, "all.gguf"), "flux")
    w.add_name("interop")
    w.add_uint32("test.u32", 7)
    w.add_float32("test.f32", 0.5)
    w.add_bool("test.bool", True)
    w.add_array("test.ints", [1, 2, 3])
    w.add_array("test.strings", ["a", "b"])
    for kind in (np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64):
        w.add_tensor(f"plain.{np.dtype(kind).name}", (rng.standard_normal((3, 64)) * 50).astype(np.float32).astype(kind))
    rows = rng.standard_normal((4, 512)).astype(np.float32)
    for kind in (Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1):
        w.add_tensor(f"quant.{kind.name.lower()}", gguf.quants.quantize(rows, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(path, tensors, metadata):
    kept = {name: np.frombuffer(t["data"], np.uint8) for name, t in tensors.items()}  # the specs hold bare addresses
    specs = {name: safetensors.TensorSpec(dtype=t["dtype"], shape=t["shape"], data_ptr=kept[name].ctypes.data, data_len=len(t["data"]))
             for name, t in tensors.items()}
    with open(path, "wb") as f:
        f.write(safetensors.serialize(specs, metadata))


def compare(a, b, tolerance):
    x, y = read(a), read(b)
    bad = []
    for name, v in x.items():
        if name not in y:
            bad.append(f"{name}: not in {b}")
            continue
        w = y[name]
        if v.shape != w.shape and not (b.endswith(".gguf") and v.size == w.size):
            bad.append(f"{name}: shape {v.shape} became {w.shape}")
        v, w = v.reshape(-1), w.reshape(-1)
        if np.issubdtype(v.dtype, np.floating) or np.issubdtype(w.dtype, np.floating):
            v, w = v.astype(np.float64), w.astype(np.float64)
            same = np.abs(v - w) <= tolerance * np.maximum(np.abs(v), np.max(np.abs(v), initial=0) * (tolerance > 0))
            same |= v == w
        else:
            same = v.astype(object) == w.astype(object)
        if not np.all(same):
            i = int(np.argmin(same))
            bad.append(f"{name}: element {i} was {v[i]!r}, is {w[i]!r}")
    print(f"{len(x)} tensors compared")
    for line in bad:
        print(line)
    return 1 if bad else 0


# What ComfyUI-GGUF's loader accepts as an image model.
ARCHITECTURES = {"flux", "sd1", "sdxl", "sd3", "aura", "hidream", "cosmos", "ltxv", "hyvid", "wan", "lumina2", "qwen_image"}


def comfy(path, want):
    """Loads a file as that loader does: prefix, architecture, recorded shapes, then dequantizing."""
    reader = gguf.GGUFReader(path)
    prefix = "model.diffusion_model."
    has_prefix = any(t.name.startswith(prefix) for t in reader.tensors)
    names = {}
    for t in reader.tensors:
        name = t.name
        if has_prefix:
            if not name.startswith(prefix):
                continue
            name = name[len(prefix):]
        names[name] = t
    field = reader.get_field("general.architecture")
    arch = None
    if field is not None:
        if field.types != [gguf.GGUFValueType.STRING]:
            raise TypeError(f"general.architecture has types {field.types}")
        arch = str(field.parts[field.data[-1]], "utf-8")
        if arch not in ARCHITECTURES:
            raise ValueError(f"unexpected architecture {arch!r}")
    if want and arch != want:
        raise ValueError(f"architecture is {arch!r}, want {want!r}")
    out = {}
    for name, t in names.items():
        shape = [int(n) for n in reversed(t.shape)]
        key = f"comfy.gguf.orig_shape.{t.name}"
        field = reader.get_field(key)
        if field is not None:
            if len(field.types) != 2 or field.types[0] != gguf.GGUFValueType.ARRAY or field.types[1] != gguf.GGUFValueType.INT32:
                raise TypeError(f"{key} has types {field.types}")
            shape = [int(field.parts[i][0]) for i in field.data]
        data = t.data
        if t.tensor_type not in (Q.F32, Q.F16, Q.F64, Q.I8, Q.I16, Q.I32, Q.I64):
            data = gguf.quants.dequantize(data, t.tensor_type)
        out[name] = {"shape": shape, "type": t.tensor_type.name, "sum": float(np.array(data, np.float64).reshape(shape).sum())}
    json.dump({"arch": arch, "tensors": out}, sys.stdout, indent=1)
    return 0


def main(args):
    if len(args) == 2 and args[0] == "make":
        return make(args[1])
    if len(args) in (3, 4) and args[0] == "compare":
        return compare(args[1], args[2], float(args[3]) if len(args) == 4 else 0.0)
    if len(args) in (2, 3) and args[0] == "comfy":
        return comfy(args[1], args[2] if len(args) == 3 else None)
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

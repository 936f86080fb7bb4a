"""Write cases.json: normal numbers drawn by torch on a CPU, and by Philox 4x32-10 with
Box-Muller as torch draws on CUDA, written here in numpy from the paper (Salmon et al.,
SC11) and torch's normal_ kernel: one counter lane an element, the first of the pair.

Run once with torch 2.x and numpy:  python make_cases.py
"""
import json
import pathlib

import numpy as np
import torch

MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def cuda(seed, draw, n):
    out = []
    for i in range(n):
        g = philox((draw, 0, i, 0), (seed & MASK, seed >> 32))
        u = np.float64(np.float32(g[0])) * 2.0**-32 + 2.0**-33
        v = np.float64(np.float32(g[1])) * (2.0**-32 * 2 * np.pi) + 2.0**-33 * 2 * np.pi
        out.append(float(np.float32(np.sqrt(-2 * np.log(u)) * np.sin(v))))
    return out


cases = []
for seed in (0, 42, 123456789, 2**32 - 1):
    torch.manual_seed(seed)
    cases.append({"kind": "cpu", "seed": seed, "draws": [torch.randn(n).tolist() for n in (16, 64, 100, 5, 7, 4, 32)]})
for seed in (0, 42, 2**40 + 7):
    cases.append({"kind": "cuda", "seed": seed, "draws": [cuda(seed, d, n) for d, n in enumerate((4, 16, 33))]})
pathlib.Path(__file__).with_name("cases.json").write_text(json.dumps(cases))

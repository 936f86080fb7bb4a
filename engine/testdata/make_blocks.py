"""Compute single blocks of networks with torch's functions alone, from the papers.

usage: make_blocks.py OUT.json.gz       (needs torch and numpy)

Weights and inputs are functions of their names (synthetic.py); kernels of
convolutions and of 1x1 projections are rounded to f16, matrices are f32.
"""
import gzip, json, sys
import torch, torch.nn.functional as F
from synthetic import flat, uniform, values

out = {}


class Block:
    """Weights that are made as they are asked for, and kept by name and shape."""

    def __init__(self, name):
        self.shapes, self.inputs = {}, {}
        out[name] = {"tensors": self.shapes, "inputs": self.inputs}
        self.result = lambda x: out[name].update(output=flat(x), shape=list(x.shape))

    def w(self, name, *shape):
        self.shapes[name] = list(shape)
        return values(name, shape, half=len(shape) == 4)

    def x(self, name, *shape):
        self.inputs[name] = list(shape)
        n = 1
        for d in shape: n *= d
        return torch.from_numpy(uniform(name, n).reshape(shape))

    def linear(self, p, x, n, bias=True):
        return F.linear(x, self.w(p + ".weight", n, x.shape[-1]), self.w(p + ".bias", n) if bias else None)

    def conv(self, p, x, n, k):
        return F.conv2d(x, self.w(p + ".weight", n, x.shape[1], k, k), self.w(p + ".bias", n), padding=k // 2)

    def group(self, p, x):
        return F.group_norm(x, 32, self.w(p + ".weight", x.shape[1]), self.w(p + ".bias", x.shape[1]), 1e-6)

    def layer(self, p, x):
        return F.layer_norm(x, x.shape[-1:], self.w(p + ".weight", x.shape[-1]), self.w(p + ".bias", x.shape[-1]), 1e-5)


def attention(q, k, v, heads, mask=None):
    n, t, c = q.shape
    q, k, v = (y.reshape(n, -1, heads, c // heads).transpose(1, 2) for y in (q, k, v))
    s = q @ k.transpose(-1, -2) / (c // heads) ** 0.5
    if mask is not None: s = s + mask
    return (s.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)


def unet_residual():
    b, p = Block("unet residual"), "model.diffusion_model.b."
    x, emb = b.x("image", 1, 64, 4, 6), b.x("embedding", 1, 96)
    h = b.conv(p + "in_layers.2", F.silu(b.group(p + "in_layers.0", x)), 96, 3)
    h = h + b.linear(p + "emb_layers.1", F.silu(emb), 96)[:, :, None, None]
    h = b.conv(p + "out_layers.3", F.silu(b.group(p + "out_layers.0", h)), 96, 3)
    b.result(h + b.conv(p + "skip_connection", x, 96, 1))


def unet_transformer():
    b, p = Block("unet transformer"), "model.diffusion_model.t."
    x, text = b.x("image", 1, 128, 4, 6), b.x("text", 1, 7, 48)
    y = b.group(p + "norm", x).flatten(2).transpose(1, 2)
    y = b.linear(p + "proj_in", y, 128)
    q = p + "transformer_blocks.0."
    for name, norm in ("attn1", "norm1"), ("attn2", "norm2"):
        z = b.layer(q + norm, y)
        c = z if name == "attn1" else text
        k = q + name + "."
        z = attention(b.linear(k + "to_q", z, 128, False), b.linear(k + "to_k", c, 128, False), b.linear(k + "to_v", c, 128, False), 2)
        y = y + b.linear(k + "to_out.0", z, 128)
    z = b.linear(q + "ff.net.0.proj", b.layer(q + "norm3", y), 256)
    y = y + b.linear(q + "ff.net.2", z[..., :128] * F.gelu(z[..., 128:], approximate="tanh"), 128)
    y = b.linear(p + "proj_out", y, 128).transpose(1, 2).reshape(1, 128, 4, 6)
    b.result(x + y)


def clip_layer(name, act):
    b, p = Block(name), "clip."
    x = b.x("hidden", 1, 9, 128)
    mask = torch.full((9, 9), float("-inf")).triu(1)
    y = b.layer(p + "layer_norm1", x)
    a = p + "self_attn."
    y = attention(b.linear(a + "q_proj", y, 128), b.linear(a + "k_proj", y, 128), b.linear(a + "v_proj", y, 128), 2, mask)
    x = x + b.linear(a + "out_proj", y, 128)
    y = act(b.linear(p + "mlp.fc1", b.layer(p + "layer_norm2", x), 256))
    b.result(x + b.linear(p + "mlp.fc2", y, 128))


def vae_residual():
    b, p = Block("vae residual"), "first_stage_model.r."
    x = b.x("image", 1, 64, 4, 6)
    h = b.conv(p + "conv1", F.silu(b.group(p + "norm1", x)), 32, 3)
    h = b.conv(p + "conv2", F.silu(b.group(p + "norm2", h)), 32, 3)
    b.result(h + b.conv(p + "nin_shortcut", x, 32, 1))


def vae_attention():
    b, p = Block("vae attention"), "first_stage_model.a."
    x = b.x("image", 1, 64, 4, 6)
    y = b.group(p + "norm", x)
    q, k, v = (b.conv(p + n, y, 64, 1).flatten(2).transpose(1, 2) for n in "qkv")
    y = attention(q, k, v, 1).transpose(1, 2).reshape(1, 64, 4, 6)
    b.result(x + b.conv(p + "proj_out", y, 64, 1))


unet_residual()
unet_transformer()
clip_layer("clip layer, quick gelu", lambda x: x * torch.sigmoid(1.702 * x))
clip_layer("clip layer, gelu", lambda x: F.gelu(x, approximate="tanh"))
vae_residual()
vae_attention()
open(sys.argv[1], "wb").write(gzip.compress(json.dumps(out, separators=(",", ":")).encode(), mtime=0))

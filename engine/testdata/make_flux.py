"""Run reduced FLUX.1 and Chroma transformers with diffusers and keep what it computes.

usage: make_flux.py OUT.json.gz       (needs torch and diffusers)

Two blocks of either kind, real head width and rotary split. Weights are f32 and
functions of their names (synthetic.py). Kept: the output of one run and of each
block, what a loop of four Euler steps gives, and the mean square of every column
that a linear layer is fed in the first run.
"""
import gzip, json, sys
import torch
from diffusers import ChromaTransformer2DModel, FluxTransformer2DModel
from synthetic import fill, flat, random, watch

ROWS, COLS, TOKENS, CONTEXT, POOLED = 3, 4, 7, 96, 64


def pack(x):  # [1, c, h, w] to patches [1, n, c·2·2]
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(n, h * w // 4, 4 * c)


def unpack(x, h, w):
    n, t, c = x.shape
    return x.view(n, h // 2, w // 2, c // 4, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(n, c // 4, h, w)


def run(guidance):
    tensors = {}
    net = fill(FluxTransformer2DModel(num_layers=2, num_single_layers=2, attention_head_dim=128, num_attention_heads=2,
        joint_attention_dim=CONTEXT, pooled_projection_dim=POOLED, guidance_embeds=guidance), "transformer.", tensors)
    latent = random("latent", 1, 16, 2 * ROWS, 2 * COLS)
    text, pooled = random("text", 1, TOKENS, CONTEXT), random("pooled", 1, POOLED)
    image_ids = torch.zeros(ROWS, COLS, 3)
    image_ids[..., 1] += torch.arange(ROWS)[:, None]
    image_ids[..., 2] += torch.arange(COLS)[None, :]
    image_ids = image_ids.reshape(-1, 3)
    call = lambda x, t: unpack(net(hidden_states=pack(x), timestep=torch.tensor([t]), guidance=torch.tensor([3.5]) if guidance else None,
        pooled_projections=pooled, encoder_hidden_states=text, txt_ids=torch.zeros(TOKENS, 3), img_ids=image_ids, return_dict=False)[0], 2 * ROWS, 2 * COLS)
    columns, blocks, hooks = watch(net, lambda name, out: (out[1], out[0]))  # image, then text
    out = {"tensors": tensors, "output": flat(call(latent, 0.7)), "blocks": dict(blocks), "columns": dict(columns)}
    for h in hooks: h.remove()
    sigmas, x = [1.0, 0.8, 0.55, 0.25, 0.0], latent
    for a, b in zip(sigmas, sigmas[1:]): x = x + (b - a) * call(x, a)
    out["sampled"], out["sigmas"] = flat(x), sigmas
    return out


def chroma():
    tensors = {}
    net = fill(ChromaTransformer2DModel(num_layers=2, num_single_layers=2, attention_head_dim=128, num_attention_heads=1,
        joint_attention_dim=CONTEXT, approximator_hidden_dim=96, approximator_layers=2), "transformer.", tensors)
    latent, text = random("latent", 1, 16, 2 * ROWS, 2 * COLS), random("text", 1, TOKENS, CONTEXT)
    ids = torch.zeros(ROWS, COLS, 3)
    ids[..., 1] += torch.arange(ROWS)[:, None]
    ids[..., 2] += torch.arange(COLS)[None, :]
    def call(n):  # with the first n tokens
        return unpack(net(hidden_states=pack(latent), timestep=torch.tensor([0.7]), encoder_hidden_states=text[:, :n], txt_ids=torch.zeros(n, 3),
            img_ids=ids.reshape(-1, 3), return_dict=False)[0], 2 * ROWS, 2 * COLS)
    columns, blocks, hooks = watch(net, lambda name, out: (out[1], out[0]) if isinstance(out, tuple) else (out[:, TOKENS:], out[:, :TOKENS]))
    out = {"tensors": tensors, "output": flat(call(TOKENS)), "columns": dict(columns), "blocks": dict(blocks)}
    for h in hooks: h.remove()
    out["sampled"] = flat(call(4))  # what a mask of all but four is the same as
    return out


with torch.no_grad():
    text = json.dumps({"dev": run(True), "schnell": run(False), "chroma": chroma()}, separators=(",", ":"))
open(sys.argv[1], "wb").write(gzip.compress(text.encode(), mtime=0))

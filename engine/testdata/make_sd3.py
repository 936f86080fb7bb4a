"""Run reduced SD3 transformers with diffusers and keep what they compute.

usage: make_sd3.py OUT.json.gz       (needs torch and diffusers)

Three blocks, real head width: as SD3 (no norm of queries and keys), as 3.5 large
(with it) and as 3.5 medium (a second attention in the first two blocks too). Weights
are f32, the patch embedding's kernel f16, and functions of their names (synthetic.py).
Kept: the output of one run and of each block, what a loop of four Euler steps with
guidance gives, and the mean square of every column that a linear layer is fed in the
first run.
"""
import gzip, json, sys
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel
from synthetic import fill, flat, random, values, watch

H, W, TOKENS, CONTEXT, POOLED, GUIDANCE = 6, 8, 7, 96, 64, 4.5


def run(**kw):
    tensors = {}
    net = fill(SD3Transformer2DModel(sample_size=16, num_layers=3, attention_head_dim=64, num_attention_heads=2, joint_attention_dim=CONTEXT,
        caption_projection_dim=128, pooled_projection_dim=POOLED, pos_embed_max_size=10, **kw), "transformer.", tensors)
    kernel = "transformer.pos_embed.proj.weight"
    net.pos_embed.proj.weight.data = values(kernel, tuple(tensors[kernel]))
    latent = random("latent", 1, 16, H, W)
    text, pooled = random("text", 1, TOKENS, CONTEXT), random("pooled", 1, POOLED)
    other, empty = random("negative text", 1, TOKENS, CONTEXT), random("negative pooled", 1, POOLED)
    call = lambda x, t, c=text, p=pooled: net(hidden_states=x, timestep=torch.tensor([t]), encoder_hidden_states=c, pooled_projections=p, return_dict=False)[0]
    columns, blocks, hooks = watch(net, lambda name, out: (out[1], out[0]))  # image, then text
    out = {"tensors": tensors, "output": flat(call(latent, 700.0)), "blocks": dict(blocks), "columns": dict(columns)}
    for h in hooks: h.remove()
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(4)
    x = latent
    for t in scheduler.timesteps:
        guided = call(x, float(t), other, empty)
        guided = guided + GUIDANCE * (call(x, float(t)) - guided)
        x = scheduler.step(guided, t, x, return_dict=False)[0]
    out["sampled"], out["sigmas"] = flat(x), flat(scheduler.sigmas)
    return out


with torch.no_grad():
    text = json.dumps({"sd3": run(), "large": run(qk_norm="rms_norm"), "medium": run(qk_norm="rms_norm", dual_attention_layers=(0, 1))}, separators=(",", ":"))
open(sys.argv[1], "wb").write(gzip.compress(text.encode(), mtime=0))

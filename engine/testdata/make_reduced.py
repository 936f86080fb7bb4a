"""Run reduced models like SD2, SDXL and its refiner with diffusers and keep what they compute.

usage: make_reduced.py OUT.json.gz       (needs torch, diffusers and transformers)

Weights are not kept: every value is a function of its tensor's name and index,
as in testdata/synth, rounded to f16 where there is more than one axis. Layer
norms of the U-Net have stable-diffusion.cpp's epsilon and the GELU of its
feed-forward layers is the tanh approximation, as ggml's is.
"""
import gzip, json, sys
import numpy as np, torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection
from synthetic import flat, uniform, values

exact_gelu = F.gelu
F.gelu = lambda x, approximate="none": exact_gelu(x, approximate="tanh")

def fill(module, prefix, tensors):
    state = module.state_dict()
    for key in state:
        if key.endswith("position_ids"): continue
        name = prefix + key
        if prefix.startswith("te") and not key.startswith(("text_model.", "text_projection")): name = prefix + "text_model." + key
        state[key] = values(name, tuple(state[key].shape))
        tensors[name] = list(state[key].shape)
    module.load_state_dict(state)
    return module.eval()

def tower(cls, width, layers, proj):
    return cls(CLIPTextConfig(vocab_size=1000, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=width // 64, max_position_embeddings=77, projection_dim=proj, hidden_act="quick_gelu",
        bos_token_id=998, eos_token_id=999, pad_token_id=0))

def unet(channels, context, heads, **kw):
    return UNet2DConditionModel(block_out_channels=channels, cross_attention_dim=context, norm_eps=1e-6, attention_head_dim=heads,
        use_linear_projection=True, **kw)

IDS = [998] + [(7 * i) % 990 + 1 for i in range(20)] + [999] + [0] * 55
LATENT = torch.from_numpy(uniform("latent", 256).reshape(1, 4, 8, 8) * np.float32(2))

# What the vector says after the pooled text: sizes and crop, of the refiner sizes, crop and an aesthetic score.
SIZES = {"sdxl": [96., 64., 0., 0., 96., 64.], "refiner": [96., 64., 0., 0., 6.]}

DOWN, DOWN_ATT, UP, UP_ATT = "DownBlock2D", "CrossAttnDownBlock2D", "UpBlock2D", "CrossAttnUpBlock2D"
NETS = {
    "sd2": dict(channels=(64, 64, 128, 128), heads=(1, 1, 2, 2)),
    "sdxl": dict(channels=(64, 128, 128), heads=(1, 2, 2), transformer_layers_per_block=(1, 1, 2),
        down_block_types=(DOWN, DOWN_ATT, DOWN_ATT), up_block_types=(UP_ATT, UP_ATT, UP)),
    "refiner": dict(channels=(64, 64, 128, 128), heads=(1, 1, 2, 2), transformer_layers_per_block=2,
        down_block_types=(DOWN, DOWN_ATT, DOWN_ATT, DOWN), up_block_types=(UP, UP_ATT, UP_ATT, UP)),
}

def run(family):
    tensors = {}
    out = {"tensors": tensors, "ids": IDS}
    ids = torch.tensor([IDS])
    vae = fill(AutoencoderKL(block_out_channels=(32, 32, 64, 64), layers_per_block=2, latent_channels=4, norm_num_groups=32,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4), "vae.", tensors)
    states, sized, kw = [], {}, {}
    if family != "refiner":
        first = fill(tower(CLIPTextModel, 64, 3, 64), "te.", tensors)
        states.append(first(ids, output_hidden_states=True).hidden_states[-2])
    if family == "sd2":
        states = [(first.text_model if hasattr(first, "text_model") else first).final_layer_norm(states[0])]
    else:
        second = fill(tower(CLIPTextModelWithProjection, 128, 3, 64), "te2.", tensors)
        g = second(ids, output_hidden_states=True)
        states.append(g.hidden_states[-2])
        out["pooled"] = flat(g.text_embeds)
        numbers = SIZES[family]
        sized = dict(addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=64 + len(numbers) * 256)
        kw["added_cond_kwargs"] = {"text_embeds": g.text_embeds, "time_ids": torch.tensor([numbers])}
    text = torch.cat(states, -1)
    net = unet(context=text.shape[-1], **NETS[family], **sized)
    fill(net, "unet.", tensors)
    out["text"] = flat(text[0, ::10])
    out["noise"] = flat(net(LATENT, torch.tensor([371.5]), text, **kw).sample)
    image = vae.decode(LATENT).sample
    out["image"] = flat(image[0, :, ::9, ::9])
    out["image_size"] = list(image.shape[1:])
    return out

with torch.no_grad():
    text = json.dumps({f: run(f) for f in NETS}, separators=(",", ":"))
open(sys.argv[1], "wb").write(gzip.compress(text.encode(), mtime=0))

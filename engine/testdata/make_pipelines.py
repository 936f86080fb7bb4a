"""Run reduced FLUX.1 and SD3 pipelines with torch and keep what they compute.

usage: make_pipelines.py OUT.json.gz       (needs torch, diffusers, transformers and sentencepiece)

Everything from the prompt to the picture: CLIP and T5 encoders, four Euler steps at
given noise levels (SD3 with guidance), the decoder with 16 channels. Weights are
functions of their names (synthetic.py), kernels of convolutions f16. T5's vocabulary is
engine/text/testdata/unigram.model.gz.
"""
import gzip, json, pathlib, sys
import numpy as np, sentencepiece, torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, FluxTransformer2DModel, SD3Transformer2DModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, T5Config, T5EncoderModel
from synthetic import fill, some, values

here = pathlib.Path(__file__).parent
pieces = sentencepiece.SentencePieceProcessor(model_proto=gzip.open(here / "../text/testdata/unigram.model.gz").read())
SIGMAS, SEED, GUIDANCE = [1.0, 0.8, 0.55, 0.25, 0.0], 5, 3.0
H, W = 4, 6  # of the latent
PROMPT, NEGATIVE = "a red fox in the snow, oil painting", "blurry"
# CLIP's tokens of both, from engine/text.
CLIP = {PROMPT: [320, 736, 3240, 530, 518, 2583, 267, 2870, 3086], NEGATIVE: [21977]}


def clip_ids(s, pad): return torch.tensor([[49406] + CLIP[s] + [49407] + [pad] * (75 - len(CLIP[s]))])


def t5_ids(s, n):
    ids = pieces.encode(s) + [1]
    return torch.tensor([ids + [0] * (n - len(ids))])


def kernels(net, prefix, tensors):  # f16, as they run
    for name, p in net.named_parameters():
        if p.dim() == 4: p.data = values(prefix + name, tuple(p.shape))
    return net


def tower(cls, prefix, width, projection, tensors):
    net = cls(CLIPTextConfig(vocab_size=49408, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=3, num_attention_heads=width // 64,
        max_position_embeddings=77, projection_dim=projection, hidden_act="quick_gelu", bos_token_id=49406, eos_token_id=49407, pad_token_id=0))
    state, mine = net.state_dict(), {}
    for key in state:
        if key.endswith("position_ids"): continue
        name = prefix + (key if key.startswith(("text_model.", "text_projection")) else "text_model." + key)
        mine[key] = values(name, tuple(state[key].shape), half=False)
        tensors[name] = list(state[key].shape)
    net.load_state_dict(mine, strict=False)
    return net.eval()


def t5(prefix, width, tensors):
    net = fill(T5EncoderModel(T5Config(vocab_size=3008, d_model=width, d_kv=64, d_ff=128, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")), prefix, tensors)
    tensors.pop(prefix + "encoder.embed_tokens.weight")
    net.shared.weight.data = values(prefix + "shared.weight", (3008, width), half=False)
    net.encoder.embed_tokens.weight = net.shared.weight
    return net


def decoder(tensors, scale, shift, latent):
    vae = kernels(fill(AutoencoderKL(block_out_channels=(32, 32, 64, 64), layers_per_block=2, latent_channels=16, norm_num_groups=32, use_quant_conv=False, use_post_quant_conv=False,
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4), "vae.", tensors), "vae.", tensors)
    return vae.decode(latent / scale + shift).sample


def state(net, ids):  # of the first end token, after the last norm
    h = net(ids).last_hidden_state
    return h[:, (ids[0] == 49407).nonzero()[0, 0]]


def euler(velocity):
    torch.manual_seed(SEED)
    x = torch.randn(1, 16, H, W)
    for a, b in zip(SIGMAS, SIGMAS[1:]): x = x + (b - a) * velocity(x, a)
    return x


def flux():
    tensors = {}
    l, t = tower(CLIPTextModel, "te.", 64, 64, tensors), t5("te2.", 96, tensors)
    net = fill(FluxTransformer2DModel(num_layers=1, num_single_layers=1, attention_head_dim=128, num_attention_heads=1, joint_attention_dim=96,
        pooled_projection_dim=64, guidance_embeds=True), "transformer.", tensors)
    text, pooled = t(t5_ids(PROMPT, 256)).last_hidden_state, state(l, clip_ids(PROMPT, 49407))
    ids = torch.zeros(H // 2, W // 2, 3)
    ids[..., 1] += torch.arange(H // 2)[:, None]
    ids[..., 2] += torch.arange(W // 2)[None, :]
    def velocity(x, sigma):
        packed = x.view(1, 16, H // 2, 2, W // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(1, H * W // 4, 64)
        y = net(hidden_states=packed, timestep=torch.tensor([sigma]), guidance=torch.tensor([3.5]), pooled_projections=pooled, encoder_hidden_states=text,
            txt_ids=torch.zeros(256, 3), img_ids=ids.reshape(-1, 3), return_dict=False)[0]
        return y.view(1, H // 2, W // 2, 16, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(1, 16, H, W)
    x = euler(velocity)
    return {"tensors": tensors, "text": some(text), "pooled": some(pooled), "latent": some(x), "image": some(decoder(tensors, 0.3611, 0.1159, x), 2000)}


def sd3():
    tensors = {}
    l, g = tower(CLIPTextModel, "te.", 64, 64, tensors), tower(CLIPTextModelWithProjection, "te2.", 64, 48, tensors)
    t = t5("te3.", 160, tensors)
    net = kernels(fill(SD3Transformer2DModel(sample_size=16, num_layers=2, attention_head_dim=64, num_attention_heads=2, joint_attention_dim=160, caption_projection_dim=128,
        pooled_projection_dim=64 + 48, pos_embed_max_size=8, qk_norm="rms_norm", dual_attention_layers=(0,)), "transformer.", tensors), "transformer.", tensors)
    def encode(s):
        a, b = l(clip_ids(s, 49407), output_hidden_states=True), g(clip_ids(s, 0), output_hidden_states=True)
        both = F.pad(torch.cat([a.hidden_states[-2], b.hidden_states[-2]], -1), (0, 160 - 128))
        end = (clip_ids(s, 0)[0] == 49407).nonzero()[0, 0]
        pooled_g = g.text_projection(b.last_hidden_state[:, end])
        return torch.cat([both, t(t5_ids(s, 77)).last_hidden_state], 1), torch.cat([state(l, clip_ids(s, 49407)), pooled_g], -1)
    (text, pooled), (other, empty) = encode(PROMPT), encode(NEGATIVE)
    call = lambda x, sigma, c, p: net(hidden_states=x, timestep=torch.tensor([1000 * sigma]), encoder_hidden_states=c, pooled_projections=p, return_dict=False)[0]
    def velocity(x, sigma):
        u = call(x, sigma, other, empty)
        return u + GUIDANCE * (call(x, sigma, text, pooled) - u)
    x = euler(velocity)
    return {"tensors": tensors, "text": some(text), "pooled": some(pooled), "latent": some(x), "image": some(decoder(tensors, 1.5305, 0.0609, x), 2000)}


with torch.no_grad():
    text = json.dumps({"flux": flux(), "sd3": sd3()}, separators=(",", ":"))
open(sys.argv[1], "wb").write(gzip.compress(text.encode(), mtime=0))

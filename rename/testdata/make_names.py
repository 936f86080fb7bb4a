"""Write names.txt.gz: the tensor names and shapes of whole models, as diffusers and
transformers build them (facts; no weights are made: everything is on the meta device).

Each model is a line "# MODEL" and then a line "NAME d0,d1,..." for each tensor.
Made with diffusers 0.42 and transformers 5:  python make_names.py
"""
import gzip
import pathlib

import diffusers as D
import torch
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, T5Config, T5EncoderModel

out = []


def put(name, make):
    try:
        with torch.device("meta"):
            model = make()
    except Exception as e:  # a class that this version lacks is said, not hidden
        print("left out", name, repr(e)[:150])
        return
    sd = model.state_dict()
    # transformers 5 leaves out the level that every published file has.
    if name.startswith(("sd1/text_encoder", "sdxl/text_encoder")):
        sd = {k if k.startswith(("text_model.", "text_projection.")) else "text_model." + k: v for k, v in sd.items()}
    out.append(f"# {name}")
    out.extend(f"{k} {','.join(map(str, v.shape))}" for k, v in sd.items())
    print(name, len(sd))


def unet(**kw):
    return lambda: D.UNet2DConditionModel(sample_size=64, **kw)


put("sd1/unet", unet(cross_attention_dim=768, attention_head_dim=8))
put("sd2/unet", unet(cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True))
put("sdxl/unet", unet(cross_attention_dim=2048, attention_head_dim=[5, 10, 20], use_linear_projection=True,
    block_out_channels=(320, 640, 1280), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), transformer_layers_per_block=[1, 2, 10],
    addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816))
put("sdxl-refiner/unet", unet(cross_attention_dim=1280, attention_head_dim=[6, 12, 24, 24], use_linear_projection=True,
    block_out_channels=(384, 768, 1536, 1536), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), transformer_layers_per_block=4,
    addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2560))
kl = dict(block_out_channels=(128, 256, 512, 512), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=2)
put("sd1/vae", lambda: D.AutoencoderKL(latent_channels=4, **kl))
put("flux/vae", lambda: D.AutoencoderKL(latent_channels=16, use_quant_conv=False, use_post_quant_conv=False, **kl))
put("wan2/vae", lambda: D.AutoencoderKLWan())
put("wan2.2-ti2v/vae", lambda: D.AutoencoderKLWan(base_dim=160, decoder_base_dim=256, z_dim=48, in_channels=12, out_channels=12, is_residual=True))
put("qwen-image/vae", lambda: D.AutoencoderKLQwenImage())
clip = dict(vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
put("sd1/text_encoder", lambda: CLIPTextModel(CLIPTextConfig(**clip)))
put("sdxl/text_encoder_2", lambda: CLIPTextModelWithProjection(CLIPTextConfig(vocab_size=49408, hidden_size=1280, intermediate_size=5120,
    num_hidden_layers=32, num_attention_heads=20, projection_dim=1280)))
put("flux/text_encoder_2", lambda: T5EncoderModel(T5Config(vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64,
    feed_forward_proj="gated-gelu", tie_word_embeddings=False)))
put("flux/transformer", lambda: D.FluxTransformer2DModel(guidance_embeds=True))
put("flux-fill/transformer", lambda: D.FluxTransformer2DModel(in_channels=384, out_channels=64, guidance_embeds=True))
put("flux2/transformer", lambda: D.Flux2Transformer2DModel())
put("sd3/transformer", lambda: D.SD3Transformer2DModel(num_layers=38, num_attention_heads=38, caption_projection_dim=2432, pos_embed_max_size=192,
    qk_norm="rms_norm", sample_size=128, pooled_projection_dim=2048, joint_attention_dim=4096))
put("sd3/medium", lambda: D.SD3Transformer2DModel(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=384,
    qk_norm="rms_norm", sample_size=128, pooled_projection_dim=2048, joint_attention_dim=4096, dual_attention_layers=tuple(range(13))))
put("chroma/transformer", lambda: D.ChromaTransformer2DModel())
put("qwen-image/transformer", lambda: D.QwenImageTransformer2DModel())
put("wan2/transformer", lambda: D.WanTransformer3DModel())
put("wan2/i2v", lambda: D.WanTransformer3DModel(in_channels=36, image_dim=1280, added_kv_proj_dim=5120))
put("z-image/transformer", lambda: D.ZImageTransformer2DModel())
put("lumina2/transformer", lambda: D.Lumina2Transformer2DModel())
put("ltxv/transformer", lambda: D.LTXVideoTransformer3DModel())
put("longcat/transformer", lambda: D.LongCatImageTransformer2DModel())
put("flux2-klein/transformer", lambda: D.Flux2Transformer2DModel(num_layers=5, num_single_layers=20))
put("krea2/transformer", lambda: D.Krea2Transformer2DModel())
put("wan2.2-i2v/transformer", lambda: D.WanTransformer3DModel(in_channels=36))
put("wan2.2-ti2v/transformer", lambda: D.WanTransformer3DModel(in_channels=48, out_channels=48, num_attention_heads=24, ffn_dim=14336, num_layers=30))

put("ideogram4/transformer", lambda: D.Ideogram4Transformer2DModel())

# SeFi-Image has no class here: its transformer is FLUX.2's under "backbone." beside a
# second time embedding (the peer's convert_sefi.py).
at = out.index("# flux2/transformer")
sefi = ["# sefi-image/transformer"]
for line in out[at + 1:]:
    if line.startswith("#"):
        break
    sefi.append("backbone." + line)
out += sefi + [f"dual_time_embed.{e}_embedder.linear_{i}.{k}" for e in ("semantic", "texture") for i in (1, 2) for k in ("weight 6144,256", "bias 6144")]


# open_clip's text towers, ViT-H (SD 2) and ViT-bigG (SDXL): its TextTransformer written out.
def open_clip(name, width, layers, project):
    out.append(f"# {name}")
    out.extend([f"positional_embedding 77,{width}", f"token_embedding.weight 49408,{width}", f"ln_final.weight {width}", f"ln_final.bias {width}", f"text_projection {width},{project}"])
    for i in range(layers):
        b = f"transformer.resblocks.{i}."
        for ln in ("ln_1", "ln_2"):
            out.extend([f"{b}{ln}.weight {width}", f"{b}{ln}.bias {width}"])
        out.extend([f"{b}attn.in_proj_weight {3 * width},{width}", f"{b}attn.in_proj_bias {3 * width}", f"{b}attn.out_proj.weight {width},{width}", f"{b}attn.out_proj.bias {width}",
                    f"{b}mlp.c_fc.weight {4 * width},{width}", f"{b}mlp.c_fc.bias {4 * width}", f"{b}mlp.c_proj.weight {width},{4 * width}", f"{b}mlp.c_proj.bias {width}"])


open_clip("sd2/open_clip", 1024, 24, 1024)
open_clip("sdxl/open_clip_g", 1280, 32, 1280)

# llama.cpp's names of t5-v1_1-xxl's encoder (gguf-py's MODEL_TENSORS of T5ENCODER).
out += ["# flux/t5_gguf", "token_embd.weight 32128,4096", "enc.output_norm.weight 4096", "enc.blk.0.attn_rel_b.weight 32,64"]
for i in range(24):
    out += [f"enc.blk.{i}.{n}" for n in ("attn_norm.weight 4096", "attn_q.weight 4096,4096", "attn_k.weight 4096,4096", "attn_v.weight 4096,4096", "attn_o.weight 4096,4096",
            "ffn_norm.weight 4096", "ffn_gate.weight 10240,4096", "ffn_up.weight 10240,4096", "ffn_down.weight 4096,10240")]
put("sdxl/controlnet", lambda: D.ControlNetModel(cross_attention_dim=2048, attention_head_dim=[5, 10, 20], use_linear_projection=True,
    block_out_channels=(320, 640, 1280), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    transformer_layers_per_block=[1, 2, 10], addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816))

# Models that share names with a family and are none of it; a block of each kind is enough.
put("unknown/hunyuan-video", lambda: D.HunyuanVideoTransformer3DModel(num_layers=1, num_single_layers=1))
put("unknown/hunyuan-image", lambda: D.HunyuanImageTransformer2DModel(num_layers=1, num_single_layers=1))
put("unknown/bria", lambda: D.BriaTransformer2DModel(num_layers=1, num_single_layers=1))
put("unknown/ovis", lambda: D.OvisImageTransformer2DModel(num_layers=1, num_single_layers=1))
put("unknown/flux-controlnet", lambda: D.FluxControlNetModel(num_layers=1, num_single_layers=1))
put("unknown/pixart", lambda: D.PixArtTransformer2DModel(num_layers=1))
put("unknown/sana", lambda: D.SanaTransformer2DModel(num_layers=1))
put("unknown/allegro", lambda: D.AllegroTransformer3DModel(num_layers=1))

path = pathlib.Path(__file__).parent / "names.txt.gz"
path.write_bytes(gzip.compress("\n".join(out).encode() + b"\n", 9, mtime=0))
print(path.stat().st_size)

"""Run reduced T5 and UMT5 encoders with transformers and keep what they compute.

usage: make_t5.py OUT.json.gz       (needs torch and transformers)

Weights are f32 and functions of their names (synthetic.py). Kept: the states of all
tokens and of each block, the same with the last tokens masked out, and the mean
square of every column that a linear layer is fed.
"""
import gzip, json, sys
import torch
from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel
from synthetic import fill, some, values, watch

IDS = [(11 * i) % 47 + 3 for i in range(150)] + [1] + [0] * 9  # beyond the largest distance


def run(model, config):
    tensors = {}
    prefix = "text_encoders.t5xxl.transformer."
    net = fill(model(config(vocab_size=50, d_model=96, d_kv=64, d_ff=160, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=32, relative_attention_max_distance=128)), prefix, tensors)
    tensors.pop(prefix + "encoder.embed_tokens.weight")  # the same as shared.weight
    net.shared.weight.data = values(prefix + "shared.weight", (50, 96), half=False)  # one parameter with two names
    net.encoder.embed_tokens.weight = net.shared.weight
    blocks = {}
    def done(i):
        def hook(m, args, out): blocks.setdefault(f"block.{i}", [some(out[0])])
        return hook
    for i, b in enumerate(net.encoder.block): b.register_forward_hook(done(i))
    columns, _, hooks = watch(net, lambda name, out: ())
    ids = torch.tensor([IDS])
    out = {"tensors": tensors, "output": some(net(ids).last_hidden_state, 2000), "blocks": blocks, "columns": dict(columns)}
    for h in hooks: h.remove()
    out["sampled"] = some(net(ids, attention_mask=torch.tensor([[1] * 151 + [0] * 9])).last_hidden_state[:, :151], 2000)
    return out


with torch.no_grad():
    text = json.dumps({"t5": run(T5EncoderModel, T5Config), "umt5": run(UMT5EncoderModel, UMT5Config)}, separators=(",", ":"))
open(sys.argv[1], "wb").write(gzip.compress(text.encode(), mtime=0))

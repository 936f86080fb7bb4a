package synth

import "fmt"

// Flux is FLUX.1 cut down to depth double and single blocks of the given width.
func Flux(depth int, hidden int64) Model {
	const head = 128
	var m Model
	h := hidden
	m.linear("img_in", h, 64, true)
	m.linear("txt_in", h, 4096, true)
	for _, p := range []struct {
		name string
		in   int64
	}{{"time_in", 256}, {"vector_in", 768}, {"guidance_in", 256}} {
		m.linear(p.name+".in_layer", h, p.in, true)
		m.linear(p.name+".out_layer", h, h, true)
	}
	for i := range depth {
		for _, s := range []string{"img", "txt"} {
			b := fmt.Sprintf("double_blocks.%d.%s", i, s)
			m.linear(b+"_mod.lin", 6*h, h, true)
			m.linear(b+"_attn.qkv", 3*h, h, true)
			m.add(b+"_attn.norm.query_norm.scale", head)
			m.add(b+"_attn.norm.key_norm.scale", head)
			m.linear(b+"_attn.proj", h, h, true)
			m.linear(b+"_mlp.0", 4*h, h, true)
			m.linear(b+"_mlp.2", h, 4*h, true)
		}
	}
	for i := range depth {
		b := fmt.Sprintf("single_blocks.%d.", i)
		m.linear(b+"linear1", 7*h, h, true)
		m.linear(b+"linear2", h, 5*h, true)
		m.add(b+"norm.query_norm.scale", head)
		m.add(b+"norm.key_norm.scale", head)
		m.linear(b+"modulation.lin", 3*h, h, true)
	}
	m.linear("final_layer.adaLN_modulation.1", 2*h, h, true)
	m.linear("final_layer.linear", 64, h, true)
	return m
}

// SD15 is Stable Diffusion 1.5 in full size: UNet, CLIP-L and VAE.
func SD15() Model {
	var m Model
	m.unet15("model.diffusion_model.")
	m.clipL("cond_stage_model.transformer.text_model.")
	m.vae("first_stage_model.")
	return m
}

// UNet15 is the UNet alone.
func UNet15() Model {
	var m Model
	m.unet15("model.diffusion_model.")
	return m
}

// CLIPL is the text encoder alone.
func CLIPL() Model {
	var m Model
	m.clipL("cond_stage_model.transformer.text_model.")
	return m
}

func (m *Model) unet15(p string) {
	const embed, c, context = 1280, 320, 768
	mult := []int64{1, 2, 4, 4}
	m.linear(p+"time_embed.0", embed, c, true)
	m.linear(p+"time_embed.2", embed, embed, true)
	res := func(p string, in, out int64) {
		m.norm(p+".in_layers.0", in)
		m.conv(p+".in_layers.2", out, in, 3)
		m.linear(p+".emb_layers.1", out, embed, true)
		m.norm(p+".out_layers.0", out)
		m.conv(p+".out_layers.3", out, out, 3)
		if in != out {
			m.conv(p+".skip_connection", out, in, 1)
		}
	}
	attn := func(p string, c int64) {
		m.norm(p+".norm", c)
		m.conv(p+".proj_in", c, c, 1)
		b := p + ".transformer_blocks.0."
		for i, a := range []string{"attn1", "attn2"} {
			kv := c
			if i == 1 {
				kv = context
			}
			m.linear(b+a+".to_q", c, c, false)
			m.linear(b+a+".to_k", c, kv, false)
			m.linear(b+a+".to_v", c, kv, false)
			m.linear(b+a+".to_out.0", c, c, true)
		}
		m.linear(b+"ff.net.0.proj", 8*c, c, true)
		m.linear(b+"ff.net.2", c, 4*c, true)
		for _, n := range []string{"norm1", "norm2", "norm3"} {
			m.norm(b+n, c)
		}
		m.conv(p+".proj_out", c, c, 1)
	}
	m.conv(p+"input_blocks.0.0", c, 4, 3)
	chans, ch, n := []int64{c}, int64(c), 1
	for level, f := range mult {
		for range 2 {
			res(fmt.Sprintf("%sinput_blocks.%d.0", p, n), ch, c*f)
			ch = c * f
			if level < 3 {
				attn(fmt.Sprintf("%sinput_blocks.%d.1", p, n), ch)
			}
			chans = append(chans, ch)
			n++
		}
		if level < 3 {
			m.conv(fmt.Sprintf("%sinput_blocks.%d.0.op", p, n), ch, ch, 3)
			chans = append(chans, ch)
			n++
		}
	}
	res(p+"middle_block.0", ch, ch)
	attn(p+"middle_block.1", ch)
	res(p+"middle_block.2", ch, ch)
	n = 0
	for level := 3; level >= 0; level-- {
		for i := range 3 {
			last := len(chans) - 1
			res(fmt.Sprintf("%soutput_blocks.%d.0", p, n), ch+chans[last], c*mult[level])
			chans, ch = chans[:last], c*mult[level]
			k := 1
			if level < 3 {
				attn(fmt.Sprintf("%soutput_blocks.%d.1", p, n), ch)
				k = 2
			}
			if level > 0 && i == 2 {
				m.conv(fmt.Sprintf("%soutput_blocks.%d.%d.conv", p, n, k), ch, ch, 3)
			}
			n++
		}
	}
	m.norm(p+"out.0", c)
	m.conv(p+"out.2", 4, c, 3)
}

func (m *Model) clipL(p string) {
	m.add(p+"embeddings.token_embedding.weight", 49408, 768)
	m.add(p+"embeddings.position_embedding.weight", 77, 768)
	for i := range 12 {
		b := fmt.Sprintf("%sencoder.layers.%d.", p, i)
		for _, q := range []string{"q", "k", "v", "out"} {
			m.linear(b+"self_attn."+q+"_proj", 768, 768, true)
		}
		m.norm(b+"layer_norm1", 768)
		m.norm(b+"layer_norm2", 768)
		m.linear(b+"mlp.fc1", 3072, 768, true)
		m.linear(b+"mlp.fc2", 768, 3072, true)
	}
	m.norm(p+"final_layer_norm", 768)
}

func (m *Model) vae(p string) {
	res := func(p string, in, out int64) {
		m.norm(p+".norm1", in)
		m.conv(p+".conv1", out, in, 3)
		m.norm(p+".norm2", out)
		m.conv(p+".conv2", out, out, 3)
		if in != out {
			m.conv(p+".nin_shortcut", out, in, 1)
		}
	}
	mid := func(p string, c int64) {
		res(p+".mid.block_1", c, c)
		m.norm(p+".mid.attn_1.norm", c)
		for _, q := range []string{"q", "k", "v", "proj_out"} {
			m.conv(p+".mid.attn_1."+q, c, c, 1)
		}
		res(p+".mid.block_2", c, c)
	}
	mult := []int64{1, 2, 4, 4}
	m.conv(p+"encoder.conv_in", 128, 3, 3)
	ch := int64(128)
	for l, f := range mult {
		for b := range 2 {
			res(fmt.Sprintf("%sencoder.down.%d.block.%d", p, l, b), ch, 128*f)
			ch = 128 * f
		}
		if l < 3 {
			m.conv(fmt.Sprintf("%sencoder.down.%d.downsample.conv", p, l), ch, ch, 3)
		}
	}
	mid(p+"encoder", ch)
	m.norm(p+"encoder.norm_out", ch)
	m.conv(p+"encoder.conv_out", 8, ch, 3)
	m.conv(p+"quant_conv", 8, 8, 1)
	m.conv(p+"post_quant_conv", 4, 4, 1)
	m.conv(p+"decoder.conv_in", 512, 4, 3)
	ch = 512
	mid(p+"decoder", ch)
	for l := 3; l >= 0; l-- {
		for b := range 3 {
			res(fmt.Sprintf("%sdecoder.up.%d.block.%d", p, l, b), ch, 128*mult[l])
			ch = 128 * mult[l]
		}
		if l > 0 {
			m.conv(fmt.Sprintf("%sdecoder.up.%d.upsample.conv", p, l), ch, ch, 3)
		}
	}
	m.norm(p+"decoder.norm_out", ch)
	m.conv(p+"decoder.conv_out", 3, ch, 3)
}

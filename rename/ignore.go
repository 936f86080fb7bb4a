package rename

import "strings"

// ignored are beginnings of names that no runtime reads: schedules that are
// recomputed, training leftovers, index buffers. The list is that of
// stable-diffusion.cpp (commit 97d2990, is_unused_tensor).
var ignored = []string{
	"betas",
	"alphas_cumprod_prev",
	"sqrt_alphas_cumprod",
	"sqrt_one_minus_alphas_cumprod",
	"log_one_minus_alphas_cumprod",
	"sqrt_recip_alphas_cumprod",
	"sqrt_recipm1_alphas_cumprod",
	"posterior_variance",
	"posterior_log_variance_clipped",
	"posterior_mean_coef1",
	"posterior_mean_coef2",
	"cond_stage_model.transformer.text_model.embeddings.position_ids",
	"cond_stage_model.1.model.text_model.embeddings.position_ids",
	"cond_stage_model.transformer.vision_model.embeddings.position_ids",
	"cond_stage_model.model.logit_scale",
	"conditioner.embedders.0.transformer.text_model.embeddings.position_ids",
	"conditioner.embedders.0.model.logit_scale",
	"conditioner.embedders.1.model.logit_scale",
	"model.diffusion_model.time_embedding.cond_proj.weight",
	"unet.time_embedding.cond_proj.weight",
	"model_ema.decay",
	"model_ema.num_updates",
	"model_ema.diffusion_model",
	"embedding_manager",
	"denoiser.sigmas",
	"text_encoders.t5xxl.transformer.encoder.embed_tokens.weight",
	"ztsnr",
	"edm_vpred.sigma_min",
	"text_encoders.llm.output.weight",
	"text_encoders.llm.lm_head.",
}

// Ignored reports whether a tensor is one that no runtime reads, by its prefixed
// name in either spelling.
func Ignored(name string) bool {
	for _, p := range ignored {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// CanonicalNames returns the names under which an importance matrix may know a
// tensor of the family, most likely first: the name as it stands, the name
// stable-diffusion.cpp gives it, and both with and without the prefix of the
// diffusion model.
func CanonicalNames(f Family, name string) []string {
	var out []string
	add := func(n string) {
		for _, have := range out {
			if have == n {
				return
			}
		}
		out = append(out, n)
	}
	for _, n := range []string{name, f.Rename(name), f.RenameCompat(name)} {
		add(n)
	}
	for _, n := range out[:len(out):len(out)] {
		if rest, ok := strings.CutPrefix(n, prefixDiffusion); ok {
			add(rest)
			continue
		}
		add(prefixDiffusion + n)
		add(f.RenameCompat(prefixDiffusion + n))
	}
	return out
}

package main

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// Whole models with their real names and shapes, without data: the plan is all
// that is looked at.
func TestWholeModels(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs sparse files")
	}
	tests := []struct {
		name   string
		model  synth.Model
		role   string
		family string
		look   string // a tensor that must be in the plan, and the type it must get
		want   string
	}{
		{"sd15", synth.SD15(), "--model", "sd1", "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight", "q8_0"},
		{"flux", synth.Flux(4, 3072), "--diffusion-model", "flux", "model.diffusion_model.double_blocks.3.img_attn.qkv.weight", "q8_0"},
		{"unet", synth.UNet15(), "--diffusion-model", "sd1", "model.diffusion_model.out.2.weight", "f16"},
		{"clip", synth.CLIPL(), "--clip_l", "", "text_encoders.clip_l.transformer.cond_stage_model.transformer.text_model.final_layer_norm.weight", "f16"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in.safetensors")
			infos := make([]tensor.Info, len(tt.model))
			for i, info := range tt.model {
				info.DType = tensor.F16
				infos[i] = info
			}
			writeSparse(t, in, infos, nil, len(infos))
			r := ok(t, "convert", tt.role, in, "--type", "q8_0", "--convert-name", "--dry-run", "--json")
			var plan planJSON
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &plan))
			require.Equal(t, tt.family, plan.Family)
			require.Len(t, plan.Outputs[0].Tensors, len(infos))
			found := false
			for _, x := range plan.Outputs[0].Tensors {
				if strings.HasSuffix(x.Name, ".bias") || len(x.Shape) < 2 {
					require.Equal(t, "f16", x.To, x.Name)
				}
				if x.Name == tt.look {
					found = true
					require.Equal(t, tt.want, x.To)
				}
			}
			require.True(t, found, tt.look)
		})
	}
}

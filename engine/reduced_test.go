package engine

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/enginetest"
	"github.com/sdtool/sdtool/engine/prompt"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// reduced is what testdata/make_reduced.py keeps of one family.
type reduced struct {
	Tensors map[string][]int64
	IDs     []int32
	Text    []float32 // every tenth token's
	Pooled  []float32
	Noise   []float32
	Image   []float32 // every ninth pixel's
}

func readReduced(t *testing.T, family string) reduced {
	t.Helper()
	var all map[string]reduced
	enginetest.Read(t, "reduced.json.gz", &all)
	return all[family]
}

// model returns the renamed tensors: matrices f16, vectors f32.
func (r reduced) model(t *testing.T, family rename.Family) []tensor.Tensor {
	t.Helper()
	return enginetest.Renamed(t, family, enginetest.Tensors(r.Tensors, tensor.F16, enginetest.Matrix))
}

// Activations are rounded to f16 here and were not in torch, so that each value is off
// by a little of the values' size.
func TestReducedModelsAgainstTorch(t *testing.T) {
	lib := nativetest.Library(t)
	for _, c := range []struct {
		name   string
		family rename.Family
		title  string
	}{{"sd2", rename.SD2, "SD 2.x"}, {"sdxl", rename.SDXL, "SDXL"}, {"refiner", rename.SDXLRefiner, "SDXL refiner"}} {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			want := readReduced(t, c.name)
			eps := sample.Eps
			m, err := Load(ctx, lib, want.model(t, c.family), Options{Threads: 1, Prediction: &eps})
			require.NoError(t, err)
			defer m.Close()
			assert.Equal(t, c.title, m.Traits().Name)
			s, ok := m.net.(*stableDiffusion)
			require.True(t, ok)
			towers, err := s.compileTowers(2)
			require.NoError(t, err)
			defer closeTowers(towers)

			text, err := s.encodeChunk(ctx, towers, prompt.Chunk{IDs: want.IDs})
			require.NoError(t, err)
			var tenth []float32
			width := len(text) / len(want.IDs)
			for i := 0; i < len(want.IDs); i += 10 {
				tenth = append(tenth, text[i*width:(i+1)*width]...)
			}
			enginetest.Near(t, "text", want.Text, tenth, 2e-3)

			cond := &condition{text: text, tokens: int64(len(want.IDs))}
			if want.Pooled != nil {
				pooled, err := towers[len(towers)-1].Pool(ctx, want.IDs, slices.Index(want.IDs, 999))
				require.NoError(t, err)
				enginetest.Near(t, "pooled text", want.Pooled, pooled, 2e-3)
				cond.vector = s.vector(pooled, textRequest{width: 64, height: 96})
			}
			latent := scaleBy(enginetest.Values("latent", 256), 2)
			noise, err := s.predict(ctx, latent, latentSize{4, 8, 8}, 371.5, cond)
			require.NoError(t, err)
			enginetest.Near(t, "predicted noise", want.Noise, noise, 5e-3)

			image, err := s.decode(ctx, scaleBy(latent, s.vae.Scale), latentSize{4, 8, 8})
			require.NoError(t, err)
			var ninth []float32
			for y := 0; y < 3*64; y++ {
				for x := 0; x < 64; x += 9 {
					if y%64%9 == 0 {
						ninth = append(ninth, image[y*64+x])
					}
				}
			}
			enginetest.Near(t, "image", want.Image, ninth, 5e-3)
		})
	}
}

func scaleBy(x []float32, f float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = v * f
	}
	return out
}

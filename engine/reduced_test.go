package engine

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/sdtool/sdtool/engine/prompt"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// synthetic is a tensor whose values are computed when they are read.
type synthetic struct{ tensor.Info }

func (s synthetic) Size() int64 { n, _ := s.Bytes(); return n }

func (s synthetic) ReadAt(p []byte, off int64) (int, error) {
	width := s.DType.BlockBytes()
	values := make([]float32, int64(len(p))/width)
	synth.Fill(s.Info, off/width, values)
	for i, v := range values {
		if s.DType == tensor.F16 {
			binary.LittleEndian.PutUint16(p[2*i:], uint16(float16.Fromfloat32(v)))
		} else {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
		}
	}
	return len(p), nil
}

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
	f, err := os.Open("testdata/reduced.json.gz")
	require.NoError(t, err)
	defer f.Close()
	zr, err := gzip.NewReader(f)
	require.NoError(t, err)
	text, err := io.ReadAll(zr)
	require.NoError(t, err)
	var all map[string]reduced
	require.NoError(t, json.Unmarshal(text, &all))
	return all[family]
}

// model returns the renamed tensors: matrices f16, vectors f32.
func (r reduced) model(t *testing.T, family rename.Family) []tensor.Tensor {
	t.Helper()
	var names []string
	for name := range r.Tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	var stored []tensor.Tensor
	for _, name := range names {
		info := tensor.Info{Name: name, DType: tensor.F16, Shape: r.Tensors[name]}
		if len(info.Shape) < 2 {
			info.DType = tensor.F32
		}
		stored = append(stored, tensor.Tensor{Info: info, Source: synthetic{info}})
	}
	renamed, err := rename.Apply(family, stored)
	require.NoError(t, err)
	var out []tensor.Tensor
	for _, x := range renamed.Tensors {
		out = append(out, x.Tensor)
	}
	return out
}

// near compares with what torch computed in f32 all the way: activations are
// rounded to f16 here, so each value is off by a little of the values' size.
func near(t *testing.T, what string, want, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want), what)
	var diff, size float64
	for i := range want {
		d := float64(got[i] - want[i])
		diff, size = diff+d*d, size+float64(want[i])*float64(want[i])
	}
	rel := math.Sqrt(diff / size)
	t.Logf("%s: relative error %.2g", what, rel)
	assert.Less(t, rel, tolerance, what)
}

func TestReducedModelsAgainstTorch(t *testing.T) {
	lib := nativetest.Library(t)
	for _, c := range []struct {
		name   string
		family rename.Family
		title  string
	}{{"sd2", rename.SD2, "SD 2.x"}, {"sdxl", rename.SDXL, "SDXL"}} {
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
			near(t, "text", want.Text, tenth, 2e-3)

			cond := &condition{text: text, tokens: int64(len(want.IDs))}
			if want.Pooled != nil {
				pooled, err := towers[1].Pool(ctx, want.IDs, slices.Index(want.IDs, 999))
				require.NoError(t, err)
				near(t, "pooled text", want.Pooled, pooled, 2e-3)
				cond.vector = s.vector(pooled, textRequest{width: 64, height: 96})
			}
			latent := make([]float32, 256)
			synth.Fill(tensor.Info{Name: "latent", Shape: []int64{3, 1}}, 0, latent) // two axes with a fan of one: √3·u
			for i := range latent {
				latent[i] *= float32(2 / math.Sqrt(3))
			}
			noise, err := s.predict(ctx, latent, latentSize{4, 8, 8}, 371.5, cond)
			require.NoError(t, err)
			near(t, "predicted noise", want.Noise, noise, 5e-3)

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
			near(t, "image", want.Image, ninth, 5e-3)
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

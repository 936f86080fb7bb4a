package engine_test

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"image"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/sdtool/sdtool/engine"
	"github.com/sdtool/sdtool/engine/collect"
	"github.com/sdtool/sdtool/engine/rng"
	"github.com/sdtool/sdtool/engine/sample"
	"github.com/sdtool/sdtool/imatrix"
	"github.com/sdtool/sdtool/native/lanesum"
	"github.com/sdtool/sdtool/native/nativetest"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/testdata/synth"
)

// halves is an f16 tensor of the synthetic model, computed as it is read.
type halves struct{ tensor.Info }

func (s halves) Size() int64 { n, _ := s.Bytes(); return n }

func (s halves) ReadAt(p []byte, off int64) (int, error) {
	values := make([]float32, len(p)/2)
	synth.Fill(s.Info, off/2, values)
	for i, v := range values {
		binary.LittleEndian.PutUint16(p[2*i:], uint16(float16.Fromfloat32(v)))
	}
	return len(p), nil
}

// goldenCases are what testdata/sd15 was made with.
var goldenCases = []struct {
	name string
	set  func(p *engine.Params)
}{
	{"euler", func(p *engine.Params) {
		p.Prompt, p.Width, p.Height, p.Steps, p.Guidance, p.Seed = "a photo of an astronaut riding a horse", 64, 64, 2, 7, 42
		p.Method = ptr(sample.Euler)
	}},
	{"euler_a_cpu", func(p *engine.Params) {
		p.Prompt, p.Negative = "a (red:1.3) fox in the snow, [blurry] background", "low quality"
		p.Width, p.Height, p.Steps, p.Guidance, p.Seed, p.RNG = 64, 128, 3, 5, 7, rng.CPU
		p.Method = ptr(sample.EulerA)
	}},
	{"dpmpp2m_karras", func(p *engine.Params) {
		p.Prompt, p.Width, p.Height, p.Steps, p.Guidance, p.Seed = "portrait of an old sailor, oil painting", 128, 64, 3, 1, 123
		p.Method, p.Scheduler = ptr(sample.DPMPP2M), ptr(sample.Karras)
	}},
}

func ptr[T any](v T) *T { return &v }

func TestGoldenGenerations(t *testing.T) {
	lib := nativetest.Library(t)
	if testing.Short() {
		t.Skip("needs 2.5 GB of memory and half a minute")
	}
	var tensors []tensor.Tensor
	for _, info := range synth.SD15() {
		info.DType = tensor.F16
		tensors = append(tensors, tensor.Tensor{Info: info, Source: halves{info}})
	}
	ctx := context.Background()
	m, err := engine.Load(ctx, lib, tensors, engine.Options{Threads: 1})
	require.NoError(t, err)
	defer m.Close()
	for _, c := range goldenCases {
		t.Run(c.name, func(t *testing.T) {
			p := engine.DefaultParams()
			c.set(&p)
			acc := imatrix.NewAccumulator()
			rec := collect.NewRecorder(lib, acc, collect.Filter{})
			rec.Attach(m)
			defer rec.Detach(m)
			images, err := m.Generate(ctx, p, engine.Hooks{})
			require.NoError(t, err)
			require.Len(t, images, 1)
			db := psnr(t, filepath.Join("testdata", "sd15", c.name+".png"), images[0])
			t.Logf("picture: %.1f dB", db)
			assert.Greater(t, db, 48.0)
			set, err := acc.Snapshot(imatrix.Info{})
			require.NoError(t, err)
			compareSets(t, readGolden(t, c.name), set)
		})
	}
}

func psnr(t *testing.T, path string, got *image.NRGBA) float64 {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	want, err := png.Decode(f)
	require.NoError(t, err)
	require.Equal(t, want.Bounds(), got.Bounds())
	var sum float64
	b := want.Bounds()
	for y := range b.Dy() {
		for x := range b.Dx() {
			r1, g1, b1, _ := want.At(x, y).RGBA()
			r2, g2, b2, _ := got.At(x, y).RGBA()
			for _, d := range []float64{float64(r1) - float64(r2), float64(g1) - float64(g2), float64(b1) - float64(b2)} {
				sum += d * d / 257 / 257
			}
		}
	}
	return 10 * math.Log10(255*255*3*float64(b.Dx()*b.Dy())/max(sum, 1e-9))
}

// readGolden unpacks a golden .dat and opens it.
func readGolden(t *testing.T, name string) imatrix.Set {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "sd15", name+".dat.gz"))
	require.NoError(t, err)
	defer f.Close()
	zr, err := gzip.NewReader(f)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name+".dat")
	w, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.Copy(w, zr)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	set, err := imatrix.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, set.Close()) })
	return set
}

// compareSets asks for the same names and calls, for a cosine of at least
// 0.99999 in each entry, and for columns within 1 % (or 1e-6 of the mean), of
// which a few of the smallest may be off by more. Without the kernels for exact
// sums both are asked within the noise of the reference's sums in f16.
func compareSets(t *testing.T, want, got imatrix.Set) {
	t.Helper()
	names := func(s imatrix.Set) map[string]*imatrix.Entry {
		all := make(map[string]*imatrix.Entry)
		for i, h := range s.Headers() {
			e, err := s.Read(i)
			require.NoError(t, err)
			all[h.Name] = e
		}
		return all
	}
	a, b := names(want), names(got)
	require.Len(t, b, len(a))
	worst, columns, beyond := 1.0, 0, 0
	for name, x := range a {
		y := b[name]
		require.NotNil(t, y, name)
		assert.Equal(t, x.Calls, y.Calls, name)
		u, v := x.Means(0), y.Means(0)
		require.Len(t, v, len(u), name)
		var uv, uu, vv, sum float64
		for i := range u {
			p, q := float64(u[i]), float64(v[i])
			uv, uu, vv, sum = uv+p*q, uu+p*p, vv+q*q, sum+p
		}
		for i := range u {
			if d := math.Abs(float64(u[i]) - float64(v[i])); d > 0.01*float64(u[i]) && d > 1e-6*sum/float64(len(u)) {
				beyond++
			}
		}
		columns += len(u)
		worst = min(worst, uv/math.Sqrt(uu*vv))
	}
	t.Logf("cosine: worst %.7f; columns off by more than 1 %%: %d of %d", worst, beyond, columns)
	if lanesum.Accelerated() {
		assert.Greater(t, worst, 0.99999)
		assert.Less(t, beyond, columns/100)
		return
	}
	assert.Greater(t, worst, 0.9999)
	assert.Less(t, beyond, columns/20)
}

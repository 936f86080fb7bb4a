package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

const scaledCases = "../../scaled/testdata/cases.safetensors"

// The reference is what torch makes of every convention (scaled/testdata/make_cases.py).
func TestFP8ToBF16EqualsTorch(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.safetensors")
	r := ok(t, "fp8-to-bf16", scaledCases, out)
	require.Contains(t, r.stdout, "fp8")
	require.Contains(t, r.stderr, "stray.foo_scale", "what only looks like a scale is kept and named")
	want := contents(t, "../../scaled/testdata/bf16.safetensors")
	got := contents(t, out)
	require.Len(t, got, len(want))
	for name, w := range want {
		g, found := got[name]
		require.True(t, found, name)
		require.Equal(t, w.Info, g.Info)
		if name == "all_e4m3.weight" || name == "all_e5m2.weight" {
			requireSameBF16(t, name, w.data, g.data)
			continue
		}
		require.Equal(t, w.data, g.data, name)
	}
	f, err := safetensors.Open(out)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"format": "pt", "made": "by make_cases.py", "conversion": "fp8_weight_scale_to_bf16"}, f.Metadata)
	require.NoError(t, f.Close())
}

// requireSameBF16 compares numbers; a NaN stays one, whatever its payload.
func requireSameBF16(t *testing.T, name string, want, got []byte) {
	t.Helper()
	for i := 0; i < len(want); i += 2 {
		w, g := uint16(want[i])|uint16(want[i+1])<<8, uint16(got[i])|uint16(got[i+1])<<8
		if w&0x7fff > 0x7f80 && g&0x7fff > 0x7f80 {
			continue
		}
		require.Equal(t, w, g, "%s, element %d", name, i/2)
	}
}

func TestFP8ToBF16Usage(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.safetensors")
	fails(t, exitUsage, "safetensors", "fp8-to-bf16", scaledCases, filepath.Join(dir, "out.gguf"))
	fails(t, exitUsage, "want IN and OUT", "fp8-to-bf16", scaledCases)
	fails(t, exitFailed, "no such file", "fp8-to-bf16", filepath.Join(dir, "none.safetensors"), out)
	r := ok(t, "fp8-to-bf16", scaledCases, out, "--dry-run")
	require.Contains(t, r.stdout, "nvfp4.weight")
	require.NoFileExists(t, out)
	require.NoError(t, os.WriteFile(out, []byte("old"), 0o666))
	fails(t, exitFailed, "already exists", "fp8-to-bf16", scaledCases, out)
	ok(t, "fp8-to-bf16", scaledCases, out, "--overwrite")
}

func TestFP8SchemesThatAreNotKnown(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, zeros("a.weight", tensor.U8, 4, 4), raw{tensor.Info{Name: "a.weight.absmax", DType: tensor.F32, Shape: []int64{1}}, f32s(1)})
	out := filepath.Join(dir, "out.safetensors")
	fails(t, exitFailed, "bitsandbytes", "fp8-to-bf16", in, out)
	fails(t, exitFailed, `"a.weight.absmax"`, "convert", "-m", in, "-o", out)
	require.NoFileExists(t, out)
}

// A scaled checkpoint goes to a quantized type in one pass, with the bytes of a
// conversion from float32.
func TestConvertMultipliesScalesOnTheWay(t *testing.T) {
	dir := t.TempDir()
	one, f32, two := filepath.Join(dir, "one.gguf"), filepath.Join(dir, "f32.safetensors"), filepath.Join(dir, "two.gguf")
	only := []string{"--include", `^tile\.weight|^mxfp8_big_comfy\.weight|^nvfp4_big\.weight|^convrot\.weight`}
	ok(t, append([]string{"convert", "-m", scaledCases, "-o", one, "--type", "q5_0"}, only...)...)
	ok(t, append([]string{"convert", "-m", scaledCases, "-o", f32, "--tensor-type-rules", ".=f32"}, only...)...)
	ok(t, "convert", "-m", f32, "-o", two, "--type", "q5_0")
	a, b := contents(t, one), contents(t, two)
	quantized := 0
	for name, x := range a {
		if !x.DType.IsQuantized() {
			continue // kept: BF16 in one, F32 in two
		}
		quantized++
		require.Equal(t, x.Info, b[name].Info)
		require.Equal(t, x.data, b[name].data, name)
	}
	require.Equal(t, 2, quantized)
}

func TestKeepScales(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.safetensors")
	ok(t, "convert", "-m", scaledCases, "-o", out, "--keep-scales", "--keep-unused")
	got := contents(t, out)
	for name, w := range contents(t, scaledCases) {
		g := got[name]
		if w.DType == tensor.I64 {
			continue // narrowed, as without scales
		}
		if w.DType == tensor.F8E4M3 || w.DType == tensor.U8 || w.DType == tensor.I8 {
			require.Equal(t, w.Info, g.Info, name)
			require.Equal(t, w.data, g.data, name)
		}
	}
}

// Every float becomes BF16, also one without elements; that nothing had scales is said.
func TestFP8WithoutScales(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 2, 4), zeros("none", tensor.F32, 0, 4), zeros("ids", tensor.I64, 3))
	out := filepath.Join(dir, "out.safetensors")
	r := ok(t, "fp8-to-bf16", in, out)
	require.Contains(t, r.stderr, "no weight has scales")
	require.Equal(t, map[string]string{"a.weight": "bf16", "none": "bf16", "ids": "i64"}, types(t, out))
}

package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/convert"
	"github.com/sdtool/sdtool/tensor"
)

func repeat(name string, d tensor.DType, code byte, shape ...int64) raw {
	x := zeros(name, d, shape...)
	for i := range x.data {
		x.data[i] = code
	}
	return x
}

func filled(name string, v float32, shape ...int64) raw {
	x := zeros(name, tensor.F32, shape...)
	for i := 0; i < len(x.data); i += 4 {
		binary.LittleEndian.PutUint32(x.data[i:], math.Float32bits(v))
	}
	return x
}

func TestFault023OddTypes(t *testing.T) {
	ids := zeros("position_ids", tensor.I64, 1, 77)
	for i := range 77 {
		binary.LittleEndian.PutUint64(ids.data[8*i:], uint64(i))
	}
	wide := zeros("wide", tensor.I64, 1)
	binary.LittleEndian.PutUint64(wide.data, 1<<40)
	double := raw{tensor.Info{Name: "double", DType: tensor.F64, Shape: []int64{2, 32}}, bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 64)} // 1.5
	bytesOf := raw{tensor.Info{Name: "bytes", DType: tensor.U8, Shape: []int64{4}}, []byte{0, 1, 200, 255}}
	flags := raw{tensor.Info{Name: "flags", DType: tensor.Bool, Shape: []int64{4}}, []byte{0, 1, 1, 0}}
	powers := raw{tensor.Info{Name: "powers", DType: tensor.F8E8M0, Shape: []int64{4}}, []byte{127, 128, 126, 0}}
	all := []raw{ids, wide, double, bytesOf, flags, powers}

	for _, typ := range []string{"keep", "q8_0", "f16"} {
		out := convertOne(t, "out.gguf", []string{"--type", typ}, all...)
		got := contents(t, out)
		require.Len(t, got, len(all), typ)
		require.Equal(t, "i32", got["position_ids"].DType.String())
		require.EqualValues(t, 76, binary.LittleEndian.Uint32(got["position_ids"].data[4*76:]))
		require.Equal(t, "i64", got["wide"].DType.String())
		require.EqualValues(t, 1<<40, binary.LittleEndian.Uint64(got["wide"].data))
		require.Equal(t, []byte{0, 0, 1, 0, 200, 0, 255, 0}, got["bytes"].data)
		require.Equal(t, []byte{0, 1, 1, 0}, got["flags"].data)
		want := map[string]string{"keep": "f32", "q8_0": "q8_0", "f16": "f16"}[typ]
		require.Equal(t, want, got["double"].DType.String())
		if typ == "keep" {
			require.Equal(t, f32s(1.5, 1.5), got["double"].data[:8])
			require.Equal(t, f32s(1, 2, 0.5, float32(math.Ldexp(1, -127))), got["powers"].data)
		}
	}
	got := contents(t, convertOne(t, "out.safetensors", nil, all...))
	require.Equal(t, bytesOf.data, got["bytes"].data)
	require.Equal(t, "u8", got["bytes"].DType.String())
	require.Equal(t, "bool", got["flags"].DType.String())
	require.Equal(t, "f8_e8m0", got["powers"].DType.String())
}

func TestFault024ScaledFP8(t *testing.T) {
	weight := repeat("a.weight", tensor.F8E4M3, 0x38, 2, 32) // all 1.0
	scale := func(name string, v float32) raw {
		return raw{tensor.Info{Name: name, DType: tensor.F32}, f32s(v)}
	}
	for _, name := range []string{"a.scale_weight", "a.weight_scale"} {
		got := contents(t, convertOne(t, "out.gguf", []string{"--type", "f32"}, weight, scale(name, 0.002)))
		require.Len(t, got, 1)
		require.Equal(t, f32s(0.002), got["a.weight"].data[:4])
		// Without a type, the products need BF16.
		require.Equal(t, map[string]string{"a.weight": "bf16"}, types(t, convertOne(t, "out.gguf", nil, weight, scale(name, 0.002))))
	}
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, weight, scale("a.scale_weight", 1), scale("a.weight_scale", 2))
	fails(t, exitFailed, "a.weight", "convert", "-m", in, "-o", filepath.Join(dir, "out.gguf"))

	// The neighbour neither multiplies nor drops.
	compat := contents(t, convertOne(t, "out.gguf", []string{"--type", "f32", "--compat", "sd-cli"}, weight, scale("a.weight_scale", 2)))
	require.Equal(t, f32s(1), compat["a.weight"].data[:4])
	require.Equal(t, f32s(2), compat["a.weight_scale"].data)
	kept := types(t, convertOne(t, "out.safetensors", []string{"--keep-scales"}, weight, scale("a.weight_scale", 2)))
	require.Equal(t, map[string]string{"a.weight": "f8_e4m3", "a.weight_scale": "f32"}, kept)
}

func TestFault025ScaleShapes(t *testing.T) {
	weight := repeat("a.weight", tensor.F8E4M3, 0x38, 3, 32)
	var first []byte
	for i, shape := range [][]int64{nil, {1}, {1, 1}} {
		scale := raw{tensor.Info{Name: "a.weight_scale", DType: tensor.F32, Shape: shape}, f32s(0.5)}
		got := contents(t, convertOne(t, "out.gguf", []string{"--type", "q8_0"}, weight, scale))["a.weight"]
		if i == 0 {
			first = got.data
		}
		require.Equal(t, first, got.data)
	}
	for _, shape := range [][]int64{{3}, {3, 1}} { // fault 26: one factor a row
		scale := raw{tensor.Info{Name: "a.weight_scale", DType: tensor.F32, Shape: shape}, f32s(1, 2, 3)}
		got := contents(t, convertOne(t, "out.gguf", []string{"--type", "f32"}, weight, scale))["a.weight"]
		for row := range 3 {
			require.Equal(t, f32s(float32(row+1)), got.data[4*32*row:4*32*row+4])
		}
	}
}

func TestFault028Companions(t *testing.T) {
	weight := repeat("a.weight", tensor.F8E4M3, 0x38, 2, 32)
	one := func(name string) raw {
		return raw{tensor.Info{Name: name, DType: tensor.F32, Shape: []int64{1}}, f32s(1)}
	}
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, weight, one("a.weight_scale"), one("a.input_scale"), one("foo_scale"))
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out)
	require.Equal(t, map[string]string{"a.weight": "bf16", "foo_scale": "f32"}, types(t, out))
	require.Contains(t, r.stdout, "a.input_scale")
}

func TestFault029EmptyTensors(t *testing.T) {
	got := contents(t, convertOne(t, "out.safetensors", []string{"--type", "f16"}, zeros("scaled_fp8", tensor.F8E4M3, 0), zeros("none", tensor.F32, 0, 4), rampTensor("a", 2, 2)))
	require.NotContains(t, got, "scaled_fp8")
	require.Equal(t, []int64{0, 4}, got["none"].Shape)
	require.Contains(t, contents(t, convertOne(t, "out.gguf", []string{"--type", "q8_0"}, zeros("none", tensor.F32, 0, 32), rampTensor("a", 2, 2))), "none")
}

func TestFault032Overflow(t *testing.T) {
	row := func(v float32) raw {
		x := zeros("a.weight", tensor.F32, 2, 32)
		copy(x.data, f32s(v))
		return x
	}
	for typ, v := range map[string]float32{"f16": 70000, "q4_0": 6e5, "q8_0": 1e7} {
		dir := t.TempDir()
		in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, row(v))
		r := ok(t, "convert", "-m", in, "-o", filepath.Join(dir, "out.gguf"), "--type", typ)
		require.Contains(t, r.stderr, "too large for "+typ)
		require.Contains(t, r.stderr, "a.weight")
		r = ok(t, "convert", "-m", in, "-o", filepath.Join(dir, "quiet.gguf"), "--type", typ, "--quiet")
		require.Contains(t, r.stderr, "too large for "+typ, "a loss is no chatter")
	}
}

func TestFault033RulesForF8(t *testing.T) {
	norm, weight := zeros("norm.weight", tensor.BF16, 8), zeros("a.weight", tensor.BF16, 8, 32)
	got := types(t, convertOne(t, "out.safetensors", []string{"--type", "f8_e4m3"}, norm, weight))
	require.Equal(t, map[string]string{"norm.weight": "bf16", "a.weight": "f8_e4m3"}, got)
}

func TestFault034Metadata(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), map[string]string{"format": "pt", "modelspec.title": "x"}, rampTensor("a", 2, 2))
	g, back := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "back.safetensors")
	ok(t, "convert", "-m", in, "-o", g)
	ok(t, "convert", "-m", g, "-o", back)
	cp, err := convert.Open(back, convert.OpenOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, cp.Close()) }()
	require.Equal(t, "pt", cp.Strings["format"])
	require.Equal(t, "x", cp.Strings["modelspec.title"])

	head, err := os.ReadFile(back)
	require.NoError(t, err)
	require.Contains(t, string(head), `"dtype":"F32"`)
	plain := convertOne(t, "plain.safetensors", []string{"--no-provenance"}, rampTensor("a", 2, 2))
	text, err := os.ReadFile(plain)
	require.NoError(t, err)
	require.NotContains(t, string(text), "__metadata__")
}

// Tensors that usually keep their type cannot where the output has no such type.
func TestQuantizedToSafetensors(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("token_embedding.weight", 4, 32), rampTensor("a.weight", 4, 32), rampTensor("a.bias", 32))
	g, out := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "out.safetensors")
	ok(t, "convert", "-m", in, "-o", g, "--tensor-type-rules", "weight=q8_0")
	fails(t, exitFailed, "choose a type with --type", "convert", "-m", g, "-o", out)
	ok(t, "convert", "-m", g, "-o", out, "--type", "f16")
	require.Equal(t, map[string]string{"token_embedding.weight": "f16", "a.weight": "f16", "a.bias": "f32"}, types(t, out))
}

func TestFault035Dims(t *testing.T) {
	got := contents(t, convertOne(t, "out.gguf", []string{"--type", "q8_0"}, zeros("a.weight", tensor.F16, 4, 64)))["a.weight"]
	require.Equal(t, []int64{4, 64}, got.Shape)
	require.Len(t, got.data, 272)
}

func TestFault037Shapes(t *testing.T) {
	dir := t.TempDir()
	ones := filled("ones", 1, 1, 6, 32)
	cube, cube2 := zeros("patch.weight", tensor.F16, 8, 16, 1, 2, 2), zeros("vace.patch.weight", tensor.F16, 8, 16, 1, 2, 2) // fault 38
	scalar := raw{tensor.Info{Name: "log_scale", DType: tensor.F32}, f32s(2.5)}                                              // fault 39
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, ones, cube, cube2, scalar)
	for _, args := range [][]string{nil, {"--native-axes"}} {
		g, back := filepath.Join(dir, "a.gguf"), filepath.Join(dir, "back.safetensors")
		ok(t, append([]string{"convert", "-m", in, "-o", g, "--overwrite"}, args...)...)
		got := contents(t, g)
		require.Equal(t, []int64{1, 6, 32}, got["ones"].Shape)
		want := []int64{128, 1, 2, 2}
		if args != nil {
			want = cube.Shape
		}
		require.Equal(t, want, got["patch.weight"].Shape)
		ok(t, "convert", "-m", g, "-o", back, "--overwrite")
		for name, x := range contents(t, back) {
			require.Equal(t, contents(t, in)[name].Shape, x.Shape, name)
			require.Equal(t, contents(t, in)[name].data, x.data, name)
		}
	}
}

func TestFault040RowsThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, zeros("a.weight", tensor.F16, 4, 96), zeros("b.weight", tensor.F16, 4, 30))
	out := filepath.Join(dir, "out.gguf")
	rules := []string{"convert", "-m", in, "-o", out, "--overwrite", "--tensor-type-rules", "a=q4_K,b=q8_0"}
	r := ok(t, rules...)
	require.Equal(t, map[string]string{"a.weight": "f16", "b.weight": "f16"}, types(t, out))
	require.Contains(t, r.stdout, "2 of 2 tensors kept as their rows do not fit")
	ok(t, append(rules, "--fallback", "q5_0,f32")...)
	require.Equal(t, map[string]string{"a.weight": "q5_0", "b.weight": "f32"}, types(t, out))
	fails(t, exitFailed, "a.weight", append(rules, "--strict")...)
}

func TestFault041Swaps(t *testing.T) {
	dir := t.TempDir()
	var tensors []raw
	for _, c := range "abcdefghij" {
		tensors = append(tensors, zeros(string(c)+".weight", tensor.F16, 4, 288))
	}
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, tensors...)
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K", "--fallback", "q8_0")
	require.Contains(t, r.stdout, "10 of 10 tensors of a fallback type")
	require.Contains(t, r.stdout, "8.50 bits per weight")
	r = ok(t, "convert", "-m", in, "--type", "q4_K", "--dry-run")
	require.Contains(t, r.stdout, "rows of 288 are not a multiple of q4_K's block of 256")
	fails(t, exitFailed, "(--strict)", "convert", "-m", in, "-o", out, "--overwrite", "--type", "q4_K", "--strict")
}

func TestFault042PatchEmbedding(t *testing.T) {
	got := contents(t, convertOne(t, "out.gguf", []string{"--type", "q4_K", "--fallback", "f16"}, zeros("patch.weight", tensor.F32, 8, 3, 14, 14)))["patch.weight"]
	require.Equal(t, "f16", got.DType.String())
	require.Len(t, got.data, 8*3*14*14*2)
}

func TestFault043Vectors(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, zeros("norm.weight", tensor.BF16, 256), zeros("a.bias", tensor.F32, 256),
		zeros("a.weight", tensor.BF16, 256, 256), zeros("disguised", tensor.BF16, 1, 256))
	out := filepath.Join(dir, "out.gguf")
	ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K")
	require.Equal(t, map[string]string{"norm.weight": "bf16", "a.bias": "f32", "a.weight": "q4_K", "disguised": "bf16"}, types(t, out))
	ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K", "--overwrite", "--tensor-type-rules", `^norm\.weight$=q4_K`)
	require.Equal(t, "q4_K", types(t, out)["norm.weight"])
	ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K", "--overwrite", "--compat", "sd-cli")
	require.Equal(t, map[string]string{"norm.weight": "q4_K", "a.bias": "f32", "a.weight": "q4_K", "disguised": "q4_K"}, types(t, out))
}

func TestFault044SplitProjections(t *testing.T) {
	dir := t.TempDir()
	base := "transformer_blocks.0.attn."
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil,
		filled(base+"to_q.weight", 1, 4, 8), filled(base+"to_k.weight", 2, 4, 8), filled(base+"to_v.weight", 3, 4, 8))
	out := filepath.Join(dir, "out.safetensors")
	ok(t, "convert", "-d", in, "-o", out, "--convert-name", "--family", "flux")
	got := contents(t, out)
	require.Len(t, got, 1)
	for name, x := range got {
		require.True(t, strings.HasSuffix(name, "img_attn.qkv.weight"), name)
		require.Equal(t, []int64{12, 8}, x.Shape)
		require.Equal(t, f32s(1), x.data[:4])
		require.Equal(t, f32s(2), x.data[4*32:4*33])
		require.Equal(t, f32s(3), x.data[4*95:])
	}
	ok(t, "convert", "-d", in, "-o", out, "--overwrite")
	require.Len(t, contents(t, out), 3)
}

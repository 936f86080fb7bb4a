package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func TestFault045FirstRuleWins(t *testing.T) {
	out := convertOne(t, "out.gguf", []string{"--tensor-type-rules", "a=q8_0", "--tensor-type-rules", "a.*=f16"}, rampTensor("a.weight", 4, 32))
	require.Equal(t, "q8_0", types(t, out)["a.weight"])
}

func TestIdleRules(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("a.weight", 4, 32))
	r := ok(t, "convert", "-m", in, "-o", filepath.Join(dir, "out.gguf"), "--tensor-type-rules", "a=q8_0,weight=f16,nope=f16", "--preset", "wan")
	require.Contains(t, r.stderr, "rule weight=f16 (--tensor-type-rules) decides nothing")
	require.Contains(t, r.stderr, "rule nope=f16 (--tensor-type-rules) finds no tensor")
	require.NotContains(t, r.stderr, "preset")
}

func TestFault047RulesWithAnyDefault(t *testing.T) {
	for _, args := range [][]string{{"--type", "f16"}, nil, {"--type", "keep"}} {
		out := convertOne(t, "out.gguf", append(args, "--tensor-type-rules", "w=q8_0"), rampTensor("w", 4, 32))
		require.Equal(t, "q8_0", types(t, out)["w"])
	}
}

func TestFault048RuleSyntax(t *testing.T) {
	out := convertOne(t, "out.gguf", []string{"--tensor-type-rules", `blocks\.[0-9]{1,2}\.w=q8_0,w=q4_k`}, rampTensor("blocks.12.w", 4, 256), rampTensor("w", 4, 256))
	require.Equal(t, map[string]string{"blocks.12.w": "q8_0", "w": "q4_K"}, types(t, out))
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w", 4, 256))
	for rule, words := range map[string]string{
		"w=q9":          `unknown type "q9"`,
		"(=f16":         "missing closing )",
		"(?!vae)w=q8_0": "negative look-ahead",
		"w":             "no '=TYPE'",
	} {
		r := fails(t, exitUsage, words, "convert", "-m", in, "-o", filepath.Join(dir, "o.gguf"), "--tensor-type-rules", rule)
		require.Contains(t, r.stderr, "^")
	}
	file := filepath.Join(dir, "my.rules")
	require.NoError(t, os.WriteFile(file, []byte("# mine\n\nw=q5_0\n"), 0o600))
	ok(t, "convert", "-m", in, "-o", filepath.Join(dir, "o.gguf"), "--tensor-type-rules", "@"+file)
	require.Equal(t, "q5_0", types(t, filepath.Join(dir, "o.gguf"))["w"])
	r := ok(t, "convert", "-m", in, "--tensor-type-rules", "@"+file, "--explain", "w")
	require.Contains(t, r.stdout, "by rule w=q5_0 ("+file+":3)")
	fails(t, exitFailed, "no tensor", "convert", "-m", in, "--type", "f16", "--explain", "nope")
}

func TestFault050Architecture(t *testing.T) {
	tests := []struct {
		names []string
		want  string // family; "" if it must not be known
	}{
		{[]string{"double_blocks.0.img_attn.qkv.weight", "single_blocks.0.linear1.weight", "img_in.weight"}, "flux"},
		{[]string{"transformer_blocks.0.img_mod.1.weight"}, "qwen_image"},
		{[]string{"joint_blocks.0.x_block.attn.qkv.weight", "x_embedder.proj.weight"}, "sd3"},
		{[]string{"something.else"}, ""},
	}
	for _, tt := range tests {
		for _, prefix := range []string{"", "model.diffusion_model."} { // fault 51: with and without the prefix
			var tensors []raw
			for _, name := range tt.names {
				tensors = append(tensors, rampTensor(prefix+name, 2, 32))
			}
			out := convertOne(t, "out.gguf", nil, tensors...)
			r := ok(t, "inspect", out)
			if tt.want == "" {
				require.NotContains(t, r.stdout, "general.architecture")
				continue
			}
			require.Regexp(t, `general\.architecture +"`+tt.want+`"`, r.stdout, prefix)
		}
	}
}

func TestFault053ConvolutionsKeepTheirShape(t *testing.T) {
	conv, linear := zeros("a.proj_in.weight", tensor.F16, 64, 64, 1, 1), zeros("b.proj_in.weight", tensor.F16, 64, 64)
	got := contents(t, convertOne(t, "out.gguf", []string{"--type", "q8_0"}, conv, linear))
	require.Equal(t, conv.Shape, got["a.proj_in.weight"].Shape)
	require.Equal(t, "f16", got["a.proj_in.weight"].DType.String())
	require.Equal(t, "q8_0", got["b.proj_in.weight"].DType.String())
}

// matrixFile writes a legacy importance matrix.
func matrixFile(t *testing.T, path string, calls int32, entries map[string][]float32) string {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(entries)))
	for name, values := range entries {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
		b = append(b, name...)
		b = binary.LittleEndian.AppendUint32(b, uint32(calls))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(values)))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	require.NoError(t, os.WriteFile(path, binary.LittleEndian.AppendUint32(b, 0), 0o600))
	return path
}

func slope(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i*i + 1)
	}
	return values
}

func TestFault055ZeroImportance(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w", 2, 256))
	partly := slope(256)
	clear(partly[:32])
	for name, values := range map[string][]float32{"partly": partly, "all": make([]float32, 256)} {
		matrix := matrixFile(t, filepath.Join(dir, name+".dat"), 1, map[string][]float32{"w": values})
		for _, typ := range []string{"q2_K", "q4_K", "q5_K", "iq4_nl"} {
			out, plain := filepath.Join(dir, "o.gguf"), filepath.Join(dir, "o.safetensors")
			ok(t, "convert", "-m", in, "-o", out, "--overwrite", "--type", typ, "--imatrix", matrix)
			ok(t, "convert", "-m", out, "-o", plain, "--overwrite", "--type", "f32")
			data := contents(t, plain)["w"].data
			for i := 0; i < len(data); i += 4 {
				v := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
				require.False(t, math.IsNaN(v) || math.IsInf(v, 0), "%s %s", name, typ)
				require.Less(t, math.Abs(v), 2.0)
			}
		}
	}
}

func TestFault060Coverage(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("double_blocks.0.img_attn.qkv.weight", 2, 256), rampTensor("other.weight", 2, 256))
	out := filepath.Join(dir, "out.gguf")
	// The matrix has the prefix that the model lacks.
	matrix := matrixFile(t, filepath.Join(dir, "m.dat"), 1, map[string][]float32{"model.diffusion_model.double_blocks.0.img_attn.qkv.weight": slope(256)})
	args := []string{"convert", "-m", in, "-o", out, "--overwrite", "--type", "q4_K", "--imatrix", matrix}
	r := ok(t, args...)
	require.Contains(t, r.stdout, "imatrix: 1 of 2 tensors")
	require.Contains(t, r.stdout, "without an entry: other.weight")
	fails(t, exitFailed, "other.weight", append(args, "--require-imatrix")...)

	foreign := matrixFile(t, filepath.Join(dir, "f.dat"), 1, map[string][]float32{"blk.0.attn_q.weight": slope(256)})
	args[len(args)-1] = foreign
	fails(t, exitFailed, "fits none", args...)
	ok(t, append(args, "--allow-no-match")...)

	narrow := matrixFile(t, filepath.Join(dir, "n.dat"), 1, map[string][]float32{"other.weight": slope(64)})
	args[len(args)-1] = narrow
	fails(t, exitFailed, "other.weight", args...)
}

// Three projections become one tensor, which takes the importance of its parts.
func TestImatrixOfFusedTensor(t *testing.T) {
	dir := t.TempDir()
	base := "transformer_blocks.0.attn."
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil,
		rampTensor(base+"to_q.weight", 4, 256), rampTensor(base+"to_k.weight", 4, 256), rampTensor(base+"to_v.weight", 4, 256))
	fused, plain := filepath.Join(dir, "fused.gguf"), filepath.Join(dir, "plain.gguf")
	for _, name := range []string{ // as the input has it, as the neighbour has it, as the output has it
		base + "to_q.weight", "model.diffusion_model.double_blocks.0.img_attn.qkv.weight", "double_blocks.0.img_attn.qkv.weight",
	} {
		matrix := matrixFile(t, filepath.Join(dir, "m.dat"), 1, map[string][]float32{name: slope(256)})
		r := ok(t, "convert", "-d", in, "-o", fused, "--type", "q4_K", "--imatrix", matrix, "--names", "ldm", "--family", "flux", "--overwrite")
		require.Contains(t, r.stdout, "imatrix: 1 of 1 tensor", name)
	}
	ok(t, "convert", "-d", in, "-o", plain, "--type", "q4_K", "--names", "ldm", "--family", "flux")
	name := "model.diffusion_model.double_blocks.0.img_attn.qkv.weight"
	require.Equal(t, []int64{12, 256}, contents(t, fused)[name].Shape)
	require.NotEqual(t, contents(t, plain)[name].data, contents(t, fused)[name].data)
}

// Each expert of a stacked tensor has its own importance; one that was never
// used gets weight 1 and is reported.
func TestFault054Experts(t *testing.T) {
	dir := t.TempDir()
	stacked := rampTensor("w", 3, 2, 256)
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, stacked)
	sums := append(append(slope(256), make([]float32, 256)...), slope(256)...)
	sum := raw{tensor.Info{Name: "w.in_sum2", DType: tensor.F32, Shape: []int64{3, 256}}, f32s(sums...)}
	counts := raw{tensor.Info{Name: "w.counts", DType: tensor.F32, Shape: []int64{3, 1}}, f32s(1, 0, 1)}
	matrix := writeFile(t, filepath.Join(dir, "m.gguf"), map[string]string{"general.type": "imatrix"}, sum, counts)
	out, plain := filepath.Join(dir, "out.gguf"), filepath.Join(dir, "plain.gguf")
	r := ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K", "--imatrix", matrix)
	require.Contains(t, r.stdout, "experts that saw nothing get weight 1 in w")
	ok(t, "convert", "-m", in, "-o", plain, "--type", "q4_K")
	with, without := contents(t, out)["w"].data, contents(t, plain)["w"].data
	third := len(with) / 3
	require.NotEqual(t, without[:third], with[:third])
	require.Equal(t, without[third:2*third], with[third:2*third])
	require.NotEqual(t, without[2*third:], with[2*third:])
}

func TestFault061TypesThatUseNone(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w", 2, 256))
	matrix := matrixFile(t, filepath.Join(dir, "m.dat"), 1, map[string][]float32{"w": slope(256)})
	with, without := filepath.Join(dir, "with.gguf"), filepath.Join(dir, "without.gguf")
	ok(t, "convert", "-m", in, "-o", with, "--type", "q8_0", "--imatrix", matrix)
	ok(t, "convert", "-m", in, "-o", without, "--type", "q8_0")
	require.Equal(t, contents(t, without)["w"].data, contents(t, with)["w"].data)
	// And those that do use it get other bytes.
	ok(t, "convert", "-m", in, "-o", with, "--type", "q4_K", "--imatrix", matrix, "--overwrite")
	ok(t, "convert", "-m", in, "-o", without, "--type", "q4_K", "--overwrite")
	require.NotEqual(t, contents(t, without)["w"].data, contents(t, with)["w"].data)
}

func TestFault062TypesThatNeedOne(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w", 2, 256))
	out := filepath.Join(dir, "out.gguf")
	for _, typ := range []string{"iq2_xxs", "iq2_xs", "iq1_s"} {
		fails(t, exitFailed, "needs an importance matrix", "convert", "-m", in, "-o", out, "--type", typ)
		require.NoFileExists(t, out)
	}
	for _, typ := range []string{"iq4_nl", "iq3_s"} {
		ok(t, "convert", "-m", in, "-o", out, "--type", typ, "--overwrite")
	}
	ok(t, "convert", "-m", in, "-o", out, "--type", "iq1_s", "--overwrite", "--allow-no-imatrix")
}

func TestFault063MatricesAreAdded(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("w", 2, 256))
	one := matrixFile(t, filepath.Join(dir, "1.dat"), 1, map[string][]float32{"w": slope(256)})
	three := matrixFile(t, filepath.Join(dir, "3.dat"), 3, map[string][]float32{"other": slope(64)})
	out := filepath.Join(dir, "out.gguf")
	r := ok(t, "convert", "-m", in, "-o", out, "--type", "q4_K", "--imatrix", one, "--imatrix", three)
	require.Contains(t, r.stdout, "2 entries")
	bad := filepath.Join(dir, "bad.dat")
	require.NoError(t, os.WriteFile(bad, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 0o600))
	fails(t, exitFailed, bad, "convert", "-m", in, "-o", out, "--type", "q4_K", "--imatrix", bad, "--overwrite")
}

func TestFault067SameBytesForAnyThreads(t *testing.T) {
	if testing.Short() {
		t.Skip("quantizes 64 Mi weights several times")
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	infos := []tensor.Info{{Name: "big", DType: tensor.F32, Shape: []int64{2048, 4096}}}
	var tensors []raw
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		infos = append(infos, tensor.Info{Name: string(c), DType: tensor.F32, Shape: []int64{3, 256}})
		tensors = append(tensors, rampTensor(string(c), 3, 256))
	}
	writeSparse(t, in, infos, tensors, 1)
	var first map[string]raw
	for _, args := range [][]string{{"-t", "1"}, {"-t", "2"}, {"-t", "7", "--max-memory", "64MiB"}, {"-t", "3", "--max-memory", "3MiB"}} {
		out := filepath.Join(dir, "out.gguf")
		ok(t, append([]string{"convert", "-m", in, "-o", out, "--type", "q4_0", "--overwrite"}, args...)...)
		got := contents(t, out)
		if first == nil {
			first = got
		}
		require.Equal(t, first, got, args)
	}
}

package main

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
)

// order lists a file's tensors as they lie in it.
func order(t *testing.T, path string) []string {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	var names []string
	for _, x := range f.Tensors {
		names = append(names, x.Name)
	}
	require.NoError(t, f.Close())
	return names
}

func TestRenameSeFi(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "transformer"), 0o777))
	q, k, v := rampTensor("backbone.transformer_blocks.0.attn.to_q.weight", 2, 8), rampTensor("backbone.transformer_blocks.0.attn.to_k.weight", 2, 8), rampTensor("backbone.transformer_blocks.0.attn.to_v.weight", 2, 8)
	k.data = append([]byte(nil), ramp(32)[:64]...)
	shift := rampTensor("backbone.norm_out.linear.weight", 4, 2)
	fp8 := zeros("backbone.x_embedder.weight", tensor.F8E4M3, 3, 5)
	writeFile(t, filepath.Join(dir, "transformer", "diffusion_pytorch_model.safetensors"), map[string]string{"format": "pt"}, v, shift, q, fp8, k)
	out := filepath.Join(dir, "out.safetensors")
	ok(t, "rename", "sefi", dir, out)
	require.Equal(t, []string{"double_blocks.0.img_attn.qkv.weight", "final_layer.adaLN_modulation.1.weight", "img_in.weight"}, order(t, out))
	got := contents(t, out)
	require.Equal(t, append(append(append([]byte(nil), q.data...), k.data...), v.data...), got["double_blocks.0.img_attn.qkv.weight"].data)
	require.Equal(t, []int64{6, 8}, got["double_blocks.0.img_attn.qkv.weight"].Shape)
	require.Equal(t, append(append([]byte(nil), shift.data[16:]...), shift.data[:16]...), got["final_layer.adaLN_modulation.1.weight"].data)
	require.Equal(t, tensor.F8E4M3, got["img_in.weight"].DType, "bytes are preserved")
	head, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Zero(t, binary.LittleEndian.Uint64(head)%8, "the header is padded to 8")

	quantized := filepath.Join(dir, "out.gguf")
	ok(t, "rename", "sefi", dir, quantized, "--tensor-type-rules", "qkv=f16")
	require.Equal(t, "f16", types(t, quantized)["double_blocks.0.img_attn.qkv.weight"])
}

func TestRenameSeFiRefusesPartsThatDoNotFit(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "model.safetensors"), nil,
		rampTensor("backbone.transformer_blocks.4.attn.to_q.weight", 2, 8), rampTensor("backbone.transformer_blocks.4.attn.to_k.weight", 3, 8), rampTensor("backbone.transformer_blocks.4.attn.to_v.weight", 2, 8))
	fails(t, exitFailed, "double_blocks.4.img_attn.qkv.weight", "rename", "sefi", in, filepath.Join(dir, "out.safetensors"))
	in = writeFile(t, filepath.Join(dir, "part.safetensors"), nil, rampTensor("backbone.transformer_blocks.4.attn.to_q.weight", 2, 8), rampTensor("x", 1))
	r := ok(t, "rename", "sefi", in, filepath.Join(dir, "out.safetensors"))
	require.Contains(t, r.stderr, "parts of what they belong to are missing")
}

// The plan names all parts of what is fused.
func TestRenameDryRunShowsOldNames(t *testing.T) {
	dir := t.TempDir()
	part := func(x string) string { return "backbone.transformer_blocks.0.attn.to_" + x + ".weight" }
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor(part("q"), 2, 8), rampTensor(part("k"), 2, 8), rampTensor(part("v"), 2, 8))
	out := filepath.Join(dir, "out.safetensors")
	r := ok(t, "rename", "sefi", in, out, "--dry-run")
	require.Regexp(t, regexp.QuoteMeta(part("q")+" + "+part("k")+" + "+part("v"))+` +→ +double_blocks\.0\.img_attn\.qkv\.weight`, r.stdout)
	var plan planJSON
	require.NoError(t, json.Unmarshal([]byte(ok(t, "rename", "sefi", in, out, "--dry-run", "--json").stdout), &plan))
	require.Equal(t, []string{part("q"), part("k"), part("v")}, plan.Outputs[0].Tensors[0].Inputs)
}

// A table that finds nothing is an error: the input is not what it is for.
func TestRenameRefusesWhatItDoesNotKnow(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("decoder.conv_in.weight", 2, 8))
	table := filepath.Join(dir, "names.txt")
	require.NoError(t, os.WriteFile(table, []byte("^nothing -> x\n"), 0o666))
	out := filepath.Join(dir, "out.safetensors")
	for _, args := range [][]string{{"sefi", in, out}, {"qwen3-vl", in, out}, {"--map", table, in, out}} {
		fails(t, exitFailed, "nothing to rename", append([]string{"rename"}, args...)...)
		require.NoFileExists(t, out)
	}
}

func TestRenameQwen3VL(t *testing.T) {
	dir := t.TempDir()
	shards := filepath.Join(dir, "in")
	require.NoError(t, os.Mkdir(shards, 0o777))
	writeFile(t, filepath.Join(shards, "a.safetensors"), nil, rampTensor("model.visual.b", 3), rampTensor("model.language_model.norm.weight", 4))
	writeFile(t, filepath.Join(shards, "b.safetensors"), nil, zeros("model.language_model.ids", tensor.I64, 3), rampTensor("lm_head.weight", 2, 2))
	require.NoError(t, os.WriteFile(filepath.Join(shards, "model.safetensors.index.json"),
		[]byte(`{"weight_map":{"model.visual.b":"a.safetensors","model.language_model.norm.weight":"a.safetensors","model.language_model.ids":"b.safetensors","lm_head.weight":"b.safetensors"}}`), 0o666))
	out := filepath.Join(dir, "out.safetensors")
	ok(t, "rename", "qwen3-vl", shards, out)
	require.Equal(t, []string{"lm_head.weight", "model.ids", "model.norm.weight", "model.visual.b"}, order(t, out))
	require.Equal(t, tensor.I64, contents(t, out)["model.ids"].DType)
}

func TestRenameMap(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, filepath.Join(dir, "in.safetensors"), nil, rampTensor("net.a.weight", 2, 2), rampTensor("net.b.gamma", 2))
	table := filepath.Join(dir, "names.txt")
	require.NoError(t, os.WriteFile(table, []byte("# ours\n\\.gamma$ -> .weight\n^net\\. -> model.\n"), 0o666))
	out := filepath.Join(dir, "out.safetensors")
	r := ok(t, "rename", "--map", table, in, out, "--dry-run")
	require.Regexp(t, `net\.a\.weight +→ +model\.a\.weight`, r.stdout)
	require.NoFileExists(t, out)
	ok(t, "rename", "--map", table, in, out)
	require.ElementsMatch(t, []string{"model.a.weight", "net.b.weight"}, order(t, out))

	require.NoError(t, os.WriteFile(table, []byte("[ab]\\. -> x.\n(weight|gamma) -> w\n"), 0o666))
	require.NoError(t, os.WriteFile(table, []byte(".*\\.(weight|gamma) -> w\n"), 0o666))
	fails(t, exitFailed, `both be called "w"`, "rename", "--map", table, in, filepath.Join(dir, "c.safetensors"))
	require.NoError(t, os.WriteFile(table, []byte("fine -> x\nno arrow\n"), 0o666))
	fails(t, exitUsage, "line 2", "rename", "--map", table, in, filepath.Join(dir, "c.safetensors"))
	fails(t, exitUsage, "unknown table", "rename", "nonsense", in, out)
	fails(t, exitFailed, "also an input", "rename", "sefi", in, in, "--overwrite")
}

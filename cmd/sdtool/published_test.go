package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

// published reads the complete name lists of package rename, by "family/part".
func published(t *testing.T) map[string][]tensor.Info {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "rename", "testdata", "names.txt.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	all := make(map[string][]tensor.Info)
	title := ""
	for lines := bufio.NewScanner(z); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "# "); found {
			title = rest
			continue
		}
		name, dims, _ := strings.Cut(lines.Text(), " ")
		info := tensor.Info{Name: name, DType: tensor.BF16}
		for d := range strings.SplitSeq(dims, ",") {
			if n, err := strconv.ParseInt(d, 10, 64); err == nil {
				info.Shape = append(info.Shape, n)
			}
		}
		all[title] = append(all[title], info)
	}
	return all
}

// diffusersWords appear only in names that have not been mapped; the families of
// ownLayout have one layout.
var diffusersWords = regexp.MustCompile(`down_blocks|up_blocks|mid_block|resnets|\.attn\.to_q|add_q_proj|single_transformer_blocks|time_text_embed`)

var ownLayout = map[string]bool{"qwen-image": true, "ltxv": true}

// Diffusion models as published, in full size (without data): detected, renamed,
// and typed as the rules say.
func TestPublishedModels(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs sparse files")
	}
	for title, infos := range published(t) {
		family, part, _ := strings.Cut(title, "/")
		role := map[string]string{"unet": "--diffusion-model", "transformer": "--diffusion-model", "medium": "--diffusion-model", "i2v": "--diffusion-model"}[part]
		if role == "" {
			continue // a text encoder or VAE says nothing of the family
		}
		t.Run(title, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in.safetensors")
			writeSparse(t, in, infos, nil, len(infos))
			r := ok(t, "convert", role, in, "--type", "q8_0", "--names", "ldm", "--dry-run", "--json", "-q")
			var plan planJSON
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &plan))
			require.Equal(t, family, plan.Family)
			quantized := 0
			for _, x := range plan.Outputs[0].Tensors {
				require.True(t, strings.HasPrefix(x.Name, "model.diffusion_model."), x.Name)
				if !ownLayout[family] {
					require.NotRegexp(t, diffusersWords, x.Name)
				}
				cols := x.Shape[max(len(x.Shape)-1, 0):]
				if len(x.Shape) < 2 || len(cols) > 0 && cols[0]%32 != 0 || strings.HasSuffix(x.Name, ".bias") {
					require.Equal(t, "bf16", x.To, x.Name)
				}
				if x.To == "q8_0" {
					quantized++
				}
			}
			require.Greater(t, quantized, 80)
		})
	}
}

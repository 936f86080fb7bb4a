package scaled

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// Scheme names a way of storing scaled weights, for reports.
type Scheme string

// Known schemes.
const (
	FP8      Scheme = "fp8"        // one scale per tensor, row, or broadcast
	FP8Block Scheme = "fp8 blocks" // one scale per tile
	INT8     Scheme = "int8"
	INT8Rot  Scheme = "int8 convrot" // rotated by a Hadamard matrix before rounding
	INT8Bloc Scheme = "int8 blocks"
	MXFP8    Scheme = "mxfp8"
	NVFP4    Scheme = "nvfp4"
)

// Endings of companion names, after the weight's name without "weight".
const (
	endWeight   = "weight"
	endScale    = "weight_scale"
	endScaleOld = "scale_weight"
	endScale2   = "weight_scale_2"
	endScaleInv = "weight_scale_inv"
	endBare     = "scale"
	endComfy    = "comfy_quant"
	marker      = "scaled_fp8"
	metaKey     = "_quantization_metadata"
)

// hints are companions that speak of activations only.
var hints = []string{"scale_input", "input_scale"}

// foreign are companions of schemes that this package does not decode: their
// weights must not pass as if they were plain.
var foreign = []struct{ ending, scheme string }{
	{"weight.absmax", "bitsandbytes"},
	{"weight.quant_map", "bitsandbytes"},
	{"weight.nested_absmax", "bitsandbytes"},
	{"weight.SCB", "bitsandbytes int8"},
	{"SCB", "bitsandbytes int8"},
	{"weight_format", "bitsandbytes int8"},
	{"qweight", "GPTQ or AWQ"},
	{"qzeros", "GPTQ or AWQ"},
	{"weight_packed", "compressed-tensors"},
	{"weight_zero_point", "compressed-tensors with zero points"},
	{"weight_global_scale", "compressed-tensors NVFP4"},
	{"pre_quant_scale", "smoothed activations (pre_quant_scale)"},
	{"smooth_factor", "SVDQuant"},
	{"proj_down", "SVDQuant"},
	{"wscales", "Nunchaku SVDQuant"},
}

// config is what a comfy_quant tensor says of one layer. Field names are those
// of ComfyUI's JSON.
type config struct {
	Format    string `json:"format"`
	GroupSize int64  `json:"group_size"`
	ConvRot   bool   `json:"convrot"`
	RotGroup  int64  `json:"convrot_groupsize"`
	comfy     bool
}

// defaultRotGroup is ComfyUI's group size where the JSON gives none
// (comfy-kitchen, tensor/int8.py).
const defaultRotGroup = 256

// maxConfig bounds a comfy_quant blob; real ones are under 200 bytes.
const maxConfig = 1 << 16

func readConfig(t tensor.Tensor) (*config, error) {
	n := t.Source.Size()
	if t.DType != tensor.U8 || n < 1 || n > maxConfig {
		return nil, &SchemeError{t.Name, fmt.Sprintf("found %s with %d bytes, want u8 holding 1 to %d bytes of JSON", t.DType, n, maxConfig)}
	}
	raw := make([]byte, n)
	if _, err := t.Source.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %q: %w", t.Name, err)
	}
	c := &config{comfy: true}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, &SchemeError{t.Name, fmt.Sprintf("not JSON: %v", err)}
	}
	return c, nil
}

// readMetadata returns the layers of a _quantization_metadata entry by layer
// name; each is also known without the prefix up to the first dot that a
// component adds later.
func readMetadata(text string) (map[string]*config, error) {
	var doc struct {
		Layers map[string]*config `json:"layers"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, &SchemeError{metaKey, fmt.Sprintf("not JSON: %v", err)}
	}
	for name, c := range doc.Layers {
		if c == nil {
			delete(doc.Layers, name)
			continue
		}
		c.comfy = true
	}
	return doc.Layers, nil
}

// foreignScheme names the scheme a companion belongs to, or "".
func foreignScheme(name string) string {
	if _, rest, ok := strings.Cut(name, "weight.quant_state."); ok && rest != "" {
		return "bitsandbytes"
	}
	for _, f := range foreign {
		if base, ok := strings.CutSuffix(name, f.ending); ok && (base == "" || strings.HasSuffix(base, ".")) {
			return f.scheme
		}
	}
	return ""
}

package convert

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// StringsPrefix is where sdtool's GGUF metadata holds the __metadata__ of safetensors.
const StringsPrefix = "safetensors."

// ggufPrefix is where safetensors metadata holds what came from GGUF.
const ggufPrefix = "gguf."

// quantVersion is general.quantization_version: ggml's GGML_QNT_VERSION.
const quantVersion = 2

// Keys about the making of a file.
const (
	keyVersion = "sdtool.version"
	keySources = "sdtool.sources"
	keyOptions = "sdtool.options"
)

// fileTypes are llama.cpp's numbers for general.file_type, for files that are
// mostly of one type (gguf-py's LlamaFileType).
var fileTypes = map[tensor.DType]uint32{
	tensor.F32: 0, tensor.F16: 1, tensor.Q4_0: 2, tensor.Q4_1: 3, tensor.Q8_0: 7, tensor.Q5_0: 8,
	tensor.Q5_1: 9, tensor.Q2_K: 10, tensor.Q3_K: 12, tensor.Q4_K: 15, tensor.Q5_K: 17, tensor.Q6_K: 18,
	tensor.IQ2_XXS: 19, tensor.IQ2_XS: 20, tensor.IQ3_XXS: 23, tensor.IQ1_S: 24, tensor.IQ4_NL: 25,
	tensor.IQ3_S: 26, tensor.IQ2_S: 28, tensor.IQ4_XS: 30, tensor.IQ1_M: 31, tensor.BF16: 32,
	tensor.TQ1_0: 36, tensor.TQ2_0: 37, tensor.MXFP4: 38, tensor.NVFP4: 39, tensor.Q1_0: 40,
}

// metadata returns the key-value section of a GGUF output.
func (c *Conversion) metadata(g *group, out *Output, o *Options) gguf.Metadata {
	var md gguf.Metadata
	if !o.DropMetadata {
		md = c.carried(g)
	}
	md.DropSplit()
	for _, kv := range slices.Clone(md) {
		if strings.HasPrefix(kv.Key, keyOrigShape) || strings.HasPrefix(kv.Key, "sdtool.") || kv.Key == gguf.KeyAlignment {
			md.Delete(kv.Key)
		}
	}
	if arch := c.architecture(g, o); arch != "" {
		md.Set(gguf.KeyArchitecture, gguf.String(arch))
	}
	if title, ok := md.Str(StringsPrefix + "modelspec.title"); ok {
		if _, named := md.Get(gguf.KeyName); !named {
			md.Set(gguf.KeyName, gguf.String(title))
		}
	}
	md.Delete(gguf.KeyFileType, gguf.KeyQuantVersion)
	if t, ok := fileTypes[mostBytes(out.Tensors)]; ok {
		md.Set(gguf.KeyFileType, gguf.U32(t))
	}
	if slices.ContainsFunc(out.Tensors, func(t *Tensor) bool { return t.To.IsQuantized() }) {
		md.Set(gguf.KeyQuantVersion, gguf.U32(quantVersion))
	}
	c.shapeKeys(&md, g, out)
	if p := o.Provenance; p != nil {
		md.Set(keyVersion, gguf.String(p.Version))
		md.Set(keyOptions, gguf.String(p.Options))
		md.Set(keySources, gguf.StringArray(c.sources(g)))
	}
	if order := (gguf.Metadata{}); len(md) > 0 {
		// llama.cpp's tools look for the architecture first.
		for _, key := range []string{gguf.KeyArchitecture, gguf.KeyName} {
			if v, ok := md.Get(key); ok {
				order = append(order, gguf.KV{Key: key, Value: v})
				md.Delete(key)
			}
		}
		md = append(order, md...)
	}
	return md
}

// carried returns the metadata of the inputs: a GGUF file's own, and the strings
// of a safetensors file as a group of keys. With several inputs, the first that
// has a key keeps it.
func (c *Conversion) carried(g *group) gguf.Metadata {
	var md gguf.Metadata
	for _, comp := range c.componentsOf(g) {
		for _, kv := range comp.Metadata {
			if _, ok := md.Get(kv.Key); ok || kv.Value.Nested() {
				continue
			}
			md.Set(kv.Key, kv.Value)
		}
		for _, key := range slices.Sorted(maps.Keys(comp.Strings)) {
			full := StringsPrefix + key
			if _, ok := md.Get(full); !ok && keyFits(full) {
				md.Set(full, gguf.String(comp.Strings[key]))
			}
		}
	}
	return md
}

// keyLimit is the longest metadata key GGUF allows, in bytes.
const keyLimit = 1<<16 - 1

func keyFits(key string) bool { return len(key) <= keyLimit && !strings.ContainsRune(key, 0) }

// strings returns the __metadata__ of a safetensors output, nil if it has none.
func (c *Conversion) strings(g *group, _ *Output, o *Options) map[string]string {
	md := make(map[string]string)
	if !o.DropMetadata {
		for _, comp := range c.componentsOf(g) {
			for key, value := range comp.Strings {
				if _, ok := md[key]; !ok && !consumed(comp, key) {
					md[key] = value
				}
			}
			for _, kv := range comp.Metadata {
				addString(md, kv)
			}
		}
	}
	if len(md) > 0 || o.Provenance != nil {
		if _, ok := md["format"]; !ok {
			md["format"] = "pt" // some loaders refuse files without it
		}
	}
	if p := o.Provenance; p != nil {
		md[keyVersion], md[keyOptions] = p.Version, p.Options
		md[keySources] = strings.Join(c.sources(g), ", ")
	}
	maps.Copy(md, o.Strings)
	if len(md) == 0 {
		return nil
	}
	return md
}

// consumed reports whether a metadata string describes scales that have been
// multiplied in.
func consumed(comp *Component, key string) bool {
	return comp.Scaled != nil && key == "_quantization_metadata"
}

// addString puts a GGUF entry into string metadata: what came from safetensors
// under its old key, scalars under "gguf." and their key. Arrays, and keys about
// the GGUF form itself, have no place there.
func addString(md map[string]string, kv gguf.KV) {
	if key, ok := strings.CutPrefix(kv.Key, StringsPrefix); ok {
		if s, isString := kv.Value.Str(); isString {
			if _, there := md[key]; !there {
				md[key] = s
			}
			return
		}
	}
	switch {
	case kv.Value.Len() >= 0, strings.HasPrefix(kv.Key, "split."), strings.HasPrefix(kv.Key, "sdtool."),
		kv.Key == gguf.KeyAlignment, kv.Key == gguf.KeyFileType, kv.Key == gguf.KeyQuantVersion:
		return
	}
	key := ggufPrefix + kv.Key
	if _, there := md[key]; there {
		return
	}
	if s, ok := kv.Value.Str(); ok {
		md[key] = s
		return
	}
	md[key] = kv.Value.String()
}

// componentsOf lists the components whose tensors are in a group, in order.
func (c *Conversion) componentsOf(g *group) []*Component {
	var list []*Component
	for _, comp := range c.components {
		if slices.ContainsFunc(g.items, func(it *item) bool { return it.component == comp }) {
			list = append(list, comp)
		}
	}
	return list
}

// sources lists the inputs by name and size: enough to find them again, and the
// same wherever they lie.
func (c *Conversion) sources(g *group) []string {
	var list []string
	for _, comp := range c.componentsOf(g) {
		list = append(list, fmt.Sprintf("%s=%s (%d bytes)", comp.Role, filepath.Base(comp.Path), comp.Size))
	}
	return list
}

// shapeKeys records the shapes that readers of GGUF would not see: those with
// more than four axes, those with a leading axis of 1, which ggml drops, and
// those without any axis.
func (c *Conversion) shapeKeys(md *gguf.Metadata, g *group, out *Output) {
	var scalars []string
	var changed, leading gguf.Metadata
	for i, it := range g.items {
		t := out.Tensors[i]
		shape := it.Shape
		if it.hasOrig {
			shape = it.orig
		}
		axes, fit := int32s(shape)
		kv := gguf.KV{Key: keyOrigShape + t.Name, Value: gguf.I32Array(axes)}
		switch {
		case len(shape) == 0:
			scalars = append(scalars, t.Name)
		case fit && !slices.Equal(shape, t.Shape):
			changed = append(changed, kv)
		case fit && len(shape) > 1 && shape[0] == 1:
			leading = append(leading, kv)
		}
	}
	*md = append(*md, changed...) // metadata has dropped such keys of inputs
	if len(leading) <= leadingMax {
		*md = append(*md, leading...)
	} else {
		c.warn("%d tensors have a leading axis of 1, which ggml drops on reading; their shapes are not recorded", len(leading))
	}
	if len(scalars) > 0 {
		md.Set(keyScalars, gguf.StringArray(scalars))
	}
}

// leadingMax is how many shapes with a leading 1 are recorded; models have a few.
const leadingMax = 4096

func int32s(shape []int64) ([]int32, bool) {
	out := make([]int32, len(shape))
	for i, n := range shape {
		if n > 1<<31-1 {
			return nil, false
		}
		out[i] = int32(n)
	}
	return out, true
}

// mostBytes returns the type that most of the stored numbers have.
func mostBytes(tensors []*Tensor) tensor.DType {
	elements := make(map[tensor.DType]int64)
	best := tensor.Invalid
	for _, t := range tensors {
		n, err := tensor.Elements(t.Shape)
		if err != nil {
			continue
		}
		elements[t.To] += n
	}
	for _, d := range tensor.All() {
		if elements[d] > elements[best] {
			best = d
		}
	}
	return best
}

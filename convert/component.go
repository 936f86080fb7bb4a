package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/scaled"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/writer"
)

// Component is an opened input with its scaled weights decoded.
type Component struct {
	Role Role
	*Checkpoint
	Scaled *scaled.Report // nil if nothing was decoded

	opaque  bool                // it has scaled weights, which are passed on as they are
	inputs  map[string][]string // names in the file, by the names that a rewrite made of them
	decoded map[string]bool     // names of the tensors that were decoded
}

// Scales says what happens to scaled weights.
type Scales uint8

// Ways to treat scaled weights.
const (
	ScalesMultiply Scales = iota // into plain numbers; the scales are dropped
	ScalesKeep                   // weights and scales are passed on as they are
	ScalesIgnore                 // both are like any other tensors, as for stable-diffusion.cpp
)

// OpenComponents opens all inputs. On an error everything is closed again.
func OpenComponents(inputs []Input, o OpenOptions, scales Scales) ([]*Component, error) {
	var all []*Component
	for _, in := range inputs {
		c, err := openComponent(in, o, scales)
		if err != nil {
			return nil, errors.Join(err, CloseComponents(all))
		}
		all = append(all, c)
	}
	return all, nil
}

// CloseComponents closes components, which may be nil.
func CloseComponents(all []*Component) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func openComponent(in Input, o OpenOptions, scales Scales) (*Component, error) {
	cp, err := Open(in.Path, o)
	if err != nil {
		if cp != nil {
			err = errors.Join(err, cp.Close())
		}
		return nil, err
	}
	c := &Component{Role: in.Role, Checkpoint: cp, decoded: make(map[string]bool)}
	err = c.decode(scales)
	if err == nil {
		err = c.rewrite(in)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", in.Path, err), cp.Close())
	}
	return c, nil
}

// decode multiplies scaled weights by their scales.
func (c *Component) decode(scales Scales) error {
	so := scaled.Options{Metadata: c.Strings}
	switch scales {
	case ScalesIgnore:
		return nil
	case ScalesKeep:
		c.opaque = scaled.Present(c.Tensors, so)
		return nil
	}
	tensors, report, err := scaled.Decode(c.Tensors, so)
	if err != nil || report.Empty() {
		return err
	}
	c.Tensors, c.Scaled = tensors, report
	for _, w := range report.Weights {
		c.decoded[w.Name] = true
	}
	return nil
}

// rewrite applies what the input asks for to the names.
func (c *Component) rewrite(in Input) error {
	if in.Rewrite != nil {
		r, err := in.Rewrite(c.Tensors)
		if err != nil {
			return err
		}
		if n := len(r.Incomplete); n > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("%s: %d tensors keep their names because parts of what they belong to are missing: %s", c.Path, n, List(r.Incomplete)))
		}
		decoded := make(map[string]bool)
		tensors := make([]tensor.Tensor, len(r.Tensors))
		c.inputs = make(map[string][]string, len(r.Tensors))
		for i, t := range r.Tensors {
			tensors[i] = t.Tensor
			for _, j := range t.From {
				c.inputs[t.Name] = append(c.inputs[t.Name], c.Tensors[j].Name)
			}
			if c.decoded[c.Tensors[t.From[0]].Name] {
				decoded[t.Name] = true
			}
		}
		c.Tensors, c.decoded = tensors, decoded
	}
	if in.Sort {
		c.Tensors = slices.Clone(c.Tensors)
		slices.SortFunc(c.Tensors, func(a, b tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	}
	return nil
}

// item is one tensor on its way from an input to the output.
type item struct {
	tensor.Tensor // its Name is the final one once named
	component     *Component
	inputs        []string // names in the input of what it is made of
	parts         []string // prefixed names of the tensors it was made of
	scaled        bool     // decoded from a scaled form
	opaque        bool     // has scales that are kept beside it
	orig          []int64  // shape it has outside GGUF, if that is another
	hasOrig       bool
	order         writer.Order
}

// wholeVAE is what a VAE's names begin with in a whole checkpoint, from which some
// people cut it without renaming.
const wholeVAE = "first_stage_model."

// stored returns the name in the input of what it is made of, or of its first part.
func (it *item) stored() string { return it.inputs[0] }

// items lists a component's tensors under their prefixed names.
func (c *Component) items(prefix string, files *fileNumbers) []*item {
	list := make([]*item, 0, len(c.Tensors))
	last := writer.Order{File: files.number(c.Paths)}
	scalars := c.scalars()
	for _, t := range c.Tensors {
		it := &item{Tensor: t, component: c, inputs: c.inputs[t.Name]}
		if it.inputs == nil {
			it.inputs = []string{t.Name}
		}
		if s, ok := t.Source.(*tensor.Section); ok {
			last = writer.Order{File: files.number([]string{s.Path}), Offset: s.Offset}
		}
		it.order = last
		it.scaled = c.decoded[t.Name]
		it.opaque = c.opaque && scaledPart(t)
		it.orig, it.hasOrig = c.origShape(t, scalars)
		if !strings.HasPrefix(t.Name, prefix) && !(c.Role == RoleVAE && strings.HasPrefix(t.Name, wholeVAE)) {
			it.Name = prefix + t.Name
		}
		it.parts = []string{it.Name}
		list = append(list, it)
	}
	return list
}

// scaledPart reports whether a tensor of a component with kept scales is one
// that scales belong to, or a scale: anything that is not stored as plain
// floats of 16 bits or more.
func scaledPart(t tensor.Tensor) bool {
	switch t.DType {
	case tensor.F8E4M3, tensor.F8E5M2, tensor.F8E8M0, tensor.I8, tensor.U8, tensor.F4E2M1:
		return true
	}
	return strings.HasSuffix(t.Name, "weight_scale") || strings.HasSuffix(t.Name, "scale_weight") ||
		strings.HasSuffix(t.Name, "weight_scale_2") || strings.HasSuffix(t.Name, "weight_scale_inv") ||
		strings.HasSuffix(t.Name, "input_scale") || strings.HasSuffix(t.Name, "scale_input")
}

// Keys with which GGUF files record shapes that GGUF does not keep.
const (
	keyOrigShape = "comfy.gguf.orig_shape."
	// keyScalars lists tensors without axes. An empty orig_shape would say the
	// same, but ComfyUI-GGUF refuses empty arrays.
	keyScalars = "sdtool.scalars"
)

func (c *Checkpoint) scalars() []string {
	v, ok := c.Metadata.Get(keyScalars)
	if !ok {
		return nil
	}
	names, _ := v.Strings()
	return names
}

// origShape returns the shape that a GGUF file records for a tensor, if it fits.
func (c *Checkpoint) origShape(t tensor.Tensor, scalars []string) ([]int64, bool) {
	elements, err := t.Elements()
	if err != nil {
		return nil, false
	}
	if elements == 1 && slices.Contains(scalars, t.Name) {
		return []int64{}, true
	}
	v, ok := c.Metadata.Get(keyOrigShape + t.Name)
	if !ok {
		return nil, false
	}
	shape, ok := v.Ints()
	if !ok {
		return nil, false
	}
	if n, err := tensor.Elements(shape); err != nil || n != elements || slices.Equal(shape, t.Shape) {
		return nil, false
	}
	return shape, true
}

// Unfolded returns the tensors with the shapes that a GGUF file records for those
// it had to store in another one.
func (c *Checkpoint) Unfolded() []tensor.Tensor {
	out := slices.Clone(c.Tensors)
	scalars := c.scalars()
	for i, t := range out {
		if shape, ok := c.origShape(t, scalars); ok {
			out[i].Shape = shape
		}
	}
	return out
}

// RecordsShapes reports whether a metadata key of GGUF is one that Unfolded reads.
func RecordsShapes(key string) bool {
	return key == keyScalars || strings.HasPrefix(key, keyOrigShape)
}

// fileNumbers gives every file a number, in the order in which they are met.
type fileNumbers struct{ of map[string]int }

func (f *fileNumbers) number(paths []string) int {
	if len(paths) == 0 {
		return 0
	}
	if f.of == nil {
		f.of = make(map[string]int)
	}
	n, ok := f.of[paths[0]]
	if !ok {
		n = len(f.of)
		f.of[paths[0]] = n
	}
	return n
}

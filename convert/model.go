package convert

import (
	"errors"
	"fmt"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/rename"
	"github.com/sdtool/sdtool/tensor"
)

// Model is a model opened to be run: all components' tensors under the names
// that runtimes use. Close it when the tensors have been read.
type Model struct {
	Family   rename.Family
	Tensors  []tensor.Tensor
	Paths    []string // every file that is read
	Roles    []Role   // of the components, in order
	Warnings []string

	components []*Component
}

// OpenModel opens components, decodes scaled weights, adds prefixes, leaves out
// what no runtime reads, and renames to the original model's names. Family is
// rename.Unknown to detect it.
func OpenModel(inputs []Input, o OpenOptions, family rename.Family) (*Model, error) {
	if len(inputs) == 0 {
		return nil, errors.New("no input given")
	}
	components, err := OpenComponents(inputs, o, ScalesMultiply)
	if err != nil {
		return nil, err
	}
	c := &Conversion{components: components}
	for _, comp := range components {
		c.Warnings = append(c.Warnings, comp.Notes...)
		c.scaledNotes(comp)
	}
	if err := c.gather(&Options{Inputs: inputs, Names: NamesLDM, Family: family, Open: o}); err != nil {
		return nil, errors.Join(err, CloseComponents(components))
	}
	m := &Model{Family: c.Family, Warnings: c.Warnings, components: components}
	for _, comp := range components {
		m.Roles = append(m.Roles, comp.Role)
		m.Paths = append(m.Paths, comp.Paths...)
	}
	for _, it := range c.items {
		t := it.Tensor
		if it.hasOrig && len(it.orig) > 0 && it.orig[len(it.orig)-1] == t.Cols() {
			t.Shape = it.orig
		}
		m.Tensors = append(m.Tensors, t)
	}
	return m, nil
}

// Metadata returns the GGUF metadata of the first component that has the key.
func (m *Model) Metadata(key string) (gguf.Metadata, bool) {
	for _, c := range m.components {
		if _, ok := c.Checkpoint.Metadata.Get(key); ok {
			return c.Checkpoint.Metadata, true
		}
	}
	return nil, false
}

// Close closes the files.
func (m *Model) Close() error { return CloseComponents(m.components) }

// Check returns a *tensor.ChangedError if a file has changed since it was opened.
func (m *Model) Check() error {
	for _, c := range m.components {
		if err := c.Check(); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return nil
}

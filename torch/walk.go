package torch

import (
	"fmt"
	"io"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// Limits of the walk.
const (
	maxTensors = 1 << 17
	maxSteps   = 1 << 20 // entries looked at, counted again on every way to them
	maxSkipped = 1000    // entries of File.Skipped
	maxName    = 65535   // bytes
	maxWraps   = 8       // state dicts inside each other
)

// wrappers are the keys under which a state dict is known to be kept, the first
// that is there wins. params_ema comes before params because upscalers keep both
// and use the former.
var wrappers = []string{"state_dict", "params_ema", "params", "model_state_dict", "model", "module", "net", "network", "weights"}

// walker takes the tensors out of the object of a pickle.
type walker struct {
	r       io.ReaderAt
	path    string
	machine *machine // its budget pays for names
	file    *File
	names   map[string]struct{}
	clean   map[any]bool // values that are known to hold no data
	steps   int
}

// holds is holdsData, but no value is searched twice.
func (w *walker) holds(v any) bool {
	if holdsData(v, w.clean) {
		clear(w.clean) // the search stopped early
		return true
	}
	return false
}

func (w *walker) fail(kind ErrorKind, name, format string, args ...any) error {
	return &FormatError{Path: w.path, Kind: kind, Tensor: name, Offset: -1, Msg: fmt.Sprintf(format, args...)}
}

// walk finds the state dict and takes its tensors.
func (w *walker) walk(root any) error {
	d, ok := root.(*dict)
	if !ok {
		if o, ok := root.(*opaque); ok && w.holds(root) {
			return &GlobalError{Path: w.path, Name: o.name}
		}
		return fmt.Errorf("%s: %w: the file holds %s, want a dict", w.path, ErrNoTensors, kind(root))
	}
	for range maxWraps {
		name, inner := w.inner(d)
		if inner == nil {
			break
		}
		w.others(d, name)
		w.file.Dict = strings.TrimPrefix(w.file.Dict+"."+name, ".")
		d = inner
	}
	if err := w.take(d, "", 0); err != nil {
		return err
	}
	if len(w.file.Tensors) == 0 {
		what := ""
		if len(w.file.Skipped) > 0 {
			what = fmt.Sprintf("; %q is %s", w.file.Skipped[0].Name, w.file.Skipped[0].What)
		}
		return fmt.Errorf("%s: %w in its dict of %d entries%s", w.path, ErrNoTensors, len(d.keys), what)
	}
	return nil
}

// inner returns the state dict that a dict keeps under a known key, or nil. There
// may be tensors beside it, such as the states of random generators.
func (w *walker) inner(d *dict) (string, *dict) {
	for _, name := range wrappers {
		v, _ := d.get(name)
		if x, ok := v.(*dict); ok && w.holds(x) {
			return name, x
		}
	}
	return "", nil
}

// others lists what stands beside a state dict.
func (w *walker) others(d *dict, taken string) {
	for i, key := range d.keys {
		if key != taken {
			w.skip(text(key), d.values[i])
		}
	}
}

func (w *walker) skip(name string, v any) {
	if len(w.file.Skipped) < maxSkipped {
		what := kind(v)
		if _, ok := v.(*view); !ok && w.holds(v) {
			what += " with tensors in it"
		}
		w.file.Skipped = append(w.file.Skipped, Skipped{tensor.Clip(name), what})
	}
}

// take takes the tensors of a dict; those of dicts in it get its key and a dot
// before their names.
func (w *walker) take(d *dict, prefix string, depth int) error {
	if depth > maxDepth {
		return w.fail(KindLimit, prefix, "found dicts inside each other more than %d deep", maxDepth)
	}
	for i, k := range d.keys {
		if w.steps++; w.steps > maxSteps {
			return w.fail(KindLimit, "", "found more than %d entries in its dicts", maxSteps)
		}
		name := prefix + text(k)
		if w.machine.spend(int64(len(name))); w.machine.over() {
			return w.machine.tooMuch()
		}
		switch v := d.values[i].(type) {
		case *view:
			if _, ok := k.(string); !ok {
				return w.fail(KindName, name, "found a tensor under %s, want a string", kind(k))
			}
			if err := w.tensor(name, v); err != nil {
				return err
			}
		case *dict:
			if len(name) > maxName {
				return w.fail(KindName, name, "found a name of more than %d bytes", maxName)
			}
			if err := w.take(v, name+".", depth+1); err != nil {
				return err
			}
		case *opaque:
			if w.holds(v) {
				return &GlobalError{Path: w.path, Name: v.name, Tensor: name}
			}
			w.skip(name, v)
		default:
			w.skip(name, v)
		}
	}
	return nil
}

func (w *walker) tensor(name string, v *view) error {
	switch {
	case name == "":
		return w.fail(KindName, name, "found an empty tensor name")
	case len(name) > maxName:
		return w.fail(KindName, name, "found a tensor name of more than %d bytes", maxName)
	case strings.IndexByte(name, 0) >= 0:
		return w.fail(KindName, name, "the name has a NUL in it")
	case len(w.file.Tensors) == maxTensors:
		return w.fail(KindLimit, name, "found more than %d tensors", maxTensors)
	}
	if _, ok := w.names[name]; ok {
		return w.fail(KindDuplicate, name, "two tensors have this name")
	}
	w.names[name] = struct{}{}
	t, err := w.look(name, v)
	if err != nil {
		return err
	}
	w.file.Tensors = append(w.file.Tensors, t)
	return nil
}

// look checks a view against its storage and makes its source.
func (w *walker) look(name string, v *view) (tensor.Tensor, error) {
	if v.dtype.dtype == tensor.Invalid {
		return tensor.Tensor{}, w.fail(KindDType, name, "found a tensor of %q, which is not read", tensor.Clip(v.dtype.name))
	}
	if v.odd != "" {
		return tensor.Tensor{}, w.fail(KindDType, name, "found a tensor that cannot be read: %s", v.odd)
	}
	w.machine.spend(256)
	width := v.dtype.dtype.BlockBytes()
	s := &strided{width: width, shape: v.shape, strides: v.strides}
	first, err := s.check(v.offset, v.storage.bytes)
	if err != nil {
		return tensor.Tensor{}, &FormatError{Path: w.path, Kind: KindShape, Tensor: name, Offset: -1, Err: err,
			Msg: fmt.Sprintf("its sizes %s, strides %s and offset %d do not fit its storage of %d bytes",
				tensor.ShapeString(v.shape), tensor.ShapeString(v.strides), v.offset, v.storage.bytes)}
	}
	s.base = tensor.Section{File: w.r, Path: w.path, Offset: w.machine.storages[v.storage.key].offset + v.storage.skip + first,
		Length: v.storage.bytes - first}
	t := tensor.Tensor{Info: tensor.Info{Name: name, DType: v.dtype.dtype, Shape: v.shape}}
	if t.DType == tensor.F4E2M1 { // torch counts bytes, each of two elements
		if len(v.shape) == 0 {
			return t, w.fail(KindShape, name, "found a scalar of %q", v.dtype.name)
		}
		t.Shape = append([]int64(nil), v.shape...)
		last := &t.Shape[len(t.Shape)-1]
		if *last, err = tensor.CheckedMul(*last, 2); err != nil {
			return t, w.fail(KindShape, name, "its size overflows")
		}
	}
	switch t.Source = s; {
	case s.bytes == 0:
		t.Source = &tensor.Section{File: w.r, Path: w.path}
	case s.contiguous():
		s.base.Length = s.bytes
		t.Source = &s.base
	}
	return t, nil
}

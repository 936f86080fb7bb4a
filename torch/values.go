package torch

import (
	"fmt"

	"github.com/sdtool/sdtool/tensor"
)

// What the machine puts on its stack, besides nil, bool, int64, float64, string
// and []byte (bytes, and integers that do not fit int64).
type (
	tuple struct{ items []any }
	list  struct{ items []any } // sets too

	// dict keeps its entries in the order they were set; an entry that is set
	// again keeps its place, as in Python.
	dict struct {
		keys, values []any
		byName       map[string]int // places of the keys that are strings
	}

	// global is a Python name that is not a function of ours, storage or dtype.
	global struct{ name string }

	// opaque is an object of an unknown class: its global, and whatever it was
	// made of.
	opaque struct {
		name  string
		parts []any
	}

	// rebuild is one of the functions that make a tensor.
	rebuild func(m *machine, args []any) (any, error)

	// container makes an empty container.
	container func() any

	// storageType is the class of a storage; Invalid is the untyped one.
	storageType struct {
		name  string
		dtype tensor.DType
	}

	// dtypeValue is a torch.dtype; Invalid if it is one we have no row for.
	dtypeValue struct {
		name  string
		dtype tensor.DType
	}

	// storage is a run of bytes in the file that tensors look at.
	storage struct {
		key   string
		typ   storageType
		bytes int64 // of the storage, or of this view of it
		skip  int64 // bytes of the storage before this view of it
	}

	// view is a tensor: a storage and how to look at it. A dtype the file cannot
	// be read in is kept, to be named once the tensor's name is known.
	view struct {
		storage storage
		dtype   dtypeValue
		offset  int64 // in elements
		shape   []int64
		strides []int64 // in elements
		odd     string  // a property that is not read, in words
	}
)

func (d *dict) set(key, value any) {
	name, ok := key.(string)
	if !ok {
		d.keys, d.values = append(d.keys, key), append(d.values, value)
		return
	}
	if i, ok := d.byName[name]; ok {
		d.values[i] = value
		return
	}
	if d.byName == nil {
		d.byName = make(map[string]int)
	}
	d.byName[name] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, value)
}

func (d *dict) get(name string) (any, bool) {
	i, ok := d.byName[name]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// kind says in words what a value is.
func kind(v any) string {
	switch x := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64:
		return "an int"
	case float64:
		return "a float"
	case string:
		return "a string"
	case []byte:
		return "bytes"
	case *tuple:
		return "a tuple"
	case *list:
		return "a list"
	case *dict:
		return "a dict"
	case *opaque:
		return fmt.Sprintf("a Python object of %q", tensor.Clip(x.name))
	case *global:
		return fmt.Sprintf("the Python name %q", tensor.Clip(x.name))
	case *view:
		return "a tensor"
	case *storage:
		return "a storage"
	case storageType, dtypeValue, rebuild, container:
		return "a torch name"
	}
	return "an unknown value"
}

// children returns what a value is made of.
func children(v any) [][]any {
	switch x := v.(type) {
	case *tuple:
		return [][]any{x.items}
	case *list:
		return [][]any{x.items}
	case *dict:
		return [][]any{x.keys, x.values}
	case *opaque:
		return [][]any{x.parts}
	}
	return nil
}

// holdsData reports whether a tensor or storage is anywhere in a value. seen
// keeps shared parts from being visited twice.
func holdsData(v any, seen map[any]bool) bool {
	todo := []any{v}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch v.(type) {
		case *view, *storage:
			return true
		case *tuple, *list, *dict, *opaque:
			if seen[v] {
				continue
			}
			seen[v] = true
			for _, part := range children(v) {
				todo = append(todo, part...)
			}
		}
	}
	return false
}

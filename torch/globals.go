package torch

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// storages maps the names of storage classes, in torch, torch.cuda and
// torch.storage, to their element types.
var storages = map[string]tensor.DType{
	"FloatStorage": tensor.F32, "DoubleStorage": tensor.F64, "HalfStorage": tensor.F16, "BFloat16Storage": tensor.BF16,
	"LongStorage": tensor.I64, "IntStorage": tensor.I32, "ShortStorage": tensor.I16, "CharStorage": tensor.I8,
	"ByteStorage": tensor.U8, "BoolStorage": tensor.Bool, "ComplexFloatStorage": tensor.C64,
	"UntypedStorage": tensor.Invalid, "_UntypedStorage": tensor.Invalid,
}

// oddStorages are storage classes of types we have no row for, with the bytes of
// an element. Tensors of them are refused by name, not the file for having one
// outside the state dict.
var oddStorages = map[string]int64{"ComplexDoubleStorage": 16, "QInt8Storage": 1, "QUInt8Storage": 1, "QInt32Storage": 4,
	"QUInt4x2Storage": 1, "QUInt2x4Storage": 1}

// torchDTypes maps the names of torch.dtype values to element types.
var torchDTypes = map[string]tensor.DType{
	"float32": tensor.F32, "float": tensor.F32, "float64": tensor.F64, "double": tensor.F64,
	"float16": tensor.F16, "half": tensor.F16, "bfloat16": tensor.BF16,
	"int64": tensor.I64, "long": tensor.I64, "int32": tensor.I32, "int": tensor.I32,
	"int16": tensor.I16, "short": tensor.I16, "int8": tensor.I8,
	"uint8": tensor.U8, "uint16": tensor.U16, "uint32": tensor.U32, "uint64": tensor.U64, "bool": tensor.Bool,
	"complex64": tensor.C64, "cfloat": tensor.C64,
	"float8_e4m3fn": tensor.F8E4M3, "float8_e5m2": tensor.F8E5M2, "float8_e8m0fnu": tensor.F8E8M0,
	"float4_e2m1fn_x2": tensor.F4E2M1,
}

// oddDTypes are the torch.dtype values we have no row for.
var oddDTypes = []string{"complex32", "chalf", "complex128", "cdouble", "float8_e4m3fnuz", "float8_e5m2fnuz",
	"qint8", "quint8", "qint32", "quint4x2", "quint2x4", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"}

// rebuilds are the functions that make a tensor.
var rebuilds = map[string]rebuild{
	"torch._utils._rebuild_tensor":               rebuildTensor,
	"torch._utils._rebuild_tensor_v2":            rebuildTensor,
	"torch._utils._rebuild_tensor_v3":            rebuildTensorV3,
	"torch._utils._rebuild_parameter":            rebuildFirst,
	"torch._utils._rebuild_parameter_with_state": rebuildFirst,
	"torch.nn.parameter.Parameter":               rebuildFirst,
	"torch._tensor._rebuild_from_type_v2":        rebuildFromType,
	"torch._tensor._rebuild_from_type":           rebuildFromType,
}

func newDict() any { return &dict{} }
func newList() any { return &list{} }

// containers are the classes that make a container.
var containers = map[string]container{
	"collections.OrderedDict": newDict, "collections.defaultdict": newDict, "collections.Counter": newDict,
	"builtins.dict": newDict, "__builtin__.dict": newDict,
	"builtins.list": newList, "__builtin__.list": newList,
	"builtins.set": newList, "__builtin__.set": newList, "builtins.frozenset": newList, "__builtin__.frozenset": newList,
}

// plain are other names from the builtins that do nothing but make a value;
// getattr is how Python writes the name of a class inside a class.
var plain = []string{"object", "tuple", "int", "float", "bool", "str", "unicode", "bytes", "bytearray", "complex", "slice", "range", "xrange", "long", "type",
	"Ellipsis", "NotImplemented", "getattr"}

// harmful are modules whose names no checkpoint needs; a module in them counts
// too. The builtins are harmful but for the names above.
var harmful = []string{"builtins", "__builtin__", "os", "posix", "nt", "posixpath", "ntpath", "sys", "subprocess", "commands", "popen2",
	"runpy", "importlib", "imp", "pkgutil", "shutil", "socket", "ssl", "pty", "code", "codeop", "ctypes", "_ctypes", "cffi",
	"pickle", "_pickle", "cPickle", "dill", "marshal", "operator", "_operator", "timeit", "pdb", "bdb", "cProfile", "profile", "trace",
	"asyncio", "multiprocessing", "webbrowser", "urllib", "httplib", "http", "requests", "aiohttp", "ftplib", "smtplib", "telnetlib",
	"pip", "setuptools", "distutils", "venv", "ensurepip", "platform", "pydoc", "idlelib", "lib2to3", "doctest",
	"compileall", "py_compile", "zipimport", "numpy.testing", "numpy.f2py", "torch.hub", "torch.utils.cpp_extension", "torch.jit.unsupported_tensor_ops"}

// lookup returns the value of a Python name.
func (m *machine) lookup(module, name string) (any, error) {
	full := module + "." + name
	if m.spend(64 + int64(len(full))); m.over() {
		return nil, m.tooMuch()
	}
	if f, ok := rebuilds[full]; ok {
		return f, nil
	}
	if c, ok := containers[full]; ok {
		return c, nil
	}
	switch module {
	case "torch", "torch.cuda", "torch.storage":
		if d, ok := storages[name]; ok {
			return storageType{name, d}, nil
		}
		if _, ok := oddStorages[name]; ok {
			return storageType{name, tensor.Invalid}, nil
		}
		if d, ok := torchDTypes[name]; ok && module == "torch" {
			return dtypeValue{name, d}, nil
		}
		for _, odd := range oddDTypes {
			if name == odd {
				return dtypeValue{name, tensor.Invalid}, nil
			}
		}
	case "builtins", "__builtin__":
		for _, p := range plain {
			if name == p {
				return &global{full}, nil
			}
		}
	}
	for _, h := range harmful {
		if module == h || strings.HasPrefix(module, h+".") {
			return nil, &GlobalError{Path: m.in.path, Name: full, Harm: true}
		}
	}
	return &global{full}, nil
}

// call does what REDUCE, NEWOBJ, OBJ and INST do: makes a value of a callable and
// its arguments.
func (m *machine) call(f any, args []any) (any, error) {
	switch f := f.(type) {
	case rebuild:
		return f(m, args)
	case container:
		return m.fillContainer(f(), args)
	case *global:
		return m.opaque(f.name, args)
	case *opaque:
		return m.opaque(f.name, append([]any{f}, args...))
	case storageType:
		return m.opaque("torch."+f.name, args)
	}
	return nil, m.fail("found a call of %s", kind(f))
}

func (m *machine) opaque(name string, parts []any) (any, error) {
	m.spend(64 + 16*int64(len(parts)))
	return &opaque{name: name, parts: parts}, nil
}

// fillContainer gives a new container what its class was called with: nothing, a
// sequence of elements or pairs, or, for a defaultdict, the default's class.
func (m *machine) fillContainer(c any, args []any) (any, error) {
	if m.spend(96); len(args) == 0 {
		return c, nil
	}
	items, ok := sequence(args[0])
	if d, isDict := c.(*dict); isDict {
		if other, isDict := args[0].(*dict); isDict {
			if m.spend(96 * int64(len(other.keys))); m.over() {
				return nil, m.tooMuch()
			}
			for i := range other.keys {
				d.set(other.keys[i], other.values[i])
			}
			return d, nil
		}
		if m.spend(96 * int64(len(items))); m.over() {
			return nil, m.tooMuch()
		}
		for _, item := range items {
			pair, ok := sequence(item)
			if !ok || len(pair) != 2 {
				return nil, m.fail("found %s for an entry of a dict, want a pair", kind(item))
			}
			d.set(pair[0], pair[1])
		}
		return d, nil
	}
	if !ok {
		return nil, m.fail("found %s for the elements of a container", kind(args[0]))
	}
	if m.spend(16 * int64(len(items))); m.over() {
		return nil, m.tooMuch()
	}
	return &list{items: append([]any(nil), items...)}, nil
}

func sequence(v any) ([]any, bool) {
	switch x := v.(type) {
	case *tuple:
		return x.items, true
	case *list:
		return x.items, true
	}
	return nil, false
}

// rebuildTensor works out _rebuild_tensor(storage, offset, size, stride) and
// _rebuild_tensor_v2, which adds requires_grad, hooks and metadata.
func rebuildTensor(m *machine, args []any) (any, error) {
	if len(args) < 4 {
		return nil, m.fail("found a tensor made of %d values, want at least 4", len(args))
	}
	v, err := m.view(args)
	if err != nil {
		return nil, err
	}
	if len(args) > 6 {
		v.odd = oddMetadata(args[6])
	}
	return v, nil
}

// rebuildTensorV3 works out _rebuild_tensor_v3(storage, offset, size, stride,
// requires_grad, hooks, dtype, metadata), whose storage is untyped.
func rebuildTensorV3(m *machine, args []any) (any, error) {
	if len(args) < 7 {
		return nil, m.fail("found a tensor made of %d values, want at least 7", len(args))
	}
	v, err := m.view(args)
	if err != nil {
		return nil, err
	}
	d, ok := args[6].(dtypeValue)
	if !ok {
		return nil, m.fail("found %s for the dtype of a tensor", kind(args[6]))
	}
	v.dtype = d
	if len(args) > 7 {
		v.odd = oddMetadata(args[7])
	}
	return v, nil
}

// oddMetadata says which bits change what a tensor's bytes mean.
func oddMetadata(v any) string {
	d, ok := v.(*dict)
	if !ok {
		return ""
	}
	for _, bit := range []string{"conj", "neg"} {
		if set, ok := d.get(bit); ok && set != false && set != nil {
			return "its " + bit + " bit is set"
		}
	}
	return ""
}

// view checks the first four arguments that make a tensor.
func (m *machine) view(args []any) (*view, error) {
	s, ok := args[0].(*storage)
	if !ok {
		return nil, m.fail("found a tensor made of %s, want a storage", kind(args[0]))
	}
	offset, ok := args[1].(int64)
	if !ok {
		return nil, m.fail("found %s for the offset of a tensor", kind(args[1]))
	}
	shape, err := m.ints("size", args[2])
	if err != nil {
		return nil, err
	}
	strides, err := m.ints("stride", args[3])
	if err != nil {
		return nil, err
	}
	if len(shape) != len(strides) {
		return nil, m.fail("found a tensor of %d axes with %d strides", len(shape), len(strides))
	}
	m.spend(192)
	return &view{storage: *s, dtype: dtypeValue{s.typ.name, s.typ.dtype}, offset: offset, shape: shape, strides: strides}, nil
}

// maxAxes is the most axes of a tensor, of torch.
const maxAxes = 64

// ints returns a tuple of integers; a torch.Size is one too.
func (m *machine) ints(what string, v any) ([]int64, error) {
	if o, ok := v.(*opaque); ok && o.name == "torch.Size" && len(o.parts) == 1 {
		v = o.parts[0]
	}
	items, ok := sequence(v)
	if !ok {
		return nil, m.fail("found %s for the %s of a tensor", kind(v), what)
	}
	if len(items) > maxAxes {
		return nil, m.fail("found a tensor of %d axes, want at most %d", len(items), maxAxes)
	}
	m.spend(8 * int64(len(items)))
	out := make([]int64, len(items))
	for i, item := range items {
		if out[i], ok = item.(int64); !ok {
			return nil, m.fail("found %s in the %s of a tensor", kind(item), what)
		}
	}
	return out, nil
}

// rebuildFirst works out what wraps a tensor and adds nothing we need, such as
// _rebuild_parameter(data, requires_grad, hooks).
func rebuildFirst(m *machine, args []any) (any, error) {
	if len(args) == 0 {
		return nil, m.fail("found a parameter made of nothing")
	}
	if _, ok := args[0].(*view); !ok {
		return m.opaque("torch._utils._rebuild_parameter", args)
	}
	return args[0], nil
}

// rebuildFromType works out _rebuild_from_type_v2(function, class, arguments,
// state): what the function makes of the arguments, as another class.
func rebuildFromType(m *machine, args []any) (any, error) {
	if len(args) < 3 {
		return nil, m.fail("found a tensor subclass made of %d values, want at least 3", len(args))
	}
	inner, ok := sequence(args[2])
	if !ok {
		return nil, m.fail("found %s for the arguments of a tensor subclass", kind(args[2]))
	}
	if f, ok := args[0].(rebuild); ok {
		return m.rebuildInner(f, inner)
	}
	return m.opaque("torch._tensor._rebuild_from_type_v2", args)
}

func (m *machine) rebuildInner(f rebuild, args []any) (any, error) {
	if m.inner++; m.inner > maxDepth {
		return nil, m.fail("found tensor subclasses inside each other more than %d deep", maxDepth)
	}
	defer func() { m.inner-- }()
	return f(m, args)
}

// persistent works out a persistent id, the way a pickle refers to a storage:
// ("storage", class, key, location, elements[, view]).
func (m *machine) persistent(id any) (any, error) {
	t, ok := id.(*tuple)
	if !ok || len(t.items) < 2 {
		return nil, m.fail("found %s for a persistent id, want a tuple", kind(id))
	}
	switch text(t.items[0]) {
	case "storage":
	case "module":
		return t.items[1], nil // a class whose source text the old form carries
	default:
		return nil, m.fail("found a persistent id of %q, want \"storage\"", tensor.Clip(text(t.items[0])))
	}
	if len(t.items) < 5 {
		return nil, m.fail("found a storage of %d values, want at least 5", len(t.items))
	}
	typ, ok := t.items[1].(storageType)
	if !ok {
		return nil, m.fail("found %s for the class of a storage", kind(t.items[1]))
	}
	key := text(t.items[2])
	elements, ok := t.items[4].(int64)
	if !ok || elements < 0 {
		return nil, m.fail("found %s for the number of elements of storage %q", kind(t.items[4]), tensor.Clip(key))
	}
	width := typ.width()
	bytes, err := tensor.CheckedMul(elements, width)
	if err != nil {
		return nil, m.fail("storage %q of %d elements: %v", tensor.Clip(key), elements, err)
	}
	if err := m.store(key, typ, bytes); err != nil {
		return nil, err
	}
	m.spend(96)
	s := &storage{key: key, typ: typ, bytes: bytes}
	if len(t.items) > 5 && t.items[5] != nil {
		return s, m.narrow(s, t.items[5], width)
	}
	return s, nil
}

func (t storageType) width() int64 {
	if t.dtype != tensor.Invalid {
		return t.dtype.BlockBytes()
	}
	if n, ok := oddStorages[t.name]; ok {
		return n
	}
	return 1
}

// narrow makes a storage a view of itself: (key, first element, elements).
func (m *machine) narrow(s *storage, v any, width int64) error {
	items, _ := sequence(v)
	if len(items) == 3 {
		first, ok1 := items[1].(int64)
		n, ok2 := items[2].(int64)
		if ok1 && ok2 && first >= 0 && n >= 0 && first <= s.bytes/width && n <= s.bytes/width-first {
			s.skip, s.bytes = first*width, n*width
			return nil
		}
	}
	return m.fail("found a view that does not fit storage %q", tensor.Clip(s.key))
}

// store remembers a storage that the pickle speaks of. All who speak of one must
// give it the same size.
func (m *machine) store(key string, typ storageType, bytes int64) error {
	known, ok := m.storages[key]
	if !ok {
		m.spend(128 + int64(len(key)))
		m.storages[key] = &place{bytes: bytes, width: typ.width()}
		return nil
	}
	if known.bytes != bytes {
		return m.fail("found storage %q of %d bytes, but it was of %d bytes before", tensor.Clip(key), bytes, known.bytes)
	}
	return nil
}

// place is where a storage's bytes are; offset is known once the pickle is read.
type place struct {
	bytes  int64
	width  int64 // bytes of an element, for the counts of the old form
	offset int64 // in the file, -1 while it is not known
}

// text returns a string, or bytes that Python 2 wrote for one.
func text(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case []byte:
		return string(x)
	case int64:
		return fmt.Sprint(x)
	}
	return ""
}

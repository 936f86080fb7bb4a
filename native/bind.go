package native

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/ebitengine/purego"
)

// functions is every C function in use. Each field's tag c quotes the C
// prototype, which names the symbol and is checked against the Go type. A tag
// opt marks functions that a library may lack; their fields stay nil.
type functions struct {
	typeFuncs
	contextFuncs
	opFuncs
	customFuncs
	graphFuncs
	backendFuncs
}

// bind resolves every field of the struct that fns points to in the first of
// the shared objects that has the symbol.
func bind(fns reflect.Value, objects []uintptr) error {
	for i := range fns.NumField() {
		field, spec := fns.Field(i), fns.Type().Field(i)
		if spec.Anonymous {
			if err := bind(field, objects); err != nil {
				return err
			}
			continue
		}
		proto, err := parsePrototype(spec.Tag.Get("c"))
		if err != nil {
			return fmt.Errorf("field %s: %w", spec.Name, err)
		}
		if err := proto.check(spec.Type); err != nil {
			return fmt.Errorf("field %s: %w", spec.Name, err)
		}
		addr := lookup(objects, proto.name)
		if addr == 0 {
			if spec.Tag.Get("opt") != "" {
				continue
			}
			return fmt.Errorf("%w: it has no symbol %s", ErrMismatch, proto.name)
		}
		register(field, addr)
	}
	return nil
}

func lookup(objects []uintptr, name string) uintptr {
	for _, o := range objects {
		if addr, err := symbol(o, name); err == nil && addr != 0 {
			return addr
		}
	}
	return 0
}

// register sets an unexported func field; reflect allows that only through the
// field's address.
func register(field reflect.Value, addr uintptr) {
	ptr := reflect.NewAt(field.Type(), field.Addr().UnsafePointer())
	purego.RegisterFunc(ptr.Interface(), addr)
}

// prototype is a parsed C prototype.
type prototype struct {
	name   string
	result string
	params []string
}

// parsePrototype reads "result name(type name, ...)". Function pointer
// parameters must be written as uintptr_t.
func parsePrototype(c string) (prototype, error) {
	head, rest, ok := strings.Cut(c, "(")
	if !ok || !strings.HasSuffix(rest, ")") {
		return prototype{}, fmt.Errorf("prototype %q is not of the form result name(params)", c)
	}
	head = strings.TrimSpace(head)
	cut := strings.LastIndexAny(head, " *")
	if cut < 0 {
		return prototype{}, fmt.Errorf("prototype %q has no result type", c)
	}
	p := prototype{name: head[cut+1:], result: strings.TrimSpace(head[:cut+1])}
	list := strings.TrimSpace(strings.TrimSuffix(rest, ")"))
	if list == "" || list == "void" {
		return p, nil
	}
	for param := range strings.SplitSeq(list, ",") {
		p.params = append(p.params, strings.TrimSpace(param))
	}
	return p, nil
}

// check compares the prototype with a Go function type, parameter by parameter.
func (p prototype) check(fn reflect.Type) error {
	if fn.NumIn() != len(p.params) {
		return fmt.Errorf("%s takes %d parameters, the Go type %d", p.name, len(p.params), fn.NumIn())
	}
	for i, param := range p.params {
		if !matches(param, fn.In(i)) {
			return fmt.Errorf("%s: parameter %q cannot be a Go %s", p.name, param, fn.In(i))
		}
	}
	if p.result == "void" {
		if fn.NumOut() != 0 {
			return fmt.Errorf("%s returns nothing, the Go type %s", p.name, fn.Out(0))
		}
		return nil
	}
	if fn.NumOut() != 1 || !matches(p.result, fn.Out(0)) {
		return fmt.Errorf("%s returns %q, which the Go type does not", p.name, p.result)
	}
	return nil
}

// scalars gives the Go kind of each C scalar type in ggml's interface. Enums
// are 32 bits wide on every system ggml supports.
var scalars = map[string]reflect.Kind{
	"bool": reflect.Bool, "float": reflect.Float32, "int": reflect.Int32,
	"int32_t": reflect.Int32, "int64_t": reflect.Int64, "uint32_t": reflect.Uint32,
	"size_t": reflect.Uintptr, "uintptr_t": reflect.Uintptr,
}

// handles are C typedefs that stand for a pointer.
var handles = map[string]bool{
	"ggml_backend_t": true, "ggml_backend_dev_t": true, "ggml_backend_reg_t": true, "ggml_backend_buffer_t": true,
	"ggml_backend_buffer_type_t": true, "ggml_backend_sched_t": true, "ggml_gallocr_t": true,
}

func matches(c string, t reflect.Type) bool {
	kind := t.Kind()
	if strings.Contains(c, "*") {
		isText := strings.HasPrefix(strings.TrimPrefix(c, "const "), "char") && strings.Count(c, "*") == 1
		return kind == reflect.Pointer || kind == reflect.UnsafePointer || (isText && kind == reflect.String)
	}
	for word := range strings.FieldsSeq(c) {
		switch word {
		case "const":
			continue
		case "enum":
			return kind == reflect.Int32
		case "struct":
			return kind == reflect.Struct
		}
		if handles[word] {
			return kind == reflect.Pointer
		}
		want, known := scalars[word]
		return known && want == kind
	}
	return false
}

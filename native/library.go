package native

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sdtool/sdtool/tensor"
)

// ErrMismatch is wrapped when a library loads but is not one this program can
// drive: another layout, another type table or a missing symbol.
var ErrMismatch = errors.New("unsuitable ggml library")

// Library is a loaded ggml. Its methods may be used from several goroutines
// unless they say otherwise. It stays loaded until the process ends, because
// backends keep threads and tables that nothing can take down safely.
type Library struct {
	Paths   Paths
	Version string // ggml's own, such as "0.23.0"
	Commit  string // of ggml's repository

	c     functions
	types map[int32]typeRow

	loadBackends         sync.Once
	opMulMat, opMulMatID int32 // enum ggml_op, which differs between versions
	opCustom             atomic.Int32
}

type typeRow struct {
	name   string
	block  int64
	bytes  int64
	traits *typeTraits
}

// Open loads the library and shakes hands with it. Errors wrap ErrMismatch
// when the files are not a ggml that fits, with what was found and expected.
func Open(p Paths) (*Library, error) {
	l := &Library{Paths: p}
	objects := make([]uintptr, 0, 2)
	for _, path := range []string{p.Base, p.Core} {
		o, err := openShared(path)
		if err != nil {
			return nil, fmt.Errorf("load %s: %w: %w; %s", path, ErrMismatch, err, Advice)
		}
		objects = append(objects, o)
	}
	if err := bind(reflect.ValueOf(&l.c).Elem(), objects); err != nil {
		return nil, fmt.Errorf("load %s: %w; %s", p.Base, err, Advice)
	}
	l.listen()
	l.Version, l.Commit = l.c.version(), l.c.commit()
	if err := l.handshake(); err != nil {
		return nil, fmt.Errorf("load %s (ggml %s): %w; %s", p.Base, l.Version, err, Advice)
	}
	return l, nil
}

// handshake proves that this build of ggml lays out memory and numbers its
// types as this package assumes.
func (l *Library) handshake() error {
	if err := l.checkLayout(); err != nil {
		return err
	}
	return l.checkTypes()
}

// checkTypes compares ggml's type table with tensor.DType. Types that the
// library does not know yet are left out; the plain ones it must have.
func (l *Library) checkTypes() error {
	l.types = make(map[int32]typeRow)
	last := l.lastType()
	for _, d := range tensor.All() {
		id, ok := d.GGML()
		if !ok || id > last {
			continue
		}
		row := typeRow{name: l.c.typeName(id), block: l.c.blckSize(id), bytes: int64(l.c.typeSize(id)), traits: l.c.typeTraits(id)}
		if !strings.EqualFold(row.name, d.String()) || row.block != d.Block() || row.bytes != d.BlockBytes() {
			return fmt.Errorf("%w: type %d is %s with %d bytes per %d elements, expected %s with %d per %d",
				ErrMismatch, id, row.name, row.bytes, row.block, d, d.BlockBytes(), d.Block())
		}
		if t := row.traits; t == nil || t.block != row.block || int64(t.size) != row.bytes || t.quantized != d.IsQuantized() {
			return fmt.Errorf("%w: type traits of %s do not have the expected layout", ErrMismatch, d)
		}
		l.types[id] = row
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.Q8_0} {
		if id, _ := d.GGML(); l.types[id].name == "" {
			return fmt.Errorf("%w: it does not know type %s", ErrMismatch, d)
		}
	}
	return nil
}

// lastType returns the highest id that tensor.DType and the library both have.
// With zero bytes ggml's validator looks only at the id, which makes it the one
// question that is safe to ask about an id the library may not have; but it
// also refuses a few that it has, so ids below an accepted one count as known.
func (l *Library) lastType() int32 {
	var ids []int32
	for _, d := range tensor.All() {
		if id, ok := d.GGML(); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Backward(ids) {
		if l.c.validateRowData(id, nil, 0) {
			return id
		}
	}
	return -1
}

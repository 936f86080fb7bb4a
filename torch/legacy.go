package torch

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/sdtool/sdtool/tensor"
)

// The two numbers a stream begins with, of torch.serialization.
var (
	legacyMagic   = []byte{0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19}
	legacyVersion = int64(1001)
)

// readLegacy reads a checkpoint in the form before zip archives.
func readLegacy(r io.ReaderAt, size int64, path string) (any, *machine, error) {
	m := newMachine(newStream(r, path, 0, size), size)
	first, err := m.run()
	if err != nil {
		return nil, nil, err
	}
	if b, ok := first.([]byte); !ok || string(b) != string(legacyMagic) {
		if holdsData(first, make(map[any]bool)) {
			return nil, nil, m.in.fail(KindPickle, "the pickle has tensors, but the file has no storages; it was not saved by torch")
		}
		return nil, nil, &FormatError{Path: path, Kind: KindForeign, Offset: -1, Msg: fmt.Sprintf("a Python pickle of %s, but not a torch checkpoint", kind(first))}
	}
	m.next()
	if v, err := m.run(); err != nil {
		return nil, nil, err
	} else if v != legacyVersion {
		return nil, nil, m.in.fail(KindPickle, "found torch's old form in version %v, want %d", v, legacyVersion)
	}
	m.next()
	system, err := m.run()
	if err != nil {
		return nil, nil, err
	}
	if d, ok := system.(*dict); ok {
		if little, ok := d.get("little_endian"); ok && little == false {
			return nil, nil, &FormatError{Path: path, Kind: KindEndian, Offset: -1,
				Msg: "its data is big-endian, want little-endian; save it again on the machine that made it"}
		}
	}
	m.next()
	root, err := m.run()
	if err != nil {
		return nil, nil, err
	}
	m.next()
	keys, err := m.run()
	if err != nil {
		return nil, nil, err
	}
	return root, m, m.placeLegacy(keys)
}

// placeLegacy finds the bytes of the storages, which follow in the order of keys.
func (m *machine) placeLegacy(v any) error {
	keys, ok := sequence(v)
	if !ok {
		return m.fail("found %s for the keys of its storages", kind(v))
	}
	for _, p := range m.storages {
		p.offset = -1
	}
	at := m.in.pos
	for _, k := range keys {
		key := text(k)
		p, ok := m.storages[key]
		if !ok || p.offset >= 0 {
			return m.fail("found storage %q at the end, which it does not speak of or has twice", tensor.Clip(key))
		}
		end, err := m.legacyStorage(key, p, at)
		if err != nil {
			return err
		}
		at = end
	}
	for key, p := range m.storages {
		if p.offset < 0 && p.bytes > 0 {
			return &FormatError{Path: m.in.path, Kind: KindStorage, Offset: -1, Msg: fmt.Sprintf("storage %q is not in the file", tensor.Clip(key))}
		}
	}
	return nil
}

// legacyStorage reads the count before a storage and returns the storage's end.
func (m *machine) legacyStorage(key string, p *place, at int64) (int64, error) {
	fail := func(kind ErrorKind, format string, args ...any) (int64, error) {
		return 0, &FormatError{Path: m.in.path, Kind: kind, Offset: at, Msg: fmt.Sprintf("storage %q: ", tensor.Clip(key)) + fmt.Sprintf(format, args...)}
	}
	if m.in.end-at < 8 {
		return fail(KindCut, "the file is cut short: it ends before it")
	}
	var b [8]byte
	if err := tensor.ReadFull(m.in.r, m.in.path, b[:], at); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint64(b[:])
	if n > math.MaxInt64 || int64(n) != p.bytes/p.width {
		return fail(KindStorage, "found %d elements, want %d", n, p.bytes/p.width)
	}
	p.offset = at + 8
	end, err := tensor.CheckedAdd(p.offset, p.bytes)
	if err != nil || end > m.in.end {
		return fail(KindCut, "the file is cut short: it needs %d bytes, %d are left", p.bytes, m.in.end-p.offset)
	}
	return end, nil
}

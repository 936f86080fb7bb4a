package torch

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// Facts of the zip format (PKWARE APPNOTE 4.3, 4.5.3).
const (
	zipLocal     = "PK\x03\x04"
	zipCentral   = "PK\x01\x02"
	zipEnd       = "PK\x05\x06"
	zipEnd64     = "PK\x06\x06"
	zipLocator64 = "PK\x06\x07"

	zipEndBytes     = 22
	zipCentralBytes = 46
	zipLocalBytes   = 30
	zipEnd64Bytes   = 56

	methodStored  = 0
	methodDeflate = 8
)

// Limits on archives.
const (
	maxMembers = 1 << 17
	maxPickle  = 256 << 20 // bytes of the pickle
	maxSmall   = 64        // bytes of the members that say one thing
)

// member is a file in an archive. Names are only ever compared.
type member struct {
	method     uint16
	flags      uint16
	crc        uint32
	compressed int64
	size       int64
	local      int64 // offset of its local header
}

// archive is the directory of a zip file. This reader takes what torch writes and
// is strict about it: one disk, sizes in the directory, no name twice, all within
// the file.
type archive struct {
	r       io.ReaderAt
	path    string
	size    int64
	members map[string]member
	order   []string
}

func (a *archive) fail(off int64, format string, args ...any) error {
	return &FormatError{Path: a.path, Kind: KindZip, Offset: off, Msg: "the zip archive is broken: " + fmt.Sprintf(format, args...)}
}

func openArchive(r io.ReaderAt, size int64, path string) (*archive, error) {
	a := &archive{r: r, path: path, size: size, members: make(map[string]member)}
	count, offset, length, err := a.end()
	if err != nil {
		return nil, err
	}
	if count > maxMembers {
		return nil, &FormatError{Path: path, Kind: KindLimit, Offset: -1, Msg: fmt.Sprintf("found %d members in the archive, want at most %d", count, maxMembers)}
	}
	if offset < 0 || length < 0 || offset > size || length > size-offset || count > length/zipCentralBytes {
		return nil, a.fail(offset, "its directory of %d bytes with %d members does not fit the file", length, count)
	}
	s := newStream(r, path, offset, offset+length)
	for range count {
		if err := a.central(s); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// end finds the end record, and with it the directory.
func (a *archive) end() (count, offset, length int64, err error) {
	tail := make([]byte, min(a.size, zipEndBytes+math.MaxUint16))
	start := a.size - int64(len(tail))
	if err := tensor.ReadFull(a.r, a.path, tail, start); err != nil {
		return 0, 0, 0, err
	}
	at := -1
	for i := len(tail) - zipEndBytes; i >= 0; i-- {
		if string(tail[i:i+4]) == zipEnd && i+zipEndBytes+int(binary.LittleEndian.Uint16(tail[i+20:])) <= len(tail) {
			at = i
			break
		}
	}
	if at < 0 {
		return 0, 0, 0, &FormatError{Path: a.path, Kind: KindCut, Offset: -1, Msg: "the zip archive has no directory at its end; the file is cut short"}
	}
	e := tail[at:]
	le := binary.LittleEndian
	count, length, offset = int64(le.Uint16(e[10:])), int64(le.Uint32(e[12:])), int64(le.Uint32(e[16:]))
	if count == math.MaxUint16 || length == math.MaxUint32 || offset == math.MaxUint32 {
		return a.end64(start + int64(at))
	}
	if le.Uint16(e[4:]) != 0 || le.Uint16(e[6:]) != 0 || le.Uint16(e[8:]) != le.Uint16(e[10:]) {
		return 0, 0, 0, a.fail(start+int64(at), "it is spread over several files")
	}
	return count, offset, length, nil
}

// end64 reads the zip64 end record that the locator before the end record names.
func (a *archive) end64(end int64) (count, offset, length int64, err error) {
	locator := make([]byte, 20)
	if end < int64(len(locator)) {
		return 0, 0, 0, a.fail(end, "it has no zip64 locator")
	}
	if err := tensor.ReadFull(a.r, a.path, locator, end-int64(len(locator))); err != nil {
		return 0, 0, 0, err
	}
	le := binary.LittleEndian
	at := le.Uint64(locator[8:])
	if string(locator[:4]) != zipLocator64 || at > math.MaxInt64 || int64(at) > end-zipEnd64Bytes {
		return 0, 0, 0, a.fail(end, "it has no zip64 locator")
	}
	e := make([]byte, zipEnd64Bytes)
	if err := tensor.ReadFull(a.r, a.path, e, int64(at)); err != nil {
		return 0, 0, 0, err
	}
	if string(e[:4]) != zipEnd64 {
		return 0, 0, 0, a.fail(int64(at), "it has no zip64 end record")
	}
	if le.Uint64(e[24:]) != le.Uint64(e[32:]) {
		return 0, 0, 0, a.fail(int64(at), "it is spread over several files")
	}
	n, size, off := le.Uint64(e[32:]), le.Uint64(e[40:]), le.Uint64(e[48:])
	if n > math.MaxInt64 || size > math.MaxInt64 || off > math.MaxInt64 {
		return 0, 0, 0, a.fail(int64(at), "its zip64 end record has sizes beyond 2^63")
	}
	return int64(n), int64(off), int64(size), nil
}

// central reads one entry of the directory.
func (a *archive) central(s *stream) error {
	at := s.pos
	short := func(error) error { return a.fail(at, "an entry of its directory does not fit") }
	b, err := s.take(zipCentralBytes)
	if err != nil {
		return short(err)
	}
	if string(b[:4]) != zipCentral {
		return a.fail(at, "found no entry in its directory where one must be")
	}
	le := binary.LittleEndian
	m := member{flags: le.Uint16(b[8:]), method: le.Uint16(b[10:]), crc: le.Uint32(b[16:]),
		compressed: int64(le.Uint32(b[20:])), size: int64(le.Uint32(b[24:])), local: int64(le.Uint32(b[42:]))}
	nameLen, extraLen, commentLen := int64(le.Uint16(b[28:])), int64(le.Uint16(b[30:])), int64(le.Uint16(b[32:]))
	name, err := s.copyOut(nameLen)
	if err != nil {
		return short(err)
	}
	extra, err := s.copyOut(extraLen)
	if err != nil {
		return short(err)
	}
	if err := s.skip(commentLen); err != nil {
		return short(err)
	}
	if err := a.extend(&m, extra, at); err != nil {
		return err
	}
	switch {
	case m.flags&1 != 0:
		return a.fail(at, "member %q is encrypted", tensor.Clip(string(name)))
	case m.method == methodStored && m.size != m.compressed:
		return a.fail(at, "member %q is stored, but has two sizes", tensor.Clip(string(name)))
	case m.local > a.size || m.compressed > a.size-m.local:
		return a.fail(at, "member %q does not fit the file", tensor.Clip(string(name)))
	}
	if _, ok := a.members[string(name)]; ok {
		return &FormatError{Path: a.path, Kind: KindDuplicate, Offset: at, Msg: fmt.Sprintf("the archive has two members %q", tensor.Clip(string(name)))}
	}
	a.members[string(name)] = m
	a.order = append(a.order, string(name))
	return nil
}

// extend reads the zip64 extra field: those of size, compressed size and offset
// that are all ones in the entry, in this order.
func (a *archive) extend(m *member, extra []byte, at int64) error {
	le := binary.LittleEndian
	var field []byte
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if n > len(extra)-4 {
			break // padding for alignment, as torch makes
		}
		if id == 1 && field == nil {
			field = extra[4 : 4+n]
		}
		extra = extra[4+n:]
	}
	for _, v := range []*int64{&m.size, &m.compressed, &m.local} {
		if *v != math.MaxUint32 {
			continue
		}
		if len(field) < 8 || le.Uint64(field) > math.MaxInt64 {
			return a.fail(at, "an entry of its directory has no zip64 sizes")
		}
		*v = int64(le.Uint64(field))
		field = field[8:]
	}
	return nil
}

// data returns the offset of a member's bytes. The local header before them says
// the same as the directory, or another reader would see another file.
func (a *archive) data(name string, m member) (int64, error) {
	if m.local > a.size-zipLocalBytes {
		return 0, a.fail(m.local, "member %q does not fit the file", tensor.Clip(name))
	}
	b := make([]byte, min(zipLocalBytes+int64(len(name)), a.size-m.local))
	if err := tensor.ReadFull(a.r, a.path, b, m.local); err != nil {
		return 0, err
	}
	if string(b[:4]) != zipLocal || string(b[zipLocalBytes:]) != name || int(binary.LittleEndian.Uint16(b[26:])) != len(name) {
		return 0, a.fail(m.local, "member %q is not where its directory says", tensor.Clip(name))
	}
	if !m.sameAs(b) {
		return 0, a.fail(m.local, "member %q has another size, checksum or method in its own header than in the directory", tensor.Clip(name))
	}
	off := m.local + zipLocalBytes + int64(len(name)) + int64(binary.LittleEndian.Uint16(b[28:]))
	if off > a.size || m.compressed > a.size-off {
		return 0, a.fail(m.local, "member %q does not fit the file", tensor.Clip(name))
	}
	return off, nil
}

// sameAs compares a member with its local header. Sizes and checksum may be left
// to a record after the data (flag 8), and sizes to the zip64 extra field.
func (m member) sameAs(local []byte) bool {
	le := binary.LittleEndian
	if le.Uint16(local[8:]) != m.method || (le.Uint16(local[6:])^m.flags)&1 != 0 {
		return false
	}
	if le.Uint16(local[6:])&8 != 0 {
		return true
	}
	size := func(b []byte, want int64) bool {
		n := int64(le.Uint32(b))
		return n == math.MaxUint32 || n == want
	}
	return le.Uint32(local[14:]) == m.crc && size(local[18:], m.compressed) && size(local[22:], m.size)
}

// read returns the bytes of a member of at most limit bytes, decompressed and
// checked against their CRC.
func (a *archive) read(name string, limit int64) ([]byte, error) {
	m := a.members[name]
	if m.size > limit {
		return nil, &FormatError{Path: a.path, Kind: KindLimit, Offset: m.local, Msg: fmt.Sprintf("member %q has %d bytes, want at most %d", tensor.Clip(name), m.size, limit)}
	}
	off, err := a.data(name, m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, m.size)
	switch m.method {
	case methodStored:
		if err := tensor.ReadFull(a.r, a.path, b, off); err != nil {
			return nil, err
		}
	case methodDeflate:
		d := flate.NewReader(io.NewSectionReader(a.r, off, m.compressed))
		n, err := io.ReadFull(d, b)
		if more, _ := d.Read(make([]byte, 1)); err != nil || more > 0 {
			return nil, a.fail(m.local, "member %q does not decompress to %d bytes (got %d)", tensor.Clip(name), m.size, n+more)
		}
	default:
		return nil, a.fail(m.local, "member %q is compressed with method %d", tensor.Clip(name), m.method)
	}
	if crc := crc32.ChecksumIEEE(b); crc != m.crc {
		return nil, a.fail(m.local, "member %q has checksum %08x, want %08x", tensor.Clip(name), crc, m.crc)
	}
	return b, nil
}

// readZip reads a checkpoint in a zip archive.
func readZip(r io.ReaderAt, size int64, name string) (any, *machine, error) {
	a, err := openArchive(r, size, name)
	if err != nil {
		return nil, nil, err
	}
	prefix, err := a.prefix()
	if err != nil {
		return nil, nil, err
	}
	if _, ok := a.members[prefix+"byteorder"]; ok {
		order, err := a.read(prefix+"byteorder", maxSmall)
		if err != nil {
			return nil, nil, err
		}
		if order := string(bytes.TrimSpace(order)); order != "little" {
			return nil, nil, &FormatError{Path: name, Kind: KindEndian, Offset: -1,
				Msg: fmt.Sprintf("its data is in byte order %q, want \"little\"; save it again on the machine that made it", tensor.Clip(order))}
		}
	}
	// A pickle that is much longer than the file it comes from is a bomb.
	text, err := a.read(prefix+"data.pkl", min(maxPickle, size+baseSpend))
	if err != nil {
		return nil, nil, err
	}
	m := newMachine(newStream(bytes.NewReader(text), name, 0, int64(len(text))), size)
	m.spend(int64(len(text)))
	root, err := m.run()
	if err != nil {
		return nil, nil, err
	}
	return root, m, a.place(prefix, m.storages)
}

// prefix returns the folder of the one data.pkl, with its slash.
func (a *archive) prefix() (string, error) {
	found := ""
	for _, name := range a.order {
		if path.Base(name) != "data.pkl" || strings.HasSuffix(name, "/") {
			continue
		}
		if found != "" {
			return "", a.fail(-1, "it has both %q and %q", tensor.Clip(found), tensor.Clip(name))
		}
		found = name
	}
	if found == "" {
		return "", &FormatError{Path: a.path, Kind: KindForeign, Offset: -1, Msg: "a zip archive, but not a torch checkpoint: no data.pkl is in it"}
	}
	prefix := strings.TrimSuffix(found, "data.pkl")
	if _, ok := a.members[prefix+"constants.pkl"]; ok {
		return "", &FormatError{Path: a.path, Kind: KindForeign, Offset: -1, Msg: "a TorchScript archive, which holds a program and not a state dict"}
	}
	return prefix, nil
}

// place finds the bytes of the storages.
func (a *archive) place(prefix string, storages map[string]*place) error {
	for key, p := range storages {
		name := prefix + "data/" + key
		m, ok := a.members[name]
		fail := func(kind ErrorKind, format string, args ...any) error {
			return &FormatError{Path: a.path, Kind: kind, Offset: -1, Msg: fmt.Sprintf("storage %q: ", tensor.Clip(key)) + fmt.Sprintf(format, args...)}
		}
		switch {
		case !ok && p.bytes == 0:
			continue
		case !ok:
			return fail(KindStorage, "the archive has no member %q", tensor.Clip(name))
		case m.method != methodStored:
			return fail(KindCompressed, "member %q is compressed (method %d); unpack the archive and pack it again without compression", tensor.Clip(name), m.method)
		case m.size < p.bytes:
			return fail(KindStorage, "found %d bytes, want %d", m.size, p.bytes)
		}
		var err error
		if p.offset, err = a.data(name, m); err != nil {
			return err
		}
	}
	return nil
}

package imatrix

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sort"
)

// maxName bounds entry names: far beyond any tensor name, far below trouble.
const maxName = 1 << 16

// datEntryBytes is the least an entry can take: a one-byte name and one value.
const datEntryBytes = 4 + 1 + 4 + 4 + 4

// datReader walks a .dat file. Its position never passes the end of the file.
type datReader struct {
	r    *bufio.Reader
	pos  int64
	size int64
}

func (d *datReader) left() int64 { return d.size - d.pos }

func (d *datReader) bytes(n int64) ([]byte, error) {
	if n > d.left() {
		return nil, fmt.Errorf("%w at offset %d: %d bytes needed, %d left", ErrTruncated, d.pos, n, d.left())
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(d.r, p); err != nil {
		return nil, fmt.Errorf("at offset %d: %w", d.pos, err)
	}
	d.pos += n
	return p, nil
}

func (d *datReader) int32() (int64, error) {
	p, err := d.bytes(4)
	if err != nil {
		return 0, err
	}
	return int64(int32(binary.LittleEndian.Uint32(p))), nil
}

// datEntry is where an entry's numbers lie.
type datEntry struct {
	Header
	calls  int64
	offset int64 // of the first value
}

// readDat reads the index of a .dat and checks every number in it.
func readDat(r io.ReaderAt, size int64) (entries []datEntry, info Info, err error) {
	d := &datReader{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 1<<16), size: size}
	n, err := d.int32()
	if err != nil {
		return nil, info, err
	}
	switch {
	case n == 0:
		return nil, info, ErrEmpty
	case n < 0 || n > d.left()/datEntryBytes:
		return nil, info, fmt.Errorf("%w: %d entries in %d bytes", ErrFormat, n, size)
	}
	seen := make(map[string]bool, n)
	for i := int64(0); i < n; i++ {
		e, err := d.entry()
		if err != nil {
			return nil, info, fmt.Errorf("entry %d of %d: %w", i+1, n, err)
		}
		if seen[e.Name] {
			return nil, info, fmt.Errorf("entry %d of %d: %w: %q", i+1, n, ErrDuplicate, e.Name)
		}
		seen[e.Name] = true
		info.ChunkCount = uint32(max(int64(info.ChunkCount), e.calls))
		entries = append(entries, e)
	}
	return entries, info, d.tail(&info)
}

func (d *datReader) entry() (e datEntry, err error) {
	length, err := d.int32()
	if err != nil {
		return e, err
	}
	if length < 1 || length > maxName || length > d.left() {
		return e, fmt.Errorf("%w: name of %d bytes, %d left in the file", ErrFormat, length, d.left())
	}
	name, err := d.bytes(length)
	if err != nil {
		return e, err
	}
	e.Name = string(name)
	if e.calls, err = d.int32(); err != nil {
		return e, fmt.Errorf("%q: %w", name, err)
	}
	values, err := d.int32()
	if err != nil {
		return e, fmt.Errorf("%q: %w", name, err)
	}
	switch {
	case e.calls < 0:
		return e, fmt.Errorf("%q: %w: %d calls", name, ErrFormat, e.calls)
	case values < 1:
		return e, fmt.Errorf("%q: %w: %d values", name, ErrFormat, values)
	case values > d.left()/4:
		return e, fmt.Errorf("%q: %w: %d values, %d bytes left", name, ErrTruncated, values, d.left())
	}
	e.Header = Header{Name: e.Name, Matrices: 1, Cols: int(values)}
	e.offset = d.pos
	return e, d.values(e.Name, values)
}

// values checks the numbers of an entry and moves behind them.
func (d *datReader) values(name string, n int64) error {
	var buf [4096]byte
	for done := int64(0); done < n; {
		p := buf[:min(4*(n-done), int64(len(buf)))]
		if _, err := io.ReadFull(d.r, p); err != nil {
			return fmt.Errorf("%q: at offset %d: %w", name, d.pos, err)
		}
		for i := 0; i < len(p); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(p[i:]))
			if !(v >= 0 && v <= math.MaxFloat32) {
				return fmt.Errorf("%q: %w: %v in column %d", name, ErrNotFinite, v, done+int64(i/4))
			}
		}
		done += int64(len(p) / 4)
		d.pos += int64(len(p))
	}
	return nil
}

// tail reads what may follow the entries: nothing, the last chunk's number, or
// that and the data set's name.
func (d *datReader) tail(info *Info) error {
	if d.left() == 0 {
		return nil
	}
	if _, err := d.int32(); err != nil {
		return fmt.Errorf("number of the last chunk: %w", err)
	}
	if d.left() == 0 {
		return nil
	}
	length, err := d.int32()
	if err != nil {
		return fmt.Errorf("data set name: %w", err)
	}
	if length < 0 || length > d.left() {
		return fmt.Errorf("%w: data set name of %d bytes, %d left in the file", ErrFormat, length, d.left())
	}
	name, err := d.bytes(length)
	if err != nil {
		return err
	}
	if len(name) > 0 {
		info.Datasets = []string{string(name)}
	}
	if d.left() > 0 {
		return fmt.Errorf("%w: %d bytes after the end", ErrFormat, d.left())
	}
	return nil
}

// read returns the numbers of the entry.
func (e datEntry) read(r io.ReaderAt) (*Entry, error) {
	raw := make([]byte, 4*e.Cols)
	if _, err := r.ReadAt(raw, e.offset); err != nil {
		return nil, fmt.Errorf("at offset %d: %w", e.offset, err)
	}
	out := &Entry{Header: e.Header, Origin: OriginDat, Sums: make([]float64, e.Cols), Counts: []int64{e.calls}, Calls: e.calls}
	for j := range out.Sums {
		out.Sums[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])))
	}
	return out, out.check()
}

// Loss says what writing a Set in the .dat form would lose.
type Loss struct {
	Experts    []string // entries whose matrices have different row counts: the form keeps one number
	Unseen     []string // entries that have matrices without rows: written as a mean of 1
	Empty      []string // entries without any row: not written
	Datasets   int      // data set names beyond the first
	Provenance bool     // what the collector recorded
}

// WriteDat writes the Set in the legacy form, entries sorted by name, and says
// what that form could not hold. It reads one entry at a time.
func WriteDat(w io.Writer, s Set) (Loss, error) {
	var loss Loss
	order, err := writable(s, &loss)
	if err != nil {
		return loss, err
	}
	out := bufio.NewWriterSize(w, 1<<16)
	putInt32(out, len(order))
	info := s.Info()
	for _, i := range order {
		e, err := s.Read(i)
		if err != nil {
			return loss, err
		}
		if e.Calls > math.MaxInt32 || len(e.Sums) > math.MaxInt32 {
			return loss, fmt.Errorf("write entry %q: %d calls, %d values: the .dat form ends at %d", e.Name, e.Calls, len(e.Sums), math.MaxInt32)
		}
		putInt32(out, len(e.Name))
		out.WriteString(e.Name)
		putInt32(out, int(e.Calls))
		putInt32(out, len(e.Sums))
		for m := range e.Counts {
			for _, v := range e.stored(m) {
				putInt32(out, int(int32(math.Float32bits(v))))
			}
		}
	}
	putInt32(out, int(min(info.ChunkCount, math.MaxInt32)))
	if len(info.Datasets) > 0 {
		putInt32(out, len(info.Datasets[0]))
		out.WriteString(info.Datasets[0])
	}
	loss.Datasets = max(len(info.Datasets)-1, 0)
	loss.Provenance = len(info.Provenance) > 0
	return loss, out.Flush()
}

// writable returns the entries that have something to write, sorted by name,
// having checked every number.
func writable(s Set, loss *Loss) ([]int, error) {
	headers := s.Headers()
	order := make([]int, 0, len(headers))
	for i := range headers {
		e, err := s.Read(i)
		if err != nil {
			return nil, err
		}
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("write entry %q: %w", e.Name, err)
		}
		unseen := e.Unseen()
		switch {
		case unseen == len(e.Counts) && e.Origin != OriginDat:
			loss.Empty = append(loss.Empty, e.Name)
			continue
		case unseen > 0 && e.Origin != OriginDat:
			loss.Unseen = append(loss.Unseen, e.Name)
		}
		for _, c := range e.Counts {
			if c != e.Counts[0] {
				loss.Experts = append(loss.Experts, e.Name)
				break
			}
		}
		order = append(order, i)
	}
	if len(order) == 0 {
		return nil, fmt.Errorf("write importance matrix: %w", ErrEmpty)
	}
	sort.Slice(order, func(a, b int) bool { return headers[order[a]].Name < headers[order[b]].Name })
	return order, nil
}

// putInt32 relies on bufio.Writer keeping its first error for Flush.
func putInt32(w *bufio.Writer, v int) {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], uint32(int32(v)))
	w.Write(p[:])
}

package imatrix

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// Keys and tensor-name endings of the GGUF form (llama.cpp, tools/imatrix).
// The keys under keyOwn are ours; other readers pass over them.
const (
	keyType       = "general.type"
	typeImatrix   = "imatrix"
	keyDatasets   = "imatrix.datasets"
	keyChunkCount = "imatrix.chunk_count"
	keyChunkSize  = "imatrix.chunk_size"
	keyOwn        = "sdtool.imatrix."
	keyCalls      = keyOwn + "calls" // i64 array, in order of the names

	endSums   = ".in_sum2"
	endCounts = ".counts"
)

// ggufMatrix is an importance matrix inside an opened GGUF file.
type ggufMatrix struct {
	headers []Header
	pairs   []ggufPair
	calls   []int64
	info    Info
}

type ggufPair struct{ sums, counts *tensor.Tensor }

func newGGUFMatrix(g *gguf.File) (*ggufMatrix, error) {
	if kind, ok := g.Metadata.Str(keyType); ok && kind != typeImatrix {
		return nil, fmt.Errorf("%w: %s is %q, want %q", ErrFormat, keyType, kind, typeImatrix)
	}
	m := &ggufMatrix{}
	if err := m.pair(g.Tensors); err != nil {
		return nil, err
	}
	m.readInfo(g.Metadata)
	return m, nil
}

// pair joins sums with counts; tensors with other endings are passed over.
func (m *ggufMatrix) pair(tensors []tensor.Tensor) error {
	byName := make(map[string]*ggufPair)
	get := func(name string) *ggufPair {
		if byName[name] == nil {
			byName[name] = &ggufPair{}
		}
		return byName[name]
	}
	for i := range tensors {
		t := &tensors[i]
		if name, ok := strings.CutSuffix(t.Name, endSums); ok {
			get(name).sums = t
		} else if name, ok := strings.CutSuffix(t.Name, endCounts); ok {
			get(name).counts = t
		}
	}
	if len(byName) == 0 {
		return fmt.Errorf("%w: no tensor ends in %s", ErrEmpty, endSums)
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		h, err := byName[name].header(name)
		if err != nil {
			return err
		}
		m.headers = append(m.headers, h)
		m.pairs = append(m.pairs, *byName[name])
	}
	return nil
}

func (p ggufPair) header(name string) (Header, error) {
	switch {
	case p.counts == nil:
		return Header{}, fmt.Errorf("%w: entry %q has %s but no %s", ErrFormat, name, endSums, endCounts)
	case p.sums == nil:
		return Header{}, fmt.Errorf("%w: entry %q has %s but no %s", ErrFormat, name, endCounts, endSums)
	}
	for _, t := range []*tensor.Tensor{p.sums, p.counts} {
		if t.DType != tensor.F32 {
			return Header{}, fmt.Errorf("%w: tensor %q is %s, want f32", ErrFormat, t.Name, t.DType)
		}
	}
	values, matrices := p.sums.Source.Size()/4, p.counts.Source.Size()/4
	if matrices < 1 || values < 1 || values%matrices != 0 || values > math.MaxInt32 {
		return Header{}, fmt.Errorf("%w: entry %q has %d sums for %d counts", ErrFormat, name, values, matrices)
	}
	return Header{Name: name, Matrices: int(matrices), Cols: int(values / matrices)}, nil
}

func (m *ggufMatrix) readInfo(md gguf.Metadata) {
	if v, ok := md.Get(keyDatasets); ok {
		m.info.Datasets, _ = v.Strings()
	}
	if n, ok := md.Int(keyChunkCount); ok && n >= 0 && n <= math.MaxUint32 {
		m.info.ChunkCount = uint32(n)
	}
	if n, ok := md.Int(keyChunkSize); ok && n >= 0 && n <= math.MaxUint32 {
		m.info.ChunkSize = uint32(n)
	}
	if v, ok := md.Get(keyCalls); ok {
		if calls, ok := v.Ints(); ok && len(calls) == len(m.headers) {
			m.calls = calls
		}
	}
	for _, kv := range md {
		if key, ok := strings.CutPrefix(kv.Key, keyOwn); ok {
			if s, ok := kv.Value.Str(); ok {
				if m.info.Provenance == nil {
					m.info.Provenance = make(map[string]string)
				}
				m.info.Provenance[key] = s
			}
		}
	}
}

func (m *ggufMatrix) checkAll(path string) error {
	for i := range m.headers {
		if _, err := m.read(i); err != nil {
			return &FileError{Path: path, Entry: m.headers[i].Name, Err: err}
		}
	}
	return nil
}

func (m *ggufMatrix) read(i int) (*Entry, error) {
	p := m.pairs[i]
	e := &Entry{Header: m.headers[i]}
	var err error
	if e.Sums, err = readFloats(p.sums.Source); err != nil {
		return nil, err
	}
	counts, err := readFloats(p.counts.Source)
	if err != nil {
		return nil, err
	}
	e.Counts = make([]int64, len(counts))
	for j, c := range counts {
		if !(c >= 0 && c < math.MaxInt64) {
			return nil, fmt.Errorf("%w: count %v of matrix %d", ErrNotFinite, c, j)
		}
		e.Counts[j] = int64(math.Round(c))
	}
	e.Calls = m.callsOf(i, e.Counts)
	return e, e.check()
}

// callsOf returns the calls that we recorded, or llama.cpp's estimate of them:
// the largest count in chunks.
func (m *ggufMatrix) callsOf(i int, counts []int64) int64 {
	if m.calls != nil {
		return max(m.calls[i], 0)
	}
	most := int64(0)
	for _, c := range counts {
		most = max(most, c)
	}
	if size := int64(m.info.ChunkSize); size > 1 {
		return most/size + min(most%size, 1)
	}
	return most
}

func readFloats(src tensor.Source) ([]float64, error) {
	raw := make([]byte, src.Size())
	if n, err := src.ReadAt(raw, 0); n < len(raw) {
		return nil, err
	}
	out := make([]float64, len(raw)/4)
	for j := range out {
		out[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:])))
	}
	return out, nil
}

// WriteGGUF writes the Set in the GGUF form, entries sorted by name, and says
// what that form could not hold. It reads one entry at a time. Sums are rounded
// to float32. Names that with their endings pass 63 bytes are written whole:
// stock ggml readers refuse such files (LongNames lists them).
func WriteGGUF(w io.Writer, s Set) (Loss, error) {
	var loss Loss
	order, err := writable(s, &loss)
	if err != nil {
		return loss, err
	}
	// This form has a place for every count, and unseen experts stay unseen.
	loss.Experts, loss.Unseen = nil, nil
	headers := s.Headers()
	var infos []tensor.Info
	calls := make([]int64, 0, len(order))
	for _, i := range order {
		h := headers[i]
		sums, counts := []int64{int64(h.Matrices), int64(h.Cols)}, []int64{int64(h.Matrices), 1}
		if h.Matrices == 1 {
			sums, counts = sums[1:], counts[1:]
		}
		infos = append(infos, tensor.Info{Name: h.Name + endSums, DType: tensor.F32, Shape: sums},
			tensor.Info{Name: h.Name + endCounts, DType: tensor.F32, Shape: counts})
		e, err := s.Read(i)
		if err != nil {
			return loss, err
		}
		calls = append(calls, e.Calls)
	}
	layout, err := gguf.NewLayout(ggufMetadata(s.Info(), calls), infos)
	if err != nil {
		return loss, fmt.Errorf("write importance matrix: %w", err)
	}
	return loss, writeGGUFData(w, s, order, layout)
}

func ggufMetadata(info Info, calls []int64) gguf.Metadata {
	md := gguf.Metadata{
		{Key: keyType, Value: gguf.String(typeImatrix)},
		{Key: keyDatasets, Value: gguf.StringArray(append([]string{}, info.Datasets...))},
		{Key: keyChunkCount, Value: gguf.U32(info.ChunkCount)},
		{Key: keyChunkSize, Value: gguf.U32(max(info.ChunkSize, 1))},
		{Key: keyCalls, Value: gguf.I64Array(calls)},
	}
	keys := make([]string, 0, len(info.Provenance))
	for k := range info.Provenance {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		md = append(md, gguf.KV{Key: keyOwn + k, Value: gguf.String(info.Provenance[k])})
	}
	return md
}

func writeGGUFData(w io.Writer, s Set, order []int, layout *tensor.Layout) error {
	out := &padWriter{w: bufio.NewWriterSize(w, 1<<16)}
	out.write(layout.Header)
	for k, i := range order {
		e, err := s.Read(i)
		if err != nil {
			return err
		}
		out.padTo(layout.Offsets[2*k])
		for _, v := range e.Sums {
			out.float(float32(v))
		}
		out.padTo(layout.Offsets[2*k+1])
		for _, c := range e.Counts {
			out.float(float32(c))
		}
	}
	out.padTo(layout.Size)
	return out.w.Flush()
}

// padWriter counts what it writes; bufio keeps the first error for Flush.
type padWriter struct {
	w   *bufio.Writer
	pos int64
}

func (p *padWriter) write(b []byte) {
	p.w.Write(b)
	p.pos += int64(len(b))
}

func (p *padWriter) padTo(offset int64) {
	for ; p.pos < offset; p.pos++ {
		p.w.WriteByte(0)
	}
}

func (p *padWriter) float(v float32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
	p.write(b[:])
}

// stockName is the longest tensor name that an unpatched ggml reads.
const stockName = 63

// LongNames returns the entries whose names, with the GGUF form's endings, are
// too long for an unpatched ggml.
func LongNames(s Set) []string {
	var out []string
	for _, h := range s.Headers() {
		if len(h.Name)+len(endSums) > stockName {
			out = append(out, h.Name)
		}
	}
	return out
}

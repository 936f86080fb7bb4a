package check

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sdtool/sdtool/tensor"
)

// sidecarVersion is the form of the sums file that this package writes.
const sidecarVersion = 1

// Sums are the SHA-256 sums of a checkpoint. Their JSON is the sidecar file.
type Sums struct {
	Version int         `json:"sdtool_checksum"`
	Files   []FileSum   `json:"files"`
	Tensors []TensorSum `json:"tensors"`
}

// FileSum is the sum of all bytes of a file.
type FileSum struct {
	Name   string `json:"name"` // without its folder
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// TensorSum is the sum of a tensor's stored bytes.
type TensorSum struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	SHA256 string  `json:"sha256"`
}

// ErrSidecar is wrapped when a file is not a sums file.
var ErrSidecar = errors.New("not a file of checksums")

// Options for work over all bytes.
type Options struct {
	Threads  int                            // 0: as many as there are processors
	Progress func(bytes int64, name string) // from several goroutines, with the bytes just read
}

func (o *Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return runtime.GOMAXPROCS(0)
}

var buffers = sync.Pool{New: func() any { return new([1 << 20]byte) }}

// sum hashes all of r.
func sum(ctx context.Context, r io.Reader, name string, o *Options) (string, error) {
	h := sha256.New()
	buf := buffers.Get().(*[1 << 20]byte)
	defer buffers.Put(buf)
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := readSome(r, buf[:], h)
		if o.Progress != nil && n > 0 {
			o.Progress(int64(n), name)
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

func readSome(r io.Reader, buf []byte, h hash.Hash) (int, error) {
	n, err := r.Read(buf)
	h.Write(buf[:n])
	return n, err
}

// Sum computes the sums of the tensors and of the files that hold them.
func Sum(ctx context.Context, tensors []tensor.Tensor, paths []string, o Options) (*Sums, error) {
	s := &Sums{Version: sidecarVersion, Files: make([]FileSum, len(paths)), Tensors: make([]TensorSum, len(tensors))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(o.threads())
	for i, path := range paths {
		g.Go(func() error {
			f, size, err := tensor.OpenRegular(path)
			if err != nil {
				return err
			}
			digest, err := sum(ctx, io.NewSectionReader(f, 0, size), path, &o)
			if err = errors.Join(err, f.Close()); err != nil {
				return fmt.Errorf("sum %s: %w", path, err)
			}
			s.Files[i] = FileSum{Name: filepath.Base(path), Size: size, SHA256: digest}
			return nil
		})
	}
	for i, t := range tensors {
		g.Go(func() error {
			digest, err := sum(ctx, io.NewSectionReader(t.Source, 0, t.Source.Size()), t.Name, &o)
			if err != nil {
				return fmt.Errorf("sum tensor %q: %w", t.Name, err)
			}
			s.Tensors[i] = TensorSum{Name: t.Name, DType: t.DType.String(), Shape: slices.Clone(t.Shape), SHA256: digest}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

// Write writes the sums as a sidecar.
func (s *Sums) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(s)
}

// maxSidecar bounds a sidecar file, in bytes.
const maxSidecar = 256 << 20

// ReadSums reads a sidecar. Its errors wrap ErrSidecar where the content is wrong.
func ReadSums(path string) (*Sums, error) {
	f, size, err := tensor.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxSidecar {
		return nil, fmt.Errorf("read %s: %w: %d bytes", path, ErrSidecar, size)
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	s, err := parseSums(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

func parseSums(raw []byte) (*Sums, error) {
	var s Sums
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSidecar, err)
	}
	if s.Version != sidecarVersion {
		return nil, fmt.Errorf("%w: found version %d, want %d", ErrSidecar, s.Version, sidecarVersion)
	}
	return &s, nil
}

// Mismatch is something that is not as a sidecar says.
type Mismatch struct {
	Name string // of a file or tensor
	Kind string // "file" or "tensor"
	Msg  string
}

// Against lists what differs from recorded sums. Files are compared by their
// place in the list, so that a renamed file is the same.
func (s *Sums) Against(recorded *Sums) []Mismatch {
	var out []Mismatch
	if len(s.Files) != len(recorded.Files) {
		out = append(out, Mismatch{"", "file", fmt.Sprintf("found %d files, recorded %d", len(s.Files), len(recorded.Files))})
	}
	for i, f := range s.Files[:min(len(s.Files), len(recorded.Files))] {
		switch want := recorded.Files[i]; {
		case f.Size != want.Size:
			out = append(out, Mismatch{f.Name, "file", fmt.Sprintf("found %d bytes, recorded %d", f.Size, want.Size)})
		case f.SHA256 != want.SHA256:
			out = append(out, Mismatch{f.Name, "file", "its bytes differ"})
		}
	}
	want := make(map[string]TensorSum, len(recorded.Tensors))
	for _, t := range recorded.Tensors {
		want[t.Name] = t
	}
	for _, t := range s.Tensors {
		w, ok := want[t.Name]
		delete(want, t.Name)
		switch {
		case !ok:
			out = append(out, Mismatch{t.Name, "tensor", "not recorded"})
		case t.DType != w.DType || !slices.Equal(t.Shape, w.Shape):
			out = append(out, Mismatch{t.Name, "tensor", fmt.Sprintf("found %s%s, recorded %s%s", t.DType, tensor.ShapeString(t.Shape), w.DType, tensor.ShapeString(w.Shape))})
		case t.SHA256 != w.SHA256:
			out = append(out, Mismatch{t.Name, "tensor", "its bytes differ"})
		}
	}
	for _, t := range recorded.Tensors {
		if _, missing := want[t.Name]; missing {
			out = append(out, Mismatch{t.Name, "tensor", "missing"})
		}
	}
	return out
}

// SidecarPath is where the sums of a checkpoint are kept unless told otherwise.
func SidecarPath(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, "sdtool.sha256.json")
	}
	return path + ".sha256.json"
}

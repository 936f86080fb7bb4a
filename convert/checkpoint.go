package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/safetensors"
	"github.com/sdtool/sdtool/tensor"
	"github.com/sdtool/sdtool/torch"
)

// Format is a form in which tensors are stored.
type Format uint8

// Formats. Sharded and split sets have the format of their parts.
const (
	FormatUnknown Format = iota
	FormatSafetensors
	FormatGGUF
	FormatTorch
	FormatDiffusers // a folder with one folder for each component
)

var formatNames = [...]string{"unknown", "safetensors", "gguf", "torch", "diffusers"}

// String returns the format's name: "safetensors", "gguf", "torch", "diffusers".
func (f Format) String() string { return formatNames[min(int(f), len(formatNames)-1)] }

// OpenOptions say how to read an input.
type OpenOptions struct {
	// Variant is the kind of file to take from a folder that has several, as
	// "fp16" is in "model.fp16.safetensors"; "" takes the one without.
	Variant string
	// AllowOutside lets an index name files outside its folder.
	AllowOutside bool
}

// Checkpoint is an opened input: a file, a sharded or split set, or a folder.
// Close it when done; its tensors cannot be read afterwards.
type Checkpoint struct {
	Path     string
	Format   Format
	Tensors  []tensor.Tensor
	Metadata gguf.Metadata     // of a GGUF file
	Strings  map[string]string // __metadata__ of a safetensors file
	Paths    []string          // every file that is read
	Index    string            // path of the index, or ""
	Size     int64             // of all files, bytes
	Notes    []string          // what a user should know, one sentence each
	GGUF     *gguf.File        // if the format is GGUF
	Torch    *torch.File       // if the format is torch and there is one file

	parts []part
}

// part is an opened file of any format.
type part interface {
	Check() error
	Close() error
}

// Check returns a *tensor.ChangedError if any of the files has changed since
// it was opened. Ask after the last read.
func (c *Checkpoint) Check() error {
	for _, p := range c.parts {
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, p := range c.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Open opens a checkpoint of any readable format; the content decides which,
// except that a name ending in ".json" is an index. Errors are those of the
// format's package. Like those, it returns a *Checkpoint with the error if the
// header is sound and only data is missing (IsTruncated), so that it can be shown.
func Open(path string, o OpenOptions) (*Checkpoint, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openFolder(path, o)
	}
	if strings.HasSuffix(strings.ToLower(path), ".json") {
		return openIndex(path, o)
	}
	switch format, err := sniff(path); {
	case err != nil:
		return nil, err
	case format == FormatGGUF:
		return openGGUF(path)
	case format == FormatTorch:
		return openTorch(path)
	}
	return openSafetensors(path)
}

// IsTruncated reports whether err says that a file's header is sound and data
// is missing at its end.
func IsTruncated(err error) bool {
	var cut *tensor.TruncatedError
	return errors.As(err, &cut)
}

// sniff tells the format from a file's first bytes. What it does not know is
// taken for safetensors, whose reader says what else the file may be.
func sniff(path string) (Format, error) {
	f, _, err := tensor.OpenRegular(path)
	if err != nil {
		return FormatUnknown, err
	}
	head := make([]byte, 16)
	n, err := f.ReadAt(head, 0)
	if cerr := f.Close(); cerr != nil {
		return FormatUnknown, cerr
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return FormatUnknown, fmt.Errorf("read %s: %w", path, err)
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("GGUF")):
		return FormatGGUF, nil
	case len(head) > 8 && head[8] == '{':
		return FormatSafetensors, nil
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), len(head) > 1 && head[0] == 0x80 && head[1] <= 5:
		return FormatTorch, nil
	}
	return FormatSafetensors, nil
}

func openGGUF(path string) (*Checkpoint, error) {
	f, err := gguf.Open(path)
	if f == nil {
		return nil, err
	}
	c := &Checkpoint{
		Path: path, Format: FormatGGUF, Tensors: f.Tensors, Metadata: f.Metadata,
		Paths: f.Paths, Size: f.Size, GGUF: f, parts: []part{f},
	}
	if f.Trailing > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s has %d bytes after its last tensor, which are not read", path, f.Trailing))
	}
	return c, err
}

func openSafetensors(path string) (*Checkpoint, error) {
	f, err := safetensors.Open(path)
	if f == nil {
		return nil, err
	}
	return fromSafetensors(path, f), err
}

func fromSafetensors(path string, f *safetensors.File) *Checkpoint {
	c := &Checkpoint{
		Path: path, Format: FormatSafetensors, Tensors: f.Tensors, Strings: f.Metadata,
		Paths: f.Paths, Index: f.Index, Size: f.Size, parts: []part{f},
	}
	if n := len(f.Unlisted); n > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s: the shards hold %d tensors that the index does not name; they are taken too: %s", f.Index, n, List(f.Unlisted)))
	}
	return c
}

func openTorch(path string) (*Checkpoint, error) {
	f, err := torch.Open(path)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{
		Path: path, Format: FormatTorch, Tensors: f.Tensors, Paths: []string{path},
		Size: f.Size, Torch: f, parts: []part{f},
	}
	if n := len(f.Skipped); n > 0 {
		names := make([]string, n)
		for i, s := range f.Skipped {
			names[i] = fmt.Sprintf("%s (%s)", s.Name, s.What)
		}
		c.Notes = append(c.Notes, fmt.Sprintf("%s: passed over %d entries that are not tensors of the model: %s", path, n, List(names)))
	}
	return c, nil
}

// join adds another checkpoint's tensors under a prefix, and its files.
func (c *Checkpoint) join(other *Checkpoint, prefix string) {
	for _, t := range other.Tensors {
		t.Name = prefix + t.Name
		c.Tensors = append(c.Tensors, t)
	}
	c.Paths = append(c.Paths, other.Paths...)
	c.Size += other.Size
	c.Notes = append(c.Notes, other.Notes...)
	c.parts = append(c.parts, other.parts...)
	if c.Metadata == nil {
		c.Metadata = other.Metadata
	}
	if c.Strings == nil {
		c.Strings = other.Strings
	}
}

// uniqueNames refuses a set that holds a tensor name twice.
func (c *Checkpoint) uniqueNames() error {
	seen := make(map[string]bool, len(c.Tensors))
	for _, t := range c.Tensors {
		if seen[t.Name] {
			return fmt.Errorf("%s holds tensor %q twice", c.Path, t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// listMax is how many names a message shows.
const listMax = 3

// List joins names for a message and says how many more there are.
func List(names []string) string {
	if len(names) <= listMax {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:listMax], ", "), len(names)-listMax)
}

// absolute lists where files are, for comparing with an output.
func absolute(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		if a, err := filepath.Abs(p); err == nil {
			p = a
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// SplitName is the file name of part i (from 0) of a set of n, as llama.cpp's
// gguf-split writes it.
func SplitName(prefix string, i, n int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, i+1, n)
}

// ParseSplitName takes a file name of SplitName apart; i counts from 0.
func ParseSplitName(path string) (prefix string, i, n int, ok bool) {
	const tail = len("-00001-of-00002.gguf")
	if len(path) < tail {
		return "", 0, 0, false
	}
	cut := len(path) - tail
	i, errI := strconv.Atoi(path[cut+1 : cut+6])
	n, errN := strconv.Atoi(path[cut+10 : cut+15])
	if errI != nil || errN != nil || i < 1 || n < i || SplitName(path[:cut], i-1, n) != path {
		return "", 0, 0, false
	}
	return path[:cut], i - 1, n, true
}

// splitCount returns the number of parts a file's metadata speaks of; ok is
// false for a file that is whole.
func splitCount(md Metadata) (n int64, ok bool) {
	n, ok = md.Int(KeySplitCount)
	return n, ok && n > 1
}

// openSet opens every part of the set that the opened part at path belongs to;
// partErr is the error that came with the part. On success, and for the errors
// that keep a file, the parts have become the returned file's; otherwise all but
// the given part are closed.
func openSet(path string, part *File, partErr error, count int64) (*File, error) {
	wrong := func(key, format string, args ...any) error {
		return &FormatError{Path: path, Kind: KindSplit, Key: key, Offset: -1, Msg: fmt.Sprintf(format, args...)}
	}
	prefix, mine, named, ok := ParseSplitName(path)
	if !ok {
		return nil, wrong(KeySplitCount, "the file is part of a set of %d, but its name is not that of a part: want PREFIX-00001-of-%05d.gguf", count, count)
	}
	if int64(named) != count {
		return nil, wrong(KeySplitCount, "found %d, but the file name says %d", count, named)
	}
	paths := make([]string, named)
	var missing []string
	for i := range paths {
		paths[i] = SplitName(prefix, i, named)
		if i == mine {
			continue
		}
		if _, err := os.Stat(paths[i]); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, paths[i])
		}
	}
	if len(missing) > 0 {
		return nil, &MissingPartsError{Path: path, Missing: missing}
	}
	return joinParts(paths, mine, part, partErr)
}

func joinParts(paths []string, mine int, part *File, partErr error) (*File, error) {
	set := &File{Paths: paths}
	var soft error // of the first part that has one
	names := make(map[string]string)
	for i, path := range paths {
		p, err := part, partErr
		if i != mine {
			if p, err = openPart(path); p == nil {
				return nil, errors.Join(err, set.Close())
			}
			set.files.Adopt(&p.files)
		}
		if soft == nil {
			soft = err
		}
		if i == 0 {
			set.Version, set.BigEndian, set.Alignment, set.Metadata = p.Version, p.BigEndian, p.Alignment, p.Metadata
		}
		if err := set.add(p, path, i, names); err != nil {
			return nil, errors.Join(err, set.Close())
		}
	}
	if want, ok := set.Metadata.Int(KeySplitTensors); ok && want != int64(len(set.Tensors)) {
		return nil, errors.Join(&FormatError{Path: paths[0], Kind: KindSplit, Key: KeySplitTensors, Offset: -1,
			Msg: fmt.Sprintf("found %d, but the parts hold %d tensors", want, len(set.Tensors))}, set.Close())
	}
	set.files.Adopt(&part.files)
	return set, soft
}

// add takes part i into the set; names remembers where each tensor came from.
func (f *File) add(p *File, path string, i int, names map[string]string) error {
	if err := checkPart(path, p.Metadata, i, len(f.Paths)); err != nil {
		return err
	}
	for _, t := range p.Tensors {
		if first, ok := names[t.Name]; ok {
			return &FormatError{Path: path, Kind: KindDuplicateTensor, Tensor: t.Name, Offset: -1,
				Msg: "the tensor is in " + filepath.Base(first) + " too"}
		}
		names[t.Name] = path
	}
	f.Tensors = append(f.Tensors, p.Tensors...)
	f.Size += p.Size
	f.Trailing += p.Trailing
	return nil
}

func checkPart(path string, md Metadata, i, count int) error {
	for _, want := range []struct {
		key string
		n   int64
	}{{KeySplitNo, int64(i)}, {KeySplitCount, int64(count)}} {
		if n, ok := md.Int(want.key); !ok || n != want.n {
			found := "nothing"
			if v, ok := md.Get(want.key); ok {
				found = v.String()
			}
			return &FormatError{Path: path, Kind: KindSplit, Key: want.key, Offset: -1, Msg: fmt.Sprintf("found %s, want %d", found, want.n)}
		}
	}
	return nil
}

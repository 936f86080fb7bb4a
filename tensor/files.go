package tensor

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// Files are the open files of a checkpoint, one or a set.
type Files struct{ stamps []Stamp }

// Open opens a regular file for positioned reads, adds it and returns its size.
func (f *Files) Open(path string) (*os.File, int64, error) {
	file, size, err := OpenRegular(path)
	if err != nil {
		return nil, 0, err
	}
	stamp, err := NewStamp(file, path)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	f.stamps = append(f.stamps, stamp)
	return file, size, nil
}

// Adopt adds the files of a part to those of a set. Either may close them.
func (f *Files) Adopt(part *Files) { f.stamps = append(f.stamps, part.stamps...) }

// Close closes the files; the tensors' sources cannot be read afterwards.
// Closing twice is allowed.
func (f *Files) Close() error {
	var errs []error
	for _, s := range f.stamps {
		if err := s.file.Close(); !errors.Is(err, os.ErrClosed) {
			errs = append(errs, err)
		}
	}
	f.stamps = nil
	return errors.Join(errs...)
}

// Check returns a *ChangedError if a file has another size or modification time
// than when it was opened. Ask after the last read.
func (f *Files) Check() error {
	for _, s := range f.stamps {
		if err := s.Check(); err != nil {
			return err
		}
	}
	return nil
}

// SameName returns the index of an element whose name an earlier one has; ok is
// false if all names differ. It sorts: a map would cost more than the header.
func SameName(n int, name func(i int) string) (index int, ok bool) {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return strings.Compare(name(int(a)), name(int(b))) })
	for i := 1; i < n; i++ {
		if j := int(order[i]); name(j) == name(int(order[i-1])) {
			return j, true
		}
	}
	return 0, false
}

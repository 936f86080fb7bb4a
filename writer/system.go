package writer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// osSystem is the real system; its parts that differ are in system_*.go.
type osSystem struct{}

// createTries bounds how often Create chases a temporary file that another
// process keeps renaming away.
const createTries = 100

func (osSystem) Create(path string, keep bool) (output, error) {
	for range createTries {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
			return nil, errors.Join(fmt.Errorf("%w: the temporary file %s is not a regular file", ErrTarget, path), f.Close())
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// Between opening and locking, its writer may have renamed it to be the
		// output: then the lock is on a finished file, which must not be emptied.
		same, err := stillAt(f, path)
		switch {
		case err != nil:
			return nil, errors.Join(err, f.Close())
		case !same:
			if err := f.Close(); err != nil {
				return nil, err
			}
			continue
		}
		if keep {
			return &osOutput{f}, nil
		}
		if err := f.Truncate(0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return &osOutput{f}, nil
	}
	return nil, ErrBusy
}

func stillAt(f *os.File, path string) (bool, error) {
	here, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(here, there), err
}

func (osSystem) Rename(from, to string) error  { return os.Rename(from, to) }
func (osSystem) Remove(path string) error      { return os.Remove(path) }
func (osSystem) SyncDir(dir string) error      { return syncDir(dir) }
func (osSystem) Free(dir string) (int64, bool) { return free(dir) }

// osOutput is a file on disk.
type osOutput struct{ *os.File }

func (o *osOutput) Size() (int64, error) {
	info, err := o.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (o *osOutput) Reserve(size int64) error {
	if size > 0 {
		if err := allocate(o.File, size); err != nil {
			return err
		}
	}
	return o.Truncate(size)
}

func (o *osOutput) CopyFrom(src io.ReaderAt, from, at, n int64) (int64, error) {
	f, ok := src.(*os.File)
	if !ok {
		return 0, nil
	}
	return copyRange(f, o.File, from, at, n)
}

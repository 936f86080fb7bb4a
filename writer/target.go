package writer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// output is the temporary file. The interface stands below os.File so that
// tests can make any call fail.
type output interface {
	io.WriterAt
	io.ReaderAt
	// CopyFrom copies n bytes of src at from to the offset at as far as the
	// system can do it alone, and returns how many it did: 0 if src is no file.
	CopyFrom(src io.ReaderAt, from, at, n int64) (int64, error)
	// Reserve makes the file size bytes long, on disk where the system can.
	Reserve(size int64) error
	Sync() error
	Size() (int64, error)
	Close() error
}

// system is what is needed of the operating system.
type system interface {
	// Create opens the temporary file, locked, and empty unless keep is set.
	// ErrBusy if somebody else has it.
	Create(path string, keep bool) (output, error)
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
	// Free returns the bytes free for this user in the folder's file system; false if unknown.
	Free(dir string) (int64, bool)
}

// tempEnding ends the name of a temporary file; sdtool owns such names.
const tempEnding = ".sdtool-tmp"

// longestName is the longest file name that common file systems take, in bytes.
const longestName = 255

// tempPath returns the temporary file for an output: hidden, beside it, always
// the same.
func tempPath(path string) string {
	dir, base := filepath.Split(path)
	name := "." + base + tempEnding
	if len(name) > longestName {
		sum := sha256.Sum256([]byte(base))
		name = "." + hex.EncodeToString(sum[:16]) + tempEnding
	}
	return filepath.Join(dir, name)
}

// target is an output on its way.
type target struct {
	system system
	path   string // where it will stand, symbolic links resolved
	temp   string
	out    output

	journal *journal // nil unless what is written is to outlive a failure
}

// Check refuses an output that Write would refuse: one that exists (unless
// overwrite is set), that is an input under any name, or that is not a regular
// file in an existing folder. It writes nothing.
func Check(path string, overwrite bool, inputs []string) error {
	_, err := resolve(path, overwrite, inputs)
	return err
}

// resolve checks the output and returns its path without symbolic links.
func resolve(path string, overwrite bool, inputs []string) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("write %s: %w", path, err) }
	if path == "" {
		return fail(fmt.Errorf("%w: empty name", ErrTarget))
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return fail(fmt.Errorf("%w: it is a symbolic link that leads nowhere", ErrTarget))
		}
		return path, checkFolder(path)
	}
	if err != nil {
		return fail(err)
	}
	for _, in := range inputs {
		other, err := os.Stat(in)
		if err == nil && os.SameFile(info, other) {
			return fail(fmt.Errorf("%w (%s)", ErrInput, in))
		}
	}
	switch {
	case info.IsDir():
		return fail(fmt.Errorf("%w: it is a directory", ErrTarget))
	case !info.Mode().IsRegular():
		return fail(fmt.Errorf("%w: it is not a regular file (%s)", ErrTarget, info.Mode().Type()))
	case !overwrite:
		return fail(ErrExists)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fail(err)
	}
	return real, nil
}

func checkFolder(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: the folder %s does not exist: %w", path, dir, err)
	case err != nil:
		return fmt.Errorf("write %s: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("write %s: %w: %s is not a folder", path, ErrTarget, dir)
	}
	return nil
}

func openTarget(sys system, path string, overwrite bool, inputs []string, keep bool) (*target, error) {
	real, err := resolve(path, overwrite, inputs)
	if err != nil {
		return nil, err
	}
	t := &target{system: sys, path: real, temp: tempPath(real)}
	if t.out, err = sys.Create(t.temp, keep); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	if !keep { // a journal would speak of bytes that are gone
		if err := os.Remove(journalPath(t.temp)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, t.abandon(fmt.Errorf("write %s: remove an old journal: %w", path, err))
		}
	}
	return t, nil
}

// resume leaves out of the schedule what an earlier run has written, and returns
// the number of its bytes.
func (t *target) resume(p *Plan, s *schedule, fingerprint string) (int64, error) {
	j, err := openJournal(t, p, fingerprint)
	if err != nil {
		return 0, err
	}
	t.journal = j
	done := int64(0)
	left := s.jobs[:0]
	for _, job := range s.jobs {
		if !j.has(job) {
			left = append(left, job)
			continue
		}
		done += job.n * p.Entries[job.entry].unit()
	}
	s.jobs = left
	return done, nil
}

// reserve makes sure the disk has room and takes it.
func (t *target) reserve(size int64) error {
	if free, ok := t.system.Free(filepath.Dir(t.path)); ok && free < size {
		return &SpaceError{Path: t.path, Need: size, Free: free}
	}
	if err := t.out.Reserve(size); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			free, _ := t.system.Free(filepath.Dir(t.path))
			return &SpaceError{Path: t.path, Need: size, Free: free}
		}
		return fmt.Errorf("write %s: reserve %s: %w", t.path, FormatSize(size), err)
	}
	return nil
}

// abandon removes the temporary file and returns cause, to which it adds what
// went wrong meanwhile.
func (t *target) abandon(cause error) error {
	var space *SpaceError
	if errors.Is(cause, syscall.ENOSPC) && !errors.As(cause, &space) {
		cause = fmt.Errorf("no space left on the disk of %s: %w", t.path, cause)
	}
	if j := t.journal; j != nil {
		if j.useful() { // what there is may be gone on with
			return errors.Join(cause, j.close(), t.out.Close())
		}
		t.journal = nil
		cause = errors.Join(cause, j.remove())
	}
	var closed, removed error
	if renameNeedsClose {
		closed = t.out.Close()
		removed = t.system.Remove(t.temp)
	} else { // the lock goes last: nobody else's new temporary file may be removed
		removed = t.system.Remove(t.temp)
		closed = t.out.Close()
	}
	if removed != nil && !errors.Is(removed, fs.ErrNotExist) {
		return errors.Join(cause, fmt.Errorf("remove the temporary file: %w", errors.Join(removed, closed)))
	}
	return cause
}

// commit makes the temporary file the output.
func (t *target) commit(size int64) error {
	fail := func(what string, err error) error {
		return t.abandon(fmt.Errorf("write %s: %s: %w", t.path, what, err))
	}
	got, err := t.out.Size()
	if err != nil {
		return fail("look at the size", err)
	}
	if size >= 0 && got != size {
		return fail("check", fmt.Errorf("%w: found %d bytes, planned %d", ErrSize, got, size))
	}
	if err := t.out.Sync(); err != nil {
		return fail("flush to disk", err)
	}
	if renameNeedsClose {
		if err := t.out.Close(); err != nil {
			return fail("close", err)
		}
	}
	if err := t.system.Rename(t.temp, t.path); err != nil {
		return fail("rename", err)
	}
	if !renameNeedsClose {
		if err := t.out.Close(); err != nil {
			return fmt.Errorf("write %s: the file is complete, closing it failed: %w", t.path, err)
		}
	}
	if t.journal != nil {
		if err := t.journal.remove(); err != nil {
			return fmt.Errorf("write %s: the file is complete, but its journal could not be removed: %w", t.path, err)
		}
	}
	if err := t.system.SyncDir(filepath.Dir(t.path)); err != nil {
		return fmt.Errorf("write %s: the file is complete, but its folder could not be flushed to disk: %w", t.path, err)
	}
	return nil
}

// writeAll writes p at off, going on after short writes and interruptions.
func writeAll(w io.WriterAt, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := w.WriteAt(p, off)
		p, off = p[n:], off+int64(n)
		switch {
		case len(p) == 0:
			return nil
		case errors.Is(err, syscall.EINTR):
		case err != nil && !errors.Is(err, io.ErrShortWrite):
			return err
		case n == 0:
			return io.ErrShortWrite
		}
	}
	return nil
}

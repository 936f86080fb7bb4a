//go:build unix

package writer

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNeedsClose: a file can be renamed while it is open, so that its lock
// holds until it stands under its final name.
const renameNeedsClose = false

func lock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrBusy
		case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil // a file system without locks, as some network ones are
		}
		return err
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		// A folder may be writable and yet not readable.
		if errors.Is(err, os.ErrPermission) {
			return nil
		}
		return err
	}
	err = d.Sync()
	// Some file systems do not flush folders.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

func free(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	size := uint64(st.Bsize)
	blocks := uint64(st.Bavail)
	if size == 0 || blocks > 1<<62/size {
		return 0, false
	}
	return int64(blocks * size), true
}

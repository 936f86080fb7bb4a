package writer

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// renameNeedsClose: an open file cannot be renamed.
const renameNeedsClose = true

func lock(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 1<<30, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrBusy
	}
	return err
}

// syncDir: the system flushes folders itself.
func syncDir(string) error { return nil }

func free(dir string) (int64, bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, false
	}
	var bytes uint64
	if err := windows.GetDiskFreeSpaceEx(name, &bytes, nil, nil); err != nil || bytes > 1<<62 {
		return 0, false
	}
	return int64(bytes), true
}

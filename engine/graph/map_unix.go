//go:build unix

package graph

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const canMap = true

// mapFile maps size bytes of a file from a page's boundary on, to be read.
func mapFile(f *os.File, from, size int64) ([]byte, error) {
	if int64(int(size)) != size {
		return nil, fmt.Errorf("map %s: %d bytes do not fit the address space", f.Name(), size)
	}
	memory, err := unix.Mmap(int(f.Fd()), from, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	// All of it will be needed soon; without the advice pages come one by one.
	_ = unix.Madvise(memory, unix.MADV_WILLNEED)
	return memory, nil
}

func unmapFile(memory []byte) error { return unix.Munmap(memory) }

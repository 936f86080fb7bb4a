package writer

import (
	"os"
	"path/filepath"
	"strings"
)

// physicalCores counts the distinct sets of sibling threads that the kernel
// lists; 0 if it lists none.
func physicalCores() int {
	lists, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	if err != nil {
		return 0
	}
	seen := make(map[string]bool)
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0
		}
		seen[strings.TrimSpace(string(text))] = true
	}
	return len(seen)
}

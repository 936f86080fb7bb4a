package writer

import "runtime"

// DefaultThreads returns the number of workers to use unless told otherwise:
// the machine's physical cores, as far as this process may run on them.
func DefaultThreads() int {
	usable := runtime.GOMAXPROCS(0)
	if cores := physicalCores(); cores > 0 && cores < usable {
		return cores
	}
	return usable
}

//go:build !linux && !darwin

package writer

// physicalCores: unknown.
func physicalCores() int { return 0 }

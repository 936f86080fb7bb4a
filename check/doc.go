// Package check compares checkpoints: sums of their bytes, and differences
// between two of them. Nothing is converted; convert.Verify does that.
package check

package kernel

// Set is the code for one instruction set. Its methods convert rows of cols
// numbers each, whole blocks, that lie one after the other; weights is nil or has
// one number for each column. They may be called from many goroutines.
type Set struct {
	lanes int
	calls
}

// Available returns the set with the given number of lanes, 8 (AVX2) or 16
// (AVX-512), or nil if this machine or build does not have it.
func Available(lanes int) *Set { return available(lanes) }

// Lanes returns how many blocks are converted side by side.
func (s *Set) Lanes() int { return s.lanes }

package quant

import (
	_ "embed" // for the grids
	"slices"
	"sync"
)

// gridData holds the points of the six grids of the iq1, iq2 and iq3 types as
// ascending little-endian uint16, one after the other in the order of the grids
// below: 8 levels of 2 bits or 4 levels of 3 bits each, first level lowest. They
// are the grids of ggml-common.h (MIT), read out of the library by dequantizing
// a block for each index.
//
//go:embed grids.bin
var gridData []byte

// grid is a set of points onto which groups of numbers are rounded, with what is
// needed to find the nearest.
type grid struct {
	points []uint16 // packed levels
	dim    int      // levels in a point
	bits   int      // per level
	level  int      // number of levels
	// odd holds the points' coordinates 2·level+1, dim for each point.
	odd []int8
	// at maps packed levels to an index in points, or to -(offset+1) of a list in
	// near: a count and then the indices of the nearest points in order.
	at   []int32
	near []uint16
}

// gridSpec says where a grid is in gridData and how its neighbours are made.
type gridSpec struct {
	offset, count    int
	dim, bits, level int
	distances        int // how many distinct distances count as near
}

var gridSpecs = struct{ iq2xxs, iq2xs, iq2s, iq1, iq3xxs, iq3s gridSpec }{
	iq2xxs: gridSpec{0, 256, 8, 2, 3, 2},
	iq2xs:  gridSpec{256, 512, 8, 2, 3, 2},
	iq2s:   gridSpec{768, 1024, 8, 2, 3, 1},
	iq1:    gridSpec{1792, 2048, 8, 2, 3, 3},
	iq3xxs: gridSpec{3840, 256, 4, 3, 8, 2},
	iq3s:   gridSpec{4096, 512, 4, 3, 8, 3},
}

// Grids are made when first used: neighbours take time and memory.
var (
	gridIQ2XXS = sync.OnceValue(func() *grid { return newGrid(gridSpecs.iq2xxs) })
	gridIQ2XS  = sync.OnceValue(func() *grid { return newGrid(gridSpecs.iq2xs) })
	gridIQ2S   = sync.OnceValue(func() *grid { return newGrid(gridSpecs.iq2s) })
	gridIQ1    = sync.OnceValue(func() *grid { return newGrid(gridSpecs.iq1) })
	gridIQ3XXS = sync.OnceValue(func() *grid { return newGrid(gridSpecs.iq3xxs) })
	gridIQ3S   = sync.OnceValue(func() *grid { return newGrid(gridSpecs.iq3s) })
)

func (s gridSpec) points() []uint16 {
	out := make([]uint16, s.count)
	for i := range out {
		out[i] = le.Uint16(gridData[2*(s.offset+i):])
	}
	return out
}

func newGrid(s gridSpec) *grid {
	g := &grid{points: s.points(), dim: s.dim, bits: s.bits, level: s.level}
	g.odd = make([]int8, s.count*s.dim)
	for i, p := range g.points {
		for k := range s.dim {
			g.odd[i*s.dim+k] = int8(2*(p>>(k*s.bits)&(1<<s.bits-1)) + 1)
		}
	}
	g.at = make([]int32, 1<<(s.bits*s.dim))
	for i, p := range g.points {
		g.at[p] = int32(i) + 1 // made -1-based below
	}
	levels := make([]uint16, s.dim)
	for {
		u := 0
		for k, l := range levels {
			u |= int(l) << (k * s.bits)
		}
		if g.at[u] > 0 {
			g.at[u]--
		} else {
			g.at[u] = -int32(len(g.near)) - 1
			g.addNear(levels, s.distances)
		}
		k := 0
		for ; k < s.dim; k++ {
			if levels[k]++; int(levels[k]) < s.level {
				break
			}
			levels[k] = 0
		}
		if k == s.dim {
			return g
		}
	}
}

// addNear appends the list of the points nearest to the levels: all those whose
// distance is one of the first few distinct ones, ordered by distance and index.
func (g *grid) addNear(levels []uint16, distances int) {
	var pos [8]int32
	for k, l := range levels {
		pos[k] = int32(2*l + 1)
	}
	keys := make([]uint32, len(g.points))
	for i := range g.points {
		d2 := int32(0)
		for k := range g.dim {
			diff := int32(g.odd[i*g.dim+k]) - pos[k]
			d2 += diff * diff
		}
		keys[i] = uint32(d2)<<16 | uint32(i)
	}
	// Only the smallest distances matter: find them before sorting.
	limit := uint32(0)
	for range distances {
		next := ^uint32(0)
		for _, key := range keys {
			if d := key >> 16; d < next && (d > limit || limit == 0 && d > 0) {
				next = d
			}
		}
		if next == ^uint32(0) {
			break
		}
		limit = next
	}
	var list []uint32
	for _, key := range keys {
		if key>>16 <= limit {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	g.near = append(g.near, uint16(len(list)))
	for _, key := range list {
		g.near = append(g.near, uint16(key))
	}
}

// list returns the indices of the points near packed levels that are not a point.
func (g *grid) list(at int32) []uint16 {
	o := int(-at - 1)
	return g.near[o+1 : o+1+int(g.near[o])]
}

// floats8 expands the points of a grid to eight numbers each, for decoding.
func floats8(s gridSpec, values ...float32) [][8]float32 {
	out := make([][8]float32, s.count)
	for i, p := range s.points() {
		for k := range out[i] {
			out[i][k] = values[p>>(k*s.bits)&(1<<s.bits-1)]
		}
	}
	return out
}

// floats4 is the same for grids of four.
func floats4(s gridSpec, values ...float32) [][4]float32 {
	out := make([][4]float32, s.count)
	for i, p := range s.points() {
		for k := range out[i] {
			out[i][k] = values[p>>(k*s.bits)&(1<<s.bits-1)]
		}
	}
	return out
}

var (
	floatsIQ2XXS = sync.OnceValue(func() [][8]float32 { return floats8(gridSpecs.iq2xxs, 8, 25, 43) })
	floatsIQ2XS  = sync.OnceValue(func() [][8]float32 { return floats8(gridSpecs.iq2xs, 8, 25, 43) })
	floatsIQ2S   = sync.OnceValue(func() [][8]float32 { return floats8(gridSpecs.iq2s, 8, 25, 43) })
	floatsIQ1    = sync.OnceValue(func() [][8]float32 { return floats8(gridSpecs.iq1, -1, 0, 1) })
	floatsIQ3XXS = sync.OnceValue(func() [][4]float32 { return floats4(gridSpecs.iq3xxs, 4, 12, 20, 28, 36, 44, 52, 62) })
	floatsIQ3S   = sync.OnceValue(func() [][4]float32 { return floats4(gridSpecs.iq3s, 1, 3, 5, 7, 9, 11, 13, 15) })
)

// evenSigns gives the eighth sign to seven: their number is always even.
func evenSigns(s uint32) uint32 {
	p := s ^ s>>4
	p ^= p >> 2
	p ^= p >> 1
	return s | p&1<<7
}

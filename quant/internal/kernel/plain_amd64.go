//go:build !noasm

package kernel

import "unsafe"

// strip is how many numbers, for the most lanes, a turn of a conversion's loop takes.
const strip = 2 * maxLanes

// narrow converts numbers to size bytes each, the last ones through a copy.
func narrow[T byte | uint16](f func(dst *T, src *float32, n int), dst []byte, src []float32) {
	size := int(unsafe.Sizeof(T(0)))
	whole := len(src) / strip * strip
	if whole > 0 {
		dst := dst[:whole*size]
		f((*T)(unsafe.Pointer(&dst[0])), &src[0], whole)
	}
	if rest := src[whole:]; len(rest) > 0 {
		var in [strip]float32
		var out [strip]T
		copy(in[:], rest)
		f(&out[0], &in[0], strip)
		copy(dst[whole*size:len(src)*size], unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), strip*size))
	}
}

// widen is the way back.
func widen[T byte | uint16](f func(dst *float32, src *T, n int), dst []float32, src []byte) {
	size := int(unsafe.Sizeof(T(0)))
	whole := len(dst) / strip * strip
	if whole > 0 {
		src := src[:whole*size]
		f(&dst[0], (*T)(unsafe.Pointer(&src[0])), whole)
	}
	if rest := dst[whole:]; len(rest) > 0 {
		var in [strip]T
		var out [strip]float32
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&in[0])), strip*size), src[whole*size:len(dst)*size])
		f(&out[0], &in[0], strip)
		copy(rest, out[:])
	}
}

// ToF16 rounds to half precision.
func (s *Set) ToF16(dst []byte, src []float32, rows, cols int, _ []float32) {
	narrow(s.toHalf, dst, src[:rows*cols])
}

// ToBF16 rounds to bfloat16.
func (s *Set) ToBF16(dst []byte, src []float32, rows, cols int, _ []float32) {
	narrow(s.toBrain, dst, src[:rows*cols])
}

// ToE4M3 rounds to F8_E4M3.
func (s *Set) ToE4M3(dst []byte, src []float32, rows, cols int, _ []float32) {
	narrow(s.toE4M3, dst, src[:rows*cols])
}

// ToE5M2 rounds to F8_E5M2.
func (s *Set) ToE5M2(dst []byte, src []float32, rows, cols int, _ []float32) {
	narrow(s.toE5M2, dst, src[:rows*cols])
}

// FromF16 widens half precision.
func (s *Set) FromF16(dst []float32, src []byte) { widen(s.fromHalf, dst, src) }

// FromBF16 widens bfloat16.
func (s *Set) FromBF16(dst []float32, src []byte) { widen(s.fromBrain, dst, src) }

// FromE4M3 widens F8_E4M3.
func (s *Set) FromE4M3(dst []float32, src []byte) { widen(s.fromE4M3, dst, src) }

// FromE5M2 widens F8_E5M2.
func (s *Set) FromE5M2(dst []float32, src []byte) { widen(s.fromE5M2, dst, src) }

// CountFrom counts the numbers whose size, as float32 bits, is limit or more.
func (s *Set) CountFrom(src []float32, limit uint32) (total int64) {
	const turn = 4 * maxLanes
	whole := len(src) / turn * turn
	if limit > 0 && whole > 0 {
		var counts [maxLanes]uint32
		above := limit - 1
		// A lane's count cannot overflow: slices of that size do not exist.
		// Called by name, what it points to may stay on the stack.
		if s.lanes == maxLanes {
			countFromAVX512(&counts[0], &src[0], whole, &above)
		} else {
			countFromAVX2(&counts[0], &src[0], whole, &above)
		}
		for _, c := range counts {
			total += int64(c)
		}
		src = src[whole:]
	}
	for i := range src {
		if *(*uint32)(unsafe.Pointer(&src[i]))&0x7fffffff >= limit {
			total++
		}
	}
	return total
}

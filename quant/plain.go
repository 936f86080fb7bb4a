package quant

import (
	"encoding/binary"
	"math"
)

var le = binary.LittleEndian

func quantizeF32(dst []byte, src, _ []float32, _ how) {
	for i, v := range src {
		le.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

func dequantizeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
	}
}

func quantizeF16(dst []byte, src, _ []float32, _ how) {
	for len(src) >= 4 && len(dst) >= 8 {
		in := (*[4]float32)(src)
		low := uint64(toF16(in[0])) | uint64(toF16(in[1]))<<16
		le.PutUint64(dst, low|uint64(toF16(in[2]))<<32|uint64(toF16(in[3]))<<48)
		src, dst = src[4:], dst[8:]
	}
	for i, v := range src {
		le.PutUint16(dst[2*i:], toF16(v))
	}
}

func dequantizeF16(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		v := le.Uint64(src)
		out := (*[4]float32)(dst)
		out[0], out[1] = fromF16(uint16(v)), fromF16(uint16(v>>16))
		out[2], out[3] = fromF16(uint16(v>>32)), fromF16(uint16(v>>48))
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = fromF16(le.Uint16(src[2*i:]))
	}
}

func quantizeBF16(dst []byte, src, _ []float32, _ how) {
	for len(src) >= 4 && len(dst) >= 8 {
		in := (*[4]float32)(src)
		low := uint64(toBF16(in[0])) | uint64(toBF16(in[1]))<<16
		le.PutUint64(dst, low|uint64(toBF16(in[2]))<<32|uint64(toBF16(in[3]))<<48)
		src, dst = src[4:], dst[8:]
	}
	for i, v := range src {
		le.PutUint16(dst[2*i:], toBF16(v))
	}
}

func dequantizeBF16(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		low, high := le.Uint32(src), le.Uint32(src[4:])
		out := (*[4]float32)(dst)
		out[0], out[1] = math.Float32frombits(low<<16), math.Float32frombits(low&0xffff0000)
		out[2], out[3] = math.Float32frombits(high<<16), math.Float32frombits(high&0xffff0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = fromBF16(le.Uint16(src[2*i:]))
	}
}

func quantizeF64(dst []byte, src, _ []float32, _ how) {
	for i, v := range src {
		le.PutUint64(dst[8*i:], math.Float64bits(float64(v)))
	}
}

func dequantizeF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
	}
}

func quantizeE4M3(dst []byte, src, _ []float32, _ how) {
	for i, v := range src {
		dst[i] = toE4M3(v)
	}
}

func quantizeE5M2(dst []byte, src, _ []float32, _ how) {
	for i, v := range src {
		dst[i] = toE5M2(v)
	}
}

func dequantizeE4M3(dst []float32, src []byte) { lookupAll(dst, src, e4m3) }
func dequantizeE5M2(dst []float32, src []byte) { lookupAll(dst, src, e5m2) }
func dequantizeE8M0(dst []float32, src []byte) { lookupAll(dst, src, e8m0) }

func lookupAll(dst []float32, src []byte, values *[256]float32) {
	for i := range dst {
		dst[i] = values[src[i]]
	}
}

// e2m1 are the values of the 4-bit float of OCP Microscaling formats.
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

func dequantizeE2M1(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = e2m1[src[i/2]>>(i%2*4)&15]
	}
}

func dequantizeI8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int8(src[i]))
	}
}

func dequantizeU8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(src[i])
	}
}

func dequantizeI16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int16(le.Uint16(src[2*i:])))
	}
}

func dequantizeU16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(le.Uint16(src[2*i:]))
	}
}

func dequantizeI32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int32(le.Uint32(src[4*i:])))
	}
}

func dequantizeU32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(le.Uint32(src[4*i:]))
	}
}

func dequantizeI64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(int64(le.Uint64(src[8*i:])))
	}
}

func dequantizeU64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(le.Uint64(src[8*i:]))
	}
}

// beyond counts the finite numbers whose size, as float32 bits, is limit or more.
func beyond(src []float32, limit uint32) int64 {
	n := countFrom(src, limit)
	if n > 0 {
		n -= countFrom(src, infinity)
	}
	return n
}

func overflowsF16(_ []byte, src []float32) int64  { return beyond(src, 0x477ff000) }
func overflowsBF16(_ []byte, src []float32) int64 { return beyond(src, 0x7f7f8000) }

// overflowsE4M3 counts what was cut to 448: from half way to 480 on.
func overflowsE4M3(_ []byte, src []float32) int64 { return beyond(src, 0x43e80001) }
func overflowsE5M2(_ []byte, src []float32) int64 { return beyond(src, 0x47700000) }

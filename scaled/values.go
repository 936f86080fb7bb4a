package scaled

import (
	"fmt"
	"sync"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// readBytes fills raw from a tensor's stored bytes.
func readBytes(t *tensor.Tensor, raw []byte, off int64) error {
	if err := tensor.ReadExact(t.Source, raw, off); err != nil {
		return fmt.Errorf("read %q: %w", t.Name, err)
	}
	return nil
}

// readFloats returns n elements of a plain float tensor from first on.
func readFloats(t *tensor.Tensor, first, n int64) ([]float32, error) {
	size := t.DType.BlockBytes()
	raw := make([]byte, n*size)
	if err := readBytes(t, raw, first*size); err != nil {
		return nil, err
	}
	out := make([]float32, n)
	if err := quant.Lookup(t.DType).Dequantize(out, raw); err != nil {
		return nil, fmt.Errorf("read %q: %w", t.Name, err)
	}
	return out, nil
}

// sameValues reports whether two scales hold equal numbers, whatever their
// dtype and shape.
func sameValues(a, b *tensor.Tensor) (bool, error) {
	na, err := a.Elements()
	if err != nil {
		return false, err
	}
	nb, err := b.Elements()
	if err != nil {
		return false, err
	}
	if na != nb || !a.DType.IsFloat() || !b.DType.IsFloat() {
		return false, nil
	}
	const step = 1 << 16
	for first := int64(0); first < na; first += step {
		n := min(step, na-first)
		va, err := readFloats(a, first, n)
		if err != nil {
			return false, err
		}
		vb, err := readFloats(b, first, n)
		if err != nil {
			return false, err
		}
		for i := range va {
			if va[i] != vb[i] {
				return false, nil
			}
		}
	}
	return true, nil
}

// codes turns stored numbers into float32.
type codes struct {
	dtype   tensor.DType
	hiFirst bool // of two 4-bit codes in a byte, the even column is in the high half
}

func newCodes(d tensor.DType, hiFirst bool) codes { return codes{dtype: d, hiFirst: hiFirst} }

// e2m1 returns the values of the 4-bit codes.
var e2m1 = sync.OnceValues(func() (values [16]float32, err error) {
	all := []byte{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe} // the even code is in the low half
	err = quant.Lookup(tensor.F4E2M1).Dequantize(values[:], all)
	return values, err
})

// read decodes elements from first on. raw is scratch of at least len(dst)+1 bytes.
func (c codes) read(t *tensor.Tensor, dst []float32, first int64, raw []byte) error {
	if c.dtype != tensor.F4E2M1 {
		raw = raw[:len(dst)]
		if err := readBytes(t, raw, first); err != nil {
			return err
		}
		if c.dtype == tensor.I8 {
			for i, b := range raw {
				dst[i] = float32(int8(b))
			}
			return nil
		}
		return quant.Lookup(c.dtype).Dequantize(dst, raw)
	}
	last := first + int64(len(dst))
	raw = raw[:(last+1)/2-first/2]
	if err := readBytes(t, raw, first/2); err != nil {
		return err
	}
	values, err := e2m1()
	if err != nil {
		return err
	}
	high := int64(1)
	if c.hiFirst {
		high = 0
	}
	for i := range dst {
		at := first + int64(i)
		b := raw[at/2-first/2]
		if at%2 == high {
			b >>= 4
		}
		dst[i] = values[b&15]
	}
	return nil
}

// byteValues returns the value of every code of a one-byte dtype.
func byteValues(d tensor.DType) (*[256]float32, error) {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	var out [256]float32
	err := quant.Lookup(d).Dequantize(out[:], all[:])
	return &out, err
}

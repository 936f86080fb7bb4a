package convert

import (
	"fmt"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// TypeError reports a tensor that the output format cannot hold as it is.
type TypeError struct {
	Tensor string
	Stored tensor.DType
	Output Format
}

func (e *TypeError) Error() string {
	advice := "leave it out with --exclude"
	if quant.Lookup(e.Stored).CanDequantize {
		advice = "choose a type with --type"
	}
	return fmt.Sprintf("tensor %q is %s, which a %s file cannot hold; %s", e.Tensor, e.Stored, e.Output, advice)
}

// widened says what types become that are not kept although nothing else was
// asked for: as stable-diffusion.cpp has it for the first three, and for the
// rest the smallest ggml type that holds every value.
var (
	widened = map[tensor.DType]tensor.DType{
		tensor.F8E4M3: tensor.F16,
		tensor.F8E5M2: tensor.F16,
		tensor.F64:    tensor.F32,
	}
	widenedGGUF = map[tensor.DType]tensor.DType{
		tensor.F8E8M0: tensor.F32,
		tensor.F4E2M1: tensor.F16,
		tensor.Bool:   tensor.I8,
		tensor.U8:     tensor.I16,
		tensor.U16:    tensor.I32,
		tensor.U32:    tensor.I64,
		tensor.U64:    tensor.I64,
	}
)

// ownType returns the type a tensor has in the output if no other is wanted.
func ownType(it *item, out Format, compat bool) (tensor.DType, error) {
	d := it.DType
	switch {
	case it.scaled:
		return tensor.BF16, nil
	case it.opaque && out == FormatSafetensors:
		return d, nil
	case d == tensor.I64:
		if compat {
			return tensor.I32, nil
		}
		fit, err := narrow(it.Tensor)
		if err == nil && fit {
			return tensor.I32, nil
		}
		return d, err
	}
	if w, ok := widened[d]; ok {
		return w, nil
	}
	if !representable(d, out) {
		if w, ok := widenedGGUF[d]; ok && out == FormatGGUF {
			return w, nil
		}
		return tensor.Invalid, nil
	}
	return d, nil
}

// representable reports whether a format has a type.
func representable(d tensor.DType, out Format) bool {
	if out == FormatGGUF {
		_, ok := d.GGML()
		return ok
	}
	_, ok := d.Safetensors()
	return ok
}

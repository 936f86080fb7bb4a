package gguf_test

import (
	"encoding/binary"
	"math"

	"github.com/sdtool/sdtool/gguf"
	"github.com/sdtool/sdtool/tensor"
)

// raw writes GGUF bytes of any version and byte order, with nothing checked.
type raw struct {
	b     []byte
	v1    bool
	order binary.AppendByteOrder
}

func newRaw(version uint32, tensors, keys uint64) *raw {
	return newRawOrder(binary.LittleEndian, version, tensors, keys)
}

func newRawOrder(order binary.AppendByteOrder, version uint32, tensors, keys uint64) *raw {
	r := &raw{b: []byte("GGUF"), v1: version == 1, order: order}
	return r.u32(version).length(tensors).length(keys)
}

func (r *raw) u32(v uint32) *raw { r.b = r.order.AppendUint32(r.b, v); return r }
func (r *raw) u64(v uint64) *raw { r.b = r.order.AppendUint64(r.b, v); return r }

// length writes a count, a string's length or an axis.
func (r *raw) length(v uint64) *raw {
	if r.v1 {
		return r.u32(uint32(v))
	}
	return r.u64(v)
}

func (r *raw) bytes(b ...byte) *raw { r.b = append(r.b, b...); return r }

func (r *raw) str(s string) *raw {
	r.length(uint64(len(s)))
	r.b = append(r.b, s...)
	return r
}

// kv writes a key and the type of its value.
func (r *raw) kv(key string, typ gguf.ValueType) *raw { return r.str(key).u32(uint32(typ)) }

// entry writes a tensor's entry; axes are innermost first.
func (r *raw) entry(name string, typ uint32, offset uint64, axes ...uint64) *raw {
	r.str(name).u32(uint32(len(axes)))
	for _, n := range axes {
		r.length(n)
	}
	return r.u32(typ).u64(offset)
}

// data pads to 32 and appends n zero bytes.
func (r *raw) data(n int) *raw {
	r.b = append(r.b, make([]byte, (32-len(r.b)%32)%32+n)...)
	return r
}

// value writes a value as the version has it.
func (r *raw) value(v gguf.Value) *raw {
	switch x := v.Any().(type) {
	case uint8:
		return r.bytes(x)
	case int8:
		return r.bytes(byte(x))
	case bool:
		if x {
			return r.bytes(1)
		}
		return r.bytes(0)
	case uint16:
		r.b = r.order.AppendUint16(r.b, x)
	case int16:
		r.b = r.order.AppendUint16(r.b, uint16(x))
	case uint32:
		r.u32(x)
	case int32:
		r.u32(uint32(x))
	case float32:
		r.u32(math.Float32bits(x))
	case uint64:
		r.u64(x)
	case int64:
		r.u64(uint64(x))
	case float64:
		r.u64(math.Float64bits(x))
	case string:
		r.str(x)
	default:
		r.u32(uint32(v.Elem())).length(uint64(v.Len()))
		for i := range v.Len() {
			r.value(v.At(i))
		}
	}
	return r
}

// encode writes a whole sound file of any version and byte order; data holds
// the tensors' bytes as they go into the file.
func encode(order binary.AppendByteOrder, version uint32, md gguf.Metadata, infos []tensor.Info, data [][]byte) []byte {
	r := newRawOrder(order, version, uint64(len(infos)), uint64(len(md)))
	for _, kv := range md {
		r.kv(kv.Key, kv.Value.Type()).value(kv.Value)
	}
	offset := uint64(0)
	for i, info := range infos {
		id, _ := info.DType.GGML()
		axes := make([]uint64, 0, len(info.Shape))
		for k := len(info.Shape) - 1; k >= 0; k-- {
			axes = append(axes, uint64(info.Shape[k]))
		}
		r.entry(info.Name, uint32(id), offset, axes...)
		offset += uint64(len(data[i])+31) / 32 * 32
	}
	for i := range infos {
		r.data(0)
		r.b = append(r.b, data[i]...)
	}
	return r.data(0).b
}

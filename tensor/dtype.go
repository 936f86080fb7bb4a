package tensor

import (
	"fmt"
	"strings"
)

// DType is the element type of a tensor: one of ggml's types, or one that only
// other containers use (F8_E4M3, U8, BOOL, ...). The zero value is Invalid.
type DType uint8

// Element types. The first group exists both in ggml and in safetensors, the
// second only outside ggml, the third only inside it.
const (
	Invalid DType = iota

	F32
	F16
	BF16
	F64
	I8
	I16
	I32
	I64

	Bool
	U8
	U16
	U32
	U64
	C64
	F8E4M3 // the "fn" kind: bias 7, no infinities, 0x7F and 0xFF are NaN
	F8E5M2
	F8E8M0
	F6E2M3
	F6E3M2
	F4E2M1

	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q8_1
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	Q8_K
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	IQ4_NL
	IQ4_XS
	TQ1_0
	TQ2_0
	MXFP4
	NVFP4
	Q1_0
	Q2_0

	numDTypes
)

// Class groups the types by what may be done with their values.
type Class uint8

// Classes of element types.
const (
	ClassNone    Class = iota
	ClassFloat         // real numbers, one element per value
	ClassInt           // integers
	ClassBool          // truth values
	ClassComplex       // complex numbers
	ClassQuant         // blocks of several elements that share scales
)

// noGGML marks a type that ggml has no id for.
const noGGML = -1

type dtypeRow struct {
	name        string // ggml's spelling; for the others, the field's lower-case one
	ggml        int32  // enum ggml_type, or noGGML
	safetensors string // spelling in a safetensors header, or ""
	class       Class
	block       int64 // elements per block
	bytes       int64 // bytes per block
}

// dtypes is the one table of element types. ggml names, ids and sizes are those
// of ggml.h / ggml.c type_traits; safetensors names those of the Dtype enum of
// the safetensors crate.
var dtypes = [numDTypes]dtypeRow{
	Invalid: {"invalid", noGGML, "", ClassNone, 1, 0},

	F32:  {"f32", 0, "F32", ClassFloat, 1, 4},
	F16:  {"f16", 1, "F16", ClassFloat, 1, 2},
	BF16: {"bf16", 30, "BF16", ClassFloat, 1, 2},
	F64:  {"f64", 28, "F64", ClassFloat, 1, 8},
	I8:   {"i8", 24, "I8", ClassInt, 1, 1},
	I16:  {"i16", 25, "I16", ClassInt, 1, 2},
	I32:  {"i32", 26, "I32", ClassInt, 1, 4},
	I64:  {"i64", 27, "I64", ClassInt, 1, 8},

	Bool:   {"bool", noGGML, "BOOL", ClassBool, 1, 1},
	U8:     {"u8", noGGML, "U8", ClassInt, 1, 1},
	U16:    {"u16", noGGML, "U16", ClassInt, 1, 2},
	U32:    {"u32", noGGML, "U32", ClassInt, 1, 4},
	U64:    {"u64", noGGML, "U64", ClassInt, 1, 8},
	C64:    {"c64", noGGML, "C64", ClassComplex, 1, 8},
	F8E4M3: {"f8_e4m3", noGGML, "F8_E4M3", ClassFloat, 1, 1},
	F8E5M2: {"f8_e5m2", noGGML, "F8_E5M2", ClassFloat, 1, 1},
	F8E8M0: {"f8_e8m0", noGGML, "F8_E8M0", ClassFloat, 1, 1},
	F6E2M3: {"f6_e2m3", noGGML, "F6_E2M3", ClassFloat, 4, 3},
	F6E3M2: {"f6_e3m2", noGGML, "F6_E3M2", ClassFloat, 4, 3},
	F4E2M1: {"f4", noGGML, "F4", ClassFloat, 2, 1},

	Q4_0:    {"q4_0", 2, "", ClassQuant, 32, 18},
	Q4_1:    {"q4_1", 3, "", ClassQuant, 32, 20},
	Q5_0:    {"q5_0", 6, "", ClassQuant, 32, 22},
	Q5_1:    {"q5_1", 7, "", ClassQuant, 32, 24},
	Q8_0:    {"q8_0", 8, "", ClassQuant, 32, 34},
	Q8_1:    {"q8_1", 9, "", ClassQuant, 32, 36},
	Q2_K:    {"q2_K", 10, "", ClassQuant, 256, 84},
	Q3_K:    {"q3_K", 11, "", ClassQuant, 256, 110},
	Q4_K:    {"q4_K", 12, "", ClassQuant, 256, 144},
	Q5_K:    {"q5_K", 13, "", ClassQuant, 256, 176},
	Q6_K:    {"q6_K", 14, "", ClassQuant, 256, 210},
	Q8_K:    {"q8_K", 15, "", ClassQuant, 256, 292},
	IQ2_XXS: {"iq2_xxs", 16, "", ClassQuant, 256, 66},
	IQ2_XS:  {"iq2_xs", 17, "", ClassQuant, 256, 74},
	IQ3_XXS: {"iq3_xxs", 18, "", ClassQuant, 256, 98},
	IQ1_S:   {"iq1_s", 19, "", ClassQuant, 256, 50},
	IQ4_NL:  {"iq4_nl", 20, "", ClassQuant, 32, 18},
	IQ3_S:   {"iq3_s", 21, "", ClassQuant, 256, 110},
	IQ2_S:   {"iq2_s", 22, "", ClassQuant, 256, 82},
	IQ4_XS:  {"iq4_xs", 23, "", ClassQuant, 256, 136},
	IQ1_M:   {"iq1_m", 29, "", ClassQuant, 256, 56},
	TQ1_0:   {"tq1_0", 34, "", ClassQuant, 256, 54},
	TQ2_0:   {"tq2_0", 35, "", ClassQuant, 256, 66},
	MXFP4:   {"mxfp4", 39, "", ClassQuant, 32, 17},
	NVFP4:   {"nvfp4", 40, "", ClassQuant, 64, 36},
	Q1_0:    {"q1_0", 41, "", ClassQuant, 128, 18},
	Q2_0:    {"q2_0", 42, "", ClassQuant, 64, 18},
}

var (
	byGGML        = make(map[int32]DType)
	bySafetensors = make(map[string]DType)
	byName        = make(map[string]DType)
)

func init() {
	for _, d := range All() {
		row := &dtypes[d]
		byName[strings.ToLower(row.name)] = d
		if row.ggml != noGGML {
			byGGML[row.ggml] = d
		}
		if row.safetensors != "" {
			bySafetensors[row.safetensors] = d
			byName[strings.ToLower(row.safetensors)] = d
		}
	}
	// Header spellings that other writers use for the same bits.
	bySafetensors["F8_E4M3FN"] = F8E4M3
	byName["f8_e4m3fn"] = F8E4M3
}

// All returns every valid type, in table order.
func All() []DType {
	all := make([]DType, 0, numDTypes-1)
	for d := Invalid + 1; d < numDTypes; d++ {
		all = append(all, d)
	}
	return all
}

func (d DType) row() *dtypeRow {
	if d >= numDTypes {
		return &dtypes[Invalid]
	}
	return &dtypes[d]
}

// String returns the type's name as ggml writes it ("q4_K", "bf16"), or the
// lower-case field name for types ggml does not have ("f8_e4m3", "u8").
func (d DType) String() string { return d.row().name }

// Valid reports whether d is a row of the table.
func (d DType) Valid() bool { return d > Invalid && d < numDTypes }

// Class returns what kind of values d holds.
func (d DType) Class() Class { return d.row().class }

// IsQuantized reports whether d stores blocks that share scales.
func (d DType) IsQuantized() bool { return d.row().class == ClassQuant }

// IsFloat reports whether d stores plain real numbers (F8, F6 and F4 included).
func (d DType) IsFloat() bool { return d.row().class == ClassFloat }

// IsInteger reports whether d stores plain integers.
func (d DType) IsInteger() bool { return d.row().class == ClassInt }

// Block returns the number of elements in one block; 1 for most plain types.
func (d DType) Block() int64 { return d.row().block }

// BlockBytes returns the number of bytes of one block.
func (d DType) BlockBytes() int64 { return d.row().bytes }

// GGML returns ggml's id (enum ggml_type) and whether ggml has the type.
func (d DType) GGML() (id int32, ok bool) {
	id = d.row().ggml
	return id, id != noGGML
}

// Safetensors returns the header spelling and whether safetensors has the type.
func (d DType) Safetensors() (name string, ok bool) {
	name = d.row().safetensors
	return name, name != ""
}

// FromGGML returns the type with ggml's id; ok is false for removed and unknown ids.
func FromGGML(id int32) (d DType, ok bool) {
	d, ok = byGGML[id]
	return d, ok
}

// FromSafetensors returns the type a safetensors header names. Spelling is
// case-sensitive, as in the format.
func FromSafetensors(name string) (d DType, ok bool) {
	d, ok = bySafetensors[name]
	return d, ok
}

// ParseDType returns the type with the given name in any case ("q4_K", "Q4_k",
// "BF16", "F8_E4M3").
func ParseDType(name string) (DType, error) {
	if d, ok := byName[strings.ToLower(name)]; ok {
		return d, nil
	}
	return Invalid, fmt.Errorf("unknown type %q", name)
}

package convert

import (
	"regexp"

	"github.com/sdtool/sdtool/rename"
)

// Names says what output tensors are called.
type Names uint8

// Ways to name tensors.
const (
	NamesKeep  Names = iota // the component's prefix and the input's own name
	NamesLDM                // the names of the original model, as stable-diffusion.cpp's --convert-name
	NamesComfy              // the same, without a prefix where only a diffusion model is there
)

// Options say what to convert into what. The zero value of each field is the
// default; Inputs and Output must be given.
type Options struct {
	Inputs []Input
	Output string // path; with Split, a folder
	Format Format // of the output: FormatSafetensors or FormatGGUF
	Split  bool   // one file for each component, in the folder Output

	Policy Policy
	// Strict makes it an error if a tensor's rows do not fit the wanted type.
	Strict bool

	Names  Names
	Family rename.Family // Unknown: detect it
	// Include and Exclude choose tensors by final name: those that any Include
	// finds (all if there is none) and no Exclude finds.
	Include, Exclude []*regexp.Regexp
	KeepUnused       bool // keep tensors that no runtime reads
	KeepScales       bool // pass scaled weights and their scales on as they are
	Open             OpenOptions

	// KeepTypes keeps every type that the output format has where nothing else is
	// wanted: also F8, F64 and I64, which otherwise become F16, F32 and I32.
	KeepTypes bool
	// Strings are set in the metadata of a safetensors output.
	Strings map[string]string

	Imatrix Imatrix

	NativeAxes bool // write more than four axes to GGUF instead of folding them
	NameLimit  int  // longest tensor name in GGUF, bytes; 0 means gguf.NameLimitSD
	// DropMetadata leaves out the metadata of the inputs.
	DropMetadata bool
	// Provenance, if set, is recorded in the output.
	Provenance *Provenance
}

// Imatrix says how to use importance matrices.
type Imatrix struct {
	Paths        []string
	Require      bool // a tensor without an entry is an error
	AllowMissing bool // types that need weights take ones instead
	AllowNoMatch bool // a matrix that fits nothing is not an error
	NoWeights    bool // no weights at all where there is no entry, instead of ones
}

// Provenance is what an output says about its making.
type Provenance struct {
	Version string // of sdtool
	Options string // that decide the bytes, on one line
}

package safetensors

import (
	"fmt"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// ErrorKind says what is wrong with a file or with what was to be laid out.
type ErrorKind uint8

// Kinds of FormatError.
const (
	KindForeign         ErrorKind = iota + 1 // the file is something else
	KindHeaderLength                         // no room for a header length, or one beyond the file or the limit
	KindHeaderStart                          // the header does not begin with '{'
	KindUTF8                                 // the header is not UTF-8
	KindJSON                                 // the header is not JSON, or not of the right form
	KindLimit                                // more tensors, axes or metadata than this package takes
	KindDuplicateKey                         // a key is in one JSON object twice
	KindDuplicateTensor                      // two shards hold one tensor
	KindMetadata                             // __metadata__ is not an object of strings
	KindName                                 // a tensor name that cannot be used
	KindDType                                // a dtype that is not known, or that safetensors has not
	KindShape                                // an axis or product that overflows
	KindOffset                               // a hole, an overlap, or an end before its beginning
	KindSize                                 // dtype and shape do not give the number of bytes
	KindTrailing                             // bytes after the last tensor
	KindIndex                                // an index that is not of the right form, or leads out of its folder
)

// FormatError reports bytes that break the format, or tensors and metadata that
// the format cannot hold.
type FormatError struct {
	Path   string // "" when laying out
	Kind   ErrorKind
	Tensor string // name, if one is concerned
	Offset int64  // in the file, -1 if none is concerned
	Msg    string
	Err    error // cause, if any
}

func (e *FormatError) Error() string {
	return tensor.Complaint(e.Path, "", e.Tensor, e.Msg, e.Err, e.Offset)
}

func (e *FormatError) Unwrap() error { return e.Err }

// TruncatedError reports a file whose header is sound but whose tensor data is
// not all there.
type TruncatedError = tensor.TruncatedError

// MissingShardsError lists the files an index names that are not there.
type MissingShardsError struct {
	Path    string   // of the index
	Missing []string // paths
}

func (e *MissingShardsError) Error() string {
	const most = 10
	text := fmt.Sprintf("%s: %d shards are missing: %s", e.Path, len(e.Missing), strings.Join(e.Missing[:min(most, len(e.Missing))], ", "))
	if len(e.Missing) > most {
		text += ", …"
	}
	return text
}

// MisplacedError reports tensors that are not in the shard the index names.
type MisplacedError struct {
	Path    string // of the index
	Tensors []Misplaced
}

// Misplaced is one tensor that is not where the index says.
type Misplaced struct {
	Name  string
	Shard string // where the index says it is
	Found string // the shard it is in, or "" if no shard has it
}

func (e *MisplacedError) Error() string {
	const most = 5
	shown := make([]string, 0, most)
	for _, m := range e.Tensors[:min(most, len(e.Tensors))] {
		found := "in no shard"
		if m.Found != "" {
			found = "in " + tensor.Clip(m.Found)
		}
		shown = append(shown, fmt.Sprintf("%q should be in %s, is %s", tensor.Clip(m.Name), tensor.Clip(m.Shard), found))
	}
	text := fmt.Sprintf("%s: %d tensors are not where the index says: %s", e.Path, len(e.Tensors), strings.Join(shown, "; "))
	if len(e.Tensors) > most {
		text += "; …"
	}
	return text
}

package tensor

import (
	"fmt"
	"strings"
)

// TruncatedError reports a file whose header is sound but whose tensor data is
// not all there.
type TruncatedError struct {
	Path   string
	Tensor string // the first tensor that is not complete
	Need   int64  // bytes the header calls for
	Have   int64  // bytes in the file
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("%s: the file is cut short: its header calls for %d bytes, it has %d; tensor %q is the first that is incomplete",
		e.Path, e.Need, e.Have, Clip(e.Tensor))
}

// Clip keeps hostile names from filling a terminal.
func Clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// Complaint is the text of a reader's error: what is wrong, after where (the path,
// the metadata key and the tensor, each left out if empty), before the cause and
// the offset in the file, which is left out if negative.
func Complaint(path, key, tensor, msg string, cause error, offset int64) string {
	var b strings.Builder
	if path != "" {
		b.WriteString(path + ": ")
	}
	if key != "" {
		fmt.Fprintf(&b, "metadata key %q: ", Clip(key))
	}
	if tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", Clip(tensor))
	}
	b.WriteString(msg)
	if cause != nil {
		b.WriteString(": " + cause.Error())
	}
	if offset >= 0 {
		fmt.Fprintf(&b, " (at offset %d)", offset)
	}
	return b.String()
}

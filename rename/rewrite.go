package rename

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/sdtool/sdtool/tensor"
)

// SeFi rewrites the transformer of a SeFi-Image diffusers folder to the layout
// of stable-diffusion.cpp: FLUX.2's names, q, k and v of the double blocks fused
// along axis 0, the halves of the final modulation swapped. Names carry no
// prefix. The table is that of the peer's convert_sefi.py.
func SeFi(in []tensor.Tensor) (*Result, error) {
	names := make([]string, len(in))
	for i, t := range in {
		names[i] = t.Name
	}
	return apply(in, names, func(name string) target { return ditSeFi.resolve(name) })
}

// Qwen3VL rewrites a Hugging Face Qwen3-VL checkpoint to the names that
// stable-diffusion.cpp reads: "model.language_model.X" becomes "model.X", the
// vision tower stays as it is.
func Qwen3VL(in []tensor.Tensor) (*Result, error) {
	return applyFunc(in, func(name string) string {
		if rest, ok := strings.CutPrefix(name, "model.language_model."); ok {
			return "model." + rest
		}
		return name
	})
}

func applyFunc(in []tensor.Tensor, rename func(string) string) (*Result, error) {
	names := make([]string, len(in))
	for i, t := range in {
		names[i] = t.Name
	}
	return apply(in, names, func(name string) target { return target{name: rename(name)} })
}

// MapError reports a line of a user's name table that cannot be used.
type MapError struct {
	Line int // from 1; 0 if the fault is not in a line
	Text string
	Msg  string
}

func (e *MapError) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %q", e.Msg, e.Text)
	case e.Text == "":
		return fmt.Sprintf("line %d: %s", e.Line, e.Msg)
	}
	return fmt.Sprintf("line %d: %s: %q", e.Line, e.Msg, e.Text)
}

// Map is a user's name table: regular expressions (RE2) with replacements, the
// first that matches a name deciding.
type Map struct{ rules []mapRule }

type mapRule struct {
	from *regexp.Regexp
	to   string
}

// maxMapLine bounds a line of a table.
const maxMapLine = 1 << 16

// ParseMap reads a table: a line "REGEX -> REPLACEMENT" each, in which $1 or
// ${name} stand for what the parentheses matched; an empty replacement of the
// whole name is refused when used. Blank lines and those that begin with # are
// skipped. Errors about a line are of type *MapError.
func ParseMap(r io.Reader) (*Map, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxMapLine)
	m := &Map{}
	n := 1
	for ; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fail := func(msg string) (*Map, error) { return nil, &MapError{Line: n, Text: text, Msg: msg} }
		from, to, ok := strings.Cut(text, "->")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		switch {
		case !ok:
			return fail("want REGEX -> REPLACEMENT")
		case from == "":
			return fail("empty pattern")
		}
		re, err := regexp.Compile(from)
		if err != nil {
			return fail(err.Error())
		}
		if group, ok := missingGroup(re, to); !ok {
			return fail(fmt.Sprintf("the replacement names group %q, which the pattern lacks (write ${1}x for $1 before letters)", group))
		}
		m.rules = append(m.rules, mapRule{re, to})
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, &MapError{Line: n, Msg: fmt.Sprintf("longer than %d bytes", maxMapLine)}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read name table: %w", err)
	}
	if len(m.rules) == 0 {
		return nil, &MapError{Line: n, Msg: "the table ends without a rule"}
	}
	return m, nil
}

// groupRef is a reference to a group as regexp's Expand reads it, or "$$".
var groupRef = regexp.MustCompile(`\$(?:\$|\{(\w+)\}|(\w+))`)

// missingGroup checks that every group a replacement names is there: regexp would
// put nothing in its place, and "$1x" names a group "1x".
func missingGroup(re *regexp.Regexp, to string) (group string, ok bool) {
	for _, m := range groupRef.FindAllStringSubmatch(to, -1) {
		group = m[1] + m[2]
		if group == "" {
			continue
		}
		if i, err := strconv.Atoi(group); err == nil && i <= re.NumSubexp() || re.SubexpIndex(group) >= 0 {
			continue
		}
		return group, false
	}
	return "", true
}

// Rename returns the new name; the name itself if no rule matches. Only the part
// that the pattern matches is replaced, everywhere it matches.
func (m *Map) Rename(name string) string {
	for _, r := range m.rules {
		if r.from.MatchString(name) {
			return r.from.ReplaceAllString(name, r.to)
		}
	}
	return name
}

// Apply renames all tensors. A name that becomes empty is a *MapError without a
// line, two that become one a *CollisionError.
func (m *Map) Apply(in []tensor.Tensor) (*Result, error) {
	for _, t := range in {
		if m.Rename(t.Name) == "" {
			return nil, &MapError{Text: t.Name, Msg: "a name becomes empty"}
		}
	}
	return applyFunc(in, m.Rename)
}

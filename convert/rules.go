package convert

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// KeepName is the type name that makes a rule keep a tensor's own type.
const KeepName = "keep"

// Rule gives the tensors whose final name its pattern finds a type.
type Rule struct {
	Text    string // as written: PATTERN=TYPE
	Origin  string // where it was written: "--tensor-type-rules", a file and line, a preset
	Pattern *regexp.Regexp
	Type    tensor.DType // Invalid keeps the tensor's own type
	Preset  bool         // it is one of a preset's
}

// Keep reports whether the rule keeps a tensor's own type.
func (r *Rule) Keep() bool { return r.Type == tensor.Invalid }

// TypeName returns the rule's type as it is written: "q4_K", "keep".
func (r *Rule) TypeName() string {
	if r.Keep() {
		return KeepName
	}
	return r.Type.String()
}

// RuleError reports a rule that cannot be used, with the place in its text.
type RuleError struct {
	Origin string
	Text   string // one line
	At     int    // byte offset in Text
	Msg    string
}

// Error returns one line with the message; Caret shows the place.
func (e *RuleError) Error() string { return fmt.Sprintf("%s: %s", e.Origin, e.Msg) }

// Caret returns the text and, on a second line, a caret under the place.
func (e *RuleError) Caret() string {
	return e.Text + "\n" + strings.Repeat(" ", utf8.RuneCountInString(e.Text[:min(e.At, len(e.Text))])) + "^"
}

// ParseRules parses PATTERN=TYPE,PATTERN=TYPE. A comma ends a rule only where a
// type name stands before it, so that patterns may hold commas; the last '='
// before the type ends the pattern. With compat the text is cut as
// stable-diffusion.cpp cuts it: at every comma, and each item at its first '='.
// Empty items are passed over. A rule that cannot be used is a *RuleError.
func ParseRules(text, origin string, compat bool) ([]Rule, error) {
	var rules []Rule
	for at := 0; at <= len(text); {
		end := itemEnd(text, at, compat)
		item := text[at:end]
		if strings.TrimSpace(item) != "" {
			rule, err := parseRule(text, at, item, origin, compat)
			if err != nil {
				return nil, err
			}
			rules = append(rules, *rule)
		}
		at = end + 1
	}
	return rules, nil
}

// ParseRuleLines parses one rule a line; lines that begin with '#' are comments.
func ParseRuleLines(text, path string) ([]Rule, error) {
	var rules []Rule
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		rule, err := parseRule(line, 0, line, fmt.Sprintf("%s:%d", path, i+1), false)
		if err != nil {
			return nil, err
		}
		rules = append(rules, *rule)
	}
	return rules, nil
}

// itemEnd returns where the item that begins at at ends.
func itemEnd(text string, at int, compat bool) int {
	for i := at; i < len(text); i++ {
		if text[i] != ',' {
			continue
		}
		item := text[at:i]
		eq := strings.LastIndexByte(item, '=')
		if compat || item == "" || eq >= 0 && isWord(strings.TrimSpace(item[eq+1:])) {
			return i
		}
	}
	return len(text)
}

func isWord(s string) bool {
	for _, c := range s {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != ""
}

// parseRule parses the item that begins at base of the whole text.
func parseRule(text string, base int, item, origin string, compat bool) (*Rule, error) {
	fail := func(at int, msg string, args ...any) (*Rule, error) {
		return nil, &RuleError{Origin: origin, Text: text, At: base + at, Msg: fmt.Sprintf(msg, args...)}
	}
	eq := strings.LastIndexByte(item, '=')
	if compat {
		eq = strings.IndexByte(item, '=')
	}
	if eq < 0 {
		return fail(len(item), "rule %q has no '=TYPE'", strings.TrimSpace(item))
	}
	pattern, name := strings.TrimSpace(item[:eq]), strings.TrimSpace(item[eq+1:])
	start := strings.Index(item, pattern)
	if pattern == "" {
		return fail(eq, "rule has no pattern before '='")
	}
	rule := &Rule{Text: strings.TrimSpace(item), Origin: origin}
	if !strings.EqualFold(name, KeepName) || compat {
		d, err := ParseTarget(name)
		if err != nil {
			return fail(eq+1, "%v", err)
		}
		rule.Type = d
	}
	if at, what := foreignSyntax(pattern); what != "" {
		return fail(start+at, "pattern %q uses %s, which Go's regular expressions (RE2) do not have", pattern, what)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		at, msg := explain(pattern, err)
		return fail(start+at, "pattern %q: %s", pattern, msg)
	}
	rule.Pattern = re
	return rule, nil
}

// ParseTarget returns the type with the given name in any case, if tensors can
// be converted to it.
func ParseTarget(name string) (tensor.DType, error) {
	d, err := tensor.ParseDType(name)
	if err != nil {
		return tensor.Invalid, fmt.Errorf("%w: want one of %s", err, strings.Join(Targets(), ", "))
	}
	if !quant.Lookup(d).CanQuantize {
		return tensor.Invalid, fmt.Errorf("nothing can be converted to type %s: want one of %s", d, strings.Join(Targets(), ", "))
	}
	return d, nil
}

// Targets lists the types that tensors can be converted to, KeepName last.
func Targets() []string {
	var names []string
	for _, d := range tensor.All() {
		if quant.Lookup(d).CanQuantize {
			names = append(names, d.String())
		}
	}
	return append(names, KeepName)
}

// constructs are what ECMAScript's regular expressions have and RE2 has not.
var constructs = []struct{ start, what string }{
	{"(?=", "look-ahead (?=…)"},
	{"(?!", "negative look-ahead (?!…)"},
	{"(?<=", "look-behind (?<=…)"},
	{"(?<!", "negative look-behind (?<!…)"},
	{"(?>", "an atomic group (?>…)"},
}

// foreignSyntax finds the first construct of a pattern that RE2 lacks.
func foreignSyntax(pattern string) (at int, what string) {
	class := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			next := pattern[i+1]
			switch {
			case !class && next >= '1' && next <= '9':
				return i, fmt.Sprintf("back-reference \\%c", next)
			case next == 'k':
				return i, "named back-reference \\k"
			case next == 'u':
				return i, `escape \u (write \x{…})`
			case next == 'c':
				return i, `control escape \c`
			}
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
			if strings.HasPrefix(pattern[i+1:], "^]") || strings.HasPrefix(pattern[i+1:], "]") {
				return i, "an empty class []"
			}
		case c == '(':
			for _, k := range constructs {
				if strings.HasPrefix(pattern[i:], k.start) {
					return i, k.what
				}
			}
		}
	}
	return 0, ""
}

// explain turns the regexp package's error into a place and a message.
func explain(pattern string, err error) (at int, msg string) {
	e, ok := err.(*syntax.Error)
	if !ok {
		return 0, err.Error()
	}
	if e.Expr != "" && e.Expr != pattern {
		at = max(strings.Index(pattern, e.Expr), 0)
	}
	if e.Code == syntax.ErrMissingParen {
		at = openParen(pattern)
	}
	return at, e.Code.String()
}

// openParen returns the place of the first '(' that is never closed.
func openParen(pattern string) int {
	var open []int
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '(':
			open = append(open, i)
		case ')':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		}
	}
	if len(open) == 0 {
		return 0
	}
	return open[0]
}

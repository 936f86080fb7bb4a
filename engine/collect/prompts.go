package collect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	_ "embed" // the built-in prompts

	"github.com/sdtool/sdtool/engine"
)

// ErrNoPrompts is wrapped when a prompt file holds none.
var ErrNoPrompts = errors.New("no prompts")

// Prompt is one generation to watch. Fields that are nil leave the common
// parameters as they are.
type Prompt struct {
	Text     string   `json:"prompt"`
	Negative *string  `json:"negative"`
	Width    *int     `json:"width"`
	Height   *int     `json:"height"`
	Steps    *int     `json:"steps"`
	Seed     *int64   `json:"seed"`
	Guidance *float32 `json:"cfg"`
}

// apply puts the prompt's own choices over common parameters.
func (p Prompt) apply(base engine.Params) engine.Params {
	base.Prompt = p.Text
	set(&base.Negative, p.Negative)
	set(&base.Width, p.Width)
	set(&base.Height, p.Height)
	set(&base.Steps, p.Steps)
	set(&base.Seed, p.Seed)
	set(&base.Guidance, p.Guidance)
	return base
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// maxLine bounds a line of a prompt file.
const maxLine = 1 << 20

// ReadPrompts reads prompts, one a line; empty lines are skipped. In JSON lines,
// which a .jsonl ending or a first line that begins with a brace tell, a line is
// an object with "prompt" and perhaps "negative", "width", "height", "steps",
// "seed" and "cfg".
func ReadPrompts(path string) ([]Prompt, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	asJSON := strings.EqualFold(filepath.Ext(path), ".jsonl")
	list, err := ParsePrompts(f, asJSON)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// ParsePrompts is ReadPrompts on a reader; asJSON demands JSON lines.
func ParsePrompts(r io.Reader, asJSON bool) ([]Prompt, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var list []Prompt
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if len(line) == 0 {
			continue
		}
		if len(list) == 0 && line[0] == '{' {
			asJSON = true
		}
		p := Prompt{Text: string(line)}
		if asJSON {
			var err error
			if p, err = parseLine(line); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		}
		list = append(list, p)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, ErrNoPrompts
	}
	return list, nil
}

func parseLine(line []byte) (Prompt, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	var p struct {
		Prompt
		Text *string `json:"prompt"`
	}
	if err := d.Decode(&p); err != nil {
		return Prompt{}, err
	}
	if d.More() {
		return Prompt{}, errors.New("more than one object")
	}
	if p.Text == nil {
		return Prompt{}, errors.New(`no "prompt"`)
	}
	p.Prompt.Text = *p.Text
	return p.Prompt, nil
}

//go:embed prompts.txt
var builtin string

// Builtin returns 32 prompts that differ in subject, style, light, length and
// weighting, for when a user has none.
func Builtin() []Prompt {
	list, err := ParsePrompts(strings.NewReader(builtin), false)
	if err != nil {
		return nil // the file is compiled in; a test counts it
	}
	return list
}

// Shard returns every n-th prompt beginning with the i-th, counting from 1, and
// where each stood in the whole list.
func Shard(list []Prompt, i, n int) (part []Prompt, index []int, err error) {
	if n < 1 || i < 1 || i > n {
		return nil, nil, fmt.Errorf("shard %d/%d: expected 1/N to N/N", i, n)
	}
	for k := i - 1; k < len(list); k += n {
		part, index = append(part, list[k]), append(index, k)
	}
	return part, index, nil
}

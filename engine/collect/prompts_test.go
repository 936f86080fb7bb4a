package collect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine"
)

func TestBuiltinPrompts(t *testing.T) {
	list := Builtin()
	assert.Len(t, list, 32)
	seen := map[string]bool{}
	for _, p := range list {
		assert.NotEmpty(t, p.Text)
		assert.False(t, seen[p.Text], p.Text)
		seen[p.Text] = true
	}
}

func TestParsePrompts(t *testing.T) {
	list, err := ParsePrompts(strings.NewReader("\ufeffa cat\r\n\n  a dog \n"), false)
	require.NoError(t, err)
	assert.Equal(t, []Prompt{{Text: "a cat"}, {Text: "a dog"}}, list)

	list, err = ParsePrompts(strings.NewReader(`{"prompt":"a","steps":3,"seed":9,"cfg":1.5,"width":64,"height":128,"negative":""}`+"\n"+`{"prompt":"b"}`), false)
	require.NoError(t, err)
	require.Len(t, list, 2)
	base := engine.DefaultParams()
	base.Negative = "blurry"
	p := list[0].apply(base)
	assert.Equal(t, []any{"a", "", 64, 128, 3, int64(9), float32(1.5)}, []any{p.Prompt, p.Negative, p.Width, p.Height, p.Steps, p.Seed, p.Guidance})
	p = list[1].apply(base)
	assert.Equal(t, []any{"b", "blurry", base.Width}, []any{p.Prompt, p.Negative, p.Width})
}

func TestBadPrompts(t *testing.T) {
	_, err := ParsePrompts(strings.NewReader("\n \n"), false)
	require.ErrorIs(t, err, ErrNoPrompts)
	for text, want := range map[string]string{
		`{"prompt":"a"}` + "\nplain":     "line 2",
		`{"promt":"a"}`:                  "promt",
		`{"negative":"a"}`:               `no "prompt"`,
		`{"prompt":"a"} {"prompt":"b"}`:  "more than one",
		`{"prompt":"a","steps":"three"}`: "line 1",
	} {
		_, err := ParsePrompts(strings.NewReader(text), true)
		assert.ErrorContains(t, err, want, text)
	}
	_, err = ParsePrompts(strings.NewReader(strings.Repeat("x", maxLine+1)), false)
	assert.Error(t, err)
}

func TestShard(t *testing.T) {
	list := []Prompt{{Text: "a"}, {Text: "b"}, {Text: "c"}, {Text: "d"}, {Text: "e"}}
	part, index, err := Shard(list, 2, 3)
	require.NoError(t, err)
	assert.Equal(t, []Prompt{{Text: "b"}, {Text: "e"}}, part)
	assert.Equal(t, []int{1, 4}, index)
	for _, bad := range [][2]int{{0, 3}, {4, 3}, {1, 0}} {
		_, _, err := Shard(list, bad[0], bad[1])
		assert.Error(t, err)
	}
}

func FuzzParsePrompts(f *testing.F) {
	f.Add("a\nb", false)
	f.Add(`{"prompt":"x","steps":1}`, true)
	f.Fuzz(func(t *testing.T, text string, asJSON bool) {
		list, err := ParsePrompts(strings.NewReader(text), asJSON)
		assert.Equal(t, err == nil, len(list) > 0)
	})
}

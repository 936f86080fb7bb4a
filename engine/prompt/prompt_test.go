package prompt_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/engine/prompt"
)

func TestParseAttention(t *testing.T) {
	type p = prompt.Piece
	for text, want := range map[string][]p{
		"":              {{"", 1}},
		"plain text":    {{"plain text", 1}},
		"a (b:1.3) c":   {{"a ", 1}, {"b", 1.3}, {" c", 1}},
		"(a)":           {{"a", 1.1}},
		"((a))":         {{"a", 1.1 * 1.1}},
		"[a]":           {{"a", 1 / 1.1}},
		"(a [b] c)":     {{"a ", 1.1}, {"b", 1}, {" c", 1.1}},
		"(a (b:2):0.5)": {{"a ", 0.5}, {"b", 1}},
		// stable-diffusion.cpp takes the backslash off an opening bracket only; pictures depend on it.
		`\(not a weight\)`:    {{`(not a weight\)`, 1}},
		"(open":               {{"open", 1.1}},
		"[open":               {{"open", 1 / 1.1}},
		"a (house:1.3) [tree": {{"a ", 1}, {"house", 1.3}, {" ", 1}, {"tree", 1 / 1.1}},
	} {
		got := prompt.ParseAttention(text)
		require.Len(t, got, len(want), "%q: %v", text, got)
		for i := range want {
			require.Equal(t, want[i].Text, got[i].Text, text)
			require.InDelta(t, want[i].Weight, got[i].Weight, 1e-6, text)
		}
	}
	pieces := prompt.ParseAttention("one BREAK two")
	require.True(t, pieces[1].IsBreak())
}

// words numbers words by their length, so that tests can count tokens.
type words struct{}

func (words) Encode(text string) []int32 {
	var ids []int32
	for _, w := range strings.Fields(text) {
		ids = append(ids, int32(len(w)))
	}
	return ids
}

func TestChunks(t *testing.T) {
	empty := prompt.Tokenize(words{}, "", prompt.PadEnd)
	require.Len(t, empty.IDs, prompt.ChunkLen)
	require.Equal(t, []int32{prompt.StartToken, prompt.EndToken, prompt.EndToken}, empty.IDs[:3])

	one := prompt.Tokenize(words{}, strings.Repeat("ab ", 75), prompt.PadZero)
	require.Len(t, one.IDs, 77)
	require.Equal(t, int32(prompt.EndToken), one.IDs[76])

	two := prompt.Tokenize(words{}, strings.Repeat("ab ", 76), prompt.PadZero)
	require.Len(t, two.IDs, 154)
	require.Equal(t, []int32{prompt.StartToken, 2, prompt.EndToken, 0}, two.IDs[77:81])
	require.Len(t, two.Chunks(), 2)

	broken := prompt.Tokenize(words{}, "one BREAK (three:1.5)", prompt.PadEnd)
	require.Len(t, broken.IDs, 154)
	require.Equal(t, int32(5), broken.IDs[78])
	require.Equal(t, float32(1.5), broken.Weights[78])
	require.Equal(t, float32(1), broken.Weights[77], "the start token keeps weight 1")
}

func TestForPooledZeroesWhatFollowsTheEnd(t *testing.T) {
	ids, end := prompt.Tokenize(words{}, "a b", prompt.PadEnd).ForPooled()
	require.Equal(t, 3, end)
	require.Equal(t, []int32{prompt.StartToken, 1, 1, prompt.EndToken, 0}, ids[:5])
}

func TestApplyWeightsKeepsTheMean(t *testing.T) {
	hidden := []float32{1, 2, 3, 4, 5, 6}
	plain := append([]float32(nil), hidden...)
	prompt.ApplyWeights(hidden, []float32{1, 1, 1})
	require.Equal(t, plain, hidden)
	prompt.ApplyWeights(hidden, []float32{1, 2, 1})
	sum := float32(0)
	for _, v := range hidden {
		sum += v
	}
	require.InDelta(t, 21, sum, 1e-4)
	require.InDelta(t, 2*plain[2]/plain[0], hidden[2]/hidden[0], 1e-5)
	zero := []float32{1, -1}
	prompt.ApplyWeights(zero, []float32{2, 2}) // a mean of 0 cannot be restored
	require.Equal(t, []float32{2, -2}, zero)
}

func FuzzTokenize(f *testing.F) {
	for _, s := range []string{"(a:1.3) [b] BREAK \\( \\\\", "((((", "]]]]:::1.", "(a:nan)(b:-inf)(c:1e999)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens := prompt.Tokenize(words{}, text, prompt.PadZero)
		require.Zero(t, len(tokens.IDs)%prompt.ChunkLen)
		require.Len(t, tokens.Weights, len(tokens.IDs))
		for _, w := range tokens.Weights {
			require.False(t, math.IsNaN(float64(w)))
		}
	})
}

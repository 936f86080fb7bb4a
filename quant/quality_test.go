package quant_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/quant"
	"github.com/sdtool/sdtool/tensor"
)

// relativeError returns the weighted root mean square error over that of the
// numbers themselves.
func relativeError(x, y, weights []float32) float64 {
	var e, n float64
	for i := range x {
		w := 1.0
		if weights != nil {
			w = float64(weights[i%len(weights)])
		}
		e += w * math.Pow(float64(x[i]-y[i]), 2)
		n += w * math.Pow(float64(x[i]), 2)
	}
	return math.Sqrt(e / n)
}

// qualityRow measures a type for the table of docs/quantization.md.
func qualityRow(t *testing.T, d tensor.DType) string {
	t.Helper()
	const rows, cols = 32, 1024
	c := quant.Lookup(d)
	rng := rand.New(rand.NewPCG(2026, 8))
	normal, heavy := make([]float32, rows*cols), make([]float32, rows*cols)
	each(normal, func(int) float64 { return 0.05 * rng.NormFloat64() })
	each(heavy, func(int) float64 { // Student's t with 4 degrees of freedom
		chi2 := -2 * math.Log(rng.Float64()*rng.Float64())
		return 0.05 * rng.NormFloat64() / math.Sqrt(chi2/4)
	})
	ones := modes["ones"](nil, cols)
	importance := make([]float32, cols)
	each(importance, func(int) float64 { return math.Exp(rng.NormFloat64()) })
	measure := func(x, w, judge []float32) string {
		if w == nil && c.NeedsWeights {
			return "–"
		}
		raw := make([]byte, rows*cols/d.Block()*d.BlockBytes())
		_, err := c.Quantize(raw, x, rows, cols, w)
		require.NoError(t, err)
		return fmt.Sprintf("%.2f", 100*relativeError(x, decode(t, d, raw), judge))
	}
	uses := "no"
	if c.NeedsWeights {
		uses = "needed"
	} else if c.UsesWeights {
		uses = "yes"
	}
	cells := []string{
		d.String(), fmt.Sprintf("%.4g", 8*float64(d.BlockBytes())/float64(d.Block())), uses,
		measure(normal, nil, nil), measure(normal, ones, nil), measure(heavy, nil, nil), measure(heavy, ones, nil),
		measure(heavy, ones, importance), measure(heavy, importance, importance),
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// The table in the documentation holds what is measured here; -v prints it.
func TestQualityTable(t *testing.T) {
	if testing.Short() {
		t.Skip("quantizes every type in several ways")
	}
	doc, err := os.ReadFile("../docs/quantization.md")
	require.NoError(t, err)
	for _, d := range quantized() {
		row := qualityRow(t, d)
		t.Log(row)
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/quantization.md lacks the row\n%s", row)
		}
	}
}

package convert

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWeightsAreChargedToTheBudget(t *testing.T) {
	w := &weightIndex{held: freeWeights}
	left, err := w.budget(64 << 20)
	require.NoError(t, err)
	require.EqualValues(t, 64<<20, left)
	w.held = 40 << 20
	left, err = w.budget(64 << 20)
	require.NoError(t, err)
	require.EqualValues(t, 24<<20, left)
	w.held = 60 << 20
	_, err = w.budget(64 << 20)
	require.ErrorContains(t, err, "--max-memory")
}

func TestMatrices(t *testing.T) {
	for want, shape := range map[int64][]int64{1: {4, 5}, 3: {3, 4, 5}, 6: {2, 3, 4, 5}} {
		require.Equal(t, want, matrices(shape))
	}
	require.EqualValues(t, 1, matrices(nil))
	require.EqualValues(t, 1, matrices([]int64{7}))
}

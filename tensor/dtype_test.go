package tensor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sdtool/sdtool/tensor"
)

func TestEveryDTypeRowIsComplete(t *testing.T) {
	names := map[string]tensor.DType{}
	for _, d := range tensor.All() {
		t.Run(d.String(), func(t *testing.T) {
			assert.True(t, d.Valid())
			assert.NotEqual(t, tensor.ClassNone, d.Class())
			assert.Positive(t, d.Block())
			assert.Positive(t, d.BlockBytes())
			assert.NotContains(t, names, strings.ToLower(d.String()), "two types share a name")
			names[strings.ToLower(d.String())] = d

			for _, spelling := range []string{d.String(), strings.ToUpper(d.String())} {
				got, err := tensor.ParseDType(spelling)
				require.NoError(t, err)
				assert.Equal(t, d, got)
			}
			id, inGGML := d.GGML()
			if inGGML {
				back, ok := tensor.FromGGML(id)
				assert.True(t, ok)
				assert.Equal(t, d, back)
			}
			name, inSafetensors := d.Safetensors()
			if inSafetensors {
				back, ok := tensor.FromSafetensors(name)
				assert.True(t, ok)
				assert.Equal(t, d, back)
			}
			assert.True(t, inGGML || inSafetensors, "no container can hold it")
			assert.Equal(t, d.IsQuantized(), d.Class() == tensor.ClassQuant)
		})
	}
}

func TestDTypeLookupsRefuseWhatIsNotThere(t *testing.T) {
	for _, id := range []int32{-1, 4, 5, 31, 32, 33, 36, 37, 38, 43, 1 << 30} {
		_, ok := tensor.FromGGML(id)
		assert.False(t, ok, "ggml id %d", id)
	}
	for _, name := range []string{"", "f32", "BF17", "F8"} {
		_, ok := tensor.FromSafetensors(name)
		assert.False(t, ok, "safetensors name %q", name)
	}
	for _, name := range []string{"", "q9", "q4", "invalid", "Q4_K "} {
		_, err := tensor.ParseDType(name)
		assert.Error(t, err, "name %q", name)
	}
	assert.False(t, tensor.Invalid.Valid())
	assert.False(t, tensor.DType(200).Valid())
	assert.Equal(t, "invalid", tensor.DType(200).String())
}

func TestFloat8SpellingsAreOneType(t *testing.T) {
	for _, name := range []string{"F8_E4M3", "F8_E4M3FN"} {
		d, ok := tensor.FromSafetensors(name)
		assert.True(t, ok)
		assert.Equal(t, tensor.F8E4M3, d)
	}
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSize(t *testing.T) {
	tests := []struct {
		text string
		want int64
	}{
		{"0", 0}, {"1000", 1000}, {"512MiB", 512 << 20}, {"2G", 2 << 30}, {"1.5GB", 1500000000},
		{" 3 kb ", 3000}, {"4k", 4096}, {"1TiB", 1 << 40}, {"100B", 100},
	}
	for _, tt := range tests {
		got, err := parseSize(tt.text)
		require.NoError(t, err, tt.text)
		require.Equal(t, tt.want, got, tt.text)
	}
	for _, bad := range []string{"", "G", "-1", "1e9", "1.2.3", "5 apples", "99999999999T", "0x10", "１"} {
		_, err := parseSize(bad)
		require.Error(t, err, bad)
	}
	f := sizeFlag(1 << 30)
	require.Equal(t, "1GiB", f.String())
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1GiB", "512MiB", "2G", "1.5gb", "", "-1", "9e99", "..", "1 k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseSize(s)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, n, int64(0))
		flag := sizeFlag(n)
		again, err := parseSize(flag.String())
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}

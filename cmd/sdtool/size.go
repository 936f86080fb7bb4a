package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeUnits are the endings of a size; a bare letter means the binary unit, as
// it does to most Unix tools.
var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// sizeMax is the largest size taken: 8 EiB would not fit int64.
const sizeMax = 1 << 62

// parseSize parses "512MiB", "2G", "1.5gb" or a plain number of bytes.
func parseSize(s string) (int64, error) {
	text := strings.TrimSpace(strings.ToLower(s))
	end := strings.LastIndexAny(text, "0123456789.") + 1
	unit, ok := sizeUnits[strings.TrimSpace(text[end:])]
	if !ok {
		return 0, fmt.Errorf("size %q: unknown unit %q (use KiB, MiB, GiB, TiB, KB, MB, GB or TB)", s, text[end:])
	}
	digits := text[:end]
	if strings.Trim(digits, "0123456789.") != "" || digits == "" {
		return 0, fmt.Errorf("size %q: want a number and a unit, as 512MiB", s)
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("size %q: want a number and a unit, as 512MiB", s)
	}
	v = math.Floor(v * unit)
	if v > sizeMax {
		return 0, fmt.Errorf("size %q: over the limit of 4 EiB", s)
	}
	return int64(v), nil
}

// sizeFlag is a pflag.Value of bytes.
type sizeFlag int64

func (f *sizeFlag) String() string {
	n := int64(*f)
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

func (f *sizeFlag) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("size %q: want more than nothing", s)
	}
	*f = sizeFlag(n)
	return nil
}

func (f *sizeFlag) Type() string { return "SIZE" }

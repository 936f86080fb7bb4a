package sample

import (
	"fmt"
	"strconv"
	"strings"
)

// Args are the fine-tuning numbers of single samplers and schedulers; nil means the default named beside it.
type Args struct {
	// Schedulers.
	Alpha, Beta          *float64 // Beta: shape of the law; 0.6 each
	BaseShift, MaxShift  *float32 // Flux: 0.5 and 1.15; LTX2: 0.95 and 2.05
	Terminal             *float32 // LTX2: last level before zero; 0.1
	Stretch              *bool    // LTX2: true
	Mu, Std              *float32 // LogitNormal: 0 and 1.75
	LogSNRMin, LogSNRMax *float32 // LogitNormal: -15 and 18
	ResolutionAware      *bool    // LogitNormal: true

	// Samplers.
	NoiseClipStd    *float32 // LCM: noise is cut at this many standard deviations; 0 is off
	NoiseScaleStart *float32 // LCM: factor on the noise at the first step; 1
	NoiseScaleEnd   *float32 // LCM: and at the last; NoiseScaleStart
	Gamma           *float32 // EulerGE: weight of the new gradient; 2
	MaxOrder        *int     // LMS: 4
	HistoryShift    *int     // LMS: how much newer a history entry each order uses; 1
	Divisions       *int     // LMS: integration points; 1000
}

// MaxDivisions bounds Args.Divisions.
const MaxDivisions = 10_000_000

func value[T any](v *T, d T) T {
	if v == nil {
		return d
	}
	return *v
}

// ParseArgs reads "key=value" pairs separated by commas or semicolons, with the keys other tools use: alpha, beta,
// base_shift, max_shift, terminal, stretch, mu, std, logsnr_min, logsnr_max, resolution_aware, noise_clip_std,
// noise_scale_start, noise_scale_end, gamma, lms_max_order, lms_shift, lms_divisions. It fails on any other key and
// on values that do not parse.
func ParseArgs(text string) (Args, error) {
	var a Args
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		pair = strings.TrimSpace(pair)
		if pair == "" {
			continue
		}
		key, val, ok := strings.Cut(pair, "=")
		if !ok {
			return Args{}, fmt.Errorf("sampling argument %q: expected key=value", pair)
		}
		if err := a.set(strings.TrimSpace(key), strings.TrimSpace(val)); err != nil {
			return Args{}, fmt.Errorf("sampling argument %q: %w", pair, err)
		}
	}
	return a, nil
}

func (a *Args) set(key, val string) error {
	floats := map[string]**float32{
		"base_shift": &a.BaseShift, "max_shift": &a.MaxShift, "terminal": &a.Terminal, "mu": &a.Mu, "std": &a.Std,
		"logsnr_min": &a.LogSNRMin, "logsnr_max": &a.LogSNRMax, "noise_clip_std": &a.NoiseClipStd,
		"noise_scale_start": &a.NoiseScaleStart, "noise_scale_end": &a.NoiseScaleEnd, "gamma": &a.Gamma,
	}
	if p, ok := floats[key]; ok {
		return setFloat(p, val)
	}
	switch key {
	case "alpha":
		return setPositive(&a.Alpha, val)
	case "beta":
		return setPositive(&a.Beta, val)
	case "stretch":
		return setBool(&a.Stretch, val)
	case "resolution_aware":
		return setBool(&a.ResolutionAware, val)
	case "lms_max_order":
		return setInt(&a.MaxOrder, val, 1, 1000)
	case "lms_shift":
		return setInt(&a.HistoryShift, val, 0, 1000)
	case "lms_divisions":
		return setInt(&a.Divisions, val, 1, MaxDivisions)
	}
	return fmt.Errorf("unknown key %q", key)
}

func setFloat(p **float32, val string) error {
	v, err := strconv.ParseFloat(val, 32)
	if err != nil {
		return fmt.Errorf("expected a number, found %q", val)
	}
	f := float32(v)
	*p = &f
	return nil
}

func setPositive(p **float64, val string) error {
	v, err := strconv.ParseFloat(val, 32)
	if err != nil || !(v > 0) {
		return fmt.Errorf("expected a positive number, found %q", val)
	}
	*p = &v
	return nil
}

func setInt(p **int, val string, low, high int) error {
	v, err := strconv.Atoi(val)
	if err != nil || v < low || v > high {
		return fmt.Errorf("expected a whole number from %d to %d, found %q", low, high, val)
	}
	*p = &v
	return nil
}

func setBool(p **bool, val string) error {
	var v bool
	switch strings.ToLower(val) {
	case "1", "true", "yes", "on":
		v = true
	case "0", "false", "no", "off":
	default:
		return fmt.Errorf("expected true or false, found %q", val)
	}
	*p = &v
	return nil
}

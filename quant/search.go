package quant

import "math"

// The searches below fit a scale (and a minimum) to up to 32 numbers. They are
// those of ggml-quants.c, under its names without "make_".

// squares sets w to the squares of x: the weights of a fit without others.
func squares(w, x []float32) []float32 {
	for i, v := range x {
		w[i] = v * v
	}
	return w[:len(x)]
}

// qxQuants fits x ≈ scale·(l−nmax) with l in 0..2·nmax−1 by trying scales around
// the largest number; w are the squared-error weights. It returns the scale.
func qxQuants(nmax int32, x []float32, levels []int8, w []float32) float32 {
	top, amax := float32(0), float32(0)
	for _, v := range x {
		if a := abs(v); a > amax {
			amax, top = a, v
		}
	}
	if amax < 1e-15 {
		for i := range x {
			levels[i] = 0
		}
		return 0
	}
	w = w[:len(x)]
	iscale := -float32(nmax) / top
	sumlx, suml2 := float32(0), float32(0)
	for i, v := range x {
		l := clamp(nearest(iscale*v), -nmax, nmax-1)
		levels[i] = int8(l + nmax)
		wx := float32(w[i] * v)
		sumlx += float32(wx * float32(l))
		wl := float32(w[i] * float32(l))
		suml2 += float32(wl * float32(l))
	}
	scale := float32(0)
	if suml2 != 0 {
		scale = sumlx / suml2
	}
	best := float32(scale * sumlx)
	for is := int32(-9); is <= 9; is++ {
		if is == 0 {
			continue
		}
		iscale = -(float32(nmax) + float32(0.1*float32(is))) / top
		sumlx, suml2 = 0, 0
		for i, v := range x {
			l := float32(clamp(nearest(iscale*v), -nmax, nmax-1))
			wx := float32(w[i] * v)
			sumlx += float32(wx * l)
			wl := float32(w[i] * l)
			suml2 += float32(wl * l)
		}
		if suml2 > 0 && float32(sumlx*sumlx) > float32(best*suml2) {
			for i, v := range x {
				levels[i] = int8(nmax + clamp(nearest(iscale*v), -nmax, nmax-1))
			}
			scale = sumlx / suml2
			best = float32(scale * sumlx)
		}
	}
	return scale
}

// q3Quants fits x ≈ scale·(l−4) with l in 0..7 by sweeps that move one level at a time.
func q3Quants(x []float32, levels []int8) float32 {
	const nmax = 4
	top, amax := float32(0), float32(0)
	for _, v := range x {
		if a := abs(v); a > amax {
			amax, top = a, v
		}
	}
	if amax < 1e-15 {
		for i := range x {
			levels[i] = 0
		}
		return 0
	}
	iscale := float32(-nmax) / top
	sumlx, suml2 := float32(0), float32(0)
	for i, v := range x {
		l := clamp(nearest(iscale*v), -nmax, nmax-1)
		levels[i] = int8(l)
		w := float32(v * v)
		wx := float32(w * v)
		sumlx += float32(wx * float32(l))
		wl := float32(w * float32(l))
		suml2 += float32(wl * float32(l))
	}
	for range 5 {
		changed := false
		for i, v := range x {
			w := float32(v * v)
			old := float32(levels[i])
			wx := float32(w * v)
			slx := sumlx - float32(wx*old)
			if !(slx > 0) {
				continue
			}
			wl := float32(w * old)
			sl2 := suml2 - float32(wl*old)
			nl := clamp(nearest(float32(v*sl2)/slx), -nmax, nmax-1)
			if nl == int32(levels[i]) {
				continue
			}
			f := float32(nl)
			slx += float32(wx * f)
			wn := float32(w * f)
			sl2 += float32(wn * f)
			if sl2 > 0 && float32(float32(slx*slx)*suml2) > float32(float32(sumlx*sumlx)*sl2) {
				levels[i] = int8(nl)
				sumlx, suml2 = slx, sl2
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	for i := range x {
		levels[i] += nmax
	}
	if suml2 > 0 {
		return sumlx / suml2
	}
	return 0
}

// fit is how qkxQuants searches.
type fit struct {
	nmax         int32
	rmin, rdelta float32
	steps        int  // tried after the first
	mad          bool // sum absolute instead of squared errors
	flat         bool // qkx3: a range that is not positive counts as none; qkx2: only one that is zero
}

// qkxQuants fits x ≈ scale·l − min with l in 0..nmax. It returns scale and min, which
// is not negative.
func qkxQuants(f *fit, x []float32, w []float32, levels []uint8) (scale, least float32) {
	low, high := x[0], x[0]
	w = w[:len(x)]
	sumW := w[0]
	sumX := float32(sumW * x[0])
	for i := 1; i < len(x); i++ {
		v := x[i]
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
		sumW += w[i]
		sumX += float32(w[i] * v)
	}
	if low > 0 {
		low = 0
	}
	if high == low || f.flat && high <= low {
		for i := range x {
			levels[i] = 0
		}
		return 0, -low
	}
	nmax := f.nmax
	iscale := float32(nmax) / (high - low)
	scale = 1 / iscale
	best := float32(0)
	for i, v := range x {
		l := clamp(nearest(iscale*(v-low)), 0, nmax)
		levels[i] = uint8(l)
		diff := float32(scale*float32(l)) + low - v
		if f.mad {
			diff = abs(diff)
		} else {
			diff = float32(diff * diff)
		}
		best += float32(w[i] * diff)
	}
	if f.steps < 1 {
		return scale, -low
	}
	var trial [32]uint8
	for is := 0; is <= f.steps; is++ {
		iscale = (f.rmin + float32(f.rdelta*float32(is)) + float32(nmax)) / (high - low)
		sumL, sumL2, sumXL := float32(0), float32(0), float32(0)
		for i, v := range x {
			l := clamp(nearest(iscale*(v-low)), 0, nmax)
			trial[i] = uint8(l)
			wl := float32(w[i] * float32(l))
			sumL += wl
			sumL2 += float32(wl * float32(l))
			sumXL += float32(wl * v)
		}
		d := float32(sumW*sumL2) - float32(sumL*sumL)
		if !(d > 0) {
			continue
		}
		ts := (float32(sumW*sumXL) - float32(sumX*sumL)) / d
		tm := (float32(sumL2*sumX) - float32(sumL*sumXL)) / d
		if tm > 0 {
			tm = 0
			ts = sumXL / sumL2
		}
		err := float32(0)
		for i, v := range x {
			diff := float32(ts*float32(trial[i])) + tm - v
			if f.mad {
				diff = abs(diff)
			} else {
				diff = float32(diff * diff)
			}
			err += float32(w[i] * diff)
		}
		if err < best {
			copy(levels[:len(x)], trial[:])
			best, scale, low = err, ts, tm
		}
	}
	return scale, -low
}

// qpQuants fits non-negative x ≈ scale·l with l in 0..nmax. Levels are bytes, into which
// a negative x wraps, as in ggml.
func qpQuants(nmax int32, x []float32, levels []uint8, w []float32) float32 {
	high := float32(0)
	for _, v := range x {
		if v > high {
			high = v
		}
	}
	if high < 1e-15 {
		for i := range x {
			levels[i] = 0
		}
		return 0
	}
	iscale := float32(nmax) / high
	for i, v := range x {
		levels[i] = uint8(nearest(iscale * v))
	}
	scale := 1 / iscale
	best := float32(0)
	for i, v := range x {
		diff := v - float32(scale*float32(levels[i]))
		wd := float32(w[i] * diff)
		best += float32(wd * diff)
	}
	for is := int32(-4); is <= 4; is++ {
		if is == 0 {
			continue
		}
		tryIscale := (float32(0.1*float32(is)) + float32(nmax)) / high
		tryScale := 1 / tryIscale
		mse := float32(0)
		for i, v := range x {
			l := min(nmax, nearest(tryIscale*v))
			diff := v - float32(tryScale*float32(l))
			wd := float32(w[i] * diff)
			mse += float32(wd * diff)
		}
		if mse < best {
			best, iscale = mse, tryIscale
		}
	}
	sumlx, suml2 := float32(0), float32(0)
	for i, v := range x {
		l := min(nmax, nearest(iscale*v))
		levels[i] = uint8(l)
		wx := float32(w[i] * v)
		sumlx += float32(wx * float32(l))
		wl := float32(w[i] * float32(l))
		suml2 += float32(wl * float32(l))
	}
	for range 5 {
		changed := false
		for i, v := range x {
			old := float32(levels[i])
			wx := float32(w[i] * v)
			slx := sumlx - float32(wx*old)
			wl := float32(w[i] * old)
			sl2 := suml2 - float32(wl*old)
			if !(slx > 0 && sl2 > 0) {
				continue
			}
			nl := min(nmax, nearest(float32(v*sl2)/slx))
			if nl == int32(levels[i]) {
				continue
			}
			f := float32(nl)
			slx += float32(wx * f)
			wn := float32(w[i] * f)
			sl2 += float32(wn * f)
			if float32(float32(slx*slx)*suml2) > float32(float32(sumlx*sumlx)*sl2) {
				levels[i] = uint8(nl)
				sumlx, suml2 = slx, sl2
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	if suml2 > 0 {
		return sumlx / suml2
	}
	return 0
}

// sumSquares adds the squares up one after the other.
func sumSquares(x []float32) float32 { return addSquares(0, x) }

func addSquares(s float32, x []float32) float32 {
	for _, v := range x {
		s += float32(v * v)
	}
	return s
}

// imatrixWeights sets w to qw·sqrt(sigma2 + x²).
func imatrixWeights(w, qw, x []float32, sigma2 float32) {
	for i, v := range x {
		w[i] = float32(qw[i] * sqrt(float32(sigma2)+float32(v*v)))
	}
}

// largest is the largest finite float32, FLT_MAX.
const largest = math.MaxFloat32

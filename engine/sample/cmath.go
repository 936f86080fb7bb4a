package sample

import "math"

// Float32 functions of C's maths library, correctly rounded: within one unit in the last place of every libm.

func logf(x float32) float32    { return float32(math.Log(float64(x))) }
func expf(x float32) float32    { return float32(math.Exp(float64(x))) }
func expm1f(x float32) float32  { return float32(math.Expm1(float64(x))) }
func sqrtf(x float32) float32   { return float32(math.Sqrt(float64(x))) }
func powf(x, y float32) float32 { return float32(math.Pow(float64(x), float64(y))) }
func absf(x float32) float32    { return float32(math.Abs(float64(x))) }
func roundf(x float32) float32  { return float32(math.Round(float64(x))) }
func atanf(x float32) float32   { return float32(math.Atan(float64(x))) }
func tanf(x float32) float32    { return float32(math.Tan(float64(x))) }

// negLog is -log(sigma), the solver's time; taken in float64 and rounded once.
func negLog(sigma float32) float32 { return float32(-math.Log(float64(sigma))) }

// expNeg is exp(-t), the inverse of negLog.
func expNeg(t float32) float32 { return float32(math.Exp(float64(-t))) }

// expNegMinus1 is exp(-h)-1, subtracted in float64 and rounded once.
func expNegMinus1(h float32) float32 { return float32(math.Exp(float64(-h)) - 1) }

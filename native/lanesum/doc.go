// Package lanesum multiplies rows in the order of ggml's kernels for CPUs with
// AVX512-FP16, bit for bit, on any machine.
//
// Floating-point sums depend on their order and on the width of what holds them.
// ggml's ggml_vec_dot_f16 keeps its running sums in the CPU's widest f16
// vectors: most CPUs have none and add in f32; those that do (Intel from Sapphire
// Rapids on) round every partial sum to 11 bits, which changes a product by about
// 0.03 % and a picture visibly after some steps. stable-diffusion.cpp's reference
// pictures and importance matrices were made on such a CPU; computing as it does
// gives the same ones.
//
// The order, from ggml's simd-mappings.h and vec.cpp:
//
//	Dot16 (GGML_F16_STEP 128, GGML_F16_EPR 32): four vectors of 32 lanes take
//	      blocks of 128 products with fused multiply-adds in f16; vector 0 += 2,
//	      1 += 3, 0 += 1; lanes are halved until one is left. What remains of the
//	      row after whole blocks is added in f64.
//	Dot32 (GGML_F32_STEP 64, GGML_F32_EPR 16): the same with four vectors of 16
//	      lanes in f32; the rest of the row is added in f32, without fusing.
//
// A fused step in f16 is computed in f32, rounded to odd and then to f16, which
// is the same as rounding once.
//
// Accelerated tells whether the machine has the AVX-512 kernels; without them
// the plain twins are exact too, but some hundred times slower.
package lanesum

// Package scaled undoes the ways in which other tools store a weight as small
// numbers and separate scales, so that the rest of sdtool sees plain float32.
//
// Decode takes the tensors of one component and returns them with every scaled
// weight replaced by a tensor of the same name, dtype F32 and logical shape whose
// Source multiplies as it is read. The scales and other companions are dropped.
// Everything else is passed on untouched.
//
// # Conventions
//
// For a weight named B+"weight" (B usually ends in a dot), with w its stored
// numbers, r its row and c its column:
//
//	fp8            F8_E4M3 or F8_E5M2 w and Bweight_scale or Bscale_weight:
//	               w·scale, scale of one element, one per row, or broadcast as numpy would
//	fp8 blocks     the same w and Bweight_scale_inv or Bscale:
//	               w·scale[r/H][c/W]; block size from the shapes (128 unless the shapes say otherwise)
//	int8           I8 w and Bweight_scale or Bscale_weight: as fp8
//	mxfp8          F8 w and Bweight_scale of F8_E8M0 (or U8) [rows][cols/32]: w·2^(e-127)
//	nvfp4          U8 w, two E2M1 codes a byte, Bweight_scale F8_E4M3 [rows][cols/16]
//	               and Bweight_scale_2, one F32: code·(scale_2·scale)
//	comfy_quant    Bcomfy_quant, JSON in U8, names the format: float8_e4m3fn[_rowwise|_blockwise],
//	               float8_e5m2, int8_tensorwise (also convrot), int8_blockwise, mxfp8, nvfp4;
//	               the same JSON may stand in the file's metadata as _quantization_metadata
//
// Facts: ComfyUI QUANTIZATION.md and comfy/ops.py; comfy-kitchen 7d86acf
// (float_utils.py, backends/eager, tensor/); DeepSeek-V3 inference code; NVIDIA
// ModelOpt's export of NVFP4.
//
// # Rules
//
// A scheme that is not known in all its parts is a *SchemeError, never a guess:
// wrong weights that load are worse than none. A name that only looks like a
// scale, with no small-number weight beside it, is kept. Scales are read as they
// are needed; a Source holds no more than a few rows at a time.
package scaled

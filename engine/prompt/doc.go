// Package prompt reads the prompt language of Stable Diffusion front ends and lays tokens out in the chunks that text
// encoders take.
//
//	(word)       weight × 1.1      \(  a bracket as text
//	(word:1.3)   weight × 1.3      BREAK  fill the rest of the chunk
//	[word]       weight ÷ 1.1
//
// Entry points: [ParseAttention], [Tokenize], [Tokens.Chunks], and [ApplyWeights] for the encoder's output.
//
// Rules kept: brackets, escapes and chunks behave as in stable-diffusion.cpp, oddities included, because the same
// prompt must give the same picture: of all escapes only \( loses its backslash; a weight without an open bracket
// vanishes; brackets left open count to the end; a word before BREAK needs no space. No prompt is an error.
package prompt

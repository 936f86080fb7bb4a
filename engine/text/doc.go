// Package text turns prompts into the token numbers that CLIP text encoders were trained on.
//
// CLIP's tokenizer is byte-pair encoding over UTF-8 bytes: text is lower-cased, cut into words, each word becomes a
// row of byte symbols whose last is marked as a word's end, and pairs of symbols merge in the order of a fixed list.
// The list is data: clip_merges.txt.gz, whose origin and licence clip_merges.md states.
//
// Entry points: [CLIP] and [Tokenizer.Encode]; [Tokenizer.EncodeReference] for OpenAI's own way of cutting words.
// The two differ outside ASCII only: Encode knows letters and case of ASCII alone, as stable-diffusion.cpp does, so
// "É" keeps its case and splits from the letters around it. A tokenizer is immutable and safe for concurrent use.
//
// Rules kept: no token is ever unknown, as every byte is in the vocabulary; beginning, end and padding are left to
// the caller (package prompt).
package text

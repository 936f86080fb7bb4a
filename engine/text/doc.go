// Package text turns prompts into the token numbers that CLIP and T5 text encoders were trained on.
//
// CLIP's tokenizer is byte-pair encoding over UTF-8 bytes: text is lower-cased, cut into words, each word becomes a
// row of byte symbols whose last is marked as a word's end, and pairs of symbols merge in the order of a fixed list.
// The list is data: clip_merges.txt.gz, whose origin and licence clip_merges.md states.
//
// Entry points: [CLIP] and [Tokenizer.Encode]; [Tokenizer.EncodeReference] for OpenAI's own way of cutting words.
// The two differ outside ASCII only: Encode knows letters and case of ASCII alone, as stable-diffusion.cpp does, so
// "É" keeps its case and splits from the letters around it. A tokenizer is immutable and safe for concurrent use.
//
// T5's tokenizer is a unigram model: text is normalised by rules compiled into the model file, and of all ways to cut
// it into pieces the most probable is taken. [OpenUnigram] reads it from a tokenizer.json, a SentencePiece model, a GGUF
// file or a folder; the same tokens come out as from the sentencepiece package.
//
// Rules kept, for CLIP: no token is ever unknown, as every byte is in the vocabulary; beginning, end and padding are left to
// the caller (package prompt). For T5 the same holds where the vocabulary has byte pieces.
package text

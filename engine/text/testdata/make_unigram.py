"""Train a small unigram vocabulary and write what the reference tokenizers make of nasty strings.

usage: make_unigram.py          (in this folder; needs sentencepiece and tokenizers)

unigram.model is as T5's: nmt_nfkc rules, <pad> </s> <unk> first; bytes.model has byte pieces besides, as UMT5's.
unigram_cases.json.gz holds the strings of clip_cases.json, some of our own, and the tokens of each: by both models
("spm", "bytes"), and by the tokenizers package with the two kinds of pre-tokenizers in use ("fast", "words").
"""
import gzip, json, os, random, sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

# Words of CLIP's vocabulary in random order.
merges = gzip.open("../clip_merges.txt.gz", "rt", encoding="utf-8").read().split("\n")[1:]
known = [m.replace(" ", "")[:-4] for m in merges if m.endswith("</w>")]
extra = ["café naïve façade", "Größe straße", "Привет мир", "日本語の文字", "hello, world! (it's 1234.56)", "e-mail: user@example.com", "oil on canvas, 8k, ultra-detailed", "The quick brown fox jumps over the lazy dog."]
rnd = random.Random(3)
corpus = [" ".join(rnd.choice(known) for _ in range(12)) for _ in range(6000)] + extra * 20


def train(name, size, **kw):
    spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_prefix=name, vocab_size=size, model_type="unigram", normalization_rule_name="nmt_nfkc",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>", character_coverage=1.0, num_threads=1, minloglevel=2, hard_vocab_limit=False, **kw)
    return spm.SentencePieceProcessor(model_file=name + ".model")


plain, fallback = train("unigram", 3000, user_defined_symbols=["<extra_id_0>"]), train("bytes", 1500, byte_fallback=True)

# Hugging Face's form of the same vocabulary; the test writes it anew from the model.
def fields(raw):
    def varint(i):
        v = s = 0
        while True:
            v |= (raw[i] & 127) << s
            s += 7
            i += 1
            if raw[i - 1] < 128: return v, i
    i = 0
    while i < len(raw):
        tag, i = varint(i)
        if tag & 7 == 0: v, i = varint(i)
        elif tag & 7 == 2:
            n, i = varint(i)
            v, i = raw[i:i + n], i + n
        else:
            n = 4 if tag & 7 == 5 else 8
            v, i = raw[i:i + n], i + n
        yield tag >> 3, v


chars = dict(fields(dict(fields(open("unigram.model", "rb").read()))[3]))[2]
vocab = [(plain.id_to_piece(i), plain.get_score(i)) for i in range(plain.vocab_size())]


def hugging_face(normalizer, pre):
    t = Tokenizer(models.Unigram(vocab, 2))
    t.normalizer, t.pre_tokenizer = normalizer, pre
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<pad>", "</s>", "<unk>", "<extra_id_0>")])
    return t


meta = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
fast = hugging_face(normalizers.Sequence([normalizers.Precompiled(chars), normalizers.Replace(Regex(" {2,}"), " ")]), meta)
words = hugging_face(normalizers.Precompiled(chars), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta]))

strings = [c["text"] for c in json.load(open("clip_cases.json"))]
strings += ["a <extra_id_0> b", "<extra_id_0>", "x<extra_id_0>y<extra_id_0>", "</s>", "a</s>b", "<pad> <unk>", "▁", "▁▁a", "a▁b", " ▁ ", "\u0000", "a\u0000b", "ﬃ ﬅ", "①②", "㍿", "Å", "가각", "が", "ｶﾞ"]
cases = [{"text": s, "spm": plain.encode(s), "bytes": fallback.encode(s), "fast": fast.encode(s, add_special_tokens=False).ids, "words": words.encode(s, add_special_tokens=False).ids} for s in strings]
with gzip.GzipFile("unigram_cases.json.gz", "wb", mtime=0) as f: f.write(json.dumps(cases, separators=(",", ":")).encode())
for name in "unigram", "bytes":
    with open(name + ".model", "rb") as f, gzip.GzipFile(name + ".model.gz", "wb", mtime=0) as z: z.write(f.read())
    for ending in ".model", ".vocab": os.remove(name + ending)
print(len(cases), plain.vocab_size(), fallback.vocab_size())

"""Write clip_cases.json: strings that trip tokenizers, with two token lists each.

"reference" comes from Hugging Face's CLIPTokenizer; "bytes" from the plain functions below, which cut words over bytes
with ASCII classes as stable-diffusion.cpp does.

Needs transformers (made with 5.24.0). The vocabulary is ../clip_merges.txt.gz. Run: python make_clip_cases.py
"""
import gzip
import json
import pathlib
import random
import re
import tempfile

from transformers import CLIPTokenizer

here = pathlib.Path(__file__).parent
merges = gzip.open(here.parent / "clip_merges.txt.gz", "rt", encoding="utf-8").read().rstrip("\n").split("\n")[1:]
printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
symbols = [chr(b) for b in printing] + [chr(256 + i) for i in range(256 - len(printing))]
vocab = symbols + [s + "</w>" for s in symbols] + [m.replace(" ", "") for m in merges]
vocab += ["<|startoftext|>", "<|endoftext|>"]

STRINGS = [
    "", " ", "\t\n", "a", "A", "ab", "a b", "a photo of an astronaut riding a horse", "The QUICK brown Fox",
    "it's, they're; we've 'll I'm he'd 't", "IT'S THEY'RE WE'VE I'M HE'D YOU'LL", "''s 's' '''''s", "don't can't won't",
    "rock'n'roll o'clock ma'am 'tis", "l'été d'Artagnan", "'", "''", "'re", "'r", "'rx", "'lx", "'dx're",
    "123", "1 2 3", "3.14159", "1,000,000", "2024-12-31T23:59:59Z", "v1.5_pruned-emaonly.safetensors", "0x1F", "1e-5",
    "½ ¼ ²³ ① ⑳ Ⅷ", "٣٤٥ १२३ 〇一二", "!!!", "?!?!", "...", "…", "wow!!! really???", "a,b;c:d.e", "a , b , c", "--- ___ ===",
    "(a:1.3)", "[blurry]", "{x|y}", "<lora:style:0.8>", "a/b\\c", "C++ & C#", "@user #tag $5 100%", "~`^*", "a_b __init__",
    "café", "naïve façade", "CAFÉ ÀÉÎÕÜ", "Ångström Ørsted Łódź", "straße STRASSE ẞ", "İstanbul ı I i", "ÇĞŞ çğş",
    "e\u0301clair", "\u212b \u00c5 A\u030a", "ﬁ ﬂ ﬀ", "ﾊﾝｶｸ カタカナ", "ｆｕｌｌｗｉｄｔｈ ＡＢＣ１２３",
    "русский ТЕКСТ Москва", "Ελληνικά ΣΊΣΥΦΟΣ σς", "עברית שלום", "العربية مرحبا", "हिन्दी नमस्ते", "ไทย ภาษาไทย", "한국어 안녕하세요",
    "日本語のプロンプト", "一只猫坐在椅子上，油画", "猫cat犬dog", "「括弧」、。！", "繁體字與简体字", "ភាសាខ្មែរ", "ქართული", "አማርኛ",
    "😀", "😀😃😄", "a😀b", "👩‍🚀 riding 🐴", "👍🏽👍🏿", "🇫🇷🇯🇵", "❤️ ❤", "☕️tea", "🏳️‍🌈", "1️⃣2️⃣", "🤷‍♂️ shrug", "smile:)😊",
    "&amp; &lt;b&gt; &quot;x&quot;", "&#39;s &nbsp; &eacute;", "<b>bold</b> <br/>", "&amp;amp;", "<!-- c -->", "a&b;c",
    "  leading", "trailing  ", "many     spaces", "tab\ttab", "new\nline", "cr\r\nlf", "vt\x0bff\x0c", "nb\u00a0sp", "\u00a0x\u00a0",
    "em\u2003sp thin\u2009sp", "ideo\u3000graphic", "zw\u200bsp", "zwj\u200dx", "bom\ufeffx", "\u2028ls\u2029ps", "nel\u0085x", "\u180e",
    "\u202eRTL\u202c", "soft\u00adhyphen", "combining a\u0300\u0301\u0302", "Z̷a̵l̸g̶o̷", "\u0001\u0002", "del\x7f", "\u0080\u009f",
    "\ufffd", "\ufffe", "\U0001f9ff\U000e0041", "𝕳𝖊𝖑𝖑𝖔 𝓌ℴ𝓇𝓁𝒹", "𐍈𐌰", "𠜎𠜱", "ᚠᛇᚻ", "⠓⠑⠇⠇⠕", "♠♣♥♦ ♪♫ ☂☃", "→←↑↓ ⇒", "∀x∈ℝ ∑∫√", "€£¥¢ ₿",
    "©®™ §¶", "“curly” ‘quotes’ «guillemets»", "it’s they’re", "en–dash em—dash", "a·b•c", "°C ±5", "µm Ωhm K", "№ ℃ ℉",
    "<|startoftext|>", "<|endoftext|>", "a<|endoftext|>b", "<|startoftext|>hi<|endoftext|>", "<|STARTOFTEXT|>", "<|endoftext|",
    "<|endoftext|><|endoftext|>", "x <|endoftext|> y", "|<|", "</w>", "a</w>b", "Ġhello", "Ã©", "ÐŁ", "!</w>",
    "masterpiece, best quality, ultra-detailed, 8k, (photorealistic:1.4)", "lowres, bad anatomy, bad hands, text, error",
    "by greg rutkowski and artgerm, trending on artstation", "1girl, solo, long hair, looking at viewer", "DSLR f/1.8 50mm ISO100",
    "cyberpunk city @ night -- neon", "an oil painting of a café in Montréal, c. 1890", "50% off!!1!one", "AI-generated", "USA U.S.A.",
    "iPhone15Pro", "camelCaseWord", "snake_case_word", "kebab-case-word", "ABCdefGHI", "a1b2c3", "4k8k16k", "x2", "mp3s",
    "antidisestablishmentarianism", "pneumonoultramicroscopicsilicovolcanoconiosis", "qwrtpsdfghjklzxcvbnm", "zzzzzzzzzzzzzzzzzzzz",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ha" * 40, "the" * 30, "!" * 50, "😀" * 20, "é" * 30, "1" * 30, "猫" * 30,
    "a " * 90, "word, " * 60, "x" * 300, "https://example.com/path?q=1&r=%20#frag", "user@example.com", "C:\\Windows\\System32",
    "printf(\"%s\\n\", x);", "if (a && b) || !c", "λx.x", "ÿ þ ð", "Dž ǅ ǆ", "ŉ", "ﷺ", "ǰ ΐ", "ᏣᎳᎩ", "Ა", "ⅷ Ⓐ ⓐ", "ʰ ʲ", "ª º", "٠", "൧", "𝟘𝟙",
]


def random_strings(n):
    rnd = random.Random(7)
    pools = ["abcdefghijklmnopqrstuvwxyz ", "ABC abc'.,!?-1290 ", "éàüßñçøå ", "猫犬日本語 ", "😀👍🏽\u200d❤\ufe0f", " \t\n\u00a0\u3000", "'srtdvelm "]
    for _ in range(n):
        pool = "".join(rnd.sample(pools, 3))
        yield "".join(rnd.choice(pool) for _ in range(rnd.randrange(1, 40)))


with tempfile.TemporaryDirectory() as tmp:
    vocab_file, merges_file = pathlib.Path(tmp, "vocab.json"), pathlib.Path(tmp, "merges.txt")
    vocab_file.write_text(json.dumps({s: i for i, s in enumerate(vocab)}))
    merges_file.write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    try:
        tokenizer = CLIPTokenizer(vocab=str(vocab_file), merges=str(merges_file))
        assert len(tokenizer("hello")["input_ids"]) == 3
    except Exception:
        tokenizer = CLIPTokenizer(str(vocab_file), str(merges_file))

ids_of = {s: i for i, s in enumerate(vocab)}
rank_of = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
char_of = dict(zip(printing + [b for b in range(256) if b not in printing], symbols))
WORD = re.compile(rb"'s|'t|'re|'ve|'m|'ll|'d|[a-z]+|[0-9]|[^a-z0-9 ]+")


def encode_word(word):
    parts = [char_of[b] for b in word]
    parts[-1] += "</w>"
    while len(parts) > 1:
        rank, at = min((rank_of.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
        if rank == 1 << 30:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ids_of[p] for p in parts]


def encode_bytes(text):
    text = re.sub(rb"[ \t-\r]+", b" ", text.encode()).strip(b" ").lower()
    ids = []
    for part in re.split(rb"(<\|startoftext\|>|<\|endoftext\|>)", text):
        if part in (b"<|startoftext|>", b"<|endoftext|>"):
            ids.append(ids_of[part.decode()])
        else:
            for word in WORD.findall(part):
                ids += encode_word(word)
    return ids


cases = []
for s in [*STRINGS, *random_strings(60)]:
    ids = tokenizer(s, add_special_tokens=False)["input_ids"]
    cases.append({"text": s, "reference": ids, "bytes": encode_bytes(s)})
print(len(STRINGS), "strings")
with open(here / "clip_cases.json", "w", encoding="utf-8") as f:
    f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases) + "\n]\n")

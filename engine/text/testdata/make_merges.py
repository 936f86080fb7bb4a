"""Write ../clip_merges.txt.gz from bpe_simple_vocab_16e6.txt.gz (argument 1; from openai/CLIP or open_clip_torch)."""
import gzip
import pathlib
import sys

lines = gzip.open(sys.argv[1], "rt", encoding="utf-8").read().split("\n")[: 49152 - 256 - 2 + 1]
with open(pathlib.Path(__file__).parent.parent / "clip_merges.txt.gz", "wb") as raw:
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=raw, mtime=0) as out:
        out.write(("\n".join(lines) + "\n").encode())

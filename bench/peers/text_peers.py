#!/usr/bin/env python3
"""Hugging Face's tokenizers and SentencePiece: the peers of bench/text_bench.cc.

    text_peers.py [--quick]

The same reviews and vocabularies, in the libraries' batched calls, on one thread. SentencePiece
gets preprocessed texts (white space, accents, lower case); ours includes preprocessing in its
time. `check` is the number of reviews, and of their tokens: the libraries' versions differ from
the reference in a few reviews, in the ids and rarely in their number.
"""
import json
import os
import pathlib
import sys
import tarfile
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
# pylint: disable=wrong-import-position
import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402

DATA = pathlib.Path(os.environ.get("TROOP_DATA", "../shared/data"))
FOLDERS = ("train/pos", "train/neg", "test/pos", "test/neg")
REPEATS, QUICK_REPEATS = 3, 1


def read_texts(step):
    """Every `step`-th review, in the order of the golden ids."""
    texts = {}
    with tarfile.open(DATA / "imdb/aclImdb_labeled.tar.xz") as archive:
        for entry in archive:
            folder, _, name = entry.name.removeprefix("aclImdb/").rpartition("/")
            if entry.isfile() and folder in FOLDERS and "_" in name:
                key = (FOLDERS.index(folder), int(name.split("_")[0]))
                texts[key] = archive.extractfile(entry).read().decode()
    return [texts[key] for key in sorted(texts)][::step]


def prepare(text):
    """ALBERT's preprocessing for SentencePiece."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    return "".join(char for char in text if not unicodedata.combining(char)).lower()


def measure(case, peer, version, encode, texts, repeats):
    values = []
    for _ in range(repeats):
        begin = time.perf_counter()
        lengths = encode(texts)
        values.append(time.perf_counter() - begin)
    # The library differs in some reviews with a tie, a number with commas (which ALBERT splits
    # again), or a rare character.
    print(json.dumps({"case": case, "metric": "time", "unit": "s", "values": values, "peer": peer,
                      "peer_version": version, "check": [len(texts), sum(lengths)],
                      "check_tolerance": 5e-4}), flush=True)


def main():
    quick = "--quick" in sys.argv[1:]
    repeats = QUICK_REPEATS if quick else REPEATS
    texts = read_texts(10 if quick else 1)
    bert = tokenizers.BertWordPieceTokenizer(
        str(DATA / "tokenizers/bert-base-uncased-vocab.txt"), lowercase=True)
    measure("bert-uncased-imdb", "tokenizers", tokenizers.__version__,
            lambda batch: [len(each.ids) for each in bert.encode_batch(batch)], texts, repeats)
    albert = sentencepiece.SentencePieceProcessor(
        model_file=str(DATA / "tokenizers/albert-spiece.model"))
    measure("albert-imdb", "sentencepiece", sentencepiece.__version__,
            lambda batch: [len(ids) + 2 for ids in albert.encode(batch, num_threads=1)],
            [prepare(text) for text in texts], repeats)
    for case, folder in (("bpe-imdb", "roberta"), ("bert-json-imdb", "bert")):
        fast = tokenizers.Tokenizer.from_file(f"tests/fixtures/tokenizers/{folder}/tokenizer.json")
        measure(case, "tokenizers", tokenizers.__version__,
                lambda batch, fast=fast: [len(each.ids) for each in fast.encode_batch(batch)],
                texts, repeats)


if __name__ == "__main__":
    main()

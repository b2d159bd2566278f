#!/usr/bin/env python3
"""Writes tests/fixtures/text/: two small vocabularies, and results of reference tokenizers.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    tools/make_text_fixtures.py [--corpus]

wordpiece.txt: WordPieces, trained on the project's own pages. unigram.model: a SentencePiece model
of the same text, with a small character map. Existing files are kept, since training is not
reproducible. samples.jsonl: texts and their ids by Hugging Face's tokenizers (cased, uncased) and
by SentencePiece after ALBERT's preprocessing, which is implemented here as in transformers.
long_samples.jsonl: texts that are repeated, with the number and the SHA-256 of ALBERT's ids (i32 in
little-endian order). With --corpus the SHA-256 of the ids that the published albert-spiece.model
gives for all 50,000 labeled reviews of $TROOP_DATA is printed: of each review the number of ids
(u32) and the ids with [CLS] and [SEP] (u16).
"""

import hashlib
import json
import pathlib
import struct
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import BertWordPieceTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/fixtures/text"
PAGES = ("README.md", "docs/architecture.md", "docs/style.md", "docs/guide/environments.md")
MORE = ["Die Straße nach München führt über Köln.", "Où est le café naïf ? À côté.",
        "ΟΔΥΣΣΕΥΣ ἄνδρα μοι ἔννεπε, Μοῦσα", "Ёжик и Йод", "日本語のテスト", "한국어 영화 리뷰",
        "ÀÉÎÕÜ àéîõü", "1,000, 2,345,678, 1990, 25,"] * 4
# Single characters, two composed with a mark, removed ones, white space: source -> target.
RULES = {"ﬁ": "fi", "Ａ": "A", "Ｂ": "B", "½": "1⁄2", "\u00a0": " ", "\u3000": " ", "\t": " ",
         "\n": " ", "\u200b": "", "\u00ad": "", "e\u0301": "é", "A\u030a": "Å", "\u2028": " ",
         "…": "...", "\ufffd": " "}
TEXTS = [
    "", " ", "   \t\n ", "Hello, World!", "  two   spaces  ", "I'm can't won't --- ...", "a" * 100,
    "a" * 101, "x" * 300, "C++ & C#; a_b <br /><br />end", "123,456.78 $5,000 1,2,3, and 25,",
    "9,999, and 3, or 2345,", "`` quoted '' text ``''", "tab\tnew\nline\r\x00\ufffd\x7f\x1f end",
    "naïve café — résumé", "cafe\u0301 A\u030angstro\u0308m", "Straße İstanbul",
    "北京 is 中国's capital", "日本語テスト", "한국어 영화 리뷰", "emoji 😀 ok 👍🏽", "ﬁne ½ Ⅷ ™ Ａ",
    "\u200bzero\u00adwidth\u2060", "hello\u3000world\u2028next\u00a0one", "don’t “quote” …",
    "<unk> <pad> [CLS, MASK]", "▁under ▁▁ score▁", "q\u0323\u0307 q\u0307\u0323",
    "ÀÉÎÕÜ", "\u0301 alone", "Ёжик", "unaffable Environments troop", "ﷺ ﬃ ǆ", "a\u0344b", "-" * 40,
    "The replay service keeps trajectories; learners draw batches (with priority) from it.",
    "actor/learner: 2 × 3 = 6, 50 %, §4.1, x≤y", "ABC" * 20 + " " + "é" * 101]

# The sums of scores pass SentencePiece's limit of 100,000, from which on they are rebased.
LONG = [("!!!! ---- .... The replay (service) keeps trajectories; ", 1500), ("xyzzy q! ", 3000),
        ("ab" * 20 + "日本", 500)]


def corpus():
    lines = []
    for page in PAGES:
        lines += [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line]
    return lines + MORE


def train_wordpiece(path, lines):
    trained = BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    trained.train_from_iterator(lines, vocab_size=700, min_frequency=3, limit_alphabet=160,
                                show_progress=False)
    plain = BertWordPieceTokenizer(lowercase=True)
    plain.train_from_iterator(lines, vocab_size=500, min_frequency=3, limit_alphabet=120,
                              show_progress=False)
    pieces = list(dict.fromkeys(sorted(trained.get_vocab(), key=trained.get_vocab().get)
                                + sorted(plain.get_vocab(), key=plain.get_vocab().get)))
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")


def train_unigram(path, lines):
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        as_hex = lambda text: " ".join(f"{ord(char):x}" for char in text)  # noqa: E731
        rules.write_text("".join(f"{as_hex(a)}\t{as_hex(b)}\n" for a, b in RULES.items()),
                         encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([prepare(line) for line in lines]), vocab_size=420,
            model_prefix=str(pathlib.Path(folder) / "unigram"), model_type="unigram",
            normalization_rule_tsv=str(rules), character_coverage=0.99, num_threads=1,
            pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            user_defined_symbols=["(", ")", '"', "-", ".", "£"], minloglevel=2)
        path.write_bytes((pathlib.Path(folder) / "unigram.model").read_bytes())


def prepare(text, cased=False):
    """ALBERT's preprocessing (Lan et al. 2020; transformers' slow tokenizer)."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if cased:
        return text
    text = unicodedata.normalize("NFKD", text)
    return "".join(char for char in text if not unicodedata.combining(char)).lower()


def albert(model, text, cased):
    """Splits pieces that end in a digit and a comma again without the comma."""
    pieces = []
    for piece in model.encode(prepare(text, cased), out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            again = model.encode(piece[:-1].replace("▁", ""), out_type=str)
            if piece[0] != "▁" and again[0][0] == "▁":
                again = again[1:] if len(again[0]) == 1 else [again[0][1:], *again[1:]]
            pieces += [*again, ","]
        else:
            pieces.append(piece)
    return [model.piece_to_id(piece) for piece in pieces]


def print_corpus():
    """The reader needs the package transformers."""
    import make_tokenizer_fixtures  # noqa: PLC0415
    path = make_tokenizer_fixtures.DATA / "tokenizers/albert-spiece.model"
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    sha = hashlib.sha256()
    for review in make_tokenizer_fixtures.read_reviews():
        ids = [model.piece_to_id("[CLS]"), *albert(model, review, False),
               model.piece_to_id("[SEP]")]
        sha.update(struct.pack(f"<I{len(ids)}H", len(ids), *ids))
    print(sha.hexdigest())


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, train in (("wordpiece.txt", train_wordpiece), ("unigram.model", train_unigram)):
        if not (FOLDER / name).exists():
            train(FOLDER / name, corpus())
    wordpiece = {cased: BertWordPieceTokenizer(str(FOLDER / "wordpiece.txt"), lowercase=not cased)
                 for cased in (True, False)}
    unigram = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / "unigram.model"))
    with (FOLDER / "samples.jsonl").open("w", encoding="utf-8") as file:
        for text in TEXTS:
            def ids(cased, text=text):
                return wordpiece[cased].encode(text, add_special_tokens=False).ids
            file.write(json.dumps({
                "text": text, "uncased": ids(False), "cased": ids(True),
                "albert": albert(unigram, text, False), "albert_cased": albert(unigram, text, True)
            }) + "\n")
    with (FOLDER / "long_samples.jsonl").open("w", encoding="utf-8") as file:
        for text, repeat in LONG:
            found = albert(unigram, text * repeat, False)
            sha = hashlib.sha256(struct.pack(f"<{len(found)}i", *found))
            file.write(json.dumps({"text": text, "repeat": repeat, "ids": len(found),
                                   "sha256": sha.hexdigest()}) + "\n")
    if "--corpus" in sys.argv[1:]:
        print_corpus()


if __name__ == "__main__":
    main()

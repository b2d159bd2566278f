#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/: small tokenizers of Hugging Face's hub, and their token ids.

    pip install tokenizers==0.23.3 transformers==5.24.0 sentencepiece==0.2.3 protobuf
    tools/make_tokenizer_fixtures.py [--corpus]

roberta/: vocab.json, merges.txt and tokenizer.json (with add_prefix_space) of a byte-level BPE.
bert/, albert/, xlmr/: tokenizer.json with the components of these models. The tokenizers are
trained on reviews of IMDB ($TROOP_DATA or ../shared/data); existing ones are kept, since training
is not reproducible. samples.jsonl: texts (in hexadecimal) and their ids. pairs.jsonl: pairs of
texts, limits and sides, and the ids and token types by transformers. added.jsonl: more elements of
"added_tokens", and the ids of texts with them. saved/: an ALBERT tokenizer with added tokens as
transformers 5 saves it, and saved.jsonl, the ids of texts by it. differences/: vocabularies for the
slow tokenizers with the tokenizer.json of the fast ones, and differences.jsonl, texts for which the
two have other ids. With --corpus the SHA-256 of
the ids of all 50,000 labeled reviews is printed, as i32 in little-endian order.
"""

import codecs
import hashlib
import json
import os
import pathlib
import shutil
import struct
import sys
import tarfile
import tempfile

import make_text_fixtures
import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, ByteLevelBPETokenizer, Regex, Tokenizer, models, normalizers,
                        pre_tokenizers, processors, trainers)
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/fixtures/tokenizers"
DATA = pathlib.Path(os.environ.get("TROOP_DATA", ROOT / "../shared/data"))
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
REVIEWS = 4000
TEXTS = [
    "", " ", "  ", "\n", "   \t\n ", "Hello, World!", "  two   spaces  ", " lead", "trail ",
    "I'm can't won't they'll we've you're he'd it's ain't '' ' 's 'S I'M CAN'T x'y 'tis 're'",
    "a  b   c    d", "line\nline\n\nline \n line\t\ttab\r\nend", "\n\n\nx", "a\n", "a \n", "a\t b",
    "a" * 100, "a" * 101, "x" * 300, "ab" * 700, "the" * 300, "C++ & C#; a_b <br /><br />end",
    "123,456.78 $5,000 1,2,3, and 25, 3rd 2nd x2 2x ½ ² Ⅷ ٣٤ १२", "1234567890" * 12,
    "`` quoted '' text ``''", "tab\tnew\nline\r\x00\ufffd\x7f\x1f\x1c\x85 end",
    "naïve café — résumé",
    "cafe\u0301 A\u030angstro\u0308m e\u0301\u0302 ﬁ\u0301 1\ufe0f\u20e3",
    "Straße İstanbul ıI GROẞ",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ ἄνδρα μοι ἔννεπε, ΑΣ.", "北京 is 中国's capital 豈", "日本語テスト ﾊﾟｶﾞ が カ\u3099",
    "한국어 영화 리뷰 \u1112\u1161\u11ab", "emoji 😀 ok 👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️ 🫨", "שלום עולם مرحبا بالعالم ؀1",
    "ﬁne ½ Ⅷ ™ Ａ ﷺ ﬃ ǆ a\u0344b", "\u200bzero\u00adwidth\u2060 \u200e\u202eabc\u202c \ufeff",
    "hello\u3000world\u2028next\u00a0one\u1680x\u2003\u2003y\u00a0\u00a0z", "don’t “quote” … – ‘a’",
    "[CLS, MASK] < unk >", "▁under ▁▁ score▁ ▁", "q\u0323\u0307 q\u0307\u0323", "\u0301 alone",
    "Ёжик ёлка", "हिन्दी नमस्ते தமிழ் ไทย", "\u0378 \U000e0fff \U0003fffd x\u0378y",
    "-" * 40, "!" * 7,
    "A sentence that is not too long, with ordinary words.", "𝒳𝓎𝓏 𐍈 𠀀", "\u0300\u0301", "​ ​",
    "mixedCASE Words LIKE this", "a.b,c;d:e!f?g(h)i[j]k{l}m\"n'o`p~q@r#s$t%u^v&w*x+y=z|\\/<>",
    "e" + "\u0301" * 50, "नि" * 40, " \u00a0 \u2003 ", "x \u0301y", "don't\u2019s o\u2019clock"]
BAD = [b"\xff", b"a\xc3", b"a\xe2\x82z", b"\xed\xa0\x80 x", b"ok \xf0\x9f\x98 \xf0\x9f\x98\x80",
       b"\xc0\x80\x80caf\xe9 au lait"]
PAIRS = [("a", "b"), ("the film was good", "it is not"), ("", "only the second one"),
         ("one two three four five six seven eight nine", "one two"),
         ("one two", "one two three four five six seven eight nine"),
         ("one two three four five six", "six five four three two one"),
         ("one two three four five six seven", "six five four three two one")]
LENGTHS = (5, 8, 9, 13, 64)
ADDED = ("the", "Movie", "<br />", "zqé", "MASK", " of", "good film", "(", "-")
ADDED_FLAGS = ({}, {"normalized": False}, {"single_word": True}, {"lstrip": True},
               {"rstrip": True, "normalized": False}, {"lstrip": True, "rstrip": True},
               {"normalized": False, "single_word": True})
ADDED_TEXTS = ["", "the", "The THE thé MOVIE movie  x", "  the   movie the ", "a (b) - x-y ((",
               "foo<br />bar <BR /> <br/>", "[MASK] MASK]the", "the_ the1 the½ theⒶ the‍",
               "x​the­film ZQÉzqé", "a good film of  good films　the the",
               "中the中 ́thé Movié"]

SAVED_TEXTS = ["A (good) film - or not. \"Quoted\" £5", "a film of <speaker> hi, filmy FILM (film)",
               "x <speaker><Speaker> y", "``so'' Café ﬁ 2² £", "(((--."]
BERT_PIECES = ["a", "b", "ας", "ασ", "##ς", "##σ", "ab", "##b"]
DIFFERENCES = [("bert", "final sigma", "ΑΣ a ΑΑΣ"),
               ("bert", "ideograph of U+2B820 to U+2B91F", "a\U0002b86eb"),
               ("albert", "text after a user-defined piece", "a (good) film"),
               ("albert", "space before a user-defined piece", "a - b"),
               ("albert", "user-defined piece at the beginning", "(a"),
               ("albert", "number with a comma", "in 25, or"),
               ("albert", "U+2581 in a text", "\u2581good a\u2581b \u2581")]


def each_byte(error):
    """Replaces one invalid byte, as Troop decodes UTF-8."""
    return "\ufffd", error.start + 1


codecs.register_error("each_byte", each_byte)


def read_reviews():
    """All labeled reviews in the order of Troop's tests."""
    folders = ("train/pos", "train/neg", "test/pos", "test/neg")
    texts = {}
    with tarfile.open(DATA / "imdb/aclImdb_labeled.tar.xz") as archive:
        for entry in archive:
            folder, _, name = entry.name.removeprefix("aclImdb/").rpartition("/")
            if entry.isfile() and folder in folders and "_" in name:
                key = (folders.index(folder), int(name.split("_")[0]))
                texts[key] = archive.extractfile(entry).read().decode()
    return [texts[key] for key in sorted(texts)]


def template(tokens, separators, second_type):
    begin, end = tokens
    return processors.TemplateProcessing(
        single=f"{begin[0]} $A {end[0]}",
        pair=f"{begin[0]} $A " + f"{end[0]} " * separators
        + f"$B:{second_type} {end[0]}:{second_type}",
        special_tokens=[begin, end])


def charsmap():
    """The small character map of tests/fixtures/text/unigram.model, field 3.2 of the protobuf."""
    data = (ROOT / "tests/fixtures/text/unigram.model").read_bytes()

    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value
        while at < len(data):
            key = varint()
            size = {0: 0, 1: 8, 5: 4}.get(key & 7)
            if size == 0:
                varint()
                continue
            size = varint() if size is None else size
            yield key >> 3, data[at:at + size]
            at += size
    spec = next(value for field, value in fields(data) if field == 3)
    return next(value for field, value in fields(spec) if field == 2)


def train_roberta(reviews):
    folder = FOLDER / "roberta"
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(reviews, vocab_size=1500, special_tokens=ROBERTA, show_progress=False)
    bpe.save_model(str(folder))
    bpe = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0),
                                                      add_prefix_space=True)
    bpe.add_special_tokens(ROBERTA)
    return bpe


def train_bert(reviews):
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer(lowercase=True)
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.train_from_iterator(reviews, trainers.WordPieceTrainer(
        vocab_size=1500, special_tokens=BERT, limit_alphabet=160, show_progress=False))
    bert.post_processor = template((("[CLS]", 2), ("[SEP]", 3)), 1, 1)
    return bert


def train_unigram(reviews, special, unknown, vocab_size):
    def train(tokenizer):
        tokenizer.train_from_iterator(reviews, trainers.UnigramTrainer(
            vocab_size=vocab_size, special_tokens=special, unk_token=unknown, show_progress=False))
        return tokenizer
    return train


def train_albert(reviews):
    albert = Tokenizer(models.Unigram())
    albert.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Precompiled(charsmap())])
    albert.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    train_unigram(reviews, ALBERT, "<unk>", 1000)(albert)
    albert.post_processor = template((("[CLS]", 2), ("[SEP]", 3)), 1, 1)
    return albert


def train_xlmr(reviews):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    xlmr = Tokenizer(models.Unigram())
    xlmr.normalizer = normalizers.Sequence([
        normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])
    xlmr.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    train_unigram(reviews, special, "<unk>", 800)(xlmr)
    xlmr.post_processor = template((("<s>", 0), ("</s>", 2)), 2, 0)
    return xlmr


TRAINERS = {"roberta": train_roberta, "bert": train_bert, "albert": train_albert,
            "xlmr": train_xlmr}


def make_tokenizers():
    """Trains what is missing; all without the extraction of special tokens from texts."""
    made, reviews = {}, None
    for name, train in TRAINERS.items():
        path = FOLDER / name / "tokenizer.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            reviews = reviews or read_reviews()[::50000 // REVIEWS]
            path.write_text(train(reviews).to_str(pretty=False), encoding="utf-8")
        made[name] = Tokenizer.from_file(str(path))
    plain = Tokenizer.from_str(made["roberta"].to_str())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made["roberta_vocab"] = plain
    cased = Tokenizer.from_str(made["bert"].to_str())
    cased.normalizer = normalizers.BertNormalizer(lowercase=False)
    made["bert_cased"] = cased
    for form in ("NFC", "NFKC"):
        normal = Tokenizer.from_str(plain.to_str())
        normal.normalizer = getattr(normalizers, form)()
        made[f"roberta_{form.lower()}"] = normal
    for tokenizer in made.values():
        tokenizer.encode_special_tokens = True
    return made


def write_samples(made):
    with (FOLDER / "samples.jsonl").open("w", encoding="utf-8") as file:
        for data in [*(text.encode() for text in TEXTS), *BAD]:
            text = data.decode(errors="each_byte")
            line = {"hex": data.hex()}
            for name, tokenizer in made.items():
                line[name] = tokenizer.encode(text, add_special_tokens=False).ids
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def write_pairs(made):
    """transformers sets the truncation: "longest_first" with the tokenizer's template."""
    with (FOLDER / "pairs.jsonl").open("w", encoding="utf-8") as file:
        for name in ("roberta", "bert", "albert", "xlmr"):
            fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made[name])
            for first, second in PAIRS:
                for length in LENGTHS:
                    for side in ("right", "left"):
                        fast.truncation_side = side
                        pair = fast(first, second, truncation="longest_first", max_length=length,
                                    return_token_type_ids=True)
                        file.write(json.dumps({
                            "name": name, "first": first, "second": second, "length": length,
                            "side": side, "ids": pair["input_ids"],
                            "types": pair["token_type_ids"]}, separators=(",", ":")) + "\n")


def write_added():
    with (FOLDER / "added.jsonl").open("w", encoding="utf-8") as file:
        for name in TRAINERS:
            for flags in ADDED_FLAGS:
                document = json.loads((FOLDER / name / "tokenizer.json").read_text("utf-8"))
                vocabulary = document["model"]["vocab"]
                ids = (vocabulary if isinstance(vocabulary, dict)
                       else {piece: id for id, (piece, _) in enumerate(vocabulary)})
                fresh = iter(range(len(ids), len(ids) + len(ADDED)))
                added = [{"id": ids[text] if text in ids else next(fresh), "content": text,
                          "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": True, "special": False} | flags for text in ADDED]
                document["added_tokens"] = added + document["added_tokens"]
                tokenizer = Tokenizer.from_str(json.dumps(document))
                tokenizer.encode_special_tokens = True
                found = [tokenizer.encode(text, add_special_tokens=False).ids
                         for text in ADDED_TEXTS]
                file.write(json.dumps({
                    "name": name, "added": json.dumps(added)[1:-1],
                    "texts": [text.encode().hex() for text in ADDED_TEXTS],
                    "ids": found}, separators=(",", ":")) + "\n")


def write_saved():
    """"extra_special_tokens" of tokenizer_config.json lists added and user-defined tokens alike."""
    with tempfile.TemporaryDirectory() as folder:
        model = ROOT / "tests/fixtures/text/unigram.model"
        shutil.copy(model, pathlib.Path(folder, "spiece.model"))
        albert = transformers.AlbertTokenizer.from_pretrained(folder)
    albert.add_tokens([AddedToken("film", single_word=True)])
    albert.add_special_tokens({"extra_special_tokens": [AddedToken("<speaker>", lstrip=True)]},
                              replace_extra_special_tokens=False)
    albert.save_pretrained(FOLDER / "saved")
    saved = transformers.AutoTokenizer.from_pretrained(FOLDER / "saved")
    with (FOLDER / "saved.jsonl").open("w", encoding="utf-8") as file:
        for text in [*SAVED_TEXTS, *TEXTS]:
            if any(token in text for token in ALBERT):
                continue  # plain text in Troop
            file.write(json.dumps({"hex": text.encode().hex(), "ids": saved(text)["input_ids"]},
                                  separators=(",", ":")) + "\n")


def save_fast(tokenizer, folder):
    """The tokenizer.json of a fast tokenizer, on one line."""
    document = json.loads(tokenizer.backend_tokenizer.to_str())
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    tokenizer.backend_tokenizer.encode_special_tokens = True


def write_differences():
    """Slow: BertTokenizerLegacy of transformers, and SentencePiece after ALBERT's preparation."""
    bert, albert = (FOLDER / "differences" / name for name in ("bert", "albert"))
    for folder in (bert, albert):
        folder.mkdir(parents=True, exist_ok=True)
    (bert / "vocab.txt").write_text("\n".join([*BERT, *BERT_PIECES]) + "\n", encoding="utf-8")
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((ROOT / "tests/fixtures/text/unigram.model").read_bytes())
    for piece in ("▁25,", "▁25"):
        model.pieces.add(piece=piece, score=-3)
    (albert / "spiece.model").write_bytes(model.SerializeToString())
    slow = {"bert": BertTokenizerLegacy(str(bert / "vocab.txt")),
            "albert": sentencepiece.SentencePieceProcessor(model_file=str(albert / "spiece.model"))}
    fast = {"bert": transformers.BertTokenizer.from_pretrained(bert),
            "albert": transformers.AlbertTokenizer.from_pretrained(albert)}
    for name, folder in (("bert", bert), ("albert", albert)):
        save_fast(fast[name], folder)
    with (FOLDER / "differences.jsonl").open("w", encoding="utf-8") as file:
        for name, why, text in DIFFERENCES:
            ids = (make_text_fixtures.albert(slow[name], text, False) if name == "albert"
                   else slow[name].encode(text, add_special_tokens=False))
            found = fast[name].encode(text, add_special_tokens=False)
            assert ids != found, why
            file.write(json.dumps({"name": name, "why": why, "hex": text.encode().hex(),
                                   "slow": ids, "fast": found}, separators=(",", ":")) + "\n")


def print_corpus(made):
    reviews = read_reviews()
    for name, tokenizer in made.items():
        sha = hashlib.sha256()
        for begin in range(0, len(reviews), 1000):
            for each in tokenizer.encode_batch(reviews[begin:begin + 1000]):
                sha.update(struct.pack(f"<{len(each.ids)}i", *each.ids))
        print(name, sha.hexdigest())


def main():
    made = make_tokenizers()
    write_samples(made)
    write_pairs(made)
    write_added()
    write_saved()
    write_differences()
    if "--corpus" in sys.argv[1:]:
        print_corpus(made)


if __name__ == "__main__":
    main()

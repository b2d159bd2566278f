#!/usr/bin/env python3
"""transformers' pipeline on files of texts: the peer of `troop predict --input`.

    predict_texts.py FOLDER [--quick] [--make]

--make writes to FOLDER what both sides read: model/ (a BERT of two layers of width 128 with random
weights, as transformers saves it) and texts.jsonl (IMDB's test reviews; --quick: 500 of them).
Without it the texts are classified and one line is printed. The texts are sorted by length, so
that batches have little padding; the batch size is the fastest of several on a part of the texts.
Imports and loading are not timed. `check`: probabilities of the first texts.
"""
import argparse
import json
import os
import pathlib
import tarfile
import time

import torch
import transformers

DATA = pathlib.Path(os.environ.get("TROOP_DATA", "../shared/data"))
QUICK, CHECKED, TRIED = 500, 50, 400
SIZES = (8, 16, 32, 64)
LENGTH = 512


def make(folder, quick):
    vocabulary = DATA / "tokenizers/bert-base-uncased-vocab.txt"
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=512, max_position_embeddings=LENGTH, num_labels=2)
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():  # so that probabilities differ
        for parameter in model.classifier.parameters():
            parameter.mul_(20)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder / "model")
    (folder / "model/vocab.txt").write_bytes(vocabulary.read_bytes())
    texts = []
    with tarfile.open(DATA / "imdb/aclImdb_labeled.tar.xz") as archive:
        for entry in archive:
            if entry.isfile() and "/test/" in entry.name and "_" in entry.name:
                texts.append(archive.extractfile(entry).read().decode())
    texts = texts[::max(1, len(texts) // QUICK)] if quick else texts
    (folder / "texts.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def classify(pipe, texts, size):
    """The probability of class 1 of each text, in the order of the texts."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    answers = pipe([texts[i] for i in order], batch_size=size, truncation=True, max_length=LENGTH,
                   top_k=None)
    found = [0.0] * len(texts)
    for i, answer in zip(order, answers, strict=True):
        found[i] = next(one["score"] for one in answer if one["label"] == "LABEL_1")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--make", action="store_true")
    options = parser.parse_args()
    if options.make:
        make(options.folder, options.quick)
        return
    # splitlines would also split at U+0085, which reviews have.
    lines = (options.folder / "texts.jsonl").read_text(encoding="utf-8").strip().split("\n")
    texts = [json.loads(line)["text"] for line in lines]
    model = transformers.BertForSequenceClassification.from_pretrained(options.folder / "model")
    tokenizer = transformers.BertTokenizer.from_pretrained(options.folder / "model")
    pipe = transformers.pipeline("text-classification", model=model.eval(), tokenizer=tokenizer)
    some, best = texts[:TRIED], None
    for size in SIZES:
        begin = time.perf_counter()
        classify(pipe, some, size)
        best = min(best or (float("inf"), 0), (time.perf_counter() - begin, size))
    begin = time.perf_counter()
    found = classify(pipe, texts, best[1])
    print(json.dumps({
        "case": "predict-texts", "metric": "time", "unit": "s",
        "values": [time.perf_counter() - begin], "peer": "transformers",
        "peer_version": transformers.__version__, "check": [len(texts), *found[:CHECKED]],
        "check_tolerance": 1e-3}), flush=True)


if __name__ == "__main__":
    main()

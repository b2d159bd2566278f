#!/usr/bin/env python3
"""Writes logits of pairs of texts by transformers to tests/fixtures/supervised/pairs.json.

    pip install torch==2.15.0 transformers==5.24.0
    tools/make_pair_fixtures.py

The model is tests/fixtures/supervised/bert; its limit of 24 tokens truncates some of the pairs.
"""

import json
import pathlib
import shutil
import tempfile

import torch
from transformers import BertForSequenceClassification, BertTokenizer

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/supervised"
LONG = "the movie was great and the film was good but the plot was dull and bad, and I loved it all"
PAIRS = [("good movie", "dull plot"), ("dull plot", "good movie"), ("a film", ""), ("", "a film"),
         (LONG, "good"), ("good", LONG), (LONG, LONG), (LONG, LONG + " great")]


def main():
    model = BertForSequenceClassification.from_pretrained(FOLDER / "bert").float().eval()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FOLDER / "vocab.txt", folder)
        tokenizer = BertTokenizer.from_pretrained(folder, do_lower_case=True, model_max_length=24)
    rows = []
    for text, pair in PAIRS:
        inputs = tokenizer([text], [pair], truncation="longest_first", return_tensors="pt")
        with torch.no_grad():
            p = torch.softmax(model(**inputs).logits.double(), 1)[0]
        rows.append({"text": text, "pair": pair, "tokens": inputs["input_ids"].shape[1],
                     "ids": inputs["input_ids"][0].tolist(), "probabilities": p.tolist()})
    (FOLDER / "pairs.json").write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()

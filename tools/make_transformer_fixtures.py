#!/usr/bin/env python3
"""Writes results of the Python package transformers to tests/fixtures/transformers.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0
    tools/make_transformer_fixtures.py [FAMILY ...]

For each family a folder with a tiny model of random weights as the package saves it
(config.json, model.safetensors; the weights are bf16 values, to be small) and
expected.safetensors, the results for a packed batch without padding:

    ids, starts, types, labels     i32: tokens, begins of sequences, token types, classes
    places, words                  i32: positions of masked tokens, and the original tokens
    classifier.logits, .loss       [B, classes], []: mean cross entropy, dropout off
    masked.logits, .loss           [M, vocabulary], []
    classifier.gradient.NAME, masked.gradient.NAME: by the parameter NAME
    masked.NAME                    weights that only the masked LM has

`roberta`, `distilbert` and `electra` are computed in f64. A token of `roberta` has the id of its
padding, which takes its own position. roberta/sharded is the same model in f16, in several
files with an index. These were made with transformers 5.24.0.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (AlbertConfig, AlbertForMaskedLM, AlbertForSequenceClassification,
                          BertConfig, BertForMaskedLM, BertForSequenceClassification,
                          DistilBertConfig, DistilBertForMaskedLM,
                          DistilBertForSequenceClassification, ElectraConfig, ElectraForMaskedLM,
                          ElectraForSequenceClassification, RobertaConfig, RobertaForMaskedLM,
                          RobertaForSequenceClassification)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/transformers"
LENGTHS = (1, 17, 6, 11)
VOCABULARY, POSITIONS, CLASSES = 40, 20, 3
SIZES = {"vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "hidden_size": 32,
         "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "num_labels": CLASSES, "attn_implementation": "eager"}
SMALL = {**SIZES, "hidden_size": 16, "intermediate_size": 24}
SEGMENTS = {"bert": 2, "albert": 2, "roberta": 1, "distilbert": 1, "electra": 2}
PADDING = 1  # of RoBERTa
SHARD_SIZE = "5KB"


def random_weights(model):
    """Randomizes all parameters, including biases and norms, with values exact in bf16."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "embeddings" in name and "LayerNorm" not in name else 0.15
            around = 1.0 if name.endswith("orm.weight") else 0.0
            parameter.copy_(around + spread * torch.randn(parameter.shape))
            parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))


def make_batch(family):
    tokens = sum(LENGTHS)
    starts = torch.tensor([sum(LENGTHS[:i]) for i in range(len(LENGTHS) + 1)])
    places = torch.tensor([0, 3, 9, 17, 18, 25, 34])
    return {"ids": torch.randint(1, VOCABULARY, (tokens,)), "starts": starts,
            "types": torch.randint(0, SEGMENTS[family], (tokens,)),
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
    inputs = {"input_ids": padded(batch, "ids"), "attention_mask": mask}
    if batch["types"].any():
        inputs["token_type_ids"] = padded(batch, "types")
    return mask, inputs


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
    batch = make_batch(family)
    if family == "roberta":
        batch["ids"][10] = batch["ids"][30] = PADDING
        for model in (classifier, masked):  # its row is trained like the others
            model.roberta.embeddings.word_embeddings.padding_idx = None
            model.roberta.embeddings.position_embeddings.padding_idx = None
    if family not in ("bert", "albert"):
        classifier.double(), masked.double()
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
    narrow = {torch.int64: torch.int32, torch.float64: torch.float32}
    out = {name: t.to(narrow.get(t.dtype, t.dtype)).contiguous() for name, t in out.items()}
    if family == "roberta":
        classifier.to(torch.float16).save_pretrained(FOLDER / family / "sharded",
                                                     max_shard_size=SHARD_SIZE)
    classifier.to(torch.bfloat16).save_pretrained(FOLDER / family)
    save_file(out, FOLDER / family / "expected.safetensors")


def main():
    models = {
        "bert": (BertConfig(**SIZES), BertForSequenceClassification, BertForMaskedLM),
        "albert": (AlbertConfig(**{**SIZES, "hidden_act": "gelu_new"}, embedding_size=16),
                   AlbertForSequenceClassification, AlbertForMaskedLM),
        "roberta": (RobertaConfig(**{**SMALL, "max_position_embeddings": POSITIONS + 2},
                                  type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu_new"),
                    RobertaForSequenceClassification, RobertaForMaskedLM),
        "distilbert": (DistilBertConfig(
            vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, dim=16, n_layers=2,
            n_heads=4, hidden_dim=24, num_labels=CLASSES, attn_implementation="eager"),
            DistilBertForSequenceClassification, DistilBertForMaskedLM),
        "electra": (ElectraConfig(**{**SMALL, "hidden_act": "gelu_new"}, embedding_size=24),
                    ElectraForSequenceClassification, ElectraForMaskedLM),
    }
    for family in sys.argv[1:] or models:
        make(family, *models[family])


if __name__ == "__main__":
    main()

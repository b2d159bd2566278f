#!/usr/bin/env python3
"""Writes PyTorch's training and results of two tiny models to tests/fixtures/supervised.

    pip install torch==2.15.0 transformers==5.23.0 safetensors==0.8.0
    tools/make_supervised_fixtures.py

    vocab.txt          WordPieces
    reviews.csv        reviews of these words, of different lengths
    bert/, albert/     a classifier each, as transformers saves it (bf16 values, to be small)
    masked/            a BERT that predicts masked tokens
    expected.json      all in f64:
      tokens           of each review, cut to TOKENS_MAX
      before, after    logits of each review, [12, 2], before and after training
      losses           mean cross entropy of all reviews before each of UPDATES updates of AdamW,
                       with a warmup of WARMUP updates and a decay towards FINAL_FRACTION;
                       gradients with a norm above MAX_GRAD_NORM are scaled to it
      norms            of those gradients, before scaling
      texts            numbers of tokens, unknown tokens, and tokens cut off at POSITIONS;
                       probabilities of each model
      masked           texts with [MASK]: the best tokens of each, with probabilities
      hidden           losses and norms of UPDATES masked-LM updates on the batches of hidden.json,
                       which SupervisedTest.FiftyUpdatesOfMaskedLmMatchPyTorch writes:
                       packed ids [T], starts [B + 1], positions of labels in ids
"""

import csv
import json
import pathlib

import torch
from tokenizers import BertWordPieceTokenizer
from transformers import (AlbertConfig, AlbertForSequenceClassification, BertConfig,
                          BertForMaskedLM, BertForSequenceClassification)

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/supervised"
UPDATES, LEARNING_RATE, WARMUP, FINAL_FRACTION = 50, 2e-3, 0.2, 0.1
WEIGHT_DECAY, MAX_GRAD_NORM = 0.5, 1.0
TOKENS_MAX, POSITIONS, BEST = 16, 24, 5
VOCABULARY = ("[PAD] [UNK] [CLS] [SEP] [MASK] . , ! ' \" a an the this film movie plot was is not "
              "good great bad dull fine and but of it i loved hated ##ly ##ing ##er act walk out "
              "wonder ##ful aw never seen so 1 0 /").split()
REVIEWS = [
    ("A great film, and a wonderful plot!", 1),
    ("Bad.", 0),
    ("The movie was not good", 0),
    ("I loved it.", 1),
    ("This is so dull I hated it and walked out: never seen an awful, bad, bad film so bad", 0),
    ("Fine acting", 1),
    ('"Great" is not the word.\nIt was wonderful!', 1),
    ("awful, dully acting, and the plot is bad", 0),
    ("10/10", 1),
    ("I never loved an actor so... the film is good but the movie is great", 1),
    ("not fine, not good, not great", 0),
    ("It's a bad, bad walker of a movie with a caf\u00e9", 0),
]
TEXTS = ["A GREAT movie!", "dull", "\u4e2d good zebra", "so " * 40 + "bad"]
MASKED_TEXTS = ["a [MASK] film", "it was not [MASK], it is [MASK]ly!"]
SIZES = {"vocab_size": len(VOCABULARY), "max_position_embeddings": POSITIONS, "hidden_size": 32,
         "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
         "num_labels": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
         "attn_implementation": "eager"}


def random_weights(model):
    """Randomizes all parameters, including biases and norms, with values exact in bf16."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "embeddings" in name and "LayerNorm" not in name else 0.15
            around = 1.0 if name.endswith("orm.weight") else 0.0
            parameter.copy_(around + spread * torch.randn(parameter.shape))
            parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))


def inputs_of(rows):
    """Pads and masks token ids of different lengths for transformers."""
    longest = max(map(len, rows))
    return {"input_ids": torch.tensor([row + [0] * (longest - len(row)) for row in rows]),
            "attention_mask": torch.tensor([[int(i < len(row)) for i in range(longest)]
                                            for row in rows])}


def cut(ids, most):
    return ids if len(ids) <= most else ids[:most - 1] + ids[-1:]


def rate_fraction(update):
    """Factor of the learning rate at an update, counted from 0."""
    warmup = WARMUP * UPDATES
    if update < warmup:
        return (update + 1) / warmup
    return 1 + (FINAL_FRACTION - 1) * (update - warmup) / (UPDATES - warmup)


def train(model, loss_of):
    """Trains; returns losses and norms before each update. loss_of(update), from 0."""
    decays = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": WEIGHT_DECAY},
                                   {"params": others, "weight_decay": 0.0}])
    losses, norms = [], []
    for update in range(UPDATES):
        loss = loss_of(update)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()
                              if p.grad is not None)).item()
        if norm > MAX_GRAD_NORM:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= MAX_GRAD_NORM / norm
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * rate_fraction(update)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def answers(model, tokenizer):
    with torch.no_grad():
        return [torch.softmax(model(**inputs_of([cut(tokenizer.encode(text).ids, POSITIONS)]))
                              .logits[0], 0).tolist() for text in TEXTS]


def make_classifier(family, model, tokenizer):
    torch.manual_seed(30 + len(family))
    random_weights(model)
    model.to(torch.bfloat16).save_pretrained(FOLDER / family)
    model.to(torch.float64).eval()
    rows = [cut(tokenizer.encode(text).ids, TOKENS_MAX) for text, _ in REVIEWS]
    said = {"texts": answers(model, tokenizer)}
    with torch.no_grad():
        said["before"] = model(**inputs_of(rows)).logits.tolist()
    labels = torch.tensor([s for _, s in REVIEWS])
    said["losses"], said["norms"] = train(
        model, lambda _: torch.nn.functional.cross_entropy(model(**inputs_of(rows)).logits, labels))
    with torch.no_grad():
        said["after"] = model(**inputs_of(rows)).logits.tolist()
    return said


def make_masked(tokenizer):
    torch.manual_seed(40)
    model = BertForMaskedLM(BertConfig(**SIZES))
    random_weights(model)
    model.to(torch.bfloat16).save_pretrained(FOLDER / "masked")
    model.to(torch.float64).eval()
    said = []
    for text in MASKED_TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            logits = model(**inputs_of([ids])).logits[0]
        places = []
        for place in [i for i, token in enumerate(ids) if token == VOCABULARY.index("[MASK]")]:
            best = torch.topk(torch.softmax(logits[place], 0), BEST)
            places.append([[VOCABULARY[i], p] for i, p in zip(best.indices.tolist(),
                                                              best.values.tolist())])
        said.append({"text": text, "tokens": len(ids), "places": places})
    return said


def hidden_loss(model, batch):
    """Mean cross entropy of the masked tokens."""
    ids, starts = batch["ids"], batch["starts"]
    rows = [ids[begin:end] for begin, end in zip(starts, starts[1:])]
    logits = model(**inputs_of(rows)).logits
    packed = torch.cat([logits[i, :len(row)] for i, row in enumerate(rows)])
    return torch.nn.functional.cross_entropy(packed[batch["places"]],
                                             torch.tensor(batch["labels"]))


def train_masked():
    """Loads the model of masked/ and trains it."""
    batches = json.loads((FOLDER / "hidden.json").read_text(encoding="utf-8"))
    model = BertForMaskedLM.from_pretrained(FOLDER / "masked", attn_implementation="eager",
                                            dtype=torch.float64).eval()
    # A hidden token may be replaced by any token, even [PAD]; padding itself is masked.
    model.bert.embeddings.word_embeddings.padding_idx = None
    losses, norms = train(model, lambda update: hidden_loss(model, batches[update]))
    return {"losses": losses, "norms": norms}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    with open(FOLDER / "reviews.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["review", "sentiment"])
        table.writerows([text, ("negative", "positive")[said]] for text, said in REVIEWS)
    tokenizer = BertWordPieceTokenizer(str(FOLDER / "vocab.txt"), lowercase=True)
    full = [tokenizer.encode(text).ids for text in TEXTS]
    kept = [cut(ids, POSITIONS) for ids in full]
    expected = {
        "tokens": [cut(tokenizer.encode(text).ids, TOKENS_MAX) for text, _ in REVIEWS],
        "texts": [{"text": text, "tokens": len(ids), "unknown": ids.count(1),
                   "cut": len(all_ids) - len(ids)}
                  for text, ids, all_ids in zip(TEXTS, kept, full)],
        "bert": make_classifier("bert", BertForSequenceClassification(BertConfig(**SIZES)),
                                tokenizer),
        "albert": make_classifier(
            "albert", AlbertForSequenceClassification(AlbertConfig(
                **{**SIZES, "hidden_act": "gelu_new"}, embedding_size=16,
                classifier_dropout_prob=0.0)), tokenizer),
        "masked": make_masked(tokenizer),
        "hidden": train_masked(),
    }
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (FOLDER / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""transformers on PyTorch, and PyTorch's LSTM, on the cases of supervised_bench: the same weights,
tokens and steps, one thread, padded batches with an attention mask as is usual (the LSTM's are
packed).

    supervised_peers.py [--quick] [--case NAME]

A value is one step of the fastest variant: with eager attention, with PyTorch's fused one (sdpa),
or with sdpa and compiled by torch.compile. AdamW is PyTorch's fused one.
"""

import argparse
import functools
import json
import statistics
import time
import types

import numpy as np
import torch
import transformers

TOKENS, LABELS, WEIGHTS = 1, 2, 100
REVIEWS = (256, 131, 256, 174, 256, 97, 256, 203)


def synthetic(stream, count):
    """supervised_bench's Synthetic(stream, i) for i < count."""
    mask = np.uint64(0xFFFFFFFF)
    x = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B1) & mask
    x ^= np.uint64(stream * 0x85EBCA77 & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D) & mask
    x = (x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B) & mask
    return x ^ (x >> np.uint64(16))


def fill(model):
    with torch.no_grad():
        for index, (name, p) in enumerate(sorted(model.named_parameters())):
            u = (synthetic(WEIGHTS + index, p.numel()) >> np.uint64(8)).astype(np.float32)
            u = u * np.float32(2.0 ** -24) - np.float32(0.5)
            around = np.float32(1 if name.endswith("LayerNorm.weight") else 0)
            spread = np.float32(0.08 if p.dim() == 2 else 0.1)
            p.copy_(torch.from_numpy(around + spread * u).view(p.shape))


def make_batch(lengths):
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    tokens = torch.from_numpy((1000 + synthetic(TOKENS, sum(lengths)) % 29000).astype(np.int64))
    for row, (length, part) in enumerate(zip(lengths, tokens.split(lengths))):
        ids[row, :length] = part
        mask[row, :length] = 1
    labels = torch.from_numpy((synthetic(LABELS, len(lengths)) % 2).astype(np.int64))
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class LstmClassifier(torch.nn.Module):
    """LstmConfig of nn/models/lstm_classifier.h."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(30522, 128)
        self.lstm = torch.nn.LSTM(128, 128, batch_first=True, bidirectional=True)
        self.attention = torch.nn.Linear(256, 128)
        self.score = torch.nn.Linear(128, 1, bias=False)
        self.classifier = torch.nn.Linear(256, 2)
        self.dropout = torch.nn.Dropout(0.2)

    def forward(self, input_ids, attention_mask, labels):
        words = self.dropout(self.embedding(input_ids))
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            words, attention_mask.sum(1), batch_first=True, enforce_sorted=False)
        states, _ = torch.nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        scores = self.score(torch.tanh(self.attention(states))).squeeze(-1)
        weights = torch.softmax(scores.masked_fill(attention_mask == 0, -torch.inf), dim=1)
        pooled = torch.bmm(weights[:, None, :], states).squeeze(1)
        logits = self.classifier(self.dropout(pooled))
        return types.SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits, labels))


def bert(attention):
    config = transformers.BertConfig(num_hidden_layers=2, attn_implementation=attention)
    return transformers.BertForSequenceClassification(config)


class Trainer:
    def __init__(self, model, lengths, bf16, compiled):
        self.model = model
        fill(self.model)
        if compiled:
            self.model.compile()
        decayed = [p for p in self.model.parameters() if p.dim() == 2]
        others = [p for p in self.model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
            lr=1e-5, fused=True)
        self.batch, self.bf16 = make_batch(lengths), bf16

    def forward_backward(self):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.model(**self.batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        return loss.item()

    def check(self):
        self.model.eval()
        loss = self.forward_backward()
        squares = sum(p.grad.double().square().sum().item() for p in self.model.parameters())
        self.model.train()
        return [loss, squares ** 0.5]

    def step(self):
        self.forward_backward()
        self.optimizer.step()


def measure_ms(trainer, values):
    trainer.step()
    trainer.step()
    times = []
    for _ in range(values):
        start = time.perf_counter()
        trainer.step()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    variants = [("sdpa", False)] if options.quick else [
        ("sdpa", False), ("eager", False), ("sdpa", True)]
    berts = [(functools.partial(bert, attention), compiled) for attention, compiled in variants]
    lstms = [(LstmClassifier, compiled) for compiled in sorted({c for _, c in variants})]
    version = f"{transformers.__version__}, torch {torch.__version__}"
    cases = [(f"{name}_{kind}", lengths, berts, "transformers", version)
             for kind in ("fp32", "bf16")
             for name, lengths in (("bert2_8x256", (256,) * 8), ("bert2_8_reviews", REVIEWS))]
    cases.append(("lstm_64_reviews_fp32", REVIEWS * 8, lstms, "torch",
                  torch.__version__))
    for case, lengths, models, peer, peer_version in cases:
        if options.case not in (None, case):
            continue
        runs = []
        for model, compiled in models:
            torch.compiler.reset()
            trainer = Trainer(model(), lengths, case.endswith("bf16"), compiled)
            check = trainer.check()
            runs.append((measure_ms(trainer, 3 if options.quick else 5), check))
        values, check = min(runs, key=lambda run: statistics.median(run[0]))
        row = {"case": case, "metric": "step", "unit": "ms", "values": values, "check": check,
               "peer": peer, "peer_version": peer_version}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the results of PyTorch's nn.LSTM and nn.GRU to tests/fixtures/lstm.

    pip install torch==2.15.0 safetensors==0.8.0
    tools/make_lstm_fixtures.py

`one_layer.safetensors` and `two_layers.safetensors` have a tiny text classifier with random weights
(bf16 values) and its results for a packed batch of unequal lengths, computed in f64:

    NAME                   the parameter NAME, bf16
    ids, starts, labels    i32: tokens, begins of sequences, classes
    logits, loss           [B, classes], [1]: mean cross entropy, without dropout
    gradient.NAME          gradient of the loss by the parameter NAME

`unrolls_lstm.safetensors` and `unrolls_gru.safetensors` have a layer with one direction over
sequences that begin with a state:

    NAME, gradient.NAME    as above
    x, dout, length        [T, IN], [T, HIDDEN], [B] i32: the sequences of a batch one after another
    state, state_out       [B, 2 HIDDEN]: h, c before the first and after the last step of each;
                           of the GRU [B, HIDDEN]
    out, dx                [T, HIDDEN], [T, IN]: outputs, gradient of Σ out · dout by x
"""

import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/lstm"
LENGTHS = (4, 1, 7, 7, 2)
VOCABULARY, EMBEDDING, HIDDEN, ATTENTION, CLASSES = 20, 6, 5, 4, 3


class Classifier(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, HIDDEN, layers, batch_first=True, bidirectional=True)
        self.attention = nn.Linear(2 * HIDDEN, ATTENTION)
        self.score = nn.Linear(ATTENTION, 1, bias=False)
        self.classifier = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, sequences):
        packed = pack_sequence([self.embedding(ids) for ids in sequences], enforce_sorted=False)
        states, lengths = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        scores = self.score(torch.tanh(self.attention(states))).squeeze(-1)
        absent = torch.arange(states.shape[1])[None, :] >= lengths[:, None]
        weights = torch.softmax(scores.masked_fill(absent, -torch.inf), dim=1)
        return self.classifier((weights[:, :, None] * states).sum(1))


def make(name, layers):
    torch.manual_seed(30 + layers)
    model = Classifier(layers).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((0.5 * torch.randn(parameter.shape)).to(torch.bfloat16))
    sequences = [torch.randint(0, VOCABULARY, (length,)) for length in LENGTHS]
    labels = torch.randint(0, CLASSES, (len(LENGTHS),))
    logits = model(sequences)
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    out = {"ids": torch.cat(sequences).int(), "labels": labels.int(),
           "starts": torch.tensor([sum(LENGTHS[:i]) for i in range(len(LENGTHS) + 1)]).int(),
           "logits": logits.detach().float(), "loss": loss.detach().float().reshape(1)}
    for parameter_name, parameter in model.named_parameters():
        out[parameter_name] = parameter.detach().to(torch.bfloat16)
        out["gradient." + parameter_name] = parameter.grad.float()
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.contiguous() for key, tensor in out.items()},
              FOLDER / f"{name}.safetensors")


def make_unrolls(name, kind, parts):
    torch.manual_seed(33)
    layer = kind(EMBEDDING, HIDDEN).double()
    sequences = [torch.randn(length, EMBEDDING).double().requires_grad_() for length in LENGTHS]
    state = torch.randn(len(LENGTHS), parts * HIDDEN).double()
    dout = torch.randn(sum(LENGTHS), HIDDEN).double()
    before = tuple(part[None].contiguous() for part in state.split(HIDDEN, 1))
    packed, after = layer(pack_sequence(sequences, enforce_sorted=False),
                          before if parts > 1 else before[0])
    padded, lengths = pad_packed_sequence(packed)
    out = torch.cat([padded[:length, i] for i, length in enumerate(lengths)])
    (out * dout).sum().backward()
    state_out = torch.cat(after, 2) if parts > 1 else after
    tensors = {"x": torch.cat(sequences), "dout": dout, "state": state, "out": out,
               "state_out": state_out[0], "dx": torch.cat([x.grad for x in sequences])}
    for parameter_name, parameter in layer.named_parameters():
        tensors[parameter_name] = parameter
        tensors["gradient." + parameter_name] = parameter.grad
    tensors = {key: tensor.detach().float().contiguous() for key, tensor in tensors.items()}
    save_file({**tensors, "length": torch.tensor(LENGTHS).int()},
              FOLDER / f"unrolls_{name}.safetensors")


def main():
    make_unrolls("lstm", nn.LSTM, 2)
    make_unrolls("gru", nn.GRU, 1)
    make("one_layer", 1)
    make("two_layers", 2)


if __name__ == "__main__":
    main()

"""PyTorch on the cases of images_bench: the same weights, pixels and steps, one thread.

    images_peers.py [--quick] [--case NAME]

A value is one step of the fastest variant: channels last, and channels last compiled by
torch.compile. The modules are torchvision's, written out in
tools/fixtures/make_image_model_fixtures.py.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "models", ROOT / "tools/fixtures/make_image_model_fixtures.py")
MODELS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODELS)


def resnet18():
    return MODELS.ResNet(3, 1000, (2, 2, 2, 2), False)


def alexnet():
    """With the dropouts, for which the fixture has identities."""
    model = MODELS.alexnet_torchvision(4096, 1000)
    for place, layer in enumerate(model.classifier):
        if isinstance(layer, nn.Identity):
            model.classifier[place] = nn.Dropout(0.5)
    return model


class Trainer:
    def __init__(self, make, images, side, bf16, compiled):
        self.model, self.bf16 = make(), bf16
        MODELS.fill(self.model)
        pixels = MODELS.numbers(999, images * side * side * 3).float()
        self.images = pixels.view(images, side, side, 3).permute(0, 3, 1, 2)
        self.labels = torch.arange(images)
        self.model.to(memory_format=torch.channels_last)
        if compiled:
            self.model.compile()
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.SGD(
            [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}],
            lr=1e-4, momentum=0.9, fused=True)

    def forward_backward(self):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = functional.cross_entropy(self.model(self.images).float(), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        return loss.item()

    def check(self):
        """Without dropout, but with the statistics of the batch."""
        drops = [m for m in self.model.modules() if isinstance(m, nn.Dropout)]
        for drop in drops:
            drop.eval()
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
    cases = [(f"{name}_{kind}", make, images, side)
             for kind in ("fp32", "bf16")
             for name, make, images, side in (("resnet18_32x64", resnet18, 32, 64),
                                              ("alexnet_16x224", alexnet, 16, 224))]
    for case, make, images, side in cases:
        if options.case not in (None, case):
            continue
        runs = []
        for compiled in (False,) if options.quick else (False, True):
            torch.compiler.reset()
            trainer = Trainer(make, images, side, case.endswith("bf16"), compiled)
            check = trainer.check()
            runs.append((measure_ms(trainer, 3 if options.quick else 5), check))
        values, check = min(runs, key=lambda run: statistics.median(run[0]))
        row = {"case": case, "metric": "step", "unit": "ms", "values": values, "check": check,
               "peer": "torch", "peer_version": torch.__version__}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

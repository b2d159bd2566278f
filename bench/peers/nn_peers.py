"""PyTorch on the cases of nn_bench: the same networks, weights, inputs and steps, one thread.

    nn_peers.py [--quick] [--case NAME]

A value is the median of many calls of the fastest variant: eager or compiled, NCHW or
channels-last convolutions; inference mode for forwards. --quick skips the compiler, which takes
minutes. fp32 is PyTorch's fastest on these networks, so it is also the reference for our bf16.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn

STREAM = {"observation": 1, "next_observation": 2, "action": 3, "reward": 4, "discount": 5,
          "weight": 6, "value": 100, "target": 200}


def synthetic(stream, count):
    """nn_bench's Synthetic(stream, i) for i < count."""
    mask = np.uint64(0xFFFFFFFF)
    x = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B1) & mask
    x ^= np.uint64(stream * 0x85EBCA77 & 0xFFFFFFFF)
    x = (x ^ (x >> np.uint64(16))) * np.uint64(0x7FEB352D) & mask
    x = (x ^ (x >> np.uint64(15))) * np.uint64(0x846CA68B) & mask
    return x ^ (x >> np.uint64(16))


def uniform(stream, count):
    return (synthetic(stream, count) >> np.uint64(8)).astype(np.float32) * np.float32(2.0 ** -24)


class Network(nn.Module):
    """convs: (filters, kernel, stride); observation: [H, W, C] of bytes, or [n] of floats."""

    def __init__(self, observation, convs, units, streams, actions, scale):
        super().__init__()
        layers = []
        if convs:
            height, width, channels = observation
            for filters, kernel, stride in convs:
                layers += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU()]
                height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
                channels = filters
            features = height * width * channels
        else:
            features = observation[0]
        self.convs = nn.Sequential(*layers)
        layers = []
        for unit in units:
            layers += [nn.Linear(features, unit), nn.ReLU()]
            features = unit
        self.linears = nn.Sequential(*layers)
        self.scale = scale
        self.streams = streams
        if streams:
            self.value = nn.Sequential(nn.Linear(features, streams), nn.ReLU(),
                                       nn.Linear(streams, 1))
            self.advantage = nn.Sequential(nn.Linear(features, streams), nn.ReLU(),
                                           nn.Linear(streams, actions))
        else:
            self.head = nn.Linear(features, actions)
        # Columns of the first matrix after the convolutions are in NCHW order here.
        self.flattened = (channels, height, width) if convs else None

    def forward(self, x):
        if self.scale != 1 or x.dtype != torch.float32:
            x = x.float() * self.scale if self.scale != 1 else x.float()
        if self.flattened:
            x = self.convs(x).flatten(1)
        x = self.linears(x)
        if not self.streams:
            return self.head(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)

    def fill(self, stream):
        """nn_bench's weights: stream + index of the parameter, in NHWC order."""
        index = 0
        with torch.no_grad():
            for module in self.modules():
                if not isinstance(module, (nn.Conv2d, nn.Linear)):
                    continue
                fan_in = module.weight[0].numel()
                bound = np.float32(1) / np.sqrt(np.float32(fan_in))
                draw = lambda p, i: torch.from_numpy(
                    bound * (2 * uniform(stream + i, p.numel()) - 1))
                weight = draw(module.weight, index)
                if isinstance(module, nn.Conv2d):
                    out, channels, height, width = module.weight.shape
                    weight = weight.view(out, height, width, channels).permute(0, 3, 1, 2)
                elif self.flattened and fan_in == np.prod(self.flattened):
                    channels, height, width = self.flattened
                    weight = weight.view(-1, height, width, channels).permute(0, 3, 1, 2)
                    weight = weight.reshape(module.weight.shape)
                module.weight.copy_(weight.reshape(module.weight.shape))
                module.bias.copy_(draw(module.bias, index + 1))
                index += 2
        return self


NETWORKS = {
    "nature": dict(observation=(84, 84, 4), convs=[(32, 8, 4), (64, 4, 2), (64, 3, 1)], units=[],
                   streams=512, actions=6, scale=1 / 255),
    "mlp": dict(observation=(4,), convs=[], units=[64, 64], streams=0, actions=2, scale=1),
    "minatar": dict(observation=(10, 10, 4), convs=[(16, 3, 1)], units=[128], streams=0, actions=6,
                    scale=1),
}
LEVELS = {"nature": 256, "minatar": 2}


def observation(name, stream, batch):
    shape = NETWORKS[name]["observation"]
    count = batch * int(np.prod(shape))
    if len(shape) == 1:
        return torch.from_numpy(2 * uniform(STREAM[stream], count) - 1).view(batch, *shape)
    levels = np.uint64(LEVELS[name])
    cells = (synthetic(STREAM[stream], count) % levels).astype(np.uint8)
    return torch.from_numpy(cells).view(batch, *shape).permute(0, 3, 1, 2).contiguous()


def optimizer(name, parameters):
    if name == "mlp":
        return torch.optim.Adam(parameters, lr=1e-3)
    rate, epsilon = (6.25e-5, 1.5e-7) if name == "nature" else (2.5e-4, 1e-2)
    return CenteredRmsProp(parameters, rate, 0.95, epsilon)


class CenteredRmsProp(torch.optim.RMSprop):
    """PyTorch's optimizer, which adds epsilon outside of the root: the same amount of work. The
    check of the first step computes the change of DQN's form, from v = 0.05 g² and m = 0.05 g."""

    def __init__(self, parameters, rate, decay, epsilon):
        super().__init__(parameters, lr=rate, alpha=decay, eps=epsilon, centered=True)
        self.inside = (rate, decay, epsilon)

    def expected_change(self, gradients):
        rate, decay, epsilon = self.inside
        total = 0.0
        for g in gradients:
            g = g.double()
            v, m = (1 - decay) * g * g, (1 - decay) * g
            total += (rate * g / torch.sqrt(v - m * m + epsilon)).abs().sum().item()
        return total


class Step:
    """A double-DQN step: three forwards, Huber, clip, optimizer."""

    def __init__(self, name, batch, compiled, channels_last):
        self.name = name
        self.online = Network(**NETWORKS[name]).fill(STREAM["value"])
        self.target = Network(**NETWORKS[name]).fill(STREAM["target"])
        layout = torch.channels_last
        self.observation = observation(name, "observation", batch)
        self.next_observation = observation(name, "next_observation", batch)
        if channels_last:
            self.online = self.online.to(memory_format=layout)
            self.target = self.target.to(memory_format=layout)
            self.observation = self.observation.to(memory_format=layout)
            self.next_observation = self.next_observation.to(memory_format=layout)
        actions = NETWORKS[name]["actions"]
        self.action = torch.from_numpy(
            (synthetic(STREAM["action"], batch) % np.uint64(actions)).astype(np.int64))[:, None]
        self.reward = torch.from_numpy(2 * uniform(STREAM["reward"], batch) - 1)
        ends = synthetic(STREAM["discount"], batch) % np.uint64(10) == 0
        self.discount = torch.from_numpy(np.where(ends, 0, 0.99).astype(np.float32))
        self.weight = torch.from_numpy(
            np.float32(0.5) + np.float32(0.5) * uniform(STREAM["weight"], batch))
        self.parameters = list(self.online.parameters())
        self.optimizer = optimizer(name, self.parameters)
        self.norm_max = 40.0 if name == "nature" else 10.0
        self.q = torch.compile(self.online) if compiled else self.online
        self.q_target = torch.compile(self.target) if compiled else self.target

    def run(self, report=False):
        with torch.no_grad():
            best = self.q(self.next_observation).argmax(1, keepdim=True)
            bootstrap = self.q_target(self.next_observation).gather(1, best)[:, 0]
            goal = self.reward + self.discount * bootstrap
        chosen = self.q(self.observation).gather(1, self.action)[:, 0]
        loss = (nn.functional.smooth_l1_loss(chosen, goal, reduction="none") * self.weight).mean()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.norm_max)
        if report:
            before = [p.detach().clone() for p in self.parameters]
            gradients = [p.grad.clone() for p in self.parameters]
        self.optimizer.step()
        if not report:
            return None
        if isinstance(self.optimizer, CenteredRmsProp):
            change = self.optimizer.expected_change(gradients)
        else:
            change = sum((a - b).abs().double().sum().item()
                         for a, b in zip(before, self.parameters))
        # Ours includes padding between parameters, up to multiples of 16.
        count = sum(-(-p.numel() // 16) * 16 for p in self.parameters)
        rate = self.optimizer.param_groups[0]["lr"]
        return [loss.item(), (goal - chosen).abs().mean().item(), chosen.mean().item(), norm.item(),
                change / count / rate]


class Forward:
    def __init__(self, name, batch, compiled, channels_last):
        self.network = Network(**NETWORKS[name]).fill(STREAM["value"]).eval()
        self.input = observation(name, "observation", batch)
        if channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)
            self.input = self.input.to(memory_format=torch.channels_last)
        self.q = torch.compile(self.network) if compiled else self.network

    def run(self, report=False):
        with torch.inference_mode():
            q = self.q(self.input)
        return q.flatten().tolist() if report else None


def measure_us(run, values, seconds):
    first = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        first.append(time.perf_counter() - start)
    repeats = max(3, int(seconds / min(first)))
    medians = []
    for _ in range(values):
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        medians.append(statistics.median(times) * 1e6)
    return medians


# Cache of the fastest variant, found in the first round and used in the others of the same run:
# compiling takes minutes. Expires after two hours.
CHOICES = pathlib.Path(sys.prefix) / "nn_choices.json"
CHOICES_SECONDS = 7200


def remembered():
    if not CHOICES.exists() or time.time() - CHOICES.stat().st_mtime > CHOICES_SECONDS:
        return {}
    return json.loads(CHOICES.read_text(encoding="utf-8"))


def variants(name, quick):
    for compiled in (False,) if quick else (False, True):
        for channels_last in (False, True) if NETWORKS[name]["convs"] else (False,):
            yield compiled, channels_last


def fastest(kind, name, batch, quick):
    """(values, check) of the variant with the smallest median."""
    best = None
    choices = {} if quick else remembered()
    key = f"{kind.__name__} {name} {batch}"
    for variant in [tuple(choices[key])] if key in choices else variants(name, quick):
        try:
            case = kind(name, batch, *variant)
            check = case.run(report=True)
            values = measure_us(case.run, 3 if quick else 5, 0.1 if quick else 0.3)
        except Exception as error:  # no compiler on this machine: use eager
            if not variant[0]:
                raise
            print(f"# torch.compile failed on {name}: {str(error).splitlines()[0]}", flush=True)
            continue
        if best is None or statistics.median(values) < statistics.median(best[0]):
            best = (values, check)
            choices[key] = variant
    if not quick:
        CHOICES.write_text(json.dumps(choices), encoding="utf-8")
    return best


def cases():
    for batch in (1, 8, 32):
        yield f"nature_forward_b{batch}", Forward, "nature", batch, ("_fp32", "_bf16")
    for batch in (32, 512):
        yield f"nature_step_b{batch}", Step, "nature", batch, ("_fp32", "_bf16")
    for batch in (1, 16):
        yield f"mlp_forward_b{batch}", Forward, "mlp", batch, ("",)
    yield "mlp_step_b64", Step, "mlp", 64, ("",)
    for batch in (1, 16):
        yield f"minatar_forward_b{batch}", Forward, "minatar", batch, ("",)
    yield "minatar_step_b32", Step, "minatar", 32, ("",)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for prefix, kind, name, batch, precisions in cases():
        names = [prefix + p for p in precisions if options.case in (None, prefix + p)]
        if not names:
            continue
        values, check = fastest(kind, name, batch, options.quick)
        for case in names:
            row = {"case": case, "metric": "time", "unit": "us", "values": values, "check": check,
                   "peer": "pytorch", "peer_version": torch.__version__}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""PyTorch's side of gpu_bench: the same cases, inputs and units, with its best settings.

gpu_torch.py [--json FILE] [--seconds S] [PART OF A NAME]

Convolutions: cuDNN, channels last, autotuned. The step: torch.compile, then everything (both
passes, loss, backward, clipping, centered RMSProp) captured into one CUDA graph; bf16 under
autocast, or TF32. Exit code 2: no PyTorch or no GPU.
"""
import argparse
import json
import math
import sys

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print(f"gpu_torch: {error}", file=sys.stderr)
    sys.exit(2)

SAMPLES = 7


def synthetic(stream, n):
    """uint32 in int64, equal to Synthetic of gpu_bench.cc."""
    mask = 0xFFFFFFFF
    x = torch.arange(n, dtype=torch.int64)
    x = ((x * 0x9E3779B1) & mask) ^ ((stream * 0x85EBCA77) & mask)
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & mask
    x = ((x ^ (x >> 15)) * 0x846CA68B) & mask
    return x ^ (x >> 16)


def uniform(stream, n):
    return (synthetic(stream, n).double() * 2.0**-31 - 1).float()


def random(shape, stream, dtype=torch.bfloat16):
    n = math.prod(shape)
    some = uniform(stream, min(n, 1 << 20)).cuda()
    return some.repeat(-(-n // some.numel()))[:n].reshape(shape).to(dtype)


class Bench:
    def __init__(self, seconds, file):
        self.seconds, self.file = seconds, file

    def once(self, work, repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def rate(self, name, metric, unit, amount, work, check=None, least=0.0):
        """Writes the row if it is faster than `least`; returns the median."""
        for _ in range(3):
            work()
        repeats, share = 1, self.seconds / SAMPLES
        while (took := self.once(work, repeats)) < share and repeats < 100_000:
            repeats = max(repeats + 1, int(repeats * 1.1 * share / max(took, 1e-6)))
        values = sorted(amount * repeats / self.once(work, repeats) for _ in range(SAMPLES))
        median = values[SAMPLES // 2]
        row = {"case": name, "metric": metric, "unit": unit, "better": "higher", "value": median,
               "spread": (values[-1] - values[0]) / median, "samples": SAMPLES}
        if check is not None:
            row["check"] = check() if callable(check) else check
        print(f"{name:44} {metric:12} {median:12.5g} {unit}", flush=True)
        if self.file and median > least:   # the last of two rows of a case counts
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
        return median


class Nature(nn.Module):
    def __init__(self, dueling, actions):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(),
                                   nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                                   nn.Conv2d(64, 64, 3, 1), nn.ReLU())
        self.dueling = dueling
        if dueling:
            self.value = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 1))
        self.advantage = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions))

    def forward(self, x):
        # [B, h, w, c] in memory, as channels last.
        x = self.convs(x.permute(0, 3, 1, 2).float() / 255).permute(0, 2, 3, 1).flatten(1)
        a = self.advantage(x)
        return self.value(x) + a - a.mean(1, keepdim=True) if self.dueling else a


class Replay:
    """Experience in GPU memory, as in gpu_bench: 64 streams of 3,100 frames, stacks of four made
    when sampling; priorities are summed at each sample."""

    STREAMS, LENGTH = 64, 3100

    def __init__(self, batch):
        n = self.STREAMS * self.LENGTH
        self.frames = (synthetic(7, 1 << 22) >> 24).to(torch.uint8).cuda().repeat(
            -(-n * 84 * 84 // (1 << 22)))[:n * 84 * 84].reshape(n, 84, 84)
        self.number = uniform(8, n).cuda()
        self.action = (torch.arange(n) % 6).cuda()
        # An item begins at a frame with three frames before and after it.
        place = torch.arange(n) // self.STREAMS
        self.mass = (self.number.abs() * ((place >= 3) & (place < self.LENGTH - 3)).cuda()) ** 0.6
        self.back = (torch.arange(-3, 1) * self.STREAMS).cuda()
        self.ahead = (torch.arange(3) * self.STREAMS).cuda()
        self.slices = torch.arange(batch, device="cuda")
        self.drawn = torch.zeros(batch, dtype=torch.int64, device="cuda")

    def draw(self):
        """observation [2 B, 84, 84, 4], action [B, 1], reward [B, 3], weight [B]."""
        batch, sums = len(self.slices), self.mass.double().cumsum(0)
        at = (self.slices + torch.rand(batch, device="cuda")) / batch * sums[-1]
        self.drawn.copy_(torch.searchsorted(sums, at).clamp(max=len(sums) - 1))
        first = self.drawn.unsqueeze(1)
        begins = torch.cat([first, first + 3 * self.STREAMS])
        seen = self.frames[begins + self.back].permute(0, 2, 3, 1)
        weight = (self.mass[self.drawn] * len(sums) / sums[-1].float()) ** -0.4
        return (seen.contiguous(), self.action[first], self.number[first + self.ahead],
                weight / weight.max())

    def update(self, priority):
        self.mass[self.drawn] = (priority + 1e-6) ** 0.6


def captured(step):
    """The same step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def draws(bench):
    """Stacked frames of many items, as gpu_bench's table makes them: the bandwidth of a gather."""
    items = 8192
    replay = Replay(items)
    bench.rate("table_draw_8192", "bandwidth", "TB/s", 1e-12 * 4 * 4 * 84 * 84 * items, replay.draw)


def learner_step(bench, name, batch, precision, dueling, table=False):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(1)
    online, target = (Nature(dueling, 6).cuda().to(memory_format=torch.channels_last)
                      for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.RMSprop(online.parameters(), lr=6.25e-5, alpha=0.95, eps=1.5e-7,
                                    centered=True, foreach=True, capturable=True)
    replay = Replay(batch) if table else None
    pixels = (synthetic(3, 2 * batch * 84 * 84 * 4) >> 24).to(torch.uint8)
    observation = pixels.reshape(2 * batch, 84, 84, 4).cuda()
    action = (synthetic(4, batch) % 6).cuda().unsqueeze(1)
    reward = uniform(5, batch * 3).reshape(batch, 3).cuda()
    weight = torch.ones(batch, device="cuda")
    priority = torch.empty(batch, device="cuda")
    gammas = torch.tensor([0.99**i for i in range(3)], device="cuda")

    def loss_of(observation, action, reward, weight):
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            q = online(observation[:batch]).float()
            with torch.no_grad():
                best = online(observation[batch:]).float().argmax(1, keepdim=True)
                bootstrap = target(observation[batch:]).float().gather(1, best).squeeze(1)
        td = (reward * gammas).sum(1) + 0.99**3 * bootstrap - q.gather(1, action).squeeze(1)
        priority.copy_(td.detach().abs())
        return (weight * functional.huber_loss(td, torch.zeros_like(td), reduction="none")).mean()

    loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=False)
        drawn = replay.draw() if table else (observation, action, reward, weight)
        loss_of(*drawn).backward()
        nn.utils.clip_grad_norm_(online.parameters(), 40.0, foreach=True)
        optimizer.step()
        if table:
            replay.update(priority)

    bench.rate(name, "updates", "1/s", 1, captured(step).replay)


def convolutions(bench):
    torch.backends.cudnn.benchmark = True
    for name, (side, channels, filters, kernel, stride) in (("conv1_u8", (84, 4, 32, 8, 4)),
                                                            ("conv2", (20, 32, 64, 4, 2)),
                                                            ("conv3", (9, 64, 64, 3, 1))):
        out = (side - kernel) // stride + 1
        flop = 2e-12 * 512 * out * out * filters * kernel * kernel * channels
        w = random((filters, kernel, kernel, channels), 2).permute(0, 3, 1, 2)
        bias = random((filters,), 4)
        dz = random((512, out, out, filters), 3).permute(0, 3, 1, 2)
        if name == "conv1_u8":
            frames = (random((512, side, side, channels), 1) * 127 + 128).to(torch.uint8)
            decode = torch.compile(lambda f: f.permute(0, 3, 1, 2).to(torch.bfloat16) * (1 / 255))
        else:
            x = random((512, side, side, channels), 1).permute(0, 3, 1, 2)

        def source():
            return decode(frames) if name == "conv1_u8" else x  # pylint: disable=cell-var-from-loop

        forward = torch.compile(lambda a, w=w, bias=bias, stride=stride:
                                functional.relu(functional.conv2d(a, w, bias, stride)))
        bench.rate(f"{name}_forward", "speed", "TFLOP/s", flop, lambda: forward(source()))
        def backward(source_of, wanted):
            return torch.ops.aten.convolution_backward(
                dz, source_of(), w, [filters], [stride] * 2,  # pylint: disable=cell-var-from-loop
                [0, 0], [1, 1], False, [0, 0], 1, wanted)

        bench.rate(f"{name}_backward_weight", "speed", "TFLOP/s", flop,
                   lambda: backward(source, (False, True, True)))
        if name == "conv1_u8":
            continue
        bench.rate(f"{name}_backward_data", "speed", "TFLOP/s", flop,
                   lambda: backward(source, (True, False, False)))


def copy(bench):
    source = torch.ones(1 << 32, dtype=torch.uint8, device="cuda")
    to = torch.empty_like(source)
    bench.rate("copy_4GiB", "bandwidth", "TB/s", 2e-12 * 2**32, lambda: to.copy_(source))


def product(bench):
    a, b = random((8192, 8192), 1), random((8192, 8192), 2)
    bench.rate("cublas_8192_bf16", "speed", "TFLOP/s", 2e-12 * 8192**3, lambda: a @ b.T)


def optimizers(bench):
    n = 1 << 26
    value = nn.Parameter(random((n,), 4, torch.float32))
    value.grad = random((n,), 1, torch.float32)
    adam = torch.optim.Adam([value], lr=1e-4, fused=True)
    bench.rate("adam_64M", "bandwidth", "TB/s", 1e-12 * 28 * n, adam.step)
    rms = torch.optim.RMSprop([value], lr=1e-4, alpha=0.95, centered=True, foreach=True)
    bench.rate("rmsprop_centered_64M", "bandwidth", "TB/s", 1e-12 * 28 * n, rms.step)
    bench.rate("sum_squares_64M", "bandwidth", "TB/s", 1e-12 * 4 * n,
               lambda: torch.linalg.vector_norm(value.grad))


class Bert(nn.Module):
    """BERT-base with a classifier (Devlin et al. 2019), on reviews of equal length."""

    def __init__(self, words=30522, hidden=768, heads=12, layers=12, wide=3072):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, hidden), nn.Embedding(512, hidden)
        self.types = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, 1e-12)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "qkv": nn.Linear(hidden, 3 * hidden), "out": nn.Linear(hidden, hidden),
            "norm1": nn.LayerNorm(hidden, 1e-12), "up": nn.Linear(hidden, wide),
            "down": nn.Linear(wide, hidden), "norm2": nn.LayerNorm(hidden, 1e-12)})
            for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(hidden, hidden), nn.Linear(hidden, 2)

    def forward(self, ids):
        def drop(x):
            return functional.dropout(x, 0.1, True)
        batch, length = ids.shape
        x = self.words(ids) + self.places.weight[:length] + self.types.weight[0]
        x = drop(self.norm(x))
        for layer in self.layers:
            q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2)
                       for part in layer["qkv"](x).chunk(3, -1))
            seen = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
            seen = seen.transpose(1, 2).reshape(batch, length, -1)
            x = layer["norm1"](x + drop(layer["out"](seen)))
            x = layer["norm2"](x + drop(layer["down"](functional.gelu(layer["up"](x)))))
        return self.classifier(drop(torch.tanh(self.pooler(x[:, 0]))))


def bert(bench):
    """BERT-base on 32 reviews of 256 tokens: compiled, flash attention, fused AdamW."""
    torch.manual_seed(1)
    reviews, length, hidden, wide, layers = 32, 256, 768, 3072, 12
    ids = (synthetic(9, reviews * length) % 30522).reshape(reviews, length).cuda()
    labels = (torch.arange(reviews) % 2).cuda()
    tokens = reviews * length
    flop = 3e-12 * (layers * (2 * tokens * (4 * hidden * hidden + 2 * hidden * wide) +
                              4 * tokens * length * hidden) + 2 * reviews * hidden * hidden)
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, half in (("bert_base_32x256_bf16", True), ("bert_base_32x256_tf32", False)):
        model = Bert().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True, capturable=True)
        told = torch.zeros((), device="cuda")

        def loss_of(model=model, half=half):
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                return functional.cross_entropy(model(ids).float(), labels)

        loss_of = torch.compile(loss_of)

        def step(model=model, optimizer=optimizer, loss_of=loss_of, told=told):
            optimizer.zero_grad(set_to_none=False)
            loss = loss_of()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            told.copy_(loss.detach())

        def wait(work, told=told):
            work()
            return told.item()

        calls = bench.rate(name, "speed", "TFLOP/s", flop, lambda s=step, w=wait: w(s))
        graph = captured(step)   # its best settings: the faster ones
        bench.rate(name, "speed", "TFLOP/s", flop, lambda g=graph, w=wait: w(g.replay), least=calls)
        del model, optimizer


def transformers(bench):
    rows, n, masked, words = 1 << 17, 768, 1 << 12, 30522
    for name, dtype, size in (("layer_norm_131072x768_f32", torch.float32, 4),
                              ("layer_norm_131072x768_bf16", torch.bfloat16, 2)):
        x = random((rows, n), 3, dtype).requires_grad_()
        gamma, beta = (random((n,), stream, torch.float32).to(dtype).requires_grad_()
                       for stream in (1, 2))
        dy = random((rows, n), 4, dtype)
        amount = 1e-12 * rows * n * size
        with torch.no_grad():
            bench.rate(f"{name}_forward", "bandwidth", "TB/s", 2 * amount,
                       lambda x=x, g=gamma, b=beta: nn.functional.layer_norm(x, (n,), g, b, 1e-5))
        y = nn.functional.layer_norm(x, (n,), gamma, beta, 1e-5)
        bench.rate(f"{name}_backward", "bandwidth", "TB/s", 3 * amount,
                   lambda x=x, g=gamma, b=beta, y=y, d=dy:
                   torch.autograd.grad(y, (x, g, b), d, retain_graph=True))
        del x, y, dy
    logits = random((masked, words), 6, torch.bfloat16).requires_grad_()
    labels = torch.arange(masked, device="cuda") * 7 % words

    def loss():
        value = nn.functional.cross_entropy(logits, labels)
        return torch.autograd.grad(value, logits)

    bench.rate("cross_entropy_4096x30522_bf16", "bandwidth", "TB/s",
               1e-12 * 2 * 2 * masked * words, torch.compile(loss))


def attention(bench):
    """Flash attention, as PyTorch chooses it."""
    sequences, length, heads, width = 64, 512, 12, 64
    shape = (sequences, heads, length, width)
    q, k, v = (random(shape, stream).requires_grad_() for stream in (1, 2, 3))
    dout = random(shape, 4)
    flop = 1e-12 * 4 * sequences * heads * length * length * width
    with torch.no_grad():
        bench.rate("attention_64x512x12x64_forward", "speed", "TFLOP/s", flop,
                   lambda: nn.functional.scaled_dot_product_attention(q, k, v))
    for rate in (0.0, 0.1):
        name = "attention_64x512x12x64" + ("_dropout" if rate else "")
        if rate:
            with torch.no_grad():
                bench.rate(f"{name}_forward", "speed", "TFLOP/s", flop,
                           lambda: nn.functional.scaled_dot_product_attention(q, k, v,
                                                                              dropout_p=0.1))
        out = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=rate)
        bench.rate(f"{name}_backward", "speed", "TFLOP/s", 2.5 * flop,
                   lambda out=out: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))


CASES = {
    "copy": copy,
    "cublas": product,
    "step_nature_512_bf16_replay":
        lambda b: learner_step(b, "step_nature_512_bf16_replay", 512, "bf16", False, True),
    "step_nature_512_bf16": lambda b: learner_step(b, "step_nature_512_bf16", 512, "bf16", False),
    "step_nature_512_tf32": lambda b: learner_step(b, "step_nature_512_tf32", 512, "tf32", False),
    "step_nature_dueling_512_bf16":
        lambda b: learner_step(b, "step_nature_dueling_512_bf16", 512, "bf16", True),
    "step_nature_32_bf16": lambda b: learner_step(b, "step_nature_32_bf16", 32, "bf16", False),
    "bert": bert,
    "conv": convolutions,
    "table_draw": draws,
    "optimizer": optimizers,
    "attention": attention,
    "transformer": transformers,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("part", nargs="?", default="")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_torch: PyTorch sees no GPU", file=sys.stderr)
        return 2
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}")
    failed = 0
    with open(options.json or "/dev/null", "w", encoding="utf-8") as file:
        file.write(json.dumps({"version": torch.__version__}) + "\n")
        for name, run in CASES.items():
            if options.part not in name:
                continue
            try:
                run(Bench(options.seconds, file))
            except Exception as error:  # pylint: disable=broad-except
                failed += 1           # continue with the other cases
                print(f"gpu_torch: {name}: {error}", file=sys.stderr)
            torch.cuda.empty_cache()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

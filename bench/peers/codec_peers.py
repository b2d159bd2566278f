#!/usr/bin/env python3
"""PyTorch: the peer of bench/codec_bench.cc's times.

    codec_peers.py [--quick]

Rounds gradients to 16 bits with error feedback, and sums them in place on one thread. Ours also
checks for infinity and NaN, before and after the wire.
"""
import json
import sys
import time

import torch

ELEMENTS, CHECKED = 25_000_000, 3


def gradient():
    bits = (torch.arange(ELEMENTS, dtype=torch.int64) * 2654435761) % 2**32
    signed = torch.where(bits >= 2**31, bits - 2**32, bits) >> 8
    return signed.to(torch.float32) * 2.0**-33


def measure(name, dtype, repeats):
    given = gradient()
    residual, total = torch.zeros(ELEMENTS), torch.zeros(ELEMENTS)
    half = torch.empty(ELEMENTS, dtype=dtype)
    encode, add, check = [], [], []
    for i in range(repeats):
        begin = time.perf_counter()
        residual.add_(given)
        half.copy_(residual)
        residual.sub_(half)
        encoded = time.perf_counter()
        total.add_(half)
        added = time.perf_counter()
        if i + 1 == CHECKED:
            check = [total.double().sum().item(), residual.double().sum().item()]
        if i >= CHECKED:
            encode.append(1e3 * (encoded - begin))
            add.append(1e3 * (added - encoded))
    for metric, values in (("encode", encode), ("add up", add)):
        print(json.dumps({"case": f"{name}, 100 MB of f32, one thread", "metric": metric,
                          "unit": "ms", "values": values, "peer": "PyTorch",
                          "peer_version": torch.__version__, "check": check,
                          "check_tolerance": 1e-6}), flush=True)


def main():
    torch.set_num_threads(1)
    repeats = 5 if "--quick" in sys.argv else 15
    with torch.inference_mode():
        measure("bf16", torch.bfloat16, repeats)
        measure("fp16", torch.float16, repeats)


if __name__ == "__main__":
    main()

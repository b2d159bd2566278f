#!/usr/bin/env python3
"""onnxruntime on the networks that deploy_bench exported: the peer of libtroop_policy.

    deploy_onnx.py --files FOLDER [--quick]

One thread, all graph optimizations. The values are those of the call from Python, which costs some
microseconds. `check`: the q-values of the first eight rows.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import onnxruntime

CASES = (("cartpole", (4,), np.float32), ("nature", (84, 84, 4), np.uint8))
ROWS = (1, 64)
REPEATS, CHECKED_ROWS, TOLERANCE = 5, 8, 1e-4


def observations(rows, shape, dtype):
    """The same as in deploy_bench.cc."""
    index = np.arange(rows * int(np.prod(shape)))
    values = index * 7919 % 251 if dtype == np.uint8 else np.sin(index)
    return values.astype(dtype).reshape((rows, *shape))


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def times(call, seconds):
    """Microseconds per call, one value per repetition."""
    calls, elapsed = 1, 0.0
    while elapsed < seconds / 10:   # also warms up
        calls *= 2
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        elapsed = time.perf_counter() - begin
    values = []
    for _ in range(REPEATS):
        begin, done, elapsed = time.perf_counter(), 0, 0.0
        while elapsed < seconds:
            for _ in range(calls):
                call()
            done += calls
            elapsed = time.perf_counter() - begin
        values.append(1e6 * elapsed / done)
    return values


def emit(case, values, q, peer=None, version=None):
    line = {"case": case, "metric": "time", "unit": "us", "values": values,
            "check": [float(x) for x in np.asarray(q)[:CHECKED_ROWS].ravel()],
            "check_tolerance": TOLERANCE}
    if peer:
        line |= {"peer": peer, "peer_version": version}
    print(json.dumps(line), flush=True)


def options_of(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--files", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def main():
    options = options_of(__doc__)
    for name, shape, dtype in CASES:
        policy = session(options.files / f"{name}.onnx")
        for rows in ROWS:
            inputs = {"observation": observations(rows, shape, dtype)}
            emit(f"{name}-b{rows}",
                 times(lambda: policy.run(["action"], inputs), 0.1 if options.quick else 0.5),
                 policy.run(["q"], inputs)[0], "onnxruntime", onnxruntime.__version__)


if __name__ == "__main__":
    main()

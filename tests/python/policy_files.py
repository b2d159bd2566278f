"""Policy files for tests, written and read without Troop: safetensors with the description of
nn/export/policy_description.h; and networks in NumPy."""
import json
import pathlib
import struct

import numpy as np


def write_policy(path, description, tensors):
    """A safetensors file. tensors: name -> float32 array."""
    header, data = {"__metadata__": {"troop_policy": json.dumps(description)}}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array, np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def read_tensors(path):
    """(metadata, name -> float32 array) of a safetensors file."""
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(raw[8 + size + first:8 + size + last],
                                      np.float32).reshape(entry["shape"])
    return metadata, tensors


def linear_policy(path, shape, outputs, *, dtype="f32", stack=1, factor=1.0, bounds=None, mask=None,
                  seed=1):
    """A file of one hidden layer with tanh, and the same function in NumPy: from [N, stack,
    ...shape] to q [N, outputs], or with bounds (low, high) to actions. mask: element of a frame at
    which an action mask begins."""
    random = np.random.default_rng(seed)
    inputs = int(np.prod(shape)) * stack
    tensors = {"layers.0.weight": random.normal(size=(7, inputs)), "layers.0.bias":
               random.normal(size=7), "head.weight": random.normal(size=(outputs, 7)),
               "head.bias": random.normal(size=outputs)}
    whole = [stack, *shape] if stack > 1 else list(shape)
    layers = [{"kind": "scale", "in": whole, "out": whole, "factor": factor},
              {"kind": "linear", "tensors": "layers.0", "in": whole, "out": [7],
               "activation": "tanh"},
              {"kind": "linear", "tensors": "head", "in": [7], "out": [outputs]}]
    action = {"name": "action", "kind": "discrete", "count": outputs}
    if bounds is not None:
        layers.append({"kind": "action_bounds", "in": [outputs], "out": [outputs]})
        action = {"name": "action", "kind": "continuous", "low": list(bounds[0]),
                  "high": list(bounds[1])}
    if mask is not None:
        layers.append({"kind": "action_mask", "in": [outputs], "out": [outputs], "first": mask})
    write_policy(path, {"version": 1, "observations": [
        {"name": "observation", "dtype": dtype, "shape": list(shape), "stack": stack}],
        "actions": [action], "layers": layers}, tensors)

    def compute(observations):
        x = np.asarray(observations, np.float64).reshape(-1, inputs) * factor
        x = np.tanh(x @ tensors["layers.0.weight"].T + tensors["layers.0.bias"])
        x = x @ tensors["head.weight"].T + tensors["head.bias"]
        if mask is not None:
            newest = np.asarray(observations).reshape(len(x), stack, -1)[:, -1]
            allowed = newest[:, mask:mask + outputs] != 0
            x[~allowed & allowed.any(axis=1, keepdims=True)] = -np.inf
        if bounds is None:
            return x
        low, high = np.array(bounds[0]), np.array(bounds[1])
        return low + (high - low) * (1 + np.tanh(x)) / 2

    return compute

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


def lstm_policy(path, inputs, units, outputs, seed=1):
    """A file of one LSTM in PyTorch's order of gates (i, f, g, o), and one step of it in NumPy:
    from [N, inputs] and (h, c), [N, units] each, to q [N, outputs] and the next (h, c)."""
    random = np.random.default_rng(seed)
    shapes = {"layers.0.weight_ih": (4 * units, inputs), "layers.0.weight_hh": (4 * units, units),
              "layers.0.bias_ih": 4 * units, "layers.0.bias_hh": 4 * units,
              "head.weight": (outputs, units), "head.bias": outputs}
    w = {name: random.normal(size=shape) for name, shape in shapes.items()}
    layers = [{"kind": "scale", "in": [inputs], "out": [inputs]},
              {"kind": "lstm", "tensors": "layers.0", "in": [inputs], "out": [units]},
              {"kind": "linear", "tensors": "head", "in": [units], "out": [outputs]}]
    write_policy(path, {"version": 1, "observations": [
        {"name": "observation", "dtype": "f32", "shape": [inputs], "stack": 1}],
        "actions": [{"name": "action", "kind": "discrete", "count": outputs}],
        "layers": layers}, w)

    def step(x, h, c):
        sums = x @ w["layers.0.weight_ih"].T + w["layers.0.bias_ih"] + \
            h @ w["layers.0.weight_hh"].T + w["layers.0.bias_hh"]
        i, f, g, o = np.split(sums, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        return h @ w["head.weight"].T + w["head.bias"], h, c

    return step

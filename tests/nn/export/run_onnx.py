#!/usr/bin/env python3
"""Runs exported models in onnxruntime: run_onnx.py FOLDER '["name", ...]' ROWS.

Each NAME.onnx gets NAME.input. For a policy these are raw observations of ROWS rows; its q-values
or continuous actions are written to NAME.output, and the greedy action must be the first largest q.
For a text model they are ids, mask and segments of ROWS rows; its logits are written, of which
the probabilities must be the softmax. Exit code 77: a package is missing.
"""
import json
import pathlib
import sys

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as missing:
    print(missing)
    sys.exit(77)

failures = onnxruntime.capi.onnxruntime_pybind11_state
DTYPES = {"tensor(float)": numpy.float32, "tensor(uint8)": numpy.uint8,
          "tensor(int32)": numpy.int32}
EPISODE = 3  # EpisodeOf in tests/nn/policy_loops.h


def described(session, key):
    """The description in the metadata of a model."""
    description = json.loads(session.get_modelmeta().custom_metadata_map[key])
    assert description["version"] == 1, description
    return description


def run(session, inputs):
    """The outputs by name."""
    return dict(zip((out.name for out in session.get_outputs()), session.run(None, inputs)))


def policy_values(session, path, rows):
    described(session, "troop_policy")
    observation, *state = session.get_inputs()
    batch = numpy.fromfile(path, DTYPES[observation.type]).reshape(rows, *observation.shape[1:])
    if state:
        return recurrent_values(session, batch, state[0].shape[1])
    outputs = run(session, {"observation": batch})
    values = outputs.get("q", outputs["action"])
    if "q" in outputs:
        assert (outputs["action"] == values.argmax(axis=1)).all(), outputs
    return values


def recurrent_values(session, batch, size):
    """Each EPISODE rows are the steps of an episode; all episodes advance together."""
    steps = batch.reshape(-1, EPISODE, *batch.shape[1:])
    state = numpy.zeros((len(steps), size), numpy.float32)
    values = []
    for t in range(EPISODE):
        outputs = run(session, {"observation": steps[:, t], "state": state})
        state = outputs["next_state"]
        values.append(outputs.get("q", outputs["action"]))
    return numpy.stack(values, 1).reshape(len(batch), -1)


def text_logits(session, path, rows):
    description = described(session, "troop_text_model")
    tokens_max, problem = description["model_max_length"], description.get("problem_type")
    for value in session.get_inputs():
        assert value.shape == ["batch", "tokens"] and value.type == "tensor(int64)", value
    ids, mask, segments = numpy.fromfile(path, numpy.int64).reshape(3, rows, -1)
    texts = {"input_ids": ids, "attention_mask": mask}
    outputs = run(session, texts)
    optional = [value.name for value in session.get_overridable_initializers()]
    assert optional == ["token_type_ids"] or not segments.any(), optional
    if segments.any():
        # Left out, all tokens are in segment 0.
        zeros = run(session, texts | {"token_type_ids": 0 * segments})
        assert numpy.abs(zeros["logits"] - outputs["logits"]).max() < 1e-5, (zeros, outputs)
        texts["token_type_ids"] = segments
        outputs = run(session, texts)
        assert numpy.abs(zeros["logits"] - outputs["logits"]).max() > 1e-3, (zeros, outputs)
    masked = outputs["logits"].ndim == 3
    assert (masked or problem == "regression") == ("probabilities" not in outputs), outputs
    if "probabilities" in outputs:
        powers = numpy.exp(outputs["logits"].astype(numpy.float64))
        labels = problem == "multi_label_classification"
        shares = powers / (1 + powers if labels else powers.sum(axis=1, keepdims=True))
        assert numpy.abs(outputs["probabilities"] - shares).max() < 1e-6, outputs
    # More tokens than positions are an error, and never a result without their positions.
    if tokens_max > 0:
        long = numpy.zeros((rows, tokens_max + 1), numpy.int64)
        try:
            run(session, {"input_ids": long, "attention_mask": long + 1})
            raise AssertionError(f"{tokens_max + 1} tokens were accepted")
        except (failures.RuntimeException, failures.InvalidArgument):
            pass
    # A batch of one review without padding.
    short = run(session, {name: values[:1, :mask[0].sum()] for name, values in texts.items()})
    first = outputs["logits"][:1, :mask[0].sum()] if masked else outputs["logits"][:1]
    assert numpy.abs(short["logits"] - first).max() < 1e-5, (short, outputs)
    return outputs["logits"]


def main(folder, names, rows):
    for name in names:
        path = folder / f"{name}.onnx"
        onnx.checker.check_model(onnx.load(path), full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        is_text = any(value.name == "input_ids" for value in session.get_inputs())
        values = (text_logits if is_text else policy_values)(session, folder / f"{name}.input",
                                                             rows)
        values.astype(numpy.float32).tofile(folder / f"{name}.output")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))

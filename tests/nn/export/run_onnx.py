#!/usr/bin/env python3
"""Runs exported policies in onnxruntime: run_onnx.py FOLDER '["name", ...]' ROWS.

Each NAME.onnx gets NAME.input, raw observations of ROWS rows; its q-values or continuous actions
are written to NAME.output. The greedy action must be the first largest q. Exit code 77: a package
is missing.
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

DTYPES = {"tensor(float)": numpy.float32, "tensor(uint8)": numpy.uint8,
          "tensor(int32)": numpy.int32}


def main(folder, names, rows):
    for name in names:
        path = folder / f"{name}.onnx"
        onnx.checker.check_model(onnx.load(path), full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        policy = json.loads(session.get_modelmeta().custom_metadata_map["troop_policy"])
        assert policy["version"] == 1, policy
        (observation,) = session.get_inputs()
        raw = numpy.fromfile(folder / f"{name}.input", DTYPES[observation.type])
        batch = raw.reshape(rows, *observation.shape[1:])
        outputs = dict(zip((out.name for out in session.get_outputs()),
                           session.run(None, {"observation": batch})))
        values = outputs.get("q", outputs["action"])
        if "q" in outputs:
            assert (outputs["action"] == values.argmax(axis=1)).all(), outputs
        values.astype(numpy.float32).tofile(folder / f"{name}.output")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))

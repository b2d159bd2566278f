#!/usr/bin/env python3
"""A Python server of a policy, as programmers write one: FastAPI, uvicorn and onnxruntime.

    troop export RUN --format onnx --out policy.onnx
    bench/peers/serve_onnx.py policy.onnx [--port 8001] [--workers N]

It has the paths and forms of `troop serve` that bench/deploy_serve.py uses. One request is one
forward pass: batching over requests would need further code.
"""
import argparse
import json
import os

import fastapi
import numpy
import onnxruntime
import uvicorn

DTYPES = {"f32": "<f4", "i32": "<i4", "u8": "u1"}


def make_app(path):
    """The application around a model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    described = json.loads(metadata["troop_policy"])
    observation, action = described["observations"][0], described["actions"][0]
    stack = observation["stack"]
    shape = ([stack] if stack > 1 else []) + observation["shape"]
    dtype = numpy.dtype(DTYPES[observation["dtype"]])
    updates = int(metadata["updates"])
    app = fastapi.FastAPI()

    @app.get("/v1/policy")
    def policy():
        return {"observation": {key: observation[key] for key in ("dtype", "shape", "stack")},
                "action": action, "updates": updates}

    @app.post("/v1/act")
    async def act(request: fastapi.Request):
        body = await request.body()
        binary = request.headers.get("content-type") == "application/octet-stream"
        if binary:
            observations = numpy.frombuffer(body, dtype)
        else:
            observations = numpy.asarray(json.loads(body)["observations"], dtype)
        actions = session.run(["action"], {"observation": observations.reshape([-1] + shape)})[0]
        if binary:
            form = "<i4" if action["kind"] == "discrete" else "<f4"
            return fastapi.Response(actions.astype(form).tobytes(),
                                    media_type="application/octet-stream")
        return {"actions": actions.tolist(), "updates": updates}

    return app


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="from troop export --format onnx")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    # The workers of uvicorn import the application by its name.
    os.environ["TROOP_ONNX_MODEL"] = os.path.abspath(options.model)
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    uvicorn.run("serve_onnx:application", factory=True, host=options.host, port=options.port,
                workers=options.workers, log_level="warning", access_log=False)


def application():
    """The factory of a worker process."""
    return make_app(os.environ["TROOP_ONNX_MODEL"])


if __name__ == "__main__":
    main()

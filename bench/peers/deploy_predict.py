#!/usr/bin/env python3
"""policy.predict of the package `troop`, Stable-Baselines3's predict, and onnxruntime, for the
CartPole network that deploy_bench exported.

    deploy_predict.py --files FOLDER [--quick]     with the folder of the package in PYTHONPATH

All sides run in one process on one thread, in turn, with the same weights and observations.
`check`: the q-values of the first eight rows; those of Stable-Baselines3 by its q_net. onnxruntime
computes the action only.
"""
import pathlib

import onnxruntime
import stable_baselines3
import torch
from deploy_onnx import ROWS, emit, observations, options_of, session, times
from safetensors.torch import load_file

import troop

LAYERS = ("layers.0", "layers.1", "head")


def sb3_agent(path: pathlib.Path) -> stable_baselines3.DQN:
    """A DQN agent with the exported parameters: its modules 0, 2 and 4 are the linear layers."""
    agent = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", buffer_size=1, device="cpu",
                                  policy_kwargs={"net_arch": [64, 64]})
    ours = load_file(path)
    agent.q_net.load_state_dict({f"q_net.{2 * i}.{kind}": ours[f"{layer}.{kind}"]
                                 for i, layer in enumerate(LAYERS) for kind in ("weight", "bias")})
    return agent


def main():
    options = options_of(__doc__)
    torch.set_num_threads(1)
    seconds = 0.1 if options.quick else 0.5
    policy = troop.load_policy(options.files / "cartpole.safetensors")
    agent = sb3_agent(options.files / "cartpole.safetensors")
    onnx = session(options.files / "cartpole.onnx")
    for rows in ROWS:
        case = f"predict-cartpole-b{rows}"
        batch = observations(rows, (4,), "float32")
        one = batch[0] if rows == 1 else batch
        emit(case, times(lambda: policy.predict(one, deterministic=True), seconds),
             policy.q_values(batch))
        with torch.no_grad():
            q = agent.q_net(torch.from_numpy(batch)).numpy()
        emit(case, times(lambda: agent.predict(one, deterministic=True), seconds), q,
             "stable-baselines3", stable_baselines3.__version__)
        emit(case, times(lambda: onnx.run(["action"], {"observation": batch}), seconds),
             onnx.run(["q"], {"observation": batch})[0], "onnxruntime", onnxruntime.__version__)


if __name__ == "__main__":
    main()

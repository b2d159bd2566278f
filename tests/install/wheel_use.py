"""Uses the installed packages and the program as their users do. Prints one line of JSON.

wheel_use.py FOLDER. Equal packages print equal lines: wheel_test.py compares a
wheel with the build that it was made next to. FOLDER is for its runs.
"""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request

import gymnasium
import numpy as np
import troop
import troop_replay

# Serial mode: the same seed gives the same bytes on every machine with equal kernels.
CONFIG = {"env.id": "CartPole-v1", "seed": 3, "fleet.mode": "serial", "actor.warmup_steps": 500,
          "replay": {"capacity_items": 20_000, "min_items": 500}, "run.total_steps": 20_000,
          "optimizer.learning_rate": 0.001,
          "network.layers": [{"type": "linear", "units": 64}, {"type": "linear", "units": 64}],
          "evaluator": {"episodes": 3, "final_episodes": 5}}


class Corridor(gymnasium.Env):
    """An environment of this script: it reaches the worker processes by the script's name."""

    observation_space = gymnasium.spaces.Box(0, 20, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self.length, self.at = length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.array([self.at], np.float32), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action == 1 else -1))
        return np.array([self.at], np.float32), -1.0, self.at == self.length, False, {}


def program(*words):
    """The output of the program `troop` of PATH, as a shell finds it."""
    done = subprocess.run(["troop", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"troop {words} ends with {done.returncode}: {done.stdout}"
                             f"{done.stderr}")
    return done.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()


def trained():
    """A policy: the digest of its weights, what it predicts, and what it achieves."""
    run = troop.train(CONFIG, name="serial", overwrite=True, progress=False)
    policy = run.policy()
    env = troop.make_env("CartPole-v1")
    env.reset(seed=5)
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    actions, _ = policy.predict(observations, deterministic=True)
    return {
        "final_return": run.result["final_return_mean"], "actions": actions.tolist(),
        "weights": [digest(path.read_bytes()) for path in
                    sorted(pathlib.Path(run.path).rglob("weights.safetensors"))],
        "values": digest(np.round(policy.q_values(observations), 4).tobytes()),
        "evaluated": troop.evaluate(policy, env, n_eval_episodes=5),
    }


def fleet():
    """A run of several processes, which the program starts from its own file."""
    config = {**CONFIG, "fleet.mode": "processes", "run.total_steps": 3000}
    run = troop.train(config, name="fleet", overwrite=True, progress=False)
    return run.result["status"]


def custom():
    """Training on the class above, with the package troop_env in the worker processes."""
    config = {**CONFIG, "env.max_episode_steps": 50, "run.total_steps": 3000}
    run = troop.train(config, env=Corridor, env_kwargs={"length": 5}, name="corridor",
                      overwrite=True, progress=False)
    return [run.result["status"],
            troop.evaluate(run.policy(), gymnasium.wrappers.TimeLimit(Corridor(5), 50))]


def environments():
    """Rewards and observations of native environments for fixed actions."""
    env = troop.make_env("MinAtar/Breakout-v1")
    seen, _ = env.reset(seed=2)
    rewards = []
    for step in range(200):
        seen, reward, terminated, truncated, _ = env.step(step * 7 % env.action_space.n)
        rewards.append(reward)
        if terminated or truncated:
            seen, _ = env.reset()
    vector = troop.make_vector_env("CartPole-v1", 8, threads=2)
    vector.reset(seed=4)
    last = vector.step(np.ones(8, np.int64))[0]
    return [sum(rewards), digest(np.asarray(seen).tobytes()), np.round(last, 5).tolist(),
            len(troop.environment_ids())]


def replay():
    """A table of Python's own experience."""
    space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    table = troop_replay.Table(observation=space, action=gymnasium.spaces.Discrete(2))
    memory = troop_replay.LocalReplay(table)
    writer = memory.writer()
    for step in range(20):
        row = np.full(3, step / 20, np.float32)
        writer.append(row, step % 2, float(step), step % 10 == 9, False, row)
    batch = memory.sampler(batch_size=8).sample()
    return [len(memory), list(np.asarray(batch.reward).shape)]


def files(folder):
    """What the program reads or has inside: pages, templates, plots, exports."""
    written = {}
    for name, words in {
            "plot.png": ("plot", "runs/serial", "--out", "plot.png"),
            "policy.onnx": ("export", "runs/serial", "--format", "onnx", "--out", "policy.onnx"),
            "mine/README.md": ("env", "new", "mine", "--language", "python")}.items():
        program(*words)
        written[name] = (folder / name).stat().st_size > 100
    with subprocess.Popen(["troop", "dashboard", "runs", "--listen", "127.0.0.1:0"],
                          stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://\S+/", server.stdout.readline()).group(0)
            for page in ("", "chart.js", "api/v1/runs"):
                with urllib.request.urlopen(address + page, timeout=60) as answer:
                    data = answer.read()
                written["/" + page] = digest(data) if page != "api/v1/runs" else len(data) > 100
        finally:
            server.send_signal(signal.SIGTERM)
    return written


if __name__ == "__main__":
    work = pathlib.Path(sys.argv[1]).resolve()
    os.chdir(work)
    print(json.dumps({
        "version": [program("--version").strip(), troop.__version__, troop_replay.__version__],
        # The path of the program is part of its help.
        "help": digest(re.sub(r"Usage: \S+", "", program("--help")).encode()),
        "trained": trained(), "fleet": fleet(), "custom": custom(),
        "environments": environments(), "replay": replay(), "files": files(work)}))

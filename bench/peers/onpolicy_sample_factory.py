#!/usr/bin/env python3
"""Sample Factory's APPO on CartPole: a peer of the suite `onpolicy`. Network, rollouts,
minibatches, epochs and optimizer are those of onpolicy_cleanrl.py; the rest is as in its own
CartPole example.

    onpolicy_sample_factory.py --seed 1 --workers 2 [--steps N] [--vtrace]
"""
import argparse
import importlib.metadata
import json
import logging
import re
import sys
import tempfile

import gymnasium
import torch
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.enjoy import enjoy
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl

ENVIRONMENTS, ROLLOUT, MINIBATCH = 32, 128, 1024
EPISODES = 100
OPTIONS = {
    "algo": "APPO", "env": "CartPole-v1", "device": "cpu", "use_rnn": False, "recurrence": 1,
    "rollout": ROLLOUT, "batch_size": MINIBATCH,
    "num_batches_per_epoch": ENVIRONMENTS * ROLLOUT // MINIBATCH, "num_epochs": 4,
    "gamma": 0.99, "gae_lambda": 0.95, "learning_rate": 1e-3, "adam_eps": 1e-5,
    "max_grad_norm": 0.5, "exploration_loss_coeff": 0.01, "value_loss_coeff": 0.25,
    "ppo_clip_ratio": 0.2, "encoder_mlp_layers": [64, 64], "nonlinearity": "tanh",
    "actor_critic_share_weights": False, "with_vtrace": False, "normalize_input": False,
    "normalize_returns": True, "reward_scale": 0.1, "save_every_sec": 3600,
    "decorrelate_experience_max_seconds": 0, "env_frameskip": 1, "policy_workers_per_policy": 1,
}


class Speeds(logging.Handler):
    """The rates that the runner logs over the last ten seconds."""

    def __init__(self):
        super().__init__()
        self.values = []

    def emit(self, record):
        found = re.search(r"Fps is \(10 sec: ([\d.]+)", record.getMessage())
        if found:
            self.values.append(float(found.group(1)))
        found = re.search(r"Collected .*, FPS: ([\d.]+)", record.getMessage())
        if found:
            self.values.append(float(found.group(1)))


def make(name, _cfg=None, _env_config=None, render_mode=None):  # its workers import this function
    return gymnasium.make(name, render_mode=render_mode)


def arguments(options):
    text = []
    for key, value in options.items():
        values = value if isinstance(value, list) else [value]
        text += [f"--{key}", *(str(one) for one in values)]
    return text


def configuration(options, evaluation):
    words = arguments(options) + (["--no_render"] if evaluation else [])
    parser, _ = parse_sf_args(argv=words, evaluation=evaluation)
    return parse_full_cfg(parser, words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=495_616)
    parser.add_argument("--vtrace", action="store_true")
    given = parser.parse_args()
    register_env("CartPole-v1", make)
    torch.set_num_threads(1)
    speeds = Speeds()
    logging.getLogger("rl").addHandler(speeds)
    with tempfile.TemporaryDirectory(prefix="sample-factory-") as folder:
        options = OPTIONS | {
            "seed": given.seed, "train_dir": folder, "experiment": "bench",
            "train_for_env_steps": given.steps, "num_workers": given.workers,
            "num_envs_per_worker": ENVIRONMENTS // given.workers}
        if given.vtrace:   # it needs whole unrolls in a minibatch
            options |= {"with_vtrace": True, "recurrence": ROLLOUT, "num_epochs": 1}
        status = run_rl(configuration(options, False))
        if status != 0:
            sys.exit(f"run_rl: {status}")
        more = {"eval_deterministic": True, "max_num_episodes": EPISODES,
                "load_checkpoint_kind": "latest"}
        status, reward = enjoy(configuration(options | more, True))
    # The best ten seconds, without the start of its processes.
    print(json.dumps({"rate": max(speeds.values), "return": float(reward),
                      "version": importlib.metadata.version("sample-factory")}))


if __name__ == "__main__":
    main()

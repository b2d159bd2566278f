#!/usr/bin/env python3
"""Stable-Baselines3: the peer of the suites `learn`, `e2e` and `games`.

    sb3_peers.py learn --seed 1001 --algorithm ppo
                                        CartPole-v1 with RL Zoo's settings, 100 greedy episodes
    sb3_peers.py e2e [--quick]          MinAtar Breakout, one update of 32 per agent step
    sb3_peers.py reach --seed 3301 --target 9.2 --steps 1000000
                                        the same, until it reaches the target
"""
import argparse
import json
import time

import gymnasium
import minatar
import numpy
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

E2E_STEPS, E2E_QUICK_STEPS = 5_000, 2_500
E2E_WARMUP = 1_000


def emit(case, metric, unit, value, **more):
    print(json.dumps({"case": case, "metric": metric, "unit": unit, "values": [value],
                      "peer": "stable-baselines3", "peer_version": stable_baselines3.__version__,
                      **more}), flush=True)


def cart_pole():
    return Monitor(gymnasium.make("CartPole-v1"))


def stateless_cart_pole():
    """CartPole without its velocities."""
    box = gymnasium.spaces.Box(-numpy.inf, numpy.inf, (2,), numpy.float32)
    return gymnasium.wrappers.TransformObservation(cart_pole(), lambda x: x[[0, 2]], box)


ZOO_PPO = {
    "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
    "ent_coef": 0.0, "learning_rate": lambda left: 1e-3 * left,
    "clip_range": lambda left: 0.2 * left}
# RL Baselines3 Zoo, hyperparams/{a2c,dqn,ppo}.yml, CartPole-v1, and ppo_lstm.yml, CartPoleNoVel-v1:
# environments, steps, settings.
ZOO = {
    "a2c": (A2C, 8, 500_000, {}),
    "dqn": (DQN, 1, 50_000, {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000,
        "gamma": 0.99, "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128,
        "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]}}),
    "ppo": (PPO, 8, 100_000, ZOO_PPO),
    "ppo_lstm": (sb3_contrib.RecurrentPPO, 8, 100_000, ZOO_PPO),
}


def learn(seed, algorithm):
    torch.set_num_threads(1)   # measured: faster than 2 on networks of this size
    kind, environments, steps, settings = ZOO[algorithm]
    recurrent = kind is sb3_contrib.RecurrentPPO
    make = stateless_cart_pole if recurrent else cart_pole
    model = kind("MlpLstmPolicy" if recurrent else "MlpPolicy", DummyVecEnv([make] * environments),
                 seed=seed, device="cpu", **settings)
    begin = time.perf_counter()
    model.learn(steps)
    elapsed = time.perf_counter() - begin
    test = make()
    test.reset(seed=seed + 100_000)
    mean, _ = evaluate_policy(model, test, n_eval_episodes=100, deterministic=True)
    emit("CartPole-v1", "return", "return", float(mean))
    emit("CartPole-v1", "wall_s", "s", elapsed)


class Breakout(gymnasium.Env):
    """MinAtar's Breakout for Gymnasium, channels first as conv2d needs it."""
    observation_space = gymnasium.spaces.Box(0, 1, (4, 10, 10), numpy.float32)

    def __init__(self, minimal=False):
        self.game = minatar.Environment("breakout")
        self.actions = self.game.minimal_action_set() if minimal else list(range(6))
        self.action_space = gymnasium.spaces.Discrete(len(self.actions))

    def observe(self):
        return self.game.state().transpose(2, 0, 1).astype(numpy.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.game.seed(seed)
        self.game.reset()
        return self.observe(), {}

    def step(self, action):
        reward, terminated = self.game.act(self.actions[int(action)])
        return self.observe(), float(reward), bool(terminated), False, {}


class MinAtarNet(BaseFeaturesExtractor):
    """Young and Tian 2019: 16 filters of 3x3, then 128 units."""

    def __init__(self, observation_space):
        super().__init__(observation_space, features_dim=128)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(4, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(16 * 8 * 8, 128), torch.nn.ReLU())

    def forward(self, observation):
        return self.net(observation)


class Clock:
    """Callback of learn() at each collected step; records when the first update may begin."""

    def __init__(self, warmup):
        self.warmup, self.begin = warmup, None

    def __call__(self, local_variables, _):
        if self.begin is None and local_variables["self"].num_timesteps >= self.warmup:
            self.begin = time.perf_counter()
        return True


def end_to_end(steps, threads, environments):
    """Agent steps per second once updates run; (rate, parameters, updates per step)."""
    torch.set_num_threads(threads)
    many = DummyVecEnv([Breakout] * environments)
    model = DQN("CnnPolicy", many, seed=1, device="cpu", learning_rate=1e-4, buffer_size=100_000,
                learning_starts=E2E_WARMUP, batch_size=32, gamma=0.99, train_freq=1,
                gradient_steps=environments, target_update_interval=1000, max_grad_norm=10,
                policy_kwargs={"features_extractor_class": MinAtarNet, "net_arch": [],
                               "normalize_images": False})
    clock = Clock(E2E_WARMUP)
    model.learn(E2E_WARMUP + steps, callback=clock)
    elapsed = time.perf_counter() - clock.begin
    taken = model.num_timesteps - E2E_WARMUP
    parameters = sum(p.numel() for p in model.q_net.parameters())
    return taken / elapsed, parameters, model._n_updates / taken  # pylint: disable=protected-access


class Judge:
    """Callback of learn(): every EVERY steps the mean return of EPISODES episodes with ε = 0.1,
    while the clock is stopped; learning ends once it reaches `target`."""
    EVERY, EPISODES, EPSILON = 20_000, 100, 0.1

    def __init__(self, target, seed):
        self.target, self.random = target, numpy.random.default_rng(seed)
        self.game = Breakout(minimal=True)
        self.game.reset(seed=seed)
        self.wall, self.begin, self.next, self.curve = 0.0, time.perf_counter(), self.EVERY, []

    def play(self, model):
        observation, _ = self.game.reset()
        total = 0.0
        while True:
            action = self.random.integers(self.game.action_space.n)
            if self.random.random() >= self.EPSILON:
                action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, _, _ = self.game.step(action)
            total += reward
            if terminated:
                return total

    def __call__(self, local_variables, _):
        model = local_variables["self"]
        if model.num_timesteps < self.next:
            return True
        self.next += self.EVERY
        self.wall += time.perf_counter() - self.begin
        mean = sum(self.play(model) for _ in range(self.EPISODES)) / self.EPISODES
        self.curve.append((model.num_timesteps, round(self.wall, 1), mean))
        self.begin = time.perf_counter()
        return mean < self.target


def reach(seed, target, steps, threads, environments):
    """The optimizer, network, replay and exploration of Young and Tian 2019, with the three-step
    returns of Troop's config; curve: [steps, seconds, mean return]."""
    torch.set_num_threads(threads)
    many = DummyVecEnv([lambda: Breakout(minimal=True)] * environments)
    model = DQN("CnnPolicy", many, seed=seed, device="cpu", learning_rate=2.5e-4,
                buffer_size=100_000, learning_starts=5_000, batch_size=32, gamma=0.99, train_freq=1,
                gradient_steps=environments, target_update_interval=1000, max_grad_norm=10,
                n_steps=3, exploration_fraction=100_000 / steps, exploration_final_eps=0.1,
                policy_kwargs={"features_extractor_class": MinAtarNet, "net_arch": [],
                               "normalize_images": False,
                               "optimizer_class": torch.optim.RMSprop,
                               "optimizer_kwargs": {"alpha": 0.95, "eps": 0.01, "centered": True}})
    judge = Judge(target, seed)
    model.learn(steps, callback=judge)
    print(json.dumps({"steps": model.num_timesteps,
                      "updates": model._n_updates,   # pylint: disable=protected-access
                      "wall_s": judge.wall, "return": judge.curve[-1][2], "curve": judge.curve,
                      "version": stable_baselines3.__version__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=("learn", "e2e", "reach"))
    parser.add_argument("--seed", type=int, default=1001)
    parser.add_argument("--algorithm", choices=tuple(ZOO), default="dqn")
    parser.add_argument("--quick", action="store_true")
    # Measured on 2 cores: 1 thread and 8 environments 577 steps/s, 1 and 1 528, 2 and 1 395.
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--target", type=float, default=9.2)
    parser.add_argument("--steps", type=int, default=1_000_000)
    options = parser.parse_args()
    if options.suite == "learn":
        learn(options.seed, options.algorithm)
        return
    if options.suite == "reach":
        reach(options.seed, options.target, options.steps, options.threads, options.envs)
        return
    steps = E2E_QUICK_STEPS if options.quick else E2E_STEPS
    rate, parameters, updates = end_to_end(steps, options.threads, options.envs)
    emit("MinAtar Breakout", "agent_steps_per_s", "1/s", rate,
         check=[parameters, round(updates, 1) * parameters])


if __name__ == "__main__":
    main()

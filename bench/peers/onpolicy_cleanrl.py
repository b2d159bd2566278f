#!/usr/bin/env python3
"""CleanRL's PPO: the peer of the suite `onpolicy`. CleanRL is a collection of scripts and not a
package; this is the loop of its ppo.py and ppo_atari_envpool.py (clipped ratios, --no-clip-vloss,
normalized advantages per minibatch, annealed learning rate), with EnvPool's environments, or
MinAtar's own in one process.

    onpolicy_cleanrl.py cartpole --seed 1 --threads 1 [--steps N] [--compile]
"""
import argparse
import json
import time

import numpy
import torch
from torch import nn

CASES = {
    # environments, steps per rollout, minibatches, epochs, learning rate, entropy cost, all steps
    "cartpole": (32, 128, 4, 4, 1e-3, 0.01, 500_000),
    "breakout": (64, 32, 4, 4, 1e-3, 0.01, 500_000),
    "pong": (8, 128, 4, 4, 2.5e-4, 0.01, 30_720),
}
GAMMA, LAMBDA, CLIP, VALUE_COST, NORM = 0.99, 0.95, 0.2, 0.5, 0.5
EPISODES = 100


class MinAtarGames:
    """MinAtar's Breakout, `count` games stepped one after the other; a finished game starts again
    in the same step, as EnvPool's does one step later."""

    def __init__(self, count, seed):
        import minatar  # pylint: disable=import-outside-toplevel
        self.games = [minatar.Environment("breakout") for _ in range(count)]
        for index, game in enumerate(self.games):
            game.seed(seed + index)
            game.reset()
        self.actions = self.games[0].minimal_action_set()
        self.shape, self.count = (4, 10, 10), len(self.actions)

    def observe(self):
        states = numpy.stack([game.state() for game in self.games])
        return states.transpose(0, 3, 1, 2).astype(numpy.float32)

    def reset(self):
        return self.observe()

    def step(self, actions):
        rewards = numpy.zeros(len(self.games), numpy.float32)
        ends = numpy.zeros(len(self.games), bool)
        for index, (game, action) in enumerate(zip(self.games, actions)):
            rewards[index], ends[index] = game.act(self.actions[action])
            if ends[index]:
                game.reset()
        return self.observe(), rewards, ends


class EnvPoolGames:
    """Environments of EnvPool, stepped together."""

    def __init__(self, name, count, seed, threads):
        import envpool  # pylint: disable=import-outside-toplevel
        options = {"episodic_life": False, "reward_clip": False} if name == "Pong-v5" else {}
        self.games = envpool.make(name, env_type="gymnasium", num_envs=count, seed=seed,
                                  num_threads=threads, **options)
        self.shape = self.games.observation_space.shape
        self.count = self.games.action_space.n

    def reset(self):
        return self.games.reset()[0]

    def step(self, actions):
        observations, rewards, terminated, truncated, _ = self.games.step(actions)
        return observations, rewards, terminated | truncated


def make_games(case, count, seed, threads):
    if case == "breakout":
        return MinAtarGames(count, seed)
    return EnvPoolGames({"cartpole": "CartPole-v1", "pong": "Pong-v5"}[case], count, seed, threads)


def initialized(layer, scale=2 ** 0.5):
    nn.init.orthogonal_(layer.weight, scale)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """Two MLPs for CartPole; one trunk of convolutions with two heads for images."""

    def __init__(self, case, shape, actions):
        super().__init__()
        self.scale = 1 / 255 if case == "pong" else 1.0
        if case == "cartpole":
            self.policy, self.value = (
                nn.Sequential(initialized(nn.Linear(shape[0], 64)), nn.Tanh(),
                              initialized(nn.Linear(64, 64)), nn.Tanh(),
                              initialized(nn.Linear(64, out), scale))
                for out, scale in ((actions, 0.01), (1, 1.0)))
            self.trunk = nn.Identity()
            return
        if case == "breakout":
            parts = [initialized(nn.Conv2d(4, 16, 3)), nn.ReLU(), nn.Flatten(),
                     initialized(nn.Linear(1024, 128)), nn.ReLU()]
            width = 128
        else:
            parts = [initialized(nn.Conv2d(4, 32, 8, 4)), nn.ReLU(),
                     initialized(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(),
                     initialized(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(),
                     initialized(nn.Linear(3136, 512)), nn.ReLU()]
            width = 512
        self.trunk = nn.Sequential(*parts)
        self.policy = initialized(nn.Linear(width, actions), 0.01)
        self.value = initialized(nn.Linear(width, 1), 1.0)

    def forward(self, observations):
        hidden = self.trunk(observations.float() * self.scale)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def losses(agent, batch):
    observations, actions, old_log, advantages, returns = batch
    logits, values = agent(observations)
    logs = torch.log_softmax(logits, -1)
    log = logs.gather(1, actions[:, None]).squeeze(1)
    ratio = (log - old_log).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    policy = torch.max(-advantages * ratio,
                       -advantages * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
    value = 0.5 * ((values - returns) ** 2).mean()
    entropy = -(logs.exp() * logs).sum(-1).mean()
    return policy, value, entropy


def evaluate(agent, case, seed):
    """Mean return of EPISODES greedy episodes."""
    games = make_games(case, EPISODES, seed, 2)
    observations, totals = games.reset(), numpy.zeros(EPISODES)
    running = numpy.ones(EPISODES, bool)
    while running.any():
        with torch.no_grad():
            logits, _ = agent(torch.from_numpy(observations))
        observations, rewards, ends = games.step(logits.argmax(-1).numpy().astype(numpy.int32))
        totals += rewards * running
        running &= ~ends
    return float(totals.mean())


def train(case, seed, threads, steps, compiled):
    """Steps per second after the first rollout, and the trained agent."""
    # pylint: disable=too-many-locals,too-many-statements
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    numpy_random = numpy.random.default_rng(seed)
    count, length, minibatches, epochs, rate, entropy_cost, usual = CASES[case]
    games = make_games(case, count, seed, threads)
    agent = Agent(case, games.shape, games.count)
    optimizer = torch.optim.Adam(agent.parameters(), lr=rate, eps=1e-5, foreach=True)
    forward = torch.compile(agent) if compiled else agent
    loss_of = torch.compile(losses) if compiled else losses
    rollouts = max(2, (steps or usual) // (count * length))
    observations = torch.from_numpy(games.reset())
    stored = torch.zeros((length, count) + games.shape, dtype=observations.dtype)
    actions = torch.zeros((length, count), dtype=torch.int64)
    logs, rewards, values = (torch.zeros((length, count)) for _ in range(3))
    ends = torch.zeros((length + 1, count))
    begin = None
    for rollout in range(rollouts):
        optimizer.param_groups[0]["lr"] = rate * (1 - rollout / rollouts)
        ends[0] = ends[length]
        for step in range(length):
            stored[step] = observations
            with torch.no_grad():
                logits, values[step] = forward(observations)
                distribution = torch.distributions.Categorical(logits=logits)
                actions[step] = distribution.sample()
                logs[step] = distribution.log_prob(actions[step])
            after, reward, end = games.step(actions[step].numpy().astype(numpy.int32))
            observations = torch.from_numpy(after)
            rewards[step], ends[step + 1] = torch.from_numpy(reward), torch.from_numpy(end).float()
        with torch.no_grad():
            _, following = forward(observations)
        advantages, last = torch.zeros((length, count)), torch.zeros(count)
        for step in reversed(range(length)):
            going = 1 - ends[step + 1]
            delta = rewards[step] + GAMMA * following * going - values[step]
            last = delta + GAMMA * LAMBDA * going * last
            advantages[step], following = last, values[step]
        flat = [part.flatten(0, 1) for part in
                (stored, actions, logs, advantages, advantages + values)]
        for _ in range(epochs):
            order = numpy_random.permutation(count * length)
            for part in numpy.split(order, minibatches):
                policy, value, entropy = loss_of(forward, [one[part] for one in flat])
                optimizer.zero_grad()
                (policy + VALUE_COST * value - entropy_cost * entropy).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), NORM, foreach=True)
                optimizer.step()
        if begin is None:   # compilation and first allocations are not timed
            begin = time.perf_counter()
    return (rollouts - 1) * count * length / (time.perf_counter() - begin), agent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    rate, agent = train(options.case, options.seed, options.threads, options.steps,
                        options.compile)
    parameters = sum(one.numel() for one in agent.parameters())
    print(json.dumps({"rate": rate, "parameters": parameters,
                      "return": evaluate(agent, options.case, options.seed + 100_000),
                      "version": torch.__version__}))


if __name__ == "__main__":
    main()

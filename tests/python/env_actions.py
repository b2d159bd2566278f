"""Traces of env_trace (C++) and the actions with which they were made."""
import os
import subprocess

import numpy as np

OPTIONS = {
    "CartPole-v1": [{}, {"sticky_actions": 0.4, "reward_scale": -0.5}, {"max_episode_steps": 9}],
    "Pendulum-v1": [{}, {"action_repeat": 3}],
    "Catch-v0": [{"sticky_actions": 0.5}],
    "MinAtar/Breakout-v0": [{"sticky_actions": 0.0}],
    "MinAtar/Asterix-v1": [{"difficulty_ramping": False, "max_episode_steps": 50}],
}


def cases(ids):
    """(id, options) with the defaults, and with options where the table has some."""
    return [(name, options) for name in ids for options in [{}, *OPTIONS.get(name, [])]]


def action_of(space, step):
    """The action of a step, by the rule of env_trace."""
    value = (step * 7 + step * step // 5) % 11
    if hasattr(space, "n"):
        return value % int(space.n)
    share = np.float32(value) / np.float32(16)
    return space.low + (space.high - space.low) * share


class Trace:
    """What Troop's own vector of one environment gives: `first`, and the rows of the steps."""

    def __init__(self, name, seed, steps, **options):
        program = os.environ["TROOP_ENV_TRACE"]
        given = [f"{key}={value}" for key, value in options.items()]
        run = subprocess.run([program, name, str(seed), str(steps), *given], check=True,
                             capture_output=True, text=True, timeout=60)
        first, *rows = run.stdout.split("\n")[:-1]
        self.first = bytes.fromhex(first)
        self.rows = [row.split() for row in rows]

    def __iter__(self):
        """(reward, terminated, truncated, observation, final observation or None) of each step."""
        for reward, terminated, truncated, observation, final in self.rows:
            yield (np.frombuffer(bytes.fromhex(reward), np.float32)[0], terminated == "1",
                   truncated == "1", bytes.fromhex(observation),
                   None if final == "-" else bytes.fromhex(final))

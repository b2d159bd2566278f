#!/usr/bin/env python3
"""troop.make_env and troop.make_vector_env, and Gymnasium's own: both sides of the part `python`.

    python_env.py [--quick]     with the folder of the package `troop` in PYTHONPATH

Both sides run in one process, in turn, through the interface of Gymnasium, with actions that were
generated before the clock runs. `check` is one episode from the same state, action t mod 2 at step
t: sums of observations and rewards, in float32 and float64. Vectors: a step of all environments
counts as one step of each; resets that Gymnasium makes in place of a step are not counted.
"""
import argparse
import json
import sys
import time

import gymnasium
import numpy as np

import troop

REPEATS, BATCHES = 5, 64
CHECKED_STEPS = 10      # alternating pushes keep the pole up for longer
TOLERANCE = 1e-4        # of an episode in float32


def emit(case, values, check, peer=None):
    line = {"case": case, "metric": "steps_per_s", "unit": "steps/s", "values": values,
            "check": check, "check_tolerance": TOLERANCE}
    if peer:
        line |= {"peer": peer, "peer_version": gymnasium.__version__}
    print(json.dumps(line), flush=True)


def single_speed(env, seconds):
    """Steps per second, with a reset after each episode."""
    env.reset(seed=1)
    actions = [env.action_space.sample() for _ in range(1000)]
    begin, steps, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        steps += len(actions)
        elapsed = time.perf_counter() - begin
    return steps / elapsed


def vector_speed(envs, seconds):
    """Environment steps per second, without those that only reset (NEXT_STEP)."""
    envs.reset(seed=1)
    actions = np.random.default_rng(1).integers(2, size=(BATCHES, envs.num_envs))
    begin, steps, elapsed = time.perf_counter(), 0, 0.0
    while elapsed < seconds:
        for action in actions:
            _, reward, _, _, _ = envs.step(action)
            steps += np.count_nonzero(reward)   # each step of CartPole has the reward 1
        elapsed = time.perf_counter() - begin
    return steps / elapsed


def checks(env, observation):
    """The sums of an episode from this observation; a vector plays it in all environments."""
    total, rewards = float(np.sum(observation)), 0.0
    for t in range(CHECKED_STEPS):
        action = t % 2 if observation.ndim == 1 else np.full(len(observation), t % 2)
        observation, reward, *_ = env.step(action)
        total += float(np.sum(observation, dtype=np.float64))
        rewards += float(np.sum(reward))
    return [total, rewards]


def both_checks(ours, theirs):
    """(Troop's, Gymnasium's from the same states)."""
    start = np.array(ours.reset(seed=7)[0])
    theirs.reset()
    theirs.unwrapped.state = np.ascontiguousarray(start.T, np.float64)   # [4] or [4, N]
    return checks(ours, start), checks(theirs, start)


def compare(case, ours, theirs, speed, seconds):
    """Times both sides in turn, after they agree."""
    check, their_check = both_checks(ours, theirs)
    if not np.allclose(check, their_check, rtol=TOLERANCE):
        sys.exit(f"{case}: {check} is not {their_check}")
    values, their_values = [], []
    for env in (ours, theirs):
        speed(env, seconds / 4)     # warm-up
    for _ in range(REPEATS):
        values.append(speed(ours, seconds))
        their_values.append(speed(theirs, seconds))
    emit(case, values, check)
    emit(case, their_values, their_check, "gymnasium")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    seconds = 0.1 if parser.parse_args().quick else 1
    compare("python-cartpole-1", troop.make_env("CartPole-v1"),
            gymnasium.make("CartPole-v1", disable_env_checker=True), single_speed, seconds)
    for size in (64, 4096):
        compare(f"python-cartpole-{size}", troop.make_vector_env("CartPole-v1", size, copy=False),
                gymnasium.make_vec("CartPole-v1", num_envs=size,
                                   vectorization_mode="vector_entry_point"),
                vector_speed, seconds)


if __name__ == "__main__":
    main()

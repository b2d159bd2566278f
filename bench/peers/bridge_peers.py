#!/usr/bin/env python3
"""Gymnasium, ALE's vector and EnvPool: the peers of bench/env_bridge_bench.cc.

    bridge_peers.py --part gymnasium|atari [--quick]

8 environments, one thread, actions generated before the clock runs. `check` is one game of 200
steps, action t^2 mod n at step t, without no-op starts: sums of rewards and pixels. `play` is
random play: length of CartPole's episodes, brightness of Pong's frames. Frames are single, as on
the other side, where stacks are made later.
"""
import argparse
import importlib.metadata
import json
import time
import warnings

import gymnasium
import numpy as np

SIZE, SKIP = 8, 4
ACTION_BATCHES, REPEATS = 64, 5
CHECKED_STEPS, PLAYED_STEPS = 200, 400


def draw(count, batches):
    return np.random.default_rng(1).integers(count, size=(batches, SIZE), dtype=np.int32)


def steps_per_second(step, actions, seconds):
    begin = time.perf_counter()
    steps = elapsed = 0
    while elapsed < seconds:
        for action in actions:
            step(action)
        steps += SIZE * len(actions)
        elapsed = time.perf_counter() - begin
    return steps / elapsed


def emit(case, peer, version, step, count, quick, *, frames=1, share=1, **checks):
    """share: share of calls that step an environment instead of only resetting it."""
    seconds = 0.5 if quick else 2
    actions = draw(count, ACTION_BATCHES)
    steps_per_second(step, actions, seconds / 4)  # warm-up
    name = ("frames_per_s", "frames/s") if frames > 1 else ("steps_per_s", "steps/s")
    line = {"case": case, "metric": name[0], "unit": name[1],
            "values": [share * frames * steps_per_second(step, actions, seconds)
                       for _ in range(REPEATS)],
            "peer": peer, "peer_version": version, **checks}
    print(json.dumps(line), flush=True)


def cartpole(quick):
    def make():
        envs = gymnasium.make_vec("CartPole-v1", num_envs=SIZE, vectorization_mode="sync")
        envs.reset(seed=1)
        return envs

    envs = make()
    ends = steps = 0
    for action in draw(2, 10 * PLAYED_STEPS):
        _, reward, terminated, truncated, _ = envs.step(action)
        ends += int((terminated | truncated).sum())
        steps += int((reward != 0).sum())   # reset-only steps have no reward
    emit("gymnasium-cartpole-8", "gymnasium", gymnasium.__version__, make().step, 2, quick,
         share=steps / (steps + ends), play=[steps / ends])


def brightness(step, count):
    total = 0.0
    for action in draw(count, PLAYED_STEPS):
        total += float(step(action)[0].mean())
    return [total / PLAYED_STEPS]


def preprocessed(noop_max):
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0)
    return gymnasium.wrappers.AtariPreprocessing(env, noop_max=noop_max, frame_skip=SKIP)


def check_pong():
    env = preprocessed(0)
    env.reset(seed=1)
    reward = pixels = 0.0
    for t in range(CHECKED_STEPS):
        observation, gain, *_ = env.step(t * t % 6)
        reward += float(gain)
        pixels += float(observation.sum())
    return [reward, pixels]


def pong(quick):
    import ale_py
    from ale_py.vector_env import AtariVectorEnv
    gymnasium.register_envs(ale_py)

    def gym():
        envs = gymnasium.vector.SyncVectorEnv([lambda: preprocessed(30)] * SIZE)
        envs.reset(seed=1)
        return envs.step

    def ale():
        envs = AtariVectorEnv("pong", num_envs=SIZE, num_threads=1, noop_max=30, frameskip=SKIP,
                              stack_num=1, use_fire_reset=False, repeat_action_probability=0.0)
        envs.reset(seed=1)
        return envs.step

    emit("ale-pong-8", "gymnasium", gymnasium.__version__, gym(), 6, quick, frames=SKIP,
         play=brightness(gym(), 6), check=check_pong())
    emit("ale-pong-8", "ale-py", importlib.metadata.version("ale-py"), ale(), 6, quick,
         frames=SKIP, play=brightness(ale(), 6))
    try:
        import envpool
    except ImportError:
        return

    def pool():
        envs = envpool.make_gymnasium("Pong-v5", num_envs=SIZE, num_threads=1, seed=1, stack_num=1,
                                      frame_skip=SKIP, noop_max=30, use_fire_reset=False,
                                      repeat_action_probability=0.0)
        envs.reset()
        return envs.step

    emit("ale-pong-8", "envpool", envpool.__version__, pool(), 6, quick, frames=SKIP,
         play=brightness(pool(), 6))


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["gymnasium", "atari"], required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    (pong if options.part == "atari" else cartpole)(options.quick)


if __name__ == "__main__":
    main()

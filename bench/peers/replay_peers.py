#!/usr/bin/env python3
"""cpprb and TorchRL, in process, in their recommended use: peers of the suite `replay`.

    replay_peers.py [--part tree|process] [--quick]

One thread. Frames and items are those of bench/replay_cases.h: a frame's reward follows from its
number and is evenly spread over [1, 7); an item's priority is its first reward, and updates
write the same values. Samples therefore have the same distribution on both sides, and `play` has
its means.
"""
import argparse
import importlib.metadata
import json
import pathlib
import time
import warnings

import cpprb
import numpy as np
import torch
from tensordict import TensorDict
from torchrl._torchrl import SumSegmentTreeFp32
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

BATCH = 512
ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-6
COLD_BYTES = 96 << 20
SIDE, STACK = 84, 4
EPISODE = 500                # frames; the last begins no transition
ROUND = 60 * (EPISODE - 1)   # transitions of all games: a full ring has each equally often
FRAMES_PER_GAME = 3000
GAMES = ("pong", "breakout", "space_invaders", "seaquest", "qbert", "ms_pacman", "beam_rider",
         "enduro", "asteroids", "montezuma_revenge")
FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "build/peers/frames"
CPPRB = ("cpprb", importlib.metadata.version("cpprb"))
TORCHRL = ("torchrl", importlib.metadata.version("torchrl"))


def priority_of(index):
    mixed = (np.asarray(index, np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    return (1 + 6 * (mixed.astype(np.float64) / 2.0**32)).astype(np.float32)


def vectors_of(index):
    return priority_of(index)[:, None] * np.ones(4, np.float32)


def emit(case, metric, unit, values, peer, **checks):
    print(json.dumps({"case": case, "metric": metric, "unit": unit, "values": values,
                      "peer": peer[0], "peer_version": peer[1], **checks}), flush=True)


class Cold:
    """Reads 96 MiB: evicts caches like a learner's other work between two batches."""

    def __init__(self):
        self.lines = np.zeros(COLD_BYTES // 8, np.uint64)[::8]

    def walk(self):
        self.lines += np.uint64(1)


def time_calls(call, arguments, seconds, cold=None):
    """Five medians of a call's nanoseconds per item, one argument each, in turn."""
    medians, turn = [], 0
    for _ in range(5):
        taken, begin = [], time.perf_counter()
        while len(taken) < 5 or time.perf_counter() - begin < seconds / 5:
            if cold is not None:
                cold.walk()
            argument = arguments[turn % len(arguments)]
            turn += 1
            start = time.perf_counter_ns()
            call(argument)
            taken.append((time.perf_counter_ns() - start) / BATCH)
        medians.append(float(np.median(taken)))
    return medians


def time_both(name, bits, call, arguments, peer, seconds, **checks):
    time_calls(call, arguments, seconds / 5)
    for caches, cold in (("warm", None), ("cold", Cold())):
        emit(f"{name}-2^{bits}-{caches}", "ns_per_item", "ns",
             time_calls(call, arguments, seconds, cold), peer, **checks)


def draw_indices(size, batches=64):
    rng = np.random.default_rng(1)
    return [rng.integers(size, size=BATCH) for _ in range(batches)]


def tree_with_torchrl(bits, seconds):
    """cpprb's sum tree alone, and its sampler, which also maintains the minimum."""
    size = 1 << bits
    tree = SumSegmentTreeFp32(size)
    every = np.arange(size)
    tree[every] = priority_of(every)**np.float32(ALPHA)
    total = tree.query(0, size)
    fixed = ((np.arange(BATCH) + 0.5) / BATCH * total).astype(np.float32)
    found = float(tree.scan_lower_bound(fixed).mean())
    rng = np.random.default_rng(1)
    masses = [(rng.random(BATCH) * total * 0.9999999).astype(np.float32) for _ in range(64)]
    time_both("tree-find", bits, tree.scan_lower_bound, masses, TORCHRL, seconds, check=[found],
              check_tolerance=0.01)
    new = np.linspace(1, 7, BATCH, dtype=np.float32)
    time_both("tree-update", bits, lambda index: tree.update(index, new), draw_indices(size),
              TORCHRL, seconds)
    sampler = PrioritizedSampler(size, alpha=ALPHA, beta=BETA, eps=EPSILON)
    storage = LazyTensorStorage(size)
    storage.set(slice(0, size), torch.zeros(size, dtype=torch.uint8))
    sampler.extend(torch.arange(size))
    sampler.update_priority(torch.arange(size), torch.from_numpy(priority_of(every)))
    drawn = np.concatenate([np.asarray(sampler.sample(storage, BATCH)[0]) for _ in range(200)])
    time_both("tree-draw-weighted", bits, lambda _: sampler.sample(storage, BATCH), [None], TORCHRL,
              seconds, play=[float(priority_of(drawn).mean())], play_tolerance=0.01)
    indices = [torch.from_numpy(index) for index in draw_indices(size)]
    values = torch.from_numpy(new)
    time_both("tree-update-powers", bits, lambda index: sampler.update_priority(index, values),
              indices, TORCHRL, seconds)


def tree_with_cpprb(bits, seconds):
    """TorchRL's trees (sum and minimum) are reachable only through its buffer: an item is one byte
    here."""
    size = 1 << bits
    buffer = cpprb.PrioritizedReplayBuffer(size, {"byte": {"dtype": np.uint8}}, alpha=ALPHA,
                                           eps=EPSILON)
    for first in range(0, size, 1 << 16):
        index = np.arange(first, min(first + (1 << 16), size))
        buffer.add(byte=np.zeros(len(index), np.uint8), priorities=priority_of(index))
    drawn = np.concatenate([buffer.sample(BATCH, BETA)["indexes"].copy()   # views of one vector
                            for _ in range(200)])
    # Its sums are f32: with 16 M items its samples deviate by 0.85 % (4.441 and 4.479).
    time_both("tree-draw-weighted", bits, lambda _: buffer.sample(BATCH, BETA), [None], CPPRB,
              seconds, play=[float(priority_of(drawn).mean())],
              play_tolerance=0.01 if bits < 24 else 0.02)
    new = np.linspace(1, 7, BATCH, dtype=np.float32)
    time_both("tree-update-powers", bits, lambda index: buffer.update_priorities(index, new),
              draw_indices(size), CPPRB, seconds)


def batches_per_second(step, seconds):
    """Five values of steps per second."""
    values = []
    step()
    for _ in range(5):
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds / 5:
            step()
            steps += 1
        values.append(steps / (time.perf_counter() - begin))
    return values


def vectors_with_cpprb(case, size, seconds):
    buffer = cpprb.PrioritizedReplayBuffer(
        size, {"obs": {"shape": 4}, "act": {"dtype": np.int32}, "rew": {}, "next_obs": {"shape": 4},
               "done": {}}, alpha=ALPHA, eps=EPSILON)
    for first in range(0, size, 1 << 14):
        index = np.arange(first, min(first + (1 << 14), size))
        reward = priority_of(index)
        buffer.add(obs=vectors_of(index), act=np.zeros(len(index), np.int32), rew=reward,
                   next_obs=vectors_of(index + 1), done=np.zeros(len(index)), priorities=reward)

    def step():
        batch = buffer.sample(BATCH, BETA)
        buffer.update_priorities(batch["indexes"], batch["rew"])
        return batch

    drawn = [step() for _ in range(200)]
    play = [float(np.mean([batch[key] for batch in drawn])) for key in ("rew", "obs", "next_obs")]
    emit(case, "batches_per_s", "1/s", batches_per_second(step, seconds), CPPRB, play=play,
         play_tolerance=0.01)


def vectors_with_torchrl(case, size, seconds):
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=ALPHA, beta=BETA, eps=EPSILON, priority_key="td_error", batch_size=BATCH,
        storage=LazyTensorStorage(size))
    every = np.arange(size)
    reward = torch.from_numpy(priority_of(every))
    vector, following = (torch.from_numpy(vectors_of(every + k)) for k in (0, 1))
    for first in range(0, size, 1 << 16):
        part = slice(first, min(first + (1 << 16), size))
        buffer.extend(TensorDict(
            {"obs": vector[part], "action": torch.zeros_like(reward[part], dtype=torch.int32),
             "reward": reward[part], "next_obs": following[part],
             "done": torch.zeros_like(reward[part], dtype=torch.bool), "td_error": reward[part]},
            batch_size=[len(reward[part])]))

    def step():
        batch = buffer.sample()
        batch["td_error"] = batch["reward"]
        buffer.update_tensordict_priority(batch)
        return batch

    drawn = [step() for _ in range(200)]
    play = [float(np.mean([batch[key].mean() for batch in drawn]))
            for key in ("reward", "obs", "next_obs")]
    emit(case, "batches_per_s", "1/s", batches_per_second(step, seconds), TORCHRL, play=play,
         play_tolerance=0.01)


def load_frames():
    """[games * FRAMES_PER_GAME, SIDE, SIDE] u8"""
    parts = [np.fromfile(FOLDER / f"{game}.u8", np.uint8) for game in GAMES]
    return np.concatenate(parts).reshape(-1, SIDE, SIDE)


def stacks_of(frames, first):
    """[EPISODE, SIDE, SIDE, STACK]: output of a frame-stacking wrapper for one episode."""
    padded = np.concatenate([np.zeros((STACK - 1, SIDE, SIDE), np.uint8),
                             frames[first:first + EPISODE]])
    return np.ascontiguousarray(np.stack(
        [padded[k:k + EPISODE] for k in range(STACK)], axis=-1))


def fill_with_atari(buffer, size, frames):
    added = episode = 0
    while added < size:
        stacks = stacks_of(frames, episode * EPISODE % len(frames))
        count = EPISODE - 1
        reward = priority_of(episode * EPISODE + np.arange(count))
        buffer.add(obs=stacks[:-1], act=np.zeros(count, np.int32), rew=reward,
                   next_obs=stacks[1:], done=np.zeros(count), priorities=reward)
        buffer.on_episode_end()
        added += count
        episode += 1


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def atari_with_cpprb(cases, size, seconds, frames, **options):
    before = resident_bytes()
    buffer = cpprb.PrioritizedReplayBuffer(
        size, {"obs": {"shape": (SIDE, SIDE, STACK), "dtype": np.uint8},
               "act": {"dtype": np.int32}, "rew": {}, "done": {}, **(
                   {"next_obs": {"shape": (SIDE, SIDE, STACK), "dtype": np.uint8}}
                   if "next_of" not in options else {})},
        alpha=ALPHA, eps=EPSILON, **options)
    fill_with_atari(buffer, size, frames)
    per_item = (resident_bytes() - before) / size

    def step():
        batch = buffer.sample(BATCH, BETA)
        buffer.update_priorities(batch["indexes"], batch["rew"].ravel())
        return batch

    play = np.mean([[float(batch[key].mean()) for key in ("rew", "obs", "next_obs")]
                    for batch in (step() for _ in range(60))], axis=0)
    values = batches_per_second(step, seconds)
    for case in cases:
        emit(case, "batches_per_s", "1/s", values, CPPRB, play=[float(x) for x in play],
             play_tolerance=0.02)
    return per_item


def run_tree(quick):
    seconds = 0.1 if quick else 0.5
    for bits in (20, 24):
        if not quick or bits == 20:
            tree_with_torchrl(bits, seconds)
            tree_with_cpprb(bits, seconds)


def run_process(quick):
    seconds = 0.3 if quick else 1.5
    size = 100_000 if quick else 1_000_000
    vectors_with_cpprb("process-4f", size, seconds)
    vectors_with_torchrl("process-4f", size, seconds)
    frames = load_frames()
    size = (1 if quick else 4) * ROUND
    # The documented option for duplicated frames, and the one that stores each frame once. Neither
    # goes with n-step returns: one step here, three with ours. It starts no threads. Each
    # frame once: a million transitions, as a replay of Atari has; duplicated they would take 28 GB.
    ours = [f"{codec}{threads}" for codec in ("raw", "lz4") for threads in ("", "-2-threads")]
    atari_with_cpprb([f"process-atari-n1-{case}" for case in ours], size, seconds, frames,
                     next_of="obs")
    per_item = atari_with_cpprb([f"process-atari-n3-{case}" for case in ours],
                                (1 if quick else 33) * ROUND, seconds, frames, next_of="obs",
                                stack_compress="obs")
    for case in ("memory-atari-lz4", "memory-atari-lz4-without-dictionary", "memory-atari-zstd"):
        emit(case, "bytes_per_item", "bytes", [per_item] * 3, CPPRB, better="lower")


def main():
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("tree", "process"))
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.part in (None, "tree"):
        run_tree(options.quick)
    if options.part in (None, "process"):
        run_process(options.quick)


if __name__ == "__main__":
    main()

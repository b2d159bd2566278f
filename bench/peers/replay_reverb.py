#!/usr/bin/env python3
"""dm-reverb as a service: a peer of the suite `replay`, in its own Python environment.

    replay_reverb.py [--case service-4f|service-atari] [--quick]

A server in one process, a client in another, on the same two cores, over TCP: its tables have no
other transport between processes. Three steps per item; a table signature, so that its
TrajectoryDataset, the fastest interface, can be used; batches of 512 are decoded into arrays,
and each is followed by 512 new priorities. Items are those of bench/replay_cases.h.
"""
import argparse
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# pylint: disable=wrong-import-position
import importlib.metadata  # noqa: E402
import pathlib  # noqa: E402

import numpy as np  # noqa: E402
import reverb  # noqa: E402
import tensorflow as tf  # noqa: E402

BATCH = 512
STEPS = 3
SIDE, STACK = 84, 4
EPISODE = 500
FRAMES_MAX = 150_000
GAMES = ("pong", "breakout", "space_invaders", "seaquest", "qbert", "ms_pacman", "beam_rider",
         "enduro", "asteroids", "montezuma_revenge")
FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "build/peers/frames"
TABLE = "experience"
ROUND = 60 * (EPISODE - STACK - STEPS + 1)   # items of all games
FLUSH_EVERY = 50             # items in flight, as in one of our messages
VERSION = importlib.metadata.version("dm-reverb")


def priority_of(index):
    mixed = (np.asarray(index, np.uint64) * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    return (1 + 6 * (mixed.astype(np.float64) / 2.0**32)).astype(np.float32)


def stack_of(case):
    return STACK if case == "service-atari" else 1


def signature(case):
    stack = stack_of(case)
    frame = tf.TensorSpec([stack, SIDE, SIDE], tf.uint8) if stack > 1 else \
        tf.TensorSpec([1, 4], tf.float32)
    return {"obs": frame, "next_obs": frame, "action": tf.TensorSpec([1], tf.int32),
            "reward": tf.TensorSpec([STEPS], tf.float32)}


def serve(case, size):
    """Serves until standard input ends."""
    server = reverb.Server([reverb.Table(
        TABLE, sampler=reverb.selectors.Prioritized(0.6), remover=reverb.selectors.Fifo(),
        max_size=size, rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature(case))])
    print(server.port, flush=True)
    sys.stdin.read()


class Feeder:
    """Writes episodes to a writer; continues where it stopped."""

    def __init__(self, client, case, frames):
        stack = stack_of(case)
        self.stack, self.frames, self.added, self.at = stack, frames, 0, 0
        self.reward = priority_of(np.arange(FRAMES_MAX))
        self.writer = client.trajectory_writer(num_keep_alive_refs=stack + STEPS)

    def add(self, count):
        until = self.added + count
        action = np.int32(0)
        while self.added < until:
            frame = self.frames[self.at % len(self.frames)]
            step = self.at % EPISODE
            self.writer.append({"obs": frame, "action": action, "reward": self.reward[self.at]})
            if step >= self.stack + STEPS - 1:
                history = self.writer.history
                window = slice(-self.stack - STEPS, -STEPS)
                self.writer.create_item(TABLE, float(self.reward[self.at - STEPS]), {
                    "obs": history["obs"][window], "next_obs": history["obs"][-self.stack:],
                    "action": history["action"][-STEPS - 1:-STEPS],
                    "reward": history["reward"][-STEPS - 1:-1]})
                self.added += 1
                if self.added % FLUSH_EVERY == 0:
                    self.writer.flush(block_until_num_items=FLUSH_EVERY)
            if step == EPISODE - 1:
                self.writer.end_episode()
            self.at += 1


def load_frames(case):
    if case == "service-4f":
        return (priority_of(np.arange(FRAMES_MAX))[:, None] * np.ones(4)).astype(np.float32)
    return np.concatenate([np.fromfile(FOLDER / f"{game}.u8", np.uint8)
                           for game in GAMES]).reshape(-1, SIDE, SIDE)


def emit(case, metric, values, **checks):
    """Prints one line for each of our transports."""
    for transport in ("ipc", "tcp"):
        print(json.dumps({"case": f"{case}-{transport}", "metric": metric, "unit": "1/s",
                          "values": values, "peer": "dm-reverb", "peer_version": VERSION,
                          **checks}), flush=True)


def draw(client, address, case, seconds, workers):
    dataset = reverb.TrajectoryDataset.from_table_signature(
        address, TABLE, max_in_flight_samples_per_worker=2 * BATCH,
        num_workers_per_iterator=workers).batch(BATCH, drop_remainder=True).prefetch(2)
    batches = iter(dataset)

    def step():
        sample = next(batches)
        keys, reward = sample.info.key.numpy()[:].ravel(), sample.data["reward"].numpy()[:, 0]
        client.mutate_priorities(TABLE, dict(zip(keys.tolist(), reward.tolist())))
        return sample.data

    play = np.mean([[float(data["reward"].numpy()[:, 0].mean()), float(data["obs"].numpy().mean()),
                     float(data["next_obs"].numpy().mean())]
                    for data in (step() for _ in range(40))], axis=0)
    values = []
    for _ in range(3):
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds / 3:
            step()
            steps += 1
        values.append(steps * BATCH / (time.perf_counter() - begin))
    emit(case, "decoded_items_per_s", values, play=[float(x) for x in play], play_tolerance=0.02)


def run(case, quick, workers):
    size = (1 if quick else 4) * ROUND
    server = subprocess.Popen([sys.executable, __file__, "--case", case, "--serve", str(size)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = f"localhost:{int(server.stdout.readline())}"
        client = reverb.Client(address)
        feeder = Feeder(client, case, load_frames(case))
        values, part = [], size // 5
        for _ in range(5):
            begin = time.perf_counter()
            feeder.add(part)
            values.append(part / (time.perf_counter() - begin))
        emit(case, "inserts_per_s", values)
        draw(client, address, case, 1.0 if quick else 6.0, workers)
    finally:
        server.stdin.close()
        server.wait(timeout=30)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=("service-4f", "service-atari"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=-1, help="of the dataset; -1: its choice")
    parser.add_argument("--serve", type=int, metavar="ITEMS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.case, options.serve)
        return
    for case in ("service-4f", "service-atari"):
        if options.case in (None, case):
            run(case, options.quick, options.workers)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records games of MinAtar's Asterix, Freeway, Seaquest and Space Invaders, for tests/envs.

    pip install minatar==1.0.15
    tools/make_minatar_fixtures.py [GAME ...]

Writes tests/fixtures/envs/minatar_<game>.bin and minatar_<game>_returns.bin: little-endian, without
padding, and compressed by zlib. Equal versions of the packages give equal files. The package is a
black box: its random draws are recorded together with its observations.

minatar_<game>.bin, play without sticky actions:
    u32 episodes, u32 bytes of luck L, u32 channels C
    each: u8 ramping, luck of the start[L], u32 length n, n times
          (u8 action, u8 reward, u8 terminated, luck[L]),
          n + 1 observations, each 100 * C bits (first bit lowest), XOR with the previous one
    luck: asterix          u8 a spawn, u8 from the left, u8 gold, u8 rank among the free rows
          freeway          u8 new speeds, i8 speed[8] (negative: to the left)
          seaquest         u8 an enemy, u8 from the left, u8 submarine, u8 row;
                           u8 a diver, u8 from the left, u8 row
          space_invaders   nothing
minatar_<game>_returns.bin, with sticky actions: u32 policies, u32 episodes n, u32 longest episode,
    u32 bytes of luck L; each policy: f32 sticky, f32 share of the favorite action (else any),
    i32 favorite action, u32 ramping, u16 return[n], u16 length[n], u32 lucks, luck[lucks][L]
"""

import copy
import importlib.metadata
import pathlib
import struct
import sys
import zlib

import minatar
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/envs"
VERSION = "1.0.15"
LUCK = {"asterix": 4, "freeway": 9, "seaquest": 7, "space_invaders": 0}
KEPT_LUCKS = 1000  # per policy
# (sticky actions, share of the favorite action, favorite action, difficulty ramping)
POLICIES = {"asterix": ((0.1, 0.0, 0, True), (0.1, 0.9, 0, False)),
            "freeway": ((0.1, 0.9, 2, True),),
            "seaquest": ((0.1, 0.0, 0, True), (0.1, 0.5, 5, False)),
            "space_invaders": ((0.1, 0.0, 0, True), (0.1, 0.6, 5, False))}
EPISODES = {"freeway": 60}


class Drawn:
    """Wraps a generator and records its draws."""

    def __init__(self, generator):
        self.generator, self.numbers = generator, []

    def __deepcopy__(self, memo):
        return Drawn(copy.deepcopy(self.generator, memo))

    def rand(self, *shape):
        return self.keep(self.generator.rand(*shape))

    def randint(self, *args, **named):
        return self.keep(self.generator.randint(*args, **named))

    def keep(self, number):
        self.numbers.append(number)
        return number


def luck_of(name, numbers):
    """Decisions from the recorded draws, as bytes."""
    if name == "asterix":
        if len(numbers) < 3:  # no lane is free
            return bytes(4)
        left, gold, rank = numbers
        return bytes([1, left < 0.5, gold < 1 / 3, rank])
    if name == "freeway":
        return struct.pack("<B8b", 1, *numbers[0]) if numbers else bytes(9)
    enemy = diver = b""
    if len(numbers) in (3, 5):
        left, submarine, row = numbers[:3]
        enemy = bytes([1, left < 0.5, submarine < 1 / 3, row])
    if len(numbers) in (2, 5):
        left, row = numbers[-2:]
        diver = bytes([1, left < 0.5, row])
    return (enemy or bytes(4)) + (diver or bytes(3)) if name == "seaquest" else b""


def make(name, seed, sticky, ramping):
    env = minatar.Environment(name, sticky_action_prob=sticky, difficulty_ramping=ramping)
    env.seed(seed)
    env.env.random = Drawn(env.env.random)
    env.reset()
    return env


def take_luck(name, env):
    luck = luck_of(name, env.env.random.numbers)
    env.env.random.numbers.clear()
    return luck


def worth(name, env, reward, end, style):
    """Score of a step for the planner. Style, in Seaquest: dive until the air is gone, dive for one
    diver at a time, or play well."""
    value = reward - 20.0 * end
    if name == "seaquest":
        state = env.state()
        row = int(np.argmax(state[:, :, 0].any(axis=1)))
        air, divers = int(state[9, :, 7].sum()), int(state[9, :, 8].sum())
        home = {"deep": False, "short": divers > 0}.get(
            style, air <= 4 and divers > 0 or divers >= 6)
        value -= 5.0 * (style == "deep" and row == 0)
        value += 0.3 * divers + 0.05 * (-row if home else min(row, 4))
    return value


def plan(name, env, rng, style, before, sequences=16, depth=24):
    """Best of several action sequences, played to the end in copies of the game that include its
    random state. `before`: the previous best sequence, which is continued."""
    held = rng.integers(1, 5, sequences)
    candidates = [np.repeat(rng.integers(6, size=depth), n)[:depth] for n in held]
    if len(before) > 1:
        candidates.append(np.append(before[1:], rng.integers(6)))
    best, chosen = -1e9, None
    for actions in candidates:
        imagined = copy.deepcopy(env)
        total = 0.0
        for action in actions:
            reward, end = imagined.act(int(action))
            total += worth(name, imagined, reward, end, style)
            if end:
                break
        if total > best:
            best, chosen = total, actions
    return chosen


def record(name, seed, longest, ramping, skilled, style=None):
    env = make(name, seed, 0.0, ramping)
    rng = np.random.default_rng(seed)
    out, frames = [], [env.state()]
    start, end, total, planned = take_luck(name, env), False, 0, ()
    while not end and len(out) < longest:
        clever = skilled and rng.random() < 0.99
        if clever and name == "freeway":
            action = 2
        else:
            planned = plan(name, env, rng, style, planned) if clever else ()
            action = int(planned[0]) if clever else int(rng.integers(6))
        reward, end = env.act(action)
        out.append(struct.pack("<BBB", action, int(reward), end) + take_luck(name, env))
        frames.append(env.state())
        total += int(reward)
    print(f"{name} seed {seed}: {len(out)} steps, return {total}, ended {end}", flush=True)
    bits = [np.packbits(f.astype(np.uint8).ravel(), bitorder="little") for f in frames]
    changes = [bits[0]] + [a ^ b for a, b in zip(bits, bits[1:])]
    return (struct.pack("<B", ramping) + start.ljust(LUCK[name], b"\0")
            + struct.pack("<I", len(out)) + b"".join(out) + b"".join(c.tobytes() for c in changes))


def make_play(name):
    longest = {"freeway": 2600, "space_invaders": 2000}.get(name, 1500)
    episodes = [record(name, seed, 300, seed % 2 == 0, skilled=False) for seed in range(12)]
    episodes += [record(name, 100 + seed, longest, seed != 1, skilled=True) for seed in range(3)]
    if name == "seaquest":
        episodes += [record(name, 103, 400, True, skilled=True, style="deep"),
                     record(name, 104, 1500, True, skilled=True, style="short")]
    channels = make(name, 0, 0.0, True).state().shape[2]
    return struct.pack("<III", len(episodes), LUCK[name], channels) + b"".join(episodes)


def make_returns(name, longest=1000):
    episodes = EPISODES.get(name, 1500)
    longest = 2600 if name == "freeway" else longest
    out = [struct.pack("<IIII", len(POLICIES[name]), episodes, longest, LUCK[name])]
    for sticky, share, favourite, ramping in POLICIES[name]:
        env = make(name, 7, sticky, ramping)
        rng = np.random.default_rng(11)
        returns, lengths, lucks = [], [], []
        for _ in range(episodes):
            env.reset()
            total = length = 0
            end = False
            while not end and length < longest:
                action = favourite if rng.random() < share else int(rng.integers(6))
                reward, end = env.act(action)
                total += int(reward)
                length += 1
                luck = take_luck(name, env)
                if any(luck):
                    lucks.append(luck)
            returns.append(total)
            lengths.append(length)
        lucks = lucks[:KEPT_LUCKS]
        out.append(struct.pack("<ffiI", sticky, share, favourite, ramping)
                   + np.array(returns, "<u2").tobytes() + np.array(lengths, "<u2").tobytes()
                   + struct.pack("<I", len(lucks)) + b"".join(lucks))
        print(f"{name}: return {np.mean(returns):.3f}, length {np.mean(lengths):.1f}", flush=True)
    return b"".join(out)


def main():
    if importlib.metadata.version("minatar") != VERSION:
        raise SystemExit(f"the fixtures need minatar {VERSION}")
    for name in sys.argv[1:] or LUCK:
        (FOLDER / f"minatar_{name}.bin").write_bytes(zlib.compress(make_play(name), 9))
        (FOLDER / f"minatar_{name}_returns.bin").write_bytes(zlib.compress(make_returns(name), 9))


if __name__ == "__main__":
    main()

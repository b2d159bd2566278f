#!/usr/bin/env python3
"""Records real Atari frames for the suite `replay`: ten games, random play.

    record_atari.py FOLDER

Writes FOLDER/<game>.u8, [FRAMES, 84, 84] u8, for each game: gray, every fourth frame, the
maximum of the last two (flicker), area-averaged from 210x160, no sticky actions, up to 30 no-ops
at an episode's start. ale-py provides the ROMs. All seeds are fixed, so the frames are
reproducible. Existing files of the right size are kept.
"""
import argparse
import pathlib

import ale_py
import ale_py.roms
import numpy as np

GAMES = ("pong", "breakout", "space_invaders", "seaquest", "qbert", "ms_pacman", "beam_rider",
         "enduro", "asteroids", "montezuma_revenge")
FRAMES = 3000
SIDE = 84
SKIP = 4
IDLE_MAX = 30


def averaging(source, target):
    """[target, source] f64: weight of each source row in each target row."""
    edges = np.linspace(0, source, target + 1)
    low = np.maximum(edges[:-1, None], np.arange(source)[None, :])
    high = np.minimum(edges[1:, None], np.arange(1, source + 1)[None, :])
    share = np.clip(high - low, 0, None)
    return share / share.sum(1, keepdims=True)


def record(game, seed):
    """Records [FRAMES, SIDE, SIDE] u8 of random play."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    actions = ale.getMinimalActionSet()
    rng = np.random.default_rng(seed)
    height, width = ale.getScreenDims()
    rows, columns = averaging(height, SIDE), averaging(width, SIDE).T
    frames = np.empty((FRAMES, SIDE, SIDE), np.uint8)
    idle = int(rng.integers(IDLE_MAX + 1))
    for frame in frames:
        action = actions[0] if idle > 0 else actions[rng.integers(len(actions))]
        idle -= 1
        for _ in range(SKIP - 1):
            ale.act(action)
        previous = ale.getScreenGrayscale()
        ale.act(action)
        brighter = np.maximum(previous, ale.getScreenGrayscale())
        frame[:] = np.rint(rows @ brighter @ columns)
        if ale.game_over():
            ale.reset_game()
            idle = int(rng.integers(IDLE_MAX + 1))
    return frames


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    options.folder.mkdir(parents=True, exist_ok=True)
    for seed, game in enumerate(GAMES, start=1):
        path = options.folder / f"{game}.u8"
        if path.exists() and path.stat().st_size == FRAMES * SIDE * SIDE:
            continue
        frames = record(game, seed)
        changed = float((frames[1:] != frames[:-1]).mean())
        frames.tofile(path)
        print(f"{path}: {FRAMES} frames, {changed:.1%} of the pixels change", flush=True)


if __name__ == "__main__":
    main()

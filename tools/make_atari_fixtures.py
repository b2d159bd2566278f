#!/usr/bin/env python3
"""Records the results of OpenCV and Gymnasium for Atari frames, for tests/envs/atari_*_test.cc.

    pip install ale-py==0.12.1 gymnasium==1.4.0 numpy==2.4.6 opencv-python-headless==4.14.0.94
    tools/make_atari_fixtures.py

Writes tests/fixtures/envs/atari_frames.bin: little-endian values, compressed by zlib

    u32 count; each: u32 height H, width W, h, w; u8 a[H, W], b[H, W]; u8 expected[h, w]

where expected is cv2.resize(np.maximum(a, b), (w, h), interpolation=cv2.INTER_AREA), as in
Gymnasium's AtariPreprocessing. OpenCV 4.14 and 5.0 give the same bytes. Also writes
tests/fixtures/envs/atari_episodes.bin: the results of AtariPreprocessing for each step

    u32 count; each: char name[16]; u32 frame skip, u32 ends when a life is lost, u32 steps;
    u32 CRC of the first observation; each step: u8 action, u8 terminated, u8 truncated, u8 0,
    f32 reward, u32 CRC of the observation; u32 CRC of the next episode's first observation
"""

import pathlib
import struct
import zlib

import ale_py
import cv2
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/envs"
FILE = FOLDER / "atari_frames.bin"
EPISODES = [("Pong", 4, False), ("Breakout", 4, True), ("Breakout", 3, False),
            ("Breakout", 1, False), ("SpaceInvaders", 2, True), ("SpaceInvaders", 4, False)]
GAMES = ["pong", "breakout", "space_invaders", "seaquest", "ms_pacman", "montezuma_revenge",
         "enduro", "air_raid", "up_n_down", "trondead"]  # 210 and 250 rows, few to many colors
FRAMES = 5
# Integer factors, one integer side, odd sizes, one pixel, unchanged size, 49 to 1.
SIZES = [(210, 160, 84, 84), (250, 160, 84, 84), (210, 160, 105, 80), (210, 160, 70, 40),
         (210, 160, 42, 42), (210, 160, 105, 84), (210, 160, 84, 80), (210, 160, 210, 160),
         (210, 160, 83, 31), (210, 160, 1, 1), (49, 49, 1, 1), (98, 49, 2, 1), (97, 61, 13, 60),
         (61, 97, 60, 96), (17, 16, 8, 7), (16, 15, 15, 14), (33, 40, 16, 13), (33, 65, 16, 16),
         (5, 3, 2, 2), (1, 1, 1, 1), (2, 2, 1, 1), (210, 160, 64, 64), (250, 160, 96, 96)]


def game_frames(game, rng):
    """Pairs of consecutive frames, spread over the beginning of an episode."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 1)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    actions = ale.getMinimalActionSet()
    pairs = []
    for _ in range(FRAMES):
        for _ in range(int(rng.integers(20, 120))):
            ale.act(actions[int(rng.integers(len(actions)))])
            if ale.game_over():
                ale.reset_game()
        first = ale.getScreenGrayscale().copy()
        ale.act(actions[int(rng.integers(len(actions)))])
        pairs.append((first, ale.getScreenGrayscale().copy()))
    return pairs


def record(a, b, height, width):
    expected = cv2.resize(np.maximum(a, b), (width, height), interpolation=cv2.INTER_AREA)
    return struct.pack("<IIII", *a.shape, height, width) + a.tobytes() + b.tobytes() \
        + expected.tobytes()


def record_episode(game, skip, life_loss):
    """Records an episode without sticky actions and no-ops, whose random generators differ by
    program."""
    env = AtariPreprocessing(
        gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0),
        noop_max=0, frame_skip=skip, terminal_on_life_loss=life_loss)
    rng = np.random.default_rng(len(game) + skip)
    first, _ = env.reset(seed=1)
    steps, ended = [], False
    while not ended:
        action = int(rng.integers(env.action_space.n))
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
        steps.append(struct.pack("<BBBBfI", action, terminated, truncated, 0, reward,
                                 zlib.crc32(observation.tobytes())))
    again, _ = env.reset(seed=1)
    return (struct.pack("<16sIIII", game.encode(), skip, life_loss, len(steps),
                        zlib.crc32(first.tobytes()))
            + b"".join(steps) + struct.pack("<I", zlib.crc32(again.tobytes())))


def main():
    gymnasium.register_envs(ale_py)
    episodes = [record_episode(*episode) for episode in EPISODES]
    (FOLDER / "atari_episodes.bin").write_bytes(
        struct.pack("<I", len(episodes)) + b"".join(episodes))
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    rng = np.random.default_rng(20261121)
    records = []
    for game in GAMES:
        records += [record(a, b, 84, 84) for a, b in game_frames(game, rng)]
    for rows, columns, height, width in SIZES:
        levels = rng.choice(256, 3).astype(np.uint8)  # few levels: ties in rounding occur
        few = levels[rng.integers(0, 3, (rows, columns))]
        black = np.zeros((rows, columns), np.uint8)
        records += [record(few, black, height, width), record(black, 255 - black, height, width)]
        if (rows, height) == (210, 84) or rows < 50:  # noise does not compress
            noise = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
            records.append(record(few, noise, height, width))
    FILE.write_bytes(zlib.compress(struct.pack("<I", len(records)) + b"".join(records), 9))
    print(f"{len(records)} records, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()

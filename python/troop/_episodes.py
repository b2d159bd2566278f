"""Recorded episodes: reading and writing their files (docs/reference/episodes.md)."""
from __future__ import annotations

import dataclasses
import json
import mmap
import os
import pathlib
import struct
from typing import Any, Iterator, Optional, Union

import numpy as np

from troop import _native

PathLike = Union[str, "os.PathLike[str]"]
MAGIC = b"TROOPEP1"
PRELUDE = struct.Struct("<8sQII")  # magic, size of the body, checksums of the body and of these
BODY_MAX = 1 << 30                 # bytes
SUFFIX = ".episodes"
DTYPES = {"f32": "<f4", "f64": "<f8", "u8": "|u1", "i32": "<i4", "i64": "<i8", "u32": "<u4",
          "u64": "<u8"}
NAMES = {np.dtype(text).str: name for name, text in DTYPES.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """One complete episode of T steps.

    observations: [T + 1, ...], single frames with the environment's type; the last one has no
    action. actions: int32 [T], or float32 [T, size]. rewards: float32 [T]. action_count: number of
    discrete actions; None: continuous ones within low and high (float32 [size]). seed: of the
    environment's reset; None: not known. exploration: ε of the first step, for continuous actions
    the σ of the noise. policy_updates: updates of the weights at the first step. agent_steps: of
    the whole fleet, at the first step. reward_scale and observation_clip: env.reward_scale, which
    the rewards include, and env.observation_clip, which the observations include.
    """

    env: str
    observations: np.ndarray[Any, Any]
    actions: np.ndarray[Any, Any]
    rewards: np.ndarray[Any, Any]
    terminated: bool
    truncated: bool
    action_count: Optional[int] = None
    low: Optional[np.ndarray[Any, Any]] = None
    high: Optional[np.ndarray[Any, Any]] = None
    seed: Optional[int] = None
    exploration: float = 0.0
    policy_updates: int = 0
    agent_steps: int = 0
    reward_scale: float = 1.0
    observation_clip: float = 0.0

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.rewards)

    @property
    def total_reward(self) -> float:
        """The sum of all rewards, not discounted."""
        return float(self.rewards.sum(dtype=np.float64))


class Episodes:
    """The recorded episodes of a run folder, of a folder of files, or of one file, in the order of
    recording of each actor. Iterating reads the files again, one episode at a time; the arrays are
    read-only views of the file. A part of an episode at the end of a file, which a killed actor
    leaves, is left out.

    Raises ValueError: there are no recorded episodes. Iterating raises ValueError: a damaged file.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = pathlib.Path(path)
        self.files = _files_of(self.path)

    def __iter__(self) -> Iterator[Episode]:
        for path in self.files:
            yield from _read(path)

    def __repr__(self) -> str:
        return f"troop.Episodes({str(self.path)!r})"


class EpisodeWriter:
    """Writes episodes to a new file, whose name must end in ".episodes". A context manager.

    Raises ValueError: the name; FileExistsError: the file exists.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = pathlib.Path(path)
        if self.path.suffix != SUFFIX:
            raise ValueError(f"{self.path}: the name must end in {SUFFIX}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "xb")  # pylint: disable=consider-using-with

    def add(self, episode: Episode) -> None:
        """Appends an episode. Raises ValueError: arrays that do not agree."""
        self._file.write(encoded(episode))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "EpisodeWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def encoded(episode: Episode) -> bytes:
    """One record of a file."""
    steps, action = _checked(episode)
    discrete = episode.action_count is not None
    shape = ", ".join(str(size) for size in episode.observations.shape[1:])
    header = json.dumps({
        "env": episode.env,
        "observation": f"{NAMES[episode.observations.dtype.newbyteorder('<').str]}[{shape}]",
        "actions": episode.action_count or 0,
        "low": [] if discrete else np.asarray(episode.low, np.float32).tolist(),
        "high": [] if discrete else np.asarray(episode.high, np.float32).tolist(),
        "steps": steps, "terminated": bool(episode.terminated),
        "truncated": bool(episode.truncated),
        "seed": None if episode.seed is None else str(int(episode.seed)),
        "exploration": float(episode.exploration), "policy_updates": int(episode.policy_updates),
        "agent_steps": int(episode.agent_steps), "reward_scale": float(episode.reward_scale),
        "observation_clip": float(episode.observation_clip),
    }, ensure_ascii=False, allow_nan=False).encode()
    header += b" " * (-(4 + len(header)) % 8)
    body = struct.pack("<I", len(header)) + header + b"".join(
        np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        for array in (episode.observations, action, episode.rewards))
    if len(body) > BODY_MAX:
        raise ValueError(f"an episode of {len(body)} bytes, at most {BODY_MAX} are supported")
    prelude = PRELUDE.pack(MAGIC, len(body), _native.crc32c(body), 0)[:-4]
    return prelude + struct.pack("<I", _native.crc32c(prelude)) + body


def _checked(episode: Episode) -> tuple[int, np.ndarray[Any, Any]]:
    """The number of steps, and the actions, if all arrays agree."""
    steps = len(episode.rewards)
    where = f"episode of {episode.env}"
    if steps < 1 or len(episode.observations) != steps + 1 or len(episode.actions) != steps:
        raise ValueError(f"{where}: {len(episode.observations)} observations, "
                         f"{len(episode.actions)} actions and {steps} rewards; T steps have T + 1 "
                         "observations, T actions and T rewards")
    if not episode.terminated and not episode.truncated:
        raise ValueError(f"{where}: neither terminated nor truncated")
    if episode.observations.dtype.newbyteorder("<").str not in NAMES:
        raise ValueError(f"{where}: observations have the type {episode.observations.dtype}, must "
                         f"be one of: {', '.join(DTYPES)}")
    if episode.rewards.dtype != np.float32 or episode.rewards.ndim != 1:
        raise ValueError(f"{where}: rewards are {episode.rewards.dtype} of shape "
                         f"{episode.rewards.shape}, must be float32 [T]")
    if episode.action_count is None:
        if episode.low is None or episode.high is None:
            raise ValueError(f"{where}: continuous actions need low and high")
        want, shape = "float32", tuple([steps, len(episode.low)])
    else:
        want, shape = "int32", tuple([steps])
        if episode.actions.min() < 0 or episode.actions.max() >= episode.action_count:
            raise ValueError(f"{where}: an action is not in [0, {episode.action_count})")
    if episode.actions.dtype != want or episode.actions.shape != shape:
        raise ValueError(f"{where}: actions are {episode.actions.dtype} of shape "
                         f"{episode.actions.shape}, must be {want} of shape {shape}")
    return steps, episode.actions


def _files_of(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file():
        return [path]
    folder = path / "episodes" if (path / "episodes").is_dir() else path
    if not folder.is_dir():
        raise ValueError(f"{path}: no such file or folder")
    files = sorted(folder.glob("*" + SUFFIX))
    if not files:
        raise ValueError(f"{folder} has no recorded episodes (*{SUFFIX}); record them with "
                         "actor.record_episodes = true")
    return files


def _read(path: pathlib.Path) -> Iterator[Episode]:
    """All complete records of a file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return
        # A removed file stays readable; a live one only grows.
        data = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    at = 0
    while size - at >= PRELUDE.size:
        magic, length, body_sum, prelude_sum = PRELUDE.unpack_from(data, at)
        if magic != MAGIC or _native.crc32c(data[at:at + PRELUDE.size - 4]) != prelude_sum or \
                length > BODY_MAX:
            raise ValueError(f"{path}: damaged episode at byte {at}: no record begins here")
        begin = at + PRELUDE.size
        if size - begin < length:
            return
        body = data[begin:begin + length]
        if _native.crc32c(body) != body_sum:
            raise ValueError(f"{path}: damaged episode at byte {at}: its checksum does not match")
        try:
            yield _decoded(body)
        except (KeyError, TypeError, struct.error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: damaged episode at byte {at}: {error!r}") from None
        at = begin + length


def _decoded(body: memoryview) -> Episode:
    length, = struct.unpack_from("<I", body)
    header = json.loads(bytes(body[4:4 + length]))
    name, _, shape = header["observation"].partition("[")
    frame = tuple(int(size) for size in shape.rstrip("]").split(",") if size.strip())
    steps, count = int(header["steps"]), int(header["actions"])
    at = 4 + length

    def take(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
        nonlocal at
        array = np.frombuffer(body, dtype, int(np.prod(shape, dtype=np.int64)), at)
        at += array.nbytes
        return array.reshape(shape)

    observations = take(DTYPES[name], steps + 1, *frame)
    actions = take("<i4", steps) if count else take("<f4", steps, len(header["low"]))
    return Episode(
        env=header["env"], observations=observations, actions=actions, rewards=take("<f4", steps),
        terminated=header["terminated"], truncated=header["truncated"],
        action_count=count or None,
        low=None if count else np.array(header["low"], np.float32),
        high=None if count else np.array(header["high"], np.float32),
        seed=None if header["seed"] is None else int(header["seed"]),
        exploration=header["exploration"], policy_updates=header["policy_updates"],
        agent_steps=header["agent_steps"], reward_scale=float(header["reward_scale"]),
        observation_clip=float(header["observation_clip"]))

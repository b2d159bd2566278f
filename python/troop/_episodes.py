"""Recorded episodes: reading and writing their files (docs/reference/episodes.md)."""
from __future__ import annotations

import dataclasses
import json
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
# Limits of the header, as of replay/episodes/episode.cc.
HEADER_MAX, ENV_MAX = 1 << 20, 4096  # bytes
NOISE_MAX = 1000.0                 # of continuous actions, in units of half their range
POLICY_UPDATES_MAX = (1 << 32) - 1
AGENT_STEPS_MAX = 10 ** 15
FLOAT_MAX = float(np.finfo(np.float32).max)
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
    read-only. A part of an episode at the end of a file, which a killed actor
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
        """Appends an episode. Raises ValueError: arrays that do not agree, or a number that is
        outside the limits of the format."""
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
    header = {
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
    }
    try:
        _numbers(header)  # a reader would refuse others
    except ValueError as error:
        raise ValueError(f"episode of {episode.env}: {error}") from None
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-(4 + len(text)) % 8)
    body = struct.pack("<I", len(text)) + text + b"".join(
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
    """All complete records of a file. Each is read into memory, not mapped: an access to a mapped
    file that another program has truncated would end the process."""
    with open(path, "rb") as file:
        at = number = 0
        while len(prelude := file.read(PRELUDE.size)) == PRELUDE.size:
            where = f"{path}: damaged episode {number} at byte {at}"
            magic, length, body_sum, prelude_sum = PRELUDE.unpack(prelude)
            if magic != MAGIC or _native.crc32c(prelude[:-4]) != prelude_sum or length > BODY_MAX:
                raise ValueError(f"{where}: no record begins here")
            # Memory is allocated only for bytes that the file has.
            begin = at + PRELUDE.size
            if os.fstat(file.fileno()).st_size - begin < length:
                return
            body = file.read(length)
            if len(body) < length:
                return
            if _native.crc32c(body) != body_sum:
                raise ValueError(f"{where}: its checksum does not match")
            try:
                episode = _decoded(memoryview(body))
            except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError,
                    ValueError, struct.error) as error:
                reason = str(error)[:400] if type(error) is ValueError else repr(error)[:400]
                raise ValueError(f"{where}: {reason.encode('unicode_escape').decode()}") from None
            yield episode
            at, number = begin + length, number + 1


def _number(header: dict[str, Any], key: str, low: float, high: float) -> float:
    """A number of a header within its limits, which NaN is not."""
    value = header[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"{key} is {value}, must be a number from {low:g} to {high:g}")
    return float(value)


def _integer(header: dict[str, Any], key: str, high: int, low: int = 0) -> int:
    value = header[key]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{key} is {value}, must be an integer from {low} to {high}")
    return value


def _numbers(header: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a header that describe the recording, within the limits of the format."""
    scale = _number(header, "reward_scale", -FLOAT_MAX, FLOAT_MAX)
    if scale == 0:
        raise ValueError("reward_scale is 0, must not be")
    seed = header["seed"]
    if seed is not None and not (isinstance(seed, str) and seed.isascii() and seed.isdigit()
                                 and len(seed) <= 20 and int(seed) < 1 << 64):
        raise ValueError(f"seed is {seed!r}, must be an integer from 0 to 2^64 - 1")
    return {
        "seed": None if seed is None else int(seed),
        "exploration": _number(header, "exploration", 0, 1 if header["actions"] else NOISE_MAX),
        "policy_updates": _integer(header, "policy_updates", POLICY_UPDATES_MAX),
        "agent_steps": _integer(header, "agent_steps", AGENT_STEPS_MAX),
        "reward_scale": scale,
        "observation_clip": _number(header, "observation_clip", 0, FLOAT_MAX)}


def _decoded(body: memoryview) -> Episode:
    length, = struct.unpack_from("<I", body)
    if length > min(len(body) - 4, HEADER_MAX):
        raise ValueError(f"a header of {length} bytes")
    header = json.loads(bytes(body[4:4 + length]))
    name, _, shape = header["observation"].partition("[")
    frame = tuple(int(size) for size in shape.rstrip("]").split(",") if size.strip())
    steps, count = _integer(header, "steps", BODY_MAX, 1), _integer(header, "actions", 1 << 31)
    for key in ("terminated", "truncated"):
        if not isinstance(header[key], bool):
            raise ValueError(f"{key} is neither true nor false")
    if not header["terminated"] and not header["truncated"]:
        raise ValueError("the episode has no end")
    env = header["env"]
    if not isinstance(env, str) or len(env.encode()) > ENV_MAX or not env.isprintable():
        raise ValueError(f"env is not one line of at most {ENV_MAX} bytes")
    low, high = ([float(bound) for bound in header[key]] for key in ("low", "high"))
    if not all(abs(bound) <= FLOAT_MAX for bound in low + high):
        raise ValueError("low or high has a value that is not a finite float")
    at = 4 + length

    def take(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
        nonlocal at
        array = np.frombuffer(body, dtype, int(np.prod(shape, dtype=np.int64)), at)
        at += array.nbytes
        return array.reshape(shape)

    observations = take(DTYPES[name], steps + 1, *frame)
    actions = take("<i4", steps) if count else take("<f4", steps, len(low))
    rewards = take("<f4", steps)
    if at != len(body):
        raise ValueError(f"{steps} steps take {at} bytes, but the record has {len(body)}")
    return Episode(
        env=env, observations=observations, actions=actions, rewards=rewards,
        terminated=header["terminated"], truncated=header["truncated"],
        action_count=count or None,
        low=None if count else np.array(low, np.float32),
        high=None if count else np.array(high, np.float32), **_numbers(header))

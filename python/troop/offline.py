"""Recorded episodes as datasets of Minari, and the other way.

Guide: docs/guide/offline_data.md. Needs minari with its extra hdf5: pip install 'minari[hdf5]'.
"""
from __future__ import annotations

import importlib
import os
from typing import Any, Iterable, Iterator, Mapping, Optional, Union

import numpy as np

from troop import _episodes, _run

Source = Union[_run.Run, str, "os.PathLike[str]", Iterable[_episodes.Episode]]
# Fields of an episode that datasets of Minari lack; stored as metadata.
EXTRAS = ("exploration", "policy_updates", "agent_steps", "reward_scale", "observation_clip")


def to_minari(source: Source, dataset_id: str, *, env: Any = None, **metadata: Any) -> Any:
    """Writes episodes to a new local dataset, and returns it (a minari.MinariDataset).

    source: a run, the path of a run folder, of a folder of episodes or of a file, or an iterable of
    episodes. dataset_id: "env/name-v0". env: a Gymnasium id, environment or EnvSpec, which
    recover_environment() makes again; None: without one. metadata: further arguments of
    minari.create_dataset_from_buffers, such as algorithm_name and author. Observations, actions,
    rewards and seeds are stored exactly, pictures without JPEG. Raises ValueError: no episodes, or
    episodes of different spaces; as Episodes.
    """
    minari = _minari()
    episodes = iter(_opened(source))
    first = next(episodes, None)
    if first is None:
        raise ValueError(f"{source!r} has no complete episode")
    extras: list[Mapping[str, Any]] = []
    dataset = minari.create_dataset_from_buffers(
        dataset_id, _buffers(first, episodes, extras), env=env,
        observation_space=observation_space(first), action_space=action_space(first),
        jpeg_encoding=False, **metadata)
    dataset.storage.update_episode_metadata(extras)
    return dataset


def from_minari(dataset: Any, path: Union[str, "os.PathLike[str]"], *,
                env: Optional[str] = None) -> int:
    """Writes all episodes of a dataset to a new file of episodes, and returns their number.

    dataset: a minari.MinariDataset, or the id of a local one. path: the file, NAME.episodes. env:
    the id that the episodes carry; None: the one that to_minari stored, or that of the dataset's
    environment. Floats become float32 and discrete actions int32 from 0, as in Troop's own
    episodes. Raises ValueError: spaces that Troop does not have (Box of floats, uint8 or int32 for
    observations; Discrete or bounded Box for actions), an episode without an end, or a file that
    exists.
    """
    if isinstance(dataset, str):
        dataset = _minari().load_dataset(dataset)
    spaces = _Spaces(dataset)
    count = 0
    with _episodes.EpisodeWriter(path) as writer:
        try:
            for data in dataset.iterate_episodes():
                extras = _metadata(dataset, data.id)
                writer.add(spaces.episode(data, env or _env_of(dataset, extras), extras))
                count += 1
        except BaseException:
            os.unlink(writer.path)
            raise
    return count


def observation_space(episode: _episodes.Episode) -> Any:
    """The space of a frame: bytes are 0 to 255, other types have no bounds."""
    from gymnasium import spaces
    dtype = episode.observations.dtype
    if dtype == np.uint8:
        low, high = 0.0, 255.0
    elif dtype.kind in "iu":
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    else:
        low, high = -np.inf, np.inf
    return spaces.Box(low, high, episode.observations.shape[1:], dtype.type)


def action_space(episode: _episodes.Episode) -> Any:
    """Discrete, or the Box of the bounds."""
    from gymnasium import spaces
    if episode.action_count is not None:
        return spaces.Discrete(episode.action_count)
    assert episode.low is not None and episode.high is not None
    return spaces.Box(episode.low, episode.high)


def _opened(source: Source) -> Iterable[_episodes.Episode]:
    if isinstance(source, _run.Run):
        return source.episodes()
    if isinstance(source, (str, os.PathLike)):
        return _episodes.Episodes(source)
    return source


def _buffers(first: _episodes.Episode, rest: Iterator[_episodes.Episode],
             extras: list[Mapping[str, Any]]) -> Iterator[Any]:
    """The episodes as Minari's buffers, one at a time."""
    buffer = importlib.import_module("minari.data_collector").EpisodeBuffer
    episode: Optional[_episodes.Episode] = first
    while episode is not None:
        if _spec_of(episode) != _spec_of(first):
            raise ValueError(f"episode {len(extras)} is of {_spec_of(episode)}, the first one of "
                             f"{_spec_of(first)}; a dataset has the same spaces throughout")
        extras.append({"troop/env": episode.env,
                       **{f"troop/{name}": getattr(episode, name) for name in EXTRAS}})
        ends = np.zeros((2, len(episode)), bool)
        ends[:, -1] = episode.terminated, episode.truncated
        discrete = episode.action_count is not None
        yield buffer(
            seed=episode.seed, observations=episode.observations,
            actions=episode.actions.astype(np.int64) if discrete else episode.actions,
            rewards=episode.rewards, terminations=ends[0], truncations=ends[1])
        episode = next(rest, None)


def _spec_of(episode: _episodes.Episode) -> str:
    actions = f"{episode.action_count} actions" if episode.action_count is not None else \
        f"actions in {np.asarray(episode.low).tolist()} to {np.asarray(episode.high).tolist()}"
    return (f"{episode.env} ({episode.observations.dtype} {episode.observations.shape[1:]}, "
            f"{actions})")


class _Spaces:
    """The spaces of a dataset, checked, and its episodes in Troop's types."""

    def __init__(self, dataset: Any) -> None:
        from gymnasium import spaces
        seen, acted = dataset.observation_space, dataset.action_space
        if not isinstance(seen, spaces.Box) or seen.dtype.kind not in "f" and \
                seen.dtype not in (np.uint8, np.int32):
            raise ValueError(f"observations of {seen} are not supported, only a Box of floats, "
                             "uint8 or int32; flatten or convert them")
        self.frame = seen.dtype if seen.dtype.kind != "f" else np.dtype(np.float32)
        self.count: Optional[int] = None
        self.start, self.low, self.high = 0, None, None
        if isinstance(acted, spaces.Discrete):
            self.count, self.start = int(acted.n), int(acted.start)
        elif isinstance(acted, spaces.Box) and acted.dtype.kind == "f" and acted.is_bounded():
            self.low = acted.low.astype(np.float32).reshape(-1)
            self.high = acted.high.astype(np.float32).reshape(-1)
        else:
            raise ValueError(f"actions of {acted} are not supported, only Discrete or a bounded "
                             "Box of floats")

    def episode(self, data: Any, env: str, metadata: Mapping[str, Any]) -> _episodes.Episode:
        over, cut = np.asarray(data.terminations, bool), np.asarray(data.truncations, bool)
        if not len(over) or not over[-1] and not cut[-1]:
            raise ValueError(f"episode {data.id} neither terminates nor is truncated")
        if over[:-1].any() or cut[:-1].any():
            raise ValueError(f"episode {data.id} continues after its end")
        observations = np.asarray(data.observations).astype(self.frame)
        if self.count is None:
            actions = np.asarray(data.actions, np.float32).reshape(len(over), -1)
        else:
            actions = (np.asarray(data.actions, np.int64) - self.start).astype(np.int32)
        for name, values in (("observation", observations), ("reward", data.rewards)):
            if not np.isfinite(values).all():
                raise ValueError(f"episode {data.id} has a NaN or infinite {name}")
        extras = metadata.get("troop", {})
        return _episodes.Episode(
            env=env, observations=observations, actions=actions,
            rewards=np.asarray(data.rewards, np.float32), terminated=bool(over[-1]),
            truncated=bool(cut[-1]), action_count=self.count, low=self.low, high=self.high,
            seed=None if metadata.get("seed") is None else int(metadata["seed"]),
            exploration=float(extras.get("exploration", 0)),
            policy_updates=int(extras.get("policy_updates", 0)),
            agent_steps=int(extras.get("agent_steps", 0)),
            reward_scale=float(extras.get("reward_scale", 1)),
            observation_clip=float(extras.get("observation_clip", 0)))


def _env_of(dataset: Any, metadata: Mapping[str, Any]) -> str:
    """The id that to_minari stored, or that of the dataset's environment; empty: it has none."""
    if "troop" in metadata:
        return str(metadata["troop"]["env"])
    return str(dataset.env_spec.id) if dataset.env_spec is not None else ""


def _metadata(dataset: Any, episode: int) -> Mapping[str, Any]:
    return dict(next(iter(dataset.storage.get_episode_metadata([episode]))))


def _minari() -> Any:
    try:
        return importlib.import_module("minari")
    except ImportError:
        raise ImportError("datasets of Minari need minari with h5py; install them: "
                          "pip install 'minari[hdf5]'") from None

"""Trained policies: actions with the interface of Stable-Baselines3."""
from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any, Optional, Union

import numpy as np

from troop import _native

ATTEMPTS = 3  # readings of a checkpoint that a live run replaces meanwhile
PathLike = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class SpaceDescription:
    """Observations or actions where Gymnasium is not installed. kind: "Box" or "Discrete"; n: the
    number of discrete actions; low and high: the bounds of a Box."""

    kind: str
    shape: tuple[int, ...]
    dtype: str
    low: Any = None
    high: Any = None
    n: Optional[int] = None


class Policy:
    """The policy of a trained agent. Made by load_policy and Run.policy. One thread at a time.

    exploration_rate: probability of a random action in predict(deterministic=False), for discrete
    actions. path: the file that it was loaded from.
    """

    def __init__(self, path: PathLike, exploration_rate: float = 0.0) -> None:
        self.path = pathlib.Path(path)
        self._native = _native.Policy(os.fspath(path), converted)
        self._act = self._native.act
        self.exploration_rate = exploration_rate

    def predict(self, observation: Any, state: Optional[Any] = None,
                episode_start: Optional[Any] = None,
                deterministic: bool = False) -> tuple[np.ndarray[Any, Any], Optional[Any]]:
        """Returns the actions for one observation or for N, and the next state: the signature and
        the result of Stable-Baselines3's predict.

        observation: [...shape], or [N, ...shape] of a vector environment. Actions have the same
        first axis: int64 of shape () or [N], or float32 of shape [size] or [N, size].

        state: of the frame stacks, or of the recurrent layers; None for a policy with neither,
        which returns what it was given. Otherwise pass what the previous call returned, and at
        first None. The state is updated in place. episode_start: True for each environment whose
        episode begins with this observation.

        deterministic: True gives the greedy action. False gives a random one with the probability
        exploration_rate, which each environment draws on its own, of those that an action mask in
        the observation allows; continuous actions are always greedy. At exploration_rate 0 a
        warning says once that False changes nothing.

        Raises ValueError: wrong shape or type, or an observation that is not finite.
        """
        return self._act(observation, state, episode_start, deterministic)

    def q_values(self, observation: Any, mask: Optional[Any] = None) -> np.ndarray[Any, Any]:
        """Returns the q-values of all actions: [actions], or [N, actions] for N observations.

        With a frame stack an observation has all frames, the oldest first: [stack, ...shape].
        mask: the shape of the result; actions where it is False have -inf, and so do those that an
        action mask in the observation forbids. Raises ValueError as predict, for continuous
        actions, and for a policy with recurrent layers.
        """
        return self._native.q_values(observation, mask)

    @property
    def frame_stack(self) -> int:
        """Number of frames that the policy sees."""
        return self._native.frame_stack

    @property
    def recurrent(self) -> bool:
        """True if the policy has recurrent layers, so that predict needs a state."""
        return self._native.state_size > 0

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action in predict(deterministic=False)."""
        return self._native.exploration_rate

    @exploration_rate.setter
    def exploration_rate(self, rate: float) -> None:
        self._native.exploration_rate = rate

    def set_random_seed(self, seed: int) -> None:
        """Seeds the exploration, which otherwise differs from process to process."""
        self._native.set_seed(seed)

    @property
    def observation_space(self) -> Any:
        """The space of one observation (one frame): of Gymnasium if it is installed, else a
        SpaceDescription."""
        native = self._native
        low, high = {"uint8": (0, 255), "float32": (-np.inf, np.inf)}.get(
            native.dtype, (-(2**31), 2**31 - 1))
        return _box(low, high, native.shape, native.dtype)

    @property
    def action_space(self) -> Any:
        """The space of actions: as observation_space."""
        native = self._native
        if native.actions == 0:
            low, high = (np.asarray(bound, np.float32) for bound in (native.low, native.high))
            return _box(low, high, low.shape, "float32")
        try:
            from gymnasium import spaces
        except ImportError:
            return SpaceDescription("Discrete", (), "int64", n=native.actions)
        return spaces.Discrete(native.actions)

    def __repr__(self) -> str:
        return f"troop.Policy({str(self.path)!r})"


def load_policy(path: PathLike, *, best: bool = False, exploration_rate: float = 0.0) -> Policy:
    """Loads the policy of a trained agent.

    path: a run folder (its newest checkpoint, or with best=True its best one), a checkpoint folder,
    or a file of `troop export --format safetensors`. exploration_rate: of the result. Raises
    ValueError: there is none, or it has no policy.
    """
    found = pathlib.Path(path)
    if found.is_file():
        if best:
            raise ValueError(f"{found} is a file, and best=True chooses a checkpoint of a run; "
                             "give the run folder, or leave best out")
        return Policy(found, exploration_rate)
    # The checkpoint of a live run may be replaced after it was found.
    for attempt in range(ATTEMPTS):
        weights = _weights_in(found, best)
        try:
            return Policy(weights, exploration_rate)
        except ValueError:
            if weights.is_file() or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("not reached")


def _weights_in(folder: pathlib.Path, best: bool) -> pathlib.Path:
    """The weights in a checkpoint folder, or in the chosen checkpoint of a run folder."""
    name = "weights.safetensors"
    if (folder / "manifest.json").is_file():
        if best:
            raise ValueError(f"{folder} is a checkpoint, and best=True chooses one of a run; give "
                             "the run folder, or leave best out")
        return folder / name
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such file or folder")
    chosen = best_checkpoint(folder) if best else newest_checkpoint(folder)
    if chosen is not None:
        return chosen / name
    if best:
        raise ValueError(f"{folder} has no best checkpoint; a run keeps one from its first "
                         "evaluation on with evaluator.keep_best = true")
    raise ValueError(f"{folder} has no checkpoint: neither a run that has written one, nor a "
                     "checkpoint folder")


def newest_checkpoint(run: pathlib.Path) -> Optional[pathlib.Path]:
    """The complete checkpoint with most updates; None: there is none."""
    try:
        names = os.listdir(run / "checkpoints")
    except OSError:
        return None
    # A replaced checkpoint is NUMBER.old for a moment; NUMBER.tmp is not complete.
    for name in sorted(names, key=lambda n: (n.partition(".")[0], "." not in n), reverse=True):
        number, dot, suffix = name.partition(".")
        folder = run / "checkpoints" / name
        if number.isdigit() and (not dot or suffix == "old") and \
                (folder / "manifest.json").is_file():
            return folder
    return None


def best_checkpoint(run: pathlib.Path) -> Optional[pathlib.Path]:
    """The best checkpoint of a run; None: there is none."""
    for name in ("best", "best.old"):
        if (run / name / "manifest.json").is_file():
            return run / name
    return None


def converted(observation: Any, dtype: str) -> np.ndarray[Any, Any]:
    """An observation as a contiguous array of the policy's type. Called by the extension for
    everything that it cannot read in place."""
    if isinstance(observation, dict):
        raise ValueError("observation is a dict; flatten it as in training, with "
                         "gymnasium.spaces.utils.flatten(space, observation)")
    array = np.asarray(observation)
    kinds = {"uint8": "", "int32": "iu"}.get(dtype, "biuf")
    if array.dtype != dtype and array.dtype.kind not in kinds:
        raise ValueError(f"observation has the type {array.dtype}, must be {dtype}")
    if dtype == "int32" and array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        raise ValueError("observation has a value that exceeds int32")
    # A value beyond float32 becomes infinite, which is refused like any other infinity.
    with np.errstate(over="ignore"):
        return np.require(array, dtype, ["C", "A"])


def _box(low: Any, high: Any, shape: tuple[int, ...], dtype: str) -> Any:
    try:
        from gymnasium import spaces
    except ImportError:
        return SpaceDescription("Box", shape, dtype, low=low, high=high)
    return spaces.Box(low, high, shape, np.dtype(dtype).type)

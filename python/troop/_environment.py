"""One native environment as a gymnasium.Env."""
from __future__ import annotations

import operator
from typing import Any, Optional

import gymnasium
import numpy as np
from gymnasium import error

from troop import _native, _settings


class NativeEnv(gymnasium.Env[Any, Any]):
    """Made by troop.make_env. Every observation is a new array. An episode that ended must be
    reset before the next step. One thread at a time."""

    metadata = {"render_modes": list(_settings.RENDER_MODES), "render_fps": _settings.FPS}

    def __init__(self, settings: _settings.Settings) -> None:
        self._native: Optional[_native.SingleEnv] = _native.SingleEnv(
            settings.name, settings.native)
        made = self._native.spec
        self.metadata = {"render_modes": settings.modes(), "render_fps": _settings.FPS}
        self.render_mode = settings.render_mode
        self.spec = settings.spec(made)
        self.observation_space = _settings.observation_space(made)
        self.action_space = _settings.action_space(made)
        self._discrete = made["actions"] > 0
        self._shape, self._dtype = made["shape"], _settings.DTYPES[made["dtype"]]
        self._name = settings.name
        self._seeded = False

    def reset(self, *, seed: Optional[int] = None,
              options: Optional[dict[str, Any]] = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: with a seed the one that Troop plays with this seed."""
        native = self._open()
        _settings.no_options(self._name, options)
        if seed is not None:
            seed = _settings.seed_of(seed)
        super().reset(seed=seed)
        # Without any seed so far, episodes differ from run to run.
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**63))
        observation = np.empty(self._shape, self._dtype)
        native.reset(seed, observation)
        self._seeded = True
        return observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        native = self._native or self._open()
        observation = np.empty(self._shape, self._dtype)
        if self._discrete:
            try:
                number = operator.index(action)
            except TypeError:
                raise ValueError(
                    f"{self._name}: action is {action!r}, must be an integer") from None
            return observation, *native.step_discrete(number, observation), {}
        return observation, *native.step_continuous(_floats(action), observation), {}

    def render(self) -> Any:
        native = self._open()
        if self.render_mode is None:
            raise ValueError(
                f"{self._name}: render() needs make_env(..., render_mode=\"rgb_array\")")
        return _settings.picture_of(native.render())

    def close(self) -> None:
        self._native = None

    def _open(self) -> _native.SingleEnv:
        if self._native is None:
            raise error.ClosedEnvironmentError(f"{self._name}: the environment is closed")
        return self._native


def _floats(action: Any) -> Any:
    """A contiguous float32 array; values that are no floats stay as they are and are refused."""
    array = np.asarray(action)
    return np.asarray(array, np.float32, order="C") if array.dtype.kind == "f" else array

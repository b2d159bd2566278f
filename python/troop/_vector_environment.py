"""Many native environments as a gymnasium.vector.VectorEnv."""
from __future__ import annotations

from typing import Any, Optional

import numpy as np
from gymnasium import error
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from troop import _native, _settings


class NativeVectorEnv(VectorEnv[Any, Any, Any]):
    """Made by troop.make_vector_env. Autoreset mode SAME_STEP: where an episode ends, the
    observation is already the first one of the next episode, and infos["final_obs"] has the last
    one of the old episode. One thread at a time."""

    def __init__(self, settings: _settings.Settings, num_envs: int, threads: int,
                 copy: bool) -> None:
        self._name = settings.name  # first: close() of a vector that was not made reads it
        self._native: Any = _native.EnvVector(settings.name, settings.native, num_envs, threads)
        made = self._native.spec
        self.metadata = {"render_modes": settings.modes(), "render_fps": _settings.FPS,
                         "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = settings.render_mode
        self.spec = settings.spec(made)
        self.num_envs, self.copy = num_envs, copy
        self.single_observation_space = _settings.observation_space(made)
        self.single_action_space = _settings.action_space(made)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._continuous = made["actions"] == 0
        # Views of Troop's memory, made once: every step writes to the same addresses.
        self._observation: Any = None
        self._reward: Any = None
        self._terminated: Any = None
        self._truncated: Any = None
        self._final: Any = None

    def reset(self, *, seed: "int | list[int | None] | None" = None,
              options: Optional[dict[str, Any]] = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every environment, or where options["reset_mask"] is True.

        seed: an int gives environment i the seed `seed + i`; a list has one or None for each. An
        environment without a new seed continues its sequence of episodes.
        """
        native = self._native
        rest = dict(options or {})
        indices = self._masked(rest.pop("reset_mask", None))
        _settings.no_options(self._name, rest)
        seeds = self._seeds(seed)
        super().reset(seed=seeds[0] if isinstance(seed, (int, np.integer)) else None)
        if self._observation is None:
            drawn = self.np_random.integers(2**63, size=self.num_envs).tolist()
            seeds = [new if given is None else given for new, given in zip(drawn, seeds)]
        rows = range(self.num_envs) if indices is None else indices
        native.reset([(i, value) for i in rows if (value := seeds[i]) is not None], indices)
        if self._observation is None:
            self._observation = np.asarray(native.observation)
            self._reward = np.asarray(native.reward)
            self._terminated = np.asarray(native.terminated)
            self._truncated = np.asarray(native.truncated)
            self._final = np.asarray(native.final_observation)
        return self._observation.copy() if self.copy else self._observation, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if type(actions) is not np.ndarray or not actions.flags.c_contiguous:
            actions = np.asarray(actions, order="C")
        if self._continuous and actions.dtype.kind == "f":
            actions = actions.astype(np.float32, copy=False)
        infos = self._finals() if self._native.step(actions) else {}
        if not self.copy:
            return self._observation, self._reward, self._terminated, self._truncated, infos
        return (self._observation.copy(), self._reward.copy(), self._terminated.copy(),
                self._truncated.copy(), infos)

    def render(self) -> Optional[tuple[Any, ...]]:
        native = self._native
        if self.render_mode is None:
            raise ValueError(
                f"{self._name}: render() needs make_vector_env(..., render_mode=\"rgb_array\")")
        return tuple(_settings.picture_of(native.render(i)) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the threads as soon as no array looks into their memory any more."""
        del kwargs
        self._observation = self._reward = self._terminated = self._truncated = self._final = None
        self._native = _Closed(self._name)

    def _finals(self) -> dict[str, Any]:
        """The infos of a step in which an episode ended."""
        ended = self._terminated | self._truncated
        final = self._final
        if self.copy:  # an array of objects, as Gymnasium's own vectors and wrappers have it
            rows = ended.nonzero()[0]
            final = np.full(self.num_envs, None, object)
            for i, observation in zip(rows.tolist(), self._final[rows]):
                final[i] = observation
        return {"final_obs": final, "_final_obs": ended,
                "final_info": {}, "_final_info": ended.copy()}

    def _seeds(self, seed: Any) -> list[Optional[int]]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (list, tuple, np.ndarray)):
            if len(seed) != self.num_envs:
                raise ValueError(f"{self._name}: {len(seed)} seeds, must be num_envs "
                                 f"({self.num_envs})")
            return [None if value is None else _settings.seed_of(value) for value in seed]
        first = _settings.integer("seed", seed, 0, 2**64 - self.num_envs)
        return [first + i for i in range(self.num_envs)]

    def _masked(self, mask: Any) -> Optional[list[int]]:
        """The environments of a mask; None means all."""
        if mask is None:
            return None
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,) or not array.any():
            raise ValueError(f"{self._name}: reset_mask is {array.dtype} {array.shape}, must be "
                             f"bool ({self.num_envs},) with at least one True")
        return [int(i) for i in array.nonzero()[0]]


class _Closed:
    """Takes the place of the environments after close(), so that steps need no check."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise error.ClosedEnvironmentError(f"{self._name}: the environments are closed")

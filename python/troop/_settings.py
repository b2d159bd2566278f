"""Arguments of make_env and make_vector_env: their checks, spaces and specs."""
from __future__ import annotations

import operator
from typing import Any, Optional

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from troop import _native

RENDER_MODES = ("rgb_array",)
FPS = 30  # of recorded videos; Gymnasium's own environments have 15 to 50
DTYPES: dict[str, Any] = {"f32": np.float32, "u8": np.uint8}


def integer(name: str, value: Any, lowest: int, highest: int) -> int:
    """Returns the value of an argument as an int within [lowest, highest]."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}, must be an integer") from None
    if not lowest <= number <= highest:
        raise ValueError(f"{name} is {number}, must be {lowest} to {highest}")
    return number


def real(name: str, value: Any) -> float:
    """Returns the value of an argument as a float; its range is checked in C++."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}, must be a number") from None


def seed_of(value: Any) -> int:
    """Returns a seed: 64 bits, as those of all episodes in Troop."""
    return integer("seed", value, 0, 2**64 - 1)


class Settings:
    """The options of an environment, given as keyword arguments: those that differ from Troop's
    defaults are kept for the spec."""

    def __init__(self, name: str, options: dict[str, Any], render_mode: Optional[str]) -> None:
        if not isinstance(name, str):
            raise ValueError(f"id is {name!r}, must be a text such as \"CartPole-v1\"")
        self.name = name
        self.given = {key: value for key, value in options.items() if value is not None}
        take = self.given.get
        ramping = take("difficulty_ramping", True)
        if not isinstance(ramping, (bool, np.bool_)):
            raise ValueError(f"difficulty_ramping is {ramping!r}, must be True or False")
        self.native = _native.EnvOptions(
            integer("max_episode_steps", take("max_episode_steps", -1), -1, 2**53),
            real("sticky_actions", take("sticky_actions", -1)),
            real("reward_scale", take("reward_scale", 1)),
            integer("action_repeat", take("action_repeat", 1), 1, 1000),
            bool(ramping),
        )
        self.render_mode = render_mode

    def modes(self) -> list[str]:
        """The render modes of the environment. Requires an id and options that are valid."""
        pictures = _native.has_pictures(self.name, self.native)
        modes = list(RENDER_MODES) if pictures else []
        if self.render_mode is not None and self.render_mode not in modes:
            known = ", ".join(modes) or "none"
            raise ValueError(f"{self.name}: render_mode is {self.render_mode!r}, must be None or "
                             f"one of: {known}")
        return modes

    def spec(self, made: _native.Spec) -> EnvSpec:
        """The spec with which Gymnasium makes the same environment again."""
        return EnvSpec(
            id=self.name,
            entry_point="troop:make_env",
            vector_entry_point="troop:make_vector_env",
            max_episode_steps=made["max_episode_steps"] or None,
            kwargs={"id": self.name, **self.given, "render_mode": self.render_mode},
        )


def observation_space(spec: _native.Spec) -> spaces.Box:
    """Bytes are 0 to 255; Troop declares no bounds of floats."""
    dtype = DTYPES[spec["dtype"]]
    low, high = (0, 255) if dtype is np.uint8 else (-np.inf, np.inf)
    return spaces.Box(low, high, spec["shape"], dtype)


def action_space(spec: _native.Spec) -> "spaces.Discrete | spaces.Box":
    if spec["actions"]:
        return spaces.Discrete(spec["actions"])
    return spaces.Box(np.array(spec["low"], np.float32), np.array(spec["high"], np.float32))


def picture_of(picture: tuple[int, int, bytearray]) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    height, width, data = picture
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def no_options(name: str, options: Optional[dict[str, Any]]) -> None:
    """Refuses options of a reset, which would be ignored."""
    if options:
        raise ValueError(f"{name}: reset() has no option {sorted(options)[0]!r}; remove it")

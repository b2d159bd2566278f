"""The extension module. Private: its interface is tailored to this package."""
from typing import Any, Callable, Optional, TypedDict

import numpy as np

version: str

def ids() -> list[str]: ...
def has_pictures(id: str, options: EnvOptions, /) -> bool: ...
def crc32c(data: Any, /) -> int: ...

class Spec(TypedDict):
    id: str
    dtype: str
    shape: tuple[int, ...]
    max_episode_steps: int
    actions: int
    low: list[float]
    high: list[float]

class EnvOptions:
    def __init__(self, max_episode_steps: int, sticky_actions: float, reward_scale: float,
                 action_repeat: int, difficulty_ramping: bool, /) -> None: ...

class SingleEnv:
    spec: Spec
    def __init__(self, id: str, options: EnvOptions, /) -> None: ...
    def reset(self, seed: Optional[int], observation: Any, /) -> None: ...
    def step_discrete(self, action: int, observation: Any, /) -> tuple[float, bool, bool]: ...
    def step_continuous(self, action: Any, observation: Any, /) -> tuple[float, bool, bool]: ...
    def render(self) -> tuple[int, int, bytearray]: ...

class EnvArray:
    """Part of a batch as a read-only buffer; numpy.asarray makes a view of it."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class EnvVector:
    spec: Spec
    observation: EnvArray
    final_observation: EnvArray
    reward: EnvArray
    terminated: EnvArray
    truncated: EnvArray
    def __init__(self, id: str, options: EnvOptions, size: int, threads: int, /) -> None: ...
    def reset(self, seeds: list[tuple[int, int]], indices: Optional[list[int]], /) -> None: ...
    def step(self, actions: Any, /) -> bool: ...
    def render(self, index: int, /) -> tuple[int, int, bytearray]: ...

class PolicyState:
    """The frame stacks and recurrent states of N environments."""
    environments: int

class Policy:
    shape: tuple[int, ...]
    dtype: str
    frame_stack: int
    state_size: int
    actions: int
    low: list[float]
    high: list[float]
    exploration_rate: float
    def __init__(self, path: str, convert: Callable[[Any, str], Any], /) -> None: ...
    def set_seed(self, seed: int, /) -> None: ...
    def act(self, observation: Any, state: Optional[Any], episode_start: Optional[Any],
            deterministic: bool, /) -> tuple[Any, Optional[Any]]: ...
    def q_values(self, observation: Any, mask: Optional[Any], /) -> np.ndarray[Any, Any]: ...

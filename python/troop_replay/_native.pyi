"""The extension module. Private: what it gives and takes is what the package's Python wants."""
from typing import Any, Optional

version: str

class Array:
    """Part of a batch; numpy.asarray looks into it."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Batch:
    def __len__(self) -> int: ...
    key: Array
    probability: Array
    weight: Array
    length: Array
    policy_version: Array
    observation: Array
    next_observation: Optional[Array]
    action: Array
    reward: Array
    discount: Array
    burn_in: Array
    state: Optional[Array]

class Writer:
    steps: int
    items: int
    def append(self, observation: Any, action: Any, reward: Any, terminated: Any, truncated: Any,
               next_observation: Any, state: Any, priority: Any, skip: Any, policy_version: int,
               timeout_s: float) -> None: ...
    def flush(self, timeout_s: float) -> None: ...
    def break_episode(self, environment: int) -> None: ...

class Sampler:
    def sample(self, timeout_s: float) -> Batch: ...
    def update_priorities(self, key: Any, priority: Any) -> None: ...

class LocalReplay:
    def __init__(self, table: dict[str, Any]) -> None: ...
    def writer(self, environments: int, period: int, first_stream: int,
               steps_per_push: int) -> Writer: ...
    def sampler(self, batch_size: int, beta: float, decode_threads: int) -> Sampler: ...
    def counts(self) -> dict[str, int]: ...

"""Table settings, shared by in-process replays and servers."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Protocol, Tuple, Union

import numpy as np

_TYPES = {"float32": "f32", "float64": "f64", "uint8": "u8", "uint32": "u32", "int32": "i32",
          "int64": "i64", "uint64": "u64", "bool": "u8"}
_NAMES = {name: np.dtype(numpy) for numpy, name in _TYPES.items() if numpy != "bool"}


class HasShape(Protocol):
    """An array or a Gymnasium space: anything with a shape and an element type."""

    shape: Any
    dtype: Any


@dataclasses.dataclass(frozen=True)
class Spec:
    """Element type and shape of one observation, action or state."""

    dtype: np.dtype
    shape: Tuple[int, ...] = ()

    @staticmethod
    def of(what: Union["Spec", HasShape, Tuple[Any, Tuple[int, ...]]]) -> "Spec":
        """Converts a Spec, an array, a space, or a pair (dtype, shape)."""
        if isinstance(what, Spec):
            return what
        dtype, shape = what if isinstance(what, tuple) else (what.dtype, what.shape)
        dtype = np.dtype(dtype)
        if dtype.name not in _TYPES:
            known = ", ".join(sorted(_TYPES))
            raise ValueError(f"element type is {dtype.name}, must be one of {known}")
        return Spec(dtype, tuple(int(dim) for dim in shape))

    def wire(self) -> Tuple[str, Tuple[int, ...]]:
        return _TYPES[self.dtype.name], self.shape

    @staticmethod
    def from_wire(name: str, shape: Tuple[int, ...]) -> "Spec":
        return Spec(_NAMES[name], tuple(shape))


@dataclasses.dataclass
class Table:
    """A table's settings.

    observation, action, state: a Spec, an array, a space, or (dtype, shape): of ONE frame, ONE
        step. A stack of frames is made when a batch is drawn (`stack`): write single frames.
        `state` is a recurrent network's, kept with each sequence; None: there is none.
    sequence: False: items are n-step transitions, n = `length`. True: items are sequences of up to
        `length` steps, after up to `burn_in` steps for the recurrent state.
    capacity: items; beyond it the `remover` chooses which to evict.
    min_items: nothing is drawn below.
    sampler, remover: "prioritized", "uniform", "fifo", "lifo", "lowest" or "highest".
    alpha: the exponent of priorities. `remover_alpha`: a prioritized remover's, below 0.
    codec: how frames are kept: "none", "lz4", "zstd"; "auto": lz4 from 512 bytes on.
    samples_per_insert, samples_per_insert_tolerance_rate (servers only): the limiter's target and
        its error band, as a fraction of samples_per_insert * min_items. 0: no limit.
    max_times_sampled: an item leaves with its last draw. max_policy_age: in updates. 0: no limit.
    bytes_max: of compressed frames; the oldest items leave beyond it. 0: no limit.
    """

    observation: Any
    action: Any
    name: str = "experience"
    state: Optional[Any] = None
    sequence: bool = False
    length: int = 1
    stack: int = 1
    burn_in: int = 0
    capacity: int = 100_000
    min_items: int = 1
    sampler: str = "prioritized"
    alpha: float = 0.6
    remover: str = "fifo"
    remover_alpha: float = -0.4
    reservoir: bool = False
    codec: str = "auto"
    priority_epsilon: float = 1e-6
    samples_per_insert: float = 0.0
    samples_per_insert_tolerance_rate: float = 0.1
    max_times_sampled: int = 0
    max_policy_age: int = 0
    bytes_max: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        self.observation = Spec.of(self.observation)
        self.action = Spec.of(self.action)
        if self.state is not None:
            self.state = Spec.of(self.state)
        if self.codec == "auto":
            bytes_of_frame = self.observation.dtype.itemsize * int(
                np.prod(self.observation.shape, dtype=np.int64))
            self.codec = "lz4" if bytes_of_frame >= 512 else "none"

    def fields(self) -> dict[str, Any]:
        """Returns the settings in the form that the extension module takes."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields["observation"] = self.observation.wire()
        fields["action"] = self.action.wire()
        fields.pop("state")
        if self.state is not None:
            fields["state"] = self.state.wire()
        return fields

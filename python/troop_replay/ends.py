"""Both ends of a replay: a Writer takes steps, a Sampler returns batches."""
from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np

from . import _native
from .table import Spec


class Writer:
    """Takes steps of one or more environments and makes items of them.

    Created by `LocalReplay.writer` or `Client.writer`. Threads may share it, one call at a time.

    With `environments=None` (one environment) arrays have no leading axis; with `environments=E`
    every argument has a leading axis of E, as vector environments return them.
    """

    def __init__(self, native: Any, observation: Spec, action: Spec, state: Optional[Spec],
                 environments: Optional[int], timeout_s: float):
        self._native = native
        self._specs = observation, action, state
        self._rows = () if environments is None else (environments,)
        self._timeout_s = timeout_s
        self._zeros = np.zeros(self._rows, np.uint8)
        self._ones = np.ones(self._rows, np.float32)
        self.policy_version = 0
        """Version of the weights that choose the actions; stored with items that start from now on.
        """

    def append(self, observation: Any, action: Any, reward: Any, terminated: Any = None,
               truncated: Any = None, next_observation: Any = None, *, priority: Any = None,
               state: Any = None, skip: Any = None, timeout_s: Optional[float] = None) -> None:
        """Appends a step: `action` was taken at `observation` and had these results.

        observation: [*observation]; action: [*action]; reward, terminated, truncated: scalars
            (with E environments: [E, ...] each). terminated: bootstrapping ends here; truncated:
            the episode ends, and is bootstrapped from next_observation.
        next_observation: read only where an episode ends, and needed there: the last observation
            of the episode, not the first of the next one.
        priority: of the item that starts at this step: |TD error|; default 1.
        state: [*state] before this step, for tables with a state.
        skip: [E] bool: environments that took no step (a reset instead of a step).
        Raises DeadlineExceeded if the replay accepts no more steps within `timeout_s`: the step was
        not taken then; call again.
        """
        o, a, s = self._specs
        self._native.append(
            self._array("observation", observation, o), self._array("action", action, a),
            self._column("reward", reward, np.float32), self._flags("terminated", terminated),
            self._flags("truncated", truncated),
            None if next_observation is None else
            self._array("next_observation", next_observation, o),
            None if s is None else self._array("state", state, s),
            self._ones if priority is None else self._column("priority", priority, np.float32),
            None if skip is None else self._flags("skip", skip), int(self.policy_version),
            self._timeout_s if timeout_s is None else timeout_s)

    def break_episode(self, environment: int = 0) -> None:
        """Reports that `environment` was reset before its episode ended: no item crosses the reset.
        """
        self._native.break_episode(environment)

    def flush(self, timeout_s: Optional[float] = None) -> None:
        """Sends all buffered steps, and returns when the replay has acknowledged them."""
        self._native.flush(self._timeout_s if timeout_s is None else timeout_s)

    @property
    def steps(self) -> int:
        """Number of steps taken by append."""
        return int(self._native.steps)

    @property
    def items(self) -> int:
        """Number of items made and sent so far."""
        return int(self._native.items)

    def _array(self, name: str, value: Any, spec: Spec) -> np.ndarray:
        array = np.asarray(value, spec.dtype, order="C")
        if array.shape != self._rows + spec.shape:
            raise ValueError(f"{name} has shape {array.shape}, "
                             f"must have {self._rows + spec.shape}")
        return array

    def _column(self, name: str, value: Any, dtype: Any) -> np.ndarray:
        return self._array(name, value, Spec(np.dtype(dtype)))

    def _flags(self, name: str, value: Any) -> np.ndarray:
        if value is None:
            return self._zeros
        return self._array(name, np.asarray(value, np.bool_), Spec(np.dtype(np.uint8)))


def _array_or_none(part: Any) -> Optional[np.ndarray]:
    return None if part is None else np.asarray(part)


class Batch:
    """B items of up to S steps.

    Every array is a view of one block of memory, without a copy, and keeps the whole block alive.
    When the last array is released, the block is reused. Copy arrays that you keep for long.
    """

    def __init__(self, native: Any):
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @functools.cached_property
    def key(self) -> np.ndarray:
        """[B] u64: keys of the items, for update_priorities."""
        return np.asarray(self._native.key)

    @functools.cached_property
    def probability(self) -> np.ndarray:
        """[B] f64: P(i) = p_i^alpha / sum of p^alpha over the whole table."""
        return np.asarray(self._native.probability)

    @functools.cached_property
    def weight(self) -> np.ndarray:
        """[B] f32: importance weight (N P(i))^-beta, divided by the largest of the batch."""
        return np.asarray(self._native.weight)

    @functools.cached_property
    def observation(self) -> np.ndarray:
        """[B, *observation]; with a stack: [B, stack, *observation], oldest first, zeros before an
        episode's start. For sequences: [B, F, *observation], the window of all frames, F = stack -
        1 + burn_in + length + 1: step t was acted on at column stack - 1 + burn_in + t. Columns
        before the episode's start or after the item's end are zeros."""
        return np.asarray(self._native.observation)

    @functools.cached_property
    def next_observation(self) -> Optional[np.ndarray]:
        """Shaped as `observation`: after `length[i]` steps. None for sequences."""
        return _array_or_none(self._native.next_observation)

    @functools.cached_property
    def action(self) -> np.ndarray:
        """[B, *action] of the first step. For sequences [B, S, *action]: step t, and with a burn-in
        of b the steps before it, at column b + t."""
        return np.asarray(self._native.action)

    @functools.cached_property
    def reward(self) -> np.ndarray:
        """[B, S] f32, as written; 0 after the item's last step. S = burn_in + length."""
        return np.asarray(self._native.reward)

    @functools.cached_property
    def discount(self) -> np.ndarray:
        """[B, S] f32: 0 where the step terminated its episode, else 1."""
        return np.asarray(self._native.discount)

    @functools.cached_property
    def length(self) -> np.ndarray:
        """[B] i32: steps of each item, 1 to S; fewer than S at the end of an episode."""
        return np.asarray(self._native.length)

    @functools.cached_property
    def burn_in(self) -> np.ndarray:
        """[B] i32: burn-in steps that exist before the item; fewer at the start of an episode."""
        return np.asarray(self._native.burn_in)

    @functools.cached_property
    def state(self) -> Optional[np.ndarray]:
        """[B, *state]: the recurrent state before the first step of the burn-in. None: the table
        has no state."""
        return _array_or_none(self._native.state)

    @functools.cached_property
    def policy_version(self) -> np.ndarray:
        """[B] u64: `Writer.policy_version` when the item's first step was written."""
        return np.asarray(self._native.policy_version)

    def n_step(self, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """(returns, discounts), [B] f32 each: the target of a transition is
        returns + discounts * value(next_observation)."""
        steps = self.reward.shape[1]
        # alive[:, k]: the discount of reward k.
        alive = np.ones((len(self), steps), np.float32)
        np.cumprod(self.discount[:, :-1], axis=1, out=alive[:, 1:])
        powers = np.float32(gamma) ** np.arange(steps, dtype=np.float32)
        returns = (self.reward * alive) @ powers
        discounts = alive[:, -1] * self.discount[:, -1] * np.float32(gamma) ** self.length
        return returns, discounts.astype(np.float32)


class Sampler:
    """Returns batches and takes new priorities. Created by `LocalReplay.sampler` or
    `Client.sampler`.

    Threads may share it, one call at a time. It is an iterator: `for batch in sampler:` ends
    when the replay is closed.
    """

    def __init__(self, native: Any, timeout_s: float):
        self._native = native
        self._timeout_s = timeout_s

    def sample(self, timeout_s: Optional[float] = None) -> Batch:
        """Returns the next batch. Waits for the replay's rate limiter at most `timeout_s`, then
        raises DeadlineExceeded. An in-process replay does not wait: it raises
        FailedPrecondition."""
        return Batch(self._native.sample(self._timeout_s if timeout_s is None else timeout_s))

    def update_priorities(self, key: Any, priority: Any) -> None:
        """Sets the priorities of items. key: [B] of a batch; priority: [B], |TD error| without
        scaling. Items that were evicted in the meantime are skipped; NaN, infinite and negative
        priorities are refused individually."""
        keys = np.ascontiguousarray(key, np.uint64)
        priorities = np.ascontiguousarray(priority, np.float32)
        if keys.shape != priorities.shape:
            raise ValueError(f"key has shape {keys.shape}, priority {priorities.shape}")
        self._native.update_priorities(keys, priorities)

    def __iter__(self) -> "Sampler":
        return self

    def __next__(self) -> Batch:
        from .errors import Closed  # pylint: disable=import-outside-toplevel
        try:
            return self.sample()
        except Closed:
            raise StopIteration from None

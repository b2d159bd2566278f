"""In-process replay: no server, no socket, no copy except decoding."""
from __future__ import annotations

from typing import Any, Optional

from . import _native
from .ends import Sampler, Writer
from .table import Table


class LocalReplay:
    """A table for one training script, which itself decides how often it samples.

        replay = LocalReplay(Table(observation=env.observation_space, action=env.action_space))
        writer, sampler = replay.writer(), replay.sampler(batch_size=64)

    Threads may share it; writers and samplers keep it alive.
    """

    def __init__(self, table: Table):
        self.table = table
        self._native = _native.LocalReplay(table.fields())
        self._streams = 0

    def writer(self, environments: Optional[int] = None, *, period: int = 1,
               steps_per_push: Optional[int] = None) -> Writer:
        """Creates a writer.

        environments: None: one, without a leading axis; E: arrays of [E, ...]."""
        rows = environments or 1
        steps_per_push = steps_per_push or (1 if rows == 1 else 16)
        native = self._native.writer(rows, period, self._streams, steps_per_push)
        self._streams += rows
        table = self.table
        return Writer(native, table.observation, table.action, table.state, environments, 0.0)

    def sampler(self, batch_size: int = 32, *, beta: float = 0.4,
                decode_threads: int = 0) -> Sampler:
        """Creates a sampler. beta: exponent of the importance weights. decode_threads: in addition
        to the caller's thread."""
        return Sampler(self._native.sampler(batch_size, beta, decode_threads), 0.0)

    def __len__(self) -> int:
        """Items that can be drawn."""
        return int(self.counts()["items"])

    def counts(self) -> dict[str, Any]:
        """items, frames, evicted, bytes."""
        return self._native.counts()

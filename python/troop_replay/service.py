"""A replay that many processes share: a Server holds it, Clients write to it and draw from it."""
from __future__ import annotations

import dataclasses
import os
from typing import Dict, List, Optional, Sequence, Union

from . import _native
from .ends import Sampler, Writer
from .table import Spec, Table


@dataclasses.dataclass(frozen=True)
class TableInfo:
    """What a server says of a table; `items` at the moment of asking, over all shards."""

    name: str
    observation: Spec
    action: Spec
    state: Optional[Spec]
    sequence: bool
    length: int
    stack: int
    burn_in: int
    codec: str
    capacity: int
    min_items: int
    items: int
    samples_per_insert: float
    durable: bool

    @staticmethod
    def _of(fields: dict) -> "TableInfo":
        specs = {name: Spec.from_wire(*fields[name]) if name in fields else None
                 for name in ("observation", "action", "state")}
        return TableInfo(**{**fields, **specs})


class Server:
    """Serves tables from this process, on a thread of its own that never needs Python's lock.

        with Server([table]) as server:
            client = Client(server.endpoint)

    endpoint: "tcp://host:port" (port 0: a free one; host *: all interfaces) or "ipc:///path/file".
    folder: where the tables are kept; a server that starts there goes on with them. None: in
        memory alone.
    ack: "memory": the service has an insert when it is in the table; a kill costs what came in the
        last milliseconds. "disk": when it is in the folder's files as well.
    key: file of a pair of keys (`troop keygen keys` makes keys/replay.key). All that goes over TCP
        is then encrypted, and only those connect whose keys are in the file `allowed` beside it. A
        client needs the endpoint as `server.endpoint` has it, with the server's public key behind
        "#".
    insecure: without keys an address that other machines reach is refused, unless this says that
        whoever connects there may read and change the tables.
    The program `troop replay` speaks the same protocol.
    """

    def __init__(self, tables: Sequence[Table], endpoint: str = "tcp://127.0.0.1:0", *,
                 folder: Optional[str] = None, ack: str = "memory", key: Optional[str] = None,
                 insecure: bool = False):
        if ack not in ("memory", "disk") or (ack == "disk" and folder is None):
            raise ValueError(f'ack={ack!r}: "memory", or "disk" together with a folder')
        self._native: Optional[_native.Server] = _native.Server(
            [table.fields() for table in tables], endpoint, folder or "", ack == "disk",
            os.fspath(key) if key else "", insecure)
        self.endpoint: str = self._native.endpoint
        """Where it listens, with the real port, and with keys the server's public one."""

    def close(self) -> None:
        """Stops serving. What the tables held is in their folder, or gone where there is none."""
        self._native = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class Client:
    """A connection to a replay service.

    endpoints: of a server, or of all shards of one replay in their order: batches are then drawn
        over all of them, with the probabilities of one table.
    timeout_s: how long calls wait where they are not told otherwise.
    key: file of a pair of keys, for servers on TCP that want one. It says what the client may do: a
        `tool`'s everything here, an `actor`'s only write.

    A client has one thread, which sends, receives and decodes while Python computes. Connections
    that are lost come back by themselves; what a server had not acknowledged is sent again, and
    inserted once. Not for use after a fork: start processes with "spawn", or connect in the child.
    """

    def __init__(self, endpoints: Union[str, Sequence[str]], timeout_s: float = 30.0, *,
                 key: Optional[str] = None):
        if isinstance(endpoints, str):
            endpoints = [endpoints]
        self._timeout_s = timeout_s
        self._native = _native.Client(list(endpoints), os.fspath(key) if key else "",
                                      timeout_s)

    def tables(self, timeout_s: Optional[float] = None) -> List[TableInfo]:
        """What the service holds, asked anew."""
        # pylint: disable-next=protected-access
        return [TableInfo._of(fields) for fields in self._native.tables(self._wait(timeout_s))]

    def table(self, name: str, timeout_s: Optional[float] = None) -> TableInfo:
        """One of them. Raises NotFound."""
        from .errors import NotFound  # pylint: disable=import-outside-toplevel
        tables = self.tables(timeout_s)
        for table in tables:
            if table.name == name:
                return table
        known = ", ".join(table.name for table in tables)
        raise NotFound(f"the replay has no table {name}; it has {known}")

    def stats(self, timeout_s: Optional[float] = None) -> Dict[str, float]:
        """Counters and levels of the servers, such as "replay/items", "replay/insert_blocked_s"."""
        return dict(self._native.stats(self._wait(timeout_s)))

    def reconfigure(self, table: str, *, samples_per_insert: float, ratio_error: float = 0.1,
                    min_items: int, timeout_s: Optional[float] = None) -> None:
        """Changes the limiter of a running table, on every shard."""
        self._native.reconfigure(table, samples_per_insert, ratio_error, min_items,
                                 self._wait(timeout_s))

    def writer(self, table: str, environments: Optional[int] = None, *, period: int = 1,
               steps_per_push: int = 16, window: int = 4) -> Writer:
        """environments: None: one, without a leading axis; E: arrays of [E, ...].
        period: of sequences: an item starts at every period-th step of an episode.
        steps_per_push: steps that are gathered for one message.
        window: messages that may be on their way; beyond, `append` waits for the service."""
        info = self.table(table)
        native = self._native.writer(table, environments or 1, period, steps_per_push, window)
        return Writer(native, info.observation, info.action, info.state, environments,
                      self._timeout_s)

    def sampler(self, table: str, batch_size: int = 32, *, beta: float = 0.4, prefetch: int = 4,
                decode_threads: int = 0) -> Sampler:
        """beta: exponent of the importance weights. prefetch: batches that are asked for ahead of
        need. decode_threads: beside the client's own."""
        native = self._native.sampler(table, batch_size, beta, prefetch, decode_threads)
        return Sampler(native, self._timeout_s)

    def _wait(self, timeout_s: Optional[float]) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

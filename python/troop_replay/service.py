"""Replay shared by many processes: a Server has the tables, Clients write to them and sample."""
from __future__ import annotations

import dataclasses
import os
from typing import Any, Dict, List, Optional, Sequence, Union

from . import _native
from .ends import Sampler, Writer
from .table import Spec, Table


@dataclasses.dataclass(frozen=True)
class TableInfo:
    """Description of a table at a server; `items` is summed over all shards at the time of the
    request."""

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
    def _of(fields: dict[str, Any]) -> "TableInfo":
        specs = {name: Spec.from_wire(*fields[name]) if name in fields else None
                 for name in ("observation", "action", "state")}
        return TableInfo(**{**fields, **specs})


class Server:
    """Serves tables from this process, on its own thread that never needs the GIL.

        with Server([table]) as server:
            client = Client(server.endpoint)

    endpoint: "tcp://host:port" (port 0: a free one; host *: all interfaces) or "ipc:///path/file".
    folder: where the tables are persisted; a server that starts there resumes them. None: in
        memory only.
    ack: "memory": an insert is acknowledged when it is in the table; a kill loses the last
        milliseconds. "disk": when it is in the folder's files, too.
    key: key file (`troop keygen keys` creates keys/replay.key). All TCP traffic is then encrypted,
    and
        only clients whose keys are in the file `allowed` of the same folder can connect. A client
        needs the endpoint as `server.endpoint` has it, with the server's public key after "#".
    insecure: without keys, an address that other machines can reach is refused, unless this is set;
        then any client that can connect may read and change the tables.
    The program `troop replay` implements the same protocol.
    """

    def __init__(self, tables: Sequence[Table], endpoint: str = "tcp://127.0.0.1:0", *,
                 folder: Optional[str] = None, ack: str = "memory", key: Optional[str] = None,
                 insecure: bool = False):
        if ack not in ("memory", "disk") or (ack == "disk" and folder is None):
            raise ValueError(f'ack is {ack!r}, must be "memory", or "disk" together with a folder')
        self._native: Optional[_native.Server] = _native.Server(
            [table.fields() for table in tables], endpoint, folder or "", ack == "disk",
            os.fspath(key) if key else "", insecure)
        self.endpoint: str = self._native.endpoint
        """Address with the actual port, and with the server's public key if it has one."""

    def close(self) -> None:
        """Stops serving. The tables remain in the folder; without a folder they are lost."""
        self._native = None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Client:
    """A connection to a replay service.

    endpoints: of a server, or of all shards of one replay in order: batches are then sampled over
    all
        shards, with the probabilities of a single table.
    timeout_s: default timeout of calls. key: key file, for TCP servers that require one. Its role
    limits what the client may do: a `tool`
        may do everything here, an `actor` may only write.

    A client has one thread, which sends, receives and decodes while Python computes. Lost
    connections are restored automatically; what a server had not acknowledged is sent again, and
    inserted once. Not usable after a fork: start processes with "spawn", or connect in the child.
    """

    def __init__(self, endpoints: Union[str, Sequence[str]], timeout_s: float = 30.0, *,
                 key: Optional[str] = None):
        if isinstance(endpoints, str):
            endpoints = [endpoints]
        self._timeout_s = timeout_s
        self._native = _native.Client(list(endpoints), os.fspath(key) if key else "",
                                      timeout_s)

    def tables(self, timeout_s: Optional[float] = None) -> List[TableInfo]:
        """Queries the tables of the service."""
        # pylint: disable-next=protected-access
        return [TableInfo._of(fields) for fields in self._native.tables(self._wait(timeout_s))]

    def table(self, name: str, timeout_s: Optional[float] = None) -> TableInfo:
        """Queries one table. Raises NotFound."""
        from .errors import NotFound  # pylint: disable=import-outside-toplevel
        tables = self.tables(timeout_s)
        for table in tables:
            if table.name == name:
                return table
        known = ", ".join(table.name for table in tables)
        raise NotFound(f"the replay has no table {name}; it has {known}")

    def stats(self, timeout_s: Optional[float] = None) -> Dict[str, float]:
        """Queries metrics of the servers, such as "replay/items" and "replay/insert_blocked_s"."""
        return dict(self._native.stats(self._wait(timeout_s)))

    def reconfigure(self, table: str, *, samples_per_insert: float,
                    samples_per_insert_tolerance_rate: float = 0.1, min_items: int,
                    timeout_s: Optional[float] = None) -> None:
        """Changes the rate limiter of a running table, on every shard."""
        self._native.reconfigure(table, samples_per_insert, samples_per_insert_tolerance_rate,
                                 min_items, self._wait(timeout_s))

    def writer(self, table: str, environments: Optional[int] = None, *, period: int = 1,
               steps_per_push: int = 16, window: int = 4) -> Writer:
        """Creates a writer.

        environments: None: one, without a leading axis; E: arrays of [E, ...]. period: for
        sequences: an item starts at every period-th step of an episode. steps_per_push: steps that
        are sent in one message. window: unacknowledged messages; when it is full, `append` waits
        for the service."""
        info = self.table(table)
        native = self._native.writer(table, environments or 1, period, steps_per_push, window)
        return Writer(native, info.observation, info.action, info.state, environments,
                      self._timeout_s)

    def sampler(self, table: str, batch_size: int = 32, *, beta: float = 0.4, prefetch: int = 4,
                decode_threads: int = 0) -> Sampler:
        """Creates a sampler. beta: exponent of the importance weights. prefetch: batches that are
        requested ahead. decode_threads: in addition to the client's own thread."""
        native = self._native.sampler(table, batch_size, beta, prefetch, decode_threads)
        return Sampler(native, self._timeout_s)

    def _wait(self, timeout_s: Optional[float]) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

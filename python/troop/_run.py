"""A run folder: its results, its agent, and its continuation."""
from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Mapping, Optional, Union

import numpy as np

from troop import _config, _episodes, _policy, _program


class Run:
    """A run that was started by train, by `troop train`, or in another way. Reading it changes
    nothing, also while the run is live: each property reads the files again.

    path: the run folder. Raises ValueError: it has no config.toml.
    """

    def __init__(self, path: _policy.PathLike, *, program: Optional[str] = None) -> None:
        self.path = pathlib.Path(os.path.abspath(path))
        self._program = program
        if not (self.path / "config.toml").is_file():
            raise ValueError(f"{self.path}: not a run folder (no config.toml)")

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config: the value of every key, in nested dicts."""
        return _config.parse((self.path / "config.toml").read_text(encoding="utf-8"))

    @property
    def metrics(self) -> dict[str, np.ndarray[Any, Any]]:
        """metrics.jsonl by columns of equal length: `pandas.DataFrame(run.metrics)` works. A value
        that was not known yet is NaN. A distribution has a column for each of its numbers, such as
        replay/age/p50; its octaves are left out."""
        return columns(lines_of(self.path / "metrics.jsonl"))

    @property
    def evaluations(self) -> dict[str, np.ndarray[Any, Any]]:
        """evaluations.jsonl by columns, as metrics."""
        return columns(lines_of(self.path / "evaluations.jsonl"))

    @property
    def result(self) -> Optional[dict[str, Any]]:
        """result.json; None: the run has not ended, or was killed."""
        try:
            text = (self.path / "result.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return dict(json.loads(text))

    @property
    def best(self) -> Optional[dict[str, Any]]:
        """The evaluation of the best checkpoint (evaluator.keep_best): score, episodes, updates,
        steps and unix_time; None: there is none."""
        # A better one may replace it after it was found.
        for attempt in range(_policy.ATTEMPTS):
            folder = _policy.best_checkpoint(self.path)
            if folder is None:
                return None
            try:
                state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
                break
            except FileNotFoundError:
                if attempt == _policy.ATTEMPTS - 1:
                    raise
        return {key: state[key] for key in ("score", "episodes", "updates", "steps", "unix_time")}

    def status(self) -> dict[str, Any]:
        """What `troop status --json` prints: "state", "steps", "updates", for a live run also
        "members" and "roles". Raises TrainingError."""
        program = _program.find_program(self._program)
        return dict(json.loads(_program.answer(program, ["status", str(self.path), "--json"])))

    def policy(self, best: bool = False, *, exploration_rate: float = 0.0) -> _policy.Policy:
        """The agent of the newest checkpoint, or of the best one. Raises ValueError: there is no
        such checkpoint, or the run trains a text model."""
        return _policy.load_policy(self.path, best=best, exploration_rate=exploration_rate)

    def episodes(self) -> _episodes.Episodes:
        """The recorded episodes (actor.record_episodes). Raises ValueError: there are none."""
        return _episodes.Episodes(self.path)

    def resume(self, overrides: Optional[Mapping[str, Any]] = None, /, *, progress: bool = True,
               **settings: Any) -> "Run":
        """Continues the run from its newest checkpoint until its end, and returns it. overrides and
        settings: as those of train; a finished run continues with a larger run__total_steps. Raises
        as train."""
        from troop import _training
        given = _config.joined(overrides, settings)
        with _training.resumed(self, given, progress, self._program) as task:
            _training.execute(task)
        return self

    def __repr__(self) -> str:
        return f"troop.Run({str(self.path)!r})"


def columns(lines: list[dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Rows as columns; a missing number is NaN, a missing text is "". Integers beyond 64 bits
    become floats.

    >>> columns([{"a": 1, "b": "x"}, {"a": 2.5, "c": {"p50": 3, "octaves": []}}])
    {'a': array([1. , 2.5]), 'b': array(['x', ''], dtype='<U1'), 'c/p50': array([nan,  3.])}
    """
    rows = [flat(line) for line in lines]
    names = dict.fromkeys(name for row in rows for name in row)
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        known = [value for value in values if value is not None]
        if known and all(isinstance(value, bool) for value in known) and len(known) == len(rows):
            found[name] = np.array(values, bool)
        elif any(isinstance(value, str) for value in known):
            found[name] = np.array(["" if value is None else str(value) for value in values])
        elif len(known) == len(rows) and all(isinstance(value, int) and abs(value) < 2**63
                                             for value in known):
            found[name] = np.array(values, np.int64)
        else:
            found[name] = np.array([np.nan if value is None else value for value in values],
                                   np.float64)
    return found


def flat(line: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}/"))
        elif not isinstance(value, list):
            found[prefix + name] = value
    return found


def lines_of(path: Union[str, "os.PathLike[str]"]) -> list[dict[str, Any]]:
    """The complete lines of a file; none if there is no file. A live run writes the last one."""
    try:
        with open(path, "rb") as file:
            complete = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in complete if line.strip()]

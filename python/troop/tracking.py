"""Copies runs to MLflow or Weights & Biases: config, metrics and evaluations.

    python -m troop.tracking mlflow RUN... [--uri sqlite:///mlflow.db] [--every 10]
    python -m troop.tracking wandb RUN... [--online] [--every 10]

It only reads the run folder, so it can be used during a run, after it, and on another machine; a
repeated call adds the lines since the call before. How far it came is in RUN/tracking.json. Guide:
docs/guide/watching.md.
"""
from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import re
import secrets
import sys
import time
from typing import Any, Callable, Iterator, Mapping, Optional

from troop import _run

BOOKMARKS = "tracking.json"
BATCH = 500          # values per request of MLflow, which takes at most 1,000
PARAMS = 100         # per request of MLflow
VALUE_BYTES = 6000   # of one parameter

Row = tuple[int, float, dict[str, float]]  # agent steps, seconds since 1970, values by name


def rows_of(run: _run.Run, lines: Mapping[str, int]) -> tuple[list[Row], dict[str, int]]:
    """The lines of metrics.jsonl and evaluations.jsonl after the first `lines` of each file, in the
    order of time, and the new numbers of lines. Values of an evaluation begin with "evaluation/".
    """
    began, rows, counts = _began(run), [], {}
    for file, prefix in (("metrics.jsonl", ""), ("evaluations.jsonl", "evaluation/")):
        found = _run.lines_of(run.path / file)
        counts[file] = len(found)
        for line in found[lines.get(file, 0):]:
            wall = float(line.get("wall_s") or 0)
            values = {prefix + name: float(value) for name, value in _run.flat(line).items()
                      if isinstance(value, (int, float)) and math.isfinite(value)}
            rows.append((int(line.get("steps") or 0), began + wall, values))
    rows.sort(key=lambda row: row[1])
    return rows, counts


def to_mlflow(run: _run.Run, uri: Optional[str] = None, experiment: str = "troop") -> str:
    """Copies what is new to an MLflow tracking server or database; returns MLflow's id of the run.

    uri: None: MLFLOW_TRACKING_URI, or MLflow's default.
    """
    mlflow = _package("mlflow")
    client = mlflow.MlflowClient(tracking_uri=uri)
    with Bookmark(run, f"mlflow {uri or mlflow.get_tracking_uri()} {experiment}") as mark:
        if not mark.id:
            mark.id = _new_mlflow_run(client, run, experiment)
        rows, mark.lines = rows_of(run, mark.lines)
        metrics = [mlflow.entities.Metric(_mlflow_name(name), value, int(1000 * when), steps)
                   for steps, when, values in rows for name, value in values.items()]
        for begin in range(0, len(metrics), BATCH):
            client.log_batch(mark.id, metrics=metrics[begin:begin + BATCH])
        if (result := run.result) is not None:
            ok = result.get("status") == "ok"
            client.set_terminated(mark.id, "FINISHED" if ok else "KILLED")
        return mark.id


def _new_mlflow_run(client: Any, run: _run.Run, experiment: str) -> str:
    """Makes an MLflow run with the config as parameters."""
    mlflow = _package("mlflow")
    found = client.get_experiment_by_name(experiment)
    number = found.experiment_id if found else client.create_experiment(experiment)
    made = client.create_run(number, start_time=int(1000 * _began(run)), run_name=run.name,
                             tags={"troop.folder": str(run.path), "troop.commit": _commit(run)})
    identity = str(made.info.run_id)
    params = [mlflow.entities.Param(name, str(value)[:VALUE_BYTES])
              for name, value in _config(run).items()]
    for begin in range(0, len(params), PARAMS):
        client.log_batch(identity, params=params[begin:begin + PARAMS])
    return identity


def to_wandb(run: _run.Run, project: str = "troop", online: bool = False) -> str:
    """Copies what is new to Weights & Biases; returns the id of its run.

    online: False writes wandb's own offline files below the run folder, which `wandb sync
    RUN/wandb/offline-run-*` uploads. They are complete when the process has ended, or after
    `wandb.teardown()`: wandb's own process writes them.
    """
    wandb = _package("wandb")
    with Bookmark(run, f"wandb {project} {'online' if online else 'offline'}") as mark:
        mark.id = mark.id or secrets.token_hex(4)
        rows, mark.lines = rows_of(run, mark.lines)
        session = wandb.init(project=project, name=run.name, id=mark.id, resume="allow",
                             dir=str(run.path), config=_config(run),
                             mode="online" if online else "offline",
                             settings=wandb.Settings(silent=True, console="off"))
        session.define_metric("*", step_metric="agent_steps")
        for steps, when, values in rows:
            session.log({**values, "agent_steps": steps, "_timestamp": when})
        for name, value in (run.result or {}).items():
            session.summary[f"result/{name}"] = value
        session.finish()
        return str(mark.id)


class Bookmark:
    """How far a run was copied to one place, and its id there. As a context, it is written at the
    end, so that after an error the next call repeats the same lines."""

    def __init__(self, run: _run.Run, place: str) -> None:
        self._path, self._place = run.path / BOOKMARKS, place
        kept = self._all().get(place, {})
        self.id: str = kept.get("id", "")
        self.lines: dict[str, int] = kept.get("lines", {})
        # A new run in the same folder has another start.
        self._start = _began(run)
        if kept and kept.get("start") != self._start:
            self.id, self.lines = "", {}

    def __enter__(self) -> "Bookmark":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and not self.id:
            return
        kept = self._all().get(self._place, {})
        lines = self.lines if kind is None else kept.get("lines", {})
        text = json.dumps({**self._all(), self._place: {
            "id": self.id, "lines": lines, "start": self._start}}, indent=1)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, self._path)

    def _all(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}


def _package(name: str) -> Any:
    """A package that is needed only here."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{error}; install it: pip install {name}") from None


def _provenance(run: _run.Run) -> dict[str, Any]:
    found = _run.lines_of(run.path / "provenance.jsonl")
    return found[0] if found else {}


def _began(run: _run.Run) -> float:
    """Seconds since 1970 at the first start of the run."""
    return float(_provenance(run).get("time_s") or (run.path / "config.toml").stat().st_mtime)


def _commit(run: _run.Run) -> str:
    return str(_provenance(run).get("commit") or "")


def _config(run: _run.Run) -> dict[str, Any]:
    """The resolved config by dotted keys."""
    def walk(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in table.items():
            if isinstance(value, Mapping):
                yield from walk(value, f"{prefix}{name}.")
            else:
                yield prefix + name, value
    return dict(walk(run.config, ""))


def _mlflow_name(name: str) -> str:
    """A name that MLflow takes: letters, digits, and - _ . space : /

    >>> _mlflow_name("env.speed(m,s).mean")
    'env.speed_m_s_.mean'
    """
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


def main(words: Optional[list[str]] = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m troop.tracking",
                                     description="Copy runs to MLflow or Weights & Biases.")
    parser.add_argument("to", choices=("mlflow", "wandb"))
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder")
    parser.add_argument("--uri", help="mlflow: tracking URI (MLFLOW_TRACKING_URI)")
    parser.add_argument("--project", default="troop",
                        help="experiment of MLflow, or project of wandb (troop)")
    parser.add_argument("--online", action="store_true", help="wandb: upload at once")
    parser.add_argument("--every", type=float, metavar="S",
                        help="repeat every S seconds until all runs have ended")
    options = parser.parse_args(words)
    if options.every is not None and options.every <= 0:
        parser.error(f"--every is {options.every}, must be above 0")
    copy: Callable[[_run.Run], str] = (
        (lambda run: to_mlflow(run, options.uri, options.project)) if options.to == "mlflow"
        else (lambda run: to_wandb(run, options.project, options.online)))
    try:
        runs = [_run.Run(pathlib.Path(path)) for path in options.runs]
        while True:
            ended = all([run.result is not None for run in runs])  # before the last copy
            for run in runs:
                print(f"{run.path}: {options.to} run {copy(run)}", flush=True)
            if options.every is None or ended:
                return 0
            time.sleep(options.every)
    except (ValueError, ImportError) as error:
        print(f"troop.tracking: {error}", file=sys.stderr)
        return 2
    finally:
        # Waits until wandb's process has written everything.
        if "wandb" in sys.modules:
            sys.modules["wandb"].teardown()


if __name__ == "__main__":
    sys.exit(main())

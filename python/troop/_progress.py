"""The progress of a run on one line: of a terminal, of a notebook, or now and then of a log."""
from __future__ import annotations

import sys
from typing import Any, Mapping

LOG_EVERY_S = 30.0  # where each line stays


class Progress:
    """Writes lines to standard output. Nothing where `shown` is false."""

    def __init__(self, name: str, shown: bool) -> None:
        self._name, self._shown, self._width, self._logged = name, shown, 0, -LOG_EVERY_S
        # A notebook shows a carriage return as a terminal does.
        terminal = getattr(sys.stdout, "isatty", None)
        self._rewrites = "ipykernel" in sys.modules or bool(terminal and terminal())

    def show(self, metrics: Mapping[str, Any], config: Mapping[str, Any], *, last: bool) -> None:
        """One line for a line of metrics.jsonl. last: the run has ended."""
        wall = float(metrics.get("wall_s") or 0)
        early = not self._rewrites and not last and wall - self._logged < LOG_EVERY_S
        if not self._shown or early:
            return
        self._logged = wall
        line = text_of(self._name, metrics, config)
        if self._rewrites:
            print("\r" + line.ljust(self._width), end="", flush=True)
            self._width = len(line)
        else:
            print(line, flush=True)

    def close(self) -> None:
        """Ends the line."""
        if self._width:
            print(flush=True)
            self._width = 0


def text_of(name: str, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The line: progress, speed and return, as far as they are known.

    >>> text_of("run", {"steps": 2500, "steps_per_s": 999.6, "episode_return_mean": 21.25},
    ...         {"run": {"total_steps": 10000}})
    'run: 25 %, 2,500 of 10,000 steps, 1,000 steps/s, return 21.25'
    """
    budget = config.get("run", {})
    for key, unit in (("total_steps", "steps"), ("max_updates", "updates")):
        total, done = budget.get(key) or 0, metrics.get("steps" if unit == "steps" else unit)
        if total > 0 and done is not None:
            parts = [f"{min(100, int(100 * done / total))} %", f"{done:,} of {total:,} {unit}"]
            break
    else:
        unit = "updates"
        parts = [f"{metrics.get('updates', 0):,} updates"]
    rate = metrics.get(unit + "_per_s")
    if rate:
        parts.append(f"{rate:,.0f} {unit}/s")
    for key, label in (("episode_return_mean", "return"), ("learner/loss", "loss")):
        value = metrics.get(key)
        if isinstance(value, (int, float)):
            parts.append(f"{label} {value:.4g}")
            break
    return f"{name}: " + ", ".join(parts)

"""Collects the numbers that environments report in info["metrics"] (env.metrics).

The limits and messages are those of envs/env_metrics.h.
"""

import math
import re

import numpy

NAMES_MAX = 32
NAME = re.compile(r"[A-Za-z0-9_/-]{1,64}\Z")
NUMBERS = (int, float, numpy.number, numpy.bool_)


class MetricCollector:
    """Count, mean, minimum and maximum of each name, until they are taken."""

    def __init__(self):
        self._values = {}  # name: [count, mean, min, max]; count 0: none since the last take
        self._problem = ""

    def wrap(self, step):
        """Returns a version of `step` whose info is collected."""

        def collected(action):
            answer = step(action)
            if isinstance(answer, tuple) and len(answer) == 5 and isinstance(answer[4], dict):
                metrics = answer[4].get("metrics")
                if metrics is not None:
                    self.add(metrics)
            return answer

        return collected

    def add(self, metrics):
        """Adds the numbers of one step."""
        if not isinstance(metrics, dict):
            kind = type(metrics).__name__
            return self._complain(f'info["metrics"] is a {kind}, must be a dict of numbers')
        for name, value in metrics.items():
            if not isinstance(name, str) or not NAME.match(name):
                self._complain(
                    f"the metric name {name!r:.80} must have 1 to 64 letters, digits, _, - and /; "
                    "rename it")
                continue
            if isinstance(value, numpy.ndarray) and value.ndim == 0:
                value = value[()]
            if not isinstance(value, NUMBERS) or isinstance(value, numpy.complexfloating):
                self._complain(
                    f"metric {name} is a {type(value).__name__}, must be a number; convert it")
                continue
            self._add(name, value)

    def _add(self, name, value):
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            return self._complain(
                f"metric {name} is {value}, must be finite; leave it out where it has no value")
        one = self._values.get(name)
        if one is None:
            if len(self._values) >= NAMES_MAX:
                return self._complain(
                    f"metric {name} is the {len(self._values) + 1}th name, at most {NAMES_MAX} are "
                    "kept; report fewer")
            one = self._values[name] = [0, 0.0, 0.0, 0.0]
        one[0] += 1
        one[1] += (value - one[1]) / one[0]
        one[2] = value if one[0] == 1 else min(one[2], value)
        one[3] = value if one[0] == 1 else max(one[3], value)
        return None

    def _complain(self, problem):
        self._problem = self._problem or problem[:250]

    def take(self):
        """The answer to the owner. Names stay known, so that their number is limited."""
        values = {name: list(one) for name, one in self._values.items() if one[0] > 0}
        for one in self._values.values():
            one[:] = [0, 0.0, 0.0, 0.0]
        return {"metrics": values, "problem": self._problem}

"""Curves over seeds: mean, bootstrap interval, and a plot."""
import random
import statistics

import harness

GRID = 40            # points per curve
RESAMPLES = 10_000   # for the bootstrap


def interval(values):
    """95 % interval of the mean, by bootstrap: percentiles of the means of resamples."""
    rng = random.Random(1)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def value_at(curve, steps):
    """Interpolates between evaluations; constant before the first and after the last."""
    if steps <= curve[0][0]:
        return curve[0][1]
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if x0 <= steps <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (steps - x0) / (x1 - x0)
    return curve[-1][1]


def mean_curve(runs, steps):
    """Mean curve up to `steps`; runs: dictionaries with a `curve`."""
    points = [steps * i / GRID for i in range(GRID + 1)]
    return [(x, statistics.fmean(value_at(run["curve"], x) for run in runs)) for x in points]


def draw(build, path, title, lines):
    """lines: {name: [(steps, value), …]}"""
    words = []
    for name, curve in lines.items():
        words += [name, ",".join(f"{x:.0f}:{y:.3f}" for x, y in curve)]
    harness.run_program([build / "bench/sharding_bench", "plot", path, title, "agent steps",
                         "return", *words])
    harness.say(f"wrote {path}")

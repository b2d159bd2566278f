#!/usr/bin/env python3
"""Writes the statistics that rliable computes of random scores to tests/fixtures/sweep.

    pip install rliable==1.2.0 numpy==2.4.6 scipy==1.17.1 arch==7.2.0 "pandas<3"
    tools/make_sweep_fixtures.py

`interquartile_mean.json` has a list of cases:

    scores     one list per task (stratum), each with the scores of its runs
    iqm        rliable.metrics.aggregate_iqm: scipy.stats.trim_mean of all scores with 0.25
    low, high  95 % interval: rliable.library.get_interval_estimates, percentile bootstrap that
               resamples the runs of each task, with REPEATS resamples
    spread     standard error of low and high with 10,000 resamples: standard deviation of the
               bounds over 10 bootstraps of a fifth of that size, divided by the root of 5
"""

import json
import pathlib

import numpy as np
from rliable import library, metrics

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/sweep"
REPEATS = 50_000
SHAPES = ((3, 1), (5, 1), (8, 1), (20, 1), (5, 4), (10, 3))  # runs, tasks


def interval(scores, repeats, seed):
    _, bounds = library.get_interval_estimates(
        {"a": scores}, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=repeats,
        random_state=np.random.RandomState(seed))
    return bounds["a"][:, 0]


def case(index, runs, tasks):
    random = np.random.RandomState(100 + index)
    # Tasks differ in scale, and some runs are outliers, which the interquartile mean cuts off.
    scores = random.normal(size=(runs, tasks)) * (1 + np.arange(tasks)) + 3 * np.arange(tasks)
    scores += (random.uniform(size=scores.shape) < 0.1) * 30
    scores = np.round(scores, 3)
    low, high = interval(scores, REPEATS, 1)
    small = np.array([interval(scores, 2_000, 2 + i) for i in range(10)]) / np.sqrt(5)
    return {"scores": scores.T.tolist(), "iqm": float(metrics.aggregate_iqm(scores)),
            "low": float(low), "high": float(high), "spread": float(small.std(axis=0).max())}


def main():
    cases = [case(i, *shape) for i, shape in enumerate(SHAPES)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "interquartile_mean.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()

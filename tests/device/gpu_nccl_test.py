"""gpu_nccl, which tries a real NCCL on a GPU, over the simulated one: what it says of a library
that does as it should, and of some that don't.

Usage: gpu_nccl_test.py PROGRAM LIBRARY holds|refused|wrong|hangs|absent
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

CASES_MIN = 13   # with one emulated GPU


def run(library, orders, *words):
    """(exit code, lines of JSON by state, with those of speeds as "measured")."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "lines"
        done = subprocess.run(
            [sys.argv[1], "--nccl", library, "--driver", sys.argv[2], "--json", file, *words],
            env={**os.environ, "NCCL_SIM_ORDERS": orders}, check=False, timeout=100)
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    states = {}
    for line in lines:
        states.setdefault(line.get("state", "measured"), []).append(line)
    return done.returncode, states


def holds(library):
    code, states = run(library, "")
    assert code == 0 and not states.get("failed"), states
    assert len(states["passed"]) >= CASES_MIN and not states.get("skipped"), states
    measured = {line["case"]: line["value"] for line in states["measured"]}
    assert set(measured) == {"nccl_all_reduce_100MB_1", "nccl_all_reduce_100MB_2_on_one_gpu"}
    assert min(measured.values()) > 0, measured


def refused(library):
    """A library that takes one rank a GPU is skipped with its own words."""
    code, states = run(library, "one_rank_a_device=1")
    assert code == 0 and not states.get("failed"), states
    assert len(states["skipped"]) == 6, states
    for line in states["skipped"]:
        assert line["case"].startswith("TwoRanksOnAGpu."), line
        assert "Duplicate GPU detected" in line["detail"], line


def wrong(library):
    """A bit of each result is another: every case that looks at results fails."""
    code, states = run(library, "spoil=1")
    assert code == 1, states
    failed = {line["case"]: line["detail"] for line in states["failed"]}
    assert "has a different byte" in failed["OneRank.OperationsGiveWhatLoopsGive"], failed
    assert "sum of buckets" in failed["OneRank.BucketsAreSummedWhileTheStreamGoesOn"], failed
    assert "sums of steps" in failed["TwoRanksOnAGpu.AStreamGoesOnBehindASum"], failed
    assert "TwoRanksOnAGpu.ADeathEndsAWaitAndTheOthersGoOn" in failed, failed


def hangs(library):
    """An abort that takes longer than 10 s is a failure."""
    part = "OneRank.AnAbort"
    code, states = run(library, "abort_delay_ms=12000", part)
    assert code == 1, states
    assert "did not end within 10 s" in states["failed"][0]["detail"], states


def absent(library):
    """One that was named must be there."""
    code, states = run(library + ".absent", "")
    assert code == 1 and "cannot load" in states["failed"][0]["detail"], states


def main():
    tests = {"holds": holds, "refused": refused, "wrong": wrong, "hangs": hangs, "absent": absent}
    tests[sys.argv[3]](sys.argv[2])


main()

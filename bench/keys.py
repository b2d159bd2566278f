"""Suite `fleet`: cost of encryption for a whole run."""
import pathlib
import tempfile
import time

import harness
import runs
from harness import BenchError, say


def run(build, quick, machine):
    """Agent steps per second with keys relative to without, both over TCP on one machine, in turn.
    Each run must complete all its steps."""
    ours = {}
    steps = runs.E2E_QUICK_STEPS if quick else runs.E2E_STEPS
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="troop-bench-keys-") as folder:
        keys = pathlib.Path(folder) / "keys"
        harness.run_program([build / "troop", "keygen", keys], cores=1)
        for turn in range(harness.ROUNDS):
            begin = time.monotonic()
            rates = []
            for more in ({}, {"security.keys": f'"{keys}"'}):
                result = runs.train(build, runs.E2E_CONFIG, 1001 + turn,
                                    **{"run.total_steps": steps, "fleet.transport": '"tcp"',
                                       **more})
                if result["steps"] != steps:
                    raise BenchError(f"{result['steps']} steps, not {steps}")
                rates.append(result["steps"] / result["wall_s"])
            plain, encrypted = rates
            runs.add(ours, "MinAtar Breakout", "share_of_throughput_with_keys", "share",
                     encrypted / plain, "higher")
            now = time.monotonic()
            say(f"fleet: round {turn + 1}: {plain:.0f} steps/s, with keys {encrypted:.0f}")
            if quick and (now - start) + (now - begin) > harness.QUICK_BUDGET_S:
                break
    return harness.pair("fleet", ours, {}, machine)

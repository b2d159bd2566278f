#!/usr/bin/env python3
"""Measures whether a GPU learner waits for batches: a run over the replay service, on one machine.

bench/gpu_service.py PROGRAM PLUGIN [--seconds S] [--json FILE] [KEY=VALUE ...]

PROGRAM: troop, built with CUDA. PLUGIN: gpu_frames.so. Trains with bench/gpu_service.toml and
the keys, skips the first updates, measures for S seconds, and ends the run. Prints two rows, and
writes them as JSON lines: the learner's share of time within updates, and updates per second.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = pathlib.Path(__file__).resolve().parent / "gpu_service.toml"
CASE = "service_nature_512_bf16"
DEMANDED_BUSY = 0.9
PARTS = 3          # parts of the time, for the spread
PATIENCE_S = 40    # until the first updates: start of the roles, replay fill, graph capture
CORES_OF_OTHERS = 4    # actor, replay, coordinator and the learner's main thread


def lines_of(path):
    """Parses JSON lines of a file that is being written: the last line may be incomplete."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def learning(path):
    return [line for line in lines_of(path)
            if line.get("learner/updates", 0) > 0 and "learner/busy_s" in line]


def last_words(run, output):
    """Reason of a failed run: a role's last error, else its own last line."""
    text = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    errors = [line for log in sorted(run.glob("logs/*.log"))
              for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
              if " E " in line[:40]]  # after date and time
    return (errors or text or ["no output"])[-1]


def end(process):
    """Stops a run in an orderly way within a time limit; roles are in its process group."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def watch(process, metrics, seconds):
    """Metrics lines from the first updates on, without their first second."""
    deadline = time.monotonic() + PATIENCE_S
    while not learning(metrics):
        if process.poll() is not None or time.monotonic() > deadline:
            return []
        time.sleep(0.1)
    begin = learning(metrics)[0]["wall_s"] + 1
    deadline = time.monotonic() + seconds + 5
    while time.monotonic() < deadline and process.poll() is None:
        lines = [line for line in learning(metrics) if line["wall_s"] >= begin]
        if lines and lines[-1]["wall_s"] - lines[0]["wall_s"] >= seconds:
            return lines
        time.sleep(0.1)
    return [line for line in learning(metrics) if line["wall_s"] >= begin]


def rates(lines, name):
    """Growth per second: over all of the time, and the spread of its parts."""
    def rate(some):
        return (some[-1][name] - some[0][name]) / (some[-1]["wall_s"] - some[0]["wall_s"])

    size = max(1, len(lines) // PARTS)
    parts = [rate(lines[at:at + size + 1]) for at in range(0, size * PARTS, size)
             if len(lines[at:at + size + 1]) > 1]
    whole = rate(lines)
    return whole, (max(parts) - min(parts)) / whole if whole > 0 else 0


def train(folder, program, plugin, seconds, keys):
    """Runs and returns the metrics lines. Raises RuntimeError with the reason if there are none."""
    threads = max(0, min(8, (os.cpu_count() or 1) - CORES_OF_OTHERS))
    run = folder / "runs/gpu_service"
    with open(folder / "output", "w", encoding="utf-8") as output:
        with subprocess.Popen(
                [str(program), "train", str(CONFIG), "--plain", f"log.dir={folder / 'runs'}",
                 f"env.plugin={pathlib.Path(plugin).resolve()}",
                 f"replay.decode_threads={threads}", *keys],
                stdout=output, stderr=output, cwd=folder, start_new_session=True) as process:
            try:
                lines = watch(process, run / "metrics.jsonl", seconds)
            finally:
                end(process)
    if len(lines) < 2:
        raise RuntimeError(last_words(run, folder / "output"))
    return lines


def measure(program, plugin, seconds, keys=()):
    """Returns the two rows. Errors: those of train."""
    with tempfile.TemporaryDirectory() as name:
        lines = train(pathlib.Path(name), program.resolve(), plugin, seconds, keys)
    busy, busy_spread = rates(lines, "learner/busy_s")
    updates, updates_spread = rates(lines, "learner/updates")
    row = {"case": CASE, "better": "higher", "samples": PARTS}
    return [{**row, "metric": "busy", "unit": "busy", "value": busy, "spread": busy_spread,
             "demanded": DEMANDED_BUSY},
            {**row, "metric": "updates", "unit": "1/s", "value": updates,
             "spread": updates_spread}]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("plugin", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("keys", nargs="*")
    options = parser.parse_intermixed_args()
    try:
        rows = measure(options.program, options.plugin, options.seconds, options.keys)
    except (OSError, RuntimeError) as error:
        print(f"gpu_service: {error}", file=sys.stderr)
        return 1
    for row in rows:
        print(f"{row['case']:44} {row['metric']:12} {row['value']:12.5g} {row['unit']}")
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

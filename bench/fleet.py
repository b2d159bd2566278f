"""Runs `troop train` with its roles, for suites that measure processes."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import harness
from harness import ROOT, BenchError

PATIENCE_S = 60.0
POLL_S = 0.01
METRICS_BYTES = 1 << 16   # read from the end: more than one line
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def children_of(process):
    path = pathlib.Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in path.read_text(encoding="ascii").split()]


def role_of(process):
    """Role name of a process, such as "actor-0"; None: not a role, or exited."""
    try:
        words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return None
    if len(words) < 5 or words[1] != "role":
        return None
    return f"{words[2]}-{words[words.index('--index') + 1]}"


def resident_bytes(process):
    try:
        text = pathlib.Path(f"/proc/{process}/statm").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(text.split()[1]) * PAGE_BYTES


def cpu_seconds(process):
    """CPU seconds of a process and of its live descendants."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii")
        family = children_of(process)
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / CLOCK_TICKS + sum(map(cpu_seconds, family))


class Fleet:
    """A `troop train` with its roles, stopped at the end of the block."""

    def __init__(self, build, config, python_path="", **overrides):
        self.build = build
        self.folder = tempfile.TemporaryDirectory(prefix="troop-bench-")
        self.run = pathlib.Path(self.folder.name) / "bench"
        keys = {"name": '"bench"', "log.dir": f'"{self.folder.name}"', **overrides}
        self.process = subprocess.Popen(
            [build / "troop", "train", ROOT / config, "--plain",
             *(f"{key}={value}" for key, value in keys.items())],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(python_path)})

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()
        self.folder.cleanup()

    def stop(self):
        """Stops in an orderly way, which writes a last checkpoint."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired as error:
                self.process.kill()
                self.process.wait()
                raise BenchError("the fleet did not stop on request") from error

    def roles(self):
        """Live roles: {"actor-0": process, …}."""
        named = {role_of(child): child for child in children_of(self.process.pid)}
        return {name: process for name, process in named.items() if name}

    def log(self):
        path = self.run / "logs/launcher.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def await_log(self, after, *patterns):
        """Seconds until each of the patterns, in turn, appears in the log after `after` characters.
        """
        begin = time.monotonic()
        times = []
        for pattern in patterns:
            while (match := re.compile(pattern).search(self.log(), after)) is None:
                if time.monotonic() - begin > PATIENCE_S or self.process.poll() is not None:
                    raise BenchError(f"not found in the launcher's log: {pattern}")
                time.sleep(POLL_S)
            after = match.start()
            times.append(time.monotonic() - begin)
        return times

    def metrics(self):
        """Newest line of the metrics; {}: none yet."""
        path = self.run / "metrics.jsonl"
        if not path.exists():
            return {}
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - METRICS_BYTES))
            lines = file.read().splitlines()
        for line in reversed(lines):
            try:
                return json.loads(line)
            except ValueError:
                continue
        return {}

    def metric(self, name):
        return self.metrics().get(name, 0)

    def steps(self):
        """Agent steps and the run's clock."""
        metrics = self.metrics()
        return metrics.get("steps", 0), metrics.get("wall_s", 0.0)

    def await_steps(self, steps):
        begin = time.monotonic()
        while self.steps()[0] < steps:
            if time.monotonic() - begin > PATIENCE_S or self.process.poll() is not None:
                raise BenchError(f"the fleet did not reach {steps} steps: {self.log()[-300:]}")
            time.sleep(0.1)

    def resident_bytes(self):
        """Memory of the launcher and all roles."""
        return sum(map(resident_bytes, [self.process.pid, *self.roles().values()]))

    def score(self):
        """Mean return of the newest checkpoint. REQUIRES: stopped."""
        text = harness.run_program([self.build / "troop", "eval", self.run, "--json"], cores=2)
        return harness.parse_lines(text)[0]["return_mean"]

"""Part `slurm` of the suite `fleet`: four Slurm nodes (tests/system/fleetbed.sh), one of which
fails."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import harness
import runs
from harness import ROOT, BenchError, say

CONFIG = ROOT / "bench/faults_cartpole.toml"
PATIENCE_S = 90.0
POLL_S = 0.02
WARM_S = 8.0         # of learning before the rate is measured
RATE_S = 3.0         # interval of a rate measurement
FULL = 0.9           # recovered: share of the survivors' previous rate
NODES = 4


class Cluster:
    """Four nodes on this machine with one troop job; ended with the block."""

    def __init__(self, build):
        self.folder = tempfile.TemporaryDirectory(prefix="troop-bench-slurm-")
        self.path = pathlib.Path(self.folder.name)
        self.bed = self.path / "bed"
        self.bed.mkdir()
        self.run = self.path / "bench"
        self.count = 0
        self.process = subprocess.Popen(
            ["bash", ROOT / "tests/system/fleetbed.sh", self.bed], stdin=subprocess.PIPE, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.await_for(lambda: (self.bed / "ready").exists(), "the nodes are idle")
        keys = {"name": '"bench"', "log.dir": f'"{self.path}"', "slurm.nodes": NODES,
                "fleet.actors": NODES, "log.metrics_every_s": 0.1, "checkpoint.every_s": 2,
                "evaluator.enabled": "false"}
        words = " ".join(f"'{key}={value}'" for key, value in keys.items())
        self.command(f"on n1 {build / 'troop'} train {CONFIG} {words} --engine slurm")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def await_for(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                raise BenchError(f"fleet: timed out waiting until {what}: {self.log()[-500:]}")
            time.sleep(POLL_S)

    def command(self, line):
        self.count += 1
        self.process.stdin.write(f"{self.count} {line}\n")
        self.process.stdin.flush()
        code = self.bed / f"{self.count}.rc"
        self.await_for(code.exists, f"{line} ends")
        text = (self.bed / f"{self.count}.out").read_text(encoding="utf-8")
        if int(code.read_text(encoding="ascii")) != 0:
            raise BenchError(f"fleet: {line}: {text}")
        return text

    def log(self):
        path = self.run / "logs/launcher.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def now(self):
        """Agent steps, updates and the run's clock, from the newest line of metrics."""
        path = self.run / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in reversed(lines):
            try:
                metrics = json.loads(line)
                return metrics["steps"], metrics.get("learner/updates", 0), metrics["wall_s"]
            except ValueError:
                continue
        return 0, 0, 0.0

    def rate(self, seconds):
        """Agent steps per second from now on."""
        steps, _, wall = self.now()
        self.await_for(lambda: self.now()[2] >= wall + seconds, "metrics are written")
        steps_then, _, wall_then = self.now()
        return (steps_then - steps) / (wall_then - wall)

    def node_of(self, role):
        """Node of a role by the launcher's newest line about it: "n2"."""
        begun = [line for line in self.log().splitlines() if f"{role} starts on " in line]
        return begun[-1].rpartition(" ")[2]


def lose_actors(cluster):
    """Seconds until the survivors reach their full rate. Node 4 has only actors."""
    before = cluster.rate(RATE_S)
    cluster.command("kill_node 4")
    begin = time.monotonic()
    least = FULL * before * (NODES - 1) / NODES
    while True:
        since = time.monotonic() - begin
        if cluster.rate(1.0) >= least:
            return since, before
        if since > PATIENCE_S:
            raise BenchError("fleet: the survivors did not reach their full rate again")


def lose_role(cluster, role):
    """Seconds until updates continue after the node of a role failed."""
    node = cluster.node_of(role)
    cluster.command(f"kill_node {node[1:]}")
    begin = time.monotonic()
    # Pending work ends; then nothing happens until the role runs again.
    cluster.await_for(lambda: cluster.log().count(f"{role} starts on ") > 1, f"{role} starts again")
    updates = cluster.now()[1]
    cluster.await_for(lambda: cluster.now()[1] > updates + 1, "updates continue")
    return time.monotonic() - begin


def run(build, quick, machine):
    if shutil.which("slurmctld", path="/usr/sbin:/usr/bin") is None:
        say("fleet: slurmctld is absent (Debian: slurmctld slurmd slurm-client iproute2)")
        return []
    ours = {}
    for turn in range(1 if quick else harness.ROUNDS):
        with Cluster(build) as cluster:
            cluster.await_for(lambda: cluster.now()[1] > 100, "updates are made")
            time.sleep(WARM_S)
            seconds, rate = lose_actors(cluster)
            runs.add(ours, "four Slurm nodes, one dies", "actors_full_rate_again_s", "s", seconds,
                     "lower")
            say(f"fleet: round {turn + 1}: {rate:.0f} steps/s; full rate {seconds:.1f} s after")
        for role in ("replay", "learner"):
            with Cluster(build) as cluster:
                cluster.await_for(lambda: cluster.now()[1] > 100, "updates are made")
                time.sleep(WARM_S)
                seconds = lose_role(cluster, f"{role}-0")
                runs.add(ours, "four Slurm nodes, one dies", f"{role}_runs_again_s", "s", seconds,
                         "lower")
                say(f"fleet: round {turn + 1}: the {role} runs again {seconds:.1f} s after")
    return harness.pair("fleet", ours, {}, machine)

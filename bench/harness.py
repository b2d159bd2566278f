"""Shared by all suites: running programs in turn, pairing their lines, statistics, rows."""
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIME_UNITS = ("s", "ms", "us", "ns")
QUICK_BUDGET_S = 50.0        # of 60; the rest is for startup and the machine's probes
ROUNDS = 5
QUICK_ROUNDS_MIN = 2
CHECKS = ("check", "play")   # verification of a row: equal input, or long random play
CHECK_TOLERANCE = 1e-5
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                    "NUMEXPR_NUM_THREADS")


class BenchError(Exception):
    """An error that the user can fix; its text is one line."""


@dataclasses.dataclass
class Side:
    """Output of one side for one case and metric, over all rounds."""
    unit: str
    better: str
    values: list = dataclasses.field(default_factory=list)
    checks: dict = dataclasses.field(default_factory=dict)   # "check", "play": a list per round
    tolerance: dict = dataclasses.field(default_factory=dict)
    peer: str | None = None
    peer_version: str | None = None


def say(text):
    print(text, file=sys.stderr, flush=True)


def peers_python():
    """Interpreter of the peers' environment, or None."""
    path = pathlib.Path(os.environ.get("TROOP_PEERS_PYTHON", ROOT / "build/peers/bin/python"))
    return path if path.exists() else None


def start_environment(threads):
    environment = dict(os.environ)
    for variable in THREAD_VARIABLES:
        environment[variable] = str(threads)
    environment.setdefault("CUDA_VISIBLE_DEVICES", "")   # compare on the CPU
    return environment


def run_program(command, cores=None, threads=1, timeout=3600, variables=None):
    """Runs a program and returns its standard output. cores: number it may use; threads: of its
    OpenMP; variables: additional environment variables."""
    def pin():
        if cores is not None:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    try:
        run = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                             timeout=timeout, preexec_fn=pin, check=False, cwd=ROOT,
                             env={**start_environment(threads), **(variables or {})})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"{command[0]}: {error}") from error
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"{' '.join(map(str, command))} exited with {run.returncode}: {last}")
    return run.stdout


def plain_config(path):
    """A config file without its comments: text that changes when a value does."""
    lines = path.read_text(encoding="utf-8").splitlines()
    plain = [line.split("  #")[0].rstrip() for line in lines if not line.startswith("#")]
    return "\n".join(line for line in plain if line)


def parse_lines(text):
    """The JSON objects among the lines of `text`."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def better_of(line):
    return line.get("better") or ("lower" if line["unit"] in TIME_UNITS else "higher")


def collect(lines, into):
    """Adds a program's lines to {(case, metric, peer): Side}."""
    for line in lines:
        key = (line["case"], line["metric"], line.get("peer"))
        side = into.setdefault(key, Side(unit=line["unit"], better=better_of(line),
                                         peer=line.get("peer"),
                                         peer_version=line.get("peer_version")))
        side.values += [float(value) for value in line["values"]]
        for name in CHECKS:
            if line.get(name) is not None:
                side.checks.setdefault(name, []).append(line[name])
                side.tolerance[name] = max(side.tolerance.get(name, CHECK_TOLERANCE),
                                           line.get(f"{name}_tolerance", 0))


def near(ours, peer, tolerance):
    scale = max([abs(x) for x in ours + peer] + [1e-30])
    return len(ours) == len(peer) and all(
        abs(a - b) <= tolerance * scale for a, b in zip(ours, peer))


def agree(ours, peer):
    """True or False: both printed a check, and it is (not) equal in all rounds; None: nothing to
    compare."""
    common = ours.checks.keys() & peer.checks.keys()
    if not common:
        return None
    return all(near(a, b, max(ours.tolerance[name], peer.tolerance[name]))
               for name in common for a in ours.checks[name] for b in peer.checks[name])


def spread(values):
    """Interquartile range over the median."""
    median = statistics.median(values)
    if len(values) < 2 or median == 0:
        return 0.0
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return abs((quarters[2] - quarters[0]) / median)


def significant(value, digits=4):
    return None if value is None else float(f"{value:.{digits}g}")


def make_row(suite, case, metric, ours, peer, machine):
    """Makes one row; peer is a Side or None."""
    value = statistics.median(ours.values)
    row = {"suite": suite, "case": case, "metric": metric, "unit": ours.unit,
           "value": significant(value), "spread": significant(spread(ours.values), 2),
           "samples": len(ours.values), "peer": None, "peer_version": None, "peer_value": None,
           "ratio": None, "verified": None, "machine": machine}
    if peer is None:
        return row
    if peer.unit != ours.unit:
        raise BenchError(f"{suite} {case} {metric}: unit {ours.unit}, {peer.peer}'s {peer.unit}")
    peer_value = statistics.median(peer.values)
    row.update(peer=peer.peer, peer_version=peer.peer_version, peer_value=significant(peer_value),
               verified=agree(ours, peer))
    if row["verified"] is not False and value and peer_value:
        ratio = peer_value / value if ours.better == "lower" else value / peer_value
        row["ratio"] = significant(ratio, 3)
    return row


def pair(suite, ours, peers, machine):
    """Rows of all our cases, each with every peer that has it, or with none."""
    rows = []
    for (case, metric, _), side in ours.items():
        matching = [peer for key, peer in peers.items() if key[:2] == (case, metric)]
        for peer in matching or [None]:
            rows.append(make_row(suite, case, metric, side, peer, machine))
    return rows


def take_turns(suite, program, peer_script, quick, machine, cores=1, python=None):
    """Runs ours and the peer in turn for ROUNDS rounds; with quick, as many as fit, at least two.
    python: interpreter or program that starts the peer; None: the peers' environment.
    peer_script: None: no peer."""
    flags = ["--quick"] if quick else []
    python = python or peers_python()
    ours, peers = {}, {}
    if peer_script is None:
        say(f"{suite}: peer absent: see bench/README.md")
        python = None
    elif python is None or not peer_script.exists():
        say(f"{suite}: peer absent: bench/run --install-peers")
        python = None
    start = time.monotonic()
    for turn in range(ROUNDS):
        begin = time.monotonic()
        collect(parse_lines(run_program([program, *flags], cores=cores)), ours)
        if python:
            try:
                collect(parse_lines(run_program([python, peer_script, *flags], cores=cores)),
                        peers)
            except BenchError as error:
                say(f"{suite}: peer absent: {error}")
                python, peers = None, {}
        now = time.monotonic()
        say(f"{suite}: round {turn + 1} of {ROUNDS}, {now - begin:.1f} s")
        enough = turn + 1 >= QUICK_ROUNDS_MIN
        if quick and enough and (now - start) + (now - begin) > QUICK_BUDGET_S:
            break
    return pair(suite, ours, peers, machine)


def probe(build):
    """Measured speed of the machine and the date: every row has it, so that rows can be compared.
    """
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                            check=False, cwd=ROOT).stdout.strip()
    machine = {"cpu": model, "cores": len(os.sched_getaffinity(0)),
               "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit or None}
    for line in parse_lines(run_program([build / "bench/probe_bench", "--quick"], cores=1)):
        machine[line["case"]] = significant(statistics.median(line["values"]), 3)
    return machine

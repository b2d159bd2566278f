"""Suite `fleet`: many actors, many members, and the cost of encryption for a whole run."""
import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import time

import fleet
import harness
import keys
import slurm
import runs
from fleet import Fleet
from harness import BenchError, say

CONFIG = "bench/faults_cartpole.toml"
ACTORS = 64
MEMBERS, QUICK_MEMBERS = 1000, 200
TICK_S = 1 / fleet.CLOCK_TICKS


def first_push(run, actors):
    """Time at which the last of the actors logged that the replay has its first experience; None:
    not yet."""
    times = []
    for index in range(actors):
        path = run / f"logs/actor-{index}.log"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        match = re.search(r"^(\S+ \S+) I .*the replay has the first experience", text, re.MULTILINE)
        if match is None:
            return None
        times.append(datetime.datetime.fromisoformat(match.group(1)).replace(
            tzinfo=datetime.timezone.utc))
    return max(times).timestamp()


def start(build, quick, ours):
    """Seconds from the command to the first push of the last actor."""
    for turn in range(2 if quick else harness.ROUNDS):
        begin = time.time()
        with Fleet(build, CONFIG, **{"fleet.actors": ACTORS, "replay.persist": "false",
                                     "replay.durability": '"memory"'}) as run:
            last = None
            while last is None:
                if time.time() - begin > fleet.PATIENCE_S or run.process.poll() is not None:
                    raise BenchError(f"not all actors have pushed: {run.log()[-300:]}")
                time.sleep(0.05)
                last = first_push(run.run, ACTORS)
            say(f"fleet: round {turn + 1}: {ACTORS} actors push after {last - begin:.2f} s")
            runs.add(ours, f"{ACTORS} actors", "first_push_of_the_last", "s", last - begin)


def own_cpu_seconds(process):
    """CPU seconds of a single process."""
    text = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    return sum(map(int, text.rpartition(")")[2].split()[11:13])) * TICK_S


def read_line(clients):
    line = clients.stdout.readline()
    if not line:
        raise BenchError("fleet_bench exited early")
    return json.loads(line)


def coordinator(build, quick, ours):
    """CPU share of a small run's launcher with and without many more members, and the time until it
    reports one that dies."""
    members = QUICK_MEMBERS if quick else MEMBERS
    case = f"{members} members"
    with Fleet(build, CONFIG, **{"fleet.actors": 1, "fleet.listen": '"tcp://127.0.0.1:0"',
                                 "replay.persist": "false",
                                 "replay.durability": '"memory"'}) as run:
        run.await_steps(2000)
        process = run.process.pid
        alone = cpu_share(process, 5)
        endpoint = json.loads((run.run / "run.json").read_text(encoding="utf-8"))["coordinator"]
        with subprocess.Popen([build / "bench/fleet_bench", endpoint, str(members)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as clients:
            begin = time.monotonic()
            told = read_line(clients)
            say(f"fleet: {told['registered']} registered after {time.monotonic() - begin:.1f} s")
            runs.add(ours, case, "registered", "s", time.monotonic() - begin)
            time.sleep(3)
            seconds = 5 if quick else 20
            shares = [cpu_share(process, seconds) for _ in range(3)]
            after = len(run.log())
            os.kill(told["victim_process"], signal.SIGKILL)
            named, = run.await_log(after, rf"{told['victim']} (disconnected|left:|\(process)")
            clients.stdin.close()
            end = read_line(clients)
            clients.wait(fleet.PATIENCE_S)
        if end["silence_max_s"] > 5:
            raise BenchError(f"a member had no answer for {end['silence_max_s']} s")
    share = statistics.median(shares)
    say(f"fleet: {members} members: {100 * share:.1f} % of a core, without them {100 * alone:.1f} "
        f"%; a dead one is named after {named:.2f} s; the least beats: {end['beats_min']}")
    for value in shares:
        runs.add(ours, case, "share_of_a_core", "share", value, "lower")
        runs.add(ours, case, "share_of_a_core_for_them", "share", value - alone, "lower")
    runs.add(ours, case, "dead_one_is_named", "s", named)


def cpu_share(process, seconds):
    before, begin = own_cpu_seconds(process), time.monotonic()
    time.sleep(seconds)
    return (own_cpu_seconds(process) - before) / (time.monotonic() - begin)


PARTS = {"start": start, "coordinator": coordinator}


def run(build, quick, machine, only):
    ours = {}
    for name, part in PARTS.items():
        if not only or name in only:
            part(build, quick, ours)
    rows = harness.pair("fleet", ours, {}, machine)
    for name, module in {"keys": keys, "slurm": slurm}.items():
        if not only or name in only:
            rows += module.run(build, quick, machine)
    return rows

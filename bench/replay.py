"""Suite `replay`: programs and peers by parts, each with its own cores, in turn."""
import dataclasses
import os
import pathlib
import time

import harness
from harness import ROOT, BenchError, say

ROUNDS = 3
IN_PROCESS = "peers/replay_peers.py"   # cpprb, TorchRL
SERVICE = "peers/replay_reverb.py"     # in its own Python environment


@dataclasses.dataclass
class Part:
    """One part of the suite: programs of ours and of a peer that run in turn."""
    program: str
    name: str                          # --part of our program; empty: all
    cores: int | None                  # None: all
    peer: str | None = None
    peer_flags: tuple = ()
    rounds: int = ROUNDS


PARTS = (
    Part("replay_bench", "tree", 1, IN_PROCESS, ("--part", "tree")),
    Part("replay_bench", "process", 1, IN_PROCESS, ("--part", "process")),
    Part("replay_bench", "threads", None),
    Part("replay_bench", "memory", 1, rounds=1),
    Part("replay_bench", "churn", 1, rounds=1),
    Part("replay_disk_bench", "", None, rounds=1),
    Part("replay_service_bench", "rates", None, SERVICE),
    Part("replay_service_bench", "durable", None, rounds=1),
    Part("replay_service_bench", "actors", None, rounds=1),
    Part("replay_service_bench", "limiter", None, rounds=1),
)


def python_for(peer):
    """Interpreter of a peer's environment, or None."""
    if peer != SERVICE:
        return harness.peers_python()
    path = pathlib.Path(os.environ.get("TROOP_REVERB_PYTHON",
                                       ROOT / "build/peers_reverb/bin/python"))
    return path if path.exists() else None


def run_part(part, build, quick, ours, peers):
    """Runs both sides and adds their lines."""
    flags = ["--quick"] if quick else []
    program = build / "bench" / part.program
    if not program.exists():
        say(f"replay: {program} is not built; its rows are skipped")
        return
    command = [program, *(["--part", part.name] if part.name else []), *flags]
    python = python_for(part.peer) if part.peer else None
    if part.peer and python is None:
        say(f"replay: peer absent: {part.peer}: bench/run --install-peers")
    rounds = 1 if quick else part.rounds
    for turn in range(rounds):
        begin = time.monotonic()
        text = harness.run_program(command, cores=part.cores)
        harness.collect(harness.parse_lines(text), ours)
        if python:
            try:
                text = harness.run_program([python, ROOT / "bench" / part.peer, *part.peer_flags,
                                            *flags], cores=part.cores)
                harness.collect(harness.parse_lines(text), peers)
            except BenchError as error:
                say(f"replay: peer absent: {error}")
                python = None
        say(f"{part.program} {part.name}: round {turn + 1} of {rounds}, "
            f"{time.monotonic() - begin:.1f} s")


def run(build, quick, machine, only=()):
    """`only`: names of programs or parts; empty: all."""
    ours, peers = {}, {}
    for part in PARTS:
        if not only or part.name in only or part.program in only:
            run_part(part, build, quick, ours, peers)
    return harness.pair("replay", ours, peers, machine)

"""Suites that start whole fleets: `learn` (result and speed of learning) and `e2e` (steps/s)."""
import json
import math
import pathlib
import statistics
import tempfile
import time

import harness
from harness import ROOT, BenchError, say

# Seeds that were not used to choose settings.
LEARN = (
    # case, config, seeds, algorithm of Stable-Baselines3 that is the peer, if any
    ("CartPole-v1", "configs/apex_cartpole.toml", range(1001, 1011), "dqn"),
    ("CartPole-v1, PQN", "configs/pqn_cartpole.toml", range(1001, 1011), "dqn"),
    ("CartPole-v1, PPO", "configs/ppo_cartpole.toml", range(1001, 1011), "ppo"),
    ("CartPole-v1, PPO synchronous", "configs/ppo_synchronous_cartpole.toml", range(1001, 1011),
     "ppo"),
    ("CartPole-v1, Rainbow", "configs/rainbow_cartpole.toml", range(1001, 1006), None),
    ("CartPole-v1, IMPALA", "configs/vtrace_cartpole.toml", range(1001, 1011), "a2c"),
    ("StatelessCartPole-v1, PPO", "configs/ppo_stateless_cartpole.toml", range(1001, 1006),
     "ppo_lstm"),
    ("StatelessCartPole-v1, R2D2", "configs/r2d2_stateless_cartpole.toml", range(1001, 1006), None),
    ("Catch-v0", "configs/apex_catch.toml", range(1001, 1006), None),
    ("Acrobot-v1", "configs/apex_acrobot.toml", range(1001, 1006), None),
    ("MountainCar-v0", "configs/apex_mountaincar.toml", range(1001, 1006), None),
    ("Pendulum-v1", "configs/apex_pendulum.toml", range(1001, 1006), None),
)
# The environment's own threshold (Gymnasium's registry).
SOLVED = {case: 475.0 for case, *_ in LEARN if "CartPole-v1" in case}
E2E_CONFIG = "bench/e2e_breakout.toml"
E2E_STEPS, E2E_QUICK_STEPS = 40_000, 20_000
PONG_CONFIG, PONG_SEED = "configs/apex_atari.toml", 1001
CORES = 2
PEER_SEEDS = 5   # half a minute each


def count_parameters(run):
    """Number of parameters of the newest checkpoint, from the shapes in its safetensors header: the
    length of a JSON text (8 bytes), that text, and the data."""
    folders = sorted((run / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    content = (folders[-1] / "weights.safetensors").read_bytes()
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items()
               if name != "__metadata__")


def train(build, config, seed, **overrides):
    """Runs `troop train`; returns result.json (wall_s: from the start of the fleet to its end),
    `command_s` of the whole command, and the number of network `parameters`."""
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        keys = {"seed": seed, "name": '"bench"', "log.dir": f'"{folder}"', **overrides}
        command = [build / "troop", "train", ROOT / config,
                   *(f"{key}={value}" for key, value in keys.items())]
        begin = time.monotonic()
        harness.run_program(command, cores=CORES)
        wall = time.monotonic() - begin
        path = pathlib.Path(folder) / "bench/result.json"
        if not path.exists():
            raise BenchError(f"troop train {config} left no result.json")
        return {**json.loads(path.read_text(encoding="utf-8")), "command_s": wall,
                "parameters": count_parameters(path.parent)}


def add(sides, case, metric, unit, value, better=None, **more):
    line = {"case": case, "metric": metric, "unit": unit, "values": [value], **more}
    harness.collect([line if better is None else {**line, "better": better}], sides)


def add_worst(sides):
    """Adds the return of the worst seed to each median, so that a failed run is visible."""
    for (case, metric, peer), side in list(sides.items()):
        if metric == "return":
            more = {"peer": peer, "peer_version": side.peer_version} if peer else {}
            add(sides, case, "worst_return", "return", min(side.values), **more)


def add_solved(sides):
    """Verification of a learning row: the median seed of both sides solved the task."""
    for (case, metric, peer), side in list(sides.items()):
        if case in SOLVED:
            returns = sides[case, "return", peer].values
            side.checks["check"] = [[float(statistics.median(returns) >= SOLVED[case])]]
            side.tolerance["check"] = harness.CHECK_TOLERANCE


def peer_lines(*arguments):
    """Lines of sb3_peers.py, or none if the peer is absent."""
    python = harness.peers_python()
    if python is None:
        say("stable-baselines3: absent (bench/run --install-peers)")
        return []
    command = [python, ROOT / "bench/peers/sb3_peers.py", *arguments]
    try:
        return harness.parse_lines(harness.run_program(command, cores=CORES))
    except BenchError as error:
        say(f"stable-baselines3: absent: {error}")
        return []


def learn(build, quick, machine, only):
    """Return of the last checkpoint over 100 greedy episodes, and the wall time of the whole
    command (start, training, evaluation); the peer's wall time is that of learn() only.
    Verified: the median seed of both solved the task."""
    ours, peers = {}, {}
    cases = LEARN[:1] if quick else [row for row in LEARN if not only or row[0] in only]
    for case, config, seeds, peer in cases:
        for seed in seeds[:1] if quick else seeds:
            result = train(build, config, seed)
            add(ours, case, "return", "return", result["final_return_mean"])
            add(ours, case, "wall_s", "s", result["command_s"])
            say(f"learn: {case} seed {seed}: {result['final_return_mean']:.1f} "
                f"in {result['command_s']:.1f} s")
            if peer and (quick or seed in seeds[:PEER_SEEDS]):
                lines = peer_lines("learn", "--seed", str(seed), "--algorithm", peer)
                harness.collect([{**line, "case": case} for line in lines], peers)
    for sides in (ours, peers):
        add_worst(sides)
        add_solved(sides)
    return harness.pair("learn", ours, peers, machine)


def pong(build, quick, machine):
    """Pong from pixels with configs/apex_atari.toml, a million steps: return of the last checkpoint
    and hours. Continues an interrupted run in build/bench_pong and reuses a finished one: remove
    that folder to train again."""
    python = harness.peers_python()
    if quick or python is None:
        say("pong: takes an hour or two, and ale-py" if quick else
            "pong: ale-py is absent: bench/run --install-peers")
        return []
    folder = ROOT / "build/bench_pong"
    run = folder / "pong"
    if not (run / "result.json").exists():
        command = [build / "troop", "resume", run]
        if not (run / "checkpoints").exists():
            command = [build / "troop", "train", ROOT / PONG_CONFIG, "name='pong'",
                       f"log.dir='{folder}'", f"seed={PONG_SEED}", f"env.python='{python}'",
                       "network.precision='bf16'"]
        harness.run_program(command, cores=CORES, timeout=6 * 3600)
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    ours = {}
    case = f"Pong, {result['steps']:,} steps"
    add(ours, case, "return", "return", result["final_return_mean"])
    add(ours, case, "hours", "h", result["wall_s"] / 3600, better="lower")
    return harness.pair("pong", ours, {}, machine)


def end_to_end(build, quick, machine):
    """Agent steps per second with one update of 32 per agent step, on two cores. Verified: both
    networks have the same number of parameters, and both made one update per step (to one
    decimal)."""
    ours, peers = {}, {}
    steps = E2E_QUICK_STEPS if quick else E2E_STEPS
    start = time.monotonic()
    for turn in range(harness.ROUNDS):
        begin = time.monotonic()
        result = train(build, E2E_CONFIG, 1001 + turn, **{"run.total_steps": steps})
        updates = round(result["updates"] / result["steps"], 1)
        parameters = result["parameters"]
        add(ours, "MinAtar Breakout", "agent_steps_per_s", "1/s",
            result["steps"] / result["wall_s"], check=[parameters, updates * parameters])
        harness.collect(peer_lines("e2e", *(["--quick"] if quick else [])), peers)
        now = time.monotonic()
        say(f"e2e: round {turn + 1} of {harness.ROUNDS}, {now - begin:.1f} s")
        enough = turn + 1 >= harness.QUICK_ROUNDS_MIN
        if quick and enough and (now - start) + (now - begin) > harness.QUICK_BUDGET_S:
            break
    return harness.pair("e2e", ours, peers, machine)

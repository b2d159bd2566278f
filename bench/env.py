"""Suite `env`: native environments, bridges to other environments, actors on Atari, and
environments that crash."""
import sys
import time

import fleet
import harness
from fleet import Fleet
from harness import ROOT, BenchError, say

NATIVE_PEERS = "peers/env_peers.py"
BRIDGE_PEERS = "peers/bridge_peers.py"
CRASH_CONFIG = "bench/faults_cartpole.toml"
ATARI_CONFIG = "configs/apex_atari_paper.toml"
FRAMES = 4            # per step
CRASHES = (
    # case, environment, steps per crash
    ("native plug-in, a crash in 10,000 steps", "Crashing-v0", 10_000),
    ("Python, a crash in 100,000 steps", "python:crashing:Crashing", 100_000),
)


def take(command, into, split_peers=None, variables=None):
    """Adds a program's lines; those of a peer to `split_peers`, if given."""
    lines = harness.parse_lines(harness.run_program(command, cores=1, variables=variables))
    harness.collect([line for line in lines if split_peers is None or "peer" not in line], into)
    if split_peers is not None:
        harness.collect([line for line in lines if "peer" in line], split_peers)


def in_turn(name, ours, theirs, rounds):
    """Runs both sides `rounds` times; a peer that fails is dropped."""
    absent = theirs is None
    for turn in range(rounds):
        begin = time.monotonic()
        ours()
        if not absent:
            try:
                theirs()
            except BenchError as error:
                say(f"{name}: peer absent: {error}")
                absent = True
        say(f"{name}: round {turn + 1} of {rounds}, {time.monotonic() - begin:.1f} s")


def native(build, quick, ours, peers):
    flags = ["--quick"] if quick else []
    python = harness.peers_python()
    in_turn("env native", lambda: take([build / "bench/env_bench", *flags], ours),
            python and (lambda: take([python, ROOT / "bench" / NATIVE_PEERS, *flags], peers)),
            2 if quick else harness.ROUNDS)


def plugin(build, quick, ours, peers):
    """Part whose program contains both sides, compares all bytes and times them in turn."""
    flags = ["--quick"] if quick else []
    program = [build / "bench/env_bridge_bench", "--part", "plugin", *flags]
    in_turn("env plugin", lambda: take(program, ours, peers), None, 1 if quick else harness.ROUNDS)


def bridge(part):
    def run(build, quick, ours, peers):
        python = harness.peers_python()
        if python is None:   # the environments come from the peers' packages
            say(f"env {part}: peer absent: bench/run --install-peers")
            return
        flags = ["--part", part, *(["--quick"] if quick else [])]
        in_turn(f"env {part}",
                lambda: take([build / "bench/env_bridge_bench", "--python", python, *flags], ours),
                lambda: take([python, ROOT / "bench" / BRIDGE_PEERS, *flags], peers),
                1 if quick else harness.ROUNDS)
    return run


def package_python(part, build):
    """The interpreter of the peers, and the variables with which it finds the package troop;
    (None, None) after a line that says what is absent."""
    interpreter = harness.peers_python()
    if interpreter is None:
        say(f"{part}: peers absent: bench/run --install-peers")
        return None, None
    variables = {"PYTHONPATH": str(build / "python")}
    try:
        harness.run_program([interpreter, "-c", "import troop"], cores=1, variables=variables)
    except BenchError as error:
        say(f"{part}: the package troop is absent: build the target troop_native ({error})")
        return None, None
    return interpreter, variables


def through_gymnasium(build, quick, ours, peers):
    """Native environments through the interface of Gymnasium, next to Gymnasium's own."""
    interpreter, variables = package_python("env python", build)
    if interpreter is None:
        return
    flags = ["--quick"] if quick else []
    program = [interpreter, ROOT / "bench/peers/python_env.py", *flags]
    in_turn("env python", lambda: take(program, ours, peers, variables), None,
            1 if quick else harness.ROUNDS)


def actors(build, quick, ours, _peers):
    """Frames per second of one core: an actor with the paper's network and everything that belongs
    to it, by the CPU time of its process and of its environments'."""
    python = harness.peers_python()
    if python is None:
        say("env actors: ale-py is absent: bench/run --install-peers")
        return
    keys = {"env.python": f'"{python}"', "fleet.actors": 1, "fleet.transport": '"ipc"',
            "actor.envs": 16, "actor.epsilon_base": 0.4, "replay.capacity_items": 200_000,
            "replay.min_items": 190_000, "evaluator.enabled": "false"}
    for precision in ("fp32", "bf16"):
        rates = []
        with Fleet(build, ATARI_CONFIG, **keys, **{"network.precision": f'"{precision}"'}) as run:
            run.await_steps(2000)
            for _ in range(2 if quick else harness.ROUNDS):
                process = run.roles()["actor-0"]
                steps, spent = run.steps()[0], fleet.cpu_seconds(process)
                time.sleep(3 if quick else 10)
                steps, spent = run.steps()[0] - steps, fleet.cpu_seconds(process) - spent
                rates.append(FRAMES * steps / spent)
        harness.collect([{"case": f"actor on Pong, the paper's network, {precision}",
                          "metric": "frames_per_core_s", "unit": "frames/s",
                          "values": rates}], ours)


def steps_per_second(build, env_id, every, seconds):
    # A learner that samples little, so that it does not limit the actor.
    keys = {"env.id": f'"{env_id}"', "env.options.every": every, "fleet.actors": 1,
            "replay.samples_per_insert": 0.05, "evaluator.enabled": "false",
            "replay.persist": "false", "replay.durability": '"memory"',   # nor must the disk
            "env.python": f'"{harness.peers_python() or sys.executable}"'}
    if not env_id.startswith("python:"):
        keys["env.plugin"] = f'"{build / "bench/env_plugin.so"}"'
    with Fleet(build, CRASH_CONFIG, python_path=ROOT / "bench/peers", **keys) as run:
        run.await_steps(5000)
        first, begin = run.steps()
        time.sleep(seconds)
        last, end = run.steps()
        return (last - first) / (end - begin)


def crashes(build, quick, ours, _peers):
    """Speed of a run whose environments crash now and then, relative to one without crashes."""
    for case, env_id, every in CRASHES:
        if env_id.startswith("python:") and harness.peers_python() is None:
            say(f"env crashes: NumPy is absent: bench/run --install-peers ({case})")
            continue
        shares = []
        for _ in range(1 if quick else 3):
            calm = steps_per_second(build, env_id, 0, 5 if quick else 20)
            rough = steps_per_second(build, env_id, every, 5 if quick else 20)
            say(f"env: {case}: {rough:.0f} steps/s of {calm:.0f}")
            shares.append(rough / calm)
        harness.collect([{"case": case, "metric": "share_of_speed", "unit": "share",
                          "values": shares}], ours)


PARTS = {"native": native, "plugin": plugin, "gymnasium": bridge("gymnasium"),
         "atari": bridge("atari"), "python": through_gymnasium,
         "actors": actors, "crashes": crashes}


def run(build, quick, machine, only=()):
    """`only`: names of parts; empty: all."""
    ours, peers = {}, {}
    for name, part in PARTS.items():
        if not only or name in only:
            part(build, quick, ours, peers)
    return harness.pair("env", ours, peers, machine)

"""Suite `onpolicy`: steps per second of whole training runs of synchronous PPO, and the score after
them, compared with CleanRL's loop and Sample Factory with the same network, rollouts and
minibatches."""
import json
import math
import os
import pathlib
import statistics

import harness
import runs
from harness import ROOT, BenchError, say

SEEDS = range(5001, 5006)   # not used to choose settings
CASES = {   # part: title, config, peers
    "cartpole": ("CartPole-v1, PPO", "bench/onpolicy_cartpole.toml", ("cleanrl", "sample-factory")),
    "breakout": ("MinAtar Breakout, PPO", "bench/onpolicy_breakout.toml", ("cleanrl",)),
}
# Settings of each peer; the fastest in a short run is used.
SWEEPS = {
    "cleanrl": [["--threads", "1"], ["--threads", "2"], ["--threads", "1", "--compile"],
                ["--threads", "2", "--compile"]],
    "sample-factory": [["--workers", "1"], ["--workers", "2"]],
}
SWEEP_STEPS = 60_000
QUANTILE = 2.776   # Student's t for 95 % and five seeds


def sample_factory_python():
    """Interpreter of Sample Factory's environment, which needs an older Gymnasium, or None."""
    path = pathlib.Path(os.environ.get("TROOP_SAMPLE_FACTORY_PYTHON",
                                       ROOT / "build/peers_sample_factory/bin/python"))
    return path if path.exists() else None


def call(peer, part, *arguments):
    """One run of a peer: its rate, return and version."""
    python = sample_factory_python() if peer == "sample-factory" else harness.peers_python()
    if python is None:
        raise BenchError(f"{peer} is absent: bench/run --install-peers")
    script = ROOT / f"bench/peers/onpolicy_{peer.replace('-', '_')}.py"
    case = [part] if peer == "cleanrl" else []
    text = harness.run_program([python, script, *case, *arguments], cores=runs.CORES)
    return harness.parse_lines(text)[-1]


def fastest(peer, part):
    """The settings of the sweep with the highest rate."""
    rates = []
    for settings in SWEEPS[peer]:
        done = call(peer, part, "--seed", "1", "--steps", str(SWEEP_STEPS), *settings)
        rates.append((done["rate"], settings))
        say(f"onpolicy: {peer} {part} {' '.join(settings)}: {done['rate']:.0f} steps/s")
    return max(rates)[1]


def reached(ours, peer):
    """True if our mean return is not below the peer's 95 % interval."""
    half = QUANTILE * statistics.stdev(peer) / math.sqrt(len(peer)) if len(peer) > 1 else 0.0
    return statistics.mean(ours) >= statistics.mean(peer) - half


def measure(build, quick, part, ours, peers):
    """Runs ours and each peer in turn, seed by seed."""
    title, config, names = CASES[part]
    settings = {}
    for name in names:
        try:
            settings[name] = fastest(name, part)
        except BenchError as error:
            say(f"onpolicy: {name} is absent: {error}")
    scores = {name: [] for name in (None, *settings)}
    for seed in SEEDS[:1] if quick else SEEDS:
        result = runs.train(build, config, seed)
        # Start of the fleet and final evaluation included.
        rate = result["steps"] / result["wall_s"]
        runs.add(ours, title, "steps_per_s", "steps/s", rate)
        runs.add(ours, title, "return", "return", result["final_return_mean"])
        scores[None].append(result["final_return_mean"])
        say(f"onpolicy: {title} seed {seed}: {rate:.0f} steps/s, {scores[None][-1]:.1f}")
        for name, used in settings.items():
            done = call(name, part, "--seed", str(seed), *used)
            more = {"peer": name, "peer_version": done["version"]}
            runs.add(peers, title, "steps_per_s", "steps/s", done["rate"], **more)
            runs.add(peers, title, "return", "return", done["return"], **more)
            scores[name].append(done["return"])
            say(f"onpolicy: {name} {part} seed {seed}: {json.dumps(done)}")
    verify(title, scores, ours, peers)


def verify(title, scores, ours, peers):
    """A row counts if our score is not below the interval of each peer's."""
    good = all(reached(scores[None], score) for name, score in scores.items() if name and score)
    for sides, value in ((ours, float(good)), (peers, 1.0)):
        for (case, _, _), side in sides.items():
            if case == title:
                side.checks["check"] = [[value]]
                side.tolerance["check"] = harness.CHECK_TOLERANCE


def run(build, quick, machine, only):
    ours, peers = {}, {}
    for part in CASES:
        if not only or part in only:
            measure(build, quick, part, ours, peers)
    return harness.pair("onpolicy", ours, peers, machine)

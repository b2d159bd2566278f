"""Suite `gorila`: four bundles against Ape-X with one learner, at equal frames; and Gorila with one
slow learner of four and corrupted gradients, with and without its guards."""
import json
import pathlib
import shutil
import statistics

import curves
import harness
from harness import ROOT, BenchError, say

# Seeds that were not used to choose settings.
SEEDS = (2001, 2002, 2003)
PARTS = ("cartpole", "breakout")
APEX, ANNEALED, GORILA = "Ape-X", "Ape-X that anneals", "Gorila with 4 bundles"
DROPPED = ("too_old", "outliers")

# Changes to the files in configs/, (file, keys): equal frames for all variants of a task, and
# evaluations for the curves.
CARTPOLE = {"run.total_steps": 200_000, "evaluator.every_s": 1}
BREAKOUT = {"run.total_steps": 60_000, "evaluator.every_s": 10}
QUICK = {"run.total_steps": 10_000}
CARTPOLE_WAYS = {
    APEX: ("configs/apex_cartpole.toml", {}),
    # Ape-X with Gorila's exploration isolates the effect of exploration.
    ANNEALED: ("configs/apex_cartpole.toml",
               {"actor.epsilon_steps": 100_000, "actor.epsilon_final": 0.05}),
    GORILA: ("configs/gorila_cartpole.toml", {}),
}
BREAKOUT_WAYS = {
    APEX: ("configs/apex_breakout.toml", {}),
    GORILA: ("configs/gorila_breakout.toml", {"actor.epsilon_steps": 30_000}),
}

# A learner that takes 20 times as long. One in a hundred of all learners' gradients is multiplied
# by -100; `wild`: with the loss of such errors; `sly`: with the original loss. Small leases keep
# the slow bundle's remaining steps few.
FAULTS = "learner.pace:20:slow:{folder}/slow;learner.push:100:{act}"
FAULT_KEYS = {"actor.lease_steps": 200}
NO_NORMS = {"paramserver.outlier_norm_sigmas": 0}   # as in the paper, which checks the loss only
GUARDS = {"guarded": {}, "guarded by the loss alone": NO_NORMS,
          "unguarded": {"paramserver.max_staleness": 0, "paramserver.outlier_sigmas": 0,
                        **NO_NORMS}}
FAULTY = {f"{act}, {guards}": (act, keys)
          for act in ("wild", "sly") for guards, keys in GUARDS.items()}


def train(build, folder, config, seed, overrides, failpoint=""):
    """Runs the config in that folder: its result and evaluations. A finished run is reused, an
    interrupted one starts again."""
    if not (folder / "result.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        (folder.parent / "slow").unlink(missing_ok=True)
        keys = {"seed": seed, "name": f'"{folder.name}"', "log.dir": f'"{folder.parent}"',
                **overrides}
        harness.run_program([build / "troop", "train", ROOT / config, "--plain",
                             *(f"{key}={value}" for key, value in keys.items())], cores=2,
                            variables={"TROOP_FAILPOINT": failpoint})
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    lines = harness.parse_lines((folder / "evaluations.jsonl").read_text(encoding="utf-8"))
    metrics = harness.parse_lines((folder / "metrics.jsonl").read_text(encoding="utf-8"))[-1]
    say(f"gorila: {folder.name}: {result['final_return_mean']:.1f} in {result['wall_s']:.0f} s")
    return {"return": result["final_return_mean"], "wall_s": result["wall_s"],
            "pushes": {why: metrics.get(f"paramserver/pushes_{why}", 0)
                       for why in ("applied", *DROPPED)},
            "curve": [(line["steps"], line["return_mean"]) for line in lines]}


def add(sides, case, runs, peer=None):
    """Mean over the seeds and its interval; for the other side, under its name."""
    returns = [run["return"] for run in runs]
    low, high = curves.interval(returns)
    more = {"peer": peer, "peer_version": f"{len(runs)} seeds"} if peer else {}
    for metric, value in (("return", statistics.fmean(returns)), ("return, 95 % from", low),
                          ("return, 95 % to", high)):
        harness.collect([{"case": case, "metric": metric, "unit": "return", "values": [value],
                          **more}], sides)
    say(f"gorila: {case}{f' ({peer})' if peer else ''}: {statistics.fmean(returns):.1f} "
        f"[{low:.1f}, {high:.1f}]")


def shares_of(runs):
    """Shares of the outcomes of all pushes to all shards."""
    sums = {why: sum(run["pushes"][why] for run in runs) for why in ("applied", *DROPPED)}
    return {why: count / max(1, sum(sums.values())) for why, count in sums.items()}


def train_all(build, root, keys, ways, seeds):
    """Runs {variant: its runs}, seed by seed, so that an interruption leaves equal seeds of all
    variants."""
    runs = {way: [] for way in ways}
    for seed in seeds:
        for way, (config, more, *act) in ways.items():
            name = f"{pathlib.Path(config).stem}-{way}-{seed}".replace(",", "").replace(" ", "_")
            failpoint = FAULTS.format(folder=root, act=act[0]) if act else ""
            runs[way].append(train(build, root / name, config, seed, {**keys, **more}, failpoint))
    return runs


def add_beside(case, ways, peer, runs, ours, peers):
    for way in ways:
        add(ours, f"{case}, {way}", runs[way])
        add(peers, f"{case}, {way}", runs[peer], peer)


def cartpole(build, quick, root, ours, peers):
    keys = {**CARTPOLE, **(QUICK if quick else {})}
    steps = keys["run.total_steps"]
    config, more = CARTPOLE_WAYS[GORILA]
    faulty = {way: (config, {**more, **FAULT_KEYS, **guards}, act)
              for way, (act, guards) in FAULTY.items()}
    if quick:
        faulty = dict(list(faulty.items())[:1])
    runs = train_all(build, root, keys, {**CARTPOLE_WAYS, **faulty}, SEEDS[:1] if quick else SEEDS)
    add_beside(f"CartPole-v1, {steps:,} steps", (ANNEALED, GORILA), APEX, runs, ours, peers)
    add_beside("CartPole-v1, Gorila with faults", faulty, GORILA, runs, ours, peers)
    for way in faulty:
        say(f"gorila: {way}: pushes " + ", ".join(f"{why} {share:.2%}" for why, share
                                                  in shares_of(runs[way]).items()))
    lines = {"no faults": runs[GORILA], **{way: runs[way] for way in faulty}}
    curves.draw(build, root / "gorila.png" if quick else ROOT / "docs/images/gorila.png",
                "Gorila on CartPole, with guards and without",
                {name: curves.mean_curve(some, steps) for name, some in lines.items()})


def breakout(build, root, ours, peers):
    config, more = BREAKOUT_WAYS[GORILA]
    faulty = {way: (config, {**more, **FAULT_KEYS, **keys}, act)
              for way, (act, keys) in FAULTY.items() if "alone" not in way}
    runs = train_all(build, root, BREAKOUT, {**BREAKOUT_WAYS, **faulty}, SEEDS)
    case = f"MinAtar Breakout, {BREAKOUT['run.total_steps']:,} steps"
    add_beside(case, (GORILA,), APEX, runs, ours, peers)
    add_beside("MinAtar Breakout, Gorila with faults", faulty, GORILA, runs, ours, peers)


def run(build, quick, machine, only):
    for part in only:
        if part not in PARTS:
            raise BenchError(f"gorila has no part {part}: {' '.join(PARTS)}")
    ours, peers = {}, {}
    root = build / "bench_gorila_quick" if quick else ROOT / "build/bench_gorila"
    if quick:
        shutil.rmtree(root, ignore_errors=True)
    if not only or "cartpole" in only:
        cartpole(build, quick, root, ours, peers)
    if "breakout" in only or not (quick or only):
        breakout(build, root, ours, peers)
    return harness.pair("gorila", ours, peers, machine)

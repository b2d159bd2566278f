"""Suite `games`: learning on the MinAtar-compatible games, one run at a time.

Each run is serial: its bytes do not depend on the load of the machine. A finished run is a line
of bench/results/games_runs.jsonl and is not repeated while its config stays the same, so the
suite may be interrupted and continued, here or on another machine.
"""
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import shutil
import statistics

import curves
import harness
import runs as fleets
from harness import ROOT, BenchError, say

RUNS = ROOT / "bench/results/games_runs.jsonl"
POINTS = 100   # of the curve in a line
CORES = 2
MILLION = 1_000_000
GAMES = {"Breakout": 9.2, "Asterix": 6.9, "Freeway": 47.6, "SpaceInvaders": 32.8, "Seaquest": 1.1}
PUBLISHED = "DQN (Young and Tian 2019)"
SCORE_KEYS = {"evaluator.epsilon": 0.1, "run.total_steps": MILLION}
SCORE_SEEDS = range(3001, 3006)   # not used to choose settings
OTHER_SEEDS = {"Breakout": range(3002, 3007)}  # 3001 was used to choose the learning rate's decay
LONG = {"Breakout": 10.1, "Asterix": 16.8}   # published results at the same number of steps
LONG_STEPS = 5 * MILLION
ABLATION_KEYS = {"evaluator.epsilon": 0.1, "run.total_steps": 300_000}
ABLATION_SEEDS = range(3101, 3104)
ABLATIONS = {
    "as it is": {},
    "one step": {"actor.n_step": 1},
    "five steps": {"actor.n_step": 5},
    "drawn uniformly": {"replay.alpha": 0},
    "constant learning rate": {"optimizer.final_lr_fraction": 1},
    "Adam": {"optimizer.type": "'adam'", "optimizer.epsilon": 3e-4},
    "no double Q": {"learner.double_q": "false"},
    "dueling": {"network.dueling": "true"},
    "51 quantiles": {"learner.critic": "'quantile'"},
    "51 atoms": {"learner.critic": "'categorical'", "learner.v_min": -1, "learner.v_max": 25},
    "one ε of 0.1": {"actor.epsilon_base": 0.1, "actor.epsilon_alpha": 0},
    "8 samples per insert": {"replay.samples_per_insert": 8},
    "64 samples per insert": {"replay.samples_per_insert": 64},
    "10,000 items": {"replay.capacity_items": 10_000},
    "10,000 items, one step": {"replay.capacity_items": 10_000, "actor.n_step": 1},
    "300,000 items": {"replay.capacity_items": 300_000},
    "300,000 items, one step": {"replay.capacity_items": 300_000, "actor.n_step": 1},
}
# Updates of each run; the runs differ in the number of environments that produce the data.
ACTORS_UPDATES = 100_000
ACTORS = {  # number, and copies of each item in the replay: the same age as with 32
    "1 environment": (1, 1), "2 environments": (2, 1), "4 environments": (4, 1),
    "8 environments": (8, 1), "16 environments": (16, 1), "32 environments": (32, 1),
    "8 environments, items 4 times": (8, 4), "4 environments, items 8 times": (4, 8),
}
ACTORS_SEEDS = range(3201, 3204)
# A fleet alone on the machine, and the peer; evaluations have the same number of episodes.
SPEED_KEYS = {"evaluator.epsilon": 0.1, "evaluator.episodes": 100, "run.total_steps": MILLION}
SPEED_SEEDS = range(3301, 3304)
PEER, PEER_VERSION = "stable-baselines3", "2.9.2"
PQN = "Troop, PQN"


@dataclasses.dataclass(frozen=True)
class Case:
    part: str
    name: str
    config: str
    keys: tuple
    seeds: tuple

    def text(self):
        """Key of a run's line: the config without its comments, and the keys."""
        return harness.plain_config(ROOT / self.config) + f"\n{dict(self.keys)}\n"

    def digest(self):
        return hashlib.sha256(self.text().encode()).hexdigest()[:16]


def case(part, name, game, keys, seeds):
    return Case(part, name, f"configs/apex_{game.lower()}.toml", tuple(keys.items()), tuple(seeds))


def actors_keys(envs, copies):
    """Every environment steps once per eight updates while there are updates."""
    return {"evaluator.epsilon": 0.1, "actor.envs": envs, "actor.insert_copies": copies,
            "run.total_steps": ACTORS_UPDATES * envs // 8,
            "replay.samples_per_insert": 32 * 8 / envs / copies, "actor.warmup_steps": 1000,
            "replay.min_items": 1000}


CASES = {
    "scores": [case("scores", game, game, SCORE_KEYS, OTHER_SEEDS.get(game, SCORE_SEEDS))
               for game in GAMES],
    "long": [case("long", game, game, {**SCORE_KEYS, "run.total_steps": LONG_STEPS},
                  OTHER_SEEDS.get(game, SCORE_SEEDS)[:1]) for game in LONG],
    "ablations": [case("ablations", name, "Breakout", {**ABLATION_KEYS, **keys}, ABLATION_SEEDS)
                  for name, keys in ABLATIONS.items()],
    "actors": [case("actors", name, "Breakout", actors_keys(*keys), ACTORS_SEEDS)
               for name, keys in ACTORS.items()],
    "speed": [case("speed", "Troop", "Breakout", SPEED_KEYS, SPEED_SEEDS),
              Case("speed", PQN, "configs/pqn_breakout.toml", tuple(SPEED_KEYS.items()),
                   tuple(SPEED_SEEDS)),
              case("speed", f"{PEER} {PEER_VERSION}", "Breakout", {}, SPEED_SEEDS)],
}


PUBLISHED_AT = {"scores": GAMES, "long": LONG}
TITLES = {
    "scores": "A million agent steps, sticky actions, ε = 0.1, 100 episodes; published: "
              f"{PUBLISHED}",
    "long": f"Five million agent steps, ε = 0.1, 100 episodes; published: {PUBLISHED}",
    "ablations": "Breakout, 300,000 agent steps, one setting changed, ε = 0.1, 100 episodes",
    "actors": f"Breakout, {ACTORS_UPDATES:,} updates, data from N environments",
    "speed": f"Breakout, on {CORES} cores: seconds until the mean return of 100 episodes with "
             f"ε = 0.1 reaches {GAMES['Breakout']}; DQN makes one update with batch size 32 per "
             "step",
}


def read_runs():
    """Recorded runs {(part, case, seed): line} whose config is unchanged."""
    if not RUNS.exists():
        return {}
    digests = {(c.part, c.name): c.digest() for cases in CASES.values() for c in cases}
    lines = harness.parse_lines(RUNS.read_text(encoding="utf-8"))
    return {(line["part"], line["case"], line["seed"]): line for line in lines
            if line["digest"] == digests.get((line["part"], line["case"]))}


def write_runs(runs):
    text = "".join(json.dumps(runs[key], ensure_ascii=False) + "\n" for key in sorted(runs))
    RUNS.with_suffix(".new").write_text(text, encoding="utf-8")
    os.replace(RUNS.with_suffix(".new"), RUNS)


def thin(points):
    """Selects at most POINTS of them, including the last one."""
    step = max(1, -(-len(points) // POINTS))
    return points[::-step][::-1]


def reached(curve):
    """Seconds of the first of [(steps, seconds, return)] that reaches the goal, or None."""
    return next((wall for _, wall, mean in curve if mean >= GAMES["Breakout"]), None)


def race(build, what, seed):
    """One run of the part speed, alone on the machine: a line without its config."""
    if what.name.startswith(PEER):
        lines = fleets.peer_lines("reach", "--seed", str(seed), "--target", GAMES["Breakout"],
                                  "--steps", str(MILLION))
        if not lines or lines[0]["version"] != PEER_VERSION:
            raise BenchError(f"{PEER} {PEER_VERSION} is absent: bench/run --install-peers")
        line = lines[0]
        return {"steps": line["steps"], "updates": line["updates"], "return": line["return"],
                "wall_s": line["wall_s"], "reached_s": reached(line["curve"]),
                "curve": [(steps, mean) for steps, _, mean in line["curve"]]}
    run = ROOT / "build/bench_games/speed" / f"run-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    keys = {**dict(what.keys), "seed": seed, "name": f"'{run.name}'", "log.dir": f"'{run.parent}'"}
    harness.run_program([build / "troop", "train", ROOT / what.config, "--plain",
                         *(f"{key}={value}" for key, value in keys.items())], cores=CORES)
    result, seen = read_results(run)
    curve = [(line["steps"], line["wall_s"], line["return_mean"]) for line in seen]
    return {"steps": result["steps"], "updates": result["updates"],
            "return": result["final_return_mean"], "wall_s": result["wall_s"],
            "reached_s": reached(curve), "curve": thin([(s, round(x, 3)) for s, _, x in curve])}


def read_results(run):
    return (json.loads((run / "result.json").read_text(encoding="utf-8")),
            harness.parse_lines((run / "evaluations.jsonl").read_text(encoding="utf-8")))


def train(build, what, seed, machine):
    """Runs or resumes one run; returns its line."""
    head = {"part": what.part, "case": what.name, "seed": seed, "config": what.config,
            "keys": dict(what.keys), "digest": what.digest(), "commit": machine["commit"]}
    if what.part == "speed":
        return {**head, **race(build, what, seed)}
    folder = ROOT / "build/bench_games" / what.part
    name = f"{what.name}-{seed}-{what.digest()}".replace(" ", "_").replace(",", "")
    name = name.replace("ε", "epsilon")  # for a folder name
    run = folder / name
    if not (run / "result.json").exists():
        command = [build / "troop", "resume", run, "--plain"]
        if not (run / "restore").exists():
            shutil.rmtree(run, ignore_errors=True)
            keys = {**dict(what.keys), "seed": seed, "name": f"'{name}'", "log.dir": f"'{folder}'",
                    "fleet.mode": "serial"}
            command = [build / "troop", "train", ROOT / what.config, "--plain",
                       *(f"{key}={value}" for key, value in keys.items())]
        harness.run_program(command, timeout=12 * 3600)
    result, seen = read_results(run)
    say(f"games: {what.part}, {what.name}, seed {seed}: {result['final_return_mean']:.2f}")
    return {**head, "steps": result["steps"], "updates": result["updates"],
            "return": result["final_return_mean"],
            "curve": thin([(line["steps"], round(line["return_mean"], 3)) for line in seen])}


def train_all(build, cases, machine):
    """Runs CORES runs at a time, seed by seed; each is recorded when it is done."""
    runs = read_runs()
    wanted = [(what, seed) for what, seed in ((what, what.seeds[i]) for i in range(
        max(len(what.seeds) for what in cases)) for what in cases if i < len(what.seeds))
        if (what.part, what.name, seed) not in runs]
    if not wanted:
        return
    say(f"games: {len(wanted)} runs")
    with concurrent.futures.ThreadPoolExecutor(1 if cases[0].part == "speed" else CORES) as pool:
        jobs = [pool.submit(train, build, what, seed, machine) for what, seed in wanted]
        try:
            for job in concurrent.futures.as_completed(jobs):
                line = job.result()
                runs = read_runs()   # another bench/run may have added runs
                runs[line["part"], line["case"], line["seed"]] = line
                write_runs(runs)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def lines_of(runs, what):
    return [runs[key] for key in ((what.part, what.name, seed) for seed in what.seeds)
            if key in runs]


def add(sides, name, lines, peer_sides=None, published=None):
    """Mean over the seeds and its interval."""
    returns = [line["return"] for line in lines]
    low, high = curves.interval(returns)
    for metric, value in (("return", statistics.fmean(returns)), ("return, 95 % from", low),
                          ("return, 95 % to", high), ("seeds", len(returns))):
        harness.collect([{"case": name, "metric": metric, "unit": "return", "values": [value]}],
                        sides)
    if published is not None:
        harness.collect([{"case": name, "metric": "return", "unit": "return",
                          "values": [published], "peer": PUBLISHED, "peer_version": ""}],
                        peer_sides)


def add_race(ours, peers, runs):
    """Seconds; for a peer that never reached the goal, those of all its steps, a lower bound."""
    for what in CASES["speed"]:
        for line in lines_of(runs, what):
            peer = what.name.startswith(PEER)
            more = {"peer": PEER, "peer_version": PEER_VERSION} if peer else {}
            goal, million = (f"speed: Breakout to {GAMES['Breakout']}",
                             f"speed: Breakout, {MILLION:,} steps")
            # The peer's DQN is compared with both of our algorithms.
            suffixes = ("", ", PQN") if peer else (", PQN",) if what.name == PQN else ("",)
            for name, value in ((goal, line["reached_s"] or line["wall_s"]),
                                (million, line["wall_s"] * MILLION / line["steps"])):
                for suffix in suffixes:
                    harness.collect([{"case": name + suffix, "metric": "wall_s", "unit": "s",
                                      "values": [value], **more}], peers if peer else ours)


def rows_of(machine, parts):
    """Rows of all finished runs."""
    runs = read_runs()
    ours, peers = {}, {}
    if "speed" in parts:
        add_race(ours, peers, runs)
    for part in (part for part in parts if part != "speed"):
        for what in CASES[part]:
            lines = lines_of(runs, what)
            if lines:
                steps = lines[0]["steps"]
                add(ours, f"{part}: {what.name}, {steps:,} steps", lines, peers,
                    PUBLISHED_AT.get(part, {}).get(what.name))
    return harness.pair("games", ours, peers, machine)


def table(cases, runs, last=None):
    """Markdown table. last: heading of an additional column, and its cell for each case."""
    head, more = last or ("", {})
    lines = [f"| {cases[0].part} | seeds | mean | 95 % interval | each |" +
             f" {head} |" * bool(head),
             "|---|--:|--:|---|---|" + "--:|" * bool(head)]
    for what in cases:
        returns = [line["return"] for line in lines_of(runs, what)]
        cells = ["none yet", "", "", ""]
        if returns:
            low, high = curves.interval(returns)
            cells = [str(len(returns)), f"{statistics.fmean(returns):.1f}",
                     f"{low:.1f} to {high:.1f}", ", ".join(f"{x:.1f}" for x in returns)]
        lines.append(f"| {what.name} | {' | '.join(cells)} |" +
                     f" {more.get(what.name, '')} |" * bool(head))
    return "\n".join(lines)


def race_table(cases, runs):
    """Markdown table: seconds and steps of all runs; `none` for a seed that missed the goal."""
    lines = ["| speed | seeds | seconds to the score | seconds of all steps | steps |",
             "|---|--:|---|---|---|"]
    for what in cases:
        done = lines_of(runs, what)
        cells = [", ".join(texts) for texts in (
            [f"{line['reached_s']:.0f}" if line["reached_s"] else "none" for line in done],
            [f"{line['wall_s']:.0f}" for line in done], [f"{line['steps']:,}" for line in done])]
        lines.append(f"| {what.name} | {len(done) or 'none yet'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def is_headline(row):
    """True if the README shows the row: scores and times, but no intervals."""
    return (row["case"].split(":")[0] in ("scores", "long", "speed") and
            row["metric"] in ("return", "wall_s"))


def document():
    """Markdown between the markers of docs/design/evidence.md."""
    runs = read_runs()
    tables = {part: race_table(cases, runs) if part == "speed" else
              table(cases, runs, part in PUBLISHED_AT and ("published", PUBLISHED_AT[part]))
              for part, cases in CASES.items()}
    return "\n\n".join(f"**{TITLES[part]}**\n\n{text}" for part, text in tables.items())


PICTURES = {  # groups of curves for parts with too many for one plot
    "ablations": {
        "method": ("as it is", "one step", "five steps", "drawn uniformly", "no double Q",
                   "dueling", "one ε of 0.1"),
        "learning": ("as it is", "constant learning rate", "Adam", "51 quantiles", "51 atoms",
                     "8 samples per insert", "64 samples per insert"),
        "replay": ("as it is", "one step", "10,000 items", "10,000 items, one step",
                   "300,000 items", "300,000 items, one step"),
    },
}


def draw(build):
    """Draws docs/images/games-<part>.png of parts with runs: means over the finished seeds."""
    runs = read_runs()
    for part, cases in CASES.items():
        everything = {"": [what.name for what in cases]}
        for picture, names in PICTURES.get(part, everything).items():
            lines = {what.name: lines_of(runs, what) for what in cases if what.name in names}
            lines = {name: some for name, some in lines.items() if some}
            if not lines:
                continue
            title = "-".join(word for word in (part, picture) if word)
            curves.draw(build, ROOT / f"docs/images/games-{title}.png",
                        f"MinAtar-compatible games: {title}",
                        {name.replace("ε", "epsilon"):
                         curves.mean_curve(some, max(line["steps"] for line in some))
                         for name, some in lines.items()})


def run(build, quick, machine, only):
    for part in only:
        if part not in CASES:
            raise BenchError(f"games has no part {part}: {' '.join(CASES)}")
    if quick:
        say("games: takes hours: a run of its first part takes ten minutes")
        return []
    parts = [part for part in CASES if not only or part in only]
    try:
        for part in parts:
            train_all(build, CASES[part], machine)
    finally:
        draw(build)
    return rows_of(machine, parts)

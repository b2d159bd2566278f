"""The measured tables of README.md and docs/benchmarks.md, made from bench/results/*.jsonl.

README has a dozen headline rows (HEADLINES), docs/benchmarks.md a section for each suite."""
import json

import games
from harness import BenchError

BENCHMARKS = "docs/benchmarks.md"
BEGIN, END = "<!-- numbers:begin -->", "<!-- numbers:end -->"
HEADLINES_BEGIN, HEADLINES_END = "<!-- headlines:begin -->", "<!-- headlines:end -->"
GAMES_BEGIN, GAMES_END = "<!-- games:begin -->", "<!-- games:end -->"
SUITES = ("env", "nn", "supervised", "images", "imdb", "learn", "onpolicy", "games", "pong",
          "gorila", "e2e", "replay", "collective", "paramserver", "codec", "sharding", "text",
          "deploy", "faults", "soak", "fleet")
TITLES = {"env": "Environments", "nn": "Networks", "supervised": "Supervised training",
          "images": "Image classifiers", "imdb": "Reviews",
          "learn": "Learning", "onpolicy": "On-policy learning", "games": "Games",
          "pong": "Atari", "gorila": "Gorila", "e2e": "End to end",
          "replay": "Replay", "collective": "Collectives",
          "paramserver": "Parameter shards", "codec": "Codecs of gradients",
          "sharding": "Sharding of parameters", "text": "Tokens", "deploy": "Deployed policies",
          "faults": "Faults", "soak": "Soak", "fleet": "Fleets"}
# One sentence per suite: what its rows mean.
ABOUT = {
    "env": "Agent steps or frames per second of 8 or 64 copies of an environment on one core, "
           "compared with other vector environments; `plugin-*` compares a plug-in with the same "
           "code inside Troop, and the crash rows give the speed of a run whose environments crash "
           "as a share of the speed without crashes.",
    "nn": "Time of a forward pass, or of a whole training step, on one core at batch size b; "
          "`nature` is the network of Mnih et al. (2015).",
    "supervised": "Time of one training step on reviews on one core: BERT-base cut to two layers, "
                  "and the LSTM classifier.",
    "images": "Time of one training step of ResNet-18 (32 images of 64 x 64) and AlexNet (16 of "
              "224 x 224) on one core, compared with PyTorch in channels-last order, compiled or "
              "not, whichever is faster; and the mean accuracy over five stratified folds of "
              "scikit-learn's digits (`right`).",
    "imdb": "Accuracy on the 25,000 IMDB test reviews (`right`), the training time, and what "
            "data-parallel (DP, `mesh.dp`) and tensor-parallel (TP, `mesh.tp`) training cost; "
            "`efficiency` is the speed of two learners over twice that of one.",
    "learn": "Mean return of the final evaluation and wall-clock time of the whole training "
             "command on small problems, as medians over seeds; the median seed must have solved "
             "the problem. `worst return` is the return of the worst seed.",
    "onpolicy": "Agent steps per second of whole runs of synchronous PPO on two cores, start of "
                "the fleet and final evaluation included for Troop, and the return after them. "
                "Peers have the same network, rollouts and minibatches, and the fastest of their "
                "settings; their time begins after their start.",
    "games": "Return in the MinAtar-compatible games, compared with published DQN results; and "
             "wall-clock time, compared with Stable-Baselines3, which has the same network and "
             "makes one update per step.",
    "pong": "Return and duration of one training on Atari Pong from pixels.",
    "gorila": "Return of Gorila with four bundles, compared with Ape-X; and return of Gorila with "
              "a slow learner and corrupted gradients, compared with Gorila without these faults. "
              "With `wild` faults loss and gradient are wrong, with `sly` faults the gradient "
              "alone; `guarded` runs drop stale and outlying gradients.",
    "e2e": "Agent steps per second of a whole training, acting and learning included.",
    "replay": "Throughput, latency and memory of the replay: `tree` is the sum tree alone, "
              "`process` sampling within one process, `service` and `actors` a replay server, "
              "`durable` one with a journal on disk, `churn` and `limiter` checks of exactness.",
    "collective": "Time of an all-reduce of 25 million or 256 floats over 2 or 4 ranks. After the "
                  "`kill -9` of a rank: time until the last survivor has an error (`noticed`), and "
                  "until a new group has finished its first all-reduce (`rebuild`).",
    "paramserver": "Time to push a gradient to one parameter shard and to pull the parameters, "
                   "over shared memory or TCP.",
    "codec": "Size of the gradients, final loss and accuracy of training with compressed and with "
             "dense gradients; and the time to encode and to add 100 MB.",
    "sharding": "Step time of synchronous training with parameters sharded by layer or by equal "
                "memory, compared with a model of the step time and published measurements.",
    "text": "Time to tokenize the 50,000 labeled IMDB reviews on one core.",
    "deploy": "Time of one call that computes the actions of b observations on one core: "
              "`cartpole` and `nature` (the network of Mnih et al., 2015) by libtroop_policy in C, "
              "whose peer is called from Python; `predict` by `policy.predict` in Python. `serve`: "
              "requests of one observation per second over HTTP at p99 within 50 ms, one core.",
    "faults": "Time until a killed or stopped role is detected and replaced, and the cost of such "
              "a fault for the run.",
    "soak": "Forty minutes of a fleet without and with the kill of a random role every ten "
            "seconds; the memory must not grow and the score must not fall.",
    "fleet": "Start time of 64 actors, load of the coordinator with 1,000 members, the cost of "
             "encryption, and recovery in a Slurm job.",
}
# Rows of README: (suite, case, metric, text).
HEADLINES = (
    ("env", "breakout-64", "steps_per_s", "MinAtar Breakout, steps/s on one core"),
    ("env", "ale-pong-8", "frames_per_s", "Atari Pong, frames/s on one core"),
    ("nn", "nature_step_b512_fp32", "time",
     "DQN network, training step with batch size 512, one core"),
    ("supervised", "bert2_8x256_bf16", "step", "Two-layer BERT, training step in bf16"),
    ("learn", "CartPole-v1", "wall_s", "CartPole, complete training run"),
    ("games", "speed: Breakout, 1,000,000 steps", "wall_s",
     "MinAtar Breakout, training for one million steps"),
    ("games", "long: Asterix, 5,000,000 steps", "return",
     "MinAtar Asterix, return after five million steps"),
    ("replay", "tree-draw-weighted-2^20-warm", "ns_per_item",
     "Prioritized sampling, time per item"),
    ("replay", "service-atari-tcp", "inserts_per_s", "Replay server, Atari items inserted/s"),
    ("collective", "tcp-25M-4", "time", "All-reduce of 25 M floats, 4 ranks over TCP"),
    ("paramserver", "push-pull-100MB", "time", "Parameter server, push and pull of 100 MB"),
    ("text", "bert-uncased-imdb", "time", "Tokenizing 50,000 reviews for BERT"),
    ("deploy", "predict-cartpole-b1", "time", "`predict` of a trained CartPole agent in Python"),
    ("deploy", "serve-cartpole-json", "requests_per_s",
     "Requests/s of a served policy, p99 within 50 ms"),
)
NONE = "No full run is recorded yet: `bench/run env nn learn e2e`."


def human(value, unit):
    """Formats a number for readers: 21.3 M/s, 398 us, 500."""
    if value is None:
        return "–"
    if unit == "1/s":
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:.3g} {letter}/s"
        return f"{value:.3g}/s"
    if unit == "share":
        return f"{value:.2%}"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}" if unit in ("s", "ms", "us", "ns", "bytes") else text


def machine_line(machine):
    when = f", {machine['date']} at {machine['commit']}" if machine.get("commit") else ""
    return (f"Measured on {machine['cpu']}, {machine['cores']} cores{when}: "
            f"{machine.get('fma_gflops', 0):,.0f} GFLOP/s of fp32 FMA on one core, "
            f"{machine.get('copy_gb_s', 0):.3g} GB/s copied, "
            f"{machine.get('fsync_per_s', 0):,.0f} fsyncs/s. Medians.")


def table(rows):
    lines = ["| case | metric | Troop | peer | peer value | ratio |", "|---|---|--:|---|--:|--:|"]
    for row in rows:
        peer = f"{row['peer']} {row['peer_version']}" if row["peer"] else "–"
        ratio = f"{row['ratio']:.3g}×" if row["ratio"] else "–"
        lines.append(f"| {row['case']} | {row['metric'].replace('_', ' ')} "
                     f"| {human(row['value'], row['unit'])} | {peer} "
                     f"| {human(row['peer_value'], row['unit'])} | {ratio} |")
    return "\n".join(lines)


def read_rows(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def brief(rows):
    """The row of the best peer for each case and metric, without those of cold caches and without
    the rows of games that docs/design/evidence.md has with their intervals."""
    best = {}
    for row in rows:
        key = (row["case"], row["metric"])
        kept = best.get(key)
        if kept is None or (row["ratio"] or 0) < (kept["ratio"] or 0):
            best[key] = row
    return [row for row in best.values() if not row["case"].endswith("-cold")
            and (row.get("suite") != "games" or games.is_headline(row))]


def numbers_of(results):
    """The sections of docs/benchmarks.md for a folder of results."""
    parts = []
    for suite in SUITES:
        rows = read_rows(results / f"{suite}.jsonl")
        if rows:
            parts += [f"## {TITLES[suite]}", ABOUT[suite], machine_line(rows[0]["machine"]),
                      table(brief(rows))]
    return "\n\n".join(parts) if parts else NONE


def headlines_of(results):
    """README's table. A headline without a result is left out; one without a peer is an error."""
    lines = ["| benchmark | Troop | peer | ratio |", "|---|--:|---|--:|"]
    for suite, case, metric, text in HEADLINES:
        for row in brief(read_rows(results / f"{suite}.jsonl")):
            if (row["case"], row["metric"]) == (case, metric):
                if not row["ratio"]:
                    raise BenchError(f"README.md: the headline {suite}/{case} has no peer")
                peer = (f"{human(row['peer_value'], row['unit'])} "
                        f"({row['peer']} {row['peer_version']}".rstrip() + ")")
                lines.append(f"| {text} | {human(row['value'], row['unit'])} | {peer} "
                             f"| {row['ratio']:.3g}× |")
    return "\n".join(lines)


def between(text, begin, end, inside):
    head, rest = text.split(begin)
    return f"{head}{begin}\n{inside}\n{end}{rest.split(end)[1]}"


def made(root):
    """{path: text} of the pages with tables that are made from bench/results."""
    texts = {}
    for name, begin, end, inside in (
            ("README.md", HEADLINES_BEGIN, HEADLINES_END, headlines_of(root / "bench/results")),
            (BENCHMARKS, BEGIN, END, numbers_of(root / "bench/results")),
            ("docs/design/evidence.md", GAMES_BEGIN, GAMES_END, games.document())):
        text = (root / name).read_text(encoding="utf-8")
        if begin not in text or end not in text:
            raise BenchError(f"{name}: the markers {begin} and {end} are missing")
        texts[name] = between(text, begin, end, inside)
    return texts


def write_readme(root):
    for name, text in made(root).items():
        (root / name).write_text(text, encoding="utf-8")

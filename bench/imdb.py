"""Suite `imdb`: sentiment classification, and speed of meshes of learners."""
import hashlib
import json
import os
import pathlib
import re
import statistics
import tempfile
import time

import harness
from harness import ROOT, BenchError, say

CONFIG, SEED = "configs/imdb_small.toml", 2001   # not used to choose settings
ACCURACY = {
    "accuracy": ("BERT of 2 layers from nothing, 25,000 test reviews", CONFIG),
    "lstm": ("bidirectional LSTM from nothing, 25,000 test reviews", "configs/imdb_lstm.toml"),
    "roberta": ("RoBERTa of 2 layers from nothing, 25,000 test reviews",
                "configs/imdb_roberta_small.toml"),
    "distilbert": ("DistilBERT of 2 layers from nothing, 25,000 test reviews",
                   "configs/imdb_distilbert_small.toml"),
}
PEERS = ROOT / "bench/peers/imdb_peers.py"
RATINGS = ("ratings of 25,000 test reviews", "configs/imdb_ratings.toml")
SOLVERS = ROOT / "bench/peers/linear_peers.py"
LINEAR = ("linear model of n-grams, 25,000 test reviews", "configs/imdb_linear.toml")
MASKED = ("configs/imdb_masked_short.toml", "configs/imdb_masked.toml")
FINETUNE = "configs/imdb_finetune.toml"
UNLABELLED = "imdb/aclImdb_unsup.tar.xz"
CORES = 2
MESHES = ((1, 1), (2, 1), (1, 2))
UPDATES, HOURS = 60, 2


def data_keys():
    """The reviews and BERT's vocabulary, or None."""
    data = pathlib.Path(os.environ.get("TROOP_DATA", ROOT / "../shared/data")).resolve()
    reviews = data / "imdb/aclImdb_labeled.tar.xz"
    vocabulary = data / "tokenizers/bert-base-uncased-vocab.txt"
    if not reviews.exists() or not vocabulary.exists():
        say(f"imdb: no reviews in {data}: set TROOP_DATA")
        return None
    return {"data.reviews": f'"{reviews}"', "data.vocabulary": f'"{vocabulary}"'}


def train(build, folder, config=CONFIG, name="bench", resumes=False, **keys):
    """Runs `troop train`: result.json, the command's seconds, and report.md. resumes: continues an
    interrupted run of that name; the seconds are those of all its parts."""
    run = pathlib.Path(folder) / name
    legs = run / "bench_seconds"
    keys = {"name": f'"{name}"', "log.dir": f'"{folder}"', **keys}
    command = [build / "troop", "train", ROOT / config, "--overwrite",
               *(f"{key}={value}" for key, value in keys.items())]
    before = 0.0
    if resumes and legs.exists() and not (run / "report.md").exists():
        before = float(legs.read_text(encoding="utf-8"))
        command = [build / "troop", "resume", run]
    begin = time.monotonic()
    try:
        harness.run_program(command, cores=CORES, timeout=HOURS * 3600)
    finally:
        wall = before + time.monotonic() - begin
        if run.exists():
            legs.write_text(str(wall), encoding="utf-8")
    if not (run / "report.md").exists():
        raise BenchError(f"troop train {config} left no report.md")
    return {**json.loads((run / "result.json").read_text(encoding="utf-8")), "command_s": wall,
            "report": (run / "report.md").read_text(encoding="utf-8")}


def accuracy(build, keys, ours, case, config):
    """Accuracy of the last weights on the 25,000 test reviews, and the minutes of the whole
    command."""
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        if "roberta" in config:
            keys = {**keys, "data.vocabulary": f'"{byte_level_bpe(folder)}"'}
        result = train(build, folder, config, seed=SEED, **keys)
    say(f"imdb: {result['final_return_mean']:.2f} % in {result['command_s'] / 60:.1f} minutes")
    say(result["report"])
    harness.collect([{"case": case, "metric": "right", "unit": "share",
                      "values": [result["final_return_mean"] / 100]},
                     {"case": case, "metric": "minutes", "unit": "min", "better": "lower",
                      "values": [result["command_s"] / 60]}], ours)


def byte_level_bpe(folder):
    """Learns a byte-level BPE from the training reviews: the path of its vocab.json."""
    python = harness.peers_python()
    if python is None:
        raise BenchError("imdb: no tokenizers: bench/run --install-peers")
    harness.run_program([python, PEERS, "vocabulary", pathlib.Path(folder) / "bpe"])
    return pathlib.Path(folder) / "bpe/vocab.json"


def ratings(build, keys, ours, peers):
    """Pearson correlation of predicted and actual ratings; the peer is a ridge regression."""
    case, config = RATINGS
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        result = train(build, folder, config, seed=SEED, **keys)
    say(result["report"])
    harness.collect([{"case": case, "metric": "pearson", "unit": "r",
                      "values": [result["final_metrics"]["pearson"]]},
                     {"case": case, "metric": "minutes", "unit": "min", "better": "lower",
                      "values": [result["command_s"] / 60]}], ours)
    if harness.peers_python() is None:
        say("imdb: peer absent: bench/run --install-peers")
        return
    harness.collect(harness.parse_lines(harness.run_program(
        [harness.peers_python(), PEERS, "ratings"], cores=CORES, threads=CORES)), peers)


def linear(build, keys, ours, peers):
    """Accuracy and minutes of the linear model; the peer is scikit-learn with the same features,
    naive Bayes weights and loss."""
    case, config = LINEAR
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        result = train(build, folder, config, seed=SEED, **{"data.reviews": keys["data.reviews"]})
    say(result["report"])
    harness.collect([{"case": case, "metric": "right", "unit": "share",
                      "values": [result["final_return_mean"] / 100]},
                     {"case": case, "metric": "minutes", "unit": "min", "better": "lower",
                      "values": [result["command_s"] / 60]}], ours)
    if harness.peers_python() is None:
        say("imdb: peer absent: bench/run --install-peers")
        return
    harness.collect(harness.parse_lines(harness.run_program(
        [harness.peers_python(), PEERS, "linear"], cores=CORES, threads=CORES)), peers)


def solvers(build, keys, ours, peers):
    """Seconds of the linear model's solver and of scikit-learn's to equal objectives, on the same
    features, one thread each. The objective of Troop's weights is computed again by numpy."""
    python, program = harness.peers_python(), build / "bench/linear_bench"
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        reviews = keys["data.reviews"].strip('"')
        harness.collect(harness.parse_lines(harness.run_program(
            [program, "features", reviews, folder], cores=CORES)), ours)
        if python is None:
            say("imdb: peer absent: bench/run --install-peers")
            return
        harness.collect(harness.parse_lines(harness.run_program(
            [python, SOLVERS, "fit", folder], cores=1)), peers)
        cases = json.loads((pathlib.Path(folder) / "cases.json").read_text(encoding="utf-8"))
        for case, wanted in cases.items():
            lines = harness.parse_lines(harness.run_program(
                [program, "solve", folder, case, wanted["loss"], wanted["l2"],
                 wanted["objective"]],
                cores=1))
            # A wrong objective is an error, not a row.
            harness.run_program([python, SOLVERS, "verify", folder, case, lines[0]["check"][0]])
            harness.collect(lines, ours)


def masked(build, keys, ours):
    """Masked-LM pre-training, first on short and then on whole reviews, then fine-tuning. The model
    of each stage is kept in build/bench_imdb and reused while its configs are unchanged."""
    data = pathlib.Path(keys["data.reviews"].strip('"')).parent.parent
    folder, digest, words_s, begin = ROOT / "build/bench_imdb", hashlib.sha256(), 0.0, {}
    more = {**keys, "data.unlabeled": f'"{data / UNLABELLED}"', "seed": SEED}
    for config in MASKED:
        digest.update((harness.plain_config(ROOT / config) + repr(sorted(more.items()))).encode())
        name = f"{pathlib.Path(config).stem}-{digest.hexdigest()[:12]}"
        if not (folder / name / "report.md").exists():
            say(train(build, folder, config, name, resumes=True, **more, **begin)["report"])
        words_s += float((folder / name / "bench_seconds").read_text(encoding="utf-8"))
        begin = {"model.pretrained": f'"{folder / name / "model"}"'}
    result = train(build, folder, FINETUNE, seed=SEED, **keys, **begin)
    say(result["report"])
    minutes = (words_s + result["command_s"]) / 60
    say(f"imdb: {result['final_return_mean']:.2f} % in {minutes:.1f} minutes")
    case = "words of 75,000 reviews, then 25,000 test reviews"
    harness.collect([{"case": case, "metric": "right", "unit": "share",
                      "values": [result["final_return_mean"] / 100]},
                     {"case": case, "metric": "minutes", "unit": "min", "better": "lower",
                      "values": [minutes]}], ours)


def mesh(build, quick, keys, ours):
    """Tokens per second of meshes of two learners relative to twice those of one, one thread each.
    """
    keys = {**keys, "run.max_updates": UPDATES // 3 if quick else UPDATES,
            "evaluator.enabled": "false", "seed": SEED}
    rates = {shape: [] for shape in MESHES}
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        for _ in range(2 if quick else harness.ROUNDS):
            for dp, tp in MESHES:
                report = train(build, folder, **keys, **{"mesh.dp": dp, "mesh.tp": tp})["report"]
                rates[dp, tp].append(float(re.search(r"(\d+) tokens/s", report).group(1)))
                say(f"imdb: {dp} x {tp}: {rates[dp, tp][-1]:.0f} tokens/s")
    for dp, tp in MESHES[1:]:
        shares = [two / (2 * one) for one, two in zip(rates[1, 1], rates[dp, tp])]
        harness.collect([{"case": f"mesh.dp = {dp}, mesh.tp = {tp}", "metric": "efficiency",
                          "unit": "share", "values": shares}], ours)
    harness.collect([{"case": f"mesh.dp = {dp}, mesh.tp = {tp}", "metric": "tokens_per_s",
                      "unit": "tokens/s", "values": values}
                     for (dp, tp), values in rates.items()], ours)


def megabytes(report):
    """Bytes that one learner of two sends per update: all-reduced or exchanged."""
    units = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
    return sum(float(number) * units[unit]
               for number, unit in re.findall(r"([\d.]+) (B|kB|MB|GB)\b", report))


def parallel(build, quick, keys, ours):
    """Two learners, BERT and ALBERT of one size, data-parallel (DP) or tensor-parallel (TP): which
    is faster, and whether it is the one that moves fewer bytes."""
    keys = {**keys, "run.max_updates": UPDATES // 3 if quick else UPDATES,
            "evaluator.enabled": "false", "seed": SEED}
    rates, moved = {}, {}
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        for _ in range(2 if quick else 3):
            for family in ("bert", "albert"):
                for way, shape in (("DP", (2, 1)), ("TP", (1, 2))):
                    report = train(build, folder, **keys, **{"model.architecture": f'"{family}"',
                                   "mesh.dp": shape[0], "mesh.tp": shape[1]})["report"]
                    rate = float(re.search(r"(\d+) tokens/s", report).group(1))
                    rates.setdefault((family, way), []).append(rate)
                    moved[family, way] = megabytes(report)
    for family in ("bert", "albert"):
        fewer = min(("DP", "TP"), key=lambda way, f=family: moved[f, way])
        faster = max(("DP", "TP"), key=lambda way, f=family: statistics.median(rates[f, way]))
        say(f"imdb: {family}: {fewer} moves fewer bytes ({moved[family, 'DP']:.1f} MB an update by "
            f"DP, {moved[family, 'TP']:.1f} by TP), {faster} was faster")
    for (family, way), values in rates.items():
        case = f"{family}, {way} of two"
        harness.collect([{"case": case, "metric": "tokens_per_s", "unit": "tokens/s",
                          "values": values},
                         {"case": case, "metric": "megabytes_an_update", "unit": "MB",
                          "better": "lower", "values": [moved[family, way]]}], ours)


def run(build, quick, machine, only):
    keys, ours, peers = data_keys(), {}, {}
    if keys is None:
        return []
    if not only or "mesh" in only:
        mesh(build, quick, keys, ours)
    if not only or "parallel" in only:
        parallel(build, quick, keys, ours)
    for part, (case, config) in ACCURACY.items():
        if not quick and (not only or part in only):
            accuracy(build, keys, ours, case, config)
    if not quick and (not only or "masked" in only):
        masked(build, keys, ours)
    if not quick and (not only or "ratings" in only):
        ratings(build, keys, ours, peers)
    if not quick and (not only or "linear" in only):
        linear(build, keys, ours, peers)
    if not quick and (not only or "solvers" in only):
        solvers(build, keys, ours, peers)
    return harness.pair("imdb", ours, peers, machine)

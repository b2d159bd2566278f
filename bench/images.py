"""Suite `images`: time of training steps, and accuracy on scikit-learn's digits."""
import pathlib
import struct
import tempfile

import harness
import imdb
from harness import ROOT, say

CONFIG = "configs/digits_cnn.toml"
RECORDS = ROOT / "tests/fixtures/digits/digits.bin"
SIDE, FOLDS = 8, 5
CASE = "cnn, 1,797 digits of 8 x 8, five stratified folds"


def idx(sizes, elements):
    """An IDX file of bytes: the magic number, big-endian sizes, the elements."""
    return struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + bytes(elements)


def folds(digits):
    """The fold of each digit: those of a class get the folds in turn, as in scikit-learn's
    StratifiedKFold without shuffling, up to the sizes of neighboring folds."""
    seen = {}
    result = []
    for digit in digits:
        result.append(seen.get(digit, 0) % FOLDS)
        seen[digit] = seen.get(digit, 0) + 1
    return result


def write_fold(folder, fold):
    """All digits as IDX files: those of the fold are the test set. Pixels are 0 to 255."""
    records = RECORDS.read_bytes()
    step = 1 + SIDE * SIDE
    rows = [records[i:i + step] for i in range(0, len(records), step)]
    place = folds([row[0] for row in rows])
    for name, chosen in (("train", [r for r, f in zip(rows, place) if f != fold]),
                         ("t10k", [r for r, f in zip(rows, place) if f == fold])):
        pixels = [min(255, 16 * b) for row in chosen for b in row[1:]]
        (folder / f"{name}-images-idx3-ubyte").write_bytes(idx((len(chosen), SIDE, SIDE), pixels))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            idx((len(chosen),), [row[0] for row in chosen]))


def digits(build, ours, quick):
    """Mean accuracy over the folds, each the test set of one training."""
    shares, minutes = [], 0
    for fold in range(1 if quick else FOLDS):
        with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
            data = pathlib.Path(folder) / "digits"
            data.mkdir()
            write_fold(data, fold)
            keys = {"data.images": f'"{data}"', "data.test_split": 0}
            if quick:
                keys["run.epochs"] = 2
            result = imdb.train(build, folder, CONFIG, **keys)
        shares.append(result["final_return_mean"] / 100)
        minutes += result["command_s"] / 60
        say(f"images: fold {fold}: {100 * shares[-1]:.2f} %")
    harness.collect([{"case": CASE, "metric": "right", "unit": "share",
                      "values": [sum(shares) / len(shares)]},
                     {"case": CASE, "metric": "minutes", "unit": "min", "better": "lower",
                      "values": [minutes]}], ours)


def run(build, quick, machine, only):
    """Parts: steps, digits."""
    rows, ours = [], {}
    if not only or "steps" in only:
        rows += harness.take_turns("images", build / "bench/images_bench",
                                   ROOT / "bench/peers/images_peers.py", quick, machine)
    if not only or "digits" in only:
        digits(build, ours, quick)
        rows += harness.pair("images", ours, {}, machine)
    return rows

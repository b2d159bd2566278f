"""What the cases of field_test.py share: a folder, `troop` in it, small configs and files."""

import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ.get("TROOP_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
PROGRAM = os.environ.get("TROOP_PROGRAM", str(ROOT / "build/dev/troop"))
SECONDS = 120  # that one command may take, however busy the machine is

GAME = """
name = "run"
env.id = "CartPole-v1"
network.layers = [{type = "linear", units = 16}]
fleet = {actors = 1, backoff_initial_s = 0.05}
actor = {envs = 2, lease_steps = 100, weight_sync_steps = 20}
replay = {capacity_items = 5000, min_items = 100, samples_per_insert = 4}
learner = {batch_size = 16}
run = {total_steps = 1000}
evaluator = {every_s = 0.5, episodes = 2, final_episodes = 4}
checkpoint.every_s = 0.3
log.metrics_every_s = 0.05
"""
TEXT = """
name = "run"
learner = {algorithm = "classifier", batch_size = 8}
run = {epochs = 4}
model.hidden_size = 32
model.num_hidden_layers = 1
model.num_attention_heads = 2
model.max_position_embeddings = 16
evaluator = {every_s = 1, episodes = 12}
optimizer.learning_rate = 3e-3
log.metrics_every_s = 0.05

[data]
reviews = "reviews.csv"
vocabulary = "vocab.txt"
max_length = 16
validation_split = 0.2
cache = ""
"""
GOOD, BAD = "good great fine lovely".split(), "bad awful dull poor".split()
OTHER = "film movie plot actor scene it is was a the very".split()


def tensors_of(path):
    """The tensors of a safetensors file: name to (type, shape, bytes)."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    body = data[8 + size :]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {
        name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])])
        for name, t in header.items()
    }


def write_tensors(path, tensors):
    """Writes a safetensors file."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    body = b"".join(data for _, _, data in tensors.values())
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


class Bed(unittest.TestCase):
    """A test with a separate folder, in which `troop` runs."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="field"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "tmp").mkdir()
        (self.folder / "game.toml").write_text(GAME)
        (self.folder / "text.toml").write_text(TEXT)
        self.run = self.folder / "runs" / "run"

    def environment(self, more=None):
        """Of a command: the environments of field_envs.py, and folders that go with the test."""
        variables = dict(os.environ, TMPDIR=str(self.folder / "tmp"))
        variables["PYTHONPATH"] = str(pathlib.Path(__file__).parent)
        variables["TROOP_PYTHON_PATH"] = str(ROOT / "python")
        return variables | (more or {})

    def start(self, *words, more=None, **how):
        """Start a command that runs in the background."""
        words = [str(word) for word in words]
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            words if how.pop("bare", False) else [PROGRAM, *words],
            cwd=self.folder,
            env=self.environment(more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **how,
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Kills a command that still runs."""
        process.kill()
        process.wait()
        process.stdout.close()

    def finish(self, process, code=0, has=(), hasnt=()):
        """Waits for a command; its output. It has to end with a code and have said something."""
        output = process.communicate(timeout=SECONDS)[0]
        self.assertEqual(process.returncode, code, output)
        for part in (has,) if isinstance(has, str) else has:
            self.assertIn(part, output)
        for part in (hasnt,) if isinstance(hasnt, str) else hasnt:
            self.assertNotIn(part, output)
        self.assertNotIn("Check failed", output)
        return output

    def troop(self, *words, code=0, has=(), hasnt=(), more=None, **how):
        """Runs a command to its end; its output."""
        return self.finish(self.start(*words, more=more, **how), code, has, hasnt)

    def play(self, *words, code=0, has=(), **how):
        """Trains a small game of Python's or of Troop's own."""
        python = os.environ.get("TROOP_TEST_PYTHON", sys.executable)
        return self.troop("train", "game.toml", f"env.python={python}", *words, code=code, has=has,
                          **how)

    def read(self, *words, code=0, has=(), **how):
        """Trains a small classifier."""
        return self.troop("train", "text.toml", *words, code=code, has=has, **how)

    def reviews(self, count=60, order=lambda i: i % 2 == 0, name="reviews.csv", head=""):
        """Writes reviews whose sentiment one word decides, and their vocabulary."""
        draw = random.Random(1)
        rows = [head or "review,sentiment"]
        for i in range(count):
            good = order(i)
            words = [draw.choice(OTHER) for _ in range(8)] + [draw.choice(GOOD if good else BAD)]
            rows.append(f"{' '.join(words)},{'positive' if good else 'negative'}")
        (self.folder / name).write_text("\n".join(rows) + "\n")
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *OTHER]
        (self.folder / "vocab.txt").write_text("\n".join(pieces) + "\n")

    def result(self):
        """What the run wrote last."""
        return json.loads((self.run / "result.json").read_text())

    def lines(self, name="metrics.jsonl"):
        """The whole lines of the run's metrics."""
        path = self.run / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def wait(self, condition, what):
        """Polls until something is so."""
        end = time.monotonic() + SECONDS
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def checkpoints(self):
        """The whole checkpoints of the run, the newest last."""
        folder = self.run / "checkpoints"
        return sorted(path for path in folder.glob("*") if not path.suffix)

    def stop(self, process, number=signal.SIGTERM, has=()):
        """Interrupts a command, which then has to end in good order."""
        process.send_signal(number)
        return self.finish(process, 130, has)

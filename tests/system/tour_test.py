"""The tour of README.md: each command in its text runs, with overrides that make it short.

usage: tour_test.py TROOP ROOT

A command of the text without a step below fails, as does a step whose command is not in the text.
Upper-case words and the names of data files are replaced: HOST, CONFIG, aclImdb, vocab.txt.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

TROOP, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FIXTURES = ROOT / "tests/fixtures/supervised"
PATIENCE_S = 120
# Overrides that make runs short, for all commands that accept them.
SMALL = ["replay.min_items=128", "evaluator.final_episodes=1", "evaluator.episodes=1"]
PYTHON = sys.executable  # for environments in Python


def commands():
    """The commands in the section Tour of README.md, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tour = text.split("\n## Tour\n")[1].split("\n## ")[0]
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", tour)]
    return [span for span in spans if span.startswith("troop ")]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TourTest(unittest.TestCase):
    """One test, since its steps follow each other in one folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="troop-tour-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "configs").symlink_to(ROOT / "configs")
        self.port = free_port()
        self.left = commands()
        self.assertGreater(len(self.left), 12)

    def words(self, command, more=()):
        """The words of a command of the text, which must occur in it."""
        self.assertIn(command, self.left, "no such command in the tour")
        self.left.remove(command)
        words = shlex.split(command)
        words[0] = str(TROOP)
        return words + list(more)

    def start(self, words, where=None):
        process = subprocess.Popen(
            words, cwd=where or self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, "TMPDIR": str(self.folder)})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def finish(self, process, code=0):
        output, _ = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, code, output)
        return output

    def run_step(self, command, more=(), code=0, where=None):
        return self.finish(self.start(self.words(command, more), where), code)

    def wait_for(self, condition, what):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def test_every_command_of_the_tour_runs(self):
        self.train_and_look()
        self.override()
        self.environment()
        self.clusters()
        self.join()
        self.reviews()
        self.atari()
        self.assertEqual(self.left, [], "commands of the tour without a step here")

    def train_and_look(self):
        run = self.folder / "runs/first"
        # Longer than the test waits, then interrupted.
        train = self.start(self.words("troop train configs/apex_cartpole.toml name=first",
                                      SMALL + ["run.total_steps=1e9"]))
        self.wait_for(lambda: list(run.glob("checkpoints/*/manifest.json")), "no checkpoint")
        train.send_signal(signal.SIGINT)
        self.assertIn("resume with: troop resume", self.finish(train, 130))
        result = json.loads((run / "result.json").read_text())
        self.run_step("troop resume runs/first", [f"run.max_updates={result['updates'] + 100}"])
        self.assertIn("agent steps", self.run_step("troop status runs/first"))
        self.assertIn("episodes", self.run_step("troop eval runs/first", ["--episodes", "2"]))
        self.run_step("troop play runs/first", ["--episodes", "1", "--fps", "100"])
        dashboard = self.start(self.words("troop dashboard runs", ["--listen", "127.0.0.1:0"]))
        address = re.search(r"http://[0-9.:]+", dashboard.stdout.readline()).group(0)
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as page:
            self.assertIn(b"<html", page.read())
        dashboard.send_signal(signal.SIGTERM)
        dashboard.wait(PATIENCE_S)
        self.deploy()

    def deploy(self):
        self.run_step("troop export runs/first")
        self.assertTrue((self.folder / "policy.safetensors").exists())
        server = self.start(self.words("troop serve runs/first", ["--listen", "127.0.0.1:0"]))
        address = re.search(r"http://[0-9.:]+", server.stdout.readline()).group(0)
        request = urllib.request.Request(
            address + "/v1/act", json.dumps({"observations": [[0.1, -0.2, 0.03, 0.4]]}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            self.assertIn(json.load(answer)["actions"], ([0], [1]))
        server.send_signal(signal.SIGTERM)
        self.finish(server)

    def override(self):
        second = "name=second fleet.actors=4 replay.alpha=0.7"
        self.run_step(f"troop train configs/apex_cartpole.toml {second}",
                      SMALL + ["run.total_steps=2000"])
        self.assertIn("[0, 2]", self.run_step("troop config replay.alpha"))
        self.run_step("troop sweep configs/apex_cartpole.toml --seeds 5 replay.alpha=0.4,0.6",
                      SMALL + ["run.total_steps=400", "fleet.mode=serial"])
        self.assertTrue(list(self.folder.glob("runs/**/sweep.json")))

    def environment(self):
        self.run_step("troop env new my_env --language python")
        # PYTHON may have no NumPy.
        check = self.words("troop env check my_env.toml", [f"env.python={PYTHON}", "--quick"])
        try:
            import numpy  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            output = self.finish(self.start(check, self.folder / "my_env"), 1)
            self.assertIn("pip install numpy", output)
        else:
            self.finish(self.start(check, self.folder / "my_env"))

    def clusters(self):
        script = self.run_step(
            "troop train configs/apex_cartpole.toml slurm.nodes=4 --engine slurm", ["--dry-run"])
        self.assertIn("--nodes=4", script)

    def join(self):
        self.run_step("troop keygen keys")
        host = f"127.0.0.1:{self.port}"
        words = self.words(
            "troop train CONFIG fleet.listen=tcp://HOST:7701 security.keys=keys",
            SMALL + ["name=joined", "run.total_steps=1e9", "fleet.actors=1"])
        words = [word.replace("HOST:7701", host).replace("CONFIG", "configs/apex_cartpole.toml")
                 for word in words]
        train = self.start(words)
        log = self.folder / "runs/joined/logs/launcher.log"
        self.wait_for(log.exists, "no launcher.log")
        shutil.copy(self.folder / "keys/actor.key", self.folder)
        words = self.words("troop join tcp://HOST:7701 --key actor.key",
                           ["--advertise-host", "127.0.0.1"])
        join = self.start([word.replace("HOST:7701", host) for word in words])
        self.wait_for(lambda: "actor-1" in log.read_text(), "no actor joined")
        train.send_signal(signal.SIGINT)
        self.finish(train, 130)
        join.send_signal(signal.SIGTERM)
        join.communicate(timeout=PATIENCE_S)

    def reviews(self):
        words = self.words(
            "troop train configs/imdb_small.toml data.reviews=aclImdb data.vocabulary=vocab.txt",
            ["run.epochs=1", "learner.batch_size=4", "model.hidden_size=16", "mesh.dp=1",
             "model.num_hidden_layers=1", "model.num_attention_heads=1", "data.max_length=16",
             "data.validation_split=0.4", "evaluator.final_episodes=2"])
        names = {"data.reviews=aclImdb": f"data.reviews={FIXTURES}/reviews.csv",
                 "data.vocabulary=vocab.txt": f"data.vocabulary={FIXTURES}/vocab.txt"}
        self.assertIn("accuracy", self.finish(self.start([names.get(w, w) for w in words])))

    def atari(self):
        # Without the package, the error says how to install it.
        train = self.start(self.words(
            "troop train configs/apex_atari.toml network.precision=bf16",
            [f"env.python={PYTHON}", "--dry-run"]))
        output, _ = train.communicate(timeout=PATIENCE_S)
        if train.returncode != 0:
            self.assertRegex(output, "pip install (numpy|ale-py|gymnasium)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

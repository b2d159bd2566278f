"""troop.Learner with real fleets: NumPy programs compute the updates."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import tempfile
import time
import unittest
import warnings
from unittest import mock

import numpy as np
import troop
from policy_files import read_tensors
from troop import _learner

PATIENCE_S = 60
# A short run: a second or two. One linear layer: q = W x + b.
CONFIG = {
    "name": "own", "env.id": "CartPole-v1",
    "network": {"layers": [{"type": "linear", "units": 16}], "dueling": False},
    "fleet": {"actors": 1}, "actor": {"envs": 4, "n_step": 3},
    "replay": {"capacity_items": 20000, "min_items": 500, "samples_per_insert": 8},
    "learner": {"batch_size": 64, "publish_every_updates": 10}, "run.total_steps": 4000,
    "checkpoint.every_s": 0.3, "evaluator": {"every_s": 0.2, "final_episodes": 3},
    "log.metrics_every_s": 0.1,
}
SHAPES = {"layers.0.weight": (16, 4), "layers.0.bias": (16,), "head.weight": (2, 16),
          "head.bias": (2,)}


def plain_returns(batch, gamma):
    """Batch.returns, item by item in plain loops: R is the value of the target for the last value
    0, and f the difference that the last value 1 makes."""
    found = []
    for i in range(len(batch)):
        values = []
        for value in (0.0, 1.0):
            for step in reversed(range(batch.length[i])):
                value = float(batch.reward[i, step]) \
                    + gamma * float(batch.discount[i, step]) * value
            values.append(value)
        found.append((values[0], values[1] - values[0]))
    return np.array(found).T


class Program:
    """A program whose weights are a function of its number of updates, which it saves."""

    def __init__(self):
        self.updates, self.loads = 0, []

    def save(self):
        return json.dumps(self.updates).encode()

    def load(self, weights, state):
        self.loads.append((weights, state))
        if state is not None:
            self.updates = json.loads(state)

    def weights(self):
        return {name: np.full(shape, 1e-4 * self.updates + i, np.float32)
                for i, (name, shape) in enumerate(SHAPES.items())}

    def answer(self, batch):
        self.updates += 1
        batch.done(0.5, np.arange(len(batch)), weights=self.weights(), q_mean=2)


class LearnerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.program = Program()

    def learner(self, program=None, **settings):
        program = program or self.program
        return troop.Learner({**CONFIG, "log.dir": self.folder}, save=program.save,
                             load=program.load, progress=False, **settings)

    def newest(self):
        """The tensors of the newest checkpoint."""
        checkpoints = pathlib.Path(self.folder) / "own/checkpoints"
        newest = max(path for path in checkpoints.iterdir() if path.name.isdigit())
        return read_tensors(newest / "weights.safetensors")[1], \
            json.loads((newest / "state.json").read_text())

    def processes(self):
        """Names of the living processes of the run's last start, by number. The program is the
        leader of a session, in which all its roles are."""
        start = json.loads((pathlib.Path(self.folder) / "own/run.json").read_text())
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    number, _, rest = (entry / "stat").read_text().partition(" ")
                    name, _, rest = rest.rpartition(") ")
                    state, _, _, session = rest.split()[:4]
                    if state != "Z" and int(session) == start["process"]:
                        found[int(number)] = name.strip("(")
        return found

    def assert_nothing_runs(self):
        deadline = time.monotonic() + PATIENCE_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(self.processes(), {})

    def test_the_program_makes_all_updates_of_the_run(self):
        with self.learner() as learner:
            for batch in learner:
                if batch.updates == 3:
                    self.assertIn("learner-0", self.processes().values())
                    self.assertEqual(batch.observation.shape, (64, 4))
                    self.assertEqual(batch.observation.dtype, np.float32)
                    self.assertEqual(batch.reward.shape, (64, 3))
                    self.assertEqual(set(batch.action.tolist()) - {0, 1}, set())
                    self.assertTrue((batch.weight > 0).all() and (batch.weight <= 1).all())
                    np.testing.assert_allclose(batch.returns(0.9), plain_returns(batch, 0.9),
                                               rtol=1e-6)
                self.assertEqual(batch.updates, self.program.updates)
                self.program.answer(batch)
        result = learner.run.result
        self.assertEqual(result["steps"], 4000)
        self.assertEqual(result["updates"], self.program.updates)
        self.assertGreater(self.program.updates, 100)
        self.assertEqual(learner.parameters, SHAPES)
        self.assertEqual((learner.actions, learner.config["learner"]["batch_size"]), (2, 64))
        # The last checkpoint has the program's last weights.
        tensors, state = self.newest()
        self.assertEqual(state["updates"], self.program.updates)
        for name, values in self.program.weights().items():
            np.testing.assert_array_equal(tensors[name], values)
        self.assertEqual(learner.run.metrics["learner/loss"][-1], 0.5)
        # A new run begins with Troop's first weights, and without a state.
        ((weights, saved),) = self.program.loads
        self.assertEqual({name: values.shape for name, values in weights.items()}, SHAPES)
        self.assertIsNone(saved)
        self.assert_nothing_runs()

    def test_the_policy_is_that_of_the_weights(self):
        with self.learner(**{"run.max_updates": 20}) as learner:
            for batch in learner:
                self.program.answer(batch)
        weights, x = self.program.weights(), np.array([[0.1, -0.2, 0.3, 0.05]])
        hidden = np.maximum(x @ weights["layers.0.weight"].T + weights["layers.0.bias"], 0)
        q = hidden @ weights["head.weight"].T + weights["head.bias"]
        np.testing.assert_allclose(learner.run.policy().q_values(x.astype(np.float32)), q,
                                   rtol=1e-5)

    def test_wrong_answers_are_errors_and_can_be_repeated(self):
        good = self.program.weights()
        numbers = np.ones(64, np.float32)
        bad = np.where(np.arange(64) == 5, np.nan, numbers)
        cases = (
            ((1, numbers[:3], None), "priorities has 3 elements, must be 64"),
            ((1, -numbers, None), "negative or not finite"), ((1, bad, None), "not finite"),
            ((float("nan"), numbers, None), "loss is nan"),
            ((1, numbers, {"head.bias": np.zeros(2)}), "must have head.bias, head.weight, layers"),
            ((1, numbers, {**good, "head.bias": np.zeros(3)}), r"'head.bias'\] has the shape \(3,"),
            ((1, numbers, {**good, "head.bias": np.full(2, np.inf)}), "not finite"),
            ((1, numbers, [1.0]), "weights is a list"))
        with self.learner() as learner:
            for batch in learner:
                for (loss, priorities, weights), text in cases:
                    with self.assertRaisesRegex(ValueError, text):
                        batch.done(loss, priorities, weights=weights)
                batch.done(1, numbers, weights=good)
                with self.assertRaisesRegex(RuntimeError, "already"):
                    batch.done(1, numbers)
                break
        self.assert_nothing_runs()

    # Former fault: actors kept the first weights for the whole run, and nothing said so.
    def test_a_program_without_weights_gets_one_warning(self):
        for first, expected in ((None, 1), (9, 0)):  # updates before the only weights
            with mock.patch.object(_learner, "WEIGHTS_EXPECTED", 10), \
                    warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                with self.learner(overwrite=True, **{"run.max_updates": 40}) as learner:
                    for batch in learner:
                        weights = self.program.weights() if batch.updates == first else None
                        batch.done(1, np.ones(64), weights=weights)
            texts = [str(w.message) for w in caught if "batches without weights" in str(w.message)]
            self.assertEqual(len(texts), expected)
            for warning in caught:
                if "without weights" in str(warning.message):
                    self.assertEqual(warning.filename, __file__)

    def test_an_interrupted_run_resumes_with_weights_and_state(self):
        with self.learner() as learner:
            for batch in learner:
                self.program.answer(batch)
                if self.program.updates == 60:
                    break
        before = self.newest()[0]
        self.assertEqual(self.newest()[1]["updates"], 60)
        self.assertEqual(learner.run.result["status"], "interrupted")
        self.assert_nothing_runs()
        program = Program()
        with troop.Learner.resume(learner.path, save=program.save, load=program.load,
                                  progress=False) as resumed:
            for batch in resumed:
                self.assertEqual(batch.updates, program.updates)
                program.answer(batch)
        self.assertEqual(program.loads[0][1], b"60")
        for name, values in before.items():
            np.testing.assert_array_equal(program.loads[0][0][name], values)
        self.assertEqual(resumed.run.result["updates"], program.updates)
        self.assertEqual(resumed.run.result["steps"], 4000)

    def test_a_killed_learner_is_replaced_and_continues(self):
        killed, more = False, 0
        with self.learner(**{"run.total_steps": 10**7}) as learner:
            for batch in learner:
                self.program.answer(batch)
                more += len(self.program.loads) == 2
                if more == 50:
                    break
                if not killed and list((learner.path / "checkpoints").glob("[0-9]*")):
                    (number,) = [number for number, name in self.processes().items()
                                 if name == "learner-0"]
                    os.kill(number, signal.SIGKILL)
                    killed = True
        # The program's count is that of the checkpoint again, and every update since is one more.
        loaded = json.loads(self.program.loads[1][1])
        self.assertEqual(self.program.updates, loaded + 50)
        self.assertEqual(self.newest()[1]["updates"], loaded + 50)

    def test_errors_of_the_program_end_the_fleet(self):
        for error in (ZeroDivisionError, KeyboardInterrupt):
            with self.assertRaises(error):
                with self.learner(overwrite=True) as learner:
                    for batch in learner:
                        if batch.updates == 5:
                            raise error
                        self.program.answer(batch)
            self.assert_nothing_runs()
            self.program = Program()
        with self.assertRaisesRegex(RuntimeError, "was not answered"):
            with self.learner(overwrite=True) as learner:
                for batch in learner:
                    pass
        self.assert_nothing_runs()

    def test_a_run_that_cannot_start_is_an_error(self):
        with self.assertRaisesRegex(troop.TrainingError, "learner.batch_sise"):
            with self.learner(**{"learner.batch_sise": 3}) as learner:
                for _ in learner:
                    self.fail("a batch")
        with self.assertRaisesRegex(troop.TrainingError, "requires 1 here"):
            with self.learner(**{"fleet.learners": 2}) as learner:
                for _ in learner:
                    self.fail("a batch")
        with self.assertRaisesRegex(ValueError, "set by troop.Learner"):
            self.learner(**{"learner.algorithm": "dqn"})
        with self.assertRaisesRegex(RuntimeError, "with statement"):
            next(iter(self.learner()))
        with self.assertRaisesRegex(troop.TrainingError, "troop.Learner"):
            troop.train({**CONFIG, "log.dir": self.folder, "learner.algorithm": "external"},
                        progress=False)


class ReturnsTest(unittest.TestCase):
    def test_returns_equal_plain_loops(self):
        rng = np.random.default_rng(3)
        length = rng.integers(1, 6, 200).astype(np.int32)
        reward = rng.normal(size=(200, 5)).astype(np.float32)
        discount = (rng.random((200, 5)) > 0.1).astype(np.float32)
        outside = np.arange(5) >= length[:, None]
        reward[outside], discount[outside] = 0, 1
        fields = dict.fromkeys(("observation", "next_observation", "action", "weight", "priority",
                                "weights"), length)
        batch = _learner.Batch({**fields, "length": length, "reward": reward,
                                "discount": discount}, 0, lambda _: None, {})
        np.testing.assert_allclose(batch.returns(0.97), plain_returns(batch, 0.97), atol=1e-5)


if __name__ == "__main__":
    unittest.main()

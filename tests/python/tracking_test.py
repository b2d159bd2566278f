"""troop.tracking with a real run, MLflow's own files and wandb's own offline files."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import struct
import tempfile
import unittest

import troop
from troop import tracking

NEEDS = ("mlflow", "wandb")
CONFIG = {
    "name": "run", "env.id": "CartPole-v1", "network.layers": [{"type": "linear", "units": 16}],
    "fleet": {"actors": 1}, "actor.envs": 4,
    "replay": {"capacity_items": 20000, "min_items": 300, "samples_per_insert": 4},
    "run.total_steps": 3000, "evaluator": {"every_s": 0.1, "final_episodes": 2},
    "log.metrics_every_s": 0.1,
}


def records_of(data, block=32768):
    """The records of a file in the log format of LevelDB, after 7 bytes of wandb: each has a
    checksum, a length and a kind: 1 whole, 2 first, 3 middle or 4 last part."""
    at, parts = 7, []
    while at + 7 <= len(data):
        if block - at % block < 7:  # too short for a header: filled with zeros
            at += block - at % block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            return
        parts.append(data[at + 7:at + 7 + size])
        at += 7 + size
        if kind in (1, 4):
            yield b"".join(parts)
            parts = []


class TrackingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.made, ignore_errors=True)
        troop.train({**CONFIG, "log.dir": str(cls.made)}, progress=False)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        shutil.copytree(self.made / "run", self.folder / "run")
        self.run_ = troop.Run(self.folder / "run")

    def cut(self, lines):
        """Leaves the first lines of metrics.jsonl, as during the run; returns all of it."""
        path = self.run_.path / "metrics.jsonl"
        text = path.read_text(encoding="utf-8")
        path.write_text("".join(text.splitlines(True)[:lines]), encoding="utf-8")
        return text

    def metrics(self):
        """(steps, loss) of each line that has a loss, by a plain reading of the file."""
        text = (self.run_.path / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return [(line["steps"], line["learner/loss"]) for line in lines if "learner/loss" in line]

    def copy(self, *words):
        """The id that the command prints."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(tracking.main([*words, str(self.run_.path)]), 0)
        return output.getvalue().split()[-1]

    def test_mlflow_has_config_metrics_and_end_once(self):
        import mlflow
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # a database needs more packages
        uri = (self.folder / "mlruns").as_uri()
        text = self.cut(3)
        first = self.copy("mlflow", "--uri", uri)
        (self.run_.path / "metrics.jsonl").write_text(text, encoding="utf-8")
        self.assertEqual(self.copy("mlflow", "--uri", uri), first)   # adds the rest
        self.assertEqual(self.copy("mlflow", "--uri", uri), first)   # adds nothing
        client = mlflow.MlflowClient(tracking_uri=uri)
        copied = client.get_run(first)
        self.assertEqual(copied.info.status, "FINISHED")
        self.assertEqual(copied.info.run_name, "run")
        self.assertEqual(copied.data.params["env.id"], "CartPole-v1")
        self.assertEqual(copied.data.params["run.total_steps"], "3000")
        history = client.get_metric_history(first, "learner/loss")
        self.assertEqual(sorted((point.step, point.value) for point in history),
                         sorted(self.metrics()))
        self.assertGreater(len(history), 1)
        final = client.get_metric_history(first, "evaluation/return_mean")[-1]
        self.assertEqual(final.value, self.run_.result["final_return_mean"])
        # The times are those of the run, not of the copy.
        began = json.loads((self.run_.path / "provenance.jsonl").read_text().splitlines()[0])
        self.assertAlmostEqual(history[-1].timestamp / 1000, began["time_s"], delta=60)

    def test_wandb_writes_its_offline_files(self):
        os.environ["WANDB_SILENT"] = "true"
        identity = self.copy("wandb")
        (file,) = self.run_.path.glob(f"wandb/offline-run-*/run-{identity}.wandb")
        self.assertEqual(sorted(self.history(file)), sorted(self.metrics()))
        self.assertEqual(self.copy("wandb"), identity)
        points = [point for path in self.run_.path.glob("wandb/offline-run-*/*.wandb")
                  for point in self.history(path)]
        self.assertEqual(sorted(points), sorted(self.metrics()))   # nothing twice

    def history(self, file):
        """(steps, loss) of the history records of an offline file."""
        from wandb.proto import wandb_internal_pb2
        points = []
        for data in records_of(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            items = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json)
                     for item in record.history.item}
            if "learner/loss" in items:
                points.append((items["agent_steps"], items["learner/loss"]))
        return points

    def test_a_failed_copy_repeats_its_lines_with_the_same_id(self):
        with self.assertRaises(ZeroDivisionError):
            with tracking.Bookmark(self.run_, "place") as mark:
                mark.id, mark.lines = "abc", {"metrics.jsonl": 7}
                raise ZeroDivisionError
        again = tracking.Bookmark(self.run_, "place")
        self.assertEqual((again.id, again.lines), ("abc", {}))
        with again:
            again.lines = {"metrics.jsonl": 2}
        self.assertEqual(tracking.Bookmark(self.run_, "place").lines, {"metrics.jsonl": 2})
        self.assertEqual(tracking.Bookmark(self.run_, "other").id, "")
        # Another run in the same folder is copied from its first line, as another run.
        path = self.run_.path / "provenance.jsonl"
        path.write_text(path.read_text().replace('"time_s": ', '"time_s": 1'), encoding="utf-8")
        self.assertEqual(tracking.Bookmark(self.run_, "place").id, "")

    def test_wrong_arguments_are_errors(self):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(tracking.main(["mlflow", str(self.folder / "none")]), 2)
            with self.assertRaises(SystemExit):
                tracking.main(["mlflow", str(self.run_.path), "--every", "0"])
        self.assertIn("not a run folder", errors.getvalue())


if __name__ == "__main__":
    unittest.main()

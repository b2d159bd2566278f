"""troop.train and troop.Run with real runs: results, errors, and no process left behind."""
import contextlib
import doctest
import importlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import troop
from policy_files import read_tensors

NEEDS = ("gymnasium",)
PATIENCE_S = 60
LAYERS = [{"type": "linear", "units": 32, "activation": "tanh"}, {"type": "linear", "units": 16}]
# A short run: a second or two.
CONFIG = {
    "name": "run", "env.id": "CartPole-v1", "network": {"layers": LAYERS},
    "fleet": {"actors": 2}, "actor.envs": 4,
    "replay": {"capacity_items": 20000, "min_items": 500, "samples_per_insert": 8},
    "learner.batch_size": 64, "run.total_steps": 6000, "checkpoint.every_s": 0.3,
    "evaluator": {"every_s": 0.2, "episodes": 2, "final_episodes": 3, "keep_best": True},
    "log.metrics_every_s": 0.1,
}


def session_of(process):
    """The session of a living process; None: it is gone, or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[3])


def left_of(session):
    """Living processes of a session: the program and all of its roles."""
    return [int(name) for name in os.listdir("/proc")
            if name.isdigit() and session_of(int(name)) == session]


def await_true(condition, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def q_of(tensors, observations):
    """The dueling network of CONFIG in NumPy, from the weights of a checkpoint."""
    def linear(x, name):
        return x @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors[f"{name}.bias"]

    x = np.tanh(linear(np.asarray(observations, np.float64), "layers.0"))
    x = np.maximum(linear(x, "layers.1"), 0)
    advantage = linear(x, "head.advantage")
    return linear(x, "head.value") + advantage - advantage.mean(axis=1, keepdims=True)


class TrainingCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def train(self, **settings):
        with contextlib.redirect_stdout(io.StringIO()) as self.shown:
            return troop.train(CONFIG, {"log.dir": str(self.folder)}, **settings)


class RunTest(TrainingCase):
    """One run for all that only reads it."""

    @classmethod
    def setUpClass(cls):
        cls.runs = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.runs, ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            cls.run_ = troop.train(CONFIG, {"log.dir": cls.runs}, replay__alpha=0.7)
        cls.shown = shown.getvalue()

    def test_results_are_those_of_the_folder(self):
        run = self.run_
        self.assertEqual(run.path, pathlib.Path(self.runs) / "run")
        self.assertEqual(run.result["status"], "ok")
        self.assertGreaterEqual(run.result["steps"], 6000)
        self.assertEqual(run.config["replay"]["alpha"], 0.7)
        self.assertEqual(run.config["network"]["layers"][1]["units"], 16)
        self.assertEqual(run.status()["state"], "ended")
        self.assertIn("100 %", self.shown.splitlines()[-1])
        again = troop.Run(run.path)
        self.assertEqual(again.result, run.result)
        self.assertEqual(repr(again), f"troop.Run({str(run.path)!r})")

    def test_metrics_are_columns_of_equal_length(self):
        lines = [json.loads(line) for line in
                 (self.run_.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        metrics = self.run_.metrics
        self.assertEqual({len(column) for column in metrics.values()}, {len(lines)})
        np.testing.assert_array_equal(metrics["steps"], [line["steps"] for line in lines])
        self.assertEqual(metrics["bottleneck"].tolist(), [line["bottleneck"] for line in lines])
        loss = [line.get("learner/loss", np.nan) for line in lines]
        np.testing.assert_array_equal(metrics["learner/loss"], loss)
        self.assertTrue(np.isnan(loss[0]) and not np.isnan(loss[-1]))
        self.assertEqual(metrics["replay/age/p50"].dtype, np.float64)
        evaluations = self.run_.evaluations
        self.assertTrue(evaluations["final"][-1])
        self.assertEqual(evaluations["return_mean"][-1], self.run_.result["final_return_mean"])
        self.assertEqual(self.run_.best["score"], evaluations["return_mean"].max())

    def test_metrics_become_a_data_frame(self):
        try:
            import pandas
        except ImportError:
            self.skipTest("pandas is not installed")
        frame = pandas.DataFrame(self.run_.metrics)
        self.assertEqual(frame["steps"].iloc[-1], self.run_.result["steps"])

    def test_policies_are_those_of_the_checkpoints(self):
        observations = np.random.default_rng(1).normal(size=(300, 4)).astype(np.float32)
        newest = sorted(os.listdir(self.run_.path / "checkpoints"))[-1]
        for best, folder in ((False, f"checkpoints/{newest}"), (True, "best")):
            metadata, tensors = read_tensors(self.run_.path / folder / "weights.safetensors")
            self.assertEqual(metadata["updates"],
                             str(json.loads((self.run_.path / folder / "state.json").read_text(
                                 encoding="utf-8"))["updates"]))
            q = q_of(tensors, observations)
            policy = self.run_.policy(best=best)
            np.testing.assert_allclose(policy.q_values(observations), q, rtol=1e-4, atol=1e-4)
            clear = np.abs(q[:, 0] - q[:, 1]) > 1e-3
            actions, _ = policy.predict(observations, deterministic=True)
            np.testing.assert_array_equal(actions[clear], q.argmax(axis=1)[clear])
        mean, deviation = troop.evaluate(self.run_.policy(), troop.make_env("CartPole-v1"), 3)
        self.assertGreaterEqual(mean, 1)
        self.assertGreaterEqual(deviation, 0)


class TrainTest(TrainingCase):
    def error(self, *arguments, **settings):
        with self.assertRaises((troop.TrainingError, ValueError)) as caught:
            troop.train(*arguments, log__dir=str(self.folder), progress=False, **settings)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_wrong_configs_are_one_line_and_start_nothing(self):
        self.assertEqual(self.error(CONFIG, replay__alphaa=1), "command line: replay.alphaa=1: "
                         "unknown key; the nearest is replay.alpha")
        self.assertIn("replay.alpha", self.error(CONFIG, replay__alpha=-3))
        self.assertIn("unknown environment", self.error(CONFIG, env__id="Nope-v0"))
        self.assertIn("config:2:", self.error("seed = 1\nreplay.alfa = 2\n"))
        self.assertIn("not TOML", self.error("seed = = 1\n"))
        self.assertIn("no such file", self.error("none.toml"))
        self.assertIn("seed is None", self.error(CONFIG, seed=None))
        self.assertIn("given twice", self.error(CONFIG, {"log.dir": "x"}))
        self.assertIn("fleet.engine is slurm", self.error(CONFIG, fleet__engine="slurm"))
        self.assertIn("config is a int", self.error(5))
        self.assertIn("env_kwargs", self.error(CONFIG, env_kwargs={"a": 1}))
        self.assertEqual(os.listdir(self.folder), [])

    def test_missing_program_is_named(self):
        for place in ("/no/such/troop", str(self.folder)):
            with self.assertRaisesRegex(FileNotFoundError, "not an executable"):
                troop.train(CONFIG, program=place)
        names = {name: os.environ[name] for name in ("PATH", "TROOP_PROGRAM")}
        self.addCleanup(os.environ.update, names)
        os.environ["PATH"] = str(self.folder)
        del os.environ["TROOP_PROGRAM"]
        with self.assertRaisesRegex(FileNotFoundError, "TROOP_PROGRAM"):
            troop.train(CONFIG)
        program = self.folder / "troop"
        program.write_text("#!/bin/sh\necho troop: the run failed: found me\nexit 1\n")
        program.chmod(0o755)
        with self.assertRaisesRegex(troop.TrainingError, "the run failed: found me"):
            self.train()

    def test_file_and_text_are_configs_and_names_are_used_once(self):
        path = self.folder / "own.toml"
        text = ('name = "text"\nenv.id = "CartPole-v1"\nfleet = {mode = "serial"}\n'
                "replay.min_items = 100\nrun.total_steps = 400\nlearner.batch_size = 16\n"
                f"evaluator.enabled = false\nlog.dir = {json.dumps(str(self.folder))}\n")
        path.write_text(text, encoding="utf-8")
        self.assertEqual(troop.train(path, progress=False).result["steps"], 400)
        with self.assertRaisesRegex(troop.TrainingError, "already holds a run"):
            troop.train(text, progress=False)
        run = troop.train(text, overwrite=True, seed=3, progress=False)
        self.assertEqual((run.config["seed"], run.name), (3, "text"))
        self.assertEqual(run.best, None)
        with self.assertRaisesRegex(ValueError, "keep_best"):
            run.policy(best=True)

    def test_finished_run_continues_with_a_larger_budget(self):
        run = self.train(run__total_steps=2000)
        resumed = run.resume(run__total_steps=4000, progress=False)
        self.assertIs(resumed, run)
        self.assertGreaterEqual(run.result["steps"], 4000)
        with self.assertRaisesRegex(troop.TrainingError, "unknown key"):
            run.resume(no__such=1, progress=False)

    def live_process(self):
        """The process of the run in self.folder, once it has trained for a moment."""
        metrics = self.folder / "run/metrics.jsonl"
        checkpoints = self.folder / "run/checkpoints"
        self.assertTrue(await_true(lambda: metrics.exists() and checkpoints.exists() and any(
            name.isdigit() for name in os.listdir(checkpoints))))
        return json.loads((self.folder / "run/run.json").read_text(encoding="utf-8"))["process"]

    def test_killed_program_is_an_error_and_can_be_resumed(self):
        killed = []

        def kill():
            killed.append(self.live_process())
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with self.assertRaisesRegex(troop.TrainingError, "killed by SIGKILL") as caught:
            self.train(run__total_steps=10**8)
        killer.join()
        self.assertEqual(caught.exception.path, self.folder / "run")
        self.assertTrue(await_true(lambda: not left_of(killed[0])), left_of(killed[0]))
        run = troop.Run(caught.exception.path)
        steps = int(run.metrics["steps"][-1])
        run.resume(run__total_steps=steps + 2000, progress=False)
        self.assertEqual(run.result["status"], "ok")

    def interrupted(self, number):
        """Sends a signal to a Python process that trains: (its exit code and error, the session of
        the run)."""
        script = self.folder / "script.py"
        script.write_text("import json, sys, troop\n"
                          f"troop.train(json.loads({json.dumps(json.dumps(CONFIG))}), "
                          "run__total_steps=10**9)\n", encoding="utf-8")
        with subprocess.Popen([sys.executable, str(script), "x"], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as own:
            try:
                os.symlink("runs/run", self.folder / "run")
                session = self.live_process()
                own.send_signal(number)
                _, error = own.communicate(timeout=PATIENCE_S)
            finally:
                own.kill()
        return own.returncode, error, session

    def test_keyboard_interrupt_ends_the_run_with_a_checkpoint(self):
        code, error, session = self.interrupted(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", error)
        self.assertEqual(code, -signal.SIGINT)
        self.assertEqual(left_of(session), [])  # at once: train has waited
        run = troop.Run(self.folder / "run")
        self.assertEqual(run.result["status"], "interrupted")
        self.assertGreater(run.result["steps"], 0)
        run.policy()

    def test_killed_script_ends_the_run(self):
        if shutil.which("setpriv") is None:
            self.skipTest("setpriv of util-linux is not installed")
        code, _, session = self.interrupted(signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        self.assertTrue(await_true(lambda: not left_of(session)), left_of(session))
        self.assertEqual(troop.Run(self.folder / "run").result["status"], "interrupted")

    def test_interrupt_from_elsewhere_is_an_error(self):
        stopper = threading.Thread(target=lambda: os.kill(self.live_process(), signal.SIGINT))
        stopper.start()
        with self.assertRaisesRegex(troop.TrainingError, "was interrupted; continue it") as caught:
            self.train(run__total_steps=10**8)
        stopper.join()
        self.assertEqual(caught.exception.exit_code, 130)

    def stubborn_program(self):
        """(path, file that it writes its process to) of a program that ignores SIGINT."""
        program, started = self.folder / "troop", self.folder / "started"
        program.write_text(f"#!/bin/sh\ntrap '' INT\necho $$ > {started}.new\n"
                           f"mv {started}.new {started}\nwhile :; do sleep 0.1; done\n")
        program.chmod(0o755)
        return program, started

    def test_program_that_ignores_signals_is_killed_after_the_deadline(self):
        program, started = self.stubborn_program()
        module = importlib.import_module("troop._program")
        self.addCleanup(setattr, module, "KILL_AFTER_S", module.KILL_AFTER_S)
        module.KILL_AFTER_S = 0.2
        with self.assertRaises(ZeroDivisionError):
            with module.Process([str(program)], dict(os.environ), 0.2):
                self.assertTrue(await_true(started.exists))
                raise ZeroDivisionError
        session = int(started.read_text(encoding="utf-8"))
        self.assertTrue(await_true(lambda: session not in left_of(session)))

    def test_further_interrupts_do_not_wait_for_the_deadline(self):
        program, started = self.stubborn_program()
        module = importlib.import_module("troop._program")

        def interrupt():
            await_true(started.exists)
            for _ in range(200):  # until the process is gone; each one is a Ctrl-C
                session = int(started.read_text(encoding="utf-8"))
                if session not in left_of(session):
                    return
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.3)

        user = threading.Thread(target=interrupt)
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            with module.Process([str(program)], dict(os.environ), 1000.0) as process:
                user.start()
                process.wait(PATIENCE_S)
        user.join()
        self.assertLess(time.monotonic() - begin, 10 * PATIENCE_S)

    def test_interrupt_during_the_start_leaves_no_process(self):
        # The former fault: a Ctrl-C between the fork and the assignment left the process.
        program, _ = self.stubborn_program()
        module = importlib.import_module("troop._program")
        start, sessions = subprocess.Popen, []

        class Interrupted(start):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                sessions.append(self.pid)
                signal.raise_signal(signal.SIGINT)

        self.addCleanup(setattr, module.subprocess, "Popen", start)
        self.addCleanup(lambda: [os.kill(p, signal.SIGKILL) for s in sessions for p in left_of(s)])
        self.addCleanup(setattr, module, "KILL_AFTER_S", module.KILL_AFTER_S)
        module.KILL_AFTER_S = 0.1
        process = module.Process([str(program)], dict(os.environ), 1.0)
        module.subprocess.Popen = Interrupted
        with self.assertRaises(KeyboardInterrupt):
            with process:
                self.fail("the interrupt was lost")
        self.assertEqual(len(sessions), 1)
        self.assertTrue(await_true(lambda: sessions[0] not in left_of(sessions[0]), 5))
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


class ProgressTest(unittest.TestCase):
    def shown(self, terminal, walls):
        """What is written for lines of metrics at these seconds."""
        module = importlib.import_module("troop._progress")
        output = io.StringIO()
        output.isatty = lambda: terminal
        with contextlib.redirect_stdout(output):
            progress = module.Progress("run", True)
            for wall in walls:
                progress.show({"wall_s": wall, "steps": 10 * wall, "steps_per_s": 10},
                              {"run": {"total_steps": 1000}}, last=wall == walls[-1])
            progress.close()
        return output.getvalue()

    def test_a_terminal_has_one_line(self):
        shown = self.shown(True, (1, 2, 100))
        self.assertEqual(shown.count("\n"), 1)
        self.assertTrue(shown.endswith("\n"))
        self.assertRegex(shown.split("\r")[-1], "^run: 100 %, 1,000 of 1,000 steps, 10 steps/s *$")
        self.assertEqual(shown.count("\r"), 3)

    def test_a_log_has_few_lines_and_the_last(self):
        lines = self.shown(False, (0, 1, 2, 29, 31, 40, 45)).splitlines()
        self.assertEqual([line.split()[1] for line in lines], ["0", "31", "45"])
        self.assertNotIn("\r", "".join(lines))


class DoctestTest(unittest.TestCase):
    def test_examples_in_docstrings(self):
        tried = 0
        for path in sorted(pathlib.Path(troop.__file__).parent.glob("*.py")):
            name = "troop" if path.stem == "__init__" else f"troop.{path.stem}"
            result = doctest.testmod(importlib.import_module(name))
            self.assertEqual(result.failed, 0, name)
            tried += result.attempted
        self.assertGreater(tried, 5)


if __name__ == "__main__":
    unittest.main()

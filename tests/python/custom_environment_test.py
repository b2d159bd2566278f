"""troop.train(env=...): classes of scripts, modules and notebooks, in real runs."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

import troop

NEEDS = ("gymnasium", "cloudpickle")

# An environment whose observations show its argument, with a run of it.
CLASS = """
import gymnasium, numpy, sys, troop

SCALE = 2.0

class Corridor(gymnasium.Env):
    def __init__(self, length=5, note="unset"):
        assert note is None, note
        self.observation_space = gymnasium.spaces.Box(-1, 100, (2,), numpy.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.length, self.at, self.steps = length, 0, 0

    def observe(self):
        return numpy.array([self.at / SCALE, self.length], numpy.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.at = max(0, self.at + (1 if action else -1))
        self.steps += 1
        return self.observe(), -1.0, self.at == self.length, self.steps == 30, {}
"""
CONFIG = """
CONFIG = {"fleet.actors": 1, "actor.envs": 2, "replay.min_items": 50, "replay.capacity_items": 1000,
          "learner.batch_size": 8, "run.total_steps": 300, "evaluator.episodes": 2,
          "evaluator.final_episodes": 2, "fleet.mode": "serial"}
def train(env, **more):
    return troop.train(CONFIG, env=env, env_kwargs={"length": 4, "note": None}, progress=False,
                       **more)
def report(run):
    print("id", run.config["env"]["id"])
    print("steps", run.result["steps"], "of", run.policy().observation_space.shape)
"""


class CustomEnvironmentTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, name, *parts):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(textwrap.dedent(part) for part in parts), encoding="utf-8")
        return path

    def run_python(self, *words, code=0, cwd=None, more=()):
        """(output, error) of a Python process that sees the package, but not the tests."""
        package = str(pathlib.Path(troop.__file__).parent.parent)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *more])}
        ended = subprocess.run([sys.executable, *map(str, words)], cwd=cwd or self.folder,
                               text=True, capture_output=True, timeout=120, check=False,
                               env=environment)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        return ended.stdout, ended.stderr

    def test_class_of_a_guarded_script_is_imported_and_found_again_by_resume(self):
        script = self.write("my_script.py", CLASS, CONFIG, """
            if __name__ == "__main__":
                report(train(Corridor))
        """)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        output, _ = self.run_python(script, cwd=elsewhere)
        self.assertIn("id python:my_script:Corridor", output)
        self.assertIn("steps 300 of (2,)", output)
        output, _ = self.run_python("-c", textwrap.dedent("""
            import troop
            run = troop.Run("runs/run").resume(run__total_steps=500, progress=False)
            print("steps", run.result["steps"])
        """), cwd=elsewhere)
        self.assertIn("steps 500", output)

    def test_class_of_a_script_without_guard_is_passed_by_value(self):
        script = self.write("plain.py", CLASS, CONFIG, "\nreport(train(Corridor))\n")
        output, _ = self.run_python(script)
        self.assertRegex(output, "id python:troop_env_[0-9a-f]{16}:make")
        self.assertIn("steps 300 of (2,)", output)

    def test_class_of_a_notebook_cell_is_passed_by_value(self):
        # No file: as in a notebook or an interactive session.
        output, _ = self.run_python("-c", CLASS + CONFIG + "\nreport(train(Corridor))\n")
        self.assertIn("steps 300", output)

    def test_local_functions_are_passed_by_value(self):
        output, _ = self.run_python("-c", CLASS + CONFIG + textwrap.dedent("""
            def make():
                bonus = 4
                return lambda length, note: Corridor(length + bonus, note)
            report(train(make()))
            print("length", Corridor(8, None).observe()[1])
        """))
        self.assertIn("steps 300", output)

    def test_class_of_a_module_is_imported(self):
        self.write("package/__init__.py", "")
        self.write("package/places.py", CLASS)
        script = self.write("outside.py", """
            import sys
            sys.path.insert(0, sys.argv[1])
            import troop
            from package.places import Corridor
        """, CONFIG, "\nreport(train(Corridor))\n")
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        output, _ = self.run_python(script, self.folder, cwd=elsewhere)
        self.assertIn("id python:package.places:Corridor", output)
        self.assertIn("steps 300", output)

    def test_script_run_as_a_module(self):
        self.write("package/__init__.py", "")
        self.write("package/main.py", CLASS, CONFIG, """
            if __name__ == "__main__":
                report(train(Corridor))
        """)
        output, _ = self.run_python("-m", "package.main")
        self.assertIn("id python:package.main:Corridor", output)

    def test_without_cloudpickle_the_remedy_is_named(self):
        script = self.write("plain.py", CLASS, CONFIG, """
            sys.modules["cloudpickle"] = None
            try:
                train(Corridor)
            except ValueError as error:
                print("refused:", error)
        """)
        output, _ = self.run_python(script)
        self.assertRegex(output, r"^refused: env Corridor .*pip install cloudpickle.*__main__")
        self.assertEqual(len(output.splitlines()), 1)
        self.assertFalse((self.folder / "runs").exists())

    def test_call_outside_of_the_guard_does_not_start_runs_in_workers(self):
        script = self.write("unguarded.py", CLASS, CONFIG, """
            if __name__ == "__main__":
                pass
            try:
                train(Corridor)
            except troop.TrainingError as error:
                print("refused:", error)
        """)
        output, _ = self.run_python(script)
        self.assertRegex(output, "^refused: .*call it under")
        self.assertEqual(len(output.splitlines()), 1)

    def test_wrong_environments_are_refused(self):
        for env, kwargs, message in (
                (object(), None, "env is a object object, must be a class"),
                (dict, {"x": object()}, r"env.options.x is a object"),
                (lambda: open(os.devnull), None, "which has no reset")):
            with self.assertRaisesRegex((ValueError, troop.TrainingError), message):
                troop.train({"log.dir": str(self.folder), "fleet.mode": "serial"}, env=env,
                            env_kwargs=kwargs, progress=False)
        with self.assertRaisesRegex(ValueError, "env.id is given twice"):
            troop.train({}, env="CartPole-v1", env__id="CartPole-v1")

    def test_names_of_environments(self):
        self.assertIsNotNone(importlib.util.find_spec("gymnasium"))
        settings = {"fleet.mode": "serial", "replay.min_items": 50, "run.total_steps": 100,
                    "evaluator.enabled": False, "log.dir": str(self.folder), "actor.envs": 1,
                    "fleet.actors": 1, "learner.batch_size": 8}
        run = troop.train(settings, env="gymnasium:CartPole-v1", progress=False,
                          env_kwargs={"sutton_barto_reward": True})
        self.assertEqual(run.config["env"]["options"], {"sutton_barto_reward": True})
        self.assertEqual(run.config["env"]["python"], sys.executable)
        with self.assertRaisesRegex(troop.TrainingError, "built in and has no options"):
            troop.train(settings, env="CartPole-v1", env_kwargs={"a": 1}, progress=False)


if __name__ == "__main__":
    unittest.main()

"""troop and troop_replay pass mypy --strict, with the stubs of their extensions."""
import importlib
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import troop
from troop import _native

NEEDS = ("gymnasium", "mypy")
PACKAGE = pathlib.Path(troop.__file__).parent
# A user's program; a test adds a mistake that only types find.
USER = """
import troop
env = troop.make_env("CartPole-v1", render_mode="rgb_array", max_episode_steps=5)
observation, info = env.reset(seed=1)
vector = troop.make_vector_env("CartPole-v1", 4, threads=2, copy=False)
names: list[str] = troop.environment_ids()
run: troop.Run = troop.train({"env.id": "CartPole-v1"}, {"seed": 3}, replay__alpha=0.6)
steps = run.metrics["steps"].max()
result = run.resume(run__total_steps=100).result
assert result is not None and result["status"] == "ok"
policy: troop.Policy = troop.load_policy("runs/run", best=True)
actions, state = policy.predict(observation, deterministic=True)
mean, deviation = troop.evaluate(policy, env)
assert mean + deviation > 0
returns, lengths = troop.evaluate(policy, env, return_episode_rewards=True)
returns.append(float(lengths[0]))
"""


class TypingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # One cache: reading the types of NumPy and Gymnasium takes most of the time.
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.addClassCleanup(folder.cleanup)
        cls.cache = folder.name

    def check(self, *arguments, cwd):
        """(exit code, output) of mypy."""
        run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.cache,
                              *arguments], cwd=cwd, capture_output=True, text=True, check=False,
                             env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
        return run.returncode, run.stdout

    def test_the_packages_are_strictly_typed(self):
        for name in ("troop", "troop_replay"):
            self.assertTrue((PACKAGE.parent / name / "py.typed").exists())
        code, output = self.check("-p", "troop", "-p", "troop_replay", cwd=PACKAGE.parent)
        self.assertEqual(code, 0, output)

    def test_users_are_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "user.py"
            path.write_text(USER, encoding="utf-8")
            code, output = self.check("user.py", cwd=folder)
            self.assertEqual(code, 0, output)
            path.write_text(USER + "troop.make_vector_env(4, \"CartPole-v1\")\n", encoding="utf-8")
            code, output = self.check("user.py", cwd=folder)
            self.assertEqual(code, 1, output)
            self.assertIn("arg-type", output)

    def test_the_stub_names_what_the_extension_has(self):
        stub = (PACKAGE / "_native.pyi").read_text(encoding="utf-8")
        module = importlib.import_module("troop._native")
        for name, value in vars(module).items():
            if name.startswith("__"):
                continue
            self.assertIn(name, stub)
            if inspect.isclass(value):
                for member in vars(value):
                    if not member.startswith("_"):
                        self.assertRegex(stub, rf"def {member}\(|\b{member}: ")
        for line in stub.splitlines():
            if line.startswith(("class ", "def ")):
                name = line.split()[1].split("(")[0].rstrip(":")
                self.assertTrue(name == "Spec" or hasattr(_native, name), name)


if __name__ == "__main__":
    unittest.main()

"""`pip install ./python` from the checkout, into an empty environment.

source_package_test.py SOURCE. It compiles the extension modules for minutes, and needs no program
`troop`.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1])
CODE = """
import numpy as np, troop, troop_env, troop_replay
assert troop.__version__ == troop_replay.__version__, troop.__version__
env = troop.make_env("CartPole-v1")
observation, _ = env.reset(seed=1)
assert env.observation_space.contains(observation)
print(len(troop.environment_ids()), "environments")
try:
    troop.train({"env.id": "CartPole-v1"})
except FileNotFoundError as error:
    print(error)
"""


class SourcePackageTest(unittest.TestCase):
    def test_installs_into_an_empty_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "venv/bin/python"
            subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
            done = subprocess.run([python, "-m", "pip", "install", f"{SOURCE / 'python'}[gym]"],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
            used = subprocess.run([python, "-c", CODE], capture_output=True, text=True, check=False,
                                  cwd=folder, env={"PATH": "/nowhere"})
            self.assertEqual(used.returncode, 0, used.stderr)
            self.assertIn("environments", used.stdout)
            self.assertIn("the program troop was not found; install it", used.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

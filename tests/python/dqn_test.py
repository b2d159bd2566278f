"""The DQN of docs/guide/replay_from_python.md learns, with the service and in process."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from page import blocks, local_dqn

NEEDS = ("torch", "gymnasium")
RANDOM_RETURN = 22  # of CartPole, without any learning
LEARNED_RETURN = 80


class DqnTest(unittest.TestCase):
    def train(self, code):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(code)
            script.flush()
            run = subprocess.run(
                [sys.executable, script.name], capture_output=True, text=True, check=False,
                timeout=280, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(run.returncode, 0, run.stderr)
        found = re.search(r"mean return of the last 20 of \d+ episodes: (\d+)", run.stdout)
        self.assertIsNotNone(found, run.stdout)
        self.assertGreater(int(found[1]), LEARNED_RETURN)

    def test_it_learns_with_the_service(self):
        self.train(blocks("dqn_troop.py")[0])

    def test_it_learns_in_process(self):
        self.train(local_dqn())


if __name__ == "__main__":
    unittest.main()

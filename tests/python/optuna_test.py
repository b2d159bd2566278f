"""examples/python_sweep with the real Optuna: a study, and its continuation."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import troop

NEEDS = ("optuna",)
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python_sweep/optuna_cartpole.py"


class OptunaTest(unittest.TestCase):
    def run_example(self, folder, trials):
        package = os.path.dirname(os.path.dirname(troop.__file__))
        run = subprocess.run([sys.executable, EXAMPLE, folder, str(trials)], capture_output=True,
                             text=True, check=False, timeout=240,
                             env={**os.environ, "PYTHONPATH": package})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_a_study_continues_with_further_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.run_example(folder, 2)
            second = self.run_example(folder, 1)
            results = [troop.Run(f"{folder}/trial-{i}").result["final_return_mean"]
                       for i in range(3)]
            self.assertIn(f"best return {max(results[:2]):.1f} with", first)
            self.assertIn(f"best return {max(results):.1f} with", second)
            rates = {troop.Run(f"{folder}/trial-{i}").config["optimizer"]["learning_rate"]
                     for i in range(3)}
            self.assertEqual(len(rates), 3)


if __name__ == "__main__":
    unittest.main()

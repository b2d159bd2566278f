"""Trains and exports an agent, then plays it with the programs in examples/ that load a policy.

policy_examples_test.py SOURCE BUILD CMAKE. TROOP_TEST_PYTHON: a Python with gymnasium.
"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

from installed_policy import install, run

SOURCE, BUILD, CMAKE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
PYTHON = os.environ.get("TROOP_TEST_PYTHON")
# A short run that learns: 220 of 500 steps, while random actions reach about 20. Serial mode
# repeats it exactly, but for the rounding of the processor's instruction set.
RUN = ["fleet.mode=serial", "run.total_steps=40000", "replay.samples_per_insert=8",
       "evaluator.episodes=1", "evaluator.final_episodes=1"]
SCORE_MIN = 100


class PolicyExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp())
        cls.prefix = cls.work / "installed"
        install(CMAKE, BUILD, cls.prefix)
        (cls.library,) = {path.parent for path in cls.prefix.rglob("libtroop_policy.a")}
        run(BUILD / "troop", "train", SOURCE / "configs/apex_cartpole.toml", *RUN, "name=cartpole",
            f"log.dir={cls.work}")
        cls.policy = cls.work / "cartpole.safetensors"
        run(BUILD / "troop", "export", cls.work / "cartpole", "--out", cls.policy)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def build(self, folder, program):
        """The program, from a copy of its folder as a user has it."""
        project = self.work / folder
        shutil.copytree(SOURCE / "examples" / folder, project)
        warnings = "-Wall -Wextra -Werror -pedantic"
        run(CMAKE, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_FLAGS={warnings}", f"-DCMAKE_CXX_FLAGS={warnings}")
        run(CMAKE, "--build", project / "build")
        return project / "build" / program

    def refuses(self, *command, environment=None):
        """An error of the library ends the program with one line."""
        done = subprocess.run([*command, self.work / "missing"], capture_output=True, text=True,
                              env=environment)
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing: cannot be opened", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_programs_in_c_and_cpp_balance_the_pole(self):
        scores = {}
        for folder, program in (("c_policy", "balance_pole"), ("cpp_policy", "cart_pole_agent")):
            built = self.build(folder, program)
            scores[folder] = [int(line) for line in run(built, self.policy).splitlines()]
            self.refuses(built)
        self.assertEqual(scores["c_policy"], scores["cpp_policy"])
        self.assertEqual(len(scores["c_policy"]), 10)
        self.assertGreater(statistics.mean(scores["c_policy"]), SCORE_MIN, scores)

    @unittest.skipUnless(PYTHON, "TROOP_TEST_PYTHON names no Python with gymnasium")
    def test_program_in_python_balances_the_pole(self):
        environment = dict(os.environ, LD_LIBRARY_PATH=str(self.library))
        program = SOURCE / "examples/python_policy/play_policy.py"
        lines = run(PYTHON, program, self.policy, env=environment).splitlines()
        self.assertEqual(len(lines), 10, lines)
        self.assertGreater(statistics.mean(map(float, lines)), SCORE_MIN, lines)
        self.refuses(PYTHON, program, environment=environment)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

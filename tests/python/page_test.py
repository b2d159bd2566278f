"""The snippets of docs/guide/replay_from_python.md run, and its listings are as it says."""
import difflib
import unittest

import numpy as np

from page import blocks, local_dqn


class Space:
    def __init__(self, dtype, shape):
        self.dtype, self.shape = np.dtype(dtype), shape


class Env:
    """A stand-in for an environment: the snippets' `env`."""

    observation_space, action_space = Space(np.float32, (4,)), Space(np.int64, ())


class PageTest(unittest.TestCase):
    def test_the_snippets_run(self):
        names = {"env": Env(), "np": np}
        snippets = blocks("snippet")
        self.assertGreaterEqual(len(snippets), 4)
        for number, code in enumerate(snippets):
            with self.subTest(snippet=number):
                exec(compile(code, f"snippet {number}", "exec"), names)  # pylint: disable=exec-used

    def test_leaving_reverb_changes_nothing_but_the_replay(self):
        (reverb,), (troop,) = blocks("dqn_reverb.py"), blocks("dqn_troop.py")
        compile(reverb, "dqn_reverb.py", "exec")
        compile(local_dqn(), "dqn_local.py", "exec")
        before, after = reverb.splitlines(), troop.splitlines()
        removed = added = 0
        learn = before.index("def learn():")
        for line in difflib.ndiff(before, after):
            removed += line.startswith("- ")
            added += line.startswith("+ ")
        self.assertEqual(before[learn:], after[after.index("def learn():"):])
        self.assertLess(added, removed / 2)


if __name__ == "__main__":
    unittest.main()

"""The snippets of docs/guide/environments_from_python.md run, and its table is complete."""
import re
import unittest

import troop
from page import GUIDE, blocks

NEEDS = ("gymnasium",)
PAGE = "environments_from_python"


class EnvPageTest(unittest.TestCase):
    def test_the_snippets_run(self):
        names = {}
        snippets = blocks("snippet", PAGE)
        self.assertEqual(len(snippets), 2)
        for code in snippets:
            exec(compile(code, "snippet", "exec"), names)  # pylint: disable=exec-used
        rollout = names["rollout"]
        self.assertEqual(rollout["reward"].sum(), rollout["reward"].size)  # 1 for each step
        # The stored observations are those of the steps, not what the memory holds at the end.
        self.assertEqual(len({row.tobytes() for row in rollout["observation"]}), names["T"])

    def test_every_option_is_in_the_table(self):
        page = (GUIDE / f"{PAGE}.md").read_text(encoding="utf-8")
        options = re.findall(r"^\| `(\w+)` \|", page, re.M)
        with self.assertRaises(ValueError) as caught:
            troop.make_env("CartPole-v1", no_such_option=1)
        self.assertEqual(str(caught.exception).partition("have: ")[2], ", ".join(options))

    def test_default_sticky_actions_are_those_of_the_page(self):
        # A game of which no action sticks differs; one with 0.1 is the default.
        def play(name, **options):
            env = troop.make_env(name, **options)
            seen = [env.reset(seed=2)[0].tobytes()]
            for step in range(300):
                observation, _, terminated, truncated, _ = env.step(step * 7 % 3)
                seen.append(observation.tobytes())
                if terminated or truncated:
                    env.reset()
            return seen

        self.assertEqual(play("MinAtar/Breakout-v1"), play("MinAtar/Breakout-v1",
                                                          sticky_actions=0.1))
        self.assertNotEqual(play("MinAtar/Breakout-v1"), play("MinAtar/Breakout-v1",
                                                             sticky_actions=0))
        self.assertEqual(play("Acrobot-v1"), play("Acrobot-v1", sticky_actions=0))


if __name__ == "__main__":
    unittest.main()

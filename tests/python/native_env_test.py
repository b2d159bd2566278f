"""troop.make_env: Troop's own steps, by the rules of Gymnasium."""
import gc
import os
import subprocess
import sys
import threading
import unittest
import warnings

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import check_env

import troop
from env_actions import Trace, action_of, cases

NEEDS = ("gymnasium",)
STEPS = 700  # more than one episode of every environment but some games'


def refused(test, kind, text, call):
    """Checks an error of one line."""
    with test.assertRaisesRegex(kind, text) as caught:
        call()
    test.assertNotIn("\n", str(caught.exception))


class NativeEnvTest(unittest.TestCase):
    def test_every_environment_passes_the_checks_of_gymnasium(self):
        self.assertIn("MinAtar/Freeway-v1", troop.environment_ids())
        for name in troop.environment_ids():
            with self.subTest(name), warnings.catch_warnings():
                # Bounds of floats are not declared, and Pendulum's action is Gymnasium's.
                warnings.filterwarnings("error")
                warnings.filterwarnings("ignore", ".*(A Box observation space|symmetric and nor)")
                env = troop.make_env(name, render_mode="rgb_array")
                self.assertIsInstance(env, gymnasium.Env)
                check_env(env)

    def test_steps_are_those_of_troop(self):
        ended = set()
        for name, options in cases(troop.environment_ids()):
            with self.subTest(name, **options):
                trace = Trace(name, 41, STEPS, **options)
                env = troop.make_env(name, **options)
                observation, info = env.reset(seed=41)
                self.assertEqual((observation.tobytes(), info), (trace.first, {}))
                for step, (reward, terminated, truncated, after, final) in enumerate(trace):
                    got = env.step(action_of(env.action_space, step))
                    self.assertEqual(got[1:], (reward, terminated, truncated, {}))
                    self.assertEqual(got[0].tobytes(), after if final is None else final)
                    self.assertIn(got[0], env.observation_space)
                    if final is not None:
                        ended.add(name)
                        self.assertEqual(env.reset()[0].tobytes(), after)
        self.assertGreaterEqual(len(ended), 10)

    def test_limits_truncate_and_rules_terminate(self):
        env = troop.make_env("CartPole-v1", max_episode_steps=5)
        env.reset(seed=1)
        ends = [env.step(step % 2)[2:4] for step in range(5)]
        self.assertEqual(ends, [(False, False)] * 4 + [(False, True)])
        self.assertEqual(env.spec.max_episode_steps, 5)
        env = troop.make_env("CartPole-v1")
        env.reset(seed=1)
        ends = []
        while not ends or ends[-1] == (False, False):
            ends.append(env.step(1)[2:4])
        self.assertEqual(ends[-1], (True, False))

    def test_dynamics_are_those_of_gymnasium(self):
        # An oracle that shares no code: Gymnasium's own CartPole, from the same state.
        env, other = troop.make_env("CartPole-v1"), gymnasium.make("CartPole-v1").unwrapped
        observation, _ = env.reset(seed=3)
        other.reset()
        other.state = observation.astype(np.float64)
        for step in range(12):
            observation, *_ = env.step(step % 2)
            expected, *_ = other.step(step % 2)
            np.testing.assert_allclose(observation, expected, rtol=1e-4, atol=1e-5)

    def test_later_episodes_differ_and_unseeded_ones_too(self):
        env = troop.make_env("CartPole-v1")
        firsts = [env.reset(seed=5)[0].tobytes()] + [env.reset()[0].tobytes() for _ in range(20)]
        self.assertEqual(len(set(firsts)), 21)
        unseeded = {troop.make_env("CartPole-v1").reset()[0].tobytes() for _ in range(20)}
        self.assertEqual(len(unseeded), 20)

    def test_the_spec_makes_the_same_environment(self):
        env = troop.make_env("Pendulum-v1", max_episode_steps=7, reward_scale=2.0)
        again = gymnasium.make(env.spec)
        self.assertEqual(again.spec.max_episode_steps, 7)
        np.testing.assert_array_equal(env.reset(seed=2)[0], again.reset(seed=2)[0])
        action = np.array([1.5], np.float32)
        self.assertEqual(env.step(action)[1], again.step(action)[1])

    def test_pictures_follow_the_state(self):
        env = troop.make_env("CartPole-v1", render_mode="rgb_array")
        refused(self, ResetNeeded, "render.. before the first reset", env.render)
        env.reset(seed=1)
        before = env.render()
        self.assertEqual((before.dtype, before.ndim, before.shape[2]), (np.uint8, 3, 3))
        done = False
        while not done:
            done = env.step(1)[2]
        self.assertTrue((env.render() != before).any())  # also after the end
        refused(self, ValueError, "render_mode is 'human', must be None or one of: rgb_array",
                lambda: troop.make_env("CartPole-v1", render_mode="human"))
        refused(self, ValueError, "needs make_env",
                lambda: troop.make_env("CartPole-v1").render())

    def test_wrong_calls_are_refused(self):
        env = troop.make_env("CartPole-v1")
        refused(self, ResetNeeded, r"CartPole-v1: step\(\) before the first reset",
                lambda: env.step(0))
        env.reset(seed=1)
        for wrong, text in [(2, "is 2, must be 0 to 1"), (-1, "is -1"), (2**32, "is 4294967296"),
                            (0.5, "is 0.5, must be an integer"), (None, "must be an integer"),
                            (np.zeros(2, int), "must be an integer"), ("0", "must be an integer")]:
            refused(self, ValueError, text, lambda wrong=wrong: env.step(wrong))
        refused(self, ValueError, "no option 'low'", lambda: env.reset(options={"low": 1}))
        for wrong in (-1, 2**64, 0.5, "1"):
            refused(self, ValueError, "seed is", lambda wrong=wrong: env.reset(seed=wrong))
        while not env.step(np.int64(1))[2]:  # the refused calls did nothing to the episode
            pass
        refused(self, ResetNeeded, "after the end of the episode", lambda: env.step(0))
        env.reset()
        env.close()
        env.close()
        for call in (env.reset, env.render, lambda: env.step(0)):
            refused(self, ClosedEnvironmentError, "closed", call)

    def test_wrong_continuous_actions_are_refused(self):
        env = troop.make_env("Pendulum-v1")
        env.reset(seed=1)
        for wrong, text in [([2.5], r"is 2.5, must be within \[-2, 2\]"), ([np.nan], "is nan"),
                            ([1.0, 1.0], r"shape \[2\]"), (1.0, r"shape \[\]"),
                            (np.array([1]), "float32"), (["a"], "float32")]:
            refused(self, ValueError, text, lambda wrong=wrong: env.step(wrong))
        env.step([1.0])
        env.step(np.array([-2.0]))  # float64

    def test_wrong_arguments_are_refused(self):
        for arguments, options, text in [
            (("CartPoel-v1",), {}, "did you mean CartPole-v1"),
            (("ALE/Pong-v5",), {}, "not a native environment"),
            ((1,), {}, "id is 1"),
            (("CartPole-v1",), {"frames": 4}, "unknown option frames; native environments have"),
            (("CartPole-v1",), {"max_episode_steps": -2}, "max_episode_steps is -2, must be -1 to"),
            (("CartPole-v1",), {"max_episode_steps": 1.5}, "must be an integer"),
            (("CartPole-v1",), {"action_repeat": 0}, "action_repeat is 0"),
            (("CartPole-v1",), {"sticky_actions": 2}, "sticky_actions is 2"),
            (("CartPole-v1",), {"sticky_actions": float("nan")}, "sticky_actions is nan"),
            (("CartPole-v1",), {"reward_scale": float("inf")}, "reward_scale is inf"),
            (("CartPole-v1",), {"reward_scale": "big"}, "must be a number"),
            (("CartPole-v1",), {"difficulty_ramping": False}, "only MinAtar"),
            (("MinAtar/Breakout-v0",), {"difficulty_ramping": 2}, "must be True or False"),
        ]:
            refused(self, ValueError, text,
                    lambda a=arguments, o=options: troop.make_env(*a, **o))

    def test_no_gymnasium_is_one_clear_line(self):
        code = ("import sys; sys.modules['gymnasium'] = None; import troop\n"
                "print(len(troop.environment_ids()))\n"
                "try: troop.make_env('CartPole-v1')\n"
                "except ImportError as e: print(e)")
        package = os.path.dirname(os.path.dirname(troop.__file__))
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             check=True, env={**os.environ, "PYTHONPATH": package})
        count, line = run.stdout.splitlines()
        self.assertEqual(int(count), len(troop.environment_ids()))
        self.assertIn("pip install 'gymnasium", line)

    def test_environments_end_with_their_last_reference(self):
        for _ in range(200):
            env = troop.make_env("MinAtar/Seaquest-v0")
            observation, _ = env.reset(seed=1)
            copy = observation.copy()
            del env
            gc.collect()
            np.testing.assert_array_equal(observation, copy)

    def test_a_child_of_fork_continues_the_episode(self):
        env = troop.make_env("CartPole-v1")
        env.reset(seed=1)
        expected = troop.make_env("CartPole-v1")
        expected.reset(seed=1)
        want = expected.step(1)[0].tobytes()
        child = os.fork()
        if child == 0:
            same = env.step(1)[0].tobytes() == want
            env.close()
            gc.collect()
            os._exit(0 if same else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(env.step(1)[0].tobytes(), want)

    def test_environments_of_several_threads_are_independent(self):
        trace = list(Trace("CartPole-v1", 41, STEPS))
        wrong = []

        def play():
            env = troop.make_env("CartPole-v1")
            env.reset(seed=41)
            for step, (*_, after, final) in enumerate(trace):
                got = env.step(action_of(env.action_space, step))[0].tobytes()
                if got != (after if final is None else final):
                    wrong.append(step)
                if final is not None:
                    env.reset()

        threads = [threading.Thread(target=play) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()

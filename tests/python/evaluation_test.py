"""troop.evaluate: which episodes count, for single environments and all autoreset modes."""
import pathlib
import tempfile
import unittest

import gymnasium
import numpy as np
import troop
from policy_files import linear_policy

NEEDS = ("gymnasium",)
Mode = gymnasium.vector.AutoresetMode


class Scripted(gymnasium.Env):
    """Episode k of environment i has 1 + (i + k) % 4 steps of the reward 100 i + k + 1. The
    observation is [i, k, step]."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, index=0):
        self.index, self.episode, self.at = index, -1, 0

    def observe(self):
        return np.array([self.index, self.episode, self.at], np.float32)

    def reset(self, *, seed=None, options=None):
        self.episode, self.at = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action):
        assert isinstance(action, (np.int64, int)), type(action)
        self.at += 1
        ended = self.at == length_of(self.index, self.episode)
        odd = bool(self.episode % 2)
        return (self.observe(), 100 * self.index + self.episode + 1, ended and odd,
                ended and not odd, {})


def length_of(index, episode):
    return 1 + (index + episode) % 4


def expected(episodes, environments):
    """(returns, lengths), sorted: environment i plays (episodes + i) // environments."""
    found = [((100 * i + k + 1) * length_of(i, k), length_of(i, k)) for i in range(environments)
             for k in range((episodes + i) // environments)]
    return sorted(found)


class Recorder:
    """An object with the predict of Stable-Baselines3, which checks what it is given."""

    def __init__(self, test, single):
        self.test, self.single, self.calls = test, single, 0

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        self.test.assertIs(deterministic, True)
        self.test.assertEqual(state, None if self.calls == 0 else ("state", self.calls))
        rows = np.atleast_2d(observation)
        self.test.assertEqual(observation.ndim, 1 if self.single else 2)
        for (index, episode, at), start in zip(rows, episode_start):
            # The observation after an end, which only the mode NEXT_STEP shows, starts nothing.
            self.test.assertEqual(bool(start), at == 0, (index, episode, at))
        self.calls += 1
        actions = np.zeros(len(rows), np.int64)
        return (actions[0] if self.single else actions), ("state", self.calls)


class EvaluationTest(unittest.TestCase):
    def vector(self, environments, mode):
        return gymnasium.vector.SyncVectorEnv(
            [lambda i=i: Scripted(i) for i in range(environments)], autoreset_mode=mode)

    def test_episodes_of_one_environment(self):
        for episodes in (1, 7):
            found = troop.evaluate(Recorder(self, True), Scripted(), episodes,
                                   return_episode_rewards=True)
            self.assertEqual(sorted(zip(*found)), expected(episodes, 1))

    def test_episodes_of_vectors_are_divided_in_every_mode(self):
        for mode in Mode:
            for environments, episodes in ((1, 3), (3, 8), (4, 2)):
                found = troop.evaluate(Recorder(self, False), self.vector(environments, mode),
                                       episodes, return_episode_rewards=True)
                self.assertEqual(sorted(zip(*found)), expected(episodes, environments),
                                 (mode, environments))

    def test_mean_and_deviation_are_those_of_the_returns(self):
        returns = [r for r, _ in expected(9, 2)]
        mean, deviation = troop.evaluate(Recorder(self, False), self.vector(2, Mode.SAME_STEP), 9)
        self.assertIsInstance(mean, float)
        self.assertAlmostEqual(mean, sum(returns) / 9)
        self.assertAlmostEqual(deviation,
                               (sum((r - mean) ** 2 for r in returns) / 9) ** 0.5)

    def test_frame_stacks_restart_with_each_episode(self):
        path = pathlib.Path(tempfile.mkdtemp()) / "policy.safetensors"
        compute = linear_policy(path, (3,), 3, stack=2, factor=0.1)
        policy = troop.load_policy(path)
        taken, env = [], Scripted(2)
        step = env.step
        env.step = lambda action: (taken.append(int(action)), step(action))[1]
        troop.evaluate(policy, env, 6)
        want = []
        for episode in range(6):
            before = np.zeros(3)
            for at in range(length_of(2, episode)):
                now = np.array([2, episode, at])
                want.append(int(compute(np.stack([before, now])).argmax()))
                before = now
        self.assertEqual(taken, want)

    def test_native_environments(self):
        path = pathlib.Path(tempfile.mkdtemp()) / "policy.safetensors"
        linear_policy(path, (4,), 2)
        policy = troop.load_policy(path)
        for copy in (True, False):
            envs = troop.make_vector_env("CartPole-v1", 3, copy=copy, max_episode_steps=20)
            returns, lengths = troop.evaluate(policy, envs, 10, return_episode_rewards=True)
            self.assertEqual(returns, lengths)  # 1 for each step
            self.assertEqual(len(returns), 10)
            self.assertLessEqual(max(lengths), 20)

    def test_wrong_arguments_are_refused(self):
        path = pathlib.Path(tempfile.mkdtemp()) / "policy.safetensors"
        linear_policy(path, (3,), 2)
        policy = troop.load_policy(path)
        with self.assertRaisesRegex(ValueError, "Discrete.3.*Discrete.2"):
            troop.evaluate(policy, Scripted())
        with self.assertRaisesRegex(ValueError, "n_eval_episodes is 0"):
            troop.evaluate(policy, Scripted(), 0)
        bad = Scripted()
        bad.step = lambda action: (bad.observe(), float("nan"), False, False, {})
        with self.assertRaisesRegex(ValueError, "reward nan"):
            troop.evaluate(Recorder(self, True), bad)

        class VecEnv:
            num_envs = 2
        with self.assertRaisesRegex(ValueError, "evaluate_policy"):
            troop.evaluate(policy, VecEnv())


class StableBaselines3Test(unittest.TestCase):
    def test_evaluate_policy_of_stable_baselines3_agrees(self):
        try:
            from stable_baselines3.common.evaluation import evaluate_policy
        except ImportError:
            self.skipTest("stable-baselines3 is not installed")
        path = pathlib.Path(tempfile.mkdtemp()) / "policy.safetensors"
        linear_policy(path, (3,), 3)
        policy = troop.load_policy(path)
        theirs = evaluate_policy(policy, Scripted(), 5, return_episode_rewards=True, warn=False)
        ours = troop.evaluate(policy, Scripted(), 5, return_episode_rewards=True)
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()

"""troop.make_vector_env: rows are Troop's own environments, with Gymnasium's rules for vectors."""
import gc
import os
import threading
import time
import unittest

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

import troop
from env_actions import Trace, action_of, cases
from native_env_test import refused

NEEDS = ("gymnasium",)
ROWS, STEPS = 4, 300


def actions_of(env, step):
    """The same action for every row."""
    one = action_of(env.single_action_space, step)
    return np.array([one] * env.num_envs, env.action_space.dtype)


class NativeVectorEnvTest(unittest.TestCase):
    def compare(self, env, traces):
        """Returns how many episodes ended."""
        first, infos = env.reset(seed=41)
        self.assertEqual(infos, {})
        for row, trace in enumerate(traces):
            self.assertEqual(first[row].tobytes(), trace.first)
        ended = 0
        for step, rows in enumerate(zip(*traces)):
            observation, reward, terminated, truncated, infos = env.step(actions_of(env, step))
            over = [final is not None for *_, final in rows]
            np.testing.assert_array_equal(infos.get("_final_obs", np.zeros(ROWS, bool)), over)
            for i, (want, terminates, truncates, after, final) in enumerate(rows):
                self.assertEqual((reward[i], terminated[i], truncated[i]),
                                 (want, terminates, truncates))
                self.assertEqual(observation[i].tobytes(), after)
                if final is not None:
                    ended += 1
                    self.assertEqual(infos["final_obs"][i].tobytes(), final)
        return ended

    def test_rows_are_the_steps_of_troop(self):
        for name, options in cases(troop.environment_ids()):
            traces = [Trace(name, 41 + i, STEPS, **options) for i in range(ROWS)]
            ended = []
            for copy, threads in ((True, 1), (False, 1), (True, 3), (False, 4)):
                with self.subTest(name, copy=copy, threads=threads, **options):
                    env = troop.make_vector_env(name, ROWS, copy=copy, threads=threads, **options)
                    ended.append(self.compare(env, traces))
            self.assertEqual(len(set(ended)), 1)
            if name in ("CartPole-v1", "Catch-v0", "Pendulum-v1"):
                self.assertGreaterEqual(ended[0], ROWS)

    def test_spaces_and_metadata_are_those_of_a_vector(self):
        env = troop.make_vector_env("Pendulum-v1", 3)
        self.assertIsInstance(env, gymnasium.vector.VectorEnv)
        self.assertIs(env.metadata["autoreset_mode"], AutoresetMode.SAME_STEP)
        self.assertEqual(env.observation_space.shape, (3, 3))
        self.assertEqual(env.action_space.shape, (3, 1))
        observation, reward, terminated, truncated, _ = (
            env.reset(seed=1) and env.step(env.action_space.sample()))
        self.assertIn(observation, env.observation_space)
        self.assertEqual([a.dtype for a in (reward, terminated, truncated)],
                         [np.float32, np.bool_, np.bool_])

    def test_copies_stay_and_views_follow(self):
        for copy in (True, False):
            env = troop.make_vector_env("CartPole-v1", 5, copy=copy)
            env.reset(seed=1)
            before = env.step(np.zeros(5, int))
            kept = [array.copy() for array in before[:4]]
            after = env.step(np.zeros(5, int))
            self.assertEqual(before[0].flags.writeable, copy)
            for old, saved, new in zip(before, kept, after):
                self.assertEqual(np.shares_memory(old, new), not copy)
                np.testing.assert_array_equal(old, saved if copy else new)
            self.assertTrue((kept[0] != after[0]).any())

    def test_views_outlive_the_environments(self):
        for threads in (1, 2):
            for _ in range(50):
                env = troop.make_vector_env("MinAtar/Asterix-v0", 64, copy=False, threads=threads)
                observation, _ = env.reset(seed=1)
                kept = observation.copy()
                env.close()
                del env
                gc.collect()
                np.testing.assert_array_equal(observation, kept)

    def test_seeds_may_be_one_for_each_row_or_none(self):
        env = troop.make_vector_env("CartPole-v1", 3)
        first, _ = env.reset(seed=[7, None, np.int64(9)])
        singles = [troop.make_env("CartPole-v1").reset(seed=seed)[0] for seed in (7, 9)]
        np.testing.assert_array_equal(first[[0, 2]], singles)
        env.reset(seed=7)
        one = troop.make_env("CartPole-v1")
        one.reset(seed=7)
        np.testing.assert_array_equal(env.reset()[0][0], one.reset()[0])
        unseeded = {troop.make_vector_env("CartPole-v1", 2).reset()[0].tobytes() for _ in range(9)}
        self.assertEqual(len(unseeded), 9)

    def test_a_mask_resets_only_its_rows(self):
        for threads in (1, 2):
            env = troop.make_vector_env("CartPole-v1", 4, threads=threads)
            env.reset(seed=1)
            before = env.step(np.ones(4, int))[0]
            mask = np.array([False, True, False, True])
            after, _ = env.reset(seed=50, options={"reset_mask": mask})
            np.testing.assert_array_equal(after[~mask], before[~mask])
            singles = [troop.make_env("CartPole-v1").reset(seed=seed)[0] for seed in (51, 53)]
            np.testing.assert_array_equal(after[mask], singles)

    def test_wrappers_of_gymnasium_apply(self):
        env = wrappers.RecordEpisodeStatistics(
            wrappers.TransformReward(troop.make_vector_env("Catch-v0", 6), lambda r: 2 * r))
        env.reset(seed=1)
        total = np.zeros(6)
        for _ in range(9):  # every episode of Catch has 9 steps
            _, reward, _, _, infos = env.step(np.zeros(6, int))
            total += reward
        self.assertEqual([final.shape for final in infos["final_obs"]], [(10, 5)] * 6)
        np.testing.assert_array_equal(infos["episode"]["l"], [9] * 6)
        np.testing.assert_array_equal(infos["episode"]["r"], total)
        self.assertEqual(set(np.abs(total)), {2})

    def test_gymnasium_makes_a_vector_from_a_spec(self):
        spec = troop.make_env("CartPole-v1", max_episode_steps=3).spec
        env = gymnasium.make_vec(spec, num_envs=2, vectorization_mode="vector_entry_point")
        env.reset(seed=1)
        for _ in range(3):
            truncated = env.step(np.zeros(2, int))[3]
        np.testing.assert_array_equal(truncated, [True, True])

    def test_pictures_are_those_of_each_row(self):
        env = troop.make_vector_env("CartPole-v1", 3, render_mode="rgb_array", threads=2)
        refused(self, ResetNeeded, "render", env.render)
        env.reset(seed=4)
        for step in range(5):
            env.step(np.zeros(3, int))
        for i, picture in enumerate(env.render()):
            one = troop.make_env("CartPole-v1", render_mode="rgb_array")
            one.reset(seed=4 + i)
            for step in range(5):
                one.step(0)
            np.testing.assert_array_equal(picture, one.render())

    def test_wrong_calls_are_refused(self):
        env = troop.make_vector_env("CartPole-v1", 2)
        refused(self, ResetNeeded, "step.. before the first reset", lambda: env.step([0, 0]))
        mask = np.array([True, False])
        refused(self, ResetNeeded, "before the first", lambda: env.reset(
            options={"reset_mask": mask}))
        env.reset(seed=1)
        for wrong, text in [([0, 2], "action 2 of environment 1 is outside 0 to 1"),
                            ([-1, 0], "action -1 of environment 0"),
                            ([2**32, 0], "action 4294967296"), ([0], r"shape \[1\]"),
                            ([[0, 1]], r"shape \[1, 2\]"), (0, r"shape \[\]"),
                            ([0.0, 1.0], "int64 or int32"), ([True, False], "int64 or int32"),
                            (np.array([0, 1], np.uint8), "int64 or int32")]:
            refused(self, ValueError, text, lambda wrong=wrong: env.step(wrong))
        for seed, text in [([1], "1 seeds, must be num_envs"), (-1, "seed is -1"),
                           (2**64 - 1, "seed is"), ([1, 0.5], "seed is 0.5")]:
            refused(self, ValueError, text, lambda seed=seed: env.reset(seed=seed))
        for wrong in (np.array([1, 0]), np.array([True]), np.array([False, False])):
            refused(self, ValueError, "reset_mask is",
                    lambda wrong=wrong: env.reset(options={"reset_mask": wrong}))
        refused(self, ValueError, "no option 'low'", lambda: env.reset(options={"low": 0}))
        one = troop.make_env("CartPole-v1")
        one.reset(seed=1)
        # The refused calls did nothing. Other layouts and integers of the right kind are good.
        actions = np.array([[1, 0], [0, 0]], np.int32)[:, 0]
        np.testing.assert_array_equal(env.step(actions)[0][0], one.step(1)[0])
        env.close()
        env.close()
        refused(self, ClosedEnvironmentError, "closed", lambda: env.step([0, 0]))
        refused(self, ClosedEnvironmentError, "closed", env.reset)

    def test_wrong_continuous_actions_are_refused(self):
        env = troop.make_vector_env("Pendulum-v1", 2)
        env.reset(seed=1)
        for wrong, text in [([[0.0], [3.0]], r"action\[0\] of environment 1 is 3, must be within"),
                            ([[np.nan], [0.0]], "environment 0 is nan"), ([0.0, 0.0], "shape"),
                            ([[0], [0]], "float32")]:
            refused(self, ValueError, text, lambda wrong=wrong: env.step(wrong))
        env.step([[0.5], [-2.0]])

    def test_wrong_arguments_are_refused(self):
        for arguments, options, text in [
            (("CartPole-v1", 0), {}, "num_envs is 0, must be 1 to"),
            (("CartPole-v1", 2**40), {}, "num_envs is"),
            (("CartPole-v1", 2.5), {}, "num_envs is 2.5, must be an integer"),
            (("CartPole-v1", 4), {"threads": 5}, "threads is 5, must be 1 to 4"),
            (("CartPole-v1", 4), {"threads": 0}, "threads is 0"),
            (("CartPole-v1", 4), {"frames": 4}, "unknown option frames"),
            (("CartPoel-v1", 4), {}, "did you mean CartPole-v1"),
        ]:
            refused(self, ValueError, text,
                    lambda a=arguments, o=options: troop.make_vector_env(*a, **o))

    def test_steps_release_the_interpreter_and_refuse_a_second_thread(self):
        env = troop.make_vector_env("MinAtar/SpaceInvaders-v0", 20000)
        env.reset(seed=1)
        actions, stop, met = np.zeros(20000, int), threading.Event(), []

        def other():
            while not stop.is_set():
                try:
                    env.step(actions)
                except RuntimeError as error:  # only while the first thread is within a step
                    met.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        deadline = time.monotonic() + 60
        while not met and time.monotonic() < deadline:
            try:
                env.step(actions)
            except RuntimeError as error:
                met.append(str(error))
        stop.set()
        thread.join()
        self.assertTrue(met)
        self.assertIn("another thread is in a call of this environment", met[0])
        env.step(actions)

    def test_a_child_of_fork_continues_with_threads_of_its_own(self):
        env, same = (troop.make_vector_env("CartPole-v1", 8, threads=3) for _ in range(2))
        env.reset(seed=1)
        same.reset(seed=1)
        want = same.step(np.ones(8, int))[0].tobytes()
        child = os.fork()
        if child == 0:
            good = env.step(np.ones(8, int))[0].tobytes() == want
            env.close()
            del env, same  # one with threads that exist only in the parent
            gc.collect()
            os._exit(0 if good else 1)
        deadline = time.monotonic() + 60
        done, status = 0, None
        while not done and time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        self.assertEqual((done, status), (child, 0))
        self.assertEqual(env.step(np.ones(8, int))[0].tobytes(), want)


if __name__ == "__main__":
    unittest.main()

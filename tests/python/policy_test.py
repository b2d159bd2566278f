"""troop.load_policy: actions, states and errors, compared with networks in NumPy and with the
convention of Stable-Baselines3 (its version 2.9: BasePolicy.predict)."""
import inspect
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import gymnasium
import numpy as np
import troop
from policy_files import linear_policy, lstm_policy, write_policy

NEEDS = ("gymnasium",)


class PolicyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.path = self.folder / "policy.safetensors"
        self.random = np.random.default_rng(3)

    def discrete(self, **options):
        compute = linear_policy(self.path, (4,), 3, **options)
        return troop.load_policy(self.path), compute

    def observations(self, *shape):
        return self.random.normal(size=shape).astype(np.float32)

    def refused(self, message, call):
        with self.assertRaisesRegex(ValueError, message) as caught:
            call()
        self.assertNotIn("\n", str(caught.exception))

    def test_signature_is_that_of_stable_baselines3(self):
        parameters = inspect.signature(troop.Policy.predict).parameters
        self.assertEqual([(p.name, p.default) for p in parameters.values()],
                         [("self", inspect.Parameter.empty),
                          ("observation", inspect.Parameter.empty), ("state", None),
                          ("episode_start", None), ("deterministic", False)])

    def test_greedy_actions_are_those_of_numpy(self):
        policy, compute = self.discrete()
        batch = self.observations(200, 4)
        want = compute(batch).argmax(axis=1)
        actions, state = policy.predict(batch, deterministic=True)
        self.assertEqual((actions.dtype, actions.shape, state), (np.int64, (200,), None))
        np.testing.assert_array_equal(actions, want)
        self.assertEqual(len(set(want)), 3)
        for observation, action in zip(batch, want):
            found, state = policy.predict(observation, deterministic=True)
            self.assertIsInstance(found, np.ndarray)  # as SB3: squeezed to no axis
            self.assertEqual((found.dtype, found.shape, int(found), state),
                             (np.int64, (), action, None))
        # Results are new arrays: a later call does not change them.
        first, _ = policy.predict(batch, deterministic=True)
        policy.predict(-batch, deterministic=True)
        np.testing.assert_array_equal(first, want)

    def test_state_is_passed_through_without_frame_stack(self):
        policy, _ = self.discrete()
        marker = ("anything",)
        self.assertIs(policy.predict(np.zeros(4, np.float32), marker, np.ones(1, bool), True)[1],
                      marker)

    def test_layouts_and_types_are_converted_where_the_meaning_is_clear(self):
        policy, compute = self.discrete()
        batch = self.observations(6, 4)
        want = compute(batch).argmax(axis=1)
        wide = np.zeros((6, 8), np.float32)
        wide[:, ::2] = batch
        raw = np.zeros(batch.nbytes + 1, np.uint8)
        unaligned = raw[1:].view(np.float32).reshape(6, 4)
        unaligned[...] = batch
        for same in (batch.astype(np.float64), batch.astype(">f4"), np.asfortranarray(batch),
                     wide[:, ::2], batch.tolist(), unaligned):
            np.testing.assert_array_equal(policy.predict(same, deterministic=True)[0], want)
        integers = np.array([1, 0, 2, 0])
        self.assertEqual(policy.predict(integers, deterministic=True)[0],
                         compute(integers).argmax())

    def test_continuous_actions(self):
        bounds = ([-2.0, 0.0], [2.0, 0.5])
        compute = linear_policy(self.path, (5,), 2, bounds=bounds)
        policy = troop.load_policy(self.path)
        batch = self.observations(40, 5)
        for deterministic in (True, False):  # no exploration: DPG's noise is part of training
            actions, _ = policy.predict(batch, deterministic=deterministic)
            self.assertEqual((actions.dtype, actions.shape), (np.float32, (40, 2)))
            np.testing.assert_allclose(actions, compute(batch), atol=1e-5)
        one, _ = policy.predict(batch[3])
        self.assertEqual(one.shape, (2,))
        np.testing.assert_allclose(one, compute(batch)[3], atol=1e-5)
        self.refused("continuous", lambda: policy.q_values(batch))
        self.assertEqual(policy.action_space,
                         gymnasium.spaces.Box(np.float32(bounds[0]), np.float32(bounds[1])))

    def test_pictures_are_read_as_bytes(self):
        compute = linear_policy(self.path, (3, 2), 4, dtype="u8", factor=1 / 255)
        policy = troop.load_policy(self.path)
        batch = self.random.integers(0, 256, size=(50, 3, 2), dtype=np.uint8)
        np.testing.assert_array_equal(policy.predict(batch, deterministic=True)[0],
                                      compute(batch).argmax(axis=1))
        self.refused("type int64, must be uint8",
                     lambda: policy.predict(batch.astype(np.int64)))
        self.assertEqual(policy.observation_space,
                         gymnasium.spaces.Box(0, 255, (3, 2), np.uint8))

    def test_q_values_and_mask(self):
        policy, compute = self.discrete()
        batch = self.observations(30, 4)
        q = policy.q_values(batch)
        self.assertEqual((q.dtype, q.shape), (np.float32, (30, 3)))
        np.testing.assert_allclose(q, compute(batch), rtol=1e-5, atol=1e-5)
        self.assertEqual(policy.q_values(batch[0]).shape, (3,))
        mask = self.random.random((30, 3)) < 0.5
        mask[np.arange(30), self.random.integers(0, 3, 30)] = True
        np.testing.assert_allclose(policy.q_values(batch, mask),
                                   np.where(mask, compute(batch), -np.inf), rtol=1e-5, atol=1e-5)
        self.refused(r"mask has shape \[3\], must be \[30, 3\]",
                     lambda: policy.q_values(batch, mask[0]))
        self.refused("every action", lambda: policy.q_values(batch[0], np.zeros(3, bool)))

    def test_mask_in_the_observation_applies_to_all_actions(self):
        policy, compute = self.discrete_with_mask()
        batch = self.observations(400, 6)
        batch[:, 1:4] = self.random.random((400, 3)) < 0.5
        batch[:50, 1:4] = 0  # hides nothing
        want = compute(batch)
        np.testing.assert_allclose(policy.q_values(batch), want, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(policy.predict(batch, deterministic=True)[0],
                                      want.argmax(axis=1))
        # Each action that a row allows is drawn; false alarms below 1e-9: 1200 (2 / 3)^70.
        policy.exploration_rate = 1.0
        drawn = np.zeros((400, 3), bool)
        for _ in range(70):
            drawn[np.arange(400), policy.predict(batch)[0]] = True
        np.testing.assert_array_equal(drawn, np.isfinite(want))

    def discrete_with_mask(self):
        compute = linear_policy(self.path, (6,), 3, mask=1)
        return troop.load_policy(self.path), compute

    def test_frame_stack_is_the_state(self):
        policy, compute = self.discrete(stack=3)
        environments, steps = 5, 40
        frames = self.observations(steps, environments, 4)
        begins = self.random.random((steps, environments)) < 0.2
        begins[0] = True
        state, stacks = None, np.zeros((environments, 3, 4))
        for t in range(steps):
            stacks[begins[t]] = 0
            stacks = np.concatenate([stacks[:, 1:], frames[t][:, None]], axis=1)
            actions, state = policy.predict(frames[t], state, begins[t], deterministic=True)
            np.testing.assert_array_equal(actions, compute(stacks).argmax(axis=1))
        np.testing.assert_allclose(policy.q_values(stacks.astype(np.float32)), compute(stacks),
                                   rtol=1e-5, atol=1e-5)
        self.assertEqual(policy.q_values(stacks[0]).shape, (3,))
        # episode_start may be left out in the middle of episodes.
        stacks = np.concatenate([stacks[:, 1:], frames[0][:, None]], axis=1)
        actions, _ = policy.predict(frames[0], state, deterministic=True)
        np.testing.assert_array_equal(actions, compute(stacks).argmax(axis=1))

    def test_recurrent_state_is_the_state(self):
        step = lstm_policy(self.path, 4, 6, 3)
        policy = troop.load_policy(self.path)
        self.assertTrue(policy.recurrent)
        self.assertFalse(self.discrete()[0].recurrent)
        environments, steps = 5, 40
        begins = self.random.random((steps, environments)) < 0.2
        begins[0] = True
        observations = self.observations(steps, environments, 4)
        state, h, c = None, *np.zeros((2, environments, 6))
        chosen = set()
        for t in range(steps):
            h[begins[t]], c[begins[t]] = 0, 0
            q, h, c = step(observations[t].astype(np.float64), h, c)
            actions, state = policy.predict(observations[t], state, begins[t], deterministic=True)
            np.testing.assert_array_equal(actions, q.argmax(axis=1))
            chosen.update(actions)
        self.assertGreater(len(chosen), 1)
        self.refused("recurrent state: pass the state", lambda: policy.predict(observations[0]))
        self.refused("q_values: the policy has a recurrent state",
                     lambda: policy.q_values(observations[0]))

    def test_forgotten_state_of_a_frame_stack_is_refused(self):
        policy, _ = self.discrete(stack=3)
        frame = np.zeros(4, np.float32)
        for begins in (None, False, np.zeros(1, bool)):
            self.refused("pass the state", lambda b=begins: policy.predict(frame, None, b))
        _, state = policy.predict(frame, None, True, deterministic=True)
        self.refused("state is of 1 environments", lambda: policy.predict(
            np.zeros((2, 4), np.float32), state))
        self.refused("not one that predict", lambda: policy.predict(frame, (1,)))
        other = troop.load_policy(self.path)
        self.refused("another policy", lambda: other.predict(frame, state))
        self.refused("episode_start has 2 elements", lambda: policy.predict(
            frame, state, [True, False]))

    def test_exploration_has_the_stated_rate_and_is_announced_where_it_is_none(self):
        policy, compute = self.discrete()
        batch = self.observations(1, 4).repeat(20000, axis=0)
        greedy = compute(batch[:1]).argmax()
        with self.assertWarnsRegex(UserWarning, "exploration_rate"):
            actions, _ = policy.predict(batch)
        self.assertTrue((actions == greedy).all())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            policy.predict(batch)  # once per policy
            policy.predict(batch, deterministic=True)
            policy = troop.load_policy(self.path, exploration_rate=0.3)
            policy.set_random_seed(5)
            actions, _ = policy.predict(batch)
            self.assertTrue((policy.predict(batch, deterministic=True)[0] == greedy).all())
        # Random actions are uniform over all three: 0.1 each. 6 standard deviations are 0.013.
        for action in range(3):
            share = float(np.mean(actions == action))
            self.assertAlmostEqual(share, 0.8 if action == greedy else 0.1, delta=0.02)
        policy.set_random_seed(5)
        np.testing.assert_array_equal(policy.predict(batch)[0], actions)
        for rate in (-0.1, 1.5, float("nan")):
            self.refused("must be 0 to 1", lambda r=rate: setattr(policy, "exploration_rate", r))

    def test_wrong_observations_are_refused_in_one_line(self):
        policy, _ = self.discrete()
        for shape in ((3,), (2, 5), (), (1, 1, 4), (4, 1)):
            self.refused(r"must be \[4\], or \[N, 4\]",
                         lambda s=shape: policy.predict(np.zeros(s, np.float32)))
        self.refused("0 rows", lambda: policy.predict(np.zeros((0, 4), np.float32)))
        self.refused("1 to 65536", lambda: policy.predict(np.zeros((70000, 4), np.float32)))
        for bad in (np.nan, np.inf, -np.inf):
            batch = self.observations(3, 4)
            batch[2, 1] = bad
            self.refused("NaN or infinite", lambda b=batch: policy.predict(b))
        self.refused("NaN or infinite", lambda: policy.predict(np.full(4, 1e300)))
        self.refused("type complex64", lambda: policy.predict(np.zeros(4, np.complex64)))
        self.refused("type <U1", lambda: policy.predict(np.array(list("abcd"))))
        self.refused("dict", lambda: policy.predict({"a": np.zeros(4)}))
        self.refused("type object", lambda: policy.predict(None))

    def test_files_without_policy_are_refused_in_one_line(self):
        self.refused("no such file", lambda: troop.load_policy(self.folder / "none"))
        self.refused("no checkpoint", lambda: troop.load_policy(self.folder))
        self.refused("keep_best", lambda: troop.load_policy(self.folder, best=True))
        self.path.write_bytes(b"not a policy")
        self.refused("safetensors", lambda: troop.load_policy(self.path))
        self.refused("is a file", lambda: troop.load_policy(self.path, best=True))
        write_policy(self.path, {}, {})
        self.refused("policy", lambda: troop.load_policy(self.path))

    def test_newest_complete_checkpoint_is_chosen(self):
        run = self.folder / "run"
        for name, complete in (("000000000009", True), ("000000000010.old", True),
                               ("000000000011", False), ("000000000012.tmp", True)):
            folder = run / "checkpoints" / name
            folder.mkdir(parents=True)
            linear_policy(folder / "weights.safetensors", (4,), 3)
            if complete:
                (folder / "manifest.json").write_text("{}", encoding="utf-8")
        self.assertEqual(troop.load_policy(run).path.parent.name, "000000000010.old")
        checkpoint = run / "checkpoints/000000000009"
        self.assertEqual(troop.load_policy(checkpoint).path.parent, checkpoint)

    def test_spaces(self):
        policy, _ = self.discrete(stack=2)
        self.assertEqual(policy.frame_stack, 2)
        self.assertEqual(policy.action_space, gymnasium.spaces.Discrete(3))
        self.assertEqual(policy.observation_space,
                         gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32))

    def test_policies_do_not_need_gymnasium(self):
        linear_policy(self.path, (4,), 3)
        code = ("import sys; sys.modules['gymnasium'] = None\n"
                "import troop, numpy\n"
                f"policy = troop.load_policy({str(self.path)!r})\n"
                "policy.predict(numpy.zeros(4, numpy.float32), deterministic=True)\n"
                "print(policy.action_space, policy.observation_space.shape)\n"
                "try: policy.predict(numpy.zeros(5, numpy.float32))\n"
                "except ValueError as error: print('refused')\n")
        run = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                             check=True, cwd=pathlib.Path(troop.__file__).parent.parent)
        self.assertIn("n=3", run.stdout)
        self.assertIn("refused", run.stdout)


if __name__ == "__main__":
    unittest.main()

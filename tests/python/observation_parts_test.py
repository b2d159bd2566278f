"""Observations with parts and action masks; Gymnasium's Taxi is an oracle of the masks."""
import unittest

import gymnasium
import numpy
from environments_test import request, written
from gymnasium import spaces
from troop_env import adapters, vector
from troop_env.convert import Observations, Refused

NEEDS = ("gymnasium",)


class PartsAndMasks(unittest.TestCase):
    def test_images_of_a_dict_become_parts(self):
        space = spaces.Dict(
            camera=spaces.Box(0, 255, (4, 3, 2), numpy.uint8),
            map=spaces.Box(0, 255, (2, 2), numpy.uint8),
            speed=spaces.Box(-1, 1, (3,)),
        )
        self.assertEqual(
            Observations(space).spec(),
            {
                "dtype": "f32",
                "shape": [31],
                "parts": [
                    {"name": "camera", "shape": [4, 3, 2], "scale": 1 / 255, "action_mask": False},
                    {"name": "map", "shape": [2, 2, 1], "scale": 1 / 255, "action_mask": False},
                    {"name": "speed", "shape": [3], "scale": 1.0, "action_mask": False},
                ],
            },
        )
        space.seed(3)
        value = space.sample()
        want = numpy.concatenate([value[k].reshape(-1) for k in ("camera", "map", "speed")])
        numpy.testing.assert_array_equal(written(space, value), want.astype(numpy.float32))
        pair = spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 255, (2, 2, 1), numpy.uint8)))
        self.assertEqual(Observations(pair).spec()["dtype"], "u8")
        self.assertEqual([part["name"] for part in Observations(pair).spec()["parts"]], ["0", "1"])

    def test_a_mask_is_that_of_info(self):
        # Taxi's own masks are the oracle; its observation is one-hot.
        adapter = adapters.make(request("gymnasium:Taxi-v4") | {"action_mask": True})
        parts = adapter.spec["observation"]["parts"]
        self.assertEqual([part["name"] for part in parts], ["observation", "action_mask"])
        self.assertEqual([part["action_mask"] for part in parts], [False, True])
        out = numpy.zeros(506, numpy.float32)
        plain = gymnasium.make("Taxi-v4").unwrapped
        adapter.reset(5, out)
        state, info = plain.reset(seed=5)
        forbidden = 0
        for _ in range(200):
            numpy.testing.assert_array_equal(out[:500], numpy.arange(500) == state)
            numpy.testing.assert_array_equal(out[500:], info["action_mask"])
            forbidden += int((out[500:] == 0).sum())
            action = int(numpy.flatnonzero(out[500:])[0])
            adapter.step(action, out)
            state, _, _, _, info = plain.step(action)
        self.assertGreater(forbidden, 200)

    def test_a_mask_is_that_of_the_observation(self):
        space = spaces.Dict(
            action_mask=spaces.Box(0, 1, (3,), numpy.int8), board=spaces.Box(0, 1, (2,))
        )
        seen = Observations(space, spaces.Discrete(3))
        self.assertEqual([part["name"] for part in seen.spec()["parts"]], ["board", "action_mask"])
        out = numpy.full(5, 7, numpy.float32)
        value = {"action_mask": numpy.array([0, 1, 1], numpy.int8), "board": numpy.array([0.5, 1])}
        seen.write(value, out, {})
        numpy.testing.assert_array_equal(out, [0.5, 1, 0, 1, 1])
        # Without env.action_mask it is a part like others.
        numpy.testing.assert_array_equal(written(space, value), [0, 1, 1, 0.5, 1])

    def test_a_wrong_mask_is_refused(self):
        seen = Observations(spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2]))
        out, value = numpy.zeros(6, numpy.float32), numpy.zeros(2, numpy.float32)
        for mask, why in [
            ([0, 0, 0, 0], "allows none of the 4 actions"),
            ([0, 1, 2, 0], "element 2 of the action mask is 2; give 0 or 1"),
            ([0, 1, numpy.nan, 0], "element 2 of the action mask is nan"),
            ([0, 1], r"action_mask is i64\[2\], the space says \[4\]"),
        ]:
            with self.assertRaisesRegex(ValueError, why):
                seen.write(value, out, {"action_mask": mask})
        with self.assertRaisesRegex(ValueError, 'info has no "action_mask"'):
            seen.write(value, out, {})
        # After the end of an episode no action follows.
        seen.write(value, out, {"action_mask": [0, 0, 0, 0]}, True)
        seen.write(value, out, {}, True)
        numpy.testing.assert_array_equal(out[2:], [1, 1, 1, 1])
        with self.assertRaisesRegex(Refused, "env.action_mask needs discrete actions"):
            Observations(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,)))
        for name, why in [
            ("ALE/Pong-v5", "has no action mask"),
            ("envpool:Pong-v5", "has no action mask"),
        ]:
            wanted = request(name) | {"action_mask": True}
            with self.assertRaisesRegex(Refused, why):
                (adapters.make if name.startswith("ALE") else vector.VectorRows)(wanted)

    def test_masks_of_vectors_are_those_of_single_environments(self):
        # Taxi's masks again; episodes of 7 steps end in truncations, whose last masks count too.
        for mode in gymnasium.vector.AutoresetMode:
            wanted = request("gymnasium_vector:Taxi-v4", rows=3, autoreset_mode=mode.value)
            wanted |= {"action_mask": True, "max_episode_steps": 7}
            made = vector.VectorRows(wanted)
            single = [gymnasium.make("Taxi-v4", max_episode_steps=7) for _ in range(3)]
            memory = Memory(3, made.spec["observation"]["shape"][0])
            made.map(memory)
            with self.subTest(mode=mode):
                self.assertEqual(made.spec["observation"]["parts"][-1]["name"], "action_mask")
                self.compare(made, memory, single)

    def compare(self, made, memory, single):
        """Plays random actions in a vector and in single environments of the same seeds."""
        random = numpy.random.default_rng(5)
        masks = set()
        memory.reset = [True] * 3
        for _ in range(40):
            memory.seed = random.integers(0, 1000, 3).tolist()
            if any(memory.reset):
                made.reset_marked()
            for row in numpy.flatnonzero(memory.reset):
                observation, info = single[row].reset(seed=memory.seed[row])
                self.same(memory.observation[row], observation, info)
            memory.action = random.integers(0, 6, 3).tolist()
            made.step_all()
            self.assertEqual(memory.faults, [])
            for row in range(3):
                observation, _, terminated, truncated, info = single[row].step(
                    memory.action[row])
                self.same(memory.observation[row], observation, info)
                memory.reset[row] = terminated or truncated
                masks.add(tuple(info["action_mask"]))
        self.assertGreater(len(masks), 5)

    def same(self, seen, observation, info):
        """The one-hot state, then the mask."""
        self.assertEqual(int(seen[:500].argmax()), observation)
        numpy.testing.assert_array_equal(seen[500:], info["action_mask"])


class Memory:
    """The memory of the worker's rows, in this process."""

    def __init__(self, rows, size):
        self.observation = numpy.zeros((rows, size), numpy.float32)
        self.reward = numpy.zeros(rows, numpy.float32)
        self.flags = numpy.zeros(rows, numpy.uint8)
        self.action = [0] * rows
        self.reset, self.seed, self.faults = [False] * rows, [0] * rows, []

    def fault(self, row, error):
        self.faults.append((row, error))

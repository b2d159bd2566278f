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
            ("gymnasium_vector:CartPole-v1", "vectors support no env.action_mask"),
        ]:
            wanted = request(name) | {"action_mask": True}
            with self.assertRaisesRegex(Refused, why):
                (adapters.make if name.startswith("ALE") else vector.VectorRows)(wanted)

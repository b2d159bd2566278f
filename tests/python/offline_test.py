"""Files of episodes, written and read in Python, and their way to datasets of Minari and back."""
import dataclasses
import os
import pathlib
import shutil
import struct
import tempfile
import unittest
import warnings

import gymnasium
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

import troop
from troop import _episodes, _native, offline

NEEDS = ("gymnasium", "minari", "h5py")
FIELDS = [field.name for field in dataclasses.fields(troop.Episode)]


def played(seed):
    """An episode of random actions in the native environment."""
    env, rng = troop.make_env("CartPole-v1"), np.random.default_rng(seed)
    seen, actions, rewards, over, cut = [env.reset(seed=seed)[0]], [], [], False, False
    while not over and not cut:
        actions.append(int(rng.integers(2)))
        observation, reward, over, cut, _ = env.step(actions[-1])
        seen.append(observation)
        rewards.append(reward)
    return troop.Episode(
        env="CartPole-v1", observations=np.array(seen), actions=np.array(actions, np.int32),
        rewards=np.array(rewards, np.float32), terminated=over, truncated=cut, action_count=2,
        seed=seed, exploration=1.0)


def values(episode):
    """All fields as comparable values, with the type of each array."""
    return {name: (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value
            for name, value in ((name, getattr(episode, name)) for name in FIELDS)}


def episode_of(steps=3, **changes):
    made = {"env": "Test-v0", "observations": np.arange(2 * steps + 2, dtype=np.float32)
            .reshape(steps + 1, 2) / 3, "actions": np.arange(steps, dtype=np.int32) % 4,
            "rewards": np.linspace(-1, 1, steps, dtype=np.float32), "terminated": True,
            "truncated": False, "action_count": 4, "seed": 2**64 - 1, "exploration": 0.1,
            "policy_updates": 12, "agent_steps": 345, "reward_scale": 0.25,
            "observation_clip": 5.0}
    return troop.Episode(**{**made, **changes})


def continuous(steps=3, **changes):
    low = np.float32([-2, 0.1])
    return episode_of(steps, action_count=None, low=low, high=low + 3,
                      actions=np.full((steps, 2), 0.7, np.float32), **changes)


def frames(steps=3, **changes):
    """Pictures for which Minari's default is lossy JPEG."""
    rng = np.random.default_rng(1)
    seen = rng.integers(0, 256, (steps + 1, 40, 40), np.uint8)
    return episode_of(steps, **{"observations": seen, "terminated": False, "truncated": True,
                                **changes})


class OfflineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, made, ignore_errors=True)
        (made / "episodes").mkdir()
        (made / "config.toml").touch()
        for actor in range(2):
            with troop.EpisodeWriter(made / f"episodes/actor-{actor}.episodes") as writer:
                for seed in range(10 * actor, 10 * actor + 10):
                    writer.add(played(seed))
        cls.run_ = troop.Run(made)
        warnings.simplefilter("ignore")  # Minari's, about missing authors

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        os.environ["MINARI_DATASETS_PATH"] = str(self.folder / "minari")

    def write(self, *episodes, name="some.episodes"):
        with troop.EpisodeWriter(self.folder / name) as writer:
            for episode in episodes:
                writer.add(episode)
        return self.folder / name

    def test_a_run_gives_its_episodes_in_order(self):
        seeds = []
        for episode in self.run_.episodes():
            seeds.append(episode.seed)
            self.assertEqual(values(episode), values(played(episode.seed)))
            self.assertEqual(episode.total_reward, len(episode))
        self.assertEqual(seeds, list(range(20)))

    def test_a_file_that_actors_write_is_read(self):
        """The file of EpisodeTest.ReadsFileOfFixture."""
        path = pathlib.Path(os.environ["TROOP_SOURCE_DIR"]) / "tests/fixtures/episodes/two.episodes"
        first, second = troop.Episodes(path)
        steps = np.arange(6, dtype=np.float32)
        self.assertEqual(values(first), values(troop.Episode(
            env="Test-v0", observations=np.stack([steps, -steps], 1),
            actions=np.array([0, 1, 2, 0, 1], np.int32), rewards=0.25 * steps[:5],
            terminated=True, truncated=False, action_count=3, seed=0xFEDCBA9876543210,
            exploration=0.1, policy_updates=77, agent_steps=1234, reward_scale=0.5,
            observation_clip=10.0)))
        self.assertEqual(values(second), values(troop.Episode(
            env='Path "ö"/env', observations=np.arange(1, 10, dtype=np.uint8).reshape(3, 3, 1),
            actions=np.array([[0.5, 0.2], [-1.5, 0.3]], np.float32),
            rewards=np.array([1, -1], np.float32), terminated=False, truncated=True,
            low=np.array([-2, 0.1], np.float32), high=np.array([2, 1 / 3], np.float32))))

    def test_a_run_becomes_a_dataset_and_returns_unchanged(self):
        made = offline.to_minari(self.run_, "cartpole/troop-v0", algorithm_name="Ape-X DQN")
        loaded = minari.load_dataset("cartpole/troop-v0")
        episodes = list(self.run_.episodes())
        self.assertEqual(loaded.total_episodes, len(episodes))
        self.assertEqual(made.total_steps, sum(map(len, episodes)))
        self.assertEqual(loaded.action_space, gymnasium.spaces.Discrete(2))
        for data, episode in zip(loaded.iterate_episodes(), episodes):
            self.assertEqual(data.observations.tobytes(), episode.observations.tobytes())
            self.assertEqual(data.observations.dtype, np.float32)
            np.testing.assert_array_equal(data.actions, episode.actions)
            np.testing.assert_array_equal(data.rewards, episode.rewards)
            self.assertEqual((data.terminations[-1], data.truncations[-1]),
                             (episode.terminated, episode.truncated))
            self.assertEqual(data.terminations.sum() + data.truncations.sum(), 1)
        path = self.folder / "back.episodes"
        self.assertEqual(offline.from_minari("cartpole/troop-v0", path), len(episodes))
        self.assertEqual(list(map(values, troop.Episodes(path))), list(map(values, episodes)))

    def test_all_kinds_return_unchanged(self):
        for number, made in enumerate((episode_of, continuous, frames)):
            episodes = [made(3), made(1, seed=None), made(5, terminated=True, truncated=True)]
            dataset = offline.to_minari(episodes, f"test/kind{number}-v0")
            path = self.folder / f"{number}.episodes"
            self.assertEqual(offline.from_minari(dataset, path), 3)
            self.assertEqual(list(map(values, troop.Episodes(path))), list(map(values, episodes)))

    def test_datasets_of_gymnasium_are_read(self):
        """Episodes of Gymnasium's own environments, written by Minari alone."""
        for name, frame in (("CartPole-v1", np.float32), ("Pendulum-v1", np.float32)):
            env = gymnasium.make(name, max_episode_steps=20)
            buffers = []
            for seed in range(3):
                seen, actions, rewards, ends = [env.reset(seed=seed)[0]], [], [], []
                while not ends or not any(ends[-1]):
                    actions.append(env.action_space.sample())
                    observation, reward, over, cut, _ = env.step(actions[-1])
                    seen.append(observation)
                    rewards.append(float(reward))
                    ends.append((over, cut))
                buffers.append(EpisodeBuffer(
                    seed=seed, observations=seen, actions=actions, rewards=rewards,
                    terminations=[e[0] for e in ends], truncations=[e[1] for e in ends]))
            minari.create_dataset_from_buffers(f"other/{name}", buffers, env=env)
            path = self.folder / f"{name}.episodes"
            self.assertEqual(offline.from_minari(f"other/{name}", path), 3)
            for episode, buffer in zip(troop.Episodes(path), buffers):
                self.assertEqual(episode.env, name)
                np.testing.assert_array_equal(episode.observations,
                                              np.array(buffer.observations, frame))
                np.testing.assert_array_equal(episode.actions, buffer.actions)
                np.testing.assert_array_equal(episode.rewards, np.float32(buffer.rewards))
                self.assertEqual(episode.seed, buffer.seed)
                self.assertEqual((episode.terminated, episode.truncated),
                                 (buffer.terminations[-1], buffer.truncations[-1]))

    def test_a_truncated_file_has_its_complete_episodes(self):
        path = self.write(episode_of(2), continuous(3))
        whole = path.read_bytes()
        first = 24 + struct.unpack_from("<Q", whole, 8)[0]
        for size in range(1, len(whole)):
            path.write_bytes(whole[:size])
            self.assertEqual(len(list(troop.Episodes(path))), int(size >= first), size)

    def test_a_file_may_be_truncated_while_it_is_read(self):
        """A mapped file would end this process with SIGBUS."""
        path = self.write(episode_of(20000), episode_of(30000))
        read = iter(troop.Episodes(path))
        first = next(read)
        os.truncate(path, 100)
        self.assertEqual(values(first), values(episode_of(20000)))
        self.assertEqual(list(read), [])

    def test_damage_is_refused(self):
        path = self.write(episode_of(2))
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
            with self.assertRaisesRegex(ValueError, "damaged episode 0 at byte 0"):
                list(troop.Episodes(path))

    def test_numbers_out_of_range_are_refused(self):
        """Checksums that match do not make the numbers of another program valid."""
        seed = f'"{2**64 - 1}"'
        changes = [
            ('"exploration": 0.1', '"exploration": 1.01', "exploration is 1.01, must be"),
            ('"exploration": 0.1', '"exploration": NaN', "exploration is nan"),
            ('"exploration": 0.1', '"exploration": 1e999', "exploration is inf"),
            ('"exploration": 0.1', '"exploration": true', "exploration is True"),
            ('"policy_updates": 12', '"policy_updates": -1', "policy_updates is -1"),
            ('"policy_updates": 12', '"policy_updates": 4294967296', "from 0 to 4294967295"),
            ('"policy_updates": 12', '"policy_updates": 1.5', "policy_updates is 1.5"),
            ('"agent_steps": 345', '"agent_steps": -1', "agent_steps is -1"),
            ('"agent_steps": 345', f'"agent_steps": {10**15 + 1}', "agent_steps is"),
            ('"reward_scale": 0.25', '"reward_scale": 0', "reward_scale is 0"),
            ('"reward_scale": 0.25', '"reward_scale": Infinity', "reward_scale is inf"),
            ('"observation_clip": 5.0', '"observation_clip": -1', "observation_clip is -1"),
            ('"observation_clip": 5.0', '"observation_clip": {}', "observation_clip is"),
            (seed, f'"{2**64}"', "seed is '18446744073709551616'"),
            (seed, '"-1"', "seed is '-1'"),
            (seed, "7", "seed is 7"),
            ('"steps": 2', '"steps": 0', "steps is 0"),
            ('"steps": 2', '"steps": 1', "1 steps take"),
            ('"actions": 4', '"actions": -1', "actions is -1"),
            ('"terminated": true', '"terminated": false', "no end"),
            ('"terminated": true', '"terminated": 1', "neither true nor false"),
            ('"env"', '"x": "' + (1 << 20) * "a" + '", "env"', "a header of"),
            ('{"env"', '["env"', "JSONDecodeError"),
            ("Test-v0", "a\\n", "env is not one line"),
            ("Test-v0", 5000 * "a", "env is not one line"),
            ('"low": []', '"low": [1e39]', "not a finite float"),
        ]
        first, whole = self.write(episode_of(1)).read_bytes(), _episodes.encoded(episode_of(2))
        length = struct.unpack_from("<I", whole, 24)[0]
        header = whole[28:28 + length].decode()
        for before, after, message in changes:
            self.assertIn(before, header)
            text = header.replace(before, after).encode()
            body = struct.pack("<I", len(text)) + text + whole[28 + length:]
            prelude = struct.pack("<8sQI", b"TROOPEP1", len(body), _native.crc32c(body))
            path = self.folder / "changed.episodes"
            path.write_bytes(first + prelude + struct.pack("<I", _native.crc32c(prelude)) + body)
            with self.subTest(after[:40]), self.assertRaises(ValueError) as caught:
                list(troop.Episodes(path))
            line = str(caught.exception)
            self.assertIn(f"changed.episodes: damaged episode 1 at byte {len(first)}: ", line)
            self.assertIn(message, line)
            self.assertNotIn("\n", line)

    def test_wrong_input_is_refused(self):
        wrong = [
            ({"actions": np.array([0, 1, 4], np.int32)}, r"not in \[0, 4\)"),
            ({"actions": np.array([0, 1], np.int32)}, "4 observations, 2 actions and 3 rewards"),
            ({"actions": np.array([0.0, 1, 2])}, "actions are float64"),
            ({"rewards": np.zeros(3)}, "rewards are float64"),
            ({"terminated": False}, "neither terminated nor truncated"),
            ({"observations": np.zeros((4, 2), np.float16)}, "float16"),
            ({"action_count": None}, "need low and high"),
            ({"exploration": float("nan")}, "exploration is nan"),
            ({"policy_updates": -1}, "policy_updates is -1"),
            ({"seed": 2**64}, "seed is"),
            ({"reward_scale": 0.0}, "reward_scale is 0"),
        ]
        for number, (changes, message) in enumerate(wrong):
            with self.assertRaisesRegex(ValueError, message):
                self.write(episode_of(**changes), name=f"{number}.episodes")
        with self.assertRaisesRegex(ValueError, "must end in .episodes"):
            troop.EpisodeWriter(self.folder / "x")
        with self.assertRaisesRegex(ValueError, "no such file or folder"):
            troop.Episodes(self.folder / "none")
        with self.assertRaisesRegex(ValueError, "actor.record_episodes = true"):
            troop.Episodes(tempfile.mkdtemp(dir=self.folder))
        with self.assertRaisesRegex(ValueError, "same spaces throughout"):
            offline.to_minari([episode_of(), continuous()], "test/mixed-v0")
        with self.assertRaisesRegex(ValueError, "no complete episode"):
            offline.to_minari([], "test/empty-v0")

    def test_datasets_that_do_not_fit_are_refused(self):
        spaces = gymnasium.spaces
        cases = [
            (spaces.Discrete(3), spaces.Discrete(2), [1, 2], [0], "observations of Discrete"),
            (spaces.Box(-1, 1, (1,)), spaces.Box(-np.inf, np.inf, (1,)),
             [np.zeros(1, np.float32)] * 2, [np.zeros(1, np.float32)], "actions of Box"),
            (spaces.Box(-1, 1, (1,)), spaces.Discrete(2),
             [np.full(1, np.nan, np.float32)] * 2, [0], "NaN or infinite observation"),
        ]
        for number, (seen, acted, observations, actions, message) in enumerate(cases):
            dataset = minari.create_dataset_from_buffers(
                f"wrong/case{number}-v0", [EpisodeBuffer(
                    observations=observations, actions=actions, rewards=[1.0],
                    terminations=[True], truncations=[False])],
                observation_space=seen, action_space=acted)
            path = self.folder / "out.episodes"
            with self.assertRaisesRegex(ValueError, message):
                offline.from_minari(dataset, path)
            self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()

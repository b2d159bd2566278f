"""Experience whose every number says where it comes from, and what a batch of it must hold."""
import numpy as np


class Episodes:
    """Steps of E environments with episodes of random lengths; remembers all of them."""

    def __init__(self, environments, seed, observation_shape=(), longest=9):
        self.rng = np.random.default_rng(seed)
        self.environments, self.shape, self.longest = environments, observation_shape, longest
        self.done = []                      # episodes: dict(first, rewards, terminated)
        self.running = [self._begin() for _ in range(environments)]
        self.count = 0

    def _begin(self):
        episode = {"number": len(self.done), "rewards": [], "terminated": None,
                   "length": int(self.rng.integers(1, self.longest + 1))}
        self.done.append(episode)
        return episode

    def _frame(self, episode, step):
        value = np.full(self.shape, episode["number"] % 256, np.float32)
        if self.shape:
            value.flat[1] = episode["number"] // 256
            value.flat[0] = step
        return value

    def step(self):
        """Arguments of Writer.append, [E, ...]."""
        rows = {name: [] for name in ("observation", "action", "reward", "terminated",
                                      "truncated", "next_observation")}
        for e, episode in enumerate(self.running):
            step = len(episode["rewards"])
            reward = float(self.rng.integers(-3, 4))
            ends = step + 1 == episode["length"]
            terminated = bool(ends and self.rng.random() < 0.5)
            rows["observation"].append(self._frame(episode, step))
            rows["action"].append(1000 * (episode["number"] % 1000) + step)
            rows["reward"].append(reward)
            rows["terminated"].append(terminated)
            rows["truncated"].append(ends and not terminated)
            rows["next_observation"].append(self._frame(episode, step + 1))
            episode["rewards"].append(reward)
            if ends:
                episode["terminated"] = terminated
                self.running[e] = self._begin()
        self.count += self.environments
        return {name: np.array(column) for name, column in rows.items()}

    def where(self, observation):
        """(episode, step) that a frame of shape [>= 2] was made from."""
        flat = observation.reshape(-1)
        number = int(flat[2] if flat.size > 2 else flat[1])
        return self.done[number + 256 * int(flat[1])], int(flat[0])

    def check_transition(self, test, batch, i, n, stack=1):
        """Row i of a batch is n-step, or shorter where its episode ended."""
        newest = batch.observation[i] if stack == 1 else batch.observation[i, -1]
        episode, step = self.where(newest)
        rewards = episode["rewards"]
        length = int(batch.length[i])
        over = episode["terminated"] is not None
        test.assertEqual(length, min(n, len(rewards) - step) if over else n)
        test.assertEqual(int(batch.action[i]), 1000 * (episode["number"] % 1000) + step)
        np.testing.assert_array_equal(batch.reward[i, :length], rewards[step:step + length])
        np.testing.assert_array_equal(batch.reward[i, length:], 0)
        ends = over and episode["terminated"] and step + length == len(rewards)
        wanted = np.ones(n)
        if ends:
            wanted[length - 1] = 0
        np.testing.assert_array_equal(batch.discount[i], wanted)
        for frames, last in ((batch.observation[i], step),
                             (batch.next_observation[i], step + length)):
            for back, frame in enumerate(reversed(frames if stack > 1 else [frames])):
                wanted = self._frame(episode, last - back) if back <= last else np.zeros(self.shape)
                np.testing.assert_array_equal(frame, wanted)

"""troop_replay.LocalReplay: what is written is what is drawn."""
import gc
import threading
import unittest

import numpy as np

import troop_replay
from replay_model import Episodes
from troop_replay import errors

FRAME = (3,)


def table(**more):
    return troop_replay.Table(observation=("float32", FRAME), action=("int64", ()), **more)


def filled(steps, environments=4, seed=1, shape=FRAME, **more):
    """(replay, its episodes) after `steps` steps of each environment."""
    replay = troop_replay.LocalReplay(
        troop_replay.Table(observation=("float32", shape), action=("int64", ()), **more))
    writer, episodes = replay.writer(environments), Episodes(environments, seed, shape)
    for _ in range(steps):
        writer.append(**episodes.step())
    writer.flush()
    return replay, episodes


class LocalReplayTest(unittest.TestCase):
    def test_transitions_are_the_steps_that_were_written(self):
        for n, stack in ((1, 1), (3, 1), (1, 4), (3, 4), (5, 2)):
            for codec in ("none", "lz4", "zstd"):
                with self.subTest(n=n, stack=stack, codec=codec):
                    replay, episodes = filled(200, length=n, stack=stack, codec=codec)
                    batch = replay.sampler(512).sample()
                    for i in range(len(batch)):
                        episodes.check_transition(self, batch, i, n, stack)

    def test_every_step_becomes_one_item_when_its_episode_is_over(self):
        replay, episodes = filled(100, environments=1, length=3)
        pending = sum(1 for e in episodes.done if e["terminated"] is None
                      for _ in e["rewards"][-3:])
        self.assertEqual(len(replay), 100 - pending)

    def test_a_table_below_its_minimum_gives_nothing(self):
        replay = troop_replay.LocalReplay(table(min_items=5))
        with self.assertRaises(errors.FailedPrecondition) as caught:
            replay.sampler().sample()
        self.assertIn("5", str(caught.exception))
        self.assertEqual(caught.exception.code, "failed_precondition")

    def test_capacity_bounds_the_items(self):
        replay, _ = filled(1000, capacity=256)
        self.assertEqual(len(replay), 256)
        self.assertGreater(replay.counts()["evicted"], 0)

    def test_priorities_rule_what_is_drawn(self):
        replay, _ = filled(300)
        sampler = replay.sampler(256)
        chosen = None
        for _ in range(200):
            batch = sampler.sample()
            chosen = int(batch.key[0]) if chosen is None else chosen
            sampler.update_priorities(batch.key, np.where(batch.key == chosen, 1.0, 0.0))
        batch = sampler.sample()
        # Items that were never sampled keep priority 1; most items were sampled.
        self.assertGreater(np.mean(batch.key == chosen), 0.0)
        drawn = batch.probability[batch.key == chosen][0]
        self.assertGreater(drawn, 1 / len(replay))

    def test_a_priority_given_with_a_step_is_its_items(self):
        replay = troop_replay.LocalReplay(table(length=1, alpha=1.0, priority_epsilon=0.0))
        writer = replay.writer()
        for step in range(6):
            writer.append(np.full(FRAME, step, np.float32), step, 0.0, priority=float(step))
        batch = replay.sampler(1000).sample()
        counts = np.bincount(batch.action, minlength=5)
        # The last step has no next frame yet; priorities 0 … 4 of a total of 10.
        np.testing.assert_allclose(counts / 1000, np.arange(5) / 10, atol=0.002)

    def test_weights_are_those_of_the_formula(self):
        replay, _ = filled(100)
        batch = replay.sampler(64, beta=0.7).sample()
        wanted = (len(replay) * batch.probability) ** -0.7
        np.testing.assert_allclose(batch.weight, wanted / wanted.max(), rtol=1e-5)

    def test_n_step_returns_are_those_of_the_formula(self):
        replay, _ = filled(200, length=4)
        batch = replay.sampler(256).sample()
        returns, discounts = batch.n_step(0.9)
        for i in range(len(batch)):
            total, factor = 0.0, 1.0
            for k in range(int(batch.length[i])):
                total += factor * float(batch.reward[i, k])
                factor *= 0.9 * float(batch.discount[i, k])
            self.assertAlmostEqual(float(returns[i]), total, places=4)
            self.assertAlmostEqual(float(discounts[i]), factor, places=5)

    def test_arrays_keep_their_values_while_later_batches_are_drawn(self):
        replay, _ = filled(200)
        sampler = replay.sampler(32)
        kept = sampler.sample().observation
        values = kept.copy()
        gc.collect()
        for _ in range(50):
            sampler.sample()
        np.testing.assert_array_equal(kept, values)

    def test_a_batch_that_nobody_holds_is_used_again(self):
        replay, _ = filled(200)
        sampler = replay.sampler(32)
        addresses = {sampler.sample().observation.ctypes.data for _ in range(20)}
        self.assertLessEqual(len(addresses), 2)

    def test_the_same_seed_draws_the_same_items(self):
        keys = [filled(100, seed=3)[0].sampler(64).sample().key for _ in range(2)]
        np.testing.assert_array_equal(*keys)

    def test_skipped_environments_write_nothing(self):
        replay = troop_replay.LocalReplay(table(length=1))
        writer, episodes = replay.writer(2), Episodes(2, 1, FRAME, longest=1000)
        for _ in range(10):
            writer.append(**episodes.step(), skip=[False, True])
        writer.flush()
        self.assertEqual(replay.counts()["frames"], 10)

    def test_no_item_crosses_a_break(self):
        replay = troop_replay.LocalReplay(table(length=3))
        writer = replay.writer()
        for step in range(20):
            if step == 10:
                writer.break_episode()
            writer.append(np.full(FRAME, step, np.float32), step, 1.0)
        actions = replay.sampler(500).sample().action
        self.assertEqual(set(actions.tolist()), set(range(7)) | set(range(10, 17)))

    def test_threads_may_share_a_replay(self):
        replay, _ = filled(50)
        faults = []

        def work(seed):
            try:
                writer, episodes = replay.writer(2), Episodes(2, seed, FRAME)
                sampler = replay.sampler(16)
                for _ in range(200):
                    writer.append(**episodes.step())
                    batch = sampler.sample()
                    sampler.update_priorities(batch.key, batch.probability)
            except Exception as fault:  # pylint: disable=broad-except
                faults.append(fault)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])


class SequenceTest(unittest.TestCase):
    def test_sequences_hold_their_window_and_their_state(self):
        replay = troop_replay.LocalReplay(table(
            sequence=True, length=4, burn_in=2, state=("float32", (2,))))
        writer, episodes = replay.writer(3, period=2), Episodes(3, 1, FRAME, longest=15)
        for _ in range(300):
            rows = episodes.step()
            # The state before a step: its frame's first two numbers.
            writer.append(**rows, state=rows["observation"][:, :2])
        writer.flush()
        batch = replay.sampler(256).sample()
        self.assertEqual(batch.observation.shape, (256, 7, *FRAME))
        for i in range(256):
            length, lead = int(batch.length[i]), int(batch.burn_in[i])
            window = batch.observation[i]
            episode, step = episodes.where(window[2])  # behind the lead
            self.assertEqual(step % 2, 0)
            self.assertEqual(lead, min(2, step))
            for back in range(-2, length + 1):
                wanted = episodes._frame(episode, step + back) if back >= -lead else 0
                np.testing.assert_array_equal(window[2 + back], np.broadcast_to(wanted, FRAME))
            np.testing.assert_array_equal(window[2 + length + 1:], 0)
            rewards = episode["rewards"][step:step + length]
            np.testing.assert_array_equal(batch.reward[i, 2:2 + length], rewards)
            np.testing.assert_array_equal(batch.state[i], window[2 - lead, :2])


class RefusalTest(unittest.TestCase):
    def refused(self, kind, pattern, call, *arguments, **named):
        with self.assertRaisesRegex(kind, pattern):
            call(*arguments, **named)

    def test_wrong_arguments_are_named(self):
        replay = troop_replay.LocalReplay(table())
        writer, zeros = replay.writer(), np.zeros(FRAME, np.float32)
        self.refused(ValueError, "observation", writer.append, np.zeros(7), 0, 0.0)
        self.refused(ValueError, "reward", writer.append, zeros, 0, [0.0, 1.0])
        self.refused(errors.InvalidArgument, "reward is nan", writer.append, zeros, 0, float("nan"))
        self.refused(errors.InvalidArgument, "priority", writer.append, zeros, 0, 0.0, priority=-1)
        self.refused(errors.InvalidArgument, "next_observation", writer.append, zeros, 0, 0.0, True)
        self.refused(errors.InvalidArgument, "environment", writer.break_episode, 1)
        self.refused(errors.InvalidArgument, "batch_size", replay.sampler, 0)
        update = replay.sampler().update_priorities
        self.refused(ValueError, "key has shape", update, [1], [1.0, 2.0])
        self.refused(errors.InvalidArgument, "environments", replay.writer, 1 << 30)

    def test_tables_that_cannot_work_are_refused(self):
        for wrong in ({"length": 0}, {"codec": "gzip"}, {"sampler": "best"}, {"capacity": 0},
                      {"stack": 1000}, {"burn_in": 3}):
            with self.subTest(wrong), self.assertRaises(errors.InvalidArgument):
                troop_replay.LocalReplay(table(**wrong))
        self.refused(ValueError, "complex", troop_replay.Table, ("complex64", ()), ("int64", ()))


if __name__ == "__main__":
    unittest.main()

"""troop_replay.Server and Client: the same as in process, through sockets."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import troop_replay
from replay_model import Episodes
from troop_replay import errors

FRAME = (3,)
TIMEOUT_S = 60.0


def table(**more):
    return troop_replay.Table(observation=("float32", FRAME), action=("int64", ()), **more)


class ServiceTest(unittest.TestCase):
    def serve(self, *tables, endpoint="tcp://127.0.0.1:0"):
        server = troop_replay.Server(tables, endpoint)
        self.addCleanup(server.close)
        return server, troop_replay.Client(server.endpoint, TIMEOUT_S)

    def fill(self, client, steps, environments=4, seed=1, name="experience"):
        writer, episodes = client.writer(name, environments), Episodes(environments, seed, FRAME)
        for _ in range(steps):
            writer.append(**episodes.step())
        writer.flush()
        return writer, episodes

    def test_what_is_drawn_is_what_was_written(self):
        for n, stack, codec in ((1, 1, "none"), (3, 1, "lz4"), (3, 4, "lz4"), (2, 2, "zstd")):
            with self.subTest(n=n, stack=stack, codec=codec):
                _, client = self.serve(table(length=n, stack=stack, codec=codec))
                _, episodes = self.fill(client, 200)
                sampler = client.sampler("experience", 256)
                for _ in range(5):
                    batch = sampler.sample()
                    for i in range(len(batch)):
                        episodes.check_transition(self, batch, i, n, stack)
                    sampler.update_priorities(batch.key, batch.probability)

    def test_unix_sockets_serve_as_well(self):
        with tempfile.TemporaryDirectory() as folder:
            _, client = self.serve(table(), endpoint=f"ipc://{folder}/replay")
            self.fill(client, 50)
            self.assertEqual(len(client.sampler("experience", 8).sample()), 8)

    def test_tables_say_what_they_are(self):
        _, client = self.serve(table(name="a", length=3, capacity=1000),
                               table(name="b", sequence=True, length=8, burn_in=2, stack=2,
                                     state=("float32", (5,)), codec="lz4"))
        self.fill(client, 10, environments=1, name="a")
        a, b = client.tables()
        self.assertEqual((a.name, a.length, a.capacity, a.sequence), ("a", 3, 1000, False))
        self.assertEqual(a.observation, troop_replay.Spec(np.dtype("float32"), FRAME))
        self.assertIsNone(a.state)
        self.assertGreater(a.items, 0)
        self.assertEqual((b.name, b.sequence, b.burn_in, b.stack, b.codec),
                         ("b", True, 2, 2, "lz4"))
        self.assertEqual(b.state.shape, (5,))
        with self.assertRaisesRegex(errors.NotFound, "c; it has a, b"):
            client.sampler("c")
        self.assertIn("replay/items", client.stats())

    def test_shards_are_drawn_from_as_one_table(self):
        servers = [self.serve(table(length=1))[0] for _ in range(2)]
        client = troop_replay.Client([server.endpoint for server in servers], TIMEOUT_S)
        _, episodes = self.fill(client, 200, environments=6)
        items = client.table("experience").items
        sampler = client.sampler("experience", 300, beta=0.5)
        for _ in range(20):  # totals of all shards are known after a few
            batch = sampler.sample()
        for i in range(len(batch)):
            episodes.check_transition(self, batch, i, 1)
        np.testing.assert_allclose(batch.probability, 1 / items, rtol=1e-3)

    def test_priorities_of_a_client_reach_the_server(self):
        _, client = self.serve(table(length=1, alpha=1.0))
        self.fill(client, 100)
        sampler = client.sampler("experience", 64, prefetch=1)
        chosen = int(sampler.sample().key[0])
        sampler.update_priorities([chosen], [1e6])
        share = 0.0
        deadline = time.monotonic() + TIMEOUT_S
        while share < 0.9 and time.monotonic() < deadline:
            share = float(np.mean(sampler.sample().key == chosen))
        self.assertGreater(share, 0.9)

    def test_an_empty_table_keeps_its_sampler_waiting_until_the_deadline(self):
        _, client = self.serve(table(min_items=1000))
        sampler = client.sampler("experience")
        with self.assertRaises(errors.DeadlineExceeded) as caught:
            sampler.sample(timeout_s=0.05)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertIn("no batch in time", str(caught.exception))

    def test_a_sampler_that_waits_gets_what_comes(self):
        _, client = self.serve(table(min_items=50))
        batches = []
        thread = threading.Thread(
            target=lambda: batches.append(client.sampler("experience").sample()))
        thread.start()
        self.fill(client, 100)
        thread.join(TIMEOUT_S)
        self.assertEqual(len(batches), 1)

    def test_a_limiter_holds_the_writer_until_samples_are_drawn(self):
        _, client = self.serve(table(length=1, min_items=100, samples_per_insert=1.0,
                                     samples_per_insert_tolerance_rate=0.5))
        writer, zeros = client.writer("experience", steps_per_push=10), np.zeros(FRAME)
        taken = 0
        while taken < 10_000:
            try:
                writer.append(zeros, 0, 0.0, timeout_s=0.2)
                taken += 1
            except errors.DeadlineExceeded:
                if client.table("experience").items >= 100:
                    break  # else it is only slow
        self.assertLess(taken, 500)
        sampler = client.sampler("experience", 20)
        for _ in range(2):
            sampler.sample()
        writer.append(zeros, 0, 0.0)
        self.assertEqual(writer.steps, taken + 1)

    def test_a_server_goes_on_with_what_its_folder_holds(self):
        for ack in ("memory", "disk"):
            with self.subTest(ack), tempfile.TemporaryDirectory() as folder:
                kept = table(length=2, codec="lz4")
                with troop_replay.Server([kept], folder=folder, ack=ack) as server:
                    client = troop_replay.Client(server.endpoint, TIMEOUT_S)
                    _, episodes = self.fill(client, 100)
                    items = client.table("experience").items
                    del client
                with troop_replay.Server([kept], folder=folder, ack=ack) as server:
                    client = troop_replay.Client(server.endpoint, TIMEOUT_S)
                    self.assertEqual(client.table("experience").items, items)
                    batch = client.sampler("experience", 128).sample()
                    for i in range(len(batch)):
                        episodes.check_transition(self, batch, i, 2)
        with self.assertRaises(ValueError):
            troop_replay.Server([table()], ack="disk")

    def test_a_server_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(errors.DeadlineExceeded, "tcp://127.0.0.1:1"):
            troop_replay.Client("tcp://127.0.0.1:1", timeout_s=0.05)
        with self.assertRaises(errors.InvalidArgument):
            troop_replay.Client("nowhere")

    def test_an_endpoint_in_use_is_refused(self):
        server, _ = self.serve(table())
        with self.assertRaises(errors.AlreadyExists):
            troop_replay.Server([table()], server.endpoint)

    def test_processes_share_a_server(self):
        server, client = self.serve(table(length=1))
        code = ("import sys, numpy as np, troop_replay\n"
                "w = troop_replay.Client(sys.argv[1]).writer('experience')\n"
                "for i in range(101): w.append(np.zeros(3, np.float32), i, 0.0)\n"
                "w.flush()\n")
        path = os.pathsep.join(sys.path)
        workers = [subprocess.Popen([sys.executable, "-c", code, server.endpoint],
                                    env={**os.environ, "PYTHONPATH": path}) for _ in range(2)]
        self.assertEqual([worker.wait(TIMEOUT_S) for worker in workers], [0, 0])
        self.assertEqual(client.table("experience").items, 200)

    def test_an_interrupt_ends_a_wait(self):
        server, _ = self.serve(table())
        # A shell's background jobs, and what they start, ignore the signal.
        code = ("import signal, sys, troop_replay\n"
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                "s = troop_replay.Client(sys.argv[1]).sampler('experience')\n"
                "print('waits', flush=True)\n"
                "s.sample(timeout_s=3600)\n")
        worker = subprocess.Popen([sys.executable, "-c", code, server.endpoint],
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(worker.kill)
        self.assertEqual(worker.stdout.readline(), "waits\n")
        worker.send_signal(signal.SIGINT)
        _, stderr = worker.communicate(timeout=TIMEOUT_S)
        self.assertIn("KeyboardInterrupt", stderr)


# (secret, public) of Curve25519: 0, 1, 2 … as a secret; Bob of RFC 7748, 6.1; the first iteration
# of its 5.2.
ALICE = ("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
         "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f")
BOB = ("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
       "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
FIRST = ("0900000000000000000000000000000000000000000000000000000000000000",
         "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079")


class KeysTest(unittest.TestCase):
    """Alice serves; Bob has whatever key a test allows him."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.allow()

    def allow(self, *lines):
        self.write("allowed", "".join(f"{public} {role} {role}\n" for public, role in lines))

    def write(self, name, text, mode=0o600):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def key(self, role, pair, mode=0o600):
        return self.write(f"{role}.key", f'role = "{role}"\nname = "{role}"\n'
                          f'public = "{pair[1]}"\nsecret = "{pair[0]}"\n', mode)

    def serve(self, **more):
        server = troop_replay.Server([table(length=1)], key=self.key("replay", ALICE), **more)
        self.addCleanup(server.close)
        return server

    def connect(self, server, role="tool", pair=BOB):
        return troop_replay.Client(server.endpoint, TIMEOUT_S, key=self.key(role, pair))

    def test_who_is_allowed_writes_and_draws(self):
        self.allow((BOB[1], "tool"))
        server = self.serve()
        self.assertTrue(server.endpoint.endswith("#" + ALICE[1]))
        client, episodes = self.connect(server), Episodes(4, 1, FRAME)
        writer = client.writer("experience", 4)
        for _ in range(50):
            writer.append(**episodes.step())
        writer.flush()
        sampler = client.sampler("experience", 64)
        batch = sampler.sample()
        for i in range(len(batch)):
            episodes.check_transition(self, batch, i, 1)
        sampler.update_priorities(batch.key, batch.probability)
        self.assertIn("replay/items", client.stats())

    def test_who_is_not_allowed_is_told(self):
        self.allow((FIRST[1], "tool"))
        server = self.serve()
        with self.assertRaisesRegex(errors.FailedPrecondition, "does not allow our public key"):
            self.connect(server)
        with self.assertRaisesRegex(errors.FailedPrecondition, "requires a key"):
            troop_replay.Client(server.endpoint, TIMEOUT_S)
        with self.assertRaisesRegex(errors.FailedPrecondition, "requires a key"):
            troop_replay.Client(server.endpoint.partition("#")[0], TIMEOUT_S)

    def test_another_server_in_its_place_is_not_believed(self):
        self.allow((BOB[1], "tool"))
        server = self.serve()
        forged = server.endpoint.replace(ALICE[1], FIRST[1])
        with self.assertRaisesRegex(errors.FailedPrecondition, "rejects our handshake"):
            troop_replay.Client(forged, TIMEOUT_S, key=self.key("tool", BOB))

    def test_an_actors_key_only_writes(self):
        self.allow((BOB[1], "actor"))
        server = self.serve()
        client, zeros = self.connect(server, "actor"), np.zeros(FRAME, np.float32)
        writer = client.writer("experience")
        for i in range(11):
            writer.append(zeros, i, 0.0)
        writer.flush()
        self.assertEqual(client.table("experience").items, 10)
        with self.assertRaisesRegex(errors.FailedPrecondition, "a key of the role actor"):
            client.stats()
        with self.assertRaises(errors.ReplayError):
            client.sampler("experience").sample(timeout_s=0.5)

    # The server's list decides a key's role, not the name in the client's key file.
    def test_a_key_that_calls_itself_a_tools_is_what_the_server_knows_it_for(self):
        self.allow((BOB[1], "actor"))
        with self.assertRaisesRegex(errors.FailedPrecondition, "a key of the role actor"):
            self.connect(self.serve(), "tool")

    def test_a_bad_key_file_is_named(self):
        self.allow((BOB[1], "tool"))
        server = self.serve()
        for path, says in ((self.key("tool", BOB, 0o644), "chmod 600"),
                           (os.path.join(self.folder.name, "none.key"), "none.key")):
            with self.assertRaisesRegex(errors.ReplayError, says):
                troop_replay.Client(server.endpoint, TIMEOUT_S, key=path)
        with self.assertRaisesRegex(errors.InvalidArgument, "do not match"):
            self.connect(server, pair=(BOB[0], FIRST[1]))

    def test_beyond_this_machine_only_with_keys_or_insecure(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "reachable from other machines"):
            troop_replay.Server([table()], "tcp://0.0.0.0:0")
        troop_replay.Server([table()], "tcp://0.0.0.0:0", insecure=True).close()
        self.serve(endpoint="tcp://0.0.0.0:0")


if __name__ == "__main__":
    unittest.main()

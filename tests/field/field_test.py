#!/usr/bin/env python3
"""Public bug reports of comparable projects, replayed with small inputs of our own.

    ctest --test-dir build/dev -L field
    python3 tests/field/field_test.py [NAME …]

Each row names its report (repository#number). TROOP_PROGRAM is the program, TROOP_TEST_PYTHON an
interpreter with NumPy and Gymnasium.
"""

import json
import math
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest

import bed

PYTHON = os.environ.get("TROOP_TEST_PYTHON", sys.executable)
WALK = "env.id=python:field_envs:Walk"
FROZEN = (
    "model.dropout=0 model.attention_dropout=0 model.classifier_dropout=0"
    " run.max_updates=1 optimizer.learning_rate=1e-9"
).split()


class WrongAnswers(bed.Bed):
    """What was wrong without a word."""

    def test_numbers_that_are_none(self):
        """A model or an environment with NaN has no score."""
        # deeplearning4j/deeplearning4j#6748: the argmax of NaN is class 0.
        # keras-team/keras#1925: loss NaN, accuracy 99.26 %.
        self.reviews()
        self.read()
        path = self.run / "model/model.safetensors"
        tensors = bed.tensors_of(path)
        kind, shape, data = tensors["classifier.weight"]
        tensors["classifier.weight"] = kind, shape, struct.pack("<f", math.nan) * (len(data) // 4)
        bed.write_tensors(path, tensors)
        for words in (
            ["predict", self.run / "model", "a good film"],
            ["train", "text.toml", "name=b", f"model.pretrained={self.run / 'model'}"],
        ):
            self.troop(*words, code=4, has="classifier.weight", hasnt="positive (")
        # hill-a/stable-baselines#257, #279, #331; takuseno/d3rlpy#372: an environment's NaN ends
        # in the network, and every action is NaN. The step that brings it is named.
        for fault, has in (("nan observation", "observation[0] is nan"), ("nan reward", "reward")):
            self.play(WALK, f"env.options.fault={fault}", "--overwrite", code=1, has=[has, "seed"])
            self.assertNotIn("final_return_mean", self.result())

    def test_weights_that_a_run_begins_with(self):
        """They reach the owner of the weights, in each mode."""
        # ray-project/ray#32751, #41508, #9253, #41290: restored weights are not those that play.
        self.reviews()
        self.read("run.epochs=12", "optimizer.learning_rate=1e-2", "model.dropout=0")
        texts = ("a good film", "an awful plot", "lovely", "dull")
        said = self.troop("predict", self.run / "model", *texts)
        self.assertIn("positive", said)
        for owner in (
            ["learner.sync=allreduce"],
            ["learner.sync=paramserver"],
            ["learner.sync=paramserver", "paramserver.shards=3", "mesh.dp=2"],
            ["mesh.dp=2"],
            ["mesh.tp=2"],
            ["fleet.mode=serial"],
        ):
            with self.subTest(owner=owner):
                start = f"model.pretrained={self.run / 'model'}"
                self.read("name=b", "--overwrite", start, *FROZEN, *owner)
                self.assertEqual(self.troop("predict", "runs/b/model", *texts), said)

    def test_settings_of_files(self):
        """They are heeded or refused."""
        self.reviews()
        self.read()
        folder = self.run / "model"
        # huggingface/transformers#2742, #2917 (strip_accents), #981, #3823 (do_lower_case).
        for name, setting, value, code in (
            ("tokenizer_config.json", "do_lower_case", False, 0),
            ("tokenizer_config.json", "strip_accents", False, 2),
            ("tokenizer_config.json", "tokenize_chinese_chars", False, 2),
            ("config.json", "is_decoder", True, 2),
            ("config.json", "problem_type", "multi_label_classification", 2),
        ):
            with self.subTest(setting=setting):
                text = (folder / name).read_text()
                (folder / name).write_text(json.dumps(json.loads(text) | {setting: value}))
                output = self.troop("predict", folder, "GOOD film", code=code)
                self.assertIn("1 of them unknown" if code == 0 else setting, output)
                (folder / name).write_text(text)
        # Farama-Foundation/Gymnasium#291, tensorflow/agents#834: a longer limit changes nothing.
        for key in ("env.max_episode_steps", "env.options.max_episode_steps"):
            check = ["env", "check", "gymnasium:Pendulum-v1", f"env.python={PYTHON}", "--quick"]
            self.troop(*check, f"{key}=250", has="at most 250 steps")

    def test_metrics_of_one_batch(self):
        """Loss and accuracy of a batch do not depend on the mesh."""
        # deepspeedai/DeepSpeed#5583: 1/4/1, 2/2/1 and 2/1/2 devices, rows, parts differ.
        # huggingface/transformers#35207, huggingface/trl#4719: means of parts are averaged.
        self.reviews()
        seen = set()
        for mesh in (
            [],
            ["mesh.dp=2"],
            ["mesh.dp=3"],
            ["mesh.dp=2", "mesh.batch_shares=[3,1]"],
            ["mesh.tp=2"],
            ["learner.micro_batch_size=2"],
            ["mesh.dp=2", "learner.micro_batch_size=1"],
        ):
            self.read("--overwrite", *FROZEN, *mesh)
            line = self.lines()[-1]
            seen.add((round(line["learner/loss"], 5), line["learner/accuracy"]))
        self.assertEqual(len(seen), 1, seen)

    def test_held_out_reviews(self):
        """They are of both sentiments, however the file is sorted."""
        # keras-team/keras#796, #597, #8346, #6422: the last rows of a sorted file.
        for order in (lambda i: i < 30, lambda i: i >= 30, lambda i: i % 2 == 0, lambda i: i % 5):
            self.reviews(order=order)
            output = self.read("--overwrite", "run.max_updates=1", "data.validation_split=0.2")
            self.assertIn("of 12 held-out examples", output)
            self.assertNotRegex(output, r" (0|100)\.00 ")
        self.reviews(order=lambda i: True)
        self.read("--overwrite", code=2, has="at least two classes")

    def test_learners_with_other_data(self):
        """They do not take part."""
        # allenai/allennlp#4255, huggingface/transformers#16417 (vocabularies that differ),
        # apache/mxnet#17651 (other rows).
        for change in (
            lambda: self.reviews(58),
            lambda: self.reviews(order=lambda i: i % 2 == 1),
            lambda: (self.folder / "vocab.txt").write_text(
                (self.folder / "vocab.txt").read_text().replace("good\ngreat", "great\ngood")),
        ):
            self.reviews()
            shutil.rmtree(self.run, ignore_errors=True)
            run = self.start("train", "text.toml", 'fleet.external_roles=["learner"]',
                             "fleet.listen=tcp://127.0.0.1:0", "evaluator.enabled=false")
            self.wait((self.run / "run.json").exists, "no run.json")
            address = json.loads((self.run / "run.json").read_text())["coordinator"]
            change()
            self.troop("join", address, "--role", "learner", code=2, has="are not the run's")
            self.stop(run)

    def test_no_episode_yet(self):
        """It is unknown, neither 0 nor NaN."""
        # ray-project/ray#10416, #3030, #21246, #40954, #7319; Unity-Technologies/ml-agents#2899.
        output = self.play(WALK, "env.options.length=0", "evaluator.enabled=false", has="return –")
        self.assertNotRegex(output.lower(), r"\bnan\b")
        self.assertNotIn("episode_return_mean", self.lines()[-1])
        self.assertNotIn("final_return_mean", self.result())
        self.assertNotRegex(self.troop("status", self.run).lower(), r"\bnan\b")
        before = (self.run / "result.json").read_bytes()
        self.troop("resume", self.run, has="was not changed")
        self.assertEqual((self.run / "result.json").read_bytes(), before)

    def test_rates_after_a_resume(self):
        """They count what came since, and no axis runs backwards."""
        # DLR-RM/stable-baselines3#518, Stable-Baselines-Team/stable-baselines3-contrib#161: all
        # steps over the seconds of this part. NVIDIA-NeMo/Speech#4541, tensorflow/tensorboard#3732,
        # facebookresearch/ParlAI#2106: steps begin at 0, or run backwards.
        self.play("run.total_steps=6000")
        before = len(self.lines())
        self.troop("resume", self.run, "run.total_steps=6300")
        lines = self.lines()
        for a, b in zip(lines, lines[1:]):
            self.assertLessEqual((a["steps"], a["wall_s"]), (b["steps"], b["wall_s"]))
        later = lines[before:]
        most = 300 / (later[-1]["wall_s"] - later[0]["wall_s"] + 1e-9) * 20  # of a burst
        self.assertLess(max(line["steps_per_s"] for line in later), max(most, 6000))
        self.assertEqual(lines[-1]["steps"], 6300)

    def test_learning_rates(self):
        """No update has the rate 0."""
        # google-research/bert#1293, huggingface/transformers#34754, pytorch/torchtitan#1261: the
        # first; the last one likewise.
        self.reviews()
        for updates in (1, 2, 6):
            self.read("--overwrite", "optimizer.final_lr_fraction=0", "optimizer.warmup_ratio=0.5",
                      f"run.max_updates={updates}")
            rates = [line.get("learner/learning_rate") for line in self.lines()]
            self.assertGreater(min(rate for rate in rates if rate is not None), 0)


class LateFaults(bed.Bed):
    """What stayed invisible, or came late."""

    def test_broken_environments(self):
        """They end the run soon, with the reason."""
        # ray-project/ray#62884, #21910, #16605: workers are started again and again. The others:
        # thu-ml/tianshou#436, DLR-RM/stable-baselines3#509 (EOFError in place of the reason).
        for words, has in (
            ([WALK, "env.options.fault=raise"], "ConnectionError: the simulator does not answer"),
            ([WALK, "env.options.fault=unicode"], "größer als erlaubt 🤖"),
            (["env.id=python:field_envs:OldStep"], "not 4 values"),
        ):
            with self.subTest(words=words):
                begin = time.monotonic()
                self.play(*words, "--overwrite", code=1, has=[has, "seed"])
                self.assertLess(time.monotonic() - begin, 60)
        # openai/gym#2935, #2531; DLR-RM/stable-baselines3#1725; Farama-Foundation/Gymnasium#907.
        self.play("env.id=python:field_envs:OldReset", "name=b", code=2, has="takes no seed")
        self.assertFalse((self.folder / "runs/b").exists())

    def test_files_that_are_none(self):
        """They are refused at once, and nothing is left behind."""
        # huggingface/transformers#27923, microsoft/OmniParser#34: HeaderTooLarge.
        self.reviews()
        self.read()
        path = self.run / "model/model.safetensors"
        good = path.read_bytes()
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
        for data, code, has in (
            (pointer, 2, "git-lfs pointer"),
            (b"", 4, "0 bytes"),
            (good[:100], 4, "a file of 100"),
            (good[:-5], 4, "the header describes"),
        ):
            path.write_bytes(data)
            start = f"model.pretrained={self.run / 'model'}"
            self.read("name=b", start, code=code, has=[has, "model.safetensors"])
            self.read("name=b", start, "--dry-run", code=code, has=has)
            self.assertFalse((self.folder / "runs/b").exists())

    def test_folders_of_sockets(self):
        """One whose path is too long is refused before the start, by `doctor` too."""
        # ray-project/ray#7945, #7724, #17161; verl-project/verl#1120; python/cpython#93852.
        deep = self.folder / ("x" * 100)
        deep.mkdir()
        for words, code in ((["train"], 2), (["train", "--dry-run"], 2), (["doctor"], 1)):
            self.troop(words[0], "game.toml", *words[1:], more={"TMPDIR": str(deep)}, code=code,
                       has="107 bytes")
        self.assertFalse(self.run.exists())

    def test_episodes_that_never_end(self):
        """An evaluation of them ends, and prints its progress."""
        # hill-a/stable-baselines#876; takuseno/d3rlpy#209, #260.
        limit = "evaluator.max_episode_steps=40000"
        self.play(WALK, "env.options.length=0", limit, "evaluator.final_episodes=1")
        self.assertEqual(self.result()["final_return_mean"], 40000)
        self.troop("eval", self.run, "--episodes", "2", has="length 40000")

    def test_closed_terminals(self):
        """SIGHUP drains a run, and `nohup` keeps it."""
        # open-mmlab/mmsegmentation#1998, hiyouga/LlamaFactory#3036, blue-oil/blueoil#315.
        run = self.start("train", "game.toml", "run.total_steps=1000000")
        self.wait(lambda: self.lines() and self.lines()[-1]["steps"] > 300, "no steps")
        self.stop(run, signal.SIGHUP, has="resume with: troop resume")
        self.assertEqual(self.result()["status"], "interrupted")
        steps = self.result()["steps"] + 200
        self.troop("resume", self.run, f"run.total_steps={steps}", has="final score")
        shutil.rmtree(self.run)
        run = self.start("nohup", bed.PROGRAM, "train", "game.toml",
                         "run.total_steps=1000000", bare=True)
        self.wait(lambda: self.lines() and self.lines()[-1]["steps"] > 300, "no steps")
        run.send_signal(signal.SIGHUP)
        steps = self.lines()[-1]["steps"]
        self.wait(lambda: self.lines()[-1]["steps"] > steps + 1000, "it did not go on")
        self.stop(run)

    def test_interpreters(self):
        """What they lack is one line."""
        # The tracebacks of openai/gym#2531 and its like.
        bare = self.folder / "python"
        real = os.path.realpath(sys.executable)
        bare.write_text(f'#!/bin/sh\nexec env -i PYTHONPATH="$PYTHONPATH" {real} -S -E "$@"\n')
        bare.chmod(0o755)
        output = self.troop("train", "game.toml", WALK, "env.python=./python", code=2)
        self.assertNotIn("Traceback", output)
        self.play(WALK, "env.python=/nonexistent/python", code=2, has='no program "/nonexistent')
        self.play("env.id=python:nothing:make", code=2, has="no module named nothing")
        self.play("env.id=python:field_envs:Nothing", code=2, has="has no Nothing")
        self.play(WALK, "env.options.lenght=3", code=2, has="unexpected keyword argument 'lenght'")


class Interfaces(bed.Bed):
    """What is usual elsewhere."""

    def test_actions(self):
        """They are what `action_space.sample()` gives."""
        # Farama-Foundation/PettingZoo#1000 (float64 is not in a space of float32),
        # Farama-Foundation/Minari#128, facebookresearch/habitat-lab#272,
        # DLR-RM/stable-baselines3#221 (an array as the index).
        for words in (
            ["env.id=python:field_envs:Indexed"],
            ["env.id=python:field_envs:Bounded", "learner.algorithm=dpg"],
            ["env.id=python:field_envs:Bounded", "learner.algorithm=dpg",
             "env.options.kind=float64"],
        ):
            self.play("--overwrite", *words, has="final score: 10.00")
            self.assertEqual(self.lines()[-1]["actor/env_faults"], 0)
        # ray-project/ray#23941: a Box of integers is refused by name, not rounded.
        whole = "env.options.kind=int64"
        self.play("env.id=python:field_envs:Bounded", "learner.algorithm=dpg", whole, "--overwrite",
                  code=2, has="MultiDiscrete")

    def test_pictures(self):
        """Channels first are named, and so is a kernel that does not fit."""
        # DLR-RM/stable-baselines3#1977, #809; hill-a/stable-baselines#296, #117;
        # takuseno/d3rlpy#35.
        layers = ('network.layers=[{type="conv2d", filters=8, kernel=8, stride=4},'
                  ' {type="linear", units=16}]')
        for shape, has in (("[3,84,84]", "channels first"), ("[7,7,3]", "kernel = 8 is larger")):
            self.play(WALK, f"env.options.shape={shape}", layers, code=2, has=has)

    def test_checks_of_environments(self):
        """Correct environments pass."""
        # DLR-RM/stable-baselines3#1521, openai/gym#2804: an episode of one step.
        # proroklab/popgym#38, sail-sg/envpool#239: terminated on the step of the limit.
        # openai/gym#1478 (one seed, other episodes), Farama-Foundation/Gymnasium#728 (LunarLander).
        for words in (
            ["python:field_envs:Walk"],
            ["python:field_envs:OneStep"],
            ["python:field_envs:Walk", "env.options.own_limit=true", "env.max_episode_steps=10"],
            ["python:field_envs:Bounded"],
            ["ALE/Freeway-v5"],
        ):
            with self.subTest(words=words):
                self.troop("env", "check", *words, "--quick", f"env.python={PYTHON}",
                           has="ready for training")

    def test_addresses(self):
        """Names, IPv4 and IPv6, and a one-line error for invalid addresses."""
        # zeromq/pyzmq#989, ntop/nProbe#548, zeek/zeek#4586 (IPv6), zeromq/php-zmq#94,
        # zeromq/libzmq#4774 (localhost), zeromq/libzmq#207 (localhost:localhost).
        for address in ("tcp://localhost:0", "tcp://[::1]:0", "tcp://127.0.0.1:0"):
            http = f"fleet.metrics={address.removeprefix('tcp://')}"
            self.play("--overwrite", f"fleet.listen={address}", http, "run.total_steps=200")
        for address, has in (
            ("tcp://::1:0", "requires brackets"),
            ("tcp://localhost:localhost", "is not a port"),
            ("tcp://127.0.0.1", "host:port"),
            ("tcp://*:7701", "not an address that other machines can reach"),
            ("tcp://nosuchhost.invalid:7701", "nosuchhost.invalid"),
        ):
            self.play("--overwrite", f"fleet.listen={address}", "--insecure", code=2, has=has)
        self.troop("join", "tcp://nosuchhost.invalid:1", "--wait", "0", code=1, has="no address")

    def test_words_of_others(self):
        """They get the name that they have here; nonsense gets none."""
        # ray-project/ray#3665 (sgd_stepsize), flow-project/flow#400 (sgd_batchsize),
        # ray-project/ray#3160 (timesteps_per_batch), dmlc/xgboost#4043, #5124 (ignored).
        for key, has in (
            ("sgd_stepsize=1", "its name here is optimizer.learning_rate"),
            ("sgd_batchsize=1", "its name here is learner.batch_size"),
            ("timesteps_per_batch=1", "its name here is learner.batch_size"),
            ("lr=1", "its name here is optimizer.learning_rate"),
            ("num_workers=2", "its name here is fleet.actors"),
            ("learner.gama=0.9", "the nearest is learner.gamma"),
            ("three_method=1", "`troop config` lists all"),
        ):
            self.play(key, "--dry-run", code=2, has=["unknown key", has])

    def test_reviews_of_tables(self):
        """Line ends, byte order marks and numeric labels are read; errors name invalid ones."""
        # watson-developer-cloud/natural-language-classifier-nodejs#50, NVIDIA/DIGITS#420 (\r),
        # dotnet/machinelearning-modelbuilder#804 (labels), #1027 (names of columns).
        self.reviews()
        text = (self.folder / "reviews.csv").read_text()
        results = set()
        for change in (
            lambda s: s,
            lambda s: s.replace("\n", "\r\n"),
            lambda s: "\ufeff" + s,
            lambda s: s.replace("positive", "1").replace("negative", "0"),
        ):
            with open(self.folder / "reviews.csv", "w", newline="", encoding="utf-8") as file:
                file.write(change(text))
            output = self.read("--overwrite")
            results.add(re.search(r"cross entropy [0-9.]+", output).group())
        self.assertEqual(len(results), 1, results)
        for change, has in (
            (lambda s: s + "fine,film,positive\n", "line 62: 3 fields, expected 2"),
            (lambda s: s.replace("sentiment", "mood"), "set data.label_column"),
        ):
            (self.folder / "reviews.csv").write_text(change(text))
            self.read("--overwrite", code=2, has=has, hasnt="aclImdb")

    def test_lines_of_predict(self):
        """Each line in gives one line out."""
        # facebookresearch/fastText#344 (fewer results than lines), #1079 (line ends in a text).
        self.reviews()
        self.read()
        texts = b"good film\r\n\r\nawful plot\r\n\xff\xfe bad\r\nfine\xc2\x85movie\nx\x0by\nlast"
        run = subprocess.run([bed.PROGRAM, "predict", str(self.run), "--json"], input=texts,
                             capture_output=True, env=self.environment(), check=True)
        said = [json.loads(line) for line in run.stdout.decode().split("\n")[:-1]]
        self.assertEqual(len(said), 7)
        self.assertEqual([line["text"] for line in said[:3]], ["good film", "", "awful plot"])
        self.assertEqual([line["unknown"] for line in said[:3]], [0, 0, 0])
        self.assertIsNone(said[1]["label"])


class Attacks(bed.Bed):
    """Values, files, messages and limits."""

    def test_codecs(self):
        """Each takes small and large observations, of noise and of zeros."""
        # facebook/zstd#2107, #155, #3176, #4015: a context used again, a destination too small.
        for codec in ("none", "lz4", "zstd"):
            for words in (["env.id=Catch-v0"], [WALK], [WALK, "env.options.shape=[4000]"]):
                for mode in ("processes", "serial"):
                    self.play("--overwrite", f"replay.compression={codec}", f"fleet.mode={mode}",
                              "run.total_steps=400", *words)

    def test_ends_of_runs(self):
        """A run ends without a replay ratio; one that can never learn does not start."""
        # google-deepmind/acme#207, #233; google-deepmind/reverb#144: the learner waits for good.
        self.play("replay.samples_per_insert=0")
        self.play("replay.samples_per_insert=0", "fleet.mode=serial", "--overwrite")
        # DLR-RM/rl-baselines3-zoo#147, chainer/chainerrl#299, anthonytorlucci/rlevo#439,
        # tensorforce/tensorforce#16.
        for words in (
            ["replay.min_items=5000"],
            ["replay.capacity_items=200", "replay.min_items=300"],
            ["replay.capacity_items=64", "learner.batch_size=128"],
        ):
            self.play("--overwrite", *words, code=2, has="lower")

    def test_damaged_checkpoints(self):
        """They are named; an older one, or the weights of the checkpoint, takes their place."""
        # allenai/allennlp#2129, facebookresearch/metaseq#53 (files of 0 bytes),
        # bghira/SimpleTuner#2613, huggingface/transformers#40790.
        self.play("run.total_steps=3000", "learner.sync=paramserver", "paramserver.shards=2")
        newest = self.checkpoints()[-1]
        only = len(self.checkpoints()) == 1
        files = [newest / name for name in ("weights.safetensors", "state.json", "manifest.json")]
        shards = [path for path in (self.run / "paramserver").rglob("*")
                  if path.is_file() and not path.suffix]
        for path in files + shards:
            good = path.read_bytes()
            for data in (b"", good[: len(good) // 2], good[:-3] + b"\0" + good[-2:]):
                again = self.folder / "runs/again"
                shutil.copytree(self.run, again)
                (again / path.relative_to(self.run)).write_bytes(data)
                code = 4 if only and path in files else 0
                self.troop("resume", again, "run.total_steps=3100", code=code, has=(
                    ["damaged checkpoint"] if path in files else []))
                shutil.rmtree(again)

    def test_huge_rewards(self):
        """One costs its item, not the run."""
        # Curt-Park/rainbow-is-all-you-need#17 (NaN priorities), medipixel/rl_algorithms#191,
        # nnaisense/MAX#1.
        for words in (["learner.loss=huber"], ["learner.loss=mse"], ["learner.sync=paramserver"]):
            self.play("--overwrite", WALK, "env.options.fault=huge reward", "env.options.at=250",
                      "run.total_steps=2000", *words, has="final score: 10.00")
            self.assertEqual(self.result()["status"], "ok")

    def test_full_disks(self):
        """They are the reason that is printed."""
        # ray-project/ray#17801, #25372, #32481, #17017.
        disk = self.folder / "disk"
        disk.mkdir()
        mount = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=3m", "none", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            self.skipTest("may not mount a small disk")
        words = f"train game.toml log.dir={disk} replay.persist=true replay.durability=disk"
        more = "run.total_steps=200000 replay.capacity_items=100000 env.id=Catch-v0"
        mounted = f"mount -t tmpfs -o size=3m none {disk}; exec {bed.PROGRAM} {words} {more}"
        run = self.start("unshare", "-m", "sh", "-c", mounted, bare=True)
        end, said = time.monotonic() + bed.SECONDS, ""
        while "replay-0 is blocked" not in said and time.monotonic() < end:
            said += run.stdout.readline()
        self.assertIn("No space left on device", said)
        run.send_signal(signal.SIGKILL)

    def test_strangers(self):
        """Their bytes end no run."""
        # zeromq/libzmq#209, #147, #769, #868 (telnet, nmap); ray-project/ray#336 (an old node).
        run = self.start("train", "game.toml", "run.total_steps=1000000",
                         "fleet.listen=tcp://127.0.0.1:0", "fleet.metrics=127.0.0.1:0")
        self.wait(lambda: self.lines() and self.lines()[-1]["steps"] > 300, "no steps")
        told = json.loads((self.run / "run.json").read_text())
        greeting = b"\xff" + b"\0" * 8 + b"\x7f\3\0NULL" + b"\0" * 48
        for address in (told["coordinator"].removeprefix("tcp://"), told["metrics"]):
            host, port = address.rsplit(":", 1)
            for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"asdfasdf\r\n" * 100,
                         b"\0" * 5000, greeting, greeting + b"\4\xff" * 999, b""):
                with socket.create_connection((host, int(port))) as stranger:
                    try:
                        stranger.sendall(data)
                    except OSError:
                        pass  # it was shown out
        steps = self.lines()[-1]["steps"]
        self.wait(lambda: self.lines()[-1]["steps"] > steps + 1000, "it did not go on")
        self.stop(run)
        self.assertNotIn("restart", (self.run / "logs/launcher.log").read_text())

    def test_limits(self):
        """Too low ones are one line before the start, and the name stays free."""
        # NVIDIA-NeMo/RL#988, ray-project/ray#7169, rail-berkeley/serl#69 (open files).
        for limit, code, has in (
            ("-n 9", 2, "open files"),
            ("-n 40", 2, "open files"),
            ("-f 1", 2, "ulimit -f"),
        ):
            run = self.start("sh", "-c", f"ulimit {limit}; exec {bed.PROGRAM} train game.toml",
                             bare=True)
            self.assertEqual(len(self.finish(run, code, has).splitlines()), 1)
            self.assertFalse(self.run.exists())


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import numpy, gymnasium"], check=False).returncode != 0:
        sys.exit(77)
    unittest.main()

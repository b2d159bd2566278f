"""An environment with known values in every step, and with faults at chosen steps.

The test has its own arithmetic for it (process_vector_env_test.cc).
"""

import ctypes
import os
import signal
import sys
import time

import numpy
from troop_env.spaces import Box, Discrete

if "TROOP_TEST_IMPORTS" in os.environ:  # "FILE" or "FILE:3": of which the third one hangs
    _name, _, _hangs = os.environ["TROOP_TEST_IMPORTS"].partition(":")
    with open(_name, "a+", encoding="utf-8") as _file:
        _file.write(f"{os.getpid()}\n")
        _file.flush()
        _file.seek(0)
        if str(len(_file.readlines())) == _hangs:
            time.sleep(1e9)


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self):
        raise ValueError("no words")


class Counter:
    """An episode of 3 + seed % 5 steps; terminated where the seed is even, else truncated.

    The observation is [seed % 1000, step, last action], the reward step + 10 * action.
    """

    made = 0  # in this process

    # pylint: disable-next=too-many-arguments
    def __init__(self, *, fault="", at=2, which=0, once="", pids="", width=3):
        self.observation_space = Box(-1e6, 1e6, (width,))
        self.action_space = Discrete(7)
        self._fault, self._at, self._once = fault, at, once
        self._faulty = fault != "" and Counter.made == which
        Counter.made += 1
        self._seed = self._step = 0
        if pids:
            with open(pids, "a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
        if self._faulty and at == -1:
            self._fail()

    def reset(self, *, seed):
        """Begins an episode."""
        self._seed, self._step = seed, 0
        if self._faulty and self._at == 0:
            self._fail()
        return self._look(0), {}

    def step(self, action):
        """Takes one step."""
        self._step += 1
        if self._faulty and self._step == self._at:
            wrong = self._fail()
            if wrong is not None:
                return wrong
        over = self._step >= 3 + self._seed % 5
        even = self._seed % 2 == 0
        return self._look(action), self._step + 10 * action, over and even, over and not even, {}

    def render(self):
        """More bytes than one message takes; each is its own number plus the step."""
        pixels = numpy.arange(120 * 160 * 3) % 251 + self._step
        return (pixels % 256).astype(numpy.uint8).reshape(120, 160, 3)

    def _look(self, action):
        return numpy.array([self._seed % 1000, self._step, action], numpy.float32)

    def _fail(self):
        if self._once:
            try:
                os.close(os.open(self._once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return None
        good = self._look(0)
        answers = {
            "shape": (good[:2], 0.0, False, False, {}),
            "text": ("no numbers", 0.0, False, False, {}),
            "few": (good, 0.0, False),
            "old": (good, 0.0, False, {}),
            "reward": (good, "much", False, False, {}),
        }
        if self._fault in answers:
            return answers[self._fault]
        getattr(self, "_" + self._fault)()
        return None

    def _nap(self):
        time.sleep(0.01)

    def _doze(self):
        time.sleep(2.5)

    def _kill(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _abort(self):
        os.abort()

    def _segfault(self):
        ctypes.string_at(0)

    def _exit(self):
        sys.exit(3)

    def _raise(self):
        raise RuntimeError("the door\nis stuck")

    def _unicode(self):
        raise RuntimeError("\udc80 " + 300 * "\u00e9")

    def _mute(self):
        raise Mute

    def _hang(self):
        time.sleep(1e9)

    def _garbage(self):
        os.write(3, b"garbage" * 100)

    def _close(self):
        os.close(3)
        time.sleep(1e9)

    def _children(self):
        """A child that would live on."""
        child = os.fork()
        if child == 0:
            time.sleep(1e9)
        with open(os.environ["TROOP_TEST_PIDS"], "a", encoding="utf-8") as file:
            file.write(f"{child}\n")
        os.kill(os.getpid(), signal.SIGKILL)


class Wide:
    """As many numbers in an action as there can be, and an option of any length."""

    def __init__(self, *, text):
        self.observation_space = Box(0, 1e7, (1,))
        self.action_space = Box(-1 / 3, 1 / 3, (4096,), numpy.float64)
        self._length = len(text)

    def reset(self, *, seed):
        """Begins an episode."""
        del seed
        return numpy.array([self._length], numpy.float32), {}

    def step(self, action):
        """Takes one step."""
        return numpy.array([len(action)], numpy.float32), 0.0, False, False, {}


def arguments(**given):
    """Its first observation says whether the arguments are those that Python would write so."""
    wanted = {
        "goal": [1, 2.0, ["\u00e9"]],
        "limits": {"low": None, "high": 3},
        "mass": 2.0,
        "mode": None,
    }
    env = Wide(text="")
    env.reset = lambda *, seed: (numpy.array([repr(given) == repr(wanted)], numpy.float32), {})
    return env


def change_of_mind(*, once):
    """Looks otherwise from the second start on."""
    if os.path.exists(once):
        return Counter(width=4)
    return Counter(fault="kill", once=once)


class NoSpaces:
    """No environment at all."""


class Reporter(Counter):
    """A Counter that reports its reward and, every second step, twice its last action."""

    bad = {
        "": {},
        "nan": {"odd": float("nan")},
        "text": {"odd": "3"},
        "name": {"an odd name": 1},
        "many": {f"name{i}": i for i in range(40)},
    }

    def __init__(self, *, bad="", whole=False):
        super().__init__()
        self._bad, self._whole = Reporter.bad[bad], whole

    def step(self, action):
        """Takes one step."""
        look, reward, terminated, truncated, _ = super().step(action)
        metrics = {"reward": numpy.float32(reward), **self._bad}
        if self._step % 2 == 0:
            metrics["twice"] = numpy.array(2 * action)
        info = {"metrics": 7.0} if self._whole else {"metrics": metrics, "other": None}
        return look, reward, terminated, truncated, info

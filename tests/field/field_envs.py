"""Environments of public bug reports, for field_test.py: `python:field_envs:Walk` and the like."""

import numpy
from troop_env.spaces import Box, Discrete


class Walk:
    """Episodes of a fixed length with a reward of 1 a step, and one of the faults below."""

    # pylint: disable-next=too-many-arguments
    def __init__(self, *, length=10, fault="", at=5, shape=(2,), own_limit=False):
        self.observation_space = Box(-1e6, 1e6, tuple(shape))
        self.action_space = Discrete(2)
        self._length, self._fault, self._at = length, fault, at
        self._own_limit = own_limit
        self._step = self._steps = 0
        self._random = None

    def reset(self, *, seed=None, options=None):
        """Begins an episode."""
        del options
        self._random = numpy.random.default_rng(seed)
        self._step = 0
        return self._look(), {}

    def step(self, action):
        """Takes one step."""
        self._step += 1
        self._steps += 1
        observation, reward = self._look(action), 1.0
        if self._steps >= self._at:
            if self._fault == "raise":
                raise ConnectionError("the simulator does not answer")
            if self._fault == "exit":
                raise SystemExit(3)
            if self._fault == "unicode":
                raise ValueError("größer als erlaubt 🤖" + 300 * "ü")
            if self._fault == "nan observation":
                observation[0] = numpy.nan
            if self._fault == "nan reward":
                reward = float("nan")
            if self._fault == "huge reward" and self._steps == self._at:
                reward = 2e37
        over = self._step >= self._length > 0
        return observation, reward, over, over and self._own_limit, {}

    def _look(self, action=0):
        return self._random.normal(action, 1, self.observation_space.shape).astype(numpy.float32)


class OldReset(Walk):
    """Gym before 0.22: no seed."""

    def reset(self):  # pylint: disable=arguments-differ
        return super().reset(seed=1)[0]


class OldStep(Walk):
    """Gym before 0.26: four values."""

    def step(self, action):
        observation, reward, over, _, info = super().step(action)
        return observation, reward, over, info


class OneStep(Walk):
    """An episode is one step long, and a step behind its end is an error."""

    def __init__(self):
        super().__init__(length=1)

    def step(self, action):
        if self._step == 1:
            raise RuntimeError("step() after the end of an episode")
        return super().step(action)


class Bounded(Walk):
    """Takes only actions that its space contains, as many assertions in environments do."""

    def __init__(self, *, kind="float32"):
        super().__init__()
        self._dtype = numpy.dtype(kind)
        bound = 10 if self._dtype.kind in "iu" else 0.1
        self.action_space = Box(0 if self._dtype.kind == "u" else -bound, bound, (2,), self._dtype)

    def step(self, action):
        low, high = self.action_space.low, self.action_space.high
        if not isinstance(action, numpy.ndarray) or action.dtype != self._dtype:
            raise AssertionError(f"{action!r} ({type(action)}) is not of type {self._dtype}")
        if action.shape != (2,) or (action < low).any() or (action > high).any():
            raise AssertionError(f"{action!r} is invalid")
        return super().step(float(action[0]))


class Indexed(Walk):
    """Uses its action as a key, as the type that Discrete.sample() gives can be."""

    def step(self, action):
        if not isinstance(action, numpy.integer):
            raise TypeError(f"unhashable or no index: {type(action)}")
        return super().step({0: 0, 1: 1}[action])

"""An environment without computation, in which one step in N ends the process."""
import os
import random
import signal

import numpy
from troop_env.spaces import Box, Discrete


class Crashing:
    def __init__(self, *, every=0):
        self.observation_space, self.action_space = Box(-1, 1, (4,)), Discrete(2)
        self._every, self._steps = every, 0
        self._random = random.Random(0)
        self._observation = numpy.zeros(4, numpy.float32)

    def reset(self, *, seed):
        self._random, self._steps = random.Random(seed), 0
        return self._observation, {}

    def step(self, _action):
        self._steps += 1
        if self._every and self._random.randrange(self._every) == 0:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self._observation, 1.0, False, self._steps == 100, {}

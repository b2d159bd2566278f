"""An environment whose actions have no bounds: each component should be that of the observation."""

import numpy
from troop_env import spaces


class Copy:
    """Episodes of four steps; the reward is minus the squared distance."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-numpy.inf, numpy.inf, (2,))

    def __init__(self, bound):
        self._bound = bound

    def reset(self, seed=None, options=None):
        self._random = numpy.random.default_rng(seed)
        self._steps = 0
        return self._next(), {}

    def step(self, action):
        if not (abs(action) <= self._bound).all():
            raise ValueError(f"{action} exceeds {self._bound}")
        reward = -float(((action - self._observation) ** 2).sum())
        self._steps += 1
        return self._next(), reward, self._steps == 4, False, {}

    def _next(self):
        self._observation = self._random.uniform(-1, 1, 2).astype(numpy.float32)
        return self._observation

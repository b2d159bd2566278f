"""A battery that buys, waits or sells each hour, while the price depends on the time of day and
chance. In Python an environment has Gymnasium's interface."""
import gymnasium
import numpy as np


class Battery(gymnasium.Env):
    """Observation: charge, price, and the hour as a point on a circle. Actions: buy, wait, sell."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, capacity=5.0, hours=168):
        if capacity <= 0:
            raise ValueError(f"capacity is {capacity}; give more than 0")
        self.capacity, self.hours = capacity, hours
        self.charge = self.price = 0.0
        self.hour = self.end = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # sets self.np_random, the source of all randomness
        self.charge, self.hour = self.capacity / 2, int(self.np_random.integers(24))
        self.end = self.hour + self.hours
        self._draw_price()
        return self._observation(), {}

    def step(self, action):
        before = self.charge
        self.charge = float(np.clip(self.charge + (1, 0, -1)[action], 0, self.capacity))
        bought = self.charge - before
        # Charging loses a tenth.
        reward = -self.price * (bought / 0.9 if bought > 0 else bought)
        self.hour += 1
        self._draw_price()
        # The end of the week is a time limit: truncated, not terminated.
        return self._observation(), reward, False, self.hour >= self.end, {}

    def _draw_price(self):
        daily = 1 + 0.5 * np.sin(2 * np.pi * (self.hour % 24 - 12) / 24)
        self.price = float(max(0.0, daily + 0.2 * self.np_random.standard_normal()))

    def _observation(self):
        angle = 2 * np.pi * (self.hour % 24) / 24
        return np.array([self.charge / self.capacity, self.price, np.sin(angle), np.cos(angle)],
                        np.float32)


def make_env(**options):
    """Creates the environment; env.id names this function, options come from [env.options]."""
    return Battery(**options)

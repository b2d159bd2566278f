"""Evaluation of a policy on environments of Gymnasium."""
from __future__ import annotations

import math
from typing import Any, Literal, Protocol, Union, overload

import numpy as np

from troop import _policy


class Predictor(Protocol):
    """Anything with the predict of Stable-Baselines3."""

    def predict(self, observation: Any, state: Any = None, episode_start: Any = None,
                deterministic: bool = False) -> tuple[Any, Any]: ...


@overload
def evaluate(policy: Predictor, env: Any, n_eval_episodes: int = 10, deterministic: bool = True,
             return_episode_rewards: Literal[False] = False) -> tuple[float, float]: ...
@overload
def evaluate(policy: Predictor, env: Any, n_eval_episodes: int = 10, deterministic: bool = True,
             *, return_episode_rewards: Literal[True]) -> tuple[list[float], list[int]]: ...
@overload
def evaluate(policy: Predictor, env: Any, n_eval_episodes: int, deterministic: bool,
             return_episode_rewards: Literal[True]) -> tuple[list[float], list[int]]: ...


def evaluate(policy: Predictor, env: Any, n_eval_episodes: int = 10, deterministic: bool = True,
             return_episode_rewards: bool = False
             ) -> Union[tuple[float, float], tuple[list[float], list[int]]]:
    """Plays episodes and returns the mean and the standard deviation of their returns, or with
    return_episode_rewards the return and the length of each: as evaluate_policy of
    Stable-Baselines3.

    policy: a Policy, or any object with `predict`. env: a gymnasium.Env, or a
    gymnasium.vector.VectorEnv with any autoreset mode. The episodes are divided among the
    environments of a vector in advance, so that short episodes do not count more often. The
    environments are reset without a seed. Raises ValueError: a wrong argument, other spaces than
    those of a Policy, or a reward that is not finite.
    """
    if n_eval_episodes < 1:
        raise ValueError(f"n_eval_episodes is {n_eval_episodes}, must be 1 or more")
    envs = _Rows(env)
    if isinstance(policy, _policy.Policy):
        _check_actions(policy, envs.action_space)
    count = envs.count
    targets = [(n_eval_episodes + i) // count for i in range(count)]
    rewards: list[float] = []
    lengths: list[int] = []
    played, total, length = [0] * count, [0.0] * count, [0] * count
    observation, state = envs.reset(), None
    while any(done < target for done, target in zip(played, targets)):
        action, state = policy.predict(observation, state=state, episode_start=envs.starts.copy(),
                                       deterministic=deterministic)
        observation = envs.step(action)
        for i in np.flatnonzero(envs.counts):
            reward = float(envs.reward[i])
            if not math.isfinite(reward):
                raise ValueError(f"environment {i} returned the reward {reward}, must be finite")
            total[i] += reward
            length[i] += 1
            if envs.ended[i]:
                if played[i] < targets[i]:
                    rewards.append(total[i])
                    lengths.append(length[i])
                    played[i] += 1
                total[i], length[i] = 0.0, 0
    if return_episode_rewards:
        return rewards, lengths
    return float(np.mean(rewards)), float(np.std(rewards))


class _Rows:
    """One environment or a vector of them, with the resets that its autoreset mode leaves to the
    caller.

    After step(): reward and ended of each environment; counts: False where the step only reset an
    environment; starts: True where the observation begins an episode.
    """

    def __init__(self, env: Any) -> None:
        self._env, self._single, self._mode = env, not hasattr(env, "num_envs"), ""
        if not self._single:
            mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
            if not hasattr(env, "single_action_space"):
                raise ValueError(f"env is a {type(env).__name__}, must be a gymnasium.Env or a "
                                 "gymnasium.vector.VectorEnv; for a VecEnv of Stable-Baselines3 "
                                 "use its evaluate_policy, which takes a troop.Policy")
            self._mode = getattr(mode, "name", "NEXT_STEP")
        self.count = 1 if self._single else int(env.num_envs)
        self.action_space = env.action_space if self._single else env.single_action_space
        self.reward: Any = np.zeros(self.count)
        self.ended = np.zeros(self.count, bool)
        self.counts = np.ones(self.count, bool)
        self.starts = np.ones(self.count, bool)

    def reset(self) -> Any:
        self.ended[:], self.starts[:] = False, True
        return self._env.reset()[0]

    def step(self, action: Any) -> Any:
        if self._single:
            return self._step_one(action)
        before = self.ended
        observation, self.reward, terminated, truncated, _ = self._env.step(action)
        self.ended = np.logical_or(terminated, truncated)
        self.counts = np.ones(self.count, bool)
        if self._mode == "NEXT_STEP":  # the step after an end is the reset
            self.counts = np.logical_not(before)
            self.starts = before
            self.ended = np.logical_and(self.ended, self.counts)
        else:
            self.starts = self.ended
            if self._mode == "DISABLED" and self.ended.any():
                observation = self._env.reset(options={"reset_mask": self.ended.copy()})[0]
        return observation

    def _step_one(self, action: Any) -> Any:
        # A scalar, because environments use actions as keys and in comparisons.
        action = action[()] if isinstance(action, np.ndarray) else action
        observation, self.reward[0], terminated, truncated, _ = self._env.step(action)
        self.ended[0] = bool(terminated or truncated)
        self.starts[0] = self.ended[0]
        return self._env.reset()[0] if self.ended[0] else observation


def _check_actions(policy: _policy.Policy, space: Any) -> None:
    """Refuses spaces whose actions would mean something else."""
    own = policy.action_space
    n, start = getattr(space, "n", None), getattr(space, "start", 0)
    if getattr(own, "n", None) is not None:
        right = n == own.n and start == 0
    else:
        right = n is None and getattr(space, "shape", None) == own.shape
    if not right:
        raise ValueError(f"env has the actions {space}, but the policy has {own}; use the "
                         "environment of its training")

"""Environments written in Python, run for Troop in worker processes.

An environment has Gymnasium's interface: reset(seed=...) -> (observation, info), step(action) ->
(observation, reward, terminated, truncated, info), observation_space and action_space. Gymnasium
itself is needed only for ids "gymnasium:..."; troop_env.spaces has spaces for environments without
it.
"""

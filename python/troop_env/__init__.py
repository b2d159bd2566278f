"""Environments written in Python, played for Troop in a process of their own.

An environment is what Gymnasium calls one: reset(seed=...) -> (observation, info), step(action) ->
(observation, reward, terminated, truncated, info), observation_space and action_space. Gymnasium
itself is needed for ids "gymnasium:..." alone; troop_env.spaces has spaces for those without it.
"""

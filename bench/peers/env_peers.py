#!/usr/bin/env python3
"""Steps per second of Gymnasium, EnvPool and MinAtar: the peers of the suite `env`.

    env_peers.py [--case NAME] [--quick]

64 environments, one thread, no policy, actions generated before the clock runs, as in
bench/env_bench.cc. `check` is the end of a short game from a known state, as there: the sum of
the rewards and the last observation. EnvPool cannot be put into a state, nor MinAtar if its
start is random: then `play` is printed, the mean return of the episodes that end within 5,000
steps of random actions per environment.
"""
import argparse
import importlib.metadata
import json
import time
import warnings

import envpool
import gymnasium
import minatar
import numpy as np

SIZE = 64
ACTION_BATCHES = 64
CHECKED_STEPS = 20
PLAYED_STEPS = 5000
REPEATS = 5
CLASSIC = {"cartpole-64": "CartPole-v1", "acrobot-64": "Acrobot-v1",
           "mountaincar-64": "MountainCar-v0", "pendulum-64": "Pendulum-v1"}


def draw_actions(space, batches=ACTION_BATCHES):
    """Random actions [batches, SIZE, ...] for one environment's action space."""
    rng = np.random.default_rng(1)
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=(batches, SIZE), dtype=np.int32)
    return rng.uniform(space.low, space.high,
                       size=(batches, SIZE, *space.shape)).astype(np.float32)


def steps_per_second(step, actions, seconds):
    begin = time.perf_counter()
    steps = elapsed = 0
    while elapsed < seconds:
        for action in actions:
            step(action)
            steps += SIZE
            elapsed = time.perf_counter() - begin
            if elapsed >= seconds:
                break
    return steps / elapsed


def emit(case, peer, version, step, actions, quick, **checks):
    seconds = 0.1 if quick else 0.3
    steps_per_second(step, actions, seconds / 5)  # warm-up
    line = {"case": case, "metric": "steps_per_s", "unit": "steps/s",
            "values": [steps_per_second(step, actions, seconds) for _ in range(REPEATS)],
            "peer": peer, "peer_version": version, **checks}
    print(json.dumps(line), flush=True)


def check_classic(env_id):
    """State i starts at 0.01 (i + 1); the action at step t is t^2 mod n, or (t^2 mod 5 - 2) 3/4."""
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    env.unwrapped.state = np.array(
        [0.01 * (i + 1) for i in range(len(env.unwrapped.state))])
    total = 0.0
    for t in range(CHECKED_STEPS):
        if isinstance(env.action_space, gymnasium.spaces.Discrete):
            action = t * t % env.action_space.n
        else:
            action = np.array([(t * t % 5 - 2) * 0.75], np.float32)
        observation, reward, _, _, _ = env.step(action)
        total += float(reward)
    return [total, *map(float, observation)]


def classic_with_gymnasium(case, env_id, quick):
    """Gymnasium's batched environment if there is one (CartPole), else its loop in one process."""
    batched = gymnasium.spec(env_id).vector_entry_point is not None
    envs = gymnasium.make_vec(env_id, num_envs=SIZE,
                              vectorization_mode="vector_entry_point" if batched else "sync")
    envs.reset(seed=1)
    emit(case, "gymnasium", gymnasium.__version__, envs.step,
         draw_actions(envs.single_action_space), quick, check=check_classic(env_id))


def play_at_random(env_id):
    """The step after the end of an episode is a reset; its reward is 0."""
    envs = envpool.make_gymnasium(env_id, num_envs=SIZE, num_threads=1, seed=2)
    envs.reset()
    running, total, episodes = np.zeros(SIZE), 0.0, 0
    for actions in draw_actions(envs.action_space, PLAYED_STEPS):
        _, reward, terminated, truncated, _ = envs.step(actions)
        running += reward
        ended = terminated | truncated
        total += float(running[ended].sum())
        episodes += int(ended.sum())
        running[ended] = 0
    return [total / episodes]


def with_envpool(case, env_id, quick):
    envs = envpool.make_gymnasium(env_id, num_envs=SIZE, num_threads=1, seed=1)
    envs.reset()
    emit(case, "envpool", envpool.__version__, envs.step, draw_actions(envs.action_space), quick,
         play=play_at_random(env_id))


def check_game(game, policy):
    """The cells of all steps are summed with weights 1, 2, 3 ..."""
    weights = np.arange(1, game.state().size + 1)
    total = cells = 0.0
    for t in range(CHECKED_STEPS):
        reward, end = game.act(policy(t))
        total += float(reward)
        cells += float((game.state().ravel() * weights).sum())
        if end:
            break
    return [total, cells]


def check_breakout(game):
    """The ball starts at the left; the paddle moves right in the first step and then stays."""
    game.reset()
    while not game.state()[3, 0, 1]:
        game.reset()
    return check_game(game, lambda t: 3 if t == 0 else 0)


def check_freeway(game):
    """Cars of speeds 1, -1, 2, -2 ..., and a chicken that goes up."""
    game.reset()
    game.env.cars = [[0, i + 1, i // 2 + 1, (i // 2 + 1) * (-1) ** i] for i in range(8)]
    return check_game(game, lambda t: 2)


def check_space_invaders(game):
    game.reset()
    return check_game(game, lambda t: 5 if t % 3 == 0 else 1)


MINATAR = {"breakout-64": ("breakout", check_breakout), "asterix-64": ("asterix", None),
           "freeway-64": ("freeway", check_freeway), "seaquest-64": ("seaquest", None),
           "spaceinvaders-64": ("space_invaders", check_space_invaders)}


def with_minatar(case, name, check, quick):
    games = [minatar.Environment(name) for _ in range(SIZE)]
    observation = np.zeros((SIZE, *games[0].state_shape()), np.uint8)
    for index, game in enumerate(games):
        game.seed(index)
        game.reset()
    running, returns = np.zeros(SIZE), []

    def step(action):
        for index, game in enumerate(games):
            reward, end = game.act(action[index])
            running[index] += reward
            if end:
                game.reset()
                returns.append(running[index])
                running[index] = 0
            observation[index] = game.state()

    actions = draw_actions(gymnasium.spaces.Discrete(6))
    if check is not None:
        checks = {"check": check(minatar.Environment(name, sticky_action_prob=0.0))}
    else:
        for action in draw_actions(gymnasium.spaces.Discrete(6), PLAYED_STEPS):
            step(action)
        checks = {"play": [float(np.mean(returns))]}
    emit(case, "minatar", importlib.metadata.version("minatar"), step, actions, quick, **checks)


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", help="only this one")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()

    def wanted(case):
        return options.case in (None, case)

    for case, env_id in CLASSIC.items():
        if wanted(case):
            classic_with_gymnasium(case, env_id, options.quick)
            with_envpool(case, env_id, options.quick)
    for case, (name, check) in MINATAR.items():
        if wanted(case):
            with_minatar(case, name, check, options.quick)
    if wanted("catch-64"):
        with_envpool("catch-64", "Catch-v0", options.quick)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Records steps of Gymnasium's classic control and MinAtar's Breakout, for tests/envs.

    pip install gymnasium==1.4.0 minatar==1.0.15
    tools/make_env_fixtures.py

Writes tests/fixtures/envs/*.bin, little-endian, without padding; the readers are in tests/envs.
Equal versions of the packages give equal files.

classic control, <name>.bin:
    u32 states S, u32 observation O, u32 steps, u32 rollouts
    steps:    f64 state[S], f32 action, f64 next state[S], f32 observation[O], f32 reward,
              u32 terminated
    rollouts: f64 state[S], u32 length, u32 ending (1 terminated + 2 truncated),
              f32 action[length], f32 observation[min(50, length)][O]
Breakout, breakout_openings.bin:
    u32 episodes; each: u32 length, u8 from the right, u8 action[length], u8 reward[length],
    u8 terminated[length], length + 1 observations of 50 bytes (400 bits, first bit lowest)
Breakout, breakout_returns.bin: u32 policies, u32 episodes n, u32 longest episode;
    each policy: f32 sticky, f32 share of skilled actions, u16 return[n], u16 length[n]
"""

import pathlib
import struct

import gymnasium
import minatar
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/envs"
VERSIONS = {"gymnasium": "1.4", "minatar": "1.0.15"}
STEPS = 300
COMPARED_STEPS = 50


def balance(state, rng):
    """CartPole: keeps the pole up most of the time."""
    x, x_dot, theta, theta_dot = state
    return int(theta + 0.3 * theta_dot + 0.02 * x + 0.05 * x_dot > 0)


def pump(state, rng):
    """Acrobot: adds energy."""
    return 2 if state[3] > 0 else 0


def rock(state, rng):
    """MountainCar: pushes in the direction of motion."""
    return 2 if state[1] >= 0 else 0


def at_random(count):
    return lambda state, rng: int(rng.integers(count))


def any_torque(state, rng):
    return float(np.float32(rng.uniform(-2.5, 2.5)))  # some must be clipped


def swing(state, rng):
    return float(np.float32(np.clip(2 * np.sign(state[1] or 1), -2, 2)))


CLASSIC = {
    "cartpole": ("CartPole-v1", [at_random(2)] * 5 + [balance] * 3),
    "acrobot": ("Acrobot-v1", [at_random(3)] * 2 + [pump] * 4),
    "mountain_car": ("MountainCar-v0", [at_random(3)] * 2 + [rock] * 4),
    "pendulum": ("Pendulum-v1", [any_torque] * 3 + [swing] * 2),
}


def as_action(env, action):
    return np.array([action], np.float32) if env.action_space.shape else action


def record_steps(env, policies, rng):
    """Single steps from states along the trajectories of all policies."""
    records = []
    while len(records) < STEPS:
        policy = policies[int(rng.integers(len(policies)))]
        env.reset(seed=int(rng.integers(1 << 30)))
        done = False
        while not done and len(records) < STEPS:
            state = np.array(env.unwrapped.state, np.float64)
            action = policy(state, rng)
            observation, reward, terminated, truncated, _ = env.step(as_action(env, action))
            done = terminated or truncated
            if terminated or rng.random() < 0.1:
                after = np.array(env.unwrapped.state, np.float64)
                records.append(state.tobytes() + struct.pack("<f", action) + after.tobytes()
                               + observation.astype(np.float32).tobytes()
                               + struct.pack("<fI", reward, terminated))
    return records


def record_rollout(env, policy, rng):
    env.reset(seed=int(rng.integers(1 << 30)))
    start = np.array(env.unwrapped.state, np.float64)
    actions, observations, ending = [], [], 0
    while not ending:
        actions.append(policy(np.array(env.unwrapped.state, np.float64), rng))
        observation, _, terminated, truncated, _ = env.step(as_action(env, actions[-1]))
        observations.append(observation.astype(np.float32))
        ending = int(terminated) + 2 * int(truncated)
    return (start.tobytes() + struct.pack("<II", len(actions), ending)
            + np.array(actions, np.float32).tobytes()
            + np.array(observations[:COMPARED_STEPS]).tobytes())


def make_classic(name, env_id, policies):
    rng = np.random.default_rng(20261121)
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    steps = record_steps(env, policies, rng)
    rollouts = [record_rollout(env, policy, rng) for policy in policies]
    header = struct.pack("<IIII", len(env.unwrapped.state), env.observation_space.shape[0],
                         len(steps), len(rollouts))
    (FOLDER / f"{name}.bin").write_bytes(header + b"".join(steps) + b"".join(rollouts))


class Seen:
    """Positions in an observation of Breakout."""

    def __init__(self, observation):
        self.paddle = int(np.nonzero(observation[9, :, 0])[0][0])
        self.ball_y, self.ball_x = (int(i[0]) for i in np.nonzero(observation[:, :, 1]))
        self.trail_y, self.trail_x = (int(i[0]) for i in np.nonzero(observation[:, :, 2]))


def keep(seen, aim):
    """Column where the ball comes down: below it (aim 0), or one beyond (aim 1) to reverse it."""
    x, y, dx = seen.ball_x, seen.ball_y, seen.ball_x - seen.trail_x
    target = x
    if seen.ball_y > seen.trail_y and dx != 0:
        while y < 8:
            x, y = x + dx, y + 1
            if not 0 <= x <= 9:
                x, dx = x - dx, -dx
        target = x if aim == 0 else min(9, max(0, x + dx))
    return 1 if seen.paddle > target else 3 if seen.paddle < target else 0


def record_opening(seed, length, skilled):
    env = minatar.Environment("breakout", sticky_action_prob=0.0)
    env.seed(seed)
    env.reset()
    rng = np.random.default_rng(seed)
    from_the_right = Seen(env.state()).ball_x == 9
    actions, rewards, ends, pictures = [], [], [], []
    aim = 0

    def keep_picture():
        pictures.append(np.packbits(env.state().astype(np.uint8).ravel(), bitorder="little"))

    keep_picture()
    while len(actions) < length and not (ends and ends[-1]):
        seen = Seen(env.state())
        if seen.ball_y < seen.trail_y:
            aim = int(rng.integers(2))
        clever = skilled and rng.random() < 0.995
        actions.append(keep(seen, aim) if clever else int(rng.integers(6)))
        reward, end = env.act(actions[-1])
        rewards.append(int(reward))
        ends.append(int(end))
        keep_picture()
    return (struct.pack("<IB", len(actions), from_the_right) + bytes(actions) + bytes(rewards)
            + bytes(ends) + b"".join(p.tobytes() for p in pictures))


def make_openings():
    episodes = [record_opening(seed, 200, skilled=False) for seed in range(30)]
    episodes += [record_opening(1000 + seed, 900, skilled=True) for seed in range(2)]
    (FOLDER / "breakout_openings.bin").write_bytes(
        struct.pack("<I", len(episodes)) + b"".join(episodes))


def make_returns(episodes=3000, longest=1000):
    out = [struct.pack("<III", 3, episodes, longest)]
    for sticky, skilled_share in ((0.0, 0.0), (0.1, 0.0), (0.1, 0.95)):
        env = minatar.Environment("breakout", sticky_action_prob=sticky)
        env.seed(7)
        rng = np.random.default_rng(11)
        returns, lengths = [], []
        for _ in range(episodes):
            env.reset()
            total = length = 0
            end = False
            while not end and length < longest:
                clever = rng.random() < skilled_share
                action = keep(Seen(env.state()), 0) if clever else int(rng.integers(6))
                reward, end = env.act(action)
                total += int(reward)
                length += 1
            returns.append(total)
            lengths.append(length)
        out.append(struct.pack("<ff", sticky, skilled_share) + np.array(returns, "<u2").tobytes()
                   + np.array(lengths, "<u2").tobytes())
    (FOLDER / "breakout_returns.bin").write_bytes(b"".join(out))


def main():
    if not gymnasium.__version__.startswith(VERSIONS["gymnasium"] + "."):
        raise SystemExit(f"gymnasium {gymnasium.__version__} is installed; the fixtures need "
                         f"{VERSIONS['gymnasium']}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (env_id, policies) in CLASSIC.items():
        make_classic(name, env_id, policies)
    make_openings()
    make_returns()


if __name__ == "__main__":
    main()

"""Vector environments: those of Gymnasium, EnvPool and ALE.

    gymnasium_vector:ID              gymnasium.make_vec (sync, unless the options say otherwise)
    python_vector:module:callable    callable(num_envs=...) gives a gymnasium.vector.VectorEnv
    ale_vector:pong                  ale_py.vector_env.AtariVectorEnv
    envpool:Pong-v5                  envpool.make_gymnasium

In any autoreset mode, an ended row is reset explicitly, with its own seed, before the next step: by
options={"reset_mask": ...}, or by EnvPool's reset(env_id). Reset-only steps, as in NEXT_STEP mode
and EnvPool, therefore never happen. In SAME_STEP mode, where the last observation is in
info["final_obs"], the episode that began automatically is discarded. EnvPool takes a single seed,
the first one of row 0: with it, equal seeds give equal bytes only from the start of a run.

Action masks come from info["action_mask"], [rows, actions]; in SAME_STEP mode those of ended rows
from info["final_info"].
"""

import importlib
import sys

import numpy

from .adapters import SEED_MASK, import_gymnasium, load, note_mask, with_limit
from .convert import ActionMask, Actions, Observations, Refused

SOURCES = ("gymnasium_vector", "python_vector", "ale_vector", "envpool")
FAULT, TERMINATED, TRUNCATED = 4, 1, 2
FRAMES_MAX = 2**31 - 1  # of ale-py's vector, which cannot express "no limit"


def need(module, package):
    """Imports a module, or raises one sentence for the user."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise Refused(
            f"{package} is not installed for {sys.executable}; `pip install {package}`, or set "
            "env.python to another interpreter"
        ) from None


def make_vector(request):
    """Creates the vector that a request's id names; None: EnvPool."""
    source, _, name = request["id"].partition(":")
    options, rows = dict(request["options"]), request["rows"]
    limit = request["max_episode_steps"]
    if request.get("action_repeat", 1) != 1:
        raise Refused(f'{request["id"]} does not support env.action_repeat; use its own option')
    if request["wrappers"] and source != "gymnasium_vector":
        raise Refused(f'{request["id"]} does not support env.wrappers; wrap it where it is created')
    if source == "python_vector":
        return load(name, "env.id")(num_envs=rows, **options)
    if source == "gymnasium_vector":
        gymnasium = import_gymnasium()
        mode = gymnasium.vector.AutoresetMode(options.pop("autoreset_mode", "Disabled"))
        options.setdefault("vectorization_mode", "sync")
        if limit >= 0:
            options["max_episode_steps"] = limit if limit > 0 else -1
        wrappers = [load(wrapper, "env.wrappers") for wrapper in request["wrappers"]]
        return gymnasium.make_vec(
            name,
            num_envs=rows,
            wrappers=wrappers,
            vector_kwargs={"autoreset_mode": mode},
            **options,
        )
    if source == "ale_vector":
        vectors = need("ale_py.vector_env", "ale-py")
        if limit >= 0:
            if "max_num_frames_per_episode" in options:
                raise Refused(
                    "env.max_episode_steps and env.options.max_num_frames_per_episode are both "
                    "given; remove the latter"
                )
            frames = limit * options.get("frameskip", 4) or FRAMES_MAX
            options["max_num_frames_per_episode"] = frames
        return vectors.AtariVectorEnv(name, num_envs=rows, **options)
    return None


class GymVector:
    """A gymnasium.vector.VectorEnv with masked resets, in any of the three autoreset modes."""

    def __init__(self, env):
        self._env = env
        mode = env.metadata.get("autoreset_mode", "NextStep")
        self._same_step = getattr(mode, "value", mode) == "SameStep"
        self._seeds_of_masked = type(env).__name__ == "AtariVectorEnv"
        self._begun = False
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self._last = None
        self.info = {}  # of the last step or reset
        self._over = None  # [rows]: the last step ended the episode; None: it was a reset

    def step(self, actions):
        """Returns observations (the last ones of ended episodes), rewards, terminated, truncated.
        """
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        self._over = over = terminated | truncated
        self.info = info
        if self._same_step and over.any():
            observations = list(observations)
            for row in numpy.flatnonzero(over):
                observations[row] = info["final_obs"][row]
        self._last = observations
        return observations, rewards, terminated, truncated

    def info_of(self, row):
        """The action mask in the last info of a row, if there is one, as info of a single
        environment has it."""
        info = self.info
        if self._same_step and self._over is not None and self._over[row]:
            info = info.get("final_info", {})  # the rest is of the episode that began already
        given = info.get(f"_{ActionMask.NAME}")
        if ActionMask.NAME not in info or (given is not None and not given[row]):
            return {}
        return {ActionMask.NAME: info[ActionMask.NAME][row]}

    def reset(self, rows, seeds):
        """Resets these rows and returns their first observations, in order of `rows`."""
        n = self._env.num_envs
        mask = numpy.zeros(n, bool)
        mask[rows] = True
        if self._seeds_of_masked:
            seed = numpy.asarray(seeds, numpy.int64)
        else:
            by_row = dict(zip(rows, seeds))
            seed = [by_row.get(row) for row in range(n)]
        if self._begun:
            observations, self.info = self._env.reset(seed=seed, options={"reset_mask": mask})
            self._check_others(observations, mask)
        elif len(rows) == n:
            observations, self.info = self._env.reset(seed=seed)
            self._begun = True
        else:
            raise RuntimeError("the first reset must be of all rows")
        self._last, self._over = observations, None
        return [observations[row] for row in rows]

    def _check_others(self, observations, mask):
        if self._same_step:  # its last observations are of ended episodes
            return
        for row in numpy.flatnonzero(~mask):
            if not numpy.array_equal(observations[row], self._last[row]):
                raise RuntimeError(
                    f"{type(self._env).__name__} reset other rows than those requested: its reset "
                    'ignores options["reset_mask"]'
                )

    def close(self):
        """Releases the vector's resources."""
        self._env.close()


class EnvPoolVector:
    """An EnvPool: it has a single seed, and resets rows by number."""

    def __init__(self, name, rows, options):
        self._envpool = need("envpool", "envpool")
        self._name, self._rows, self._options = name, rows, options
        self._env = None
        self.info = {}
        spec = self._envpool.make_spec(name, **options)
        self.observation_space, self.action_space = spec.observation_space, spec.action_space

    def step(self, actions):
        """Same as GymVector.step; rows arrive in any order."""
        observations, rewards, terminated, truncated, info = self._env.step(actions)
        order = numpy.argsort(info["env_id"])
        return observations[order], rewards[order], terminated[order], truncated[order]

    def reset(self, rows, seeds):
        """Same as GymVector.reset; only seeds[0] of the first call is used."""
        if self._env is None:
            self._env = self._envpool.make_gymnasium(
                self._name, num_envs=self._rows, seed=seeds[0], **self._options
            )
        observations, info = self._env.reset(numpy.asarray(rows, numpy.int32))
        place = {int(row): i for i, row in enumerate(info["env_id"])}
        return [observations[place[row]] for row in rows]

    def info_of(self, _row):
        """Same as GymVector.info_of: nothing."""
        return {}

    def close(self):
        """Releases the pool's resources."""
        if self._env is not None:
            self._env.close()


class VectorRows:
    """Rows of one vector, with the interface of worker.Rows. An exception fails all rows."""

    def __init__(self, request):
        if request["id"].startswith(("gymnasium_vector:", "envpool:")):
            request = with_limit(request)
        masked = request.get("action_mask", False)
        if masked and not request["id"].startswith(("gymnasium_vector:", "python_vector:")):
            raise Refused(f'{request["id"]} has no action mask; remove env.action_mask')
        self._request = request
        self._env = self._make()
        if type(self._env.observation_space).__name__ not in ("Box", "Discrete"):
            raise Refused(
                f"its observation space is {self._env.observation_space!r}; vectors support "
                "Box and Discrete only, single environments also the others"
            )
        self._observations = Observations(
            self._env.observation_space, self._env.action_space if masked else None)
        actions = Actions(self._env.action_space, request.get("action_bound", 0))
        self._decode = actions.decode
        self.spec = {
            "observation": self._observations.spec(),
            "observation_scale": self._observations.scale,
            "action": actions.spec(),
            "max_episode_steps": max(request["max_episode_steps"], 0),
        }
        self._limit, self._steps = 0, numpy.zeros(request["rows"], numpy.int64)
        if request["id"].startswith("python_vector:"):
            self._limit = self.spec["max_episode_steps"]
        self._memory = self._reward = self._flags = None

    def _call(self, function, *arguments):
        meter = self._request["meter"]
        return (function if meter is None else meter.wrap(function))(*arguments)

    def _make(self):
        made = make_vector(self._request)
        if made is not None:
            return GymVector(made)
        name, options = self._request["id"].partition(":")[2], dict(self._request["options"])
        if self._request["max_episode_steps"] == 0:
            raise Refused(f'{self._request["id"]} needs a step limit; set env.max_episode_steps')
        if self._request["max_episode_steps"] > 0:
            options["max_episode_steps"] = self._request["max_episode_steps"]
        return EnvPoolVector(name, self._request["rows"], options)

    def map(self, memory):
        """Sets the memory, whose layout is known after the spec."""
        self._memory = memory
        self._reward = numpy.frombuffer(memory.reward, numpy.float32)
        self._flags = numpy.frombuffer(memory.flags, numpy.uint8)

    def _actions(self):
        return numpy.stack([self._decode(action) for action in self._memory.action])

    def step_all(self):
        """Steps all rows."""
        try:
            actions = self._actions()
            observations, rewards, terminated, truncated = self._call(self._env.step, actions)
            if self._limit:
                self._steps += 1
                truncated = truncated | (~terminated & (self._steps >= self._limit))
            masked = self._observations.masked
            for row, out in enumerate(self._memory.observation):
                info = self._env.info_of(row) if masked else None
                self._observations.write(
                    observations[row], out, info, terminated[row] or truncated[row])
            self._reward[:] = rewards
            self._flags[:] = terminated * TERMINATED + truncated * TRUNCATED
        except Exception as error:
            for row in range(self._request["rows"]):
                self._memory.fault(row, error)
            self._env.close()
            self._env = None

    def reset_marked(self):
        """Begins the requested episodes."""
        rows = [row for row, wanted in enumerate(self._memory.reset) if wanted]
        if self._env is None:
            self._env = self._make()
        seeds = [self._memory.seed[row] & SEED_MASK for row in rows]
        observations = self._call(self._env.reset, rows, seeds)
        note_mask(self._env.info, self._observations)
        for row, observation in zip(rows, observations):
            self._observations.write(
                observation, self._memory.observation[row], self._env.info_of(row))
            self._memory.flags[row] = 0
            self._steps[row] = 0

    def render(self, _row):
        """Returns None: vectors do not render."""
        return None

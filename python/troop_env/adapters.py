"""Adapter of one environment, created from its id, as the worker runs it.

    class Adapter:
        spec: dict   # {"observation": {"dtype": "u8" | "f32" | "i32", "shape": [...],
                     #                  "parts": [{"name": "image", "shape": [...], "scale": 1.0,
                     #                             "action_mask": False}]},  # parts may be missing
                     #  "observation_scale": 1.0, "max_episode_steps": 0,
                     #  "action": {"kind": "discrete", "count": n} |
                     #            {"kind": "continuous", "low": [...], "high": [...]} |
                     #            {"kind": "multi_discrete", "low": [...], "high": [...]}}
        def reset(self, seed: int, out: numpy.ndarray) -> None
        def step(self, action, out: numpy.ndarray) -> tuple[float, bool, bool]
        def render(self) -> numpy.ndarray | None   # [height, width, 3] u8
        def close(self) -> None

The observation is written to `out`, in shared memory. step returns reward, terminated and
truncated. An action is an int, or an f32 vector in shared memory, which must be copied to be kept.
"""

import copy
import importlib
import inspect
import sys

import numpy

from .ale import AleAdapter
from .convert import ActionMask, Actions, Observations, Refused

OLD_GYM = (
    "that is the interface of the old gym; wrap it in shimmy.GymV21CompatibilityV0, or change it"
)
SEED_MASK = 0x7FFFFFFF  # accepted by every environment: some keep seeds in an int32


def load(path, what):
    """Imports the object that "module:name" names."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise Refused(f'{what} "{path}" is not of the form module:callable')
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module + ".").startswith(error.name + "."):
            raise
        raise Refused(
            f'{what} "{path}": no module named {module}, neither in this folder nor in PYTHONPATH'
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            # A folder of that name was imported as a namespace package.
            if getattr(found, "__file__", None) is None and hasattr(found, "__path__"):
                raise Refused(
                    f'{what} "{path}": {next(iter(found.__path__))} is a folder, and no module '
                    f"{module} is next to it; start troop in the folder with {module}.py, or "
                    "add that to PYTHONPATH"
                )
            raise Refused(f'{what} "{path}": {module} has no {name}')
        found = getattr(found, part)
    return found


def import_gymnasium():
    """Imports the package, or raises one sentence for the user."""
    try:
        return importlib.import_module("gymnasium")
    except ModuleNotFoundError:
        raise Refused(
            f"gymnasium is not installed for {sys.executable}; `pip install gymnasium`, or set "
            "env.python to another interpreter"
        ) from None


def with_limit(request):
    """Moves env.options.max_episode_steps, an argument of Gymnasium's make, to the request's limit.
    """
    if "max_episode_steps" not in request["options"]:
        return request
    options = dict(request["options"])
    limit = options.pop("max_episode_steps")
    if request["max_episode_steps"] >= 0:
        raise Refused(
            "env.max_episode_steps and env.options.max_episode_steps are both given; remove the "
            "latter"
        )
    if limit is None:
        limit = -1
    elif isinstance(limit, bool) or not isinstance(limit, int) or limit < -1 or limit == 0:
        raise Refused(
            f"env.options.max_episode_steps = {limit!r}: give a number of steps >= 1, or -1 for "
            "no limit"
        )
    elif limit == -1:
        limit = 0
    return {**request, "options": options, "max_episode_steps": limit}


def make_gymnasium(name, request):
    """Calls gymnasium.make, with render_mode="rgb_array" if the environment supports it."""
    gymnasium = import_gymnasium()
    if name.startswith("ALE/"):
        try:
            gymnasium.register_envs(importlib.import_module("ale_py"))
        except ModuleNotFoundError:
            raise Refused(
                f"ale-py is not installed for {sys.executable}; `pip install ale-py`, or set "
                "env.python to another interpreter"
            ) from None
    module, _, name = name.rpartition(":")
    if module:  # importing it registers the environment
        importlib.import_module(module)
    options = dict(request["options"])
    try:
        spec = copy.deepcopy(gymnasium.spec(name))
        spec.order_enforce = False  # unnecessary: the worker resets first
        if request["wrappers"]:
            limit = request["max_episode_steps"]
            if limit >= 0:
                options["max_episode_steps"] = limit if limit > 0 else -1
        else:
            options["max_episode_steps"] = -1  # the adapter counts, which is faster
        if "render_mode" not in {**spec.kwargs, **options} and draws(gymnasium, spec):
            options["render_mode"] = "rgb_array"
        return gymnasium.make(spec, disable_env_checker=True, **options)
    except gymnasium.error.Error as error:
        raise Refused(f"gymnasium: {error}") from error


def draws(gymnasium, spec):
    """True if an environment supports render_mode="rgb_array"."""
    entry = spec.entry_point
    if isinstance(entry, str):
        entry = gymnasium.envs.registration.load_env_creator(entry)
    modes = (getattr(entry, "metadata", None) or {}).get("render_modes", ())
    return "rgb_array" in modes and takes(entry, "render_mode")


def takes(function, name):
    """True if a function has this keyword argument, or accepts any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # no signature, as for some built-ins
        return True
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def make_env(request):
    """Creates the environment that the id names, with its wrappers."""
    source, _, name = request["id"].partition(":")
    if source == "gymnasium":
        env = make_gymnasium(name, request)
    elif source == "python":
        env = load(name, "env.id")(**request["options"])
    else:
        raise Refused(f'no such environment: "{request["id"]}"')
    for wrapper in request["wrappers"]:
        env = load(wrapper, "env.wrappers")(env)
    for wanted in ("reset", "step", "observation_space", "action_space"):
        if not hasattr(env, wanted):
            raise Refused(f"it is a {type(env).__name__}, which has no {wanted}")
    if not takes(env.reset, "seed"):
        raise Refused(f"reset of {type(env).__name__} takes no seed: {OLD_GYM}")
    return env


def episode_limit(env, request):
    """The environment's own step limit; 0: none."""
    if request["id"].startswith("gymnasium:"):
        name = request["id"].rpartition(":")[2]
        return int(import_gymnasium().spec(name).max_episode_steps or 0)
    return int(getattr(getattr(env, "spec", None), "max_episode_steps", None) or 0)


def wrong_step(answer):
    """The error for a step that did not return five values."""
    found = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
    old = f": {OLD_GYM}" if isinstance(answer, tuple) and len(answer) == 4 else ""
    return TypeError(
        f"step must return (observation, reward, terminated, truncated, info), not {found}{old}"
    )


NOTED = set()  # what this process has printed


def note_mask(info, observations):
    """Prints once that an action mask is not used."""
    ignored = isinstance(info, dict) and ActionMask.NAME in info and not observations.masked
    if ignored and not NOTED:
        NOTED.add(ActionMask.NAME)
        print(
            'troop_env: info has an "action_mask", which is ignored; set env.action_mask = true to '
            "use it",
            file=sys.stderr,
        )


class GymAdapter:
    """Adapter for any environment with Gymnasium's interface."""

    def __init__(self, request):
        if request["id"].startswith("gymnasium:"):
            request = with_limit(request)
        self._env = make_env(request)
        masked = request.get("action_mask", False)
        self._observations = Observations(
            self._env.observation_space, self._env.action_space if masked else None)
        actions = Actions(self._env.action_space, request.get("action_bound", 0))
        self._decode = actions.decode
        self._step, self._reset = self._env.step, self._env.reset
        if request["meter"] is not None:
            self._step = request["meter"].wrap(self._step)
            self._reset = request["meter"].wrap(self._reset)
        if request.get("collector") is not None:
            self._step = request["collector"].wrap(self._step)
        self._one_row = self._observations.box and len(self._observations.shape) == 1
        self._out = self._flat = None
        limit = request["max_episode_steps"]
        if limit < 0:
            limit = episode_limit(self._env, request)
        # User wrappers may need to see the truncation: then Gymnasium's own TimeLimit, the
        # innermost wrapper, counts.
        wrapped = request["id"].startswith("gymnasium:") and request["wrappers"]
        self._steps, self._limit = 0, 0 if wrapped else limit
        self.spec = {
            "observation": self._observations.spec(),
            "observation_scale": self._observations.scale,
            "action": actions.spec(),
            "max_episode_steps": limit,
        }

    def reset(self, seed, out):
        """Begins an episode."""
        answer = self._reset(seed=seed & SEED_MASK)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(f"reset must return (observation, info): {OLD_GYM}")
        self._observations.write(answer[0], out, answer[1])
        self._steps = 0
        note_mask(answer[1], self._observations)

    def step(self, action, out):
        """Plays one step."""
        answer = self._step(self._decode(action))
        try:
            observation, reward, terminated, truncated, info = answer
        except (TypeError, ValueError):
            raise wrong_step(answer) from None
        if out is not self._out:
            self._out, self._flat = out, memoryview(out) if self._one_row else None
        try:  # fast path: one call that rejects any other type and shape
            self._flat[:] = observation
        except (TypeError, ValueError):
            self._observations.write(observation, out, info, terminated or truncated)
        if self._limit:
            self._steps += 1
            truncated = truncated or (self._steps >= self._limit and not terminated)
        return reward, terminated, truncated

    def render(self):
        """Returns a picture, or None."""
        render = getattr(self._env, "render", None)
        return None if render is None else render()

    def close(self):
        """Releases the environment's resources."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()


class Repeated:
    """Repeats each action for a number of steps, or until the episode ends, and sums the rewards.
    """

    def __init__(self, request):
        self._repeat = request["action_repeat"]
        limit = request["max_episode_steps"]
        steps = limit * self._repeat if limit > 0 else limit
        self._inner = GymAdapter({**request, "max_episode_steps": steps})
        self.spec = dict(self._inner.spec)
        self.spec["max_episode_steps"] = -(-self.spec["max_episode_steps"] // self._repeat)
        self.reset, self.render, self.close = (
            self._inner.reset, self._inner.render, self._inner.close)

    def step(self, action, out):
        """Plays one agent step, which is several steps of the environment."""
        total = 0.0
        for _ in range(self._repeat):
            reward, terminated, truncated = self._inner.step(action, out)
            total += reward
            if terminated or truncated:
                break
        return total, terminated, truncated


def make(request):
    """Creates the adapter for a request's id."""
    if request["id"].startswith("ALE/"):
        if request.get("action_mask", False):
            raise Refused(f'{request["id"]} has no action mask; remove env.action_mask')
        if request.get("action_bound", 0):
            raise Refused(f'{request["id"]} has discrete actions; remove env.action_bound')
        return AleAdapter(request)
    return GymAdapter(request) if request["action_repeat"] == 1 else Repeated(request)

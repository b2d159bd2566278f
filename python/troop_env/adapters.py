"""One environment, made from its id, as the worker plays it.

    class Adapter:
        spec: dict   # {"observation": {"dtype": "u8" | "f32" | "i32", "shape": [...]},
                     #  "observation_scale": 1.0, "max_episode_steps": 0,
                     #  "action": {"kind": "discrete", "count": n} |
                     #            {"kind": "continuous", "low": [...], "high": [...]}}
        def reset(self, seed: int, out: numpy.ndarray) -> None
        def step(self, action, out: numpy.ndarray) -> tuple[float, bool, bool]
        def render(self) -> numpy.ndarray | None   # [height, width, 3] u8
        def close(self) -> None

`out` is where the observation is written, in memory that is shared. step returns reward, terminated
and truncated. An action is an int, or an f32 vector that lies in shared memory: to be copied where
it is kept.
"""

import copy
import importlib
import inspect
import sys

import numpy

from .ale import AleAdapter
from .convert import Actions, Observations, Refused

OLD_GYM = (
    "that is the interface of the old gym; wrap it in shimmy.GymV21CompatibilityV0, or change it"
)
SEED_MASK = 0x7FFFFFFF  # which every environment takes: some keep seeds in an int32


def load(path, what):
    """The object that "module:name" names."""
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
            # A folder of that name is taken for a package without a file.
            if getattr(found, "__file__", None) is None and hasattr(found, "__path__"):
                raise Refused(
                    f'{what} "{path}": {next(iter(found.__path__))} is a folder, and no module '
                    f"{module} is beside it; start troop in the folder that holds {module}.py, or "
                    "add that to PYTHONPATH"
                )
            raise Refused(f'{what} "{path}": {module} has no {name}')
        found = getattr(found, part)
    return found


def import_gymnasium():
    """The package, or one sentence."""
    try:
        return importlib.import_module("gymnasium")
    except ModuleNotFoundError:
        raise Refused(
            f"gymnasium is not installed for {sys.executable}; `pip install gymnasium`, or name "
            "another interpreter in env.python"
        ) from None


def with_limit(request):
    """The request, whose limit is the options' max_episode_steps, as Gymnasium's make has it."""
    if "max_episode_steps" not in request["options"]:
        return request
    options = dict(request["options"])
    limit = options.pop("max_episode_steps")
    if request["max_episode_steps"] >= 0:
        raise Refused(
            "env.max_episode_steps and env.options.max_episode_steps are both given; leave out the "
            "latter"
        )
    if limit is None:
        limit = -1
    elif isinstance(limit, bool) or not isinstance(limit, int) or limit < -1 or limit == 0:
        raise Refused(
            f"env.options.max_episode_steps = {limit!r}: give a number of steps >= 1, or -1 for "
            "none"
        )
    elif limit == -1:
        limit = 0
    return {**request, "options": options, "max_episode_steps": limit}


def make_gymnasium(name, request):
    """gymnasium.make, with pictures where the environment draws them."""
    gymnasium = import_gymnasium()
    if name.startswith("ALE/"):
        try:
            gymnasium.register_envs(importlib.import_module("ale_py"))
        except ModuleNotFoundError:
            raise Refused(
                f"ale-py is not installed for {sys.executable}; `pip install ale-py`, or name "
                "another interpreter in env.python"
            ) from None
    module, _, name = name.rpartition(":")
    if module:  # which registers it
        importlib.import_module(module)
    options = dict(request["options"])
    try:
        spec = copy.deepcopy(gymnasium.spec(name))
        spec.order_enforce = False  # the worker resets first
        if request["wrappers"]:
            limit = request["max_episode_steps"]
            if limit >= 0:
                options["max_episode_steps"] = limit if limit > 0 else -1
        else:
            options["max_episode_steps"] = -1  # the adapter counts, in less time
        if "render_mode" not in {**spec.kwargs, **options} and draws(gymnasium, spec):
            options["render_mode"] = "rgb_array"
        return gymnasium.make(spec, disable_env_checker=True, **options)
    except gymnasium.error.Error as error:
        raise Refused(f"gymnasium: {error}") from error


def draws(gymnasium, spec):
    """Whether an environment can be asked for pictures."""
    entry = spec.entry_point
    if isinstance(entry, str):
        entry = gymnasium.envs.registration.load_env_creator(entry)
    modes = (getattr(entry, "metadata", None) or {}).get("render_modes", ())
    return "rgb_array" in modes and takes(entry, "render_mode")


def takes(function, name):
    """Whether a function has a keyword argument, or takes any."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a built-in one, for example
        return True
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def make_env(request):
    """The environment that the id names, in its wrappers."""
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
    """How long episodes are by the environment's own word; 0: as long as it says itself."""
    if request["id"].startswith("gymnasium:"):
        name = request["id"].rpartition(":")[2]
        return int(import_gymnasium().spec(name).max_episode_steps or 0)
    return int(getattr(getattr(env, "spec", None), "max_episode_steps", None) or 0)


def wrong_step(answer):
    """What to raise where step returned anything but its five values."""
    found = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
    old = f": {OLD_GYM}" if isinstance(answer, tuple) and len(answer) == 4 else ""
    return TypeError(
        f"step must return (observation, reward, terminated, truncated, info), not {found}{old}"
    )


class GymAdapter:
    """Any environment with Gymnasium's interface."""

    def __init__(self, request):
        if request["id"].startswith("gymnasium:"):
            request = with_limit(request)
        self._env = make_env(request)
        self._observations = Observations(self._env.observation_space)
        actions = Actions(self._env.action_space)
        self._decode = actions.decode
        self._step, self._reset = self._env.step, self._env.reset
        if request["meter"] is not None:
            self._step = request["meter"].wrap(self._step)
            self._reset = request["meter"].wrap(self._reset)
        self._one_row = self._observations.box and len(self._observations.shape) == 1
        self._out = self._flat = None
        limit = request["max_episode_steps"]
        if limit < 0:
            limit = episode_limit(self._env, request)
        # Wrappers of the user's may want to see the end: Gymnasium's own is innermost then.
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
        self._observations.write(answer[0], out)
        self._steps = 0

    def step(self, action, out):
        """Takes one step."""
        answer = self._step(self._decode(action))
        try:
            observation, reward, terminated, truncated, _ = answer
        except (TypeError, ValueError):
            raise wrong_step(answer) from None
        if out is not self._out:
            self._out, self._flat = out, memoryview(out) if self._one_row else None
        try:  # in one call, which refuses any other type and shape
            self._flat[:] = observation
        except (TypeError, ValueError):
            self._observations.write(observation, out)
        if self._limit:
            self._steps += 1
            truncated = truncated or (self._steps >= self._limit and not terminated)
        return reward, terminated, truncated

    def render(self):
        """A picture, if there is one."""
        render = getattr(self._env, "render", None)
        return None if render is None else render()

    def close(self):
        """Frees what the environment holds."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()


class Repeated:
    """Holds each action for some steps, or until the episode ends; rewards add up."""

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
        """Takes one step, which is several of the environment's."""
        total = 0.0
        for _ in range(self._repeat):
            reward, terminated, truncated = self._inner.step(action, out)
            total += reward
            if terminated or truncated:
                break
        return total, terminated, truncated


def make(request):
    """The adapter for a request's id."""
    if request["id"].startswith("ALE/"):
        return AleAdapter(request)
    return GymAdapter(request) if request["action_repeat"] == 1 else Repeated(request)

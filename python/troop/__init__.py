"""Troop for Python: training, trained policies, and native environments of Gymnasium's interface.

`train` trains an agent and returns its Run; `load_policy` loads a trained agent, and `evaluate`
plays episodes with it (docs/guide/training_from_python.md). Learner gives a program of PyTorch, JAX
or NumPy the batches of a fleet (docs/guide/own_learner.md). Episodes reads recorded episodes, and
troop.offline converts them from and to Minari (docs/guide/offline_data.md).

`make_env` gives a gymnasium.Env, `make_vector_env` a gymnasium.vector.VectorEnv whose environments
step together in C++ (docs/guide/environments_from_python.md).
"""
from typing import TYPE_CHECKING, Any, Optional

try:
    from troop import _native
except ImportError as error:
    from troop_replay._other_python import explained  # fails by itself where it lacks a module, too
    raise explained(error, __path__[0]) from error

from troop._episodes import Episode, Episodes, EpisodeWriter
from troop._evaluation import evaluate
from troop._learner import Batch, Learner
from troop._policy import Policy, SpaceDescription, load_policy
from troop._program import TrainingError
from troop._run import Run
from troop._training import train

if TYPE_CHECKING:
    import gymnasium

__version__ = _native.version
__all__ = ["Batch", "Episode", "EpisodeWriter", "Episodes", "Learner", "Policy", "Run",
           "SpaceDescription", "TrainingError", "environment_ids", "evaluate", "load_policy",
           "make_env", "make_vector_env", "train"]


def environment_ids() -> list[str]:
    """The ids of all native environments."""
    return _native.ids()


def make_env(id: str, *, render_mode: Optional[str] = None,  # pylint: disable=redefined-builtin
             **options: Any) -> "gymnasium.Env[Any, Any]":
    """Makes one native environment.

    render_mode: None or "rgb_array". options: keys of the section [env] of a config:
    max_episode_steps, sticky_actions, reward_scale, action_repeat, difficulty_ramping (MinAtar);
    without one, or with None, the environment has its default. Raises ValueError for an unknown id
    or a wrong value.
    """
    _need_gymnasium()
    from troop import _environment, _settings
    return _environment.NativeEnv(_settings.Settings(id, _known(options), render_mode))


def make_vector_env(id: str, num_envs: int, *,  # pylint: disable=redefined-builtin
                    render_mode: Optional[str] = None, threads: int = 1, copy: bool = True,
                    **options: Any) -> "gymnasium.vector.VectorEnv[Any, Any, Any]":
    """Makes `num_envs` native environments that step together.

    threads: number of threads that share the environments; results do not depend on it. copy: True
    gives new arrays at every step. False gives read-only views of Troop's memory, which the next
    step or reset overwrites; they stay readable for as long as they exist, also after close().
    options: those of make_env.
    """
    _need_gymnasium()
    from troop import _settings, _vector_environment
    return _vector_environment.NativeVectorEnv(
        _settings.Settings(id, _known(options), render_mode),
        _settings.integer("num_envs", num_envs, 1, 2**20),
        _settings.integer("threads", threads, 1, 1024), bool(copy))


_OPTIONS = ("max_episode_steps", "sticky_actions", "reward_scale", "action_repeat",
            "difficulty_ramping")


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """Refuses options that no native environment has."""
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(f"unknown option {name}; native environments have: "
                             f"{', '.join(_OPTIONS)}")
    return options


def _need_gymnasium() -> None:
    try:
        from gymnasium.vector import AutoresetMode as _  # noqa: F401  (new in 1.1)
    except ImportError:
        raise ImportError("troop.make_env needs gymnasium 1.1 or later; install it: "
                          "pip install 'gymnasium>=1.1'") from None

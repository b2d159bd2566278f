"""Training: the program `troop train` as a subprocess, with its progress on one line."""
from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
from typing import Any, Iterator, Mapping, Optional

from troop import _config, _custom_environment, _program, _progress, _run

POLL_S = 0.25
GRACE_MORE_S = 30.0  # beyond fleet.shutdown_grace_s, for a machine that is busy


@dataclasses.dataclass
class Task:
    """One call of the program. words: its arguments. path: the run folder. modules: folders in
    which its environments find Python modules. grace_s: what an interrupted run gets."""

    program: str
    words: list[str]
    path: pathlib.Path
    progress: bool
    modules: list[str] = dataclasses.field(default_factory=list)
    grace_s: float = 5 + GRACE_MORE_S
    config_file: str = ""  # a temporary file, whose name is not one of the user


def train(config: _config.ConfigLike, overrides: Optional[Mapping[str, Any]] = None, /, *,
          env: Any = None, env_kwargs: Optional[Mapping[str, Any]] = None, overwrite: bool = False,
          progress: bool = True, program: Optional[str] = None, **settings: Any) -> "_run.Run":
    """Trains an agent until its budget is used up, and returns its run.

    config: a dict (nested or with dotted keys), the path of a TOML file, or TOML text. The keys are
    those of `troop config`. overrides: values for keys; settings: the same as keyword arguments
    with two underscores for a dot, such as replay__alpha=0.6.

    env: a class or function that makes a gymnasium.Env, in place of env.id; env_kwargs: its keyword
    arguments. Each actor makes its environments in processes of this Python interpreter.

    overwrite: replace a run of the same name. progress: show a line. program: the path of `troop`;
    otherwise $TROOP_PROGRAM, the package's own, or the one in PATH.

    Ctrl-C, or another exception, interrupts the run, which writes a checkpoint; its processes have
    ended when the exception leaves this function. Raises TrainingError: the config is wrong, or the
    run failed; ValueError: a wrong argument; FileNotFoundError: the program was not found.
    """
    given = _config.joined(overrides, settings)
    options = Options(env, env_kwargs, overwrite, progress, program)
    with prepared(config, given, options) as task:
        execute(task)
        return _run.Run(task.path, program=program)


@dataclasses.dataclass
class Options:
    """The arguments of train besides config and overrides."""

    env: Any = None
    env_kwargs: Optional[Mapping[str, Any]] = None
    overwrite: bool = False
    progress: bool = True
    program: Optional[str] = None


@contextlib.contextmanager
def prepared(config: _config.ConfigLike, given: dict[str, Any],
             options: Options) -> Iterator[Task]:
    """A new run as a task. given: overrides by key, to which those of the environment are added."""
    _custom_environment.refuse_in_worker()
    found = _program.find_program(options.program)
    text, file = _config.text_of(config)
    try:
        parsed = _config.parse(text)
    except ValueError:  # the program says where
        parsed = {}
    path = _path_of(parsed, given)
    modules: list[str] = []
    if options.env is not None:
        custom = _custom_environment.describe(options.env, options.env_kwargs, path.parent)
        _add(given, custom.settings)
        if "env.python" not in given and _config.value_in(parsed, "env.python", None) is None:
            given["env.python"] = custom.python
        modules = custom.modules
    elif options.env_kwargs is not None:
        raise ValueError("env_kwargs is given without env; without a class the options are "
                         "env.options")
    words = _config.override_words(given) + (["--overwrite"] if options.overwrite else [])
    with tempfile.TemporaryDirectory(prefix="troop-") as folder:
        task = Task(found, [], path, options.progress, modules, grace_of(parsed, given))
        if not file:
            file = task.config_file = os.path.join(folder, "config.toml")
            pathlib.Path(file).write_text(text, encoding="utf-8")
        task.words = ["train", file, *words]
        yield task


@contextlib.contextmanager
def resumed(run: "_run.Run", given: dict[str, Any], progress: bool,
            program: Optional[str]) -> Iterator[Task]:
    """The continuation of a run as a task. given: overrides by key."""
    _custom_environment.refuse_in_worker()
    yield Task(_program.find_program(program),
               ["resume", str(run.path), *_config.override_words(given)], run.path, progress,
               _custom_environment.remembered(run.path), grace_of(run.config, given))


def _path_of(config: Mapping[str, Any], given: Mapping[str, Any]) -> pathlib.Path:
    """The run folder. Refuses engines that only submit a run."""
    def value(key: str, default: Any) -> Any:
        return given.get(key, _config.value_in(config, key, default))

    if value("fleet.engine", "local") != "local":
        raise ValueError(f"fleet.engine is {value('fleet.engine', '')}: train() starts local runs "
                         "only; use the command `troop train`, and open the folder with troop.Run")
    runs = os.path.abspath(str(value("log.dir", "runs")))
    return pathlib.Path(runs) / str(value("name", "run"))


def _add(given: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if key in given:
            raise ValueError(f"{key} is given twice: by env and as a setting")
        given[key] = value


class Execution:
    """The program of a task while it runs, with the progress of the run; a context, after which no
    process is left."""

    def __init__(self, task: Task) -> None:
        environment = dict(os.environ)
        if task.modules:
            environment["PYTHONPATH"] = os.pathsep.join(
                [*task.modules, *filter(None, [environment.get("PYTHONPATH")])])
        environment[_custom_environment.WORKER] = "1"
        self._task, self._before = task, _modified(task.path)
        self._line = _progress.Progress(task.path.name, task.progress)
        self._config: dict[str, Any] = {}
        self.process = _program.Process([task.program, *task.words, "--plain"], environment,
                                        task.grace_s)

    def __enter__(self) -> "Execution":
        self.process.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._line.close()
        finally:
            self.process.__exit__(*error)

    def poll(self, seconds: float) -> Optional[int]:
        """Waits for its end, shows the progress, and returns the exit code; None: it still runs.
        """
        code = self.process.wait(seconds)
        started = _modified(self._task.path) != self._before
        if started and not self._config:
            self._config = _started(self._task)
        metrics = _program.last_line(self._task.path / "metrics.jsonl") if started else None
        if metrics is not None:
            self._line.show(metrics, self._config, last=code is not None)
        return code

    def require_success(self, code: int) -> None:
        """Raises TrainingError unless the exit code is 0."""
        if code != 0:
            self._line.close()
            raise error_of(self._task, code, self.process.output())


def execute(task: Task) -> None:
    """Runs the program to its end."""
    with Execution(task) as execution:
        while (code := execution.poll(POLL_S)) is None:
            pass
        execution.require_success(code)


def error_of(task: Task, code: int, output: str) -> _program.TrainingError:
    """The error of a run that did not end well."""
    if code == _program.INTERRUPTED:
        message = "the run was interrupted; continue it with troop.Run(path).resume()"
    else:
        message = _program.reason_of(output, code)
    # The place of an error in a temporary file says nothing.
    if task.config_file:
        message = message.replace(task.config_file, "config")
    return _program.TrainingError(message, output, code, task.path)


def _modified(path: pathlib.Path) -> int:
    """Changes when the program has begun or resumed a run, which adds a line to this file."""
    try:
        return (path / "provenance.jsonl").stat().st_mtime_ns
    except OSError:
        return 0


def _started(task: Task) -> dict[str, Any]:
    """The config of a run that has begun; keeps the folders of its modules for a resume."""
    if task.modules:
        _custom_environment.remember(task.path, task.modules)
    try:
        return _config.parse((task.path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, ImportError):
        return {}


def grace_of(config: Mapping[str, Any], given: Mapping[str, Any]) -> float:
    """Seconds that an interrupted run gets for its last checkpoint."""
    default = 5.0  # of fleet.shutdown_grace_s
    key = "fleet.shutdown_grace_s"
    value = given.get(key, _config.value_in(config, key, default))
    return GRACE_MORE_S + (float(value) if isinstance(value, (int, float)) else default)

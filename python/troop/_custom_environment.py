"""Environments that a calling script defines, as ids that the program's worker processes import."""
from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib
import json
import os
import pathlib
import re
import sys
import sysconfig
from typing import Any, Mapping, Optional

WORKER = "TROOP_PYTHON_WORKER"  # set in all processes of a run that train has started
MODULES_FILE = "python_path.json"  # in the run folder
GUARD = re.compile(r"^if\s+__name__\s*==\s*['\"]__main__['\"]", re.M)


@dataclasses.dataclass
class CustomEnvironment:
    """Settings of a run for an environment, the interpreter, and folders of its modules."""

    settings: dict[str, Any]
    python: str
    modules: list[str]


def refuse_in_worker() -> None:
    """Raises where a script is imported for its environment: another run would start in each."""
    if os.environ.get(WORKER):
        raise RuntimeError("troop.train was called while a process imported the module of an "
                           "environment; call it under `if __name__ == \"__main__\":`")


def describe(env: Any, env_kwargs: Optional[Mapping[str, Any]],
             runs: pathlib.Path) -> CustomEnvironment:
    """The settings for a class, a function, or an id. runs: where pickled classes are kept."""
    settings: dict[str, Any] = {}
    if env_kwargs:
        settings["env.options"] = _without_none(dict(env_kwargs))
    if isinstance(env, str):
        return CustomEnvironment({"env.id": env, **settings}, sys.executable, [])
    if not callable(env):
        raise ValueError(f"env is a {type(env).__name__} object, must be a class or a function "
                         "that makes an environment: each process makes its own")
    module, name, folders = _place_of(env, runs)
    settings["env.id"] = f"python:{module}:{name}"
    return CustomEnvironment(settings, sys.executable, folders)


def _name(env: Any) -> str:
    return str(getattr(env, "__qualname__", "<unnamed>"))


def _place_of(env: Any, runs: pathlib.Path) -> tuple[str, str, list[str]]:
    """(module that has it, its name there, folders for PYTHONPATH)."""
    name = _name(env)
    module = str(getattr(env, "__module__", "") or "")
    if module != "__main__":
        if _has(sys.modules.get(module), env):
            return module, name, _folders_of(module)
        return _pickled(env, runs)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if "<" not in name and spec is not None:  # python -m package.module
        return str(spec.name), name, [os.getcwd()]
    file = getattr(main, "__file__", None)
    if "<" not in name and file and os.path.isfile(file):
        path = pathlib.Path(file).resolve()
        guarded = GUARD.search(path.read_text(encoding="utf-8", errors="replace"))
        if guarded and path.suffix == ".py" and path.stem.isidentifier():
            return path.stem, name, [str(path.parent)]
    return _pickled(env, runs)


def _has(module: Any, env: Any) -> bool:
    """True if the module has the object under its own name."""
    for part in _name(env).split("."):
        module = getattr(module, part, None)
    return module is env


def _folders_of(module: str) -> list[str]:
    """The folder in which a module is found; none for an installed one."""
    top = sys.modules[module.partition(".")[0]]
    paths = list(getattr(top, "__path__", []) or [])
    file = paths[0] if paths else getattr(top, "__file__", None)
    if not file:  # built in
        return []
    folder = os.path.dirname(os.path.abspath(file))
    installed = {os.path.abspath(sysconfig.get_path(kind)) for kind in
                 ("stdlib", "platstdlib", "purelib", "platlib")}
    return [] if folder in installed else [folder]


def _pickled(env: Any, runs: pathlib.Path) -> tuple[str, str, list[str]]:
    """Writes a module that has the object by value, as its attribute `make`."""
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        raise ValueError(
            f"env {_name(env)} can only be passed to other processes by value, which needs "
            "cloudpickle: pip install cloudpickle; or move it into a module, or call train under "
            "`if __name__ == \"__main__\":`") from None
    try:
        data = base64.b64encode(cloudpickle.dumps(env)).decode()
    except Exception as error:  # pickling runs code of the user
        raise ValueError(f"env {_name(env)} cannot be pickled: {error}; move it into a "
                         "module") from error
    text = ('"""An environment that troop.train was given, pickled by value."""\n'
            "import base64\nimport pickle\n\n"
            f'make = pickle.loads(base64.b64decode("{data}"))\n')
    name = "troop_env_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = runs.resolve() / ".modules"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{name}.{os.getpid()}.tmp"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(folder / f"{name}.py")
    return name, "make", [str(folder)]


def _without_none(value: Any) -> Any:
    """None as the text that stands for it in a config."""
    if isinstance(value, Mapping):
        return {name: _without_none(item) for name, item in value.items()}
    return "None" if value is None else value


def remember(path: pathlib.Path, modules: list[str]) -> None:
    """Keeps the folders of a run's modules, so that Run.resume finds them."""
    temporary = path / (MODULES_FILE + ".tmp")
    temporary.write_text(json.dumps({"modules": modules}) + "\n", encoding="utf-8")
    temporary.replace(path / MODULES_FILE)


def remembered(path: pathlib.Path) -> list[str]:
    """The folders of a run's modules; none if train has not kept any."""
    try:
        text = (path / MODULES_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [str(folder) for folder in json.loads(text)["modules"]]

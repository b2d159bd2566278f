"""Configs and overrides as TOML."""
from __future__ import annotations

import importlib
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any, Optional, Union

ConfigLike = Union[Mapping[str, Any], str, "os.PathLike[str]"]
BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: Any, key: str = "") -> str:
    """A value in TOML.

    >>> toml_value([1, 2.5, True, "a \\"quoted\\" word"])
    '[1, 2.5, true, "a \\\\"quoted\\\\" word"]'
    >>> toml_value({"type": "linear", "units": 64})
    '{type = "linear", units = 64}'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(float(value))
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        members = (f"{_word(name)} = {toml_value(item, f'{key}.{name}')}"
                   for name, item in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item, f"{key}[]") for item in value) + "]"
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return toml_value(value.item(), key)
    if hasattr(value, "tolist"):
        return toml_value(value.tolist(), key)
    if value is None:
        raise ValueError(f"{key} is None, which a config cannot have; leave it out")
    raise ValueError(f"{key} is a {type(value).__name__}, must be a number, text, bool, list or "
                     "dict")


def joined(overrides: Optional[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Overrides by key, from a dict and from keyword arguments, which have two underscores for a
    dot.

    >>> joined({"replay.alpha": 0.6}, {"env__id": "CartPole-v1", "seed": 7})
    {'replay.alpha': 0.6, 'env.id': 'CartPole-v1', 'seed': 7}
    """
    found: dict[str, Any] = {}
    for name, value in [*(overrides or {}).items(), *settings.items()]:
        key = str(name).replace("__", ".")
        if key in found:
            raise ValueError(f"{key} is given twice")
        found[key] = value
    return found


def override_words(overrides: Mapping[str, Any]) -> list[str]:
    """Overrides as words of a command line.

    >>> override_words({"replay.alpha": 0.6, "env.id": "CartPole-v1"})
    ['replay.alpha=0.6', 'env.id="CartPole-v1"']
    """
    return [f"{key}={toml_value(value, key)}" for key, value in overrides.items()]


def toml_text(config: Mapping[str, Any]) -> str:
    """A dict as a config: nested tables, dotted keys, or both.

    >>> print(toml_text({"env": {"id": "CartPole-v1"}, "run.total_steps": 50_000}), end="")
    env.id = "CartPole-v1"
    run.total_steps = 50000
    """
    return "".join(f"{key} = {toml_value(value, key)}\n" for key, value in _flat(config, ""))


def _flat(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if not isinstance(name, str):
            raise ValueError(f"config has the key {name!r}, must be a text")
        key = prefix + ".".join(_word(part) for part in name.split("."))
        if isinstance(value, Mapping) and value:
            found += _flat(value, key + ".")
        else:
            found.append((key, value))
    return found


def _word(name: str) -> str:
    return name if BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def text_of(config: ConfigLike) -> tuple[str, str]:
    """(TOML, path or "") of a config: a dict, TOML text, or a path. Text has an equals sign or a
    line break, and is not the name of a file."""
    if isinstance(config, Mapping):
        return toml_text(config), ""
    if isinstance(config, str) and not os.path.exists(config) and re.search(r"[=\n]", config):
        return config, ""
    if not isinstance(config, (str, os.PathLike)):
        raise ValueError(f"config is a {type(config).__name__}, must be a dict, TOML text or the "
                         "path of a TOML file")
    path = pathlib.Path(config)
    if not path.is_file():
        raise ValueError(f"config {path}: no such file")
    return path.read_text(encoding="utf-8"), str(path)


def parse(text: str) -> dict[str, Any]:
    """TOML as a dict. Raises ValueError: it is not TOML."""
    for name in ("tomllib", "tomli"):  # Python 3.11; the package for earlier ones
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return dict(module.loads(text))
    raise ImportError("reading a config needs Python 3.11 or the package tomli: pip install tomli")


def value_in(config: Mapping[str, Any], key: str, default: Any) -> Any:
    """The value of a dotted key."""
    at: Any = config
    for part in key.split("."):
        if not isinstance(at, Mapping) or part not in at:
            return default
        at = at[part]
    return at

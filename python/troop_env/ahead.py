"""Preloading in a spare process: it imports modules, but creates no environment.

An environment may hold a file, a port or a window that the active process's one needs; modules are
imported by each process anyway.
"""

import importlib


def modules(request):
    """Names of the modules that a request's environments need."""
    source, _, name = request["id"].partition(":")
    if source in ("python", "python_vector"):
        yield name.partition(":")[0]
    elif source in ("gymnasium", "gymnasium_vector"):
        yield "gymnasium"
        if name.startswith("ALE/"):
            yield "ale_py"
        module = name.rpartition(":")[0]
        if module:  # importing it registers the environment
            yield module
    elif source == "envpool":
        yield "envpool"
    elif source == "ale_vector":
        yield "ale_py.vector_env"
    else:  # "ALE/Pong-v5"
        yield "ale_py"
    for wrapper in request["wrappers"]:
        yield wrapper.partition(":")[0]


def load(request):
    """Imports the modules. Errors are ignored here: creating the environment reports them."""
    loaded = {}
    for name in modules(request):
        try:
            loaded[name] = importlib.import_module(name)
        except Exception:
            pass
    if "gymnasium" in loaded:
        try:
            _load_registered(loaded["gymnasium"], request["id"].rpartition(":")[2])
        except Exception:
            pass


def _load_registered(gymnasium, name):
    entry = gymnasium.spec(name).entry_point
    if isinstance(entry, str):
        gymnasium.envs.registration.load_env_creator(entry)

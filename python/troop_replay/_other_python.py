"""The error of an import for which this Python has no extension module."""
from __future__ import annotations

import importlib.machinery
import pathlib
import sys


def explained(error: ImportError, folder: str) -> ImportError:
    """The error with its cause and remedy, or `error` itself where a module for this Python exists.
    folder: the package that should contain the module."""
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    built = sorted(path.name for path in pathlib.Path(folder).glob("_native.*.so"))
    if any(name == "_native" + suffix for name in built for suffix in suffixes):
        return error
    here = f"this is {sys.implementation.cache_tag}"
    if not built:
        return ImportError(f"{folder} has no extension module (_native{suffixes[0]}); it is a "
                           "source tree: run `pip install ./python` in the checkout")
    made_for = ", ".join(name.split(".")[1] for name in built)
    return ImportError(f"{folder} was built for {made_for}, {here}; install the wheel of this "
                       "Python, or run `pip install ./python` in a checkout")

"""Identity of an environment's custom code, which a fleet compares across machines.

It covers the files' bytes and their names relative to the package, not their location.
"""

import os
import sys
import zlib

FILES_MAX, BYTES_MAX = 1000, 1 << 24  # of a package; of a larger one only the module's file counts


def modules(request):
    """Names of the modules that the user wrote."""
    source, _, name = request["id"].partition(":")
    if source in ("python", "python_vector"):
        yield name.partition(":")[0]
    elif source in ("gymnasium", "gymnasium_vector") and ":" in name:
        yield name.rpartition(":")[0]
    for wrapper in request["wrappers"]:
        yield wrapper.partition(":")[0]


def tree(folder):
    """Lists the Python files below a folder; None if they exceed the limits."""
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        found += [os.path.join(at, name) for name in sorted(names) if name.endswith(".py")]
        if len(found) > FILES_MAX:
            return None
    return found if sum(map(os.path.getsize, found)) <= BYTES_MAX else None


def files(name):
    """Pairs of a name relative to the package's (or the module's) folder and a path."""
    top = sys.modules.get(name.partition(".")[0])
    own = getattr(sys.modules.get(name), "__file__", None)
    package = getattr(top, "__file__", None) if hasattr(top, "__path__") else None
    paths = tree(os.path.dirname(package)) if package else None
    if paths is None:
        paths, package = [own] if own else [], own
    return [(os.path.relpath(path, os.path.dirname(package)), path) for path in paths]


def describe(request):
    """Human-readable and comparable description; empty: no custom code, or it has no files."""
    found = {}
    for name in modules(request):
        if name.partition(".")[0] != "gymnasium":
            found.update({(name, below): path for below, path in files(name)})
    checksum = size = 0
    for (name, below), path in sorted(found.items()):
        with open(path, "rb") as file:
            data = file.read()
        size += len(data)
        checksum = zlib.crc32(data, zlib.crc32(f"{name}/{below}\n".encode(), checksum))
    if not found:
        return ""
    count = "1 Python file" if len(found) == 1 else f"{len(found)} Python files"
    return f"{count} of {size} bytes, checksum {checksum:08x}"

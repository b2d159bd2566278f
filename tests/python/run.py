#!/usr/bin/env python3
"""run.py PACKAGE_FOLDER TEST...: runs tests of the Python package that lies in a folder.

A test names what it needs besides NumPy in a line `NEEDS = (...)`. Where this interpreter lacks
that, the one of the benchmarks' peers is tried (TROOP_PEERS_PYTHON, or build/peers as bench/run
--install-peers makes it). Exits with 77 when nothing was run, and says why.
"""
import ast
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
CHECK = """
import importlib.util, sys
if sys.version_info[:2] != ({major}, {minor}): sys.exit("another Python")
sys.exit(", ".join(name for name in {names} if importlib.util.find_spec(name) is None))
"""


def needs_of(name):
    names = ["numpy"]
    for line in (HERE / f"{name}.py").read_text(encoding="utf-8").splitlines():
        if line.startswith("NEEDS = "):
            names += ast.literal_eval(line.partition("=")[2].strip())
    return names


def lacking(python, names):
    """What an interpreter lacks, as text; empty: nothing."""
    code = CHECK.format(major=sys.version_info[0], minor=sys.version_info[1], names=names)
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return run.stderr.strip() if run.returncode else ""


def interpreter(names):
    """(one that has all of the names or None, what this one lacks)."""
    lacks = lacking(sys.executable, names)
    peers = HERE.parent.parent / "build/peers/bin/python"
    others = [path for path in (os.environ.get("TROOP_PEERS_PYTHON"), str(peers))
              if path and pathlib.Path(path).exists()]
    for python in [sys.executable] if not lacks else others:
        if python == sys.executable or not lacking(python, names):
            return python, lacks
    return None, lacks


def main(package, names):
    python, lacks = interpreter(sorted({need for name in names for need in needs_of(name)}))
    if python is None:
        print(f"left out: {sys.executable} has no {lacks}")
        return SKIPPED
    if python != sys.executable:
        os.execv(python, [python, __file__, package, *names])
    sys.dont_write_bytecode = True
    sys.path[:0] = [package, str(HERE)]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

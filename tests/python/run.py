#!/usr/bin/env python3
"""run.py PACKAGE_FOLDER TEST...: runs tests of the Python package that lies in a folder.

With 77 it says that it ran nothing, and why: this interpreter lacks what a test needs. A test names
what it needs beside NumPy in a line `needs = ("torch", ...)`.
"""
import importlib.util
import pathlib
import sys
import unittest

SKIPPED = 77


def missing(module_file):
    """The first package that a test needs and that is not here; None: all are."""
    needs = ["numpy"]
    for line in module_file.read_text(encoding="utf-8").splitlines():
        if line.startswith("needs = "):
            needs += eval(line.partition("=")[2])  # pylint: disable=eval-used
    return next((name for name in needs if importlib.util.find_spec(name) is None), None)


def main(package, names):
    here = pathlib.Path(__file__).resolve().parent
    sys.dont_write_bytecode = True
    sys.path[:0] = [package, str(here)]
    suite = unittest.TestSuite()
    for name in names:
        lacking = missing(here / f"{name}.py")
        if lacking:
            print(f"{sys.executable} has no {lacking}: {name} is left out")
            return SKIPPED
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(name))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

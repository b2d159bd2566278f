#!/usr/bin/env python3
"""Checks spelling with codespell: spelling.py --root DIR. Exit code 77: codespell is not installed.

spelling_allowed.txt lists names of the code and planted typos that look like misspelled words.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

SKIPPED = ("tests/fuzz/corpus/", "tests/fixtures/", "bench/results/",
           "datasets/tokenizers/unicode_data.cc", "tests/tidy/spelling_allowed.txt")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    root = parser.parse_args().root.resolve()
    if shutil.which("codespell") is None:
        print("skipped: codespell is not installed")
        return 77
    listed = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True,
                            check=False)
    files = [name for name in listed.stdout.splitlines()
             if not name.startswith(SKIPPED) and (root / name).is_file()]
    if not files:   # not a clone
        print("skipped: there is no list of the files")
        return 77
    allowed = root / "tests/tidy/spelling_allowed.txt"
    run = subprocess.run(["codespell", "--ignore-words", str(allowed), *files], cwd=root, text=True,
                         capture_output=True, check=False)
    print(run.stdout, end="")
    found = len(run.stdout.splitlines())
    print(f"tidy.spelling: {found} violation(s)")
    return 1 if found or run.returncode not in (0, 65) else 0


if __name__ == "__main__":
    sys.exit(main())

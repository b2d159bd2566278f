#!/usr/bin/env python3
"""Each mutant still fits the sources, and the test that it names is there: check.py --root DIR.

Neither builds nor runs anything (tools/mutants does), so that a patch is renewed together with the
code that it changes. check_test.py plants violations.
"""
import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import patches  # noqa: E402  pylint: disable=wrong-import-position

MUTANTS_MIN = 150


def tests_of(root, folder):
    """Names in TEST(Suite, Name), TEST_F, TEST_P and TYPED_TEST of a folder and of contracts/."""
    names = set()
    for path in [*(root / "tests" / folder).rglob("*"), *(root / "tests/contracts").glob("*.h")]:
        if path.suffix in (".cc", ".h"):
            text = path.read_text(encoding="utf-8")
            names.update(re.findall(r"^\w*TEST\w*\(\s*(\w+),\s*(\w+)\s*\)", text, re.M))
    return names


def problems_of(root, mutants_min=MUTANTS_MIN):
    mutants, problems = patches.load(root / "tests/mutants")
    known = {}
    for mutant in mutants:
        try:
            patches.apply(mutant, root)
        except patches.Wrong as wrong:
            problems.append(str(wrong))
        if mutant.program != mutant.folder + "_test":
            problems.append(f"{mutant.name}: {mutant.test} is not a test of {mutant.program}")
        # An instance of a parameterised test is Instance/Suite.Name/parameter.
        suites, _, name = mutant.gtest_filter.partition(".")
        tests = known.setdefault(mutant.folder, tests_of(root, mutant.folder))
        if not any((suite, name.split("/")[0]) in tests for suite in suites.split("/")):
            problems.append(f"{mutant.name}: no test {suites}.{name} in tests/{mutant.folder}")
    if len(mutants) < mutants_min:
        problems.append(f"{len(mutants)} mutants, fewer than {mutants_min}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    root = parser.parse_args().root.resolve()
    problems = problems_of(root)
    for line in problems:
        print(f"tests/mutants/{line}")
    print(f"tidy.mutants: {len(problems)} violation(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

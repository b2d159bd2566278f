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
    """{(suite, name): macro} of each TEST(Suite, Name), TEST_F, TEST_P and TYPED_TEST of a folder
    and of contracts/."""
    names = {}
    for path in [*(root / "tests" / folder).rglob("*"), *(root / "tests/contracts").glob("*.h")]:
        if path.suffix in (".cc", ".h"):
            text = path.read_text(encoding="utf-8")
            for macro, *test in re.findall(r"^(\w*TEST\w*)\(\s*(\w+),\s*(\w+)\s*\)", text, re.M):
                names[tuple(test)] = macro
    return names


def macro_of(gtest_filter, tests):
    """The macro that declares the test, or None; with the right parts for that macro:
    [Instance/]Suite.Name/parameter for TEST_P, Suite/0.Name for TYPED_TEST, else Suite.Name."""
    suites, _, name = gtest_filter.partition(".")
    parts, name = suites.split("/"), name.split("/")
    parts_of = {"TEST_P": {(1, 2), (2, 2)}, "TYPED_TEST": {(2, 1)}}
    for suite in parts:
        macro = tests.get((suite, name[0]))
        if macro and (len(parts), len(name)) in parts_of.get(macro, {(1, 1)}):
            return macro
    return None


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
        tests = known.setdefault(mutant.folder, tests_of(root, mutant.folder))
        if macro_of(mutant.gtest_filter, tests) is None:
            problems.append(
                f"{mutant.name}: no test {mutant.gtest_filter} in tests/{mutant.folder}")
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

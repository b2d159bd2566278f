#!/usr/bin/env python3
"""test_report.py ALLOWED_SKIPS REPORT.xml...: counts ctest's results and checks skipped tests.

Exits 1 if a test failed, if none ran, or if one was skipped that ALLOWED_SKIPS does not list.
Each of its lines is `regular expression  # reason`. Last line: 'N passed, N failed, N skipped'.

A program that ctest starts for several tests writes a GoogleTest report next to ctest's, as
gtest/<name of the ctest test>.xml: its tests are counted and checked individually.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def read_allowed(path):
    """Reads [(compiled pattern, reason)]; a line without a reason is an error."""
    allowed = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("#")
        if not reason.strip():
            raise SystemExit(f"{path}:{number}: give the reason: 'pattern  # reason'")
        allowed.append((re.compile(pattern.strip()), reason.strip()))
    return allowed


def outcome_of(case):
    """Outcome of a test case in a report of either kind: "passed", "failed" or "skipped"."""
    if case.find("failure") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") == "skipped":
        return "skipped"
    # ctest: "run", GoogleTest: "run" and a result of "completed".
    return "passed" if case.get("status") in ("run", "passed") else "failed"


def results(path):
    """Yields (name, outcome, seconds) of each test in a ctest report."""
    path = pathlib.Path(path)
    for case in xml.parse(path).getroot().iter("testcase"):
        name, outcome = case.get("name"), outcome_of(case)
        inner = path.parent / "gtest" / f"{name}.xml"
        if not inner.exists():
            yield name, outcome, float(case.get("time") or 0)
            continue
        folder = name.partition(".")[0]
        cases = [(f"{folder}.{each.get('classname')}.{each.get('name')}", outcome_of(each),
                  float(each.get("time") or 0))
                 for each in xml.parse(inner).getroot().iter("testcase")]
        yield from cases
        # The program failed outside its tests, for example by a leak.
        if outcome == "failed" and not any(each[1] == "failed" for each in cases):
            yield name, outcome, 0.0


def main(arguments):
    allowed = read_allowed(pathlib.Path(arguments[0]))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    unexpected = 0
    for path in arguments[1:]:
        if not pathlib.Path(path).exists():
            raise SystemExit(f"{path} is missing: ctest did not finish")
        for name, outcome, _ in results(path):
            counts[outcome] += 1
            if outcome == "failed":
                print(f"failed: {name}")
            if outcome != "skipped":
                continue
            reasons = [reason for pattern, reason in allowed if pattern.fullmatch(name)]
            unexpected += not reasons
            print(f"skipped: {name}: " + (reasons[0] if reasons else
                                          f"NOT ALLOWED: not listed in {arguments[0]}"))
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)
    return 1 if unexpected or counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

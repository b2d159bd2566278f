#!/usr/bin/env python3
"""test_report.py ALLOWED_SKIPS REPORT.xml...: counts ctest's results, and judges the skipped ones.

Exits 1 if a test failed, if none ran, or if one was skipped that ALLOWED_SKIPS does not name. Each
of its lines is `regular expression  # reason`. Last line: 'N passed, N failed, N skipped'.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def read_allowed(path):
    """[(compiled pattern, reason)]; a line without a reason is an error."""
    allowed = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("#")
        if not reason.strip():
            raise SystemExit(f"{path}:{number}: give the reason: 'pattern  # reason'")
        allowed.append((re.compile(pattern.strip()), reason.strip()))
    return allowed


def results(path):
    """(name, "passed" | "failed" | "skipped") of each test in a report of ctest's."""
    for case in xml.parse(path).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            yield case.get("name"), "skipped"
        elif case.find("failure") is not None or case.get("status") not in ("run", "passed"):
            yield case.get("name"), "failed"
        else:
            yield case.get("name"), "passed"


def main(arguments):
    allowed = read_allowed(pathlib.Path(arguments[0]))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    unexpected = 0
    for path in arguments[1:]:
        if not pathlib.Path(path).exists():
            raise SystemExit(f"{path} is missing: ctest did not finish")
        for name, outcome in results(path):
            counts[outcome] += 1
            if outcome == "failed":
                print(f"failed: {name}")
            if outcome != "skipped":
                continue
            reasons = [reason for pattern, reason in allowed if pattern.fullmatch(name)]
            unexpected += not reasons
            print(f"skipped: {name}: " + (reasons[0] if reasons else
                                          f"NOT ALLOWED: it is not in {arguments[0]}"))
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), flush=True)
    return 1 if unexpected or counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

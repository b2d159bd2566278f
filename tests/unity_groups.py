#!/usr/bin/env python3
"""unity_groups.py FILE...: which test files can be compiled as one, as `index file` lines.

A group has up to four files of a folder. Tests name their helpers in an anonymous namespace, and
files of a folder often have helpers of the same name: in a group no file defines a name that
another one mentions. Names are found by regular expressions; what they miss, the compiler reports
as a redefinition.
"""
import pathlib
import re
import sys

SIZE = 4
DEFINITIONS = [re.compile(pattern, re.MULTILINE) for pattern in (
    r"^(?:struct|class|enum class|enum) (\w+)",
    r"^using (\w+) =",
    r"^namespace (\w+) = ",
    r"^#define (\w+)",
    r"^(?:constexpr|const|inline|static|thread_local)\b[^=;({\n]*?(\w+)(?:\[[^\]]*\])?\s*[={(;]",
    r"^[A-Za-z_][\w:<>,&*\[\] \n]*?[ &*>](\w+)\([^;]*?\)\s*(?:const )?\{",
)]
MACROS = {"TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P", "INSTANTIATE_TEST_SUITE_P"}
# In namespace troop the name testing means ::testing, unless a header declares troop::testing.
OWN_TESTING = re.compile(r"^namespace troop::testing|^namespace testing \{", re.MULTILINE)
INCLUDE = re.compile(r'^#include "(tests/[^"]+)"', re.MULTILINE)
ROOT = pathlib.Path(__file__).resolve().parents[1]


def has_own_testing(path, seen):
    if path in seen or not path.exists():
        return False
    seen.add(path)
    text = path.read_text(encoding="utf-8")
    return bool(OWN_TESTING.search(text)) or any(
        has_own_testing(ROOT / name, seen) for name in INCLUDE.findall(text))


class Source:
    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        self.path = path
        self.defined = {name for each in DEFINITIONS for name in each.findall(text)} - MACROS
        self.mentioned = set(re.findall(r"\b[A-Za-z_]\w+", text))
        self.own_testing = has_own_testing(path, set())

    def goes_with(self, other):
        return (self.own_testing == other.own_testing and not self.defined & other.mentioned
                and not other.defined & self.mentioned)


def groups_of(paths):
    """[[path, ...], ...], the same for the same files."""
    groups = []
    for source in sorted(map(Source, paths), key=lambda each: (-len(each.defined), each.path)):
        for group in groups:
            if len(group) < SIZE and all(source.goes_with(other) for other in group):
                group.append(source)
                break
        else:
            groups.append([source])
    return [sorted(source.path for source in group) for group in groups]


if __name__ == "__main__":
    for index, members in enumerate(groups_of([pathlib.Path(name) for name in sys.argv[1:]])):
        for member in members:
            print(index, member)

#!/usr/bin/env python3
"""unity_groups.py OUT NAME FILE...: writes unity files, each of which includes several of FILE....

Writes OUT/NAME_0.cc, OUT/NAME_1.cc, ... (.cu if the first FILE is one), and prints their paths.

A group has up to 5,000 lines. Files of a folder often have helpers of the same name in their
anonymous namespaces, or helpers named like something in another file's headers. In a group all
headers are included first; then each file in turn, with such names renamed by macros. A file
whose names cannot be renamed is put into another group: names that are also members, macros,
declared in its own headers, or found by argument-dependent lookup. Names are found by regular
expressions. A missed name is a redefinition for the compiler, or silently hides a header's name
in later files: each kind of definition has a test.
"""
import functools
import pathlib
import re
import sys

LINES = 5000
PRIVATE = re.compile(r"^namespace \{$.*?^\}  // namespace$|^static [^;{]*[;{]|^#define \w+",
                     re.MULTILINE | re.DOTALL)
MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
DEFINITIONS = [re.compile(pattern, re.MULTILINE) for pattern in (
    r"^(?:struct|class|enum class|enum) (\w+)",
    r"^using (\w+) =",
    r"^namespace (\w+) = ",
    r"^#define (\w+)",
    r"^(?:constexpr|const|inline|static|thread_local)\b[^=;({\n]*?(\w+)(?:\[[^\]]*\])?\s*[={(;]",
    r"^(?:\[\[.*?\]\] )?[A-Za-z_][\w:<>,&*\[\] \n]*?[ &*>](\w+)\([^;]*?\)[^;={}]*\{",
    r"^(?!using )[A-Za-z_][\w:<>,&* ]*[ &*>](\w+)(?: = [^;]*|\{[^;]*\})?;",
)]
FUNCTION = re.compile(r"^(?:\[\[.*?\]\] )?[A-Za-z_][\w:<>,&*\[\] \n]*?[ &*>](\w+)\(", re.MULTILINE)
# Statements that may declare several names.
CONSTANTS = re.compile(r"^(?:constexpr|const|inline|static|thread_local)\b[^;(={]*[={][^;]*;",
                       re.MULTILINE)
BRACKETS = re.compile(r"\([^(){}\[\]<>]*\)|\{[^(){}\[\]<>]*\}|\[[^(){}\[\]<>]*\]|<[^(){}\[\]<>]*>")
ENUMERATORS = re.compile(r"^enum [\w: ]*\{([^}]*)\}", re.MULTILINE)
TESTS = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),|^INSTANTIATE_TEST_SUITE_P\((\w+), (\w+)",
                   re.MULTILINE)
# Definitions of every fuzz target: always renamed, because one program contains all targets.
ENTRY = re.compile(r'^(?:extern "C" int (LLVMFuzzerTestOneInput)|void (VisitSeeds))\(',
                   re.MULTILINE)
MEMBER = re.compile(r"(?:\.|->|::)\s*~?(\w+)")
LOOKED_UP = {"PrintTo", "begin", "end", "load", "save", "serialize", "swap"}
MACROS = {"TEST", "TEST_F", "TEST_P", "TYPED_TEST", "TYPED_TEST_P", "INSTANTIATE_TEST_SUITE_P"}
INCLUDE = re.compile(r"^#include (?:\"[^\"]+\"|<[^>]+>)", re.MULTILINE)
OWN_HEADER = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ROOT = pathlib.Path(__file__).resolve().parents[1]


@functools.lru_cache(maxsize=None)
def header(path):
    """Returns (the headers that a header includes, the names that it declares)."""
    if not path.exists():
        return (), frozenset()
    text = path.read_text(encoding="utf-8")
    names = private_names(text) | set(FUNCTION.findall(text))
    return included(text), frozenset(names)


def included(text):
    return tuple(ROOT / name for name in OWN_HEADER.findall(text))


def reached(paths):
    """All headers that these files include, directly or indirectly."""
    found, left = set(), list(paths)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += header(path)[0]
    return found


def declared(statement):
    """Names that a statement declares: a, b for `const int a = 1, b[] = {2, 3};`."""
    replaced = 1
    while replaced:
        statement, replaced = BRACKETS.subn("", statement)
    flat = re.split(r"[(){}\[\]<>;]", statement)[0]  # unclosed brackets continue after the `;`
    words = [re.findall(r"\w+", part.split("=")[0]) for part in flat.split(",")]
    return {each[-1] for each in words if each}


def private_names(text):
    names = {name for each in DEFINITIONS for name in each.findall(text)}
    for statement in CONSTANTS.findall(text):
        names.update(declared(statement))
    for enumerators in ENUMERATORS.findall(text):
        names.update(each.split("=")[0].strip() for each in enumerators.split(",") if each.strip())
    return {name for name in names if not name.startswith("__")} - MACROS


class Source:
    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        self.path = path
        self.lines = text.count("\n")
        self.defined = private_names("\n".join(PRIVATE.findall(text)))
        self.entries = {name for names in ENTRY.findall(text) for name in names if name}
        self.mentioned = set(re.findall(r"\b[A-Za-z_]\w+", text))
        self.fixed = LOOKED_UP | set(MACRO.findall(text)) | set(MEMBER.findall(text)) | {
            name for names in TESTS.findall(text) for name in names}
        # Includes after the first `#if` or namespace are conditional, or must come late.
        end = re.search(r"^(?:#if|namespace|extern)", text, re.MULTILINE)
        self.includes = set(INCLUDE.findall(text[:end.start() if end else None]))
        headers = [header(each) for each in reached(included(text))]
        declared_here = set().union(*(names for _, names in headers))
        self.known = self.mentioned | declared_here
        self.fixed |= declared_here  # a private overload of what a header declares

    def clashes(self, other):
        return self.defined & other.known

    def goes_with(self, other):
        return not self.clashes(other) & self.fixed and not other.clashes(self) & other.fixed


def groups_of(paths):
    """Groups the files, deterministically: [[Source, ...], ...]."""
    groups = []
    for source in sorted(map(Source, paths), key=lambda each: (-each.lines, each.path)):
        for group in groups:
            if (sum(each.lines for each in group) + source.lines <= LINES
                    and all(source.goes_with(other) for other in group)):
                group.append(source)
                break
        else:
            groups.append([source])
    return [sorted(group, key=lambda each: each.path) for group in groups]


def unity_text(group):
    """Content of the unity file of a group."""
    lines = sorted(set().union(*(source.includes for source in group)))
    for source in group:
        others = [other for other in group if other is not source]
        names = sorted(source.entries.union(*(source.clashes(other) for other in others)))
        lines.append("")
        lines += [f"#define {name} {source.path.stem}_{name}" for name in names]
        lines.append(f'#include "{source.path}"')
        lines += [f"#undef {name}" for name in names]
    return "\n".join(lines) + "\n"


def main(out, name, paths):
    for index, group in enumerate(groups_of(paths)):
        path = pathlib.Path(out) / f"{name}_{index}{paths[0].suffix}"
        text = unity_text(group)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [pathlib.Path(path) for path in sys.argv[3:]])

"""Reads the mutants of this folder: what tools/mutants and check.py share.

A mutant is NAME.patch: a sentence that says what is wrong, `Test:` and `Program:` lines, and a
unified diff. A hunk is found by its lines alone, and these must be in the file exactly once: a
mutant never lands in another place than the one it was written for.
"""
import dataclasses
import pathlib
import re

PRODUCT = ("python", "core", "net", "collective", "replay", "nn", "kernels", "envs", "datasets",
           "plot", "actors", "learners", "paramserver", "fleet", "apps")
CHANGED_LINES_MAX = 4   # added and removed together: a mutant is one fault
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Wrong(Exception):
    """A patch that is none, or that fits no more; its message says what to do."""


@dataclasses.dataclass
class Mutant:
    name: str
    sentence: str
    test: str          # as ctest names it: <folder>.<Suite>.<Name>
    program: str
    hunks: list        # [(path, lines before, lines after)]

    @property
    def gtest_filter(self):
        return self.test.partition(".")[2]

    @property
    def folder(self):
        return self.test.partition(".")[0]


def header_of(name, lines):
    fields = {}
    for field in ("Test", "Program"):
        found = [line[len(field) + 2:].strip() for line in lines if line.startswith(field + ": ")]
        if len(found) != 1:
            raise Wrong(f"{name}: write one line `{field}: ...` above the diff")
        fields[field] = found[0]
    sentence = " ".join(line.strip() for line in lines if line.strip()
                        and not line.startswith(("Test: ", "Program: ")))
    if not sentence:
        raise Wrong(f"{name}: say in a sentence above the diff what is wrong")
    if not re.fullmatch(r"\w+\.[\w/]+\.[\w/]+", fields["Test"]):
        raise Wrong(f"{name}: Test: {fields['Test']} is not <folder>.<Suite>.<Name>")
    return sentence, fields["Test"], fields["Program"]


def parse(name, text):
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("--- ")), len(lines))
    sentence, test, program = header_of(name, lines[:start])
    hunks, path, changed, i = [], None, 0, start
    while i < len(lines):
        if lines[i].startswith("--- "):
            if i + 1 >= len(lines) or lines[i][4:6] != "a/" or lines[i + 1][4:6] != "b/":
                raise Wrong(f"{name}: names files otherwise than a/PATH and b/PATH")
            path = lines[i + 1][6:].split("\t")[0]
            i += 2
            continue
        match = HUNK.match(lines[i])
        if path is None or not match:
            raise Wrong(f"{name}: line {i + 1} is no part of a unified diff")
        old, new = int(match[1] or 1), int(match[2] or 1)
        before, after, i = [], [], i + 1
        while (len(before) < old or len(after) < new) and i < len(lines):
            kind, line = lines[i][:1], lines[i][1:]
            if kind not in ("", " ", "-", "+"):
                raise Wrong(f"{name}: line {i + 1} is no part of a unified diff")
            if kind != "+":
                before.append(line)
            if kind != "-":
                after.append(line)
            changed += kind in ("-", "+")
            i += 1
        if len(before) != old or len(after) != new or before == after:
            raise Wrong(f"{name}: a hunk's numbers of lines are wrong, or it changes nothing")
        hunks.append((path, before, after))
    if not hunks:
        raise Wrong(f"{name}: has no diff")
    if changed > CHANGED_LINES_MAX:
        raise Wrong(f"{name}: changes {changed} lines, more than {CHANGED_LINES_MAX}: one fault "
                    "each")
    return Mutant(name, sentence, test, program, hunks)


def places(text, lines):
    """Where the lines are in the text, as offsets."""
    block = "\n".join(lines) + "\n"
    found, at = [], ("\n" + text).find("\n" + block)
    while at >= 0:
        found.append(at)
        at = ("\n" + text).find("\n" + block, at + 1)
    return found


def apply(mutant, root):
    """{path: text with the fault}; raises Wrong where a hunk is not in its file exactly once."""
    changed = {}
    for path, before, after in mutant.hunks:
        if path.split("/")[0] not in PRODUCT:
            raise Wrong(f"{mutant.name}: changes {path}, which is no product code")
        file = root / path
        if path not in changed and not file.is_file():
            raise Wrong(f"{mutant.name}: {path} is no more: renew the patch or remove it")
        text = changed.get(path) or file.read_text(encoding="utf-8")
        found = places(text, before)
        if len(found) != 1:
            raise Wrong(f"{mutant.name}: its lines are in {path} {len(found)} times, not once: "
                        "renew the patch")
        end = found[0] + len("\n".join(before)) + 1
        changed[path] = text[:found[0]] + "\n".join(after) + "\n" + text[end:]
    return changed


def load(folder):
    """All mutants, and what is wrong with those that are none."""
    mutants, problems = [], []
    for path in sorted(pathlib.Path(folder).rglob("*.patch")):
        try:
            name = path.relative_to(folder).with_suffix("").as_posix()
            mutants.append(parse(name, path.read_text(encoding="utf-8")))
        except Wrong as wrong:
            problems.append(str(wrong))
    return mutants, problems

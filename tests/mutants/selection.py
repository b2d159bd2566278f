"""Which mutants a run of tools/mutants has: a slice, those of a change, those without a result."""
import hashlib
import json
import re


class WrongSlice(Exception):
    """Its message says what a slice is."""


def slice_of(mutants, text):
    """Slice K of N ("K/N", K from 1): consecutive mutants by program, so that each slice links few
    programs. All slices together have every mutant once, and differ by one mutant at most."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise WrongSlice(f"--slice {text}: give K/N, slice K of N, with K from 1 to N")
    k, n = int(match[1]), int(match[2])
    ordered = sorted(mutants, key=lambda each: (each.program, each.name))
    return ordered[len(ordered) * (k - 1) // n:len(ordered) * k // n]


def test_sources(mutant, root):
    """The files of tests/<folder> and of tests/contracts that hold the test of a mutant."""
    name = mutant.gtest_filter.partition(".")[2].split("/")[0]
    files = []
    for folder in (root / "tests" / mutant.folder, root / "tests/contracts"):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".cc", ".h") and re.search(
                    rf"\b{re.escape(name)}\b", path.read_text(encoding="utf-8")):
                files.append(path)
    return files


def changed(mutants, paths, root):
    """Those whose patch, patched files or tests are among `paths`, which are relative to root."""
    paths = set(paths)

    def touched(mutant):
        own = {f"tests/mutants/{mutant.name}.patch", *(path for path, _, _ in mutant.hunks)}
        return bool(own & paths) or any(
            file.relative_to(root).as_posix() in paths for file in test_sources(mutant, root))
    return [mutant for mutant in mutants if touched(mutant)]


class Results:
    """Verdicts of earlier runs, a line of JSON each. One counts while the patch, the files that it
    changes and the files of its test are the same."""

    def __init__(self, file, root):
        self._file, self._root = file, root
        self._killed = {}
        if file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:   # the line that an interrupted run was writing
                    continue
                self._killed[row["mutant"]] = row["key"] if row["killed"] else None

    def key(self, mutant):
        digest = hashlib.sha256(repr(mutant).encode())
        for path in sorted({path for path, _, _ in mutant.hunks}):
            digest.update((self._root / path).read_bytes())
        for file in test_sources(mutant, self._root):
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def killed(self, mutant):
        """Whether the newest verdict is that it was killed, and still counts."""
        known = self._killed.get(mutant.name)
        return known is not None and known == self.key(mutant)

    def add(self, mutant, killed, words):
        row = {"mutant": mutant.name, "key": self.key(mutant), "killed": killed, "words": words}
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._killed[mutant.name] = row["key"] if killed else None

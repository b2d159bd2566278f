"""Rule `folders`: the ladder inside each folder of the product, and how folders are filled.

The second table of docs/architecture.md lists the sub-folders of a folder from the lowest level to
the highest, as `storage < codec, selectors < table`: a sub-folder includes only those of lower
levels. The root of a folder holds interfaces and composition: a root header that a sub-folder
includes is an interface, and includes no sub-folder itself.
"""
import collections
import re

TABLE = re.compile(r"^\| folder \| sub-folders, lowest first \|.*\n((?:\|.*\n)+)", re.M)
ROW = re.compile(r"^\|\s*`(\w+)/`\s*\|\s*([^|]+?)\s*\|", re.M)
INCLUDE = re.compile(r'^[ \t]*#\s*include\s*"([^"]+)"', re.M)
SOURCES = (".h", ".cc", ".cu")
FILES_MAX = 30
# More files are easier to find together than apart:
LARGE = {
    "bench": "each program lies beside its driver; bench/README.md lists both",
    "docs/decisions": "numbered in the order of the decisions",
    "configs": "users name these files in commands; one for each published or measured run",
    "tests/cuda": "one parity file for each kernel, and its checker",
    "tests/system": "one file for each kind of run",
}
LARGE_BELOW = ("tests/mutants/", "tests/fuzz/corpus/", "tests/fixtures")   # data, found by name
# Names that may occur once in each folder.
SHARED_NAMES = ("messages", "options_from_config")


def ladders(root):
    """{folder: {sub-folder: level}}; None where docs/architecture.md has no such table."""
    table = TABLE.search((root / "docs/architecture.md").read_text(encoding="utf-8"))
    if table is None:
        return None
    found = {}
    for folder, text in ROW.findall(table[1]):
        levels = [re.findall(r"[\w/]+", level) for level in text.split("<")]
        found[folder] = {name: at for at, names in enumerate(levels) for name in names}
    return found


def check_ladder(root, paths, levels):
    product = {path for path in paths if path.suffix in SOURCES and path.parts[0] in levels}
    inner = {}     # (file, included file) within one folder -> line
    for path in sorted(product):
        text = (root / path).read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            target = path.__class__(match[1])
            if target.parts[0] == path.parts[0]:
                inner[path, target] = text.count("\n", 0, match.start()) + 1

    def group(path):
        return "/".join(path.parts[1:-1])
    interfaces = {target for path, target in inner if group(path) and not group(target)}
    for (path, target), line in inner.items():
        level = levels[path.parts[0]]
        here, there = group(path), group(target)
        if not there or here == there:
            continue
        if there not in level:
            yield f"{path}:{line}: {target.parent}/ is not in the table of sub-folders"
        elif here in level and level[there] >= level[here]:
            yield (f"{path}:{line}: {here}/ includes {target}, which is not below it in the table "
                   "of sub-folders")
        elif not here and path in interfaces:
            yield (f"{path}:{line}: includes {target}, but sub-folders include this header: move "
                   "one of them")
    for path in sorted(product):
        if group(path) and group(path) not in levels[path.parts[0]]:
            yield f"{path}:1: {path.parent}/ is not in the table of sub-folders"


def check_sizes(paths):
    counts = collections.Counter(path.parent.as_posix() for path in paths)
    for folder, count in sorted(counts.items()):
        if count > FILES_MAX and folder not in LARGE and not folder.startswith(LARGE_BELOW):
            yield (f"{folder}:1: {count} files, more than {FILES_MAX}: make sub-folders, or give a "
                   "reason in tests/tidy/folders.py")


def check_names(paths, folders):
    """No two sources of the product have one name; a GPU's may have that of its CPU twin."""
    names = collections.defaultdict(list)
    for path in sorted(paths):
        if (path.suffix in SOURCES and path.parts[0] in folders and path.stem not in SHARED_NAMES
                and "cuda" not in path.parts):
            names[path.name].append(path)
    for same in names.values():
        for path in same[1:]:
            yield f"{path}:1: has the name of {same[0]}: rename one of them"


def check_folders(root, tracked):
    levels = ladders(root)
    if levels is None:
        return ["docs/architecture.md:1: no table `| folder | sub-folders, lowest first |`"]
    paths = [path.relative_to(root) for path in tracked]
    return [*check_ladder(root, paths, levels), *check_sizes(paths), *check_names(paths, levels)]

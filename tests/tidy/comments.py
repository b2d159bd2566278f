"""Rule `comments`: the share of comment lines over all sources and over all headers, and the
names of files in comments, which must exist.

docs/style.md, section Language, rule 8. A line counts as comment if it begins with //; lines
without text do not count. The shares are those of all files together, so that a short or an
obvious file needs no comments for their own sake.
"""
import fnmatch
import re

SOURCES, HEADERS = (".cc", ".cu"), (".h", ".hpp")
FOLDERS = ("core", "kernels", "net", "envs", "datasets", "collective", "replay", "nn",
           "paramserver", "actors", "learners", "fleet", "apps", "python")
SHARE_MIN = {"sources": 0.10, "headers": 0.20}
LOWEST = 10   # files that a violation names
# Files, by a pattern of the path, that do not count:
UNCOUNTED = {
    "datasets/tokenizers/unicode_data.cc": "a table of data, whose rows need no comments",
    "*_config.cc": "declarations of config keys, whose texts are their documentation",
}

# Files of other projects that comments name; `x_plain.cc` and the like stand for a pattern.
FOREIGN = {"cuda.h", "nccl.h", "unigram_model.cc"}
FILE_NAME = re.compile(r"\b([a-z][a-z0-9_]+\.(?:h|cc|cu|cuh))\b")


def counts_of(text):
    """(comment lines, lines with text)."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return sum(line.startswith("//") for line in lines), len(lines)


def kind_of(relative):
    """The key of SHARE_MIN to which a file counts; None: it does not count."""
    path = relative.as_posix()
    if relative.parts[0] not in FOLDERS:
        return None
    if relative.suffix in HEADERS:
        return "headers"
    if relative.suffix not in SOURCES:
        return None
    return None if any(fnmatch.fnmatch(path, pattern) for pattern in UNCOUNTED) else "sources"


def stale_names(text, names):
    """(line number, name) of the files that comments of a source name and that do not exist."""
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.partition("//")[2]
        for name in FILE_NAME.findall(comment):
            if name not in names and name not in FOREIGN and not name.startswith("x_"):
                yield number, name


def check_comments(root, tracked):
    names = {path.name for path in tracked}
    counts = {kind: [] for kind in SHARE_MIN}   # (comment lines, lines, path)
    for path in tracked:
        relative = path.relative_to(root)
        kind = kind_of(relative)
        if kind is not None:
            text = path.read_text(encoding="utf-8", errors="replace")
            counts[kind].append((*counts_of(text), relative.as_posix()))
            for number, name in stale_names(text, names):
                yield f"{relative.as_posix()}:{number}: names {name}, which does not exist"
    for kind, minimum in SHARE_MIN.items():
        comments = sum(count for count, _, _ in counts[kind])
        lines = sum(count for _, count, _ in counts[kind])
        if comments >= minimum * lines:
            continue
        files = sorted((count / total, path, count, total)
                       for count, total, path in counts[kind] if total)[:LOWEST]
        lowest = ", ".join(f"{path} ({count} of {total})" for _, path, count, total in files)
        yield (f"{files[0][1]}:1: {comments} of {lines} lines of {kind} are comments "
               f"({comments / lines:.2%}), must be at least {minimum:.0%}; explain what the code "
               f"cannot say, first where the share is lowest: {lowest}")

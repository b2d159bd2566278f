"""The rule `types` of tidy.py: no two files define types of one name in the same namespace.

The linker does not see such a pair: it keeps one of the two destructors, and half of the objects
are destroyed as what they are not.
"""
import collections
import re

from includes import CODE, DIRECTIVE, OUTSIDE, QUOTED, blank

SCOPE = re.compile(r"\bnamespace\s*([\w:]*)\s*\{"
                   r"|\b(?:class|struct|union)\s+(?:\[\[\w+\]\]\s*)?([A-Za-z_][\w:]*)"
                   r"(?:\s+final)?(?:\s*:[^;{}()]*)?\s*\{|[{}]")
# Two makes of what only one of is linked: with CUDA, and on the emulated GPU.
ALTERNATIVES = re.compile(r"^(.*)_(?:cuda\.cu|emulated\.cc)$")


def defined(text):
    """(offset, qualified name) of the types that a text defines for other files as well."""
    scopes = []   # of open braces: a namespace's name, or None for anything else
    for match in SCOPE.finditer(text):
        if match[0] == "}":
            if scopes:
                scopes.pop()
        elif match[2]:
            if "::" not in match[2] and all(scopes):   # an unnamed namespace is ""
                yield match.start(), "::".join([*scopes, match[2]])
            scopes.append(None)
        else:
            scopes.append(match[1] if match[0] != "{" else None)


def check_types(root, paths):
    """Lines of violations. paths: the files of the repository."""
    places = collections.defaultdict(dict)
    for path in sorted(paths):
        relative = path.relative_to(root)
        if path.suffix not in CODE or relative.parts[0] in OUTSIDE:
            continue
        text = QUOTED.sub(blank, path.read_text(encoding="utf-8", errors="replace"))
        text = DIRECTIVE.sub(lambda match: "\n" * match[0].count("\n"), text)
        for offset, name in defined(text):
            places[name].setdefault(relative.as_posix(), text.count("\n", 0, offset) + 1)
    for name, files in sorted(places.items()):
        if len({ALTERNATIVES.sub(r"\1", file) for file in files}) == 1:
            continue
        first, *others = files.items()
        for file, line in others:
            yield (f"{file}:{line}: defines {name}, as {first[0]}:{first[1]} does: rename one, or "
                   f"give it a namespace without a name")

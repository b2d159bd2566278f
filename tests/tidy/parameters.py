"""The rule `parameters` of tidy.py: more than five parameters become a struct with named fields.

Functions of the folders CHECKED are counted, without a compiler: declarations and definitions that
are not indented more than a member. Exceptions are in parameters_allowed.txt, a line
`path function reason` each. A line whose function has become shorter or has gone is a violation
too, and so are more than ALLOWED_MAX lines: the list may only shrink.
"""
import pathlib
import re

CHECKED = ("kernels", "nn")
PARAMETERS_MAX = 5
ALLOWED = "tests/tidy/parameters_allowed.txt"
ALLOWED_MAX = 54
SOURCES = (".h", ".cc", ".cu")
# Comments, strings, and lines of the preprocessor.
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*',
                    re.DOTALL | re.MULTILINE)
# A return type, and the name before the parenthesis.
FUNCTION = re.compile(r"^ {0,2}(?:[\w:<>,*&\[\]]+[ *&]+)+?((?:\w+::)*~?\w+)\(", re.MULTILINE)
CONSTRUCTOR = re.compile(r"^ {0,2}(?:explicit )?([A-Z]\w*(?:::[A-Z]\w*)?)\(", re.MULTILINE)
STATEMENTS = ("return ", "else ", "delete ", "throw ", "new ", "goto ", "using ", "asm ")
OPEN, CLOSED = "([{", ")]}"


def parameters(text, begin):
    """(number of parameters, the position after the parenthesis) of a list that begins there."""
    depth, angle, commas, position = 1, 0, 0, begin
    while position < len(text):
        letter = text[position]
        if letter in OPEN:
            depth += 1
        elif letter in CLOSED:
            depth -= 1
            if depth == 0:
                break
        elif letter == "<":
            angle += 1
        elif letter == ">" and text[position - 1] != "-":
            angle = max(0, angle - 1)
        elif letter == "," and depth == 1 and angle == 0:
            commas += 1
        position += 1
    empty = not text[begin:position].strip()
    return 0 if empty else commas + 1, position + 1


def functions(text):
    """(line, name, number of parameters) of the functions in a file, in the order of lines."""
    found = set()
    text = HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for pattern in (FUNCTION, CONSTRUCTOR):
        for match in pattern.finditer(text):
            macro = "_" in match[1] and match[1].isupper()
            if macro or match.group().lstrip().startswith(STATEMENTS):
                continue
            count, end = parameters(text, match.end())
            after = re.sub(r"\s+", " ", text[end:end + 40]).lstrip()
            # What follows a list of parameters, unlike the arguments of a call.
            declared = re.match(r"(?:const\b|noexcept\b|override\b|= |->|\{|:)", after)
            typed = re.search(r"^\s*(?:const )?[\w:<>]+[ *&]+", text[match.end():end])
            if declared or after.startswith(";") and (typed or pattern is FUNCTION):
                found.add((text.count("\n", 0, match.start()) + 1, match[1], count))
    return sorted(found)


def allowed(root):
    """{(path, function): line number in ALLOWED}; a line without a reason is an error."""
    found, errors = {}, []
    path = root / ALLOWED
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        words = line.split(maxsplit=2)
        if len(words) < 3:
            errors.append(f"{ALLOWED}:{number}: write `path function reason`")
            continue
        found[words[0], words[1]] = number
    return found, errors


def check_parameters(root, tracked, most=None):
    most = ALLOWED_MAX if most is None else most
    exceptions, problems = allowed(root)
    needed = set()
    for path in sorted(tracked):
        relative = pathlib.PurePath(path.relative_to(root))
        if relative.suffix not in SOURCES or relative.parts[0] not in CHECKED:
            continue
        for line, name, count in functions(path.read_text(encoding="utf-8", errors="replace")):
            if count <= PARAMETERS_MAX:
                continue
            key = relative.as_posix(), name
            needed.add(key)
            if key not in exceptions:
                problems.append(f"{relative}:{line}: {name} has {count} parameters, more than "
                                f"{PARAMETERS_MAX}: give it a struct with named fields")
    for key, number in exceptions.items():
        if key not in needed:
            problems.append(f"{ALLOWED}:{number}: {key[1]} has at most {PARAMETERS_MAX} "
                            "parameters: delete the line, and lower ALLOWED_MAX")
    if len(exceptions) > most:
        problems.append(f"{ALLOWED}:1: {len(exceptions)} exceptions, more than {most}: the list "
                        "may only shrink")
    return problems

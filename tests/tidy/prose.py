"""Rule `prose`: constructions that docs/style.md excludes, in comments, messages and pages.

Reads the comments and string literals of C++ and CUDA, comments and docstrings of Python, comments
of configs and CMake, and the pages of docs/ and README.md. A line with `tidy: prose` is passed
over, for a quotation or a term that only looks like an excluded one.
"""
import io
import re
import tokenize

# Fragments at the beginning of a comment: it is a sentence, or a phrase with a noun as its head.
OPENING = re.compile(
    r"^(Of|The same|As|Behind|Beside|Who|What|Whether|Whoever|Whose)\b(?! (of|is|are)\?)")
WORDS = {
    r"(?<!rs )(?<!anyone )(?<!those )(?<!user )(?<!reader )\b[Ww]ho(ever|m|mever)?\b(?! am)":
        "name the component instead of who",
    r"\b([Ss]ome|[Nn]o|[Ee]very|[Aa]ny)body\b": "name the component instead of a body",
    r"\banew\b": "again",
    r"\bby now\b": "yet, or already",
    r"\bgo(es)? on (with|from|to)\b|\bgoes on\b": "continue, or resume",
    r"\bso (many|long|much) (?!as|that)": "N, or the number of",
    r"\bof (its|their|one's) own\b": "own, or separate",
    r"\bfor ever\b": "forever, or permanently",
    r"\bof late\b": "recently",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bshall\b": "must, or should",
    r"\btells (it|them|the)\b": "notifies",
    r"(?<![\w{.])[Tt]old\b(?!['\"\].\[])": "receives, or is notified",
    r"(?<!you )(?<!I )(?<!readers )(?<!who )\b(?:knows?|knew)\b": "has, contains, or supports",
    r"\b(?:is|are|was|were|be|been|signal) asked\b": "is requested",
    r"\bhears?\b|\bheard\b": "receives",
    r"\b(wants|forgives|forgiven)\b": "requires, or tolerates",
    r"(?<![Tt]here )\bis no (?!longer|more|less|such|need|way|reason|other|later|earlier|larger|"
    r"smaller|member)[a-z]+":
        "is not a",
    r"(?<![Tt]here )(?<!if )\bis none\b": "there is none, or is invalid",
    r"\b(heir|heirs)\b": "successor",
    r"\bbeside\b": "next to, or besides",
    r"\btold right\b": "classified correctly",
}
PATTERNS = [(re.compile(pattern), instead) for pattern, instead in WORDS.items()]
STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
PASSED = "tidy: prose"
SKIPPED = ("bench/results/", "tests/fuzz/corpus/", "tests/fixtures/", "tests/mutants/", "LICENSE",
           "docs/reference/config.md", "docs/benchmarks.md",
           "docs/style.md", "tests/tidy/")


def cpp_texts(text):
    """(line, text, begins a comment) of comments and strings."""
    in_comment = False
    for number, line in enumerate(text.splitlines(), 1):
        alone = re.match(r"\s*//[/!]?\s?(.*)$", line)
        if alone:
            yield number, alone[1], not in_comment
            in_comment = True
            continue
        in_comment = False
        if line.lstrip().startswith("#"):
            continue
        code = line
        for string in STRING.finditer(line):
            yield number, string[1], False
        code = STRING.sub('""', line)
        trailing = re.search(r"//[/!]?\s?(.*)$", code)
        if trailing:
            yield number, trailing[1], True


def python_texts(text):
    previous = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line = token.start[0]
                yield line, token.string.lstrip("#! "), line != previous + 1
                previous = line
            elif token.type == tokenize.STRING:
                for offset, part in enumerate(token.string.splitlines()):
                    yield token.start[0] + offset, part, False
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return


def hash_texts(text):
    previous = -1
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*#(?!!)\s?(.*)$", line) or re.search(r"\s#\s(.*)$", line)
        if match:
            yield number, match[1], number != previous + 1
            previous = number


def page_texts(text):
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", "``", line), False


def texts_of(path, text):
    if path.suffix in (".h", ".cc", ".cu", ".hpp", ".c"):
        return cpp_texts(text)
    if path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
        return python_texts(text)
    if path.suffix in (".toml", ".cmake", ".sh") or path.name == "CMakeLists.txt" or \
            text.startswith("#!/"):
        return hash_texts(text)
    if path.suffix == ".md":
        return page_texts(text)
    return ()


def check_prose(root, tracked):
    for path in tracked:
        relative = path.relative_to(root).as_posix()
        if relative.startswith(SKIPPED):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        lines = text.splitlines()
        for number, piece, opens in texts_of(path, text):
            if number <= len(lines) and PASSED in lines[number - 1]:
                continue
            if opens and OPENING.search(piece):
                yield (f"{relative}:{number}: begins with {piece.split()[0]}: write a sentence or "
                       "a noun")
            for pattern, instead in PATTERNS:
                match = pattern.search(piece)
                if match:
                    yield f"{relative}:{number}: \"{match[0]}\": write {instead}"

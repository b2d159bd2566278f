"""The rule `docs` of tidy.py: links, anchors and reachability of the Markdown pages.

A page is a tracked *.md file outside tests/ and examples/. Every relative link must lead to a file
of the repository and every anchor to a heading. A page of docs/ must be reachable from README.md, a
picture of docs/ must be shown somewhere, and a page of docs/ opens with a title and a sentence that
says what it is for. Nothing is fetched: links with a scheme are not followed.
"""
import collections
import posixpath
import re

FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)")
INLINE_CODE = re.compile(r"`[^`]*`")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
ROOTS = ("README.md",)


def slug(heading):
    """The anchor that GitHub (and mkdocs.yml's slugify) gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def read_page(text):
    """([(line number, link target)], {anchors}) of a page; code is skipped."""
    links, anchors, seen = [], set(), collections.Counter()
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            in_code = not in_code
            continue
        if in_code:
            continue
        heading = HEADING.match(line)
        if heading:
            anchor = slug(heading[2])
            anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
        for match in LINK.finditer(INLINE_CODE.sub("``", line)):
            links.append((number, match[1]))
        anchors.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return links, anchors


def opens_well(text):
    """True if the page begins with a title and then, at once, a sentence."""
    blocks = [block for block in re.split(r"\n\s*\n", COMMENT.sub("", text).strip()) if block]
    return (len(blocks) > 1 and blocks[0].startswith("# ") and "\n" not in blocks[0]
            and not re.match(r"[#|`!<-]", blocks[1]))


def check_docs(root, paths):
    """Violations of the rule, one line each; `paths` are the files of the repository."""
    names = {path.relative_to(root).as_posix() for path in paths}
    folders = {posixpath.dirname(name) for name in names}
    folders |= {parent for folder in folders for parent in parents(folder)}
    pages = {name: (root / name).read_text(encoding="utf-8") for name in sorted(names)
             if name.endswith(".md") and not name.startswith(("tests/", "examples/"))}
    parsed = {name: read_page(text) for name, text in pages.items()}
    leads_to = {}
    for name, (links, anchors) in parsed.items():
        leads_to[name] = set()
        for number, target in links:
            if re.match(r"[a-zA-Z][\w+.-]*:", target):
                continue
            path, _, anchor = target.partition("#")
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
            goal = goal if path else name
            if goal not in names and goal not in folders:
                yield f"{name}:{number}: links to {target}, which does not exist"
                continue
            leads_to[name].add(goal)
            known = anchors if goal == name else parsed.get(goal, (None, None))[1]
            if anchor and known is not None and anchor not in known:
                yield f"{name}:{number}: {goal} has no heading for the anchor #{anchor}"
    reached, queue = set(), [name for name in ROOTS if name in pages]
    while queue:
        name = queue.pop()
        if name not in reached:
            reached.add(name)
            queue += [goal for goal in leads_to[name] if goal in pages]
    shown = set().union(*leads_to.values()) if leads_to else set()
    for name in sorted(names):
        if not name.startswith("docs/"):
            continue
        if name in pages and name not in reached:
            yield f"{name}:1: no page that README.md leads to links here"
        if name in pages and not opens_well(pages[name]):
            yield f"{name}:1: begin with a title and a sentence that says what the page is for"
        if name.endswith((".png", ".svg", ".gif")) and name not in shown:
            yield f"{name}:1: no page shows this picture"


def parents(folder):
    while folder:
        folder = posixpath.dirname(folder)
        yield folder

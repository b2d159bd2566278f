#!/usr/bin/env python3
"""Writes the pages of the documentation site: tools/docs_pages.py FOLDER (tools/docs runs it).

FOLDER/pages: the Markdown files of the repository, with their links adapted, and a page per source
folder with the doc comments and public declarations of its headers. FOLDER/mkdocs.yml: the
navigation. Links to files that are not pages become their paths.
"""
import html
import json
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Pages outside docs/: file -> page.
PROJECT = {"README.md": "index.md", "CONTRIBUTING.md": "project/contributing.md",
           "CHANGELOG.md": "project/changelog.md", "THIRD_PARTY.md": "project/third_party.md",
           "bench/README.md": "project/bench.md", "python/README.md": "project/python.md"}
SECTIONS = (("Guide", "guide"), ("Reference", "reference"), ("Design", "design"),
            ("Decisions", "decisions"), ("API", "api"), ("Project", "project"))
TOP = {"docs/README.md": "contents.md", "docs/architecture.md": "design/architecture.md",
       "docs/style.md": "design/style.md"}   # other names or sections than in docs/
STYLE = (".md-grid { max-width: 80rem; }\n"
         ".md-typeset table:not([class]) code { overflow-wrap: normal; }\n")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
ITEM = re.compile(r"^\s*([-*]|\d+\.)\s")


def pages_of(names):
    """{file: page} of all Markdown pages of the site."""
    pages = {name: name.removeprefix("docs/") for name in names
             if name.startswith("docs/") and name.endswith(".md")}
    return {**pages, **{name: page for name, page in {**PROJECT, **TOP}.items() if name in names}}


def relinked(line, name, pages):
    """A line of the page `name` whose links lead to pages of the site."""
    here = posixpath.dirname(pages[name])

    def link(match):
        path, hash_, anchor = match[3].partition("#")
        if not path or re.match(r"[a-zA-Z][\w+.-]*:", path):
            return match[0]
        goal = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        page = pages.get(goal) or goal.startswith("docs/images/") and goal.removeprefix("docs/")
        if not page:
            text = match[2].strip("`")
            return f"`{goal}`" if text in (goal, path) else f"{match[2]} (`{goal}`)"
        return f"{match[1]}[{match[2]}]({posixpath.relpath(page, here or '.')}{hash_}{anchor})"
    return LINK.sub(link, line)


def page_text(name, pages):
    """The Markdown of a page, with a blank line before each list (Python-Markdown needs one)."""
    lines, in_code, before = [], False, ""
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            if ITEM.match(line) and before.strip() and not ITEM.match(before) and (
                    not before.startswith(" ")):
                lines.append("")
            line = relinked(line, name, pages)
        lines.append(line)
        before = line
    return "\n".join(lines) + "\n"


# --- API pages ------------------------------------------------------------------------------------

def blocks_of(text):
    """Top-level blocks of a header: lines between blank lines that are followed by column 0."""
    block, lines = [], text.splitlines()
    for index, line in enumerate(lines):
        following = next((later for later in lines[index + 1:] if later), "")
        if not line and following[:1] not in (" ", "}", ""):
            yield block
            block = []
        elif not re.match(r"(#pragma once|#include|namespace |}\s*// namespace|// clang-format)",
                          line):
            block.append(line)
    yield block


def without_private(code):
    """The lines of a class up to its private part, and its end."""
    kept, hidden = [], False
    for line in code:
        if re.match(r" (private|protected):", line):
            hidden = True
        elif line.startswith("}") or re.match(r" public:", line):
            hidden = False
        if not hidden:
            kept.append(line)
    while len(kept) > 1 and not kept[-2]:
        del kept[-2]
    return kept


def prose(comment):
    """A comment as Markdown: a paragraph, or as it is where its lines are laid out."""
    lines = [line.removeprefix("//").removeprefix("/") for line in comment]
    lines = [line.removeprefix(" ") for line in lines]
    if any(line.startswith(("  ", "- ", "* ")) for line in lines):
        return "```text\n" + "\n".join(lines) + "\n```\n"
    parts = re.split(r"(`[^`]*`)", "\n".join(lines))
    parts = [part if part.startswith("`") else
             re.sub(r"([*_\[\]|#])", r"\\\1", html.escape(part, quote=False)) for part in parts]
    return "".join(parts) + "\n"


def heading_of(code):
    """The first name that the block declares; none for a macro's continuation and the like."""
    text = re.sub(r"template <[^<>]*>", "", " ".join(code))
    match = re.search(r"\b(?:class|struct|enum class|enum|union)\s+(?:\[\[\w+\]\]\s*)?(\w+)", text)
    match = match or re.search(r"#define (\w+)", text) or re.search(r"(\w+)\(", text)
    match = match or re.search(r"using (\w+) =", text) or re.search(r"(\w+)\s*(?:=|\{|;)", text)
    return match[1] if match else None


def api_page(folder, says, headers):
    out = [f"# {folder}/", "", f"For callers of the library: {says}.", ""]
    for header in headers:
        out += [f"## `{header}`", ""]
        for block in blocks_of((ROOT / header).read_text(encoding="utf-8")):
            comment = []
            while block and block[0].startswith("//"):
                comment.append(block.pop(0))
            while block and not block[-1].strip():
                block.pop()
            code = without_private(block)
            name = heading_of(code) if code else None
            if name:
                out += [f"### {name}", ""]
            if comment:
                out.append(prose(comment))
            if code:
                out += ["```cpp", *code, "```", ""]
    return "\n".join(out) + "\n"


def api_pages(names, pages):
    """{page: text} for the folders in the ladder of docs/architecture.md."""
    table = re.findall(r"^\|\s*\d+\s*\|\s*`(\w+)/`\s*\|[^|]*\|\s*([^|]*?)\s*\|",
                       (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    texts, done = {}, set()
    for folder, says in table:
        headers = [name for name in names if name.startswith(f"{folder}/")
                   and name.endswith((".h", ".hpp"))]
        if headers and folder not in done:
            done.add(folder)
            says = relinked(says, "docs/architecture.md",
                            {**pages, "docs/architecture.md": "api/x.md"})
            texts[f"api/{folder}.md"] = api_page(folder, says, headers)
    return texts


def title_of(text):
    return re.search(r"^# (.*)$", text, re.MULTILINE)[1].replace("`", "")


def navigation(texts):
    nav = [{"Home": "index.md"}]
    if "contents.md" in texts:
        nav.append({"All pages": "contents.md"})
    for title, folder in SECTIONS:
        pages = [page for page in texts if page.startswith(f"{folder}/")]
        pages.sort(key=lambda page: (not page.endswith("README.md"), folder != "api" and page))
        if pages:
            nav.append({title: [{title_of(texts[page]): page} for page in pages]})
        if folder == "decisions" and "benchmarks.md" in texts:
            nav.append({"Benchmarks": "benchmarks.md"})
    return nav


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if "--help" in sys.argv else 2
    folder = pathlib.Path(sys.argv[1])
    run = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, text=True, check=True)
    names = sorted(name for name in run.stdout.splitlines() if (ROOT / name).is_file())
    pages = pages_of(names)
    texts = {page: page_text(name, pages) for name, page in pages.items()}
    texts.update(api_pages(names, pages))
    shutil.rmtree(folder / "pages", ignore_errors=True)
    for page, text in texts.items():
        path = folder / "pages" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", folder / "pages/images")
    (folder / "pages/images/extra.css").write_text(STYLE, encoding="utf-8")
    # JSON is YAML.
    (folder / "mkdocs.yml").write_text(json.dumps({
        "INHERIT": os.path.relpath(ROOT / "docs/mkdocs.yml", folder),
        "docs_dir": "pages", "site_dir": "site", "nav": navigation(texts)},
        indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

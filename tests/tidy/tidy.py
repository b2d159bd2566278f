#!/usr/bin/env python3
"""Checks that a reader would otherwise make by hand: tidy.py RULE --root DIR [--build DIR].

Rules: layers, folders, headers, includes, types, parameters, files, format, readme, docs, prose,
comments.
Prints one line per violation, `path:line: what is wrong and what to do`, and exits 1 if there is
any. Tests beside each rule plant violations and check that each one is found.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading

from comments import check_comments
from docs_links import check_docs
from folders import check_folders
from includes import check_includes
from one_definition import check_types
from parameters import check_parameters
from prose import check_prose

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT = re.compile(r'/\*.*?\*/')
# Folders of the repository that hold C++ but no product code: the ladder does not bind them.
OUTSIDE = ("tests", "bench", "examples", "tools")
# Libraries that only their wrappers may see: header prefix -> folders. The reason is in
# docs/style.md (errors: nothing throws past the file that wraps a library) and in build times.
WRAPPED = {
    "zmq": ("net",), "cereal/": ("net",),
    "dnnl": ("kernels",), "oneapi/dnnl": ("kernels",),
    "toml++": ("fleet",), "spdlog": ("core",), "zlib.h": ("core",),
    "archive.h": ("datasets",), "archive_entry.h": ("datasets",), "cairo": ("core",),
    "sodium": ("core", "collective"), "nlohmann/": ("core", "nn"), "gif_lib": ("core",),
    "CLI/": ("apps",),
    "pybind11/": ("python",),
    "gtest": (), "gmock": (), "benchmark/": (),
}
# Folders whose sources CI does not compile each by itself.
NOT_BUILT = ("bench", "examples", "tests")
LINES_MAX = 600
COLUMNS_MAX = 100
REASON = "tidy: long file, because"   # on a line of a file that may be longer than LINES_MAX
CODE = (".h", ".cc")
# What a compiler also takes for code: bound by the ladder, and refused as a name.
FOREIGN = (".hpp", ".hh", ".hxx", ".h++", ".inc", ".inl", ".ipp", ".tpp", ".c", ".cpp", ".cxx",
           ".c++", ".cuh")
# What plug-ins include is named as their authors expect it. Examples are projects of their own.
PUBLIC_HPP = "envs/plugin/troop/environment.hpp"
KERNELS = (".cu",)
SCRIPTS = (".py", ".sh", ".cmake")
FORMATTED = CODE + KERNELS + (".c", ".hpp")
# Another version formats some lines differently. This is Debian 12's.
CLANG_FORMAT = ("clang-format-14", "clang-format")
CLANG_FORMAT_VERSION = "14."
RULES = ("layers", "folders", "headers", "includes", "types", "parameters", "files", "format",
         "readme", "docs", "prose", "comments")
SKIPPED = 77   # the exit code


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def tracked(root):
    """Files of the repository: git's list where there is one, else every file."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 0:
        paths = sorted({root / line for line in run.stdout.splitlines()})
    else:
        paths = sorted(root.rglob("*"))
    return [path for path in paths if path.is_file()]


def includes(path):
    """(line number, bracket, header) of every #include."""
    for number, line in enumerate(read(path).splitlines(), 1):
        match = INCLUDE.match(COMMENT.sub(" ", line))
        if match:
            yield number, match[1], match[2]


# --- layers ---------------------------------------------------------------------------------------

def ladder(root):
    """{folder: set of folders that it may include}, read from the table in docs/architecture.md."""
    text = read(root / "docs/architecture.md")
    table = re.search(r"^\| level \| folder \| may include \|.*\n((?:\|.*\n)+)", text, re.M)
    row = r"^\|\s*(\d+)\s*\|\s*`(\w+)/`\s*\|\s*([^|]*)\|"
    rows = re.findall(row, table[1], re.M) if table else []
    if not rows:
        raise SystemExit("docs/architecture.md: no table `| level | folder | may include |` found")
    level = {folder: int(number) for number, folder, _ in rows}
    allowed = {}
    for number, folder, cell in rows:
        text = cell.strip()
        below = {other for other in level if level[other] < int(number)}
        if text in ("–", "-"):
            allowed[folder] = set()
        elif text == "all":
            allowed[folder] = below
        elif text.startswith("everything above"):
            excluded = text.partition(" except ")[2]
            allowed[folder] = below - set(re.findall(r"\w+", excluded))
        else:
            allowed[folder] = set(re.findall(r"\w+", text))
        for other in allowed[folder]:
            if other not in level:
                raise SystemExit(f"docs/architecture.md: {folder}/ names unknown folder {other}")
            if level[other] >= level[folder]:
                raise SystemExit(f"docs/architecture.md: {folder}/ climbs the ladder to {other}/")
    return allowed


def check_layers(root):
    allowed = ladder(root)
    for path in tracked(root):
        relative = path.relative_to(root)
        if path.suffix not in CODE + FOREIGN + KERNELS or len(relative.parts) < 2:
            continue
        folder = relative.parts[0]
        if folder in OUTSIDE:
            continue
        if folder not in allowed:
            yield f"{relative}:1: {folder}/ is not in the table of docs/architecture.md"
            continue
        for number, bracket, header in includes(path):
            target = header.split("/")[0]
            where = f"{relative}:{number}:"
            if ".." in header.split("/") or "." in header.split("/") or header.startswith("/"):
                yield f"{where} {header} goes round the ladder: write it from the root"
            elif bracket == '"' and "/" not in header:
                yield f'{where} include "{header}" from the root: "{folder}/{header}"'
            elif target in OUTSIDE:
                yield f"{where} product code includes {header}: {target}/ is no part of it"
            elif target in allowed and target != folder and target not in allowed[folder]:
                may = ", ".join(sorted(allowed[folder])) or "nothing"
                yield f"{where} {folder}/ includes {header}, but may include only: {may}"
            for prefix, folders in WRAPPED.items():
                if header.startswith(prefix) and folder not in folders:
                    only = " and ".join(f"{name}/" for name in folders) or "tests and benchmarks"
                    yield f"{where} <{header}> may be included only in {only}"


# --- headers --------------------------------------------------------------------------------------

def include_flags(build):
    """-I, -isystem, -D and -std flags that the build itself uses, from compile_commands.json."""
    flags = []
    for entry in json.loads(read(build / "compile_commands.json")):
        words = shlex.split(entry["command"])
        for index, word in enumerate(words):
            if word in ("-isystem", "-I"):
                pair = (word, words[index + 1])
            elif word.startswith(("-I", "-D", "-std=")):
                pair = (word,)
            else:
                continue
            if pair not in flags:
                flags.append(pair)
    return [word for pair in flags for word in pair]


def fingerprint(path, root, seen):
    """Hash of a header and of every header of ours that it reaches."""
    if path in seen:
        return ""
    seen.add(path)
    digest = hashlib.sha256(path.read_bytes())
    for _, bracket, header in includes(path):
        target = root / header
        if bracket == '"' and target.is_file():
            digest.update(fingerprint(target, root, seen).encode())
    return digest.hexdigest()


def included_first(root):
    """The headers that some source includes first. A build without TROOP_UNITY shows that nothing
    is missing in them; with it, the rule `includes` does."""
    found = set()
    for path in tracked(root):
        if path.suffix in (".cc", ".cu") and path.relative_to(root).parts[0] not in NOT_BUILT:
            first = re.search(r'^#\s*include [<"](.*)[>"]', read(path), re.MULTILINE)
            if first is not None:
                found.add(first.group(1))
    return found


# Precompiled once for all headers, since parsing them took two thirds of the time. A header that
# does not include what it uses of these is reported by the rule `includes`.
STANDARD = ("algorithm", "array", "atomic", "chrono", "cmath", "condition_variable", "deque",
            "filesystem", "fstream", "functional", "map", "memory", "mutex", "optional", "random",
            "set", "span", "string", "thread", "unordered_map", "variant", "vector", "fmt/format.h")
PRECOMPILED_MIN = 20   # headers, for which that is worth its time


def check_headers(root, build, compiler):
    flags = include_flags(build)
    command = [compiler, *flags, f"-I{root}", "-Wall", "-Wextra", "-Wno-pragma-once-outside-header",
               "-fsyntax-only", "-x", "c++"]
    stamp = build / "tidy_headers.json"
    known = json.loads(read(stamp)) if stamp.exists() else {}
    passed = {}
    first = included_first(root)
    # Those of tests have the rule `includes` alone: parsing GoogleTest takes most of the time.
    headers = [path for path in tracked(root)
               if path.suffix == ".h" and path.relative_to(root).as_posix() not in first
               and path.relative_to(root).parts[0] != "tests"
               or path.relative_to(root).as_posix() == PUBLIC_HPP]
    lock = threading.Lock()

    @functools.lru_cache(maxsize=None)
    def precompile():
        """The header that includes STANDARD."""
        source = build / "tidy_headers.h"
        source.write_text("".join(f"#include <{name}>\n" for name in STANDARD), encoding="utf-8")
        line = [word for word in command if word != "-fsyntax-only"][:-2]
        subprocess.run([*line, "-x", "c++-header", "-o", f"{source}.gch", str(source)],
                       capture_output=True, check=False)  # without it, it is parsed each time
        return source

    def before(path):
        """What is included in front of a header. Nothing for what users include, nor where there
        are few."""
        public = path.relative_to(root).as_posix() == PUBLIC_HPP
        if public or len(headers) < PRECOMPILED_MIN:
            return []
        with lock:
            return ["-include", str(precompile())]

    def compile_alone(path):
        relative = str(path.relative_to(root))
        key = " ".join(command) + fingerprint(path, root, set())
        key = hashlib.sha256(key.encode()).hexdigest()
        if known.get(relative) != key:
            run = subprocess.run([*command, *before(path), str(path)], capture_output=True,
                                 text=True, check=False)
            if run.returncode != 0:
                errors = [line for line in run.stderr.splitlines() if "error:" in line]
                detail = (errors or run.stderr.splitlines() or ["?"])[0]
                return f"{relative}:1: does not compile alone: {detail}"
        passed[relative] = key
        return None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for problem in pool.map(compile_alone, headers):
            if problem:
                yield problem
    stamp.write_text(json.dumps(passed, indent=0), encoding="utf-8")


# --- files ----------------------------------------------------------------------------------------

def check_text(path, relative):
    text = read(path)
    lines = text.splitlines()
    is_code = path.suffix in CODE or relative.as_posix() == PUBLIC_HPP
    if len(lines) > LINES_MAX and REASON not in text:
        yield (f"{relative}:{LINES_MAX + 1}: {len(lines)} lines, more than {LINES_MAX}: split it, "
               f"or write a line '{REASON} ...'")
    if path.suffix in (".h", ".hpp") and "#pragma once" not in lines:
        yield f"{relative}:1: a header needs #pragma once"
    for number, line in enumerate(lines, 1):
        where = f"{relative}:{number}:"
        if "\t" in line:
            yield f"{where} a tab: indent with spaces"
        if line != line.rstrip():
            yield f"{where} space at the end of the line"
        # A line that is one long string, address or include can't be broken.
        if len(line) > COLUMNS_MAX and not re.search(r"https?://|#\s*include", line):
            yield f"{where} {len(line)} columns, more than {COLUMNS_MAX}"
        if is_code and re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{where} finish it or file it: no TODO in the source"
    if text and not text.endswith("\n"):
        yield f"{relative}:{len(lines)}: no newline at the end of the file"


def check_files(root, build):
    built = None
    commands = build / "compile_commands.json" if build else None
    if commands and commands.exists():
        built = {pathlib.Path(entry["file"]).resolve() for entry in json.loads(read(commands))}
    for path in tracked(root):
        relative = path.relative_to(root)
        if (path.suffix in FOREIGN and relative.as_posix() != PUBLIC_HPP
                and relative.parts[0] != "examples"):
            yield f"{relative}:1: code ends in .h or .cc (.cu), not in {path.suffix}"
        public = relative.as_posix() == PUBLIC_HPP
        if path.suffix not in CODE + SCRIPTS and path.name != "CMakeLists.txt" and not public:
            continue
        yield from check_text(path, relative)
        # Benchmarks are built on request, python/ where pybind11 is; the install consumer is a
        # project of its own.
        elsewhere = relative.parts[0] in ("bench", "examples", "python") or relative.parts[:2] == (
            "tests", "install")
        if path.suffix == ".cc" and built is not None and not elsewhere:
            if path.resolve() not in built:
                yield f"{relative}:1: in no target: name it as its folder's glob wants it"


# --- format ---------------------------------------------------------------------------------------

def clang_format():
    """The command of clang-format 14, or None."""
    for command in CLANG_FORMAT:
        if shutil.which(command):
            run = subprocess.run([command, "--version"], capture_output=True, text=True,
                                 check=False)
            if f"version {CLANG_FORMAT_VERSION}" in run.stdout:
                return command
    return None


def check_format(root):
    """Sources are as clang-format writes them; tables are between `clang-format off` and `on`."""
    command = clang_format()
    paths = [path for path in tracked(root) if path.suffix in FORMATTED]
    wrong = {}
    for begin in range(0, len(paths), 100):
        run = subprocess.run([command, "--dry-run", *map(str, paths[begin:begin + 100])],
                             capture_output=True, text=True, check=False)
        for name, line in re.findall(r"^(.+?):(\d+):\d+: warning: code should be clang-formatted",
                                     run.stderr, re.MULTILINE):
            wrong.setdefault(pathlib.Path(name).relative_to(root), line)
        if run.returncode != 0:
            yield f"{command} failed: {(run.stderr.splitlines() or ['no message'])[0]}"
    for relative, line in wrong.items():
        yield f"{relative}:{line}: not formatted: run {command} -i {relative}"


# --- readme ---------------------------------------------------------------------------------------

README_LINES = 150  # three screens


def check_readme(root):
    """README is short, and the measured values in README and docs are those of bench/results."""
    lines = len(read(root / "README.md").splitlines())
    if lines > README_LINES:
        yield (f"README.md:{README_LINES + 1}: {lines} lines, the limit is {README_LINES}: "
               "move text to docs/")
    sys.path.insert(0, str(root / "bench"))
    from harness import BenchError  # pylint: disable=import-outside-toplevel
    from readme import made  # pylint: disable=import-outside-toplevel
    try:
        for name, text in made(root).items():
            if text != read(root / name):
                yield f"{name}:1: its numbers differ from bench/results: run bench/run --readme"
    except BenchError as error:
        yield str(error).replace(":", ":1:", 1)


def violations(rule, root, build=None, compiler="c++"):
    if rule == "layers":
        return list(check_layers(root))
    if rule == "headers":
        return list(check_headers(root, build, compiler))
    if rule == "includes":
        return list(check_includes(root, tracked(root)))
    if rule == "folders":
        return list(check_folders(root, tracked(root)))
    if rule == "types":
        return list(check_types(root, tracked(root)))
    if rule == "parameters":
        return list(check_parameters(root, tracked(root)))
    if rule == "files":
        return list(check_files(root, build))
    if rule == "format":
        return list(check_format(root))
    if rule == "prose":
        return list(check_prose(root, tracked(root)))
    if rule == "comments":
        return list(check_comments(root, tracked(root)))
    if rule == "docs":
        return list(check_docs(root, tracked(root)))
    return list(check_readme(root))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rule", choices=RULES)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--compiler", default="c++")
    options = parser.parse_args()
    if options.rule == "format" and clang_format() is None:
        print(f"skipped: clang-format {CLANG_FORMAT_VERSION}x is not installed")
        return SKIPPED
    found = violations(options.rule, options.root.resolve(), options.build, options.compiler)
    for line in found:
        print(line)
    print(f"tidy.{options.rule}: {len(found)} violation(s)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

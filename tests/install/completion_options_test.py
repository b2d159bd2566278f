#!/usr/bin/env python3
"""Compares the completions of all shells with the program.

Usage: completion_options_test.py PROGRAM SOURCE

Every option of every command's --help must be completed by bash, zsh and fish, and every option
that they complete must exist. Options with values are among those whose value bash skips. bash runs
its completions; those of zsh and fish are read, because these shells are rarely installed.
"""
import pathlib
import re
import subprocess
import sys

program, source = sys.argv[1], pathlib.Path(sys.argv[2])
completions = source / "tools/completions"
# The completions offer the newest name of an option alone.
OLD_NAMES = {"plot": {"--png"}}


def help_of(path):
    """The subcommands of a command, and its options: True for one with a value."""
    text = subprocess.run([program, *path, "--help"], capture_output=True, text=True,
                          check=True, timeout=60).stdout
    # `troop config --help` continues with the list of keys.
    text = text.split("\nAll config keys")[0]
    commands = re.findall(r"^  ([a-z][a-z-]*)  ", text.partition("ubcommands:\n")[2], re.M)
    if not path:  # the commands are in groups
        commands = re.findall(r"^  ([a-z][a-z-]*)  ", text, re.M)
    options = {}
    for names, rest in re.findall(r"^  ((?:-[a-z],)?--[a-z][a-z0-9,-]*)(.*)$", text, re.M):
        value = re.match(r" (TEXT|INT|UINT|FLOAT|ENUM|\{)", rest) is not None
        for name in names.split(","):
            if name.startswith("--"):
                options[name] = value
    return commands, options


def tree(path=()):
    """All commands: their paths with their options."""
    commands, options = help_of(path)
    found = {path: options}
    for command in commands:
        found.update(tree((*path, command)))
    return found


def bash(paths):
    """What bash offers after each command for a word that begins with --."""
    script = f'source "{completions}/troop.bash"\ncompopt() {{ :; }}\n'
    for path in paths:
        words = " ".join(["troop", *path, "--"])
        script += (f"COMP_WORDS=({words}) COMP_CWORD={len(path) + 1}; _troop; "
                   f'echo "${{COMPREPLY[*]}}"\n')
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                         timeout=60).stdout.splitlines()
    return {path: set(line.split()) for path, line in zip(paths, out, strict=True)}


def zsh(paths):
    """The options in the branch of each command: `env check` has the branch env-check."""
    text = (completions / "_troop").read_text()
    branches = dict(re.findall(r"^    ([a-z-]+)\)(.*?);;", text, re.M | re.S))
    found = {}
    for path in paths:
        # Commands with one part complete its name as an argument, and its options.
        at = "env-bench" if path == ("bench", "env") else "-".join(path)
        branch = branches.get(at, branches.get(path[0], ""))
        found[path] = set(re.findall(r"'(--[a-z0-9-]+)\[", branch))
    return found


def fish(paths):
    """The options whose conditions hold for the words of the command."""
    found = {path: {"--help"} for path in paths}
    for line in (completions / "troop.fish").read_text().splitlines():
        option = re.search(r" -l ([a-z0-9-]+)", line)
        conditions = re.search(r"-n '([^']+)'", line)
        if not option or not conditions:
            continue
        for path in paths:
            holds = True
            for condition in conditions[1].split("; and "):
                no, words = re.fullmatch(r"(not )?__fish_seen_subcommand_from ([a-z -]+)",
                                         condition).groups()
                holds &= (set(words.split()).isdisjoint(path)) == (no is not None)
            if holds:
                found[path].add("--" + option[1])
    return found


def main():
    commands = {path: options for path, options in tree().items() if path}
    assert ("env", "check") in commands and ("play",) in commands, sorted(commands)
    # Groups have only --help.
    leaves = [path for path, options in commands.items()
              if len(options) > 1 or not any(other[:-1] == path for other in commands)]
    errors = []
    for shell in (bash, zsh, fish):
        offered = shell(leaves)
        for path in leaves:
            wanted = set(commands[path]) - OLD_NAMES.get(path[0], set())
            name = " ".join(("troop", *path))
            for option in sorted(wanted - offered[path]):
                errors.append(f"{shell.__name__} does not complete {name} {option}")
            for option in sorted(offered[path] - set(commands[path])):
                if option.startswith("--"):
                    errors.append(f"{shell.__name__} completes {name} {option}: no such option")
    text = (completions / "troop.bash").read_text()
    skipped = set(re.findall(r"--[a-z0-9-]+", text.partition("case ${COMP_WORDS[i]} in")[2]
                             .partition("skip its value")[0]))
    for path, options in commands.items():
        for option, value in options.items():
            if value and option not in skipped:
                errors.append(f"bash counts the value of {' '.join(path)} {option} as an argument")
    print("\n".join(dict.fromkeys(errors)))
    print(f"completion options: {len(leaves)} commands, {len(errors)} error(s)")
    return 1 if errors else 0


sys.exit(main())

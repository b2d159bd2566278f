#!/usr/bin/env python3
"""`troop env check --quick` of every environment in Gymnasium's registry.

It is slow, and begins where it was stopped.

    python3 tests/field/env_registry.py --troop build/dev/troop --python venv/bin/python \\
        [--results FILE] [--only PREFIX …] [--part I/N]

The interpreter has gymnasium and what registers more (ale-py, minigrid, highway-env, mujoco).
An id takes at most a minute; its result is a line of the file (env_registry.jsonl next to this
script has what was found so far), and an id that stands there is not tried again, unless it was
too slow. Exit code 1: one failed that is not in KNOWN.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

SECONDS = 60
LIST = """
import gymnasium, importlib
for package in ("ale_py", "minigrid", "highway_env"):
    try:
        gymnasium.register_envs(importlib.import_module(package))
    except ModuleNotFoundError:
        pass
for name, spec in sorted(gymnasium.registry.items()):
    entry = spec.entry_point or spec.vector_entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "gymnasium")
    print("ID", name, module.partition(".")[0])
"""
# Known failures, due to the environment itself or because the id is not a playable environment: a
# part of the id, a part of the verdict, the reason.
KNOWN = (
    ("", "is deprecated", "gymnasium.make refuses it"),
    ("", "have been moved to", "it is no longer in Gymnasium"),
    ("", "is only supported on", "it needs an old release of mujoco"),
    ("GymV2", "", "a wrapper for other environments"),
    ("", "its action space is Tuple", "it is of several agents"),
    ("tabular/CliffWalking", "is not of floats", "its actions are whole numbers in a Box"),
    ("MiniGrid-WFC", "FileNotFoundError", "minigrid's wheel lacks its patterns"),
    ("BipedalWalker", "FAIL  reset", "its Box2D world outlives reset: other contacts"),
    ("LunarLander", "FAIL  memory", "1.6 KB of its Box2D world leak in each episode"),
)
# Its observations hold a text, which a network cannot see.
WRAPPERS = {"minigrid": 'env.wrappers=["minigrid.wrappers:ImgObsWrapper"]'}


def registry_of(python):
    """Pairs of an id and the package that registers it."""
    run = subprocess.run([python, "-c", LIST], capture_output=True, text=True, check=True)
    return [tuple(line.split()[1:]) for line in run.stdout.splitlines() if line.startswith("ID ")]


def check(troop, python, env, package):
    """The result of one id."""
    begin = time.monotonic()
    own = package in ("gymnasium", "ale_py")
    name = f"gymnasium:{env}" if own else f"gymnasium:{package}:{env}"
    command = [troop, "env", "check", name, "--quick", f"env.python={python}"]
    if env.startswith("ALE/"):  # with the standard preprocessing, as games are trained on
        command[3] = env
        command += ["env.action_repeat=4", "env.noop_max=30"]
    command += [WRAPPERS[package]] if package in WRAPPERS else []
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"id": env, "verdict": "slow", "why": f"longer than {SECONDS} s"}
    failed = [line.strip() for line in run.stdout.split("\n") if line.strip().startswith("FAIL")]
    verdict = "good" if run.returncode == 0 else "failed"
    why = "; ".join(failed) or run.stderr[-500:]
    if verdict == "failed" and any(part in env and text in why for part, text, _ in KNOWN):
        verdict = "known"
    took = round(time.monotonic() - begin, 1)
    return {"id": env, "verdict": verdict, "s": took, "why": "" if verdict == "good" else why}


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--troop", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--results", default=pathlib.Path(__file__).with_suffix(".jsonl"))
    parser.add_argument("--only", nargs="*", default=[""], help="prefixes of ids")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three processes")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    with open(given.results, "a+", encoding="utf-8") as file:
        file.seek(0)
        results = {result["id"]: result for result in map(json.loads, file)}
        wanted = [pair for pair in registry_of(given.python)
                  if pair[0].startswith(tuple(given.only))]
        for env, package in wanted[part - 1::parts]:
            if results.get(env, {"verdict": "slow"})["verdict"] != "slow":
                continue
            results[env] = check(given.troop, given.python, env, package)
            file.write(json.dumps(results[env]) + "\n")
            file.flush()
            print(results[env]["verdict"], env, results[env]["why"][:200], flush=True)
    counts = {}
    for result in results.values():
        counts[result["verdict"]] = counts.get(result["verdict"], 0) + 1
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return 1 if counts.get("failed", 0) else 0


if __name__ == "__main__":
    sys.exit(main())

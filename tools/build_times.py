#!/usr/bin/env python3
"""Reports the time of a stage of .ci/run, and whether it grew.

  build_times.py build DIR COMMAND...
      runs the command, which builds in DIR, and appends its CPU seconds to DIR/builds.jsonl
  build_times.py stage NAME --build DIR --since EPOCH [--wall S] [--tests S]
      reads that file, ninja's log and the test reports, writes DIR/times.json, prints a line of
      seconds, the ten slowest tests, and a warning for each figure that is more than 20 % above
      the last recorded one
  build_times.py table DIR/times.json...   prints a table of the stages
  build_times.py record DIR/times.json...  appends the figures of clean builds to
      bench/results/ci.jsonl, the baseline of later runs

Compile and link seconds are CPU seconds, summed over all steps: two cores provide two per
second, and other processes do not count. Figures are divided by the seconds of a fixed
compilation (the probe) before they are compared, because machines differ.
"""
import argparse
import datetime
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import test_report  # noqa: E402  pylint: disable=wrong-import-position

HISTORY = ROOT / "bench/results/ci.jsonl"
GROWTH_MAX = 1.2
NOISE_S = 5  # smaller differences are not reported
SLOWEST = 10
COLD_SHARE = 0.9  # share of objects that a clean build must have compiled to be compared
FIGURES = ("compile", "link", "test")
OBJECTS = (".o", ".obj", ".gch", ".pch")
PROBE = "#include <algorithm>\n#include <map>\n#include <regex>\nstd::regex r(\"a*\");\n"


class TimesError(Exception):
    """An error that the user can fix; its text is one line."""


def steps(log, since):
    """Parses ninja's log, version 5 or 6: {(start, end, hash): (seconds, output, ran since)}.

    A step with several outputs has a line for each; a repeated step replaces the earlier one.
    """
    lines = log.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].startswith("# ninja log v"):
        raise TimesError(f"{log} is not a ninja log")
    last = {}
    for line in lines[1:]:
        fields = line.split("\t")
        if len(fields) != 5:
            raise TimesError(f"{log}: a line of {len(fields)} fields: {line[:80]}")
        last[fields[3]] = fields
    found = {}
    for start, end, stamp, output, command in last.values():
        ran = int(stamp) >= since * 1e9
        found.setdefault((start, end, command), ((int(end) - int(start)) / 1e3, output, ran))
    return found


def build_figures(folder, since):
    """CPU seconds of compiling and linking, apportioned by ninja's log, and counts."""
    every = steps(folder / ".ninja_log", since).values()
    ran = [(seconds, output) for seconds, output, now in every if now]
    compiled = [seconds for seconds, output in ran if output.endswith(OBJECTS)]
    linked = [seconds for seconds, output in ran if not output.endswith(OBJECTS)]
    objects = sum(output.endswith(OBJECTS) for _, output, _ in every)
    spent = sum(build["seconds"] for build in read_builds(folder) if build["begin"] >= since)
    share = spent / (sum(compiled) + sum(linked)) if ran else 0
    return {"compile": round(share * sum(compiled), 1), "link": round(share * sum(linked), 1),
            "objects": len(compiled), "links": len(linked),
            "cold": bool(compiled) and len(compiled) >= COLD_SHARE * objects}


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_builds(folder):
    file = folder / "builds.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def build(options):
    begin = time.time()
    code = subprocess.run(options.command, check=False).returncode
    with open(options.folder / "builds.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"begin": begin, "seconds": children_seconds()}) + "\n")
    sys.exit(code)


def probe_seconds():
    """CPU seconds of a fixed compilation; the median of three."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "probe.cc"
        source.write_text(PROBE, encoding="utf-8")
        for _ in range(3):
            before = children_seconds()
            subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-c", str(source),
                            "-o", str(source) + ".o"], check=True)
            taken.append(children_seconds() - before)
    return round(statistics.median(taken), 2)


def last_recorded(history, stage):
    """The newest rows of a stage, by metric."""
    rows = {}
    if history.exists():
        for line in history.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["case"] == stage:
                rows[row["metric"]] = row
    return rows


def warnings(times, history):
    """A warning for each figure that grew by more than a fifth since it was last recorded."""
    found = []
    for metric, row in last_recorded(history, times["stage"]).items():
        if metric not in FIGURES or metric in ("compile", "link") and not times["cold"]:
            continue
        speed = times["probe"] / row["machine"]["probe_s"]
        expected = row["value"] * speed
        if times[metric] > GROWTH_MAX * expected and times[metric] - expected > NOISE_S:
            found.append(
                f"warning: {metric} of {times['stage']} took {times[metric]:.0f} s, "
                f"{100 * (times[metric] / expected - 1):.0f} % more than at commit "
                f"{row['machine']['commit']} ({row['value']:.0f} s, {expected:.0f} s at this "
                "machine's speed); make it cheaper, or record the new figure with "
                "tools/build_times.py record")
    return found


def rows_of(times, commit, date):
    machine = {"cores": os.cpu_count(), "date": date, "commit": commit, "probe_s": times["probe"]}
    for metric in (*FIGURES, "wall", "tests", "objects", "links"):
        unit = "s" if metric in (*FIGURES, "wall") else "count"
        yield {"suite": "ci", "case": times["stage"], "metric": metric, "unit": unit,
               "value": times[metric], "machine": machine}


def stage(options):
    times = {"stage": options.name, "probe": probe_seconds(),
             **build_figures(options.build, options.since)}
    tests = []
    if (options.build / "report.xml").exists():
        tests += test_report.results(options.build / "report.xml")
    times.update(test=options.tests, wall=options.wall, tests=len(tests))
    (options.build / "times.json").write_text(json.dumps(times) + "\n", encoding="utf-8")
    print(f"{options.name}: {times['objects']} objects in {times['compile']:.0f} s and "
          f"{times['links']} links in {times['link']:.0f} CPU s, {len(tests)} tests "
          f"in {options.tests:.0f} s")
    for name, _, seconds in sorted(tests, key=lambda each: -each[2])[:SLOWEST]:
        print(f"  {seconds:7.1f} s  {name}")
    for line in warnings(times, HISTORY):
        print(line, flush=True)


def read_times(paths):
    for path in paths:
        if not path.exists():
            raise TimesError(f"{path} is missing; tools/test writes it after a successful build")
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def table(options):
    print(f"{'stage':8} {'objects':>8} {'links':>6} {'tests':>6} {'compile':>8} {'link':>6} "
          f"{'test':>6} {'wall':>6}")
    for each in read_times(options.times):
        print(f"{each['stage']:8} {each['objects']:8} {each['links']:6} {each['tests']:6} "
              f"{each['compile']:6.0f} s {each['link']:4.0f} s "
              f"{each['test']:4.0f} s {each['wall']:4.0f} s")


def record(options):
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=True).stdout.strip()
    date = datetime.date.today().isoformat()
    every = read_times(options.times)
    for times in every:
        if not times["cold"]:
            raise TimesError(f"{times['stage']} was not a clean build; remove its build folder")
    with open(HISTORY, "a", encoding="utf-8") as file:
        for times in every:
            file.writelines(json.dumps(row) + "\n" for row in rows_of(times, commit, date))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("build")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("command", nargs=argparse.REMAINDER)
    command.set_defaults(run=build)
    command = commands.add_parser("stage")
    command.add_argument("name")
    command.add_argument("--build", type=pathlib.Path, required=True)
    command.add_argument("--since", type=float, required=True)
    for figure in ("wall", "tests"):
        command.add_argument(f"--{figure}", type=float, default=0)
    command.set_defaults(run=stage)
    for name, run in (("table", table), ("record", record)):
        command = commands.add_parser(name)
        command.add_argument("times", type=pathlib.Path, nargs="+")
        command.set_defaults(run=run)
    options = parser.parse_args()
    try:
        options.run(options)
    except TimesError as error:
        sys.exit(f"build_times: {error}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""All-reduce with Gloo and Open MPI: the peers of the suite `collective`.

    collective_peers.py [--quick] [--only CASE]

Compiles collective_gloo.cc and collective_mpi.cc if Debian's libgloo-dev and libopenmpi-dev are
installed, and runs the cases of bench/collective_bench.cc: Gloo's ring over TCP, Open MPI over
TCP and over its shared memory, with their default tuning.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parent.parent / "build/peers_collective"
LARGE, SMALL, SMALL_ROUNDS = 25_000_000, 256, 200
CASES = {"tcp-25M-2": ("tcp", 2, LARGE, 1), "tcp-25M-4": ("tcp", 4, LARGE, 1),
         "shm-25M-2": ("vader", 2, LARGE, 1), "shm-25M-4": ("vader", 4, LARGE, 1),
         "tcp-256-4": ("tcp", 4, SMALL, SMALL_ROUNDS),
         "shm-256-4": ("vader", 4, SMALL, SMALL_ROUNDS)}


def compiled(name, command):
    """Builds the program of <name>.cc; None: its compiler or library is missing."""
    source, program = HERE / f"{name}.cc", FOLDER / name
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    if shutil.which(command[0]) is None:
        return None
    FOLDER.mkdir(parents=True, exist_ok=True)
    run = subprocess.run([command[0], "-O3", "-march=native", source, "-o", program, *command[1:]],
                         capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"{name} is absent: {run.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return program


def package_version(package):
    run = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True,
                         text=True, check=False)
    return run.stdout.split("-")[0] or "unknown"


def show(case, output, peer, version):
    lists = {line.split()[0]: [float(word) for word in line.split()[1:]]
             for line in output.splitlines() if line.startswith(("values", "check"))}
    print(json.dumps({"case": case, "metric": "time", "unit": "ms", "peer": peer,
                      "peer_version": version, **lists}), flush=True)


def run(command, environment=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=300, check=False, env=environment)
    if done.returncode != 0:
        sys.exit((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout


def run_mpi(program, transport, ranks, elements, rounds, repeats):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", ranks,
                "--mca", "pml", "ob1", "--mca", "btl", f"{transport},self",
                program, elements, rounds, repeats], environment)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    repeats = 3 if options.quick else 7
    gloo = compiled("collective_gloo", ["c++", "-std=c++17", "-lgloo", "-lpthread"])
    mpi = compiled("collective_mpi", ["mpic++"])
    if gloo is None and mpi is None:
        sys.exit("neither libgloo-dev nor libopenmpi-dev is installed")
    for case, (transport, ranks, elements, rounds) in CASES.items():
        if options.only not in (None, case):
            continue
        if gloo and transport == "tcp":
            with tempfile.TemporaryDirectory() as folder:
                output = run([gloo, ranks, elements, rounds, repeats, folder])
            show(case, output, "gloo", package_version("libgloo-dev"))
        if mpi:
            output = run_mpi(mpi, transport, ranks, elements, rounds, repeats)
            show(case, output, "openmpi", package_version("libopenmpi-dev"))


if __name__ == "__main__":
    main()

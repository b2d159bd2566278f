"""bench/gpu_service.py, which tells how busy a learner is that draws from the replay service, with
an emulated GPU: both rows are there, and a run that comes to nothing says why.

Usage: gpu_service_test.py PROGRAM PLUGIN
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "bench/gpu_service.py"
# The emulator takes a second for what a GPU does in a millisecond.
SMALL = ["learner.batch_size=4", "replay.min_items=200", "replay.capacity_items=2000",
         "actor.envs=4", "network.layers=[{type=\"conv2d\", filters=8, kernel=8, stride=16}]",
         "log.metrics_every_s=0.1"]


def run(*words):
    return subprocess.run([sys.executable, SCRIPT, *sys.argv[1:3], "--seconds", "2", *words],
                          check=False, capture_output=True, text=True, timeout=100)


def rows_of(*keys):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows"
        done = run("--json", str(file), *SMALL, *keys)
        assert done.returncode == 0, done.stderr
        lines = file.read_text(encoding="utf-8").splitlines()
    rows = {row["metric"]: row for row in map(json.loads, lines)}
    assert set(rows) == {"busy", "updates"}, rows
    assert rows["busy"]["demanded"] == 0.9, rows
    return rows["busy"]["value"], rows["updates"]["value"]


def main():
    # Updates are slow here: the learner waits little, unless the replay limits samples.
    fed, updates = rows_of()
    starved, _ = rows_of("replay.samples_per_insert=0.0005")  # perhaps none within two seconds
    # No upper bound: on a machine that is busy itself, news of the first updates come late.
    assert updates > 0 and fed > 0.3 and starved < 0.7 * fed, (updates, fed, starved)
    refused = run("learner.no_such_key=1")
    assert refused.returncode == 1 and "no_such_key" in refused.stderr, refused.stderr
    refused = run(*SMALL, "optimizer.type=adagrad")
    assert refused.returncode == 1 and "only runs on the CPU" in refused.stderr, refused.stderr


main()

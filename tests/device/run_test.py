"""Whole runs on a GPU, by a program whose GPU is the emulated one.

Usage: run_test.py PROGRAM CONFIG WHAT [LIBRARY: the simulated NCCL]
WHAT: serial|killed|lost|learners|reviews|parts
"""
import array
import hashlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

KEYS = ["--plain", "replay.placement=gpu", "learner.device=cuda", "learner.batch_size=16",
        "replay.samples_per_insert=4", "replay.min_items=200", "replay.capacity_items=1500",
        "network.layers=[{type=\"linear\", units=16}]", "evaluator.every_s=1000",
        "evaluator.final_episodes=3", "seed=3"]
PATIENCE_S = 100


def start(program, config, name, *keys):
    return subprocess.Popen([program, "train", config, f"name={name}", *KEYS, *keys],
                            stdout=subprocess.DEVNULL)


def wait(process, wanted=0):
    code = process.wait(PATIENCE_S)
    assert code == wanted, f"{process.args} ended with {code}, not {wanted}"


def until(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S} s"
        time.sleep(0.02)


def bytes_of(run):
    """What the learner and the replay of a run that is done have left."""
    newest = max(p for p in (run / "checkpoints").iterdir() if p.is_dir())
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest()
            for p in newest.rglob("*.safetensors")}


def check(run, steps):
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == steps, result
    # Four samples to an item, 16 an update, from 200 items on: as the limiter allows.
    asked = 4 * steps / 16
    assert 0.85 * asked < result["updates"] < 1.05 * asked, result


def serial(program, config, folder):
    """Equal seeds give equal bytes; so does a run that was killed and resumed."""
    keys = ["fleet.mode=serial", "run.total_steps=4000", "checkpoint.every_updates=300"]
    for name in ("one", "two", "killed"):
        run = folder / "runs" / name
        process = start(program, config, name, *keys)
        if name == "killed":
            until("restore point", lambda r=run: any(r.glob("restore/*/point.json")))
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not (run / "result.json").exists(), "the run had ended before it was killed"
            process = subprocess.Popen([program, "resume", run, "--plain"],
                                       stdout=subprocess.DEVNULL)
        wait(process)
        check(run, 4000)
    files = [bytes_of(folder / "runs" / name) for name in ("one", "two", "killed")]
    assert files[0], "no weights"
    assert files[0] == files[1], "equal seeds give other bytes"
    assert files[0] == files[2], "a run that was killed and resumed gives other bytes"


def pid_of(launcher, role, index=0):
    """Of the process that plays a role."""
    children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
    for pid in children.split():
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if words[1:5] == ["role", role, "--index", str(index)]:
            return int(pid)
    raise AssertionError(f"no process of the {role}")


def killed(program, config, folder):
    """Learner and replay die by kill -9: the copy is rebuilt each time, and the run completes."""
    run = folder / "runs" / "dies"
    log = run / "logs" / "learner-0.log"
    process = start(program, config, "dies", "run.total_steps=9000", "checkpoint.every_s=0.5")

    def copies():
        text = log.read_text() if log.exists() else ""
        return text.count("GPU replay starts with item")

    for count, role in ((1, "learner"), (2, "replay")):
        until(f"copy {count}", lambda n=count: copies() >= n)
        time.sleep(0.5)
        os.kill(pid_of(process, role), signal.SIGKILL)
    until("third copy", lambda: copies() >= 3)
    wait(process)
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == 9000, result


def lost(program, config, folder):
    """A GPU that fails ends its role, not the run: a new learner resumes from a checkpoint."""
    run = folder / "runs" / "lost"
    os.environ["TROOP_FAILPOINT"] = f"learner.device:300:fail:{folder / 'hit'}"
    process = start(program, config, "lost", "run.total_steps=9000", "checkpoint.every_s=0.2")
    wait(process)
    assert (folder / "hit").exists(), "the GPU never failed"
    log = (run / "logs" / "learner-0.log").read_text()
    assert "updates are computed on GPU 0: " in log, log
    assert "learner.device: " in log and "failpoint learner.device" in log, log
    assert "resumed from checkpoints/" in log, log
    assert "rolled back to" not in log and "update skipped" not in log.split("resumed from")[1], log
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == 9000, result


def use_nccl(folder):
    """Where the loader looks for NCCL and for CUDA's driver, the simulated ones are."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in ("libnccl.so.2", "libcuda.so.1"):
        (libraries / name).symlink_to(sys.argv[4])
    os.environ["LD_LIBRARY_PATH"] = str(libraries)


def learners(program, config, folder):
    """Two on a GPU each sum gradients by (simulated) NCCL; one dies, and comes back to that."""
    use_nccl(folder)
    run = folder / "runs" / "two"
    process = start(program, config, "two", "replay.placement=host", "fleet.learners=2",
                    "run.total_steps=20000", "checkpoint.every_s=0.5")

    def meetings():
        log = run / "logs" / "learner-0.log"
        text = log.read_text() if log.exists() else ""
        return text.count("formed a group of 2 of 2 learners over NCCL")

    until("group", lambda: meetings() >= 1)
    time.sleep(0.5)
    os.kill(pid_of(process, "learner", 1), signal.SIGKILL)
    until("second group", lambda: meetings() >= 2)
    wait(process)
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == 20000, result


REVIEWS = """
version = 1
learner = {algorithm = "classifier", batch_size = 5}
run = {max_updates = 25, epochs = 1e6}
data = {max_length = 16, cache = ""}
model.hidden_size = 32
model.num_hidden_layers = 2
model.num_attention_heads = 4
model.max_position_embeddings = 24
model.dropout = 0.2
optimizer = {learning_rate = 1e-3}
evaluator = {enabled = false}
"""


def weights_of(run):
    """All floats of the model that a run has left."""
    data = (run / "model" / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    return array.array("f", data[begin:])


def train_reviews(program, config, folder, name, *keys):
    """Starts it."""
    fixtures = pathlib.Path(config).parent.parent / "tests/fixtures/supervised"
    (folder / "reviews.toml").write_text(REVIEWS)
    data = [f"data.reviews={fixtures}/reviews.csv", f"data.vocabulary={fixtures}/vocab.txt"]
    return subprocess.Popen([program, "train", "reviews.toml", "--plain", f"name={name}", *data,
                             *keys], stdout=subprocess.DEVNULL)


def left_by(folder, name, updates=25):
    """The weights of a run that has made its updates, and perhaps some that were lost."""
    result = json.loads((folder / "runs" / name / "result.json").read_text())
    assert result["updates"] >= updates, result
    assert result["checkpoint"] == f"checkpoints/{updates:012}", result
    return weights_of(folder / "runs" / name)


def check_course(weights, name, course):
    size = math.sqrt(sum(x * x for x in course))
    away = math.sqrt(sum((x - y) ** 2 for x, y in zip(weights, course))) / size
    assert away < 1e-3, f"{name}: {away} from the CPU's weights"


def log_of(folder, name, learner=0):
    path = folder / "runs" / name / "logs" / f"learner-{learner}.log"
    return path.read_text() if path.exists() else ""


def reviews(program, config, folder):
    """A text model takes one course on the CPU, on a GPU, and on two that sum their gradients."""
    use_nccl(folder)
    left = {}
    for name, keys in (("cpu", ["learner.device=cpu"]), ("gpu", ["learner.device=cuda"]),
                       ("gpus", ["learner.device=cuda", "mesh.dp=2"])):
        wait(train_reviews(program, config, folder, name, *keys))
        left[name] = left_by(folder, name)
    assert "formed a group of 2 of 2 learners over NCCL" in log_of(folder, "gpus")
    check_course(left["gpu"], "one GPU", left["cpu"])
    check_course(left["gpus"], "two GPUs", left["cpu"])
    assert left["cpu"] != left["gpu"], "GPU and CPU weights are bitwise equal; the GPU was not used"


def parts(program, config, folder):
    """And so does one in parts on GPUs: two models of two parts; one that loses a part by kill -9,
    which comes back; and one that is a worker of parameter shards."""
    use_nccl(folder)
    wait(train_reviews(program, config, folder, "cpu", "learner.device=cpu"))
    course = left_by(folder, "cpu")
    gpu = ["learner.device=cuda", "mesh.tp=2"]
    wait(train_reviews(program, config, folder, "mesh", *gpu, "mesh.dp=2",
                       "model.gradient_checkpointing=true"))
    assert "formed a group of 4 of 4 learners over NCCL" in log_of(folder, "mesh")
    check_course(left_by(folder, "mesh"), "two models of two parts", course)

    longer = "run.max_updates=40"
    wait(train_reviews(program, config, folder, "longer", "learner.device=cpu", longer))
    process = train_reviews(program, config, folder, "killed", *gpu, longer,
                            "checkpoint.every_s=1")
    checkpoints = folder / "runs" / "killed" / "checkpoints"
    until("checkpoint", lambda: checkpoints.exists() and any(checkpoints.iterdir()))
    os.kill(pid_of(process, "learner", 1), signal.SIGKILL)
    wait(process)
    assert log_of(folder, "killed").count("formed a group of 2 of 2 learners over NCCL") >= 2
    check_course(left_by(folder, "killed", 40), "a part that was killed",
                 left_by(folder, "longer", 40))

    shards = ["learner.sync=paramserver", "paramserver.shards=2"]
    wait(train_reviews(program, config, folder, "shards", *gpu, *shards))
    assert "over NCCL" in log_of(folder, "shards")
    wait(train_reviews(program, config, folder, "cpu_shards", "learner.device=cpu", *shards))
    check_course(left_by(folder, "cpu_shards"), "a worker of shards on a CPU", course)
    check_course(left_by(folder, "shards"), "a worker of shards", course)


def main():
    program, config, what = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tests = {"serial": serial, "killed": killed, "lost": lost, "learners": learners,
                 "reviews": reviews, "parts": parts}
        tests[what](program, config, pathlib.Path(folder))


main()

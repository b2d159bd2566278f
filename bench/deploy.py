"""Suite `deploy`: policies outside of a run, in C, from Python, and over HTTP."""
import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.request

import env
import harness
from harness import ROOT, BenchError, say


def library(build, quick, ours, peers):
    """libtroop_policy, and onnxruntime on the same exported networks."""
    python = harness.peers_python()
    if python is None:
        say("deploy library: peer absent: bench/run --install-peers")
    flags = ["--files", files(build), *(["--quick"] if quick else [])]
    env.in_turn("deploy library", lambda: env.take([build / "bench/deploy_bench", *flags], ours),
                python and (lambda: env.take([python, ROOT / "bench/peers/deploy_onnx.py", *flags],
                                             peers)),
                2 if quick else harness.ROUNDS)


def predict(build, quick, ours, peers):
    """policy.predict, and both peers in the same process."""
    python, variables = env.package_python("deploy predict", build)
    if python is None:
        return
    flags = ["--files", files(build), *(["--quick"] if quick else [])]
    harness.run_program([build / "bench/deploy_bench", *flags[:2], "--quick"], cores=1)
    program = [python, ROOT / "bench/peers/deploy_predict.py", *flags]
    env.in_turn("deploy predict", lambda: env.take(program, ours, peers, variables), None,
                1 if quick else harness.ROUNDS)


def files(build):
    """Folder of the exported networks."""
    folder = build.parent / "bench_deploy"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


SERVED = "configs/apex_cartpole.toml"
SERVED_STEPS = 5000
START_S = 60.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(words, port, core):
    """A server process on one core, once it answers; its URL."""
    process = subprocess.Popen(
        [str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=harness.start_environment(1), preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/v1/policy", timeout=1).close()
                break
            if process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"{words[0]} does not serve")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def best_rates(urls, form, quick):
    """Requests per second of each server at p99 <= 50 ms, in the order of `urls`. Raises
    BenchError: their answers differ."""
    words = [ROOT / "bench/deploy_serve.py", urls[0], "--form", form,
             "--seconds", 1 if quick else 3, "--clients-max", 128]
    words += ["--peer", urls[1]] if urls[1:] else []
    lines = harness.parse_lines(harness.run_program(words, cores=1))
    best = {line["url"]: line["best"] for line in lines if "best" in line}
    return [best[url]["requests_per_s"] if best[url] else 0.0 for url in urls]


def serve(build, quick, ours, peers):
    """troop serve and a Python server, each on one core; the load generator has another one."""
    cores = sorted(os.sched_getaffinity(0))
    python = harness.peers_python()
    if len(cores) < 2:
        say("deploy serve: needs two cores")
        return
    with tempfile.TemporaryDirectory(prefix="troop-bench-") as folder:
        run, model, troop = f"{folder}/served", f"{folder}/policy.onnx", build / "troop"
        harness.run_program([troop, "train", ROOT / SERVED, f'log.dir="{folder}"', 'name="served"',
                             f"run.total_steps={SERVED_STEPS}", "--plain"])
        harness.run_program([troop, "export", run, "--format", "onnx", "--out", model])
        with contextlib.ExitStack() as stack:
            port = free_port()
            words = [troop, "serve", run, "--listen", f"127.0.0.1:{port}"]
            urls = [stack.enter_context(server(words, port, cores[0]))]
            if python is None:
                say("deploy serve: peer absent: bench/run --install-peers")
            else:
                port = free_port()
                words = [python, ROOT / "bench/peers/serve_onnx.py", model, "--port", port]
                urls.append(stack.enter_context(server(words, port, cores[0])))
            for form in ("json", "binary"):
                for turn in range(1 if quick else 3):
                    begin = time.monotonic()
                    rates = best_rates(urls, form, quick)
                    for rate, into, peer in zip(rates, (ours, peers), (None, "fastapi")):
                        collect_rate(f"serve-cartpole-{form}", rate, into, peer)
                    say(f"deploy serve {form}: round {turn + 1}, {time.monotonic() - begin:.0f} s")


def collect_rate(case, rate, into, peer):
    """`check`: the load generator has compared the answers."""
    line = {"case": case, "metric": "requests_per_s", "unit": "requests/s", "values": [rate],
            "check": [1.0]}
    if peer:
        line |= {"peer": peer, "peer_version": json.loads(harness.run_program(
            [harness.peers_python(), "-c", "import fastapi, json; "
             "print(json.dumps(fastapi.__version__))"]))}
    harness.collect([line], into)


def texts(build, quick, ours, peers):
    """`troop predict --input` on the IMDB test reviews, with its start and loading, and
    transformers' pipeline without these; both on two cores."""
    python = harness.peers_python()
    if python is None:
        say("deploy texts: peer absent: bench/run --install-peers")
        return
    folder = files(build) / ("texts_quick" if quick else "texts")
    peer = [python, ROOT / "bench/peers/predict_texts.py", folder, *(["--quick"] if quick else [])]
    if not (folder / "texts.jsonl").exists():
        harness.run_program([*peer, "--make"])
    answers = folder / "answers.jsonl"
    command = [build / "troop", "predict", folder / "model", "--input", folder / "texts.jsonl",
               "--output", answers, "--threads", TEXT_CORES]

    def predict_all():
        begin = time.monotonic()
        harness.run_program(command, cores=TEXT_CORES)
        wall = time.monotonic() - begin
        lines = answers.read_text(encoding="utf-8").strip().split("\n")
        rows = [json.loads(line) for line in lines]
        names = list(rows[0]["probabilities"])
        harness.collect([{"case": "predict-texts", "metric": "time", "unit": "s", "values": [wall],
                          "check": [len(rows), *(row["probabilities"][names[1]]
                                                 for row in rows[:50])]}], ours)

    env.in_turn("deploy texts", predict_all,
                lambda: harness.collect(harness.parse_lines(harness.run_program(
                    peer, cores=TEXT_CORES, threads=TEXT_CORES)), peers),
                1 if quick else 3)


TEXT_CORES = 2
PARTS = {"library": library, "predict": predict, "serve": serve, "texts": texts}


def run(build, quick, machine, only=()):
    """`only`: names of parts; empty: all."""
    ours, peers = {}, {}
    for name, part in PARTS.items():
        if not only or name in only:
            part(build, quick, ours, peers)
    return harness.pair("deploy", ours, peers, machine)

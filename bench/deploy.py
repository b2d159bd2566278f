"""Suite `deploy`: policies outside of a run, in C and from Python."""
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
    python = harness.peers_python()
    if python is None:
        say("deploy predict: peers absent: bench/run --install-peers")
        return
    variables = {"PYTHONPATH": str(build / "python")}
    try:
        harness.run_program([python, "-c", "import troop"], cores=1, variables=variables)
    except BenchError as error:
        say(f"deploy predict: the package troop is absent: build the target troop_native ({error})")
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


PARTS = {"library": library, "predict": predict}


def run(build, quick, machine, only=()):
    """`only`: names of parts; empty: all."""
    ours, peers = {}, {}
    for name, part in PARTS.items():
        if not only or name in only:
            part(build, quick, ours, peers)
    return harness.pair("deploy", ours, peers, machine)

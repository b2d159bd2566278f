"""Suite `codec`: loss and wire size of gradient compression."""
import harness
from harness import ROOT

DIGITS = ROOT / "tests/fixtures/digits/digits.bin"
STEPS, QUICK_STEPS = 2000, 1000


def run(build, quick, machine):
    """Rows of each setting next to the dense run, and the speed of PyTorch at the same task."""
    picture = build / "codec.png" if quick else ROOT / "docs/images/codec.png"
    lines = harness.parse_lines(harness.run_program(
        [build / "bench/codec_bench", DIGITS, QUICK_STEPS if quick else STEPS, picture]))
    ours, peers = {}, {}
    harness.collect([line for line in lines if "peer" not in line], ours)
    harness.collect([line for line in lines if "peer" in line], peers)
    return harness.pair("codec", ours, peers, machine) + harness.take_turns(
        "codec", build / "bench/codec_bench", ROOT / "bench/peers/codec_peers.py", quick, machine)

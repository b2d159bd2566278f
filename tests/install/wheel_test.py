"""Builds a wheel, installs it where nothing of Troop or of a compiler is, and compares its results
with those of the build.

wheel_test.py SOURCE BUILD [WheelTest.TEST...]. The wheel is for Debian's Python; mmdebstrap makes
a fresh root of this Debian, in which only Python and the wheels of NumPy and Gymnasium are. Slow:
it compiles the program in SOURCE/build/wheel. Exit code 77: a tool is missing.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
USE = SOURCE / "tests/install/wheel_use.py"
PYTHON = "/usr/bin/python3"
LIMIT_MIB = 60
# Commands of the fresh root. /tmp/use is the folder of the runs.
THERE = """set -eu
for tool in cc gcc c++ cmake; do ! command -v $tool; done
! ls /usr/lib/x86_64-linux-gnu | grep -E 'zmq|dnnl|spdlog|fmt|sodium|archive|cairo|X11|fontconfig'
python3 -m venv /opt/agent
/opt/agent/bin/pip install --quiet --no-index --find-links /tmp/wheels 'troop[gym]'
PATH=/opt/agent/bin:$PATH
unset TROOP_PROGRAM TROOP_PYTHON_PATH PYTHONPATH
mkdir /tmp/use
python /tmp/wheel_use.py /tmp/use > /tmp/result.json
troop train /opt/agent/lib/python3*/site-packages/troop/share/troop/configs/apex_cartpole.toml \\
  --dry-run > /tmp/example.txt
"""


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False,
                          **options)
    if done.returncode:
        raise AssertionError(f"{command} ends with {done.returncode}:\n{done.stdout[-4000:]}"
                             f"{done.stderr[-4000:]}")
    return done.stdout


def sources():
    """Where this machine's apt gets Debian from."""
    apt = pathlib.Path("/etc/apt")
    files = [apt / "sources.list", *apt.glob("sources.list.d/*.list"),
             *apt.glob("sources.list.d/*.sources")]
    return [file for file in files if file.exists() and file.stat().st_size > 0]


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        cls.addClassCleanup(folder.cleanup)
        cls.work = pathlib.Path(folder.name)
        run(SOURCE / "tools/wheel", cls.work / "wheels", "--python", PYTHON)
        cls.wheel, = (cls.work / "wheels").glob("*.whl")
        with zipfile.ZipFile(cls.wheel) as archive:
            cls.names = archive.namelist()
        # A second installation on this machine, for what needs its tools.
        run(PYTHON, "-m", "venv", cls.work / "here")
        run(cls.work / "here/bin/pip", "install", "--quiet", cls.wheel)
        cls.package, = (cls.work / "here/lib").glob("python3*/site-packages/troop")

    def used_in_the_build(self):
        """The line of the build's own packages and program."""
        (self.work / "bin").mkdir()
        (self.work / "bin/troop").symlink_to(BUILD / "troop")
        (self.work / "use").mkdir()
        environment = {**os.environ, "TROOP_PROGRAM": str(BUILD / "troop"),
                       "PYTHONPATH": f"{BUILD / 'python'}:{SOURCE / 'python'}",
                       "PATH": f"{self.work / 'bin'}:{os.environ['PATH']}"}
        return json.loads(run(sys.executable, USE, self.work / "use", env=environment))

    def test_gives_the_results_of_the_build_in_an_empty_root(self):
        there = self.work / "there"
        there.write_text(THERE, encoding="utf-8")
        run(PYTHON, "-m", "venv", self.work / "pip")
        run(self.work / "pip/bin/pip", "download", "--quiet", "--only-binary=:all:", "-d",
            self.work / "wheels", "numpy", "gymnasium")
        release = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
        codename = re.search(r"^VERSION_CODENAME=(\w+)", release, re.M).group(1)
        run("mmdebstrap", "--mode=root", "--variant=apt", "--quiet", "--include=python3-venv",
            f"--customize-hook=copy-in {self.work}/wheels {there} {USE} /tmp",
            "--customize-hook=chroot \"$1\" sh /tmp/there",
            f"--customize-hook=copy-out /tmp/result.json /tmp/example.txt {self.work}",
            codename, "/dev/null", *sources())
        seen = json.loads((self.work / "result.json").read_text(encoding="utf-8"))
        expected = self.used_in_the_build()
        self.assertGreater(expected["trained"]["final_return"], 100)
        self.assertEqual(seen.keys(), expected.keys())
        for item, value in expected.items():
            with self.subTest(item):
                self.assertEqual(seen[item], value)
        self.assertIn("actor", (self.work / "example.txt").read_text(encoding="utf-8"))

    def test_has_one_platform_and_the_license_of_each_library(self):
        self.assertRegex(self.wheel.name,
                         r"^troop-[0-9.]+-cp(\d+)-cp\1-manylinux_2_36_x86_64\.whl$")
        self.assertLess(self.wheel.stat().st_size / 2**20, LIMIT_MIB)
        notices = {name.rpartition("/")[2] for name in self.names if "/licenses/" in name}
        self.assertLessEqual({"LICENSE", "THIRD_PARTY.md", "pybind11", "libcairo2-dev"}, notices)
        libraries = [name.rpartition("/")[2] for name in self.names if ".libs/lib" in name]
        self.assertGreater(len(libraries), 5)
        for library in libraries:
            original = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library)
            owner = run("dpkg", "-S", f"*/{original}").partition(":")[0]
            self.assertIn(owner, notices)

    def test_has_no_path_of_the_machine_that_built_it(self):
        for file in (self.package / "bin/troop", *self.package.glob("_native*.so")):
            self.assertFalse(f"{SOURCE}/python\0".encode() in file.read_bytes(), file)
            self.assertNotRegex(run("readelf", "-d", file), re.escape(str(SOURCE)))

    def test_runs_on_a_processor_without_avx2_and_says_so(self):
        emulator = shutil.which("qemu-x86_64")
        if emulator is None:
            self.skipTest("no qemu-x86_64 (Debian: qemu-user)")
        troop = (emulator, "-cpu", "Nehalem", self.package / "bin/troop")
        why = "plain kernels: this processor has no AVX2 with FMA and BMI2"
        self.assertIn(why, run(*troop, "doctor", cwd=self.work))
        config = self.package / "share/troop/configs/apex_cartpole.toml"
        words = ("train", config, "fleet.mode=serial", "run.total_steps=1500", "name=emulated",
                 "actor.warmup_steps=500", "replay.min_items=500", "evaluator.final_episodes=1")
        done = subprocess.run([*troop, *words], capture_output=True, text=True, check=False,
                              cwd=self.work)
        self.assertIn(why, done.stderr)
        self.assertIn("final score: ", done.stdout)
        origin = (self.work / "runs/emulated/provenance.jsonl").read_text(encoding="utf-8")
        self.assertEqual(json.loads(origin.splitlines()[0])["processor"]["kernels"], "plain")

    def test_pip_refuses_another_python(self):
        done = subprocess.run([self.work / "here/bin/pip", "install", "--no-index", "--no-deps",
                               "--python-version", "3.99", "--only-binary=:all:", "--target",
                               self.work / "target", self.wheel], capture_output=True, text=True,
                              check=False)
        self.assertIn("is not a supported wheel on this platform", done.stderr)

    def test_script_without_its_program_gets_one_line(self):
        shadow = self.work / "shadow"
        (shadow / "troop").mkdir(parents=True)
        done = subprocess.run([self.work / "here/bin/troop", "--version"], capture_output=True,
                              text=True, check=False, env={"PYTHONPATH": str(shadow)})
        self.assertEqual(done.returncode, 0, done.stderr)  # a plain folder hides nothing
        (shadow / "troop/__init__.py").touch()
        done = subprocess.run([self.work / "here/bin/troop", "--version"], capture_output=True,
                              text=True, check=False, env={"PYTHONPATH": str(shadow)})
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"troop: the program is not in {shadow}/troop", done.stderr)


def lacking():
    """What this machine lacks, as text; empty: nothing."""
    release = pathlib.Path("/etc/os-release")
    if not release.exists() or "ID=debian" not in release.read_text(encoding="utf-8"):
        return "it is not Debian"
    if os.geteuid() != 0:
        return "only root may make a root folder with all owners"
    return "no mmdebstrap" if shutil.which("mmdebstrap") is None else ""


if __name__ == "__main__":
    if lacking():
        print(f"skipped: {lacking()}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

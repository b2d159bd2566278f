"""Installs libtroop_policy, checks its interface, and uses it as other programs do.

policy_library_test.py SOURCE BUILD CMAKE. Exit code 77: a tool is missing.
"""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from installed_policy import install, run

SOURCE, BUILD, CMAKE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
CONSUMER = SOURCE / "tests/install/policy_consumer.cc"
C_CONSUMER = ["-x", "c", CONSUMER, "-x", "none"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
# Shared libraries of libc and libstdc++; libtroop_policy promises no other dependency.
NEEDED = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2",
          "ld-linux-aarch64.so.1"}
PROJECT = """cmake_minimum_required(VERSION 3.24)
project(robot LANGUAGES C)
find_package(troop_policy 1 REQUIRED)
foreach(target policy policy_static)
  add_executable(robot_${target} policy_consumer.c)
  target_link_libraries(robot_${target} PRIVATE troop::${target})
endforeach()
"""


def write_policy(path):
    """A linear policy with known values: q = (x, 2 y + 1, x - y) for the observation (x, y)."""
    layer = {"kind": "linear", "tensors": "head", "in": [2], "out": [3]}
    description = {"version": 1, "layers": [layer],
                   "observations": [{"name": "observation", "dtype": "f32", "shape": [2],
                                     "stack": 1}],
                   "actions": [{"name": "action", "kind": "discrete", "count": 3}]}
    header = json.dumps({
        "__metadata__": {"troop_policy": json.dumps(description)},
        "head.weight": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]},
        "head.bias": {"dtype": "F32", "shape": [3], "data_offsets": [24, 36]}}).encode()
    values = struct.pack("<9f", 1, 0, 0, 2, 1, -1, 0, 1, 0)
    path.write_bytes(struct.pack("<Q", len(header)) + header + values)


ANSWER = "1: 1 5 -1\n"


class PolicyLibraryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp())
        cls.prefix = cls.work / "installed"
        write_policy(cls.work / "known.safetensors")
        install(CMAKE, BUILD, cls.prefix)
        (cls.pkgconfig,) = cls.prefix.rglob("pkgconfig")
        cls.library = cls.pkgconfig.parent

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def answer_of(self, program, library=None):
        environment = dict(os.environ, LD_LIBRARY_PATH=str(library or self.library))
        self.assertEqual(run(program, self.work / "known.safetensors", env=environment), ANSWER)

    def flags(self, *arguments):
        # For a compiler that looks nowhere else.
        environment = dict(os.environ, PKG_CONFIG_PATH=str(self.pkgconfig))
        return run("pkg-config", *arguments, "troop_policy", env=environment).split()

    def test_component_has_only_the_files_of_the_library(self):
        names = {path.name for path in self.prefix.rglob("*") if not path.is_dir()}
        targets = {name for name in names if name.startswith("troop_policyTargets")}
        self.assertEqual(names - targets, {
            "troop_policy.h", "libtroop_policy.a", "libtroop_policy.so", "libtroop_policy.so.1",
            "libtroop_policy.so.1.0.0", "troop_policy.pc", "troop_policyConfig.cmake",
            "troop_policyConfigVersion.cmake"})
        self.assertTrue(targets)

    def test_exported_symbols_are_those_of_the_header(self):
        header = (self.prefix / "include/troop_policy.h").read_text()
        declared = {re.search(r"(\w+)\(", text).group(1)
                    for text in re.findall(r"^TROOP_POLICY_EXPORT ([^;]*\([^;]*);", header, re.M)}
        self.assertGreaterEqual(len(declared), 12)
        shared = self.library / "libtroop_policy.so"
        lines = run("nm", "-D", "--defined-only", shared).splitlines()
        (abi,) = re.findall(r"define TROOP_POLICY_ABI (\d+)", header)
        # Versions of the interface, which some linkers list as symbols: 1, and 1.1 with what was
        # added later.
        versions = {f"TROOP_POLICY_{abi}", f"TROOP_POLICY_{abi}.1"}
        exported = {line.split()[2].split("@")[0] for line in lines} - versions
        self.assertEqual(exported, declared)
        # Every symbol has a version of the interface, which the loader compares.
        for line in lines:
            if line.split()[2].split("@")[0] not in versions:
                self.assertIn(line.rpartition("@@")[2], versions)
        dynamic = run("objdump", "-p", shared)
        self.assertEqual(re.findall(r"SONAME +(\S+)", dynamic), [f"libtroop_policy.so.{abi}"])
        self.assertLessEqual(set(re.findall(r"NEEDED +(\S+)", dynamic)), NEEDED)

    def test_programs_are_built_with_pkg_config(self):
        shared, static = self.work / "shared", self.work / "static"
        run("cc", "-std=c99", *WARNINGS, *C_CONSUMER, "-o", shared,
            *self.flags("--cflags", "--libs"))
        self.answer_of(shared)
        run("c++", "-std=c++20", *WARNINGS, "-Wno-missing-field-initializers", CONSUMER, "-o",
            shared, *self.flags("--cflags", "--libs"))
        self.answer_of(shared)
        libraries = [flag.replace("-ltroop_policy", "-l:libtroop_policy.a")
                     for flag in self.flags("--static", "--libs")]
        run("cc", "-std=c99", *WARNINGS, *C_CONSUMER, "-o", static, *self.flags("--cflags"),
            *libraries)
        self.assertNotIn("troop_policy", run("objdump", "-p", static))
        self.answer_of(static, self.work)
        self.assertEqual(self.flags("--modversion"), ["1.0.0"])

    def test_program_is_built_with_cmake(self):
        project = self.work / "project"
        project.mkdir()
        shutil.copy(CONSUMER, project / "policy_consumer.c")
        (project / "CMakeLists.txt").write_text(PROJECT)
        run(CMAKE, "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_FLAGS={' '.join(WARNINGS)}")
        run(CMAKE, "--build", project / "build")
        for target in ("policy", "policy_static"):
            self.answer_of(project / "build" / f"robot_{target}")
        # The static library leaves nothing to be found at run time.
        static = project / "build/robot_policy_static"
        self.assertNotIn("troop_policy", run("objdump", "-p", static))

    def test_installed_folder_can_be_moved(self):
        moved = self.work / "moved"
        shutil.copytree(self.prefix, moved, symlinks=True)
        library = moved / self.library.relative_to(self.prefix)
        environment = dict(os.environ, PKG_CONFIG_PATH=str(library / "pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "troop_policy", env=environment).split()
        self.assertTrue(any(str(moved) in str(pathlib.Path(flag[2:]).resolve()) for flag in flags),
                        flags)
        run("cc", *C_CONSUMER, "-o", self.work / "after", *flags)
        self.answer_of(self.work / "after", library)


if __name__ == "__main__":
    for tool in ("pkg-config", "nm", "objdump", "cc", "c++"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)
    unittest.main(argv=sys.argv[:1])

"""The packages under a Python for which they have no extension module: one line says so."""
import importlib.machinery
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import troop

PACKAGES = pathlib.Path(troop.__file__).resolve().parents[1]


class OtherPythonTest(unittest.TestCase):
    def error_of(self, package, modules):
        """The last line of an import of a copy with these extension modules: {name: content}."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("troop", "troop_replay"):
                shutil.copytree(PACKAGES / name, pathlib.Path(folder) / name,
                                ignore=shutil.ignore_patterns("*.so", "__pycache__"))
                for module, content in modules.items():
                    (pathlib.Path(folder) / name / module).write_bytes(content)
            done = subprocess.run([sys.executable, "-c", f"import {package}"], cwd=folder,
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        return done.stderr.splitlines()[-1]

    def test_names_both_versions(self):
        for package in ("troop", "troop_replay"):
            self.assertRegex(
                self.error_of(package, {"_native.cpython-38-x86_64-linux-gnu.so": b""}),
                r"^ImportError: .* was built for cpython-38-x86_64-linux-gnu, this is "
                rf"{sys.implementation.cache_tag}; install the wheel of this Python")

    def test_source_tree_without_modules(self):
        for package in ("troop", "troop_replay"):
            self.assertRegex(self.error_of(package, {}), r"has no extension module .* source tree")

    def test_damaged_module_keeps_its_own_error(self):
        suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
        self.assertRegex(self.error_of("troop_replay", {"_native" + suffix: b"nothing"}),
                         r"^ImportError: .*_native.*: (file too short|invalid ELF header)")


if __name__ == "__main__":
    unittest.main()

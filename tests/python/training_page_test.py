"""The snippets of docs/guide/training_from_python.md run. The keys that it and the page for users
of other libraries name exist."""
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import troop
from page import GUIDE, blocks

NEEDS = ("gymnasium",)
PAGES = ("training_from_python", "coming_from_other_libraries")


class TrainingPageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)

    def test_the_snippets_run_in_order(self):
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            for name in ("train", "results", "policy"):
                (code,) = blocks(name, PAGES[0])
                exec(compile(code, name, "exec"), names)  # pylint: disable=exec-used
        self.assertGreaterEqual(names["run"].result["steps"], 7000)
        self.assertEqual(names["action"].shape, ())
        self.assertEqual(names["q"].shape, (2,))
        self.assertGreaterEqual(names["mean"], 1)

    def test_the_environment_is_a_script(self):
        (code,) = blocks("environment", PAGES[0])
        with open("corridor.py", "w", encoding="utf-8") as file:
            file.write(code)
        package = os.path.dirname(os.path.dirname(troop.__file__))
        run = subprocess.run([sys.executable, "corridor.py"], capture_output=True, text=True,
                             check=False, timeout=120, env={**os.environ, "PYTHONPATH": package})
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout.splitlines()[-1], r"^\(-[0-9.]+, [0-9.]+\)$")

    def keys(self):
        """The names of all keys, by the program."""
        output = subprocess.run([os.environ["TROOP_PROGRAM"], "config", "--keys"],
                                capture_output=True, text=True, check=True).stdout
        return set(output.split())

    def test_every_named_key_is_a_key(self):
        keys, found = self.keys(), set()
        sections = {key.partition(".")[0] for key in keys} - {"run"}  # run is also a variable
        for page in PAGES:
            text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
            codes = re.findall(r"`([^`\n]+)`", text)
            codes += re.findall(r"```python\n(.*?)```", text, re.S)
            # Dotted words that begin with a section and are no call of a method, also as settings.
            word = re.compile(r"(?<![\w./])([a-z]\w*?(?:(?:\.|__)[a-z]\w*?)+)(?![\w(])")
            for code in codes:
                for key in (found_word.replace("__", ".") for found_word in word.findall(code)):
                    budget = re.match(r"run\.(total_steps|max_updates|epochs)", key)
                    if budget or key.partition(".")[0] in sections:
                        found.add(key)
        self.assertEqual(found - keys, set())
        self.assertGreater(len(found), 45)

    def test_the_column_of_keys_names_only_keys_and_code(self):
        keys = self.keys()
        sections = {key.partition(".")[0] for key in keys}
        text = (GUIDE / f"{PAGES[1]}.md").read_text(encoding="utf-8")
        cells = re.findall(r"^\| (?!---).*? \| (.*?) \|.*$", text, re.M)
        self.assertGreater(len(cells), 60)
        for code in (code for cell in cells for code in re.findall(r"`([^`]+)`", cell)):
            key = code.partition(" = ")[0]
            python = "(" in code or code.startswith(("run.metrics", "troop ")) \
                or code in ("env=", "env_kwargs=")
            self.assertTrue(key in keys or key in sections or python, code)


if __name__ == "__main__":
    unittest.main()

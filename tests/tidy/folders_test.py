#!/usr/bin/env python3
"""The rule `folders` over a small tree, each with one planted violation, and without."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import folders  # noqa: E402  pylint: disable=wrong-import-position

TABLE = """| folder | sub-folders, lowest first |
|---|---|
| `core/` | base < storage, tensor < config |
"""


class FoldersTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.files = []
        self.write("docs/architecture.md", TABLE)
        self.write("core/core.h", "")
        self.write("core/base/status.h", "")
        self.write("core/storage/file.h", '#include "core/base/status.h"\n#include "core/core.h"\n')
        self.write("core/config/parse.cc", '#include "core/storage/file.h"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.files.append(path)

    def expect(self, *parts):
        found = folders.check_folders(self.root, dict.fromkeys(self.files))
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_includes_down_the_ladder_pass(self):
        self.expect()

    def test_includes_up_and_across_fail(self):
        self.write("core/base/status.h", '\n#include "core/config/parse.h"\n')
        self.write("core/tensor/t.h", '#include "core/storage/file.h"\n')
        self.expect("core/base/status.h:2: base/ includes core/config/parse.h",
                    "core/tensor/t.h:1: tensor/ includes core/storage/file.h")

    def test_an_interface_of_the_root_includes_no_sub_folder(self):
        self.write("core/core.h", '#include "core/base/status.h"\n')
        self.expect("core/core.h:1: includes core/base/status.h")

    def test_composition_in_the_root_may_include_all(self):
        self.write("core/make.cc", '#include "core/config/parse.h"\n')
        self.expect()

    def test_unknown_sub_folders_fail(self):
        self.write("core/more/m.cc", "")
        self.expect("core/more/ is not in the table")

    def test_crowded_folders_and_shared_names_fail(self):
        for i in range(31):
            self.write(f"tests/core/t{i}_test.cc", "")
        self.write("core/tensor/file.h", "")
        self.expect("tests/core:1: 31 files",
                    "core/tensor/file.h:1: has the name of core/storage/file.h")

    def test_a_kernel_may_be_called_as_its_cpu_twin(self):
        self.write("docs/architecture.md", TABLE.replace("< config", "< config < cuda"))
        self.write("core/cuda/file.h", "")
        self.expect()

    def test_a_page_without_the_table_fails(self):
        self.write("docs/architecture.md", "no table\n")
        self.expect("no table `| folder |")


if __name__ == "__main__":
    unittest.main()

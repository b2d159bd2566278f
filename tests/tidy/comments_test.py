#!/usr/bin/env python3
"""The rule `comments` over a small tree, with planted violations, and without."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import comments  # noqa: E402  pylint: disable=wrong-import-position


def text_of(comment_lines, code_lines):
    """Comments and code, with empty lines, which do not count."""
    return "// why\n\n" * comment_lines + "  int a;\n\n" * code_lines


class CommentsTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.files = []
        self.write("core/a.cc", text_of(10, 90))
        self.write("core/a.h", text_of(20, 80))

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path not in self.files:
            self.files.append(path)

    def expect(self, *parts):
        found = list(comments.check_comments(self.root, self.files))
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)
        return found

    def test_shares_at_the_limits_pass(self):
        self.expect()

    def test_a_comment_names_only_files_that_exist(self):
        self.write("core/b.cc", "// As in a.h, x_avx2.cc and cuda.h.\n" * 20)
        self.expect()
        self.write("core/b.cc", "// As in gone.h.\n" + "// why\n" * 20)
        self.expect("core/b.cc:1: names gone.h, which does not exist")

    def test_one_comment_too_few_fails(self):
        self.write("core/a.cc", text_of(9, 90))
        self.expect("core/a.cc:1: 9 of 99 lines of sources are comments (9.09%), must be at least "
                    "10%")
        self.write("core/a.h", text_of(19, 80))
        self.expect("of sources", "core/a.h:1: 19 of 99 lines of headers")

    def test_the_share_is_that_of_all_files(self):
        self.write("net/bare.cc", text_of(0, 50))
        self.write("net/rich.cu", text_of(10, 40))
        self.expect()

    def test_a_comment_after_code_is_a_line_of_code(self):
        self.write("core/a.cc", text_of(9, 90) + "int b;  // why\n")
        self.expect("9 of 100 lines of sources")

    def test_the_ten_lowest_files_are_named(self):
        for i in range(12):
            self.write(f"replay/f{i:02}.cc", text_of(i, 90))
        found = self.expect("replay/f00.cc:1:")
        self.assertIn("replay/f09.cc (9 of 99)", found[0])
        self.assertNotIn("replay/f10.cc", found[0])

    def test_tables_declarations_and_other_folders_do_not_count(self):
        self.write("datasets/tokenizers/unicode_data.cc", text_of(0, 1000))
        self.write("replay/replay_config.cc", text_of(0, 1000))
        self.write("tests/core/a_test.cc", text_of(0, 1000))
        self.write("bench/a.cc", text_of(0, 1000))
        self.expect()

    def test_the_header_of_a_section_counts(self):
        self.write("replay/replay_config.h", text_of(0, 100))
        self.expect("replay/replay_config.h:1: 20 of 200 lines of headers")


if __name__ == "__main__":
    unittest.main()

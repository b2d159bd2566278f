#!/usr/bin/env python3
"""unity_groups.py puts test files together whose names do not clash."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import unity_groups  # noqa: E402  pylint: disable=wrong-import-position


class UnityGroupsTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def groups(self, **texts):
        paths = []
        for name, text in texts.items():
            paths.append(self.root / f"{name}_test.cc")
            paths[-1].write_text(text, encoding="utf-8")
        return sorted([path.stem[:-5] for path in group] for group in
                      unity_groups.groups_of(paths))

    def test_up_to_four_files_are_joined(self):
        files = {name: f"TEST({name}Test, Holds) {{}}\n" for name in "abcde"}
        self.assertEqual(self.groups(**files), [["a", "b", "c", "d"], ["e"]])

    def test_files_that_define_the_same_name_are_apart(self):
        for definition in ("constexpr int kMany = 3;", "struct Fixture {", "using Kind = int;",
                           "int Sum(int a,\n        int b) {", "std::vector<int> Sum(int a) {",
                           "const std::vector<int> kMany = {1};", "#define SUM 3",
                           "class Sum final : public Base {", "namespace fs = std::filesystem;"):
            self.assertEqual(self.groups(a=definition + "\n", b="// x\n" + definition + "\n"),
                             [["a"], ["b"]], definition)

    def test_a_file_that_calls_what_another_defines_otherwise_is_apart(self):
        self.assertEqual(self.groups(a="int Sum(int a) {\n", b="TEST(B, C) {\n  Sum({.a = 1});\n"),
                         [["a"], ["b"]])

    def test_names_inside_of_functions_do_not_count(self):
        text = "TEST(XTest, Holds) {\n  constexpr int kMany = 3;\n}\n"
        self.assertEqual(self.groups(a=text, b=text), [["a", "b"]])

    def test_a_namespace_that_hides_that_of_googletest_is_apart(self):
        self.assertEqual(self.groups(a="namespace troop::testing {\n", b="TEST(B, C) {}\n"),
                         [["a"], ["b"]])

    def test_groups_of_the_same_files_are_the_same(self):
        paths = sorted(pathlib.Path(unity_groups.ROOT / "tests/core").glob("*_test.cc"))
        self.assertEqual(unity_groups.groups_of(paths), unity_groups.groups_of(paths[::-1]))
        self.assertEqual(sorted(path for group in unity_groups.groups_of(paths) for path in group),
                         paths)


if __name__ == "__main__":
    unittest.main()

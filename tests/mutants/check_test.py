#!/usr/bin/env python3
"""check.py and patches.py are shown a small repository with one planted violation, and without."""
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check  # noqa: E402  pylint: disable=wrong-import-position
import patches  # noqa: E402  pylint: disable=wrong-import-position

SOURCE = "int Half(int x) {\n  return x / 2;\n}\n\nint Twice(int x) {\n  return x * 2;\n}\n"
TEST = "TEST(MathTest, HalfIsHalf) {}\nTEST_P(MathPathTest, TwiceIsTwice) {}\n"
PATCH = """Half of a number is a third of it.
Test: core.MathTest.HalfIsHalf
Program: core_test
--- a/core/math.cc
+++ b/core/math.cc
@@ -1,3 +1,3 @@
 int Half(int x) {
-  return x / 2;
+  return x / 3;
 }
"""


class CheckTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("core/math.cc", SOURCE)
        self.write("tests/core/math_test.cc", TEST)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, patch, *parts, mutants_min=0):
        self.write("tests/mutants/core_half.patch", patch)
        found = check.problems_of(self.root, mutants_min)
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_a_patch_that_fits_passes_and_gives_the_faulty_text(self):
        self.expect(PATCH)
        mutant = patches.load(self.root / "tests/mutants")[0][0]
        self.assertEqual(mutant.gtest_filter, "MathTest.HalfIsHalf")
        self.assertEqual(patches.apply(mutant, self.root),
                         {"core/math.cc": SOURCE.replace("x / 2", "x / 3")})

    def test_numbers_of_lines_do_not_count(self):
        self.write("core/math.cc", "// A line more.\n" + SOURCE)
        self.expect(PATCH)

    def test_an_instance_of_a_parameterised_test_is_found(self):
        name = "core.EachPath/MathPathTest.TwiceIsTwice/plain"
        self.expect(PATCH.replace("core.MathTest.HalfIsHalf", name))

    def test_a_parameterised_test_without_its_parameter_fails(self):
        for name in ("MathPathTest.TwiceIsTwice", "EachPath/MathPathTest.TwiceIsTwice"):
            self.expect(PATCH.replace("MathTest.HalfIsHalf", name), f"no test {name}")

    def test_a_line_that_changed_since_fails(self):
        self.write("core/math.cc", SOURCE.replace("x / 2", "x >> 1"))
        self.expect(PATCH, "core_half: its lines are in core/math.cc 0 times")

    def test_lines_that_are_there_twice_fail(self):
        self.write("core/math.cc", SOURCE + SOURCE)
        self.expect(PATCH, "core_half: its lines are in core/math.cc 2 times")

    def test_a_file_that_is_gone_fails(self):
        (self.root / "core/math.cc").unlink()
        self.expect(PATCH, "core/math.cc is no more")

    def test_a_fault_in_a_test_fails(self):
        self.write("tests/core/math.cc", SOURCE)
        self.expect(PATCH.replace("/core/", "/tests/core/"), "which is no product code")

    def test_a_test_that_does_not_exist_fails(self):
        self.expect(PATCH.replace("HalfIsHalf", "HalfIsNone"), "no test MathTest.HalfIsNone")

    def test_a_test_of_another_program_fails(self):
        self.expect(PATCH.replace("core_test", "net_test"), "is not a test of net_test")

    def test_a_patch_without_its_lines_fails(self):
        self.expect(PATCH.replace("Test: ", "Tests: "), "write one line `Test: ...`")
        self.expect(PATCH.partition("\n")[2], "say in a sentence")
        self.expect(PATCH.partition("---")[0], "has no diff")

    def test_a_damaged_diff_fails(self):
        self.expect(PATCH.replace("-1,3 +1,3", "-1,4 +1,4"), "numbers of lines are wrong")
        self.expect(PATCH.replace("+  return", "  return"), "numbers of lines are wrong")
        self.expect(PATCH + "more\n", "is no part of a unified diff")

    def test_more_than_one_fault_fails(self):
        added = PATCH.replace("-1,3 +1,3", "-1,3 +1,6").replace("x / 3;\n", "x / 3;\n+\n+\n+\n")
        self.expect(added, "changes 5 lines, more than 4")

    def test_too_few_mutants_fail(self):
        self.expect(PATCH, "1 mutants, fewer than 2", mutants_min=2)


if __name__ == "__main__":
    unittest.main()

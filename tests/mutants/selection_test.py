#!/usr/bin/env python3
"""Slices, changed files and earlier results choose the mutants that they should."""
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import patches  # noqa: E402  pylint: disable=wrong-import-position
import selection  # noqa: E402  pylint: disable=wrong-import-position


def mutant(name, path="core/math.cc", test="core.MathTest.HalfIsHalf"):
    return patches.Mutant(name, "A fault.", test, test.partition(".")[0] + "_test",
                          [(path, ["a"], ["b"])])


class SelectionTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("core/math.cc", "a\n")
        self.write("core/other.cc", "a\n")
        self.write("tests/core/math_test.cc", "TEST(MathTest, HalfIsHalf) {}\n")
        self.write("tests/core/other_test.cc", "TEST(OtherTest, HalfIsHalfOfTwice) {}\n")
        self.write("tests/contracts/math_contract.h", "TEST_P(MathContract, SumIsSum) {}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def test_slices_have_every_mutant_once(self):
        mutants = [mutant(f"m{i}", test=f"{'abc'[i % 3]}.T.N") for i in range(11)]
        for n in (1, 2, 3, 11, 20):
            slices = [selection.slice_of(mutants, f"{k}/{n}") for k in range(1, n + 1)]
            self.assertEqual(sorted(m.name for part in slices for m in part),
                             sorted(m.name for m in mutants))
            self.assertLessEqual(max(map(len, slices)) - min(map(len, slices)), 1)

    def test_slices_that_are_none_are_refused(self):
        for text in ("0/3", "4/3", "1", "1/0", "a/b", "1/2/3", "-1/3"):
            with self.assertRaisesRegex(selection.WrongSlice, "K from 1 to N"):
                selection.slice_of([], text)

    def test_a_change_has_the_mutants_of_its_patches_sources_and_tests(self):
        mutants = [mutant("half"),
                   mutant("other", "core/other.cc", "core.OtherTest.HalfIsHalfOfTwice"),
                   mutant("sum", "core/math.cc", "core.All/MathContract.SumIsSum/plain")]

        def names(*paths):
            return [each.name for each in selection.changed(mutants, paths, self.root)]
        self.assertEqual(names("core/math.cc"), ["half", "sum"])
        self.assertEqual(names("tests/core/other_test.cc"), ["other"])
        self.assertEqual(names("tests/contracts/math_contract.h"), ["sum"])
        self.assertEqual(names("tests/mutants/half.patch", "README.md"), ["half"])
        self.assertEqual(names("core/none.cc"), [])

    def results(self):
        return selection.Results(self.root / "results.jsonl", self.root)

    def test_a_killed_mutant_is_remembered_until_something_of_it_changes(self):
        half = mutant("half")
        self.assertFalse(self.results().killed(half))
        self.results().add(half, True, "crashed")
        self.assertTrue(self.results().killed(half))
        self.assertFalse(self.results().killed(mutant("sum")))
        other = patches.Mutant(half.name, half.sentence, half.test, half.program,
                               [("core/math.cc", ["a"], ["c"])])
        self.assertFalse(self.results().killed(other))
        self.write("core/math.cc", "a\n// more\n")
        self.assertFalse(self.results().killed(half))
        self.write("core/math.cc", "a\n")
        self.write("tests/core/math_test.cc", "TEST(MathTest, HalfIsHalf) { more(); }\n")
        self.assertFalse(self.results().killed(half))

    def test_a_survivor_is_run_again(self):
        half = mutant("half")
        self.results().add(half, True, "")
        self.results().add(half, False, "SURVIVED")
        self.assertFalse(self.results().killed(half))

    def test_a_line_that_was_cut_off_is_no_result(self):
        half = mutant("half")
        self.results().add(half, True, "")
        with open(self.root / "results.jsonl", "a", encoding="utf-8") as file:
            file.write('{"mutant": "half", "key": "')
        self.assertTrue(self.results().killed(half))


if __name__ == "__main__":
    unittest.main()

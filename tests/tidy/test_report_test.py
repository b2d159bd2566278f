#!/usr/bin/env python3
"""tools/test_report.py counts the tests of ctest and GoogleTest, and refuses unnamed skips."""
import contextlib
import io
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import test_report  # noqa: E402  pylint: disable=wrong-import-position

CTEST = """<testsuite>
<testcase name="net.part_0" time="2.5" status="{part}">{failure}</testcase>
<testcase name="system.Fleet" time="7" status="run"/>
<testcase name="install.bundle" time="0" status="notrun"><skipped message="x"/></testcase>
</testsuite>"""
GTEST = """<testsuites><testsuite>
<testcase name="Holds" classname="WireTest" status="run" result="completed" time="0.25"/>
<testcase name="Golden" classname="WireTest" status="run" result="{golden}">{skip}</testcase>
</testsuite></testsuites>"""


class ReportTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.write("allowed.txt", "install[.].*  # needs a tool\n")
        self.write("report.xml", CTEST.format(part="run", failure=""))

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def judge(self):
        """(exit code, what it prints)."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = test_report.main([str(self.folder / "allowed.txt"),
                                     str(self.folder / "report.xml")])
        return code, printed.getvalue()

    def test_a_program_without_a_report_of_its_own_is_one_test(self):
        code, text = self.judge()
        self.assertEqual(code, 0)
        self.assertIn("2 passed, 0 failed, 1 skipped", text)

    def test_tests_of_a_program_are_counted_one_by_one(self):
        self.write("gtest/net.part_0.xml", GTEST.format(golden="completed", skip=""))
        self.assertIn("3 passed, 0 failed, 1 skipped", self.judge()[1])
        self.assertEqual(list(test_report.results(self.folder / "report.xml"))[0],
                         ("net.WireTest.Holds", "passed", 0.25))

    def test_a_skip_inside_a_program_must_be_allowed(self):
        self.write("gtest/net.part_0.xml", GTEST.format(golden="skipped", skip="<skipped/>"))
        code, text = self.judge()
        self.assertEqual(code, 1)
        self.assertIn("skipped: net.WireTest.Golden: NOT ALLOWED", text)
        self.write("allowed.txt", "install[.].*  # needs a tool\nnet[.].*Golden  # needs data\n")
        self.assertEqual(self.judge()[0], 0)

    def test_a_failure_inside_a_program_is_named(self):
        self.write("report.xml", CTEST.format(part="fail", failure="<failure/>"))
        self.write("gtest/net.part_0.xml", GTEST.format(golden="completed", skip="<failure/>"))
        code, text = self.judge()
        self.assertEqual(code, 1)
        self.assertIn("failed: net.WireTest.Golden\n", text)
        self.assertIn("2 passed, 1 failed, 1 skipped", text)

    def test_a_program_that_fails_after_its_tests_have_passed_fails(self):
        self.write("report.xml", CTEST.format(part="fail", failure="<failure/>"))
        self.write("gtest/net.part_0.xml", GTEST.format(golden="completed", skip=""))
        code, text = self.judge()
        self.assertEqual(code, 1)
        self.assertIn("failed: net.part_0\n", text)

    def test_a_skip_needs_its_reason(self):
        self.write("allowed.txt", "install[.].*\n")
        with self.assertRaises(SystemExit):
            self.judge()


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""tools/build_times.py reads ninja's log and warns of what grew."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import build_times  # noqa: E402  pylint: disable=wrong-import-position

# A program with a precompiled header, built at 1000 s; b.o was built again at 2000 s.
LOG = """# ninja log v5
0\t4000\t1000000000000\tpch.hxx.gch\t1
4000\t6500\t1000000000000\ta.o\t2
4000\t5000\t1000000000000\tb.o\t3
6500\t7000\t1000000000000\tliba.a\t4
6500\t7000\t1000000000000\tliba.list\t4
0\t3000\t2000000000000\tb.o\t3
3000\t3250\t2000000000000\tprogram\t5
"""


class BuildTimesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.log, self.history = self.folder / ".ninja_log", self.folder / "ci.jsonl"
        # The processors worked for half as long as the steps took, and on two builds.
        (self.folder / "builds.jsonl").write_text(
            '{"begin": 1000, "seconds": 5.15}\n{"begin": 2000, "seconds": 1.625}\n',
            encoding="utf-8")
        self.log.write_text(LOG, encoding="utf-8")
        self.times = {"stage": "dev", "probe": 2.0, "compile": 100, "link": 10, "test": 50,
                      "wall": 90, "tests": 7, "objects": 3, "links": 2, "cold": True}

    def test_steps_are_summed_once_each(self):
        self.assertEqual(build_times.build_figures(self.folder, 900),
                         {"compile": 6.3, "link": 0.5, "objects": 3, "links": 2, "cold": True})

    def test_steps_of_earlier_builds_do_not_count(self):
        self.assertEqual(build_times.build_figures(self.folder, 1500),
                         {"compile": 1.5, "link": 0.1, "objects": 1, "links": 1, "cold": False})

    def test_another_file_is_refused(self):
        self.log.write_text("nothing\n", encoding="utf-8")
        with self.assertRaises(build_times.TimesError):
            build_times.build_figures(self.folder, 0)

    def record(self, **changes):
        rows = build_times.rows_of({**self.times, **changes}, "abc", "2026-01-02")
        with open(self.history, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def warnings(self, **changes):
        return build_times.warnings({**self.times, **changes}, self.history)

    def test_growth_of_more_than_a_fifth_is_named(self):
        self.record()
        self.assertEqual(self.warnings(), [])
        self.assertEqual(self.warnings(compile=119), [])
        found = self.warnings(compile=130, test=70)
        self.assertEqual(len(found), 2, found)
        self.assertIn("compile of dev took 130 s, 30 % more than at commit abc", found[0])
        self.assertIn("test of dev took 70 s, 40 % more", found[1])
        self.assertEqual(self.warnings(stage="asan", compile=500), [])

    def test_a_slower_machine_is_no_growth(self):
        self.record()
        self.assertEqual(self.warnings(probe=4.0, compile=200, link=20, test=100), [])
        self.assertEqual(len(self.warnings(probe=1.0, compile=100)), 2)   # and test, by as much

    def test_a_build_of_few_objects_is_not_compared(self):
        self.record(compile=10)
        self.assertEqual(self.warnings(cold=False), [])

    def test_the_newest_record_counts(self):
        self.record()
        self.record(compile=200)
        self.assertEqual(self.warnings(compile=210), [])


if __name__ == "__main__":
    unittest.main()

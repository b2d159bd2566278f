#!/usr/bin/env python3
"""The rule `parameters` is shown functions with too many parameters, and such with few enough."""
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import parameters  # noqa: E402  pylint: disable=wrong-import-position

SIX = "int a, int b, int c, int d, int e, int f"


class ParametersTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, *parts, most=0):
        tracked = [path for path in self.root.rglob("*") if path.is_file()]
        found = parameters.check_parameters(self.root, tracked, most)
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_five_parameters_pass(self):
        self.write("kernels/a.h", "void F(int a, std::map<int, int> b, int c, int d, int e);\n"
                                  "void G();\n")
        self.expect()

    def test_six_parameters_fail(self):
        self.write("kernels/a.h", f"\nvoid F({SIX});\n")
        self.expect("kernels/a.h:2: F has 6 parameters, more than 5")

    def test_members_definitions_templates_and_kernels_are_found(self):
        self.write("nn/a.h", f"class A {{\n  explicit A({SIX});\n  int F({SIX}) const;\n}};\n")
        self.write("nn/b.cc", f"int A::F({SIX}) const {{}}\ntemplate <class T>\nvoid G({SIX}) {{\n")
        self.write("nn/c.cu", f"TROOP_KERNEL void K(int a, // one\n       {SIX}) {{\n")
        self.expect("nn/a.h:2: A", "nn/a.h:3: F", "A::F has 6", "G has 6", "nn/c.cu:1: K has 7")

    def test_calls_and_other_folders_are_not_checked(self):
        self.write("nn/a.cc", "void F() {\n  G(1, 2, 3, 4, 5, 6);\n  return G(1, 2, 3, 4, 5, 6);\n"
                              "  CHECK(a, b, c, d, e, f);\n}\n"
                              "// void H(int, int, int, int, int, int);\n")
        self.write("apps/a.h", f"void F({SIX});\n")
        self.expect()

    def test_exception_needs_a_reason(self):
        self.write("nn/a.h", f"void F({SIX});\n")
        self.write(parameters.ALLOWED, "# comment\nnn/a.h F registers\n")
        self.expect(most=1)
        self.write(parameters.ALLOWED, "nn/a.h F\n")
        self.expect("write `path function reason`", "F has 6", most=1)

    def test_exception_that_is_not_needed_fails(self):
        self.write("nn/a.h", "void F(int a);\n")
        self.write(parameters.ALLOWED, "nn/a.h F registers\n")
        self.expect("F has at most 5 parameters: delete the line", most=1)

    def test_list_of_exceptions_may_not_grow(self):
        self.write("nn/a.h", f"void F({SIX});\nvoid G({SIX});\n")
        self.write(parameters.ALLOWED, "nn/a.h F registers\nnn/a.h G registers\n")
        self.expect("2 exceptions, more than 1: the list may only shrink", most=1)


if __name__ == "__main__":
    unittest.main()

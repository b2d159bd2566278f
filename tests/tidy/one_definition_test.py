#!/usr/bin/env python3
"""The rule `types` sees two types of one name, and takes nothing else for them."""
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import tidy  # noqa: E402  pylint: disable=wrong-import-position


class OneDefinitionTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("nn/module.h", "namespace troop {\n\nstruct Plan {\n  struct Step {};\n};\n}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, text, *parts, name="collective/plan.h"):
        """With a file of this text there are these violations, and no other."""
        self.write(name, text)
        found = tidy.violations("types", self.root)
        self.assertEqual(len(found), len(parts), (text, found))
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_two_headers(self):
        self.expect("namespace troop {\nclass Plan final : public Base<int> {\n};\n}\n",
                    "nn/module.h:3: defines troop::Plan, as collective/plan.h:2 does")

    def test_a_header_and_a_source(self):
        self.expect("namespace troop {\nnamespace {\nint F() { return 1; }\n}\n"
                    "struct Plan {};\n}\n",
                    "nn/module.h:3: defines troop::Plan, as a.cc:5 does", name="a.cc")

    def test_nested_namespaces(self):
        self.expect("namespace troop {\nnamespace cuda {\nstruct Plan {};\n}\n}\n")
        self.expect("namespace troop::cuda {\nunion Plan {};\n}\n",
                    "defines troop::cuda::Plan, as", name="kernels/plan.h")

    def test_what_is_not_for_other_files(self):
        self.expect("namespace troop {\nnamespace {\nstruct Plan {};\n}\n}\n")
        self.expect("namespace troop {\nclass Engine {\n  struct Plan {};\n};\n}\n")
        self.expect("namespace troop {\nvoid F() {\n  struct Plan {};\n}\n}\n")

    def test_what_is_no_definition(self):
        self.expect("namespace troop {\nstruct Plan;\nstruct Plan::Step {};\n"
                    "Plan F() { return {}; }\n"
                    "// struct Plan {\n#define PLAN struct Plan {\n}\n")

    def test_makes_of_which_one_is_linked(self):
        text = "namespace troop {\nstruct State {};\n}\n"
        self.write("kernels/cuda/device_cuda.cu", text)
        self.expect(text, name="kernels/cuda/device_emulated.cc")
        self.expect(text, "kernels/cuda/device_emulated.cc:2", "kernels/cuda/x.h:2",
                    name="kernels/cuda/x.h")


if __name__ == "__main__":
    unittest.main()

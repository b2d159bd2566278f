#!/usr/bin/env python3
"""Each rule of tidy.py is shown a small repository with one planted violation, and one without."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import tidy  # noqa: E402  pylint: disable=wrong-import-position

TABLE = """| level | folder | may include | says |
|---|---|---|---|
| 0 | `core/` | – | values |
| 1 | `net/` | core | messages |
| 1 | `text/` | core | words |
| 2 | `replay/` | core, net | experience |
| 3 | `actors/` | everything above except text | makes experience |
| 4 | `apps/` | all | the program |

| # | where | what |
|---|---|---|
| 1 | `core/` | a table that is not the ladder |
"""


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("docs/architecture.md", TABLE)
        self.write("core/good.h", "#pragma once\n#include <vector>\ninline std::vector<int> G();\n")
        self.write("core/good.cc", '#include "core/good.h"\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def commands(self, *files):
        self.write("compile_commands.json", json.dumps([
            {"file": str(self.root / file), "command": f"c++ -std=c++20 -c {file}"}
            for file in files]))

    def expect(self, rule, *parts):
        found = tidy.violations(rule, self.root, self.root)
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_allowed_includes_pass(self):
        self.write("apps/a.cc", '#include "actors/a.h"\n#include "text/t.h"\n')
        self.write("net/n.cc", '#include <zmq.hpp>\n#include "core/good.h"\n')
        self.write("tests/net/n_test.cc", '#include <zmq.h>\n#include "apps/a.h"\n')
        self.expect("layers")

    def test_include_of_a_higher_folder_fails(self):
        self.write("net/n.cc", '#include "core/good.h"\n#include "replay/table.h"\n')
        self.expect("layers", "net/n.cc:2: net/ includes replay/table.h")

    def test_include_of_a_neighbour_fails(self):
        self.write("net/n.h", '#include "text/t.h"\n')
        self.expect("layers", "may include only: core")

    def test_exception_of_everything_above_is_obeyed(self):
        self.write("actors/a.cc", '#include "replay/t.h"\n#include "text/t.h"\n')
        self.expect("layers", "actors/a.cc:2: actors/ includes text/t.h")

    def test_wrapped_library_elsewhere_fails(self):
        self.write("core/c.cc", "#include <zmq.hpp>\n#include <cereal/cereal.hpp>\n")
        self.expect("layers", "<zmq.hpp> may be included only in net/", "cereal")

    def test_unknown_folder_fails(self):
        self.write("utils/u.cc", "\n")
        self.expect("layers", "utils/ is not in the table")

    def test_product_code_that_includes_tests_fails(self):
        self.write("core/c.cc", '#include "tests/testing/fake.h"\n')
        self.expect("layers", "no part of it")

    def test_include_that_is_not_from_the_root_fails(self):
        self.write("core/c.cc", '#include "good.h"\n')
        self.expect("layers", 'from the root: "core/good.h"')

    def test_ways_round_the_ladder_fail(self):
        self.write("core/c.cc", '#include "../apps/x.h"\n#include /**/ "apps/x.h"\n'
                                '/* x */ # include <apps/y.h>\n#include "core/../apps/x.h"\n')
        self.expect("layers", "core/c.cc:1: ../apps/x.h goes round", "core/c.cc:2: core/ includes",
                    "core/c.cc:3: core/ includes", "core/c.cc:4: core/../apps/x.h goes round")

    def test_code_by_other_names_climbs_neither(self):
        self.write("core/c.hpp", '#include "apps/x.h"\n')
        self.write("core/k.cu", '#include "apps/x.h"\n')
        self.expect("layers", "core/c.hpp:1: core/ includes", "core/k.cu:1: core/ includes")
        self.commands("core/good.cc")
        self.expect("files", "core/c.hpp:1: code ends in .h or .cc")

    def test_the_public_header_and_examples_have_the_names_of_their_users(self):
        self.write("envs/plugin/troop/environment.hpp", "#pragma once\n#include <vector>\n")
        self.write("examples/c/tank.c", "int x;\n")
        self.commands("core/good.cc")
        self.expect("files")
        self.expect("headers")
        self.write("envs/plugin/troop/environment.hpp", "std::string Bad();\n")
        self.expect("files", "environment.hpp:1: a header needs #pragma once")
        self.expect("headers", "environment.hpp:1: does not compile alone")

    def test_table_that_climbs_is_refused(self):
        self.write("docs/architecture.md", TABLE.replace("| 1 | `net/` | core |",
                                                         "| 1 | `net/` | replay |"))
        with self.assertRaises(SystemExit):
            tidy.violations("layers", self.root)

    def test_header_that_needs_another_first_fails(self):
        self.commands("core/good.cc")
        self.expect("headers")
        self.write("core/bad.h", "#pragma once\ninline std::string Bad();\n")
        self.expect("headers", "core/bad.h:1: does not compile alone")
        # Known good headers are remembered, but not once a header that they include has changed.
        self.write("core/bad.h", '#pragma once\n#include "core/good.h"\n')
        self.expect("headers")
        self.write("core/good.h", "#pragma once\nBroken\n")
        self.expect("headers", "core/bad.h")
        # A header that some source includes first is compiled there; one that comes later, here.
        self.write("core/good.cc", '#include "core/bad.h"\n#include "core/good.h"\n')
        self.expect("headers", "core/good.h")
        self.write("core/good.cc", "")
        self.write("tests/core/x_test.cc", '#include "core/bad.h"\n')
        self.expect("headers", "core/bad.h", "core/good.h")

    def test_clean_files_pass(self):
        self.commands("core/good.cc")
        self.expect("files")

    def test_long_file_fails_without_its_reason(self):
        self.commands("core/good.cc")
        self.write("core/long.h", "#pragma once\n" + "int x();\n" * 700)
        self.expect("files", "core/long.h:601: 701 lines")
        self.write("core/long.h", f"#pragma once\n// {tidy.REASON} it is a table.\n" +
                   "int x();\n" * 700)
        self.expect("files")

    def test_bad_lines_fail(self):
        self.commands("core/good.cc")
        self.write("core/bad.h", "#pragma once\n\tint a;\nint b; \n// TODO later\n" +
                   "int " + "c" * 100 + ";\n// no newline")
        self.expect("files", "a tab", "space at the end", "no TODO", "105 columns", "no newline")

    def test_header_without_pragma_once_fails(self):
        self.commands("core/good.cc")
        self.write("core/bad.h", "int a();\n")
        self.expect("files", "#pragma once")

    def test_source_in_no_target_fails(self):
        self.commands("core/good.cc")
        self.write("core/deep/dead.cc", "\n")
        self.expect("files", "core/deep/dead.cc:1: in no target")

    @unittest.skipUnless(tidy.clang_format(), "needs clang-format 14")
    def test_source_in_another_format_fails(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.expect("format")
        self.write("core/bad.h", "#pragma once\nint  a ( );\n")
        self.expect("format", "core/bad.h:2: not formatted: run clang-format")
        self.write("core/bad.h", "#pragma once\n// clang-format off\nint  a ( );\n")
        self.expect("format")

    def test_readme_that_differs_from_the_results_fails(self):
        shutil.copytree(HERE.parents[1] / "bench", self.root / "bench",
                        ignore=shutil.ignore_patterns("__pycache__", "*.cc"))
        shutil.copytree(HERE.parents[1] / "configs", self.root / "configs")
        sys.path.insert(0, str(self.root / "bench"))
        import games  # pylint: disable=import-outside-toplevel
        import readme  # pylint: disable=import-outside-toplevel
        results = self.root / "bench/results"
        headlines = readme.headlines_of(results)
        good = f"{readme.HEADLINES_BEGIN}\n{headlines}\n{readme.HEADLINES_END}\n"
        numbers = f"{readme.BEGIN}\n{readme.numbers_of(results)}\n{readme.END}\n"
        self.write("README.md", good)
        self.write("docs/benchmarks.md", numbers)
        evidence = f"{readme.GAMES_BEGIN}\n{games.document()}\n{readme.GAMES_END}\n"
        self.write("docs/design/evidence.md", evidence)
        self.expect("readme")
        self.write("README.md", good.replace("83.1×", "83.2×"))
        self.expect("readme", "README.md:1: its numbers differ")
        self.write("README.md", "no numbers\n")
        self.expect("readme", "README.md:1: the markers")
        room = 150 - len(good.splitlines())
        self.write("README.md", good + "line\n" * room)
        self.expect("readme")
        self.write("README.md", good + "line\n" * (room + 1))
        self.expect("readme", "README.md:151: 151 lines, the limit is 150: move text to docs/")
        self.write("README.md", good)
        self.write("docs/benchmarks.md", f"{readme.BEGIN}\n| 7 |\n{readme.END}\n")
        self.expect("readme", "docs/benchmarks.md:1: its numbers differ")
        self.write("docs/benchmarks.md", "no numbers\n")
        self.expect("readme", "docs/benchmarks.md:1: the markers")
        self.write("docs/benchmarks.md", numbers)
        self.write("docs/design/evidence.md", evidence.replace("9.2", "9.3"))
        self.expect("readme", "docs/design/evidence.md:1: its numbers differ")


if __name__ == "__main__":
    unittest.main()

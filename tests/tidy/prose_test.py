#!/usr/bin/env python3
"""The rule `prose` over small files, each with planted violations, and without."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import prose  # noqa: E402  pylint: disable=wrong-import-position

GOOD = """// Returns the number of items. True if there is none.
int Count();  // thread safe
// The same sum is used twice, as before.
inline constexpr char kText[] = "there is no such table";
"""


class ProseTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def expect(self, name, text, *parts):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        found = list(prose.check_prose(self.root, [path]))
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_plain_sentences_pass(self):
        self.expect("core/a.h", GOOD.replace("The same sum", "One sum"))

    def test_fragments_at_the_beginning_of_a_comment_are_found(self):
        self.expect("core/a.h", "// Of all items.\nint a;  // What is left\n",
                    "core/a.h:1: begins with Of", "core/a.h:2: begins with What")
        self.expect("core/b.h", GOOD, "core/b.h:3: begins with The")

    def test_a_continued_line_may_begin_with_any_word(self):
        self.expect("core/a.h", "// Counts the items\n// of all tables.\n// As before.\n")

    def test_personification_is_found_in_comments_and_messages(self):
        self.expect("net/a.cc", '// Nobody waits.\nLog("the role is told to stop");\n',
                    "write name the component", "a.cc:2:")
        self.expect("net/c.cc", "// A client that was told one shape.\nbool told = asked;\n"
                    "// The server knows it.\n// It is asked once.\n// What you know.\n",
                    "c.cc:1:", "c.cc:3:", "c.cc:4:")
        self.expect("tools/c.py", "print(f\"{told['registered']} of {told.count}\")\n")
        self.expect("net/b.cc", "int who_ever;  // the learner goes on\n", "b.cc:1:")

    def test_code_includes_and_identifiers_are_not_prose(self):
        self.expect("net/a.cc", '#include "net/anew.h"\nint anew = beside;\n')

    def test_pages_and_scripts_are_read(self):
        self.expect("docs/a.md", "It begins anew.\n\n```\nanew\n```\n`anew`\n", "docs/a.md:1:")
        self.expect("tools/a.py", '"""Runs for ever."""\nx = 1  # by now\n', "a.py:1:", "a.py:2:")
        self.expect("configs/a.toml", "# beside it\na = 1\n", "a.toml:1:")

    def test_marked_lines_and_persons_pass(self):
        self.expect("core/a.h", "int a;  // beside: quoted  tidy: prose\n")
        self.expect("docs/a.md", "For readers who know Reverb.\n")


if __name__ == "__main__":
    unittest.main()

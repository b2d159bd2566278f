#!/usr/bin/env python3
"""The rule `docs` over small sets of pages, each with one planted violation, and one without."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import docs_links  # noqa: E402  pylint: disable=wrong-import-position

README = "# Project\n\nSee [the guide](docs/guide/use.md#two-steps--more).\n"
GUIDE = """# Use

How to use it.

![picture](../images/a.png) and [back](../../README.md), [code](../../core/), [web](https://x.y/z)

## Two steps & more

`[not a link](nowhere.md)`

```
# no heading
[not a link](nowhere.md)
```
"""


class DocsLinksTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("README.md", README)
        self.write("docs/guide/use.md", GUIDE)
        self.write("docs/images/a.png", "")
        self.write("core/a.h", "")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, *parts):
        files = [path for path in sorted(self.root.rglob("*")) if path.is_file()]
        found = list(docs_links.check_docs(self.root, files))
        self.assertEqual(len(found), len(parts), found)
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_sound_pages_pass(self):
        self.expect()

    def test_dead_link_fails(self):
        self.write("README.md", README + "[gone](docs/gone.md)\n")
        self.expect("README.md:4: links to docs/gone.md, which does not exist")

    def test_link_to_a_moved_page_of_another_folder_fails(self):
        self.write("docs/guide/use.md", GUIDE + "[x](other.md)\n")
        self.write("docs/design/other.md", "# Other\n\nText.\n")
        self.expect("docs/guide/use.md:15: links to other.md",
                    "docs/design/other.md:1: no page that README.md leads to links here")

    def test_dead_anchor_fails(self):
        self.write("README.md", README.replace("#two-steps--more", "#three-steps"))
        self.expect("README.md:3: docs/guide/use.md has no heading for the anchor #three-steps")
        self.write("README.md", README + "\n[here](#nothing)\n")
        self.expect("README.md:5: README.md has no heading for the anchor #nothing")

    def test_heading_within_code_is_no_anchor(self):
        self.write("README.md", README.replace("#two-steps--more", "#no-heading"))
        self.expect("no heading for the anchor #no-heading")

    def test_second_heading_of_one_text_has_a_number(self):
        self.write("docs/guide/use.md", GUIDE + "\n## Two steps & more\n")
        self.write("README.md", README.replace("--more", "--more-1"))
        self.expect()
        self.write("README.md", README.replace("--more", "--more-2"))
        self.expect("#two-steps--more-2")

    def test_page_that_nothing_links_to_fails(self):
        self.write("docs/alone.md", "# Alone\n\nText; [itself](alone.md).\n")
        self.expect("docs/alone.md:1: no page that README.md leads to links here")

    def test_pages_that_only_link_to_each_other_fail(self):
        self.write("docs/a.md", "# A\n\n[b](b.md).\n".replace("[", "See ["))
        self.write("docs/b.md", "# B\n\nSee [a](a.md).\n")
        self.expect("docs/a.md:1: no page", "docs/b.md:1: no page")

    def test_picture_that_no_page_shows_fails(self):
        self.write("docs/images/old.png", "")
        self.expect("docs/images/old.png:1: no page shows this picture")

    def test_page_without_a_purpose_fails(self):
        for text in ("# Use\n\n## Two steps & more\n", "# Use\n\n```\nx\n```\n", "How to use it.\n",
                     "# Use\n\n| a | b |\n|---|---|\n"):
            self.write("docs/guide/use.md", text + "\n![p](../images/a.png)\n")
            self.write("README.md", README.replace("#two-steps--more", ""))
            self.expect("docs/guide/use.md:1: begin with a title and a sentence")
        self.write("docs/guide/use.md", "# Use\n\n<!-- made -->\n\nHow.\n\n![p](../images/a.png)\n")
        self.expect()


if __name__ == "__main__":
    unittest.main()

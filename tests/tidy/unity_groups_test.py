#!/usr/bin/env python3
"""unity_groups.py joins files, and renames what clashes."""
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "cmake"))
import unity_groups  # noqa: E402  pylint: disable=wrong-import-position


CLASHES = ("constexpr int kMany = 3;", "struct Helper {", "using Kind = int;",
           "int Sum(int a,\n        int b) {", "std::vector<int> Sum(int a) {",
           "const std::vector<int> kMany = {1};", "class Sum final : public Base {",
           "enum Kind {\n", "enum { kFew = 2, kMany };", "auto Sum(int a) -> int {",
           "[[noreturn]] void Sum(int a) {", "std::vector<int> many;", "int many = f(3);")


def private(text):
    return f"namespace {{\n\n{text}\n\n}}  // namespace\n"


class UnityGroupsTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def paths(self, texts):
        paths = []
        for name, text in texts.items():
            paths.append(self.root / f"{name}_test.cc")
            paths[-1].write_text(text, encoding="utf-8")
        return paths

    def groups(self, **texts):
        return sorted([source.path.stem[:-5] for source in group] for group in
                      unity_groups.groups_of(self.paths(texts)))

    def text(self, **texts):
        group, = unity_groups.groups_of(self.paths(texts))
        return unity_groups.unity_text(group).replace(f"{self.root}/", "")

    def test_files_are_joined_up_to_a_number_of_lines(self):
        half = "\n" * (unity_groups.LINES // 2)
        self.assertEqual(self.groups(a=half, b=half, c=half), [["a", "b"], ["c"]])

    def test_headers_come_first_and_once(self):
        text = self.text(a="#include <b>\n#include <a>\n#if X\n#include <x>\n#endif\n",
                         b="#include <b>\n")
        self.assertEqual(text, '#include <a>\n#include <b>\n\n#include "a_test.cc"\n\n'
                               '#include "b_test.cc"\n')

    def test_a_private_name_that_another_file_mentions_is_renamed(self):
        self.assertEqual(self.text(a=private("int Sum(int a) {"), b="TEST(B, C) { Sum(1); }\n"),
                         '\n#define Sum a_test_Sum\n#include "a_test.cc"\n#undef Sum\n'
                         '\n#include "b_test.cc"\n')

    def test_every_kind_of_definition_is_found(self):
        for definition in CLASHES:
            text = self.text(a=private(definition), b=private("// x\n" + definition))
            self.assertRegex(text, r"(?m)^#define (\w+) a_test_\1$", definition)
            self.assertRegex(text, r"(?m)^#define (\w+) b_test_\1$", definition)

    def test_every_name_that_a_statement_declares_is_found(self):
        # A name that was missed would be taken for one of a header's, without a word.
        for one in ("constexpr std::int64_t kFew = 6, kMany = 5;",
                    "constexpr Time kFew = Time{2} + f(1, 2), kMany = Time{} + Seconds(5);",
                    "const std::array<int, 2> kFew{1, 2}, kMany = {1};",
                    "enum Kind : int { kFew = 2, kMany };"):
            self.assertIn("#define kMany a_test_kMany",
                          self.text(a=private(one), b="TEST(B, C) { f(kMany); }\n"), one)

    def test_what_a_value_mentions_is_not_declared(self):
        for one in ("const Time kMany = Time{} + Seconds(5);", "Time* many = nullptr;",
                    "const auto kMany = [] {\n  f(Time{}, Seconds(5));\n  return nullptr;\n}();"):
            text = self.text(a=private(one), b="TEST(B, C) { f(Time{}, Seconds(5), nullptr); }\n")
            self.assertNotIn("#define", text)

    def test_a_private_name_that_another_file_includes_is_renamed(self):
        for declared in ("struct Sum {", "int Sum(int a);", "inline int Sum(int a) {",
                         "constexpr int Sum = 3;", "enum class Sum {"):
            (self.root / "sum.h").write_text(declared, encoding="utf-8")
            (self.root / "other.h").write_text(f'#include "{self.root}/sum.h"\n', encoding="utf-8")
            unity_groups.header.cache_clear()
            text = self.text(a=private("int Sum(char a) {"), b=f'#include "{self.root}/other.h"\n')
            self.assertIn("#define Sum a_test_Sum\n", text, declared)
            self.assertNotIn("b_test_Sum", text)

    def test_a_private_overload_of_what_its_header_declares_keeps_its_name(self):
        (self.root / "sum.h").write_text("int Sum(int a);", encoding="utf-8")
        own = f'#include "{self.root}/sum.h"\n' + private("int Sum(char a) {")
        self.assertEqual(self.groups(a=own, b=private("int Sum(char a) {")), [["a"], ["b"]])

    def test_what_a_file_uses_of_a_namespace_keeps_its_name(self):
        for using in ("using enum Kind;", "using namespace worker;", "using worker::Kind;"):
            self.assertNotIn("#define", self.text(a=private(using), b="Kind worker;\n"))

    def test_the_entry_points_of_fuzz_targets_are_renamed_even_alone(self):
        text = self.text(a='extern "C" int LLVMFuzzerTestOneInput(int x) {\n')
        self.assertIn("#define LLVMFuzzerTestOneInput a_test_LLVMFuzzerTestOneInput\n", text)
        text = self.text(a="void VisitSeeds(int x) {\n", b="void VisitSeeds(int x) {\n")
        self.assertIn("#define VisitSeeds a_test_VisitSeeds\n", text)
        self.assertIn("#define VisitSeeds b_test_VisitSeeds\n", text)

    def test_what_other_files_may_call_keeps_its_name(self):
        self.assertNotIn("#define", self.text(a="int Sum(int a) {\n}\n", b="int Sum(int a);\n"))

    def test_names_inside_of_functions_do_not_count(self):
        text = private("TEST(XTest, Holds) {\n  constexpr int kMany = 3;\n}")
        self.assertNotIn("#define", self.text(a=text, b=text))

    def test_a_file_whose_name_cannot_be_renamed_is_apart(self):
        for kept in ("#define SUM 3", "int Sum() {\n  return x.Sum();", "int Sum() {\n  x->Sum();",
                     "int Sum() {\n  return y::Sum();", "class Sum {\n};\nTEST_F(Sum, Holds) {",
                     "void PrintTo(int x) {"):
            text = private(kept)
            self.assertEqual(self.groups(a=text, b=text), [["a"], ["b"]], kept)

    def test_groups_of_the_same_files_are_the_same(self):
        paths = sorted(pathlib.Path(unity_groups.ROOT / "tests/core").rglob("*_test.cc"))

        def names(order):
            return [[source.path for source in group] for group in unity_groups.groups_of(order)]
        self.assertEqual(names(paths), names(paths[::-1]))
        self.assertEqual(sorted(path for group in names(paths) for path in group), paths)

    def test_a_file_that_does_not_change_is_not_written_again(self):
        paths = self.paths({"a": "TEST(A, B) {}\n"})
        unity_groups.main(self.root, "all", paths)
        written = (self.root / "all_0.cc").stat().st_mtime_ns
        unity_groups.main(self.root, "all", paths)
        self.assertEqual((self.root / "all_0.cc").stat().st_mtime_ns, written)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The rule `includes` sees a missing #include, and takes nothing else for one."""
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import includes  # noqa: E402  pylint: disable=wrong-import-position
import tidy  # noqa: E402  pylint: disable=wrong-import-position

TABLE = """#pragma once
#define TROOP_TABLE_MAX 7
namespace troop {
struct Plain;
class [[nodiscard]] Table final : public Base<int> {
 public:
  Table() : rows_{1}, size_(2) {}
  struct Options { int rows = 0; };
  void Insert(int row);
  enum class Kind { kFast, kSlow };
};
template <class T>
concept Tabular = true;
using Rows = int;
typedef double Doubles __attribute__((vector_size(8)));
enum Side { kLeft, kRight };
inline constexpr int kRowsMax = 7, kRowsMin = int(kRowsMax) - 1;
std::vector<int> MakeTable(const Table::Options& options, int rows = 3);
template <class T>
int SumOf(T x) { return Hidden(x); }
MAKE_TABLE(LongTable)
namespace cuda {
void Fill(float* x);
}
}  // namespace troop
"""


class IncludesTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("replay/table.h", TABLE)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def expect(self, text, *parts, name="apps/a.cc"):
        """A file of this text has these violations, and no other."""
        self.write(name, text)
        found = tidy.violations("includes", self.root)
        self.assertEqual(len(found), len(parts), (text, found))
        for line, part in zip(found, parts):
            self.assertIn(part, line)

    def test_a_name_of_each_kind_fails_without_its_header(self):
        for use in ("const Table& table();", "Rows Count();", "int a = kRowsMax;",
                    "int a = kRowsMin;", "Side side;", "int a = kRight;", "auto a = MakeTable({});",
                    "Doubles a;", "int a[TROOP_TABLE_MAX];", "template <Tabular T> int F(T t);",
                    "int a = SumOf(3);", "int a = LongTable(3);", "cuda::Fill(x);",
                    "auto a = ::troop::MakeTable({});", "void F() { return MakeTable({}); }",
                    "class B : public Table {};", "if (a && SumOf(a)) {}"):
            self.expect(f"int x;\n{use}\n", "apps/a.cc:2: uses ")
            self.expect(f'#include "replay/table.h"\nint x;\n{use}\n')

    def test_the_message_names_the_header_and_the_first_use(self):
        self.expect("/* a\nb */\nint a = 1'000;\nTable* table;\nTable* other;\nRows rows;\n",
                    "apps/a.cc:4: uses Table of replay/table.h, which nothing here includes",
                    "apps/a.cc:6: uses Rows of replay/table.h")

    def test_a_header_that_does_not_stand_alone_fails(self):
        self.expect("#pragma once\nTable Copy();\n", "apps/a.h:2: uses Table", name="apps/a.h")

    def test_an_include_of_an_include_counts_and_circles_end(self):
        self.write("replay/tables.h", '#pragma once\n#include "replay/table.h"\n')
        self.expect('#include "replay/tables.h"\nTable table;\n')
        self.write("replay/a.h", '#include "replay/b.h"\n')
        self.write("replay/b.h", '#include "replay/a.h"\n')
        self.expect('#include "replay/a.h"\nTable* table;\n', "uses Table")

    def test_a_forward_declaration_is_enough_for_a_pointer(self):
        self.expect("namespace troop {\nclass Table;\nvoid Use(const Table& a, Table* b);\n"
                    "std::unique_ptr<Table> c;\n}\n")
        self.write("replay/use.h", "namespace troop {\nclass Table;\nvoid Use(Table* table);\n}\n")
        self.expect('#include "replay/use.h"\nvoid F(Table* table) { Use(table); }\n')

    def test_a_forward_declaration_is_not_enough_for_what_needs_the_definition(self):
        self.write("replay/use.h", "namespace troop {\nclass Table;\nvoid Use(Table* table);\n}\n")
        for use in ("Table table;", "Table::Options options;", "auto a = Table{};",
                    "auto a = std::make_unique<Table>();", "class B : public Table {};"):
            self.expect(f'#include "replay/use.h"\n{use}\n', "apps/a.cc:2: uses Table")

    def test_friends_need_no_header(self):
        self.expect("class A {\n  friend class Table;\n};\n")

    def test_what_is_no_use_passes(self):
        for text in ("// Table and kRowsMax\n", "/* Table\n   Rows */\n",
                     'const char* a = "Table \\" Rows";\n', 'auto a = R"(Table " Rows)";\n',
                     "int a = x.SumOf(3) + y->MakeTable(4);\n", "auto a = other::Table();\n",
                     "auto a = Other<int>::Rows();\n", "int a = Mine::kRowsMax;\n",
                     "struct kRowsMaximum {};\n"):
            self.expect(text)

    def test_a_name_that_the_file_declares_itself_passes(self):
        for text in ("struct Table {};\nTable table;\n", "using Rows = int;\nRows rows;\n",
                     "int SumOf(int a) { return a; }\nint b = SumOf(1);\n",
                     "void F() {\n  constexpr int kRowsMin = 1, kRowsMax = 2;\n  G(kRowsMax);\n}\n",
                     "template <int kRowsMax>\nint F() { return kRowsMax; }\n",
                     "template <class Rows>\nvoid F(Rows rows);\n",
                     "enum class Mine { kLeft };\nusing enum Mine;\nauto a = kLeft;\n",
                     "void F() {\n  struct Table { int a; };\n  Table table;\n}\n",
                     "const auto SumOf = [](int a) { return a; };\nint b = SumOf(1);\n"):
            self.expect(text)

    def test_a_member_of_that_name_that_the_file_reaches_is_not_the_other(self):
        self.write("core/base.h", "class Parent {\n protected:\n  int SumOf(int a);\n"
                                  "  struct Rows { int a; };\n};\n")
        self.expect('#include "core/base.h"\nint Mine::F() { Rows r; return SumOf(3); }\n')

    def test_members_and_enumerators_of_a_class_are_no_names_of_their_own(self):
        self.expect("Options a;\nInsert(3);\nauto b = kFast;\nHidden(4);\n")

    def test_a_name_of_an_inner_namespace_is_not_that_of_the_outer(self):
        self.write("kernels/fill.h", "namespace troop {\nvoid Fill(float* x);\n}\n")
        self.expect('#include "kernels/fill.h"\nvoid F() { cuda::Fill(x); }\n',
                    "uses Fill of replay/table.h")
        self.expect('#include "kernels/fill.h"\nvoid F() { Fill(x); }\n')

    def test_names_of_tests_bind_tests_alone(self):
        self.write("tests/fake.h", "namespace troop::testing {\nstruct FakeTable {};\n}\n")
        self.expect("FakeTable table;\n")
        self.expect("", name="apps/a.cc")
        self.expect("testing::FakeTable table;\n", "tests/a_test.cc:1: uses FakeTable",
                    name="tests/a_test.cc")

    def test_a_standard_header_that_is_missing_fails(self):
        self.expect("int x;\nstd::mt19937 random;\n",
                    "apps/a.cc:2: uses mt19937 of <random>, which nothing here includes")
        self.expect("#include <random>\nstd::mt19937 random;\n")
        self.write("core/random.h", "#include <random>\n")
        self.expect('#include "core/random.h"\nstd::mt19937 random;\n')
        self.expect("// std::mt19937\nmt19937 a;\nstd::list_of b;\nstd::vector<int> c;\n")

    def test_a_posix_header_that_is_missing_fails(self):
        for use in ("return ::poll(a, 1, 2);", "if (poll(a, 1, 2) < 0) return;", "a = POLLIN;"):
            self.expect(f"{use}\n", " of <poll.h>")
            self.expect(f"#include <poll.h>\n{use}\n")
        self.expect("int poll(int a);\nx.poll(1);\nx->poll(1);\nX::poll(1);\nepoll(1);\n")

    def test_a_header_that_does_as_well_counts(self):
        self.expect("#include <signal.h>\nstd::raise(3);\n")
        self.expect("#include <csignal>\nvoid F() { kill(1, 2); }\n")

    def test_each_standard_name_has_one_header(self):
        for table in (includes.STANDARD, includes.POSIX, includes.CONSTANTS):
            names = " ".join(table.values()).split()
            self.assertEqual(sorted(names), sorted(set(names)))


if __name__ == "__main__":
    unittest.main()

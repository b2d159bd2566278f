#include "apps/cluster/yaml_writer.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(YamlTest, WritesBlockStyle) {
  Yaml list = Yaml::List({Yaml::Map({{"name", "a"}, {"port", 53}}), "b"});
  list.Append(Yaml::List({1, 2}));
  const Yaml all = Yaml::Map({{"list", list},
                              {"empty", Yaml::Map({})},
                              {"none", Yaml::List({})},
                              {"right", true},
                              {"text", Yaml::Text("x = 1\n\n  [y]\n")},
                              {"deep", Yaml::Map({{"er", Yaml::Map({{"still", "x"}})}})}});
  EXPECT_EQ(all.str(), R"(list:
  - name: "a"
    port: 53
  - "b"
  -
    - 1
    - 2
empty: {}
none: []
right: true
text: |
  x = 1

    [y]
deep:
  er:
    still: "x"
)");
}

// YAML 1.1 takes some words for booleans, and 1e3 for a number.
TEST(YamlTest, QuotesStrings) {
  Yaml map;
  for (const char* const word : {"no", "y", "1e3", "a: b", "", "# c", "- d"}) map.Add(word, word);
  EXPECT_EQ(map.Add("line\nbreak", "\"\n").str(), R"("no": "no"
"y": "y"
"1e3": "1e3"
"a: b": "a: b"
"": ""
"# c": "# c"
"- d": "- d"
"line\u000abreak": "\"\u000a"
)");
}

}  // namespace
}  // namespace troop

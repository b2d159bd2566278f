// Options of extensions: values by type and range, and the errors of mistyped ones.
#include "core/config/option_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

using testing::HasSubstr;

const std::vector<EnvOption>& Options() {
  static const std::vector<EnvOption> options{{"deep", EnvOption::Json{"[1, 2]"}},
                                              {"flag", true},
                                              {"name", std::string("x y")},
                                              {"rate", 0.5},
                                              {"size", std::int64_t{3}}};
  return options;
}

TEST(OptionReaderTest, ReadsValuesOfTheirTypesAndDefaults) {
  OptionReader reader("learner.options", std::span(Options()).subspan(1));
  EXPECT_TRUE(reader.Flag("flag", false));
  EXPECT_EQ(reader.Text("name", "none"), "x y");
  EXPECT_EQ(reader.Number("rate", 2), 0.5);
  EXPECT_EQ(reader.Integer("size", 2), 3);
  EXPECT_EQ(reader.Number("size", 2), 3);
  EXPECT_FALSE(reader.Flag("other_flag", false));
  EXPECT_EQ(reader.Text("other_name", "none"), "none");
  EXPECT_EQ(reader.Number("other_rate", 2), 2);
  EXPECT_EQ(reader.Integer("other_size", 2), 2);
  EXPECT_TRUE(reader.Finish().ok()) << reader.Finish().ToString();
}

TEST(OptionReaderTest, InvalidValueIsNamedWithTypeAndRange) {
  const auto refused = [](const auto& read, const std::string& part) {
    OptionReader reader("learner.options", Options());
    read(reader);
    EXPECT_THAT(reader.Values().message(), HasSubstr(part));
    EXPECT_EQ(reader.Finish().message(), reader.Values().message());
  };
  refused([](OptionReader& r) { EXPECT_EQ(r.Integer("rate", 2), 2); },
          "learner.options: rate = 0.5 is not an integer");
  refused([](OptionReader& r) { EXPECT_EQ(r.Integer("size", 1, Between(0, 2)), 1); },
          "size = 3 is not an integer in the range [0, 2]");
  refused([](OptionReader& r) { EXPECT_EQ(r.Number("rate", 2, Above(1)), 2); },
          "rate = 0.5 is not a number in the range > 1");
  refused([](OptionReader& r) { EXPECT_EQ(r.Number("name", 2), 2); },
          "name = \"x y\" is not a number");
  refused([](OptionReader& r) { EXPECT_TRUE(r.Flag("deep", true)); },
          "deep = [1, 2] is not true or false");
  refused([](OptionReader& r) { EXPECT_EQ(r.Text("flag", "a"), "a"); },
          "flag = true is not a string");
}

TEST(OptionReaderTest, OptionThatNothingReadIsRefused) {
  OptionReader none("network.layers[0].options", std::span(Options()).first(1));
  EXPECT_THAT(none.Finish().message(),
              HasSubstr("network.layers[0].options: deep is an unknown option; there are none"));
  const std::vector<EnvOption> one{{"temperatures", 0.1}};
  OptionReader near("learner.options", one);
  near.Number("clip", 1), near.Number("temperature", 1);
  EXPECT_THAT(near.Finish().message(), HasSubstr("the nearest is temperature"));
  const std::vector<EnvOption> far{{"x", 0.1}};
  OptionReader all("learner.options", far);
  all.Number("clip", 1), all.Number("temperature", 1);
  EXPECT_THAT(all.Finish().message(), HasSubstr("the options are clip, temperature"));
}

}  // namespace
}  // namespace troop

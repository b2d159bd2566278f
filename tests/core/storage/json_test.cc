#include "core/storage/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"

namespace troop {
namespace {

using testing::HasSubstr;

TEST(JsonTest, ObjectKeepsInsertionOrder) {
  EXPECT_EQ(JsonObject().str(), "{}");
  EXPECT_EQ(JsonObject()
                .Add("z", 1)
                .Add("a", 2.5)
                .Add("text", "x\"y")
                .Add("yes", true)
                .Add("none", nullptr)
                .Add("list", JsonArray().Add(1).Add(JsonArray()))
                .Add("big", std::numeric_limits<std::uint64_t>::max())
                .Add("low", std::numeric_limits<std::int64_t>::min())
                .str(),
            "{\"z\": 1, \"a\": 2.5, \"text\": \"x\\\"y\", \"yes\": true, \"none\": null, "
            "\"list\": [1, []], \"big\": 18446744073709551615, \"low\": -9223372036854775808}");
}

TEST(JsonTest, WritesNonFiniteNumbersAsNull) {
  EXPECT_EQ(JsonObject().Add("a", std::nan("")).Add("b", -INFINITY).str(),
            "{\"a\": null, \"b\": null}");
}

TEST(JsonTest, ArrayTakesRangesAndNestedValues) {
  const std::vector<std::string> words = {"a", "\"b\""};
  EXPECT_EQ(JsonArray().str(), "[]");
  EXPECT_EQ(JsonArray::Of(words).Add(nullptr).Add(JsonObject().Add("x", false)).str(),
            "[\"a\", \"\\\"b\\\"\", null, {\"x\": false}]");
  EXPECT_EQ(JsonArray().Add(JsonText::Raw("1.0")).Add("").str(), "[1.0, \"\"]");
}

TEST(JsonTest, RoundsNumbersOnRequest) {
  EXPECT_EQ(JsonArray::Rounded(std::vector<double>{2.0 / 3, 1e20, NAN}, 3).str(),
            "[0.667, 1e+20, null]");
  EXPECT_EQ(JsonText::Fixed(2.0 / 3, 4).str(), "0.6667");
  EXPECT_EQ(JsonText::Fixed(-INFINITY, 4).str(), "null");
}

TEST(JsonTest, CompactStyleHasNoSpaces) {
  constexpr JsonStyle kCompact = JsonStyle::kCompact;
  EXPECT_EQ(JsonObject(kCompact).Add("a", JsonArray(kCompact).Add(1).Add(2)).Add("b", 3).str(),
            "{\"a\":[1,2],\"b\":3}");
}

TEST(JsonTest, QuoteKeepsTextAndReplacesInvalidUtf8) {
  EXPECT_EQ(JsonQuote("a\n\x01\\é漢𝄞\x7f"), "\"a\\u000a\\u0001\\\\é漢𝄞\x7f\"");
  EXPECT_EQ(JsonQuote("\xff|\xc0\x80|\xed\xa0\x80|\xe6\xbc"), "\"?|??|???|??\"");
}

TEST(JsonTest, ParsesEveryKindOfValue) {
  const auto value = ParseJson(
      " {\"n\": null, \"t\": true, \"f\": false, \"i\": -12, \"d\": 1.5e3, \"s\": \"a\\u00e9\\n\", "
      "\"l\": [1, [], {}], \"o\": {\"x\": {}}} ");
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(value->Find("n")->kind, JsonValue::Kind::kNull);
  EXPECT_TRUE(value->Find("t")->boolean);
  EXPECT_EQ(value->Find("f")->kind, JsonValue::Kind::kBool);
  EXPECT_FALSE(value->Find("f")->boolean);
  EXPECT_EQ(*value->Integer("i"), -12);
  EXPECT_FALSE(ParseJson("{\"i\": 1, \"i\": 1}").ok());
  EXPECT_EQ(value->Find("d")->number, 1500);
  EXPECT_FALSE(value->Find("d")->integer.has_value());
  EXPECT_EQ(*value->String("s"), "aé\n");
  EXPECT_EQ(value->Find("l")->array.size(), 3u);
  EXPECT_NE(value->Find("o")->Find("x"), nullptr);
  EXPECT_EQ(value->Find("o")->Find("y"), nullptr);
  EXPECT_EQ(value->Find("l")->Find("x"), nullptr);
}

TEST(JsonTest, ParsesIntegersExactlyBeyondDoublePrecision) {
  EXPECT_EQ(*ParseJson("{\"k\": 9007199254740993}")->Integer("k"), 9007199254740993);
  EXPECT_EQ(*ParseJson("{\"k\": -9223372036854775808}")->Integer("k"),
            std::numeric_limits<std::int64_t>::min());
  const auto large = ParseJson("[9223372036854775808]");  // one too many for 64 bits
  EXPECT_FALSE(large->array[0].integer.has_value());
  EXPECT_EQ(large->array[0].number, 0x1p63);
}

TEST(JsonTest, NegativeZeroIsNotInteger) {
  const auto value = ParseJson("[-0, 0, -0.0]");
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_FALSE(value->array[0].integer.has_value());
  EXPECT_TRUE(std::signbit(value->array[0].number));
  EXPECT_EQ(value->array[1].integer, 0);
  EXPECT_TRUE(std::signbit(value->array[2].number));
}

TEST(JsonTest, DecodesEscapes) {
  EXPECT_EQ(ParseJson(R"("\"\\\/\b\f\n\r\t")")->string, "\"\\/\b\f\n\r\t");
  EXPECT_EQ(ParseJson(R"("\u0041\u00e9\u6f22\ud834\udd1e")")->string, "Aé漢𝄞");
  EXPECT_EQ(ParseJson(R"("\u0000")")->string, std::string(1, '\0'));
}

TEST(JsonTest, RejectsInvalidJsonWithPosition) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[",
                           "\"",
                           "{]",
                           "[1,]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "[1 2]",
                           "1 2",
                           "nul",
                           "tru",
                           "+1",
                           "--1",
                           "1e",
                           ".",
                           "-",
                           "1.",
                           ".5",
                           "01",
                           "-01",
                           "1e999",
                           "NaN",
                           "Infinity",
                           "0x10",
                           "'a'",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\u12g4\"",
                           "\"\\ud834\"",
                           "\"\\ud834\\u0041\"",
                           "\"\\udd1e\"",
                           "\"\xff\"",
                           "\"\n\"",
                           "\"\\",
                           "[\"a",
                           "{}{}",
                           "\xef\xbb\xbf{}"}) {
    const auto value = ParseJson(text);
    EXPECT_EQ(value.status().code(), Code::kDataLoss) << text;
    EXPECT_THAT(value.status().message(), HasSubstr("JSON at byte ")) << text;
  }
  EXPECT_THAT(ParseJson("[1, x]").status().message(), HasSubstr("byte 4"));
}

// The library ends at a NUL and rounds small numbers to zero; neither may change a document.
TEST(JsonTest, RejectsNulAndNumbersThatAreTooSmall) {
  for (const std::string_view text : {std::string_view("1\0", 2), std::string_view("{}\0{}", 5)}) {
    EXPECT_THAT(ParseJson(text).status().message(), HasSubstr("NUL")) << text.size();
  }
  EXPECT_THAT(ParseJson("[1, 1e-999]").status().message(), HasSubstr("too small"));
  EXPECT_EQ(ParseJson("[0e-999]")->array[0].number, 0);
  EXPECT_EQ(ParseJson("5e-324")->number, std::numeric_limits<double>::denorm_min());
}

TEST(JsonTest, ErrorsDoNotQuoteText) {
  const std::string message = ParseJson("{\"secret\": \"secret\xff").status().message();
  EXPECT_THAT(message, HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(message, testing::Not(HasSubstr("secret")));
}

TEST(JsonTest, RejectsDeepNesting) {
  EXPECT_TRUE(ParseJson(std::string(60, '[') + std::string(60, ']')).ok());
  EXPECT_THAT(ParseJson(std::string(1000000, '[')).status().message(), HasSubstr("nested"));
}

TEST(JsonTest, NamesMissingOrInvalidFields) {
  const auto value = ParseJson("{\"a\": \"x\", \"b\": 1.5}");
  EXPECT_EQ(value->Integer("a").status().code(), Code::kDataLoss);
  EXPECT_THAT(value->Integer("b").status().message(), HasSubstr("\"b\""));
  EXPECT_THAT(value->String("c").status().message(), HasSubstr("\"c\""));
}

// An optional field of another type is an error, and null is another type.
TEST(JsonTest, OptionalFieldsHaveDefaultOnlyIfMissing) {
  const auto value = ParseJson(R"({"n": 1.5, "b": true, "s": "x", "null": null})");
  EXPECT_EQ(*value->NumberOr("n", 7), 1.5);
  EXPECT_EQ(*value->NumberOr("none", 7), 7);
  EXPECT_TRUE(*value->BooleanOr("b", false));
  EXPECT_TRUE(*value->BooleanOr("none", true));
  EXPECT_EQ(*value->StringOr("s", "y"), "x");
  EXPECT_EQ(*value->StringOr("none", "y"), "y");
  for (const std::string key : {"n", "b", "s", "null"}) {
    const std::string name = "\"" + key + "\" is";
    const auto expect = [&](const Status& status, bool good) {
      EXPECT_EQ(status.ok(), good) << key;
      EXPECT_THAT(status.message(), HasSubstr(good ? "" : name)) << key;
    };
    expect(value->NumberOr(key, 0).status(), key == "n");
    expect(value->BooleanOr(key, true).status(), key == "b");
    expect(value->StringOr(key, "").status(), key == "s");
  }
}

TEST(JsonTest, RoundTrips) {
  Rng rng({.run_seed = 1, .purpose = Purpose::kTest});
  for (int i = 0; i < 500; ++i) {
    const double number = rng.Normal() * std::pow(10, rng.Uniform(-300, 300));
    const auto integer = std::int64_t(rng.NextU64());
    std::string text;
    for (std::uint32_t n = rng.Below(20); n > 0; --n) text += char(rng.Below(128));
    const auto value =
        ParseJson(JsonObject().Add("d", number).Add("i", integer).Add(text, text).str());
    ASSERT_TRUE(value.ok()) << value.status().ToString();
    if (text != "d" && text != "i") {
      EXPECT_EQ(value->Find("d")->number, number);
      EXPECT_EQ(*value->Integer("i"), integer);
    }
    EXPECT_EQ(*value->String(text), text);
  }
}

TEST(JsonTest, DamagedTextDoesNotCrash) {
  const std::string good =
      JsonObject().Add("a", 1.5).Add("b", JsonText::Raw("[1, {\"c\": \"\\u00e9\"}]")).str();
  Rng rng({.run_seed = 2, .purpose = Purpose::kTest});
  for (int i = 0; i < 2000; ++i) {
    std::string text = good.substr(0, rng.Below(std::uint32_t(good.size() + 1)));
    for (int j = 0; j < 2 && !text.empty(); ++j) {
      text[rng.Below(std::uint32_t(text.size()))] = char(rng.Below(256));
    }
    (void)ParseJson(text).ok();
  }
}

// The events of a document as one line.
std::string Events(std::string_view text, std::size_t events_max = 100) {
  constexpr const char* kNames[] = {"null", "", "", "", "", "{", "}", "[", "]"};
  std::string out;
  std::size_t count = 0;
  const Status read = ReadJson(text, [&](const JsonEvent& event) {
    if (++count > events_max) return OutOfRange("enough");
    switch (event.kind) {
      case JsonEvent::Kind::kBool:
        out += event.boolean ? "true " : "false ";
        break;
      case JsonEvent::Kind::kNumber:
        out += fmt::format("{} ", event.number);
        break;
      case JsonEvent::Kind::kString:
        out += fmt::format("'{}' ", event.text);
        break;
      case JsonEvent::Kind::kKey:
        out += fmt::format("{}: ", event.text);
        break;
      default:
        out += kNames[int(event.kind)];
        out += " ";
    }
    return Status::Ok();
  });
  return out + (read.ok() ? "ok" : read.message());
}

TEST(JsonReadTest, ReportsValuesInOrder) {
  EXPECT_EQ(Events(R"({"a": [1, -2, -0, 2.5e3, {"b": null}], "c": "x\n", "d": true, "a": {}})"),
            "{ a: [ 1 -2 -0 2500 { b: null } ] c: 'x\n' d: true a: { } } ok");
  EXPECT_EQ(Events("18446744073709551615"), "1.8446744073709552e+19 ok");
}

TEST(JsonReadTest, HandlerEndsReadingWithItsError) {
  EXPECT_EQ(Events("[1, 2, 3, 4]", 3), "[ 1 2 enough");
}

TEST(JsonReadTest, RejectsWhatParseJsonRejects) {
  for (const std::string& text :
       {std::string("[1, 2"), std::string("[1] 2"), std::string("NaN"), std::string("1e999"),
        std::string("\xEF\xBB\xBF[]"), std::string("[1]\0", 4), std::string("\"\xFF\""),
        std::string(70, '[') + std::string(70, ']')}) {
    EXPECT_FALSE(ParseJson(text).ok()) << text;
    EXPECT_THAT(Events(text), testing::Not(testing::EndsWith("ok"))) << text;
  }
  // The whole number would make a line of any length.
  EXPECT_THAT(Events(std::string(10'000, '9')), HasSubstr("a number is too large"));
  EXPECT_LT(Events(std::string(10'000, '9')).size(), 100u);
}

}  // namespace
}  // namespace troop

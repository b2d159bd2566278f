#include "net/wire/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/net/every_field.h"

namespace troop {
namespace {

using testing::HasSubstr;

template <class T>
struct One {
  T value{};
  template <class A>
  void serialize(A& a) {
    a(value);
  }
  bool operator==(const One&) const = default;
};

template <class T>
void ExpectRoundTrip(const T& value) {
  const std::string bytes = EncodeBody(One<T>{value});
  const auto decoded = DecodeBody<One<T>>(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->value, value);
}

std::string U32(std::uint32_t n) { return EncodeBody(One<std::uint32_t>{n}); }

TEST(CodecTest, RoundTripsEveryFieldType) {
  ExpectRoundTrip(std::numeric_limits<std::int8_t>::min());
  ExpectRoundTrip(std::numeric_limits<std::int64_t>::min());
  ExpectRoundTrip(std::numeric_limits<std::uint64_t>::max());
  ExpectRoundTrip(1.5f);
  ExpectRoundTrip(-0.1);
  ExpectRoundTrip(std::numeric_limits<double>::infinity());
  ExpectRoundTrip(true);
  ExpectRoundTrip(EveryFieldColour::kBlue);
  ExpectRoundTrip(std::string("text with \0 inside", 18));
  ExpectRoundTrip(std::vector<float>{1, 2, 3});
  ExpectRoundTrip(std::vector<std::string>{"", "a", "bb"});
  ExpectRoundTrip(std::vector<EveryFieldColour>{EveryFieldColour::kRed});
  ExpectRoundTrip(std::optional<std::int32_t>{});
  ExpectRoundTrip(std::optional<std::int32_t>{7});
  ExpectRoundTrip(std::map<std::string, std::vector<double>>{{"a", {1}}, {"b", {}}});
  ExpectRoundTrip(MakeEveryFieldBody());
}

TEST(CodecTest, MatchesDocumentedFormat) {
  struct Body {
    bool yes = true;
    std::uint16_t number = 0x0102;
    std::string text = "ab";
    std::optional<std::uint8_t> none;
    std::map<std::string, std::uint8_t> map{{"k", 9}};
    void serialize(BodyWriter& a) { a(yes, number, text, none, map); }
  } body;
  EXPECT_EQ(EncodeBody(body), std::string("\x01"
                                          "\x02\x01"
                                          "\x02\0\0\0ab"
                                          "\0"
                                          "\x01\0\0\0\x01\0\0\0k\x09",
                                          20));
}

TEST(CodecTest, RejectsEveryTruncation) {
  const std::string bytes = EncodeBody(MakeEveryFieldBody());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto decoded = DecodeBody<EveryFieldBody>(std::string_view(bytes).substr(0, size));
    EXPECT_EQ(decoded.status().code(), Code::kDataLoss) << size;
  }
}

TEST(CodecTest, RejectsTrailingBytes) {
  const auto decoded = DecodeBody<EveryFieldBody>(EncodeBody(MakeEveryFieldBody()) + "x");
  EXPECT_EQ(decoded.status().code(), Code::kDataLoss);
  EXPECT_THAT(decoded.status().message(), HasSubstr("trailing bytes"));
}

// cereal itself allocates what such a count claims, before it reads on.
TEST(CodecTest, RejectsExcessiveCountBeforeAllocating) {
  for (const std::uint32_t claim : {5u, 1u << 20, 0x80000000u, 0xffffffffu}) {
    const std::string bytes = U32(claim) + "abcd";
    EXPECT_FALSE(DecodeBody<One<std::string>>(bytes).ok());
    EXPECT_FALSE(DecodeBody<One<std::vector<std::uint8_t>>>(bytes).ok());
    EXPECT_FALSE(DecodeBody<One<std::vector<double>>>(bytes).ok());
    EXPECT_FALSE(DecodeBody<One<std::vector<EveryFieldBody>>>(bytes).ok());
    EXPECT_FALSE((DecodeBody<One<std::map<std::string, double>>>(bytes).ok()));
  }
  // Two doubles need 16 bytes; four bytes hold no double.
  EXPECT_THAT(DecodeBody<One<std::vector<double>>>(U32(1) + "abcd").status().message(),
              HasSubstr("count exceeds"));
}

TEST(CodecTest, RejectsBodyAboveLimit) {
  const std::string bytes(kBodyBytesMax + 1, '\0');
  EXPECT_THAT(DecodeBody<One<std::string>>(bytes).status().message(), HasSubstr("larger"));
}

TEST(CodecTest, RejectsDeepNesting) {
  struct Tree {
    std::vector<Tree> children;
    void serialize(BodyReader& a) { a(children); }
    void serialize(BodyWriter& a) { a(children); }
  };
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += U32(1);
  deep += U32(0);
  EXPECT_THAT(DecodeBody<Tree>(deep).status().message(), HasSubstr("nested"));
  std::string shallow;
  for (int i = 0; i < kBodyDepthMax - 1; ++i) shallow += U32(1);
  shallow += U32(0);
  EXPECT_TRUE(DecodeBody<Tree>(shallow).ok());
}

TEST(CodecTest, RejectsNonCanonicalEncodings) {
  EXPECT_FALSE(DecodeBody<One<bool>>("\x02").ok());
  const std::string key_b = U32(1) + "b" + std::string(1, '\0');
  const std::string key_a = U32(1) + "a" + std::string(1, '\0');
  using Map = std::map<std::string, std::uint8_t>;
  EXPECT_TRUE(DecodeBody<One<Map>>(U32(2) + key_a + key_b).ok());
  EXPECT_FALSE(DecodeBody<One<Map>>(U32(2) + key_b + key_a).ok());
  EXPECT_FALSE(DecodeBody<One<Map>>(U32(2) + key_a + key_a).ok());
}

}  // namespace
}  // namespace troop

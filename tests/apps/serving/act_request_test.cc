// Requests for actions: valid ones, and hostile bytes, each with the line that it gets.
#include "apps/serving/act_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kRowsMax = 4;

PolicySignature Signature(DType dtype, std::vector<std::int64_t> shape, std::int64_t stack = 1) {
  PolicySignature policy;
  policy.dtype = dtype;
  policy.shape = std::move(shape);
  policy.stack = stack;
  policy.actions = 3;
  return policy;
}
const PolicySignature kFloats = Signature(DType::kF32, {2});
const PolicySignature kPictures = Signature(DType::kU8, {1, 2}, 2);

HttpRequest Json(const std::string& body) {
  return {.headers = {{"content-type", "application/json; charset=utf-8"}}, .body = body};
}
HttpRequest Binary(const std::string& body, std::map<std::string, std::string> query = {}) {
  return {.query = std::move(query),
          .headers = {{"content-type", "application/octet-stream"}},
          .body = body};
}
template <class T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
template <class T>
std::vector<T> Values(const ActRequest& act) {
  std::vector<T> values(act.observations.size() / sizeof(T));
  std::memcpy(values.data(), act.observations.data(), act.observations.size());
  return values;
}
std::string Error(const HttpRequest& request, const PolicySignature& policy) {
  const auto act = ParseActRequest(request, policy, kRowsMax);
  if (act.ok()) return "accepted";
  EXPECT_EQ(act.status().code(), Code::kInvalidArgument) << act.status().ToString();
  EXPECT_EQ(act.status().message().find('\n'), std::string::npos) << act.status().message();
  EXPECT_LT(act.status().message().size(), 300u) << act.status().message();
  return act.status().message();
}

TEST(ActRequestTest, ReadsJson) {
  const auto act =
      ParseActRequest(Json(R"({"mask": [[0, 1, true], [1, 0, 0]], "deterministic": true,
               "observations": [[1, -2.5], [3e-2, 4]], "q_values": true})"),
                      kFloats, kRowsMax);
  ASSERT_TRUE(act.ok()) << act.status().message();
  EXPECT_EQ(act->rows, 2);
  EXPECT_THAT(Values<float>(*act), ElementsAre(1, -2.5f, 3e-2f, 4));
  EXPECT_THAT(act->mask, ElementsAre(0, 1, 1, 1, 0, 0));
  EXPECT_TRUE(act->q_values);
  EXPECT_FALSE(act->binary);
}

TEST(ActRequestTest, ReadsStacksAndSessions) {
  const auto whole =
      ParseActRequest(Json(R"({"observations": [[[[1, 2]], [[3, 255]]]]})"), kPictures, kRowsMax);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_THAT(Values<std::uint8_t>(*whole), ElementsAre(1, 2, 3, 255));
  const auto frame =
      ParseActRequest(Json(R"({"observations": [[[7, 8]]], "session": "a-1", "reset": true})"),
                      kPictures, kRowsMax);
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_THAT(Values<std::uint8_t>(*frame), ElementsAre(7, 8));
  EXPECT_EQ(frame->session, "a-1");
  EXPECT_TRUE(frame->reset);
  // The scalar observation of an environment of numbered states.
  const auto scalar =
      ParseActRequest(Json(R"({"observations": [-5, 7]})"), Signature(DType::kI32, {}), kRowsMax);
  ASSERT_TRUE(scalar.ok()) << scalar.status().message();
  EXPECT_THAT(Values<std::int32_t>(*scalar), ElementsAre(-5, 7));
}

TEST(ActRequestTest, ReadsBinary) {
  const std::vector<float> x{1, -2.5f, 3, 4};
  const auto act = ParseActRequest(Binary(Bytes(x), {{"q_values", "1"}}), kFloats, kRowsMax);
  ASSERT_TRUE(act.ok()) << act.status().message();
  EXPECT_EQ(act->rows, 2);
  EXPECT_EQ(Values<float>(*act), x);
  EXPECT_TRUE(act->q_values && act->binary && act->mask.empty());
  const auto masked = ParseActRequest(
      Binary(Bytes(x) + std::string("\1\0\1\0\1\0", 6), {{"mask", "1"}}), kFloats, kRowsMax);
  ASSERT_TRUE(masked.ok()) << masked.status().message();
  EXPECT_THAT(masked->mask, ElementsAre(1, 0, 1, 0, 1, 0));
  const auto frame =
      ParseActRequest(Binary("ab", {{"session", "s"}, {"reset", "1"}}), kPictures, kRowsMax);
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  EXPECT_EQ(frame->observations.size(), 2u);
}

TEST(ActRequestTest, HostileJsonGetsOneClearLine) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "JSON at byte 0"},
      {"[]", "must be a JSON object"},
      {"7", "must be a JSON object"},
      {"{}", "\"observations\" is missing"},
      {R"({"observations": [[1, 2]]} x)", "JSON at byte"},
      {R"({"observations": [[1, 2]])", "JSON at byte"},
      {R"({"observations": [[1, NaN]]})", "JSON at byte"},
      {R"({"observations": [[1, Infinity]]})", "JSON at byte"},
      {R"({"observations": [[1, 1e999]]})", "JSON at byte"},
      {R"({"observations": [[1, 1e39]]})", "element 1 is 1e+39, too large for a float"},
      {R"({"observations": [[1, null]]})", "something else than numbers"},
      {R"({"observations": [[1, "2"]]})", "something else than numbers"},
      {R"({"observations": [[1, {"a": 2}]]})", "something else than numbers"},
      {R"({"observations": 5})", "must be an array"},
      {R"({"observations": {"a": [1]}})", "must be an array"},
      {R"({"observations": []})", "observations is empty"},
      {R"({"observations": [1, 2]})", "the shape [2], must be [2, 2]"},
      {R"({"observations": [[]]})", "the shape [1, 0], must be [1, 2]"},
      {R"({"observations": [[1, 2, 3]]})", "the shape [1, 3], must be [1, 2]"},
      {R"({"observations": [[[1, 2]]]})", "the shape [1, 1, 2], must be [1, 2]"},
      {R"({"observations": [[1, 2], [3]]})", "have 2 and 1 elements"},
      {R"({"observations": [[1, 2], [3, 4, 5]]})", "more than 2 elements"},
      {R"({"observations": [[1, 2], 3]})", "nested 2 deep and 1 deep"},
      {R"({"observations": [1, [2, 3]]})", "nested 1 deep and more"},
      {R"({"observations": [[1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]})", "more than 8 numbers"},
      {R"({"observations": [[1, 2]], "observations": [[1, 2]]})", "duplicate key"},
      {R"({"observation": [[1, 2]]})", "unknown key \"observation\"; the keys are observations"},
      {R"({"observations": [[1, 2]], "deterministic": false})", "does not sample"},
      {R"({"observations": [[1, 2]], "deterministic": 1})", "must be true or false"},
      {R"({"observations": [[1, 2]], "q_values": "yes"})", "must be true or false"},
      {R"({"observations": [[1, 2]], "q_values": [true]})", "must be true or false"},
      {R"({"observations": [[1, 2]], "reset": true})", "requests with a session"},
      {R"({"observations": [[1, 2]], "session": 5})", "must be a string"},
      {R"({"observations": [[1, 2]], "session": ""})", "1 to 64 visible"},
      {R"({"observations": [[1, 2]], "session": "a b"})", "1 to 64 visible"},
      {R"({"observations": [[1, 2]], "session": "a\r\nSet-Cookie: x"})", "1 to 64 visible"},
      {R"({"observations": [[1, 2], [3, 4]], "session": "a"})", "one frame per request"},
      {R"({"observations": [[1, 2]], "mask": [[1, 1]]})", "shape [1, 2], must be [1, 3]"},
      {R"({"observations": [[1, 2]], "mask": [1, 1, 1]})", "shape [3], must be [1, 3]"},
      {R"({"observations": [[1, 2]], "mask": []})", "shape [0], must be [1, 3]"},
      {R"({"observations": [[1, 2]], "mask": [[0, 0, 0]]})", "forbids every action of row 0"},
      {R"({"observations": [[1, 2]], "mask": [[0, 0.5, 1]]})", "consist of 0 and 1"},
      {R"({"observations": [[1, 2]], "mask": [[0, -1, 1]]})", "consist of 0 and 1"},
      {std::string("{\"observations\": [[1, 2]]}\0", 27), "NUL"},
      {"\xEF\xBB\xBF{}", "byte order mark"},
      {"{\"\xFF\xFE\": 1}", "JSON at byte"},
      {"{\"" + std::string(100'000, 'k') + "\": 1}", "unknown key"},
      {std::string(500'000, '['), "must be a JSON object"},
      {"{\"observations\": " + std::string(500'000, '['), "nested more than 10 deep"},
      {"{\"session\": " + std::string(500'000, '['), "must be a string"},
      {"{\"mask\": " + std::string(500'000, '{'), "must be an array"},
      {"{\"observations\": [[" + std::string(100'000, '9') + "]]}", "JSON at byte"},
  };
  for (const auto& [body, message] : cases) {
    EXPECT_THAT(Error(Json(body), kFloats), HasSubstr(message)) << body.substr(0, 100);
  }
}

TEST(ActRequestTest, IntegersMustFitTheElementType) {
  const PolicySignature states = Signature(DType::kI32, {});
  const auto picture = [](const std::string& x) {
    return Error(Json("{\"observations\": [[[[1, 2]], [[3, " + x + "]]]]}"), kPictures);
  };
  for (const char* bad : {"256", "-1", "1.5", "1e300", "-1e300"})
    EXPECT_THAT(picture(bad), HasSubstr("element 3 is")) << bad;
  EXPECT_EQ(picture("255"), "accepted");
  EXPECT_EQ(picture("2e0"), "accepted");
  EXPECT_THAT(Error(Json(R"({"observations": [2147483648]})"), states), HasSubstr("integer of"));
  EXPECT_EQ(Error(Json(R"({"observations": [-2147483648]})"), states), "accepted");
  EXPECT_THAT(Error(Json(R"({"observations": [[[[1, 2]]]]})"), kPictures),
              HasSubstr("the shape [1, 1, 1, 2], must be [1, 2, 1, 2] ([rows, stack, …])"));
}

TEST(ActRequestTest, HostileBinaryGetsOneClearLine) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> one{1, 2};
  using Query = std::map<std::string, std::string>;
  const std::tuple<std::string, Query, const char*> cases[] = {
      {"", {}, "observations is empty"},
      {"1234567", {}, "7 bytes, must be a multiple of 8"},
      {"123456789", {}, "multiple of 8"},
      {Bytes<float>({1, 2, 3, std::nanf("")}), {}, "element 3 is NaN or infinite"},
      {Bytes<float>({inf, 2}), {}, "element 0 is NaN or infinite"},
      {Bytes<float>({-inf, 2}), {}, "element 0 is NaN or infinite"},
      {Bytes(std::vector<float>(10)), {}, "5 rows, must have at most 4"},
      {Bytes(one), {{"mask", "1"}}, "multiple of 11"},
      {Bytes(one) + std::string(3, '\0'), {{"mask", "1"}}, "forbids every action"},
      {Bytes(one) + "\1\2\1", {{"mask", "1"}}, "consist of 0 and 1"},
      {Bytes(one), {{"mask", "yes"}}, "must be 0 or 1"},
      {Bytes(one), {{"q_values", "2"}}, "must be 0 or 1"},
      {Bytes(one), {{"session", ""}}, "visible"},
      {Bytes(one), {{"session", std::string(65, 'a')}}, "visible"},
      {Bytes(one), {{"reset", "1"}}, "requests with a session"},
      {Bytes(one), {{"deterministic", "1"}}, "unknown name \"deterministic\""},
      {Bytes<float>({1, 2, 3, 4}), {{"session", "a"}}, "one frame per request"},
  };
  for (const auto& [body, query, message] : cases)
    EXPECT_THAT(Error(Binary(body, query), kFloats), HasSubstr(message)) << message;
  HttpRequest json = Json(R"({"observations": [[1, 2]]})");
  json.query["mask"] = "1";
  EXPECT_THAT(Error(json, kFloats), HasSubstr("takes no query"));
}

TEST(ActRequestTest, ContinuousActionsHaveNeitherMaskNorValues) {
  PolicySignature policy = kFloats;
  policy.discrete = false;
  EXPECT_THAT(Error(Json(R"({"observations": [[1, 2]], "q_values": true})"), policy),
              HasSubstr("discrete actions"));
  EXPECT_THAT(Error(Json(R"({"observations": [[1, 2]], "mask": [[1, 1, 1]]})"), policy),
              HasSubstr("discrete actions"));
}

// The newest frame has elements 1 to 3 as its mask. A request of several rows names the wrong one.
TEST(ActRequestTest, MaskMustLeaveAnActionThatTheObservationAllows) {
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    PolicySignature policy = Signature(dtype, {4}, 2);
    policy.mask = 1;
    const auto error = [&](const std::string& observation, const std::string& mask) {
      return Error(Json(R"({"observations": [[[9, 1, 1, 1], [9, 1, 1, 0]], )" + observation +
                        R"(], "mask": [[0, 1, 0], )" + mask + "]}"),
                   policy);
    };
    const std::string rest = "[[5, 1, 1, 1], [5, 0, 0, 1]]";
    EXPECT_EQ(error(rest, "[0, 0, 1]"), "accepted");
    EXPECT_THAT(error(rest, "[1, 1, 0]"), HasSubstr("every action of row 1 that its observation"));
    // A mask that allows nothing hides nothing.
    EXPECT_EQ(error("[[5, 1, 1, 1], [5, 0, 0, 0]]", "[1, 0, 0]"), "accepted");
    // A session sends the newest frame alone.
    const auto session = [&](const std::string& mask) {
      return Error(
          Json(R"({"session": "a", "observations": [[5, 0, 1, 0]], "mask": )" + mask + "}"),
          policy);
    };
    EXPECT_EQ(session("[[1, 1, 0]]"), "accepted");
    EXPECT_THAT(session("[[1, 0, 1]]"), HasSubstr("every action of row 0 that its observation"));
  }
}

// Each single change of a valid body is rejected, or means something valid.
TEST(ActRequestTest, ChangedBytesAreRejectedOrValid) {
  const std::string valid =
      R"({"observations": [[1.5, -2], [3, 4]], "mask": [[1, 0, 1], [0, 1, 1]], "session": null})";
  const std::string body = valid.substr(0, valid.find(", \"session\"")) + "}";
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = body;
    switch (random() % 3) {
      case 0:
        changed[random() % changed.size()] = char(random());
        break;
      case 1:
        changed.erase(random() % changed.size(), 1 + random() % 5);
        break;
      default:
        changed.insert(random() % changed.size(), 1, "[]{},:\"0e-"[random() % 10]);
    }
    const auto act = ParseActRequest(Json(changed), kFloats, kRowsMax);
    if (!act.ok()) {
      ASSERT_EQ(act.status().code(), Code::kInvalidArgument) << changed;
      continue;
    }
    ++accepted;
    ASSERT_TRUE(act->rows >= 1 && act->rows <= kRowsMax) << changed;
    ASSERT_EQ(act->observations.size(), std::size_t(act->rows) * 8) << changed;
    for (const float x : Values<float>(*act)) ASSERT_TRUE(std::isfinite(x)) << changed;
    for (const std::uint8_t m : act->mask) ASSERT_LE(m, 1) << changed;
  }
  EXPECT_GT(accepted, 100);  // changed digits and spaces
}

}  // namespace
}  // namespace troop

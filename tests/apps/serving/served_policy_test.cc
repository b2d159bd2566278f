// Answers of a served policy: equal to Troop's modules, whatever requests share a batch.
#include "apps/serving/served_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/storage/json.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

using testing::HasSubstr;

// A served policy of one of the exported networks.
class Served {
 public:
  explicit Served(const PolicyCase& c, std::uint64_t updates = 7)
      : bench_(c.setup, c.env),
        signature_(bench_.Description()),
        sessions_({.sessions_max = 2,
                   .frame_bytes = signature_.frame_bytes(),
                   .stack_bytes = signature_.stack_bytes(),
                   .state_size = std::size_t(signature_.state)}) {
    auto model = ServedPolicy::Make({.policy = {bench_.Description(), bench_.Parameters()},
                                     .checkpoint = "runs/a/checkpoints/7",
                                     .environment = "test",
                                     .updates = updates},
                                    {.rows_max = 64, .sessions = &sessions_, .metrics = &metrics_});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    model_ = *model;
  }
  // A request in the binary form.
  ServingRequest Binary(const std::string& body, std::map<std::string, std::string> query = {}) {
    const auto request = model_->Parse({.query = std::move(query),
                                        .headers = {{"content-type", "application/octet-stream"}},
                                        .body = body});
    EXPECT_TRUE(request.ok()) << request.status().message();
    return *request;
  }
  ServingRequest Json(const std::string& body) {
    const auto request =
        model_->Parse({.headers = {{"content-type", "application/json"}}, .body = body});
    EXPECT_TRUE(request.ok()) << request.status().message();
    return *request;
  }
  std::vector<HttpResponse> Answer(const std::vector<ServingRequest>& requests) {
    return model_->Answer(requests, Time{});
  }

  const PolicyBench bench_;
  const PolicySignature signature_;
  SessionTable sessions_;
  ServingMetrics metrics_;
  std::shared_ptr<ServedPolicy> model_;
};

std::string BytesOf(const Tensor& x, std::int64_t first, std::int64_t rows) {
  const std::size_t row = x.bytes().size() / std::size_t(x.dim(0));
  return {reinterpret_cast<const char*>(x.bytes().data()) + std::size_t(first) * row,
          std::size_t(rows) * row};
}
template <class T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

class ServedPolicyTest : public testing::TestWithParam<PolicyCase> {};

// Requests of different sizes in one batch, each compared with the rows of the modules.
TEST_P(ServedPolicyTest, EqualsModules) {
  Served served(GetParam());
  const Tensor x = served.bench_.Observations(23, 4);
  const std::vector<float> want = served.bench_.Reference(x);
  const bool discrete = served.signature_.discrete;
  const auto columns = std::size_t(served.signature_.actions);
  std::vector<ServingRequest> requests;
  for (const std::int64_t first : {0, 1, 3, 20}) {
    const std::int64_t rows = first == 0 ? 1 : first == 1 ? 2 : first == 3 ? 17 : 3;
    requests.push_back(served.Binary(
        BytesOf(x, first, rows), discrete ? std::map<std::string, std::string>{{"q_values", "1"}}
                                          : std::map<std::string, std::string>{}));
  }
  std::size_t row = 0;
  for (const HttpResponse& response : served.Answer(requests)) {
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers[0], std::make_pair(std::string("Troop-Updates"), std::string("7")));
    const std::size_t size = response.body.size() / (4 * (columns + (discrete ? 1 : 0)));
    const auto actions = Values<std::int32_t>(response.body.substr(0, discrete ? 4 * size : 0));
    const auto values = Values<float>(response.body.substr(discrete ? 4 * size : 0));
    ASSERT_EQ(values.size(), size * columns);
    for (std::size_t i = 0; i < size; ++i, ++row) {
      const auto expected = want.begin() + std::ptrdiff_t(row * columns);
      for (std::size_t a = 0; a < columns; ++a) {
        ASSERT_NEAR(values[i * columns + a], expected[std::ptrdiff_t(a)],
                    1e-5 * std::max(1.0f, std::abs(expected[std::ptrdiff_t(a)])));
      }
      if (!discrete) continue;
      // The largest of the returned values, which were compared above.
      const auto own = values.begin() + std::ptrdiff_t(i * columns);
      EXPECT_EQ(actions[i], std::max_element(own, own + std::ptrdiff_t(columns)) - own);
    }
  }
  EXPECT_EQ(row, 23u);
}

// A recurrent policy has tests of its sessions, which it needs.
std::vector<PolicyCase> CasesWithState(bool state) {
  std::vector<PolicyCase> cases = PolicyCases();
  std::erase_if(cases,
                [&](const PolicyCase& c) { return (test::EpisodeOf(c.setup) > 1) != state; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Policies, ServedPolicyTest, testing::ValuesIn(CasesWithState(false)),
                         [](const auto& info) { return info.param.name; });

// Two sessions whose steps share batches, also several steps of one session.
class ServedRecurrentPolicyTest : public testing::TestWithParam<PolicyCase> {};
INSTANTIATE_TEST_SUITE_P(Policies, ServedRecurrentPolicyTest,
                         testing::ValuesIn(CasesWithState(true)),
                         [](const auto& info) { return info.param.name; });

TEST_P(ServedRecurrentPolicyTest, SessionsKeepStates) {
  Served served(GetParam());
  const Tensor x = served.bench_.Observations(6, 4);
  const std::vector<float> want = served.bench_.Reference(x);
  const bool discrete = served.signature_.discrete;
  const auto columns = std::size_t(served.signature_.actions);
  const auto request = [&](std::int64_t row) {
    std::map<std::string, std::string> query{{"session", row < 3 ? "a" : "b"}};
    if (row % 3 == 0) query["reset"] = "1";
    if (discrete) query["q_values"] = "1";
    return served.Binary(BytesOf(x, row, 1), query);
  };
  const auto expect = [&](const HttpResponse& response, std::size_t row) {
    ASSERT_EQ(response.status, 200) << response.body;
    const auto values = Values<float>(response.body.substr(discrete ? 4 : 0));
    ASSERT_EQ(values.size(), columns);
    for (std::size_t a = 0; a < columns; ++a)
      EXPECT_NEAR(values[a], want[row * columns + a], 1e-5) << row;
  };
  // Rows 0 to 2 are the episode of a, 3 to 5 that of b.
  const std::vector<std::vector<std::int64_t>> batches{{0, 3, 1}, {2, 4, 5}, {0, 1, 2, 3}};
  for (const std::vector<std::int64_t>& rows : batches) {
    std::vector<ServingRequest> requests;
    for (const std::int64_t row : rows) requests.push_back(request(row));
    const auto responses = served.Answer(requests);
    ASSERT_EQ(responses.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) expect(responses[i], std::size_t(rows[i]));
  }
  const auto refused = served.model_->Parse(
      {.headers = {{"content-type", "application/octet-stream"}}, .body = BytesOf(x, 0, 1)});
  EXPECT_THAT(refused.status().message(), HasSubstr("recurrent state"));
}

PolicyCase Stacked() {
  PolicyCase c{"", {}, DiscreteEnv({DType::kF32, {2}}, 3)};
  c.setup.frame_stack = 3;
  return c;
}

std::vector<double> Numbers(const JsonValue& array) {
  std::vector<double> numbers;
  for (const JsonValue& x : array.array) numbers.push_back(x.number);
  return numbers;
}

TEST(ServedPolicySessionTest, SessionsKeepFramesWithinOneBatch) {
  Served served(Stacked());
  const auto frame = [&](const char* session, const char* values, bool reset) {
    return served.Json(
        fmt::format(R"({{"observations": [{}], "session": "{}", "reset": {}, "q_values": true}})",
                    values, session, reset));
  };
  const auto responses = served.Answer({frame("a", "[1, 2]", true), frame("b", "[9, 8]", true),
                                        frame("a", "[3, 4]", false), frame("c", "[0, 0]", false),
                                        frame("a", "[5, 6]", false), frame("c", "[0, 0]", true)});
  const std::vector<std::vector<float>> stacks = {
      {0, 0, 0, 0, 1, 2}, {0, 0, 0, 0, 9, 8}, {0, 0, 1, 2, 3, 4}, {}, {1, 2, 3, 4, 5, 6}, {}};
  const int frames[] = {1, 1, 2, 0, 3, 0};
  for (std::size_t i = 0; i < responses.size(); ++i) {
    if (stacks[i].empty()) continue;
    const auto json = ParseJson(responses[i].body);
    ASSERT_TRUE(json.ok()) << responses[i].body;
    Tensor x(DType::kF32, {1, 3, 2});
    std::ranges::copy(stacks[i], x.as<float>().begin());
    const std::vector<float> want = served.bench_.Reference(x);
    const auto q = Numbers(json->Find("q_values")->array.at(0));
    ASSERT_EQ(q.size(), 3u);
    for (std::size_t a = 0; a < 3; ++a) EXPECT_NEAR(q[a], want[a], 1e-5) << i;
    EXPECT_EQ(json->Find("actions")->array.at(0).number,
              double(std::max_element(q.begin(), q.end()) - q.begin()));
    EXPECT_EQ(*json->Integer("session_frames"), frames[i]);
    EXPECT_EQ(*json->Integer("updates"), 7);
  }
  EXPECT_EQ(responses[3].status, 409);  // never began
  EXPECT_THAT(responses[3].body, HasSubstr("reset = true"));
  EXPECT_EQ(responses[5].status, 503);  // the table has two places
}

// A mask of one request must not change the answers of others.
TEST(ServedPolicyMaskTest, MaskForbidsActionsOfItsOwnRequest) {
  Served served(Stacked());
  const Tensor x = served.bench_.Observations(1, 9);
  const std::vector<float> q = served.bench_.Reference(x);
  const auto best = std::max_element(q.begin(), q.end()) - q.begin();
  std::string mask(3, '\1');
  mask[std::size_t(best)] = '\0';
  const auto responses = served.Answer({served.Binary(BytesOf(x, 0, 1)),
                                        served.Binary(BytesOf(x, 0, 1) + mask, {{"mask", "1"}}),
                                        served.Binary(BytesOf(x, 0, 1))});
  EXPECT_EQ(Values<std::int32_t>(responses[0].body), std::vector<std::int32_t>{int(best)});
  EXPECT_EQ(Values<std::int32_t>(responses[2].body), std::vector<std::int32_t>{int(best)});
  auto rest = q;
  rest[std::size_t(best)] = -1e9f;
  EXPECT_EQ(
      Values<std::int32_t>(responses[1].body),
      std::vector<std::int32_t>{int(std::max_element(rest.begin(), rest.end()) - rest.begin())});
}

// Finite observations whose values overflow: only their own request fails.
TEST(ServedPolicyOverflowTest, FailsOnlyTheRequestThatOverflows) {
  PolicyCase c{"", {}, DiscreteEnv({DType::kF32, {5}}, 3)};
  Served served(c);
  Tensor huge(DType::kF32, {1, 5});
  for (float& x : huge.as<float>()) x = 3e38f;
  const Tensor x = served.bench_.Observations(1, 4);
  const std::vector<float> q = served.bench_.Reference(x);
  const auto responses =
      served.Answer({served.Binary(BytesOf(x, 0, 1)), served.Binary(BytesOf(huge, 0, 1)),
                     served.Binary(BytesOf(x, 0, 1))});
  const auto best = std::int32_t(std::max_element(q.begin(), q.end()) - q.begin());
  for (const std::size_t i : {0, 2}) {
    ASSERT_EQ(responses[i].status, 200);
    EXPECT_EQ(Values<std::int32_t>(responses[i].body), std::vector<std::int32_t>{best});
  }
  EXPECT_EQ(responses[1].status, 500);
  EXPECT_THAT(responses[1].body, HasSubstr("NaN or infinity"));
}

TEST(ServedPolicyDescriptionTest, NamesShapesAndAccepts) {
  Served served(Stacked());
  const auto json = ParseJson(served.model_->Description());
  ASSERT_TRUE(json.ok()) << served.model_->Description();
  const JsonValue* const observation = json->Find("observation");
  EXPECT_EQ(*observation->String("dtype"), "f32");
  EXPECT_EQ(Numbers(*observation->Find("shape")), std::vector<double>{2});
  EXPECT_EQ(*observation->Integer("stack"), 3);
  EXPECT_EQ(*json->Find("action")->Integer("count"), 3);
  EXPECT_EQ(*json->Integer("rows_max"), 64);
  EXPECT_EQ(observation->Find("parts"), nullptr);
  // The places of parts follow from their shapes.
  Served structured(PolicyCaseNamed("parts"));
  const auto named = ParseJson(structured.model_->Description());
  const JsonValue* const parts = named->Find("observation")->Find("parts");
  ASSERT_EQ(parts->array.size(), 3u);
  EXPECT_EQ(*parts->array[0].String("name"), "image");
  EXPECT_EQ(Numbers(*parts->array[0].Find("shape")), (std::vector<double>{5, 4, 2}));
  EXPECT_EQ(parts->array[0].Find("action_mask"), nullptr);
  EXPECT_TRUE(parts->array[1].Find("action_mask")->boolean);
  Served same(Stacked(), 8);
  EXPECT_TRUE(served.model_->Accepts(*same.model_));
  PolicyCase other = Stacked();
  other.setup.frame_stack = 2;
  EXPECT_FALSE(served.model_->Accepts(*Served(other).model_));
}

}  // namespace
}  // namespace troop

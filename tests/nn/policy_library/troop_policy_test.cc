// The C interface of libtroop_policy: equal to Troop's modules, and strict about its input.
#include "nn/policy_library/troop_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "tests/core/temp_folder.h"
#include "tests/nn/loaded_policy.h"

namespace troop {
namespace {

using testing::HasSubstr;

class PolicyLibraryTest : public testing::TestWithParam<PolicyCase> {};

TEST_P(PolicyLibraryTest, EqualsModules) {
  const PolicyCase& c = GetParam();
  const PolicyBench bench(c.setup, c.env);
  ExpectEqualsModule(c, bench, bench.File());
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyLibraryTest, testing::ValuesIn(PolicyCases()),
                         [](const auto& info) { return info.param.name; });

PolicyCase Stacked() {
  PolicyCase c{"", {}, DiscreteEnv({DType::kF32, {2}}, 3)};
  c.setup.frame_stack = 3;
  return c;
}

// Values of the network for one stack of frames.
std::vector<float> ValuesOf(const PolicyBench& bench, const std::vector<float>& stack) {
  Tensor x(DType::kF32, {1, 3, 2});
  std::ranges::copy(stack, x.as<float>().begin());
  return bench.Reference(x);
}

TEST(PolicySessionTest, StacksBeginWithZerosAndAreIndependent) {
  const PolicyCase c = Stacked();
  const PolicyBench bench(c.setup, c.env);
  const LoadedPolicy loaded(bench.File(), 2);
  const auto values = [&](std::int64_t stream, const std::vector<float>& frame) {
    std::vector<float> q(3);
    std::int32_t action = -1;
    EXPECT_EQ(loaded.Act({.first = stream,
                          .observations = frame.data(),
                          .actions = &action,
                          .values = q.data()}),
              TROOP_POLICY_OK);
    return q;
  };
  const auto near = [](const std::vector<float>& want) {
    return testing::Pointwise(testing::FloatNear(1e-5f), want);
  };
  EXPECT_THAT(values(0, {1, 2}), near(ValuesOf(bench, {0, 0, 0, 0, 1, 2})));
  EXPECT_THAT(values(0, {3, 4}), near(ValuesOf(bench, {0, 0, 1, 2, 3, 4})));
  EXPECT_THAT(values(1, {9, 8}), near(ValuesOf(bench, {0, 0, 0, 0, 9, 8})));
  EXPECT_THAT(values(0, {5, 6}), near(ValuesOf(bench, {1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(troop_policy_reset(loaded.session(), 0), TROOP_POLICY_OK);
  EXPECT_THAT(values(0, {7, 7}), near(ValuesOf(bench, {0, 0, 0, 0, 7, 7})));
  EXPECT_THAT(values(1, {1, 1}), near(ValuesOf(bench, {0, 0, 9, 8, 1, 1})));
  EXPECT_EQ(troop_policy_reset(loaded.session(), -1), TROOP_POLICY_OK);
  EXPECT_THAT(values(1, {2, 2}), near(ValuesOf(bench, {0, 0, 0, 0, 2, 2})));
}

// More rows than streams' groups hold, so that the offsets of later groups count.
TEST(PolicySessionTest, WholeStacksNeitherUseNorChangeTheStreams) {
  const PolicyCase c = Stacked();
  const PolicyBench bench(c.setup, c.env);
  constexpr std::int64_t kRows = 35;
  const LoadedPolicy loaded(bench.File(), kRows);
  std::vector<std::int32_t> actions(kRows);
  const std::vector<float> frames(std::size_t(kRows * 2), 3);
  ASSERT_EQ(loaded.Act({.count = kRows, .observations = frames.data(), .actions = actions.data()}),
            TROOP_POLICY_OK);
  const Tensor stacks = bench.Observations(kRows, 5);
  const std::vector<float> want = bench.Reference(stacks);
  std::vector<float> q(want.size());
  ASSERT_EQ(loaded.Act({.count = kRows,
                        .observations = stacks.bytes().data(),
                        .actions = actions.data(),
                        .values = q.data(),
                        .stacked = true}),
            TROOP_POLICY_OK);
  EXPECT_THAT(q, testing::Pointwise(testing::FloatNear(1e-5f), want));
  // Stream 34 continues after its own frame.
  const float frame[] = {7, 8};
  ASSERT_EQ(
      loaded.Act(
          {.first = 34, .observations = frame, .actions = actions.data(), .values = q.data()}),
      TROOP_POLICY_OK);
  EXPECT_THAT(std::vector<float>(q.begin(), q.begin() + 3),
              testing::Pointwise(testing::FloatNear(1e-5f), ValuesOf(bench, {0, 0, 3, 3, 7, 8})));
  // NaN in the last frame of a stack, which only a check of whole stacks finds.
  Tensor damaged(DType::kF32, {1, 3, 2});
  damaged.as<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(
      loaded.Act(
          {.observations = damaged.bytes().data(), .actions = actions.data(), .stacked = true}),
      TROOP_POLICY_NOT_FINITE);
}

TEST(PolicySessionTest, MaskForbidsActions) {
  const PolicyCase c = Stacked();
  const PolicyBench bench(c.setup, c.env);
  const LoadedPolicy loaded(bench.File());
  const float frame[] = {1, 2};
  const std::vector<float> q = ValuesOf(bench, {0, 0, 0, 0, 1, 2});
  const auto best = std::max_element(q.begin(), q.end()) - q.begin();
  for (int allowed = 1; allowed < 8; ++allowed) {
    std::uint8_t mask[3];
    std::int32_t want = -1, action = -1;
    for (int a = 0; a < 3; ++a) {
      mask[a] = std::uint8_t(allowed >> a & 1);
      if (mask[a] != 0 && (want < 0 || q[std::size_t(a)] > q[std::size_t(want)])) want = a;
    }
    troop_policy_reset(loaded.session(), 0);
    ASSERT_EQ(loaded.Act({.observations = frame, .mask = mask, .actions = &action}),
              TROOP_POLICY_OK);
    EXPECT_EQ(action, want) << allowed;
    if (allowed == 7) {
      EXPECT_EQ(action, best);
    }
  }
}

// Masks of the caller and of the observation: only actions that both allow, and an error where
// there are none, unless the observation allows nothing, which hides nothing.
TEST(PolicySessionTest, MasksOfCallerAndObservationApplyTogether) {
  const PolicyCase c = PolicyCaseNamed("numbers_and_mask");
  const PolicyBench bench(c.setup, c.env);
  const LoadedPolicy loaded(bench.File());
  int refused = 0, changed = 0;
  for (int pair = 0; pair < 64 * 64; ++pair) {
    float frame[10] = {0, 0, 0, 0, 0, 0, 0.5f, -1, 2, 0.25f};
    std::uint8_t mask[6];
    for (int a = 0; a < 6; ++a) {
      frame[a] = pair >> a & 1 ? 1.0f : -0.0f;
      mask[a] = std::uint8_t(pair >> (6 + a) & 1);
    }
    const int seen = pair & 63, given = pair >> 6;
    float q[6];
    std::int32_t action = -1;
    const int code =
        loaded.Act({.observations = frame, .mask = mask, .actions = &action, .values = q});
    if (given == 0 || (seen != 0 && (seen & given) == 0)) {
      ASSERT_EQ(code, TROOP_POLICY_INVALID_ARGUMENT) << pair;
      EXPECT_THAT(troop_policy_session_message(loaded.session()),
                  HasSubstr("forbids every action"));
      ++refused;
      continue;
    }
    ASSERT_EQ(code, TROOP_POLICY_OK) << pair;
    // The largest value that is allowed, of a network without masks.
    std::ranges::fill(std::span(frame).first(6), 1.0f);
    Tensor x(DType::kF32, {1, 10});
    std::ranges::copy(frame, x.as<float>().begin());
    const std::vector<float> free = bench.Reference(x);
    int want = -1;
    for (int a = 0; a < 6; ++a) {
      const bool allowed = (seen == 0 || (seen >> a & 1) != 0) && mask[a] != 0;
      if (allowed && (want < 0 || free[std::size_t(a)] > free[std::size_t(want)])) want = a;
      if (seen != 0 && (seen >> a & 1) == 0) {
        EXPECT_EQ(q[a], -1e30f);
      }
    }
    EXPECT_EQ(action, want) << pair;
    changed += want != int(std::max_element(free.begin(), free.end()) - free.begin());
  }
  // 3^6 pairs have nothing in common, of which 2 · 2^6 - 1 have an empty mask.
  EXPECT_EQ(refused, 64 + 602);
  EXPECT_GT(changed, 1000);
}

TEST(PolicySessionTest, InvalidArgumentsChangeNothing) {
  const PolicyCase c = Stacked();
  const PolicyBench bench(c.setup, c.env);
  const LoadedPolicy loaded(bench.File(), 2);
  const float frame[] = {1, 2, 3, 4};
  std::int32_t actions[2];
  float before[3], after[3];
  ASSERT_EQ(loaded.Act({.observations = frame, .actions = actions, .values = before}), 0);
  const auto refused = [&](const LoadedPolicy::Call& call, int code, const char* why) {
    EXPECT_EQ(loaded.Act(call), code);
    EXPECT_THAT(troop_policy_session_message(loaded.session()), HasSubstr(why));
  };
  const int invalid = TROOP_POLICY_INVALID_ARGUMENT;
  refused({.first = -1, .observations = frame, .actions = actions}, invalid, "streams");
  refused({.first = 1, .count = 2, .observations = frame, .actions = actions}, invalid, "streams");
  refused({.count = 0, .observations = frame, .actions = actions}, invalid, "streams");
  refused({.observations = nullptr, .actions = actions}, invalid, "NULL");
  refused({.observations = frame, .actions = nullptr}, invalid, "NULL");
  const std::uint8_t none[3] = {};
  refused({.observations = frame, .mask = none, .actions = actions}, invalid, "every action");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const float frames[] = {1, 2, 3, bad};
    refused({.count = 2, .observations = frames, .actions = actions}, TROOP_POLICY_NOT_FINITE,
            "NaN");
  }
  const troop_policy_call small{};
  EXPECT_EQ(troop_policy_act(loaded.session(), &small), invalid);
  EXPECT_EQ(troop_policy_reset(loaded.session(), 2), invalid);
  // The stack still holds one frame: this call sees the same two frames as a fresh session's.
  ASSERT_EQ(loaded.Act({.observations = frame, .actions = actions, .values = after}), 0);
  const std::vector<float> want = ValuesOf(bench, {0, 0, 1, 2, 1, 2});
  for (int a = 0; a < 3; ++a) EXPECT_NEAR(after[a], want[std::size_t(a)], 1e-5);
}

// Streams of a recurrent policy are independent and begin with zeros; a call that is refused leaves
// them as they were.
TEST(PolicySessionTest, RecurrentStatesAreThoseOfTheStreams) {
  const PolicyCase c = PolicyCaseNamed("lstm");
  const PolicyBench bench(c.setup, c.env);
  const LoadedPolicy loaded(bench.File(), 2);
  ASSERT_EQ(troop_policy_state_size(loaded.policy()), 22u);
  const Tensor x = bench.Observations(3, 9);
  const std::vector<float> want = bench.Reference(x);
  const auto step = [&](std::int64_t stream, std::int64_t t) {
    std::int32_t action;
    float q[3];
    EXPECT_EQ(loaded.Act({.first = stream,
                          .observations = x.as<float>().data() + t * 5,
                          .actions = &action,
                          .values = q}),
              TROOP_POLICY_OK);
    for (std::size_t a = 0; a < 3; ++a)
      EXPECT_NEAR(q[a], want[std::size_t(t) * 3 + a], 1e-5) << stream << " " << t;
  };
  const auto refused = [&](const LoadedPolicy::Call& call, int code, const char* why) {
    EXPECT_EQ(loaded.Act(call), code);
    EXPECT_THAT(troop_policy_session_message(loaded.session()), HasSubstr(why));
  };
  std::int32_t action;
  std::vector<float> states(22), bad(22);
  bad[21] = std::numeric_limits<float>::infinity();
  const float* const first = x.as<float>().data();
  step(0, 0);
  step(1, 0);
  step(0, 1);
  const int invalid = TROOP_POLICY_INVALID_ARGUMENT;
  refused({.observations = first, .actions = &action, .stacked = true}, invalid, "is NULL");
  refused({.observations = first, .actions = &action, .states = states.data()}, invalid, "own");
  refused({.observations = first, .actions = &action, .stacked = true, .states = bad.data()},
          TROOP_POLICY_NOT_FINITE, "state");
  step(0, 2);
  ASSERT_EQ(troop_policy_reset(loaded.session(), 0), TROOP_POLICY_OK);
  step(0, 0);
  step(1, 1);
  // A program of the first version has a smaller structure, and other policies have no states.
  const void* const observations[] = {first + 10};
  void* const actions[] = {&action};
  troop_policy_call old{.size = offsetof(troop_policy_call, states),
                        .first = 1,
                        .count = 1,
                        .observations = observations,
                        .actions = actions};
  EXPECT_EQ(troop_policy_act(loaded.session(), &old), TROOP_POLICY_OK);
  old.size -= 1;
  EXPECT_EQ(troop_policy_act(loaded.session(), &old), invalid);
  const PolicyCase plain = PolicyCaseNamed("default");
  const LoadedPolicy other(PolicyBench(plain.setup, plain.env).File());
  EXPECT_EQ(troop_policy_state_size(other.policy()), 0u);
  EXPECT_EQ(
      other.Act(
          {.observations = first, .actions = &action, .stacked = true, .states = states.data()}),
      invalid);
}

TEST(PolicyLoadTest, DescribesObservationAndAction) {
  const PolicyCase c = PolicyCaseNamed("continuous_layer_norm");
  const LoadedPolicy loaded(PolicyBench(c.setup, c.env).File());
  ASSERT_EQ(loaded.code(), TROOP_POLICY_OK) << loaded.message();
  EXPECT_EQ(troop_policy_abi(), TROOP_POLICY_ABI);
  ASSERT_EQ(troop_policy_observation_count(loaded.policy()), 1u);
  const troop_policy_observation* observation = troop_policy_observation_at(loaded.policy(), 0);
  EXPECT_STREQ(observation->name, "observation");
  EXPECT_EQ(observation->dtype, TROOP_POLICY_F32);
  EXPECT_EQ(observation->rank, 1);
  EXPECT_EQ(observation->shape[0], 5);
  EXPECT_EQ(observation->bytes, 20);
  EXPECT_EQ(observation->frame_stack, 1);
  EXPECT_EQ(troop_policy_observation_at(loaded.policy(), 1), nullptr);
  const troop_policy_action* action = troop_policy_action_at(loaded.policy(), 0);
  EXPECT_EQ(action->kind, TROOP_POLICY_CONTINUOUS);
  ASSERT_EQ(action->count, 2);
  EXPECT_EQ(action->low[0], -2);
  EXPECT_EQ(action->high[1], 0.5f);
  // Values and masks are for discrete actions.
  const float frame[5] = {};
  float actions[2], values[2];
  EXPECT_EQ(loaded.Act({.observations = frame, .actions = actions, .values = values}),
            TROOP_POLICY_INVALID_ARGUMENT);
}

TEST(PolicyLoadTest, RejectsOtherInterfaceMissingFileAndOtherFiles) {
  troop_policy* policy = nullptr;
  char message[200] = "";
  troop_policy_source source{.size = sizeof source,
                             .abi = TROOP_POLICY_ABI + 1,
                             .path = "/no/such/file",
                             .message = message,
                             .message_bytes = sizeof message};
  // The members after `abi` may have another layout: the message is not written.
  EXPECT_EQ(troop_policy_load(&source, &policy), TROOP_POLICY_UNSUPPORTED);
  EXPECT_STREQ(message, "");
  source.abi = TROOP_POLICY_ABI;
  EXPECT_EQ(troop_policy_load(&source, &policy), TROOP_POLICY_NOT_FOUND);
  EXPECT_THAT(message, HasSubstr("/no/such/file"));
  source.bytes = message;
  EXPECT_EQ(troop_policy_load(&source, &policy), TROOP_POLICY_INVALID_ARGUMENT) << "both are set";
  source.bytes = nullptr;
  EXPECT_EQ(troop_policy_load(nullptr, &policy), TROOP_POLICY_INVALID_ARGUMENT);
  const TempFolder folder;
  const std::string path = folder.path() + "/other.safetensors";
  const Buffer plain = EncodeSafetensors({.tensors = {}, .metadata = {{"format", "pt"}}});
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(plain.bytes().data()), std::streamsize(plain.size()));
  source.path = path.c_str();
  EXPECT_EQ(troop_policy_load(&source, &policy), TROOP_POLICY_DATA_LOSS);
  EXPECT_THAT(message, HasSubstr("troop export"));
  EXPECT_EQ(policy, nullptr);
  // A message that is longer than its buffer.
  char brief[8] = "xxxxxxx";
  source.message = brief;
  source.message_bytes = sizeof brief;
  troop_policy_load(&source, &policy);
  EXPECT_EQ(brief[7], 0);
}

// Every truncation, and many changed bytes: a result, no crash, and no value that is not finite.
class DamagedPolicyTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, DamagedPolicyTest,
                         testing::Values("stacked_pictures", "parts_stack", "lstm"));

TEST_P(DamagedPolicyTest, DamagedFilesAreRejectedOrHarmless) {
  const PolicyCase c = PolicyCaseNamed(GetParam());
  const Buffer whole = PolicyBench(c.setup, c.env).File();
  const auto load = [](std::string_view bytes) {
    const LoadedPolicy loaded(Buffer::Copy(std::as_bytes(std::span(bytes))));
    if (loaded.code() == TROOP_POLICY_OK) return true;
    EXPECT_FALSE(loaded.message().empty());
    return false;
  };
  const std::string text(whole.text());
  ASSERT_TRUE(load(text));
  for (std::size_t size = 0; size < text.size(); size += size < 3000 ? 7 : 997)
    EXPECT_FALSE(load(text.substr(0, size))) << size;
  Rng rng({.run_seed = 4});
  for (int i = 0; i < 300; ++i) {
    std::string bad = text;
    for (int n = 0; n < 3; ++n) bad[rng.Below(3500)] = char(rng.Below(256));
    load(bad);
  }
  // Other digits keep the description readable, so that each of its numbers is checked.
  std::uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  ASSERT_LT(header, text.size());
  for (int i = 0; i < 2000; ++i) {
    std::string bad = text;
    for (std::size_t at = 8 + rng.Below(header); at < 8 + header; ++at) {
      if (bad[at] < '0' || bad[at] > '9') continue;
      bad[at] = char('0' + rng.Below(10));
      break;
    }
    load(bad);
  }
}

// Replaces the first occurrence in the description.
std::string Changed(const Buffer& file, const std::string& from, const std::string& to) {
  std::string text(file.text());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size()) << "the header's length must not change";
  return text.replace(at, from.size(), to);
}

TEST(PolicyLoadTest, ImpossibleDescriptionsAreRejected) {
  const PolicyCase c = PolicyCaseNamed("stacked_pictures");
  const Buffer whole = PolicyBench(c.setup, c.env).File();
  const auto error = [&](const std::string& from, const std::string& to) {
    const std::string text = Changed(whole, from, to);
    const LoadedPolicy loaded(Buffer::Copy(std::as_bytes(std::span(text))));
    EXPECT_NE(loaded.code(), TROOP_POLICY_OK) << to;
    return loaded.message();
  };
  EXPECT_THAT(error(R"(\"version\": 1)", R"(\"version\": 9)"), HasSubstr("later version"));
  EXPECT_THAT(error("conv2d", "conv3d"), HasSubstr("conv3d"));
  EXPECT_THAT(error(R"(\"kernel\": 5)", R"(\"kernel\": 4)"), HasSubstr("conv2d"));
  EXPECT_THAT(error(R"(\"stride\": 2)", R"(\"stride\": 0)"), HasSubstr("stride is 0"));
  EXPECT_THAT(error(R"(\"relu\")", R"(\"gelu\")"), HasSubstr("gelu"));
  EXPECT_THAT(error(R"(layers.0\")", R"(layers.9\")"), HasSubstr("no tensor layers.9"));
  EXPECT_THAT(error(R"(\"count\": 6)", R"(\"count\": 5)"), HasSubstr("size"));
  EXPECT_THAT(error(R"(\"dtype\": \"u8\")", R"(\"dtype\": \"x8\")"), HasSubstr("x8"));
}

TEST(PolicyLoadTest, ImpossibleImageLayersAreRejected) {
  const PolicyCase c = PolicyCaseNamed("deep");
  const Buffer whole = PolicyBench(c.setup, c.env).File();
  const auto error = [&](const std::string& from, const std::string& to) {
    const std::string text = Changed(whole, from, to);
    const LoadedPolicy loaded(Buffer::Copy(std::as_bytes(std::span(text))));
    EXPECT_NE(loaded.code(), TROOP_POLICY_OK) << to;
    return loaded.message();
  };
  // The first of them is that of the layer padding, the second that of max_pool.
  EXPECT_THAT(error(R"(\"padding\": 1)", R"(\"padding\": 2)"), HasSubstr("padding has another"));
  EXPECT_THAT(error(R"(\"padding\": 1)", R"(\"padding\": 0)"), HasSubstr("padding is 0"));
  const std::string pool = R"(\"kernel\": 3, \"stride\": 2, \"padding\": )";
  EXPECT_THAT(error(pool + "1", pool + "2"), HasSubstr("padding exceeds half of it"));
  EXPECT_THAT(error(pool + "1", pool + "0"), HasSubstr("padding is 0"));
  EXPECT_THAT(error(R"(\"max_pool\")", R"(\"min_pool\")"),
              HasSubstr("min_pool needs a later version of libtroop_policy"));
  const std::string block = R"(layers.2\", \"in\": [3, 3, 4], \"out\": [3, 3, 4], \"kernel\": )";
  EXPECT_THAT(error(block + "3", block + "2"), HasSubstr("an odd kernel"));
  EXPECT_THAT(error(block + "3", block + "5"), HasSubstr("layers.2.conv0.weight has 144 values"));
}

TEST(PolicyLoadTest, ImpossiblePartsAndMasksAreRejected) {
  const PolicyCase c = PolicyCaseNamed("parts");
  const Buffer whole = PolicyBench(c.setup, c.env).File();
  const auto error = [&](const std::string& from, const std::string& to) {
    const std::string text = Changed(whole, from, to);
    const LoadedPolicy loaded(Buffer::Copy(std::as_bytes(std::span(text))));
    EXPECT_NE(loaded.code(), TROOP_POLICY_OK) << to;
    return loaded.message();
  };
  EXPECT_THAT(error(R"(\"first\": 44)", R"(\"first\": 45)"), HasSubstr("exceeds its observation"));
  EXPECT_THAT(error(R"(\"first\": 40)", R"(\"first\": 44)"), HasSubstr("exceeds the observation"));
  EXPECT_THAT(error(R"(\"first\": 40)", R"(\"fast\":  40)"), HasSubstr("first is missing"));
  EXPECT_THAT(error(R"(\"branches\")", R"(\"brunches\")"), HasSubstr("a list of branches"));
  EXPECT_THAT(error(R"(\"part\", \"in\")", R"(\"parts\",\"in\")"), HasSubstr("parts within parts"));
  EXPECT_THAT(error(R"(\"out\": [39])", R"(\"out\": [38])"), HasSubstr("parts have another"));
  // A library of before names the kind that it lacks.
  EXPECT_THAT(error(R"(\"kind\": \"action_mask\")", R"(\"kind\": \"action_tusk\")"),
              HasSubstr("later version"));
}

}  // namespace
}  // namespace troop

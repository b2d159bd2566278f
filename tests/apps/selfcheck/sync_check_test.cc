#include "apps/selfcheck/sync_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/selfcheck/allreduce_check.h"
#include "apps/selfcheck/paramserver_check.h"
#include "apps/selfcheck/sync_cases.h"
#include "apps/selfcheck/trace_replay.h"

namespace troop {
namespace {

// The program's own run goes through all of them (system.check_sync); coprime to what cases repeat
// by.
constexpr std::size_t kStride = 23;

class CheckSyncTest : public testing::TestWithParam<std::string> {};

TEST_P(CheckSyncTest, EachSettingMatchesReference) {
  const auto verdicts = CheckSyncMode(GetParam(), 1, kStride);
  ASSERT_TRUE(verdicts.ok()) << verdicts.status().ToString();
  EXPECT_GE(verdicts->size(), 10u);
  bool exact = false;
  for (const SyncVerdict& v : *verdicts) {
    EXPECT_TRUE(v.ok()) << v.what << ": " << v.worst() << " of " << v.limit << ", bits "
                        << v.same_bits.value_or(true) << ", " << v.why;
    exact |= v.same_bits.value_or(false);
  }
  EXPECT_TRUE(exact || GetParam().starts_with("adjoint")) << "no setting is one device";
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '+', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Modes, CheckSyncTest, testing::ValuesIn(SyncCheckModes()), NameOf);

SyncCase Asynchronous() {
  for (const SyncCase& c : SyncCasesOf("async", 1)) {
    if (c.sync.learners == 3 && c.shards == 2) return c;
  }
  return {};
}

TEST(SyncOracleTest, SameSeedGivesSameBytesAndOtherSeedOtherOrder) {
  SyncCase c = Asynchronous();
  const ToyModel problem(c.seed);
  const auto first = RunSync(c, problem), second = RunSync(c, problem);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->value, second->value);
  const auto order = [](const SyncTrace& trace) {
    std::vector<std::pair<int, int>> order;
    for (const SyncArrival& a : trace.arrivals) order.push_back({a.shard, a.learner});
    return order;
  };
  EXPECT_EQ(order(*first), order(*second));
  ++c.seed;
  const auto other = RunSync(c, ToyModel(c.seed));
  ASSERT_TRUE(other.ok());
  EXPECT_NE(order(*first), order(*other));
}

// The oracle must reject faulty traces; one that accepts everything would test nothing.
TEST(SyncOracleTest, DetectsWrongElementLostPushOrReordering) {
  const SyncCase c = Asynchronous();
  const ToyModel problem(c.seed);
  const auto trace = RunSync(c, problem);
  ASSERT_TRUE(trace.ok());
  const auto judged = [&](const auto& change) {
    SyncTrace other = *trace;
    change(&other);
    return JudgeSync("async", c, problem, other).ok();
  };
  EXPECT_TRUE(judged([](SyncTrace*) {}));
  EXPECT_FALSE(judged([](SyncTrace* t) { t->value[3] *= 1.001f; }));
  EXPECT_FALSE(judged([](SyncTrace* t) { t->value[3] = NAN; }));
  EXPECT_FALSE(judged([](SyncTrace* t) { ++t->versions[1]; }));
  const auto last_push = [](SyncTrace* t) {
    const auto last = std::find_if(t->arrivals.rbegin(), t->arrivals.rend(),
                                   [](const SyncArrival& a) { return a.push; });
    return std::prev(last.base());
  };
  EXPECT_FALSE(judged([&](SyncTrace* t) { t->arrivals.erase(last_push(t)); }));
  EXPECT_FALSE(judged([&](SyncTrace* t) { t->arrivals.push_back(*last_push(t)); }));
  EXPECT_FALSE(judged([](SyncTrace* t) {
    for (std::size_t i = 1; i < t->arrivals.size() / 2; ++i) {
      if (t->arrivals[i].shard == 0 && t->arrivals[i].push && !t->arrivals[i - 1].push) {
        std::swap(t->arrivals[i], t->arrivals[i - 1]);
      }
    }
  }));
}

TEST(SyncOracleTest, DetectsLastBitDifferenceOnOneDevice) {
  const SyncCase c = SyncCasesOf("bsp", 1).front();
  ASSERT_EQ(c.sync.learners, 1);
  const ToyModel problem(c.seed);
  auto trace = RunSync(c, problem);
  ASSERT_TRUE(trace.ok());
  EXPECT_TRUE(JudgeSync("bsp", c, problem, *trace).ok());
  trace->value[5] = std::nextafter(trace->value[5], 9.0f);
  const SyncVerdict verdict = JudgeSync("bsp", c, problem, *trace);
  EXPECT_LT(verdict.worst(), verdict.limit);
  EXPECT_FALSE(verdict.ok());
}

TEST(SyncOracleTest, DetectsPayloadThatDiffersFromCodec) {
  for (const SyncCase& c : SyncCasesOf("async", 1)) {
    if (c.sync.learners != 3 || c.sockets || c.shards != 1) continue;
    const ToyModel problem(c.seed);
    const auto trace = RunSync(c, problem);
    ASSERT_TRUE(trace.ok());
    SyncTrace other = *trace;
    const auto push = std::ranges::find_if(other.arrivals, &SyncArrival::push);
    CodedGradient& coded = push->parts[0];
    MutableBuffer bytes(coded.payload.size());
    std::ranges::copy(coded.payload.bytes(), bytes.data());
    const bool f32 = c.codec.codec == GradientCodec::kNone || c.codec.codec == GradientCodec::kTopK;
    bytes.data()[f32 ? 3 : 1] ^= std::byte{0x40};  // of an exponent, or a gap
    coded.payload = std::move(bytes).Freeze();
    EXPECT_FALSE(JudgeSync("async", c, problem, other).ok()) << int(c.codec.codec);
  }
}

TEST(SyncOracleTest, RejectsUnknownModeListingValidOnes) {
  const auto verdicts = CheckSyncMode("hope", 1);
  EXPECT_EQ(verdicts.status().code(), Code::kNotFound);
  EXPECT_NE(verdicts.status().message().find("k_of_n+cancel"), std::string::npos);
}

}  // namespace
}  // namespace troop

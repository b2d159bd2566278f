#include "replay/selectors/selector.h"
#include "core/config/enum_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "tests/replay/chi_square.h"

namespace troop {
namespace {

using Kind = Selector::Kind;
using Slot = Selector::Slot;
using testing::ElementsAre;

Rng TestRng(std::uint64_t index) { return Rng({.run_seed = 21, .index = index}); }

std::unique_ptr<Selector> Make(const Selector::Options& options, std::int64_t slots) {
  auto selector = Selector::Make(options, slots);
  TROOP_CHECK(selector.ok(), "{}", selector.status().ToString());
  return std::move(*selector);
}

struct Drawn {
  std::vector<Slot> slot;
  std::vector<double> probability;
};

Drawn Draw(Selector* selector, Rng* rng, std::size_t count) {
  Drawn drawn{std::vector<Slot>(count), std::vector<double>(count)};
  selector->Draw(rng, drawn.slot, drawn.probability);
  return drawn;
}

// A reference implementation of the selectors.
class Model {
 public:
  explicit Model(const Selector::Options& options) : options_(options) {}

  void Add(Slot slot, float priority) {
    TROOP_CHECK(!items_.contains(slot), "the test adds {} twice", slot);
    items_[slot] = {priority, arrivals_++};
  }
  void Update(Slot slot, float priority) { items_.at(slot).priority = priority; }
  void Remove(Slot slot) { items_.erase(slot); }
  bool Has(Slot slot) const { return items_.contains(slot); }
  std::int64_t size() const { return std::int64_t(items_.size()); }
  std::vector<Slot> slots() const {
    std::vector<Slot> slots;
    for (const auto& [slot, item] : items_) slots.push_back(slot);
    return slots;
  }

  bool uses_chance() const {
    return options_.kind == Kind::kPrioritized || options_.kind == Kind::kUniform;
  }
  double Weight(Slot slot) const {
    if (options_.kind != Kind::kPrioritized) return 1;
    const double p = items_.at(slot).priority, alpha = options_.alpha;
    if (alpha == 0) return 1;
    if (alpha > 0 && p == 0) return 0;
    constexpr double kSmallest = std::numeric_limits<float>::denorm_min();
    return std::clamp(std::pow(std::max(p, kSmallest), alpha), double{FLT_MIN}, 1e28);
  }
  double total() const {
    double total = 0;
    for (const auto& [slot, item] : items_) total += Weight(slot);
    return total;
  }
  double probability_min() const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [slot, item] : items_) {
      if (Weight(slot) > 0) least = std::min(least, Weight(slot));
    }
    return std::isinf(least) ? 0 : least / total();
  }
  // Returns the order of the deterministic kinds.
  std::vector<Slot> InOrder() const {
    std::vector<Slot> order = slots();
    std::ranges::sort(order, [this](Slot a, Slot b) { return Before(items_.at(a), items_.at(b)); });
    return order;
  }

 private:
  struct Item {
    float priority = 0;
    std::int64_t arrival = 0;
  };
  bool Before(const Item& a, const Item& b) const {
    switch (options_.kind) {
      case Kind::kLifo:
        return a.arrival > b.arrival;
      case Kind::kLowest:
        return std::pair(a.priority, a.arrival) < std::pair(b.priority, b.arrival);
      case Kind::kHighest:
        return std::pair(-a.priority, a.arrival) < std::pair(-b.priority, b.arrival);
      default:
        return a.arrival < b.arrival;
    }
  }

  const Selector::Options options_;
  std::map<Slot, Item> items_;
  std::int64_t arrivals_ = 0;
};

struct Case {
  std::string name;
  Selector::Options options;
};

class SelectorContract : public testing::TestWithParam<Case> {
 protected:
  // A selector and its model, changed together.
  struct Pair {
    std::unique_ptr<Selector> selector;
    Model model;
    void Add(const std::vector<Slot>& slot, const std::vector<float>& priority) {
      selector->Add(slot, priority);
      for (std::size_t i = 0; i < slot.size(); ++i) model.Add(slot[i], priority[i]);
    }
    void Update(const std::vector<Slot>& slot, const std::vector<float>& priority) {
      selector->Update(slot, priority);
      for (std::size_t i = 0; i < slot.size(); ++i) model.Update(slot[i], priority[i]);
    }
    void Remove(const std::vector<Slot>& slot) {
      selector->Remove(slot);
      for (const Slot s : slot) model.Remove(s);
    }
  };
  Pair MakePair(std::int64_t slots) const {
    return {troop::Make(GetParam().options, slots), Model(GetParam().options)};
  }
};

INSTANTIATE_TEST_SUITE_P(
    EachKind, SelectorContract,
    testing::Values(
        Case{"Prioritized", {.kind = Kind::kPrioritized, .track_min = true}},
        Case{"PrioritizedPlain", {.kind = Kind::kPrioritized, .alpha = 1}},
        Case{"PrioritizedFlat", {.kind = Kind::kPrioritized, .alpha = 0, .track_min = true}},
        Case{"PrioritizedInverse", {.kind = Kind::kPrioritized, .alpha = -0.4, .track_min = true}},
        Case{"Uniform", {.kind = Kind::kUniform}}, Case{"Fifo", {.kind = Kind::kFifo}},
        Case{"Lifo", {.kind = Kind::kLifo}}, Case{"Lowest", {.kind = Kind::kLowest}},
        Case{"Highest", {.kind = Kind::kHighest}}),
    [](const auto& info) { return info.param.name; });

// Few values, so that many are equal; some zero, tiny and huge.
float RandomPriority(Rng* rng) {
  constexpr float kOdd[] = {0, FLT_MIN, std::numeric_limits<float>::denorm_min(), 1e30f};
  return rng->Below(8) == 0 ? kOdd[rng->Below(4)] : float(rng->Below(6)) * 0.5f;
}

// `count` of those that are in use, or of those that are not.
std::vector<Slot> RandomSlots(const Model& model, std::int64_t slots, bool in_use, Rng* rng) {
  std::vector<Slot> found;
  for (Slot slot = 0; slot < slots; ++slot) {
    if (model.Has(slot) == in_use) found.push_back(slot);
  }
  for (std::size_t i = found.size(); i > 1; --i) {
    std::swap(found[i - 1], found[rng->Below(std::uint32_t(i))]);
  }
  found.resize(std::min<std::size_t>(found.size(), rng->Below(20)));
  return found;
}

void ExpectLikeModel(Selector* selector, const Model& model, Rng* rng) {
  ASSERT_EQ(selector->size(), model.size());
  const double total = model.total();
  ASSERT_NEAR(selector->total(), total, 1e-5 * total);
  ASSERT_EQ(selector->can_draw(), total > 0);
  if (model.size() == 0) return;
  const Slot pick = selector->Pick(rng);
  ASSERT_TRUE(model.Has(pick));
  const std::vector<Slot> order = model.InOrder();
  if (!model.uses_chance()) {
    ASSERT_EQ(pick, order[0]);
  }
  if (total == 0) return;
  if (selector->probability_min() > 0) {
    ASSERT_NEAR(selector->probability_min() / model.probability_min(), 1, 1e-5);
  }
  const Drawn drawn = Draw(selector, rng, 1 + rng->Below(60));
  for (std::size_t i = 0; i < drawn.slot.size(); ++i) {
    ASSERT_TRUE(model.Has(drawn.slot[i]));
    ASSERT_GT(model.Weight(drawn.slot[i]), 0);
    ASSERT_NEAR(drawn.probability[i] * total / model.Weight(drawn.slot[i]), 1, 1e-5);
    if (!model.uses_chance()) {
      ASSERT_EQ(drawn.slot[i], order[i % order.size()]);
    }
  }
}

TEST_P(SelectorContract, MatchesReferenceModelAfterRandomChanges) {
  Rng rng = TestRng(1);
  for (const std::int64_t slots : {1, 5, 64, 100, 700}) {
    Pair pair = MakePair(slots);
    for (int step = 0; step < 300; ++step) {
      const std::uint32_t what = rng.Below(3);
      const std::vector<Slot> slot = RandomSlots(pair.model, slots, what != 0, &rng);
      std::vector<float> priority;
      for (std::size_t i = 0; i < slot.size(); ++i) priority.push_back(RandomPriority(&rng));
      if (what == 0) pair.Add(slot, priority);
      if (what == 1) pair.Update(slot, priority);
      if (what == 2) pair.Remove(slot);
      ASSERT_NO_FATAL_FAILURE(ExpectLikeModel(pair.selector.get(), pair.model, &rng))
          << slots << " slots, step " << step;
    }
  }
}

TEST_P(SelectorContract, PickingAndRemovingEmptiesItForAnyPriorities) {
  Rng rng = TestRng(2);
  for (const float priority : {0.0f, 1.0f, -1.0f}) {  // -1: many
    Pair pair = MakePair(500);
    std::vector<Slot> slot(500);
    std::iota(slot.begin(), slot.end(), 0u);
    std::vector<float> priorities(500, priority);
    if (priority < 0) std::ranges::generate(priorities, [&] { return RandomPriority(&rng); });
    pair.Add(slot, priorities);
    while (pair.model.size() > 0) {
      const std::vector<Slot> order = pair.model.InOrder();
      const Slot pick = pair.selector->Pick(&rng);
      ASSERT_TRUE(pair.model.Has(pick));
      if (!pair.model.uses_chance()) {
        ASSERT_EQ(pick, order[0]);
      }
      pair.Remove({pick});
    }
    EXPECT_EQ(pair.selector->size(), 0);
    EXPECT_FALSE(pair.selector->can_draw());
  }
}

TEST_P(SelectorContract, KeepsLastPriorityOfRepeatedSlot) {
  Rng rng = TestRng(3);
  Pair pair = MakePair(40);
  pair.Add({7, 3, 39}, {1, 1, 1});
  pair.Update({3, 39, 3, 3}, {9, 4, 0.5f, 2});
  ASSERT_NO_FATAL_FAILURE(ExpectLikeModel(pair.selector.get(), pair.model, &rng));
}

TEST_P(SelectorContract, EmptySelectorCannotSampleAndAcceptsItemsAgain) {
  Rng rng = TestRng(4);
  Pair pair = MakePair(3);
  EXPECT_FALSE(pair.selector->can_draw());
  EXPECT_EQ(pair.selector->total(), 0);
  EXPECT_EQ(pair.selector->probability_min(), 0);
  for (int round = 0; round < 3; ++round) {
    pair.Add({2, 0, 1}, {1, 2, 3});
    ASSERT_NO_FATAL_FAILURE(ExpectLikeModel(pair.selector.get(), pair.model, &rng));
    pair.Remove({0, 2});
    ASSERT_NO_FATAL_FAILURE(ExpectLikeModel(pair.selector.get(), pair.model, &rng));
    pair.Remove({1});
    ASSERT_NO_FATAL_FAILURE(ExpectLikeModel(pair.selector.get(), pair.model, &rng));
  }
}

TEST_P(SelectorContract, SameRandomNumbersGiveSameSamples) {
  Pair a = MakePair(50), b = MakePair(50);
  for (Pair* pair : {&a, &b}) pair->Add({4, 9, 14, 19, 49}, {1, 2, 3, 4, 5});
  Rng rng_a = TestRng(5), rng_b = TestRng(5);
  EXPECT_EQ(Draw(a.selector.get(), &rng_a, 333).slot, Draw(b.selector.get(), &rng_b, 333).slot);
  EXPECT_EQ(a.selector->Pick(&rng_a), b.selector->Pick(&rng_b));
}

TEST_P(SelectorContract, PredictsItsMemory) {
  for (const std::int64_t slots : {1, 1000, 300000}) {
    EXPECT_EQ(MakePair(slots).selector->bytes(), Selector::Bytes(GetParam().options, slots));
  }
}

TEST_P(SelectorContract, AbortsOnViolatedPrecondition) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Pair pair = MakePair(10);
  pair.Add({3}, {1});
  const std::vector<Slot> there = {3}, absent = {4}, beyond = {10};
  const std::vector<float> one = {1};
  EXPECT_DEATH(pair.selector->Add(there, one), "slot 3 of 10 is taken");
  EXPECT_DEATH(pair.selector->Remove(absent), "slot 4 of 10 is empty");
  EXPECT_DEATH(pair.selector->Add(beyond, one), "slot 10 of 10");
}

// Counts of single draws, and of draws of whole batches. False-alarm rate 1e-6 each (and the seeds
// are fixed).
void ExpectShares(const Selector::Options& options, const std::vector<float>& priority) {
  Rng rng = TestRng(6);
  const auto slots = std::int64_t(priority.size());
  const auto selector = Make(options, 2 * slots);
  Model model(options);
  for (std::int64_t i = 0; i < slots; ++i) {  // with holes
    const Slot slot = Slot(2 * i + 1);
    const float p = priority[std::size_t(i)];
    selector->Add({&slot, 1}, {&p, 1});
    model.Add(slot, p);
  }
  std::vector<double> share(2 * priority.size());
  for (const Slot slot : model.slots()) share[slot] = model.Weight(slot) / model.total();
  for (const auto& [draws, batch] : {std::pair{200000, 1}, std::pair{20000, 32}}) {
    std::vector<std::int64_t> counts(share.size()), picks(share.size());
    for (int i = 0; i < draws; ++i) {
      for (const Slot slot : Draw(selector.get(), &rng, std::size_t(batch)).slot) ++counts[slot];
      ++picks[selector->Pick(&rng)];
    }
    const ChiSquare drawn = TestCounts(counts, share), picked = TestCounts(picks, share);
    EXPECT_TRUE(drawn.ok()) << batch << ": " << drawn.statistic << " > " << drawn.limit;
    EXPECT_TRUE(picked.ok()) << "picks: " << picked.statistic << " > " << picked.limit;
  }
}

std::vector<float> Priorities() {
  Rng rng = TestRng(7);
  std::vector<float> priority(200);
  for (float& p : priority) p = rng.Below(5) == 0 ? 0.0f : rng.UniformF32() + 0.02f;
  return priority;
}

TEST(SelectorTest, UniformSamplesItemsEquallyOften) {
  ExpectShares({.kind = Kind::kUniform}, Priorities());
}

TEST(SelectorTest, PrioritizedSamplesInProportionToPowerOfPriority) {
  for (const double alpha : {1.0, 0.6, 0.0}) {
    ExpectShares({.kind = Kind::kPrioritized, .alpha = alpha}, Priorities());
  }
}

// Ape-X DPG's remover: what the learner finds dull leaves more often. (Zeros would take all the
// mass.)
TEST(SelectorTest, NegativeExponentPicksLowPrioritiesMoreOften) {
  std::vector<float> priority = Priorities();
  for (float& p : priority) p += 0.02f;
  ExpectShares({.kind = Kind::kPrioritized, .alpha = -0.4}, priority);
}

TEST(SelectorTest, NegativeExponentPicksPriorityZeroFirst) {
  Rng rng = TestRng(8);
  const auto selector = Make({.kind = Kind::kPrioritized, .alpha = -1}, 100);
  std::vector<Slot> slot(100);
  std::iota(slot.begin(), slot.end(), 0u);
  std::vector<float> priority(100, 1);
  priority[41] = 0;
  selector->Add(slot, priority);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(selector->Pick(&rng), 41u);
}

TEST(SelectorTest, SamplesOneItemFromEachStratum) {
  Rng rng = TestRng(9);
  for (const Kind kind : {Kind::kUniform, Kind::kPrioritized}) {
    const auto selector = Make({.kind = kind}, 64);
    std::vector<Slot> slot(64);
    std::iota(slot.begin(), slot.end(), 0u);
    selector->Add(slot, std::vector<float>(64, 1));
    const Drawn drawn = Draw(selector.get(), &rng, 64);
    EXPECT_EQ(std::set<Slot>(drawn.slot.begin(), drawn.slot.end()).size(), 64u);
  }
}

TEST(SelectorTest, NeverSamplesPriorityZero) {
  Rng rng = TestRng(10);
  const auto selector = Make({.kind = Kind::kPrioritized, .track_min = true}, 3);
  selector->Add(std::vector<Slot>{0, 1, 2}, std::vector<float>{0, 0, 0});
  EXPECT_EQ(selector->size(), 3);
  EXPECT_FALSE(selector->can_draw());
  selector->Update(std::vector<Slot>{1}, std::vector<float>{1e-30f});
  EXPECT_TRUE(selector->can_draw());
  EXPECT_EQ(selector->probability_min(), 1);
  for (const Slot slot : Draw(selector.get(), &rng, 1000).slot) ASSERT_EQ(slot, 1u);
}

TEST(SelectorTest, ExtremePrioritiesKeepTotalFiniteAndAreSampled) {
  Rng rng = TestRng(11);
  for (const double alpha : {0.6, 10.0, -10.0}) {
    const auto selector = Make({.kind = Kind::kPrioritized, .alpha = alpha}, 3);
    selector->Add(std::vector<Slot>{0, 1, 2}, std::vector<float>{FLT_MAX, FLT_MIN, FLT_MAX});
    EXPECT_TRUE(std::isfinite(selector->total()));
    for (const double p : Draw(selector.get(), &rng, 100).probability) {
      ASSERT_TRUE(p > 0 && p <= 1);
    }
    selector->Remove(std::vector<Slot>{alpha > 0 ? 0u : 1u, 2});
    ASSERT_TRUE(selector->can_draw());
    EXPECT_EQ(Draw(selector.get(), &rng, 1).slot[0], alpha > 0 ? 1u : 0u);
  }
}

TEST(SelectorTest, BreaksPriorityTiesByAgeAlsoAfterUpdate) {
  Rng rng = TestRng(12);
  for (const Kind kind : {Kind::kLowest, Kind::kHighest}) {
    const auto selector = Make({.kind = kind}, 10);
    selector->Add(std::vector<Slot>{9, 4, 6, 2}, std::vector<float>{1, 1, 1, 1});
    EXPECT_THAT(Draw(selector.get(), &rng, 6).slot, ElementsAre(9, 4, 6, 2, 9, 4));
    selector->Update(std::vector<Slot>{9, 9}, std::vector<float>{5, 1});
    EXPECT_THAT(Draw(selector.get(), &rng, 2).slot, ElementsAre(9, 4));
    selector->Remove(std::vector<Slot>{4});
    EXPECT_THAT(Draw(selector.get(), &rng, 2).slot, ElementsAre(9, 6));
  }
}

TEST(SelectorTest, RejectsInvalidOptions) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double alpha : {kNan, 10.5, -11.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Selector::Make({.alpha = alpha}, 1).status().code(), Code::kInvalidArgument);
  }
  for (const std::int64_t slots : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31}) {
    EXPECT_EQ(Selector::Make({.kind = Kind::kFifo}, slots).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(Selector::Make({.kind = Kind(77)}, 1).status().code(), Code::kInvalidArgument);
}

TEST(SelectorTest, RoundTripsNames) {
  for (const Kind kind : {Kind::kPrioritized, Kind::kUniform, Kind::kFifo, Kind::kLifo,
                          Kind::kLowest, Kind::kHighest}) {
    const auto parsed = ParseSelector(EnumName(kind));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, kind);
  }
  const Status unknown = ParseSelector("random").status();
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), testing::HasSubstr("uniform, fifo"));
}

}  // namespace
}  // namespace troop

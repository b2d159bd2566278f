#include "replay/table/table_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/replay/table_world.h"

namespace troop {
namespace {

std::string Refusal(const std::function<void(TableOptions*)>& change) {
  TableOptions options = TinyOptions();
  change(&options);
  const Status status = options.Check();
  return status.ok() ? "" : std::string(status.message());
}

TEST(TableOptionsTest, AcceptsDefaultsOfTests) { EXPECT_TRUE(TinyOptions().Check().ok()); }

TEST(TableOptionsTest, RefusalNamesTheOption) {
  const auto names = [](const std::string& refusal, const char* option) {
    return refusal.find(option) != std::string::npos;
  };
  EXPECT_TRUE(names(Refusal([](auto* o) { o->capacity_items = 0; }), "capacity_items is 0"));
  EXPECT_TRUE(names(Refusal([](auto* o) { o->min_items = 101; }), "min_items is 101"));
  EXPECT_TRUE(names(Refusal([](auto* o) { o->priority_epsilon = -1; }), "priority_epsilon"));
  EXPECT_TRUE(names(Refusal([](auto* o) { o->first_generation = 0; }), "first_generation"));
  EXPECT_TRUE(names(Refusal([](auto* o) { o->max_times_sampled = -1; }), "max_times_sampled"));
  EXPECT_TRUE(names(Refusal([](auto* o) { o->frames = 2; }), "too few for min_items"));
  EXPECT_TRUE(names(Refusal([](auto* o) { o->trajectory.observation.shape = {0}; }), "0 bytes"));
}

TEST(TableOptionsTest, ReservoirExcludesSoftCapacity) {
  EXPECT_EQ(Refusal([](auto* o) { o->reservoir = true; }), "");
  EXPECT_NE(Refusal([](auto* o) {
              o->reservoir = true;
              o->trim_every_samples = 5;
            }),
            "");
}

TEST(TableOptionsTest, FeedRequiresEvictionByAge) {
  const auto feed_with = [](const std::function<void(TableOptions*)>& change) {
    return Refusal([&](auto* o) {
      o->feed = true;
      change(o);
    });
  };
  EXPECT_EQ(feed_with([](auto*) {}), "");
  EXPECT_NE(feed_with([](auto* o) { o->remover.kind = Selector::Kind::kLowest; }), "");
  EXPECT_NE(feed_with([](auto* o) { o->max_policy_age = 1; }), "");
  EXPECT_NE(feed_with([](auto* o) { o->max_times_sampled = 1; }), "");
}

TEST(TableOptionsTest, SoftCapacityHasOneEighthMoreSlots) {
  TableOptions options = TinyOptions(80);
  EXPECT_EQ(options.slots(), 80);
  options.trim_every_samples = 1;
  EXPECT_EQ(options.slots(), 90);
  options.capacity_items = 3;
  EXPECT_EQ(options.slots(), 4);
}

TEST(TableOptionsTest, LogHoldsMinItemsThatShareNoFrame) {
  TableOptions options = TinyOptions(100000);
  options.min_items = 100000;
  EXPECT_GE(options.LogOptions().frames, options.min_items * options.view.frames_max());
  options.frames = 500000;
  EXPECT_EQ(options.LogOptions().frames, 500000);
}

TEST(TableOptionsTest, RecurrentStateOrChecksumsRequireItemRecords) {
  TableOptions options = TinyOptions();
  EXPECT_FALSE(options.has_item_records());
  const std::size_t without = options.LogBytes(100);
  options.checksums = true;
  EXPECT_TRUE(options.has_item_records());
  EXPECT_EQ(options.LogBytes(100), without + 100 * sizeof(ItemRecord));
  options.checksums = false;
  options.trajectory.state = TensorSpec{DType::kF32, {2}};
  EXPECT_TRUE(options.has_item_records());
}

}  // namespace
}  // namespace troop

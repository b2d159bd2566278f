#include "fleet/coordinator/incarnation_sequence.h"

#include <gtest/gtest.h>

#include "core/storage/memory_storage.h"

namespace troop {
namespace {

TEST(IncarnationSequenceTest, NumbersIncreaseAcrossProcesses) {
  MemoryStorage run;
  std::uint64_t last = 0;
  for (int process = 0; process < 3; ++process) {
    IncarnationSequence numbers(&run);
    ASSERT_TRUE(numbers.Load(true).ok());
    for (int i = 0; i < 40; ++i) {
      const auto number = numbers.Take();
      ASSERT_TRUE(number.ok());
      EXPECT_GT(*number, last);
      last = *number;
    }
    EXPECT_EQ(numbers.next(), last + 1);
  }
}

TEST(IncarnationSequenceTest, IssuesNoneThatIsNotReserved) {
  MemoryStorage run;
  IncarnationSequence numbers(&run);
  ASSERT_TRUE(numbers.Load(true).ok());
  run.FailFrom(run.changes(), Unavailable("the disk is full"));
  EXPECT_EQ(numbers.Take().status().code(), Code::kUnavailable);
  EXPECT_EQ(numbers.next(), 1u);
}

TEST(IncarnationSequenceTest, DamagedOrMissingFileIsDataLoss) {
  for (const char* text : {"", "0", "12x", "99999999999"}) {
    MemoryStorage run;
    ASSERT_TRUE(run.WriteAtomic("incarnation", std::string_view(text)).ok());
    EXPECT_EQ(IncarnationSequence(&run).Load(true).code(), Code::kDataLoss) << text;
  }
  MemoryStorage empty;
  EXPECT_EQ(IncarnationSequence(&empty).Load(false).code(), Code::kDataLoss);
}

}  // namespace
}  // namespace troop

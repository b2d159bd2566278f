#include "paramserver/shard/copy_on_write_floats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "net/wire/shared_memory.h"

namespace troop {
namespace {

TEST(LentFloatsTest, LentValuesNeverChange) {
  CopyOnWriteFloats floats(1000);
  std::ranges::fill(floats.Mutable(), 1.0f);
  const Buffer first = floats.TakeSnapshot(), again = floats.TakeSnapshot();
  EXPECT_EQ(first.data(), again.data());
  std::ranges::fill(floats.Mutable(), 2.0f);
  const Buffer second = floats.TakeSnapshot();
  floats.Mutable()[999] = 3;
  EXPECT_EQ(std::ranges::count(first.as<float>(), 1.0f), 1000);
  EXPECT_EQ(std::ranges::count(second.as<float>(), 2.0f), 1000);
  EXPECT_EQ(std::ranges::count(floats.values(), 2.0f), 999);
  EXPECT_EQ(floats.values()[999], 3);
}

TEST(LentFloatsTest, AvoidsCopyOnceAllLoansAreReturned) {
  CopyOnWriteFloats floats(10);
  const float* const at = floats.Mutable().data();
  { const Buffer part = floats.TakeSnapshot().Slice(4, 8); }
  EXPECT_EQ(floats.Mutable().data(), at);
  const Buffer kept = floats.TakeSnapshot().Slice(4, 8);
  EXPECT_NE(floats.Mutable().data(), at);
}

// The sending process has released the buffer; the other process still reads the shared block.
TEST(LentFloatsTest, ValuesReadByOtherProcessNeverChange) {
  CopyOnWriteFloats floats(100'000);
  std::ranges::fill(floats.Mutable(), 1.0f);
  const float* const at = floats.Mutable().data();
  const auto ticket = SharedBufferPool::Get().Share(floats.TakeSnapshot());
  ASSERT_TRUE(ticket.has_value());
  SharedBufferReader reader;
  Result<Buffer> seen = reader.Open(*ticket);
  ASSERT_TRUE(seen.ok()) << seen.status().ToString();
  std::ranges::fill(floats.Mutable(), 2.0f);
  EXPECT_NE(floats.values().data(), at);
  EXPECT_EQ(std::ranges::count(seen->as<float>(), 1.0f), 100'000);
  const float* const next = floats.values().data();
  seen = Buffer();
  floats.TakeSnapshot();
  EXPECT_EQ(floats.Mutable().data(), next);
}

TEST(LentFloatsTest, OutlivesItsOwner) {
  std::optional<CopyOnWriteFloats> floats(3);
  floats->Mutable()[1] = 7;
  const Buffer lent = floats->TakeSnapshot();
  floats.reset();
  EXPECT_EQ(lent.as<float>()[1], 7);
}

// Under the thread sanitizer: a reader's last look comes before the change.
TEST(LentFloatsTest, ReadersOnOtherThreadsReturnLoans) {
  CopyOnWriteFloats floats(64);
  for (int round = 1; round <= 50; ++round) {
    std::ranges::fill(floats.Mutable(), float(round));
    std::jthread reader([lent = floats.TakeSnapshot(), round]() mutable {
      EXPECT_EQ(std::ranges::count(lent.as<float>(), float(round)), 64);
      lent = {};
    });
    for (float& x : floats.Mutable()) x = -1;
  }
}

}  // namespace
}  // namespace troop

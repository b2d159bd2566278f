#include "learners/gpu/parallel_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

TEST(ParallelCopyTest, CopiesEachByteOnceWithAnyThreadCount) {
  const std::size_t sizes[] = {
      0, 1, 5'000'003, 7, (std::size_t(2) << 20), (std::size_t(1) << 20) + 1};
  std::size_t all = 0;
  for (const std::size_t size : sizes) all += size;
  std::vector<std::uint8_t> from(all);
  Rng rng(RngKey{});
  for (std::uint8_t& byte : from) byte = std::uint8_t(rng.NextU32());
  for (const int helpers : {-1, 0, 1, 3}) {
    ParallelCopy copy(helpers);
    for (int again = 0; again < 3; ++again) {
      std::vector<std::uint8_t> to(all + 1, std::uint8_t(again));
      std::vector<ParallelCopy::Piece> pieces;
      std::size_t at = 0;
      for (const std::size_t size : sizes) {
        pieces.push_back({to.data() + at, from.data() + at, size});
        at += size;
      }
      copy.Copy(pieces);
      EXPECT_EQ(to.back(), again);
      to.pop_back();
      EXPECT_TRUE(to == from) << helpers;
    }
    copy.Copy({});
  }
  EXPECT_LE(ParallelCopy::DefaultHelpers(), 7);
}

}  // namespace
}  // namespace troop

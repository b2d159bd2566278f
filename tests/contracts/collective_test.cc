#include "tests/contracts/collective_contract.h"

#include <atomic>
#include <mutex>

namespace troop {
namespace {

// Pieces of odd sizes, and late: the least polite network.
Ranks MakeSimRanks(int size) {
  SimGroup group({.size = size,
                  .seed = 1,
                  .delay_min = Milliseconds(0),
                  .delay_max = Milliseconds(3),
                  .piece_bytes_max = 10'007});
  Ranks ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(group.Rank(rank));
  return ranks;
}

Ranks MakeTcpRanks(int size) { return MakeSocketRanks(size, {.path = GroupOptions::Path::kTcp}); }

std::string NameOf(const testing::TestParamInfo<MakeRanks>& info) {
  if (info.param == &MakeSimRanks) return "Sim";
  return "Tcp";
}

INSTANTIATE_TEST_SUITE_P(Implementations, CollectiveContract,
                         testing::Values(&MakeSimRanks, &MakeTcpRanks), NameOf);

}  // namespace
}  // namespace troop

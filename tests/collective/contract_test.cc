#include "tests/contracts/collective_contract.h"

#include <atomic>
#include <mutex>

#include "tests/collective/nccl_ranks.h"

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

Ranks MakeShmRanks(int size) { return MakeSocketRanks(size, {.path = GroupOptions::Path::kShm}); }

// Two hosts: the first has three of five ranks, and not the first three.
Ranks MakeHostsRanks(int size) {
  const std::vector<std::string> hosts = {"a", "b", "a", "b", "a"};
  return MakeSocketRanks(size, {}, {hosts.begin(), hosts.begin() + size});
}

// The first rank is alone on its host.
Ranks MakeUnevenRanks(int size) {
  const std::vector<std::string> hosts = {"a", "b", "b", "b", "b"};
  return MakeSocketRanks(size, {}, {hosts.begin(), hosts.begin() + size});
}

Ranks MakeNcclRanks(int size) {
  Ranks ranks = MakeSocketRanks(size, {});
  RunRanks(size, [&](int rank) {
    auto made = MakeDeviceRank(std::move(ranks[std::size_t(rank)]));
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    ranks[std::size_t(rank)] = std::move(*made);
  });
  return ranks;
}

std::string NameOf(const testing::TestParamInfo<MakeRanks>& info) {
  if (info.param == &MakeSimRanks) return "Sim";
  if (info.param == &MakeShmRanks) return "Shm";
  if (info.param == &MakeHostsRanks) return "TwoHosts";
  if (info.param == &MakeNcclRanks) return "Nccl";
  return info.param == &MakeUnevenRanks ? "UnevenHosts" : "Tcp";
}

INSTANTIATE_TEST_SUITE_P(Implementations, CollectiveContract,
                         testing::Values(&MakeSimRanks, &MakeTcpRanks, &MakeShmRanks,
                                         &MakeHostsRanks, &MakeUnevenRanks, &MakeNcclRanks),
                         NameOf);

}  // namespace
}  // namespace troop

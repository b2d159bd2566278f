#pragma once

// Groups of threads for tests: RunRanks(size, f) calls f(rank) on a thread each.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collective/group.h"
#include "collective/sim/sim_group.h"
#include "core/base/check.h"

namespace troop {

inline void RunRanks(int size, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(f, rank);
  for (std::thread& thread : threads) thread.join();
}

using Ranks = std::vector<std::unique_ptr<Collective>>;

// Ranks over sockets, all in this process; hosts[rank] is what they say of theirs ({}: this one).
inline Ranks MakeSocketRanks(int size, GroupOptions options,
                             const std::vector<std::string>& hosts = {}) {
  std::vector<GroupEntry> entries;
  std::vector<Member> members;
  options.size = size;
  if (options.group.empty()) options.group = "test";
  for (int rank = 0; rank < size; ++rank) {
    options.rank = rank;
    if (!hosts.empty()) options.host = hosts[std::size_t(rank)];
    Result<GroupEntry> entry = GroupEntry::Listen(options);
    TROOP_CHECK(entry.ok(), "{}", entry.status().ToString());
    members.push_back(entry->self());
    entries.push_back(std::move(*entry));
  }
  Ranks ranks{std::size_t(size)};
  RunRanks(size, [&](int rank) {
    auto joined = std::move(entries[std::size_t(rank)]).Join(members);
    TROOP_CHECK(joined.ok(), "{}", joined.status().ToString());
    ranks[std::size_t(rank)] = std::move(*joined);
  });
  return ranks;
}

}  // namespace troop

#pragma once

#include <cstdint>

namespace troop {

// The primary and backup of a parameter shard (paramserver/replication/primary_election.h). Terms
// are never reused and only increase; each has one primary, and at most one backup for its whole
// duration.
struct ShardTerm {
  std::uint64_t term = 0;     // 0: not assigned yet
  std::uint64_t since = 0;    // first term of the current primary
  std::uint64_t from = 0;     // term of the primary whose backup it was; 0: it starts from disk
  std::int32_t primary = -1;  // index of a parameter server
  std::int32_t backup = -1;   // -1: none; the primary acknowledges alone
  std::uint64_t primary_incarnation = 0, backup_incarnation = 0;
  template <class A>
  void serialize(A& a) {
    a(term, since, from, primary, backup, primary_incarnation, backup_incarnation);
  }
  bool operator==(const ShardTerm&) const = default;
};

}  // namespace troop

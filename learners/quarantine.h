#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>

#include "core/trajectory.h"
#include "replay/client.h"
#include "replay/sample.h"

namespace troop {

// Keeps items away from later batches that made an update bad while all weights were finite: one
// number that is finite and too large makes a loss or a gradient infinite, and its item, whose
// priority is never renewed, would be drawn again and again. Owner: the learner's thread.
class Quarantine {
 public:
  static constexpr float kSuspect = kSuspectNumber;  // smaller ones are not to blame
  // Without kGoodMin good updates in between. Where more are bad, the weights or the environment
  // are, as a whole.
  static constexpr std::size_t kItemsMax = 32;
  static constexpr int kGoodMin = 1000;

  // Of a batch whose update was skipped. True: items of it are to blame, and were given a priority
  // of -0 (docs/protocol.md), so that `sampler` draws them no more. Logs each.
  bool Catch(const SampleBatch& batch, ReplaySampler* sampler);
  void CountGood();
  std::uint64_t items() const { return items_; }  // ever

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
  std::set<Key> caught_;  // since the last row of good updates
  int good_ = 0;
  std::uint64_t items_ = 0;
};

}  // namespace troop

#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>

#include "core/tensor/trajectory.h"
#include "replay/codec/sample_batch.h"
#include "replay/service/client.h"

namespace troop {

// Excludes items from later batches if their batch failed while all weights were finite. A finite
// but very large value makes the loss or gradient infinite, and its item would be sampled
// repeatedly, because its priority is never updated. Owner: the learner's thread.
class Quarantine {
 public:
  static constexpr float kSuspect = kSuspiciousMagnitude;  // smaller values are not blamed
  // Maximum number of items that are excluded before kGoodMin good updates follow the last of them.
  // With more, the weights or the environment as a whole are at fault.
  static constexpr std::size_t kItemsMax = 32;
  static constexpr int kGoodMin = 1000;

  // Inspects a batch whose update was skipped. True: items of it are at fault and were given
  // priority -0 (docs/design/protocol.md), so that `sampler` does not sample them again; new ones
  // are logged. False: no item is at fault, or the limit is exceeded; then nothing changes.
  bool Catch(const SampleBatch& batch, ReplaySampler* sampler);
  // Counts a good update; kGoodMin of them after the last excluded item reset the limit.
  void CountGood();
  std::uint64_t items() const { return items_; }  // since construction

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
  std::set<Key> caught_;  // excluded items that count toward kItemsMax
  int good_ = 0;          // good updates since the last of them
  std::uint64_t items_ = 0;
};

}  // namespace troop

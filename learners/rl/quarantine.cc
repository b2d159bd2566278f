// Implements the exclusion of items whose values make updates fail.

#include "learners/rl/quarantine.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "learners/nonfinite_report.h"

namespace troop {

// A batch with too many suspects is not an item problem; then nothing is changed.
bool Quarantine::Catch(const SampleBatch& batch, ReplaySampler* sampler) {
  std::vector<ItemKey> keys;
  std::vector<std::string> words;
  std::set<Key> caught = caught_;
  for (std::size_t i = 0; i < batch.key.size(); ++i) {
    const LargestNumber largest = FindLargest(batch, i);
    if (!(largest.value >= kSuspect)) continue;
    const ItemKey& key = batch.key[i];
    keys.push_back(key);
    if (caught.insert({key.shard, key.slot, key.generation}).second) words.push_back(largest.where);
  }
  if (keys.empty() || caught.size() > kItemsMax) return false;
  // Priority -0 marks the items as excluded; see docs/design/protocol.md.
  sampler->UpdatePriorities(keys, std::vector<float>(keys.size(), -0.0F));
  items_ += words.size();
  for (const std::string& item : words) {
    LogWarning("excluded from later batches: {}; its actor's log names environment, seed and step",
               item);
  }
  caught_ = std::move(caught);
  good_ = 0;
  return true;
}

void Quarantine::CountGood() {
  if (++good_ >= kGoodMin) caught_.clear();
}

}  // namespace troop

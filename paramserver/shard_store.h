#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/storage.h"

namespace troop {

// What parameter shards keep in a run's folder: paramserver/shard-<k>/<since>, the newest snapshot
// of the primary that began with that term. A primary that was replaced and does not know it yet
// writes beside its successor's and is never read again. Calls block on the disk: from jobs.
class ShardStore {
 public:
  ShardStore(Storage* run, std::int32_t shard);
  // Replaces the term's own; removes those of older terms.
  Status Save(std::uint64_t since, const Buffer& snapshot);
  // Those of this shard, the newest term first; names for Read.
  Result<std::vector<std::string>> List();
  Result<Buffer> Read(const std::string& name);
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

 private:
  Storage* const run_;
  const std::string folder_;
};

}  // namespace troop

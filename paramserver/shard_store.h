#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/storage.h"
#include "net/control.h"

namespace troop {

// What parameter shards keep in a run's folder: paramserver/shard-<k>/<since>, the newest snapshot
// of the primary that began with that term, and the one before it, <since>.before or, where it has
// written but one, the newest of an older term: where one is damaged the other serves. After a move
// of shards paramserver/move-<number>/…, so that no two maps share a file. A primary that was
// replaced and does not know it yet writes beside its successor's and is never read again. Calls
// block on the disk: from jobs.
class ShardStore {
 public:
  // `move`: the one that began the map's epoch (ShardEpoch).
  ShardStore(Storage* run, std::int32_t shard, std::uint64_t move = 0);
  // Replaces the term's own, which becomes the one before; removes all older ones.
  Status Save(std::uint64_t since, const Buffer& snapshot);
  // Those of this shard, the newest first; names for Read.
  Result<std::vector<std::string>> List();
  Result<Buffer> Read(const std::string& name);
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

 private:
  Storage* const run_;
  const std::string folder_;
};

// The epochs of a run's map as they are on the disk, paramserver/epochs; empty: it has moved
// nothing yet. Errors: kDataLoss.
Result<std::vector<ShardEpoch>> ReadShardEpochs(Storage* run);
// Durable when it returns.
Status WriteShardEpochs(Storage* run, const std::vector<ShardEpoch>& epochs);
// The snapshots of a run's folder that are not whole, and why, a line each. Reads all of them.
Result<std::vector<std::string>> DamagedShardStates(Storage* run);
// The states of all maps but this one.
Status RemoveOtherShardStates(Storage* run, std::uint64_t move);

}  // namespace troop

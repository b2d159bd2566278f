#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/storage/storage.h"
#include "net/control/shard_move.h"

namespace troop {

// Snapshots of a parameter shard in a run folder. paramserver/shard-<k> holds two of them:
//   <since>: the newest snapshot of the primary whose service began with term `since`;
//   <since>.before: the one before it. If that primary has written only one, the second is instead
//   the newest snapshot of an older term, under that term's name.
// If one file is damaged, the other is used. After a resharding the folder is
// paramserver/move-<number>/shard-<k>, so that two shard maps never share a file. A deposed primary
// that has not noticed it yet writes only under its old term, to a file that is never read again.
// Calls block on the disk: make them from jobs of an executor.
class ShardSnapshots {
 public:
  // `move`: number of the resharding that began the current epoch of the shard map
  // (ShardEpoch::move); 0: the initial epoch.
  ShardSnapshots(Storage* run, std::int32_t shard, std::uint64_t move = 0);
  // Atomically replaces the snapshot of term `since`; the old one becomes the predecessor and all
  // older ones are removed.
  Status Save(std::uint64_t since, const Buffer& snapshot);
  // File names of this shard's snapshots, the newest first; arguments for Read.
  Result<std::vector<std::string>> List();
  // Reads a whole snapshot.
  Result<Buffer> Read(const std::string& name);
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

 private:
  Storage* const run_;
  const std::string folder_;
};

// Reads the run's shard map epochs from paramserver/epochs; empty if it was never resharded.
// Errors: kDataLoss.
Result<std::vector<ShardEpoch>> ReadShardEpochs(Storage* run);
// Writes the epochs; durable when it returns.
Status WriteShardEpochs(Storage* run, const std::vector<ShardEpoch>& epochs);
// Lists the damaged snapshots of a run folder: one line each, with the reason. Reads all snapshots.
Result<std::vector<std::string>> DamagedShardStates(Storage* run);
// Removes the snapshots of all shard maps except the one of resharding `move`.
Status RemoveOtherShardStates(Storage* run, std::uint64_t move);

}  // namespace troop
